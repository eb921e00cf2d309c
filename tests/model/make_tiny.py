#!/usr/bin/env python3
"""Writes tiny models with random weights, one per family and variant, as GGUF files.

usage: make_tiny.py FOLDER LIBQUANT [NAME...]
Needs numpy and gguf; LIBQUANT is src/quant as a shared library (make build/libquant.so).

Same bytes on every machine: weights come from a counter hash, quantised ones from our encoders.
Each family F gives F.gguf (F32) and F-mixed.gguf (its matrices in turn in the types of MIXED;
experts of gpt-oss in MXFP4). Widths are multiples of 256, so every block type fits. All have a byte
tokenizer of 320 tokens with a few merges, and a ChatML template.
tests/golden/tiny/make_tiny_golden.py makes the truth about their logits with transformers.
"""
import ctypes
import pathlib
import sys
import zlib

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

VOCAB = 320
BYTES = 256
MERGES = ["t h", "th e", "i n", "e r", "a n", "o n", "r e", "Ġ the", "Ġ a", "i s", "o u", "in g",
          "an d", "Ġ w", "s t", "e s"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
MIXED = [Type.Q4_K, Type.Q6_K, Type.Q5_0, Type.Q8_0, Type.Q4_1, Type.F16, Type.Q4_0, Type.BF16]

# What a family's metadata says; keys of FAMILY are prefixed by the architecture.
FAMILIES = {
    "llama": {
        "arch": "llama", "block_count": 3, "embedding_length": 256, "feed_forward_length": 512,
        "attention.head_count": 8, "attention.head_count_kv": 2, "rope.dimension_count": 32,
        "rope.freq_base": 10000.0, "attention.layer_norm_rms_epsilon": 1e-5, "output": True},
    "llama3": {
        "arch": "llama", "block_count": 2, "embedding_length": 256, "feed_forward_length": 512,
        "attention.head_count": 4, "attention.head_count_kv": 1, "rope.dimension_count": 64,
        "rope.freq_base": 500000.0, "attention.layer_norm_rms_epsilon": 1e-5, "output": False,
        "llama3": (8.0, 1.0, 4.0, 64)},
    "qwen2": {
        "arch": "qwen2", "block_count": 2, "embedding_length": 256, "feed_forward_length": 768,
        "attention.head_count": 4, "attention.head_count_kv": 2, "rope.freq_base": 1e6,
        "attention.layer_norm_rms_epsilon": 1e-6, "output": True},
    "qwen3": {
        "arch": "qwen3", "block_count": 2, "embedding_length": 256, "feed_forward_length": 512,
        "attention.head_count": 8, "attention.head_count_kv": 2, "attention.key_length": 64,
        "attention.value_length": 64, "rope.freq_base": 1e6,
        "attention.layer_norm_rms_epsilon": 1e-6, "output": False},
    "qwen3moe": {
        "arch": "qwen3moe", "block_count": 2, "embedding_length": 256, "feed_forward_length": 512,
        "expert_feed_forward_length": 256, "expert_count": 8, "expert_used_count": 3,
        "attention.head_count": 8, "attention.head_count_kv": 4, "attention.key_length": 64,
        "attention.value_length": 64, "rope.freq_base": 1e6,
        "attention.layer_norm_rms_epsilon": 1e-6, "output": True},
    "gemma3": {
        "arch": "gemma3", "block_count": 7, "embedding_length": 256, "feed_forward_length": 256,
        "attention.head_count": 4, "attention.head_count_kv": 1, "attention.key_length": 64,
        "attention.value_length": 64, "attention.sliding_window": 16, "rope.freq_base": 1e6,
        "rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
        "attention.layer_norm_rms_epsilon": 1e-6, "output": False},
    "gpt-oss": {
        "arch": "gpt-oss", "block_count": 4, "embedding_length": 256, "feed_forward_length": 256,
        "expert_feed_forward_length": 256, "expert_count": 8, "expert_used_count": 2,
        "attention.head_count": 8, "attention.head_count_kv": 2, "attention.key_length": 64,
        "attention.value_length": 64, "attention.sliding_window": 16, "rope.freq_base": 150000.0,
        "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 64,
        "attention.layer_norm_rms_epsilon": 1e-5, "output": True},
}
CONTEXT = 2048


def noise(name, shape):
    """Uniform in [-sqrt(3), sqrt(3)): variance 1. A counter through splitmix64, 24 bits kept."""
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
             + np.uint64(zlib.crc32(name.encode()) << 20))
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
        z ^= z >> np.uint64(31)
    unit = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0 ** -24) - np.float32(0.5)
    return (unit * np.float32(2 * 3 ** 0.5)).reshape(shape)


