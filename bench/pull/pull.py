#!/usr/bin/env python3
"""`shoal pull` beside 8 curls, sync and sha256sum: 1 GB from a hub on loopback, interleaved rounds.

Usage: bench/pull/pull.py [-rounds 3] [-mib 1024]. The hub answers with sendfile from the page
cache, so it costs little; curl writes pieces, which are then joined.
"""
import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "hub"))
from hub import Hub  # noqa: E402

CURLS = 8


def children_cpu():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def pull(hub, folder):
    env = {"HOME": folder, "PATH": os.environ["PATH"], "SHOAL_HUB": hub.url}
    subprocess.run([os.path.join(ROOT, "build", "shoal"), "pull", "o/r"], env=env, check=True,
                   stdout=subprocess.DEVNULL)


def curl(hub, folder, size):
    url = f"{hub.cdn_url}/o/r/resolve/main/m.gguf?sig={hub.signature}"
    part = size // CURLS
    runs = [subprocess.Popen(["curl", "-s", "-r", f"{i * part}-{(i + 1) * part - 1}",
                              "-o", f"{folder}/{i}", url]) for i in range(CURLS)]
    assert all(r.wait() == 0 for r in runs)
    subprocess.run("cat ? >m && sync m && sha256sum m >/dev/null", shell=True, cwd=folder,
                   check=True)


def main():
    p = argparse.ArgumentParser(prefix_chars="-")
    p.add_argument("-rounds", type=int, default=3)
    p.add_argument("-mib", type=int, default=1024)
    args = p.parse_args()
    size = args.mib << 20
    base = tempfile.mkdtemp()
    try:
        source = os.path.join(base, "m.gguf")
        with open(source, "wb") as f:
            f.write(b"GGUF")
            for _ in range(args.mib):
                f.write(os.urandom(1 << 20))
            f.truncate(size)
        with Hub() as hub:
            hub.add("o/r", {"m.gguf": source}).sha256("m.gguf")
            for _ in range(args.rounds):
                for name, run in (("pull", lambda d: pull(hub, d)),
                                  ("curl", lambda d: curl(hub, d, size))):
                    folder = tempfile.mkdtemp(dir=base)
                    begun, cpu = time.monotonic(), children_cpu()
                    run(folder)
                    print(f"{name}  {time.monotonic() - begun:6.2f} s  cpu "
                          f"{children_cpu() - cpu:5.2f} s", flush=True)
                    shutil.rmtree(folder)
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
