#include "kv/kv_trie.h"

#include <string.h>

#include "base/digest.h"

#define SCOPE_PUBLIC 0u
#define ANY_GROUP KV_GROUPS_MAX
#define SCOPE_NONE UINT32_MAX
#define NAMES_MAX ((size_t)16 << 20)

bool kv_trie_init(struct kv_trie *t, struct kv_pool *pool, const struct kv_layout *layout,
                  uint32_t nodes_max, struct mem *m, struct err *e)
{
    must(nodes_max > 0 && nodes_max < KV_NODE_NONE);
    *t = (struct kv_trie){.pool = pool, .layout = layout, .nodes_max = nodes_max,
                          .oldest = KV_NODE_NONE, .newest = KV_NODE_NONE,
                          .root_child = KV_NODE_NONE};
    t->nodes = mem_new_array(m, "prefixes", nodes_max, sizeof *t->nodes, e);
    t->way = mem_new_array(m, "prefixes", nodes_max, sizeof *t->way, e);
    if (!t->nodes || !t->way)
        return false;
    for (uint32_t i = 0; i < nodes_max; i++)
        t->nodes[i].next = i + 1 < nodes_max ? i + 1 : KV_NODE_NONE;
    map_init(&t->by_tokens, nodes_max);
    map_init(&t->scopes, KV_TRIE_SCOPES_MAX);
    arena_init(&t->names, NAMES_MAX);
    return true;
}

/* --- scopes -------------------------------------------------------------------------------- */

static uint32_t kv_trie_scope(const struct kv_trie *t, str name)
{
    return name.len ? (uint32_t)map_value(&t->scopes, name, SCOPE_NONE) : SCOPE_PUBLIC;
}

static uint32_t kv_trie_make_scope(struct kv_trie *t, str name)
{
    uint32_t scope = kv_trie_scope(t, name);
    if (scope != SCOPE_NONE)
        return scope;
    str copy = arena_copy(&t->names, name);
    scope = t->scopes.count + 1;
    return copy.p && map_put(&t->scopes, copy, scope) ? scope : SCOPE_NONE;
}

/* --- list of all nodes --------------------------------------------------------------------- */

static void kv_trie_unlist(struct kv_trie *t, uint32_t i)
{
    struct kv_node *n = &t->nodes[i];
    *(n->older == KV_NODE_NONE ? &t->oldest : &t->nodes[n->older].newer) = n->newer;
    *(n->newer == KV_NODE_NONE ? &t->newest : &t->nodes[n->newer].older) = n->older;
}

static void kv_trie_list(struct kv_trie *t, uint32_t i)
{
    struct kv_node *n = &t->nodes[i];
    n->older = t->newest;
    n->newer = KV_NODE_NONE;
    *(t->newest == KV_NODE_NONE ? &t->oldest : &t->nodes[t->newest].newer) = i;
    t->newest = i;
    n->used = ++t->clock;
}

/* From the leaf to the root, so that each child stays before its parent. */
static void kv_trie_touch(struct kv_trie *t, uint32_t i)
{
    for (; i != KV_NODE_NONE; i = t->nodes[i].parent) {
        kv_trie_unlist(t, i);
        kv_trie_list(t, i);
    }
}

/* --- children ------------------------------------------------------------------------------ */

static uint32_t kv_trie_first_child(const struct kv_trie *t, uint32_t parent)
{
    return parent == KV_NODE_NONE ? t->root_child : t->nodes[parent].child;
}

static uint64_t kv_trie_hash(uint32_t parent, uint32_t scope, const int32_t *tokens)
{
    uint64_t seed = (uint64_t)parent << 32 | scope;
    return digest_xxh3(str_view(tokens, KV_PAGE_TOKENS * sizeof *tokens), seed);
}

