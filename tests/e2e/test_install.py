"""`install`, `uninstall`, `launch`, completions and the manual page: docs/BEHAVIOUR.md 2.2."""
import os
import pty
import re
import select
import shutil
import signal
import stat
import subprocess
import time

import pytest

from conftest import SHOAL
from server import TINY, serving

SYSTEMCTL = """#!/usr/bin/env python3
# Stands for systemctl: notes what is asked, starts the unit's command as systemd would.
import os, re, subprocess, sys
log, words = os.environ["STUB_LOG"], sys.argv[1:]
print("systemctl", *words, file=open(log, "a"))
words = [w for w in words if w != "--user"]
if words[0] == "restart":
    unit = f"{os.environ['XDG_CONFIG_HOME']}/systemd/user/{words[1]}.service"
    line = re.search(r"^ExecStart=(.*)$", open(unit).read(), re.M).group(1)
    argv = [re.sub(r"\\\\(.)", r"\\1", w).replace("$$", "$").replace("%%", "%")
            for w in re.findall(r'"((?:[^"\\\\]|\\\\.)*)"', line)]
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(child.pid, file=open(log + ".pid", "w"))
elif words[0] == "stop" and os.path.exists(log + ".pid"):
    os.kill(int(open(log + ".pid").read()), 15)
    os.remove(log + ".pid")
sys.exit(int(os.environ.get("STUB_EXIT", "0")))
"""


def program(folder, name, text):
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def bin_folder(tmp_path):
    path = tmp_path / "bin"
    path.mkdir()
    return path


@pytest.fixture
def systemd(bin_folder, tmp_path):
    """A stub of systemctl and loginctl; its environment."""
    program(bin_folder, "systemctl", SYSTEMCTL)
    program(bin_folder, "loginctl", '#!/bin/sh\necho "loginctl $*" >>"$STUB_LOG"\n')
    log = tmp_path / "calls"
    log.write_text("")
    yield {"PATH": f"{bin_folder}:{os.environ['PATH']}", "STUB_LOG": str(log), "USER": "me",
           "XDG_CONFIG_HOME": str(tmp_path / "config")}
    pid = tmp_path / "calls.pid"
    if pid.exists():
        os.kill(int(pid.read_text()), signal.SIGTERM)


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_install_writes_a_unit_starts_it_and_uninstall_removes_it(shoal, systemd, tmp_path):
    port = free_port()
    done = shoal("install", "-addr", f"127.0.0.1:{port}", "-keepalive", "10m", env=systemd)
    assert done.returncode == 0, done.stderr
    unit = tmp_path / "config" / "systemd" / "user" / "shoal.service"
    text = unit.read_text()
    for line in ("Restart=always", "RestartSec=1", "NoNewPrivileges=yes",
                 "WantedBy=default.target"):
        assert line in text.splitlines()
    assert re.search(rf'^ExecStart="/.*/shoal" "serve" "-addr=127.0.0.1:{port}" '
                     r'"-keepalive=10m"$', text, re.M), text
    assert done.stdout.splitlines()[0] == f"unit     {unit}"
    assert "journalctl --user -u shoal -f" in done.stdout
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["systemctl --user daemon-reload", "systemctl --user enable shoal",
                     "systemctl --user restart shoal", "loginctl enable-linger me"]
    done = shoal("uninstall", env=systemd)
    assert (done.returncode, done.stdout) == (0, f"removed {unit}\n"), done.stderr
    assert not unit.exists()
    done = shoal("uninstall", env=systemd)
    assert done.returncode == 1 and str(unit) in done.stderr


def test_an_old_service_is_stopped_and_replaced(shoal, systemd, tmp_path):
    for keepalive in ("1m", "2m"):
        port = free_port()
        done = shoal("install", "-name", "fleet", f"-addr=127.0.0.1:{port}", "-keepalive",
                     keepalive, env=systemd)
        assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text()
    assert calls.index("stop fleet") > calls.index("restart fleet")
    unit = tmp_path / "config" / "systemd" / "user" / "fleet.service"
    assert "-keepalive=2m" in unit.read_text()


