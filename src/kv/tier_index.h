/* tier_index - which page lies where: from a prefix to its buffer and its place in a file.
 *
 * Owns:      the entries, the map from key to entry, a list by last use for each group.
 * Not:       buffers and places themselves (kv_tier), bytes of a file (tier_format).
 * Invariant: an entry is one page of one group. A list has them from the one used longest ago; a
 *            path is used deepest first, so that a child goes before its parent. `children` is a
 *            hint: an entry that came after its child knows of none until tier_index_sort.
 * Thread:    engine thread.
 * Limits:    entries_max, fixed at init.
 */
#ifndef SHOAL_KV_TIER_INDEX_H
#define SHOAL_KV_TIER_INDEX_H

#include "base/map.h"
#include "base/mem.h"
#include "kv/tier_format.h"
#include "tensor/kv_view.h"

#define TIER_INDEX_NONE UINT32_MAX

struct tier_id { /* key of the map: no padding */
    struct kv_key key;
    uint32_t group;
};

struct tier_entry {
    struct tier_id id;
    struct kv_key parent; /* all zero at depth 1 */
    uint32_t depth, children;
    uint32_t buffer, place; /* NONE: not there; numbers of whoever fills them in */
    uint32_t older, newer;  /* newer is the next free one while it is not used */
    uint64_t used, used_s, sum;
    bool is_written;        /* the place holds it */
    bool is_touched;        /* used since its record was written */
    bool is_doomed;         /* goes when its order has come back: nobody finds it any more */
    bool is_spared;         /* by the next kv_tier_forget_all */
};

struct tier_index {
    struct tier_entry *entries;
    uint32_t entries_max, entries_used, count, free; /* used: ever; free: a list by newer */
    uint32_t oldest[KV_GROUPS_MAX], newest[KV_GROUPS_MAX];
    struct map by_id;
    uint64_t clock;
};

BASE_USE_RESULT bool tier_index_init(struct tier_index *x, uint32_t entries_max, struct mem *m,
                                     struct err *e);
void tier_index_deinit(struct tier_index *x);

/* NONE: no such page. */
uint32_t tier_index_find(const struct tier_index *x, const struct kv_key *key, uint32_t group);
/* The newest one of its group, without buffer and place; the page is not there yet. NONE: no entry
 * is free. */
uint32_t tier_index_add(struct tier_index *x, const struct tier_id *id,
                        const struct kv_key *parent, uint32_t depth);
void tier_index_remove(struct tier_index *x, uint32_t entry);
/* It was used: the newest one of its group. */
void tier_index_use(struct tier_index *x, uint32_t entry);

/* Of the 16 leaves of a group used longest ago that lie in a file and in no buffer the one that
 * saves least; NONE: there is none. */
uint32_t tier_index_worst(const struct tier_index *x, uint32_t group);
/* After a load: by used_s, and who is whose child. Nothing was removed yet. ERR_MEMORY. */
BASE_USE_RESULT bool tier_index_sort(struct tier_index *x, struct err *e);

#endif
