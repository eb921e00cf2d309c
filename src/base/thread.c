#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/chrono.h"
#include "base/ring.h"

#define THREAD_SPIN_US 50 /* ARCHITECTURE 7; a wake by futex costs about as much */
#define THREAD_SPIN_ROUNDS 32 /* pauses between two looks at the clock */
#define THREAD_LINE 64 /* one cache line: what one worker writes, no other shall wait for */

/* --- waiting --- */

static void thread_futex_wait(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void thread_futex_wake(atomic_uint *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static inline void thread_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* --- the pool ---
 *
 * One 64-bit word says how the job stands:
 *
 *     closed 1 | finished chunks 31 | workers inside 32
 *
 * A worker enters by adding one; if the word was closed it takes the one back and has no job. It
 * leaves by adding its finished chunks and taking the one back in one addition. The job is over
 * when all chunks are finished and nobody is inside; only then does the caller close the word and
 * may it touch job and spans again. So a worker that was asleep or preempted the whole time holds
 * up nobody, and one that comes late can never mix two jobs. */
#define THREAD_CLOSED ((uint64_t)1 << 63)
#define THREAD_FINISHED(count) ((uint64_t)(count) << 32)
#define THREAD_INSIDE UINT32_MAX

struct thread_span { /* chunks next .. end belong to one worker first, then to whoever is free */
    _Alignas(THREAD_LINE) atomic_uint next;
    uint32_t end;
    _Atomic uint64_t finished; /* chunks this worker has run since the pool was opened */
};

struct thread_worker {
    struct thread_pool *pool;
    pthread_t thread;
    uint32_t index;
    int cpu; /* it is pinned to; -1: none. Copied: the caller's list may be gone when it starts */
};

struct thread_pool {
    _Alignas(THREAD_LINE) _Atomic uint64_t state;
    atomic_uint caller_waits, end_word;
    _Alignas(THREAD_LINE) atomic_uint epoch; /* counts jobs; idle workers watch it */
    atomic_uint sleepers;
    atomic_bool is_closing;
    _Alignas(THREAD_LINE) struct thread_job job;
    uint32_t workers, started;
    int64_t spin_ns;
    bool is_busy;
    struct thread_worker *worker;
    struct thread_span *spans;
};

static void thread_run_chunks(struct thread_pool *p, uint32_t worker, uint32_t *finished)
{
    for (uint32_t i = 0; i < p->workers; i++) {
        struct thread_span *s = &p->spans[(worker + i) % p->workers];
        while (atomic_load_explicit(&s->next, memory_order_relaxed) < s->end) {
            uint32_t chunk = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
            if (chunk >= s->end)
                break;
            p->job.body(p->job.ctx, chunk, worker);
            ++*finished;
            atomic_fetch_add_explicit(&p->spans[worker].finished, 1, memory_order_relaxed);
        }
    }
}

/* Sequentially consistent on purpose: against a caller that announces its sleep and looks at the
 * word once more, one of both sees the other. */
static void thread_leave(struct thread_pool *p, uint32_t finished)
{
    uint64_t change = THREAD_FINISHED(finished) - 1;
    uint64_t now = atomic_fetch_add(&p->state, change) + change;
    if ((now & THREAD_INSIDE) == 0 && atomic_load(&p->caller_waits)) {
        atomic_fetch_add(&p->end_word, 1);
        thread_futex_wake(&p->end_word, 1);
    }
}

static void thread_take_part(struct thread_pool *p, uint32_t worker)
{
    uint32_t finished = 0;
    if (!(atomic_fetch_add(&p->state, 1) & THREAD_CLOSED))
        thread_run_chunks(p, worker, &finished);
    thread_leave(p, finished);
}

/* Until the epoch differs from seen: first spinning, then asleep. */
static unsigned thread_wait_epoch(struct thread_pool *p, unsigned seen)
{
    int64_t end = chrono_ns(&chrono_real) + p->spin_ns;
    do {
        for (int i = 0; i < THREAD_SPIN_ROUNDS; i++) {
            unsigned now = atomic_load_explicit(&p->epoch, memory_order_acquire);
            if (now != seen)
                return now;
            thread_pause();
        }
    } while (chrono_ns(&chrono_real) < end);
    unsigned now;
    atomic_fetch_add(&p->sleepers, 1);
    while ((now = atomic_load(&p->epoch)) == seen)
        thread_futex_wait(&p->epoch, seen);
    atomic_fetch_sub(&p->sleepers, 1);
    return now;
}

static void *thread_worker_run(void *ctx)
{
    struct thread_worker *w = ctx;
    struct thread_pool *p = w->pool;
    if (w->cpu >= 0)
        thread_pin((uint16_t)w->cpu);
    for (unsigned seen = 0;;) {
        seen = thread_wait_epoch(p, seen);
        if (atomic_load(&p->is_closing))
            return NULL;
        thread_take_part(p, w->index);
    }
}

static void thread_publish(struct thread_pool *p, const struct thread_job *job)
{
    p->job = *job;
    for (uint32_t i = 0; i < p->workers; i++) {
        uint64_t first = (uint64_t)job->chunks * i / p->workers;
        uint64_t end = (uint64_t)job->chunks * (i + 1) / p->workers;
        atomic_store_explicit(&p->spans[i].next, (uint32_t)first, memory_order_relaxed);
        p->spans[i].end = (uint32_t)end;
    }
    /* Not a store: a worker that was refused may still have to take its one back. */
    atomic_fetch_sub(&p->state, THREAD_CLOSED);
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->sleepers))
        thread_futex_wake(&p->epoch, INT_MAX);
}

