#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/chrono.h"
#include "text/regex.h"
#include "text/unicode.h"

static void test_broken_bytes_become_one_replacement_for_each_longest_part(void **state)
{
    (void)state;
    /* What Python's bytes.decode("utf-8", "replace") gives. */
    static const struct {
        const char *bytes, *want;
    } cases[] = {
        {"abc", "abc"},
        {"\x80", "\ufffd"},
        {"\xc0\x80", "\ufffd\ufffd"},
        {"\xe2\x82", "\ufffd"},
        {"\xe2\x82" "a", "\ufffda"},
        {"\xf0\x9f\x98" "\xe2\x82\xac", "\ufffd\u20ac"},
        {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
        {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
        {"\xf5\xff", "\ufffd\ufffd"},
        {"\xe0\x80\x80", "\ufffd\ufffd\ufffd"},
        {"\xc3(", "\ufffd("},
        {"\xf0\x9f\xe2\x82\xac\xf0", "\ufffd\u20ac\ufffd"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct buf out;
        buf_init(&out, 100);
        assert_true(unicode_repair(str_of(cases[i].bytes), &out));
        assert_string_equal(out.p, cases[i].want);
        bool is_whole = !strcmp(cases[i].bytes, cases[i].want);
        assert_int_equal(unicode_is_valid(str_of(cases[i].bytes)), is_whole);
        buf_deinit(&out);
    }
}

static void expect_nfc(const char *text, const char *want)
{
    struct buf scratch, out;
    buf_init(&scratch, 1 << 12);
    buf_init(&out, 1 << 12);
    assert_true(unicode_nfc(str_of(text), &scratch, &out));
    assert_string_equal(out.p, want);
    buf_deinit(&scratch);
    buf_deinit(&out);
}

static void test_normal_form_c_composes_and_orders_marks(void **state)
{
    (void)state;
    /* From Python's unicodedata.normalize("NFC", ...). */
    expect_nfc("e\u0301", "\u00e9");
    expect_nfc("a\u0301\u0316", "\u00e1\u0316");
    expect_nfc("a\u0316\u0301", "\u00e1\u0316");
    expect_nfc("q\u0301\u0323\u0327", "q\u0327\u0323\u0301");
    expect_nfc("\u1100\u1161\u11a8", "\uac01");
    expect_nfc("\u2126\u212b", "\u03a9\u00c5");
    expect_nfc("\u0958", "\u0915\u093c"); /* excluded from composition */
    expect_nfc("\ufb01", "\ufb01");       /* only compatible */
    expect_nfc("\U0001d15e", "\U0001d157\U0001d165");
    expect_nfc("\u0301", "\u0301");
}

static void test_long_runs_of_marks_are_ordered_as_short_ones(void **state)
{
    (void)state;
    /* 400 marks of two classes behind a base: all below marks first, each kind in its order. */
    struct buf text, want, scratch, out;
    buf_init(&text, 4096);
    buf_init(&want, 4096);
    buf_init(&scratch, 1 << 16);
    buf_init(&out, 4096);
    assert_true(buf_add_z(&text, "b") && buf_add_z(&want, "b"));
    for (int i = 0; i < 200; i++)
        assert_true(buf_add_z(&text, i & 1 ? "\u0301\u0316" : "\u0300\u0317"));
    for (int i = 0; i < 200; i++)
        assert_true(buf_add_z(&want, i & 1 ? "\u0316" : "\u0317"));
    for (int i = 0; i < 200; i++)
        assert_true(buf_add_z(&want, i & 1 ? "\u0301" : "\u0300"));
    assert_true(unicode_nfc(buf_view(&text), &scratch, &out));
    assert_string_equal(out.p, want.p);
    buf_deinit(&text);
    buf_deinit(&want);
    buf_deinit(&scratch);
    buf_deinit(&out);
}

static void test_plain_text_is_its_own_normal_form(void **state)
{
    (void)state;
    assert_true(unicode_is_plain(STR("abc \u00e9\u00ff\u02ff")));
    assert_false(unicode_is_plain(STR("a\u0300")));
    struct buf scratch, out;
    buf_init(&scratch, 64);
    buf_init(&out, 64);
    for (uint32_t c = 1; c < 0x300; c++) {
        char text[4];
        str s = {text, str_utf8_encode(text, c)};
        buf_clear(&out);
        assert_true(unicode_is_plain(s) && unicode_nfc(s, &scratch, &out));
        assert_true(str_eq(s, buf_view(&out)));
    }
    buf_deinit(&scratch);
    buf_deinit(&out);
}

static void test_each_character_has_one_class(void **state)
{
    (void)state;
    static const struct {
        uint32_t c;
        unsigned class;
    } cases[] = {
        {'a', UNICODE_LOWER},     {'A', UNICODE_UPPER},      {0x1c5, UNICODE_UPPER},
        {0x4e2d, UNICODE_CASELESS}, {0x2b0, UNICODE_CASELESS}, {0x301, UNICODE_MARK},
        {'7', UNICODE_DIGIT},     {0xbd, UNICODE_NUMERAL},   {0x2167, UNICODE_NUMERAL},
        {' ', UNICODE_SPACE},     {0x85, UNICODE_SPACE},     {0x3000, UNICODE_SPACE},
        {0x180e, UNICODE_REST},   {0x200b, UNICODE_REST},    {'!', UNICODE_PUNCT},
        {'+', UNICODE_SYMBOL},    {0x1f642, UNICODE_SYMBOL}, {1, UNICODE_REST},
        {0xe000, UNICODE_REST},   {0x1c, UNICODE_REST},
    };
    for (size_t i = 0; i < countof(cases); i++)
        if (unicode_class(cases[i].c) != cases[i].class)
            fail_msg("U+%04X has class %u", cases[i].c, unicode_class(cases[i].c));
    for (uint32_t c = 0; c < 0x110000; c++) {
        unsigned k = unicode_class(c);
        assert_true(k && !(k & (k - 1)));
    }
    assert_true(unicode_is_han(0x3007) && unicode_is_han(0x4e00) && !unicode_is_han(0x3042));
    assert_true(unicode_is_word('_') && unicode_is_word(0xbd) && !unicode_is_word(0x2153));
}

static void test_a_pattern_that_does_not_compile_says_where(void **state)
{
    (void)state;
    struct regex *r = NULL;
    struct err e = {0};
    assert_false(regex_new(&r, STR("abc[de"), &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_non_null(strstr(e.text, "at byte 6 of 6"));
}

static void test_a_search_without_end_is_stopped(void **state)
{
    (void)state;
    struct regex *r = NULL;
    struct err e = {0};
    size_t start, end;
    char text[2000];
    memset(text, 'a', sizeof text);
    assert_true(regex_new(&r, STR("(?:a+)+\\p{N}"), &e));
    assert_int_equal(regex_find(r, str_view(text, sizeof text), 0, &start, &end, &e), REGEX_FAILED);
    assert_int_equal(e.code, ERR_LIMIT);
    regex_free(r);
}

static void test_a_match_is_found_behind_from_with_its_surroundings(void **state)
{
    (void)state;
    struct regex *r = NULL;
    struct err e = {0};
    size_t start = 0, end = 0;
    assert_true(regex_new(&r, STR("(?<!x)\\p{L}+"), &e));
    assert_int_equal(regex_find(r, STR("1xab \u00e9"), 2, &start, &end, &e), REGEX_FOUND);
    assert_true(start == 3 && end == 4); /* the x before from still counts */
    assert_int_equal(regex_find(r, STR("1xab \u00e9"), 4, &start, &end, &e), REGEX_FOUND);
    assert_true(start == 5 && end == 7);
    assert_int_equal(regex_find(r, STR("1xab \u00e9"), 7, &start, &end, &e), REGEX_NONE);
    regex_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_bytes_become_one_replacement_for_each_longest_part),
        cmocka_unit_test(test_normal_form_c_composes_and_orders_marks),
        cmocka_unit_test(test_long_runs_of_marks_are_ordered_as_short_ones),
        cmocka_unit_test(test_plain_text_is_its_own_normal_form),
        cmocka_unit_test(test_each_character_has_one_class),
        cmocka_unit_test(test_a_pattern_that_does_not_compile_says_where),
        cmocka_unit_test(test_a_search_without_end_is_stopped),
        cmocka_unit_test(test_a_match_is_found_behind_from_with_its_surroundings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
