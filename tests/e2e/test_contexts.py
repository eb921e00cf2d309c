"""Saved contexts: one prefix under a name, before the messages of any request that names it."""
import json
import os
import signal
import threading
import time

import pytest

from server import TINY, Server, is_alive, serving, wait_until
from test_cache_misses import KEYS, LONG, QWEN3, WITH_KEYS, bearer, config

THINKER = TINY.replace("llama.gguf", "qwen3.gguf")
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture
def server(home):
    with serving(home, "-model", TINY) as s:
        yield s


@pytest.fixture
def keyed(home):
    env = {name.upper(): key for name, key in KEYS.items()}
    with serving(home, "-model", TINY, "-config", config(home, WITH_KEYS), env=env) as s:
        yield s


def save(server, status=201, headers=None, text=LONG, **more):
    body = {"model": "llama", "messages": [{"role": "system", "content": text}], **more}
    r = server.post("/v1/contexts", body, headers=headers)
    assert r.status == status, r.body
    return r.json()


def code(reply):
    e = reply.json()["error"]
    return reply.status, e["code"] if isinstance(e, dict) else reply.json()["code"]


def fork(server, dialect, context, text="ab", headers=None, **more):
    """The reply, and its (cached, prompt) tokens if there is one."""
    turn = [{"role": "user", "content": text}]
    body = {"model": "llama", "shoal": {"context": context, **more}}
    path, rest = {
        "chat": ("/v1/chat/completions", {"messages": turn, "max_tokens": 1}),
        "responses": ("/v1/responses", {"input": turn, "max_output_tokens": 1}),
        "anthropic": ("/v1/messages", {"messages": turn, "max_tokens": 1}),
        "ollama": ("/api/chat", {"messages": turn, "stream": False,
                                 "options": {"num_predict": 1}}),
    }[dialect]
    r = server.post(path, {**body, **rest}, headers=headers)
    if r.status != 200:
        return r, None
    cache = r.json()["shoal"]["cache"]
    return r, (cache["cached"], cache["prompt"])


DIALECTS = ("chat", "responses", "anthropic", "ollama")