def matrix(name, *shape, gain=1.0):
    return noise(name, shape) * np.float32(gain / shape[-1] ** 0.5)


def vector(name, n, mean=0.0, spread=0.1):
    return noise(name, (n,)) * np.float32(spread) + np.float32(mean)


def llama3_divisors(f):
    factor, low, high, original = f["llama3"]
    d = f["rope.dimension_count"]
    wave = 2 * np.pi * f["rope.freq_base"] ** (np.arange(0, d, 2) / d)
    s = (original / wave - low) / (high - low)
    smooth = 1 / ((1 - s) / factor + s)
    return np.where(wave < original / high, 1, np.where(wave > original / low, factor,
                                                        smooth)).astype(np.float32)


def tensors(name, f):
    """All tensors of family `name` in GGUF's layout, F32, in file order."""
    d, ff = f["embedding_length"], f["feed_forward_length"]
    heads, kv = f["attention.head_count"], f["attention.head_count_kv"]
    dk = f.get("attention.key_length", d // heads)
    arch, t = f["arch"], {}
    # A tied table is small: else each token's own column would win every time.
    scale = 1 / 16 if arch == "gemma3" else 1 if f["output"] else 0.25
    t["token_embd.weight"] = noise(name + "token_embd", (VOCAB, d)) * np.float32(scale)
    if "llama3" in f:
        t["rope_freqs.weight"] = llama3_divisors(f)
    for i in range(f["block_count"]):
        b, seed = f"blk.{i}.", f"{name}{i}"
        t[b + "attn_norm.weight"] = vector(seed + "an", d, 1)
        # A small V: what the cache loses by keeping K and V as f16 stays small in the logits too.
        for x, rows, gain in (("q", heads * dk, 1), ("k", kv * dk, 1), ("v", kv * dk, 0.2)):
            t[b + f"attn_{x}.weight"] = matrix(seed + x, rows, d, gain=gain)
            if arch in ("qwen2", "gpt-oss"):
                t[b + f"attn_{x}.bias"] = vector(seed + x + "b", rows)
        if arch in ("qwen3", "qwen3moe", "gemma3"):
            t[b + "attn_q_norm.weight"] = vector(seed + "qn", dk, 1.2)
            t[b + "attn_k_norm.weight"] = vector(seed + "kn", dk, 1.2)
        t[b + "attn_output.weight"] = matrix(seed + "o", d, heads * dk)
        if arch == "gpt-oss":
            t[b + "attn_output.bias"] = vector(seed + "ob", d)
            t[b + "attn_sinks.weight"] = vector(seed + "sinks", heads, 0.5, 1)
        if arch in ("gemma3", "gpt-oss"):
            t[b + "post_attention_norm.weight"] = vector(seed + "pan", d,
                                                         0.25 if arch == "gemma3" else 1)
        if arch != "gpt-oss":
            t[b + "ffn_norm.weight"] = vector(seed + "fn", d, 1)
        if "expert_count" in f:
            n, fe = f["expert_count"], f["expert_feed_forward_length"]
            t[b + "ffn_gate_inp.weight"] = matrix(seed + "router", n, d, gain=2)
            shapes = (("gate", fe, d), ("up", fe, d), ("down", d, fe))
            for x, rows, cols in shapes:
                t[b + f"ffn_{x}_exps.weight"] = matrix(seed + x, n, rows, cols, gain=1.5)
            if arch == "gpt-oss":
                t[b + "ffn_gate_inp.bias"] = vector(seed + "routerb", n)
                for x, rows, _ in shapes:
                    t[b + f"ffn_{x}_exps.bias"] = noise(seed + x + "b", (n, rows)) * np.float32(0.1)
        else:
            for x, rows, cols in (("gate", ff, d), ("up", ff, d), ("down", d, ff)):
                t[b + f"ffn_{x}.weight"] = matrix(seed + x, rows, cols, gain=1.5)
        if arch == "gemma3":
            t[b + "post_ffw_norm.weight"] = vector(seed + "pfn", d, 1)
    t["output_norm.weight"] = vector(name + "on", d, 1)
    if f["output"]:
        t["output.weight"] = matrix(name + "output", VOCAB, d, gain=3)
    return t


def mxfp4_blocks(name, shape):
    """Random valid blocks: scales of 2^-6 .. 2^-3, any codes."""
    blocks = int(np.prod(shape)) // 32
    raw = np.empty((blocks, 17), np.uint8)
    raw[:, 0] = 121 + (noise(name + "e", (blocks,)) > 0) + 2 * (noise(name + "e2", (blocks,)) > 1)
    raw[:, 1:] = ((noise(name + "c", (blocks, 16)) + 1.7320508) * 73.9).astype(np.uint8)
    return raw.reshape(*shape[:-1], shape[-1] // 32 * 17)


class Encoders:
    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path))

    def encode(self, values, kind):
        block, size = GGML_QUANT_SIZES[kind]
        values = np.ascontiguousarray(values, np.float32)
        out = np.zeros((*values.shape[:-1], values.shape[-1] // block * size), np.uint8)
        encode = getattr(self.lib, f"quant_{kind.name.lower()}_quantise")
        encode(out.ctypes.data_as(ctypes.c_void_p), values.ctypes.data_as(ctypes.c_void_p),
               ctypes.c_size_t(values.size))
        return out


def pack(name, f, encoders):
    """{tensor: (type, raw bytes or values)}; encoders None: all F32."""
    out, matrices = {}, 0
    for key, values in tensors(name, f).items():
        if encoders is None or values.ndim < 2 or "bias" in key or "gate_inp" in key:
            out[key] = (Type.F32, values)
        elif f["arch"] == "gpt-oss" and "_exps" in key:
            out[key] = (Type.MXFP4, mxfp4_blocks(name + key, values.shape))
        else:
            kind = MIXED[matrices % len(MIXED)]
            if key == "token_embd.weight":
                kind = Type.Q6_K if len(name) % 2 else Type.Q8_0
            else:
                matrices += 1
            out[key] = (kind, encoders.encode(values, kind))
    return out


def truth(packed):
    """What a reader of the file sees, F32."""
    return {k: v if kind == Type.F32 else dequantize(v, kind).astype(np.float32)
            for k, (kind, v) in packed.items()}


def byte_symbols():
    """The letters by which byte-level BPE writes the 256 bytes (GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(rest)) for b in range(256)]


def write(path, name, f, packed):
    w = GGUFWriter(path, f["arch"])
    w.add_name(f"tiny {name}")
    w.add_context_length(CONTEXT)
    for key, value in f.items():
        if key in ("arch", "output", "llama3"):
            continue
        full = f"{f['arch']}.{key}"
        if isinstance(value, str):
            w.add_string(full, value)
        elif isinstance(value, float):
            w.add_float32(full, value)
        else:
            w.add_uint32(full, value)
    words = byte_symbols() + [m.replace(" ", "") for m in MERGES]
    words += [f"<|unused{i}|>" for i in range(VOCAB - len(words) - len(SPECIALS))] + SPECIALS
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(words)
    w.add_token_types([1] * (BYTES + len(MERGES)) + [3] * (VOCAB - BYTES - len(MERGES)))
    w.add_token_merges(MERGES)
    w.add_eos_token_id(VOCAB - 1)
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE)
    for key, (kind, values) in packed.items():
        w.add_tensor(key, values, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def variants():
    for name, f in FAMILIES.items():
        yield name, name, f, False
        yield name + "-mixed", name, f, True


def main():
    folder, encoders = pathlib.Path(sys.argv[1]), Encoders(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for file, name, f, is_mixed in variants():
        if sys.argv[3:] and file not in sys.argv[3:]:
            continue
        packed = pack(name, f, encoders if is_mixed else None)
        write(folder / f"{file}.gguf.new", name, f, packed)
        (folder / f"{file}.gguf.new").rename(folder / f"{file}.gguf")


if __name__ == "__main__":
    main()
