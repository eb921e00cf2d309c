#include "kv/tier_index.h"

#include <stdlib.h>

#define TIER_INDEX_LOOK 16u /* oldest leaves that an eviction chooses from, as kv_trie */

bool tier_index_init(struct tier_index *x, uint32_t entries_max, struct mem *m, struct err *e)
{
    *x = (struct tier_index){.entries_max = entries_max, .free = TIER_INDEX_NONE};
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        x->oldest[g] = x->newest[g] = TIER_INDEX_NONE;
    x->entries = mem_new_array(m, "tier", entries_max, sizeof *x->entries, e);
    if (!x->entries)
        return false;
    map_init(&x->by_id, entries_max);
    return true;
}

void tier_index_deinit(struct tier_index *x)
{
    map_deinit(&x->by_id); /* the rest is the model's memory */
}

/* --- the lists ------------------------------------------------------------------------------ */

static void tier_index_unlist(struct tier_index *x, uint32_t i)
{
    struct tier_entry *n = &x->entries[i];
    uint32_t *oldest = &x->oldest[n->id.group], *newest = &x->newest[n->id.group];
    *(n->older == TIER_INDEX_NONE ? oldest : &x->entries[n->older].newer) = n->newer;
    *(n->newer == TIER_INDEX_NONE ? newest : &x->entries[n->newer].older) = n->older;
}

static void tier_index_list(struct tier_index *x, uint32_t i)
{
    struct tier_entry *n = &x->entries[i];
    uint32_t *oldest = &x->oldest[n->id.group], *newest = &x->newest[n->id.group];
    n->older = *newest;
    n->newer = TIER_INDEX_NONE;
    *(*newest == TIER_INDEX_NONE ? oldest : &x->entries[*newest].newer) = i;
    *newest = i;
    n->used = ++x->clock;
}

void tier_index_use(struct tier_index *x, uint32_t entry)
{
    tier_index_unlist(x, entry);
    tier_index_list(x, entry);
}

/* --- entries -------------------------------------------------------------------------------- */

uint32_t tier_index_find(const struct tier_index *x, const struct kv_key *key, uint32_t group)
{
    struct tier_id id = {.group = group, .key = *key};
    return (uint32_t)map_value(&x->by_id, str_view(&id, sizeof id), TIER_INDEX_NONE);
}

static struct tier_entry *tier_index_parent(struct tier_index *x, const struct tier_entry *n)
{
    uint32_t parent = tier_index_find(x, &n->parent, n->id.group);
    return parent == TIER_INDEX_NONE ? NULL : &x->entries[parent];
}

uint32_t tier_index_add(struct tier_index *x, const struct tier_id *id,
                        const struct kv_key *parent, uint32_t depth)
{
    bool is_new = x->free == TIER_INDEX_NONE;
    uint32_t i = is_new ? x->entries_used : x->free;
    if (i == x->entries_max)
        return TIER_INDEX_NONE;
    struct tier_entry *n = &x->entries[i];
    uint32_t next = is_new ? TIER_INDEX_NONE : n->newer;
    *n = (struct tier_entry){.id = *id, .parent = *parent, .depth = depth,
                             .buffer = TIER_INDEX_NONE, .place = TIER_INDEX_NONE};
    if (!map_put(&x->by_id, str_view(&n->id, sizeof n->id), i)) {
        n->newer = next;
        return TIER_INDEX_NONE;
    }
    x->free = next;
    x->entries_used += is_new;
    struct tier_entry *above = tier_index_parent(x, n);
    if (above)
        above->children++;
    tier_index_list(x, i);
    x->count++;
    return i;
}

void tier_index_remove(struct tier_index *x, uint32_t entry)
{
    struct tier_entry *n = &x->entries[entry], *above = tier_index_parent(x, n);
    if (above && above->children)
        above->children--;
    map_delete(&x->by_id, str_view(&n->id, sizeof n->id));
    tier_index_unlist(x, entry);
    n->is_written = false;
    n->newer = x->free;
    x->free = entry;
    x->count--;
}

/* --- who goes ------------------------------------------------------------------------------- */

/* What it saves: the work of its tokens (attention makes deep pages dearer) by the bytes it takes,
 * the less the longer nobody asked. Bytes are those of the group, the same for all compared. */
static double tier_index_worth(const struct tier_index *x, const struct tier_entry *n)
{
    double age = (double)(x->clock - n->used) + 1;
    return (1 + n->depth / 256.0) / age;
}

uint32_t tier_index_worst(const struct tier_index *x, uint32_t group)
{
    uint32_t worst = TIER_INDEX_NONE, looked = 0;
    double least = 0;
    for (uint32_t i = x->oldest[group]; i != TIER_INDEX_NONE && looked < TIER_INDEX_LOOK;
         i = x->entries[i].newer) {
        const struct tier_entry *n = &x->entries[i];
        if (!n->is_written || n->children || n->buffer != TIER_INDEX_NONE)
            continue;
        double worth = tier_index_worth(x, n);
        if (worst == TIER_INDEX_NONE || worth < least) {
            worst = i;
            least = worth;
        }
        looked++;
    }
    return worst;
}

/* --- after a load --------------------------------------------------------------------------- */

struct tier_index_age { uint64_t used_s; uint32_t depth, entry; };

/* Oldest first; of one time the deepest first. */
static int tier_index_compare(const void *a, const void *b)
{
    const struct tier_index_age *x = a, *y = b;
    if (x->used_s != y->used_s)
        return x->used_s < y->used_s ? -1 : 1;
    if (x->depth != y->depth)
        return x->depth > y->depth ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* Files were read in any order: entries that came before their parents were not counted. */
bool tier_index_sort(struct tier_index *x, struct err *e)
{
    struct tier_index_age *ages = calloc((size_t)x->entries_used + 1, sizeof *ages);
    if (!ages)
        return err_set(e, ERR_MEMORY, "tier: no memory for %u entries", x->entries_used);
    for (uint32_t i = 0; i < x->entries_used; i++) {
        ages[i] = (struct tier_index_age){x->entries[i].used_s, x->entries[i].depth, i};
        x->entries[i].children = 0;
    }
    qsort(ages, x->entries_used, sizeof *ages, tier_index_compare);
    for (uint32_t k = 0; k < x->entries_used; k++) {
        struct tier_entry *above = tier_index_parent(x, &x->entries[ages[k].entry]);
        if (above)
            above->children++;
        tier_index_use(x, ages[k].entry);
    }
    free(ages);
    return true;
}
