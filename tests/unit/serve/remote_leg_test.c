/* A leg in front of an upstream that fails as it is told to: each fault has its class, and nobody
 * takes half a reply for a whole one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/stub_upstream.h"
#include "serve/remote_leg.h"

#define WORDS 40

static struct world {
    struct loop *loop;
    struct http_client *client;
    struct stub_upstream *stub;
    char url[64];
    struct buf text; /* of a whole reply */
} w;

static const char *const dialects[] = {"openai_chat", "anthropic", "openai_responses", "ollama"};

static int setup(void **state)
{
    struct err e;
    (void)state;
    signal(SIGPIPE, SIG_IGN); /* as the commands do */
    memset(&w, 0, sizeof w);
    if (!loop_open(&w.loop, &e) || !http_client_open(&w.client, w.loop, 300, &e))
        return -1;
    struct stub_upstream_options o = {.loop = w.loop, .listen = STR("127.0.0.1:0"), .seed = 7,
                                      .words = WORDS};
    if (!stub_upstream_open(&w.stub, &o, &e))
        return -1;
    snprintf(w.url, sizeof w.url, "http://127.0.0.1:%u", stub_upstream_port(w.stub));
    buf_init(&w.text, 1 << 20);
    stub_upstream_text(w.stub, &w.text);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    http_client_close(w.client);
    stub_upstream_close(w.stub);
    loop_close(w.loop);
    buf_deinit(&w.text);
    return 0;
}

/* ---- One request ---- */

struct asked {
    struct api_request rq;
    struct api_message messages[3];
    struct api_part parts[3];
    struct remote_leg *leg;
    struct api_provider p;
    struct api_order order;
    struct buf content, reasoning, args, words; /* words: of the upstream, in an error */
    struct api_error error;
    struct api_usage usage;
    enum api_done done;
    uint32_t queued, dones, errors, calls, batches;
    uint32_t cancel_at; /* cancels at its n-th batch */
    bool closes;        /* its end closes the leg, as the last request of a configuration does */
    str leg_name;
};

static void on_batch(void *ctx, const struct api_batch *b)
{
    struct asked *a = ctx;
    struct err e;
    if (!api_order_add(&a->order, b, &e))
        fail_msg("%s", e.text);
    a->batches++;
    for (uint32_t i = 0; i < b->events_count; i++) {
        const struct api_event *ev = &b->events[i];
        a->queued += ev->kind == API_EVENT_QUEUED;
        a->dones += ev->kind == API_EVENT_DONE;
        a->calls += ev->kind == API_EVENT_CALL_END;
        if (ev->kind == API_EVENT_CONTENT)
            buf_add(&a->content, ev->text.text);
        if (ev->kind == API_EVENT_REASONING)
            buf_add(&a->reasoning, ev->text.text);
        if (ev->kind == API_EVENT_CALL_ARGS)
            buf_add(&a->args, ev->call.args);
        if (ev->kind == API_EVENT_DONE)
            a->done = ev->done.reason;
        if (ev->kind == API_EVENT_USAGE)
            a->usage = ev->usage;
        if (ev->kind == API_EVENT_ERROR) {
            a->error = ev->error;
            buf_add(&a->words, ev->error.upstream_text);
            a->errors++;
        }
    }
    if (a->cancel_at && a->batches == a->cancel_at)
        a->p.cancel(a->p.self, a->rq.id);
    if (a->closes && (a->dones || a->errors)) {
        remote_leg_close(a->leg);
        a->leg = NULL;
    }
}

static uint64_t last_id;

/* What the case before left behind is over at the stub too. */
static void settle(void)
{
    for (int64_t end = loop_ms() + 10000; stub_upstream_counts(w.stub).running && loop_ms() < end;)
        loop_step(w.loop, 20);
    assert_int_equal(stub_upstream_counts(w.stub).running, 0);
}

static void open_leg(struct asked *a, const char *dialect, enum remote_leg_auth auth)
{
    struct err e;
    const struct remote_leg_options o = {
        .loop = w.loop, .client = w.client, .name = STR("cloud"),
        .dialect = dialect_of(str_of(dialect)), .url = str_of(w.url), .auth = auth,
        .key = STR("secret-key-of-this-leg"), .upstream = {.caps = API_CAP_ALL_},
        .requests_max = 64};
    if (!remote_leg_open(&a->leg, &o, &e))
        fail_msg("%s", e.text);
    a->p = remote_leg_provider(a->leg);
}

