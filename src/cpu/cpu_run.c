#include "cpu/cpu_device.h"

#include <string.h>

/* One function per op kind. Row ops go through run_rows: the rows are cut into chunks when there is
 * enough work to pay for a wake, otherwise the engine thread does them itself. A step of one row
 * has few regions then: matmuls and attention only. */

#define CHUNK_COST 16384u /* floats below which a region costs more than it saves */
#define CHUNKS_PER_WORKER 4u

/* ---- values as pointers ---- */

uint32_t cpu_run_rows(const struct prepared *p, uint16_t value)
{
    switch (p->plan->values[value].rows) {
    case PLAN_ROWS_N:
        return p->step->rows;
    case PLAN_ROWS_O:
        return p->step->outs;
    case PLAN_ROWS_S:
        return p->step->seqs;
    case PLAN_ROWS_COUNT:
        break;
    }
    must(false);
    return 0;
}

float *cpu_run_out(const struct prepared *p, uint16_t value)
{
    return p->slot[p->plan->values[value].slot];
}

struct cpu_view cpu_run_view(const struct prepared *p, struct view v)
{
    const struct plan_value *value = &p->plan->values[v.value];
    struct cpu_view out = {.p = p->slot[value->slot] + v.first,
                           .row = value->width,
                           .group = v.stride,
                           .width = v.width,
                           .count = v.count};
    if (!op_has_gaps(v)) {
        out.width = op_width(v);
        out.group = out.width;
        out.count = 1;
    }
    return out;
}

const float *cpu_run_vector(const struct prepared *p, uint16_t weight)
{
    return weight == TENSOR_NONE ? NULL : (const float *)(void *)cpu_run_weight(p, weight)->data;
}

static struct cpu_view skip_rows(struct cpu_view v, uint32_t rows)
{
    v.p += rows * v.row;
    return v;
}

/* ---- rows over the pool ---- */

struct rows_job {
    struct prepared *p;
    const struct op *o;
    uint32_t rows, per_chunk;
    void (*body)(struct prepared *p, const struct op *o, uint32_t first, uint32_t rows);
};

static void rows_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    const struct rows_job *j = ctx;
    (void)worker;
    uint32_t first = chunk * j->per_chunk;
    j->body(j->p, j->o, first, (uint32_t)base_min(j->per_chunk, j->rows - first));
}

/* cost: floats per row. */
static void run_rows(struct rows_job *j, size_t cost)
{
    size_t chunks = base_min(j->rows, base_max(1, j->rows * cost / CHUNK_COST));
    chunks = base_min(chunks, (size_t)j->p->d->workers * CHUNKS_PER_WORKER);
    j->per_chunk = (uint32_t)((j->rows + chunks - 1) / chunks);
    struct thread_job job = {rows_chunk, j, (j->rows + j->per_chunk - 1) / j->per_chunk};
    cpu_run_region(j->p, &job);
}

/* ---- row ops ---- */

static void row_embed(struct prepared *p, const struct op *o, uint32_t first, uint32_t rows)
{
    const struct weight *w = &p->weights[o->weight[0]];
    const struct cpu_weight *cw = w->device;
    const struct step *s = p->step;
    const int32_t *ids = o->a.embed.index == OP_INDEX_TOKENS      ? s->ids
                         : o->a.embed.index == OP_INDEX_POSITIONS ? s->pos
                                                                  : s->aux;
    float *out = cpu_run_out(p, o->out[0]) + (size_t)first * w->cols;
    for (uint32_t r = 0; r < rows; r++) {
        must(ids[first + r] >= 0 && (uint32_t)ids[first + r] < w->rows);
        cw->mm->unpack_row(w->type, out + (size_t)r * w->cols, cw->data,
                           (uint32_t)ids[first + r], w->rows, w->cols);
    }
    if (o->a.embed.scale != 1.0f) {
        struct act_args a = {.x = {out, w->cols, w->cols, w->cols, 1},
                             .out = out,
                             .rows = rows,
                             .number = o->a.embed.scale};
        p->d->k.scale(&a);
    }
}

static void row_rows(struct prepared *p, const struct op *o, uint32_t first, uint32_t rows)
{
    struct cpu_view x = cpu_run_view(p, o->in[0]);
    uint32_t width = op_width(o->in[0]);
    for (uint32_t r = first; r < first + rows; r++) {
        struct act_args a = {.x = skip_rows(x, p->step->out_rows[r]),
                             .out = cpu_run_out(p, o->out[0]) + (size_t)r * width,
                             .rows = 1};
        p->d->k.copy(&a);
    }
}

