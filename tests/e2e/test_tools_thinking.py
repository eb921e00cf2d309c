"""Thinking, on the four dialects, streamed and not: a tiny random model under the templates of
models that think. Each opens the block in its prompt, so that whatever comes is thinking until its
budget closes it; what follows is whatever was asked for."""
import contextlib
import json
import os

import jsonschema
import pytest

from conftest import ROOT
from server import TINY, serving
from test_tools_format import (ASK, CHAT, DIALECTS, LENGTH, MESSAGES, OFF, OLLAMA, RESPONSES,
                               SCHEMAS, body, pieces, whole)

TEMPLATES = os.path.join(ROOT, "tests", "golden", "templates")
HARMONY = "<|start|>assistant"
CLOCK = SCHEMAS["get_time"]
MINIMAL = 512  # tokens of thinking (BEHAVIOUR 6.3)


def template(family):
    with open(os.path.join(TEMPLATES, family + ".jinja"), encoding="utf-8") as f:
        text = f.read()
    # This one leaves it to the model, which thinks always: here the prompt begins it.
    return text.replace(HARMONY + "\n{%- endif -%}",
                        HARMONY + "<|channel|>analysis<|message|>\n{%- endif -%}")


def start(home, family):
    path = os.path.join(home, "t.jinja")
    with open(path, "w", encoding="utf-8") as f:
        f.write(template(family))
    config = os.path.join(home, "config.yaml")
    with open(config, "w", encoding="utf-8") as f:
        json.dump({"models": {"llama": {"template_file": path}},
                   "agents": {"quiet*": {"effort": "none"}, "brief*": {"effort": "minimal"}}}, f)
    return serving(home, "-model", TINY, "-config", config)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """servers(family), started when it is asked for first."""
    with contextlib.ExitStack() as stack:
        running = {}

        def get(family):
            if family not in running:
                home = str(tmp_path_factory.mktemp(family))
                running[family] = stack.enter_context(start(home, family))
            return running[family]
        yield get


BUDGETED = ["qwen3_5_think", "deepseek_r1_distill"]
LEVELLED = "gptoss"
FAMILIES = BUDGETED + [LEVELLED]
all_families = pytest.mark.parametrize("family", FAMILIES)
all_dialects = pytest.mark.parametrize("path", DIALECTS)


def schema_of(path):
    """The answer that is asked for behind the thinking, in each dialect's own field."""
    named = {"type": "json_schema", "name": "clock", "schema": CLOCK}
    return {CHAT: {"response_format": {"type": "json_schema", "json_schema": {
                "name": "clock", "schema": CLOCK}}},
            MESSAGES: {"output_config": {"format": {"type": "json_schema", "schema": CLOCK}}},
            RESPONSES: {"text": {"format": named}}, OLLAMA: {"format": CLOCK}}[path]


def effort_of(path, level):
    return {CHAT: {"reasoning_effort": level}, MESSAGES: {"output_config": {"effort": level}},
            RESPONSES: {"reasoning": {"effort": level}}, OLLAMA: {"effort": level}}[path]


def merged(*fields):
    out = {}
    for f in fields:
        for k, v in f.items():
            out[k] = {**out[k], **v} if isinstance(out.get(k), dict) else v
    return out


def both(server, path, fields, limit=900, headers=None, **more):
    """(thinking, text, calls, end) and the usage of the reply that is not streamed; the streamed
    one is the same."""
    got, usage = [], None
    for stream in (False, True):
        b = merged(body(path, limit, stream, model="llama", **more), fields)
        if path == OLLAMA:
            b["options"]["temperature"] = 0
        else:
            b["temperature"] = 0
        r = server.post(path, b, headers=headers, timeout=120)
        assert r.status == 200, r.body
        got.append(pieces(path, r.body) if stream else whole(path, r.json()))
        usage = usage or r.json()
    assert got[0] == got[1], path
    return got[0], usage


def reasoning_tokens(path, reply):
    """Of the two dialects that count them apart."""
    if path == CHAT:
        return reply["usage"]["completion_tokens_details"]["reasoning_tokens"]
    return reply["usage"]["output_tokens_details"]["reasoning_tokens"] if path == RESPONSES else 0


def is_clock(text):
    jsonschema.validate(json.loads(text), CLOCK)
    return True


# ---- Switches and budgets, per request and per agent; the format begins behind the thinking ----

CLOSER = 40  # tokens of a closing marker, byte by byte


@all_dialects
@pytest.mark.parametrize("family", BUDGETED)
def test_an_effort_is_a_budget_and_the_format_begins_behind_it(servers, family, path):
    (think, text, calls, _), reply = both(servers(family), path,
                                          merged(schema_of(path), effort_of(path, "minimal")))
    assert think and is_clock(text) and not calls
    assert not reply["shoal"]["warnings"], reply["shoal"]
    if path in (CHAT, RESPONSES):
        assert MINIMAL <= reasoning_tokens(path, reply) <= MINIMAL + CLOSER


