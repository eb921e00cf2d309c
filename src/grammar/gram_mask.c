#include "grammar/gram_mask.h"

#include <string.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/map.h"
#include "grammar/gram_walk.h"

#define MASK_FRAMES_MAX 16384u
#define MASK_THREADS_MAX 32768u
#define MASK_KEYS_MAX 4096u
#define MASK_NEAR 16u        /* counters so near to their limit are told apart */
#define MASK_WORK 40000u     /* nodes of a walk, and nodes of programs: below a millisecond */
#define MASK_ENDLESS UINT64_MAX

/* A grammar in use, or kept for the next request with it. */
struct mask_home {
    struct gram *gram;
    uint32_t users;
    uint64_t serial, used; /* serial: in the keys of masks, never used twice */
    struct gram_dfa_table **tables;
    struct arena arena; /* of tables[] */
};

/* A mask in its slot, in a ring: the oldest that was not asked for since goes. */
struct mask_slot {
    struct digest_128 key;
    bool was_used, is_taken;
};

struct gram_mask {
    struct arena arena;
    const struct gram_index *index;
    struct mask_home *homes;
    uint32_t homes_max, homes_count;
    uint64_t serials, ticks;
    struct map slots_by_key;
    struct mask_slot *slots;
    uint32_t **masks;
    uint32_t slots_max, slots_count, hand;
    struct gram_frame *frames;
    struct gram_thread *threads;
    uint32_t *firsts; /* [len_max + 2] where the threads of a depth begin */
    uint32_t *tops;   /* ... and how many frames there were */
    uint32_t *moved;  /* [MASK_FRAMES_MAX] */
    struct gram_key *keys; /* [MASK_KEYS_MAX] */
    uint32_t *key_tops, *keys_moved; /* [len_max + 2], [MASK_KEYS_MAX] */
    struct gram_mask_stats stats;
};

/* --- homes --------------------------------------------------------------------------------- */

struct gram_mask *gram_mask_new(const struct gram_mask_options *o)
{
    struct arena a;
    size_t mask = (size_t)o->index->words * sizeof(uint32_t);
    size_t slots = o->masks_bytes / (mask + 64) + 1;
    uint32_t homes = o->homes_max + 16; /* some more, so that schemas in turn keep their masks */
    arena_init(&a, o->masks_bytes + slots * 128 + (size_t)homes * sizeof(struct mask_home) +
                       ((size_t)4 << 20));
    struct gram_mask *c = ARENA_NEW(&a, struct gram_mask);
    if (!c) {
        arena_deinit(&a);
        return NULL;
    }
    c->index = o->index;
    c->homes_max = homes;
    c->slots_max = (uint32_t)slots;
    c->homes = ARENA_ARRAY(&a, struct mask_home, homes);
    c->slots = ARENA_ARRAY(&a, struct mask_slot, slots);
    c->masks = ARENA_ARRAY(&a, uint32_t *, slots);
    c->frames = ARENA_ARRAY(&a, struct gram_frame, MASK_FRAMES_MAX);
    c->threads = ARENA_ARRAY(&a, struct gram_thread, MASK_THREADS_MAX);
    c->firsts = ARENA_ARRAY(&a, uint32_t, (size_t)o->index->len_max + 2);
    c->tops = ARENA_ARRAY(&a, uint32_t, (size_t)o->index->len_max + 2);
    c->moved = ARENA_ARRAY(&a, uint32_t, MASK_FRAMES_MAX);
    c->keys = ARENA_ARRAY(&a, struct gram_key, MASK_KEYS_MAX);
    c->keys_moved = ARENA_ARRAY(&a, uint32_t, MASK_KEYS_MAX);
    c->key_tops = ARENA_ARRAY(&a, uint32_t, (size_t)o->index->len_max + 2);
    bool ok = c->moved && c->homes && c->slots && c->masks && c->frames && c->threads &&
              c->firsts && c->tops && c->keys && c->keys_moved && c->key_tops;
    map_init(&c->slots_by_key, c->slots_max + 1);
    c->arena = a;
    if (!ok)
        gram_mask_free(c);
    return ok ? c : NULL;
}

static void mask_home_clear(struct mask_home *h)
{
    for (uint32_t i = 0; h->gram && i < gram_dfa_count(h->gram); i++)
        if (!gram_dfa_whole(gram_dfa_at(h->gram, i)))
            gram_dfa_table_free(h->tables[i]);
    arena_deinit(&h->arena);
    gram_unref(h->gram);
    *h = (struct mask_home){0};
}

