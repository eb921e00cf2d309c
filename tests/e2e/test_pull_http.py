"""POST /api/pull and DELETE /api/delete with the ollama package: docs/BEHAVIOUR.md 5.6."""
import concurrent.futures
import hashlib
import json
import os
import sys
import time

import ollama
import pytest

from conftest import ROOT
from server import TINY, serving, wait_until

sys.path.insert(0, os.path.join(ROOT, "tests", "hub"))
from hub import Hub  # noqa: E402

PIECE = 65536
with open(TINY, "rb") as _f:
    MODEL = _f.read()
LARGE = b"GGUF" + bytes(range(256)) * (PIECE // 256) * 10
NAME = "m.Q4_K_M.gguf"


@pytest.fixture
def hub():
    with Hub() as h:
        h.add("o/r", {NAME: MODEL})
        h.add("o/large", {"large.gguf": LARGE})
        h.add("p/secret", {"s.gguf": LARGE}, gated=True)
        yield h


@pytest.fixture
def store(home):
    return home / ".shoal" / "models"


def serve(home, hub, *args, extra="", on=True, **env):
    path = os.path.join(home, "config.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"hub: {{http_pull: {str(on).lower()}, retry: 10ms, piece: {PIECE}, "
                f"endpoint: '{hub.url}', allow: [\"o/*\", \"p/*\"]}}\n{extra}")
    return serving(home, "-config", path, *args, env=env, ready=False)


def client(server, **kw):
    return ollama.Client(host=server.url, timeout=60, **kw)


def refused(call):
    with pytest.raises(ollama.ResponseError) as e:
        call()
    return e.value.status_code, e.value.error


def names(server):
    return [m.model for m in client(server).list().models]


def test_a_stream_tells_the_file_and_the_model_answers_at_once(home, hub, store):
    with serve(home, hub) as server:
        lines = list(client(server).pull("o/r", stream=True))
        assert lines[0].status == "pulling manifest" and lines[-1].status == "success"
        digest = hashlib.sha256(MODEL).hexdigest()
        told = [p for p in lines if p.digest]
        assert {(p.status, p.digest, p.total) for p in told} == \
            {("pulling " + digest[:12], "sha256:" + digest, len(MODEL))}
        assert told[-1].completed == len(MODEL)
        assert [p.completed for p in told] == sorted(p.completed for p in told)
        assert (store / NAME).read_bytes() == MODEL
        assert client(server).generate(NAME[:-5], "ab", options={"num_predict": 2}).eval_count == 2


def test_a_whole_reply_is_success_and_a_second_pull_asks_for_no_byte(home, hub):
    with serve(home, hub) as server:
        assert client(server).pull("o/r").status == "success"
        hub.forget()
        assert client(server).pull("hf.co/o/r:Q4_K_M").status == "success"
        assert not hub.asked("cdn")
        raw = server.post("/api/pull", {"name": "o/r"})
        assert raw.headers["content-type"] == "application/x-ndjson"
        assert json.loads(raw.body.splitlines()[-1]) == {"status": "success"}


@pytest.mark.parametrize("model,status,words", [
    ("llama3:8b", 400, "owner/"), ("x/y", 403, "hub.allow"),
    ("o/none", 404, "o/none"), ("p/secret", 502, "private, gated"),
    ("http://127.0.0.1:9/o/r/resolve/main/m.gguf", 403, "hub.allow")])
def test_what_cannot_be_pulled_is_refused_with_its_status(home, hub, model, status, words):
    with serve(home, hub) as server:
        for stream in (False, True):
            code, text = refused(lambda s=stream: list(client(server).pull(model, stream=s)))
            assert (code, words in text) == (status, True), (code, text)
        assert server.get("/health").json()["status"] == "ok"


def test_fields_of_another_type_are_named(home, hub):
    with serve(home, hub) as server:
        for body, words in (({"model": 7}, "model: a string"), ({"model": "o/r", "stream": 1},
                            "stream: a boolean"), ({"model": "o/r", "insecure": True}, "insecure"),
                            ([], "body: an object"), ({}, "model: required"), (b"{", "")):
            reply = server.post("/api/pull", body)
            assert reply.status == 400 and words in reply.json()["error"], reply.body
            assert reply.json()["code"] == "bad_request"
        assert server.get("/api/pull").status == 405


def test_off_is_501_and_a_key_without_admin_403(home, hub):
    with serve(home, hub, on=False) as server:
        for call in (lambda c: c.pull("o/r"), lambda c: c.delete("m")):
            code, text = refused(lambda c=call: c(client(server)))
            assert code == 501 and "hub.http_pull" in text
    keys = ("keys:\n  - {name: all, key_env: ALL, scopes: [infer, read]}\n"
            "  - {name: ops, key_env: OPS, scopes: [infer, read, admin]}\n")
    secret = {"ALL": "all-key-of-many-letters", "OPS": "ops-key-of-many-letters"}
    with serve(home, hub, extra=keys, **secret) as server:
        def bearer(name):
            return client(server, headers={"Authorization": "Bearer " + secret[name]})
        for call in (lambda c: c.pull("o/r"), lambda c: c.delete("m")):
            assert refused(lambda c=call: c(bearer("ALL")))[0] == 403
            assert refused(lambda c=call: c(client(server)))[0] == 401
        assert not hub.requests
        assert bearer("OPS").pull("o/r").status == "success"
        assert bearer("OPS").delete(NAME[:-5]).status == "success"


def test_an_error_after_the_first_line_is_the_last_line(home, hub, store):
    hub.fault("wrong_range", times=1000)
    with serve(home, hub) as server:
        stream = client(server).pull("o/large", stream=True)
        assert next(stream).status == "pulling manifest"
        code, text = refused(lambda: list(stream))
        assert code == -1 and "another range" in text, (code, text)
        assert not (store / "large.gguf").exists()
        assert server.get("/health").json()["status"] == "ok"


def test_faults_of_the_hub_are_got_over(home, hub, store):
    for fault in ("reset", "close", "flip", "reset"):
        hub.fault(fault)
    hub.fault("status", where="hub", status=503)
    with serve(home, hub) as server:
        assert client(server).pull("o/large").status == "success"
    assert (store / "large.gguf").read_bytes() == LARGE


def test_a_client_that_leaves_stops_the_pull_and_the_next_goes_on(home, hub, store):
    hub.rate = 200_000
    with serve(home, hub) as server:
        stream = client(server).pull("o/large", stream=True)
        for line in stream:
            if line.completed and line.completed >= 3 * PIECE:
                break
        stream.close()
        state = store / ".large.gguf.state"
        assert state.exists()
        time.sleep(0.5)
        asked = len(hub.asked("cdn"))
        time.sleep(0.5)
        assert len(hub.asked("cdn")) == asked
        assert server.get("/health").json()["status"] == "ok"
        hub.rate = 0
        hub.forget()
        assert client(server).pull("o/large").status == "success"
        fetched = sum(r.range[1] - r.range[0] + 1 for r in hub.asked("cdn") if r.range)
        assert fetched <= len(LARGE) - 2 * PIECE
    assert (store / "large.gguf").read_bytes() == LARGE


def test_two_clients_share_a_pull_and_one_may_leave(home, hub, store):
    hub.rate = 200_000
    with serve(home, hub) as server:
        first = client(server).pull("o/large", stream=True)
        wait_until(lambda: next(first).completed)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            second = pool.submit(lambda: client(server).pull("o/large").status)
            other = pool.submit(lambda: client(server).pull("hf.co/o/large").status)
            time.sleep(0.3)
            first.close()
            assert second.result(60) == "success" and other.result(60) == "success"
        ranges = [r.range for r in hub.asked("cdn") if r.range]
        assert len(ranges) == len(set(ranges))
    assert (store / "large.gguf").read_bytes() == LARGE


def test_the_server_answers_while_it_pulls_and_ends_when_told(home, hub, store):
    hub.rate = 50_000
    with serve(home, hub, "-model", TINY) as server:
        server.wait_ready(True)
        stream = client(server).pull("o/large", stream=True)
        wait_until(lambda: next(stream).completed)
        assert server.chat("ab", max_tokens=2).status == 200
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 5
        code, text = refused(lambda: list(stream))
        assert code == -1 and "stopping" in text
    assert (store / ".large.gguf.state").exists()


def test_delete_takes_own_models_and_no_others(home, hub, store):
    dirs = home / "models"
    dirs.mkdir()
    (dirs / "other.gguf").write_bytes(MODEL)
    with serve(home, hub) as server:
        c = client(server)
        assert c.pull("o/r").status == "success"
        wait_until(lambda: NAME[:-5] in names(server))
        assert refused(lambda: c.delete("other"))[0] == 400
        assert refused(lambda: c.delete("m.Q4"))[0] == 404
        assert refused(lambda: c.delete(str(dirs / "other.gguf")))[0] == 404
        c.generate(NAME[:-5], "ab", options={"num_predict": 1})
        code, text = refused(lambda: c.delete(NAME[:-5]))
        assert code == 409 and "is loaded" in text
        c.generate(NAME[:-5], keep_alive=0)
        assert c.delete(NAME[:-5]).status == "success"
        assert not (store / NAME).exists() and (dirs / "other.gguf").exists()
        wait_until(lambda: NAME[:-5] not in names(server))
        assert refused(lambda: c.delete(NAME[:-5]))[0] == 404
