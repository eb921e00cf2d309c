/* gram_mask - which tokens may come next, and what one of them does to a state.
 *
 * Owns:      the engine thread's cache: masks by reading, tables of large patterns, scratch.
 * Not:       grammars (gram), the vocabulary's trees (gram_index), drawing (engine/sampler).
 * Invariant: gram_mask_try is exact. gram_mask may allow too much, never too little: readings are
 *            looked at one by one, counters far from their limits as one, and a walk that has
 *            cost enough allows the rest by its first byte. So a mask has a price with a limit.
 *            What is cached depends on the reading alone, so results never depend on the cache.
 *
 *     state = readings --each--> canonical reading --hash--> mask in the cache, or a walk
 *
 * Thread:    engine thread.
 * Limits:    given at new: homes (grammars in use at once), bytes of masks; GRAM_MASK_TABLE_MAX
 *            bytes per large pattern.
 */
#ifndef SHOAL_GRAMMAR_GRAM_MASK_H
#define SHOAL_GRAMMAR_GRAM_MASK_H

#include "grammar/gram.h"
#include "grammar/gram_index.h"

#define GRAM_MASK_TABLE_MAX ((size_t)8 << 20)

struct gram_mask;

struct gram_mask_options {
    const struct gram_index *index; /* outlives the cache */
    uint32_t homes_max;             /* sequences with grammars at once */
    size_t masks_bytes;
};

/* NULL: no memory. */
struct gram_mask *gram_mask_new(const struct gram_mask_options *o);
void gram_mask_free(struct gram_mask *c); /* NULL is fine */

/* s becomes the start of g, which the cache keeps a reference to. Each open needs a close; what
 * was cached for g stays until its room is needed. False: ERR_LIMIT, ERR_MEMORY. */
BASE_USE_RESULT bool gram_mask_open(struct gram_mask *c, struct gram *g, struct gram_state *s,
                                     struct err *e);
void gram_mask_close(struct gram_mask *c, const struct gram_state *s);

/* Every token may be allowed: a mask would say nothing. */
bool gram_mask_is_free(const struct gram_state *s);
/* mask[words of the index]: bit 1 = token allowed; ends of a reply where it may end. s is on. */
void gram_mask(struct gram_mask *c, const struct gram_state *s, uint32_t *mask);
/* As gram_mask, but without a limit of cost and to the letter. For a draw that was refused. */
void gram_mask_exact(struct gram_mask *c, const struct gram_state *s, uint32_t *mask);
/* Whether the token may follow; next (not s) is where the reply is then. A token that ends replies
 * leaves the state. */
bool gram_mask_try(struct gram_mask *c, const struct gram_state *s, int32_t token,
              struct gram_state *next);
/* The same for bytes without a token: what another model had written. */
bool gram_mask_try_bytes(struct gram_mask *c, const struct gram_state *s, str bytes,
                    struct gram_state *next);
/* The reply may end here; it must, since nothing may follow. */
bool gram_mask_can_end(struct gram_mask *c, const struct gram_state *s);
bool gram_mask_is_done(struct gram_mask *c, const struct gram_state *s);

struct gram_mask_stats {
    uint64_t masks, hits, walked; /* readings asked for, found, nodes walked */
};
struct gram_mask_stats gram_mask_stats(const struct gram_mask *c);

#endif
