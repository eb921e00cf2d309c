"""Requests under way and agents: listed, ended; cached pages given up on request."""
import concurrent.futures
import json
import os
import threading

import pytest

from server import REAL, TINY, serving, wait_until
from test_cache_misses import KEYS, LONG, WITH_KEYS, bearer, config
from test_contexts import FLOOR, code, fork
from test_lost_device import LOSSY


@pytest.fixture
def server(home):
    """A model that takes its time, one request at once."""
    with serving(home, "-model", REAL, "-slots", "1", "-ctx", "4096") as s:
        yield s


@pytest.fixture
def tiny(home):
    with serving(home, "-model", TINY) as s:
        yield s


@pytest.fixture
def keyed(home):
    env = {name.upper(): key for name, key in KEYS.items()}
    text = WITH_KEYS + ("\nagents:\n  \"lead\": {tokens_per_hour: 1000000, max_running: 1, "
                        "priority: high, effort: high, weight: 3, max_context: 2048}\n")
    with serving(home, "-model", REAL, "-config", config(home, text), env=env) as s:
        yield s


MODEL = os.path.basename(REAL).removesuffix(".gguf")


class Running:
    """A request that goes on until it is ended: a stream, or a whole reply."""

    def __init__(self, server, path="/v1/chat/completions", headers=None, **more):
        self.reply = None
        body = {"model": MODEL, "max_tokens": 3000, "ignore_eos": True, "seed": 1,
                "messages": [{"role": "user", "content": "Go on."}], **more}

        def run():
            self.reply = server.post(path, body, headers=headers, timeout=120)

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def end(self):
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.reply


def rows(server, path="/v1/requests", **kw):
    return server.get(path, **kw).json()


def until_state(server, state, count=1, **kw):
    def seen():
        found = [r for r in rows(server, **kw) if r["state"] == state]
        return found if len(found) >= count else None
    return wait_until(seen, 60)


def test_a_request_is_listed_while_it_runs_and_ended_in_band(server):
    assert rows(server) == []
    one = Running(server, stream=True, user="lead", shoal={"session": "job/7"})
    row = until_state(server, "decode")[0]
    assert row["id"].startswith("req_") and row["agent"] == "lead" and row["session"] == "job/7"
    assert row["model"] == MODEL and row["dialect"] == "openai_chat"
    assert row["prompt_tokens"] > 0 and row["priority"] == "normal"
    wait_until(lambda: rows(server)[0]["output_tokens"] > row["output_tokens"], 60)
    assert rows(server, f"/v1/requests/{row['id']}")["id"] == row["id"]
    assert server.request("DELETE", f"/v1/requests/{row['id']}").status == 204
    text = one.end().body.decode()
    assert one.reply.status == 200 and text.rstrip().endswith("data: [DONE]")
    assert json.loads(text.split("\ndata: ")[-3])["error"]["code"] == "cancelled"
    wait_until(lambda: rows(server) == [])
    for method in ("GET", "DELETE"):
        r = server.request(method, f"/v1/requests/{row['id']}")
        assert code(r) == (404, "not_found")
    assert server.chat(max_tokens=2).status == 200  # nobody else is harmed


def test_one_that_waits_is_ended_with_503_and_anthropic_s_529(server):
    first = Running(server, stream=True)
    until_state(server, "decode")
    second = Running(server)
    third = Running(server, "/v1/messages")
    wait_until(lambda: len(rows(server)) == 3)
    ids = {r["dialect"]: r["id"] for r in rows(server)[1:]}
    assert all(r["state"] in ("queued", "prefill") for r in rows(server)[1:])
    for i in ids.values():
        assert server.request("DELETE", f"/v1/requests/{i}").status == 204
    assert code(second.end()) == (503, "cancelled")
    assert third.end().status == 529
    assert [r["state"] for r in rows(server)] == ["decode"]
    assert server.request("DELETE", f"/v1/requests/{rows(server)[0]['id']}").status == 204
    first.end()


def test_all_of_an_agent_end_and_nobody_else_s(home):
    with serving(home, "-model", REAL, "-ctx", "4096") as server:
        many = [Running(server, stream=True, user="batch/1") for _ in range(3)]
        other = Running(server, stream=True, user="lead")
        until_state(server, "decode", 4)
        r = server.request("DELETE", "/v1/agents/batch/1/requests")
        assert r.status == 200 and r.json() == {"cancelled": 3}
        for one in many:
            assert b'"code":"cancelled"' in one.end().body
        assert [r["agent"] for r in rows(server)] == ["lead"]
        by_name = {a["agent"]: a for a in rows(server, "/v1/agents")}
        assert by_name["lead"]["running"] == 1 and by_name["batch/1"]["running"] == 0
        assert by_name["batch/1"]["output_tokens"] > 0
        r = server.request("DELETE", "/v1/agents/nobody/requests")
        assert r.status == 200 and r.json() == {"cancelled": 0}
        assert code(server.request("DELETE", "/v1/agents/lead")) == (404, "not_found")
        assert server.request("DELETE", "/v1/agents/lead/requests").json() == {"cancelled": 1}
        other.end()


