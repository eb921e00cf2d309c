#include "dialect_play.h"

#define COMPLETE "POST /v1/completions"
#define BODY(more) "{\"model\":\"m\",\"prompt\":\"hi\"" more "}"

static void test_prompts_in_every_form(void **state)
{
    (void)state;
    static const struct {
        const char *prompt;
        uint32_t inputs, ids_count;
        const char *text;
    } rows[] = {{"\"a\"", 1, 0, "a"}, {"\"\"", 1, 0, ""}, {"[\"a\",\"b\"]", 2, 0, "a"},
                {"[1,2,3]", 1, 3, ""}, {"[[1,2],[3]]", 2, 2, ""}, {"[\"a\",[3]]", 2, 0, "a"}};
    for (size_t i = 0; i < countof(rows); i++) {
        char body[200];
        struct play p = {.ok = false};
        snprintf(body, sizeof body, "{\"model\":\"m\",\"n\":2,\"prompt\":%s}", rows[i].prompt);
        play_ok(&p, COMPLETE, body);
        assert_true(p.rq.kind == API_KIND_COMPLETE && p.rq.parse_special);
        assert_int_equal(p.rq.inputs_count, rows[i].inputs);
        assert_int_equal(p.rq.inputs[0].ids_count, rows[i].ids_count);
        assert_true(str_eq_z(p.rq.inputs[0].text, rows[i].text));
        assert_int_equal(p.st->choices_count, rows[i].inputs * 2);
        play_end(&p);
    }
}

static void test_every_field_arrives(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, COMPLETE, BODY(
        ",\"suffix\":\"end\",\"echo\":true,\"stream\":true,\"stream_options\":{\"include_usage\":"
        "true},\"max_tokens\":3,\"temperature\":0,\"seed\":7,\"stop\":\"x\",\"n\":2,\"best_of\":2,"
        "\"logprobs\":5,\"logit_bias\":{\"3\":-100},\"user\":\"u\",\"top_k\":4,\"min_p\":0.5,"
        "\"repetition_penalty\":1.5,\"ignore_eos\":true,\"stop_token_ids\":[5]"));
    const struct api_request *r = &p.rq;
    assert_true(str_eq_z(r->suffix, "end") && r->echo && r->stream && p.st->include_usage);
    assert_true(r->tokens_max == 3 && r->temperature == 0 && r->seed == 7 && r->stop_count == 1);
    assert_true(r->n == 2 && r->logprobs == 6 && r->bias_count == 1 && str_eq_z(r->agent, "u"));
    assert_true(r->top_k == 4 && r->min_p == 0.5f && r->repeat_penalty == 1.5f && r->ignore_eos);
    assert_true(r->stop_ids_count == 1 && r->notes_count == 0);
    play_end(&p);
}

static void test_A32_every_wrong_field_is_named_with_what_was_expected(void **state)
{
    (void)state;
    static const struct play_wrong rows[] = {
        {COMPLETE, "{\"prompt\":\"x\"}", "model: required", ERR_REQUEST},
        {COMPLETE, "{\"model\":\"m\"}", "prompt: required", ERR_REQUEST},
        {COMPLETE, "{\"model\":\"m\",\"prompt\":[]}", "prompt: 1 to 2048 prompts expected, got 0",
         ERR_REQUEST},
        {COMPLETE, "{\"model\":\"m\",\"prompt\":5}", "prompt: string or array expected, got num",
         ERR_REQUEST},
        {COMPLETE, "{\"model\":\"m\",\"prompt\":[\"a\",5]}",
         "prompt[1]: string or array of token ids expected, got number", ERR_REQUEST},
        {COMPLETE, "{\"model\":\"m\",\"prompt\":[[]]}", "prompt[0]: at least 1 token id expected",
         ERR_REQUEST},
        {COMPLETE, "{\"model\":\"m\",\"prompt\":[1,-2]}", "prompt[1]: integer from 0 to",
         ERR_REQUEST},
        {COMPLETE, "{\"model\":\"m\",\"prompt\":[1,2.5]}", "prompt[1]: integer from 0 to",
         ERR_REQUEST},
        {COMPLETE, BODY(",\"logprobs\":true"), "logprobs: integer expected, got boolean",
         ERR_REQUEST},
        {COMPLETE, BODY(",\"logprobs\":21"), "logprobs: integer from 0 to 20", ERR_REQUEST},
        {COMPLETE, BODY(",\"max_tokens\":0"), "max_tokens: at least 1 expected", ERR_REQUEST},
        {COMPLETE, BODY(",\"best_of\":3"), "best_of: only the value of n", ERR_REQUEST},
        {COMPLETE, BODY(",\"n\":9"), "n: integer from 1 to 8", ERR_REQUEST},
        {"POST /v1/embeddings", "{}", "POST /v1/embeddings is not built yet",
         ERR_UNSUPPORTED},
        {"GET /v1/models/%zz", "", "id: a name of at most 4096 bytes", ERR_REQUEST},
        {"GET /v1/models/%ff", "", "id: a name of at most 4096 bytes", ERR_REQUEST},
    };
    play_refuse(rows, countof(rows));
}

