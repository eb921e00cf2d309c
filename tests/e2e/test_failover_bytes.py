"""Upstreams whose bytes are odd: line ends, byte order marks, slices in the middle of a letter,
interim answers, trailers, what comes behind the end, compression that nobody asked for. An agent of
every protocol has the whole text once and a clean end, from that leg or from the next one; without
a next one it has an error, and never a clean end of half a text."""
import concurrent.futures
import gzip
import json
import socketserver
import threading

import pytest

from legs import (DIALECTS, QUIET, Upstream, ask, chat_pieces, config_of, read_stream, read_whole)
from server import serving

TEXT = 'Über 日本 – 😀 and "quoted" \\ back,\n\ttwo lines, é at the end.'
PIECES = [TEXT[i:i + 3] for i in range(0, len(TEXT), 3)]


def event(name, **more):
    return f"event: {name}\ndata: " + json.dumps({"type": name, **more}, ensure_ascii=False)


def openai():
    for i, piece in enumerate(PIECES):  # as it is, and escaped: letters above 16 bits are two there
        yield "data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": piece},
                                                  "finish_reason": None}]},
                                    ensure_ascii=i % 2 == 0)
    yield 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
    yield "data: [DONE]"


def anthropic():
    yield event("message_start", message={"id": "m", "usage": {"input_tokens": 3}})
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for piece in PIECES:
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
    yield event("content_block_stop", index=0)
    yield event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9})
    yield event("message_stop")


def responses():
    yield event("response.created", response={})
    for piece in PIECES:
        yield event("response.output_text.delta", delta=piece)
    yield event("response.completed", response={"status": "completed",
                                                "usage": {"input_tokens": 3, "output_tokens": 9}})


def ollama():
    for i, piece in enumerate(PIECES):
        yield json.dumps({"message": {"role": "assistant", "content": piece}, "done": False},
                         ensure_ascii=i % 2 == 0)
    yield '{"message":{"content":""},"done":true,"done_reason":"stop","eval_count":9}'


SAID = {"openai": openai, "anthropic": anthropic, "responses": responses, "ollama": ollama}


def body_of(dialect):
    gap = "\n" if dialect == "ollama" else "\n\n"
    return "".join(e + gap for e in SAID[dialect]())


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"


def plain(body, head=HEAD):
    return [head + b"\r\n" + body]


def chunked(body, end=b"0\r\n\r\n", head=HEAD):
    half = len(body) // 2
    return [head + b"Transfer-Encoding: chunked\r\n\r\n"
            + b"".join(b"%x;odd=1\r\n%s\r\n" % (len(p), p) for p in (body[:half], body[half:]))
            + end]


def bytewise(body):
    return [bytes([b]) for b in HEAD + b"\r\n" + body]


def more_of(dialect):
    """A second text and end behind the first end."""
    return body_of(dialect).replace(PIECES[0], "MORE").encode()


def inside(body, *marks):
    """Behind the first byte of the first of these that stands there."""
    return next(body.index(m) for m in marks if m in body) + 1


