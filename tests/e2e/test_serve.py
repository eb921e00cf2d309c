"""shoal serve from the outside: one model, plain HTTP and OpenAI's own client."""
import json
import os
import re
import signal
import socket
import struct
import time

import openai
import pytest

from conftest import ROOT
from server import REAL, TINY, Server, children_of, is_alive, serving, sse, wait_until


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("serve"), "-model", REAL) as server:
        yield server


@pytest.fixture(scope="module")
def client(real):
    return openai.OpenAI(base_url=real.url + "/v1", api_key="none", max_retries=0, timeout=60)


# ---------------------------------------------------------------- what answers

def test_banner_names_address_model_and_paths(real):
    assert f"listening  http://127.0.0.1:{real.port}\n" in real.banner
    assert "SmolLM2-135M-Instruct.Q4_1" in real.banner


def test_openai_sdk_gets_a_whole_reply(real, client):
    r = client.chat.completions.create(model=real.model(), max_tokens=12, temperature=0,
                                       messages=[{"role": "user", "content": "Say hello."}])
    assert r.choices[0].message.content and r.choices[0].message.role == "assistant"
    assert r.usage.completion_tokens <= 12
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens


def test_A31_openai_sdk_reads_every_chunk_of_a_stream(real, client):
    stream = client.chat.completions.create(
        model=real.model(), max_tokens=12, temperature=0, stream=True,
        stream_options={"include_usage": True},
        messages=[{"role": "user", "content": "Say hello."}])
    chunks = list(stream)
    assert len({c.id for c in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] in ("stop", "length")
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    for c in chunks:  # what a typed client reads was sent, and not filled in by its types
        assert {"id", "choices", "created", "model", "object", "system_fingerprint",
                "usage"} <= c.model_fields_set
        for choice in c.choices:
            assert {"delta", "finish_reason", "index", "logprobs"} <= choice.model_fields_set


def test_A30_a_stream_has_one_usage_chunk_if_asked_for_and_none_otherwise(real):
    chunks, _ = real.stream(max_tokens=4)
    assert all(c["usage"] is None and c["choices"] for c in chunks)
    chunks, _ = real.stream(max_tokens=4, stream_options={"include_usage": True})
    assert [bool(c["choices"]) for c in chunks].count(False) == 1


@pytest.mark.parametrize("more", [{"temperature": 0}, {"seed": 7, "temperature": 1},
                                  {"seed": 7, "n": 3}, {"seed": 3, "stop": [" ", "ow"]},
                                  {"seed": 5, "logprobs": True, "top_logprobs": 2}])
def test_A17_a_stream_joined_equals_the_reply_that_is_not_streamed(real, more):
    whole = real.chat("Count to ten.", max_tokens=24, **more).json()
    chunks, _ = real.stream("Count to ten.", max_tokens=24, **more)
    for choice in whole["choices"]:
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == choice["index"]]
        joined = "".join(c["delta"].get("content") or "" for c in mine)
        assert joined == choice["message"]["content"]
        assert mine[-1]["finish_reason"] == choice["finish_reason"]
        if "logprobs" in more:
            logprobs = [p for c in mine if c["logprobs"] for p in c["logprobs"]["content"]]
            assert logprobs == choice["logprobs"]["content"]


def test_A25_a_seed_counts_and_is_told(real):
    first, again = (real.chat(seed=11, max_tokens=16).json() for _ in range(2))
    other = real.chat(seed=12, max_tokens=16).json()
    text = [r["choices"][0]["message"]["content"] for r in (first, again, other)]
    assert text[0] == text[1] != text[2] and first["seed"] == 11
    drawn = real.chat(max_tokens=16).json()
    same = real.chat(max_tokens=16, seed=drawn["seed"]).json()
    assert same["choices"][0]["message"] == drawn["choices"][0]["message"]


def test_every_reply_has_its_id_in_three_headers(real):
    for r in (real.chat(max_tokens=1), real.get("/health"), real.get("/nope")):
        ids = {r.headers[n] for n in ("shoal-request-id", "x-request-id", "request-id")}
        assert len(ids) == 1 and len(ids.pop()) == len("req_") + 22


def test_cached_tokens_of_a_repeated_prompt_are_told(real):
    text = "A long text that is repeated, so that its pages are found again. " * 8
    real.chat(text, max_tokens=1)
    r = real.chat(text, max_tokens=1)
    cached = r.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= 64 and r.headers["shoal-cache"].startswith(f"cached={cached}; prompt=")


