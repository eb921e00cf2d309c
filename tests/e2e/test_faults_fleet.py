"""A fleet whose cloud goes silent in mid-text, where cloud and desk are shoals of the same model.

What each agent gets is the reply that nobody interrupted, drawn or greedy. The one exception is
that of BEHAVIOUR 9.6: a text whose tokens, split again, are not those that were sampled.
"""
import concurrent.futures
import json
import os
import random
import subprocess

import pytest

from conftest import SHOAL
from proxy import Proxy
from server import REAL, serving
from legs import QUIET, config_of, stream_of

AGENTS = int(os.environ.get("FLEET_AGENTS", "16"))
TOKENS = 24
CUTS = (1500, 6500)  # bytes of a connection: from its first words to near the end of a reply


class Fleet:
    """Cloud (behind a proxy that hangs each connection at a random byte), desk, and a front."""

    def __init__(self, cloud, desk, home, rng):
        self.proxy = Proxy(cloud.port, "half_open", lambda: rng.randint(*CUTS))
        self.path = home / "config.yaml"
        leg = {"kind": "upstream", "dialect": "openai", "model": cloud.model(),
               "continue": "shoal", "max_inflight": 500}
        legs = {"cloud": {**leg, "url": f"http://127.0.0.1:{self.proxy.port}",
                          "deadlines": {"first_token": "20s", "gap": "1500ms"}},
                "desk": {**leg, "url": desk.url, "deadlines": {"first_token": "60s", "gap": "60s"}},
                "engine": {"kind": "engine", "model": cloud.model()}}
        routes = [{"match": {"model": "remote"}, "legs": ["cloud", "desk"]},
                  {"match": {"model": "local"}, "legs": ["cloud", "engine"]}]
        self.path.write_text(config_of(legs, routes, [
            *QUIET]))


def hear(front, model, number, more):
    """(text, reason of the end, bytes of its tokens, text when another leg went on, legs)."""
    text, end, tokens, sent, legs = "", None, [], None, None
    for event in stream_of(front, model, f"agent-{number}", TOKENS, seed=1000 + number, **more):
        if event.startswith(": shoal ") and '"failover"' in event:
            sent = text
        if not event.startswith("data: ") or event == "data: [DONE]":
            continue
        e = json.loads(event[len("data: "):])
        assert "error" not in e, e
        for c in e.get("choices", []):
            text += c["delta"].get("content") or ""
            end = c["finish_reason"] or end
            tokens += [bytes(t["bytes"]) for t in (c.get("logprobs") or {}).get("content") or ()]
        legs = e.get("shoal", {}).get("legs", legs)
    return text, end, tokens, sent, legs


def hear_all(front, model, more):
    with concurrent.futures.ThreadPoolExecutor(AGENTS) as pool:
        return list(pool.map(lambda i: hear(front, model, i, more), range(AGENTS)))


def splits_alike(tokens, sent):
    """Is the text that was sent split into the tokens that were sampled?"""
    out = subprocess.run([SHOAL, "inspect", "-json", "tokens", REAL, sent], check=True,
                         stdout=subprocess.PIPE).stdout
    size, sampled = 0, []
    while size < len(sent.encode()):
        sampled.append(tokens[len(sampled)])
        size += len(sampled[-1])
    return [t["piece"].encode() for t in json.loads(out)["tokens"]] == sampled


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    home = tmp_path_factory.mktemp("fleet")
    for n in ("cloud", "desk", "front"):
        (home / n).mkdir()
    args = ("-model", REAL, "-ctx", "512", "-slots", str(AGENTS))
    rng = random.Random(6)
    with serving(home / "cloud", *args) as cloud, serving(home / "desk", *args) as desk:
        fleet = Fleet(cloud, desk, home / "front", rng)
        with serving(home / "front", "-config", str(fleet.path), *args) as server:
            yield server
        fleet.proxy.stop()


@pytest.mark.parametrize("more", [{"temperature": 0},
                                  {"temperature": 0.9, "presence_penalty": 1}],
                         ids=["greedy", "drawn"])
def test_agents_get_the_uninterrupted_text_when_the_cloud_hangs_at_a_random_byte(front, more):
    whole = hear_all(front, front.model(), {**more, "logprobs": True})
    assert all(end in ("stop", "length") for _, end, *_ in whole)
    assert any(splits_alike(tokens, text) for text, _, tokens, *_ in whole)
    for model, second in (("remote", "desk"), ("local", "engine")):
        split, moved = 0, 0
        for (text, end, tokens, *_), (got, got_end, _, sent, legs) in zip(
                whole, hear_all(front, model, more)):
            what = (model, text, got, sent, legs)
            if legs:
                assert [x["leg"] for x in legs] == ["cloud", second], what
                assert legs[0]["reason"] in ("stall", "hang_first", "hang_header"), what
            moved += sent is not None
            if (got, got_end) == (text, end):
                continue
            assert sent and got.startswith(sent) and text.startswith(sent), what
            assert not splits_alike(tokens, sent), what
            split += 1
        assert moved >= AGENTS // 4 and split <= AGENTS // 4, (model, moved, split)
