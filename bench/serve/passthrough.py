#!/usr/bin/env python3
"""CPU time that a server spends on each word that it passes from an upstream to a client.

usage: build/venv/bin/python bench/serve/passthrough.py

`shoal stub` is the upstream; four streams at once, 24 in all, of each pair of protocols. The time
is the server process's own (utime + stime), so that a busy machine does not count. Goal: 20 us.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))

import test_failover as f  # noqa: E402
from server import serving  # noqa: E402

WORDS, STREAMS = 990, 24
PAIRS = [(d, d) for d in f.DIALECTS] + [("openai", "anthropic"), ("anthropic", "openai")]


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    home = pathlib.Path(tempfile.mkdtemp())
    stub = subprocess.Popen([f.SHOAL, "stub", "-words", str(WORDS)], stdout=subprocess.PIPE)
    port = int(re.search(rb":(\d+)", stub.stdout.readline()).group(1))
    legs = {d: {"kind": "upstream", "dialect": d, "url": f"http://127.0.0.1:{port}",
                "model": "x/ok"} for d in f.DIALECTS}
    path = home / "config.yaml"
    path.write_text(f.config_of(legs, [{"match": {"model": d}, "legs": [d]} for d in legs]))
    with serving(home, "-config", str(path)) as server:
        for client, upstream in PAIRS:
            before = cpu_s(server.process.pid)
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                replies = list(pool.map(lambda _: f.ask(server, client, upstream, True),
                                        range(STREAMS)))
            used = cpu_s(server.process.pid) - before
            assert all(len(f.read_stream(client, r.body)[0].split()) == WORDS for r in replies)
            print(f"{client:10} <- {upstream:10} {used / (STREAMS * WORDS) * 1e6:5.1f} us a word")
    stub.terminate()


if __name__ == "__main__":
    main()
