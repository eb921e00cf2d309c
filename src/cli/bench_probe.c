#include <string.h>

#include "base/chrono.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cli/bench.h"

#define BENCH_PROBE_ROUNDS 6
#define BENCH_PROBE_AHEAD 8192 /* bytes; from 4 to 16 KiB it makes no difference */
#define BENCH_PROBE_CHUNK ((size_t)1 << 20)

struct bench_probe_job {
    const char *bytes;
    size_t size;
    uint64_t sums[THREAD_WORKERS_MAX * 8]; /* keeps the reads; a cache line per worker */
};

/* Sixty-four bytes a turn. The eight words are named one by one: as a loop over arrays gcc keeps
 * them in memory, and the probe would measure its own stores (half of the bandwidth). */
static void bench_probe_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    struct bench_probe_job *j = ctx;
    size_t from = chunk * BENCH_PROBE_CHUNK;
    size_t end = base_min(from + BENCH_PROBE_CHUNK, j->size);
    uint64_t sum = 0;
    for (const char *p = j->bytes + from; p + 64 <= j->bytes + end; p += 64) {
        uint64_t v[8];
        __builtin_prefetch(p + BENCH_PROBE_AHEAD);
        memcpy(v, p, sizeof v);
        sum |= (v[0] | v[1] | v[2] | v[3]) | (v[4] | v[5] | v[6] | v[7]);
    }
    j->sums[worker * 8] |= sum;
}

static void bench_probe_fill(void *ctx, uint32_t chunk, uint32_t worker)
{
    struct bench_probe_job *j = ctx;
    size_t from = chunk * BENCH_PROBE_CHUNK;
    (void)worker;
    memset((char *)(uintptr_t)j->bytes + from, 0x5a,
           base_min(BENCH_PROBE_CHUNK, j->size - from));
}

static double bench_probe_rounds(struct thread_pool *pool, const struct thread_job *job,
                                 uint64_t size)
{
    double best = 0;
    for (int i = 0; i < BENCH_PROBE_ROUNDS; i++) {
        int64_t begin = chrono_ns(&chrono_real);
        thread_parallel_for(pool, job);
        double rate = (double)size / (double)(chrono_ns(&chrono_real) - begin);
        best = rate > best ? rate : best;
    }
    return best;
}

bool bench_probe_read(struct bench_probe *p, uint64_t size, uint32_t threads, struct err *e)
{
    struct machine m;
    struct mem mem;
    struct thread_pool *pool = NULL;
    static struct bench_probe_job job;
    machine_read(&m);
    struct thread_pool_options o = {.workers = threads};
    if (threads <= m.cpus_allowed) {
        o.cpus = m.cpu_ids;
        o.cpus_count = m.cpus_allowed;
    }
    mem_init(&mem, SIZE_MAX);
    job = (struct bench_probe_job){.size = (size_t)size};
    job.bytes = mem_new(&mem, "probe", (size_t)size, e);
    bool ok = job.bytes && thread_pool_open(&pool, &o, e);
    if (ok) {
        struct thread_job fill = {bench_probe_fill, &job, 0};
        struct thread_job read = {bench_probe_chunk, &job, 0};
        fill.chunks = read.chunks = (uint32_t)((size + BENCH_PROBE_CHUNK - 1) / BENCH_PROBE_CHUNK);
        thread_parallel_for(pool, &fill);
        *p = (struct bench_probe){bench_probe_rounds(pool, &read, size), size};
        thread_pool_close(pool);
    }
    mem_deinit(&mem);
    return ok;
}
