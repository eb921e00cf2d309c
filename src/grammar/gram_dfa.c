#include "grammar/gram_dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "grammar/gram_prog.h"

#define DFA_BYTES_MAX ((size_t)48 << 20)
#define DFA_UNKNOWN (UINT32_MAX - 2)
/* A whole table is made at once up to here: about a millisecond. */
#define DFA_WHOLE_STATES 4096u
#define DFA_WHOLE_BYTES ((size_t)4 << 20)
#define DFA_WHOLE_WORK (2u << 20)
#define DFA_LENGTHS_WORK (64u << 20) /* of the table of lengths, in bits looked at */

struct gram_dfa {
    struct arena arena;
    struct gram_prog prog;
    struct gram_prog_part parts[GRAM_DFA_PARTS_MAX];
    uint32_t parts_count;
    struct gram_dfa_span span;
    uint8_t classes[256];  /* bytes that no node tells apart */
    uint8_t example[256];  /* one byte of each */
    uint32_t classes_count;
    struct gram_dfa_table *whole;
    uint64_t *lengths; /* bit count * states + state: the span can be kept; below span.min */
};

struct dfa_state {
    const uint32_t *set; /* nodes, ascending */
    uint32_t count;
    uint32_t dist; /* fewest code points until it accepts */
    bool accepts, is_last, is_open;
};

struct gram_dfa_table {
    struct arena arena; /* sets, and this */
    const struct gram_dfa *d;
    struct buf states, ways; /* dfa_state; uint32_t [state][class] */
    struct map sets;
    size_t bytes_max;
    uint64_t work;
    uint32_t mark;
    uint32_t *marks, *found; /* [nodes] */
    uint32_t *stack;         /* [2 * nodes + 2]: a node may wait there more than once */
    uint32_t start;
};

static struct dfa_state *dfa_state(const struct gram_dfa_table *t, uint32_t s)
{
    return (struct dfa_state *)(void *)t->states.p + s;
}
static uint32_t dfa_count(const struct gram_dfa_table *t)
{
    return (uint32_t)(t->states.len / sizeof(struct dfa_state));
}
static uint32_t *dfa_way(const struct gram_dfa_table *t, uint32_t s, uint32_t class)
{
    return (uint32_t *)(void *)t->ways.p + (size_t)s * t->d->classes_count + class;
}
static bool dfa_is_inner(uint8_t byte) { return byte >= 0x80 && byte < 0xc0; }

/* --- building ------------------------------------------------------------------------------ */

struct gram_dfa *gram_dfa_new(void)
{
    struct arena a;
    arena_init(&a, DFA_BYTES_MAX);
    struct gram_dfa *d = ARENA_NEW(&a, struct gram_dfa);
    if (!d) {
        arena_deinit(&a);
        return NULL;
    }
    d->arena = a;
    buf_init(&d->prog.nodes, (size_t)GRAM_DFA_NODES_MAX * sizeof(struct gram_prog_node));
    return d;
}

void gram_dfa_free(struct gram_dfa *d)
{
    if (!d)
        return;
    struct arena a = d->arena;
    gram_dfa_table_free(d->whole);
    buf_deinit(&d->prog.nodes);
    arena_deinit(&a);
}

bool gram_dfa_add(struct gram_dfa *d, str pattern, bool is_search, struct err *e)
{
    if (d->parts_count == GRAM_DFA_PARTS_MAX)
        return err_set(e, ERR_LIMIT, "more than %u patterns for one text", GRAM_DFA_PARTS_MAX);
    if (!gram_prog_add(&d->prog, pattern, is_search, &d->parts[d->parts_count], e))
        return false;
    d->parts_count++;
    return true;
}

