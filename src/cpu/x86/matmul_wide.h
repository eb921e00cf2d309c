/* matmul_wide - activations of 16 bits as two planes of bytes, any weight type, one text for every
 * x86 level.
 *
 * Owns:      the direct loop and the register tiles of 16-bit activations.
 * Not:       unpacking (matmul_tile.h), filling a panel and the loops over it (matmul_panel.h).
 * Invariant: a float step per sub-block as cpu_codes.h says, k ascending: the bits of ref. A
 *            column is two columns of bytes, so the tiles of int8 serve half as many:
 *
 *     x[k-group]   hi of column 0 .. n - 1 | lo of column 0 .. n - 1
 *     sums         s[0 .. n - 1]           | s[n .. 2n - 1]            sum = 256 * s[c] + s[n + c]
 *
 * Thread:    pool threads; scratch is the worker's.
 * Limits:    WIDE_WIDTH columns of a tile; up to as many go the direct way.
 */
#ifndef SHOAL_CPU_X86_MATMUL_WIDE_H
#define SHOAL_CPU_X86_MATMUL_WIDE_H

#include "cpu/x86/matmul_panel.h"

#if defined(__AVX2__)

#define WIDE_WIDTH (TILE_WIDTH / 2)

/* Raw sums of one column and plane are below 32 * 255 * 128, so this stays below 2^31. */
VEC_INLINE vi wide_join(vi hi, vi lo) { return vi_add(vi_sll(hi, 8), lo); }

/* ---- direct ---- */

/* Of one sub-block: d * sc, and with minimums m = -(dm * mn). */
struct wide_scale {
    vf d, m;
};

/* Sub-block i of a block; ints: where its integer scales start. */
VEC_INLINE struct wide_scale wide_scale_of(enum tile_kind kind, struct wide_scale block,
                                           const uint8_t *ints, int i, bool has_min)
{
    vi sc, mn = vi_zero();
    if (kind == TILE_32)
        return block;
    if (kind == TILE_K32) {
        sc = vi_from_u8(ints + 16 * i);
        mn = vi_from_u8(ints + 128 + 16 * i);
    } else {
        sc = vi_from_i8(ints + 16 * i);
        if (has_min)
            mn = vi_from_u8(ints + 256 + 16 * i);
    }
    return (struct wide_scale){vf_mul(block.d, vf_from_i(sc)),
                               has_min ? vf_mul(block.m, vf_from_i(mn)) : block.m};
}

VEC_INLINE void wide_direct(const struct matmul_args *a, int nc, enum tile_kind kind, int bits,
                            int offset_log2, bool has_float_d)
{
    const bool has_min = offset_log2 == 0, is_biased = offset_log2 == 7;
    const int sub = kind == TILE_K16 && bits != TILE_VALUES ? 16 : 32;
    const int per = kind == TILE_32 ? 1 : 8;
    const size_t head = has_min || has_float_d ? 64 : 32, code_size = tile_code_size(bits);
    const size_t scale_size =
        head + (kind == TILE_32 ? 0 : kind == TILE_K16 && has_min ? 512 : 256);
    const uint8_t *values = cpu_pack_table[a->type].values;
    const vi minus = vi_set1((int32_t)0x80000000u);
    struct tile_acts t = tile_acts_first(a, CPU_FORM_INT16, (size_t)nc);
    for (size_t row = a->row_first; row < a->row_last; row += CPU_ROWS) {
        const uint8_t *scales = tile_group_at(a, row);
        const int32_t *x = t.x, *neg = t.neg;
        const float *ad = t.d, *sum = t.sum;
        vf acc[6];
        VEC_UNROLL for (int c = 0; c < nc; c++)
            acc[c] = vf_zero();
        for (size_t k = 0; k < a->in; k += 32 * (size_t)per) {
            const uint8_t *codes = scales + scale_size;
            struct wide_scale block = {tile_load_d(scales, has_float_d), vf_zero()};
            if (has_min)
                block.m = vf_from_f16(scales + 32);
            if (has_min && kind != TILE_32)
                block.m = vf_xor(block.m, minus);
            vec_prefetch(scales + TILE_AHEAD, scale_size);
            for (int i = 0; i < per; i++) {
                vi w[8];
                vec_prefetch(codes + TILE_AHEAD, code_size);
                tile_unpack(w, codes, bits, values);
                VEC_UNROLL for (int part = 0; part < 32 / sub; part++)
                {
                    /* Of K16 with a scale per 32 both are the same. */
                    int at = kind == TILE_K16 ? 2 * i + part : i;
                    struct wide_scale s = wide_scale_of(kind, block, scales + head, at, has_min);
                    VEC_UNROLL for (int c = 0; c < nc; c++)
                    {
                        int32_t n = neg[part * nc + c] + (sub == 32 ? neg[nc + c] : 0);
                        vi hi = vi_zero(), lo = tile_first(n, offset_log2, is_biased);
                        VEC_UNROLL for (int g = 4 * part; g < 4 * part + sub / 4; g++)
                        {
                            hi = tile_dot(hi, w[g], vi_set1(x[2 * g * nc + c]), is_biased);
                            lo = tile_dot(lo, w[g], vi_set1(x[(2 * g + 1) * nc + c]), is_biased);
                        }
                        acc[c] = vf_fma(vf_mul(s.d, vf_set1(ad[c])),
                                        vf_from_i(wide_join(hi, lo)), acc[c]);
                        if (has_min)
                            acc[c] = vf_fma(s.m, vf_set1(sub == 32 ? sum[c] : ad[c] * (float)-n),
                                            acc[c]);
                    }
                }
                codes += code_size;
                x += 16 * nc;
                neg += 2 * nc;
                ad += nc;
                sum += nc;
            }
            scales = codes;
        }
        VEC_UNROLL for (int c = 0; c < nc; c++)
            tile_store(a, row, (size_t)c, acc[c]);
    }
}

