"""`shoal bench`, docs/BEHAVIOUR.md 2.2, on the tiny models of `make tiny`; `-against` on stubs."""
import contextlib
import http.server
import json
import os
import threading

import gguf
import pytest

from conftest import ROOT
from server import TINY, serving

QUICK = ["-p", "8", "-n", "4", "-reps", "2"]


def tiny(name):
    return os.path.join(ROOT, "build", "tiny", name + ".gguf")


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3moe"])
def test_every_test_has_its_row_and_the_means_add_up(shoal, name):
    done = shoal("bench", tiny(name), *QUICK, "-batch", "1,3", "-depth", "0,70", "-json")
    assert (done.returncode, done.stderr) == (0, "")
    got = json.loads(done.stdout)
    assert [(t["test"], t["depth"], t["batch"]) for t in got["tests"]] == [
        ("pp", 0, 1), ("tg", 0, 1), ("tg", 0, 3), ("pp", 70, 1), ("tg", 70, 1), ("tg", 70, 3)]
    bandwidth = (got["gb_per_s_before"] + got["gb_per_s_after"]) / 2
    for t in got["tests"]:
        assert len(t["reps"]) == 2 and all(r > 0 for r in t["reps"])
        assert t["tokens_per_s"] == pytest.approx(sum(t["reps"]) / 2)
        assert t["sd"] == pytest.approx(abs(t["reps"][0] - t["reps"][1]) / 2 ** 0.5)
        if t["test"] == "tg":
            assert t["share"] == pytest.approx(t["gb_per_s"] / bandwidth)


def test_bytes_of_a_step_are_the_weights_it_reads_and_the_cache(shoal):
    sizes = {t.name: int(t.n_bytes) for t in gguf.GGUFReader(tiny("llama")).tensors}
    embed = sizes.pop("token_embd.weight")
    done = shoal("bench", tiny("llama"), *QUICK, "-batch", "1,2", "-depth", "0,64", "-json")
    plan = json.loads(shoal("inspect", "plan", tiny("llama"), "-json").stdout)
    for t in json.loads(done.stdout)["tests"]:
        if t["test"] == "tg":
            cache = plan["kv_per_token"] * (t["depth"] + 2.5)  # half of the four new ones
            wanted = sum(sizes.values()) + t["batch"] * (embed / 320 + cache)
            step = t["gb_per_s"] * 1e9 / t["tokens_per_s"] * t["batch"]
            assert step == pytest.approx(wanted)


def test_the_table_names_model_machine_and_bandwidth(shoal):
    done = shoal("bench", *QUICK, "-batch", "2", tiny("llama"))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("model      llama (llama, ")
    assert "GB/s before" in lines[3]
    assert [line.split()[0] for line in lines[5:]] == ["TEST", "pp8", "tg4"]


def test_settings_of_the_engine_hold(shoal):
    done = shoal("bench", *QUICK, tiny("llama"), "-json", "-batch", "1",
                 env={"SHOAL_ENGINE_THREADS": "1", "SHOAL_ENGINE_ACTIVATIONS": "float"})
    got = json.loads(done.stdout)
    assert got["threads"] == 1 and "act=float" in got["numerics"]


def test_kernels_of_a_lesser_cpu_can_be_measured(shoal):
    done = shoal("bench", *QUICK, tiny("llama"), "-json", "-batch", "1", "-isa", "ref")
    got = json.loads(done.stdout)
    assert got["isa"] == "ref" and got["numerics"].startswith("cpu ref ")
    assert got["weights_s"] > 0
    heads = {t["test"]: t["attend_ops"] for t in got["tests"]}
    assert heads["pp"] == pytest.approx(heads["tg"] * 4.5 / 2.5)  # over 8 and 4 tokens


def test_one_token_alone_can_be_measured(shoal):
    done = shoal("bench", "-p", "0", "-n", "1", "-batch", "1", tiny("llama"), "-json")
    assert (done.returncode, len(json.loads(done.stdout)["tests"])) == (0, 1)


