#!/usr/bin/env python3
"""Golden token ids of real vocabularies, from two witnesses.

usage: make_tokens.py [-models DIR] [-only NAME] [-show INDEX]     (after `make models`)

Writes fixtures/strings.bin (once) and NAME.ids per vocabulary, and prints where the witnesses
differ. It stops when a difference has no rule below. Needs: tokenizers, gguf, numpy,
sentencepiece, llama-cpp-python (versions in README.md).

Witness 1 is Hugging Face's `tokenizers`: with the model's own tokenizer.json where a package has
it, else built from the GGUF file as that tokenizer.json builds it (the conversion in transformers
is not used: it drops SmolLM2's digit splitter). For SentencePiece models of packages it is
SentencePiece, for tekken the definition in tiktoken's terms. Witness 2 is llama.cpp. NAME.ids holds
witness 1, except where a rule says otherwise.

NAME.ids:     u32 count, then per string: u32 hash of its ids, u32 hash with special tokens parsed.
strings.bin:  u32 count, then per string: u16 length, bytes.
The hash is FNV-1a over the ids as little-endian i32; 0: not compared. Numbers are little-endian.
"""
import argparse
import collections
import json
import os
import re
import struct
import sys
import tempfile
import unicodedata

import gguf
import llama_cpp
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import make_vocab
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


def released(j):
    """The model's own tokenizer.json without its added tokens, which are added per mode."""
    j = dict(j, added_tokens=[], post_processor=None)
    j["model"]["vocab"] = dict(j["model"]["vocab"])
    for a in JSON_ADDED[id(j["model"])]:
        j["model"]["vocab"].setdefault(a["content"], a["id"])
    return Tokenizer.from_str(json.dumps(j))


JSON_ADDED = {}


class Pieces:
    """Witnesses that know no special tokens: the text is cut at them first, leftmost longest."""

    def __init__(self, v):
        self.id_of = {t: i for i, t in enumerate(v.tokens)}
        cut = lambda *types: re.compile("(" + "|".join(
            re.escape(t) for t in sorted(v.texts(*types), key=len, reverse=True)) + ")") \
            if v.texts(*types) else None
        self.cuts = cut(USER), cut(USER, CONTROL, UNKNOWN)

    def ids(self, text, special):
        cut, out = self.cuts[special], []
        for i, part in enumerate(cut.split(text) if cut else [text]):
            out += [self.id_of[part]] if i % 2 else self.encode(part) if part else []
        return out


class SentencePiece(Pieces):
    def __init__(self, v, model):
        super().__init__(v)
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    def encode(self, text):
        return self.processor.encode(text)


class Tekken(Pieces):
    """tiktoken's definition: a word that is a token, else merges of bytes by the lowest rank."""
    UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    FIRST = r"[^\r\n\p{L}\p{N}]?"
    PATTERN = (FIRST + UPPER + "*" + LOWER + "+|" + FIRST + UPPER + "+" + LOWER +
               r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + BLANKS)

    def __init__(self, v):
        super().__init__(v)
        byte_of = {c: b for b, c in make_vocab.byte_table().items()}
        self.ranks = {bytes(byte_of[c] for c in t): i
                      for i, (t, kind) in enumerate(zip(v.tokens, v.types)) if kind == 1}
        self.split = pre_tokenizers.Split(Regex(self.PATTERN), "isolated")

    def encode(self, text):
        out = []
        for word, _ in self.split.pre_tokenize_str(text):
            word = word.encode()
            pieces = [word] if word in self.ranks else [word[i:i + 1] for i in range(len(word))]
            while len(pieces) > 1:
                rank, i = min((self.ranks.get(pieces[i] + pieces[i + 1], 1 << 30), i)
                              for i in range(len(pieces) - 1))
                if rank == 1 << 30:
                    break
                pieces[i:i + 2] = [pieces[i] + pieces[i + 1]]
            out += [self.ranks[p] for p in pieces]
        return out


class WordPiece(Pieces):
    def __init__(self, v, data):
        super().__init__(v)
        j = dict(json.loads(data), added_tokens=[], truncation=None, padding=None,
                 post_processor=None)
        self.tokenizer = Tokenizer.from_str(json.dumps(j))

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids


# Vocabularies of the model files, and how their own tokenizer.json is built.
BUILT = {
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf", lambda v: byte_level(
        v, pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False))),
    "qwen2.5": ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", lambda v: byte_level(
        v, pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        normalizer=normalizers.NFC())),
    "gemma3": ("gemma-3-270m-q4_k_m.gguf", sentence_piece),
}
NAMES = [*BUILT, *make_vocab.TABLE]


def first_witness(name, v, folder):
    if name in BUILT:
        return Hugging(v, BUILT[name][1])
    package, pattern, reader, _ = make_vocab.TABLE[name]
    data = make_vocab.member_of(package, pattern, folder)
    if reader == "spm":
        return SentencePiece(v, data)
    if reader == "tekken":
        return Tekken(v)
    if reader == "wordpiece":
        return WordPiece(v, data)
    j = make_vocab.read_json(data)[3]
    JSON_ADDED[id(j["model"])] = j["added_tokens"]
    return Hugging(v, lambda v: released(j))


