#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "wire/loop.h"

static struct loop *loop;
static char story[64];
static void tell(void *ctx) { strncat(story, ctx, sizeof story - strlen(story) - 1); }
static void stop(void *ctx)
{
    tell(ctx);
    loop_stop(loop);
}

static int setup(void **state)
{
    struct err e;
    (void)state;
    story[0] = 0;
    return loop_open(&loop, &e) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    loop_close(loop);
    return 0;
}

static void run(void)
{
    struct err e;
    assert_true(loop_run(loop, &e));
}

static void test_timers_fire_in_the_order_of_their_times(void **state)
{
    (void)state;
    struct loop_timer t[4];
    struct err e;
    static const struct { const char *word; int64_t ms; } rows[] = {{"c", 30}, {"a", 0}, {"b", 10}};
    for (size_t i = 0; i < countof(rows); i++) {
        assert_true(loop_timer_open(&t[i], loop, i ? tell : stop, (void *)rows[i].word, &e));
        loop_timer_set(&t[i], rows[i].ms);
    }
    assert_true(loop_timer_open(&t[3], loop, tell, "x", &e));
    loop_timer_set(&t[3], 5);
    loop_timer_stop(&t[3]);
    run();
    assert_string_equal(story, "abc");
    for (size_t i = 0; i < countof(t); i++)
        loop_timer_close(&t[i]);
}

static void test_setting_a_running_timer_moves_it(void **state)
{
    (void)state;
    struct loop_timer a, b;
    struct err e;
    assert_true(loop_timer_open(&a, loop, stop, "late", &e));
    assert_true(loop_timer_open(&b, loop, tell, "early ", &e));
    loop_timer_set(&a, 1);
    loop_timer_set(&a, 40);
    loop_timer_set(&b, 10);
    run();
    assert_string_equal(story, "early late");
    loop_timer_close(&a);
    loop_timer_close(&b);
    loop_timer_close(&b);
}

static struct loop_later later;
static void tell_later(void *ctx)
{
    loop_later_set(&later);
    loop_later_set(&later);
    tell(ctx);
}

static void test_later_comes_once_behind_the_callbacks_of_its_turn(void **state)
{
    (void)state;
    struct loop_timer a, b;
    struct err e;
    assert_true(loop_later_open(&later, loop, tell, "later ", &e));
    assert_true(loop_timer_open(&a, loop, tell_later, "a ", &e));
    assert_true(loop_timer_open(&b, loop, tell, "b ", &e));
    loop_timer_set(&a, 0);
    loop_timer_set(&b, 0);
    loop_step(loop, 5);
    assert_string_equal(story, "a b later ");
    loop_later_set(&later);
    loop_later_close(&later);
    loop_step(loop, 0);
    assert_string_equal(story, "a b later ");
    loop_timer_close(&a);
    loop_timer_close(&b);
    loop_later_close(&later);
}

static void *send_thrice(void *ctx)
{
    for (int i = 0; i < 3; i++)
        loop_wake_send(ctx);
    return NULL;
}

static void test_wakes_of_another_thread_before_the_callback_are_one(void **state)
{
    (void)state;
    struct loop_wake w;
    struct err e;
    pthread_t t;
    assert_true(loop_wake_open(&w, loop, stop, "woken", &e));
    assert_int_equal(pthread_create(&t, NULL, send_thrice, &w), 0);
    pthread_join(t, NULL);
    run();
    assert_string_equal(story, "woken");
    loop_wake_close(&w);
    loop_wake_close(&w);
}

static void test_a_signal_becomes_a_callback(void **state)
{
    (void)state;
    struct loop_signal s;
    struct err e;
    assert_true(loop_signal_open(&s, loop, SIGUSR1, stop, "usr1", &e));
    raise(SIGUSR1);
    run();
    assert_string_equal(story, "usr1");
    loop_signal_close(&s);
}

static void on_ready(void *ctx, enum loop_ready ready)
{
    char c;
    int fd = *(int *)ctx;
    assert_int_equal(ready, LOOP_READY_READ);
    assert_int_equal(read(fd, &c, 1), 1);
    stop(c == 'x' ? "x" : "?");
}

static void test_a_descriptor_is_watched_until_it_is_switched_off(void **state)
{
    (void)state;
    struct loop_watch w;
    struct err e;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_true(loop_watch_open(&w, loop, fds[0], on_ready, &fds[0], &e));
    assert_int_equal(write(fds[1], "x", 1), 1);
    loop_step(loop, 5);
    assert_string_equal(story, "");
    loop_watch_set(&w, LOOP_READY_READ, true);
    run();
    assert_string_equal(story, "x");
    loop_watch_close(&w);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_timers_fire_in_the_order_of_their_times, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_setting_a_running_timer_moves_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_later_comes_once_behind_the_callbacks_of_its_turn,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_wakes_of_another_thread_before_the_callback_are_one,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_signal_becomes_a_callback, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_descriptor_is_watched_until_it_is_switched_off,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
