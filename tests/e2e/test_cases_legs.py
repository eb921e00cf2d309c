"""Cases of CASES.md G about legs that are asked, or are not: the id is in the name."""
import json
import os
import signal
import time

from server import REAL, children_of, serving, wait_until
from test_cases_engine import words
from legs import DIALECTS, QUIET, WORDS, Stub, ask, config_of, read_whole

MODEL = os.path.basename(REAL).removesuffix(".gguf")


def upstream(port, dialect="openai", **more):
    return {"kind": "upstream", "dialect": dialect, "model": "x",
            "url": f"http://127.0.0.1:{port}", **more}


def test_G03_a_slow_prompt_that_moves_is_no_hang_and_one_that_stands_still_is(tmp_path):
    """A local leg before a cloud, both limits far below what the prompt takes."""
    stub = Stub(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {"desk": {"kind": "engine", "model": MODEL}, "cloud": upstream(stub.port, context=100000)},
        [{"match": {"model": "m"}, "legs": ["desk", "cloud"]}],
        ["deadlines: {first_token: 900ms, gap: 900ms, engine_stall: 2s}", *QUIET]))
    with serving(tmp_path, "-config", str(path), "-model", REAL, "-ctx", "8192", "-batch", "64",
                 "-threads", "1") as server:
        def long(number, count):
            before = time.monotonic()
            r = server.post("/v1/chat/completions", {
                "model": "m", "max_tokens": 2, "temperature": 0,
                "messages": [{"role": "user", "content": words(number, count)}]}, timeout=120)
            assert r.status == 200, r.body
            return r.headers["shoal-leg"], time.monotonic() - before

        count, took = 1500, 0
        while took < 2.5 and count <= 6000:  # until it takes longer than each limit
            leg, took = long(count, count)
            assert leg == "desk", took
            count *= 2
        assert took > 1 and stub.chats() == 0  # a fast machine passes only the first limits
        child, = children_of(server.process.pid)
        os.kill(child, signal.SIGSTOP)
        leg, took = long(1, 1500)
        assert leg == "cloud" and 1 < took < 20
    stub.stop()


def test_G17_a_refusal_costs_the_first_leg_one_hit_and_the_second_one(tmp_path):
    first, second = Stub(tmp_path, "-fault", "status=429"), Stub(tmp_path)
    for d in DIALECTS:
        home = tmp_path / d
        home.mkdir()
        (home / "config.yaml").write_text(config_of(
            {"a": upstream(first.port, d), "b": upstream(second.port, d)},
            [{"match": {}, "legs": ["a", "b"]}], QUIET))
        before = first.chats(), second.chats()
        with serving(home, "-config", str(home / "config.yaml")) as server:
            r = ask(server, d, "m", False)
            assert r.headers["shoal-substituted"] == "from=a; to=b; reason=rate_limit", r.headers
            assert len(read_whole(d, r.body).split()) == WORDS
            assert (first.chats(), second.chats()) == (before[0] + 1, before[1] + 1)
            for _ in range(5):  # the refused one rests: nobody knocks
                assert ask(server, d, "m", False).headers["shoal-leg"] == "b"
            assert (first.chats(), second.chats()) == (before[0] + 1, before[1] + 6)
    first.stop()
    second.stop()


def test_G19_a_session_stays_with_its_leg_as_long_as_the_cache_that_was_asked_for(tmp_path):
    stub = Stub(tmp_path, "-words", "3")
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {"a": upstream(stub.port), "b": upstream(stub.port, "responses")},
        [{"match": {}, "legs": [["a", "b"]]}], QUIET))
    asked = (("openai", {"prompt_cache_key": "s1"}, 1),
             ("openai", {"prompt_cache_key": "s2", "prompt_cache_retention": "24h"}, 24),
             ("responses", {"prompt_cache_key": "s3", "prompt_cache_retention": "24h"}, 24),
             ("openai", {"prompt_cache_key": "s4", "prompt_cache_retention": "in_memory"}, 1))
    for client, more, hours in asked:
        with serving(tmp_path, "-config", str(path)) as server:
            assert ask(server, client, "m", False, **more).status == 200
        kept = tmp_path / ".shoal" / "run" / f"{server.port}.state"
        state = json.loads(kept.read_text())
        (_, leg, until), = state["sessions"]
        assert leg in ("a", "b")
        assert abs(until - state["saved_at"] - hours * 3600_000) < 60_000, (more, state)
    stub.stop()


def test_G23_a_dead_engine_and_a_refused_connection_cost_the_next_request_under_100_ms(tmp_path):
    """The least of three each: a machine with other work answers late whom it asks last."""
    stub = Stub(tmp_path, "-words", "3")
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {"desk": {"kind": "engine", "model": MODEL}, "gone": upstream(1),
         "next": upstream(stub.port, "anthropic")},
        [{"match": {"model": "engine"}, "legs": ["desk", "next"]},
         {"match": {"model": "refused"}, "legs": ["gone", "next"]}], QUIET))

    def timed(server, model):
        before = time.monotonic()
        r = ask(server, "openai", model, False, max_tokens=2)
        return (time.monotonic() - before) * 1000, r.headers["shoal-leg"], r.headers

    with serving(tmp_path, "-config", str(path), "-model", REAL, "-ctx", "1024") as server:
        refused, killed = [], []
        for _ in range(3):  # each crash in a row makes the engine rest longer
            ms, leg, headers = timed(server, "refused")
            assert leg == "next" and headers["shoal-substituted"].endswith("reason=connect")
            refused.append(ms)
            os.kill(server.child(), signal.SIGKILL)
            ms, leg, _ = timed(server, "engine")
            if leg == "next":  # else it was back already
                killed.append(ms)
            wait_until(lambda: timed(server, "engine")[1] == "desk", 60)
        assert min(refused) < 100, refused
        assert killed and min(killed) < 100, killed
    stub.stop()
