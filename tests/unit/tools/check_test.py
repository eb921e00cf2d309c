#!/usr/bin/env python3
"""Each rule of tools/check_tidy.py and tools/check_layers.py finds what it must and no more.

A case is a rule, a small tree, and whether the rule is to fire on it.
"""
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "tools"))

import check_common  # noqa: E402
import check_layers  # noqa: E402
import check_tidy  # noqa: E402

ARCHITECTURE = """<!-- layers:begin -->
| layer | folder | may include | cannot know about |
|---|---|---|---|
| 0 | base | | |
| 1 | wire | base | |
| 2 | store | base wire | |
| 3 | cpu | base | |
| 7 | cli | * | |
<!-- layers:end -->
<!-- files:begin -->
| folder | files | own |
|---|---|---|
| base | base.h err | x |
| | str {map,list}.h | x |
| wire | loop pipe | x |
| cpu | x86/{ops,mm}_avx2.c ◦ x86/mm_amx.c | x |
| store | hub_table.c library | x |
| cli | main.c | x |
<!-- files:end -->
"""
HEADER = "/* {0} - a thing.\n *\n * Owns:      x.\n * Not:       y.\n * Thread:    any.\n */\n" \
         "#ifndef SHOAL_BASE_{1}_H\n#define SHOAL_BASE_{1}_H\n{2}\n#endif\n"


def header(name, body=""):
    return HEADER.format(name, name.upper(), body)


def function(lines, head="int err_f(void)"):
    return head + "\n{\n" + "    ;\n" * (lines - 3) + "}\n"


NUMBERS = "| name | CPU |\n|---|---|\n| Z4 | x |\n\n"
DEEP = "int err_f(int a)\n{\n" + "".join(f"    if (a > {i})\n        a++;\n" for i in range(24))

