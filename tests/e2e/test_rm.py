"""`shoal rm`, and how `list` shows what is not finished: docs/BEHAVIOUR.md 2.2, 4.1."""
import json
import os
import sys
import time

import pytest

from conftest import ROOT
from server import TINY, serving

sys.path.insert(0, os.path.join(ROOT, "tests", "hub"))
from hub import Hub  # noqa: E402
from test_pull import PIECE, gguf, start, wait_for_marks  # noqa: E402


@pytest.fixture
def store(home):
    path = home / ".shoal" / "models"
    path.mkdir(parents=True)
    return path


def put(folder, *names):
    for n in names:
        (folder / n).write_bytes(b"GGUF" + b"x" * 20)


def test_a_model_goes_with_all_its_pieces_and_nothing_else(shoal, store):
    put(store, "a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf",
        "b-00001-of-00003.gguf", "bb.gguf", ".b.gguf.part")
    done = shoal("rm", "a", "b-00001-of-00002.gguf")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "removed a\nremoved b\n"
    assert sorted(os.listdir(store)) == [".b.gguf.part", "b-00001-of-00003.gguf", "bb.gguf"]


def test_a_failure_does_not_keep_the_others_back(shoal, store):
    put(store, "a.gguf", "b.gguf")
    done = shoal("rm", "nothing", "a", "../../etc/passwd", "b")
    assert done.returncode == 1
    assert done.stdout == "removed a\nremoved b\n"
    assert len(done.stderr.splitlines()) == 2


def test_a_link_goes_and_what_it_points_to_stays(shoal, store, home):
    put(home, "real.gguf")
    (store / "link.gguf").symlink_to(home / "real.gguf")
    (home / "outside").mkdir()
    put(home / "outside", "config.json", "model.safetensors")
    (store / "folder").symlink_to(home / "outside")
    assert shoal("rm", "link", "folder").returncode == 0
    assert os.listdir(store) == []
    assert (home / "real.gguf").exists() and len(os.listdir(home / "outside")) == 2


def test_a_safetensors_directory_goes_whole(shoal, store):
    (store / "m").mkdir()
    put(store / "m", "config.json", "model.safetensors", "tokenizer.json")
    listed = shoal("list").stdout
    assert "shoal, safetensors" in listed
    assert shoal("rm", "m").returncode == 0
    assert os.listdir(store) == [".checked"]


def test_models_of_other_programs_are_theirs(shoal, store, home):
    (home / "models").mkdir()
    put(home / "models", "other.gguf")
    lm = home / ".lmstudio" / "models" / "o" / "r"
    lm.mkdir(parents=True)
    put(lm, "lm.gguf")
    for name, text in (("other", f"`rm '{home}/models/other.gguf'`"), ("lm", "LM Studio")):
        done = shoal("rm", name)
        assert done.returncode == 1 and text in done.stderr, done.stderr
    assert (home / "models" / "other.gguf").exists() and (lm / "lm.gguf").exists()


def test_a_loaded_model_is_refused_unless_forced(shoal, store, home):
    os.link(TINY, store / "tiny.gguf") if os.stat(TINY).st_dev == os.stat(store).st_dev else \
        (store / "tiny.gguf").write_bytes(open(TINY, "rb").read())
    with serving(home, "-model", "tiny") as server:
        address = f"127.0.0.1:{server.port}"
        done = shoal("rm", "-addr", address, "tiny")
        assert done.returncode == 1 and "is loaded by the running server" in done.stderr
        assert (store / "tiny.gguf").exists()
        assert shoal("rm", "-addr", address, "-force", "tiny").returncode == 0
        assert not (store / "tiny.gguf").exists()


def test_an_unfinished_download_is_listed_refused_and_removed(shoal, store, home):
    with Hub() as hub:
        parts = {"big-00001-of-00002.gguf": gguf(4 * PIECE), "big-00002-of-00002.gguf":
                 gguf(6 * PIECE, 2)}
        hub.add("o/big", parts)
        hub.rate = 150_000
        run = start(home, hub, "-connections", "1", "o/big")
        end = time.monotonic() + 20
        while not any("done 0" in p.read_text() for p in store.glob(".*.state")):
            assert time.monotonic() < end
            time.sleep(0.01)
        hub.rate = 8_000  # no file is whole when the list is made, however slow this machine is
        live = shoal("list")
        run.kill()
        run.communicate()
    line = next(row for row in live.stdout.splitlines() if row.startswith("big"))
    assert " / 640.0 KB" in line and line.endswith("shoal, partial"), line
    facts = json.loads(shoal("list", "-json").stdout)["models"]
    assert [(m["name"], m["partial"], m["size"], m["broken"]) for m in facts] == \
        [("big", True, 10 * PIECE, None)]
    assert 0 < facts[0]["received"] < 10 * PIECE
    done = shoal("run", "-local", "big", "hi")
    assert done.returncode == 1 and "unfinished: " in done.stderr
    done = shoal("rm", "big")
    assert (done.returncode, done.stdout) == (0, "removed big\n"), done.stderr
    assert [n for n in os.listdir(store) if n not in (".pulled", ".checked")] == []


def test_what_a_pull_is_fetching_stays(shoal, store, home):
    data = gguf(10 * PIECE)
    with Hub() as hub:
        hub.add("o/r", {"m.Q4_K_M.gguf": data})
        hub.rate = 100_000
        run = start(home, hub, "-connections", "1", "o/r")  # piece after piece: nine are to come
        wait_for_marks(store, 1)
        done = shoal("rm", "m.Q4_K_M")
        hub.rate = 0
        out, errors = run.communicate(timeout=60)
    assert (done.returncode, done.stdout) == (1, "") and "a pull is fetching it" in done.stderr
    assert run.returncode == 0 and out, errors
    assert (store / "m.Q4_K_M.gguf").read_bytes() == data


def test_a_directory_is_no_model_and_nobody_is_told_to_delete_it(shoal, home):
    for path in ("/", str(home)):
        done = shoal("rm", path)
        text = f"shoal: {path}: is a directory, not a model\n"
        assert (done.returncode, done.stderr) == (1, text)
    (home / "st").mkdir()
    put(home / "st", "config.json", "model.safetensors")
    done = shoal("rm", str(home / "st"))
    assert done.returncode == 1 and f"`rm -r '{home}/st'`" in done.stderr


def test_an_update_in_progress_leaves_the_old_model_usable(shoal, store, home):
    with Hub() as hub:
        hub.add("o/r", {"m.gguf": gguf(2 * PIECE)})
        assert start(home, hub, "o/r").wait(20) == 0
        hub.add("o/r", {"m.gguf": gguf(9 * PIECE, 3)}, commit="a" * 40)
        hub.rate = 100_000
        run = start(home, hub, "o/r")
        end = time.monotonic() + 20
        while not (store / ".m.gguf.state").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        facts = json.loads(shoal("list", "-json").stdout)["models"]
        run.kill()
        run.communicate()
    assert [(m["partial"], m["size"]) for m in facts] == [(False, 2 * PIECE)]
