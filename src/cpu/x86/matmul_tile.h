/* matmul_tile - a few columns times packed weights, int8, one text for every x86 level.
 *
 * Owns:      unpacking of groups; the direct loop: 16 rows at a time, codes go from memory through
 *            registers into the dots, a panel of columns after the other.
 * Not:       more columns, types in file layout (matmul_panel.h), layouts (cpu_pack), what the
 *            float steps are (cpu_codes), instructions (vec).
 * Invariant: a row's float steps run over k ascending, here as in matmul_panel.h: the same bits.
 *
 *     weights (DRAM) --prefetched 8 KiB ahead--> 8 vectors of bytes --> dots with each column
 *                                                                  --> fma into 16 rows x column
 *
 * Thread:    pool threads; scratch is the worker's.
 * Limits:    TILE_WIDTH columns of a panel.
 */
#ifndef SHOAL_CPU_X86_MATMUL_TILE_H
#define SHOAL_CPU_X86_MATMUL_TILE_H

#include "cpu/cpu_codes.h"
#include "cpu/cpu_pack.h"
#include "cpu/x86/vec.h"

#if defined(__AVX2__)

#define TILE_AHEAD 8192u /* bytes of prefetch */
#define TILE_BLOCKS 32u /* of 32 inputs, 32 KiB of codes for 32 rows: `out` is touched less often */
#define TILE_FEW 24u    /* columns up to which a quarter of that leaves room for what comes next */
#define TILE_L2_ACTS (384u << 10) /* int8 activations that may pass by once per row of tiles */
#if defined(__AVX512F__)
#define TILE_GROUPS 2 /* 16-row groups of a register tile: 32 x 6 sums in 24 of 32 registers */
#define TILE_WIDTH 6u /* columns of a tile; TILE_COLUMNS knows 1 .. 6 */
#else
#define TILE_GROUPS 1 /* 16 x 4 sums in 8 of 16 registers */
#define TILE_WIDTH 4u
#endif
#define TILE_ROWS (TILE_GROUPS * 16)

/* Runs `call` with the constant NC = n, 1 .. most; what is wider is not compiled. */
#define TILE_CASE(n, most, call)                                                                  \
    case n:                                                                                       \
        if (n <= most) {                                                                          \
            enum { NC = n };                                                                      \
            call;                                                                                 \
        }                                                                                         \
        break;
#define TILE_COLUMNS(n, most, call)                                                               \
    switch (n) {                                                                                  \
        TILE_CASE(1, most, call)                                                                  \
        TILE_CASE(2, most, call)                                                                  \
        TILE_CASE(3, most, call)                                                                  \
        TILE_CASE(4, most, call)                                                                  \
        TILE_CASE(5, most, call)                                                                  \
        TILE_CASE(6, most, call)                                                                  \
    }

/* ---- unpacking: 32 inputs of 16 rows to eight vectors of bytes ---- */

VEC_INLINE void tile_unpack2(vi w[8], const uint8_t *q)
{
    const vi low = vi_set1_8(3);
    VEC_UNROLL for (int g = 0; g < 8; g += 4)
    {
        vi v = vi_load(q + 16 * g);
        w[g] = vi_and(v, low);
        w[g + 1] = vi_and(vi_srl16(v, 2), low);
        w[g + 2] = vi_and(vi_srl16(v, 4), low);
        w[g + 3] = vi_and(vi_srl16(v, 6), low);
    }
}

VEC_INLINE void tile_unpack4(vi w[8], const uint8_t *q)
{
    const vi low = vi_set1_8(15);
    VEC_UNROLL for (int g = 0; g < 4; g++)
    {
        vi v = vi_load(q + 64 * g);
        w[g] = vi_and(v, low);
        w[g + 4] = vi_and(vi_srl16(v, 4), low);
    }
}

