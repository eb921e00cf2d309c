"""The fault table of BEHAVIOUR 9.9 as data, the server that shows it, and one cell's judge.

A cell is (fault, client's protocol, first leg's protocol, streamed?, second leg): the second leg is
nobody, an upstream of each protocol, or the local model. Upstreams are `shoal stub`s that say what
the local model would say, greedy, so that whoever goes on, the text is one: that which nobody
interrupted.
"""
import concurrent.futures
import itertools
import json
from dataclasses import dataclass

from server import REAL
from legs import CONTINUE, DIALECTS, PATHS, QUIET, Stub, config_of, events_of
from test_faults_net import plain_server

PROMPT = "Say hello in one sentence."
LONG = "Tell a very long story."  # 1000 tokens are not its end
SECONDS = ("none", *DIALECTS, "local")
AT_ONCE = 14


@dataclass(frozen=True)
class Fault:
    """class_: "" = the leg answers, None = either that or `status`; said: were there words before,
    None = perhaps; status: without another leg and before a word; helps: may another leg answer?"""
    class_: str | None
    said: bool | None = False
    status: int = 502
    helps: bool = True
    waits: bool = False  # the leg with short limits
    url: str | None = None  # instead of a stub's


FAULTS = {
    "refuse": Fault("connect", url="http://127.0.0.1:1"),
    "no_such_name": Fault("connect", url="http://no-such-name.invalid"),
    "no_tls_there": Fault("tls", url="tls"),
    "abort": Fault("cut"),
    "hang_header": Fault("hang_header", status=504, waits=True),
    "hang_body": Fault("hang_first", status=504, waits=True),
    "pings": Fault("hang_first", status=504, waits=True),
    "roles": Fault("hang_first", status=504, waits=True),
    "stall=12": Fault("stall", True, 504, waits=True),
    "cut=0": Fault("cut"), "cut=12": Fault("cut", True), "cut_byte=1500": Fault("cut", None),
    "end=0": Fault("garbage"), "end=12": Fault("cut", True),
    "garbage=9": Fault("garbage", None), "html": Fault("garbage"), "other": Fault("garbage"),
    "headers": Fault("garbage"),
    "big": Fault("garbage"),
    "fail_late=12": Fault("http_5xx", True),
    "status=500": Fault("http_5xx"), "status=503": Fault("http_5xx", status=503),
    "status=409": Fault("http_5xx"),
    "status=402": Fault("rate_limit", status=429), "status=429": Fault("rate_limit", status=429),
    "retry=1": Fault("rate_limit", status=429),
    "flap=500": Fault(None),
    "status=401": Fault("auth", helps=False), "status=403": Fault("auth", helps=False),
    "status=400": Fault("request", status=400, helps=False),
    "status=404": Fault("request", status=404, helps=False),
    "status=422": Fault("request", status=422, helps=False),
    "garbage=1": Fault(""), "wrong_finish": Fault(""), "slow=60": Fault(""),
}


def first_of(name, f):
    """Which leg has that fault: one that nobody answers, one with short limits, one that rests
    after each refusal, or one without any of these."""
    return name if f.url else "a" if f.waits else "r" if f.class_ == "rate_limit" else "c"


def model_of(cell):
    fault, _, first, _, second = cell
    return f"{first_of(fault, FAULTS[fault])}-{first}-{second}/{fault}"


def pairs_of(axes):
    """The pairs of values that a set of rows must hold."""
    for (i, a), (j, b) in itertools.combinations(enumerate(axes), 2):
        yield from (((i, x), (j, y)) for x in a for y in b)


def pairwise(*axes):
    """Rows in which each value of an axis meets each one of every other: the greedy way."""
    left, rows = set(pairs_of(axes)), []
    every = list(itertools.product(*axes))
    while left:
        def gain(row):
            return sum(p in left for p in itertools.combinations(enumerate(row), 2))
        best = max(every, key=gain)
        left.difference_update(itertools.combinations(enumerate(best), 2))
        rows.append(best)
    return rows


