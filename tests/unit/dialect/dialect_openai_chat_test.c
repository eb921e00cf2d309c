#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dialect/dialect.h"

struct asked {
    struct arena a;
    struct api_request rq;
    struct dialect_state *st;
    struct api_error e;
    bool ok;
};

static const struct dialect *dialect(void) { return dialect_of(STR("openai_chat")); }

static void ask_with(struct asked *q, const char *body, const struct dialect_limits *limits,
                     const struct api_header *headers, uint32_t headers_count)
{
    const struct dialect *d = dialect();
    const struct dialect_in in = {.path = d->paths, .body = str_of(body), .headers = headers,
                                  .headers_count = headers_count,
                                  .request_id = STR("req_0123456789abcdefABCDEF"),
                                  .time_s = 1785000000, .limits = limits};
    *q = (struct asked){.ok = false};
    arena_init(&q->a, 4 * strlen(body) + ((size_t)1 << 20));
    q->st = calloc(1, d->state_size);
    q->st->dialect = d;
    q->ok = d->read_request(&q->rq, q->st, &in, &q->a, &q->e);
}

static void ask(struct asked *q, const char *body)
{
    ask_with(q, body, &dialect_limits_default, NULL, 0);
}

static void done(struct asked *q)
{
    free(q->st);
    arena_deinit(&q->a);
}

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define BODY(more) "{\"model\":\"m\"," USER more "}"

static bool has_note(const struct asked *q, const char *code, const char *text)
{
    for (uint32_t i = 0; i < q->rq.notes_count; i++)
        if (str_eq_z(q->rq.notes[i].code, code) && str_eq_z(q->rq.notes[i].text, text))
            return true;
    return false;
}

/* ---- What is understood ---- */

static void test_the_smallest_request_has_the_defaults_of_the_protocol(void **state)
{
    (void)state;
    struct asked q;
    ask(&q, BODY(""));
    if (!q.ok)
        fail_msg("%s", q.e.err.text);
    assert_true(str_eq_z(q.rq.model, "m") && q.rq.kind == API_KIND_CHAT && !q.rq.stream);
    assert_int_equal(q.rq.messages_count, 1);
    assert_int_equal(q.rq.messages[0].role, API_ROLE_USER);
    assert_true(str_eq_z(q.rq.messages[0].parts[0].text, "hi"));
    assert_true(q.rq.temperature == 1 && q.rq.top_p == 1 && q.rq.top_k == 0 && q.rq.n == 1);
    assert_true(q.rq.given == 0 && q.rq.tokens_max == 0 && q.rq.notes_count == 0);
    assert_int_equal(q.rq.time_s, 1785000000);
    done(&q);
}

static void test_messages_of_every_role_and_form(void **state)
{
    (void)state;
    struct asked q;
    ask(&q, "{\"model\":\"m\",\"messages\":["
            "{\"role\":\"developer\",\"content\":\"d\"},"
            "{\"role\":\"user\",\"name\":\"ann\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
            "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,AA==\"}},"
            "{\"type\":\"file\",\"file\":{}},{\"type\":\"input_audio\"}]},"
            "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"r\","
            "\"refusal\":null},"
            "{\"role\":\"assistant\",\"content\":\"\"},"
            "{\"role\":\"system\",\"content\":\"\\ud83d\\ude00\"}]}");
    if (!q.ok)
        fail_msg("%s", q.e.err.text);
    const struct api_message *m = q.rq.messages;
    assert_int_equal(q.rq.messages_count, 5);
    assert_int_equal(m[0].role, API_ROLE_DEVELOPER);
    assert_true(str_eq_z(m[1].name, "ann") && m[1].parts_count == 4);
    assert_true(m[1].parts[1].kind == API_PART_IMAGE);
    assert_true(str_eq_z(m[1].parts[1].media_type, "image/png"));
    assert_true(str_eq_z(m[1].parts[2].text, "[a file was omitted]"));
    assert_true(has_note(&q, "file_omitted", "messages[1].content[2]"));
    assert_true(m[2].parts_count == 1 && m[2].parts[0].kind == API_PART_REASONING);
    assert_true(m[3].parts_count == 1 && m[3].parts[0].text.len == 0);
    assert_true(str_eq_z(m[4].parts[0].text, "\xf0\x9f\x98\x80"));
    done(&q);
}

