#!/usr/bin/env python3
"""A pull while its network goes away and comes back: run in a network namespace of its own.

Usage: unshare -n tests/hub/cut.py SHOAL HOME. Prints JSON: code, errors, right, asked (bytes asked
for, in sizes of the file), left (what lies in the store).
"""
import json
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hub import Hub  # noqa: E402

PIECE = 1 << 18
DATA = b"GGUF" + random.Random(5).randbytes(24 * PIECE)


def link(state):
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def wait_for(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def main():
    shoal, home = sys.argv[1:]
    store = os.path.join(home, ".shoal", "models")
    link("up")
    with Hub() as hub:
        hub.add("o/r", {"m.gguf": DATA})
        hub.rate = 500_000
        env = {"HOME": home, "PATH": os.environ["PATH"], "SHOAL_HUB": hub.url,
               "SHOAL_HUB_PIECE": str(PIECE), "SHOAL_HUB_IDLE": "1s", "SHOAL_HUB_RETRY": "100ms"}
        run = subprocess.Popen([shoal, "pull", "o/r"], env=env, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
        for seconds in (0.2, 3):  # within TCP's patience, and beyond ours
            asked = len(hub.asked("cdn"))
            wait_for(lambda n=asked: len(hub.asked("cdn")) > n)
            time.sleep(0.2)
            link("down")
            time.sleep(seconds)
            is_alive = run.poll() is None
            link("up")
        hub.rate = 0
        errors = run.communicate(timeout=120)[1].decode()
        with open(os.path.join(store, "m.gguf"), "rb") as f:
            right = f.read() == DATA
        asked = sum(r.range[1] - r.range[0] + 1 for r in hub.asked("cdn") if r.range)
        print(json.dumps({"code": run.returncode, "errors": errors, "right": right,
                          "was_cut": is_alive, "asked": asked / len(DATA),
                          "left": sorted(os.listdir(store))}))


if __name__ == "__main__":
    main()
