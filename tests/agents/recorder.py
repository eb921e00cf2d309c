"""A proxy on loopback that hands requests on as they come and keeps what went through it."""
import http.client
import http.server
import threading


class Recorder:
    """Owns the listener; pairs: (method, path, headers, body, status, reply) in order."""

    def __init__(self, port):
        self.pairs, self.lock = [], threading.Lock()
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                size = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(size)
                upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
                headers = {k: v for k, v in self.headers.items()
                           if k.lower() not in ("host", "connection", "accept-encoding")}
                headers["Host"] = f"127.0.0.1:{port}"
                upstream.request(self.command, self.path, body=body, headers=headers)
                reply = upstream.getresponse()
                data = reply.read()
                with recorder.lock:
                    recorder.pairs.append((self.command, self.path, dict(self.headers.items()),
                                           body, reply.status, data))
                self.send_response(reply.status)
                for key, value in reply.getheaders():
                    if key.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(key, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                upstream.close()

            do_GET = do_POST = do_HEAD = do_DELETE = forward

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
