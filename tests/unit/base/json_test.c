#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/json.h"

#define MIB ((size_t)1 << 20)

static const struct json_options lenient = {.depth_max = 128};
static const struct json_options strict = {.depth_max = 128, .refuse_duplicates = true};
static struct arena arena;

static int open_arena(void **state)
{
    (void)state;
    arena_init(&arena, 16 * MIB);
    return 0;
}

static int close_arena(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

static struct json parse(const char *text)
{
    struct json v = {NULL, 0};
    struct err e = {0};
    if (!json_parse(&v, str_of(text), &lenient, &arena, &e))
        fail_msg("%s", e.text);
    return v;
}

static void check_error(const char *text, const struct json_options *o, const char *wanted)
{
    struct json v;
    struct err e = {0};
    if (json_parse(&v, str_of(text), o, &arena, &e))
        fail_msg("accepted: %s", text);
    assert_string_equal(e.text, wanted);
}

static void test_members_keep_order_and_equal_names_stay_visible(void **state)
{
    (void)state;
    struct json v = parse("{\"b\": 1, \"a\": [true, null], \"b\": \"last\", \"\\u0061\": {}}");
    static const char *const keys[] = {"b", "a", "b", "a"};
    static const enum json_kind kinds[] = {JSON_KIND_NUMBER, JSON_KIND_ARRAY, JSON_KIND_STRING,
                                           JSON_KIND_OBJECT};
    struct json_walk w = json_walk(v);
    for (size_t i = 0; i < countof(keys); i++) {
        assert_true(json_next(&w));
        assert_true(json_text_eq(w.key, str_of(keys[i])));
        assert_int_equal(json_kind(w.value), kinds[i]);
    }
    assert_false(json_next(&w));
    assert_int_equal(json_count(v), 4);
    assert_true(json_text_eq(json_member(v, "b"), STR("last")));
    assert_int_equal(json_kind(json_member(v, "a")), JSON_KIND_OBJECT);
}

static void test_absent_values_can_be_asked_anything(void **state)
{
    (void)state;
    struct json v = json_member(json_at(json_member(parse("{\"a\": [1]}"), "a"), 7), "x");
    bool b;
    int64_t i;
    double d;
    assert_int_equal(json_kind(v), JSON_KIND_ABSENT);
    assert_null(json_text(v, &arena).p);
    assert_null(json_raw(v).p);
    assert_false(json_bool(v, &b) || json_i64(v, &i) || json_double(v, &d));
    assert_false(json_text_eq(v, STR("")));
    assert_int_equal(json_count(v), 0);
    assert_int_equal(json_kind(json_member(parse("[1]"), "a")), JSON_KIND_ABSENT);
    assert_int_equal(json_kind(json_at(parse("\"abc\""), 0)), JSON_KIND_ABSENT);
    assert_string_equal(json_kind_name(JSON_KIND_ABSENT), "nothing");
}

static void test_numbers_are_read_exactly_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool i_ok, u_ok, d_ok;
        int64_t i;
        uint64_t u;
        double d;
    } t[] = {
        {"0", true, true, true, 0, 0, 0},
        {"-0", true, true, true, 0, 0, -0.0},
        {"9223372036854775807", true, true, true, INT64_MAX, INT64_MAX, 0x1p63},
        {"9223372036854775808", false, true, true, 0, (uint64_t)1 << 63, 0x1p63},
        {"-9223372036854775808", true, false, true, INT64_MIN, 0, -0x1p63},
        {"18446744073709551616", false, false, true, 0, 0, 0x1p64},
        {"5.0", true, true, true, 5, 5, 5},
        {"0.5e1", true, true, true, 5, 5, 5},
        {"-2E0", true, false, true, -2, 0, -2},
        {"1e16", false, false, true, 0, 0, 1e16}, /* past 2^53: which whole number is unclear */
        {"5.5", false, false, true, 0, 0, 5.5},
        {"1e400", false, false, false, 0, 0, 0},
        {"0.1", false, false, true, 0, 0, 0.1},
        {"\"1\"", false, false, false, 0, 0, 0},
        {"true", false, false, false, 0, 0, 0},
    };
    for (size_t n = 0; n < countof(t); n++) {
        struct json v = parse(t[n].text);
        int64_t i = 99;
        uint64_t u = 99;
        double d = 99;
        if (json_i64(v, &i) != t[n].i_ok || json_u64(v, &u) != t[n].u_ok ||
            json_double(v, &d) != t[n].d_ok)
            fail_msg("%s: accepted or refused wrongly", t[n].text);
        assert_true(i == (t[n].i_ok ? t[n].i : 99) && u == (t[n].u_ok ? t[n].u : 99));
        double wanted = t[n].d_ok ? t[n].d : 99;
        assert_memory_equal(&d, &wanted, sizeof d);
    }
    bool b = false;
    assert_true(json_bool(parse("true"), &b) && b && json_bool(parse("false"), &b) && !b);
}

