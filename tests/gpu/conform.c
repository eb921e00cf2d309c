#include "gpu/conform.h"

#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "quant/quant.h"

#define CONFORM_SEQS 2u
#define CONFORM_PAGES ((CONFORM_LONG + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS)

/* Blocks of a type without an encoder: random codes, sane scales at their place. */
static void random_blocks(enum qtype t, uint8_t *p, size_t count, struct chrono_rng *rng)
{
    const struct quant_type *q = &quant_table[t];
    for (size_t b = 0; b < count / q->block_elems; b++, p += q->block_bytes) {
        for (size_t i = 0; i < q->block_bytes; i++)
            p[i] = (uint8_t)chrono_rng_u64(rng);
        uint16_t d = base_f32_to_f16(0.01f + 0.02f * (float)chrono_rng_double(rng));
        size_t at = t == QTYPE_Q3_K || t == QTYPE_TQ1_0 || t == QTYPE_TQ2_0 ? q->block_bytes - 2u
                    : t == QTYPE_Q2_K                                       ? q->block_bytes - 4u
                                                                            : 0;
        if (t == QTYPE_MXFP4) {
            p[0] = (uint8_t)(118 + p[0] % 4);
        } else if (t == QTYPE_NVFP4) {
            for (int i = 0; i < 4; i++)
                p[i] = (uint8_t)(0x18 + p[i] % 16);
        } else if (t ==
                   QTYPE_IQ1_M) { /* d is spread over the top nibbles of four words at the end */
            for (int i = 0; i < 4; i++)
                p[49 + 2 * i] = (uint8_t)((p[49 + 2 * i] & 15) | (d >> 4 * i & 15) << 4);
        } else {
            memcpy(p + at, &d, 2);
            if (t == QTYPE_Q5_1 || t == QTYPE_Q5_K || t == QTYPE_Q2_K)
                memcpy(p + at + 2, &d, 2);
        }
    }
}

/* is_bf16: values that bf16 holds. */
static void *random_weight(const struct weight *w, float scale, bool is_bf16,
                           struct chrono_rng *rng)
{
    size_t count = (size_t)w->rows * w->cols * w->mats, size, row;
    float *x = malloc(count * sizeof *x);
    must(x && quant_row_size(w->type, w->cols, &row));
    size = row * w->rows * w->mats;
    for (size_t i = 0; i < count; i++)
        x[i] = scale * chrono_rng_normal(rng);
    void *out = calloc(1, size);
    must(out);
    if (is_bf16)
        for (size_t i = 0; i < count; i++)
            x[i] = base_float_of((base_bits_of(x[i]) + 0x8000u) & 0xffff0000u);
    if (quant_table[w->type].quantise)
        quant_table[w->type].quantise(out, x, count);
    else
        random_blocks(w->type, out, count, rng);
    free(x);
    return out;
}

/* "wq" is Q8_0 in any case: beside it a weight of another type. */
static enum qtype type_of(const struct conform_case *k, str name)
{
    return str_eq(name, STR("wq")) ? QTYPE_Q8_0 : k->type;
}

bool conform_init(struct conform *c, const struct conform_case *k, const struct backend *b,
                  uint64_t seed, struct err *e)
{
    struct chrono_rng rng;
    chrono_rng_init(&rng, seed);
    memset(c, 0, sizeof *c);
    c->kv = k->kv;
    arena_init(&c->arena, 16u << 20);
    plan_init(&c->plan, &c->arena, PLAN_KIND_MAIN);
    uint16_t table = plan_weight(&c->plan, "input", plan_matrix(CONFORM_ROWS, k->width));
    struct view x = op_embed(&c->plan, table, (struct op_embed){OP_INDEX_TOKENS, 1.0f});
    struct view y = op_rows(&c->plan, k->build(&c->plan, x, k->arg));
    op_sample(&c->plan, y);
    op_top_k(&c->plan, y);
    if (!plan_expand(&c->plan, b->ops, e) || !plan_finish(&c->plan, e))
        return false;
    c->weights = arena_alloc_array(&c->arena, c->plan.weights_count, sizeof *c->weights);
    c->bytes = arena_alloc_array(&c->arena, c->plan.weights_count, sizeof *c->bytes);
    must(c->weights && c->bytes);
    for (uint32_t i = 0; i < c->plan.weights_count; i++) {
        const struct plan_weight *p = &c->plan.weights[i];
        bool is_typed = p->want.kind == WEIGHT_KIND_MATRIX && p->name.p[0] == 'w';
        c->weights[i] = (struct weight){.name = p->name,
                                        .kind = p->want.kind,
                                        .type = is_typed ? type_of(k, p->name) : QTYPE_F32,
                                        .rows = p->want.rows,
                                        .cols = p->want.cols,
                                        .mats = p->want.mats};
        bool is_input = str_eq(p->name, STR("input"));
        c->bytes[i] = random_weight(&c->weights[i], is_input ? k->scale : 0.05f,
                                    is_input && k->type == QTYPE_BF16, &rng);
        if (str_eq(p->name, STR("freqs"))) /* divisors of frequencies */
            for (uint32_t n = 0; n < p->want.cols; n++)
                ((float *)c->bytes[i])[n] = 1.0f + (float)n * 0.1f;
    }
    return true;
}

void conform_deinit(struct conform *c)
{
    for (uint32_t i = 0; c->bytes && i < c->plan.weights_count; i++)
        free(c->bytes[i]);
    arena_deinit(&c->arena);
}

