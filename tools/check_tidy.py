#!/usr/bin/env python3
"""Checks what docs/STYLE.md section 8 lets a machine check. Usage: check_tidy.py [BUILD_DIR]

With a build directory it also reads the objects in it: symbol prefixes and vector registers.
Exceptions: tools/check_exceptions.txt.
"""
import concurrent.futures
import json
import os
import re
import stat
import subprocess
import sys

from check_common import (C_SUFFIXES, Report, c_without_comments, c_without_preprocessor, path_of,
                          read_bytes, read_text, stem, tree_files)

RULES = ("line", "function", "complexity", "params", "file", "banned", "place", "flags", "float16",
         "typedef", "switch", "comment", "marker", "text", "mode", "blob", "basename", "test-name",
         "mirror", "docs", "record", "symbol", "vector", "table", "host")

LINE_MAX, FUNCTION_MAX, COMPLEXITY_MAX, PARAMS_MAX = 100, 70, 25, 6
FUNCTION_LISTED_MAX = 120  # for functions with a `function` exception that says why
FILE_WARN, FILE_MAX = 800, 1500
BLOB_MAX = 256 * 1024

BANNED = "sprintf vsprintf strcpy strcat strtok atoi atol atof gets alloca setjmp longjmp " \
         "sigsetjmp siglongjmp system popen assert"
# call -> where it is allowed, as patterns of folder/stem below src/.
ALLOC_PLACES = (r"base/.*", r"quant/.*", r"fmt/.*", r"text/.*", r"tensor/.*", r"cpu/.*",
                r"cuda/.*", r"arch/.*", r"kv/.*", r"engine/engine", r"engine/engine_host",
                r"engine/budget", r"cli/.*", r"store/.*", r"wire/.*", r"serve/.*")
PLACES = (
    ("malloc calloc realloc reallocarray aligned_alloc posix_memalign free strdup strndup "
     "asprintf vasprintf", ALLOC_PLACES, "memory comes from arena, buf, map or mem"),
    ("getenv secure_getenv", (r"cli/config",), "settings are rows of cli/config.c"),
    ("setenv putenv unsetenv clearenv", (r"base/proc", r"cli/.*"), "the environment is cli's"),
    ("exit quick_exit", (r"cli/.*",), "return an error instead"),
    ("_exit _Exit", (r"base/proc", r"base/file", r"engine/engine_host", r"cli/.*"),
     "return an error instead"),
    ("abort", (r"base/base",), "use must()"),
    ("printf vprintf puts putchar putchar_unlocked", (r"cli/.*",), "stdout belongs to cli"),
    ("time gettimeofday clock_gettime clock rand srand random srandom drand48 lrand48 rand_r "
     "arc4random getrandom",
     (r"base/chrono", r"base/digest", r"base/thread"), "time and randomness come from chrono"),
    ("sleep usleep nanosleep", (r"base/chrono", r"base/thread"), "nobody sleeps; wait on a queue"),
)

INVISIBLE = re.compile("[\u00a0\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064"
                       "\u2066-\u206f\ufeff\ufff9-\ufffb]")
BINARY_SUFFIXES = (".gguf", ".bin", ".npz", ".npy", ".gz", ".xz", ".zst", ".png", ".fatbin")


def module_of(name):
    return os.path.splitext(name[len("src/"):])[0]


# ---------------------------------------------------------------- C text

class Function:
    def __init__(self, name, line, lines, args, body):
        self.name, self.line, self.lines, self.args, self.body = name, line, lines, args, body


def matching(text, start, left, right):
    depth = 0
    for i in range(start, len(text)):
        if text[i] == left:
            depth += 1
        elif text[i] == right:
            depth -= 1
            if depth == 0:
                return i
    return -1


def count_params(args):
    args = args.strip()
    if args in ("", "void"):
        return 0
    depth, count = 0, 1
    for c in args:
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            count += 1
    return count


SKIPPED_WORD = re.compile(r"__\w+|[A-Z][A-Z0-9_]*")


def head_call(head):
    """(name, args) of the first call-like word of a declaration that is no attribute or macro."""
    at = 0
    while True:
        m = re.compile(r"([A-Za-z_]\w*)\s*\(").search(head, at)
        if not m:
            return None
        end = matching(head, m.end() - 1, "(", ")")
        if end < 0:
            return None
        if SKIPPED_WORD.fullmatch(m.group(1)):
            at = end
            continue
        return m.group(1), head[m.end():end]


