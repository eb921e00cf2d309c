#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "tensor/sample.h"

#define SAMPLER_BAN_BIAS (-100.0f) /* BEHAVIOUR 5.7: -100 bans */

static bool sampler_counts_reply(const struct api_request *rq)
{
    return rq->frequency_penalty != 0 || rq->presence_penalty != 0;
}

void sampler_init(struct sampler *s, const struct api_request *rq, const struct vocab *v,
                  uint32_t choice)
{
    *s = (struct sampler){.rq = rq, .vocab = v, .seed = api_request_seed(rq, choice)};
    s->window_max = rq->repeat_penalty != 1 ? rq->repeat_last : 0;
    map_init(&s->window, vocab_count(v));
    map_init(&s->reply, vocab_count(v));
}

void sampler_deinit(struct sampler *s)
{
    map_deinit(&s->window);
    map_deinit(&s->reply);
}

uint32_t sampler_adjust_max(const struct api_request *rq, const struct vocab *v,
                            uint32_t context_max)
{
    uint32_t eog, suppressed;
    uint32_t distinct = (uint32_t)base_min(vocab_count(v), context_max);
    vocab_eog(v, &eog);
    vocab_suppressed(v, &suppressed);
    uint64_t most = (uint64_t)rq->bias_count + eog + suppressed + rq->stop_ids_count;
    if (rq->repeat_penalty != 1)
        most += rq->repeat_last < distinct ? rq->repeat_last : distinct;
    if (sampler_counts_reply(rq))
        most += distinct;
    return (uint32_t)base_min(most, UINT32_MAX);
}

static bool sampler_count(struct map *m, int32_t id)
{
    uint64_t *times = map_find_number(m, (uint64_t)id);
    if (times)
        ++*times;
    return times || map_put_number(m, (uint64_t)id, 1);
}

static void sampler_uncount(struct map *m, int32_t id)
{
    uint64_t *times = map_find_number(m, (uint64_t)id);
    must(times && *times > 0);
    if (--*times == 0)
        map_delete_number(m, (uint64_t)id);
}

bool sampler_add(struct sampler *s, const int32_t *ids, uint32_t count, bool is_reply)
{
    int32_t id = ids[count - 1];
    if (s->window_max && !sampler_count(&s->window, id))
        return false;
    if (s->window_max && count > s->window_max)
        sampler_uncount(&s->window, ids[count - 1 - s->window_max]);
    if (!is_reply)
        return true;
    s->reply_count++;
    return !sampler_counts_reply(s->rq) || sampler_count(&s->reply, id);
}

struct sample_row sampler_row(const struct sampler *s)
{
    return (struct sample_row){
        .seed = s->seed,
        .position = s->reply_count,
        .temperature = s->rq->temperature,
        .typical_p = s->rq->typical_p,
        .top_p = s->rq->top_p,
        .min_p = s->rq->min_p,
        .top_k = s->rq->top_k,
        .raw_k = s->rq->logprobs ? s->rq->logprobs - 1 : 0,
    };
}

struct sampler_out {
    struct logit_adjust *p;
    uint32_t count, max, row;
};

static void sampler_put(struct sampler_out *o, int32_t id, float factor, float add)
{
    must(o->count < o->max);
    o->p[o->count++] = (struct logit_adjust){o->row, id, factor, add};
}

static void sampler_ban(struct sampler_out *o, const int32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        sampler_put(o, ids[i], 1, -INFINITY);
}

