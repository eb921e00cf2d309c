"""`-ngl n`: the last n layers on a GPU, the first in RAM (docs/BEHAVIOUR.md 8.14).

The GPU is the CPU behind tests/e2e/lossy.c, with memory of its own, so that both halves have the
bits of the CPU; the rest is the product."""
import json
import os
import re
import subprocess

import pytest

from conftest import ROOT
from server import TINY, serving

LOSSY = os.path.join(ROOT, "build", "tests", "e2e", "lossy")
LAYERS = 3  # of tests/model/make_tiny.py's llama
GPU = {"LOSSY_MEMORY": str(2 << 30)}


def lossy(home, *args):
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **GPU}
    return subprocess.run([LOSSY, *args], env=env, capture_output=True, text=True, timeout=60,
                          check=False)


def plan(home, *args):
    done = lossy(home, "plan", TINY, "-json", "-backend", "cuda", *args)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_replies_are_those_of_one_device_whatever_lies_on_the_gpu(home, tmp_path):
    asked = {"max_tokens": 60, "ignore_eos": True, "temperature": 0}
    words = ["ab", "ab cd", "a longer one " * 20]
    (tmp_path / "plain").mkdir()
    with serving(tmp_path / "plain", "-model", TINY, "-backend", "cpu") as server:
        plain = [server.stream(w, **asked)[1] for w in words]
    for layers in range(1, LAYERS + 1):
        own = tmp_path / str(layers)
        own.mkdir()
        with serving(own, "-model", TINY, "-ngl", str(layers), binary=LOSSY, env=GPU) as server:
            assert [server.stream(w, **asked)[1] for w in words] == plain
            # the prefix is in pages of both halves now
            assert server.stream(words[2], **asked)[1] == plain[2]
            assert server.get("/health").json()["status"] == "ok"


@pytest.mark.parametrize("layers, in_ram, place", [
    ("1", 2, "layers 0 to 1 in RAM, computed on the CPU; 2 to 2 and the output on the GPU"),
    ("2", 1, "layers 0 to 0 in RAM, computed on the CPU; 1 to 2 and the output on the GPU"),
    ("3", 0, "all weights on the GPU, computed on cuda"),
    ("99", 0, "all weights on the GPU, computed on cuda")])
def test_plan_says_which_layers_lie_where(home, layers, in_ram, place):
    got = plan(home, "-ngl", layers)
    assert got["fits"] and got["layers_in_ram"] == in_ram
    text = lossy(home, "plan", TINY, "-backend", "cuda", "-ngl", layers).stdout
    assert f"placement   {place}\n" in text


def test_plan_of_two_memories_takes_no_size_for_one(home):
    done = lossy(home, "plan", TINY, "-backend", "cuda", "-ngl", "1", "-gpu-mem", "4G")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("plan: -ram and -gpu-mem count where all layers are on one "
                                        "device; -ngl 1 puts 2 on the CPU")


def test_the_fuller_memory_bounds_the_pool(home):
    all_layers = plan(home, "-ngl", "99", "-slots", "4")
    one = plan(home, "-ngl", "1", "-slots", "4")
    # a third of a page is on the GPU, so its memory is worth three times as many
    assert one["left"] > 2 * all_layers["left"]


def test_weights_that_do_not_fit_on_the_gpu_are_told_with_the_way_out(home):
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8",
           "LOSSY_MEMORY": str(1 << 20)}
    done = subprocess.run([LOSSY, "run", "-local", "-backend", "cuda", "-n", "1", TINY, "ab"],
                          env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.search(r"the weights need 7\.0 MB of GPU memory, but \S+ KB are free; -ngl N puts "
                     r"the last N layers there, -backend cpu none$", done.stderr)
