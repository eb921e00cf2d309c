#!/usr/bin/env python3
"""Writes cases.txt: what Python's json module says to a corpus of documents and of floats.

usage: make_json.py                  rewrites cases.txt beside this file (made with Python 3.11)
       make_json.py --hunt PROGRAM [-n N] [-seed S]
                                     N fresh documents and floats through json_python_test

A line of cases.txt has fields divided by tabs:
  ok   INPUT CANONICAL   a document that Python accepts, and how it reads it
  bad  INPUT             one that it refuses
  f64  BITS TEXT         repr of a double
  f32  BITS TEXT         shortest text of a float (numpy's repr)
INPUT and CANONICAL have bytes outside 0x20..0x7e and backslashes as \\xNN. CANONICAL keeps key
order, equal keys and numbers as written; strings are unescaped, repaired (a lone surrogate becomes
U+FFFD) and escaped again as little as possible. NaN and Infinity, which Python accepts, count as
refused.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Raw(str):
    """A number as written."""


def refuse(name):
    raise ValueError(name)


def string(s):
    s = s.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return '"' + "".join(SHORT.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in s) + '"'


def canonical(v):
    if isinstance(v, Raw):
        return str(v)
    if isinstance(v, str):
        return string(v)
    if isinstance(v, tuple):
        return "{" + ",".join(f"{string(k)}:{canonical(x)}" for k, x in v) + "}"
    if isinstance(v, list):
        return "[" + ",".join(map(canonical, v)) + "]"
    return {None: "null", True: "true", False: "false"}[v]


def judge(data):
    """CANONICAL or None."""
    try:
        v = json.loads(data.decode("utf-8-sig"), parse_int=Raw, parse_float=Raw,
                       parse_constant=refuse, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return None
    return canonical(v).encode()


HAND = r'''
|null|true|false|nul|True|NULL|truefalse|0|-0|00|01|-01|-|+1|1.|.5|1.5|1.e1|1e|1e+|1e5|1E-05
1e+5|-1.25e-3|0x10|1_000|1,|NaN|Infinity|-Infinity|123456789012345678901234567890|1e400
0.1e-400|--1|1 2|"a"|"a|a"|'a'|""|"\"|"\\"|"\"\\\/\b\f\n\r\t"|"\a"|"\x41"|"\u0041"|"\u00e9"
"\u12"|"\u12g4"|"\U0041"|"\u 041"|"\ud83d\ude00"|"\ud83d"|"\ude00"|"\ude00\ud83d"
"\ud83d\ud83d\ude00"|"\ud83dx"|"\ud83d\n"|"\ud83d\u0041"|"\uDBFF\uDFFF"|"\ud800\udbff"|"\u0000"
"a\u0000b"|[]|[ ]|[1]|[1,2]|[1,]|[,1]|[,]|[1 2]|[[]]|[[],[]]|[[|]|]]|[]]|[1|[1,
["a",true,null,{}]|{}|{ }|{"a":1}|{"a":1,}|{,}|{"a"}|{"a":}|{"a" 1}|{a:1}|{1:1}|{'a':1}
{"a":1 "b":2}|{"a":1,"a":2}|{"a":1,"\u0061":2}|{"":0}|{"a":{"b":[{"c":[]}]}}|{"a":1}}|{"a":1]
[1}|{[|{"a":[}|{"a|{"a"|{"a":|{"a":1|{"a":1,|{"a":1,"|{"a":tru|[nul]|{"a":"b}|{null:1}
{"a":1;"b":2}| 1 |  [ 1 , 2 ] |{ "a" : 1 , "b" : [ ] }|/* */1|1 // x|[1,/**/2]|#|{"k":"v"}x
"a""b"|[]{}|""""
'''.strip("\n")

BYTES = [b"\xef\xbb\xbf1", b"\xef\xbb\xbf\xef\xbb\xbf1", b"\xef\xbb\xbf", b'"\xff"', b'"\xc3\xa9"',
         b'"\xc3"', b'"\xe2\x82\xac\xf0\x9f\x98\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"',
         b'"\xc0\x80"', b"\xa01", b"1\x00", b"\x00", b'"\x00"', b'"\x1f"', b'"\x7f"', b'"a\tb"',
         b'"a\nb"', b"[1\x0c]", b"[\v1]", b"\t\r\n 1\t\r\n ", b"[1\xe2\x80\xa8]", b'"\xe2\x80\xa8"',
         b'{"\xc3\xa9":1,"e\xcc\x81":2}', b"[1]\n[2]", b"\xef\xbb", b'"' + b"x" * 70 + b'"',
         b'"' + b"x" * 15 + b"\\n" + b"y" * 15 + b"\x01" + b'"', b"[" * 100 + b"]" * 100,
         b'{"a":' * 60 + b"1" + b"}" * 60, b"[" * 100 + b"]" * 99, b"[" * 99 + b"]" * 100]

PIECES = ["a", "b", "key", " ", "é", "日本", "😀", "\\n", "\\\"", "\\\\", "\\/", "\\u00e9",
          "\\ud83d", "\\ude00", "\\ud83d\\ude00", "\\u0000", "~", "\x7f", "z" * 9, "q" * 16]
NUMBERS = ["0", "-0", "1", "-17", "3.14", "1e9", "1E+2", "-2.5e-7", "123456789012345678901", "0.10",
           "1e999"]
BLANKS = ["", "", "", " ", "\n", "\t ", "\r\n"]
MUTANTS = b'{}[],:"\\ntf-+.eE0159u d8x/\x00\x1f\x80\xc3\xff\n '


def document(r, depth=0):
    kind = r.randrange(8 if depth < 4 else 5)
    blank = r.choice(BLANKS)
    if kind < 2:
        return blank + '"' + "".join(r.choice(PIECES) for _ in range(r.randrange(5))) + '"'
    if kind < 4:
        return blank + r.choice(NUMBERS)
    if kind == 4:
        return blank + r.choice(["true", "false", "null"])
    items = []
    for _ in range(r.randrange(5)):
        key = '"' + r.choice(PIECES) + '"' + r.choice(BLANKS) + ":" if kind == 7 else ""
        items.append(r.choice(BLANKS) + key + document(r, depth + 1) + r.choice(BLANKS))
    return blank + "[{"[kind == 7] + ",".join(items) + "]}"[kind == 7]


def mutate(r, data):
    data = bytearray(data)
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        at = r.randrange(len(data) + 1)
        how = r.randrange(4)
        if how == 0:
            data[at:at] = bytes([r.choice(MUTANTS)])
        elif how == 1:
            del data[at:at + r.choice([1, 1, 2, 5])]
        elif how == 2:
            data[at:at + 1] = bytes([r.choice(MUTANTS)])
        else:
            end = at + r.randrange(6)
            data[at:at] = data[at:end]
    return bytes(data)


def documents(r, count):
    for _ in range(count):
        text = document(r).encode()
        if len(text) < 120:
            yield text
            yield mutate(r, text)
            yield mutate(r, text)


def doubles(r, count):
    edge = [0.0, 1.0, 0.1, 0.3, 1e15, 1e16, 123456789012345.6, 1e-4, 1e-5, 5e-324, 1e22, 1e23,
            2.2250738585072014e-308, 1.7976931348623157e308, 9007199254740993.0, 0.5, 100.0,
            3.0e-323, 2 / 3]
    edge += [2.0 ** n for n in range(-1074, 1024, 1 if count > 1000 else 31)]
    for v in edge:
        yield v
        yield -v
    for _ in range(count):
        v = struct.unpack("<d", r.randbytes(8))[0]
        if v == v and abs(v) != float("inf"):
            yield v
        yield round(r.uniform(-10, 10), r.randrange(1, 12))
        yield r.uniform(0, 1) * 10.0 ** r.randrange(-8, 20)


def floats(r, count):
    import numpy
    edge = [2.0 ** n for n in range(-149, 128)]
    edge += [0.0, -0.0, 0.1, 1e-45, 3.4028235e38, 16777216.0, 1e10]
    bits = [struct.unpack("<I", struct.pack("<f", v))[0] for v in edge]
    bits += [b for b in (r.getrandbits(32) for _ in range(count)) if b >> 23 & 255 != 255]
    for b in bits:
        v = numpy.frombuffer(struct.pack("<I", b), numpy.float32)[0]
        text = numpy.format_float_scientific(v, unique=True, trim="-")
        yield b, repr_of(text)


def repr_of(text):
    """d.ddde+xx laid out as Python's repr."""
    sign = "-" if text[0] == "-" else ""
    digits, exponent = text.lstrip("-").split("e")
    digits, e = digits.replace(".", "").rstrip("0") or "0", int(exponent)
    if e < -4 or e >= 16:
        return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{e:+03d}"
    if e < 0:
        return f"{sign}0.{'0' * (-e - 1)}{digits}"
    digits = digits.ljust(e + 1, "0")
    return f"{sign}{digits[:e + 1]}.{digits[e + 1:] or '0'}"


def escape(data):
    return "".join(chr(b) if 0x20 <= b < 0x7f and b != 0x5c else f"\\x{b:02x}" for b in data)


def lines(seed, count, hand):
    r = random.Random(seed)
    seen = set()
    hand_made = [x.encode() for x in HAND.replace("\n", "|").split("|")] + BYTES if hand else []
    for data in [*hand_made, *documents(r, count)]:
        if data in seen or data == b"" and not hand:
            continue
        seen.add(data)
        answer = judge(data)
        yield "bad\t" + escape(data) if answer is None else f"ok\t{escape(data)}\t{escape(answer)}"
    for v in doubles(r, count // 3 if hand else count):
        yield f"f64\t{struct.unpack('<Q', struct.pack('<d', v))[0]:016x}\t{v!r}"
    for bits, text in floats(r, count // 3 if hand else count):
        yield f"f32\t{bits:08x}\t{text}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--hunt", metavar="PROGRAM")
    p.add_argument("-n", type=int, default=100000)
    p.add_argument("-seed", type=int, default=random.SystemRandom().getrandbits(32))
    o = p.parse_args()
    if not o.hunt:
        with open(os.path.join(HERE, "cases.txt"), "w", encoding="ascii") as f:
            f.writelines(line + "\n" for line in lines(1, 900, True))
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.writelines(line + "\n" for line in lines(o.seed, o.n, False))
        f.flush()
        print("seed", o.seed)
        return subprocess.call([o.hunt, f.name])


if __name__ == "__main__":
    sys.exit(main())
