/* The definition of op sample and op top_k (BEHAVIOUR 7.2), and at every level their code: what
 * takes time, the largest logit and the sums of exp, goes through the kernel table.
 *
 *   work = logits, adjusted and masked (-inf: not allowed)
 *   no limit is on:  keep all
 *   top_k:           list of the k best: value falls, then id rises
 *   typical_p:       list by |surprise - entropy|, until its probability passes typical_p
 *   top_p:           list by probability, until its probability reaches top_p
 *   min_p:           those at least min_p times as probable as the best
 *   draw:            w = exp((logit - best) / temperature), summed by blocks of 256 ids in 16
 *                    lanes; blocks ascending, then ids ascending, until the sum passes u * total
 *
 * Probabilities before the draw have temperature 1. With top_k their sum runs over the list in rank
 * order, without over all ids by blocks of 256. At least one token is always kept. */
#include <string.h>

#include "cpu/cpu_kernels.h"
#include "cpu/vmath.h"
#include "tensor/sample.h"

#define BLOCK 256u

/* A candidate. key orders a list: ranks fall by logit, typical ones rise by distance. */
struct item {
    float key;
    int32_t id;
};

/* The scratch: room for every id as an item, for its e, for the sums of blocks. */
struct room {
    struct item *items;
    float *e, *sums;
};

static struct room room_of(const struct sample_args *a)
{
    struct room r = {.items = a->scratch};
    r.e = (float *)(void *)(r.items + a->vocab);
    r.sums = r.e + a->vocab;
    return r;
}

static size_t blocks_of(const struct sample_args *a) { return (a->vocab + BLOCK - 1) / BLOCK; }

/* ---- kernels ---- */

static float row_max(const float *x, size_t count)
{
    float max = -INFINITY;
    for (size_t i = 0; i < count; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

static void exp_sums(const struct exp_sums_args *a)
{
    for (size_t first = 0; first < a->count; first += BLOCK) {
        float lane[VMATH_LANES] = {0};
        for (size_t i = first; i < base_min(first + BLOCK, a->count); i++) {
            float e = vmath_exp((a->x[i] - a->max) * a->scale);
            lane[i % VMATH_LANES] += e;
            if (a->e)
                a->e[i] = e;
        }
        a->sums[first / BLOCK] = vmath_tree(lane);
    }
}

static float sum_blocks(const float *sums, size_t blocks)
{
    float total = 0.0f;
    for (size_t b = 0; b < blocks; b++)
        total += sums[b];
    return total;
}

static float sum_exp(const struct sample_args *a, const float *x, float max, float *e)
{
    struct room r = room_of(a);
    struct exp_sums_args s = {
        .x = x, .sums = r.sums, .e = e, .count = a->vocab, .max = max, .scale = 1.0f};
    a->k->exp_sums(&s);
    return sum_blocks(r.sums, blocks_of(a));
}

static void logits_adjust(const struct sample_args *a)
{
    memcpy(a->work, a->logits, a->vocab * sizeof(float));
    for (uint32_t i = 0; i < a->adjust_count; i++) {
        const struct logit_adjust *j = &a->adjust[i];
        float x = a->work[j->id];
        a->work[j->id] = (x > 0.0f ? x / j->factor : x * j->factor) + j->add;
    }
    if (!a->mask)
        return;
    for (uint32_t w = 0; w < (a->vocab + 31) / 32; w++) {
        if (a->mask[w] == UINT32_MAX)
            continue;
        for (uint32_t id = w * 32; id < base_min(a->vocab, w * 32 + 32); id++)
            if (!(a->mask[w] >> id % 32 & 1))
                a->work[id] = -INFINITY;
    }
}

/* ---- lists ---- */

static bool ranks_before(struct item a, struct item b)
{
    return a.key > b.key || (a.key == b.key && a.id < b.id);
}

/* A heap whose first item ranks last (top_k: the one to drop) or first (is_best). */
static bool heap_above(struct item a, struct item b, bool is_best)
{
    return is_best ? ranks_before(a, b) : ranks_before(b, a);
}

static void heap_sink(struct item *heap, uint32_t count, uint32_t at, bool is_best)
{
    struct item x = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap_above(heap[child + 1], heap[child], is_best))
            child++;
        if (!heap_above(heap[child], x, is_best))
            break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

static void heap_make(struct item *heap, uint32_t count, bool is_best)
{
    for (uint32_t i = count / 2; i-- > 0;)
        heap_sink(heap, count, i, is_best);
}

/* Takes items off a best-first heap: the i-th best ends at heap[count - 1 - i]. */
static struct item heap_take(struct item *heap, uint32_t *count, bool is_best)
{
    struct item x = heap[0];
    heap[0] = heap[--*count];
    heap[*count] = x;
    heap_sink(heap, *count, 0, is_best);
    return x;
}

/* The k best of x in rank order; fewer if fewer are above -inf. */
static uint32_t list_best(struct item *list, uint32_t k, const float *x, uint32_t vocab)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < vocab; id++) {
        if (!(x[id] > (count == k ? list[0].key : -INFINITY)))
            continue; /* ids ascend: an equal logit ranks behind */
        struct item n = {x[id], (int32_t)id};
        if (count == k) {
            list[0] = n;
            heap_sink(list, count, 0, false);
        } else {
            list[count++] = n;
            if (count == k)
                heap_make(list, count, false);
        }
    }
    if (count < k)
        heap_make(list, count, false);
    for (uint32_t left = count; left > 1;) /* the worst goes to the end: ranks ascend */
        heap_take(list, &left, false);
    return count;
}

