#include "cuda/cuda_kernels.h"

#include <stdio.h>

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
        [CUDA_FORMAT_Q5_1] = 3072, [CUDA_FORMAT_Q8_0] = 4352, [CUDA_FORMAT_Q4_K] = 2368,
        [CUDA_FORMAT_Q5_K] = 2880, [CUDA_FORMAT_Q6_K] = 3360,
    };
    return sizes[format];
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
    for (uint32_t f = 0; f < CUDA_FORMAT_COUNT; f++)
        for (int step = 0; step < CUDA_COLUMN_STEPS; step++) {
            char name[64];
            snprintf(name, sizeof name, "%s_%u", rows[f].name, cuda_kernels_columns[step]);
            cuda_function *fn = &k->matmul[f][step];
            if (!cuda_kernels_find(k, fn, rows[f].unit, name, e) ||
                !cuda_driver_check(k->driver,
                                   k->driver->function_set(*fn, CUDA_FUNC_SMEM, CUDA_RING_SIZE),
                                   name, e))
                return false;
        }
    return true;
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

bool cuda_kernels_open(struct cuda_kernels *k, const struct cuda_driver *d, struct err *e)
{
    *k = (struct cuda_kernels){.driver = d};
    if (!cuda_kernels_load(k, e) || !cuda_kernels_find_matmuls(k, e))
        return false;
#define X(unit, name)                                                                              \
    if (!cuda_kernels_find(k, &k->name, CUDA_UNIT_##unit, #name, e))                               \
        return false;
    CUDA_KERNELS(X)
#undef X
    cuda_function large[] = {k->attn_part_8, k->attn_part_16};
    for (size_t i = 0; i < countof(large); i++) /* heads of a group share 227 KB at most */
        if (!cuda_driver_check(d, d->function_set(large[i], CUDA_FUNC_SMEM, 160 << 10), "attention",
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