def test_the_unit_is_what_systemd_accepts(shoal, systemd, tmp_path, home):
    """Percent signs, quotes and blanks of a path reach the command as they are."""
    if not shutil.which("systemd-analyze"):
        pytest.fail("systemd-analyze is missing")
    config = home / "a $b %c \"d\" e.yaml"
    config.write_text("limits: {queue: 7}\n")
    done = shoal("install", "-config", str(config), f"-addr=127.0.0.1:{free_port()}", env=systemd)
    assert done.returncode == 0, done.stderr  # the server has read that file
    unit = tmp_path / "config" / "systemd" / "user" / "shoal.service"
    line = unit.read_text().split("ExecStart=")[1].splitlines()[0]
    assert '$$b %%c \\"d\\" e.yaml' in line
    done = subprocess.run(["systemd-analyze", "verify", "--user", str(unit)], capture_output=True,
                          timeout=60, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
                          check=False)
    text = done.stderr.decode()
    assert "shoal.service:" not in text, text


def test_flags_are_checked_by_serve_s_parser_before_anything_is_written(shoal, systemd, tmp_path):
    for args, text in ((["-queue", "99999999"], "-queue"), (["-frob"], "unknown flag -frob"),
                       (["-name", "../x"], "-name"), (["-addr"], "no value for -addr")):
        done = shoal("install", *args, env=systemd)
        assert done.returncode == 2 and text in done.stderr, done.stderr
    assert not (tmp_path / "config").exists() and (tmp_path / "calls").read_text() == ""


def test_without_systemd_the_line_to_run_is_given(shoal, systemd, tmp_path):
    done = shoal("install", "-queue", "7", env={**systemd, "STUB_EXIT": "1"})
    assert done.returncode == 1
    assert re.search(r"no systemd of the user answers here; run this instead: /\S*shoal serve "
                     r"-queue=7\n", done.stderr), done.stderr
    assert not (tmp_path / "config" / "systemd" / "user" / "shoal.service").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    done = shoal("install", env={**systemd, "PATH": str(empty)})
    assert done.returncode == 1 and "no systemd" in done.stderr


# ---------------------------------------------------------------- launch

AGENT = """#!/bin/sh
for a in "$@"; do echo "arg $a"; done
env | grep -E '^(ANTHROPIC|CLAUDE|OPENAI|SHOAL|OLLAMA)' | sort
"""


@pytest.fixture
def agents(bin_folder):
    for name in ("claude", "codex", "pi", "hermes"):
        program(bin_folder, name, AGENT)
    return {"PATH": f"{bin_folder}:/usr/bin:/bin", "ANTHROPIC_API_KEY": "sk-real"}


@pytest.fixture
def server(home):
    with serving(home, "-ctx", "1024") as s:
        s.address = f"127.0.0.1:{s.port}"
        yield s


@pytest.fixture
def model(home):
    folder = home / ".shoal" / "models"
    folder.mkdir(parents=True)
    os.symlink(TINY, folder / "tiny.gguf")
    return "tiny"