def top_level(code):
    """Yields (head, head_start, body_start, body_end) for each braced thing at depth 0, and
    (head, head_start, None, None) for each statement that ends in a semicolon."""
    start = i = 0
    n = len(code)
    while i < n:
        c = code[i]
        if c == ";":
            yield code[start:i], start, None, None
            start = i + 1
        elif c == "(":
            end = matching(code, i, "(", ")")
            if end < 0:
                return
            i = end
        elif c == "{":
            end = matching(code, i, "{", "}")
            if end < 0:
                return
            head = code[start:i]
            yield head, start, i, end
            i = end
            if is_function_head(head):
                start = i + 1
        i += 1


def is_function_head(head):
    bare = head.strip()
    if "=" in re.sub(r"\([^()]*\)", "", bare) or not bare.endswith(")"):
        return False
    return head_call(head) is not None


def functions_of(code):
    for head, start, body, end in top_level(code):
        if body is None or not is_function_head(head):
            continue
        first = start + len(head) - len(head.lstrip())
        name, args = head_call(head)
        line = code.count("\n", 0, first) + 1
        lines = code.count("\n", first, end) + 1
        yield Function(name, line, lines, args, code[body:end + 1])


def complexity(body):
    """McCabe's number; a switch counts once, however many enum values it must name."""
    return 1 + len(re.findall(r"\b(?:if|for|while|switch)\b|&&|\|\||\?", body))


def declared_params(code):
    """(name, line, count) of each prototype and each function pointer."""
    for head, start, body, _ in top_level(code):
        if body is not None or "=" in head:
            continue
        call = head_call(head)
        if call and not head.strip().startswith("typedef"):
            yield call[0], code.count("\n", 0, start + len(head) - len(head.lstrip())) + 1, \
                count_params(call[1])
    for m in re.finditer(r"\(\s*\*\s*(?:const\s+)?(\w+)\s*\)\s*\(", code):
        end = matching(code, m.end() - 1, "(", ")")
        yield m.group(1), code.count("\n", 0, m.start()) + 1, count_params(code[m.end():end])


def check_functions(report, name, code):
    for f in functions_of(code):
        limit = FUNCTION_MAX
        if f.lines > limit and f.lines <= FUNCTION_LISTED_MAX:
            if report.is_excused("function", name, f.name):
                limit = FUNCTION_LISTED_MAX
        if f.lines > limit:
            report.findings.append(f"{name}:{f.line}: function: {f.name} has {f.lines} lines, "
                                   f"at most {limit}")
        if complexity(f.body) > COMPLEXITY_MAX:
            report.add("complexity", name, f"{f.name} has cyclomatic complexity "
                       f"{complexity(f.body)}, at most {COMPLEXITY_MAX}", f.line, f.name)
        if count_params(f.args) > PARAMS_MAX:
            report.add("params", name, f"{f.name} has {count_params(f.args)} parameters, at most "
                       f"{PARAMS_MAX}: make a struct", f.line, f.name)
        if name.startswith("tests/") and re.fullmatch(r"test_\w*", f.name) \
                and f.name.count("_") < 3 and "void **" in f.args:
            report.add("test-name", name, f"{f.name} is not a sentence", f.line, f.name)
    for symbol, line, count in declared_params(code):
        if count > PARAMS_MAX:
            report.add("params", name, f"{symbol} has {count} parameters, at most {PARAMS_MAX}: "
                       "make a struct", line, symbol)


def calls(code, words):
    pattern = r"(?<![\w.>])(?:" + "|".join(words.split()) + r")\s*\("
    for m in re.finditer(pattern, code):
        before = code[:m.start()].rstrip()
        if before.endswith("->"):
            continue
        yield m.group(0).rstrip("( \n"), code.count("\n", 0, m.start()) + 1


def check_calls(report, name, code, with_directives):
    for word, line in calls(code, BANNED):
        report.add("banned", name, f"{word}() is banned", line, word)
    if re.search(r"^\s*#\s*include\s*<(assert|setjmp)\.h>", with_directives, re.M):
        report.add("banned", name, "<assert.h> or <setjmp.h>")
    for words, places, why in PLACES:
        if any(re.fullmatch(p, module_of(name)) for p in places):
            continue
        for word, line in calls(code, words):
            report.add("place", name, f"{word}() does not belong here: {why}", line, word)
    if not name.startswith("src/cli/"):
        for m in re.finditer(r"\bstdout\b", code):
            report.add("place", name, "stdout belongs to cli", code.count("\n", 0, m.start()) + 1)


