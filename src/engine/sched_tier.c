#include "engine/sched_tier.h"

#include <string.h>

#include "engine/sched_policy.h"

#define TIER_EARLY_TOKENS 512u /* BEHAVIOUR 8.12: such prefixes are written at the end of a turn */
#define TIER_HIGH_PERCENT 70u  /* ... and all of them once so much of the pool is taken */
#define TIER_LOW_PERCENT 60u
#define TIER_GAIN_MIN 32u      /* BEHAVIOUR 8.11: fewer tokens are no match */
#define TIER_STEP_BYTES ((size_t)2 << 20) /* copied beside a step, each way: a fraction of a ms */
#define TIER_REST_TIMES 19 /* it takes 1/20 of the thread beside others (NUMBERS 2026-11-30) */
#define TIER_REST_MIN_TIMES 0.67 /* as a prompt's rows: a step of 2.5 times its decoders' time */
#define TIER_REST_MAX_NS (200 * INT64_C(1000000)) /* far below TIER_STUCK_NS */
#define TIER_ASK_AGAIN 16u     /* each so-manieth refusal is tried all the same: disks change */
#define TIER_SCOPE_MAX 4096u
#define TIER_STUCK_NS (2 * INT64_C(1000000000)) /* nothing came back: nobody waits any longer */

/* --- to the tier --------------------------------------------------------------------------- */

/* Copies a page of the pool. False: it is there, or the tier has no room for it now. */
static bool sched_tier_put(struct sched_tier *t, uint32_t node, uint32_t group)
{
    struct kv_node *n = &t->o.trie->nodes[node];
    struct kv_tier_page p = {.key = *kv_trie_key(t->o.trie, node), .group = group,
                             .depth = n->depth};
    struct kv_ref ref = {.group = group, .index = n->pages[group]};
    struct err lost; /* the next step meets it, too */
    if (n->parent != KV_NODE_NONE)
        p.parent = *kv_trie_key(t->o.trie, n->parent);
    void *bytes = kv_tier_put(t->o.tier, &p);
    if (bytes)
        kv_tier_put_end(t->o.tier, t->o.backend->kv_get(t->o.device, ref, bytes, &lost));
    return bytes != NULL;
}

static void sched_tier_on_evicted(void *ctx, uint32_t node, uint32_t group)
{
    struct sched_tier *t = ctx;
    if (t->o.trie->nodes[node].count == KV_PAGE_TOKENS)
        sched_tier_put(t, node, group);
}

static void sched_tier_note(struct sched_tier *t, uint32_t node)
{
    if (t->line_count == t->line_max)
        return;
    t->line[(t->line_first + t->line_count++) % t->line_max] = node;
    t->o.trie->nodes[node].is_wanted = true;
}

/* Nodes of the path that were not noted yet, those near the root first. */
static void sched_tier_note_path(struct sched_tier *t, uint32_t node)
{
    const struct kv_node *nodes = t->o.trie->nodes;
    uint32_t count = 0;
    for (; node != KV_NODE_NONE && !nodes[node].is_wanted; node = nodes[node].parent)
        if (nodes[node].count == KV_PAGE_TOKENS && count < t->o.pages_max)
            t->nodes[count++] = node;
    while (count)
        sched_tier_note(t, t->nodes[--count]);
}

/* Deepest first: a child is used longer ago than its parent. */
static void sched_tier_touch(struct sched_tier *t, uint32_t node)
{
    const struct kv_node *nodes = t->o.trie->nodes;
    for (; node != KV_NODE_NONE; node = nodes[node].parent)
        for (uint32_t g = 0; nodes[node].has_key && g < t->o.layout->groups_count; g++)
            kv_tier_touch(t->o.tier, &nodes[node].key, g);
}

void sched_tier_keep(struct sched_tier *t, uint32_t node, bool is_end)
{
    if (!t->o.tier || node == KV_NODE_NONE)
        return;
    bool is_long = t->o.trie->nodes[node].depth * KV_PAGE_TOKENS >= TIER_EARLY_TOKENS;
    if (t->is_high || (is_end && is_long))
        sched_tier_note_path(t, node);
    if (is_end)
        sched_tier_touch(t, node);
}

