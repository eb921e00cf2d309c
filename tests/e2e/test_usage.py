"""The rules for all commands, docs/BEHAVIOUR.md 2.1."""


def test_no_command_prints_the_usage_and_exits_2(shoal):
    done = shoal()
    assert done.returncode == 2
    assert done.stdout.startswith("usage: shoal ")
    assert done.stderr == ""
