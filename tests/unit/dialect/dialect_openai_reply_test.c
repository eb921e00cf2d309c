#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "dialect/dialect.h"

struct reply {
    struct arena a;
    struct api_request rq;
    struct dialect_state *st;
    struct buf out;
};

static const struct dialect *dialect(void) { return dialect_of(STR("openai_chat")); }

static void open_reply(struct reply *r, bool stream, const char *more)
{
    char body[512];
    struct api_error e;
    const struct dialect *d = dialect();
    snprintf(body, sizeof body, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":"
             "\"q\"}],\"stream\":%s%s}", stream ? "true" : "false", more);
    const struct dialect_in in = {.body = str_of(body), .time_s = 1785000000,
                                  .request_id = STR("req_0123456789abcdefABCDEF"),
                                  .limits = &dialect_limits_default};
    *r = (struct reply){.st = calloc(1, d->state_size)};
    arena_init(&r->a, 1 << 20);
    buf_init(&r->out, 1 << 22);
    r->st->dialect = d;
    if (!d->read_request(&r->rq, r->st, &in, &r->a, &e))
        fail_msg("%s", e.err.text);
    r->st->model = STR("m"); /* the body does not outlive this function */
    r->st->seed = 42;
}

static void close_reply(struct reply *r)
{
    dialect_state_deinit(r->st);
    free(r->st);
    buf_deinit(&r->out);
    arena_deinit(&r->a);
}

static void event(struct reply *r, uint32_t choice, struct api_event ev)
{
    dialect()->write_event(&r->out, r->st, choice, &ev);
}

static void text(struct reply *r, uint32_t choice, enum api_event_kind kind, const char *s)
{
    event(r, choice, (struct api_event){.kind = kind, .text.text = str_of(s)});
}

static void started(struct reply *r)
{
    event(r, 0, (struct api_event){.kind = API_EVENT_STARTED,
                                   .started = {.leg = STR("local"), .model = STR("m.gguf"),
                                               .model_hash = 0xabc, .prompt_tokens = 9}});
}

static void usage(struct reply *r)
{
    event(r, 0, (struct api_event){.kind = API_EVENT_USAGE,
                                   .usage = {.prompt_tokens = 9, .cached_tokens = 4,
                                             .output_tokens = 6, .reasoning_tokens = 2,
                                             .prefill_ns = 1000000, .decode_ns = 2000000}});
}

static void finished(struct reply *r, uint32_t choice, enum api_done reason)
{
    event(r, choice, (struct api_event){.kind = API_EVENT_DONE, .done.reason = reason});
}

/* ---- Reading streams back ---- */

static struct json parse(struct reply *r, str s)
{
    const struct json_options options = {.depth_max = 32, .refuse_duplicates = true};
    struct json v;
    struct err e;
    if (!json_parse(&v, s, &options, &r->a, &e))
        fail_msg("%s in %.*s", e.text, STR_ARG(s));
    return v;
}

struct joined {
    struct buf content[2], reasoning[2], arguments[2], logprobs;
    char finish[2][16];
    uint32_t chunks, roles[2], usage_chunks, shoals, calls, errors;
    bool done;
};

static void join_text(struct reply *r, struct buf *to, struct json v)
{
    if (json_kind(v) == JSON_KIND_STRING)
        buf_add(to, json_text(v, &r->a));
}

static void join_choice(struct reply *r, struct joined *j, struct json choice)
{
    int64_t i = -1;
    struct json delta = json_member(choice, "delta");
    struct json finish = json_member(choice, "finish_reason");
    assert_true(json_i64(json_member(choice, "index"), &i) && i >= 0 && i < 2);
    assert_true(json_kind(json_member(choice, "logprobs")) != JSON_KIND_ABSENT);
    assert_true(json_kind(finish) != JSON_KIND_ABSENT);
    if (json_kind(json_member(delta, "role")) == JSON_KIND_STRING) {
        assert_int_equal(j->content[i].len + j->reasoning[i].len, 0);
        j->roles[i]++;
    }
    join_text(r, &j->content[i], json_member(delta, "content"));
    join_text(r, &j->reasoning[i], json_member(delta, "reasoning_content"));
    struct json call = json_at(json_member(delta, "tool_calls"), 0);
    struct json function = json_member(call, "function");
    int64_t index = 0;
    if (json_i64(json_member(call, "index"), &index)) {
        bool first = json_kind(json_member(call, "id")) == JSON_KIND_STRING;
        assert_int_equal(first, json_kind(json_member(function, "name")) == JSON_KIND_STRING);
        j->calls += first;
        join_text(r, &j->arguments[index], json_member(function, "arguments"));
    }
    if (json_kind(finish) == JSON_KIND_STRING) {
        assert_int_equal(j->finish[i][0], 0);
        snprintf(j->finish[i], sizeof j->finish[i], "%.*s", STR_ARG(json_text(finish, &r->a)));
    }
}

