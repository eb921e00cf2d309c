#!/usr/bin/env python3
"""Schemas and instances as hypothesis makes them, judged by Python's jsonschema.

usage: make_pairs.py                    writes pairs.txt beside this file
       make_pairs.py --hunt PROGRAM [-n PAIRS] [-seed S]
                                        fresh pairs through schema_pairs_test, both ways: instances
                                        judged by jsonschema go through the automaton, and texts
                                        that the automaton makes are judged by jsonschema

An instance is marked "+" when it is valid and canonical: made along the schema, members in declared
order, further ones last, compact, numbers of at most 17 digits without an exponent, text in ASCII
where a pattern reads it. Formats are checked.
"""
import argparse
import json
import os
import random
import string
import subprocess
import sys
import warnings

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from jsonschema import Draft202012Validator, FormatChecker

HERE = os.path.dirname(os.path.abspath(__file__))
FORMATS = FormatChecker([])  # the five that we enforce, as the newest draft has them
FORMATS.checkers = {name: Draft202012Validator.FORMAT_CHECKER.checkers[name]
                    for name in ("date", "time", "date-time", "uuid", "ipv4")}
NAMES = ["a", "b", "name", "ä", "a b", 'q"', "x/y", "id"]
PATTERNS = ["^[a-z]+$", "^\\d{3}-\\d{2}$", "ab", "^(foo|bar)?x", "[^a-c]$", "^.{2,4}$", "^$",
            "\\w\\s", "^(ab)*$", "^a+b*$", "\\D", "^[\\w.-]+@\\w+\\.com$", "a|^b", "[A-Z]{2}",
            "^(?:x[0-9a-f]{2}){1,3}$"]
TEXTS = ["", "a", "ab", "abc", "foox", "barx", "x", "123-45", "ab ab", "Z", "äö", "€", "😀", "a\nb",
         "tab\t", 'quo"te', "back\\slash", "abab", "aabb", "x@y.com", "ABC", "xa1xff",
         "2024-02-29", "2023-02-29", "12:30:00Z", "2000-01-31T23:59:59+01:00", "1.2.3.4",
         "256.1.1.1", "01.1.1.1", "123e4567-e89b-12d3-a456-426614174000", "0000-01-01", "\u007f",
         "/"]


