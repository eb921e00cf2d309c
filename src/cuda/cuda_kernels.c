#include "cuda/cuda_kernels.h"

#include <stdio.h>
#include <string.h>

const uint32_t cuda_kernels_columns[CUDA_COLUMN_STEPS] = {1, 8, 16, 32};

static bool cuda_kernels_find(struct cuda_kernels *k, cuda_function *f, enum cuda_unit unit,
                              const char *name, struct err *e)
{
    return cuda_driver_check(k->driver, k->driver->module_function(f, k->modules[unit], name), name,
                             e);
}

uint32_t cuda_kernels_record_size(uint32_t format)
{
    static const uint16_t sizes[CUDA_FORMAT_COUNT] = {
        [CUDA_FORMAT_F32] = 16384, [CUDA_FORMAT_F16] = 8192,  [CUDA_FORMAT_BF16] = 8192,
        [CUDA_FORMAT_Q4_0] = 2304, [CUDA_FORMAT_Q4_1] = 2560, [CUDA_FORMAT_Q5_0] = 2816,
        [CUDA_FORMAT_Q5_1] = 3072, [CUDA_FORMAT_Q8_0] = 4352, [CUDA_FORMAT_MXFP4] = 2304,
        [CUDA_FORMAT_Q4_K] = 2368, [CUDA_FORMAT_Q5_K] = 2880, [CUDA_FORMAT_Q6_K] = 3360,
    };
    return sizes[format];
}

uint32_t cuda_kernels_gemm_columns(uint32_t columns)
{
    return columns <= CUDA_GEMM_FEW_MAX ? CUDA_GEMM_FEW : CUDA_GEMM_COLUMNS;
}

uint32_t cuda_kernels_gemm_size(uint32_t format, uint32_t columns)
{
    uint32_t record = cuda_kernels_record_size(format);
    return cuda_kernels_gemm_columns(columns) == CUDA_GEMM_FEW ? CUDA_GEMM_FEW_SIZE(record)
                                                               : CUDA_GEMM_SIZE(record);
}

/* gemm_q4_k, gemm_q4_k_few. */
static bool cuda_kernels_find_gemm(struct cuda_kernels *k, uint32_t format, const char *name,
                                   struct err *e)
{
    for (uint32_t few = 0; few < 2; few++) {
        char full[64];
        snprintf(full, sizeof full, "gemm%s%s", name + strlen("matmul"), few ? "_few" : "");
        cuda_function *f = &k->gemm[format][few];
        int size = (int)cuda_kernels_gemm_size(format, few ? 1 : CUDA_GEMM_COLUMNS);
        if (!cuda_kernels_find(k, f, CUDA_UNIT_gemm, full, e) ||
            (k->has_gemm &&
             !cuda_driver_check(k->driver, k->driver->function_set(*f, CUDA_FUNC_SMEM, size), full,
                                e)))
            return false;
    }
    return true;
}

static bool cuda_kernels_find_matmuls(struct cuda_kernels *k, struct err *e)
{
    static const struct {
        enum cuda_unit unit;
        const char *name;
    } rows[CUDA_FORMAT_COUNT] = {
#define X(format, unit, name) [CUDA_FORMAT_##format] = {CUDA_UNIT_##unit, #name},
        CUDA_MATMULS(X)
#undef X
    };
    for (uint32_t f = 0; f < CUDA_FORMAT_COUNT; f++) {
        if (f > CUDA_FORMAT_BF16 && !cuda_kernels_find_gemm(k, f, rows[f].name, e))
            return false;
        for (int step = 0; step < CUDA_COLUMN_STEPS; step++) {
            char name[64];
            bool is_one = step == 0 && f > CUDA_FORMAT_BF16;
            if (is_one) /* matmul_q4_k -> one_q4_k */
                snprintf(name, sizeof name, "one%s", rows[f].name + strlen("matmul"));
            else
                snprintf(name, sizeof name, "%s_%u", rows[f].name, cuda_kernels_columns[step]);
            cuda_function *fn = &k->matmul[f][step];
            int size = is_one                  ? CUDA_ONE_RING_SIZE
                       : f == CUDA_FORMAT_BF16 ? CUDA_CHAIN_SIZE
                                               : CUDA_RING_SIZE;
            if (!cuda_kernels_find(k, fn, is_one ? CUDA_UNIT_one : rows[f].unit, name, e) ||
                !cuda_driver_check(k->driver, k->driver->function_set(*fn, CUDA_FUNC_SMEM, size),
                                   name, e))
                return false;
        }
    }
    return true;
}

