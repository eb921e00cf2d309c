"""Many clients at once: equal replies whatever else is served, crashes, idle connections."""
import collections
import concurrent.futures
import hashlib
import json
import os
import signal
import time

import pytest

from server import REAL, TINY, serving, wait_until

KINDS = {
    "greedy": {"temperature": 0, "max_tokens": 24},
    "seeded": {"seed": 42, "temperature": 1, "max_tokens": 24},
    "seeded with penalties": {"seed": 9, "temperature": 0.8, "top_p": 0.9, "max_tokens": 24,
                              "presence_penalty": 0.5, "repetition_penalty": 1.1},
}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("load"), "-model", REAL, "-ctx", "2048") as server:
        yield server


def content(reply):
    assert reply.status == 200, reply.body
    return reply.json()["choices"][0]["message"]["content"]


def test_A26_64_equal_requests_among_noise_have_one_hash_per_kind(real):
    def ask(job):
        kind, stream = job
        if kind is None:  # noise: other prompts, lengths, seeds, streams, cancels
            real.chat(f"Noise {stream}: " + "word " * (stream * 7 % 90), seed=stream,
                      max_tokens=5 + stream % 20, n=1 + stream % 2)
            return None
        more = KINDS[kind]
        text = real.stream("Describe a harbour.", timeout=200, **more)[1] if stream else \
            content(real.chat("Describe a harbour.", timeout=200, **more))
        return kind, hashlib.sha256(text.encode()).hexdigest()

    jobs = []
    for i in range(64):
        jobs += [(kind, i % 2 == 1) for kind in list(KINDS)[i % 3:i % 3 + 1]]
        jobs.append((None, i))
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        found = [r for r in pool.map(ask, jobs) if r]
    hashes = collections.defaultdict(collections.Counter)
    for kind, digest in found:
        hashes[kind][digest] += 1
    assert sum(sum(c.values()) for c in hashes.values()) == 64
    assert {k: len(c) for k, c in hashes.items()} == {k: 1 for k in KINDS}, hashes
    alone = content(real.chat("Describe a harbour.", **KINDS["greedy"]))
    assert hashlib.sha256(alone.encode()).hexdigest() in hashes["greedy"]


def test_a_child_killed_under_load_costs_no_request(real):
    asked = [{"seed": i, "max_tokens": 40, "ignore_eos": True} for i in range(12)]
    plain = [content(real.chat("Tell a story.", **a)) for a in asked]
    child = real.child()
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        jobs = [pool.submit(real.stream if i % 2 else real.chat, "Tell a story.", timeout=120, **a)
                for i, a in enumerate(asked)]
        wait_until(lambda: real.metric("shoal_running") >= 6)
        os.kill(child, signal.SIGKILL)
        got = [j.result() for j in jobs]
    texts = [r[1] if isinstance(r, tuple) else content(r) for r in got]
    assert texts == plain
    assert real.child() != child
    wait_until(lambda: real.get("/health").json()["status"] == "ok")


def test_requests_not_started_are_run_again_after_a_crash(tmp_path):
    with serving(tmp_path, "-model", REAL, "-slots", "1") as server:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(server.chat, "Hi", seed=i, max_tokens=30, ignore_eos=True,
                                timeout=120) for i in range(4)]
            wait_until(lambda: server.metric("shoal_running") == 1)
            os.kill(server.child(), signal.SIGKILL)
            assert all(j.result().json()["usage"]["completion_tokens"] == 30 for j in jobs)
        assert server.get("/v1/status").json()["models"][0]["restarts"] == 1


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS"))


def test_500_idle_connections_take_little_memory(tmp_path):
    with serving(tmp_path, "-model", TINY) as server:
        server.get("/health")
        before = resident(server.process.pid)
        held = [server.connect() for _ in range(500)]
        for s in held:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for s in held:
            assert s.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert resident(server.process.pid) - before < 20 << 20
        assert server.get("/health").status == 200
        for s in held:
            s.close()


def test_E28_memory_of_the_endpoint_stays_flat_over_many_requests(tmp_path):
    with serving(tmp_path, "-model", TINY) as server:
        def ask(i):
            return server.chat("ab" * (i % 50), max_tokens=1 + i % 5, stream=i % 2 == 0).status

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            assert set(pool.map(ask, range(300))) == {200}
            before = resident(server.process.pid)
            assert set(pool.map(ask, range(900))) == {200}
        assert resident(server.process.pid) - before < 4 << 20
        wait_until(lambda: server.get("/v1/status").json()["ingress_bytes"] == 0)


def test_E09_clients_that_leave_the_queue_are_never_run(tmp_path):
    with serving(tmp_path, "-model", REAL, "-slots", "1") as server:
        def open_one():
            body = json.dumps({"model": server.model(), "ignore_eos": True, "stream": True,
                               "messages": [{"role": "user", "content": "a"}]}).encode()
            s = server.connect()
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                      b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            return s

        held = [open_one() for _ in range(6)]
        wait_until(lambda: server.requests() == 6 and server.metric("shoal_running") == 1)
        for s in held[1:]:
            s.close()
        wait_until(lambda: server.requests() == 1, 2)
        held[0].close()
        wait_until(lambda: server.requests() == 0, 2)
        time.sleep(0.3)
        assert server.metric("shoal_first_token_seconds_count") == 1
