/* small - vocabularies of a few dozen tokens, made in memory, for the tests of text.
 *
 * Owns:      the texts, types, scores and merges of one vocab_source.
 * Not:       opening it (tok_new).
 * Thread:    one.
 */
#ifndef SHOAL_TESTS_UNIT_TEXT_SMALL_H
#define SHOAL_TESTS_UNIT_TEXT_SMALL_H

#include "base/arena.h"
#include "text/tok.h"

#define SMALL_MAX 4096u

struct small {
    struct arena arena;
    struct vocab_source source;
    str tokens[SMALL_MAX], merges[SMALL_MAX];
    int32_t types[SMALL_MAX];
    float scores[SMALL_MAX];
};

void small_init(struct small *s, const char *model, const char *pre);
void small_deinit(struct small *s);
int32_t small_add(struct small *s, const char *text, enum vocab_type type, float score);
/* The 256 characters of GPT-2's table, or the 256 tokens "<0x00>" to "<0xFF>". */
void small_add_byte_level(struct small *s);
void small_add_bytes(struct small *s);
/* "left right": the merge, and the token "leftright". */
void small_merge(struct small *s, const char *merge);
struct tok *small_open(struct small *s);

/* Ids of text as content, in a static array, ended by -1. */
const int32_t *small_ids(struct tok *t, const char *text, bool special, bool add);
/* The same as texts of tokens, with '|' between: "a|b". */
const char *small_text(struct tok *t, const char *text, bool special, bool add);

#endif
