/* matmul_forms - activations packed with SIMD, panels as wide as the level's tiles.
 *
 * Owns:      quantising a row, joining rows to a panel.
 * Not:       what a form holds (cpu_kernels.h), its definition (ref_matmul.c).
 * Invariant: byte for byte what ref makes.
 * Thread:    pool threads.
 * Limits:    panels of at most 6 columns.
 */
#ifndef SHOAL_CPU_X86_MATMUL_FORMS_H
#define SHOAL_CPU_X86_MATMUL_FORMS_H

#include <string.h>

#include "cpu/x86/matmul_float.h"
#include "cpu/x86/matmul_wide.h"

#if defined(__AVX2__)

#define FORM_TINY 0x0d800000u /* 2^-100: a smaller block is zero */

/* 32 floats to bytes; the sum of each 16 to neg16, negated. Returns the scale. */
VEC_INLINE float form_quantise_32(int8_t *q, int32_t *neg16, const float *x)
{
    const vi magnitude = vi_set1(0x7fffffff);
    vf v[2];
    vi most = vi_zero();
    VEC_UNROLL for (int i = 0; i < 2; i++)
    {
        v[i] = vf_load(x + 16 * i);
        most = vi_max(most, vi_and(vi_from_bits(v[i]), magnitude));
    }
    uint32_t amax = (uint32_t)vi_top(most);
    bool has_codes = amax >= FORM_TINY && amax < 0x7f800000u;
    vf inv = vf_set1(has_codes ? 127.0f / base_float_of(amax) : 0.0f);
    VEC_UNROLL for (int i = 0; i < 2; i++)
    {
        vi codes = has_codes ? vi_from_f(vf_mul(v[i], inv)) : vi_zero();
        vi_store_8(q + 16 * i, codes);
        neg16[i] = -vi_sum(codes);
    }
    return amax < FORM_TINY ? 0.0f : base_float_of(amax) / 127.0f;
}

/* The same to pairs of words, hi and lo; returns d of 16 bits. */
VEC_INLINE float form_quantise_16(int8_t *words, int32_t *neg16, const float *x)
{
    const vi magnitude = vi_set1(0x7fffffff);
    vf v[2] = {vf_load(x), vf_load(x + 16)};
    uint32_t amax = (uint32_t)vi_top(vi_max(vi_and(vi_from_bits(v[0]), magnitude),
                                            vi_and(vi_from_bits(v[1]), magnitude)));
    bool has_codes = amax >= FORM_TINY && amax < 0x7f800000u;
    vf inv = vf_set1(has_codes ? CPU_INT16_STEPS / base_float_of(amax) : 0.0f);
    VEC_UNROLL for (int i = 0; i < 2; i++)
    {
        int8_t planes[2][16];
        vi q = has_codes ? vi_from_f(vf_mul(v[i], inv)) : vi_zero();
        vi hi = vi_sra(vi_add(q, vi_set1(128)), 8);
        vi lo = vi_max(vi_sub(q, vi_sll(hi, 8)), vi_set1(-127));
        vi_store_8(planes[0], hi);
        vi_store_8(planes[1], lo);
        for (size_t w = 0; w < 8; w++)
            memcpy(words + 32 * i + 4 * w, planes[w % 2] + w / 2 * 4, 4);
        neg16[i] = -vi_sum(vi_add(vi_sll(hi, 8), lo));
    }
    return amax < FORM_TINY ? 0.0f : base_float_of(amax) / CPU_INT16_STEPS;
}

/* The bytes between two sections. */
static void form_pad(uint8_t *p, size_t from, size_t to)
{
    memset(p + from, 0, to - from);
}

static void form_pack_int8_32(void *dst, const float *src, size_t in)
{
    struct cpu_form_layout l = cpu_kernels_form_layout(CPU_FORM_INT8_32, in);
    uint8_t *p = dst;
    size_t blocks = in / 32;
    float *d = (float *)(void *)(p + l.d), *dsum = (float *)(void *)(p + l.sum);
    int32_t *neg = (int32_t *)(void *)(p + l.neg);
    form_pad(p, in, l.d);
    form_pad(p, l.d + blocks * 4, l.neg);
    form_pad(p, l.neg + blocks * 4, l.sum);
    form_pad(p, l.sum + blocks * 4, l.size);
    for (size_t b = 0; b < blocks; b++) {
        int32_t neg16[2];
        d[b] = form_quantise_32((int8_t *)p + b * 32, neg16, src + b * 32);
        neg[b] = neg16[0] + neg16[1];
        dsum[b] = d[b] * (float)-neg[b];
    }
}

