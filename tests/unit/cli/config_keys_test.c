#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "cli/config_keys.h"
#include "unit/cli/given.h"

#define DIGEST_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DIGEST_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static bool load(struct config_keys *out, const char *yaml, struct err *e)
{
    static const struct config_value no_files;
    struct config *c = given_config(yaml);
    return config_keys_load(out, c, &no_files, &given.arena, e);
}

static void test_a_key_has_every_field(void **state)
{
    (void)state;
    struct config_keys keys;
    struct err e = {0};
    setenv("KEY_OF_TEST", "a-key-of-sixteen-characters", 1);
    assert_true(load(&keys,
                     "keys:\n"
                     "  - {name: a, sha256: " DIGEST_A ", scopes: [infer, admin], agent: x,"
                     " agents: [y*], models: [m, n], cache_scope: s, weight: 3}\n"
                     "  - {name: b, key_env: KEY_OF_TEST, scopes: [read]}\n",
                     &e));
    const struct limits_key *a = &keys.keys[0], *b = &keys.keys[1];
    assert_int_equal(keys.count, 2);
    assert_true(str_eq_z(a->name, "a") && a->sha256[0] == 0xaa && a->sha256[31] == 0xaa &&
                a->scopes == (LIMITS_SCOPE_INFER | LIMITS_SCOPE_ADMIN) &&
                str_eq_z(a->agent, "x") && a->agents_count == 1 && a->models_count == 2 &&
                str_eq_z(a->cache_scope, "s") && a->rules.weight == 3);
    assert_true(str_eq_z(b->name, "b") && b->scopes == LIMITS_SCOPE_READ);
    unsetenv("KEY_OF_TEST");
}

static void test_everything_that_is_wrong_is_told_at_once(void **state)
{
    (void)state;
    struct config_keys keys;
    struct err e = {0};
    unsetenv("NOBODY");
    assert_false(load(&keys,
                      "keys:\n"
                      "  - {name: \"a b\", sha256: zz, scopes: [cook], noise: 1}\n"
                      "  - 5\n"
                      "  - {name: c, key_env: NOBODY, scopes: infer}\n"
                      "  - {name: d, sha256: " DIGEST_A ", scopes: [read], weight: 0}\n"
                      "  - {name: e, sha256: " DIGEST_A ", scopes: [read]}\n"
                      "  - {name: e, sha256: " DIGEST_B ", scopes: [read]}\n"
                      "  - {name: f, sha256: " DIGEST_A ", scopes: [read]}\n"
                      "  - {name: g, scopes: [read]}\n",
                      &e));
    assert_string_equal(
        given.problems.p,
        "config.yaml:2:6: keys[0].name: letters, digits and ._:@/- expected\n"
        "config.yaml:2:19: keys[0].sha256: 64 hex digits and no other key expected\n"
        "config.yaml:2:31: keys[0].scopes: infer, read or admin expected, got \"cook\"\n"
        "config.yaml:2:47: keys[0].noise: unknown field\n"
        "config.yaml:3:5: keys[1]: a map of name, key_file, scopes expected\n"
        "config.yaml:4:15: keys[2].key_env: NOBODY is not set\n"
        "config.yaml:4:32: keys[2].scopes: a list expected\n"
        "config.yaml:5:105: keys[3].weight: integer 1..1000 expected, got \"0\"\n"
        "config.yaml:7:5: keys[5]: name or key of another one\n"
        "config.yaml:8:5: keys[6]: name or key of another one\n"
        "config.yaml:9:5: keys[7]: key_file, key_env or sha256: required\n");
    assert_true(str_starts(buf_view(&given.problems), str_of(e.text)));
}

static void test_the_section_is_a_list(void **state)
{
    (void)state;
    struct config_keys keys;
    struct err e = {0};
    assert_false(load(&keys, "keys: {a: 1}", &e));
    assert_string_equal(given.problems.p, "config.yaml:1:1: keys: a list expected\n");
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, given_begin, given_end)
    const struct CMUnitTest tests[] = {
        CASE(test_a_key_has_every_field),
        CASE(test_everything_that_is_wrong_is_told_at_once),
        CASE(test_the_section_is_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