/* Once above the mark everything that is in the tree is noted, in order of age, and from then on
 * what comes; a walk through the whole tree is rare. */
static void sched_tier_watch(struct sched_tier *t)
{
    uint64_t used = kv_pool_used(t->o.pool, 0), all = t->o.pool->groups[0].pages;
    bool was_high = t->is_high;
    t->is_high = used * 100 > all * (was_high ? TIER_LOW_PERCENT : TIER_HIGH_PERCENT);
    if (!t->is_high || was_high)
        return;
    for (uint32_t i = t->o.trie->oldest; i != KV_NODE_NONE; i = t->o.trie->nodes[i].newer)
        sched_tier_note_path(t, i);
}

/* The groups of one node. False: no room now. */
static bool sched_tier_write_node(struct sched_tier *t, uint32_t node, size_t *bytes)
{
    struct kv_node *n = &t->o.trie->nodes[node];
    if (!n->is_wanted) /* it was removed since */
        return true;
    for (uint32_t g = 0; g < t->o.layout->groups_count; g++) {
        if (n->pages[g] == KV_PAGE_NONE ||
            kv_tier_has(t->o.tier, kv_trie_key(t->o.trie, node), g))
            continue;
        if (!sched_tier_put(t, node, g))
            return false;
        *bytes += t->o.layout->page_size[g];
    }
    return true;
}

static void sched_tier_write(struct sched_tier *t, size_t bytes_max)
{
    size_t bytes = 0;
    while (t->line_count && bytes < bytes_max) {
        if (!sched_tier_write_node(t, t->line[t->line_first], &bytes))
            return;
        t->line_first = (t->line_first + 1) % t->line_max;
        t->line_count--;
    }
}

void sched_tier_flush(struct sched_tier *t, int64_t timeout_ms)
{
    struct kv_tier_got got;
    struct kv_tier_stats stats;
    if (!t->o.tier)
        return;
    int64_t left_ms = timeout_ms, begin_ms = chrono_ms(&t->o.clock);
    for (uint32_t i = t->o.trie->oldest; i != KV_NODE_NONE; i = t->o.trie->nodes[i].newer)
        sched_tier_note_path(t, i);
    do {
        sched_tier_write(t, SIZE_MAX);
        left_ms = timeout_ms - (chrono_ms(&t->o.clock) - begin_ms);
        kv_tier_flush(t->o.tier, left_ms);
        while (kv_tier_next(t->o.tier, &got)) /* of a restore that nobody waits for */
            kv_tier_got_end(t->o.tier, got.number);
        kv_tier_stats(t->o.tier, &stats);
    } while (t->line_count && left_ms > 0 && !stats.is_off);
}

/* --- what the tier has of a prompt --------------------------------------------------------- */

static uint8_t sched_tier_groups(const struct sched_tier *t, const struct kv_key *key)
{
    uint8_t in_tier = 0;
    for (uint32_t g = 0; g < t->o.layout->groups_count; g++)
        in_tier |= (uint8_t)(kv_tier_has(t->o.tier, key, g) << g);
    return in_tier;
}

static uint8_t sched_tier_whole_groups(const struct sched_tier *t)
{
    uint8_t whole = 0;
    for (uint32_t g = 0; g < t->o.layout->groups_count; g++)
        whole |= (uint8_t)((t->o.layout->window[g] == 0) << g);
    return whole;
}

/* The next level below those the tree has: the public page if there is one, else the scope's. */
static bool sched_tier_step(const struct sched_tier *t, struct sched_tier_level *l,
                            const struct sched_tier_level *above, str scope, const int32_t *tokens)
{
    uint8_t whole = sched_tier_whole_groups(t);
    bool can_be_public = !above || above->is_public;
    for (int is_public = can_be_public; is_public >= 0; is_public--) {
        if (!is_public && scope.len == 0)
            break;
        *l = (struct sched_tier_level){.is_public = is_public};
        kv_tier_key(&l->key, above ? &above->key : NULL, is_public ? STR("") : scope, tokens);
        l->in_tier = sched_tier_groups(t, &l->key);
        if ((l->in_tier & whole) == whole)
            return true;
    }
    return false;
}

