"""Run by test_faults_net in a network of its own: /etc/resolv.conf names 127.0.0.1, where a socket
takes questions and never answers. Prints what clients saw as JSON."""
import concurrent.futures
import json
import pathlib
import socket
import sys
import threading
import time

from server import serving
from legs import QUIET, Stub, ask, config_of


def timed(server, model):
    start = time.monotonic()
    r = ask(server, "openai", model, False)
    return r, time.monotonic() - start


def main(home):
    asked = []
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    threading.Thread(target=lambda: [asked.append(names.recv(512)) for _ in iter(int, 1)],
                     daemon=True).start()
    stub = Stub(home)
    leg = {"kind": "upstream", "dialect": "openai", "model": "x"}
    path = home / "config.yaml"
    path.write_text(config_of(
        {"cloud": {**leg, "url": "http://api.cloud.example"},
         "desk": {**leg, "url": f"http://127.0.0.1:{stub.port}"}},
        [{"match": {"model": "both"}, "legs": ["cloud", "desk"]},
         {"match": {"model": "cloud"}, "legs": ["cloud"]},
         {"match": {"model": "desk"}, "legs": ["desk"]}],
        ["deadlines: {connect: 1s}", *QUIET]))
    with serving(home, "-config", str(path)) as server, \
            concurrent.futures.ThreadPoolExecutor(21) as pool:
        jobs = [pool.submit(timed, server, "both") for _ in range(20)]
        others = []
        while not all(j.done() for j in jobs):
            others.append(timed(server, "desk")[1])
            time.sleep(0.01)
        replies = [j.result() for j in jobs]
        alone, alone_s = timed(server, "cloud")
    stub.stop()
    print(json.dumps({
        "asked": len(asked), "statuses": [r.status for r, _ in replies],
        "substituted": [r.headers.get("shoal-substituted", "") for r, _ in replies],
        "slowest_s": max(s for _, s in replies), "others": len(others),
        "slowest_other_s": max(others), "alone": alone.status, "alone_s": alone_s}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
