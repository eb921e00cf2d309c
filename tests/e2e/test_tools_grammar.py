"""The setting `tool_grammar`: what binds the calls that a model makes of its own will."""
import json
import os
import re

import pytest

from server import CODER, TINY, serving

NAME = "qwen2.5-coder-0.5b-instruct-q4_k_m"
OPENER = {"151657": 100}  # <tool_call>: all that the model says, as long as it may
ASK = [{"role": "user", "content": "Turn the light on."}]
SWITCH = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
          "additionalProperties": False}
ODD = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 5}}}
CHAT, MESSAGES, RESPONSES, OLLAMA = ("/v1/chat/completions", "/v1/messages", "/v1/responses",
                                     "/api/chat")


def start(home, grammar, model, name, **more):
    config = os.path.join(home, "config.yaml")
    with open(config, "w", encoding="utf-8") as f:
        json.dump({"models": {name: {"tool_grammar": grammar, **more}}}, f)
    return serving(home, "-model", model, "-config", config)


def tool(schema=None, **more):
    return {"type": "function", "function": {"name": "f", "parameters": schema or SWITCH, **more}}


def ask(server, tools, **more):
    r = server.post(CHAT, {"model": NAME, "messages": ASK, "tools": tools, "temperature": 0,
                           "max_tokens": 40, "logit_bias": OPENER, **more})
    assert r.status == 200, r.body
    return r.json()["choices"][0]["message"]


def is_call(message):
    calls = message.get("tool_calls") or []
    return bool(calls) and not message["content"] and all(
        isinstance(json.loads(c["function"]["arguments"])["on"], bool) for c in calls)


def test_off_binds_nothing_but_what_is_asked_for_or_strict(tmp_path):
    with start(tmp_path, "off", CODER, NAME) as server:
        free = ask(server, [tool()])  # openers to the end: the cut call is none, and shows nothing
        assert not free.get("tool_calls") and "<tool" not in free["content"]
        assert is_call(ask(server, [tool(strict=True)]))
        assert is_call(ask(server, [tool()], tool_choice="required"))


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    with start(tmp_path_factory.mktemp("strict"), "strict", TINY, "llama", template="chatml",
               tool_format="hermes") as server:
        yield server


@pytest.mark.parametrize("path, body, param", [
    (CHAT, {"messages": ASK, "tools": [tool(ODD)]}, "tools[0].function.parameters"),
    (MESSAGES, {"messages": ASK, "max_tokens": 4, "tools": [{"name": "f", "input_schema": ODD}]},
     "tools[0].input_schema"),
    (RESPONSES, {"input": ASK, "tools": [{"type": "function", "name": "f", "parameters": ODD}]},
     "tools[0].parameters"),
    (OLLAMA, {"messages": ASK, "tools": [tool(ODD)], "stream": False},
     "tools[0].function.parameters")])
def test_strict_refuses_what_it_cannot_keep_to_by_its_place(strict, path, body, param):
    r = strict.post(path, {"model": "llama", **body})
    assert r.status == 400, r.body
    error = r.json()["error"]
    assert "#/properties/n" in r.body.decode() and "multipleOf" in r.body.decode()
    if path in (CHAT, RESPONSES):
        assert error["code"] == "bad_schema" and error["param"] == param


def test_strict_takes_what_it_can_keep_to(strict):
    r = strict.post(CHAT, {"model": "llama", "messages": ASK, "tools": [tool()], "max_tokens": 2})
    assert r.status == 200 and not r.json()["shoal"]["warnings"], r.body


def test_H02_one_pattern_among_thirty_tools_is_kept_to(strict):
    """Classes as \\d are part of the subset: no tool costs the request anything."""
    digits = {"type": "object", "properties": {"code": {"type": "string", "pattern": r"^\d{3}$"}},
              "required": ["code"]}
    tools = [{"type": "function", "function": {"name": f"t{i}"}} for i in range(29)]
    tools.append(tool(digits, strict=False))
    r = strict.post(CHAT, {"model": "llama", "messages": ASK, "tools": tools, "max_tokens": 200,
                           "temperature": 0, "tool_choice": {"type": "function",
                                                             "function": {"name": "f"}},
                           "parallel_tool_calls": False})
    assert r.status == 200 and not r.json()["shoal"]["warnings"], r.body
    calls = r.json()["choices"][0]["message"]["tool_calls"]
    assert [re.fullmatch(r"[0-9]{3}", json.loads(c["function"]["arguments"])["code"]) is not None
            for c in calls] == [True]


def test_a_form_that_a_template_cannot_declare_fails_the_load_by_name(tmp_path):
    store = tmp_path / ".shoal" / "models"
    store.mkdir(parents=True)
    (store / "small.gguf").symlink_to(TINY)
    (tmp_path / "config.yaml").write_text(
        json.dumps({"models": {"small": {"tool_format": "harmony", "template": "chatml"}}}))
    with serving(tmp_path, "-config", str(tmp_path / "config.yaml")) as server:
        r = server.post(CHAT, {"model": "small", "messages": ASK, "max_tokens": 1})
        assert r.status == 500 and r.json()["error"]["code"] == "load_failed", r.body
        assert "tool_format: 'harmony' needs a chat template that declares tools itself" in \
            r.json()["error"]["message"]