/* The full child with exactly these 32 tokens: of this scope. */
static uint32_t kv_trie_full_of(const struct kv_trie *t, uint32_t parent, uint32_t scope,
                                const int32_t *tokens)
{
    uint64_t hash = kv_trie_hash(parent, scope, tokens);
    uint32_t i = (uint32_t)map_value_number(&t->by_tokens, hash, KV_NODE_NONE);
    if (i == KV_NODE_NONE)
        return KV_NODE_NONE;
    const struct kv_node *n = &t->nodes[i];
    bool same = n->parent == parent && n->scope == scope &&
                !memcmp(n->tokens, tokens, sizeof n->tokens);
    return same ? i : KV_NODE_NONE;
}

static uint32_t kv_trie_full(const struct kv_trie *t, uint32_t parent, uint32_t scope,
                             const int32_t *tokens)
{
    uint32_t i = kv_trie_full_of(t, parent, SCOPE_PUBLIC, tokens);
    if (i == KV_NODE_NONE && scope != SCOPE_PUBLIC && scope != SCOPE_NONE)
        i = kv_trie_full_of(t, parent, scope, tokens);
    return i;
}

static uint32_t kv_trie_equal(const struct kv_node *n, const int32_t *tokens, uint32_t count)
{
    uint32_t same = 0, most = n->count < count ? n->count : count;
    while (same < most && n->tokens[same] == tokens[same])
        same++;
    return same;
}

/* The child that shares most of its first tokens with tokens[count]. */
static uint32_t kv_trie_closest(const struct kv_trie *t, uint32_t parent, uint32_t scope,
                                const int32_t *tokens, uint32_t count, uint32_t *same)
{
    uint32_t best = KV_NODE_NONE;
    *same = 0;
    for (uint32_t i = kv_trie_first_child(t, parent); i != KV_NODE_NONE; i = t->nodes[i].next) {
        const struct kv_node *n = &t->nodes[i];
        if (n->scope != SCOPE_PUBLIC && n->scope != scope)
            continue;
        uint32_t equal = kv_trie_equal(n, tokens, count);
        if (equal > *same) {
            *same = equal;
            best = i;
        }
    }
    return best;
}

/* --- making and freeing nodes -------------------------------------------------------------- */

static void kv_trie_drop_page(struct kv_trie *t, struct kv_node *n, uint32_t group)
{
    uint32_t page = n->pages[group];
    if (page == KV_PAGE_NONE)
        return;
    n->pages[group] = KV_PAGE_NONE;
    if (n->pinned[group])
        kv_pool_unref(t->pool, group, page);
    kv_pool_unref_cached(t->pool, group, page);
    t->stats.evictions++;
}

static void kv_trie_take_page(struct kv_trie *t, struct kv_node *n, uint32_t group, uint32_t page)
{
    n->pages[group] = page;
    if (page == KV_PAGE_NONE)
        return;
    kv_pool_ref_cached(t->pool, group, page);
    if (n->pinned[group])
        kv_pool_ref(t->pool, group, page);
}

/* A page whose only holders are nodes. (Two nodes may name one page: a scope's own path, and the
 * public one that came after it.) */
static bool kv_trie_holds_alone(const struct kv_trie *t, const struct kv_node *n, uint32_t group)
{
    uint32_t page = n->pages[group];
    return page != KV_PAGE_NONE && kv_pool_is_spare(t->pool, group, page);
}

static void kv_trie_evict_page(struct kv_trie *t, uint32_t node, uint32_t group)
{
    if (t->evicted.on_page && t->nodes[node].pages[group] != KV_PAGE_NONE)
        t->evicted.on_page(t->evicted.ctx, node, group);
    kv_trie_drop_page(t, &t->nodes[node], group);
}

/* A leaf without pins. */
static void kv_trie_remove(struct kv_trie *t, uint32_t i)
{
    struct kv_node *n = &t->nodes[i];
    must(n->child == KV_NODE_NONE && n->pins == 0);
    for (uint32_t g = 0; g < t->layout->groups_count; g++)
        kv_trie_drop_page(t, n, g);
    if (n->count == KV_PAGE_TOKENS)
        map_delete_number(&t->by_tokens, kv_trie_hash(n->parent, n->scope, n->tokens));
    uint32_t *first = n->parent == KV_NODE_NONE ? &t->root_child : &t->nodes[n->parent].child;
    *(n->previous == KV_NODE_NONE ? first : &t->nodes[n->previous].next) = n->next;
    if (n->next != KV_NODE_NONE)
        t->nodes[n->next].previous = n->previous;
    kv_trie_unlist(t, i);
    n->is_wanted = false;
    n->next = t->free;
    t->free = i;
    t->stats.nodes--;
}

