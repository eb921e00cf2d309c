#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

static void test_numbers_refuse_overflow_and_rubbish(void **state)
{
    (void)state;
    uint64_t u;
    int64_t i;
    assert_true(str_to_u64(STR("18446744073709551615"), &u) && u == UINT64_MAX);
    assert_false(str_to_u64(STR("18446744073709551616"), &u));
    assert_false(str_to_u64(STR(""), &u) || str_to_u64(STR("-1"), &u) || str_to_u64(STR("1 "), &u));
    assert_true(str_to_i64(STR("-9223372036854775808"), &i) && i == INT64_MIN);
    assert_false(str_to_i64(STR("9223372036854775808"), &i));
}

static void test_sizes_and_durations_have_units(void **state)
{
    (void)state;
    uint64_t u;
    int64_t ms;
    assert_true(str_to_size(STR("512MiB"), &u) && u == 512u << 20);
    assert_true(str_to_size(STR("4G"), &u) && u == 4ull << 30);
    assert_true(str_to_size(STR("17"), &u) && u == 17);
    assert_false(str_to_size(STR("4Q"), &u) || str_to_size(STR("G"), &u));
    assert_true(str_to_duration_ms(STR("1h30m"), &ms) && ms == 5400000);
    assert_true(str_to_duration_ms(STR("300ms"), &ms) && ms == 300);
    assert_true(str_to_duration_ms(STR("-1"), &ms) && ms == -1000);
    assert_false(str_to_duration_ms(STR("1x"), &ms) || str_to_duration_ms(STR(""), &ms));
}

static void test_utf8_decodes_only_what_is_valid(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        if (c == 0xd800)
            c = 0xe000;
        char text[4];
        uint32_t back = 0;
        size_t n = str_utf8_encode(text, c);
        assert_int_equal(str_utf8_decode(str_view(text, n), &back), n);
        assert_int_equal(back, c);
        assert_int_equal(str_utf8_decode(str_view(text, n - 1), &back), n == 1 ? 0 : 0);
        assert_int_equal(str_utf8_complete(str_view(text, n)), n);
        for (size_t cut = 1; cut < n; cut++)
            assert_int_equal(str_utf8_complete(str_view(text, cut)), 0);
    }
    uint32_t c;
    assert_int_equal(str_utf8_decode(STR("\xc0\x80"), &c), 0);
    assert_int_equal(str_utf8_decode(STR("\xed\xa0\x80"), &c), 0);
    assert_int_equal(str_utf8_decode(STR("\xf4\x90\x80\x80"), &c), 0);
}

static void test_glob_matches_whole_strings(void **state)
{
    (void)state;
    assert_true(str_glob(STR("gpt-*"), STR("gpt-4o")) && str_glob(STR("*"), STR("")));
    assert_true(str_glob(STR("a?c*z"), STR("abc...z")));
    assert_false(str_glob(STR("a"), STR("ab")) || str_glob(STR("?"), STR("")));
}

static void test_distance_counts_the_fewest_edits_up_to_a_limit(void **state)
{
    (void)state;
    static const struct { const char *a, *b; uint32_t limit, wanted; } t[] = {
        {"", "", 3, 0},           {"", "abc", 3, 3},    {"abc", "", 2, 3},
        {"kitten", "sitting", 9, 3}, {"ABC", "abc", 9, 0}, {"threads", "thread", 2, 1},
        {"abcd", "acbd", 9, 2},   {"a", "zzzzzz", 2, 3},
    };
    for (size_t i = 0; i < countof(t); i++) {
        str a = str_of(t[i].a), b = str_of(t[i].b);
        assert_int_equal(str_distance(a, b, t[i].limit), t[i].wanted);
        assert_int_equal(str_distance(b, a, t[i].limit), t[i].wanted);
    }
    static const char longer[100];
    assert_int_equal(str_distance(str_view(longer, 100), str_view(longer, 100), 7), 8);
    assert_true(str_eq_nocase(STR("Qwen-3\xc3\x84"), STR("qWEN-3\xc3\x84")));
    assert_false(str_eq_nocase(STR("a"), STR("ab")) || str_eq_nocase(STR("["), STR("{")));
}

static void test_numbers_may_have_more_digits_than_a_double(void **state)
{
    (void)state;
    char text[1200];
    double d;
    memset(text, '0', sizeof text);
    memcpy(text, "0.1", 3);
    assert_true(str_to_double(str_view(text, 1000), &d) && d == 0.1);
    assert_false(str_to_double(str_view(text, sizeof text), &d)); /* too long to be meant */
    assert_false(str_to_double(STR("nan"), &d) || str_to_double(STR("0x10"), &d));
    assert_false(str_to_double(STR("1e999"), &d) || str_to_double(STR(" 1"), &d));
}