static void form_pack_int16(void *dst, const float *src, size_t in)
{
    struct cpu_form_layout l = cpu_kernels_form_layout(CPU_FORM_INT16, in);
    uint8_t *p = dst;
    size_t blocks = in / 32;
    float *d = (float *)(void *)(p + l.d), *dsum = (float *)(void *)(p + l.sum);
    int32_t *neg = (int32_t *)(void *)(p + l.neg);
    form_pad(p, l.d + blocks * 4, l.neg);
    form_pad(p, l.neg + blocks * 8, l.sum);
    form_pad(p, l.sum + blocks * 4, l.size);
    for (size_t b = 0; b < blocks; b++) {
        d[b] = form_quantise_16((int8_t *)p + b * 64, neg + 2 * b, src + b * 32);
        dsum[b] = d[b] * (float)-(neg[2 * b] + neg[2 * b + 1]);
    }
}

/* Bits of the largest magnitude of each 32 inputs. */
VEC_INLINE void form_largest(int32_t *bits, const float *x, size_t in)
{
    const vi magnitude = vi_set1(0x7fffffff);
    for (size_t i = 0; i < in / 32; i++) {
        vi a = vi_and(vi_from_bits(vf_load(x + 32 * i)), magnitude);
        vi b = vi_and(vi_from_bits(vf_load(x + 32 * i + 16)), magnitude);
        bits[i] = vi_top(vi_max(a, b));
    }
}

/* 256 inputs to bytes. */
VEC_INLINE void form_quantise_256(int8_t *q, const float *x, struct cpu_block b,
                                  const int32_t *factor, bool is_spread)
{
    vf scale = vf_set1(b.inv);
    for (size_t i = 0; i < 8; i++) {
        if (is_spread)
            scale = vf_set1(b.inv / (float)factor[i]);
        vi first = vi_from_f(vf_mul(vf_load(x + 32 * i), scale));
        vi second = vi_from_f(vf_mul(vf_load(x + 32 * i + 16), scale));
        vi_store_8(q + 32 * i, b.inv > 0.0f ? first : vi_zero());
        vi_store_8(q + 32 * i + 16, b.inv > 0.0f ? second : vi_zero());
    }
}

/* -(sum of each 16 codes) of 256. */
VEC_INLINE void form_sums_256(int32_t *neg16, const int8_t *q)
{
    const vi ones = vi_set1_8(1);
    int32_t by4[16];
    for (size_t i = 0; i < 4; i++) {
        vi_store(by4, vi_dot(vi_zero(), ones, vi_load(q + 64 * i)));
        for (size_t g = 0; g < 4; g++)
            neg16[4 * i + g] = -(by4[4 * g] + by4[4 * g + 1] + by4[4 * g + 2] + by4[4 * g + 3]);
    }
}

static void form_pack_int8_256(void *dst, const float *src, size_t in)
{
    struct cpu_form_layout l = cpu_kernels_form_layout(CPU_FORM_INT8_256, in);
    uint8_t *p = dst;
    float *d = (float *)(void *)(p + l.d);
    int32_t *neg = (int32_t *)(void *)(p + l.neg);
    int16_t *sum = (int16_t *)(void *)(p + l.sum);
    int32_t *spread = (int32_t *)(void *)(p + l.factor), *factor = spread + in / 256;
    form_pad(p, l.d + in / 256 * 4, l.neg);
    form_pad(p, l.neg + in / 16 * 4, l.sum);
    form_pad(p, l.sum + in / 32 * 2, l.factor);
    form_pad(p, l.factor + (in / 256 + in / 32) * 4, l.size);
    form_largest(factor, src, in);
    cpu_kernels_factors(spread, factor, d, in);
    for (size_t b = 0; b < in / 256; b++) {
        struct cpu_block block = cpu_kernels_block(d[b], spread[b] != 0);
        d[b] = block.d;
        form_quantise_256((int8_t *)p + b * 256, src + b * 256, block, factor + b * 8,
                          spread[b] != 0);
        form_sums_256(neg + b * 16, (int8_t *)p + b * 256);
        for (size_t i = b * 8; i < b * 8 + 8; i++)
            sum[i] = (int16_t)(-factor[i] * (neg[2 * i] + neg[2 * i + 1]));
    }
}

