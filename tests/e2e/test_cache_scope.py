"""One key's cache is nobody else's; a public prefix is everybody's, to its exact end."""
import json
import os
import signal

import pytest

from server import TINY, serving, wait_until
from test_cache_misses import KEYS, LONG, WITH_KEYS, bearer, cached, config

SHARED = "These rules are shared by every key of this house, word by word. " * 6
SECRET = "The code of the safe is one seven four two nine three eight six zero five. " * 4


def ask(server, name, *messages, **more):
    body = {"model": "llama", "max_tokens": 1,
            "messages": [{"role": role, "content": text} for role, text in messages], **more}
    r = server.post("/v1/chat/completions", body, headers=bearer(name))
    assert r.status == 200, r.body
    return r.json()


def serving_with(home, text):
    env = {name.upper(): key for name, key in KEYS.items()}
    return serving(home, "-model", TINY, "-config", config(home, text), env=env)


def shared_file(home, body):
    path = os.path.join(home, "shared.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(body, f)
    return path


@pytest.fixture
def public(home):
    path = shared_file(home, {"messages": [{"role": "system", "content": SHARED}]})
    with serving_with(home, WITH_KEYS + f"cache: {{public: [{path}]}}\n") as s:
        wait_until(lambda: pages(s)["pinned"] > 0)
        yield s


def the_cache(server):
    return server.get("/v1/cache", headers=bearer("ops")).json()["models"][0]


def pages(server):
    return the_cache(server).get("pages", {"pinned": 0})


def test_what_one_key_asked_is_never_found_by_another(home):
    with serving_with(home, WITH_KEYS) as server:
        own = [("system", LONG), ("user", SECRET)]
        assert cached(ask(server, "one", *own)) == 0
        assert cached(ask(server, "one", *own)) > 100
        assert cached(ask(server, "two", *own)) == 0
        assert cached(ask(server, "two", *own, cache_salt="fresh")) == 0
        assert cached(ask(server, "two", *own)) > 100  # by now it is its own
        assert cached(ask(server, "one", *own)) > 100


def test_what_was_asked_without_keys_is_not_public_once_there_are_keys(home):
    turn = [("system", LONG), ("user", SECRET)]
    env = {name.upper(): key for name, key in KEYS.items()}
    path = config(home, "limits: {queue: 64}\n")
    with serving(home, "-model", TINY, "-config", path, env=env) as server:
        for salt in ({}, {"cache_salt": "two"}):
            assert cached(ask(server, "one", *turn, **salt)) == 0
            assert cached(ask(server, "one", *turn, **salt)) > 100
        config(home, WITH_KEYS)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.get("/v1/models").status == 401)
        assert cached(ask(server, "two", *turn)) == 0
        assert cached(ask(server, "one", *turn)) == 0


def test_guessing_a_secret_word_by_word_finds_nothing(home):
    """The attack on a shared cache: the right guess would be the one with more cached tokens."""
    with serving_with(home, WITH_KEYS) as server:
        ask(server, "one", ("system", SECRET), ("user", "ab"))
        seen = set()
        for i, guess in enumerate((SECRET, SECRET[:-20] + "x" * 20, SECRET[:60], "z" + SECRET)):
            salt = {"cache_salt": f"probe-{i}"}  # a fresh cache for each guess
            seen.add(cached(ask(server, "two", ("system", guess), ("user", "ab"), **salt)))
        assert seen == {0}


def test_a_salt_parts_the_cache_of_one_key(home):
    with serving_with(home, WITH_KEYS) as server:
        turn = [("system", LONG), ("user", "ab")]
        ask(server, "one", *turn, cache_salt="a")
        assert cached(ask(server, "one", *turn)) == 0
        assert cached(ask(server, "one", *turn, cache_salt="b")) == 0
        assert cached(ask(server, "one", *turn, cache_salt="a")) > 100


def test_keys_of_one_cache_scope_share_and_no_salt_forges_one(home):
    text = WITH_KEYS.replace("key_env: ONE,", "key_env: ONE, cache_scope: team,")
    text = text.replace("key_env: OPS,", "key_env: OPS, cache_scope: team,")
    with serving_with(home, text) as server:
        turn = [("system", LONG), ("user", "ab")]
        ask(server, "one", *turn)
        assert cached(ask(server, "ops", *turn)) > 100
        for salt in ("team", "", " team", "one"):
            assert cached(ask(server, "two", *turn, **({"cache_salt": salt} if salt else {}))) == 0


def test_what_one_key_left_on_disk_is_not_found_by_another_after_a_restart(home):
    """Nor does the other's reading of the disk tell: not one page is read for it."""
    env = {**{name.upper(): key for name, key in KEYS.items()}, "SHOAL_CACHE_SPILL_FLOOR": "1MiB"}
    path = config(home, WITH_KEYS)
    turn = [("system", LONG), ("user", SECRET)]

    def again():
        return serving(home, "-model", TINY, "-config", path, "-spill",
                       os.path.join(home, "spill"), env=env)

    def told(server):  # by the child, after a moment
        wait_until(lambda: the_cache(server).get("tokens_computed"))
        return the_cache(server)
    with again() as server:
        ask(server, "one", *turn)
    with again() as server:
        assert cached(ask(server, "two", *turn)) == 0
        assert told(server)["ssd"]["reads"] == told(server)["restores"] == 0
        assert cached(ask(server, "one", *turn)) > 100
        wait_until(lambda: the_cache(server)["restores"] == 1)


def test_a_public_prefix_hits_for_every_key_to_its_exact_end(public):
    count = ask(public, "one", ("system", SHARED), ("user", "ab"))
    first = cached(count)
    assert first > 300
    # What key one asked behind the prefix stays its own: each salt is a cache of its own.
    ask(public, "one", ("system", SHARED), ("user", SECRET))
    for i, text in enumerate(("zz", SECRET, "ab")):
        assert cached(ask(public, "two", ("system", SHARED), ("user", text),
                          cache_salt=f"fresh-{i}")) == first
    one = cached(ask(public, "one", ("system", SHARED), ("user", SECRET)))
    assert one > first + 100


def test_a_public_prefix_is_there_again_after_a_crash(public):
    child = public.child()
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: public.child() != child and
               public.get("/ready", headers=bearer("ops")).json()["state"] == "loaded")
    wait_until(lambda: pages(public)["pinned"] > 0)
    assert cached(ask(public, "two", ("system", SHARED), ("user", "ab"))) > 300


def test_a_public_file_that_cannot_be_read_is_named(home, shoal):
    for body, text in (({"messages": []}, "messages"), ({"messages": 3}, "messages"),
                       ({"model": "x"}, "messages")):
        path = shared_file(home, body)
        done = shoal("serve", "-config", config(home, f"cache: {{public: [{path}]}}\n"))
        assert done.returncode != 0 and f"cache.public {path}" in done.stderr, done.stderr
        assert text in done.stderr
    done = shoal("serve", "-config", config(home, "cache: {public: [/no/such.json]}\n"))
    assert done.returncode != 0 and "/no/such.json" in done.stderr
    done = shoal("serve", "-config", config(home, "cache: {public: ['ctx_a b']}\n"))
    assert done.returncode != 0 and "cache.public ctx_a b: the id of a context" in done.stderr
