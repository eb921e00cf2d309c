#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/sched_trace.h"

#define MS INT64_C(1000000)

static void test_a_line_says_what_one_second_did(void **state)
{
    (void)state;
    struct sched_trace t = {0};
    struct sched_stats s = {.running = 4};
    struct buf out;
    buf_init(&out, 1000);
    assert_false(sched_trace_add(&t, &s, 1000 * MS, &out)); /* a beginning */
    s = (struct sched_stats){.running = 4, .steps = 10, .tokens_done = 32, .admitted = 2,
                             .prompt_tokens = 200, .reused_tokens = 150, .plan_ns = 5 * MS,
                             .compute_ns = 400 * MS, .take_ns = 20 * MS};
    assert_false(sched_trace_add(&t, &s, 1999 * MS, &out));
    assert_true(sched_trace_add(&t, &s, 3000 * MS, &out));
    assert_string_equal(out.p, "sched: 5.0 steps/s, batch 3.2, running 4, ms a step 0.50 scheduler "
                               "40.00 compute 2.00 sampling, admitted 2, 200 prompt tokens, "
                               "75 % reused");
    buf_clear(&out);
    assert_false(sched_trace_add(&t, &s, 60000 * MS, &out)); /* nothing was done */
    s.steps += 30;
    s.tokens_done += 30;
    assert_true(sched_trace_add(&t, &s, 61000 * MS, &out)); /* the rest before it does not count */
    assert_true(str_starts(buf_view(&out), STR("sched: 30.0 steps/s, batch 1.0,")));
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_says_what_one_second_did),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
