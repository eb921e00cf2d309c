#include "dialect_play.h"

#define RESPONSES "POST /v1/responses"
#define BODY(more) "{\"model\":\"m\",\"input\":\"hi\"" more "}"
#define WITH(items) "{\"model\":\"m\",\"input\":[" items "]}"

/* ---- Requests ---- */

static void test_the_smallest_request_has_the_defaults_of_the_protocol(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, RESPONSES, BODY(""));
    assert_true(p.rq.kind == API_KIND_CHAT && !p.rq.stream && p.rq.given == 0);
    assert_true(p.rq.messages_count == 1 && p.rq.messages[0].role == API_ROLE_USER);
    assert_true(str_eq_z(p.rq.messages[0].parts[0].text, "hi") && p.rq.notes_count == 0);
    play_end(&p);
}

/* What Codex sends, without its own tools. */
static void test_every_field_arrives(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, RESPONSES, BODY(
        ",\"instructions\":\"be brief\",\"stream\":true,\"temperature\":0.5,\"top_p\":0.9,"
        "\"max_output_tokens\":7,\"top_logprobs\":2,\"include\":[\"reasoning.encrypted_content\","
        "\"web_search_call.results\"],\"text\":{\"format\":{\"type\":\"text\"},\"verbosity\":"
        "\"low\"},\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"},\"tools\":[{\"type\":"
        "\"web_search\"}],\"tool_choice\":\"auto\",\"parallel_tool_calls\":false,"
        "\"prompt_cache_key\":\"s1\",\"store\":false,\"metadata\":{\"a\":\"b\"},\"user\":\"u\","
        "\"client_metadata\":{},\"previous_response_id\":null,\"background\":false"));
    const struct api_request *r = &p.rq;
    assert_true(r->messages_count == 2 && r->messages[0].role == API_ROLE_SYSTEM && r->stream);
    assert_true(r->temperature == 0.5f && r->top_p == 0.9f && r->tokens_max == 7);
    assert_true(r->logprobs == 3 && r->effort == API_EFFORT_LOW && !r->parallel_tool_calls);
    assert_true(str_eq_z(r->session, "s1") && str_eq_z(r->agent, "u") && r->tools_count == 1);
    assert_true(play_has_note(&p, "ignored_field", "include[1]"));
    assert_true(play_has_note(&p, "ignored_field", "text.verbosity"));
    assert_true(play_has_note(&p, "tool_skipped", "tools[0]"));
    assert_true(play_has_note(&p, "ignored_field", "client_metadata") && r->notes_count == 4);
    play_end(&p);
}

static void test_A10_items_become_turns(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, RESPONSES, WITH(
        "{\"role\":\"user\",\"content\":\"q\"},"
        "{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"r1\"}]},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
        "\"text\":\"a\",\"annotations\":[]}]},"
        "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{}\"},"
        "{\"type\":\"custom_tool_call\",\"call_id\":\"c2\",\"name\":\"g\",\"input\":\"x\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"o1\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":[{\"type\":"
        "\"input_text\",\"text\":\"o2\"},{\"type\":\"input_image\",\"image_url\":\"u\"}]},"
        "{\"type\":\"custom_tool_call_output\",\"call_id\":\"c2\",\"output\":[]},"
        "{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"shoal1.r2\"},"
        "{\"type\":\"local_shell_call\"}"));
    static const struct {
        enum api_role role;
        uint32_t parts;
        enum api_part_kind first;
        const char *text;
    } rows[] = {{API_ROLE_USER, 1, API_PART_TEXT, "q"},
                {API_ROLE_ASSISTANT, 4, API_PART_REASONING, "r1"},
                {API_ROLE_TOOL, 1, API_PART_RESULT, "o1"},
                {API_ROLE_TOOL, 2, API_PART_RESULT, "o2"},
                {API_ROLE_TOOL, 1, API_PART_RESULT, ""},
                {API_ROLE_ASSISTANT, 1, API_PART_REASONING, "r2"}};
    assert_int_equal(p.rq.messages_count, countof(rows));
    for (size_t i = 0; i < countof(rows); i++) {
        const struct api_message *m = &p.rq.messages[i];
        assert_true(m->role == rows[i].role && m->parts_count == rows[i].parts);
        assert_true(m->parts[0].kind == rows[i].first && str_eq_z(m->parts[0].text, rows[i].text));
    }
    assert_true(str_eq_z(p.rq.messages[1].parts[3].text, "{\"input\":\"x\"}"));
    assert_true(str_eq_z(p.rq.messages[3].parts[0].id, "c1"));
    assert_true(play_has_note(&p, "image_omitted", "input[6].output[1]"));
    assert_true(play_has_note(&p, "block_dropped", "input[9]"));
    play_end(&p);
}

