/* gram_dfa: what patterns accept, what they refuse and why, lengths, hostile ones. */
#include "grammar/gram_dfa.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct gram_dfa *make(const char *pattern, bool is_search, struct gram_dfa_span span,
                             struct err *e)
{
    struct gram_dfa *d = gram_dfa_new();
    assert_non_null(d);
    if (gram_dfa_add(d, str_of(pattern), is_search, e) && gram_dfa_finish(d, span, e))
        return d;
    gram_dfa_free(d);
    return NULL;
}

/* Through the whole table, or through one that is made as the text comes. */
static bool accepts(struct gram_dfa_table *t, str text)
{
    uint32_t s = gram_dfa_start(t);
    for (size_t i = 0; i < text.len; i++) {
        s = gram_dfa_next(t, s, (uint8_t)text.p[i]);
        assert_int_not_equal(s, GRAM_DFA_FULL);
        if (s == GRAM_DFA_DEAD)
            return false;
    }
    return gram_dfa_accepts(t, s);
}

static const struct gram_dfa_span any = {0, GRAM_DFA_FAR};

static const struct {
    const char *pattern, *text;
    bool is_search, accepts;
} cases[] = {
    {"abc", "abc", false, true},
    {"abc", "abcd", false, false},
    {"abc", "xabcx", true, true},
    {"a|b|", "", false, true},
    {"(a|b)*c", "abbac", false, true},
    {"a+?b", "aaab", false, true},
    {"[^a]", "b", false, true},
    {"[^a]", "a", false, false},
    {"[^a]", "\n", false, true},
    {"[^a]", "\xc3\xa9", false, true},
    {"[^a]", "\xc3", false, false},
    {".", "\n", false, false},
    {".", "\xe2\x82\xac", false, true},
    {".", "\xf0\x9f\x98\x80", false, true},
    {"..", "\xe2\x82\xac", false, false},
    {"\\d{3,5}", "12", false, false},
    {"\\d{3,5}", "1234", false, true},
    {"\\d{3,5}", "123456", false, false},
    {"\\D\\W\\S", "a-b", false, true},
    {"^\\d+$", "12", true, true},
    {"^\\d+$", "a12", true, false},
    {"^\\d+$", "12\n", true, false},
    {"^a|b$", "ax", true, true},
    {"^a|b$", "xb", true, true},
    {"^a|b$", "xa", true, false},
    {"(^a|c)d", "xcd", true, true},
    {"(^a|c)d", "xad", true, false},
    {"$", "", true, true},
    {"^$", "", true, true},
    {"^$", "a", true, false},
    {"", "abc", true, true},
    {"[a-c-]", "-", false, true},
    {"[\\]\\-x]", "]", false, true},
    {"\\u00e9", "\xc3\xa9", false, true},
    {"\\ud83d\\ude00", "\xf0\x9f\x98\x80", false, true},
    {"\\x41\\t", "A\t", false, true},
    {"[\\u0100-\\u{10ffff}]", "\xc4\x80", false, true},
    {"[\\u0100-\\u{10ffff}]", "\xc3\xbf", false, false},
    {"a{,2}x{", "", false, false},
    {"x{", "x{", false, true},
    {"(?:ab){2}", "abab", false, true},
    {"(?<n>a)\\w", "a_", false, true},
    {"(a*)*b", "aaab", false, true},
    {"(a?){3}b", "aab", false, true},
    {"\\^\\$\\.", "^$.", false, true},
    {"[.]", "x", false, false},
    {"^(?:[01]\\d|2[0-3]):[0-5]\\d$", "23:59", true, true},
    {"^(?:[01]\\d|2[0-3]):[0-5]\\d$", "24:00", true, false},
};

