#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/chrono.h"
#include "base/thread.h"

#define CHUNKS_MAX 1000

struct counts {
    uint32_t runs[CHUNKS_MAX]; /* plain: the pool must order them before the caller's read */
    atomic_uint worker_max;
    uint32_t add;
};

static void count_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    struct counts *c = ctx;
    c->runs[chunk] += c->add;
    unsigned seen = atomic_load(&c->worker_max);
    while (worker > seen && !atomic_compare_exchange_weak(&c->worker_max, &seen, worker))
        ;
}

static struct thread_pool *open_pool(uint32_t workers)
{
    struct err e = {0};
    struct thread_pool *p = NULL;
    struct thread_pool_options o = {.workers = workers};
    if (!thread_pool_open(&p, &o, &e))
        fail_msg("%s", e.text);
    return p;
}

static void check_jobs(struct thread_pool *p, struct counts *c, uint32_t jobs)
{
    uint64_t before = p ? thread_pool_progress(p) : 0, sum = 0;
    for (uint32_t job = 0; job < jobs; job++) {
        uint32_t chunks = job * 7 % 100;
        c->add = job + 1;
        memset(c->runs, 0, sizeof c->runs);
        struct thread_job j = {count_chunk, c, chunks};
        thread_parallel_for(p, &j);
        for (uint32_t i = 0; i < CHUNKS_MAX; i++)
            if (c->runs[i] != (i < chunks ? c->add : 0))
                fail_msg("job %u of %u chunks: chunk %u ran wrongly", job, chunks, i);
        sum += chunks;
    }
    if (p)
        assert_int_equal(thread_pool_progress(p) - before, sum);
}

static void test_every_chunk_runs_once_whatever_the_number_of_workers(void **state)
{
    (void)state;
    static struct counts c;
    check_jobs(NULL, &c, 50);
    for (uint32_t workers = 1; workers <= 9; workers++) {
        struct thread_pool *p = open_pool(workers);
        atomic_store(&c.worker_max, 0);
        check_jobs(p, &c, 3000);
        assert_true(atomic_load(&c.worker_max) < workers);
        assert_int_equal(thread_pool_workers(p), workers);
        thread_pool_close(p);
    }
}

/* Workers that sleep (futex) must come back for the next job and must see the end of the pool. */
static void test_workers_wake_after_they_fell_asleep(void **state)
{
    (void)state;
    static struct counts c;
    struct thread_pool *p = open_pool(3);
    for (int i = 0; i < 20; i++) {
        usleep(2000);
        check_jobs(p, &c, 2);
    }
    usleep(2000);
    thread_pool_close(p);
    for (int i = 0; i < 50; i++)
        thread_pool_close(open_pool(4)); /* closed before the workers were ever seen */
}

static void sleep_in_last_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    (void)worker;
    if (chunk == 0)
        usleep(3000);
    atomic_fetch_add((atomic_uint *)ctx, 1);
}

/* Whoever is last may not be the caller: then the caller sleeps and is woken. */
static void test_the_caller_waits_for_a_slow_chunk_of_another_worker(void **state)
{
    (void)state;
    struct thread_pool *p = open_pool(4);
    for (int i = 0; i < 30; i++) {
        atomic_uint done = 0;
        struct thread_job j = {sleep_in_last_chunk, &done, 8};
        thread_parallel_for(p, &j);
        assert_int_equal(atomic_load(&done), 8);
    }
    thread_pool_close(p);
}

