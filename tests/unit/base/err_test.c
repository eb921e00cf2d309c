#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"

static void test_a_sentence_may_take_up_its_own_text(void **state)
{
    struct err e;
    (void)state;
    assert_false(err_set(&e, ERR_CONNECT, "host: no such host"));
    assert_false(err_set(&e, e.code, "%s; others may be there", e.text));
    assert_int_equal(e.code, ERR_CONNECT);
    assert_string_equal(e.text, "host: no such host; others may be there");
    assert_false(err_wrap(&e, "pull %s", "o/r"));
    assert_string_equal(e.text, "pull o/r: host: no such host; others may be there");
}

static void test_a_long_sentence_is_cut_at_a_whole_character(void **state)
{
    struct err e;
    char long_text[2 * ERR_TEXT_MAX + 1];
    (void)state;
    for (size_t i = 0; i < sizeof long_text - 1; i += 2)
        memcpy(long_text + i, "\u00e4", 2);
    long_text[sizeof long_text - 1] = 0;
    for (int skip = 0; skip < 2; skip++) {
        err_set(&e, ERR_FORMAT, "%s%s", skip ? "x" : "", long_text);
        size_t len = strlen(e.text);
        assert_true(len < ERR_TEXT_MAX && len > ERR_TEXT_MAX - 8);
        assert_string_equal(e.text + len - 3, "...");
        assert_int_equal((len - 3 - (size_t)skip) % 2, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sentence_may_take_up_its_own_text),
        cmocka_unit_test(test_a_long_sentence_is_cut_at_a_whole_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
