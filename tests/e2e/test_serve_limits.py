"""Who may ask, and how much: keys, Host, Origin, bodies, queues, slow clients. Bad HTTP by hand."""
import concurrent.futures
import json
import re
import socket
import threading
import time

import anthropic
import openai
import pytest

from server import REAL, TINY, Server, serving, wait_until

INFER, OPS, OTHER = "infer-key-0123456789", "ops-key-0123456789abc", "other-key-0123456789a"


def write_key(path, text, mode=0o600):
    path.write_text(text + "\n")
    path.chmod(mode)
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    home = tmp_path_factory.mktemp("limits")
    env = {"SHOAL_LIMITS_BODY": "64KiB", "SHOAL_LIMITS_HEADER_TIME": "1s",
           "SHOAL_LIMITS_UPLOAD_IDLE": "1s", "SHOAL_LIMITS_HEADERS": "8KiB"}
    with serving(home, "-model", TINY, env=env) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    home = tmp_path_factory.mktemp("keys")
    write_key(home / "infer", INFER)
    (home / "shoal.yaml").write_text(f"""
allowed_origins: ["https://app.example"]
keys:
  - {{name: fleet, key_file: {home}/infer, scopes: [infer]}}
  - {{name: ops, key_env: OPS_KEY, scopes: [infer, read, admin]}}
  - {{name: other, key_env: OTHER_KEY, scopes: [infer], models: ["nothing*"], agent: fixed}}
""")
    with serving(home, "-config", str(home / "shoal.yaml"), "-model", TINY, ready=False,
                 env={"OPS_KEY": OPS, "OTHER_KEY": OTHER}) as server:
        server._model = "llama"
        server.wait_ready(True)
        yield server


def raw(server, data, timeout=10):
    """All that comes back until the server closes."""
    with server.connect(timeout) as s:
        s.sendall(data)
        got = b""
        while piece := s.recv(65536):
            got += piece
    return got


def post(body, *headers):
    head = "".join(h + "\r\n" for h in headers)
    return (f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{head}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


# ---------------------------------------------------------------- keys

@pytest.mark.parametrize("header", [{"Authorization": f"Bearer {INFER}"}, {"x-api-key": INFER},
                                    {"Shoal-Key": INFER}])
def test_a_key_is_taken_from_three_headers(guarded, header):
    body = {"model": "llama", "max_tokens": 1, "messages": [{"role": "user", "content": "ab"}]}
    assert guarded.post("/v1/chat/completions", body, headers=header).status == 200


@pytest.mark.parametrize("path, key, status", [
    ("/v1/status", None, 401), ("/v1/status", "wrong-key-0123456789", 401),
    ("/v1/status", INFER, 403), ("/v1/status", OPS, 200), ("/metrics", INFER, 403),
    ("/version", OPS, 200), ("/health", None, 200), ("/ready", None, 200), ("/nope", None, 401),
    ("/nope", OPS, 404),
])
def test_scopes_are_told_before_anything_else(guarded, path, key, status):
    r = guarded.get(path, headers={"x-api-key": key} if key else {})
    assert r.status == status
    if status in (401, 403):
        assert r.json()["error"]["code"] == ("unauthorized" if status == 401 else "forbidden")


def test_a_wrong_key_is_refused_before_the_body_is_read(guarded):
    with guarded.connect() as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                  b"Content-Length: 60000\r\nx-api-key: wrong-key-0123456789\r\n\r\n")
        assert s.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_key_is_held_to_its_models_and_agent(guarded):
    body = {"model": "llama", "max_tokens": 1, "messages": [{"role": "user", "content": "ab"}]}
    r = guarded.post("/v1/chat/completions", body, headers={"x-api-key": OTHER})
    assert (r.status, r.json()["error"]["param"]) == (403, "model")
    wait_until(lambda: 'agent="fixed"' in guarded.errors())


@pytest.mark.parametrize("path, body", [
    ("/api/generate", {}), ("/api/generate", {"keep_alive": -1}),
    ("/api/generate", {"keep_alive": 0}), ("/api/chat", {"keep_alive": 0}), ("/api/show", {}),
])
def test_a_key_neither_loads_unloads_nor_shows_another_model(guarded, path, body):
    r = guarded.post(path, {"model": "llama", **body}, headers={"x-api-key": OTHER})
    assert (r.status, r.json()["code"]) == (403, "forbidden")
    loaded = guarded.get("/api/ps", headers={"x-api-key": OPS}).json()["models"]
    assert [m["name"] for m in loaded] == ["llama"]


