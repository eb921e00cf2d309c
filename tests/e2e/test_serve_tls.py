"""HTTPS by configuration: real clients, wrong files, a renewed certificate."""
import contextlib
import os
import signal
import socket
import ssl
import subprocess

import httpx
import openai
import pytest

from conftest import SHOAL
from server import TINY, serving, wait_until


def certificate(folder, name, mode=0o600):
    """(cert, key) for localhost, signed by itself."""
    cert, key = os.path.join(folder, f"{name}.pem"), os.path.join(folder, f"{name}.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert,
                    "-days", "2", "-subj", f"/CN={name}", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                   check=True, stderr=subprocess.DEVNULL)
    os.chmod(key, mode)
    return cert, key


def trust(cert):
    return ssl.create_default_context(cafile=cert)


def flags(pair):
    return "-tls-cert", pair[0], "-tls-key", pair[1]


def test_python_and_the_openai_sdk_speak_tls(home):
    pair = certificate(home, "one")
    context = trust(pair[0])
    with serving(home, "-model", TINY, *flags(pair), context=context) as server:
        assert "https://127.0.0.1" in server.banner
        assert server.chat(max_tokens=3).status == 200
        with httpx.Client(verify=context) as http:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="x", http_client=http)
            plain = client.chat.completions.create(
                model="llama", messages=[{"role": "user", "content": "ab"}], max_tokens=40,
                temperature=0, extra_body={"ignore_eos": True})
            pieces = client.chat.completions.create(
                model="llama", messages=[{"role": "user", "content": "ab"}], max_tokens=40,
                temperature=0, stream=True, extra_body={"ignore_eos": True})
            text = "".join(c.choices[0].delta.content or "" for c in pieces if c.choices)
            assert text == plain.choices[0].message.content
        body = {"model": "llama", "messages": [{"role": "user", "content": "x " * 400_000}]}
        assert server.post("/v1/chat/completions", body).status == 400  # 800 KB in, told back


def test_an_end_of_file_is_said_before_it_comes(home):
    """HTTP/1.0 ends a reply by closing: without close_notify it could have been cut."""
    pair = certificate(home, "one")
    context = trust(pair[0])
    with serving(home, *flags(pair), context=context) as server:
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        with context.wrap_socket(raw, server_hostname="localhost",
                                 suppress_ragged_eofs=False) as s:
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            got = b""
            while piece := s.recv(4096):  # an EOF without goodbye raises SSLEOFError
                got += piece
            assert got.endswith(b"shoal is running\n")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_protocols_and_plain_http_are_turned_away_alone(home):
    pair = certificate(home, "one")
    context = trust(pair[0])
    with serving(home, *flags(pair), context=context) as server:
        old = ssl.create_default_context(cafile=pair[0])
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, OSError)):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
                old.wrap_socket(raw, server_hostname="localhost")
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert b"shoal is running" not in raw.recv(4096)
        assert server.get("/health").status == 200


@pytest.mark.parametrize("case,words", [
    ("no key", "tls.cert is set and tls.key is not"),
    ("missing", "tls.cert"),
    ("open", "mode 644 lets others read it"),
    ("mixed", "tls.key"),
    ("garbage", "tls.cert"),
])
def test_wrong_files_are_refused_by_name(home, shoal, case, words):
    one, two = certificate(home, "one"), certificate(home, "two")
    if case == "open":
        os.chmod(one[1], 0o644)
    if case == "garbage":
        with open(one[0], "w", encoding="ascii") as f:
            f.write("no certificate\n")
    args = {"no key": ("-tls-cert", one[0]), "missing": flags((one[0] + "x", one[1])),
            "mixed": flags((one[0], two[1]))}.get(case, flags(one))
    done = shoal("serve", "-dry-run", *args)
    assert done.returncode == 1 and words in done.stderr, done.stderr
    if case != "no key":
        assert home.name in done.stderr  # the file is named


def served_certificate(server, context):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        with context.wrap_socket(raw, server_hostname="localhost") as s:
            return s.getpeercert(binary_form=True)


def test_a_renewed_certificate_is_used_after_a_hangup_a_bad_one_is_not(home):
    pair, new = certificate(home, "one"), certificate(home, "two")
    context = trust(pair[0])
    context.load_verify_locations(cafile=new[0])
    with serving(home, "-model", TINY, *flags(pair), context=context) as server:
        before = served_certificate(server, context)
        kept = context.wrap_socket(server.connect(), server_hostname="localhost")
        os.replace(new[0], pair[0])  # a certificate without its key
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload refused" in server.errors())
        assert served_certificate(server, context) == before
        os.replace(new[1], pair[1])
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: served_certificate(server, context) != before)
        kept.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"shoal is running" in kept.recv(4096)
        kept.close()


def test_our_own_commands_speak_tls(home):
    """https:// in the address, or tls.cert in the configuration; a certificate nobody knows, or
    of another name, is refused in one sentence; http:// stays plain."""
    pair = certificate(home, "own")
    config = os.path.join(home, "c.yaml")
    with open(config, "w", encoding="utf-8") as f:
        f.write(f"tls: {{cert: {pair[0]}, key: {pair[1]}}}\n")

    def run(*args, trusted="", timeout=60):
        env = {"HOME": str(home), "PATH": os.environ["PATH"], "SSL_CERT_FILE": trusted}
        return subprocess.run([SHOAL, *args], capture_output=True, text=True, env=env,
                              timeout=timeout, stdin=subprocess.DEVNULL)

    with serving(home, "-model", TINY, *flags(pair), context=trust(pair[0])) as server:
        at = f"127.0.0.1:{server.port}"
        known = run("ps", "-addr", f"https://localhost:{server.port}/", trusted=pair[0])
        assert known.returncode == 0 and "llama" in known.stdout, known.stderr
        configured = run("ps", "-config", config, "-addr", at)
        assert configured.returncode == 0 and "llama" in configured.stdout, configured.stderr
        said = run("run", "-config", config, "-addr", at, "-n", "5", "llama", "ab")
        assert said.returncode == 0 and said.stdout.strip(), said.stderr
        unknown = run("ps", "-addr", f"https://{at}")
        assert unknown.returncode == 1 and "certificate" in unknown.stderr, unknown.stderr
        assert unknown.stderr.count("\n") == 1
        plain = run("ps", "-config", config, "-addr", f"http://{at}")
        assert plain.returncode == 1 and plain.stderr.count("\n") == 1
        stopped = run("stop", "-config", config, "-addr", at)
        assert stopped.returncode == 0 and stopped.stdout == "stopped\n", stopped.stderr
        gone = run("ps", "-config", config, "-addr", at)
        assert gone.returncode == 1 and "no shoal server" in gone.stderr


def test_a_certificate_of_another_name_is_refused(home):
    pair = certificate(home, "own")
    with serving(home, "-model", TINY, *flags(pair), context=trust(pair[0])) as server:
        done = subprocess.run([SHOAL, "ps", "-addr", f"https://127.0.0.2:{server.port}"],
                              capture_output=True, text=True, timeout=60,
                              env={"HOME": str(home), "SSL_CERT_FILE": pair[0]})
        assert done.returncode == 1, done.stdout
        assert "mismatch" in done.stderr or "no shoal server" in done.stderr, done.stderr