static void dfa_make_classes(struct gram_dfa *d)
{
    bool border[257] = {[0] = true, [0x80] = true, [0xc0] = true};
    for (uint32_t i = 0; i < gram_prog_count(&d->prog); i++) {
        const struct gram_prog_node *n = gram_prog_at(&d->prog, i);
        if (n->kind == GRAM_PROG_RANGE && n->low <= n->high) {
            border[n->low] = true;
            border[n->high + 1] = true;
        }
    }
    uint32_t count = 0;
    for (uint32_t b = 0; b < 256; b++) {
        count += border[b];
        d->classes[b] = (uint8_t)(count - 1);
        d->example[count - 1] = (uint8_t)b;
    }
    d->classes_count = count;
}

/* --- the table ----------------------------------------------------------------------------- */

struct gram_dfa_table *gram_dfa_table_new(const struct gram_dfa *d, size_t bytes_max)
{
    struct arena a;
    uint32_t nodes = gram_prog_count(&d->prog);
    arena_init(&a, bytes_max + (size_t)nodes * 20 + 65536);
    struct gram_dfa_table *t = ARENA_NEW(&a, struct gram_dfa_table);
    uint32_t *marks = t ? ARENA_ARRAY(&a, uint32_t, nodes) : NULL;
    uint32_t *stack = marks ? ARENA_ARRAY(&a, uint32_t, 2 * (size_t)nodes + 2) : NULL;
    uint32_t *found = stack ? ARENA_ARRAY(&a, uint32_t, nodes) : NULL;
    if (!found) {
        arena_deinit(&a);
        return NULL;
    }
    *t = (struct gram_dfa_table){.arena = a, .d = d, .bytes_max = bytes_max, .marks = marks,
                                 .stack = stack, .found = found, .start = DFA_UNKNOWN};
    buf_init(&t->states, bytes_max);
    buf_init(&t->ways, bytes_max);
    map_init(&t->sets, UINT32_MAX / 4);
    return t;
}

void gram_dfa_table_free(struct gram_dfa_table *t)
{
    if (!t)
        return;
    struct arena a = t->arena;
    buf_deinit(&t->states);
    buf_deinit(&t->ways);
    map_deinit(&t->sets);
    arena_deinit(&a);
}

size_t gram_dfa_table_size(const struct gram_dfa_table *t)
{
    return t->arena.bytes_used + t->states.size + t->ways.size +
           (size_t)t->sets.entries_size * sizeof(struct map_entry) +
           (size_t)t->sets.slots_size * 8;
}

uint64_t gram_dfa_table_work(const struct gram_dfa_table *t) { return t->work; }

/* Adds to found what can be read next from node on, without a byte; returns the new count. Sets
 * *is_open when the loop behind a search is among it. */
static uint32_t dfa_close(struct gram_dfa_table *t, uint32_t node, bool at_start, uint32_t count,
                          bool *is_open, uint32_t open)
{
    uint32_t depth = 0;
    t->stack[depth++] = node;
    while (depth) {
        uint32_t i = t->stack[--depth];
        if (t->marks[i] == t->mark)
            continue;
        t->marks[i] = t->mark;
        t->work++;
        *is_open = *is_open || i == open;
        const struct gram_prog_node *n = gram_prog_at(&t->d->prog, i);
        switch ((enum gram_prog_kind)n->kind) {
        case GRAM_PROG_ACCEPT:
            t->found[count++] = i;
            break;
        case GRAM_PROG_RANGE:
            if (n->dist != GRAM_DFA_FAR)
                t->found[count++] = i;
            break;
        case GRAM_PROG_END:
            if (n->ends)
                t->found[count++] = i;
            break;
        case GRAM_PROG_BEGIN:
            if (at_start && t->marks[n->out] != t->mark)
                t->stack[depth++] = n->out;
            break;
        case GRAM_PROG_SPLIT:
            if (t->marks[n->other] != t->mark)
                t->stack[depth++] = n->other;
            if (t->marks[n->out] != t->mark)
                t->stack[depth++] = n->out;
            break;
        }
    }
    return count;
}