def test_forks_of_one_context_reuse_all_of_it_on_every_dialect(server):
    made = save(server, id="rules")
    assert made["object"] == "context" and made["id"] == "rules" and made["model"] == "llama"
    assert made["tokens"] > 300 and made["pages"] == -(-made["tokens"] // 32)
    whole = server.post("/v1/chat/completions", {
        "model": "llama", "max_tokens": 1, "shoal": {"cache": "off"},
        "messages": [{"role": "system", "content": LONG}, {"role": "user", "content": "text 0"}]})
    expected = whole.json()["shoal"]["cache"]["prompt"]
    results = [None] * 8

    def one(i):
        results[i] = fork(server, DIALECTS[i % 4], "rules", f"text {i}")

    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for reply, counts in results:
        assert reply.status == 200, reply.body
        cached, prompt = counts
        assert prompt == expected  # the prompt is the one that whole messages make
        # All but what the template puts behind the last message of a prompt to be answered.
        assert cached >= made["tokens"] - 32, (cached, made)
    assert server.get("/v1/contexts/rules").json()["readers"] == 0


def test_the_reply_is_that_of_the_whole_messages(server):
    save(server, id="rules")
    turn = {"role": "user", "content": "Say hello."}
    more = {"model": "llama", "max_tokens": 12, "temperature": 0}
    whole = server.post("/v1/chat/completions", {
        **more, "messages": [{"role": "system", "content": LONG}, turn],
        "shoal": {"cache": "off"}})
    forked = server.post("/v1/chat/completions", {
        **more, "messages": [turn], "shoal": {"context": "rules"}})
    assert whole.json()["choices"] == forked.json()["choices"]


def test_saving_the_same_again_is_200_and_other_content_is_409(server):
    first = save(server, id="rules")
    again = save(server, 200, id="rules")
    assert again["created_at"] == first["created_at"]
    assert again["cached_tokens"] >= first["tokens"] - 32
    for other in ({"text": LONG + "x"}, {"tools": [TOOL]}):
        body = {"model": "llama", "id": "rules", **other}
        body["messages"] = [{"role": "system", "content": body.pop("text", LONG)}]
        assert code(server.post("/v1/contexts", body)) == (409, "conflict")
    made = server.post("/v1/contexts", {"model": "llama", "system": LONG})
    assert made.status == 201 and made.json()["id"].startswith("ctx_")
    assert made.json()["tokens"] == first["tokens"]
    ids = [row["id"] for row in server.get("/v1/contexts").json()["data"]]
    assert ids == ["rules", made.json()["id"]]


def test_another_key_sees_nothing_of_it_and_admin_sees_all(keyed):
    one, two, ops = bearer("one"), bearer("two"), bearer("ops")
    save(keyed, headers=one, id="rules")
    for dialect in DIALECTS:
        reply, _ = fork(keyed, dialect, "rules", headers=two)
        assert reply.status == 404 and b"no context rules" in reply.body, reply.body
    assert keyed.get("/v1/contexts", headers=two).json()["data"] == []
    for method in ("GET", "DELETE"):
        assert code(keyed.request(method, "/v1/contexts/rules", headers=two)) == (404, "not_found")
    r = keyed.request("PATCH", "/v1/contexts/rules", b'{"ttl": 1}', headers=two)
    assert code(r) == (404, "not_found")
    made = save(keyed, headers=two, id="rules", text=LONG + "two")  # a name of its own
    assert made["cached_tokens"] == 0
    assert len(keyed.get("/v1/contexts", headers=ops).json()["data"]) == 2
    assert fork(keyed, "chat", "rules", headers=one)[1][0] > 300
    salted = {"model": "llama", "max_tokens": 1, "cache_salt": "s", "shoal": {"context": "rules"},
              "messages": [{"role": "user", "content": "ab"}]}
    assert code(keyed.post("/v1/chat/completions", salted, headers=one)) == (404, "not_found")


def test_a_deleted_and_an_expired_context_are_gone(server):
    save(server, id="a")
    assert server.request("DELETE", "/v1/contexts/a").status == 204
    assert code(server.request("DELETE", "/v1/contexts/a")) == (404, "not_found")
    assert code(fork(server, "chat", "a")[0]) == (404, "not_found")
    made = save(server, id="b", ttl="5s")
    assert made["expires_at"] - made["created_at"] in (5, 6)
    assert fork(server, "chat", "b")[0].status == 200
    time.sleep(5.1)
    assert code(server.get("/v1/contexts/b")) == (404, "not_found")
    assert code(fork(server, "chat", "b")[0]) == (404, "not_found")
    save(server, id="c", ttl=5)
    r = server.request("PATCH", "/v1/contexts/c", b'{"ttl": "1h"}')
    assert r.status == 200 and r.json()["expires_at"] > time.time() + 3000
    time.sleep(5.1)
    assert fork(server, "chat", "c")[0].status == 200


def test_a_reader_outlives_its_context(server):
    save(server, id="a")
    body = {"model": "llama", "max_tokens": 60, "stream": True, "ignore_eos": True,
            "messages": [{"role": "user", "content": "ab"}], "shoal": {"context": "a"}}
    done = []
    t = threading.Thread(target=lambda: done.append(server.post("/v1/chat/completions", body)))
    t.start()
    wait_until(lambda: server.get("/v1/contexts/a").json()["readers"] == 1 or done)
    assert server.request("DELETE", "/v1/contexts/a").status == 204
    t.join()
    assert done[0].status == 200 and b"[DONE]" in done[0].body


def test_what_a_context_cannot_be_is_named(server):
    rules = [{"role": "system", "content": "ab"}]
    for body, status, words in (
            ({"messages": rules}, 400, "model: required"),
            ({"model": "llama"}, 400, "messages: required"),
            ({"model": "llama", "messages": 3}, 400, "messages: "),
            ({"model": "llama", "messages": rules, "system": "x"}, 400, "system: not beside"),
            ({"model": "llama", "messages": rules, "id": "a/b"}, 400, "id: 1 to 64"),
            ({"model": "llama", "messages": rules, "ttl": "soon"}, 400, "ttl: a duration"),
            ({"model": "llama", "messages": rules, "ttl": 0}, 400, "ttl: a duration"),
            ({"model": "llama", "messages": rules, "pin": 1}, 400, "pin: boolean"),
            ({"model": "llama", "prompt": ["ab"]}, 400, "prompt: string"),
            ({"model": "llama", "prompt": "ab", "messages": rules}, 400, "not beside messages"),
            ({"model": "llama", "messages": rules, "shoal": {"context": "a"}}, 400, "build on"),
            ({"model": "none", "messages": rules}, 404, "none")):
        r = server.post("/v1/contexts", body)
        assert r.status == status and words in r.json()["error"]["message"], (body, r.body)
    assert server.get("/v1/contexts").json()["data"] == []  # a failure keeps nothing
    save(server, id="a", text="ab", pin=False)
    for path, body, status, words in (
            ("/v1/completions", {"prompt": "ab"}, 400, "goes before messages"),
            ("/api/generate", {"prompt": "ab", "raw": True}, 400, "goes before messages")):
        r = server.post(path, {"model": "llama", "shoal": {"context": "a"}, **body})
        assert r.status == status and words.encode() in r.body, r.body
    for body, status, words in ((b"{}", 400, "ttl, pin or warm: required"),
                                (b'{"ttl": []}', 400, "ttl"), (b'{"pin": 3}', 400, "pin: boolean"),
                                (b'{"warm": "x"}', 400, "warm: boolean"), (b"[", 400, ""),
                                (b"[]", 400, "body: object expected")):
        r = server.request("PATCH", "/v1/contexts/a", body)
        assert r.status == status and words in r.json()["error"]["message"], r.body


def test_a_context_of_another_model_is_refused(home):
    with serving(home, "-model", TINY, "-model", THINKER) as server:
        save(server, id="a", text="ab")
        r = server.post("/v1/chat/completions", {
            "model": "qwen3", "max_tokens": 1, "shoal": {"context": "a"},
            "messages": [{"role": "user", "content": "ab"}]})
        assert code(r) == (409, "conflict") and b"a context of llama, not of qwen3" in r.body


def test_past_the_number_of_one_key_more_are_refused_by_name(server):
    for i in range(1024):
        save(server, id=f"c{i}", text="ab")
    r = server.post("/v1/contexts", {"model": "llama", "id": "one-more",
                                     "messages": [{"role": "system", "content": "ab"}]})
    assert code(r) == (507, "insufficient_storage") and b"1024 are saved" in r.body
    save(server, 200, id="c3", text="ab")
    assert server.request("DELETE", "/v1/contexts/c4").status == 204
    save(server, id="one-more", text="ab")


def patch(server, context, status=200, headers=None, **body):
    r = server.request("PATCH", f"/v1/contexts/{context}", json.dumps(body).encode(), headers)
    assert r.status == status, r.body
    return r.json()


def pages(server):
    models = server.get("/v1/cache").json()["models"]
    return models[0].get("pages", {"pinned": 0}) if models else {"pinned": 0}


def test_a_pin_is_told_with_its_pages_and_the_limit(server):
    """That no eviction takes it, the simulator shows: tests/sim/sched_test."""
    made = save(server, id="kept", pin=True)
    assert made["pinned"] is True and made["location"] == "device"
    loose = save(server, id="loose", text="Other rules. " + LONG)
    assert loose["pinned"] is False
    wait_until(lambda: pages(server)["pinned"] == made["pages"])
    wait_until(lambda: server.get("/v1/contexts").json()["pin_limit_tokens"])  # a heartbeat
    listed = server.get("/v1/contexts").json()
    assert [c["pinned"] for c in listed["data"]] == [True, False]
    assert listed["pinned_tokens"] == made["tokens"]
    assert listed["pin_limit_tokens"] == pages(server)["pin_limit"] * 32
    assert pages(server)["pinned"] <= pages(server)["pin_limit"] <= pages(server)["total"] / 2


def test_a_pin_comes_and_goes(server):
    made = save(server, id="a")
    assert made["pinned"] is False
    assert patch(server, "a", pin=True)["pinned"] is True
    wait_until(lambda: pages(server)["pinned"] == made["pages"])
    assert patch(server, "a", pin=True, ttl="1h")["expires_at"] > time.time() + 3000
    assert patch(server, "a", pin=False)["pinned"] is False
    fork(server, "chat", "a")  # the child tells its pages after a step
    wait_until(lambda: pages(server)["pinned"] == 0)
    save(server, 200, id="a", pin=True)
    assert server.get("/v1/contexts/a").json()["pinned"] is True
    save(server, 200, id="a")  # not said: it stays
    assert server.get("/v1/contexts/a").json()["pinned"] is True
    assert server.request("DELETE", "/v1/contexts/a").status == 204
    save(server, id="b", text="x")
    wait_until(lambda: pages(server)["pinned"] == 0)
    save(server, id="c", pin=True, ttl="5s")  # ends by its ttl, asked for or not
    wait_until(lambda: pages(server)["pinned"] > 0)
    time.sleep(5.6)
    save(server, 200, id="b", text="x")
    wait_until(lambda: pages(server)["pinned"] == 0)


def test_a_pin_that_its_client_gave_up_is_no_pin(server):
    body = json.dumps({"model": "llama", "id": "a", "pin": True, "messages": [
        {"role": "system", "content": LONG * 4}]}).encode()
    for ms in (1, 5, 20, 60):
        with server.connect() as s:
            s.sendall(b"POST /v1/contexts HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                      + str(len(body)).encode() + b"\r\n\r\n" + body)
            time.sleep(ms / 1000)
    # Whoever was fast enough is saved and pinned; the others left nothing.
    save(server, id="b", text="x")
    wait_until(lambda: pages(server)["pinned"] == sum(
        c["pages"] for c in server.get("/v1/contexts").json()["data"] if c["id"] == "a"))


def test_more_pins_than_memory_are_507_and_harm_nobody(home):
    text = LONG * 4
    with serving(home, "-model", TINY,
                 "-config", config(home, "cache: {pin_quota: 0.001}")) as server:
        first = save(server, id="p0", text="0 " + text, pin=True)
        limit = wait_until(lambda: server.get("/v1/contexts").json()["pin_limit_tokens"])
        for i in range(1, limit // first["tokens"] + 2):
            r = server.post("/v1/contexts", {
                "model": "llama", "id": f"p{i}", "pin": True,
                "messages": [{"role": "system", "content": f"{i} {text}"}]})
            if r.status != 201:
                break
        assert code(r) == (507, "insufficient_storage") and b"cache.pin_quota" in r.body, r.body
        assert i > 1
        assert code(server.get(f"/v1/contexts/p{i}")) == (404, "not_found")
        for dialect in DIALECTS:
            reply, (cached, _) = fork(server, dialect, "p0")
            assert reply.status == 200 and cached > 300
        save(server, id=f"p{i}", text=f"{i} {text}")  # without a pin it is welcome
        assert patch_code(server, f"p{i}", pin=True) == (507, "insufficient_storage")
        assert patch(server, "p0", pin=False)["pinned"] is False
        assert patch(server, f"p{i}", pin=True)["pinned"] is True


def patch_code(server, context, **body):
    return code(server.request("PATCH", f"/v1/contexts/{context}", json.dumps(body).encode()))


def test_pins_come_back_in_the_next_child(server):
    made = save(server, id="a", pin=True)
    wait_until(lambda: pages(server)["pinned"] == made["pages"])
    child = server.child()
    os.kill(child, signal.SIGKILL)
    fork(server, "chat", "a")  # served by the next one
    assert server.child() != child
    wait_until(lambda: pages(server)["pinned"] == made["pages"])
    wait_until(lambda: server.get("/v1/contexts/a").json()["location"] == "device")


def test_warm_computes_what_is_gone(server):
    made = save(server, id="a")
    assert patch(server, "a", warm=True)["cached_tokens"] >= made["tokens"] - 32
    os.kill(server.child(), signal.SIGKILL)
    again = patch(server, "a", warm=True)
    assert again["cached_tokens"] == 0 and again["pinned"] is False
    assert fork(server, "chat", "a")[1][0] >= made["tokens"] - 32
    assert patch_code(server, "none", warm=True) == (404, "not_found")


def test_a_change_of_another_key_s_context_is_404(keyed):
    save(keyed, headers=bearer("one"), id="a", text="ab")
    for body in ({"ttl": 5}, {"pin": True}, {"warm": True}, {"pin": False}):
        r = keyed.request("PATCH", "/v1/contexts/a", json.dumps(body).encode(), bearer("two"))
        assert code(r) == (404, "not_found"), r.body
    assert patch(keyed, "a", headers=bearer("ops"), pin=True)["pinned"] is True
    assert keyed.get("/v1/contexts/a", headers=bearer("one")).json()["pinned"] is True


def test_a_context_of_plain_text_goes_before_raw_prompts(server):
    r = server.post("/v1/contexts", {"model": "llama", "id": "text", "prompt": LONG})
    assert r.status == 201 and r.json()["tokens"] > 300, r.body
    more = {"model": "llama", "max_tokens": 8, "temperature": 0}
    whole = server.post("/v1/completions", {**more, "prompt": LONG + " So we", "shoal": {
        "cache": "off"}}).json()
    forked = server.post("/v1/completions", {**more, "prompt": " So we", "shoal": {
        "context": "text"}}).json()
    assert forked["choices"][0]["text"] == whole["choices"][0]["text"]
    assert forked["shoal"]["cache"]["prompt"] == whole["shoal"]["cache"]["prompt"]
    assert forked["shoal"]["cache"]["cached"] >= r.json()["tokens"] - 32
    raw = server.post("/api/generate", {"model": "llama", "raw": True, "prompt": " So we",
                                        "stream": False, "options": {"num_predict": 1},
                                        "shoal": {"context": "text"}}).json()
    assert raw["shoal"]["cache"]["prompt"] == whole["shoal"]["cache"]["prompt"]
    reply, _ = fork(server, "chat", "text")
    assert reply.status == 400 and b"goes before a raw prompt" in reply.body
    r = server.post("/v1/completions", {**more, "prompt": [1, 2], "shoal": {"context": "text"}})
    assert r.status == 400 and b"not of ids" in r.body


def test_a_public_context_is_saved_by_admin_and_read_by_every_key(home):
    env = {name.upper(): key for name, key in KEYS.items()}
    text = WITH_KEYS + "\ncache: {public: [ctx_house]}\n"
    with serving(home, "-model", TINY, "-config", config(home, text), env=env) as server:
        one, two, ops = bearer("one"), bearer("two"), bearer("ops")
        body = {"model": "llama", "id": "ctx_house", "pin": True, "system": LONG}
        assert code(server.post("/v1/contexts", body, headers=one)) == (403, "forbidden")
        assert code(fork(server, "chat", "ctx_house", headers=one)[0]) == (404, "not_found")
        r = server.post("/v1/contexts", body, headers=ops)
        assert r.status == 201 and r.json()["pinned"] is True, r.body
        for key in (one, two):
            for dialect in DIALECTS:  # the first of a key hits, too
                reply, (cached, _) = fork(server, dialect, "ctx_house", headers=key)
                assert reply.status == 200 and cached >= r.json()["tokens"] - 32
            assert [c["id"] for c in server.get("/v1/contexts", headers=key).json()["data"]] == [
                "ctx_house"]
            for method, change in (("PATCH", b'{"pin": false}'), ("DELETE", None)):
                gone = server.request(method, "/v1/contexts/ctx_house", change, key)
                assert code(gone) == (404, "not_found")
        assert server.get("/v1/contexts/ctx_house", headers=one).json()["pinned"] is True


def test_a_public_context_that_is_not_public_any_more_waits_on_the_disk(home, tmp_path):
    env = {**FLOOR, **{name.upper(): key for name, key in KEYS.items()}}
    one, ops = bearer("one"), bearer("ops")
    body = {"model": "llama", "id": "ctx_house", "system": LONG}

    def start(public):
        text = WITH_KEYS + ("\ncache: {public: [ctx_house]}\n" if public else "")
        return serving(home, "-model", TINY, "-spill", str(tmp_path / "tier"), "-config",
                       config(home, text), env=env)

    with start(True) as server:
        assert server.post("/v1/contexts", body, headers=ops).status == 201
    for key in (one, ops):
        with start(False) as server:
            assert "ctx_house stays on the disk: cache.public does not name it" in server.errors()
            assert code(fork(server, "chat", "ctx_house", headers=key)[0]) == (404, "not_found")
            assert server.get("/v1/contexts", headers=key).json()["data"] == []
            # The name is free for a context of one's own, which is another file.
            assert server.post("/v1/contexts", {**body, "system": "other " + LONG, "ttl": 3600},
                               headers=one).status in (200, 201)
            assert server.request("DELETE", "/v1/contexts/ctx_house", headers=one).status == 204
    assert len(files_of(tmp_path / "tier")) == 1
    with start(True) as server:
        reply, (cached, _) = fork(server, "chat", "ctx_house", headers=one)
        assert reply.status == 200 and cached > 300


# --- where its pages lie --------------------------------------------------------------------------

def location(server, context="rules"):
    one = server.get(f"/v1/contexts/{context}").json()["location"]
    listed = {c["id"]: c["location"] for c in server.get("/v1/contexts").json()["data"]}
    assert listed[context] == one
    return one


def give_up(server, *tiers):
    assert server.post("/v1/cache/drop", {"tiers": list(tiers)}).status == 200


def test_a_context_tells_its_bytes_and_where_its_pages_are_on_the_disk(home, tmp_path):
    args = ("-model", TINY, "-spill", str(tmp_path / "tier"))
    with serving(home, *args, env=FLOOR) as server:
        made = save(server, id="rules", text=LONG * 3)
        short = save(server, id="short", text="ab")
        assert made["location"] == "device" and made["snapshots"] == 0
        assert made["bytes"] > 0 and made["bytes"] % made["pages"] == 0
        assert short["bytes"] == made["bytes"] // made["pages"] * short["pages"]
        assert location(server) == "device"
        wait_until(lambda: server.get("/v1/cache").json()["models"][0]["ssd"]["writes"] >=
                   made["tokens"] // 32)
        give_up(server, "device")
        assert location(server) == "ssd"
        give_up(server, "ssd")
        assert location(server) is None
        fork(server, "chat", "rules")
        assert location(server) == "device"
    with serving(home, *args, env=FLOOR) as server:
        wait_until(lambda: location(server) == "ssd")  # its model is loaded
        row = server.get("/v1/contexts/rules").json()
        assert row["bytes"] == made["bytes"] and row["tokens"] == made["tokens"]
        assert fork(server, "chat", "rules")[1][0] >= made["tokens"] - 32
        assert location(server) == "device"
        pinned = patch(server, "rules", pin=True)
        assert pinned["location"] == "device"
        give_up(server, "device", "ram", "ssd")
        assert location(server) == "device"
        assert patch(server, "rules", ttl="1h")["location"] == "device"


def test_a_context_tells_that_its_pages_are_in_ram(home):
    text = "cache: {ram: 64MiB}\n"
    with serving(home, "-model", TINY, "-spill", "off", "-config", config(home, text)) as server:
        made = save(server, id="rules", text=LONG * 3)
        save(server, id="other", text="Not the same. " + LONG * 3)
        assert location(server) == location(server, "other") == "device"

        def are_copied():
            """When the engine rests after a turn, a moment after its reply."""
            for name in ("rules", "other"):
                fork(server, "chat", name)
            give_up(server, "device")
            return location(server) == location(server, "other") == "ram"

        wait_until(are_copied)
        assert fork(server, "chat", "rules")[1][0] >= made["tokens"] - 32
        assert (location(server), location(server, "other")) == ("device", "ram")
        give_up(server, "ram")
        assert (location(server), location(server, "other")) == ("device", None)
        server.post("/api/generate", {"model": "llama", "keep_alive": 0})  # unloaded
        wait_until(lambda: location(server) is None)


def test_where_pages_lie_is_told_while_a_reply_runs_and_when_the_engine_dies(server):
    save(server, id="rules")
    child = server.child()
    seen = []

    def look():
        for _ in range(200):
            r = server.get("/v1/contexts/rules")
            assert r.status == 200, r.body
            seen.append(r.json()["location"])

    t = threading.Thread(target=look)
    t.start()
    wait_until(lambda: seen)
    assert server.chat(max_tokens=200, ignore_eos=True).status == 200
    os.kill(child, signal.SIGKILL)
    t.join()
    assert seen[0] == "device" and len(seen) == 200
    assert set(seen) <= {"device", None}


# --- over a restart of the server ---------------------------------------------------------------

FLOOR = {"SHOAL_CACHE_SPILL_FLOOR": "1MiB"}


def files_of(tier):
    return sorted((tier / "contexts").glob("*.context"))


def test_a_context_is_there_after_a_restart_and_its_pages_come_from_the_tier(home, tmp_path):
    tier = tmp_path / "tier"
    args = ("-model", THINKER, "-spill", str(tier), "-config",
            config(home, f"models: {{qwen3: {{template_file: {QWEN3}}}}}\n"))
    with serving(home, *args, env=FLOOR) as s:
        made = save(s, model="qwen3", id="rules", ttl="8h", tools=[TOOL])
        for name, pin in (("pinned", True), ("gone", False)):
            save(s, model="qwen3", id=name, text=LONG + name, pin=pin)
        ask = {"model": "qwen3", "max_tokens": 8, "temperature": 0, "shoal": {"context": "rules"},
               "messages": [{"role": "user", "content": "ab"}]}
        cold = s.post("/v1/chat/completions", ask)
        assert s.request("DELETE", "/v1/contexts/gone").status == 204
        assert s.request("PATCH", "/v1/contexts/pinned", b'{"ttl": "2h"}').status == 200
    with serving(home, *args, env=FLOOR) as s:
        rows = {r["id"]: r for r in s.get("/v1/contexts").json()["data"]}
        assert sorted(rows) == ["pinned", "rules"]
        for name in ("tokens", "created_at", "expires_at", "model"):
            assert rows["rules"][name] == made[name], name
        left = rows["pinned"]["expires_at"] - time.time()
        assert 7000 < left <= 7200 and rows["pinned"]["pinned"]
        wait_until(lambda: s.get("/v1/contexts/pinned").json()["location"] == "device", 60)
        reply = s.post("/v1/chat/completions", ask)
        cache = reply.json()["shoal"]["cache"]
        assert made["tokens"] - 32 <= cache["cached"] < cache["prompt"]
        assert reply.json()["choices"] == cold.json()["choices"]
        save(s, 200, model="qwen3", id="rules", tools=[TOOL])  # the same still
        r = s.post("/v1/contexts", {"model": "qwen3", "id": "rules", "system": "other"})
        assert code(r) == (409, "conflict")
        assert s.get("/v1/cache").json()["models"][0]["ssd"]["checksum_failures"] == 0
    assert len(files_of(tier)) == 2
    for path in [tier / "contexts", *files_of(tier)]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_context_that_was_answered_survives_a_killed_server(home, tmp_path):
    args = ("-model", TINY, "-spill", str(tmp_path / "tier"))
    s = Server(home, *args, env=FLOOR)
    save(s, id="rules")
    wait_until(lambda: files_of(tmp_path / "tier"))
    child = s.child()
    s.process.kill()
    s.process.communicate(timeout=30)
    s.log.close()
    wait_until(lambda: not is_alive(child))
    (tmp_path / "tier" / "contexts" / (files_of(tmp_path / "tier")[0].name + ".new")).write_bytes(
        b"half a context")
    with serving(home, *args, env=FLOOR) as again:
        assert [r["id"] for r in again.get("/v1/contexts").json()["data"]] == ["rules"]
        assert fork(again, "chat", "rules")[0].status == 200
        assert len(list((tmp_path / "tier" / "contexts").iterdir())) == 2  # and the lock


def test_a_damaged_file_costs_its_context_alone_and_is_told(home, tmp_path):
    tier = tmp_path / "tier"
    args = ("-model", TINY, "-spill", str(tier))
    with serving(home, *args, env=FLOOR) as s:
        for i in range(4):
            save(s, id=f"c{i}", text=LONG + str(i))
    first, second, third, fourth = files_of(tier)
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    data = bytearray(second.read_bytes())
    data[8] = 9  # another version
    second.write_bytes(data)
    third.rename(tier / "contexts" / ("0" * 32 + ".context"))
    with serving(home, *args, env=FLOOR) as s:
        assert len(s.get("/v1/contexts").json()["data"]) == 1
        assert "damaged" in s.errors() and "version 9, known is 1" in s.errors()
        assert "its name is another's" in s.errors()
    assert sorted(files_of(tier)) == sorted([second, fourth])


def test_another_key_sees_nothing_of_what_was_read_from_the_disk(home, tmp_path):
    env = {**FLOOR, **{name.upper(): key for name, key in KEYS.items()}}
    args = ("-model", TINY, "-spill", str(tmp_path / "tier"), "-config", config(home, WITH_KEYS))
    with serving(home, *args, env=env) as s:
        made = save(s, headers=bearer("one"), id="rules")
        save(s, headers=bearer("one"), id="salted", text=LONG + "salt", cache_salt="s")
    with serving(home, *args, env=env) as s:
        for dialect in DIALECTS:
            reply, _ = fork(s, dialect, "rules", headers=bearer("two"))
            assert reply.status == 404, reply.body
        assert s.get("/v1/contexts", headers=bearer("two")).json()["data"] == []
        again = save(s, headers=bearer("two"), id="rules")
        assert again["cached_tokens"] == 0  # not a page of it
        assert fork(s, "chat", "rules", headers=bearer("one"))[1][0] >= made["tokens"] - 32
        ids = [r["id"] for r in s.get("/v1/contexts", headers=bearer("one")).json()["data"]]
        assert sorted(ids) == ["rules", "salted"]
        assert fork(s, "chat", "salted", headers=bearer("one"))[0].status == 404
        assert s.request("DELETE", "/v1/contexts/salted", headers=bearer("one")).status == 204


def test_a_second_server_keeps_its_contexts_in_memory_and_says_so(home, tmp_path):
    args = ("-model", TINY, "-spill", str(tmp_path / "tier"))
    other = tmp_path / "other"
    other.mkdir()
    with serving(home, *args, env=FLOOR) as s:
        save(s, id="rules")
        with serving(other, *args, env=FLOOR) as second:
            assert "contexts do not survive a restart" in second.errors()
            assert second.get("/v1/contexts").json()["data"] == []
            save(second, id="own", text=LONG + "own")
            assert fork(second, "chat", "own")[0].status == 200
        assert len(files_of(tmp_path / "tier")) == 1


def test_cache_clean_deletes_contexts_when_no_server_has_them(home, tmp_path, shoal):
    tier = tmp_path / "tier"
    args = ("-model", TINY, "-spill", str(tier))
    env = {"SHOAL_CACHE_SPILL": str(tier)}
    with serving(home, *args, env=FLOOR) as s:
        save(s, id="rules")
        wait_until(lambda: files_of(tier))
        done = shoal("cache", "clean", env=env)
        assert done.returncode == 1 and "a server is using it" in done.stderr, done
    assert shoal("cache", "clean", env=env).returncode == 0
    assert files_of(tier) == []
    with serving(home, *args, env=FLOOR) as s:
        assert s.get("/v1/contexts").json()["data"] == []


def test_without_a_tier_nothing_of_a_context_reaches_the_disk(home, tmp_path):
    with serving(home, "-model", TINY, "-spill", "off") as s:
        save(s, id="rules")
    found = [p for p in home.rglob("*") if p.is_file() and LONG.encode() in p.read_bytes()]
    assert found == []
