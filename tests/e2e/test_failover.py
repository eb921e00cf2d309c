"""The second leg from outside: faults of upstreams in every protocol, clients of every protocol.

Upstreams are `shoal stub` processes: the fault stands in the model's name, the text is numbered
words, so that a lost or repeated one shows.
"""
import concurrent.futures
import json
import os
import re
import select
import signal
import subprocess
import time

import pytest

from conftest import SHOAL
from server import REAL, Server, children_of, serving, wait_until

DIALECTS = ("ollama", "openai", "anthropic", "responses")
CONTINUE = {"ollama": "shoal", "openai": "final_message", "anthropic": "prefill",
            "responses": "shoal"}
WORDS = 40
# fault -> (class, something was said before, status alone, stalls)
FAULTS = {
    "abort": ("cut", False, 502), "hang_header": ("hang_header", False, 504),
    "hang_body": ("hang_first", False, 504), "pings": ("hang_first", False, 504),
    "roles": ("hang_first", False, 504), "stall=12": ("stall", True, 504),
    "end=12": ("cut", True, 502), "cut=12": ("cut", True, 502), "cut=0": ("cut", False, 502),
    "garbage=9": ("garbage", None, 502), "status=500": ("http_5xx", False, 502),
    "status=503": ("http_5xx", False, 503), "status=429": ("rate_limit", False, 429),
    "html": ("garbage", None, 502),
}


class Stub:
    def __init__(self, home, *args):
        self.process = subprocess.Popen([SHOAL, "stub", "-words", str(WORDS), *args],
                                        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                        env={"HOME": str(home), "PATH": os.environ["PATH"]})
        assert select.select([self.process.stdout], [], [], 20)[0]
        line = self.process.stdout.readline().decode()
        self.port = int(re.search(r":(\d+)", line).group(1))

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=10)


def config_of(legs, routes, more=()):
    lines = ["legs:"] + [f"  {name}: {json.dumps(leg)}" for name, leg in legs.items()]
    lines += ["routes:"] + [f"  - {json.dumps(r)}" for r in routes]
    return "\n".join([*lines, *more, ""])


# ---------------------------------------------------------------- clients of every protocol

PATHS = {"ollama": "/api/chat", "openai": "/v1/chat/completions", "anthropic": "/v1/messages",
         "responses": "/v1/responses"}


def ask(server, dialect, model, stream, timeout=30, **more):
    text = [{"role": "user", "content": "Go on."}]
    body = {"model": model, "stream": stream, **more}
    if dialect == "responses":
        body["input"] = "Go on."
    else:
        body["messages"] = text
    if dialect == "anthropic":
        body["max_tokens"] = 1000
    return server.post(PATHS[dialect], body, timeout=timeout)


def events_of(body):
    for block in body.decode().split("\n\n"):
        for line in block.split("\n"):
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line[len("data: "):])


def read_stream(dialect, body):
    """(text, how it ended: "ok", "error" or "nothing")."""
    text, end = "", "nothing"
    if dialect == "ollama":
        for line in body.decode().splitlines():
            e = json.loads(line)
            text += e.get("message", {}).get("content", "")
            if e.get("done"):
                end = "error" if e["done_reason"] == "error" else "ok"
        return text, end
    for e in events_of(body):
        if dialect == "openai":
            for c in e.get("choices", []):
                text += c["delta"].get("content") or ""
                if c["finish_reason"]:
                    end = "error" if c["finish_reason"] == "error" else "ok"
        elif dialect == "anthropic":
            if e["type"] == "content_block_delta":
                text += e["delta"].get("text", "")
            end = {"message_stop": "ok", "error": "error"}.get(e["type"], end)
        else:
            if e["type"] == "response.output_text.delta":
                text += e["delta"]
            end = {"response.completed": "ok", "response.failed": "error"}.get(e["type"], end)
    return text, end


def read_whole(dialect, body):
    r = json.loads(body)
    if dialect == "ollama":
        return r["message"]["content"]
    if dialect == "openai":
        return r["choices"][0]["message"]["content"]
    if dialect == "anthropic":
        return "".join(b.get("text", "") for b in r["content"])
    return "".join(p["text"] for i in r["output"] if i["type"] == "message" for p in i["content"])


