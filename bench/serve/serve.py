#!/usr/bin/env python3
"""shoal's server beside llama.cpp's, both on this machine now: serve.py -peer LLAMA_SERVER MODEL

Both serve the same file with the same number of threads and stay up; `shoal bench -against` sends
both the same load in turns, so one of them computes at a time. Then what only shoal promises is
measured: CPU of the endpoint per streamed event, idle connections, a burst against a full queue.
Prints a table for docs/NUMBERS.md; -only NAMES picks parts (streams forked returning endpoint idle
burst soak), -rounds how often the streams are repeated, -shoal another binary, e.g. one with ASan.
"""
import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
STRESS = os.path.join(ROOT, "build", "bench", "serve", "stress")
FLOOR = os.path.join(ROOT, "build", "bench", "serve", "floor")
PARTS = ("streams", "forked", "returning", "endpoint", "idle", "burst", "soak")
PEER_SLOTS = 32


def free_port():
    with contextlib.closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def serving(command, path, log, env=None):
    """Runs a server until the block ends; yields (process, url). The log goes to a file."""
    port = free_port()
    with open(log, "wb") as out:
        full = [word.replace("PORT", str(port)) for word in command]
        p = subprocess.Popen(full, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                             env={**os.environ, **(env or {})})
        try:
            wait_ready(p, f"http://127.0.0.1:{port}{path}", log)
            yield p, f"http://127.0.0.1:{port}"
        finally:
            p.send_signal(signal.SIGTERM)
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


def wait_ready(process, url, log):
    for _ in range(600):
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        time.sleep(0.1)
    with open(log, encoding="utf-8", errors="replace") as f:
        sys.exit(f"serve: {url} does not get ready:\n{f.read()[-2000:]}")


@contextlib.contextmanager
def shoal_server(options, folder, env=None):
    """Yields (process, url). Whoever leaks, or is told off by a sanitizer, ends the whole run."""
    command = [options.shoal, "serve", "-addr", "127.0.0.1:PORT", "-ctx", str(options.ctx),
               "-slots", "32", "-threads", str(options.threads), options.model]
    env = {**(env or {}), "HOME": folder}  # a library without other models
    log = os.path.join(folder, "shoal.log")
    with serving(command, "/ready", log, env=env) as (process, url):
        yield process, url
    with open(log, encoding="utf-8", errors="replace") as f:
        text = f.read()
    told = [at for at in (text.find("Sanitizer"), text.find("runtime error:")) if at >= 0]
    if process.returncode or told:
        at = max(0, min(told) - 500) if told else -6000
        sys.exit(f"serve: shoal ended with {process.returncode}:\n{text[at:][:6000]}")


def peer_server(options, folder):
    """Slots as many as agents, context for each; everything else is its own default."""
    command = [options.peer, "-m", options.model, "--host", "127.0.0.1", "--port", "PORT",
               "-np", str(PEER_SLOTS), "-c", str(PEER_SLOTS * 2560), "-t", str(options.threads)]
    return serving(command, "/health", os.path.join(folder, "peer.log"))


def name_of(url):
    """Of the one model; a slow build takes a while until it is listed."""
    for _ in range(100):
        with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as answer:
            rows = json.load(answer)["data"]
        if rows:
            return rows[0]["id"]
        time.sleep(0.1)
    sys.exit("serve: no model is listed")


def against(urls, options, *args):
    """The peer takes any name, so both get the first one's."""
    done = subprocess.run([options.shoal, "bench", "-against", ",".join(urls), "-json",
                           name_of(urls[0]), *args],
                          stdout=subprocess.PIPE, check=False, timeout=1800)
    if not done.stdout:
        sys.exit("serve: no result")
    return json.loads(done.stdout)["targets"]


def show(name, targets, key, is_less_better, goal):
    if len(targets) == 1:
        print(f"  {name:<44} shoal {targets[0][key]:>8.2f}", flush=True)
        return
    ours, theirs = targets[0][key], targets[1][key]
    ratio = ours / theirs
    is_met = ratio <= goal if is_less_better else ratio >= goal
    failed = [t["failed"] for t in targets]
    note = f"   FAILED {failed}" if any(failed) else ""
    print(f"  {name:<44} shoal {ours:>8.2f}   peer {theirs:>8.2f}   {ratio:.2f}x "
          f"(goal {'<=' if is_less_better else '>='} {goal}){'' if is_met else '   MISSED'}{note}",
          flush=True)


