#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/sched_policy.h"
#include "kv/kv_trie.h"

static struct sched_waiting waiting(enum api_priority p, int64_t waited_ms, uint64_t order)
{
    return (struct sched_waiting){.priority = p, .waited_ms = waited_ms, .order = order};
}

static void test_the_line_is_class_then_key_then_agent_then_arrival(void **state)
{
    (void)state;
    struct sched_waiting high = waiting(API_PRIORITY_HIGH, 0, 9),
                         first = waiting(API_PRIORITY_NORMAL, 0, 1),
                         second = waiting(API_PRIORITY_NORMAL, 0, 2), hungry = second,
                         poor = second;
    second.service = first.service = 100;
    hungry.service = 5;
    poor.service = 900; /* of a key that has had less */
    first.key_service = second.key_service = hungry.key_service = 1;
    assert_true(sched_policy_before(&high, &first));
    assert_true(sched_policy_before(&first, &second));
    assert_true(sched_policy_before(&hungry, &first));
    assert_true(sched_policy_before(&poor, &hungry));
    assert_false(sched_policy_before(&first, &first));
}

static void test_waiting_lifts_a_request_one_class_in_thirty_seconds(void **state)
{
    (void)state;
    struct sched_waiting old = waiting(API_PRIORITY_LOW, 30000, 1),
                         young = waiting(API_PRIORITY_LOW, 29999, 2),
                         fresh = waiting(API_PRIORITY_NORMAL, 0, 3);
    assert_true(sched_policy_before(&old, &fresh));
    assert_true(sched_policy_before(&fresh, &young));
    struct sched_waiting ancient = waiting(API_PRIORITY_IDLE, 1000000, 0),
                         high = waiting(API_PRIORITY_HIGH, 0, 5);
    assert_true(sched_policy_before(&ancient, &high)); /* nobody starves */
}

static void test_a_preempted_sequence_heads_its_class(void **state)
{
    (void)state;
    struct sched_waiting back = waiting(API_PRIORITY_NORMAL, 0, 50),
                         first = waiting(API_PRIORITY_NORMAL, 0, 1),
                         high = waiting(API_PRIORITY_HIGH, 0, 60);
    back.was_preempted = true;
    assert_true(sched_policy_before(&back, &first));
    assert_true(sched_policy_before(&high, &back));
}

static void test_E26_a_blocked_head_is_passed_a_limited_number_of_times(void **state)
{
    (void)state;
    assert_true(sched_policy_may_pass(31, 0));
    assert_false(sched_policy_may_pass(32, 0));
    assert_false(sched_policy_may_pass(0, 10000));
}

static void test_the_chunk_holds_the_step_target_beside_decoders(void **state)
{
    (void)state;
    static const struct { struct sched_pace pace; uint32_t decoders, expect; } rows[] = {
        {{.decode_ms = 10, .row_ms = 0.1, .batch = 512}, 0, 512}, /* alone: the whole batch */
        {{.decode_ms = 0, .row_ms = 0.1, .batch = 512}, 3, 512},  /* not measured yet */
        {{.decode_ms = 10, .row_ms = 0.1, .batch = 512}, 3, 150}, /* 25 ms - 10 ms */
        {{.decode_ms = 10, .row_ms = 10, .batch = 512}, 3, 32},   /* never less */
        {{.decode_ms = 10, .row_ms = 10, .batch = 16}, 3, 16},
        {{.decode_ms = 10, .row_ms = 0.001, .batch = 512}, 3, 512},
        {{.decode_ms = 10, .row_ms = 0.1, .target_ms = 20, .batch = 512}, 3, 100},
        {{.decode_ms = 50, .row_ms = 0.1, .target_ms = 20, .batch = 512}, 3, 32},
    };
    for (size_t i = 0; i < countof(rows); i++)
        assert_int_equal(sched_policy_chunk(&rows[i].pace, rows[i].decoders), rows[i].expect);
}

