"""Warming from outside: the local model reads along with what a cloud answers, and nobody waits."""
import concurrent.futures
import json
import threading
import time
import urllib.request

import pytest

from server import REAL, Server, serving, wait_until
from legs import Stub, config_of

WORDS = " ".join(f"Line {i} says that box {i * 7 % 90} holds {i * i % 97} pens." for i in range(60))
QUESTION = [{"role": "user", "content": f"{WORDS}\nHow many pens are there?"}]


def chat(server, messages, **more):
    return server.post("/v1/chat/completions", {"model": "gpt-x", "messages": messages,
                                                "temperature": 0, "max_tokens": 40, **more})


def fault(stub, text):
    urllib.request.urlopen(urllib.request.Request(
        f"http://127.0.0.1:{stub.port}/stub/fault", text.encode(), method="POST"), timeout=10)


def write(path, stub, name, more=(), **route):
    path.write_text(config_of(
        {"cloud": {"kind": "upstream", "dialect": "openai", "model": "x/ok",
                   "url": f"http://127.0.0.1:{stub.port}"},
         "desk": {"kind": "engine", "model": name}},
        [{"match": {"model": "gpt-*"}, "legs": ["cloud", "desk"], **route},
         {"match": {}, "legs": ["desk"]}],
        ["probes: {free: false}", *more]))


@pytest.fixture(scope="module")
def name(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("name"), "-model", REAL) as server:
        return server.model()


def warm_of(server):
    return server.metric("shoal_shadow_tokens_total")


def is_settled(server):
    """A run that ends is counted then, and told half a second later; the reply's comes after it."""
    before = warm_of(server)
    time.sleep(1.5)
    return 500 < before == warm_of(server) and \
        server.get("/v1/status").json()["models"][0]["running"] == 0


def cached(reply):
    cache = reply.json()["shoal"]["cache"]
    return cache["cached"], cache["prompt"]


def test_a_failover_finds_prompt_and_reply_of_the_cloud_in_the_cache(tmp_path, name):
    stub = Stub(tmp_path)
    shares = ["shadow: {min_tokens: 500, share: 1}"]
    found = {}
    for shadow in ({}, {"shadow": "desk"}):
        home = tmp_path / ("warm" if shadow else "cold")
        home.mkdir()
        write(home / "config.yaml", stub, name, shares, **shadow)
        with serving(home, "-config", str(home / "config.yaml"), "-model", REAL) as server:
            said = chat(server, QUESTION)
            assert said.headers["shoal-leg"] == "cloud"
            if shadow:
                wait_until(lambda: is_settled(server), 60)
            text = said.json()["choices"][0]["message"]["content"]
            turn = [*QUESTION, {"role": "assistant", "content": text},
                    {"role": "user", "content": "And without box 3?"}]
            fault(stub, "status=500")
            again = chat(server, turn)
            fault(stub, "")
            assert again.headers["shoal-leg"] == "desk", again.body
            found[bool(shadow)] = cached(again)
            assert bool(shadow) == (warm_of(server) > 0)
    assert found[False][0] == 0
    hit, prompt = found[True]
    assert hit > 0.9 * prompt, found  # the prompt alone is less: the reply was read, too
    stub.stop()


def test_a_short_prompt_and_one_that_wants_no_cache_are_not_read_along(tmp_path, name):
    stub = Stub(tmp_path)
    write(tmp_path / "config.yaml", stub, name, ["shadow: {min_tokens: 500, share: 1}"],
          shadow="desk")
    with serving(tmp_path, "-config", str(tmp_path / "config.yaml"), "-model", REAL) as server:
        chat(server, [{"role": "user", "content": "Hello."}])
        chat(server, QUESTION, shoal={"cache": "off"})
        time.sleep(0.5)
        assert warm_of(server) == 0
    stub.stop()


def test_reading_along_loads_nothing(tmp_path, name):
    stub = Stub(tmp_path)
    models = tmp_path / "models"
    models.mkdir()
    (models / f"{name}.gguf").symlink_to(REAL)
    write(tmp_path / "config.yaml", stub, name,
          ["shadow: {min_tokens: 100}", f"sources: {{dirs: [{models}]}}"], shadow="desk")
    server = Server(tmp_path, "-config", str(tmp_path / "config.yaml"))
    try:
        assert chat(server, QUESTION).headers["shoal-leg"] == "cloud"
        time.sleep(1)
        assert server.get("/v1/status").json()["models"] == []
        assert warm_of(server) == 0
    finally:
        server.stop()
    stub.stop()


def test_whoever_comes_does_not_wait_for_it(tmp_path, name):
    """Four clouds' sessions are read along at a share of one; an agent's request waits for none of
    them, and gets the same text as alone."""
    stub = Stub(tmp_path)
    write(tmp_path / "config.yaml", stub, name, ["shadow: {min_tokens: 100, share: 1}"],
          shadow="desk")
    local = [{"role": "user", "content": "Name three colours."}]
    with serving(tmp_path, "-config", str(tmp_path / "config.yaml"), "-model", REAL) as server:
        alone = server.post("/v1/chat/completions", {"model": name, "messages": local,
                                                     "temperature": 0, "max_tokens": 12})
        stop = threading.Event()

        def cloud(k):
            for i in range(1000):
                if stop.is_set():
                    return
                text = f"Session {k}, try {i}. {QUESTION[0]['content']}"
                assert chat(server, [{"role": "user", "content": text}],
                            user=f"a{k}").headers["shoal-leg"] == "cloud"
                time.sleep(0.05)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            clouds = [pool.submit(cloud, k) for k in range(4)]
            try:
                wait_until(lambda: warm_of(server) > 0, 60)
                for _ in range(10):
                    r = server.post("/v1/chat/completions", {"model": name, "messages": local,
                                                             "temperature": 0, "max_tokens": 12})
                    assert r.status == 200
                    assert r.json()["choices"] == alone.json()["choices"]
                    assert r.json()["shoal"]["timings"]["queue_ms"] < 1000
                    time.sleep(0.1)
            finally:
                stop.set()
        assert [c.result() for c in clouds] == [None] * 4
        assert json.loads(server.get("/v1/routes").body)["routes"][0]["shadow"] == "desk"
    stub.stop()
