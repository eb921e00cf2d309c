#!/usr/bin/env python3
"""Writes a model of a true shape with random weights as GGUF: it starts, loads, serves like one.

usage: make_gguf.py FILE [SHAPE [TYPE [LAYERS]]]
SHAPE 8b (Llama 3.1), 2b (8 of its layers, a small vocabulary), 30b-a3b (Qwen 3, 128 experts), toy
or toy-moe; TYPE Q4_K_M (as frontier.c mixes it), or one type for every matrix; LAYERS of the shape
if not all. Needs numpy and gguf. Weights are one random piece over and over: a file is written as
fast as the disk takes it; answers mean nothing. Its tokens are the bytes, a few merges and numbered
words.
"""
import sys
from typing import NamedTuple

import numpy as np
from gguf import GGML_QUANT_SIZES as SIZES
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter


class Shape(NamedTuple):
    layers: int
    d: int
    ff: int  # of one expert, where there are any
    vocab: int
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    experts: int = 0
    experts_used: int = 0


SHAPES = {"8b": Shape(32, 4096, 14336, 128256), "2b": Shape(8, 4096, 14336, 32000),
          "30b-a3b": Shape(48, 2048, 768, 151936, kv_heads=4, experts=128, experts_used=8),
          "toy": Shape(2, 256, 512, 512, 4, 2, 64),
          "toy-moe": Shape(2, 256, 256, 512, 4, 2, 64, 8, 2)}
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# Where d lies in a block, such that values are about 0.02, and how many d the minimum beside it is.
SCALE = {Type.Q4_0: (0, 0.003, 0), Type.Q4_1: (0, 0.003, -7.5), Type.Q5_0: (0, 0.0015, 0),
         Type.Q5_1: (0, 0.0015, -15.5), Type.Q8_0: (0, 0.0002, 0), Type.Q4_K: (0, 0.0001, 7.5),
         Type.Q5_K: (0, 0.00005, 15.5), Type.Q6_K: (208, 0.00001, 0)}
PIECE = 1 << 14  # blocks


def piece(kind):
    """Random codes, and scales that keep sums finite."""
    rng = np.random.default_rng(1)
    if kind == Type.BF16:
        values = rng.standard_normal(PIECE * 32, np.float32) * np.float32(0.02)
        return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    at, scale, minimum = SCALE[kind]
    raw = rng.integers(0, 256, (PIECE, SIZES[kind][1]), np.uint8)
    d = (rng.random(PIECE) * scale + scale).astype(np.float16)
    raw[:, at:at + 2] = d.view(np.uint8).reshape(PIECE, 2)
    if minimum:
        raw[:, 2:4] = (d * np.float16(minimum)).view(np.uint8).reshape(PIECE, 2)
    return raw.tobytes()


def type_of(name, layers, mix):
    if "ffn_gate_inp" in name:
        return Type.F32
    if mix != "Q4_K_M":
        return Type[mix]
    if name == "output.weight":
        return Type.Q6_K
    if "attn_v" in name or "ffn_down" in name:
        il = int(name.split(".")[1])
        if il < layers // 8 or il >= 7 * layers // 8 or (il - layers // 8) % 3 == 2:
            return Type.Q6_K
    return Type.Q4_K


def layer_shapes(s):
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    yield "attn_norm", (s.d,)
    yield from (("attn_q", (q, s.d)), ("attn_k", (kv, s.d)), ("attn_v", (kv, s.d)),
                ("attn_output", (s.d, q)), ("ffn_norm", (s.d,)))
    if s.experts:
        yield from (("attn_q_norm", (s.head_dim,)), ("attn_k_norm", (s.head_dim,)),
                    ("ffn_gate_inp", (s.experts, s.d)))
    suffix, of = ("_exps", (s.experts,)) if s.experts else ("", ())
    for x in ("gate", "up"):
        yield f"ffn_{x}{suffix}", (*of, s.ff, s.d)
    yield f"ffn_down{suffix}", (*of, s.d, s.ff)


def tensors(s):
    yield "token_embd.weight", (s.vocab, s.d)
    for i in range(s.layers):
        for name, dims in layer_shapes(s):
            yield f"blk.{i}.{name}.weight", dims
    yield "output_norm.weight", (s.d,)
    yield "output.weight", (s.vocab, s.d)


def add_hparams(w, s):
    w.add_context_length(131072)
    w.add_block_count(s.layers)
    w.add_embedding_length(s.d)
    w.add_feed_forward_length(s.ff)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.kv_heads)
    w.add_key_length(s.head_dim)
    w.add_value_length(s.head_dim)
    w.add_rope_dimension_count(s.head_dim)
    w.add_rope_freq_base(500000.0)
    w.add_layer_norm_rms_eps(1e-5)
    if s.experts:
        w.add_expert_count(s.experts)
        w.add_expert_used_count(s.experts_used)
        w.add_expert_feed_forward_length(s.ff)


def header(path, s):
    w = GGUFWriter(path, "qwen3moe" if s.experts else "llama")
    w.add_name("random weights")
    add_hparams(w, s)
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    words = [chr(b) if b in plain else chr(next(rest)) for b in range(256)]
    merges = ["t h", "th e", "i n"]
    words += [m.replace(" ", "") for m in merges] + ["<|im_start|>", "<|im_end|>"]
    words += [f"Ġw{i}" for i in range(s.vocab - len(words))]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(words)
    w.add_token_types([1] * 259 + [3, 3] + [1] * (s.vocab - 261))
    w.add_token_merges(merges)
    w.add_eos_token_id(260)
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE)
    return w


def floats(name, size):
    """Norms are ones; a router that is none would always choose the same experts."""
    if "ffn_gate_inp" in name:
        return np.random.default_rng(len(name)).standard_normal(size // 4, np.float32) * 0.02
    return np.ones(size // 4, np.float32)


def write(path, s, mix):
    w = header(path, s)
    sizes = []
    for name, dims in tensors(s):
        kind = Type.F32 if len(dims) == 1 else type_of(name, s.layers, mix)
        elems, size = SIZES[kind]
        count = int(np.prod(dims)) // elems
        sizes.append((name, kind, count * size))
        w.add_tensor_info(name, dims, np.dtype(np.float32), count * size, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    w.close()
    pieces = {kind: piece(kind) for kind in {kind for _, kind, _ in sizes} - {Type.F32}}
    with open(path, "ab") as f:
        f.write(bytes(-f.tell() % 32))
        for name, kind, size in sizes:
            if kind == Type.F32:
                f.write(floats(name, size).tobytes())
            else:
                p = pieces[kind]
                for at in range(0, size, len(p)):
                    f.write(p[:size - at])
            f.write(bytes(-f.tell() % 32))


def main():
    path, name, mix, layers = (*sys.argv[1:], *("", "8b", "Q4_K_M", "0")[len(sys.argv) - 1:])
    kinds = ["Q4_K_M", "BF16", *(k.name for k in SCALE)]
    if not path or name not in SHAPES or mix not in kinds:
        sys.exit(f"usage: make_gguf.py FILE [{'|'.join(SHAPES)} [{'|'.join(kinds)} [LAYERS]]]")
    shape = SHAPES[name]
    write(path, shape._replace(layers=int(layers) or shape.layers), mix)


if __name__ == "__main__":
    main()