/* May go. */
static bool kv_trie_is_leaf(const struct kv_node *n)
{
    return n->child == KV_NODE_NONE && !n->pins;
}

/* The same, because room is needed. */
static void kv_trie_evict_node(struct kv_trie *t, uint32_t node)
{
    for (uint32_t g = 0; g < t->layout->groups_count; g++)
        kv_trie_evict_page(t, node, g);
    kv_trie_remove(t, node);
}

/* Among the oldest leaves the one that is worth least: long unused, cheap to compute again
 * (attention makes deep pages dearer), of little weight. group: whose page must become free by it,
 * or ANY_GROUP; never keep. */
static uint32_t kv_trie_worst(const struct kv_trie *t, uint32_t group, uint32_t keep)
{
    uint32_t worst = KV_NODE_NONE, looked = 0, walked = 0;
    double least = 0;
    for (uint32_t i = t->oldest; i != KV_NODE_NONE && looked < KV_TRIE_LOOK;
         i = t->nodes[i].newer) {
        if (walked++ >= KV_TRIE_WALK && worst != KV_NODE_NONE)
            break;
        const struct kv_node *n = &t->nodes[i];
        if (i == keep || !kv_trie_is_leaf(n) ||
            (group != ANY_GROUP && !kv_trie_holds_alone(t, n, group)))
            continue;
        double age = (double)(t->clock - n->used) + 1;
        double worth = (double)n->weight * (1 + n->depth / 256.0) / age;
        if (worst == KV_NODE_NONE || worth < least) {
            worst = i;
            least = worth;
        }
        looked++;
    }
    return worst;
}

/* Paths of pins, which nothing asked for lately, do not stand in the way of each search. */
static void kv_trie_pass_pins(struct kv_trie *t)
{
    uint32_t pinned = t->stats.pinned.nodes;
    for (; pinned && t->oldest != KV_NODE_NONE && t->nodes[t->oldest].pins; pinned--)
        kv_trie_touch(t, t->oldest);
}

/* A node to use: a free one, or that of a leaf that may go and is not `keep` (whose child is being
 * made). */
static uint32_t kv_trie_take_node(struct kv_trie *t, uint32_t keep)
{
    uint32_t i;
    if (t->free == KV_NODE_NONE) {
        kv_trie_pass_pins(t);
        i = kv_trie_worst(t, ANY_GROUP, keep);
        if (i == KV_NODE_NONE)
            return KV_NODE_NONE;
        kv_trie_evict_node(t, i);
    }
    i = t->free;
    t->free = t->nodes[i].next;
    return i;
}

struct kv_trie_new {
    uint32_t parent, scope, index, count; /* index: of the page in the path */
    const int32_t *tokens;
    const struct kv_pages *pages;
};

static uint32_t kv_trie_page_at(const struct kv_pages *p, uint32_t group, uint32_t index)
{
    return index < p->first[group] ? KV_PAGE_NONE : p->pages[group][index];
}

/* Weights fall from the root to the leaves, so the walk ends where nothing is to be raised. */
void kv_trie_weigh(struct kv_trie *t, uint32_t node, uint32_t weight)
{
    for (; node != KV_NODE_NONE && t->nodes[node].weight < weight; node = t->nodes[node].parent)
        t->nodes[node].weight = weight;
}

