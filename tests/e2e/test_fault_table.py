"""The whole fault table: faults x clients x first legs x streamed or not x second legs.

A sample of it by itself: each fault with every pair of the other dimensions. All of it, with a
table on stdout: `make test-faults`, which sets FAULTS=all.
"""
import collections
import concurrent.futures
import itertools
import os
import signal
import time

import pytest

from fault_table import (DIALECTS, FAULTS, LONG, PATHS, SECONDS, Table, body_of, cells,
                         pairs_of, pairwise, read_at_once, read_streamed, run)
from server import REAL, serving, wait_until
from legs import CONTINUE, Stub, config_of, two_engines

IS_WHOLE = os.environ.get("FAULTS") == "all"
MODEL = os.path.basename(REAL).removesuffix(".gguf")


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What the local model says, greedy: the upstreams say it too."""
    with serving(tmp_path_factory.mktemp("said"), "-model", REAL, "-ctx", "1024") as server:
        r = server.post(PATHS["openai"], body_of("openai", MODEL, False))
        text, end = read_at_once("openai", r.body)
        assert end == "ok" and len(text.split()) > 20, (text, end)
        return text


@pytest.fixture(scope="module")
def table(tmp_path_factory, said):
    home = tmp_path_factory.mktemp("table")
    table = Table(home, said)
    with serving(home, *table.args, "-model", REAL) as server:
        yield table, server
    table.stop()


def test_pairwise_rows_hold_every_pair():
    axes = (DIALECTS, DIALECTS, (True, False), SECONDS)
    rows = pairwise(*axes)
    met = {p for row in rows for p in itertools.combinations(enumerate(row), 2)}
    assert met == set(pairs_of(axes)) and len(rows) < 40


def tell(rows, wrong, took):
    """The table of the long tier: a row each fault, a column each second leg."""
    count = collections.Counter((c[0], c[4]) for c in rows)
    bad = collections.Counter((c[0], c[4]) for c in wrong)
    print(f"\n{'FAULT':<14}" + "".join(f"{s:>12}" for s in SECONDS))
    for fault in FAULTS:
        print(f"{fault:<14}" + "".join(f"{count[fault, s] - bad[fault, s]:>7}/{count[fault, s]:<4}"
                                       for s in SECONDS))
    print(f"{len(rows)} cells, {len(wrong)} wrong, {took:.0f} s")


def test_G04_G05_G06_G07_every_cell_of_the_fault_table(table):
    """With another leg that may help: 200, the text that nobody interrupted, the right end, and the
    substitution told. Without: the status, or the stream's own error behind a part of the text."""
    rows, before = cells(IS_WHOLE), time.monotonic()
    wrong = run(*table, rows)
    if IS_WHOLE:
        tell(rows, wrong, time.monotonic() - before)
    first = {(c[0], c[4], w[0]): f"{c}: {str(w)[:400]}" for c, w in reversed(wrong.items())}
    assert not wrong, f"{len(wrong)} of {len(rows)}:\n" + "\n".join(list(first.values())[:40])


# ---------------------------------------------------------------- the first leg is an engine

@pytest.fixture(scope="module")
def engines(tmp_path_factory, said):
    """Engines "one" and "two" of the same weights; model "one-SECOND" goes on as SECOND says."""
    home = tmp_path_factory.mktemp("engines")
    (home / "said").write_text(said)
    stub = Stub(home, "-text", str(home / "said"))
    path = two_engines(home)
    legs = {"one": {"kind": "engine", "model": "one"}, "two": {"kind": "engine", "model": "two"}}
    routes = [{"match": {"model": "one-none"}, "legs": ["one"]},
              {"match": {"model": "one-local"}, "legs": ["one", "two"]}]
    for d in DIALECTS:
        legs[f"b-{d}"] = {"kind": "upstream", "dialect": d, "continue": CONTINUE[d],
                          "url": f"http://127.0.0.1:{stub.port}", "max_inflight": 500,
                          "model": "x/ok"}
        routes.append({"match": {"model": f"one-{d}"}, "legs": ["one", f"b-{d}"]})
    path.write_text(config_of(legs, routes, [
        f"sources: {{dirs: [{home / 'models'}]}}", "engine: {resident: 2, ctx: 1024, slots: 64}",
        "deadlines: {engine_stall: 3s, first_token: 60s, gap: 60s}", "probes: {free: false}"]))
    with serving(home, "-config", str(path), "-model", "one", "-model", "two") as server:
        yield server
    stub.stop()


