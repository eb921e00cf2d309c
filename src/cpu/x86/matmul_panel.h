/* matmul_panel - many columns times weights of any type, int8, one text for every x86 level.
 *
 * Owns:      unpacking TILE_ROWS rows x TILE_BLOCKS blocks to bytes in L1, and the register tiles
 *            that run over them; the choice between this and the direct loop.
 * Not:       packed layouts (cpu_pack), codes of types in file layout (cpu_codes).
 * Invariant: float steps as in matmul_tile.h. Between blocks of inputs a tile's sums rest in `out`.
 *
 *     for blocks of inputs        their activations stay in L2
 *       for TILE_ROWS rows        unpacked once, stay in L1
 *         for up to TILE_WIDTH columns: registers hold TILE_ROWS x columns sums
 *
 * Thread:    pool threads; scratch is the worker's.
 * Limits:    CPU_MATMUL_SCRATCH.
 */
#ifndef SHOAL_CPU_X86_MATMUL_PANEL_H
#define SHOAL_CPU_X86_MATMUL_PANEL_H

#include <string.h>

#include "cpu/x86/matmul_tile.h"

#if defined(__AVX2__)

/* ---- panel: unpacked codes and scales of TILE_ROWS rows x TILE_BLOCKS blocks ---- */

/* How scales and sums go together (cpu_codes): 32: d per 32 inputs; 16: d per 16; K32, K16: d per
 * 256, integer scales per 32 or 16. */
enum tile_kind { TILE_32, TILE_16, TILE_K32, TILE_K16 };

struct tile_panel {
    uint8_t codes[TILE_BLOCKS][8][TILE_GROUPS][64];
    float d[TILE_BLOCKS * 2][TILE_ROWS]; /* per step */
    float dm[TILE_BLOCKS][TILE_ROWS];
    int32_t sc[TILE_BLOCKS * 2][TILE_ROWS]; /* per sub-block */
    int32_t mn[TILE_BLOCKS * 2][TILE_ROWS]; /* K32: pairs of i16, per 64; K16: per 16; signed
                                               codes: tile_fill_over, per 16 */
};

struct tile_job {
    const struct matmul_args *a;
    struct tile_panel *panel;
    struct cpu_form_layout form; /* of the activations */
    enum tile_kind kind;
    bool has_min, is_biased; /* is_biased: codes are q + 128 */
    int offset_log2;         /* of the codes */
    uint32_t flip;           /* file layout: 0x80808080 makes four codes biased, 0 leaves signs */
    size_t row;              /* of the panel */
    size_t block, blocks;    /* of 32 inputs */
    size_t width;            /* columns of a tile */
    void (*fill)(const struct tile_job *j);
    void (*run)(const struct tile_job *j, size_t column, size_t nc); /* one tile */
    /* What the next unpacking reads; the first tile fetches it, bytes per block. */
    bool fetches;
    const uint8_t *next[TILE_GROUPS];
    size_t next_size;
};

/* 32 inputs of a packed group, 16 rows, to their place in the panel. */
VEC_INLINE void tile_fill_codes(struct tile_panel *p, size_t block, size_t group,
                                const uint8_t *codes, int bits, const uint8_t *values)
{
    vi w[8];
    tile_unpack(w, codes, bits, values);
    VEC_UNROLL for (int g = 0; g < 8; g++)
        vi_store(p->codes[block][g][group], w[g]);
}

/* w: the group's first block of the part. */
VEC_INLINE void tile_fill_group_32(const struct tile_job *j, size_t group, const uint8_t *w,
                                   int bits, bool has_min)
{
    const struct cpu_pack_type *t = &cpu_pack_table[j->a->type];
    const size_t scale_size = has_min ? 64 : t->scale_size;
    const size_t block_size = scale_size + tile_code_size(bits);
    struct tile_panel *p = j->panel;
    for (size_t b = 0; b < j->blocks; b++, w += block_size) {
        tile_fill_codes(p, b, group, w + scale_size, bits, t->values);
        vf_store(p->d[b] + 16 * group, tile_load_d(w, t->has_float_d));
        if (has_min)
            vf_store(p->dm[b] + 16 * group, vf_from_f16(w + 32));
    }
}