TIDY = [
    ("line", {"src/base/err.c": "int err_x; /* " + "x" * 84 + " */\n"}, True),
    ("line", {"src/base/err.c": "int err_x; /* " + "x" * 83 + " */\n"}, False),
    ("line", {"src/base/err.c": "/* clang-format off */\n" + "x" * 120 +
              "\n/* clang-format on */\n"}, False),
    ("line", {"src/base/err_data.c": "int err_x; /* " + "x" * 120 + " */\n"}, False),
    ("line", {"tools/a.py": "#" * 101 + "\n"}, True),
    ("line", {"docs/a.md": "#" * 131 + "\n"}, False),
    ("function", {"src/base/err.c": function(71)}, True),
    ("function", {"src/base/err.c": function(70)}, False),
    ("function", {"src/base/err.c": function(71, "BASE_PRINTF(1, 2) int err_f(char *f, ...)")},
     True),
    ("function", {"src/base/err.c": "static const int err_a[] = {\n" + "    1,\n" * 90 + "};\n"},
     False),
    ("function", {"src/base/err.c": "struct err_a {\n" + "    int x;\n" * 90 + "};\n"}, False),
    ("function", {"src/base/err.c": function(100), "tools/check_exceptions.txt":
                  "function src/base/err.c:err_f an option table\n"}, False),
    ("function", {"src/base/err.c": function(121), "tools/check_exceptions.txt":
                  "function src/base/err.c:err_f an option table\n"}, True),
    ("complexity", {"src/base/err.c": DEEP + "    return a && a;\n}\n"}, True),
    ("complexity", {"src/base/err.c": DEEP + "    return a;\n}\n"}, False),
    ("params", {"src/base/err.c": "int err_f(int a, int b, int c, int d, int e, int f, int g);\n"},
     True),
    ("params", {"src/base/err.c": "int err_f(int a, int b, int c, int d, int e, int (*f)(int, int))"
                "\n{\n    return 0;\n}\n"}, False),
    ("params", {"src/base/err.h": header("err", "struct err {\n    int (*f)(int a, int b, int c, "
                "int d, int e,\n             int f, int g);\n};")}, True),
    ("banned", {"src/base/err.c": "int err_f(char *a) { return sprintf(a, \"x\"); }\n"}, True),
    ("banned", {"src/base/err.c": "/* sprintf(a) */ const char *err_s = \"strcpy(a)\";\n"}, False),
    ("banned", {"src/base/err.c": "#include <assert.h>\n"}, True),
    ("place", {"src/route/err.c": "void *err_f(void) { return malloc(1); }\n"}, True),
    ("place", {"src/base/err.c": "void *err_f(void) { return malloc(1); }\n"}, False),
    ("place", {"src/route/err.c": "void err_f(struct x *p) { p->free(p); }\n"}, False),
    ("place", {"src/base/err.c": "char *err_f(void) { return getenv(\"X\"); }\n"}, True),
    ("place", {"src/cli/config.c": "char *config_f(void) { return getenv(\"X\"); }\n"}, False),
    ("place", {"src/base/err.c": "void err_f(void) { exit(1); }\n"}, True),
    ("place", {"src/base/err.c": "void err_f(void) { printf(\"x\"); }\n"}, True),
    ("place", {"src/base/err.c": "void err_f(void) { fprintf(stderr, \"x\"); }\n"}, False),
    ("place", {"src/base/err.c": "void err_f(void) { fputs(\"x\", stdout); }\n"}, True),
    ("place", {"src/kv/err.c": "long err_f(void) { return time(0); }\n"}, True),
    ("flags", {"src/base/err.c": "__attribute__((target(\"avx2\"))) void err_f(void);\n"}, True),
    ("flags", {"src/base/err.c": "const char *err_d = __DATE__;\n"}, True),
    ("flags", {"Makefile": "OPT = -O2 -ffast-math\n"}, True),
    ("flags", {"Makefile": "OPT = -O2 -mavx2\n"}, True),
    ("flags", {"Makefile": "ISA_avx2 = -mavx2\n"}, False),
    ("float16", {"src/base/err.c": "_Float16 err_x;\n"}, True),
    ("typedef", {"src/base/err.c": "typedef int err_x;\n"}, True),
    ("typedef", {"src/base/str.h": header("str", "typedef struct str str;")}, False),
    ("typedef", {"src/base/err.c": "struct err_t { int x; };\n"}, True),
    ("switch", {"src/base/err.c": "int err_f(int a)\n{\n    switch (a) {\n    case ERR_NONE: "
                "return 1;\n    default: return 2;\n    }\n}\n"}, True),
    ("switch", {"src/base/err.c": "int err_f(int a)\n{\n    switch (a) {\n    case 'a': "
                "return 1;\n    default: return 2;\n    }\n}\n"}, False),
    ("comment", {"src/base/err.c": "// alone\nint err_x;\n"}, True),
    ("comment", {"src/base/err.c": "int err_x; // beside\n"}, False),
    ("marker", {"src/base/err.c": "/* FIX" "ME later */\n"}, True),
    ("marker", {"src/base/err.c": "/* TO" "DO later */\n"}, True),
    ("marker", {"src/base/err.c": "/* TO" "DO(#7) later */\n"}, False),
    ("text", {"src/base/err.c": "int err_x; \n"}, True),
    ("text", {"src/base/err.c": "\tint err_x;\n"}, True),
    ("text", {"src/base/err.c": "int err_x;"}, True),
    ("text", {"src/base/err.c": "int err_x;\n\n"}, True),
    ("text", {"docs/a.md": "zero\u200bwidth\n"}, True),
    ("text", {"docs/a.md": "grün – schön ◦\n"}, False),
    ("text", {"Makefile": "all:\n\ttrue\n"}, False),
    ("mode", {"src/base/err.c": "int err_x;\n", "+x": "src/base/err.c"}, True),
    ("mode", {"tools/a.py": "#!/usr/bin/env python3\n"}, True),
    ("mode", {"tools/a.py": "#!/usr/bin/env python3\n", "+x": "tools/a.py"}, False),
    ("blob", {"tests/golden/x/a.txt": "x" * (256 * 1024 + 1)}, True),
    ("blob", {"tests/golden/x/fixtures/a.txt": "x" * (256 * 1024 + 1)}, False),
    ("basename", {"src/base/err.c": "\n", "src/wire/err.c": "\n"}, True),
    ("basename", {"src/base/err.c": "\n", "src/base/err.h": header("err")}, False),
    ("test-name", {"tests/unit/base/err_test.c": "void test_err(void **s) { }\n",
                   "src/base/err.c": "\n"}, True),
    ("test-name", {"tests/unit/base/err_test.c": "void test_it_says_what(void **s) { }\n",
                   "src/base/err.c": "\n"}, False),
    ("mirror", {"tests/unit/base/no_test.c": "\n"}, True),
    ("mirror", {"tests/unit/base/err_test.c": "\n", "src/base/err.c": "\n"}, False),
    ("record", {"docs/NUMBERS.md": NUMBERS + "| 2026-11-30 | Z4 | 1a2b3c4 | x | `y` | | 2 | |\n"},
     False),
    ("record", {"docs/NUMBERS.md": NUMBERS + "| 2026-11-30 | Z4 | | x | `y` | 1 | 2 | |\n"}, True),
    ("record", {"docs/NUMBERS.md": NUMBERS
                + "| 2026-11-30 | Z5 | a | x | `y` | 1 | 2 | |\n"}, True),
    ("record", {"docs/NUMBERS.md": NUMBERS + "| 2026-11-30 | Z4 | a | x | `y \\| z` | 1 | 2 | |\n"},
     False),
    ("record", {"docs/NUMBERS.md": NUMBERS + "| 2026-11-29 | Z4 | a | x | `y` | 1 | 2 | |\n"
                "| 2026-11-30 | Z4 | b | x | `y` | 1 | 2 | |\n"}, True),
    ("record", {"docs/NUMBERS.md": NUMBERS + "| 2026-11-30 | Z4 | a | x | `y` | 1 | 2 | |\n"
                "| 2026-11-30 | Z4 | a | x | `y` | 1 | 3 | |\n"}, True),
    ("record", {"docs/REGRESSIONS.md": "| 2 | 2026-11-30 | s | c | fix | the test |\n"
                "| 1 | 2026-11-30 | s | c | fix | the test |\n"}, True),
    ("record", {"docs/REGRESSIONS.md": "| 1 | 2026-11-30 | s | c | the test |\n"}, False),
    ("record", {"docs/REGRESSIONS.md": "| 1 | 2026-11-30 | s | c | fix | the test |\n"}, True),
    ("docs", {"docs/howto/a.md": "see `src/base/none.c`\n"}, True),
    ("docs", {"docs/howto/a.md": "see [it](none.md)\n"}, True),
    ("docs", {"docs/howto/a.md": "see [it](b.md), `src/base/NAME.c`, `tests/unit/.../x_test.c`, "
              "`src/base/`, `make x`, [o](https://x.org/y)\n", "docs/howto/b.md": "\n",
              "src/base/err.c": "\n", "tests/unit/base/x_test.c": "\n",
              "src/base/x.c": "\n"}, False),
    ("docs", {"docs/BEHAVIOUR.md": "see `src/base/none.c`\n"}, False),
    ("docs", {"docs/REGRESSIONS.md": "| 1 | `test_gone` |\n", "tests/e2e/test_a.py": "\n"}, True),
    ("docs", {"docs/REGRESSIONS.md": "| 1 | `test_here`, `test_a`, `test_A14_...` |\n",
              "tests/e2e/test_a.py": "def test_here():\n"}, False),
    ("table", {"tests/fuzz/err_fuzz.c": "\n"}, True),
    ("table", {"tests/fuzz/err_fuzz.c": "\n", "tests/fuzz/corpus/err/a": "a"}, False),
    ("table", {"src/arch/arch_table.c": "&arch_x\n", "src/arch/arch_x.c": "\n"}, True),
    ("host", {"docs/a.md": "https://files.deb" "ian.org/x\n"}, True),
    ("host", {"docs/a.md": "https://www.apache.org/licenses\n"}, False),
]