void gram_mask_free(struct gram_mask *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->homes_count; i++)
        mask_home_clear(&c->homes[i]);
    map_deinit(&c->slots_by_key);
    struct arena a = c->arena;
    arena_deinit(&a);
}

static bool mask_home_fill(struct mask_home *h, struct gram *g, struct err *e)
{
    uint32_t count = gram_dfa_count(g);
    arena_init(&h->arena, (size_t)count * sizeof *h->tables + 65536);
    h->tables = ARENA_ARRAY(&h->arena, struct gram_dfa_table *, count);
    h->gram = gram_ref(g);
    bool ok = h->tables != NULL;
    for (uint32_t i = 0; ok && i < count; i++) {
        const struct gram_dfa *d = gram_dfa_at(g, i);
        h->tables[i] = gram_dfa_whole(d) ? gram_dfa_whole(d)
                                         : gram_dfa_table_new(d, GRAM_MASK_TABLE_MAX);
        ok = h->tables[i] != NULL;
    }
    if (!ok)
        mask_home_clear(h);
    return ok || err_set(e, ERR_MEMORY, "grammar: no memory for its tables");
}

/* The home of g; else a free one; else the one that was left longest ago. */
static struct mask_home *mask_home_find(struct gram_mask *c, const struct gram *g)
{
    struct mask_home *best = NULL;
    for (uint32_t i = 0; i < c->homes_count; i++) {
        struct mask_home *h = &c->homes[i];
        if (h->gram == g)
            return h;
        if (h->users == 0 && (!best || h->used < best->used))
            best = h;
    }
    return c->homes_count < c->homes_max ? &c->homes[c->homes_count++] : best;
}

bool gram_mask_open(struct gram_mask *c, struct gram *g, struct gram_state *s, struct err *e)
{
    struct mask_home *h = mask_home_find(c, g);
    if (!h)
        return err_set(e, ERR_LIMIT, "grammar: %u in use at once", c->homes_max);
    if (h->gram != g) {
        mask_home_clear(h);
        if (!mask_home_fill(h, g, e))
            return false;
        h->serial = ++c->serials;
    }
    h->users++;
    gram_start(g, s);
    s->home = (uint32_t)(h - c->homes);
    return true;
}

void gram_mask_close(struct gram_mask *c, const struct gram_state *s)
{
    struct mask_home *h = &c->homes[s->home];
    must(h->gram == s->gram && h->users > 0);
    h->users--;
    h->used = ++c->ticks;
}

/* A walk without frames, in which names may come twice. */
static struct gram_walk mask_walk(struct gram_mask *c, const struct gram_state *s)
{
    return (struct gram_walk){.g = s->gram, .tables = c->homes[s->home].tables,
                              .frames = c->frames, .frames_max = MASK_FRAMES_MAX};
}

/* A walk that goes on from s. */
static struct gram_walk mask_walk_from(struct gram_mask *c, const struct gram_state *s)
{
    struct gram_walk w = mask_walk(c, s);
    w.frames_count = s->frames_count;
    memcpy(w.frames, s->frames, s->frames_count * sizeof *w.frames);
    w.keys = c->keys;
    w.keys_max = MASK_KEYS_MAX;
    w.keys_count = s->keys_count;
    memcpy(w.keys, s->keys, s->keys_count * sizeof *w.keys);
    return w;
}

/* --- canonical readings -------------------------------------------------------------------- */

/* A counter far from its limits becomes the one that allows most: so texts of all lengths share
 * masks. A least length counts only as far as one token reaches. */
static uint32_t mask_counter(const struct gram_mask *c, const struct gram_node *n, uint32_t count)
{
    uint32_t low = n->kind == GRAM_KIND_ITEMS && n->count > n->min ? n->count : n->min;
    uint32_t reach = c->index->len_max + 1;
    if (n->kind != GRAM_KIND_TEXT && n->kind != GRAM_KIND_ITEMS)
        return count;
    if (count < low) {
        bool is_far = low - count > reach && n->dfa == GRAM_NONE;
        return is_far && (n->kind == GRAM_KIND_TEXT || low - reach > n->count) ? low - reach
                                                                              : count;
    }
    return n->max != GRAM_ENDLESS && n->max - count <= MASK_NEAR ? count : low;
}

