#include "tensor/halves.h"

#include <stdio.h>
#include <string.h>

#include "base/machine.h"
#include "tensor/plan.h"
#include "tensor/weights.h"

enum { HALVES_LOWER, HALVES_UPPER, HALVES_COUNT };

struct halves_side {
    const struct backend *b;
    struct device *d;
    struct plan plan;
    struct kv_layout layout;
    uint64_t columns; /* of K and V in all its layers: its share of a page */
    bool is_loaded; /* at least a piece of a weight */
};

/* A weight that both halves read (an embedding that is the head too) lies on both. */
struct halves_weight {
    struct weight half[HALVES_COUNT];
    bool is_in[HALVES_COUNT];
};

struct device {
    struct arena arena; /* holds the device too */
    struct halves_side half[HALVES_COUNT];
    uint32_t layers, first;
    bool is_counting;
    const struct plan *plan;      /* NULL: none is expected yet */
    struct halves_weight *weights; /* [plan.weights] */
};

struct prepared {
    struct prepared *half[HALVES_COUNT];
    struct weight *weights[HALVES_COUNT]; /* [plan.weights] */
    struct step_limits limits[HALVES_COUNT];
    struct step step; /* the upper half's */
    const float *enter[PLAN_BORDER_MAX];
};

/* ---- open, close, info ---- */

bool halves_join(struct device **out, const struct halves_parts *p, struct err *e)
{
    struct arena a;
    arena_init(&a, HALVES_ARENA_MAX);
    struct device *d = ARENA_NEW(&a, struct device);
    if (!d) {
        p->lower->close(p->lower_device);
        p->upper->close(p->upper_device);
        return err_set(e, ERR_MEMORY, "halves: no memory for a device");
    }
    d->arena = a;
    d->layers = p->layers;
    d->is_counting = p->is_counting;
    d->half[HALVES_LOWER] = (struct halves_side){.b = p->lower, .d = p->lower_device};
    d->half[HALVES_UPPER] = (struct halves_side){.b = p->upper, .d = p->upper_device};
    *out = d;
    return true;
}

static bool halves_open(struct device **d, const struct device_options *o, struct err *e)
{
    (void)d, (void)o;
    return err_set(e, ERR_INTERNAL, "halves: a device is made by halves_join");
}

static void halves_close(struct device *d)
{
    for (int i = 0; i < HALVES_COUNT; i++)
        d->half[i].b->close(d->half[i].d);
    struct arena a = d->arena;
    arena_deinit(&a);
}

uint32_t halves_first(const struct device *d)
{
    return d->first;
}

#define HALVES_FREE_MOST ((uint64_t)1 << 50) /* what is not known counts as so much */

/* Of a half: its device's own memory, or RAM; a device that counts has not taken it yet. */
static uint64_t halves_free_bytes(const struct device *d, const struct device_info *info)
{
    struct machine m;
    if (info->memory_free)
        return info->memory_free;
    machine_read(&m);
    uint64_t ram = machine_ram_free(&m);
    if (ram == 0 || ram > HALVES_FREE_MOST)
        return HALVES_FREE_MOST;
    uint64_t taken = d->is_counting ? info->memory_used : 0;
    return ram > taken ? ram - taken : 0;
}

/* So much memory for pages, of both halves together, that neither's share is more than it has: what
 * is free here stands for the columns here. */
static uint64_t halves_free(const struct device *d, int half, uint64_t free_bytes)
{
    const uint64_t own = d->half[half].columns;
    const uint64_t all = d->half[HALVES_LOWER].columns + d->half[HALVES_UPPER].columns;
    return own ? base_min(free_bytes, HALVES_FREE_MOST) / own * all : UINT64_MAX;
}

/* Before weights are in, all that both have: each half's own allocations say what does not fit. */
static uint64_t halves_memory_free(const struct device *d, const struct device_info *info)
{
    uint64_t free_bytes[HALVES_COUNT];
    for (int i = 0; i < HALVES_COUNT; i++)
        free_bytes[i] = halves_free_bytes(d, &info[i]);
    if (!d->half[HALVES_LOWER].is_loaded && !d->half[HALVES_UPPER].is_loaded)
        return base_max(1, free_bytes[HALVES_LOWER] + free_bytes[HALVES_UPPER]);
    uint64_t most = base_min(halves_free(d, HALVES_LOWER, free_bytes[HALVES_LOWER]),
                             halves_free(d, HALVES_UPPER, free_bytes[HALVES_UPPER]));
    return base_max(1, most);
}

