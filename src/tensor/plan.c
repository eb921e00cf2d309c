#include "tensor/plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NOT_WRITTEN UINT32_MAX

void plan_init(struct plan *p, struct arena *a, enum plan_kind kind)
{
    *p = (struct plan){.kind = kind, .arena = a, .logits = TENSOR_NONE, .pooled = TENSOR_NONE};
}

/* Marks the plan as failed with a sentence; the first one stays. */
static void plan_fail(struct plan *p, enum err_code code, const char *format, ...)
    BASE_PRINTF(3, 4);
static void plan_fail(struct plan *p, enum err_code code, const char *format, ...)
{
    if (p->has_failed)
        return;
    char text[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->has_failed = true;
    err_set(&p->err, code, "%s", text);
}

bool plan_check(const struct plan *p, struct err *e)
{
    if (p->has_failed)
        *e = p->err;
    return !p->has_failed;
}

/* ---- arrays in the arena: doubled when full, the old one stays until the arena dies ---- */

static bool grow(struct plan *p, void **items, uint32_t *size, uint32_t count, size_t item_size)
{
    if (p->has_failed)
        return false;
    if (count < *size)
        return true;
    uint32_t more = *size ? *size * 2 : 64;
    void *wider = arena_alloc_array(p->arena, more, item_size);
    if (!wider) {
        plan_fail(p, ERR_LIMIT, "plan: more than %zu bytes of memory", p->arena->bytes_max);
        return false;
    }
    if (count)
        memcpy(wider, *items, count * item_size);
    *items = wider;
    *size = more;
    return true;
}

uint16_t plan_value(struct plan *p, enum plan_rows rows, uint32_t width, enum vtype t)
{
    if (p->has_failed)
        return TENSOR_NONE;
    if (width == 0 || width > TENSOR_WIDTH_MAX) {
        plan_fail(p, ERR_LIMIT, "plan: a value of %u columns, allowed are 1 to %u", width,
                  TENSOR_WIDTH_MAX);
        return TENSOR_NONE;
    }
    if (p->values_count >= TENSOR_VALUES_MAX) {
        plan_fail(p, ERR_LIMIT, "plan: more than %u values", TENSOR_VALUES_MAX);
        return TENSOR_NONE;
    }
    void *items = p->values;
    if (!grow(p, &items, &p->values_size, p->values_count, sizeof *p->values))
        return TENSOR_NONE;
    p->values = items;
    p->values[p->values_count] = (struct plan_value){
        .rows = rows, .width = width, .type = t, .op_first = NOT_WRITTEN, .slot = TENSOR_NONE};
    return (uint16_t)p->values_count++;
}

static bool want_eq(struct weight_want a, struct weight_want b)
{
    return a.kind == b.kind && a.rows == b.rows && a.cols == b.cols && a.mats == b.mats;
}

uint16_t plan_weight(struct plan *p, const char *name, struct weight_want w)
{
    if (p->has_failed)
        return TENSOR_NONE;
    for (uint32_t i = 0; i < p->weights_count; i++) {
        if (!str_eq_z(p->weights[i].name, name))
            continue;
        if (!want_eq(p->weights[i].want, w)) {
            plan_fail(p, ERR_FORMAT, "plan: weight '%s' is wanted in two shapes", name);
            return TENSOR_NONE;
        }
        return (uint16_t)i;
    }
    if (!w.rows || !w.cols || !w.mats || w.rows > TENSOR_WIDTH_MAX || w.cols > TENSOR_WIDTH_MAX) {
        plan_fail(p, ERR_FORMAT, "plan: weight '%s' of %u x %u x %u, sides go from 1 to %u", name,
                  w.cols, w.rows, w.mats, TENSOR_WIDTH_MAX);
        return TENSOR_NONE;
    }
    if (p->weights_count >= TENSOR_VALUES_MAX || strlen(name) >= TENSOR_NAME_MAX) {
        plan_fail(p, ERR_LIMIT, "plan: weight '%s' is one too many or has too long a name", name);
        return TENSOR_NONE;
    }
    void *items = p->weights;
    if (!grow(p, &items, &p->weights_size, p->weights_count, sizeof *p->weights))
        return TENSOR_NONE;
    p->weights = items;
    str copy = arena_copy(p->arena, str_of(name));
    if (!copy.p) {
        plan_fail(p, ERR_LIMIT, "plan: more than %zu bytes of memory", p->arena->bytes_max);
        return TENSOR_NONE;
    }
    p->weights[p->weights_count] = (struct plan_weight){copy, w, TENSOR_NONE};
    return (uint16_t)p->weights_count++;
}

uint16_t plan_layer_weight(struct plan *p, uint32_t layer, const char *name, struct weight_want w)
{
    char full[TENSOR_NAME_MAX];
    int len = snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    must(len > 0 && (size_t)len < sizeof full);
    uint16_t id = plan_weight(p, full, w);
    if (id != TENSOR_NONE)
        p->weights[id].layer = (uint16_t)layer;
    return id;
}

/* ---- appending ---- */

static uint32_t operands(const uint16_t *ids, uint32_t max)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < max; i++)
        if (ids[i] != TENSOR_NONE)
            count = i + 1;
    return count;
}

