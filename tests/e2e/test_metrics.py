"""/metrics as a strict reader of Prometheus' text format takes it, and what must be in it."""
import concurrent.futures
import os
import re

from conftest import ROOT
from server import TINY, serving, wait_until
from legs import Stub, config_of

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def labels_of(text):
    found, at = {}, 0
    while at < len(text):
        m = LABEL.match(text, at)
        assert m, text
        assert m.group(1) not in found, text
        found[m.group(1)] = m.group(2)
        at = m.end()
    return found


def parse(text):
    """{(name, labels): value}; each name has one HELP and one TYPE before its samples, its samples
    stand together, no series is told twice, buckets grow and the last one is the count."""
    types, helps, series, order = {}, {}, {}, []
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, text_of = line[7:].split(" ", 1)
            assert name not in helps and text_of
            helps[name] = text_of
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name not in types and kind in ("counter", "gauge", "histogram"), line
            types[name] = kind
            order.append(name)
        else:
            m = SAMPLE.match(line)
            assert m, line
            base = m.group(1)
            for end in ("_bucket", "_sum", "_count"):
                if base.endswith(end) and types.get(base[:-len(end)]) == "histogram":
                    base = base[:-len(end)]
            assert base in types and base in helps and base == order[-1], line
            assert base.startswith("shoal_"), line
            assert types[base] != "counter" or base.endswith("_total"), line
            key = (m.group(1), tuple(sorted(labels_of(m.group(2) or "").items())))
            assert key not in series, line
            series[key] = float(m.group(3))
    check_histograms({n for n, t in types.items() if t == "histogram"}, series)
    return types, series


def check_histograms(names, series):
    groups = {}
    for (name, labels), value in series.items():
        if name.endswith("_bucket") and name[:-7] in names:
            rest = tuple(x for x in labels if x[0] != "le")
            groups.setdefault((name[:-7], rest), []).append((float(dict(labels)["le"]), value))
    for (name, rest), buckets in groups.items():
        buckets.sort()
        values = [v for _, v in buckets]
        assert values == sorted(values) and buckets[-1][0] == float("inf"), (name, rest)
        assert series[(name + "_count", rest)] == values[-1], (name, rest)
        assert (name + "_sum", rest) in series, (name, rest)


def promised():
    """{name: (type, labels)} of BEHAVIOUR 5.12; names of those that it says are not built."""
    with open(os.path.join(ROOT, "docs", "BEHAVIOUR.md"), encoding="utf-8") as f:
        section = f.read().split("### 5.12")[1].split("\n### ")[0]
    found, later = {}, re.search(r"Not built yet, so not told: `([^`]*)`", section)
    for word, kind in (("Gauges", "gauge"), ("Counters", "counter"), ("Histograms", "histogram")):
        text = re.sub(r"\([^)]*\)", "", section.split(f"{word}: ")[1].split(".\n")[0]
                      .split(". One place")[0].split("\nCounters")[0].split("\nHistograms")[0])
        for name, labels in re.findall(r"([a-z_]+)(?:\{([^}]*)\})?", text.replace("`", " ")):
            found[name] = (kind, {x.split("=")[0] for x in labels.split(",") if x})
    later = set(later.group(1).split()) if later else set()
    assert later <= set(found)
    return found, later


def check_promised(types, series, must_have_samples):
    wanted, later = promised()
    assert len(wanted) > 35
    told = {n[len("shoal_"):]: kind for n, kind in types.items()}
    assert set(told) == set(wanted) - later
    assert all(wanted[n][0] == kind for n, kind in told.items())
    for name, (kind, labels) in wanted.items():
        end = "_count" if kind == "histogram" else ""
        keys = [k for k in series if k[0] == f"shoal_{name}{end}"]
        assert keys or name not in must_have_samples, name
        for k in keys:
            assert {x for x, _ in k[1]} == labels, (k, labels)


def test_metrics_are_strictly_the_text_format_and_complete(home):
    with serving(home, "-model", TINY) as server:
        for agent in ("lead", 'odd/na-me', "lead"):
            r = server.post("/v1/chat/completions", {
                "model": server.model(), "max_tokens": 6, "nobody_knows": 1, "ignore_eos": True,
                "messages": [{"role": "user", "content": "ab"}]}, headers={"Shoal-Agent": agent})
            assert r.status == 200
        server.get("/nope")
        wait_until(lambda: step_count(server) >= 9)  # the next beat
        types, series = parse(server.get("/metrics").body.decode())
        check_promised(types, series, ("tier_bytes", "spill_bytes_total", "kv_pages",
                                       "spill_checksum_failures_total", "agent_tokens_total"))
        agents = {k[1][0][1]: v for k, v in series.items()
                  if k[0] == "shoal_agent_tokens_total" and dict(k[1])["kind"] == "output"}
        assert agents == {"lead": 12, "odd/na-me": 6}
        pages = {dict(k[1])["state"]: v for k, v in series.items() if k[0] == "shoal_kv_pages"}
        assert pages["total"] == pages["free"] + pages["used"] + pages["cached"] > 0, pages
        assert series[("shoal_preemptions_total", ())] == 0
        assert series[("shoal_warnings_total", (("code", "unknown_field"),))] == 3
        assert series[("shoal_resident_bytes", (("process", "endpoint"),))] > 1e6
        assert series[("shoal_resident_bytes", (("process", "llama"),))] > 1e6


