/* The definition of attention: one block of 256 absolute positions at a time, each from zero, so
 * that a token's result never depends on how many tokens a step brings or where a prompt was cut.
 * l = 0 means that nothing was seen (else the largest score alone gives 1): a NaN score, which is
 * never the largest, is in l and so stays visible. */
#include <string.h>

#include "cpu/cpu_kernels.h"
#include "cpu/vmath.h"

#define F16_MAX 65504.0f

static const float *column(const struct cpu_view *v, size_t row, size_t c)
{
    return v->p + row * v->row + c / v->width * v->group + c % v->width;
}

/* A NaN stays one; what is out of range is cut, so that no infinity comes into a score. */
static uint16_t to_f16(float x)
{
    x = x > F16_MAX ? F16_MAX : x;
    x = x < -F16_MAX ? -F16_MAX : x;
    return base_f32_to_f16(x);
}

/* One token of one head in a page: number i lies at first + i * step. */
struct place {
    uint8_t *head;
    size_t slot, columns, first, step;
};

/* x[n] times the Hadamard matrix of each piece, times factor. */
static void rotate(float *x, size_t n, float factor)
{
    size_t piece = cpu_kernels_kv_piece(n);
    for (size_t h = 1; h < piece; h *= 2)
        for (size_t i = 0; i < n; i++)
            if (!(i & h)) {
                float a = x[i], b = x[i + h];
                x[i] = a + b;
                x[i + h] = a - b;
            }
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

/* Codes of x at first + i * step, their scale behind all codes of the head. */
static void write_int8(const struct place *p, const float *x)
{
    float most = 0.0f;
    bool has_nan = false;
    for (size_t i = 0; i < p->columns; i++) {
        has_nan |= x[i] != x[i];
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    most = most > CPU_KV_INT8_MOST ? CPU_KV_INT8_MOST : most;
    uint16_t scale = has_nan ? 0x7e00 : base_f32_to_f16(most / 127.0f);
    float d = base_f16_to_f32(scale), inverse = has_nan || d == 0.0f ? 0.0f : 1.0f / d;
    memcpy(p->head + KV_PAGE_TOKENS * p->columns + 2 * p->slot, &scale, 2);
    for (size_t i = 0; i < p->columns; i++) {
        float y = inverse == 0.0f ? 0.0f : x[i] * inverse;
        y = y > 127.0f ? 127.0f : y < -127.0f ? -127.0f : y;
        ((int8_t *)p->head)[p->first + i * p->step] = (int8_t)(y + VMATH_ROUND - VMATH_ROUND);
    }
}

static void write_head(const struct place *p, enum kv_type type, const struct cpu_view *from,
                       size_t row, size_t head)
{
    float x[CPU_KV_ROTATE_MAX];
    for (size_t i = 0; i < p->columns; i++) {
        float y = *column(from, row, head * p->columns + i);
        size_t at = p->first + i * p->step;
        if (type == KV_TYPE_F32)
            ((float *)(void *)p->head)[at] = y;
        else if (type == KV_TYPE_F16)
            ((uint16_t *)(void *)p->head)[at] = to_f16(y);
        else
            x[i] = y;
    }
    if (type != KV_TYPE_INT8)
        return;
    if (p->step > 1) /* K */
        rotate(x, p->columns, 1.0f);
    write_int8(p, x);
}

static void kv_write(const struct kv_write_args *a)
{
    size_t heads = a->op->kv_heads, dk = a->op->dk, dv = a->op->dv;
    size_t k_size = kv_head_size(a->type, a->op->dk), v_size = kv_head_size(a->type, a->op->dv);
    for (size_t r = 0; r < a->rows; r++) {
        size_t slot = (uint32_t)a->pos[r] % KV_PAGE_TOKENS;
        for (size_t h = 0; h < heads; h++) {
            uint8_t *k = a->page[r] + h * k_size, *v = a->page[r] + heads * k_size + h * v_size;
            struct place in_k = {k, slot, dk, slot, KV_PAGE_TOKENS};
            struct place in_v = {v, slot, dv, slot * dv, 1};
            write_head(&in_k, a->type, &a->k, r, h);
            write_head(&in_v, a->type, &a->v, r, h);
        }
    }
}

/* A number without its scale, and the scale of a token. */
static float take(const void *head, enum kv_type type, size_t index)
{
    if (type == KV_TYPE_F32)
        return ((const float *)head)[index];
    return type == KV_TYPE_F16 ? base_f16_to_f32(((const uint16_t *)head)[index])
                               : (float)((const int8_t *)head)[index];
}

static float scaled(float x, const void *head, enum kv_type type, uint32_t columns, uint32_t token)
{
    if (type != KV_TYPE_INT8)
        return x;
    return x * base_f16_to_f32(cpu_kernels_kv_scales(head, columns)[token % KV_PAGE_TOKENS]);
}

static bool may_see(const struct attn_args *a, size_t row, uint32_t token)
{
    int64_t at = (int64_t)a->first + token, pos = a->pos[row];
    if (token >= a->tokens || !a->k[token / KV_PAGE_TOKENS])
        return false;
    if (a->op->mask == OP_MASK_CAUSAL && at > pos)
        return false;
    return a->op->window == 0 || at > pos - (int64_t)a->op->window;
}

static float score_of(const struct attn_args *a, const float *q, uint32_t token)
{
    const void *k = a->k[token / KV_PAGE_TOKENS];
    float dot = 0.0f;
    for (size_t i = 0; i < a->op->dk; i++)
        dot = fmaf(q[i], take(k, a->type, i * KV_PAGE_TOKENS + token % KV_PAGE_TOKENS), dot);
    float score = a->op->scale * scaled(dot, k, a->type, a->op->dk, token);
    if (a->op->softcap > 0.0f)
        score = a->op->softcap * vmath_tanh(score / a->op->softcap);
    return score;
}

static void block_of(const struct attn_args *a, size_t row, const float *q, float *state)
{
    size_t dk = a->op->dk, dv = a->op->dv;
    float *e = a->scratch, lane[VMATH_LANES] = {0}, max = -INFINITY;
    if (a->type == KV_TYPE_INT8) {
        float *rotated = e + CPU_ATTN_BLOCK;
        memcpy(rotated, q, dk * sizeof *q);
        rotate(rotated, dk, 1.0f / (float)cpu_kernels_kv_piece(dk));
        q = rotated;
    }
    for (size_t i = 0; i < dv; i++)
        state[2 + i] = 0.0f;
    for (uint32_t t = 0; t < CPU_ATTN_BLOCK; t++) {
        e[t] = may_see(a, row, t) ? score_of(a, q, t) : -INFINITY;
        max = e[t] > max ? e[t] : max;
    }
    for (uint32_t t = 0; t < CPU_ATTN_BLOCK; t++) {
        if (!may_see(a, row, t))
            continue;
        float p = vmath_exp(e[t] - max);
        const void *v = a->v[t / KV_PAGE_TOKENS];
        size_t first = t % KV_PAGE_TOKENS * dv;
        lane[t % VMATH_LANES] += p;
        p = scaled(p, v, a->type, a->op->dv, t);
        for (size_t i = 0; i < dv; i++)
            state[2 + i] = fmaf(p, take(v, a->type, first + i), state[2 + i]);
    }
    state[0] = max;
    state[1] = vmath_tree(lane);
}

static void attn_block(const struct attn_args *a)
{
    size_t width = cpu_kernels_state_width(a->op->dv);
    for (size_t r = 0; r < a->rows; r++)
        for (size_t h = 0; h < a->heads; h++)
            block_of(a, r, a->q + r * a->q_row + h * a->q_head,
                     a->state + (r * a->heads + h) * width);
}

static void attn_merge(const struct attn_merge_args *a)
{
    size_t width = cpu_kernels_state_width(a->dv);
    for (size_t s = 0; s < a->count; s++) {
        float *into = a->into + s * width;
        const float *from = a->from + s * width;
        if (from[1] == 0.0f)
            continue;
        float max = into[0] > from[0] ? into[0] : from[0];
        float x = vmath_exp(into[0] - max), y = vmath_exp(from[0] - max);
        into[0] = max;
        into[1] = fmaf(from[1], y, into[1] * x);
        for (size_t i = 2; i < width; i++)
            into[i] = fmaf(from[i], y, into[i] * x);
    }
}

static void attn_finish(const struct attn_finish_args *a)
{
    size_t width = cpu_kernels_state_width(a->dv);
    for (size_t s = 0; s < a->count; s++) {
        const float *state = a->state + s * width;
        float inv = state[1] == 0.0f ? 0.0f : 1.0f / state[1];
        for (size_t i = 0; i < a->dv; i++)
            a->out[s * a->out_row + i] = state[2 + i] * inv;
    }
}

void ref_attn_add(struct cpu_kernels *k)
{
    k->kv_write = kv_write;
    k->attn_block = attn_block;
    k->attn_merge = attn_merge;
    k->attn_finish = attn_finish;
}
