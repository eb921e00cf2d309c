#!/usr/bin/env python3
"""Traces of coding agents, played to shoal and to llama.cpp's server: agents.py -peer SERVER MODEL

The generator is deterministic from -seed. Its marginals are TraceLab's (University of Washington,
4,265 sessions of Claude Code and Codex, 357,161 steps: tracelab.cs.washington.edu): 153k input
tokens a step of which 95.8 % stood in the prefix, 523 output tokens, a fifth of what is appended
truly new, waits for tools log-normal, long pauses of people. Lengths are divided by -scale, waits
are seconds instead of minutes. An agent
  - begins with rules and tools that its team shares, then with files of its own;
  - appends what a tool gave and asks again, tens of times; sometimes a person comes between;
  - sometimes forks: a helper goes on from its history, and only the result comes back;
  - compacts: a history that is too long becomes its rules, a summary and the last turn.

Truly new is what no earlier prompt or reply of that server began with, by whole turns, in
characters as a share of the prompt. Printed for each server: prefill amplification (tokens computed
/ truly new), share of the prompt tokens that was cached and the most that could have been, first
token p50, p95, p99 by what came before the step, wall time. Exit 1: a goal of shoal's was missed.
"""
import argparse
import contextlib
import hashlib
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SHOAL = os.path.join(ROOT, "build", "shoal")
sys.path.insert(0, os.path.join(ROOT, "bench", "serve"))
from serve import name_of, serving  # noqa: E402  (beside us)

AMPLIFICATION_GOAL, SHARE_GOAL = 1.3, 0.95
TEAMS = 4
WORDS = ("file path line error test build branch commit value table index cache token page model "
         "agent reply stream queue batch shape limit check parse write read open close begin end "
         "first last under above between number string object array member field name type").split()


class Trace:
    """One agent's steps: what it appends, how long it waits, what it does with its history."""

    def __init__(self, seed, number, options):
        self.random = random.Random(f"{seed}/{number}")
        self.number, self.options = number, options
        team = random.Random(f"{seed}/team/{number % TEAMS}")
        self.rules = self.text(team, 64_000 / options.scale)
        self.files = self.text(self.random, 26_000 / options.scale)

    @staticmethod
    def text(source, tokens):
        """About so many tokens: a word and its blank are one in the vocabularies we use."""
        return " ".join(source.choice(WORDS) for _ in range(max(2, int(tokens))))

    def lengths(self):
        """Truly new tokens of a step and the reply's: log-normal with TraceLab's means."""
        new = self.random.lognormvariate(0, 1.0) / 1.65 * 1220 / self.options.scale
        out = self.random.lognormvariate(0, 0.8) / 1.38 * 523 / self.options.scale
        return min(new, 40_000 / self.options.scale), max(2, min(int(out), 64))

    def steps(self):
        """(what came before, wait in seconds, text to append, reply tokens), by step."""
        for i in range(self.options.steps):
            new, out = self.lengths()
            draw = self.random.random()
            kind = "first" if i == 0 else "human" if draw < 0.08 else \
                "fork" if draw < 0.14 else "tool"
            wait = {"first": self.random.random() * 2,
                    "human": self.random.lognormvariate(0.7, 0.8)}.get(
                        kind, self.random.lognormvariate(-1.6, 1.0))
            yield kind, min(wait, 8.0) * self.options.pace, self.text(self.random, new), out


class Known:
    """Everything one server has read or said, by chains of turns: what a perfect cache holds."""

    def __init__(self):
        self.seen, self.lock = set(), threading.Lock()

    @staticmethod
    def chain(messages):
        h = hashlib.blake2b(digest_size=16)
        for m in messages:
            h.update(f"{m['role']}\0{m['content']}\0".encode())
            yield h.digest(), len(m["content"]) + 12  # the scaffold of a turn

    def read(self, messages):
        """Characters at the begin that are known, all characters; from now on all are. So of those
        who ask the same at once only the first one brings something new."""
        known = total = 0
        is_known = True
        with self.lock:
            for digest, size in self.chain(messages):
                total += size
                is_known = is_known and digest in self.seen
                known += size if is_known else 0
                self.seen.add(digest)
        return known, total

    def add(self, messages):
        with self.lock:
            self.seen.update(digest for digest, _ in self.chain(messages))


