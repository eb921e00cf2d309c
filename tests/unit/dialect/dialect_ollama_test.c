#include "dialect_play.h"

#define CHAT "POST /api/chat"
#define GENERATE "POST /api/generate"
#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define BODY(more) "{\"model\":\"m\"," USER more "}"
#define PROMPT(more) "{\"model\":\"m\",\"prompt\":\"hi\"" more "}"

/* ---- Requests ---- */

static void test_the_smallest_chat_streams_with_the_defaults_of_ollama(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, CHAT, BODY(""));
    assert_true(p.rq.kind == API_KIND_CHAT && p.rq.stream && p.rq.given == 0);
    assert_true(p.rq.temperature == 0.8f && p.rq.top_k == 40 && p.rq.top_p == 0.9f);
    assert_true(p.rq.repeat_penalty == 1.1f && p.rq.repeat_last == 64 && p.rq.tokens_max == 0);
    assert_true(p.rq.messages_count == 1 && str_eq_z(p.rq.messages[0].parts[0].text, "hi"));
    assert_int_equal(p.rq.notes_count, 0);
    play_end(&p);
}

static void test_every_option_arrives(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, CHAT, BODY(
        ",\"stream\":false,\"keep_alive\":\"5m\",\"logprobs\":true,\"top_logprobs\":3,\"options\":{"
        "\"temperature\":0,\"top_k\":7,\"top_p\":0.5,\"min_p\":0.1,\"typical_p\":0.9,"
        "\"repeat_penalty\":1.5,\"repeat_last_n\":-1,\"presence_penalty\":1,"
        "\"frequency_penalty\":-1,\"seed\":3,\"num_predict\":9,\"num_ctx\":100,"
        "\"stop\":[\"a\",\"b\"],\"tfs_z\":1.0,\"mirostat\":0,\"num_gpu\":99,\"made_up\":1}"));
    const struct api_request *r = &p.rq;
    assert_true(!r->stream && r->keep_alive_ms == 300000 && r->logprobs == 4);
    assert_true(r->temperature == 0 && r->top_k == 7 && r->top_p == 0.5f && r->min_p == 0.1f);
    assert_true(r->typical_p == 0.9f && r->repeat_penalty == 1.5f);
    assert_true(r->repeat_last == API_REPEAT_ALL && r->presence_penalty == 1);
    assert_true(r->frequency_penalty == -1 && r->seed == 3 && r->tokens_max == 9);
    assert_true(r->context_max == 100 && r->stop_count == 2);
    assert_true(r->given & API_GIVEN(SEED) && r->given & API_GIVEN(TEMPERATURE));
    assert_true(play_has_note(&p, "ignored_field", "options.num_gpu"));
    assert_true(play_has_note(&p, "unknown_field", "options.made_up"));
    assert_int_equal(r->notes_count, 2);
    play_end(&p);
}

static void test_images_are_parts_behind_the_text(void **state)
{
    static const struct {
        const char *target, *body;
    } rows[] = {
        {CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"what\","
               "\"images\":[\"AA==\",\"AQ==\"]}]}"},
        {GENERATE, PROMPT(",\"images\":[\"AA==\",\"AQ==\"]")}};
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct play p = {.ok = false};
        play_ok(&p, rows[i].target, rows[i].body);
        const struct api_message *m = &p.rq.messages[p.rq.messages_count - 1];
        assert_true(m->parts_count == 3 && m->parts[0].kind == API_PART_TEXT);
        assert_true(m->parts[1].kind == API_PART_IMAGE && m->parts[2].kind == API_PART_IMAGE);
        play_end(&p);
    }
}

static void test_seeds_0_and_minus_1_are_drawn(void **state)
{
    (void)state;
    static const char *const bodies[] = {BODY(",\"options\":{\"seed\":0}"),
                                         BODY(",\"options\":{\"seed\":-1}")};
    for (size_t i = 0; i < countof(bodies); i++) {
        struct play p = {.ok = false};
        play_ok(&p, CHAT, bodies[i]);
        assert_false(p.rq.given & API_GIVEN(SEED));
        play_end(&p);
    }
}

