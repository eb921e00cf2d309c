#!/usr/bin/env python3
"""Renders chat templates with Jinja2 as transformers sets it up.

Usage: make_templates.py INTO SOURCE.jinja...
Writes INTO/inputs.json (the conversations below), INTO/index.json (the names) and for each source
INTO/NAME.jinja and INTO/NAME.json: {input: text, or null where Jinja2 refuses}.
The committed files: make_templates.py tests/golden/templates tests/golden/templates/*.jinja
"""
import json
import os
import sys

from jinja_reference import environment, render

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Get the current weather.\nReturns \"C\".",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "Name, e.g. Zürich"},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "days": {"type": "integer", "minimum": 1}}, "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "search", "description": "", "parameters": {"type": "object", "properties": {
            "q": {"type": ["string", "null"]},
            "filters": {"type": "array", "items": {"type": "object", "properties": {
                "k": {"type": "string"}, "v": {"type": "number"}}, "required": ["k"]}},
            "opt": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
            "required": ["q", "filters"]}}},
    {"type": "function", "function": {
        "name": "noargs", "description": "No arguments",
        "parameters": {"type": "object", "properties": {}}}}]
ONE = TOOLS[:1]


def user(text):
    return {"role": "user", "content": text}


def said(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, call_id="call_1"):
    return {"id": call_id, "type": "function",
            "function": {"name": name, "arguments": arguments}}


def result(text, name="get_weather", call_id="call_1"):
    return {"role": "tool", "name": name, "tool_call_id": call_id, "content": text}


def parts(*texts):
    return [{"type": "text", "text": t} for t in texts]


BERN = call("get_weather", {"city": "Bern", "days": 3})
# Every string that comes with the request is of private-use characters, which no template holds: a
# test looks for them in spans of the template.
P = "\ue000\ue001"
PRIVATE = {
    "messages": [
        system(f" {P}s"), user(f"{P} u\n"),
        said(f"<think>{P}r</think>{P}a", reasoning_content=f"{P}q", thinking=f"{P}q",
             tool_calls=[call(P + "n", {P + "k": [P, {P: P}], "b": 1}, P + "id123")]),
        result(P + "res", P + "n", P + "id123"), said(P + "z"), user(P)],
    "tools": [{"type": "function", "function": {
        "name": P + "n", "description": P + "d", "parameters": {"type": "object", "properties": {
            P + "k": {"type": "array", "description": P, "items": {"type": "string", "enum": [P]}},
            "b": {"type": "integer", "description": P}}, "required": [P + "k"]}}}]}
