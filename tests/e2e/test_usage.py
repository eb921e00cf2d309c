"""The rules for all commands, docs/BEHAVIOUR.md 2.1."""
import json
import re
import subprocess

from conftest import SHOAL


def test_no_command_prints_the_usage_and_exits_2(shoal):
    done = shoal()
    assert done.returncode == 2
    assert done.stdout.startswith("usage: shoal ")
    assert done.stderr == ""


def check_error(done, code, text):
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr == f"shoal: {text}\n"


def test_help_is_printed_on_stdout_and_exits_0(shoal):
    for ask in (["help"], ["-h"], ["--help"]):
        done = shoal(*ask)
        assert (done.returncode, done.stderr) == (0, "")
        assert "version" in done.stdout
    for ask in (["help", "version"], ["version", "-h"], ["version", "--help"]):
        done = shoal(*ask)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("usage: shoal version ")


def test_an_unknown_command_exits_2_with_message_and_usage_on_stderr(shoal):
    done = shoal("frobnicate", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith('shoal: unknown command "frobnicate"\nusage: shoal ')
    assert "\x1b" not in shoal("\x1b[31m").stderr


def test_commands_and_flags_that_are_not_built_are_refused_by_name(shoal):
    check_error(shoal("serve"), 2, "serve is not built yet")
    check_error(shoal("help", "serve"), 2, "serve is not built yet")


def test_flag_errors_exit_2_with_one_line(shoal):
    check_error(shoal("version", "-frob"), 2,
                "version: unknown flag -frob; see `shoal help version`")
    check_error(shoal("version", "x"), 2,
                'version: unexpected argument "x"; see `shoal help version`')


def test_version_says_which_build_this_is(shoal):
    done = shoal("version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"shoal \d+\.\d+\.\d+ \(git ([0-9a-f+]+|unknown), ([-0-9]+|unknown)\)\n",
                    done.stdout)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", shoal("version", "--short").stdout)
    facts = json.loads(shoal("version", "-json=true").stdout)
    assert facts["isa"] in facts["isa_built"] and "libevent" in facts["libraries"]


def test_configuration_problems_are_listed_with_their_places(shoal, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("store: [x]\nengine:\n  ctx: -1\nlegs: {}\n")
    done = shoal("version", "-config", str(path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (f"{path}:1:1: store: path expected, got a list\n"
                           f'{path}:3:3: engine.ctx: integer 0..16777216 expected, got "-1"\n'
                           f"{path}:4:1: legs: not built yet\n")
    check_error(shoal("version", env={"SHOAL_CONFIG": "/nowhere.yaml"}), 1,
                "/nowhere.yaml: No such file or directory")


def test_a_full_disk_on_stdout_is_an_error(shoal):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([SHOAL, "version"], stdout=full, stderr=subprocess.PIPE, env={})
    assert done.returncode == 1
    assert done.stderr == b"shoal: writing to stdout: No space left on device\n"