/* Q4_K, Q5_K. */
VEC_INLINE void tile_fill_group_k32(const struct tile_job *j, size_t group, const uint8_t *w,
                                    int bits)
{
    const size_t code_size = tile_code_size(bits);
    struct tile_panel *p = j->panel;
    for (size_t b = 0; b < j->blocks / 8; b++, w += 320 + 8 * code_size) {
        vi m[4];
        vf_store(p->d[b] + 16 * group, vf_from_f16(w));
        vf_store(p->dm[b] + 16 * group, vf_from_f16(w + 32));
        tile_mins(m, w + 192);
        for (size_t i = 0; i < 8; i++) {
            tile_fill_codes(p, b * 8 + i, group, w + 320 + i * code_size, bits, NULL);
            vi_store(p->sc[b * 8 + i] + 16 * group, vi_from_u8(w + 64 + 16 * i));
        }
        for (size_t i = 0; i < 4; i++)
            vi_store(p->mn[b * 4 + i] + 16 * group, m[i]);
    }
}

/* All other blocks of 256. */
VEC_INLINE void tile_fill_group_k16(const struct tile_job *j, size_t group, const uint8_t *w,
                                    int bits)
{
    const struct cpu_pack_type *t = &cpu_pack_table[j->a->type];
    const size_t code_size = tile_code_size(bits);
    const size_t head = t->scale_size - (j->has_min ? 512u : 256u);
    struct tile_panel *p = j->panel;
    for (size_t b = 0; b < j->blocks / 8; b++, w += t->scale_size + 8 * code_size) {
        vf_store(p->d[b] + 16 * group, tile_load_d(w, t->has_float_d));
        if (j->has_min)
            vf_store(p->dm[b] + 16 * group, vf_from_f16(w + 32));
        for (size_t i = 0; i < 16; i++) {
            vi_store(p->sc[b * 16 + i] + 16 * group, vi_from_i8(w + head + 16 * i));
            if (j->has_min)
                vi_store(p->mn[b * 16 + i] + 16 * group, vi_from_u8(w + head + 256 + 16 * i));
        }
        for (size_t i = 0; i < 8; i++)
            tile_fill_codes(p, b * 8 + i, group, w + t->scale_size + i * code_size, bits,
                            t->values);
    }
}

static void tile_fill_group(const struct tile_job *j, size_t group, const uint8_t *w)
{
    const struct cpu_pack_type *t = &cpu_pack_table[j->a->type];
    w += j->block * 32 / t->block * cpu_pack_block(t);
    if (j->kind == TILE_K32) {
        if (t->bits == 4)
            tile_fill_group_k32(j, group, w, 4);
        else
            tile_fill_group_k32(j, group, w, 5);
    } else if (j->kind == TILE_K16) {
        if (t->values)
            tile_fill_group_k16(j, group, w, TILE_VALUES);
        else if (t->bits == 2)
            tile_fill_group_k16(j, group, w, 2);
        else if (t->bits == 4)
            tile_fill_group_k16(j, group, w, 4);
        else
            tile_fill_group_k16(j, group, w, 6);
    } else if (t->values) {
        tile_fill_group_32(j, group, w, TILE_VALUES, false);
    } else if (t->bits == 4) {
        if (j->has_min)
            tile_fill_group_32(j, group, w, 4, true);
        else
            tile_fill_group_32(j, group, w, 4, false);
    } else if (t->bits == 5) {
        if (j->has_min)
            tile_fill_group_32(j, group, w, 5, true);
        else
            tile_fill_group_32(j, group, w, 5, false);
    } else {
        tile_fill_group_32(j, group, w, 8, false);
    }
}

/* Step `step` of the panel, of a row in file layout, to its lane r: as K16, 32 or 16. No such type
 * has minimums. */
