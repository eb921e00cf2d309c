#!/usr/bin/env python3
"""200 streams of 50 pieces a second passed on by a server on one core: shoal, litellm's proxy.

usage: bench/route/passthrough.py [-litellm VENV] [-streams 200] [-rate 50] [-seconds 10]

The upstream and the clients are build/bench/route/passthrough, on the other cores. Told: what
the server adds to a piece (p50, p99; the instrument's own beside it), and its CPU time per piece,
by the scheduler's account of its process. Goals of shoal: p99 5 ms, 20 us. Exit 1 when a stream
broke.
"""
import argparse
import glob
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEY = "sk-passthrough-bench"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cpu_s(pid):
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path, encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total / 1e9


def shoal(home, upstream, port):
    (home / "config.yaml").write_text(
        f"listen: [127.0.0.1:{port}]\nlogging: {{level: error}}\n"
        f"legs: {{cloud: {{kind: upstream, dialect: openai, url: 'http://127.0.0.1:{upstream}',"
        f" max_inflight: 1000}}}}\n"
        "routes: [{match: {}, legs: [cloud]}]\nprobes: {free: false}\n")
    return [str(ROOT / "build" / "shoal"), "serve", "-config", str(home / "config.yaml")], "/health"


def litellm(home, upstream, port, venv):
    (home / "litellm.yaml").write_text(
        "model_list:\n  - model_name: m\n    litellm_params:\n      model: openai/m\n"
        f"      api_base: http://127.0.0.1:{upstream}/v1\n      api_key: {KEY}\n"
        "litellm_settings: {telemetry: false}\n")
    os.environ["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"  # on loopback
    return [str(pathlib.Path(venv).resolve() / "bin" / "litellm"),
            "--config", str(home / "litellm.yaml"), "--host", "127.0.0.1",
            "--port", str(port), "--num_workers", "1"], "/health/liveliness"


def measure(o, upstream, target=None, pid=None):
    args = [str(ROOT / "build" / "bench" / "route" / "passthrough"), "-upstream", str(upstream),
            "-streams", str(o.streams), "-rate", str(o.rate), "-seconds", str(o.seconds)]
    if target:
        args += ["-target", str(target)]
    others = sorted(os.sched_getaffinity(0))[1:] or [0]
    before = cpu_s(pid) if pid else 0
    done = subprocess.run(["taskset", "-c", ",".join(map(str, others)), *args],
                          stdout=subprocess.PIPE, check=False)
    result = json.loads(done.stdout)
    if pid:
        result["us_per_piece"] = round((cpu_s(pid) - before) / max(1, result["pieces"]) * 1e6, 1)
    return result


def run(o, name, make):
    with tempfile.TemporaryDirectory() as home:
        upstream, port = free_port(), free_port()
        args, ready = make(pathlib.Path(home), upstream, port)
        core = str(min(os.sched_getaffinity(0)))
        with open(os.path.join(home, "log"), "wb") as log:
            server = subprocess.Popen(["taskset", "-c", core, *args], stdout=log, stderr=log,
                                      env={**os.environ, "HOME": home}, cwd=home)
            try:
                end = time.monotonic() + 90
                while True:
                    try:
                        with urllib.request.urlopen(f"http://127.0.0.1:{port}{ready}", timeout=2):
                            break
                    except OSError:
                        if time.monotonic() > end or server.poll() is not None:
                            sys.exit(f"{name} did not start: {open(log.name).read()[-2000:]}")
                        time.sleep(0.2)
                return measure(o, upstream, port, server.pid)
            finally:
                server.terminate()
                server.wait(20)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0], prefix_chars="-")
    p.add_argument("-litellm", metavar="VENV", help="a venv that has litellm[proxy]")
    p.add_argument("-streams", type=int, default=200)
    p.add_argument("-rate", type=int, default=50)
    p.add_argument("-seconds", type=int, default=10)
    o = p.parse_args()
    rows = {"instrument": measure(o, free_port()), "shoal": run(o, "shoal", shoal)}
    if o.litellm:
        rows["litellm"] = run(o, "litellm", lambda *a: litellm(*a, o.litellm))
    for name, row in rows.items():
        print(name, json.dumps(row), flush=True)
    return any(row["whole"] != row["streams"] for row in rows.values())


if __name__ == "__main__":
    sys.exit(main())
