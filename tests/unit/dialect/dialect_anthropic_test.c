#include "dialect_play.h"

#define MESSAGES "POST /v1/messages"
#define COUNT "POST /v1/messages/count_tokens"
#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define BODY(more) "{\"model\":\"m\",\"max_tokens\":9," USER more "}"
#define WITH(messages) "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[" messages "]}"

/* ---- Requests ---- */

static void test_the_smallest_request_has_the_defaults_of_the_protocol(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, MESSAGES, "{\"model\":\"m\"," USER "}");
    assert_true(p.rq.kind == API_KIND_CHAT && !p.rq.stream && p.rq.given == 0);
    assert_true(p.rq.temperature == 1 && p.rq.top_k == 0 && p.rq.tokens_max == 0);
    assert_true(p.rq.messages_count == 1 && p.rq.notes_count == 0);
    play_end(&p);
}

static void test_every_field_arrives(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, MESSAGES, BODY(
        ",\"stream\":true,\"temperature\":0.5,\"top_p\":0.9,\"top_k\":7,\"stop_sequences\":"
        "[\"a\",\"b\"],\"system\":[{\"type\":\"text\",\"text\":\"s1\",\"cache_control\":{\"type\":"
        "\"ephemeral\"}},{\"type\":\"text\",\"text\":\"s2\"}],\"thinking\":{\"type\":\"disabled\"},"
        "\"output_config\":{\"effort\":\"high\"},\"metadata\":{\"user_id\":\"user_1_account__"
        "session_00000000-1111-2222-3333-44444444abcd\"},\"tool_choice\":{\"type\":\"none\"},"
        "\"tools\":[]"));
    const struct api_request *r = &p.rq;
    assert_true(r->stream && r->tokens_max == 9 && r->temperature == 0.5f && r->top_p == 0.9f);
    assert_true(r->top_k == 7 && r->stop_count == 2 && r->think == API_THINK_OFF);
    assert_true(r->effort == API_EFFORT_HIGH && r->tool_choice == API_TOOL_CHOICE_NONE);
    assert_true(str_eq_z(r->session, "00000000-1111-2222-3333-44444444abcd"));
    assert_true(str_starts(r->agent, STR("user_1_account__session_")));
    assert_true(r->messages_count == 2 && r->messages[0].role == API_ROLE_SYSTEM);
    assert_true(r->messages[0].parts_count == 2 && str_eq_z(r->messages[0].parts[1].text, "s2"));
    assert_int_equal(r->notes_count, 0);
    play_end(&p);
}

static void test_no_tokens_fill_the_cache_only(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, MESSAGES, "{\"model\":\"m\",\"max_tokens\":0," USER "}");
    assert_int_equal(p.rq.kind, API_KIND_PREFILL);
    play_usage(&p);
    play_done(&p, 0, API_DONE_EOS);
    assert_true(str_find(buf_view(&p.out), STR("\"content\":[],\"stop_reason\":\"max_tokens\"")) !=
                STR_NONE);
    play_end(&p);
}

static void test_A02_system_turns_stand_where_they_were_sent(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, MESSAGES, "{\"model\":\"m\",\"system\":\"first\",\"messages\":["
                          "{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"system\",\"content\":"
                          "[{\"type\":\"text\",\"text\":\"b\"}]},"
                          "{\"role\":\"user\",\"content\":\"c\"}]}");
    static const enum api_role roles[] = {API_ROLE_SYSTEM, API_ROLE_USER, API_ROLE_SYSTEM,
                                          API_ROLE_USER};
    assert_int_equal(p.rq.messages_count, 4);
    for (size_t i = 0; i < countof(roles); i++)
        assert_int_equal(p.rq.messages[i].role, roles[i]);
    assert_false(p.rq.continue_last);
    play_end(&p);
}

