#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "serve/limits.h"

#define FLEET "fleet-key-of-many-letters"
#define OPS "ops-key-of-as-many-letters"

static struct limits_key keys[2] = {
    {.name = STR_INIT("fleet"), .scopes = LIMITS_SCOPE_INFER},
    {.name = STR_INIT("ops"),
     .scopes = LIMITS_SCOPE_INFER | LIMITS_SCOPE_READ | LIMITS_SCOPE_ADMIN},
};

static struct limits *open_with(uint32_t keys_count)
{
    static const str hosts[] = {STR_INIT("box.lan")}, origins[] = {STR_INIT("https://app.lan")},
                     listen[] = {STR_INIT("127.0.0.1:11500"), STR_INIT("desk:80")};
    struct limits_options o = {.keys = keys, .keys_count = keys_count, .hosts = hosts,
                               .hosts_count = 1, .origins = origins, .origins_count = 1,
                               .listen = listen, .listen_count = 2, .checks_host = true};
    struct limits *l;
    struct err e;
    assert_true(limits_digest(keys[0].sha256, STR(FLEET), &e));
    assert_true(limits_digest(keys[1].sha256, STR(OPS), &e));
    assert_true(limits_open(&l, &o, &e));
    return l;
}

static void test_a_key_is_found_in_three_headers_and_needs_the_scope(void **state)
{
    (void)state;
    static const struct {
        const char *authorization, *x_api_key, *shoal_key;
        uint32_t scope;
        const char *name; /* NULL: refused */
        enum err_code code;
        const char *detail;
    } rows[] = {
        {"Bearer " FLEET, NULL, NULL, LIMITS_SCOPE_INFER, "fleet", ERR_NONE, ""},
        {"bearer   " FLEET, NULL, NULL, LIMITS_SCOPE_INFER, "fleet", ERR_NONE, ""},
        {NULL, OPS, NULL, LIMITS_SCOPE_ADMIN, "ops", ERR_NONE, ""},
        {NULL, NULL, OPS, LIMITS_SCOPE_READ, "ops", ERR_NONE, ""},
        {"Bearer sk-of-an-upstream", NULL, OPS, LIMITS_SCOPE_READ, "ops", ERR_NONE, ""},
        {NULL, "sk-of-an-upstream", OPS, LIMITS_SCOPE_READ, "ops", ERR_NONE, ""},
        {"Bearer " OPS, NULL, "a-wrong-key-of-some-length", LIMITS_SCOPE_READ, NULL, ERR_AUTH, ""},
        {"Basic abc", OPS, NULL, LIMITS_SCOPE_READ, "ops", ERR_NONE, ""},
        {"Bearer " FLEET, NULL, NULL, LIMITS_SCOPE_READ, NULL, ERR_AUTH, "forbidden"},
        {"Bearer " FLEET "x", NULL, NULL, LIMITS_SCOPE_INFER, NULL, ERR_AUTH, ""},
        {"Bearer ", NULL, NULL, LIMITS_SCOPE_INFER, NULL, ERR_AUTH, ""},
        {"Bearer", NULL, NULL, LIMITS_SCOPE_INFER, NULL, ERR_AUTH, ""},
        {NULL, "short", NULL, LIMITS_SCOPE_INFER, NULL, ERR_AUTH, ""},
        {NULL, NULL, NULL, LIMITS_SCOPE_INFER, NULL, ERR_AUTH, ""},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct limits *l = open_with(2);
        const struct limits_key *key;
        struct api_error e = {0};
        struct limits_asked a = {.authorization = str_of(rows[i].authorization),
                                 .x_api_key = str_of(rows[i].x_api_key),
                                 .shoal_key = str_of(rows[i].shoal_key), .peer = STR("10.0.0.1"),
                                 .scope = rows[i].scope, .now_ms = 1};
        bool ok = limits_check_key(l, &a, &key, &e);
        print_message("row %zu\n", i);
        assert_int_equal(ok, rows[i].name != NULL);
        assert_true(ok ? str_eq_z(key->name, rows[i].name) : e.err.code == rows[i].code);
        assert_true(ok || str_eq_z(e.code, rows[i].detail));
        assert_null(strstr(e.err.text, "letters"));
        limits_close(l);
    }
}

static void test_open_paths_need_no_key_and_no_keys_mean_every_scope(void **state)
{
    (void)state;
    struct limits *with = open_with(2), *without = open_with(0);
    const struct limits_key *key = keys;
    struct api_error e = {0};
    struct limits_asked a = {.peer = STR("127.0.0.1")};
    assert_true(limits_check_key(with, &a, &key, &e));
    assert_null(key);
    a.scope = LIMITS_SCOPE_ADMIN;
    assert_true(limits_check_key(without, &a, &key, &e));
    a.origin = STR("https://app.lan");
    assert_false(limits_check_key(without, &a, &key, &e));
    assert_true(str_eq_z(e.code, "forbidden"));
    limits_close(with);
    limits_close(without);
}

