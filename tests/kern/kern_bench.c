#include "kern/kern.h"

#include <stdio.h>
#include <string.h>

#include "base/chrono.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/thread.h"

/* Every matmul of a level, all threads, weights larger than a cache: time beside the least that the
 * machine allows, which is the larger of the bytes at its read bandwidth and the products at its
 * peak, both measured here. The best of many short rounds: other work on the machine only adds. */

#define IN 2048u
#define WEIGHT_BYTES ((size_t)96 << 20)
#define PIECE_ROWS 64u /* random rows, repeated: values do not matter, their making takes time */
#define CHUNK_ROWS 64u
#define COLUMNS_MAX 512u
#define SLICE_BYTES ((size_t)16 << 20) /* a round takes the next slice, which no cache holds then */
#define SLICE_OPS 1000000000u /* and is over before a scheduler looks again */
#define ROUNDS 60
#define ROUNDS_NS 150000000 /* after so much time no further round */
#define PEAK_TURNS 100000u /* well below a time slice */

struct bench {
    struct cpu_kernels k;
    struct thread_pool *pool;
    struct mem mem;
    uint32_t workers;
    double gb_s, int8_tops, float_tops;
    enum act act; /* ACT_AUTO: by level and type */
    void *scratch; /* [workers] */
};

/* ---- the machine's limits ---- */

struct read_job {
    const uint8_t *bytes;
    size_t at;
    uint64_t sums[THREAD_WORKERS_MAX * 8];
};

static void read_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    struct read_job *j = ctx;
    uint64_t sum = 0;
    const uint8_t *p = j->bytes + j->at + ((size_t)chunk << 20), *end = p + (1 << 20);
    for (; p < end; p += 64) {
        uint64_t v[8];
        __builtin_prefetch(p + 8192);
        memcpy(v, p, sizeof v);
        sum |= v[0] | v[1] | v[2] | v[3] | v[4] | v[5] | v[6] | v[7];
    }
    j->sums[worker * 8] |= sum; /* keeps the reads */
}

/* prepare: before each round, or NULL. */
static double best_seconds(struct bench *b, const struct thread_job *job,
                           void (*prepare)(void *ctx))
{
    double best = 1e9;
    int64_t spent = 0;
    for (int i = 0; i < ROUNDS && (i < 2 || spent < ROUNDS_NS); i++) {
        if (prepare)
            prepare(job->ctx);
        int64_t begin = chrono_ns(&chrono_real);
        thread_parallel_for(b->pool, job);
        int64_t ns = chrono_ns(&chrono_real) - begin;
        spent += ns;
        best = (double)ns * 1e-9 < best ? (double)ns * 1e-9 : best;
    }
    return best;
}

static void read_next(void *ctx)
{
    struct read_job *j = ctx;
    j->at = (j->at + SLICE_BYTES) % WEIGHT_BYTES;
}

static void measure_read(struct bench *b, const void *bytes)
{
    static struct read_job j;
    j.bytes = bytes;
    struct thread_job job = {read_chunk, &j, (uint32_t)(SLICE_BYTES >> 20)};
    b->gb_s = (double)SLICE_BYTES / best_seconds(b, &job, read_next) * 1e-9;
}

struct peak_job {
    uint64_t (*run)(uint32_t turns);
    uint64_t done; /* by one worker */
};

static void peak_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    struct peak_job *j = ctx;
    uint64_t done = j->run(PEAK_TURNS);
    (void)worker;
    if (chunk == 0)
        j->done = done;
}

static double measure_peak(struct bench *b, uint64_t (*run)(uint32_t turns))
{
    struct peak_job j = {.run = run};
    struct thread_job job = {peak_chunk, &j, b->workers};
    double seconds = best_seconds(b, &job, NULL);
    return (double)j.done * b->workers / seconds * 1e-12;
}

/* 0: not known, the scalar reference. */
static void measure_peaks(struct bench *b)
{
#if defined(__x86_64__)
    if (b->k.level >= CPU_LEVEL_VNNI) {
        b->int8_tops = measure_peak(b, kern_peak_int8_vnni);
        b->float_tops = measure_peak(b, kern_peak_float_vnni);
    } else if (b->k.level == CPU_LEVEL_AVX512) {
        b->int8_tops = measure_peak(b, kern_peak_int8_avx512);
        b->float_tops = measure_peak(b, kern_peak_float_avx512);
    } else if (b->k.level == CPU_LEVEL_AVX2) {
        b->int8_tops = measure_peak(b, kern_peak_int8_avx2);
        b->float_tops = measure_peak(b, kern_peak_float_avx2);
    }
#endif
}

