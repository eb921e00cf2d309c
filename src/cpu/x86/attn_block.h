/* attn_block - attention over pages of K and V, one text for every x86 level.
 *
 * Owns:      the tiles: scores of 32 tokens x some queries, values of some columns x some queries.
 * Not:       which block, which rows (cpu_attend), the definition (ref/ref_attn.c).
 * Invariant: bit for bit ref: a score is one chain over columns, l 16 lanes and the tree, o one
 *            chain over tokens. A query is one (row, head); its visible tokens are one span of the
 *            block, and no token outside is read for it.
 *
 *     per ATTN_QUERIES queries:  scores[q][256] = q . K   (K page: token fastest, read once)
 *                                exp, sum
 *                                o[q][ATTN_COLUMNS at a time] += exp * V
 *
 * Thread:    pool threads; scratch is the worker's.
 * Limits:    CPU_ATTN_ROWS rows; any dk, dv.
 */
#ifndef SHOAL_CPU_X86_ATTN_BLOCK_H
#define SHOAL_CPU_X86_ATTN_BLOCK_H

#include "cpu/cpu_kernels.h"
#include "cpu/x86/vec_math.h"

#if defined(__AVX2__)

#if defined(__AVX512F__)
#define ATTN_QUERIES 6 /* x 2 vectors of scores, or x 4 of values: 12, 24 of 32 registers */
#define ATTN_VECTORS 4 /* of values */
#else
#define ATTN_QUERIES 3
#define ATTN_VECTORS 2
#endif

struct attn_query {
    const float *q;
    float *state;
    uint32_t first, last; /* visible tokens of the block: first .. last - 1 */
    float *e;             /* [256] scores, then exp */
};

struct attn_tile {
    const struct attn_args *a;
    struct attn_query query[ATTN_QUERIES];
    uint32_t first, last;               /* what any query sees */
    uint32_t common_first, common_last; /* what all see */
};

static void attn_set_span(const struct attn_args *a, struct attn_query *q, int32_t pos)
{
    int64_t first = 0, last = a->tokens, start = a->first;
    if (a->op->mask == OP_MASK_CAUSAL && pos + 1 - start < last)
        last = pos + 1 - start;
    if (a->op->window && pos - (int64_t)a->op->window + 1 - start > 0)
        first = pos - (int64_t)a->op->window + 1 - start;
    last = last < 0 ? 0 : last;
    q->first = (uint32_t)(first < last ? first : last);
    q->last = (uint32_t)last;
    /* Pages that are not there lie behind the window, or were never written. */
    while (q->first < q->last && !a->k[q->first / KV_PAGE_TOKENS])
        q->first = (q->first / KV_PAGE_TOKENS + 1) * KV_PAGE_TOKENS;
    q->first = q->first < q->last ? q->first : q->last;
}

VEC_INLINE vi attn_codes_part(const uint8_t *p, size_t n)
{
    int8_t codes[VEC_LANES] = {0};
    __builtin_memcpy(codes, p, n);
    return vi_from_i8(codes);
}

/* n numbers from index on, without their scale; fewer than 16: the rest is zero. */
VEC_INLINE vf attn_load(const void *p, size_t index, size_t n, enum kv_type type)
{
    const uint8_t *at = (const uint8_t *)p + index * kv_type_size(type);
    if (type == KV_TYPE_INT8)
        return vf_from_i(n >= VEC_LANES ? vi_from_i8(at) : attn_codes_part(at, n));
    if (type == KV_TYPE_F32)
        return n >= VEC_LANES ? vf_load((const float *)(const void *)at)
                              : vf_load_part((const float *)(const void *)at, n);
    return n >= VEC_LANES ? vf_from_f16(at) : vf_from_f16_part(at, n);
}

/* ---- scores ---- */