static int dfa_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* What the nodes of one part say: found[from .. to). False: none, so the state is dead. */
static bool dfa_judge(const struct gram_dfa_table *t, uint32_t from, uint32_t to,
                      struct dfa_state *s)
{
    bool ends = false;
    uint32_t dist = GRAM_DFA_FAR;
    for (uint32_t i = from; i < to; i++) {
        const struct gram_prog_node *n = gram_prog_at(&t->d->prog, t->found[i]);
        ends = ends || n->kind == GRAM_PROG_ACCEPT || n->kind == GRAM_PROG_END;
        s->is_last = s->is_last && n->kind != GRAM_PROG_RANGE;
        dist = n->dist < dist ? n->dist : dist;
    }
    s->accepts = s->accepts && ends;
    s->dist = s->dist > dist ? s->dist : dist;
    return to > from;
}

static uint32_t dfa_intern(struct gram_dfa_table *t, uint32_t count, struct dfa_state *s)
{
    str key = str_view(t->found, count * sizeof *t->found);
    const uint64_t *old = map_find(&t->sets, key);
    if (old)
        return (uint32_t)*old;
    uint32_t id = dfa_count(t), classes = t->d->classes_count;
    if (gram_dfa_table_size(t) + key.len + 4 * (size_t)classes > t->bytes_max + 65536 ||
        !buf_reserve(&t->ways, classes * sizeof(uint32_t)))
        return GRAM_DFA_FULL;
    uint32_t *set = ARENA_ARRAY(&t->arena, uint32_t, count);
    if (!set)
        return GRAM_DFA_FULL;
    if (count)
        memcpy(set, t->found, key.len);
    s->set = set;
    s->count = count;
    if (!buf_add_bytes(&t->states, s, sizeof *s))
        return GRAM_DFA_FULL;
    if (!map_put(&t->sets, str_view(set, key.len), id)) {
        t->states.len -= sizeof *s;
        return GRAM_DFA_FULL;
    }
    uint32_t unknown = DFA_UNKNOWN;
    for (uint32_t c = 0; c < classes; c++)
        buf_add_bytes(&t->ways, &unknown, sizeof unknown);
    return id;
}

/* The state behind a byte from `state`, or the first one (state DFA_UNKNOWN). */
static uint32_t dfa_make(struct gram_dfa_table *t, uint32_t state, uint8_t byte)
{
    const struct gram_dfa *d = t->d;
    struct dfa_state s = {.accepts = true, .is_last = true, .is_open = true};
    bool at_start = state == DFA_UNKNOWN;
    uint32_t count = 0, at = 0;
    t->mark++;
    for (uint32_t p = 0; p < d->parts_count; p++) {
        const struct gram_prog_part *part = &d->parts[p];
        uint32_t from = count;
        bool is_open = false;
        if (at_start)
            count = dfa_close(t, part->start, true, count, &is_open, part->open);
        for (; !at_start && at < dfa_state(t, state)->count; at++) {
            uint32_t i = dfa_state(t, state)->set[at];
            const struct gram_prog_node *n = gram_prog_at(&d->prog, i);
            if (i >= part->last)
                break;
            t->work++;
            if (n->kind == GRAM_PROG_RANGE && n->low <= byte && byte <= n->high)
                count = dfa_close(t, n->out, false, count, &is_open, part->open);
        }
        if (is_open) { /* whatever else was found: all texts from here on are accepted */
            bool ignored = false;
            t->mark++;
            count = dfa_close(t, part->open, false, from, &ignored, part->open);
        }
        s.is_open = s.is_open && is_open;
        if (count - from > 1)
            qsort(t->found + from, count - from, sizeof *t->found, dfa_compare);
        if (!dfa_judge(t, from, count, &s))
            return GRAM_DFA_DEAD;
    }
    return dfa_intern(t, count, &s);
}

uint32_t gram_dfa_start(struct gram_dfa_table *t)
{
    if (t->start == DFA_UNKNOWN) {
        uint32_t s = dfa_make(t, DFA_UNKNOWN, 0);
        if (s == GRAM_DFA_FULL)
            return s;
        t->start = s;
    }
    return t->start;
}

