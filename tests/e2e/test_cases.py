"""Cases of CASES.md A and E about plain text that need a served model and no special clock or size:
stop strings, logprobs, seeds, and prefixes of many agents. The id is in the name."""
import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from server import REAL, serving, sse, wait_until

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("cases"), "-model", REAL) as server:
        yield server


def body(real, text, **more):
    return {"model": real.model(), "messages": [{"role": "user", "content": text}],
            "max_tokens": 24, "temperature": 0, **more}


def whole(real, text, **more):
    r = real.post(CHAT, body(real, text, **more))
    assert r.status == 200, r.body
    return r.json()


def said(real, text, **more):
    return whole(real, text, **more)["choices"][0]["message"]["content"]


# ---------------------------------------------------------------- stop strings, logprobs, seeds

@pytest.mark.parametrize("stop", [["\n", "Alice:"], ["own fox"], ["e"], [" the", "the "], ["zzz"],
                                  ["\n\n", "\n"], [".", "?", "!"]])
def test_A18_A19_stop_strings_cut_streams_and_replies_at_the_same_place(real, stop):
    text = "Repeat: The quick brown fox jumps over the lazy dog.\nAlice: Hello!"
    free = said(real, text)
    cuts = [free.index(s) for s in stop if s in free]
    want = free[:min(cuts)] if cuts else free
    got = whole(real, text, stop=stop)["choices"][0]
    _, streamed = real.stream(text, max_tokens=24, temperature=0, stop=stop)
    assert got["message"]["content"] == streamed == want
    assert got["finish_reason"] == "stop" or not cuts


@pytest.mark.parametrize("more", [{}, {"response_format": {"type": "text"}},
                                  {"response_format": {"type": "json_object"}},
                                  {"tools": [], "tool_choice": "none"}])
def test_A22_A23_logprobs_have_one_shape_and_join_to_the_text(real, more):
    ask = {"logprobs": True, "top_logprobs": 3, **more}
    reply = whole(real, "Say hello with an emoji.", **ask)["choices"][0]
    chunks, text = real.stream("Say hello with an emoji.", max_tokens=24, temperature=0, **ask)
    streamed = [p for c in chunks for choice in c["choices"] if choice["logprobs"]
                for p in choice["logprobs"]["content"]]
    assert reply["logprobs"]["content"] == streamed and len(streamed) > 4
    assert text == reply["message"]["content"]
    joined = bytes(b for p in streamed for b in p["bytes"])
    assert joined.decode("utf-8", "replace") == text
    for p in streamed:
        assert len(p["top_logprobs"]) == 3 and p["logprob"] <= p["top_logprobs"][0]["logprob"]


def test_A22_logprobs_stand_beside_tools_streamed_and_not(coder):
    tool = {"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}}}}
    ask = {"logprobs": True, "top_logprobs": 2, "tools": [tool]}
    reply = whole(coder, "Say hello.", **ask)["choices"][0]
    chunks, text = coder.stream("Say hello.", max_tokens=24, temperature=0, **ask)
    streamed = [p for c in chunks for choice in c["choices"] if choice["logprobs"]
                for p in choice["logprobs"]["content"]]
    assert text and text == reply["message"]["content"]
    assert streamed == reply["logprobs"]["content"]
    assert bytes(b for p in streamed for b in p["bytes"]).decode("utf-8", "replace") == text


def test_A24_logprobs_alone_mean_no_rivals(real):
    reply = whole(real, "Hi.", logprobs=True)["choices"][0]
    assert all(p["top_logprobs"] == [] for p in reply["logprobs"]["content"])


def test_A25_three_choices_of_one_seed_differ_and_come_again(real):
    ask = {"n": 3, "seed": 5, "temperature": 1, "max_tokens": 16}
    first, second = ([c["message"]["content"] for c in whole(real, "A poem.", **ask)["choices"]]
                     for _ in range(2))
    assert first == second and len(set(first)) == 3
    assert whole(real, "A poem.", **ask)["seed"] == 5
    assert said(real, "A poem.", seed=5, temperature=1, max_tokens=16) == first[0]


# ---------------------------------------------------------------- prefixes

def system(i, words=200):
    return {"role": "system",
            "content": f"You are agent {i}. " + "Be kind and brief. " * (words // 4)}


def ask_as(real, i, text, **more):
    messages = [system(i), {"role": "user", "content": text}]
    r = real.post(CHAT, body(real, "", **{"messages": messages, "max_tokens": 4, **more}))
    assert r.status == 200, r.body
    return r.json()


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """One sequence: what is kept of a prefix does not lie in the sequence that read it."""
    with serving(tmp_path_factory.mktemp("narrow"), "-model", REAL, "-slots", "1") as server:
        yield server


def test_E11_six_agents_in_turns_find_their_prefixes(narrow):
    for round_ in range(5):
        found = [ask_as(narrow, agent, "", messages=[
            system(agent, 600), {"role": "user", "content": f"Question {round_}?"}])
            for agent in range(6)]
        if round_ > 0:
            prompts = sum(r["usage"]["prompt_tokens"] for r in found)
            assert sum(map(cached, found)) > 0.9 * prompts, (round_, found)


def test_E12_two_long_prefixes_do_not_evict_each_other(narrow):
    for turn in range(10):
        for agent, words in ((100, 2800), (101, 600)):  # the main agent, and one of its helpers
            messages = [system(agent, words), {"role": "user", "content": f"Turn {turn}."}]
            reply = ask_as(narrow, agent, "", messages=messages)
            if turn > 0:
                assert reply["usage"]["prompt_tokens"] - cached(reply) < 64


def logits(server, text):
    """Text with the raw logarithms of five ids for each token, as the reply tells them."""
    choice = whole(server, text, logprobs=True, top_logprobs=5)["choices"][0]
    assert len(choice["logprobs"]["content"]) > 8
    return choice["message"]["content"], choice["logprobs"]


def test_E14_an_unrelated_prompt_in_between_changes_nothing(real, tmp_path):
    with serving(tmp_path, "-model", REAL) as fresh:
        want = logits(fresh, "Name three colours.")
    said(real, "What is the capital of France?")
    assert logits(real, "Name three colours.") == want
    said(real, "Count to ten in German.")
    assert logits(real, "Name three colours.") == want


@pytest.mark.parametrize("chunks", [1, 3, 9])
def test_E15_a_prefix_of_a_cancelled_stream_is_as_good_as_a_cold_one(real, tmp_path, chunks):
    text = f"Write a long story about {chunks} ships. " + "It shall be sad. " * 20
    with serving(tmp_path, "-model", REAL) as fresh:
        want = logits(fresh, text)
    ask = json.dumps(body(real, text, stream=True, max_tokens=400)).encode()
    s = socket.create_connection(("127.0.0.1", real.port), timeout=60)
    s.sendall(b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
              + str(len(ask)).encode() + b"\r\n\r\n" + ask)
    got = b""
    while got.count(b"chat.completion.chunk") < chunks:
        more = s.recv(65536)
        assert more, got
        got += more
    s.close()
    wait_until(lambda: real.requests() == 0)
    assert logits(real, text) == want
    assert cached(whole(real, text)) > 0


def test_E30_four_at_once_say_what_each_says_alone(real):
    texts = [f"Tell me about the number {i}." for i in range(4)]
    alone = [said(real, t) for t in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda t: said(real, t), texts)) == alone
    streams = [sse(real.post(CHAT, body(real, t, stream=True)).body)[1] for t in texts]
    assert streams == alone
