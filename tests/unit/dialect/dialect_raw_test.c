/* A stream of an upstream to a client of the same protocol: what nobody here knows passes too. */
#include "dialect_play.h"

#include "base/chrono.h"
#include "dialect/dialect_client.h"
#include "wire/sse.h"

struct passing {
    struct play p;
    struct dialect_client_state *st;
    struct dialect_upstream leg;
    struct sse sse;
    uint32_t started;
};

static void on_batch(void *ctx, const struct api_batch *b)
{
    struct passing *a = ctx;
    for (uint32_t i = 0; i < b->events_count; i++) {
        a->started += b->events[i].kind == API_EVENT_STARTED;
        play_event(&a->p, b->choice, b->events[i]);
    }
}

static void on_event(void *ctx, str name, str data)
{
    struct passing *a = ctx;
    struct api_error e;
    if (!dialect_client_read(a->st, name, data, &e) && e.fault != API_FAULT_GARBAGE)
        fail_msg("%s", e.err.text);
}

static void pass_init(struct passing *a, const char *target, const char *body)
{
    *a = (struct passing){.leg = {.name = STR("leg"), .caps = API_CAP_ALL_}};
    play_ok(&a->p, target, body);
    a->st = calloc(1, a->p.d->client->state_size);
    dialect_client_init(a->st, a->p.d, &a->leg, &a->p.rq, (struct api_sink){on_batch, a});
    sse_init(&a->sse, SSE_FORM_EVENTS, 1 << 20);
    a->sse.on_event = on_event;
    a->sse.ctx = a;
}

static void pass_bytes(struct passing *a, const char *bytes)
{
    struct err e;
    assert_true(sse_feed(&a->sse, str_of(bytes), &e));
}

static void pass_end(struct passing *a)
{
    sse_deinit(&a->sse);
    dialect_client_deinit(a->st);
    free(a->st);
    play_end(&a->p);
}

/* The out's data of each event, one a line, without what `shoal` says. */
static void expect(struct passing *a, const char *want)
{
    struct buf got;
    buf_init(&got, 1 << 20);
    str rest = buf_view(&a->p.out), line;
    while (str_split(&rest, '\n', &line)) {
        size_t shoal = str_find(line, STR(",\"shoal\":{"));
        if (!str_starts(line, STR("data: ")))
            continue;
        buf_add(&got, str_from(str_sub(line, 0, shoal), 6));
        buf_add_z(&got, shoal == STR_NONE ? "\n" : ",SHOAL}\n");
    }
    if (!str_eq_z(buf_view(&got), want))
        fail_msg("\n want\n%s\n got\n%s", want, got.p);
    buf_deinit(&got);
}

#define MESSAGES "{\"model\":\"claude\",\"max_tokens\":9,\"stream\":true,\"messages\":[{\"role\":" \
                 "\"user\",\"content\":\"x\"}]}"
#define START "{\"type\":\"message_start\",\"message\":{\"id\":\"msg_up\",\"model\":\"claude-9\"," \
              "\"content\":[],\"usage\":{\"input_tokens\":3},\"x_new\":1}}"
#define OUR_START "{\"type\":\"message_start\",\"message\":{\"id\":" \
                  "\"msg_0123456789abcdefABCDEF\",\"model\":\"claude\",\"content\":[]," \
                  "\"usage\":{\"input_tokens\":3},\"x_new\":1}}"
static const char *const blocks[] = {
    "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\","
    "\"thinking\":\"\",\"signature\":\"\"}}",
    "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\","
    "\"thinking\":\"hm\"}}",
    "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\","
    "\"signature\":\"EqQBCgIYAhIM\"}}",
    "{\"type\":\"content_block_stop\",\"index\":0}",
    "{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":"
    "\"server_tool_use\",\"id\":\"srv\",\"name\":\"web_search\",\"input\":{}}}",
    "{\"type\":\"content_block_stop\",\"index\":1}",
    "{\"type\":\"x_new_event\",\"a\":[1.50]}",
    "{\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"text\","
    "\"text\":\"\"}}",
    "{\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"text_delta\",\"text\":"
    "\"so  \"}}",
};

static void add_event(struct buf *out, const char *json)
{
    buf_printf(out, "event: x\ndata: %s\n\n", json);
}