static uint32_t kv_trie_add(struct kv_trie *t, const struct kv_trie_new *a)
{
    uint32_t i = kv_trie_take_node(t, a->parent);
    if (i == KV_NODE_NONE)
        return KV_NODE_NONE;
    struct kv_node *n = &t->nodes[i];
    uint32_t *first = a->parent == KV_NODE_NONE ? &t->root_child : &t->nodes[a->parent].child;
    *n = (struct kv_node){.parent = a->parent, .child = KV_NODE_NONE, .next = *first,
                          .previous = KV_NODE_NONE, .depth = a->index + 1, .count = a->count,
                          .scope = a->scope, .weight = 1};
    memcpy(n->tokens, a->tokens, a->count * sizeof *a->tokens);
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        n->pages[g] = KV_PAGE_NONE;
    if (a->count == KV_PAGE_TOKENS &&
        !map_put_number(&t->by_tokens, kv_trie_hash(a->parent, a->scope, a->tokens), i)) {
        n->next = t->free;
        t->free = i;
        return KV_NODE_NONE;
    }
    if (n->next != KV_NODE_NONE)
        t->nodes[n->next].previous = i;
    *first = i;
    for (uint32_t g = 0; g < t->layout->groups_count; g++) {
        kv_trie_take_page(t, n, g, kv_trie_page_at(a->pages, g, a->index));
        must(t->layout->window[g] || n->pages[g] != KV_PAGE_NONE);
    }
    kv_trie_list(t, i);
    t->stats.nodes++;
    return i;
}

/* --- match --------------------------------------------------------------------------------- */

/* Deepest node of the path; *count: tokens up to and with it, of the last node maybe only some. */
static uint32_t kv_trie_walk(const struct kv_trie *t, uint32_t scope, const int32_t *tokens,
                             uint32_t *count)
{
    uint32_t at = KV_NODE_NONE, done = 0, all = *count, same;
    while (all - done >= KV_PAGE_TOKENS) {
        uint32_t next = kv_trie_full(t, at, scope, tokens + done);
        if (next == KV_NODE_NONE)
            break;
        at = next;
        done += KV_PAGE_TOKENS;
    }
    uint32_t part = done < all ? kv_trie_closest(t, at, scope, tokens + done, all - done, &same)
                               : KV_NODE_NONE;
    *count = done + (part == KV_NODE_NONE ? 0 : same);
    return part == KV_NODE_NONE ? at : part;
}

uint32_t kv_trie_first_seen(const struct kv_layout *l, uint32_t group, uint32_t count)
{
    uint32_t window = l->window[group];
    return window && count + 1 > window ? (count + 1 - window) / KV_PAGE_TOKENS : 0;
}

/* Whether the window pages that a token at position `count` sees are there, from node upwards. */
static bool kv_trie_sees(const struct kv_trie *t, uint32_t node, uint32_t count)
{
    for (uint32_t g = 0; g < t->layout->groups_count; g++) {
        uint32_t from = kv_trie_first_seen(t->layout, g, count);
        for (uint32_t i = t->layout->window[g] ? node : KV_NODE_NONE;
             i != KV_NODE_NONE && t->nodes[i].depth > from; i = t->nodes[i].parent)
            if (t->nodes[i].pages[g] == KV_PAGE_NONE)
                return false;
    }
    return true;
}

static uint32_t kv_trie_find(const struct kv_trie *t, uint32_t scope, const int32_t *tokens,
                             uint32_t *count)
{
    uint32_t at = kv_trie_walk(t, scope, tokens, count);
    while (at != KV_NODE_NONE && !kv_trie_sees(t, at, *count)) {
        *count = (t->nodes[at].depth - 1) * KV_PAGE_TOKENS;
        at = t->nodes[at].parent;
    }
    return at;
}

uint32_t kv_trie_length(const struct kv_trie *t, str scope, const int32_t *tokens, uint32_t count,
                        uint32_t *spare)
{
    uint32_t at = kv_trie_find(t, kv_trie_scope(t, scope), tokens, &count);
    for (uint32_t g = 0; spare && g < t->layout->groups_count; g++) {
        uint32_t from = kv_trie_first_seen(t->layout, g, count);
        spare[g] = 0;
        for (uint32_t i = at; i != KV_NODE_NONE && t->nodes[i].depth > from;
             i = t->nodes[i].parent)
            spare[g] += t->nodes[i].depth * KV_PAGE_TOKENS <= count &&
                        kv_trie_holds_alone(t, &t->nodes[i], g);
    }
    return count;
}

