#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "api/api_request.h"

static const struct api_message hello = {.role = API_ROLE_USER};

static void chat(struct api_request *rq)
{
    api_request_init(rq);
    rq->messages = &hello;
    rq->messages_count = 1;
}

static void test_a_neutral_chat_request_is_valid(void **state)
{
    (void)state;
    struct api_request rq;
    struct api_error e;
    chat(&rq);
    if (!api_request_check(&rq, &e))
        fail_msg("%s", e.err.text);
}

static const struct { enum api_field field; const char *name; double low, high; bool is_integer; }
numbers[] = {
    {API_FIELD_TEMPERATURE, "temperature", 0, 5, false},
    {API_FIELD_TOP_P, "top_p", 0, 1, false},
    {API_FIELD_REPEAT_PENALTY, "repeat_penalty", 0.01, 10, false},
    {API_FIELD_PRESENCE_PENALTY, "presence_penalty", -2, 2, false},
    {API_FIELD_TOP_K, "top_k", 0, 2147483647, true},
    {API_FIELD_REPEAT_LAST, "repeat_last", 0, 4294967295, true},
    {API_FIELD_TOKENS_MAX, "tokens_max", 0, 2147483647, true},
    {API_FIELD_N, "n", 1, API_N_MAX, true},
    {API_FIELD_LOGPROBS, "logprobs", 0, 21, true},
    {API_FIELD_CONTEXT_MAX, "context_max", 0, 2147483647, true},
};

static void test_numbers_are_taken_within_their_range_only(void **state)
{
    (void)state;
    static const double bad[] = {-1e308, -2147483648.0, 1e308, 9.3e18, 4294967296.0, NAN, INFINITY,
                                 -3, 2147483647.5};
    for (size_t i = 0; i < countof(numbers); i++) {
        struct api_request rq;
        struct api_error e;
        chat(&rq);
        assert_true(api_request_set(&rq, numbers[i].field, numbers[i].low, STR("x"), &e));
        assert_true(api_request_set(&rq, numbers[i].field, numbers[i].high, STR("x"), &e));
        assert_true(api_request_is_given(&rq, numbers[i].field));
        for (size_t k = 0; k < countof(bad); k++) {
            struct api_request before = rq;
            if (api_request_set(&rq, numbers[i].field, bad[k], STR("a.b"), &e))
                fail_msg("%s took %g", numbers[i].name, bad[k]);
            assert_memory_equal(&before, &rq, sizeof rq);
            assert_int_equal(e.err.code, ERR_REQUEST);
            assert_true(str_eq_z(e.param, "a.b"));
            assert_non_null(strstr(e.err.text, "a.b: "));
        }
        bool takes_half = api_request_set(&rq, numbers[i].field, 1.5, STR("x"), &e);
        assert_int_equal(takes_half, !numbers[i].is_integer && numbers[i].high >= 1.5);
    }
}

static void test_the_sentence_names_range_and_value(void **state)
{
    (void)state;
    struct api_request rq;
    struct api_error e;
    chat(&rq);
    assert_false(api_request_set(&rq, API_FIELD_TEMPERATURE, 7, STR("options.temperature"), &e));
    assert_string_equal(e.err.text, "options.temperature: number from 0 to 5 expected, got 7");
}

