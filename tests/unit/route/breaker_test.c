#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "route/breaker.h"

static const struct breaker_options *const o = &breaker_options_default;

static struct breaker ended(struct breaker b, enum health_class c, int64_t now)
{
    struct breaker_event ev = {.kind = BREAKER_EVENT_END, .class_ = c, .jitter = 0.5,
                               .is_trial = b.has_trial};
    return breaker_next(b, o, &ev, now);
}

static struct breaker told(struct breaker b, enum breaker_event_kind kind, int64_t now)
{
    struct breaker_event ev = {.kind = kind, .jitter = 0.5};
    return breaker_next(b, o, &ev, now);
}

static struct breaker opened(int64_t now)
{
    struct breaker b = {0};
    b = ended(b, HEALTH_CLASS_STALL, now);
    return ended(b, HEALTH_CLASS_CONNECT, now);
}

static void test_consecutive_points_open_it_and_a_success_forgets_them(void **state)
{
    (void)state;
    struct breaker b = {0};
    for (int i = 0; i < 4; i++)
        b = ended(b, HEALTH_CLASS_CUT, 10);
    b = ended(b, HEALTH_CLASS_OK, 11);
    for (int i = 0; i < 4; i++)
        b = ended(b, HEALTH_CLASS_HTTP_5XX, 12);
    assert_int_equal(b.state, BREAKER_STATE_CLOSED);
    assert_true(breaker_allows(&b, 12));
    b = ended(b, HEALTH_CLASS_HTTP_5XX, 13);
    assert_int_equal(b.state, BREAKER_STATE_OPEN);
    assert_false(breaker_allows(&b, 13));
    assert_int_equal(b.why, HEALTH_CLASS_HTTP_5XX);
}

static void test_every_class_counts_its_points_and_no_others(void **state)
{
    (void)state;
    for (unsigned c = 0; c < HEALTH_CLASS_COUNT_; c++) {
        struct breaker b = ended((struct breaker){0}, (enum health_class)c, 5);
        assert_int_equal(b.points, health_class_points((enum health_class)c));
        assert_int_equal(b.state, BREAKER_STATE_CLOSED);
    }
}

static void test_a_ratio_of_failures_in_the_window_opens_it_too(void **state)
{
    (void)state;
    struct breaker_event ev = {.kind = BREAKER_EVENT_END, .class_ = HEALTH_CLASS_CUT,
                               .window = {9, 9}, .jitter = 0.5};
    struct breaker b = breaker_next((struct breaker){0}, o, &ev, 1);
    assert_int_equal(b.state, BREAKER_STATE_CLOSED); /* fewer than min_requests */
    ev.window = (struct health_window){10, 4};
    b = breaker_next((struct breaker){0}, o, &ev, 1);
    assert_int_equal(b.state, BREAKER_STATE_CLOSED);
    ev.window = (struct health_window){10, 5};
    b = breaker_next((struct breaker){0}, o, &ev, 1);
    assert_int_equal(b.state, BREAKER_STATE_OPEN);
}

static void test_the_cooldown_doubles_up_to_its_maximum_with_a_fifth_of_jitter(void **state)
{
    (void)state;
    int64_t want = 5000;
    for (uint32_t openings = 0; openings < 12; openings++) {
        struct breaker b = {.openings = openings, .points = 4};
        for (int k = 0; k < 3; k++) {
            struct breaker_event ev = {.kind = BREAKER_EVENT_END, .class_ = HEALTH_CLASS_CUT,
                                       .jitter = k * 0.4999};
            struct breaker next = breaker_next(b, o, &ev, 1000);
            int64_t ms = next.until_ms - 1000;
            assert_in_range(ms, want * 8 / 10 - 1, want * 12 / 10 + 1);
            assert_int_equal(next.openings, openings + 1);
        }
        want = want * 2 < 300000 ? want * 2 : 300000;
    }
}

static void test_a_running_cooldown_is_not_changed_by_what_ends_meanwhile(void **state)
{
    (void)state;
    struct breaker b = opened(100);
    int64_t until = b.until_ms;
    for (unsigned c = 0; c < HEALTH_CLASS_COUNT_; c++) {
        struct breaker next = ended(b, (enum health_class)c, 200);
        assert_int_equal(next.state, BREAKER_STATE_OPEN);
        assert_int_equal(next.until_ms, until);
    }
}

