#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "wire/http_server.h"

/* One server on a port of its own, its loop in a thread; the test is a blocking client. */
struct fixture {
    struct event_base *base;
    struct http_server *server;
    pthread_t thread;
    int wake[2];
    uint16_t port;
    atomic_int gone, drained, slow; /* counted by the loop, read by the test */
};

static uint64_t fixture_header(void *ctx, struct http_conn *c)
{
    (void)ctx;
    const struct http_request *r = http_conn_request(c);
    if (str_eq(r->path, STR("/deny"))) {
        http_conn_reply(c, 401, "application/json", STR("{\"error\":\"key\"}"));
        return 0;
    }
    return 1000;
}

static void fixture_request(void *ctx, struct http_conn *c)
{
    struct fixture *f = ctx;
    const struct http_request *r = http_conn_request(c);
    if (str_eq(r->path, STR("/hold")))
        return;
    if (str_eq(r->path, STR("/big"))) {
        char *megabyte = calloc(1, 1 << 20);
        http_conn_begin(c, 200, "text/plain");
        for (int i = 0; i < 32; i++)
            http_conn_write(c, str_view(megabyte, 1 << 20));
        free(megabyte);
        f->slow += http_conn_is_slow(c);
        return; /* ended in on_drain */
    }
    if (str_eq(r->path, STR("/stream"))) {
        http_conn_add_header(c, "X-Test", STR("a\r\nb"));
        http_conn_begin(c, 200, "text/plain");
        http_conn_write(c, STR("one "));
        http_conn_write(c, STR("two"));
        http_conn_end(c);
        return;
    }
    struct buf b;
    buf_init(&b, 4096);
    buf_printf(&b, "%.*s %.*s %.*s [%.*s]", STR_ARG(r->method), STR_ARG(r->path),
               STR_ARG(r->query), STR_ARG(r->body));
    http_conn_reply(c, 200, "text/plain", buf_view(&b));
    buf_deinit(&b);
}

static void fixture_gone(void *ctx, struct http_conn *c)
{
    (void)c;
    ((struct fixture *)ctx)->gone++;
}

static void fixture_drain(void *ctx, struct http_conn *c)
{
    ((struct fixture *)ctx)->drained++;
    http_conn_end(c);
}

static void fixture_error(void *ctx, struct http_conn *c, int status, const char *text,
                          struct buf *out)
{
    (void)ctx, (void)c;
    buf_printf(out, "{\"status\":%d,\"error\":\"%s\"}", status, text);
}

static void fixture_stop(evutil_socket_t fd, short what, void *base)
{
    (void)fd, (void)what;
    event_base_loopbreak(base);
}

static void *fixture_run(void *arg)
{
    struct fixture *f = arg;
    struct event *stop = event_new(f->base, f->wake[0], EV_READ, fixture_stop, f->base);
    event_add(stop, NULL);
    event_base_dispatch(f->base);
    event_free(stop);
    return NULL;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct err e = {0};
    f->base = event_base_new();
    struct http_server_options o = {
        .base = f->base,
        .handlers = {f, fixture_header, fixture_request, fixture_gone, fixture_drain,
                     fixture_error, NULL},
        .limits = {.header_size_max = 4096, .pipeline_size_max = 65536, .output_high = 1 << 20,
                   .output_low = 65536, .header_time_ms = 300, .idle_time_ms = 5000,
                   .upload_idle_ms = 300, .reader_idle_ms = 1000},
        .connections_max = 4,
    };
    assert_true(http_server_open(&f->server, &o, &e));
    assert_true(http_server_listen(f->server, STR("127.0.0.1:0"), &e));
    f->port = http_server_port(f->server, 0);
    assert_int_equal(pipe(f->wake), 0);
    assert_int_equal(pthread_create(&f->thread, NULL, fixture_run, f), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(write(f->wake[1], "x", 1), 1);
    pthread_join(f->thread, NULL);
    http_server_close(f->server);
    event_base_free(f->base);
    close(f->wake[0]);
    close(f->wake[1]);
    free(f);
    return 0;
}

static int dial(struct fixture *f)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(f->port)};
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct timeval tv = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof in), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Everything until the server closes, or until the text holds `until`. */
static char *hear(int fd, const char *until)
{
    static char text[65536];
    size_t len = 0;
    for (;;) {
        ssize_t n = recv(fd, text + len, sizeof text - 1 - len, 0);
        if (n <= 0)
            break;
        len += (size_t)n;
        text[len] = 0;
        if (until && strstr(text, until))
            break;
    }
    text[len] = 0;
    return text;
}

static void wait_for(const atomic_int *value, int wanted)
{
    for (int i = 0; i < 300 && atomic_load(value) < wanted; i++)
        usleep(10000);
    assert_int_equal(atomic_load(value), wanted);
}

static void test_a_request_split_at_every_byte_reads_the_same(void **state)
{
    struct fixture *f = *state;
    const char *request = "POST /p/q?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    int fd = dial(f);
    for (size_t cut = 1; cut < strlen(request); cut++) {
        assert_int_equal(send(fd, request, cut, MSG_NOSIGNAL), (ssize_t)cut);
        usleep(500);
        say(fd, request + cut);
        assert_non_null(strstr(hear(fd, "]"), "POST /p/q x=1 [hello]"));
    }
    close(fd);
}

