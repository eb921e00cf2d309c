"""The second leg from outside: breakers, waits, restarts, what a reply over two legs is."""
import concurrent.futures
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from conftest import SHOAL
from legs import (CONTINUE, DIALECTS, WORDS, Stub, Upstream, ask, chat_pieces, config_of,
                  read_stream, read_whole, run_stream, stream_of, two_engines)
from server import REAL, Server, children_of, serving, wait_until


# ---------------------------------------------------------------- breakers, limits, waits

def test_G09_G11_G14_an_open_breaker_gets_nothing_and_tells_why(tmp_path):
    stub = Stub(tmp_path, "-fault", "status=500")
    legs = {"cloud": {"kind": "upstream", "dialect": "openai", "model": "x",
                      "url": f"http://127.0.0.1:{stub.port}"},
            "desk": {"kind": "upstream", "dialect": "anthropic", "model": "x/ok",
                     "url": f"http://127.0.0.1:{stub.port}"}}
    other = Stub(tmp_path)
    legs["desk"]["url"] = f"http://127.0.0.1:{other.port}"
    path = tmp_path / "config.yaml"
    path.write_text(config_of(legs, [{"match": {"model": "*"}, "legs": ["cloud", "desk"]}],
                              ["breaker: {failures: 5, cooldown: 1500ms}",
                               "probes: {free: false}"]))
    with serving(tmp_path, "-config", str(path)) as server:
        reasons = []
        for _ in range(20):
            r = ask(server, "openai", "m", False)
            assert r.status == 200
            reasons.append(r.headers["shoal-substituted"].rsplit("=", 1)[1])
        assert reasons == ["http_5xx"] * 5 + ["open"] * 15
        leg = server.get("/v1/routes").json()["legs"][0]
        assert leg["state"] == "open" and leg["reason"] == "http_5xx" and leg["openings"] == 1
        assert leg["since"] < leg["until"] and leg["last_error"]["class"] == "http_5xx"
        assert server.get("/health").json()["status"] == "degraded"
        assert server.metric('shoal_leg_requests_total{leg="cloud"') == 5
        assert server.metric("shoal_failover_total") == 5
        wait_until(lambda: server.get("/v1/routes").json()["legs"][0]["state"] == "half_open")
        ask(server, "openai", "m", False)
        leg = server.get("/v1/routes").json()["legs"][0]
        assert leg["state"] == "open" and leg["openings"] == 2
        r = server.post("/v1/legs/cloud", {"state": "closed"})
        assert r.status == 200 and r.json()["legs"][0]["state"] == "forced_closed"
        assert server.post("/v1/legs/nobody", {"state": "auto"}).status == 404
        assert server.post("/v1/legs/cloud", {"state": "x"}).status == 400
        r = server.post("/v1/legs/cloud", [])
        assert r.status == 400 and "body: an object expected" in r.body.decode()
        table = subprocess.run([SHOAL, "legs", "-addr", f"127.0.0.1:{server.port}"],
                               stdout=subprocess.PIPE, check=True,
                               env={"HOME": str(tmp_path)}).stdout.decode()
        assert re.search(r"^cloud +upstream +forced_closed .*\n +last error: http_5xx, "
                         r"\ds ago: leg cloud: upstream answered 500: ", table, re.M), table
        assert "everything: cloud > desk; now cloud" in table.replace("model=*", "everything")
    stub.stop()
    other.stop()


def test_G12_all_cooling_waits_for_the_earliest_within_its_bound(tmp_path):
    stub, limited = Stub(tmp_path), Stub(tmp_path, "-fault", "retry=60")
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {n: {"kind": "upstream", "dialect": "openai", "model": "x",
             "url": f"http://127.0.0.1:{s.port}"} for n, s in (("a", stub), ("b", limited))},
        [{"match": {"model": "back"}, "legs": ["a"]},
         {"match": {"model": "limited"}, "legs": ["b"]}],
        ["deadlines: {all_open_wait: 20s}", "breaker: {failures: 1, cooldown: 2s}",
         "probes: {free: false}"]))
    with serving(tmp_path, "-config", str(path)) as server:
        stub.stop()
        assert ask(server, "openai", "back", False).status == 502
        again = Stub(tmp_path, "-port", str(stub.port))
        start = time.monotonic()
        assert ask(server, "openai", "back", False).status == 200
        assert 0.1 < time.monotonic() - start < 15
        again.stop()
        ask(server, "openai", "limited", False)
        start = time.monotonic()
        r = ask(server, "openai", "limited", False)
        assert r.status == 429 and time.monotonic() - start < 15  # 60 s are more than the bound
        assert 40 <= int(r.headers["retry-after"]) <= 60
    limited.stop()


