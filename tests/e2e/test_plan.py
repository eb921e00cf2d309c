"""`shoal plan`, docs/BEHAVIOUR.md 2.2, 4.6, 4.7, on the tiny models of `make tiny`."""
import json
import os

import pytest

from conftest import ROOT

GIB = 1 << 30


def tiny(name):
    return os.path.join(ROOT, "build", "tiny", name + ".gguf")


def plan(shoal, name, *args):
    done = shoal("plan", tiny(name), "-json", *args)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


# kv heads x (dk + dv) x 2 bytes x layers without a window, from make_tiny.py
@pytest.mark.parametrize("name, kv, trained", [
    ("llama", 3 * 2 * (32 + 32) * 2, 2048), ("qwen3moe", 2 * 4 * (64 + 64) * 2, 2048)])
def test_contexts_are_the_largest_powers_of_two_that_fit(shoal, name, kv, trained):
    fits_all = plan(shoal, name, "-ram", "64G")
    assert fits_all["kv_per_token"] == kv
    assert all(r["context"] == trained and r["as_trained"] for r in fits_all["contexts"])
    taken = fits_all["weights"] + fits_all["scratch"]
    for extra in (3 * GIB, 40 << 20, 12 << 20, 1 << 20):
        got = plan(shoal, name, "-ram", str(taken + extra))
        left = taken + extra - got["weights"] - got["scratch"]  # fewer slots take less scratch
        assert got["left"] == left >= extra
        spend = min(left // 2, max(left - 2 * GIB, left // 4))
        assert got["spendable"] == spend
        for row in got["contexts"]:
            sizes = [c for c in (512, 1024, 2048) if row["concurrent"] * c * kv <= spend]
            assert row["context"] == (sizes[-1] if sizes else 0)
            assert row["tokens"] == row["context"] * row["concurrent"]


def test_windows_make_a_long_context_cheap(shoal):
    got = plan(shoal, "gemma3", "-ram", "64G")
    assert 0 < got["kv_per_token"] < plan(shoal, "qwen3", "-ram", "64G")["kv_per_token"]


def test_what_does_not_fit_is_an_answer(shoal):
    done = shoal("plan", tiny("llama"), "-ram", "1MiB")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].endswith(": does not fit")
    assert plan(shoal, "llama", "-ram", "1MiB")["fits"] is False
    got = plan(shoal, "llama", "-ram", "64G", "-ctx", "1000", "-slots", "3")
    assert (got["choice"]["context"], got["choice"]["slots"]) == (1000, 3)


def test_the_table_says_what_was_assumed(shoal):
    done = shoal("plan", "-ram", "3G", tiny("llama"))
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("model       llama, context 2048 as trained", "memory      3.0 GB, weights ",
                 "CONCURRENT    CONTEXT       TOKENS", "choice      2048 tokens a conversation",
                 "caveat"):
        assert text in done.stdout
    done = shoal("plan", "-peers", "a:1", tiny("llama"))
    assert (done.returncode, done.stderr) == (2, "shoal: plan: -peers is not built yet\n")


def test_pages_are_counted_in_the_form_that_serve_would_give_them(shoal, tmp_path):
    f16, int8 = plan(shoal, "llama"), plan(shoal, "llama", "-kv", "int8")
    assert (f16["kv"], int8["kv"]) == ("f16", "int8")
    # a byte a value, a scale of two bytes per head and side: 3 layers, 2 heads, 32 + 32 columns
    assert int8["kv_per_token"] == 3 * 2 * (32 + 32 + 2 * 2)
    config = tmp_path / "shoal.yaml"
    config.write_text("engine: {activations: float}\n")
    as_float = plan(shoal, "llama", "-config", str(config))
    assert (as_float["kv"], as_float["kv_per_token"]) == ("f32", 2 * f16["kv_per_token"])
    assert " a token (int8)" in shoal("plan", "-kv", "int8", tiny("llama")).stdout


def test_what_the_configuration_says_of_one_model_counts_and_a_flag_beats_it(shoal, tmp_path):
    config = tmp_path / "shoal.yaml"
    config.write_text("models: {llama: {ctx: 640, slots: 2, kv: int8}}\nengine: {slots: 7}\n")

    def chosen(name, *flags):
        got = plan(shoal, name, "-config", str(config), *flags)
        return got["choice"]["context"], got["choice"]["slots"], got["kv"]

    assert chosen("llama") == (640, 2, "int8")
    assert chosen("llama", "-ctx", "1000", "-slots", "3") == (1000, 3, "int8")
    assert chosen("llama", "-kv", "f16")[2] == "f16"
    assert chosen("qwen3", "-ctx", "512") == (512, 7, "f16")


def test_memory_of_a_gpu_that_is_not_used_is_refused(shoal):
    done = shoal("plan", "-backend", "cpu", "-gpu-mem", "8G", tiny("llama"))
    assert done.returncode == 2
    assert "-gpu-mem counts where a GPU computes; here it is cpu" in done.stderr
