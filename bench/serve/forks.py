#!/usr/bin/env python3
"""Relaunch of a fleet: N forks of one saved context at once, to the first token of each.

usage: bench/serve/forks.py [-n 32] [-tokens 4096] [-rounds 3] [-shoal build/shoal] MODEL

Starts a server, saves a context of about so many tokens with a pin, then asks N forks at once, each
with a short turn of its own, and measures from the first request to the last first token. Before
the rounds it does the same once for warm threads. The cold prefill is what saving took.
"""
import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

WORDS = ("the engine reads a page and keeps it until another one is worth more than what it "
         "costs").split()


def server(shoal, model, home):
    p = subprocess.Popen([shoal, "serve", "-model", model, "-addr", "127.0.0.1:0"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                         env={**os.environ, "HOME": home})
    for line in p.stdout:
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        if found:
            return p, int(found.group(1))
    sys.exit("forks: the server did not start")


def call(port, method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    c.request(method, path, json.dumps(body) if body else None)
    r = c.getresponse()
    text = r.read()
    if r.status >= 300:
        sys.exit(f"forks: {path}: {r.status} {text[:300]}")
    return json.loads(text) if text else None


def first_token(port, model, i, start, out):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    c.connect()
    body = json.dumps({"model": model, "max_tokens": 2, "temperature": 0, "stream": True,
                       "messages": [{"role": "user", "content": f"Agent {i}: begin."}],
                       "shoal": {"context": "fleet", "agent": f"agent-{i}"}})
    start.wait()
    c.request("POST", "/v1/chat/completions", body)
    r = c.getresponse()
    if r.status != 200:
        sys.exit(f"forks: {r.status} {r.read()[:300]}")
    cached = None
    for line in r:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            if out[i] is None and event["choices"] and (
                    event["choices"][0]["delta"].get("content") or
                    event["choices"][0]["finish_reason"]):
                out[i] = [time.monotonic(), None]
            cached = event.get("shoal", {}).get("cache", {}).get("cached", cached)
    out[i][1] = cached


def launch(port, model, n):
    out, start = [None] * n, threading.Event()
    threads = [threading.Thread(target=first_token, args=(port, model, i, start, out))
               for i in range(n)]
    for t in threads:
        t.start()
    time.sleep(0.5)  # all are connected
    began = time.monotonic()
    start.set()
    for t in threads:
        t.join()
    times = sorted(at - began for at, _ in out)
    return times, min(cached for _, cached in out)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("-n", type=int, default=32)
    a.add_argument("-tokens", type=int, default=4096)
    a.add_argument("-rounds", type=int, default=3)
    a.add_argument("-shoal", default="build/shoal")
    a.add_argument("model")
    a = a.parse_args()
    with tempfile.TemporaryDirectory() as home:
        p, port = server(os.path.abspath(a.shoal), os.path.abspath(a.model), home)
        try:
            model = call(port, "GET", "/v1/models")["data"][0]["id"]
            text = " ".join(WORDS[i % len(WORDS)] for i in range(a.tokens - 24))
            began = time.monotonic()
            saved = call(port, "POST", "/v1/contexts", {"model": model, "id": "fleet", "pin": True,
                                                        "system": text})
            cold = time.monotonic() - began
            print(f"context: {saved['tokens']} tokens, saved in {cold:.2f} s (load included)")
            launch(port, model, a.n)
            last = []
            for _ in range(a.rounds):
                times, cached = launch(port, model, a.n)
                last.append(times[-1])
                print(f"{a.n} forks: first tokens {times[0]:.3f} s first, "
                      f"{statistics.median(times):.3f} s median, {times[-1]:.3f} s last; "
                      f"at least {cached} tokens cached")
            print(f"last first token, median of {a.rounds} rounds: {statistics.median(last):.3f} s")
        finally:
            p.terminate()
            p.wait()


if __name__ == "__main__":
    main()
