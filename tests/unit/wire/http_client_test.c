#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "wire/http_client.h"
#include "wire/http_server.h"
#include "wire/loop.h"

/* Client and server share one loop; the server answers by path. */
static struct world {
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    struct http_conn *held;
    int gone, drained;
} w;

struct result {
    struct http_call *call;
    struct buf body;
    int status, heads, ends, headers_after_head;
    char length[32]; /* Content-Length */
    struct err why;
    bool has_failed, cancel_on_bytes, start_on_bytes, start_on_end;
    struct result *other;
};

static void start(struct result *r, const char *path, struct http_call_options o);

static uint64_t on_server_header(void *ctx, struct http_conn *c)
{
    (void)ctx, (void)c;
    return 8u << 20;
}

static void on_request(void *ctx, struct http_conn *c)
{
    static char block[65536];
    const struct http_request *r = http_conn_request(c);
    struct buf b;
    (void)ctx;
    if (str_eq(r->path, STR("/hold"))) {
        w.held = c;
    } else if (str_eq(r->path, STR("/begin"))) {
        w.held = c;
        http_conn_begin(c, 200, "text/plain");
        http_conn_write(c, STR("one "));
    } else if (str_eq(r->path, STR("/big"))) {
        http_conn_begin(c, 200, "text/plain");
        for (int i = 0; i < 128; i++)
            http_conn_write(c, str_view(block, sizeof block));
        http_conn_end(c);
    } else if (str_eq(r->path, STR("/size"))) {
        buf_init(&b, 100);
        buf_printf(&b, "%zu", r->body.len);
        http_conn_reply(c, 200, "text/plain", buf_view(&b));
        buf_deinit(&b);
    } else {
        buf_init(&b, 4096);
        buf_printf(&b, "%.*s %.*s [%.*s] %.*s", STR_ARG(r->method), STR_ARG(r->path),
                   STR_ARG(r->body), STR_ARG(http_conn_header(c, "x-test")));
        http_conn_reply(c, str_eq(r->path, STR("/busy")) ? 503 : 200, "text/plain",
                        buf_view(&b));
        buf_deinit(&b);
    }
}

static void on_gone(void *ctx, struct http_conn *c)
{
    (void)ctx;
    w.gone++;
    if (w.held == c)
        w.held = NULL;
}

static void on_drain(void *ctx, struct http_conn *c)
{
    (void)ctx, (void)c;
    w.drained++;
}

static void write_error(void *ctx, struct http_conn *c, int status, const char *text,
                        struct buf *out)
{
    (void)ctx, (void)c;
    buf_printf(out, "%d %s", status, text);
}

static int setup(void **state)
{
    struct err e;
    (void)state;
    memset(&w, 0, sizeof w);
    if (!loop_open(&w.loop, &e))
        return -1;
    struct http_server_options o = {
        .base = loop_base(w.loop), .connections_max = 100,
        .handlers = {NULL, on_server_header, on_request, on_gone, on_drain, write_error, NULL},
        .limits = {.header_size_max = 16384, .pipeline_size_max = 4096,
                   .output_high = 64u << 20, .output_low = 1u << 20, .header_time_ms = 5000,
                   .idle_time_ms = 5000, .upload_idle_ms = 5000, .reader_idle_ms = 60000}};
    return http_server_open(&w.server, &o, &e) &&
           http_server_listen(w.server, STR("127.0.0.1:0"), &e) &&
           http_client_open(&w.client, w.loop, 64, &e) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    http_client_close(w.client);
    http_server_close(w.server);
    loop_close(w.loop);
    return 0;
}

static void on_head(void *ctx, int status)
{
    struct result *r = ctx;
    r->status = status;
    r->heads++;
}

static void on_bytes(void *ctx, str bytes)
{
    struct result *r = ctx;
    buf_add(&r->body, bytes);
    if (r->cancel_on_bytes) {
        http_client_cancel(r->call);
        r->call = NULL;
    }
    if (r->start_on_bytes)
        start(r->other, "/other", (struct http_call_options){0});
    r->start_on_bytes = false;
}

