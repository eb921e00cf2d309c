#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "wire/sse.h"

static void note(void *ctx, str name, str data)
{
    buf_printf(ctx, "<%.*s|%.*s>", STR_ARG(name), STR_ARG(data));
}

static bool read_all(struct buf *got, enum sse_form form, str bytes, size_t first)
{
    struct sse s;
    struct err e;
    sse_init(&s, form, 40);
    s.on_event = note;
    s.ctx = got;
    bool ok = sse_feed(&s, str_sub(bytes, 0, first), &e) &&
              sse_feed(&s, str_from(bytes, first), &e);
    if (!ok)
        assert_int_equal(e.code, ERR_LIMIT);
    sse_deinit(&s);
    return ok;
}

static const struct {
    enum sse_form form;
    const char *bytes, *events; /* NULL: too long */
} cases[] = {
    {SSE_FORM_EVENTS, "data: a\n\ndata:b\n\n", "<|a><|b>"},
    {SSE_FORM_EVENTS, "event: delta\r\ndata: {}\r\n\r\n", "<delta|{}>"},
    {SSE_FORM_EVENTS, "data: a\rdata:  b\r\r", "<|a\n b>"},
    {SSE_FORM_EVENTS, "\xef\xbb\xbf" "data: a\n\n", "<|a>"},
    {SSE_FORM_EVENTS, ": ping\n\nid: 1\nretry: 5\ndata: a\n\n", "<|a>"},
    {SSE_FORM_EVENTS, "event: lost\n\ndata: a\n\n", "<|a>"},
    {SSE_FORM_EVENTS, "data\n\ndata:\n\n", ""},
    {SSE_FORM_EVENTS, "data: cut off\n", ""},
    {SSE_FORM_EVENTS, "data: 0123456789012345678901234567890123456789\n\n", NULL},
    {SSE_FORM_EVENTS, "data: 01234567890123456789\ndata: 01234567890123456789\n\n", NULL},
    {SSE_FORM_LINES, "{\"a\":1}\n\n{\"b\":2}\r\n{\"c\"", "<|{\"a\":1}><|{\"b\":2}>"},
    {SSE_FORM_LINES, "0123456789012345678901234567890123456789x\n", NULL},
};

static void test_events_are_the_same_wherever_the_bytes_are_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(cases); i++)
        for (size_t cut = 0; cut <= strlen(cases[i].bytes); cut++) {
            struct buf got;
            buf_init(&got, 1000);
            buf_add_z(&got, "");
            bool ok = read_all(&got, cases[i].form, str_of(cases[i].bytes), cut);
            if (ok != (cases[i].events != NULL))
                fail_msg("case %zu cut at %zu: %d", i, cut, ok);
            if (ok && !str_eq_z(buf_view(&got), cases[i].events))
                fail_msg("case %zu cut at %zu: %s", i, cut, got.p);
            buf_deinit(&got);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_are_the_same_wherever_the_bytes_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
