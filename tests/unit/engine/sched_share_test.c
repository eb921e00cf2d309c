#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "engine/sched_share.h"

static struct sched_share s;

static int begin(void **state)
{
    (void)state;
    s = (struct sched_share){.count = 0};
    return 0;
}

static void test_tokens_count_by_weight(void **state)
{
    (void)state;
    uint32_t one = sched_share_enter(&s, STR("key"), STR("one"), 0);
    uint32_t four = sched_share_enter(&s, STR("key"), STR("four"), 4);
    sched_share_charge(&s, one, 100);
    sched_share_charge(&s, four, 400);
    assert_true(sched_share_service(&s, one) == sched_share_service(&s, four));
}

static void test_the_same_name_under_another_key_is_another_agent(void **state)
{
    (void)state;
    uint32_t a = sched_share_enter(&s, STR("bc"), STR("a"), 1);
    assert_int_equal(sched_share_enter(&s, STR("bc"), STR("a"), 1), a);
    assert_int_not_equal(sched_share_enter(&s, STR("c"), STR("ab"), 1), a);
}

static void test_who_was_away_has_saved_nothing_up(void **state)
{
    (void)state;
    uint32_t away = sched_share_enter(&s, STR(""), STR("away"), 1);
    sched_share_leave(&s, away);
    uint32_t busy = sched_share_enter(&s, STR(""), STR("busy"), 1);
    sched_share_charge(&s, busy, 5000);
    assert_int_equal(sched_share_enter(&s, STR(""), STR("away"), 1), away);
    assert_true(sched_share_service(&s, away) == 5000);
}

static void test_who_worked_alone_owes_nothing_to_one_that_comes_later(void **state)
{
    (void)state;
    uint32_t busy = sched_share_enter(&s, STR(""), STR("busy"), 1);
    sched_share_charge(&s, busy, 5000);
    sched_share_leave(&s, busy);
    uint32_t fresh = sched_share_enter(&s, STR(""), STR("fresh"), 1);
    assert_true(sched_share_service(&s, fresh) == 5000);
}

static void test_past_the_limit_idle_accounts_are_forgotten_first(void **state)
{
    (void)state;
    char name[16];
    uint32_t idle = 0;
    for (uint32_t i = 0; i < SCHED_SHARE_MAX; i++) {
        snprintf(name, sizeof name, "%u", i);
        uint32_t at = sched_share_enter(&s, STR(""), str_of(name), 1);
        if (i == 7)
            sched_share_leave(&s, idle = at);
    }
    assert_int_equal(sched_share_enter(&s, STR(""), STR("more"), 1), idle);
    uint32_t shared = sched_share_enter(&s, STR(""), STR("most"), 1);
    assert_int_equal(shared, sched_share_enter(&s, STR(""), STR("last"), 1));
    sched_share_leave(&s, shared);
    sched_share_leave(&s, shared);
    assert_true(s.accounts[shared].open > 0); /* its first owner's */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_tokens_count_by_weight, begin),
        cmocka_unit_test_setup(test_the_same_name_under_another_key_is_another_agent, begin),
        cmocka_unit_test_setup(test_who_was_away_has_saved_nothing_up, begin),
        cmocka_unit_test_setup(test_who_worked_alone_owes_nothing_to_one_that_comes_later, begin),
        cmocka_unit_test_setup(test_past_the_limit_idle_accounts_are_forgotten_first, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