/* Copies the reading into the walk's frames, with canonical counters, and hashes it. */
static struct gram_thread mask_canonical(struct gram_mask *c, struct gram_walk *w,
                                         const struct gram_state *s, const struct gram_thread *t,
                                         struct digest_128 *key)
{
    uint32_t words[2 * GRAM_DEPTH_MAX + 8], n = 0, depth = 0;
    struct gram_thread out = *t;
    const struct gram_node *node = gram_node(w->g, t->node);
    out.count = mask_counter(c, node, t->count);
    out.keys = GRAM_NONE; /* which names there are already is for gram_mask_try */
    if (node->kind == GRAM_KIND_TEXT && node->trie != GRAM_NONE && t->pos != GRAM_TEXT_BEFORE)
        out.dfa = GRAM_NONE; /* as if it were no exception any more */
    memcpy(words, &c->homes[s->home].serial, 8);
    n = 2;
    const uint32_t top[] = {out.node, out.pos, out.count, out.dfa};
    memcpy(words + n, top, sizeof top);
    n += countof(top);
    for (uint32_t f = t->parent; f != GRAM_NONE; f = s->frames[f].parent, depth++) {
        struct gram_frame *to = &w->frames[depth];
        *to = s->frames[f];
        to->count = mask_counter(c, gram_node(w->g, to->node), to->count);
        to->parent = s->frames[f].parent == GRAM_NONE ? GRAM_NONE : depth + 1;
        to->keys = GRAM_NONE;
        words[n++] = to->node;
        words[n++] = to->count;
    }
    w->frames_count = depth;
    out.parent = t->parent == GRAM_NONE ? GRAM_NONE : 0;
    *key = digest_xxh3_128(str_view(words, n * sizeof *words), 0);
    return out;
}

/* --- walking the vocabulary ---------------------------------------------------------------- */

static void mask_set(uint32_t *mask, int32_t id) { mask[id / 32] |= 1u << (id % 32); }

struct mask_tour {
    struct gram_mask *c;
    struct gram_walk *w;
    const struct gram_index_tree *tree;
    uint32_t *mask;
    uint64_t work_max;
    uint32_t need, room; /* tails: characters still needed, and allowed before the tail */
};

static void mask_tokens(const struct mask_tour *r, const struct gram_index_node *n, uint8_t first)
{
    for (uint32_t i = 0; i < n->count; i++) {
        const struct gram_index_token *t = &r->tree->tokens[n->first + i];
        if (t->chars <= r->room && (t->chars >= r->need || first != '"'))
            mask_set(r->mask, t->id);
    }
}

/* One byte for the readings of a depth; their successors become those of the next. */
static bool mask_step(struct mask_tour *r, uint32_t depth, uint8_t byte)
{
    struct gram_mask *c = r->c;
    struct gram_walk *w = r->w;
    uint32_t from = c->firsts[depth - 1], to = c->firsts[depth];
    struct gram_threads out = {.items = c->threads + to,
                               .max = MASK_THREADS_MAX - to < GRAM_THREADS_MAX
                                          ? MASK_THREADS_MAX - to : GRAM_THREADS_MAX};
    w->frames_count = c->tops[depth - 1];
    w->keys_count = c->key_tops[depth - 1];
    w->is_unsure = false;
    for (uint32_t i = from; i < to; i++)
        gram_walk_step(w, &c->threads[i], byte, &out);
    c->firsts[depth + 1] = to + out.count;
    c->tops[depth] = w->frames_count;
    c->key_tops[depth] = w->keys_count;
    return out.count > 0;
}

/* The rest of the vocabulary by its first bytes alone. */
static void mask_coarse(struct mask_tour *r, uint32_t i)
{
    const struct gram_index_tree *t = r->tree;
    while (i < t->nodes_count) {
        const struct gram_index_node *n = &t->nodes[i];
        if (n->depth == 1 && !mask_step(r, 1, n->byte) && !r->w->is_unsure) {
            i = n->end;
            continue;
        }
        uint32_t end = n->end;
        for (; i < end; i++)
            mask_tokens(r, &t->nodes[i], 0);
    }
}

static uint64_t mask_work(const struct gram_walk *w)
{
    uint64_t work = 0;
    for (uint32_t i = 0; i < gram_dfa_count(w->g); i++)
        work += gram_dfa_table_work(w->tables[i]);
    return work;
}

