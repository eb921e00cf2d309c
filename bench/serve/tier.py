#!/usr/bin/env python3
"""The tier of files, measured from outside: tier.py [-only restart,fleet,steps] MODEL

restart  One long prompt is asked; the server stops. Per round: its files are read with dd past and
         through the page cache, dropped from it, the server starts and is asked the same, then once
         more from the pool. What the second reply saved is the time of the restore.
fleet    Many contexts are asked, the server stops, files are dropped, it starts: each first token
         beside its cold one, one after another; then all at once, beside all of them cold at once,
         each with its own and the fastest with the fastest (the order of a burst is chance).
steps    Gaps between the tokens of a stream, in pairs: after another prompt was read, as its pages
         are written (a server with files and one without, in turns), and while contexts are
         restored (a server that is restarted, with restores and without, in turns).

Prompts are token ids, all but one of them in whole pages, so that nearly nothing but the restore is
left to do. Prints rows for docs/NUMBERS.md.
"""
import argparse
import contextlib
import glob
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SHOAL = os.path.join(ROOT, "build", "shoal")
sys.path.insert(0, HERE)
from serve import name_of, serving  # noqa: E402  (beside us)

PAGE = 32
PARTS = ("restart", "fleet", "steps")


def server(options, folder, spill=True):
    command = [SHOAL, "serve", "-addr", "127.0.0.1:PORT", "-model", options.model, "-slots", "64"]
    command += ["-spill", f"{folder}/spill", "-spill-size", "8GiB"] if spill else ["-spill", "off"]
    return serving(command, "/ready", os.path.join(folder, "shoal.log"),
                   env={"HOME": folder, "SHOAL_CACHE_SPILL_FLOOR": "1GiB"})


def prompt(number, pages):
    """Ids that no other number begins with; one more than whole pages."""
    return [1000 + (number * 7919 + k * k * 31 + k * 17) % 40000 for k in range(pages * PAGE + 1)]