/* ---- a matmul ---- */

struct problem {
    struct bench *b;
    const struct cpu_matmul *mm;
    struct matmul_args args; /* of the slice */
    const uint8_t *weight;
    size_t rows, next; /* of the weight; of the slice to come */
};

static void mul_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    const struct problem *p = ctx;
    struct matmul_args a = p->args;
    a.row_first = (size_t)chunk * CHUNK_ROWS;
    a.row_last = base_min(a.row_first + CHUNK_ROWS, a.rows);
    a.scratch = (uint8_t *)p->b->scratch + worker * CPU_MATMUL_SCRATCH;
    if (a.columns == 1)
        p->mm->gemv(&a);
    else
        p->mm->gemm(&a);
}

/* The weight of a problem, of WEIGHT_BYTES; the same random rows over and over. */
static void *make_weight(const struct cpu_matmul *mm, enum qtype type, void *dst, size_t *rows)
{
    size_t row = IN / quant_table[type].block_elems * quant_table[type].block_bytes;
    size_t piece = mm->packed_size(type, PIECE_ROWS, IN);
    *rows = WEIGHT_BYTES / piece * PIECE_ROWS;
    uint8_t *file = kern_new(PIECE_ROWS * row, 0);
    kern_seed(type);
    kern_fill_blocks(file, type, (size_t)PIECE_ROWS * IN);
    for (size_t first = 0; first < *rows; first += PIECE_ROWS) {
        struct pack_args a = {type, *rows, IN, first, PIECE_ROWS};
        mm->pack_weight(dst, file, &a);
    }
    return dst;
}

/* Columns of random numbers in the panels that a product reads. */
static void *make_panels(const struct cpu_form_ops *f, size_t columns)
{
    size_t size = f->row_size(IN), width = cpu_kernels_panel(f, columns);
    uint8_t *rows = kern_new(size * columns, 0), *dst = kern_new(size * columns, 0);
    float *x = kern_new(IN * 4, 0);
    for (size_t c = 0; c < columns; c++) {
        kern_fill(x, IN, KERN_FILL_GAUSS);
        f->pack_row(columns == 1 ? dst : rows + c * size, x, IN);
    }
    for (size_t c = 0; columns > 1 && c < columns; c += width) {
        const void *row[COLUMNS_MAX];
        size_t count = base_min(width, columns - c);
        for (size_t i = 0; i < count; i++)
            row[i] = rows + (c + i) * size;
        f->join(dst + c * size, row, count, IN);
    }
    return dst;
}

static void print_result(const struct problem *p, double seconds)
{
    const struct bench *b = p->b;
    const struct matmul_args *a = &p->args;
    double bytes = (double)p->mm->packed_size(a->type, a->rows, a->in);
    double ops = 2.0 * (double)a->rows * (double)a->in * (double)a->columns;
    double peak = p->mm->form == CPU_FORM_F32 ? b->float_tops : b->int8_tops;
    double least = bytes / b->gb_s * 1e-9, compute = peak > 0 ? ops / peak * 1e-12 : 0;
    bool is_bytes = least > compute;
    least = is_bytes ? least : compute;
    printf("%-9s %7zu %8.1f %9.3f %6.0f %% of %s\n", quant_name(a->type), a->columns,
           bytes / seconds * 1e-9, ops / seconds * 1e-12, 100 * least / seconds,
           is_bytes ? "bandwidth" : "products");
    fflush(stdout);
}

static size_t weight_size(const struct problem *p, size_t rows)
{
    return p->mm->packed_size(p->args.type, rows, IN);
}

static void take_slice(void *ctx)
{
    struct problem *p = ctx;
    if (p->next + p->args.rows > p->rows)
        p->next = 0;
    p->args.weight = p->weight + weight_size(p, p->next);
    p->next += p->args.rows;
}

