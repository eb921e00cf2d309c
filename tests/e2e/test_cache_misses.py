"""GET /v1/cache/misses: each cause is provoked; its record says what happened, to whom it may."""
import os
import signal

import pytest

from conftest import ROOT
from server import TINY, serving, wait_until

THINKER = os.path.join(os.path.dirname(TINY), "qwen3.gguf")
LONG = "Rules of the house, one by one, which are read again with every single request. " * 6
KEYS = {name: f"{name}-key-of-many-letters" for name in ("one", "two", "ops")}
WITH_KEYS = """
keys:
  - {name: one, key_env: ONE, scopes: [infer]}
  - {name: two, key_env: TWO, scopes: [infer]}
  - {name: ops, key_env: OPS, scopes: [infer, read, admin]}
"""


def config(home, text):
    path = os.path.join(home, "config.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


@pytest.fixture
def server(home):
    with serving(home, "-model", TINY) as s:
        yield s

QWEN3 = os.path.join(ROOT, "tests", "golden", "templates", "qwen3.jinja")
SWITCH = """
models:
  qwen3:
    template: "{% if enable_thinking is defined and not enable_thinking %}Be short. {% endif %}\
{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}\
{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}"
"""


def thinking(home, text=f"models: {{qwen3: {{template_file: {QWEN3}}}}}\n"):
    return serving(home, "-model", THINKER, "-config", config(home, text))


def ask(server, *messages, headers=None, session="s1", **more):
    rows = [{"role": role, "content": text} for role, text in messages]
    body = {"model": server.model() if not headers else "llama", "messages": rows,
            "max_tokens": 1, "shoal": {"session": session, **more.pop("shoal", {})}, **more}
    r = server.post("/v1/chat/completions", body, headers=headers)
    assert r.status == 200, r.body
    return r.json()


def misses(server, query="", headers=None):
    r = server.get("/v1/cache/misses" + query, headers=headers)
    assert r.status == 200, r.body
    return r.json()


def bearer(name):
    return {"Authorization": f"Bearer {KEYS[name]}"}


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def the_record(server, reply, reason, hint=None):
    rows = misses(server)
    assert len(rows) == 1, rows
    row = rows[0]
    assert (row["reason"], row["hint"]) == (reason, hint), row
    assert row["session"] == "s1" and row["agent"] == "anon" and row["model"] == server.model()
    assert row["prompt_tokens"] == reply["usage"]["prompt_tokens"]
    assert row["cached_tokens"] == cached(reply) < 0.9 * row["expected_tokens"]
    assert row["request_id"].startswith("req_") and row["previous_id"].startswith("req_")
    assert row["request_id"] != row["previous_id"]
    assert server.metric(f'shoal_cache_miss_total{{model="llama",reason="{reason}"}}') == 1
    return row


def test_a_conversation_that_grows_misses_nothing(server):
    first = ask(server, ("system", LONG), ("user", "ab"))
    text = first["choices"][0]["message"]["content"]
    again = ask(server, ("system", LONG), ("user", "ab"), ("assistant", text), ("user", "cd"))
    assert cached(again) > 0.9 * first["usage"]["prompt_tokens"]
    assert misses(server) == []


@pytest.mark.parametrize("was, now, hint", [
    ("It is 10:41.", "It is 10:42.", "clock"),
    ("Request 12 today.", "Request 13 today.", "counter"),
    ("Header cch=fa690; on", "Header cch=0b12c; on", "nonce"),
    ("Call {\"a\": 1, \"b\": 2} now", "Call {\"b\": 2, \"a\": 1} now", "reserialised_call"),
    ("Be brief, please.", "Be as long as you like.", None),
])
def test_E16_a_changed_system_text_is_found_with_its_likely_cause(server, was, now, hint):
    ask(server, ("system", was + LONG), ("user", "ab"))
    reply = ask(server, ("system", now + LONG), ("user", "ab"))
    row = the_record(server, reply, "content_changed", hint)
    same = len(os.path.commonprefix([was, now]))
    diff = row["first_diff"]
    assert (diff["message"], diff["role"], diff["part"]) == (0, "system", 0)
    assert diff["byte"] == same, diff
    assert was[same:same + 4] in diff["was"] and now[same:same + 4] in diff["now"]
    assert len(diff["was"].encode()) <= 48 and len(diff["now"].encode()) <= 48
    assert 0 < diff["token"] < reply["usage"]["prompt_tokens"]


def test_a_changed_turn_in_the_middle_is_named(server):
    turns = [("system", "s"), ("user", LONG), ("assistant", "Yes, and a little more."),
             ("user", LONG)]
    ask(server, *turns)
    turns[2] = ("assistant", "Yes, and a little less.")
    ask(server, *turns)
    diff = misses(server)[0]["first_diff"]
    assert (diff["message"], diff["role"]) == (2, "assistant")
    assert diff["byte"] == len("Yes, and a little ")


def test_another_list_of_tools_is_named(home):
    def tool(name):
        return {"type": "function", "function": {"name": name, "description": LONG,
                                                 "parameters": {"type": "object"}}}
    with thinking(home) as server:
        ask(server, ("user", LONG), tools=[tool("read"), tool("list")])
        ask(server, ("user", LONG), tools=[tool("find"), tool("list")])
        row = misses(server)[0]
        assert (row["reason"], row["hint"]) == ("content_changed", "tools_changed")
        assert row["first_diff"]["role"] == "tools" and row["first_diff"]["part"] == 0


def test_reasoning_that_a_template_drops_is_named(home):
    """Inside a round of tools reasoning is shown; with the next question it is not."""
    call = {"role": "assistant", "content": "", "reasoning_content": "I look it up. " * 12,
            "tool_calls": [{"id": "c1", "type": "function",
                            "function": {"name": "read", "arguments": "{\"path\": \"a\"}"}}]}
    tools = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
    rows = [{"role": "user", "content": "ab"}, call,
            {"role": "tool", "tool_call_id": "c1", "content": LONG}]
    with thinking(home) as server:
        for messages in (rows, rows + [{"role": "assistant", "content": "ok"},
                                       {"role": "user", "content": "cd"}]):
            r = server.post("/v1/chat/completions", {
                "model": server.model(), "messages": messages, "tools": tools, "max_tokens": 1,
                "shoal": {"session": "s1"}})
            assert r.status == 200, r.body
        row = misses(server)[0]
        assert (row["reason"], row["hint"]) == ("template_changed", "reasoning_dropped"), row


def test_a_switch_of_the_template_is_told_from_changed_content(home):
    with thinking(home, SWITCH) as server:
        ask(server, ("system", LONG), ("user", "ab"), reasoning_effort="high")
        ask(server, ("system", LONG), ("user", "ab"), reasoning_effort="none")
        row = misses(server)[0]
        assert (row["reason"], row["hint"]) == ("template_changed", None)
        assert row["first_diff"]["role"] == "template" and row["first_diff"]["message"] is None
        assert row["cached_tokens"] == 0


def test_the_cache_turned_off_for_a_request_is_disabled(server):
    ask(server, ("system", LONG), ("user", "ab"))
    reply = ask(server, ("system", LONG), ("user", "ab"), shoal={"cache": "off"})
    row = the_record(server, reply, "disabled")
    assert row["first_diff"] is None and row["cached_tokens"] == 0


def test_a_child_that_died_is_model_reloaded(server):
    ask(server, ("system", LONG), ("user", "ab"))
    child = server.child()
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: server.get("/ready").json()["state"] == "loaded" and
               server.child() != child)
    reply = ask(server, ("system", LONG), ("user", "ab"))
    row = the_record(server, reply, "model_reloaded")
    assert row["expected_tokens"] == reply["usage"]["prompt_tokens"] - 1


