#!/usr/bin/env python3
"""How much does a long prompt disturb those who generate?

usage: beside.py URL MODEL [DECODERS [PROMPT_TOKENS]]
DECODERS clients (32) stream a reply each; half-way one more sends a prompt of about PROMPT_TOKENS
tokens (4096). Prints the 50th and 99th percentile of the time between two events of a stream,
before and while the prompt is read, and the prompt's time to its first token.
"""
import http.client
import json
import sys
import threading
import time
import urllib.parse


def stream(url, model, prompt, count, out):
    u = urllib.parse.urlparse(url)
    c = http.client.HTTPConnection(u.hostname, u.port, timeout=120)
    body = {"model": model, "stream": True, "max_tokens": count, "temperature": 0,
            "messages": [{"role": "user", "content": prompt}]}
    c.request("POST", "/v1/chat/completions", json.dumps(body),
              {"Content-Type": "application/json"})
    r = c.getresponse()
    if r.status != 200:
        raise SystemExit(f"beside: {r.status} {r.read(300)}")
    for line in r:
        if line.startswith(b"data: {") and b'"content"' in line:
            out.append(time.perf_counter())


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))] * 1e3 if values else float("nan")


def main():
    url, model = sys.argv[1:3]
    decoders = int(sys.argv[3]) if len(sys.argv) > 3 else 32
    tokens = int(sys.argv[4]) if len(sys.argv) > 4 else 4096
    times = [[] for _ in range(decoders)]
    threads = [threading.Thread(target=stream, args=(url, model, f"{i} tell", 400, t))
               for i, t in enumerate(times)]
    for t in threads:
        t.start()
    while min(len(t) for t in times) < 150:
        if not all(t.is_alive() for t in threads):
            raise SystemExit("beside: a stream ended before the prompt began")
        time.sleep(0.005)
    calm, first = time.perf_counter(), []
    stream(url, model, "x " * (tokens // 2), 1, first)
    done = first[0] if first else time.perf_counter()
    for t in threads:
        t.join()
    gaps = {"before": [], "beside": []}
    for t in times:
        for a, b in zip(t[20:], t[21:]):
            if b < calm:
                gaps["before"].append(b - a)
            elif calm <= b and a <= done:
                gaps["beside"].append(b - a)
    for name, values in gaps.items():
        print(f"{name}: {len(values)} gaps, p50 {percentile(values, 0.5):.2f} ms, "
              f"p99 {percentile(values, 0.99):.2f} ms")
    print(f"prompt of {tokens}: first token after {(done - calm) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