static void join(struct reply *r, struct joined *j)
{
    str rest = buf_view(&r->out), line, id = {NULL, 0};
    memset(j, 0, sizeof *j);
    for (size_t i = 0; i < 2; i++) {
        buf_init(&j->content[i], 1 << 20);
        buf_init(&j->reasoning[i], 1 << 20);
        buf_init(&j->arguments[i], 1 << 20);
    }
    while (str_split(&rest, '\n', &line)) {
        if (line.len == 0)
            continue;
        assert_true(str_starts(line, STR("data: ")) && !j->done);
        line = str_from(line, strlen("data: "));
        if (str_eq_z(line, "[DONE]")) {
            j->done = true;
            continue;
        }
        struct json v = parse(r, line), choices = json_member(v, "choices");
        if (json_kind(json_member(v, "error")) == JSON_KIND_OBJECT) {
            j->errors++;
            continue;
        }
        str this_id = json_text(json_member(v, "id"), &r->a);
        assert_true(j->chunks == 0 || str_eq(id, this_id)); /* one id a stream */
        id = this_id;
        j->chunks++;
        j->shoals += json_kind(json_member(v, "shoal")) == JSON_KIND_OBJECT;
        j->usage_chunks += json_kind(json_member(v, "usage")) == JSON_KIND_OBJECT;
        assert_true(json_kind(json_member(v, "usage")) != JSON_KIND_ABSENT);
        for (struct json_walk w = json_walk(choices); json_next(&w);)
            join_choice(r, j, w.value);
    }
}

static void drop(struct joined *j)
{
    for (size_t i = 0; i < 2; i++) {
        buf_deinit(&j->content[i]);
        buf_deinit(&j->reasoning[i]);
        buf_deinit(&j->arguments[i]);
    }
}

/* ---- Tests ---- */

static void play(struct reply *r)
{
    started(r);
    text(r, 0, API_EVENT_REASONING, "hm ");
    text(r, 0, API_EVENT_REASONING, "ok");
    text(r, 1, API_EVENT_CONTENT, "two");
    text(r, 0, API_EVENT_CONTENT, "a \"q\"\n");
    text(r, 0, API_EVENT_CONTENT, "\xf0\x9f\x98\x80");
    finished(r, 1, API_DONE_MAX_TOKENS);
    usage(r);
    finished(r, 0, API_DONE_EOS);
}

static void test_A17_joined_deltas_equal_the_reply_that_is_not_streamed(void **state)
{
    (void)state;
    struct reply whole, stream;
    struct joined j;
    open_reply(&whole, false, ",\"n\":2");
    open_reply(&stream, true, ",\"n\":2,\"stream_options\":{\"include_usage\":true}");
    play(&whole);
    play(&stream);
    join(&stream, &j);
    struct json v = parse(&whole, buf_view(&whole.out)), choices = json_member(v, "choices");
    assert_int_equal(json_count(choices), 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct json message = json_member(json_at(choices, i), "message");
        assert_true(json_text_eq(json_member(message, "content"), buf_view(&j.content[i])));
        if (j.reasoning[i].len)
            assert_true(json_text_eq(json_member(message, "reasoning"),
                                     buf_view(&j.reasoning[i])));
        assert_true(json_text_eq(json_member(json_at(choices, i), "finish_reason"),
                                 str_of(j.finish[i])));
        assert_int_equal(j.roles[i], 1);
    }
    assert_string_equal(j.finish[0], "stop");
    assert_string_equal(j.finish[1], "length");
    assert_true(j.done && j.shoals == 1 && j.errors == 0);
    assert_true(whole.st->is_over && stream.st->is_over);
    drop(&j);
    close_reply(&whole);
    close_reply(&stream);
}