def test_a_session_that_moves_to_another_model_is_cold(home):
    with serving(home, "-model", TINY, "-model", THINKER) as server:
        for model in ("llama", "qwen3"):
            r = server.post("/v1/chat/completions", {
                "model": model, "max_tokens": 1, "shoal": {"session": "s1"},
                "messages": [{"role": "user", "content": LONG}]})
            assert r.status == 200, r.body
        assert [r["reason"] for r in misses(server)] == ["cold"]


def test_another_scope_is_told_to_admin_alone(home):
    env = {name.upper(): key for name, key in KEYS.items()}
    with serving(home, "-model", TINY, "-config", config(home, WITH_KEYS), env=env) as server:
        ask(server, ("system", LONG), ("user", "ab"), headers=bearer("one"))
        other = ask(server, ("system", LONG), ("user", "ab"), headers=bearer("two"))
        assert cached(other) == 0
        assert misses(server, headers=bearer("two")) == []
        assert misses(server, headers=bearer("one")) == []
        rows = misses(server, headers=bearer("ops"))
        assert [(r["reason"], r["agent"], r["first_diff"]) for r in rows] == [
            ("scope", "two", None)]
        ask(server, ("system", "Now this. " + LONG), ("user", "ab"), headers=bearer("two"))
        assert [r["reason"] for r in misses(server, headers=bearer("two"))] == ["content_changed"]
        assert misses(server, headers=bearer("one")) == []
        assert len(misses(server, headers=bearer("ops"))) == 2