static void test_A09_tools_of_every_type_are_read(void **state)
{
    (void)state;
    struct play p = {0};
    play_ok(&p, RESPONSES, BODY(
        ",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\"},"
        "\"strict\":true},{\"type\":\"namespace\",\"name\":\"ns\",\"tools\":[{\"type\":"
        "\"function\",\"name\":\"g\"}]},{\"type\":\"custom\",\"name\":\"c\",\"format\":{\"type\":"
        "\"grammar\"}},{\"type\":\"web_search\"},{\"type\":\"image_generation\"}],"
        "\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[{\"type\":"
        "\"function\",\"name\":\"g\"}]}"));
    assert_int_equal(p.rq.tools_count, 5);
    assert_true(p.rq.tools[0].strict && !p.rq.tools[0].allowed);
    assert_true(str_eq_z(p.rq.tools[1].name_space, "ns") && p.rq.tools[1].allowed);
    assert_true(p.rq.tools[2].kind == API_TOOL_CUSTOM);
    assert_true(p.rq.tools[4].kind == API_TOOL_HOSTED);
    assert_int_equal(p.rq.tool_choice, API_TOOL_CHOICE_REQUIRED);
    assert_true(play_has_note(&p, "grammar_not_enforced", "tools[2].format"));
    play_end(&p);
}

static void test_A32_every_wrong_field_is_named_with_what_was_expected(void **state)
{
    (void)state;
    static const struct play_wrong rows[] = {
        {RESPONSES, "{\"input\":\"x\"}", "model: required", ERR_REQUEST},
        {RESPONSES, "{\"model\":\"m\"}", "input: required", ERR_REQUEST},
        {RESPONSES, "{\"model\":\"m\",\"input\":5}", "input: string or array expected, got number",
         ERR_REQUEST},
        {RESPONSES, WITH(""), "input: 1 to 16384 items expected, got 0", ERR_REQUEST},
        {RESPONSES, WITH("5"), "input[0]: object expected, got number", ERR_REQUEST},
        {RESPONSES, WITH("{\"content\":\"x\"}"), "input[0].role: required", ERR_REQUEST},
        {RESPONSES, WITH("{\"role\":\"user\"}"), "input[0].content: required", ERR_REQUEST},
        {RESPONSES, WITH("{\"role\":\"user\",\"content\":[5]}"),
         "input[0].content[0]: object expected, got number", ERR_REQUEST},
        {RESPONSES, WITH("{\"type\":\"item_reference\",\"id\":\"x\"}"),
         "input[0]: replies are not stored", ERR_REQUEST},
        {RESPONSES, WITH("{\"type\":\"local_shell_call\"}"), "input: no item that a model can read",
         ERR_REQUEST},
        {RESPONSES, BODY(",\"previous_response_id\":\"resp_1\""),
         "previous_response_id: replies are not stored", ERR_REQUEST},
        {RESPONSES, BODY(",\"conversation\":\"c\""), "conversation: replies are not stored",
         ERR_REQUEST},
        {RESPONSES, BODY(",\"background\":true"), "background: replies are not stored",
         ERR_REQUEST},
        {RESPONSES, BODY(",\"max_output_tokens\":0"), "max_output_tokens: integer from 1 to",
         ERR_REQUEST},
        {RESPONSES, BODY(",\"truncation\":\"x\""), "truncation: one of disabled, auto expected",
         ERR_REQUEST},
        {RESPONSES, BODY(",\"reasoning\":{\"effort\":\"x\"}"), "reasoning.effort: one of none",
         ERR_REQUEST},
        {RESPONSES, BODY(",\"tools\":{}"), "tools: array expected, got object", ERR_REQUEST},
        {"GET /v1/responses/resp_1", "", "no response resp_1: replies are not stored",
         ERR_NOT_FOUND},
        {"DELETE /v1/responses/resp_1", "", "no response resp_1", ERR_NOT_FOUND},
    };
    play_refuse(rows, countof(rows));
}

/* ---- Replies ---- */