#define HEAD "{\"id\":\"cmpl-0123456789abcdefABCDEF\",\"object\":\"text_completion\",\"created\":" \
    "1785000000,\"model\":\"m\",\"system_fingerprint\":\"fp_0000000000000abc\",\"choices\":["
#define USAGE "{\"prompt_tokens\":9,\"completion_tokens\":6,\"total_tokens\":15,"              \
    "\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":{"           \
    "\"reasoning_tokens\":2,\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}"
#define SHOAL(finish) "\"shoal\":{\"request_id\":\"req_0123456789abcdefABCDEF\","              \
    "\"leg\":\"local\",\"model\":\"m.gguf\",\"seed\":42,\"finish\":\"" finish "\",\"timings\":{"\
    "\"queue_ms\":0.0,\"load_ms\":0.0,\"prefill_ms\":1.0,\"decode_ms\":2.0,\"prefill_tps\":"    \
    "5000.0,\"decode_tps\":3000.0},\"cache\":{\"prompt\":9,\"cached\":4,\"reason\":null},"      \
    "\"warnings\":[]}}"
#define OPEN(i, text) "data: " HEAD "{\"text\":\"" text "\",\"index\":" i ",\"logprobs\":null,"  \
    "\"finish_reason\":"

static void talk(struct play *p)
{
    play_started(p);
    play_text(p, 1, API_EVENT_CONTENT, STR("b"));
    play_text(p, 0, API_EVENT_CONTENT, STR("a"));
    play_text(p, 0, API_EVENT_CONTENT, STR("c"));
    play_done(p, 1, API_DONE_MAX_TOKENS);
    play_usage(p);
    play_done(p, 0, API_DONE_EOS);
}

static void test_A30_a_stream_has_a_chunk_a_text_and_the_usage_last(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, COMPLETE, "{\"model\":\"m\",\"prompt\":[\"x\",\"y\"],\"stream\":true,"
                          "\"stream_options\":{\"include_usage\":true}}");
    talk(&p);
    play_wrote(&p,
        OPEN("1", "b") "null}],\"usage\":null}\n\n"
        OPEN("0", "a") "null}],\"usage\":null}\n\n"
        OPEN("0", "c") "null}],\"usage\":null}\n\n"
        OPEN("1", "") "\"length\"}],\"usage\":null}\n\n"
        OPEN("0", "") "\"stop\"}],\"usage\":null," SHOAL("eos") "\n\n"
        "data: " HEAD "],\"usage\":" USAGE "}\n\n"
        "data: [DONE]\n\n");
    assert_true(p.st->is_over);
    play_end(&p);
}

static void test_a_reply_that_is_not_streamed_has_all_choices(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, COMPLETE, "{\"model\":\"m\",\"prompt\":[\"x\",\"y\"]}");
    talk(&p);
    play_wrote(&p,
        HEAD "{\"text\":\"ac\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"stop\"},"
        "{\"text\":\"b\",\"index\":1,\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":"
        USAGE ",\"seed\":42," SHOAL("eos"));
    play_end(&p);
}

