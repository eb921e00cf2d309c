/* The definition of the row ops. Each output is one expression or one sum in the order of vmath.h;
 * SIMD levels give the same bits. A row never looks at another one. */
#include "cpu/cpu_kernels.h"
#include "cpu/vmath.h"

static const float *column(const struct cpu_view *v, size_t row, size_t c)
{
    return v->p + row * v->row + c / v->width * v->group + c % v->width;
}

static size_t width_of(const struct cpu_view *v) { return (size_t)v->width * v->count; }

/* ---- norms ---- */

static void norm_row(float *out, const float *x, const float *weight, size_t n, float eps)
{
    float inv = 1.0f / sqrtf(vmath_dot(x, x, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        out[i] = weight ? x[i] * inv * weight[i] : x[i] * inv;
}

static void rms_norm(const struct norm_args *a)
{
    size_t m = width_of(&a->x) / a->groups;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t g = 0; g < a->groups; g++)
            norm_row(a->out + (r * a->groups + g) * m, column(&a->x, r, g * m), a->weight, m,
                     a->eps);
}

static void layer_norm(const struct norm_args *a)
{
    size_t n = width_of(&a->x);
    for (size_t r = 0; r < a->rows; r++) {
        float sums[VMATH_LANES] = {0}, squares[VMATH_LANES] = {0};
        for (size_t i = 0; i < n; i++)
            sums[i % VMATH_LANES] += *column(&a->x, r, i);
        float mean = vmath_tree(sums) / (float)n;
        for (size_t i = 0; i < n; i++) {
            float d = *column(&a->x, r, i) - mean;
            squares[i % VMATH_LANES] = fmaf(d, d, squares[i % VMATH_LANES]);
        }
        float inv = 1.0f / sqrtf(vmath_tree(squares) / (float)n + a->eps);
        for (size_t i = 0; i < n; i++) {
            float t = (*column(&a->x, r, i) - mean) * inv;
            t = a->weight ? t * a->weight[i] : t;
            a->out[r * n + i] = a->bias ? t + a->bias[i] : t;
        }
    }
}

static void add_rms_norm(const struct add_norm_args *a)
{
    size_t n = width_of(&a->a);
    for (size_t r = 0; r < a->rows; r++) {
        float *sum = a->sum + r * n;
        for (size_t i = 0; i < n; i++)
            sum[i] = *column(&a->a, r, i) + *column(&a->b, r, i);
        norm_row(a->out + r * n, sum, a->weight, n, a->eps);
    }
}

/* ---- elementwise ---- */

static float act_of(enum op_act kind, float x)
{
    switch (kind) {
    case OP_ACT_SILU:
        return vmath_silu(x);
    case OP_ACT_GELU_TANH:
        return vmath_gelu_tanh(x);
    case OP_ACT_GELU_ERF:
        return vmath_gelu_erf(x);
    case OP_ACT_RELU:
        return x < 0.0f ? 0.0f : x;
    case OP_ACT_SIGMOID:
        return vmath_sigmoid(x);
    case OP_ACT_TANH:
        return vmath_tanh(x);
    case OP_ACT_SOFTPLUS:
        return vmath_softplus(x);
    case OP_ACT_EXP:
        return vmath_exp(x);
    case OP_ACT_COUNT:
        break;
    }
    dmust(kind < OP_ACT_COUNT);
    return x;
}

static void act(const struct act_args *a)
{
    size_t n = width_of(&a->x);
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = 0; i < n; i++)
            a->out[r * n + i] = act_of(a->kind, *column(&a->x, r, i));
}

static void scale(const struct act_args *a)
{
    size_t n = width_of(&a->x);
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = 0; i < n; i++)
            a->out[r * n + i] = a->number * *column(&a->x, r, i);
}

static void softcap(const struct act_args *a)
{
    size_t n = width_of(&a->x);
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = 0; i < n; i++)
            a->out[r * n + i] = a->number * vmath_tanh(*column(&a->x, r, i) / a->number);
}

static void copy(const struct act_args *a)
{
    size_t n = width_of(&a->x);
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = 0; i < n; i++)
            a->out[r * n + i] = *column(&a->x, r, i);
}

