#!/usr/bin/env python3
"""Writes a model of a true shape with random weights as GGUF: it starts, loads, serves like one.

usage: make_gguf.py FILE [8b|2b]
Needs numpy and gguf. Q4_K_M as frontier.c mixes it. Weights are one random piece over and over: a
file is written as fast as the disk takes it; answers mean nothing. Its tokens are the bytes, a few
merges and numbered words.
"""
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter

SHAPES = {"8b": (32, 4096, 14336, 128256), "2b": (8, 4096, 14336, 32000)}
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
BLOCK = {Type.Q4_K: (256, 144), Type.Q6_K: (256, 210), Type.F32: (1, 4)}
PIECE = 1 << 14  # blocks


def piece(kind):
    """Random codes, scales such that values are about 0.02."""
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 256, (PIECE, BLOCK[kind][1]), np.uint8)
    scale = {Type.Q4_K: 0.0001, Type.Q6_K: 0.00001}[kind]
    d = (rng.random(PIECE) * scale + scale).astype(np.float16).view(np.uint8).reshape(PIECE, 2)
    if kind == Type.Q4_K:
        raw[:, 0:2] = d
        raw[:, 2:4] = (d.view(np.float16) * np.float16(7.5)).view(np.uint8)
    else:
        raw[:, 208:210] = d
    return raw.tobytes()


def type_of(name, layers):
    if name == "output.weight":
        return Type.Q6_K
    if "attn_v" in name or "ffn_down" in name:
        il = int(name.split(".")[1])
        if il < layers // 8 or il >= 7 * layers // 8 or (il - layers // 8) % 3 == 2:
            return Type.Q6_K
    return Type.Q4_K


def shapes_of(layers, d, ff, vocab):
    yield "token_embd.weight", (vocab, d)
    kv = KV_HEADS * HEAD_DIM
    for i in range(layers):
        b = f"blk.{i}."
        yield b + "attn_norm.weight", (d,)
        for x, rows, cols in (("attn_q", HEADS * HEAD_DIM, d), ("attn_k", kv, d), ("attn_v", kv, d),
                              ("attn_output", d, d), ("ffn_gate", ff, d), ("ffn_up", ff, d),
                              ("ffn_down", d, ff)):
            yield f"{b}{x}.weight", (rows, cols)
        yield b + "ffn_norm.weight", (d,)
    yield "output_norm.weight", (d,)
    yield "output.weight", (vocab, d)


def header(path, layers, d, ff, vocab):
    w = GGUFWriter(path, "llama")
    w.add_name("random weights")
    w.add_context_length(131072)
    w.add_block_count(layers)
    w.add_embedding_length(d)
    w.add_feed_forward_length(ff)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_rope_dimension_count(HEAD_DIM)
    w.add_rope_freq_base(500000.0)
    w.add_layer_norm_rms_eps(1e-5)
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    words = [chr(b) if b in plain else chr(next(rest)) for b in range(256)]
    merges = ["t h", "th e", "i n"]
    words += [m.replace(" ", "") for m in merges] + ["<|im_start|>", "<|im_end|>"]
    words += [f"Ġw{i}" for i in range(vocab - len(words))]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(words)
    w.add_token_types([1] * 259 + [3, 3] + [1] * (vocab - 261))
    w.add_token_merges(merges)
    w.add_eos_token_id(260)
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE)
    return w


def main():
    path, shape = sys.argv[1], SHAPES[sys.argv[2] if len(sys.argv) > 2 else "8b"]
    w = header(path, *shape)
    sizes = []
    for name, dims in shapes_of(*shape):
        kind = Type.F32 if len(dims) == 1 else type_of(name, shape[0])
        elems, size = BLOCK[kind]
        count = int(np.prod(dims)) // elems
        sizes.append((kind, count * size))
        w.add_tensor_info(name, dims, np.dtype(np.float32), count * size, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    w.close()
    pieces = {kind: piece(kind) for kind in (Type.Q4_K, Type.Q6_K)}
    with open(path, "ab") as f:
        f.write(bytes(-f.tell() % 32))
        for kind, size in sizes:
            if kind == Type.F32:
                f.write(np.ones(size // 4, np.float32).tobytes())
            else:
                p = pieces[kind]
                for at in range(0, size, len(p)):
                    f.write(p[:size - at])
            f.write(bytes(-f.tell() % 32))


if __name__ == "__main__":
    main()
