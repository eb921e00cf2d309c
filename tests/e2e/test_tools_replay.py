"""A history that comes back is the tokens that were sampled: the prefix cache finds all of it."""
import json
import os

import pytest

from conftest import ROOT
from server import REAL, serving

TURNS = 20


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("replay"), "-model", REAL) as server:
        yield server


class OpenAI:
    path = "/v1/chat/completions"

    def body(self, history, **more):
        return {"messages": history, "max_tokens": 24, **more}

    def reply(self, got):
        return got["choices"][0]["message"]["content"]

    def turn(self, text):
        return [{"role": "assistant", "content": text}]


class Anthropic(OpenAI):
    path = "/v1/messages"

    def reply(self, got):
        return "".join(b["text"] for b in got["content"])

    def turn(self, text):
        return [{"role": "assistant", "content": [{"type": "text", "text": text}]}]


class Responses(OpenAI):
    path = "/v1/responses"

    def body(self, history, **more):
        return {"input": history, "max_output_tokens": 24, **more}

    def reply(self, got):
        return got["output"][0]["content"][0]["text"]

    def turn(self, text):
        return [{"type": "message", "role": "assistant",
                 "content": [{"type": "output_text", "text": text, "annotations": []}]}]


class Ollama(OpenAI):
    path = "/api/chat"

    def body(self, history, temperature=0, seed=0, **more):
        return {"messages": history, "stream": False,
                "options": {"num_predict": 24, "temperature": temperature, "seed": seed}, **more}

    def reply(self, got):
        return got["message"]["content"]


DIALECTS = [OpenAI(), Anthropic(), Responses(), Ollama()]


def chat(server, dialect, turns, **more):
    """(prompt, cached) of each request of a conversation at temperature 1: what is sampled so is
    seldom what an encoder would make of its text."""
    history, counts = [], []
    for i in range(turns):
        history = history + [{"role": "user", "content": f"Say something odd, number {i}."}]
        body = dialect.body(history, model=server.model(), temperature=1, seed=i + 1, **more)
        if dialect.path in ("/v1/messages", "/v1/responses"):
            body.pop("seed")
        got = server.post(dialect.path, body)
        assert got.status == 200, got.body
        got = got.json()
        counts.append((got["shoal"]["cache"]["prompt"], got["shoal"]["cache"]["cached"]))
        history = history + dialect.turn(dialect.reply(got))
    return counts


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: type(d).__name__.lower())
def test_each_turn_prefills_only_what_is_new(real, dialect):
    counts = chat(real, dialect, TURNS)
    for (before, _), (prompt, cached) in zip(counts, counts[1:]):
        assert cached >= before, counts  # at least all that was there one turn ago
        assert prompt - cached <= 24, counts  # the question, and one token at most of the reply


def test_without_replay_the_text_is_encoded_again(real):
    """The switch does something: sampled text rarely encodes to what was sampled."""
    counts = chat(real, OpenAI(), 8, shoal={"replay": False, "session": "plain"})
    assert any(prompt - cached > 24 for prompt, cached in counts[1:]), counts


# ---------------------------------------------------------------- calls

CODER = os.path.join(ROOT, "build", "models", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
CITIES = ["Paris", "Berlin", "Madrid", "Vienna", "Bern"]
# This model is too small to think of the marker of a call by itself: it is made likely, once.
LIKELY = {"logit_bias": {"151657": 24}, "frequency_penalty": 2, "presence_penalty": 2}
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"]}}}


@pytest.fixture(scope="module")
def coder(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("coder"), "-model", CODER) as server:
        yield server


def test_a_tool_loop_of_20_calls_finds_97_percent_of_what_was_there(coder):
    """Arguments come back respaced, as clients that keep objects write them."""
    history, before, found, there, calls = [], 0, 0, 0, 0
    for i in range(TURNS):
        history.append({"role": "user",
                        "content": f"Weather of {CITIES[i % 5]}? Use the tool."})
        got = coder.post("/v1/chat/completions", {
            "model": coder.model(), "messages": history, "tools": [TOOL], "temperature": 0,
            "max_tokens": 40, **LIKELY}).json()
        message, usage = got["choices"][0]["message"], got["usage"]
        found += usage["prompt_tokens_details"]["cached_tokens"] if i else 0
        there += before
        before = usage["prompt_tokens"] + usage["completion_tokens"]
        turn = {"role": "assistant", "content": message["content"]}
        if message.get("tool_calls"):
            calls += 1
            turn["tool_calls"] = message["tool_calls"]
            for call in turn["tool_calls"]:
                arguments = json.loads(call["function"]["arguments"])
                call["function"]["arguments"] = json.dumps(arguments, separators=(" ,", " : "))
        history.append(turn)
        history += [{"role": "tool", "tool_call_id": call["id"], "content": f"{i} degrees"}
                    for call in turn.get("tool_calls", [])]
    assert calls >= TURNS // 2, calls
    assert found / there >= 0.97, (found, there)