VEC_INLINE void attn_page_scores(const struct attn_tile *t, uint32_t page, int nc,
                                 enum kv_type type)
{
    const void *k = t->a->k[page];
    size_t dk = t->a->op->dk;
    vf s[ATTN_QUERIES][2];
    VEC_UNROLL for (int c = 0; c < nc; c++)
        s[c][0] = s[c][1] = vf_zero();
    for (size_t i = 0; i < dk; i++) {
        vf k0 = attn_load(k, i * KV_PAGE_TOKENS, 16, type);
        vf k1 = attn_load(k, i * KV_PAGE_TOKENS + 16, 16, type);
        VEC_UNROLL for (int c = 0; c < nc; c++)
        {
            vf q = vf_set1(t->query[c].q[i]);
            s[c][0] = vf_fma(q, k0, s[c][0]);
            s[c][1] = vf_fma(q, k1, s[c][1]);
        }
    }
    const vf scale = vf_set1(t->a->op->scale), cap = vf_set1(t->a->op->softcap);
    VEC_UNROLL for (int c = 0; c < nc; c++)
        for (int h = 0; h < 2; h++)
        {
            vf x = s[c][h];
            if (type == KV_TYPE_INT8)
                x = vf_mul(x, vf_from_f16(cpu_kernels_kv_scales(k, t->a->op->dk) + 16 * h));
            x = vf_mul(scale, x);
            if (t->a->op->softcap > 0.0f)
                x = vf_mul(cap, vf_tanh(vf_div(x, cap)));
            vf_store(t->query[c].e + page * KV_PAGE_TOKENS + 16 * h, x);
        }
}

/* Tokens outside the span count as exp = 0; scores of a NaN are never the largest. */
static void attn_softmax(const struct attn_query *q)
{
    vf most = vf_set1(-INFINITY), sum = vf_zero();
    float lane[VEC_LANES], max = -INFINITY;
    uint32_t begin = q->first / VEC_LANES * VEC_LANES, end = (q->last + 15) / 16 * 16;
    for (uint32_t t = begin; t < q->first; t++)
        q->e[t] = -INFINITY;
    for (uint32_t t = q->last; t < end; t++)
        q->e[t] = -INFINITY;
    for (uint32_t t = begin; t < end; t += VEC_LANES)
        most = vf_max(vf_load(q->e + t), most);
    vf_store(lane, most);
    for (size_t i = 0; i < VEC_LANES; i++)
        max = lane[i] > max ? lane[i] : max;
    for (uint32_t t = begin; t < end; t += VEC_LANES)
        vf_store(q->e + t, vf_exp(vf_sub(vf_load(q->e + t), vf_set1(max))));
    for (uint32_t t = begin; t < q->first; t++) /* -inf less a max of -inf is a NaN */
        q->e[t] = 0.0f;
    for (uint32_t t = q->last; t < end; t++)
        q->e[t] = 0.0f;
    for (uint32_t t = begin; t < end; t += VEC_LANES)
        sum = vf_add(sum, vf_load(q->e + t));
    q->state[0] = max;
    q->state[1] = vf_tree(sum);
}

/* ---- values ---- */

VEC_INLINE void attn_token_values(const struct attn_tile *t, vf o[ATTN_QUERIES][ATTN_VECTORS],
                                  uint32_t token, size_t column, int nc, enum kv_type type)
{
    size_t dv = t->a->op->dv, first = token % KV_PAGE_TOKENS * dv;
    const void *v = t->a->v[token / KV_PAGE_TOKENS];
    bool is_edge = token < t->common_first || token >= t->common_last;
    if (!v)
        return;
    float scale = 1.0f;
    if (type == KV_TYPE_INT8)
        scale = base_f16_to_f32(cpu_kernels_kv_scales(v, t->a->op->dv)[token % KV_PAGE_TOKENS]);
    vf x[ATTN_VECTORS];
    VEC_UNROLL for (int i = 0; i < ATTN_VECTORS; i++)
    {
        size_t at = column + 16 * (size_t)i;
        x[i] = at < dv ? attn_load(v, first + at, dv - at, type) : vf_zero();
    }
    VEC_UNROLL for (int c = 0; c < nc; c++)
    {
        if (is_edge && (token < t->query[c].first || token >= t->query[c].last))
            continue;
        float p = t->query[c].e[token];
        vf e = vf_set1(type == KV_TYPE_INT8 ? p * scale : p);
        VEC_UNROLL for (int i = 0; i < ATTN_VECTORS; i++)
            o[c][i] = vf_fma(e, x[i], o[c][i]);
    }
}

