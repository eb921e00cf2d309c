"""`shoal doctor`: what it finds, what it says of a broken thing, its exit code for cron."""
import json


from legs import Stub, config_of

CLIENTS = ["client claude_code", "client codex", "client openai_sdk", "client ollama_sdk"]


def states(done):
    return {c["name"]: (c["state"], c["detail"]) for c in json.loads(done.stdout)["checks"]}


def test_CLI_23_a_sound_machine_passes_with_every_recorded_client(shoal, home):
    done = shoal("doctor", "-json", "-addr", "127.0.0.1:11599")
    got = states(done)
    assert {n: got[n][0] for n in CLIENTS} == {n: "ok" for n in CLIENTS}, got
    for name in ("config", "keys", "models", "tls", "legs", "cpu", "gpu", "memory", "disk", "clock",
                 "port", "store"):
        assert got[name][0] in ("ok", "warn"), (name, got[name])
    counts = json.loads(done.stdout)
    assert counts["fail"] == 0 and done.returncode == (3 if counts["warn"] else 0)
    text = shoal("doctor", "-config-only")
    assert text.returncode == 0
    assert all(line.startswith("ok    ") for line in text.stdout.splitlines()), text.stdout


def test_a_broken_configuration_is_a_line_and_exit_1(shoal, home):
    path = home / "c.yaml"
    path.write_text("listen: 3\nroutes: [{legs: [nobody]}]\nnonsense: true\n")
    done = shoal("doctor", "-config", str(path), "-config-only")
    assert done.returncode == 1 and "nonsense" in done.stdout, done
    path.write_text("routes: [{legs: [nobody]}]\n")
    done = shoal("doctor", "-config", str(path), "-config-only")
    assert done.returncode == 1 and 'fail  legs  ' in done.stdout and "nobody" in done.stdout
    (home / "key").write_text("fleet-key-0123456789\n")
    (home / "key").chmod(0o644)
    path.write_text(f"keys: [{{name: k, key_file: {home / 'key'}, scopes: [infer]}}]\n")
    done = shoal("doctor", "-config", str(path), "-config-only")
    assert done.returncode == 1 and "fail  keys  " in done.stdout, done.stdout
    done = shoal("doctor", "-json", "-config", str(path), "-addr", "127.0.0.1:11595")
    got = states(done)  # whole, though no endpoint starts from such a file
    assert got["keys"][0] == got["clients"][0] == "fail" and done.returncode == 1, got
    assert "mode 644" in got["clients"][1] and got["cpu"][0] == "ok"


def test_a_file_that_is_no_model_is_a_warning_and_exit_3(shoal, home):
    (home / "models").mkdir()
    (home / "models" / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    (home / "c.yaml").write_text(f"sources: {{dirs: [{home / 'models'}]}}\n")
    done = shoal("doctor", "-config", str(home / "c.yaml"), "-addr", "127.0.0.1:11598")
    assert "warn  model  bad: " in done.stdout and done.returncode == 3, done.stdout


def test_upstreams_are_asked_for_nothing_that_is_billed(shoal, home):
    good, refuses = Stub(home), Stub(home, "-fault", "status=401")
    legs = {n: {"kind": "upstream", "dialect": "openai", "model": "x", "url": url}
            for n, url in (("good", f"http://127.0.0.1:{good.port}"),
                           ("refuses", f"http://127.0.0.1:{refuses.port}"),
                           ("none", "http://127.0.0.1:1"))}
    (home / "key").write_text("sk-leg-0123456789abcdef\n")
    (home / "key").chmod(0o600)
    legs["refuses"]["key_file"] = str(home / "key")
    (home / "c.yaml").write_text(config_of(legs, [{"match": {}, "legs": list(legs)}]))
    args = ("doctor", "-json", "-config", str(home / "c.yaml"), "-addr", "127.0.0.1:11597")
    done = shoal(*args)
    got = states(done)
    assert got["leg good"][0] == "ok" and got["leg none"][0] == "warn"
    assert got["leg refuses"][0] == "fail" and done.returncode == 1
    assert not any(n.startswith("leg ") for n in states(shoal(*args, "-online=false")))
    import http.client
    for stub in (good, refuses):
        c = http.client.HTTPConnection("127.0.0.1", stub.port, timeout=10)
        c.request("GET", "/stub/counts")
        counts = json.loads(c.getresponse().read())
        assert counts["chats"] == 0 and counts["requests"] >= 1
        stub.stop()


def test_recordings_of_ones_own_are_replayed_too(shoal, home):
    mine = home / "mine"
    mine.mkdir()
    args = ("doctor", "-json", "-addr", "127.0.0.1:11596", "-online=false", "-replay", str(mine))
    assert shoal(*args).returncode == 1  # nothing in it
    (mine / "a.json").write_text(json.dumps({"path": "/v1/messages", "body": {
        "model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi."}]}}))
    assert states(shoal(*args))["client a.json"][0] == "ok"
    (mine / "b.json").write_text(json.dumps({"path": "/v1/messages", "body": {"model": "m"}}))
    (mine / "c.json").write_text("{")
    (mine / "d.json").write_text(json.dumps({"path": "/v1/nothing", "body": {"model": "m"}}))
    done = shoal(*args)
    got = states(done)
    assert done.returncode == 1 and got["client a.json"][0] == "ok"
    assert "status 400" in got["client b.json"][1] and got["client c.json"][0] == "fail"
    assert "no dialect has POST /v1/nothing" in got["client d.json"][1]