static void halves_info(struct device *d, struct device_info *out)
{
    struct device_info info[HALVES_COUNT];
    for (int i = 0; i < HALVES_COUNT; i++)
        d->half[i].b->info(d->half[i].d, &info[i]);
    *out = info[HALVES_UPPER];
    for (int i = 0; i < HALVES_COUNT; i++)
        must(strlen(info[i].numerics) <= 64);
    snprintf(out->numerics, sizeof out->numerics, "%.64s, %.64s, %u above",
             info[HALVES_LOWER].numerics, info[HALVES_UPPER].numerics, d->layers);
    out->threads = info[HALVES_LOWER].threads;
    out->memory_total += info[HALVES_LOWER].memory_total;
    out->memory_used += info[HALVES_LOWER].memory_used;
    out->memory_host = info[HALVES_LOWER].memory_used;
    out->memory_free = halves_memory_free(d, info);
}

/* ---- the plan ---- */

static void halves_mark_weights(struct device *d, int half)
{
    const struct plan *p = &d->half[half].plan;
    for (uint32_t i = 0; i < p->ops_count; i++)
        for (uint32_t k = 0; k < OP_WEIGHT_MAX; k++)
            if (p->ops[i].weight[k] != TENSOR_NONE)
                d->weights[p->ops[i].weight[k]].is_in[half] = true;
}

static bool halves_expect(struct device *d, const struct plan *p, struct err *e)
{
    uint32_t layers = 0;
    must(!d->plan && p->is_finished);
    for (uint32_t i = 0; i < p->weights_count; i++)
        if (p->weights[i].layer != TENSOR_NONE)
            layers = (uint32_t)base_max(layers, p->weights[i].layer + 1u);
    if (!d->layers || d->layers >= layers)
        return err_set(e, ERR_CONFIG, "halves: %u of %u layers: 1 to %u can lie on a second device",
                       d->layers, layers, layers ? layers - 1 : 0);
    d->first = layers - d->layers;
    d->weights = ARENA_ARRAY(&d->arena, struct halves_weight, p->weights_count);
    if (!d->weights)
        return err_set(e, ERR_MEMORY, "halves: no memory for a plan");
    struct plan *lower = &d->half[HALVES_LOWER].plan, *upper = &d->half[HALVES_UPPER].plan;
    plan_init(lower, &d->arena, p->kind);
    plan_init(upper, &d->arena, p->kind);
    if (!plan_split(p, d->first, lower, upper, e))
        return false;
    for (int i = 0; i < HALVES_COUNT; i++) {
        struct halves_side *h = &d->half[i];
        halves_mark_weights(d, i);
        if (!plan_kv_layout(&h->plan, KV_TYPE_F16, &h->layout, e))
            return false;
        for (uint32_t n = 0; n < h->layout.layers_count; n++)
            h->columns += h->layout.layers[n].heads *
                          (uint64_t)(h->layout.layers[n].dk + h->layout.layers[n].dv);
    }
    d->plan = p;
    return true;
}

/* ---- weights ---- */

static struct halves_weight *halves_weight_of(struct device *d, struct weight *w)
{
    if (w->device)
        return w->device;
    uint32_t i = 0;
    while (i < d->plan->weights_count && !str_eq(d->plan->weights[i].name, w->name))
        i++;
    must(i < d->plan->weights_count);
    struct halves_weight *s = &d->weights[i];
    s->half[HALVES_LOWER] = s->half[HALVES_UPPER] = *w;
    w->device = s;
    return s;
}

static bool halves_weight_load(struct device *d, struct weight *w, size_t row_first, size_t rows,
                              const void *src, struct err *e)
{
    must(d->plan);
    struct halves_weight *s = halves_weight_of(d, w);
    for (int i = 0; i < HALVES_COUNT; i++) {
        struct halves_side *h = &d->half[i];
        if (!s->is_in[i])
            continue;
        if (!h->b->weight_load(h->d, &s->half[i], row_first, rows, src, e))
            return false;
        h->is_loaded = true;
    }
    return true;
}

static void halves_weight_free(struct device *d, struct weight *w)
{
    struct halves_weight *s = w->device;
    if (!s)
        return;
    for (int i = 0; i < HALVES_COUNT; i++)
        if (s->half[i].device)
            d->half[i].b->weight_free(d->half[i].d, &s->half[i]);
    w->device = NULL;
}

/* ---- pages ---- */

/* The layers of a half, in pages of the same groups. */
static void halves_layout(struct device *d, const struct kv_layout *l, int half)
{
    struct kv_layout *to = &d->half[half].layout;
    *to = *l;
    to->layers_count = 0;
    memset(to->page_size, 0, sizeof to->page_size);
    uint16_t count[KV_GROUPS_MAX] = {0};
    for (uint32_t i = 0; i < l->layers_count; i++) {
        struct kv_layer k = l->layers[i];
        if ((k.layer >= d->first) != (half == HALVES_UPPER))
            continue;
        k.offset = to->page_size[k.group];
        k.index = count[k.group]++;
        to->layers[to->layers_count++] = k;
        to->page_size[k.group] +=
            k.heads * (kv_head_size(l->type, k.dk) + kv_head_size(l->type, k.dv));
    }
}

