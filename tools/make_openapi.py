#!/usr/bin/env python3
"""docs/openapi.json as a table of src/serve; run it after a change of the document.

The document goes in as it stands, without its indentation; the unit test of openapi_data compares.
"""
import json
import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH = 88


def pieces(text):
    """String literals that fit a line; an escape is never cut."""
    line = ""
    for c in text:
        c = {'"': '\\"', "\\": "\\\\"}.get(c, c)
        if len(line) + len(c) > WIDTH:
            yield line
            line = ""
        line += c
    yield line


def main():
    with open(os.path.join(ROOT, "docs/openapi.json"), encoding="ascii") as f:
        text = json.dumps(json.load(f), separators=(",", ":"))
    with open(os.path.join(ROOT, "src/serve/openapi_data.c"), "w", encoding="ascii") as f:
        f.write("/* Made by tools/make_openapi.py from docs/openapi.json. */\n"
                '#include "serve/path_table.h"\n\nconst char openapi_data[] =\n')
        f.write("\n".join(f'    "{p}"' for p in pieces(text)) + ";\n")


if __name__ == "__main__":
    main()
