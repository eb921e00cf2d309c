#include "cpu/cpu_device.h"

#include <stdio.h>
#include <string.h>

/* ---- open, close ---- */

/* Version of the rules by which a result's bits come about (ARCHITECTURE 5): part of the numerics
 * id. Raise it when a kernel's float order, a rounding or the layout of a page changes. */
#define NUMERICS_RULES 2

static bool choose_level(const struct device_options *o, enum cpu_level *level, bool *has_bf16,
                         struct err *e)
{
    enum cpu_level best = machine_level(has_bf16);
    *level = best;
    if (!o->level)
        return true;
    if (!machine_level_parse(str_of(o->level), level))
        return err_set(e, ERR_CONFIG, "cpu: no level '%s'; ref, avx2, avx512, vnni or amx",
                       o->level);
    if (*level > best)
        return err_set(e, ERR_CONFIG, "cpu: level '%s' is not on this machine, which has %s",
                       o->level, machine_level_name(best));
    return true;
}

static bool open_pool(struct device *d, uint32_t threads, struct err *e)
{
    struct machine m;
    machine_read(&m);
    if (threads == 0)
        threads = m.cpus ? m.cpus : 1;
    if (threads > THREAD_WORKERS_MAX)
        threads = THREAD_WORKERS_MAX;
    struct thread_pool_options o = {.workers = threads};
    if (threads <= m.cpus_allowed) { /* more threads than CPUs: the kernel places them better */
        o.cpus = m.cpu_ids;
        o.cpus_count = m.cpus_allowed;
        o.pin_caller = true;
    }
    d->workers = threads;
    return threads == 1 || d->mem.is_counting || thread_pool_open(&d->pool, &o, e);
}

static bool backend_open(struct device **out, const struct device_options *o, struct err *e)
{
    enum cpu_level level;
    bool has_bf16;
    if (!choose_level(o, &level, &has_bf16, e))
        return false;
    struct mem m; /* holds the device itself, too */
    size_t most = o->memory_max ? (size_t)o->memory_max : SIZE_MAX;
    if (o->is_counting)
        mem_init_counting(&m, most);
    else
        mem_init(&m, most);
    struct device *d = mem_new(&m, "plan", sizeof(*d), e);
    if (!d)
        return false;
    d->mem = m;
    d->act = o->act;
    cpu_kernels_init(&d->k, level, has_bf16);
    if (!open_pool(d, o->threads, e)) {
        m = d->mem;
        mem_deinit(&m);
        return false;
    }
    *out = d;
    return true;
}

static void backend_close(struct device *d)
{
    struct mem m = d->mem;
    thread_pool_close(d->pool);
    mem_deinit(&m);
}

static const char *act_name(enum act a)
{
    switch (a) {
    case ACT_F32:
        return "float";
    case ACT_INT8:
        return "int8";
    case ACT_INT16:
        return "int16";
    case ACT_AUTO:
        break;
    }
    return "auto";
}

static void backend_info(struct device *d, struct device_info *out)
{
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "CPU");
    snprintf(out->level, sizeof(out->level), "%s", machine_level_name(d->k.level));
    snprintf(out->numerics, sizeof(out->numerics), "cpu %s%s act=%s kv=%s rules=%d",
             machine_level_name(d->k.level), d->k.has_bf16 ? "+bf16" : "", act_name(d->act),
             kv_type_name(d->layout.type), NUMERICS_RULES);
    out->threads = d->workers;
    out->memory_total = d->mem.bytes_max;
    out->memory_used = d->mem.bytes_used;
}

/* ---- weights ---- */

static bool matrix_new(struct device *d, const struct weight *w, struct cpu_weight *cw,
                       struct err *e)
{
    enum act act = d->act == ACT_AUTO ? cpu_kernels_act(d->k.level, w->type) : d->act;
    size_t size;
    must(quant_is_weight(w->type));
    cw->mm = &d->k.mm[act][w->type];
    cw->mat_size = base_align(cw->mm->packed_size(w->type, w->rows, w->cols), 64);
    if (!base_mul(&size, cw->mat_size, w->mats))
        return err_set(e, ERR_MEMORY, "cpu: weight %.*s is too large", STR_ARG(w->name));
    cw->data = mem_new(&d->mem, "weights", size, e);
    return cw->data != NULL;
}

static bool weight_new(struct device *d, struct weight *w, struct err *e)
{
    struct cpu_weight *cw = mem_new(&d->mem, "plan", sizeof(*cw), e);
    if (!cw)
        return false;
    if (w->kind == WEIGHT_KIND_MATRIX) {
        if (!matrix_new(d, w, cw, e))
            return false;
    } else {
        cw->data = mem_new_array(&d->mem, "weights", w->cols, (size_t)w->rows * 4u * w->mats, e);
        if (!cw->data)
            return false;
    }
    w->device = cw;
    return true;
}

#define PACK_ROWS 64u /* rows that one pool chunk packs */

struct pack_rows_job {
    const struct cpu_weight *cw;
    uint8_t *dst;
    const uint8_t *src;
    size_t row_size;
    struct pack_args args;
};

static void pack_rows_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    const struct pack_rows_job *j = ctx;
    (void)worker;
    size_t skip = (size_t)chunk * PACK_ROWS;
    struct pack_args a = j->args;
    a.first += skip;
    a.count = base_min(PACK_ROWS, a.count - skip);
    j->cw->mm->pack_weight(j->dst, j->src + skip * j->row_size, &a);
}