VEC_INLINE void tile_unpack5(vi w[8], const uint8_t *q)
{
    const vi low = vi_set1_8(15), fifth = vi_set1_8(16);
    vi h = vi_load(q + 256);
    vi high[8] = {vi_sll16(h, 4), vi_sll16(h, 3), vi_sll16(h, 2), vi_sll16(h, 1),
                  h,              vi_srl16(h, 1), vi_srl16(h, 2), vi_srl16(h, 3)};
    VEC_UNROLL for (int g = 0; g < 4; g++)
    {
        vi v = vi_load(q + 64 * g);
        w[g] = vi_and_or(v, low, vi_and(high[g], fifth));
        w[g + 4] = vi_and_or(vi_srl16(v, 4), low, vi_and(high[g + 4], fifth));
    }
}

VEC_INLINE void tile_unpack6(vi w[8], const uint8_t *q)
{
    const vi low = vi_set1_8(15), upper = vi_set1_8(0x30);
    vi a = vi_load(q + 256), b = vi_load(q + 320);
    vi high[8] = {vi_sll16(a, 4), vi_sll16(a, 2), a, vi_srl16(a, 2),
                  vi_sll16(b, 4), vi_sll16(b, 2), b, vi_srl16(b, 2)};
    VEC_UNROLL for (int g = 0; g < 4; g++)
    {
        vi v = vi_load(q + 64 * g);
        w[g] = vi_and_or(v, low, vi_and(high[g], upper));
        w[g + 4] = vi_and_or(vi_srl16(v, 4), low, vi_and(high[g + 4], upper));
    }
}

/* Kinds of codes besides their bits: nibbles that are indexes into the type's values. */
#define TILE_VALUES 16

VEC_INLINE size_t tile_code_size(int bits)
{
    return bits == TILE_VALUES ? 256 : (size_t)bits * 64;
}

VEC_INLINE int tile_bits_of(const struct cpu_pack_type *t)
{
    return t->values ? TILE_VALUES : t->bits;
}

/* values: of TILE_VALUES. */
VEC_INLINE void tile_unpack(vi w[8], const uint8_t *q, int bits, const uint8_t *values)
{
    if (bits == TILE_VALUES) {
        const vi table = vi_load_table(values);
        tile_unpack4(w, q);
        VEC_UNROLL for (int g = 0; g < 8; g++)
            w[g] = vi_look_up(table, w[g]);
    } else if (bits == 2) {
        tile_unpack2(w, q);
    } else if (bits == 4) {
        tile_unpack4(w, q);
    } else if (bits == 5) {
        tile_unpack5(w, q);
    } else if (bits == 6) {
        tile_unpack6(w, q);
    } else {
        VEC_UNROLL for (int g = 0; g < 8; g++)
            w[g] = vi_load(q + 64 * g);
    }
}

VEC_INLINE vi tile_dot(vi acc, vi w, vi x, bool is_biased)
{
    return is_biased ? vi_dot_biased(acc, w, x) : vi_dot(acc, w, x);
}

/* First value of a sum: -offset * sum of the activations; 8-bit codes lose their bias in the dot
 * where there is no VNNI. */
VEC_INLINE vi tile_first(int32_t neg, int offset_log2, bool is_biased)
{
    if (offset_log2 == 0 || (is_biased && !VEC_HAS_VNNI))
        return vi_zero();
    return vi_sll(vi_set1(neg), offset_log2);
}

/* ---- panels of activations ---- */

/* One panel of columns: where its sections start. */
struct tile_acts {
    const int32_t *x;   /* [in/4][nc] */
    const float *d;     /* [blocks][nc] */
    const int32_t *neg; /* [in/32 or in/16][nc] */
    const void *sum;    /* dsum [in/32][nc], or pairs of i16 [in/64][nc] */
    const int32_t *spread, *factor; /* [in/256][nc], [in/32][nc] */
};

