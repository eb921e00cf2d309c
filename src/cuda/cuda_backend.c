#include "cuda/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Version of the rules by which a result's bits come about (docs/ARCHITECTURE.md, 5). */
#define CUDA_NUMERICS_RULES 3
#define CUDA_STAGE_SIZE ((size_t)TENSOR_PIECE_MAX * 2)

bool cuda_backend_check(struct device *d, cuda_result r, const char *what, struct err *e)
{
    if (cuda_driver_check(d->driver, r, what, e))
        return true;
    d->is_lost = d->is_lost || e->code == ERR_DEVICE;
    return false;
}

bool cuda_backend_alloc(struct device *d, const char *what, size_t size, cuda_ptr *out,
                        struct err *e)
{
    size = base_align(base_max(size, 256), 256);
    size_t free_bytes = 0, total = 0;
    if (d->memory_max && size > d->memory_max - d->memory_used)
        return err_set(e, ERR_MEMORY, "cuda: %s needs %zu MiB, but %zu of %zu MiB are taken", what,
                       size >> 20, (size_t)d->memory_used >> 20, (size_t)d->memory_max >> 20);
    if (d->driver->mem_alloc(out, size) != 0) {
        *out = 0;
        d->driver->mem_info(&free_bytes, &total);
        return err_set(e, ERR_MEMORY, "cuda: %s needs %zu MiB, but the GPU has %zu of %zu MiB free",
                       what, size >> 20, free_bytes >> 20, total >> 20);
    }
    d->memory_used += size;
    return true;
}

void cuda_backend_free(struct device *d, cuda_ptr p, size_t size)
{
    if (!p)
        return;
    d->driver->mem_free(p);
    d->memory_used -= base_align(base_max(size, 256), 256);
}

/* ---- a device that counts ---- */

/* Its memory is one address that nobody goes to: the calls that would take or move memory do
 * nothing, all others are the driver's. */
#define CUDA_COUNTING_ADDRESS ((cuda_ptr)256)

static cuda_result cuda_backend_count_alloc(cuda_ptr *p, size_t size)
{
    (void)size;
    *p = CUDA_COUNTING_ADDRESS;
    return 0;
}

static cuda_result cuda_backend_count_free(cuda_ptr p)
{
    (void)p;
    return 0;
}

static cuda_result cuda_backend_count_in(cuda_ptr to, const void *from, size_t size,
                                         cuda_stream stream)
{
    (void)to, (void)from, (void)size, (void)stream;
    return 0;
}

static cuda_result cuda_backend_count_out(void *to, cuda_ptr from, size_t size, cuda_stream stream)
{
    (void)from, (void)stream;
    memset(to, 0, size);
    return 0;
}

static cuda_result cuda_backend_count_set(cuda_ptr p, unsigned char byte, size_t size,
                                          cuda_stream stream)
{
    (void)p, (void)byte, (void)size, (void)stream;
    return 0;
}

static void cuda_backend_count(struct device *d)
{
    d->counting = *d->driver;
    d->counting.mem_alloc = cuda_backend_count_alloc;
    d->counting.mem_free = cuda_backend_count_free;
    d->counting.copy_in = cuda_backend_count_in;
    d->counting.copy_out = cuda_backend_count_out;
    d->counting.set_bytes = cuda_backend_count_set;
    d->driver = &d->counting;
}

/* ---- open, close ---- */

static bool cuda_backend_pick(struct device *d, uint32_t ordinal, struct err *e)
{
    int count = 0;
    if (!cuda_backend_check(d, d->driver->device_count(&count), "count devices", e))
        return false;
    if ((int)ordinal >= count)
        return err_set(e, ERR_CONFIG, "cuda: no device %u, there are %d", ordinal, count);
    return cuda_backend_check(d, d->driver->device_get(&d->id, (int)ordinal), "device", e) &&
           cuda_backend_check(d, d->driver->device_name(d->name, sizeof d->name, d->id), "name",
                              e) &&
           cuda_backend_check(d, d->driver->device_attr(&d->major, CUDA_ATTR_MAJOR, d->id),
                              "capability", e) &&
           cuda_backend_check(d, d->driver->device_attr(&d->minor, CUDA_ATTR_MINOR, d->id),
                              "capability", e) &&
           cuda_backend_check(d, d->driver->device_attr(&d->sm_count, CUDA_ATTR_SM_COUNT, d->id),
                              "multiprocessors", e);
}