static bool thread_try_close(struct thread_pool *p, uint32_t chunks)
{
    uint64_t over = THREAD_FINISHED(chunks);
    return atomic_load_explicit(&p->state, memory_order_relaxed) == over &&
           atomic_compare_exchange_strong(&p->state, &over, THREAD_CLOSED);
}

static void thread_wait_end(struct thread_pool *p, uint32_t chunks)
{
    int64_t end = chrono_ns(&chrono_real) + p->spin_ns;
    do {
        for (int i = 0; i < THREAD_SPIN_ROUNDS; i++) {
            if (thread_try_close(p, chunks))
                return;
            thread_pause();
        }
    } while (chrono_ns(&chrono_real) < end);
    atomic_store(&p->caller_waits, 1);
    for (;;) {
        unsigned seen = atomic_load(&p->end_word);
        if (thread_try_close(p, chunks))
            break;
        thread_futex_wait(&p->end_word, seen);
    }
    atomic_store(&p->caller_waits, 0);
}

void thread_parallel_for(struct thread_pool *p, const struct thread_job *job)
{
    must(job->chunks <= INT32_MAX);
    if (!p || p->workers == 1 || job->chunks <= 1) {
        for (uint32_t i = 0; i < job->chunks; i++) {
            job->body(job->ctx, i, 0);
            if (p)
                atomic_fetch_add_explicit(&p->spans[0].finished, 1, memory_order_relaxed);
        }
        return;
    }
    must(!p->is_busy);
    p->is_busy = true;
    thread_publish(p, job);
    thread_take_part(p, 0);
    thread_wait_end(p, job->chunks);
    p->is_busy = false;
}

uint64_t thread_pool_progress(const struct thread_pool *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->workers; i++)
        sum += atomic_load_explicit(&p->spans[i].finished, memory_order_relaxed);
    return sum;
}

uint32_t thread_pool_workers(const struct thread_pool *p) { return p ? p->workers : 1; }

static void thread_pool_free(struct thread_pool *p)
{
    free(p->worker);
    free(p->spans);
    free(p);
}

void thread_pool_close(struct thread_pool *p)
{
    if (!p)
        return;
    must(!p->is_busy);
    atomic_store(&p->is_closing, true);
    atomic_fetch_add(&p->epoch, 1);
    thread_futex_wake(&p->epoch, INT_MAX);
    for (uint32_t i = 1; i <= p->started; i++)
        thread_join(p->worker[i].thread);
    thread_pool_free(p);
}

static bool thread_pool_start(struct thread_pool *p, const struct thread_pool_options *o,
                              struct err *e)
{
    for (uint32_t i = 1; i < p->workers; i++) {
        int cpu = o->cpus_count ? o->cpus[i % o->cpus_count] : -1;
        p->worker[i] = (struct thread_worker){.pool = p, .index = i, .cpu = cpu};
        if (!thread_start(&p->worker[i].thread, "shoal-pool", thread_worker_run, &p->worker[i], e))
            return false;
        p->started++;
    }
    return true;
}