/* Ended here, in front of the next block and of the end. */
static void test_a_block_that_an_upstream_leaves_open_is_closed(void **state)
{
    static const char text[] = "{\"type\":\"content_block_start\",\"index\":%d,"
                               "\"content_block\":{\"type\":\"%s\",\"text\":\"\"}}";
    static const char delta[] = "{\"type\":\"content_block_delta\",\"index\":%d,\"delta\":{"
                                "\"type\":\"text_delta\",\"text\":\"a\"}}";
    static const char stop[] = "{\"type\":\"content_block_stop\",\"index\":%d}";
    struct passing a;
    struct buf in;
    char line[200];
    size_t at = 0;
    (void)state;
    buf_init(&in, 1 << 16);
    add_event(&in, START);
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, text, i, "text");
        add_event(&in, line);
        snprintf(line, sizeof line, delta, i);
        add_event(&in, line);
    }
    add_event(&in, "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},"
                   "\"usage\":{\"output_tokens\":2}}");
    add_event(&in, "{\"type\":\"message_stop\"}");
    pass_init(&a, "POST /v1/messages", MESSAGES);
    pass_bytes(&a, in.p);
    str got = buf_view(&a.p.out);
    for (int i = 0; i < 2; i++) { /* each once, behind its text */
        snprintf(line, sizeof line, stop, i);
        size_t next = str_find(got, str_of(line));
        assert_true(next != STR_NONE && next > at);
        assert_true(str_find(str_from(got, next + 1), str_of(line)) == STR_NONE);
        at = next;
    }
    snprintf(line, sizeof line, text, 1, "text");
    assert_true(str_find(got, STR("\"index\":0}")) < str_find(got, str_of(line)));
    assert_true(str_find(str_from(got, at), STR("message_delta")) != STR_NONE);
    pass_end(&a);
    buf_deinit(&in);
}

static void test_what_only_anthropic_knows_reaches_its_client(void **state)
{
    struct passing a;
    struct buf in, want;
    (void)state;
    buf_init(&in, 1 << 16);
    buf_init(&want, 1 << 16);
    add_event(&in, START);
    buf_add_z(&want, OUR_START "\n");
    for (size_t i = 0; i < countof(blocks); i++) {
        add_event(&in, blocks[i]);
        buf_printf(&want, "%s\n", blocks[i]);
    }
    add_event(&in, "{\"type\":\"content_block_stop\",\"index\":2}");
    add_event(&in, "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\","
                   "\"x_more\":2},\"usage\":{\"output_tokens\":4}}");
    add_event(&in, "{\"type\":\"message_stop\"}");
    buf_add_z(&want, "{\"type\":\"content_block_stop\",\"index\":2}\n"
                     "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\","
                     "\"x_more\":2},\"usage\":{\"output_tokens\":4},SHOAL}\n"
                     "{\"type\":\"message_stop\"}\n");
    pass_init(&a, "POST /v1/messages", MESSAGES);
    pass_bytes(&a, in.p);
    assert_true(a.p.st->is_over);
    assert_int_equal(a.started, 1);
    expect(&a, want.p);
    pass_end(&a);
    buf_deinit(&in);
    buf_deinit(&want);
}

/* The stream breaks inside block 2; another leg's words go on there, then a block of its own. */
static void test_another_leg_goes_on_in_the_open_block(void **state)
{
    struct passing a;
    struct buf in, want;
    (void)state;
    buf_init(&in, 1 << 16);
    buf_init(&want, 1 << 16);
    add_event(&in, START);
    buf_add_z(&want, OUR_START "\n");
    for (size_t i = 0; i < countof(blocks); i++) {
        add_event(&in, blocks[i]);
        buf_printf(&want, "%s\n", blocks[i]);
    }
    buf_add_z(&want,
              "{\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"text_delta\","
              "\"text\":\"on\"}}\n"
              "{\"type\":\"content_block_stop\",\"index\":2}\n"
              "{\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":"
              "\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n");
    pass_init(&a, "POST /v1/messages", MESSAGES);
    pass_bytes(&a, in.p);
    play_say(&a.p, "on");
    play_event(&a.p, 0, (struct api_event){
        .kind = API_EVENT_CALL_BEGIN, .call = {.id = STR("t"), .name = STR("f")}});
    expect(&a, want.p);
    pass_end(&a);
    buf_deinit(&in);
    buf_deinit(&want);
}

#define CHAT(more) "{\"model\":\"gpt\",\"stream\":true," more "\"messages\":[{\"role\":\"user\"," \
                   "\"content\":\"x\"}]}"
#define UP "data: {\"id\":\"up\",\"object\":\"chat.completion.chunk\",\"x_new\":{\"a\":1},"
#define OURS "{\"id\":\"chatcmpl-0123456789abcdefABCDEF\",\"model\":\"gpt\",\"object\":" \
             "\"chat.completion.chunk\",\"x_new\":{\"a\":1},"
