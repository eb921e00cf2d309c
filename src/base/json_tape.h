/* json_tape - how a parsed document lies in memory, for the files of json alone.
 *
 * Owns:      the layout of words and blocks, escapes, one step of a path.
 * Not:       the meaning of values (json), what may stand where (json_parse).
 * Invariant: one word per value or name, from the lowest bit: where in the body 32, size 28,
 *            escaped 1, kind 3. size is the length of a text as written, without quotes; of a
 *            container the words inside it, so that its next sibling is size + 1 further.
 *
 *     blocks: [2^13 words] [2^13 words] [...]
 *
 * Thread:    immutable after json_parse.
 * Limits:    `1,` has two bytes and "4 x body" leaves a value eight: so one word each, strings are
 *            unescaped only when asked for, and blocks take the place of growing by copies.
 */
#ifndef SHOAL_BASE_JSON_TAPE_H
#define SHOAL_BASE_JSON_TAPE_H

#include "base/json.h"

#define JSON_TAPE_BITS 13
#define JSON_TAPE_WORDS ((uint32_t)1 << JSON_TAPE_BITS)

struct json_tape {
    str body;
    uint64_t **blocks;
    uint32_t count;
};

static inline uint64_t json_tape_word(enum json_kind kind, size_t where, size_t size, bool escaped)
{
    return (uint64_t)kind << 61 | (uint64_t)escaped << 60 | (uint64_t)size << 32 | where;
}

static inline uint64_t json_tape_at(const struct json_tape *t, uint32_t at)
{
    return t->blocks[at >> JSON_TAPE_BITS][at & (JSON_TAPE_WORDS - 1)];
}

static inline enum json_kind json_tape_kind(uint64_t w) { return (enum json_kind)(w >> 61); }
static inline bool json_tape_escaped(uint64_t w) { return w >> 60 & 1u; }
static inline uint32_t json_tape_size(uint64_t w) { return (uint32_t)(w >> 32) & 0xfffffffu; }

/* Text of a scalar as written, without quotes. */
static inline str json_tape_text(const struct json_tape *t, uint64_t w)
{
    return (str){t->body.p + (uint32_t)w, json_tape_size(w)};
}

/* Words to the next sibling. */
static inline uint32_t json_tape_span(uint64_t w)
{
    return json_tape_kind(w) >= JSON_KIND_ARRAY ? json_tape_size(w) + 1 : 1;
}

/* Value of four hex digits or -1. */
int json_tape_hex4(const char *p);
/* The first character of a string's text as written, which the parser has checked: its bytes to
 * out, the bytes it takes in the text as answer. */
size_t json_tape_unescape(str raw, char out[4], size_t *out_len);
/* ".name", "name" for the first, or ["odd name"]; key as written. */
void json_tape_add_key(struct buf *out, str key, bool is_first);

#endif