class Run:
    """One server under the whole fleet."""

    def __init__(self, url, options):
        self.host = url.split("//")[1]
        self.options, self.known, self.lock = options, Known(), threading.Lock()
        self.model, self.prompt, self.cached, self.new, self.failed = "", 0, 0, 0.0, 0
        self.firsts = {}

    def ask(self, kind, session, messages, out):
        body = {"model": self.model, "messages": messages, "max_tokens": out, "stream": True,
                "temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True},
                "prompt_cache_key": session, "cache_prompt": True}
        known, total = self.known.read(messages)
        begun, first, text, usage = time.monotonic(), None, "", None
        c = http.client.HTTPConnection(self.host, timeout=300)
        with contextlib.closing(c):
            c.request("POST", "/v1/chat/completions", json.dumps(body),
                      {"Content-Type": "application/json"})
            reply = c.getresponse()
            if reply.status != 200:
                raise RuntimeError(f"{reply.status}: {reply.read()[:300]}")
            for line in reply:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                usage = chunk.get("usage") or usage
                for choice in chunk.get("choices", []):
                    piece = choice["delta"].get("content") or ""
                    if piece and first is None:
                        first = time.monotonic() - begun
                    text += piece
        prompt = usage["prompt_tokens"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        self.known.add([*messages, {"role": "assistant", "content": text}])
        with self.lock:
            self.prompt += prompt
            self.cached += cached
            self.new += max(prompt * (1 - known / total), 1)
            self.firsts.setdefault(kind, []).append(
                first if first is not None else time.monotonic() - begun)
        return text, prompt

    def agent(self, trace):
        session = f"agent-{trace.number}"
        rules = {"role": "system", "content": trace.rules}
        messages = [rules, {"role": "user", "content": trace.files}]
        for kind, wait, text, out in trace.steps():
            time.sleep(wait)
            if kind == "fork":
                helper = [*messages, {"role": "user", "content": "Help with this: " + text}]
                result, _ = self.ask(kind, session + "-helper", helper, out)
                text = "The helper says: " + result
            messages.append({"role": "user", "content": text})
            reply, prompt = self.ask("tool" if kind == "fork" else kind, session, messages, out)
            messages.append({"role": "assistant", "content": reply})
            if prompt > self.options.context * 3 // 4:
                summary = Trace.text(trace.random, 3000 / self.options.scale)
                messages = [rules, {"role": "user", "content": "So far: " + summary},
                            *messages[-1:]]
                self.firsts.setdefault("compactions", []).append(0.0)

    def guard(self, trace):
        try:
            self.agent(trace)
        except (OSError, RuntimeError, TypeError, ValueError, http.client.HTTPException) as e:
            with self.lock:
                self.failed += 1
            print(f"  agent {trace.number}: {e}", file=sys.stderr)

    def play(self, model):
        self.model = model
        traces = [Trace(self.options.seed, i, self.options) for i in range(self.options.agents)]
        threads = [threading.Thread(target=self.guard, args=(t,)) for t in traces]
        begun = time.monotonic()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return time.monotonic() - begun


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] * 1000


def report(name, run, wall):
    amplification = (run.prompt - run.cached) / run.new
    share, most = run.cached / run.prompt, 1 - run.new / run.prompt
    compactions = len(run.firsts.pop("compactions", []))
    every = [v for values in run.firsts.values() for v in values]
    print(f"{name}: {len(every)} requests, {compactions} compactions, {run.failed} failed, "
          f"{wall:.1f} s")
    print(f"  prompt tokens {run.prompt}, cached {run.cached}, computed {run.prompt - run.cached}, "
          f"truly new {run.new:.0f}")
    print(f"  prefill amplification {amplification:.2f}   cached {share * 100:.1f} % "
          f"(at most {most * 100:.1f} %)")
    for kind, values in [("all", every), *sorted(run.firsts.items())]:
        print(f"  first token, {kind:<6} p50 {quantile(values, 0.5):7.0f}   "
              f"p95 {quantile(values, 0.95):7.0f}   p99 {quantile(values, 0.99):7.0f} ms   "
              f"({len(values)})", flush=True)
    return amplification, share


def shoal_server(options, folder):
    command = [SHOAL, "serve", "-addr", "127.0.0.1:PORT", "-ctx", str(options.context),
               "-slots", str(options.agents), "-threads", str(options.threads), options.model]
    return serving(command, "/ready", os.path.join(folder, "shoal.log"), env={"HOME": folder})


def peer_server(options, folder):
    """A slot with a whole context for each agent, prefixes kept in RAM beside them, pieces of a
    prompt moved where they are found again: what its manual offers for this."""
    command = [options.peer, "-m", options.model, "--host", "127.0.0.1", "--port", "PORT",
               "-np", str(options.agents), "-c", str(options.agents * options.context),
               "-t", str(options.threads), "--cache-reuse", "256", "--cache-ram", "8192"]
    return serving(command, "/health", os.path.join(folder, "peer.log"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("-peer", help="llama-server; without it shoal alone is measured")
    parser.add_argument("-agents", type=int, default=16)
    parser.add_argument("-steps", type=int, default=20)
    parser.add_argument("-scale", type=float, default=64, help="TraceLab's lengths divided by this")
    parser.add_argument("-context", type=int, default=4096)
    parser.add_argument("-pace", type=float, default=1.0, help="waits times this")
    parser.add_argument("-seed", type=int, default=1)
    parser.add_argument("-threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    servers = [("shoal", shoal_server)] + ([("llama.cpp", peer_server)] if options.peer else [])
    print(f"{os.path.basename(options.model)}, {options.threads} threads, {options.agents} agents, "
          f"{options.steps} steps, lengths / {options.scale:g}, seed {options.seed}")
    results, name = {}, ""
    for who, server in servers:
        with tempfile.TemporaryDirectory() as folder, server(options, folder) as (_, url):
            name = name_of(url) if who == "shoal" else name
            run = Run(url, options)
            wall = run.play(name)
            results[who] = report(who, run, wall) + (run.failed,)
    amplification, share, failed = results["shoal"]
    is_good = amplification <= AMPLIFICATION_GOAL and share >= SHARE_GOAL and not failed
    print(f"goals: amplification <= {AMPLIFICATION_GOAL}, cached >= {SHARE_GOAL * 100:.0f} %: "
          f"{'met' if is_good else 'MISSED'}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