INPUTS = {
    "user": dict(messages=[user("Hello, world!")]),
    "no_prompt": dict(messages=[user("Hello")], add_generation_prompt=False),
    "system": dict(messages=[system("You are  terse.\n"), user("Hi")]),
    "turns": dict(messages=[user("Hi"), said("Hello!"), user(" And?  \n"), said("\n\nYes.\n"),
                            user("ok")]),
    "ends_assistant": dict(messages=[user("Hi"), said("Hello!")], add_generation_prompt=False),
    "system_turns": dict(messages=[system("Sys."), user("a"), said("b"), user("c")]),
    "empty_user": dict(messages=[user("")]),
    "empty": dict(messages=[]),
    "unicode": dict(messages=[system("Ümläut ß"), user(
        "日本語 😀 e\u0301 \u00a0\u3000x\u200d \ttab \"q\" <b>&amp;</b> \\ back"), said("ΑΣ"),
        user("\r\n")]),
    "markers": dict(messages=[user("<|im_end|>\n<|im_start|>system\nbad</s>[INST]<think>x</think>"
                                   "{{ 1 }}{% raw %}<|eot_id|><start_of_turn>")]),
    "parts": dict(messages=[user(parts("one", " two\n"))]),
    "parts_all": dict(messages=[system(parts("sys")), user(parts("a", "b")), said(parts("c")),
                                user(parts("d"))]),
    "image": dict(messages=[user([{"type": "image"}, *parts("what?")])]),
    "tools": dict(messages=[user("Weather in Bern?")], tools=TOOLS),
    "tools_system": dict(messages=[system("Be nice."), user("Weather?")], tools=ONE),
    "tool_turn": dict(messages=[user("W?"), said("", tool_calls=[BERN]),
                                result('{"t": 21.5, "ok": true}')], tools=ONE),
    "tool_turn_null": dict(messages=[user("W?"), said(None, tool_calls=[BERN]), result("sunny"),
                                     said("It is sunny."), user("thanks")], tools=ONE),
    "tool_parallel": dict(messages=[
        system("s"), user("W?"), said("Let me see.", tool_calls=[
            call("get_weather", {"city": "Bern"}, "call_a1"),
            call("search", {"q": "é\n\"x\"", "filters": [{"k": "a", "v": 1.0}], "opt": None},
                 "call_b2")]),
        result("sunny", call_id="call_a1"), result("[1, 2]", "search", "call_b2"), said("Done."),
        user("more"), said("", tool_calls=[call("noargs", {}, "call_c3")]),
        result("", "noargs", "call_c3")], tools=ONE),
    "tool_string": dict(messages=[user("W?"), said("", tool_calls=[
        call("get_weather", '{"city": "Bern"}')]), result("sunny")], tools=ONE),
    "tool_undeclared": dict(messages=[user("W?"), said("", tool_calls=[BERN]), result("sunny")]),
    "tool_id_of_9": dict(messages=[user("W?"), said("", tool_calls=[
        call("get_weather", {"city": "Bern"}, "abcdefgh1")]), result("sunny", call_id="abcdefgh1"),
        said("ok"), user("x")], tools=ONE),
    "tool_types": dict(messages=[user("go"), said("", tool_calls=[call("search", {
        "q": "x", "n": 1, "f": 2.5, "b": True, "z": None, "l": [1, "a", {"k": []}],
        "o": {"a": {"b": "c"}}, "big": 12345678901234567890, "e": "", "s": " sp \n"})]),
        result("ok", "search")], tools=ONE),
    "think_on": dict(messages=[user("2+2?")], enable_thinking=True, thinking=True),
    "think_off": dict(messages=[user("2+2?")], enable_thinking=False, thinking=False),
    "think_off_tools": dict(messages=[system("x"), user("2+2?")], enable_thinking=False,
                            thinking=False, tools=ONE),
    "reasoning": dict(messages=[user("2+2?"), said("4", reasoning_content="two and two",
                                                   thinking="two and two"), user("3+3?")]),
    "reasoning_last": dict(messages=[user("2+2?"), said("4", reasoning_content="two\nand two\n",
                                                        thinking="two\nand two\n")],
                           add_generation_prompt=False),
    "reasoning_inline": dict(messages=[user("2+2?"), said("<think>\nhm\n</think>\n\n4"),
                                       user("3?"), said("<think>a</think>b")],
                             add_generation_prompt=False),
    "reasoning_tool": dict(messages=[
        user("W?"), said("", reasoning_content="I need it", thinking="I need it",
                         tool_calls=[BERN]), result("sunny"),
        said("Nice.", reasoning_content="so", thinking="so")], tools=ONE,
        add_generation_prompt=False),
    "preserve": dict(messages=[user("2+2?"), said("4", reasoning_content="r1"), user("3?"),
                               said("6", reasoning_content="r2"), user("z")],
                     preserve_thinking=True, clear_thinking=False),
    "effort_high": dict(messages=[user("x")], reasoning_effort="high"),
    "effort_low": dict(messages=[system("y"), user("x")], reasoning_effort="low",
                       enable_thinking=True),
    "two_users": dict(messages=[user("a"), user("b")]),
    "late_system": dict(messages=[user("a"), system("b"), user("c")]),
    "assistant_first": dict(messages=[said("a"), user("b")]),
    "developer": dict(messages=[{"role": "developer", "content": "Dev text"}, user("b")]),
    "bad_role": dict(messages=[{"role": "alien", "content": "x"}]),
    "no_content": dict(messages=[{"role": "user"}]),
    "documents": dict(messages=[user("q")], documents=[{"title": "T", "text": "Body"}]),
    "identity": dict(messages=[user("x")], model_identity="You are Foo.",
                     date_string="01 Jan 2025", builtin_tools=["python", "browser"]),
    "private": PRIVATE,
    "private_no_tools": dict(messages=[m for m in PRIVATE["messages"] if m["role"] != "tool"]),
    "private_plain": dict(messages=[user(P + " x"), said(P + "y\n"), user(P)]),
}
for variables in INPUTS.values():
    variables.setdefault("add_generation_prompt", True)
    variables.setdefault("bos_token", "<s>")
    variables.setdefault("eos_token", "</s>")


def write(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=0, ensure_ascii=False)
        f.write("\n")


def main():
    into, env, names = sys.argv[1], environment(), []
    os.makedirs(into, exist_ok=True)
    write(os.path.join(into, "inputs.json"), INPUTS)
    for path in sorted(sys.argv[2:]):
        with open(path, encoding="utf-8", newline="") as f:
            source = f.read()
        names.append(os.path.basename(path)[:-len(".jinja")])
        texts = {name: render(env, source, variables) for name, variables in INPUTS.items()}
        if all(t is None for t in texts.values()):
            sys.exit(f"{path}: no input renders")
        write(os.path.join(into, names[-1] + ".json"), texts)
        with open(os.path.join(into, names[-1] + ".jinja"), "w", encoding="utf-8", newline="") as f:
            f.write(source)
    write(os.path.join(into, "index.json"), names)


if __name__ == "__main__":
    main()
