"""One upstream behind a leg: every client's protocol over every upstream's, keys, certificates."""
import http.client
import http.server
import json
import os
import re
import select
import ssl
import subprocess
import threading

import pytest

from conftest import SHOAL
from server import Server

DIALECTS = ("ollama", "openai", "anthropic", "responses")
PATHS = {"ollama": "/api/chat", "openai": "/v1/chat/completions", "anthropic": "/v1/messages",
         "responses": "/v1/responses"}


class Stub:
    """`shoal stub`: the fault stands in the model's name, the text is numbered words."""

    def __init__(self, home):
        self.process = subprocess.Popen([SHOAL, "stub", "-words", "40"], stdout=subprocess.PIPE,
                                        stdin=subprocess.DEVNULL,
                                        env={"HOME": str(home), "PATH": os.environ["PATH"]})
        assert select.select([self.process.stdout], [], [], 20)[0]
        line = self.process.stdout.readline().decode()
        self.port = int(re.search(r":(\d+)", line).group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def get(self, path):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        c.request("GET", path)
        return c.getresponse().read().decode()

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=10)


def serve(home, legs, env=None):
    """A server whose routes are the legs' names: model "openai/x" goes to leg openai."""
    lines = ["legs:"] + [f"  {name}: {json.dumps(leg)}" for name, leg in legs.items()]
    lines += ["routes:"]
    lines += [f"  - {json.dumps({'match': {'model': name + '/*'}, 'legs': [name]})}"
              for name in legs]
    path = os.path.join(home, "config.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join([*lines, ""]))
    return Server(str(home), "-config", path, env=env)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A stub behind one leg of each protocol."""
    home = tmp_path_factory.mktemp("remote")
    stubs = {name: Stub(home) for name in (*DIALECTS, "pass")}
    legs = {d: {"kind": "upstream", "dialect": d, "url": stubs[d].url, "key_env": "LEG_KEY",
                "can": ["tools", "thinking", "schema", "logprobs", "n"]} for d in DIALECTS}
    legs["pass"] = {"kind": "upstream", "dialect": "anthropic", "url": stubs["pass"].url,
                    "auth": "passthrough", "can": ["tools"]}
    server = serve(home, legs, env={"LEG_KEY": "sk-leg-0123456789abcdef"})
    yield server, stubs, stubs["pass"].get("/stub/text")
    server.stop()
    for stub in stubs.values():
        stub.stop()


TOOL = {"type": "object", "properties": {"n": {"type": "array"}}}


def ask(server, dialect, model, stream, with_tool=False, **kw):
    body = {"model": model, "stream": stream}
    if dialect == "responses":
        body["input"] = "Go on."
    else:
        body["messages"] = [{"role": "user", "content": "Go on."}]
    if dialect == "anthropic":
        body["max_tokens"] = 1000
    if with_tool:
        flat = {"name": "look", "description": "looks"}
        body["tools"] = [{**flat, "input_schema": TOOL} if dialect == "anthropic"
                         else {"type": "function", **flat, "parameters": TOOL}
                         if dialect == "responses"
                         else {"type": "function", "function": {**flat, "parameters": TOOL}}]
    return server.post(PATHS[dialect], body, timeout=20, **kw)


def events_of(body):
    for block in body.decode().split("\n\n"):
        for line in block.split("\n"):
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line[len("data: "):])


def read(dialect, body, stream):
    """(reasoning, text, [(name, arguments)], how it ended)"""
    think = text = ""
    calls, end = [], None
    if dialect == "ollama":
        for r in [json.loads(x) for x in body.decode().splitlines()]:
            m = r["message"]
            think += m.get("thinking", "")
            text += m["content"]
            calls += [(c["function"]["name"], c["function"]["arguments"])
                      for c in m.get("tool_calls", [])]
            end = r.get("done_reason")
    elif dialect == "openai":
        parts = {}
        for r in events_of(body) if stream else [json.loads(body)]:
            for c in r["choices"]:
                m = c["delta"] if stream else c["message"]
                think += m.get("reasoning_content") or ""
                text += m.get("content") or ""
                for i, t in enumerate(m.get("tool_calls") or []):
                    p = parts.setdefault(t.get("index", i), ["", ""])
                    p[0] += t["function"].get("name") or ""
                    p[1] += t["function"]["arguments"]
                end = c["finish_reason"] or end
        calls = [(n, json.loads(a)) for n, a in parts.values()]
    elif dialect == "anthropic":
        blocks = []
        if not stream:
            r = json.loads(body)
            blocks, end = r["content"], r["stop_reason"]
        for e in events_of(body) if stream else []:
            if e["type"] == "content_block_start":
                blocks.append({**e["content_block"], "json": ""})
            elif e["type"] == "content_block_delta":
                for key, to in (("text", "text"), ("thinking", "thinking"),
                                ("partial_json", "json")):
                    if key in e["delta"]:
                        blocks[-1][to] += e["delta"][key]
            elif e["type"] == "message_delta":
                end = e["delta"]["stop_reason"]
        for b in blocks:
            think += b.get("thinking", "")
            text += b.get("text", "")
            if b["type"] == "tool_use":
                calls.append((b["name"], json.loads(b["json"]) if stream else b["input"]))
    else:
        r = json.loads(body) if not stream else [e for e in events_of(body)][-1]["response"]
        end = r["status"]
        for item in r["output"]:
            think += "".join(s["text"] for s in item.get("summary", []))
            text += "".join(p["text"] for p in item.get("content", []))
            if item["type"] == "function_call":
                calls.append((item["name"], json.loads(item["arguments"])))
    return think, text, calls, end


ENDS = {"ollama": "stop", "openai": "stop", "anthropic": "end_turn", "responses": "completed"}
CALLED = {"ollama": "tool_calls", "openai": "tool_calls", "anthropic": "tool_use",
          "responses": "completed"}


@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize("client", DIALECTS)
def test_every_client_over_every_upstream(world, client, upstream):
    server, _, text = world
    for stream in (False, True):
        r = ask(server, client, f"{upstream}/x", stream)
        assert r.status == 200, r.body
        assert r.headers["shoal-leg"] == upstream
        assert read(client, r.body, stream) == ("", text, [], ENDS[client])
        r = ask(server, client, f"{upstream}/think", stream)
        think, said, _, end = read(client, r.body, stream)
        assert think and (think + said, end) == (text, ENDS[client]), (stream, r.body)
        r = ask(server, client, f"{upstream}/call", stream, with_tool=True)
        _, _, calls, end = read(client, r.body, stream)
        assert (calls, end) == ([("look", {"n": [1, 2], "s": "x"})], CALLED[client]), r.body


def test_a_clients_own_mistake_keeps_the_upstreams_status_and_words(world):
    server = world[0]
    for client in DIALECTS:
        for upstream in DIALECTS:
            for status in (400, 404, 413, 422):
                r = ask(server, client, f"{upstream}/status={status}", True)
                assert r.status == status, (client, upstream, r.status, r.body)
                assert f"the stub was told to answer {status}" in r.body.decode()


def test_a_refused_key_of_a_leg_is_the_operators_and_never_shown(world):
    server, stubs, _ = world
    for upstream in DIALECTS:
        r = ask(server, "openai", f"{upstream}/status=401", False)
        assert (r.status, r.json()["error"]["code"]) == (502, "upstream_auth")
        assert "sk-leg" not in r.body.decode()
        assert "sk-leg-0123456789abcdef" in stubs[upstream].get("/stub/last")


def test_a_clients_credentials_pass_and_their_refusal_too(world):
    server, text = world[0], world[2]
    stub = world[1]["pass"]
    for header, value in (("x-api-key", "mine-0123456789abcdef"),
                          ("authorization", "Bearer mine-0123456789abcdef")):
        r = ask(server, "anthropic", "pass/x", False, headers={header: value})
        assert r.status == 200, r.body
        assert read("anthropic", r.body, False)[1] == text
        assert f"{header}: {value}\n" in stub.get("/stub/last")
        r = ask(server, "anthropic", "pass/status=401", False, headers={header: value})
        assert r.status == 401
    before = json.loads(stub.get("/stub/counts"))["chats"]
    assert ask(server, "anthropic", "pass/x", False).status in (400, 401)
    assert json.loads(stub.get("/stub/counts"))["chats"] == before


# ---------------------------------------------------------------- upstreams of our own

SIGNED = [
    {"type": "message_start", "message": {
        "id": "msg_up", "type": "message", "role": "assistant", "model": "claude-9", "content": [],
        "stop_reason": None, "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0,
     "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0,
     "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0,
     "delta": {"type": "signature_delta", "signature": "EqQBCgIYAhIM"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "yes"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
     "usage": {"output_tokens": 4}},
    {"type": "message_stop"},
]


class Upstream(http.server.BaseHTTPRequestHandler):
    """Anthropic as it streams, or a redirect to somewhere else."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_POST(self):
        self.server.seen.append((dict(self.headers), self.rfile.read(
            int(self.headers["Content-Length"]))))
        if self.server.redirects_to:
            self.send_response(307)
            self.send_header("Location", self.server.redirects_to)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        out = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in SIGNED).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)