static void test_too_many_workers_are_refused_by_number(void **state)
{
    (void)state;
    struct err e = {0};
    struct thread_pool *p = NULL;
    struct thread_pool_options o = {.workers = THREAD_WORKERS_MAX + 1};
    assert_false(thread_pool_open(&p, &o, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_non_null(strstr(e.text, "257"));
}

struct message {
    uint32_t sender, number;
};
struct sender {
    struct thread_queue *q;
    uint32_t id, count;
};

static void *send_all(void *ctx)
{
    const struct sender *s = ctx;
    for (uint32_t i = 0; i < s->count; i++) {
        struct message m = {s->id, i};
        while (!thread_queue_push(s->q, &m))
            usleep(10);
    }
    return NULL;
}

static void test_a_queue_keeps_each_senders_order(void **state)
{
    (void)state;
    enum { SENDERS = 4, COUNT = 20000 };
    struct err e = {0};
    struct thread_queue *q = NULL;
    assert_true(thread_queue_open(&q, sizeof(struct message), 64, &e));
    struct sender s[SENDERS];
    pthread_t t[SENDERS];
    for (uint32_t i = 0; i < SENDERS; i++) {
        s[i] = (struct sender){q, i, COUNT};
        assert_true(thread_start(&t[i], "sender", send_all, &s[i], &e));
    }
    uint32_t next[SENDERS] = {0};
    for (uint32_t got = 0; got < SENDERS * COUNT;) {
        struct message m;
        assert_true(thread_queue_wait(q, 10000));
        while (thread_queue_pop(q, &m)) {
            assert_int_equal(m.number, next[m.sender]++);
            got++;
        }
    }
    for (uint32_t i = 0; i < SENDERS; i++)
        thread_join(t[i]);
    assert_int_equal(thread_queue_count(q), 0);
    thread_queue_close(q);
}

static void test_a_full_queue_refuses_and_an_empty_one_times_out(void **state)
{
    (void)state;
    struct err e = {0};
    struct thread_queue *q = NULL;
    uint64_t v = 1;
    assert_true(thread_queue_open(&q, sizeof v, 2, &e));
    struct pollfd pfd = {.fd = thread_queue_fd(q), .events = POLLIN};
    assert_int_equal(poll(&pfd, 1, 0), 0);
    assert_false(thread_queue_wait(q, 1));
    assert_true(thread_queue_push(q, &v) && thread_queue_push(q, &v));
    assert_false(thread_queue_push(q, &v));
    assert_int_equal(poll(&pfd, 1, 0), 1);
    assert_true(thread_queue_pop(q, &v) && thread_queue_pop(q, &v));
    assert_false(thread_queue_pop(q, &v));
    assert_int_equal(poll(&pfd, 1, 0), 0);
    thread_queue_close(q);
}

struct pinned {
    unsigned cpu;
    atomic_bool was_looked_at, is_elsewhere;
};

/* On any worker but the caller, which waits for one that looks. */
static void look_where(void *ctx, uint32_t chunk, uint32_t worker)
{
    struct pinned *p = ctx;
    cpu_set_t set;
    (void)chunk;
    int64_t end = chrono_ns(&chrono_real) + 10000000000;
    while (worker == 0 && !atomic_load(&p->was_looked_at) && chrono_ns(&chrono_real) < end)
        sched_yield();
    if (worker == 0)
        return;
    bool is_there = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1 &&
                    CPU_ISSET(p->cpu, &set);
    if (!is_there)
        atomic_store(&p->is_elsewhere, true);
    atomic_store(&p->was_looked_at, true);
}

static void test_a_worker_is_pinned_though_the_list_of_cpus_is_gone(void **state)
{
    (void)state;
    cpu_set_t set;
    struct pinned seen = {0};
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    while (!CPU_ISSET(seen.cpu, &set))
        seen.cpu++;
    for (int round = 0; round < 20; round++) {
        struct err e;
        struct thread_pool *pool = NULL;
        uint16_t cpus[] = {(uint16_t)seen.cpu};
        const struct thread_pool_options o = {.workers = 4, .cpus = cpus, .cpus_count = 1};
        assert_true(thread_pool_open(&pool, &o, &e));
        cpus[0] = UINT16_MAX; /* the workers have hardly begun */
        atomic_store(&seen.was_looked_at, false);
        thread_parallel_for(pool, &(struct thread_job){look_where, &seen, 64});
        thread_pool_close(pool);
        assert_true(atomic_load(&seen.was_looked_at));
        assert_false(atomic_load(&seen.is_elsewhere));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_chunk_runs_once_whatever_the_number_of_workers),
        cmocka_unit_test(test_workers_wake_after_they_fell_asleep),
        cmocka_unit_test(test_the_caller_waits_for_a_slow_chunk_of_another_worker),
        cmocka_unit_test(test_too_many_workers_are_refused_by_number),
        cmocka_unit_test(test_a_worker_is_pinned_though_the_list_of_cpus_is_gone),
        cmocka_unit_test(test_a_queue_keeps_each_senders_order),
        cmocka_unit_test(test_a_full_queue_refuses_and_an_empty_one_times_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
