#!/usr/bin/env python3
"""Writes snippets: small templates, random and by hand, and what Jinja2 makes of them.

Usage: make_snippets.py COUNT SEED > snippets_SEED.json   (committed: 1300 1, 1300 2)
Format: {"context": variables, "snippets": [[template, text or null], ...]}; null = Jinja2 refuses,
and so must we. What we refuse although Jinja2 does not (docs/formats/jinja.md) is not generated.
"""

import json
import os
import random
import sys

from jinja_reference import environment, render, strange_environment

CONTEXT = {
    "s": "Hello World",
    "e": "",
    "u": "stra\u00dfe \u0391\u03a3 \u01c6\u65e5\U0001f600",
    "w": " \t pad\u00a0\n",
    "n": 3,
    "z": 0,
    "neg": -7,
    "f": 2.5,
    "g": 1e16,
    "t": True,
    "nil": None,
    "big": 12345678901234567890123,
    "num": "42.9",
    "lines": "a\nb\r\nc\n\nd",
    "csv": "a,b,,c",
    "l": [3, 1, 2],
    "le": [],
    "ls": ["b", "A", "c", "a"],
    "mix": [1, "a", None, 2.0, True, [1], {}],
    "d": {"b": 1, "a": [1, 2.0, None], "items": 5, "C": "x"},
    "de": {},
    "m": [
        {"role": "user", "content": "Hi <b>\n"},
        {"role": "assistant", "content": None, "n": 1},
        {"role": "user", "content": "x", "k": {"y": 2}},
    ],
}
NAMES = [k for k in CONTEXT if k != "big"] + ["missing"]
STRINGS = [
    "",
    "a",
    "A b",
    "o",
    "l",
    " ",
    "\\n",
    "\\t x",
    "\u00e9",
    "it's",
    "a,b",
    "Hello",
    "x=1",
    "ab" * 3,
    "user",
    "role",
    "content",
    "b.c",
]