static void test_A30_usage_comes_once_and_only_when_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        uint32_t count;
    } rows[] = {{"", 0}, {",\"stream_options\":{\"include_usage\":false}", 0},
                {",\"stream_options\":{\"include_usage\":true}", 1}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct reply r;
        struct joined j;
        open_reply(&r, true, rows[i].more);
        started(&r);
        text(&r, 0, API_EVENT_CONTENT, "x");
        usage(&r);
        finished(&r, 0, API_DONE_EOS);
        join(&r, &j);
        assert_int_equal(j.usage_chunks, rows[i].count);
        assert_true(j.done);
        drop(&j);
        close_reply(&r);
    }
}

static void test_A12_A13_calls_have_index_name_and_string_arguments(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        struct reply r;
        open_reply(&r, stream, "");
        started(&r);
        for (uint32_t i = 0; i < 2; i++) {
            struct api_call call = {.index = i, .id = i ? STR("call_b") : STR("call_a"),
                                    .name = STR("f")};
            event(&r, 0, (struct api_event){.kind = API_EVENT_CALL_BEGIN, .call = call});
            call.args = STR("{\"a\":");
            event(&r, 0, (struct api_event){.kind = API_EVENT_CALL_ARGS, .call = call});
            call.args = STR("\"x\"}");
            event(&r, 0, (struct api_event){.kind = API_EVENT_CALL_ARGS, .call = call});
            event(&r, 0, (struct api_event){.kind = API_EVENT_CALL_END, .call = call});
        }
        usage(&r);
        finished(&r, 0, API_DONE_CALLS);
        if (stream) {
            struct joined j;
            join(&r, &j);
            assert_int_equal(j.calls, 2);
            assert_true(str_eq_z(buf_view(&j.arguments[1]), "{\"a\":\"x\"}"));
            assert_string_equal(j.finish[0], "tool_calls");
            drop(&j);
        } else {
            struct json choice = json_at(json_member(parse(&r, buf_view(&r.out)), "choices"), 0);
            struct json message = json_member(choice, "message");
            struct json call = json_at(json_member(message, "tool_calls"), 1);
            assert_int_equal(json_kind(json_member(message, "content")), JSON_KIND_NULL);
            assert_true(json_text_eq(json_member(call, "id"), STR("call_b")));
            assert_true(json_text_eq(json_member(json_member(call, "function"), "arguments"),
                                     STR("{\"a\":\"x\"}")));
        }
        close_reply(&r);
    }
}

static void test_logprobs_stand_beside_their_text(void **state)
{
    (void)state;
    static const struct api_top top[] = {{7, -0.5f, STR_INIT("x")}, {9, -1.5f, STR_INIT("\xff")}};
    static const struct api_logprob one = {{7, -0.5f, STR_INIT("x")}, top, 2};
    for (int stream = 0; stream < 2; stream++) {
        struct reply r;
        open_reply(&r, stream, ",\"logprobs\":true,\"top_logprobs\":2");
        started(&r);
        for (int i = 0; i < 2; i++)
            event(&r, 0, (struct api_event){.kind = API_EVENT_CONTENT,
                                            .text = {STR("x"), &one, 1}});
        usage(&r);
        finished(&r, 0, API_DONE_EOS);
        str want = STR("{\"token\":\"x\",\"logprob\":-0.5,\"bytes\":[120],\"top_logprobs\":["
                       "{\"token\":\"x\",\"logprob\":-0.5,\"bytes\":[120]},"
                       "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-1.5,\"bytes\":[255]}]}");
        size_t first = str_find(buf_view(&r.out), want);
        assert_true(first != STR_NONE);
        assert_true(str_find(str_from(buf_view(&r.out), first + 1), want) != STR_NONE);
        close_reply(&r);
    }
}

