/* ring - the one fixed ring: a queue of equal items in memory that the caller gives.
 *
 * Owns:      positions only.
 * Not:       the items (caller's array of count_max items), waking anybody (thread has a queue).
 * Invariant: count <= count_max. Item i, counted from the oldest, is ring_at(r, i).
 *
 *     items: [ 5 | 6 | . | . | 2 | 3 | 4 ]      first = 4, count = 5
 *
 * Thread:    its owner's.
 * Limits:    count_max; ring_push refuses, ring_push_over drops the oldest.
 */
#ifndef SHOAL_BASE_RING_H
#define SHOAL_BASE_RING_H

#include <string.h>

#include "base/base.h"

struct ring {
    void *items;
    size_t item_size;
    uint32_t first, count, count_max;
};

static inline void ring_init(struct ring *r, void *items, size_t item_size, uint32_t count_max)
{
    must(count_max > 0 && item_size > 0);
    *r = (struct ring){.items = items, .item_size = item_size, .count_max = count_max};
}

/* The item at i counted from the oldest; i < count. */
static inline void *ring_at(const struct ring *r, uint32_t i)
{
    must(i < r->count);
    uint64_t at = ((uint64_t)r->first + i) % r->count_max;
    return (char *)r->items + at * r->item_size;
}

/* A new last item, content undefined, or NULL when full. */
static inline void *ring_push(struct ring *r)
{
    if (r->count == r->count_max)
        return NULL;
    r->count++;
    return ring_at(r, r->count - 1);
}

static inline void ring_drop(struct ring *r) /* the oldest; count > 0 */
{
    must(r->count > 0);
    r->first = (uint32_t)(((uint64_t)r->first + 1) % r->count_max);
    r->count--;
}

/* A new last item; the oldest goes when full. */
static inline void *ring_push_over(struct ring *r)
{
    if (r->count == r->count_max)
        ring_drop(r);
    return ring_push(r);
}

/* Copies the oldest to out and drops it; false when empty. */
static inline bool ring_pop(struct ring *r, void *out)
{
    if (r->count == 0)
        return false;
    memcpy(out, ring_at(r, 0), r->item_size);
    ring_drop(r);
    return true;
}

#endif
