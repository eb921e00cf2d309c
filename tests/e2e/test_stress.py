"""Many clients at once against one server, through bench/serve/stress.c."""
import json
import os
import subprocess

from conftest import ROOT
from server import TINY, serving

STRESS = os.path.join(ROOT, "build", "bench", "serve", "stress")


def stress(server, mode, *args, timeout=200):
    done = subprocess.run([STRESS, mode, "-url", server.url, "-model", server.model(), *args],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                          check=False)
    assert done.stdout, done.stderr
    return done, json.loads(done.stdout)


def test_G22_500_idle_connections_take_less_than_20_mb(home):
    with serving(home, TINY) as server:
        _, got = stress(server, "idle", "-pid", str(server.process.pid))
    assert got["connections"] == 500
    assert got["rss_after_kb"] - got["rss_before_kb"] < 20 * 1024


def test_G22_a_burst_against_a_full_queue_is_refused_and_nobody_hangs(home):
    """How fast is measured on a quiet machine by `make bench-serve`; here it must end."""
    with serving(home, TINY, "-slots", "4", "-queue", "4") as server:
        done, got = stress(server, "burst", "-hold", "16", "-within", "10000")
        assert (done.returncode, done.stderr) == (0, b"")
        assert got["failed"] == 0 and got["hung"] == 0
        assert got["done"] + got["refused"] + (16 - got["held"]) == 516
        assert server.chat(max_tokens=2).status == 200


def test_nothing_but_503_fails_while_clients_go_away_and_the_engine_is_killed(home):
    with serving(home, TINY, "-slots", "8") as server:
        done, got = stress(server, "soak", "-pid", str(server.process.pid), "-kill",
                           "-agents", "100", "-seconds", "120")
        assert done.returncode == 0, (got, done.stderr)
        assert (got["failed"], got["hung"]) == (0, 0)
        assert got["kills"] >= 4 and got["done"] > 100 and got["cancelled"] and got["slow"]
        assert got["rss_late_kb"] < got["rss_early_kb"] + 8 * 1024


def test_only_this_machine_is_a_target():
    done = subprocess.run([STRESS, "burst", "-url", "http://192.0.2.1:80"],
                          stderr=subprocess.PIPE, timeout=20, check=False)
    assert done.returncode == 1 and b"nothing else is a target" in done.stderr