def check_language(report, name, code, with_directives):
    for m in re.finditer(r"\b_Float16\b", code):
        report.add("float16", name, "f16 goes by bits (base.h)", code.count("\n", 0, m.start()) + 1)
    for m in re.finditer(r"\btypedef\b", code):
        if name != "src/base/str.h":
            report.add("typedef", name, "the only one is str", code.count("\n", 0, m.start()) + 1)
    for m in re.finditer(r"\b(?:struct|enum|union)\s+(\w+_t)\b", code):
        report.add("typedef", name, f"{m.group(1)}: no _t", code.count("\n", 0, m.start()) + 1)
    for m in re.finditer(r"#\s*pragma\s+(?:GCC|clang)\s+(?:optimize|target|push_options)|"
                         r"__attribute__\s*\(\(\s*(?:target|optimize)|-ffast-math|__FAST_MATH__|"
                         r"__target__|__optimize__|__DATE__|__TIME__", with_directives):
        report.add("flags", name, f"{m.group(0)}: flags come from the file's suffix",
                   with_directives.count("\n", 0, m.start()) + 1)


def check_switches(report, name, code):
    """No default beside enum values: the compiler then finds the missing one (-Wswitch)."""
    for m in re.finditer(r"\bswitch\s*\(", code):
        start = code.find("{", matching(code, m.end() - 1, "(", ")"))
        body = code[start:matching(code, start, "{", "}")]
        cases = re.findall(r"\bcase\s+([^:]+?)\s*:", body)
        if re.search(r"\bdefault\s*:", body) and cases \
                and all(re.fullmatch(r"[A-Z][A-Z0-9]*_\w+", c) for c in cases):
            report.add("switch", name, "default in a switch over an enum: name all values",
                       code.count("\n", 0, m.start()) + 1)


def check_c(report, name):
    text = read_text(name)
    stripped = c_without_comments(text)
    code = c_without_preprocessor(stripped)
    lines = text.split("\n")
    is_data = stem(name).endswith("_data")
    if len(lines) > FILE_MAX and not is_data:
        report.add("file", name, f"{len(lines)} lines, at most {FILE_MAX}")
    elif len(lines) > FILE_WARN and not is_data:
        report.warn(name, f"{len(lines)} lines: does it hold two ideas?")
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("//"):
            report.add("comment", name, "// only at the end of a line of code", number)
    check_functions(report, name, code)
    check_language(report, name, code, stripped)
    check_switches(report, name, code)
    if name.startswith("src/"):
        check_calls(report, name, code, stripped)


# ---------------------------------------------------------------- any text

def check_line_lengths(report, name, lines):
    is_off = False
    for number, line in enumerate(lines, 1):
        if "clang-format off" in line:
            is_off = True
        elif "clang-format on" in line:
            is_off = False
        elif len(line) > LINE_MAX and not is_off:
            report.add("line", name, f"{len(line)} columns, at most {LINE_MAX}", number)


HOST = re.compile(r"https?://[\w.-]*(?:py" r"pi|pythonhosted|deb" r"ian)\b")
MARKER = re.compile(r"\b(?:FIX" r"ME|XX" r"X)\b|\bTO" r"DO(?!\(#\d+\))")


def check_text(report, name):
    raw = read_bytes(name)
    if b"\0" in raw or name.endswith(BINARY_SUFFIXES):
        return
    text = raw.decode("utf-8", errors="replace")
    lines = text.split("\n")
    is_code = name.endswith(C_SUFFIXES + (".py", ".sh")) or "." not in os.path.basename(name)
    if text and not text.endswith("\n"):
        report.add("text", name, "no newline at the end of the file", len(lines))
    if text.endswith("\n\n"):
        report.add("text", name, "blank lines at the end of the file", len(lines))
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            report.add("text", name, "trailing blanks", number)
        if "\t" in line and not (os.path.basename(name) == "Makefile" and line[0] == "\t"):
            report.add("text", name, "a tab", number)
        m = INVISIBLE.search(line)
        if m:
            report.add("text", name, f"invisible character U+{ord(m.group(0)):04X}", number)
        if HOST.search(line):
            report.add("host", name, "names a package host: the machine's settings decide", number)
        if is_code and MARKER.search(line):
            report.add("marker", name, f"{MARKER.search(line).group(0)}: only TO" "DO(#issue)",
                       number)
    if is_code and not stem(name).endswith("_data"):
        check_line_lengths(report, name, lines)