static bool check_view(const struct plan *p, const struct op *o, uint32_t i, struct err *e)
{
    struct view v = o->in[i];
    const char *name = op_table[o->kind].name;
    if (v.value >= p->values_count || p->values[v.value].op_first == NOT_WRITTEN)
        return err_set(e, ERR_INTERNAL, "plan: input %u of %s is not written yet", i, name);
    const struct plan_value *value = &p->values[v.value];
    uint64_t end = v.first + (uint64_t)v.stride * (v.count - 1) + v.width;
    if (!v.width || !v.count || v.stride < v.width || end > value->width)
        return err_set(e, ERR_FORMAT,
                       "plan: input %u of %s reads to column %" PRIu64 ", the value has %u", i,
                       name, end, value->width);
    if (i && value->rows != p->values[o->in[0].value].rows)
        return err_set(e, ERR_INTERNAL, "plan: inputs of %s stand for different rows", name);
    return true;
}

/* What holds for every kind: as many operands as its row says, known, written before. */
static bool check_operands(const struct plan *p, const struct op *o, struct err *e)
{
    const struct op_info *info = &op_table[o->kind];
    uint32_t ins = 0;
    for (uint32_t i = 0; i < OP_IN_MAX; i++)
        if (!op_is_none(o->in[i]))
            ins = i + 1;
    uint32_t weights = operands(o->weight, OP_WEIGHT_MAX);
    if (ins < info->in_min || ins > info->in_max || weights < info->weights_min ||
        weights > info->weights_max || operands(o->out, OP_OUT_MAX) != info->outs)
        return err_set(e, ERR_INTERNAL, "plan: %s with %u inputs and %u weights", info->name, ins,
                       weights);
    for (uint32_t i = 0; i < ins; i++)
        if ((i < info->in_min || !op_is_none(o->in[i])) && !check_view(p, o, i, e))
            return false;
    for (uint32_t i = 0; i < weights; i++)
        if ((i < info->weights_min || o->weight[i] != TENSOR_NONE) &&
            o->weight[i] >= p->weights_count)
            return err_set(e, ERR_INTERNAL, "plan: weight %u of %s is unknown", i, info->name);
    for (uint32_t i = 0; i < info->outs; i++)
        if (o->out[i] >= p->values_count || p->values[o->out[i]].op_first != NOT_WRITTEN)
            return err_set(e, ERR_INTERNAL, "plan: output %u of %s is written twice", i,
                           info->name);
    return true;
}

