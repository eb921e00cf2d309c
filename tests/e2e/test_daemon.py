"""run through a server, starting it when there is none; ps and stop."""
import json
import os
import re
import signal
import socket
import subprocess

import pytest

from conftest import SHOAL
from server import REAL, TINY, is_alive, serving, wait_until

KEY = "ops-key-0123456789abc"


@pytest.fixture
def address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


def refuses(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def store(home):
    path = home / ".shoal" / "models"
    path.mkdir(parents=True)
    (path / "smol.gguf").symlink_to(REAL)
    (path / "tiny.gguf").symlink_to(TINY)
    return path


def test_run_starts_a_server_uses_it_again_and_stop_ends_it(shoal, home, store, address):
    first = shoal("run", "-addr", address, "-n", "6", "-temp", "0", "-timings", "smol",
                  "Say hello, world.")
    assert first.returncode == 0, first.stderr
    assert first.stdout.strip() and "6 out" in first.stderr
    pid_file = home / ".shoal" / "run" / f"{address.split(':')[1]}.pid"
    pid = int(pid_file.read_text())
    assert is_alive(pid) and os.getsid(pid) == pid
    again = shoal("run", "-addr", address, "-n", "6", "-temp", "0", "-timings", "smo",
                  "Say hello, world.")
    cached = int(re.search(r"\((\d+) cached\)", again.stderr).group(1))
    assert again.returncode == 0 and cached > 0
    assert int(pid_file.read_text()) == pid
    rows = shoal("ps", "-addr", address).stdout.splitlines()
    assert rows[0].split() == ["NAME", "SIZE", "DEVICE", "CONTEXT", "RUNNING", "QUEUED", "UNTIL"]
    assert rows[1].split()[3] == "cpu"
    assert rows[1].startswith("smol ") and rows[1].endswith("minutes")
    assert json.loads(shoal("ps", "-json", "-addr", address).stdout)["models"][0]["name"] == "smol"
    done = shoal("stop", "-addr", address)
    assert (done.returncode, done.stdout) == (0, "stopped\n")
    wait_until(lambda: not is_alive(pid))
    assert not pid_file.exists()


def test_a_server_that_run_starts_loads_as_run_was_told(shoal, home, store, address):
    flags = ("-ctx", "128", "-ngl", "0", "-backend", "cpu", "-kv", "int8", "-activations", "int16")
    done = shoal("run", "-addr", address, *flags, "-n", "1", "tiny", "a")
    assert done.returncode == 0, done.stderr
    pid = int((home / ".shoal" / "run" / f"{address.split(':')[1]}.pid").read_text())
    with open(f"/proc/{pid}/cmdline", encoding="utf-8") as f:
        words = f.read().split("\0")
    for name, value in zip(flags[::2], flags[1::2]):
        assert words[words.index(name) + 1] == value
    assert shoal("stop", "-addr", address).returncode == 0


def test_seed_and_format_go_through_the_server(shoal, home, store):
    schema = home / "schema.json"
    schema.write_text('{"enum": ["red", "blue"]}')
    with serving(home) as server:
        address = f"127.0.0.1:{server.port}"
        args = ("run", "-addr", address, "-temp", "1", "-seed", "3", "-n", "12")
        first, again = (shoal(*args, "smol", "Invent a word.") for _ in range(2))
        assert first.returncode == 0 and first.stdout and first.stdout == again.stdout
        done = shoal("run", "-addr", address, "-format", f"@{schema}", "smol", "A colour?")
        assert json.loads(done.stdout) in ("red", "blue"), done


def test_stop_waits_for_a_reply_under_way_and_nobody_else_waits(shoal, home, store):
    with serving(home, "-model", REAL, env={"SHOAL_LIMITS_GRACE": "2s"}) as server:
        address = f"127.0.0.1:{server.port}"
        body = json.dumps({"model": server.model(), "stream": True, "ignore_eos": True,
                           "messages": [{"role": "user", "content": "Hi"}]})
        with server.connect() as s:
            s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                      f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
            s.recv(1)
            with subprocess.Popen([SHOAL, "stop", "-addr", address], stdout=subprocess.PIPE,
                                  env={"HOME": str(home), "PATH": os.environ["PATH"]}) as stop:
                wait_until(lambda: refuses(server.port), 1.5)
                assert stop.poll() is None and server.process.poll() is None
                assert stop.communicate(timeout=10)[0] == b"stopped\n"
            assert server.process.wait(1) == 0


def test_stop_without_a_key_signals_the_server_that_run_started(shoal, home, store, address):
    key = home / "key"
    key.write_text(KEY + "\n")
    key.chmod(0o600)
    (home / ".shoal" / "config.yaml").write_text(
        f"keys: [{{name: ops, key_file: {key}, scopes: [infer, read, admin]}}]")
    done = shoal("run", "-addr", address, "-key-file", str(key), "-n", "1", "tiny", "ab")
    assert done.returncode == 0, done.stderr
    pid = int((home / ".shoal" / "run" / f"{address.split(':')[1]}.pid").read_text())
    done = shoal("stop", "-addr", address)
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr
    assert not is_alive(pid)


def test_without_a_server_ps_fails_and_stop_is_done(shoal, address):
    done = shoal("ps", "-addr", address)
    assert (done.returncode, done.stderr) == (1, f"shoal: no shoal server at {address}\n")
    done = shoal("stop", "-addr", address)
    assert (done.returncode, done.stdout) == (0, f"no shoal server at {address}\n")


@pytest.mark.parametrize("args, sentence", [
    (["nosuch", "hi"], 'no model "nosuch"'),
    (["smol", "word " * 9000], "limit is"),
])
def test_what_the_server_refuses_is_one_sentence(shoal, home, store, args, sentence):
    with serving(home) as server:
        done = shoal("run", "-addr", f"127.0.0.1:{server.port}", *args)
        assert done.returncode == 1 and done.stdout == ""
        assert re.fullmatch(r"shoal: [^\n]*\n", done.stderr) and sentence in done.stderr


def test_keys_open_ps_and_stop(shoal, home, store):
    key = home / "key"
    key.write_text(KEY + "\n")
    key.chmod(0o600)
    config = home / "c.yaml"
    config.write_text(f"keys: [{{name: ops, key_file: {key}, scopes: [infer, read, admin]}}]")
    with serving(home, "-config", str(config)) as server:
        address = f"127.0.0.1:{server.port}"
        done = shoal("ps", "-addr", address)
        assert done.returncode == 1 and "a key is needed" in done.stderr
        assert shoal("run", "-addr", address, "-n", "1", "tiny", "ab").returncode == 1
        assert shoal("run", "-addr", address, "-key-file", str(key), "-n", "1", "tiny",
                     "ab").returncode == 0
        done = shoal("ps", "-addr", address, env={"SHOAL_KEY": KEY})
        assert done.returncode == 0 and "tiny" in done.stdout
        assert shoal("stop", "-addr", address).returncode == 1
        assert shoal("stop", "-addr", address, env={"SHOAL_KEY": KEY}).stdout == "stopped\n"


def test_sigint_ends_the_reply_and_not_the_server(home, store):
    with serving(home, "-model", "smol") as server:
        process = subprocess.Popen(
            [SHOAL, "run", "-addr", f"127.0.0.1:{server.port}", "-temp", "0", "smol",
             "Tell a very long story."],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={"HOME": str(home)})
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode == 130
        wait_until(lambda: server.requests() == 0, 2)


def test_a_server_that_dies_in_mid_reply_is_told(home, store):
    with serving(home, "-model", "smol") as server:
        process = subprocess.Popen(
            [SHOAL, "run", "-addr", f"127.0.0.1:{server.port}", "-temp", "0", "smol",
             "Tell a very long story."],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={"HOME": str(home)})
        assert process.stdout.read(1)
        server.process.kill()
        _, err = process.communicate(timeout=20)
        assert process.returncode == 1 and b"broke off" in err
        server.process.wait(20)
        server.stop = lambda *a, **k: 0