#define FIRST "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}"
#define WORD "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\",\"annotations\":[7]}}]}"
#define LAST "\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]"
#define USAGE "\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"x\":3}}"
#define CHAT_STREAM UP FIRST "\n\n" UP WORD "\n\n" UP LAST "}\n\n" UP USAGE "\n\ndata: [DONE]\n\n"

static void test_what_only_a_chat_server_knows_reaches_its_client(void **state)
{
    static const struct {
        const char *body, *want;
    } rows[] = {
        {CHAT(""), OURS FIRST "\n" OURS WORD "\n" OURS LAST ",SHOAL}\n[DONE]\n"},
        {CHAT("\"stream_options\":{\"include_usage\":true},"),
         OURS FIRST "\n" OURS WORD "\n" OURS LAST ",SHOAL}\n" OURS USAGE "\n[DONE]\n"},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct passing a;
        pass_init(&a, "POST /v1/chat/completions", rows[i].body);
        pass_bytes(&a, CHAT_STREAM);
        assert_true(a.p.st->is_over);
        expect(&a, rows[i].want);
        pass_end(&a);
    }
}

/* Some servers answer a request for a stream with one body. */
static void test_a_whole_reply_reaches_a_streaming_client_as_a_stream(void **state)
{
    static const struct {
        const char *target, *body, *reply, *text, *finish, *end;
    } rows[] = {
        {"POST /v1/chat/completions", CHAT(""),
         "{\"id\":\"x\",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":"
         "{\"role\":\"assistant\",\"content\":\"hi you\"},\"finish_reason\":\"stop\"}]}",
         "\"delta\":{\"content\":\"hi you\"}", "\"finish_reason\":\"stop\"", "data: [DONE]\n\n"},
        {"POST /v1/messages", MESSAGES,
         "{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"hi you\"}],"
         "\"stop_reason\":\"end_turn\",\"usage\":{\"output_tokens\":2}}",
         "{\"type\":\"text_delta\",\"text\":\"hi you\"}", "\"stop_reason\":\"end_turn\"",
         "data: {\"type\":\"message_stop\"}\n\n"},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct passing a;
        struct api_error e;
        pass_init(&a, rows[i].target, rows[i].body);
        on_event(&a, STR(""), str_of(rows[i].reply));
        assert_true(dialect_client_end(a.st, &e));
        str out = buf_view(&a.p.out);
        assert_true(str_find(out, str_of(rows[i].text)) != STR_NONE);
        assert_true(str_find(out, str_of(rows[i].finish)) != STR_NONE);
        assert_true(str_find(out, STR("\"message\":{\"role\"")) == STR_NONE);
        assert_true(str_ends(out, str_of(rows[i].end)));
        pass_end(&a);
    }
}

static void test_a_chat_without_its_marker_is_whole_and_the_client_gets_one(void **state)
{
    struct passing a;
    struct api_error e;
    (void)state;
    pass_init(&a, "POST /v1/chat/completions", CHAT(""));
    pass_bytes(&a, UP WORD "\n\n" UP LAST "}\n\n");
    assert_false(a.p.st->is_over);
    assert_true(dialect_client_end(a.st, &e));
    expect(&a, OURS WORD "\n" OURS LAST ",SHOAL}\n[DONE]\n");
    pass_end(&a);
}

static void test_an_anthropic_reply_that_falls_silent_behind_its_reason_gets_its_end(void **state)
{
    struct passing a;
    struct buf in;
    (void)state;
    buf_init(&in, 1 << 16);
    add_event(&in, START);
    add_event(&in, blocks[7]);
    add_event(&in, blocks[8]);
    add_event(&in, "{\"type\":\"content_block_stop\",\"index\":2}");
    pass_init(&a, "POST /v1/messages", MESSAGES);
    pass_bytes(&a, in.p);
    assert_false(dialect_client_settle(a.st));
    pass_bytes(&a, "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}"
                   "\n\n");
    assert_true(dialect_client_settle(a.st));
    assert_true(str_ends(buf_view(&a.p.out), STR("event: message_stop\n"
                                                 "data: {\"type\":\"message_stop\"}\n\n")));
    pass_end(&a);
    buf_deinit(&in);
}

#define TEXT_END(reason) "\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"" reason "\"}]"
#define CALL "\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\"," \
    "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}"

