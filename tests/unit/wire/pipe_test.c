#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "wire/pipe.h"

static struct world {
    struct loop *loop;
    struct pipe *pipe;
    int fds[2]; /* ours, the child's */
    struct buf got;
    int ends, drains;
    bool close_on_bytes, had_error, answers;
} w;

static void on_bytes(void *ctx, str bytes)
{
    (void)ctx;
    buf_add(&w.got, bytes);
    if (w.answers)
        assert_true(pipe_send(w.pipe, PIPE_DATA, STR("one")) &&
                    pipe_send(w.pipe, PIPE_DATA, STR("two")));
    if (w.close_on_bytes) {
        pipe_close(w.pipe);
        w.pipe = NULL;
    }
}
static void on_end(void *ctx, const struct err *why)
{
    (void)ctx;
    w.ends++;
    w.had_error = why != NULL;
}
static void on_drain(void *ctx)
{
    (void)ctx;
    w.drains++;
}

static int setup(void **state)
{
    struct err e;
    const struct pipe_handlers h = {NULL, on_bytes, on_end, on_drain};
    (void)state;
    memset(&w, 0, sizeof w);
    buf_init(&w.got, 8u << 20);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, w.fds) ||
        !loop_open(&w.loop, &e) || !pipe_open(&w.pipe, w.loop, w.fds[0], &h, 4u << 20, &e))
        return -1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pipe_close(w.pipe);
    loop_close(w.loop);
    buf_deinit(&w.got);
    close(w.fds[0]);
    if (w.fds[1] >= 0)
        close(w.fds[1]);
    return 0;
}

/* Everything the child can read now, while the loop turns. */
static void child_reads(struct buf *out)
{
    char bytes[50000];
    for (int idle = 0; idle < 3;) {
        loop_step(w.loop, 1);
        ssize_t n = read(w.fds[1], bytes, sizeof bytes);
        if (n > 0)
            buf_add_bytes(out, bytes, (size_t)n);
        idle = n > 0 ? 0 : idle + 1;
    }
}

static void test_control_goes_before_data_but_never_into_a_frame(void **state)
{
    (void)state;
    static char a[300000], b[1000];
    struct buf out;
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    buf_init(&out, 8u << 20);
    assert_true(pipe_send(w.pipe, PIPE_DATA, str_view(a, sizeof a)));
    loop_step(w.loop, 1); /* the first frame is begun: the socket takes only a part of it */
    assert_true(pipe_send(w.pipe, PIPE_DATA, str_view(b, sizeof b)));
    assert_true(pipe_send(w.pipe, PIPE_CONTROL, STR("CANCEL")));
    assert_true(pipe_waiting(w.pipe) > sizeof b);
    child_reads(&out);
    assert_int_equal(out.len, sizeof a + sizeof b + 6);
    assert_memory_equal(out.p, a, sizeof a);
    assert_memory_equal(out.p + sizeof a, "CANCEL", 6);
    assert_memory_equal(out.p + sizeof a + 6, b, sizeof b);
    assert_int_equal(pipe_waiting(w.pipe), 0);
    assert_true(w.drains >= 1);
    buf_deinit(&out);
}

static void test_reading_goes_on_while_writing_is_stuck(void **state)
{
    (void)state;
    static char a[1000000];
    assert_true(pipe_send(w.pipe, PIPE_DATA, str_view(a, sizeof a)));
    assert_int_equal(write(w.fds[1], "BEAT", 4), 4);
    loop_step(w.loop, 5);
    loop_step(w.loop, 5);
    assert_string_equal(w.got.p, "BEAT");
    assert_true(pipe_waiting(w.pipe) > 0);
}

static void test_a_full_queue_refuses(void **state)
{
    (void)state;
    static char a[1u << 20];
    int taken = 0;
    while (taken < 10 && pipe_send(w.pipe, PIPE_DATA, str_view(a, sizeof a)))
        taken++;
    assert_int_equal(taken, 3); /* 4 MiB less the lengths */
    assert_true(pipe_send(w.pipe, PIPE_CONTROL, STR("x")));
}

static void test_the_end_comes_once_and_after_the_last_bytes(void **state)
{
    (void)state;
    assert_int_equal(write(w.fds[1], "last", 4), 4);
    close(w.fds[1]);
    w.fds[1] = -1;
    for (int i = 0; i < 5; i++)
        loop_step(w.loop, 1);
    assert_string_equal(w.got.p, "last");
    assert_int_equal(w.ends, 1);
    assert_false(w.had_error);
    assert_false(pipe_send(w.pipe, PIPE_DATA, STR("x")));
}

static void test_writing_to_a_dead_child_ends_without_a_signal(void **state)
{
    (void)state;
    close(w.fds[1]);
    w.fds[1] = -1;
    assert_true(pipe_send(w.pipe, PIPE_DATA, STR("x")));
    for (int i = 0; i < 5; i++)
        loop_step(w.loop, 1);
    assert_int_equal(w.ends, 1);
}