static void test_an_error_before_the_first_byte_is_the_whole_body(void **state)
{
    (void)state;
    struct api_error e;
    struct reply r;
    open_reply(&r, true, "");
    api_error_set(&e, ERR_CONTEXT, "", STR("messages"), "too long");
    e.prompt_tokens = 5000;
    e.limit = 4096;
    dialect()->write_error(&r.out, r.st, &e);
    assert_true(str_eq_z(buf_view(&r.out),
                         "{\"error\":{\"message\":\"prompt has 5000 tokens, limit is 4096\","
                         "\"type\":\"invalid_request_error\",\"param\":\"messages\",\"code\":"
                         "\"context_length_exceeded\",\"prompt_tokens\":5000,\"limit\":4096}}"));
    assert_int_equal(dialect_error(&e).status, 400);
    close_reply(&r);
}

static void test_an_error_in_the_stream_is_in_band_and_ends_it(void **state)
{
    (void)state;
    struct reply r;
    struct joined j;
    struct api_event failed = {.kind = API_EVENT_ERROR};
    open_reply(&r, true, "");
    started(&r);
    text(&r, 0, API_EVENT_CONTENT, "half");
    api_error_set(&failed.error, ERR_ENGINE, "", STR(""), "the engine is lost");
    event(&r, 0, failed);
    text(&r, 0, API_EVENT_CONTENT, "never");
    join(&r, &j);
    assert_true(j.errors == 1 && j.done && str_eq_z(buf_view(&j.content[0]), "half"));
    assert_string_equal(j.finish[0], "error");
    drop(&j);
    close_reply(&r);
}

static void test_a_reply_longer_than_its_limit_is_an_error(void **state)
{
    (void)state;
    struct reply r;
    open_reply(&r, false, "");
    r.st->reply_max = 10;
    started(&r);
    text(&r, 0, API_EVENT_CONTENT, "12345678");
    text(&r, 0, API_EVENT_CONTENT, "12345678");
    usage(&r);
    finished(&r, 0, API_DONE_EOS);
    struct json v = parse(&r, buf_view(&r.out));
    assert_int_equal(json_kind(json_member(v, "error")), JSON_KIND_OBJECT);
    close_reply(&r);
}

static void test_the_object_shoal_says_who_answered_and_how(void **state)
{
    (void)state;
    struct reply r;
    open_reply(&r, false, ",\"store\":true");
    started(&r);
    event(&r, 0, (struct api_event){.kind = API_EVENT_NOTE,
                                    .note = {STR("roles_merged"), STR("merged")}});
    text(&r, 0, API_EVENT_CONTENT, "x");
    usage(&r);
    finished(&r, 0, API_DONE_STOP_STRING);
    struct json shoal = json_member(parse(&r, buf_view(&r.out)), "shoal");
    assert_true(str_eq_z(json_raw(shoal),
        "{\"request_id\":\"req_0123456789abcdefABCDEF\",\"leg\":\"local\",\"model\":\"m.gguf\","
        "\"seed\":42,\"finish\":\"stop_string\",\"timings\":{\"queue_ms\":0.0,\"load_ms\":0.0,"
        "\"prefill_ms\":1.0,\"decode_ms\":2.0,\"prefill_tps\":5000.0,\"decode_tps\":3000.0},"
        "\"cache\":{\"prompt\":9,\"cached\":4,\"reason\":null},\"warnings\":["
        "\"ignored_field; store\",\"roles_merged; merged\"]}"));
    close_reply(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_A17_joined_deltas_equal_the_reply_that_is_not_streamed),
        cmocka_unit_test(test_A30_usage_comes_once_and_only_when_asked_for),
        cmocka_unit_test(test_A12_A13_calls_have_index_name_and_string_arguments),
        cmocka_unit_test(test_logprobs_stand_beside_their_text),
        cmocka_unit_test(test_an_error_before_the_first_byte_is_the_whole_body),
        cmocka_unit_test(test_an_error_in_the_stream_is_in_band_and_ends_it),
        cmocka_unit_test(test_a_reply_longer_than_its_limit_is_an_error),
        cmocka_unit_test(test_the_object_shoal_says_who_answered_and_how),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
