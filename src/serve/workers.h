/* workers - threads for what would hold up the loop: a large body, read into a request.
 *
 * Owns:      the threads, the jobs on their way there and back.
 * Not:       what a job touches: it belongs to the thread from workers_run until `done` is called.
 * Invariant: each job that was taken runs once on some thread, then its `done` is called from the
 *            loop, also when the workers are closed meanwhile.
 *
 *     loop: workers_run --> queue of the thread with fewest jobs --> run(ctx) --> done(ctx) :loop
 *
 * Thread:    the loop's; run is called on another one.
 * Limits:    WORKERS_MAX threads, started at the first job; jobs_max jobs at once.
 */
#ifndef SHOAL_SERVE_WORKERS_H
#define SHOAL_SERVE_WORKERS_H

#include "wire/loop.h"

#define WORKERS_MAX 8u

struct workers;
struct workers_job {
    void (*run)(void *ctx);
    void (*done)(void *ctx);
    void *ctx;
};

BASE_USE_RESULT bool workers_open(struct workers **out, struct loop *l, uint32_t threads,
                                  uint32_t jobs_max, struct err *e);
/* False: as many jobs as may are under way, or the system gives no thread. */
BASE_USE_RESULT bool workers_run(struct workers *w, const struct workers_job *job);
/* Waits for what runs. NULL is allowed. */
void workers_close(struct workers *w);

#endif