def engine_pid(server, but=None):
    """Of "one", once both are loaded and it is not the process that was killed."""
    def loaded():
        rows = {m["name"]: m for m in server.get("/v1/status").json()["models"]}
        is_there = all(rows[n]["state"] == "loaded" for n in ("one", "two"))
        return is_there and rows["one"]["pid"] != but and rows["one"]["pid"]
    return wait_until(loaded, 60)


# an upstream that speaks Responses takes no unfinished turn: it is the table's business above
ENGINE_CELLS = list(itertools.product(DIALECTS, (True, False),
                                      [s for s in SECONDS if s != "responses"]))


@pytest.mark.parametrize("number, reason", [(signal.SIGKILL, "engine_crash"),
                                            (signal.SIGSTOP, "engine_wedged")])
def test_G23_an_engine_that_dies_or_stands_still_is_gone_on_from_in_every_cell(
        engines, said, number, reason):
    """By itself once it is back, by the other engine, by an upstream of each protocol."""
    pid = engine_pid(engines)

    def one(cell):
        client, stream, second = cell
        return engines.post(PATHS[client], body_of(client, f"one-{second}", stream), timeout=60)

    with concurrent.futures.ThreadPoolExecutor(len(ENGINE_CELLS)) as pool:
        jobs = {cell: pool.submit(one, cell) for cell in ENGINE_CELLS}
        wait_until(lambda: engines.metric("shoal_running") > len(ENGINE_CELLS) // 2)
        os.kill(pid, number)
        replies = {cell: job.result() for cell, job in jobs.items()}
    wrong, moved = [], 0
    for (client, stream, second), r in replies.items():
        got = (read_streamed if stream else read_at_once)(client, r.body) if r.status == 200 else ()
        told = reason.encode() in r.body or reason in r.headers.get("shoal-substituted", "")
        moved += told
        if got != (said, "ok") or (told and second == "none"):
            wrong.append((client, stream, second, r.status, got, dict(r.headers), told))
    assert not wrong, wrong
    assert moved > len(ENGINE_CELLS) // 2, moved
    assert engine_pid(engines, pid)


def test_a_third_crash_under_one_request_ends_it_with_its_protocols_error(engines):
    """BEHAVIOUR 8.6: two respawns each request, and never a clean end."""
    engine_pid(engines)
    ends = {}

    def one(client, stream):
        return engines.post(PATHS[client], body_of(client, "one-none", stream, LONG), timeout=60)

    def kill_thrice():
        pid = None
        for _ in range(3):
            pid = engine_pid(engines, pid)
            before = engines.metric("shoal_eval_tokens_total")
            wait_until(lambda: engines.metric("shoal_eval_tokens_total") > before + 50, 60)
            os.kill(pid, signal.SIGKILL)

    cells_ = list(itertools.product(DIALECTS, (True, False)))
    with concurrent.futures.ThreadPoolExecutor(len(cells_)) as pool:
        jobs = {c: pool.submit(one, *c) for c in cells_}
        kill_thrice()
        for (client, stream), job in jobs.items():
            r = job.result()
            ends[client, stream] = read_streamed(client, r.body)[1] if stream else r.status
    want = {(c, s): "error" if s else 529 if c == "anthropic" else 503 for c, s in cells_}
    assert ends == want