static float glu_of(const struct op_glu *o, float gate, float up)
{
    if (o->clamp_gate > 0.0f)
        gate = gate > o->clamp_gate ? o->clamp_gate : gate;
    if (o->clamp_up > 0.0f) {
        up = up > o->clamp_up ? o->clamp_up : up;
        up = up < -o->clamp_up ? -o->clamp_up : up;
    }
    float g = o->kind == OP_ACT_SILU ? gate / (1.0f + vmath_exp(-(o->alpha * gate)))
                                     : act_of(o->kind, gate);
    return g * (up + o->up_add);
}

static void glu(const struct glu_args *a)
{
    size_t n = width_of(&a->gate);
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = 0; i < n; i++)
            a->out[r * n + i] = glu_of(a->op, *column(&a->gate, r, i), *column(&a->up, r, i));
}

static float second(const struct binary_args *a, size_t r, size_t i)
{
    if (!a->b.p)
        return a->weight[a->weight_count == 1 ? 0 : i];
    return *column(&a->b, r, width_of(&a->b) == 1 ? 0 : i);
}

static void add(const struct binary_args *a)
{
    size_t n = width_of(&a->a);
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = 0; i < n; i++)
            a->out[r * n + i] = *column(&a->a, r, i) + second(a, r, i);
}

static void mul(const struct binary_args *a)
{
    size_t n = width_of(&a->a);
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = 0; i < n; i++)
            a->out[r * n + i] = *column(&a->a, r, i) * second(a, r, i);
}

/* ---- rope ---- */

static void rope_table(const struct rope_table_args *a)
{
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = 0; i < a->pairs; i++) {
            struct vmath_sincos s = vmath_sincos((float)a->pos[r] * a->freqs[i]);
            a->table[r * a->pairs + i][0] = s.cos * a->mscale;
            a->table[r * a->pairs + i][1] = s.sin * a->mscale;
        }
}

static void rope_head(float *out, const float *x, const float (*table)[2], const struct op_rope *o)
{
    size_t pairs = o->n_rot / 2;
    for (size_t i = 0; i < o->head_dim; i++)
        out[i] = x[i];
    for (size_t i = 0; i < pairs; i++) {
        size_t at = o->first + (o->kind == OP_ROPE_NORM ? 2 * i : i);
        size_t other = o->kind == OP_ROPE_NORM ? at + 1 : at + pairs;
        float c = table[i][0], s = table[i][1];
        out[at] = fmaf(x[at], c, -(x[other] * s));
        out[other] = fmaf(x[at], s, x[other] * c);
    }
}

static void rope(const struct rope_args *a)
{
    const struct op_rope *o = a->op;
    size_t pairs = o->n_rot / 2;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t h = 0; h < o->heads; h++)
            rope_head(a->out + (r * o->heads + h) * o->head_dim,
                      column(&a->x, r, h * o->head_dim), a->table + r * pairs, o);
}

/* ---- experts ---- */

/* Softmax of x[n] in place; the sum in 16 lanes. */
static void softmax(float *x, size_t n)
{
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++)
        x[i] = vmath_exp(x[i] - max);
    float sum = vmath_sum(x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] / sum;
}

/* The largest score that is not taken, the lowest id of equals. A NaN is taken last. */
static uint32_t pick(const float *score, const bool *is_taken, uint32_t n)
{
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++) {
        if (is_taken[i])
            continue;
        bool is_first = best == n || (isnan(score[best]) && !isnan(score[i]));
        if (is_first || score[i] > score[best])
            best = i;
    }
    return best;
}

/* Marks the experts of all but the best groups as taken. A group's score is the sum of its two
 * best. */
static void drop_groups(const float *score, bool *is_taken, uint32_t experts,
                        const struct op_route *o)
{
    uint32_t size = experts / o->groups;
    float group_score[OP_EXPERTS_MAX];
    bool is_used[OP_EXPERTS_MAX] = {false};
    for (uint32_t g = 0; g < o->groups; g++) {
        bool seen[OP_EXPERTS_MAX] = {false};
        uint32_t first = pick(score + (size_t)g * size, seen, size);
        group_score[g] = score[g * size + first];
        seen[first] = true;
        uint32_t next = pick(score + (size_t)g * size, seen, size);
        if (next < size)
            group_score[g] += score[g * size + next];
    }
    for (uint32_t i = 0; i < o->groups_used; i++)
        is_used[pick(group_score, is_used, o->groups)] = true;
    for (uint32_t i = 0; i < experts; i++)
        is_taken[i] = !is_used[i / size];
}

