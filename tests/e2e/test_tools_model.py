"""Calls of a real model through the official clients: forced by tool_choice, so that a small one
makes them, the same streamed and not, on each dialect that has the field."""
import json

import anthropic
import openai
import pytest

ASK = [{"role": "user", "content": "How is the weather in Paris?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"], "additionalProperties": False}
NAMES = ["get_time", "get_weather"]
SEEDS = range(2)


class Chat:
    def __init__(self, server):
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0,
                                    timeout=60)
        self.fixed = {"model": server.model(), "messages": ASK, "max_tokens": 60, "tools": [
            {"type": "function", "function": {"name": n, "parameters": CITY}} for n in NAMES]}

    def choice(self, what):
        return what if what in ("none", "required") else {
            "type": "function", "function": {"name": what}}

    def ask(self, what, seed, streams, one=False):
        more = {"tool_choice": self.choice(what), "seed": seed, "parallel_tool_calls": not one}
        if streams:
            with self.client.chat.completions.stream(**self.fixed, **more) as stream:
                list(stream)
                reply = stream.get_final_completion()
        else:
            reply = self.client.chat.completions.create(**self.fixed, **more)
        choice = reply.choices[0]
        return choice.finish_reason, [(c.id, c.function.name, json.loads(c.function.arguments))
                                      for c in choice.message.tool_calls or []]


class Messages(Chat):
    def __init__(self, server):
        self.client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0,
                                          timeout=60)
        self.fixed = {"model": server.model(), "messages": ASK, "max_tokens": 60, "tools": [
            {"name": n, "input_schema": CITY} for n in NAMES]}

    def choice(self, what):
        kinds = {"none": {"type": "none"}, "required": {"type": "any"}}
        return kinds.get(what, {"type": "tool", "name": what})

    def ask(self, what, seed, streams, one=False):
        choice = self.choice(what)
        if one:
            choice["disable_parallel_tool_use"] = True
        more = {"tool_choice": choice, "extra_body": {"temperature": 0}}
        if streams:
            with self.client.messages.stream(**self.fixed, **more) as stream:
                list(stream)
                reply = stream.get_final_message()
        else:
            reply = self.client.messages.create(**self.fixed, **more)
        return reply.stop_reason, [(b.id, b.name, b.input) for b in reply.content
                                   if b.type == "tool_use"]


class Responses(Chat):
    def __init__(self, server):
        super().__init__(server)
        self.fixed = {"model": server.model(), "input": ASK, "max_output_tokens": 60,
                      "temperature": 0,
                      "tools": [{"type": "function", "name": n, "parameters": CITY}
                                for n in NAMES]}

    def choice(self, what):
        return what if what in ("none", "required") else {"type": "function", "name": what}

    def ask(self, what, seed, streams, one=False):
        more = {"tool_choice": self.choice(what), "parallel_tool_calls": not one}
        if streams:
            with self.client.responses.stream(**self.fixed, **more) as stream:
                list(stream)
                reply = stream.get_final_response()
        else:
            reply = self.client.responses.create(**self.fixed, **more)
        return reply.status, [(i.call_id, i.name, json.loads(i.arguments)) for i in reply.output
                              if i.type == "function_call"]


@pytest.fixture(params=[Chat, Messages, Responses], ids=lambda c: c.__name__.lower())
def dialect(request, coder):
    return request.param(coder)


def test_A14_required_and_named_calls_are_made_and_none_is_not(dialect):
    for seed in SEEDS:
        _, calls = dialect.ask("required", seed, False, one=True)
        assert len(calls) == 1 and calls[0][1] in NAMES and set(calls[0][2]) == {"city"}
        for name in NAMES:
            _, calls = dialect.ask(name, seed, False, one=True)
            assert [c[1] for c in calls] == [name]
        _, calls = dialect.ask("none", seed, False)
        assert calls == []


def test_A15_A17_a_stream_has_the_same_call_and_one_means_one(dialect):
    drawn = isinstance(dialect, Chat) and type(dialect) is Chat
    for streams in (False, True):
        finish, calls = dialect.ask("get_weather", 7, streams, one=True)
        assert finish in ("tool_calls", "tool_use", "completed") and len(calls) == 1
        if streams:
            assert calls[0][1:] == first[0][1:]
            assert not drawn or calls == first  # same request, same seed: the same ids
        first = calls
