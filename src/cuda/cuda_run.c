#include "cuda/cuda_run.h"

#include <string.h>

/* One op of a plan becomes one or a few launches. Inputs of the step lie in p->in at p->at. */

/* ---- values ---- */

uint32_t cuda_run_rows(const struct prepared *p, uint16_t value)
{
    switch (p->plan->values[value].rows) {
    case PLAN_ROWS_N:
        return p->shape.rows;
    case PLAN_ROWS_O:
        return p->shape.outs;
    case PLAN_ROWS_S:
        return p->shape.seqs;
    case PLAN_ROWS_COUNT:
        break;
    }
    must(false);
    return 0;
}

cuda_ptr cuda_run_value(const struct prepared *p, uint16_t value)
{
    return value == TENSOR_NONE ? 0 : p->slots[p->plan->values[value].slot];
}

struct cuda_view cuda_run_view(const struct prepared *p, struct view v)
{
    if (v.value == TENSOR_NONE)
        return (struct cuda_view){0};
    return (struct cuda_view){
        .p = cuda_run_value(p, v.value),
        .stride = p->plan->values[v.value].width,
        .first = v.first,
        .width = op_width(v),
        .group_width = op_has_gaps(v) ? v.width : 1,
        .group_stride = op_has_gaps(v) ? v.stride : 1,
    };
}

const struct cuda_weight *cuda_run_weight(const struct prepared *p, uint16_t w)
{
    return w == TENSOR_NONE ? NULL : p->weights[w].device;
}

cuda_ptr cuda_run_vector(const struct prepared *p, uint16_t w)
{
    const struct cuda_weight *c = cuda_run_weight(p, w);
    return c ? c->p : 0;
}

bool cuda_run_launch(struct prepared *p, cuda_function f, struct cuda_grid g,
                     const void *args, struct err *e)
{
    if (g.x == 0 || g.y == 0 || g.z == 0)
        return true;
    return cuda_kernels_launch(&p->d->k, f, g, args, p->d->stream, e);
}

struct cuda_grid cuda_run_grid(uint32_t x, uint32_t y, uint32_t threads)
{
    return (struct cuda_grid){.x = x, .y = y, .z = 1, .threads = threads};
}

/* ---- row ops ---- */

static bool cuda_run_embed(struct prepared *p, const struct op *o, struct err *e)
{
    const struct cuda_weight *c = cuda_run_weight(p, o->weight[0]);
    const size_t from[] = {[OP_INDEX_TOKENS] = p->at.ids,
                           [OP_INDEX_POSITIONS] = p->at.pos,
                           [OP_INDEX_AUX] = p->at.aux};
    struct cuda_embed_args a = {
        .w = c->p,
        .ids = p->in + from[o->a.embed.index],
        .out = cuda_run_value(p, o->out[0]),
        .format = c->format,
        .cols = p->weights[o->weight[0]].cols,
        .kp = c->kp,
        .rows = p->shape.rows,
        .vocab = p->weights[o->weight[0]].rows,
        .scale = o->a.embed.scale,
    };
    return cuda_run_launch(p, p->d->k.pack_embed, cuda_run_grid((a.cols + 255) / 256, a.rows, 256),
                           &a, e);
}

static bool cuda_run_norm(struct prepared *p, const struct op *o, uint32_t index, struct err *e)
{
    bool has_add = o->kind == OP_ADD_RMS_NORM;
    uint32_t width = op_width(o->in[0]);
    struct cuda_norm_args a = {
        .x = cuda_run_view(p, o->in[0]),
        .w = cuda_run_vector(p, o->weight[0]),
        .out = cuda_run_value(p, o->out[has_add ? 1 : 0]),
        .rows = cuda_run_rows(p, o->in[0].value),
        .groups = o->a.norm.groups,
        .width = width / o->a.norm.groups,
        .eps = o->a.norm.eps,
        .is_layer_norm = o->kind == OP_LAYER_NORM,
    };
    if (has_add) {
        a.b = cuda_run_view(p, o->in[1]);
        a.sum = cuda_run_value(p, o->out[0]);
    }
    if (o->kind == OP_LAYER_NORM)
        a.bias = cuda_run_vector(p, o->weight[1]);
    if (a.groups == 1)
        a.act = cuda_mul_fuse_act(p, index, o->out[has_add ? 1 : 0]);
    if (o->kind == OP_LAYER_NORM || a.groups > 1 || !a.w || !cuda_mul_is_wide(a.x) ||
        (has_add && !cuda_mul_is_wide(a.b)) || a.width > 4096)
        return cuda_run_launch(p, p->d->k.ops_norm, cuda_run_grid(a.rows * a.groups, 1, 256), &a,
                               e);
    uint32_t threads = (uint32_t)base_align((a.act.q ? a.act.kp : a.width) / 4, 64);
    return cuda_run_launch(p, p->d->k.ops_norm4, cuda_run_grid(a.rows, 1, threads), &a, e);
}