/* ---- limits: each shortens a list ---- */

struct kept {
    struct item *items; /* rank order unless is_heap */
    uint32_t count;
    bool is_heap;     /* best first */
    float best, total; /* largest logit; sum of exp(logit - best) over all that was kept before */
};

/* The least e that can matter: a heap of the whole vocabulary would take longer than all else. An
 * id below min_p falls out in the end. top_p takes the best ids first, so it never gets to ids
 * below a border if those above it hold enough, by a margin for the order of sums. */
static float least_of(const struct sample_args *a, const float *e, float total)
{
    const struct sample_row *row = a->row;
    float least = row->typical_p < 1.0f ? 0.0f : fminf(row->min_p, 1.0f);
    static const float borders[] = {1.0f / 64, 1.0f / 4096};
    for (size_t b = 0; b < countof(borders) && row->typical_p >= 1.0f; b++) {
        float sum = 0.0f;
        for (uint32_t id = 0; id < a->vocab; id++)
            sum += e[id] >= borders[b] ? e[id] : 0.0f;
        if (borders[b] > least && sum > 1.01f * row->top_p * total)
            return borders[b];
    }
    return least;
}

/* The ids that can still be drawn, as a heap. */
static struct kept keep_all(const struct sample_args *a)
{
    struct room r = room_of(a);
    struct kept k = {.items = r.items, .is_heap = true, .best = a->k->row_max(a->work, a->vocab)};
    k.total = sum_exp(a, a->work, k.best, r.e);
    float least = least_of(a, r.e, k.total);
    for (uint32_t id = 0; id < a->vocab; id++)
        if (r.e[id] > 0.0f && r.e[id] >= least)
            k.items[k.count++] = (struct item){a->work[id], (int32_t)id};
    heap_make(k.items, k.count, true);
    return k;
}

static void sum_list(struct kept *k)
{
    float lane[VMATH_LANES] = {0};
    k->best = k->items[0].key;
    for (uint32_t i = 0; i < k->count; i++)
        lane[i % VMATH_LANES] += vmath_exp(k->items[i].key - k->best);
    k->total = vmath_tree(lane);
}

static void sort(struct item *items, uint32_t count)
{
    heap_make(items, count, false);
    for (uint32_t left = count; left > 1;)
        heap_take(items, &left, false);
}