static bool weight_load(struct device *d, struct weight *w, size_t row_first, size_t rows,
                        const void *src, struct err *e)
{
    if (!w->device && !weight_new(d, w, e))
        return false;
    struct cpu_weight *cw = w->device;
    size_t row_size = 0;
    must(row_first == cw->rows_loaded && quant_row_size(w->type, w->cols, &row_size));
    if (!rows)
        return true;
    must(!d->mem.is_counting);
    cw->rows_loaded += rows;
    if (w->kind == WEIGHT_KIND_VECTOR) {
        memcpy(cw->data + row_first * row_size, src, rows * row_size);
        return true;
    }
    size_t mat = row_first / w->rows;
    struct pack_rows_job j = {
        .cw = cw,
        .dst = cw->data + mat * cw->mat_size,
        .src = src,
        .row_size = row_size,
        .args = {.type = w->type,
                 .rows = w->rows,
                 .in = w->cols,
                 .first = row_first % w->rows,
                 .count = rows}};
    must(j.args.first + rows <= w->rows);
    struct thread_job job = {pack_rows_chunk, &j, (uint32_t)((rows + PACK_ROWS - 1) / PACK_ROWS)};
    thread_parallel_for(d->pool, &job);
    return true;
}

static void weight_free(struct device *d, struct weight *w)
{
    struct cpu_weight *cw = w->device;
    if (!cw)
        return;
    mem_free(&d->mem, cw->data);
    mem_free(&d->mem, cw);
    w->device = NULL;
}

/* ---- pages ---- */

static bool kv_init(struct device *d, const struct kv_layout *l, const uint32_t *pages,
                    uint32_t states, struct err *e)
{
    must(!d->has_kv);
    if (states)
        return err_set(e, ERR_UNSUPPORTED, "cpu: recurrent states are not built (%u asked for)",
                       states);
    for (uint32_t i = 0; i < l->layers_count && l->type == KV_TYPE_INT8; i++)
        if (base_max(l->layers[i].dk, l->layers[i].dv) > CPU_KV_ROTATE_MAX)
            return err_set(e, ERR_UNSUPPORTED, "cpu: int8 pages of heads with more than %u columns",
                           CPU_KV_ROTATE_MAX);
    d->layout = *l;
    for (uint32_t g = 0; g < l->groups_count; g++) {
        d->pages[g] = mem_new_array(&d->mem, "kv", pages[g], l->page_size[g], e);
        if (!d->pages[g])
            return false;
        d->pages_count[g] = pages[g];
    }
    d->has_kv = true;
    return true;
}

static uint8_t *kv_page(const struct device *d, struct kv_ref r, size_t *size)
{
    must(!r.is_state && r.group < d->layout.groups_count && r.index < d->pages_count[r.group]);
    *size = d->layout.page_size[r.group];
    return d->pages[r.group] + r.index * *size;
}

static bool kv_get(struct device *d, struct kv_ref r, void *dst, struct err *e)
{
    size_t size;
    (void)e;
    const uint8_t *page = kv_page(d, r, &size);
    memcpy(dst, page, size);
    return true;
}

static bool kv_set(struct device *d, struct kv_ref r, const void *src, struct err *e)
{
    size_t size;
    (void)e;
    uint8_t *page = kv_page(d, r, &size);
    memcpy(page, src, size);
    return true;
}

/* ---- running ---- */

static bool backend_prepare(struct device *d, const struct plan *plan, struct weight *weights,
                            const struct step_limits *m, struct prepared **out, struct err *e)
{
    struct prepared *p = mem_new(&d->mem, "plan", sizeof(*p), e);
    must(plan->is_finished);
    if (!p)
        return false;
    p->d = d;
    p->plan = plan;
    p->weights = weights;
    p->limits = *m;
    if (!d->has_kv && m->layout)
        d->layout = *m->layout;
    if (!cpu_run_prepare(p, e))
        return false;
    *out = p;
    return true;
}

static bool backend_submit(struct device *d, struct prepared *p, const struct step *s,
                           struct err *e)
{
    (void)e;
    must(!d->mem.is_counting);
    cpu_run_plan(p, s);
    return true;
}

static bool backend_wait(struct device *d, struct prepared *p, struct step_out *out, struct err *e)
{
    (void)d;
    (void)e;
    cpu_answer_out(p, out);
    return true;
}

static bool logits_row(struct device *d, struct prepared *p, uint32_t out_row, float *dst,
                       struct err *e)
{
    (void)d;
    (void)e;
    must(p->plan->logits != TENSOR_NONE && out_row < p->limits.outs_max);
    size_t vocab = p->plan->vocab;
    memcpy(dst, cpu_run_out(p, p->plan->logits) + out_row * vocab, vocab * sizeof(float));
    return true;
}

static const struct op_set ops = {
    OP_SET_ALL & ~(OP_BIT(OP_ROPE_QK) | OP_BIT(OP_MATMUL_GLU) | OP_BIT(OP_MOE_GLU))};

/* Ops and their chunks: one product of a long prompt may take seconds on a slow machine. */
static uint64_t progress(const struct device *d)
{
    return atomic_load_explicit(&d->ops_done, memory_order_relaxed) +
           (d->pool ? thread_pool_progress(d->pool) : 0);
}

const struct backend cpu_backend = {
    .name = "cpu",
    .ops = &ops,
    .open = backend_open,
    .close = backend_close,
    .info = backend_info,
    .weight_load = weight_load,
    .weight_free = weight_free,
    .kv_init = kv_init,
    .kv_get = kv_get,
    .kv_set = kv_set,
    .prepare = backend_prepare,
    .submit = backend_submit,
    .wait = backend_wait,
    .progress = progress,
    .logits_row = logits_row,
};