static void asked_init(struct asked *a, const char *dialect, const char *model)
{
    settle();
    *a = (struct asked){.dones = 0};
    api_request_init(&a->rq);
    a->parts[0] = (struct api_part){.kind = API_PART_TEXT, .text = STR("hello")};
    a->messages[0] = (struct api_message){.role = API_ROLE_USER, .parts = a->parts,
                                          .parts_count = 1};
    a->rq.id = ++last_id;
    a->rq.model = str_of(model);
    a->rq.messages = a->messages;
    a->rq.messages_count = 1;
    a->rq.deadline = (struct api_deadlines){.connect_ms = 10000, .first_ms = 20000,
                                            .gap_ms = 20000};
    buf_init(&a->content, (size_t)64 << 20);
    buf_init(&a->reasoning, 1 << 20);
    buf_init(&a->args, 1 << 20);
    buf_init(&a->words, 1 << 20);
    open_leg(a, dialect, REMOTE_LEG_AUTH_KEY);
}

static void asked_deinit(struct asked *a)
{
    remote_leg_close(a->leg);
    buf_deinit(&a->content);
    buf_deinit(&a->reasoning);
    buf_deinit(&a->args);
    buf_deinit(&a->words);
}

static void run_until(const uint32_t *what, int64_t most_ms)
{
    for (int64_t end = loop_ms() + most_ms; !*what && loop_ms() < end;)
        loop_step(w.loop, 20);
}

/* Runs it to its end; how long that took. */
static int64_t ask(struct asked *a)
{
    struct api_error e;
    int64_t began = loop_ms();
    api_order_init(&a->order, &a->rq);
    if (!a->p.submit(a->p.self, &a->rq, (struct api_sink){on_batch, a}, &e))
        fail_msg("%s", e.err.text);
    for (int64_t end = began + 20000; !a->dones && !a->errors && loop_ms() < end;)
        loop_step(w.loop, 20);
    return loop_ms() - began;
}

/* ---- Whole replies ---- */

static void test_a_reply_of_every_protocol_comes_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(dialects); i++) {
        struct asked a;
        asked_init(&a, dialects[i], "m");
        ask(&a);
        if (a.dones != 1 || !str_eq(buf_view(&a.content), buf_view(&w.text)))
            fail_msg("%s: %s '%.*s'", dialects[i], a.error.err.text,
                     STR_ARG(buf_view(&a.content)));
        assert_int_equal(a.queued, 1);
        assert_int_equal(a.usage.output_tokens, WORDS);
        assert_int_equal(a.done, API_DONE_EOS);
        assert_int_equal(remote_leg_inflight(a.leg), 0);
        asked_deinit(&a);
    }
}

static void test_reasoning_and_calls_come_through(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(dialects); i++) {
        struct asked a;
        struct buf all;
        asked_init(&a, dialects[i], "m/think");
        ask(&a);
        buf_init(&all, 1 << 20);
        buf_add(&all, buf_view(&a.reasoning));
        buf_add(&all, buf_view(&a.content));
        assert_true(a.reasoning.len > 0);
        assert_true(str_eq(buf_view(&all), buf_view(&w.text)));
        buf_deinit(&all);
        asked_deinit(&a);
        asked_init(&a, dialects[i], "m/call");
        ask(&a);
        assert_int_equal(a.calls, 1);
        assert_int_equal(a.done, API_DONE_CALLS);
        assert_string_equal(a.args.p, "{\"n\":[1,2],\"s\":\"x\"}");
        asked_deinit(&a);
    }
}

static void test_G24_an_end_that_claims_calls_without_one_is_a_plain_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(dialects); i++) {
        struct asked a;
        asked_init(&a, dialects[i], "m/wrong_finish");
        ask(&a);
        assert_int_equal(a.dones, 1);
        assert_int_equal(a.done, API_DONE_EOS);
        asked_deinit(&a);
    }
}

/* ---- Faults ---- */