LAYERS = [
    ("layers", {"src/base/err.c": '#include "wire/loop.h"\n', "src/wire/loop.h": "\n"}, True),
    ("layers", {"src/wire/loop.c": '#include "base/err.h"\n', "src/base/err.h": "\n"}, False),
    ("layers", {"src/cli/main.c": '#include "wire/loop.h"\n', "src/wire/loop.h": "\n"}, False),
    ("layers", {"src/base/err.c": '#include "err.h"\n', "src/base/err.h": "\n"}, True),
    ("layers", {"src/base/err.c": '#include "base/no.h"\n'}, True),
    ("files", {"src/base/other.c": "\n"}, True),
    ("files", {"src/base/map.c": "\n"}, True),
    ("files", {"src/base/map.h": "\n", "src/cpu/x86/mm_avx2.c": "\n"}, False),
    ("files", {"src/cpu/x86/mm_amx.c": "\n"}, False),
    ("files", {"src/cpu/mm_avx2.c": "\n"}, True),
    ("files", {"src/other/a.c": "\n"}, True),
    ("files", {"src/store/hub_x.c": "\n", "src/store/hub_table.c": "extern int hub_x;\n"}, False),
    ("files", {"src/store/hub_x.c": "\n", "src/store/hub_table.c": "\n"}, True),
    ("files", {"src/base/notes.txt": "\n"}, True),
    ("library", {"src/base/err.c": "#include <event2/event.h>\n"}, True),
    ("library", {"src/wire/loop.c": "#include <event2/event.h>\n"}, False),
    ("library", {"src/base/err.c": "#include <zlib.h>\n"}, True),
    ("library", {"src/base/err.c": "#include <sys/stat.h>\n"}, False),
    ("opening", {"src/base/err.h": header("err")}, False),
    ("opening", {"src/base/err.h": header("str")}, True),
    ("opening", {"src/base/err.h": header("err").replace("Thread", "Threat")}, True),
    ("opening", {"src/base/err.h": header("err").replace("#define", "#undef")}, True),
    ("opening", {"src/base/err.h": "#pragma once\n"}, True),
]