static void tile_fill_step(const struct tile_job *j, size_t r, size_t step, const uint8_t *row)
{
    const struct cpu_codes_type *t = &cpu_codes_table[j->a->type];
    struct tile_panel *p = j->panel;
    struct cpu_codes c;
    size_t first = step * t->step;
    t->decode(&c, row, j->block * 32 + first);
    for (size_t i = 0; i < t->step; i += 4) {
        uint32_t word;
        size_t at = first + i;
        memcpy(&word, c.q + i, 4);
        word ^= j->flip;
        memcpy(p->codes[at / 32][at % 32 / 4][r / 16] + r % 16 * 4, &word, 4);
    }
    p->d[step][r] = c.d;
    for (size_t i = 0; i < 16 && t->step == 256; i++)
        p->sc[first / 16 + i][r] = c.sc[i * 16 / t->sub];
}

/* Signed codes: what 128 too much in each activation adds to a step's sums, negated. */
static void tile_fill_over(const struct tile_job *j)
{
    struct tile_panel *p = j->panel;
    for (size_t step = 0; step < 2 * j->blocks; step++)
        for (size_t r = 0; r < TILE_GROUPS; r++) {
            vi sum = vi_zero();
            for (size_t g = 0; g < 4; g++)
                sum = vi_dot(sum, vi_set1_8(1), vi_load(p->codes[step / 2][step % 2 * 4 + g][r]));
            vi_store(p->mn[step] + 16 * r, vi_sub(vi_zero(), vi_sll(sum, 7)));
        }
}

static void tile_fill_file(const struct tile_job *j)
{
    const struct quant_type *q = &quant_table[j->a->type];
    size_t row_size = j->a->in / q->block_elems * q->block_bytes;
    size_t steps = j->blocks * 32 / cpu_codes_table[j->a->type].step;
    for (size_t r = 0; r < TILE_ROWS; r++) {
        const uint8_t *row = (const uint8_t *)j->a->weight + (j->row + r) * row_size;
        for (size_t i = 0; i < steps; i++) {
            if (j->row + r < j->a->rows)
                tile_fill_step(j, r, i, row);
            else /* a scale of zero: what lies in the codes does not count */
                j->panel->d[i][r] = 0.0f;
        }
    }
    if (j->flip == 0)
        tile_fill_over(j);
}

static void tile_fill(const struct tile_job *j)
{
    const struct cpu_pack_type *t = &cpu_pack_table[j->a->type];
    if (t->kind == CPU_PACK_FILE) {
        tile_fill_file(j);
        return;
    }
    for (size_t group = 0; group < TILE_GROUPS; group++) {
        /* Past the last group: its rows again, nobody stores them. */
        size_t row = j->row + 16 * group < j->a->rows ? j->row + 16 * group : j->row;
        tile_fill_group(j, group, tile_group_at(j->a, row));
    }
}

/* ---- panel: the register tiles ---- */

/* s[group][column] += sums over k_groups vectors of codes per group. */
VEC_INLINE void tile_sums(vi s[TILE_GROUPS][6], const uint8_t *codes, const int32_t *x, int nc,
                          int k_groups, bool is_biased)
{
    VEC_UNROLL for (int g = 0; g < k_groups; g++)
    {
        vi w[TILE_GROUPS];
        VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
            w[r] = vi_load(codes + (g * TILE_GROUPS + r) * 64);
        VEC_UNROLL for (int c = 0; c < nc; c++)
        {
            vi xs = vi_set1(x[g * nc + c]);
            VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
                s[r][c] = tile_dot(s[r][c], w[r], xs, is_biased);
        }
    }
}

VEC_INLINE void tile_fetch(const struct tile_job *j, size_t block)
{
    VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
        vec_prefetch(j->next[r] + block * j->next_size, j->next_size);
}

/* Every sum starts at -offset * sum of its activations; neg NULL: no offset. */
VEC_INLINE void tile_set_first(const struct tile_job *j, vi s[TILE_GROUPS][6], const int32_t *neg,
                               int nc, bool is_biased)
{
    VEC_UNROLL for (int c = 0; c < nc; c++)
    {
        vi first = vi_zero();
        if (neg && (VEC_HAS_VNNI || !is_biased))
            first = vi_sll(vi_set1(neg[c]), j->offset_log2);
        VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
            s[r][c] = first;
    }
}