TEAM = """
keys:
  - {name: one, key_env: ONE, scopes: [infer], cache_scope: team}
  - {name: two, key_env: TWO, scopes: [infer], cache_scope: team}
  - {name: ops, key_env: OPS, scopes: [infer, read, admin]}
"""


def test_keys_of_one_scope_see_records_and_not_each_others_excerpts(home):
    env = {name.upper(): key for name, key in KEYS.items()}

    def excerpts(who):
        return [(r["agent"], r["first_diff"]["was"], r["first_diff"]["now"])
                for r in misses(server, headers=bearer(who))]
    with serving(home, "-model", TINY, "-config", config(home, TEAM), env=env) as server:
        for word in ("Sesame", "Barley"):
            ask(server, ("system", f"{word} and so on. {LONG}"), ("user", "ab"),
                headers=bearer("one"))
        (agent, was, now), = excerpts("one")
        assert agent == "one" and "Sesame" in was and "Barley" in now
        assert excerpts("two") == [("one", None, None)]
        assert excerpts("ops") == [("one", was, now)]
        row, = misses(server, headers=bearer("two"))
        assert row["reason"] == "content_changed" and row["first_diff"]["byte"] == 0
        # The same session by the other key: what it was before is the first key's text.
        ask(server, ("system", f"Millet and so on. {LONG}"), ("user", "ab"), headers=bearer("two"))
        assert excerpts("two") == [("two", None, None), ("one", None, None)]
        assert excerpts("one") == [("two", None, None), ("one", was, now)]
        new = excerpts("ops")[0]
        assert "Barley" in new[1] and "Millet" in new[2]
        # And its own two prompts it may see again.
        ask(server, ("system", f"Sorghum and so on. {LONG}"), ("user", "ab"),
            headers=bearer("two"))
        assert "Millet" in excerpts("two")[0][1] and "Sorghum" in excerpts("two")[0][2]
        assert excerpts("one")[0] == ("two", None, None)


def test_an_agent_without_sessions_may_hold_several_conversations(server):
    def turn(text, agent="a1"):
        return server.post("/v1/chat/completions", {
            "model": "llama", "max_tokens": 1, "shoal": {"agent": agent},
            "messages": [{"role": "system", "content": text + LONG},
                         {"role": "user", "content": "ab"}]})
    for _ in range(2):
        assert turn("Alpha! ").status == 200
        assert turn("A wholly different one, ").status == 200
    rows = misses(server, "?agent=a1")
    assert len(rows) <= 1  # the first time the second one is seen
    assert misses(server, "?agent=nobody") == []