/* Each row spoils one field of a valid request. */
static void spoil(struct api_request *rq, int row)
{
    static const struct api_message many[2] = {{.role = API_ROLE_USER}, {.role = API_ROLE_USER}};
    static const struct api_message bad_role = {.role = API_ROLE_COUNT_};
    static const struct api_part call = {.kind = API_PART_CALL};
    static const struct api_message nameless = {.role = API_ROLE_ASSISTANT, .parts = &call,
                                                .parts_count = 1};
    static const struct api_part latin = {.text = {"\xe9", 1}};
    static const struct api_message invalid = {.parts = &latin, .parts_count = 1};
    static const int32_t minus[] = {4, -1};
    static const struct api_message ids = {.ids = minus, .ids_count = 2};
    static const struct api_tool tools[2] = {{.name = STR_INIT("a"), .allowed = true},
                                             {.name = STR_INIT("b"), .allowed = true}};
    static const str empty[1];
    static const struct api_bias bias = {5, NAN};
    static const struct api_partial partial = {.choice = 3};
    static const struct api_resume resume = {.partials = &partial, .partials_count = 1};
    switch (row) {
    case 0: rq->messages_count = 0; break;
    case 1: rq->kind = API_KIND_COUNT_; break;
    case 2: rq->messages = &bad_role; break;
    case 3: rq->messages = &nameless; break;
    case 4: rq->messages = &invalid; break;
    case 5: rq->messages = &ids; break;
    case 6: rq->tools = tools; rq->tools_count = 2; rq->tool_choice = API_TOOL_CHOICE_NAMED; break;
    case 7: rq->tool_choice = API_TOOL_CHOICE_REQUIRED; break;
    case 8: rq->stop = empty; rq->stop_count = 1; break;
    case 9: rq->bias = &bias; rq->bias_count = 1; break;
    case 10: rq->resume = &resume; break;
    case 11: rq->messages = many; rq->messages_count = 2; rq->continue_last = true; break;
    case 12: rq->given = UINT64_MAX; break;
    case 13: rq->temperature = NAN; break;
    case 14: rq->n = 0; break;
    case 15: rq->model = STR("\xff"); break;
    case 16: rq->kind = API_KIND_COMPLETE; break;
    case 17: rq->messages_count = API_MESSAGES_MAX + 1; break;
    case 18: rq->agent = (str){rq->agent.p, API_NAME_LEN_MAX + 1}; break;
    }
}

static void test_each_broken_field_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const params[] = {
        "messages", "kind", "messages", "messages", "messages", "messages", "tool_choice",
        "tool_choice", "stop", "logit_bias", "resume", "messages", "given", "temperature", "n",
        "model", "inputs", "messages", "agent",
    };
    for (int row = 0; row < (int)countof(params); row++) {
        struct api_request rq;
        struct api_error e = {0};
        chat(&rq);
        spoil(&rq, row);
        if (api_request_check(&rq, &e))
            fail_msg("row %d was taken", row);
        if (!str_eq_z(e.param, params[row]))
            fail_msg("row %d: param %.*s, %s", row, STR_ARG(e.param), e.err.text);
        assert_true(e.err.code == ERR_REQUEST || e.err.code == ERR_LIMIT);
    }
}

static void test_choices_have_seeds_of_their_own(void **state)
{
    (void)state;
    struct api_request rq;
    chat(&rq);
    rq.seed = 42;
    assert_true(api_request_seed(&rq, 0) == 42);
    for (uint32_t i = 0; i < 50; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_true(api_request_seed(&rq, i) != api_request_seed(&rq, k));
    rq.n = 3;
    assert_int_equal(api_request_choices(&rq), 3);
    rq.kind = API_KIND_COMPLETE;
    rq.inputs_count = 4;
    assert_int_equal(api_request_choices(&rq), 12);
    rq.kind = API_KIND_EMBED;
    assert_int_equal(api_request_choices(&rq), 1);
}

static void test_printing_shows_no_content(void **state)
{
    (void)state;
    struct api_part secret = {.text = STR("SECRET")};
    struct api_message m = {.parts = &secret, .parts_count = 1};
    struct api_secret key = {STR("SECRET")};
    struct api_request rq;
    struct buf b;
    chat(&rq);
    rq.messages = &m;
    rq.client_key = &key;
    rq.body = STR("SECRET");
    rq.temperature = 0.5f;
    buf_init(&b, 4096);
    api_request_print(&b, &rq);
    assert_null(strstr(b.p, "SECRET"));
    assert_non_null(strstr(b.p, "temperature=0.5"));
    assert_non_null(strstr(b.p, "text=6"));
    buf_deinit(&b);
}

static void test_effort_names_go_both_ways(void **state)
{
    (void)state;
    for (int i = API_EFFORT_NONE; i < API_EFFORT_COUNT_; i++) {
        enum api_effort back;
        str name = str_of(api_request_effort_name((enum api_effort)i));
        assert_true(api_request_effort_of(name, &back));
        assert_int_equal(back, i);
    }
    enum api_effort none;
    assert_false(api_request_effort_of(STR("default"), &none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_neutral_chat_request_is_valid),
        cmocka_unit_test(test_numbers_are_taken_within_their_range_only),
        cmocka_unit_test(test_the_sentence_names_range_and_value),
        cmocka_unit_test(test_each_broken_field_is_refused_by_name),
        cmocka_unit_test(test_choices_have_seeds_of_their_own),
        cmocka_unit_test(test_printing_shows_no_content),
        cmocka_unit_test(test_effort_names_go_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