static void on_header(void *ctx, str name, str value)
{
    struct result *r = ctx;
    r->headers_after_head += r->heads;
    if (str_eq_nocase(name, STR("content-length")))
        snprintf(r->length, sizeof r->length, "%.*s", STR_ARG(value));
}

static void on_end(void *ctx, const struct err *why)
{
    struct result *r = ctx;
    r->ends++;
    r->call = NULL;
    if (why) {
        r->has_failed = true;
        r->why = *why;
    }
    if (r->start_on_end)
        start(r->other, "/other", (struct http_call_options){0});
}

static void start(struct result *r, const char *path, struct http_call_options o)
{
    char url[100];
    struct err e;
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", http_server_port(w.server, 0), path);
    buf_init(&r->body, 64u << 20);
    o.url = o.url.len ? o.url : str_of(url);
    o.handlers = (struct http_call_handlers){r, on_head, on_bytes, on_end};
    o.on_header = on_header;
    if (!http_client_start(w.client, &r->call, &o, &e))
        fail_msg("%s", e.text);
}

static void turn(int64_t ms)
{
    for (int64_t end = loop_ms() + ms; loop_ms() < end;)
        loop_step(w.loop, 5);
}

static void run(struct result *r)
{
    for (int64_t end = loop_ms() + 10000; !r->ends && loop_ms() < end;)
        loop_step(w.loop, 20);
    assert_int_equal(r->ends, 1);
    assert_null(r->call);
}

static void turn_until_body(const struct result *r)
{
    for (int64_t end = loop_ms() + 10000; !r->body.len && loop_ms() < end;)
        loop_step(w.loop, 5);
    assert_string_equal(r->body.p, "one ");
}

static void test_an_answer_arrives_whole_with_its_status(void **state)
{
    static const char *const headers[] = {"X-Test: yes", NULL};
    static const struct {
        const char *path, *method, *body, *answer;
        int status;
    } cases[] = {
        {"/a", NULL, "", "GET /a [] yes", 200},
        {"/b", NULL, "{}", "POST /b [{}] yes", 200},
        {"/c", "DELETE", "", "DELETE /c [] yes", 200},
        {"/busy", NULL, "", "GET /busy [] yes", 503},
    };
    (void)state;
    for (size_t i = 0; i < countof(cases); i++) {
        struct result r = {0};
        start(&r, cases[i].path, (struct http_call_options){.headers = headers,
              .method = cases[i].method, .body = str_of(cases[i].body)});
        run(&r);
        assert_false(r.has_failed);
        assert_int_equal(r.status, cases[i].status);
        assert_int_equal(r.heads, 1);
        assert_string_equal(r.body.p, cases[i].answer);
        assert_int_equal(atoi(r.length), (int)r.body.len); /* headers came, before the head */
        assert_int_equal(r.headers_after_head, 0);
        buf_deinit(&r.body);
    }
    assert_int_equal(http_server_connections(w.server), 1); /* one was kept and used again */
}

static void test_a_large_body_is_sent_at_once(void **state)
{
    static char body[3 << 20];
    struct result r = {0};
    (void)state;
    memset(body, 'x', sizeof body);
    start(&r, "/size", (struct http_call_options){.body = str_view(body, sizeof body)});
    run(&r);
    assert_string_equal(r.body.p, "3145728");
    buf_deinit(&r.body);
}

static void test_every_wait_has_a_deadline_that_names_it(void **state)
{
    static const struct {
        const char *path, *text;
        struct http_call_options o;
    } cases[] = {
        {"/hold", "answer: nothing came for 30 ms", {.first_ms = 30}},
        {"/begin", "body: nothing came for 30 ms", {.idle_ms = 30, .first_ms = 5000}},
        {"/hold", "call: Timeout was reached", {.total_ms = 30}},
    };
    (void)state;
    for (size_t i = 0; i < countof(cases); i++) {
        struct result r = {0};
        start(&r, cases[i].path, cases[i].o);
        run(&r);
        assert_int_equal(r.why.code, ERR_DEADLINE);
        assert_string_equal(r.why.text, cases[i].text);
        buf_deinit(&r.body);
    }
}

