#!/usr/bin/env python3
"""The table of CPU goals, measured beside llama.cpp: table.py [-rounds 3] [-keep] [ROW...]

A row is models of random weights in true shapes (bench/frontier/make_gguf.py, made when they are
missing, removed behind the row unless -keep), or the real files of build/models, and the tests run
on each; ROW:TYPE takes one of its models. Goals: ratios to llama.cpp on AVX-512 VNNI (Zen 5), on
AMX (Emerald Rapids). -list tells the rows. Exit 1 if a ratio is below its goal.
"""
import glob
import os
import subprocess
import sys
from typing import NamedTuple

import peer

MODELS = os.path.join(peer.ROOT, "build/bench/models")
MAKE = os.path.join(peer.ROOT, "bench/frontier/make_gguf.py")
AVX2 = os.path.join(peer.ROOT, "build/peer-avx2/lib")
DECODED = ("Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_K", "Q6_K", "Q8_0", "BF16")


class Row(NamedTuple):
    what: str
    shape: str     # of make_gguf.py; "": the real files
    types: tuple
    tests: dict    # options of peer.py
    goals: dict    # (VNNI, AMX) by test, or by type and test
    layers: int = 0


ROWS = {
    "prefill": Row("prompt of 512", "2b", ("Q4_0", "Q4_K", "Q8_0", "Q6_K"), {"p": 512, "n": 0},
                   {("Q4_0", "pp512"): (2.4, 3), ("Q4_K", "pp512"): (3.1, 4),
                    ("Q8_0", "pp512"): (4.6, 3), ("Q6_K", "pp512"): (6.5, 4)}),
    "prefill-8b": Row("prompt of 512", "8b", ("Q4_K_M",), {"p": 512, "n": 0}, {"pp512": (3.6, 4)}),
    "decode": Row("one sequence", "2b", DECODED, {"p": 0, "n": 24}, {"tg24": (1.2, 1.7)}),
    "decode-1": Row("one sequence, one thread", "2b", DECODED, {"p": 0, "n": 16, "threads": 1},
                    {"tg16": (1.3, 1.3)}),
    "batch": Row("8 and 32 sequences", "2b", ("Q4_K_M",), {"p": 0, "n": 16, "batch": "1,8,32"},
                 {"tg16": (1.2, 1.7), "tg16 x8": (4, 2.8), "tg16 x32": (4.2, 4)}),
    "batch-8b": Row("8 and 32 sequences", "8b", ("Q4_K_M",), {"p": 0, "n": 4, "batch": "8,32"},
                    {"tg4 x8": (4, 2.8), "tg4 x32": (4.2, 4)}),
    "real": Row("real files", "", ("SmolLM2", "gemma", "qwen"),
                {"p": 512, "n": 32, "batch": "1,8,32"},
                {"pp512": (4, 4), ("gemma", "pp512"): (4, 3), "tg32": (1.5, 1.5),
                 "tg32 x8": (2.5, 2.5), "tg32 x32": (3.5, 3.5)}),
    "depth": Row("behind 4k and 16k tokens", "2b", ("Q4_K_M",),
                 {"p": 512, "n": 16, "depth": "0,4096,16384"},
                 {"pp512 @4096": (2, 2), "pp512 @16384": (2, 2)}),
    "moe": Row("128 experts, 6 of 48 layers", "30b-a3b", ("Q4_K",), {"p": 512, "n": 32},
               {"pp512": (4, 4), "tg32": (1.35, 1.35)}, layers=6),
    "avx2": Row("both sides with AVX2 alone", "2b", ("Q4_K_M",),
                {"p": 256, "n": 32, "batch": "1,8", "isa": "avx2", "libs": AVX2},
                {"pp256": (1.5, 1.5), "tg32": (1.5, 1.5), "tg32 x8": (1.5, 1.5)}),
}


def goals_of(row, kind, is_amx):
    """By label; what names the type wins."""
    goals = {key: pair for key, pair in row.goals.items() if isinstance(key, str)}
    goals.update({key[1]: pair for key, pair in row.goals.items() if key[0] == kind})
    return {key: pair[is_amx] for key, pair in goals.items()}


def path_of(row, kind):
    if row.shape:
        layers = f"-{row.layers}" if row.layers else ""
        return os.path.join(MODELS, f"{row.shape}-{kind}{layers}.gguf")
    found = glob.glob(os.path.join(peer.ROOT, f"build/models/*{kind}*.gguf"))
    return found[0] if found else sys.exit(f"table: no {kind} in build/models: make models")


def make(row, kind, path):
    os.makedirs(MODELS, exist_ok=True)
    subprocess.run([sys.executable, MAKE, path + ".new", row.shape, kind, str(row.layers)],
                   check=True)
    os.rename(path + ".new", path)


def measure(name, kinds, options):
    """True if nothing is below its goal."""
    row, is_good = ROWS[name], True
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        is_amx = "amx_tile" in f.read()
    if row.tests.get("libs") and not os.path.isdir(AVX2):
        sys.exit("table: llama.cpp's libraries for AVX2 are missing: make bench-table ROW=avx2")
    print(f"== {name}: {row.what}")
    for kind in kinds or row.types:
        path = path_of(row, kind)
        is_new = not os.path.exists(path)
        if is_new:
            make(row, kind, path)
        is_good = peer.report(path, options, goals_of(row, kind, is_amx)) and is_good
        if is_new and not options.keep:
            os.remove(path)
    return is_good


def main():
    p = peer.parser()
    p.add_argument("-keep", action="store_true")
    p.add_argument("-list", action="store_true")
    p.add_argument("rows", nargs="*", metavar="ROW[:TYPE]")
    p.set_defaults(rounds=3, reps=2)
    options = p.parse_args()
    wanted = [item.partition(":") for item in options.rows] or [(name, "", "") for name in ROWS]
    for name, _, kind in wanted:
        if name not in ROWS or kind and kind not in ROWS[name].types:
            sys.exit(f"table: no row '{name}:{kind}'; -list tells them")
    if options.list:
        for name, row in ROWS.items():
            print(f"{name:<11} {row.shape or 'real files':<11} {' '.join(row.types)}: {row.what}")
        return 0
    is_good, cpus, given = True, os.sched_getaffinity(0), vars(options)
    for name, _, kind in wanted:
        one = peer.argparse.Namespace(**{**given, **ROWS[name].tests})
        os.sched_setaffinity(0, cpus)
        peer.use_cpus(one.threads)
        is_good = measure(name, [kind] if kind else [], one) and is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