def test_breakers_and_sessions_survive_a_restart_and_a_kill(tmp_path):
    bad, good = Stub(tmp_path, "-fault", "status=500"), Stub(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {n: {"kind": "upstream", "dialect": "openai", "model": "x",
             "url": f"http://127.0.0.1:{s.port}"} for n, s in (("a", bad), ("b", good))},
        [{"match": {}, "legs": ["a", "b"]}],
        ["breaker: {cooldown: 1m}", "probes: {free: false}"]))
    with serving(tmp_path, "-config", str(path)) as server:
        port = server.port
        for _ in range(6):
            ask(server, "openai", "m", False)
        assert server.get("/v1/routes").json()["legs"][0]["state"] == "open"
    args = ("-config", str(path), "-addr", f"127.0.0.1:{port}")
    for number in (signal.SIGKILL, signal.SIGTERM):
        start = time.monotonic()
        server = Server(tmp_path, *args)
        leg = server.get("/v1/routes").json()["legs"][0]
        assert time.monotonic() - start < 2
        assert leg["state"] == "open" and leg["reason"] == "http_5xx" and leg["openings"] == 1
        assert "reason=open" in ask(server, "openai", "m", False).headers["shoal-substituted"]
        wait_until(lambda: (tmp_path / ".shoal" / "run" / f"{port}.state").exists())
        server.stop(number)
    (tmp_path / ".shoal" / "run" / f"{port}.state").write_text('{"version":1,')
    with serving(tmp_path, *args) as server:
        assert server.get("/v1/routes").json()["legs"][0]["state"] == "closed"
    bad.stop()
    good.stop()


# ---------------------------------------------------------------- in mid-stream


def test_a_cloud_that_freezes_is_gone_on_with_by_the_local_model(tmp_path):
    homes = [tmp_path / n for n in ("cloud", "front")]
    for h in homes:
        h.mkdir()
    with serving(homes[0], "-model", REAL) as cloud:
        name = cloud.model()
        path = homes[1] / "config.yaml"
        path.write_text(config_of(
            {"cloud": {"kind": "upstream", "dialect": "openai", "url": cloud.url, "model": name,
                       "continue": "shoal"},
             "desk": {"kind": "engine", "model": name}},
            [{"match": {"model": "gpt-*"}, "legs": ["cloud", "desk"]}],
            ["deadlines: {gap: 700ms}"]))
        with serving(homes[1], "-config", str(path), "-model", REAL) as front:
            whole = run_stream(front, name, "a", 60, temperature=0)[0]
            seen = []

            def freeze():
                seen.append(1)
                if len(seen) == 12:
                    for pid in [cloud.process.pid, *children_of(cloud.process.pid)]:
                        os.kill(pid, signal.SIGSTOP)

            try:
                text, end, legs = run_stream(front, "gpt-x", "a", 60, freeze, temperature=0)
            finally:
                for pid in [cloud.process.pid, *children_of(cloud.process.pid)]:
                    os.kill(pid, signal.SIGCONT)
            assert text == whole and end in ("stop", "length")
            assert [leg["leg"] for leg in legs] == ["cloud", "desk"]
            assert legs[0]["reason"] == "stall"


def test_kill_9_of_an_engine_under_streams_loses_and_repeats_nothing(tmp_path):
    path = two_engines(tmp_path)
    with serving(tmp_path, "-config", str(path), "-model", "one", "-model", "two") as server:
        wait_until(lambda: len([m for m in server.get("/v1/status").json()["models"]
                                if m["state"] == "loaded"]) == 2, 60)
        agents = [f"agent-{i}" for i in range(6)]

        def run(model, on_text=None):
            with concurrent.futures.ThreadPoolExecutor(len(agents)) as pool:
                jobs = [pool.submit(run_stream, server, model, a, 24, on_text, temperature=1,
                                    seed=7) for a in agents]
                return [j.result() for j in jobs]

        whole = [t for t, _, _ in run("one")]
        def kill_of(names):
            """At the first text the first child, thirty pieces later the next one."""
            left, pieces = list(names), []

            def kill():
                pieces.append(1)
                if left and len(pieces) > 30 * (len(names) - len(left)):
                    name = left.pop(0)
                    rows = server.get("/v1/status").json()["models"]
                    os.kill(next(m["pid"] for m in rows if m["name"] == name), signal.SIGKILL)
            return left, kill

        for model, names in (("both", ["one"]), ("alone", ["one"]), ("both", ["one", "two"])):
            wait_until(lambda: len([m for m in server.get("/v1/status").json()["models"]
                                    if m["state"] == "loaded"]) == 2, 60)
            left, kill = kill_of(names)
            got = run(model, kill)
            assert not left and [t for t, _, _ in got] == whole, (model, names)
            assert all(end in ("stop", "length") for _, end, _ in got)
            assert "the engine child ended: signal 9 (Killed)" in server.errors()
            assert "no reason known" not in server.errors()
            if model == "both":
                assert any(legs and [x["leg"] for x in legs] == ["one", "two"]
                           for _, _, legs in got)


