"""`shoal drill -live`: a fault on a running server, for chosen agents, and what came of it."""
import concurrent.futures
import json
import subprocess
import threading
import time

import pytest

from conftest import SHOAL
from server import serving
from legs import CONTINUE, DIALECTS, Stub, ask, config_of, read_stream, read_whole

PROBES = ["probes: {free: false}", "deadlines: {first_token: 400ms, gap: 400ms}"]


@pytest.fixture
def world(tmp_path):
    """Two legs of each protocol behind models "one-PROTOCOL" and "two-PROTOCOL"."""
    stubs = [Stub(tmp_path), Stub(tmp_path)]
    legs, routes = {}, []
    for d in DIALECTS:
        for name, stub in zip("ab", stubs):
            legs[f"{name}-{d}"] = {"kind": "upstream", "dialect": d, "continue": CONTINUE[d],
                                   "model": "x/slow=2", "url": f"http://127.0.0.1:{stub.port}"}
        other = DIALECTS[(DIALECTS.index(d) + 1) % 3]
        routes.append({"match": {"model": f"two-{d}"}, "legs": [f"a-{d}", f"b-{other}"]})
        routes.append({"match": {"model": f"one-{d}"}, "legs": [f"a-{d}"]})
    path = tmp_path / "config.yaml"
    path.write_text(config_of(legs, routes, PROBES))
    with serving(tmp_path, "-config", str(path)) as server:
        yield server
    for stub in stubs:
        stub.stop()


def order(server, **plan):
    r = server.post("/v1/admin/drill", {"seconds": 60, **plan})
    assert r.status == 202, r.body
    return r.json()


def end(server):
    assert server.post("/v1/admin/drill", {"seconds": 0}).status == 202
    return server.get("/v1/admin/drill").json()


def ask_as(server, client, model, stream, agent):
    body = {"model": model, "stream": stream, "shoal": {"agent": agent}}
    text = [{"role": "user", "content": "Go on."}]
    body.update({"input": "Go on."} if client == "responses" else {"messages": text})
    if client == "anthropic":
        body["max_tokens"] = 1000
    path = {"ollama": "/api/chat", "openai": "/v1/chat/completions",
            "anthropic": "/v1/messages", "responses": "/v1/responses"}[client]
    return server.post(path, body, timeout=30)


LIVE = ["refuse", "hang_header", "hang_body", "stall", "cut", "cut_late", "garbage", "rate_limit",
        "flap"]


@pytest.mark.parametrize("upstream", DIALECTS)
def test_a_live_fault_is_gone_on_from_and_touches_only_the_agents_it_names(world, upstream):
    whole = read_whole("openai", ask(world, "openai", "two-openai", False).body)

    def run(fault, client, stream, agent):
        r = ask_as(world, client, f"two-{upstream}", stream, agent)
        what = (fault, client, stream, agent, r.status, r.body[-300:])
        assert r.status == 200, what
        got = read_stream(client, r.body) if stream else (read_whole(client, r.body), "ok")
        assert got == (whole, "ok"), what
        if agent == "desk":
            assert r.headers["shoal-leg"] == f"a-{upstream}", what
            assert b"failover" not in r.body, what

    for fault in LIVE:
        order(world, leg=f"a-{upstream}", fault=fault, agents="batch-*")
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for job in [pool.submit(run, fault, c, s, a) for c in DIALECTS for s in (True, False)
                        for a in ("batch-1", "desk")]:
                job.result()
        got = end(world)
        n = 4 if fault == "flap" else 8
        assert (got["hit"], got["failed_over"], got["failed"], got["failed_with_other"],
                got["running"]) == (n, n, 0, 0, 0), (fault, got)
        assert sum(got["legs"].values()) == n and f"a-{upstream}" not in got["legs"]
        waits = fault in ("hang_header", "hang_body", "stall")
        assert (350 if waits else 0) <= got["added_ms"]["p50"] < (1500 if waits else 300), got
    leg = next(x for x in world.get("/v1/routes").json()["legs"] if x["name"] == f"a-{upstream}")
    assert leg["state"] == "closed" and leg["points"] == 0 and leg["last_error"] is None


def test_a_live_fault_without_another_leg_is_told_to_the_client_and_counted(world):
    for fault, status in (("refuse", 502), ("hang_header", 504), ("rate_limit", 429)):
        order(world, leg="a-openai", fault=fault)
        assert ask(world, "openai", "one-openai", True).status == status
        got = end(world)
        assert (got["failed"], got["failed_with_other"], got["failed_over"]) == (1, 0, 0), got
    order(world, leg="a-openai", fault="stall")
    text, how = read_stream("openai", ask(world, "openai", "one-openai", True).body)
    assert text and how == "error" and end(world)["failed"] == 1
    order(world, leg="a-openai", fault="auth")  # never fails over: nothing that another could take
    assert ask(world, "openai", "two-openai", False).status == 502
    assert end(world)["failed"] == 1