def step_count(server):
    _, series = parse(server.get("/metrics").body.decode())
    return sum(v for k, v in series.items() if k[0] == "shoal_step_seconds_count")


def test_agents_past_the_limit_are_one(home):
    with serving(home, "-model", TINY, env={"SHOAL_METRICS_AGENTS": "2"}) as server:
        for i in range(5):
            server.post("/v1/chat/completions", {
                "model": server.model(), "max_tokens": 2, "ignore_eos": True,
                "messages": [{"role": "user", "content": "ab"}]},
                headers={"Shoal-Agent": f"a{i}"})
        _, series = parse(server.get("/metrics").body.decode())
        got = {dict(k[1])["agent"]: v for k, v in series.items()
               if k[0] == "shoal_agent_tokens_total" and dict(k[1])["kind"] == "output"}
        assert got == {"a0": 2, "a1": 2, "other": 6}


def test_an_agents_name_is_counted_as_it_was_though_its_body_is_gone(tmp_path):
    stub = Stub(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(config_of({"a": {"kind": "upstream", "dialect": "openai", "model": "x/ok",
                                     "url": f"http://127.0.0.1:{stub.port}"}},
                              [{"match": {}, "legs": ["a"]}]))
    with serving(tmp_path, "-config", str(path)) as server:
        def ask(i):
            assert server.post("/v1/chat/completions", {
                "model": "m", "user": f"a{i % 4}",
                "messages": [{"role": "user", "content": "x" * 100 * (i % 9)}]}).status == 200
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(200)))
        _, series = parse(server.get("/metrics").body.decode())
        agents = {dict(k[1])["agent"] for k in series if k[0] == "shoal_agent_tokens_total"}
        assert agents == {"a0", "a1", "a2", "a3"}
    stub.stop()


def test_an_unloaded_server_has_metrics_too(home):
    with serving(home) as server:
        _, series = parse(server.get("/metrics").body.decode())
        assert series[("shoal_model_loaded", (("kind", ""), ("model", "")))] == 0


def test_legs_tell_their_states_transitions_and_checks(home, tmp_path):
    """One upstream fails each request and its breaker opens, the other one answers instead."""
    bad, good = Stub(tmp_path, "-fault", "status=500"), Stub(tmp_path)
    legs = {n: {"kind": "upstream", "dialect": "openai", "url": f"http://127.0.0.1:{s.port}"}
            for n, s in (("bad", bad), ("good", good))}
    config = config_of(legs, [{"match": {"model": "*"}, "legs": ["bad", "good"]}],
                       ["breaker: {failures: 1, cooldown: 5m}"])
    (tmp_path / "c.yaml").write_text(config)

    def samples(server, name):
        types, series = parse(server.get("/metrics").body.decode())
        check_promised(types, series, ())
        return {tuple(v for _, v in k[1]): v for k, v in series.items() if k[0] == f"shoal_{name}"}

    with serving(home, "-config", str(tmp_path / "c.yaml"), "-model", TINY) as server:
        reply = server.post("/v1/chat/completions", {
            "model": "m", "messages": [{"role": "user", "content": "ab"}]})
        assert reply.status == 200, reply.body
        states = samples(server, "leg_state")
        assert states[("bad", "m", "open")] == states[("good", "m", "closed")] == 1, states
        requests = samples(server, "leg_requests_total")
        assert sum(v for k, v in requests.items() if "good" in k) == 1, requests
        assert sum(v for k, v in requests.items() if "bad" in k and "ok" not in k) == 1, requests
        assert samples(server, "breaker_transitions_total")[("bad", "m", "open")] == 1
        assert sum(samples(server, "failover_total").values()) == 1
    for s in (bad, good):
        s.stop()


def test_what_goes_to_the_disk_and_comes_back_is_counted(home, tmp_path):
    """A directory that the second server reads: bytes of both ways, a page with a wrong bit."""
    words = "".join(chr(97 + (i * i + i // 7) % 26) + (" " if i % 5 == 4 else "")
                    for i in range(700))  # short prefixes are written at a stop only

    def run(look):
        with serving(home, "-model", TINY, "-spill", str(tmp_path / "spill"),
                     env={"SHOAL_CACHE_SPILL_FLOOR": "1MiB"}) as server:
            assert server.post("/v1/chat/completions", {
                "model": server.model(), "max_tokens": 2, "ignore_eos": True,
                "messages": [{"role": "user", "content": words}]}).status == 200
            wait_until(lambda: look(parse(server.get("/metrics").body.decode())[1]))

    def written(series):
        return series[("shoal_spill_bytes_total", (("dir", "write"),))]

    def is_kept(series):
        return written(series) > 0 and series[("shoal_tier_bytes", (("tier", "ssd"),))] > 0

    def is_read(series):
        return (series[("shoal_spill_bytes_total", (("dir", "read"),))] > 0 and
                series[("shoal_spill_checksum_failures_total", ())] == 0)

    run(is_kept)
    run(is_read)
    for path in (tmp_path / "spill").glob("*/pages-*.kv"):
        bytes_ = bytearray(path.read_bytes())
        for at in range(len(bytes_) // 2, len(bytes_), 512):
            bytes_[at] ^= 1
        path.write_bytes(bytes_)
    run(lambda series: series[("shoal_spill_checksum_failures_total", ())] > 0)
