#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/chrono.h"
#include "base/json.h"
#include "chat/output_scan.h"

static enum output_scan_at scan(str text, struct buf *out, size_t *used)
{
    struct output_scan s;
    output_scan_init(&s);
    buf_clear(out);
    for (*used = 0; *used < text.len; ++*used)
        if (!output_scan_byte(&s, text.p[*used], out))
            return s.at;
    (void)output_scan_end(&s);
    return s.at;
}

static void test_a_value_is_whole_open_or_none(void **state)
{
    (void)state;
    static const struct {
        const char *text, *out;
        enum output_scan_at at;
    } rows[] = {
        {"{\"a\": [1, -2.5e+3, true, null], \"b\": {}}", NULL, OUTPUT_SCAN_DONE},
        {"  [ ]", "[ ]", OUTPUT_SCAN_DONE},
        {"\"x\"", NULL, OUTPUT_SCAN_DONE},
        {"12", NULL, OUTPUT_SCAN_DONE},
        {"0", NULL, OUTPUT_SCAN_DONE},
        {"{\"a\": 1}}", "{\"a\": 1}", OUTPUT_SCAN_DONE}, /* the second brace is not taken */
        {"12 ", "12", OUTPUT_SCAN_DONE},
        {"[1", NULL, OUTPUT_SCAN_IN_NUMBER},
        {"{\"a", NULL, OUTPUT_SCAN_IN_KEY},
        {"-", NULL, OUTPUT_SCAN_IN_NUMBER},
        {"{\"a\" 1}", "{\"a\" ", OUTPUT_SCAN_BAD},
        {"{a: 1}", "{", OUTPUT_SCAN_BAD},
        {"[1,]", "[1,", OUTPUT_SCAN_BAD},
        {"[01]", "[0", OUTPUT_SCAN_BAD},
        {"[1.]", "[1.", OUTPUT_SCAN_BAD},
        {"[nul]", "[nul", OUTPUT_SCAN_BAD},
        {"[}", "[", OUTPUT_SCAN_BAD},
        /* Repairs. */
        {"\"a\nb\tc\x01\"", "\"a\\nb\\tc\\u0001\"", OUTPUT_SCAN_DONE},
        {"\"\\d\\'\\x\"", "\"\\\\d\\\\'\\\\x\"", OUTPUT_SCAN_DONE},
        {"\"\\u00e9\\u12\"", "\"\\u00e9\\\\u12\"", OUTPUT_SCAN_DONE},
        {"\"\\\n\"", "\"\\\\\\n\"", OUTPUT_SCAN_DONE},
    };
    struct buf out;
    size_t used;
    buf_init(&out, 1 << 16);
    for (size_t i = 0; i < countof(rows); i++) {
        enum output_scan_at at = scan(str_of(rows[i].text), &out, &used);
        const char *want = rows[i].out ? rows[i].out : rows[i].text;
        if (at != rows[i].at || !str_eq_z(buf_view(&out), want))
            fail_msg("%s: %d, '%.*s'", rows[i].text, (int)at, STR_ARG(buf_view(&out)));
    }
    buf_deinit(&out);
}

static void test_nesting_has_a_limit(void **state)
{
    (void)state;
    char deep[2 * OUTPUT_SCAN_DEPTH_MAX + 2];
    struct buf out;
    size_t used;
    buf_init(&out, 1 << 16);
    memset(deep, '[', sizeof deep);
    assert_int_equal(scan(str_view(deep, sizeof deep), &out, &used), OUTPUT_SCAN_BAD);
    assert_int_equal(used, OUTPUT_SCAN_DEPTH_MAX);
    memset(deep + OUTPUT_SCAN_DEPTH_MAX, ']', OUTPUT_SCAN_DEPTH_MAX);
    assert_int_equal(scan(str_view(deep, 2 * OUTPUT_SCAN_DEPTH_MAX), &out, &used),
                     OUTPUT_SCAN_DONE);
    buf_deinit(&out);
}

/* Whole by the scan is JSON for the strict reader; what that reads, the scan leaves as it is. */
static void test_random_texts_agree_with_the_strict_reader(void **state)
{
    (void)state;
    static const char letters[] = "{{}[]\"\":,,01-.eEtrue \n\\u";
    const struct json_options opt = {.depth_max = 64};
    struct chrono_rng rng;
    struct buf out;
    struct arena a;
    unsigned whole = 0;
    chrono_rng_init(&rng, 11);
    buf_init(&out, 1 << 16);
    arena_init(&a, 1 << 16);
    for (int round = 0; round < 400000; round++) {
        char text[10];
        struct json v;
        struct err e;
        size_t len = chrono_rng_below(&rng, sizeof text) + 1, used;
        for (size_t i = 0; i < len; i++)
            text[i] = letters[chrono_rng_below(&rng, sizeof letters - 1)];
        str all = str_view(text, len);
        arena_reset(&a);
        bool strict = json_parse(&v, all, &opt, &a, &e);
        bool done = scan(all, &out, &used) == OUTPUT_SCAN_DONE;
        whole += done;
        if (strict && (!done || !str_eq(str_trim(buf_view(&out)), str_trim(all))))
            fail_msg("'%.*s' is JSON, but '%.*s'", STR_ARG(all), STR_ARG(buf_view(&out)));
        if (done && !json_parse(&v, buf_view(&out), &opt, &a, &e))
            fail_msg("'%.*s' became '%.*s': %s", STR_ARG(all), STR_ARG(buf_view(&out)), e.text);
    }
    assert_true(whole > 1000);
    arena_deinit(&a);
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_value_is_whole_open_or_none),
        cmocka_unit_test(test_nesting_has_a_limit),
        cmocka_unit_test(test_random_texts_agree_with_the_strict_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