uint32_t kv_trie_match(struct kv_trie *t, str scope, const int32_t *tokens, uint32_t count,
                       struct kv_pages *out)
{
    uint32_t at = kv_trie_find(t, kv_trie_scope(t, scope), tokens, &count);
    *(count ? &t->stats.hits : &t->stats.misses) += 1;
    t->stats.tokens_cached += count;
    for (uint32_t g = 0; g < t->layout->groups_count; g++) {
        out->first[g] = kv_trie_first_seen(t->layout, g, count);
        for (uint32_t i = at; i != KV_NODE_NONE; i = t->nodes[i].parent) {
            uint32_t index = t->nodes[i].depth - 1;
            bool is_seen = index >= out->first[g];
            out->pages[g][index] = is_seen ? t->nodes[i].pages[g] : KV_PAGE_NONE;
            if (is_seen)
                kv_pool_ref(t->pool, g, t->nodes[i].pages[g]);
        }
    }
    kv_trie_touch(t, at);
    return count;
}

/* --- names for the tier --------------------------------------------------------------------- */

uint32_t kv_trie_path(const struct kv_trie *t, str scope_name, const int32_t *tokens,
                      uint32_t count, uint32_t *nodes)
{
    uint32_t scope = kv_trie_scope(t, scope_name), at = KV_NODE_NONE, done = 0;
    for (; done < count / KV_PAGE_TOKENS; done++) {
        at = kv_trie_full(t, at, scope, tokens + done * KV_PAGE_TOKENS);
        if (at == KV_NODE_NONE)
            break;
        nodes[done] = at;
    }
    return done;
}

bool kv_trie_is_public(const struct kv_trie *t, uint32_t node)
{
    return t->nodes[node].scope == SCOPE_PUBLIC;
}

/* Scopes are numbered in the order of their entries, and never deleted. */
static str kv_trie_scope_name(const struct kv_trie *t, uint32_t scope)
{
    return scope == SCOPE_PUBLIC ? STR("") : map_key(&t->scopes.entries[scope - 1]);
}

/* Up to the first one that has a key, then down: a path is long, so no recursion. */
const struct kv_key *kv_trie_key(struct kv_trie *t, uint32_t node)
{
    uint32_t count = 0;
    for (uint32_t i = node; i != KV_NODE_NONE && !t->nodes[i].has_key; i = t->nodes[i].parent)
        t->way[count++] = i;
    while (count) {
        struct kv_node *n = &t->nodes[t->way[--count]];
        must(n->count == KV_PAGE_TOKENS);
        kv_tier_key(&n->key, n->parent == KV_NODE_NONE ? NULL : &t->nodes[n->parent].key,
                    kv_trie_scope_name(t, n->scope), n->tokens);
        n->has_key = true;
    }
    return &t->nodes[node].key;
}

/* --- insert -------------------------------------------------------------------------------- */

/* A node that is there may have given up a page of a window group: it gets it back. One that nobody
 * else holds makes way for the equal one of the sequence: held twice for the same tokens it could
 * not be evicted before the sequence's own pages below it are. */
static void kv_trie_refill(struct kv_trie *t, uint32_t i, const struct kv_pages *pages)
{
    struct kv_node *n = &t->nodes[i];
    for (uint32_t g = 0; g < t->layout->groups_count; g++) {
        uint32_t page = kv_trie_page_at(pages, g, n->depth - 1);
        bool is_better = page != KV_PAGE_NONE && page != n->pages[g] &&
                         kv_trie_holds_alone(t, n, g);
        if (is_better)
            kv_trie_drop_page(t, n, g);
        if (n->pages[g] == KV_PAGE_NONE)
            kv_trie_take_page(t, n, g, page);
    }
}

static bool kv_trie_has_pages(const struct kv_trie *t, const struct kv_node *n)
{
    for (uint32_t g = 0; g < t->layout->groups_count; g++)
        if (n->pages[g] == KV_PAGE_NONE)
            return false;
    return true;
}