uint32_t gram_dfa_next(struct gram_dfa_table *t, uint32_t state, uint8_t byte)
{
    uint32_t class = t->d->classes[byte], to = *dfa_way(t, state, class);
    if (to != DFA_UNKNOWN)
        return to;
    to = dfa_make(t, state, byte);
    if (to != GRAM_DFA_FULL)
        *dfa_way(t, state, class) = to;
    return to;
}

bool gram_dfa_accepts(const struct gram_dfa_table *t, uint32_t s)
{
    return dfa_state(t, s)->accepts;
}

bool gram_dfa_is_last(const struct gram_dfa_table *t, uint32_t s)
{
    return dfa_state(t, s)->is_last;
}

bool gram_dfa_is_open(const struct gram_dfa_table *t, uint32_t s)
{
    return dfa_state(t, s)->is_open;
}

bool gram_dfa_fits(const struct gram_dfa_table *t, uint32_t state, uint32_t count)
{
    const struct gram_dfa_span *span = &t->d->span;
    if (span->max != GRAM_DFA_FAR &&
        (count > span->max || dfa_state(t, state)->dist > span->max - count))
        return false;
    if (count >= span->min || !t->d->lengths)
        return true;
    size_t bit = (size_t)count * dfa_count(t) + state;
    return t->d->lengths[bit / 64] >> bit % 64 & 1;
}

/* --- the whole table ----------------------------------------------------------------------- */

/* Makes every state; false when that is too much. */
static bool dfa_explore(struct gram_dfa_table *t)
{
    uint32_t start = gram_dfa_start(t);
    if (start == GRAM_DFA_FULL)
        return false;
    for (uint32_t s = 0; s < dfa_count(t); s++)
        for (uint32_t c = 0; c < t->d->classes_count; c++)
            if (gram_dfa_next(t, s, t->d->example[c]) == GRAM_DFA_FULL ||
                dfa_count(t) > DFA_WHOLE_STATES || t->work > DFA_WHOLE_WORK)
                return false;
    return true;
}

/* Exact distances by going back from what accepts, then no way leads to where nothing does. States
 * were made breadth first, so most passes are one. */
static void dfa_prune(struct gram_dfa_table *t)
{
    uint32_t n = dfa_count(t), classes = t->d->classes_count;
    for (uint32_t s = 0; s < n; s++)
        dfa_state(t, s)->dist = dfa_state(t, s)->accepts ? 0 : GRAM_DFA_FAR;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t s = n; s-- > 0;)
            for (uint32_t c = 0; c < classes; c++) {
                uint32_t to = *dfa_way(t, s, c);
                uint32_t far = to < n ? dfa_state(t, to)->dist : GRAM_DFA_FAR;
                uint32_t dist = far == GRAM_DFA_FAR
                                    ? far : far + !dfa_is_inner(t->d->example[c]);
                if (dist < dfa_state(t, s)->dist) {
                    dfa_state(t, s)->dist = dist;
                    changed = true;
                }
            }
    }
    for (uint32_t s = 0; s < n; s++) {
        bool is_last = dfa_state(t, s)->accepts;
        for (uint32_t c = 0; c < classes; c++) {
            uint32_t *to = dfa_way(t, s, c);
            if (*to < n && dfa_state(t, *to)->dist == GRAM_DFA_FAR)
                *to = GRAM_DFA_DEAD;
            is_last = is_last && *to == GRAM_DFA_DEAD;
        }
        dfa_state(t, s)->is_last = is_last;
    }
}

static bool dfa_bit(const uint64_t *bits, size_t i) { return bits[i / 64] >> i % 64 & 1; }

/* Below span.min code points a state is good if from it exactly so many more can be read that the
 * span is kept: bits filled from span.min down. Bytes inside a character change state only: three
 * passes. */