static void test_every_sampling_field_arrives(void **state)
{
    (void)state;
    struct asked q;
    ask(&q, BODY(",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"max_tokens\":5,"
                 "\"max_completion_tokens\":7,\"temperature\":0.5,\"top_p\":0.9,\"top_k\":-1,"
                 "\"min_p\":0.1,\"typical_p\":0.8,\"repetition_penalty\":1.2,\"seed\":-3,"
                 "\"presence_penalty\":-2,\"frequency_penalty\":2,\"stop\":[\"a\",\"b\"],\"n\":8,"
                 "\"logprobs\":true,\"top_logprobs\":20,\"logit_bias\":{\"5\":-100,\"7\":1.5},"
                 "\"min_tokens\":2,\"ignore_eos\":true,\"stop_token_ids\":[3,4],"
                 "\"include_stop_str_in_output\":true,\"parallel_tool_calls\":false,"
                 "\"reasoning_effort\":\"high\",\"prediction\":{\"type\":\"content\",\"content\":"
                 "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},"
                 "\"keep_alive\":\"10m\",\"cache\":\"off\",\"priority\":-5,\"max_context\":4096,"
                 "\"prompt_cache_key\":\"s/1\",\"user\":\"Jane Doe\",\"best_of\":8,"
                 "\"prompt_cache_retention\":\"24h\","
                 "\"chat_template_kwargs\":{\"a\":1,\"b\":\"x\"},\"cache_salt\":\"salt\""));
    if (!q.ok)
        fail_msg("%s", q.e.err.text);
    const struct api_request *r = &q.rq;
    assert_true(r->stream && r->tokens_max == 7 && r->temperature == 0.5f && r->top_p == 0.9f);
    assert_true(r->top_k == 0 && r->min_p == 0.1f && r->typical_p == 0.8f);
    assert_true(r->repeat_penalty == 1.2f && r->seed == (uint64_t)-3);
    assert_true(r->presence_penalty == -2 && r->frequency_penalty == 2 && r->n == 8);
    assert_true(r->stop_count == 2 && str_eq_z(r->stop[1], "b") && r->logprobs == 21);
    assert_true(r->bias_count == 2 && r->bias[0].id == 5 && r->bias[0].bias == -100);
    assert_true(r->tokens_min == 2 && r->ignore_eos && r->stop_ids_count == 2 && r->keep_stop);
    assert_true(!r->parallel_tool_calls && r->effort == API_EFFORT_HIGH);
    assert_true(str_eq_z(r->prediction, "ab") && r->keep_alive_ms == 600000);
    assert_true(r->cache == API_CACHE_OFF && r->priority == API_PRIORITY_HIGH);
    assert_true(r->context_max == 4096 && str_eq_z(r->session, "s/1"));
    assert_int_equal(r->cache_s, 86400);
    assert_true(str_starts(r->agent, STR("u-")) && r->agent.len == 18);
    assert_true(str_eq_z(r->template_args, "{\"a\":1,\"b\":\"x\"}"));
    assert_true(str_eq_z(r->scope, "salt") && r->given & API_GIVEN(SEED));
    done(&q);
}

/* The object shoal goes before headers, headers before standard fields. */
static void test_extensions_override_in_their_order(void **state)
{
    (void)state;
    static const struct api_header headers[] = {
        {STR_INIT("shoal-agent"), STR_INIT("header")}, {STR_INIT("shoal-session"), STR_INIT("12")},
        {STR_INIT("shoal-max-context"), STR_INIT("512")}, {STR_INIT("other"), STR_INIT("x")},
        {STR_INIT("shoal-keep-alive"), STR_INIT("-1")},
        {STR_INIT("shoal-replay"), STR_INIT("false")},
    };
    struct asked q;
    ask_with(&q, BODY(",\"user\":\"field\",\"shoal\":{\"agent\":\"object\",\"priority\":\"low\","
                      "\"truncate\":\"rounds\",\"deadline_ms\":1000,\"context\":\"ctx_1\","
                      "\"leg\":\"desk\",\"made_up\":1}"),
             &dialect_limits_default, headers, countof(headers));
    if (!q.ok)
        fail_msg("%s", q.e.err.text);
    assert_true(str_eq_z(q.rq.agent, "object") && str_eq_z(q.rq.session, "12"));
    assert_true(q.rq.context_max == 512 && q.rq.keep_alive_ms == -1 && !q.rq.replay);
    assert_true(q.rq.priority == API_PRIORITY_LOW && q.rq.truncate == API_TRUNCATE_ROUNDS);
    assert_true(q.rq.deadline.total_ms == 1000 && str_eq_z(q.rq.context, "ctx_1"));
    assert_true(has_note(&q, "unknown_field", "shoal.made_up"));
    done(&q);
}