/* The partly filled end. A child that begins with it says all of it already, if it still has its
 * pages behind windows; a partly filled leaf that it begins with is replaced. */
static uint32_t kv_trie_insert_end(struct kv_trie *t, const struct kv_trie_new *a)
{
    uint32_t same;
    uint32_t near = kv_trie_closest(t, a->parent, a->scope, a->tokens, a->count, &same);
    bool says_it = near != KV_NODE_NONE && same == a->count;
    if (says_it && t->nodes[near].count == a->count)
        kv_trie_refill(t, near, a->pages);
    if (says_it && kv_trie_has_pages(t, &t->nodes[near]))
        return near;
    uint32_t made = kv_trie_add(t, a);
    bool is_shorter = near != KV_NODE_NONE && same == t->nodes[near].count;
    if (made != KV_NODE_NONE && is_shorter && t->nodes[near].scope == a->scope &&
        kv_trie_is_leaf(&t->nodes[near]) && near != made)
        kv_trie_remove(t, near);
    if (made != KV_NODE_NONE &&
        (t->nodes[made].next != KV_NODE_NONE || t->nodes[made].previous != KV_NODE_NONE))
        kv_trie_weigh(t, a->parent, KV_TRIE_WEIGHT_FORK);
    return made;
}

uint32_t kv_trie_insert(struct kv_trie *t, str scope_name, const int32_t *tokens, uint32_t count,
                        const struct kv_pages *pages, bool is_whole)
{
    uint32_t scope = kv_trie_make_scope(t, scope_name), at = KV_NODE_NONE, done = 0;
    if (scope == SCOPE_NONE)
        return KV_NODE_NONE;
    struct kv_trie_new a = {.scope = scope, .pages = pages};
    for (; count - done >= KV_PAGE_TOKENS; done += KV_PAGE_TOKENS) {
        uint32_t next = kv_trie_full(t, at, scope, tokens + done);
        a.parent = at;
        a.index = done / KV_PAGE_TOKENS;
        a.count = KV_PAGE_TOKENS;
        a.tokens = tokens + done;
        if (next == KV_NODE_NONE)
            next = kv_trie_insert_end(t, &a);
        else
            kv_trie_refill(t, next, pages);
        if (next == KV_NODE_NONE)
            break;
        at = next;
    }
    if (is_whole && done < count && count - done < KV_PAGE_TOKENS) {
        a.parent = at;
        a.index = done / KV_PAGE_TOKENS;
        a.count = count - done;
        a.tokens = tokens + done;
        uint32_t last = kv_trie_insert_end(t, &a);
        at = last == KV_NODE_NONE ? at : last;
    }
    kv_trie_touch(t, at);
    return at;
}

/* --- pins, eviction ------------------------------------------------------------------------ */

static uint32_t kv_trie_tokens(const struct kv_trie *t, uint32_t node)
{
    return (t->nodes[node].depth - 1) * KV_PAGE_TOKENS + t->nodes[node].count;
}

static void kv_trie_pin_page(struct kv_trie *t, struct kv_node *n, uint32_t group)
{
    if (n->pinned[group]++)
        return;
    t->stats.pinned.pages[group]++;
    if (n->pages[group] != KV_PAGE_NONE)
        kv_pool_ref(t->pool, group, n->pages[group]);
}

static void kv_trie_unpin_page(struct kv_trie *t, struct kv_node *n, uint32_t group)
{
    must(n->pinned[group] > 0);
    if (--n->pinned[group])
        return;
    t->stats.pinned.pages[group]--;
    if (n->pages[group] != KV_PAGE_NONE)
        kv_pool_unref(t->pool, group, n->pages[group]);
}