static void test_keep_alive_in_every_spelling(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {{"300", 300000}, {"\"300\"", 300000}, {"\"5m\"", 300000}, {"\"1h30m\"", 5400000},
                {"0", 0}, {"\"0\"", 0}, {"\"0s\"", 0}, {"-1", -1}, {"\"-1\"", -1},
                {"\"-1m\"", -1}, {"-0.5", -1}, {"1.5", 1500}, {"1e300", -1},
                {"9223372036854775807", -1}, {"\"250ms\"", 250}};
    for (size_t i = 0; i < countof(rows); i++) {
        char body[200];
        struct play p = {.ok = false};
        snprintf(body, sizeof body, PROMPT(",\"keep_alive\":%s"), rows[i].text);
        play_ok(&p, GENERATE, body);
        if (p.rq.keep_alive_ms != rows[i].ms)
            fail_msg("%s: %lld", rows[i].text, (long long)p.rq.keep_alive_ms);
        play_end(&p);
    }
}

/* What a request without a prompt, or one that says nothing, is for. */
static void test_loading_unloading_and_filling_the_cache(void **state)
{
    (void)state;
    static const struct {
        const char *target, *body;
        enum api_kind kind;
    } rows[] = {
        {CHAT, "{\"model\":\"m\"}", API_KIND_LOAD},
        {CHAT, "{\"model\":\"m\",\"messages\":[]}", API_KIND_LOAD},
        {CHAT, "{\"model\":\"m\",\"messages\":[],\"keep_alive\":0}", API_KIND_UNLOAD},
        {GENERATE, "{\"model\":\"m\"}", API_KIND_LOAD},
        {GENERATE, "{\"model\":\"m\",\"prompt\":\"\",\"keep_alive\":-1}", API_KIND_LOAD},
        {GENERATE, "{\"model\":\"m\",\"keep_alive\":\"0s\"}", API_KIND_UNLOAD},
        {GENERATE, PROMPT(",\"keep_alive\":0"), API_KIND_CHAT},
        {GENERATE, PROMPT(",\"raw\":true"), API_KIND_COMPLETE},
        {GENERATE, PROMPT(",\"suffix\":\"end\""), API_KIND_COMPLETE},
        {GENERATE, PROMPT(",\"options\":{\"num_predict\":0}"), API_KIND_PREFILL},
        {CHAT, BODY(",\"options\":{\"num_predict\":-2}"), API_KIND_CHAT},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct play p = {.ok = false};
        play_ok(&p, rows[i].target, rows[i].body);
        if (p.rq.kind != rows[i].kind)
            fail_msg("%s: %s", rows[i].body, api_request_kind_name(p.rq.kind));
        play_end(&p);
    }
}

static void test_generate_is_a_chat_of_one_turn_or_a_raw_text(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, GENERATE, PROMPT(",\"system\":\"be brief\",\"context\":[],\"template\":\"\""));
    assert_int_equal(p.rq.messages_count, 2);
    assert_true(p.rq.messages[0].role == API_ROLE_SYSTEM);
    assert_true(str_eq_z(p.rq.messages[1].parts[0].text, "hi"));
    play_end(&p);
    play_ok(&p, GENERATE, PROMPT(",\"raw\":true,\"suffix\":\"end\""));
    assert_true(p.rq.inputs_count == 1 && str_eq_z(p.rq.inputs[0].text, "hi"));
    assert_true(p.rq.parse_special && str_eq_z(p.rq.suffix, "end"));
    play_end(&p);
    play_ok(&p, GENERATE, PROMPT(",\"raw\":true,\"shoal\":{\"parse_special\":false}"));
    assert_false(p.rq.parse_special);
    play_end(&p);
}

static void test_a_history_that_ends_with_the_assistant_is_continued(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                      "\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},"
                      "{\"role\":\"assistant\",\"thinking\":\"hm\",\"content\":\"c\"}]}");
    assert_true(p.rq.continue_last && p.rq.messages[0].parts_count == 2);
    assert_true(p.rq.messages[1].parts[0].kind == API_PART_REASONING);
    play_end(&p);
}

static void test_neutral_values_of_what_is_not_built_are_no_news(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\","
                      "\"images\":[],\"tool_calls\":[]}],\"format\":\"\",\"tools\":[],"
                      "\"think\":null,\"options\":{\"stop\":[]},\"keep_alive\":null}");
    assert_int_equal(p.rq.notes_count, 0);
    play_end(&p);
    play_ok(&p, CHAT, BODY(",\"think\":false"));
    assert_int_equal(p.rq.think, API_THINK_OFF);
    play_end(&p);
    play_ok(&p, CHAT, BODY(",\"think\":\"none\""));
    assert_int_equal(p.rq.effort, API_EFFORT_NONE);
    play_end(&p);
    play_ok(&p, CHAT, BODY(",\"think\":\"true\""));
    assert_int_equal(p.rq.think, API_THINK_ON);
    play_end(&p);
}