#define ID "0123456789abcdefABCDEF"
#define REST(effort) "\"instructions\":null,\"max_output_tokens\":null,\"model\":\"m\","          \
    "\"parallel_tool_calls\":true,\"previous_response_id\":null,\"reasoning\":{\"effort\":"     \
    effort ",\"summary\":null},\"store\":false,\"temperature\":1.0,\"text\":{\"format\":{"       \
    "\"type\":\"text\"}},\"tool_choice\":\"auto\",\"tools\":[],\"top_p\":1.0,\"truncation\":"    \
    "\"disabled\",\"user\":null,\"metadata\":{}"
#define BEGUN "{\"id\":\"resp_" ID "\",\"object\":\"response\",\"created_at\":1785000000,"      \
    "\"completed_at\":null,\"status\":\"in_progress\",\"background\":false,\"error\":null,"     \
    "\"incomplete_details\":null,\"output\":[]," REST("\"low\"") ",\"usage\":null}"
#define USAGE "\"usage\":{\"input_tokens\":9,\"input_tokens_details\":{\"cached_tokens\":4,"    \
    "\"cache_write_tokens\":0},\"output_tokens\":6,\"output_tokens_details\":{"                \
    "\"reasoning_tokens\":2},\"total_tokens\":15}"
#define SHOAL(finish) "\"shoal\":{\"request_id\":\"req_" ID "\","                              \
    "\"leg\":\"local\",\"model\":\"m.gguf\",\"seed\":42,\"finish\":\"" finish "\",\"timings\":{"\
    "\"queue_ms\":0.0,\"load_ms\":0.0,\"prefill_ms\":1.0,\"decode_ms\":2.0,\"prefill_tps\":"    \
    "5000.0,\"decode_tps\":3000.0},\"cache\":{\"prompt\":9,\"cached\":4,\"reason\":null},"      \
    "\"warnings\":[]}}"
#define DONE(items) "{\"id\":\"resp_" ID "\",\"object\":\"response\",\"created_at\":1785000000," \
    "\"completed_at\":1785000002,\"status\":\"completed\",\"background\":false,\"error\":null," \
    "\"incomplete_details\":null,\"output\":[" items "]," REST("\"low\"") "," USAGE ","          \
    SHOAL("tool_calls")
#define EVENT(name, n, more) "event: response." name "\ndata: {\"type\":\"response." name "\","  \
    "\"sequence_number\":" n "," more "}\n\n"
#define RS "rs_" ID "_0"
#define MSG "msg_" ID "_1"
#define FC "fc_" ID "_2"
#define IN(id, index) "\"item_id\":\"" id "\",\"output_index\":" index
#define SUMMARY "{\"type\":\"summary_text\",\"text\":\"hm\"}"
#define TEXT "{\"type\":\"output_text\",\"text\":\"a \\\"q\\\"\",\"annotations\":[],"         \
    "\"logprobs\":[]}"
#define REASONING_ITEM "{\"id\":\"" RS "\",\"type\":\"reasoning\",\"summary\":[" SUMMARY "]}"
#define MESSAGE_ITEM "{\"id\":\"" MSG "\",\"type\":\"message\",\"status\":\"completed\",\"role\":" \
    "\"assistant\",\"content\":[" TEXT "]}"
#define CALL_ITEM "{\"id\":\"" FC "\",\"type\":\"function_call\",\"status\":\"completed\","      \
    "\"call_id\":\"call_a\",\"name\":\"f\",\"arguments\":\"{}\"}"
#define ITEMS REASONING_ITEM "," MESSAGE_ITEM "," CALL_ITEM

static void talk(struct play *p)
{
    p->st->total_ns = 2500000000;
    play_started(p);
    play_think(p, "hm");
    play_say(p, "a ");
    play_say(p, "\"q\"");
    play_call(p, 0, "call_a", "{}");
    play_usage(p);
    play_done(p, 0, API_DONE_CALLS);
    assert_true(p->st->is_over);
}