def test_only_admin_stops_the_server(tmp_path):
    write_key(tmp_path / "ops", OPS)
    server = Server(tmp_path, "-model", TINY, "-key-file", str(tmp_path / "ops"), ready=False)
    assert server.post("/v1/admin/stop", b"", headers={"x-api-key": OPS}).status == 403
    assert server.stop() == 0
    with_all = Server(tmp_path, "-model", TINY)
    origin = {"Origin": "http://localhost"}
    assert with_all.post("/v1/admin/stop", b"", headers=origin).status == 403
    assert with_all.post("/v1/admin/stop", b"").status == 202
    assert with_all.process.wait(20) == 0
    with_all.stop()


def test_a_key_is_never_in_the_log(guarded):
    assert INFER not in guarded.errors() and OPS not in guarded.errors()


def test_a_key_file_that_others_may_read_is_refused(shoal, tmp_path):
    path = write_key(tmp_path / "open", OPS, 0o644)
    done = shoal("serve", "-dry-run", "-model", TINY, "-key-file", str(path))
    assert done.returncode == 1 and "mode 644 lets others read it" in done.stderr


@pytest.mark.parametrize("yaml, words", [
    ("keys: 5", "keys: section expected"),
    ("keys: {a: 1}", "a list expected"),
    ("keys: [{name: a, sha256: zz, scopes: [infer]}]", "c.yaml:1:18: keys[0].sha256: 64 hex"),
    ("keys: [{name: a, scopes: [infer]}]", "key_file, key_env or sha256: required"),
    (f"keys: [{{name: a, sha256: {'0' * 64}, scopes: [cook]}}]", "infer, read or admin expected"),
    (f"keys: [{{name: a, sha256: {'0' * 64}}}]", "scopes: at least one expected"),
    (f"keys: [{{name: a, sha256: {'0' * 64}, scopes: [read], weight: 0}}]",
     "weight: integer 1..1000"),
    (f"keys: [{{name: a, sha256: {'0' * 64}, scopes: [read], foo: 2}}]", "unknown field"),
])
def test_a_wrong_key_entry_names_entry_and_line(shoal, tmp_path, yaml, words):
    (tmp_path / "c.yaml").write_text(yaml)
    done = shoal("serve", "-dry-run", "-model", TINY, "-config", str(tmp_path / "c.yaml"))
    assert done.returncode == 1 and words in done.stderr, done.stderr


# ---------------------------------------------------------------- Host, Origin, CORS

@pytest.mark.parametrize("headers, status", [
    ({"Host": "evil.example"}, 403), ({"Host": "localhost:1"}, 200), ({"Host": "[::1]"}, 200),
    ({"Origin": "null"}, 403), ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "https://app.example"}, 200),
])
def test_host_and_origin_are_checked(guarded, headers, status):
    r = guarded.get("/health", headers=headers)
    assert r.status == status
    allowed = r.headers.get("access-control-allow-origin")
    assert allowed == ("https://app.example" if "app.example" in str(headers) else None)


def test_a_browser_may_ask_first_without_a_key(guarded):
    r = guarded.request("OPTIONS", "/v1/chat/completions",
                        headers={"Origin": "https://app.example"})
    assert r.status == 204 and r.headers["allow"] == "POST, OPTIONS"
    assert "authorization" in r.headers["access-control-allow-headers"]
    assert guarded.request("OPTIONS", "/health", headers={"Origin": "null"}).status == 403


# ---------------------------------------------------------------- HTTP by hand

@pytest.mark.parametrize("data, status", [
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
     b"Transfer-Encoding: chunked\r\n\r\n", 400),
    (b"BREW /pot HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
    (b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
     403),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 9000 + b"\r\n\r\n", 431),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    (post(b"a" * 70000), 413),
    (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
     + b"10001\r\n" + b"a" * 65537 + b"\r\n", 413),
])
def test_bad_http_gets_a_status_json_and_a_close(tiny, data, status):
    got = raw(tiny, data)
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), got[:300]
    assert json.loads(body)["error"]["message"]
    ids = re.findall(rb"(?i)\r\n(?:shoal-|x-)?request-id: (req_\w{22})\r\n", head + b"\r\n")
    assert len(ids) >= 2 and len(set(ids)) == 1


@pytest.mark.parametrize("path, keys", [
    ("/v1/messages", {"type", "error", "request_id"}), ("/api/chat", {"error", "code"}),
    ("/v1/chat/completions", {"error"}), ("/v1/responses", {"error"}), ("/nope", {"error"}),
])
@pytest.mark.parametrize("headers", ["", "Host: a\r\nHost: b\r\n",
                                     "Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n"])
