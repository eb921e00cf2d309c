#include "engine/sched_look.h"

#include <string.h>

_Static_assert(API_PREFIX_KEY_SIZE == sizeof(struct kv_key), "a name is a key of the tier");

/* Of all groups, what a request behind so many tokens sees. */
static uint64_t sched_look_bytes(const struct sched *s, uint32_t tokens)
{
    const struct kv_layout *l = s->o.layout;
    uint32_t pages = (tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < l->groups_count; g++) {
        uint32_t first = kv_trie_first_seen(l, g, tokens);
        bytes += (uint64_t)(pages > first ? pages - first : 0) * l->page_size[g];
    }
    return bytes;
}

void sched_look_name(struct sched *s, uint32_t node, struct api_prefix *out)
{
    *out = (struct api_prefix){.pages = 0};
    if (node == KV_NODE_NONE)
        return;
    const struct kv_node *n = &s->o.trie->nodes[node];
    uint64_t bytes = sched_look_bytes(s, (n->depth - 1) * KV_PAGE_TOKENS + n->count);
    out->bytes = bytes;
    if (n->count < KV_PAGE_TOKENS)
        node = n->parent;
    if (node == KV_NODE_NONE)
        return;
    out->pages = s->o.trie->nodes[node].depth;
    memcpy(out->key, kv_trie_key(s->o.trie, node), sizeof out->key);
}

/* --- one prefix, from its end up ----------------------------------------------------------- */

/* As long as there is a node the tree says what stands above; else the tier does; where neither
 * knows, the tree is searched once for what the tier knew last. */
struct sched_look_at {
    struct kv_key key;
    uint32_t depth, node; /* node KV_NODE_NONE: not in the tree, or not searched yet */
    uint32_t same;        /* another one that looks for this key */
    uint32_t first[KV_GROUPS_MAX]; /* page that the next token sees first */
    enum api_place place; /* farthest so far */
    bool is_done;
};

struct sched_look {
    struct sched *s;
    struct sched_look_at *all; /* [count] */
    uint32_t count;
    uint8_t *depths; /* [depth_max + 1] where somebody looks for a node */
    uint32_t depth_max, whole; /* whole: a group without a window */
};

static enum api_place sched_look_page(const struct sched *s, const struct sched_look_at *at,
                                      uint32_t group)
{
    if (at->node != KV_NODE_NONE && s->o.trie->nodes[at->node].pages[group] != KV_PAGE_NONE)
        return API_PLACE_DEVICE;
    switch (s->o.tier ? kv_tier_where(s->o.tier, &at->key, group) : KV_TIER_NOWHERE) {
    case KV_TIER_IN_RAM:
        return API_PLACE_RAM;
    case KV_TIER_ON_DISK:
        return API_PLACE_SSD;
    case KV_TIER_NOWHERE:
        break;
    }
    return API_PLACE_NOWHERE;
}

/* Its pages at this depth. */
static void sched_look_level(const struct sched_look *x, struct sched_look_at *at)
{
    for (uint32_t g = 0; g < x->s->o.layout->groups_count; g++) {
        if (at->depth <= at->first[g])
            continue;
        enum api_place place = sched_look_page(x->s, at, g);
        at->place = place > at->place ? place : at->place;
    }
    at->is_done = at->depth == 1 || at->place == API_PLACE_NOWHERE;
}

/* False: nobody knows what stands there. */
static bool sched_look_up(const struct sched_look *x, struct sched_look_at *at)
{
    at->depth--;
    if (at->node == KV_NODE_NONE)
        return kv_tier_above(x->s->o.tier, &at->key, x->whole, &at->key);
    at->node = x->s->o.trie->nodes[at->node].parent;
    at->key = *kv_trie_key(x->s->o.trie, at->node);
    return true;
}

