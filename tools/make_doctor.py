#!/usr/bin/env python3
"""tests/golden/agents as a table of src/cli: what `shoal doctor` replays; run it after a recording.

Each row is one line of JSON, {"path", "body"}, as a string.
"""
import json
import os

from make_openapi import ROOT, pieces

GOLDEN = os.path.join(ROOT, "tests", "golden", "agents")
PATHS = {"claude_code": "/v1/messages?beta=true", "codex": "/v1/responses"}


def main():
    with open(os.path.join(ROOT, "src/cli/doctor_data.c"), "w", encoding="ascii") as out:
        out.write("/* Made by tools/make_doctor.py from tests/golden/agents. */\n"
                  '#include "cli/doctor.h"\n\nconst struct doctor_recording doctor_data[] = {\n')
        for name in ("claude_code", "codex", "openai_sdk", "ollama_sdk"):
            with open(os.path.join(GOLDEN, name + ".json"), encoding="utf-8") as f:
                rows = json.load(f)
            for row in rows:
                if name in PATHS:
                    row = {"path": PATHS[name], "body": row}
                text = json.dumps(row, separators=(",", ":"))
                lines = "\n".join(f'     "{p}"' for p in pieces(text))
                out.write(f'    {{"{name}",\n{lines}}},\n')
        out.write("    {NULL, NULL},\n};\n")


if __name__ == "__main__":
    main()
