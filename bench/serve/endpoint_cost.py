#!/usr/bin/env python3
"""What the endpoint itself costs, over a tiny model: bench/serve/endpoint_cost.py

CPU time of the serving process per streamed event (8 streams at once), what it adds to the first
token (the client's time less what the engine says it took), memory of 500 idle connections, and how
long /health waits while a body of 100 MB is read, sent to the child and refused, and its memory.
"""
import concurrent.futures
import http.client
import json
import multiprocessing
import os
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
from server import TINY, serving  # noqa: E402


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid, key="VmRSS"):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key))


def events(server):
    pid, count = server.process.pid, "shoal_eval_tokens_total"
    before, tokens = cpu_seconds(pid), server.metric(count)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: server.stream("ab", max_tokens=1000, ignore_eos=True, seed=i),
                      range(32)))
    tokens = server.metric(count) - tokens
    print(f"{(cpu_seconds(pid) - before) / tokens * 1e6:.1f} us of CPU per event, "
          f"{tokens:.0f} events")


def first_token(server):
    body = json.dumps({"model": server.model(), "stream": True, "max_tokens": 2, "messages": [
        {"role": "user", "content": "ab"}]}).encode()
    added = []
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for _ in range(200):
        before = time.monotonic()
        connection.request("POST", "/v1/chat/completions", body)
        reply = connection.getresponse()
        first = reply.read1()
        seen_ms = (time.monotonic() - before) * 1000
        text = (first + reply.read()).decode()
        final = next(json.loads(line[6:]) for line in text.split("\n")
                     if line.startswith("data: ") and '"shoal"' in line)
        spent = final["shoal"]["timings"]
        added.append(seen_ms - spent["queue_ms"] - spent["prefill_ms"])
    added.sort()
    print(f"{added[100]:.2f} ms added to the first token in the middle of 200, "
          f"{added[190]:.2f} ms at 95 %")


def idle(server):
    before = resident(server.process.pid)
    held = [server.connect() for _ in range(500)]
    for s in held:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for s in held:
        s.recv(65536)
    print(f"{(resident(server.process.pid) - before) / 1e6:.1f} MB for 500 idle connections")
    for s in held:
        s.close()


def look(port, is_over, waits):
    """In a process of its own: who sends the body takes this one's time."""
    longest = 0
    while not is_over.is_set():
        before = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/health")
        connection.getresponse().read()
        connection.close()
        longest = max(longest, time.monotonic() - before)
        time.sleep(0.005)
    waits.put(longest)


def large(server):
    body = json.dumps({"model": server.model(), "messages": [
        {"role": "user", "content": "word " * 20_000_000}]}).encode()
    waits, is_over = multiprocessing.Queue(), multiprocessing.Event()
    looker = multiprocessing.Process(target=look, args=(server.port, is_over, waits))
    looker.start()
    before = resident(server.process.pid)
    status = server.request("POST", "/v1/chat/completions", body, timeout=120).status
    is_over.set()
    longest = waits.get()
    looker.join()
    most = resident(server.process.pid, "VmHWM") - before
    print(f"body of {len(body) / 1e6:.0f} MB: status {status}, /health waited at most "
          f"{longest * 1000:.0f} ms (goal < 100), memory at most {most / len(body):.2f} times the "
          f"body (goal <= 4)")


def main():
    with serving(tempfile.mkdtemp(), "-model", TINY) as server:
        server.model()
        events(server)
        first_token(server)
        idle(server)
    with serving(tempfile.mkdtemp(), "-model", TINY,
                 env={"SHOAL_LIMITS_BODY": "128MiB"}) as server:
        server.model()
        large(server)


if __name__ == "__main__":
    main()