def upstream(redirects_to=None, certificate=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    server.seen, server.redirects_to = [], redirects_to
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def leg(server, scheme="http", host="127.0.0.1", **more):
    return {"kind": "upstream", "dialect": "anthropic",
            "url": f"{scheme}://{host}:{server.server_address[1]}", "key_env": "LEG_KEY",
            "can": ["tools", "thinking"], **more}


def certificate_for(home, name):
    """A root of our own is what signs it: the certificate itself."""
    key, pem = os.path.join(home, f"{name}.key"), os.path.join(home, f"{name}.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                    "-out", pem, "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    return pem, key


def test_upstreams_by_their_own_words_keys_and_certificates(tmp_path):
    pem, key = certificate_for(tmp_path, "one")
    other_pem, _ = certificate_for(tmp_path, "two")
    plain, secure = upstream(), upstream(certificate=(pem, key))
    victim = upstream()
    sends_on = upstream(redirects_to=f"http://127.0.0.1:{victim.server_address[1]}/v1/messages")
    legs = {
        "plain": leg(plain), "redirect": leg(sends_on),
        "trusted": leg(secure, "https", "localhost", ca_file=pem),
        "unknown": leg(secure, "https", "localhost", model="a"),
        "wrong_root": leg(secure, "https", "localhost", model="b", ca_file=other_pem),
        "wrong_name": leg(secure, "https", "127.0.0.1", ca_file=pem),
    }
    server = serve(tmp_path, legs, env={"LEG_KEY": "sk-leg-0123456789abcdef"})
    try:
        for name in ("plain", "trusted"):
            r = ask(server, "anthropic", f"{name}/x", True, headers={"anthropic-beta": "b-1"})
            assert r.status == 200, r.body
            got = list(events_of(r.body))
            head = got[0]["message"]
            assert head["id"].startswith("msg_") and head["id"] != "msg_up"
            assert head["model"] == f"{name}/x"
            assert "shoal" in got[-2]
            assert got[1:-2] == SIGNED[1:-2] and got[-1] == SIGNED[-1]
            seen, body = (plain if name == "plain" else secure).seen[-1]
            assert seen["anthropic-beta"] == "b-1"
            assert seen["x-api-key"] == "sk-leg-0123456789abcdef"
            assert json.loads(body)["stream"] is True
        for name in ("unknown", "wrong_root", "wrong_name"):
            r = ask(server, "openai", f"{name}/x", False)
            assert r.status == 502, (name, r.status, r.body)
            state = {x["name"]: x for x in server.get("/v1/routes").json()["legs"]}[name]
            assert state["last_error"]["class"] == "tls", state
        r = ask(server, "openai", "redirect/x", False)
        assert r.status == 502 and "redirects are not followed" in r.body.decode()
        assert victim.seen == [] and len(sends_on.seen) >= 1
        assert len(secure.seen) == 1
    finally:
        server.stop()
        for u in (plain, secure, victim, sends_on):
            u.shutdown()
