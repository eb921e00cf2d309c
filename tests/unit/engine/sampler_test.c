#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampler.h"
#include "engine_vocab.h"
#include "tensor/backend.h"
#include "tensor/plan.h"
#include "tensor/weights.h"

/* The whole chain on the real op: a plan whose logits are a row of its embedding. Probabilities are
 * computed a second time here, in double and by sorting, and the draws are counted against them. */
#define VOCAB 48u
#define ROWS 256u

static struct vocab *vocab;
static struct arena arena;
static struct plan plan;
static struct weight weight;
static const struct backend *cpu;
static struct device *device;
static struct prepared *prepared;
static float logits[VOCAB];

static int setup(void **state)
{
    struct err e;
    struct device_options o = {.threads = 1};
    struct step_limits limits = {.rows_max = ROWS, .seqs_max = 1, .outs_max = ROWS, .top_max = 20};
    (void)state;
    vocab = engine_vocab_numbered(VOCAB);
    arena_init(&arena, 1u << 24);
    plan_init(&plan, &arena, PLAN_KIND_MAIN);
    uint16_t w = plan_weight(&plan, "table", plan_matrix(VOCAB, VOCAB));
    struct op_embed embed = {.index = OP_INDEX_TOKENS, .scale = 1};
    struct view x = op_rows(&plan, op_embed(&plan, w, embed));
    op_sample(&plan, x);
    op_top_k(&plan, x);
    cpu = backend_table_find(STR("cpu"));
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = 3.0f * sinf((float)i * 1.7f) + (i % 7 == 0 ? 1.5f : 0.0f);
    float *table = calloc(VOCAB * VOCAB, sizeof *table);
    for (uint32_t i = 0; i < VOCAB; i++)
        memcpy(table + i * VOCAB, logits, sizeof logits);
    weight = (struct weight){.name = STR("table"), .kind = WEIGHT_KIND_MATRIX, .type = QTYPE_F32,
                             .rows = VOCAB, .cols = VOCAB, .mats = 1};
    bool ok = plan_expand(&plan, cpu->ops, &e) && plan_finish(&plan, &e) &&
              cpu->open(&device, &o, &e) &&
              cpu->weight_load(device, &weight, 0, VOCAB, table, &e) &&
              cpu->prepare(device, &plan, &weight, &limits, &prepared, &e);
    free(table);
    if (!ok)
        fprintf(stderr, "%s\n", e.text);
    return ok ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    cpu->close(device);
    arena_deinit(&arena);
    vocab_free(vocab);
    return 0;
}

/* Draws for reply positions first .. first + count; the counts of the penalties stay those of s. */
static void draw(const struct sampler *s, uint32_t first, uint32_t count, int32_t *ids)
{
    static struct logit_adjust adjust[ROWS * 128];
    static int32_t tokens[ROWS], pos[ROWS];
    static uint16_t seq[ROWS];
    static uint32_t out_rows[ROWS];
    static struct sample_row sample[ROWS];
    uint32_t len = count, adjust_count = 0;
    struct step_out out;
    struct err e;
    for (uint32_t i = 0; i < count; i++) {
        pos[i] = (int32_t)i;
        out_rows[i] = i;
        sample[i] = sampler_row(s);
        sample[i].position = first + i;
        adjust_count += sampler_adjust(s, i, adjust + adjust_count, 128);
    }
    struct step step = {.rows = count, .seqs = 1, .outs = count, .ids = tokens, .pos = pos,
                        .seq = seq, .out_rows = out_rows, .sample = sample, .adjust = adjust,
                        .adjust_count = adjust_count, .kv = {.len = &len}};
    assert_true(cpu->submit(device, prepared, &step, &e) && cpu->wait(device, prepared, &out, &e));
    memcpy(ids, out.ids, count * sizeof *ids);
}

/* --- the chain a second time --------------------------------------------------------------- */

struct item { int32_t id; double x, p; };
static int by_p(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->p > y->p ? -1 : x->p < y->p ? 1 : x->id - y->id;
}

