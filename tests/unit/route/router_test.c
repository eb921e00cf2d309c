#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "route/router.h"
#include "route/sticky.h"

static struct leg legs[4];
static struct router_candidate c[4];
static struct leg_needs needs;
static struct router_reason why;

static void setup(void)
{
    memset(legs, 0, sizeof legs);
    memset(c, 0, sizeof c);
    needs = (struct leg_needs){.kind = API_KIND_CHAT, .prompt_tokens = 100};
    for (int i = 0; i < 4; i++) {
        legs[i].kind = LEG_KIND_UPSTREAM;
        legs[i].state = API_HEALTH_READY;
        c[i].leg = &legs[i];
    }
}

static void test_the_first_matching_route_wins(void **state)
{
    (void)state;
    const struct router_route routes[] = {
        {.match = {.model = STR_INIT("claude-*"), .agent = STR_INIT("batch-*")}},
        {.match = {.model = STR_INIT("claude-*")}},
        {.match = {.dialect = STR_INIT("ollama"), .key = STR_INIT("ops")}}};
    const struct router_rules r = {routes, 3};
    struct router_asked a = {STR("claude-x"), STR("batch-7"), STR("openai"), STR("")};
    assert_int_equal(router_find(&r, &a), 0);
    a.agent = STR("lead");
    assert_int_equal(router_find(&r, &a), 1);
    a.model = STR("gpt");
    assert_int_equal(router_find(&r, &a), -1);
    a.dialect = STR("ollama");
    assert_int_equal(router_find(&r, &a), -1);
    a.key = STR("ops");
    assert_int_equal(router_find(&r, &a), 2);
}

static void test_G17_what_was_tried_is_not_tried_again(void **state)
{
    (void)state;
    setup();
    assert_int_equal(router_pick(c, 3, &needs, 0, &why), 0);
    c[0].is_tried = true;
    assert_int_equal(router_pick(c, 3, &needs, 0, &why), 1);
    c[1].is_tried = c[2].is_tried = true;
    assert_int_equal(router_pick(c, 3, &needs, 0, &why), -1);
    assert_false(why.all_incapable);
}

static void test_open_cooling_forced_busy_and_incapable_legs_are_skipped_by_name(void **state)
{
    (void)state;
    struct buf text;
    const char *const want[] = {"open", "cooling", "forced", "busy", "incapable:context"};
    buf_init(&text, 100);
    for (int i = 0; i < 5; i++) {
        setup();
        legs[0].breaker = (struct breaker){.until_ms = 50, .cooling_ms = i == 1 ? 70 : 0,
                                           .state = i == 0   ? BREAKER_STATE_OPEN
                                                    : i == 2 ? BREAKER_STATE_FORCED_OPEN
                                                             : BREAKER_STATE_CLOSED};
        legs[0].inflight = legs[0].inflight_max = i == 3 ? 1 : 0;
        legs[0].model.context_max = i == 4 ? 100 : 0;
        assert_int_equal(router_pick(c, 2, &needs, 10, &why), 1);
        buf_clear(&text);
        router_print_skip(&text, why.first, why.lacks);
        assert_string_equal(text.p, want[i]);
        c[1].is_tried = true;
        assert_int_equal(router_pick(c, 2, &needs, 10, &why), -1);
        assert_int_equal(why.again_ms, i == 0 ? 50 : i == 1 ? 70 : INT64_MAX);
    }
    buf_deinit(&text);
}

static void test_a_leg_must_have_what_the_request_needs(void **state)
{
    (void)state;
    const struct {
        uint32_t caps;
        const char *want;
    } rows[] = {{API_CAP_TOOLS, "tools"}, {API_CAP_VISION, "vision"}, {API_CAP_SCHEMA, "schema"},
                {API_CAP_LOGPROBS, "logprobs"}, {API_CAP_N, "n"}, {API_CAP_EMBED, "embed"}};
    for (size_t i = 0; i < countof(rows); i++) {
        setup();
        needs.caps = rows[i].caps;
        assert_string_equal(leg_lacks(&legs[0], &needs), rows[i].want);
        assert_int_equal(router_pick(c, 1, &needs, 0, &why), -1);
        assert_true(why.all_incapable);
        legs[0].model.caps = rows[i].caps;
        assert_null(leg_lacks(&legs[0], &needs));
    }
    setup();
    needs.must_continue = true;
    assert_string_equal(leg_lacks(&legs[0], &needs), "continue");
    legs[0].goes_on = LEG_CONTINUE_PREFILL;
    assert_null(leg_lacks(&legs[0], &needs));
    needs.in_reasoning = true;
    assert_string_equal(leg_lacks(&legs[0], &needs), "continue");
    legs[0].goes_on = LEG_CONTINUE_SHOAL;
    assert_null(leg_lacks(&legs[0], &needs));
    legs[0].cannot_continue = true;
    assert_string_equal(leg_lacks(&legs[0], &needs), "continue");
}