# ---------------------------------------------------------------- other paths

def test_health_ready_version_status(real):
    assert real.get("/").body == b"shoal is running\n"
    assert real.get("/health").json() == {"status": "ok", "reasons": []}
    ready = real.get("/ready").json()
    assert ready["ready"] is True and ready["state"] == "loaded"
    assert set(real.get("/version").json()) >= {"version", "git", "isa", "isa_built", "cuda"}
    assert real.get("/v1/status").json()["models"][0]["context"] > 0


def test_E05_health_answers_at_once_during_a_long_prefill(real):
    body = json.dumps({"model": real.model(), "max_tokens": 1, "messages": [
        {"role": "user", "content": "word " * 6000}]})
    with real.connect() as s:
        s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        wait_until(lambda: real.requests() == 1)
        times = []
        for _ in range(20):
            before = time.monotonic()
            assert real.get("/health").status == 200
            times.append(time.monotonic() - before)
        assert sorted(times)[len(times) // 2] < 0.05, times
    wait_until(lambda: real.requests() == 0)


@pytest.mark.parametrize("method, path, status, code, words", [
    ("GET", "/nope", 404, "not_found", "no path /nope here"),
    ("POST", "/chat/completions", 404, "not_found", "there is POST /v1/chat/completions"),
    ("GET", "/v1/chat/completions", 405, "bad_method", "takes POST, not GET"),
    ("POST", "/health", 405, "bad_method", "takes GET, not POST"),
    ("POST", "/v1/requests", 405, "bad_method", "takes GET, not POST"),
])
def test_A08_a_wrong_path_or_method_is_told_in_json(real, method, path, status, code, words):
    r = real.request(method, path, b"{}")
    assert (r.status, r.json()["error"]["code"]) == (status, code)
    assert words in r.json()["error"]["message"]


def test_A08_the_doubled_v1_is_served(real):
    r = real.post("/v1/v1/chat/completions", {"model": real.model(), "max_tokens": 1, "messages": [
        {"role": "user", "content": "ab"}]})
    assert r.status == 200


def test_head_is_get_without_a_body(real):
    for path in ("/", "/health", "/ready"):
        r = real.request("HEAD", path)
        assert (r.status, r.body) == (200, b"")


# ---------------------------------------------------------------- bad input

@pytest.mark.parametrize("body, words", [
    (b"{", "json"),
    (b"[]", "object expected"),
    (b"{}", "model: required"),
    (b'{"model":"m","messages":3}', "messages: array expected, got number"),
    (b'{"model":"m","messages":[{"role":"user","content":5}]}', "messages[0].content"),
    (b'{"model":"m","messages":[{"role":"user","content":"a"}],"temperature":9}', "temperature"),
    (b'{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":-1}', "max_tokens"),
    (b'{"model":"m","messages":' + b"[" * 100000 + b"]" * 100000 + b"}", "nested too deeply"),
])
def test_A32_a_malformed_body_is_400_with_a_path(real, body, words):
    r = real.request("POST", "/v1/chat/completions", body)
    assert r.status == 400 and words in r.json()["error"]["message"], r.body


def test_an_early_failure_keeps_its_status_on_a_stream(real):
    r = real.chat("word " * 9000, stream=True)
    error = r.json()["error"]
    assert (r.status, error["code"]) == (400, "context_length_exceeded")
    assert error["prompt_tokens"] > error["limit"] == 8192


def test_an_encoded_body_is_refused_by_name(real):
    r = real.request("POST", "/v1/chat/completions", b"x", headers={"Content-Encoding": "gzip"})
    assert r.status == 415 and "gzip" in r.json()["error"]["message"]


# ---------------------------------------------------------------- clients that go away

def half_close(s):
    s.shutdown(socket.SHUT_WR)


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


@pytest.mark.parametrize("leave", [socket.socket.close, reset, half_close])
@pytest.mark.parametrize("stream", [False, True])
def test_E08_a_client_that_leaves_ends_its_generation(real, leave, stream):
    body = json.dumps({"model": real.model(), "stream": stream, "ignore_eos": True,
                       "messages": [{"role": "user", "content": "Write for ever."}]})
    before = real.metric('shoal_requests_total{dialect="openai_chat",outcome="cancelled"}')
    s = real.connect()
    s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
              f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    wait_until(lambda: real.metric("shoal_running") == 1)
    leave(s)
    wait_until(lambda: real.metric("shoal_running") == 0, 1)
    after = real.metric('shoal_requests_total{dialect="openai_chat",outcome="cancelled"}')
    assert after == before + 1
    s.close()
    tokens = real.metric("shoal_eval_tokens_total")
    assert real.chat(max_tokens=2).status == 200
    assert real.metric("shoal_eval_tokens_total") <= tokens + 2


# ---------------------------------------------------------------- start and stop

def test_sigterm_lets_a_short_reply_finish(tmp_path):
    server = Server(tmp_path, "-model", REAL)
    child = server.child()
    body = json.dumps({"model": server.model(), "stream": True, "ignore_eos": True,
                       "max_tokens": 30,
                       "messages": [{"role": "user", "content": "Hi"}]})
    s = server.connect()
    s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
              f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    first = s.recv(1)
    assert server.stop() == 0
    rest = b""
    while piece := s.recv(65536):
        rest += piece
    assert b"data: [DONE]" in first + rest and b'"finish_reason":"length"' in rest
    wait_until(lambda: not is_alive(child))


def test_sigint_ends_a_long_reply_in_band_after_the_grace(tmp_path):
    server = Server(tmp_path, "-model", REAL, env={"SHOAL_LIMITS_GRACE": "300ms"})
    body = json.dumps({"model": server.model(), "stream": True, "ignore_eos": True,
                       "messages": [{"role": "user", "content": "Hi"}]})
    s = server.connect()
    s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
              f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    got = s.recv(1)
    before = time.monotonic()
    assert server.stop(signal.SIGINT) == 0
    assert time.monotonic() - before < 5
    while piece := s.recv(65536):
        got += piece
    assert b"the server is stopping" in got and b'"finish_reason":"error"' in got


def test_a_stopping_server_refuses_new_connections_at_once(tmp_path):
    server = Server(tmp_path, "-model", REAL, env={"SHOAL_LIMITS_GRACE": "3s"})
    body = json.dumps({"model": server.model(), "stream": True, "ignore_eos": True,
                       "messages": [{"role": "user", "content": "Hi"}]})
    with server.connect() as s:
        s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        s.recv(1)
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionRefusedError):
            wait_until(lambda: server.connect().close(), 2)
        assert server.process.poll() is None
        assert server.process.wait(10) == 0
    assert server.stop() == 0