/* All tokens of the tree that the readings at c->threads[0 .. firsts[1]) let through. */
static void mask_tour(struct mask_tour *r)
{
    const struct gram_index_tree *t = r->tree;
    struct gram_mask *c = r->c;
    uint64_t before = mask_work(r->w), visited = 0;
    uint8_t first = 0;
    c->firsts[0] = 0;
    c->tops[0] = r->w->frames_count;
    c->key_tops[0] = r->w->keys_count;
    for (uint32_t i = 0; i < t->nodes_count;) {
        const struct gram_index_node *n = &t->nodes[i];
        visited++;
        if (visited > r->work_max ||
            (visited % 64 == 0 && mask_work(r->w) - before > r->work_max)) {
            mask_coarse(r, i);
            break;
        }
        first = n->depth == 1 ? n->byte : first;
        if (mask_step(r, n->depth, n->byte)) {
            mask_tokens(r, n, first);
            i++;
        } else if (r->w->is_unsure) { /* not known: allowed */
            for (uint32_t end = n->end; i < end; i++)
                mask_tokens(r, &t->nodes[i], 0);
        } else {
            i = n->end;
        }
    }
    c->stats.walked += visited;
}

/* --- one reading --------------------------------------------------------------------------- */

static bool mask_is_plain(const struct gram_walk *w, const struct gram_node *n,
                          const struct gram_thread *t)
{
    return n->kind == GRAM_KIND_TEXT && t->pos == GRAM_TEXT_PLAIN &&
           (n->dfa == GRAM_NONE || gram_dfa_is_open(w->tables[n->dfa], t->dfa));
}

static void mask_or(uint32_t *mask, const uint32_t *more, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++)
        mask[i] |= more[i];
}

/* Control tokens that spell a marker. They are few, so each is tried. */
static void mask_markers(struct gram_mask *c, struct gram_walk *w, const struct gram_thread *t,
                         uint32_t *mask)
{
    const struct trie *specials = vocab_specials(c->index->vocab);
    const struct trie_node *nodes = trie_nodes(specials);
    uint32_t top = w->frames_count, count = (uint32_t)(specials->bytes.len / sizeof *nodes);
    for (uint32_t i = 0; i < count; i++) {
        if (nodes[i].id < 0 || !vocab_is_control(c->index->vocab, nodes[i].id))
            continue;
        str bytes = vocab_bytes(c->index->vocab, nodes[i].id);
        struct gram_thread now[GRAM_THREADS_MAX] = {*t}, then[GRAM_THREADS_MAX];
        uint32_t n = 1;
        w->is_control = true;
        w->frames_count = top;
        for (size_t k = 0; k < bytes.len && n; k++) {
            struct gram_threads out = {.items = then, .max = GRAM_THREADS_MAX};
            for (uint32_t j = 0; j < n; j++)
                gram_walk_step(w, &now[j], (uint8_t)bytes.p[k], &out);
            n = out.count;
            memcpy(now, then, n * sizeof *now);
        }
        if (n && bytes.len)
            mask_set(mask, nodes[i].id);
    }
    w->is_control = false;
    w->frames_count = top;
}

/* Free text is open: whatever would not fit is refused by gram_mask_try. */
static void mask_open(struct gram_mask *c, uint32_t *mask)
{
    uint32_t eog_count;
    const int32_t *eog = vocab_eog(c->index->vocab, &eog_count);
    memset(mask, 0xff, c->index->words * sizeof *mask);
    for (uint32_t i = 0; i < eog_count; i++)
        mask[eog[i] / 32] &= ~(1u << (eog[i] % 32));
}

/* The mask of the reading t, whose frames are the walk's. mask is zero. */
static void mask_make(struct gram_mask *c, struct gram_walk *w, const struct gram_thread *t,
                      uint64_t work_max, uint32_t *mask)
{
    const struct gram_node *n = gram_node(w->g, t->node);
    struct mask_tour r = {.c = c, .w = w, .tree = &c->index->all, .mask = mask,
                          .work_max = work_max, .room = UINT32_MAX};
    bool is_exact = work_max == MASK_ENDLESS;
    bool is_open = n->kind == GRAM_KIND_OPEN || (n->kind == GRAM_KIND_CHOICE && n->can_end);
    if (is_open && !is_exact) {
        mask_open(c, mask);
        return;
    }
    c->threads[0] = *t;
    if (mask_is_plain(w, n, t) && !is_exact) {
        r.room = n->max == GRAM_ENDLESS ? UINT32_MAX : n->max - t->count;
        r.need = t->count < n->min ? n->min - t->count : 0;
        mask_or(mask, r.room <= GRAM_INDEX_SHORT ? c->index->plain_short[r.room] : c->index->plain,
                c->index->words);
        r.tree = &c->index->tails;
        c->threads[0].count = t->count > n->min ? t->count : n->min;
        w->is_lenient = true;
    }
    c->firsts[1] = 1;
    mask_tour(&r);
    if (gram_walk_may_control(n))
        mask_markers(c, w, t, mask);
}

