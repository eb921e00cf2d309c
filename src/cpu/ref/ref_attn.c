/* The definition of attention: one block of 256 absolute positions at a time, each from zero, so
 * that a token's result never depends on how many tokens a step brings or where a prompt was cut.
 * l = 0 means that nothing was seen (else the largest score alone gives 1): a NaN score, which is
 * never the largest, is in l and so stays visible. */
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

static void put(void *page, enum kv_type type, size_t index, float x)
{
    if (type == KV_TYPE_F32)
        ((float *)page)[index] = x;
    else
        ((uint16_t *)page)[index] = to_f16(x);
}

static float take(const void *page, enum kv_type type, size_t index)
{
    return type == KV_TYPE_F32 ? ((const float *)page)[index]
                               : base_f16_to_f32(((const uint16_t *)page)[index]);
}

static void kv_write(const struct kv_write_args *a)
{
    size_t heads = a->op->kv_heads, dk = a->op->dk, dv = a->op->dv;
    for (size_t r = 0; r < a->rows; r++) {
        size_t slot = (uint32_t)a->pos[r] % KV_PAGE_TOKENS;
        uint8_t *k = a->page[r], *v = k + heads * cpu_kernels_kv_size(a->type, a->op->dk);
        for (size_t i = 0; i < heads * dk; i++)
            put(k, a->type, i * KV_PAGE_TOKENS + slot, *column(&a->k, r, i));
        for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < dv; i++)
                put(v, a->type, (h * KV_PAGE_TOKENS + slot) * dv + i,
                    *column(&a->v, r, h * dv + i));
    }
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
    float score = a->op->scale * dot;
    if (a->op->softcap > 0.0f)
        score = a->op->softcap * vmath_tanh(score / a->op->softcap);
    return score;
}

static void block_of(const struct attn_args *a, size_t row, const float *q, float *state)
{
    size_t dv = a->op->dv;
    float *e = a->scratch, lane[VMATH_LANES] = {0}, max = -INFINITY;
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
