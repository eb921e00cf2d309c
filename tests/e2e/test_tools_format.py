"""Forms of calls and of thinking that a setting or a template gives to a model: a small real one,
whose vocabulary knows none of the markers, so that every marker is spelled in pieces."""
import json
import os

import jsonschema
import pytest

from server import REAL, serving

NAME = "SmolLM2-135M-Instruct.Q4_1"
TURNS = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
         "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n")
TEMPLATES = {
    # DeepSeek R1's way: the prompt always opens the block.
    "opens": TURNS + "<think>\n{% endif %}{# </think> #}",
    # Qwen3's way: a switch closes it in the prompt.
    "switch": TURNS + "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n"
              "</think>\n\n{% else %}<think>\n{% endif %}{% endif %}",
}
MARKERS = ["<think", "</think", "<tool_call", "<|channel", "<|message", "<|call", "<|\"|>", "call:",
           "<|end", "[TOOL", "<function", "<parameter"]
WEATHER = {"type": "object", "properties": {
    "unit": {"type": "string", "enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 1,
                                                             "maximum": 9}},
    "required": ["unit", "days"], "additionalProperties": False}
CLOCK = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
         "additionalProperties": False}
SCHEMAS = {"get_weather": WEATHER, "get_time": CLOCK}
ASK = [{"role": "user", "content": "Write a long story about a dragon."}]


def start(home, template=None, **setting):
    if template:
        setting["template_file"] = os.path.join(home, "t.jinja")
        with open(setting["template_file"], "w", encoding="utf-8") as f:
            f.write(template)
    config = os.path.join(home, "config.yaml")
    with open(config, "w", encoding="utf-8") as f:
        f.write(json.dumps({"models": {NAME: setting}}))
    return serving(home, "-model", REAL, "-config", config)


# ---- The four dialects, in few words: (reasoning, text, calls, end) of a reply ----

CHAT, MESSAGES, RESPONSES, OLLAMA = ("/v1/chat/completions", "/v1/messages", "/v1/responses",
                                     "/api/chat")
DIALECTS = [CHAT, MESSAGES, RESPONSES, OLLAMA]
OFF = {CHAT: {"reasoning_effort": "none"}, MESSAGES: {"thinking": {"type": "disabled"}},
       RESPONSES: {"reasoning": {"effort": "none"}}, OLLAMA: {"think": False}}
LENGTH = {CHAT: "length", MESSAGES: "max_tokens", RESPONSES: "incomplete", OLLAMA: "length"}
CALLS = {CHAT: "tool_calls", MESSAGES: "tool_use", RESPONSES: "completed", OLLAMA: "stop"}


def body(path, limit, stream, tools=None, choice=None, seed=1, **more):
    wrapped = [{"type": "function", "function": {"name": n, "parameters": s, "strict": True}}
               for n, s in (tools or {}).items()]
    out = {"model": NAME, "stream": stream, **more}
    if path == RESPONSES:
        out.update(input=ASK, max_output_tokens=limit, parallel_tool_calls=False)
        tools = [{"type": "function", **t["function"]} for t in wrapped]
        if choice in (tools and SCHEMAS):
            choice = {"type": "function", "name": choice}
    elif path == MESSAGES:
        out.update(messages=ASK, max_tokens=limit)
        tools = [{"name": t["function"]["name"], "strict": True,
                  "input_schema": t["function"]["parameters"]} for t in wrapped]
        choice = {"type": "tool", "name": choice} if choice in SCHEMAS else \
            {"type": {"required": "any"}.get(choice, choice)}
        if choice["type"] in ("any", "tool"):
            choice["disable_parallel_tool_use"] = True
    elif path == CHAT:
        out.update(messages=ASK, max_tokens=limit, seed=seed, parallel_tool_calls=False)
        tools = wrapped
        if choice in SCHEMAS:
            choice = {"type": "function", "function": {"name": choice}}
    else:
        out.update(messages=ASK, options={"num_predict": limit, "seed": seed})
        tools, choice = wrapped, None
    if tools:
        out["tools"] = tools
        if choice:
            out["tool_choice"] = choice
    return out


