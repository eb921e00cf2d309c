"""Bodies that take long to read: who else asks does not wait, memory stays within its bound."""
import concurrent.futures
import contextlib
import http.client
import json
import threading
import time

import pytest

from server import TINY, serving, wait_until

MEGABYTE = 1 << 20


@pytest.fixture
def server(home):
    with serving(home, "-model", TINY) as s:
        s.model()
        yield s


def memory(server, key):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key))


def many_messages(size):
    """JSON that is slow to read and refused at its end: too many messages, and a bad last one."""
    one = b'{"role":"user","content":"w"},'
    return b'{"model":"llama","messages":[' + one * (size // len(one)) + b'nonsense]}'


def long_message(size):
    return json.dumps({"model": "llama", "messages": [
        {"role": "user", "content": "word " * (size // 5)}]}).encode()


@contextlib.contextmanager
def health_is_answered(server):
    """All the time, and at once. What fails in the thread that asks fails the test."""
    waits, is_over = [], threading.Event()

    def look():
        while not is_over.is_set():
            before = time.monotonic()
            assert server.get("/health").status == 200
            waits.append(time.monotonic() - before)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        looks = pool.submit(look)
        try:
            yield
        finally:
            is_over.set()
        looks.result()
    assert max(waits) < 0.4, sorted(waits)[-5:]


def test_health_is_answered_while_a_large_body_is_read(server):
    body = many_messages(60 * MEGABYTE)
    with health_is_answered(server):  # reading takes more than a second
        reply = server.request("POST", "/v1/chat/completions", body, timeout=60)
    assert reply.status == 400 and reply.headers["shoal-request-id"].startswith("req_")


def large_context(size, name="large"):
    """Many bytes and few tokens: blanks between the members of its messages."""
    return (b'{"model":"llama","id":"' + name.encode() + b'","messages":[{"role":"system",' +
            b" " * size + b'"content":"Rules of the house."}]}')


def test_health_is_answered_while_a_large_context_is_saved_and_used(home, tmp_path):
    args = ("-model", TINY, "-spill", str(tmp_path / "tier"))
    env = {"SHOAL_CACHE_SPILL_FLOOR": "1MiB"}
    body = large_context(60 * MEGABYTE)
    unlike = body.replace(b"house", b"hause")  # before: it holds this process

    def steps(server, again):
        r = server.post("/v1/contexts", body)
        assert r.status == (200 if again else 201), r.body
        assert server.post("/v1/contexts", body).status == 200
        other = server.post("/v1/contexts", unlike)
        assert other.status == 409, other.body
        for _ in range(3):
            assert server.chat(max_tokens=1, shoal={"context": "large"}).status == 200
        assert server.get("/v1/contexts/large").json()["bytes"] > 0

    for again in (False, True):
        with serving(home, *args, env=env) as server:
            server.model()
            with health_is_answered(server):  # 36 ms beside other work
                steps(server, again)
    assert len(list((tmp_path / "tier" / "contexts").glob("*.context"))) == 1


def test_a_large_body_costs_at_most_four_times_its_size(server):
    body, before = long_message(60 * MEGABYTE), memory(server, "VmRSS")
    reply = server.request("POST", "/v1/chat/completions", body, timeout=120)
    assert reply.status == 400, reply.body
    assert memory(server, "VmHWM") - before < 4 * len(body)
    wait_until(lambda: memory(server, "VmRSS") - before < len(body) / 4)


def test_a_client_that_leaves_while_its_body_is_read_is_forgotten(server):
    for _ in range(4):
        c = http.client.HTTPConnection("127.0.0.1", server.port)
        c.request("POST", "/v1/chat/completions", body=many_messages(16 * MEGABYTE))
        c.close()
    wait_until(lambda: server.requests() == 0, 60)
    wait_until(lambda: server.get("/v1/status").json()["ingress_bytes"] == 0)
    assert server.chat(max_tokens=2).status == 200


def test_a_client_that_leaves_while_its_request_goes_to_the_child_harms_nobody(server):
    """Wherever the message is cut: the child forgets it, and is the same one afterwards."""
    child, body = server.child(), long_message(30 * MEGABYTE)
    for i in range(10):
        c = http.client.HTTPConnection("127.0.0.1", server.port)
        c.request("POST", "/v1/chat/completions", body=body)
        time.sleep(i * 0.03)
        c.close()
    wait_until(lambda: server.requests() == 0, 60)
    assert server.chat(max_tokens=2).status == 200
    assert server.child() == child


def test_a_large_body_is_answered_like_a_small_one(server):
    """The same request, padded over the border by a field that nobody reads."""
    body = {"model": "llama", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 8,
            "temperature": 0}
    small = server.post("/v1/chat/completions", body)
    large = server.post("/v1/chat/completions", {**body, "metadata": {"a": "x" * 300_000}})
    assert small.status == large.status == 200
    assert small.json()["choices"] == large.json()["choices"]


def test_a_stop_while_large_bodies_are_read_ends_in_time(home):
    with serving(home, "-model", TINY, env={"SHOAL_LIMITS_GRACE": "0s"}) as server:
        threads = [threading.Thread(target=lambda: _try(server)) for _ in range(3)]
        for t in threads:
            t.start()
        time.sleep(0.5)
    for t in threads:
        t.join()


def _try(server):
    try:
        server.request("POST", "/v1/chat/completions", many_messages(40 * MEGABYTE), timeout=60)
    except (OSError, http.client.HTTPException):
        pass
