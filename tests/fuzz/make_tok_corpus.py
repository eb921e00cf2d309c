#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/tok: one small case per kind of tokenizer and of text (tok_fuzz.c has
the layout)."""
import os

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "tok")
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
TEXT = "<|im_end|>Hello  world's 12345\n\n caf\u00e9 e\u0301\u0316 \u4e2d\u6587 \U0001f642".encode()


def case(name, kind, pre, flags, tokens, merges, text, charsmap=b""):
    out = bytes([kind, pre, flags, len(tokens)])
    for token, type_, score in tokens:
        token = token.encode() if isinstance(token, str) else token
        out += bytes([type_, score + 128, len(token)]) + token
    out += bytes([len(merges)])
    for merge in merges:
        out += bytes([len(merge.encode())]) + merge.encode()
    if flags & 16:
        out += bytes([(len(charsmap) + 3) // 4]) + charsmap
    with open(os.path.join(OUT, name + ".bin"), "wb") as f:
        f.write(out + text)


def main():
    os.makedirs(OUT, exist_ok=True)
    chat = [("<|im_end|>", CONTROL, 0), ("<tool>", USER, 0), ("he", NORMAL, 0), ("ll", NORMAL, 0),
            ("hell", NORMAL, 0), ("\u0120w", NORMAL, 0)]
    merges = ["h e", "l l", "he ll", "\u0120 w", "x y"]
    for pre in range(0, 26, 3):
        case("bpe_pre_%02d" % pre, 0, pre, 5, chat, merges, TEXT)
    case("bpe_bos_untrusted", 0, 2, 14, chat, merges, TEXT)
    case("bpe_without_bytes", 0, 2, 0, chat, merges, TEXT)
    case("bpe_broken_utf8", 0, 2, 5, chat, merges,
         b"a\xff\xe2\x82<|im_end|>\xf0\x9f\x98\xed\xa0\x80b")
    case("bpe_long_word", 0, 2, 4, chat, merges, b"hell" * 40)
    case("bpe_bad_merge", 0, 2, 4, chat, ["nothing"], TEXT)
    pieces = [("<unk>", UNKNOWN, 0), ("<s>", CONTROL, 0), ("\u2581", NORMAL, -1), ("a", NORMAL, -2),
              ("\u2581a", NORMAL, -3), ("ab", NORMAL, -4), ("  ", USER, 0), ("<0x0A>", BYTE, 0),
              ("<0xC3>", BYTE, 0), ("<0x>", BYTE, 0), ("caf", NORMAL, -9), ("f\u00e9", NORMAL, -9)]
    case("spm", 1, 0, 1, pieces, [], TEXT + b"  ab a\xe2\x96\x81b")
    case("spm_bos", 1, 0, 11, pieces, [], b"<s> a a a aab " * 6)
    case("gemma4", 2, 0, 1, pieces, ["\u2581 a", "c a", "ca f"], TEXT + b"\n\n\n a")
    words = [("[UNK]", UNKNOWN, 0), ("[CLS]", CONTROL, 0), ("[SEP]", CONTROL, 0),
             ("\u2581hello", NORMAL, 0), ("\u2581wo", NORMAL, 0), ("rl", NORMAL, 0),
             ("d", NORMAL, 0)]
    case("wpm", 3, 0, 3, words, [], TEXT + b" Hello WORLD, hello-world")
    case("unigram", 4, 0, 3, pieces, [], TEXT)
    case("unigram_charsmap", 4, 0, 19, pieces, [], TEXT,
         b"\x08\0\0\0" + b"\1\2\3\4\5\6\7\x08" + b"x\0yz\0\0\0\0")
    case("empty", 0, 0, 0, [], [], b"")


if __name__ == "__main__":
    main()