def cells(whole):
    """(fault, client, first, stream, second); not whole: each fault with pairs of the others."""
    axes = (DIALECTS, DIALECTS, (True, False), SECONDS)
    rows = list(itertools.product(*axes)) if whole else pairwise(*axes)
    return [(fault, *row) for fault in FAULTS for row in rows]


# ---------------------------------------------------------------- asking

def body_of(dialect, model, stream, prompt=PROMPT):
    body = {"model": model, "stream": stream, "temperature": 0}
    if dialect == "responses":
        return {**body, "input": prompt}
    body["messages"] = [{"role": "user", "content": prompt}]
    if dialect == "ollama":
        body["options"] = {"temperature": body.pop("temperature"), "repeat_penalty": 1}
    if dialect == "anthropic":
        body["max_tokens"] = 1000
    return body


def end_of_stream(dialect, e):
    """How the reply ends with that event: "ok", another word, or None."""
    if dialect == "ollama":
        return e.get("done") and {"stop": "ok"}.get(e["done_reason"], e["done_reason"])
    if dialect == "openai":
        if "error" in e:
            return "error"
        reason = next((c["finish_reason"] for c in e.get("choices", [])), None)
        return reason and {"stop": "ok"}.get(reason, reason)
    if dialect == "anthropic":
        reason = e.get("delta", {}).get("stop_reason")
        return "error" if e["type"] == "error" else reason and {"end_turn": "ok"}.get(reason,
                                                                                     reason)
    return {"response.completed": "ok", "response.failed": "error",
            "response.incomplete": "incomplete"}.get(e["type"])


def text_of_stream(dialect, e):
    if dialect == "ollama":
        return e.get("message", {}).get("content", "")
    if dialect == "openai":
        return "".join(c["delta"].get("content") or "" for c in e.get("choices", []))
    if dialect == "anthropic":
        return e["delta"].get("text", "") if e["type"] == "content_block_delta" else ""
    return e["delta"] if e["type"] == "response.output_text.delta" else ""


def read_streamed(dialect, body):
    """(text, how it ended); nothing may come behind the end."""
    text, end = "", "nothing"
    events = map(json.loads, body.decode().splitlines()) if dialect == "ollama" else events_of(body)
    for e in events:
        piece, now = text_of_stream(dialect, e), end_of_stream(dialect, e)
        assert not piece or end == "nothing", (piece, end)
        text += piece
        end = now if now and end != "error" else end
    return text, end


def read_at_once(dialect, body):
    r = json.loads(body)
    if dialect == "ollama":
        return r["message"]["content"], "ok" if r["done_reason"] == "stop" else r["done_reason"]
    if dialect == "openai":
        c = r["choices"][0]
        return c["message"]["content"], "ok" if c["finish_reason"] == "stop" else c["finish_reason"]
    if dialect == "anthropic":
        return ("".join(b.get("text", "") for b in r["content"]),
                "ok" if r["stop_reason"] == "end_turn" else r["stop_reason"])
    return ("".join(p["text"] for i in r["output"] if i["type"] == "message"
                    for p in i["content"]), "ok" if r["status"] == "completed" else r["status"])


def tokens_differ(dialect, body):
    """(the reply's tokens, those of its legs) where a reply not streamed tells of several legs."""
    r = json.loads(body)
    legs = r["shoal"].get("legs", [])
    said = r["eval_count"] if dialect == "ollama" else \
        r["usage"]["completion_tokens" if dialect == "openai" else "output_tokens"]
    of_legs = sum(leg["output_tokens"] for leg in legs)
    return (said, of_legs) if legs and said != of_legs else None


# ---------------------------------------------------------------- the server

