"""A leg that fails around a tool call (BEHAVIOUR 9.6): made again from its start if the client has
none of it, else continued inside its arguments by a leg that can, else an error."""
import concurrent.futures
import json

import pytest

from proxy import Proxy
from server import serving
from test_calls import CODER, TOOLS
from legs import CONTINUE, DIALECTS, PATHS, QUIET, Upstream, config_of, events_of

SAY, TEXT, ARGS = "What is the weather in Bern?", "I look.", '{"city": "Bern", "unit": "C"}'
HALF = ARGS[:12]
FUNCTION = TOOLS[0]["function"]


def body_of(client, model, stream, is_forced=False):
    body = {"model": model, "stream": stream, "temperature": 0, "tools": TOOLS,
            "messages": [{"role": "user", "content": SAY}]}
    if client == "ollama":
        body["options"] = {"temperature": body.pop("temperature"), "num_predict": 200}
        return body
    if client == "anthropic":
        body["tools"] = [{"name": FUNCTION["name"], "input_schema": FUNCTION["parameters"]}]
        forced = {"type": "any"}
    elif client == "responses":
        body["input"] = body.pop("messages")
        body["tools"] = [{"type": "function", **FUNCTION}]
        forced = "required"
    else:
        forced = "required"
    body["max_output_tokens" if client == "responses" else "max_tokens"] = 200
    return {**body, **({"tool_choice": forced} if is_forced else {})}


class Heard:
    """What a client has of a reply: text, [name, arguments] in their order, how it ended."""

    def __init__(self, client, reply, stream):
        assert reply.status == 200, reply.body
        self.text, self.calls, self.end = "", [], "nothing"
        if client == "ollama":
            for line in reply.body.decode().splitlines():
                self._ollama(json.loads(line))
        elif stream:
            for e in events_of(reply.body):
                getattr(self, "_" + client)(e)
        else:
            getattr(self, f"_{client}_whole")(json.loads(reply.body))

    def _ollama(self, e):
        message = e.get("message", {})
        self.text += message.get("content", "")
        self.calls += [[c["function"]["name"], json.dumps(c["function"]["arguments"])]
                       for c in message.get("tool_calls", [])]
        if e.get("done"):
            self.end = e["done_reason"]

    def _openai(self, e):
        for c in e.get("choices", []):
            self.text += c["delta"].get("content") or ""
            for call in c["delta"].get("tool_calls", []):
                if "id" in call:
                    self.calls.append([call["function"]["name"], ""])
                self.calls[-1][1] += call["function"].get("arguments") or ""
            self.end = c["finish_reason"] or self.end

    def _openai_whole(self, r):
        c = r["choices"][0]
        self.text, self.end = c["message"]["content"] or "", c["finish_reason"]
        self.calls = [[x["function"]["name"], x["function"]["arguments"]]
                      for x in c["message"].get("tool_calls", [])]

    def _anthropic(self, e):
        if e["type"] == "content_block_start" and e["content_block"]["type"] == "tool_use":
            self.calls.append([e["content_block"]["name"], ""])
        if e["type"] == "content_block_delta":
            self.text += e["delta"].get("text", "")
            if "partial_json" in e["delta"]:
                self.calls[-1][1] += e["delta"]["partial_json"]
        if e["type"] == "message_delta":
            self.end = e["delta"]["stop_reason"]
        if e["type"] == "error":
            self.end = "error"

    def _anthropic_whole(self, r):
        self.end = r["stop_reason"]
        for b in r["content"]:
            if b["type"] == "tool_use":
                self.calls.append([b["name"], json.dumps(b["input"])])
            else:
                self.text += b["text"]

    def _responses(self, e):
        if e["type"] == "response.output_item.added" and e["item"]["type"] == "function_call":
            self.calls.append([e["item"]["name"], ""])
        if e["type"] == "response.function_call_arguments.delta":
            self.calls[-1][1] += e["delta"]
        if e["type"] == "response.output_text.delta":
            self.text += e["delta"]
        self.end = {"response.completed": "completed", "response.failed": "error"}.get(
            e["type"], self.end)

    def _responses_whole(self, r):
        self.end = r["status"]
        for i in r["output"]:
            if i["type"] == "function_call":
                self.calls.append([i["name"], i["arguments"]])
            else:
                self.text += "".join(p["text"] for p in i["content"])

    def said(self):
        return self.text, [(name, json.loads(args)) for name, args in self.calls]


ENDS = {"ollama": "tool_calls", "openai": "tool_calls", "anthropic": "tool_use",
        "responses": "completed"}


def chunk(delta, finish=None):
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta,
                                               "finish_reason": finish}]}) + "\n\n"


def call_chunks(args, is_end):
    yield chunk({"tool_calls": [{"index": 0, "id": "call_7", "type": "function",
                                 "function": {"name": FUNCTION["name"], "arguments": ""}}]})
    for i in range(0, len(args), 6):
        yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": args[i:i + 6]}}]})
    if is_end:
        yield chunk({}, "tool_calls")
        yield "data: [DONE]\n\n"


# how far the first leg comes before its connection ends
FIRSTS = {"text": [TEXT, None], "text and a name": [TEXT, ""], "text and half": [TEXT, HALF],
          "a name": ["", ""], "half": ["", HALF]}