# What comes over the wire, by the name that the model has: (dialect, its body) -> slices.
WHOLE = {
    "cr": lambda d, b: plain(b.replace(b"\n", b"\r") if d != "ollama" else b),
    "crlf": lambda d, b: plain(b.replace(b"\n", b"\r\n")),
    "no blank": lambda d, b: plain(b.replace(b"data: ", b"data:").replace(b"event: ", b"event:")),
    "bom": lambda d, b: plain(b"\xef\xbb\xbf" + b),
    "bytes": lambda d, b: bytewise(b),
    "fields": lambda d, b: plain(b if d == "ollama" else
                                 b.replace(b"\n\n", b"\nid: 7\nretry: 1\nodd\n\n: word\n\n")),
    "two lines": lambda d, b: plain(b if d == "ollama" else b.replace(b'{"', b'{\ndata: "')),
    "interim": lambda d, b: [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\n"
                             b"Content-Type: application/json\r\nLink: </x>\r\n\r\n", *plain(b)],
    "bare header": lambda d, b: [HEAD.replace(b"\r\n", b"\n") + b"\n" + b],
    "trailers": lambda d, b: chunked(b, b"0\r\nContent-Type: text/html\r\nX-Sum: 1\r\n\r\n"),
    "long": lambda d, b: plain(b, HEAD + b"Content-Length: 999999\r\n"),
    "more": lambda d, b: plain(b + more_of(d)),
    "twice": lambda d, b: plain(b + b.splitlines()[-1] + b"\n\n" + b.splitlines()[-2] + b"\n\n"),
    "usage": lambda d, b: plain(b + b'data: {"choices":[],"usage":{"prompt_tokens":1,'
                                    b'"completion_tokens":1}}\n\n'),
    "answer": lambda d, b: chunked(b, b"0\r\n\r\n" + HEAD + b"\r\n" + more_of(d),
                                   HEAD.replace(b"close", b"keep-alive")),
}
# ... and what is not the whole of it: bytes of the body that come, then the connection closes.
CUT = {
    "letter": lambda b: inside(b, "日".encode()),
    "field": lambda b: len(b) // 2 + inside(b[len(b) // 2:], b"data", b'"message"'),
    "escape": lambda b: inside(b, b"\\u", b"\\n"),
    "half": lambda b: len(b) // 2,
    "end": lambda b: len(b.rstrip()) - 3,
}
BROKEN = {
    **{name: lambda d, b, at=at: plain(b[:at(b)]) for name, at in CUT.items()},
    "short": lambda d, b: plain(b, HEAD + b"Content-Length: %d\r\n" % (len(b) // 2)),
    "chunks": lambda d, b: chunked(b[:len(b) // 2]),
    "gzip": lambda d, b: plain(gzip.compress(b), HEAD + b"Content-Encoding: gzip\r\n"),
    "upgrade": lambda d, b: [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: odd\r\n\r\n" + b],
    "nothing": lambda d, b: plain(b""),
}


class Wire(socketserver.StreamRequestHandler):
    """Answers with the slices of the script that the model names: DIALECT/SCRIPT."""

    def handle(self):
        size = 0
        for line in iter(self.rfile.readline, b"\r\n"):
            if not line:
                return
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        dialect, script = json.loads(self.rfile.read(size))["model"].split("/")
        try:
            for piece in {**WHOLE, **BROKEN}[script](dialect, body_of(dialect).encode()):
                self.wfile.write(piece)
        except OSError:
            pass  # who has the end need not take more


class Wires(socketserver.ThreadingTCPServer):
    daemon_threads, request_queue_size = True, 128  # as legs.Listener


def rest_of(body):
    last = body["messages"][-1]
    said = last["content"] if last["role"] == "assistant" else ""
    assert TEXT.startswith(said), said
    return chat_pieces(TEXT[len(said):])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("bytes")
    wire = Wires(("127.0.0.1", 0), Wire)
    threading.Thread(target=wire.serve_forever, daemon=True).start()
    desk = Upstream(rest_of)
    odd = {d: {"kind": "upstream", "dialect": d, "deadlines": {"first_token": "30s"},
               "url": f"http://127.0.0.1:{wire.server_address[1]}"} for d in DIALECTS}
    path = home / "config.yaml"
    path.write_text(config_of(
        {**odd, "desk": {"kind": "upstream", "dialect": "openai", "continue": "final_message",
                         "url": f"http://127.0.0.1:{desk.port}"}},
        [*({"match": {"model": f"{d}/*", "agent": "alone"}, "legs": [d]} for d in DIALECTS),
         *({"match": {"model": f"{d}/*"}, "legs": [d, "desk"]} for d in DIALECTS)],
        QUIET))
    with serving(home, "-config", str(path)) as running:
        yield running
    wire.shutdown()
    wire.server_close()
    desk.stop()


def cells(server, scripts, agent):
    """(what it was, status, leg, text, end) of every client, streamed and not, side by side."""
    def run(cell):
        dialect, script, client, stream = cell
        r = ask(server, client, f"{dialect}/{script}", stream, shoal={"agent": agent})
        if r.status != 200:
            return cell, r.status, None, "", "error"
        text, end = read_stream(client, r.body) if stream else (read_whole(client, r.body), "ok")
        return cell, r.status, r.headers.get("shoal-leg"), text, end

    todo = [(d, s, c, stream) for d in DIALECTS for s in scripts for c in DIALECTS
            for stream in (True, False)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(run, todo))


def test_G05_odd_bytes_are_the_same_reply_from_the_leg_that_said_them(server):
    for cell, status, leg, text, end in cells(server, WHOLE, "any"):
        assert (status, leg, text, end) == (200, cell[0], TEXT, "ok"), cell


def test_G05_G06_a_reply_that_breaks_off_anywhere_is_gone_on_with_once(server):
    for cell, status, _, text, end in cells(server, BROKEN, "any"):
        assert (status, text, end) == (200, TEXT, "ok"), cell


def test_G05_without_another_leg_no_half_reply_has_a_clean_end(server):
    got = cells(server, BROKEN, "alone")
    for cell, status, _, text, end in got:  # what lacks only its last marker is whole
        assert end == "error" or (text, end) == (TEXT, "ok"), (cell, status, text)
        assert TEXT.startswith(text), (cell, text)
    assert {c[0] for c, _, _, _, end in got if end == "error"} == set(DIALECTS)
    assert any(status == 200 and text for _, status, _, text, _ in got)
