#!/usr/bin/env python3
"""shoal beside llama.cpp, both on this machine now: peer.py [-rounds 5] [-floor 1.0] MODEL...

Each round measures one after the other, shoal first in odd rounds: same file, same threads, one
process per measurement, prompt of 512 and generation of 128 tokens, no sampling; with -batch 1,8,32
that many sequences generate at once. The ratio is that of the medians. Prints a table for
docs/NUMBERS.md; with -floor it fails below that.
PYTHON holds llama-cpp-python built from source for this machine (make bench-peer).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def measure(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"peer: {' '.join(command)}\n{done.stderr.decode()}")
    return json.loads(done.stdout)


def measure_shoal(model, options):
    facts = measure([os.path.join(ROOT, "build/shoal"), "bench", "-json", "-p", str(options.p),
                     "-n", str(options.n), "-batch", options.batch, "-reps", "1", model])
    return {name(row["test"], row["batch"]): row["tokens_per_s"] for row in facts["tests"]}, facts


def name(test, batch):
    """pp, tg for one sequence, tg x8."""
    return test if test == "pp" or batch == 1 else f"{test} x{batch}"


def measure_peer(model, options):
    facts = measure([options.python, os.path.join(HERE, "peer_llama.py"), "-p", str(options.p),
                     "-n", str(options.n), "-batch", options.batch, "-reps", "1", "-threads",
                     str(options.threads), model])
    rates = {name("tg", int(batch)): rate[0] for batch, rate in facts["tg"].items()}
    return {"pp": facts["pp"][0], **rates}, facts


def compare(model, options):
    """Rates of all rounds by side and test, and what both say about themselves."""
    rates = {"shoal": {}, "peer": {}}
    facts, bandwidth = {}, []
    for number in range(options.rounds):
        sides = [("shoal", measure_shoal), ("peer", measure_peer)]
        for side, run in sides if number % 2 == 0 else reversed(sides):
            one, facts[side] = run(model, options)
            for test, rate in one.items():
                rates[side].setdefault(test, []).append(rate)
        bandwidth += [facts["shoal"]["gb_per_s_before"], facts["shoal"]["gb_per_s_after"]]
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rates, facts, bandwidth


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def report(model, options):
    """Prints the table of one model; True if it is not below the floor."""
    rates, facts, bandwidth = compare(model, options)
    shoal = facts["shoal"]
    print(f"{os.path.basename(model)}: {shoal['machine']}, {shoal['isa']}, "
          f"{options.threads} threads, read {min(bandwidth):.1f}-{max(bandwidth):.1f} GB/s at "
          f"{shoal['weight_bytes']} bytes\n"
          f"  shoal {shoal['build']}; {facts['peer']['name']}")
    is_good = True
    for test, ours in rates["shoal"].items():
        theirs, tokens = rates["peer"][test], options.p if test == "pp" else options.n
        ratio = statistics.median(ours) / statistics.median(theirs)
        is_good = is_good and ratio >= options.floor
        print(f"  {test:<6} {tokens:<5} shoal {spread(ours):>28} t/s   peer {spread(theirs):>28} "
              f"t/s   {ratio:.2f}x{'' if ratio >= options.floor else '   BELOW'}")
    return is_good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("-p", type=int, default=512)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("-batch", default="1")
    parser.add_argument("-rounds", type=int, default=5)
    parser.add_argument("-threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-floor", type=float, default=0.0)
    parser.add_argument("-python", default=os.path.join(ROOT, "build/venv-peer/bin/python"))
    options = parser.parse_args()
    os.environ["SHOAL_ENGINE_THREADS"] = str(options.threads)
    results = [report(model, options) for model in options.models]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