@pytest.fixture(scope="module")
def made_again(tmp_path_factory):
    """(server, what the second legs were asked). The model's name says how far the first leg comes
    and what the second one speaks."""
    def break_off(body):
        text, args = FIRSTS[body["model"].split("/")[0]]
        if text:
            yield chunk({"content": text})
        if args is not None:
            yield from call_chunks(args, False)

    def make(body):
        first, second = body["model"].split("/")
        text, last = FIRSTS[first][0], body["messages"][-1]
        if second == "anthropic":
            yield from anthropic_call(last["role"] == "user" and text)
            return
        if last["role"] == "user" and text:
            yield chunk({"content": text})
        yield from call_chunks(ARGS, True)

    home, cloud, desk = tmp_path_factory.mktemp("again"), Upstream(break_off), Upstream(make)
    path = home / "config.yaml"
    path.write_text(config_of(
        {"cloud": {"kind": "upstream", "dialect": "openai", "continue": "final_message",
                   "url": f"http://127.0.0.1:{cloud.port}"},
         **{second: {"kind": "upstream", "dialect": second, "continue": CONTINUE[second],
                     "url": f"http://127.0.0.1:{desk.port}"} for second in SECONDS}},
        [{"match": {"model": f"*/{second}"}, "legs": ["cloud", second]} for second in SECONDS],
        QUIET))
    with serving(home, "-config", str(path)) as server:
        yield server, desk.asked
    cloud.stop()
    desk.stop()


SECONDS = ("openai", "anthropic")


@pytest.mark.parametrize("second", SECONDS)
@pytest.mark.parametrize("first", FIRSTS)
def test_a_call_of_which_nothing_was_delivered_is_made_again(made_again, first, second):
    server, asked = made_again
    text, args = FIRSTS[first]
    want = (text, [(FUNCTION["name"], json.loads(ARGS))])
    before = len(asked)
    for client in DIALECTS:
        for stream in (True, False):
            r = server.post(PATHS[client], body_of(client, f"{first}/{second}", stream))
            got = Heard(client, r, stream) if r.status == 200 else None
            what = (client, stream, r.status, r.body[-600:])
            if args is None or client == "ollama" or not stream:
                assert got and (got.said(), got.end) == (want, ENDS[client]), what
                continue
            # the client knows that a call began: neither leg can go on inside it
            assert got.end == "error" and got.text == text, what
            assert [c[0] for c in got.calls] == [FUNCTION["name"]], what
            assert args.startswith(got.calls[0][1]), what
    assert len(asked) > before
    for _, body, _ in asked[before:]:
        assert "tool_calls" not in body["messages"][-1], body


def anthropic_call(text):
    def event(kind, **more):
        return f"event: {kind}\ndata: " + json.dumps({"type": kind, **more}) + "\n\n"

    yield event("message_start", message={
        "id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": [],
        "stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}})
    if text:
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
        yield event("content_block_stop", index=0)
    at = 1 if text else 0
    yield event("content_block_start", index=at, content_block={
        "type": "tool_use", "id": "toolu_7", "name": FUNCTION["name"], "input": {}})
    yield event("content_block_delta", index=at, delta={"type": "input_json_delta",
                                                        "partial_json": ARGS})
    yield event("content_block_stop", index=at)
    yield event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 9})
    yield event("message_stop")


# ---------------------------------------------------------------- by a leg that can

def resumed(home, coder, ports):
    """The front's configuration: for each cell a leg through a proxy of its own, and behind it our
    own engine or another shoal that is spoken to in one of two protocols."""
    name = coder.model()
    leg = {"kind": "upstream", "model": name, "can": ["tools"]}
    path = home / "config.yaml"
    path.write_text(config_of(
        {"engine": {"kind": "engine", "model": name},
         **{other: {**leg, "dialect": other, "continue": "shoal", "url": coder.url,
                    "deadlines": {"first_token": "60s", "gap": "60s"}} for other in SECONDS},
         **{f"cloud-{c}-{second}": {**leg, "dialect": "openai", "url": f"http://127.0.0.1:{port}",
                                    "deadlines": {"first_token": "60s", "gap": "1s"}}
            for (c, second), port in ports.items()}},
        [{"match": {"model": f"{c}/{second}"}, "legs": [f"cloud-{c}-{second}", second]}
         for c, second in ports], QUIET))
    return path


def test_a_call_is_continued_inside_its_arguments_by_a_leg_that_can(tmp_path, coder):
    """Cloud and second leg have one model. The cloud goes silent in the middle of a call: what
    comes out is the call that nobody disturbed. All cells beside each other."""
    cuts, clients = {}, ("openai", "anthropic", "responses")
    proxies = {(c, second): Proxy(coder.port, "half_open", lambda cell=(c, second): cuts[cell])
               for c in clients for second in ("engine", *SECONDS)}
    path = resumed(tmp_path, coder, {cell: p.port for cell, p in proxies.items()})

    def hear(server, client, model):
        r = server.post(PATHS[client], body_of(client, model, True, True), timeout=120)
        return Heard(client, r, True), r.body

    def run(cell, whole, front):
        client, second = cell
        for cuts[cell] in (1500, 2300):  # bytes: `{"` and `{"city":` have come by then
            got, body = hear(front, client, f"{client}/{second}")
            assert (got.text, got.calls, got.end) == (whole.text, whole.calls, whole.end), (
                cell, cuts[cell])
            assert b'"phase":"failover"' in body, (cell, cuts[cell])

    with serving(tmp_path, "-config", str(path), "-model", CODER, "-ctx", "2048") as front, \
            concurrent.futures.ThreadPoolExecutor(len(proxies)) as pool:
        whole = dict(zip(clients, pool.map(lambda c: hear(coder, c, coder.model())[0], clients)))
        for client, w in whole.items():
            assert [n for n, _ in w.calls] == [FUNCTION["name"]], (client, w.text)
        for job in [pool.submit(run, cell, whole[cell[0]], front) for cell in proxies]:
            job.result()
    for p in proxies.values():
        p.stop()