def test_a_killed_server_takes_its_child_along(tmp_path):
    server = Server(tmp_path, "-model", TINY)
    child = server.child()
    server.process.kill()
    server.process.communicate(timeout=20)
    wait_until(lambda: not is_alive(child))


def test_a_taken_port_and_an_open_address_are_refused(shoal, real):
    done = shoal("serve", "-model", TINY, "-addr", f"127.0.0.1:{real.port}")
    assert done.returncode == 1
    assert f"the port is in use by process {real.process.pid}\n" in done.stderr
    done = shoal("serve", "-model", TINY, "-addr", "0.0.0.0:0")
    assert done.returncode == 1 and "needs keys" in done.stderr


def test_dry_run_says_what_and_ends(shoal):
    done = shoal("serve", "-dry-run", "-model", TINY, "-addr", "127.0.0.1:4711")
    assert done.returncode == 0 and "http://127.0.0.1:4711" in done.stdout
    choice = shoal("plan", TINY).stdout.split("choice      ")[1].split("\n")[0].split(",")[0]
    assert re.search(r"^models +\S*llama: " + choice + r", up to \d+ sequences, pool .*; "
                     r"all weights in RAM, computed on cpu$", done.stdout, re.M), done.stdout


def test_dry_run_tells_legs_routes_and_cache(shoal, home):
    path = home / "c.yaml"
    path.write_text("""
legs:
  cloud: {dialect: anthropic, url: "https://api.example.com", model: m}
  box: {dialect: openai, url: "http://127.0.0.1:9"}
  desk: {kind: engine, model: tiny}
routes:
  - match: {model: "claude-*", agent: "a*"}
    legs: [cloud, [box, desk]]
    shadow: desk
cache: {spill: off}
""")
    done = shoal("serve", "-dry-run", "-config", str(path), "-addr", "unix:/tmp/none")
    assert done.returncode == 0, done.stderr
    assert """legs       cloud: anthropic https://api.example.com m
           box: openai_chat http://127.0.0.1:9
           desk: engine tiny
routes     model claude-* agent a* to cloud, [box, desk]; shadow desk
cache      in memory, nothing on disk
would serve unix:/tmp/none
dialects   POST /v1/chat/completions
""" in done.stdout, done.stdout


