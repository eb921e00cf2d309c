#!/usr/bin/env python3
"""Golden token ids of real vocabularies, from two witnesses.

usage: make_tokens.py [-models DIR] [-only NAME] [-show INDEX]

Writes fixtures/strings.bin (once) and NAME.ids per vocabulary, and prints where the witnesses
differ. It stops when a difference has no rule below. Needs: tokenizers, gguf, numpy,
llama-cpp-python (versions in README.md).

Witness 1 is Hugging Face's `tokenizers`, built from the GGUF file as the model's own tokenizer.json
builds it (the conversion in transformers is not used: it drops SmolLM2's digit splitter). Witness 2
is llama.cpp. NAME.ids holds witness 1 unless a rule says otherwise.

NAME.ids:     u32 count, then per string: u32 hash of its ids, u32 hash with special tokens parsed.
strings.bin:  u32 count, then per string: u16 length, bytes.
The hash is FNV-1a over the ids as little-endian i32. All numbers are little-endian.
"""
import argparse
import collections
import os
import struct
import sys
import unicodedata

import gguf
import llama_cpp
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import token_strings

HERE = os.path.dirname(os.path.abspath(__file__))
CONTROL, USER, UNKNOWN = 3, 4, 2

FOLD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BLANKS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = FOLD + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + BLANKS


class Vocabulary:
    """What a GGUF file says about its tokenizer."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        get = lambda key: reader.fields["tokenizer.ggml." + key].contents()
        self.path, self.tokens, self.types = path, get("tokens"), get("token_type")
        self.merges = get("merges") if "tokenizer.ggml.merges" in reader.fields else None
        self.scores = get("scores") if "tokenizer.ggml.scores" in reader.fields else None

    def texts(self, *types):
        return [t for t, kind in zip(self.tokens, self.types) if kind in types]


def byte_level(v, *splits, normalizer=None):
    """Byte-level BPE as the tokenizer.json of that family has it."""
    vocab = {t: i for i, t in enumerate(v.tokens)}
    merges = [tuple(m.split(" ", 1)) for m in v.merges]
    t = Tokenizer(models.BPE(vocab, merges))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence(list(splits))
    t.decoder = decoders.ByteLevel()
    return t


def sentence_piece(v):
    """SentencePiece BPE as transformers converts it: a merge for every way to cut a piece in two,
    ordered by score."""
    vocab = {t: i for i, t in enumerate(v.tokens)}
    merges = []
    for text, score, kind in zip(v.tokens, v.scores, v.types):
        if kind != 1:
            continue
        cuts = [(text[:i], text[i:]) for i in range(1, len(text))
                if text[:i] in vocab and text[i:] in vocab]
        cuts.sort(key=lambda c: (vocab[c[0]], vocab[c[1]]))
        merges += [(score, c) for c in cuts]
    merges.sort(key=lambda m: -m[0])
    t = Tokenizer(models.BPE(vocab, [c for _, c in merges], unk_token="<unk>", fuse_unk=True,
                             byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    return t


SPECS = {
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf", lambda v: byte_level(
        v, pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False))),
    "qwen2.5": ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", lambda v: byte_level(
        v, pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        normalizer=normalizers.NFC())),
    "gemma3": ("gemma-3-270m-q4_k_m.gguf", sentence_piece),
}


class Hugging:
    """Witness 1: one tokenizer that knows the user-defined tokens, one that knows all specials."""

    def __init__(self, v, build):
        added = lambda *types: [AddedToken(t, normalized=False, special=False)
                                for t in v.texts(*types)]
        self.plain, self.special = build(v), build(v)
        self.plain.add_tokens(added(USER))
        self.special.add_tokens(added(USER, CONTROL, UNKNOWN))

    def ids(self, text, special):
        return (self.special if special else self.plain).encode(text, add_special_tokens=False).ids


class Llama:
    """Witness 2."""

    def __init__(self, path):
        self.model = llama_cpp.Llama(path, vocab_only=True, verbose=False)

    def ids(self, text, special):
        return self.model.tokenize(text.encode(), add_bos=False, special=special)


# Rules: name, does it explain this difference, whose ids count.
def rule_of(name, text, special, hf, llama, witness):
    if name == "qwen2.5" and unicodedata.normalize("NFC", text) != text:
        if witness.ids(unicodedata.normalize("NFC", text), special) == hf:
            return "nfc: Qwen's tokenizer.json normalises, llama.cpp does not", hf
    if name in ("qwen2.5", "gemma3") and "</s>" in text:
        return "</s> is HTML in these vocabularies, llama.cpp makes it a control token", hf
    return None, None


def hash_ids(ids):
    h = 0x811C9DC5
    for b in struct.pack("<%di" % len(ids), *ids):
        h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
    return h


def make(name, models_dir, strings):
    file, build = SPECS[name]
    v = Vocabulary(os.path.join(models_dir, file))
    hugging, llama = Hugging(v, build), Llama(v.path)
    out, rules, unexplained = [], collections.Counter(), []
    for raw in strings:
        text = raw.decode("utf-8", "replace")
        for special in (False, True):
            a, b = hugging.ids(text, special), llama.ids(text, special)
            if a != b:
                rule, a_or_b = rule_of(name, text, special, a, b, llama)
                rules[rule] += 1
                if rule is None:
                    unexplained.append((text, special, a, b))
                a = a_or_b or a
            out.append(hash_ids(a))
    for text, special, a, b in unexplained[:10]:
        print("  no rule: %s special=%d\n    hf    %s\n    llama %s" % (ascii(text), special, a, b))
    print("%s: %d strings; differences: %s" % (name, len(strings), dict(rules) or "none"))
    if unexplained:
        sys.exit("%d differences of %s have no rule" % (len(unexplained), name))
    with open(os.path.join(HERE, name + ".ids"), "wb") as f:
        f.write(struct.pack("<I%dI" % len(out), len(strings), *out))


def show(index, models_dir, strings):
    text = strings[index].decode("utf-8", "replace")
    print(ascii(text))
    for name, (file, build) in SPECS.items():
        v = Vocabulary(os.path.join(models_dir, file))
        for witness in (Hugging(v, build), Llama(v.path)):
            for special in (False, True):
                print(name, type(witness).__name__, special, witness.ids(text, special))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-models", default="build/models")
    p.add_argument("-only")
    p.add_argument("-show", type=int)
    a = p.parse_args()
    strings = list(token_strings.strings())
    if a.show is not None:
        return show(a.show, a.models, strings)
    os.makedirs(os.path.join(HERE, "fixtures"), exist_ok=True)
    with open(os.path.join(HERE, "fixtures", "strings.bin"), "wb") as f:
        f.write(struct.pack("<I", len(strings)))
        for raw in strings:
            f.write(struct.pack("<H", len(raw)) + raw)
    for name in [a.only] if a.only else SPECS:
        make(name, a.models, strings)


if __name__ == "__main__":
    main()