static void test_A01_the_checksum_of_a_request_is_zeroed_in_its_line_alone(void **state)
{
    (void)state;
#define LINE(cch) "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; "      \
    "cch=" cch ";"
    static const struct {
        const char *system, *text;
        bool keeps;
    } rows[] = {
        {"[{\"type\":\"text\",\"text\":\"" LINE("fa690") "\"},{\"type\":\"text\",\"text\":\"b\"}]",
         LINE("00000"), false},
        {"\"" LINE("fa690") "\\nYou are cch=12345;\"", LINE("00000") "\nYou are cch=12345;", false},
        {"\"" LINE("fa690") "\"", LINE("fa690"), true},
        {"\"say " LINE("fa690") "\"", "say " LINE("fa690"), false},
        {"\"x-anthropic-billing-header: a\\ncch=1\"", "x-anthropic-billing-header: a\ncch=1",
         false},
        {"\"x-anthropic-billing-header: cch=ab\"", "x-anthropic-billing-header: cch=00", false},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        char body[512];
        struct play p = {.keeps_client_header = rows[i].keeps};
        snprintf(body, sizeof body, "{\"model\":\"m\"," USER ",\"system\":%s}", rows[i].system);
        play_ok(&p, MESSAGES, body);
        if (!str_eq_z(p.rq.messages[0].parts[0].text, rows[i].text))
            fail_msg("%.*s", STR_ARG(p.rq.messages[0].parts[0].text));
        assert_int_equal(play_has_note(&p, "normalised", "system"),
                         strstr(rows[i].text, "=00") != NULL);
        play_end(&p);
    }
}

static void test_A03_unknown_blocks_become_text_or_a_warning(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, MESSAGES, WITH(
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\","
        "\"input\":{\"a\":1}},{\"type\":\"server_tool_use\",\"id\":\"s\",\"name\":\"web\"}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\","
        "\"content\":[{\"type\":\"tool_reference\",\"tool_name\":\"g\"},{\"type\":\"document\","
        "\"source\":{\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":\"doc\"}},"
        "{\"type\":\"document\",\"source\":{\"type\":\"url\",\"url\":\"u\"}},"
        "{\"type\":\"made_up\",\"text\":\"kept\"},{\"type\":\"other\",\"content\":\"too\"},"
        "{\"type\":\"image\",\"source\":{}},{}]},{\"type\":\"text\",\"text\":\"go on\"}]}"));
    const struct api_message *m = p.rq.messages;
    static const char *const texts[] = {"doc", "[a document was omitted]", "kept", "too",
                                        "[an image was omitted: this model does not see images]",
                                        "go on"};
    assert_true(m[0].parts_count == 1 && str_eq_z(m[0].parts[0].text, "{\"a\":1}"));
    assert_int_equal(m[1].parts_count, countof(texts));
    for (size_t i = 0; i < countof(texts); i++) {
        assert_true(str_eq_z(m[1].parts[i].text, texts[i]));
        assert_int_equal(m[1].parts[i].kind, i < 5 ? API_PART_RESULT : API_PART_TEXT);
    }
    assert_true(play_has_note(&p, "block_dropped", "messages[0].content[1]"));
    assert_true(play_has_note(&p, "block_dropped", "messages[1].content[0].content[0]"));
    assert_true(play_has_note(&p, "image_omitted", "messages[1].content[0].content[5]"));
    assert_true(play_has_note(&p, "file_omitted", "messages[1].content[0].content[2]"));
    play_end(&p);
}

static void test_results_that_fail_or_have_no_call_say_so(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, MESSAGES, WITH(
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\"}"
        "]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\","
        "\"is_error\":true,\"content\":\"bad\\u0000x\"},{\"type\":\"tool_result\",\"tool_use_id\":"
        "\"t2\",\"content\":\"r\"},{\"type\":\"tool_result\",\"tool_use_id\":\"t1\"}]}"));
    const struct api_part *parts = p.rq.messages[1].parts;
    assert_int_equal(p.rq.messages[1].parts_count, 3);
    assert_true(str_eq(parts[0].text, STR("[tool error] bad\0x")) && parts[0].is_error);
    assert_true(parts[1].kind == API_PART_TEXT);
    assert_true(str_eq_z(parts[1].text, "[result of the unknown call t2] r"));
    assert_true(parts[2].kind == API_PART_RESULT && parts[2].text.len == 0);
    play_end(&p);
}

static void test_A04_thinking_comes_back_whatever_its_signature(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, MESSAGES, WITH(
        "{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":["
        "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},"
        "{\"type\":\"redacted_thinking\",\"data\":\"zz\"},{\"type\":\"text\",\"text\":\"a\"}]}"));
    const struct api_message *m = &p.rq.messages[1];
    assert_true(m->parts_count == 2 && m->parts[0].kind == API_PART_REASONING);
    assert_true(str_eq_z(m->parts[0].text, "hm") && p.rq.continue_last);
    assert_int_equal(p.rq.notes_count, 0);
    play_end(&p);
}

/* Its newest clients put the ids into an object: who it is stays the same from session to session,
 * so that its prefixes are found again. */
