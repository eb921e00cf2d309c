/* Agents: what is counted of one, who sees it, what gives way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "serve/agents.h"

static struct agents *open_set(void)
{
    struct agents *a;
    struct err e;
    assert_true(agents_open(&a, &e));
    return a;
}

static void ends(struct agents *a, const char *owner, const char *agent, const char *legs,
                 const char *said, int64_t now)
{
    const struct agents_end end = {.who = {str_of(owner), str_of(agent)}, .prompt_tokens = 100,
                                   .cached_tokens = 75, .output_tokens = 10, .preemptions = 1,
                                   .legs = str_of(legs), .said = str_of(said)};
    agents_end(a, &end, now);
}

static void put_limits(void *ctx, struct json_writer *w, str agent)
{
    assert_string_equal(ctx, "ctx");
    json_put_text(w, agent);
}

/* owner NULL: of all. */
static const char *told(struct agents *a, const char *owner)
{
    static struct buf out;
    const struct agents_write how = {.owner = owner ? str_of(owner) : (str){NULL, 0},
                                     .on_limits = put_limits, .ctx = "ctx", .now_ms = 1000};
    buf_deinit(&out);
    buf_init(&out, 16 << 20);
    agents_write(a, &how, &out);
    return buf_add(&out, str_view("", 1)) ? out.p : "";
}

static void test_requests_of_an_agent_add_up_by_leg(void **state)
{
    (void)state;
    struct agents *a = open_set();
    ends(a, "k", "lead", "desk", "", 0);
    ends(a, "k", "lead", "claude>desk",
         "[{\"leg\":\"claude\",\"output_tokens\":4},{\"leg\":\"desk\",\"output_tokens\":6}]", 900);
    ends(a, "k", "lead", "", "", 900); /* nobody answered */
    const char *one = told(a, "k");
    assert_non_null(strstr(one, "\"agent\":\"lead\",\"running\":0,\"queued\":0,"
                                "\"prompt_tokens\":300,\"cached_tokens\":225,"
                                "\"output_tokens\":30,\"cached_share\":0.75,\"preempted\":3"));
    assert_non_null(strstr(one, "\"legs\":{\"desk\":{\"requests\":2,\"output_tokens\":16},"
                                "\"claude\":{\"requests\":1,\"output_tokens\":4}}"));
    assert_non_null(strstr(one, "\"limits\":\"lead\""));
    agents_close(a);
}

static void test_an_agent_is_seen_by_its_key_and_by_admin(void **state)
{
    (void)state;
    struct agents *a = open_set();
    ends(a, "k", "lead", "desk", "", 0);
    ends(a, "o", "lead", "desk", "", 1);
    assert_null(strstr(told(a, "nobody"), "lead"));
    const char *own = told(a, "k");
    assert_non_null(strstr(own, "\"prompt_tokens\":100"));
    assert_true(strstr(own, "lead") && !strstr(strstr(own, "limits"), "\"agent\""));
    agents_close(a);
}

static void test_what_runs_and_what_waits_is_counted_anew_each_time(void **state)
{
    (void)state;
    struct agents *a = open_set();
    const struct agents_who lead = {STR("k"), STR("lead")}, other = {STR("o"), STR("lead")};
    agents_begin(a, &lead, 0);
    for (int i = 0; i < 2; i++) {
        agents_forget_counts(a);
        agents_count(a, &lead, false);
        agents_count(a, &lead, true);
        agents_count(a, &lead, true);
        agents_count(a, &other, true); /* never seen: not made by a look */
        assert_non_null(strstr(told(a, NULL), "\"running\":1,\"queued\":2"));
    }
    assert_null(strstr(told(a, "o"), "lead"));
    agents_close(a);
}

static void test_more_agents_than_there_is_room_for_cost_the_oldest(void **state)
{
    (void)state;
    struct agents *a = open_set();
    char name[32];
    for (uint32_t i = 0; i < AGENTS_MAX + 1; i++) {
        snprintf(name, sizeof name, "n%u.", i);
        ends(a, "k", name, "desk", "", i);
        if (i == 0)
            ends(a, "k", "first", "desk", "", i);
        else
            agents_begin(a, &(struct agents_who){STR("k"), STR("first")}, i);
    }
    const char *all = told(a, NULL);
    assert_null(strstr(all, "\"n0.\""));
    assert_null(strstr(all, "\"n1.\""));
    assert_non_null(strstr(all, "\"n2.\""));
    assert_non_null(strstr(all, "\"first\""));
    agents_close(a);
}

static void test_more_legs_than_are_told_apart_are_others(void **state)
{
    (void)state;
    struct agents *a = open_set();
    char name[32];
    for (uint32_t i = 0; i < AGENTS_LEGS_MAX + 3; i++) {
        snprintf(name, sizeof name, "leg%u", i);
        ends(a, "k", "lead", name, "", i);
    }
    const char *one = told(a, NULL);
    assert_non_null(strstr(one, "\"leg7\":{\"requests\":1,"));
    assert_null(strstr(one, "\"leg8\""));
    assert_non_null(strstr(one, "\"other\":{\"requests\":3,\"output_tokens\":30}"));
    agents_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_of_an_agent_add_up_by_leg),
        cmocka_unit_test(test_an_agent_is_seen_by_its_key_and_by_admin),
        cmocka_unit_test(test_what_runs_and_what_waits_is_counted_anew_each_time),
        cmocka_unit_test(test_more_agents_than_there_is_room_for_cost_the_oldest),
        cmocka_unit_test(test_more_legs_than_are_told_apart_are_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
