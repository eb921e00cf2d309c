"""bench/agents: the same seed is the same fleet, what counts as new is counted once."""
import importlib.util
import os
import statistics
import subprocess
import sys
import types

from conftest import ROOT
from server import TINY

PROGRAM = os.path.join(ROOT, "bench", "agents", "agents.py")
OPTIONS = types.SimpleNamespace(scale=64.0, steps=400, pace=1.0, seed=1)


def program():
    spec = importlib.util.spec_from_file_location("agents", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_seed_makes_the_same_traces_and_another_one_others():
    agents = program()

    def trace(seed, number):
        t = agents.Trace(seed, number, OPTIONS)
        return t.rules, t.files, list(t.steps())
    assert trace(1, 3) == trace(1, 3)
    assert trace(1, 3)[1:] != trace(2, 3)[1:] and trace(1, 3)[1:] != trace(1, 7)[1:]
    assert trace(1, 3)[0] == trace(1, 7)[0] != trace(1, 4)[0]  # teams share their rules


def test_lengths_have_the_published_means():
    agents = program()
    steps = [s for n in range(20) for s in agents.Trace(1, n, OPTIONS).steps()]
    new = statistics.mean(len(text.split()) for _, _, text, _ in steps)
    out = statistics.mean(out for _, _, _, out in steps)
    assert 0.8 < new / (1220 / 64) < 1.2 and 0.75 < out / (523 / 64) < 1.25
    kinds = [kind for kind, *_ in steps]
    assert 0.05 < kinds.count("human") / len(kinds) < 0.11
    assert 0.03 < kinds.count("fork") / len(kinds) < 0.09


def test_what_was_read_once_is_not_new_again():
    known = program().Known()
    turns = [{"role": "system", "content": "a" * 88}, {"role": "user", "content": "b" * 38}]
    assert known.read(turns) == (0, 150)
    assert known.read(turns) == (150, 150)
    assert known.read([turns[0], {"role": "user", "content": "c" * 38}]) == (100, 150)
    assert known.read([turns[1], turns[0]]) == (0, 150)


def test_a_small_fleet_is_played_and_reported(home):
    done = subprocess.run(
        [sys.executable, PROGRAM, "-agents", "4", "-steps", "3", "-scale", "400", "-context",
         "2048", "-pace", "0.05", TINY], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        timeout=100, check=False, env={**os.environ, "HOME": str(home)})
    text = done.stdout.decode()
    assert "0 failed" in text and "prefill amplification" in text, (text, done.stderr)
    assert done.returncode in (0, 1)  # so short a fleet meets no goal of long ones