VEC_INLINE void attn_values(const struct attn_tile *t, size_t column, int nc, enum kv_type type)
{
    size_t dv = t->a->op->dv;
    vf o[ATTN_QUERIES][ATTN_VECTORS];
    VEC_UNROLL for (int c = 0; c < nc; c++)
        VEC_UNROLL for (int i = 0; i < ATTN_VECTORS; i++)
            o[c][i] = vf_zero();
    for (uint32_t token = t->first; token < t->last; token++)
        attn_token_values(t, o, token, column, nc, type);
    VEC_UNROLL for (int c = 0; c < nc; c++)
        VEC_UNROLL for (int i = 0; i < ATTN_VECTORS; i++)
        {
            size_t at = column + 16 * (size_t)i;
            if (at + 16 <= dv)
                vf_store(t->query[c].state + 2 + at, o[c][i]);
            else if (at < dv)
                vf_store_part(t->query[c].state + 2 + at, o[c][i], dv - at);
        }
}

VEC_INLINE void attn_tile_run(const struct attn_tile *t, int nc, enum kv_type type)
{
    for (uint32_t p = t->first / KV_PAGE_TOKENS; p * KV_PAGE_TOKENS < t->last; p++)
        if (t->a->k[p])
            attn_page_scores(t, p, nc, type);
    for (int c = 0; c < nc; c++)
        attn_softmax(&t->query[c]);
    for (size_t column = 0; column < t->a->op->dv; column += 16 * ATTN_VECTORS)
        attn_values(t, column, nc, type);
}

/* Every count of queries and type is compiled for itself. */
#define ATTN_CASE(n)                                                                              \
    case n:                                                                                       \
        if (t->a->type == KV_TYPE_F32)                                                            \
            attn_tile_run(t, n, KV_TYPE_F32);                                                     \
        else if (t->a->type == KV_TYPE_INT8)                                                      \
            attn_tile_run(t, n, KV_TYPE_INT8);                                                    \
        else                                                                                      \
            attn_tile_run(t, n, KV_TYPE_F16);                                                     \
        return;

static void attn_tile_queries(const struct attn_tile *t, uint32_t count)
{
    switch (count) {
        ATTN_CASE(1)
        ATTN_CASE(2)
        ATTN_CASE(3)
#if ATTN_QUERIES > 3
        ATTN_CASE(4)
        ATTN_CASE(5)
        ATTN_CASE(6)
#endif
    }
}

static void attn_rotate_pass(float *out, const float *x, size_t half)
{
    size_t i = 0;
    for (; i + VEC_LANES <= half; i += VEC_LANES) {
        vf a, b;
        vf_load_pairs(x + 2 * i, &a, &b);
        vf_store(out + i, vf_add(a, b));
        vf_store(out + half + i, vf_sub(a, b));
    }
    for (; i < half; i++) {
        out[i] = x[2 * i] + x[2 * i + 1];
        out[half + i] = x[2 * i] - x[2 * i + 1];
    }
}

/* x[n] times the Hadamard matrix of each piece, times factor. A pass takes neighbours and puts sums
 * into the lower half of a piece, differences into the upper one: the butterflies of ref in its
 * order, and after the last pass at their places. */
static void attn_rotate(float *to, const float *from, size_t n, float factor)
{
    float twin[2][CPU_KV_ROTATE_MAX];
    size_t piece = cpu_kernels_kv_piece(n);
    for (size_t h = 1; h < piece; h *= 2) {
        float *out = from == twin[0] ? twin[1] : twin[0];
        for (size_t i = 0; i < n; i += piece)
            attn_rotate_pass(out + i, from + i, piece / 2);
        from = out;
    }
    for (size_t i = 0; i < n; i++)
        to[i] = from[i] * factor;
}