static void row_norm(struct prepared *p, const struct op *o, uint32_t first, uint32_t rows)
{
    struct norm_args a = {.x = skip_rows(cpu_run_view(p, o->in[0]), first),
                          .out = cpu_run_out(p, o->out[0]) + (size_t)first * op_width(o->in[0]),
                          .weight = cpu_run_vector(p, o->weight[0]),
                          .rows = rows,
                          .groups = o->a.norm.groups,
                          .eps = o->a.norm.eps};
    if (o->kind == OP_RMS_NORM) {
        p->d->k.rms_norm(&a);
        return;
    }
    a.bias = cpu_run_vector(p, o->weight[1]);
    p->d->k.layer_norm(&a);
}

static void row_add_norm(struct prepared *p, const struct op *o, uint32_t first, uint32_t rows)
{
    size_t skip = (size_t)first * op_width(o->in[0]);
    struct add_norm_args a = {.a = skip_rows(cpu_run_view(p, o->in[0]), first),
                              .b = skip_rows(cpu_run_view(p, o->in[1]), first),
                              .sum = cpu_run_out(p, o->out[0]) + skip,
                              .out = cpu_run_out(p, o->out[1]) + skip,
                              .weight = cpu_run_vector(p, o->weight[0]),
                              .rows = rows,
                              .eps = o->a.norm.eps};
    p->d->k.add_rms_norm(&a);
}

static void row_act(struct prepared *p, const struct op *o, uint32_t first, uint32_t rows)
{
    struct act_args a = {.x = skip_rows(cpu_run_view(p, o->in[0]), first),
                         .out = cpu_run_out(p, o->out[0]) + (size_t)first * op_width(o->in[0]),
                         .rows = rows};
    if (o->kind == OP_ACT) {
        a.kind = o->a.act;
        p->d->k.act(&a);
        return;
    }
    a.number = o->a.number.x;
    if (o->kind == OP_SCALE)
        p->d->k.scale(&a);
    else
        p->d->k.softcap(&a);
}

static void row_glu(struct prepared *p, const struct op *o, uint32_t first, uint32_t rows)
{
    struct glu_args a = {.gate = skip_rows(cpu_run_view(p, o->in[0]), first),
                         .up = skip_rows(cpu_run_view(p, o->in[1]), first),
                         .out = cpu_run_out(p, o->out[0]) + (size_t)first * op_width(o->in[0]),
                         .rows = rows,
                         .op = &o->a.glu};
    p->d->k.glu(&a);
}

static void row_binary(struct prepared *p, const struct op *o, uint32_t first, uint32_t rows)
{
    struct binary_args a = {.a = skip_rows(cpu_run_view(p, o->in[0]), first),
                            .out = cpu_run_out(p, o->out[0]) + (size_t)first * op_width(o->in[0]),
                            .rows = rows};
    if (op_is_none(o->in[1])) {
        a.weight = cpu_run_vector(p, o->weight[0]);
        a.weight_count = p->weights[o->weight[0]].cols;
    } else {
        a.b = skip_rows(cpu_run_view(p, o->in[1]), first);
    }
    if (o->kind == OP_ADD)
        p->d->k.add(&a);
    else
        p->d->k.mul(&a);
}

static void row_rope(struct prepared *p, const struct op *o, uint32_t first, uint32_t rows)
{
    const struct cpu_rope_table *t = &p->ropes[p->rope_table[o - p->plan->ops]];
    struct rope_args a = {.x = skip_rows(cpu_run_view(p, o->in[0]), first),
                          .out = cpu_run_out(p, o->out[0]) + (size_t)first * op_width(o->in[0]),
                          .table = (const float(*)[2])(t->table + (size_t)first * t->pairs),
                          .op = &o->a.rope,
                          .rows = rows};
    p->d->k.rope(&a);
}

static void row_route(struct prepared *p, const struct op *o, uint32_t first, uint32_t rows)
{
    size_t skip = (size_t)first * o->a.route.k;
    struct route_args a = {.x = skip_rows(cpu_run_view(p, o->in[0]), first),
                           .bias = cpu_run_vector(p, o->weight[0]),
                           .ids = (int32_t *)(void *)cpu_run_out(p, o->out[0]) + skip,
                           .weights = cpu_run_out(p, o->out[1]) + skip,
                           .op = &o->a.route,
                           .rows = rows};
    p->d->k.moe_route(&a);
}