def members(pairs):
    """An object's members; a name that comes twice is an error, as jsonschema could not see it."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name comes twice")
    return made


def dump(v):
    return json.dumps(v, ensure_ascii=False, separators=(",", ":"))


# ---------------------------------------------------------------- schemas

def pick(*values):
    return st.sampled_from(values)


def optional(**fields):
    return st.fixed_dictionaries({}, optional=fields)


BOUND = st.one_of(st.integers(-30, 130), pick(0, 0.5, -2.25, 99.99, 1e3, 0.001, 12345678901))
STRINGS = st.builds(lambda d, low, n: {"type": "string", **d, **(
    {} if n is None else {"maxLength": low + n} if "pattern" not in d or low == 0 else {}),
    **({"minLength": low} if low else {})},
    optional(pattern=pick(*PATTERNS), format=pick("date", "time", "date-time", "uuid", "ipv4",
                                                  "email")),
    pick(0, 0, 0, 1, 3), pick(None, None, 0, 2, 20))
NUMBERS = st.builds(lambda t, d: {"type": t, **d}, pick("integer", "number"), st.one_of(
    st.just({}), optional(minimum=BOUND, maximum=BOUND), optional(exclusiveMinimum=BOUND),
    optional(exclusiveMaximum=BOUND, minimum=BOUND), st.just({"multipleOf": 1})))
LITERALS = pick(None, True, False, 0, 1, -1, 1.5, 100, "a", "ab", "", "ä", 'q"', [], [1], {},
                {"a": 1})
ENUMS = st.one_of(st.builds(lambda v: {"enum": v}, st.lists(LITERALS, min_size=1, max_size=5)),
                  st.builds(lambda v: {"const": v}, LITERALS),
                  st.builds(lambda v: {"type": "string", "enum": v},
                            st.lists(pick(*TEXTS[:14]), min_size=1, max_size=4)))
PLAIN = st.one_of(STRINGS, NUMBERS, ENUMS, pick(
    {}, True, {"type": "null"}, {"type": "boolean"}, {"type": ["string", "null"], "maxLength": 4},
    {"type": ["integer", "boolean"]}, {"description": "x"}))


def containers(inner):
    arrays = st.builds(lambda d, low, n: {"type": "array", **d,
                                          **({} if low is None else {"minItems": low}),
                                          **({} if n is None else {"maxItems": (low or 0) + n})},
                       optional(items=st.one_of(inner, st.booleans()),
                                prefixItems=st.lists(inner, min_size=1, max_size=3)),
                       pick(None, None, 1, 2), pick(None, None, 0, 1, 3))
    objects = st.builds(
        lambda p, need, more, other: {"type": "object", **({"properties": p} if p else {}),
                                      **({"required": sorted(set(need) | set(other))}
                                         if need or other else {}),
                                      **({} if more is None else {"additionalProperties": more})},
        st.dictionaries(pick(*NAMES), inner, max_size=4), st.lists(pick(*NAMES[:4]), max_size=2),
        st.one_of(st.none(), st.just(False), st.just(True), inner),
        st.lists(pick(*NAMES), max_size=1))
    unions = st.builds(lambda v, d: {"anyOf": v, **d}, st.lists(inner, min_size=1, max_size=3),
                       pick({}, {}, {"type": "string"}, {"maxLength": 3}))
    ones = st.builds(lambda a, b: {"oneOf": [a, b]}, st.one_of(
        STRINGS, st.just({"type": "null"})), st.one_of(NUMBERS, arrays, objects))
    tagged = st.builds(lambda a, b: {"oneOf": [
        {"type": "object", "properties": {"kind": {"const": k}, **p},
         "required": ["kind"]} for k, p in (("x", a), ("y", b))]},
        st.dictionaries(pick("a", "b"), inner, max_size=2),
        st.dictionaries(pick("a", "b"), inner, max_size=2))
    both = st.builds(lambda v, d: {"allOf": v, **d},
                     st.lists(st.one_of(inner, objects), min_size=1, max_size=3), st.one_of(
                         pick({}, {"maxLength": 5}), objects))
    return st.one_of(arrays, objects, objects, unions, ones, tagged, both)


TREES = st.builds(lambda leaf, low: {
    "$defs": {"node": {"type": "object", "properties": {
        "v": leaf, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
        "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
        "required": ["v"] if low else ["v", "kids"], "additionalProperties": False}},
    "$ref": "#/$defs/node"}, PLAIN, st.booleans())
SCHEMAS = st.one_of(st.recursive(PLAIN, containers, max_leaves=6), containers(PLAIN), TREES)


# ---------------------------------------------------------------- instances along a schema

def parts_of(schema, root, rng, out):
    """The schema objects that hold together, one branch of each choice: the order of ours."""
    if isinstance(schema, bool) or any(schema is p for p in out):
        return
    at = len(out)
    out.append(schema)
    if "$ref" in schema:
        v = root
        for step in schema["$ref"].split("/")[1:]:
            v = v[step]
        parts_of(v, root, rng, out)
    for v in schema.get("allOf", []):
        parts_of(v, root, rng, out)
    if at == 0:  # choices are made when all parts are known, first part first
        i = 0
        while i < len(out):
            for key in ("anyOf", "oneOf"):
                if key in out[i]:
                    parts_of_branch(rng.choice(out[i][key]), root, rng, out)
            i += 1


def parts_of_branch(schema, root, rng, out):
    if isinstance(schema, bool) or any(schema is p for p in out):
        return
    out.append(schema)
    if "$ref" in schema:
        v = root
        for step in schema["$ref"].split("/")[1:]:
            v = v[step]
        parts_of_branch(v, root, rng, out)
    for v in schema.get("allOf", []):
        parts_of_branch(v, root, rng, out)


def make_text(parts, rng):
    formats = [p["format"] for p in parts if "format" in p]
    fitting = {"date": "2024-02-29", "time": "12:30:00Z", "date-time": "2000-01-31T23:59:59+01:00",
               "uuid": "123e4567-e89b-12d3-a456-426614174000", "ipv4": "1.2.3.4"}
    if formats and rng.random() < 0.7:
        return fitting.get(formats[0], "a")
    if rng.random() < 0.6:
        return rng.choice(TEXTS)
    return "".join(rng.choice(string.ascii_lowercase[:4] + "x 1-Z@.äé€😀\n\"\\")
                   for _ in range(rng.randrange(6)))


def make_number(parts, rng):
    bounds = [p[k] for p in parts for k in ("minimum", "maximum", "exclusiveMinimum",
                                            "exclusiveMaximum") if k in p] or [0]
    near = rng.choice(bounds)
    v = rng.choice([near, near + 1, near - 1, near + 0.5, near - 0.25, rng.randrange(-200, 200),
                    round(rng.uniform(-100, 100), 3), 10 ** rng.randrange(16), -7])
    return int(v) if v == int(v) and rng.random() < 0.8 else v


def make_value(parts, root, rng, depth):
    """A value that may be valid under all parts."""
    def of(schemas):
        inner = []
        for s in schemas:
            if not inner:
                parts_of(s, root, rng, inner)
            else:
                parts_of_branch(s, root, rng, inner)
        return make_value(inner, root, rng, depth + 1)
    for p in parts:
        if "const" in p:
            return p["const"]
        if "enum" in p:
            return rng.choice(p["enum"])
    types = {"null", "boolean", "integer", "number", "string", "array", "object"}
    for p in parts:
        if "type" in p:
            t = {p["type"]} if isinstance(p["type"], str) else set(p["type"])
            types &= t | ({"integer"} if "number" in t else set())
    kind = rng.choice(sorted(types) or ["null"])
    if depth > 5 and kind in ("array", "object") and len(types) > 1:
        kind = sorted(types - {"array", "object"} or types)[0]
    if kind == "null":
        return None
    if kind == "boolean":
        return rng.random() < 0.5
    if kind in ("integer", "number"):
        v = make_number(parts, rng)
        return int(v) if kind == "integer" else v
    if kind == "string":
        return make_text(parts, rng)
    if kind == "array":
        low = max([p.get("minItems", 0) for p in parts] + [0])
        high = min([p.get("maxItems", low + 2) for p in parts] + [low + 2])
        prefix = max([len(p.get("prefixItems", [])) for p in parts] + [0])
        count = rng.randint(low, max(low, high)) if depth < 5 else low
        count = max(count, min(prefix, high)) if rng.random() < 0.5 else count
        return [of([p["prefixItems"][i] if i < len(p.get("prefixItems", [])) else p["items"]
                    for p in parts if i < len(p.get("prefixItems", [])) or "items" in p])
                for i in range(count)]
    out = {}
    names = [n for p in parts for n in p.get("properties", {})]
    names += [n for p in parts for n in p.get("required", []) if n not in names]
    required = {n for p in parts for n in p.get("required", [])}
    for n in dict.fromkeys(names):
        if n in required or (rng.random() < 0.5 and depth < 5):
            out[n] = of([p["properties"][n] if n in p.get("properties", {})
                         else p["additionalProperties"] for p in parts
                         if n in p.get("properties", {}) or "additionalProperties" in p])
    explicit = any(p.get("additionalProperties") is not None for p in parts)
    if depth < 5 and (explicit or not any("properties" in p for p in parts)):
        for n in rng.sample(["x", "y z", "ü"], rng.randrange(3)):
            out[n] = of([p["additionalProperties"] for p in parts if "additionalProperties" in p])
    return out


def mutate(v, rng):
    """Another value near v."""
    if isinstance(v, dict) and v and rng.random() < 0.8:
        k = rng.choice(list(v))
        how = rng.randrange(4)
        if how == 0:
            return {n: x for n, x in v.items() if n != k}
        if how == 1:
            return {**v, "zz": 1}
        if how == 2:
            return dict(reversed(v.items()))
        return {n: mutate(x, rng) if n == k else x for n, x in v.items()}
    if isinstance(v, list) and v and rng.random() < 0.8:
        i = rng.randrange(len(v))
        how = rng.randrange(3)
        return v[:i] + v[i + 1:] if how == 0 else v + [v[i]] if how == 1 else \
            v[:i] + [mutate(v[i], rng)] + v[i + 1:]
    if isinstance(v, str) and rng.random() < 0.8:
        i = rng.randrange(len(v) + 1)
        return rng.choice([v[:i] + rng.choice("ax1 -é\n") + v[i:], v[:-1], v + v, v.upper()])
    if isinstance(v, (int, float)) and not isinstance(v, bool) and rng.random() < 0.8:
        return rng.choice([v + 1, v - 1, v + 0.5, -v, v * 10])
    return rng.choice([None, True, 0, "", [], {}, 3.5, "abc"])


def is_plain_number(v):
    if isinstance(v, dict):
        return all(map(is_plain_number, v.values()))
    if isinstance(v, list):
        return all(map(is_plain_number, v))
    if isinstance(v, (int, float)) and not isinstance(v, bool):
        t = json.dumps(v)
        return "e" not in t and sum(c.isdigit() for c in t) <= 17 and t != "-0" and \
            not (isinstance(v, float) and v == int(v))
    return True


def has_pattern(schema):
    if isinstance(schema, dict):
        return "pattern" in schema or any(map(has_pattern, schema.values()))
    return isinstance(schema, list) and any(map(has_pattern, schema))


def is_valid(validator, v):
    try:
        return validator.is_valid(v)
    except RecursionError:
        return None


def judge(schema, rng, count, emit):
    validator = Draft202012Validator(schema, format_checker=FORMATS)
    seen = set()
    for _ in range(count * 2):
        parts = []
        parts_of(schema, schema, rng, parts)
        try:
            v = make_value(parts, schema, rng, 0)
        except RecursionError:
            continue
        along = rng.random() < 0.6
        if not along:
            for _ in range(rng.randrange(1, 3)):
                v = mutate(v, rng)
        text = dump(v)
        if text in seen or len(text) > 600 or len(seen) >= count:
            continue
        seen.add(text)
        ok = is_valid(validator, v)
        if ok is None:
            continue
        canonical = along and is_plain_number(v) and "\n" not in repr(text) and \
            not (has_pattern(schema) and (not text.isascii() or "\\n" in text))
        emit("-" if not ok else "+" if canonical else "?", text)


def schemas(seed, wanted):
    """hypothesis' schemas, simple ones and odd ones, the same for a seed."""
    out, seen = [], set()

    @settings(max_examples=wanted * 2, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))
    @hypothesis.seed(seed)
    @given(SCHEMAS)
    def collect(schema):
        text = dump(schema)
        if text not in seen and len(text) < 1500 and len(out) < wanted:
            seen.add(text)
            out.append(schema)
    collect()
    return out