/* The whole path counts. Its pages behind a window would never be read: they may go. */
void kv_trie_pin(struct kv_trie *t, uint32_t node)
{
    must(node < t->nodes_max);
    for (uint32_t g = 0; g < t->layout->groups_count; g++) {
        uint32_t from = kv_trie_first_seen(t->layout, g, kv_trie_tokens(t, node));
        for (uint32_t i = node; i != KV_NODE_NONE && t->nodes[i].depth > from;
             i = t->nodes[i].parent)
            kv_trie_pin_page(t, &t->nodes[i], g);
    }
    for (; node != KV_NODE_NONE; node = t->nodes[node].parent)
        t->stats.pinned.nodes += t->nodes[node].pins++ == 0;
}

void kv_trie_unpin(struct kv_trie *t, uint32_t node)
{
    must(node < t->nodes_max);
    for (uint32_t g = 0; g < t->layout->groups_count; g++) {
        uint32_t from = kv_trie_first_seen(t->layout, g, kv_trie_tokens(t, node));
        for (uint32_t i = node; i != KV_NODE_NONE && t->nodes[i].depth > from;
             i = t->nodes[i].parent)
            kv_trie_unpin_page(t, &t->nodes[i], g);
    }
    for (; node != KV_NODE_NONE; node = t->nodes[node].parent) {
        must(t->nodes[node].pins > 0);
        t->stats.pinned.nodes -= --t->nodes[node].pins == 0;
    }
}

void kv_trie_pin_cost(const struct kv_trie *t, str scope_name, const int32_t *tokens,
                      uint32_t count, struct kv_trie_pins *out)
{
    uint32_t scope = kv_trie_scope(t, scope_name), from[KV_GROUPS_MAX], at = KV_NODE_NONE;
    uint32_t levels = (count + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    *out = (struct kv_trie_pins){.nodes = levels};
    for (uint32_t g = 0; g < t->layout->groups_count; g++) {
        from[g] = kv_trie_first_seen(t->layout, g, count);
        out->pages[g] = levels > from[g] ? levels - from[g] : 0;
    }
    uint32_t same = 0, rest = count % KV_PAGE_TOKENS;
    for (uint32_t i = 0; i < levels; i++) {
        bool is_end = i == count / KV_PAGE_TOKENS; /* found as kv_trie_insert_end does */
        at = is_end ? kv_trie_closest(t, at, scope, tokens + count - rest, rest, &same)
                    : kv_trie_full(t, at, scope, tokens + i * KV_PAGE_TOKENS);
        if (at == KV_NODE_NONE ||
            (is_end && (same != rest || !kv_trie_has_pages(t, &t->nodes[at]))))
            break;
        out->nodes -= t->nodes[at].pins > 0;
        for (uint32_t g = 0; g < t->layout->groups_count; g++)
            out->pages[g] -= i >= from[g] && t->nodes[at].pinned[g] > 0;
    }
}

static void kv_trie_release_pins(struct kv_trie *t, struct kv_node *n)
{
    for (uint32_t g = 0; g < t->layout->groups_count; g++) {
        n->pinned[g] = n->pinned[g] > 0;
        if (n->pinned[g])
            kv_trie_unpin_page(t, n, g);
    }
    t->stats.pinned.nodes -= n->pins > 0;
    n->pins = 0;
}

/* Whether a path ends or forks so close below that its next token sees this page. */
static bool kv_trie_is_near_end(const struct kv_trie *t, uint32_t i, uint32_t group)
{
    uint32_t last = t->nodes[i].depth + t->layout->window[group] / KV_PAGE_TOKENS + 1;
    for (; t->nodes[i].depth <= last; i = t->nodes[i].child)
        if (t->nodes[i].child == KV_NODE_NONE ||
            t->nodes[t->nodes[i].child].next != KV_NODE_NONE)
            return true;
    return false;
}

/* Pages of a window go alone, the nodes stay: first those that only a request which ends in the
 * middle of a turn would need, then the oldest. */
static void kv_trie_evict_window(struct kv_trie *t, uint32_t group, uint32_t free_wanted)
{
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = t->oldest;
             i != KV_NODE_NONE && kv_pool_free(t->pool, group) < free_wanted;
             i = t->nodes[i].newer) {
            struct kv_node *n = &t->nodes[i];
            if (kv_trie_holds_alone(t, n, group) &&
                kv_trie_is_near_end(t, i, group) == (pass == 1))
                kv_trie_evict_page(t, i, group);
        }
}

