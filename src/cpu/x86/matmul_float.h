/* matmul_float - products with float activations, any weight type: the reference mode, and models
 * whose weights are floats. One text for every x86 level.
 *
 * Owns:      the order of a float sum, the float tiles, quantised weights as floats.
 * Not:       layouts (cpu_pack), values of quantised types (quant).
 * Invariant: one order for every level, path and number of columns. Inputs go in parts of
 *            FLOAT_PART; a part has two chains from zero, even and odd k, one fma each; then
 *            sum += even + odd.
 *
 *     F32 F16 BF16      groups of 16 rows, widened in registers
 *     quantised types   FLOAT_ROWS rows x one part made floats in L1, then as F32
 *
 * Thread:    pool threads; scratch is the worker's. Between parts the sums rest in `out`.
 * Limits:    CPU_MATMUL_SCRATCH.
 */
#ifndef SHOAL_CPU_X86_MATMUL_FLOAT_H
#define SHOAL_CPU_X86_MATMUL_FLOAT_H

#include "cpu/x86/matmul_tile.h"

#if defined(__AVX2__)

#define FLOAT_PART 128u
#if defined(__AVX512F__)
#define FLOAT_GROUPS 2 /* 2 groups x 6 columns x 2 chains: 24 of 32 registers */
#define FLOAT_WIDTH 6u
#else
#define FLOAT_GROUPS 1 /* 1 group x 3 columns x 2 chains: 12 of 16 */
#define FLOAT_WIDTH 3u
#endif
#define FLOAT_ROWS (FLOAT_GROUPS * 16u)

enum float_kind { FLOAT_F32, FLOAT_F16, FLOAT_BF16 };

/* Weights of FLOAT_GROUPS groups: where input 0 of a part lies. */
struct float_source {
    const uint8_t *group[FLOAT_GROUPS];
};

struct float_job {
    const struct matmul_args *a;
    struct float_source w;
    size_t row, k, count; /* of the tile; inputs of the part */
};

/* Inputs k and k + 1, k even. */
VEC_INLINE void float_load_pair(vf w[2], const uint8_t *group, size_t k, enum float_kind kind)
{
    if (kind == FLOAT_F32) {
        const float *p = (const float *)(const void *)(group + k * 64);
        w[0] = vf_load(p);
        w[1] = vf_load(p + 16);
    } else if (kind == FLOAT_F16) {
        w[0] = vf_from_f16(group + k * 32);
        w[1] = vf_from_f16(group + k * 32 + 32);
    } else {
        vf_from_bf16(w, vi_load(group + k * 32));
    }
}

VEC_INLINE void float_add(const struct float_job *j, vf sum, size_t group, size_t column)
{
    const struct matmul_args *a = j->a;
    size_t row = j->row + 16 * group, n = a->rows - row;
    if (row >= a->rows)
        return;
    float *out = a->out[column] + row;
    vf acc = vf_zero();
    if (j->k > 0)
        acc = n >= 16 ? vf_load(out) : vf_load_part(out, n);
    acc = vf_add(acc, sum);
    if (j->k + j->count >= a->in)
        tile_store(a, row, column, acc);
    else if (n >= 16)
        vf_store(out, acc);
    else
        vf_store_part(out, acc, n);
}

