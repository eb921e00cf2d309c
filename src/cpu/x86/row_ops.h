/* row_ops - norms, elementwise ops, rope and the sums that sampling needs, one text per x86 level.
 *
 * Owns:      walking views in 16 lanes.
 * Not:       what an op computes (ref/ref_ops.c, ref/ref_sample.c), functions (vec_math.h).
 * Invariant: bit for bit ref's results: sums in 16 lanes by index mod 16, one tree.
 *
 *     row of a view   | group 0: width | gap | group 1: width | ...   each group: 16, 16, ..., rest
 *
 * Thread:    pool threads.
 * Limits:    none of its own.
 */
#ifndef SHOAL_CPU_X86_ROW_OPS_H
#define SHOAL_CPU_X86_ROW_OPS_H

#include "cpu/cpu_kernels.h"
#include "cpu/x86/vec_math.h"

#if defined(__AVX2__)

VEC_INLINE vf row_load(const float *p, size_t n)
{
    return n >= VEC_LANES ? vf_load(p) : vf_load_part(p, n);
}

VEC_INLINE void row_store(float *p, vf x, size_t n)
{
    if (n >= VEC_LANES)
        vf_store(p, x);
    else
        vf_store_part(p, x, n);
}

static size_t row_columns(const struct cpu_view *v) { return (size_t)v->width * v->count; }

static const float *row_at(const struct cpu_view *v, size_t row, size_t c)
{
    return v->p + row * v->row + c / v->width * v->group + c % v->width;
}

/* ---- one input, one output ---- */

struct row_context {
    float number;
};

VEC_INLINE void row_map(const struct act_args *a, vf (*f)(vf x, const struct row_context *c))
{
    const struct row_context c = {a->number};
    float *out = a->out;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t g = 0; g < a->x.count; g++, out += a->x.width) {
            const float *x = a->x.p + r * a->x.row + g * a->x.group;
            for (size_t i = 0; i < a->x.width; i += VEC_LANES) {
                size_t n = a->x.width - i;
                row_store(out + i, f(row_load(x + i, n), &c), n);
            }
        }
}

VEC_INLINE vf row_silu(vf x, const struct row_context *c) { return (void)c, vf_silu(x); }
VEC_INLINE vf row_gelu_tanh(vf x, const struct row_context *c) { return (void)c, vf_gelu_tanh(x); }
VEC_INLINE vf row_gelu_erf(vf x, const struct row_context *c) { return (void)c, vf_gelu_erf(x); }
VEC_INLINE vf row_relu(vf x, const struct row_context *c)
{
    (void)c;
    return vf_select(vf_lt(x, vf_zero()), vf_zero(), x);
}
VEC_INLINE vf row_sigmoid(vf x, const struct row_context *c) { return (void)c, vf_sigmoid(x); }
VEC_INLINE vf row_tanh(vf x, const struct row_context *c) { return (void)c, vf_tanh(x); }
VEC_INLINE vf row_softplus(vf x, const struct row_context *c) { return (void)c, vf_softplus(x); }
VEC_INLINE vf row_exp(vf x, const struct row_context *c) { return (void)c, vf_exp(x); }
VEC_INLINE vf row_same(vf x, const struct row_context *c) { return (void)c, x; }
VEC_INLINE vf row_times(vf x, const struct row_context *c) { return vf_mul(vf_set1(c->number), x); }
VEC_INLINE vf row_cap(vf x, const struct row_context *c)
{
    vf cap = vf_set1(c->number);
    return vf_mul(cap, vf_tanh(vf_div(x, cap)));
}

static void row_act(const struct act_args *a)
{
    switch (a->kind) {
    case OP_ACT_SILU:
        row_map(a, row_silu);
        return;
    case OP_ACT_GELU_TANH:
        row_map(a, row_gelu_tanh);
        return;
    case OP_ACT_GELU_ERF:
        row_map(a, row_gelu_erf);
        return;
    case OP_ACT_RELU:
        row_map(a, row_relu);
        return;
    case OP_ACT_SIGMOID:
        row_map(a, row_sigmoid);
        return;
    case OP_ACT_TANH:
        row_map(a, row_tanh);
        return;
    case OP_ACT_SOFTPLUS:
        row_map(a, row_softplus);
        return;
    case OP_ACT_EXP:
        row_map(a, row_exp);
        return;
    case OP_ACT_COUNT:
        break;
    }
    dmust(a->kind < OP_ACT_COUNT);
}