/* The sums so far of the tile's outputs: kept in `out` between blocks of inputs. */
VEC_INLINE void tile_begin(const struct tile_job *j, vf acc[TILE_GROUPS][6], size_t column, int nc)
{
    VEC_UNROLL for (int c = 0; c < nc; c++)
        VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
        {
            size_t row = j->row + 16 * (size_t)r, n = j->a->rows - row;
            acc[r][c] = vf_zero();
            if (j->block == 0 || row >= j->a->rows)
                continue;
            const float *out = j->a->out[column + (size_t)c] + row;
            acc[r][c] = n >= 16 ? vf_load(out) : vf_load_part(out, n);
        }
}

/* The next tile's outputs, a line or two per column and far apart: no hardware sees them coming. */
VEC_INLINE void tile_fetch_out(const struct tile_job *j, size_t column, int nc)
{
    if (column + (size_t)nc > j->a->columns)
        return;
    VEC_UNROLL for (int c = 0; c < nc; c++)
    {
        const void *out = j->a->out[column + (size_t)c] + j->row;
        vec_prefetch(out, TILE_ROWS * sizeof(float));
    }
}

VEC_INLINE void tile_end(const struct tile_job *j, vf acc[TILE_GROUPS][6], size_t column, int nc)
{
    bool is_last = j->block + j->blocks == j->a->in / 32;
    VEC_UNROLL for (int c = 0; c < nc; c++)
        VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
        {
            size_t row = j->row + 16 * (size_t)r, n = j->a->rows - row;
            if (row >= j->a->rows)
                continue;
            float *out = j->a->out[column + (size_t)c] + row;
            if (is_last)
                tile_store(j->a, row, column + (size_t)c, acc[r][c]);
            else if (n >= 16)
                vf_store(out, acc[r][c]);
            else
                vf_store_part(out, acc[r][c], n);
        }
}

/* acc += (d ad) * sum */
VEC_INLINE void tile_add(vf acc[TILE_GROUPS][6], vi s[TILE_GROUPS][6], const float *d,
                         const float *ad, int nc)
{
    vf dr[TILE_GROUPS];
    VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
        dr[r] = vf_load(d + 16 * r);
    VEC_UNROLL for (int c = 0; c < nc; c++)
    {
        vf x = vf_set1(ad[c]);
        VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
            acc[r][c] = vf_fma(vf_mul(dr[r], x), vf_from_i(s[r][c]), acc[r][c]);
    }
}

VEC_INLINE void tile_run_32(const struct tile_job *j, size_t column, int nc, bool has_min,
                            bool is_biased)
{
    struct tile_acts t = tile_acts_at(j->a, &j->form, column, (size_t)nc);
    const int32_t *x = t.x + j->block * 8 * (size_t)nc, *neg = t.neg + j->block * (size_t)nc;
    const float *ad = t.d + j->block * (size_t)nc;
    const float *sum = (const float *)t.sum + j->block * (size_t)nc;
    vf acc[TILE_GROUPS][6];
    tile_begin(j, acc, column, nc);
    tile_fetch_out(j, column + (size_t)nc, nc);
    for (size_t b = 0; b < j->blocks; b++) {
        vi s[TILE_GROUPS][6];
        if (j->fetches)
            tile_fetch(j, b);
        tile_set_first(j, s, has_min ? NULL : neg, nc, is_biased);
        tile_sums(s, j->panel->codes[b][0][0], x, nc, 8, is_biased);
        tile_add(acc, s, j->panel->d[b], ad, nc);
        if (has_min) {
            VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
            {
                vf m = vf_load(j->panel->dm[b] + 16 * r);
                VEC_UNROLL for (int c = 0; c < nc; c++)
                    acc[r][c] = vf_fma(m, vf_set1(sum[c]), acc[r][c]);
            }
        }
        x += 8 * nc;
        neg += nc;
        ad += nc;
        sum += nc;
    }
    tile_end(j, acc, column, nc);
}

/* dot += sc * factor * sum; factor NULL: 1 */
VEC_INLINE void tile_scale(vi dot[TILE_GROUPS][6], vi s[TILE_GROUPS][6], const int32_t *sc,
                           const int32_t *factor, int nc)
{
    VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
    {
        vi scale = vi_load(sc + 16 * r);
        VEC_UNROLL for (int c = 0; c < nc; c++)
        {
            vi by = factor ? vi_mul_small(scale, vi_set1(factor[c])) : scale;
            dot[r][c] = vi_add(dot[r][c], vi_mul(by, s[r][c]));
        }
    }
}