/* --- the cache ----------------------------------------------------------------------------- */

static uint64_t mask_map_key(struct digest_128 k) { return k.low ^ (k.high * 0x9e3779b97f4a7c15u); }

/* A slot for a new mask, zeroed; NULL: the cache has no memory. */
static uint32_t *mask_slot_new(struct gram_mask *c, struct digest_128 key)
{
    uint32_t i;
    if (c->slots_count < c->slots_max) {
        i = c->slots_count;
        c->masks[i] = ARENA_ARRAY(&c->arena, uint32_t, c->index->words);
        if (!c->masks[i])
            return NULL;
        c->slots_count++;
    } else {
        while (c->slots[c->hand].was_used) {
            c->slots[c->hand].was_used = false;
            c->hand = (c->hand + 1) % c->slots_max;
        }
        i = c->hand;
        c->hand = (c->hand + 1) % c->slots_max;
        memset(c->masks[i], 0, c->index->words * sizeof(uint32_t));
        if (c->slots[i].is_taken)
            map_delete_number(&c->slots_by_key, mask_map_key(c->slots[i].key));
    }
    bool ok = map_put_number(&c->slots_by_key, mask_map_key(key), i);
    c->slots[i] = (struct mask_slot){.key = key, .was_used = ok, .is_taken = ok};
    return c->masks[i];
}

static const uint32_t *mask_find(struct gram_mask *c, struct digest_128 key)
{
    const uint64_t *at = map_find_number(&c->slots_by_key, mask_map_key(key));
    if (!at || !digest_128_eq(c->slots[*at].key, key))
        return NULL;
    c->slots[*at].was_used = true;
    return c->masks[*at];
}

void gram_mask(struct gram_mask *c, const struct gram_state *s, uint32_t *mask)
{
    uint32_t words = c->index->words, eog_count;
    const int32_t *eog = vocab_eog(c->index->vocab, &eog_count);
    for (uint32_t i = 0; i < s->threads_count; i++) {
        struct gram_walk w = mask_walk(c, s);
        struct digest_128 key;
        struct gram_thread t = mask_canonical(c, &w, s, &s->threads[i], &key);
        const uint32_t *one = mask_find(c, key);
        c->stats.masks++;
        c->stats.hits += one != NULL;
        if (!one) {
            uint32_t *made = mask_slot_new(c, key);
            if (!made) { /* cannot be but for lack of memory: open, gram_mask_try judges */
                memset(mask, 0xff, words * sizeof *mask);
                return;
            }
            mask_make(c, &w, &t, MASK_WORK, made);
            one = made;
        }
        if (i == 0)
            memcpy(mask, one, words * sizeof *mask);
        else
            mask_or(mask, one, words);
    }
    for (uint32_t i = 0; gram_mask_can_end(c, s) && i < eog_count; i++)
        mask_set(mask, eog[i]);
}

void gram_mask_exact(struct gram_mask *c, const struct gram_state *s, uint32_t *mask)
{
    uint32_t eog_count;
    const int32_t *eog = vocab_eog(c->index->vocab, &eog_count);
    memset(mask, 0, c->index->words * sizeof *mask);
    for (uint32_t i = 0; i < s->threads_count; i++) {
        struct gram_walk w = mask_walk_from(c, s);
        mask_make(c, &w, &s->threads[i], MASK_ENDLESS, mask);
    }
    for (uint32_t i = 0; gram_mask_can_end(c, s) && i < eog_count; i++)
        mask_set(mask, eog[i]);
}

/* --- one token ----------------------------------------------------------------------------- */

/* The names of an object move into next, the first one first. False: no room. */
static bool mask_pack_keys(struct gram_mask *c, const struct gram_walk *w, uint32_t *keys,
                           struct gram_state *next)
{
    uint32_t path[MASK_KEYS_MAX], len = 0, i;
    if (*keys == GRAM_NONE)
        return true;
    for (i = *keys; i != GRAM_NONE && c->keys_moved[i] == GRAM_NONE; i = w->keys[i].before)
        path[len++] = i;
    if (next->keys_count + len > GRAM_KEYS_MAX)
        return false;
    while (len-- > 0) {
        struct gram_key to = w->keys[path[len]];
        to.before = to.before == GRAM_NONE ? GRAM_NONE : c->keys_moved[to.before];
        c->keys_moved[path[len]] = next->keys_count;
        next->keys[next->keys_count++] = to;
    }
    *keys = c->keys_moved[*keys];
    return true;
}