def test_kill_9_loses_no_logprobs_of_letters_that_were_not_whole(tmp_path):
    """Replies of nothing but first bytes of letters: each is shown, as U+FFFD and with its entry,
    when the next one is there, so that one is held back whenever the child may die."""
    halves = {"142": 100}
    with serving(tmp_path, "-model", REAL) as server:
        wait_until(lambda: server.get("/ready").json()["state"] == "loaded", 60)
        name = server.model()

        def run(kill_at=None):
            text, entries, seen = [""] * 2, [[] for _ in range(2)], 0
            for event in stream_of(server, name, "a", 40, temperature=1, seed=11, logprobs=True,
                                   top_logprobs=2, n=2, logit_bias=halves):
                if not event.startswith("data: ") or event == "data: [DONE]":
                    continue
                for choice in json.loads(event[len("data: "):]).get("choices", []):
                    piece = choice["delta"].get("content") or ""
                    text[choice["index"]] += piece
                    entries[choice["index"]] += (choice["logprobs"] or {}).get("content") or []
                    seen += bool(piece)
                    if piece and seen == kill_at:
                        os.kill(server.child(), signal.SIGKILL)
            return text, entries

        whole = run()
        assert {tuple(e["bytes"]) for row in whole[1] for e in row} == {(0xc3,)}
        assert [len(row) for row in whole[1]] == [40] * 2
        for kill_at in (12, 31):
            child = server.child()
            got = run(kill_at)
            assert [len(row) for row in got[1]] == [40] * 2
            assert got == whole, kill_at
            wait_until(lambda: server.get("/ready").json()["state"] == "loaded", 60)
            assert server.child() != child


def test_E06_E25_an_engine_that_stands_still_is_called_wedged_and_gone_on_from(tmp_path):
    path = two_engines(tmp_path)
    path.write_text(path.read_text() + "deadlines: {engine_stall: 3s}\n")
    with serving(tmp_path, "-config", str(path), "-model", "one", "-model", "two") as server:
        wait_until(lambda: len([m for m in server.get("/v1/status").json()["models"]
                                if m["state"] == "loaded"]) == 2, 60)
        whole = run_stream(server, "one", "a", 120, temperature=0)[0]
        stopped = []

        def stop():
            if not stopped:
                rows = server.get("/v1/status").json()["models"]
                stopped.append(next(m["pid"] for m in rows if m["name"] == "one"))
                os.kill(stopped[0], signal.SIGSTOP)

        text, end, legs = run_stream(server, "both", "a", 120, stop, temperature=0)
        assert stopped and (text, end) == (whole, "length")
        assert server.metric('shoal_engine_restarts_total{model="one",reason="wedged"}') == 1
        assert server.metric('shoal_engine_restarts_total{model="one",reason="crash"}') == 0
        assert [(x["leg"], x["reason"]) for x in legs] == [("one", "engine_wedged"), ("two", None)]
        wait_until(lambda: len([m for m in server.get("/v1/status").json()["models"]
                                if m["state"] == "loaded"]) == 2, 60)


