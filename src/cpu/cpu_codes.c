#include "cpu/cpu_codes.h"

#include <string.h>

/* The simple and K types are taken apart here. The lattice, ternary and 4-bit float types go a
 * shorter way: a copy of the block gets the scale 1, quant's decoder then gives sc * q exactly,
 * and dividing by the sub-scale leaves the code. That holds for zero, infinite and NaN scales too,
 * since the block's own scale never enters the codes. */

static uint16_t get_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static float get_f16(const uint8_t *p) { return base_f16_to_f32(get_u16(p)); }
static int8_t as_i8(int v) { return (int8_t)v; }

/* ---- 32 elements, one scale ---- */

static const uint8_t *one_scale(struct cpu_codes *out, const void *row, size_t k, enum qtype t)
{
    const struct quant_type *q = &quant_table[t];
    const uint8_t *p = (const uint8_t *)row + k / q->block_elems * q->block_bytes;
    out->sc[0] = 1;
    out->mn[0] = 0;
    out->d = get_f16(p);
    out->dm = 0;
    return p;
}

static void put_nibbles(int8_t *q, const uint8_t *p, int offset)
{
    for (size_t i = 0; i < 16; i++) {
        q[i] = as_i8((p[i] & 15) - offset);
        q[i + 16] = as_i8((p[i] >> 4) - offset);
    }
}

static void put_fifth_bits(int8_t *q, const uint8_t *bits)
{
    for (size_t i = 0; i < 32; i++)
        q[i] = as_i8(q[i] + (bits[i / 8] >> i % 8 & 1) * 16);
}

static void decode_q4_0(struct cpu_codes *out, const void *row, size_t k)
{
    put_nibbles(out->q, one_scale(out, row, k, QTYPE_Q4_0) + 2, 8);
}

static void decode_q4_1(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = one_scale(out, row, k, QTYPE_Q4_1);
    out->dm = -get_f16(p + 2);
    out->mn[0] = 1;
    put_nibbles(out->q, p + 4, 0);
}

static void decode_q5_0(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = one_scale(out, row, k, QTYPE_Q5_0);
    put_nibbles(out->q, p + 6, 16);
    put_fifth_bits(out->q, p + 2);
}

static void decode_q5_1(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = one_scale(out, row, k, QTYPE_Q5_1);
    out->dm = -get_f16(p + 2);
    out->mn[0] = 1;
    put_nibbles(out->q, p + 8, 0);
    put_fifth_bits(out->q, p + 4);
}

static void decode_q8_0(struct cpu_codes *out, const void *row, size_t k)
{
    memcpy(out->q, one_scale(out, row, k, QTYPE_Q8_0) + 2, 32);
}

/* ---- K types: 256 elements, integer sub-scales ---- */

static const uint8_t *super_block(const void *row, size_t k, enum qtype t)
{
    return (const uint8_t *)row + k / 256 * quant_table[t].block_bytes;
}

static void decode_q2_k(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_Q2_K);
    out->d = get_f16(p + 80);
    out->dm = get_f16(p + 82);
    for (size_t j = 0; j < 16; j++) {
        out->sc[j] = p[j] & 15;
        out->mn[j] = p[j] >> 4;
    }
    for (size_t i = 0; i < 256; i++)
        out->q[i] = as_i8(p[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3);
}

static void decode_q3_k(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_Q3_K), *s = p + 96;
    out->d = get_f16(p + 108);
    out->dm = 0;
    for (size_t j = 0; j < 16; j++) {
        int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4, high = s[8 + j % 4] >> j / 4 * 2 & 3;
        out->sc[j] = (int16_t)((low | high << 4) - 32);
        out->mn[j] = 0;
    }
    for (size_t i = 0; i < 256; i++) {
        int low = p[32 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
        out->q[i] = as_i8(low - (p[i % 32] >> i / 32 & 1 ? 0 : 4));
    }
}

/* The eight 6-bit scales and minimums of Q4_K and Q5_K. */
static void put_scales_6(struct cpu_codes *out, const uint8_t *s)
{
    for (size_t j = 0; j < 8; j++) {
        int sc = s[j] & 63, mn = s[j + 4] & 63;
        if (j >= 4) {
            sc = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
            mn = s[j + 4] >> 4 | s[j] >> 6 << 4;
        }
        out->sc[j] = (int16_t)sc;
        out->mn[j] = (uint8_t)mn;
    }
}