static void test_credentials_go_on_only_in_their_own_dialect(void **state)
{
    (void)state;
    setup();
    legs[0].is_passthrough = true;
    legs[0].dialect = STR("anthropic");
    needs.dialect = STR("anthropic");
    assert_string_equal(leg_lacks(&legs[0], &needs), "credentials");
    needs.has_own_key = true;
    assert_null(leg_lacks(&legs[0], &needs));
    needs.dialect = STR("ollama");
    assert_string_equal(leg_lacks(&legs[0], &needs), "credentials");
}

static void test_an_engine_that_restarts_is_the_last_resort(void **state)
{
    (void)state;
    setup();
    legs[0].kind = LEG_KIND_ENGINE;
    legs[0].state = API_HEALTH_RESTARTING;
    assert_int_equal(router_pick(c, 2, &needs, 0, &why), 1);
    assert_int_equal(why.down, 0);
    assert_int_equal(router_pick(c, 1, &needs, 0, &why), -1);
    assert_int_equal(why.down, 0);
}

static void test_ranks_go_before_sessions_and_pins_before_hashes(void **state)
{
    (void)state;
    const struct router_route r = {.entries = {{.leg = 0, .rank = 0}, {.leg = 1, .rank = 1},
                                               {.leg = 2, .rank = 1}, {.leg = 3, .rank = 1}},
                                   .entries_count = 4};
    const str names[ROUTER_LEGS_MAX] = {STR("a"), STR("b"), STR("c"), STR("d")};
    uint32_t order[ROUTER_LEGS_MAX], first[4] = {0};
    for (uint64_t key = 1; key <= 3000; key++) {
        router_order(&r, names, key * 0x9e3779b97f4a7c15u, -1, order);
        assert_int_equal(order[0], 0);
        first[order[1]]++;
        uint32_t sum = order[1] + order[2] + order[3];
        assert_int_equal(sum, 6);
    }
    for (int i = 1; i < 4; i++)
        assert_in_range(first[i], 800, 1200);
    for (int pin = 0; pin < 4; pin++) {
        router_order(&r, names, 42, pin, order);
        assert_int_equal(order[0], 0); /* a pin does not lift a leg over a better rank */
        if (pin)
            assert_int_equal(order[1], pin);
    }
}

static void test_G18_a_session_is_known_by_its_name_or_by_its_first_4_KiB(void **state)
{
    (void)state;
    struct api_request rq;
    char text[8192];
    memset(text, 'x', sizeof text);
    struct api_part part = {.kind = API_PART_TEXT, .text = {text, 5000}};
    struct api_message m = {.role = API_ROLE_USER, .parts = &part, .parts_count = 1};
    api_request_init(&rq);
    rq.messages = &m;
    rq.messages_count = 1;
    uint64_t before = router_key(STR(""), &rq);
    part.text.len = 8000;
    assert_true(router_key(STR(""), &rq) == before);
    text[10] = 'y';
    assert_true(router_key(STR(""), &rq) != before);
    assert_true(router_key(STR("s1"), &rq) == router_key(STR("s1"), &rq));
    assert_true(router_key(STR("s1"), &rq) != router_key(STR("s2"), &rq));
}

static void test_G19_a_pin_outlives_a_gap_and_ends_with_its_time(void **state)
{
    (void)state;
    static struct sticky_row rows[STICKY_ROWS];
    struct sticky s = {rows};
    memset(rows, 0, sizeof rows);
    sticky_put(&s, 99, STR("claude"), 3600000, 0);
    assert_true(str_eq_z(sticky_find(&s, 99, 360000), "claude"));
    sticky_put(&s, 99, STR("desk"), 4000000, 360000);
    assert_true(str_eq_z(sticky_find(&s, 99, 360001), "desk"));
    assert_int_equal(sticky_find(&s, 99, 4000000).len, 0);
    assert_int_equal(sticky_find(&s, 98, 1).len, 0);
    for (uint64_t k = 0; k < STICKY_NEIGHBOURS; k++) /* full: the one that ends first gives way */
        sticky_put(&s, 7 + k * STICKY_ROWS, STR("x"), 1000 + (int64_t)k, 0);
    sticky_put(&s, 7 + 100 * (uint64_t)STICKY_ROWS, STR("new"), 5000, 0);
    assert_true(str_eq_z(sticky_find(&s, 7 + 100 * (uint64_t)STICKY_ROWS, 1), "new"));
    assert_int_equal(sticky_find(&s, 7, 1).len, 0);
    assert_true(str_eq_z(sticky_find(&s, 7 + (uint64_t)STICKY_ROWS, 1), "x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_matching_route_wins),
        cmocka_unit_test(test_G17_what_was_tried_is_not_tried_again),
        cmocka_unit_test(test_open_cooling_forced_busy_and_incapable_legs_are_skipped_by_name),
        cmocka_unit_test(test_a_leg_must_have_what_the_request_needs),
        cmocka_unit_test(test_credentials_go_on_only_in_their_own_dialect),
        cmocka_unit_test(test_an_engine_that_restarts_is_the_last_resort),
        cmocka_unit_test(test_ranks_go_before_sessions_and_pins_before_hashes),
        cmocka_unit_test(test_G18_a_session_is_known_by_its_name_or_by_its_first_4_KiB),
        cmocka_unit_test(test_G19_a_pin_outlives_a_gap_and_ends_with_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
