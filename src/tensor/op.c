#include "tensor/op.h"

#include <math.h>

#include "tensor/plan.h"

/* ---- views ---- */

struct view op_view(const struct plan *p, uint16_t value)
{
    if (value >= p->values_count)
        return op_none();
    uint32_t width = p->values[value].width;
    return (struct view){value, 0, width, width, 1};
}

struct view op_slice(struct view v, uint32_t first, uint32_t width)
{
    if (op_is_none(v))
        return v;
    must(!op_has_gaps(v));
    return (struct view){v.value, v.first + first, width, width, 1};
}

struct view op_groups(struct view v, uint32_t first, uint32_t width, uint32_t stride,
                      uint32_t count)
{
    if (op_is_none(v))
        return v;
    must(!op_has_gaps(v));
    return (struct view){v.value, v.first + first, width, stride, count};
}

/* ---- constructors ----
 *
 * Each fills a struct op, makes its output values and appends it. A plan that has failed makes no
 * values: then views are none, and plan_append does nothing. */

static struct op make(enum op_kind kind)
{
    struct op o = {.kind = kind};
    for (uint32_t i = 0; i < OP_IN_MAX; i++)
        o.in[i] = op_none();
    for (uint32_t i = 0; i < OP_OUT_MAX; i++)
        o.out[i] = TENSOR_NONE;
    for (uint32_t i = 0; i < OP_WEIGHT_MAX; i++)
        o.weight[i] = TENSOR_NONE;
    return o;
}

static struct op make_in(enum op_kind kind, struct view x)
{
    struct op o = make(kind);
    o.in[0] = x;
    return o;
}

static enum plan_rows rows_of(const struct plan *p, struct view v)
{
    return v.value < p->values_count ? p->values[v.value].rows : PLAN_ROWS_N;
}

static uint32_t weight_rows(const struct plan *p, uint16_t w)
{
    return w < p->weights_count ? p->weights[w].want.rows : 0;
}

static uint32_t weight_cols(const struct plan *p, uint16_t w)
{
    return w < p->weights_count ? p->weights[w].want.cols : 0;
}

/* Appends o with one f32 output of that width and the rows of its first input. */
static struct view emit(struct plan *p, struct op *o, uint32_t width)
{
    o->out[0] = plan_value(p, rows_of(p, o->in[0]), width, VTYPE_F32);
    plan_append(p, o);
    return op_view(p, o->out[0]);
}

struct view op_embed(struct plan *p, uint16_t w, struct op_embed a)
{
    struct op o = make(OP_EMBED);
    o.weight[0] = w;
    o.a.embed = a;
    return emit(p, &o, weight_cols(p, w));
}

struct view op_rows(struct plan *p, struct view x)
{
    struct op o = make_in(OP_ROWS, x);
    o.out[0] = plan_value(p, PLAN_ROWS_O, op_width(x), VTYPE_F32);
    plan_append(p, &o);
    return op_view(p, o.out[0]);
}

struct view op_rms_norm(struct plan *p, struct view x, uint16_t w, float eps, uint32_t groups)
{
    struct op o = make_in(OP_RMS_NORM, x);
    o.weight[0] = w;
    o.a.norm = (struct op_norm){eps, groups};
    return emit(p, &o, op_width(x));
}

struct view op_layer_norm(struct plan *p, struct view x, uint16_t w, uint16_t b, float eps)
{
    struct op o = make_in(OP_LAYER_NORM, x);
    o.weight[0] = w;
    o.weight[1] = b;
    o.a.norm = (struct op_norm){eps, 1};
    return emit(p, &o, op_width(x));
}

struct view op_matmul(struct plan *p, struct view x, uint16_t w, uint16_t b, uint16_t s)
{
    struct op o = make_in(OP_MATMUL, x);
    o.weight[0] = w;
    o.weight[1] = b;
    o.weight[2] = s;
    return emit(p, &o, weight_rows(p, w));
}

