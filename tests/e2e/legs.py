"""Upstreams that fail, clients of every protocol, and the configuration between them: what the
tests of the second leg share.

Upstreams are `shoal stub` processes: the fault stands in the model's name, the text is numbered
words, so that a lost or repeated one shows. `Upstream` says what its test wants.
"""
import atexit
import concurrent.futures
import http.client
import http.server
import itertools
import json
import os
import re
import select
import subprocess
import threading
import time
import urllib.request

from conftest import SHOAL
from server import REAL

DIALECTS = ("ollama", "openai", "anthropic", "responses")
CONTINUE = {"ollama": "shoal", "openai": "final_message", "anthropic": "prefill",
            "responses": "shoal"}
WORDS = 40
# Of a configuration: a leg is asked by the test alone, and no failure opens its breaker.
QUIET = ["probes: {free: false}", "breaker: {failures: 1000, min_requests: 100000}"]
PATHS = {"ollama": "/api/chat", "openai": "/v1/chat/completions", "anthropic": "/v1/messages",
         "responses": "/v1/responses"}


class Stub:
    def __init__(self, home, *args):
        self.process = subprocess.Popen([SHOAL, "stub", "-words", str(WORDS), *args],
                                        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                        env={"HOME": str(home), "PATH": os.environ["PATH"]})
        assert select.select([self.process.stdout], [], [], 20)[0]
        line = self.process.stdout.readline().decode()
        self.port = int(re.search(r":(\d+)", line).group(1))
        atexit.register(self.process.kill)  # a test that fails does not come to stop()

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as r:
            return r.read()

    def chats(self):
        """How many chats it was asked for: what an upstream would bill."""
        return json.loads(self.get("/stub/counts"))["chats"]

    def stop(self):
        atexit.unregister(self.process.kill)
        self.process.terminate()
        self.process.communicate(timeout=10)


class Listener(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # by default 5: of many who dial at once some would wait a second


class Upstream:
    """An OpenAI or Anthropic upstream of our own: answer(body) yields its events as text; what
    it was asked, and when, is kept."""

    def __init__(self, answer):
        outer = self
        self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append((time.monotonic(), body, self.headers))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                for event in answer(body):
                    self.wfile.write(event.encode())
                    self.wfile.flush()
                self.close_connection = True

            def log_message(self, *_):
                pass

        self.server = Listener(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def chat_pieces(text, finish="stop"):
    for i in range(0, len(text), 7):
        yield "data: " + json.dumps({"choices": [{"index": 0, "delta": {
            "content": text[i:i + 7]}, "finish_reason": None}]}) + "\n\n"
    if finish:
        yield "data: " + json.dumps({"choices": [{"index": 0, "delta": {},
                                                  "finish_reason": finish}]}) + "\n\n"
        yield "data: [DONE]\n\n"


def config_of(legs, routes, more=()):
    lines = ["legs:"] + [f"  {name}: {json.dumps(leg)}" for name, leg in legs.items()]
    lines += ["routes:"] + [f"  - {json.dumps(r)}" for r in routes]
    return "\n".join([*lines, *more, ""])


def two_engines(home):
    """A server whose route has two children of the same weights."""
    models = home / "models"
    models.mkdir()
    for n in ("one", "two"):
        os.link(os.path.realpath(REAL), models / f"{n}.gguf") if os.stat(
            os.path.realpath(REAL)).st_dev == os.stat(models).st_dev else os.symlink(
                os.path.realpath(REAL), models / f"{n}.gguf")
    path = home / "config.yaml"
    path.write_text(config_of(
        {"one": {"kind": "engine", "model": "one"}, "two": {"kind": "engine", "model": "two"}},
        [{"match": {"model": "both"}, "legs": ["one", "two"]},
         {"match": {"model": "alone"}, "legs": ["one"]}],
        [f"sources: {{dirs: [{models}]}}", "engine: {resident: 2, ctx: 2048}"]))
    return path


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


def stream_of(server, model, agent, tokens, **more):
    """Yields the pieces of a streamed chat as they come."""
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = {"model": model, "stream": True, "max_tokens": tokens, "user": agent, **more,
            "messages": [{"role": "user", "content": f"Count, {agent}, and say why."}]}
    c.request("POST", "/v1/chat/completions", json.dumps(body))
    r = c.getresponse()
    assert r.status == 200, r.read()
    buffer = b""
    while True:
        piece = r.read1(65536)
        if not piece:
            break
        buffer += piece
        while b"\n\n" in buffer:
            event, buffer = buffer.split(b"\n\n", 1)
            yield event.decode()
    c.close()


def run_stream(server, model, agent, tokens, on_text=None, **more):
    """(text, reason of the end, legs); the tokens of the legs are those of the reply."""
    text, end, legs = "", None, None
    more = {**more, "stream_options": {"include_usage": True}}
    for event in stream_of(server, model, agent, tokens, **more):
        if not event.startswith("data: ") or event == "data: [DONE]":
            continue
        e = json.loads(event[len("data: "):])
        if "error" in e:
            end = e["error"]["message"]
        for choice in e.get("choices", []):
            text += choice["delta"].get("content") or ""
            end = choice["finish_reason"] or end
        legs = e.get("shoal", {}).get("legs", legs)
        if legs and e.get("usage"):
            assert sum(x["output_tokens"] for x in legs) == e["usage"]["completion_tokens"], legs
        if on_text and text:
            on_text()
    return text, end, legs


def all_of(run, *axes):
    """Each cell of the product, many at once. All that is wrong is told."""
    wrong = []
    with concurrent.futures.ThreadPoolExecutor(14) as pool:
        runs = [pool.submit(run, *cell) for cell in itertools.product(*axes)]
    for r in runs:
        try:
            r.result()
        except (AssertionError, AttributeError, KeyError, ValueError) as e:
            wrong.append(repr(e)[:600])
    assert not wrong, "\n".join(wrong)