VEC_INLINE struct tile_acts tile_acts_at(const struct matmul_args *a,
                                         const struct cpu_form_layout *l, size_t first, size_t nc)
{
    const uint8_t *p = (const uint8_t *)a->act + first * l->size;
    const int32_t *spread = (const int32_t *)(const void *)(p + l->factor * nc);
    return (struct tile_acts){(const int32_t *)(const void *)p,
                              (const float *)(const void *)(p + l->d * nc),
                              (const int32_t *)(const void *)(p + l->neg * nc), p + l->sum * nc,
                              spread, spread + a->in / 256 * nc};
}

/* A product of few columns has one panel. */
VEC_INLINE struct tile_acts tile_acts_first(const struct matmul_args *a, enum cpu_form form,
                                            size_t nc)
{
    struct cpu_form_layout l = cpu_kernels_form_layout(form, a->in);
    return tile_acts_at(a, &l, 0, nc);
}

/* Factors of block b of 256, [8][nc]; NULL: it is not spread in any column, all are 1. */
VEC_INLINE const int32_t *tile_factors(const struct tile_acts *t, size_t b, int nc)
{
    const int32_t *spread = t->spread + b * (size_t)nc;
    int32_t any = 0;
    VEC_UNROLL for (int c = 0; c < nc; c++)
        any |= spread[c];
    return any ? t->factor + b * 8 * (size_t)nc : NULL;
}

VEC_INLINE vi tile_by_factor(vi x, const int32_t *factor, int at)
{
    return factor ? vi_mul(x, vi_set1(factor[at])) : x;
}

/* Rows row .. row + 15 (as many as there are) of one column. */
VEC_INLINE void tile_store(const struct matmul_args *a, size_t row, size_t column, vf acc)
{
    float *out = a->out[column] + row;
    size_t n = a->rows - row;
    if (a->scale != 1.0f)
        acc = vf_mul(acc, vf_set1(a->scale));
    if (n >= VEC_LANES) {
        vf_store(out, a->bias ? vf_add(acc, vf_load(a->bias + row)) : acc);
        return;
    }
    vf_store_part(out, a->bias ? vf_add(acc, vf_load_part(a->bias + row, n)) : acc, n);
}

/* ---- direct: scale per 32 ---- */

/* The group of 16 rows that row belongs to. */
VEC_INLINE const uint8_t *tile_group_at(const struct matmul_args *a, size_t row)
{
    const struct cpu_pack_type *p = &cpu_pack_table[a->type];
    return (const uint8_t *)a->weight + row / CPU_ROWS * cpu_pack_group(p, a->in);
}

VEC_INLINE vf tile_load_d(const uint8_t *p, bool is_float)
{
    return is_float ? vf_load((const float *)(const void *)p) : vf_from_f16(p);
}

VEC_INLINE void tile_direct_32(const struct matmul_args *a, int nc, int bits, int offset_log2,
                               bool has_float_d)
{
    const bool has_min = offset_log2 == 0, is_biased = offset_log2 == 7;
    const uint8_t *values = cpu_pack_table[a->type].values;
    const size_t scale_size = has_min || has_float_d ? 64 : 32;
    const size_t block_size = scale_size + tile_code_size(bits);
    struct tile_acts t = tile_acts_first(a, CPU_FORM_INT8_32, (size_t)nc);
    for (size_t row = a->row_first; row < a->row_last; row += CPU_ROWS) {
        const uint8_t *w0 = tile_group_at(a, row);
        const int32_t *x = t.x, *neg = t.neg;
        const float *ad = t.d, *sum = t.sum;
        vf acc[6];
        VEC_UNROLL for (int c = 0; c < nc; c++)
            acc[c] = vf_zero();
        for (size_t b = 0; b < a->in / 32; b++) {
            vi w[8];
            vec_prefetch(w0 + TILE_AHEAD, block_size);
            tile_unpack(w, w0 + scale_size, bits, values);
            vf d = tile_load_d(w0, has_float_d);
            VEC_UNROLL for (int c = 0; c < nc; c++)
            {
                vi s = tile_first(neg[c], offset_log2, is_biased), u = vi_zero();
                VEC_UNROLL for (int i = 0; i < 4; i++)
                {
                    s = tile_dot(s, w[i], vi_set1(x[i * nc + c]), is_biased);
                    u = tile_dot(u, w[i + 4], vi_set1(x[(i + 4) * nc + c]), is_biased);
                }
                acc[c] = vf_fma(vf_mul(d, vf_set1(ad[c])), vf_from_i(vi_add(s, u)), acc[c]);
                if (has_min)
                    acc[c] = vf_fma(vf_from_f16(w0 + 32), vf_set1(sum[c]), acc[c]);
            }
            w0 += block_size;
            x += 8 * nc;
            neg += nc;
            ad += nc;
            sum += nc;
        }
        VEC_UNROLL for (int c = 0; c < nc; c++)
            tile_store(a, row, (size_t)c, acc[c]);
    }
}