VEC_INLINE void float_tile(const struct float_job *j, size_t column, int nc, enum float_kind kind)
{
    const struct matmul_args *a = j->a;
    size_t row_size = cpu_kernels_form_layout(CPU_FORM_F32, a->in).size;
    const float *x = (const float *)(const void *)((const uint8_t *)a->act + column * row_size);
    const size_t pair = kind == FLOAT_F32 ? 128 : 64; /* bytes of two inputs */
    vf even[FLOAT_GROUPS][6], odd[FLOAT_GROUPS][6];
    x += j->k * (size_t)nc;
    VEC_UNROLL for (int c = 0; c < nc; c++)
        VEC_UNROLL for (int r = 0; r < FLOAT_GROUPS; r++)
            even[r][c] = odd[r][c] = vf_zero();
    for (size_t k = 0; k + 1 < j->count; k += 2, x += 2 * nc) {
        vf w[FLOAT_GROUPS][2];
        VEC_UNROLL for (int r = 0; r < FLOAT_GROUPS; r++)
        {
            float_load_pair(w[r], j->w.group[r], k, kind);
            if (column == 0)
                vec_prefetch(j->w.group[r] + k * pair / 2 + TILE_AHEAD, pair);
        }
        VEC_UNROLL for (int c = 0; c < nc; c++)
        {
            vf x0 = vf_set1(x[c]), x1 = vf_set1(x[nc + c]);
            VEC_UNROLL for (int r = 0; r < FLOAT_GROUPS; r++)
            {
                even[r][c] = vf_fma(w[r][0], x0, even[r][c]);
                odd[r][c] = vf_fma(w[r][1], x1, odd[r][c]);
            }
        }
    }
    if (j->count & 1) { /* the zero behind an odd row would spoil the sum of an infinite input */
        VEC_UNROLL for (int r = 0; r < FLOAT_GROUPS; r++)
        {
            vf w[2];
            float_load_pair(w, j->w.group[r], j->count - 1, kind);
            VEC_UNROLL for (int c = 0; c < nc; c++)
                even[r][c] = vf_fma(w[0], vf_set1(x[c]), even[r][c]);
        }
    }
    VEC_UNROLL for (int c = 0; c < nc; c++)
        VEC_UNROLL for (int r = 0; r < FLOAT_GROUPS; r++)
            float_add(j, vf_add(even[r][c], odd[r][c]), (size_t)r, column + (size_t)c);
}

static void float_columns(const struct float_job *j, enum float_kind kind)
{
    size_t columns = j->a->columns, width = columns <= FLOAT_WIDTH ? columns : FLOAT_WIDTH;
    for (size_t c = 0; c < columns; c += width) {
        size_t nc = base_min(width, columns - c);
        switch (kind) {
        case FLOAT_F32:
            TILE_COLUMNS(nc, FLOAT_WIDTH, float_tile(j, c, NC, FLOAT_F32))
            break;
        case FLOAT_F16:
            TILE_COLUMNS(nc, FLOAT_WIDTH, float_tile(j, c, NC, FLOAT_F16))
            break;
        case FLOAT_BF16:
            TILE_COLUMNS(nc, FLOAT_WIDTH, float_tile(j, c, NC, FLOAT_BF16))
            break;
        }
    }
}

/* Past the last group: the last one again, nobody stores it. */
static size_t float_row_of(const struct matmul_args *a, size_t row, size_t group)
{
    return row + 16 * group < a->rows ? row + 16 * group : row;
}

static void float_product(const struct matmul_args *a)
{
    size_t size = cpu_pack_size(a->type, CPU_ROWS, a->in), bytes = quant_table[a->type].block_bytes;
    enum float_kind kind = a->type == QTYPE_F32   ? FLOAT_F32
                           : a->type == QTYPE_F16 ? FLOAT_F16
                                                  : FLOAT_BF16;
    struct float_job j = {.a = a};
    for (j.row = a->row_first; j.row < a->row_last; j.row += FLOAT_ROWS)
        for (j.k = 0; j.k < a->in; j.k += FLOAT_PART) {
            j.count = base_min(FLOAT_PART, a->in - j.k);
            for (size_t r = 0; r < FLOAT_GROUPS; r++) {
                size_t row = float_row_of(a, j.row, r);
                j.w.group[r] = (const uint8_t *)a->weight + row / 16 * size + j.k * 16 * bytes;
            }
            float_columns(&j, kind);
        }
}

/* ---- quantised weights as floats ---- */

struct float_panel {
    float w[FLOAT_GROUPS][FLOAT_PART][16];
};

/* w = d q - m of a sub-block: d = d * sc, m = dm * mn. Only the subtraction rounds. */
struct float_scale {
    vf d, m;
    int offset; /* of q */
    bool has_min;
};

/* k-groups first .. last - 1 of 16 rows x 32 inputs. */
VEC_INLINE void float_put(float (*dst)[16], const vi w[8], int first, int last,
                          const struct float_scale *s)
{
    const vi byte = vi_set1(255), zero = vi_set1(s->offset);
    VEC_UNROLL for (int g = first; g < last; g++)
        VEC_UNROLL for (int b = 0; b < 4; b++)
        {
            vf q = vf_from_i(vi_sub(vi_and(vi_srl(w[g], 8 * b), byte), zero));
            vf x = vf_mul(s->d, q);
            vf_store(dst[4 * g + b], s->has_min ? vf_sub(x, s->m) : x);
        }
}