void plan_append(struct plan *p, const struct op *o)
{
    must(!p->is_finished && o->kind < OP_COUNT);
    if (p->has_failed)
        return;
    struct err e;
    if (!check_operands(p, o, &e) || !op_table[o->kind].check(p, o, &e)) {
        plan_fail(p, e.code, "%s", e.text);
        return;
    }
    if (p->ops_count >= TENSOR_OPS_MAX) {
        plan_fail(p, ERR_LIMIT, "plan: more than %u ops", TENSOR_OPS_MAX);
        return;
    }
    void *items = p->ops;
    if (!grow(p, &items, &p->ops_size, p->ops_count, sizeof *p->ops))
        return;
    p->ops = items;
    for (uint32_t i = 0; i < op_table[o->kind].outs; i++)
        p->values[o->out[i]].op_first = p->ops_count;
    p->ops[p->ops_count++] = *o;
}

/* ---- expansion ---- */

bool plan_expand(struct plan *p, const struct op_set *have, struct err *e)
{
    must(!p->is_finished);
    struct op *ops = p->ops;
    uint32_t count = p->ops_count;
    p->ops = NULL;
    p->ops_count = p->ops_size = 0;
    for (uint32_t i = 0; i < p->values_count; i++)
        p->values[i].op_first = NOT_WRITTEN;
    for (uint32_t i = 0; i < count; i++) {
        const struct op_info *info = &op_table[ops[i].kind];
        if (op_set_has(have, ops[i].kind))
            plan_append(p, &ops[i]);
        else if (info->expand)
            info->expand(p, &ops[i]);
        else
            plan_fail(p, ERR_UNSUPPORTED, "plan: the backend has no '%s'", info->name);
    }
    return plan_check(p, e);
}

/* ---- lifetimes and slots ---- */

static void find_lifetimes(struct plan *p)
{
    for (uint32_t i = 0; i < p->values_count; i++)
        p->values[i].op_last = p->values[i].op_first;
    for (uint32_t i = 0; i < p->ops_count; i++)
        for (uint32_t k = 0; k < OP_IN_MAX; k++)
            if (!op_is_none(p->ops[i].in[k]))
                p->values[p->ops[i].in[k].value].op_last = i;
    for (uint32_t i = 0; i < p->leave_count; i++)
        p->values[p->leave[i]].op_last = p->ops_count;
    /* Answers are read after the last op. */
    if (p->logits != TENSOR_NONE)
        p->values[p->logits].op_last = p->ops_count;
    if (p->pooled != TENSOR_NONE)
        p->values[p->pooled].op_last = p->ops_count;
}

/* A free slot of these rows: the narrowest that fits, else the widest (it grows), else new. */
static uint16_t take_slot(struct plan *p, bool *is_busy, enum plan_rows rows, uint32_t width)
{
    uint32_t best = TENSOR_NONE;
    for (uint32_t s = 0; s < p->slots_count; s++) {
        if (is_busy[s] || p->slots[s].rows != rows)
            continue;
        uint32_t have = p->slots[s].width;
        uint32_t best_width = best == TENSOR_NONE ? 0 : p->slots[best].width;
        bool is_better = have >= width ? best_width < width || have < best_width
                                       : have > best_width;
        if (best == TENSOR_NONE || is_better)
            best = s;
    }
    if (best == TENSOR_NONE) {
        best = p->slots_count++;
        p->slots[best] = (struct plan_slot){rows, width};
    }
    if (p->slots[best].width < width)
        p->slots[best].width = width;
    is_busy[best] = true;
    return (uint16_t)best;
}

