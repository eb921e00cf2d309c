"""/metrics as a strict reader of Prometheus' text format takes it, and what must be in it."""
import re

from server import TINY, serving, wait_until

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


BUILT = ["build_info", "model_loaded", "queue_depth", "running", "slots_total", "kv_pages",
         "engine_progress_age_seconds", "connections", "ingress_bytes", "resident_bytes",
         "requests_total", "prompt_tokens_total", "eval_tokens_total", "agent_tokens_total",
         "preemptions_total", "recomputed_tokens_total",
         "swaps_total", "engine_restarts_total", "warnings_total", "truncated_total",
         "loop_stops_total", "config_reloads_total", "first_token_seconds", "token_gap_seconds",
         "queue_seconds", "request_seconds", "step_seconds"]


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
        assert {f"shoal_{n}" for n in BUILT} <= set(types)
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


def test_an_unloaded_server_has_metrics_too(home):
    with serving(home) as server:
        _, series = parse(server.get("/metrics").body.decode())
        assert series[("shoal_model_loaded", (("kind", ""), ("model", "")))] == 0
