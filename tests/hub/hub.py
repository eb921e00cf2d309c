#!/usr/bin/env python3
"""A hub on loopback whose every fault can be scripted: the models API, resolve, a "CDN".

    hub = Hub(); hub.add("o/r", {"m.gguf": bytes}); hub.fault("reset", times=2, where="cdn")

Two origins: `hub.url` lists and redirects, `hub.cdn_url` serves the bytes under signed addresses.
By hand: tests/hub/hub.py DIRECTORY serves DIRECTORY/owner/repo/FILES; Ctrl-C "cuts the network".
"""
import base64
import hashlib
import http.server
import json
import os
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse


class Request:
    """What arrived, for assertions."""

    def __init__(self, where, handler):
        self.where, self.method, self.path = where, handler.command, handler.path
        self.headers = {k.lower(): v for k, v in handler.headers.items()}
        self.range = None
        text = self.headers.get("range", "")
        if text.startswith("bytes="):
            first, last = text[6:].split("-")
            self.range = (int(first), int(last))


class Fault:
    def __init__(self, name, times, where, when, more):
        self.name, self.times, self.where, self.when, self.more = name, times, where, when, more
        self.hits = 0


class Repo:
    def __init__(self, files, commit, model_type, gated):
        self.files, self.commit, self.model_type, self.gated = files, commit, model_type, gated
        self.sums = {}

    def sha256(self, name):
        if name not in self.sums:
            data = self.files[name]
            if isinstance(data, str):
                with open(data, "rb") as f:
                    self.sums[name] = hashlib.file_digest(f, "sha256").hexdigest()
            else:
                self.sums[name] = hashlib.sha256(data).hexdigest()
        return self.sums[name]

    def size(self, name):
        data = self.files[name]
        return os.path.getsize(data) if isinstance(data, str) else len(data)

    def read(self, name, first, last):
        data = self.files[name]
        if isinstance(data, str):
            with open(data, "rb") as f:
                f.seek(first)
                return f.read(last - first + 1)
        return data[first:last + 1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 0
    where = hub = None

    def log_message(self, *args):
        pass

    def do_GET(self):
        request = Request(self.where, self)
        with self.hub.lock:
            self.hub.requests.append(request)
        if self.where == "proxy":
            self.hub.answer_proxy(self, request)
            return
        try:
            fault = self.hub.take_fault(request)
            if fault and getattr(self, "fault_" + fault.name)(request, fault):
                return
            path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
            if self.where == "cdn":
                self.answer_cdn(request, path)
            elif path.startswith("/api/models"):
                self.answer_api(request, path)
            else:
                self.answer_resolve(request, path)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True

    # ------------------------------------------------------------ answers

    def reply(self, status, body=b"", kind="application/json", headers=()):
        self.send_response(status)
        for key, value in headers:
            self.send_header(key, value)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, text, headers=()):
        self.reply(status, json.dumps({"error": text}).encode(), headers=headers)

    def may_see(self, repo):
        return not repo.gated or self.headers.get("Authorization") == f"Bearer {self.hub.token}"

    def answer_api(self, request, path):
        if path == "/api/models":
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            word = query["search"][0].lower()
            found = [{"id": name} for name in self.hub.repos if word in name.lower()]
            self.reply(200, json.dumps(found).encode())
            return
        parts = path[len("/api/models/"):].split("/revision/")
        repo = self.hub.repos.get(parts[0])
        if repo is None or parts[1] not in ("main", repo.commit):
            self.refuse(404, "Repository not found")
        elif not self.may_see(repo):
            self.refuse(401, "Invalid credentials in Authorization header",
                        [("WWW-Authenticate", 'Bearer realm="https://auth.example/token"')])
        else:
            siblings = []
            for name in repo.files:
                row = {"rfilename": name, "size": repo.size(name)}
                if name.endswith((".gguf", ".safetensors")) and self.hub.has_lfs:
                    row["lfs"] = {"sha256": self.hub.listed_sha.get(name) or repo.sha256(name),
                                  "size": repo.size(name), "pointerSize": 135}
                siblings.append(row)
            body = {"id": parts[0], "sha": repo.commit, "siblings": siblings}
            if repo.model_type:
                body["config"] = {"model_type": repo.model_type}
            self.reply(200, json.dumps(body).encode())

    def find(self, path):
        owner, name, _, revision, rest = path.lstrip("/").split("/", 4)
        repo = self.hub.repos.get(f"{owner}/{name}")
        if repo is None or revision not in ("main", repo.commit) or rest not in repo.files:
            return None, None
        return repo, rest

    def answer_resolve(self, request, path):
        repo, name = self.find(path)
        if repo is None:
            self.refuse(404, "Entry not found")
        elif not self.may_see(repo):
            self.refuse(403, "Access to this repository is restricted")
        elif self.hub.redirects and name.endswith((".gguf", ".safetensors")):
            target = f"{self.hub.cdn_url}{urllib.parse.quote(path)}?sig={self.hub.signature}"
            self.reply(302, b"Found", "text/plain", [("Location", target)])
        else:
            self.send_file(request, repo, name)

    def answer_cdn(self, request, path):
        repo, name = self.find(path)
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        if query.get("sig") != [str(self.hub.signature)]:
            self.reply(403, b"<Error>expired</Error>", "application/xml")
        elif repo is None:
            self.reply(404, b"<Error>NoSuchKey</Error>", "application/xml")
        else:
            self.send_file(request, repo, name)

    def head_of_file(self, request, repo, name, first, last, size=None, more=()):
        self.send_response(206 if request.range else 200)
        if request.range:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size or repo.size(name)}")
        kind = "application/octet-stream" if name.endswith((".gguf", ".safetensors")) else \
            "text/plain; charset=utf-8"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(last - first + 1))
        if self.hub.has_etag:
            self.send_header("ETag", f'"{self.hub.etag or repo.sha256(name)[:32]}"')
        for key, value in more:
            self.send_header(key, value)
        self.end_headers()

    def bounds(self, request, repo, name):
        return request.range or (0, repo.size(name) - 1)

    def send_file(self, request, repo, name):
        first, last = self.bounds(request, repo, name)
        last = min(last, repo.size(name) - 1)
        if first > last and repo.size(name):
            self.reply(416, b"")
            return
        more = []
        if self.hub.digest and last >= first:
            data = repo.read(name, first, last)
            sum = hashlib.new(self.hub.digest, data).digest()
            text = base64.b64encode(sum).decode()
            more = [("Content-MD5", text) if self.hub.digest == "md5" else
                    ("Content-Digest", f"sha-256=:{text}:")]
        self.head_of_file(request, repo, name, first, last, more=more)
        data = repo.files[name]
        if isinstance(data, str) and not self.hub.tls:
            with open(data, "rb") as f:
                while first <= last:
                    first += os.sendfile(self.connection.fileno(), f.fileno(), first,
                                         last - first + 1)
        else:
            self.send_slowly(data[first:last + 1] if not isinstance(data, str)
                             else repo.read(name, first, last))

    def send_slowly(self, data):
        """In blocks, so that the rate can be limited."""
        step = 16384 if self.hub.rate else 1 << 20
        for at in range(0, len(data), step):
            self.wfile.write(data[at:at + step])
            if self.hub.rate:
                time.sleep(step / self.hub.rate)

    def part_of_file(self, request):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        repo, name = self.find(path)
        first, last = self.bounds(request, repo, name)
        return repo, name, first, last

    # ------------------------------------------------------------ faults: True = answered

    def fault_html(self, request, fault):
        page = b"<!DOCTYPE html><html><body>Sign in to the hotel network</body></html>"
        self.reply(200, page, "text/html; charset=utf-8")
        return True

    def fault_json_error(self, request, fault):
        self.reply(200, b'{"error":"upstream is having a bad day"}', "application/json")
        return True

    def fault_binary_page(self, request, fault):
        """A page without a telling content type."""
        repo, name, first, last = self.part_of_file(request)
        self.head_of_file(request, repo, name, first, last)
        self.wfile.write((b"<html>" * (last - first + 1))[:last - first + 1])
        return True

    def fault_status(self, request, fault):
        self.refuse(fault.more["status"], "scripted", fault.more.get("headers", ()))
        return True

    def fault_ignore_range(self, request, fault):
        request.range = None
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.send_file(request, *self.find(path))
        return True

    def fault_wrong_range(self, request, fault):
        repo, name, first, last = self.part_of_file(request)
        self.head_of_file(request, repo, name, first + 1, last)
        self.wfile.write(repo.read(name, first + 1, last))
        return True

    def fault_short_range(self, request, fault):
        """Legal: less than was asked for."""
        repo, name, first, last = self.part_of_file(request)
        last = first + (last - first) // 2
        self.head_of_file(request, repo, name, first, last)
        self.wfile.write(repo.read(name, first, last))
        return True

    def fault_wrong_size(self, request, fault):
        repo, name, first, last = self.part_of_file(request)
        self.head_of_file(request, repo, name, first, last, size=repo.size(name) + 1)
        self.wfile.write(repo.read(name, first, last))
        return True

    def send_half(self, request):
        repo, name, first, last = self.part_of_file(request)
        self.head_of_file(request, repo, name, first, last)
        self.wfile.write(repo.read(name, first, first + (last - first) // 2))

    def fault_close(self, request, fault):
        self.send_half(request)
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
        return True

    def fault_reset(self, request, fault):
        self.send_half(request)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True
        return True

    def fault_stall(self, request, fault):
        self.send_half(request)
        self.hub.stopped.wait(fault.more.get("seconds", 30))
        self.close_connection = True
        return True

    def fault_silent(self, request, fault):
        self.hub.stopped.wait(fault.more.get("seconds", 30))
        self.close_connection = True
        return True

    def fault_trickle(self, request, fault):
        repo, name, first, last = self.part_of_file(request)
        self.head_of_file(request, repo, name, first, last)
        for at in range(first, last + 1):
            if self.hub.stopped.wait(0.05):
                break
            self.wfile.write(repo.read(name, at, at))
        self.close_connection = True
        return True

    def drip(self, status, headers, block, pause):
        """A body without an end."""
        self.send_response(status)
        for key, value in headers:
            self.send_header(key, value)
        self.end_headers()
        self.close_connection = True
        while not self.hub.stopped.wait(pause):
            self.wfile.write(block)
        return True

    def fault_drip(self, request, fault):
        return self.drip(200, [("Content-Type", "application/json")], b" ", 0.05)

    def fault_drip_redirect(self, request, fault):
        return self.drip(302, [("Location", "/x")], b" ", 0.05)

    def fault_endless_refusal(self, request, fault):
        return self.drip(404, [("Content-Type", "text/html")], b"no " * 1000, 0.001)

    def fault_flip(self, request, fault):
        repo, name, first, last = self.part_of_file(request)
        more = []
        data = repo.read(name, first, last)
        if fault.more.get("digest"):
            text = base64.b64encode(hashlib.md5(data).digest()).decode()
            more = [("Content-MD5", text)]
        data = bytearray(data)
        data[len(data) // 2] ^= 1
        self.head_of_file(request, repo, name, first, last, more=more)
        self.wfile.write(bytes(data))
        return True

    def fault_redirect(self, request, fault):
        self.reply(302, b"", None, [("Location", fault.more["to"])])
        return True

    def fault_pass(self, request, fault):
        """Only counts."""
        return False


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass


class Hub:
    def __init__(self, tls=None, token="hf_secret"):
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.repos, self.requests, self.faults = {}, [], []
        self.tls, self.token = tls, token
        self.has_lfs = self.has_etag = self.redirects = True
        self.etag, self.digest, self.signature, self.rate = None, None, 1, 0
        self.listed_sha = {}
        self.servers = []
        self.port, self.cdn_port = self.listen("hub"), self.listen("cdn")
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.cdn_url = f"{scheme}://127.0.0.1:{self.cdn_port}"

    def listen(self, where, port=0):
        handler = type("H", (Handler,), {"hub": self, "where": where})
        server = Server(("127.0.0.1", port), handler)
        if self.tls and where != "proxy":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.tls)
            server.socket = context.wrap_socket(server.socket, server_side=True,
                                                do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.servers.append(server)
        return server.server_address[1]

    def answer_proxy(self, handler, request):
        """A forward proxy for http: the absolute address is asked for."""
        parts = urllib.parse.urlsplit(handler.path)
        handler.where = "cdn" if parts.port == self.cdn_port else "hub"
        handler.path = parts.path + ("?" + parts.query if parts.query else "")
        handler.do_GET()
        handler.where = "proxy"

    def add(self, repo, files, commit="c0ffee" + "0" * 34, model_type=None, gated=False):
        self.repos[repo] = Repo(files, commit, model_type, gated)
        return self.repos[repo]

    def fault(self, name, times=1, where="cdn", when=None, **more):
        f = Fault(name, times, where, when, more)
        self.faults.append(f)
        return f

    def take_fault(self, request):
        with self.lock:
            for f in self.faults:
                if f.times > 0 and f.where in (request.where, "any") and \
                        (f.when is None or f.when(request)):
                    f.times -= 1
                    f.hits += 1
                    return f
        return None

    def asked(self, where, what=""):
        with self.lock:
            return [r for r in self.requests if r.where == where and what in r.path]

    def forget(self):
        with self.lock:
            self.requests.clear()
            self.faults.clear()

    def close(self):
        self.stopped.set()
        for s in self.servers:
            s.shutdown()
            s.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.close()


def main():
    hub = Hub()
    root = sys.argv[1]
    for owner in sorted(os.listdir(root)):
        for name in sorted(os.listdir(os.path.join(root, owner))):
            folder = os.path.join(root, owner, name)
            hub.add(f"{owner}/{name}", {f: os.path.join(folder, f)
                                        for f in sorted(os.listdir(folder))})
            print(f"SHOAL_HUB={hub.url} shoal pull {owner}/{name}", flush=True)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        hub.close()


if __name__ == "__main__":
    main()