static void test_every_fault_has_its_class(void **state)
{
    static const struct {
        const char *model;
        enum api_fault fault;
        uint32_t words;      /* that came before */
        int64_t low_ms, high_ms;
    } rows[] = {
        {"m/hang_header", API_FAULT_HANG_HEADER, 0, 290, 9000},
        {"m/hang_body", API_FAULT_HANG_FIRST, 0, 290, 9000},
        {"m/pings", API_FAULT_HANG_FIRST, 0, 290, 9000},
        {"m/roles", API_FAULT_HANG_FIRST, 0, 290, 9000},
        {"m/stall=12", API_FAULT_STALL, 12, 190, 9000},
        {"m/end=12", API_FAULT_CUT, 12, 0, 9000},
        {"m/cut=12", API_FAULT_CUT, 12, 0, 9000},
        {"m/abort", API_FAULT_CUT, 0, 0, 9000},
        {"m/garbage=3", API_FAULT_GARBAGE, 3, 0, 9000},
        {"m/html", API_FAULT_GARBAGE, 0, 0, 9000},
        {"m/other", API_FAULT_GARBAGE, 0, 0, 9000},
        {"m/headers", API_FAULT_GARBAGE, 0, 0, 9000},
        {"m/big", API_FAULT_GARBAGE, 0, 0, 9000},
        {"m/status=400", API_FAULT_REQUEST, 0, 0, 9000},
        {"m/status=404", API_FAULT_REQUEST, 0, 0, 9000},
        {"m/status=401", API_FAULT_AUTH, 0, 0, 9000},
        {"m/status=403", API_FAULT_AUTH, 0, 0, 9000},
        {"m/status=500", API_FAULT_HTTP_5XX, 0, 0, 9000},
        {"m/status=529", API_FAULT_HTTP_5XX, 0, 0, 9000},
        {"m/status=429", API_FAULT_RATE_LIMIT, 0, 0, 9000},
        {"m/retry=7", API_FAULT_RATE_LIMIT, 0, 0, 9000},
        {"m/fail_late=5", API_FAULT_HTTP_5XX, 5, 0, 9000},
    };
    (void)state;
    for (size_t k = 0; k < countof(rows); k++)
        for (size_t i = 0; i < countof(dialects); i++) {
            struct asked a;
            char word[16];
            asked_init(&a, dialects[i], rows[k].model);
            if (rows[k].low_ms) /* the others must not need a wait to end */
                a.rq.deadline = (struct api_deadlines){.first_ms = 300, .gap_ms = 200};
            int64_t took = ask(&a);
            snprintf(word, sizeof word, "h%04u", rows[k].words);
            bool has_more = str_find(buf_view(&a.content), str_of(word)) != STR_NONE;
            snprintf(word, sizeof word, "h%04u", rows[k].words - 1);
            bool has_last = rows[k].words == 0 ||
                            str_find(buf_view(&a.content), str_of(word)) != STR_NONE;
            if (a.errors != 1 || a.dones || a.error.fault != rows[k].fault || has_more || !has_last)
                fail_msg("%s %s: %s %s '%.*s'", dialects[i], rows[k].model,
                         api_request_fault_name(a.error.fault), a.error.err.text,
                         (int)base_min(a.content.len, 300), a.content.p);
            if (took < rows[k].low_ms || took > rows[k].high_ms)
                fail_msg("%s %s: after %lld ms", dialects[i], rows[k].model, (long long)took);
            assert_non_null(strstr(a.error.err.text, "leg cloud"));
            assert_null(strstr(a.error.err.text, "secret"));
            if (strcmp(rows[k].model, "m/retry=7") == 0)
                assert_int_equal(a.error.retry_after_ms, 7000);
            asked_deinit(&a);
        }
}

/* An upstream that says `said` and leaves its connection open; one request. */
struct mute {
    int listener;
    const char *said;
};

static void *mute_run(void *ctx)
{
    struct mute *m = ctx;
    char bytes[4096];
    int fd = accept(m->listener, NULL, NULL);
    if (fd < 0 || read(fd, bytes, sizeof bytes) <= 0 ||
        write(fd, m->said, strlen(m->said)) < 0)
        return NULL;
    while (read(fd, bytes, sizeof bytes) > 0)
        continue;
    close(fd);
    return NULL;
}

#define MUTE_HEAD "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
#define MUTE_CHAT MUTE_HEAD \
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n"
#define MUTE_BLOCK MUTE_HEAD "data: {\"type\":\"content_block_start\"" \
    ",\"content_block\":{\"type\":" \
    "\"text\"}}\n\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\"," \
    "\"text\":\"hi\"}}\n\n"