def test_what_cannot_be_measured_is_refused(shoal):
    llama = tiny("llama")
    for args, code, text in [
            ([llama, "-batch", "1,x"], 2, 'bench: -batch: at most 16 integers 1..512 divided by '
                                          'commas expected, got "1,x"'),
            ([llama, "-batch", "0"], 2, 'bench: -batch: at most 16 integers 1..512 divided by '
                                        'commas expected, got "0"'),
            ([llama, "-depth", ""], 2, "bench: -depth: a list of integers expected"),
            ([llama, "-p", "0", "-n", "0"], 2, "bench: nothing to do: -p and -n are both 0"),
            ([llama, "-reps", "0"], 2, 'bench: -reps: integer 1..100 expected, got "0"'),
            ([llama, "-isa", "sse"], 2, 'bench: -isa: auto, ref, avx2, avx512, vnni or amx '
                                        'expected, got "sse"'),
            ([llama, "-depth", "1000000"], 1, "bench: depth and test need 1000512 tokens of "
                                              "context, the model was trained with 2048")]:
        done = shoal("bench", *args)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr == f"shoal: {text}\n"


class Stub(http.server.BaseHTTPRequestHandler):
    """An OpenAI server: a word is a token; the reply is one JSON object in three events. What was
    asked before, from the prompt's first word on, counts as cached."""
    protocol_version = "HTTP/1.1"

    def log_message(self, format, *args):
        pass

    def do_GET(self):
        self.answer(200, {"data": [{"id": "stub"}]})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = " ".join(m["content"] for m in body["messages"]).split()
        first = body["messages"][0]["content"].split()
        seen = self.server.seen
        cached = len(first) if tuple(first) in seen else 0
        seen.add(tuple(first))
        self.server.bodies.append(body)
        if len(self.server.bodies) > self.server.good:
            return self.answer(503, {"error": {"message": "full"}})
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        usage = {"prompt_tokens": len(words) + 10, "completion_tokens": 3,
                 "prompt_tokens_details": {"cached_tokens": cached}}
        for text, end in ('{"a":', None), (' "b"', None), ("}", "stop"):
            self.event({"choices": [{"delta": {"content": text}, "finish_reason": end}]})
        self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, body):
        self.wfile.write(f"data: {json.dumps(body)}\n\n".encode())


@contextlib.contextmanager
def stub(good=10 ** 6):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    server.seen, server.bodies, server.good = set(), [], good
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def against(shoal, url, *args):
    done = shoal("bench", "-against", url, "-json", "-agents", "4", "-prompt-tokens", "50",
                 "-out", "9", "-rounds", "2", *args)
    return done, json.loads(done.stdout) if done.stdout else None


@pytest.mark.parametrize("scenario,asked,later,cached", [
    ("together", 4, 0, 0), ("random", 4, 0, 0), ("returning", 8, 4, 4), ("turns", 16, 12, 12),
    ("forked", 4, 0, 3), ("json", 4, 0, 0)])
def test_each_scenario_asks_what_it_says(shoal, scenario, asked, later, cached):
    with stub() as (one, a), stub() as (two, b):
        done, got = against(shoal, f"{a}/v1/,{b}", "-scenario", scenario)
        assert (done.returncode, done.stderr) == (0, "")
        bodies = one.bodies[2:]  # two that measure the length of a word
        assert len(bodies) == 2 * asked
        # The same texts for both, though the moments of their arrival differ.
        assert sorted(map(json.dumps, bodies)) == sorted(map(json.dumps, two.bodies[2:]))
        for target in got["targets"]:
            assert (target["requests"], target["failed"]) == (2 * asked, 0)
            assert target["model"] == "stub" and target["reply_tokens"] == 3
            assert target["events"] == 6 * asked
            assert (target["later_token_p50_ms"] is not None) == (later > 0)
            assert (target["cached_percent"] > 0) == (cached > 0)
            assert target["valid_json_percent"] == (100 if scenario == "json" else None)
        assert all(b["max_tokens"] == 9 or scenario == "random" for b in bodies)
        assert all(("response_format" in b) == (scenario == "json") for b in bodies)
        if scenario == "together":
            assert got["targets"][0]["prompt_tokens"] == 50  # 40 words and the stub's 10
            assert len({b["messages"][0]["content"] for b in bodies}) == 2 * asked


