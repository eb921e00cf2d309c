"""Saved contexts: one prefix under a name, before the messages of any request that names it."""
import threading
import time

import pytest

from server import TINY, serving, wait_until
from test_cache_misses import KEYS, LONG, WITH_KEYS, bearer, config

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
    made = save(server, id="b", ttl="1s")
    assert made["expires_at"] - made["created_at"] in (1, 2)
    assert fork(server, "chat", "b")[0].status == 200
    time.sleep(1.1)
    assert code(server.get("/v1/contexts/b")) == (404, "not_found")
    assert code(fork(server, "chat", "b")[0]) == (404, "not_found")
    save(server, id="c", ttl=1)
    r = server.request("PATCH", "/v1/contexts/c", b'{"ttl": "1h"}')
    assert r.status == 200 and r.json()["expires_at"] > time.time() + 3000
    time.sleep(1.1)
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
            ({"model": "llama", "messages": rules, "pin": True}, 501, "pin: not implemented"),
            ({"model": "llama", "prompt": "ab"}, 501, "prompt"),
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
    for body, status, words in ((b"{}", 400, "ttl: required"), (b'{"ttl": []}', 400, "ttl"),
                                (b'{"pin": true}', 501, "pin"), (b'{"warm": true}', 501, "warm"),
                                (b"[", 400, ""), (b"[]", 400, "body: an object expected"),
                                (b'{"pin": 1}', 400, "pin: a boolean expected")):
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