class Client:
    def __init__(self, url):
        self.host, self.model = url.split("//")[1], name_of(url)

    def stream(self, ids, tokens, times=None, is_over=lambda: False):
        """(first token in s, usage). times: gets when each token came."""
        body = {"model": self.model, "prompt": ids, "max_tokens": tokens, "temperature": 0,
                "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
        begun, times, usage = time.monotonic(), [] if times is None else times, None
        c = http.client.HTTPConnection(self.host, timeout=300)
        with contextlib.closing(c):
            c.request("POST", "/v1/completions", json.dumps(body),
                      {"Content-Type": "application/json"})
            reply = c.getresponse()
            if reply.status != 200:
                raise RuntimeError(f"{reply.status}: {reply.read()[:300]}")
            for line in reply:
                if line.startswith(b"data: {"):
                    usage = json.loads(line[6:]).get("usage") or usage
                    times.append(time.monotonic())
                if is_over():
                    break
        return times[0] - begun, usage

    def gaps(self, ids, tokens):
        times = []
        self.stream(ids, tokens, times)
        return [b - a for a, b in zip(times, times[1:])]

    def gaps_after(self, other, tokens):
        """Of a stream beside which `other` was read, from its reply on."""
        times, is_over = [], threading.Event()
        t = threading.Thread(target=self.stream,
                             args=(prompt(900, 1), 2000, times, is_over.is_set))
        t.start()
        while not times:
            time.sleep(0.005)
        self.first(other)
        begin = len(times)
        while len(times) < begin + tokens:
            time.sleep(0.005)
        is_over.set()
        t.join()
        return [b - a for a, b in zip(times[begin:], times[begin + 1:])][:tokens]

    def first(self, ids, tokens=1):
        seconds, usage = self.stream(ids, tokens)
        return seconds, usage["prompt_tokens_details"]["cached_tokens"]

    def ssd(self):
        time.sleep(1.2)  # the child tells its counts twice a second
        url = f"http://{self.host}/v1/cache"
        return json.load(urllib.request.urlopen(url))["models"][0]["ssd"]


def drop(files):
    for f in files:
        subprocess.run(["sync", f], check=True)
        subprocess.run(["dd", f"if={f}", "iflag=nocache", "count=0"], capture_output=True,
                       check=True)


def dd_rate(files, *more):
    begin = time.monotonic()
    for f in files:
        subprocess.run(["dd", f"if={f}", "of=/dev/null", "bs=1M", *more], capture_output=True,
                       check=True)
    return sum(map(os.path.getsize, files)) / (time.monotonic() - begin) / 1e6


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def files_of(folder):
    return glob.glob(f"{folder}/spill/*/pages-*.kv")


def part_restart(options, folder):
    ids = prompt(1, options.long)
    with server(options, folder) as (_, url):
        cold, _ = Client(url).first(ids)
    print(f"restart: {len(ids)} tokens cold {cold:.2f} s")
    files, shares = files_of(folder), []
    for _ in range(options.rounds):
        drop(files)
        direct = dd_rate(files, "iflag=direct")
        drop(files)
        buffered = dd_rate(files)
        with server(options, folder) as (_, url):
            drop(files)
            c = Client(url)
            seconds, cached = c.first(ids)
            again, _ = c.first(ids)
            read = c.ssd()["read_bytes"]
        rate = read / 1e6 / (seconds - again)
        shares.append((rate / direct * 100, rate / buffered * 100))
        print(f"restart: first token {seconds:.3f} s ({seconds / cold * 100:.1f} % of cold), "
              f"{cached} cached; from the pool {again:.3f} s; restore "
              f"{rate:.0f} MB/s of {read / 1e6:.0f} MB, dd direct {direct:.0f}, buffered "
              f"{buffered:.0f} MB/s", flush=True)
    direct, buffered = (quantile(column, 0.5) for column in zip(*shares))
    print(f"restart: p50 {direct:.0f} % of dd direct, {buffered:.0f} % of dd buffered", flush=True)


def ask_all(c, prompts, tokens, is_together):
    """[(first token in s, cached)] and the time of all."""
    got = [None] * len(prompts)

    def ask(i):
        got[i] = c.first(prompts[i], tokens)
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    begin = time.monotonic()
    for t in threads:
        t.start()
        if not is_together:
            t.join()
    for t in threads:
        t.join()
    return got, time.monotonic() - begin


def part_fleet(options, folder):
    prompts = [prompt(100 + i, options.pages) for i in range(options.contexts)]
    for is_together in (False, True):
        how = "all at once" if is_together else "one after another"
        sub = os.path.join(folder, how.split()[0])
        os.mkdir(sub)
        with server(options, sub) as (_, url):
            cold, wall_cold = ask_all(Client(url), prompts, options.tokens, is_together)
        with server(options, sub) as (_, url):
            drop(files_of(sub))
            warm, wall = ask_all(Client(url), prompts, options.tokens, is_together)
        cold = [seconds for seconds, _ in cold]
        firsts = [seconds for seconds, _ in warm]
        shares = [w / c * 100 for w, c in zip(firsts, cold)]
        ranks = [w / c * 100 for w, c in zip(sorted(firsts), sorted(cold))]
        late = sorted(range(len(shares)), key=lambda i: -shares[i])[:5]
        print(f"fleet: {len(prompts)} contexts of {len(prompts[0])} tokens, {how}: cold p50 "
              f"{quantile(cold, 0.5) * 1e3:.0f} ms, {wall_cold:.2f} s in all; first token p50 "
              f"{quantile(firsts, 0.5) * 1e3:.0f} ms, {wall:.2f} s in all; share of cold p50 "
              f"{quantile(shares, 0.5):.1f} %, by rank p50 {quantile(ranks, 0.5):.1f} %, worst "
              f"{max(ranks):.1f} %; worst of its own "
              f"{', '.join(f'{shares[i]:.1f} % (number {i + 1})' for i in late)}; least cached "
              f"{min(n for _, n in warm)}", flush=True)


def say_steps(what, plain, busy):
    p, b = quantile(plain, 0.5), quantile(busy, 0.5)
    print(f"steps beside {what}: p50 {p * 1e3:.2f} ms without, {b * 1e3:.2f} with "
          f"({(b / p - 1) * 100:+.1f} %); p99 {quantile(plain, 0.99) * 1e3:.2f}, "
          f"{quantile(busy, 0.99) * 1e3:.2f} ms ({len(plain)}, {len(busy)} gaps)", flush=True)


def steps_beside_writes(options, folder):
    os.mkdir(f"{folder}/off")
    plain, busy = [], []
    with server(options, folder) as (_, on), server(options, f"{folder}/off", False) as (_, off):
        pairs = [(Client(on), busy), (Client(off), plain)]
        for i in range(options.rounds * 2):
            for c, gaps in pairs if i % 2 else pairs[::-1]:
                gaps.extend(c.gaps_after(prompt(500 + i, options.write), options.write // 3))
        written = pairs[0][0].ssd()["written_bytes"]
    say_steps(f"writes ({written / 1e6:.0f} MB)", plain, busy)


def steps_beside_restores(options, folder):
    plain, busy = [], []
    with server(options, folder) as (_, url):
        c = Client(url)
        drop(files_of(folder))
        left = [prompt(100 + i, options.pages) for i in range(options.contexts)]
        while left:
            plain.extend(c.gaps(prompt(901, 1), 40))
            over = threading.Event()

            def restore():
                while left and not over.is_set():
                    c.first(left.pop())
            t = threading.Thread(target=restore)
            t.start()
            busy.extend(c.gaps(prompt(901, 1), 40))
            over.set()
            t.join()
        read = c.ssd()["read_bytes"]
    say_steps(f"restores ({read / 1e6:.0f} MB)", plain, busy)


def part_steps(options, folder):
    steps_beside_writes(options, folder)
    with server(options, folder) as (_, url):
        c = Client(url)
        for i in range(options.contexts):
            c.first(prompt(100 + i, options.pages))
    steps_beside_restores(options, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("-only", default=",".join(PARTS))
    parser.add_argument("-rounds", type=int, default=3)
    parser.add_argument("-long", type=int, default=128, help="pages of the long prompt")
    parser.add_argument("-contexts", type=int, default=50)
    parser.add_argument("-pages", type=int, default=20, help="of a context")
    parser.add_argument("-tokens", type=int, default=1, help="of a reply, for fleet")
    parser.add_argument("-write", type=int, default=30, help="pages of a prompt that is written")
    options = parser.parse_args()
    run = {"restart": part_restart, "fleet": part_fleet, "steps": part_steps}
    for part in options.only.split(","):
        with tempfile.TemporaryDirectory(dir=f"{ROOT}/build") as folder:
            run[part](options, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
