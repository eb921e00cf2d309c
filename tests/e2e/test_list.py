"""`shoal list`, docs/BEHAVIOUR.md 2.2, 4.1 to 4.3."""
import json
import os
import time


def store(home):
    path = home / ".shoal" / "models"
    path.mkdir(parents=True, exist_ok=True)
    return path


def test_an_empty_store_gives_a_suggestion_and_exits_0(shoal, home):
    for name in ("list", "ls"):
        done = shoal(name)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == ("no models yet; `shoal pull owner/repo` fetches one, or put a "
                               f".gguf file into {home}/.shoal/models\n")
    assert json.loads(shoal("list", "-json").stdout) == {"models": []}
    assert not (home / ".shoal").exists()  # looking creates nothing


def test_one_broken_file_is_listed_with_its_reason(shoal, home):
    (store(home) / "cut.gguf").write_bytes(b"GGUF\x03\0\0\0")
    (store(home) / "page.gguf").write_bytes(b"<!DOCTYPE html><html>" + b" " * 100)
    (store(home) / "big.Q4-00002-of-00003.gguf").write_bytes(b"x")
    done = shoal("list")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "MODIFIED", "SOURCE"]
    rows = {line.split()[0]: line for line in lines[1:]}
    assert sorted(rows) == ["big.Q4", "cut", "page"]
    assert "shoal, broken: piece 1 of 3 is missing" in rows["big.Q4"]
    assert "shoal, broken: cut.gguf: " in rows["cut"]
    assert "just now" in rows["cut"] and "8 B" in rows["cut"]
    facts = {m["name"]: m for m in json.loads(shoal("ls", "-json").stdout)["models"]}
    assert "web page" in facts["page"]["broken"]
    assert facts["page"]["source"] == "shoal"


def test_names_cannot_steer_the_terminal(shoal, home):
    (store(home) / "a\x1b[31m\n.gguf").write_bytes(b"x")
    done = shoal("list")
    assert "\x1b" not in done.stdout and len(done.stdout.splitlines()) == 2


def test_other_stores_are_shown_unless_own_alone_is_asked_for(shoal, home):
    folder = home / "models" / "x"
    folder.mkdir(parents=True)
    (folder / "foreign1.gguf").write_bytes(b"x")
    assert "foreign1" in shoal("list").stdout
    assert "foreign1" not in shoal("list", "-own").stdout
    moved = home / "elsewhere"
    moved.mkdir()
    (moved / "mine.gguf").write_bytes(b"x")
    done = shoal("list", "-own", env={"SHOAL_STORE": str(moved)})
    assert "mine" in done.stdout


def test_listing_500_models_again_takes_little_time(shoal, home):
    for i in range(500):
        (store(home) / f"model-{i}.gguf").write_bytes(b"GGUF" + bytes([i % 256]) * 64)
    assert len(shoal("list").stdout.splitlines()) == 501
    best = 1.0
    for _ in range(5):
        start = time.monotonic()
        shoal("list")
        best = min(best, time.monotonic() - start)
    assert best < 0.1  # 30 ms and the start of a process on a busy machine
    assert os.path.exists(store(home) / ".checked")