/* The second token ends a character of two bytes; two of its rivals look the same as text. */
static void test_A23_logprobs_are_the_old_lists_streamed_and_not(void **state)
{
    (void)state;
    static const struct api_top tops[] = {{1, -0.5f, STR_INIT("x")}, {2, -1.5f, STR_INIT("\xff")},
                                          {3, -2.5f, STR_INIT("\xfe")}};
    static const struct api_logprob first = {{1, -0.5f, STR_INIT("x")}, tops, 3};
    static const struct api_logprob rest[] = {{{4, -1.0f, STR_INIT("\xc3")}, NULL, 0},
                                              {{5, -2.0f, STR_INIT("\xa9!")}, NULL, 0}};
    static const char *const one = "\"logprobs\":{\"tokens\":[\"x\"],\"token_logprobs\":[-0.5],"
        "\"top_logprobs\":[{\"x\":-0.5,\"\xef\xbf\xbd\":-1.5}],\"text_offset\":[0]}";
    static const char *const two = "\"logprobs\":{\"tokens\":[\"\xef\xbf\xbd\",\"\xef\xbf\xbd!\"],"
        "\"token_logprobs\":[-1.0,-2.0],\"top_logprobs\":[{},{}],\"text_offset\":[1,2]}";
    static const char *const all = "\"logprobs\":{\"tokens\":[\"x\",\"\xef\xbf\xbd\","
        "\"\xef\xbf\xbd!\"],\"token_logprobs\":[-0.5,-1.0,-2.0],\"top_logprobs\":[{\"x\":-0.5,"
        "\"\xef\xbf\xbd\":-1.5},{},{}],\"text_offset\":[0,1,2]}";
    for (int stream = 0; stream < 2; stream++) {
        struct play p = {.ok = false};
        play_ok(&p, COMPLETE, stream ? BODY(",\"logprobs\":3,\"stream\":true")
                                     : BODY(",\"logprobs\":3"));
        play_started(&p);
        play_event(&p, 0, (struct api_event){.kind = API_EVENT_CONTENT,
                                             .text = {STR("x"), &first, 1}});
        play_event(&p, 0, (struct api_event){.kind = API_EVENT_CONTENT,
                                             .text = {STR("\xc3\xa9!"), rest, 2}});
        play_usage(&p);
        play_done(&p, 0, API_DONE_EOS);
        assert_true(str_find(buf_view(&p.out), str_of(stream ? one : all)) != STR_NONE);
        assert_true(str_find(buf_view(&p.out), str_of(stream ? two : all)) != STR_NONE);
        play_end(&p);
    }
}

static void test_errors_before_and_in_the_stream(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, COMPLETE, BODY(",\"stream\":true"));
    play_fail(&p, ERR_OVERLOADED, "the queue is full");
    play_wrote(&p, "{\"error\":{\"message\":\"the queue is full\",\"type\":\"server_busy\","
                   "\"param\":null,\"code\":\"overloaded\"}}");
    play_end(&p);
    play_ok(&p, COMPLETE, BODY(",\"stream\":true"));
    play_started(&p);
    play_say(&p, "x");
    play_fail(&p, ERR_ENGINE, "lost");
    assert_true(str_ends(buf_view(&p.out),
                         STR("data: {\"error\":{\"message\":\"lost\",\"type\":\"server_error\","
                             "\"param\":null,\"code\":\"engine_unavailable\"}}\n\n"
                             OPEN("0", "") "\"error\"}],\"usage\":null}\n\ndata: [DONE]\n\n")));
    play_end(&p);
}

/* ---- Models ---- */