static void test_texts_are_views_unless_escaped(void **state)
{
    (void)state;
    static const char body[] = "[\"plain\", \"a\\n\\ud83d\\ude00\\ud800\\u0000\", \"\", \"\\\"\"]";
    struct json v = parse(body);
    str plain = json_text(json_at(v, 0), &arena);
    assert_ptr_equal(plain.p, body + 2);
    str escaped = json_text(json_at(v, 1), &arena);
    assert_true(str_eq(escaped, STR("a\n\xf0\x9f\x98\x80\xef\xbf\xbd\0")));
    assert_int_equal(escaped.p[escaped.len], 0);
    assert_non_null(json_text(json_at(v, 2), &arena).p);
    assert_true(json_text_eq(json_at(v, 1), escaped));
    assert_false(json_text_eq(json_at(v, 1), str_sub(escaped, 0, escaped.len - 1)));
    assert_false(json_text_eq(json_at(v, 3), STR("\"x")));
    struct arena none;
    arena_init(&none, 0);
    assert_null(json_text(json_at(v, 1), &none).p);
    assert_true(none.is_full);
}

static void test_raw_values_are_as_written(void **state)
{
    (void)state;
    static const char *const values[] = {
        "1.50", "\"a\\\"]\"", "{ \"x\" : [ 1, \"}\" ] }", "[]", "null", "\"\"", "[[[\"\\\\\"]]]",
    };
    struct buf b;
    buf_init(&b, 1000);
    buf_add_z(&b, "[ ");
    for (size_t i = 0; i < countof(values); i++)
        buf_printf(&b, "%s%s", i ? " , " : "", values[i]);
    buf_add_z(&b, "\n] ");
    struct json v = parse(b.p);
    for (uint32_t i = 0; i < countof(values); i++)
        assert_true(str_eq_z(json_raw(json_at(v, i)), values[i]));
    buf_deinit(&b);
}

static void test_errors_name_path_line_and_column(void **state)
{
    (void)state;
    check_error("", &lenient, "json: line 1, column 1: a value expected, but the text ends");
    check_error("{\"messages\": [{}, {\"content\": [1,\n  oops]}]}", &lenient,
                "json: messages[1].content[1]: line 2, column 3: a value expected");
    check_error("{\"a b\": {\"c\": 1 2}}", &lenient,
                "json: [\"a b\"].c: line 1, column 17: ',' or '}' expected");
    check_error("{\"a\": 1, x}", &lenient,
                "json: line 1, column 10: a name in double quotes expected");
    check_error("[[1], [2}", &lenient, "json: [1][0]: line 1, column 9: ',' or ']' expected");
    check_error("[\"\xe2\x82\xac\xff\"]", &lenient, "json: [0]: line 1, column 4: invalid UTF-8");
    check_error("1 2", &lenient, "json: line 1, column 3: text after the end of the document");
    check_error("[\"a\nb\"]", &lenient,
                "json: [0]: line 1, column 4: control character in a string");
}

static void test_depth_is_limited_on_both_sides(void **state)
{
    (void)state;
    static char text[2 * JSON_DEPTH_MAX + 8];
    struct json v;
    for (uint32_t max = 1; max < 2 * JSON_DEPTH_MAX; max = max * 2 + 1) {
        struct json_options o = {.depth_max = max < JSON_DEPTH_MAX ? max : JSON_DEPTH_MAX};
        for (uint32_t depth = o.depth_max; depth <= o.depth_max + 1; depth++) {
            struct err e = {0};
            memset(text, '[', depth);
            memset(text + depth, ']', depth);
            bool ok = json_parse(&v, str_view(text, 2 * depth), &o, &arena, &e);
            assert_int_equal(ok, depth <= o.depth_max);
            if (!ok)
                assert_int_equal(e.code, ERR_LIMIT);
        }
    }
}

