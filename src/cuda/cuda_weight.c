#include "cuda/cuda_device.h"

#include <stdlib.h>
#include <string.h>

#include "quant/quant.h"

/* Formats with kernels of their own; every other type is expanded to f32 when it is loaded. */
static uint32_t cuda_weight_format(enum qtype t)
{
    static const struct {
        enum qtype type;
        uint32_t format;
    } rows[] = {
        {QTYPE_F16, CUDA_FORMAT_F16},   {QTYPE_BF16, CUDA_FORMAT_BF16},
        {QTYPE_Q4_0, CUDA_FORMAT_Q4_0}, {QTYPE_Q4_1, CUDA_FORMAT_Q4_1},
        {QTYPE_Q5_0, CUDA_FORMAT_Q5_0}, {QTYPE_Q5_1, CUDA_FORMAT_Q5_1},
        {QTYPE_Q8_0, CUDA_FORMAT_Q8_0}, {QTYPE_MXFP4, CUDA_FORMAT_MXFP4},
        {QTYPE_Q4_K, CUDA_FORMAT_Q4_K}, {QTYPE_Q5_K, CUDA_FORMAT_Q5_K},
        {QTYPE_Q6_K, CUDA_FORMAT_Q6_K},
    };
    for (size_t i = 0; i < countof(rows); i++)
        if (rows[i].type == t)
            return rows[i].format;
    return CUDA_FORMAT_F32;
}

static bool cuda_weight_new(struct device *d, struct weight *w, struct err *e)
{
    struct cuda_weight *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_MEMORY, "cuda: no memory for a weight");
    if (w->kind == WEIGHT_KIND_VECTOR) {
        c->is_vector = true;
        c->mat_size = (size_t)w->rows * w->cols * 4;
    } else {
        c->format = cuda_weight_format(w->type);
        c->kp = (uint32_t)base_align(w->cols, CUDA_RECORD_K);
        size_t tiles = base_align(w->rows, CUDA_TILE_ROWS) / CUDA_TILE_ROWS;
        c->mat_size = tiles * (c->kp / CUDA_RECORD_K) * cuda_kernels_record_size(c->format);
    }
    c->size = c->mat_size * w->mats;
    if (!cuda_backend_alloc(d, "weights", c->size, &c->p, e)) {
        free(c);
        return false;
    }
    w->device = c;
    return true;
}

/* The next stage, once its last copy and kernel are done. */
static bool cuda_weight_stage(struct device *d, struct cuda_stage **out, struct err *e)
{
    *out = &d->stages[d->stage_next++ % CUDA_STAGES];
    return cuda_backend_check(d, d->driver->event_wait((*out)->done), "load weights", e);
}

static bool cuda_weight_send(struct device *d, struct cuda_stage *s, size_t size, struct err *e)
{
    return cuda_backend_check(d, d->driver->copy_in(s->device, s->host, size, d->stream),
                              "load weights", e);
}

static bool cuda_weight_vector(struct device *d, const struct cuda_weight *c, size_t offset,
                               const uint8_t *src, size_t size, struct err *e)
{
    for (size_t at = 0; at < size;) {
        size_t n = base_min(size - at, d->stage_size);
        struct cuda_stage *s;
        if (!cuda_weight_stage(d, &s, e))
            return false;
        memcpy(s->host, src + at, n);
        if (!cuda_weight_send(d, s, n, e) ||
            !cuda_backend_check(d, d->driver->copy_on(c->p + offset + at, s->device, n, d->stream),
                                "load weights", e) ||
            !cuda_backend_check(d, d->driver->event_record(s->done, d->stream), "load weights", e))
            return false;
        at += n;
    }
    return true;
}

/* Rows of one matrix, few enough for a stage. */
static bool cuda_weight_rows(struct device *d, const struct weight *w, size_t row, size_t rows,
                             const uint8_t *src, struct err *e)
{
    const struct cuda_weight *c = w->device;
    struct cuda_stage *s;
    if (!cuda_weight_stage(d, &s, e))
        return false;
    size_t row_size, file_size;
    must(quant_row_size(w->type, w->cols, &file_size));
    row_size = c->format == CUDA_FORMAT_F32 ? (size_t)w->cols * 4 : file_size;
    if (c->format == CUDA_FORMAT_F32)
        for (size_t i = 0; i < rows; i++)
            quant_table[w->type].dequant((float *)s->host + i * w->cols, src + i * file_size,
                                         w->cols);
    else
        memcpy(s->host, src, rows * row_size);
    struct cuda_pack_args a = {
        .dst = c->p + c->mat_size * (row / w->rows),
        .src = s->device,
        .src_row_size = row_size,
        .format = c->format,
        .rows = w->rows,
        .cols = w->cols,
        .row_first = (uint32_t)(row % w->rows),
        .row_count = (uint32_t)rows,
    };
    struct cuda_grid g = {.x = c->kp / CUDA_RECORD_K,
                          .y = (uint32_t)(base_align(rows, CUDA_TILE_ROWS) / CUDA_TILE_ROWS),
                          .threads = 32};
    return cuda_weight_send(d, s, rows * row_size, e) &&
           cuda_kernels_launch(&d->k, d->k.pack_weight, g, &a, d->stream, e) &&
           cuda_backend_check(d, d->driver->event_record(s->done, d->stream), "load weights", e);
}

bool cuda_weight_load(struct device *d, struct weight *w, size_t row_first, size_t rows,
                      const void *src, struct err *e)
{
    if (d->is_lost)
        return err_set(e, ERR_DEVICE, "cuda: the device is lost");
    if (!cuda_backend_check(d, d->driver->ctx_set(d->context), "context", e) ||
        (!w->device && !cuda_weight_new(d, w, e)))
        return false;
    const struct cuda_weight *c = w->device;
    const uint8_t *p = src;
    if (c->is_vector)
        return cuda_weight_vector(d, c, row_first * w->cols * 4, p, rows * w->cols * 4, e);
    size_t file_size, largest = (size_t)w->cols * 4;
    must(quant_row_size(w->type, w->cols, &file_size));
    if (c->format != CUDA_FORMAT_F32)
        largest = file_size;
    size_t at_once = d->stage_size / largest / CUDA_TILE_ROWS * CUDA_TILE_ROWS;
    if (at_once == 0)
        return err_set(e, ERR_UNSUPPORTED, "cuda: a row of %zu bytes is too long", largest);
    for (size_t done = 0; done < rows;) {
        size_t n = base_min(rows - done, at_once);
        if (!cuda_weight_rows(d, w, row_first + done, n, p + done * file_size, e))
            return false;
        done += n;
    }
    return true;
}

void cuda_weight_free(struct device *d, struct weight *w)
{
    struct cuda_weight *c = w->device;
    if (!c)
        return;
    d->driver->stream_wait(d->stream);
    cuda_backend_free(d, c->p, c->size);
    free(c);
    w->device = NULL;
}