def test_bad_http_is_told_in_the_form_of_its_path(tiny, path, keys, headers):
    got = raw(tiny, f"POST {path} HTTP/1.1\r\n{headers}\r\n".encode())
    assert re.match(rb"HTTP/1.1 (400|501) ", got), got[:200]
    body = json.loads(got.partition(b"\r\n\r\n")[2])
    assert set(body) == keys, body


@pytest.mark.parametrize("target", ["http://localhost/health", "HTTP://127.0.0.1:1/health?x=1",
                                    "https://localhost/health"])
def test_a_target_in_absolute_form_is_served(tiny, target):
    got = raw(tiny, f"GET {target} HTTP/1.1\r\nHost: ignored.example\r\n"
                    "Connection: close\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 200 ") and b'"status"' in got
    root = raw(tiny, b"GET http://localhost HTTP/1.1\r\nHost: localhost\r\n"
                     b"Connection: close\r\n\r\n")
    assert root.endswith(b"shoal is running\n")


def test_a_slow_header_and_a_body_cut_half_way_are_408(tiny):
    for data in (b"GET /health HT", post(b"{}" * 50)[:-30]):
        before = time.monotonic()
        got = raw(tiny, data)
        assert got.startswith(b"HTTP/1.1 408 ") and b"request_timeout" in got
        assert 0.5 < time.monotonic() - before < 5


def test_dripping_headers_do_not_hold_a_connection(tiny):
    with tiny.connect() as s:
        before = time.monotonic()
        try:
            for i in range(100):
                s.sendall(b"GET /health HTTP/1.1\r\nX-%d: a\r\n"[:5] if i else b"GET /he")
                time.sleep(0.1)
        except OSError:
            pass
        assert time.monotonic() - before < 8


