"""A bad model file gets one sentence and exit 1: no crash, no hang, nothing lost.

Every case goes through the real binary, once to look at the file and once to run it.
"""
import os
import shutil
import struct
import subprocess
import tempfile
import time

import pytest

from conftest import ROOT, SHOAL
from server import TINY

MODEL = os.path.join(ROOT, "build", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
COMMANDS = [("inspect", "plan"), ("run", "-local")]


def text(s):
    return struct.pack("<Q", len(s)) + s


def head(tensors=0, keys=0, version=3, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, tensors, keys)


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


ARCH = key(b"general.architecture", 8, text(b"llama"))
U32, STRING, ARRAY = 4, 8, 9

# name -> bytes, and a word that the sentence must hold.
BYTES = {
    "empty": (b"", "empty"),
    "html": (b"<!DOCTYPE html><html><head><title>404</title></head></html>" * 20, "web page"),
    "git_lfs_pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "LFS"),
    "wrong_magic": (b"GGML" + bytes(60), "not a GGUF file"),
    "big_endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(64), "endian"),
    "version_1": (head(version=1), "version 1"),
    "version_99": (head(version=99), "version 99"),
    "tensor_count": (head(tensors=1 << 62) + bytes(64), str(1 << 62)),
    "key_count": (head(keys=1 << 63) + bytes(64), str(1 << 63)),
    "string_length": (head(keys=1) + struct.pack("<Q", 1 << 60) + b"x" * 64, str(1 << 60)),
    "array_count": (head(keys=1) + key(b"a", ARRAY, struct.pack("<IQ", U32, 1 << 61)),
                    str(1 << 61)),
    "value_type": (head(keys=1) + key(b"a", 77, b"") + bytes(64), "77"),
    "no_architecture": (head(keys=1) + key(b"a", U32, struct.pack("<I", 1)),
                        "general.architecture"),
    "unknown_architecture": (head(keys=1) + key(b"general.architecture", STRING,
                                                text(b"tortoise")), "tortoise"),
    "architecture_in_other_bytes": (head(keys=1) + key(b"general.architecture", STRING,
                                                       text(b"t\xff\nx")), "not supported"),
    "missing_keys": (head(keys=1) + ARCH, "llama."),
    "tensor_past_the_end": (
        head(tensors=1, keys=1) + ARCH + text(b"token_embd.weight") +
        struct.pack("<IQQIQ", 2, 1 << 20, 1 << 20, 0, 0) + bytes(64), "token_embd.weight"),
}


UP = b"blk.1.ffn_up.weight" + struct.pack("<I", 2)

# name -> what is replaced in a tiny model, by what, and words that the sentence must hold.
CHANGED = {
    "tensor_missing": (b"blk.1.ffn_up.", b"blk.1.ffn_uq.", "'blk.1.ffn_up.weight' is missing"),
    "embedding_missing": (b"token_embd", b"token_embe", "'token_embd.weight' is missing"),
    "wrong_shape": (UP + struct.pack("<QQ", 256, 512), UP + struct.pack("<QQ", 512, 256),
                    "'blk.1.ffn_up.weight' has shape 512 x 256, the model needs 256 x 512"),
    "template": (b"<|im_start|>{{ m.role", b"<|im_start|>\xff{ m.role", "UTF-8 at byte"),
}


def expect_refusal(done, path, word=None):
    """Exit 1, nothing on stdout, one line on stderr that names the file."""
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert done.stdout == ""
    assert done.stderr.startswith("shoal: ") and done.stderr.endswith("\n"), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert os.path.basename(str(path)) in done.stderr, done.stderr
    if word is not None:
        assert word.lower() in done.stderr.lower(), done.stderr


def refuse(shoal, path, word=None, named=None):
    for command in COMMANDS:
        prompt = [] if command[0] == "inspect" else ["hello"]
        expect_refusal(shoal(*command, str(path), *prompt), named or path, word)


@pytest.mark.parametrize("name", BYTES)
def test_bad_bytes_are_refused_with_what_is_wrong(shoal, tmp_path, name):
    content, word = BYTES[name]
    path = tmp_path / f"{name}.gguf"
    path.write_bytes(content)
    refuse(shoal, path, word)


@pytest.mark.parametrize("name", CHANGED)
def test_a_model_whose_parts_do_not_fit_is_named_with_the_part(shoal, tmp_path, name):
    before, after, words = CHANGED[name]
    with open(TINY, "rb") as f:
        content = f.read()
    assert content.count(before) == 1 and len(before) == len(after)
    path = tmp_path / f"{name}.gguf"
    path.write_bytes(content.replace(before, after))
    for command in (("run", "-local"), ("bench", "-reps", "1"), ("inspect", "plan")):
        if name != "template" or command[0] == "run":  # the others read no template
            prompt = ["hello"] if command[0] == "run" else []
            expect_refusal(shoal(*command, str(path), *prompt), path, words)


@pytest.mark.parametrize("size", [1, 23, 24, 1000, 1 << 20, 50_000_000, -1])
def test_a_file_cut_anywhere_is_refused(shoal, tmp_path, size):
    path = tmp_path / "cut.gguf"
    shutil.copyfile(MODEL, path)
    os.truncate(path, size if size > 0 else os.path.getsize(MODEL) + size)
    refuse(shoal, path)


def test_nan_scales_are_refused(shoal, tmp_path):
    path = tmp_path / "nan.gguf"
    shutil.copyfile(MODEL, path)
    size = os.path.getsize(path)
    with open(path, "r+b") as f:
        f.seek(size // 2)
        f.write(b"\xff" * 4096)
    expect_refusal(shoal("run", "-local", str(path), "hello"), path, "NaN")


def test_a_missing_file_a_directory_a_fifo_and_devices_are_refused(shoal, tmp_path):
    refuse(shoal, tmp_path / "none.gguf")
    (tmp_path / "folder.gguf").mkdir()
    refuse(shoal, tmp_path / "folder.gguf", "directory")
    os.mkfifo(tmp_path / "fifo.gguf")
    refuse(shoal, tmp_path / "fifo.gguf", "FIFO")
    refuse(shoal, "/dev/zero", "device")


def test_a_file_without_permission_is_refused():
    """As nobody, since root may read everything."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        binary, path = os.path.join(folder, "shoal"), os.path.join(folder, "secret.gguf")
        shutil.copy(SHOAL, binary)
        shutil.copyfile(MODEL, path)
        os.chmod(path, 0)
        done = subprocess.run(
            [binary, "inspect", "plan", path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, timeout=60, env={"HOME": folder}, text=True,
            preexec_fn=(lambda: os.setuid(65534)) if os.getuid() == 0 else None)
        expect_refusal(done, path, "permission")


def split_piece(number, count):
    keys = [ARCH, key(b"split.no", 2, struct.pack("<H", number)),
            key(b"split.count", 2, struct.pack("<H", count)),
            key(b"split.tensors.count", 5, struct.pack("<i", 0))]
    return head(keys=len(keys)) + b"".join(keys)


def test_split_sets_that_miss_or_repeat_a_piece_or_go_in_circles_are_refused(shoal, tmp_path):
    first, second = tmp_path / "a-00001-of-00002.gguf", tmp_path / "a-00002-of-00002.gguf"
    first.write_bytes(split_piece(0, 2))
    refuse(shoal, first, "missing", named=second)
    second.write_bytes(split_piece(0, 2))
    refuse(shoal, first, "split.no", named=second)
    second.unlink()
    second.symlink_to(second.name)
    refuse(shoal, first, "symbolic links", named=second)
    first.unlink()
    first.symlink_to(second.name)
    refuse(shoal, first)


@pytest.mark.parametrize("change", ["truncate", "overwrite"])
def test_a_file_that_changes_while_it_loads_never_ends_in_a_signal(home, tmp_path, change):
    """An answer or a sentence; each round changes the file a little later."""
    for delay_ms in (0, 20, 50, 100, 200, 400):
        path = tmp_path / "moving.gguf"
        shutil.copyfile(MODEL, path)
        process = subprocess.Popen(
            [SHOAL, "run", "-local", "-n", "4", str(path), "hello"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"HOME": str(home)}, text=True)
        time.sleep(delay_ms / 1000)
        if change == "truncate":
            os.truncate(path, 4096)
        else:
            with open(path, "r+b") as f:
                f.seek(1 << 20)
                f.write(os.urandom(8 << 20))
        out, err = process.communicate(timeout=60)
        assert process.returncode in (0, 1), (delay_ms, process.returncode, err)
        if process.returncode == 1:
            assert err.startswith("shoal: ") and err.count("\n") == 1, (delay_ms, out, err)