static void wide_direct_q4_0(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_32, 4, 3, false))
}

static void wide_direct_q4_1(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_32, 4, 0, false))
}

static void wide_direct_q5_0(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_32, 5, 4, false))
}

static void wide_direct_q5_1(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_32, 5, 0, false))
}

static void wide_direct_q8_0(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_32, 8, 7, false))
}

static void wide_direct_iq4_nl(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_32, TILE_VALUES, 7, false))
}

static void wide_direct_mxfp4(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_32, TILE_VALUES, 7, true))
}

static void wide_direct_q4_k(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_K32, 4, 0, false))
}

static void wide_direct_q5_k(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_K32, 5, 0, false))
}

static void wide_direct_q6_k(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_K16, 6, 5, false))
}

static void wide_direct_q3_k(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_K16, 4, 2, false))
}

static void wide_direct_q2_k(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_K16, 2, 0, false))
}

/* IQ3_XXS, IQ3_S, IQ4_XS. */
static void wide_direct_iq(const struct matmul_args *a)
{
    TILE_COLUMNS(a->columns, WIDE_WIDTH, wide_direct(a, NC, TILE_K16, TILE_VALUES, 7, true))
}

/* NULL: only through panels. */
static void (*const wide_direct_table[QTYPE_WEIGHT_COUNT])(const struct matmul_args *a) = {
    [QTYPE_Q4_0] = wide_direct_q4_0, [QTYPE_Q4_1] = wide_direct_q4_1,
    [QTYPE_Q5_0] = wide_direct_q5_0, [QTYPE_Q5_1] = wide_direct_q5_1,
    [QTYPE_Q8_0] = wide_direct_q8_0, [QTYPE_Q4_K] = wide_direct_q4_k,
    [QTYPE_Q5_K] = wide_direct_q5_k, [QTYPE_Q6_K] = wide_direct_q6_k,
    [QTYPE_Q2_K] = wide_direct_q2_k, [QTYPE_Q3_K] = wide_direct_q3_k,
    [QTYPE_IQ4_NL] = wide_direct_iq4_nl, [QTYPE_MXFP4] = wide_direct_mxfp4,
    [QTYPE_IQ3_XXS] = wide_direct_iq, [QTYPE_IQ3_S] = wide_direct_iq,
    [QTYPE_IQ4_XS] = wide_direct_iq,
};

/* ---- panel ---- */

struct wide_panel {
    struct tile_panel tile; /* first: what tile_fill writes */
    float d[TILE_BLOCKS * 2][TILE_ROWS], m[TILE_BLOCKS * 2][TILE_ROWS]; /* per sub-block */
};

static void wide_fill(const struct tile_job *j)
{
    const bool is_k = j->kind == TILE_K32 || j->kind == TILE_K16;
    const size_t sub = cpu_codes_table[j->a->type].sub;
    const struct tile_panel *p = j->panel;
    struct wide_panel *to = (struct wide_panel *)(void *)j->panel;
    tile_fill(j);
    for (size_t s = 0; s < j->blocks * 32 / sub; s++)
        for (size_t at = 0; at < TILE_ROWS; at += 16) {
            size_t block = is_k ? s * sub / 256 : s;
            size_t scale = j->kind == TILE_K32 ? s : s * sub / 16;
            vf d = vf_load(p->d[block] + at), m = vf_zero();
            if (j->has_min)
                m = vf_load(p->dm[block] + at);
            if (is_k)
                d = vf_mul(d, vf_from_i(vi_load(p->sc[scale] + at)));
            if (is_k && j->has_min) {
                vi mn = vi_load(p->mn[j->kind == TILE_K32 ? s / 2 : scale] + at);
                if (j->kind == TILE_K32)
                    mn = s % 2 ? vi_srl(mn, 16) : vi_and(mn, vi_set1(0xffff));
                m = vf_xor(vf_mul(m, vf_from_i(mn)), vi_set1((int32_t)0x80000000u));
            }
            vf_store(to->d[s] + at, d);
            vf_store(to->m[s] + at, m);
        }
}