static void attn_run_queries(const struct attn_args *a, uint32_t first, uint32_t count)
{
    struct attn_tile t = {.a = a, .first = a->tokens, .common_last = a->tokens};
    size_t width = cpu_kernels_state_width(a->op->dv);
    for (uint32_t c = 0; c < count; c++) {
        struct attn_query *q = &t.query[c];
        uint32_t row = (first + c) / a->heads, head = (first + c) % a->heads;
        q->q = a->q + row * a->q_row + head * a->q_head;
        q->state = a->state + (first + c) * width;
        q->e = (float *)a->scratch + c * CPU_ATTN_BLOCK;
        if (a->type == KV_TYPE_INT8) {
            float *rotated = (float *)a->scratch + ATTN_QUERIES * CPU_ATTN_BLOCK +
                             c * CPU_KV_ROTATE_MAX;
            attn_rotate(rotated, q->q, a->op->dk, 1.0f / (float)cpu_kernels_kv_piece(a->op->dk));
            q->q = rotated;
        }
        attn_set_span(a, q, a->pos[row]);
        t.first = q->first < t.first ? q->first : t.first;
        t.last = q->last > t.last ? q->last : t.last;
        t.common_first = q->first > t.common_first ? q->first : t.common_first;
        t.common_last = q->last < t.common_last ? q->last : t.common_last;
    }
    attn_tile_queries(&t, count);
}

static void attn_block(const struct attn_args *a)
{
    uint32_t count = a->rows * a->heads;
    for (uint32_t first = 0; first < count; first += ATTN_QUERIES)
        attn_run_queries(a, first, (uint32_t)base_min(ATTN_QUERIES, count - first));
}

/* ---- pages, states ---- */

/* A NaN stays one, the rest is cut to the finite range. */
VEC_INLINE void attn_to_f16(uint16_t h[16], const float *x, size_t n)
{
    const vf most = vf_set1(65504.0f), least = vf_set1(-65504.0f);
    vf v = n >= VEC_LANES ? vf_load(x) : vf_load_part(x, n);
    v = vf_max(least, vf_min(most, v));
    vf_to_f16(h, v);
}

static const float *attn_column(const struct cpu_view *v, size_t row, size_t c)
{
    return v->p + row * v->row + c / v->width * v->group + c % v->width;
}

static void attn_write_f16(uint16_t *k, uint16_t *v, const float *from_k, const float *from_v,
                           const struct op_kv *op)
{
    uint16_t h[16];
    for (size_t i = 0; i < op->dk; i += 16) {
        size_t n = base_min(16, op->dk - i);
        attn_to_f16(h, from_k + i, n);
        for (size_t j = 0; j < n; j++)
            k[(i + j) * KV_PAGE_TOKENS] = h[j];
    }
    for (size_t i = 0; i < op->dv; i += 16) {
        size_t n = base_min(16, op->dv - i);
        attn_to_f16(h, from_v + i, n);
        __builtin_memcpy(v + i, h, n * 2);
    }
}

/* Number i of a token goes to first + i * step. The bits of |x| rise with it, a NaN's are the
 * highest: so the largest integer tells both. */
