"""What both checkers share: the list of files, C text without comments, exceptions, reporting.

An exception is one line in tools/check_exceptions.txt: rule, place, reason. A place is a path, a
path with a shell pattern, or path:name for a function or symbol. An exception that no longer
excuses anything is an error itself, so the list stays true.
"""
import fnmatch
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
C_SUFFIXES = (".c", ".h", ".cu", ".cuh")


def path_of(name):
    return os.path.join(ROOT, name)


def tree_files():
    """Every file that is or would be committed, relative to the root, sorted."""
    out = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode()
    names = sorted(set(name for name in out.split("\0") if name))
    return [name for name in names if os.path.isfile(path_of(name))]


def read_bytes(name):
    with open(path_of(name), "rb") as f:
        return f.read()


def read_text(name):
    return read_bytes(name).decode("utf-8", errors="replace")


def stem(name):
    return os.path.basename(name).split(".")[0]


_LEXEME = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def _blank(match):
    text = match.group(0)
    kept = "".join("\n" if c == "\n" else " " for c in text[1:-1])
    if text[0] in "\"'":
        return text[0] + kept + text[0]
    return " " + kept + " "


def c_without_comments(text):
    """Comments and the insides of literals become blanks; lines and columns stay."""
    return _LEXEME.sub(_blank, text)


def c_without_preprocessor(stripped):
    """Blanks directives with their continued lines; expects text without comments."""
    lines = stripped.split("\n")
    inside = False
    for i, line in enumerate(lines):
        if inside or line.lstrip().startswith("#"):
            inside = line.rstrip().endswith("\\")
            lines[i] = ""
    return "\n".join(lines)


class Report:
    """Collects findings, drops the excused ones, prints the rest."""

    def __init__(self, name, rules):
        self.name = name
        self.findings = []
        self.warnings = []
        self.exceptions = []
        for number, line in enumerate(read_text("tools/check_exceptions.txt").split("\n"), 1):
            if not line.strip() or line.startswith("#"):
                continue
            words = line.split(None, 2)
            if len(words) < 3:
                sys.exit(f"tools/check_exceptions.txt:{number}: needs rule, place and reason")
            if words[0] in rules:
                self.exceptions.append([words[0], words[1], number, False])

    def is_excused(self, rule, place, symbol=None):
        excused = False
        wanted = [place] if symbol is None else [place, f"{place}:{symbol}"]
        for entry in self.exceptions:
            if entry[0] == rule and any(fnmatch.fnmatch(w, entry[1]) for w in wanted):
                entry[3] = excused = True
        return excused

    def add(self, rule, place, text, line=None, symbol=None):
        if not self.is_excused(rule, place, symbol):
            where = place if line is None else f"{place}:{line}"
            self.findings.append(f"{where}: {rule}: {text}")

    def warn(self, place, text):
        self.warnings.append(f"{place}: warning: {text}")

    def finish(self):
        for rule, place, number, used in self.exceptions:
            if not used:
                self.findings.append(f"tools/check_exceptions.txt:{number}: unused: "
                                     f"'{rule} {place}' excuses nothing any more")
        for line in self.warnings:
            print(line)
        for line in self.findings:
            print(line)
        if self.findings:
            print(f"{self.name}: {len(self.findings)} findings")
        return 1 if self.findings else 0
