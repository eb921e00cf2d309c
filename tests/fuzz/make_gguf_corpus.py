#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/gguf: small files that reach every part of the reader."""
import pathlib
import struct

OUT = pathlib.Path(__file__).parent / "corpus/gguf"
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B",
        U64: "<Q", I64: "<q", F64: "<d"}
# ggml id, values per block, bytes per block
TYPES = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
         10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
         16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110),
         22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8),
         29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36),
         41: (128, 18), 42: (64, 18)}


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STRING:
        return text(v)
    if kind == ARRAY:
        inner, items = v
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, i) for i in items)
    return struct.pack(PACK[kind], v)


def model(keys, tensors, version=3, alignment=32):
    """keys: (name, type, value); tensors: (name, dims, ggml type)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for name, kind, v in keys:
        head += text(name) + struct.pack("<I", kind) + value(kind, v)
    data = b""
    for name, dims, kind in tensors:
        block, size = TYPES[kind]
        count = size
        for i, d in enumerate(dims):
            count *= d // block if i == 0 else d
        head += text(name) + struct.pack("<I", len(dims))
        head += b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, len(data))
        data += bytes(i * 7 % 256 for i in range(count))
        data += bytes(-len(data) % alignment)
    return head + bytes(-len(head) % alignment) + data


ARCH = ("general.architecture", STRING, "llama")
FILES = {
    "scalars": model([ARCH] + [(f"k.{t}", t, 1) for t in PACK], []),
    "arrays": model([ARCH] + [(f"k.{t}", ARRAY, (t, [0, 1, 1])) for t in PACK] +
                    [("words", ARRAY, (STRING, ["a", "", "\u00e9t\u00e9"])),
                     ("nested", ARRAY, (ARRAY, [(U8, [1, 2]), (STRING, ["x"]),
                                                (ARRAY, [(F32, [0.5])])])),
                     ("none", ARRAY, (ARRAY, []))], []),
    "types": model([ARCH], [(f"t{k}", [b, 2], k) for k, (b, _) in TYPES.items()]),
    "dims": model([ARCH], [("s", [], 0), ("v", [3], 0), ("m", [32, 2], 8), ("c", [2, 3, 4], 1),
                           ("h", [2, 1, 2, 2], 0)]),
    "aligned": model([ARCH, ("general.alignment", U32, 64)], [("a", [4], 0), ("b", [9], 1)],
                     alignment=64),
    "version2": model([ARCH, ("llama.block_count", U32, 2)], [("a", [4], 0)], version=2),
    "vocabulary": model([ARCH, ("tokenizer.ggml.model", STRING, "gpt2"),
                         ("tokenizer.ggml.tokens", ARRAY,
                          (STRING, ["<s>", "</s>", "a", "b", "ab"])),
                         ("tokenizer.ggml.scores", ARRAY, (F32, [0, 0, -1, -2, -3])),
                         ("tokenizer.ggml.token_type", ARRAY, (I32, [3, 3, 1, 1, 1])),
                         ("tokenizer.ggml.merges", ARRAY, (STRING, ["a b"])),
                         ("tokenizer.ggml.bos_token_id", U32, 0)], []),
    "piece": model([ARCH, ("split.no", U16, 0), ("split.count", U16, 2),
                    ("split.tensors.count", I32, 1)], [("a", [4], 0)]),
    "alone": model([ARCH, ("split.no", U16, 0), ("split.count", U16, 1),
                    ("split.tensors.count", I32, 1)], [("a", [4], 0)]),
    "bigendian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "html": b"<!DOCTYPE html><html><body>404</body></html>",
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    # 43 bytes that claim an array of 2^63 elements
    "array63": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") +
                struct.pack("<IIQ", 9, 0, 1 << 63)),
}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    for name, data in FILES.items():
        (OUT / name).write_bytes(data)


main()