/* Query in two parts [16][d], K and V of a block; of int8 one of them at a time, and a little more
 * for the sums of each warp. */
uint32_t cuda_kernels_attend_part_size(uint32_t d, bool is_int8)
{
    return is_int8 ? (2 * 16 + CUDA_ATTEND_BLOCK) * d * 2 + 4 * 256
                   : (2 * 16 + 2 * CUDA_ATTEND_BLOCK) * d * 2;
}

/* Query in two parts, two stages of 64 positions of K and V, sums, their maxima and weights. */
uint32_t cuda_kernels_attend_rows_size(uint32_t d)
{
    return 2 * CUDA_ATTEND_ROWS * d * 2 + 2 * 2 * 64 * d * 2 + CUDA_ATTEND_ROWS * (d * 4 + 8);
}

static bool cuda_kernels_load(struct cuda_kernels *k, struct err *e)
{
    const struct cuda_driver *d = k->driver;
    if (!cuda_fatbin_units[0].unit)
        return err_set(e, ERR_DEVICE, "cuda: this binary was built without nvcc: no GPU code");
    for (int u = 0; u < CUDA_UNIT_COUNT; u++)
        if (!cuda_driver_check(d, d->module_load(&k->modules[u], cuda_fatbin_units[u].image),
                               cuda_fatbin_units[u].unit, e))
            return false;
    return true;
}

bool cuda_kernels_open(struct cuda_kernels *k, const struct cuda_driver *d, bool has_gemm,
                       struct err *e)
{
    *k = (struct cuda_kernels){.driver = d, .has_gemm = has_gemm};
    if (!cuda_kernels_load(k, e) || !cuda_kernels_find_matmuls(k, e))
        return false;
#define X(unit, name)                                                                              \
    if (!cuda_kernels_find(k, &k->name, CUDA_UNIT_##unit, #name, e))                               \
        return false;
    CUDA_KERNELS(X)
#undef X
    const int part_64 = (int)cuda_kernels_attend_part_size(64, false);
    const int part_128 = (int)cuda_kernels_attend_part_size(128, false);
    const int codes_64 = (int)cuda_kernels_attend_part_size(64, true);
    const int codes_128 = (int)cuda_kernels_attend_part_size(128, true);
    const int rows_64 = (int)cuda_kernels_attend_rows_size(64);
    const int rows_128 = (int)cuda_kernels_attend_rows_size(128);
    const struct {
        cuda_function f;
        int size;
    } large[] = {
        {k->attn_part_8, 160 << 10},        {k->attn_part_16, 160 << 10},
        {k->attn_part_int8_8, 160 << 10},   {k->attn_part_int8_16, 160 << 10},
        {k->attend_part_64, part_64},       {k->attend_part_128, part_128},
        {k->attend_rows_64, rows_64},       {k->attend_rows_128, rows_128},
        {k->attend_part_int8_64, codes_64}, {k->attend_part_int8_128, codes_128},
        {k->attend_rows_int8_64, rows_64},  {k->attend_rows_int8_128, rows_128},
    };
    for (size_t i = 0; i < countof(large); i++)
        if (!cuda_driver_check(d, d->function_set(large[i].f, CUDA_FUNC_SMEM, large[i].size),
                               "attention", e))
            return false;
#define X(unit, name) k->name,
    cuda_function wides[] = {CUDA_WIDES(X)};
#undef X
    for (size_t i = 0; has_gemm && i < countof(wides); i++)
        if (!cuda_driver_check(d, d->function_set(wides[i], CUDA_FUNC_SMEM, CUDA_WIDE_SIZE), "wide",
                               e))
            return false;
    return true;
}

void cuda_kernels_close(struct cuda_kernels *k)
{
    for (int u = 0; u < CUDA_UNIT_COUNT; u++)
        if (k->modules[u])
            k->driver->module_free(k->modules[u]);
    *k = (struct cuda_kernels){0};
}

bool cuda_kernels_launch(const struct cuda_kernels *k, cuda_function f, struct cuda_grid g,
                         const void *args, cuda_stream stream, struct err *e)
{
    struct cuda_launch_attr attr = {.id = CUDA_LAUNCH_SERIALIZE, .v.value = 1};
    struct cuda_launch launch = {
        .grid = {g.x, g.y ? g.y : 1, g.z ? g.z : 1},
        .block = {g.threads, 1, 1},
        .smem = g.shared,
        .stream = stream,
        .attrs = &attr,
        .attr_count = 1,
    };
    void *params[] = {(void *)(uintptr_t)args};
    return cuda_driver_check(k->driver, k->driver->launch(&launch, f, params, NULL), "launch", e);
}