static void attn_write_int8(uint8_t *head, size_t slot, size_t first, size_t step, const float *x,
                            size_t columns)
{
    vi most = vi_zero();
    int8_t codes[VEC_LANES];
    for (size_t i = 0; i < columns; i += VEC_LANES)
        most = vi_max(most, vi_and(vi_from_bits(vf_load_part(x + i, base_min(16, columns - i))),
                                   vi_set1(0x7fffffff)));
    uint32_t bits = (uint32_t)vi_top(most);
    float amax = bits > 0x7f800000u ? 0.0f : base_float_of(bits);
    uint16_t scale = base_f32_to_f16((amax > CPU_KV_INT8_MOST ? CPU_KV_INT8_MOST : amax) / 127.0f);
    float d = base_f16_to_f32(scale), inverse = d == 0.0f ? 0.0f : 1.0f / d;
    if (bits > 0x7f800000u)
        scale = 0x7e00;
    __builtin_memcpy(head + KV_PAGE_TOKENS * columns + 2 * slot, &scale, 2);
    for (size_t i = 0; i < columns; i += VEC_LANES) {
        size_t n = base_min(VEC_LANES, columns - i);
        vf y = vf_mul(vf_load_part(x + i, n), vf_set1(inverse));
        y = vf_max(vf_set1(-127.0f), vf_min(vf_set1(127.0f), y));
        vi_store_8(codes, inverse == 0.0f ? vi_zero() : vi_from_f(y));
        for (size_t j = 0; j < n; j++)
            head[first + (i + j) * step] = (uint8_t)codes[j];
    }
}

static void attn_write_head(uint8_t *page, const struct kv_write_args *a, size_t r, size_t head)
{
    const struct op_kv *op = a->op;
    size_t size = kv_type_size(a->type);
    size_t slot = (uint32_t)a->pos[r] % KV_PAGE_TOKENS;
    size_t k_size = kv_head_size(a->type, op->dk);
    const float *from_k = attn_column(&a->k, r, head * op->dk);
    const float *from_v = attn_column(&a->v, r, head * op->dv);
    uint8_t *k = page + head * k_size;
    uint8_t *v = page + op->kv_heads * k_size + head * kv_head_size(a->type, op->dv);
    if (a->type == KV_TYPE_INT8) {
        float rotated[CPU_KV_ROTATE_MAX];
        attn_rotate(rotated, from_k, op->dk, 1.0f);
        attn_write_int8(k, slot, slot, KV_PAGE_TOKENS, rotated, op->dk);
        attn_write_int8(v, slot, slot * op->dv, 1, from_v, op->dv);
        return;
    }
    k += slot * size;
    v += slot * op->dv * size;
    if (a->type == KV_TYPE_F32) {
        for (size_t i = 0; i < op->dk; i++)
            ((float *)(void *)k)[i * KV_PAGE_TOKENS] = from_k[i];
        __builtin_memcpy(v, from_v, op->dv * 4);
        return;
    }
    attn_write_f16((uint16_t *)(void *)k, (uint16_t *)(void *)v, from_k, from_v, op);
}

static void attn_kv_write(const struct kv_write_args *a)
{
    for (size_t r = 0; r < a->rows; r++)
        for (size_t head = 0; head < a->op->kv_heads; head++)
            attn_write_head(a->page[r], a, r, head);
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
        for (size_t i = 2; i < width; i += VEC_LANES) {
            size_t n = width - i;
            vf o = vf_load_part(into + i, n < 16 ? n : 16);
            vf f = vf_load_part(from + i, n < 16 ? n : 16);
            o = vf_fma(f, vf_set1(y), vf_mul(o, vf_set1(x)));
            vf_store_part(into + i, o, n < 16 ? n : 16);
        }
    }
}

static void attn_finish(const struct attn_finish_args *a)
{
    size_t width = cpu_kernels_state_width(a->dv);
    for (size_t s = 0; s < a->count; s++) {
        const float *state = a->state + s * width;
        vf inv = vf_set1(state[1] == 0.0f ? 0.0f : 1.0f / state[1]);
        for (size_t i = 0; i < a->dv; i += VEC_LANES) {
            size_t n = base_min(16, a->dv - i);
            vf o = vf_mul(vf_load_part(state + 2 + i, n), inv);
            vf_store_part(a->out + s * a->out_row + i, o, n);
        }
    }
}

static void attn_block_add(struct cpu_kernels *k)
{
    k->kv_write = attn_kv_write;
    k->attn_block = attn_block;
    k->attn_merge = attn_merge;
    k->attn_finish = attn_finish;
}

#endif
#endif