uint32_t sampler_adjust(const struct sampler *s, uint32_t row, struct logit_adjust *out,
                        uint32_t max)
{
    const struct api_request *rq = s->rq;
    struct sampler_out o = {.p = out, .max = max, .row = row};
    uint32_t count;
    for (uint32_t i = 0; i < rq->bias_count; i++)
        if (vocab_has(s->vocab, rq->bias[i].id))
            sampler_put(&o, rq->bias[i].id, 1,
                        rq->bias[i].bias <= SAMPLER_BAN_BIAS ? -INFINITY : rq->bias[i].bias);
    const int32_t *suppressed = vocab_suppressed(s->vocab, &count);
    sampler_ban(&o, suppressed, count);
    bool too_early = s->reply_count < rq->tokens_min;
    if (rq->ignore_eos || too_early) {
        const int32_t *eog = vocab_eog(s->vocab, &count);
        sampler_ban(&o, eog, count);
    }
    for (uint32_t i = 0; too_early && i < rq->stop_ids_count; i++)
        if (vocab_has(s->vocab, rq->stop_ids[i]))
            sampler_put(&o, rq->stop_ids[i], 1, -INFINITY);
    for (uint32_t i = 0; s->window_max && i < s->window.count; i++)
        sampler_put(&o, (int32_t)s->window.entries[i].key.number, rq->repeat_penalty, 0);
    for (uint32_t i = 0; i < s->reply.count; i++)
        sampler_put(&o, (int32_t)s->reply.entries[i].key.number, 1,
                    -(rq->presence_penalty +
                      rq->frequency_penalty * (float)s->reply.entries[i].value));
    return o.count;
}

/* --- a draw again ---------------------------------------------------------------------------- */

static int sampler_by_logit(const void *a, const void *b)
{
    const struct sampler_item *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

static int sampler_by_p(const void *a, const void *b)
{
    const struct sampler_item *x = a, *y = b;
    if (x->p != y->p)
        return x->p > y->p ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Probabilities at temperature 1, by rank. */
static void sampler_weigh(struct sampler_item *items, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += items[i].p = exp((double)items[i].logit - (double)items[0].logit);
    for (uint32_t i = 0; i < count; i++)
        items[i].p /= sum;
}

/* Those whose surprise is nearest to the expected one, until they have typical_p. */
static uint32_t sampler_typical(struct sampler_item *items, uint32_t count, float typical_p)
{
    double entropy = 0, sum = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        entropy -= items[i].p > 0 ? items[i].p * log(items[i].p) : 0;
    for (uint32_t i = 0; i < count; i++)
        items[i].p = items[i].p > 0 ? fabs(-log(items[i].p) - entropy) : INFINITY;
    double best = (double)items[0].logit, total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += exp((double)items[i].logit - best);
    qsort(items, count, sizeof *items, sampler_by_p);
    while (kept < count && sum <= (double)typical_p * total)
        sum += exp((double)items[kept++].logit - best);
    qsort(items, kept, sizeof *items, sampler_by_logit);
    sampler_weigh(items, kept);
    return kept;
}

static uint32_t sampler_limit(const struct sample_row *row, struct sampler_item *items,
                              uint32_t count)
{
    if (row->top_k && row->top_k < count)
        count = row->top_k;
    sampler_weigh(items, count);
    if (row->typical_p < 1)
        count = sampler_typical(items, count, row->typical_p);
    if (row->top_p < 1) {
        double sum = 0;
        uint32_t kept = 0;
        while (kept < count && sum < (double)row->top_p)
            sum += items[kept++].p;
        count = kept ? kept : 1;
    }
    while (row->min_p > 0 && count > 1 && items[count - 1].p < (double)row->min_p * items[0].p)
        count--;
    return count;
}

int32_t sampler_redraw(const struct sample_row *row, const float *logits, uint32_t count,
                       const uint32_t *mask, struct sampler_item *items)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < count; id++)
        if (mask[id / 32] >> (id % 32) & 1 && logits[id] > -INFINITY)
            items[n++] = (struct sampler_item){0, logits[id], (int32_t)id};
    if (n == 0)
        return -1;
    qsort(items, n, sizeof *items, sampler_by_logit);
    if (row->temperature == 0)
        return items[0].id;
    n = sampler_limit(row, items, n);
    double total = 0, at = 0;
    for (uint32_t i = 0; i < n; i++)
        total += items[i].p = exp(((double)items[i].logit - (double)items[0].logit) /
                                  (double)row->temperature);
    double u = (double)sample_uniform(row->seed, row->position, row->draw) * total;
    for (uint32_t i = 0; i < n; i++)
        if ((at += items[i].p) > u)
            return items[i].id;
    return items[n - 1].id;
}