AVX2 = "#include <immintrin.h>\nvoid {0}(float *p);\nvoid {0}(float *p)\n{{\n" \
       "    _mm256_storeu_ps(p, _mm256_add_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p)));\n}}\n"
AVX512 = "#include <immintrin.h>\nvoid {0}(float *p);\nvoid {0}(float *p)\n{{\n" \
         "    _mm512_storeu_ps(p, _mm512_add_ps(_mm512_loadu_ps(p), _mm512_loadu_ps(p)));\n}}\n"
OBJECTS = [
    ("vector", "src/base/err.c", AVX2.format("err_f"), "-mavx2", True),
    ("vector", "src/base/err.c", "double err_f(double a) { return a * 2; }\n", "", False),
    ("vector", "src/base/err.c", "double err_f(double a) { return a * 2; }\n", "-mavx", True),
    ("vector", "src/cpu/x86/mm_avx2.c", AVX2.format("mm_avx2_add"), "-mavx2", False),
    ("vector", "src/cpu/x86/mm_avx2.c", AVX512.format("mm_avx2_add"), "-mavx512f", True),
    ("vector", "src/cpu/x86/mm_avx512.c", AVX512.format("mm_avx512_add"), "-mavx512f", False),
    ("symbol", "src/base/err.c", "int err_f(void) { return 1; }\n", "", False),
    ("symbol", "src/base/err.c", "int other(void) { return 1; }\n", "", True),
    ("symbol", "src/base/err.c", "int error;\n", "", True),
    ("symbol", "src/base/err.c", "static int other(void) { return 1; }\n"
     "int err_f(void) { return other(); }\n", "", False),
    ("symbol", "src/cpu/x86/mm_avx2.c", "int mm_avx2_f(void) { return 1; }\n", "", True),
    ("symbol", "src/cpu/x86/mm_avx2.c", "int mm_avx2_add(void) { return 1; }\n", "", False),
]