static const struct api_model models[] = {
    {.name = STR_INIT("a/b"), .context_max = 2048, .caps = API_CAP_CHAT,
     .state = API_MODEL_LOADED, .modified_s = 951782400},
    {.name = STR_INIT("emb"), .caps = API_CAP_EMBED},
};
static const struct api_header anthropic[] = {{STR_INIT("anthropic-version"),
                                               STR_INIT("2023-06-01")}};
#define ROW "{\"id\":\"a/b\",\"object\":\"model\",\"created\":951782400,\"owned_by\":\"shoal\","  \
    "\"max_model_len\":2048,\"context_length\":2048,\"capabilities\":[\"completion\"],"         \
    "\"loaded\":true}"
#define ANTHROPIC_ROW "{\"type\":\"model\",\"id\":\"a/b\",\"display_name\":\"a/b\","              \
    "\"created_at\":\"2000-02-29T00:00:00Z\"}"

static void answer(struct play *p, const char *target, bool is_anthropic, uint32_t count)
{
    *p = (struct play){.headers = anthropic, .headers_count = is_anthropic};
    play_ok(p, target, "");
    for (uint32_t i = 0; i < count; i++)
        play_event(p, 0, (struct api_event){.kind = API_EVENT_MODELS, .models = {&models[i], 1}});
    play_done(p, 0, API_DONE_EOS);
    assert_true(p->st->is_over);
}

static void test_models_are_listed_in_the_form_of_the_client(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        bool is_anthropic;
        uint32_t count;
        const char *want;
    } rows[] = {
        {"GET /v1/models", false, 0, "{\"object\":\"list\",\"data\":[]}"},
        {"GET /v1/models", false, 1, "{\"object\":\"list\",\"data\":[" ROW "]}"},
        {"GET /v1/models/a%2Fb", false, 1, ROW},
        {"GET /v1/models/a%2fb", true, 1, ANTHROPIC_ROW},
        {"GET /v1/v1/models", true, 2, "{\"data\":[" ANTHROPIC_ROW ",{\"type\":\"model\",\"id\":"
         "\"emb\",\"display_name\":\"emb\",\"created_at\":\"1970-01-01T00:00:00Z\"}],"
         "\"has_more\":false,\"first_id\":\"a/b\",\"last_id\":\"emb\"}"},
        {"GET /v1/models", true, 0, "{\"data\":[],\"has_more\":false,\"first_id\":null,"
         "\"last_id\":null}"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct play p;
        answer(&p, rows[i].target, rows[i].is_anthropic, rows[i].count);
        play_wrote(&p, rows[i].want);
        if (strstr(rows[i].target, "/models/"))
            assert_true(str_eq_z(p.rq.model, "a/b") && p.rq.kind == API_KIND_SHOW);
        play_end(&p);
    }
}

static void test_an_unknown_model_is_told_in_the_form_of_the_client(void **state)
{
    (void)state;
    for (int is_anthropic = 0; is_anthropic < 2; is_anthropic++) {
        struct play p = {.headers = anthropic, .headers_count = (uint32_t)is_anthropic};
        play_ok(&p, "GET /v1/models/x", "");
        play_fail(&p, ERR_NOT_FOUND, "no model x");
        assert_true(str_starts(buf_view(&p.out),
                               is_anthropic ? STR("{\"type\":\"error\",\"error\":{\"type\":"
                                                  "\"not_found_error\"")
                                            : STR("{\"error\":{\"message\":\"no model x\"")));
        play_end(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_in_every_form),
        cmocka_unit_test(test_every_field_arrives),
        cmocka_unit_test(test_A32_every_wrong_field_is_named_with_what_was_expected),
        cmocka_unit_test(test_A30_a_stream_has_a_chunk_a_text_and_the_usage_last),
        cmocka_unit_test(test_a_reply_that_is_not_streamed_has_all_choices),
        cmocka_unit_test(test_A23_logprobs_are_the_old_lists_streamed_and_not),
        cmocka_unit_test(test_errors_before_and_in_the_stream),
        cmocka_unit_test(test_models_are_listed_in_the_form_of_the_client),
        cmocka_unit_test(test_an_unknown_model_is_told_in_the_form_of_the_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