/* acc -= (dm ad) * sum of mn * sum of activations */
VEC_INLINE void tile_take_mins(const struct tile_job *j, vf acc[TILE_GROUPS][6], size_t super,
                               const void *sum, const float *ad, int nc)
{
    const int32_t *pairs = (const int32_t *)sum + super * 4 * (size_t)nc;
    size_t local = super - j->block / 8;
    VEC_UNROLL for (int c = 0; c < nc; c++)
        VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
        {
            vi min = vi_zero();
            VEC_UNROLL for (int i = 0; i < 4; i++)
                min = vi_dot16(min, vi_load(j->panel->mn[local * 4 + (size_t)i] + 16 * r),
                               vi_set1(pairs[i * nc + c]));
            vf m = vf_mul(vf_load(j->panel->dm[local] + 16 * r), vf_set1(ad[c]));
            acc[r][c] = vf_fnma(m, vf_from_i(min), acc[r][c]);
        }
}

/* The same with a minimum per 16; t: at the block. */
VEC_INLINE void tile_take_mins_16(const struct tile_job *j, vf acc[TILE_GROUPS][6], size_t local,
                                  const struct tile_acts *t, const float *ad, int nc)
{
    for (int c = 0; c < nc; c++)
        for (int r = 0; r < TILE_GROUPS; r++) {
            vi min = vi_zero();
            for (int i = 0; i < 16; i++)
                min = vi_sub(min, vi_mul(vi_load(j->panel->mn[local * 16 + (size_t)i] + 16 * r),
                                         vi_set1(t->neg[i * nc + c] *
                                                 t->factor[i / 2 * nc + c])));
            vf m = vf_mul(vf_load(j->panel->dm[local] + 16 * r), vf_set1(ad[c]));
            acc[r][c] = vf_fnma(m, vf_from_i(min), acc[r][c]);
        }
}

/* Integer scales of a block of 256; BIASED: of codes q + 128 where there is no VNNI. */
enum tile_way { TILE_BY_32, TILE_BY_16, TILE_BY_16_BIASED };

/* dot += sum of sc * factor * sums of a block of 256; t: at that block, factor NULL: all are 1. */
VEC_INLINE void tile_sums_256(const struct tile_job *j, vi dot[TILE_GROUPS][6], size_t super,
                              struct tile_acts t, int nc, enum tile_way way)
{
    const struct tile_panel *p = j->panel;
    const bool is_biased = way == TILE_BY_16_BIASED;
    size_t local = super - j->block / 8;
    for (size_t i = 0; i < 8; i++, t.x += 8 * nc, t.neg += 2 * nc) {
        vi s[TILE_GROUPS][6];
        const int32_t *factor = t.factor ? t.factor + i * (size_t)nc : NULL;
        const uint8_t *codes = p->codes[local * 8 + i][0][0];
        if (j->fetches)
            tile_fetch(j, local * 8 + i);
        if (way == TILE_BY_32) {
            tile_set_first(j, s, NULL, nc, false);
            tile_sums(s, codes, t.x, nc, 8, false);
            tile_scale(dot, s, p->sc[local * 8 + i], factor, nc);
            continue;
        }
        tile_set_first(j, s, j->has_min ? NULL : t.neg, nc, is_biased);
        tile_sums(s, codes, t.x, nc, 4, is_biased);
        tile_scale(dot, s, p->sc[local * 16 + 2 * i], factor, nc);
        tile_set_first(j, s, j->has_min ? NULL : t.neg + nc, nc, is_biased);
        tile_sums(s, codes + TILE_GROUPS * 256, t.x + 4 * nc, nc, 4, is_biased);
        tile_scale(dot, s, p->sc[local * 16 + 2 * i + 1], factor, nc);
    }
}

