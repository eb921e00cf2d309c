"""Faults below HTTP: names, connections, certificates. The first leg has one, the second is well:
every client gets the whole text on its own protocol; alone, its protocol's error."""
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest

from conftest import ROOT
from proxy import Proxy
from server import serving
from legs import CONTINUE, DIALECTS, QUIET, Stub, all_of, ask, config_of, read_stream, read_whole

LIMITS = ["deadlines: {connect: 1s, first_token: 2s, gap: 1s, all_open_wait: 1s}",
          *QUIET]


def certificate(home, name, days=None):
    """A certificate for localhost that signs itself; days None: one that ended in 2020."""
    key, pem = home / f"{name}.key", home / f"{name}.pem"
    more = ["-addext", "subjectAltName=DNS:localhost", "-subj", "/CN=localhost"]
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key)]
    if days:
        subprocess.run([*new, "-x509", "-days", str(days), "-out", str(pem), *more], check=True,
                       capture_output=True)
        return pem, key
    (home / "index").write_text("")
    (home / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=c\n[c]\ndatabase={home}/index\nnew_certs_dir={home}\nrand_serial=yes\n"
        "default_md=sha256\npolicy=p\ncopy_extensions=copy\n[p]\ncommonName=supplied\n")
    subprocess.run([*new, "-out", str(home / "csr"), *more], check=True, capture_output=True)
    subprocess.run(["openssl", "ca", "-selfsign", "-batch", "-notext", "-config",
                    str(home / "ca.cnf"), "-keyfile", str(key), "-in", str(home / "csr"), "-out",
                    str(pem), "-startdate", "20200101000000Z", "-enddate", "20200102000000Z"],
                   check=True, capture_output=True)
    return pem, key


def tls_server(pem, key):
    """Accepts and shakes hands; who trusts the certificate never comes so far."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    s = socket.create_server(("127.0.0.1", 0))

    def shake(c):
        try:
            context.wrap_socket(c, server_side=True).close()
        except OSError:  # an SSLError is one
            pass

    def run():
        while True:
            try:
                c, _ = s.accept()
            except OSError:
                return
            threading.Thread(target=shake, args=(c,), daemon=True).start()
    threading.Thread(target=run, daemon=True).start()
    return s


def plain_server():
    """Says that it speaks HTTP, whatever it is told."""
    s = socket.create_server(("127.0.0.1", 0))

    def run():
        while True:
            try:
                c, _ = s.accept()
            except OSError:
                return
            c.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            c.close()
    threading.Thread(target=run, daemon=True).start()
    return s


# name -> (class, was something said before, status alone)
FAULTS = {
    "no_such_name": ("connect", False, 502), "nobody_listens": ("connect", False, 502),
    "deaf": ("connect", False, 502), "self_signed": ("tls", False, 502),
    "expired": ("tls", False, 502), "wrong_name": ("tls", False, 502),
    "no_tls_there": ("tls", False, 502), "reset_at_0": ("cut", False, 502),
    "reset_in_header": ("cut", False, 502), "reset_in_text": ("cut", None, 502),
    "half_open_at_0": ("hang_header", False, 504), "half_open_in_text": ("stall", None, 504),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Model "two-FAULT-PROTOCOL" has a second leg, "one-..." none."""
    home = tmp_path_factory.mktemp("net")
    stub = Stub(home)
    good, old = certificate(home, "good", 2), certificate(home, "old")
    tls = {"self_signed": tls_server(*good), "expired": tls_server(*old),
           "wrong_name": tls_server(*good), "no_tls_there": plain_server()}
    proxies = {"deaf": Proxy(stub.port, "deaf"), "reset_at_0": Proxy(stub.port, "reset", 0),
               "reset_in_header": Proxy(stub.port, "reset", 40),
               "reset_in_text": Proxy(stub.port, "reset", 3000),
               "half_open_at_0": Proxy(stub.port, "half_open", 0),
               "half_open_in_text": Proxy(stub.port, "half_open", 3000),
               "delay": Proxy(stub.port, "delay", 100),
               "trickle": Proxy(stub.port, "trickle", 0)}
    urls = {name: f"http://127.0.0.1:{p.port}" for name, p in proxies.items()}
    urls |= {name: f"https://localhost:{s.getsockname()[1]}" for name, s in tls.items()}
    urls["wrong_name"] = urls["wrong_name"].replace("localhost", "127.0.0.1")
    urls |= {"no_such_name": "http://no-such-name.invalid", "nobody_listens": "http://127.0.0.1:1"}
    roots = {"expired": str(old[0]), "wrong_name": str(good[0])}
    legs, routes = {}, []
    for i, d in enumerate(DIALECTS):
        other = DIALECTS[(i + 1) % 3]
        legs[f"good-{d}"] = {"kind": "upstream", "dialect": d, "continue": CONTINUE[d],
                             "url": f"http://127.0.0.1:{stub.port}", "model": "x",
                             "max_inflight": 500}
        for name, url in urls.items():
            leg = {"kind": "upstream", "dialect": d, "continue": CONTINUE[d], "url": url,
                   "model": "x", "max_inflight": 500}
            if name in roots:
                leg["ca_file"] = roots[name]
            legs[f"{name}-{d}"] = leg
            routes.append({"match": {"model": f"two-{name}-{d}"},
                           "legs": [f"{name}-{d}", f"good-{other}"]})
            routes.append({"match": {"model": f"one-{name}-{d}"}, "legs": [f"{name}-{d}"]})
    routes.append({"match": {"model": "good"}, "legs": ["good-openai"]})
    path = home / "config.yaml"
    path.write_text(config_of(legs, routes, LIMITS))
    with serving(home, "-config", str(path)) as server:
        yield server, read_whole("openai", ask(server, "openai", "good", False).body)
    stub.stop()
    for p in proxies.values():
        p.stop()
    for s in tls.values():
        s.close()


