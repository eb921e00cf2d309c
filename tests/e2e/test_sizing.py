"""`fit`, `can-run`, and `plan` beside what the engine really takes: docs/BEHAVIOUR.md 4.6, 4.7."""
import glob
import json
import os
import sys

import pytest

from conftest import ROOT
from server import serving

sys.path.insert(0, os.path.join(ROOT, "tests", "hub"))
from hub import Hub  # noqa: E402
from test_pull import env_of, gguf  # noqa: E402

TINY = sorted(glob.glob(os.path.join(ROOT, "build", "tiny", "*.gguf")))
REAL = sorted(glob.glob(os.path.join(ROOT, "build", "models", "*.gguf")))
MIB = 1 << 20


@pytest.mark.parametrize("path", TINY + REAL, ids=os.path.basename)
def test_plan_says_what_the_engine_takes(shoal, home, path):
    """All that a child holds. The pool follows what is free at the moment, so pages that both could
    have more of are left out of what must agree within 1 MiB."""
    choice = ["-ctx", "1024", "-slots", "4"]
    with serving(home, "-model", path, *choice) as server:
        model = server.get("/v1/status").json()["models"][0]
        done = shoal("plan", "-json", *choice, path)
        resident, mapped = memory_of(model["pid"])
    planned = json.loads(done.stdout)
    page = 32 * planned["kv_per_token"]
    want = planned["weights"] + planned["scratch"] + planned["pool"]
    assert abs(model["memory"] - want) <= max(0.03 * model["memory"], MIB)
    fixed = model["memory"] - page * model["pages"]
    planned_fixed = want - planned["choice"]["tokens"] * planned["kv_per_token"]
    assert abs(fixed - planned_fixed) <= MIB
    assert (model["context"], model["slots"]) == (planned["choice"]["context"],
                                                  planned["choice"]["slots"])
    # what the kernel says: the weights are there, the rest until it is used is a mapping
    assert planned["weights"] <= resident <= model["memory"]
    assert mapped >= model["memory"]