/* Q4_K, Q5_K: by 32, with minimums; all others: by 16. */
VEC_INLINE void tile_run_256(const struct tile_job *j, size_t column, int nc, enum tile_way way)
{
    struct tile_acts t = tile_acts_at(j->a, &j->form, column, (size_t)nc);
    vf acc[TILE_GROUPS][6];
    tile_begin(j, acc, column, nc);
    tile_fetch_out(j, column + (size_t)nc, nc);
    t.x += j->block * 8 * (size_t)nc;
    t.neg += j->block * 2 * (size_t)nc;
    const int32_t *factors = t.factor;
    for (size_t b = 0; b < j->blocks / 8; b++, t.x += 64 * nc, t.neg += 16 * nc) {
        size_t super = j->block / 8 + b;
        const float *ad = t.d + super * (size_t)nc;
        vi dot[TILE_GROUPS][6];
        VEC_UNROLL for (int c = 0; c < nc; c++)
            VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
                dot[r][c] = vi_zero();
        t.factor = factors + super * 8 * (size_t)nc;
        if (tile_factors(&t, super, nc)) {
            tile_sums_256(j, dot, super, t, nc, way);
        } else {
            struct tile_acts ones = t;
            ones.factor = NULL;
            tile_sums_256(j, dot, super, ones, nc, way);
        }
        tile_add(acc, dot, j->panel->d[b], ad, nc);
        if (way == TILE_BY_32)
            tile_take_mins(j, acc, super, t.sum, ad, nc);
        else if (j->has_min)
            tile_take_mins_16(j, acc, b, &t, ad, nc);
    }
    tile_end(j, acc, column, nc);
}

/* NVFP4: a float scale per 16 inputs, and no sums of 16 activations in the form. So the codes are
 * signed and the activations get the bias: what it adds is the same for all columns. */
VEC_INLINE void tile_run_16(const struct tile_job *j, size_t column, int nc)
{
    struct tile_acts t = tile_acts_at(j->a, &j->form, column, (size_t)nc);
    const int32_t *x = t.x + j->block * 8 * (size_t)nc;
    const float *ad = t.d + j->block * (size_t)nc;
    const vi bias = vi_set1((int32_t)0x80808080u);
    vf acc[TILE_GROUPS][6];
    tile_begin(j, acc, column, nc);
    tile_fetch_out(j, column + (size_t)nc, nc);
    for (size_t step = 0; step < 2 * j->blocks; step++, x += 4 * nc) {
        vi s[TILE_GROUPS][6];
        const uint8_t *codes = j->panel->codes[step / 2][step % 2 * 4][0];
        VEC_UNROLL for (int c = 0; c < nc; c++)
            VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
                s[r][c] = vi_load(j->panel->mn[step] + 16 * r);
        VEC_UNROLL for (int g = 0; g < 4; g++)
            VEC_UNROLL for (int c = 0; c < nc; c++)
            {
                vi xs = vi_xor(vi_set1(x[g * nc + c]), bias);
                VEC_UNROLL for (int r = 0; r < TILE_GROUPS; r++)
                    s[r][c] = vi_dot(s[r][c], xs, vi_load(codes + (g * TILE_GROUPS + r) * 64));
            }
        tile_add(acc, s, j->panel->d[step], ad + step / 2 * (size_t)nc, nc);
    }
    tile_end(j, acc, column, nc);
}

/* ---- the loops ---- */

static void tile_run(const struct tile_job *j, size_t column, size_t nc)
{
    if (j->kind == TILE_16) {
        TILE_COLUMNS(nc, TILE_WIDTH, tile_run_16(j, column, NC))
    } else if (j->kind == TILE_K32) {
        TILE_COLUMNS(nc, TILE_WIDTH, tile_run_256(j, column, NC, TILE_BY_32))
    } else if (j->kind == TILE_K16 && j->is_biased && !VEC_HAS_VNNI) {
        TILE_COLUMNS(nc, TILE_WIDTH, tile_run_256(j, column, NC, TILE_BY_16_BIASED))
    } else if (j->kind == TILE_K16) {
        TILE_COLUMNS(nc, TILE_WIDTH, tile_run_256(j, column, NC, TILE_BY_16))
    } else if (j->has_min) {
        TILE_COLUMNS(nc, TILE_WIDTH, tile_run_32(j, column, NC, true, false))
    } else if (j->is_biased && !VEC_HAS_VNNI) {
        TILE_COLUMNS(nc, TILE_WIDTH, tile_run_32(j, column, NC, false, !VEC_HAS_VNNI))
    } else {
        TILE_COLUMNS(nc, TILE_WIDTH, tile_run_32(j, column, NC, false, false))
    }
}

