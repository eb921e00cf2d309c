/* Sessions: who sees one, how long it is remembered, what gives way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "serve/sessions.h"

static struct sessions *open_set(void)
{
    struct sessions *s;
    struct err e;
    assert_true(sessions_open(&s, 1000, &e));
    return s;
}

static void turn(struct sessions *s, const char *scope, const char *id, uint32_t tokens,
                 int64_t now)
{
    const struct sessions_turn t = {.scope = str_of(scope), .id = str_of(id), .agent = STR("lead"),
                                    .model = STR("m"), .leg = STR("desk"), .tokens = tokens};
    sessions_add(s, &t, now);
}

/* The reply about one, or about all; "" if there is none. */
static const char *told(struct sessions *s, const char *scope, const char *id, int64_t now)
{
    static struct buf out;
    const struct sessions_asker who = {str_of(scope), !strcmp(scope, "admin")};
    buf_deinit(&out);
    buf_init(&out, 4 << 20);
    if (!id)
        sessions_write(s, &who, now, &out);
    else if (!sessions_write_one(s, &who, str_of(id), now, &out))
        return "";
    return buf_add(&out, str_view("", 1)) ? out.p : "";
}

static void test_turns_of_one_session_are_counted_and_its_last_one_is_told(void **state)
{
    (void)state;
    struct sessions *s = open_set();
    turn(s, "k", "a", 100, 0);
    turn(s, "k", "a", 150, 900);
    turn(s, "other", "a", 7, 900);
    const char *one = told(s, "k", "a", 1000);
    assert_non_null(strstr(one, "\"object\":\"session\",\"id\":\"a\",\"agent\":\"lead\""));
    assert_non_null(strstr(one, "\"tokens\":150"));
    assert_non_null(strstr(one, "\"turns\":2,\"leg\":\"desk\""));
    assert_non_null(strstr(told(s, "other", "a", 1000), "\"turns\":1"));
    sessions_close(s);
}

static void test_a_session_is_seen_in_its_scope_and_by_admin(void **state)
{
    (void)state;
    struct sessions *s = open_set();
    const struct sessions_asker stranger = {STR("o"), false}, admin = {STR("admin"), true};
    turn(s, "k", "a", 1, 0);
    turn(s, "k", "b", 2, 0);
    assert_string_equal(told(s, "o", "a", 0), "");
    assert_string_equal(told(s, "o", NULL, 0), "[]");
    assert_non_null(strstr(told(s, "admin", "a", 0), "\"turns\":1"));
    const char *all = told(s, "k", NULL, 0);
    assert_true(strstr(all, "\"id\":\"b\"") < strstr(all, "\"id\":\"a\"")); /* newest first */
    assert_false(sessions_delete(s, &stranger, STR("a"), 0));
    struct sessions_turn last;
    assert_true(sessions_last(s, &admin, STR("a"), 0, &last));
    assert_true(str_eq_z(last.agent, "lead") && str_eq_z(last.scope, "k"));
    assert_true(sessions_delete(s, &admin, STR("a"), 0));
    assert_false(sessions_delete(s, &admin, STR("a"), 0));
    assert_false(sessions_last(s, &admin, STR("a"), 0, &last));
    sessions_close(s);
}

static void test_one_that_is_not_used_for_its_ttl_is_forgotten(void **state)
{
    (void)state;
    struct sessions *s = open_set();
    turn(s, "k", "a", 1, 0);
    turn(s, "k", "b", 1, 10);
    turn(s, "k", "a", 1, 999);
    assert_string_equal(told(s, "k", "b", 1010), "");
    assert_non_null(strstr(told(s, "k", "a", 1998), "\"turns\":2"));
    assert_string_equal(told(s, "k", "a", 1999), "");
    turn(s, "k", "a", 1, 5000);
    assert_non_null(strstr(told(s, "k", "a", 5000), "\"turns\":1")); /* another one of that name */
    sessions_set_ttl(s, 1);
    assert_string_equal(told(s, "k", "a", 5001), "");
    sessions_close(s);
}

static void test_past_the_limit_the_one_not_used_for_longest_gives_way(void **state)
{
    (void)state;
    struct sessions *s = open_set();
    char id[16];
    for (uint32_t i = 0; i <= SESSIONS_MAX; i++) {
        snprintf(id, sizeof id, "s%u", i);
        turn(s, "k", id, 1, 0);
        if (i == SESSIONS_MAX - 1)
            turn(s, "k", "s0", 1, 0); /* in use again */
    }
    assert_non_null(strstr(told(s, "k", "s0", 0), "\"turns\":2"));
    assert_string_equal(told(s, "k", "s1", 0), "");
    assert_non_null(strstr(told(s, "k", id, 0), "\"turns\":1"));
    sessions_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns_of_one_session_are_counted_and_its_last_one_is_told),
        cmocka_unit_test(test_a_session_is_seen_in_its_scope_and_by_admin),
        cmocka_unit_test(test_one_that_is_not_used_for_its_ttl_is_forgotten),
        cmocka_unit_test(test_past_the_limit_the_one_not_used_for_longest_gives_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
