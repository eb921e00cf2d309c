#include "engine/sched_gram.h"

#include <math.h>
#include <string.h>

#include "engine/seq.h"

bool sched_gram_open(struct sched_gram *g, const struct constraint *k, const struct step_limits *m,
                     uint32_t logits_count, struct err *e)
{
    if (g->masks)
        return true;
    uint32_t words = (logits_count + 31) / 32;
    size_t rows = (size_t)m->outs_max * words;
    const struct gram_mask_options o = {.index = k->index, .homes_max = m->seqs_max,
                                        .masks_bytes = SCHED_GRAM_MASKS};
    arena_init(&g->arena, rows * sizeof *g->rows +
                              (size_t)logits_count * (sizeof(float) + sizeof *g->items) + 65536);
    g->words = words;
    g->logits_count = logits_count;
    g->rows = ARENA_ARRAY(&g->arena, uint32_t, rows);
    g->logits = ARENA_ARRAY(&g->arena, float, logits_count);
    g->items = ARENA_ARRAY(&g->arena, struct sampler_item, logits_count);
    g->masks = g->rows && g->logits && g->items && words >= k->index->words ? gram_mask_new(&o)
                                                                             : NULL;
    if (g->masks)
        return true;
    arena_deinit(&g->arena);
    return err_set(e, ERR_MEMORY, "grammar: no memory for its masks");
}

void sched_gram_deinit(struct sched_gram *g)
{
    if (!g->masks)
        return;
    gram_mask_free(g->masks);
    arena_deinit(&g->arena);
    g->masks = NULL;
}

static bool sched_gram_binds(const struct seq *q)
{
    return gram_is_on(&q->gram) && !gram_mask_is_free(&q->gram);
}

const uint32_t *sched_gram_rows(struct sched_gram *g, struct seq *const *outs, uint32_t count)
{
    bool is_used = false;
    for (uint32_t i = 0; i < count; i++)
        is_used = is_used || sched_gram_binds(outs[i]);
    for (uint32_t i = 0; is_used && i < count; i++) {
        uint32_t *mask = g->rows + (size_t)i * g->words;
        bool is_on = sched_gram_binds(outs[i]);
        memset(mask, is_on ? 0 : 0xff, g->words * sizeof *mask);
        if (is_on)
            gram_mask(g->masks, &outs[i]->gram, mask);
    }
    return is_used ? g->rows : NULL;
}

/* ln of the sum of exp: the raw probability of a token that was drawn here. */
static double sched_gram_lse(const float *x, uint32_t count)
{
    float most = -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        most = x[i] > most ? x[i] : most;
    for (uint32_t i = 0; i < count; i++)
        sum += exp((double)x[i] - (double)most);
    return (double)most + log(sum);
}

static void sched_gram_adjust(struct sched_gram *g, const struct sched_gram_draw *d)
{
    for (uint32_t i = 0; i < d->adjust_count; i++) {
        const struct logit_adjust *j = &d->adjust[i];
        if (j->row != d->row)
            continue;
        float x = g->logits[j->id];
        g->logits[j->id] = (x > 0 ? x / j->factor : x * j->factor) + j->add;
    }
}

bool sched_gram_pick(struct sched_gram *g, struct seq *q, const struct sched_gram_draw *d,
                     int32_t *id, float *logprob, struct err *e)
{
    struct sample_row row = d->sample;
    uint32_t *mask = g->rows + (size_t)d->row * g->words;
    if (*id >= 0 && gram_mask_try(g->masks, &q->gram, *id, &q->gram_next)) {
        q->gram_id = *id;
        return true;
    }
    if (!d->backend->logits_row(d->device, d->prepared, d->row, g->logits, e))
        return false;
    double lse = sched_gram_lse(g->logits, g->logits_count);
    memset(mask, 0, g->words * sizeof *mask);
    gram_mask_exact(g->masks, &q->gram, mask);
    row.draw++;
    sched_gram_adjust(g, d);
    *id = sampler_redraw(&row, g->logits, g->logits_count, mask, g->items);
    if (*id < 0 || !gram_mask_try(g->masks, &q->gram, *id, &q->gram_next))
        return err_set(e, ERR_REQUEST, "reply: every token that its format allows is banned");
    q->gram_id = *id;
    if (!d->backend->logits_row(d->device, d->prepared, d->row, g->logits, e))
        return false;
    *logprob = (float)((double)g->logits[*id] - lse);
    return true;
}
