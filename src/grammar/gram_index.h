/* gram_index - a vocabulary laid out for masks: which tokens begin alike, which are plain text.
 *
 * Owns:      the tree of all tokens' bytes, the tree of what follows the plain beginning of a
 *            token, the sets of plain tokens.
 * Not:       grammars (gram), masks of a state (gram_mask).
 * Invariant: a plain byte may stand in a JSON string as it is; a plain token is whole characters of
 *            such. In free text all plain tokens are allowed at once, and of the others only what
 *            follows their plain beginning decides: a few thousand steps less per mask.
 *            Control tokens are in no tree.
 *
 *     all:   " the" -> " there" ...       tails:  `name":` is 4 characters and the tail `":`
 *     nodes in depth first order: {byte, depth, end}: what does not fit is skipped at once
 *
 * Thread:    immutable once made.
 * Limits:    those of the vocabulary.
 */
#ifndef SHOAL_GRAMMAR_GRAM_INDEX_H
#define SHOAL_GRAMMAR_GRAM_INDEX_H

#include "base/arena.h"
#include "text/vocab.h"

#define GRAM_INDEX_SHORT 16u /* plain tokens by length up to here */

struct gram_index_node {
    uint32_t end;          /* index behind the last node below this one */
    uint32_t first, count; /* tokens that end here */
    uint16_t depth;        /* 1: first byte */
    uint8_t byte;
};
struct gram_index_token {
    int32_t id;
    uint32_t chars; /* tails: characters before the tail */
};
struct gram_index_tree {
    struct gram_index_node *nodes;
    struct gram_index_token *tokens;
    uint32_t nodes_count, tokens_count;
};

struct gram_index {
    struct arena arena;
    const struct vocab *vocab;
    uint32_t words;    /* of a mask */
    uint32_t len_max;  /* bytes of the longest token */
    struct gram_index_tree all, tails;
    const uint32_t *plain; /* mask */
    const uint32_t *plain_short[GRAM_INDEX_SHORT + 1]; /* at most so many characters */
};

/* v must outlive it. NULL: no memory. */
struct gram_index *gram_index_new(const struct vocab *v);
void gram_index_free(struct gram_index *x); /* NULL is fine */

#endif