bool plan_finish(struct plan *p, struct err *e)
{
    must(!p->is_finished);
    if (!plan_check(p, e))
        return false;
    if (p->ops_count == 0)
        return err_set(e, ERR_INTERNAL, "plan: no ops");
    /* Most values die soon; as many slots as values is the bound. */
    p->slots_size = p->values_count;
    p->slots = ARENA_ARRAY(p->arena, struct plan_slot, p->slots_size);
    bool *is_busy = ARENA_ARRAY(p->arena, bool, p->slots_size);
    if (!p->slots || !is_busy)
        return err_set(e, ERR_LIMIT, "plan: more than %zu bytes of memory", p->arena->bytes_max);
    find_lifetimes(p);
    for (uint32_t i = 0; i < p->enter_count; i++) {
        struct plan_value *v = &p->values[p->enter[i]];
        v->op_first = 0;
        v->slot = take_slot(p, is_busy, v->rows, v->width);
    }
    for (uint32_t i = 0; i < p->ops_count; i++) {
        const struct op *o = &p->ops[i];
        for (uint32_t k = 0; k < op_table[o->kind].outs; k++) {
            struct plan_value *v = &p->values[o->out[k]];
            v->slot = take_slot(p, is_busy, v->rows, v->width);
        }
        for (uint32_t k = 0; k < op_table[o->kind].outs; k++)
            if (p->values[o->out[k]].op_last == i)
                is_busy[p->values[o->out[k]].slot] = false;
        for (uint32_t k = 0; k < OP_IN_MAX; k++)
            if (!op_is_none(o->in[k]) && p->values[o->in[k].value].op_last == i)
                is_busy[p->values[o->in[k].value].slot] = false;
    }
    p->is_finished = true;
    return true;
}

uint32_t plan_rows_max(enum plan_rows rows, const struct step_limits *m)
{
    switch (rows) {
    case PLAN_ROWS_N:
        return m->rows_max;
    case PLAN_ROWS_O:
        return m->outs_max;
    case PLAN_ROWS_S:
        return m->seqs_max;
    case PLAN_ROWS_COUNT:
        break;
    }
    must(rows < PLAN_ROWS_COUNT);
    return 0;
}

size_t plan_scratch_size(const struct plan *p, const struct step_limits *m)
{
    must(p->is_finished);
    size_t size = 0;
    for (uint32_t i = 0; i < p->slots_count; i++)
        size += base_align((size_t)p->slots[i].width * plan_rows_max(p->slots[i].rows, m) * 4,
                           PLAN_SLOT_ALIGN);
    return size;
}

/* ---- layout of pages ---- */

static bool kv_add(struct kv_layout *l, uint16_t layer, const struct op_kv *kv, struct err *e)
{
    for (uint32_t i = 0; i < l->layers_count; i++)
        if (l->layers[i].layer == layer)
            return err_set(e, ERR_INTERNAL, "plan: layer %u writes its keys twice", layer);
    if (l->layers_count == TENSOR_LAYERS_MAX)
        return err_set(e, ERR_LIMIT, "plan: more than %u layers with attention",
                       TENSOR_LAYERS_MAX);
    uint32_t g = 0;
    while (g < l->groups_count && l->window[g] != kv->window)
        g++;
    if (g == KV_GROUPS_MAX)
        return err_set(e, ERR_UNSUPPORTED, "plan: layer %u has window %u, more than %u kinds",
                       layer, kv->window, KV_GROUPS_MAX);
    if (g == l->groups_count) {
        l->window[g] = kv->window;
        l->groups_count++;
    }
    uint16_t index = 0;
    for (uint32_t i = 0; i < l->layers_count; i++)
        index = (uint16_t)(index + (l->layers[i].group == g));
    l->layers[l->layers_count++] = (struct kv_layer){
        .layer = layer, .group = (uint16_t)g, .index = index, .heads = (uint16_t)kv->kv_heads,
        .dk = kv->dk, .dv = kv->dv, .offset = l->page_size[g]};
    l->page_size[g] += kv->kv_heads * (kv_head_size(l->type, kv->dk) +
                                       kv_head_size(l->type, kv->dv));
    return true;
}

static const struct op_kv *kv_of(const struct op *o)
{
    return o->kind == OP_KV_WRITE  ? &o->a.kv
           : o->kind == OP_ROPE_QK ? &o->a.rope_qk.kv
                                   : NULL;
}

