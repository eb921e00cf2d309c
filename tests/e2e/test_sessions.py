"""Sessions: named by a request on any dialect, listed, forgotten."""
import time

import pytest

from server import TINY, serving
from test_cache_misses import KEYS, WITH_KEYS, bearer, config
from test_contexts import code


@pytest.fixture
def keyed(home):
    env = {name.upper(): key for name, key in KEYS.items()}
    text = WITH_KEYS + "\ncache: {session_ttl: 6s}\n"
    with serving(home, "-model", TINY, "-config", config(home, text), env=env) as s:
        yield s


def ask(server, path, session, headers=None, **more):
    chat = {"messages": [{"role": "user", "content": "ab"}]}
    body = {"/v1/chat/completions": {**chat, "max_tokens": 2},
            "/v1/messages": {**chat, "max_tokens": 2},
            "/v1/responses": {"input": "ab", "max_output_tokens": 2},
            "/api/chat": {**chat, "stream": False, "options": {"num_predict": 2}}}[path]
    r = server.post(path, {"model": "llama", **body, **more,
                           **({"shoal": {"session": session}} if session else {})},
                    headers=headers)
    assert r.status == 200, r.body
    return r.json()["shoal"]["cache"]["prompt"]


def test_a_session_counts_the_turns_of_every_dialect(home):
    with serving(home, "-model", TINY) as server:
        assert server.get("/v1/sessions").json() == {"object": "list", "data": []}
        ask(server, "/v1/chat/completions", None)
        assert server.get("/v1/sessions").json()["data"] == []
        for path in ("/v1/messages", "/v1/responses", "/api/chat", "/v1/chat/completions"):
            prompt = ask(server, path, "job/7")
        ask(server, "/v1/chat/completions", None, prompt_cache_key="other", user="lead")
        ask(server, "/v1/chat/completions", None, headers={"Shoal-Session": "third"})
        one = server.get("/v1/sessions/job/7").json()
        assert one["object"] == "session" and one["turns"] == 4 and one["agent"] == "anon"
        assert one["model"] == "llama" and one["tokens"] == prompt + 2
        assert abs(one["last_used_at"] - time.time()) < 60
        assert one["expires_at"] - one["last_used_at"] in (3599, 3600, 3601)
        rows = server.get("/v1/sessions").json()["data"]
        assert [r["id"] for r in rows] == ["third", "other", "job/7"]
        assert rows[1]["agent"] == "lead"
        assert server.request("DELETE", "/v1/sessions/job/7").status == 204
        for method in ("GET", "DELETE"):
            r = server.request(method, "/v1/sessions/job/7")
            assert code(r) == (404, "not_found") and b"no session job/7" in r.body


def test_another_key_s_session_is_not_there_and_all_end_with_their_ttl(keyed):
    one, two, ops = bearer("one"), bearer("two"), bearer("ops")
    ask(keyed, "/v1/chat/completions", "a", headers=one)
    assert keyed.get("/v1/sessions", headers=two).json()["data"] == []
    assert code(keyed.request("DELETE", "/v1/sessions/a", headers=two)) == (404, "not_found")
    ask(keyed, "/v1/chat/completions", "a", headers=two)
    assert [r["turns"] for r in keyed.get("/v1/sessions", headers=ops).json()["data"]] == [1, 1]
    assert keyed.request("DELETE", "/v1/sessions/a", headers=two).status == 204
    assert keyed.get("/v1/sessions/a", headers=one).json()["turns"] == 1
    time.sleep(6.1)
    assert code(keyed.get("/v1/sessions/a", headers=one)) == (404, "not_found")