static void sched_tier_step_tree(struct sched_tier *t, struct sched_tier_level *l, uint32_t node)
{
    const struct kv_node *n = &t->o.trie->nodes[node];
    *l = (struct sched_tier_level){.key = *kv_trie_key(t->o.trie, node),
                                   .is_public = kv_trie_is_public(t->o.trie, node)};
    l->in_tier = sched_tier_groups(t, &l->key);
    for (uint32_t g = 0; g < t->o.layout->groups_count; g++)
        l->in_trie |= (uint8_t)((n->pages[g] != KV_PAGE_NONE) << g);
}

/* Most levels whose last token finds the windows it sees: in the tree alone, or in both. */
static uint32_t sched_tier_deepest(const struct sched_tier *t,
                                   const struct sched_tier_level *levels, uint32_t count,
                                   bool with_tier)
{
    uint32_t best = 0, runs[KV_GROUPS_MAX] = {0};
    uint8_t whole = sched_tier_whole_groups(t);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t has = (uint8_t)(levels[i].in_trie | (with_tier ? levels[i].in_tier : 0));
        bool ok = (has & whole) == whole;
        if (!ok)
            return best;
        for (uint32_t g = 0; g < t->o.layout->groups_count; g++) {
            runs[g] = has >> g & 1 ? runs[g] + 1 : 0;
            uint32_t tokens = (i + 1) * KV_PAGE_TOKENS;
            uint32_t first = kv_trie_first_seen(t->o.layout, g, tokens);
            ok = ok && runs[g] >= i + 1 - base_min(first, i + 1);
        }
        best = ok ? i + 1 : best;
    }
    return best;
}

static bool sched_tier_wants(const struct sched_tier *t, const struct sched_tier_path *p,
                             uint32_t level, uint32_t group)
{
    uint32_t first = kv_trie_first_seen(t->o.layout, group, p->count * KV_PAGE_TOKENS);
    return !(p->levels[level].in_trie >> group & 1) && level >= first;
}

/* tokens[count] of which at least one is left to compute. */
static void sched_tier_look(struct sched_tier *t, struct sched_tier_path *p, str scope,
                            const int32_t *tokens, uint32_t count)
{
    uint32_t pages = (uint32_t)base_min((count - 1) / KV_PAGE_TOKENS, t->o.pages_max);
    uint32_t tree = kv_trie_path(t->o.trie, scope, tokens, pages * KV_PAGE_TOKENS, t->nodes);
    uint32_t i = 0;
    for (; i < tree; i++)
        sched_tier_step_tree(t, &p->levels[i], t->nodes[i]);
    while (i < pages && sched_tier_step(t, &p->levels[i], i ? &p->levels[i - 1] : NULL, scope,
                                        tokens + i * KV_PAGE_TOKENS))
        i++;
    p->known = sched_tier_deepest(t, p->levels, tree, false);
    p->count = sched_tier_deepest(t, p->levels, i, true);
    p->bytes = 0;
    for (i = 0; i < p->count; i++)
        for (uint32_t g = 0; g < t->o.layout->groups_count; g++)
            p->bytes += sched_tier_wants(t, p, i, g) ? t->o.layout->page_size[g] : 0;
}

/* --- from the tier ------------------------------------------------------------------------- */

static struct sched_tier_ahead *sched_tier_ahead_at(struct sched_tier *t, uint32_t i)
{
    return &t->ahead[(t->ahead_first + i) % SCHED_TIER_AHEAD];
}