/* Frames that readings still need move into next, in order; what does not fit is given up. */
static bool mask_pack(struct gram_mask *c, const struct gram_walk *w,
                      const struct gram_threads *threads, struct gram_state *next)
{
    uint32_t *moved = c->moved;
    memset(moved, 0xff, w->frames_count * sizeof *moved);
    memset(c->keys_moved, 0xff, w->keys_count * sizeof *c->keys_moved);
    for (uint32_t i = 0; i < threads->count; i++) {
        struct gram_thread t = threads->items[i];
        bool is_object = gram_node(w->g, t.node)->kind == GRAM_KIND_MEMBERS, fits = true;
        uint32_t path[GRAM_DEPTH_MAX], len = 0, f;
        for (f = t.parent; f != GRAM_NONE && moved[f] == GRAM_NONE; f = w->frames[f].parent)
            path[len++] = f;
        fits = next->frames_count + len <= GRAM_FRAMES_MAX &&
               (!is_object || mask_pack_keys(c, w, &t.keys, next));
        while (fits && len-- > 0) {
            struct gram_frame to = w->frames[path[len]];
            if (!(fits = mask_pack_keys(c, w, &to.keys, next)))
                break;
            to.parent = to.parent == GRAM_NONE ? GRAM_NONE : moved[to.parent];
            moved[path[len]] = next->frames_count;
            next->frames[next->frames_count++] = to;
        }
        if (!fits)
            continue;
        t.parent = t.parent == GRAM_NONE ? GRAM_NONE : moved[t.parent];
        next->threads[next->threads_count++] = t;
    }
    return next->threads_count > 0;
}

static bool mask_try(struct gram_mask *c, const struct gram_state *s, str bytes, bool is_control,
                     struct gram_state *next)
{
    struct gram_walk w = mask_walk_from(c, s);
    struct gram_threads out = {.items = c->threads, .max = GRAM_THREADS_MAX};
    struct gram_thread now[GRAM_THREADS_MAX];
    uint32_t count = s->threads_count;
    w.is_control = is_control;
    memcpy(now, s->threads, count * sizeof *now);
    for (size_t k = 0; k < bytes.len && count; k++) {
        out.count = 0;
        for (uint32_t i = 0; i < count; i++)
            gram_walk_step(&w, &now[i], (uint8_t)bytes.p[k], &out);
        count = out.count;
        memcpy(now, out.items, count * sizeof *now);
    }
    next->gram = s->gram;
    next->home = s->home;
    next->threads_count = next->frames_count = next->keys_count = 0;
    out.items = now;
    out.count = count;
    return mask_pack(c, &w, &out, next);
}

bool gram_mask_try_bytes(struct gram_mask *c, const struct gram_state *s, str bytes,
                    struct gram_state *next)
{
    return mask_try(c, s, bytes, false, next);
}

bool gram_mask_try(struct gram_mask *c, const struct gram_state *s, int32_t token,
              struct gram_state *next)
{
    const struct vocab *v = c->index->vocab;
    if (vocab_is_eog(v, token)) {
        *next = *s;
        return gram_mask_can_end(c, s);
    }
    str bytes = vocab_bytes(v, token);
    return bytes.len > 0 && mask_try(c, s, bytes, vocab_is_control(v, token), next);
}

bool gram_mask_can_end(struct gram_mask *c, const struct gram_state *s)
{
    struct gram_walk w = mask_walk_from(c, s);
    for (uint32_t i = 0; i < s->threads_count; i++)
        if (gram_walk_can_end(&w, &s->threads[i]))
            return true;
    return false;
}

bool gram_mask_is_free(const struct gram_state *s)
{
    struct gram_walk w = {.g = s->gram};
    for (uint32_t i = 0; i < s->threads_count; i++)
        if (gram_walk_is_free(&w, &s->threads[i]))
            return true;
    return false;
}

bool gram_mask_is_done(struct gram_mask *c, const struct gram_state *s)
{
    (void)c;
    struct gram_walk w = {.g = s->gram};
    for (uint32_t i = 0; i < s->threads_count; i++)
        if (!gram_walk_is_done(&w, &s->threads[i]))
            return false;
    return s->threads_count > 0;
}

struct gram_mask_stats gram_mask_stats(const struct gram_mask *c) { return c->stats; }