static bool load(struct conform_run *r, const struct conform *c, struct err *e)
{
    for (uint32_t i = 0; i < c->plan.weights_count; i++) {
        struct weight *w = &r->weights[i];
        size_t row;
        must(quant_row_size(w->type, w->cols, &row));
        for (uint32_t m = 0; m < w->mats; m++) /* two pieces per matrix, as a file brings them */
            for (size_t at = 0, n; at < w->rows; at += n) {
                n = base_min(w->rows - at, at == 0 && w->rows > 32 ? 32 : w->rows);
                const uint8_t *p = (const uint8_t *)c->bytes[i] + (m * (size_t)w->rows + at) * row;
                if (!r->b->weight_load(r->d, w, m * (size_t)w->rows + at, n, p, e))
                    return false;
            }
    }
    return true;
}

bool conform_open(struct conform_run *r, struct conform *c, const struct backend *b,
                  const struct device_options *o, struct err *e)
{
    *r = (struct conform_run){.b = b};
    if (!b->open(&r->d, o, e))
        return false;
    r->weights = calloc(c->plan.weights_count, sizeof *r->weights);
    must(r->weights);
    memcpy(r->weights, c->weights, c->plan.weights_count * sizeof *r->weights);
    struct kv_layout layout;
    struct step_limits m = {
        .rows_max = CONFORM_ROWS, .seqs_max = CONFORM_SEQS, .outs_max = CONFORM_ROWS, .top_max = 8};
    uint32_t pages[KV_GROUPS_MAX] = {0};
    if (!plan_kv_layout(&c->plan, c->kv, &layout, e) || !load(r, c, e))
        return false;
    for (uint32_t g = 0; g < layout.groups_count; g++) {
        m.pages_max[g] = CONFORM_PAGES;
        pages[g] = CONFORM_SEQS * CONFORM_PAGES;
    }
    return (layout.groups_count == 0 || b->kv_init(r->d, &layout, pages, 0, e)) &&
           b->prepare(r->d, &c->plan, r->weights, &m, &r->p, e);
}

void conform_close(struct conform_run *r)
{
    if (r->d)
        r->b->close(r->d);
    free(r->weights);
    *r = (struct conform_run){0};
}

struct piece {
    uint32_t first, rows, seq;
};

/* Rows of one sequence or of two, sampled as pick says; NULL: greedily. */
static bool submit(struct conform_run *r, const struct piece *of, uint32_t count,
                   const struct conform_pick *pick, struct step_out *answer, struct err *e)
{
    int32_t ids[CONFORM_ROWS], pos[CONFORM_ROWS];
    uint16_t seqs[CONFORM_ROWS];
    uint32_t outs[CONFORM_ROWS], pages[CONFORM_SEQS * CONFORM_PAGES], len[CONFORM_SEQS], rows = 0;
    struct sample_row sample[CONFORM_ROWS];
    for (uint32_t n = 0; n < count; n++) {
        for (uint32_t i = 0; i < of[n].rows; i++, rows++) {
            pos[rows] = (int32_t)(of[n].first + i);
            ids[rows] = (int32_t)((of[n].first + i) % CONFORM_ROWS);
            outs[rows] = rows;
            seqs[rows] = (uint16_t)n;
            sample[rows] =
                pick ? pick->rows[rows] : (struct sample_row){.typical_p = 1, .top_p = 1};
        }
        len[n] = of[n].first + of[n].rows;
        for (uint32_t i = 0; i < CONFORM_PAGES; i++) /* scattered on purpose */
            pages[n * CONFORM_PAGES + i] = (CONFORM_PAGES - 1 - i) * CONFORM_SEQS + of[n].seq;
    }
    struct step s = {.rows = rows,
                     .seqs = count,
                     .outs = rows,
                     .ids = ids,
                     .pos = pos,
                     .seq = seqs,
                     .out_rows = outs,
                     .sample = sample};
    s.kv.len = len;
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) {
        s.kv.pages[g] = pages;
        s.kv.pages_max[g] = CONFORM_PAGES;
    }
    if (pick) {
        s.adjust = pick->adjust;
        s.adjust_count = pick->adjust_count;
    }
    return r->b->submit(r->d, r->p, &s, e) && r->b->wait(r->d, r->p, answer, e);
}

bool conform_sample(struct conform_run *r, const struct conform_pick *pick, int32_t *ids,
                    struct err *e)
{
    struct step_out answer;
    if (!submit(r, &(struct piece){0, CONFORM_ROWS, 0}, 1, pick, &answer, e))
        return false;
    memcpy(ids, answer.ids, CONFORM_ROWS * sizeof *ids);
    return true;
}

static bool take(struct conform_run *r, const struct conform *c, const struct step_out *answer,
                 uint32_t rows, float *out, struct err *e)
{
    for (uint32_t i = 0; i < rows; i++) {
        float *row = out + (size_t)i * c->plan.vocab;
        if (!r->b->logits_row(r->d, r->p, i, row, e))
            return false;
        int32_t best = 0; /* greedy: the largest, the lowest id of equals */
        for (uint32_t v = 1; v < c->plan.vocab; v++)
            if (row[v] > row[best])
                best = (int32_t)v;
        if (answer->ids[i] != best)
            return err_set(e, ERR_INTERNAL, "row %u: sampled %d, the largest logit is %d", i,
                           answer->ids[i], best);
    }
    return true;
}

bool conform_step(struct conform_run *r, const struct conform *c, uint32_t first, uint32_t rows,
                  uint32_t seq, float *out, struct err *e)
{
    struct step_out answer;
    return submit(r, &(struct piece){first, rows, seq}, 1, NULL, &answer, e) &&
           take(r, c, &answer, rows, out, e);
}

bool conform_beside(struct conform_run *r, const struct conform *c, uint32_t first, uint32_t rows,
                    float *out, struct err *e)
{
    const struct piece of[] = {{first, 1, 1}, {0, rows, 0}};
    struct step_out answer;
    return submit(r, of, countof(of), NULL, &answer, e) &&
           take(r, c, &answer, 1 + rows, out, e);
}