def all_of(run):
    """Every fault, streamed and not, at once; all that is wrong is told."""
    wrong = []
    with concurrent.futures.ThreadPoolExecutor(14) as pool:
        runs = [pool.submit(run, f, s) for f in FAULTS for s in (True, False)]
    for r in runs:
        try:
            r.result()
        except (AssertionError, AttributeError, KeyError, ValueError) as e:
            wrong.append(repr(e)[:600])
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------- the table

@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A server whose model names say the fault and the upstream's protocol: "two-stall=12-openai"
    has a second leg, "one-..." none."""
    home = tmp_path_factory.mktemp("table")
    first, second = Stub(home), Stub(home)
    legs, routes = {}, []
    for d in DIALECTS:
        for name, stub in (("a", first), ("b", second)):
            legs[f"{name}-{d}"] = {"kind": "upstream", "dialect": d, "continue": CONTINUE[d],
                                   "url": f"http://127.0.0.1:{stub.port}", "max_inflight": 500}
    for i, d in enumerate(DIALECTS):
        other = DIALECTS[(i + 1) % 3]  # one that goes on in its own way
        for fault in FAULTS:
            bad = {"leg": f"a-{d}", "model": f"x/{fault}"}
            routes.append({"match": {"model": f"two-{fault}-{d}"},
                           "legs": [bad, {"leg": f"b-{other}", "model": "x/ok"}]})
            routes.append({"match": {"model": f"one-{fault}-{d}"}, "legs": [bad]})
    routes.append({"match": {"model": "ok"}, "legs": [{"leg": "b-openai", "model": "x/ok"}]})
    path = home / "config.yaml"
    path.write_text(config_of(legs, routes, [
        "deadlines: {first_token: 400ms, gap: 400ms, all_open_wait: 1s}",
        "breaker: {failures: 1000, min_requests: 100000}"]))
    with serving(home, "-config", str(path)) as server:
        yield server
    first.stop()
    second.stop()


@pytest.fixture(scope="module")
def whole(table):
    return read_whole("openai", ask(table, "openai", "ok", False).body)


def test_the_text_of_a_stub_is_numbered(whole):
    assert len(whole.split()) == WORDS


@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize("client", DIALECTS)
def test_G04_G05_with_another_leg_every_fault_gives_the_whole_text(table, whole, client, upstream):
    def run(fault, stream):
        r = ask(table, client, f"two-{fault}-{upstream}", stream)
        what = (fault, stream, r.status, r.body[-300:])
        assert r.status == 200, what
        if stream:
            text, end = read_stream(client, r.body)
            assert end == "ok", what
        else:
            text = read_whole(client, r.body)
        assert text == whole, what
        assert r.headers["shoal-leg"], what
        class_, before, _ = FAULTS[fault]
        if before is False or (before is None and "shoal-substituted" in r.headers):
            reason = r.headers["shoal-substituted"].rsplit("=", 1)[1]
            assert reason in (class_, "cooling" if fault == "status=429" else class_), what
        elif before and stream:
            assert b'"phase":"failover"' in r.body and f'"reason":"{class_}"'.encode() in r.body
        if before:
            shoal = json.loads(re.search(rb'"legs":(\[\{"leg".*?\])', r.body).group(1))
            assert [leg["reason"] for leg in shoal] == [class_, None], what

    all_of(run)


@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize("client", DIALECTS)
def test_G07_without_another_leg_every_fault_is_an_error_and_never_a_clean_end(
        table, whole, client, upstream):
    def run(fault, stream):
        r = ask(table, client, f"one-{fault}-{upstream}", stream)
        what = (fault, stream, r.status, r.body[-300:])
        _, before, status = FAULTS[fault]
        if status == 503 and client == "anthropic":
            status = 529
        if r.status != 200:
            assert r.status == status and not (before and stream), what
            return
        assert stream and before is not False, what
        text, end = read_stream(client, r.body)
        assert end == "error" and whole.startswith(text), what

    all_of(run)