static void test_patterns_accept_what_they_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(cases); i++) {
        struct err e;
        struct gram_dfa *d = make(cases[i].pattern, cases[i].is_search, any, &e);
        if (!d) {
            assert_false(cases[i].accepts);
            continue;
        }
        struct gram_dfa_table *lazy = gram_dfa_table_new(d, 1 << 20);
        assert_non_null(gram_dfa_whole(d));
        if (accepts(gram_dfa_whole(d), str_of(cases[i].text)) != cases[i].accepts ||
            accepts(lazy, str_of(cases[i].text)) != cases[i].accepts)
            fail_msg("'%s' and '%s': %d expected", cases[i].pattern, cases[i].text,
                     cases[i].accepts);
        gram_dfa_table_free(lazy);
        gram_dfa_free(d);
    }
}

static const struct { const char *pattern, *says; } refused[] = {
    {"a(", "offset 1: ')' is missing"}, {"a)", "offset 1: ')' without '('"},
    {"(?=a)", "offset 0: look-around is not supported"},
    {"(?<!a)b", "offset 0: look-around is not supported"},
    {"(a)\\1", "offset 3: back-references are not supported"},
    {"\\bx", "offset 0: word boundaries are not supported"},
    {"\\p{L}", "offset 0: Unicode properties are not supported"},
    {"(?i)a", "offset 0: flags and special groups are not supported"},
    {"[b-a]", "offset 1: a range is in the wrong order"}, {"[a", "offset 0: ']' is missing"},
    {"[]", "offset 0: an empty class"}, {"*a", "offset 0: nothing to repeat"},
    {"a**", "offset 1: a repetition of a repetition"}, {"a{3,1}", "offset 1: a repetition has its"
     " numbers in the wrong order"}, {"a{10001}", "offset 1: more than 10000 repetitions"},
    {"\\", "offset 0: a backslash ends the pattern"}, {"\\q", "offset 0: no such escape"},
    {"\\ud800", "offset 0: no such code point"}, {"^*", "offset 0: nothing to repeat"},
    {"a^b", "nothing can match"}, {"[a-\\d]", "offset 1: a range needs two characters"},
};

static void test_what_is_not_supported_is_named_with_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(refused); i++) {
        struct err e;
        struct gram_dfa *d = make(refused[i].pattern, true, any, &e);
        if (d || strcmp(e.text, refused[i].says) != 0)
            fail_msg("'%s': '%s' expected, got '%s'", refused[i].pattern, refused[i].says,
                     d ? "a program" : e.text);
    }
}

static void test_lengths_decide_what_can_still_be_kept(void **state)
{
    (void)state;
    struct err e;
    /* Even lengths only: exactly 3 cannot be. */
    assert_null(make("^(ab)*$", true, (struct gram_dfa_span){3, 3}, &e));
    assert_string_equal(e.text, "nothing of this length can match");
    assert_null(make("^a{5}$", true, (struct gram_dfa_span){0, 4}, &e));
    struct gram_dfa *d = make("^(ab)*(c|\xc3\xa9)?$", true, (struct gram_dfa_span){2, 3}, &e);
    struct gram_dfa_table *t = gram_dfa_whole(d);
    uint32_t s = gram_dfa_start(t);
    assert_true(gram_dfa_fits(t, s, 0));
    assert_int_not_equal(gram_dfa_next(t, s, 'c'), GRAM_DFA_DEAD);
    assert_false(gram_dfa_fits(t, gram_dfa_next(t, s, 'c'), 1)); /* "c" alone is too short */
    s = gram_dfa_next(t, gram_dfa_next(t, s, 'a'), 'b');
    assert_true(gram_dfa_fits(t, s, 2));
    assert_false(gram_dfa_fits(t, gram_dfa_next(t, s, 'a'), 3));
    assert_true(gram_dfa_fits(t, gram_dfa_next(t, s, 0xc3), 3));
    gram_dfa_free(d);
}