class Table:
    """Owns the stubs and the configuration: model "LEG-PROTOCOL-SECOND/FAULT" has LEG-PROTOCOL as
    its first leg, to which the name goes as it is, so that a stub sees the fault."""

    def __init__(self, home, said):
        path = home / "said"
        path.write_text(said)
        self.said, self.stubs = said, {n: Stub(home, "-text", str(path)) for n in "abcr"}
        self.deaf = plain_server()
        path = home / "config.yaml"
        path.write_text(self._config())
        self.args = ("-config", str(path), "-ctx", "1024", "-slots", "16")

    def _config(self):
        legs = {"desk": {"kind": "engine", "model": "REAL"}}
        routes = []
        tls = f"https://127.0.0.1:{self.deaf.getsockname()[1]}"
        for d in DIALECTS:
            leg = {"kind": "upstream", "dialect": d, "continue": CONTINUE[d], "max_inflight": 500}
            for n, stub in self.stubs.items():
                legs[f"{n}-{d}"] = {**leg, "url": f"http://127.0.0.1:{stub.port}"}
            legs[f"a-{d}"]["deadlines"] = {"first_token": "1s", "gap": "1s"}
            for name, f in FAULTS.items():
                if f.url:
                    legs[f"{name}-{d}"] = {**leg, "url": tls if f.url == "tls" else f.url}
        firsts = {first_of(name, f) for name, f in FAULTS.items()}
        for first, d, second in itertools.product(sorted(firsts), DIALECTS, SECONDS):
            after = {"none": [], "local": ["desk"]}.get(second, [{"leg": f"b-{second}",
                                                                  "model": "x/ok"}])
            routes.append({"match": {"model": f"{first}-{d}-{second}/*"},
                           "legs": [f"{first}-{d}", *after]})
        return config_of(legs, routes, [
            "deadlines: {first_token: 60s, gap: 60s, all_open_wait: 1s}", *QUIET]).replace(
                '"REAL"', '"' + REAL.rsplit("/", 1)[1].removesuffix(".gguf") + '"')

    def stop(self):
        for s in self.stubs.values():
            s.stop()
        self.deaf.close()


def wants(f, second):
    """"text": the whole one; "error": told as such; "either"."""
    if f.class_ == "" or (f.class_ is None and second != "none"):
        return "text"
    if f.class_ is None:
        return "either"
    if not f.helps or second == "none":
        return "error"
    if second == "responses":  # it takes a request, but no unfinished turn
        return {True: "error", False: "text", None: "either"}[f.said]
    return "text"


def judge(table, reply, cell):
    """None, or what is wrong with that reply."""
    fault, client, first, stream, second = cell
    f = FAULTS[fault]
    want, what = wants(f, second), (reply.status, dict(reply.headers), reply.body[-300:])
    if reply.status != 200:
        status = 529 if f.status == 503 and client == "anthropic" else f.status
        is_right = want != "text" and reply.status == status and not (f.said and stream)
        return None if is_right else ("status", status, *what)
    text, end = (read_streamed if stream else read_at_once)(client, reply.body)
    if not stream and tokens_differ(client, reply.body):
        return ("tokens of the legs", tokens_differ(client, reply.body), *what)
    if want != "error" and (text, end) == (table.said, "ok"):
        return substitution(f, reply, stream, first, what) if f.class_ else None
    if want == "text":
        return ("text", text, end, *what)
    if stream and f.said is not False and end == "error" and table.said.startswith(text):
        return None
    return ("a false end", text, end, *what)


def substitution(f, reply, stream, first, what):
    """Who was asked in vain, and why, must stand in the reply."""
    header = reply.headers.get("shoal-substituted", "")
    by_header = any(header.endswith(f"reason={r}")
                    for r in ({f.class_, "cooling"} if f.class_ == "rate_limit" else {f.class_}))
    reason = f'"reason":"{f.class_}"'.encode()
    in_band = b'"phase":"failover"' in reply.body and reason in reply.body
    seen = {True: in_band if stream else by_header, False: by_header,
            None: by_header or in_band}[f.said]
    return None if seen and first in header + reply.body.decode() else ("no substitution", *what)


def run(table, server, rows):
    """{cell: what is wrong} of those rows that are wrong; many at once."""
    def one(cell):
        _, client, _, stream, _ = cell
        try:
            r = server.post(PATHS[client], body_of(client, model_of(cell), stream), timeout=60)
            return judge(table, r, cell)
        except (OSError, AssertionError, KeyError, ValueError) as e:
            return ("exception", repr(e)[:400])

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return {c: w for c, w in zip(rows, pool.map(one, rows)) if w}