static void row_moe_sum(struct prepared *p, const struct op *o, uint32_t first, uint32_t rows)
{
    uint32_t k = o->a.experts.k;
    struct moe_sum_args a = {.y = skip_rows(cpu_run_view(p, o->in[0]), first),
                             .w = skip_rows(cpu_run_view(p, o->in[1]), first),
                             .out = cpu_run_out(p, o->out[0]) +
                                    (size_t)first * (op_width(o->in[0]) / k),
                             .rows = rows,
                             .k = k};
    p->d->k.moe_sum(&a);
}

/* Here a row is a sequence. */
static void row_pool(struct prepared *p, const struct op *o, uint32_t first, uint32_t rows)
{
    uint32_t width = op_width(o->in[0]);
    for (uint32_t s = first; s < first + rows; s++) {
        struct pool_args a = {.x = skip_rows(cpu_run_view(p, o->in[0]), p->seq_first[s]),
                              .out = cpu_run_out(p, o->out[0]) + (size_t)s * width,
                              .op = &o->a.pool,
                              .rows = p->seq_first[s + 1] - p->seq_first[s]};
        p->d->k.pool(&a);
    }
}

/* Runs `body` over the rows of the op's first output. */
static void run_row_op(struct prepared *p, const struct op *o,
                       void (*body)(struct prepared *, const struct op *, uint32_t, uint32_t))
{
    struct rows_job j = {.p = p, .o = o, .rows = cpu_run_rows(p, o->out[0]), .body = body};
    size_t cost = p->plan->values[o->out[0]].width;
    if (!op_is_none(o->in[0]))
        cost = base_max(cost, op_width(o->in[0]));
    if (j.rows)
        run_rows(&j, cost);
}

/* ---- the list ---- */

/* Runs op i and perhaps some that follow; returns how many. */
static uint32_t run_op(struct prepared *p, uint32_t i)
{
    const struct op *o = &p->plan->ops[i];
    switch (o->kind) {
    case OP_EMBED:
        run_row_op(p, o, row_embed);
        return 1;
    case OP_ROWS:
        run_row_op(p, o, row_rows);
        return 1;
    case OP_RMS_NORM:
    case OP_LAYER_NORM:
        run_row_op(p, o, row_norm);
        return 1;
    case OP_ADD_RMS_NORM:
        run_row_op(p, o, row_add_norm);
        return 1;
    case OP_MATMUL:
        return cpu_mul_run(p, i);
    case OP_MOE_ROUTE:
        run_row_op(p, o, row_route);
        return 1;
    case OP_MOE_MATMUL:
        return cpu_mul_run_experts(p, i);
    case OP_MOE_SUM:
        run_row_op(p, o, row_moe_sum);
        return 1;
    case OP_ACT:
    case OP_SCALE:
    case OP_SOFTCAP:
        run_row_op(p, o, row_act);
        return 1;
    case OP_GLU:
        run_row_op(p, o, row_glu);
        return 1;
    case OP_ADD:
    case OP_MUL:
        run_row_op(p, o, row_binary);
        return 1;
    case OP_ROPE:
        run_row_op(p, o, row_rope);
        return 1;
    case OP_KV_WRITE:
        cpu_attend_write(p, o);
        return 1;
    case OP_ATTN:
        cpu_attend_run(p, o);
        return 1;
    case OP_POOL:
        run_row_op(p, o, row_pool);
        return 1;
    case OP_SAMPLE:
    case OP_TOP_K:
        return cpu_answer_run(p, i);
    case OP_ROPE_QK:
    case OP_MATMUL_GLU:
    case OP_MOE_GLU:
    case OP_COUNT:
        break;
    }
    must(false); /* plan_expand left a kind that cpu_backend_ops does not name */
    return 1;
}

/* One row's angles are not worth a wake. */
static uint32_t rope_parts(const struct prepared *p)
{
    return p->step->rows < 16 ? 1 : p->d->workers;
}

static void rope_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    struct prepared *p = ctx;
    (void)worker;
    struct cpu_rope_table *t = &p->ropes[chunk % p->ropes_count];
    uint32_t part = chunk / p->ropes_count, parts = rope_parts(p);
    uint32_t first = (uint32_t)((uint64_t)p->step->rows * part / parts);
    uint32_t last = (uint32_t)((uint64_t)p->step->rows * (part + 1) / parts);
    struct rope_table_args a = {.table = t->table + (size_t)first * t->pairs,
                                .freqs = t->freqs,
                                .pos = p->step->pos + first,
                                .rows = last - first,
                                .pairs = t->pairs,
                                .mscale = t->op->mscale};
    if (a.rows)
        p->d->k.rope_table(&a);
}

