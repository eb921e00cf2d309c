/* sched_pins - prefixes that stay in the pool until somebody says otherwise.
 *
 * Owns:      the pins by name, how much of the pool they may hold, room promised to those that are
 *            being computed.
 * Not:       what a pin means for pages (kv_trie), who may pin (serve/contexts), tokens (prompt).
 * Invariant: beside all pins a whole conversation fits the pool, so a pin never makes a request
 *            wait for ever. What was promised is there when the prefix is computed.
 *
 *     submit: enter --promised--> computed: put --> pinned --UNPIN: drop-->
 *                \--too much: "insufficient_storage"
 *
 * Thread:    engine thread.
 * Limits:    SCHED_PINS_MAX names; pages and nodes by pin_permille of the load.
 */
#ifndef SHOAL_ENGINE_SCHED_PINS_H
#define SHOAL_ENGINE_SCHED_PINS_H

#include "engine/seq.h"
#include "kv/kv_trie.h"

#define SCHED_PINS_MAX 8192u

struct sched_pins {
    struct kv_trie *trie; /* NULL: nothing is reused, so nothing can be pinned */
    struct kv_trie_pins most, promised;
    struct map by_name;   /* number -> node */
};

struct sched_pins_options {
    struct kv_trie *trie;
    uint32_t permille;                /* of the pool and of the tree's nodes */
    uint32_t whole[KV_GROUPS_MAX];    /* pages that one conversation may need */
};
void sched_pins_init(struct sched_pins *p, const struct sched_pins_options *o);
void sched_pins_deinit(struct sched_pins *p); /* the pins go with the tree */

/* Whether this job's prompt is to be pinned: PREFILL with PIN. */
bool sched_pins_wants(const struct job *j);
/* Promises room for it. False: "insufficient_storage" (always for a name; a prefix without one is
 * computed all the same and then not pinned), ERR_UNSUPPORTED, ERR_REQUEST (a name that is no
 * number). ids: its prompt. */
BASE_USE_RESULT bool sched_pins_enter(struct sched_pins *p, struct job *j, struct api_error *e);
/* It has been computed up to node: pinned under its name, in place of what had that name. False:
 * "insufficient_storage", the tree has lost its end. */
BASE_USE_RESULT bool sched_pins_put(struct sched_pins *p, const struct job *j, uint32_t node,
                                    struct api_error *e);
/* It ends, pinned or not: the promise is given back. */
void sched_pins_leave(struct sched_pins *p, struct job *j);
/* Unknown names are ignored. */
void sched_pins_drop(struct sched_pins *p, str name);

#endif
