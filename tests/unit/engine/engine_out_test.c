#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/engine_out.h"

#define TEXT_SIZE 30000 /* of a frame: more than the socket takes at once */

struct pair {
    struct engine_out out;
    struct api_frame_reader reader;
    int ours, theirs;
    uint32_t frames_done, beats;
    uint32_t before_beat; /* frames that had come when the first BEAT came */
};

static void open_pair(struct pair *p)
{
    struct err e;
    int fds[2], size = 4096;
    *p = (struct pair){.ours = -1};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    p->ours = fds[0];
    p->theirs = fds[1];
    assert_int_equal(setsockopt(p->ours, SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
    assert_true(engine_out_open(&p->out, &e));
    api_frame_reader_init(&p->reader, API_FRAME_TO_ENDPOINT, 1 << 20);
}

static void close_pair(struct pair *p)
{
    api_frame_reader_deinit(&p->reader);
    engine_out_close(&p->out);
    if (p->ours >= 0)
        close(p->ours);
    if (p->theirs >= 0)
        close(p->theirs);
}

/* A buffer of count frames. */
static void push(struct pair *p, uint32_t count, bool is_last)
{
    static char text[TEXT_SIZE];
    struct engine_out_item item = {.is_last = is_last, .code = is_last ? 3 : 0};
    struct api_frame f = {.kind = API_FRAME_STATS, .stats = str_view(text, sizeof text)};
    struct err e;
    memset(text, 'x', sizeof text);
    buf_init(&item.bytes, 1 << 24);
    for (uint32_t i = 0; i < count; i++)
        assert_true(api_frame_write(&item.bytes, &f, &e));
    assert_true(engine_out_push(&p->out, &item));
}

static void beat(struct pair *p)
{
    struct api_beat b = {.step = 7};
    engine_out_beat(&p->out, &b);
}

/* Reads once; every message must be whole. */
static void hear(struct pair *p)
{
    char bytes[3000];
    ssize_t n = read(p->theirs, bytes, sizeof bytes);
    struct err e;
    for (str in = str_view(bytes, n > 0 ? (size_t)n : 0); in.len;) {
        struct api_message_bytes m;
        enum api_frame_got got = api_frame_reader_next(&p->reader, &in, &m, &e);
        if (got == API_FRAME_GOT_BROKEN)
            fail_msg("behind %u frames and %u beats: %s", p->frames_done, p->beats, e.text);
        if (got != API_FRAME_GOT_MESSAGE)
            continue;
        if (m.kind == API_FRAME_BEAT && p->beats++ == 0)
            p->before_beat = p->frames_done;
        else if (m.kind == API_FRAME_STATS)
            p->frames_done += m.body.len > TEXT_SIZE - 100;
        arena_deinit(&m.arena);
    }
}

static void write_all(struct pair *p)
{
    struct err e;
    bool wants = true;
    for (int i = 0; wants && i < 100000; i++) {
        assert_true(engine_out_write(&p->out, p->ours, &wants, &e));
        hear(p);
    }
    assert_false(wants);
    for (int i = 0; i < 100; i++)
        hear(p);
}

static void test_a_heartbeat_goes_between_two_frames_of_a_buffer_that_the_socket_does_not_take(
    void **state)
{
    (void)state;
    struct pair p;
    struct err e;
    bool wants = false;
    open_pair(&p);
    push(&p, 20, false);
    assert_true(engine_out_write(&p.out, p.ours, &wants, &e));
    assert_true(wants);
    beat(&p);
    write_all(&p);
    assert_int_equal(p.frames_done, 20);
    assert_int_equal(p.beats, 1);
    assert_in_range(p.before_beat, 1, 10); /* the one that was begun, and what the kernel held */
    close_pair(&p);
}

static void test_heartbeats_for_nobody_do_not_pile_up(void **state)
{
    (void)state;
    struct pair p;
    struct err e;
    bool wants = false;
    open_pair(&p);
    push(&p, 2, false);
    assert_true(engine_out_write(&p.out, p.ours, &wants, &e));
    for (int i = 0; i < 10000; i++)
        beat(&p);
    write_all(&p);
    assert_int_equal(p.frames_done, 2);
    assert_in_range(p.beats, 1, 40);
    close_pair(&p);
}

static void test_behind_the_last_buffer_nothing_is_written_and_its_code_stays(void **state)
{
    (void)state;
    struct pair p;
    open_pair(&p);
    push(&p, 1, false);
    push(&p, 1, true);
    push(&p, 1, false);
    write_all(&p);
    assert_int_equal(p.frames_done, 2);
    assert_true(p.out.is_over);
    assert_int_equal(p.out.code, 3);
    close_pair(&p);
}

static void test_a_spare_buffer_has_the_memory_of_one_that_left_and_the_limit_asked_for(
    void **state)
{
    (void)state;
    struct pair p;
    struct buf b;
    open_pair(&p);
    engine_out_spare(&p.out, &b, 50);
    assert_int_equal(b.size, 0);
    buf_deinit(&b);
    push(&p, 1, false);
    write_all(&p);
    engine_out_spare(&p.out, &b, 99);
    assert_true(b.size >= TEXT_SIZE && b.len == 0);
    assert_int_equal(b.size_max, 99);
    buf_deinit(&b);
    push(&p, 60, false); /* 1.8 MB: not kept */
    write_all(&p);
    engine_out_spare(&p.out, &b, 99);
    assert_int_equal(b.size, 0);
    buf_deinit(&b);
    close_pair(&p);
}

static void test_full_is_said_while_many_buffers_wait(void **state)
{
    (void)state;
    struct pair p;
    open_pair(&p);
    for (uint32_t i = 0; i < ENGINE_OUT_BUFS; i++) {
        assert_false(engine_out_is_full(&p.out));
        push(&p, 1, false);
    }
    assert_true(engine_out_is_full(&p.out));
    write_all(&p);
    assert_false(engine_out_is_full(&p.out));
    close_pair(&p);
}

static void test_a_peer_that_is_gone_is_an_error(void **state)
{
    (void)state;
    struct pair p;
    struct err e;
    bool wants = true;
    open_pair(&p);
    push(&p, 1, false);
    close(p.theirs);
    p.theirs = -1;
    assert_false(engine_out_write(&p.out, p.ours, &wants, &e));
    assert_int_equal(e.code, ERR_IO);
    assert_false(wants);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_a_heartbeat_goes_between_two_frames_of_a_buffer_that_the_socket_does_not_take),
        cmocka_unit_test(test_heartbeats_for_nobody_do_not_pile_up),
        cmocka_unit_test(test_behind_the_last_buffer_nothing_is_written_and_its_code_stays),
        cmocka_unit_test(
            test_a_spare_buffer_has_the_memory_of_one_that_left_and_the_limit_asked_for),
        cmocka_unit_test(test_full_is_said_while_many_buffers_wait),
        cmocka_unit_test(test_a_peer_that_is_gone_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