/* ---- direct: 256 inputs, integer scales per 32 or per 16 ---- */

/* Pairs of minimums for vi_dot16: sub-block 2p in the low half of a lane, 2p + 1 in the high. */
VEC_INLINE void tile_mins(vi m[4], const uint8_t *mn)
{
    VEC_UNROLL for (int p = 0; p < 4; p++)
        m[p] = vi_or(vi_from_u8(mn + 32 * p), vi_sll(vi_from_u8(mn + 32 * p + 16), 16));
}

/* Q4_K, Q5_K: acc += d ad sum(sc factor dot) - dmin ad sum(mn sum). */
VEC_INLINE void tile_direct_k32(const struct matmul_args *a, int nc, int bits)
{
    const size_t code_size = tile_code_size(bits);
    struct tile_acts t = tile_acts_first(a, CPU_FORM_INT8_256, (size_t)nc);
    for (size_t row = a->row_first; row < a->row_last; row += CPU_ROWS) {
        const uint8_t *scales = tile_group_at(a, row);
        const int32_t *x = t.x, *pairs = t.sum;
        const float *ad = t.d;
        vf acc[6];
        VEC_UNROLL for (int c = 0; c < nc; c++)
            acc[c] = vf_zero();
        for (size_t b = 0; b < a->in / 256; b++) {
            vi dot[6], m[4];
            VEC_UNROLL for (int c = 0; c < nc; c++)
                dot[c] = vi_zero();
            const uint8_t *codes = scales + 320;
            const int32_t *factor = tile_factors(&t, b, nc);
            vec_prefetch(scales + TILE_AHEAD, 320);
            for (int j = 0; j < 8; j++) {
                vi w[8], sc = vi_from_u8(scales + 64 + 16 * j);
                vec_prefetch(codes + TILE_AHEAD, code_size);
                tile_unpack(w, codes, bits, NULL);
                VEC_UNROLL for (int c = 0; c < nc; c++)
                {
                    vi s = vi_zero(), u = vi_zero();
                    VEC_UNROLL for (int i = 0; i < 4; i++)
                    {
                        s = vi_dot(s, w[i], vi_set1(x[i * nc + c]));
                        u = vi_dot(u, w[i + 4], vi_set1(x[(i + 4) * nc + c]));
                    }
                    s = vi_mul(sc, vi_add(s, u));
                    dot[c] = vi_add(dot[c], tile_by_factor(s, factor, j * nc + c));
                }
                codes += code_size;
                x += 8 * nc;
            }
            vf d = vf_from_f16(scales), dmin = vf_from_f16(scales + 32);
            tile_mins(m, scales + 192);
            VEC_UNROLL for (int c = 0; c < nc; c++)
            {
                vi min = vi_zero();
                VEC_UNROLL for (int i = 0; i < 4; i++)
                    min = vi_dot16(min, m[i], vi_set1(pairs[i * nc + c]));
                vf x1 = vf_set1(ad[c]);
                acc[c] = vf_fma(vf_mul(d, x1), vf_from_i(dot[c]), acc[c]);
                acc[c] = vf_fnma(vf_mul(dmin, x1), vf_from_i(min), acc[c]);
            }
            scales = codes;
            ad += nc;
            pairs += 4 * nc;
        }
        VEC_UNROLL for (int c = 0; c < nc; c++)
            tile_store(a, row, (size_t)c, acc[c]);
    }
}