static void test_G09_open_means_no_request_until_half_open_and_then_one_trial(void **state)
{
    (void)state;
    struct breaker b = opened(0);
    int64_t until = b.until_ms;
    uint32_t allowed = 0;
    for (int64_t now = 1; now < until; now += 7)
        allowed += breaker_allows(&b, now);
    assert_int_equal(allowed, 0);
    assert_int_equal(breaker_free_ms(&b, 1), until);
    b = told(b, BREAKER_EVENT_TIME, until);
    assert_int_equal(b.state, BREAKER_STATE_HALF_OPEN);
    assert_true(breaker_allows(&b, until) && breaker_is_trial(&b, until));
    b = told(b, BREAKER_EVENT_BEGIN, until);
    assert_false(breaker_allows(&b, until + 1));
    assert_int_equal(breaker_free_ms(&b, until + 1), INT64_MAX);
    b = ended(b, HEALTH_CLASS_OK, until + 2);
    assert_true(breaker_allows(&b, until + 2));
    b = told(b, BREAKER_EVENT_BEGIN, until + 3);
    b = ended(b, HEALTH_CLASS_OK, until + 4);
    assert_int_equal(b.state, BREAKER_STATE_CLOSED); /* two successes */
}

static void test_a_trial_that_fails_opens_it_again_for_longer(void **state)
{
    (void)state;
    struct breaker b = opened(0);
    b = told(b, BREAKER_EVENT_BEGIN, b.until_ms);
    int64_t at = b.since_ms;
    b = ended(b, HEALTH_CLASS_CUT, at);
    assert_int_equal(b.state, BREAKER_STATE_OPEN);
    assert_int_equal(b.openings, 2);
    assert_int_equal(b.until_ms - at, 10000);
}

static void test_a_trial_without_an_outcome_frees_its_place(void **state)
{
    (void)state;
    struct breaker b = opened(0);
    b = told(b, BREAKER_EVENT_BEGIN, b.until_ms);
    b = ended(b, HEALTH_CLASS_CLIENT_GONE, b.since_ms + 1);
    assert_int_equal(b.state, BREAKER_STATE_HALF_OPEN);
    assert_true(breaker_allows(&b, b.since_ms + 2));
}

static void test_an_attempt_from_before_the_opening_closes_nothing(void **state)
{
    (void)state;
    struct breaker b = opened(0);
    b = told(b, BREAKER_EVENT_TIME, b.until_ms);
    struct breaker_event late = {.kind = BREAKER_EVENT_END, .class_ = HEALTH_CLASS_OK};
    for (int i = 0; i < 5; i++)
        b = breaker_next(b, o, &late, b.since_ms + 1);
    assert_int_equal(b.state, BREAKER_STATE_HALF_OPEN);
    assert_int_equal(b.successes, 0);
}

static void test_retry_after_is_kept_and_never_made_shorter(void **state)
{
    (void)state;
    struct breaker_event ev = {.kind = BREAKER_EVENT_END, .class_ = HEALTH_CLASS_RATE_LIMIT,
                               .retry_after_ms = 60000};
    struct breaker b = breaker_next((struct breaker){0}, o, &ev, 1000);
    assert_int_equal(b.cooling_ms, 61000);
    assert_int_equal(b.state, BREAKER_STATE_CLOSED);
    assert_false(breaker_allows(&b, 60999));
    assert_true(breaker_allows(&b, 61000));
    ev.retry_after_ms = 1000;
    b = breaker_next(b, o, &ev, 2000);
    assert_int_equal(b.cooling_ms, 61000);
    ev.retry_after_ms = 0; /* 30 s where nothing is said */
    b = breaker_next((struct breaker){0}, o, &ev, 0);
    assert_int_equal(b.cooling_ms, 30000);
    ev.retry_after_ms = 86400000;
    b = breaker_next((struct breaker){0}, o, &ev, 0);
    assert_int_equal(b.cooling_ms, 600000);
    ev.class_ = HEALTH_CLASS_HTTP_5XX;
    ev.retry_after_ms = 7000;
    b = breaker_next((struct breaker){0}, o, &ev, 0);
    assert_int_equal(b.cooling_ms, 7000);
}