static void test_failures_have_their_code(void **state)
{
    struct result refused = {0}, broken = {0};
    (void)state;
    start(&refused, "", (struct http_call_options){.url = STR("http://127.0.0.1:1/")});
    run(&refused);
    assert_int_equal(refused.why.code, ERR_CONNECT);
    start(&broken, "/begin", (struct http_call_options){0});
    turn_until_body(&broken);
    http_conn_abort(w.held);
    run(&broken);
    assert_int_equal(broken.why.code, ERR_UPSTREAM);
    buf_deinit(&refused.body);
    buf_deinit(&broken.body);
}

static void test_what_cannot_be_called_is_refused_at_once(void **state)
{
    struct http_call_options o = {.url = STR("file:///etc/passwd")};
    const char *const cut[] = {"a: b\r\nc: d", NULL};
    struct http_call *call;
    struct err e;
    (void)state;
    assert_false(http_client_start(w.client, &call, &o, &e));
    assert_int_equal(e.code, ERR_USAGE);
    o = (struct http_call_options){.url = STR("http://127.0.0.1:1/"), .headers = cut};
    assert_false(http_client_start(w.client, &call, &o, &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_int_equal(http_client_calls(w.client), 0);
}

static void test_calls_over_the_limit_are_refused(void **state)
{
    struct result r[64] = {{0}};
    struct http_call_options o = {.url = STR("http://127.0.0.1:1/")};
    struct http_call *call;
    struct err e;
    (void)state;
    for (size_t i = 0; i < countof(r); i++)
        start(&r[i], "/hold", (struct http_call_options){0});
    assert_false(http_client_start(w.client, &call, &o, &e));
    assert_int_equal(e.code, ERR_LIMIT);
}

static void test_a_cancelled_call_is_silent_and_its_server_notices(void **state)
{
    struct result early = {0}, late = {0}, inside = {.cancel_on_bytes = true};
    (void)state;
    start(&early, "/hold", (struct http_call_options){0});
    http_client_cancel(early.call);
    start(&late, "/begin", (struct http_call_options){0});
    turn_until_body(&late);
    http_client_cancel(late.call);
    start(&inside, "/begin", (struct http_call_options){0});
    for (int64_t end = loop_ms() + 10000; w.gone < 2 && loop_ms() < end;)
        loop_step(w.loop, 5);
    assert_int_equal(early.ends + late.ends + inside.ends, 0);
    assert_int_equal(w.gone, 2);
    assert_int_equal(http_client_calls(w.client), 0);
    buf_deinit(&late.body);
    buf_deinit(&inside.body);
}

static void test_handlers_may_start_calls(void **state)
{
    struct result second = {0}, third = {0};
    struct result first = {.start_on_bytes = true, .other = &second};
    (void)state;
    start(&first, "/a", (struct http_call_options){0});
    second = (struct result){.start_on_end = true, .other = &third};
    run(&first);
    run(&second);
    run(&third);
    assert_string_equal(second.body.p, "GET /other [] ");
    assert_string_equal(third.body.p, "GET /other [] ");
    buf_deinit(&first.body);
    buf_deinit(&second.body);
    buf_deinit(&third.body);
}

static void test_a_paused_call_leaves_bytes_with_the_server(void **state)
{
    struct result r = {0};
    (void)state;
    start(&r, "/big", (struct http_call_options){.idle_ms = 50});
    http_client_pause(r.call, true);
    turn(200); /* longer than idle_ms, which stands still */
    assert_int_equal(r.ends, 0);
    assert_int_equal(r.body.len, 0);
    http_client_pause(r.call, false);
    run(&r);
    assert_false(r.has_failed);
    assert_int_equal(r.body.len, 128 * 65536);
    buf_deinit(&r.body);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_an_answer_arrives_whole_with_its_status),
        TEST(test_a_large_body_is_sent_at_once),
        TEST(test_every_wait_has_a_deadline_that_names_it),
        TEST(test_failures_have_their_code),
        TEST(test_what_cannot_be_called_is_refused_at_once),
        TEST(test_calls_over_the_limit_are_refused),
        TEST(test_a_cancelled_call_is_silent_and_its_server_notices),
        TEST(test_handlers_may_start_calls),
        TEST(test_a_paused_call_leaves_bytes_with_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