def test_the_log_of_a_reply_over_two_legs_counts_what_both_said(tmp_path):
    stub = Stub(tmp_path)
    path = two_engines(tmp_path)
    path.write_text(config_of(
        {"one": {"kind": "engine", "model": "one"},
         "desk": {"kind": "upstream", "dialect": "openai", "model": "x",
                  "continue": "final_message", "url": f"http://127.0.0.1:{stub.port}"}},
        [{"match": {"model": "both"}, "legs": ["one", "desk"]}],
        [f"sources: {{dirs: [{tmp_path / 'models'}]}}", "engine: {ctx: 2048}"]))
    with serving(tmp_path, "-config", str(path), "-model", "one") as server:
        wait_until(lambda: server.get("/v1/status").json()["models"][0]["state"] == "loaded", 60)
        killed = []

        def kill():
            if not killed:
                killed.append(server.get("/v1/status").json()["models"][0]["pid"])
                os.kill(killed[0], signal.SIGKILL)

        _, end, legs = run_stream(server, "both", "a", 400, kill, temperature=0)
        assert [leg["leg"] for leg in legs] == ["one", "desk"] and end
        out = sum(leg["output_tokens"] for leg in legs)
        line = [n for n in server.errors().splitlines() if 'leg="one>desk"' in n]
        assert len(line) == 1 and f"out={out} " in line[0], (out, line, server.errors()[-600:])
    stub.stop()


def test_fleet_of_150_agents_on_a_cloud_that_hangs_at_a_random_moment(tmp_path):
    cloud, desk = Stub(tmp_path, "-gap", "20"), Stub(tmp_path, "-gap", "2")
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {"cloud": {"kind": "upstream", "dialect": "openai", "model": "x/ok", "max_inflight": 200,
                   "url": f"http://127.0.0.1:{cloud.port}"},
         "desk": {"kind": "upstream", "dialect": "anthropic", "model": "x/ok",
                  "continue": "prefill", "max_inflight": 200,
                  "url": f"http://127.0.0.1:{desk.port}"}},
        [{"match": {"model": "gpt-*"}, "legs": ["cloud", "desk"]},
         {"match": {"model": "desk"}, "legs": ["desk"]}],
        ["deadlines: {first_token: 1s, gap: 1s}"]))
    with serving(tmp_path, "-config", str(path)) as server:
        whole = run_stream(server, "desk", "a", 1000)[0]

        def run(i):
            time.sleep(i * 0.004)
            return run_stream(server, "gpt-x", f"agent-{i}", 1000)

        with concurrent.futures.ThreadPoolExecutor(150) as pool:
            jobs = [pool.submit(run, i) for i in range(150)]
            time.sleep(0.45)
            os.kill(cloud.process.pid, signal.SIGSTOP)
            results = [j.result() for j in jobs]
        os.kill(cloud.process.pid, signal.SIGCONT)
        assert all(text == whole and end == "stop" for text, end, _ in results)
        assert server.metric("shoal_failover_total") > 100
        assert server.get("/v1/routes").json()["legs"][0]["state"] in ("open", "half_open")
        assert server.requests() == 0
    cloud.stop()
    desk.stop()


# ---------------------------------------------------------------- bad configuration

@pytest.mark.parametrize("text, want", [
    ("legs: {a: {dialect: openai}}", "c.yaml:1:8: legs.a: url: required"),
    ("legs: {a: {dialect: openai, url: ftp://x}}", 'got "ftp://x"'),
    ("legs: {a: {dialect: openai, url: 'http://u:p@x'}}", "without user"),
    ("legs: {a: {dialect: openai, url: 'http://x:99999'}}", "a port 1..65535 expected"),
    ("legs: {a: {dialect: openai, url: 'http://x:80a/b'}}", "a port 1..65535 expected"),
    ("legs: {a: {dialect: openai, url: 'http://[::1]x'}}", "a port 1..65535 expected"),
    ("legs: {a: {dialect: openai, url: 'http://x:'}}", "a port 1..65535 expected"),
    ("legs: {a: {dialect: grpc, url: 'http://x'}}", 'got "grpc"'),
    ("legs: {a: {dialect: openai, url: 'http://x', key_file: /nowhere}}", "/nowhere"),
    ("legs: {a: {dialect: openai, url: 'http://x', key_env: NOPE}}", "NOPE is not set"),
    ("legs: {a: {dialect: openai, url: 'http://x', continue: prefill}}", "has no prefill"),
    ("legs: {a: {dialect: openai, url: 'http://x'}, b: {dialect: openai, url: 'http://X'}}",
     "as leg a"),
    ("legs: {a: {kind: engine}}", "model: required"),
    ("legs: {a: {kind: engine, model: m, deadlines: {total: 5s}}}", "only an upstream has one"),
    ("legs: {a: {dialect: openai, url: 'http://127.0.0.1:11500'}}", "a cycle"),
    ("routes: [{legs: [nobody]}]", 'c.yaml:1:18: routes[0].legs: there is no leg "nobody"'),
    ("routes: [{legs: []}]", "at least one leg"),
    ("routes: [{legs: ['local:m', 'local:m']}]", "stands twice"),
    ("routes: [{match: {modle: x}, legs: ['local:m']}]", 'routes[0].match.modle: unknown field'),
    ("routes: [{legs: ['local:m'], shadow: x}]", 'there is no leg "x"'),
    ("legs: {a: {kind: upstream, dialect: openai, url: 'http://127.0.0.1:9'}}\n"
     "routes: [{legs: [a], shadow: a}]", "a is an upstream: an engine leg can be kept warm"),
])
def test_a_wrong_leg_or_route_is_refused_by_name(shoal, home, text, want):
    path = home / "c.yaml"
    path.write_text(text + "\n")
    done = shoal("serve", "-config", str(path), "-dry-run")
    assert done.returncode == 1 and want in done.stderr, done.stderr