def test_a_share_of_the_requests_is_hit_and_the_time_ends(world):
    order(world, leg="a-openai", fault="refuse", share=0.5, seconds=2)
    started = time.monotonic()
    for _ in range(60):
        ask(world, "openai", "two-openai", False, max_tokens=1)
    if time.monotonic() - started < 1.9:
        got = world.get("/v1/admin/drill").json()
        assert 12 < got["hit"] < 48, got
    time.sleep(max(0, 2.1 - (time.monotonic() - started)))
    before = world.get("/v1/admin/drill").json()["hit"]
    assert ask(world, "openai", "two-openai", False).headers["shoal-leg"] == "a-openai"
    assert world.get("/v1/admin/drill").json()["hit"] == before


@pytest.mark.parametrize("plan, want", [
    ({"leg": "nobody", "fault": "cut"}, 'no leg is called "nobody"'),
    ({"leg": "a-openai", "fault": "nope"}, 'no fault is called "nope"'),
    ({"leg": "a-openai", "fault": "crash"}, "every agent of a model"),
    ({"leg": "a-openai", "fault": "cut", "seconds": 3601}, "0 to 3600"),
    ({"leg": "a-openai", "fault": "cut", "share": 0}, "above 0"),
    ({"leg": "a-openai", "fault": "cut", "agents": ""}, "a glob"),
    ({"leg": "a-openai", "fault": "cut", "who": "x"}, "unknown field"),
    ({"leg": 3, "fault": "cut"}, "a string"),
])
def test_a_wrong_order_is_refused_by_name(world, plan, want):
    r = world.post("/v1/admin/drill", plan)
    assert r.status in (400, 404) and want in r.json()["error"]["message"], r.body
    assert world.get("/v1/admin/drill").json() == {}
    order(world, leg="a-openai", fault="cut")
    assert b"still runs" in world.post("/v1/admin/drill", {"leg": "a-openai",
                                                           "fault": "cut"}).body


def live(server, home, *args, env=None):
    return subprocess.run([SHOAL, "drill", "-addr", f"127.0.0.1:{server.port}", *args],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                          env={"HOME": str(home), **(env or {})}, check=False)


def test_the_command_tells_what_agents_saw_and_its_code_is_for_cron(world, tmp_path):
    stop = threading.Event()

    def work(i):
        bad = 0
        while not stop.is_set():
            bad += ask_as(world, "openai", "two-openai", True, f"batch-{i}").status != 200
        return bad

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(work, i) for i in range(4)]
        try:
            text = live(world, tmp_path, "-live", "a-openai", "-fault", "stall", "-for", "2s",
                        "-agents", "batch-*")
            done = live(world, tmp_path, "-live", "a-openai", "-fault", "refuse", "-for", "1s",
                        "-json")
        finally:
            stop.set()
        assert [j.result() for j in jobs] == [0, 0, 0, 0]
    assert text.returncode == 0 and b"with another capable leg 0\n" in text.stdout, text
    assert b"finished by   b-anthropic " in text.stdout
    got = json.loads(done.stdout)
    assert done.returncode == 0 and got["hit"] == got["failed_over"] > 0
    quiet = live(world, tmp_path, "-live", "a-openai", "-fault", "refuse", "-for", "1s")
    assert quiet.returncode == 0 and b"nothing was proved" in quiet.stderr
    for args, want in ((("-live", "x", "-fault", "cut"), b'no leg is called "x"'),
                       (("-live", "a-openai"), b"needs -fault"),
                       (("-fault", "cut"), b"goes with -live")):
        got = live(world, tmp_path, *args)
        assert got.returncode in (1, 2) and want in got.stderr, got


def test_a_drill_where_keys_are_set_needs_the_admins(tmp_path):
    stub = Stub(tmp_path)
    for name in ("fleet", "boss"):
        (tmp_path / name).write_text(f"{name}-key-0123456789\n")
        (tmp_path / name).chmod(0o600)
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {"a": {"kind": "upstream", "dialect": "openai", "model": "x",
               "url": f"http://127.0.0.1:{stub.port}"}}, [{"match": {}, "legs": ["a"]}],
        [*PROBES, "keys:",
         f"  - {{name: fleet, key_file: {tmp_path / 'fleet'}, scopes: [infer, read]}}",
         f"  - {{name: boss, key_file: {tmp_path / 'boss'}, scopes: [admin]}}"]))
    with serving(tmp_path, "-config", str(path)) as server:
        args = ("-live", "a", "-fault", "cut", "-for", "1s")
        for extra in ((), ("-key-file", str(tmp_path / "fleet"))):
            got = live(server, tmp_path, *args, *extra)
            assert got.returncode == 1 and not got.stdout and got.stderr, got
        got = live(server, tmp_path, *args, "-key-file", str(tmp_path / "boss"))
        assert got.returncode == 0, got
    stub.stop()
