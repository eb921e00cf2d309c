#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "unit/cli/given.h"

static void check_problems(const char *yaml, const char *wanted)
{
    struct config *c;
    struct err e = {0};
    buf_clear(&given.problems);
    if (config_load_text(&c, "config.yaml", str_of(yaml), &given.arena, &given.problems, &e))
        fail_msg("accepted: %s", yaml);
    assert_string_equal(given.problems.p, wanted);
}

static const char *env_name(const struct config_row *r)
{
    static char name[128];
    snprintf(name, sizeof name, "SHOAL_%s", r->key);
    for (char *p = name + 6; *p; p++)
        *p = *p == '.' ? '_' : *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
    return name;
}

/* {"a.b.c", "v"}: "a: {b: {c: v}}" */
static const char *yaml_for(const struct config_row *r, const char *value)
{
    static char text[512];
    size_t depth = 0, len = 0;
    for (const char *p = r->key; *p; p++) {
        bool dot = *p == '.';
        len += (size_t)snprintf(text + len, sizeof text - len, dot ? ": {" : "%c", *p);
        depth += dot;
    }
    len += (size_t)snprintf(text + len, sizeof text - len, ": %s", value);
    while (depth--)
        text[len++] = '}';
    text[len] = 0;
    return text;
}

/* Three valid values that differ from each other; for words there may be fewer. */
static const char *sample(const struct config_row *r, int which)
{
    static char text[3][64];
    char *out = text[which];
    switch (r->spec.type) {
    case CONFIG_TYPE_WORD: {
        str rest = str_of(r->spec.words), word = {0};
        for (int i = 0; i <= which; i++)
            if (!str_split(&rest, ' ', &word))
                rest = str_of(r->spec.words);
        snprintf(out, sizeof text[0], "%.*s", STR_ARG(word));
        return out;
    }
    case CONFIG_TYPE_BOOL:
        return which % 2 ? "true" : "false";
    case CONFIG_TYPE_INT:
        snprintf(out, sizeof text[0], "%lld", (long long)r->spec.min + 1 + which);
        return out;
    case CONFIG_TYPE_REAL:
        snprintf(out, sizeof text[0], "0.%d", which + 1);
        return out;
    case CONFIG_TYPE_DURATION:
        snprintf(out, sizeof text[0], "%dm", which + 11);
        return out;
    case CONFIG_TYPE_SIZE:
        snprintf(out, sizeof text[0], "%dMiB", which + 11);
        return out;
    case CONFIG_TYPE_TEXT:
    case CONFIG_TYPE_PATH:
    case CONFIG_TYPE_LIST:
    case CONFIG_TYPE_PATHS:
    case CONFIG_TYPE_MAP:
    case CONFIG_TYPE_SECTION:
        snprintf(out, sizeof text[0], "/path/%d", which);
        return out;
    }
    return NULL;
}

static bool is_scalar(const struct config_row *r) { return r->spec.type < CONFIG_TYPE_LIST; }

static void check_value(const struct config *c, const struct config_row *r, const char *wanted,
                        enum config_source source)
{
    const struct config_value *v = config_value(c, r->key);
    if (!str_eq_z(v->text, wanted) || v->source != source)
        fail_msg("%s: wanted %s from source %d, got %.*s from %d", r->key, wanted, (int)source,
                 STR_ARG(v->text), (int)v->source);
}

static void test_every_setting_is_flag_before_environment_before_file_before_default(void **state)
{
    (void)state;
    char dir[] = "/tmp/shoal_config_test_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/config.yaml", dir);
    int rows = 0;
    for (const struct config_row *r = config_rows; r->key; r++) {
        struct err e = {0};
        struct config *c;
        if (r->is_later || !is_scalar(r))
            continue;
        if (r->standard && r->standard[0] != '~')
            check_value(given_config(""), r, r->standard, CONFIG_SOURCE_DEFAULT);
        assert_int_equal(config_value(given_config(""), r->key)->is_set, r->standard != NULL);
        check_value(given_config(yaml_for(r, sample(r, 0))), r, sample(r, 0), CONFIG_SOURCE_FILE);
        setenv(env_name(r), sample(r, 1), 1);
        check_value(given_config(yaml_for(r, sample(r, 0))), r, sample(r, 1), CONFIG_SOURCE_ENV);
        struct config_flag flag = {r, str_of(sample(r, 2))};
        struct config_input in = {path, &flag, 1};
        assert_true(file_write(path, str_of(yaml_for(r, sample(r, 0))), 0600, &e));
        assert_true(config_load(&c, &in, &given.arena, &given.problems, &e));
        check_value(c, r, sample(r, 2), CONFIG_SOURCE_FLAG);
        unsetenv(env_name(r));
        rows++;
    }
    assert_true(rows >= 6);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
}

