/* ref_sample: each limit of the chain keeps what its definition says, and the draw follows the
 * probabilities of what is kept. The truth is worked out in double by sorting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/cpu_kernels.h"
#include "cpu/vmath.h"
#include "tensor/sample.h"

#define VOCAB 1100u /* five blocks of 256, the last one short */

static struct cpu_kernels kernels;
static float logits[VOCAB], work[VOCAB];
static uint8_t *scratch;

static int set_up(void **state)
{
    (void)state;
    cpu_kernels_init(&kernels, CPU_LEVEL_REF, false);
    scratch = malloc(cpu_kernels_sample_scratch(VOCAB));
    for (uint32_t i = 0; i < VOCAB; i++) /* a peaked distribution with a long tail */
        logits[i] = 9.0f * sample_uniform(11, i, 0) * sample_uniform(12, i, 0) *
                        sample_uniform(13, i, 0) - 20.0f;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(scratch);
    return 0;
}

static struct sample_args args_of(const struct sample_row *row, int32_t *id, float *logprob)
{
    return (struct sample_args){.k = &kernels, .logits = logits, .work = work, .row = row,
                                .scratch = scratch, .vocab = VOCAB, .id = id, .logprob = logprob};
}

static const struct sample_row plain = {.seed = 5, .temperature = 1, .typical_p = 1, .top_p = 1};

/* ---- the truth ---- */

struct entry {
    int32_t id;
    double logit, p, key;
};

static int by_key(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void normalise(struct entry *e, size_t n, double temperature)
{
    double sum = 0, best = -INFINITY;
    for (size_t i = 0; i < n; i++)
        best = fmax(best, e[i].logit);
    for (size_t i = 0; i < n; i++)
        sum += e[i].p = exp((e[i].logit - best) / temperature);
    for (size_t i = 0; i < n; i++)
        e[i].p /= sum;
}

static size_t cut_typical(struct entry *e, size_t n, double typical_p)
{
    double entropy = 0, sum = 0;
    for (size_t i = 0; i < n; i++)
        entropy -= e[i].p * log(e[i].p);
    for (size_t i = 0; i < n; i++)
        e[i].key = -fabs(-log(e[i].p) - entropy);
    qsort(e, n, sizeof *e, by_key);
    size_t kept = 0;
    while (kept < n && sum <= typical_p)
        sum += e[kept++].p;
    for (size_t i = 0; i < kept; i++)
        e[i].key = e[i].logit;
    qsort(e, kept, sizeof *e, by_key);
    normalise(e, kept, 1);
    return kept;
}

/* probability[VOCAB] of what the chain draws from work. */
static void expect(const struct sample_row *row, double *probability)
{
    static struct entry e[VOCAB];
    size_t n = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        probability[i] = 0;
        if (work[i] > -INFINITY)
            e[n++] = (struct entry){(int32_t)i, (double)work[i], 0, (double)work[i]};
    }
    qsort(e, n, sizeof *e, by_key);
    n = row->top_k && row->top_k < n ? row->top_k : n;
    normalise(e, n, 1);
    if (row->typical_p < 1)
        n = cut_typical(e, n, (double)row->typical_p);
    if (row->top_p < 1) {
        double sum = 0;
        size_t kept = 0;
        while (kept < n && (kept == 0 || sum < (double)row->top_p))
            sum += e[kept++].p;
        n = kept;
    }
    size_t kept = 0;
    while (kept < n && (kept == 0 || e[kept].p >= (double)row->min_p * e[0].p))
        kept++;
    normalise(e, kept, (double)row->temperature);
    for (size_t i = 0; i < kept; i++)
        probability[e[i].id] = e[i].p;
}

/* ---- tests ---- */

/* The number u picks the id at which the sum over rising ids passes u; up to rounding it must be
 * that id, over many draws, and so the frequencies are right too. */
static void check_draws(const struct sample_row *base, const char *what)
{
    static double probability[VOCAB];
    struct sample_row row = *base;
    int32_t id;
    float logprob;
    struct sample_args a = args_of(&row, &id, &logprob);
    expect(&row, probability);
    double expected_ids = 0, got_ids = 0, variance = 0;
    enum { DRAWS = 2000 };
    for (uint32_t draw = 0; draw < DRAWS; draw++) {
        row.position = draw;
        kernels.sample(&a);
        if (id < 0 || id >= (int32_t)VOCAB || probability[id] == 0)
            fail_msg("%s: id %d was drawn but is not kept", what, id);
        double u = (double)sample_uniform(row.seed, draw, 0), below = 0;
        for (int32_t i = 0; i < id; i++)
            below += probability[i];
        if (u < below - 1e-5 || u > below + probability[id] + 1e-5)
            fail_msg("%s: u %.6f drew id %d, which has [%.6f, %.6f)", what, u, id, below,
                     below + probability[id]);
        got_ids += id;
    }
    double mean = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        mean += probability[i] * i;
    for (uint32_t i = 0; i < VOCAB; i++)
        variance += probability[i] * (i - mean) * (i - mean);
    expected_ids = mean * DRAWS;
    if (fabs(got_ids - expected_ids) > 4 * sqrt(variance * DRAWS) + 1)
        fail_msg("%s: mean id %.1f, expected %.1f", what, got_ids / DRAWS, mean);
}

