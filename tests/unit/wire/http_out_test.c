/* One send a turn, and the order of bytes whatever the socket takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/http_out.h"

struct end {
    struct event_base *base;
    struct http_out_set set;
    struct http_out out;
    int peer;
    uint32_t sent, broken, adds_left;
};

static void on_sent(void *ctx, bool is_broken)
{
    struct end *t = ctx;
    t->sent++;
    t->broken += is_broken;
    if (t->adds_left) {
        t->adds_left--;
        http_out_add(&t->out, STR("+"));
    }
}

static void on_write(struct bufferevent *bev, void *ctx)
{
    (void)bev;
    http_out_idle(&((struct end *)ctx)->out);
}

/* Packets keep their borders: each read is one send. */
static void end_open(struct end *t, int type, bool is_direct)
{
    int fds[2], size = 1 << 16;
    struct err e;
    *t = (struct end){.base = event_base_new()};
    assert_int_equal(socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, fds), 0);
    assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
    t->peer = fds[1];
    assert_true(http_out_set_open(&t->set, t->base, &e));
    struct bufferevent *bev = bufferevent_socket_new(t->base, fds[0], BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(bev, NULL, on_write, NULL, t);
    t->out = (struct http_out){.set = &t->set, .bev = bev, .is_direct = is_direct,
                               .on_sent = on_sent, .ctx = t};
    http_out_init(&t->out);
}

static void end_close(struct end *t)
{
    struct bufferevent *bev = t->out.bev;
    http_out_deinit(&t->out);
    bufferevent_free(bev);
    http_out_set_close(&t->set);
    event_base_free(t->base);
    if (t->peer >= 0)
        close(t->peer);
}

static void turn(struct end *t) { event_base_loop(t->base, EVLOOP_NONBLOCK); }

static size_t take(struct end *t, char *to, size_t size)
{
    ssize_t n = read(t->peer, to, size);
    return n < 0 ? 0 : (size_t)n;
}

static void test_what_a_turn_adds_leaves_by_one_send_at_its_end(void **state)
{
    struct end t;
    char got[64];
    (void)state;
    end_open(&t, SOCK_SEQPACKET, true);
    http_out_add(&t.out, STR("one "));
    http_out_add(&t.out, STR(""));
    http_out_add(&t.out, STR("two"));
    assert_int_equal(http_out_pending(&t.out), 7);
    assert_int_equal(take(&t, got, sizeof got), 0);
    t.adds_left = 1; /* while it is sent: leaves in the same turn */
    turn(&t);
    assert_int_equal(take(&t, got, sizeof got), 7);
    assert_memory_equal(got, "one two", 7);
    assert_int_equal(take(&t, got, sizeof got), 1);
    assert_int_equal(t.sent, 2);
    assert_int_equal(http_out_pending(&t.out), 0);
    end_close(&t);
}

static void test_a_full_socket_changes_no_order(void **state)
{
    static char piece[5000], got[1 << 16];
    struct end t;
    size_t said = 0, heard = 0;
    (void)state;
    for (int is_direct = 0; is_direct < 2; is_direct++) {
        end_open(&t, SOCK_STREAM, is_direct);
        said = heard = 0;
        for (int i = 0; i < 400; i++) {
            size_t len = (size_t)(i * 37 % 4999 + 1);
            for (size_t k = 0; k < len; k++)
                piece[k] = (char)((said + k) % 251);
            http_out_add(&t.out, str_view(piece, len));
            said += len;
            if (i % 3 == 0)
                turn(&t);
            for (size_t n = i % 100 == 50 ? take(&t, got, sizeof got) : 0, k = 0; k < n; k++)
                assert_int_equal((uint8_t)got[k], heard++ % 251);
        }
        assert_true(http_out_pending(&t.out) > 0);
        for (int rounds = 0; heard < said && rounds < 10000; rounds++) {
            turn(&t);
            for (size_t n = take(&t, got, sizeof got), k = 0; k < n; k++)
                assert_int_equal((uint8_t)got[k], heard++ % 251);
        }
        assert_int_equal(heard, said);
        turn(&t);
        assert_int_equal(http_out_pending(&t.out), 0);
        assert_int_equal(bufferevent_get_enabled(t.out.bev) & EV_WRITE ? 1 : 0, is_direct ? 0 : 1);
        end_close(&t);
    }
}

static void test_more_than_a_turn_holds_waits_in_the_bufferevent(void **state)
{
    struct end t;
    char *large = calloc(1, HTTP_OUT_TURN_MAX + 1);
    (void)state;
    end_open(&t, SOCK_STREAM, true);
    http_out_add(&t.out, STR("first"));
    http_out_add(&t.out, str_view(large, HTTP_OUT_TURN_MAX + 1));
    assert_int_equal(http_out_pending(&t.out), HTTP_OUT_TURN_MAX + 6);
    assert_int_equal(evbuffer_get_length(bufferevent_get_output(t.out.bev)), HTTP_OUT_TURN_MAX + 6);
    end_close(&t);
    free(large);
}

static void test_a_socket_that_takes_nothing_any_more_is_told(void **state)
{
    struct end t;
    (void)state;
    end_open(&t, SOCK_STREAM, true);
    close(t.peer);
    t.peer = -1;
    http_out_add(&t.out, STR("x"));
    turn(&t);
    assert_int_equal(t.broken, 1);
    end_close(&t);
}

static void test_one_that_goes_before_the_turn_ends_sends_nothing(void **state)
{
    struct end t;
    struct http_out other;
    char got[8];
    (void)state;
    end_open(&t, SOCK_STREAM, true);
    other = t.out;
    http_out_init(&other);
    http_out_add(&other, STR("gone"));
    http_out_add(&t.out, STR("stays"));
    http_out_deinit(&other);
    turn(&t);
    assert_int_equal(take(&t, got, sizeof got), 5);
    assert_memory_equal(got, "stays", 5);
    end_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_turn_adds_leaves_by_one_send_at_its_end),
        cmocka_unit_test(test_a_full_socket_changes_no_order),
        cmocka_unit_test(test_more_than_a_turn_holds_waits_in_the_bufferevent),
        cmocka_unit_test(test_a_socket_that_takes_nothing_any_more_is_told),
        cmocka_unit_test(test_one_that_goes_before_the_turn_ends_sends_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