static uint32_t normalise(struct item *it, uint32_t n)
{
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        max = it[i].x > max ? it[i].x : max;
    for (uint32_t i = 0; i < n; i++)
        sum += it[i].p = exp(it[i].x - max);
    for (uint32_t i = 0; i < n; i++)
        it[i].p /= sum;
    qsort(it, n, sizeof *it, by_p);
    return n;
}

static uint32_t keep_typical(struct item *it, uint32_t n, double typical)
{
    double entropy = 0, mass = 0;
    bool keep[VOCAB] = {false};
    for (uint32_t i = 0; i < n; i++)
        entropy -= it[i].p > 0 ? it[i].p * log(it[i].p) : 0;
    for (uint32_t count = 0; count < n && mass < typical; count++) {
        uint32_t best = n;
        for (uint32_t i = 0; i < n; i++)
            if (!keep[i] && (best == n || fabs(-log(it[i].p) - entropy) <
                                              fabs(-log(it[best].p) - entropy)))
                best = i;
        keep[best] = true;
        mass += it[best].p;
    }
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++)
        if (keep[i])
            it[left++] = it[i];
    return left;
}

/* Logits after bias, bans and penalties. */
static void adjust_exactly(const struct api_request *rq, const int32_t *ids, uint32_t prompt,
                           uint32_t count, struct item *it)
{
    uint32_t window[VOCAB] = {0}, reply[VOCAB] = {0};
    uint32_t from = rq->repeat_last < count ? count - rq->repeat_last : 0;
    for (uint32_t i = from; i < count; i++)
        window[ids[i]]++;
    for (uint32_t i = prompt; i < count; i++)
        reply[ids[i]]++;
    for (uint32_t i = 0; i < VOCAB; i++) {
        double x = (double)logits[i];
        for (uint32_t k = 0; k < rq->bias_count; k++)
            if (rq->bias[k].id == (int32_t)i)
                x = rq->bias[k].bias <= -100 ? -INFINITY : x + (double)rq->bias[k].bias;
        if ((rq->ignore_eos || count - prompt < rq->tokens_min) && i == VOCAB - 1)
            x = -INFINITY;
        if (window[i])
            x = x > 0 ? x / (double)rq->repeat_penalty : x * (double)rq->repeat_penalty;
        if (reply[i])
            x -= (double)rq->presence_penalty + (double)rq->frequency_penalty * reply[i];
        it[i] = (struct item){(int32_t)i, x, 0};
    }
}

static void exact(const struct api_request *rq, const int32_t *ids, uint32_t prompt, uint32_t count,
                  double *p)
{
    struct item it[VOCAB];
    uint32_t n = VOCAB;
    adjust_exactly(rq, ids, prompt, count, it);
    normalise(it, n);
    if (rq->top_k && rq->top_k < n)
        n = normalise(it, rq->top_k);
    if (rq->typical_p < 1)
        n = normalise(it, keep_typical(it, n, (double)rq->typical_p));
    double mass = 0;
    uint32_t kept = 0;
    while (kept < n && (kept == 0 || mass < (double)rq->top_p))
        mass += it[kept++].p;
    n = normalise(it, rq->top_p < 1 ? kept : n);
    for (kept = 1; kept < n && it[kept].p >= it[0].p * (double)rq->min_p;)
        kept++;
    n = kept;
    for (uint32_t i = 0; i < n; i++)
        it[i].x /= (double)rq->temperature;
    normalise(it, n);
    for (uint32_t i = 0; i < VOCAB; i++)
        p[i] = 0;
    for (uint32_t i = 0; i < n; i++)
        p[it[i].id] = it[i].p;
}

/* --- tests --------------------------------------------------------------------------------- */

/* Among the likeliest: a penalty that is a little wrong shows. */
static const int32_t text[] = {3, 42, 23, 12, 1, 0, 42, 12, 12, 1};
#define TEXT_PROMPT 6u

static void feed(struct sampler *s, const struct api_request *rq, uint32_t choice)
{
    sampler_init(s, rq, vocab, choice);
    for (uint32_t i = 0; i < countof(text); i++)
        assert_true(sampler_add(s, text, i + 1, i >= TEXT_PROMPT));
}

