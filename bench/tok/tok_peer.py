#!/usr/bin/env python3
"""The same files through Hugging Face's tokenizers (Rust, one thread) and llama.cpp, in CPU time.

usage: tok_peer.py -models DIR NAME FILE...     NAME as in tests/golden/tokens/make_tokens.py
"""
import argparse
import os
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../tests/golden/tokens"))
import make_tokens  # noqa: E402


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-models", default="build/models")
    p.add_argument("-runs", type=int, default=3)
    p.add_argument("name")
    p.add_argument("files", nargs="+")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        v = make_tokens.Vocabulary(make_tokens.path_of(a.name, a.models))
        witnesses = make_tokens.first_witness(a.name, v, folder), make_tokens.Llama(v.path)
    for path in a.files:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for witness in witnesses:
            best = 1e9
            for _ in range(a.runs):
                start = time.process_time()
                ids = witness.ids(text, True)
                best = min(best, time.process_time() - start)
            print("  %s %-28s %-14s %7d ids  %8.1f ms  %5.2f MB/s" % (
                a.name, path, type(witness).__name__, len(ids), best * 1e3,
                len(text.encode()) / best / 1e6), flush=True)


if __name__ == "__main__":
    main()