def is_sample(name):
    """Bytes that a test needs as they are."""
    return "/fixtures/" in name or "/corpus/" in name or name.startswith("tests/golden/") \
        and not name.endswith((".py", ".c", ".h", ".md"))


def check_file(report, name):
    status = os.lstat(path_of(name))
    if stat.S_ISLNK(status.st_mode):
        report.add("mode", name, "a symbolic link")
        return
    head = read_bytes(name)[:2]
    is_executable = bool(status.st_mode & 0o111)
    if is_executable != (head == b"#!") and not is_sample(name):
        report.add("mode", name, "executable and '#!' do not go together")
    if status.st_size > BLOB_MAX and "/fixtures/" not in name:
        report.add("blob", name, f"{status.st_size} bytes outside fixtures/, at most {BLOB_MAX}")
    if not is_sample(name):
        check_text(report, name)


def check_basenames(report, files):
    seen = {}
    for name in files:
        if not name.endswith(C_SUFFIXES):
            continue
        key = os.path.splitext(name)[0]
        other = seen.setdefault(stem(name), key)
        if other != key:
            report.add("basename", name, f"{stem(name)} is also the name of {other}")


def check_mirror(report, files):
    """tests/unit/kv/kv_trie_test.c tests src/kv/kv_trie.*, wherever below src/kv it lies."""
    modules = {(n.split("/")[1], stem(n)) for n in files
               if n.startswith("src/") and n.count("/") > 1}
    for name in files:
        if not name.startswith("tests/unit/") or not name.endswith(".c"):
            continue
        parts = name.split("/")
        if name[:-1] + "h" in files and len(parts) == 4:
            continue  # what several tests of a folder share
        if len(parts) != 4 or not name.endswith("_test.c"):
            report.add("mirror", name, "unit tests are tests/unit/FOLDER/NAME_test.c")
        elif (parts[2], stem(name)[:-len("_test")]) not in modules:
            report.add("mirror", name, f"no src/{parts[2]}/{stem(name)[:-len('_test')]} to test")


# ---------------------------------------------------------------- pages

# Pages that say how the tree is; the others also say how it will be.
TRUE_PAGES = r"README\.md|docs/(TESTING|NUMBERS|REGRESSIONS)\.md|docs/(howto|models|formats)/.*\.md"
PATH = re.compile(r"(?:src|tests|tools|docs|bench)/[\w./*-]*")
TEST = re.compile(r"\btest_\w+")


def path_pattern(path):
    """tests/unit/FOLDER/NAME_test.c -> a regular expression; words in capitals stand for any."""
    parts = re.split(r"(\.\.\.|\*|(?<![a-z0-9])[A-Z]{2,}(?![a-z0-9]))", path.rstrip("/."))
    return re.compile("".join(re.escape(p) if i % 2 == 0 else ".*" if p == "..." else "[^/]*"
                              for i, p in enumerate(parts)))


def check_pages(report, files):
    """A path or a test that a page names exists."""
    known = set(files)
    tests = {word for name in files if name.startswith("tests/") and name.endswith((".c", ".py"))
             for word in TEST.findall(name + " " + read_text(name))}
    for name in files:
        while "/" in name:
            name = name.rsplit("/", 1)[0]
            known.add(name)
    for page in files:
        if not re.fullmatch(TRUE_PAGES, page):
            continue
        for number, line in enumerate(read_text(page).split("\n"), 1):
            for code in re.findall(r"`([^`]+)`|\]\(([^)#]+)", line):
                word = code[0] or os.path.normpath(os.path.join(os.path.dirname(page), code[1]))
                is_link = not code[0] and "://" not in code[1]
                if (is_link or PATH.fullmatch(word)) and not word.startswith("build") \
                        and not any(path_pattern(word).fullmatch(k) for k in known):
                    report.add("docs", page, f"{word} does not exist", number)
                if TEST.fullmatch(word) and word not in tests:
                    report.add("docs", page, f"there is no test {word}", number)


def table_rows(name, first):
    """(line number, cells) of the rows whose first cell matches; a bar inside code is \\|."""
    for number, line in enumerate(read_text(name).split("\n"), 1):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and re.fullmatch(first, cells[0]):
            yield number, cells