/* No further level is asked for: behind one that is lost they are no use. */
static void sched_tier_cut(struct sched_tier *t, struct sched_tier_ahead *a)
{
    a->is_broken = true;
    t->stats.lost += !t->is_cut;
    t->is_cut = true;
}

static bool sched_tier_has_room(const struct sched_tier *t, uint32_t level)
{
    for (uint32_t g = 0; g < t->o.layout->groups_count; g++)
        if (sched_tier_wants(t, &t->path, level, g) && !kv_tier_room(t->o.tier, g))
            return false;
    return true;
}

/* Asks for levels in order as long as there are buffers. */
static void sched_tier_ask(struct sched_tier *t)
{
    while (!t->is_cut && t->next < t->path.count && t->ahead_count < SCHED_TIER_AHEAD &&
           sched_tier_has_room(t, t->next)) {
        struct sched_tier_ahead *a = sched_tier_ahead_at(t, t->ahead_count);
        *a = (struct sched_tier_ahead){.level = t->next};
        for (uint32_t g = 0; g < t->o.layout->groups_count && !a->is_broken; g++) {
            if (!sched_tier_wants(t, &t->path, t->next, g))
                continue;
            a->tickets[g] = kv_tier_get(t->o.tier, &t->path.levels[t->next].key, g);
            if (a->tickets[g] == KV_TIER_NONE)
                sched_tier_cut(t, a); /* it was forgotten since we looked */
            else
                a->wanted |= (uint8_t)(1u << g);
        }
        t->next++;
        t->ahead_count += a->wanted || a->is_broken;
    }
}

static void sched_tier_take(struct sched_tier *t, const struct kv_tier_got *got)
{
    for (uint32_t i = 0; i < t->ahead_count; i++) {
        struct sched_tier_ahead *a = sched_tier_ahead_at(t, i);
        for (uint32_t g = 0; g < t->o.layout->groups_count; g++) {
            uint8_t bit = (uint8_t)(1u << g);
            if (!(a->wanted & bit) || a->got & bit || a->tickets[g] != got->number)
                continue;
            a->got |= bit;
            a->bytes[g] = got->bytes;
            if (got->bytes)
                return;
            kv_tier_got_end(t->o.tier, got->number);
            sched_tier_cut(t, a);
            return;
        }
    }
    must(false); /* every ticket is of a level */
}

/* Gives back the buffers of the first level; all of it has come. */
static void sched_tier_pop(struct sched_tier *t)
{
    struct sched_tier_ahead *a = sched_tier_ahead_at(t, 0);
    for (uint32_t g = 0; g < t->o.layout->groups_count; g++)
        if (a->bytes[g])
            kv_tier_got_end(t->o.tier, a->tickets[g]);
    t->ahead_first = (t->ahead_first + 1) % SCHED_TIER_AHEAD;
    t->ahead_count--;
}

static uint32_t sched_tier_page(struct sched_tier *t, const struct sched_tier_turn *turn,
                                uint32_t group)
{
    uint32_t page = kv_pool_alloc(t->o.pool, group);
    if (page == KV_PAGE_NONE && turn->evict(turn->ctx, group))
        page = kv_pool_alloc(t->o.pool, group);
    return page;
}

/* The level's pages in the pool, at pages[g][level]. False: no page is free, nothing is held. */
static bool sched_tier_fill(struct sched_tier *t, const struct sched_tier_turn *turn,
                            const struct sched_tier_ahead *a)
{
    struct err lost; /* the next step meets it, too */
    bool ok = true;
    for (uint32_t g = 0; g < t->o.layout->groups_count; g++) {
        uint32_t page = KV_PAGE_NONE;
        if (ok && a->wanted >> g & 1) {
            page = sched_tier_page(t, turn, g);
            ok = page != KV_PAGE_NONE &&
                 t->o.backend->kv_set(t->o.device, (struct kv_ref){.group = g, .index = page},
                                      a->bytes[g], &lost);
        }
        t->pages[g][a->level] = page;
    }
    for (uint32_t g = 0; !ok && g < t->o.layout->groups_count; g++)
        if (t->pages[g][a->level] != KV_PAGE_NONE) {
            kv_pool_unref(t->o.pool, g, t->pages[g][a->level]);
            t->pages[g][a->level] = KV_PAGE_NONE;
        }
    return ok;
}

