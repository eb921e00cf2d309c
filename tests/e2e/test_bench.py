"""`shoal bench`, docs/BEHAVIOUR.md 2.2, on the tiny models of `make tiny`."""
import json
import os

import gguf
import pytest

from conftest import ROOT

QUICK = ["-p", "8", "-n", "4", "-reps", "2"]


def tiny(name):
    return os.path.join(ROOT, "build", "tiny", name + ".gguf")


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3moe"])
def test_every_test_has_its_row_and_the_means_add_up(shoal, name):
    done = shoal("bench", tiny(name), *QUICK, "-batch", "1,3", "-depth", "0,70", "-json")
    assert (done.returncode, done.stderr) == (0, "")
    got = json.loads(done.stdout)
    assert [(t["test"], t["depth"], t["batch"]) for t in got["tests"]] == [
        ("pp", 0, 1), ("tg", 0, 1), ("tg", 0, 3), ("pp", 70, 1), ("tg", 70, 1), ("tg", 70, 3)]
    bandwidth = (got["gb_per_s_before"] + got["gb_per_s_after"]) / 2
    for t in got["tests"]:
        assert len(t["reps"]) == 2 and all(r > 0 for r in t["reps"])
        assert t["tokens_per_s"] == pytest.approx(sum(t["reps"]) / 2)
        assert t["sd"] == pytest.approx(abs(t["reps"][0] - t["reps"][1]) / 2 ** 0.5)
        if t["test"] == "tg":
            assert t["share"] == pytest.approx(t["gb_per_s"] / bandwidth)


def test_bytes_of_a_step_are_the_weights_it_reads_and_the_cache(shoal):
    sizes = {t.name: int(t.n_bytes) for t in gguf.GGUFReader(tiny("llama")).tensors}
    embed = sizes.pop("token_embd.weight")
    done = shoal("bench", tiny("llama"), *QUICK, "-batch", "1,2", "-depth", "0,64", "-json")
    plan = json.loads(shoal("inspect", "plan", tiny("llama"), "-json").stdout)
    for t in json.loads(done.stdout)["tests"]:
        if t["test"] == "tg":
            cache = plan["kv_per_token"] * (t["depth"] + 2.5)  # half of the four new ones
            wanted = sum(sizes.values()) + t["batch"] * (embed / 320 + cache)
            step = t["gb_per_s"] * 1e9 / t["tokens_per_s"] * t["batch"]
            assert step == pytest.approx(wanted)


def test_the_table_names_model_machine_and_bandwidth(shoal):
    done = shoal("bench", *QUICK, "-batch", "2", tiny("llama"))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("model      llama (llama, ")
    assert "GB/s before" in lines[3]
    assert [line.split()[0] for line in lines[5:]] == ["TEST", "pp8", "tg4"]


def test_settings_of_the_engine_hold(shoal):
    done = shoal("bench", *QUICK, tiny("llama"), "-json", "-batch", "1",
                 env={"SHOAL_ENGINE_THREADS": "1", "SHOAL_ENGINE_ACTIVATIONS": "float"})
    got = json.loads(done.stdout)
    assert got["threads"] == 1 and "act=float" in got["numerics"]


def test_what_cannot_be_measured_is_refused(shoal):
    llama = tiny("llama")
    for args, code, text in [
            ([llama, "-batch", "1,x"], 2, 'bench: -batch: at most 16 integers 1..512 divided by '
                                          'commas expected, got "1,x"'),
            ([llama, "-batch", "0"], 2, 'bench: -batch: at most 16 integers 1..512 divided by '
                                        'commas expected, got "0"'),
            ([llama, "-depth", ""], 2, "bench: -depth: a list of integers expected"),
            ([llama, "-p", "0", "-n", "0"], 2, "bench: nothing to do: -p and -n are both 0"),
            ([llama, "-reps", "0"], 2, 'bench: -reps: integer 1..100 expected, got "0"'),
            ([llama, "-against", "http://x"], 2, "bench: -against is not built yet"),
            ([llama, "-depth", "1000000"], 1, "bench: depth and test need 1000512 tokens of "
                                              "context, the model was trained with 2048")]:
        done = shoal("bench", *args)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr == f"shoal: {text}\n"