static struct tile_job tile_job_of(const struct matmul_args *a, enum cpu_form form)
{
    const struct cpu_pack_type *p = &cpu_pack_table[a->type];
    const struct cpu_codes_type *c = &cpu_codes_table[a->type];
    struct tile_job j = {.a = a,
                         .panel = a->scratch,
                         .form = cpu_kernels_form_layout(form, a->in),
                         .has_min = c->has_min,
                         .width = TILE_WIDTH,
                         .fill = tile_fill,
                         .run = tile_run,
                         .offset_log2 = p->kind == CPU_PACK_FILE ? 7 : p->offset_log2};
    j.is_biased = j.offset_log2 == 7;
    if (c->step == 256)
        j.kind = c->sub == 32 && c->has_min ? TILE_K32 : TILE_K16;
    else
        j.kind = c->step == 32 ? TILE_32 : TILE_16;
    j.flip = j.kind == TILE_16 ? 0 : 0x80808080u;
    return j;
}

/* The part of the weights that follows (row, block): the next blocks of the same rows, or the first
 * ones of the next rows. Past the end it is the first part again. */
static void tile_set_next(struct tile_job *j, size_t row, size_t block)
{
    const struct cpu_pack_type *t = &cpu_pack_table[j->a->type];
    if (t->kind == CPU_PACK_FILE)
        return;
    if (row >= j->a->row_last)
        row = j->a->row_first;
    j->next_size = cpu_pack_block(t) * 32 / t->block;
    for (size_t r = 0; r < TILE_GROUPS; r++)
        j->next[r] = tile_group_at(j->a, base_min(row + 16 * r, j->a->row_last - 1)) +
                     block * j->next_size;
}

/* Columns first .. last - 1 pass by one panel. */
static void tile_run_part(struct tile_job *j, size_t first, size_t last)
{
    size_t width = base_min(j->a->columns, j->width);
    j->fill(j);
    for (size_t c = first; c < last; c += width) {
        j->fetches = c == first;
        j->run(j, c, base_min(width, last - c));
    }
}

/* Panels of activations are as wide as the form says (cpu_kernels_panel): one panel up to the
 * width of a tile, else so wide. As many columns of act_size bytes as fit a part of L2 pass by each
 * row of tiles; all of them where codes are decoded from file layout, which takes longer than
 * activations from L3. */
static void tile_loops(struct tile_job *j, size_t act_size)
{
    const struct matmul_args *a = j->a;
    bool is_k = j->kind == TILE_K32 || j->kind == TILE_K16;
    size_t most = a->columns <= TILE_FEW ? TILE_BLOCKS / 4 : TILE_BLOCKS;
    size_t blocks = a->in / 32, parts = (blocks + most - 1) / most;
    size_t part = base_align((blocks + parts - 1) / parts, is_k ? 8 : 1); /* whole blocks of 256 */
    size_t pass = base_max(TILE_L2_ACTS / act_size / j->width, 4) * j->width;
    if (cpu_pack_table[a->type].kind == CPU_PACK_FILE)
        pass = a->columns;
    size_t passes = (a->columns + pass - 1) / pass;
    pass = ((a->columns + passes - 1) / passes + j->width - 1) / j->width * j->width;
    for (size_t c = 0; c < a->columns; c += pass) {
        for (j->row = a->row_first; j->row < a->row_last; j->row += TILE_ROWS) {
            for (j->block = 0; j->block < blocks; j->block += part) {
                j->blocks = base_min(part, blocks - j->block);
                if (j->block + part < blocks)
                    tile_set_next(j, j->row, j->block + part);
                else
                    tile_set_next(j, j->row + TILE_ROWS, 0);
                tile_run_part(j, c, base_min(c + pass, a->columns));
            }
        }
    }
}

static void tile_product(const struct matmul_args *a)
{
    struct tile_job j = tile_job_of(a, tile_form(a->type));
    tile_loops(&j, a->in);
}

#endif
#endif