def with_memory(home, size):
    """A device of its own memory (tests/e2e/lossy.c), of which 512 MiB are kept free."""
    return serving(home, "-model", TINY, "-backend", "cuda", "-ctx", "1024", "-slots", "8",
                   "-spill", "off", "-config", config(home, "cache: {ram: 1MiB}\n"),
                   binary=LOSSY, env={"LOSSY_MEMORY": str(size)})


def test_one_that_made_way_for_others_is_parked_and_goes_on(home):
    size = 600 << 20
    with with_memory(home, size) as server:
        made = server.post("/v1/contexts", {"model": "llama", "system": LONG}).json()
        spare = server.get("/v1/cache").json()["models"][0]["pages"]["total"] - 80
        size -= spare * (made["bytes"] // made["pages"]) * 10 // 9
    with with_memory(home, size) as server:
        def say(i):
            return server.post("/v1/chat/completions", {
                "model": "llama", "max_tokens": 900, "ignore_eos": True, "seed": i,
                "messages": [{"role": "user", "content": f"Go on, {i}."}]}, timeout=120)

        alone = [say(i).json()["choices"] for i in range(2)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = [pool.submit(say, i) for i in range(8)]
            parked = until_state(server, "parked")[0]
            assert parked["output_tokens"] > 0
            done = [r.result() for r in replies]
        assert [r.status for r in done] == [200] * 8
        assert [r.json()["choices"] for r in done[:2]] == alone  # identical output
        assert sum(a["preempted"] for a in rows(server, "/v1/agents")) > 0
        assert rows(server) == []


def test_a_key_sees_and_ends_its_own_alone(keyed):
    one, two, ops = bearer("one"), bearer("two"), bearer("ops")
    running = Running(keyed, headers=one, stream=True, user="lead", shoal={"priority": "low"})
    row = until_state(keyed, "decode", headers=one)[0]
    assert row["priority"] == "low"
    assert rows(keyed, headers=two) == [] and rows(keyed, "/v1/agents", headers=two) == []
    for method, path in (("GET", f"/v1/requests/{row['id']}"),
                         ("DELETE", f"/v1/requests/{row['id']}")):
        assert code(keyed.request(method, path, headers=two)) == (404, "not_found")
    r = keyed.request("DELETE", "/v1/agents/lead/requests", headers=two)
    assert r.json() == {"cancelled": 0}
    waiting = Running(keyed, headers=one, stream=True, user="lead")  # max_running: 1
    wait_until(lambda: len(rows(keyed, headers=one)) == 2)
    lead = rows(keyed, "/v1/agents", headers=one)[0]
    assert (lead["agent"], lead["running"], lead["queued"]) == ("lead", 1, 1)
    limits = lead["limits"]
    assert limits["max_running"] == 1 and limits["tokens_per_hour"] == 1000000
    assert (limits["priority"], limits["effort"], limits["weight"]) == ("high", "high", 3)
    assert limits["max_context"] == 2048 and limits["max_queued"] is None
    assert rows(keyed, headers=one)[1]["priority"] == "high"  # by the agent's configuration
    assert len(rows(keyed, headers=ops)) == 2
    r = keyed.request("DELETE", "/v1/agents/lead/requests", headers=ops)
    assert r.json() == {"cancelled": 2}
    assert running.end().status == 200
    assert code(waiting.end()) == (503, "cancelled")
    used = rows(keyed, "/v1/agents", headers=one)[0]["limits"]["tokens_this_hour"]
    assert used > 0


def ask(server, text, user, **more):
    r = server.post("/v1/chat/completions", {
        "model": "llama", "max_tokens": 1, "temperature": 0, "user": user, **more,
        "messages": [{"role": "system", "content": LONG}, {"role": "user", "content": text}]})
    assert r.status == 200, r.body
    return r.json()["shoal"]["cache"]["cached"]


OWN = "Only this agent has ever said that. " * 8


def test_sums_of_an_agent_tell_what_was_cached_and_which_leg_answered(tiny):
    first = ask(tiny, "ab", "lead")
    again = ask(tiny, "ab", "lead")
    assert again > first
    row = rows(tiny, "/v1/agents")[0]
    assert row["agent"] == "lead" and row["cached_tokens"] == first + again
    assert row["cached_share"] == pytest.approx(row["cached_tokens"] / row["prompt_tokens"],
                                                abs=1e-3)
    assert row["output_tokens"] == 2 and row["preempted"] == 0
    assert sum(leg["requests"] for leg in row["legs"].values()) == 2


def drop(server, status=200, **body):
    r = server.post("/v1/cache/drop", body)
    assert r.status == status, r.body
    return r.json()


def test_dropped_pages_are_computed_again_and_others_are_not(home, tmp_path):
    with serving(home, "-model", TINY, "-spill", str(tmp_path / "tier"), env=FLOOR) as server:
        for agent in ("a", "b"):
            ask(server, OWN + agent, agent, shoal={"session": f"s-{agent}"})
        shared = ask(server, "something else", "c")
        assert shared > 300
        whole = ask(server, OWN + "a", "a", shoal={"session": "s-a"})
        assert whole > shared + 32
        gone = drop(server, agent="a")
        assert gone["pages"] > 0 and gone["bytes"] > 0
        # The system text is everybody's: it stays. What b said, b keeps.
        assert ask(server, OWN + "b", "b", shoal={"session": "s-b"}) > shared + 32
        assert shared - 32 <= ask(server, OWN + "a", "a", shoal={"session": "s-a"}) < whole
        assert drop(server, session="s-b")["pages"] > 0
        assert ask(server, OWN + "b", "b", shoal={"session": "s-b"}) < whole
        assert server.request("DELETE", "/v1/sessions/s-b").status == 204
        assert ask(server, OWN + "b", "b") < whole
        assert drop(server)["pages"] > 0
        assert ask(server, OWN + "a", "a") == 0
        assert drop(server, agent="nobody") == {"pages": 0, "bytes": 0}
        assert drop(server, model="llama", tiers=["device"])["pages"] > 0


def test_what_was_dropped_does_not_come_back_with_a_restart(home, tmp_path):
    args = ("-model", TINY, "-spill", str(tmp_path / "tier"))
    with serving(home, *args, env=FLOOR) as server:
        ask(server, OWN, "a")
    with serving(home, *args, env=FLOOR) as server:
        assert ask(server, OWN, "a") > 300  # the tier had it
        assert drop(server)["pages"] > 0
    with serving(home, *args, env=FLOOR) as server:
        assert ask(server, OWN, "a") == 0
        assert server.get("/v1/cache").json()["models"][0]["ssd"]["checksum_failures"] == 0


def test_a_pinned_context_keeps_its_copies_when_all_is_dropped(home, tmp_path):
    args = ("-model", TINY, "-spill", str(tmp_path / "tier"))
    with serving(home, *args, env=FLOOR) as server:
        for name, pin in (("kept", True), ("loose", False)):
            made = server.post("/v1/contexts", {"model": "llama", "id": name, "pin": pin,
                                                "system": name + LONG * 2})
            assert made.status == 201, made.body
        assert server.post("/v1/cache/drop", {"tiers": ["ssd"]}).status == 200
        gone = drop(server)
        assert gone["pages"] > 0 and drop(server)["pages"] == 0
    with serving(home, *args, env=FLOOR) as server:
        wait_until(lambda: server.get("/v1/contexts/kept").json()["location"] == "device", 60)
        tokens = made.json()["tokens"]

        def restored():
            return server.get("/v1/cache").json()["models"][0].get("restored_tokens", 0)
        # Its pin was not computed. The child tells its counts a moment after its answers.
        before = wait_until(lambda: restored() >= tokens - 64 and restored())
        assert fork(server, "chat", "loose")[1][0] < tokens / 2
        assert restored() < before + 64


@pytest.mark.parametrize("body, word", [
    ({"agnet": "a"}, b"agnet: unknown"), ({"agent": 1}, b"agent"), ({"agent": ""}, b"agent"),
    ({"tiers": []}, b"tiers"), ({"tiers": ["disk"]}, b"tiers"), ({"tiers": "ssd"}, b"tiers"),
    ([], b"object")])
def test_a_drop_that_cannot_be_meant_is_refused_by_name(tiny, body, word):
    r = tiny.post("/v1/cache/drop", body)
    assert r.status == 400 and word in r.body, r.body


def test_a_drop_names_a_model_that_is_not_loaded_and_needs_admin(keyed):
    r = keyed.post("/v1/cache/drop", {"model": "other"}, headers=bearer("ops"))
    assert code(r) == (404, "model_not_found") and b"other is not loaded" in r.body
    assert keyed.post("/v1/cache/drop", {}, headers=bearer("one")).status == 403


def test_what_a_request_or_its_agent_says_of_the_cache_holds(home):
    text = 'agents:\n  "once*": {cache: drop}\n'
    with serving(home, "-model", TINY, "-config", config(home, text)) as server:
        turn = OWN + "drop"
        assert ask(server, turn, "a", shoal={"cache": "drop"}) == 0
        assert ask(server, turn, "once/1") == 0  # the one before left nothing
        assert ask(server, turn, "a") == 0       # nor did the agent's
        assert ask(server, turn, "a", shoal={"cache": "off"}) == 0
        assert ask(server, turn, "once/1") > 300  # both may read what is there
        assert ask(server, turn, "a", shoal={"cache": "drop"}) > 300
        assert ask(server, turn, "once/1", shoal={"cache": "keep"}) > 300


@pytest.mark.parametrize("how", ["shoal", "header", "top"])
def test_max_context_of_a_request_is_its_limit_however_it_is_said(tiny, how):
    body = {"model": "llama", "max_tokens": 1, "messages": [{"role": "user", "content": LONG}]}
    headers = {"Shoal-Max-Context": "256"} if how == "header" else {}
    body |= {"shoal": {"shoal": {"max_context": 256}}, "top": {"max_context": 256}}.get(how, {})
    r = tiny.post("/v1/chat/completions", body, headers=headers)
    assert code(r) == (400, "context_length_exceeded") and b"limit is 256" in r.body, r.body
