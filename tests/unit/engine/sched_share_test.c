#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sched_share.h"

static struct sched_share s;

static int begin(void **state)
{
    (void)state;
    memset(&s, 0, sizeof s);
    return 0;
}

static uint32_t enter_weighed(str key, uint32_t key_weight, str agent, uint32_t weight)
{
    return sched_share_enter(&s, &(struct sched_share_who){key, agent, key_weight, weight});
}

static uint32_t enter(str key, str agent, uint32_t weight)
{
    return enter_weighed(key, 1, agent, weight);
}

static void test_tokens_count_by_weight(void **state)
{
    (void)state;
    uint32_t one = enter(STR("key"), STR("one"), 0);
    uint32_t four = enter(STR("key"), STR("four"), 4);
    sched_share_charge(&s, one, 100);
    sched_share_charge(&s, four, 400);
    assert_true(sched_share_service(&s, one) == sched_share_service(&s, four));
}

static void test_the_same_name_under_another_key_is_another_agent(void **state)
{
    (void)state;
    uint32_t a = enter(STR("bc"), STR("a"), 1);
    assert_int_equal(enter(STR("bc"), STR("a"), 1), a);
    assert_int_not_equal(enter(STR("c"), STR("ab"), 1), a);
}

static void test_who_was_away_has_saved_nothing_up(void **state)
{
    (void)state;
    uint32_t away = enter(STR(""), STR("away"), 1);
    sched_share_leave(&s, away);
    uint32_t busy = enter(STR(""), STR("busy"), 1);
    sched_share_charge(&s, busy, 5000);
    assert_int_equal(enter(STR(""), STR("away"), 1), away);
    assert_true(sched_share_service(&s, away) == 5000);
}

static void test_who_worked_alone_owes_nothing_to_one_that_comes_later(void **state)
{
    (void)state;
    uint32_t busy = enter(STR(""), STR("busy"), 1);
    sched_share_charge(&s, busy, 5000);
    sched_share_leave(&s, busy);
    uint32_t fresh = enter(STR(""), STR("fresh"), 1);
    assert_true(sched_share_service(&s, fresh) == 5000);
}

static void test_a_key_counts_the_tokens_of_all_its_agents_by_its_own_weight(void **state)
{
    (void)state;
    uint32_t a = enter_weighed(STR("key"), 2, STR("a"), 1);
    uint32_t b = enter_weighed(STR("key"), 2, STR("b"), 5);
    sched_share_charge(&s, a, 100);
    sched_share_charge(&s, b, 100);
    assert_true(sched_share_service(&s, a) == 100 && sched_share_service(&s, b) == 20);
    assert_true(sched_share_key_service(&s, a) == 100);
    assert_true(sched_share_key_service(&s, b) == 100);
}

static void test_a_fresh_name_gives_its_key_nothing(void **state)
{
    (void)state;
    uint32_t victim = enter(STR("victim"), STR("one"), 1);
    sched_share_charge(&s, victim, 50);
    uint32_t old = enter(STR("attacker"), STR("n0"), 1);
    sched_share_charge(&s, old, 900);
    uint32_t fresh = enter(STR("attacker"), STR("n1"), 1);
    assert_true(sched_share_key_service(&s, fresh) == 950);
    assert_true(sched_share_key_service(&s, victim) == 50);
    assert_true(sched_share_service(&s, fresh) == 900); /* its key's time, not 0 */
}

static void test_a_key_that_is_forgotten_takes_its_agents_along(void **state)
{
    (void)state;
    char name[16];
    uint32_t a = enter(STR("first"), STR("a"), 1);
    sched_share_charge(&s, a, 700);
    sched_share_leave(&s, a);
    for (uint32_t i = 0; i < SCHED_SHARE_KEYS_MAX; i++) {
        snprintf(name, sizeof name, "%u", i);
        enter(str_of(name), STR("a"), 1);
    }
    assert_int_equal(enter(str_of(name), STR("a"), 1), a); /* the last key's: both places */
    assert_true(sched_share_service(&s, a) == 0);
}

static void test_past_the_limit_idle_accounts_are_forgotten_first(void **state)
{
    (void)state;
    char name[16];
    uint32_t idle = 0;
    for (uint32_t i = 0; i < SCHED_SHARE_MAX; i++) {
        snprintf(name, sizeof name, "%u", i);
        uint32_t at = enter(STR(""), str_of(name), 1);
        if (i == 7)
            sched_share_leave(&s, idle = at);
    }
    assert_int_equal(enter(STR(""), STR("more"), 1), idle);
    uint32_t shared = enter(STR(""), STR("most"), 1);
    assert_int_equal(shared, enter(STR(""), STR("last"), 1));
    assert_int_equal(s.agents[shared].open, 2);
    sched_share_leave(&s, shared);
    assert_int_equal(s.agents[shared].open, 1);
    uint32_t other = enter(STR("other"), STR("most"), 1);
    assert_int_not_equal(other, shared); /* another key's agents share another */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_tokens_count_by_weight, begin),
        cmocka_unit_test_setup(test_the_same_name_under_another_key_is_another_agent, begin),
        cmocka_unit_test_setup(test_who_was_away_has_saved_nothing_up, begin),
        cmocka_unit_test_setup(test_who_worked_alone_owes_nothing_to_one_that_comes_later, begin),
        cmocka_unit_test_setup(test_a_key_counts_the_tokens_of_all_its_agents_by_its_own_weight,
                               begin),
        cmocka_unit_test_setup(test_a_fresh_name_gives_its_key_nothing, begin),
        cmocka_unit_test_setup(test_a_key_that_is_forgotten_takes_its_agents_along, begin),
        cmocka_unit_test_setup(test_past_the_limit_idle_accounts_are_forgotten_first, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
