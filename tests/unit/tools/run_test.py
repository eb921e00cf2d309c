#!/usr/bin/env python3
"""tests/run.py believes no program that says less than it did: exit codes, signals, silence."""
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

# What a program does, and the last line of the runner. A program file must state its cases.
PROGRAMS = [
    ("echo '3 passed, 0 failed'", "3 passed, 0 failed"),
    ("echo '3 passed, 2 failed'; exit 1", "3 passed, 2 failed"),
    ("echo '1..2'; echo 'ok 1 - a'; echo 'ok 2 - b'", "2 passed, 0 failed"),
    ("echo 'ok 1 - a'; echo 'not ok 2 - b'; exit 1", "1 passed, 1 failed"),
    ("echo '3 passed, 2 failed'", "3 passed, 3 failed"),
    ("echo '3 passed, 0 failed'; exit 1", "3 passed, 1 failed"),
    ("true", "0 passed, 1 failed"),
    ("echo 'ok 1 - a'; kill -SEGV $$", "1 passed, 1 failed"),
    ("echo 'ok 1 - a'; sleep 60", "1 passed, 1 failed"),
]
COMMANDS = [
    ("true", "1 passed, 0 failed"),
    ("false", "0 passed, 1 failed"),
    ("echo 'CC x.c'; echo '7 passed, 0 failed'", "7 passed, 0 failed"),
]


def run(*args):
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tests/run.py"), *args],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    lines = done.stdout.decode().strip().split("\n")
    return lines, done.returncode


class Runner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def program(self, script):
        path = os.path.join(self.folder, f"p{len(os.listdir(self.folder))}")
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + script + "\n")
        os.chmod(path, 0o755)
        return path

    def held(self):
        """A FIFO: it ends when nobody holds it any more, and with it the wait of who reads it."""
        path = os.path.join(self.folder, "held")
        os.mkfifo(path)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, fd)
        os.set_blocking(fd, True)
        return path, fd

    def expect(self, lines, code, wanted):
        self.assertEqual(lines[-1], wanted, "\n".join(lines))
        self.assertEqual(code != 0, not wanted.endswith(" 0 failed"))

    def test_cases_signals_exit_codes_and_time_are_judged_together(self):
        for script, wanted in PROGRAMS:
            with self.subTest(script=script):
                lines, code = run("-build", self.folder, "-timeout", "2", self.program(script))
                self.expect(lines, code, wanted)

    def test_commands_count_as_one_case_or_as_what_they_state(self):
        for script, wanted in COMMANDS:
            with self.subTest(script=script):
                lines, code = run("-build", self.folder, f"name={script}")
                self.expect(lines, code, wanted)

    def test_all_programs_are_summed_and_the_failed_one_is_shown(self):
        good = self.program("echo quiet; echo '2 passed, 0 failed'")
        bad = self.program("echo loud; echo '1 passed, 1 failed'; exit 1")
        lines, code = run("-build", self.folder, good, bad)
        self.expect(lines, code, "3 passed, 1 failed")
        self.assertTrue(any("loud" in line for line in lines))
        self.assertFalse(any("quiet" in line for line in lines))
        self.assertTrue(any(re.search("again: .*" + re.escape(bad), line) for line in lines))

    def test_a_missing_program_fails_by_name(self):
        lines, code = run("-build", self.folder, os.path.join(self.folder, "none"))
        self.expect(lines, code, "0 passed, 1 failed")
        self.assertIn("none: cannot be run: No such file or directory", lines[0])

    def test_what_a_program_left_running_is_ended(self):
        mark, (held, fd) = os.path.join(self.folder, "mark"), self.held()
        lines, code = run("-build", self.folder, self.program(
            f"exec 9>{held}\n(sleep 20; touch {mark}) >/dev/null 2>&1 &\n"
            "echo '1 passed, 0 failed'"))
        self.expect(lines, code, "1 passed, 0 failed")
        self.assertEqual(os.read(fd, 1), b"")
        self.assertFalse(os.path.exists(mark))

    def test_what_runs_is_ended_with_the_runner(self):
        mark, (held, fd) = os.path.join(self.folder, "mark"), self.held()
        program = self.program(f"exec 9>{held}; echo >&9; sleep 20; touch {mark}; "
                               "echo '1 passed, 0 failed'")
        runner = subprocess.Popen(
            [sys.executable, os.path.join(ROOT, "tests/run.py"), "-build", self.folder, program],
            stdout=subprocess.DEVNULL)
        while runner.poll() is None and not os.read(fd, 1):  # nobody holds it yet
            time.sleep(0.01)
        runner.terminate()
        self.assertEqual(runner.wait(), 128 + 15)
        self.assertEqual(os.read(fd, 1), b"")
        self.assertFalse(os.path.exists(mark))

    def test_the_tier_reaches_programs_and_sanitizer_builds_have_their_own(self):
        say = "[ \"$TEST_TIER\" = {0} ] && echo '1 passed, 0 failed'"
        lines, code = run("-build", self.folder, "-tier", "full", self.program(say.format("full")))
        self.expect(lines, code, "1 passed, 0 failed")
        os.mkdir(os.path.join(self.folder, "asan"))
        path = os.path.join(self.folder, "asan", "p")
        os.rename(self.program(say.format("sanitized")), path)
        lines, code = run("-build", self.folder, "-tier", "full", path)
        self.expect(lines, code, "1 passed, 0 failed")


if __name__ == "__main__":
    result = unittest.main(verbosity=0, exit=False).result
    bad = len(result.failures) + len(result.errors)
    print(f"{max(result.testsRun - bad, 0)} passed, {bad} failed")
    sys.exit(1 if bad else 0)
