"""Bad input about tools: 400 with the path, or the tolerance that is documented; never 5xx, never a
hang. A model that has a form for tools, and one that has none."""
import json

import pytest

from server import REAL, serving

ASK = [{"role": "user", "content": "hi"}]
SECONDS = 30


def chat_tool(**more):
    return {"type": "function", "function": {"name": "f", **more}}


def message_tool(**more):
    return {"name": "f", "input_schema": {"type": "object"}, **more}


CHAT, MESSAGES, RESPONSES, OLLAMA = ("/v1/chat/completions", "/v1/messages", "/v1/responses",
                                     "/api/chat")
BASE = {CHAT: {"messages": ASK, "max_tokens": 1}, MESSAGES: {"messages": ASK, "max_tokens": 1},
        RESPONSES: {"input": ASK, "max_output_tokens": 1},
        OLLAMA: {"messages": ASK, "stream": False, "options": {"num_predict": 1}}}
WRONG = [
    (CHAT, {"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    (CHAT, {"tools": [chat_tool(name="")]}, "tools[0].function.name"),
    (CHAT, {"tools": [chat_tool(name="x" * 300)]}, "tools[0].function.name"),
    (CHAT, {"tools": [chat_tool(name="a\nb")]}, "tools[0].function.name"),
    (CHAT, {"tools": [chat_tool(), chat_tool()]}, "tools[1].function.name"),
    (CHAT, {"tools": [chat_tool(parameters="no")]}, "tools[0].function.parameters"),
    (CHAT, {"tools": {"f": 1}}, "tools"),
    (CHAT, {"tools": [chat_tool()] * 2000}, "tools"),
    (CHAT, {"tools": [chat_tool()], "tool_choice": {"type": "function",
                                                    "function": {"name": "g"}}},
     "tool_choice.function.name"),
    (CHAT, {"tools": [], "tool_choice": "required"}, "tool_choice"),
    (CHAT, {"functions": []}, "functions"),
    (CHAT, {"function_call": "auto"}, "function_call"),
    (MESSAGES, {"tools": [{"input_schema": {}}]}, "tools[0].name"),
    (MESSAGES, {"tools": [message_tool(), message_tool()]}, "tools[1].name"),
    (MESSAGES, {"tools": [message_tool(input_schema=[])]}, "tools[0].input_schema"),
    (MESSAGES, {"tools": [message_tool()], "tool_choice": {"type": "tool", "name": "g"}},
     "tool_choice.name"),
    (MESSAGES, {"tools": [message_tool()], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    (RESPONSES, {"tools": [{"type": "function"}]}, "tools[0].name"),
    (RESPONSES, {"tools": [{"type": "namespace", "tools": []}]}, "tools[0].name"),
    (RESPONSES, {"tools": [{"type": "function", "name": "f"}] * 2}, "tools[1].name"),
    (RESPONSES, {"tools": [{"type": "function", "name": "f"}],
                 "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name"),
    (OLLAMA, {"tools": [{"type": "function"}]}, "tools[0].function"),
    (OLLAMA, {"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    (OLLAMA, {"tools": [chat_tool(), chat_tool()]}, "tools[1].function.name"),
]


@pytest.mark.parametrize("path,more,param", WRONG)
def test_what_is_wrong_is_a_400_that_names_its_path(coder, path, more, param):
    reply = coder.post(path, {"model": coder.model(), **BASE[path], **more}, timeout=SECONDS)
    error = reply.json()["error"]
    assert reply.status == 400, reply.body
    text = error if isinstance(error, str) else error["message"]
    assert text.startswith(param + ":"), text
    if path in (CHAT, RESPONSES):
        assert error["param"] == param


def nested(depth):
    schema = {}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


# Answers by count_tokens need no prefill: rendering and encoding are what could take long.
BIG = {
    "500 tools": [message_tool(name=f"tool_{i}", description="Does a thing. " * 5)
                  for i in range(500)],
    "a schema of a megabyte": [message_tool(input_schema={"type": "object",
                                                          "description": "word " * 200000})],
    "50 levels": [message_tool(input_schema=nested(50))],
}


@pytest.mark.parametrize("name", BIG)
def test_large_declarations_are_counted(coder, name):
    reply = coder.post("/v1/messages/count_tokens", {"model": coder.model(), "messages": ASK,
                                                     "tools": BIG[name]}, timeout=SECONDS)
    assert reply.status == 200 and reply.json()["input_tokens"] > 500, reply.body[:300]


# ---- Schemas that no grammar can be made of, wherever each dialect has one ----

BAD_SCHEMAS = {
    "an invalid regex": ({"type": "string", "pattern": "(a"},
                         "#/properties/a/pattern: pattern: offset 0: ')' is missing"),
    "a look-around": ({"type": "string", "pattern": "(?=a)"},
                      "#/properties/a/pattern: pattern: offset 0: look-around is not supported"),
    "recursion without a base": ({"$ref": "#/properties/a"}, "'$ref' leads back to itself"),
    "more at least than at most": ({"type": "array", "minItems": 3, "maxItems": 1},
                                   "#/properties/a: minItems 3 is more than maxItems 1"),
    "a keyword that is not kept": ({"not": {}}, "#/properties/a: 'not' is not supported"),
}


def places_of(path, schema):
    """(fields, param) for an answer and for the arguments of a strict tool."""
    form = {"type": "json_schema", "name": "f", "schema": schema, "strict": True}
    tool = {"name": "f", "strict": True}
    return {
        CHAT: [({"response_format": {"type": "json_schema", "json_schema": {
                    "name": "f", "schema": schema, "strict": True}}},
                "response_format.json_schema.schema"),
               ({"tools": [chat_tool(strict=True, parameters=schema)]},
                "tools[0].function.parameters")],
        RESPONSES: [({"text": {"format": form}}, "text.format.schema"),
                    ({"tools": [{"type": "function", **tool, "parameters": schema}]},
                     "tools[0].parameters")],
        MESSAGES: [({"output_config": {"format": form}}, ""),
                   ({"tools": [{**tool, "input_schema": schema}]}, "")],
        OLLAMA: [({"format": schema}, ""),
                 ({"tools": [chat_tool(strict=True, parameters=schema)]}, "")]}[path]


@pytest.mark.parametrize("path", BASE)
@pytest.mark.parametrize("name", BAD_SCHEMAS)
def test_a_schema_that_cannot_be_kept_is_a_400_that_says_where(coder, path, name):
    field, says = BAD_SCHEMAS[name]
    schema = {"type": "object", "properties": {"a": field}, "required": ["a"]}
    for more, param in places_of(path, schema):
        for stream in (False, True):
            reply = coder.post(path, {"model": coder.model(), **BASE[path], **more,
                                      "stream": stream}, timeout=SECONDS)
            assert reply.status == 400, (more, reply.body[:300])
            error = reply.json()["error"]
            assert says in (error if isinstance(error, str) else error["message"]), error
            assert not param or error["param"] == param, error


@pytest.mark.parametrize("path", BASE)
def test_a_schema_of_a_megabyte_is_too_large_for_an_answer(coder, path):
    more, param = places_of(path, {"type": "object", "description": "word " * 200000})[0]
    reply = coder.post(path, {"model": coder.model(), **BASE[path], **more}, timeout=SECONDS)
    assert reply.status == 400 and b"more than 262144 bytes" in reply.body, reply.body[:300]
    assert not param or reply.json()["error"]["param"] == param


@pytest.mark.parametrize("path", BASE)
def test_500_tools_that_are_too_long_together_are_refused_at_once(coder, path):
    schema = {"type": "object", "properties": {"text": {"type": "string",
                                                        "description": "What to do. " * 20}}}
    tools = [{"name": f"tool_{i}", "description": "Does a thing."} for i in range(500)]
    tools = [{**t, "input_schema": schema} if path == MESSAGES else
             {"type": "function", **t, "parameters": schema} if path == RESPONSES else
             {"type": "function", "function": {**t, "parameters": schema}} for t in tools]
    reply = coder.post(path, {"model": coder.model(), **BASE[path], "tools": tools},
                       timeout=SECONDS)
    assert reply.status == (413 if path == OLLAMA else 400), reply.body[:300]
    error = reply.json() if path == OLLAMA else reply.json()["error"]
    assert error["code"] == "context_length_exceeded", error


def test_a_schema_that_nests_without_end_is_a_400(coder):
    deep = '{"a":' * 10000 + "1" + "}" * 10000
    body = json.dumps({"model": coder.model(), "messages": ASK, "max_tokens": 1, "tools": [
        message_tool(input_schema={"type": "object", "x": "HERE"})]}).replace('"HERE"', deep)
    reply = coder.post(MESSAGES, body.encode(), timeout=SECONDS)
    assert reply.status == 400 and "body: " in reply.json()["error"]["message"], reply.body


IMAGE = "data:image/png;base64,iVBORw0KGgo="
TOLERATED = [
    (CHAT, {"messages": ASK + [{"role": "tool", "tool_call_id": "nobody", "content": "x"}]}, ""),
    (MESSAGES, {"messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "nobody", "content": "x"}]}]}, ""),
    (RESPONSES, {"input": ASK + [{"type": "function_call_output", "call_id": "nobody",
                                  "output": "x"}]}, ""),
    (OLLAMA, {"messages": ASK + [{"role": "tool", "content": "x"}]}, ""),
    (CHAT, {"messages": [{"role": "user", "content": [
        {"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": IMAGE}}]}]},
     "image_omitted"),
    (MESSAGES, {"messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                     "data": "AA=="}}]}]}, "image_omitted"),
    (RESPONSES, {"input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": IMAGE}]}]}, "image_omitted"),
    (OLLAMA, {"messages": [{"role": "user", "content": "see", "images": ["AA=="]}]},
     "image_omitted"),
]


@pytest.mark.parametrize("path,more,warning", TOLERATED)
def test_what_is_tolerated_is_answered(coder, path, more, warning):
    reply = coder.post(path, {"model": coder.model(), **BASE[path], **more}, timeout=SECONDS)
    assert reply.status == 200, reply.body
    warnings = reply.json()["shoal"]["warnings"]
    assert not warning or any(w.startswith(warning) for w in warnings), warnings


def test_a_model_without_a_form_for_tools_says_so(tmp_path):
    with serving(tmp_path, "-model", REAL) as server:
        reply = server.post(CHAT, {"model": server.model(), **BASE[CHAT],
                                   "tools": [chat_tool()]})
        assert reply.status == 400 and reply.json()["error"]["code"] == "tools_unsupported"