static void test_a_wrong_header_is_named_as_it_came(void **state)
{
    (void)state;
    static const struct {
        struct api_header header;
        const char *error;
    } rows[] = {
        {{STR_INIT("shoal-priority"), STR_INIT("urgent")},
         "shoal-priority: one of low, normal, high expected, got \"urgent\""},
        {{STR_INIT("shoal-max-context"), STR_INIT("5")},
         "shoal-max-context: integer from 256 to 2147483647 expected, got 5"},
        {{STR_INIT("shoal-agent"), STR_INIT("a b")}, "shoal-agent: 1 to 128 of "},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct asked q;
        ask_with(&q, BODY(""), &dialect_limits_default, &rows[i].header, 1);
        if (q.ok || strncmp(q.e.err.text, rows[i].error, strlen(rows[i].error)) != 0)
            fail_msg("want '%s'\n got '%s'", rows[i].error, q.ok ? "success" : q.e.err.text);
        assert_true(str_eq(q.e.param, rows[i].header.name));
        done(&q);
    }
}

static void test_tools_calls_and_results_are_read(void **state)
{
    (void)state;
    struct asked q;
    ask(&q, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
            "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c1\",\"type\":"
            "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}},"
            "{\"id\":\"c2\",\"type\":\"custom\",\"custom\":"
            "{\"name\":\"g\",\"input\":\"x\"}}]},"
            "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":[{\"type\":\"text\","
            "\"text\":\"r1\"},{\"type\":\"text\",\"text\":\"r2\"}]}],\"tools\":["
            "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
            "\"parameters\":{\"type\":\"object\"},\"strict\":true}},{\"type\":\"custom\","
            "\"custom\":{\"name\":\"g\"}},{\"type\":\"web_search\"}],"
                 "\"tool_choice\":\"none\"}");
    if (!q.ok)
        fail_msg("%s", q.e.err.text);
    const struct api_message *m = q.rq.messages;
    assert_true(m[1].parts_count == 2 && m[1].parts[0].kind == API_PART_CALL);
    assert_true(str_eq_z(m[1].parts[0].text, "{\"a\":1}"));
    assert_true(str_eq_z(m[1].parts[1].text, "{\"input\":\"x\"}"));
    assert_true(m[2].parts_count == 2 && m[2].parts[1].kind == API_PART_RESULT);
    assert_true(str_eq_z(m[2].parts[1].id, "c1") && str_eq_z(m[2].parts[1].text, "r2"));
    assert_true(q.rq.tools_count == 3 && q.rq.tools[0].strict);
    assert_true(str_eq_z(q.rq.tools[0].schema, "{\"type\": \"object\"}") ||
                str_eq_z(q.rq.tools[0].schema, "{\"type\":\"object\"}"));
    assert_true(q.rq.tools[2].kind == API_TOOL_HOSTED && has_note(&q, "tool_skipped", "tools[2]"));
    assert_int_equal(q.rq.tool_choice, API_TOOL_CHOICE_NONE);
    done(&q);
}

/* ---- What is tolerated, refused ---- */

static void test_neutral_values_and_null_are_no_news(void **state)
{
    (void)state;
    struct asked q;
    ask(&q, BODY(",\"tools\":[],\"tool_choice\":\"none\",\"response_format\":{\"type\":\"text\"},"
                 "\"temperature\":null,\"stop\":null,\"guided_json\":null,\"guided_regex\":\"\","
                 "\"structured_outputs\":{},\"modalities\":[\"text\"],\"skip_special_tokens\":true,"
                 "\"logprobs\":true"));
    if (!q.ok)
        fail_msg("%s", q.e.err.text);
    assert_int_equal(q.rq.notes_count, 0);
    assert_int_equal(q.rq.logprobs, 1); /* A24: true alone is enough */
    done(&q);
    ask(&q, BODY(",\"store\":true,\"metadata\":{\"user_id\":\"u1\"},\"brand_new\":{\"a\":1}"));
    assert_true(q.ok && has_note(&q, "ignored_field", "store"));
    assert_true(has_note(&q, "unknown_field", "brand_new") && str_eq_z(q.rq.agent, "u1"));
    done(&q);
}

static const struct {
    const char *body, *error;
    enum err_code code;
} wrong_rows[] = {
    {"", "body: json: ", ERR_REQUEST},
    {"[]", "body: object expected, got array", ERR_REQUEST},
    {"{\"model\":\"m\"}", "messages: required", ERR_REQUEST},
    {"{" USER "}", "model: required", ERR_REQUEST},
    {"{\"model\":\"m\",\"model\":\"n\"," USER "}", "body: json: ", ERR_REQUEST},
    {"{\"model\":5," USER "}", "model: string expected, got number", ERR_REQUEST},
    {"{\"model\":\"m\",\"messages\":{}}", "messages: array expected, got object", ERR_REQUEST},
    {"{\"model\":\"m\",\"messages\":[]}", "messages: 1 to 16384 messages expected, got 0",
     ERR_REQUEST},
    {"{\"model\":\"m\",\"messages\":[5]}", "messages[0]: object expected, got number",
     ERR_REQUEST},
    {"{\"model\":\"m\",\"messages\":[{\"content\":\"x\"}]}", "messages[0].role: required",
     ERR_REQUEST},
    {"{\"model\":\"m\",\"messages\":[{\"role\":\"robot\"}]}",
     "messages[0].role: one of system, developer, user, assistant, tool expected",
     ERR_REQUEST},
    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":5}]}",
     "messages[0].content: string or array expected, got number", ERR_REQUEST},
    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"x\"}]}]}",
     "messages[0].content[0].type: one of text, refusal, image_url", ERR_REQUEST},
    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
     "messages[0].content[0].text: required", ERR_REQUEST},
    {BODY(",\"temperature\":\"hot\""), "temperature: number expected, got string",
     ERR_REQUEST},
    {BODY(",\"stream\":1"), "stream: boolean expected, got number", ERR_REQUEST},
    {BODY(",\"n\":9"), "n: integer from 1 to 8 expected, got 9", ERR_REQUEST},
    {BODY(",\"stop\":[\"\"]"), "stop[0]: 1 to 256 bytes expected, got 0", ERR_REQUEST},
    {BODY(",\"stop\":5"), "stop: string or array of strings expected, got number",
     ERR_REQUEST},
    {BODY(",\"top_logprobs\":3"), "top_logprobs: needs logprobs: true", ERR_REQUEST},
    {BODY(",\"logit_bias\":{\"x\":1}"), "logit_bias.x: a token id", ERR_REQUEST},
    {BODY(",\"logit_bias\":{\"1\":101}"), "logit_bias[\"1\"]: number from -100 to 100 expected",
     ERR_REQUEST},
    {BODY(",\"best_of\":2"), "best_of: only the value of n is supported", ERR_REQUEST},
    {BODY(",\"functions\":[]"), "functions: this field is not supported", ERR_REQUEST},
    {BODY(",\"chat_template\":\"x\""), "chat_template: this field is not supported",
     ERR_REQUEST},
    {BODY(",\"chat_template_kwargs\":{\"a\":{\"chat_template\":\"x\"}}"),
     "chat_template_kwargs.a: string, number or boolean expected, got object", ERR_REQUEST},
    {BODY(",\"skip_special_tokens\":false"), "skip_special_tokens: false is not supported",
     ERR_REQUEST},
    {BODY(",\"continue_final_message\":true"),
     "continue_final_message: the last message must be the assistant's", ERR_REQUEST},
    {BODY(",\"keep_alive\":true"), "keep_alive: seconds or a duration like 5m expected, got bo",
     ERR_REQUEST},
    {BODY(",\"keep_alive\":\"soon\""), "keep_alive: seconds or a duration like 5m expected",
     ERR_REQUEST},
    {BODY(",\"reasoning_effort\":\"huge\""), "reasoning_effort: one of none, minimal, low",
     ERR_REQUEST},
    {BODY(",\"shoal\":{\"agent\":\"a b\"}"), "shoal.agent: 1 to 128 of", ERR_REQUEST},
    {BODY(",\"shoal\":[]"), "shoal: object expected, got array", ERR_REQUEST},
};