static void row_scale(const struct act_args *a) { row_map(a, row_times); }
static void row_softcap(const struct act_args *a) { row_map(a, row_cap); }
static void row_copy(const struct act_args *a) { row_map(a, row_same); }

/* ---- two inputs ---- */

VEC_INLINE vf row_glu_gate(const struct op_glu *o, vf gate)
{
    switch (o->kind) {
    case OP_ACT_SILU:
        return vf_div(gate, vf_one_plus_exp(vf_neg(vf_mul(vf_set1(o->alpha), gate))));
    case OP_ACT_GELU_TANH:
        return vf_gelu_tanh(gate);
    case OP_ACT_GELU_ERF:
        return vf_gelu_erf(gate);
    case OP_ACT_RELU:
        return vf_select(vf_lt(gate, vf_zero()), vf_zero(), gate);
    case OP_ACT_SIGMOID:
        return vf_sigmoid(gate);
    case OP_ACT_TANH:
        return vf_tanh(gate);
    case OP_ACT_SOFTPLUS:
        return vf_softplus(gate);
    case OP_ACT_EXP:
        return vf_exp(gate);
    case OP_ACT_COUNT:
        break;
    }
    return gate;
}

VEC_INLINE vf row_glu_of(const struct op_glu *o, vf gate, vf up)
{
    if (o->clamp_gate > 0.0f) {
        vf most = vf_set1(o->clamp_gate);
        gate = vf_select(vf_lt(most, gate), most, gate);
    }
    if (o->clamp_up > 0.0f) {
        vf most = vf_set1(o->clamp_up), least = vf_set1(-o->clamp_up);
        up = vf_select(vf_lt(most, up), most, up);
        up = vf_select(vf_lt(up, least), least, up);
    }
    return vf_mul(row_glu_gate(o, gate), vf_add(up, vf_set1(o->up_add)));
}

/* Both views walk together in runs that no gap of either interrupts. */
static size_t row_run(const struct cpu_view *a, const struct cpu_view *b, size_t c)
{
    size_t left_a = a->width - c % a->width, left_b = b->width - c % b->width;
    return left_a < left_b ? left_a : left_b;
}

static void row_glu(const struct glu_args *a)
{
    size_t columns = row_columns(&a->gate);
    for (size_t r = 0; r < a->rows; r++)
        for (size_t c = 0, run; c < columns; c += run) {
            run = row_run(&a->gate, &a->up, c);
            const float *gate = row_at(&a->gate, r, c), *up = row_at(&a->up, r, c);
            float *out = a->out + r * columns + c;
            for (size_t i = 0; i < run; i += VEC_LANES) {
                size_t n = run - i;
                vf x = row_glu_of(a->op, row_load(gate + i, n), row_load(up + i, n));
                row_store(out + i, x, n);
            }
        }
}

VEC_INLINE vf row_binary_of(vf x, vf y, bool is_mul)
{
    return is_mul ? vf_mul(x, y) : vf_add(x, y);
}

/* One number for a whole row. */
VEC_INLINE void row_with_number(const struct binary_args *a, size_t r, float number, bool is_mul)
{
    float *out = a->out + r * row_columns(&a->a);
    for (size_t g = 0; g < a->a.count; g++, out += a->a.width) {
        const float *x = a->a.p + r * a->a.row + g * a->a.group;
        for (size_t i = 0; i < a->a.width; i += VEC_LANES) {
            size_t n = a->a.width - i;
            row_store(out + i, row_binary_of(row_load(x + i, n), vf_set1(number), is_mul), n);
        }
    }
}

VEC_INLINE void row_binary(const struct binary_args *a, bool is_mul)
{
    size_t columns = row_columns(&a->a);
    struct cpu_view b = a->b;
    if (!b.p) /* a weight: the same row every time */
        b = (struct cpu_view){a->weight, 0, a->weight_count, a->weight_count, 1};
    for (size_t r = 0; r < a->rows; r++) {
        if (row_columns(&b) == 1 && columns > 1) {
            row_with_number(a, r, b.p[r * b.row], is_mul);
            continue;
        }
        for (size_t c = 0, run; c < columns; c += run) {
            run = row_run(&a->a, &b, c);
            const float *x = row_at(&a->a, r, c), *y = row_at(&b, r, c);
            float *out = a->out + r * columns + c;
            for (size_t i = 0; i < run; i += VEC_LANES) {
                size_t n = run - i;
                vf z = row_binary_of(row_load(x + i, n), row_load(y + i, n), is_mul);
                row_store(out + i, z, n);
            }
        }
    }
}

