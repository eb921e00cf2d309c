"""GET /ready: would a reply start now? By name, alias and route, and with a token as the proof."""
import concurrent.futures
import os
import signal
import time

import pytest

from legs import Stub
from server import REAL, TINY, serving, wait_until
from test_serve_models import complete, fill_store

ALIASES = "aliases: {small: llama, 'gpt-*': qwen2}\n"


def ready(server, query=""):
    r = server.get("/ready" + query)
    return r.status, {k: r.json()[k] for k in ("ready", "model", "state")}


@pytest.fixture
def several(tmp_path):
    fill_store(tmp_path)
    (tmp_path / "config.yaml").write_text(ALIASES)
    with serving(tmp_path, "-config", str(tmp_path / "config.yaml")) as server:
        yield server


def test_a_name_an_alias_and_a_file_name_tell_of_the_same_model(several):
    idle = (200, {"ready": True, "model": "llama", "state": "idle"})
    names = ("llama", "small", "LLAMA", "llama.gguf", "llama:latest", "%6Clama")
    wait_until(lambda: ready(several, "?model=small") == idle)
    for name in names:
        assert ready(several, f"?model={name}") == idle, name
    assert complete(several, "small").status == 200
    for name in names:
        assert ready(several, f"?model={name}")[1]["state"] == "loaded", name
    assert ready(several, "?model=gpt-9") == (
        200, {"ready": True, "model": "qwen2", "state": "idle"})
    assert ready(several)[1] == {"ready": True, "model": "llama", "state": "loaded"}


@pytest.mark.parametrize("name, state", [("nobody", "none"), ("broken", "failed"),
                                         ("x" * 900, "none"), ("%00", "none"),
                                         ("..%2Fllama", "none")])
def test_a_model_that_cannot_answer_is_not_ready(several, name, state):
    def told():
        status, body = ready(several, f"?model={name}")
        return status, body["ready"], body["state"]
    wait_until(lambda: told() == (503, False, state))  # the store is read, the file looked at
    time.sleep(0.2)
    assert told() == (503, False, state)


def test_a_server_without_any_model_is_not_ready(home):
    with serving(home) as server:
        wait_until(lambda: ready(server) == (503, {"ready": False, "model": None, "state": "none"}))
        assert server.get("/health").status == 200  # alive all the same


def test_a_route_is_ready_when_one_of_its_legs_is(tmp_path):
    stub = Stub(tmp_path)
    fill_store(tmp_path)
    (tmp_path / "config.yaml").write_text(f"""
legs:
  desk: {{kind: engine, model: llama}}
  lost: {{kind: engine, model: nobody}}
  cloud: {{kind: upstream, dialect: openai, model: "ok:1", url: "http://127.0.0.1:{stub.port}"}}
routes:
  - {{match: {{model: near}}, legs: [desk]}}
  - {{match: {{model: far}}, legs: [cloud]}}
  - {{match: {{model: both}}, legs: [lost, cloud]}}
  - {{match: {{model: gone}}, legs: [lost]}}
""")
    with serving(tmp_path, "-config", str(tmp_path / "config.yaml")) as server:
        wait_until(lambda: ready(server, "?model=near") == (
            200, {"ready": True, "model": "llama", "state": "idle"}))
        cloud = {"ready": True, "model": "far", "state": "none"}
        assert ready(server, "?model=far") == (200, cloud)
        assert ready(server, "?model=both") == (200, {**cloud, "model": "both"})
        assert ready(server, "?model=gone") == (
            503, {"ready": False, "model": "nobody", "state": "none"})
        assert server.post("/v1/legs/cloud", {"state": "open"}).status == 200
        assert ready(server, "?model=far")[0] == ready(server, "?model=both")[0] == 503
    stub.stop()


# ---------------------------------------------------------------- with a proof

def computed(server):
    """Tokens of prompts that the child has computed; a proof's own is one."""
    return server.get("/v1/cache").json()["models"][0]["tokens_computed"]


def test_a_proof_is_a_token_and_a_young_token_is_a_proof(several):
    wait_until(lambda: ready(several, "?model=small")[1]["state"] != "loading")  # names are read
    assert ready(several, "?model=small&prove=1") == (
        503, {"ready": False, "model": "llama", "state": "idle"})  # nothing is loaded for it
    assert complete(several, "llama", max_tokens=2).status == 200
    assert ready(several, "?model=small&prove=1")[0] == 200  # 2 tokens, a moment ago
    wait_until(lambda: several.get("/ready").json()["last_token_ms"] > 1500)
    before = computed(several)  # and nothing came of the first question
    got = several.get("/ready?model=small&prove=1")
    assert got.status == 200 and got.json()["last_token_ms"] < 1000
    wait_until(lambda: computed(several) == before + 1)


def test_many_who_want_a_proof_share_one_token(tmp_path):
    with serving(tmp_path, "-model", REAL, "-slots", "1", "-queue", "2") as server:
        assert server.chat(max_tokens=1).status == 200
        wait_until(lambda: server.get("/ready").json()["last_token_ms"] > 1500)
        before, start = computed(server), time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            got = list(pool.map(lambda _: server.get("/ready?prove=1").status, range(40)))
        assert got == [200] * 40
        wait_until(lambda: computed(server) > before)
        # Forty would not have fitted into the queue; a token is a proof for a second.
        assert computed(server) <= before + 2 + (time.monotonic() - start)


def test_a_child_that_stands_still_is_unproved_within_the_limit(tmp_path):
    with serving(tmp_path, "-model", TINY) as server:
        assert server.chat(max_tokens=1).status == 200
        wait_until(lambda: server.get("/ready").json()["last_token_ms"] > 1000)
        child = server.child()
        os.kill(child, signal.SIGSTOP)
        try:
            assert ready(server)[0] == 200  # without work nobody can tell
            began = time.monotonic()
            assert ready(server, "?prove=1")[0] == 503
            assert 4 < time.monotonic() - began < 20
        finally:
            os.kill(child, signal.SIGCONT)
        wait_until(lambda: ready(server, "?prove=1")[0] == 200)


@pytest.mark.parametrize("word", ["2", "yes", "", "1 "])
def test_another_word_than_0_and_1_is_refused_by_name(several, word):
    r = several.get(f"/ready?prove={word.replace(' ', '%20')}")
    assert r.status == 400 and "prove: 0 or 1 expected" in r.json()["error"]["message"]
