"""bench/peer: models of random weights load, ratios and shares are what the figures say."""
import importlib.util
import json
import os
import struct
import sys
import types

import pytest

from conftest import ROOT


def module(path, name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(ROOT, path))
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


make_gguf = module("bench/frontier/make_gguf.py", "make_gguf")


@pytest.mark.parametrize("kind", ["Q4_K_M", "BF16", *(k.name for k in make_gguf.SCALE)])
@pytest.mark.parametrize("shape", ["toy", "toy-moe"])
def test_a_random_model_of_each_type_runs_in_that_type(shoal, tmp_path, shape, kind):
    path = str(tmp_path / "random.gguf")
    make_gguf.write(path, make_gguf.SHAPES[shape]._replace(layers=3), kind)
    tensors = json.loads(shoal("inspect", "file", path, "-json").stdout)["tensors"]
    used = {t["type"] for t in tensors if t["type"] != "F32"}
    assert used == ({"Q4_K", "Q6_K"} if kind == "Q4_K_M" else {kind})
    done = shoal("bench", path, "-p", "8", "-n", "2", "-batch", "1", "-reps", "1", "-json")
    assert done.returncode == 0, done.stderr
    assert all(t["tokens_per_s"] > 0 for t in json.loads(done.stdout)["tests"])


# What both sides print; rates by round.
def scripted(peer, ours, theirs):
    def shoal(row, rates):
        return {**row, "reps": rates, "tokens_per_s": sum(rates) / len(rates)}

    def run(command, **environment):
        if command[0] == peer.KERN:
            return "read 40.0 GB/s; peak int8 1.000, float 0.200 TOP/s\n"
        if command[0] == peer.SHOAL:
            assert environment == {"SHOAL_ENGINE_THREADS": "2"}
            return json.dumps({
                "machine": "a CPU", "isa": "vnni", "threads": 2, "weight_bytes": 10 ** 9,
                "build": "x", "weights_s": 0.25, "gb_per_s_before": 39, "gb_per_s_after": 41,
                "tests": [shoal(row, rates) for row, rates in ours.pop(0)]})
        return json.dumps({"name": "llama.cpp", "load_s": 1.5, "tests": theirs.pop(0)})
    peer.run = run


def tg(depth, step_bytes, attend_ops, rates):
    """tops: of the mean rate, as bench prints it."""
    mean = sum(rates) / len(rates)
    return {"test": "tg", "tokens": 64, "depth": depth, "batch": 1, "step_bytes": step_bytes,
            "tops": 2e9 * mean * 1e-12, "attend_ops": attend_ops}, rates


def their_tg(depth, rate):
    return {"test": "tg", "tokens": 64, "depth": depth, "batch": 1, "tokens_per_s": rate}


def options(peer, *args):
    return peer.parser().parse_args(["-threads", "2", "-p", "0", "-n", "64", *args])


def test_the_ratio_is_that_of_medians_and_the_share_that_of_the_bandwidth(capsys):
    peer = module("bench/peer/peer.py", "peer")
    ours = [[tg(0, 10 ** 9, 0, [r, r / 2])] for r in (30, 38, 36)]  # the best of each process
    scripted(peer, ours, [[their_tg(0, r)] for r in (20, 18, 2)])
    given = options(peer, "-rounds", "3")
    assert peer.report("m.gguf", given, {"tg64": 2}) is True
    text = capsys.readouterr().out
    assert "36.0 (30.0-38.0)" in text and "18.0 (2.0-20.0)" in text and " 2.00x " in text
    assert " 90 % of bandwidth" in text  # 36 steps of 1 GB at 40 GB/s
    assert "goal 2x" in text and "BELOW" not in text
    assert "load shoal 0.25 s, 2.00 GB/s per thread; peer 1.50 s; other work took " in text


@pytest.mark.parametrize("goals,floor", [({"tg64": 2.1}, "0"), (None, "2.1")])
def test_a_ratio_below_its_goal_or_the_floor_fails(capsys, goals, floor):
    peer = module("bench/peer/peer.py", "peer")
    scripted(peer, [[tg(0, 10 ** 9, 0, [40.0])]], [[their_tg(0, 20)]])
    assert peer.report("m.gguf", options(peer, "-rounds", "1", "-floor", floor), goals) is False
    assert "BELOW" in capsys.readouterr().out


def test_what_a_depth_adds_is_told_beside_the_least_it_can_take(capsys):
    peer = module("bench/peer/peer.py", "peer")
    # 0.4 GB more at 40 GB/s are 10 ms; the step takes 25, then 40.
    ours = [[tg(0, 10 ** 9, 0, [40.0]), tg(4096, 1.4e9, 10 ** 6, [25.0])]]
    scripted(peer, ours, [[their_tg(0, 20), their_tg(4096, 5)]])
    peer.report("m.gguf", options(peer, "-rounds", "1", "-depth", "0,4096"))
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.split()[0:2] == ["tg64", "@4096"] and "attention 1.50x its limit" in line


def state(llama, layers):
    """As llama.cpp writes one sequence of CHUNK cells: a row of keys has 4 bytes, of values 2."""
    data = struct.pack("<IiII", 7, 0, 1, llama.CHUNK)
    data += b"".join(struct.pack("<iIi", i, 1, 0) for i in range(llama.CHUNK))
    data += struct.pack("<II", 0, layers)
    for size in (4, 2):
        for layer in range(layers):
            rows = b"".join(bytes([i % 256, layer] * (size // 2)) for i in range(llama.CHUNK))
            data += struct.pack("<iQ", 1, size) + rows
    return data


def test_the_peers_cache_is_repeated_down_to_the_depth(monkeypatch):
    monkeypatch.setitem(sys.modules, "llama_cpp", types.ModuleType("llama_cpp"))
    llama = module("bench/peer/peer_llama.py", "peer_llama")
    assert llama.deepen(state(llama, 3), llama.CHUNK) == state(llama, 3)
    deep = llama.Reader(llama.deepen(state(llama, 3), 600))
    assert deep.take("<IiII") == (7, 0, 1, 600)
    assert [deep.take("<iIi")[0] for _ in range(600)] == list(range(600))
    assert deep.take("<II") == (0, 3)
    for size in (4, 4, 4, 2, 2, 2):
        assert deep.take("<iQ") == (1, size)
        rows = deep.bytes(600 * size)
        assert [rows[i * size] for i in range(600)] == [i % 256 for i in range(600)]
    assert deep.at == len(deep.data)
    with pytest.raises(SystemExit, match="1 bytes of the state not known"):
        llama.deepen(state(llama, 3) + b"x", 600)
    with pytest.raises(SystemExit, match="no plain cache"):
        llama.deepen(state(llama, 3).replace(struct.pack("<II", 0, 3), struct.pack("<II", 1, 3)),
                     600)


def test_the_rows_of_the_table_name_models_that_can_be_made(monkeypatch):
    monkeypatch.setitem(sys.modules, "peer", module("bench/peer/peer.py", "peer"))
    table = module("bench/peer/table.py", "table")
    for name, row in table.ROWS.items():
        assert not row.shape or row.shape in make_gguf.SHAPES, name
        for kind in row.types if row.shape else []:
            assert kind in ("Q4_K_M", "BF16") or make_gguf.Type[kind] in make_gguf.SCALE, name
        assert set(row.tests) <= set(vars(table.peer.parser().parse_args([]))), name
    row = table.ROWS["real"]
    assert table.goals_of(row, "gemma", True)["pp512"] == 3
    assert table.goals_of(row, "qwen", True)["pp512"] == 4
