#!/usr/bin/env python3
"""The tokens of grammar_bench through other libraries: what a mask costs there.

usage: grammar_peer.py OUT     after `grammar_bench MODEL OUT CASES...`

Prints one JSON line per library. A schema that one refuses, or whose instance it does not accept
(other rules of blanks, formats), is counted and left out of its times. One thread; as in
grammar_bench the least of five rounds counts for each mask. Calls are timed around the library's
own fill function: Python adds less than a microsecond.
"""
import json
import os
import sys
import time
from importlib.metadata import version

import numpy as np

ROUNDS = 5


def read(out):
    tokens, eos, control = [], None, set()
    with open(os.path.join(out, "vocab"), encoding="ascii") as f:
        for i, line in enumerate(f):
            text, _, kind = line.rstrip("\n").partition(" ")
            tokens.append(bytes.fromhex(text))
            if kind:
                control.add(i)
            if kind == "e" and eos is None:
                eos = i
    with open(os.path.join(out, "cases"), encoding="utf-8") as f:
        lines = f.read().split("\n")
    cases = [(lines[i], [int(x) for x in lines[i + 1].split()])
             for i in range(0, len(lines) - 1, 2)]
    return tokens, eos, control, cases


def summary(name, compiles, masks, refused, rejected):
    def of(ns):
        v = np.sort(np.array(ns)) / 1e3
        at = {k: round(float(v[int(q * (len(v) - 1))]), 2)
              for k, q in (("median_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999))}
        return {"count": len(v), "mean_us": round(float(v.mean()), 2), **at,
                "max_us": round(float(v[-1]), 2)}
    print(json.dumps({"name": name, "refused": refused, "not_accepted": rejected,
                      "compile": of(compiles), "mask": of(masks)}), flush=True)


def drive(name, cases, compile_, fill, consume):
    """compile_(schema) -> matcher or None; fill(matcher); consume(matcher, id) -> bool."""
    rounds = []
    for _ in range(ROUNDS):
        compiles, masks, refused, rejected, known = [], [], 0, 0, None
        for schema, ids in cases:
            begin = time.perf_counter_ns()
            matcher = compile_(schema)
            if schema != known:
                compiles.append(time.perf_counter_ns() - begin)
            known = schema
            if matcher is None:
                refused += 1
                continue
            here = []
            for token in ids:
                begin = time.perf_counter_ns()
                fill(matcher)
                here.append(time.perf_counter_ns() - begin)
                if not consume(matcher, token):
                    rejected += 1
                    break
            else:
                masks += here
        rounds.append((compiles, masks))
    least = [np.min([r[i] for r in rounds], axis=0) for i in (0, 1)]
    summary(name, least[0], least[1], refused, rejected)


def llguidance(tokens, eos, control, cases):
    import llguidance as ll
    import llguidance.numpy as lln

    class Tokens:
        eos_token_id, bos_token_id = eos, None
        special_token_ids = sorted(control)

        def __call__(self, text):
            return list(text.encode() if isinstance(text, str) else text)
    Tokens.tokens = tokens
    tok = ll.LLTokenizer(ll.TokenizerWrapper(Tokens()))
    mask = lln.allocate_token_bitmask(1, tok.vocab_size)

    def compile_(schema):
        m = ll.LLMatcher(tok, ll.LLMatcher.grammar_from_json_schema(
            schema, overrides={"whitespace_pattern": " ?"}))
        return None if m.is_error() else m
    drive(f"llguidance {version('llguidance')}", cases, compile_,
          lambda m: lln.fill_next_token_bitmask(m, mask),
          lambda m, t: m.consume_token(t))


def xgrammar(tokens, eos, control, cases):
    import xgrammar as xg
    info = xg.TokenizerInfo(tokens, vocab_type=xg.VocabType.RAW, vocab_size=len(tokens),
                            stop_token_ids=[eos])
    compiler = xg.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    mask = xg.allocate_token_bitmask(1, len(tokens))

    def compile_(schema):
        try:
            return xg.GrammarMatcher(compiler.compile_json_schema(schema, any_whitespace=False,
                                                                  separators=(",", ":")))
        except (RuntimeError, ValueError):
            return None
    drive(f"xgrammar {version('xgrammar')}", cases, compile_,
          lambda m: m.fill_next_token_bitmask(mask), lambda m, t: m.accept_token(t))


def main():
    tokens, eos, control, cases = read(sys.argv[1])
    for peer in (llguidance, xgrammar):
        try:
            peer(tokens, eos, control, cases)
        except ImportError as e:
            print(json.dumps({"name": peer.__name__, "missing": str(e)}))


if __name__ == "__main__":
    main()