/* Levels [first, last) go into the tree, those seen by all under the public root. The path above
 * them may have been evicted meanwhile: then they are of no use. */
static bool sched_tier_insert(struct sched_tier *t, uint32_t first, uint32_t last)
{
    struct kv_pages p;
    uint32_t seen_by_all = 0;
    uint32_t there = kv_trie_path(t->o.trie, t->scope, t->ids, last * KV_PAGE_TOKENS, t->nodes);
    bool ok = there >= first;
    for (uint32_t i = there; ok && i < last; i++) /* a new node needs its pages */
        for (uint32_t g = 0; g < t->o.layout->groups_count; g++)
            ok = ok && (t->o.layout->window[g] || t->pages[g][i] != KV_PAGE_NONE);
    while (seen_by_all < last && t->path.levels[seen_by_all].is_public)
        seen_by_all++;
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) {
        p.pages[g] = t->pages[g];
        p.first[g] = first;
    }
    if (ok && seen_by_all > first)
        ok = kv_trie_insert(t->o.trie, STR(""), t->ids, seen_by_all * KV_PAGE_TOKENS, &p, false) !=
             KV_NODE_NONE;
    if (ok && last > seen_by_all)
        ok = kv_trie_insert(t->o.trie, t->scope, t->ids, last * KV_PAGE_TOKENS, &p, false) !=
             KV_NODE_NONE;
    for (uint32_t g = 0; g < t->o.layout->groups_count; g++)
        for (uint32_t i = first; i < last; i++)
            if (t->pages[g][i] != KV_PAGE_NONE)
                kv_pool_unref(t->o.pool, g, t->pages[g][i]);
    return ok;
}

static bool sched_tier_is_whole(const struct sched_tier_ahead *a)
{
    return (a->got & a->wanted) == a->wanted;
}

/* Levels that are there go into the pool and, those that follow each other at once, into the
 * tree. */
static void sched_tier_fetch(struct sched_tier *t, const struct sched_tier_turn *turn,
                             size_t bytes_max)
{
    uint32_t first = 0, count = 0;
    size_t bytes = 0;
    while (t->ahead_count && bytes < bytes_max) {
        struct sched_tier_ahead *a = sched_tier_ahead_at(t, 0);
        if (!sched_tier_is_whole(a) || a->is_broken || (count && a->level != first + count))
            break;
        if (!sched_tier_fill(t, turn, a)) {
            sched_tier_cut(t, a);
            break;
        }
        first = count ? first : a->level;
        count++;
        for (uint32_t g = 0; g < t->o.layout->groups_count; g++)
            bytes += a->wanted >> g & 1 ? t->o.layout->page_size[g] : 0;
        sched_tier_pop(t);
    }
    if (!count)
        return;
    bool ok = sched_tier_insert(t, first, first + count);
    t->stats.restored_tokens += ok ? (uint64_t)count * KV_PAGE_TOKENS : 0;
    for (uint32_t i = 0; !ok && i < t->ahead_count; i++)
        sched_tier_cut(t, sched_tier_ahead_at(t, i));
    t->is_cut = t->is_cut || !ok;
}

/* Behind a broken level everything is only waited for. */
static void sched_tier_sweep(struct sched_tier *t)
{
    while (t->ahead_count && t->is_cut) {
        struct sched_tier_ahead *a = sched_tier_ahead_at(t, 0);
        if (!sched_tier_is_whole(a) || !(a->is_broken || !t->restoring))
            return;
        for (uint32_t i = 0; i < t->ahead_count; i++)
            sched_tier_ahead_at(t, i)->is_broken = true;
        sched_tier_pop(t);
    }
}