def test_excerpts_and_records_are_bounded_by_the_configuration(home):
    text = "cache: {miss_ring: 2, miss_excerpt: 0}\n"
    with serving(home, "-model", TINY, "-config", config(home, text)) as server:
        for i in range(5):
            ask(server, ("system", f"{'abcde'[i]} and so on. " + LONG), ("user", "ab"))
        rows = misses(server)
        assert len(rows) == 2 and rows[0]["at"] >= rows[1]["at"]
        assert rows[0]["first_diff"]["was"] is None and rows[0]["first_diff"]["now"] is None
        assert len(misses(server, "?limit=1")) == 1
        for bad in ("0", "x", "-1", "99999999"):
            r = server.get(f"/v1/cache/misses?limit={bad}")
            assert r.status == 400 and "limit" in r.json()["error"]["message"]


def test_no_text_of_a_prompt_is_logged(server):
    ask(server, ("system", "Sesame-one. " + LONG), ("user", "ab"))
    ask(server, ("system", "Sesame-two. " + LONG), ("user", "ab"))
    assert "Sesame-two" in str(misses(server)[0]["first_diff"])
    assert "Sesame" not in server.errors()


def test_figures_of_the_cache_follow_what_is_asked(server):
    def figures():
        return server.get("/v1/cache").json()["models"][0]
    wait_until(lambda: "pages" in figures() or ask(server, ("user", LONG)))
    before = figures()
    ask(server, ("system", LONG), ("user", "ab"))
    reply = ask(server, ("system", LONG), ("user", "ab"))
    row = wait_until(lambda: (f := figures())["hits"] > before["hits"] and f)
    pages = row["pages"]
    assert row["model"] == "llama" and row["page_tokens"] == 32
    assert pages["free"] + pages["used"] + pages["cached"] == pages["total"]
    assert pages["cached"] >= reply["usage"]["prompt_tokens"] // 32 and pages["pinned"] == 0
    assert row["nodes"] >= pages["cached"]
    assert row["tokens_cached"] - before["tokens_cached"] >= cached(reply)
    assert row["tokens_computed"] > before["tokens_computed"]
    replay = server.get("/v1/cache").json()["replay"]
    assert set(replay) == {"entries", "bytes", "hits"}


def test_inspect_cache_shows_figures_and_records(shoal, server):
    ask(server, ("system", "It is 10:41. " + LONG), ("user", "ab"))
    ask(server, ("system", "It is 10:42. " + LONG), ("user", "ab"))
    at = f"127.0.0.1:{server.port}"
    wait_until(lambda: "cached" in shoal("inspect", "cache", "-addr", at).stdout)
    shown = shoal("inspect", "cache", "-misses", "-addr", at)
    assert shown.returncode == 0, shown.stderr
    for text in ("reason content_changed  hint clock", "session s1", "role system  message 0",
                 "10:42"):
        assert text in shown.stdout, shown.stdout
    raw = shoal("inspect", "cache", "-misses", "-json", "-addr", at)
    assert '"hint":"clock"' in raw.stdout
    none = shoal("inspect", "cache", "-addr", "127.0.0.1:1")
    assert none.returncode == 1 and "no shoal server" in none.stderr


def test_E16_the_clock_is_rounded_only_where_the_configuration_says_so(home):
    def turn(server, now, **more):
        return server.post("/v1/chat/completions", {
            "model": "llama", "max_tokens": 1, "shoal": {"session": "s1"},
            "messages": [{"role": "system", "content": f"It is {now}. " + LONG},
                         {"role": "user", "content": "ab 10:41"}], **more})
    with serving(home, "-model", TINY, "-config",
                 config(home, "cache: {normalise: {clock: true}}\n")) as server:
        first = turn(server, "2026-11-30 10:41:07")
        again = turn(server, "2026-11-30 23:08:59")
        assert cached(again.json()) > 0.9 * first.json()["usage"]["prompt_tokens"]
        assert "normalised; system: 1 times of day" in again.headers["shoal-warning"]
        assert misses(server) == []
        assert server.metric('shoal_warnings_total{code="normalised"}') == 2
        turn(server, "2026-12-01 10:41:07")  # another day is another prompt
        assert [(r["reason"], r["hint"]) for r in misses(server)] == [("content_changed", "clock")]
