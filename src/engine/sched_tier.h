/* sched_tier - what goes to the tier and when, and prefixes that come back from it.
 *
 * Owns:      the line of nodes to be written, the restore under way.
 * Not:       where bytes lie (kv_tier), which nodes there are (kv_trie), admission (sched_room).
 * Invariant: what is restored goes into the tree like any computed prefix, page by page from the
 *            front, and only there a request finds it; a restore holds no page between steps. One
 *            restore runs at a time; who waits for it or for its turn waits in the line, and goes
 *            on with what is there whatever becomes of it. A node is looked at once for writing;
 *            a page that an eviction drops is written then, if it was not.
 *
 *     end of turn, full pool --nodes--> line --copy, a few a step--> kv_tier
 *     prompt: tree | tier | to compute       reads ahead <= SCHED_TIER_AHEAD pages
 *             ==== | ==== --> tree
 *
 * Thread:    engine thread; it never waits for the disk, and beside running sequences takes about
 *            1/20 of it, n/20 while n wait for pages, at most 3/5.
 * Limits:    the line: twice the tree's nodes; one restore, of a context's length.
 */
#ifndef SHOAL_ENGINE_SCHED_TIER_H
#define SHOAL_ENGINE_SCHED_TIER_H

#include "engine/seq.h"
#include "kv/kv_tier.h"
#include "kv/kv_trie.h"
#include "tensor/backend.h"

#define SCHED_TIER_AHEAD 32u

struct sched_tier_options {
    struct kv_tier *tier; /* NULL: none; then nothing here does anything */
    struct kv_trie *trie;
    struct kv_pool *pool;
    const struct kv_layout *layout;
    const struct backend *backend;
    struct device *device;
    uint32_t pages_max;   /* of a sequence */
    struct mem *mem;
    struct chrono clock;
};

/* One page of every group, of the path that is being looked at. */
struct sched_tier_level {
    struct kv_key key;
    uint8_t in_trie, in_tier; /* bits of groups */
    bool is_public;
};

struct sched_tier_path {
    struct sched_tier_level *levels; /* [pages_max] */
    uint32_t count;  /* levels that can be there together with what their last token sees */
    uint32_t known;  /* ... that the tree alone gives */
    uint64_t bytes;  /* to be read for the rest */
};

struct sched_tier_ahead { /* a level on its way */
    uint32_t level;
    uint8_t wanted, got; /* bits of groups */
    bool is_broken;      /* it will never be whole */
    uint32_t tickets[KV_GROUPS_MAX];
    const void *bytes[KV_GROUPS_MAX];
};

struct sched_tier_stats {
    uint64_t restored_tokens, restores, lost, skipped; /* skipped: computing was faster */
};

struct sched_tier {
    struct sched_tier_options o;
    struct sched_tier_path look, path; /* path: of the restore under way */
    struct seq *restoring;       /* its request may end before it: NULL then */
    bool is_restoring, is_cut;         /* is_cut: no further level is asked for */
    bool is_stuck;                     /* the disk does not answer: nobody waits for it */
    int64_t progress_ns, rest_until_ns;
    uint32_t next;                     /* level to ask for */
    struct sched_tier_ahead ahead[SCHED_TIER_AHEAD]; /* from ahead_first on, by level */
    uint32_t ahead_first, ahead_count;
    str scope;
    int32_t *ids;        /* [pages_max * 32] of the path */
    char *scope_bytes;
    uint32_t *nodes;     /* [pages_max] */
    uint32_t *pages[KV_GROUPS_MAX];
    uint32_t *line;      /* ring of nodes to write */
    uint32_t line_first, line_count, line_max;
    uint32_t refusals;
    bool is_high;        /* the pool was full beyond the mark */
    struct sched_tier_stats stats;
};

BASE_USE_RESULT bool sched_tier_init(struct sched_tier *t, const struct sched_tier_options *o,
                                     struct err *e);
void sched_tier_deinit(struct sched_tier *t); /* gives back what a restore holds */

/* What came back since goes into the tree; a few pages of the line are copied. is_idle: nobody else
 * wants the thread. evict makes room for pages in the pool. */
struct sched_tier_turn {
    bool is_idle;
    uint32_t waiting; /* requests that wait for a restore, or for its turn */
    int64_t now_ns;
    bool (*evict)(void *ctx, uint32_t group);
    void *ctx;
};
void sched_tier_turn(struct sched_tier *t, const struct sched_tier_turn *turn);

/* Whether a restore waits for this thread or the disk. */
static inline bool sched_tier_is_busy(const struct sched_tier *t) { return t->is_restoring; }

/* Whether q should wait for pages from the tier: it will be asked again. Starts what is worth it:
 * reading beats computing, by what both were measured to take. prefill: tokens/s, 0: not known. */
BASE_USE_RESULT bool sched_tier_waits(struct sched_tier *t, struct seq *q, double prefill);
/* q is freed or wants no more. */
void sched_tier_forget(struct sched_tier *t, const struct seq *q);

/* The path to node was inserted or used; is_end: of a turn. Long ones are written early. */
void sched_tier_keep(struct sched_tier *t, uint32_t node, bool is_end);
/* Everything in the tree that is not safe yet is written, for at most so long. May block. */
void sched_tier_flush(struct sched_tier *t, int64_t timeout_ms);

#endif
