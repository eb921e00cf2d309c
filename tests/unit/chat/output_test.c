#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/chrono.h"
#include "chat/output.h"

#define STOPS_MAX 4
struct row {
    const char *in;
    const char *stops[STOPS_MAX];
    const char *out;
    int stop; /* index, -1: none */
    bool keep;
};

/* A18: cut exactly before the stop string, at every split. A19, A21: nothing lost or doubled. */
static const struct row rows[] = {
    {"The quick brown fox jumps", {"own fox"}, "The quick br", 0, false},
    {"The quick brown fox jumps", {"own fox"}, "The quick brown fox", 0, true},
    {"The quick brown fo", {"own fox"}, "The quick brown fo", -1, false},
    {"aaab", {"aab"}, "a", 0, false},
    {"abababc", {"ababc"}, "ab", 0, false},
    {"one\nAlice: two", {"\n", "Alice:"}, "one", 0, false},
    {"one\n\nAlice: two", {"\n\n\n", "\nAlice:"}, "one\n", 1, false},
    /* The first to be complete wins; of several at once the longest. */
    {"xabcd", {"abc", "b"}, "xa", 1, false},
    {"xabc", {"c", "abc", "bc"}, "x", 1, false},
    {"xabc", {"abcd", "bx"}, "xabc", -1, false},
    {"", {"a"}, "", -1, false},
    {"a", {"a"}, "", 0, false},
    {"\xf0\x9f\x98\x80 \xe6\x97\xa5\xe6\x9c\xac", {"\xe6\x9c\xac"},
     "\xf0\x9f\x98\x80 \xe6\x97\xa5", 0, false},
    {"\xe6\x97\xa5\xe6\x9c\x9f", {"\xe6\x9c\xac"}, "\xe6\x97\xa5\xe6\x9c\x9f", -1, false},
    /* Broken bytes: as Python's errors='replace'. */
    {"a\xff" "b", {NULL}, "a\xef\xbf\xbd" "b", -1, false},
    {"\xf0\x9f\x98", {NULL}, "\xef\xbf\xbd", -1, false},
    {"\xf0\x9f\x98x", {NULL}, "\xef\xbf\xbdx", -1, false},
    {"\xe2\x82\xe2\x82\xac", {NULL}, "\xef\xbf\xbd\xe2\x82\xac", -1, false},
    {"\xed\xa0\x80", {NULL}, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", -1, false},
    {"\xc0\x80", {NULL}, "\xef\xbf\xbd\xef\xbf\xbd", -1, false},
    {"\xf4\x90\x80\x80", {NULL}, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", -1, false},
    {"\x80x", {"\xef\xbf\xbdx"}, "", 0, false},
    {"stop\xf0\x9f", {"stop\xef\xbf\xbd"}, "", 0, false},
};

struct run {
    struct output o;
    struct arena a;
    struct buf shown;
    uint64_t bytes_shown;
};

static bool init(struct output *o, const str *stops, uint32_t count, bool keep, struct arena *a,
                 struct err *e)
{
    const struct output_options opt = {.stops = stops, .stops_count = count, .keep_stop = keep};
    return output_init(o, &opt, a, e);
}

/* Moves what is said to shown; it is all content. */
static void take(struct run *r)
{
    uint32_t count;
    const struct output_event *ev = output_events(&r->o, &count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(ev[i].kind, API_EVENT_CONTENT);
        assert_true(ev[i].text.len > 0);
        assert_true(ev[i].bytes_begin == r->bytes_shown && ev[i].bytes_end <= r->o.bytes_in);
        r->bytes_shown = ev[i].bytes_end;
        buf_add(&r->shown, ev[i].text);
    }
    output_clear(&r->o);
}

static void start(struct run *r, const struct row *row)
{
    str stops[STOPS_MAX];
    uint32_t count = 0;
    struct err e;
    for (; count < STOPS_MAX && row->stops[count]; count++)
        stops[count] = str_of(row->stops[count]);
    *r = (struct run){0};
    arena_init(&r->a, 1 << 20);
    buf_init(&r->shown, 1 << 20);
    assert_true(init(&r->o, stops, count, row->keep, &r->a, &e));
}

static void feed(struct run *r, str piece)
{
    assert_true(output_add(&r->o, piece));
    take(r);
    str shown = buf_view(&r->shown);
    assert_int_equal(str_utf8_valid(shown), shown.len);
}

static void finish(struct run *r, const struct row *row, const char *how)
{
    assert_true(output_end(&r->o, false));
    take(r);
    if (!str_eq(buf_view(&r->shown), str_of(row->out)) ||
        (r->o.has_stop ? (int)r->o.stop : -1) != row->stop)
        fail_msg("%s, %s: got '%.*s', stop %d", row->in, how, STR_ARG(buf_view(&r->shown)),
                 r->o.has_stop ? (int)r->o.stop : -1);
    if (!r->o.has_stop)
        assert_int_equal(r->bytes_shown, strlen(row->in));
    output_deinit(&r->o);
    arena_deinit(&r->a);
    buf_deinit(&r->shown);
}

static void test_A18_A19_A21_text_does_not_depend_on_how_tokens_cut_it(void **state)
{
    (void)state;
    for (size_t n = 0; n < countof(rows); n++) {
        str in = str_of(rows[n].in);
        struct run r;
        for (size_t i = 0; i <= in.len; i++)
            for (size_t k = i; k <= in.len; k++) {
                start(&r, &rows[n]);
                feed(&r, str_sub(in, 0, i));
                feed(&r, str_sub(in, i, k - i));
                feed(&r, str_from(in, k));
                finish(&r, &rows[n], "in three pieces");
            }
        start(&r, &rows[n]);
        for (size_t i = 0; i < in.len; i++)
            feed(&r, str_sub(in, i, 1));
        finish(&r, &rows[n], "byte by byte");
    }
}

static void test_only_a_prefix_of_a_stop_string_or_character_is_held_back(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        size_t shown;
    } steps[] = {{"abc", 3}, {"x\n", 4}, {"\nAl", 5}, {"ice", 5}, {"!", 12}, {"\xe2\x82", 12},
                 {"\xac", 15}, {"\n", 15}};
    const struct row row = {"", {"\nAlice:"}, "", -1, false};
    struct run r;
    start(&r, &row);
    for (size_t i = 0; i < countof(steps); i++) {
        feed(&r, str_of(steps[i].in));
        assert_int_equal(r.shown.len, steps[i].shown);
        assert_int_equal(r.bytes_shown, steps[i].shown);
    }
    assert_true(output_end(&r.o, false));
    take(&r);
    assert_int_equal(r.shown.len, 16);
    output_deinit(&r.o);
    arena_deinit(&r.a);
    buf_deinit(&r.shown);
}

/* Earliest end, then longest: the rule, said plainly. */
static void slow_answer(str in, const str *stops, uint32_t count, size_t *cut, int *which)
{
    *cut = in.len;
    *which = -1;
    for (size_t end = 1; end <= in.len && *which < 0; end++)
        for (uint32_t i = 0; i < count; i++)
            if (str_ends(str_sub(in, 0, end), stops[i]) &&
                (*which < 0 || stops[i].len > stops[*which].len)) {
                *which = (int)i;
                *cut = end - stops[i].len;
            }
}

static void test_random_texts_and_stop_strings_agree_with_a_plain_search(void **state)
{
    (void)state;
    struct chrono_rng rng;
    chrono_rng_init(&rng, 7);
    for (int round = 0; round < 20000; round++) {
        char in[24], texts[STOPS_MAX][6];
        str stops[STOPS_MAX];
        size_t len = chrono_rng_below(&rng, sizeof in), cut;
        uint32_t count = (uint32_t)chrono_rng_below(&rng, STOPS_MAX) + 1;
        int which;
        struct run r = {0};
        struct err e;
        for (size_t i = 0; i < len; i++)
            in[i] = (char)('a' + chrono_rng_below(&rng, 2));
        for (uint32_t i = 0; i < count; i++) {
            stops[i] = (str){texts[i], chrono_rng_below(&rng, 5) + 1};
            for (size_t k = 0; k < stops[i].len; k++)
                texts[i][k] = (char)('a' + chrono_rng_below(&rng, 2));
        }
        slow_answer((str){in, len}, stops, count, &cut, &which);
        arena_init(&r.a, 1 << 20);
        buf_init(&r.shown, 1 << 20);
        assert_true(init(&r.o, stops, count, false, &r.a, &e));
        for (size_t at = 0, n; at < len; at += n) {
            n = base_min(chrono_rng_below(&rng, 4) + 1, len - at);
            feed(&r, (str){in + at, n});
        }
        assert_true(output_end(&r.o, false));
        take(&r);
        assert_true(str_eq(buf_view(&r.shown), (str){in, cut}));
        assert_int_equal(r.o.has_stop, which >= 0);
        if (which >= 0)
            assert_int_equal(r.o.stops[r.o.stop].text.len, stops[which].len);
        output_deinit(&r.o);
        arena_deinit(&r.a);
        buf_deinit(&r.shown);
    }
}

static void test_bad_stop_strings_are_refused_by_index(void **state)
{
    (void)state;
    struct output o;
    struct arena a;
    struct err e;
    static char longest[4097];
    str stops[200] = {STR_INIT("ok"), STR_INIT("")};
    arena_init(&a, 1 << 20);
    assert_false(init(&o, stops, 2, false, &a, &e));
    assert_string_equal(e.text, "stop[1]: 1 to 4096 bytes expected, got 0");
    stops[1] = (str){longest, sizeof longest};
    assert_false(init(&o, stops, 2, false, &a, &e));
    assert_false(init(&o, stops, 200, false, &a, &e));
    assert_string_equal(e.text, "stop: 200 strings, at most 128");
    assert_true(init(&o, NULL, 0, false, &a, &e));
    arena_deinit(&a);
    arena_init(&a, 64);
    assert_false(init(&o, stops, 1, false, &a, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_A18_A19_A21_text_does_not_depend_on_how_tokens_cut_it),
        cmocka_unit_test(test_only_a_prefix_of_a_stop_string_or_character_is_held_back),
        cmocka_unit_test(test_random_texts_and_stop_strings_agree_with_a_plain_search),
        cmocka_unit_test(test_bad_stop_strings_are_refused_by_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
