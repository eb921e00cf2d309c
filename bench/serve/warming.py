#!/usr/bin/env python3
"""The first token after a failover, with and without a local leg that reads along:
warming.py MODEL [-words 1500] [-rounds 5]

Each conversation's first turn is answered by a cloud (a `shoal stub`); then the cloud fails, and
the local leg answers the second turn. On one route the local leg is the route's shadow, on the
other it is not. Rounds alternate; the middle and the slowest first token of each are printed. Exit
1 unless the middle with warming is below half of that without.
"""
import argparse
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.parse
import urllib.request

from failover_burst import SHOAL, stub
from serve import serving

CONFIG = """\
legs:
  cloud: {{kind: upstream, dialect: openai, model: x, url: "http://127.0.0.1:{port}"}}
  desk: {{kind: engine, model: {model}}}
routes:
  - {{match: {{model: warm}}, legs: [cloud, desk], shadow: desk}}
  - {{match: {{model: cold}}, legs: [cloud, desk]}}
breaker: {{failures: 1000, min_requests: 100000}}
probes: {{free: false}}
shadow: {{min_tokens: 256, share: 1}}
"""


def fault(port, text):
    urllib.request.urlopen(urllib.request.Request(
        f"http://127.0.0.1:{port}/stub/fault", text.encode(), method="POST"), timeout=10)


def turn(url, model, messages):
    """(text, seconds to its first piece)."""
    c = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=300)
    start, first, text = time.monotonic(), None, ""
    c.request("POST", "/v1/chat/completions", json.dumps({
        "model": model, "stream": True, "max_tokens": 16, "temperature": 0, "messages": messages}))
    r = c.getresponse()
    if r.status != 200:
        sys.exit(f"warming: {r.status} {r.read()[:300]}")
    for line in r:
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:]).get("choices")
            piece = choices[0]["delta"].get("content") if choices else None
            first = first or (time.monotonic() - start if piece else None)
            text += piece or ""
    c.close()
    return text, first


def metric(url, name):
    with urllib.request.urlopen(url + "/metrics", timeout=10) as r:
        for line in r.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    return 0.0


def settle(url, before):
    """Until the shadow has computed something and stands still for two seconds."""
    last, since, end = before, time.monotonic(), time.monotonic() + 60
    while time.monotonic() < end and (last == before or time.monotonic() - since < 2):
        time.sleep(0.2)
        now = metric(url, "shoal_shadow_tokens_total")
        if now != last:
            last, since = now, time.monotonic()


def conversation(url, port, model, words, seed):
    draw = random.Random(f"{model}{seed}")
    text = " ".join(draw.choice(("salt", "rope", "tide", "gull", "mast")) for _ in range(words))
    messages = [{"role": "user", "content": text + "\nWhich word comes most often?"}]
    before = metric(url, "shoal_shadow_tokens_total")
    fault(port, "")
    reply, _ = turn(url, model, messages)
    if model == "warm":
        settle(url, before)
    fault(port, "status=500")
    messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": "And least?"}]
    return turn(url, model, messages)[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("-words", type=int, default=1500)
    parser.add_argument("-rounds", type=int, default=5)
    o = parser.parse_args()
    path = os.path.abspath(o.model)
    name = os.path.basename(path).removesuffix(".gguf")
    times = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as folder, stub() as port:
        config = os.path.join(folder, "config.yaml")
        with open(config, "w", encoding="utf-8") as f:
            f.write(CONFIG.format(port=port, model=name))
        command = [SHOAL, "serve", "-addr", "127.0.0.1:PORT", "-config", config, "-ctx", "8192",
                   path]
        with serving(command, "/ready", os.path.join(folder, "shoal.log"),
                     env={"HOME": folder}) as (_, url):
            for seed in range(o.rounds + 1):
                for model, list_ in times.items():
                    list_.append(conversation(url, port, model, o.words, seed))
    rows = {m: sorted(list_[1:]) for m, list_ in times.items()}  # the first ones warm the engine
    for model, list_ in rows.items():
        print(f"  {model}: first token after the failover {statistics.median(list_) * 1000:.0f} ms"
              f" in the middle of {len(list_)}, slowest {list_[-1] * 1000:.0f} ms")
    return 0 if statistics.median(rows["warm"]) < statistics.median(rows["cold"]) / 2 else 1


if __name__ == "__main__":
    sys.exit(main())
