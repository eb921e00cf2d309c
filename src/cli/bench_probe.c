#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cli/bench.h"

/* --- memory --- */

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

/* --- int8 products --- */

#define BENCH_INT8_WIDTH 1024u /* matrices of 1 MiB: the caches hold them, memory is no matter */
#define BENCH_INT8_MATRICES 4u
#define BENCH_INT8_ROWS 256u /* of a prompt: every tile of the kernels is full */
#define BENCH_INT8_ROUNDS 64u
#define BENCH_INT8_NS 500000000 /* the rounds end then, however slow the machine is */
#define BENCH_INT8_BLOCK 34u /* bytes of Q8_0: a scale and 32 numbers */
#define BENCH_INT8_ARENA ((size_t)4 << 20)

/* A plan of matmuls alone, on weights that are no model's. */
struct bench_int8 {
    const struct backend *backend;
    struct device *device;
    struct arena arena;
    struct plan plan;
    struct weight weights[BENCH_INT8_MATRICES + 1]; /* the first one: the inputs */
    struct prepared *prepared;
};

static bool bench_int8_plan(struct bench_int8 *x, struct err *e)
{
    struct plan *p = &x->plan;
    struct weight_want want = plan_matrix(BENCH_INT8_WIDTH, BENCH_INT8_WIDTH);
    plan_init(p, &x->arena, PLAN_KIND_MAIN);
    struct view v = op_embed(p, plan_weight(p, "inputs", want),
                             (struct op_embed){.index = OP_INDEX_TOKENS, .scale = 1});
    for (uint32_t i = 0; i < BENCH_INT8_MATRICES; i++) {
        uint16_t w = plan_layer_weight(p, i, "probe", want);
        v = op_matmul(p, v, w, TENSOR_NONE, TENSOR_NONE);
    }
    return plan_expand(p, x->backend->ops, e) && plan_finish(p, e);
}

/* Numbers of both signs; the scale, 2^-11, keeps products of such matrices near 1. */
static bool bench_int8_load(struct bench_int8 *x, struct err *e)
{
    size_t size = (size_t)BENCH_INT8_WIDTH * BENCH_INT8_WIDTH / 32 * BENCH_INT8_BLOCK;
    uint8_t *bytes = malloc(size);
    bool ok = bytes != NULL || err_set(e, ERR_MEMORY, "probe: no memory");
    struct chrono_rng rng;
    chrono_rng_init(&rng, 1);
    for (size_t i = 0; ok && i < size; i++)
        bytes[i] = i % BENCH_INT8_BLOCK == 0   ? 0x00
                   : i % BENCH_INT8_BLOCK == 1 ? 0x10
                                               : (uint8_t)chrono_rng_below(&rng, 256);
    for (uint32_t i = 0; ok && i < x->plan.weights_count; i++) {
        x->weights[i] = (struct weight){.name = x->plan.weights[i].name, .type = QTYPE_Q8_0,
                                        .rows = BENCH_INT8_WIDTH, .cols = BENCH_INT8_WIDTH,
                                        .mats = 1};
        ok = x->backend->weight_load(x->device, &x->weights[i], 0, BENCH_INT8_WIDTH, bytes, e);
    }
    free(bytes);
    return ok;
}

static bool bench_int8_rounds(struct bench_int8 *x, double *gops, struct err *e)
{
    int32_t ids[BENCH_INT8_ROWS], pos[BENCH_INT8_ROWS];
    uint16_t seq[BENCH_INT8_ROWS] = {0};
    uint32_t len = BENCH_INT8_ROWS;
    struct step_out out;
    for (uint32_t i = 0; i < BENCH_INT8_ROWS; i++)
        ids[i] = pos[i] = (int32_t)i;
    struct step s = {.rows = BENCH_INT8_ROWS, .seqs = 1, .ids = ids, .pos = pos, .seq = seq,
                     .kv = {.len = &len}};
    double ops = 2.0 * BENCH_INT8_ROWS * BENCH_INT8_WIDTH * BENCH_INT8_WIDTH * BENCH_INT8_MATRICES;
    int64_t begin = chrono_ns(&chrono_real), last = begin;
    *gops = 0;
    for (uint32_t i = 0; i < BENCH_INT8_ROUNDS && last - begin < BENCH_INT8_NS; i++) {
        if (!x->backend->submit(x->device, x->prepared, &s, e) ||
            !x->backend->wait(x->device, x->prepared, &out, e))
            return false;
        int64_t now = chrono_ns(&chrono_real);
        double rate = ops / (double)(now - last);
        *gops = rate > *gops ? rate : *gops;
        last = now;
    }
    return true;
}

bool bench_probe_int8(double *gops, uint32_t threads, struct err *e)
{
    struct bench_int8 x = {.backend = backend_table_find(STR("cpu"))};
    struct device_options o = {.act = ACT_INT8, .threads = threads};
    struct step_limits limits = {.rows_max = BENCH_INT8_ROWS, .seqs_max = 1, .outs_max = 1};
    arena_init(&x.arena, BENCH_INT8_ARENA);
    bool ok = bench_int8_plan(&x, e) && x.backend->open(&x.device, &o, e) &&
              bench_int8_load(&x, e) &&
              x.backend->prepare(x.device, &x.plan, x.weights, &limits, &x.prepared, e) &&
              bench_int8_rounds(&x, gops, e);
    if (x.device)
        x.backend->close(x.device);
    arena_deinit(&x.arena);
    return ok;
}