def test_every_problem_of_legs_and_routes_is_told_at_once_with_its_place(shoal, home):
    path = home / "c.yaml"
    path.write_text('''\
legs:
  a: {dialect: grpc, url: ftp://x, deadlines: {gap: soon, gape: 1s}}
  b: {kind: engine}
  c: text
routes:
  - legs: [a, nobody, [b, no-one]]
  - match: {modle: x}
    legs: []
  - match: {model: x}
''')
    done = shoal("serve", "-config", str(path), "-dry-run")
    assert done.returncode == 1
    told = [line.removeprefix(f"{path}:") for line in done.stderr.splitlines()]
    wants = ['2:7: legs.a.dialect: anthropic, ', '2:22: legs.a.url: http://HOST ',
             '2:48: legs.a.deadlines.gap: ', '2:59: legs.a.deadlines.gape: unknown field',
             '3:3: legs.b: model: required', '4:3: legs.c: a map expected, got a text',
             '6:15: routes[0].legs: there is no leg "nobody"',
             '6:27: routes[0].legs: there is no leg "no-one"',
             '7:13: routes[1].match.modle: unknown field',
             '8:5: routes[1].legs: at least one leg', '9:5: routes[2]: legs: required']
    assert len(told) == len(wants), done.stderr
    for line, want in zip(told, wants):
        assert line.startswith(want), (line, want)
    path.write_text("legs: {" + ", ".join(f"a{i}: {{kind: x}}" for i in range(25)) + "}\n")
    done = shoal("serve", "-config", str(path), "-dry-run")
    assert done.stderr.count("legs.a") == 20 and done.stderr.endswith("and 5 more\n"), done.stderr


# ---------------------------------------------------------------- the rehearsal

def test_drill_passes_and_says_so(shoal):
    done = shoal("drill", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\n104 passed, 0 failed\n")
    rows = json.loads(shoal("drill", "-json", "-faults", "stall,auth", "-dialects", "anthropic",
                            timeout=60).stdout)
    assert rows["passed"] == 4 and rows["failed"] == 0
    assert {(c["fault"], c["legs"]) for c in rows["cells"]} == {
        ("stall", 1), ("stall", 2), ("auth", 1), ("auth", 2)}
    assert shoal("drill", "-faults", "nope").returncode == 2


def test_legs_without_a_server_says_so(shoal):
    done = shoal("legs", "-addr", "127.0.0.1:1")
    assert (done.returncode, done.stderr) == (1, "shoal: no shoal server at 127.0.0.1:1\n")


def test_G18_a_session_stays_with_its_leg_among_equals(tmp_path):
    stubs = [Stub(tmp_path) for _ in range(3)]
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {f"leg{i}": {"kind": "upstream", "dialect": "openai", "model": "x",
                     "url": f"http://127.0.0.1:{s.port}"} for i, s in enumerate(stubs)},
        [{"match": {}, "legs": [["leg0", "leg1", "leg2"]]}], ["probes: {free: false}"]))
    with serving(tmp_path, "-config", str(path)) as server:
        seen = {}
        for session in range(30):
            legs = {ask(server, "openai", "m", False,
                        prompt_cache_key=f"s{session}").headers["shoal-leg"] for _ in range(4)}
            assert len(legs) == 1, (session, legs)
            seen[session] = legs.pop()
        assert set(seen.values()) == {"leg0", "leg1", "leg2"}
        server.post("/v1/legs/leg0", {"state": "open"})
        for session, leg in seen.items():
            now = ask(server, "openai", "m", False,
                      prompt_cache_key=f"s{session}").headers["shoal-leg"]
            assert now != "leg0" and (leg == "leg0" or now == leg)
            seen[session] = now
        server.post("/v1/legs/leg0", {"state": "auto"})
        for session, leg in seen.items():  # re-pinned: it stays where its prefix now is
            assert ask(server, "openai", "m", False,
                       prompt_cache_key=f"s{session}").headers["shoal-leg"] == leg
    for s in stubs:
        s.stop()


