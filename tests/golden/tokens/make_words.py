#!/usr/bin/env python3
"""Golden words of every row of src/text/split_table.c, cut by Hugging Face's pre_tokenizers with
the patterns of the models' own tokenizer.json files (docs/models/tokenizers.md).

Writes words.bin from fixtures/strings.bin (make_tokens.py). Needs: tokenizers (README.md).

words.bin, per row:  u8 length, first name of the row; per block of BLOCK strings: u32 hash.
The hash is FNV-1a over the ends of all words of the block as little-endian u32.
"""
import os
import struct

from tokenizers import Regex, pre_tokenizers

import token_strings

HERE = os.path.dirname(os.path.abspath(__file__))
BLOCK = 100

C = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
OTHERS = r" ?[^\s\p{L}\p{N}]+"
L3 = C + "|" + WORD + r"|\p{N}{1,3}|" + OTHERS + r"[\r\n]*" + END
Q2 = C + "|" + WORD + r"|\p{N}|" + OTHERS + r"[\r\n]*" + END
Q35 = C + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + END
G2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|" + OTHERS + r"|\s+(?!\S)|\s+"


def cased(upper, lower, suffix):
    first = r"[^\r\n\p{L}\p{N}]?"
    return (first + upper + "*" + lower + "+" + suffix + "|" +
            first + upper + "+" + lower + "*" + suffix)


U, W = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
NOT_HAN = lambda c: c[:-1] + r"&&[^\p{Han}]]"
O200 = cased(U, W, C + "?") + r"|\p{N}{1,3}|" + OTHERS + r"[\r\n/]*" + END
TEKKEN = cased(U, W, "") + r"|\p{N}|" + OTHERS + r"[\r\n/]*" + END
KIMI = r"[\p{Han}]+|" + cased(NOT_HAN(U), NOT_HAN(W), C + "?") + r"|\p{N}{1,3}|" + OTHERS + \
    r"[\r\n]*" + END
DS3 = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""" + \
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + END
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
BLOOM = r" ?[^(\s|.,!?" + "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c" + ")]+"

# The first name of each row.
ROWS = {
    "llama3": [L3], "glm4": [L3], "dbrx": [L3], "qwen2": [Q2], "kormo": [Q2], "qwen35": [Q35],
    "ufakzeka": [Q2[len(C) + 1:]], "gpt-2": [G2], "jina-v1-en": [G2], "smollm": [r"\p{N}", G2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", G2, "[0-9][0-9][0-9]"],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DS3],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
    "gpt-4o": [O200], "kanana2": [O200], "minimax-m2": [O200], "tekken": [TEKKEN],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200], "gemma4": [r"[^\n]+|[\n]+"],
    "minicpm5": [r"\p{N}{1,3}", Q2.replace(r"|\p{N}|", r"|\p{N}+|")],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
                   r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "seed-coder": [C + "|" + WORD + r"|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+" + END],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"], "kimi-k2": [KIMI], "whitespace": [r"\S+"],
    "poro-chat": [BLOOM], "viking": [BLOOM, r"\p{N}"],
    "exaone-moe": [C + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|" + OTHERS +
                   r"[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", G2, r"\p{N}+", "[0-9][0-9][0-9]"],
}
# Of deepseek-llm the released file itself is asked (its list of letters is long): make_tokens.py.


def main():
    texts = [raw.decode("utf-8", "replace") for raw in token_strings.strings()]
    out = b""
    for name, patterns in ROWS.items():
        splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
        cut = pre_tokenizers.Sequence(splits)
        out += bytes([len(name)]) + name.encode()
        for block in range(0, len(texts), BLOCK):
            h = 0x811C9DC5
            for text in texts[block:block + BLOCK]:
                end = 0
                for word, _ in cut.pre_tokenize_str(text):
                    end += len(word.encode())
                    for b in struct.pack("<I", end):
                        h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
            out += struct.pack("<I", h)
        print(name, flush=True)
    with open(os.path.join(HERE, "words.bin"), "wb") as f:
        f.write(out)


if __name__ == "__main__":
    main()