struct view op_act(struct plan *p, struct view x, enum op_act kind)
{
    struct op o = make_in(OP_ACT, x);
    o.a.act = kind;
    return emit(p, &o, op_width(x));
}

struct view op_glu(struct plan *p, struct view gate, struct view up, struct op_glu a)
{
    struct op o = make_in(OP_GLU, gate);
    o.in[1] = up;
    o.a.glu = a;
    return emit(p, &o, op_width(gate));
}

static struct view binary(struct plan *p, enum op_kind kind, struct view a, struct view b,
                          uint16_t w)
{
    struct op o = make_in(kind, a);
    o.in[1] = b;
    o.weight[0] = w;
    return emit(p, &o, op_width(a));
}

struct view op_add(struct plan *p, struct view a, struct view b)
{
    return binary(p, OP_ADD, a, b, TENSOR_NONE);
}

struct view op_add_weight(struct plan *p, struct view a, uint16_t w)
{
    return binary(p, OP_ADD, a, op_none(), w);
}

struct view op_mul(struct plan *p, struct view a, struct view b)
{
    return binary(p, OP_MUL, a, b, TENSOR_NONE);
}

struct view op_mul_weight(struct plan *p, struct view a, uint16_t w)
{
    return binary(p, OP_MUL, a, op_none(), w);
}

struct view op_scale(struct plan *p, struct view x, float factor)
{
    struct op o = make_in(OP_SCALE, x);
    o.a.number = (struct op_number){factor};
    return emit(p, &o, op_width(x));
}

struct view op_softcap(struct plan *p, struct view x, float cap)
{
    struct op o = make_in(OP_SOFTCAP, x);
    o.a.number = (struct op_number){cap};
    return emit(p, &o, op_width(x));
}

struct view op_rope(struct plan *p, struct view x, uint16_t freqs, struct op_rope a)
{
    struct op o = make_in(OP_ROPE, x);
    o.weight[0] = freqs;
    o.a.rope = a;
    return emit(p, &o, op_width(x));
}

void op_kv_write(struct plan *p, uint16_t layer, struct view k, struct view v, struct op_kv a)
{
    struct op o = make_in(OP_KV_WRITE, k);
    o.layer = layer;
    o.in[1] = v;
    o.a.kv = a;
    plan_append(p, &o);
}

struct view op_attn(struct plan *p, uint16_t layer, struct view q, uint16_t sinks,
                    struct op_attn a)
{
    struct op o = make_in(OP_ATTN, q);
    o.layer = layer;
    o.weight[0] = sinks;
    o.a.attn = a;
    return emit(p, &o, a.heads * a.dv);
}

struct view op_pool(struct plan *p, struct view x, struct op_pooling a)
{
    struct op o = make_in(OP_POOL, x);
    o.a.pool = a;
    o.out[0] = plan_value(p, PLAN_ROWS_S, op_width(x), VTYPE_F32);
    plan_append(p, &o);
    p->pooled = o.out[0];
    return op_view(p, o.out[0]);
}

static void answer(struct plan *p, enum op_kind kind, struct view logits)
{
    struct op o = make_in(kind, logits);
    plan_append(p, &o);
    p->logits = logits.value;
    p->vocab = op_width(logits);
}

void op_sample(struct plan *p, struct view logits) { answer(p, OP_SAMPLE, logits); }

void op_top_k(struct plan *p, struct view logits) { answer(p, OP_TOP_K, logits); }

struct op_routed op_moe_route(struct plan *p, struct view logits, uint16_t bias, struct op_route a)
{
    struct op o = make_in(OP_MOE_ROUTE, logits);
    o.weight[0] = bias;
    o.a.route = a;
    o.out[0] = plan_value(p, rows_of(p, logits), a.k, VTYPE_I32);
    o.out[1] = plan_value(p, rows_of(p, logits), a.k, VTYPE_F32);
    plan_append(p, &o);
    return (struct op_routed){op_view(p, o.out[0]), op_view(p, o.out[1])};
}

