"""What Claude Code and Codex send, without them: requests recorded by `make test-agents RECORD=1`,
scrubbed to their shape (tests/golden/agents), are answered, streamed, with nothing refused and no
warning that is not listed here."""
import json
import os

import pytest

from conftest import ROOT
from server import TINY, serving

SCRIPTED = os.path.join(ROOT, "build", "tests", "agents", "scripted")
GOLDEN = os.path.join(ROOT, "tests", "golden", "agents")
SAY = [{"think": "Hm."}, {"text": "Done."}]
CLIENTS = {
    "claude_code.json": ("/v1/messages?beta=true", "message_stop",
                         {"ignored_field; context_management"}),
    "codex.json": ("/v1/responses", "response.completed",
                   {"ignored_field; client_metadata", "tool_skipped; tools[8]"}),
}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    home = tmp_path_factory.mktemp("agents")
    (home / "script.json").write_text(json.dumps({"replies": [{"say": SAY}]}))
    with serving(home, "-model", TINY, binary=SCRIPTED,
                 env={"SCRIPTED_REPLIES": str(home / "script.json")}) as server:
        yield server


@pytest.mark.parametrize("name", CLIENTS)
def test_A02_A04_A09_a_recorded_session_is_answered(scripted, name):
    path, last, warnings = CLIENTS[name]
    with open(os.path.join(GOLDEN, name), encoding="utf-8") as f:
        bodies = json.load(f)
    assert len(bodies) == 2
    for body in bodies:
        reply = scripted.post(path, {**body, "model": scripted.model()})
        assert reply.status == 200, reply.body
        final = [json.loads(line[len("data: "):]) for line in reply.body.decode().split("\n")
                 if line.startswith("data: ") and '"shoal":' in line][-1]
        shoal = final.get("shoal") or final["response"]["shoal"]
        assert set(shoal["warnings"]) == warnings
        assert f"event: {last}\n" in reply.body.decode()
    assert len(bodies[1]) >= len(bodies[0])