def check_records(report, files):
    """Rows of NUMBERS and REGRESSIONS are whole: nothing that a reader needs is left out."""
    if "docs/NUMBERS.md" in files:
        name, last, seen = "docs/NUMBERS.md", None, set()
        machines = {cells[0] for _, cells in table_rows(name, r"[A-Z]+[0-9]+")}
        for number, cells in table_rows(name, r"20\d\d-\d\d-\d\d"):
            if len(cells) != 8 or not all(cells[:5]) or not cells[6]:
                report.add("record", name, "date, machine, commit, what, command, before, after "
                           "and note expected; only before and note may be empty", number)
            elif cells[1] not in machines:
                report.add("record", name, f"{cells[1]} is no machine of the first table", number)
            if last and cells[0] > last:
                report.add("record", name, "the newest row comes first", number)
            if tuple(cells[2:4]) in seen:
                report.add("record", name, "this commit and work have a row already", number)
            seen.add(tuple(cells[2:4]))
            last = cells[0]
    if "docs/REGRESSIONS.md" in files:
        seen = set()
        for number, cells in table_rows("docs/REGRESSIONS.md", r"\d+"):
            if len(cells) != 5 or not all(cells):
                report.add("record", "docs/REGRESSIONS.md",
                           "number, date, symptom, cause and test expected", number)
            elif cells[2] in seen:
                report.add("record", "docs/REGRESSIONS.md", "the symptom has a row already",
                           number)
            else:
                seen.add(cells[2])


# ---------------------------------------------------------------- tables

def check_tables(report, files):
    """A row lacks its page or golden (docs/ARCHITECTURE.md section 9)."""
    names = set(files)
    folders = {os.path.dirname(n) for n in files}

    def entries(table, family):
        if table not in names:
            return []
        return sorted(set(re.findall(rf"\b{family}_([a-z0-9_]+)\b",
                                     c_without_comments(read_text(table)))) - {"table", "count"})

    for arch in entries("src/arch/arch_table.c", "arch"):
        if f"src/arch/arch_{arch}.c" not in names:
            continue
        if f"docs/models/{arch}.md" not in names:
            report.add("table", "src/arch/arch_table.c", f"'{arch}' has no docs/models/{arch}.md")
        if not any(f.startswith(f"tests/golden/{arch}") for f in folders):
            report.add("table", "src/arch/arch_table.c", f"'{arch}' has no tests/golden/{arch}/")
    for dialect in entries("src/dialect/dialect_table.c", "dialect"):
        if f"src/dialect/dialect_{dialect}.c" in names \
                and f"docs/dialects/{dialect}.md" not in names:
            report.add("table", "src/dialect/dialect_table.c",
                       f"'{dialect}' has no docs/dialects/{dialect}.md")
    for fuzz in files:
        m = re.fullmatch(r"tests/fuzz/(\w+)_fuzz\.c", fuzz)
        if m and not any(f.startswith(f"tests/fuzz/corpus/{m.group(1)}") for f in folders):
            report.add("table", fuzz, f"no corpus in tests/fuzz/corpus/{m.group(1)}/")


# ---------------------------------------------------------------- objects

ISA = ("avx2", "avx512", "vnni", "bf16", "amx")
# Registers and instructions that need more than a level has; None = x86-64-v2.
EVEX = r"%zmm|%[xyz]mm(?:1[6-9]|2\d|3[01])\b|%k[0-7]\b|\{%k"
NEEDS = {
    "avx": r"%ymm|^\s*v[a-z]",
    "avx512": EVEX,
    "vnni": r"\bvpdp(?:bus|wss)ds?\b|\bvperm[it]?2?b\b|\bvpmultishiftqb\b",
    "bf16": r"\bvdpbf16ps\b|\bvcvtne",
    "amx": r"%tmm|\btdp|\btile",
}
FORBIDDEN = {
    None: ("avx", "avx512", "vnni", "bf16", "amx"),
    "avx2": ("avx512", "vnni", "bf16", "amx"),
    "avx512": ("vnni", "bf16", "amx"),
    "vnni": ("bf16", "amx"),
    "bf16": ("amx",),
    "amx": (),
}


def isa_of(name):
    last = stem(name).split("_")[-1]
    return last if last in ISA else None