def test_a_leg_may_be_asked_for_by_name_and_a_reload_swaps_them(tmp_path):
    first, second = Stub(tmp_path, "-seed", "1"), Stub(tmp_path, "-seed", "2")
    path = tmp_path / "config.yaml"

    def config(names):
        path.write_text(config_of(
            {n: {"kind": "upstream", "dialect": "openai", "model": "x",
                 "url": f"http://127.0.0.1:{s.port}"}
             for n, s in (("a", first), ("b", second))},
            [{"match": {}, "legs": names}], ["probes: {free: false}"]))

    config(["a", "b"])
    with serving(tmp_path, "-config", str(path)) as server:
        assert ask(server, "openai", "m", False).headers["shoal-leg"] == "a"
        assert ask(server, "openai", "m", False,
                   shoal={"leg": "b"}).headers["shoal-leg"] == "b"
        assert ask(server, "openai", "m", False, shoal={"leg": "c"}).status == 400
        config(["b", "a"])
        assert server.post("/v1/admin/reload", {}).status == 200
        assert ask(server, "openai", "m", False).headers["shoal-leg"] == "b"
        config(["b", "nobody"])
        r = server.post("/v1/admin/reload", {})
        assert r.status == 400 and b"nobody" in r.body
        assert ask(server, "openai", "m", False).headers["shoal-leg"] == "b"
    first.stop()
    second.stop()


@pytest.mark.parametrize("upstream", ["openai", "ollama"])
def test_a_limit_of_tokens_counts_over_all_legs_once(tmp_path, upstream):
    """What the first leg said is taken off once, not twice (BEHAVIOUR 9.6)."""
    first, second = Stub(tmp_path, "-fault", "stall=12"), Stub(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {n: {"kind": "upstream", "dialect": upstream, "model": "x", "deadlines": {"gap": "1s"},
             "continue": CONTINUE[upstream], "url": f"http://127.0.0.1:{s.port}"}
         for n, s in (("a", first), ("b", second))},
        [{"match": {}, "legs": ["a", "b"]}], ["probes: {free: false}"]))
    with serving(tmp_path, "-config", str(path)) as server:
        r = json.loads(ask(server, "openai", "m", False, max_tokens=20).body)
        assert len(r["choices"][0]["message"]["content"].split()) == 20, r
        assert r["choices"][0]["finish_reason"] == "length" and len(r["shoal"]["legs"]) == 2
    first.stop()
    second.stop()


def test_a_key_of_ours_goes_to_no_upstream(tmp_path):
    stub, key = Stub(tmp_path), "fleet-key-0123456789"
    (tmp_path / "key").write_text(key + "\n")
    (tmp_path / "key").chmod(0o600)
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {"pass": {"kind": "upstream", "dialect": "openai", "model": "x", "auth": "passthrough",
                  "url": f"http://127.0.0.1:{stub.port}"}},
        [{"match": {}, "legs": ["pass"]}],
        ["probes: {free: false}", "keys:", f"  - {{name: fleet, key_file: {tmp_path / 'key'}, "
         "scopes: [infer]}"]))
    body = {"model": "m", "messages": [{"role": "user", "content": "Go on."}]}
    with serving(tmp_path, "-config", str(path)) as server:
        for theirs, status in (("sk-of-the-client", 200), (key, 400)):
            for header in ({"Authorization": f"Bearer {theirs}"}, {"x-api-key": theirs}):
                r = server.post("/v1/chat/completions", body,
                                headers={**header, "Shoal-Key": key})
                assert r.status == status, r.body
    stub.stop()


