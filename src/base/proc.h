/* proc - start copies of ourselves as children, and collect them.
 *
 * Owns:      the child's pid and pidfd, our end of the socketpair.
 * Not:       what is said on the socket (api_frame), when to start again (serve/engine_leg).
 * Invariant: a child runs the very binary that we run (/proc/self/exe), dies with us, dumps no core
 *            and is killed before us when memory runs out. It inherits stdin, stdout, stderr and
 *            one end of a socketpair as descriptor PROC_FD; everything else is closed.
 * Thread:    start children from a thread that lives as long as they shall: the kernel ties
 *            "dies with us" to the thread that made them.
 * Limits:    PROC_ARGS_MAX arguments.
 */
#ifndef SHOAL_BASE_PROC_H
#define SHOAL_BASE_PROC_H

#include <sys/types.h>

#include "base/err.h"

#define PROC_FD 3
#define PROC_ARGS_MAX 64

struct proc {
    pid_t pid; /* 0: none, or already collected */
    int pidfd; /* readable when the child has ended; -1: the kernel has none */
    int fd;    /* our end: a non-blocking SOCK_STREAM; -1 when closed */
};

struct proc_options {
    const char *const *argv; /* ends with NULL; argv[0] is the name shown by ps */
    int oom_score_add;       /* added to our own oom_score_adj, cut at 1000 */
    int stderr_fd;           /* instead of ours; -1: inherit */
    bool keep_core_limit;    /* default: RLIMIT_CORE 0 in the child */
};

struct proc_end {
    bool by_signal;
    int code; /* exit code, or the signal's number */
};

bool proc_start(struct proc *p, const struct proc_options *o, struct err *e) BASE_USE_RESULT;
/* True and *out filled when it has ended and is collected now; false: still running. */
bool proc_reap(struct proc *p, struct proc_end *out);
/* Waits at most timeout_ms (-1: no end); as proc_reap. */
bool proc_wait(struct proc *p, int64_t timeout_ms, struct proc_end *out);
void proc_signal(const struct proc *p, int signal_number); /* nothing when it is collected */
void proc_close_fd(struct proc *p);
/* Kills if still running, collects, closes. */
void proc_close(struct proc *p);

/* "exit code 1", "signal 11 (Segmentation fault)". */
void proc_end_text(struct proc_end end, char *out, size_t size);

#endif
