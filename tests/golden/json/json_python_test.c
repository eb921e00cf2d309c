/* base/json against Python's json module: cases.txt, or the file named as argument. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"

#define FILE_MAX ((size_t)1 << 30)

static const char *cases_path = "tests/golden/json/cases.txt";
static struct arena file_arena;
static str cases;

static int load_cases(void **state)
{
    (void)state;
    struct err e = {0};
    arena_init(&file_arena, FILE_MAX);
    if (file_read(&cases, cases_path, FILE_MAX, &file_arena, &e))
        return 0;
    fprintf(stderr, "%s\n", e.text);
    return -1;
}

static int drop_cases(void **state)
{
    (void)state;
    arena_deinit(&file_arena);
    return 0;
}

static void unescape(struct buf *out, str s)
{
    buf_clear(out);
    while (s.len) {
        uint8_t byte = (uint8_t)s.p[0];
        size_t used = 1;
        if (byte == '\\') {
            assert_true(digest_unhex(&byte, 1, str_sub(s, 2, 2)));
            used = 4;
        }
        buf_add_byte(out, (char)byte);
        s = str_from(s, used);
    }
}

static void dump(struct json_writer *w, struct json v, struct arena *a)
{
    enum json_kind kind = json_kind(v);
    if (kind == JSON_KIND_STRING) {
        json_put_text(w, json_text(v, a));
    } else if (kind < JSON_KIND_ARRAY) {
        json_put_raw(w, json_raw(v));
    } else {
        struct json_walk walk = json_walk(v);
        if (kind == JSON_KIND_OBJECT)
            json_open_object(w);
        else
            json_open_array(w);
        while (json_next(&walk)) {
            if (walk.is_object)
                json_key(w, json_text(walk.key, a));
            dump(w, walk.value, a);
        }
        if (kind == JSON_KIND_OBJECT)
            json_close_object(w);
        else
            json_close_array(w);
    }
}

static void check_document(str line, bool is_good, struct buf *input, struct buf *wanted)
{
    static const struct json_options options = {.depth_max = 128};
    str field = {0};
    struct json v;
    struct arena a;
    struct buf got;
    struct err e = {0};
    assert_true(str_split(&line, '\t', &field) || !is_good);
    unescape(input, field);
    unescape(wanted, line);
    arena_init(&a, 4 * input->len + ((size_t)1 << 20));
    buf_init(&got, FILE_MAX);
    bool accepted = json_parse(&v, buf_view(input), &options, &a, &e);
    if (accepted != is_good)
        fail_msg("Python %s %.*s, we: %s", is_good ? "accepts" : "refuses", STR_ARG(field),
                 accepted ? "accept" : e.text);
    if (accepted) {
        struct json_writer w = json_writer(&got);
        dump(&w, v, &a);
        if (!str_eq(buf_view(&got), buf_view(wanted)))
            fail_msg("%.*s: Python reads %s, we %s", STR_ARG(field), wanted->p, got.p);
        size_t mark = str_starts(buf_view(input), STR("\xef\xbb\xbf")) ? 3 : 0;
        assert_true(str_eq(json_raw(v), str_trim(str_from(buf_view(input), mark))));
    }
    buf_deinit(&got);
    arena_deinit(&a);
}

static void test_documents_are_judged_and_read_as_python_does(void **state)
{
    (void)state;
    struct buf input, wanted;
    buf_init(&input, FILE_MAX);
    buf_init(&wanted, FILE_MAX);
    uint32_t good = 0, bad = 0;
    for (str rest = cases, line; str_split(&rest, '\n', &line);) {
        str kind;
        if (!str_split(&line, '\t', &kind))
            continue;
        bool is_good = str_eq_z(kind, "ok");
        if (!is_good && !str_eq_z(kind, "bad"))
            continue;
        check_document(line, is_good, &input, &wanted);
        good += is_good;
        bad += !is_good;
    }
    assert_true(good > 500 && bad > 500);
    buf_deinit(&input);
    buf_deinit(&wanted);
}

static void test_floats_print_with_the_shortest_digits(void **state)
{
    (void)state;
    uint32_t count = 0;
    for (str rest = cases, line; str_split(&rest, '\n', &line);) {
        str kind, bits_text;
        char text[JSON_NUMBER_MAX], zero_ended[20];
        if (!str_starts(line, STR("f")))
            continue;
        assert_true(str_split(&line, '\t', &kind) && str_split(&line, '\t', &bits_text));
        snprintf(zero_ended, sizeof zero_ended, "%.*s", STR_ARG(bits_text));
        uint64_t bits = strtoull(zero_ended, NULL, 16);
        size_t len;
        if (str_eq_z(kind, "f64")) {
            double v;
            memcpy(&v, &bits, sizeof v);
            len = json_format_double(text, v);
        } else if (str_eq_z(kind, "f32")) {
            len = json_format_float(text, base_float_of((uint32_t)bits));
        } else {
            continue;
        }
        if (!str_eq(str_view(text, len), line))
            fail_msg("%.*s %.*s: wanted %.*s, got %.*s", STR_ARG(kind), STR_ARG(bits_text),
                     STR_ARG(line), (int)len, text);
        count++;
    }
    assert_true(count > 1000);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cases_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents_are_judged_and_read_as_python_does),
        cmocka_unit_test(test_floats_print_with_the_shortest_digits),
    };
    return cmocka_run_group_tests(tests, load_cases, drop_cases);
}