static void test_A32_every_wrong_field_is_named_with_what_was_expected(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(wrong_rows); i++) {
        struct asked q;
        ask(&q, wrong_rows[i].body);
        if (q.ok || strncmp(q.e.err.text, wrong_rows[i].error, strlen(wrong_rows[i].error)) != 0 ||
            q.e.err.code != wrong_rows[i].code)
            fail_msg("%s\n want '%s'\n got  '%s'", wrong_rows[i].body, wrong_rows[i].error,
                     q.ok ? "success" : q.e.err.text);
        assert_true(q.e.param.len > 0);
        done(&q);
    }
}

/* J01: every numeric field with every number that a reader can get wrong: an error with its name,
 * or a value inside its range; never anything else. */
static void test_J01_every_numeric_field_is_range_checked(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double low, high;
    } fields[] = {
        {"max_completion_tokens", 1, 2147483647}, {"max_tokens", 1, 2147483647},
        {"temperature", 0, 5}, {"top_p", 0, 1}, {"presence_penalty", -2, 2},
        {"frequency_penalty", -2, 2}, {"seed", -9223372036854775808.0, 9223372036854775807.0},
        {"n", 1, 8}, {"top_k", -1, 2147483647}, {"min_p", 0, 1}, {"typical_p", 0, 1},
        {"repetition_penalty", 0.01, 10}, {"min_tokens", 0, 2147483647},
        {"max_context", 256, 2147483647}, {"priority", -2147483648.0, 2147483647},
    };
    static const struct {
        const char *text;
        double value;
    } values[] = {{"-1", -1}, {"0", 0}, {"1", 1}, {"2147483648", 2147483648.0},
                  {"9223372036854775808", 9223372036854775808.0}, {"-9223372036854775809", -1e30},
                  {"1e308", 1e308}, {"-1e308", -1e308}, {"1e999", HUGE_VAL}, {"-1e999", -HUGE_VAL},
                  {"0.5", 0.5}, {"1.0", 1}, {"1e400", HUGE_VAL}};
    for (size_t i = 0; i < countof(fields); i++)
        for (size_t k = 0; k < countof(values); k++) {
            char body[512];
            struct asked q;
            snprintf(body, sizeof body, BODY(",\"%s\":%s"), fields[i].name, values[k].text);
            ask(&q, body);
            bool inside = values[k].value >= fields[i].low && values[k].value <= fields[i].high;
            if (q.ok && !inside)
                fail_msg("%s: %s was taken", fields[i].name, values[k].text);
            if (!q.ok && !str_eq_z(q.e.param, fields[i].name))
                fail_msg("%s: %s blames '%.*s'", fields[i].name, values[k].text,
                         STR_ARG(q.e.param));
            done(&q);
            snprintf(body, sizeof body, BODY(",\"%s\":\"5\""), fields[i].name);
            ask(&q, body);
            assert_true(!q.ok && str_eq_z(q.e.param, fields[i].name));
            done(&q);
        }
}

