/* output_scan - JSON as a model writes it, byte by byte: is it whole, where does it end?
 *
 * Owns:      the automaton of one JSON value and its nesting; repair of what can only be meant one
 *            way: a control character inside a string becomes its escape, a backslash before a
 *            letter that is no escape is doubled.
 * Not:       what members mean (output_json), whole documents (base/json).
 * Invariant: what is written in all depends on the bytes alone, not on the cuts between them. After
 *            OUTPUT_SCAN_DONE the bytes written are one JSON value that base/json accepts.
 *
 *     {"a": [1, "x"]}          depth 1 behind '{', 2 behind '['
 *       ^key    ^string        `at` says what the next byte belongs to
 *
 * Thread:    plain data.
 * Limits:    OUTPUT_SCAN_DEPTH_MAX nested arrays and objects.
 */
#ifndef SHOAL_CHAT_OUTPUT_SCAN_H
#define SHOAL_CHAT_OUTPUT_SCAN_H

#include "base/buf.h"

#define OUTPUT_SCAN_DEPTH_MAX 256

enum output_scan_at {
    OUTPUT_SCAN_VALUE,      /* a value must follow */
    OUTPUT_SCAN_FIRST,      /* behind '[': a value or ']' */
    OUTPUT_SCAN_FIRST_KEY,  /* behind '{': a key or '}' */
    OUTPUT_SCAN_KEY,        /* behind ',' in an object */
    OUTPUT_SCAN_COLON,
    OUTPUT_SCAN_NEXT,       /* behind a value: ',' or the end of its container */
    OUTPUT_SCAN_IN_KEY, OUTPUT_SCAN_IN_STRING,
    OUTPUT_SCAN_IN_NUMBER, OUTPUT_SCAN_IN_WORD,
    OUTPUT_SCAN_DONE, OUTPUT_SCAN_BAD
};

struct output_scan {
    enum output_scan_at at;
    uint32_t depth;
    uint64_t is_object[OUTPUT_SCAN_DEPTH_MAX / 64]; /* per depth */
    uint8_t escape;    /* in a string: 1 behind '\', then how many digits of \u came, + 2 */
    char digits[4];    /* of \u */
    uint8_t number;    /* where in the number grammar */
    uint8_t word_len;
    const char *word;  /* "true" */
};

static inline void output_scan_init(struct output_scan *s) { *s = (struct output_scan){0}; }

/* Takes one byte and appends what it stands for to out (NULL: nothing is written). True: taken.
 * False: the value ended before this byte (a number at top level: at is DONE), or the byte cannot
 * stand here (BAD); it was not taken. Blanks before the value are taken and not written. */
bool output_scan_byte(struct output_scan *s, char byte, struct buf *out);
/* No byte follows: a number at top level is then whole. True if the value is. */
bool output_scan_end(struct output_scan *s);

#endif