struct view op_moe_matmul(struct plan *p, struct view x, struct view ids,
                          struct op_expert_weights w)
{
    struct op o = make_in(OP_MOE_MATMUL, x);
    o.in[1] = ids;
    o.weight[0] = w.w;
    o.weight[1] = w.b;
    o.weight[2] = w.s;
    o.a.experts = (struct op_experts){op_width(ids)};
    return emit(p, &o, op_width(ids) * weight_rows(p, w.w));
}

struct view op_moe_sum(struct plan *p, struct view y, struct view w)
{
    struct op o = make_in(OP_MOE_SUM, y);
    o.in[1] = w;
    o.a.experts = (struct op_experts){op_width(w)};
    return emit(p, &o, op_width(w) ? op_width(y) / op_width(w) : 0);
}

struct op_sum_norm op_add_rms_norm(struct plan *p, struct view a, struct view b, uint16_t w,
                                   float eps)
{
    struct op o = make_in(OP_ADD_RMS_NORM, a);
    o.in[1] = b;
    o.weight[0] = w;
    o.a.norm = (struct op_norm){eps, 1};
    o.out[0] = plan_value(p, rows_of(p, a), op_width(a), VTYPE_F32);
    o.out[1] = plan_value(p, rows_of(p, a), op_width(a), VTYPE_F32);
    plan_append(p, &o);
    return (struct op_sum_norm){op_view(p, o.out[0]), op_view(p, o.out[1])};
}

struct view op_rope_qk(struct plan *p, uint16_t layer, struct op_qkv x, struct op_rope_qk a)
{
    struct op o = make_in(OP_ROPE_QK, x.q);
    o.layer = layer;
    o.in[1] = x.k;
    o.in[2] = x.v;
    o.weight[0] = x.q_norm;
    o.weight[1] = x.k_norm;
    o.weight[2] = x.freqs;
    o.a.rope_qk = a;
    return emit(p, &o, op_width(x.q));
}

static void set_gate_up(struct op *o, struct op_gate_up w)
{
    o->weight[0] = w.gate;
    o->weight[1] = w.up;
    o->weight[2] = w.gate_b;
    o->weight[3] = w.up_b;
}

struct view op_matmul_glu(struct plan *p, struct view x, struct op_gate_up w, struct op_glu a)
{
    struct op o = make_in(OP_MATMUL_GLU, x);
    set_gate_up(&o, w);
    o.a.glu = a;
    return emit(p, &o, weight_rows(p, w.gate));
}

struct view op_moe_glu(struct plan *p, struct view x, struct view ids, struct op_gate_up w,
                       struct op_glu a)
{
    struct op o = make_in(OP_MOE_GLU, x);
    o.in[1] = ids;
    set_gate_up(&o, w);
    o.a.moe_glu = (struct op_moe_glu){{op_width(ids)}, a};
    return emit(p, &o, op_width(ids) * weight_rows(p, w.gate));
}

/* ---- rope ---- */

/* pow of libm in double, rounded to float: its last bit in double does not reach the float but in
 * one of some 2^28 cases, and all of a machine's backends call this one function. */
void op_rope_freqs(const struct op_rope *r, const float *divisors, float *out)
{
    double width = fmax(0.001, (double)r->high - (double)r->low);
    for (uint32_t i = 0; i < r->n_rot / 2; i++) {
        double plain = pow((double)r->base, -2.0 * i / r->n_rot);
        double scaled = plain * (double)r->freq_scale;
        double ramp = fmin(1.0, fmax(0.0, ((double)i - (double)r->low) / width));
        double keep = (1.0 - ramp) * (double)r->ext; /* share that extrapolates */
        double f = r->ext > 0.0f ? scaled * (1.0 - keep) + plain * keep : scaled;
        out[i] = (float)(divisors ? f / (double)divisors[i] : f);
    }
}
