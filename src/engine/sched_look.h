/* sched_look - where the pages of a prefix lie at this moment, by the name that it was given.
 *
 * Owns:      names of prefixes (struct api_prefix), what LOOK is answered with.
 * Not:       pages (kv_trie, kv_tier), who asks and why (serve/contexts).
 * Invariant: a place is told only if all pages that a request with this prefix would adopt are
 *            there or nearer; else it is NOWHERE, and some of it would be computed again. Looking
 *            counts as no use.
 * Thread:    engine thread.
 * Limits:    none of its own: a message's. Two walks through the tree at most, whatever is asked.
 */
#ifndef SHOAL_ENGINE_SCHED_LOOK_H
#define SHOAL_ENGINE_SCHED_LOOK_H

#include "api/api_frame.h"
#include "engine/sched.h"

/* Of the whole pages on the path to node; bytes counts a partly filled end, too. node KV_NODE_NONE,
 * or not one page is full: pages 0. */
void sched_look_name(struct sched *s, uint32_t node, struct api_prefix *out);
/* *places, in a: a byte of enum api_place for each. False: a is full. */
BASE_USE_RESULT bool sched_look(struct sched *s, const struct api_prefix *prefixes, uint32_t count,
                                struct arena *a, str *places);

#endif