/* act glu add mul scale softcap rows */
static bool cuda_run_map(struct prepared *p, const struct op *o, struct err *e)
{
    struct cuda_map_args a = {
        .a = cuda_run_view(p, o->in[0]),
        .out = cuda_run_value(p, o->out[0]),
        .rows = cuda_run_rows(p, o->out[0]),
        .width = op_width(o->in[0]),
    };
    if (o->kind == OP_ROWS) {
        a.rows_of = p->in + p->at.out_rows;
    } else if (o->kind == OP_ACT) {
        a.kind = CUDA_MAP_ACT;
        a.act = o->a.act;
    } else if (o->kind == OP_GLU) {
        a.kind = CUDA_MAP_GLU;
        a.act = o->a.glu.kind;
        a.alpha = o->a.glu.alpha;
        a.up_add = o->a.glu.up_add;
        a.clamp_gate = o->a.glu.clamp_gate;
        a.clamp_up = o->a.glu.clamp_up;
    } else if (o->kind == OP_SCALE || o->kind == OP_SOFTCAP) {
        a.kind = o->kind == OP_SCALE ? CUDA_MAP_SCALE : CUDA_MAP_SOFTCAP;
        a.x = o->a.number.x;
    } else {
        a.kind = o->kind == OP_ADD ? CUDA_MAP_ADD : CUDA_MAP_MUL;
    }
    if (!op_is_none(o->in[1])) {
        a.b = cuda_run_view(p, o->in[1]);
        a.b_width = op_width(o->in[1]);
        a.b_per_row = 1;
    } else if (o->weight[0] != TENSOR_NONE) {
        a.b_width = p->weights[o->weight[0]].cols;
        a.b = (struct cuda_view){.p = cuda_run_vector(p, o->weight[0]),
                                 .stride = a.b_width,
                                 .width = a.b_width,
                                 .group_width = 1,
                                 .group_stride = 1};
    }
    struct cuda_grid g = cuda_run_grid((a.width + 255) / 256, a.rows, 256);
    return cuda_run_launch(p, p->d->k.ops_map, g, &a, e);
}

struct cuda_rope_args cuda_run_rope_args(const struct prepared *p, struct op_rope r,
                                         struct view x, uint32_t index)
{
    return (struct cuda_rope_args){
        .x = cuda_run_view(p, x),
        .freqs = p->freqs[index],
        .pos = p->in + p->at.pos,
        .rows = p->shape.rows,
        .heads = r.heads,
        .head_dim = r.head_dim,
        .n_rot = r.n_rot,
        .first = r.first,
        .kind = r.kind == OP_ROPE_NEOX,
        .mscale = r.mscale,
    };
}

static bool cuda_run_rope(struct prepared *p, const struct op *o, uint32_t index, struct err *e)
{
    struct cuda_rope_args a = cuda_run_rope_args(p, o->a.rope, o->in[0], index);
    a.out = cuda_run_value(p, o->out[0]);
    return cuda_run_launch(p, p->d->k.ops_rope, cuda_run_grid(a.heads, a.rows, 32), &a, e);
}

/* ---- answers ---- */

static bool cuda_run_pool(struct prepared *p, const struct op *o, struct err *e)
{
    struct cuda_pool_args a = {
        .x = cuda_run_view(p, o->in[0]),
        .seq = p->in + p->at.seq,
        .out = cuda_run_value(p, o->out[0]),
        .rows = p->shape.rows,
        .seqs = p->shape.seqs,
        .width = op_width(o->in[0]),
        .kind = o->a.pool.kind,
        .l2 = o->a.pool.l2,
    };
    return cuda_run_launch(p, p->d->k.ops_pool, cuda_run_grid(a.seqs, 1, 256), &a, e);
}