static bool halves_kv_init(struct device *d, const struct kv_layout *l, const uint32_t *pages,
                          uint32_t states, struct err *e)
{
    must(d->plan);
    for (int i = 0; i < HALVES_COUNT; i++) {
        halves_layout(d, l, i);
        if (!d->half[i].b->kv_init(d->half[i].d, &d->half[i].layout, pages, states, e))
            return false;
    }
    return true;
}

static bool halves_kv_get(struct device *d, struct kv_ref r, void *dst, struct err *e)
{
    const struct halves_side *lower = &d->half[HALVES_LOWER], *upper = &d->half[HALVES_UPPER];
    return lower->b->kv_get(lower->d, r, dst, e) &&
           upper->b->kv_get(upper->d, r, (uint8_t *)dst + lower->layout.page_size[r.group], e);
}

static bool halves_kv_set(struct device *d, struct kv_ref r, const void *src, struct err *e)
{
    const struct halves_side *lower = &d->half[HALVES_LOWER], *upper = &d->half[HALVES_UPPER];
    const uint8_t *from = src;
    return lower->b->kv_set(lower->d, r, from, e) &&
           upper->b->kv_set(upper->d, r, from + lower->layout.page_size[r.group], e);
}

/* ---- running ---- */

static bool halves_prepare(struct device *d, const struct plan *plan, struct weight *weights,
                          const struct step_limits *m, struct prepared **out, struct err *e)
{
    must(plan == d->plan);
    struct prepared *p = ARENA_NEW(&d->arena, struct prepared);
    if (!p)
        return err_set(e, ERR_MEMORY, "halves: no memory for a plan");
    for (int i = 0; i < HALVES_COUNT; i++) {
        struct halves_side *h = &d->half[i];
        p->weights[i] = ARENA_ARRAY(&d->arena, struct weight, plan->weights_count);
        if (!p->weights[i])
            return err_set(e, ERR_MEMORY, "halves: no memory for a plan");
        for (uint32_t n = 0; n < plan->weights_count; n++)
            p->weights[i][n] = ((struct halves_weight *)weights[n].device)->half[i];
        p->limits[i] = *m;
        if (m->layout) {
            halves_layout(d, m->layout, i);
            p->limits[i].layout = &h->layout;
        }
        if (!h->b->prepare(h->d, &h->plan, p->weights[i], &p->limits[i], &p->half[i], e))
            return false;
    }
    *out = p;
    return true;
}

static bool halves_submit(struct device *d, struct prepared *p, const struct step *s, struct err *e)
{
    const struct halves_side *lower = &d->half[HALVES_LOWER], *upper = &d->half[HALVES_UPPER];
    struct step_out half;
    if (!lower->b->submit(lower->d, p->half[HALVES_LOWER], s, e) ||
        !lower->b->wait(lower->d, p->half[HALVES_LOWER], &half, e))
        return false;
    memcpy(p->enter, half.leave, sizeof p->enter);
    p->step = *s;
    p->step.enter = p->enter;
    return upper->b->submit(upper->d, p->half[HALVES_UPPER], &p->step, e);
}

static bool halves_wait(struct device *d, struct prepared *p, struct step_out *out, struct err *e)
{
    const struct halves_side *upper = &d->half[HALVES_UPPER];
    return upper->b->wait(upper->d, p->half[HALVES_UPPER], out, e);
}

static uint64_t halves_progress(const struct device *d)
{
    uint64_t sum = 0;
    for (int i = 0; i < HALVES_COUNT; i++)
        sum += d->half[i].b->progress ? d->half[i].b->progress(d->half[i].d) : 0;
    return sum;
}

static bool halves_logits(struct device *d, struct prepared *p, uint32_t out_row, float *dst,
                         struct err *e)
{
    const struct halves_side *upper = &d->half[HALVES_UPPER];
    return upper->b->logits_row(upper->d, p->half[HALVES_UPPER], out_row, dst, e);
}

/* Fused ops that only some backends have are expanded: both halves can run what is left. */
static const struct op_set halves_ops = {
    OP_SET_ALL & ~(OP_BIT(OP_ROPE_QK) | OP_BIT(OP_MATMUL_GLU) | OP_BIT(OP_MOE_GLU))};

const struct backend halves_backend = {
    .name = "halves",
    .ops = &halves_ops,
    .open = halves_open,
    .close = halves_close,
    .info = halves_info,
    .expect = halves_expect,
    .weight_load = halves_weight_load,
    .weight_free = halves_weight_free,
    .kv_init = halves_kv_init,
    .kv_get = halves_kv_get,
    .kv_set = halves_kv_set,
    .prepare = halves_prepare,
    .submit = halves_submit,
    .wait = halves_wait,
    .progress = halves_progress,
    .logits_row = halves_logits,
};