static void row_add(const struct binary_args *a) { row_binary(a, false); }
static void row_mul(const struct binary_args *a) { row_binary(a, true); }

/* ---- norms ---- */

static float row_square_sum(const float *x, size_t n)
{
    vf lane = vf_zero();
    for (size_t i = 0; i < n; i += VEC_LANES) {
        vf v = row_load(x + i, n - i);
        lane = vf_fma(v, v, lane);
    }
    return vf_tree(lane);
}

static void row_norm(float *out, const float *x, const float *weight, size_t n, float eps)
{
    vf inv = vf_set1(1.0f / sqrtf(row_square_sum(x, n) / (float)n + eps));
    for (size_t i = 0; i < n; i += VEC_LANES) {
        vf y = vf_mul(row_load(x + i, n - i), inv);
        row_store(out + i, weight ? vf_mul(y, row_load(weight + i, n - i)) : y, n - i);
    }
}

static void row_rms_norm(const struct norm_args *a)
{
    size_t m = row_columns(&a->x) / a->groups;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t g = 0; g < a->groups; g++)
            row_norm(a->out + (r * a->groups + g) * m, row_at(&a->x, r, g * m), a->weight, m,
                     a->eps);
}

static void row_add_rms_norm(const struct add_norm_args *a)
{
    size_t n = row_columns(&a->a);
    struct binary_args sum = {.a = a->a, .b = a->b, .out = a->sum, .rows = a->rows};
    row_add(&sum);
    for (size_t r = 0; r < a->rows; r++)
        row_norm(a->out + r * n, a->sum + r * n, a->weight, n, a->eps);
}

static void row_layer_norm_one(const struct norm_args *a, float *out, const float *x, size_t n)
{
    vf sums = vf_zero(), squares = vf_zero();
    for (size_t i = 0; i < n; i += VEC_LANES)
        sums = vf_add(sums, row_load(x + i, n - i));
    vf mean = vf_set1(vf_tree(sums) / (float)n);
    for (size_t i = 0; i < n; i += VEC_LANES) {
        vf d = vf_sub(row_load(x + i, n - i), mean);
        d = n - i < VEC_LANES ? vf_keep(d, n - i) : d;
        squares = vf_fma(d, d, squares);
    }
    vf inv = vf_set1(1.0f / sqrtf(vf_tree(squares) / (float)n + a->eps));
    for (size_t i = 0; i < n; i += VEC_LANES) {
        vf t = vf_mul(vf_sub(row_load(x + i, n - i), mean), inv);
        if (a->weight)
            t = vf_mul(t, row_load(a->weight + i, n - i));
        if (a->bias)
            t = vf_add(t, row_load(a->bias + i, n - i));
        row_store(out + i, t, n - i);
    }
}

/* A row with gaps is taken to the output first. */
static void row_layer_norm(const struct norm_args *a)
{
    size_t n = row_columns(&a->x);
    for (size_t r = 0; r < a->rows; r++) {
        float *out = a->out + r * n;
        const float *x = a->x.p + r * a->x.row;
        if (a->x.count > 1) {
            struct act_args copy = {.x = a->x, .out = out, .rows = 1};
            copy.x.p = x;
            row_copy(&copy);
            x = out;
        }
        row_layer_norm_one(a, out, x, n);
    }
}

/* ---- rope ---- */

VEC_INLINE void row_rotate(vf *x, vf *y, vf c, vf s)
{
    vf a = *x, b = *y;
    *x = vf_fms(a, c, vf_mul(b, s));
    *y = vf_fma(a, s, vf_mul(b, c));
}

/* Pairs 16 i .. 16 i + 15 of a head; the rest of a head one by one. */
static size_t row_rope_lanes(float *out, const float *x, const float (*table)[2],
                             const struct op_rope *o)
{
    size_t pairs = o->n_rot / 2, i = 0;
    out += o->first;
    x += o->first;
    for (; i + VEC_LANES <= pairs; i += VEC_LANES) {
        vf c, s, a, b;
        vf_load_pairs(table[i], &c, &s);
        if (o->kind == OP_ROPE_NORM) {
            vf_load_pairs(x + 2 * i, &a, &b);
            row_rotate(&a, &b, c, s);
            vf_store_pairs(out + 2 * i, a, b);
        } else {
            a = vf_load(x + i);
            b = vf_load(x + pairs + i);
            row_rotate(&a, &b, c, s);
            vf_store(out + i, a);
            vf_store(out + pairs + i, b);
        }
    }
    return i;
}