static bool cuda_backend_start(struct device *d, struct err *e)
{
    const struct cuda_driver *v = d->driver;
    if (!cuda_backend_check(d, v->ctx_retain(&d->context, d->id), "context", e) ||
        !cuda_backend_check(d, v->ctx_set(d->context), "context", e) ||
        !cuda_backend_check(d, v->stream_new(&d->stream, 1), "stream", e) ||
        !cuda_kernels_open(&d->k, v, d->major == 9, e))
        return false;
    d->stage_size = CUDA_STAGE_SIZE;
    for (int i = 0; i < CUDA_STAGES; i++) {
        struct cuda_stage *s = &d->stages[i];
        if (!cuda_backend_check(d, v->host_alloc(&s->host, d->stage_size, 0), "staging", e) ||
            !cuda_backend_alloc(d, "staging", d->stage_size, &s->device, e) ||
            !cuda_backend_check(d, v->event_new(&s->done, 2), "event", e) ||
            !cuda_backend_check(d, v->event_record(s->done, d->stream), "event", e))
            return false;
    }
    return true;
}

static void cuda_backend_close(struct device *d)
{
    const struct cuda_driver *v = d->driver;
    if (d->context)
        v->ctx_set(d->context);
    if (d->stream)
        v->stream_wait(d->stream);
    while (d->prepared)
        cuda_step_free(d, d->prepared);
    for (int i = 0; i < CUDA_STAGES; i++) {
        if (d->stages[i].host)
            v->host_free(d->stages[i].host);
        cuda_backend_free(d, d->stages[i].device, d->stage_size);
        if (d->stages[i].done)
            v->event_free(d->stages[i].done);
    }
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        cuda_backend_free(d, d->pages[g], d->layout.page_size[g] * d->pages_count[g]);
    cuda_kernels_close(&d->k);
    if (d->stream)
        v->stream_free(d->stream);
    if (d->context)
        v->ctx_release(d->id);
    free(d);
}

static bool cuda_backend_open(struct device **out, const struct device_options *o, struct err *e)
{
    const struct cuda_driver *driver = cuda_driver_open(e);
    if (!driver)
        return false;
    if (o->act == ACT_INT16 || o->act == ACT_F32)
        return err_set(e, ERR_UNSUPPORTED, "cuda: activations %s are not built; int8",
                       o->act == ACT_F32 ? "float" : "int16");
    struct device *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "cuda: no memory for a device");
    d->driver = driver;
    d->memory_max = o->memory_max;
    if (o->is_counting)
        cuda_backend_count(d);
    if (!cuda_backend_pick(d, o->ordinal, e) || !cuda_backend_start(d, e)) {
        cuda_backend_close(d);
        return false;
    }
    *out = d;
    return true;
}

/* Also false where the binary holds no code for any GPU. */
static bool cuda_backend_probe(struct err *e)
{
    if (!cuda_fatbin_units[0].unit)
        return err_set(e, ERR_DEVICE, "cuda: this binary was built without nvcc: no GPU code");
    return cuda_driver_open(e) != NULL;
}

static void cuda_backend_info(struct device *d, struct device_info *out)
{
    memset(out, 0, sizeof *out);
    size_t free_bytes = 0, total = 0;
    d->driver->mem_info(&free_bytes, &total);
    snprintf(out->name, sizeof out->name, "%s", d->name);
    snprintf(out->level, sizeof out->level, "sm_%d%d", d->major, d->minor);
    snprintf(out->numerics, sizeof out->numerics, "cuda sm_%d%d act=int8 kv=%s rules=%d", d->major,
             d->minor, kv_type_name(d->layout.type), CUDA_NUMERICS_RULES);
    out->memory_total = total;
    out->memory_used = d->memory_used;
    out->memory_free = free_bytes;
    if (d->driver == &d->counting) /* as if all were there */
        out->memory_free = free_bytes > d->memory_used ? free_bytes - d->memory_used : 1;
}

/* ---- pages ---- */

static bool cuda_backend_can_keep(const struct kv_layout *l, struct err *e)
{
    if (l->type != KV_TYPE_F16 && l->type != KV_TYPE_INT8)
        return err_set(e, ERR_UNSUPPORTED, "cuda: K and V as %s are not built: f16, int8",
                       kv_type_name(l->type));
    for (uint32_t i = 0; i < l->layers_count && l->type == KV_TYPE_INT8; i++) {
        const struct kv_layer *k = &l->layers[i];
        if (k->dk % 16 || k->dv % 16 || base_max(k->dk, k->dv) > CUDA_KV_COLUMNS_MAX)
            return err_set(e, ERR_UNSUPPORTED,
                           "cuda: K and V as int8: layer %u has heads of %u and %u columns, but "
                           "multiples of 16 up to %u are built", k->layer, k->dk, k->dv,
                           CUDA_KV_COLUMNS_MAX);
    }
    return true;
}