static void route_row(const struct route_args *a, uint32_t r)
{
    const struct op_route *o = a->op;
    uint32_t experts = (uint32_t)width_of(&a->x);
    float prob[OP_EXPERTS_MAX], score[OP_EXPERTS_MAX];
    bool is_taken[OP_EXPERTS_MAX] = {false};
    for (uint32_t i = 0; i < experts; i++) {
        float x = *column(&a->x, r, i);
        prob[i] = o->gate == OP_GATE_SIGMOID         ? vmath_sigmoid(x)
                  : o->gate == OP_GATE_SQRT_SOFTPLUS ? sqrtf(vmath_softplus(x))
                                                     : x;
    }
    if (o->gate == OP_GATE_SOFTMAX)
        softmax(prob, experts);
    for (uint32_t i = 0; i < experts; i++)
        score[i] = a->bias ? prob[i] + a->bias[i] : prob[i];
    if (o->groups > 1)
        drop_groups(score, is_taken, experts, o);
    int32_t *ids = a->ids + (size_t)r * o->k;
    float *w = a->weights + (size_t)r * o->k;
    for (uint32_t i = 0; i < o->k; i++) {
        uint32_t id = pick(score, is_taken, experts);
        is_taken[id] = true;
        ids[i] = (int32_t)id;
        w[i] = prob[id];
    }
    if (o->gate == OP_GATE_CHOSEN)
        softmax(w, o->k);
    float sum = o->norm ? vmath_sum(w, o->k) : 1.0f;
    sum = sum < 6.103515625e-5f ? 6.103515625e-5f : sum; /* 2^-14, as llama.cpp */
    for (uint32_t i = 0; i < o->k; i++)
        w[i] = (o->norm ? w[i] / sum : w[i]) * o->scale;
}

static void moe_route(const struct route_args *a)
{
    for (uint32_t r = 0; r < a->rows; r++)
        route_row(a, r);
}

static void moe_sum(const struct moe_sum_args *a)
{
    size_t d = width_of(&a->y) / a->k;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = 0; i < d; i++) {
            float sum = *column(&a->w, r, 0) * *column(&a->y, r, i);
            for (size_t k = 1; k < a->k; k++)
                sum = fmaf(*column(&a->w, r, k), *column(&a->y, r, k * d + i), sum);
            a->out[r * d + i] = sum;
        }
}

/* ---- pooling ---- */

static void pool(const struct pool_args *a)
{
    size_t n = width_of(&a->x);
    for (size_t i = 0; i < n; i++) {
        size_t row = a->op->kind == OP_POOL_LAST ? a->rows - 1 : 0;
        float sum = *column(&a->x, row, i);
        if (a->op->kind == OP_POOL_MEAN) {
            for (size_t r = 1; r < a->rows; r++)
                sum += *column(&a->x, r, i);
            sum /= (float)a->rows;
        }
        a->out[i] = sum;
    }
    if (!a->op->l2)
        return;
    float length = sqrtf(vmath_dot(a->out, a->out, n));
    length = length < 1e-12f ? 1e-12f : length; /* as in torch's normalize */
    for (size_t i = 0; i < n; i++)
        a->out[i] /= length;
}

void ref_ops_add(struct cpu_kernels *k)
{
    k->rms_norm = rms_norm;
    k->layer_norm = layer_norm;
    k->add_rms_norm = add_rms_norm;
    k->act = act;
    k->scale = scale;
    k->softcap = softcap;
    k->copy = copy;
    k->glu = glu;
    k->add = add;
    k->mul = mul;
    k->rope_table = rope_table;
    k->rope = rope;
    k->moe_route = moe_route;
    k->moe_sum = moe_sum;
    k->pool = pool;
}