static void test_tools_calls_and_results_are_read(void **state)
{
    (void)state;
    struct play p = {0};
    play_ok(&p, CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"assistant\",\"content\":\"\","
                      "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}}]},"
                      "{\"role\":\"tool\",\"tool_name\":\"f\",\"tool_call_id\":\"c\",\"content\":"
                      "\"r\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                      "\"parameters\":{\"type\":\"object\"}}}],\"format\":{\"type\":\"object\"}}");
    assert_true(p.rq.tools_count == 1 && p.rq.format.kind == API_FORMAT_SCHEMA);
    assert_true(str_eq_z(p.rq.messages[0].parts[1].text, "{\"a\":1}"));
    assert_true(p.rq.messages[1].parts[0].kind == API_PART_RESULT);
    assert_true(str_eq_z(p.rq.messages[1].parts[0].name, "f"));
    play_end(&p);
}

static void test_A32_every_wrong_field_is_named_with_what_was_expected(void **state)
{
    (void)state;
    static const struct play_wrong rows[] = {
        {CHAT, "{" USER "}", "model: required", ERR_REQUEST},
        {CHAT, "{\"model\":\"m\",\"messages\":{}}", "messages: array expected, got object",
         ERR_REQUEST},
        {CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"developer\"}]}",
         "messages[0].role: one of system, user, assistant, tool expected", ERR_REQUEST},
        {CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":5}]}",
         "messages[0].content: string or array expected, got number", ERR_REQUEST},
        {CHAT, BODY(",\"options\":[]"), "options: object expected, got array", ERR_REQUEST},
        {CHAT, BODY(",\"options\":{\"temperature\":6}"),
         "options.temperature: number from 0 to 5 expected, got 6", ERR_REQUEST},
        {CHAT, BODY(",\"options\":{\"num_ctx\":0}"), "options.num_ctx: at least 1", ERR_REQUEST},
        {CHAT, BODY(",\"options\":{\"num_predict\":-3}"),
         "options.num_predict: integer from -2 to 2147483647 expected, got -3", ERR_REQUEST},
        {CHAT, BODY(",\"options\":{\"repeat_last_n\":-2}"), "options.repeat_last_n: integer from",
         ERR_REQUEST},
        {CHAT, BODY(",\"options\":{\"tfs_z\":0.5}"), "options.tfs_z: only 1 is supported",
         ERR_REQUEST},
        {CHAT, BODY(",\"options\":{\"mirostat\":2}"), "options.mirostat: only 0 is supported",
         ERR_REQUEST},
        {CHAT, BODY(",\"keep_alive\":true"), "keep_alive: seconds or a duration", ERR_REQUEST},
        {CHAT, BODY(",\"keep_alive\":\"soon\""), "keep_alive: seconds or a duration", ERR_REQUEST},
        {CHAT, BODY(",\"top_logprobs\":1"), "top_logprobs: needs logprobs: true", ERR_REQUEST},
        {CHAT, BODY(",\"logprobs\":true,\"top_logprobs\":21"), "top_logprobs: integer from 0 to 20",
         ERR_REQUEST},
        {CHAT, BODY(",\"format\":\"yaml\""), "format: \"json\" or a schema expected", ERR_REQUEST},
        {CHAT, BODY(",\"think\":5"), "think: boolean or string expected", ERR_REQUEST},
        {CHAT, BODY(",\"think\":\"huge\""), "think: one of none, minimal", ERR_REQUEST},
        {GENERATE, PROMPT(",\"template\":\"x\""), "template: this field is not supported",
         ERR_REQUEST},
        {GENERATE, PROMPT(",\"context\":[1]"), "context: this field is not supported",
         ERR_REQUEST},
        {GENERATE, PROMPT(",\"raw\":true,\"system\":\"s\""), "system: not with raw or suffix",
         ERR_REQUEST},
        {"POST /api/show", "{}", "model: required", ERR_REQUEST},
        {CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"images\":[7]}]}",
         "messages[0].images[0]: string expected, got number", ERR_REQUEST},
        {GENERATE, PROMPT(",\"images\":{}"), "images: array expected, got object", ERR_REQUEST},
        {"POST /api/embed", "{}", "POST /api/embed is not built yet", ERR_UNSUPPORTED},
        {"POST /api/embeddings", "{}", "POST /api/embeddings is not built yet", ERR_UNSUPPORTED},
        {"POST /api/push", "", "POST /api/push is not built yet", ERR_UNSUPPORTED},
        {"POST /api/create", "", "POST /api/create is not built yet", ERR_UNSUPPORTED},
        {"POST /api/copy", "", "POST /api/copy is not built yet", ERR_UNSUPPORTED},
        {"POST /api/blobs/sha256:00", "", "POST /api/blobs/{} is not built", ERR_UNSUPPORTED},
    };
    play_refuse(rows, countof(rows));
}

