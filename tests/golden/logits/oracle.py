#!/usr/bin/env python3
"""A second witness for the logits goldens: the models in numpy, float32, without torch.

usage: oracle.py FOLDER    where FOLDER holds the GGUF files of tools/models.txt

For two texts of each model every 8th of the first 96 positions of ../fixtures/logits-NAME.bin is
computed again from the dequantised weights (package gguf) and compared: the log-probabilities of
the truth's first eight ids within 2e-3, the most likely id the same unless two lie closer than
that. One text of Gemma 3 is run whole, past its window of 512. So what make_logits.py got from
transformers is not taken on trust, and anyone can follow a model's formulas here.
Prints "N passed, N failed": one case per model and text.
"""
import pathlib
import struct
import sys

import numpy as np
from gguf import GGUFReader, GGUFValueType
from gguf.quants import dequantize

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
FILES = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf",
         "qwen2": "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"}
TEXTS, LENGTH, STEP, TOP, BOUND = 2, 96, 8, 8, 2e-3
WHOLE = ("gemma3", 1)  # model, text


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * (x + 0.044715 * x * x * x)))


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rope(x, base, interleaved):
    """x[n][heads][d]; pairs (2i, 2i+1) if interleaved, else (i, i + d/2)."""
    n, _, d = x.shape
    angle = np.arange(n)[:, None] * float(base) ** (-np.arange(0, d, 2) / d)
    c, s = (f(angle)[:, None].astype(np.float32) for f in (np.cos, np.sin))
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :d // 2], x[..., d // 2:])
    p, q = a * c - b * s, a * s + b * c
    return np.stack([p, q], -1).reshape(x.shape) if interleaved else np.concatenate([p, q], -1)


class Reader(GGUFReader):
    """Steps over arrays of strings: the package makes three objects of each token, most of the time
    of a run, and no formula here reads one."""

    def _get_field_parts(self, orig_offs, raw_type):
        kinds = self.data[orig_offs:orig_offs + 4].view("<u4")
        if raw_type != GGUFValueType.ARRAY or kinds[0] != GGUFValueType.STRING:
            return super()._get_field_parts(orig_offs, raw_type)
        data = memoryview(self.data)
        (count,) = struct.unpack_from("<Q", data, orig_offs + 4)
        at = orig_offs + 12
        for _ in range(count):
            at += 8 + struct.unpack_from("<Q", data, at)[0]
        whole = self.data[orig_offs:at]
        return at - orig_offs, [whole], [0], [GGUFValueType.ARRAY, GGUFValueType.UINT8]