static void test_equal_names_are_found_in_small_and_large_objects(void **state)
{
    (void)state;
    check_error("{\"a\": 1, \"b\": {\"c\": 1, \"\\u0063\": 2}}", &strict,
                "json: b[\"\\u0063\"]: line 1, column 25: this name stands twice in its object");
    struct json v;
    struct err e = {0};
    struct buf b;
    buf_init(&b, 4 * MIB);
    for (int twin = -1; twin < 3000; twin += 379) {
        buf_clear(&b);
        buf_add_byte(&b, '{');
        for (int i = 0; i < 3000; i++)
            buf_printf(&b, "%s\"key%d%s\":{\"k\":%d}", i ? "," : "", i, i % 5 ? "" : "\\n", i);
        if (twin >= 0)
            buf_printf(&b, ",\"\\u006bey%d%s\":0", twin, twin % 5 ? "" : "\\u000a");
        buf_add_byte(&b, '}');
        arena_reset(&arena);
        bool ok = json_parse(&v, buf_view(&b), &strict, &arena, &e);
        assert_int_equal(ok, twin < 0);
        if (!ok)
            assert_non_null(strstr(e.text, "stands twice"));
    }
    buf_deinit(&b);
}

/* Whatever the document: parsing and unescaping every text stay within 4 x body + 1 MiB. */
static void test_memory_stays_below_four_times_the_body(void **state)
{
    (void)state;
    static const struct { const char *before, *unit, *after; } t[] = {
        {"[", "[],", "1]"},        {"[", "1,", "1]"},    {"[", "{},", "1]"},
        {"[", "\"\",", "1]"},      {"[", "\"\\n\",", "1]"}, {"[", "{\"\":1},", "1]"},
        {"[", "\"\\ud800\",", "1]"}, {"[", "[[1]],", "1]"}, {"{", "\"\":1,", "\"\":1}"},
        {"[", "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1},", "1]"},
    };
    for (size_t n = 0; n < countof(t); n++) {
        struct buf b;
        struct arena a;
        struct json v;
        struct err e = {0};
        buf_init(&b, 4 * MIB);
        buf_add_z(&b, t[n].before);
        while (b.len < 3 * MIB)
            buf_add_z(&b, t[n].unit);
        buf_add_z(&b, t[n].after);
        arena_init(&a, 4 * b.len + MIB);
        struct json_options o = {.depth_max = 128, .refuse_duplicates = t[n].before[0] == '['};
        if (!json_parse(&v, buf_view(&b), &o, &a, &e))
            fail_msg("%s: %s", t[n].unit, e.text);
        for (struct json_walk w = json_walk(v); json_next(&w);)
            if (json_kind(w.value) == JSON_KIND_STRING)
                assert_non_null(json_text(w.value, &a).p);
        arena_deinit(&a);
        buf_deinit(&b);
    }
}

static void test_a_full_arena_and_a_huge_body_are_refused(void **state)
{
    (void)state;
    struct arena a;
    struct json v;
    struct err e = {0};
    for (size_t room = 0; room < 300; room += 16) {
        arena_init(&a, room);
        if (json_parse(&v, STR("[1,2,3]"), &lenient, &a, &e))
            assert_true(room >= 100);
        else
            assert_int_equal(e.code, ERR_MEMORY);
        arena_deinit(&a);
    }
    assert_false(json_parse(&v, str_view("", JSON_SIZE_MAX + 1), &lenient, &arena, &e));
    assert_int_equal(e.code, ERR_LIMIT);
}

static void test_a_document_cut_anywhere_is_refused(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\": [1.5e3, true, \"\\ud83d\\ude00\xc3\xa9\", {\"b\": null, \"c\": [[], {}]}],"
        " \"d\": -0}";
    struct json v;
    struct err e;
    for (size_t len = 0; len < sizeof text - 1; len++)
        assert_false(json_parse(&v, str_view(text, len), &lenient, &arena, &e));
    assert_true(json_parse(&v, str_view(text, sizeof text - 1), &lenient, &arena, &e));
}

static void check_path(struct json v, const char *wanted)
{
    struct buf b;
    buf_init(&b, 1000);
    assert_true(json_add_path(&b, v));
    assert_string_equal(b.p ? b.p : "", wanted);
    buf_deinit(&b);
}

