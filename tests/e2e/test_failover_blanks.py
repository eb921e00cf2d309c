"""Anthropic takes no last assistant text that ends in blanks: the leg that goes on is sent it
without them, and says them again, or goes on with the next word. The client gets each of them once,
wherever the first leg broke."""
import json

import pytest

from server import serving
from legs import PATHS, QUIET, Upstream, all_of, config_of, read_stream, read_whole

SONG = "one two\n\nthree  four \tfive\n six  "
PIECE = 3


def event(kind, **more):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n"


def pieces(text, ends=True):
    yield event("message_start", message={
        "id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1,
                                                              "output_tokens": 1}})
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for i in range(0, len(text), PIECE):
        yield event("content_block_delta", index=0,
                    delta={"type": "text_delta", "text": text[i:i + PIECE]})
    if ends:
        yield event("content_block_stop", index=0)
        yield event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None},
                    usage={"output_tokens": 5})
        yield event("message_stop")


def said(messages):
    content = messages[-1]["content"]
    return content if isinstance(content, str) else "".join(b["text"] for b in content)


def first_says(body):
    """As many letters as the question asks for, and then nothing."""
    return pieces(SONG[:int(said(body["messages"]))], False)


@pytest.fixture(scope="module", params=["again", "not again"])
def server(request, tmp_path_factory):
    def goes_on(body):
        text = said(body["messages"])
        assert text == text.rstrip() and body["messages"][-1]["role"] == "assistant"
        had = int(said(body["messages"][:-1]))
        return pieces(SONG[len(text):] if request.param == "again" else SONG[had:])

    home = tmp_path_factory.mktemp("blanks")
    first, second = Upstream(first_says), Upstream(goes_on)
    path = home / "config.yaml"
    path.write_text(config_of(
        {n: {"kind": "upstream", "dialect": "anthropic", "model": "x", "continue": "prefill",
             "url": f"http://127.0.0.1:{s.port}"} for n, s in (("a", first), ("b", second))},
        [{"match": {}, "legs": ["a", "b"]}],
        QUIET))
    with serving(home, "-config", str(path)) as running:
        running.cuts = [cut for cut in range(1, len(SONG) + 1)
                        if request.param == "again" or not SONG[cut:cut + 1].isspace()]
        yield running
    first.stop()
    second.stop()


@pytest.mark.parametrize("client", ["anthropic", "openai"])
def test_no_blank_is_lost_or_said_twice_wherever_the_first_leg_breaks(server, client):
    def run(cut, stream):
        r = server.post(PATHS[client], {"model": "m", "stream": stream, "max_tokens": 99,
                                        "messages": [{"role": "user", "content": str(cut)}]})
        assert r.status == 200, r.body
        text = read_stream(client, r.body)[0] if stream else read_whole(client, r.body)
        assert text == SONG, (cut, stream, text)

    all_of(run, server.cuts, (True, False))