def test_the_documented_configuration_is_accepted(shoal, home):
    """The annotated example of BEHAVIOUR 3.1, with keys where it looks for them."""
    with open(os.path.join(ROOT, "docs", "BEHAVIOUR.md"), encoding="utf-8") as f:
        example = re.search(r"^```yaml\n(.*?)^```", f.read(), re.S | re.M).group(1)
    (home / "c.yaml").write_text(example)
    keys = home / ".shoal" / "keys"
    keys.mkdir(parents=True)
    for name in re.findall(r"key_file: ~/.shoal/keys/(\w+)", example):
        (keys / name).write_text(f"key-of-{name}-0123456789\n")
        (keys / name).chmod(0o600)
    env = {name: f"{name}-0123456789" for name in re.findall(r"key_env: (\w+)", example)}
    done = shoal("serve", "-dry-run", "-config", str(home / "c.yaml"), env=env)
    assert done.returncode == 0, done.stderr
    assert "routes     model claude-* agent * to claude, [desk, box2]; shadow desk" in done.stdout


def test_the_scheduler_says_each_second_what_it_did_when_asked_to(tmp_path):
    line = re.compile(r"sched: \d+\.\d steps/s, batch \d+\.\d, running \d+, ms a step "
                      r"\d+\.\d\d scheduler \d+\.\d\d compute \d+\.\d\d sampling, "
                      r"admitted \d+, \d+ prompt tokens, \d+ % reused$", re.M)
    for value, says in (("1", True), ("0", False)):
        home = tmp_path / value
        home.mkdir()
        with serving(home, "-model", TINY, env={"SHOAL_DEBUG_SCHED": value}) as server:
            begin = time.monotonic()
            while time.monotonic() - begin < (20 if says else 2.5):
                assert server.chat(max_tokens=50, ignore_eos=True).status == 200
                if line.search(server.errors()):
                    break
            assert bool(line.search(server.errors())) == says, server.errors()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_full_disk_for_the_log_harms_no_reply(tmp_path, form):
    """Each line is lost, and nothing else: no reply, no child, no memory."""
    path = tmp_path / "config.yaml"
    path.write_text(f"logging: {{file: /dev/full, level: debug, format: {form}}}\n")
    with serving(tmp_path, "-model", TINY, "-config", str(path)) as server:
        child = server.child()
        for i in range(20):
            assert server.chat(max_tokens=4, seed=i).status == 200
        assert server.post("/v1/chat/completions", {"model": "nobody"}).status == 400
        server.process.send_signal(signal.SIGHUP)  # the log is begun anew, and full again
        assert server.stream("ab", max_tokens=4)[1] is not None
        health = server.get("/health")
        assert health.status == 200 and health.json()["status"] == "ok"
        assert server.child() == child
        assert "request" not in server.errors()  # lines do not go elsewhere either


# ---------------------------------------------------------------- a child that dies

def killed_stream(server, path, body, pieces):
    """Body of that stream, whose child was killed after so many of its pieces."""
    body, child = json.dumps(body), server.child()
    with server.connect(60) as s:
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        got = b""
        while got.count(b"\n") < pieces:
            piece = s.recv(4096)
            assert piece, got
            got += piece
        os.kill(child, signal.SIGKILL)
        while piece := s.recv(65536):
            got += piece
    wait_until(lambda: server.child() != child)
    return got


def test_a_child_killed_in_mid_stream_is_not_seen(real):
    asked = {"seed": 5, "max_tokens": 60, "ignore_eos": True}
    _, plain = real.stream("Write about a lighthouse.", **asked)
    got = killed_stream(real, "/v1/chat/completions", {
        "model": real.model(), "stream": True, **asked,
        "messages": [{"role": "user", "content": "Write about a lighthouse."}]}, 40)
    assert sse(dechunked(got))[1] == plain


USAGES = {  # where each dialect's stream tells tokens of the prompt, and of the reply
    "/v1/chat/completions": ({"stream_options": {"include_usage": True}},
                             r'"prompt_tokens":(\d+)', r'"completion_tokens":(\d+)'),
    "/v1/messages": ({}, r'"message_start".*?"usage":({.*?})', r'"output_tokens":(\d+)'),
    "/v1/responses": ({}, r'"input_tokens":(\d+)', r'"output_tokens":(\d+)'),
    "/api/chat": ({}, r'"prompt_eval_count":(\d+)', r'"eval_count":(\d+)'),
}