/* Every section of every form is words of 4 bytes, so joining is one transposition per section. */
VEC_INLINE void form_join_words(uint32_t *dst, const void *const *rows, size_t from, size_t to,
                                int nc)
{
    const uint32_t *row[6];
    VEC_UNROLL for (int c = 0; c < nc; c++)
        row[c] = (const uint32_t *)(const void *)((const uint8_t *)rows[c] + from);
    for (size_t i = 0; i < (to - from) / 4; i++)
        VEC_UNROLL for (int c = 0; c < nc; c++)
            dst[i * (size_t)nc + (size_t)c] = row[c][i];
}

static void form_join(uint8_t *dst, const void *const *rows, size_t columns,
                      struct cpu_form_layout l)
{
    const size_t ends[] = {0, l.d, l.neg, l.sum, l.factor, l.size};
    for (size_t s = 0; s < 5; s++) {
        uint32_t *to = (uint32_t *)(void *)(dst + ends[s] * columns);
        TILE_COLUMNS(columns, 6, form_join_words(to, rows, ends[s], ends[s + 1], NC))
    }
}

static void form_join_f32(void *dst, const void *const *rows, size_t columns, size_t in)
{
    form_join(dst, rows, columns, cpu_kernels_form_layout(CPU_FORM_F32, in));
}

static void form_join_int8_32(void *dst, const void *const *rows, size_t columns, size_t in)
{
    form_join(dst, rows, columns, cpu_kernels_form_layout(CPU_FORM_INT8_32, in));
}

static void form_join_int8_256(void *dst, const void *const *rows, size_t columns, size_t in)
{
    form_join(dst, rows, columns, cpu_kernels_form_layout(CPU_FORM_INT8_256, in));
}

static void form_join_int16(void *dst, const void *const *rows, size_t columns, size_t in)
{
    form_join(dst, rows, columns, cpu_kernels_form_layout(CPU_FORM_INT16, in));
}

/* ---- the level's rows of the table ---- */

static void form_int8_product(const struct matmul_args *a)
{
    if (a->columns <= tile_direct_most(a->type))
        tile_direct_product(a);
    else
        tile_product(a);
}

static void form_set_rows(struct cpu_kernels *k, enum qtype t)
{
    struct cpu_matmul in_f32 = {CPU_FORM_F32, cpu_pack_size, cpu_pack_weight, cpu_pack_unpack_row,
                                float_product_quantised, float_product_quantised};
    if (cpu_pack_table[t].kind == CPU_PACK_FLOAT)
        in_f32.gemv = in_f32.gemm = float_product;
    k->mm[ACT_F32][t] = k->mm[ACT_INT8][t] = k->mm[ACT_INT16][t] = in_f32;
    if (quant_table[t].act_block == 0)
        return;
    struct cpu_matmul *m = &k->mm[ACT_INT8][t];
    m->form = tile_form(t);
    m->gemv = m->gemm = form_int8_product;
    m = &k->mm[ACT_INT16][t];
    m->form = CPU_FORM_INT16;
    m->gemv = m->gemm = wide_product;
}

static void form_set(struct cpu_form_ops *f, uint16_t width,
                     void (*pack_row)(void *dst, const float *src, size_t in),
                     void (*join)(void *dst, const void *const *rows, size_t columns, size_t in))
{
    f->whole = f->panel = width;
    f->pack_row = pack_row;
    f->join = join;
}

static void form_add(struct cpu_kernels *k)
{
    struct cpu_form_ops *f32 = &k->form[CPU_FORM_F32];
    must(sizeof(struct wide_panel) <= CPU_MATMUL_SCRATCH &&
         sizeof(struct float_panel) <= CPU_MATMUL_SCRATCH);
    form_set(f32, FLOAT_WIDTH, f32->pack_row, form_join_f32);
    form_set(&k->form[CPU_FORM_INT8_32], TILE_WIDTH, form_pack_int8_32, form_join_int8_32);
    form_set(&k->form[CPU_FORM_INT8_256], TILE_WIDTH, form_pack_int8_256, form_join_int8_256);
    form_set(&k->form[CPU_FORM_INT16], WIDE_WIDTH, form_pack_int16, form_join_int16);
    for (unsigned t = 0; t < QTYPE_WEIGHT_COUNT; t++)
        form_set_rows(k, (enum qtype)t);
}

#endif
#endif