/* The end of a chat is said once, behind all text, and says calls where there are some. */
static void test_a_wrong_finish_of_a_chat_is_put_right(void **state)
{
    static const struct {
        const char *stream, *want;
    } rows[] = {
        {UP WORD "\n\n" UP TEXT_END("tool_calls") "}\n\ndata: [DONE]\n\n",
         OURS WORD "\n" OURS TEXT_END("stop") ",SHOAL}\n[DONE]\n"},
        {UP WORD "\n\n" UP TEXT_END("weird") "}\n\ndata: [DONE]\n\n",
         OURS WORD "\n" OURS TEXT_END("stop") ",SHOAL}\n[DONE]\n"},
        {UP WORD "\n\n" UP TEXT_END("length") "}\n\ndata: [DONE]\n\n",
         OURS WORD "\n" OURS TEXT_END("length") ",SHOAL}\n[DONE]\n"},
        {UP CALL "\n\n" UP TEXT_END("stop") "}\n\ndata: [DONE]\n\n",
         OURS CALL "\n" OURS TEXT_END("tool_calls") ",SHOAL}\n[DONE]\n"},
        {UP WORD "\n\n" UP TEXT_END("stop") "}\n\n" UP WORD "\n\n" UP TEXT_END("stop")
         "}\n\ndata: [DONE]\n\n",
         OURS WORD "\n" OURS "\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":null}]}\n"
         OURS WORD "\n" OURS TEXT_END("stop") ",SHOAL}\n[DONE]\n"},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct passing a;
        pass_init(&a, "POST /v1/chat/completions", CHAT(""));
        pass_bytes(&a, rows[i].stream);
        assert_true(a.p.st->is_over);
        expect(&a, rows[i].want);
        pass_end(&a);
    }
}

static uint32_t count_of(str text, const char *what)
{
    uint32_t n = 0;
    for (size_t at; (at = str_find(text, str_of(what))) != STR_NONE; n++)
        text = str_from(text, at + 1);
    return n;
}

/* An end beside text, before text, or of several choices: each is told once, the usage too. */
static void test_an_end_of_a_chat_is_told_once_wherever_it_came(void **state)
{
    static const struct {
        const char *body, *stream;
        uint32_t ends, usages;
    } rows[] = {
        {CHAT(""), UP "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},"
         "\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n", 1, 0},
        {CHAT(""), UP LAST "}\n\n" UP WORD "\n\ndata: [DONE]\n\n", 1, 0},
        {CHAT("\"stream_options\":{\"include_usage\":true},"),
         UP WORD "\n\n" UP LAST "}\n\ndata: [DONE]\n\n", 1, 1},
        {CHAT("\"n\":2,"), UP WORD "\n\n" UP LAST "}\n\n" UP "\"choices\":[{\"index\":1,\"delta\":"
         "{\"content\":\"b\"}}]}\n\n" UP "\"choices\":[{\"index\":1,\"delta\":{},\"finish_reason\":"
         "\"stop\"}]}\n\ndata: [DONE]\n\n", 2, 0},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct passing a;
        pass_init(&a, "POST /v1/chat/completions", rows[i].body);
        pass_bytes(&a, rows[i].stream);
        str out = buf_view(&a.p.out);
        if (count_of(out, "\"finish_reason\":\"stop\"") != rows[i].ends ||
            count_of(out, "\"finish_reason\":\"") != rows[i].ends ||
            count_of(out, "[DONE]") != 1 || count_of(out, "\"usage\":{") != rows[i].usages)
            fail_msg("%s\n got\n%s", rows[i].stream, a.p.out.p);
        pass_end(&a);
    }
}

#define TEXT_BLOCK "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":" \
                   "\"text\",\"text\":\"\"}}"
#define TEXT_DELTA "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":" \
                   "\"text_delta\",\"text\":\"hi\"}}"
#define USE_BLOCK "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":" \
                  "\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}"
#define BLOCK_STOP "{\"type\":\"content_block_stop\",\"index\":0}"
#define END(reason) "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"" reason "\"}}"