/* A conversation goes from its end: its last page, then the one before, up to a fork. */
static void kv_trie_evict_paths(struct kv_trie *t, uint32_t group, uint32_t free_wanted)
{
    uint32_t i = KV_NODE_NONE;
    kv_trie_pass_pins(t);
    while (kv_pool_free(t->pool, group) < free_wanted) {
        if (i == KV_NODE_NONE || !kv_trie_is_leaf(&t->nodes[i]) ||
            !kv_trie_holds_alone(t, &t->nodes[i], group))
            i = kv_trie_worst(t, group, KV_NODE_NONE);
        if (i == KV_NODE_NONE)
            return;
        uint32_t parent = t->nodes[i].parent;
        kv_trie_evict_node(t, i);
        i = parent;
    }
}

uint32_t kv_trie_evict(struct kv_trie *t, uint32_t group, uint32_t wanted)
{
    uint32_t before = kv_pool_free(t->pool, group);
    uint32_t free_wanted = wanted < UINT32_MAX - before ? before + wanted : UINT32_MAX;
    if (t->layout->window[group])
        kv_trie_evict_window(t, group, free_wanted);
    else
        kv_trie_evict_paths(t, group, free_wanted);
    return kv_pool_free(t->pool, group) - before;
}

void kv_trie_clear(struct kv_trie *t)
{
    for (uint32_t i = t->oldest, next; i != KV_NODE_NONE; i = next) {
        next = t->nodes[i].newer; /* the parent comes later: it is a leaf by then */
        if (kv_trie_is_leaf(&t->nodes[i]))
            kv_trie_remove(t, i);
    }
}

/* --- by whom ------------------------------------------------------------------------------- */

uint64_t kv_trie_tag_of(str name)
{
    uint64_t tag = digest_xxh3(name, 3);
    return tag == 0 || tag == KV_TAG_SHARED ? 1 : tag;
}

static uint64_t kv_trie_join_tag(uint64_t old, uint64_t tag)
{
    return old == 0 || old == tag ? tag : KV_TAG_SHARED;
}

/* Whoever used a node used all above it: where a tag changes nothing it changes nothing above. */
void kv_trie_tag(struct kv_trie *t, uint32_t node, const struct kv_tags *tags)
{
    for (; node != KV_NODE_NONE; node = t->nodes[node].parent) {
        struct kv_tags *old = &t->nodes[node].tags, before = *old;
        old->agent = kv_trie_join_tag(before.agent, tags->agent);
        old->session = kv_trie_join_tag(before.session, tags->session);
        if (old->agent == before.agent && old->session == before.session)
            return;
    }
}

uint32_t kv_trie_drop(struct kv_trie *t, const struct kv_trie_which *which)
{
    const struct kv_tags *tags = &which->tags;
    uint32_t count = 0, scope = which->any_scope ? 0 : kv_trie_scope(t, which->scope);
    for (uint32_t i = t->oldest, next; i != KV_NODE_NONE; i = next) {
        const struct kv_node *n = &t->nodes[i];
        next = n->newer; /* the parent comes later: it is a leaf by then */
        if ((tags->agent && tags->agent != n->tags.agent) ||
            (tags->session && tags->session != n->tags.session) ||
            (!which->any_scope && scope != n->scope) ||
            (which->is_look ? n->pins > 0 : !kv_trie_is_leaf(n)))
            continue;
        count++;
        if (which->on_node)
            which->on_node(which->ctx, i);
        if (!which->is_look)
            kv_trie_remove(t, i);
    }
    return count;
}

void kv_trie_deinit(struct kv_trie *t)
{
    for (uint32_t i = t->oldest; i != KV_NODE_NONE; i = t->nodes[i].newer)
        kv_trie_release_pins(t, &t->nodes[i]);
    kv_trie_clear(t);
    map_deinit(&t->by_tokens);
    map_deinit(&t->scopes);
    arena_deinit(&t->names);
}
