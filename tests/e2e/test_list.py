"""`shoal list`, docs/BEHAVIOUR.md 2.2, 4.1 to 4.3."""
import json
import os
import subprocess
import time

from conftest import SHOAL
from server import TINY, serving


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


def test_D08_three_corrupt_files_among_thirty_cost_nobody_anything(shoal, home):
    """Every good one is listed and served; what is wrong with a bad one is said when it is asked
    for, and the next good one answers as before."""
    with open(TINY, "rb") as f:
        whole = f.read()
    for i in range(30):
        os.symlink(TINY, store(home) / f"good-{i}.gguf")
    huge = b"GGUF\x03\0\0\0" + b"\xff" * 16 + whole[24:4096]  # counts of tensors and keys: 2^64 - 1
    bad = {"cut": whole[:len(whole) // 2], "page": b"<!DOCTYPE html>" + b" " * 99, "huge": huge}
    for name, data in bad.items():
        (store(home) / f"{name}.gguf").write_bytes(data)
    rows = {m["name"]: m for m in json.loads(shoal("list", "-json").stdout)["models"]}
    assert len(rows) == 33
    assert sorted(n for n, m in rows.items() if m["broken"]) == sorted(bad)
    with serving(home) as server:
        for i in range(30):
            reply = server.post("/api/show", {"model": f"good-{i}"})
            assert reply.status == 200, reply.body
        for name in bad:
            reply = server.post("/api/generate", {"model": name, "prompt": "x", "stream": False})
            assert reply.status >= 400 and name in reply.json()["error"], reply.body
            ask = {"model": "good-7", "prompt": "x", "stream": False,
                   "options": {"num_predict": 2, "temperature": 0}}
            assert server.post("/api/generate", ask).status == 200
        assert server.get("/health").status == 200


def test_a_model_that_is_being_written_is_broken_until_it_is_whole(shoal, home):
    def why():
        return json.loads(shoal("list", "-json").stdout)["models"][0]["broken"]

    with open(TINY, "rb") as f:
        whole = f.read()
    with open(store(home) / "m.gguf", "wb") as f:
        assert "is empty (0 bytes)" in why()
        for end in (1000, len(whole) // 2, len(whole) - 1):
            f.write(whole[f.tell():end])
            f.flush()
            assert why()
        f.write(whole[-1:])
        f.flush()
        assert why() is None


def test_a_store_that_cannot_be_written_is_listed_all_the_same(home):
    """Read-only, then full: the record of checked files is a help, nothing more."""
    script = (f'm="{store(home)}"; mount -t tmpfs -o size=16m none "$m" && '
              f'cp {TINY} "$m/tiny.gguf" && mount -o remount,ro "$m" && {SHOAL} list && '
              f'mount -o remount,rw "$m" && (cat /dev/zero >"$m/fill"; {SHOAL} list && '
              'ls -A "$m")')
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    done = subprocess.run([*unshare, "sh", "-c", script], capture_output=True, text=True,
                          timeout=60, check=False,
                          env={"HOME": str(home), "PATH": os.environ["PATH"]})
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "tiny", "NAME", "tiny", "fill",
                                                   "tiny.gguf"], done
    assert all(line.endswith("shoal") for line in lines if line.startswith("tiny "))
    assert done.stderr == "cat: write error: No space left on device\n"


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
