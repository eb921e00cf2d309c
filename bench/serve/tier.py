#!/usr/bin/env python3
"""First token after a restart, from disk, beside the cold one and the disk's own read rate.

usage: bench/serve/tier.py [-rounds N] MODEL

A prompt of some thousand tokens is asked once; the server stops. Then, per round: the tier's files
are read with dd past and through the page cache, dropped from it, the server starts and is asked
the same again. The rate is what the tier measured of its last reads.
"""
import argparse
import glob
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def start(home, model):
    words = [f"{ROOT}/build/shoal", "serve", "-addr", "127.0.0.1:0", "-model", model,
             "-spill", f"{home}/spill", "-spill-size", "8GiB"]
    env = {"HOME": home, "PATH": os.environ["PATH"], "SHOAL_CACHE_SPILL_FLOOR": "1GiB"}
    p = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
                         text=True)
    port = None
    while port is None:
        found = re.match(r"listening +https?://[^ ]*:(\d+)$", p.stdout.readline())
        port = int(found.group(1)) if found else None
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            if json.load(urllib.request.urlopen(url + "/ready"))["state"] == "loaded":
                return p, url
        except urllib.error.HTTPError:  # 503 while it loads
            pass
        time.sleep(0.05)


def ask(url, text):
    name = json.load(urllib.request.urlopen(url + "/v1/status"))["models"][0]["name"]
    body = json.dumps({"model": name, "prompt": text, "max_tokens": 1, "temperature": 0}).encode()
    headers = {"Content-Type": "application/json"}
    begin = time.monotonic()
    r = urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body, headers))
    usage = json.load(r)["usage"]
    return time.monotonic() - begin, usage


def stop(p):
    p.terminate()
    p.wait(30)


def drop(files):
    for f in files:
        subprocess.run(["sync", f], check=True)
        subprocess.run(["dd", f"if={f}", "iflag=nocache", "count=0"], capture_output=True)


def dd_rate(files, *more):
    begin = time.monotonic()
    for f in files:
        subprocess.run(["dd", f"if={f}", "of=/dev/null", "bs=1M", *more], capture_output=True)
    return sum(map(os.path.getsize, files)) / (time.monotonic() - begin) / 1e6


def main():
    args = argparse.ArgumentParser()
    args.add_argument("-rounds", type=int, default=3)
    args.add_argument("model")
    o = args.parse_args()
    with open(f"{ROOT}/docs/ARCHITECTURE.md", encoding="utf-8") as f:
        text = f.read()[:24000]
    with tempfile.TemporaryDirectory(dir=f"{ROOT}/build") as home:
        p, url = start(home, o.model)
        seconds, usage = ask(url, text)
        print(f"cold {seconds:.2f} s, {usage['prompt_tokens']} tokens")
        stop(p)
        files = glob.glob(f"{home}/spill/*/pages-*.kv")
        for _ in range(o.rounds):
            drop(files)
            direct = dd_rate(files, "iflag=direct")
            drop(files)
            buffered = dd_rate(files)
            p, url = start(home, o.model)
            drop(files)
            seconds, usage = ask(url, text)
            time.sleep(1.2)  # the child tells its counts twice a second
            ssd = json.load(urllib.request.urlopen(url + "/v1/cache"))["models"][0]["ssd"]
            print(f"restart {seconds:.3f} s, {usage['prompt_tokens_details']['cached_tokens']} "
                  f"cached, tier {ssd['read_bytes_per_s'] / 1e6:.0f} MB/s, dd direct "
                  f"{direct:.0f}, buffered {buffered:.0f} MB/s")
            stop(p)


main()