def memory_of(pid):
    """Bytes of a process: resident and anonymous; mapped and writable."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        lines = dict(line.split(":", 1) for line in f)
    return [int(lines[key].split()[0]) * 1024 for key in ("RssAnon", "VmData")]


def test_fit_shows_the_machine_a_recommendation_and_what_is_here(shoal, home):
    (home / "models").mkdir()
    os.symlink(TINY[0], home / "models" / "tiny.gguf")
    (home / "models" / "bad.gguf").write_bytes(b"GGUF")
    done = shoal("fit")
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("Machine", "GB/s, measured", "GOPS, measured", "tokens/s, prompts ",
                 "Recommended", "shoal pull Qwen/", "Also fits",
                 "Backend", "Installed", "tiny ", "bad ", "Notes"):
        assert text in done.stdout, text
    facts = json.loads(shoal("fit", "-json", "-probe=false").stdout)
    rows = {m["name"]: m for m in facts["installed"]}
    assert rows["tiny"]["in_ram"] == "comfortable" and rows["bad"]["why"]
    assert facts["machine"]["bandwidth_gb_s"] is None and facts["machine"]["int8_gops"] is None
    assert rows["tiny"]["tokens_s"] is None and rows["tiny"]["prompt_tokens_s"] is None
    budget = facts["machine"]["ram_budget"]
    for row in facts["ladder"]:
        verdict = "comfortable" if row["need"] <= budget // 10 * 7 else \
            "tight" if row["need"] <= budget else "too large"
        assert row["in_ram"] == verdict


def test_the_ladder_counts_a_cache_of_8192_tokens(shoal):
    facts = json.loads(shoal("fit", "-json", "-probe=false").stdout)
    rows = {m["name"]: m for m in facts["ladder"]}
    for name, kv in (("Qwen2.5 0.5B", 24 * 2 * 128 * 2), ("Qwen2.5 7B", 28 * 4 * 256 * 2)):
        assert rows[name]["need"] - rows[name]["weights"] == 8192 * kv


@pytest.fixture
def hub():
    with Hub() as h:
        yield h


def can_run(shoal, home, hub, *args):
    done = shoal("can-run", "-json", *args, env=env_of(home, hub))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_can_run_reads_headers_only_and_judges_every_file(shoal, home, hub, tmp_path):
    big = tmp_path / "big.gguf"
    big.write_bytes(b"GGUF")
    os.truncate(big, 3 << 40)  # a hole
    hub.add("o/r", {"m-Q4_K_M.gguf": TINY[0], "m-F16.gguf": str(big), "README.md": b"x"})
    hub.repos["o/r"].sums["m-F16.gguf"] = "0" * 64
    got = can_run(shoal, home, hub, "o/r")
    assert (got["supported"], got["best"]) == ("yes", "m-Q4_K_M")
    assert [m["file"] for m in got["models"]] == ["m-Q4_K_M"]
    got = can_run(shoal, home, hub, "-all", "o/r")
    assert {m["file"]: m["in_ram"] for m in got["models"]} == {"m-F16": "too large",
                                                               "m-Q4_K_M": "comfortable"}
    asked = sum(r.range[1] - r.range[0] + 1 for r in hub.asked("cdn"))
    assert asked <= 4 * os.path.getsize(TINY[0])
    done = shoal("can-run", "o/r", env=env_of(home, hub))
    assert "shoal pull o/r:m-Q4_K_M\n" in done.stdout
    assert "1 more do not fit; -all shows them" in done.stdout


def test_can_run_counts_beside_the_weights_what_plan_counts(shoal, home, hub):
    hub.add("o/r", {"m.gguf": TINY[0]})
    got = can_run(shoal, home, hub, "o/r")
    planned = json.loads(shoal("plan", "-json", TINY[0]).stdout)
    context = min(8192, planned["trained_context"])
    assert got["architecture"] == planned["architecture"]
    assert got["beside_weights"] >= context * planned["kv_per_token"]


def test_can_run_sums_the_shards_of_a_set(shoal, home, hub):
    hub.add("o/r", {f"Q8/b-{i:05}-of-00003.gguf": gguf(1000 + i) for i in (1, 2, 3)})
    got = can_run(shoal, home, hub, "-all", "o/r")
    assert [(m["file"], m["shards"], m["size"]) for m in got["models"]] == [("Q8/b", 3, 3006)]
    assert got["supported"] != "yes" and got["reason"]  # its headers are noise


def test_can_run_says_no_to_an_unknown_architecture(shoal, home, hub):
    data = open(TINY[0], "rb").read().replace(b"gemma3", b"zebra9")
    hub.add("o/r", {"m.gguf": data})
    got = can_run(shoal, home, hub, "o/r")
    assert got["supported"] == "no" and "zebra9" in got["reason"] and got["best"] is None


def test_can_run_looks_for_conversions_of_safetensors(shoal, home, hub):
    hub.add("o/Zebra", {"config.json": b"{}", "model.safetensors": b"x"}, model_type="zebra")
    hub.add("quants/Zebra-GGUF", {"z.gguf": gguf(100)})
    done = shoal("can-run", "o/Zebra", env=env_of(home, hub))
    assert done.returncode == 0
    assert "supported    no: no GGUF files; safetensors of model type zebra" in done.stdout
    assert "shoal can-run quants/Zebra-GGUF\n" in done.stdout


def test_can_run_leaves_no_file_behind(shoal, home, hub):
    hub.add("o/r", {"m.gguf": TINY[0]})
    before = set(glob.glob("/tmp/shoal_can_run_*"))
    can_run(shoal, home, hub, "o/r")
    assert set(glob.glob("/tmp/shoal_can_run_*")) <= before
    assert shoal("can-run", "o/none", env=env_of(home, hub)).returncode == 1
    assert os.listdir(home) == []