def streams(urls, options):
    for agents, goal in ((1, 1.0), (8, 1.5), (32, 1.5)):
        rounds = max(1, options.rounds if agents < 32 else (options.rounds + 1) // 2)
        targets = against(urls, options, "-agents", str(agents), "-prompt-tokens", "256", "-out",
                          "64", "-rounds", str(rounds))
        name = f"{agents} streams, 256 + 64, {rounds} rounds"
        show(f"{name}: tokens/s", targets, "tokens_per_s", False, goal)
        show(f"{name}: first token p50, ms", targets, "first_token_p50_ms", True, 1.0)
        show(f"{name}: gap p95, ms", targets, "gap_p95_ms", True, 1.0)


def forked(urls, options):
    targets = against(urls, options, "-scenario", "forked", "-agents", "16", "-prompt-tokens",
                      "2048", "-out", "64", "-rounds", "1")
    show("16 agents, one prefix of 2048: all finished, s", targets, "wall_s", True, 0.4)
    show("  the same: cached, %", targets, "cached_percent", False, 1.0)


def returning(urls, options):
    for name, target in zip(("shoal", "peer"),
                            against(urls, options, "-scenario", "returning", "-agents", "1",
                                    "-prompt-tokens", "2048", "-out", "16", "-rounds", "2")):
        cold, warm = target["first_token_p50_ms"], target["later_token_p50_ms"]
        print(f"  returning agent, 2048 tokens: {name:<14} cold {cold:.0f} ms   back {warm:.1f} ms"
              f"   {warm / cold * 100:.1f} % (goal < 5 %)", flush=True)


def cpu_ns(pid):
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total


def endpoint_load(url, options, process, agents, out):
    """CPU time of the endpoint and what clients saw of one load."""
    before = cpu_ns(process.pid)
    (target,) = against([url], options, "-agents", str(agents), "-prompt-tokens", "32", "-out",
                        str(out), "-rounds", "1")
    return (cpu_ns(process.pid) - before) / 1000, target["events"]


def endpoint(urls, options, process):
    """The endpoint's own CPU time by event: what long replies take more than short ones, so that
    accepting, parsing and logging a request are told apart. Beside it a client of one stream that
    only reads and writes: what the kernel alone takes for an event on this machine."""
    port = urls[0].rsplit(":", 1)[1]
    floor = subprocess.check_output([FLOOR, "-port", port, "-model", name_of(urls[0])])
    print(f"  wait, read and write alone, one stream: {floor.decode().strip()}", flush=True)
    for agents in (1, 16):
        short_us, short_events = endpoint_load(urls[0], options, process, agents, 8)
        long_us, long_events = endpoint_load(urls[0], options, process, agents, 136)
        us = (long_us - short_us) / (long_events - short_events)
        rest = (short_us - us * short_events) / (agents + 2)  # two measure the length of a word
        print(f"  endpoint CPU, {agents:>2} streams: {us:.1f} us per event (goal <= 50), "
              f"{rest:.0f} us per request; {long_events - short_events} events", flush=True)


def stress(mode, url, *args):
    command = [STRESS, mode, "-url", url, "-model", name_of(url), *args]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=4000)
    print(f"  {mode}: {'ok' if done.returncode == 0 else 'FAILED'} "
          f"{done.stdout.decode().strip()}", flush=True)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("-shoal", default=os.path.join(ROOT, "build", "shoal"))
    parser.add_argument("-peer", help="llama-server; without it shoal alone is measured")
    parser.add_argument("-rounds", type=int, default=3)
    parser.add_argument("-ctx", type=int, default=4096)
    parser.add_argument("-seconds", type=int, default=120, help="of the soak")
    parser.add_argument("-kills", type=int, help="the soak ends after so many of the engine")
    parser.add_argument("-threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-only", default=",".join(PARTS))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers end with us
    parts = options.only.split(",")
    if set(parts) - set(PARTS):
        parser.error(f"-only: of {', '.join(PARTS)}")
    is_good = True
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        print(f"{os.path.basename(options.model)}, {options.threads} threads, "
              f"{subprocess.check_output([options.shoal, 'version']).decode().splitlines()[0]}")
        process, url = stack.enter_context(shoal_server(options, folder))
        urls = [url]
        with contextlib.ExitStack() as inner:
            if options.peer:
                urls.append(inner.enter_context(peer_server(options, folder))[1])
            for part in (streams, forked, returning):
                if part.__name__ in parts:
                    part(urls, options)
        if "endpoint" in parts:
            endpoint(urls, options, process)
        if "idle" in parts:
            is_good &= stress("idle", url, "-pid", str(process.pid))
        if "soak" in parts:
            end = ("-kills", str(options.kills)) if options.kills else \
                ("-kill", "-seconds", str(options.seconds))
            is_good &= stress("soak", url, "-pid", str(process.pid), *end)
    if "burst" in parts:
        with tempfile.TemporaryDirectory() as folder, \
                shoal_server(options, folder, env={"SHOAL_LIMITS_QUEUE": "8"}) as (_, url):
            is_good &= stress("burst", url, "-hold", "48")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
