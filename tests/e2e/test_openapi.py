"""Requests made from our own document, by a tool that we did not write: no 5xx, only JSON."""
import json
import os
import subprocess
import sys

from server import TINY, serving

SCHEMATHESIS = os.path.join(os.path.dirname(sys.executable), "schemathesis")


def pin_model(node):
    """Every `model` of the document becomes one that is there, so that requests get past it."""
    if isinstance(node, dict):
        if isinstance(node.get("properties"), dict) and "model" in node["properties"]:
            node["properties"]["model"] = {"type": "string", "enum": ["llama"]}
        for value in node.values():
            pin_model(value)
    elif isinstance(node, list):
        for value in node:
            pin_model(value)


def run(server, home, path, examples):
    done = subprocess.run(
        [SCHEMATHESIS, "run", path, "--url", server.url, "--seed", "1", "--no-color",
         "--max-examples", str(examples), "--phases", "examples,coverage,fuzzing",
         "--checks", "not_a_server_error,content_type_conformance,response_schema_conformance",
         "--exclude-path", "/v1/admin/stop", "--request-timeout", "20",
         "--exclude-path", "/ready",  # whose 503 is an answer; test_serve_ready has it
         "--generation-database", "none"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=150, check=False, cwd=home,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"})
    return done.returncode, done.stdout.decode()


def test_requests_made_from_the_document_get_no_server_error(home):
    config = os.path.join(home, "config.yaml")
    with open(config, "w", encoding="utf-8") as f:
        f.write("models: {llama: {defaults: {max_tokens: 2}, max_context: 256}}\n"
                "hub: {http_pull: true, endpoint: 'http://127.0.0.1:9', allow: []}\n")
    with serving(home, "-model", TINY, "-config", config) as server:
        document = server.get("/openapi.json").json()
        pin_model(document)
        path = os.path.join(home, "openapi.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(document, f)
        code, text = run(server, home, path, 10)
        assert code == 0, text[-4000:]
        assert "Tested: " in text, text
        assert server.get("/health").json()["status"] == "ok"
        assert server.requests() == 0
