#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/engine_beat.h"

static void test_a_step_counts_once_in_the_bucket_of_its_time(void **state)
{
    (void)state;
    static const struct {
        int64_t ns;
        bool is_prefilling;
        uint32_t bucket;
    } rows[] = {
        {0, false, 0},
        {1000000, true, 0},
        {(int64_t)1 << 60, false, API_STEP_BUCKETS}, /* the rest */
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct engine_beat b = {0};
        struct sched_stats s = {.steps = 1, .is_prefilling = rows[i].is_prefilling};
        struct api_beat out;
        engine_beat_count_step(&b, &s, rows[i].ns);
        s.steps = 0;
        engine_beat_count_step(&b, &s, 5); /* no step since the last publish */
        engine_beat_read(&b, 1, &out);
        enum api_step_kind kind = rows[i].is_prefilling ? API_STEP_PREFILL : API_STEP_DECODE;
        for (int k = 0; k < API_STEP_COUNT_; k++)
            for (uint32_t j = 0; j <= API_STEP_BUCKETS; j++)
                assert_int_equal(out.steps[k].counts[j],
                                 (enum api_step_kind)k == kind && j == rows[i].bucket);
        assert_int_equal(out.steps[kind].ns, rows[i].ns);
    }
    for (uint32_t j = 0; j < API_STEP_BUCKETS; j++) { /* a bound is the end of its bucket */
        struct engine_beat b = {0};
        struct sched_stats s = {.steps = 1};
        struct api_beat out;
        engine_beat_count_step(&b, &s, (int64_t)api_step_bounds_ms[j] * 1000000);
        engine_beat_count_step(&b, &s, (int64_t)api_step_bounds_ms[j] * 1000000 + 1);
        engine_beat_read(&b, 1, &out);
        assert_int_equal(out.steps[API_STEP_DECODE].counts[j], 1);
        assert_int_equal(out.steps[API_STEP_DECODE].counts[j + 1], 1);
    }
}

static void test_what_is_published_is_what_is_read(void **state)
{
    (void)state;
    struct engine_beat b = {0};
    struct engine_tier tier = {.is_broken = true};
    struct kv_pool pool = {.groups[0] = {.pages = 100, .free_count = 60, .spare_count = 30}};
    struct sched s = {.o.pool = &pool,
                      .stats = {.steps = 5, .tokens_done = 400, .running = 3, .waiting = 2,
                                .tokens_waiting = 900, .preemptions = 1, .recomputed_tokens = 64,
                                .prefill_tokens_per_s = 1234.5, .decode_tokens_per_s = 56.25}};
    struct api_beat out;
    engine_beat_publish(&b, &s, &tier);
    engine_beat_set_phase(&b, API_PHASE_DECODE);
    engine_beat_prep_add(&b);
    engine_beat_prep_add(&b);
    engine_beat_prep_remove(&b);
    engine_beat_read(&b, 1, &out);
    assert_int_equal(out.step, 5);
    assert_int_equal(out.phase, API_PHASE_DECODE);
    assert_int_equal(out.running, 3);
    assert_int_equal(out.queued, 3); /* two of the scheduler, one on its way to it */
    assert_int_equal(out.tokens_done, 400);
    assert_int_equal(out.tokens_queued, 900);
    assert_int_equal(out.preemptions, 1);
    assert_int_equal(out.recomputed_tokens, 64);
    assert_true(out.prefill_tokens_per_s == 1234.5f && out.decode_tokens_per_s == 56.25f);
    assert_true(out.tier.is_broken);
    assert_int_equal(out.pages[API_PAGES_FREE], 60);
    assert_int_equal(out.pages[API_PAGES_USED], 10);
    assert_int_equal(out.pages[API_PAGES_CACHED], 30);
}

static uint64_t ops_done(const struct device *device)
{
    return *(const uint64_t *)(const void *)device;
}

static void test_a_long_step_and_a_load_are_progress(void **state)
{
    (void)state;
    static const struct backend backend = {.progress = ops_done};
    struct engine_beat b = {0};
    struct api_beat was, now;
    uint64_t ops = 10;
    engine_beat_read(&b, 1, &was);
    engine_beat_piece(&b);
    engine_beat_read(&b, 1, &now);
    assert_true(now.progress > was.progress);
    engine_beat_set_device(&b, &backend, (struct device *)(void *)&ops);
    engine_beat_read(&b, 1, &was);
    ops++;
    engine_beat_read(&b, 1, &now);
    assert_int_equal(now.progress, was.progress + 1);
    engine_beat_set_device(&b, NULL, NULL); /* closing: nobody asks the device any more */
    ops = 1000;
    engine_beat_read(&b, 1, &now);
    assert_true(now.progress < 1000);
}

#define MS INT64_C(1000000)

static void test_the_longest_op_is_how_long_progress_stood_still_and_went_on(void **state)
{
    (void)state;
    static const struct {
        int64_t at_ms;
        enum api_phase phase;
        bool moves;      /* since the row before */
        int64_t op_ms; /* the longest, as that beat says it */
    } rows[] = {
        {500, API_PHASE_LOADING, true, 0},
        {9000, API_PHASE_LOADING, false, 0},
        {9500, API_PHASE_IDLE, true, 0}, /* a load has a limit of its own */
        {20000, API_PHASE_IDLE, false, 0},
        {20500, API_PHASE_PREFILL, false, 0},
        {21000, API_PHASE_PREFILL, false, 0}, /* it may be the one that hangs */
        {23500, API_PHASE_PREFILL, false, 0},
        {24000, API_PHASE_PREFILL, true, 3000},
        {24500, API_PHASE_DECODE, true, 3000},
        {25000, API_PHASE_DECODE, false, 3000},
        {25500, API_PHASE_IDLE, true, 3000},
        {83000, API_PHASE_IDLE, false, 3000},
        {200000, API_PHASE_IDLE, false, 0}, /* long ago */
    };
    struct engine_beat b = {0};
    struct api_beat out;
    for (size_t i = 0; i < countof(rows); i++) {
        engine_beat_set_phase(&b, rows[i].phase);
        if (rows[i].moves)
            engine_beat_piece(&b);
        engine_beat_read(&b, rows[i].at_ms * MS, &out);
        if (out.op_ns_max != (uint64_t)(rows[i].op_ms * MS))
            fail_msg("row %u: %.0f ms", (uint32_t)i, (double)out.op_ns_max / 1e6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_counts_once_in_the_bucket_of_its_time),
        cmocka_unit_test(test_what_is_published_is_what_is_read),
        cmocka_unit_test(test_a_long_step_and_a_load_are_progress),
        cmocka_unit_test(test_the_longest_op_is_how_long_progress_stood_still_and_went_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
