/* A text that comes again from its start is cut once it has come whole, and only then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "dialect/dialect_echo.h"

#define SAID "One day the fox went out, and saw a hen that sat on a wall by the road."

/* What is told of a text that comes in pieces of so many bytes. */
static void hear(struct buf *out, const char *said, const char *comes, size_t step)
{
    struct dialect_echo e;
    str all = str_of(comes), before;
    dialect_echo_init(&e, str_of(said));
    for (size_t at = 0; at < all.len; at += step) {
        str piece = str_sub(all, at, step);
        before = (str){"", 0};
        if (e.is_on && !dialect_echo_take(&e, &piece, &before))
            continue;
        buf_add(out, before);
        buf_add(out, piece);
    }
    buf_add(out, dialect_echo_release(&e));
}

static void test_what_begins_anew_is_cut_and_what_begins_alike_is_not(void **state)
{
    static const struct {
        const char *said, *comes, *want;
    } rows[] = {
        {SAID, SAID " It spoke.", " It spoke."},
        {SAID, SAID, ""},
        {SAID, SAID SAID, SAID},
        {SAID, " It spoke.", " It spoke."},
        {SAID, "One day the fox came home.", "One day the fox came home."},
        {SAID, "One day", "One day"},
        {SAID, "", ""},
        /* Too short, or a refrain: it may be what comes next. */
        {"One day the fox", "One day the fox ran", "One day the fox ran"},
        {"la la la la la la la la la la la la la la la la la la la la la la la la ",
         "la la la la la la la la la la la la la la la la la la la la la la la la la",
         "la la la la la la la la la la la la la la la la la la la la la la la la la"},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++)
        for (size_t step = 1; step < 90; step++) {
            struct buf got;
            buf_init(&got, 1 << 10);
            hear(&got, rows[i].said, rows[i].comes, step);
            if (!str_eq_z(buf_view(&got), rows[i].want))
                fail_msg("row %zu, %zu bytes at once\n want %s\n got  %.*s", i, step, rows[i].want,
                         STR_ARG(buf_view(&got)));
            buf_deinit(&got);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_begins_anew_is_cut_and_what_begins_alike_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