/* Until it is done, or the tree has to be searched for its key. */
static void sched_look_climb(const struct sched_look *x, struct sched_look_at *at)
{
    const struct sched *s = x->s;
    bool is_known = at->node != KV_NODE_NONE ||
                    (s->o.tier && kv_tier_where(s->o.tier, &at->key, x->whole) != KV_TIER_NOWHERE);
    while (is_known && !at->is_done) {
        sched_look_level(x, at);
        if (at->is_done || !sched_look_up(x, at))
            return;
        is_known = at->node != KV_NODE_NONE ||
                   kv_tier_where(s->o.tier, &at->key, x->whole) != KV_TIER_NOWHERE;
    }
}

/* --- all of them --------------------------------------------------------------------------- */

/* One walk through the tree for whatever is looked for. */
static void sched_look_search(const struct sched_look *x)
{
    struct kv_trie *t = x->s->o.trie;
    struct map wanted; /* key -> first of those that look for it */
    bool ok = true;
    memset(x->depths, 0, (size_t)x->depth_max + 1);
    map_init(&wanted, x->count);
    for (uint32_t i = 0; ok && i < x->count; i++) {
        struct sched_look_at *at = &x->all[i];
        str key = str_view(&at->key, sizeof at->key);
        if (at->is_done)
            continue;
        at->same = (uint32_t)map_value(&wanted, key, UINT32_MAX);
        x->depths[at->depth] = 1;
        ok = map_put(&wanted, key, i); /* no memory: not found, so nowhere */
    }
    for (uint32_t i = t->oldest; ok && wanted.count && i != KV_NODE_NONE; i = t->nodes[i].newer) {
        const struct kv_node *n = &t->nodes[i];
        if (n->count < KV_PAGE_TOKENS || n->depth > x->depth_max || !x->depths[n->depth])
            continue;
        str key = str_view(kv_trie_key(t, i), sizeof(struct kv_key));
        uint32_t k = (uint32_t)map_value(&wanted, key, UINT32_MAX);
        for (; k != UINT32_MAX; k = x->all[k].same)
            if (x->all[k].depth == n->depth) /* what a file says of it need not be true */
                x->all[k].node = i;
    }
    map_deinit(&wanted);
}

static void sched_look_begin(struct sched_look *x, const struct api_prefix *prefixes)
{
    const struct kv_layout *l = x->s->o.layout;
    while (x->whole < l->groups_count && l->window[x->whole])
        x->whole++;
    for (uint32_t i = 0; i < x->count; i++) {
        struct sched_look_at *at = &x->all[i];
        *at = (struct sched_look_at){.depth = prefixes[i].pages, .node = KV_NODE_NONE};
        memcpy(&at->key, prefixes[i].key, sizeof at->key);
        at->is_done = at->depth == 0 || at->depth > x->depth_max;
        at->place = at->is_done ? API_PLACE_NOWHERE : API_PLACE_DEVICE;
        for (uint32_t g = 0; g < l->groups_count && !at->is_done; g++)
            at->first[g] = kv_trie_first_seen(l, g, at->depth * KV_PAGE_TOKENS);
    }
}

bool sched_look(struct sched *s, const struct api_prefix *prefixes, uint32_t count,
                struct arena *a, str *places)
{
    struct sched_look x = {.s = s, .count = count};
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++)
        x.depth_max = (uint32_t)base_max(x.depth_max, s->o.limits.pages_max[g]);
    x.all = ARENA_ARRAY(a, struct sched_look_at, count + 1u);
    x.depths = ARENA_ARRAY(a, uint8_t, (size_t)x.depth_max + 1);
    char *out = arena_alloc_text(a, count + 1u);
    if (!x.all || !x.depths || !out)
        return false;
    sched_look_begin(&x, prefixes);
    for (int pass = 0; s->o.trie && pass < 2; pass++) { /* the tree's nodes lead to its root */
        sched_look_search(&x);
        for (uint32_t i = 0; i < count; i++)
            sched_look_climb(&x, &x.all[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        out[i] = (char)(x.all[i].is_done ? x.all[i].place : API_PLACE_NOWHERE);
    *places = str_view(out, count);
    return true;
}
