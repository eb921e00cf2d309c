"""The binary from outside: paths, running it, and a last line that counts.

A skipped test counts as failed: a test holds or it does not.
"""
import os
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHOAL = os.path.join(ROOT, "build", "shoal")
COUNTS = {"passed": 0, "failed": 0}


@pytest.fixture
def home(tmp_path):
    """An empty home, so that no test sees or touches the user's own."""
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def shoal(home):
    """shoal("list", stdin=b"...") -> CompletedProcess with text; a run over 60 s fails."""
    def run(*args, stdin=b"", timeout=60, env=None, cwd=None):
        clean = {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        clean.update(env or {})
        done = subprocess.run([SHOAL, *args], input=stdin, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=timeout, env=clean, cwd=cwd or home)
        done.stdout = done.stdout.decode("utf-8")
        done.stderr = done.stderr.decode("utf-8")
        return done
    return run


@pytest.fixture(scope="session")
def coder(tmp_path_factory):
    """One server of Qwen2.5-Coder for all files that need no settings of their own: a load of it
    takes as long as a test."""
    from server import CODER, serving  # which imports this file
    with serving(tmp_path_factory.mktemp("coder"), "-model", CODER) as running:
        yield running


def pytest_runtest_logreport(report):
    if report.failed or report.skipped:
        COUNTS["failed"] += 1
    elif report.when == "call":
        COUNTS["passed"] += 1


def pytest_sessionfinish(session, exitstatus):
    if COUNTS["failed"]:
        session.exitstatus = 1


def pytest_unconfigure(config):
    print(f"\n{COUNTS['passed']} passed, {COUNTS['failed']} failed")