def test_claude_gets_address_model_and_true_context(shoal, model, server, agents):
    done = shoal("launch", "claude", "-model", model, "-addr", server.address, "--", "-p", "hi",
                 env=agents)
    assert done.returncode == 0, done.stderr
    assert f"Claude Code on tiny at http://{server.address}, 1024 tokens" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["arg -p", "arg hi"]
    got = dict(line.split("=", 1) for line in lines[2:])
    assert got["ANTHROPIC_BASE_URL"] == f"http://{server.address}"
    for name in ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL",
                 "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"):
        assert got[name] == "tiny"
    assert got["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "1024"
    assert got["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "1024"
    assert got["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "256"
    assert "ANTHROPIC_API_KEY" not in got and got["ANTHROPIC_AUTH_TOKEN"] == "shoal"
    loaded = server.get("/v1/status").json()["models"]
    assert [m["name"] for m in loaded] == ["tiny"]  # before the agent's first request


def test_the_context_told_is_that_of_the_model_whatever_else_is_loaded(shoal, model, home, agents):
    os.symlink(TINY, home / ".shoal" / "models" / "aaa.gguf")
    config = home / "c.yaml"
    config.write_text("models: {tiny: {ctx: 640, aliases: [small, a/b]}}\n"
                      "engine: {resident: 2}\n")
    with serving(home, "-ctx", "1024", "-slots", "2", "-config", str(config)) as server:
        for name in ("aaa", "tiny"):
            assert server.post("/api/generate", {"model": name}).status == 200
        loaded = server.get("/v1/status").json()["models"]
        assert {m["name"]: m["context"] for m in loaded} == {"aaa": 1024, "tiny": 640}
        for name in ("tiny", "tiny:latest", "TINY", "small", "a/b"):
            done = shoal("launch", "env", "-model", name, "-addr", f"127.0.0.1:{server.port}",
                         env=agents)
            assert done.returncode == 0, done.stderr
            assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS='640'" in done.stdout, (name, done.stdout)


def test_codex_gets_a_provider_by_arguments(shoal, model, server, agents):
    done = shoal("launch", "-model", model, "-addr", server.address, "codex", "--", "exec", "hi",
                 env=agents)
    assert done.returncode == 0, done.stderr
    args = [line[4:] for line in done.stdout.splitlines() if line.startswith("arg ")]
    assert args[:2] == ["-m", "tiny"] and args[-2:] == ["exec", "hi"]
    for wanted in ('model_provider="shoal"', 'model_providers.shoal.wire_api="responses"',
                   f'model_providers.shoal.base_url="http://{server.address}/v1"',
                   'model_providers.shoal.env_key="SHOAL_KEY"', "model_context_window=1024",
                   "model_auto_compact_token_limit=921"):
        assert args[args.index(wanted) - 1] == "-c"


def test_env_prints_exports_that_a_shell_takes(shoal, model, server, agents):
    done = shoal("launch", "env", "-model", model, "-addr", server.address, env=agents)
    assert done.returncode == 0, done.stderr
    got = subprocess.run(["sh", "-c", done.stdout + "env"], capture_output=True, env={}, text=True,
                         check=True).stdout
    assert f"OPENAI_BASE_URL=http://{server.address}/v1\n" in got
    assert f"OLLAMA_HOST=http://{server.address}\n" in got and "ANTHROPIC_MODEL=tiny\n" in got


def test_pi_and_hermes_get_the_openai_variables(shoal, model, server, agents):
    for name in ("pi", "hermes"):
        done = shoal("launch", name, "-model", model, "-addr", server.address, env=agents)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[:2] == ["arg --model", "arg tiny"]
        assert f"OPENAI_BASE_URL=http://{server.address}/v1" in done.stdout


class Terminal:
    """A command whose terminal is ours: what it shows, what is typed."""

    def __init__(self, args, env):
        self.main, side = pty.openpty()
        self.run = subprocess.Popen([SHOAL, *args], env=env, stdin=side, stdout=side, stderr=side)
        os.close(side)
        self.seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.run.kill()
        self.run.wait()
        os.close(self.main)

    def wait_for(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end and self.read(), self.seen

    def read(self):
        if not select.select([self.main], [], [], 1)[0]:
            return True
        try:
            more = os.read(self.main, 65536).decode().replace("\r", "")
        except OSError:  # what a terminal says at its end
            more = ""
        self.seen += more
        return bool(more)

    def type(self, text):
        os.write(self.main, text.encode())


def test_on_a_terminal_menus_offer_what_is_there(model, agents, home):
    for name in ("nomic-embed-text", "aaa"):
        os.symlink(TINY, home / ".shoal" / "models" / f"{name}.gguf")
    os.remove(os.path.join(agents["PATH"].split(":")[0], "codex"))
    env = {"HOME": str(home), "LC_ALL": "C.UTF-8", "TERM": "xterm", **agents}
    with serving(home, "-ctx", "1024") as server:
        assert server.post("/api/generate", {"model": "tiny"}).status == 200
        with Terminal(["launch", "-addr", f"127.0.0.1:{server.port}"], env) as on:
            on.wait_for("number (1-3): ")
            assert on.seen.split("number")[0].split("\n")[:-1] == [
                "  1  Claude Code", "  2  Pi (best effort)", "  3  Hermes (best effort)"]
            on.type("9\n")  # asked again
            on.wait_for("number (1-3): 9\nnumber (1-3): ")
            on.type("1\n")
            on.wait_for("number (1-2): ")
            assert on.seen.split("number (1-3): 1\n")[1].split("number")[0] == \
                "  1  tiny\n  2  aaa\n"
            on.type("1\n")
            on.wait_for("ANTHROPIC_MODEL=tiny\n")
            assert on.run.wait(60) == 0


def test_what_is_missing_is_named(shoal, model, server, agents, tmp_path):
    for args, code, text in (
            ([], 2, "AGENT missing"), (["claude"], 2, "-model missing"),
            (["cursor", "-model", "tiny"], 2, 'unknown agent "cursor"'),
            (["claude", "-model", "nothing", "-addr", server.address], 1, "nothing")):
        done = shoal("launch", *args, env=agents)
        assert done.returncode == code and text in done.stderr, done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    done = shoal("launch", "codex", "-model", "tiny", env={"PATH": str(empty)})
    assert done.returncode == 1 and "codex is not in PATH: npm install" in done.stderr


# ---------------------------------------------------------------- made from the table


def commands(shoal):
    return re.findall(r"^  (\S+) +\S", shoal("help").stdout, re.M)


def sh(*argv, cwd):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=cwd,
                          env={"HOME": str(cwd), "PATH": os.environ["PATH"], "TERM": "dumb"})
    assert (done.returncode, done.stderr) == (0, ""), (argv, done.stderr)
    return done.stdout


def test_the_shells_themselves_take_the_completions(shoal, tmp_path):
    for shell, name in (("bash", "shoal"), ("zsh", "_shoal"), ("fish", "shoal.fish")):
        (tmp_path / name).write_text(shoal("completion", shell).stdout)
        assert sh(shell, "-n", name, cwd=tmp_path) == ""
    text = sh("bash", "-c", "source ./shoal; complete -p shoal", cwd=tmp_path)
    assert text.split()[-2:] == ["_shoal", "shoal"]
    text = sh("zsh", "-f", "-c", "fpath=($PWD $fpath); autoload -U compinit; compinit -u -d dump; "
              "print $_comps[shoal]; autoload +X _shoal; whence -w _shoal", cwd=tmp_path)
    assert text == "_shoal\n_shoal: function\n"
    ask = "source shoal.fish; complete -C 'shoal pul'; complete -C 'shoal pull -mm'"
    text = sh("fish", "-N", "-c", ask, cwd=tmp_path)
    assert [line.split("\t")[0] for line in text.splitlines()] == ["pull", "-mmproj"]


def test_the_manual_page_is_set_without_a_warning(shoal, tmp_path):
    (tmp_path / "shoal.1").write_text(shoal("man").stdout)
    text = sh("groff", "-man", "-Tutf8", "-ww", "-P-cbou", "shoal.1", cwd=tmp_path)
    assert "NAME\n       shoal - serves" in text and "-connections" in text


def test_completions_know_every_command_and_flag(shoal, tmp_path):
    for shell in ("bash", "zsh", "fish"):
        text = shoal("completion", shell).stdout
        for command in commands(shoal):
            assert re.search(rf"\b{command}\b", text), (shell, command)
        assert "connections" in text and "keepalive" in text
    script = tmp_path / "c"
    script.write_text(shoal("completion", "bash").stdout)
    ask = f"source {script}; COMP_WORDS=(shoal pull -mm); COMP_CWORD=2; _shoal; " \
          "echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout == "-mmproj\n"
    assert shoal("completion", "tcsh").returncode == 2


def test_the_manual_page_names_every_command_and_is_good_roff(shoal):
    text = shoal("man").stdout
    assert text.startswith(".TH SHOAL 1 ")
    plain = text.replace("\\-", "-")
    for command in commands(shoal):
        assert f"\n.SS {command}" in plain
    macros = (".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi", ".B", ".I")
    for line in text.splitlines():
        assert not line.startswith("'"), line
        assert not line.startswith(".") or line.split()[0] in macros, line
