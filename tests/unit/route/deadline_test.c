#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "route/deadline.h"

static const struct api_deadlines asked = {.connect_ms = 2000, .first_ms = DEADLINE_AUTO,
                                           .gap_ms = 20000};

static void test_before_twenty_samples_the_prompt_says_how_long(void **state)
{
    (void)state;
    struct health_samples few = {.count = 19, .ms = {1}};
    struct deadline_input in = {.asked = asked, .prompt_tokens = 5000, .samples = &few,
                                .think_tokens_max = API_THINK_ENDLESS};
    assert_int_equal(deadline_make(&in).first_ms, 40000);
    in.prompt_tokens = 1000000;
    assert_int_equal(deadline_make(&in).first_ms, 120000);
}

static void test_with_history_it_is_four_times_its_p95_within_bounds(void **state)
{
    (void)state;
    struct health_samples s = {.count = 20};
    struct deadline_input in = {.asked = asked, .samples = &s};
    const struct {
        uint32_t ms;
        int64_t want;
    } rows[] = {{100, 15000}, {5000, 20000}, {60000, 120000}};
    for (size_t i = 0; i < countof(rows); i++) {
        for (int k = 0; k < 20; k++)
            s.ms[k] = rows[i].ms;
        assert_int_equal(deadline_make(&in).first_ms, rows[i].want);
    }
}

static void test_G03_long_silent_thinking_is_no_hang(void **state)
{
    (void)state;
    struct deadline_input in = {.asked = asked, .is_silent_thinker = true,
                                .think_tokens_max = API_THINK_ENDLESS,
                                .effort = API_EFFORT_MEDIUM};
    assert_int_equal(deadline_make(&in).first_ms, 30000 + 8192 * 1000 / 50);
    in.effort = API_EFFORT_HIGH;
    assert_int_equal(deadline_make(&in).first_ms, 600000);
    in.think_tokens_max = 1000; /* a budget of its own counts instead */
    assert_int_equal(deadline_make(&in).first_ms, 50000);
}

static void test_a_trial_has_half_the_time(void **state)
{
    (void)state;
    struct deadline_input in = {.asked = asked, .is_trial = true};
    in.asked.first_ms = 8000;
    assert_int_equal(deadline_make(&in).first_ms, 4000);
    assert_int_equal(deadline_make(&in).gap_ms, 20000);
}

static void test_a_local_leg_is_late_only_by_its_own_measure(void **state)
{
    (void)state;
    struct deadline_input in = {.asked = asked, .is_local = true, .prompt_tokens = 100000};
    struct api_deadlines d = deadline_make(&in);
    assert_int_equal(d.first_ms, 0);
    assert_int_equal(d.gap_ms, 0);
    in.prefill_tokens_per_s = 1000;
    in.tokens_ahead = 50000;
    d = deadline_make(&in);
    assert_int_equal(d.first_ms, 3 * 150 * 1000 + 5000);
    /* and it moves with progress */
    struct deadline_clock c = {.begun_ms = 1, .progress_ms = 400000};
    assert_int_equal(deadline_late(&d, &c, 600000), DEADLINE_NONE);
    assert_int_equal(deadline_late(&d, &c, 400000 + d.first_ms), DEADLINE_HEADER);
}

static void test_G01_each_wait_ends_at_its_own_moment(void **state)
{
    (void)state;
    const struct api_deadlines d = {.connect_ms = 2000, .first_ms = 15000, .gap_ms = 20000,
                                    .total_ms = 60000};
    struct deadline_clock c = {.begun_ms = 1000, .arrived_ms = 500};
    const struct {
        int64_t connected, header, token, due;
        enum deadline_kind want;
    } rows[] = {{0, 0, 0, 3000, DEADLINE_CONNECT},
                {1100, 0, 0, 16000, DEADLINE_HEADER},
                {1100, 1200, 0, 16000, DEADLINE_FIRST},
                {1100, 1200, 9000, 29000, DEADLINE_GAP},
                {1100, 1200, 45000, 60500, DEADLINE_TOTAL}};
    for (size_t i = 0; i < countof(rows); i++) {
        c.connected_ms = rows[i].connected;
        c.header_ms = rows[i].header;
        c.token_ms = rows[i].token;
        assert_int_equal(deadline_next_ms(&d, &c), rows[i].due);
        assert_int_equal(deadline_late(&d, &c, rows[i].due - 1), DEADLINE_NONE);
        assert_int_equal(deadline_late(&d, &c, rows[i].due), rows[i].want);
    }
}

static void test_a_reader_that_stalls_is_not_the_leg_s_silence(void **state)
{
    (void)state;
    const struct api_deadlines d = {.gap_ms = 100};
    const struct deadline_clock c = {.begun_ms = 1, .header_ms = 1, .token_ms = 2, .held_ms = 3};
    assert_int_equal(deadline_next_ms(&d, &c), INT64_MAX);
    assert_int_equal(deadline_late(&d, &c, 1000000), DEADLINE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_twenty_samples_the_prompt_says_how_long),
        cmocka_unit_test(test_with_history_it_is_four_times_its_p95_within_bounds),
        cmocka_unit_test(test_G03_long_silent_thinking_is_no_hang),
        cmocka_unit_test(test_a_trial_has_half_the_time),
        cmocka_unit_test(test_a_local_leg_is_late_only_by_its_own_measure),
        cmocka_unit_test(test_G01_each_wait_ends_at_its_own_moment),
        cmocka_unit_test(test_a_reader_that_stalls_is_not_the_leg_s_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