static void test_the_free_endpoint_helps_only_where_it_can_tell(void **state)
{
    (void)state;
    struct breaker b = opened(0);
    b.why = HEALTH_CLASS_STALL;
    assert_int_equal(told(b, BREAKER_EVENT_FREE_OK, 1).state, BREAKER_STATE_OPEN);
    b.why = HEALTH_CLASS_CONNECT;
    assert_int_equal(told(b, BREAKER_EVENT_FREE_OK, 1).state, BREAKER_STATE_HALF_OPEN);
    struct breaker closed = {0};
    assert_int_equal(told(closed, BREAKER_EVENT_FREE_OK, 1).state, BREAKER_STATE_CLOSED);
}

static void test_an_administrator_wins_until_auto(void **state)
{
    (void)state;
    struct breaker b = told((struct breaker){0}, BREAKER_EVENT_FORCE_OPEN, 1);
    assert_false(breaker_allows(&b, INT64_MAX - 1));
    assert_int_equal(breaker_free_ms(&b, 1), INT64_MAX);
    b = told(b, BREAKER_EVENT_FORCE_CLOSED, 2);
    for (int i = 0; i < 20; i++)
        b = ended(b, HEALTH_CLASS_STALL, 3);
    assert_true(breaker_allows(&b, 4));
    b = told(b, BREAKER_EVENT_AUTO, 5);
    assert_int_equal(b.state, BREAKER_STATE_CLOSED);
    assert_int_equal(b.openings, 0);
}

static void test_a_minute_without_failure_forgets_the_openings(void **state)
{
    (void)state;
    struct breaker b = {.openings = 3, .failed_ms = 1000};
    assert_int_equal(told(b, BREAKER_EVENT_TIME, 60999).openings, 3);
    assert_int_equal(told(b, BREAKER_EVENT_TIME, 61000).openings, 0);
}

static void test_G25_a_network_that_is_down_costs_the_shortest_cooldown(void **state)
{
    (void)state;
    struct breaker b = {.openings = 6, .points = 4};
    struct breaker_event ev = {.kind = BREAKER_EVENT_END, .class_ = HEALTH_CLASS_CONNECT,
                               .jitter = 0.5, .is_network = true};
    assert_int_equal(breaker_next(b, o, &ev, 0).until_ms, 5000);
}

static void test_names_of_states_read_back(void **state)
{
    (void)state;
    for (unsigned s = 0; s < BREAKER_STATE_COUNT_; s++) {
        enum breaker_state back = BREAKER_STATE_COUNT_;
        const char *name = breaker_state_name((enum breaker_state)s);
        assert_true(breaker_state_parse(str_of(name), &back));
        assert_int_equal(back, s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_consecutive_points_open_it_and_a_success_forgets_them),
        cmocka_unit_test(test_every_class_counts_its_points_and_no_others),
        cmocka_unit_test(test_a_ratio_of_failures_in_the_window_opens_it_too),
        cmocka_unit_test(test_the_cooldown_doubles_up_to_its_maximum_with_a_fifth_of_jitter),
        cmocka_unit_test(test_a_running_cooldown_is_not_changed_by_what_ends_meanwhile),
        cmocka_unit_test(test_G09_open_means_no_request_until_half_open_and_then_one_trial),
        cmocka_unit_test(test_a_trial_that_fails_opens_it_again_for_longer),
        cmocka_unit_test(test_a_trial_without_an_outcome_frees_its_place),
        cmocka_unit_test(test_an_attempt_from_before_the_opening_closes_nothing),
        cmocka_unit_test(test_retry_after_is_kept_and_never_made_shorter),
        cmocka_unit_test(test_the_free_endpoint_helps_only_where_it_can_tell),
        cmocka_unit_test(test_an_administrator_wins_until_auto),
        cmocka_unit_test(test_a_minute_without_failure_forgets_the_openings),
        cmocka_unit_test(test_G25_a_network_that_is_down_costs_the_shortest_cooldown),
        cmocka_unit_test(test_names_of_states_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
