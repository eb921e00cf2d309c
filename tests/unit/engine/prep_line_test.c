#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/base.h"
#include "engine/prep_line.h"

#define MS 1000000

static struct prep_line line;
static struct prep_item items[300];

static int setup(void **state)
{
    (void)state;
    prep_line_init(&line);
    memset(items, 0, sizeof items);
    return 0;
}

static void add(uint32_t i, uint64_t id, uint64_t agent)
{
    items[i] = (struct prep_item){.id = id, .agent = agent, .is_request = agent != 0};
    prep_line_add(&line, &items[i]);
}

/* Takes the next one at that time, which then takes so long. */
static uint64_t next(int64_t now_ms, int64_t took_ms)
{
    struct prep_item *at = prep_line_next(&line, now_ms * MS);
    assert_non_null(at);
    if (at->is_request)
        prep_line_spent(&line, at->agent, took_ms * MS, (now_ms + took_ms) * MS);
    return at->id;
}

static void test_an_agent_whose_requests_are_dear_holds_up_another_by_one(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        add(i, 1 + i, 7);
    assert_int_equal(next(0, 500), 1);
    add(100, 200, 8);
    add(101, 201, 8);
    assert_int_equal(next(500, 2), 200);
    assert_int_equal(next(502, 2), 201);
    assert_int_equal(next(504, 500), 2);
}

static void test_requests_of_one_agent_keep_their_order(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 20; i++)
        add(i, 1 + i, 7);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(next(i, 1), 1 + i);
    assert_null(prep_line_next(&line, 0));
}

static void test_what_an_agent_had_is_forgotten_by_halves(void **state)
{
    (void)state;
    add(0, 1, 7);
    assert_int_equal(next(0, 800), 1);
    add(1, 2, 8);
    assert_int_equal(next(800, 300), 2);
    add(2, 3, 7); /* 800 ms, two halves later 200 */
    add(3, 4, 8); /* 300 ms, one half later 150 */
    assert_int_equal(next(2850, 0), 4);
    assert_int_equal(next(2850, 0), 3);
    add(4, 5, 7); /* both nothing after a minute: by arrival */
    add(5, 6, 8);
    assert_int_equal(next(70000, 0), 5);
}

static void test_a_word_about_a_request_comes_after_it(void **state)
{
    (void)state;
    add(0, 1, 7);
    assert_int_equal(next(0, 900), 1);
    add(1, 2, 7);
    add(2, 2, 0); /* HOLD */
    add(3, 9, 8);
    add(4, 5, 0); /* about one that is prepared already: at once */
    assert_int_equal(next(900, 0), 5);
    assert_int_equal(next(900, 0), 9);
    assert_int_equal(next(900, 0), 2);
    struct prep_item *word = prep_line_next(&line, 900 * MS);
    assert_true(word == &items[2]);
}

static void test_a_cancelled_request_leaves_with_all_that_was_said_of_it(void **state)
{
    (void)state;
    add(0, 1, 7);
    add(1, 2, 7);
    add(2, 1, 0);
    assert_true(prep_line_take(&line, 1) == &items[0]);
    assert_true(prep_line_take(&line, 1) == &items[2]);
    assert_null(prep_line_take(&line, 1));
    assert_int_equal(next(0, 0), 2);
    assert_null(prep_line_next(&line, 0));
}

static void test_a_word_alone_is_no_request_that_a_cancel_could_drop(void **state)
{
    (void)state;
    add(0, 1, 7);
    add(1, 2, 7);
    assert_true(prep_line_has(&line, 1));
    assert_int_equal(next(0, 500), 1);
    add(2, 1, 0); /* HOLD: came while 1 was prepared */
    assert_false(prep_line_has(&line, 1));
    assert_true(prep_line_has(&line, 2));
    assert_false(prep_line_has(&line, 3));
}

static void test_more_agents_than_are_remembered_displace_the_idle_ones(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PREP_LINE_AGENTS + 20; i++)
        prep_line_spent(&line, 1000 + i, MS, (int64_t)(i + 1) * 2000 * MS);
    assert_int_equal(line.agents_count, PREP_LINE_AGENTS);
    int64_t now = (int64_t)(PREP_LINE_AGENTS + 20) * 2000;
    add(0, 1, 1000 + PREP_LINE_AGENTS + 19);
    add(1, 2, 1000);
    assert_int_equal(next(now, 0), 2);
    assert_int_equal(next(now, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(
            test_an_agent_whose_requests_are_dear_holds_up_another_by_one, setup),
        cmocka_unit_test_setup(test_requests_of_one_agent_keep_their_order, setup),
        cmocka_unit_test_setup(test_what_an_agent_had_is_forgotten_by_halves, setup),
        cmocka_unit_test_setup(test_a_word_about_a_request_comes_after_it, setup),
        cmocka_unit_test_setup(
            test_a_cancelled_request_leaves_with_all_that_was_said_of_it, setup),
        cmocka_unit_test_setup(
            test_a_word_alone_is_no_request_that_a_cancel_could_drop, setup),
        cmocka_unit_test_setup(
            test_more_agents_than_are_remembered_displace_the_idle_ones, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
