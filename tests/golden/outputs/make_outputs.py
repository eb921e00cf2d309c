#!/usr/bin/env python3
"""Replies as models write them, told by their own templates: what a template prints for a turn of
the assistant is what its model was trained to write.

Usage: make_outputs.py INTO.json [SOURCE.jinja...]     (sources: the kept templates)
Each case: template, the reply, and the reasoning, content and calls it was made from. A turn that a
template does not show whole (reasoning dropped, values printed by Python) is left out.
"""
import glob
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../templates"))
from jinja_reference import environment, render  # noqa: E402
from make_templates import TOOLS, call, said, user  # noqa: E402

ENV = environment()
MARK = "\ue000mark\ue000"
# Tokens that end a reply of calls, where text ends otherwise.
ENDS = ["<|observation|>"]
CALLS = [call("get_weather", {"city": "Bern", "days": 3}, "abcdefgh1"),
         call("search", {"q": "é\n\"x\" </y> {1}", "filters": [{"k": "a", "v": 1.5}]},
              "abcdefgh2"),
         call("noargs", {}, "abcdefgh3"),
         call("get_weather", {"city": "5", "unit": "c"}, "abcdefgh4")]
TURNS = {
    "text": dict(content="Hello <b>, a < b.\nBye."),
    "call": dict(calls=CALLS[:1]),
    "two": dict(content="Let me see.", calls=[CALLS[0], CALLS[3]]),
    "nested": dict(calls=[CALLS[1]]),
    "none": dict(calls=[CALLS[2]]),
    "thought": dict(reasoning="two\nand two", content="Four."),
    "thought_call": dict(reasoning="I need it", calls=CALLS[:1]),
}


def prints(source, messages, prompt):
    kwargs = dict(messages=messages, tools=TOOLS, add_generation_prompt=prompt, bos_token="<s>",
                  eos_token="</s>")
    return render(ENV, source, kwargs)


def turn(content="", reasoning="", calls=()):
    more = {"tool_calls": list(calls)} if calls else {}
    if reasoning:
        more.update(reasoning_content=reasoning, thinking=reasoning, reasoning=reasoning)
    return said(content, **more)


def reply_of(source, t):
    """(text behind the prompt, what the prompt ends with) or None."""
    before = prints(source, [user("W?")], True)
    after = prints(source, [user("W?"), turn(**t)], False)
    marked = prints(source, [user("W?"), turn(content=MARK)], False)
    if before is None or after is None or marked is None or MARK not in marked:
        return None
    end = marked.split(MARK, 1)[1]
    called = prints(source, [user("W?"), turn(calls=CALLS[:1])], False) if t.get("calls") else None
    if t.get("calls") and (called is None or "Bern" not in called):
        return None
    if end and after.endswith(end):
        after = after[:-len(end)]
    for stop in ENDS:
        after = after.removesuffix(stop)
    if not after.startswith(before):
        return None
    return after[len(before):], before


def case(source, name, t):
    got = reply_of(source, t)
    if got is None:
        return None
    text, before = got
    whole = [t.get("content", ""), t.get("reasoning", "")]
    if any(w not in text and w.strip() not in text for w in whole):
        return None
    if "<|channel|>" in text and t.get("content") and t.get("calls"):
        return None  # harmony's template prints that content as reasoning
    if any(word in text for word in ("{'", "None", "True")):
        return None
    tail = before.rstrip()
    begin = "thinking" if tail.endswith(("<think>", "[THINK]", "<seed:think>")) else \
        "answer" if tail.endswith("</think>") else "fresh"
    if t.get("reasoning") and begin == "answer":
        return None
    return {"template": name, "begin": begin, "reply": text, "reasoning": t.get("reasoning", ""),
            "content": t.get("content", ""),
            "calls": [{"name": c["function"]["name"], "arguments": c["function"]["arguments"]}
                      for c in t.get("calls", ())]}


def main():
    sources = sys.argv[2:] or sorted(glob.glob(os.path.join(HERE, "../templates/*.jinja")))
    cases = []
    for path in sources:
        with open(path, encoding="utf-8") as f:
            source = f.read()
        name = os.path.basename(path)[:-len(".jinja")]
        cases += [c for c in (case(source, name, t) for t in TURNS.values()) if c]
    tools = [t["function"] for t in TOOLS]
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write('{"tools": ' + json.dumps(tools, ensure_ascii=False) + ',\n"cases": [\n')
        f.write(",\n".join(json.dumps(c, ensure_ascii=False) for c in cases))
        f.write("\n]}\n")
    print(len(cases), "cases of", len({c["template"] for c in cases}), "templates")


if __name__ == "__main__":
    main()
