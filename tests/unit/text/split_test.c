#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/chrono.h"
#include "text/split.h"

/* Pieces that rules of splitting disagree about. */
static const char *const parts[] = {
    "a", "b", "Z", "\u00c9", "\u00e9", "\u00df", "\u017f", "'", "'s", "'S", "'ll", "'LL", "'\u017f",
    " ", "  ", "\t", "\n", "\r\n", "\r", "1", "23", "4567", "\u00bd", "\u2167", "\u0663", "!",
    "...", "/", "//", "_", "-", "(", ")", "|", "$", "+", "<", "`", "\u2026", "\u3002", "\uff0c",
    "\u4e2d", "\u6587", "\u3005", "\u3007", "\u2e80", "\u3042", "\u30ab", "\u30fc", "\ud55c",
    "\u0e44\u0e17", "\u0e33", "\u0301", "\u0303", "\u0915\u094d\u0937", "\u093f", "\u01c5",
    "\u02b0", "\u00aa", "\U0001f642", "\u200d", "\u200b", "\ufeff", "\u00a0", "\xc2\x85", "\u180e",
    "\u2028", "\u3000", "\u1680", "\x01", "\x7f", "\u0130", "\u212a", "\ufb00", "\u24d0", "\u066a",
    "\u060c", "\u0964", "\u2018", "\u2019", "\u00bc", "\U0001d7d8", "\U00010400", "\U00020000",
};

static size_t make_text(struct chrono_rng *r, char *out, size_t size)
{
    size_t len = 0, count = 1 + chrono_rng_below(r, 14);
    for (size_t i = 0; i < count; i++) {
        const char *p = parts[chrono_rng_below(r, countof(parts))];
        size_t n = strlen(p);
        assert_true(len + n <= size);
        memcpy(out + len, p, n);
        len += n;
    }
    return len;
}

static struct split *open_row(const struct split_row *row, bool use_patterns)
{
    struct split *s = NULL;
    struct err e = {0};
    if (!split_new(&s, row, use_patterns, &e))
        fail_msg("%s", e.text);
    return s;
}

static void words_of(struct split *s, str text, struct buf *ends)
{
    struct err e = {0};
    buf_clear(ends);
    if (!split_words(s, text, ends, &e))
        fail_msg("%s", e.text);
}

static void test_a_scan_gives_the_words_of_its_patterns(void **state)
{
    (void)state;
    struct buf a, b;
    buf_init(&a, 1 << 16);
    buf_init(&b, 1 << 16);
    for (size_t i = 0; i < split_table_count; i++) {
        const struct split_row *row = &split_table[i];
        if (!row->scan)
            continue;
        struct split *scan = open_row(row, false), *patterns = open_row(row, true);
        struct chrono_rng r;
        chrono_rng_init(&r, 20 + i);
        for (int n = 0; n < 4000; n++) {
            char text[256];
            str s = {text, make_text(&r, text, sizeof text)};
            words_of(scan, s, &a);
            words_of(patterns, s, &b);
            if (!str_eq(buf_view(&a), buf_view(&b)))
                fail_msg("row '%s': text %d of seed %zu: '%.*s'", row->names, n, 20 + i,
                         STR_ARG(s));
        }
        split_free(scan);
        split_free(patterns);
    }
    buf_deinit(&a);
    buf_deinit(&b);
}

static void test_words_cover_the_text_and_none_is_empty(void **state)
{
    (void)state;
    struct buf ends;
    buf_init(&ends, 1 << 16);
    for (size_t i = 0; i < split_table_count; i++) {
        struct split *s = open_row(&split_table[i], false);
        struct chrono_rng r;
        chrono_rng_init(&r, 300 + i);
        for (int n = 0; n < 1000; n++) {
            char text[256];
            size_t len = make_text(&r, text, sizeof text);
            words_of(s, str_view(text, len), &ends);
            const uint32_t *end = (const uint32_t *)(const void *)ends.p;
            size_t count = ends.len / sizeof *end, last = 0;
            for (size_t k = 0; k < count; k++) {
                assert_true(end[k] > last);
                last = end[k];
            }
            assert_int_equal(last, len);
        }
        split_free(s);
    }
    buf_deinit(&ends);
}

/* "a|b" for the words of text under pre. */
static void expect_words(const char *pre, const char *text, const char *want)
{
    struct buf ends, got;
    buf_init(&ends, 1 << 12);
    buf_init(&got, 1 << 12);
    const struct split_row *row = split_row_find(str_of(pre));
    assert_non_null(row);
    struct split *s = open_row(row, false);
    words_of(s, str_of(text), &ends);
    const uint32_t *end = (const uint32_t *)(const void *)ends.p;
    for (size_t k = 0, from = 0; k < ends.len / sizeof *end; from = end[k++]) {
        assert_true(k == 0 || buf_add_byte(&got, '|'));
        assert_true(buf_add(&got, str_sub(str_of(text), from, end[k] - from)));
    }
    if (!str_eq_z(buf_view(&got), want))
        fail_msg("%s: '%s' gives %.*s, not %s", pre, text, STR_ARG(buf_view(&got)), want);
    split_free(s);
    buf_deinit(&ends);
    buf_deinit(&got);
}