static void test_pipelined_requests_are_answered_in_order(void **state)
{
    int fd = dial(*state);
    say(fd, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"
            "POST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            "2\r\nab\r\n1\r\nc\r\n0\r\n\r\nGET /stream HTTP/1.1\r\nHost: a\r\n\r\n"
            "GET /4 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    char *text = hear(fd, NULL), *one = strstr(text, "GET /1  []"), *two, *four;
    assert_non_null(one);
    assert_non_null(two = strstr(one, "POST /2  [abc]"));
    assert_non_null(strstr(two, "X-Test: a??b\r\n"));
    assert_non_null(strstr(two, "4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"));
    assert_non_null(four = strstr(two, "GET /4  []"));
    close(fd);
}

static void test_malformed_and_oversized_requests_get_json_and_a_status(void **state)
{
    static const struct { const char *request, *status; } rows[] = {
        {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400"},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
         "400"},
        {"\x16\x03\x01 hello\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n", "417"},
        {"GET / HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\n\r\n", "400"},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"},
        {"GET / HTTP/2.0\r\n\r\n", "505"},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", "413"},
        {"GET /deny HTTP/1.1\r\nHost: a\r\n\r\n", "401"},
        {"POST /deny HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\nunread", "401"},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
         "400"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        int fd = dial(*state);
        say(fd, rows[i].request);
        char *text = hear(fd, NULL), status[32];
        snprintf(status, sizeof status, "HTTP/1.1 %s ", rows[i].status);
        assert_non_null(strstr(text, status));
        assert_non_null(strstr(text, "\r\n\r\n{\""));
        close(fd);
    }
}

static void test_headers_over_the_limit_are_431(void **state)
{
    int fd = dial(*state);
    say(fd, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    char big[8192];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = 0;
    say(fd, big);
    assert_non_null(strstr(hear(fd, NULL), "HTTP/1.1 431 "));
    close(fd);
}

static void test_slow_headers_and_bodies_are_408(void **state)
{
    static const char *const starts[] = {
        "GET / HT", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"};
    for (size_t i = 0; i < countof(starts); i++) {
        int fd = dial(*state);
        say(fd, starts[i]);
        assert_non_null(strstr(hear(fd, NULL), "HTTP/1.1 408 "));
        close(fd);
    }
}

static void test_expect_100_is_answered_before_the_body(void **state)
{
    int fd = dial(*state);
    say(fd, "POST /e HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_non_null(strstr(hear(fd, "\r\n\r\n"), "HTTP/1.1 100 Continue"));
    say(fd, "ok");
    assert_non_null(strstr(hear(fd, "]"), "[ok]"));
    close(fd);
}

static void test_old_clients_and_head_get_what_they_can_read(void **state)
{
    int fd = dial(*state);
    say(fd, "GET /stream HTTP/1.0\r\n\r\n");
    char *text = hear(fd, NULL);
    assert_null(strstr(text, "chunked"));
    assert_non_null(strstr(text, "\r\n\r\none two"));
    close(fd);
    fd = dial(*state);
    say(fd, "HEAD /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    text = hear(fd, NULL);
    assert_non_null(strstr(text, "Content-Length: 11\r\n"));
    assert_true(str_ends(str_of(text), STR("\r\n\r\n")));
    close(fd);
}

static void test_a_client_that_leaves_is_noticed_half_closed_too(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 2; i++) {
        int fd = dial(f);
        say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        usleep(50000);
        if (i == 0)
            shutdown(fd, SHUT_WR);
        else
            close(fd);
        wait_for(&f->gone, i + 1);
        if (i == 0)
            close(fd);
    }
}

static void test_a_hang_up_is_noticed_behind_too_much_pipelined_input(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);
    say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    /* More than pipeline_size_max, less than the kernel keeps: the FIN can arrive. */
    static char junk[100000];
    memset(junk, 'x', sizeof junk);
    assert_int_equal(send(fd, junk, sizeof junk, MSG_NOSIGNAL), (ssize_t)sizeof junk);
    close(fd);
    wait_for(&f->gone, 1);
}

static void test_a_slow_reader_is_told_and_drained(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);
    say(fd, "GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    wait_for(&f->slow, 1);
    size_t total = 0;
    char piece[65536];
    for (ssize_t n; (n = recv(fd, piece, sizeof piece, 0)) > 0;)
        total += (size_t)n;
    assert_true(total > 32u << 20);
    assert_int_equal(f->drained, 1);
    close(fd);
}

static void test_a_reader_that_takes_nothing_is_gone(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);
    say(fd, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&f->gone, 1);
    close(fd);
}

static void test_connections_over_the_limit_get_503_at_once(void **state)
{
    struct fixture *f = *state;
    int fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = dial(f);
        say(fds[i], "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    usleep(50000);
    int fd = dial(f);
    assert_non_null(strstr(hear(fd, NULL), "HTTP/1.1 503 "));
    close(fd);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
}

static void test_addresses_are_judged_and_bad_ones_named(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    assert_true(http_server_is_loopback(STR("127.0.0.1:1")));
    assert_true(http_server_is_loopback(STR("[::1]:1")) && http_server_is_loopback(STR("unix:/x")));
    assert_false(http_server_is_loopback(STR(":1")) || http_server_is_loopback(STR("10.0.0.1:1")));
    assert_false(http_server_listen(f->server, STR("nonsense"), &e));
    assert_int_equal(e.code, ERR_CONFIG);
    char taken[32];
    snprintf(taken, sizeof taken, "127.0.0.1:%u", f->port);
    assert_false(http_server_listen(f->server, str_of(taken), &e));
    assert_int_equal(e.code, ERR_IO);
}

static void test_a_unix_socket_is_private_and_replaces_a_dead_one(void **state)
{
    (void)state;
    struct err e = {0};
    struct event_base *base = event_base_new();
    struct http_server_options o = {.base = base, .connections_max = 1,
                                    .limits = {.header_size_max = 4096}};
    char path[64], address[80];
    snprintf(path, sizeof path, "/tmp/shoal_http_test.%d", (int)getpid());
    snprintf(address, sizeof address, "unix:%s", path);
    int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    assert_int_equal(bind(dead, (struct sockaddr *)&un, sizeof un), 0);
    close(dead);
    struct http_server *s, *t;
    assert_true(http_server_open(&s, &o, &e));
    assert_true(http_server_listen(s, str_of(address), &e));
    assert_true(http_server_open(&t, &o, &e));
    assert_false(http_server_listen(t, str_of(address), &e));
    http_server_close(t);
    http_server_close(s);
    assert_int_equal(access(path, F_OK), -1);
    event_base_free(base);
}

static struct http_conn *asked;
static void keep_conn(void *ctx, struct http_conn *c)
{
    (void)ctx;
    asked = c;
    http_conn_begin(c, 200, "text/plain");
}
static void write_word(evutil_socket_t fd, short what, void *word)
{
    (void)fd, (void)what;
    http_conn_write(asked, str_of(word));
}

/* One loop, one thread: a stream's event costs a turn of its own and no second one. */
static void test_what_a_stream_writes_leaves_in_the_turn_that_wrote_it(void **state)
{
    (void)state;
    struct err e = {0};
    struct event_base *base = event_base_new();
    struct fixture f = {.base = base};
    struct http_server_options o = {
        .base = base, .connections_max = 1,
        .handlers = {&f, fixture_header, keep_conn, fixture_gone, fixture_drain, fixture_error,
                     NULL},
        .limits = {.header_size_max = 4096, .pipeline_size_max = 65536, .output_high = 1 << 20,
                   .output_low = 65536}};
    assert_true(http_server_open(&f.server, &o, &e));
    assert_true(http_server_listen(f.server, STR("127.0.0.1:0"), &e));
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(http_server_port(f.server, 0))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char got[512];
    static const char request[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof in), 0);
    assert_int_equal(send(fd, request, sizeof request - 1, 0), sizeof request - 1);
    while (!asked)
        event_base_loop(base, EVLOOP_ONCE);
    event_base_loop(base, EVLOOP_NONBLOCK);
    while (recv(fd, got, sizeof got, MSG_DONTWAIT) > 0)
        ;
    struct event *one = event_new(base, -1, 0, write_word, "one"),
                 *two = event_new(base, -1, 0, write_word, "two");
    event_active(one, EV_TIMEOUT, 0);
    event_active(two, EV_TIMEOUT, 0);
    event_base_loop(base, EVLOOP_ONCE);
    ssize_t n = recv(fd, got, sizeof got, MSG_DONTWAIT);
    assert_true(n > 0);
    assert_true(str_eq(str_view(got, (size_t)n), STR("3\r\none\r\n3\r\ntwo\r\n")));
    event_free(one);
    event_free(two);
    close(fd);
    http_server_close(f.server);
    event_base_free(base);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(test_a_request_split_at_every_byte_reads_the_same),
        ROW(test_pipelined_requests_are_answered_in_order),
        ROW(test_malformed_and_oversized_requests_get_json_and_a_status),
        ROW(test_headers_over_the_limit_are_431),
        ROW(test_slow_headers_and_bodies_are_408),
        ROW(test_expect_100_is_answered_before_the_body),
        ROW(test_old_clients_and_head_get_what_they_can_read),
        ROW(test_a_client_that_leaves_is_noticed_half_closed_too),
        ROW(test_a_hang_up_is_noticed_behind_too_much_pipelined_input),
        ROW(test_a_slow_reader_is_told_and_drained),
        ROW(test_a_reader_that_takes_nothing_is_gone),
        ROW(test_connections_over_the_limit_get_503_at_once),
        ROW(test_addresses_are_judged_and_bad_ones_named),
        cmocka_unit_test(test_what_a_stream_writes_leaves_in_the_turn_that_wrote_it),
        cmocka_unit_test(test_a_unix_socket_is_private_and_replaces_a_dead_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
