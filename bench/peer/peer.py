#!/usr/bin/env python3
"""shoal beside llama.cpp, both on this machine now: peer.py [-rounds 5] [-floor 1.0] MODEL...

Each round measures one after the other, shoal first in odd rounds: same file, same threads, one
process per measurement, prompt of 512 and generation of 128 tokens, no sampling; with -batch 1,8,32
that many sequences generate at once, with -depth 0,4096 behind so many tokens in the cache. A
measurement is the best of -reps, the ratio that of the medians over the rounds. The share is that
of the least time a token can take: the bytes it needs at the read bandwidth, or its products at the
peak of the instructions, both measured beside it. Prints a table for docs/NUMBERS.md; with -floor
it fails below that.
PYTHON holds llama-cpp-python built from source for this machine (make bench-peer); -libs: other
builds of its libraries.
"""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SHOAL = os.path.join(ROOT, "build/shoal")
KERN = os.path.join(ROOT, "build/tests/kern/kern_test")


def run(command, **environment):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                          env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"peer: {' '.join(command)}\n{done.stderr.decode()}")
    return done.stdout.decode()


def tests_of(options):
    return ["-p", str(options.p), "-n", str(options.n), "-batch", options.batch,
            "-depth", options.depth]


def measure_shoal(model, options):
    facts = json.loads(run([SHOAL, "bench", "-json", *tests_of(options), "-backend", "cpu",
                            "-isa", options.isa, "-reps", str(options.reps), model],
                           SHOAL_ENGINE_THREADS=str(options.threads)))
    return [{**row, "tokens_per_s": max(row["reps"])} for row in facts["tests"]], facts


def measure_peer(model, options):
    libs = {"LLAMA_CPP_LIB_PATH": options.libs} if options.libs else {}
    facts = json.loads(run([options.python, os.path.join(HERE, "peer_llama.py"),
                            *tests_of(options), "-threads", str(options.threads), "-reps",
                            str(options.reps), model], **libs))
    return facts["tests"], facts


def limits(options):
    """(int8, float): what the instructions can do, in TOP/s; by the kernels' own bench program."""
    isa = "" if options.isa == "auto" else options.isa
    text = run([KERN, "--bench", isa, "none"])
    found = re.search(r"peak int8 ([\d.]+), float ([\d.]+) TOP/s", text)
    if not found or not float(found.group(1)):
        sys.exit(f"peer: no peak in the output of {KERN}:\n{text}")
    return float(found.group(1)), float(found.group(2))


