"""Billed probes from outside: only to half-open legs that nobody asks, only within the budget."""
import json
import time

from server import serving, wait_until
from legs import CONTINUE, DIALECTS, Stub, ask, config_of


def legs_of(port, dialects=DIALECTS):
    return {f"a-{d}": {"kind": "upstream", "dialect": d, "continue": CONTINUE[d], "model": "x/ok",
                       "url": f"http://127.0.0.1:{port}"} for d in dialects}


def write(path, legs, work, probes):
    """Each leg has a route of its own; the agents' work goes to another upstream."""
    legs = {**legs, "work": {"kind": "upstream", "dialect": "openai", "model": "x/ok",
                             "url": f"http://127.0.0.1:{work.port}"}}
    routes = [{"match": {"model": name}, "legs": [name]} for name in legs]
    path.write_text(config_of(legs, routes, ["breaker: {failures: 1, cooldown: 200ms}",
                                             f"probes: {json.dumps(probes)}"]))


def states(server):
    return {leg["name"]: leg["state"] for leg in server.get("/v1/routes").json()["legs"]}


def open_all(server, legs, status=502):
    for name in legs:
        assert ask(server, "openai", name, False).status == status
    wait_until(lambda: {states(server)[name] for name in legs} == {"half_open"})


def work(server):
    assert ask(server, "openai", "work", False).status == 200
    time.sleep(0.2)
    return True


def test_a_leg_that_came_back_is_closed_by_billed_probes_in_every_protocol(tmp_path):
    gone, other = Stub(tmp_path), Stub(tmp_path)
    legs, path = legs_of(gone.port), tmp_path / "config.yaml"
    write(path, legs, other, {"free": False, "paid": True, "per_hour": 60})
    with serving(tmp_path, "-config", str(path)) as server:
        gone.stop()
        open_all(server, legs)
        back = Stub(tmp_path, "-port", str(gone.port))
        wait_until(lambda: work(server) and
                   {states(server)[name] for name in legs} == {"closed"}, 60)
        assert back.chats() == 2 * len(legs)
        assert b":16" in back.get("/stub/last")
        for name in legs:
            assert server.metric(f'shoal_probes_total{{leg="{name}",kind="paid",result="ok"}}') == 2
        assert server.metric("shoal_probe_tokens_total") > 0
        back.stop()
    other.stop()


def test_probes_end_with_the_budget_and_the_budget_outlives_a_restart(tmp_path):
    bad, other = Stub(tmp_path, "-fault", "status=500"), Stub(tmp_path)
    legs, path = legs_of(bad.port, ["anthropic"]), tmp_path / "config.yaml"
    write(path, legs, other, {"free": False, "paid": True, "per_hour": 2})
    failed = 'shoal_probes_total{leg="a-anthropic",kind="paid",result="failed"}'
    with serving(tmp_path, "-config", str(path)) as server:
        port = server.port
        open_all(server, legs)
        before = bad.chats()
        wait_until(lambda: work(server) and server.metric(failed) == 2, 60)
        assert bad.chats() == before + 2
    with serving(tmp_path, "-config", str(path), "-addr", f"127.0.0.1:{port}") as server:
        end = time.monotonic() + 6  # a probe would have left after 4
        while time.monotonic() < end:
            work(server)
        assert bad.chats() == before + 2
    bad.stop()
    other.stop()


def test_G15_without_requests_nothing_is_billed(tmp_path):
    bad, other = Stub(tmp_path, "-fault", "status=500"), Stub(tmp_path)
    legs, path = legs_of(bad.port, ["openai", "ollama"]), tmp_path / "config.yaml"
    write(path, legs, other, {"free": True, "paid": False})
    with serving(tmp_path, "-config", str(path)) as server:
        open_all(server, legs)
        before = bad.chats()
        end = time.monotonic() + 6
        while time.monotonic() < end:  # paid is off: whatever the fleet does
            work(server)
        assert bad.chats() == before
        assert server.metric("shoal_probe_tokens_total") == 0
    bad.stop()
    other.stop()
