"""Cases of CASES.md E and G about one engine under many clients: who waits for whom, loads and
unloads in between, a watchdog that knows work from standstill. The id is in the name."""
import collections
import concurrent.futures
import http.client
import json
import os
import random
import signal
import threading
import time

import pytest

from server import CODER, REAL, serving, wait_until
from test_serve_models import complete, fill_store

CHAT = "/v1/chat/completions"


def ask(server, text, agent="a", **more):
    return server.post(CHAT, {"model": server.model(), "shoal": {"agent": agent}, "temperature": 0,
                              "messages": [{"role": "user", "content": text}], **more},
                       timeout=120)


def words(number, count):
    """A text that shares no prefix with that of another number."""
    draw = random.Random(number)
    return " ".join(draw.choice(("salt", "rope", "tide", "gull", "mast")) for _ in range(count))


@pytest.fixture
def models(tmp_path):
    fill_store(tmp_path)

    def start(*args, **env):
        return serving(tmp_path, *args, env=env)
    return start


# ---------------------------------------------------------------- one model, many requests

def test_E02_long_requests_that_do_not_run_at_once_wait_and_none_fails(tmp_path):
    with serving(tmp_path, "-model", REAL, "-ctx", "2048", "-slots", "2") as server:
        assert server.get("/v1/status").json()["models"][0]["context"] == 2048
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            got = list(pool.map(lambda i: ask(server, words(i, 900), max_tokens=48,
                                              ignore_eos=True), range(4)))
        assert [r.status for r in got] == [200] * 4, [r.body for r in got]
        assert all(r.json()["usage"]["completion_tokens"] == 48 for r in got)
        r = ask(server, words(9, 4000))
        assert r.status == 400 and "2048" in r.json()["error"]["message"], r.body


def test_E03_a_short_request_of_another_agent_does_not_wait_for_a_long_prompt(tmp_path):
    with serving(tmp_path, "-model", REAL, "-ctx", "8192", "-batch", "128") as server:
        took = {}

        def long():
            before = time.monotonic()
            assert ask(server, words(1, 2500), "bulk", max_tokens=1).status == 200
            took["long"] = time.monotonic() - before

        t = threading.Thread(target=long)
        t.start()
        wait_until(lambda: server.requests() == 1)
        before = time.monotonic()
        assert ask(server, words(2, 40), "desk", max_tokens=1).status == 200
        took["short"] = time.monotonic() - before
        assert "long" not in took, took
        t.join()
        assert took["short"] < took["long"] / 3, took


def test_E04_a_running_reply_goes_on_while_a_long_prompt_is_read(tmp_path):
    """In steps, which do not depend on the machine: a step beside a reply reads what takes one and
    a half times as long as the reply's own row, 32 tokens at least; in whole batches the prompt
    would be over after a dozen."""
    with serving(tmp_path, "-model", REAL, "-ctx", "8192") as server:
        counts, prompt_tokens = [], []

        def long():
            r = ask(server, words(4, 3000), "bulk", max_tokens=1)
            assert r.status == 200, r.body
            prompt_tokens.append(r.json()["usage"]["prompt_tokens"])

        body = {"model": server.model(), "stream": True, "max_tokens": 4000, "ignore_eos": True,
                "temperature": 0, "messages": [{"role": "user", "content": "Count."}]}
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", CHAT, json.dumps(body))
        reply = connection.getresponse()

        def read(until):
            counts.append(0)
            while not until():
                assert b"[DONE]" not in (line := reply.readline()), "the reply ended too early"
                counts[-1] += line.startswith(b"data: ")

        read(lambda: counts[-1] >= 40)  # what a step costs is measured by then
        t = threading.Thread(target=long)
        t.start()
        wait_until(lambda: server.requests() == 2)
        read(lambda: not t.is_alive())
        t.join()
        connection.close()
        assert counts[-1] >= prompt_tokens[0] / 128, (counts, prompt_tokens)


def test_E25_a_reply_longer_than_the_stall_limit_lives(tmp_path):
    """The other half, one that stands still, is E06 in test_failover."""
    with serving(tmp_path, "-model", REAL, "-ctx", "4096",
                 env={"SHOAL_DEADLINES_ENGINE_STALL": "1500ms"}) as server:
        took, tokens_each = 0, 200
        while took < 3:  # the last one alone took twice the limit
            before = time.monotonic()
            r = ask(server, words(3, 20), max_tokens=tokens_each, ignore_eos=True)
            assert r.status == 200, r.body
            assert r.json()["usage"]["completion_tokens"] == tokens_each
            took, tokens_each = time.monotonic() - before, 2 * tokens_each
        assert server.get("/v1/status").json()["models"][0]["restarts"] == 0


