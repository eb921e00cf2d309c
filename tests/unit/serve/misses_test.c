#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "serve/misses.h"

#define TOLD                                                                                       \
    "{\"expected_tokens\":90,\"reason\":\"content_changed\",\"first_diff\":{\"token\":3,"          \
    "\"message\":0,\"role\":\"system\",\"part\":0,\"byte\":6,\"was\":\"old \\\"text\\\"\","        \
    "\"now\":\"new text\"},\"hint\":\"clock\"}"

static struct misses *all;
static struct buf out;
static struct api_request rq;
static uint64_t numbers;

static uint64_t add(const char *key, const char *scope, const char *reason, uint64_t previous)
{
    const struct api_started started = {.child = 1, .prompt_tokens = 100, .cached_tokens = 2};
    char note[1024], id[16];
    str told;
    rq.id = ++numbers;
    rq.agent = str_of(key);
    snprintf(id, sizeof id, "req_%d", (int)numbers);
    snprintf(note, sizeof note, "%s %llu " TOLD, reason, (unsigned long long)previous);
    const struct misses_request r = {.id = id, .rq = &rq, .key = str_of(key),
                                     .scope = str_of(scope), .model = STR("m"),
                                     .started = &started,
                                     .note = previous ? str_of(note) : STR("")};
    assert_int_equal(misses_add(all, &r, &told), previous != 0);
    return rq.id;
}

static const char *seen(bool is_admin, const char *key, const char *scope)
{
    const struct misses_query q = {.is_admin = is_admin, .key = str_of(key),
                                   .scope = str_of(scope), .limit = 10};
    buf_clear(&out);
    misses_write(all, &q, &out);
    assert_true(buf_add_byte(&out, 0));
    return (const char *)out.p;
}

static void open_with_one(const char *by, const char *previous_by, const char *reason)
{
    struct err e;
    numbers = 0;
    api_request_init(&rq);
    buf_init(&out, 1 << 16);
    assert_true(misses_open(&all, 4, &e));
    add(by, "team", reason, add(previous_by, "team", "", 0));
}

static void close_all(void)
{
    misses_close(all);
    buf_deinit(&out);
}

static void test_excerpts_are_for_the_key_that_sent_both_prompts_and_for_admin(void **state)
{
    (void)state;
    static const struct {
        const char *by, *previous_by, *asks, *scope;
        bool is_admin, has_record, has_excerpts;
    } rows[] = {
        {"one", "one", "one", "team", false, true, true},
        {"one", "one", "two", "team", false, true, false},
        {"one", "one", "two", "other", false, false, false},
        {"one", "two", "one", "team", false, true, false}, /* "was" is of two */
        {"one", "two", "two", "team", false, true, false}, /* "now" is of one */
        {"one", "two", "ops", "other", true, true, true},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        open_with_one(rows[i].by, rows[i].previous_by, "content_changed");
        const char *text = seen(rows[i].is_admin, rows[i].asks, rows[i].scope);
        const char *want = rows[i].has_excerpts
                               ? "\"was\":\"old \\\"text\\\"\",\"now\":\"new text\"}"
                               : "\"was\":null,\"now\":null}";
        if (!rows[i].has_record)
            assert_string_equal(text, "[]");
        else if (!strstr(text, want) || !strstr(text, "\"byte\":6,") ||
                 !strstr(text, "\"previous_id\":\"req_1\",") ||
                 !strstr(text, "\"hint\":\"clock\"}]"))
            fail_msg("row %zu: %s", i, text);
        close_all();
    }
}

static void test_whose_the_previous_prompt_was_is_not_guessed(void **state)
{
    (void)state;
    open_with_one("one", "one", "content_changed");
    add("one", "team", "content_changed", 77); /* nobody remembers it */
    const char *text = seen(false, "one", "team");
    assert_non_null(strstr(text, "\"previous_id\":null,"));
    assert_non_null(strstr(text, "\"was\":null,\"now\":null}"));
    assert_non_null(strstr(text, "\"now\":\"new text\"}"));
    close_all();
}

static void test_another_scope_is_told_to_admin_alone(void **state)
{
    (void)state;
    open_with_one("one", "one", "scope");
    assert_string_equal(seen(false, "one", "team"), "[]");
    assert_non_null(strstr(seen(true, "ops", "ops"), "\"request_id\":\"req_2\""));
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_excerpts_are_for_the_key_that_sent_both_prompts_and_for_admin),
        cmocka_unit_test(test_whose_the_previous_prompt_was_is_not_guessed),
        cmocka_unit_test(test_another_scope_is_told_to_admin_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