def test_a_reload_under_streams_of_upstreams_ends_none_of_them(tmp_path):
    stub = Stub(tmp_path)
    path = tmp_path / "config.yaml"

    def config(legs, route):
        path.write_text(config_of(
            {n: {"kind": "upstream", "dialect": d, "continue": CONTINUE[d], "model": "x/slow=40",
                 "url": f"http://127.0.0.1:{stub.port}"} for n, d in legs.items()},
            [{"match": {"model": "m"}, "legs": route}], ["probes: {free: false}"]))

    legs = {f"leg-{d}": d for d in DIALECTS}
    for first in legs:
        config(legs, [first, *[n for n in legs if n != first]])
        with serving(tmp_path, "-config", str(path)) as server, \
                concurrent.futures.ThreadPoolExecutor(4) as pool:
            whole = read_whole("openai", ask(server, "openai", "m", False).body)
            jobs = {d: pool.submit(ask, server, d, "m", True) for d in DIALECTS}
            time.sleep(0.4)
            assert not any(j.done() for j in jobs.values())
            server.process.send_signal(signal.SIGHUP)  # the same once more
            time.sleep(0.2)
            last = [n for n in legs if n != first][0]
            config({last: legs[last]}, [last])  # and one without the leg that speaks
            assert server.post("/v1/admin/reload", {}).status == 200
            assert not any(j.done() for j in jobs.values())
            for d, job in jobs.items():
                assert read_stream(d, job.result().body) == (whole, "ok"), (first, d)
            assert ask(server, "openai", "m", False).headers["shoal-leg"] == last
            assert server.process.poll() is None
    stub.stop()


def test_what_a_request_of_the_old_configuration_brings_counts_in_the_new_one(tmp_path):
    hang, slow, good = (Stub(tmp_path, "-fault", f) for f in ("hang_body", "slow=30", "slow=0"))
    path = tmp_path / "config.yaml"

    def config(ports, gap):
        path.write_text(config_of(
            {n: {"kind": "upstream", "dialect": "openai", "model": "x", "max_inflight": 1,
                 "url": f"http://127.0.0.1:{p}"} for n, p in ports.items()},
            [{"match": {"model": "h"}, "legs": ["hang", "good"]},
             {"match": {"model": "s"}, "legs": ["slow", "good"]}],
            ["probes: {free: false}", "breaker: {failures: 3, cooldown: 1m}",
             f"deadlines: {{first_token: 900ms, gap: {gap}s}}"]))

    def leg(server, name):
        rows = server.get("/v1/routes").json()["legs"]
        return next(r for r in rows if r["name"] == name)

    ports = {"hang": hang.port, "slow": slow.port, "good": good.port}
    config(ports, 5)
    with serving(tmp_path, "-config", str(path)) as server, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(ask, server, "openai", m, True) for m in ("h", "s")]
        wait_until(lambda: leg(server, "slow")["inflight"] + leg(server, "hang")["inflight"] == 2)
        for gap in (6, 7):  # twice: between the old and the new lies one that has no request
            config(ports, gap)
            assert server.post("/v1/admin/reload", {}).status == 200
        assert leg(server, "slow")["inflight"] == 1  # it still takes the leg's only place
        assert ask(server, "openai", "s", False).headers["shoal-substituted"].endswith("=busy")
        for job in jobs:
            assert read_stream("openai", job.result().body)[1] == "ok"
        row = leg(server, "hang")
        assert (row["state"], row["reason"], row["inflight"]) == ("open", "hang_first", 0), row
        assert row["last_error"]["class"] == "hang_first"
        assert leg(server, "slow")["inflight"] == 0
        assert server.metric('shoal_leg_requests_total{leg="slow"') == 1
        assert server.metric('shoal_leg_requests_total{leg="hang"') == 1
        config({**ports, "hang": good.port, "good": hang.port}, 7)  # the names change places
        assert server.post("/v1/admin/reload", {}).status == 200
        assert leg(server, "hang")["state"] == "closed"
        assert ask(server, "openai", "h", False).headers["shoal-leg"] == "hang"
    for s in (hang, slow, good):
        s.stop()


def going_on(tmp_path, first, second):
    """Behind leg a comes leg b, and the operator says of both that they go on with a message."""
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {n: {"kind": "upstream", "dialect": "openai", "model": "x", "continue": "final_message",
             "url": f"http://127.0.0.1:{s.port}"} for n, s in (("a", first), ("b", second))},
        [{"match": {}, "legs": ["a", "b"]}], ["probes: {free: false}"]))
    return serving(tmp_path, "-config", str(path))