static void test_a_user_id_that_is_an_object_names_the_session_and_one_agent(void **state)
{
    static const char *const sessions[] = {"00000000-1111-2222-3333-44444444abcd",
                                           "00000000-1111-2222-3333-44444444abce"};
    char agents[2][64], body[512];
    (void)state;
    for (size_t i = 0; i < countof(sessions); i++) {
        struct play p = {.ok = false};
        snprintf(body, sizeof body,
                 "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":"
                 "\"x\"}],\"metadata\":{\"user_id\":\"{\\\"device_id\\\":\\\"0cfcd73f\\\","
                 "\\\"account_uuid\\\":\\\"\\\",\\\"session_id\\\":\\\"%s\\\"}\"}}", sessions[i]);
        play_ok(&p, MESSAGES, body);
        assert_true(str_eq_z(p.rq.session, sessions[i]));
        snprintf(agents[i], sizeof agents[i], "%.*s", STR_ARG(p.rq.agent));
        play_end(&p);
    }
    assert_string_equal(agents[0], agents[1]);
    assert_string_equal(agents[0], "0cfcd73f");
}

/* Its body without tools: every field that the client sends in a session. */
static void test_what_claude_code_sends_is_taken(void **state)
{
    (void)state;
    struct play p = {0};
    play_ok(&p, MESSAGES, BODY(
        ",\"stream\":true,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":31999},"
        "\"context_management\":{\"edits\":[{\"type\":\"clear_thinking_20251015\"}]},"
        "\"service_tier\":\"auto\",\"betas\":[\"x\"],\"cache_control\":{\"type\":\"ephemeral\"},"
        "\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]"));
    assert_int_equal(p.rq.think, API_THINK_ON);
    assert_int_equal(p.rq.think_tokens_max, 31999);
    assert_true(play_has_note(&p, "ignored_field", "context_management"));
    assert_true(play_has_note(&p, "tool_skipped", "tools[0]") && p.rq.tools_count == 1);
    play_end(&p);
}

static void test_tools_and_the_choice_among_them_are_read(void **state)
{
    (void)state;
    struct play p = {0};
    play_ok(&p, MESSAGES, BODY(
        ",\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\",\"disable_parallel_tool_use\":true},"
        "\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"},"
        "\"strict\":true},{\"name\":\"g\",\"input_schema\":{}},{\"type\":\"bash_20250124\","
        "\"name\":\"bash\"}],\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":"
        "{\"type\":\"object\"}}}"));
    assert_true(p.rq.tools_count == 3 && p.rq.tools[0].strict && !p.rq.tools[0].allowed);
    assert_true(p.rq.tools[1].allowed && p.rq.tools[2].kind == API_TOOL_HOSTED);
    assert_true(p.rq.tool_choice == API_TOOL_CHOICE_NAMED && !p.rq.parallel_tool_calls);
    assert_int_equal(p.rq.format.kind, API_FORMAT_SCHEMA);
    play_end(&p);
    play_ask(&p, MESSAGES, BODY(",\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],"
                                "\"tool_choice\":{\"type\":\"tool\",\"name\":\"h\"}"));
    assert_true(!p.ok && p.e.err.code == ERR_REQUEST);
    play_end(&p);
}