static void test_several_patterns_must_all_accept(void **state)
{
    (void)state;
    struct err e;
    struct gram_dfa *d = gram_dfa_new();
    assert_true(gram_dfa_add(d, STR("[a-z]+"), false, &e));
    assert_true(gram_dfa_add(d, STR("b"), true, &e));
    assert_true(gram_dfa_add(d, STR("^.{3}$"), true, &e));
    assert_true(gram_dfa_finish(d, any, &e));
    struct gram_dfa_table *t = gram_dfa_whole(d);
    assert_true(accepts(t, STR("abc")));
    assert_false(accepts(t, STR("acd")));
    /* After "ac" only "b" leads anywhere. */
    uint32_t s = gram_dfa_next(t, gram_dfa_next(t, gram_dfa_start(t), 'a'), 'c');
    assert_int_equal(gram_dfa_next(t, s, 'd'), GRAM_DFA_DEAD);
    assert_int_not_equal(gram_dfa_next(t, s, 'b'), GRAM_DFA_DEAD);
    gram_dfa_free(d);
}

/* Too many states for a whole table: what can match is known from the program. */
static void test_an_anchored_pattern_may_be_long(void **state)
{
    (void)state;
    static char text[10002];
    static const struct {
        const char *pattern;
        uint32_t least;
    } rows[] = {{"^a{10000}$", 10000}, {"^[^b]{2000}$", 2000},
                {"^(?:^[\\s\\S]{1000,2000}|^b)$", 1000}, {"^\\w{4999}\\d?$", 4999}};
    struct err e;
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < countof(rows); i++) {
        struct gram_dfa *d = make(rows[i].pattern, true, any, &e);
        if (!d)
            fail_msg("%s: %s", rows[i].pattern, e.text);
        assert_null(gram_dfa_whole(d));
        struct gram_dfa_table *t = gram_dfa_table_new(d, 64 << 20);
        assert_true(accepts(t, str_view(text, rows[i].least)));
        assert_false(accepts(t, str_view(text, rows[i].least - 1)));
        gram_dfa_table_free(t);
        gram_dfa_free(d);
        const struct gram_dfa_span less = {0, rows[i].least - 1};
        if (i != 2) { /* "b" is short */
            assert_null(make(rows[i].pattern, true, less, &e));
            assert_string_equal(e.text, "nothing of this length can match");
        }
    }
    assert_null(make("a^b{9000}$", true, any, &e));
    assert_string_equal(e.text, "nothing can match");
}

static void test_hostile_patterns_are_answered_or_refused(void **state)
{
    (void)state;
    static char deep[120002];
    struct err e;
    memset(deep, '(', 60000);
    assert_null(make(deep, true, any, &e));
    assert_string_equal(e.text, "offset 200: groups nest deeper than 200");
    assert_null(make("((((a{1000}){1000}){1000}){1000})", false, any, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_null(make("((((){1000}){1000}){1000})", false, any, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    /* 2^21 states if they were all made; a text makes one a byte. */
    struct gram_dfa *d = make("(a|b)*a(a|b){20}", false, any, &e);
    assert_non_null(d);
    assert_null(gram_dfa_whole(d));
    struct gram_dfa_table *t = gram_dfa_table_new(d, 8 << 20);
    static char text[5001];
    for (size_t i = 0; i < 5000; i++)
        text[i] = i % 3 ? 'a' : 'b';
    assert_true(accepts(t, str_of(text)));
    uint32_t s = gram_dfa_start(t), full = 0;
    for (uint32_t i = 0; i < 3000000 && s < GRAM_DFA_FULL; i++)
        s = gram_dfa_next(t, s, (i * 2654435761u) >> 29 & 1 ? 'a' : 'b');
    full = s == GRAM_DFA_FULL;
    assert_true(gram_dfa_table_size(t) <= (9 << 20) + 65536 || full);
    gram_dfa_table_free(t);
    gram_dfa_free(d);
    d = make("(a*)*(a*)*b", true, any, &e);
    assert_non_null(d);
    gram_dfa_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns_accept_what_they_say),
        cmocka_unit_test(test_what_is_not_supported_is_named_with_its_place),
        cmocka_unit_test(test_lengths_decide_what_can_still_be_kept),
        cmocka_unit_test(test_several_patterns_must_all_accept),
        cmocka_unit_test(test_an_anchored_pattern_may_be_long),
        cmocka_unit_test(test_hostile_patterns_are_answered_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