def run(program, lines):
    return subprocess.run([program, "-"], input="".join(lines), stdout=subprocess.PIPE,
                          encoding="utf-8", check=False)


def hunt(program, pairs, seed):
    rng = random.Random(seed)
    per = 12
    todo = schemas(seed, pairs // per + 200)
    lines, makers = [], []
    for schema in todo:
        makers += [f"s {dump(schema)}\n", f"g 5 {rng.randrange(1 << 30)}\n"]
    answers = run(program, ["!\n"] + makers).stdout.split("\n")
    failed, made, compiled = 0, 0, {}
    current = -1
    for line in answers:
        if line.startswith("s "):
            current += 1
            compiled[current] = line == "s ok"
            if not compiled[current] and os.environ.get("TEST_SHOW"):
                print(line, dump(todo[current]))
        elif line.startswith("= "):
            made += 1
            try:
                ok = is_valid(Draft202012Validator(todo[current], format_checker=FORMATS),
                              json.loads(line[2:], object_pairs_hook=members))
            except ValueError:
                ok = False
            if ok is False:
                failed += 1
                if failed < 20:
                    print(f"not valid, but made: {line[2:]}\n  {dump(todo[current])}")
        elif line.startswith("stuck"):
            failed += 1
            print(line, dump(todo[current]))
    for i, schema in enumerate(todo):
        if not compiled.get(i):
            continue
        lines.append(f"s {dump(schema)}\n")
        judge(schema, rng, per, lambda mark, text: lines.append(f"{mark} {text}\n"))
    marks = [sum(x.startswith(m) for x in lines) for m in "+-?"]
    done = run(program, lines)
    tail = done.stdout.rstrip().split("\n")
    print("\n".join(tail[:-1]))
    passed, bad = (int(x) for x in (tail[-1].split()[0], tail[-1].split()[2]))
    print(f"{sum(compiled.values())} of {len(todo)} schemas compile; {marks[0]} canonical,"
          f" {marks[1]} invalid, {marks[2]} other instances; {made} made by the automaton")
    print(f"{passed + made - failed} passed, {bad + failed + (sum(marks) + made < pairs)} failed")
    return 1 if bad or failed or sum(marks) + made < pairs else 0


def write(seed):
    rng = random.Random(seed)
    lines = ["# Written by make_pairs.py; what the letters mean: schema_pairs_test.c.\n"]
    program = os.path.join(HERE, "../../../build/tests/golden/grammar/schema_pairs_test")
    todo = schemas(seed, 700)
    answers = run(program, ["!\n"] + [f"s {dump(s)}\n" for s in todo]).stdout.split("\n")
    for schema, answer in zip(todo, answers):
        if answer != "s ok":
            continue
        lines.append(f"s {dump(schema)}\n")
        judge(schema, rng, 6, lambda mark, text: lines.append(f"{mark} {text}\n"))
        if sum(map(len, lines)) > 200000:
            break
    with open(os.path.join(HERE, "pairs.txt"), "w", encoding="utf-8") as f:
        f.writelines(lines)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--hunt", metavar="PROGRAM")
    p.add_argument("-n", type=int, default=20000)
    p.add_argument("-seed", type=int, default=1)
    a = p.parse_args()
    warnings.simplefilter("ignore")
    if a.hunt:
        sys.exit(hunt(a.hunt, a.n, a.seed))
    write(a.seed)


if __name__ == "__main__":
    main()