static void test_settings_of_what_is_not_built_are_refused_by_name(void **state)
{
    (void)state;
    for (const struct config_row *r = config_rows; r->key; r++) {
        struct config *c;
        struct err e = {0};
        if (!r->is_later)
            continue;
        buf_clear(&given.problems);
        assert_false(config_load_text(&c, "c", str_of(yaml_for(r, "x")), &given.arena,
                                      &given.problems, &e));
        assert_int_equal(e.code, ERR_UNSUPPORTED);
        assert_non_null(strstr(given.problems.p, r->key));
        assert_non_null(strstr(given.problems.p, ": not built yet\n"));
        if (!is_scalar(r))
            continue;
        setenv(env_name(r), "x", 1);
        assert_false(config_load_text(&c, "c", STR(""), &given.arena, &given.problems, &e));
        assert_int_equal(e.code, ERR_UNSUPPORTED);
        assert_non_null(strstr(e.text, env_name(r)));
        unsetenv(env_name(r));
    }
}

static void test_settings_of_what_is_not_built_take_their_default(void **state)
{
    (void)state;
    for (const struct config_row *r = config_rows; r->key; r++) {
        if (!r->is_later)
            continue;
        given_config(yaml_for(r, r->standard ? r->standard : r->spec.type == CONFIG_TYPE_LIST
                                                   ? "[]" : "\"\""));
        if (!is_scalar(r))
            continue;
        setenv(env_name(r), r->standard ? r->standard : "", 1);
        given_config("");
        unsetenv(env_name(r));
    }
    given_config("engine: {gpus: [all]}\n");
}

static void test_every_bad_value_is_told_with_place_key_and_what_is_expected(void **state)
{
    (void)state;
    check_problems("engine:\n  ctx: many\n  threads: 0\n",
                   "config.yaml:2:3: engine.ctx: integer 0..16777216 expected, got \"many\"\n"
                   "config.yaml:3:3: engine.threads: auto or integer 1..256 expected, got \"0\"\n");
    check_problems("engine: {activations: fast}\n",
                   "config.yaml:1:10: engine.activations: auto, float, int8 or int16 "
                   "expected, got \"fast\"\n");
    check_problems("store: [a, b]", "config.yaml:1:1: store: path expected, got a list\n");
    check_problems("store:", "config.yaml:1:1: store: path expected, got nothing\n");
    check_problems("store: ''", "config.yaml:1:1: store: path expected, got \"\"\n");
    check_problems("aliases: [a]", "config.yaml:1:1: aliases: map of texts expected, got a list\n");
    check_problems("sources: {dirs: [[a]]}", "config.yaml:1:11: sources.dirs: list of texts "
                                             "expected, got something else inside\n");
    check_problems("engine: 3", "config.yaml:1:1: engine: a map of settings expected\n");
    check_problems("- a", "config.yaml:1:1: a map of settings expected\n");
}

static void test_unknown_keys_name_the_nearest_one(void **state)
{
    (void)state;
    check_problems("engine: {thread: 1}", "config.yaml:1:10: engine.thread: unknown key; did you "
                                          "mean engine.threads?\n");
    check_problems("limitz: {queue: 1}",
                   "config.yaml:1:1: limitz: unknown key; did you mean limits?\n");
    check_problems("engin.ctx: 1",
                   "config.yaml:1:1: engin.ctx: unknown key; did you mean engine.ctx?\n");
    check_problems("zzzzzzzzzzz: 1", "config.yaml:1:1: zzzzzzzzzzz: unknown key\n");
    check_problems("\"a\\e[1m\": 1", "config.yaml:1:1: a\\u001b[1m: unknown key\n");
}

static void test_environment_errors_name_the_variable(void **state)
{
    (void)state;
    setenv("SHOAL_ENGINE_CTX", "-1", 1);
    check_problems("", "SHOAL_ENGINE_CTX: integer 0..16777216 expected, got \"-1\"\n");
    unsetenv("SHOAL_ENGINE_CTX");
}

static void test_yaml_outside_the_subset_is_refused_with_its_place(void **state)
{
    (void)state;
    check_problems("store: &a x", "config.yaml:1:8: anchors are not allowed\n");
    check_problems("aliases: {a: &b c, d: *b}", "config.yaml:1:14: anchors are not allowed\n");
    check_problems("store: *a", "config.yaml:1:8: aliases are not allowed\n");
    check_problems("store: !!str x", "config.yaml:1:8: tags are not allowed\n");
    check_problems("store: x\nstore: y", "config.yaml:2:1: store: stands twice\n");
    check_problems("engine: {ctx: 1}\nengine.ctx: 2",
                   "config.yaml:2:1: engine.ctx: stands twice\n");
    check_problems("store: x\n---\nstore: y",
                   "config.yaml:2:1: a second document is not allowed\n");
    check_problems("? [a]\n: b", "config.yaml:1:3: a key must be a text\n");
    check_problems("store: [x", "config.yaml:2:1: did not find expected ',' or ']'\n");
    check_problems("a: [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]", "config.yaml:1:19: nested too deeply\n");
}

