#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/chrono.h"
#include "base/str.h"

#define PROC_OOM_MAX 1000

/* What the child needs is made ready before fork: between fork and exec in a process with threads
 * only async-signal-safe calls are allowed, so no formatting and no memory. */
struct proc_plan {
    char *argv[PROC_ARGS_MAX + 1];
    char oom_score[16];
    int fd, stderr_fd, report_fd;
    pid_t parent;
    bool keep_core_limit;
};

/* Reads our own score, as decimal text; 0 when /proc is not there. */
static int proc_own_oom_score(void)
{
    char text[16] = {0};
    int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    int64_t score = 0;
    (void)str_to_i64(str_trim(str_view(text, n > 0 ? (size_t)n : 0)), &score);
    return (int)score;
}

static void proc_child_fail(const struct proc_plan *p, int error) BASE_NORETURN;
static void proc_child_fail(const struct proc_plan *p, int error)
{
    (void)!write(p->report_fd, &error, sizeof error);
    _exit(127);
}

/* Every descriptor above ours gets close-on-exec, the report one keeps it anyway. */
static void proc_child_close_others(void)
{
    if (syscall(SYS_close_range, PROC_FD + 1, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */) == 0)
        return;
    for (int fd = PROC_FD + 1; fd < 65536; fd++) /* kernels before 5.11 */
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void proc_child_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    struct sigaction normal = {.sa_handler = SIG_DFL};
    for (int s = 1; s < NSIG; s++)
        sigaction(s, &normal, NULL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void proc_child(struct proc_plan *p) BASE_NORETURN;
static void proc_child(struct proc_plan *p)
{
    proc_child_signals();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        proc_child_fail(p, errno);
    if (getppid() != p->parent) /* it died before we asked */
        _exit(127);
    /* Both descriptors first go where no dup2 below can overwrite them. */
    int fd = fcntl(p->fd, F_DUPFD_CLOEXEC, PROC_FD + 1);
    p->report_fd = fcntl(p->report_fd, F_DUPFD_CLOEXEC, PROC_FD + 1);
    if (fd < 0 || p->report_fd < 0)
        _exit(127);
    if (p->stderr_fd >= 0 && dup2(p->stderr_fd, STDERR_FILENO) < 0)
        proc_child_fail(p, errno);
    if (dup2(fd, PROC_FD) < 0)
        proc_child_fail(p, errno);
    proc_child_close_others();
    struct rlimit none = {0};
    if (!p->keep_core_limit && setrlimit(RLIMIT_CORE, &none) != 0)
        proc_child_fail(p, errno);
    int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0) { /* raising is always allowed; without /proc there is no exec either */
        (void)!write(score, p->oom_score, strlen(p->oom_score));
        close(score);
    }
    execv("/proc/self/exe", p->argv);
    proc_child_fail(p, errno);
}

/* Nothing arrives and the pipe closes when exec went well. */
static bool proc_started(int report_fd, int *error)
{
    ssize_t n;
    do {
        n = read(report_fd, error, sizeof *error);
    } while (n < 0 && errno == EINTR);
    return n == 0;
}

static bool proc_make_plan(struct proc_plan *plan, const struct proc_options *o, struct err *e)
{
    size_t count = 0;
    while (o->argv[count] && count < PROC_ARGS_MAX)
        count++;
    if (o->argv[count])
        return err_set(e, ERR_LIMIT, "child: more than %d arguments", PROC_ARGS_MAX);
    for (size_t i = 0; i < count; i++)
        plan->argv[i] = (char *)(uintptr_t)o->argv[i];
    int score = proc_own_oom_score() + o->oom_score_add;
    score = score > PROC_OOM_MAX ? PROC_OOM_MAX : score;
    snprintf(plan->oom_score, sizeof plan->oom_score, "%d", score);
    plan->stderr_fd = o->stderr_fd;
    plan->keep_core_limit = o->keep_core_limit;
    plan->parent = getpid();
    return true;
}

bool proc_start(struct proc *p, const struct proc_options *o, struct err *e)
{
    struct proc_plan plan = {0};
    int sockets[2] = {-1, -1}, report[2] = {-1, -1};
    *p = (struct proc){.pidfd = -1, .fd = -1};
    if (!proc_make_plan(&plan, o, e))
        return false;
    bool ok = false;
    pid_t pid = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) != 0 ||
        pipe2(report, O_CLOEXEC) != 0) {
        err_set_errno(e, errno, "child: cannot make its pipes");
        goto done;
    }
    plan.fd = sockets[1];
    plan.report_fd = report[1];
    pid = fork();
    if (pid < 0) {
        err_set_errno(e, errno, "child: cannot fork");
        goto done;
    }
    if (pid == 0)
        proc_child(&plan);
    close(report[1]);
    report[1] = -1;
    int error = 0;
    if (!proc_started(report[0], &error)) {
        waitpid(pid, NULL, 0);
        err_set_errno(e, error, "child: cannot run /proc/self/exe");
        goto done;
    }
    *p = (struct proc){.pid = pid, .fd = sockets[0]};
    p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (p->pidfd >= 0)
        fcntl(p->pidfd, F_SETFD, FD_CLOEXEC);
    sockets[0] = -1;
    ok = true;
done:
    for (int i = 0; i < 2; i++) {
        if (report[i] >= 0)
            close(report[i]);
        if (sockets[i] >= 0)
            close(sockets[i]);
    }
    return ok;
}

static struct proc_end proc_end_of(int status)
{
    if (WIFSIGNALED(status))
        return (struct proc_end){.by_signal = true, .code = WTERMSIG(status)};
    return (struct proc_end){.code = WEXITSTATUS(status)};
}

bool proc_reap(struct proc *p, struct proc_end *out)
{
    int status;
    if (p->pid == 0 || waitpid(p->pid, &status, WNOHANG) != p->pid)
        return false;
    *out = proc_end_of(status);
    p->pid = 0;
    if (p->pidfd >= 0)
        close(p->pidfd);
    p->pidfd = -1;
    return true;
}

bool proc_wait(struct proc *p, int64_t timeout_ms, struct proc_end *out)
{
    int64_t end = chrono_ms(&chrono_real) + timeout_ms;
    if (p->pid == 0)
        return false;
    while (!proc_reap(p, out)) {
        int64_t left = timeout_ms < 0 ? 1000 : end - chrono_ms(&chrono_real);
        if (left <= 0)
            return false;
        /* Without a pidfd (kernels before 5.3): look again every 10 ms. */
        int step = p->pidfd < 0 && left > 10 ? 10 : left > 1000 ? 1000 : (int)left;
        struct pollfd pfd = {.fd = p->pidfd, .events = POLLIN};
        poll(&pfd, 1, step);
    }
    return true;
}

void proc_signal(const struct proc *p, int signal_number)
{
    if (p->pid > 0)
        kill(p->pid, signal_number);
}

void proc_close_fd(struct proc *p)
{
    if (p->fd > 0)
        close(p->fd);
    p->fd = -1;
}

void proc_close(struct proc *p)
{
    struct proc_end end;
    proc_signal(p, SIGKILL);
    (void)proc_wait(p, -1, &end);
    proc_close_fd(p);
}

void proc_end_text(struct proc_end end, char *out, size_t size)
{
    if (end.by_signal)
        snprintf(out, size, "signal %d (%s)", end.code, strsignal(end.code));
    else
        snprintf(out, size, "exit code %d", end.code);
}
