#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "dialect/dialect_write.h"

static void test_times_are_rfc_3339(void **state)
{
    (void)state;
    static const struct {
        int64_t time_s;
        const char *text;
    } rows[] = {{0, "\"1970-01-01T00:00:00Z\""}, {951782400, "\"2000-02-29T00:00:00Z\""},
                {1785000000, "\"2026-07-25T17:20:00Z\""}, {INT64_MAX, "null"}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct buf out;
        buf_init(&out, 100);
        struct json_writer w = json_writer(&out);
        dialect_write_time(&w, rows[i].time_s);
        assert_string_equal(out.p, rows[i].text);
        buf_deinit(&out);
    }
}

static void test_A28_a_ping_is_a_comment_and_commits_the_stream(void **state)
{
    (void)state;
    struct dialect_state st = {0};
    struct dialect_ping p = {.phase = "queued", .position = 3, .eta_ms = -1};
    struct buf out;
    buf_init(&out, 1000);
    dialect_write_ping(&out, &st, &p);
    assert_string_equal(out.p, ": shoal {\"phase\":\"queued\",\"position\":3,\"done\":0,"
                               "\"total\":0,\"eta_ms\":null}\n\n");
    assert_true(st.is_begun);
    st.is_over = true;
    buf_clear(&out);
    dialect_write_ping(&out, &st, &p);
    assert_int_equal(out.len, 0);
    buf_deinit(&out);
}

static void test_the_status_of_an_error_is_that_of_its_family(void **state)
{
    (void)state;
    static const struct {
        enum err_code code;
        enum dialect_family family;
        uint16_t overlong, status;
    } rows[] = {
        {ERR_CONTEXT, DIALECT_OPENAI, 0, 400},    {ERR_CONTEXT, DIALECT_ANTHROPIC, 0, 400},
        {ERR_CONTEXT, DIALECT_OLLAMA, 0, 413},    {ERR_CONTEXT, DIALECT_OPENAI, 413, 413},
        {ERR_CONTEXT, DIALECT_OLLAMA, 400, 400},  {ERR_OVERLOADED, DIALECT_OPENAI, 0, 503},
        {ERR_OVERLOADED, DIALECT_ANTHROPIC, 0, 529}, {ERR_ENGINE, DIALECT_ANTHROPIC, 413, 529},
        {ERR_UNSUPPORTED, DIALECT_OLLAMA, 0, 501}, {ERR_NOT_FOUND, DIALECT_ANTHROPIC, 0, 404},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        const struct dialect d = {.family = rows[i].family};
        struct dialect_state st = {.dialect = &d, .overlong_status = rows[i].overlong};
        struct api_error e;
        api_error_set(&e, rows[i].code, "", STR(""), "x");
        assert_int_equal(dialect_status(&st, &e), rows[i].status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_are_rfc_3339),
        cmocka_unit_test(test_A28_a_ping_is_a_comment_and_commits_the_stream),
        cmocka_unit_test(test_the_status_of_an_error_is_that_of_its_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
