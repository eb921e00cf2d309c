#include "serve/workers.h"

#include <stdlib.h>

#include "base/thread.h"

struct workers_thread {
    struct workers *workers;
    struct thread_queue *jobs; /* run NULL: end */
    pthread_t id;
    uint32_t count; /* jobs under way; the loop's */
    bool is_started;
};

/* A job on its way back. */
struct workers_done {
    struct workers_job job;
    struct workers_thread *by;
};

struct workers {
    struct workers_thread threads[WORKERS_MAX];
    uint32_t threads_count, jobs, jobs_max;
    struct thread_queue *done;
    struct loop_wake wake;
};

static void *workers_work(void *ctx)
{
    struct workers_thread *t = ctx;
    struct workers_done d = {.by = t};
    for (;;) {
        if (!thread_queue_wait(t->jobs, -1) || !thread_queue_pop(t->jobs, &d.job))
            continue;
        if (!d.job.run)
            return NULL;
        d.job.run(d.job.ctx);
        must(thread_queue_push(t->workers->done, &d)); /* it holds jobs_max */
        loop_wake_send(&t->workers->wake);
    }
}

static void workers_on_wake(void *ctx)
{
    struct workers *w = ctx;
    struct workers_done d;
    while (thread_queue_pop(w->done, &d)) {
        w->jobs--;
        d.by->count--;
        d.job.done(d.job.ctx);
    }
}

bool workers_open(struct workers **out, struct loop *l, uint32_t threads, uint32_t jobs_max,
                  struct err *e)
{
    struct workers *w = calloc(1, sizeof *w);
    must(threads >= 1 && threads <= WORKERS_MAX && jobs_max >= 1);
    if (!w)
        return err_set(e, ERR_MEMORY, "serve: no memory for the workers");
    w->threads_count = threads;
    w->jobs_max = jobs_max;
    bool ok = thread_queue_open(&w->done, sizeof(struct workers_done), jobs_max, e) &&
              loop_wake_open(&w->wake, l, workers_on_wake, w, e);
    for (uint32_t i = 0; ok && i < threads; i++) {
        w->threads[i].workers = w;
        ok = thread_queue_open(&w->threads[i].jobs, sizeof(struct workers_job), jobs_max + 1, e);
    }
    *out = w;
    if (!ok)
        workers_close(w);
    return ok;
}

bool workers_run(struct workers *w, const struct workers_job *job)
{
    struct workers_thread *t = &w->threads[0];
    struct err ignored;
    if (w->jobs == w->jobs_max)
        return false;
    for (uint32_t i = 1; i < w->threads_count; i++)
        if (w->threads[i].count < t->count)
            t = &w->threads[i];
    if (!t->is_started)
        t->is_started = thread_start(&t->id, "worker", workers_work, t, &ignored);
    if (!t->is_started)
        return false;
    must(thread_queue_push(t->jobs, job));
    t->count++;
    w->jobs++;
    return true;
}

void workers_close(struct workers *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; i < w->threads_count; i++) {
        const struct workers_job end = {0};
        struct workers_thread *t = &w->threads[i];
        if (t->is_started) {
            must(thread_queue_push(t->jobs, &end));
            thread_join(t->id);
        }
        thread_queue_close(t->jobs);
    }
    loop_wake_close(&w->wake);
    if (w->done)
        workers_on_wake(w);
    thread_queue_close(w->done);
    free(w);
}