static bool cuda_backend_kv_init(struct device *d, const struct kv_layout *l, const uint32_t *pages,
                                 uint32_t states, struct err *e)
{
    if (states)
        return err_set(e, ERR_UNSUPPORTED, "cuda: recurrent states are not built");
    if (!cuda_backend_can_keep(l, e))
        return false;
    must(!d->has_kv);
    d->layout = *l;
    d->has_kv = true;
    for (uint32_t g = 0; g < l->groups_count; g++) {
        size_t size;
        if (!base_mul(&size, l->page_size[g], pages[g]))
            return err_set(e, ERR_MEMORY, "cuda: %u pages of %zu bytes are too many", pages[g],
                           l->page_size[g]);
        if (!cuda_backend_alloc(d, "kv", size, &d->pages[g], e))
            return false;
        d->pages_count[g] = pages[g];
        if (size && !cuda_backend_check(d, d->driver->set_bytes(d->pages[g], 0, size, d->stream),
                                "clear pages", e))
            return false;
    }
    return true;
}

size_t cuda_backend_layer_size(const struct device *d, const struct kv_layer *l)
{
    enum kv_type t = d->layout.type;
    return l->heads * (kv_head_size(t, l->dk) + kv_head_size(t, l->dv));
}

cuda_ptr cuda_backend_layer_page(const struct device *d, const struct kv_layer *l, uint32_t page)
{
    return d->pages[l->group] + l->offset * d->pages_count[l->group] +
           cuda_backend_layer_size(d, l) * page;
}

bool cuda_backend_copy_page(struct device *d, const struct kv_copy *c, struct err *e)
{
    for (uint32_t i = 0; i < d->layout.layers_count; i++) {
        const struct kv_layer *l = &d->layout.layers[i];
        if (l->group == c->group &&
            !cuda_backend_check(d,
                                d->driver->copy_on(cuda_backend_layer_page(d, l, c->to),
                                                   cuda_backend_layer_page(d, l, c->from),
                                                   cuda_backend_layer_size(d, l), d->stream),
                                "copy page", e))
            return false;
    }
    return true;
}

/* A page of all layers, as kv_layout lays it out, from or to host memory. */
static bool cuda_backend_move(struct device *d, struct kv_ref r, uint8_t *to, const uint8_t *from,
                              struct err *e)
{
    must(!r.is_state && r.group < d->layout.groups_count && r.index < d->pages_count[r.group]);
    for (uint32_t i = 0; i < d->layout.layers_count; i++) {
        const struct kv_layer *l = &d->layout.layers[i];
        if (l->group != r.group)
            continue;
        cuda_ptr page = cuda_backend_layer_page(d, l, r.index);
        size_t size = cuda_backend_layer_size(d, l);
        cuda_result rc = to ? d->driver->copy_out(to + l->offset, page, size, d->stream)
                            : d->driver->copy_in(page, from + l->offset, size, d->stream);
        if (!cuda_backend_check(d, rc, "move page", e))
            return false;
    }
    return cuda_backend_check(d, d->driver->stream_wait(d->stream), "move page", e);
}

static bool cuda_backend_kv_get(struct device *d, struct kv_ref r, void *dst, struct err *e)
{
    return cuda_backend_move(d, r, dst, NULL, e);
}

static bool cuda_backend_kv_set(struct device *d, struct kv_ref r, const void *src, struct err *e)
{
    return cuda_backend_move(d, r, NULL, src, e);
}

static const struct op_set cuda_backend_ops = {OP_SET_ALL};

const struct backend cuda_backend = {
    .name = "cuda",
    .ops = &cuda_backend_ops,
    .probe = cuda_backend_probe,
    .open = cuda_backend_open,
    .close = cuda_backend_close,
    .info = cuda_backend_info,
    .weight_load = cuda_weight_load,
    .weight_free = cuda_weight_free,
    .kv_init = cuda_backend_kv_init,
    .kv_get = cuda_backend_kv_get,
    .kv_set = cuda_backend_kv_set,
    .prepare = cuda_step_prepare,
    .submit = cuda_step_submit,
    .wait = cuda_step_wait,
    .logits_row = cuda_step_logits,
};