/* ---- Replies ---- */

#define HEAD "{\"model\":\"m\",\"created_at\":\"2026-07-25T17:20:00Z\","
#define SHOAL(finish) "\"shoal\":{\"request_id\":\"req_0123456789abcdefABCDEF\","              \
    "\"leg\":\"local\",\"model\":\"m.gguf\",\"seed\":42,\"finish\":\"" finish "\",\"timings\":{"\
    "\"queue_ms\":0.0,\"load_ms\":0.0,\"prefill_ms\":1.0,\"decode_ms\":2.0,\"prefill_tps\":"    \
    "5000.0,\"decode_tps\":3000.0},\"cache\":{\"prompt\":9,\"cached\":4,\"reason\":null},"      \
    "\"warnings\":[]}}"
#define TIMES "\"total_duration\":77,\"load_duration\":5,\"prompt_eval_count\":9,"              \
    "\"prompt_eval_duration\":1000000,\"eval_count\":6,\"eval_duration\":2000000,"

static void talk(struct play *p, enum api_done reason)
{
    p->st->total_ns = 77;
    play_started(p);
    play_think(p, "hm");
    play_say(p, "a\n");
    play_say(p, "b");
    play_usage(p);
    play_done(p, 0, reason);
    assert_true(p->st->is_over);
}

static void test_a_chat_streams_one_object_a_line(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, CHAT, BODY(""));
    talk(&p, API_DONE_EOS);
    play_wrote(&p,
        HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\"},"
        "\"done\":false}\n"
        HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"a\\n\"},\"done\":false}\n"
        HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"b\"},\"done\":false}\n"
        HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,"
        "\"done_reason\":\"stop\"," TIMES SHOAL("eos") "\n");
    play_end(&p);
}

static void test_a_chat_that_is_not_streamed_is_one_object(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, CHAT, BODY(",\"stream\":false"));
    talk(&p, API_DONE_MAX_TOKENS);
    play_wrote(&p,
        HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"a\\nb\",\"thinking\":\"hm\"},"
        "\"done\":true,\"done_reason\":\"length\"," TIMES SHOAL("max_tokens"));
    play_end(&p);
}

static void test_generate_answers_in_response(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, GENERATE, PROMPT(",\"stream\":false"));
    talk(&p, API_DONE_DEADLINE);
    play_wrote(&p, HEAD "\"response\":\"a\\nb\",\"thinking\":\"hm\",\"done\":true,"
                   "\"done_reason\":\"timeout\"," TIMES SHOAL("deadline"));
    play_end(&p);
    play_ok(&p, GENERATE, PROMPT(""));
    play_started(&p);
    play_say(&p, "x");
    play_wrote(&p, HEAD "\"response\":\"x\",\"done\":false}\n");
    play_end(&p);
}

static void test_a_model_is_loaded_and_unloaded_in_one_object(void **state)
{
    (void)state;
    static const struct {
        const char *body, *reason;
    } rows[] = {{"{\"model\":\"m\"}", "load"}, {"{\"model\":\"m\",\"keep_alive\":0}", "unload"}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct play p = {.ok = false};
        struct api_model m = {.name = STR("m")};
        char want[300];
        play_ok(&p, CHAT, rows[i].body);
        play_event(&p, 0, (struct api_event){.kind = API_EVENT_MODELS, .models = {&m, 1}});
        play_done(&p, 0, API_DONE_EOS);
        snprintf(want, sizeof want, HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"\"},"
                 "\"done\":true,\"done_reason\":\"%s\",\"shoal\":{", rows[i].reason);
        assert_true(str_starts(buf_view(&p.out), str_of(want)));
        assert_true(str_ends(buf_view(&p.out), STR("}\n")) && p.st->is_over);
        play_json(&p, buf_view(&p.out));
        play_end(&p);
    }
}

