"""Failover as the official clients see it: openai (chat and Responses), anthropic, ollama. With
another leg they notice nothing; without one each raises the error of its own kind."""
import concurrent.futures

import anthropic
import ollama
import openai
import pytest

from server import serving
from legs import CONTINUE, DIALECTS, QUIET, WORDS, Stub, config_of

SAY = [{"role": "user", "content": "Go on."}]
BEFORE, AFTER = ("hang_header", "status=500", "cut=0"), ("stall=12", "cut=12", "fail_late=12")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Model "two-PROTOCOL/FAULT" has a second leg of the next protocol, "one-..." none."""
    home = tmp_path_factory.mktemp("sdk")
    stubs = {n: Stub(home) for n in "ab"}
    legs, routes = {}, []
    for d in DIALECTS:
        for n, stub in stubs.items():
            legs[f"{n}-{d}"] = {"kind": "upstream", "dialect": d, "continue": CONTINUE[d],
                                "url": f"http://127.0.0.1:{stub.port}"}
        legs[f"a-{d}"]["deadlines"] = {"first_token": "1500ms", "gap": "1500ms"}
    for i, d in enumerate(DIALECTS):
        second = {"leg": f"b-{DIALECTS[(i + 1) % 3]}", "model": "x/ok"}
        routes += [{"match": {"model": f"two-{d}/*"}, "legs": [f"a-{d}", second]},
                   {"match": {"model": f"one-{d}/*"}, "legs": [f"a-{d}"]}]
    path = home / "config.yaml"
    path.write_text(config_of(legs, routes, [
        "deadlines: {first_token: 30s, gap: 30s}", *QUIET]))
    with serving(home, "-config", str(path)) as server:
        yield server
    for s in stubs.values():
        s.stop()


class Chat:
    def __init__(self, url):
        self.client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        self.before, self.after = openai.APIStatusError, openai.APIError

    def whole(self, model):
        c = self.client.chat.completions.create(model=model, messages=SAY).choices[0]
        return c.message.content, c.finish_reason == "stop"

    def pieces(self, model):
        for chunk in self.client.chat.completions.create(model=model, messages=SAY, stream=True):
            for c in chunk.choices:
                yield c.delta.content or "", c.finish_reason == "stop"


class Responses(Chat):
    def whole(self, model):
        r = self.client.responses.create(model=model, input="Go on.")
        return r.output_text, r.status == "completed"

    def pieces(self, model):
        for e in self.client.responses.create(model=model, input="Go on.", stream=True):
            if e.type in ("response.failed", "error"):  # this client hands it over as an event
                raise openai.APIError(e.response.error.message, None, body=None)
            yield (e.delta if e.type == "response.output_text.delta" else "",
                   e.type == "response.completed")


class Messages:
    def __init__(self, url):
        self.client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
        self.before = self.after = anthropic.APIStatusError

    def whole(self, model):
        r = self.client.messages.create(model=model, messages=SAY, max_tokens=1000)
        return r.content[0].text, r.stop_reason == "end_turn"

    def pieces(self, model):
        with self.client.messages.stream(model=model, messages=SAY, max_tokens=1000) as s:
            for e in s:
                is_text = e.type == "content_block_delta" and e.delta.type == "text_delta"
                yield e.delta.text if is_text else "", e.type == "message_stop"


class Ollama:
    """Its stream has no error beside `error`, which the client raises."""

    def __init__(self, url):
        self.client = ollama.Client(host=url, timeout=60)
        self.before = self.after = ollama.ResponseError

    def whole(self, model):
        r = self.client.chat(model=model, messages=SAY)
        return r.message.content, r.done_reason == "stop"

    def pieces(self, model):
        for r in self.client.chat(model=model, messages=SAY, stream=True):
            yield r.message.content or "", r.done_reason == "stop"


CLIENTS = {"openai": Chat, "responses": Responses, "anthropic": Messages, "ollama": Ollama}


def read(client, model):
    text, end = "", False
    for piece, is_end in client.pieces(model):
        text, end = text + piece, end or is_end
    return text, end


def side_by_side(run, cells):
    """Most of a cell is waiting for a limit."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for job in [pool.submit(run, cell) for cell in cells]:
            job.result()


@pytest.mark.parametrize("name", CLIENTS)
def test_with_another_leg_an_sdk_notices_nothing(server, name):
    client = CLIENTS[name](server.url)
    whole = client.whole("two-openai/ok")
    assert len(whole[0].split()) == WORDS and whole[1]

    def run(model):
        assert client.whole(model) == whole, model
        assert read(client, model) == whole, model

    side_by_side(run, [f"two-{upstream}/{fault}" for i, fault in enumerate(BEFORE + AFTER)
                       for upstream in (DIALECTS[i % 4], DIALECTS[(i + 1) % 4])])


@pytest.mark.parametrize("name", CLIENTS)
def test_without_another_leg_an_sdk_raises_its_own_error(server, name):
    client = CLIENTS[name](server.url)
    text = client.whole("two-openai/ok")[0]

    def run(model):
        fault = model.split("/")[1]
        status = 504 if fault.startswith(("hang", "stall")) else 502
        with pytest.raises(client.before) as e:
            client.whole(model)
        assert e.value.status_code == status and str(e.value), model
        said, ended = "", False
        with pytest.raises(client.before if fault in BEFORE else client.after) as e:
            for piece, is_end in client.pieces(model):
                said, ended = said + piece, ended or is_end
        assert not ended and text.startswith(said) and str(e.value), model
        assert (not said) == (fault in BEFORE), model

    side_by_side(run, [f"one-{DIALECTS[i % 4]}/{fault}" for i, fault in enumerate(BEFORE + AFTER)])