/* acc += (d ad) * sum, then m * ad * sum of the activations; s: hi, then lo of nc columns. */
VEC_INLINE void wide_add(vf acc[TILE_GROUPS][6], vi s[TILE_GROUPS][6], const float *d,
                         const float *ad, int nc)
{
    VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
    {
        vf scale = vf_load(d + 16 * r);
        VEC_UNROLL for (int c = 0; c < nc; c++)
        {
            vf sum = vf_from_i(wide_join(s[r][c], s[r][nc + c]));
            acc[r][c] = vf_fma(vf_mul(scale, vf_set1(ad[c])), sum, acc[r][c]);
        }
    }
}

VEC_INLINE void wide_run(const struct tile_job *j, size_t column, int nc, int sub, bool is_biased)
{
    const struct wide_panel *p = (const struct wide_panel *)(const void *)j->panel;
    const int parts = 32 / sub;
    struct tile_acts t = tile_acts_at(j->a, &j->form, column, (size_t)nc);
    const int32_t *x = t.x + j->block * 16 * (size_t)nc, *neg = t.neg + j->block * 2 * (size_t)nc;
    const float *ad = t.d + j->block * (size_t)nc;
    const float *sum = (const float *)t.sum + j->block * (size_t)nc;
    vf acc[TILE_GROUPS][6];
    tile_begin(j, acc, column, nc);
    tile_fetch_out(j, column + (size_t)nc, nc);
    for (size_t b = 0; b < j->blocks; b++) {
        if (j->fetches)
            tile_fetch(j, b);
        for (int part = 0; part < parts; part++) {
            size_t step = b * (size_t)parts + (size_t)part;
            vi s[TILE_GROUPS][6];
            int32_t n[6] = {0};
            VEC_UNROLL for (int c = 0; c < nc; c++)
                n[nc + c] = sub == 32 ? neg[c] + neg[nc + c] : neg[part * nc + c];
            tile_set_first(j, s, j->has_min ? NULL : n, 2 * nc, is_biased);
            tile_sums(s, p->tile.codes[b][4 * part][0], x + 8 * part * nc, 2 * nc, sub / 4,
                      is_biased);
            wide_add(acc, s, p->d[step], ad, nc);
            for (int c = 0; c < nc && j->has_min; c++) {
                vf by = vf_set1(sub == 32 ? sum[c] : ad[c] * (float)-n[nc + c]);
                VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
                    acc[r][c] = vf_fma(vf_load(p->m[step] + 16 * r), by, acc[r][c]);
            }
        }
        x += 16 * nc;
        neg += 2 * nc;
        ad += nc;
        sum += nc;
    }
    tile_end(j, acc, column, nc);
}

static void wide_tile(const struct tile_job *j, size_t column, size_t nc)
{
    const bool is_by_16 = cpu_codes_table[j->a->type].sub == 16;
    if (j->is_biased && !VEC_HAS_VNNI) {
        if (is_by_16)
            TILE_COLUMNS(nc, WIDE_WIDTH, wide_run(j, column, NC, 16, !VEC_HAS_VNNI))
        else
            TILE_COLUMNS(nc, WIDE_WIDTH, wide_run(j, column, NC, 32, !VEC_HAS_VNNI))
    } else if (is_by_16) {
        TILE_COLUMNS(nc, WIDE_WIDTH, wide_run(j, column, NC, 16, false))
    } else {
        TILE_COLUMNS(nc, WIDE_WIDTH, wide_run(j, column, NC, 32, false))
    }
}

static void wide_product(const struct matmul_args *a)
{
    if (a->columns <= WIDE_WIDTH && wide_direct_table[a->type]) {
        wide_direct_table[a->type](a);
        return;
    }
    struct tile_job j = tile_job_of(a, CPU_FORM_INT16);
    j.width = WIDE_WIDTH;
    j.flip = 0x80808080u; /* all types: the form has sums of 16 activations */
    j.fill = wide_fill;
    j.run = wide_tile;
    tile_loops(&j, 2 * a->in);
}

#endif
#endif
