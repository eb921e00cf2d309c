"""Tool calls of a real model (docs/BEHAVIOUR.md 6.5): read, streamed, gone on with after a crash.

Qwen2.5-Coder-0.5B writes its calls without an opener, in a code fence, of its own free will: such a
call is held until it is whole. A forced one flows."""
import http.client
import json
import os
import signal

import pytest

from server import CODER, serving
from legs import PATHS, read_stream, read_whole

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Get the current weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
BODY = {"messages": [{"role": "user", "content": "What is the weather in Bern and in Paris?"}],
        "tools": TOOLS, "temperature": 0, "seed": 3, "max_tokens": 200, "stream": True}


@pytest.fixture(scope="module")
def coder(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("calls"), "-model", CODER,
                 env={"SHOAL_LIMITS_PING": "20ms", "SHOAL_LIMITS_DEFER_HEADERS": "0"}) as server:
        yield server


class Joined:
    """What a client makes of a stream: text, calls by index, the finish."""

    def __init__(self):
        self.content, self.calls, self.finish, self.pieces = "", {}, None, 0

    def add(self, chunk):
        for choice in chunk["choices"]:
            delta = choice["delta"]
            self.content += delta.get("content") or ""
            for call in delta.get("tool_calls") or []:
                self.pieces += 1
                have = self.calls.setdefault(call["index"], {"arguments": ""})
                if "id" in call:
                    assert "id" not in have, "a call begins once"
                    have.update(id=call["id"], name=call["function"]["name"])
                have["arguments"] += call["function"].get("arguments") or ""
            self.finish = choice["finish_reason"] or self.finish


FORCED = {"tool_choice": "required"}


def streamed(server, after=None, act=None, **more):
    """The reply; act() is called once `after` pieces of a call came."""
    body = json.dumps({"model": server.model(), **BODY, **more})
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    reply, joined = connection.getresponse(), Joined()
    assert reply.status == 200
    while True:
        line = reply.readline().strip()
        if line == b"data: [DONE]":
            return joined
        assert line or not reply.isclosed(), "the stream ended early"
        if line.startswith(b"data: "):
            joined.add(json.loads(line[6:]))
        if act and joined.pieces >= after:
            act()
            act = None


@pytest.mark.parametrize("more, cities, least", [({}, ["Bern"], 1), (FORCED, ["Bern", "Paris"], 8)],
                         ids=["free", "forced"])
def test_A17_A29_calls_flow_and_end_as_the_reply_that_is_not_streamed(coder, more, cities, least):
    flow = streamed(coder, **more)
    assert flow.finish == "tool_calls" and flow.content == ""
    assert flow.pieces >= least, "arguments come as they are written"
    said = [json.loads(c["arguments"]) for c in flow.calls.values()]
    assert said == [{"city": c} for c in cities]
    whole = coder.post("/v1/chat/completions", {"model": coder.model(), **BODY, **more,
                                                "stream": False}).json()["choices"][0]
    assert whole["finish_reason"] == "tool_calls"
    assert [(c["id"], c["function"]) for c in whole["message"]["tool_calls"]] == [
        (c["id"], {"name": c["name"], "arguments": c["arguments"]}) for c in flow.calls.values()]


def test_A29_what_is_held_back_is_silence_that_pings_fill(coder):
    """A call that nothing marks waits until it is whole."""
    r = coder.post("/v1/chat/completions", {"model": coder.model(), **BODY})
    before = r.body.decode().split('"tool_calls"')[0]
    pings = [json.loads(line[len(": shoal "):]) for line in before.splitlines()
             if line.startswith(": shoal ")]
    assert any(p["phase"] == "decode" for p in pings), before


def test_a_child_killed_in_the_middle_of_a_call_changes_no_byte_of_it(coder):
    quiet = streamed(coder, **FORCED)
    for after in (1, 4):
        killed = coder.child()
        shaken = streamed(coder, after, lambda: os.kill(killed, signal.SIGKILL), **FORCED)
        assert coder.child() != killed
        assert (shaken.content, shaken.calls, shaken.finish) == \
            (quiet.content, quiet.calls, quiet.finish)


@pytest.mark.parametrize("dialect", PATHS)
def test_B10_a_call_comes_as_a_call_and_never_as_text_too(coder, dialect):
    function = TOOLS[0]["function"]
    own = {"openai": {**BODY}, "ollama": {"messages": BODY["messages"], "tools": TOOLS, "options": {
               "temperature": 0, "num_predict": 200}},
           "anthropic": {"messages": BODY["messages"], "temperature": 0, "max_tokens": 200,
                         "tools": [{"name": function["name"], "input_schema": function[
                             "parameters"], "description": function["description"]}]},
           "responses": {"input": BODY["messages"], "temperature": 0, "max_output_tokens": 200,
                         "tools": [{"type": "function", **function}]}}[dialect]
    for stream in (False, True):
        r = coder.post(PATHS[dialect], {"model": coder.model(), **own, "stream": stream})
        assert r.status == 200, r.body
        text = read_stream(dialect, r.body)[0] if stream else read_whole(dialect, r.body)
        assert not text and b"Bern" in r.body, (stream, r.body)


@pytest.mark.parametrize("more, text", [({}, '```json\n{\n  "name": "get_weather",\n'),
                                        (FORCED, "")], ids=["free", "forced"])
def test_B18_a_cut_call_ends_with_length_and_promises_nothing(coder, more, text):
    """What may be a call is text when it is cut; what must be one shows nothing of its marker."""
    reply = coder.post("/v1/chat/completions", {"model": coder.model(), **BODY, **more,
                                                "stream": False, "max_tokens": 12})
    choice = reply.json()["choices"][0]
    assert reply.status == 200 and choice["finish_reason"] == "length"
    assert not choice["message"].get("tool_calls") and choice["message"]["content"] == text