/* Blocks of 256 with two scales per 32 inputs, with minimums where the codes have no offset. */
VEC_INLINE void tile_direct_k16(const struct matmul_args *a, int nc, int bits, int offset_log2)
{
    const bool has_min = offset_log2 == 0, is_biased = offset_log2 == 7;
    const bool has_float_d = bits == TILE_VALUES;
    const uint8_t *values = cpu_pack_table[a->type].values;
    const size_t head = has_min || has_float_d ? 64 : 32, code_size = tile_code_size(bits);
    const size_t scale_size = head + (has_min ? 512 : 256);
    struct tile_acts t = tile_acts_first(a, CPU_FORM_INT8_256, (size_t)nc);
    for (size_t row = a->row_first; row < a->row_last; row += CPU_ROWS) {
        const uint8_t *scales = tile_group_at(a, row);
        const int32_t *x = t.x, *neg = t.neg;
        const float *ad = t.d;
        vf acc[6];
        VEC_UNROLL for (int c = 0; c < nc; c++)
            acc[c] = vf_zero();
        for (size_t b = 0; b < a->in / 256; b++) {
            vi dot[6], min[6];
            VEC_UNROLL for (int c = 0; c < nc; c++)
                dot[c] = min[c] = vi_zero();
            const uint8_t *codes = scales + scale_size;
            const int32_t *factor = tile_factors(&t, b, nc);
            vec_prefetch(scales + TILE_AHEAD, scale_size);
            for (int j = 0; j < 8; j++) {
                vi w[8], sc = vi_from_i8(scales + head + 32 * j);
                vi sd = vi_from_i8(scales + head + 16 + 32 * j);
                vec_prefetch(codes + TILE_AHEAD, code_size);
                tile_unpack(w, codes, bits, values);
                VEC_UNROLL for (int c = 0; c < nc; c++)
                {
                    vi s = tile_first(neg[c], offset_log2, is_biased);
                    vi u = tile_first(neg[nc + c], offset_log2, is_biased);
                    VEC_UNROLL for (int i = 0; i < 4; i++)
                    {
                        s = tile_dot(s, w[i], vi_set1(x[i * nc + c]), is_biased);
                        u = tile_dot(u, w[i + 4], vi_set1(x[(i + 4) * nc + c]), is_biased);
                    }
                    s = vi_add(vi_mul(sc, s), vi_mul(sd, u));
                    dot[c] = vi_add(dot[c], tile_by_factor(s, factor, j * nc + c));
                    if (!has_min)
                        continue;
                    const uint8_t *mn = scales + head + 256 + 32 * j;
                    s = vi_mul(vi_from_u8(mn), vi_set1(neg[c]));
                    u = vi_mul(vi_from_u8(mn + 16), vi_set1(neg[nc + c]));
                    s = tile_by_factor(vi_add(s, u), factor, j * nc + c);
                    min[c] = vi_sub(min[c], s);
                }
                codes += code_size;
                x += 8 * nc;
                neg += 2 * nc;
            }
            vf d = tile_load_d(scales, has_float_d);
            VEC_UNROLL for (int c = 0; c < nc; c++)
            {
                vf x1 = vf_set1(ad[c]);
                acc[c] = vf_fma(vf_mul(d, x1), vf_from_i(dot[c]), acc[c]);
                if (has_min)
                    acc[c] = vf_fnma(vf_mul(vf_from_f16(scales + 32), x1), vf_from_i(min[c]),
                                     acc[c]);
            }
            scales = codes;
            ad += nc;
        }
        VEC_UNROLL for (int c = 0; c < nc; c++)
            tile_store(a, row, (size_t)c, acc[c]);
    }
}

/* ---- by type ---- */

