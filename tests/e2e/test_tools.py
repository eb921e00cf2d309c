"""Tools and thinking through the official clients, over an endpoint whose engine is a script
(tests/agents/scripted.c): what a client makes of a stream is what was said, on every dialect. What
the protocols demand of an event is checked in tests/unit/dialect/dialect_test.c."""
import json
import os

import anthropic
import ollama
import openai
import pydantic
import pytest

from conftest import ROOT
from server import TINY, serving

SCRIPTED = os.path.join(ROOT, "build", "tests", "agents", "scripted")
WEATHER = {"city": "Zürich", "days": 2, "why": "a \"quoted\" \\ and\nnew line"}
THOUGHT, PROSE, ANSWER = "Let me think about Zürich.", "I look it up.", "It rains: 12 °C."
ASK = [{"role": "user", "content": "How is the weather?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                                           "why": {"type": "string"}}, "required": ["city"]}
CALLS = [{"think": THOUGHT}, {"text": PROSE},
         {"call": {"name": "weather", "arguments": WEATHER}},
         {"call": {"name": "weather", "arguments": {"city": "Bern"}}}]
SCRIPT = {"piece": 3, "replies": [
    {"last": "patch it", "tool": "patch", "say": [
        {"call": {"name": "patch", "arguments": "*** Begin\n\"x\""}}]},
    {"last": "cut", "say": [{"text": "Half a"}], "done": "max_tokens"},
    {"tool": "weather", "results": 0, "say": CALLS},
    {"tool": "weather", "results": 2, "say": [{"text": ANSWER}]},
    {"say": [{"think": THOUGHT}, {"text": ANSWER}]}]}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    home = tmp_path_factory.mktemp("scripted")
    script = home / "script.json"
    script.write_text(json.dumps(SCRIPT))
    with serving(home, "-model", TINY, binary=SCRIPTED,
                 env={"SCRIPTED_REPLIES": str(script)}) as server:
        yield server


@pytest.fixture(scope="module")
def oai(scripted):
    return openai.OpenAI(base_url=scripted.url + "/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def ant(scripted):
    return anthropic.Anthropic(base_url=scripted.url, api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def oll(scripted):
    return ollama.Client(host=scripted.url, timeout=60)


def dumped(value):
    return value.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)


def without(value, *keys):
    """What differs between two requests by nature is left out."""
    if isinstance(value, dict):
        return {k: without(v, *keys) for k, v in value.items() if k not in keys}
    return [without(v, *keys) for v in value] if isinstance(value, list) else value


# ---------------------------------------------------------------- OpenAI chat completions

CHAT_TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


class Weather(pydantic.BaseModel):
    city: str
    days: int | None = None
    why: str | None = None


def test_chat_calls_come_whole_and_as_strings(scripted, oai):
    reply = oai.chat.completions.create(model=scripted.model(), messages=ASK, tools=[CHAT_TOOL])
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content == PROSE
    assert choice.message.reasoning_content == choice.message.reasoning == THOUGHT
    assert [json.loads(c.function.arguments) for c in choice.message.tool_calls] == \
        [WEATHER, {"city": "Bern"}]
    assert all(c.id.startswith("call_") and c.type == "function"
               for c in choice.message.tool_calls)
    assert reply.usage.completion_tokens_details.reasoning_tokens > 0


def test_A12_A13_A17_chat_stream_helper_ends_with_the_same_completion(scripted, oai):
    whole = oai.chat.completions.create(model=scripted.model(), messages=ASK, tools=[CHAT_TOOL],
                                        seed=5)
    with oai.chat.completions.stream(model=scripted.model(), messages=ASK, tools=[CHAT_TOOL],
                                     seed=5, stream_options={"include_usage": True}) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert kinds.count("tool_calls.function.arguments.done") == 2
    got, want = dumped(final.choices[0].message), dumped(whole.choices[0].message)
    for call in got["tool_calls"]:
        call["function"].pop("parsed_arguments", None)
        call.pop("index", None)
    got.pop("parsed", None)
    assert {k: v for k, v in got.items() if v is not None} == \
        {k: v for k, v in want.items() if v is not None}
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason == "tool_calls"
    assert dumped(final.usage) == dumped(whole.usage)


def test_chat_parse_gives_pydantic_objects(scripted, oai):
    tool = openai.pydantic_function_tool(Weather, name="weather")
    reply = oai.chat.completions.parse(model=scripted.model(), messages=ASK, tools=[tool])
    parsed = reply.choices[0].message.tool_calls[0].function.parsed_arguments
    assert isinstance(parsed, Weather) and parsed.model_dump() == WEATHER


def test_A27_chat_tool_loop_with_the_message_sent_back_as_it_came(scripted, oai):
    first = oai.chat.completions.create(model=scripted.model(), messages=ASK, tools=[CHAT_TOOL])
    calls = first.choices[0].message.tool_calls
    results = [{"role": "tool", "tool_call_id": c.id, "content": "rain"} for c in calls]
    for message in (first.choices[0].message, {"role": "assistant", "content": PROSE,
                                               "tool_calls": [dumped(c) for c in calls]}):
        last = oai.chat.completions.create(model=scripted.model(), tools=[CHAT_TOOL],
                                           messages=ASK + [message] + results)
        assert last.choices[0].message.content == ANSWER
        assert last.choices[0].finish_reason == "stop"


def test_chat_custom_tool_gives_free_text_streamed_and_not(scripted, oai):
    ask = {"model": scripted.model(), "messages": [{"role": "user", "content": "patch it"}],
           "tools": [{"type": "custom", "custom": {"name": "patch"}}]}
    call = oai.chat.completions.create(**ask).choices[0].message.tool_calls[0]
    assert call.type == "custom" and call.custom.input == "*** Begin\n\"x\""
    chunks = [c.choices[0].delta for c in oai.chat.completions.create(**ask, stream=True)]
    pieces = [dumped(d)["tool_calls"][0] for d in chunks if d.tool_calls]
    assert pieces[0]["custom"]["name"] == "patch" and pieces[0]["type"] == "custom"
    assert "".join(p["custom"]["input"] for p in pieces) == "*** Begin\n\"x\""


# ---------------------------------------------------------------- OpenAI Responses

RESPONSES_TOOL = {"type": "function", "name": "weather", "parameters": SCHEMA}


def test_A11_responses_stream_helper_ends_with_the_same_response(scripted, oai):
    ask = {"model": scripted.model(), "input": ASK, "tools": [RESPONSES_TOOL]}
    whole = oai.responses.create(**ask)
    with oai.responses.stream(**ask) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [i.type for i in whole.output] == ["reasoning", "message"] + ["function_call"] * 2
    assert [json.loads(i.arguments) for i in whole.output[2:]] == [WEATHER, {"city": "Bern"}]
    keys = ("id", "call_id", "parsed_arguments", "parsed")
    assert without(dumped(final)["output"], *keys) == without(dumped(whole)["output"], *keys)
    done = [dumped(e.item) for e in events if e.type == "response.output_item.done"]
    assert without(done, "parsed", "parsed_arguments") == \
        without(dumped(final)["output"], "parsed", "parsed_arguments")
    assert final.output_text == whole.output_text == PROSE
    assert [e.sequence_number for e in events] == list(range(len(events)))


def test_responses_parse_gives_pydantic_objects(scripted, oai):
    tool = openai.pydantic_function_tool(Weather, name="weather")
    flat = {"type": "function", **tool["function"]}
    reply = oai.responses.parse(model=scripted.model(), input=ASK, tools=[flat])
    calls = [i for i in reply.output if i.type == "function_call"]
    assert json.loads(calls[0].arguments) == WEATHER


def test_responses_tool_loop_sends_the_items_back(scripted, oai):
    ask = {"model": scripted.model(), "tools": [RESPONSES_TOOL],
           "include": ["reasoning.encrypted_content"]}
    first = oai.responses.create(input=ASK, **ask)
    assert first.output[0].encrypted_content
    outputs = [{"type": "function_call_output", "call_id": i.call_id, "output": "rain"}
               for i in first.output if i.type == "function_call"]
    last = oai.responses.create(input=ASK + first.output + outputs, **ask)
    assert last.output_text == ANSWER and last.status == "completed"


def test_A09_namespaces_custom_and_hosted_tools(scripted, oai):
    ask = {"model": scripted.model(), "input": "patch it", "tools": [
        {"type": "web_search"}, {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "mcp", "description": "d", "tools": [RESPONSES_TOOL]}]}
    raw = oai.responses.with_raw_response.create(**ask)
    assert "tool_skipped; tools[0]" in raw.headers.get_list("shoal-warning")
    item = raw.parse().output[0]
    assert item.type == "custom_tool_call" and item.input == "*** Begin\n\"x\""
    calls = oai.responses.create(**{**ask, "input": ASK}).output
    call = next(dumped(i) for i in calls if i.type == "function_call")
    assert call["name"] == "weather" and call["namespace"] == "mcp"


# ---------------------------------------------------------------- Anthropic

MESSAGES_TOOL = {"name": "weather", "description": "d", "input_schema": SCHEMA}


def test_A04_A07_anthropic_stream_helper_ends_with_the_same_message(scripted, ant):
    ask = {"model": scripted.model(), "max_tokens": 500, "messages": ASK,
           "tools": [MESSAGES_TOOL]}
    whole = ant.messages.create(**ask)
    assert [b.type for b in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert whole.content[0].thinking == THOUGHT and whole.content[0].signature
    assert [b.input for b in whole.content[2:]] == [WEATHER, {"city": "Bern"}]
    assert whole.stop_reason == "tool_use"
    assert all(b.id.startswith("toolu_") for b in whole.content[2:])
    with ant.messages.stream(**ask) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert "input_json" in kinds and "thinking" in kinds and "signature" in kinds
    assert without(dumped(final)["content"], "id") == without(dumped(whole)["content"], "id")
    assert dumped(final.usage) == dumped(whole.usage)
    results = [{"type": "tool_result", "tool_use_id": b.id, "content": "rain"}
               for b in final.content if b.type == "tool_use"]
    last = ant.messages.create(**{**ask, "messages": ASK + [
        {"role": "assistant", "content": final.content}, {"role": "user", "content": results}]})
    assert last.content[0].text == ANSWER and last.stop_reason == "end_turn"


def test_anthropic_tool_runner_runs_the_loop(scripted, ant):
    asked = []

    @anthropic.beta_tool
    def weather(city: str, days: int = 1, why: str = "") -> str:
        """The weather of a city.

        Args:
            city: where
            days: for how long
            why: the reason
        """
        asked.append((city, days, why))
        return "rain"

    runner = ant.beta.messages.tool_runner(model=scripted.model(), max_tokens=500, messages=ASK,
                                           tools=[weather])
    last = runner.until_done()
    assert asked == [tuple(WEATHER.values()), ("Bern", 1, "")]
    assert last.content[-1].text == ANSWER


# ---------------------------------------------------------------- Ollama

def weather(city: str, days: int = 1, why: str = "") -> str:
    """The weather of a city.

    Args:
        city: where
        days: for how long
        why: the reason
    """
    return f"rain in {city}"


def test_ollama_calls_are_objects_and_the_loop_goes_on(scripted, oll):
    whole = oll.chat(model=scripted.model(), messages=ASK, tools=[weather])
    parts = list(oll.chat(model=scripted.model(), messages=ASK, tools=[weather], stream=True))
    for reply in (whole.message, None):
        calls = (reply.tool_calls if reply else
                 [c for p in parts for c in p.message.tool_calls or []])
        assert [c.function.arguments for c in calls] == [WEATHER, {"city": "Bern"}]
    assert whole.message.thinking == "".join(p.message.thinking or "" for p in parts) == THOUGHT
    assert whole.message.content == "".join(p.message.content for p in parts) == PROSE
    assert whole.done_reason == parts[-1].done_reason == "tool_calls"
    results = [{"role": "tool", "tool_name": "weather", "content": "rain"}] * 2
    last = oll.chat(model=scripted.model(), messages=ASK + [whole.message] + results,
                    tools=[weather])
    assert last.message.content == ANSWER and not last.message.tool_calls


# ---------------------------------------------------------------- all

def test_thinking_that_is_not_wanted_is_not_given(scripted):
    rows = [("/v1/chat/completions", {"messages": ASK, "reasoning_effort": "none"}),
            ("/v1/messages", {"messages": ASK, "max_tokens": 9, "thinking": {"type": "disabled"}}),
            ("/v1/responses", {"input": ASK, "reasoning": {"effort": "none"}}),
            ("/api/chat", {"messages": ASK, "stream": False, "think": False})]
    for path, body in rows:
        got = scripted.post(path, {"model": scripted.model(), **body})
        assert got.status == 200 and ANSWER in got.body.decode(), got.body
        assert THOUGHT not in got.body.decode(), path


HISTORIES = {
    "/v1/chat/completions": {"messages": ASK + [
        {"role": "tool", "tool_call_id": "call_nobody", "content": "orphan"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "gone", "arguments": args}}
            for args in ("", "{", {"a": 1}, '{"a": 1}')]},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
    "/v1/messages": {"max_tokens": 9, "messages": ASK + [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "gone",
                                           "input": "no object"}]},
        {"role": "system", "content": "late"},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "nobody", "content": "orphan"},
            {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": [
                {"type": "tool_reference", "tool_name": "x"}, {"type": "made_up"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                             "data": "AA=="}}]},
            {"type": "server_tool_use", "id": "s", "name": "n", "input": {}}]}]},
    "/v1/responses": {"input": ASK + [
        {"type": "function_call_output", "call_id": "nobody", "output": "orphan"},
        {"type": "function_call", "call_id": "c", "name": "gone", "arguments": "{"},
        {"type": "function_call_output", "call_id": "c", "output": [
            {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "x"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "another server's"},
        {"type": "made_up"}]},
    "/api/chat": {"stream": False, "messages": ASK + [
        {"role": "tool", "content": "orphan"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "gone", "arguments": {}}}]},
        {"role": "user", "content": "go on"}]},
}


@pytest.mark.parametrize("path", HISTORIES)
def test_A03_A10_B01_G24_what_other_clients_left_in_a_history_is_taken(scripted, path):
    got = scripted.post(path, {"model": scripted.model(), **HISTORIES[path]})
    assert got.status == 200, got.body