static void test_silence_behind_a_finished_reply_is_its_end(void **state)
{
    static const struct {
        const char *dialect, *said;
        bool is_whole;
    } rows[] = {
        {"openai_chat", MUTE_CHAT "data: {\"choices\":[{\"index\":0,\"delta\":{},"
         "\"finish_reason\":\"stop\"}]}\n\n", true},
        {"openai_chat", MUTE_CHAT, false},
        {"anthropic", MUTE_BLOCK "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":"
         "\"end_turn\"}}\n\n", true},
        {"anthropic", MUTE_BLOCK "data: {\"type\":\"content_block_stop\"}\n\n", false},
    };
    char own[64];
    (void)state;
    memcpy(own, w.url, sizeof own);
    for (size_t i = 0; i < countof(rows); i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof at;
        struct mute m = {socket(AF_INET, SOCK_STREAM, 0), rows[i].said};
        struct asked a;
        pthread_t thread;
        assert_int_equal(bind(m.listener, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(listen(m.listener, 1), 0);
        assert_int_equal(getsockname(m.listener, (struct sockaddr *)&at, &len), 0);
        assert_int_equal(pthread_create(&thread, NULL, mute_run, &m), 0);
        snprintf(w.url, sizeof w.url, "http://127.0.0.1:%u", ntohs(at.sin_port));
        asked_init(&a, rows[i].dialect, "m");
        a.rq.deadline = (struct api_deadlines){.first_ms = 5000, .gap_ms = 200};
        ask(&a);
        assert_int_equal(a.dones, rows[i].is_whole);
        assert_int_equal(a.errors, !rows[i].is_whole);
        if (!rows[i].is_whole)
            assert_int_equal(a.error.fault, API_FAULT_STALL);
        assert_int_equal(remote_leg_inflight(a.leg), 0);
        asked_deinit(&a);
        pthread_join(thread, NULL);
        close(m.listener);
        memcpy(w.url, own, sizeof own);
    }
}

/* One byte less than the whole stream is no reply, unless all but its last formality came. */
static void test_no_cut_of_a_stream_is_taken_for_an_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(dialects); i++)
        for (size_t at = 1; at < 9000; at += 1 + at / 8) {
            struct asked a;
            char model[32];
            snprintf(model, sizeof model, "m/cut_byte=%zu", at);
            asked_init(&a, dialects[i], model);
            ask(&a);
            if (!str_starts(buf_view(&w.text), buf_view(&a.content)) ||
                (a.dones && !str_eq(buf_view(&w.text), buf_view(&a.content))))
                fail_msg("%s: %zu bytes: %u ends, '%.*s'", dialects[i], at, a.dones,
                         STR_ARG(buf_view(&a.content)));
            assert_int_equal(a.dones + a.errors, 1);
            asked_deinit(&a);
        }
}

static void test_two_events_that_cannot_be_read_are_passed_over(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(dialects); i++) {
        struct asked a;
        asked_init(&a, dialects[i], "m/garbage=2");
        ask(&a);
        assert_int_equal(a.dones, 1);
        assert_true(str_eq(buf_view(&a.content), buf_view(&w.text)));
        asked_deinit(&a);
    }
}

static void test_nobody_there_is_connect_and_plain_bytes_are_no_tls(void **state)
{
    (void)state;
    struct asked a;
    asked_init(&a, "openai_chat", "m");
    remote_leg_close(a.leg);
    struct err e;
    char https[80];
    snprintf(https, sizeof https, "https://127.0.0.1:%u", stub_upstream_port(w.stub));
    static const struct {
        enum api_fault fault;
    } rows[] = {{API_FAULT_CONNECT}, {API_FAULT_TLS}};
    for (size_t i = 0; i < countof(rows); i++) {
        const struct remote_leg_options o = {
            .loop = w.loop, .client = w.client, .name = STR("cloud"),
            .dialect = dialect_of(STR("openai_chat")),
            .url = i ? str_of(https) : STR("http://127.0.0.1:1"), .requests_max = 1};
        assert_true(remote_leg_open(&a.leg, &o, &e));
        a.p = remote_leg_provider(a.leg);
        a.errors = 0;
        a.rq.id = ++last_id;
        ask(&a);
        if (a.error.fault != rows[i].fault)
            fail_msg("%s: %s", api_request_fault_name(a.error.fault), a.error.err.text);
        remote_leg_close(a.leg);
    }
    a.leg = NULL;
    asked_deinit(&a);
}

/* The same comments of a server that is no shoal are pings. */
static void test_a_prompt_that_moves_on_at_another_shoal_is_progress(void **state)
{
    static const enum dialect_continue hows[] = {DIALECT_CONTINUE_SHOAL, DIALECT_CONTINUE_NONE};
    (void)state;
    for (size_t i = 0; i < 3; i++) /* Ollama has no comments */
        for (size_t k = 0; k < countof(hows); k++) {
            struct asked a;
            struct err e;
            asked_init(&a, dialects[i], "m/prefill=20");
            remote_leg_close(a.leg);
            const struct remote_leg_options o = {
                .loop = w.loop, .client = w.client, .name = STR("cloud"),
                .dialect = dialect_of(str_of(dialects[i])), .url = str_of(w.url),
                .upstream = {.how = hows[k]}, .requests_max = 1};
            assert_true(remote_leg_open(&a.leg, &o, &e));
            a.p = remote_leg_provider(a.leg);
            a.rq.deadline.first_ms = 600; /* 20 pings take a second */
            ask(&a);
            if (k == 0 ? a.dones != 1 : a.error.fault != API_FAULT_HANG_FIRST)
                fail_msg("%s, continue %zu: %s", dialects[i], k, a.error.err.text);
            asked_deinit(&a);
        }
}

