/* A GPU that fails when it is told to: `lossy serve -backend cuda` is `shoal serve` with this in
 * the place of cuda/cuda_backend. It computes on the CPU; child, supervisor, health and replies are
 * the real ones, so what a client sees is what an error of the driver would have become.
 *
 * The file named by LOSSY_FAULT, looked for at each step, says what fails:
 *
 *     once illegal 100     the hundredth step from then: an illegal access; the file is removed
 *     once memory 100      the same, out of memory
 *     always illegal 1     each step until the file is gone, also of the next child's warm-up
 *
 * LOSSY_MEMORY is what it says of its own memory, in bytes: 0, or not said, it has none, and its
 * pool lies in RAM. With some it has a host tier, as a GPU has.
 *
 * As with the driver an error is sticky: every later call fails too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/backend.h"

extern const struct backend cpu_backend, cuda_backend;

/* The one device of this process: struct device is the CPU's. */
static bool is_lost;
static unsigned steps; /* since the file was seen */

/* The sentences of cuda_driver_check. */
static bool fail_illegal(struct err *e)
{
    return err_set(e, ERR_DEVICE, "cuda: step: CUDA_ERROR_ILLEGAL_ADDRESS, an illegal memory "
                                  "access was encountered");
}

static bool fail_memory(struct err *e)
{
    return err_set(e, ERR_MEMORY, "cuda: step: CUDA_ERROR_OUT_OF_MEMORY, out of memory");
}

static bool works(struct err *e)
{
    const char *path = getenv("LOSSY_FAULT");
    char when[16] = "", what[16] = "";
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (is_lost)
        return err_set(e, ERR_DEVICE, "cuda: the device is lost");
    if (!f)
        return true;
    unsigned wait = 0;
    bool is_told = fscanf(f, "%15s %15s %u", when, what, &wait) == 3;
    fclose(f);
    if (!is_told || ++steps < wait)
        return true;
    if (!strcmp(when, "once"))
        unlink(path);
    is_lost = true;
    return strcmp(what, "memory") ? fail_illegal(e) : fail_memory(e);
}

static bool lossy_open(struct device **d, const struct device_options *o, struct err *e)
{
    return cpu_backend.open(d, o, e);
}
static void lossy_close(struct device *d) { cpu_backend.close(d); }
static void lossy_info(struct device *d, struct device_info *out)
{
    const char *memory = getenv("LOSSY_MEMORY");
    cpu_backend.info(d, out);
    if (!memory)
        return;
    out->memory_total = strtoull(memory, NULL, 10);
    out->memory_free = out->memory_total > out->memory_used ? out->memory_total - out->memory_used
                                                            : 1;
}

static bool lossy_weight_load(struct device *d, struct weight *w, size_t row_first, size_t rows,
                              const void *src, struct err *e)
{
    return cpu_backend.weight_load(d, w, row_first, rows, src, e);
}
static void lossy_weight_free(struct device *d, struct weight *w) { cpu_backend.weight_free(d, w); }

static bool lossy_kv_init(struct device *d, const struct kv_layout *l, const uint32_t *pages,
                          uint32_t states, struct err *e)
{
    return cpu_backend.kv_init(d, l, pages, states, e);
}
static bool lossy_kv_get(struct device *d, struct kv_ref r, void *dst, struct err *e)
{
    return cpu_backend.kv_get(d, r, dst, e);
}
static bool lossy_kv_set(struct device *d, struct kv_ref r, const void *src, struct err *e)
{
    return cpu_backend.kv_set(d, r, src, e);
}

static bool lossy_prepare(struct device *d, const struct plan *p, struct weight *weights,
                          const struct step_limits *m, struct prepared **out, struct err *e)
{
    return cpu_backend.prepare(d, p, weights, m, out, e);
}
static bool lossy_submit(struct device *d, struct prepared *p, const struct step *s, struct err *e)
{
    return works(e) && cpu_backend.submit(d, p, s, e);
}
static bool lossy_wait(struct device *d, struct prepared *p, struct step_out *out, struct err *e)
{
    return cpu_backend.wait(d, p, out, e);
}
static uint64_t lossy_progress(const struct device *d) { return cpu_backend.progress(d); }
static bool lossy_logits_row(struct device *d, struct prepared *p, uint32_t out_row, float *dst,
                             struct err *e)
{
    return cpu_backend.logits_row(d, p, out_row, dst, e);
}

static struct op_set lossy_ops; /* the CPU's, known before the first plan */
static bool lossy_probe(struct err *e)
{
    (void)e;
    lossy_ops = *cpu_backend.ops;
    return true;
}

const struct backend cuda_backend = {
    .name = "cuda",
    .ops = &lossy_ops,
    .probe = lossy_probe,
    .open = lossy_open,
    .close = lossy_close,
    .info = lossy_info,
    .weight_load = lossy_weight_load,
    .weight_free = lossy_weight_free,
    .kv_init = lossy_kv_init,
    .kv_get = lossy_kv_get,
    .kv_set = lossy_kv_set,
    .prepare = lossy_prepare,
    .submit = lossy_submit,
    .wait = lossy_wait,
    .progress = lossy_progress,
    .logits_row = lossy_logits_row,
};