static void test_draws_follow_the_chain(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        float temperature, typical_p, top_p, min_p;
        uint32_t top_k;
    } cases[] = {
        {"plain", 1, 1, 1, 0, 0},
        {"cold", 0.3f, 1, 1, 0, 0},
        {"hot", 2.5f, 1, 1, 0, 0},
        {"top_k", 1, 1, 1, 0, 5},
        {"top_k of one", 1, 1, 1, 0, 1},
        {"top_k of all", 1, 1, 1, 0, VOCAB},
        {"top_p", 1, 1, 0.6f, 0, 0},
        {"top_p tiny", 1, 1, 1e-6f, 0, 0},
        {"top_p zero", 1, 1, 0, 0, 0},
        {"min_p", 1, 1, 1, 0.1f, 0},
        {"min_p one", 1, 1, 1, 1, 0},
        {"typical", 1, 0.5f, 1, 0, 0},
        {"typical tiny", 1, 1e-6f, 1, 0, 0},
        {"top_k, top_p", 0.8f, 1, 0.9f, 0, 40},
        {"typical, top_p", 1, 0.8f, 0.5f, 0, 0},
        {"top_k, typical", 1, 0.7f, 1, 0, 60},
        {"all", 0.7f, 0.9f, 0.8f, 0.05f, 100},
    };
    struct sample_args adjust = args_of(&plain, NULL, NULL);
    kernels.logits_adjust(&adjust);
    for (size_t i = 0; i < countof(cases); i++) {
        struct sample_row row = plain;
        row.seed = i;
        row.temperature = cases[i].temperature;
        row.typical_p = cases[i].typical_p;
        row.top_p = cases[i].top_p;
        row.min_p = cases[i].min_p;
        row.top_k = cases[i].top_k;
        check_draws(&row, cases[i].what);
    }
}

static void test_masked_ids_are_never_drawn_and_adjustments_count(void **state)
{
    (void)state;
    uint32_t mask[(VOCAB + 31) / 32];
    for (size_t i = 0; i < countof(mask); i++)
        mask[i] = i % 3 ? 0x0f0f00ff : 0;
    const struct logit_adjust adjust[] = {{0, 32, 1, 15.0f}, {0, 33, 1, -INFINITY},
                                          {0, 34, 2, 0},     {0, 34, 2, 0}};
    struct sample_args a = args_of(&plain, NULL, NULL);
    a.mask = mask;
    a.adjust = adjust;
    a.adjust_count = countof(adjust);
    float before = logits[34];
    logits[34] = -3.0f; /* below zero a penalty multiplies */
    kernels.logits_adjust(&a);
    assert_true(work[34] == -12.0f && work[32] == logits[32] + 15.0f && work[33] == -INFINITY);
    for (uint32_t i = 0; i < VOCAB; i++)
        assert_true(work[i] == -INFINITY || (mask[i / 32] >> i % 32 & 1));
    check_draws(&plain, "masked");
    struct sample_row row = plain;
    row.top_p = 0.5f;
    check_draws(&row, "masked, top_p");
    logits[34] = before;
}

static void test_temperature_zero_takes_the_largest_and_of_equals_the_lowest_id(void **state)
{
    (void)state;
    struct sample_row row = plain;
    row.temperature = 0;
    row.top_k = 3;
    int32_t id;
    float logprob;
    struct sample_args a = args_of(&row, &id, &logprob);
    kernels.logits_adjust(&a);
    work[700] = work[300] = work[900] = 50.0f;
    kernels.sample(&a);
    assert_int_equal(id, 300);
    row.temperature = 1; /* equal logits at the border of top_k: the lower ids stay */
    row.top_k = 2;
    for (row.position = 0; row.position < 50; row.position++) {
        kernels.sample(&a);
        assert_true(id == 300 || id == 700);
    }
}