def step(pid, row, was):
    """Lets a stopped load run in short slices until its progress is another one. Where the machine
    is slow, slices bring too little: then it runs on, and is looked at."""
    begun = time.monotonic()
    while row()["state"] == "loading" and row()["progress"] == was:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
        if time.monotonic() - begun < 1:
            os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGSTOP)


def test_G21_a_load_that_moves_is_waited_for_one_that_stands_still_is_tried_again(tmp_path):
    """The child stands still after each step of its load: far longer than the limit in all, half of
    it at once. Then it is killed, and the next load stands still for good."""
    limit = 5
    with concurrent.futures.ThreadPoolExecutor(1) as pool, \
            serving(tmp_path, "-model", CODER, "-ctx", "1024", ready=False,
                    env={"SHOAL_DEADLINES_LOAD_STALL": f"{limit}s"}) as server:
        def row():
            return server.get("/v1/status").json()["models"][0]

        def say():
            return ask(server, "Say hello.", max_tokens=4).status

        child = wait_until(lambda: row()["pid"])
        os.kill(child, signal.SIGSTOP)
        first, begun, stops = pool.submit(say), time.monotonic(), 0
        while row()["state"] == "loading" and time.monotonic() - begun < 2.5 * limit:
            was = row()["progress"]
            time.sleep(limit / 2)
            stops += 1
            step(child, row, was)
        os.kill(child, signal.SIGCONT)
        assert time.monotonic() - begun > 2 * limit, (stops, row())
        assert first.result() == 200 and (row()["pid"], row()["restarts"]) == (child, 0)

        os.kill(child, signal.SIGKILL)
        second = pool.submit(say)
        os.kill(wait_until(lambda: row()["pid"] not in (0, child) and row()["pid"]), signal.SIGSTOP)
        assert second.result() == 200
        assert row()["restarts"] == 2
        for reason in ("crash", "wedged"):
            assert server.metric("shoal_engine_restarts_total{model=\"" + server.model()
                                 + f'",reason="{reason}"') == 1


# ---------------------------------------------------------------- several models, one place

def test_E22_a_model_that_answers_is_not_unloaded_for_another(models):
    with models(SHOAL_ENGINE_MIN_RESIDENCY="0s") as server:
        ended = {}

        def run(model, tokens):
            r = complete(server, model, max_tokens=tokens, ignore_eos=True)
            ended[model] = time.monotonic()
            return r

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            first = pool.submit(run, "llama", 1500)
            wait_until(lambda: server.metric("shoal_running") == 1)
            second = pool.submit(run, "qwen2", 8)
            assert first.result().json()["usage"]["completion_tokens"] == 1500
            assert second.result().json()["usage"]["completion_tokens"] == 8
        assert ended["llama"] < ended["qwen2"]
        assert server.metric("shoal_swaps_total") == 1


def test_E05_health_answers_at_once_during_loads_and_swaps(models, tmp_path):
    with models(SHOAL_ENGINE_MIN_RESIDENCY="0s") as server:
        (tmp_path / ".shoal" / "models" / "real.gguf").symlink_to(REAL)
        wait_until(lambda: server.get("/ready?model=real").status == 200)
        times, states = [], collections.Counter()

        def swap():
            for name in ("real", "llama", "real"):
                assert complete(server, name).status == 200

        t = threading.Thread(target=swap)
        t.start()
        while t.is_alive():
            before = time.monotonic()
            assert server.get("/health").status == 200
            times.append(time.monotonic() - before)
            states[server.get("/ready?model=real").json()["state"]] += 1
        t.join()
        assert server.metric("shoal_swaps_total") == 2
        assert states["loading"] >= 5, states
        assert sorted(times)[len(times) * 9 // 10] < 0.05, sorted(times)[-20:]


def test_E24_requests_at_the_moment_of_an_idle_unload_never_fail(models):
    draw, pids = random.Random(24), set()
    with models("-keepalive", "120ms") as server:
        for _ in range(40):
            r = complete(server, "llama", max_tokens=2)
            assert r.status == 200, r.body
            pids.update(m["pid"] for m in server.get("/v1/status").json()["models"]
                        if m.get("pid"))
            time.sleep(0.07 + draw.random() * 0.1)
        assert len(pids) > 3, "the model never left"


def test_G20_arrivals_of_three_models_are_grouped_into_three_swaps(models):
    with models(SHOAL_ENGINE_MIN_RESIDENCY="0s") as server:
        held = concurrent.futures.ThreadPoolExecutor(9)
        first = held.submit(complete, server, "llama", max_tokens=1900, ignore_eos=True)
        wait_until(lambda: server.metric("shoal_running") == 1)
        jobs = []
        for letter in "ABAACABC":
            jobs.append(held.submit(complete, server,
                                    {"A": "llama", "B": "qwen2", "C": "qwen3"}[letter]))
            time.sleep(0.01)
        assert all(j.result().status == 200 for j in [first, *jobs])
        assert server.metric("shoal_swaps_total") <= 3
        held.shutdown()