@all_dialects
def test_a_template_with_levels_is_told_the_effort_and_nothing_is_cut(servers, path):
    prompts = []
    for level in ("low", "medium"):
        (think, text, _, end), reply = both(servers(LEVELLED), path, merged(
            schema_of(path), effort_of(path, level)), limit=MINIMAL + 100)
        assert think and not text and end == LENGTH[path]
        prompts.append(reply["shoal"]["cache"]["prompt"])
    assert prompts[1] - prompts[0] == len("medium") - len("low")  # this vocabulary spells it


@all_dialects
@all_families
def test_no_thinking_is_asked_for_and_the_format_begins_at_once(servers, family, path):
    (think, text, calls, _), reply = both(servers(family), path,
                                          merged(schema_of(path), OFF[path]))
    assert not think and is_clock(text) and not calls
    assert reasoning_tokens(path, reply) <= CLOSER


@all_dialects
@all_families
def test_an_agents_effort_holds_until_its_request_says_another(servers, family, path):
    quiet = {"Shoal-Agent": "quiet-7"}
    (think, text, _, _), _ = both(servers(family), path, schema_of(path), headers=quiet)
    assert not think and is_clock(text)
    (think, text, _, _), _ = both(servers(family), path, merged(
        schema_of(path), effort_of(path, "low")), limit=100, headers=quiet)
    assert think and not text  # within its budget yet


@all_families
def test_an_exact_budget_closes_the_block_and_a_call_or_the_format_follows(servers, family):
    budget = {"thinking": {"type": "enabled", "budget_tokens": 24}}
    (think, text, calls, _), _ = both(servers(family), MESSAGES,
                                      merged(schema_of(MESSAGES), budget))
    assert think and is_clock(text) and not calls
    (think, text, calls, end), _ = both(servers(family), MESSAGES, budget,
                                        tools={"get_time": CLOCK}, choice="get_time")
    assert think and not text and [n for n, _ in calls] == ["get_time"] and end == "tool_use"
    jsonschema.validate(calls[0][1], CLOCK)


# ---- Reasoning in the current loop of calls ----

def loop(path, reply, keeps):
    """What a client sends back behind a call, with the reasoning or without it, and the result."""
    if path == CHAT:
        m = dict(reply["choices"][0]["message"])
        if not keeps:
            m.pop("reasoning_content"), m.pop("reasoning")
        return {"messages": ASK + [m, {"role": "tool", "content": "noon",
                                       "tool_call_id": m["tool_calls"][0]["id"]}]}
    if path == MESSAGES:
        blocks = [b for b in reply["content"] if keeps or b["type"] != "thinking"]
        return {"messages": ASK + [{"role": "assistant", "content": blocks}, {
            "role": "user", "content": [{"type": "tool_result", "content": "noon",
                                         "tool_use_id": blocks[-1]["id"]}]}]}
    if path == RESPONSES:
        items = [i for i in reply["output"] if keeps or i["type"] != "reasoning"]
        return {"input": ASK + items + [{"type": "function_call_output", "output": "noon",
                                         "call_id": items[-1]["call_id"]}]}
    m = {"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": n, "arguments": a}} for n, a in whole(CHAT, reply)[2]]}
    if keeps:
        m["thinking"] = whole(CHAT, reply)[0]
    return {"messages": ASK + [m, {"role": "tool", "tool_name": "get_time", "content": "noon"}]}


@all_dialects
def test_A27_reasoning_that_a_client_drops_is_there_in_the_loop_and_found(servers, path):
    """Ollama has no tool_choice: its loop begins with a call made on another dialect."""
    server, first = servers(BUDGETED[0]), CHAT if path == OLLAMA else path
    tools = {"get_time": CLOCK}
    asked = merged(body(first, 900, False, model="llama", tools=tools, choice="get_time"),
                   effort_of(first, "minimal"), {"temperature": 0})
    r = server.post(first, asked, timeout=60)
    assert r.status == 200, r.body
    reply, prompts = r.json(), {}
    think, _, calls, _ = whole(first, reply)
    assert think and [n for n, _ in calls] == ["get_time"]
    before = reply["shoal"]["cache"]["prompt"]
    for name, keeps, more in (("dropped", False, {}), ("kept", True, {}),
                              ("off", False, {"shoal": {"replay": False}})):
        again = merged(body(path, 1, False, model="llama", tools=tools, choice="auto"),
                       loop(path, reply, keeps), more)
        r = server.post(path, again, timeout=60)
        assert r.status == 200, r.body
        cache = r.json()["shoal"]["cache"]
        prompts[name] = cache["prompt"]
        if name != "off":
            assert cache["cached"] >= before + MINIMAL, (name, cache)
    assert prompts["dropped"] == prompts["kept"] > before + MINIMAL
    assert prompts["off"] < prompts["kept"] - MINIMAL // 2  # only replay brings it back
