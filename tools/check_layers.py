#!/usr/bin/env python3
"""Checks the tree in src/ against the two tables of docs/ARCHITECTURE.md.

layers   a file includes headers of its own folder and of the folders its layer lists
files    every file in src/ has a row; a row of X_table.c covers the entries the table names
library  a library's header is included in its one module only
opening  every header opens with the comment of docs/STYLE.md section 2

That each header compiles alone is the Makefile's part (target `headers`). Direct includes only.
"""
import os
import re
import sys

from check_common import C_SUFFIXES, Report, c_without_comments, read_text, stem, tree_files

RULES = ("layers", "files", "library", "opening")

# header (pattern) -> the modules that may include it, as folder or folder/stem.
LIBRARIES = (
    (r"event2/.*|event\.h|evhttp\.h", ("wire",)),
    (r"http_parser\.h|llhttp\.h", ("wire",)),
    (r"curl/.*", ("wire/http_client",)),
    (r"openssl/(evp|sha|rand|crypto|opensslv)\.h", ("base/digest", "cli")),
    (r"openssl/.*", ("wire",)),
    (r"xxhash\.h", ("base/digest",)),
    (r"pcre2\.h", ("text/regex",)),
    (r"utf8proc\.h", ("text/unicode",)),
    (r"yaml\.h", ("cli/config_yaml",)),
    (r"histedit\.h|editline/.*|readline/.*", ("cli/run_repl",)),
    (r"[a-z]*intrin\.h|arm_neon\.h", ("cpu/x86", "cpu/arm", "base/machine", "base/thread")),
    (r"cpuid\.h", ("base/machine",)),
    (r"dlfcn\.h", ("cuda/cuda_driver", "wire/http_client", "cli")),
    (r"pthread\.h|semaphore\.h|threads\.h", ("base/thread", "base/log", "store")),
    (r"sys/socket\.h|sys/un\.h|netinet/.*|arpa/.*|netdb\.h",
     ("base/proc", "wire", "engine/engine_out", "cli")),
    (r"cuda.*\.h|cuda_runtime.*|mma\.h", ("cuda",)),
)

# What every file may use: the C library and Linux. Anything else belongs to one module above.
SYSTEM = set("""
    assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h limits.h locale.h math.h signal.h
    stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h time.h
    strings.h wchar.h
    dirent.h fcntl.h fnmatch.h getopt.h glob.h grp.h pwd.h poll.h sched.h spawn.h syslog.h
    termios.h ucontext.h unistd.h utime.h endian.h byteswap.h elf.h link.h malloc.h langinfo.h
    execinfo.h
""".split())
SYSTEM_FOLDERS = ("sys/", "linux/", "asm/")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)


def table_rows(text, name):
    body = text.split(f"<!-- {name}:begin -->", 1)[1].split(f"<!-- {name}:end -->", 1)[0]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in body.strip().split("\n") if line.startswith("|")]
    return rows[2:]


def read_layers(text):
    """folder -> (layer, folders it may include or None for all)."""
    layers = {}
    for layer, folder, may, *_ in table_rows(text, "layers"):
        layers[folder] = (int(layer), None if may == "*" else set(may.split()))
    for folder, (layer, may) in layers.items():
        for other in may or ():
            if other not in layers:
                sys.exit(f"docs/ARCHITECTURE.md: layer row {folder} names unknown folder {other}")
            if layers[other][0] >= layer:
                sys.exit(f"docs/ARCHITECTURE.md: {folder} (layer {layer}) may not include "
                         f"{other} (layer {layers[other][0]}): not a lower layer")
    return layers


def expand(word):
    """a{b,c}d -> abd acd."""
    m = re.search(r"\{([^}]*)\}", word)
    if not m:
        return [word]
    return [x for part in m.group(1).split(",")
            for x in expand(word[:m.start()] + part + word[m.end():])]


def read_files(text):
    """The set of path patterns under src/ that have a row, without suffix where a pair is meant."""
    known = {}
    folder = ""
    for cells in table_rows(text, "files"):
        folder = cells[0] or folder
        subdir = ""
        for word in cells[1].replace("◦", " ").replace("`", "").split():
            for name in expand(word):
                if "/" in name:
                    subdir, name = name.rsplit("/", 1)
                path = "/".join(p for p in (folder, subdir, name) if p)
                suffixes = ("",) if path.endswith(C_SUFFIXES) else (".c", ".h")
                for suffix in suffixes:
                    known[path + suffix] = folder
    return known


