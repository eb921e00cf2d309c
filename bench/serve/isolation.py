#!/usr/bin/env python3
"""What one key's clock tells of another key's prompts: isolation.py [-pairs 30] MODEL

Key `one` asks prompts that nobody knows. Key `two` then sends, in turns and each once, one of those
prompts word for word and one that nobody ever asked, and takes the time to its first token: while
the pool has them, and again after a restart, when they lie on the disk. A shared cache would
answer the right guess at once; for the scale `one` asks its own again. AUC is the share of pairs in
which the right guess was the faster one: 0.5 tells nothing, 1.0 everything. Prints rows for
docs/NUMBERS.md.
"""
import argparse
import contextlib
import http.client
import json
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SHOAL = os.path.join(ROOT, "build", "shoal")
sys.path.insert(0, HERE)
from serve import serving  # noqa: E402  (beside us)

KEYS = {name: f"{name}-key-of-many-letters" for name in ("one", "two")}
CONFIG = """
keys:
  - {name: one, key_env: ONE, scopes: [infer]}
  - {name: two, key_env: TWO, scopes: [infer]}
"""
PAGE = 32


def server(options, folder):
    path = os.path.join(folder, "config.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(CONFIG)
    command = [SHOAL, "serve", "-addr", "127.0.0.1:PORT", "-model", options.model, "-config", path,
               "-spill", f"{folder}/spill", "-spill-size", "4GiB"]
    env = {**{name.upper(): key for name, key in KEYS.items()}, "HOME": folder,
           "SHOAL_CACHE_SPILL_FLOOR": "1GiB"}
    return serving(command, "/ready", os.path.join(folder, "shoal.log"), env=env)


def prompt(number, pages):
    return [1000 + (number * 7919 + k * k * 31 + k * 17) % 40000 for k in range(pages * PAGE + 1)]


def ask(url, options, key, number):
    """(first token in s, cached tokens)"""
    model = os.path.basename(options.model).removesuffix(".gguf")
    body = {"model": model, "prompt": prompt(number, options.pages), "max_tokens": 1,
            "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}
    first, usage, begun = None, None, time.monotonic()
    c = http.client.HTTPConnection(url.split("//")[1], timeout=300)
    with contextlib.closing(c):
        c.request("POST", "/v1/completions", json.dumps(body),
                  {"Authorization": f"Bearer {KEYS[key]}"})
        reply = c.getresponse()
        if reply.status != 200:
            sys.exit(f"isolation: {reply.status}: {reply.read()[:300]}")
        for line in reply:
            if line.startswith(b"data: {"):
                first = first or time.monotonic() - begun
                usage = json.loads(line[6:]).get("usage") or usage
    return first, usage["prompt_tokens_details"]["cached_tokens"]


def median(values):
    return sorted(values)[len(values) // 2]


def probe(url, options, where, first_number):
    right, wrong, found = [], [], 0
    for i in range(options.pairs):
        turns = [("right", first_number + i), ("wrong", first_number + 5000 + i)]
        for kind, number in turns if i % 2 else turns[::-1]:
            seconds, cached = ask(url, options, "two", number)
            (right if kind == "right" else wrong).append(seconds)
            found = max(found, cached)
    own = [ask(url, options, "one", first_number + i)[0] for i in range(options.pairs)]
    auc = sum(r < w for r in right for w in wrong) / len(right) / len(wrong)
    print(f"isolation, {where}: {options.pairs} prompts of {options.pages * PAGE + 1} tokens: "
          f"first token p50 of another key's right guess {median(right) * 1e3:.1f} ms, of a wrong "
          f"one {median(wrong) * 1e3:.1f} ms, AUC {auc:.2f}; most cached of a guess {found}; "
          f"of the key that asked before {median(own) * 1e3:.1f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("-pairs", type=int, default=30)
    parser.add_argument("-pages", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=f"{ROOT}/build") as folder:
        with server(options, folder) as (_, url):
            for i in range(2 * options.pairs):
                ask(url, options, "one", i)
            probe(url, options, "from the pool", 0)
        with server(options, folder) as (_, url):
            probe(url, options, "from the disk after a restart", options.pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