static void test_A32_every_wrong_field_is_named_with_what_was_expected(void **state)
{
    (void)state;
    static const struct play_wrong rows[] = {
        {MESSAGES, "{\"model\":\"m\"}", "messages: required", ERR_REQUEST},
        {MESSAGES, "{" USER "}", "model: required", ERR_REQUEST},
        {MESSAGES, WITH(""), "messages: 1 to 16384 messages expected, got 0", ERR_REQUEST},
        {MESSAGES, WITH("5"), "messages[0]: object expected, got number", ERR_REQUEST},
        {MESSAGES, WITH("{\"content\":\"x\"}"), "messages[0].role: required", ERR_REQUEST},
        {MESSAGES, WITH("{\"role\":\"user\"}"), "messages[0].content: required", ERR_REQUEST},
        {MESSAGES, WITH("{\"role\":\"tool\",\"content\":\"\"}"),
         "messages[0].role: one of user, assistant, system expected", ERR_REQUEST},
        {MESSAGES, WITH("{\"role\":\"user\",\"content\":5}"),
         "messages[0].content: string or array expected, got number", ERR_REQUEST},
        {MESSAGES, WITH("{\"role\":\"user\",\"content\":[5]}"),
         "messages[0].content[0]: object expected, got number", ERR_REQUEST},
        {MESSAGES, WITH("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":5}]}"),
         "messages[0].content[0].text: string expected, got number", ERR_REQUEST},
        {MESSAGES, BODY(",\"system\":5"), "system: string or array expected, got number",
         ERR_REQUEST},
        {MESSAGES, "{\"model\":\"m\",\"max_tokens\":-1," USER "}",
         "max_tokens: integer from 0 to 2147483647 expected, got -1", ERR_REQUEST},
        {MESSAGES, BODY(",\"temperature\":9"), "temperature: number from 0 to 5", ERR_REQUEST},
        {MESSAGES, BODY(",\"top_k\":-1"), "top_k: integer from 0 to 2147483647", ERR_REQUEST},
        {MESSAGES, BODY(",\"stop_sequences\":[\"\"]"), "stop_sequences[0]: 1 to 256 bytes",
         ERR_REQUEST},
        {MESSAGES, BODY(",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":0}"),
         "thinking.budget_tokens: integer from 1 to", ERR_REQUEST},
        {MESSAGES, BODY(",\"thinking\":true"), "thinking: object expected, got boolean",
         ERR_REQUEST},
        {MESSAGES, BODY(",\"tool_choice\":\"auto\""), "tool_choice: object expected", ERR_REQUEST},
        {MESSAGES, BODY(",\"metadata\":5"), "metadata: object expected", ERR_REQUEST},
        {COUNT, "{}", "model: required", ERR_REQUEST},
    };
    play_refuse(rows, countof(rows));
}

/* ---- Replies ---- */

#define USAGE(output) "\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":4,"             \
    "\"cache_creation_input_tokens\":0,\"output_tokens\":" output ",\"service_tier\":\"standard\"}"
#define MESSAGE "\"id\":\"msg_0123456789abcdefABCDEF\",\"type\":\"message\",\"role\":"           \
    "\"assistant\",\"model\":\"m\","
#define SHOAL(finish) "\"shoal\":{\"request_id\":\"req_0123456789abcdefABCDEF\","               \
    "\"leg\":\"local\",\"model\":\"m.gguf\",\"seed\":42,\"finish\":\"" finish "\",\"timings\":{"\
    "\"queue_ms\":0.0,\"load_ms\":0.0,\"prefill_ms\":1.0,\"decode_ms\":2.0,\"prefill_tps\":"    \
    "5000.0,\"decode_tps\":3000.0},\"cache\":{\"prompt\":9,\"cached\":4,\"reason\":null},"      \
    "\"warnings\":[]}}"
#define START "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{" MESSAGE   \
    "\"content\":[],\"stop_reason\":null,\"stop_sequence\":null," USAGE("0") "}}\n\n"
#define BLOCK(i, what) "event: content_block_start\ndata: {\"type\":\"content_block_start\","  \
    "\"index\":" i ",\"content_block\":{" what "}}\n\n"
#define DELTA(i, what) "event: content_block_delta\ndata: {\"type\":\"content_block_delta\","  \
    "\"index\":" i ",\"delta\":{" what "}}\n\n"
#define STOP(i) "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":" i \
    "}\n\n"
#define SIGNATURE "shoal1.08ba5b07b55ebd0e"

static void talk(struct play *p)
{
    play_started(p);
    play_say(p, "\n");
    play_think(p, "hm");
    play_say(p, "\n\n");
    play_say(p, " a ");
    play_say(p, "b\n");
    play_call(p, 0, "toolu_a", "{}");
    play_say(p, " ");
    play_usage(p);
}

/* A05, A06: usage has numbers in every place; A07: one block after the other. */
static void test_A05_A06_A07_a_stream_opens_and_closes_one_block_after_the_other(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, MESSAGES, BODY(",\"stream\":true"));
    talk(&p);
    play_done(&p, 0, API_DONE_CALLS);
    assert_true(p.st->is_over);
    play_wrote(&p,
        START
        BLOCK("0", "\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"")
        DELTA("0", "\"type\":\"thinking_delta\",\"thinking\":\"hm\"")
        DELTA("0", "\"type\":\"signature_delta\",\"signature\":\"" SIGNATURE "\"")
        STOP("0")
        BLOCK("1", "\"type\":\"text\",\"text\":\"\"")
        DELTA("1", "\"type\":\"text_delta\",\"text\":\"a\"")
        DELTA("1", "\"type\":\"text_delta\",\"text\":\" \"")
        DELTA("1", "\"type\":\"text_delta\",\"text\":\"b\"")
        STOP("1")
        BLOCK("2", "\"type\":\"tool_use\",\"id\":\"toolu_a\",\"name\":\"f\",\"input\":{}")
        DELTA("2", "\"type\":\"input_json_delta\",\"partial_json\":\"{\"")
        DELTA("2", "\"type\":\"input_json_delta\",\"partial_json\":\"}\"")
        STOP("2")
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":"
        "\"tool_use\",\"stop_sequence\":null}," USAGE("6") "," SHOAL("tool_calls") "\n\n"
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    play_end(&p);
}

static void test_a_message_that_is_not_streamed_has_the_same_blocks(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, MESSAGES, BODY(""));
    talk(&p);
    play_done(&p, 0, API_DONE_CALLS);
    play_wrote(&p,
        "{" MESSAGE "\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\""
        SIGNATURE "\"},{\"type\":\"text\",\"text\":\"a b\"},{\"type\":\"tool_use\",\"id\":"
        "\"toolu_a\",\"name\":\"f\",\"input\":{}}],\"stop_reason\":\"tool_use\",\"stop_sequence\":"
        "null," USAGE("6") "," SHOAL("tool_calls"));
    play_end(&p);
}