@pytest.mark.parametrize("cut", [44, 88, 132, 137])
def test_G06_a_refrain_loses_nothing_when_another_leg_sings_on(tmp_path, cut):
    """What comes next may read as what was said: that is no repetition by the leg."""
    song = "la la la la la, and then the whole of it:\n\n" * 6
    first = Upstream(lambda body: chat_pieces(song[:cut], None))
    second = Upstream(lambda body: chat_pieces(song[len(body["messages"][-1]["content"]):]))
    with going_on(tmp_path, first, second) as server:
        for stream in (True, False):
            r = ask(server, "openai", "m", stream)
            text = read_stream("openai", r.body)[0] if stream else read_whole("openai", r.body)
            assert text == song
    assert second.asked[0][1]["continue_final_message"] is True
    assert second.asked[0][1]["messages"][-1] == {"role": "assistant", "content": song[:cut]}
    first.stop()
    second.stop()


def test_G06_a_leg_that_begins_anew_repeats_nothing_and_is_asked_once(tmp_path):
    """`continue` is the operator's word; an upstream that ignores it answers from the start."""
    story = "One day the fox went out, and saw a hen that sat on a wall by the road. She spoke."
    first = Upstream(lambda body: chat_pieces(story[:70], None))
    second = Upstream(lambda body: chat_pieces(story))
    with going_on(tmp_path, first, second) as server:
        assert read_stream("openai", ask(server, "openai", "m", True).body) == (story, "ok")
        assert "leg b: it was asked to go on and began anew" in server.errors()
        for _ in range(2):  # from now on as a leg that cannot
            assert read_stream("openai", ask(server, "openai", "m", True).body) == (
                story[:70], "error")
    assert [b["messages"][-1]["role"] for _, b, _ in second.asked] == ["assistant"]
    first.stop()
    second.stop()


def test_a_leg_that_leads_back_here_is_seen_under_any_name(tmp_path):
    stub = Stub(tmp_path)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    path = tmp_path / "config.yaml"
    leg = {"kind": "upstream", "dialect": "openai", "model": "m"}
    path.write_text(config_of(
        {"self": {**leg, "url": f"http://localhost:{port}"},
         "lone": {**leg, "model": "alone", "url": f"http://127.1:{port}"},
         "desk": {**leg, "url": f"http://127.0.0.1:{stub.port}"}},
        [{"match": {"model": "m"}, "legs": ["self", "desk"]},
         {"match": {"model": "alone"}, "legs": ["lone"]}], ["probes: {free: false}"]))
    with serving(tmp_path, "-config", str(path), "-addr", f"127.0.0.1:{port}") as server:
        r = ask(server, "openai", "m", False)
        assert r.status == 200 and len(read_whole("openai", r.body).split()) == WORDS
        assert server.metric('shoal_leg_requests_total{leg="self",model="m",class="http_5xx"') == 1
        assert r.headers["shoal-substituted"] == "from=self; to=desk; reason=http_5xx"
        assert server.metric('shoal_leg_requests_total{leg="desk",model="m",class="ok"') == 1
        assert server.metric('shoal_leg_requests_total{leg="desk"') == 1  # no blame for a loop
        r = ask(server, "openai", "alone", False)
        assert r.status == 502 and b"came through this server already" in r.body, r.body
    stub.stop()


def test_a_leg_beyond_its_own_total_is_gone_on_from(tmp_path):
    """The request's own total is another thing: it ends the reply and asks nobody else."""
    stub = Stub(tmp_path)
    url = f"http://127.0.0.1:{stub.port}"
    path = tmp_path / "config.yaml"
    slow = {"kind": "upstream", "dialect": "openai", "model": "x/slow=50", "url": url,
            "continue": "final_message"}
    path.write_text(config_of(
        {"slow": {**slow, "deadlines": {"total": "600ms"}},
         "patient": {**slow, "model": "y/slow=50"},
         "next": {**slow, "model": "x/ok"}},
        [{"match": {"model": "m"}, "legs": ["slow", "next"]},
         {"match": {"model": "p"}, "legs": ["patient", "next"]}], ["probes: {free: false}"]))
    with serving(tmp_path, "-config", str(path)) as server:
        whole = read_whole("openai", ask(server, "openai", "p", False).body)
        begun = time.monotonic()
        r = ask(server, "openai", "m", True)
        assert 0.5 < time.monotonic() - begun < 1.9  # 40 words would take two seconds
        assert read_stream("openai", r.body) == (whole, "ok")
        assert (b'shoal_leg_requests_total{leg="slow",model="x/slow=50",class="stall"} 1'
                in server.get("/metrics").body)
        text, _ = read_stream("openai", ask(server, "openai", "m", True,
                                            shoal={"deadline_ms": 300}).body)
        assert text and whole.startswith(text) and text != whole
    stub.stop()
