"""A history that comes back is the tokens that were sampled: the prefix cache finds all of it."""
import json

import pytest

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

CITIES = ["Paris", "Berlin", "Madrid", "Vienna", "Bern"]
# This model is too small to think of the marker of a call by itself: it is made likely, once.
LIKELY = {"logit_bias": {"151657": 24}, "frequency_penalty": 2, "presence_penalty": 2}
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"]}}}


class Loop:
    """A conversation of calls and results in the forms of all protocols."""

    def __init__(self):
        self.chat, self.messages, self.items, self.ollama = [], [], [], []

    def ask(self, text):
        turn = {"role": "user", "content": text}
        for history in (self.chat, self.messages, self.items, self.ollama):
            history.append(turn)

    def say(self, message, result):
        """The reply as each protocol's client sends it back: arguments respaced or as objects, ids
        renamed or dropped, and what the tool returned."""
        calls, text = message.get("tool_calls", []), message["content"] or ""
        objects = [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
                   for c in calls]
        self.chat.append({"role": "assistant", "content": message["content"], **({"tool_calls": [
            {"id": i, "type": "function",
             "function": {"name": n, "arguments": json.dumps(a, separators=(" ,", " : "))}}
            for i, n, a in objects]} if calls else {})})
        self.messages.append({"role": "assistant", "content": [
            *([{"type": "text", "text": text}] if text else []),
            *({"type": "tool_use", "id": i.replace("call_", "toolu_"), "name": n, "input": a}
              for i, n, a in objects)]})
        self.items += [*([{"role": "assistant", "content": text}] if text else []),
                       *({"type": "function_call", "call_id": i, "name": n,
                          "arguments": json.dumps(a, indent=1)} for i, n, a in objects)]
        self.ollama.append({"role": "assistant", "content": text, "tool_calls": [
            {"function": {"name": n, "arguments": a}} for _, n, a in objects]})
        for i, name, _ in objects:
            self.chat.append({"role": "tool", "tool_call_id": i, "content": result})
            self.items.append({"type": "function_call_output", "call_id": i, "output": result})
            self.ollama.append({"role": "tool", "tool_name": name, "content": result})
        if objects:
            self.messages.append({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": i.replace("call_", "toolu_"),
                 "content": result} for i, _, _ in objects]})

    def bodies(self):
        function = TOOL["function"]
        return {
            "/v1/messages": {"messages": self.messages, "max_tokens": 1, "tools": [
                {"name": function["name"], "description": function["description"],
                 "input_schema": function["parameters"]}]},
            "/v1/responses": {"input": self.items, "max_output_tokens": 1,
                              "tools": [{"type": "function", **function}]},
            "/api/chat": {"messages": self.ollama, "tools": [TOOL], "stream": False,
                          "options": {"num_predict": 1}}}


def test_E32_a_tool_loop_of_20_calls_finds_97_percent_of_what_was_there_on_each_dialect(coder):
    loop, before, calls = Loop(), 0, 0
    found = {path: [0, 0] for path in ["/v1/chat/completions", *Loop().bodies()]}
    for i in range(TURNS):
        loop.ask(f"Weather of {CITIES[i % 5]}? Use the tool.")
        got = coder.post("/v1/chat/completions", {
            "model": coder.model(), "messages": loop.chat, "tools": [TOOL], "temperature": 0,
            "max_tokens": 40, **LIKELY}).json()
        message, usage = got["choices"][0]["message"], got["usage"]
        found["/v1/chat/completions"][0] += min(got["shoal"]["cache"]["cached"], before)
        found["/v1/chat/completions"][1] += before
        before = usage["prompt_tokens"] + usage["completion_tokens"]
        calls += bool(message.get("tool_calls"))
        loop.say(message, f"{i} degrees")
        loop.ask("Thank you.")
        bodies = list(loop.bodies().items())
        path, body = bodies[i % len(bodies)]  # one a turn: it cannot find what another one read
        cache = coder.post(path, {"model": coder.model(), **body}).json()["shoal"]["cache"]
        found[path][0] += min(cache["cached"], before)
        found[path][1] += before
        for history in (loop.chat, loop.messages, loop.items, loop.ollama):
            history.pop()
    assert calls >= TURNS // 2, calls
    for path, (cached, there) in found.items():
        assert cached / there >= 0.97, (path, found)