def covering_table(name, known):
    """src/arch/arch_x.c is covered by a row of arch/arch_table.c if that table names arch_x."""
    folder, base = name.split("/")[1], stem(name)
    for path in known:
        if path.endswith("_table.c") and path.split("/")[0] == folder:
            family = stem(path)[:-len("table")]
            if base.startswith(family) and base != stem(path):
                return "src/" + path
    return None


def check_row(report, name, known, files):
    if name[len("src/"):] in known:
        return
    table = covering_table(name, known) if name.endswith(".c") else None
    if table is None:
        report.add("files", name, "no row in docs/ARCHITECTURE.md section 3")
    elif table not in files or not re.search(rf"\b{re.escape(stem(name))}\b", read_text(table)):
        report.add("files", name, f"neither a row of its own nor named in {table}")


def module_matches(name, module):
    path = name[len("src/"):]
    return path.startswith(module + "/") or os.path.splitext(path)[0] == module


def check_includes(report, name, layers, files):
    folder = name.split("/")[1]
    layer, may = layers[folder]
    for m in INCLUDE.finditer(read_text(name)):
        line = read_text(name).count("\n", 0, m.start()) + 1
        quote, header = m.groups()
        if quote == "<":
            check_library(report, name, header, line)
            continue
        target = header.split("/")[0]
        if "/" not in header or target not in layers:
            report.add("layers", name, f'"{header}" is not written as folder/name.h', line)
        elif "src/" + header not in files and header not in GENERATED:
            report.add("layers", name, f'"{header}" does not exist', line)
        elif target != folder and may is not None and target not in may:
            report.add("layers", name, f"{folder} (layer {layer}) may not include {target} "
                                       f'("{header}")', line)


GENERATED = ("base/version.h",)


def check_library(report, name, header, line):
    for pattern, modules in LIBRARIES:
        if re.fullmatch(pattern, header):
            if not any(module_matches(name, m) for m in modules):
                report.add("library", name, f"<{header}> belongs to {' '.join(modules)}", line)
            return
    if header not in SYSTEM and not header.startswith(SYSTEM_FOLDERS):
        report.add("library", name, f"<{header}> belongs to no module: add it to LIBRARIES in "
                                    "tools/check_layers.py and ARCHITECTURE sections 3, 11", line)


def check_opening(report, name):
    text = read_text(name)
    m = re.match(r"/\*.*?\*/", text, re.S)
    if not m:
        report.add("opening", name, "the header does not open with a comment", 1)
        return
    comment = m.group(0)
    if not re.match(rf"/\* {re.escape(stem(name))} - \S", comment):
        report.add("opening", name, f"the first line is not '/* {stem(name)} - what it is'", 1)
    for word in ("Owns:", "Not:", "Thread:"):
        if not re.search(rf"^ \* {word} +\S", comment, re.M):
            report.add("opening", name, f"the opening comment has no line ' * {word}'", 1)
    length = comment.count("\n") + 1
    if length > 40:
        report.add("opening", name, f"the opening comment has {length} lines, at most 40", 1)
    guard = "SHOAL_" + re.sub(r"[^A-Za-z0-9]", "_", os.path.basename(name)).upper()
    folder = "SHOAL_" + re.sub(r"[^A-Za-z0-9]", "_", name[len("src/"):]).upper()
    if not any(f"#ifndef {g}\n#define {g}\n" in text for g in (guard, folder)):
        report.add("opening", name, f"no include guard {folder}", 1)
    code = c_without_comments(text)
    if re.search(r"^\s*#\s*pragma\s+once", code, re.M):
        report.add("opening", name, "#pragma once beside the guard", 1)


def main():
    report = Report("layers", RULES)
    text = read_text("docs/ARCHITECTURE.md")
    layers, known = read_layers(text), read_files(text)
    files = set(tree_files())
    for folder in known.values():
        if folder not in layers:
            sys.exit(f"docs/ARCHITECTURE.md: section 3 has folder {folder}, section 2 has no layer")
    for name in sorted(files):
        if not name.startswith("src/") or not name.endswith(C_SUFFIXES):
            if name.startswith("src/"):
                report.add("files", name, "only C and CUDA sources live in src/")
            continue
        if name.count("/") < 2 or name.split("/")[1] not in layers:
            report.add("files", name, "its folder has no row in docs/ARCHITECTURE.md section 2")
            continue
        check_row(report, name, known, files)
        check_includes(report, name, layers, files)
        if name.endswith((".h", ".cuh")):
            check_opening(report, name)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
