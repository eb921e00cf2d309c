"""What /v1/routes, /v1/status and `shoal legs` tell (BEHAVIOUR 5.11, 2.2): each field, with its
type, in each state that a test can bring about."""
import json
import subprocess
import time

import pytest

from conftest import SHOAL
from legs import Stub, ask, config_of
from server import TINY, serving

TEXT, NUMBER, NONE = str, (int, float), type(None)
LEG = {"name": TEXT, "kind": TEXT, "dialect": (TEXT, NONE), "model": (TEXT, NONE), "state": TEXT,
       "reason": (TEXT, NONE), "since": (*NUMBER, NONE), "until": (*NUMBER, NONE),
       "points": NUMBER, "openings": NUMBER, "window": {"requests": NUMBER, "failures": NUMBER},
       "ttft_ms": {"p50": NUMBER, "p95": NUMBER}, "inflight": NUMBER, "last_ok": (*NUMBER, NONE),
       "last_error": ({"at": NUMBER, "class": TEXT, "text": TEXT}, NONE)}
ROUTE = {"match": {"model": (TEXT, NONE), "agent": (TEXT, NONE), "dialect": (TEXT, NONE),
                   "key": (TEXT, NONE)},
         "legs": list, "active": (TEXT, NONE), "shadow": (TEXT, NONE)}
MODEL = {"name": TEXT, "kind": TEXT, "state": TEXT, "size": NUMBER, "size_vram": NUMBER,
         "context": NUMBER, "slots": NUMBER, "running": NUMBER, "queued": NUMBER, "pages": NUMBER,
         "prefill_tps": NUMBER, "decode_tps": NUMBER, "last_progress_ms": NUMBER,
         "restarts": NUMBER, "expires_at": NUMBER}
STATUS = {"health": {"status": TEXT, "reasons": list}, "uptime_s": NUMBER,
          "config": {"path": (TEXT, NONE), "sha256": (TEXT, NONE), "loaded_at": NUMBER},
          "models": list, "queue": NUMBER, "connections": NUMBER, "ingress_bytes": NUMBER,
          "agents": NUMBER, "legs": list, "routes": list}


def check(shape, value, where):
    """Every member of shape is there with its type; what more there is may be."""
    options = shape if isinstance(shape, tuple) else (shape,)
    nested = next((o for o in options if isinstance(o, dict)), None)
    if isinstance(value, dict) and nested:
        for key, inner in nested.items():
            assert key in value, f"{where}.{key} is missing"
            check(inner, value[key], f"{where}.{key}")
        return
    kinds = tuple(o for o in options if isinstance(o, type))
    assert isinstance(value, kinds) and not isinstance(value, bool), f"{where}: {value!r}"


@pytest.fixture
def world(tmp_path):
    """Legs that answered, failed, are limited, refused, forced, and one that nobody has asked."""
    stubs = {"good": Stub(tmp_path, "-fault", "prefill=2"),  # a first token after 50 ms or more
             "bad": Stub(tmp_path, "-fault", "status=500"),
             "limited": Stub(tmp_path, "-fault", "retry=60"),
             "refused": Stub(tmp_path, "-fault", "status=401"), "forced": Stub(tmp_path),
             "unused": Stub(tmp_path)}
    legs = {n: {"kind": "upstream", "dialect": "openai", "model": "x",
                "url": f"http://127.0.0.1:{s.port}"} for n, s in stubs.items()}
    routes = [{"match": {"model": n}, "legs": [n, "good"]} for n in stubs if n != "good"]
    routes.append({"match": {"agent": "batch-*"}, "legs": ["unused", ["good", "forced"]]})
    path = tmp_path / "config.yaml"
    path.write_text(config_of(legs, routes, ["breaker: {failures: 2, cooldown: 5m}",
                                             "deadlines: {all_open_wait: 0}",
                                             "probes: {free: false}"]))
    with serving(tmp_path, "-config", str(path)) as server:
        for name in ("bad", "bad", "limited", "refused"):
            ask(server, "openai", name, False, user="lead")
        assert server.post("/v1/legs/forced", {"state": "open"}).status == 200
        yield server
    for s in stubs.values():
        s.stop()