def test_failures_are_counted_by_kind_and_told_by_the_exit_code(shoal):
    with stub() as (_, a), stub(good=5) as (_, b):
        done, got = against(shoal, f"{a},{b}")
        assert done.returncode == 1
        good, bad = got["targets"]
        assert (good["failed"], good["errors"]) == (0, {})
        assert (bad["failed"], bad["errors"]) == (5, {"http 503": 5})
        assert "full" in bad["first_error"] and bad["requests"] == 8


def test_the_table_has_a_column_for_each_server(shoal):
    with stub() as (_, a), stub() as (_, b):
        done = shoal("bench", "-against", f"{a},{b}", "-agents", "2", "-prompt-tokens", "20",
                     "-out", "4", "-rounds", "1")
    lines = done.stdout.splitlines()
    assert lines[0] == ("together: 2 agents, prompts of 20 tokens, 4 out, 1 round, dialect chat")
    assert lines[2].split() == ["TARGET", a, b]
    assert lines[3].split() == ["model", "stub", "stub"]


def test_a_target_that_gives_no_first_answer_ends_it_with_a_sentence(shoal):
    done = shoal("bench", "-against", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("shoal: http://127.0.0.1:1/v1/models: connect: ")
    with stub(good=0) as (_, a):
        done = shoal("bench", "-against", a)
        assert done.returncode == 1 and done.stderr.startswith(f"shoal: {a}: http 503: ")


def test_flags_of_the_other_half_are_refused(shoal):
    for args, text in [
            (["m", "-agents", "2"], "bench: -agents: only with -against"),
            (["-against", "http://127.0.0.1:1", "-p", "5"], "bench: -p: only without -against"),
            (["-against", "http://127.0.0.1:1", "-isa", "ref"],
             "bench: -isa: only without -against"),
            ([], "bench: a MODEL or -against URL expected"),
            (["-against", "ftp://x"], 'bench: -against: URLs with http:// or https:// divided by '
                                      'commas expected, got "ftp://x"'),
            (["-against", "http://127.0.0.1:1", "-scenario", "x"],
             'bench: -scenario: together, random, returning, forked, turns or json expected, '
             'got "x"'),
            (["-against", "http://127.0.0.1:1", "-scenario", "json", "-dialect", "anthropic"],
             "bench: -scenario json: anthropic has no field for a schema; chat, responses or "
             "ollama expected"),
            (["-against", "http://127.0.0.1:1", "-agents", "4096", "-out", "65536"],
             "bench: agents x out x rounds x 4 turns are 3221225472 events, at most 16777216")]:
        done = shoal("bench", *args)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"shoal: {text}\n")


def test_the_responses_protocol_and_a_key_for_its_server(shoal, home):
    key = home / "key"
    key.write_text("bench-key-of-many-letters\n")
    key.chmod(0o600)
    with serving(home, "-model", TINY, "-key-file", str(key), ready=False) as server:
        args = ["bench", "-against", server.url, "-agents", "2", "-prompt-tokens", "20", "-out",
                "4", "-rounds", "1", "-dialect", "responses", "-json", "llama"]
        refused = shoal(*args)
        assert refused.returncode == 1 and "401" in refused.stderr
        done = shoal(*args, "-key-file", str(key))
        assert done.returncode == 0, done.stderr
        (target,) = json.loads(done.stdout)["targets"]
        assert target["failed"] == 0 and target["requests"] == 2
        more = shoal(*args, "-key-file", str(key), "-key-file", str(key))
        assert more.returncode == 2 and "2 keys for 1 servers" in more.stderr