static void test_A11_streamed_items_are_those_of_the_last_event(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, RESPONSES, BODY(",\"stream\":true,\"reasoning\":{\"effort\":\"low\"}"));
    talk(&p);
    play_wrote(&p,
        EVENT("created", "0", "\"response\":" BEGUN)
        EVENT("in_progress", "1", "\"response\":" BEGUN)
        EVENT("output_item.added", "2", "\"output_index\":0,\"item\":{\"id\":\"" RS "\",\"type\":"
              "\"reasoning\",\"summary\":[]}")
        EVENT("reasoning_summary_part.added", "3", IN(RS, "0") ",\"summary_index\":0,\"part\":{"
              "\"type\":\"summary_text\",\"text\":\"\"}")
        EVENT("reasoning_summary_text.delta", "4", IN(RS, "0") ",\"summary_index\":0,\"delta\":"
              "\"hm\"")
        EVENT("reasoning_summary_text.done", "5", IN(RS, "0") ",\"summary_index\":0,\"text\":"
              "\"hm\"")
        EVENT("reasoning_summary_part.done", "6", IN(RS, "0") ",\"summary_index\":0,\"part\":"
              SUMMARY)
        EVENT("output_item.done", "7", "\"output_index\":0,\"item\":" REASONING_ITEM)
        EVENT("output_item.added", "8", "\"output_index\":1,\"item\":{\"id\":\"" MSG "\",\"type\":"
              "\"message\",\"status\":\"in_progress\",\"role\":\"assistant\",\"content\":[]}")
        EVENT("content_part.added", "9", IN(MSG, "1") ",\"content_index\":0,\"part\":{\"type\":"
              "\"output_text\",\"text\":\"\",\"annotations\":[],\"logprobs\":[]}")
        EVENT("output_text.delta", "10", IN(MSG, "1") ",\"content_index\":0,\"delta\":\"a \","
              "\"logprobs\":[]")
        EVENT("output_text.delta", "11", IN(MSG, "1") ",\"content_index\":0,\"delta\":"
              "\"\\\"q\\\"\",\"logprobs\":[]")
        EVENT("output_text.done", "12", IN(MSG, "1") ",\"content_index\":0,\"text\":"
              "\"a \\\"q\\\"\",\"logprobs\":[]")
        EVENT("content_part.done", "13", IN(MSG, "1") ",\"content_index\":0,\"part\":" TEXT)
        EVENT("output_item.done", "14", "\"output_index\":1,\"item\":" MESSAGE_ITEM)
        EVENT("output_item.added", "15", "\"output_index\":2,\"item\":{\"id\":\"" FC "\",\"type\":"
              "\"function_call\",\"status\":\"in_progress\",\"call_id\":\"call_a\",\"name\":\"f\","
              "\"arguments\":\"\"}")
        EVENT("function_call_arguments.delta", "16", IN(FC, "2") ",\"delta\":\"{\"")
        EVENT("function_call_arguments.delta", "17", IN(FC, "2") ",\"delta\":\"}\"")
        EVENT("function_call_arguments.done", "18", IN(FC, "2") ",\"arguments\":\"{}\"")
        EVENT("output_item.done", "19", "\"output_index\":2,\"item\":" CALL_ITEM)
        EVENT("completed", "20", "\"response\":" DONE(ITEMS)));
    play_end(&p);
}

static void test_a_reply_that_is_not_streamed_is_the_object_of_the_last_event(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, RESPONSES, BODY(",\"reasoning\":{\"effort\":\"low\"}"));
    talk(&p);
    play_wrote(&p, DONE(ITEMS));
    play_end(&p);
}

/* What stands on several lines in the request stands on one in an event. */
static void test_the_object_repeats_the_request_on_one_line(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, RESPONSES, BODY(
        ",\"stream\":true,\"instructions\":\"a \\\"b\\\"\\n c\",\n\"tools\":[ {\n \"type\" : "
        "\"web_search\" } ],\"metadata\":{ \"k\":\t\"v v\\\\\" },\"user\":\"u\",\"truncation\":"
        "\"disabled\",\"max_output_tokens\":5,\"text\":{\"format\": {\"type\":\"text\"}}"));
    play_started(&p);
    play_say(&p, "x");
    str all = buf_view(&p.out), line;
    assert_true(str_find(all, STR("\"instructions\":\"a \\\"b\\\"\\n c\","
                                  "\"max_output_tokens\":5,")) != STR_NONE);
    assert_true(str_find(all, STR("\"tools\":[{\"type\":\"web_search\"}]")) != STR_NONE);
    assert_true(str_find(all, STR("\"user\":\"u\",\"metadata\":{\"k\":\"v v\\\\\"}")) != STR_NONE);
    while (str_split(&all, '\n', &line))
        assert_true(line.len == 0 || str_starts(line, STR("event: response.")) ||
                    str_starts(line, STR("data: {")));
    play_end(&p);
}

