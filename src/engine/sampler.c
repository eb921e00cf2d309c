#include "engine/sampler.h"

#include <math.h>

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
