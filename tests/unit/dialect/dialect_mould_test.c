/* Lines that differ in one text are known; everything else is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "dialect/dialect_mould.h"

#define HEAD "{\"a\":1,\"text\":\""
#define TAIL "\",\"b\":[\"x\"]}"

static void set(struct dialect_mould *m, const char *line, size_t at, size_t len, bool want)
{
    str s = str_of(line);
    assert_int_equal(dialect_mould_set(m, s, str_sub(s, at, len)), want);
}

static void test_a_line_with_another_text_fits_and_comes_out_with_it(void **state)
{
    static const char *const texts[] = {"x", "two words", "B\xc3\xa4r", "\xf0\x9f\x98\x80",
                                        "{[]}:,", "\x7f"};
    struct dialect_mould m;
    struct buf out;
    char line[128];
    str text;
    (void)state;
    dialect_mould_init(&m);
    buf_init(&out, 1 << 10);
    set(&m, HEAD "first" TAIL, strlen(HEAD), strlen("first"), true);
    for (size_t i = 0; i < countof(texts); i++) {
        snprintf(line, sizeof line, HEAD "%s" TAIL, texts[i]);
        assert_true(dialect_mould_fits(&m, str_of(line), &text));
        assert_true(str_eq_z(text, texts[i]));
        buf_clear(&out);
        dialect_mould_pour(&m, text, &out);
        assert_true(str_eq_z(buf_view(&out), line));
    }
    buf_deinit(&out);
    dialect_mould_deinit(&m);
}

/* The end of the string, an escape, what JSON forbids there, half a letter; other bytes around. */
static void test_what_may_be_other_json_does_not_fit(void **state)
{
    static const char *const lines[] = {
        HEAD TAIL, HEAD "a\"" TAIL, HEAD "a\",\"text\":\"b" TAIL, HEAD "a\\n" TAIL, HEAD "\\" TAIL,
        HEAD "a\nb" TAIL, HEAD "a\x1f" TAIL, HEAD "\xc3" TAIL, HEAD "\xff" TAIL,
        HEAD "\xed\xa0\x80" TAIL, "", "{", HEAD, HEAD "a" TAIL " ", " " HEAD "a" TAIL,
        "{\"a\":2,\"text\":\"a" TAIL, HEAD "a\",\"b\":[\"y\"]}"};
    struct dialect_mould m;
    str text;
    (void)state;
    dialect_mould_init(&m);
    set(&m, HEAD "first" TAIL, strlen(HEAD), strlen("first"), true);
    for (size_t i = 0; i < countof(lines); i++)
        if (dialect_mould_fits(&m, str_of(lines[i]), &text))
            fail_msg("%s fits", lines[i]);
    dialect_mould_clear(&m);
    assert_false(dialect_mould_fits(&m, STR(HEAD "first" TAIL), &text));
    dialect_mould_deinit(&m);
}

static void test_a_mould_is_made_of_a_strings_inside_only_and_has_a_limit(void **state)
{
    static char line[DIALECT_MOULD_MAX + 64] = "{\"a\":\"text\",\"b\":\"";
    struct dialect_mould m;
    str text;
    (void)state;
    dialect_mould_init(&m);
    set(&m, HEAD "first" TAIL, 0, 3, false);
    set(&m, HEAD "first" TAIL, strlen(HEAD) + 1, 3, false);
    set(&m, HEAD "first" TAIL, strlen(HEAD), 3, false);
    assert_false(dialect_mould_set(&m, STR(HEAD "first" TAIL), STR("first")));
    set(&m, line, 6, 4, true);
    assert_true(dialect_mould_fits(&m, str_of(line), &text));
    memset(line + strlen(line), 'x', DIALECT_MOULD_MAX);
    set(&m, line, 6, 4, false);
    assert_false(dialect_mould_fits(&m, str_of(line), &text));
    dialect_mould_deinit(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_with_another_text_fits_and_comes_out_with_it),
        cmocka_unit_test(test_what_may_be_other_json_does_not_fit),
        cmocka_unit_test(test_a_mould_is_made_of_a_strings_inside_only_and_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