static void row_rope_head(float *out, const float *x, const float (*table)[2],
                          const struct op_rope *o)
{
    size_t pairs = o->n_rot / 2, end = o->first + o->n_rot;
    for (size_t i = 0; i < o->first; i++)
        out[i] = x[i];
    for (size_t i = end; i < o->head_dim; i++)
        out[i] = x[i];
    for (size_t i = row_rope_lanes(out, x, table, o); i < pairs; i++) {
        size_t at = o->first + (o->kind == OP_ROPE_NORM ? 2 * i : i);
        size_t other = o->kind == OP_ROPE_NORM ? at + 1 : at + pairs;
        float a = x[at], b = x[other], c = table[i][0], s = table[i][1];
        out[at] = fmaf(a, c, -(b * s));
        out[other] = fmaf(a, s, b * c);
    }
}

static void row_rope(const struct rope_args *a)
{
    const struct op_rope *o = a->op;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t h = 0; h < o->heads; h++)
            row_rope_head(a->out + (r * o->heads + h) * o->head_dim,
                          row_at(&a->x, r, h * o->head_dim), a->table + r * (o->n_rot / 2), o);
}

/* ---- experts, sampling ---- */

static void row_moe_sum(const struct moe_sum_args *a)
{
    size_t d = row_columns(&a->y) / a->k;
    dmust(a->y.count == 1);
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = 0; i < d; i += VEC_LANES) {
            const float *y = a->y.p + r * a->y.row + i;
            vf sum = vf_mul(vf_set1(*row_at(&a->w, r, 0)), row_load(y, d - i));
            for (size_t k = 1; k < a->k; k++)
                sum = vf_fma(vf_set1(*row_at(&a->w, r, k)), row_load(y + k * d, d - i), sum);
            row_store(a->out + r * d + i, sum, d - i);
        }
}

static float row_max(const float *x, size_t count)
{
    vf most[4];
    float lane[VEC_LANES], max = -INFINITY;
    size_t i = 0;
    for (size_t j = 0; j < 4; j++)
        most[j] = vf_set1(-INFINITY);
    for (; i + 64 <= count; i += 64)
        VEC_UNROLL for (int j = 0; j < 4; j++)
            most[j] = vf_max(vf_load(x + i + 16 * j), most[j]);
    vf_store(lane, vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3])));
    for (size_t j = 0; j < VEC_LANES; j++)
        max = lane[j] > max ? lane[j] : max;
    for (; i < count; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

#define ROW_BLOCK 256u

VEC_INLINE void row_exp_block(const struct exp_sums_args *a, size_t first, size_t count)
{
    const vf max = vf_set1(a->max), scale = vf_set1(a->scale);
    vf lane = vf_zero();
    for (size_t i = first; i < first + count; i += VEC_LANES) {
        size_t n = first + count - i;
        vf e = vf_exp(vf_mul(vf_sub(row_load(a->x + i, n), max), scale));
        if (a->e)
            row_store(a->e + i, e, n);
        lane = vf_add(lane, n < VEC_LANES ? vf_keep(e, n) : e);
    }
    a->sums[first / ROW_BLOCK] = vf_tree(lane);
}

static void row_exp_sums(const struct exp_sums_args *a)
{
    for (size_t first = 0; first < a->count; first += ROW_BLOCK)
        row_exp_block(a, first, base_min(ROW_BLOCK, a->count - first));
}

static void row_ops_add(struct cpu_kernels *k)
{
    k->rms_norm = row_rms_norm;
    k->layer_norm = row_layer_norm;
    k->add_rms_norm = row_add_rms_norm;
    k->act = row_act;
    k->scale = row_scale;
    k->softcap = row_softcap;
    k->copy = row_copy;
    k->glu = row_glu;
    k->add = row_add;
    k->mul = row_mul;
    k->rope = row_rope;
    k->moe_sum = row_moe_sum;
    k->row_max = row_max;
    k->exp_sums = row_exp_sums;
}

#endif
#endif