/* ---- Control ---- */

static void test_a_cancelled_request_frees_the_upstream_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(dialects); i++)
        for (uint32_t at = 1; at < 4; at++) { /* also from inside on_batch */
            struct asked a;
            struct api_error e;
            asked_init(&a, dialects[i], "m/slow=10");
            uint32_t gone = stub_upstream_counts(w.stub).gone;
            a.cancel_at = at;
            api_order_init(&a.order, &a.rq);
            assert_true(a.p.submit(a.p.self, &a.rq, (struct api_sink){on_batch, &a}, &e));
            for (int k = 0; k < 500 && stub_upstream_counts(w.stub).gone == gone; k++)
                loop_step(w.loop, 20);
            assert_int_equal(stub_upstream_counts(w.stub).gone, gone + 1);
            assert_int_equal(a.batches, at);
            assert_int_equal(remote_leg_inflight(a.leg), 0);
            asked_deinit(&a);
        }
}

static void test_a_call_ends_at_its_total_however_lively_it_is(void **state)
{
    static const struct {
        const char *model;
        enum api_fault fault; /* NONE: it is done before */
    } rows[] = {
        {"m/slow=60", API_FAULT_STALL}, {"m/pings", API_FAULT_HANG_FIRST},
        {"m/hang_header", API_FAULT_HANG_HEADER}, {"m", API_FAULT_NONE}};
    (void)state;
    for (size_t d = 0; d < countof(dialects); d++)
        for (size_t i = 0; i < countof(rows); i++) {
            struct asked a;
            asked_init(&a, dialects[d], rows[i].model);
            a.rq.deadline.total_ms = 600;
            int64_t took = ask(&a);
            assert_int_equal(a.error.fault, rows[i].fault);
            assert_int_equal(a.dones, rows[i].fault == API_FAULT_NONE);
            if (rows[i].fault != API_FAULT_NONE) {
                assert_true(took >= 590 && took < 9000);
                assert_non_null(strstr(a.error.err.text, "total of 600 ms"));
            }
            asked_deinit(&a);
        }
}

static void test_a_leg_may_be_closed_by_the_end_of_its_last_request(void **state)
{
    static const char *const models[] = {"m", "m/stall=3", "m/end=3", "m/status=500",
                                         "m/fail_late=5"};
    (void)state;
    for (size_t d = 0; d < countof(dialects); d++)
        for (size_t i = 0; i < countof(models); i++) {
            struct asked a;
            asked_init(&a, dialects[d], models[i]);
            a.closes = true;
            a.rq.deadline.gap_ms = 200;
            ask(&a);
            assert_int_equal(a.dones, i == 0);
            assert_int_equal(a.errors, i != 0);
            assert_null(a.leg);
            asked_deinit(&a);
        }
}

static void test_a_held_reply_waits_without_being_late(void **state)
{
    struct asked a;
    struct api_error e;
    (void)state;
    asked_init(&a, "openai_chat", "m/slow=20");
    a.rq.deadline.gap_ms = 400;
    api_order_init(&a.order, &a.rq);
    assert_true(a.p.submit(a.p.self, &a.rq, (struct api_sink){on_batch, &a}, &e));
    while (a.content.len == 0)
        loop_step(w.loop, 20);
    a.p.hold(a.p.self, a.rq.id, true);
    size_t had = a.content.len;
    uint32_t never = 0;
    run_until(&never, 800); /* twice gap_ms */
    assert_int_equal(a.errors, 0);
    assert_true(a.content.len <= had + 64);
    a.p.hold(a.p.self, a.rq.id, false);
    run_until(&a.dones, 5000);
    assert_true(str_eq(buf_view(&a.content), buf_view(&w.text)));
    asked_deinit(&a);
}

