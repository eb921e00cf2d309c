/* unicode - what tokenizers need to know of characters: repair, normal form C, classes, folding.
 *
 * Owns:      calling utf8proc; nobody else includes its header.
 * Not:       decoding UTF-8 (base/str), regular expressions (regex).
 * Invariant: what functions take is valid UTF-8 unless they say so; what they write always is.
 *            Every one is linear in its input, whatever the order of combining marks.
 * Thread:    any; pure functions over the caller's buffers.
 * Limits:    those of the caller's buffers.
 */
#ifndef SHOAL_TEXT_UNICODE_H
#define SHOAL_TEXT_UNICODE_H

#include "base/buf.h"
#include "base/str.h"

bool unicode_is_valid(str s); /* UTF-8 from end to end */

/* Appends s with each broken part as U+FFFD: one for the longest begun sequence that cannot be
 * completed, one for any other byte (as Python, W3C and Unicode 3.9 D93b have it). */
bool unicode_repair(str s, struct buf *out);

/* How many bytes of s (not empty) begin one UTF-8 sequence: 1 to 4. *is_whole: they are all of it.
 * Otherwise they are the longest broken part, which counts as one U+FFFD; if it reaches the end
 * of s, more bytes might still complete it, unless *is_dead. */
size_t unicode_sequence(str s, bool *is_whole, bool *is_dead);

/* Nothing in s can change under NFC: every character is below U+0300. */
bool unicode_is_plain(str s);
/* Appends NFC of s. scratch holds code points meanwhile: about 8 bytes per byte of s. False when
 * one of the two is full. */
bool unicode_nfc(str s, struct buf *scratch, struct buf *out);

/* Classes as bits; a character has exactly one. */
enum unicode_class {
    UNICODE_UPPER = 1,      /* \p{Lu} \p{Lt} */
    UNICODE_LOWER = 2,      /* \p{Ll} */
    UNICODE_CASELESS = 4,   /* \p{Lm} \p{Lo} */
    UNICODE_MARK = 8,       /* \p{M} */
    UNICODE_DIGIT = 16,     /* \p{Nd} */
    UNICODE_NUMERAL = 32,   /* \p{Nl} \p{No} */
    UNICODE_SPACE = 64,     /* White_Space, which is \s of the references; not U+180E */
    UNICODE_PUNCT = 128,    /* \p{P} */
    UNICODE_SYMBOL = 256,   /* \p{S} */
    UNICODE_REST = 512,     /* control, format, private, unassigned */
    UNICODE_LETTER = UNICODE_UPPER | UNICODE_LOWER | UNICODE_CASELESS,
    UNICODE_NUMBER = UNICODE_DIGIT | UNICODE_NUMERAL,
};
unsigned unicode_class(uint32_t code_point);
/* \w of the reference tokenizers: Alphabetic, \p{M}, \p{Nd}, \p{Pc}, numerals of Latin-1. */
bool unicode_is_word(uint32_t code_point);
bool unicode_is_han(uint32_t code_point); /* \p{Script=Han} */

/* For WordPiece, in BERT's sense of the words. */
bool unicode_is_punctuation(uint32_t code_point);
bool unicode_is_ideograph(uint32_t code_point);
bool unicode_is_control(uint32_t code_point);
/* Appends one character in lower case: two for U+0130. */
bool unicode_lower(uint32_t code_point, struct buf *out);
/* Appends its decomposed form without nonspacing marks, in lower case if asked for. */
bool unicode_fold(uint32_t code_point, bool lower, struct buf *out);

#endif