static void test_wrong_keys_close_their_address_for_a_minute_and_no_other(void **state)
{
    (void)state;
    struct limits *l = open_with(2);
    const struct limits_key *key;
    struct api_error e = {0};
    struct limits_asked wrong = {.x_api_key = STR("a-wrong-key-of-some-length"),
                                 .peer = STR("10.0.0.1"), .scope = LIMITS_SCOPE_INFER};
    struct limits_asked right = wrong, other = wrong;
    right.x_api_key = other.x_api_key = STR(FLEET);
    other.peer = STR("10.0.0.2");
    for (int64_t i = 0; i < LIMITS_TRIES; i++) {
        wrong.now_ms = 1000 + i;
        assert_false(limits_check_key(l, &wrong, &key, &e));
        assert_true(str_eq_z(e.code, ""));
    }
    right.now_ms = other.now_ms = 2000;
    assert_false(limits_check_key(l, &right, &key, &e));
    assert_true(str_eq_z(e.code, "rate_limited"));
    assert_in_range(e.retry_after_ms, 58000, 60000);
    assert_true(limits_check_key(l, &other, &key, &e));
    right.now_ms = 62000;
    assert_true(limits_check_key(l, &right, &key, &e));
    limits_close(l);
}

static void test_slow_wrong_keys_do_not_add_up(void **state)
{
    (void)state;
    struct limits *l = open_with(2);
    const struct limits_key *key;
    struct api_error e = {0};
    struct limits_asked a = {.x_api_key = STR("a-wrong-key-of-some-length"),
                             .peer = STR("10.0.0.1"), .scope = LIMITS_SCOPE_INFER};
    for (int64_t i = 0; i < 3 * LIMITS_TRIES; i++) {
        a.now_ms = i * 10000;
        assert_false(limits_check_key(l, &a, &key, &e));
        assert_true(str_eq_z(e.code, ""));
    }
    limits_close(l);
}

static void test_host_and_origin_are_ours_or_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *host, *origin;
        bool ok;
    } rows[] = {
        {"localhost:11500", NULL, true}, {"LOCALHOST", NULL, true}, {"127.0.0.1:11500", NULL, true},
        {"127.1.2.3", NULL, true}, {"[::1]:11500", NULL, true}, {"box.lan:11500", NULL, true},
        {"desk", NULL, true}, {NULL, NULL, true}, {"localhost", "https://app.lan", true},
        {"evil.example", NULL, false}, {"127.0.0.1.evil.example", NULL, false},
        {"127.evil", NULL, false}, {"localhost.evil.example", NULL, false}, {"", NULL, false},
        {"[::2]", NULL, false}, {"[", NULL, false}, {"localhost", "null", false},
        {"localhost", "https://evil.example", false}, {"localhost", "", false},
    };
    struct limits *l = open_with(0);
    for (size_t i = 0; i < countof(rows); i++) {
        struct api_error e = {0};
        struct limits_asked a = {0};
        if (rows[i].host)
            a.host = str_view(rows[i].host, strlen(rows[i].host));
        if (rows[i].origin)
            a.origin = str_view(rows[i].origin, strlen(rows[i].origin));
        print_message("row %zu\n", i);
        assert_int_equal(limits_check_origin(l, &a, &e), rows[i].ok);
        assert_true(rows[i].ok || str_eq_z(e.code, "forbidden"));
    }
    limits_close(l);
}

static void test_a_key_may_be_held_to_some_models(void **state)
{
    (void)state;
    static const str globs[] = {STR_INIT("qwen*"), STR_INIT("SmolLM")};
    struct limits_key key = {.models = globs, .models_count = 2};
    assert_true(limits_allows_model(NULL, STR("any")));
    assert_true(limits_allows_model(&keys[0], STR("any")));
    assert_true(limits_allows_model(&key, STR("qwen3")));
    assert_true(limits_allows_model(&key, STR("SmolLM")));
    assert_false(limits_allows_model(&key, STR("SmolLM2")));
}

static void test_a_key_has_16_to_512_characters(void **state)
{
    (void)state;
    char text[LIMITS_KEY_LEN_MAX + 1];
    uint8_t out[32];
    struct err e;
    memset(text, 'k', sizeof text);
    assert_false(limits_digest(out, str_view(text, 15), &e));
    assert_true(limits_digest(out, str_view(text, 16), &e));
    assert_true(limits_digest(out, str_view(text, 512), &e));
    assert_false(limits_digest(out, str_view(text, 513), &e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_is_found_in_three_headers_and_needs_the_scope),
        cmocka_unit_test(test_open_paths_need_no_key_and_no_keys_mean_every_scope),
        cmocka_unit_test(test_wrong_keys_close_their_address_for_a_minute_and_no_other),
        cmocka_unit_test(test_slow_wrong_keys_do_not_add_up),
        cmocka_unit_test(test_host_and_origin_are_ours_or_allowed),
        cmocka_unit_test(test_a_key_may_be_held_to_some_models),
        cmocka_unit_test(test_a_key_has_16_to_512_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