static void test_a_pipe_may_be_closed_by_its_own_callback(void **state)
{
    (void)state;
    w.close_on_bytes = true;
    assert_int_equal(write(w.fds[1], "x", 1), 1);
    loop_step(w.loop, 5);
    assert_null(w.pipe);
    assert_int_equal(w.ends, 0);
}

static void test_what_a_callback_sends_leaves_in_the_same_turn(void **state)
{
    (void)state;
    char got[16] = "";
    w.answers = true;
    assert_int_equal(write(w.fds[1], "x", 1), 1);
    loop_step(w.loop, 0);
    assert_int_equal(read(w.fds[1], got, sizeof got), 6);
    assert_string_equal(got, "onetwo");
}

/* Frames of a source: 'a' of one size, so many of them. */
static struct tale {
    char frame[60000];
    int left, done;
} tale;

static str tale_next(void *ctx)
{
    struct tale *t = ctx;
    assert_int_equal(t->done, 0);
    return t->left-- > 0 ? str_view(t->frame, sizeof t->frame) : STR("");
}

static void tale_done(void *ctx) { ((struct tale *)ctx)->done++; }

static void tale_send(int frames)
{
    const struct pipe_source source = {&tale, tale_next, tale_done};
    memset(tale.frame, 'a', sizeof tale.frame);
    tale.left = frames;
    tale.done = 0;
    assert_true(pipe_send_from(w.pipe, &source));
}

static void test_a_source_is_written_in_its_place_and_told_once(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, 8u << 20);
    assert_true(pipe_send(w.pipe, PIPE_DATA, STR("before")));
    tale_send(30);
    assert_true(pipe_send(w.pipe, PIPE_DATA, STR("after")));
    child_reads(&out);
    assert_int_equal(out.len, 6 + 30 * sizeof tale.frame + 5);
    assert_memory_equal(out.p, "before", 6);
    assert_memory_equal(out.p + 6, tale.frame, sizeof tale.frame);
    assert_memory_equal(out.p + out.len - 6, "aafter", 6);
    assert_int_equal(tale.done, 1);
    assert_int_equal(pipe_waiting(w.pipe), 0);
    buf_deinit(&out);
}

static void test_control_goes_between_the_frames_of_a_source(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, 8u << 20);
    tale_send(30);
    loop_step(w.loop, 1); /* the socket is full */
    assert_true(pipe_waiting(w.pipe) > 0);
    assert_true(pipe_send(w.pipe, PIPE_CONTROL, STR("CANCEL")));
    child_reads(&out);
    const char *at = memchr(out.p, 'C', out.len);
    assert_int_equal(out.len, 30 * sizeof tale.frame + 6);
    assert_non_null(at);
    assert_int_equal((size_t)(at - out.p) % sizeof tale.frame, 0);
    assert_true(at > out.p && at < out.p + out.len - 6);
    buf_deinit(&out);
}

static void test_a_source_is_told_when_nothing_will_be_written_any_more(void **state)
{
    (void)state;
    static char a[300000];
    static const struct { bool is_behind, is_begun; } cases[] = {{false, false}, {false, true},
                                                                 {true, false}, {true, true}};
    for (size_t i = 0; i < countof(cases); i++) {
        if (cases[i].is_behind)
            assert_true(pipe_send(w.pipe, PIPE_DATA, str_view(a, sizeof a)));
        tale_send(30);
        assert_true(pipe_send(w.pipe, PIPE_DATA, STR("behind")));
        if (cases[i].is_begun)
            loop_step(w.loop, 1);
        assert_int_equal(tale.done, 0);
        pipe_close(w.pipe);
        assert_int_equal(tale.done, 1);
        struct err e;
        const struct pipe_handlers h = {NULL, on_bytes, on_end, on_drain};
        assert_true(pipe_open(&w.pipe, w.loop, w.fds[0], &h, 4u << 20, &e));
    }
}

/* A child that reads as fast as we write must not keep the loop for itself. */
static void test_one_turn_of_the_loop_writes_so_much_and_no_more(void **state)
{
    (void)state;
    struct buf out;
    char bytes[50000];
    int size = 64 << 20;
    ssize_t n;
    buf_init(&out, 8u << 20);
    setsockopt(w.fds[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    setsockopt(w.fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    tale_send(100);
    loop_step(w.loop, 0);
    while ((n = read(w.fds[1], bytes, sizeof bytes)) > 0)
        buf_add_bytes(&out, bytes, (size_t)n);
    assert_true(out.len > 0 && out.len < (256u << 10) + sizeof tale.frame);
    child_reads(&out);
    assert_int_equal(out.len, 100 * sizeof tale.frame);
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_control_goes_before_data_but_never_into_a_frame, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_reading_goes_on_while_writing_is_stuck, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_full_queue_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_end_comes_once_and_after_the_last_bytes, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_writing_to_a_dead_child_ends_without_a_signal, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_pipe_may_be_closed_by_its_own_callback, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_a_callback_sends_leaves_in_the_same_turn, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_source_is_written_in_its_place_and_told_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_control_goes_between_the_frames_of_a_source, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_source_is_told_when_nothing_will_be_written_any_more,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_turn_of_the_loop_writes_so_much_and_no_more, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