class Model:
    def __init__(self, path):
        reader = Reader(path)
        self.tensors = {t.name: t for t in reader.tensors}
        self.cache = {}
        fields = reader.fields
        self.arch = fields["general.architecture"].contents()

        def key(name, absent=None):
            field = fields.get(f"{self.arch}.{name}")
            return absent if field is None else field.contents()

        self.layers, self.width = key("block_count"), key("embedding_length")
        self.heads, self.kv_heads = key("attention.head_count"), key("attention.head_count_kv")
        self.head_dim = key("attention.key_length", self.width // self.heads)
        self.eps = key("attention.layer_norm_rms_epsilon")
        self.base = key("rope.freq_base", 10000.0)
        self.window = key("attention.sliding_window", 0)
        self.is_gemma = self.arch == "gemma3"

    def w(self, name, rows=slice(None)):
        """A tensor as float32, or some of its rows."""
        t = self.tensors[name]
        if rows != slice(None):
            return dequantize(t.data[rows], t.tensor_type)
        if name not in self.cache:
            self.cache[name] = dequantize(t.data, t.tensor_type)
        return self.cache[name]

    def linear(self, x, name):
        y = x @ self.w(name + ".weight").T
        return y + self.w(name + ".bias") if name + ".bias" in self.tensors else y

    def attention(self, x, layer):
        b, n, d = f"blk.{layer}.", len(x), self.head_dim
        q = self.linear(x, b + "attn_q").reshape(n, self.heads, d)
        k = self.linear(x, b + "attn_k").reshape(n, self.kv_heads, d)
        v = self.linear(x, b + "attn_v").reshape(n, self.kv_heads, d)
        if b + "attn_q_norm.weight" in self.tensors:
            q = rms(q, self.w(b + "attn_q_norm.weight"), self.eps)
            k = rms(k, self.w(b + "attn_k_norm.weight"), self.eps)
        # Gemma 3: five layers look back a window with base 10000, the sixth sees everything.
        is_local = self.is_gemma and layer % 6 < 5
        base = 10000.0 if is_local else self.base
        q, k = (rope(t, base, self.arch == "llama") for t in (q, k))
        i, j = np.arange(n)[:, None], np.arange(n)[None]
        seen = (j <= i) & ((i - j < self.window) if is_local else True)
        out = np.empty((n, self.heads, d), np.float32)
        for h in range(self.heads):
            g = h // (self.heads // self.kv_heads)
            s = np.where(seen, q[:, h] @ k[:, g].T / np.float32(d ** 0.5), np.float32(-np.inf))
            s = np.exp(s - s.max(-1, keepdims=True))
            out[:, h] = s / s.sum(-1, keepdims=True) @ v[:, g]
        return self.linear(out.reshape(n, -1), b + "attn_output")

    def logprobs(self, ids, positions):
        """Log-probabilities [len(positions)][vocabulary]."""
        w, eps = self.w, self.eps
        x = w("token_embd.weight", ids.tolist())
        if self.is_gemma:
            x = x * np.float32(np.sqrt(self.width))
        for layer in range(self.layers):
            b = f"blk.{layer}."
            y = self.attention(rms(x, w(b + "attn_norm.weight"), eps), layer)
            if self.is_gemma:
                y = rms(y, w(b + "post_attention_norm.weight"), eps)
            x = x + y
            h = rms(x, w(b + "ffn_norm.weight"), eps)
            act = gelu_tanh if self.is_gemma else silu
            y = act(self.linear(h, b + "ffn_gate")) * self.linear(h, b + "ffn_up")
            y = self.linear(y, b + "ffn_down")
            if self.is_gemma:
                y = rms(y, w(b + "post_ffw_norm.weight"), eps)
            x = x + y
        x = rms(x[positions], w("output_norm.weight"), eps)
        assert x.dtype == np.float32
        table = "output.weight" if "output.weight" in self.tensors else "token_embd.weight"
        logits = x @ w(table).T
        logits = logits.astype(np.float64) - logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def read_fixture(name):
    """Yields (ids, argmax[n], top_id[n][k], top_logprob[n][k]) per text."""
    data = (FIXTURES / f"logits-{name}.bin").read_bytes()
    count, top, _ = struct.unpack_from("<III", data, 8)
    assert data[:8] == b"SHLOGIT1"
    record = np.dtype([("argmax", "<i4"), ("lse", "<f4"), ("next", "<f4"),
                       ("top_id", "<i4", (top,)), ("top_logprob", "<f4", (top,))])
    at = 20
    for _ in range(count):
        (n,) = struct.unpack_from("<I", data, at)
        ids = np.frombuffer(data, "<i4", n, at + 4)
        records = np.frombuffer(data, record, n, at + 4 + 4 * n)
        at += 4 + 4 * n + n * record.itemsize
        yield ids, records["argmax"], records["top_id"], records["top_logprob"]


def main():
    passed = failed = 0
    for name, file in FILES.items():
        model = Model(pathlib.Path(sys.argv[1]) / file)
        texts = list(read_fixture(name))[:TEXTS]
        for number, (ids, argmax, top_id, top) in enumerate(texts):
            n = len(ids) if (name, number) == WHOLE else LENGTH
            at = np.arange(STEP - 1, n, STEP * n // LENGTH)
            logprob = model.logprobs(ids[:n], at)
            got = np.take_along_axis(logprob, top_id[at][:, :TOP], -1)
            worst = np.abs(got - top[at][:, :TOP]).max()
            near = top[at][:, 0] - top[at][:, 1] < BOUND
            same = (logprob.argmax(-1) == argmax[at]) | near
            if worst < BOUND and same.all():
                passed += 1
            else:
                failed += 1
                print(f"{name}, text {number}: |d log-probability| up to {worst:.2e}, "
                      f"{(~same).sum()} of {len(at)} other first ids")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