/* A disk that does not answer costs those who wait so long, and no more. */
static void sched_tier_check(struct sched_tier *t, int64_t now_ns)
{
    if (!t->is_restoring || t->is_stuck || now_ns - t->progress_ns < TIER_STUCK_NS)
        return;
    t->is_stuck = t->is_cut = true;
    if (t->restoring)
        t->restoring->tier = SEQ_TIER_DONE;
    t->restoring = NULL;
}

static void sched_tier_end(struct sched_tier *t)
{
    bool is_all = t->is_cut || t->next == t->path.count;
    if (!t->is_restoring || t->ahead_count || !is_all)
        return;
    t->is_restoring = t->is_stuck = false;
    if (t->restoring)
        t->restoring->tier = SEQ_TIER_DONE;
    t->restoring = NULL;
}

/* Copies a step's share each way. */
static void sched_tier_copy(struct sched_tier *t, const struct sched_tier_turn *turn)
{
    size_t bytes_max = turn->is_idle ? SIZE_MAX : TIER_STEP_BYTES;
    if (t->is_restoring)
        sched_tier_fetch(t, turn, bytes_max);
    else
        sched_tier_write(t, bytes_max);
}

/* Beside running sequences it rests after each copy in proportion to what that took, so that most
 * steps have none: what a copy costs is not its bytes alone, the disk's thread takes a core. The
 * more requests wait for pages to come back the less it rests, until it takes what their prompts
 * would have taken: a fleet that comes back after a restart waits in one line. */
static int64_t sched_tier_rest(const struct sched_tier *t, uint32_t waiting, int64_t took_ns)
{
    double times = TIER_REST_TIMES;
    if (t->is_restoring && waiting > 1)
        times /= waiting;
    if (times < TIER_REST_MIN_TIMES)
        times = TIER_REST_MIN_TIMES;
    int64_t rest_ns = (int64_t)((double)took_ns * times);
    return rest_ns < TIER_REST_MAX_NS ? rest_ns : TIER_REST_MAX_NS;
}

static void sched_tier_copy_paced(struct sched_tier *t, const struct sched_tier_turn *turn)
{
    if (!turn->is_idle && turn->now_ns < t->rest_until_ns)
        return;
    int64_t begin_ns = chrono_ns(&t->o.clock);
    sched_tier_copy(t, turn);
    int64_t end_ns = chrono_ns(&t->o.clock);
    t->rest_until_ns = end_ns + sched_tier_rest(t, turn->waiting, end_ns - begin_ns);
}

void sched_tier_turn(struct sched_tier *t, const struct sched_tier_turn *turn)
{
    struct kv_tier_got got;
    if (!t->o.tier)
        return;
    if (!t->is_restoring)
        t->progress_ns = turn->now_ns;
    while (kv_tier_next(t->o.tier, &got)) {
        sched_tier_take(t, &got);
        t->progress_ns = turn->now_ns;
    }
    sched_tier_check(t, turn->now_ns);
    sched_tier_copy_paced(t, turn);
    if (t->is_restoring) {
        sched_tier_sweep(t);
        sched_tier_ask(t);
        sched_tier_end(t);
    }
    sched_tier_watch(t);
    if (turn->is_idle && !t->is_restoring) /* nothing may wake the thread again */
        sched_tier_write(t, SIZE_MAX);
}

/* --- life ----------------------------------------------------------------------------------- */

