"""The rules for all commands, docs/BEHAVIOUR.md 2.1. The list of commands is what the help says."""
import json
import os
import re
import signal
import subprocess

import pytest

from conftest import ROOT, SHOAL


def listed_commands():
    out = subprocess.run([SHOAL, "help"], stdout=subprocess.PIPE, check=True).stdout.decode()
    return re.findall(r"^  ([a-z][a-z-]*) ", out, re.M)


COMMANDS = listed_commands()
ALL = "run list pull rm ps stop serve fit plan can-run launch install uninstall worker bench " \
      "inspect drill legs doctor cache".split()


def test_no_command_prints_the_usage_and_exits_2(shoal):
    done = shoal()
    assert done.returncode == 2
    assert done.stdout.startswith("usage: shoal ")
    assert done.stderr == ""


@pytest.mark.parametrize("args", [["-h"], ["--help"], ["help"]])
def test_help_goes_to_stdout_and_exits_0(shoal, args):
    done = shoal(*args)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: shoal ")
    assert done.stderr == ""
    assert "version" in COMMANDS and "engine" not in COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_in_three_ways(shoal, command):
    texts = [shoal(command, "-h"), shoal(command, "--help"), shoal("help", command)]
    for done in texts:
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"usage: shoal {command}")
        assert done.stderr == ""
    assert len({done.stdout for done in texts}) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_a_flag_it_does_not_know(shoal, command):
    for args in (["-frob"], ["--frob=3"]):
        done = shoal(command, *args)
        assert done.returncode == 2, done.stderr
        assert done.stdout == ""
        assert re.match(r"shoal: .*frob.*\n", done.stderr), done.stderr


@pytest.mark.parametrize("command", [c for c in ALL if c not in COMMANDS])
def test_a_command_that_is_not_built_is_refused_by_name(shoal, command):
    done = shoal(command)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"shoal: {command} is not built yet\n"


def documented_serve_flags():
    """Those of the table in BEHAVIOUR 2.2, two to a row."""
    with open(os.path.join(ROOT, "docs", "BEHAVIOUR.md"), encoding="utf-8") as f:
        table = re.search(r"^\|flag\|default\|key\|flag.*?\n\n", f.read(), re.S | re.M).group(0)
    return re.findall(r"`-([a-z-]+)`", table)


def test_every_documented_flag_of_serve_is_in_its_help_or_refused_by_name(shoal):
    flags = documented_serve_flags()
    text = shoal("serve", "-h").stdout
    assert len(flags) > 25, flags
    for flag in flags:
        if f"\n  -{flag} " not in text:
            expect_error(shoal("serve", f"-{flag}", "1"), 2, f"serve: -{flag} is not built yet")
    assert "\n  -flex " in text and shoal("serve", "-flex", "-dry-run").returncode == 0


def test_flags_take_one_or_two_dashes_and_the_last_wins(shoal):
    short = shoal("version", "-short")
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", short.stdout)
    for args in (["--short"], ["-short=true"], ["-short=false", "-short"]):
        assert shoal("version", *args).stdout == short.stdout
    assert shoal("version", "-short", "-short=false").stdout == shoal("version").stdout
    assert shoal("version", "-short=maybe").returncode == 2


def test_version_says_which_build_and_what_it_uses(shoal):
    done = shoal("version")
    assert done.returncode == 0
    first = done.stdout.split("\n")[0]
    assert re.fullmatch(r"shoal \d+\.\d+\.\d+ \(git [0-9a-f]+\+?, \d{4}-\d\d-\d\d\)", first), first
    facts = json.loads(shoal("version", "-json").stdout)
    assert f"shoal {facts['version']} (git {facts['git']}, {facts['date']})" == first
    assert facts["isa"] in facts["isa_built"]


def test_closed_standard_streams_do_no_harm(home):
    for redirect in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        done = subprocess.run(["sh", "-c", f"'{SHOAL}' version {redirect}"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={"HOME": str(home), "PATH": os.environ["PATH"]})
        assert done.returncode in (0, 1), (redirect, done)


def test_the_environment_is_checked_like_the_file(shoal):
    done = shoal("version", env={"SHOAL_ENGINE_THREADS": "many"})
    assert done.returncode == 1
    assert "SHOAL_ENGINE_THREADS" in done.stderr and "many" in done.stderr, done.stderr
    assert shoal("version", env={"SHOAL_ENGINE_THREADS": "2"}).returncode == 0


def expect_error(done, code, text):
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"shoal: {text}\n")


def test_an_unknown_command_exits_2_with_message_and_usage_on_stderr(shoal):
    done = shoal("frobnicate", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith('shoal: unknown command "frobnicate"\nusage: shoal ')
    assert "\x1b" not in shoal("\x1b[31m").stderr


def test_help_takes_one_command(shoal):
    done = shoal("help", "run", "extra")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'shoal: help: one command expected, got also "extra"\n'


def test_usage_errors_point_to_the_help(shoal):
    expect_error(shoal("version", "-frob"), 2,
                 "version: unknown flag -frob; see `shoal help version`")
    expect_error(shoal("version", "x"), 2,
                 'version: unexpected argument "x"; see `shoal help version`')


@pytest.mark.parametrize("place", ["flag", "environment", "home"])
def test_configuration_problems_are_listed_with_their_places(shoal, home, place):
    path = home / ".shoal" / "config.yaml" if place == "home" else home / "c.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("store: [x]\nengine:\n  ctx: -1\nengine.draft: x\n")
    args = ["-config", str(path)] if place == "flag" else []
    env = {"SHOAL_CONFIG": str(path)} if place == "environment" else {}
    done = shoal("version", *args, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (f"{path}:1:1: store: path expected, got a list\n"
                           f'{path}:3:3: engine.ctx: integer 0..16777216 expected, got "-1"\n'
                           f"{path}:4:1: engine.draft: not built yet\n")


def test_a_configuration_that_is_asked_for_must_be_there(shoal):
    expect_error(shoal("version", env={"SHOAL_CONFIG": "/nowhere.yaml"}), 1,
                 "/nowhere.yaml: No such file or directory")


def test_a_full_disk_on_stdout_is_an_error(home):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([SHOAL, "version"], stdout=full, stderr=subprocess.PIPE,
                              env={"HOME": str(home)})
    assert done.returncode == 1
    assert done.stderr == b"shoal: writing to stdout: No space left on device\n"


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_with_its_exit_code(number, code):
    model = os.path.join(ROOT, "build", "tiny", "llama.gguf")
    terminal, its_terminal = os.openpty()
    process = subprocess.Popen([SHOAL, "bench", model, "-n", "2000", "-p", "0", "-reps", "100"],
                               stdout=subprocess.PIPE, stderr=its_terminal,
                               env={"TERM": "xterm"})
    os.close(its_terminal)
    assert b"[" in os.read(terminal, 100)  # its progress bar: it is at work
    process.send_signal(number)
    out, _ = process.communicate(timeout=20)
    os.close(terminal)
    assert (process.returncode, out) == (code, b"")
