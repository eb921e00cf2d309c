/* kv_pool - who holds which page of attention memory.
 *
 * Owns:      reference counts, the free pages of each group, copies that the next step has to make.
 * Not:       the bytes (backend.kv_init), which tokens a page holds (engine/seq, kv_trie).
 * Invariant: a page has a reference per holder: sequences, trie nodes, waiting copies. Only a page
 *            with exactly one holder may be written to; kv_pool_own makes it so. A copy keeps its
 *            source until the step that makes it is submitted, and goes away with its target.
 *
 *     group 0 (all layers without a window)   [ 2 | 1 | 0 | 0 | 1 ]   references
 *     group 1 (window 512)                    [ 1 | 1 | 0 ]           free: a stack, last in first
 *
 * Thread:    engine thread.
 * Limits:    pages per group and waiting copies are fixed at init; alloc, copy and own refuse.
 */
#ifndef SHOAL_KV_KV_POOL_H
#define SHOAL_KV_KV_POOL_H

#include "base/mem.h"
#include "tensor/kv_view.h"

struct kv_pool_group {
    uint32_t *refs; /* [pages] */
    uint32_t *free; /* [free_count] page numbers; the last one goes next */
    uint32_t *cached; /* [pages] how many of the holders are nodes of the trie */
    uint32_t pages, free_count;
    uint32_t spare_count; /* pages that only the trie holds: evictions free them */
};

struct kv_pool {
    struct kv_pool_group groups[KV_GROUPS_MAX];
    uint32_t groups_count;
    struct kv_copy *copies; /* for struct step, in this order */
    uint32_t copies_count, copies_max;
};

/* pages[group] pages each, all free; arrays come from m and live as long as it. */
BASE_USE_RESULT bool kv_pool_init(struct kv_pool *p, const uint32_t *pages, uint32_t groups_count,
                                  uint32_t copies_max, struct mem *m, struct err *e);

/* A free page with undefined content, held once by the caller; or KV_PAGE_NONE. Pages that were
 * used before go first, so that memory which was never touched stays untouched. */
uint32_t kv_pool_alloc(struct kv_pool *p, uint32_t group);
void kv_pool_ref(struct kv_pool *p, uint32_t group, uint32_t page);
/* Gives back one reference; the last one frees the page. */
void kv_pool_unref(struct kv_pool *p, uint32_t group, uint32_t page);

/* A new page, held by the caller, that the next step fills with what `page` holds: the begin of a
 * partly equal page. KV_PAGE_NONE: no free page, or no room for the copy. */
uint32_t kv_pool_copy(struct kv_pool *p, uint32_t group, uint32_t page);
/* The caller holds page and wants to write to it. Nobody else does: page itself. Else a copy, to
 * which the caller's reference moves; KV_PAGE_NONE (nothing has changed) if there is no room. */
uint32_t kv_pool_own(struct kv_pool *p, uint32_t group, uint32_t page);
/* The step that makes the copies was submitted: their sources are released. */
void kv_pool_copied(struct kv_pool *p);

/* As ref and unref, for a node of the trie. */
void kv_pool_ref_cached(struct kv_pool *p, uint32_t group, uint32_t page);
void kv_pool_unref_cached(struct kv_pool *p, uint32_t group, uint32_t page);
/* Only the trie holds it. */
static inline bool kv_pool_is_spare(const struct kv_pool *p, uint32_t group, uint32_t page)
{
    const struct kv_pool_group *g = &p->groups[group];
    return g->cached[page] > 0 && g->refs[page] == g->cached[page];
}
/* Pages that are free, or would be after evicting all that only the trie holds. */
static inline uint32_t kv_pool_spare(const struct kv_pool *p, uint32_t group)
{
    return p->groups[group].free_count + p->groups[group].spare_count;
}

static inline uint32_t kv_pool_refs(const struct kv_pool *p, uint32_t group, uint32_t page)
{
    return p->groups[group].refs[page];
}
static inline uint32_t kv_pool_free(const struct kv_pool *p, uint32_t group)
{
    return p->groups[group].free_count;
}
static inline uint32_t kv_pool_used(const struct kv_pool *p, uint32_t group)
{
    return p->groups[group].pages - p->groups[group].free_count;
}

#endif