def path_of(name, models_dir):
    return os.path.join(models_dir, BUILT[name][0] if name in BUILT else "vocab/%s.gguf" % name)


class Llama:
    """Witness 2."""

    def __init__(self, path):
        self.model = llama_cpp.Llama(path, vocab_only=True, verbose=False)

    def ids(self, text, special):
        return self.model.tokenize(text.encode(), add_bos=False, special=special)


NFC = ("qwen2.5", "qwen3.5", "minimax")
HTML = ("qwen2.5", "qwen3.5", "gemma3")
CASED = ("tekken", "minimax")
FIM = re.compile(r"<\|(fim_(prefix|middle|suffix|pad)|file_sep|repo_name|endoftext|im_end)\|>")


def rule_of(name, text, special, hf, witness):
    """Which rule explains that the witnesses differ, and whose ids are right."""
    normal = unicodedata.normalize("NFC", text) if name in NFC else text
    if name == "qwen3.5" and not special and FIM.search(text):
        rule = "fim: marked as user-defined, but not for content to write"
        return rule, witness.ids(normal, False)
    return rule_for_first(name, text, normal, special, hf, witness), hf


def rule_for_first(name, text, normal, special, hf, witness):
    if normal != text and witness.ids(normal, special) == hf:
        return "nfc: the model's tokenizer.json normalises, llama.cpp does not"
    if name in HTML and "</s>" in text:
        return "</s> is HTML in this vocabulary, llama.cpp makes it a control token"
    if "'\u017f" in normal and name in NFC:
        return "long s: (?i:'s) matches U+017F, llama.cpp's '[sS] does not"
    if name in CASED and any(unicodedata.category(c)[0] in "LM" and c > "\x7f" for c in normal):
        return "case: llama.cpp takes every letter but A-Z, a-z for both cases, and no marks"
    if name == "minilm" and not text.isascii():
        return "folding: llama.cpp drops every mark and folds case by other tables"
    if name == "minilm" and re.search("[\x00-\x1f\x7f]|[^ ]{100}", text):
        return "words: BERT drops control characters, and takes no word over 100 characters"
    if name == "deepseek-llm" and re.search(r"[^\S\t-\r ]", text):
        return "blanks: \\s? before a run that holds U+3000, which llama.cpp cuts otherwise"
    return None


def hash_ids(ids):
    h = 0x811C9DC5
    for b in struct.pack("<%di" % len(ids), *ids):
        h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
    return h


def make(name, models_dir, folder, strings):
    v = Vocabulary(path_of(name, models_dir))
    hugging, llama = first_witness(name, v, folder), Llama(v.path)
    out, rules, unexplained = [], collections.Counter(), []
    for raw in strings:
        text = raw.decode("utf-8", "replace")
        for special in (False, True):
            a, b = hugging.ids(text, special), llama.ids(text, special)
            if a != b:
                rule, right = rule_of(name, text, special, a, llama)
                rules[rule] += 1
                if rule is None:
                    unexplained.append((text, special, a, b))
                a = right
            if name == "minilm" and "\u1734" in text:
                rules["category: U+1734 was a nonspacing mark before Unicode 14"] += 1
                a = None
            out.append(hash_ids(a) if a is not None else 0)
    for text, special, a, b in unexplained[:10]:
        print("  no rule: %s special=%d\n    hf    %s\n    llama %s" % (ascii(text), special, a, b))
    print("%s: %d strings; differences: %s" % (name, len(strings), dict(rules) or "none"))
    if unexplained:
        sys.exit("%d differences of %s have no rule" % (len(unexplained), name))
    with open(os.path.join(HERE, name + ".ids"), "wb") as f:
        f.write(struct.pack("<I%dI" % len(out), len(strings), *out))


def show(name, index, models_dir, folder, strings):
    text = strings[index].decode("utf-8", "replace")
    v = Vocabulary(path_of(name, models_dir))
    for witness in (first_witness(name, v, folder), Llama(v.path)):
        for special in (False, True):
            print(name, ascii(text), type(witness).__name__, special, witness.ids(text, special))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-models", default="build/models")
    p.add_argument("-only")
    p.add_argument("-show", type=int)
    a = p.parse_args()
    strings = list(token_strings.strings())
    os.makedirs(os.path.join(HERE, "fixtures"), exist_ok=True)
    with open(os.path.join(HERE, "fixtures", "strings.bin"), "wb") as f:
        f.write(struct.pack("<I", len(strings)))
        for raw in strings:
            f.write(struct.pack("<H", len(raw)) + raw)
    with tempfile.TemporaryDirectory() as folder:
        for name in [a.only] if a.only else NAMES:
            if a.show is not None:
                show(name, a.show, a.models, folder, strings)
            else:
                make(name, a.models, folder, strings)


if __name__ == "__main__":
    main()