static void tile_direct_q4_0(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_32(a, NC, 4, 3, false))
}

static void tile_direct_q4_1(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_32(a, NC, 4, 0, false))
}

static void tile_direct_q5_0(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_32(a, NC, 5, 4, false))
}

static void tile_direct_q5_1(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_32(a, NC, 5, 0, false))
}

static void tile_direct_q8_0(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_32(a, NC, 8, 7, false))
}

static void tile_direct_q4_k(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_k32(a, NC, 4))
}

static void tile_direct_q5_k(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_k32(a, NC, 5))
}

static void tile_direct_q6_k(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_k16(a, NC, 6, 5))
}

static void tile_direct_q3_k(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_k16(a, NC, 4, 2))
}

static void tile_direct_q2_k(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_k16(a, NC, 2, 0))
}

static void tile_direct_iq4_nl(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_32(a, NC, TILE_VALUES, 7, false))
}

static void tile_direct_mxfp4(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_32(a, NC, TILE_VALUES, 7, true))
}

/* IQ3_XXS, IQ3_S, IQ4_XS: other values, the same layout. */
static void tile_direct_iq(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, TILE_WIDTH, tile_direct_k16(a, NC, TILE_VALUES, 7))
}

/* NULL: only through panels. */
static void (*const tile_direct[QTYPE_WEIGHT_COUNT])(const struct matmul_args *a) = {
    [QTYPE_Q4_0] = tile_direct_q4_0, [QTYPE_Q4_1] = tile_direct_q4_1,
    [QTYPE_Q5_0] = tile_direct_q5_0, [QTYPE_Q5_1] = tile_direct_q5_1,
    [QTYPE_Q8_0] = tile_direct_q8_0, [QTYPE_Q4_K] = tile_direct_q4_k,
    [QTYPE_Q5_K] = tile_direct_q5_k, [QTYPE_Q6_K] = tile_direct_q6_k,
    [QTYPE_Q2_K] = tile_direct_q2_k, [QTYPE_Q3_K] = tile_direct_q3_k,
    [QTYPE_IQ4_NL] = tile_direct_iq4_nl, [QTYPE_MXFP4] = tile_direct_mxfp4,
    [QTYPE_IQ3_XXS] = tile_direct_iq, [QTYPE_IQ3_S] = tile_direct_iq,
    [QTYPE_IQ4_XS] = tile_direct_iq,
};

/* Up to so many columns codes are unpacked anew for each panel of them: other pipes do it while
 * the dots run, and there is no way through L1. Fifth bits take longer (NUMBERS 2026-11-30). */
static size_t tile_direct_most(enum qtype t)
{
    if (!tile_direct[t])
        return 0;
    if (TILE_GROUPS == 1)
        return TILE_WIDTH;
    return cpu_pack_table[t].bits == 5 ? 2 * TILE_WIDTH : 4 * TILE_WIDTH;
}

/* The form of a type's int8 activations. */
static enum cpu_form tile_form(enum qtype t)
{
    return quant_table[t].act_block == 32 ? CPU_FORM_INT8_32 : CPU_FORM_INT8_256;
}

/* 16 rows meet all panels before the next ones come from memory. */
static void tile_direct_product(const struct matmul_args *a)
{
    const size_t column_size = cpu_kernels_form_layout(tile_form(a->type), a->in).size;
    const size_t rows = a->columns <= TILE_WIDTH ? a->row_last - a->row_first : CPU_ROWS;
    for (size_t row = a->row_first; row < a->row_last; row += rows)
        for (size_t c = 0; c < a->columns; c += TILE_WIDTH) {
            struct matmul_args panel = *a;
            panel.act = (const uint8_t *)a->act + c * column_size;
            panel.out = a->out + c;
            panel.columns = base_min(TILE_WIDTH, a->columns - c);
            panel.row_first = row;
            panel.row_last = base_min(row + rows, a->row_last);
            tile_direct[a->type](&panel);
        }
}

#endif
#endif
