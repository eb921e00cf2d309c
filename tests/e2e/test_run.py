"""shoal run -local: a private engine child, from the outside. Tiny models, one real one."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

from conftest import ROOT, SHOAL
from server import REAL, TINY, children_of, is_alive, wait_until

TIMINGS = re.compile(r"^\[(\d+) tokens in \((\d+) cached\), (\d+) out; "
                     r"prefill [\d.]+ tokens/s, decode [\d.]+ tokens/s\]$", re.M)


def test_a_real_model_answers_and_says_how_fast(shoal):
    done = shoal("run", "-local", "-timings", "-temp", "0", "-n", "24", REAL,
                 "Write one sentence about rain.")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 3
    tokens_in, cached, out = map(int, TIMINGS.search(done.stderr).groups())
    assert tokens_in > 20 and cached == 0 and 1 <= out <= 24


def test_the_prompt_is_the_words_then_what_comes_on_stdin(shoal):
    counts = {}
    for name, words, stdin in (("words", ["ab", "cd"], b""), ("stdin", [], b"ab cd"),
                               ("both", ["ab", "cd"], b"ef")):
        done = shoal("run", "-local", "-timings", "-n", "1", TINY, *words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        counts[name] = int(TIMINGS.search(done.stderr).group(1))
    assert counts["words"] == counts["stdin"]
    assert counts["both"] == counts["words"] + len("\n\nef")


def test_the_cache_can_be_int8(shoal):
    for env in ({}, {"SHOAL_ENGINE_ACTIVATIONS": "float"}):
        done = shoal("run", "-local", "-kv", "int8", "-temp", "0", "-n", "24", REAL,
                     "What is rain?", env=env)
        assert done.returncode == 0, done.stderr
        assert "rain" in done.stdout.lower()
    assert shoal("run", "-local", "-kv", "int4", TINY, "ab").returncode == 2


def test_a_seed_repeats_the_reply_and_temperature_0_needs_none(shoal):
    def reply(*flags):
        done = shoal("run", "-local", "-n", "12", *flags, REAL, "Invent a word.")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert reply("-seed", "7", "-temp", "1") == reply("-seed", "7", "-temp", "1")
    assert len({reply("-seed", str(n), "-temp", "2") for n in range(1, 4)}) > 1
    assert reply("-temp", "0", "-seed", "1") == reply("-temp", "0", "-seed", "2")


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 10, "maximum": 20}},
          "required": ["n"], "additionalProperties": False}


def test_format_holds_the_reply(shoal, home):
    schema = home / "schema.json"
    schema.write_text(json.dumps(SCHEMA) + "\n")
    for seed in ("1", "2"):
        done = shoal("run", "-local", "-format", f"@{schema}", "-seed", seed, TINY, "ab")
        assert done.returncode == 0, done.stderr
        assert 10 <= json.loads(done.stdout)["n"] <= 20
    done = shoal("run", "-local", "-format", "json", "-temp", "0", "-n", "200", REAL,
                 "Give the name and the age of Anna, who is 30, as JSON.")
    assert isinstance(json.loads(done.stdout), dict), done


@pytest.mark.parametrize("word, code, sentence", [
    ("yaml", 2, 'run: -format: "yaml" is neither json nor @FILE'),
    ("@", 2, 'run: -format: "@" is neither json nor @FILE'),
    ("@/no/such", 1, "/no/such: No such file or directory"),
    ("@bad.json", 1, "bad.json"),
    ("@odd.json", 1, "no value is possible"),
])
def test_a_format_that_cannot_be_is_one_sentence(shoal, home, word, code, sentence):
    (home / "bad.json").write_text('{"type": ')
    (home / "odd.json").write_text('{"type": "integer", "minimum": 5, "maximum": 1}')
    word = word.replace("@bad", f"@{home}/bad").replace("@odd", f"@{home}/odd")
    done = shoal("run", "-local", "-format", word, TINY, "ab")
    assert (done.returncode, done.stdout) == (code, "")
    assert re.fullmatch(r"shoal: [^\n]+\n", done.stderr) and sentence in done.stderr, done.stderr


def test_n_limits_the_reply_and_says_so(shoal):
    done = shoal("run", "-local", "-timings", "-n", "3", TINY, "ab")
    assert done.returncode == 0
    assert int(TIMINGS.search(done.stderr).group(3)) == 3
    assert "[ended: max_tokens]\n" in done.stderr


def test_a_model_of_the_own_store_is_found_by_name(shoal, home):
    store = home / ".shoal" / "models"
    store.mkdir(parents=True)
    (store / "small.gguf").symlink_to(TINY)
    for name in ("small", "SMALL", "small.gguf", "sma"):
        assert shoal("run", "-local", "-n", "1", name, "ab").returncode == 0, name


@pytest.mark.parametrize("args, code, sentence", [
    (["-local", TINY, "-n", "5"], 2, f"run: -n stands behind {TINY}; flags come first"),
    (["-local", "nosuch", "ab"], 1, 'no model "nosuch"; `shoal list` shows what is there'),
    (["-local", TINY], 2, "run: no prompt, neither as words nor on stdin"),
    (["-local", "-ngl", "0", "-backend", "cuda", TINY, "ab"], 1,
     "ngl: 0 keeps all layers on the CPU, but backend is cuda"),
    (["-local", "-ngl", "9", "-backend", "cpu", TINY, "ab"], 1,
     "ngl: 9 layers on a GPU, but backend is cpu"),
])
def test_what_cannot_be_is_one_sentence(shoal, home, args, code, sentence):
    (home / ".shoal" / "models").mkdir(parents=True)
    (home / ".shoal" / "models" / "other.gguf").symlink_to(TINY)
    done = shoal("run", *args)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"shoal: {sentence}\n")


def test_the_cpu_computes_when_asked_or_when_there_is_no_gpu(shoal):
    """Without a GPU -backend cuda says why; auto says nothing and takes the CPU."""
    args = ("run", "-local", "-n", "4", TINY, "ab")
    plain = shoal(*args, env={"CUDA_VISIBLE_DEVICES": ""})
    assert (plain.returncode, plain.stderr) == (0, "[ended: max_tokens]\n")
    for flags in (("-backend", "cpu"), ("-ngl", "0"), ("-backend", "auto", "-ngl", "auto")):
        assert shoal("run", *flags, *args[1:], env={"CUDA_VISIBLE_DEVICES": ""}).stderr == \
            plain.stderr
    for flags in (("-backend", "cuda"), ("-ngl", "99")):
        done = shoal("run", *flags, *args[1:], env={"CUDA_VISIBLE_DEVICES": ""})
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(r"shoal: (\S+: )?cuda: [^\n]+\n", done.stderr), done.stderr


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_reply_and_the_child(home, number, code):
    process = subprocess.Popen([SHOAL, "run", "-local", "-temp", "0", REAL,
                                "Tell a very long story."],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={"HOME": str(home)})
    assert process.stdout.read(1)
    child = wait_until(lambda: children_of(process.pid))[0]
    process.send_signal(number)
    told = process.communicate(timeout=20)[1]
    assert process.returncode == code
    assert told == (b"shoal: interrupted\n" if number == signal.SIGINT else b"")
    wait_until(lambda: not is_alive(child))


def test_a_full_disk_ends_the_reply_at_once_and_is_told_once(home):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([SHOAL, "run", "-local", "-n", "100000", REAL, "Tell a story."],
                              stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
                              env={"HOME": str(home)}, timeout=20, check=False)
    assert done.returncode == 1
    assert done.stderr == b"shoal: writing to stdout: No space left on device\n"


def test_memory_is_the_weights_once_and_little_more(home):
    """Repacked, these weights take as many bytes as in the file. 150 MB for all else are less than
    a second copy of the larger model."""
    for name in ("SmolLM2-135M-Instruct.Q4_1.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"):
        model = os.path.join(ROOT, "build", "models", name)
        process = subprocess.Popen([SHOAL, "run", "-local", "-temp", "0", model,
                                    "Tell a very long story."],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env={"HOME": str(home)})
        assert process.stdout.read(64)  # a few steps have run
        child = wait_until(lambda p=process: children_of(p.pid))[0]
        with open(f"/proc/{child}/status", encoding="utf-8") as f:
            fields = dict(line.split(":", 1) for line in f)
        process.kill()
        process.communicate(timeout=20)
        over = int(fields["RssAnon"].split()[0]) / 1024 - os.path.getsize(model) / 2**20
        assert -20 < over < 150, f"{name}: {over:.0f} MB of anonymous memory beside the weights"


def test_the_child_dies_with_its_parent(home):
    process = subprocess.Popen([SHOAL, "run", "-local", "-temp", "0", REAL,
                                "Tell a very long story."],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, env={"HOME": str(home)})
    assert process.stdout.read(1)
    child = wait_until(lambda: children_of(process.pid))[0]
    process.kill()
    process.communicate(timeout=20)
    wait_until(lambda: not is_alive(child))


def test_a_killed_child_is_replaced_and_the_reply_goes_on(home):
    process = subprocess.Popen(
        [SHOAL, "run", "-local", "-timings", "-temp", "0", "-n", "48", REAL,
         "Write about a lighthouse."],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={"HOME": str(home)})
    first = process.stdout.read(1)
    os.kill(wait_until(lambda: children_of(process.pid))[0], signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert len((first + out).decode().split()) > 10
    assert TIMINGS.search(err.decode()), err


class Terminal:
    """A conversation on a terminal of its own."""

    def __init__(self, home, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(SHOAL, [SHOAL, *args], {"HOME": str(home), "TERM": "xterm",
                                               "LC_ALL": "C.UTF-8"})
        self.text = ""

    def read_until(self, pattern, seconds=30):
        """What came up to the end of the pattern; the rest stays."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            left = end - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.text!r}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode("utf-8", "replace")
                except OSError:
                    assert re.search(pattern, self.text), self.text
        to = re.search(pattern, self.text).end()
        got, self.text = self.text[:to], self.text[to:]
        return got

    def say(self, line):
        os.write(self.fd, line.encode() + b"\n")

    def end(self):
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