def test_pipelined_requests_are_answered_in_order(tiny):
    one = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    got = raw(tiny, one % b"/health" + one % b"/nope" + one % b"/" +
              b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert [s[:3] for s in got.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200", b"200"]


def test_expect_continue_and_chunked_bodies_are_understood(tiny):
    body = json.dumps({"model": tiny.model(), "max_tokens": 1,
                       "messages": [{"role": "user", "content": "ab"}]}).encode()
    with tiny.connect() as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                  b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert s.recv(1000).startswith(b"HTTP/1.1 100 ")
        for i in range(0, len(body), 7):
            piece = body[i:i + 7]
            s.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        s.sendall(b"0\r\n\r\n")
        assert s.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_http_1_0_gets_its_stream_without_chunks(tiny):
    body = json.dumps({"model": tiny.model(), "max_tokens": 3, "stream": True,
                       "messages": [{"role": "user", "content": "ab"}]}).encode()
    got = raw(tiny, b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s"
              % (len(body), body))
    assert b"chunked" not in got and got.endswith(b"data: [DONE]\n\n")


def test_over_the_connection_limit_is_503(tmp_path):
    with serving(tmp_path, "-model", TINY, env={"SHOAL_LIMITS_CONNECTIONS": "4"}) as server:
        held = [server.connect() for _ in range(4)]
        time.sleep(0.2)
        got = raw(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 503 ") and b"connection limit" in got
        for s in held:
            s.close()
        wait_until(lambda: server.get("/health").status == 200)


# ---------------------------------------------------------------- queues and waits

def fill(server, count):
    """count streams that do not end by themselves."""
    body = json.dumps({"model": server.model(), "stream": True, "ignore_eos": True,
                       "messages": [{"role": "user", "content": "Write for ever."}]}).encode()
    held = []
    for _ in range(count):
        s = server.connect()
        s.sendall(post(body))
        held.append(s)
    wait_until(lambda: server.requests() >= count)
    return held


def test_E19_a_burst_against_a_full_queue_is_refused_at_once(tmp_path):
    with serving(tmp_path, "-model", REAL, "-slots", "1", "-queue", "1") as server:
        model = server.model()
        held = fill(server, 2)
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "a"}]}).encode()
        sockets = [server.connect() for _ in range(500)]
        times, statuses = [], []

        def ask(some):
            for s in some:
                before = time.monotonic()
                s.sendall(post(body))
                statuses.append(s.recv(4096)[:13])
                times.append(time.monotonic() - before)

        threads = [threading.Thread(target=ask, args=(sockets[i::20],)) for i in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(30)
        assert statuses == [b"HTTP/1.1 503 "] * 500
        assert sorted(times)[450] < 0.1, sorted(times)[-10:]
        for s in sockets + held:
            s.close()


def test_retry_after_is_told_once_it_is_measured(tmp_path):
    with serving(tmp_path, "-model", REAL, "-slots", "1", "-queue", "0") as server:
        held = fill(server, 1)
        r = server.chat()
        assert (r.status, r.json()["error"]["code"]) == (503, "overloaded")
        assert "retry-after" not in r.headers
        held.pop().close()
        wait_until(lambda: server.requests() == 0)
        for _ in range(3):
            assert server.chat(max_tokens=4).status == 200
        held = fill(server, 1)
        assert 1 <= int(server.chat().headers["retry-after"]) <= 10
        held.pop().close()


def test_max_wait_and_deadlines_end_a_wait_by_name(tmp_path):
    with serving(tmp_path, "-model", REAL, "-slots", "1", "-max-wait", "500ms") as server:
        held = fill(server, 1)
        for stream in (False, True):
            r = server.chat(stream=stream)
            assert (r.status, r.json()["error"]["code"]) == (503, "overloaded")
        r = server.chat(shoal={"deadline_ms": 200})
        assert (r.status, r.json()["error"]["code"]) == (504, "deadline_exceeded")
        held.pop().close()
        r = server.chat(shoal={"deadline_ms": 1500}, ignore_eos=True)
        assert r.status == 200 and r.json()["shoal"]["finish"] == "deadline"
        assert r.json()["choices"][0]["finish_reason"] == "length"
        assert r.json()["usage"]["completion_tokens"] > 0


def test_max_gen_ends_with_the_partial_text(tmp_path):
    with serving(tmp_path, "-model", REAL, "-max-gen", "700ms") as server:
        whole = server.chat(ignore_eos=True)
        assert whole.json()["shoal"]["finish"] == "max_gen"
        chunks, text = server.stream(ignore_eos=True)
        assert text and chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_requests_that_are_dear_to_prepare_hold_up_another_agent_by_one_of_them(tmp_path):
    """Schemas of a thousand bounded numbers, each another one: nearly a second of the one thread
    that prepares."""
    def dear(i):
        numbers = {f"p{k}": {"type": "number", "minimum": k + i / 97, "maximum": k + 99999.654321}
                   for k in range(1000)}
        return {"model": model, "max_tokens": 1, "shoal": {"agent": "dear"},
                "messages": [{"role": "user", "content": "a"}],
                "response_format": {"type": "json_schema", "json_schema": {
                    "name": "n", "schema": {"type": "object", "properties": numbers}}}}

    with serving(tmp_path, "-model", REAL) as server:
        model, path = server.model(), "/v1/chat/completions"
        ended = []
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            jobs = [pool.submit(lambda i=i: ended.append(
                server.post(path, dear(i), timeout=300).status)) for i in range(24)]
            wait_until(lambda: server.requests() >= 20)
            assert server.chat(max_tokens=1, shoal={"agent": "desk"}).status == 200
            before = len(ended)
            for j in jobs:
                j.result()
        assert len(ended) == 24 and set(ended) <= {200, 400}  # 400: more states than are allowed
        assert before <= 12, before  # in order of arrival it would have been 20 and more


# ---------------------------------------------------------------- silence and slow readers

def test_A28_pings_fill_the_silence_of_a_queue(tmp_path):
    env = {"SHOAL_LIMITS_PING": "200ms", "SHOAL_LIMITS_DEFER_HEADERS": "300ms",
           "SHOAL_DEADLINES_MAX_WAIT": "2s"}
    with serving(tmp_path, "-model", REAL, "-slots", "1", env=env) as server:
        held = fill(server, 1)
        r = server.chat(stream=True)
        events = r.body.decode().split("\n\n")
        pings = [json.loads(e[len(": shoal "):]) for e in events if e.startswith(": shoal ")]
        assert r.status == 200 and len(pings) >= 4
        assert all(p["phase"] == "queued" for p in pings)
        assert events[-2] == "data: [DONE]"
        assert json.loads(events[-4][6:])["error"]["code"] == "overloaded"
        held.pop().close()


def test_A28_the_official_clients_hear_nothing_of_pings(tmp_path):
    """Queued behind another one, then a long prompt, then text: each with pings in between. A
    client that gives up after two seconds of silence gets its whole reply."""
    env = {"SHOAL_LIMITS_PING": "100ms", "SHOAL_LIMITS_DEFER_HEADERS": "200ms"}
    turn = [{"role": "user", "content": "Count: " + " ".join(map(str, range(500)))}]
    with serving(tmp_path, "-model", REAL, "-slots", "1", env=env) as server:
        oai = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=2)
        ant = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=2)
        model = server.model()

        def chat():
            return "".join(c.choices[0].delta.content or "" for c in oai.chat.completions.create(
                model=model, messages=turn, max_tokens=8, temperature=0, stream=True))

        def message():
            with ant.messages.stream(model=model, max_tokens=8, messages=turn,
                                     extra_body={"temperature": 0}) as stream:
                return "".join(stream.text_stream)

        for say in (chat, message):
            held = fill(server, 1)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                waits = pool.submit(say)
                wait_until(lambda: server.requests() == 2)
                time.sleep(3)
                held.pop().close()
                text = waits.result()
            assert text and text == server.chat(turn[0]["content"], max_tokens=8,
                                                temperature=0).json()["choices"][0]["message"][
                                                    "content"]


