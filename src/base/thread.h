/* thread - threads, the pool behind parallel_for, queues between threads.
 *
 * Owns:      worker threads, their pinning and sleeping; queue memory; the locks of the program
 *            (together with log and store).
 * Not:       what runs in a body; which thread owns which data (ARCHITECTURE section 7).
 * Invariant: thread_parallel_for returns after every chunk ran exactly once, and everything the
 *            chunks wrote is visible to the caller then. Which worker runs a chunk is not fixed:
 *            a chunk's result must not depend on it.
 *
 *     caller: publish job -> run chunks -> wait for `done == chunks`
 *     worker: spin <= 50 us for a job -> futex sleep -> run chunks (own span, then help others)
 *
 * Thread:    a pool has one caller at a time. A queue has many pushers and one popper.
 * Limits:    THREAD_WORKERS_MAX; chunks < 2^31; queue items fixed at init.
 */
#ifndef SHOAL_BASE_THREAD_H
#define SHOAL_BASE_THREAD_H

#include <pthread.h>

#include "base/err.h"

#define THREAD_WORKERS_MAX 256

struct thread_pool;
struct thread_pool_options {
    uint32_t workers;       /* the caller included; 1: no thread is started */
    const uint16_t *cpus;   /* worker i is pinned to cpus[i % cpus_count]; NULL: not pinned */
    uint32_t cpus_count;
    bool pin_caller;        /* pin the opening thread to cpus[0] as worker 0 */
    uint32_t spin_us;       /* before the futex; 0: the default of 50 */
};

/* body runs for chunk 0 .. chunks - 1; worker < workers tells per-worker scratch apart and is 0
 * for the caller. */
struct thread_job {
    void (*body)(void *ctx, uint32_t chunk, uint32_t worker);
    void *ctx;
    uint32_t chunks;
};

/* Nothing of o is looked at after it returns. */
bool thread_pool_open(struct thread_pool **out, const struct thread_pool_options *o,
                      struct err *e) BASE_USE_RESULT;
void thread_pool_close(struct thread_pool *p); /* joins; NULL is allowed */
uint32_t thread_pool_workers(const struct thread_pool *p);

/* Runs the job on all workers; the caller takes part. With one chunk or one worker nothing is
 * woken. p may be NULL: the caller alone. Not from inside a body. */
void thread_parallel_for(struct thread_pool *p, const struct thread_job *job);
/* Chunks finished since the pool was opened; any thread may read it (progress in BEAT). */
uint64_t thread_pool_progress(const struct thread_pool *p);

/* A named thread (15 bytes are kept) with all signals blocked. */
bool thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *ctx,
                  struct err *e) BASE_USE_RESULT;
void thread_join(pthread_t t);
/* Pins the calling thread; false where the kernel refuses (not an error for anyone). */
bool thread_pin(uint32_t cpu);

/* A queue of plain structs: ownership moves with the item. A full queue refuses at once. */
struct thread_queue;
bool thread_queue_open(struct thread_queue **out, size_t item_size, uint32_t items_max,
                       struct err *e) BASE_USE_RESULT;
void thread_queue_close(struct thread_queue *q); /* NULL is allowed; left items are dropped */
/* False: full. Any thread. */
bool thread_queue_push(struct thread_queue *q, const void *item) BASE_USE_RESULT;
/* False: empty. The popper only; never waits. */
bool thread_queue_pop(struct thread_queue *q, void *out) BASE_USE_RESULT;
/* Waits until something is there or the time is up; timeout_ms < 0: no end. The popper only. */
bool thread_queue_wait(struct thread_queue *q, int64_t timeout_ms);
/* An eventfd that is readable while items wait, for poll(); thread_queue_pop clears it. */
int thread_queue_fd(const struct thread_queue *q);
uint32_t thread_queue_count(const struct thread_queue *q);

#endif
