"""The endpoint itself is told to end under streams, and starts again: what clients of the four
protocols see, and what is known afterwards (BEHAVIOUR 5.4, 9.5)."""
import concurrent.futures
import itertools
import signal
import time

from fault_table import LONG, PATHS, body_of
from server import REAL, Server, wait_until
from legs import CONTINUE, DIALECTS, Stub, ask, config_of, read_stream


def test_SIGTERM_ends_every_stream_with_its_protocols_error_and_a_restart_knows_all(tmp_path):
    slow, bad = Stub(tmp_path, "-fault", "slow=100", "-words", "1000"), \
        Stub(tmp_path, "-fault", "status=500")
    path = tmp_path / "config.yaml"
    leg = {"kind": "upstream", "model": "x"}
    legs = {f"c-{d}": {**leg, "dialect": d, "continue": CONTINUE[d],
                       "url": f"http://127.0.0.1:{slow.port}"} for d in DIALECTS}
    legs["broken"] = {**leg, "dialect": "openai", "url": f"http://127.0.0.1:{bad.port}"}
    ranks = [f"c-{d}" for d in DIALECTS]
    path.write_text(config_of(
        legs, [{"match": {"model": "cloud"}, "legs": [ranks]},
               {"match": {"model": "broken"}, "legs": ["broken", "c-openai"]}],
        ["breaker: {failures: 3, cooldown: 5m}", "probes: {free: false}",
         "limits: {grace: 100ms}"]))
    args = ("-config", str(path), "-model", REAL, "-ctx", "4096")
    server = Server(tmp_path, *args)
    args += ("-addr", f"127.0.0.1:{server.port}")
    try:
        for _ in range(3):  # opens the breaker; one word each is enough
            assert ask(server, "openai", "broken", False, max_tokens=1).status == 200
        session = {"prompt_cache_key": "desk-7", "max_tokens": 1}
        pinned = ask(server, "openai", "cloud", False, **session).headers["shoal-leg"]
        cells, asked = list(itertools.product(DIALECTS, (True, False))), slow.chats()
        with concurrent.futures.ThreadPoolExecutor(2 * len(cells)) as pool:
            def send(model):
                return {(client, model, stream): pool.submit(
                    server.post, PATHS[client], body_of(client, model, stream, LONG))
                    for client, stream in cells}
            jobs = send("cloud")
            wait_until(lambda: slow.chats() == asked + len(cells))
            time.sleep(1)  # some words of a thousand
            jobs |= send(server.model())
            here = f'{{model="{server.model()}"}}'  # what the cloud's replies do is no matter
            wait_until(lambda: server.metric("shoal_running" + here) == len(cells))
            before = server.metric("shoal_eval_tokens_total" + here)
            wait_until(lambda: server.metric("shoal_eval_tokens_total" + here) > before + 40)
            server.process.send_signal(signal.SIGTERM)
            replies = {c: j.result() for c, j in jobs.items()}
        assert server.process.wait(20) == 0
        for (client, model, stream), r in replies.items():
            what = (client, model, stream, r.status, r.body[-300:])
            if not stream:
                assert r.status == (529 if client == "anthropic" else 503), what
                continue
            text, end = read_stream(client, r.body)
            assert r.status == 200 and text and end == "error", what
            assert b"the server is stopping" in r.body, what
    finally:
        server.stop()
    begun = time.monotonic()
    server = Server(tmp_path, *args, ready=False)
    try:
        row = next(x for x in server.get("/v1/routes").json()["legs"] if x["name"] == "broken")
        assert time.monotonic() - begun < 2
        assert (row["state"], row["reason"], row["openings"]) == ("open", "http_5xx", 1)
        for _ in range(3):
            assert ask(server, "openai", "cloud", False, **session).headers["shoal-leg"] == pinned
        r = ask(server, "openai", "broken", False, max_tokens=1)
        assert r.headers["shoal-substituted"] == "from=broken; to=c-openai; reason=open"
    finally:
        assert server.stop() == 0
        slow.stop()
        bad.stop()
