"""How soon the next leg is asked once a limit has passed: told by a door before each `shoal stub`
that notes when bytes of a request come. And legs that all fail at once and come back."""
import concurrent.futures
import itertools
import socket
import threading
import time
import urllib.request

from server import serving, wait_until
from legs import QUIET, Stub, ask, config_of

LIMIT_MS = 300


class Door:
    """Passes everything on and knows when the last request's first bytes came."""

    def __init__(self, to_port):
        self.to_port, self.times = to_port, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            stub = socket.create_connection(("127.0.0.1", self.to_port))
            for pair in ((client, stub, self.times), (stub, client, None)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    @staticmethod
    def _pass(source, sink, times):
        try:
            while piece := source.recv(65536):
                if times is not None:
                    times.append(time.monotonic())
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def stop(self):
        self.socket.close()


def test_G01_the_next_legs_request_leaves_at_most_10_ms_after_the_limit(tmp_path):
    """The least of five runs: a machine with other work wakes everybody late. What the first door
    sees is a moment after the clock of the limit began, so a run may look that much too early."""
    stubs = [Stub(tmp_path), Stub(tmp_path)]
    doors = [Door(s.port) for s in stubs]
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {"cloud": {"kind": "upstream", "dialect": "openai", "model": "x/hang_header",
                   "url": f"http://127.0.0.1:{doors[0].port}"},
         "desk": {"kind": "upstream", "dialect": "anthropic", "model": "x/ok",
                  "url": f"http://127.0.0.1:{doors[1].port}"}},
        [{"match": {}, "legs": ["cloud", "desk"]}],
        [f"deadlines: {{first_token: {LIMIT_MS}ms}}", *QUIET]))
    late_ms = []
    with serving(tmp_path, "-config", str(path)) as server:
        for run in range(-1, 5):  # the first opens connections and threads: not measured
            for door in doors:
                door.times.clear()
            r = ask(server, "openai", "m", run % 2 == 0)
            assert r.status == 200 and r.headers["shoal-leg"] == "desk", r.body
            assert r.headers["shoal-substituted"].endswith("reason=hang_header")
            if run >= 0:
                late_ms.append((doors[1].times[0] - doors[0].times[0]) * 1000 - LIMIT_MS)
    assert min(late_ms) <= 10, late_ms
    assert min(late_ms) > -20, late_ms
    for thing in [*doors, *stubs]:
        thing.stop()


def test_an_automatic_limit_is_learned_from_the_legs_own_first_tokens(tmp_path):
    """Twenty quick answers: a silence is one after 15 s. Without them it would be after 30 s."""
    cloud, desk = Stub(tmp_path), Stub(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {n: {"kind": "upstream", "dialect": "openai", "model": "x",
             "url": f"http://127.0.0.1:{s.port}"} for n, s in (("cloud", cloud), ("desk", desk))},
        [{"match": {}, "legs": ["cloud", "desk"]}], ["probes: {free: false}"]))
    with serving(tmp_path, "-config", str(path)) as server:
        for _ in range(20):
            assert ask(server, "openai", "m", False).headers["shoal-leg"] == "cloud"
        urllib.request.urlopen(urllib.request.Request(
            f"http://127.0.0.1:{cloud.port}/stub/fault", b"hang_header", method="POST"), timeout=10)
        begun = time.monotonic()
        r = ask(server, "openai", "m", False, timeout=60)
        assert r.headers["shoal-substituted"] == "from=cloud; to=desk; reason=hang_header"
        assert 14.9 < time.monotonic() - begun < 25
    cloud.stop()
    desk.stop()


def test_G25_a_moment_without_any_leg_removes_none_of_them(tmp_path):
    stubs = [Stub(tmp_path) for _ in range(3)]
    ports = [s.port for s in stubs]
    path = tmp_path / "config.yaml"
    path.write_text(config_of(
        {f"n{i}": {"kind": "upstream", "dialect": "openai", "model": f"x{i}",
                   "url": f"http://127.0.0.1:{port}"} for i, port in enumerate(ports)},
        [{"match": {}, "legs": [["n0", "n1", "n2"]]}],
        ["deadlines: {all_open_wait: 5s}", "probes: {free: false}",
         "breaker: {failures: 1, cooldown: 500ms}"]))
    with serving(tmp_path, "-config", str(path)) as server:
        new = itertools.count()

        def used():  # by new agents: those that were served elsewhere stay there
            return {ask(server, "openai", "m", False, user=f"agent-{next(new)}").headers[
                "shoal-leg"] for _ in range(24)}

        assert used() == {"n0", "n1", "n2"}
        stubs[0].stop()  # one is dead: the others take its agents
        assert used() == {"n1", "n2"}
        for s in stubs[1:]:
            s.stop()
        assert ask(server, "openai", "m", False).status in (502, 503)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:  # asked while nobody is there
            jobs = [pool.submit(ask, server, "openai", "m", False) for _ in range(8)]
            stubs = [Stub(tmp_path, "-port", str(port)) for port in ports]
            statuses = [j.result().status for j in jobs]
        assert set(statuses) <= {200, 502, 503}, statuses
        rows = server.get("/v1/routes").json()["legs"]
        assert [r["name"] for r in rows] == ["n0", "n1", "n2"]
        wait_until(lambda: ask(server, "openai", "m", False).status == 200)
        wait_until(lambda: used() == {"n0", "n1", "n2"}, 30)  # each has come back
    for s in stubs:
        s.stop()
