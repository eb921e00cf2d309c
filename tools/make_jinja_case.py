#!/usr/bin/env python3
"""Writes src/chat/jinja_case_data.c: what Python's str knows about code points.

Usage: tools/make_jinja_case.py > src/chat/jinja_case_data.c
The source is Python's own unicodedata (the committed file: Python 3.11, Unicode 14.0), because
templates are to print what Jinja2 prints there.
"""
import sys
import unicodedata

LAST = 0x110000


def codes():
    return (c for c in range(LAST) if not 0xD800 <= c < 0xE000)


def mapping(change):
    """Ranges (first, last, delta, stride) of one-to-one changes, and the others as specials."""
    single, special = [], []
    for c in codes():
        to = change(chr(c))
        if to == chr(c):
            continue
        if len(to) == 1:
            single.append((c, ord(to) - c))
        else:
            special.append((c, [ord(t) for t in to]))
    ranges = []
    for c, delta in single:
        if ranges:
            first, last, d, stride = ranges[-1]
            if d == delta and (c - last == stride or (first == last and c - last in (1, 2))):
                ranges[-1] = (first, c, d, c - last)
                continue
        ranges.append((c, c, delta, 1))
    return ranges, special


def runs(has):
    out = []
    for c in range(LAST):
        if not has(c):
            continue
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def is_ignorable(c):
    """Found through the final sigma: it looks past such letters for a cased one."""
    if 0xD800 <= c < 0xE000:
        return False
    return ("a" + chr(c) + "\u03a3").lower()[-1] == "\u03c2" and \
        ("1" + chr(c) + "\u03a3").lower()[-1] != "\u03c2"


def title_cased(c):
    """What str.title() takes for the inside of a word."""
    if 0xD800 <= c < 0xE000:
        return False
    return (chr(c) + "a").title()[-1] == "a"


def emit_rows(name, kind, rows, per_line, form):
    print(f"\nconst struct {kind} jinja_case_data_{name}[] = {{")
    for i in range(0, len(rows), per_line):
        print("    " + " ".join(form(r) for r in rows[i:i + per_line]))
    print("};")
    print(f"const uint32_t jinja_case_data_{name}_count = countof(jinja_case_data_{name});")


def main():
    print("/* Made by tools/make_jinja_case.py from Python's tables, Unicode "
          f"{unicodedata.unidata_version}. */")
    print('#include "chat/jinja_case.h"')
    for name, change in (("lower", str.lower), ("upper", str.upper), ("title", str.title)):
        ranges, special = mapping(change)
        emit_rows(name, "jinja_case_range", ranges, 3,
                  lambda r: f"{{0x{r[0]:x}, 0x{r[1]:x}, {r[2]}, {r[3]}}},")
        emit_rows(name + "_long", "jinja_case_long", special, 2,
                  lambda r: "{0x%x, {%s}}," % (r[0], ", ".join(f"0x{t:x}" for t in r[1])))
    for name, has in (("cased", title_cased), ("ignorable", is_ignorable),
                      ("hidden", lambda c: not chr(c).isprintable())):
        emit_rows(name, "jinja_case_run", runs(has), 4, lambda r: f"{{0x{r[0]:x}, 0x{r[1]:x}}},")
    assert [c for c in range(LAST) if chr(c).isspace()] == BLANKS, "jinja_case.c lists the blanks"


BLANKS = [9, 10, 11, 12, 13, 28, 29, 30, 31, 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028,
          0x2029, 0x202F, 0x205F, 0x3000]

if __name__ == "__main__":
    sys.exit(main())