static void test_a_cut_reply_is_incomplete(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        struct play p = {.ok = false};
        play_ok(&p, RESPONSES, stream ? BODY(",\"stream\":true") : BODY(""));
        play_started(&p);
        play_say(&p, "x");
        play_usage(&p);
        play_done(&p, 0, API_DONE_MAX_TOKENS);
        str all = buf_view(&p.out);
        assert_true(str_find(all, STR("\"status\":\"incomplete\",\"background\":false,\"error\":"
                                      "null,\"incomplete_details\":{\"reason\":"
                                      "\"max_output_tokens\"}")) != STR_NONE);
        assert_true(str_find(all, STR("\"type\":\"message\",\"status\":\"incomplete\"")) !=
                    STR_NONE);
        if (stream)
            assert_true(str_find(all, STR("event: response.incomplete\n")) != STR_NONE);
        play_end(&p);
    }
}

static void test_logprobs_stand_in_deltas_and_in_the_item(void **state)
{
    (void)state;
    static const struct api_logprob one = {{7, -0.5f, STR_INIT("x")}, NULL, 0};
    static const char *const want = "\"logprobs\":[{\"token\":\"x\",\"logprob\":-0.5,\"bytes\":"
                                    "[120],\"top_logprobs\":[]}]";
    struct play p = {.ok = false};
    play_ok(&p, RESPONSES, BODY(",\"stream\":true,\"include\":[\"message.output_text.logprobs\"]"));
    assert_int_equal(p.rq.logprobs, 1);
    play_started(&p);
    play_event(&p, 0, (struct api_event){.kind = API_EVENT_CONTENT, .text = {STR("x"), &one, 1}});
    play_usage(&p);
    play_done(&p, 0, API_DONE_EOS);
    str all = buf_view(&p.out);
    for (int i = 0; i < 5; i++) { /* delta, text, part, item, response */
        size_t at = str_find(all, str_of(want));
        assert_true(at != STR_NONE);
        all = str_from(all, at + 1);
    }
    play_end(&p);
}

static void test_encrypted_content_is_there_when_asked_for_and_comes_back(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    play_ok(&p, RESPONSES, BODY(",\"include\":[\"reasoning.encrypted_content\"]"));
    talk(&p);
    assert_true(str_find(buf_view(&p.out), STR(SUMMARY "],\"encrypted_content\":\"shoal1.hm\"}")) !=
                STR_NONE);
    play_end(&p);
}

static void test_errors_before_and_in_the_stream(void **state)
{
    (void)state;
    struct play p = {.ok = false};
    struct dialect_ping ping = {.phase = "queued", .eta_ms = -1};
    play_ok(&p, RESPONSES, BODY(",\"stream\":true"));
    play_fail(&p, ERR_OVERLOADED, "full");
    play_wrote(&p, "{\"error\":{\"message\":\"full\",\"type\":\"server_busy\",\"param\":null,"
                   "\"code\":\"overloaded\"}}");
    play_end(&p);
    play_ok(&p, RESPONSES, BODY(",\"stream\":true"));
    p.d->write_ping(&p.out, p.st, &ping);
    assert_true(str_starts(buf_view(&p.out), STR("event: response.created\n")));
    assert_true(str_find(buf_view(&p.out), STR("}\n\n: shoal {\"phase\":\"queued\"")) != STR_NONE);
    play_started(&p);
    play_say(&p, "x");
    play_fail(&p, ERR_ENGINE, "lost");
    str all = buf_view(&p.out);
    size_t at = str_find(all, STR("event: response.failed\n"));
    assert_true(at != STR_NONE && p.st->is_over);
    assert_true(str_find(str_sub(all, 0, at), STR("event: response.output_item.done\n")) !=
                STR_NONE);
    assert_true(str_find(str_from(all, at), STR("\"status\":\"failed\",\"background\":false,"
                "\"error\":{\"code\":\"server_error\",\"message\":\"lost\"}")) != STR_NONE);
    play_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_smallest_request_has_the_defaults_of_the_protocol),
        cmocka_unit_test(test_every_field_arrives),
        cmocka_unit_test(test_A10_items_become_turns),
        cmocka_unit_test(test_A09_tools_of_every_type_are_read),
        cmocka_unit_test(test_A32_every_wrong_field_is_named_with_what_was_expected),
        cmocka_unit_test(test_A11_streamed_items_are_those_of_the_last_event),
        cmocka_unit_test(test_a_reply_that_is_not_streamed_is_the_object_of_the_last_event),
        cmocka_unit_test(test_the_object_repeats_the_request_on_one_line),
        cmocka_unit_test(test_a_cut_reply_is_incomplete),
        cmocka_unit_test(test_logprobs_stand_in_deltas_and_in_the_item),
        cmocka_unit_test(test_encrypted_content_is_there_when_asked_for_and_comes_back),
        cmocka_unit_test(test_errors_before_and_in_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