def whole(path, r):
    if path == CHAT:
        c = r["choices"][0]
        m = c["message"]
        calls = [(t["function"]["name"], json.loads(t["function"]["arguments"]))
                 for t in m.get("tool_calls") or []]
        return m.get("reasoning_content") or "", m["content"] or "", calls, c["finish_reason"]
    if path == MESSAGES:
        blocks = r["content"]
        return ("".join(b.get("thinking", "") for b in blocks),
                "".join(b["text"] for b in blocks if b["type"] == "text"),
                [(b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"],
                r["stop_reason"])
    if path == RESPONSES:
        items = r["output"]
        return ("".join(s["text"] for i in items for s in i.get("summary", [])),
                "".join(p["text"] for i in items if i["type"] == "message" for p in i["content"]),
                [(i["name"], json.loads(i["arguments"])) for i in items
                 if i["type"] == "function_call"], r["status"])
    m = r["message"]
    return (m.get("thinking") or "", m["content"],
            [(c["function"]["name"], c["function"]["arguments"])
             for c in m.get("tool_calls") or []], r["done_reason"])


def pieces(path, raw):
    """The same four of a stream, from its deltas alone."""
    think = text = end = ""
    calls = []
    if path == OLLAMA:
        for line in raw.decode().splitlines():
            event = json.loads(line)
            t, c, more, _ = whole(path, {**event, "done_reason": ""})
            think, text, calls = think + t, text + c, calls + more
            end = event.get("done_reason", end)
        return think, text, calls, end
    for line in raw.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        event = json.loads(line[6:])
        if path == CHAT:
            for choice in event["choices"]:
                d = choice["delta"]
                think += d.get("reasoning_content") or ""
                text += d.get("content") or ""
                for t in d.get("tool_calls") or []:
                    if "id" in t:
                        calls.append([t["function"]["name"], ""])
                    calls[t["index"]][1] += t["function"]["arguments"]
                end = choice["finish_reason"] or end
        elif path == MESSAGES:
            d = event.get("delta", {})
            think += d.get("thinking", "")
            text += d.get("text", "")
            if event["type"] == "content_block_start" and \
                    event["content_block"]["type"] == "tool_use":
                calls.append([event["content_block"]["name"], ""])
            if "partial_json" in d:
                calls[-1][1] += d["partial_json"]
            end = d.get("stop_reason") or end
        else:
            kind = event["type"][len("response."):]
            think += event["delta"] if kind == "reasoning_summary_text.delta" else ""
            text += event["delta"] if kind == "output_text.delta" else ""
            if kind == "output_item.added" and event["item"]["type"] == "function_call":
                calls.append([event["item"]["name"], ""])
            if kind == "function_call_arguments.delta":
                calls[-1][1] += event["delta"]
            end = event["response"]["status"] if "response" in event else end
    return think, text, [(n, json.loads(a)) for n, a in calls], end


def ask(server, path, limit, budget=None, **more):
    """Both ways, which must agree; nothing of a marker may be anywhere."""
    got = []
    if budget:
        more["thinking"] = {"type": "enabled", "budget_tokens": budget}
    for stream in (False, True):
        r = server.post(path, body(path, limit, stream, temperature=0, **more), timeout=120) \
            if path != OLLAMA else server.post(path, body(path, limit, stream, **more), timeout=120)
        assert r.status == 200, r.body
        got.append(pieces(path, r.body) if stream else whole(path, r.json()))
        for marker in MARKERS if budget is None else MARKERS[2:]:  # a later one is text
            assert marker not in json.dumps(got[-1]), (path, stream, marker, got[-1])
    assert got[0] == got[1], path
    return got[0]


# ---- Thinking that the prompt opens ----

@pytest.fixture(scope="module", params=TEMPLATES)
def thinker(request, tmp_path_factory):
    home = str(tmp_path_factory.mktemp(request.param))
    with start(home, TEMPLATES[request.param], tool_format="hermes") as server:
        yield server


@pytest.mark.parametrize("path", DIALECTS)
def test_a_block_that_the_prompt_opened_is_thinking_from_the_first_token(thinker, path):
    think, text, calls, end = ask(thinker, path, 12)
    assert think and not text and not calls and end == LENGTH[path]


@pytest.mark.parametrize("path", DIALECTS)
def test_no_thinking_is_asked_for_and_none_comes(thinker, path):
    think, text, calls, end = ask(thinker, path, 12, **OFF[path])
    assert not think and text and not calls, (think, text)


def test_a_budget_closes_the_block_and_the_answer_or_the_call_follows(thinker):
    think, text, calls, _ = ask(thinker, MESSAGES, 40, budget=8)
    assert think and text and not calls
    think, text, calls, end = ask(thinker, MESSAGES, 90, tools=SCHEMAS, choice="get_weather",
                                  budget=8)
    assert think and not text and [n for n, _ in calls][:1] == ["get_weather"], (text, calls)
    jsonschema.validate(calls[0][1], WEATHER)
    assert end in ("tool_use", "max_tokens")


# ---- Calls in forms that a setting gives ----

FORMATS = ["hermes", "harmony", "gemma4", "function-xml", "mistral", "deepseek", "llama3", "glm"]


@pytest.fixture(scope="module", params=FORMATS)
def formed(request, tmp_path_factory):
    """A template of its own for harmony, whose replies are channels; no place for tools in others,
    so that they are declared in the format's way."""
    home = str(tmp_path_factory.mktemp(request.param))
    harmony = ("{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>"
               "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if "
               "add_generation_prompt %}<|start|>assistant{% endif %}{# <|channel|> #}")
    with start(home, harmony if request.param == "harmony" else None,
               tool_format=request.param) as server:
        yield server


@pytest.mark.parametrize("path", DIALECTS[:3])
def test_A14_every_form_can_be_forced_and_keeps_to_a_strict_schema(formed, path):
    for choice in ("required", "get_time"):
        _, text, calls, end = ask(formed, path, 250, tools=SCHEMAS, choice=choice, **OFF[path])
        assert len(calls) == 1 and not text and end == CALLS[path], (text, calls, end)
        name, args = calls[0]
        jsonschema.validate(args, SCHEMAS[name])
        assert choice in ("required", name)


@pytest.mark.parametrize("path", DIALECTS[:3])
def test_B18_a_limit_inside_a_forced_call_shows_nothing_of_it(formed, path):
    for limit in (1, 2, 5):
        r = formed.post(path, body(path, limit, False, temperature=0, tools=SCHEMAS,
                                   choice="required", **OFF[path]), timeout=60)
        assert r.status == 200, r.body
        _, text, calls, end = whole(path, {**r.json(), "output": [
            i for i in r.json().get("output", []) if i.get("status") != "incomplete"]})
        assert not text and not calls and end == LENGTH[path], (limit, text, calls)


def test_none_calls_nothing_and_auto_shows_no_marker(formed):
    for path in DIALECTS[:3]:
        _, _, calls, _ = ask(formed, path, 24, tools=SCHEMAS, choice="none", **OFF[path])
        assert not calls