PROMPT = r">>> (?:\x1b\[[0-9;?]*[a-zA-Z])*$"


def test_a_conversation_on_a_terminal_keeps_its_history(home):
    t = Terminal(home, "run", "-local", "-n", "4", "-timings", TINY)
    t.read_until(PROMPT)
    t.say("/help")
    help_text = t.read_until(PROMPT)
    for command in ("/bye", "/clear", "/help"):
        assert command in help_text
    t.say("a text that is longer than a page of the cache, which holds 32 tokens")
    first = t.read_until(r"tokens/s\]")
    t.read_until(PROMPT)
    t.say("cd")
    second = t.read_until(r"tokens/s\]")
    assert int(re.search(r"\((\d+) cached", second).group(1)) > 0, second
    assert int(re.search(r"(\d+) tokens in", second).group(1)) > \
        int(re.search(r"(\d+) tokens in", first).group(1))
    t.read_until(PROMPT)
    t.say("/bye")
    assert t.end() == 0
    history = home / ".shoal" / "history"
    assert history.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_cancels_the_reply_only(home):
    t = Terminal(home, "run", "-local", "-temp", "0", REAL)
    t.read_until(PROMPT)
    t.say("Story:")  # one word: its echo, which comes twice when we are early, is no reply
    t.read_until(r"\w+ \w+ \w+ ")
    os.write(t.fd, b"\x03")
    t.read_until(PROMPT)
    t.say("/bye")
    assert t.end() == 0


def test_ctrl_c_at_a_prompt_drops_what_was_typed(home):
    t = Terminal(home, "run", "-local", TINY)
    t.read_until(PROMPT)
    for i in range(100):  # the terminal forgets the words while they are being read
        os.write(t.fd, b"some words that take a while " * 8)
        time.sleep(i * 1e-5)
        os.write(t.fd, b"\x03")
        t.read_until(PROMPT, 10)
    t.say("/bye")
    assert t.end() == 0
