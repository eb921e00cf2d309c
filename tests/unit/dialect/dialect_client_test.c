/* What a failing upstream says, as a class; what a protocol cannot ask for. */
#include "dialect_play.h"

#include "dialect/dialect_client.h"

static void test_statuses_have_the_classes_of_the_table(void **state)
{
    static const struct {
        int status;
        const char *fault;
        enum err_code code;
    } rows[] = {
        {400, "request", ERR_REQUEST}, {404, "request", ERR_NOT_FOUND},
        {405, "request", ERR_REQUEST}, {413, "request", ERR_REQUEST},
        {422, "request", ERR_REQUEST}, {401, "auth", ERR_AUTH}, {403, "auth", ERR_AUTH},
        {429, "rate_limit", ERR_OVERLOADED}, {500, "http_5xx", ERR_UPSTREAM},
        {502, "http_5xx", ERR_UPSTREAM}, {503, "http_5xx", ERR_OVERLOADED},
        {504, "http_5xx", ERR_UPSTREAM}, {529, "http_5xx", ERR_OVERLOADED},
        {402, "rate_limit", ERR_OVERLOADED}, {408, "http_5xx", ERR_UPSTREAM},
        {409, "http_5xx", ERR_UPSTREAM}, {418, "http_5xx", ERR_UPSTREAM},
        {425, "http_5xx", ERR_UPSTREAM}, {499, "http_5xx", ERR_UPSTREAM},
        {520, "http_5xx", ERR_UPSTREAM}, {302, "garbage", ERR_UPSTREAM},
        {204, "garbage", ERR_UPSTREAM},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct dialect_client_headers h = {.count = 0};
        struct api_error e;
        struct arena a;
        arena_init(&a, 1 << 20);
        dialect_client_read_error(&e, rows[i].status, h, STR("{\"error\":{\"message\":\"no\"}}"),
                                  &a);
        assert_string_equal(api_request_fault_name(e.fault), rows[i].fault);
        assert_int_equal(e.err.code, rows[i].code);
        assert_int_equal(e.upstream_status, rows[i].status);
        assert_true(str_eq_z(e.upstream_text, "no"));
        arena_deinit(&a);
    }
}

static void test_only_what_is_wrong_with_the_request_itself_stays_the_clients(void **state)
{
    static const int own[] = {400, 404, 405, 413, 422};
    struct dialect_client_headers h = {.count = 0};
    (void)state;
    for (int status = 100; status < 600; status++) {
        struct api_error e;
        struct arena a;
        bool is_own = false;
        for (size_t i = 0; i < countof(own); i++)
            is_own = is_own || own[i] == status;
        arena_init(&a, 1 << 20);
        dialect_client_read_error(&e, status, h, STR(""), &a);
        assert_int_equal(e.fault == API_FAULT_REQUEST, is_own);
        assert_int_equal(e.fault == API_FAULT_AUTH, status == 401 || status == 403);
        assert_int_not_equal(e.fault, API_FAULT_NONE);
        arena_deinit(&a);
    }
}

static void test_an_error_body_of_any_form_gives_its_words(void **state)
{
    static const char *const rows[][2] = {
        {"{\"error\":{\"message\":\"a\",\"type\":\"b\"}}", "a"}, {"{\"error\":\"c\"}", "c"},
        {"{\"message\":\"d\"}", "d"}, {"{\"detail\":\"e\"}", "e"},
        {" <html>bad</html>\n", "<html>bad</html>"}, {"", ""}, {"[1]", "[1]"},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct dialect_client_headers h = {.count = 0};
        struct api_error e;
        struct arena a;
        arena_init(&a, 1 << 20);
        dialect_client_read_error(&e, 500, h, str_of(rows[i][0]), &a);
        if (!str_eq_z(e.upstream_text, rows[i][1]))
            fail_msg("%s gives '%.*s'", rows[i][0], STR_ARG(e.upstream_text));
        arena_deinit(&a);
    }
}

