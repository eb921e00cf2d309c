#!/usr/bin/env python3
"""Runs test programs side by side and counts their cases.

usage: tests/run.py [-tier T] [-jobs N] [-timeout S] [-slowest N] PROGRAM...

A program is run in the repository's root. It states its cases in one of two ways:
  cmocka's TAP output (asked for through CMOCKA_MESSAGE_OUTPUT), one "ok" or "not ok" per case;
  or a last line "N passed, N failed".
One that is killed, runs out of time, leaves with an exit code that contradicts its cases or
states none at all is a failed case. Output is shown for what failed. The last line of this
program is "N passed, N failed"; its exit code is 1 if anything failed.

PROGRAM may be "name=command line" for anything that is not one file: sh runs it, and one that
states no cases counts as one case by its exit code.
"""
import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed$")
TAP = re.compile(r"^(ok|not ok) \d+(?: - (\S+))?")
SHOWN_LINES = 60
SLOW_S = 5.0  # what takes longer says so when it is through: a long run shows where it is


class Outcome:
    def __init__(self, name, passed, failed, why, text, seconds):
        self.name, self.passed, self.failed = name, passed, failed
        self.why, self.text, self.seconds = why, text, seconds


def count_cases(text):
    """(passed, failed, names of the failed) or None when the program states nothing."""
    lines = text.rstrip().split("\n")
    m = SUMMARY.match(lines[-1]) if lines else None
    if m:
        return int(m.group(1)), int(m.group(2)), []
    passed, bad = 0, []
    for line in lines:
        m = TAP.match(line)
        if m and m.group(1) == "ok":
            passed += 1
        elif m:
            bad.append(m.group(2) or "?")
    return (passed, len(bad), bad) if passed or bad else None


RUNNING = set()  # programs have sessions of their own: who ends this one would leave them behind
STARTING = threading.Lock()  # held from a program's start until it is in RUNNING


def end_all(number, _frame):
    STARTING.acquire(timeout=1)  # for good: no program starts any more; a second signal waits
    for process in list(RUNNING):
        end_group(process)
    print(f"run.py: ended by signal {number}", flush=True)
    os._exit(128 + number)


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def split_job(job):
    """("unit/x", argv, states_cases): a program, or "name=command line" for sh."""
    name, is_command, command = job.partition("=")
    if is_command and "/" not in name:
        return name, ["sh", "-c", command], False
    return job, [os.path.join(ROOT, job)], True


def run_one(job, options):
    name, argv, states_cases = split_job(job)
    is_sanitized = "/asan/" in name or "/tsan/" in name
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP", LC_ALL="C.UTF-8",
               TEST_TIER="sanitized" if is_sanitized else options.tier)
    start = time.monotonic()
    try:
        with STARTING:
            process = subprocess.Popen(argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       start_new_session=True)
            RUNNING.add(process)
    except OSError as e:
        return Outcome(name, 0, 1, f"cannot be run: {e.strerror}", "", 0.0)
    why = ""
    try:
        out = process.communicate(timeout=options.timeout)[0]
    except subprocess.TimeoutExpired:
        end_group(process)
        out = process.communicate()[0]
        why = f"ran out of its {options.timeout:g} s"
    RUNNING.discard(process)
    end_group(process)  # what it started and left behind
    text = out.decode("utf-8", errors="replace")
    passed, failed, bad = count_cases(text) or (0, 0, [])
    if passed + failed == 0 and not states_cases and process.returncode == 0:
        passed = 1
    elif not why:
        why = contradiction(process.returncode, passed, failed)
    if why:
        failed += 1
    elif bad:
        why = "failed: " + ", ".join(bad)
    return Outcome(name, passed, failed, why, text, time.monotonic() - start)


def contradiction(returncode, passed, failed):
    if returncode < 0:
        return f"killed by signal {-returncode}"
    if passed + failed == 0:
        return f"states no cases, exit code {returncode}"
    if (returncode != 0) != (failed != 0):
        return f"exit code {returncode} contradicts {failed} failed cases"
    return ""


def show(outcome):
    print(f"--- {outcome.name}: {outcome.why or 'failed'}")
    lines = outcome.text.rstrip().split("\n")
    if len(lines) > SHOWN_LINES:
        print(f"    ... {len(lines) - SHOWN_LINES} lines before")
    for line in lines[-SHOWN_LINES:]:
        print("    " + line)
    print(f"    again: cd {ROOT} && {outcome.name}", flush=True)


def times_of(path):
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except (OSError, ValueError):
        return {}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-build", default="build")
    parser.add_argument("-tier", default="quick", choices=("quick", "full", "long"))
    parser.add_argument("-jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-timeout", type=float, default=None)
    parser.add_argument("-slowest", type=int, default=0)
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    if options.timeout is None:
        options.timeout = {"quick": 60, "full": 1800, "long": 6 * 3600}[options.tier]

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_all)

    # The longest first: then the last one to end is short.
    times_path = os.path.join(ROOT, options.build, f"test_times_{options.tier}.json")
    times = times_of(times_path)
    programs = sorted(options.programs, key=lambda p: -times.get(p, 1e9))
    passed = failed = 0
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for job in concurrent.futures.as_completed(
                [pool.submit(run_one, p, options) for p in programs]):
            outcome = job.result()
            outcomes.append(outcome)
            passed, failed = passed + outcome.passed, failed + outcome.failed
            if outcome.failed:
                show(outcome)
            elif outcome.seconds >= SLOW_S:
                print(f"{outcome.seconds:8.1f} s  {outcome.name}: {outcome.passed} passed",
                      flush=True)
    times.update({o.name: round(o.seconds, 3) for o in outcomes})
    with open(times_path, "w", encoding="utf-8") as f:
        json.dump(times, f, indent=0, sort_keys=True)
    for outcome in sorted(outcomes, key=lambda o: -o.seconds)[:options.slowest]:
        print(f"{outcome.seconds:8.1f} s  {outcome.name}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