static void float_fill_32(float (*dst)[16], const struct cpu_pack_type *t, const uint8_t *group,
                          size_t block)
{
    vi w[8];
    const uint8_t *scales = group + block * cpu_pack_block(t);
    struct float_scale s = {.d = tile_load_d(scales, t->has_float_d), .m = vf_zero()};
    tile_unpack(w, scales + t->scale_size, tile_bits_of(t), t->values);
    if (t->offset_log2) {
        s.offset = 1 << t->offset_log2;
        float_put(dst, w, 0, 8, &s);
        return;
    }
    s.has_min = true;
    s.m = vf_sub(vf_zero(), vf_from_f16(scales + 32));
    float_put(dst, w, 0, 8, &s);
}

static void float_fill_256(float (*dst)[16], const struct cpu_pack_type *t, const uint8_t *group,
                           size_t block)
{
    vi w[8];
    size_t i = block % 8;
    const uint8_t *scales = group + block / 8 * cpu_pack_block(t);
    vf d = tile_load_d(scales, t->has_float_d);
    struct float_scale s = {.m = vf_zero()};
    tile_unpack(w, scales + t->scale_size + i * (t->code_size / 8u), tile_bits_of(t), t->values);
    if (t->scale_size != 320 || t->values) { /* two scales per 32 inputs */
        s.has_min = t->offset_log2 == 0;
        s.offset = s.has_min ? 0 : 1 << t->offset_log2;
        const uint8_t *sc = scales + t->scale_size - (s.has_min ? 512 : 256) + 32 * i;
        for (int half = 0; half < 2; half++, sc += 16) {
            s.d = vf_mul(d, vf_from_i(vi_from_i8(sc)));
            if (s.has_min)
                s.m = vf_mul(vf_from_f16(scales + 32), vf_from_i(vi_from_u8(sc + 256)));
            if (half == 0)
                float_put(dst, w, 0, 4, &s);
            else
                float_put(dst, w, 4, 8, &s);
        }
        return;
    }
    s.has_min = true;
    s.d = vf_mul(d, vf_from_i(vi_from_u8(scales + 64 + 16 * i)));
    s.m = vf_mul(vf_from_f16(scales + 32), vf_from_i(vi_from_u8(scales + 192 + 16 * i)));
    float_put(dst, w, 0, 8, &s);
}

/* Types in file layout: quant's decoder, whole blocks of at most 256 around the part. */
static void float_fill_file(const struct float_job *j, struct float_panel *p)
{
    const struct quant_type *q = &quant_table[j->a->type];
    size_t row_size = j->a->in / q->block_elems * q->block_bytes;
    for (size_t r = 0; r < FLOAT_ROWS; r++) {
        size_t row = j->row + r < j->a->rows ? j->row + r : j->row;
        const uint8_t *src = (const uint8_t *)j->a->weight + row * row_size;
        for (size_t k = j->k; k < j->k + j->count;) {
            float x[256];
            size_t in_block = k % q->block_elems;
            q->dequant(x, src + k / q->block_elems * q->block_bytes, q->block_elems);
            for (; in_block < q->block_elems && k < j->k + j->count; in_block++, k++)
                p->w[r / 16][k - j->k][r % 16] = x[in_block];
        }
    }
}

static void float_fill(const struct float_job *j, struct float_panel *p)
{
    const struct cpu_pack_type *t = &cpu_pack_table[j->a->type];
    if (t->kind == CPU_PACK_FILE) {
        float_fill_file(j, p);
        return;
    }
    for (size_t r = 0; r < FLOAT_GROUPS; r++) {
        const uint8_t *g = tile_group_at(j->a, float_row_of(j->a, j->row, r));
        for (size_t b = 0; b < j->count / 32; b++) {
            if (t->block == 32)
                float_fill_32(p->w[r] + b * 32, t, g, j->k / 32 + b);
            else
                float_fill_256(p->w[r] + b * 32, t, g, j->k / 32 + b);
        }
    }
}

static void float_product_quantised(const struct matmul_args *a)
{
    struct float_panel *p = a->scratch;
    struct float_job j = {.a = a};
    for (size_t r = 0; r < FLOAT_GROUPS; r++)
        j.w.group[r] = (const uint8_t *)p->w[r];
    for (j.row = a->row_first; j.row < a->row_last; j.row += FLOAT_ROWS)
        for (j.k = 0; j.k < a->in; j.k += FLOAT_PART) {
            j.count = base_min(FLOAT_PART, a->in - j.k);
            float_fill(&j, p);
            float_columns(&j, FLOAT_F32);
        }
}

#endif
#endif