@pytest.mark.parametrize("upstream", DIALECTS)
def test_a_fault_of_the_network_is_gone_on_from_in_every_protocol(world, upstream):
    server, whole = world

    def run(fault, client, stream):
        r = ask(server, client, f"two-{fault}-{upstream}", stream)
        what = (fault, client, stream, r.status, r.body[-200:])
        assert r.status == 200, what
        got = read_stream(client, r.body) if stream else (read_whole(client, r.body), "ok")
        assert got == (whole, "ok"), what
        class_, before, _ = FAULTS[fault]
        if before is False:
            assert r.headers["shoal-substituted"].endswith("reason=" + class_), (what, r.headers)
        else:
            assert f'"reason":"{class_}"'.encode() in r.body or \
                r.headers.get("shoal-substituted", "").endswith("reason=" + class_), what
    all_of(run, FAULTS, DIALECTS, (True, False))


@pytest.mark.parametrize("upstream", DIALECTS)
def test_a_fault_of_the_network_without_another_leg_is_an_error_and_no_end(world, upstream):
    server, whole = world

    def run(fault, client, stream):
        r = ask(server, client, f"one-{fault}-{upstream}", stream)
        what = (fault, client, stream, r.status, r.body[-200:])
        if r.status != 200:
            assert r.status == FAULTS[fault][2], what
            return
        assert stream and FAULTS[fault][1] is None, what
        text, end = read_stream(client, r.body)
        assert end == "error" and whole.startswith(text), what
    all_of(run, FAULTS, DIALECTS, (True, False))


def test_a_slow_network_is_no_fault(world):
    server, whole = world
    for upstream in DIALECTS:
        for fault in ("delay", "trickle"):
            r = ask(server, "openai", f"two-{fault}-{upstream}", True)
            assert read_stream("openai", r.body) == (whole, "ok")
            assert r.headers["shoal-leg"] == f"{fault}-{upstream}"
            assert b"failover" not in r.body


# ---------------------------------------------------------------- a name server that says nothing

def test_a_silent_name_server_blocks_nobody(tmp_path):
    """In a network of its own, with a name server on its loopback that never answers."""
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    here = os.path.join(ROOT, "tests", "e2e", "silent_names.py")
    done = subprocess.run(
        ["unshare", "-rnm", "sh", "-c", 'ip link set lo up && mount --bind "$0" /etc/resolv.conf '
         '&& exec "$@"', str(tmp_path / "resolv.conf"), sys.executable, here, str(tmp_path)],
        capture_output=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    got = json.loads(done.stdout)
    assert got["asked"] >= 1 and got["statuses"] == [200] * 20
    assert all(re.search("reason=connect$", s) for s in got["substituted"])
    assert 0.9 < got["slowest_s"] < 2.5  # connect: 1s, and then the next leg at once
    assert got["others"] > 20 and got["slowest_other_s"] < 0.5
    assert got["alone"] == 502 and got["alone_s"] < 2.5