/* op sample answers for op top_k too where a plan has both. */
static bool cuda_run_sample(struct prepared *p, const struct op *o, bool has_sample, bool has_top_k,
                            struct err *e)
{
    struct cuda_answers out = cuda_step_answers(p);
    struct cuda_sample_args a = {
        .logits = cuda_run_value(p, o->in[0].value),
        .adjusted = p->adjusted,
        .rows = p->in + p->at.sample,
        .adjust = p->in + p->at.adjust,
        .mask = p->shape.flags & 1 ? p->in + p->at.mask : 0,
        .outs = p->shape.outs,
        .vocab = p->plan->vocab,
        .top_max = p->limits.top_max,
    };
    if (has_sample) {
        a.ids = p->out + out.ids;
        a.logprob = p->out + out.logprob;
    }
    if (has_top_k) {
        a.lse = p->out + out.lse;
        a.top_ids = p->out + out.top_ids;
        a.top_val = p->out + out.top_val;
        a.raw_ids = p->out + out.raw_ids;
        a.raw_val = p->out + out.raw_val;
    }
    a.best = p->best;
    a.sums = p->sums;
    uint32_t chunks = (a.vocab + CUDA_SAMPLE_CHUNK - 1) / CUDA_SAMPLE_CHUNK;
    struct cuda_grid parts = cuda_run_grid(chunks, a.outs, 512);
    return cuda_run_launch(p, p->d->k.sample_best_part, parts, &a, e) &&
           cuda_run_launch(p, p->d->k.sample_sums_part, parts, &a, e) &&
           cuda_run_launch(p, p->d->k.sample_row, cuda_run_grid(a.outs, 1, 1024), &a, e);
}

static bool cuda_run_answer(struct prepared *p, const struct op *o, struct err *e)
{
    const struct plan *plan = p->plan;
    bool has_sample = false, has_top_k = false;
    for (uint32_t i = 0; i < plan->ops_count; i++) {
        has_sample = has_sample || plan->ops[i].kind == OP_SAMPLE;
        has_top_k = has_top_k || plan->ops[i].kind == OP_TOP_K;
    }
    if (o->kind == OP_TOP_K && has_sample)
        return true;
    return cuda_run_sample(p, o, has_sample, has_top_k, e);
}

static bool cuda_run_op(struct prepared *p, uint32_t index, uint32_t *count, struct err *e)
{
    const struct op *o = &p->plan->ops[index];
    switch (o->kind) {
    case OP_EMBED:
        return cuda_run_embed(p, o, e);
    case OP_RMS_NORM:
    case OP_LAYER_NORM:
    case OP_ADD_RMS_NORM:
        return cuda_run_norm(p, o, index, e);
    case OP_MATMUL:
        return cuda_mul_matmul(p, o, p->plan->ops_count - index, count, e);
    case OP_MATMUL_GLU:
        return cuda_mul_matmul_glu(p, o, e);
    case OP_MOE_ROUTE:
        return cuda_mul_route(p, o, e);
    case OP_MOE_MATMUL:
        return cuda_mul_experts(p, o, op_width(o->in[1]), NULL, e);
    case OP_MOE_GLU:
        return cuda_mul_experts(p, o, op_width(o->in[1]), &o->a.moe_glu.glu, e);
    case OP_MOE_SUM:
        return cuda_mul_moe_sum(p, o, e);
    case OP_ROWS:
    case OP_ACT:
    case OP_GLU:
    case OP_ADD:
    case OP_MUL:
    case OP_SCALE:
    case OP_SOFTCAP:
        return cuda_run_map(p, o, e);
    case OP_ROPE:
        return cuda_run_rope(p, o, index, e);
    case OP_ROPE_QK:
        return cuda_attend_rope_qk(p, o, index, e);
    case OP_KV_WRITE:
        return cuda_attend_kv_write(p, o, e);
    case OP_ATTN:
        return cuda_attend_op(p, o, index, e);
    case OP_POOL:
        return cuda_run_pool(p, o, e);
    case OP_SAMPLE:
    case OP_TOP_K:
        return cuda_run_answer(p, o, e);
    case OP_COUNT:
        break;
    }
    return err_set(e, ERR_INTERNAL, "cuda: op %u has no kernel", (unsigned)o->kind);
}

bool cuda_run_plan(struct prepared *p, struct err *e)
{
    p->has_packed = false;
    p->packed_in = 0;
    p->sorted.ids = 0;
    for (uint32_t i = 0, count; i < p->plan->ops_count; i += count) {
        count = 1;
        if (!cuda_run_op(p, i, &count, e))
            return false;
    }
    return true;
}
