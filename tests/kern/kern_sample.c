#include "kern/kern.h"

#include <string.h>

/* The whole of sampling with a level's sums against ref's: the same ids and the same bits. */

static void check(struct kern *t, uint32_t vocab, const struct sample_row *row, enum kern_fill f)
{
    enum { LIST = 40 };
    float *logits = kern_new(vocab * 4, 4);
    uint32_t *mask = kern_new((vocab + 31) / 32 * 4, 0);
    struct logit_adjust adjust[] = {{0, 3, 1.3f, 0.0f}, {0, 5, 1.0f, -2.0f}, {0, 3, 0.7f, 0.5f}};
    kern_fill(logits, vocab, f);
    for (uint32_t i = 0; i < (vocab + 31) / 32; i++)
        mask[i] = i % 5 ? UINT32_MAX : kern_random();
    mask[0] |= 1;
    struct {
        int32_t id, top_ids[LIST], raw_ids[LIST];
        float logprob, top_val[LIST], raw_val[LIST], lse[2];
    } answer[2];
    memset(answer, 0, sizeof answer);
    for (int i = 0; i < 2; i++) {
        const struct cpu_kernels *k = i ? t->ref : t->k;
        struct sample_args a = {.k = k,
                                .logits = logits,
                                .work = kern_new(vocab * 4, 0),
                                .mask = row->top_k % 2 ? mask : NULL,
                                .adjust = adjust,
                                .row = row,
                                .scratch = kern_new(cpu_kernels_sample_scratch(vocab), 0),
                                .vocab = vocab,
                                .adjust_count = countof(adjust),
                                .id = &answer[i].id,
                                .logprob = &answer[i].logprob,
                                .top_ids = answer[i].top_ids,
                                .raw_ids = answer[i].raw_ids,
                                .top_val = answer[i].top_val,
                                .raw_val = answer[i].raw_val,
                                .lse = answer[i].lse};
        k->logits_adjust(&a);
        k->sample(&a);
        k->top_k(&a);
    }
    kern_case(t, memcmp(&answer[0], &answer[1], sizeof answer[0]) == 0,
              "sample of %u, temperature %g, top_k %u, top_p %g, %s: id %d, ref %d", vocab,
              (double)row->temperature, row->top_k, (double)row->top_p, kern_fill_name(f),
              answer[0].id, answer[1].id);
    kern_case(t, kern_free_all(), "sample of %u: wrote outside", vocab);
}

void kern_sample(struct kern *t)
{
    static const struct sample_row rows[] = {
        {.temperature = 0, .typical_p = 1, .top_p = 1, .k = 7, .raw_k = 40},
        {.temperature = 1, .typical_p = 1, .top_p = 1},
        {.temperature = 0.8f, .typical_p = 1, .top_p = 0.9f, .top_k = 41, .k = 3},
        {.temperature = 1.5f, .typical_p = 0.7f, .top_p = 1, .min_p = 0.02f, .raw_k = 5},
    };
    static const uint32_t vocabs[] = {7, 256, 1000, 49155};
    for (size_t v = 0; v < countof(vocabs); v++)
        for (size_t r = 0; r < countof(rows); r++)
            for (uint32_t seed = 0; seed < (t->is_full ? 20u : 3u); seed++) {
                struct sample_row row = rows[r];
                row.seed = seed;
                row.position = seed * 3;
                check(t, vocabs[v], &row, seed % 3 ? KERN_FILL_GAUSS : KERN_FILL_OUTLIER);
            }
}