class Maker:
    def __init__(self, rng):
        self.r = rng

    def pick(self, *of):
        return self.r.choice(of)

    def string(self):
        s = self.r.choice(STRINGS)
        return f'"{s}"' if "'" in s or self.r.random() < 0.3 else f"'{s}'"

    def int_(self):
        return str(self.pick(0, 1, 2, 3, 5, 10, -1, -2, 100))

    def number(self):
        return self.pick(self.int_(), "1.5", "2.0", "0.1", "1e3", "1_000")

    def atom(self):
        k = self.r.random()
        if k < 0.55:
            return self.r.choice(NAMES)
        if k < 0.7:
            return self.string()
        if k < 0.85:
            return self.number()
        return self.pick("true", "false", "none", "[]", "{}", "(1, 'a')", "[1, 2, 3]", "{'k': 1}")

    def expr(self, depth):
        if depth <= 0 or self.r.random() < 0.15:
            return self.atom()
        return self.pick(
            self.binary,
            self.binary,
            self.compare,
            self.filtered,
            self.filtered,
            self.filtered,
            self.method,
            self.method,
            self.test,
            self.item,
            self.slice_,
            self.logic,
            self.cond,
            self.unary,
            self.list_,
            self.dict_,
        )(depth - 1)

    def par(self, depth):
        e = self.expr(depth)
        return f"({e})" if not e.isidentifier() else e

    def binary(self, d):
        op = self.pick("+", "-", "*", "/", "//", "%", "~", "~", "+")
        a, b = self.par(d), self.par(d)
        if op == "%" and d >= 0:  # strings on the left are not in the subset
            a = self.number()
        if op == "*":
            b = self.pick("0", "1", "2", "3", "n")
        return f"{a} {op} {b}"

    def compare(self, d):
        op = self.pick("==", "!=", "<", "<=", ">", ">=", "in", "not in")
        text = f"{self.par(d)} {op} {self.par(d)}"
        return text + (f" < {self.par(0)}" if self.r.random() < 0.1 else "")

    def logic(self, d):
        return f"{self.par(d)} {self.pick('and', 'or')} {self.par(d)}"

    def cond(self, d):
        tail = f" else {self.par(d)}" if self.r.random() < 0.8 else ""
        return f"{self.par(d)} if {self.par(d)}{tail}"

    def unary(self, d):
        return f"{self.pick('not ', '-', '+')}{self.par(d)}"

    def list_(self, d):
        return "[" + ", ".join(self.expr(d) for _ in range(self.r.randrange(4))) + "]"

    def dict_(self, d):
        return (
            "{"
            + ", ".join(f"{self.string()}: {self.expr(d)}" for _ in range(self.r.randrange(3)))
            + "}"
        )

    def item(self, d):
        return self.pick(
            f"{self.par(d)}[{self.par(d)}]",
            f"m[{self.int_()}].{self.pick('role', 'content', 'n', 'k.y', 'items')}",
            f"d.{self.pick('a', 'b', 'items', 'keys', 'zz')}",
            f"{self.par(d)}[{self.int_()}]",
            f"{self.par(d)}.{self.int_().strip('-')}",
            f"m[0][{self.string()}]",
        )

    def slice_(self, d):
        part = lambda: self.pick("", self.int_(), "n", "-2")  # noqa: E731
        step = self.pick("", "", ":", ":1", ":-1", ":2", ":-3")
        return f"{self.pick('s', 'u', 'l', 'ls', 'mix', 'n', 'd', 'nil')}[{part()}:{part()}{step}]"

    def filtered(self, d):
        f = self.pick(
            "upper",
            "lower",
            "title",
            "capitalize",
            "trim",
            "length",
            "count",
            "string",
            "list",
            "first",
            "last",
            "reverse",
            "sort",
            "unique",
            "min",
            "max",
            "sum",
            "int",
            "float",
            "abs",
            "round",
            "items",
            "tojson",
            "join",
            "safe",
            "dictsort",
            "d",
            f"default({self.expr(d)})",
            f"default({self.expr(d)}, true)",
            f"d({self.string()}, boolean=True)",
            f"replace({self.string()}, {self.string()})",
            f"replace({self.string()}, {self.string()}, {self.int_()})",
            f"join({self.string()})",
            "join(', ', attribute='role')",
            f"trim({self.string()})",
            "map('upper')",
            "map(attribute='role')",
            "map(attribute='n', default='-')",
            "map('string')",
            "select",
            "select('string')",
            "select('number')",
            "select('defined')",
            "reject('none')",
            "reject",
            "selectattr('content')",
            "selectattr('role', 'equalto', 'user')",
            "rejectattr('n', 'defined')",
            "selectattr('n', '>', 0)",
            "select('in', [1, 'a'])",
            "map('length')",
            "map('default', 'x')",
            f"tojson(indent={self.pick('2', '0', '4', 'none')})",
            "tojson(sort_keys=true)",
            "tojson(true)",
            "tojson(separators=(',', ':'))",
            "tojson(ensure_ascii=true)",
            "indent",
            "indent(2)",
            "indent(2, true)",
            "indent(3, first=false, blank=true)",
            "indent('> ')",
            "sort(reverse=true)",
            "sort(attribute='role')",
            "sort(case_sensitive=true)",
            "dictsort(by='value')",
            "dictsort(false, 'key', true)",
            "unique(true)",
            "int(7)",
            "int(default=-1)",
            "float(1.5)",
            "round(1)",
            "round(2, 'floor')",
            "round(method='ceil')",
            "min(attribute='role')",
            "max(case_sensitive=true)",
            "sum(start=10)",
            "from_json",
            "tojson|from_json",
            "list|length",
            "list|first",
            "reverse|list",
            "map('trim')|list",
            "items|list",
            "string|length",
            self.pick("upper|", "lower|", "trim|") + self.pick("length", "title", "list", "tojson"),
            "lower(1)",
            "replace('a')",
            "upper",
        )
        return f"{self.par(d)}|{f}"

    def method(self, d):
        o = self.pick("s", "u", "w", "lines", "csv", "e", self.string(), self.par(d))
        c = self.pick(
            "upper()",
            "lower()",
            "title()",
            "capitalize()",
            "strip()",
            "lstrip()",
            "rstrip()",
            "split()",
            f"split({self.string()})",
            f"split({self.string()}, {self.int_()})",
            "split(none, 1)",
            "split(maxsplit=1)",
            f"rsplit({self.string()}, 1)",
            "rsplit()",
            "splitlines()",
            "splitlines(true)",
            f"strip({self.string()})",
            f"lstrip({self.string()})",
            f"rstrip({self.string()})",
            f"startswith({self.string()})",
            f"endswith({self.string()})",
            f"startswith(({self.string()}, {self.string()}))",
            f"replace({self.string()}, {self.string()})",
            f"replace({self.string()}, {self.string()}, 1)",
            f"find({self.string()})",
            f"rfind({self.string()})",
            f"count({self.string()})",
            f"index({self.string()})",
            f"join({self.pick('ls', 's', 'm', 'le', 'd', '[1]')})",
            "isspace()",
            "islower()",
            "isupper()",
            f"removeprefix({self.string()})",
            f"removesuffix({self.string()})",
            f"partition({self.string()})",
            f"rpartition({self.string()})",
            f"format({self.expr(d)}, b={self.expr(d)})",
        )
        if self.r.random() < 0.25:
            o = self.pick("d", "de", "m[0]", "m[2].k", self.par(d))
            c = self.pick(
                "items()",
                "keys()",
                "values()",
                "get('a')",
                f"get({self.string()})",
                "get('zz', 7)",
                f"get({self.string()}, {self.expr(d)})",
                "copy()",
                "items()|list",
                "keys()|list",
                "values()|list|length",
                "keys()|join",
                "nosuch()",
                "items() is sequence",
            )
        return f"{o}.{c}"

    def test(self, d):
        t = self.pick(
            "defined",
            "undefined",
            "none",
            "string",
            "mapping",
            "iterable",
            "sequence",
            "boolean",
            "true",
            "false",
            "number",
            "integer",
            "float",
            "odd",
            "even",
            "lower",
            "upper",
            "callable",
            f"equalto({self.expr(d)})",
            f"eq {self.atom()}",
            "divisibleby(2)",
            "divisibleby 3",
            f"in {self.pick('l', 's', 'd', 'mix')}",
            f"sameas {self.pick('true', 'none')}",
            "gt 1",
            "lt('b')",
        )
        return f"{self.par(d)} is {self.pick('', '', 'not ')}{t}"

    # Statements.
    def block(self, depth):
        d = depth - 1
        if depth <= 0:
            return self.pick("text ", "\n", "  x\n", "{{ " + self.expr(1) + " }}")
        open_, close = self.pick("{%", "{%-", "{%", "{%+"), self.pick("%}", "-%}", "%}")
        o, c = lambda s: f"{open_} {s} {close}", self.pick("\n", "", "  ", "\n  ")
        body = lambda: c + self.block(d) + self.pick("", "\n", " ")  # noqa: E731
        return self.pick(
            lambda: self.block(d) + self.block(d),
            lambda: o(f"if {self.expr(2)}") + body() + o("endif"),
            lambda: o(f"if {self.expr(1)}")
            + body()
            + o(f"elif {self.expr(1)}")
            + body()
            + o("else")
            + body()
            + o("endif"),
            lambda: o(
                f"for x in {self.pick('l', 'ls', 'm', 's', 'd', 'le', 'range(3)', self.expr(1))}"
            )
            + "{{ x }}"
            + self.pick(
                "{{ loop.index }}",
                "{{ loop.last }}",
                "{{ loop.previtem }}",
                "{{ loop.length }}",
                "{{ loop.cycle('a', 'b') }}",
                "{{ loop.revindex0 }}",
                "{{ loop.changed(x) }}",
                "",
            )
            + body()
            + o("else")
            + body()
            + o("endfor"),
            lambda: o("for k, v in d.items()") + "{{ k }}={{ v }}" + body() + o("endfor"),
            lambda: o(
                "for x in "
                + self.pick("mix", "ls", "l")
                + " if x "
                + self.pick("is string", "is number", "")
            )
            + "{{ x }}"
            + self.pick(
                "{{ loop.index }}", "{{ loop.last }}", "{{ loop.length }}", "{{ loop.nextitem }}"
            )
            + o("endfor"),
            lambda: o(f"for x in l")
            + o(f"if loop.index > {self.int_()}")
            + self.pick(o("break"), o("continue"))
            + o("endif")
            + "{{ x }}"
            + o("endfor"),
            lambda: o(f"set q = {self.expr(2)}") + body() + "{{ q }}",
            lambda: o("set q" + self.pick("", " | upper", " | trim | length"))
            + body()
            + o("endset")
            + "[{{ q }}]",
            lambda: o(f"set ns = namespace(a={self.expr(1)})")
            + o("for x in l")
            + o("set ns.a = x")
            + o("set q = x")
            + body()
            + o("endfor")
            + "{{ ns.a }}{{ q }}",
            lambda: o(f"macro f(a, b={self.expr(1)}, c=a)")
            + "<{{ a }}|{{ b }}|{{ c }}>"
            + body()
            + o("endmacro")
            + "{{ f("
            + self.pick("", "1", "1, 2", "b=2, a=1", "1, 2, 3, 4", "zz=1")
            + ") }}",
            lambda: o(
                "filter " + self.pick("upper", "trim", "replace('x', 'y')", "indent(2) | title")
            )
            + body()
            + o("endfilter"),
            lambda: o("generation") + o("set q = 1") + body() + o("endgeneration") + "{{ q }}",
            lambda: "{#" + self.pick("-", "", "") + " note " + self.pick("-", "") + "#}" + body(),
            lambda: o("raw") + " {{ no }} " + self.pick("\n", "") + o("endraw"),
            lambda: "{{"
            + self.pick("-", "")
            + " "
            + self.expr(2)
            + " "
            + self.pick("-", "")
            + "}}"
            + body(),
        )()


def main():
    count, rng = int(sys.argv[1]), random.Random(int(sys.argv[2]))
    env, make = environment(), Maker(rng)
    seen, rows = set(), []
    hand = []
    if sys.argv[2] == "1":
        with open(os.path.join(os.path.dirname(__file__), "snippets_hand.txt")) as f:
            hand = [json.loads(line) for line in f]
    texts = iter(hand)
    strange = strange_environment()
    while len(rows) < count:
        text = next(texts, None)
        if text is None:
            text = make.block(3) if rng.random() < 0.35 else "{{ " + make.expr(4) + " }}"
        if text in seen or len(text) > 600:
            continue
        seen.add(text)
        out = render(env, text, CONTEXT)
        if out != render(strange, text, CONTEXT) or (out is not None and len(out) > 2000):
            continue
        rows.append([text, out])
    print('{"context": ' + json.dumps(CONTEXT) + ',\n"snippets": [')
    print(",\n".join(json.dumps(r) for r in rows))
    print("]}")


if __name__ == "__main__":
    sys.exit(main())