static bool kv_check_attn(const struct kv_layout *l, const struct op *o, struct err *e)
{
    const struct op_attn *a = &o->a.attn;
    for (uint32_t i = 0; i < l->layers_count; i++) {
        const struct kv_layer *k = &l->layers[i];
        if (k->layer != o->layer)
            continue;
        if (k->heads == a->kv_heads && k->dk == a->dk && k->dv == a->dv &&
            l->window[k->group] == a->window)
            return true;
        return err_set(e, ERR_INTERNAL, "plan: layer %u attends in another shape than it writes",
                       o->layer);
    }
    return err_set(e, ERR_INTERNAL, "plan: layer %u attends but nothing writes it", o->layer);
}

bool plan_kv_layout(const struct plan *p, enum kv_type type, struct kv_layout *out, struct err *e)
{
    *out = (struct kv_layout){.type = type};
    /* Group 0 is that without a window, if there is one. */
    for (uint32_t i = 0; i < p->ops_count && !out->groups_count; i++) {
        const struct op_kv *kv = kv_of(&p->ops[i]);
        out->groups_count = kv && kv->window == 0;
    }
    for (uint32_t i = 0; i < p->ops_count; i++) {
        const struct op_kv *kv = kv_of(&p->ops[i]);
        if (kv && !kv_add(out, p->ops[i].layer, kv, e))
            return false;
        if (p->ops[i].kind == OP_ATTN && !kv_check_attn(out, &p->ops[i], e))
            return false;
    }
    return true;
}

/* ---- dump ---- */

static void dump_view(const struct plan *p, struct view v, struct buf *out)
{
    static const char rows[] = {'N', 'O', 'S'};
    if (op_is_none(v)) {
        buf_add_z(out, " -");
        return;
    }
    buf_printf(out, " v%u[%c,%u]", v.value, rows[p->values[v.value].rows], op_width(v));
    if (op_width(v) != p->values[v.value].width)
        buf_printf(out, "@%u", v.first);
    if (op_has_gaps(v))
        buf_printf(out, "%%%u", v.stride);
}

static void dump_weight(const struct plan *p, uint16_t w, struct buf *out)
{
    if (w == TENSOR_NONE) {
        buf_add_z(out, " -");
        return;
    }
    const struct plan_weight *k = &p->weights[w];
    buf_printf(out, " %s[", k->name.p);
    if (k->want.mats > 1)
        buf_printf(out, "%u,", k->want.mats);
    if (k->want.rows > 1)
        buf_printf(out, "%u,", k->want.rows);
    buf_printf(out, "%u]", k->want.cols);
}

static void dump_op(const struct plan *p, uint32_t index, struct buf *out)
{
    const struct op *o = &p->ops[index];
    const struct op_info *info = &op_table[o->kind];
    buf_printf(out, "%4u  %-12s", index, info->name);
    uint32_t ins = 0;
    for (uint32_t i = 0; i < OP_IN_MAX; i++)
        if (!op_is_none(o->in[i]))
            ins = i + 1;
    for (uint32_t i = 0; i < ins; i++)
        dump_view(p, o->in[i], out);
    for (uint32_t i = 0; i < operands(o->weight, OP_WEIGHT_MAX); i++)
        dump_weight(p, o->weight[i], out);
    for (uint32_t i = 0; i < info->outs; i++) {
        buf_add_z(out, i ? "" : " ->");
        dump_view(p, op_view(p, o->out[i]), out);
        if (p->is_finished)
            buf_printf(out, " s%u", p->values[o->out[i]].slot);
    }
    if (info->print) {
        buf_add_z(out, "  ");
        info->print(out, o);
    }
    buf_add_byte(out, '\n');
}

void plan_dump(const struct plan *p, struct buf *out)
{
    for (uint32_t i = 0; i < p->ops_count; i++)
        dump_op(p, i, out);
}
