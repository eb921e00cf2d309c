"""The examples of docs/howto/contexts.md, run as they stand there."""
import os
import re
import subprocess
import sys

from server import ROOT, TINY, serving


def blocks(page):
    with open(os.path.join(ROOT, "docs", "howto", page), encoding="utf-8") as f:
        return re.findall(r"^```(\w+)\n(.*?)^```$", f.read(), re.M | re.S)


def run(server, words):
    env = {**os.environ, "SHOAL_URL": server.url, "SHOAL_MODEL": "llama"}
    env.pop("SHOAL_KEY", None)
    r = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, (words[0], r.stdout, r.stderr)
    return r.stdout


def test_the_examples_of_contexts_run_as_they_stand(home):
    found = dict(blocks("contexts.md"))
    assert sorted(found) == ["python", "sh"]
    with serving(home, "-model", TINY) as server:
        said = run(server, ["sh", "-e", "-c", found["sh"]])
        assert '"id":"house-rules"' in said and '"pinned":true' in said
        assert '"choices"' in said and '"cached_tokens":' in said
        said = run(server, [sys.executable, "-c", found["python"]])
        assert "pinned True" in said and "each fork found" in said
        assert "gone: shoal.context: no context rules" in said
        assert server.get("/v1/contexts").json()["data"] == []