static void test_a_busy_leg_refuses_at_once(void **state)
{
    struct asked a;
    struct api_error e;
    (void)state;
    asked_init(&a, "ollama", "m/hang_header");
    for (uint32_t i = 0; i < 64; i++) {
        a.rq.id = ++last_id;
        assert_true(a.p.submit(a.p.self, &a.rq, (struct api_sink){on_batch, &a}, &e));
    }
    assert_false(a.p.submit(a.p.self, &a.rq, (struct api_sink){on_batch, &a}, &e));
    assert_int_equal(e.err.code, ERR_OVERLOADED);
    asked_deinit(&a);
}

/* ---- What is sent ---- */

static void test_a_continued_turn_gets_the_rest_of_the_text(void **state)
{
    static const struct {
        const char *dialect;
        enum dialect_continue how;
    } rows[] = {{"openai_chat", DIALECT_CONTINUE_FINAL_MESSAGE},
                {"anthropic", DIALECT_CONTINUE_PREFILL},
                {"openai_chat", DIALECT_CONTINUE_SHOAL}, {"anthropic", DIALECT_CONTINUE_SHOAL},
                {"ollama", DIALECT_CONTINUE_SHOAL}};
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct asked a;
        struct err e;
        size_t at = str_find(buf_view(&w.text), STR("h0012"));
        const struct api_part part = {.kind = API_PART_TEXT,
                                      .text = str_sub(buf_view(&w.text), 0, at)};
        const struct api_partial partial = {
            .tokens_used = 12, .message = {.role = API_ROLE_ASSISTANT, .parts = &part,
                                           .parts_count = 1}};
        const struct api_resume resume = {.partials = &partial, .partials_count = 1};
        asked_init(&a, rows[i].dialect, "m");
        remote_leg_close(a.leg);
        const struct remote_leg_options o = {
            .loop = w.loop, .client = w.client, .name = STR("cloud"),
            .dialect = dialect_of(str_of(rows[i].dialect)), .url = str_of(w.url),
            .upstream = {.caps = API_CAP_ALL_, .how = rows[i].how}, .requests_max = 1};
        assert_true(remote_leg_open(&a.leg, &o, &e));
        a.p = remote_leg_provider(a.leg);
        a.rq.resume = &resume;
        ask(&a);
        if (!str_eq(buf_view(&a.content), str_from(buf_view(&w.text), at)))
            fail_msg("%s: %s '%.*s'", rows[i].dialect, a.error.err.text,
                     STR_ARG(buf_view(&a.content)));
        asked_deinit(&a);
    }
}

static bool last_has(const char *text)
{
    return str_find(stub_upstream_last(w.stub), str_of(text)) != STR_NONE;
}

static void test_keys_and_kept_headers_go_where_they_belong(void **state)
{
    static const struct api_header headers[] = {
        {STR_INIT("authorization"), STR_INIT("Bearer of-the-client")},
        {STR_INIT("anthropic-beta"), STR_INIT("fine-2026")}, {STR_INIT("cookie"), STR_INIT("c=1")},
        {STR_INIT("anthropic-version"), STR_INIT("2099-01-01")}};
    const struct api_secret key = {STR("of-the-client")};
    struct asked a;
    (void)state;
    asked_init(&a, "anthropic", "m");
    a.rq.dialect = STR("anthropic");
    a.rq.headers = headers;
    a.rq.headers_count = countof(headers);
    a.rq.client_key = &key;
    ask(&a);
    assert_true(last_has("x-api-key: secret-key-of-this-leg\n"));
    assert_true(last_has("anthropic-beta: fine-2026\n"));
    assert_true(last_has("anthropic-version: 2099-01-01\n"));
    assert_false(last_has("anthropic-version: 2023-06-01"));
    assert_true(last_has("shoal-hop: 1\n"));
    assert_false(last_has("of-the-client"));
    assert_false(last_has("cookie"));
    asked_deinit(&a);
    asked_init(&a, "openai_chat", "m"); /* another protocol: no foreign header */
    a.rq.dialect = STR("anthropic");
    a.rq.headers = headers;
    a.rq.headers_count = countof(headers);
    ask(&a);
    assert_true(last_has("authorization: Bearer secret-key-of-this-leg\n"));
    assert_false(last_has("anthropic"));
    asked_deinit(&a);
}