static void test_printable_text_cannot_steer_a_terminal(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    str hostile = STR("a\x1b[m\n\r\t\x7f\xc2\x85\xff\xe2\x80\xa8\xe2\x82\xac");
    assert_true(buf_add_printable(&b, hostile));
    assert_string_equal(b.p, "a\\u001b[m\\n\\r\\t\\u007f\\u0085\xef\xbf\xbd\\u2028\xe2\x82\xac");
    for (size_t i = 0; i < 100; i++)
        buf_add_printable(&b, STR("\x01"));
    assert_true(b.full && b.len <= 100);
    buf_deinit(&b);
}

static void test_arena_texts_lie_close_and_blocks_stay_aligned(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 10000);
    for (size_t i = 0; i < 100; i++) {
        char *text = arena_alloc_text(&a, 3);
        assert_non_null(text);
        memset(text, 'x', 3);
        if (i % 10 == 0) {
            size_t *p = arena_alloc(&a, sizeof *p);
            assert_int_equal((uintptr_t)p % 16, 0);
            assert_int_equal(*p, 0);
        }
    }
    assert_in_range(a.bytes_used, 300, 300 + 10 * (sizeof(size_t) + 15));
    str s = arena_copy(&a, STR("abc")), t = arena_printf(&a, "%d", 42);
    assert_true(str_eq_z(s, "abc") && s.p[3] == 0 && str_eq_z(t, "42") && t.p[2] == 0);
    assert_non_null(arena_copy(&a, STR("")).p);
    arena_deinit(&a);
}

static void test_buf_keeps_its_maximum_and_says_so(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 8);
    assert_true(buf_add(&b, STR("12345678")));
    assert_false(buf_add_byte(&b, '9'));
    assert_true(b.full && b.len == 8);
    buf_clear(&b);
    assert_true(buf_printf(&b, "%d", 42) && !strcmp(b.p, "42"));
    buf_deinit(&b);
}

static void test_arena_refuses_past_its_limit_and_on_overflow(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1000);
    assert_non_null(arena_alloc(&a, 900));
    assert_null(arena_alloc(&a, 200));
    assert_true(a.is_full);
    arena_reset(&a);
    assert_null(arena_alloc_array(&a, SIZE_MAX / 2, 4));
    arena_deinit(&a);
}

static void test_f16_round_trips_every_value(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = base_f16_to_f32((uint16_t)h);
        if (f != f)
            continue;
        assert_int_equal(base_f32_to_f16(f), h);
    }
    assert_int_equal(base_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(base_f32_to_f16(65519.0f), 0x7bff);
}

static void test_long_errors_are_cut_at_a_character(void **state)
{
    (void)state;
    struct err e = {0};
    char text[400];
    memset(text, 'a', sizeof text);
    memcpy(text + 234, "\xe2\x82\xac\xe2\x82\xac", 6);
    text[399] = 0;
    assert_false(err_set(&e, ERR_FORMAT, "%s", text));
    assert_int_equal(str_utf8_valid(str_of(e.text)), strlen(e.text));
    assert_true(str_ends(str_of(e.text), STR("...")));
}

static void test_an_error_that_quotes_any_bytes_is_utf8(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"\xff", "a '?'"},
        {"\xe2\x82", "a '?\?'"},
        {"\x80 \xc3\xa9\xed\xa0\x80", "a '? \xc3\xa9?\?\?'"},
    };
    struct err e = {0};
    for (size_t i = 0; i < countof(texts); i++) {
        assert_false(err_set(&e, ERR_FORMAT, "a '%s'", texts[i][0]));
        assert_string_equal(e.text, texts[i][1]);
        assert_false(err_wrap(&e, "%s", texts[i][0]));
        assert_int_equal(str_utf8_valid(str_of(e.text)), strlen(e.text));
    }
    char many[400];
    memset(many, 0x80, sizeof many - 1);
    many[399] = 0;
    assert_false(err_set_errno(&e, 2, "%s", many));
    assert_int_equal(str_utf8_valid(str_of(e.text)), strlen(e.text));
    assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_refuse_overflow_and_rubbish),
        cmocka_unit_test(test_sizes_and_durations_have_units),
        cmocka_unit_test(test_utf8_decodes_only_what_is_valid),
        cmocka_unit_test(test_glob_matches_whole_strings),
        cmocka_unit_test(test_distance_counts_the_fewest_edits_up_to_a_limit),
        cmocka_unit_test(test_numbers_may_have_more_digits_than_a_double),
        cmocka_unit_test(test_printable_text_cannot_steer_a_terminal),
        cmocka_unit_test(test_arena_texts_lie_close_and_blocks_stay_aligned),
        cmocka_unit_test(test_buf_keeps_its_maximum_and_says_so),
        cmocka_unit_test(test_arena_refuses_past_its_limit_and_on_overflow),
        cmocka_unit_test(test_f16_round_trips_every_value),
        cmocka_unit_test(test_long_errors_are_cut_at_a_character),
        cmocka_unit_test(test_an_error_that_quotes_any_bytes_is_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