@contextlib.contextmanager
def tree(files):
    """A tree of these files; the checkers look at it instead of the real one."""
    real, listed = check_common.ROOT, check_common.tree_files
    with tempfile.TemporaryDirectory() as folder:
        given = {"docs/ARCHITECTURE.md": ARCHITECTURE, "tools/check_exceptions.txt": "",
                 "Makefile": ""}
        given.update(files)
        executable = given.pop("+x", None)
        for name, text in given.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(path, 0o755 if name == executable else 0o644)
        check_common.ROOT = folder
        check_tidy.tree_files = check_layers.tree_files = lambda: sorted(given)
        try:
            yield folder
        finally:
            check_common.ROOT = real
            check_tidy.tree_files = check_layers.tree_files = listed


def findings(check, argv):
    """The rules that fired."""
    out, saved = io.StringIO(), sys.argv
    sys.argv = argv
    try:
        with contextlib.redirect_stdout(out):
            check.main()
    finally:
        sys.argv = saved
    return out.getvalue()


class Rules(unittest.TestCase):
    def expect(self, rule, out, is_found):
        fired = f": {rule}: " in out
        self.assertEqual(fired, is_found, f"\nrule {rule} {'found' if fired else 'missed'} it\n"
                         f"{out}")

    def test_tidy_finds_each_breach_and_nothing_beside_it(self):
        for i, (rule, files, is_found) in enumerate(TIDY):
            with self.subTest(case=i, rule=rule), tree(files):
                self.expect(rule, findings(check_tidy, ["tidy"]), is_found)

    def test_every_rule_has_a_case_that_fires(self):
        fired = {rule for rule, _, is_found in TIDY + LAYERS if is_found}
        fired |= {case[0] for case in OBJECTS if case[-1]} | {"file"}
        self.assertEqual(fired, set(check_tidy.RULES) | set(check_layers.RULES))

    def test_long_files_warn_first_and_fail_later(self):
        for lines, words in ((801, "warning"), (1501, "file: "), (700, "")):
            with tree({"src/base/err.c": "int err_x;\n" * (lines - 1)}):
                out = findings(check_tidy, ["tidy"])
                self.assertIn(words, out)
                self.assertEqual(out == "", words == "")

    def test_layers_finds_each_breach_and_nothing_beside_it(self):
        for i, (rule, files, is_found) in enumerate(LAYERS):
            with self.subTest(case=i, rule=rule), tree(files):
                self.expect(rule, findings(check_layers, ["layers"]), is_found)

    def test_objects_tell_foreign_symbols_and_leaked_instructions(self):
        for i, (rule, name, text, flag, is_found) in enumerate(OBJECTS):
            with self.subTest(case=i, rule=rule), tree({name: text}) as folder:
                path = os.path.join(folder, "build", os.path.splitext(name)[0] + ".o")
                os.makedirs(os.path.dirname(path))
                subprocess.run(["gcc", "-O2", "-c", os.path.join(folder, name), "-o", path] +
                               flag.split(), check=True)
                out = findings(check_tidy, ["tidy", os.path.join(folder, "build")])
                self.expect(rule, out, is_found)

    def test_an_exception_that_excuses_nothing_is_an_error(self):
        with tree({"tools/check_exceptions.txt": "line src/base/x.c reason\n"}):
            self.assertIn("unused", findings(check_tidy, ["tidy"]))
        with tree({"tools/check_exceptions.txt": "line src/base/x.c\n"}):
            self.assertRaises(SystemExit, findings, check_tidy, ["tidy"])

    def test_upward_layer_rows_are_refused(self):
        wrong = ARCHITECTURE.replace("| 1 | wire | base |", "| 1 | wire | base store |")
        with tree({"docs/ARCHITECTURE.md": wrong}):
            self.assertRaises(SystemExit, findings, check_layers, ["layers"])


if __name__ == "__main__":
    result = unittest.main(verbosity=0, exit=False).result
    bad = len(result.failures) + len(result.errors)
    print(f"{max(result.testsRun - bad, 0)} passed, {bad} failed")
    sys.exit(1 if bad else 0)
