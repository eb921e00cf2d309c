"""The same agents, started by `shoal launch`: nothing but what it passes leads them to us."""
import os

from test_agents import ANSWER, CLAUDE, CODEX, ROOT, TASK, Desk

SHOAL = os.path.join(ROOT, "build", "shoal")


def launch(desk, name, program, url, model, args):
    """A folder in PATH holds the agent under its usual name; the address is the recorder's."""
    folder = desk.home / "bin"
    folder.mkdir()
    os.symlink(program, folder / name)
    argv = [SHOAL, "launch", name, "-model", model, "-addr", url.split("//")[1], "--", *args]
    return argv, {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_launch_starts_claude_code_on_the_local_model(tmp_path):
    desk = Desk(tmp_path)
    path = str(desk.file)
    replies = [
        {"tool": "Edit", "results": 0, "say": [
            {"call": {"name": "Read", "arguments": {"file_path": path}}}]},
        {"tool": "Edit", "results": 1, "say": [
            {"call": {"name": "Edit", "arguments": {
                "file_path": path, "old_string": "world", "new_string": "shoal"}}}]},
        {"tool": "Edit", "results": 2, "say": [{"text": ANSWER}]}]

    def command(url, model):
        argv, env = launch(desk, "claude", CLAUDE, url, model, [
            "-p", TASK, "--output-format", "json", "--permission-mode", "acceptEdits"])
        return argv, {**env, "DISABLE_AUTOUPDATER": "1",
                      "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}

    output, pairs = desk.run(replies, command)
    asked = [pair for pair in pairs if pair[1].split("?")[0] == "/v1/messages"]
    assert ANSWER in output and desk.file.read_text() == "hello shoal\n"
    assert len(asked) >= 3


def test_launch_starts_codex_on_the_local_model(tmp_path):
    desk = Desk(tmp_path)

    def say(results, shell):
        return {"tool": "exec_command", "results": results, "say": [
            {"call": {"name": "exec_command", "arguments": {"cmd": shell}}}]}

    replies = [say(0, "cat greeting.txt"), say(1, "sed -i s/world/shoal/ greeting.txt"),
               {"tool": "exec_command", "results": 2, "say": [{"text": ANSWER}]}]

    def command(url, model):
        argv, env = launch(desk, "codex", CODEX, url, model, [
            "exec", "--skip-git-repo-check", "-s", "danger-full-access", TASK])
        return argv, {**env, "CODEX_HOME": str(desk.home)}

    output, pairs = desk.run(replies, command)
    asked = [pair for pair in pairs if pair[1].split("?")[0] == "/v1/responses"]
    assert ANSWER in output and desk.file.read_text() == "hello shoal\n"
    assert len(asked) >= 3