static void limit_typical(struct kept *k, const struct sample_args *a)
{
    float log_total = vmath_log(k->total), entropy = 0.0f;
    if (k->is_heap)
        sort(k->items, k->count);
    k->is_heap = false;
    for (uint32_t i = 0; i < k->count; i++) {
        float surprise = log_total - (k->items[i].key - k->best);
        entropy = fmaf(vmath_exp(-surprise), surprise, entropy);
    }
    for (uint32_t i = 0; i < k->count; i++) /* the nearest to the entropy ranks first */
        k->items[i].key = -fabsf(log_total - (k->items[i].key - k->best) - entropy);
    sort(k->items, k->count);
    float sum = 0.0f;
    uint32_t count = 0;
    while (count < k->count && !(sum > a->row->typical_p)) {
        struct item *x = &k->items[count++];
        x->key = a->work[x->id];
        sum += vmath_exp(x->key - k->best - log_total);
    }
    k->count = count;
    sort(k->items, k->count);
    sum_list(k);
}

static void limit_top_p(struct kept *k, float top_p)
{
    float need = top_p * k->total, sum = 0.0f;
    uint32_t count = 0, left = k->count;
    while (count < k->count && (count == 0 || sum < need)) {
        struct item x = k->is_heap ? heap_take(k->items, &left, true) : k->items[count];
        sum += vmath_exp(x.key - k->best);
        count++;
    }
    if (k->is_heap) /* taken items lie at the end, the best last */
        for (uint32_t i = 0; i < count; i++) {
            struct item *x = &k->items[k->count - 1 - i], *y = &k->items[i];
            if (x <= y)
                break;
            struct item t = *x;
            *x = *y;
            *y = t;
        }
    k->count = count;
    k->is_heap = false;
}

static void limit_min_p(struct kept *k, float min_p)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < k->count; i++)
        if (i == 0 || vmath_exp(k->items[i].key - k->best) >= min_p)
            k->items[count++] = k->items[i]; /* a heap's first item is the best too */
    k->count = count;
    k->is_heap = false;
}

/* ---- draw ---- */

/* By rising id, each key the logit again. Ids are exact in a float: a vocabulary has fewer than
 * 2^24. No qsort: it may allocate. */
static void sort_by_id(struct kept *k, const float *logit)
{
    for (uint32_t i = 0; i < k->count; i++)
        k->items[i].key = -(float)k->items[i].id;
    sort(k->items, k->count);
    for (uint32_t i = 0; i < k->count; i++)
        k->items[i].key = logit[k->items[i].id];
}

static int32_t find_dense(const struct sample_args *a, const struct room *r, float target)
{
    float sum = 0.0f;
    size_t b = 0, last = 0;
    for (; b < blocks_of(a); b++) {
        if (target < sum + r->sums[b])
            break;
        last = r->sums[b] > 0.0f ? b : last;
        sum += r->sums[b];
    }
    b = b < blocks_of(a) ? b : last; /* rounding: the target was the whole sum */
    int32_t id = -1;
    for (size_t i = b * BLOCK; i < base_min((b + 1) * BLOCK, a->vocab); i++) {
        if (!(r->e[i] > 0.0f))
            continue;
        id = (int32_t)i;
        sum += r->e[i];
        if (target < sum)
            break;
    }
    return id;
}

/* The same over a list in order of ids: blocks without an item would add nothing. */
static int32_t find_listed(const struct item *list, uint32_t count, const float *e, float u)
{
    float total = 0.0f, sum = 0.0f;
    for (int pass = 0; pass < 2; pass++) {
        float target = u * total;
        for (uint32_t i = 0, end; i < count; i = end) {
            float lane[VMATH_LANES] = {0};
            for (end = i; end < count && list[end].id / (int32_t)BLOCK ==
                                             list[i].id / (int32_t)BLOCK; end++)
                lane[(uint32_t)list[end].id % VMATH_LANES] += e[end];
            float block = vmath_tree(lane);
            if (pass == 0) {
                total += block;
                continue;
            }
            if (!(target < sum + block) && end < count) {
                sum += block;
                continue;
            }
            for (uint32_t j = i; j < end; j++) {
                sum += e[j];
                if (target < sum || j + 1 == end)
                    return list[j].id;
            }
        }
    }
    return -1;
}