def test_a_slow_reader_holds_only_itself(tmp_path):
    with serving(tmp_path, "-model", TINY) as server:
        body = json.dumps({"model": server.model(), "stream": True, "ignore_eos": True, "n": 8,
                           "logprobs": True, "top_logprobs": 20,
                           "messages": [{"role": "user", "content": "ab"}]}).encode()
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", server.port))
        s.sendall(post(body))

        def is_held():
            before = server.metric("shoal_eval_tokens_total")
            time.sleep(0.5)
            return 0 < before == server.metric("shoal_eval_tokens_total")

        wait_until(is_held, 40)
        assert server.metric("shoal_running") == 1
        for _ in range(5):
            assert server.chat(max_tokens=8, timeout=20).status == 200
        assert server.metric("shoal_running") == 1
        s.settimeout(30)
        got = b""
        while not got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            piece = s.recv(1 << 20)
            assert piece
            got = got[-100:] + piece
        s.close()


def test_a_deadline_that_cannot_be_kept_is_refused_before_it_has_passed(home):
    """From a measured rate and known tokens: half of what the prompt takes alone."""
    with serving(home, "-model", REAL, "-ctx", "8192") as server:
        def body(words, **more):
            text = " ".join(map(str, range(words)))
            return {"model": server.model(), "max_tokens": 2, **more,
                    "messages": [{"role": "user", "content": text}]}

        def rate():
            return server.get("/v1/status").json()["models"][0]["prefill_tps"]
        assert server.post("/v1/chat/completions", body(300)).status == 200
        wait_until(lambda: rate() > 0)
        long = body(1800)
        tokens = server.post("/v1/messages/count_tokens", long).json()["input_tokens"]
        deadline = tokens / rate() * 500
        begun = time.monotonic()
        late = server.post("/v1/chat/completions",
                           {**long, "shoal": {"deadline_ms": int(deadline)}})
        assert late.status == 503 and time.monotonic() - begun < deadline / 1000, late.body
        assert "first token" in late.json()["error"]["message"]
        assert late.json()["error"]["code"] == "overloaded"
        kept = server.post("/v1/chat/completions", body(20, shoal={"deadline_ms": 60000}))
        assert kept.status == 200


def test_a_deadline_counts_the_prompt_that_is_being_read_before_it(home):
    """Alone it would have time enough; behind a prompt of six times its size it has not. Small
    batches: between two steps the engine looks at what has come."""
    with serving(home, "-model", REAL, "-ctx", "8192", "-batch", "64", "-threads", "1",
                 "-backend", "cpu") as server:
        def body(words, **more):
            text = " ".join(f"{w}{more.get('user')}" for w in range(words))
            return {"model": server.model(), "max_tokens": 2, **more,
                    "messages": [{"role": "user", "content": text}]}

        def rate():
            return server.get("/v1/status").json()["models"][0]["prefill_tps"]
        assert server.post("/v1/chat/completions", body(60, user="a")).status == 200
        wait_until(lambda: rate() > 0)
        short = body(80, user="b")
        tokens = server.post("/v1/messages/count_tokens", short).json()["input_tokens"]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            long = pool.submit(server.post, "/v1/chat/completions", body(500, user="c"))
            wait_until(lambda: server.get("/v1/status").json()["models"][0]["running"] == 1)
            deadline = tokens / rate() * 2000
            begun = time.monotonic()
            late = server.post("/v1/chat/completions",
                               {**short, "shoal": {"deadline_ms": int(deadline)}})
            assert late.status == 503 and time.monotonic() - begun < deadline / 1000, late.body
            assert "first token" in late.json()["error"]["message"]
            assert long.result().status == 200