static void test_a_call_is_one_object_with_its_arguments_as_an_object(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        struct play p = {.ok = false};
        play_ok(&p, CHAT, stream ? BODY("") : BODY(",\"stream\":false"));
        play_started(&p);
        play_call(&p, 0, "call_a", "{\"a\":\n \"x\"}"); /* one line all the same */
        play_call(&p, 1, "call_b", "5");
        play_usage(&p);
        play_done(&p, 0, API_DONE_CALLS);
        str all = buf_view(&p.out);
        str a = STR("{\"id\":\"call_a\",\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":"
                    "{\"a\":\"x\"}}}");
        str b = STR("{\"id\":\"call_b\",\"function\":{\"index\":1,\"name\":\"f\",\"arguments\":"
                    "{}}}");
        assert_true(str_find(all, a) != STR_NONE && str_find(all, b) != STR_NONE);
        assert_true(str_find(all, STR("arguments_not_object; f")) != STR_NONE);
        assert_true(str_find(all, STR("\"done_reason\":\"tool_calls\"")) != STR_NONE);
        if (stream)
            assert_true(str_find(all, STR("}]},\"done\":false}\n")) != STR_NONE);
        play_end(&p);
    }
}

static void test_logprobs_stand_beside_their_text(void **state)
{
    (void)state;
    static const struct api_logprob one = {{7, -0.5f, STR_INIT("x")}, NULL, 0};
    for (int stream = 0; stream < 2; stream++) {
        struct play p = {.ok = false};
        play_ok(&p, CHAT, stream ? BODY(",\"logprobs\":true")
                                 : BODY(",\"logprobs\":true,\"stream\":false"));
        play_started(&p);
        play_event(&p, 0, (struct api_event){.kind = API_EVENT_CONTENT,
                                             .text = {STR("x"), &one, 1}});
        play_usage(&p);
        play_done(&p, 0, API_DONE_EOS);
        assert_true(str_find(buf_view(&p.out),
                             STR("\"content\":\"x\"},\"logprobs\":[{\"token\":\"x\",\"logprob\":"
                                 "-0.5,\"bytes\":[120],\"top_logprobs\":[]}],\"done\":")) !=
                    STR_NONE);
        play_end(&p);
    }
}

static void test_a_ping_is_an_empty_object(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    struct dialect_ping ping = {.phase = "prefill", .eta_ms = -1};
    play_ok(&p, CHAT, BODY(""));
    p.d->write_ping(&p.out, p.st, &ping);
    play_wrote(&p, HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":false}\n");
    assert_true(p.st->is_begun);
    play_fail(&p, ERR_ENGINE, "the engine is lost");
    assert_true(str_ends(buf_view(&p.out), STR("\"done\":true,\"done_reason\":\"error\",\"error\":"
                         "\"the engine is lost\",\"code\":\"engine_unavailable\"}\n")));
    play_end(&p);
}

static void test_an_error_before_the_first_byte_is_the_whole_body(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    struct api_error e;
    play_ok(&p, CHAT, BODY(""));
    api_error_set(&e, ERR_CONTEXT, "", STR("messages"), "too long");
    e.prompt_tokens = 5000;
    e.limit = 4096;
    assert_int_equal(dialect_status(p.st, &e), 413);
    p.d->write_error(&p.out, p.st, &e);
    play_wrote(&p, "{\"error\":\"prompt has 5000 tokens, limit is 4096\",\"code\":"
                   "\"context_length_exceeded\",\"prompt_tokens\":5000,\"limit\":4096}");
    play_end(&p);
}

/* ---- Models ---- */

static const struct api_model models[] = {
    {.name = STR_INIT("smol"), .context_max = 2048, .caps = API_CAP_CHAT | API_CAP_TOOLS,
     .digest = STR_INIT("ab"), .bytes = 7, .family = STR_INIT("llama"), .parameters = 134515008,
     .quant = STR_INIT("Q4_1"), .modified_s = 951782400, .expires_s = 1785000300,
     .device_bytes = 12, .gpu_bytes = 9, .info = STR_INIT("{\"general.architecture\":\"llama\"}"),
     .chat_template = STR_INIT("{{ x }}"), .license = STR_INIT("apache-2.0")},
    {.name = STR_INIT("emb"), .caps = API_CAP_EMBED, .expires_s = -1},
};

