/* This program is its own child: started with an argument it plays the part named there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/proc.h"

/* --- the child's parts --- */

static void wait_readable(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    poll(&pfd, 1, 10000);
}

static int play_echo(void)
{
    char text[64];
    for (;;) {
        wait_readable(PROC_FD);
        ssize_t n = read(PROC_FD, text, sizeof text);
        if (n <= 0)
            return n == 0 ? 42 : 1;
        if (write(PROC_FD, text, (size_t)n) != n)
            return 2;
    }
}

/* Says what it inherited: core limit, oom score, open descriptors, blocked signals. */
static int play_report(void)
{
    char text[256], score[16] = {0};
    struct rlimit core;
    sigset_t blocked;
    int open_fds = 0, fd = open("/proc/self/oom_score_adj", O_RDONLY);
    if (fd < 0 || read(fd, score, sizeof score - 1) < 0 || getrlimit(RLIMIT_CORE, &core) != 0)
        return 1;
    close(fd);
    for (int i = PROC_FD + 1; i < 256; i++)
        open_fds += fcntl(i, F_GETFD) >= 0;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    int n = snprintf(text, sizeof text, "core %d fds %d term %d score %s", (int)core.rlim_cur,
                     open_fds, sigismember(&blocked, SIGTERM), score);
    return write(PROC_FD, text, (size_t)n) == n ? 0 : 1;
}

/* Starts a child of its own, tells its pid and dies without cleaning up. */
static int play_parent(void)
{
    static const char *const argv[] = {"proc_test", "echo", NULL};
    struct proc_options o = {.argv = argv, .stderr_fd = -1};
    struct proc p;
    struct err e = {0};
    if (!proc_start(&p, &o, &e) || write(PROC_FD, &p.pid, sizeof p.pid) != sizeof p.pid)
        return 1;
    raise(SIGKILL);
    return 1;
}

static int play(const char *part)
{
    if (!strcmp(part, "echo"))
        return play_echo();
    if (!strcmp(part, "report"))
        return play_report();
    if (!strcmp(part, "parent"))
        return play_parent();
    if (!strcmp(part, "stderr"))
        return fputs("to stderr\n", stderr) < 0;
    if (!strcmp(part, "abort"))
        abort();
    return 99;
}

/* --- the tests --- */

static struct proc start(const char *part, int stderr_fd)
{
    const char *argv[] = {"proc_test", part, NULL};
    struct proc_options o = {.argv = argv, .oom_score_add = 300, .stderr_fd = stderr_fd};
    struct proc p;
    struct err e = {0};
    if (!proc_start(&p, &o, &e))
        fail_msg("%s", e.text);
    return p;
}

static size_t read_text(int fd, char *out, size_t size)
{
    wait_readable(fd);
    ssize_t n = read(fd, out, size - 1);
    assert_true(n >= 0);
    out[n] = 0;
    return (size_t)n;
}

static void test_a_child_talks_over_its_socket_and_ends_with_it(void **state)
{
    (void)state;
    struct proc_end end;
    char text[64];
    struct proc p = start("echo", -1);
    assert_false(proc_reap(&p, &end));
    assert_int_equal(write(p.fd, "ping", 4), 4);
    assert_int_equal(read_text(p.fd, text, sizeof text), 4);
    assert_string_equal(text, "ping");
    assert_false(proc_wait(&p, 1, &end));
    proc_close_fd(&p);
    assert_true(proc_wait(&p, 10000, &end));
    assert_false(end.by_signal);
    assert_int_equal(end.code, 42);
    assert_false(proc_reap(&p, &end) || proc_wait(&p, 0, &end));
    proc_signal(&p, SIGKILL); /* collected: nobody is hit */
    proc_close(&p);
}

static void test_a_child_inherits_nothing_but_its_socket(void **state)
{
    (void)state;
    struct proc_end end;
    char text[256];
    sigset_t term, before;
    int extra = open("/dev/null", O_RDONLY); /* without close-on-exec on purpose */
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &before);
    struct proc p = start("report", -1);
    sigprocmask(SIG_SETMASK, &before, NULL);
    read_text(p.fd, text, sizeof text);
    int core, fds, blocked, score;
    assert_int_equal(sscanf(text, "core %d fds %d term %d score %d", &core, &fds, &blocked, &score),
                     4);
    assert_int_equal(core, 0);
    assert_int_equal(fds, 0);
    assert_int_equal(blocked, 0);
    assert_in_range(score, 300, 1000);
    assert_true(proc_wait(&p, 10000, &end) && end.code == 0);
    proc_close(&p);
    close(extra);
}

static bool is_alive(pid_t pid)
{
    char path[64], line[256] = {0};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    const char *paren = strrchr(line, ')');
    return n > 0 && paren && paren[2] != 'Z'; /* an uncollected orphan is dead enough */
}

static void test_a_child_dies_with_its_parent(void **state)
{
    (void)state;
    struct proc_end end;
    pid_t grandchild = 0;
    struct proc p = start("parent", -1);
    wait_readable(p.fd);
    assert_int_equal(read(p.fd, &grandchild, sizeof grandchild), sizeof grandchild);
    assert_true(proc_wait(&p, 10000, &end));
    assert_true(end.by_signal && end.code == SIGKILL);
    for (int i = 0; i < 1000 && is_alive(grandchild); i++)
        usleep(1000);
    assert_false(is_alive(grandchild));
    proc_close(&p);
}

static void test_stderr_can_be_taken_over(void **state)
{
    (void)state;
    struct proc_end end;
    char text[64];
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    struct proc p = start("stderr", pipes[1]);
    read_text(pipes[0], text, sizeof text);
    assert_string_equal(text, "to stderr\n");
    assert_true(proc_wait(&p, 10000, &end));
    proc_close(&p);
    close(pipes[0]);
    close(pipes[1]);
}

static void test_ends_are_told_in_words(void **state)
{
    (void)state;
    struct proc_end end;
    char text[64];
    struct proc p = start("abort", -1);
    assert_true(proc_wait(&p, 10000, &end));
    proc_end_text(end, text, sizeof text);
    assert_string_equal(text, "signal 6 (Aborted)");
    proc_end_text((struct proc_end){.code = 3}, text, sizeof text);
    assert_string_equal(text, "exit code 3");
    proc_close(&p);
}

static void test_closing_a_running_child_leaves_no_zombie(void **state)
{
    (void)state;
    struct proc p = start("echo", -1);
    pid_t pid = p.pid;
    proc_close(&p);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(p.fd, -1);
}

static void test_too_many_arguments_are_refused(void **state)
{
    (void)state;
    const char *argv[PROC_ARGS_MAX + 2] = {NULL};
    for (int i = 0; i <= PROC_ARGS_MAX; i++)
        argv[i] = "x";
    struct proc_options o = {.argv = argv, .stderr_fd = -1};
    struct proc p;
    struct err e = {0};
    assert_false(proc_start(&p, &o, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    proc_close(&p);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return play(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_child_talks_over_its_socket_and_ends_with_it),
        cmocka_unit_test(test_a_child_inherits_nothing_but_its_socket),
        cmocka_unit_test(test_a_child_dies_with_its_parent),
        cmocka_unit_test(test_stderr_can_be_taken_over),
        cmocka_unit_test(test_ends_are_told_in_words),
        cmocka_unit_test(test_closing_a_running_child_leaves_no_zombie),
        cmocka_unit_test(test_too_many_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