static void test_a_wrong_stop_reason_of_anthropic_is_put_right(void **state)
{
    static const struct {
        const char *events[6], *want;
    } rows[] = {
        {{TEXT_BLOCK, TEXT_DELTA, BLOCK_STOP, END("tool_use")}, "end_turn"},
        {{TEXT_BLOCK, TEXT_DELTA, BLOCK_STOP, END("weird")}, "end_turn"},
        {{TEXT_BLOCK, TEXT_DELTA, BLOCK_STOP, END("max_tokens")}, "max_tokens"},
        {{TEXT_BLOCK, TEXT_DELTA, BLOCK_STOP, END("pause_turn")}, "pause_turn"},
        {{USE_BLOCK, BLOCK_STOP, END("end_turn")}, "tool_use"},
        {{TEXT_BLOCK, TEXT_DELTA, END("end_turn"), TEXT_DELTA, BLOCK_STOP}, "end_turn"},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct passing a;
        struct buf in, want;
        buf_init(&in, 1 << 16);
        buf_init(&want, 1 << 16);
        add_event(&in, START);
        for (size_t k = 0; k < countof(rows[i].events) && rows[i].events[k]; k++)
            add_event(&in, rows[i].events[k]);
        add_event(&in, "{\"type\":\"message_stop\"}");
        pass_init(&a, "POST /v1/messages", MESSAGES);
        pass_bytes(&a, in.p);
        str out = buf_view(&a.p.out);
        buf_printf(&want, "\"stop_reason\":\"%s\"", rows[i].want);
        if (count_of(out, want.p) != 1 || count_of(out, "\"stop_reason\":\"") != 1 ||
            count_of(out, "data: {\"type\":\"message_stop\"}") != 1 ||
            count_of(out, "data: {\"type\":\"content_block_stop\"") != 1)
            fail_msg("row %zu\n got\n%s", i, a.p.out.p);
        pass_end(&a);
        buf_deinit(&in);
        buf_deinit(&want);
    }
}

/* What streams are made of: the same form again and again, and what breaks in. */
static void add_some_line(struct buf *in, struct chrono_rng *rng)
{
    static const char *const texts[] = {"a", "two words", "B\xc3\xa4r", "\\n", "\\u00e9", "\\\"",
                                        "", "}", "\\\\", "\xf0\x9f\x98\x80"};
    static const char *const forms[] = {
        "{\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},"
        "\"finish_reason\":null}]}",
        "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"finish_reason\":null}],"
        "\"id\":\"c\",\"x\":\"a\",\"model\":\"up\"}",
        "{\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"%s\"}}],\"shoal\":{}}",
        "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\",\"refusal\":\"no\"}}]}",
        "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"finish_reason\":\"\"}]}",
        "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\",\"tool_calls\":[]}}]}",
        "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"}},{\"index\":0,\"delta\":"
        "{\"content\":\"z\"}}]}",
        "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"x\":\"%s\"}}]}",
        "{\"choices\":[{\"index\":3,\"delta\":{\"content\":\"%s\"}}]}",
        "{\"odd\":\"%s\"",
    };
    const char *form = forms[chrono_rng_below(rng, 3) ? 0 : chrono_rng_below(rng, countof(forms))];
    buf_add_z(in, "data: ");
    buf_printf(in, form, texts[chrono_rng_below(rng, countof(texts))]);
    buf_add_z(in, "\n\n");
}

static void forget_forms(struct passing *a)
{
    dialect_mould_clear(&a->st->mould);
    dialect_mould_clear(&a->p.st->raw_in);
}

static void test_lines_of_one_form_come_out_as_if_each_was_parsed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct passing a, b;
        struct chrono_rng rng;
        uint32_t known = 0;
        chrono_rng_init(&rng, seed);
        pass_init(&a, "POST /v1/chat/completions", CHAT(""));
        pass_init(&b, "POST /v1/chat/completions", CHAT(""));
        for (int i = 0; i < 60; i++) {
            struct buf in;
            buf_init(&in, 1 << 12);
            add_some_line(&in, &rng);
            forget_forms(&b);
            pass_bytes(&a, in.p);
            pass_bytes(&b, in.p);
            known += a.p.st->raw_in.head > 0;
            if (!str_eq(buf_view(&a.p.out), buf_view(&b.p.out)))
                fail_msg("seed %llu, line %d: %s\n want\n%s\n got\n%s", (unsigned long long)seed, i,
                         in.p, b.p.out.p, a.p.out.p);
            buf_deinit(&in);
        }
        assert_true(known > 5);
        pass_end(&a);
        pass_end(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_block_that_an_upstream_leaves_open_is_closed),
        cmocka_unit_test(test_what_only_anthropic_knows_reaches_its_client),
        cmocka_unit_test(test_another_leg_goes_on_in_the_open_block),
        cmocka_unit_test(test_what_only_a_chat_server_knows_reaches_its_client),
        cmocka_unit_test(test_a_whole_reply_reaches_a_streaming_client_as_a_stream),
        cmocka_unit_test(test_a_chat_without_its_marker_is_whole_and_the_client_gets_one),
        cmocka_unit_test(test_an_anthropic_reply_that_falls_silent_behind_its_reason_gets_its_end),
        cmocka_unit_test(test_a_wrong_finish_of_a_chat_is_put_right),
        cmocka_unit_test(test_an_end_of_a_chat_is_told_once_wherever_it_came),
        cmocka_unit_test(test_a_wrong_stop_reason_of_anthropic_is_put_right),
        cmocka_unit_test(test_lines_of_one_form_come_out_as_if_each_was_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