static void test_blanks_at_both_ends_of_the_reply_count(void **state)
{
    (void)state;
    static const struct {
        const char *said, *content;
    } rows[] = {{" a \n", "\"content\":[{\"type\":\"text\",\"text\":\" a \\n\"}]"},
                {" \n ", "\"content\":[]"}, {"", "\"content\":[]"}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct play p = {.ok = false};
        play_ok(&p, MESSAGES, BODY(""));
        for (const char *at = rows[i].said; *at; at++)
            play_text(&p, 0, API_EVENT_CONTENT, str_view(at, 1));
        play_usage(&p);
        play_done(&p, 0, API_DONE_EOS);
        assert_true(str_find(buf_view(&p.out), str_of(rows[i].content)) != STR_NONE);
        play_end(&p);
    }
}

static void test_the_stop_sequence_is_named(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        struct play p = {.ok = false};
        play_ok(&p, MESSAGES, stream ? BODY(",\"stop_sequences\":[\"END\"],\"stream\":true")
                                     : BODY(",\"stop_sequences\":[\"END\"]"));
        play_started(&p);
        play_say(&p, "x");
        play_usage(&p);
        play_event(&p, 0, (struct api_event){.kind = API_EVENT_DONE,
                                             .done = {API_DONE_STOP_STRING, STR("END")}});
        assert_true(str_find(buf_view(&p.out), STR("\"stop_reason\":\"stop_sequence\","
                                                   "\"stop_sequence\":\"END\"")) != STR_NONE);
        play_end(&p);
    }
}

static void test_omitted_thinking_keeps_its_block_and_signature(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, MESSAGES, BODY(",\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"}"));
    play_started(&p);
    play_think(&p, "hm");
    play_say(&p, "a");
    play_usage(&p);
    play_done(&p, 0, API_DONE_EOS);
    assert_true(str_find(buf_view(&p.out),
                         STR("{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"" SIGNATURE
                             "\"},{\"type\":\"text\",\"text\":\"a\"}")) != STR_NONE);
    play_end(&p);
}

static void test_A28_a_ping_starts_the_message_and_shows_itself_twice(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    struct dialect_ping ping = {.phase = "queued", .eta_ms = -1};
    play_ok(&p, MESSAGES, BODY(",\"stream\":true"));
    play_event(&p, 0, (struct api_event){.kind = API_EVENT_QUEUED,
                                         .queued = {.prompt_tokens = 9, .cached_tokens = 4}});
    assert_int_equal(p.out.len, 0);
    p.d->write_ping(&p.out, p.st, &ping);
    p.d->write_ping(&p.out, p.st, &ping);
    str rest = buf_view(&p.out);
    assert_true(str_starts(rest, STR(START ": shoal {\"phase\":\"queued\"")));
    assert_true(str_ends(rest, STR("\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n")));
    assert_true(str_find(str_from(rest, 10), STR("message_start\n")) == STR_NONE);
    play_fail(&p, ERR_OVERLOADED, "the queue is full");
    assert_true(str_ends(buf_view(&p.out),
                         STR("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"
                             "\"overloaded_error\",\"message\":\"the queue is full\",\"code\":"
                             "\"overloaded\"},\"request_id\":\"req_0123456789abcdefABCDEF\"}"
                             "\n\n")));
    play_end(&p);
}