static void decode_q4_k(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_Q4_K);
    out->d = get_f16(p);
    out->dm = get_f16(p + 2);
    put_scales_6(out, p + 4);
    for (size_t i = 0; i < 256; i++)
        out->q[i] = as_i8(p[16 + i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15);
}

static void decode_q5_k(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_Q5_K);
    out->d = get_f16(p);
    out->dm = get_f16(p + 2);
    put_scales_6(out, p + 4);
    for (size_t i = 0; i < 256; i++) {
        int low = p[48 + i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15;
        out->q[i] = as_i8(low | (p[16 + i % 32] >> i / 32 & 1) << 4);
    }
}

static void decode_q6_k(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_Q6_K);
    out->d = get_f16(p + 208);
    out->dm = 0;
    for (size_t j = 0; j < 16; j++) {
        out->sc[j] = (int8_t)p[192 + j];
        out->mn[j] = 0;
    }
    for (size_t i = 0; i < 256; i++) {
        size_t half = i / 128, l = i % 128;
        int low = p[half * 64 + l % 64] >> l / 64 * 4 & 15;
        int high = p[128 + half * 32 + l % 32] >> l / 32 * 2 & 3;
        out->q[i] = as_i8((low | high << 4) - 32);
    }
}

/* ---- by way of quant's decoder ---- */

/* unit: the copied block's decoder gives sc * q / unit. */
static void decode_by_values(struct cpu_codes *out, enum qtype t, const uint8_t *block, float unit)
{
    const struct cpu_codes_type *c = &cpu_codes_table[t];
    float x[256];
    quant_table[t].dequant(x, block, 256);
    for (size_t i = 0; i < 256; i++) {
        int sc = out->sc[i / c->sub];
        out->q[i] = as_i8(sc == 0 ? 0 : (int)(x[i] * unit / (float)sc));
    }
    memset(out->mn, 0, sizeof(out->mn));
    out->dm = 0;
}

static void set_one(uint8_t *d)
{
    d[0] = 0;
    d[1] = 0x3c;
}

/* Copies a block of 256 whose f16 scale lies at offset d, sets the copy's scale to 1. */
static void copy_block(uint8_t *copy, struct cpu_codes *out, const uint8_t *p, enum qtype t,
                       size_t d)
{
    memcpy(copy, p, quant_table[t].block_bytes);
    out->d = get_f16(p + d);
    set_one(copy + d);
}

static uint32_t get_u32(const uint8_t *p) { return get_u16(p) | (uint32_t)get_u16(p + 2) << 16; }

static void decode_iq1_s(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_IQ1_S);
    uint8_t copy[64];
    copy_block(copy, out, p, QTYPE_IQ1_S, 0);
    for (size_t j = 0; j < 8; j++)
        out->sc[j] = (int16_t)(2 * (get_u16(p + 34 + 2 * j) >> 12 & 7) + 1);
    decode_by_values(out, QTYPE_IQ1_S, copy, 8);
    out->d *= 0.125f;
}

static void decode_iq1_m(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_IQ1_M), *s = p + 48;
    uint8_t copy[64];
    memcpy(copy, p, 56);
    unsigned d = 0;
    for (unsigned i = 0; i < 4; i++) { /* the scale's f16 lies in the top nibbles of four u16 */
        d |= (unsigned)(s[2 * i + 1] >> 4) << 4 * i;
        copy[48 + 2 * i + 1] = (uint8_t)((s[2 * i + 1] & 15) | (0x3c00u >> 4 * i & 15u) << 4);
    }
    out->d = base_f16_to_f32((uint16_t)d) * 0.125f;
    for (size_t j = 0; j < 16; j++)
        out->sc[j] = (int16_t)(2 * (get_u16(s + j / 4 * 2) >> j % 4 * 3 & 7) + 1);
    decode_by_values(out, QTYPE_IQ1_M, copy, 8);
}

static void decode_iq2_xxs(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_IQ2_XXS);
    uint8_t copy[128];
    copy_block(copy, out, p, QTYPE_IQ2_XXS, 0);
    for (size_t j = 0; j < 8; j++)
        out->sc[j] = (int16_t)(2 * (get_u32(p + 2 + 8 * j + 4) >> 28) + 1);
    decode_by_values(out, QTYPE_IQ2_XXS, copy, 8);
    out->d *= 0.125f;
}

