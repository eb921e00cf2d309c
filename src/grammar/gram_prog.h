/* gram_prog - the program of a gram_dfa: what a pattern becomes before there are states.
 *
 * Owns:      reading a pattern into a program of byte ranges.
 * Not:       states and tables (gram_dfa).
 * Invariant: a node's ways lead to nodes made before it, but for the way back of a loop; so one
 *            pass in order of making finds what can be reached at the end.
 *
 *     a+   loop: SPLIT --> RANGE a --> loop
 *                   \--> what follows
 *
 * Thread:    its builder's; then immutable.
 * Limits:    GRAM_DFA_NODES_MAX nodes, GRAM_DFA_NESTING_MAX groups in groups.
 */
#ifndef SHOAL_GRAMMAR_GRAM_PROG_H
#define SHOAL_GRAMMAR_GRAM_PROG_H

#include "base/buf.h"
#include "base/err.h"

enum gram_prog_kind {
    GRAM_PROG_ACCEPT, GRAM_PROG_RANGE, GRAM_PROG_SPLIT, GRAM_PROG_BEGIN, GRAM_PROG_END,
};
struct gram_prog_node {
    uint8_t kind, low, high;
    bool ends;       /* accepts if the text ends here */
    uint32_t out, other;
    uint32_t dist;   /* fewest code points until it accepts, or GRAM_DFA_FAR */
};

/* One expression; its nodes are first .. last. */
struct gram_prog_part {
    uint32_t start, first, last, open; /* open: the loop behind a search's match, or GRAM_DFA_FAR */
};

struct gram_prog {
    struct buf nodes;
    uint32_t emits; /* pieces of trees written so far */
};
static inline struct gram_prog_node *gram_prog_at(const struct gram_prog *p, uint32_t i)
{
    return (struct gram_prog_node *)(void *)p->nodes.p + i;
}
static inline uint32_t gram_prog_count(const struct gram_prog *p)
{
    return (uint32_t)(p->nodes.len / sizeof(struct gram_prog_node));
}

/* Appends a pattern to p. Errors as gram_dfa_add. */
BASE_USE_RESULT bool gram_prog_add(struct gram_prog *p, str pattern, bool is_search,
                                   struct gram_prog_part *out, struct err *e);

#endif