static bool dfa_lengths(struct gram_dfa *d, struct err *e)
{
    const struct gram_dfa_table *t = d->whole;
    uint32_t n = dfa_count(t), min = d->span.min;
    uint64_t work = ((uint64_t)min + 1) * n * d->classes_count;
    if (work > DFA_LENGTHS_WORK)
        return err_set(e, ERR_LIMIT, "a pattern with at least %u characters is too large", min);
    uint64_t *bits = ARENA_ARRAY(&d->arena, uint64_t, ((size_t)min + 1) * n / 64 + 1);
    if (!bits)
        return err_set(e, ERR_LIMIT, "a pattern with at least %u characters is too large", min);
    for (uint32_t s = 0; s < n; s++) {
        uint32_t dist = dfa_state(t, s)->dist;
        size_t bit = (size_t)min * n + s;
        if (dist != GRAM_DFA_FAR && (d->span.max == GRAM_DFA_FAR || dist <= d->span.max - min))
            bits[bit / 64] |= UINT64_C(1) << bit % 64;
    }
    for (uint32_t count = min; count-- > 0;)
        for (int pass = 0; pass < 3; pass++)
            for (uint32_t s = 0; s < n; s++)
                for (uint32_t c = 0; c < d->classes_count; c++) {
                    uint32_t to = *dfa_way(t, s, c);
                    size_t bit = (size_t)count * n + s;
                    size_t of = (size_t)(count + !dfa_is_inner(d->example[c])) * n + to;
                    if (to < n && dfa_bit(bits, of))
                        bits[bit / 64] |= UINT64_C(1) << bit % 64;
                }
    d->lengths = bits;
    return true;
}

/* Without a whole table: the program knows the shortest text from the first state, which may stand
 * behind a "^", and nothing shorter. */
static bool dfa_check_start(struct gram_dfa_table *t, struct err *e)
{
    uint32_t start = gram_dfa_start(t), max = t->d->span.max;
    if (start == GRAM_DFA_FULL)
        return err_set(e, ERR_LIMIT, "a pattern is too large");
    if (start == GRAM_DFA_DEAD || dfa_state(t, start)->dist == GRAM_DFA_FAR)
        return err_set(e, ERR_REQUEST, "nothing can match");
    return max == GRAM_DFA_FAR || dfa_state(t, start)->dist <= max ||
           err_set(e, ERR_REQUEST, "nothing of this length can match");
}

bool gram_dfa_finish(struct gram_dfa *d, struct gram_dfa_span span, struct err *e)
{
    d->span = span;
    dfa_make_classes(d);
    struct gram_dfa_table *t = gram_dfa_table_new(d, DFA_WHOLE_BYTES);
    if (!t)
        return err_set(e, ERR_MEMORY, "pattern: no memory");
    if (!dfa_explore(t)) {
        bool ok = dfa_check_start(t, e);
        gram_dfa_table_free(t);
        if (ok && d->parts_count > 1)
            return err_set(e, ERR_LIMIT, "patterns that must hold at once are too large");
        if (ok && span.min)
            return err_set(e, ERR_LIMIT, "a pattern with a least length is too large");
        return ok;
    }
    d->whole = t;
    if (gram_dfa_start(t) != GRAM_DFA_DEAD)
        dfa_prune(t);
    if (gram_dfa_start(t) == GRAM_DFA_DEAD || dfa_state(t, t->start)->dist == GRAM_DFA_FAR)
        return err_set(e, ERR_REQUEST, "nothing can match");
    if (span.min && !dfa_lengths(d, e))
        return false;
    return gram_dfa_fits(t, t->start, 0) ||
           err_set(e, ERR_REQUEST, "nothing of this length can match");
}

size_t gram_dfa_size(const struct gram_dfa *d)
{
    return d->arena.bytes_used + d->prog.nodes.size +
           (d->whole ? gram_dfa_table_size(d->whole) : 0);
}

struct gram_dfa_table *gram_dfa_whole(const struct gram_dfa *d) { return d->whole; }
