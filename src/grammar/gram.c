#include "grammar/gram.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/chrono.h"
#include "grammar/gram_walk.h"

/* --- building ------------------------------------------------------------------------------ */

/* The struct lies in an arena of its own size; everything that grows lies in bufs. */
struct gram_home {
    struct arena arena;
    struct gram gram;
};

struct gram *gram_new(const struct gram_limits *l)
{
    struct arena a;
    arena_init(&a, 65536);
    struct gram_home *h = ARENA_NEW(&a, struct gram_home);
    if (!h) {
        arena_deinit(&a);
        return NULL;
    }
    h->arena = a;
    struct gram *g = &h->gram;
    g->limits = *l;
    g->refs = 1;
    struct buf *const bufs[] = {&g->nodes, &g->bytes, &g->lists, &g->members, &g->leaves, &g->dfas};
    for (size_t i = 0; i < countof(bufs); i++)
        buf_init(bufs[i], l->bytes_max);
    return g;
}

struct gram *gram_ref(struct gram *g)
{
    __atomic_add_fetch(&g->refs, 1, __ATOMIC_RELAXED);
    return g;
}

void gram_unref(struct gram *g)
{
    if (!g || __atomic_sub_fetch(&g->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    for (uint32_t i = 0; i < gram_dfa_count(g); i++)
        gram_dfa_free(gram_dfa_at(g, i));
    struct buf *const bufs[] = {&g->nodes, &g->bytes, &g->lists, &g->members, &g->leaves, &g->dfas};
    for (size_t i = 0; i < countof(bufs); i++)
        buf_deinit(bufs[i]);
    void *home = (char *)g - offsetof(struct gram_home, gram);
    struct gram_home *h = home;
    struct arena a = h->arena;
    arena_deinit(&a);
}

static size_t gram_size(const struct gram *g)
{
    return g->nodes.size + g->bytes.size + g->lists.size + g->members.size + g->leaves.size +
           g->dfas.size + g->dfa_bytes;
}

bool gram_is_fine(const struct gram *g)
{
    return !g->is_full && gram_size(g) <= g->limits.bytes_max &&
           (!g->limits.deadline_ns || chrono_ns(&chrono_real) < g->limits.deadline_ns);
}

static bool gram_append(struct gram *g, struct buf *b, const void *p, size_t size)
{
    if (g->is_full || (size && !buf_add_bytes(b, p, size)))
        g->is_full = true;
    return !g->is_full;
}

/* A node made after the limit was passed is never run: gram_finish refuses. */
static uint32_t gram_add(struct gram *g, struct gram_node n)
{
    return gram_append(g, &g->nodes, &n, sizeof n) ? gram_node_count(g) - 1 : 0;
}

static uint32_t gram_add_list(struct gram *g, const uint32_t *items, uint32_t count)
{
    uint32_t first = (uint32_t)(g->lists.len / sizeof *items);
    gram_append(g, &g->lists, items, count * sizeof *items);
    return first;
}

uint32_t gram_end(struct gram *g) { return gram_add(g, (struct gram_node){.kind = GRAM_KIND_END}); }

uint32_t gram_return(struct gram *g)
{
    return gram_add(g, (struct gram_node){.kind = GRAM_KIND_RET});
}

uint32_t gram_bytes(struct gram *g, str bytes, uint32_t next)
{
    must(bytes.len > 0);
    struct gram_node n = {.kind = GRAM_KIND_BYTES, .next = next, .first = (uint32_t)g->bytes.len,
                          .count = (uint32_t)bytes.len};
    gram_append(g, &g->bytes, bytes.p, bytes.len);
    return gram_add(g, n);
}

uint32_t gram_marker(struct gram *g, str bytes, uint32_t next)
{
    uint32_t node = gram_bytes(g, bytes, next);
    if (!g->is_full)
        gram_node(g, node)->is_marker = true;
    return node;
}

uint32_t gram_fork(struct gram *g, const uint32_t *to, uint32_t count)
{
    if (count == 1)
        return to[0];
    return gram_add(g, (struct gram_node){.kind = GRAM_KIND_FORK, .count = count,
                                          .first = gram_add_list(g, to, count)});
}

uint32_t gram_call(struct gram *g, uint32_t rule, uint32_t next)
{
    return gram_add(g, (struct gram_node){.kind = GRAM_KIND_CALL, .rule = rule, .next = next});
}

uint32_t gram_hole(struct gram *g)
{
    return gram_add(g, (struct gram_node){.kind = GRAM_KIND_JUMP, .next = GRAM_NONE});
}

void gram_fill(struct gram *g, uint32_t hole, uint32_t to)
{
    if (!g->is_full)
        gram_node(g, hole)->next = to;
}

uint32_t gram_trie_new(struct gram *g)
{
    struct gram_leaf l = {.child = GRAM_NONE, .next = GRAM_NONE, .parent = GRAM_NONE,
                          .id = GRAM_NONE, .low = GRAM_NONE};
    gram_append(g, &g->leaves, &l, sizeof l);
    return (uint32_t)(g->leaves.len / sizeof l - 1);
}

uint32_t gram_trie_step(const struct gram *g, uint32_t leaf, uint8_t byte)
{
    uint32_t i = gram_leaf(g, leaf)->child;
    while (i != GRAM_NONE && gram_leaf(g, i)->byte != byte)
        i = gram_leaf(g, i)->next;
    return i;
}

bool gram_trie_add(struct gram *g, uint32_t trie, str text, uint32_t id)
{
    uint32_t at = trie;
    for (size_t k = 0; k < text.len && !g->is_full; k++) {
        uint32_t to = gram_trie_step(g, at, (uint8_t)text.p[k]);
        if (to == GRAM_NONE) {
            struct gram_leaf l = {.child = GRAM_NONE, .next = gram_leaf(g, at)->child, .parent = at,
                                  .id = GRAM_NONE, .low = GRAM_NONE, .byte = (uint8_t)text.p[k]};
            to = (uint32_t)(g->leaves.len / sizeof l);
            if (!gram_append(g, &g->leaves, &l, sizeof l))
                return true;
            gram_leaf(g, at)->child = to;
        }
        at = to;
    }
    if (g->is_full || gram_leaf(g, at)->id != GRAM_NONE)
        return g->is_full;
    gram_leaf(g, at)->id = id;
    for (;; at = gram_leaf(g, at)->parent) {
        struct gram_leaf *l = gram_leaf(g, at);
        l->low = l->low == GRAM_NONE || id < l->low ? id : l->low;
        l->high = id > l->high ? id : l->high;
        if (at == trie)
            return true;
    }
}

uint32_t gram_choice(struct gram *g, uint32_t trie, uint32_t next)
{
    return gram_add(g, (struct gram_node){.kind = GRAM_KIND_CHOICE, .trie = trie, .next = next});
}

uint32_t gram_switch(struct gram *g, uint32_t trie, const uint32_t *to, uint32_t count)
{
    return gram_add(g, (struct gram_node){.kind = GRAM_KIND_CHOICE, .trie = trie, .count = count,
                                          .first = gram_add_list(g, to, count)});
}

uint32_t gram_switch_marker(struct gram *g, uint32_t trie, const uint32_t *to, uint32_t count)
{
    uint32_t node = gram_switch(g, trie, to, count);
    if (!g->is_full)
        gram_node(g, node)->is_marker = true;
    return node;
}

uint32_t gram_either(struct gram *g, const struct gram_either *e)
{
    return gram_add(g, (struct gram_node){.kind = GRAM_KIND_CHOICE, .trie = e->trie,
                                          .count = e->count, .can_end = true,
                                          .first = gram_add_list(g, e->to, e->count),
                                          .rule = e->otherwise, .min = e->skips});
}

uint32_t gram_add_dfa(struct gram *g, struct gram_dfa *d)
{
    if (!d || !gram_append(g, &g->dfas, &d, sizeof d)) {
        g->is_full = true;
        gram_dfa_free(d);
        return 0;
    }
    g->dfa_bytes += gram_dfa_size(d);
    return gram_dfa_count(g) - 1;
}

const struct gram_dfa *gram_dfa_of(const struct gram *g, uint32_t number)
{
    return gram_dfa_at(g, number);
}

uint32_t gram_pattern(struct gram *g, uint32_t dfa, uint32_t next)
{
    return gram_add(g, (struct gram_node){.kind = GRAM_KIND_PATTERN, .dfa = dfa, .next = next});
}

uint32_t gram_text(struct gram *g, const struct gram_string *s, uint32_t next)
{
    must(s->dfa == GRAM_NONE || s->except == GRAM_NONE);
    return gram_add(g, (struct gram_node){.kind = GRAM_KIND_TEXT, .dfa = s->dfa, .trie = s->except,
                                          .is_name = s->is_name,
                                          .min = s->min, .max = s->max, .next = next});
}

uint32_t gram_members(struct gram *g, const struct gram_object *o, uint32_t next)
{
    uint32_t first = (uint32_t)(g->members.len / sizeof(struct gram_member));
    for (uint32_t i = 0; i < o->count; i++) {
        struct gram_member m = {.rule = o->properties[i].rule,
                                .is_required = o->properties[i].is_required};
        gram_append(g, &g->members, &m, sizeof m);
    }
    for (uint32_t i = o->count, required = o->count; i-- > 0 && !g->is_full;) {
        struct gram_member *m = gram_member(g, first + i);
        required = m->is_required ? i : required;
        m->required = required;
    }
    return gram_add(g, (struct gram_node){.kind = GRAM_KIND_MEMBERS, .first = first,
                                          .count = o->count, .trie = o->names, .rule = o->more,
                                          .next = next});
}

uint32_t gram_items(struct gram *g, const struct gram_array *a, uint32_t next)
{
    return gram_add(g, (struct gram_node){
                           .kind = GRAM_KIND_ITEMS, .count = a->first_count, .rule = a->rest,
                           .first = gram_add_list(g, a->first, a->first_count), .min = a->min,
                           .max = a->max, .next = next});
}

uint32_t gram_open(struct gram *g, const struct gram_free *f)
{
    uint32_t trie = gram_trie_new(g);
    for (uint32_t i = 0; i < f->count; i++)
        gram_trie_add(g, trie, f->markers[i], i);
    return gram_add(g, (struct gram_node){.kind = GRAM_KIND_OPEN, .trie = trie, .count = f->count,
                                          .first = gram_add_list(g, f->to, f->count),
                                          .can_end = f->can_end});
}

/* --- measuring ----------------------------------------------------------------------------- */

static uint32_t gram_up(uint32_t height) { return height == GRAM_NONE ? GRAM_NONE : height + 1; }
static uint32_t gram_max(uint32_t a, uint32_t b) { return a > b ? a : b; }
static uint32_t gram_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t gram_of(const struct gram *g, uint32_t node) { return gram_node(g, node)->height; }

/* A node that goes on at one of a list. */
static bool gram_is_many(const struct gram_node *n)
{
    return n->kind == GRAM_KIND_FORK || n->kind == GRAM_KIND_OPEN ||
           (n->kind == GRAM_KIND_CHOICE && n->count);
}

/* Frames that the inside of n needs at least: what is required, or the lowest of what is free. */
static uint32_t gram_inside(const struct gram *g, const struct gram_node *n)
{
    uint32_t h = gram_is_many(n) ? GRAM_NONE : 0;
    if (n->kind == GRAM_KIND_CALL)
        return gram_up(gram_of(g, n->rule));
    if (n->can_end || (n->kind == GRAM_KIND_OPEN && n->count == 0))
        h = 0;
    for (uint32_t i = 0; i < n->count; i++) {
        uint32_t to = n->first + i;
        if (gram_is_many(n))
            h = gram_min(h, gram_of(g, *gram_list(g, to)));
        else if (n->kind == GRAM_KIND_MEMBERS && gram_member(g, to)->is_required)
            h = gram_max(h, gram_up(gram_of(g, gram_member(g, to)->rule)));
        else if (n->kind == GRAM_KIND_ITEMS && i < n->min)
            h = gram_max(h, gram_up(gram_of(g, *gram_list(g, to))));
    }
    if (n->kind == GRAM_KIND_ITEMS && n->min > n->count)
        h = gram_max(h, n->rule == GRAM_NONE ? GRAM_NONE : gram_up(gram_of(g, n->rule)));
    return h;
}

static bool gram_has_next(const struct gram_node *n)
{
    return n->kind != GRAM_KIND_END && n->kind != GRAM_KIND_RET && !gram_is_many(n);
}

/* Heights fall from "never" to what is true; a rule is made after the rules inside it but for
 * recursion, so few passes do. False: out of time. */
static bool gram_measure(struct gram *g)
{
    uint32_t n = gram_node_count(g);
    for (uint32_t i = 0; i < n; i++)
        gram_node(g, i)->height = GRAM_NONE;
    for (bool changed = true; changed;) {
        changed = false;
        if (!gram_is_fine(g))
            return false;
        for (uint32_t i = 0; i < n; i++) {
            struct gram_node *node = gram_node(g, i);
            uint32_t h = gram_inside(g, node);
            if (gram_has_next(node))
                h = gram_max(h, gram_of(g, node->next));
            changed = changed || h < node->height;
            node->height = gram_min(h, node->height);
        }
    }
    return true;
}

static void gram_measure_values(struct gram *g)
{
    for (uint32_t i = 0; i < gram_node_count(g); i++) {
        struct gram_node *n = gram_node(g, i);
        n->tallest = 0;
        for (uint32_t k = 0; k < n->count; k++)
            if (n->kind == GRAM_KIND_MEMBERS)
                n->tallest = gram_max(n->tallest, gram_of(g, gram_member(g, n->first + k)->rule));
    }
}

/* Branches for one byte, from the leaves up; a node that leads to itself without a byte is
 * refused. Depth first, with the nodes' `paths` as marks: 0 new, NONE under way. */
static uint32_t gram_count_paths(struct gram *g, uint32_t i, uint32_t depth)
{
    struct gram_node *n = gram_node(g, i);
    if (n->paths)
        return n->paths == GRAM_NONE ? GRAM_PATHS_MAX + 1 : n->paths;
    if (depth > 1000)
        return GRAM_PATHS_MAX + 1;
    n->paths = GRAM_NONE;
    uint64_t sum = 1;
    if (n->kind == GRAM_KIND_JUMP)
        sum += gram_count_paths(g, n->next, depth + 1);
    if (n->kind == GRAM_KIND_CALL || (n->kind == GRAM_KIND_CHOICE && n->can_end))
        sum += gram_count_paths(g, n->rule, depth + 1);
    for (uint32_t k = 0; n->kind == GRAM_KIND_FORK && k < n->count && sum <= GRAM_PATHS_MAX; k++)
        sum += gram_count_paths(g, *gram_list(g, n->first + k), depth + 1);
    n->paths = sum > GRAM_PATHS_MAX ? GRAM_PATHS_MAX + 1 : (uint32_t)sum;
    return n->paths;
}

bool gram_finish(struct gram *g, uint32_t root, struct err *e)
{
    if (!gram_is_fine(g) || !gram_measure(g)) {
        if (g->is_full || gram_size(g) > g->limits.bytes_max)
            return err_set(e, ERR_LIMIT, "grammar: more than %zu bytes", g->limits.bytes_max);
        return err_set(e, ERR_LIMIT, "grammar: compiling took too long");
    }
    g->root = root;
    if (gram_of(g, root) == GRAM_NONE)
        return err_set(e, ERR_REQUEST, "grammar: no reply can ever be complete");
    if (gram_of(g, root) > GRAM_DEPTH_MAX)
        return err_set(e, ERR_LIMIT, "grammar: every reply nests deeper than %u", GRAM_DEPTH_MAX);
    for (uint32_t i = 0; i < gram_node_count(g); i++)
        if (gram_count_paths(g, i, 0) > GRAM_PATHS_MAX)
            return err_set(e, ERR_LIMIT, "grammar: more than %u branches at one place, or a rule"
                           " that is itself", GRAM_PATHS_MAX);
    gram_measure_values(g);
    return true;
}

/* --- states -------------------------------------------------------------------------------- */

void gram_start(const struct gram *g, struct gram_state *s)
{
    struct gram_walk w = {.g = g};
    s->gram = g;
    s->home = GRAM_NONE;
    s->frames_count = s->keys_count = 0;
    s->threads_count = 1;
    gram_walk_enter(&w, g->root, GRAM_NONE, &s->threads[0]);
}