static struct sched_runner prompt(uint32_t rows, uint64_t admitted)
{
    return (struct sched_runner){.rows_left = rows, .admitted = admitted};
}
static const struct sched_runner decoder = {.rows_left = 1, .is_decoder = true};

static void test_decoders_come_first_then_the_oldest_prompt(void **state)
{
    (void)state;
    struct sched_runner r[] = {prompt(900, 7), decoder, prompt(800, 3), decoder};
    uint32_t rows[4];
    assert_int_equal(sched_policy_rows(r, 4, 100, 512, rows), 102);
    assert_int_equal(rows[1], 1);
    assert_int_equal(rows[3], 1);
    assert_int_equal(rows[2], 100);
    assert_int_equal(rows[0], 0);
}

static void test_what_the_first_prompt_leaves_goes_to_the_next(void **state)
{
    (void)state;
    struct sched_runner r[] = {prompt(30, 1), prompt(900, 2), prompt(900, 3)};
    uint32_t rows[3];
    assert_int_equal(sched_policy_rows(r, 3, 100, 512, rows), 100);
    assert_int_equal(rows[0], 30);
    assert_int_equal(rows[1], 70);
    assert_int_equal(rows[2], 0);
}

static void test_a_short_prompt_goes_ahead_with_at_most_half(void **state)
{
    (void)state;
    struct sched_runner r[] = {prompt(100000, 1), prompt(2000, 2), prompt(40, 3)};
    uint32_t rows[3];
    assert_int_equal(sched_policy_rows(r, 3, 512, 1024, rows), 512);
    assert_int_equal(rows[2], 40); /* the shortest of those that may */
    assert_int_equal(rows[0], 472);
    r[2].rows_left = 1500;
    sched_policy_rows(r, 3, 512, 1024, rows);
    assert_int_equal(rows[2], 256);
    assert_int_equal(rows[0], 256);
    r[0].rows_left = 8000; /* 1500 is more than an eighth of it, 2000 too */
    sched_policy_rows(r, 3, 512, 1024, rows);
    assert_int_equal(rows[0], 512);
}

static void test_held_sequences_get_nothing(void **state)
{
    (void)state;
    struct sched_runner r[] = {decoder, prompt(50, 1), decoder};
    uint32_t rows[3];
    r[0].is_held = r[1].is_held = true;
    assert_int_equal(sched_policy_rows(r, 3, 100, 512, rows), 1);
    assert_int_equal(rows[2], 1);
}

static void test_a_step_never_holds_more_than_its_rows(void **state)
{
    (void)state;
    struct sched_runner r[] = {decoder, decoder, prompt(50, 1), decoder};
    uint32_t rows[4];
    assert_int_equal(sched_policy_rows(r, 4, 100, 2, rows), 2);
    assert_int_equal(sched_policy_rows(r, 4, 100, 10, rows), 10);
    assert_int_equal(rows[2], 7);
}

static void test_E27_the_victim_loses_least_and_is_of_the_lowest_class(void **state)
{
    (void)state;
    struct sched_victim v[] = {
        {.priority = API_PRIORITY_NORMAL, .recompute = 500, .admitted = 1},
        {.priority = API_PRIORITY_NORMAL, .recompute = 100, .admitted = 2},
        {.priority = API_PRIORITY_LOW, .recompute = 9000, .admitted = 3},
        {.priority = API_PRIORITY_HIGH, .recompute = 1, .admitted = 4},
    };
    assert_int_equal(sched_policy_victim(v, 4, 0), 2);
    assert_int_equal(sched_policy_victim(v, 2, 0), 1);
    v[1].preempted_count = SCHED_POLICY_PREEMPT_MAX;
    assert_int_equal(sched_policy_victim(v, 2, 0), 0); /* only the needing one may still go */
    assert_int_equal(sched_policy_victim(v, 1, 0), 1); /* the only runner never */
}