/* Whole, and cut where our sentence about it ends. */
static void test_no_key_comes_back_in_what_an_upstream_says(void **state)
{
    static const char *const models[] = {"m/echo=400", "m/echo=403", "m/echo=404", "m/echo=429",
                                         "m/echo=500", "m/echo=529"};
    char longer[240];
    (void)state;
    for (size_t i = 0; i < countof(dialects) * countof(models) * 2; i++) {
        const char *dialect = dialects[i / 2 % countof(dialects)];
        const char *model = models[i / 2 / countof(dialects)];
        bool is_long = i % 2;
        snprintf(longer, sizeof longer, "secret%0220d", 7);
        const struct api_secret key = {is_long ? str_of(longer) : STR("secret-key-of-a-client")};
        struct asked a;
        asked_init(&a, dialect, model);
        a.rq.client_key = &key;
        if (is_long || i % 3 == 0) { /* the client's own, passed on */
            remote_leg_close(a.leg);
            open_leg(&a, dialect, REMOTE_LEG_AUTH_PASSTHROUGH);
        }
        ask(&a);
        assert_int_equal(a.errors, 1);
        assert_true(last_has(is_long ? longer : "secret-key-of-"));
        if (strstr(a.error.err.text, "secret") ||
            str_find(buf_view(&a.words), STR("secret")) != STR_NONE)
            fail_msg("%s %s: '%s', '%.*s'", dialect, model, a.error.err.text,
                     STR_ARG(buf_view(&a.words)));
        if (strcmp(model, "m/echo=403") != 0)
            assert_non_null(strstr(a.error.err.text, "no such account: "));
        asked_deinit(&a);
    }
}

static void test_a_body_of_the_same_protocol_goes_as_written(void **state)
{
    struct asked a;
    (void)state;
    asked_init(&a, "openai_chat", "m");
    a.rq.dialect = STR("openai_chat");
    a.rq.body = STR("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}], \"x_unknown\": [1.50],"
                    "\"model\":\"other\",\"shoal\":{\"agent\":\"a\"},\"session\":\"s\"}");
    ask(&a);
    assert_int_equal(a.dones, 1);
    assert_true(last_has("\"x_unknown\":[1.50]"));
    assert_true(last_has("\"model\":\"m\""));
    assert_true(last_has("\"stream_options\":{\"include_usage\":true}"));
    assert_false(last_has("other"));
    assert_false(last_has("\"shoal\""));
    assert_false(last_has("\"session\""));
    asked_deinit(&a);
}

static void test_a_request_that_passed_three_shoals_is_a_loop(void **state)
{
    static const struct api_header hop = {STR_INIT("shoal-hop"), STR_INIT("3")};
    struct asked a;
    struct api_error e;
    (void)state;
    asked_init(&a, "openai_chat", "m");
    a.rq.headers = &hop;
    a.rq.headers_count = 1;
    assert_false(a.p.submit(a.p.self, &a.rq, (struct api_sink){on_batch, &a}, &e));
    assert_int_equal(e.err.code, ERR_REQUEST);
    asked_deinit(&a);
}

/* ---- Checks, configuration ---- */

static struct remote_leg_check checked;
static uint32_t checks;
static void on_check(void *ctx, const struct remote_leg_check *c)
{
    (void)ctx;
    checked = *c;
    checks++;
}

static void test_a_free_check_costs_nothing_and_a_probe_one_small_reply(void **state)
{
    static const struct {
        const char *fault;
        enum api_fault check, probe;
    } rows[] = {{"ok", API_FAULT_NONE, API_FAULT_NONE},
                {"status=503", API_FAULT_HTTP_5XX, API_FAULT_HTTP_5XX},
                {"status=401", API_FAULT_AUTH, API_FAULT_AUTH},
                {"status=429", API_FAULT_NONE, API_FAULT_RATE_LIMIT},
                {"status=400", API_FAULT_NONE, API_FAULT_NONE}};
    const struct api_deadlines wait = {.connect_ms = 2000, .first_ms = 5000, .gap_ms = 5000};
    struct err e;
    (void)state;
    for (size_t k = 0; k < countof(rows); k++)
        for (size_t i = 0; i < countof(dialects); i++) {
            struct asked a;
            asked_init(&a, dialects[i], "m");
            assert_true(stub_upstream_set(w.stub, str_of(rows[k].fault), &e));
            uint32_t billed = stub_upstream_counts(w.stub).chats;
            checks = 0;
            assert_true(remote_leg_ask(a.leg, on_check, NULL));
            run_until(&checks, 5000);
            assert_int_equal(checks, 1);
            if (checked.fault != rows[k].check)
                fail_msg("%s: %s", rows[k].fault, api_request_fault_name(checked.fault));
            assert_int_equal(stub_upstream_counts(w.stub).chats, billed);
            checks = 0;
            assert_true(remote_leg_probe(a.leg, STR("m"), &wait, on_check, NULL));
            run_until(&checks, 5000);
            if (checked.fault != rows[k].probe)
                fail_msg("%s probe: %s", rows[k].fault, api_request_fault_name(checked.fault));
            assert_int_equal(checked.tokens > 0, k == 0);
            str sent = stub_upstream_last(w.stub);
            assert_true(str_find(sent, STR(":16")) != STR_NONE);
            assert_int_equal(stub_upstream_counts(w.stub).chats, billed + 1);
            asked_deinit(&a);
        }
    assert_true(stub_upstream_set(w.stub, STR(""), &e));
}