/* Words of Hugging Face's pre_tokenizers with the patterns of each family's tokenizer.json. */
static void test_families_split_as_their_own_tokenizers_do(void **state)
{
    (void)state;
    static const struct {
        const char *pre, *text, *want;
    } cases[] = {
        {"llama-bpe", "Hello  world1234", "Hello| | world|123|4"},
        {"llama-bpe", "it'S \n\n x", "it|'S| \n\n| x"},
        {"qwen2", "a12 b\u0301\t\tc", "a|1|2| b|\u0301|\t|\tc"},
        {"qwen2", "x'\u017fy", "x|'\u017f|y"},
        {"qwen35", "a12 b\u0301\t\tc", "a|1|2| b\u0301|\t|\tc"},
        {"gpt-2", "it's IT'S 12  3\n\nx", "it|'s| IT|'|S| 12| | 3|\n|\n|x"},
        {"smollm", "a 12  3", "a| |1|2|  |3"},
        {"gpt-4o", "getHTTPData's/\nDON'T", "get|HTTPData's|/\n|DON'T"},
        {"tekken", "getHTTPData's 123", "get|HTTPData|'s| |1|2|3"},
        {"deepseek-v3", "ab 1234\u4e2d\u6587c!d", "ab| |123|4|\u4e2d\u6587|c|!d"},
        {"kimi-k2", "\u4e2d\u6587abc\u3042", "\u4e2d\u6587|abc\u3042"},
        {"tiny_aya", "1234567 1234x", "1|234|567| |123|4|x"},
        {"superbpe", "a b 1234567", "a b |1|234|567"},
        {"default", "a=1234", "a|=|123|4"},
        {"gemma4", "a b\n\nc", "a b|\n\n|c"},
        {"deepseek-llm", "Ab cd  12\n", "Ab| cd|  |12|\n"},
    };
    for (size_t i = 0; i < countof(cases); i++)
        expect_words(cases[i].pre, cases[i].text, cases[i].want);
}

static void test_a_long_run_of_anything_is_split_in_linear_time(void **state)
{
    (void)state;
    static const char *const units[] = {"A", "a", " ", "\n", "\u0301", "1", "'", "\u4e2d", "\n ",
                                        "aB", "\u3042", "!", "\u00a0\t", "a1"};
    const size_t size = 200000;
    struct buf text, ends;
    buf_init(&text, size);
    buf_init(&ends, 4 * size);
    for (size_t i = 0; i < split_table_count; i++) {
        struct split *s = open_row(&split_table[i], false);
        for (size_t u = 0; u < countof(units); u++) {
            buf_clear(&text);
            while (text.len + strlen(units[u]) <= size)
                assert_true(buf_add_z(&text, units[u]));
            words_of(s, buf_view(&text), &ends); /* quadratic: past the time limit */
        }
        split_free(s);
    }
    buf_deinit(&text);
    buf_deinit(&ends);
}

static void test_each_name_is_in_one_row_and_others_in_none(void **state)
{
    (void)state;
    for (size_t i = 0; i < split_table_count; i++) {
        str rest = str_of(split_table[i].names), name;
        while (str_split(&rest, ' ', &name))
            assert_ptr_equal(split_row_find(name), &split_table[i]);
    }
    assert_null(split_row_find(STR("qwen")));
    assert_null(split_row_find(STR("")));
    assert_null(split_row_find(STR("llama3 llama-v3")));
}

static void test_a_list_of_words_that_is_full_is_an_error(void **state)
{
    (void)state;
    struct buf ends;
    struct err e = {0};
    for (int use_patterns = 0; use_patterns < 2; use_patterns++) {
        struct split *s = open_row(split_row_find(STR("qwen2")), use_patterns);
        buf_init(&ends, 8);
        assert_false(split_words(s, STR("a b c d"), &ends, &e));
        assert_int_equal(e.code, ERR_LIMIT);
        buf_deinit(&ends);
        split_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_scan_gives_the_words_of_its_patterns),
        cmocka_unit_test(test_words_cover_the_text_and_none_is_empty),
        cmocka_unit_test(test_families_split_as_their_own_tokenizers_do),
        cmocka_unit_test(test_a_long_run_of_anything_is_split_in_linear_time),
        cmocka_unit_test(test_each_name_is_in_one_row_and_others_in_none),
        cmocka_unit_test(test_a_list_of_words_that_is_full_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