static void answer(struct play *p, const char *target, uint32_t count)
{
    play_ok(p, target, strncmp(target, "GET", 3) == 0 ? "" : "{\"name\":\"smol\"}");
    for (uint32_t i = 0; i < count; i++) /* one event or several */
        play_event(p, 0, (struct api_event){.kind = API_EVENT_MODELS, .models = {&models[i], 1}});
    play_done(p, 0, API_DONE_EOS);
    assert_true(p->st->is_over);
}

#define SMOL "{\"name\":\"smol\",\"model\":\"smol\",\"modified_at\":\"2000-02-29T00:00:00Z\","  \
    "\"size\":7,\"digest\":\"ab\"," DETAILS
#define DETAILS "\"details\":{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":\"llama\","  \
    "\"families\":[\"llama\"],\"parameter_size\":\"134.52M\",\"quantization_level\":\"Q4_1\"}"

static void test_models_are_listed_shown_and_seen_running(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    answer(&p, "GET /api/tags", 0);
    play_wrote(&p, "{\"models\":[]}");
    play_end(&p);
    answer(&p, "GET /api/tags", 1);
    play_wrote(&p, "{\"models\":[" SMOL "}]}");
    play_end(&p);
    answer(&p, "GET /api/ps", 2);
    assert_true(str_starts(buf_view(&p.out),
                           STR("{\"models\":[" SMOL ",\"expires_at\":\"2026-07-25T17:25:00Z\","
                               "\"size_vram\":9,\"context_length\":2048},")));
    struct json second = json_at(json_member(play_json(&p, buf_view(&p.out)), "models"), 1);
    assert_int_equal(json_kind(json_member(second, "expires_at")), JSON_KIND_ABSENT);
    play_end(&p);
    answer(&p, "POST /api/show", 1);
    play_wrote(&p, "{\"license\":\"apache-2.0\",\"parameters\":\"\",\"template\":\"{{ x }}\","
                   DETAILS ",\"model_info\":{\"general.architecture\":\"llama\"},"
                   "\"capabilities\":[\"completion\",\"tools\"],"
                   "\"modified_at\":\"2000-02-29T00:00:00Z\"}");
    play_end(&p);
}

static void test_a_model_without_metadata_shows_what_is_known(void **state)
{
    (void)state;
    struct api_model m = models[0];
    struct play p = {.ok = false};
    m.info = (str){NULL, 0};
    play_ok(&p, "POST /api/show", "{\"model\":\"smol\"}");
    play_event(&p, 0, (struct api_event){.kind = API_EVENT_MODELS, .models = {&m, 1}});
    play_done(&p, 0, API_DONE_EOS);
    assert_true(str_find(buf_view(&p.out),
                         STR("\"model_info\":{\"general.architecture\":\"llama\","
                             "\"general.parameter_count\":134515008,"
                             "\"llama.context_length\":2048},")) != STR_NONE);
    play_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_smallest_chat_streams_with_the_defaults_of_ollama),
        cmocka_unit_test(test_every_option_arrives),
        cmocka_unit_test(test_images_are_parts_behind_the_text),
        cmocka_unit_test(test_seeds_0_and_minus_1_are_drawn),
        cmocka_unit_test(test_keep_alive_in_every_spelling),
        cmocka_unit_test(test_loading_unloading_and_filling_the_cache),
        cmocka_unit_test(test_generate_is_a_chat_of_one_turn_or_a_raw_text),
        cmocka_unit_test(test_a_history_that_ends_with_the_assistant_is_continued),
        cmocka_unit_test(test_neutral_values_of_what_is_not_built_are_no_news),
        cmocka_unit_test(test_tools_calls_and_results_are_read),
        cmocka_unit_test(test_A32_every_wrong_field_is_named_with_what_was_expected),
        cmocka_unit_test(test_a_chat_streams_one_object_a_line),
        cmocka_unit_test(test_a_chat_that_is_not_streamed_is_one_object),
        cmocka_unit_test(test_generate_answers_in_response),
        cmocka_unit_test(test_a_model_is_loaded_and_unloaded_in_one_object),
        cmocka_unit_test(test_a_call_is_one_object_with_its_arguments_as_an_object),
        cmocka_unit_test(test_logprobs_stand_beside_their_text),
        cmocka_unit_test(test_a_ping_is_an_empty_object),
        cmocka_unit_test(test_an_error_before_the_first_byte_is_the_whole_body),
        cmocka_unit_test(test_models_are_listed_shown_and_seen_running),
        cmocka_unit_test(test_a_model_without_metadata_shows_what_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