static void test_a_leg_that_cannot_be_is_refused_by_name(void **state)
{
    static const struct {
        const char *dialect, *url, *ca_file, *key, *says;
        enum dialect_continue how;
    } rows[] = {
        {"openai_chat", "ftp://x", "", "k", "url: http://HOST", 0},
        {"openai_chat", "http://", "", "k", "url: http://HOST", 0},
        {"openai_chat", "http://u:p@x", "", "k", "url: http://HOST", 0},
        {"openai_chat", "http://x/?a=1", "", "k", "url: http://HOST", 0},
        {"openai_chat", "http://x/v1", "", "k", "without \"/v1\"", 0},
        {"openai_chat", "http://x/", "", "k", "without \"/v1\"", 0},
        {"openai_complete", "http://x", "", "k", "no upstream speaks openai_complete", 0},
        {"openai_chat", "http://x", "/nowhere.pem", "k", "ca_file: ", 0},
        {"openai_chat", "http://x", "Makefile", "k", "holds no certificate", 0},
        {"openai_chat", "http://x", "", "", "its key is empty", 0},
        {"openai_chat", "http://x", "", "a\nb", "byte 1 of its key", 0},
        {"openai_chat", "http://x", "", "k", "continue: prefill", DIALECT_CONTINUE_PREFILL},
        {"anthropic", "http://x", "", "k", "continue: final_message",
         DIALECT_CONTINUE_FINAL_MESSAGE},
        {"openai_responses", "http://x", "", "k", "continue: prefill", DIALECT_CONTINUE_PREFILL},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct remote_leg *leg = NULL;
        struct err e = {0};
        const struct remote_leg_options o = {
            .loop = w.loop, .client = w.client, .name = STR("cloud"),
            .dialect = dialect_of(str_of(rows[i].dialect)), .url = str_of(rows[i].url),
            .ca_file = str_of(rows[i].ca_file), .auth = REMOTE_LEG_AUTH_KEY,
            .key = str_of(rows[i].key), .upstream = {.how = rows[i].how}};
        if (remote_leg_open(&leg, &o, &e) || !strstr(e.text, rows[i].says) ||
            !strstr(e.text, "leg cloud"))
            fail_msg("%s %s: %s", rows[i].dialect, rows[i].url, leg ? "opened" : e.text);
        assert_int_equal(e.code, ERR_CONFIG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reply_of_every_protocol_comes_whole),
        cmocka_unit_test(test_reasoning_and_calls_come_through),
        cmocka_unit_test(test_G24_an_end_that_claims_calls_without_one_is_a_plain_end),
        cmocka_unit_test(test_every_fault_has_its_class),
        cmocka_unit_test(test_silence_behind_a_finished_reply_is_its_end),
        cmocka_unit_test(test_no_cut_of_a_stream_is_taken_for_an_end),
        cmocka_unit_test(test_two_events_that_cannot_be_read_are_passed_over),
        cmocka_unit_test(test_nobody_there_is_connect_and_plain_bytes_are_no_tls),
        cmocka_unit_test(test_a_prompt_that_moves_on_at_another_shoal_is_progress),
        cmocka_unit_test(test_a_cancelled_request_frees_the_upstream_at_once),
        cmocka_unit_test(test_a_call_ends_at_its_total_however_lively_it_is),
        cmocka_unit_test(test_a_leg_may_be_closed_by_the_end_of_its_last_request),
        cmocka_unit_test(test_a_held_reply_waits_without_being_late),
        cmocka_unit_test(test_a_busy_leg_refuses_at_once),
        cmocka_unit_test(test_a_continued_turn_gets_the_rest_of_the_text),
        cmocka_unit_test(test_keys_and_kept_headers_go_where_they_belong),
        cmocka_unit_test(test_no_key_comes_back_in_what_an_upstream_says),
        cmocka_unit_test(test_a_body_of_the_same_protocol_goes_as_written),
        cmocka_unit_test(test_a_request_that_passed_three_shoals_is_a_loop),
        cmocka_unit_test(test_a_free_check_costs_nothing_and_a_probe_one_small_reply),
        cmocka_unit_test(test_a_leg_that_cannot_be_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