@pytest.mark.parametrize("path", sorted(USAGES))
def test_a_reply_whose_child_was_killed_tells_the_usage_of_a_whole_one(tmp_path, path):
    """A resumed reply starts anew only for the child: what it had computed counts once. A server
    each: five kills in a row are a crash loop."""
    more, prompt, output = USAGES[path]
    turn = [{"role": "user", "content": "Write about a lighthouse."}]
    body = {"stream": True, "seed": 5, "ignore_eos": True, **more}
    if path == "/api/chat":
        body.update(messages=turn, options={"num_predict": 60, "seed": 5})
    elif path == "/v1/responses":
        body.update(input=turn, max_output_tokens=60)
    else:
        body.update(messages=turn, max_tokens=60)

    def told(text):
        def counts(found):  # an object of Anthropic's: all that the prompt has, cached or not
            numbers = [int(n) for n in re.findall(r'(?:^|input_tokens":)(\d+)', found)]
            return sum(numbers)
        return (counts(re.findall(prompt, text, re.S)[-1]), int(re.findall(output, text)[-1]))

    with serving(tmp_path, "-model", REAL) as server:
        body["model"] = server.model()
        whole = server.request("POST", path, json.dumps(body).encode()).body.decode()
        killed = dechunked(killed_stream(server, path, body, 40)).decode()
    assert told(whole)[1] == 60 and told(whole)[0] > 0
    assert told(killed) == told(whole)


def dechunked(raw):
    """Body of a chunked reply read from the socket."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        n = int(size, 16)
        body += rest[:n]
        rest = rest[n + 2:]
    return body


# ---------------------------------------------------------------- every protocol, every model

def test_every_path_of_the_document_answers(real):
    paths = real.get("/openapi.json").json()["paths"]
    assert len(paths) > 20
    for path, methods in paths.items():
        if "get" in methods:
            r = real.get(path.replace("{id}", real.model()))
            assert r.status in (200, 404 if "{id}" in path else 200), (path, r.status)
        elif path.startswith("/v1/agents/"):  # takes no body
            r = real.request("DELETE", path.replace("{id}", "nobody"))
            assert r.status == 200 and r.json() == {"cancelled": 0}
        elif not path.startswith("/v1/admin/"):
            (method,) = methods
            r = real.request(method.upper(), path, b"{")
            off = path in ("/api/pull", "/api/delete")  # hub.http_pull is not set
            assert r.status == (501 if off else 400) and r.json()["error"], (path, r.status)


def test_ollama_version_is_what_its_clients_expect(real):
    assert real.get("/api/version").json() == {"version": "0.13.0",
                                               "shoal": real.get("/version").json()["version"]}


def test_a_model_is_loaded_when_it_is_asked_for_and_unloaded_when_idle(tmp_path):
    store = tmp_path / ".shoal" / "models"
    store.mkdir(parents=True)
    (store / "tiny.gguf").symlink_to(TINY)
    with serving(tmp_path, "-keepalive", "1s") as server:
        assert server.get("/ready").json()["state"] == "idle"
        assert children_of(server.process.pid) == []
        server._model = "TINY"
        r = server.chat(max_tokens=1)
        assert (r.status, r.json()["model"], r.headers["shoal-model"]) == (200, "TINY", "tiny")
        assert len(children_of(server.process.pid)) == 1
        wait_until(lambda: children_of(server.process.pid) == [])
        assert server.get("/health").json()["status"] == "ok"
        server._model = "tini"
        r = server.chat(max_tokens=1)
        assert (r.status, r.json()["error"]["code"]) == (404, "model_not_found")


def test_a_model_that_cannot_be_loaded_leaves_the_server_up(tmp_path):
    store = tmp_path / ".shoal" / "models"
    store.mkdir(parents=True)
    (store / "tiny.gguf").symlink_to(TINY)
    (store / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with serving(tmp_path) as server:
        server._model = "bad"
        for stream in (False, True):
            r = server.chat(stream=stream)
            assert (r.status, r.json()["error"]["code"]) == (500, "load_failed"), r.body
        server._model = "tiny"
        assert server.chat(max_tokens=1).status == 200