static void test_errors_before_the_first_byte_keep_their_status(void **state)
{
    (void)state;
    static const struct {
        enum err_code code;
        uint16_t overlong, status;
        const char *body;
    } rows[] = {
        {ERR_CONTEXT, 0, 400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\","
         "\"message\":\"prompt is too long: 5000 tokens > 4096 maximum\",\"code\":"
         "\"context_length_exceeded\",\"prompt_tokens\":5000,\"limit\":4096},\"request_id\":"
         "\"req_0123456789abcdefABCDEF\"}"},
        {ERR_CONTEXT, 413, 413, "{\"type\":\"error\",\"error\":{\"type\":\"request_too_large\","
         "\"message\":\"prompt is too long: 5000 tokens > 4096 maximum\",\"code\":"
         "\"context_length_exceeded\",\"prompt_tokens\":5000,\"limit\":4096},\"request_id\":"
         "\"req_0123456789abcdefABCDEF\"}"},
        {ERR_OVERLOADED, 0, 529, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
         "\"message\":\"x\",\"code\":\"overloaded\"},\"request_id\":"
         "\"req_0123456789abcdefABCDEF\"}"},
        {ERR_NOT_FOUND, 0, 404, "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\","
         "\"message\":\"x\",\"code\":\"model_not_found\"},\"request_id\":"
         "\"req_0123456789abcdefABCDEF\"}"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct play p = {.ok = false};
        struct api_error e;
        play_ok(&p, MESSAGES, BODY(",\"stream\":true"));
        p.st->overlong_status = rows[i].overlong;
        api_error_set(&e, rows[i].code, "", STR(""), "x");
        e.prompt_tokens = 5000;
        e.limit = 4096;
        assert_int_equal(dialect_status(p.st, &e), rows[i].status);
        p.d->write_error(&p.out, p.st, &e);
        play_wrote(&p, rows[i].body);
        play_end(&p);
    }
}

static void test_count_tokens_answers_with_the_sum(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, COUNT, "{\"model\":\"m\",\"stream\":true," USER "}");
    assert_true(p.rq.kind == API_KIND_COUNT && !p.rq.stream);
    play_event(&p, 0, (struct api_event){.kind = API_EVENT_TOKENS, .tokens.tokens_count = 9});
    play_usage(&p);
    play_done(&p, 0, API_DONE_EOS);
    play_wrote(&p, "{\"input_tokens\":9}");
    play_end(&p);
}

static void test_a_reply_longer_than_its_limit_is_an_error(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, MESSAGES, BODY(""));
    p.st->reply_max = 50;
    play_started(&p);
    for (int i = 0; i < 20; i++)
        play_say(&p, "12345");
    assert_true(p.st->is_over && str_starts(buf_view(&p.out), STR("{\"type\":\"error\"")));
    play_json(&p, buf_view(&p.out));
    play_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_smallest_request_has_the_defaults_of_the_protocol),
        cmocka_unit_test(test_every_field_arrives),
        cmocka_unit_test(test_no_tokens_fill_the_cache_only),
        cmocka_unit_test(test_A02_system_turns_stand_where_they_were_sent),
        cmocka_unit_test(test_A01_the_checksum_of_a_request_is_zeroed_in_its_line_alone),
        cmocka_unit_test(test_A03_unknown_blocks_become_text_or_a_warning),
        cmocka_unit_test(test_results_that_fail_or_have_no_call_say_so),
        cmocka_unit_test(test_A04_thinking_comes_back_whatever_its_signature),
        cmocka_unit_test(test_a_user_id_that_is_an_object_names_the_session_and_one_agent),
        cmocka_unit_test(test_what_claude_code_sends_is_taken),
        cmocka_unit_test(test_tools_and_the_choice_among_them_are_read),
        cmocka_unit_test(test_A32_every_wrong_field_is_named_with_what_was_expected),
        cmocka_unit_test(test_A05_A06_A07_a_stream_opens_and_closes_one_block_after_the_other),
        cmocka_unit_test(test_a_message_that_is_not_streamed_has_the_same_blocks),
        cmocka_unit_test(test_blanks_at_both_ends_of_the_reply_count),
        cmocka_unit_test(test_the_stop_sequence_is_named),
        cmocka_unit_test(test_omitted_thinking_keeps_its_block_and_signature),
        cmocka_unit_test(test_A28_a_ping_starts_the_message_and_shows_itself_twice),
        cmocka_unit_test(test_errors_before_the_first_byte_keep_their_status),
        cmocka_unit_test(test_count_tokens_answers_with_the_sum),
        cmocka_unit_test(test_a_reply_longer_than_its_limit_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