static int32_t draw_listed(const struct sample_args *a, struct kept *k, float u)
{
    struct room r = room_of(a);
    float scale = 1.0f / a->row->temperature, best = -INFINITY;
    uint32_t count = 0;
    sort_by_id(k, a->work);
    for (uint32_t i = 0; i < k->count; i++)
        best = k->items[i].key > best ? k->items[i].key : best;
    for (uint32_t i = 0; i < k->count; i++) {
        float e = vmath_exp((k->items[i].key - best) * scale);
        if (!(e > 0.0f))
            continue;
        k->items[count] = k->items[i];
        r.e[count++] = e;
    }
    return find_listed(k->items, count, r.e, u);
}

static int32_t draw_dense(const struct sample_args *a, float best, float u)
{
    struct room r = room_of(a);
    struct exp_sums_args s = {.x = a->work, .sums = r.sums, .e = r.e, .count = a->vocab,
                              .max = best, .scale = 1.0f / a->row->temperature};
    a->k->exp_sums(&s);
    return find_dense(a, &r, u * sum_blocks(r.sums, blocks_of(a)));
}

static int32_t argmax(const float *x, uint32_t vocab, float best)
{
    for (uint32_t id = 0; id < vocab; id++)
        if (x[id] == best)
            return (int32_t)id;
    return -1;
}

static int32_t sample_id(const struct sample_args *a)
{
    const struct sample_row *row = a->row;
    float best = a->k->row_max(a->work, a->vocab);
    if (!(best > -INFINITY))
        return -1;
    if (row->temperature <= 0.0f || best == INFINITY)
        return argmax(a->work, a->vocab, best);
    float u = sample_uniform(row->seed, row->position, row->draw);
    bool has_top_k = row->top_k > 0 && row->top_k < a->vocab;
    if (!has_top_k && !(row->typical_p < 1.0f) && !(row->top_p < 1.0f) && !(row->min_p > 0.0f))
        return draw_dense(a, best, u);
    struct kept k;
    if (has_top_k) {
        k = (struct kept){.items = room_of(a).items};
        k.count = list_best(k.items, row->top_k, a->work, a->vocab);
        sum_list(&k);
    } else {
        k = keep_all(a);
    }
    if (row->typical_p < 1.0f)
        limit_typical(&k, a);
    if (row->top_p < 1.0f)
        limit_top_p(&k, row->top_p);
    if (row->min_p > 0.0f)
        limit_min_p(&k, row->min_p);
    return draw_listed(a, &k, u);
}

static float log_sum_exp(const struct sample_args *a, const float *x)
{
    float max = a->k->row_max(x, a->vocab);
    return max > -INFINITY ? max + vmath_log(sum_exp(a, x, max, NULL)) : -INFINITY;
}

static void sample(const struct sample_args *a)
{
    *a->id = sample_id(a);
    *a->logprob = *a->id < 0 ? -INFINITY : a->logits[*a->id] - log_sum_exp(a, a->logits);
}

static void write_list(const struct item *list, uint32_t count, uint32_t k, int32_t *ids,
                       float *values)
{
    for (uint32_t i = 0; i < k; i++) {
        ids[i] = i < count ? list[i].id : -1;
        values[i] = i < count ? list[i].key : -INFINITY;
    }
}

static void top_k(const struct sample_args *a)
{
    struct room r = room_of(a);
    uint32_t k = a->row->k, raw_k = a->row->raw_k;
    if (k)
        write_list(r.items, list_best(r.items, (uint32_t)base_min(k, a->vocab), a->work, a->vocab),
                   k, a->top_ids, a->top_val);
    if (raw_k)
        write_list(r.items,
                   list_best(r.items, (uint32_t)base_min(raw_k, a->vocab), a->logits, a->vocab),
                   raw_k, a->raw_ids, a->raw_val);
    if (k || raw_k) {
        a->lse[0] = log_sum_exp(a, a->logits);
        a->lse[1] = log_sum_exp(a, a->work);
    }
}

void ref_sample_add(struct cpu_kernels *k)
{
    k->row_max = row_max;
    k->exp_sums = exp_sums;
    k->logits_adjust = logits_adjust;
    k->sample = sample;
    k->top_k = top_k;
}
