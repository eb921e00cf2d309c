#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/tier_format: tier files as docs/formats/tier.md describes them, made
without our code. Needs the package xxhash. usage: make_tier_corpus.py DIRECTORY"""
import struct
import sys

import xxhash

BLOCK, RECORD = 4096, 128


def header(low=1, high=2, group=0, slots=3, page=5000, version=1, record=RECORD):
    head = b"shoalkv\n" + struct.pack("<IIQQIIQ", version, record, low, high, group, slots, page)
    head = head.ljust(64, b"\0") + b"build 1".ljust(64, b"\0") + b"tiny".ljust(64, b"\0")
    head = head.ljust(BLOCK - 8, b"\0")
    return head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head))


def record(slot, depth=1, low=1, group=0):
    body = struct.pack("<II", 0x5243564B, depth) + bytes([slot + 1] * 32) + bytes(32)
    body += struct.pack("<QQ", 1764460800, 77)
    body = body.ljust(RECORD - 8, b"\0")
    return body + struct.pack("<Q", xxhash.xxh3_64_intdigest(body, low ^ (group << 32 | slot)))


def main():
    out = sys.argv[1]
    whole = header() + record(0) + record(1, 2) + record(2, 3)
    files = {
        "whole": whole.ljust(2 * BLOCK, b"\0"),
        "cut_record": whole[:-60],
        "cut_header": whole[:4000],
        "moved_record": header() + record(1) + record(1),
        "torn_record": header() + record(0)[:64] + record(1)[64:],
        "depth_zero": header() + record(0, 0),
        "future": header(version=2),
        "no_slots": header(slots=0),
        "many_slots": header(slots=1 << 31),
        "huge_page": header(page=(1 << 64) - 1),
        "other_records": header(record=64),
        "bad_sum": header()[:-1] + b"?",
        "group_7": header(group=7) + record(0, group=7),
        "empty": b"",
        "foreign": b"GGUF" + bytes(5000),
    }
    for name, data in files.items():
        with open(f"{out}/{name}", "wb") as f:
            f.write(data)


main()