/* Scale nibbles per 16 elements at p. */
static void put_scales_iq2(struct cpu_codes *out, const uint8_t *p)
{
    for (size_t j = 0; j < 16; j++)
        out->sc[j] = (int16_t)(2 * (p[j / 2] >> j % 2 * 4 & 15) + 1);
}

static void decode_iq2_xs(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_IQ2_XS);
    uint8_t copy[128];
    copy_block(copy, out, p, QTYPE_IQ2_XS, 0);
    put_scales_iq2(out, p + 66);
    decode_by_values(out, QTYPE_IQ2_XS, copy, 8);
    out->d *= 0.125f;
}

static void decode_iq2_s(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_IQ2_S);
    uint8_t copy[128];
    copy_block(copy, out, p, QTYPE_IQ2_S, 0);
    put_scales_iq2(out, p + 74);
    decode_by_values(out, QTYPE_IQ2_S, copy, 8);
    out->d *= 0.125f;
}

static void decode_iq3_xxs(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_IQ3_XXS);
    uint8_t copy[128];
    copy_block(copy, out, p, QTYPE_IQ3_XXS, 0);
    for (size_t j = 0; j < 8; j++)
        out->sc[j] = (int16_t)(2 * (get_u32(p + 66 + 4 * j) >> 28) + 1);
    decode_by_values(out, QTYPE_IQ3_XXS, copy, 4);
    out->d *= 0.25f;
}

static void decode_iq3_s(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_IQ3_S);
    uint8_t copy[128];
    copy_block(copy, out, p, QTYPE_IQ3_S, 0);
    for (size_t j = 0; j < 8; j++)
        out->sc[j] = (int16_t)(2 * (p[106 + j / 2] >> j % 2 * 4 & 15) + 1);
    decode_by_values(out, QTYPE_IQ3_S, copy, 1);
}

static void put_iq4nl(int8_t *q, const uint8_t *p)
{
    for (size_t i = 0; i < 16; i++) {
        q[i] = quant_iq4nl_values[p[i] & 15];
        q[i + 16] = quant_iq4nl_values[p[i] >> 4];
    }
}

static void decode_iq4_xs(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_IQ4_XS);
    out->d = get_f16(p);
    out->dm = 0;
    memset(out->mn, 0, sizeof(out->mn));
    for (size_t j = 0; j < 8; j++) {
        int low = p[4 + j / 2] >> j % 2 * 4 & 15, high = get_u16(p + 2) >> 2 * j & 3;
        out->sc[j] = (int16_t)((low | high << 4) - 32);
        put_iq4nl(out->q + 32 * j, p + 8 + 16 * j);
    }
}

static void decode_ternary(struct cpu_codes *out, const void *row, size_t k, enum qtype t)
{
    const struct quant_type *q = &quant_table[t];
    uint8_t copy[128];
    copy_block(copy, out, super_block(row, k, t), t, q->block_bytes - 2u);
    for (size_t j = 0; j < 8; j++)
        out->sc[j] = 1;
    decode_by_values(out, t, copy, 1);
}

static void decode_tq1_0(struct cpu_codes *out, const void *row, size_t k)
{
    decode_ternary(out, row, k, QTYPE_TQ1_0);
}

static void decode_tq2_0(struct cpu_codes *out, const void *row, size_t k)
{
    decode_ternary(out, row, k, QTYPE_TQ2_0);
}

/* Steps of 32 or 16 inside a larger block, one scale for the block: its value from scale 1. */
static void put_values(struct cpu_codes *out, enum qtype t, const uint8_t *copy, size_t first,
                       float unit)
{
    const struct quant_type *q = &quant_table[t];
    float x[128];
    q->dequant(x, copy, q->block_elems);
    for (size_t i = 0; i < cpu_codes_table[t].step; i++)
        out->q[i] = as_i8((int)(x[first + i] * unit));
}

static void decode_one_scale(struct cpu_codes *out, const void *row, size_t k, enum qtype t)
{
    const struct quant_type *q = &quant_table[t];
    uint8_t copy[32];
    memcpy(copy, one_scale(out, row, k, t), q->block_bytes);
    set_one(copy);
    put_values(out, t, copy, k % q->block_elems, 1);
}

