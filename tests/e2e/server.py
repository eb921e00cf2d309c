"""A running `shoal serve` for tests, and HTTP by hand: what a client library hides is tested."""
import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import time

from conftest import ROOT, SHOAL

TINY = os.path.join(ROOT, "build", "tiny", "llama.gguf")
REAL = os.path.join(ROOT, "build", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
CODER = os.path.join(ROOT, "build", "models", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return [int(p) for p in f.read().split()]
    except FileNotFoundError:
        return []


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(0.02)
    raise AssertionError("waited in vain")


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.headers = {k.lower(): v for k, v in headers}

    def json(self):
        return json.loads(self.body)


class Server:
    """Owns the process; leaves a log and the banner behind for assertions."""

    def __init__(self, home, *args, env=None, ready=True, binary=SHOAL, context=None):
        """context: an ssl.SSLContext that trusts the server, which then speaks TLS."""
        self.home, self.context = home, context
        self.log = open(os.path.join(home, "serve.err"), "wb")
        clean = {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        clean.update(env or {})
        words = list(args)
        if "-addr" not in words:
            words += ["-addr", "127.0.0.1:0"]
        self.process = subprocess.Popen([binary, "serve", *words], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.log, env=clean,
                                        bufsize=0)
        self.banner = ""
        self.port = self._read_port()
        if ready:
            self.wait_ready("-model" in words)

    def _read_port(self):
        end = time.monotonic() + 30
        while True:
            assert select.select([self.process.stdout], [], [], end - time.monotonic())[0]
            line = self.process.stdout.readline().decode()
            assert line, f"no banner: {self.errors()}"
            self.banner += line
            found = re.match(r"listening +https?://[^ ]*:(\d+)$", line)
            if found:
                return int(found.group(1))

    def wait_ready(self, loaded):
        """Until a reply would start now; loaded: by a model that is in memory. Without any model
        there is nothing to wait for."""
        def is_ready():
            r = self.get("/ready")
            state = r.json()["state"]
            return state == "loaded" if loaded else r.status == 200 or state == "none"
        wait_until(is_ready, 60)

    def errors(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8") as f:
            return f.read()

    @property
    def url(self):
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}"

    def child(self):
        return wait_until(lambda: children_of(self.process.pid))[0]

    def connect(self, timeout=30):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=60):
        if self.context:
            c = http.client.HTTPSConnection("localhost", self.port, timeout=timeout,
                                            context=self.context)
        else:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
            c.request(method, path, body=data, headers=headers or {})
            r = c.getresponse()
            return Reply(r.status, r.getheaders(), r.read())
        finally:
            c.close()

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def chat(self, text="Say hello.", **more):
        timeout = more.pop("timeout", 60)
        body = {"model": self.model(), "messages": [{"role": "user", "content": text}], **more}
        return self.post("/v1/chat/completions", body, timeout=timeout)

    def stream(self, text="Say hello.", **more):
        """(chunks, joined text) of a streamed chat completion; pings are left out."""
        r = self.chat(text, stream=True, **more)
        assert r.status == 200, r.body
        return sse(r.body)

    def model(self):
        if not hasattr(self, "_model"):
            self._model = self.get("/v1/status").json()["models"][0]["name"]
        return self._model

    def requests(self):
        return self.get("/v1/status").json()["requests"]

    def metric(self, name):
        """Sum over the series of that name."""
        lines = self.get("/metrics").body.decode().splitlines()
        found = [line for line in lines if line.startswith(name) and not line.startswith("#")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)

    def stop(self, number=signal.SIGTERM, timeout=20):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        finally:
            self.log.close()
        return self.process.returncode


def sse(body):
    chunks, text = [], ""
    for event in body.decode().split("\n\n"):
        if not event.startswith("data: ") or event == "data: [DONE]":
            continue
        chunks.append(json.loads(event[len("data: "):]))
        for choice in chunks[-1].get("choices", []):
            text += choice["delta"].get("content") or ""
    return chunks, text


@contextlib.contextmanager
def serving(home, *args, **kw):
    server = Server(home, *args, **kw)
    try:
        yield server
    finally:
        code = server.stop()
        assert code == 0, (code, server.errors())