static void test_a_low_one_in_need_goes_itself_before_a_high_one(void **state)
{
    (void)state;
    struct sched_victim v[] = {
        {.priority = API_PRIORITY_HIGH, .recompute = 1, .admitted = 1},
        {.priority = API_PRIORITY_LOW, .recompute = 9000, .admitted = 2},
    };
    assert_int_equal(sched_policy_victim(v, 2, 1), 1);
    assert_int_equal(sched_policy_victim(v, 2, 0), 1);
}

static void test_a_step_that_nobody_waits_for_is_short_and_rests_by_its_share(void **state)
{
    (void)state;
    struct sched_pace p = {.batch = 512};
    assert_int_equal(sched_policy_idle_rows(&p), SCHED_POLICY_IDLE_ROWS); /* nothing is measured */
    p.row_ms = 0.5;
    assert_int_equal(sched_policy_idle_rows(&p), 40);
    p.row_ms = 30; /* the least, or it would never end */
    assert_int_equal(sched_policy_idle_rows(&p), SCHED_POLICY_IDLE_ROWS);
    p.row_ms = 0.001;
    assert_int_equal(sched_policy_idle_rows(&p), 512);
    p.batch = 8;
    assert_int_equal(sched_policy_idle_rows(&p), 8);
    assert_int_equal(sched_policy_idle_rest(20000000, 250), 60000000);
    assert_int_equal(sched_policy_idle_rest(20000000, 1000), 0);
}

static void test_of_equals_the_youngest_gives_way(void **state)
{
    (void)state;
    struct sched_victim v[] = {{.recompute = 64, .admitted = 1}, {.recompute = 64, .admitted = 9}};
    assert_int_equal(sched_policy_victim(v, 2, 0), 1);
}

/* That weights of one age go in this order, kv_trie_test shows. */
static void test_who_waits_for_a_tool_weighs_more_than_a_session_and_less_than_a_fork(void **state)
{
    (void)state;
    for (int done = 0; done < API_DONE_COUNT_; done++)
        for (int session = 0; session < 2; session++) {
            uint32_t weight = sched_policy_weight((enum api_done)done, session);
            assert_int_equal(weight, done == API_DONE_CALLS ? KV_TRIE_WEIGHT_TOOL
                                     : session              ? KV_TRIE_WEIGHT_SESSION
                                                            : 1);
        }
    assert_true(1 < KV_TRIE_WEIGHT_SESSION && KV_TRIE_WEIGHT_SESSION < KV_TRIE_WEIGHT_TOOL &&
                KV_TRIE_WEIGHT_TOOL < KV_TRIE_WEIGHT_FORK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_line_is_class_then_key_then_agent_then_arrival),
        cmocka_unit_test(test_waiting_lifts_a_request_one_class_in_thirty_seconds),
        cmocka_unit_test(test_a_preempted_sequence_heads_its_class),
        cmocka_unit_test(test_E26_a_blocked_head_is_passed_a_limited_number_of_times),
        cmocka_unit_test(test_the_chunk_holds_the_step_target_beside_decoders),
        cmocka_unit_test(test_decoders_come_first_then_the_oldest_prompt),
        cmocka_unit_test(test_what_the_first_prompt_leaves_goes_to_the_next),
        cmocka_unit_test(test_a_short_prompt_goes_ahead_with_at_most_half),
        cmocka_unit_test(test_held_sequences_get_nothing),
        cmocka_unit_test(test_a_step_never_holds_more_than_its_rows),
        cmocka_unit_test(test_E27_the_victim_loses_least_and_is_of_the_lowest_class),
        cmocka_unit_test(test_a_low_one_in_need_goes_itself_before_a_high_one),
        cmocka_unit_test(test_a_step_that_nobody_waits_for_is_short_and_rests_by_its_share),
        cmocka_unit_test(test_of_equals_the_youngest_gives_way),
        cmocka_unit_test(
            test_who_waits_for_a_tool_weighs_more_than_a_session_and_less_than_a_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