bool thread_pool_open(struct thread_pool **out, const struct thread_pool_options *o,
                      struct err *e)
{
    must(o->workers >= 1 && (o->cpus || !o->cpus_count));
    if (o->workers > THREAD_WORKERS_MAX)
        return err_set(e, ERR_LIMIT, "threads: %u asked for, at most %d are possible", o->workers,
                       THREAD_WORKERS_MAX);
    size_t n = o->workers;
    struct thread_pool *p = aligned_alloc(THREAD_LINE, base_align(sizeof *p, THREAD_LINE));
    if (!p)
        return err_set(e, ERR_MEMORY, "threads: no memory for the pool");
    memset(p, 0, sizeof *p);
    p->workers = o->workers;
    p->spin_ns = 1000 * (int64_t)(o->spin_us ? o->spin_us : THREAD_SPIN_US);
    p->worker = calloc(n, sizeof *p->worker);
    p->spans = aligned_alloc(THREAD_LINE, n * sizeof *p->spans);
    if (!p->worker || !p->spans) {
        thread_pool_free(p);
        return err_set(e, ERR_MEMORY, "threads: no memory for %zu workers", n);
    }
    memset(p->spans, 0, n * sizeof *p->spans);
    atomic_store(&p->state, THREAD_CLOSED);
    if (!thread_pool_start(p, o, e)) {
        thread_pool_close(p);
        return false;
    }
    if (o->pin_caller && o->cpus_count)
        thread_pin(o->cpus[0]);
    *out = p;
    return true;
}

/* --- single threads --- */

bool thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *ctx,
                  struct err *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits it */
    int error = pthread_create(out, NULL, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return err_set_errno(e, error, "threads: cannot start '%s'", name);
    char text[16] = {0};
    memcpy(text, name, base_min(strlen(name), sizeof text - 1));
    pthread_setname_np(*out, text);
    return true;
}

void thread_join(pthread_t t) { must(pthread_join(t, NULL) == 0); }

bool thread_pin(uint32_t cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= CPU_SETSIZE)
        return false;
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

/* --- queues ---
 *
 * A lock around a copy: messages are few (requests, batches, pages), and the popper looks at an
 * atomic count first, so polling an empty queue between steps costs one load. The eventfd is
 * written when the first item comes and read when the last one goes. */

struct thread_queue {
    pthread_mutex_t lock;
    struct ring ring;
    atomic_uint count;
    int fd;
    void *items;
};

bool thread_queue_open(struct thread_queue **out, size_t item_size, uint32_t items_max,
                       struct err *e)
{
    size_t bytes = 0;
    struct thread_queue *q = calloc(1, sizeof *q);
    void *items = base_mul(&bytes, item_size, items_max) ? malloc(bytes) : NULL;
    int fd = q && items ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    if (fd < 0) {
        int error = q && items ? errno : ENOMEM;
        free(q);
        free(items);
        return err_set_errno(e, error, "threads: cannot open a queue of %u items", items_max);
    }
    *q = (struct thread_queue){.fd = fd, .items = items};
    pthread_mutex_init(&q->lock, NULL);
    ring_init(&q->ring, items, item_size, items_max);
    *out = q;
    return true;
}

void thread_queue_close(struct thread_queue *q)
{
    if (!q)
        return;
    close(q->fd);
    pthread_mutex_destroy(&q->lock);
    free(q->items);
    free(q);
}

bool thread_queue_push(struct thread_queue *q, const void *item)
{
    pthread_mutex_lock(&q->lock);
    void *slot = ring_push(&q->ring);
    if (slot) {
        memcpy(slot, item, q->ring.item_size);
        if (atomic_fetch_add(&q->count, 1) == 0)
            must(eventfd_write(q->fd, 1) == 0);
    }
    pthread_mutex_unlock(&q->lock);
    return slot != NULL;
}

bool thread_queue_pop(struct thread_queue *q, void *out)
{
    if (atomic_load_explicit(&q->count, memory_order_acquire) == 0)
        return false;
    pthread_mutex_lock(&q->lock);
    bool got = ring_pop(&q->ring, out);
    if (got && atomic_fetch_sub(&q->count, 1) == 1) {
        eventfd_t value;
        must(eventfd_read(q->fd, &value) == 0);
    }
    pthread_mutex_unlock(&q->lock);
    return got;
}

bool thread_queue_wait(struct thread_queue *q, int64_t timeout_ms)
{
    int64_t end = timeout_ms < 0 ? 0 : chrono_ms(&chrono_real) + timeout_ms;
    while (atomic_load_explicit(&q->count, memory_order_acquire) == 0) {
        int64_t left = timeout_ms < 0 ? -1 : end - chrono_ms(&chrono_real);
        if (timeout_ms >= 0 && left <= 0)
            return false;
        struct pollfd pfd = {.fd = q->fd, .events = POLLIN};
        poll(&pfd, 1, left > INT_MAX ? INT_MAX : (int)left);
    }
    return true;
}

int thread_queue_fd(const struct thread_queue *q) { return q->fd; }
uint32_t thread_queue_count(const struct thread_queue *q) { return atomic_load(&q->count); }