static void bench_type(struct bench *b, enum qtype type, void *weight, float *out)
{
    static const size_t columns[] = {1, 2, 4, 8, 32, COLUMNS_MAX};
    enum act act = b->act == ACT_AUTO ? cpu_kernels_act(b->k.level, type) : b->act;
    struct problem p = {.b = b, .mm = &b->k.mm[act][type]};
    float *column[COLUMNS_MAX];
    make_weight(p.mm, type, weight, &p.rows);
    p.weight = weight;
    for (size_t i = 0; i < countof(columns); i++) {
        p.args = (struct matmul_args){.type = type, .out = column, .in = IN,
                                      .columns = columns[i], .scale = 1.0f,
                                      .act = make_panels(&b->k.form[p.mm->form], columns[i])};
        size_t most = SLICE_OPS / (2 * IN * columns[i]);
        most = base_min(most, SLICE_BYTES / (weight_size(&p, PIECE_ROWS) / PIECE_ROWS));
        p.args.rows = most / PIECE_ROWS * PIECE_ROWS;
        for (size_t c = 0; c < columns[i]; c++)
            column[c] = out + c * p.args.rows;
        uint32_t chunks = (uint32_t)((p.args.rows + CHUNK_ROWS - 1) / CHUNK_ROWS);
        struct thread_job job = {mul_chunk, &p, chunks};
        print_result(&p, best_seconds(b, &job, take_slice));
        must(kern_free_all());
    }
}

static bool bench_open(struct bench *b, enum cpu_level level, bool has_bf16, struct err *e)
{
    struct machine m;
    machine_read(&m);
    b->workers = (uint32_t)base_min(base_max(m.cpus, 1), THREAD_WORKERS_MAX);
    struct thread_pool_options o = {.workers = b->workers};
    if (b->workers <= m.cpus_allowed) {
        o.cpus = m.cpu_ids;
        o.cpus_count = m.cpus_allowed;
        o.pin_caller = true;
    }
    cpu_kernels_init(&b->k, level, has_bf16);
    mem_init(&b->mem, SIZE_MAX);
    b->scratch = mem_new_array(&b->mem, "scratch", b->workers, CPU_MATMUL_SCRATCH, e);
    printf("%s, %s, %u threads; matrices of %u inputs, %zu MB\n", m.model,
           machine_level_name(level), b->workers, IN, WEIGHT_BYTES >> 20);
    return b->scratch && thread_pool_open(&b->pool, &o, e);
}

static bool bench_run(struct bench *b, const char *type, struct err *e)
{
    /* One bit per weight is the least. */
    size_t out_size = (SLICE_OPS / (2 * IN) + SLICE_BYTES / (IN / 8)) * 4;
    void *weight = mem_new(&b->mem, "weight", WEIGHT_BYTES, e);
    float *out = mem_new(&b->mem, "out", out_size, e);
    bool found = false;
    if (!weight || !out)
        return false;
    memset(weight, 1, WEIGHT_BYTES);
    memset(out, 0, out_size);
    measure_read(b, weight);
    measure_peaks(b);
    printf("read %.1f GB/s; peak int8 %.3f, float %.3f TOP/s\n\n", b->gb_s, b->int8_tops,
           b->float_tops);
    if (type && strcmp(type, "none") == 0)
        return true;
    printf("%-9s %7s %8s %9s %s\n", "TYPE", "COLUMNS", "GB/S", "TOP/S", "SHARE");
    for (unsigned t = 0; t < QTYPE_WEIGHT_COUNT; t++) {
        if (!quant_is_weight((enum qtype)t) ||
            (type && strcmp(type, quant_name((enum qtype)t)) != 0))
            continue;
        found = true;
        bench_type(b, (enum qtype)t, weight, out);
    }
    return found || err_set(e, ERR_CONFIG, "no weight type '%s'", type);
}

static bool find_act(const char *name, enum act *act)
{
    static const char *const names[ACT_COUNT] = {
        [ACT_F32] = "float", [ACT_INT8] = "int8", [ACT_INT16] = "int16"};
    *act = ACT_F32;
    while (*act < ACT_COUNT && name && strcmp(name, names[*act]) != 0)
        *act = *act + 1;
    if (!name)
        *act = ACT_AUTO;
    return !name || *act < ACT_COUNT;
}

int kern_bench(const char *level, const char *type, const char *act)
{
    static struct bench b;
    struct err e = {0};
    bool has_bf16;
    enum cpu_level best = machine_level(&has_bf16), chosen = best;
    if (level && (!machine_level_parse(str_of(level), &chosen) || chosen > best)) {
        fprintf(stderr, "kern_test: level '%s' is not on this machine\n", level);
        return 2;
    }
    if (!find_act(act, &b.act)) {
        fprintf(stderr, "kern_test: activations '%s'; float, int8 or int16\n", act);
        return 2;
    }
    bool ok = bench_open(&b, chosen, has_bf16, &e) && bench_run(&b, type, &e);
    if (!ok)
        fprintf(stderr, "kern_test: %s\n", e.text);
    thread_pool_close(b.pool);
    mem_deinit(&b.mem);
    return ok ? 0 : 1;
}