static void find_sequences(struct prepared *p)
{
    const struct step *s = p->step;
    uint32_t seq = 0;
    p->seq_first[0] = 0;
    for (uint32_t r = 0; r < s->rows; r++)
        while (seq < s->seq[r])
            p->seq_first[++seq] = r;
    while (seq < s->seqs)
        p->seq_first[++seq] = s->rows;
}

void cpu_run_plan(struct prepared *p, const struct step *s)
{
    must(s->rows <= p->limits.rows_max && s->outs <= p->limits.outs_max &&
         s->seqs <= p->limits.seqs_max);
    p->step = s;
    cpu_mul_begin(p);
    find_sequences(p);
    cpu_attend_begin(p);
    if (p->ropes_count) {
        struct thread_job job = {rope_chunk, p, p->ropes_count * rope_parts(p)};
        cpu_run_region(p, &job);
    }
    for (uint32_t i = 0; i < p->plan->enter_count; i++) {
        uint16_t value = p->plan->enter[i];
        memcpy(cpu_run_out(p, value), s->enter[i],
               (size_t)s->rows * p->plan->values[value].width * sizeof(float));
    }
    for (uint32_t i = 0; i < p->plan->ops_count;) {
        i += run_op(p, i);
        atomic_fetch_add_explicit(&p->d->ops_done, 1, memory_order_relaxed);
    }
    p->step = NULL;
}

/* ---- prepare: slots, rope tables ---- */

static bool same_rope(const struct prepared *p, const struct cpu_rope_table *t, const struct op *o)
{
    const struct op_rope *a = t->op, *b = &o->a.rope;
    (void)p;
    return t->divisors == o->weight[0] && a->n_rot == b->n_rot && a->base == b->base &&
           a->freq_scale == b->freq_scale && a->ext == b->ext && a->low == b->low &&
           a->high == b->high && a->mscale == b->mscale;
}

static uint32_t find_rope(struct prepared *p, const struct op *o)
{
    uint32_t i = 0;
    while (i < p->ropes_count && !same_rope(p, &p->ropes[i], o))
        i++;
    return i;
}

static bool prepare_ropes(struct prepared *p, struct err *e)
{
    const struct plan *plan = p->plan;
    struct mem *m = &p->d->mem;
    p->rope_table = mem_new_array(m, "plan", plan->ops_count, sizeof(*p->rope_table), e);
    p->ropes = mem_new_array(m, "plan", plan->ops_count, sizeof(*p->ropes), e);
    if (!p->rope_table || !p->ropes)
        return false;
    for (uint32_t i = 0; i < plan->ops_count; i++) {
        const struct op *o = &plan->ops[i];
        if (o->kind != OP_ROPE)
            continue;
        uint32_t at = find_rope(p, o);
        p->rope_table[i] = (uint16_t)at;
        if (at < p->ropes_count)
            continue;
        struct cpu_rope_table *t = &p->ropes[p->ropes_count++];
        t->op = &o->a.rope;
        t->divisors = o->weight[0];
        t->pairs = o->a.rope.n_rot / 2;
        t->freqs = mem_new_array(m, "plan", t->pairs, sizeof(float), e);
        t->table = mem_new_array(m, "scratch", (size_t)p->limits.rows_max * t->pairs,
                                 sizeof(*t->table), e);
        if (!t->freqs || !t->table)
            return false;
        op_rope_freqs(t->op, cpu_run_vector(p, t->divisors), t->freqs);
    }
    return true;
}

bool cpu_run_prepare(struct prepared *p, struct err *e)
{
    const struct plan *plan = p->plan;
    struct mem *m = &p->d->mem;
    p->slot = mem_new_array(m, "plan", plan->slots_count, sizeof(*p->slot), e);
    p->seq_first = mem_new_array(m, "plan", (size_t)p->limits.seqs_max + 1, sizeof(uint32_t), e);
    if (!p->slot || !p->seq_first)
        return false;
    for (uint32_t i = 0; i < plan->slots_count; i++) {
        const struct plan_slot *s = &plan->slots[i];
        size_t rows = plan_rows_max(s->rows, &p->limits);
        p->slot[i] = mem_new_array(m, "scratch", rows * s->width, sizeof(float), e);
        if (!p->slot[i])
            return false;
    }
    p->scratch_size = base_max(CPU_MATMUL_SCRATCH, CPU_ATTN_SCRATCH);
    if (!prepare_ropes(p, e) || !cpu_mul_prepare(p, e) || !cpu_attend_prepare(p, e) ||
        !cpu_answer_prepare(p, e))
        return false;
    p->scratch_size = base_align(p->scratch_size, 4096);
    p->scratch = mem_new_array(m, "scratch", p->d->workers, p->scratch_size, e);
    return p->scratch != NULL;
}