static void test_at_most_twenty_problems_are_told(void **state)
{
    (void)state;
    struct buf yaml;
    struct config *c;
    struct err e = {0};
    buf_init(&yaml, 10000);
    for (int i = 0; i < 30; i++)
        buf_printf(&yaml, "zzzzzzzzz%d: 1\n", i);
    assert_false(config_load_text(&c, "c", buf_view(&yaml), &given.arena, &given.problems, &e));
    str rest = buf_view(&given.problems), line;
    int lines = 0;
    while (str_split(&rest, '\n', &line))
        lines++;
    assert_int_equal(lines, CONFIG_PROBLEMS_MAX + 1);
    assert_true(str_ends(buf_view(&given.problems), STR("and 10 more\n")));
    buf_deinit(&yaml);
}

static void test_paths_lists_and_maps_are_read(void **state)
{
    (void)state;
    const struct config *c = given_config("store: ~/m\n"
                                  "sources: {dirs: [~/a, /b], ollama: off}\n"
                                  "aliases: {\"gpt-*\": big, \"*\": small}\n");
    assert_true(str_eq_z(config_text(c, "store"), "/home/of/test/m"));
    const struct config_value *dirs = config_value(c, "sources.dirs");
    assert_int_equal(dirs->items_count, 2);
    assert_true(str_eq_z(dirs->items[0], "/home/of/test/a") && str_eq_z(dirs->items[1], "/b"));
    assert_true(config_is(c, "sources.ollama", "off"));
    const struct config_value *aliases = config_value(c, "aliases");
    assert_int_equal(aliases->items_count, 4);
    assert_true(str_eq_z(aliases->items[0], "gpt-*") && str_eq_z(aliases->items[3], "small"));
    c = given_config("");
    assert_true(str_eq_z(config_text(c, "store"), "/home/of/test/.shoal/models"));
    assert_true(str_eq_z(config_value(c, "sources.dirs")->items[0], "/home/of/test/models"));
}

static void test_aliases_that_lead_back_are_refused(void **state)
{
    (void)state;
    check_problems("aliases: {a: b, b: c, c: a}",
                   "config.yaml:1:11: aliases: a leads back to itself\n");
    check_problems("aliases:\n  z: y\n  a: b\n  b: a",
                   "config.yaml:3:3: aliases: a leads back to itself\n");
    given_config("aliases: {a: b, b: c, \"x*\": x1}");
}

static void test_only_a_named_file_must_exist(void **state)
{
    (void)state;
    struct config *c;
    struct err e = {0};
    struct config_input in = {0};
    assert_true(config_load(&c, &in, &given.arena, &given.problems, &e));
    in.path = "/nowhere/config.yaml";
    assert_false(config_load(&c, &in, &given.arena, &given.problems, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(given.problems.len, 0);
    in.path = NULL;
    setenv("SHOAL_CONFIG", "/nowhere/else.yaml", 1);
    assert_false(config_load(&c, &in, &given.arena, &given.problems, &e));
    assert_non_null(strstr(e.text, "/nowhere/else.yaml"));
    unsetenv("SHOAL_CONFIG");
}

static void test_rows_are_consistent(void **state)
{
    (void)state;
    for (const struct config_row *r = config_rows; r->key; r++) {
        assert_ptr_equal(config_find_row(str_of(r->key)), r); /* no key twice */
        if (!r->is_later)
            assert_non_null(r->help);
        assert_int_equal(r->flag != NULL, r->commands != NULL);
        struct config_value v = {0};
        struct err e = {0};
        if (r->standard && !config_spec_parse(&r->spec, str_of(r->standard), &given.arena, &v, &e))
            fail_msg("%s: its default is refused: %s", r->key, e.text);
    }
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, given_begin, given_end)
    const struct CMUnitTest tests[] = {
        CASE(test_every_setting_is_flag_before_environment_before_file_before_default),
        CASE(test_settings_of_what_is_not_built_are_refused_by_name),
        CASE(test_settings_of_what_is_not_built_take_their_default),
        CASE(test_every_bad_value_is_told_with_place_key_and_what_is_expected),
        CASE(test_unknown_keys_name_the_nearest_one),
        CASE(test_environment_errors_name_the_variable),
        CASE(test_yaml_outside_the_subset_is_refused_with_its_place),
        CASE(test_at_most_twenty_problems_are_told),
        CASE(test_paths_lists_and_maps_are_read),
        CASE(test_aliases_that_lead_back_are_refused),
        CASE(test_only_a_named_file_must_exist),
        CASE(test_rows_are_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
