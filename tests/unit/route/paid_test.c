/* Billed probes over a clock that the test owns: only where and when BEHAVIOUR 9.3 says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "route/paid.h"

#define NOW 10000000 /* of a clock that runs since boot */

static struct leg half_open(void)
{
    struct leg l = {.kind = LEG_KIND_UPSTREAM, .breaking = breaker_options_default};
    l.breaker.state = BREAKER_STATE_HALF_OPEN;
    return l;
}

static void test_a_half_open_leg_without_traffic_is_probed_while_others_work(void **state)
{
    (void)state;
    const struct paid none = {.count = 0};
    const struct paid_view v = {.per_hour = 4, .asked_ms = NOW - 1000};
    struct leg l = half_open();
    assert_true(paid_may(&none, &v, &l, NOW));
    l = half_open(); /* its time has passed, nobody has looked since */
    l.breaker.state = BREAKER_STATE_OPEN;
    l.breaker.until_ms = NOW - 1;
    assert_true(paid_may(&none, &v, &l, NOW));
}

static void test_G15_nothing_is_paid_where_a_probe_is_of_no_use(void **state)
{
    (void)state;
    const struct paid none = {.count = 0};
    const struct paid_view v = {.per_hour = 4, .asked_ms = NOW - 1000};
    const struct paid_view off = {.per_hour = 0, .asked_ms = NOW - 1000};
    const struct paid_view idle = {.per_hour = 4, .asked_ms = NOW - PAID_BUSY_MS};
    const struct paid_view unused = {.per_hour = 4, .asked_ms = 0};
    struct leg l = half_open();
    assert_false(paid_may(&none, &off, &l, NOW));
    assert_false(paid_may(&none, &idle, &l, NOW));
    assert_false(paid_may(&none, &unused, &l, NOW));
    const enum breaker_state others[] = {BREAKER_STATE_CLOSED, BREAKER_STATE_FORCED_OPEN,
                                         BREAKER_STATE_FORCED_CLOSED};
    for (size_t i = 0; i < countof(others); i++) {
        l = half_open();
        l.breaker.state = others[i];
        assert_false(paid_may(&none, &v, &l, NOW));
    }
    l = half_open();
    l.breaker.state = BREAKER_STATE_OPEN;
    l.breaker.until_ms = NOW + 1;
    assert_false(paid_may(&none, &v, &l, NOW));
    l = half_open();
    l.breaker.has_trial = true;
    assert_false(paid_may(&none, &v, &l, NOW));
    l = half_open();
    l.breaker.cooling_ms = NOW + 1;
    assert_false(paid_may(&none, &v, &l, NOW));
    l = half_open();
    l.inflight = 1;
    assert_false(paid_may(&none, &v, &l, NOW));
    l = half_open();
    l.health.used_ms = NOW - PAID_QUIET_MS + 1;
    assert_false(paid_may(&none, &v, &l, NOW));
    l = half_open();
    l.kind = LEG_KIND_ENGINE;
    assert_false(paid_may(&none, &v, &l, NOW));
    l = half_open();
    l.is_passthrough = true; /* there is no key to pay with */
    assert_false(paid_may(&none, &v, &l, NOW));
}

/* A leg that never gets well, looked at each second for three hours; agents ask other legs in the
 * hours that are told busy. */
static uint32_t hours(uint32_t per_hour, const bool busy[3], uint32_t sent[3], uint32_t *worst)
{
    struct paid p = {.count = 0};
    struct leg l = half_open();
    struct paid_view v = {.per_hour = per_hour};
    uint32_t all = 0;
    *worst = 0;
    for (int64_t s = 0; s < 3 * 3600; s++) {
        int64_t now = NOW + s * 1000;
        uint32_t hour = (uint32_t)(s / 3600);
        struct breaker_event ev = {.kind = BREAKER_EVENT_TIME};
        if (busy[hour])
            v.asked_ms = now;
        l.breaker = breaker_next(l.breaker, &l.breaking, &ev, now);
        if (!paid_may(&p, &v, &l, now))
            continue;
        paid_add(&p, now);
        all++;
        sent[hour]++;
        if (paid_count(&p, now) > *worst)
            *worst = paid_count(&p, now);
        ev = (struct breaker_event){.kind = BREAKER_EVENT_BEGIN};
        l.breaker = breaker_next(l.breaker, &l.breaking, &ev, now);
        l.health.used_ms = now;
        ev = (struct breaker_event){.kind = BREAKER_EVENT_END, .class_ = HEALTH_CLASS_STALL,
                                    .is_trial = true, .jitter = 0.5};
        l.breaker = breaker_next(l.breaker, &l.breaking, &ev, now);
    }
    return all;
}

static void test_no_hour_holds_more_than_the_budget(void **state)
{
    (void)state;
    static const bool busy[3] = {true, true, true};
    const uint32_t budgets[] = {1, 4, 11};
    for (size_t i = 0; i < countof(budgets); i++) {
        uint32_t sent[3] = {0}, worst;
        uint32_t all = hours(budgets[i], busy, sent, &worst);
        assert_int_equal(worst, budgets[i]);
        assert_in_range(all, budgets[i], 3 * budgets[i]);
        assert_true(sent[0] == budgets[i]); /* it is used while there is need */
    }
}

static void test_an_idle_hour_bills_nothing(void **state)
{
    (void)state;
    static const bool busy[3] = {true, false, true}, never[3] = {false, false, false};
    uint32_t sent[3] = {0}, worst;
    assert_int_equal(hours(4, never, sent, &worst), 0);
    hours(60, busy, sent, &worst);
    assert_true(sent[0] > 0);
    assert_true(sent[2] > 0);
    assert_in_range(sent[1], 0, 1); /* the minute after the last request */
}

static void test_the_ledger_keeps_the_last_hour_when_it_wraps(void **state)
{
    (void)state;
    struct paid p = {.count = 0};
    for (int64_t i = 0; i < 3 * (int64_t)PAID_PER_HOUR_MAX; i++)
        paid_add(&p, NOW + i * 60000);
    int64_t last = NOW + (3 * (int64_t)PAID_PER_HOUR_MAX - 1) * 60000;
    assert_int_equal(paid_count(&p, last), 60);
    assert_int_equal(paid_count(&p, last + 30 * 60000), 30);
    assert_int_equal(paid_count(&p, last + PAID_HOUR_MS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_half_open_leg_without_traffic_is_probed_while_others_work),
        cmocka_unit_test(test_G15_nothing_is_paid_where_a_probe_is_of_no_use),
        cmocka_unit_test(test_no_hour_holds_more_than_the_budget),
        cmocka_unit_test(test_an_idle_hour_bills_nothing),
        cmocka_unit_test(test_the_ledger_keeps_the_last_hour_when_it_wraps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