bool sched_tier_init(struct sched_tier *t, const struct sched_tier_options *o, struct err *e)
{
    *t = (struct sched_tier){.o = *o};
    if (!o->tier)
        return true;
    t->line_max = 2 * o->trie->nodes_max;
    const struct { void **p; size_t count, size; } arrays[] = {
        {(void **)&t->look.levels, o->pages_max, sizeof *t->look.levels},
        {(void **)&t->path.levels, o->pages_max, sizeof *t->path.levels},
        {(void **)&t->ids, (size_t)o->pages_max * KV_PAGE_TOKENS, sizeof *t->ids},
        {(void **)&t->scope_bytes, TIER_SCOPE_MAX, 1},
        {(void **)&t->nodes, o->pages_max, sizeof *t->nodes},
        {(void **)&t->line, t->line_max, sizeof *t->line},
        {(void **)&t->pages[0], (size_t)o->pages_max * KV_GROUPS_MAX, sizeof *t->pages[0]},
    };
    for (size_t i = 0; i < countof(arrays); i++) {
        *arrays[i].p = mem_new_array(o->mem, "tier", arrays[i].count, arrays[i].size, e);
        if (!*arrays[i].p)
            return false;
    }
    for (uint32_t g = 1; g < KV_GROUPS_MAX; g++)
        t->pages[g] = t->pages[0] + (size_t)g * o->pages_max;
    o->trie->evicted = (struct kv_trie_evicted){sched_tier_on_evicted, t};
    return true;
}

/* --- for the line of requests -------------------------------------------------------------- */

/* Every so often what was measured is doubted. */
static bool sched_tier_is_faster(struct sched_tier *t, const struct sched_tier_path *p,
                                 double prefill)
{
    struct kv_tier_stats stats;
    kv_tier_stats(t->o.tier, &stats);
    struct sched_restore r = {.bytes = (double)p->bytes,
                              .bytes_per_s = stats.read_bytes_per_s,
                              .tokens = (double)(p->count - p->known) * KV_PAGE_TOKENS,
                              .tokens_per_s = prefill};
    if (sched_policy_restores(&r) || ++t->refusals % TIER_ASK_AGAIN == 0)
        return true;
    t->stats.skipped++;
    return false;
}

static void sched_tier_start(struct sched_tier *t, struct seq *q)
{
    struct sched_tier_path looked = t->look;
    str scope = q->job->rq.scope;
    t->look = t->path; /* the arrays change places */
    t->path = looked;
    memcpy(t->ids, seq_ids(q), (size_t)t->path.count * KV_PAGE_TOKENS * sizeof *t->ids);
    if (scope.len)
        memcpy(t->scope_bytes, scope.p, scope.len);
    t->scope = str_view(t->scope_bytes, scope.len);
    t->restoring = q;
    t->is_restoring = true;
    t->is_cut = false;
    t->next = 0;
    t->stats.restores++;
    q->tier = SEQ_TIER_RESTORING;
    sched_tier_ask(t);
}

bool sched_tier_waits(struct sched_tier *t, struct seq *q, double prefill)
{
    if (!t->o.tier || q->tier == SEQ_TIER_DONE)
        return false;
    if (q->tier == SEQ_TIER_RESTORING ||
        (q->tier == SEQ_TIER_TURN && t->is_restoring && !t->is_stuck))
        return true;
    const struct api_request *rq = &q->job->rq;
    q->tier = SEQ_TIER_DONE;
    if (rq->cache == API_CACHE_OFF || t->is_stuck || rq->scope.len > TIER_SCOPE_MAX ||
        seq_count(q) <= TIER_GAIN_MIN)
        return false;
    sched_tier_look(t, &t->look, rq->scope, seq_ids(q), seq_count(q));
    if (t->look.count == t->look.known || !sched_tier_is_faster(t, &t->look, prefill))
        return false;
    if (t->is_restoring) {
        q->tier = SEQ_TIER_TURN;
        return true;
    }
    sched_tier_start(t, q);
    return true;
}

void sched_tier_forget(struct sched_tier *t, const struct seq *q)
{
    if (t->restoring != q)
        return;
    t->restoring = NULL;
    t->is_cut = true;
}

void sched_tier_deinit(struct sched_tier *t)
{
    for (; t->ahead_count; t->ahead_count--, t->ahead_first++) {
        struct sched_tier_ahead *a = sched_tier_ahead_at(t, 0);
        for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
            if (a->bytes[g])
                kv_tier_got_end(t->o.tier, a->tickets[g]);
    }
    if (t->o.tier)
        t->o.trie->evicted = (struct kv_trie_evicted){NULL, NULL};
    t->is_restoring = false;
}
