"""E07: an error of the GPU: nothing hangs, health tells the truth, the replies go on.

The device is the CPU behind tests/e2e/lossy.c, which fails as the driver would; everything else is
the product."""
import concurrent.futures
import os

import pytest

from conftest import ROOT
from server import TINY, serving, wait_until

LOSSY = os.path.join(ROOT, "build", "tests", "e2e", "lossy")
SAID = {"illegal": "CUDA_ERROR_ILLEGAL_ADDRESS", "memory": "CUDA_ERROR_OUT_OF_MEMORY"}


@pytest.fixture
def fault(tmp_path):
    return tmp_path / "fault"


def lossy(home, fault):
    return serving(home, "-model", TINY, "-backend", "cuda", binary=LOSSY,
                   env={"LOSSY_FAULT": str(fault)})


@pytest.mark.parametrize("what", sorted(SAID))
def test_E07_a_device_error_in_mid_stream_is_not_seen(home, fault, what):
    asked = {"max_tokens": 400, "ignore_eos": True}

    def say(seed):
        return server.stream("ab", seed=seed, **asked)[1]

    with lossy(home, fault) as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        plain = list(pool.map(say, range(4)))
        child = server.child()
        fault.write_text(f"once {what} 100")  # of 400 steps and more
        assert list(pool.map(say, range(4))) == plain
        assert not fault.exists() and server.child() != child
        assert server.get("/health").json()["status"] == "ok"
        assert SAID[what] in server.errors()


def test_E07_a_device_that_stays_broken_fails_by_name_until_it_is_back(home, fault):
    with lossy(home, fault) as server:
        assert server.chat(max_tokens=2).status == 200
        fault.write_text("always illegal 1")
        r = server.chat(max_tokens=50)  # three children were lost for it
        assert r.status >= 500 and SAID["illegal"] in r.json()["error"]["message"], r.body
        assert server.get("/ready").status == 503
        health = server.get("/health").json()
        assert health["status"] != "ok" and SAID["illegal"] in str(health["reasons"])
        fault.unlink()
        wait_until(lambda: server.chat(max_tokens=2).status == 200, 30)
        assert server.get("/health").json()["status"] == "ok"


def test_E07_a_second_leg_answers_while_the_device_is_broken(home, fault, tmp_path):
    """The cloud is another server of ours, on the CPU."""
    (tmp_path / "cloud").mkdir()
    with serving(tmp_path / "cloud", "-model", TINY) as cloud:
        path = tmp_path / "config.yaml"
        path.write_text(f"""
legs:
  gpu: {{kind: engine, model: llama}}
  cpu: {{kind: upstream, dialect: openai, model: llama, url: "http://127.0.0.1:{cloud.port}"}}
routes:
  - {{match: {{model: m}}, legs: [gpu, cpu]}}
""")
        with serving(home, "-config", str(path), "-model", TINY, "-backend", "cuda", binary=LOSSY,
                     env={"LOSSY_FAULT": str(fault)}) as server:
            ask = {"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": "ab"}]}
            assert server.post("/v1/chat/completions", ask).headers["shoal-leg"] == "gpu"
            fault.write_text("always illegal 1")
            for _ in range(3):
                r = server.post("/v1/chat/completions", ask)
                assert r.status == 200 and r.headers["shoal-leg"] == "cpu", r.body