static void test_an_unfinished_turn_may_be_continued(void **state)
{
    (void)state;
    struct asked q;
    ask(&q, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
            "\"assistant\",\"content\":\"b\"}],\"continue_final_message\":true,"
            "\"add_generation_prompt\":false}");
    assert_true(q.ok && q.rq.continue_last);
    done(&q);
    ask(&q, "{\"model\":\"m\",\"messages\":[{\"role\":\"assistant\",\"content\":\"b\"}],"
            "\"continue_final_message\":true,\"add_generation_prompt\":true}");
    assert_false(q.ok);
    done(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_smallest_request_has_the_defaults_of_the_protocol),
        cmocka_unit_test(test_messages_of_every_role_and_form),
        cmocka_unit_test(test_every_sampling_field_arrives),
        cmocka_unit_test(test_extensions_override_in_their_order),
        cmocka_unit_test(test_a_wrong_header_is_named_as_it_came),
        cmocka_unit_test(test_tools_calls_and_results_are_read),
        cmocka_unit_test(test_neutral_values_and_null_are_no_news),
        cmocka_unit_test(test_A32_every_wrong_field_is_named_with_what_was_expected),
        cmocka_unit_test(test_J01_every_numeric_field_is_range_checked),
        cmocka_unit_test(test_an_unfinished_turn_may_be_continued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