def test_G14_every_field_of_routes_and_status_is_told_in_every_state(world):
    now = time.time() * 1000
    routes, status = world.get("/v1/routes").json(), world.get("/v1/status").json()
    check(STATUS, status, "status")
    for body in (routes, status):
        rows = {x["name"]: x for x in body["legs"]}
        for leg in body["legs"]:
            check(LEG, leg, leg["name"])
        for i, route in enumerate(body["routes"]):
            check(ROUTE, route, f"route {i}")
        got = {n: (x["state"], x["reason"]) for n, x in rows.items()}
        assert got == {"good": ("closed", None), "bad": ("open", "http_5xx"),
                       "limited": ("cooling", "rate_limit"),
                       "refused": ("misconfigured", "auth"), "forced": ("forced_open", None),
                       "unused": ("closed", None)}
        bad, limited, good = rows["bad"], rows["limited"], rows["good"]
        assert bad["openings"] == 1 and bad["window"] == {"requests": 2, "failures": 2}
        assert abs(bad["since"] - now) < 60000 and 200000 < bad["until"] - now < 400000
        assert 20000 < limited["until"] - now < 61000
        assert abs(bad["last_error"]["at"] - now) < 60000
        assert (bad["last_error"]["class"], bad["last_ok"]) == ("http_5xx", None)
        assert good["last_error"] is None and abs(good["last_ok"] - now) < 60000
        assert 50 <= good["ttft_ms"]["p50"] <= good["ttft_ms"]["p95"] and good["inflight"] == 0
        assert [r["active"] for r in body["routes"]] == ["good", "good", "refused", "good",
                                                         "unused", "unused"]
        assert body["routes"][-1]["legs"] == ["unused", ["good", "forced"]]
        assert body["routes"][-1]["match"] == {"model": None, "agent": "batch-*",
                                               "dialect": None, "key": None}
    assert status["health"]["status"] == "degraded" and status["agents"] == 1
    assert status["config"]["path"].endswith("config.yaml")
    assert len(status["config"]["sha256"]) == 64


def test_every_field_of_a_loaded_model_is_told(home):
    with serving(home, "-model", TINY) as server:
        for model in server.get("/v1/status").json()["models"]:
            check(MODEL, model, model["name"])
            assert model["context"] and model["slots"] and model["size"] and model["pages"]


def test_legs_prints_each_column_as_a_table_as_json_and_again(world, tmp_path):
    def run(*args):
        return subprocess.Popen([SHOAL, "legs", "-addr", f"127.0.0.1:{world.port}", *args],
                                stdout=subprocess.PIPE, env={"HOME": str(tmp_path)}, text=True)

    table = run().communicate(timeout=20)[0].splitlines()
    assert table[0].split() == ["LEG", "KIND", "STATE", "SINCE", "UNTIL", "REASON", "FIRST-TOKEN",
                                "INFLIGHT", "OPENINGS", "MODEL"]
    bad = next(line for line in table if line.startswith("bad ")).split()
    assert bad[1:3] == ["upstream", "open"] and bad[5] == "http_5xx" and bad[-2:] == ["1", "x"]
    assert bad[3].endswith("s") and bad[4].endswith(("s", "m")), bad
    assert "agent=batch-*: unused > (good = forced); now unused" in table
    assert json.loads(run("-json").communicate(timeout=20)[0]).keys() == {"legs", "routes"}
    watch = run("-watch")
    try:  # the same table again; a state that changes is seen in the next
        heads, seen = 0, ""
        world.post("/v1/legs/bad", {"state": "closed"})
        while "forced_closed" not in seen or heads < 2:
            line = watch.stdout.readline()
            assert line and heads < 30, (heads, seen)
            heads += line.startswith("LEG ")
            seen = line if line.startswith("bad ") else seen
    finally:
        watch.kill()
        watch.communicate()
