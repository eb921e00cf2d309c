#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "serve/quota.h"

#define HOUR ((int64_t)3600 * 1000)

static struct quota *q;
static struct api_error e;

static int begin(void **state)
{
    struct err why;
    (void)state;
    e = (struct api_error){0};
    return quota_open(&q, &why) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    quota_close(q);
    return 0;
}

static bool enter(struct quota_ticket *t, const struct quota_rules *r, const char *agent,
                  int64_t now_ms)
{
    const struct quota_who who = {STR("k"), str_of(agent), NULL, r};
    return quota_enter(q, t, &who, now_ms, &e);
}

static void test_used_tokens_refuse_until_the_window_ends(void **state)
{
    (void)state;
    const struct quota_rules r = {.tokens_per_hour = 100, .tokens_per_day = 150};
    struct quota_ticket t;
    assert_true(enter(&t, &r, "a", 0));
    quota_leave(q, &t, 100, 1000);
    assert_int_equal(quota_used_of(q, STR("a"), 2000).hour, 100);
    assert_int_equal(quota_used_of(q, STR("b"), 2000).day, 0);
    assert_false(enter(&t, &r, "a", 2000));
    assert_string_equal(e.err.text, "agent a: tokens_per_hour is 100");
    assert_true(e.retry_after_ms == HOUR - 2000);
    assert_true(enter(&t, &r, "b", 2000)); /* somebody else's are his own */
    quota_leave(q, &t, 0, 2000);
    assert_true(enter(&t, &r, "a", HOUR));
    quota_leave(q, &t, 50, HOUR);
    assert_int_equal(quota_used_of(q, STR("a"), HOUR).hour, 50);
    assert_int_equal(quota_used_of(q, STR("a"), HOUR).day, 150);
    assert_int_equal(quota_used_of(q, STR("a"), 3 * HOUR).hour, 0);
    assert_false(enter(&t, &r, "a", 2 * HOUR + 1));
    assert_string_equal(e.err.text, "agent a: tokens_per_day is 150");
    assert_true(e.retry_after_ms == 24 * HOUR - 2 * HOUR - 1);
    assert_true(enter(&t, &r, "a", 24 * HOUR));
    quota_leave(q, &t, 0, 24 * HOUR);
}

static void test_who_waits_is_counted_until_its_first_token(void **state)
{
    (void)state;
    const struct quota_rules r = {.max_running = 1, .max_queued = 2};
    struct quota_ticket a, b, c;
    assert_true(enter(&a, &r, "a", 0));
    assert_true(quota_may_start(&a));
    quota_start(&a);
    assert_true(enter(&b, &r, "a", 0));
    assert_false(quota_may_start(&b));
    assert_false(enter(&c, &r, "a", 0));
    assert_string_equal(e.err.text, "agent a: max_queued is 2");
    quota_begin(&a);
    assert_true(enter(&c, &r, "a", 0));
    quota_leave(q, &a, 0, 0);
    assert_true(quota_may_start(&b) && quota_may_start(&c));
    quota_start(&b);
    assert_false(quota_may_start(&c));
    quota_leave(q, &b, 0, 0);
    quota_leave(q, &c, 0, 0);
}

static void test_a_refusal_of_the_agent_takes_nothing_of_the_key(void **state)
{
    (void)state;
    const struct quota_rules key = {.max_queued = 1}, agent = {.tokens_per_day = 1};
    const struct quota_who who = {STR("k"), STR("a"), &key, &agent};
    struct quota_ticket t;
    assert_true(quota_enter(q, &t, &who, 0, &e));
    quota_leave(q, &t, 5, 0);
    for (int i = 0; i < 3; i++) {
        assert_false(quota_enter(q, &t, &who, 0, &e));
        assert_string_equal(e.err.text, "agent a: tokens_per_day is 1");
    }
}

static void test_more_names_than_accounts_cost_the_oldest(void **state)
{
    (void)state;
    const struct quota_rules r = {.tokens_per_day = 10};
    struct quota_ticket t, kept;
    char name[32];
    assert_true(enter(&kept, &r, "kept", 0));
    for (uint32_t i = 0; i < QUOTA_ACCOUNTS_MAX + 10; i++) {
        snprintf(name, sizeof name, "n%u", i);
        assert_true(enter(&t, &r, name, 1 + i));
        quota_leave(q, &t, 20, 1 + i);
    }
    assert_true(enter(&t, &r, "n0", QUOTA_ACCOUNTS_MAX + 20)); /* was forgotten */
    quota_leave(q, &t, 0, 0);
    assert_false(enter(&t, &r, "n8000", QUOTA_ACCOUNTS_MAX + 20));
    quota_leave(q, &kept, 0, 0);
}

static void test_rules_fill_what_is_missing_and_cap_what_is_more(void **state)
{
    (void)state;
    const struct quota_rules r = {
        .max_context = 512, .max_output = 9, .given = API_GIVEN(PRIORITY) | API_GIVEN(EFFORT),
        .priority = API_PRIORITY_LOW, .effort = API_EFFORT_LOW, .has_max_priority = true,
        .max_priority = API_PRIORITY_NORMAL};
    struct api_request rq;
    api_request_init(&rq);
    quota_fill(&rq, &r);
    assert_true(rq.priority == API_PRIORITY_LOW && rq.effort == API_EFFORT_LOW &&
                rq.context_max == 512 && rq.tokens_max == 9);
    api_request_init(&rq);
    rq.priority = API_PRIORITY_HIGH;
    rq.tokens_max = 4;
    rq.context_max = 256;
    rq.think = API_THINK_OFF;
    rq.given = API_GIVEN(PRIORITY) | API_GIVEN(TOKENS_MAX) | API_GIVEN(THINK);
    quota_fill(&rq, &r);
    assert_true(rq.priority == API_PRIORITY_NORMAL && rq.effort == API_EFFORT_DEFAULT &&
                rq.context_max == 256 && rq.tokens_max == 4);
    quota_fill(&rq, NULL);
    api_request_init(&rq);
    rq.kind = API_KIND_PREFILL;
    quota_fill(&rq, &r);
    assert_int_equal(rq.tokens_max, 0);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(test_used_tokens_refuse_until_the_window_ends),
        ROW(test_who_waits_is_counted_until_its_first_token),
        ROW(test_a_refusal_of_the_agent_takes_nothing_of_the_key),
        ROW(test_more_names_than_accounts_cost_the_oldest),
        ROW(test_rules_fill_what_is_missing_and_cap_what_is_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
