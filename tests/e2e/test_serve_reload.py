"""The configuration read again while the server answers: SIGHUP and POST /v1/admin/reload."""
import json
import os
import signal
import threading

import pytest

from server import TINY, serving, wait_until

KEY, OTHER, OPS = (f"{name}-key-of-many-letters" for name in ("fleet", "other", "ops"))


def write(home, text):
    path = os.path.join(home, "config.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def admin(key=OPS):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def keyed(home):
    """A server whose file names two keys by their variables."""
    path = write(home, CONFIG)
    with serving(home, "-model", TINY, "-config", path,
                 env={"FLEET": KEY, "OTHER": OTHER, "OPS": OPS}) as server:
        server.path = path
        yield server


CONFIG = """
keys:
  - {name: fleet, key_env: FLEET, scopes: [infer]}
  - {name: ops, key_env: OPS, scopes: [infer, read, admin]}
limits: {queue: 7}
"""


def ask(server, key, **more):
    body = {"model": "llama", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 4,
            **more}
    return server.post("/v1/chat/completions", body, headers=admin(key))


def reload(server):
    return server.post("/v1/admin/reload", {}, headers=admin())


def test_a_reload_changes_keys_limits_and_aliases_at_once(keyed):
    assert ask(keyed, KEY).status == 200 and ask(keyed, OTHER).status == 401
    write(keyed.home, CONFIG.replace("FLEET", "OTHER").replace("queue: 7", "queue: 9, stop: 1")
          + "aliases: {gpt-x: llama}\n")
    done = reload(keyed)
    assert done.status == 200, done.body
    assert set(done.json()["changed"]) == {"keys", "limits.queue", "limits.stop", "aliases"}
    assert done.json()["needs_restart"] == []
    assert ask(keyed, KEY).status == 401 and ask(keyed, OTHER).status == 200
    assert ask(keyed, OTHER, stop=["a", "b"]).status == 400
    assert ask(keyed, OTHER, model="gpt-x").status == 200
    status = keyed.get("/v1/status", headers=admin()).json()
    assert status["queue"] == 9 and status["config"]["path"] == keyed.path
    assert len(status["config"]["sha256"]) == 64


@pytest.mark.parametrize("bad,words", [
    ("limits: {queue: many}", "config.yaml:1:10: limits.queue"),
    ("limts: {queue: 1}", "config.yaml:1:1: limts: unknown key"),
    ("models: {llama: {ctx: -1}}", "config.yaml:1:18: models.llama.ctx"),
    ("models: {llama: {tool_format: json}}", "models.llama.tool_format: one of harmony"),
    ("models: {llama: {defaults: {temperature: 9}}}", "temperature"),
    ("keys: [{name: a, key_env: NOBODY, scopes: [infer]}]", "NOBODY is not set"),
    ("logging: {file: /nowhere/at/all}", "/nowhere/at/all"),
    ("a: [", "config.yaml:"),
])
def test_a_bad_file_changes_nothing_and_is_told_with_line_and_key(keyed, bad, words):
    write(keyed.home, bad + "\n")
    refused = reload(keyed)
    assert refused.status == 400, refused.body
    assert words in refused.json()["error"]["message"]
    assert refused.json()["error"]["problems"]
    assert ask(keyed, KEY).status == 200 and ask(keyed, OTHER).status == 401
    health = keyed.get("/health").json()
    assert health["status"] == "degraded" and "reload refused" in health["reasons"][0]
    metrics = keyed.get("/metrics", headers=admin()).body.decode()
    assert 'shoal_config_reloads_total{result="refused"} 1' in metrics
    write(keyed.home, CONFIG)
    assert reload(keyed).status == 200
    assert keyed.get("/health").json()["status"] == "ok"


def test_all_problems_are_listed(keyed):
    write(keyed.home, "limits: {queue: many, stop: x}\nnoise: 1\n")
    assert len(reload(keyed).json()["error"]["problems"]) == 3


ALL_WRONG = """keys: [{name: a, key_env: NOBODY, scopes: [infer]}]
agents: {a: {noise: 1}}
models: {llama: {ctx: -1}}
legs: {a: {kind: cook}}
"""


def test_problems_of_all_sections_are_listed(keyed):
    write(keyed.home, ALL_WRONG + "logging: {file: /nowhere/at/all}\n")
    problems = reload(keyed).json()["error"]["problems"]
    for key in ("keys[0].key_env", "agents.a.noise", "models.llama.ctx", "legs.a.kind",
                "/nowhere/at/all"):
        assert sum(key in line for line in problems) == 1, (key, problems)
    assert len(problems) == 5, problems


def test_a_start_tells_the_problems_of_all_sections(home, shoal):
    done = shoal("serve", "-config", write(home, ALL_WRONG), "-dry-run")
    keys = [line.split(": ")[1] for line in done.stderr.splitlines()]
    assert done.returncode == 1
    assert keys == ["keys[0].key_env", "agents.a.noise", "models.llama.ctx", "legs.a.kind"]


def test_only_admin_may_reload(keyed):
    assert keyed.post("/v1/admin/reload", {}, headers=admin(KEY)).status == 403


def test_a_running_request_keeps_its_key_and_values(keyed):
    got = {}

    def run():
        got["reply"] = ask(keyed, KEY, max_tokens=1500, ignore_eos=True, stop=["qq", "zz"])

    t = threading.Thread(target=run)
    t.start()
    wait_until(lambda: keyed.get("/v1/status", headers=admin()).json()["requests"] == 1)
    for i in range(5):
        write(keyed.home, CONFIG.replace("FLEET", "OTHER").replace("fleet", f"fleet{i}"))
        assert reload(keyed).status == 200
    t.join()
    assert got["reply"].status == 200
    assert got["reply"].json()["usage"]["completion_tokens"] == 1500
    assert 'agent="fleet" ' in keyed.errors()


def test_hangup_reloads_and_keeps_serving(home):
    path = write(home, "logging: {level: warn}\n")
    with serving(home, "-model", TINY, "-config", path) as server:
        write(home, "logging: {level: info}\nengine: {slots: 3}\nlisten: 127.0.0.1:1\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "needs_restart" in server.errors())
        assert "engine.slots" in server.errors()
        assert server.chat(max_tokens=2).status == 200
        write(home, "limits: {queue: -1}\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "limits.queue" in server.errors())
        assert server.chat(max_tokens=2).status == 200


def test_a_rotated_log_is_begun_anew(home):
    log = os.path.join(home, "out.log")
    path = write(home, f"logging: {{file: {log}}}\n")
    with serving(home, "-model", TINY, "-config", path) as server:
        assert server.chat(max_tokens=2).status == 200
        os.rename(log, log + ".1")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: os.path.exists(log))
        assert server.chat(max_tokens=2).status == 200
        wait_until(lambda: "request" in open(log, encoding="utf-8").read())


def test_a_model_has_settings_of_its_own(home):
    template = os.path.join(home, "t.jinja")
    with open(template, "w", encoding="utf-8") as f:
        f.write("{{ messages[0].content }}")
    path = write(home, json.dumps({"models": {"llama": {
        "aliases": ["small*"], "defaults": {"max_tokens": 3, "stop": ["@@"]}, "keep_alive": "2h",
        "max_context": 256, "ctx": 512, "slots": 2,
        "template_file": template}}}))
    with serving(home, "-model", TINY, "-config", path) as server:
        row = server.get("/v1/status").json()["models"][0]
        assert row["context"] == 512 and row["slots"] == 2
        assert row["expires_at"] == -1 or row["expires_at"] > 3600
        body = {"model": "smallest", "messages": [{"role": "user", "content": "ab"}],
                "ignore_eos": True}
        reply = server.post("/v1/chat/completions", body)
        assert reply.status == 200, reply.body
        assert reply.json()["usage"]["completion_tokens"] == 3
        given = server.post("/v1/chat/completions", {**body, "max_tokens": 5}).json()
        assert given["usage"]["completion_tokens"] == 5
        body["messages"][0]["content"] = "ab " * 300
        refused = server.post("/v1/chat/completions", body)
        assert refused.status == 400 and "limit is 256" in refused.json()["error"]["message"]
        shown = server.post("/api/show", {"model": "llama"}).json()
        assert shown["template"]
        write(home, '{"models": {"llama": {"defaults": {"max_tokens": 7}}}}')
        assert server.post("/v1/admin/reload", {}).status == 200
        body["messages"][0]["content"] = "ab"
        body["model"] = "llama"
        reply = server.post("/v1/chat/completions", body).json()
        assert reply["usage"]["completion_tokens"] == 7


def test_a_pinned_model_is_not_unloaded_for_another(home):
    other = os.path.join(os.path.dirname(TINY), "qwen3.gguf")
    path = write(home, '{"models": {"llama": {"pin": true}}}')
    with serving(home, "-model", TINY, "-model", other, "-config", path, ready=False) as server:
        wait_until(lambda: _chat(server, "llama") == 200)
        assert _chat(server, "qwen3") == 500


def _chat(server, model):
    return server.post("/v1/chat/completions", {
        "model": model, "messages": [{"role": "user", "content": "ab"}], "max_tokens": 2}).status


def test_start_refuses_what_a_reload_refuses(home, shoal):
    path = write(home, "models: {llama: {slots: x}}\n")
    done = shoal("serve", "-config", path, "-dry-run")
    assert done.returncode == 1 and "config.yaml:1:18: models.llama.slots" in done.stderr


def test_many_reloads_leave_memory_as_it_was(keyed):
    def resident():
        with open(f"/proc/{keyed.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    for _ in range(20):
        assert reload(keyed).status == 200
    before = resident()
    for _ in range(300):
        assert reload(keyed).status == 200
    assert resident() - before < 2000, "kB"