/* 0.1 % quantile of chi-square with k degrees of freedom, by Wilson and Hilferty (1931). */
static double chi_limit(double k)
{
    double t = 1 - 2 / (9 * k) + 3.0902 * sqrt(2 / (9 * k));
    return k * t * t * t;
}

static void expect_distribution(const struct api_request *rq, const char *what)
{
    static int32_t ids[ROWS];
    const uint32_t draws = 20480;
    uint32_t seen[VOCAB] = {0};
    double p[VOCAB], chi = 0, rare_p = 0, rare_seen = 0;
    struct sampler s;
    feed(&s, rq, 0);
    exact(rq, text, TEXT_PROMPT, countof(text), p);
    for (uint32_t at = 0; at < draws; at += ROWS) {
        draw(&s, at, ROWS, ids);
        for (uint32_t i = 0; i < ROWS; i++)
            seen[ids[i]]++;
    }
    uint32_t freedom = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        double expected = p[i] * draws;
        if (p[i] <= 0 && seen[i])
            fail_msg("%s: token %u was drawn %u times, but cannot be", what, i, seen[i]);
        if (expected < 8) { /* too few for the approximation: counted together */
            rare_p += expected;
            rare_seen += seen[i];
            continue;
        }
        chi += (seen[i] - expected) * (seen[i] - expected) / expected;
        freedom++;
    }
    if (rare_p >= 8) {
        chi += (rare_seen - rare_p) * (rare_seen - rare_p) / rare_p;
        freedom++;
    }
    sampler_deinit(&s);
    if (freedom > 1 && chi > chi_limit(freedom - 1))
        fail_msg("%s: chi-square %.1f for %u degrees of freedom, at most %.1f (seed %llu)", what,
                 chi, freedom - 1, chi_limit(freedom - 1), (unsigned long long)rq->seed);
    if (freedom <= 1)
        assert_true(rare_seen < draws * 0.001 + 8);
}

static void test_draws_follow_the_exact_probabilities_of_the_chain(void **state)
{
    (void)state;
    static const struct api_bias bias[] = {{7, 2.5f}, {42, -1.5f}, {38, -100}};
    static const struct {
        const char *what;
        float temperature, top_p, min_p, typical_p, repeat, presence, frequency;
        uint32_t top_k, repeat_last, bias_count;
    } rows[] = {
        {"plain", 1, 1, 0, 1, 1, 0, 0, 0, 64, 0},
        {"hot", 2.5f, 1, 0, 1, 1, 0, 0, 0, 64, 0},
        {"cold", 0.3f, 1, 0, 1, 1, 0, 0, 0, 64, 0},
        {"top_k", 1, 1, 0, 1, 1, 0, 0, 5, 64, 0},
        {"top_p", 1, 0.7f, 0, 1, 1, 0, 0, 0, 64, 0},
        {"min_p", 1, 1, 0.2f, 1, 1, 0, 0, 0, 64, 0},
        {"typical_p", 1, 1, 0, 0.6f, 1, 0, 0, 0, 64, 0},
        {"repeat", 1, 1, 0, 1, 1.5f, 0, 0, 0, 64, 0},
        {"repeat window", 1, 1, 0, 1, 1.5f, 0, 0, 0, 3, 0},
        {"repeat all", 1, 1, 0, 1, 0.7f, 0, 0, 0, API_REPEAT_ALL, 0},
        {"presence", 1, 1, 0, 1, 1, 1.2f, 0, 0, 64, 0},
        {"frequency", 1, 1, 0, 1, 1, 0, 0.8f, 0, 64, 0},
        {"bias", 1, 1, 0, 1, 1, 0, 0, 0, 64, 3},
        {"as run", 0.8f, 0.9f, 0, 1, 1.1f, 0, 0, 40, 64, 0},
        {"everything", 0.7f, 0.9f, 0.05f, 0.9f, 1.3f, 0.4f, -0.3f, 20, 5, 3},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct api_request rq;
        api_request_init(&rq);
        rq.seed = 1000 + i;
        rq.temperature = rows[i].temperature;
        rq.top_p = rows[i].top_p;
        rq.min_p = rows[i].min_p;
        rq.typical_p = rows[i].typical_p;
        rq.repeat_penalty = rows[i].repeat;
        rq.presence_penalty = rows[i].presence;
        rq.frequency_penalty = rows[i].frequency;
        rq.top_k = rows[i].top_k;
        rq.repeat_last = rows[i].repeat_last;
        rq.bias = bias;
        rq.bias_count = rows[i].bias_count;
        expect_distribution(&rq, rows[i].what);
    }
}