static void decode_iq4_nl(struct cpu_codes *out, const void *row, size_t k)
{
    put_iq4nl(out->q, one_scale(out, row, k, QTYPE_IQ4_NL) + 2);
}

static void decode_q1_0(struct cpu_codes *out, const void *row, size_t k)
{
    decode_one_scale(out, row, k, QTYPE_Q1_0);
}

static void decode_q2_0(struct cpu_codes *out, const void *row, size_t k)
{
    decode_one_scale(out, row, k, QTYPE_Q2_0);
}

/* E8M0: 2^(e - 127); the codes are twice the E2M1 values, so d = 2^(e - 128). */
static void decode_mxfp4(struct cpu_codes *out, const void *row, size_t k)
{
    uint8_t copy[32];
    const uint8_t *p = one_scale(out, row, k, QTYPE_MXFP4);
    memcpy(copy, p, 17);
    copy[0] = 127;
    put_values(out, QTYPE_MXFP4, copy, 0, 2);
    /* 2^-128 and 2^-127 are denormals: made by bits, not by a product that could be flushed. */
    out->d = base_float_of(p[0] >= 2 ? (uint32_t)(p[0] - 1) << 23 : 0x00200000u << p[0]);
}

/* UE4M3 per 16: exponent bias 7, 0 and 0x7f are zero; codes are twice the E2M1 values. */
static void decode_nvfp4(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = (const uint8_t *)row + k / 64 * 36;
    size_t s = k % 64 / 16;
    uint8_t copy[36];
    memcpy(copy, p, 36);
    memset(copy, 0x38, 4); /* 1.0 */
    put_values(out, QTYPE_NVFP4, copy, k % 64, 2);
    unsigned e = p[s] >> 3 & 15u, m = p[s] & 7u;
    float scale = e == 0 ? (float)m : (float)((8u + m) << (e - 1u));
    out->d = (p[s] & 0x7f) == 0x7f ? 0.0f : scale * 0.0009765625f; /* 2^-10 */
    out->sc[0] = 1;
    out->mn[0] = 0;
    out->dm = 0;
}

const struct cpu_codes_type cpu_codes_table[QTYPE_WEIGHT_COUNT] = {
    [QTYPE_Q4_0] = {32, 32, false, decode_q4_0},
    [QTYPE_Q4_1] = {32, 32, true, decode_q4_1},
    [QTYPE_Q5_0] = {32, 32, false, decode_q5_0},
    [QTYPE_Q5_1] = {32, 32, true, decode_q5_1},
    [QTYPE_Q8_0] = {32, 32, false, decode_q8_0},
    [QTYPE_Q2_K] = {256, 16, true, decode_q2_k},
    [QTYPE_Q3_K] = {256, 16, false, decode_q3_k},
    [QTYPE_Q4_K] = {256, 32, true, decode_q4_k},
    [QTYPE_Q5_K] = {256, 32, true, decode_q5_k},
    [QTYPE_Q6_K] = {256, 16, false, decode_q6_k},
    [QTYPE_IQ1_S] = {256, 32, false, decode_iq1_s},
    [QTYPE_IQ1_M] = {256, 16, false, decode_iq1_m},
    [QTYPE_IQ2_XXS] = {256, 32, false, decode_iq2_xxs},
    [QTYPE_IQ2_XS] = {256, 16, false, decode_iq2_xs},
    [QTYPE_IQ2_S] = {256, 16, false, decode_iq2_s},
    [QTYPE_IQ3_XXS] = {256, 32, false, decode_iq3_xxs},
    [QTYPE_IQ3_S] = {256, 32, false, decode_iq3_s},
    [QTYPE_IQ4_NL] = {32, 32, false, decode_iq4_nl},
    [QTYPE_IQ4_XS] = {256, 32, false, decode_iq4_xs},
    [QTYPE_TQ1_0] = {256, 32, false, decode_tq1_0},
    [QTYPE_TQ2_0] = {256, 32, false, decode_tq2_0},
    [QTYPE_Q1_0] = {32, 32, false, decode_q1_0},
    [QTYPE_Q2_0] = {32, 32, false, decode_q2_0},
    [QTYPE_MXFP4] = {32, 32, false, decode_mxfp4},
    [QTYPE_NVFP4] = {16, 16, false, decode_nvfp4},
};
