"""Real agents against the endpoint on loopback: Claude Code (the CLI that claude-agent-sdk brings)
and Codex (openai-codex) read a file and edit it through their own tools. What the model would say
is a script (scripted.c), so the task succeeds if and only if the client understands our streams
and we understand what it sends back.

`make test-agents` runs this; with RECORD=1 it writes the requests, scrubbed, to
tests/golden/agents, where tests/e2e/test_tools_agents.py sends them again without the clients."""
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", "e2e"), HERE]

import claude_agent_sdk  # noqa: E402
import codex_cli_bin  # noqa: E402
from recorder import Recorder  # noqa: E402
from server import TINY, serving  # noqa: E402

SCRIPTED = os.path.join(ROOT, "build", "tests", "agents", "scripted")
GOLDEN = os.path.join(ROOT, "tests", "golden", "agents")
CLAUDE = os.path.join(os.path.dirname(claude_agent_sdk.__file__), "_bundled", "claude")
CODEX = str(codex_cli_bin.bundled_codex_path())
TASK = "Change world to shoal in greeting.txt"
ANSWER = "The greeting says shoal now."
SECONDS = 180


class Desk:
    """A home, a folder with the file, the endpoint and the proxy before it."""

    def __init__(self, tmp_path):
        self.home, self.work = tmp_path / "home", tmp_path / "home" / "work"
        self.work.mkdir(parents=True)
        self.file = self.work / "greeting.txt"
        self.file.write_text("hello world\n")
        self.script = self.home / "script.json"

    def run(self, replies, command):
        """command(url, model) -> (argv, environment). Returns (output, what the proxy saw)."""
        replies = replies + [{"say": [{"text": "A title"}]}]
        self.script.write_text(json.dumps({"piece": 16, "replies": replies}))
        with serving(self.home, "-model", TINY, binary=SCRIPTED,
                     env={"SCRIPTED_REPLIES": str(self.script)}) as server:
            recorder = Recorder(server.port)
            try:
                argv, env = command(recorder.url, server.model())
                env = {"HOME": str(self.home), "PATH": os.environ["PATH"], **env}
                done = subprocess.run(argv, cwd=self.work, env=env, stdin=subprocess.DEVNULL,
                                      capture_output=True, timeout=SECONDS)
            finally:
                recorder.close()
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout.decode(), recorder.pairs

    def check(self, output, pairs, path):
        assert self.file.read_text() == "hello shoal\n", output
        assert ANSWER in output
        assert all(pair[4] == 200 for pair in pairs), [pair[4:] for pair in pairs if pair[4] != 200]
        asked = [json.loads(pair[3]) for pair in pairs if pair[1].split("?")[0] == path]
        assert len(asked) >= 3
        return asked


def scrub(value, key=""):
    """The shape of a request: words of the client, the machine and the user are lengths."""
    if isinstance(value, dict):
        return {k: scrub(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [scrub(v, key) for v in value]
    if not isinstance(value, str):
        return value
    value = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
                   "00000000-0000-4000-8000-000000000000", value)
    value = re.sub(r"[0-9a-f]{64}", "0" * 64, value)
    value = re.sub(r"/[^ \"]*/home/work", "/home/work", value)
    if key == "user_id" or value.startswith(("x-anthropic-billing-header", "shoal1.", "toolu_")):
        return value
    is_prose = key == "description" or (len(value) > 24 and " " in value)
    return f"[{len(value)} letters]" if is_prose or len(value) > 64 else value


def record(name, asked):
    if not os.environ.get("RECORD"):
        return
    os.makedirs(GOLDEN, exist_ok=True)
    with open(os.path.join(GOLDEN, name), "w", encoding="utf-8") as f:
        json.dump([scrub(body) for body in (asked[0], asked[-1])], f, indent=1)
        f.write("\n")


def test_claude_code_reads_and_edits_a_file(tmp_path):
    desk = Desk(tmp_path)
    path = str(desk.file)
    replies = [
        {"tool": "Edit", "results": 0, "say": [
            {"text": "I read the file."},
            {"call": {"name": "Read", "arguments": {"file_path": path}}}]},
        {"tool": "Edit", "results": 1, "say": [
            {"think": "Now the edit."},
            {"call": {"name": "Edit", "arguments": {
                "file_path": path, "old_string": "world", "new_string": "shoal"}}}]},
        {"tool": "Edit", "results": 2, "say": [{"text": ANSWER}]}]

    def command(url, model):
        return ([CLAUDE, "-p", TASK, "--output-format", "json", "--model", model,
                 "--permission-mode", "acceptEdits"],
                {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none",
                 "ANTHROPIC_DEFAULT_HAIKU_MODEL": model, "DISABLE_AUTOUPDATER": "1",
                 "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"})

    output, pairs = desk.run(replies, command)
    assert json.loads(output)["result"] == ANSWER and not json.loads(output)["is_error"]
    record("claude_code.json", desk.check(output, pairs, "/v1/messages"))


def test_codex_reads_and_edits_a_file(tmp_path):
    desk = Desk(tmp_path)

    def say(results, thought, text, shell):
        return {"tool": "exec_command", "results": results, "say": [
            {"think": thought}, {"text": text},
            {"call": {"name": "exec_command", "arguments": {"cmd": shell}}}]}

    replies = [say(0, "I read it.", "Reading.", "cat greeting.txt"),
               say(1, "I edit it.", "Editing.", "sed -i s/world/shoal/ greeting.txt"),
               {"tool": "exec_command", "results": 2, "say": [{"text": ANSWER}]}]

    def command(url, model):
        folder = desk.home / ".codex"
        folder.mkdir()
        (folder / "config.toml").write_text(
            f'model = "{model}"\nmodel_provider = "shoal"\n[model_providers.shoal]\n'
            f'name = "shoal"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "KEY"\n')
        return ([CODEX, "exec", "--skip-git-repo-check", "-s", "danger-full-access", TASK],
                {"CODEX_HOME": str(folder), "KEY": "none"})

    output, pairs = desk.run(replies, command)
    record("codex.json", desk.check(output, pairs, "/v1/responses"))