static void test_the_logprob_is_of_the_raw_logits(void **state)
{
    (void)state;
    struct sample_row row = plain;
    row.top_k = 1;
    const struct logit_adjust adjust = {0, 17, 1, 100.0f};
    int32_t id;
    float logprob;
    struct sample_args a = args_of(&row, &id, &logprob);
    a.adjust = &adjust;
    a.adjust_count = 1;
    kernels.logits_adjust(&a);
    kernels.sample(&a);
    double sum = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        sum += exp((double)logits[i] - (double)logits[17]);
    assert_int_equal(id, 17);
    assert_true(fabs((double)logprob + log(sum)) < 1e-5);
}

static void test_a_row_without_numbers_draws_minus_one(void **state)
{
    (void)state;
    struct sample_row row = plain;
    int32_t id = 0;
    float logprob;
    struct sample_args a = args_of(&row, &id, &logprob);
    for (uint32_t i = 0; i < VOCAB; i++)
        work[i] = i % 2 ? NAN : -INFINITY;
    kernels.sample(&a);
    assert_int_equal(id, -1);
    work[40] = 1.0f; /* one number among NaNs can still be drawn */
    row.top_p = 0.9f;
    kernels.sample(&a);
    assert_int_equal(id, 40);
    work[41] = INFINITY;
    kernels.sample(&a);
    assert_int_equal(id, 41);
}

static void test_lists_fall_by_value_then_rise_by_id(void **state)
{
    (void)state;
    struct sample_row row = plain;
    row.k = 20;
    row.raw_k = 7;
    int32_t top[20], raw[7];
    float top_val[20], raw_val[7], lse[2];
    struct sample_args a = args_of(&row, NULL, NULL);
    a.top_ids = top;
    a.top_val = top_val;
    a.raw_ids = raw;
    a.raw_val = raw_val;
    a.lse = lse;
    kernels.logits_adjust(&a);
    work[900] = work[5] = work[400] = 3.0f;
    kernels.top_k(&a);
    assert_true(top[0] == 5 && top[1] == 400 && top[2] == 900);
    for (int i = 1; i < 20; i++)
        assert_true(top_val[i] < top_val[i - 1] || top[i] > top[i - 1]);
    for (uint32_t i = 0; i < VOCAB; i++) {
        bool is_listed = false;
        for (int k = 0; k < 20; k++)
            is_listed |= top[k] == (int32_t)i;
        assert_true(is_listed || work[i] <= top_val[19]);
        is_listed = false;
        for (int k = 0; k < 7; k++)
            is_listed |= raw[k] == (int32_t)i;
        assert_true(is_listed || logits[i] <= raw_val[6]);
    }
    double sum = 0, adjusted = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        sum += exp((double)logits[i]);
        adjusted += exp((double)work[i]);
    }
    assert_true(fabs((double)lse[0] - log(sum)) < 1e-5);
    assert_true(fabs((double)lse[1] - log(adjusted)) < 1e-5);
    for (uint32_t i = 0; i < VOCAB; i++)
        work[i] = i < 3 ? (float)i : -INFINITY;
    kernels.top_k(&a);
    assert_true(top[0] == 2 && top[2] == 0 && top[3] == -1 && top_val[3] == -INFINITY);
}

static void test_sums_of_blocks_do_not_depend_on_how_many_are_asked_for(void **state)
{
    (void)state;
    float sums[5], again[1], e[VOCAB];
    struct exp_sums_args a = {.x = logits, .sums = sums, .e = e, .count = VOCAB, .max = -11.0f,
                              .scale = 0.5f};
    kernels.exp_sums(&a);
    for (uint32_t b = 0; b < 5; b++) {
        uint32_t count = b < 4 ? 256 : VOCAB - 1024;
        struct exp_sums_args one = {.x = logits + b * 256, .sums = again, .count = count,
                                    .max = -11.0f, .scale = 0.5f};
        kernels.exp_sums(&one);
        float sum = vmath_sum(e + b * 256, count);
        assert_memory_equal(&sums[b], again, sizeof *again);
        assert_memory_equal(&sums[b], &sum, sizeof sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_follow_the_chain),
        cmocka_unit_test(test_masked_ids_are_never_drawn_and_adjustments_count),
        cmocka_unit_test(test_temperature_zero_takes_the_largest_and_of_equals_the_lowest_id),
        cmocka_unit_test(test_the_logprob_is_of_the_raw_logits),
        cmocka_unit_test(test_a_row_without_numbers_draws_minus_one),
        cmocka_unit_test(test_lists_fall_by_value_then_rise_by_id),
        cmocka_unit_test(test_sums_of_blocks_do_not_depend_on_how_many_are_asked_for),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