static void test_retry_after_is_read_as_seconds_or_a_date_and_bounded(void **state)
{
    static const struct {
        const char *name, *value;
        int64_t ms;
    } rows[] = {
        {"retry-after", "7", 7000}, {"retry-after", "0.5", 500}, {"retry-after-ms", "250", 250},
        {"retry-after", "86400", 600000}, {"retry-after", "-3", 0}, {"retry-after", "soon", 0},
        {"retry-after", "Wed, 21 Oct 2015 07:28:10 GMT", 10000},
        {"retry-after", "Wed, 21 Oct 2015 07:27:10 GMT", 0}, {"other", "7", 0},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        const struct api_header row = {str_of(rows[i].name), str_of(rows[i].value)};
        struct dialect_client_headers h = {&row, 1, INT64_C(1445412480000)};
        struct api_error e;
        struct arena a;
        arena_init(&a, 1 << 20);
        dialect_client_read_error(&e, 429, h, STR(""), &a);
        if (e.retry_after_ms != rows[i].ms)
            fail_msg("%s: %s gives %lld", rows[i].name, rows[i].value,
                     (long long)e.retry_after_ms);
        arena_deinit(&a);
    }
}

/* ---- What a protocol lacks: BEHAVIOUR 9.1 ---- */

#define BODY(more) "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," more "}"
#define TOOL "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"

static void test_what_a_protocol_cannot_say_makes_a_leg_incapable(void **state)
{
    static const char *const names[] = {"ollama", "openai_chat", "anthropic", "openai_responses"};
    static const struct {
        const char *body, *lacks[4];
    } rows[] = {
        {BODY("\"temperature\":1"), {NULL, NULL, NULL, NULL}},
        {BODY(TOOL), {NULL, NULL, NULL, NULL}},
        {BODY(TOOL ",\"tool_choice\":\"required\""), {"tools", NULL, NULL, NULL}},
        {BODY("\"n\":2"), {"n", NULL, "n", "n"}},
        {BODY("\"logprobs\":true"), {NULL, NULL, "logprobs", NULL}},
        {BODY("\"response_format\":{\"type\":\"json_object\"}"), {NULL, NULL, "schema", NULL}},
        {BODY("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{}}}"),
         {NULL, NULL, NULL, NULL}},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"}],"
         "\"continue_final_message\":true,\"add_generation_prompt\":false}",
         {NULL, "continue", "continue", "continue"}},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++)
        for (size_t k = 0; k < countof(names); k++) {
            const struct dialect_upstream leg = {.how = DIALECT_CONTINUE_NONE};
            struct play p = {0};
            play_ok(&p, "POST /v1/chat/completions", rows[i].body);
            const char *got = dialect_client_lacks(dialect_of(str_of(names[k])), &leg, &p.rq);
            if ((got == NULL) != (rows[i].lacks[k] == NULL) ||
                (got && strcmp(got, rows[i].lacks[k]) != 0))
                fail_msg("%s: %s lacks %s", rows[i].body, names[k], got ? got : "nothing");
            play_end(&p);
        }
}

static void test_only_legs_that_say_so_are_asked_to_go_on(void **state)
{
    static const struct {
        const char *dialect;
        bool can[DIALECT_CONTINUE_COUNT_]; /* none, prefill, final_message, shoal */
    } rows[] = {
        {"openai_chat", {false, false, true, true}}, {"anthropic", {false, true, false, true}},
        {"openai_responses", {false, false, false, false}}, {"ollama", {false, false, false, true}},
    };
    const struct api_partial partial = {.tokens_used = 1};
    const struct api_resume resume = {.partials = &partial, .partials_count = 1};
    const struct api_request rq = {.resume = &resume};
    (void)state;
    for (size_t i = 0; i < countof(rows); i++)
        for (int how = 0; how < DIALECT_CONTINUE_COUNT_; how++) {
            const struct dialect_upstream leg = {.how = (enum dialect_continue)how};
            const struct dialect *d = dialect_of(str_of(rows[i].dialect));
            assert_int_equal(d->client->can_continue(&leg, &rq), rows[i].can[how]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statuses_have_the_classes_of_the_table),
        cmocka_unit_test(test_only_what_is_wrong_with_the_request_itself_stays_the_clients),
        cmocka_unit_test(test_an_error_body_of_any_form_gives_its_words),
        cmocka_unit_test(test_retry_after_is_read_as_seconds_or_a_date_and_bounded),
        cmocka_unit_test(test_what_a_protocol_cannot_say_makes_a_leg_incapable),
        cmocka_unit_test(test_only_legs_that_say_so_are_asked_to_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
