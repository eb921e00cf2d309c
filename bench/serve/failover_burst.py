#!/usr/bin/env python3
"""What a burst of agents waits after a failover, beside the same burst without a fault:
failover_burst.py MODEL [-agents 32] [-words 120] [-rounds 3]

The cloud is a `shoal stub` that takes each request and says nothing; the second leg is the local
engine. Both bursts ask for texts of the same length that the engine has not seen. What counts is
the time from the limit's end (with a fault) or from the request (without one) to the first piece of
content. Rounds alternate; p50, p95 and the slowest of the best round of each are printed. Exit 1 if
the first tokens after the fault come later than 1.2 times those without.
"""
import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from serve import ROOT, serving

SHOAL = os.path.join(ROOT, "build", "shoal")
LIMIT_S = 1.0
GOAL = 1.2
CONFIG = """\
legs:
  cloud: {{kind: upstream, dialect: openai, model: x/hang_header, max_inflight: 1000,
          url: "http://127.0.0.1:{port}"}}
  desk: {{kind: engine, model: {model}}}
routes:
  - {{match: {{model: fault}}, legs: [cloud, desk]}}
  - {{match: {{model: plain}}, legs: [desk]}}
deadlines: {{first_token: {limit}ms}}
breaker: {{failures: 1000, min_requests: 100000}}
probes: {{free: false}}
"""


@contextlib.contextmanager
def stub():
    p = subprocess.Popen([SHOAL, "stub"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        yield int(re.search(rb":(\d+)", p.stdout.readline()).group(1))
    finally:
        p.terminate()
        p.wait(10)


def first_token_s(url, model, text, barrier):
    """From the request to the first content; the rest of the stream is read too."""
    c = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=300)
    body = json.dumps({"model": model, "stream": True, "max_tokens": 16, "temperature": 0,
                       "ignore_eos": True, "messages": [{"role": "user", "content": text}]})
    barrier.wait()
    start, first = time.monotonic(), None
    c.request("POST", "/v1/chat/completions", body)
    r = c.getresponse()
    if r.status != 200:
        sys.exit(f"failover_burst: {r.status} {r.read()[:300]}")
    for line in r:
        if first is None and line.startswith(b"data: {"):
            choices = json.loads(line[6:]).get("choices")
            if choices and choices[0]["delta"].get("content"):
                first = time.monotonic() - start
    c.close()
    if first is None:
        sys.exit("failover_burst: a reply without a word")
    return first


def burst(url, model, options, seed):
    draw = random.Random(seed)
    texts = [" ".join(draw.choice(("salt", "rope", "tide", "gull", "mast"))
                      for _ in range(options.words)) for _ in range(options.agents)]
    barrier = threading.Barrier(options.agents)
    with concurrent.futures.ThreadPoolExecutor(options.agents) as pool:
        jobs = [pool.submit(first_token_s, url, model, t, barrier) for t in texts]
        times = sorted(j.result() - (LIMIT_S if model == "fault" else 0) for j in jobs)
    return [times[len(times) // 2], times[len(times) * 95 // 100], times[-1]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("-agents", type=int, default=32)
    parser.add_argument("-words", type=int, default=120)
    parser.add_argument("-rounds", type=int, default=3)
    options = parser.parse_args()
    path = os.path.abspath(options.model)
    name = os.path.basename(path).removesuffix(".gguf")
    best = {}
    with tempfile.TemporaryDirectory() as folder, stub() as port:
        config = os.path.join(folder, "config.yaml")
        with open(config, "w", encoding="utf-8") as f:
            f.write(CONFIG.format(port=port, model=name, limit=int(LIMIT_S * 1000)))
        command = [SHOAL, "serve", "-addr", "127.0.0.1:PORT", "-config", config, "-ctx", "4096",
                   "-slots", str(options.agents), path]
        with serving(command, "/ready", os.path.join(folder, "shoal.log"),
                     env={"HOME": folder}) as (_, url):
            burst(url, "plain", options, 0)  # the engine is warm
            for seed in range(1, options.rounds + 1):
                for model in ("plain", "fault"):
                    got = burst(url, model, options, 10 * seed + (model == "fault"))
                    best[model] = min(best.get(model, got), got)
    is_good = True
    for i, what in enumerate(("p50", "p95", "slowest")):
        ratio = best["fault"][i] / best["plain"][i]
        is_good &= ratio <= GOAL
        plain_ms, fault_ms = best["plain"][i] * 1000, best["fault"][i] * 1000
        print(f"  {options.agents} agents, first token {what:<8} no fault {plain_ms:>7.0f} ms   "
              f"after the limit {fault_ms:>7.0f} ms   {ratio:.2f}x (goal <= {GOAL})"
              f"{'' if ratio <= GOAL else '   MISSED'}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
