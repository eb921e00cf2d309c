/* The template engine against Jinja2: snippets, and chat templates over many conversations. The
 * folder of the templates may be given as argument. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "chat/jinja.h"
#include "chat/jinja_json.h"

#define FILE_SIZE_MAX ((size_t)64 << 20)
#define TIME_S 1785000000 /* jinja_reference.py */

static const char *folder = "tests/golden/templates";

static str read_text(const char *name, struct arena *a)
{
    char path[512];
    str text = {0};
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!file_read(&text, path, FILE_SIZE_MAX, a, &e))
        fail_msg("%s", e.text);
    return text;
}

static struct json read_json(const char *name, struct arena *a)
{
    const struct json_options options = {.depth_max = 128};
    struct json v;
    struct err e = {0};
    if (!json_parse(&v, read_text(name, a), &options, a, &e))
        fail_msg("%s: %s", name, e.text);
    return v;
}

/* Runs a template over variables, each of an origin of its own. */
static bool render(str source, struct json variables, struct arena *a, struct jinja_result *out,
                   struct err *e)
{
    struct jinja_heap h = jinja_heap(a);
    struct jinja_template *t;
    struct jinja_var vars[64];
    struct jinja_input in = {.vars = vars, .time_s = TIME_S};
    if (!jinja_compile(&t, source, a, e))
        return false;
    for (struct json_walk w = json_walk(variables); json_next(&w); in.vars_count++) {
        struct jinja_var *v = &vars[in.vars_count];
        v->name = json_text(w.key, a);
        /* The texts of the vocabulary are the template's own. */
        bool is_own = str_ends(v->name, STR("_token"));
        uint32_t origin = is_own ? 0 : (uint32_t)in.vars_count + 1;
        if (!jinja_json_value(&h, json_raw(w.value), origin, &v->value, e))
            return false;
    }
    return jinja_run(t, &h, &in, out, e);
}

/* True if got is what Jinja2 gave (null: a refusal); else prints both. */
static bool is_expected(struct json expected, bool ok, const struct jinja_result *got,
                        const struct err *e, str what, struct arena *a)
{
    if (json_kind(expected) == JSON_KIND_NULL) {
        if (ok)
            print_error("%.*s\n  Jinja2 refuses, we print: %.*s\n", STR_ARG(what),
                        STR_ARG(jinja_text_bytes(got->text)));
        return !ok;
    }
    str want = json_text(expected, a);
    if (ok && str_eq(jinja_text_bytes(got->text), want))
        return true;
    print_error("%.*s\n  want: %.*s\n  got:  %.*s\n", STR_ARG(what), STR_ARG(want),
                STR_ARG(ok ? jinja_text_bytes(got->text) : str_of(e->text)));
    return false;
}

static void check_snippets(const char *name)
{
    struct arena a;
    arena_init(&a, FILE_SIZE_MAX);
    struct json file = read_json(name, &a), context = json_member(file, "context");
    unsigned count = 0, bad = 0;
    for (struct json_walk w = json_walk(json_member(file, "snippets")); json_next(&w); count++) {
        struct arena run;
        struct jinja_result got;
        struct err e = {0};
        arena_init(&run, FILE_SIZE_MAX);
        str source = json_text(json_at(w.value, 0), &a);
        bool ok = render(source, context, &run, &got, &e);
        bad += !is_expected(json_at(w.value, 1), ok, &got, &e, source, &run);
        arena_deinit(&run);
    }
    assert_true(count >= 1000);
    assert_int_equal(bad, 0);
    arena_deinit(&a);
}

static void test_B05_snippets_by_hand_and_random_print_what_jinja2_prints(void **state)
{
    (void)state;
    check_snippets("snippets_1.json");
}

static void test_random_snippets_print_what_jinja2_prints(void **state)
{
    (void)state;
    check_snippets("snippets_2.json");
}

/* Bytes of private-use characters (U+E000 to U+EFFF) in spans that are the template's own. */
static unsigned private_in_scaffold(struct jinja_str s)
{
    unsigned bad = 0;
    for (uint32_t at = 0, end; at < s.len; at = end) {
        uint32_t origin = jinja_text_origin(s, at, &end);
        str part = jinja_text_bytes(jinja_text_cut(s, at, end));
        for (size_t i = 0; origin == 0 && i < part.len; i++)
            bad += (uint8_t)part.p[i] == 0xee;
    }
    return bad;
}

static unsigned check_template(str name, struct json inputs, unsigned *refused)
{
    struct arena a;
    char file[256], what[512];
    unsigned bad = 0;
    arena_init(&a, FILE_SIZE_MAX);
    snprintf(file, sizeof file, "%.*s.json", STR_ARG(name));
    struct json golden = read_json(file, &a);
    snprintf(file, sizeof file, "%.*s.jinja", STR_ARG(name));
    str source = read_text(file, &a);
    for (struct json_walk w = json_walk(golden); json_next(&w);) {
        struct arena run;
        struct jinja_result got;
        struct err e = {0};
        arena_init(&run, FILE_SIZE_MAX);
        str input = json_text(w.key, &a);
        snprintf(what, sizeof what, "%.*s, %.*s", STR_ARG(name), STR_ARG(input));
        char key[128];
        snprintf(key, sizeof key, "%.*s", STR_ARG(input));
        bool ok = render(source, json_member(inputs, key), &run, &got, &e);
        *refused += !ok;
        bad += !is_expected(w.value, ok, &got, &e, str_of(what), &run);
        if (ok && private_in_scaffold(got.text)) {
            print_error("%s: request bytes in the template's spans\n", what);
            bad++;
        }
        arena_deinit(&run);
    }
    arena_deinit(&a);
    return bad;
}

static void test_B02_chat_templates_print_what_jinja2_prints_and_C01_keep_origins(void **state)
{
    (void)state;
    struct arena a;
    unsigned count = 0, bad = 0, refused = 0;
    arena_init(&a, FILE_SIZE_MAX);
    struct json inputs = read_json("inputs.json", &a), index = read_json("index.json", &a);
    for (struct json_walk w = json_walk(index); json_next(&w); count++)
        bad += check_template(json_text(w.value, &a), inputs, &refused);
    print_message("%u templates, %u inputs each, %u refusals\n", count, json_count(inputs),
                  refused);
    assert_true(count >= 40);
    assert_int_equal(bad, 0);
    arena_deinit(&a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest templates[] = {
        cmocka_unit_test(test_B02_chat_templates_print_what_jinja2_prints_and_C01_keep_origins),
    };
    const struct CMUnitTest snippets[] = {
        cmocka_unit_test(test_B05_snippets_by_hand_and_random_print_what_jinja2_prints),
        cmocka_unit_test(test_random_snippets_print_what_jinja2_prints),
    };
    int failed = 0;
    if (argc > 1)
        folder = argv[1];
    else
        failed = cmocka_run_group_tests(snippets, NULL, NULL);
    return failed + cmocka_run_group_tests(templates, NULL, NULL);
}