def scan_object(path, name):
    """Symbols and leaked instructions of one object: what `nm` and `objdump` say."""
    out = subprocess.run(["nm", "-g", "--defined-only", path], check=True,
                         stdout=subprocess.PIPE).stdout.decode()
    symbols = [line.split()[-1] for line in out.splitlines() if len(line.split()) == 3]
    out = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True,
                         stdout=subprocess.PIPE).stdout.decode()
    leaks = {}
    function = "?"
    patterns = [(kind, re.compile(NEEDS[kind])) for kind in FORBIDDEN[isa_of(name)]]
    for line in out.splitlines():
        if line.endswith(">:"):
            function = line.split("<")[-1][:-2]
            continue
        instruction = re.sub(r"<[^>]*>", "", line.split(":", 1)[-1]).strip()
        for kind, pattern in patterns:
            if pattern.search(instruction):
                leaks.setdefault(kind, f"{function}: {' '.join(instruction.split())}")
    return {"symbols": symbols, "leaks": leaks}


def load_cache(path, own_version):
    try:
        with open(path, encoding="utf-8") as f:
            cache = json.load(f)
    except (OSError, ValueError):
        return {}
    return cache["objects"] if cache.get("version") == own_version else {}


def scan_objects(build, files):
    cache_path = os.path.join(build, "tidy_objects.json")
    own_version = os.stat(os.path.abspath(__file__)).st_mtime_ns
    cache, fresh, jobs = load_cache(cache_path, own_version), {}, []
    for name in files:
        path = os.path.join(build, os.path.splitext(name)[0] + ".o")
        if not name.startswith("src/") or not name.endswith(".c") or not os.path.exists(path):
            continue
        status = os.stat(path)
        key = f"{status.st_mtime_ns} {status.st_size}"
        if cache.get(name, {}).get("key") == key:
            fresh[name] = cache[name]
        else:
            jobs.append((name, path, key))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (name, _, key), facts in zip(jobs, pool.map(lambda j: scan_object(j[1], j[0]), jobs)):
            fresh[name] = dict(facts, key=key)
    with open(cache_path + ".new", "w", encoding="utf-8") as f:
        json.dump({"version": own_version, "objects": fresh}, f)
    os.replace(cache_path + ".new", cache_path)
    return fresh


def interface_of(name, files):
    """Stem of the header that declares a file's exports: its own, else that of its row."""
    folder, words = os.path.dirname(name), stem(name).split("_")
    for count in range(len(words), 0, -1):
        if f"{folder}/{'_'.join(words[:count])}.h" in files:
            return "_".join(words[:count])
    return stem(name)


def check_objects(report, build, files):
    for name, facts in sorted(scan_objects(build, files).items()):
        base, isa = stem(name), isa_of(name)
        prefix = "api_" if name.startswith("src/api/") else interface_of(name, files) + "_"
        for symbol in facts["symbols"]:
            if name == "src/cli/main.c" and symbol == "main":
                continue
            if isa and symbol != base + "_add":
                report.add("symbol", name, f"{symbol}: an ISA file exports {base}_add only",
                           symbol=symbol)
            elif symbol != base and not symbol.startswith(prefix):
                report.add("symbol", name, f"{symbol} does not start with {prefix}", symbol=symbol)
        for kind, where in sorted(facts["leaks"].items()):
            report.add("vector", name, f"{kind} instruction in a file of level "
                       f"{isa or 'x86-64-v2'}: {where}")


def check_makefile(report):
    for number, line in enumerate(read_text("Makefile").split("\n"), 1):
        if re.search(r"-ffast-math|-Ofast|-flto|-funsafe-math|-fassociative-math", line):
            report.add("flags", "Makefile", "no fast-math, no LTO", number)
        m = re.match(r"ISA_(\w+)", line)
        if "-mavx" in line and not (m and m.group(1) in ISA):
            report.add("flags", "Makefile", "-m flags belong to ISA_ lines only", number)


def main():
    report = Report("tidy", RULES)
    files = tree_files()
    for name in files:
        check_file(report, name)
        if name.endswith(C_SUFFIXES) and not is_sample(name):
            check_c(report, name)
    check_basenames(report, files)
    check_mirror(report, files)
    check_pages(report, files)
    check_records(report, files)
    check_tables(report, files)
    check_makefile(report)
    if len(sys.argv) > 1:
        check_objects(report, sys.argv[1], files)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
