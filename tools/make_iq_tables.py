#!/usr/bin/env python3
"""Writes src/quant/quant_iq_data.c from tests/golden/quant/iq-grids.json.

The lattices of the IQ types are facts of the file format; the JSON holds them as alphabet indices.
Usage: tools/make_iq_tables.py [--check]   (--check: exit 1 if the file in the tree differs)
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "tests/golden/quant/iq-grids.json"
TARGET = ROOT / "src/quant/quant_iq_data.c"
GRIDS = [("iq2xxs_grid", "uint8_t"), ("iq2xs_grid", "uint8_t"), ("iq2s_grid", "uint8_t"),
         ("iq3xxs_grid", "uint8_t"), ("iq3s_grid", "uint8_t"), ("iq1s_grid", "int8_t")]
HEAD = """/* The lattices of the IQ types. Written by tools/make_iq_tables.py; do not edit.
 * Source: tests/golden/quant/iq-grids.json. Element 0 of an entry has the lowest address. */
#include "quant/quant.h"
"""


def grid(data, name, c_type):
    table = data[name]
    n, width, alphabet, codes = (table[k] for k in ("n", "width", "alphabet", "codes"))
    assert len(codes) == n * width
    lines = [f"\nconst {c_type} quant_{name}[{n}][{width}] = {{"]
    row = "   "
    for i in range(n):
        entry = " {" + ",".join(str(alphabet[int(c, 36)])
                                for c in codes[i * width:(i + 1) * width]) + "},"
        if len(row) + len(entry) > 100:
            lines.append(row)
            row = "   "
        row += entry
    lines += [row, "};"]
    return "\n".join(lines) + "\n"


def vector(name, c_type, values):
    rows = [values[i:i + 16] for i in range(0, len(values), 16)]
    body = "\n".join("    " + ", ".join(map(str, r)) + "," for r in rows)
    return f"\nconst {c_type} quant_{name}[{len(values)}] = {{\n{body}\n}};\n"


def text():
    data = json.loads(SOURCE.read_text())
    signs = [i | (bin(i).count("1") & 1) << 7 for i in range(128)]
    out = HEAD + "".join(grid(data, *g) for g in GRIDS)
    out += vector("iq_signs", "uint8_t", signs)
    return out + vector("iq4nl_values", "int8_t", data["kvalues_iq4nl"])


def main():
    if "--check" in sys.argv[1:]:
        if TARGET.read_text() != text():
            sys.exit(f"{TARGET.name} is not what tools/make_iq_tables.py makes of {SOURCE.name}")
    else:
        TARGET.write_text(text())


main()
