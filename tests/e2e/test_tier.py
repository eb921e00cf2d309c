"""Prompts that survive a restart (BEHAVIOUR 8.12): the same words, read from disk; whatever happens
to the files, only time is lost."""
import json
import os
import re
import shutil
import signal
import struct
import subprocess

from gguf import GGUFReader
import pytest

from conftest import SHOAL
from server import TINY, Server, serving, wait_until

WORDS = "".join(chr(97 + (i * i + i // 7) % 26) + (" " if i % 5 == 4 else "") for i in range(240))
KINDS = [("llama.gguf", "f16"), ("llama.gguf", "int8"), ("gemma3.gguf", "f16"),
         ("gemma3.gguf", "int8")]


def started(home, spill, *args, model=TINY):
    return serving(home, "-model", model, "-spill", str(spill), *args,
                   env={"SHOAL_CACHE_SPILL_FLOOR": "1MiB"})


def ask(server, text=WORDS, **more):
    """(tokens read from the cache, what was said with its logprobs)"""
    r = server.post("/v1/chat/completions", {
        "model": server.model(), "messages": [{"role": "user", "content": text}], "seed": 5,
        "max_tokens": 12, "logprobs": True, "ignore_eos": True, **more})
    assert r.status == 200, r.body
    got = r.json()
    return got["usage"]["prompt_tokens_details"]["cached_tokens"], got["choices"]


def tier(server, until=lambda ssd: True):
    """The child tells its counts after a moment."""
    def now():
        models = server.get("/v1/cache").json()["models"]
        return models[0].get("ssd") if models else None
    wait_until(lambda: now() and until(now()))
    return now()


def is_degraded(server):
    wait_until(lambda: server.get("/health").json()["status"] == "degraded")
    r = server.get("/health")
    assert r.status == 200 and "the SSD tier is off by errors" in r.json()["reasons"][0]


def pages_of(spill):
    return sorted(f for f in spill.glob("*/pages-*.kv"))


def shoal(spill, *words):
    env = {"HOME": str(spill), "PATH": os.environ["PATH"], "SHOAL_CACHE_SPILL": str(spill)}
    return subprocess.run([SHOAL, *words], capture_output=True, text=True, env=env, timeout=30)


@pytest.mark.parametrize("name,kv", KINDS)
def test_E31_a_prompt_is_read_from_disk_after_a_restart_and_says_the_same(tmp_path, name, kv):
    spill, model = tmp_path / "spill", os.path.join(os.path.dirname(TINY), name)
    with started(tmp_path, spill, "-kv", kv, model=model) as server:
        cold, first = ask(server)
    assert cold == 0
    with started(tmp_path, spill, "-kv", kv, model=model) as server:
        cached, again = ask(server)
        ssd = tier(server, lambda ssd: ssd["reads"] > 0)
    assert cached >= 32 and cached % 32 == 0, cached
    assert again == first
    assert ssd["checksum_failures"] == 0 and ssd["off"] == ""
    for f in pages_of(spill):
        assert f.stat().st_mode & 0o777 == 0o600


def test_another_kind_of_pages_finds_nothing(tmp_path):
    with started(tmp_path, tmp_path / "spill") as server:
        ask(server)
    with started(tmp_path, tmp_path / "spill", "-kv", "int8") as server:
        assert ask(server)[0] == 0


def with_rope_base(source, to, base):
    """The same file but for one number of its header; the weights are equal."""
    field = GGUFReader(source).fields["llama.rope.freq_base"]
    data = bytearray(open(source, "rb").read())
    (length,) = struct.unpack_from("<Q", data, field.offset)
    struct.pack_into("<f", data, field.offset + 8 + length + 4, base)
    to.write_bytes(data)
    return str(to)


def test_a_model_of_equal_weights_and_another_rope_base_finds_nothing(tmp_path):
    spill = tmp_path / "spill"
    other = with_rope_base(TINY, tmp_path / "llama.gguf", 50.0)
    with started(tmp_path, spill) as server:
        first = ask(server)[1]
    with started(tmp_path, tmp_path / "none", model=other) as server:
        alone = ask(server)[1]
    assert alone != first
    with started(tmp_path, spill, model=other) as server:
        assert ask(server) == (0, alone)


def test_what_was_written_survives_kill_9(tmp_path):
    spill = tmp_path / "spill"
    with started(tmp_path, spill) as server:
        first = ask(server)[1]
    server = Server(tmp_path, "-model", TINY, "-spill", str(spill),
                    env={"SHOAL_CACHE_SPILL_FLOOR": "1MiB"})
    ask(server, "other words " + WORDS)
    server.stop(signal.SIGKILL)
    with started(tmp_path, spill) as server:
        cached, again = ask(server)
        assert cached >= 32 and again == first


def damage_bit(path):
    """In the second half: pages, not the header."""
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 2, len(data), 512):
        data[at] ^= 1
    path.write_bytes(data)


def damage_cut(path):
    os.truncate(path, path.stat().st_size // 2)


def damage_foreign(path):
    path.write_bytes(b"GGUF" * 5000)


def damage_empty(path):
    path.write_bytes(b"")


def damage_future(path):
    data = bytearray(path.read_bytes())
    data[8] = 2
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [damage_bit, damage_cut, damage_foreign, damage_empty,
                                    damage_future], ids=lambda f: f.__name__)
def test_a_damaged_file_costs_time_and_no_word(tmp_path, damage):
    spill = tmp_path / "spill"
    with started(tmp_path, spill) as server:
        first = ask(server)[1]
    files = pages_of(spill)
    assert files
    for f in files:
        damage(f)
    with started(tmp_path, spill) as server:
        assert ask(server)[1] == first
        if damage is not damage_cut:  # what is cut off is just not there
            tier(server, lambda ssd: ssd["checksum_failures"] + ssd["files_refused"] > 0)
        assert server.get("/health").status == 200
    assert (damage is not damage_future) or files[0].exists()


OTHER = "Quite other words. " + WORDS[19:]
TABLE = 4096  # records begin here


def data_of(path):
    """Where the pages of a file begin: behind its header and its records (docs/formats/tier.md)."""
    data = path.read_bytes()
    (slots,) = struct.unpack_from("<I", data, 36)
    return (TABLE + slots * 128 + 4095) // 4096 * 4096


def attack_whole_file(ours, theirs):
    ours.write_bytes(theirs.read_bytes())


def attack_pages(ours, theirs):
    at, a, b = data_of(ours), ours.read_bytes(), theirs.read_bytes()
    ours.write_bytes(a[:at] + b[at:])


def attack_records(ours, theirs):
    at, a, b = data_of(ours), ours.read_bytes(), theirs.read_bytes()
    ours.write_bytes(a[:TABLE] + b[TABLE:at] + a[at:])


def attack_order(ours, theirs):
    """The first two pages change places."""
    at, a = data_of(ours), ours.read_bytes()
    step = (struct.unpack_from("<Q", a, 40)[0] + 4095) // 4096 * 4096
    ours.write_bytes(a[:at] + a[at + step:at + 2 * step] + a[at:at + step] + a[at + 2 * step:])


def attack_records_change_places(ours, theirs):
    a = ours.read_bytes()
    ours.write_bytes(a[:TABLE] + a[TABLE + 128:TABLE + 256] + a[TABLE:TABLE + 128] +
                     a[TABLE + 256:])


def attack_symlink(ours, theirs):
    moved = ours.with_name("moved")
    ours.rename(moved)
    ours.symlink_to(moved)


def attack_symlink_to_theirs(ours, theirs):
    ours.unlink()
    ours.symlink_to(theirs)


def attack_hard_link(ours, theirs):
    """One file under two numbers: what is written through one is read through the other."""
    os.link(ours, ours.with_name("pages-00000001.kv"))


ATTACKS = [attack_whole_file, attack_pages, attack_records, attack_order,
           attack_records_change_places, attack_symlink, attack_symlink_to_theirs,
           attack_hard_link]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda f: f.__name__)
def test_no_file_put_together_by_somebody_says_a_wrong_word(tmp_path, attack):
    """Files of the same owner and length, with other words in them."""
    said = {}
    for name, text in (("ours", WORDS), ("theirs", OTHER)):
        with started(tmp_path, tmp_path / name) as server:
            said[text] = ask(server, text)[1]
    (ours,), (theirs,) = pages_of(tmp_path / "ours"), pages_of(tmp_path / "theirs")
    before = theirs.read_bytes()
    attack(ours, theirs)
    for _ in range(2):  # the second time with what the first one wrote
        with started(tmp_path, tmp_path / "ours") as server:
            for text in (WORDS, OTHER, WORDS + " and more", OTHER):
                got = ask(server, text)[1]
                assert got == said.setdefault(text, got)
            assert server.get("/health").status == 200
    assert theirs.read_bytes() == before
    with started(tmp_path, tmp_path / "none") as server:
        assert ask(server, WORDS + " and more")[1] == said[WORDS + " and more"]


def test_a_part_that_is_exchanged_under_a_running_server_says_no_wrong_word(tmp_path):
    said = {}
    for name, text in (("ours", WORDS), ("theirs", OTHER)):
        with started(tmp_path, tmp_path / name) as server:
            said[text] = ask(server, text)[1]
    (ours,), (theirs,) = pages_of(tmp_path / "ours"), pages_of(tmp_path / "theirs")
    with started(tmp_path, tmp_path / "ours") as server:
        ours.parent.rename(tmp_path / "away")
        shutil.copytree(theirs.parent, ours.parent)
        for text in (WORDS, OTHER, WORDS):
            assert ask(server, text)[1] == said[text]
    with started(tmp_path, tmp_path / "ours") as server:
        for text in (OTHER, WORDS):
            assert ask(server, text)[1] == said[text]


def test_a_directory_that_cannot_be_used_is_named_and_costs_nothing_else(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    with started(tmp_path, blocked / "spill") as server:
        assert len(ask(server)[1]) == 1
        assert "file" in tier(server, lambda ssd: ssd["off"])["off"]
        assert "cache: " in server.errors()
        is_degraded(server)


def test_a_directory_that_vanishes_costs_nothing_else(tmp_path):
    spill = tmp_path / "spill"
    with started(tmp_path, spill, "-spill-size", "200KB") as server:
        first = ask(server)[1]
        assert server.get("/health").json() == {"status": "ok", "reasons": []}
        subprocess.run(["rm", "-rf", str(spill)], check=True)
        assert ask(server)[1] == first
        for i in range(6):  # long ones are written at once: until the next file cannot be made
            ask(server, f"{i} {WORDS * 3}")
        assert "writing" in tier(server, lambda ssd: ssd["off"])["off"]
        is_degraded(server)
        assert ask(server)[1] == first
    with started(tmp_path, spill) as server:
        assert ask(server)[1] == first


def test_a_second_server_on_the_directory_is_told_and_serves(tmp_path):
    spill = tmp_path / "spill"
    (tmp_path / "two").mkdir()
    with started(tmp_path, spill) as one, started(tmp_path / "two", spill) as two:
        assert ask(one)[1] == ask(two)[1]
        assert tier(one)["off"] == ""
        assert "another server" in tier(two, lambda ssd: ssd["off"])["off"]
        assert two.get("/health").json()["status"] == "ok"  # nothing is broken


def test_the_limit_holds(tmp_path):
    spill = tmp_path / "spill"
    with started(tmp_path, spill, "-spill-size", "200KB") as server:
        for i in range(12):
            ask(server, f"{i} {WORDS}")
        limit = tier(server, lambda ssd: ssd["limit"])["limit"]
    assert 0 < limit <= 200000
    with started(tmp_path, spill, "-spill-size", "200KB") as server:
        assert tier(server)["bytes"] <= limit
    assert sum(f.stat().st_size for f in pages_of(spill)) <= 200000


def test_cache_shows_the_directory_and_clean_refuses_while_it_is_in_use(tmp_path):
    spill = tmp_path / "spill"
    with started(tmp_path, spill) as server:
        ask(server)
        clean = shoal(spill, "cache", "clean")
        assert clean.returncode == 1 and "a server is using it" in clean.stderr
        assert "in use" in shoal(spill, "cache", "-addr", f"127.0.0.1:{server.port}").stdout
    shown = shoal(spill, "cache", "-addr", "127.0.0.1:1")
    assert shown.returncode == 0 and re.search(r"llama +[\d.]+ [KM]B +1 ", shown.stdout), shown
    raw = json.loads(shoal(spill, "cache", "-json", "-addr", "127.0.0.1:1").stdout)
    assert raw["parts"][0]["model"] == "llama" and raw["server"] is None
    assert raw["parts"][0]["in_use"] is False and raw["bytes"] > 0
    assert shoal(spill, "cache", "clean", "-model", "nobody").returncode == 1
    assert shoal(spill, "cache", "-model", "llama").returncode == 2
    done = shoal(spill, "cache", "clean", "-model", "llama")
    assert done.returncode == 0 and done.stdout.endswith("freed\n"), done
    assert not pages_of(spill)
    assert "nothing is stored" in shoal(spill, "cache", "-addr", "127.0.0.1:1").stdout


def test_clean_deletes_every_part_of_a_model(tmp_path):
    """More of them than a table of some hundred: each build of the program leaves one."""
    spill = tmp_path / "spill"
    with started(tmp_path, spill) as server:
        ask(server)
    part = pages_of(spill)[0].parent
    for i in range(300):
        shutil.copytree(part, spill / f"{i:032x}")
    raw = json.loads(shoal(spill, "cache", "-json", "-addr", "127.0.0.1:1").stdout)
    assert len(raw["parts"]) == 301 and {p["model"] for p in raw["parts"]} == {"llama"}
    done = shoal(spill, "cache", "clean", "-model", "llama")
    assert done.returncode == 0, done
    assert not pages_of(spill)


def test_off_writes_nothing(tmp_path):
    with serving(tmp_path, "-model", TINY, "-spill", "off") as server:
        ask(server)
        assert tier(server)["limit"] == 0 and tier(server)["off"] == ""
    assert not (tmp_path / ".shoal" / "cache").exists()
