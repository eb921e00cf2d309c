#!/usr/bin/env python3
"""`make run`: MODEL and PROMPT of the environment reach the command as they were given."""
import os
import subprocess
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
SHOWS = "include Makefile\nshow:\n\t@echo \"$$MODEL, $$PROMPT\"\n"


class MakeRun(unittest.TestCase):
    def test_the_environment_says_model_and_prompt(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        done = subprocess.run(["make", "-s", "-f", "-", "show"], cwd=ROOT, input=SHOWS, text=True,
                              capture_output=True, check=False,
                              env={**env, "MODEL": "path/a model.gguf", "PROMPT": "two words"})
        self.assertEqual(done.stdout.splitlines()[-1:], ["path/a model.gguf, two words"],
                         done.stderr)


if __name__ == "__main__":
    result = unittest.main(verbosity=0, exit=False).result
    bad = len(result.failures) + len(result.errors)
    print(f"{max(result.testsRun - bad, 0)} passed, {bad} failed")
    sys.exit(1 if bad else 0)