def cpu_seconds():
    """(the machine's, ours and our ended children's) so far. Other work beside a measurement slows
    that side more whose threads wait for each other by turning."""
    with open("/proc/stat", encoding="ascii") as f:
        user, nice, system, _idle, _wait, *rest = map(int, f.readline().split()[1:9])
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return ((user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK"),
            sum(u.ru_utime + u.ru_stime for u in own))


def key_of(row):
    return row["test"], row["tokens"], row["depth"], row["batch"]


def label(key):
    """pp512, tg128 x8, pp512 @4096."""
    test, tokens, depth, batch = key
    return f"{test}{tokens}" + (f" x{batch}" if batch > 1 else "") + (f" @{depth}" if depth else "")


class Comparison:
    """All rounds of one model: rates by side and test, and what was measured beside them."""

    def __init__(self, model, options):
        self.model, self.options = model, options
        self.rates = {"shoal": {}, "peer": {}}
        self.facts, self.rows = {}, {}
        self.bandwidth, self.peaks, self.loads = [], [], {"shoal": [], "peer": []}
        machine, own, start = *cpu_seconds(), time.monotonic()
        sides = [("shoal", measure_shoal), ("peer", measure_peer)]
        for number in range(options.rounds):
            self.peaks.append(limits(options))
            for side, one in sides if number % 2 == 0 else reversed(sides):
                self.add(side, *one(model, options))
            print(".", end="", file=sys.stderr, flush=True)
        self.peaks.append(limits(options))
        machine, own = (now - then for now, then in zip(cpu_seconds(), (machine, own)))
        self.others = max(machine - own, 0) / (time.monotonic() - start) / os.cpu_count()
        print(file=sys.stderr)

    def add(self, side, rows, facts):
        self.facts[side] = facts
        for row in rows:
            self.rates[side].setdefault(key_of(row), []).append(row["tokens_per_s"])
        if side == "shoal":
            self.rows = {key_of(row): row for row in rows}
            self.bandwidth += [facts["gb_per_s_before"], facts["gb_per_s_after"]]
        self.loads[side].append(facts["weights_s"] if side == "shoal" else facts["load_s"])

    def rate(self, side, key):
        return statistics.median(self.rates[side][key])

    def ratio(self, key):
        return self.rate("shoal", key) / self.rate("peer", key)

    def peak(self, which):
        return statistics.median(pair[which] for pair in self.peaks) * 1e12

    def bytes_s(self, key):
        """Seconds of one token by bandwidth; a prompt reads the weights for many tokens at once."""
        size = self.rows[key].get("step_bytes", 0) / key[3]
        return size / statistics.median(self.bandwidth) * 1e-9

    def products_s(self, key):
        row = self.rows[key]
        matmul_ops = row["tops"] * 1e12 / (sum(row["reps"]) / len(row["reps"]))
        return matmul_ops / self.peak(0) + row["attend_ops"] / self.peak(1)

    def share(self, key):
        bytes_s, products_s = self.bytes_s(key), self.products_s(key)
        return max(bytes_s, products_s) * self.rate("shoal", key), (
            "bandwidth" if bytes_s > products_s else "products")

    def attention(self, key):
        """Time that the depth added, as a multiple of the least it can take; None at depth 0."""
        base = (*key[:2], 0, key[3])
        if key[2] == 0 or base not in self.rows:
            return None
        added = 1 / self.rate("shoal", key) - 1 / self.rate("shoal", base)
        ops = self.rows[key]["attend_ops"] - self.rows[base]["attend_ops"]
        return added / max(self.bytes_s(key) - self.bytes_s(base), ops / self.peak(1))


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def print_head(c):
    shoal, peaks = c.facts["shoal"], [pair[0] for pair in c.peaks]
    threads, size = shoal["threads"], shoal["weight_bytes"]
    load = statistics.median(c.loads["shoal"])
    print(f"{os.path.basename(c.model)}: {shoal['machine']}, {shoal['isa']}, "
          f"{threads} thread{'s' if threads > 1 else ''}, read {min(c.bandwidth):.1f}-"
          f"{max(c.bandwidth):.1f} GB/s at {size} bytes, int8 peak {min(peaks):.3f}-"
          f"{max(peaks):.3f} TOP/s\n  shoal {shoal['build']}; {c.facts['peer']['name']}\n"
          f"  load shoal {load:.2f} s, {size / load / threads / 1e9:.2f} GB/s per thread; "
          f"peer {statistics.median(c.loads['peer']):.2f} s; other work took "
          f"{100 * c.others:.0f} % of the CPUs")


def report(model, options, goals=None):
    """Prints the table of one model; True if no ratio is below its goal or the floor. goals: by
    label."""
    c = Comparison(model, options)
    print_head(c)
    is_good = True
    for key in c.rows:
        goal = (goals or {}).get(label(key), options.floor)
        verdict = "" if not goal else f"goal {goal}x" + ("" if c.ratio(key) >= goal else "  BELOW")
        is_good = is_good and c.ratio(key) >= goal
        share, of = c.share(key)
        above = c.attention(key)
        more = "" if above is None else f"; attention {above:.2f}x its limit"
        print(f"  {label(key):<13} shoal {spread(c.rates['shoal'][key]):>23} t/s   peer "
              f"{spread(c.rates['peer'][key]):>23} t/s  {c.ratio(key):5.2f}x  "
              f"{100 * share:3.0f} % of {of}{more}  {verdict}", flush=True)
    return is_good


def parser():
    p = argparse.ArgumentParser()
    p.add_argument("-p", type=int, default=512)
    p.add_argument("-n", type=int, default=128)
    p.add_argument("-batch", default="1")
    p.add_argument("-depth", default="0")
    p.add_argument("-rounds", type=int, default=5)
    p.add_argument("-reps", type=int, default=1)
    p.add_argument("-isa", default="auto")
    p.add_argument("-threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("-floor", type=float, default=0.0)
    p.add_argument("-python", default=os.path.join(ROOT, "build/venv-peer/bin/python"))
    p.add_argument("-libs", default="")
    return p


def use_cpus(threads):
    """Both sides and the limits on so many CPUs."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def main():
    p = parser()
    p.add_argument("models", nargs="+")
    options = p.parse_args()
    use_cpus(options.threads)
    results = [report(model, options) for model in options.models]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