static void test_the_end_is_banned_until_the_minimum_or_when_ignored(void **state)
{
    (void)state;
    for (int ignore = 0; ignore < 2; ignore++) {
        static const struct api_bias likely = {VOCAB - 1, 20};
        struct api_request rq;
        struct sampler s;
        int32_t ids[8];
        api_request_init(&rq);
        rq.temperature = 0;
        rq.bias = &likely;
        rq.bias_count = 1;
        feed(&s, &rq, 0);
        draw(&s, 0, 8, ids);
        assert_int_equal(ids[0], VOCAB - 1);
        rq.ignore_eos = ignore;
        rq.tokens_min = ignore ? 0 : s.reply_count + 1;
        draw(&s, 0, 8, ids);
        assert_int_not_equal(ids[0], VOCAB - 1);
        sampler_deinit(&s);
    }
}

static void test_greedy_takes_the_lowest_id_of_equals(void **state)
{
    (void)state;
    struct api_bias equal[3] = {{30, 0}, {9, 0}, {41, 0}};
    struct api_request rq;
    struct sampler s;
    int32_t ids[4];
    for (size_t i = 0; i < countof(equal); i++)
        equal[i].bias = 50.0f - logits[equal[i].id];
    api_request_init(&rq);
    rq.temperature = 0;
    rq.bias = equal;
    rq.bias_count = 3;
    feed(&s, &rq, 0);
    draw(&s, 0, 4, ids);
    float sum9 = logits[9] + equal[1].bias, sum30 = logits[30] + equal[0].bias,
          sum41 = logits[41] + equal[2].bias;
    float most = fmaxf(sum9, fmaxf(sum30, sum41));
    assert_int_equal(ids[0], !(sum9 < most) ? 9 : !(sum30 < most) ? 30 : 41);
    sampler_deinit(&s);
}

static void test_the_same_seed_and_position_give_the_same_token(void **state)
{
    (void)state;
    struct api_request rq;
    struct sampler s, t;
    int32_t a[ROWS], b[ROWS], c[ROWS];
    api_request_init(&rq);
    rq.seed = 99;
    feed(&s, &rq, 0);
    feed(&t, &rq, 1);
    draw(&s, 0, ROWS, a);
    for (uint32_t i = 0; i < ROWS; i += 64)
        draw(&s, i, 64, b + i);
    draw(&t, 0, ROWS, c);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a); /* another choice draws its own */
    sampler_deinit(&s);
    sampler_deinit(&t);
}

static void test_counts_move_with_the_window(void **state)
{
    (void)state;
    struct api_request rq;
    struct sampler s;
    struct logit_adjust out[16];
    api_request_init(&rq);
    rq.repeat_penalty = 2;
    rq.repeat_last = 2;
    feed(&s, &rq, 0);
    uint32_t count = sampler_adjust(&s, 5, out, 16); /* window: 12, 1 */
    assert_int_equal(count, 2);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(out[i].row, 5);
        assert_true(out[i].id == 12 || out[i].id == 1);
    }
    assert_true(sampler_adjust_max(&rq, vocab, 4096) >= 2);
    sampler_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_follow_the_exact_probabilities_of_the_chain),
        cmocka_unit_test(test_the_end_is_banned_until_the_minimum_or_when_ignored),
        cmocka_unit_test(test_greedy_takes_the_lowest_id_of_equals),
        cmocka_unit_test(test_the_same_seed_and_position_give_the_same_token),
        cmocka_unit_test(test_counts_move_with_the_window),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