static void test_every_value_knows_its_path(void **state)
{
    (void)state;
    struct json v = parse("{\"tools\": [[], {\"x y\": {\"\": 1}}], \"b-c\": {\"1\": [0, 1]}}");
    check_path(v, "");
    check_path(json_member(v, "tools"), "tools");
    check_path(json_at(json_member(v, "tools"), 0), "tools[0]");
    struct json inner = json_member(json_at(json_member(v, "tools"), 1), "x y");
    check_path(json_member(inner, ""), "tools[1][\"x y\"][\"\"]");
    check_path(json_at(json_member(json_member(v, "b-c"), "1"), 1), "b-c[\"1\"][1]");
    struct json_walk w = json_walk(v);
    assert_true(json_next(&w) && json_next(&w));
    check_path(w.key, "b-c");
}

static void test_a_writer_puts_commas_and_escapes(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    struct json_writer w = json_writer(&b);
    json_open_object(&w);
    json_key_z(&w, "a\"");
    json_open_array(&w);
    json_put_i64(&w, INT64_MIN);
    json_put_u64(&w, UINT64_MAX);
    json_put_double(&w, 0.1);
    json_put_float(&w, 0.1f);
    json_put_double(&w, (double)NAN);
    json_put_float(&w, INFINITY);
    json_close_array(&w);
    json_key_z(&w, "");
    json_open_object(&w);
    json_close_object(&w);
    json_key_z(&w, "t");
    json_put_text(&w, STR("\x01\n\\/\x7f\xff\xe2\x82\xac\xe2\x82"));
    json_key_z(&w, "r");
    json_put_raw(&w, STR("[ 1 ]"));
    json_key_z(&w, "b");
    json_put_bool(&w, true);
    json_key_z(&w, "n");
    json_put_null(&w);
    json_close_object(&w);
    assert_string_equal(b.p, "{\"a\\\"\":[-9223372036854775808,18446744073709551615,0.1,0.1,null,"
                             "null],\"\":{},\"t\":\"\\u0001\\n\\\\/\x7f\xef\xbf\xbd\xe2\x82\xac"
                             "\xef\xbf\xbd\xef\xbf\xbd\",\"r\":[ 1 ],\"b\":true,\"n\":null}");
    parse(b.p);
    buf_deinit(&b);
}

static void test_a_key_and_its_value_are_written_at_once(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    struct json_writer w = json_writer(&b);
    json_open_object(&w);
    json_put_key_text(&w, "t", STR("a\"b"));
    json_put_key_text(&w, "none", STR(""));
    json_put_key_i64(&w, "i", -1);
    json_put_key_u64(&w, "u", UINT64_MAX);
    json_close_object(&w);
    assert_string_equal(b.p, "{\"t\":\"a\\\"b\",\"none\":null,\"i\":-1,"
                             "\"u\":18446744073709551615}");
    buf_deinit(&b);
}

static void test_text_in_pieces_is_escaped_as_in_one(void **state)
{
    (void)state;
    str text = STR("quote \" euro \xe2\x82\xac tab \t end");
    struct buf whole, pieces;
    buf_init(&whole, 1000);
    buf_init(&pieces, 1000);
    assert_true(json_add_escaped(&whole, text));
    for (size_t at = 0; at < text.len;) {
        uint32_t c;
        size_t n = str_utf8_decode(str_from(text, at), &c);
        assert_true(json_add_escaped(&pieces, str_sub(text, at, n)));
        at += n;
    }
    assert_string_equal(whole.p, pieces.p);
    buf_deinit(&whole);
    buf_deinit(&pieces);
}

int main(void)
{
#define WITH_ARENA(test) cmocka_unit_test_setup_teardown(test, open_arena, close_arena)
    const struct CMUnitTest tests[] = {
        WITH_ARENA(test_members_keep_order_and_equal_names_stay_visible),
        WITH_ARENA(test_absent_values_can_be_asked_anything),
        WITH_ARENA(test_numbers_are_read_exactly_or_refused),
        WITH_ARENA(test_texts_are_views_unless_escaped),
        WITH_ARENA(test_raw_values_are_as_written),
        WITH_ARENA(test_errors_name_path_line_and_column),
        WITH_ARENA(test_depth_is_limited_on_both_sides),
        WITH_ARENA(test_equal_names_are_found_in_small_and_large_objects),
        WITH_ARENA(test_memory_stays_below_four_times_the_body),
        WITH_ARENA(test_a_full_arena_and_a_huge_body_are_refused),
        WITH_ARENA(test_a_document_cut_anywhere_is_refused),
        WITH_ARENA(test_every_value_knows_its_path),
        WITH_ARENA(test_a_writer_puts_commas_and_escapes),
        WITH_ARENA(test_a_key_and_its_value_are_written_at_once),
        WITH_ARENA(test_text_in_pieces_is_escaped_as_in_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
