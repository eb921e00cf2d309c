#include "cpu/cpu_codes.h"

#include <string.h>

/* The block's own scale never enters the codes, so what holds for them holds beside zero, infinite
 * and NaN scales too. A load takes each weight apart once, types that stay in file layout are taken
 * apart anew for each product: eight codes at a time, as the bytes of a word, no floats
 * (docs/NUMBERS.md, 2026-11-30). A store of bytes that is soon read as a word costs a stall. No
 * byte may carry into the next one. */

static uint16_t get_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static float get_f16(const uint8_t *p) { return base_f16_to_f32(get_u16(p)); }

static uint64_t get_8(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static void put_8(int8_t *q, uint64_t v) { memcpy(q, &v, 8); }

#define EACH 0x0101010101010101u /* times a byte: that byte eight times */

/* 1 in each byte whose bit of signs is set. */
static uint64_t ones_of(unsigned signs)
{
    uint64_t bits = (signs & 255u) * EACH & 0x8040201008040201u;
    return (bits + 0x7f * EACH) >> 7 & EACH;
}

/* Each byte less offset; bytes and offset are below 128. */
static uint64_t less_8(uint64_t v, unsigned offset)
{
    return ((v | 0x80 * EACH) - offset * EACH) ^ 0x80 * EACH;
}

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

/* fifth: four bytes of bits above the nibbles, or NULL. */
static void put_nibbles(int8_t *q, const uint8_t *p, const uint8_t *fifth, unsigned offset)
{
    for (size_t i = 0; i < 4; i++) {
        uint64_t v = get_8(p + i % 2 * 8) >> i / 2 * 4 & 0x0f * EACH;
        if (fifth)
            v |= ones_of(fifth[i]) << 4;
        put_8(q + 8 * i, less_8(v, offset));
    }
}

static void decode_q4_0(struct cpu_codes *out, const void *row, size_t k)
{
    put_nibbles(out->q, one_scale(out, row, k, QTYPE_Q4_0) + 2, NULL, 8);
}

static void decode_q4_1(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = one_scale(out, row, k, QTYPE_Q4_1);
    out->dm = -get_f16(p + 2);
    out->mn[0] = 1;
    put_nibbles(out->q, p + 4, NULL, 0);
}

static void decode_q5_0(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = one_scale(out, row, k, QTYPE_Q5_0);
    put_nibbles(out->q, p + 6, p + 2, 16);
}

static void decode_q5_1(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = one_scale(out, row, k, QTYPE_Q5_1);
    out->dm = -get_f16(p + 2);
    out->mn[0] = 1;
    put_nibbles(out->q, p + 8, p + 4, 0);
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
    for (size_t i = 0; i < 32; i++)
        put_8(out->q + 8 * i, get_8(p + 16 + i / 16 * 32 + i % 4 * 8) >> i % 16 / 4 * 2 & 3 * EACH);
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
    for (size_t i = 0; i < 32; i++) {
        uint64_t low = get_8(p + 32 + i / 16 * 32 + i % 4 * 8) >> i % 16 / 4 * 2 & 3 * EACH;
        uint64_t high = get_8(p + i % 4 * 8) >> i / 4 & EACH;
        put_8(out->q + 8 * i, less_8(low | high << 2, 4));
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
    for (size_t i = 0; i < 32; i++)
        put_8(out->q + 8 * i, get_8(p + 16 + i / 8 * 32 + i % 4 * 8) >> i / 4 % 2 * 4 & 15 * EACH);
}

static void decode_q5_k(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_Q5_K);
    out->d = get_f16(p);
    out->dm = get_f16(p + 2);
    put_scales_6(out, p + 4);
    for (size_t i = 0; i < 32; i++) {
        uint64_t low = get_8(p + 48 + i / 8 * 32 + i % 4 * 8) >> i / 4 % 2 * 4 & 0x0f * EACH;
        uint64_t high = get_8(p + 16 + i % 4 * 8) >> i / 4 & EACH;
        put_8(out->q + 8 * i, low | high << 4);
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
    for (size_t i = 0; i < 32; i++) {
        const uint8_t *half = p + i / 16 * 64, *above = p + 128 + i / 16 * 32;
        uint64_t low = get_8(half + i % 8 * 8) >> i % 16 / 8 * 4 & 0x0f * EACH;
        uint64_t high = get_8(above + i % 4 * 8) >> i % 16 / 4 * 2 & 3 * EACH;
        put_8(out->q + 8 * i, less_8(low | high << 4, 32));
    }
}

/* ---- lattices: their values are 1 .. 62 ---- */

static uint32_t get_u32(const uint8_t *p) { return get_u16(p) | (uint32_t)get_u16(p + 2) << 16; }

static void put_signed(int8_t *q, uint64_t values, unsigned signs)
{
    uint64_t ones = ones_of(signs);
    put_8(q, (values ^ ones * 255u) + ones); /* -x = ~x + 1 */
}

static void put_4_4(int8_t *q, const uint8_t *first, const uint8_t *second, unsigned signs)
{
    uint64_t values;
    memcpy(&values, first, 4);
    memcpy((uint8_t *)&values + 4, second, 4);
    put_signed(q, values, signs);
}

/* 8 * grid + 1, or - 1: grid is -1, 0, 1. With 128 added nothing is below zero. */
static void put_iq1(int8_t *q, unsigned index, bool is_minus)
{
    uint64_t v = get_8((const uint8_t *)quant_iq1s_grid[index]);
    v = ((v & 0x1f * EACH) << 3) ^ 0x80 * EACH;
    put_8(q, (is_minus ? v - EACH : v + EACH) ^ 0x80 * EACH);
}

/* unit: the block's scale belongs to codes so many times larger. */
static const uint8_t *lattice_block(struct cpu_codes *out, const void *row, size_t k, enum qtype t,
                                    float unit)
{
    const uint8_t *p = super_block(row, k, t);
    out->d = get_f16(p) * unit;
    out->dm = 0;
    memset(out->mn, 0, sizeof(out->mn));
    return p;
}

static void decode_iq1_s(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = lattice_block(out, row, k, QTYPE_IQ1_S, 0.125f);
    for (size_t j = 0; j < 8; j++) {
        unsigned h = get_u16(p + 34 + 2 * j);
        out->sc[j] = (int16_t)(2 * (h >> 12 & 7) + 1);
        for (size_t g = 0; g < 4; g++)
            put_iq1(out->q + 32 * j + 8 * g, p[2 + 4 * j + g] | (h >> 3 * g & 7) << 8, h >> 15);
    }
}

static void decode_iq1_m(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = super_block(row, k, QTYPE_IQ1_M), *s = p + 48;
    unsigned d = 0;
    for (unsigned i = 0; i < 4; i++) /* the scale's f16 lies in the top nibbles of four u16 */
        d |= (unsigned)(s[2 * i + 1] >> 4) << 4 * i;
    out->d = base_f16_to_f32((uint16_t)d) * 0.125f;
    out->dm = 0;
    memset(out->mn, 0, sizeof(out->mn));
    for (size_t j = 0; j < 16; j++)
        out->sc[j] = (int16_t)(2 * (get_u16(s + j / 4 * 2) >> j % 4 * 3 & 7) + 1);
    for (size_t g = 0; g < 32; g++) {
        unsigned h = p[32 + g / 2] >> g % 2 * 4 & 15u;
        put_iq1(out->q + 8 * g, p[g] | (h & 7u) << 8, h & 8u);
    }
}

static void decode_iq2_xxs(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = lattice_block(out, row, k, QTYPE_IQ2_XXS, 0.125f) + 2;
    for (size_t j = 0; j < 8; j++, p += 8) {
        uint32_t w = get_u32(p + 4);
        out->sc[j] = (int16_t)(2 * (w >> 28) + 1);
        for (size_t g = 0; g < 4; g++)
            put_signed(out->q + 32 * j + 8 * g, get_8(quant_iq2xxs_grid[p[g]]),
                       quant_iq_signs[w >> 7 * g & 127]);
    }
}

/* Scale nibbles per 16 elements at p. */
static void put_scales_iq2(struct cpu_codes *out, const uint8_t *p)
{
    for (size_t j = 0; j < 16; j++)
        out->sc[j] = (int16_t)(2 * (p[j / 2] >> j % 2 * 4 & 15) + 1);
}

static void decode_iq2_xs(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = lattice_block(out, row, k, QTYPE_IQ2_XS, 0.125f);
    put_scales_iq2(out, p + 66);
    for (size_t g = 0; g < 32; g++) {
        unsigned v = get_u16(p + 2 + 2 * g);
        put_signed(out->q + 8 * g, get_8(quant_iq2xs_grid[v & 511]), quant_iq_signs[v >> 9]);
    }
}

static void decode_iq2_s(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = lattice_block(out, row, k, QTYPE_IQ2_S, 0.125f);
    put_scales_iq2(out, p + 74);
    for (size_t g = 0; g < 32; g++) {
        unsigned high = p[66 + g / 4] >> g % 4 * 2 & 3u;
        put_signed(out->q + 8 * g, get_8(quant_iq2s_grid[p[2 + g] | high << 8]), p[34 + g]);
    }
}

static void decode_iq3_xxs(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = lattice_block(out, row, k, QTYPE_IQ3_XXS, 0.25f);
    for (size_t g = 0; g < 32; g++) {
        uint32_t w = get_u32(p + 66 + g / 4 * 4);
        out->sc[g / 4] = (int16_t)(2 * (w >> 28) + 1);
        put_4_4(out->q + 8 * g, quant_iq3xxs_grid[p[2 + 2 * g]],
                quant_iq3xxs_grid[p[3 + 2 * g]], quant_iq_signs[w >> g % 4 * 7 & 127]);
    }
}

static void decode_iq3_s(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = lattice_block(out, row, k, QTYPE_IQ3_S, 1.0f);
    for (size_t j = 0; j < 8; j++)
        out->sc[j] = (int16_t)(2 * (p[106 + j / 2] >> j % 2 * 4 & 15) + 1);
    for (size_t g = 0; g < 32; g++) {
        unsigned high = (unsigned)p[66 + g / 4] >> g % 4 * 2;
        put_4_4(out->q + 8 * g, quant_iq3s_grid[p[2 + 2 * g] | (high & 1u) << 8],
                quant_iq3s_grid[p[3 + 2 * g] | (high >> 1 & 1u) << 8], p[74 + g]);
    }
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
    const uint8_t *p = lattice_block(out, row, k, QTYPE_IQ4_XS, 1.0f);
    for (size_t j = 0; j < 8; j++) {
        int low = p[4 + j / 2] >> j % 2 * 4 & 15, high = get_u16(p + 2) >> 2 * j & 3;
        out->sc[j] = (int16_t)((low | high << 4) - 32);
        put_iq4nl(out->q + 32 * j, p + 8 + 16 * j);
    }
}

static void decode_iq4_nl(struct cpu_codes *out, const void *row, size_t k)
{
    put_iq4nl(out->q, one_scale(out, row, k, QTYPE_IQ4_NL) + 2);
}

/* ---- two and three values ---- */

static const uint8_t *ternary_block(struct cpu_codes *out, const void *row, size_t k, enum qtype t)
{
    const uint8_t *p = super_block(row, k, t);
    out->d = get_f16(p + quant_table[t].block_bytes - 2);
    out->dm = 0;
    memset(out->mn, 0, sizeof(out->mn));
    for (size_t j = 0; j < 8; j++)
        out->sc[j] = 1;
    return p;
}

/* Codes 0 .. 2 or 0 .. 3 less one: 127 more, then the top bit turned. */
static uint64_t less_one(uint64_t v) { return (v + 0x7f * EACH) ^ 0x80 * EACH; }

/* The next trits of four bytes, which lie in the even bytes of a word: a byte is a fraction in base
 * 3, and times 3 its first trit falls out of it. */
static uint64_t take_trits(uint64_t *fractions)
{
    const uint64_t even = 0x00ff00ff00ff00ffu;
    uint64_t v = *fractions * 3;
    *fractions = v & even;
    return v >> 8 & even;
}

/* `trits` of each of 8 bytes, those of one place `apart` bytes behind those of the one before. */
static void put_trits(int8_t *q, uint64_t bytes, size_t apart, unsigned trits)
{
    uint64_t a = bytes & 0x00ff00ff00ff00ffu, b = bytes >> 8 & 0x00ff00ff00ff00ffu;
    for (unsigned n = 0; n < trits; n++, q += apart) {
        uint64_t v = take_trits(&a);
        put_8(q, less_one(v | take_trits(&b) << 8));
    }
}

static void decode_tq1_0(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = ternary_block(out, row, k, QTYPE_TQ1_0);
    uint8_t last[8] = {0};
    int8_t q[8 + 3 * 4];
    for (size_t i = 0; i < 32; i += 8)
        put_trits(out->q + i, get_8(p + i), 32, 5);
    for (size_t i = 0; i < 16; i += 8)
        put_trits(out->q + 160 + i, get_8(p + 32 + i), 16, 5);
    memcpy(last, p + 48, 4);
    put_trits(q, get_8(last), 4, 4);
    memcpy(out->q + 240, q, 16);
}

static void decode_tq2_0(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = ternary_block(out, row, k, QTYPE_TQ2_0);
    for (size_t i = 0; i < 64; i += 8)
        for (size_t j = 0; j < 4; j++)
            put_8(out->q + i / 32 * 128 + j * 32 + i % 32,
                  less_one(get_8(p + i) >> 2 * j & 3 * EACH));
}

/* Blocks of 128 and 64 with one scale, in steps of 32. */
static void decode_q1_0(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = one_scale(out, row, k, QTYPE_Q1_0) + 2 + k % 128 / 8;
    for (size_t i = 0; i < 32; i += 8)
        put_signed(out->q + i, EACH, ~(unsigned)p[i / 8]);
}

static void decode_q2_0(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = one_scale(out, row, k, QTYPE_Q2_0) + 2 + k % 64 / 4;
    for (size_t i = 0; i < 32; i += 8) { /* two bytes, their pairs of bits 8 bits apart */
        uint64_t v = p[i / 4] | (uint64_t)p[i / 4 + 1] << 32;
        v |= v << 6 | v << 12 | v << 18;
        put_8(out->q + i, less_one(v & 3 * EACH));
    }
}

/* ---- floats of 4 bits: twice the E2M1 value is an integer ---- */

/* 0, 1, 2, 3, 4, 6, 8, 12 of the low three bits, negated where bit 3 is set: from 4 on bit 0 is
 * worth one more, bit 1 two more, both of them another two. */
static uint64_t e2m1_of(uint64_t v)
{
    uint64_t m = v & 7 * EACH, a = v & EACH, b = v >> 1 & EACH, c = v >> 2 & EACH;
    uint64_t minus = (v >> 3 & EACH) * 255u;
    m += (c & a) + (((c & b) + (c & b & a)) << 1);
    return (0x80 * EACH + (m & ~minus) - (m & minus)) ^ 0x80 * EACH;
}

/* The low nibbles of `half` bytes, then the high ones. */
static void put_e2m1(int8_t *q, const uint8_t *p, size_t half)
{
    for (size_t i = 0; i < half; i += 8) {
        put_8(q + i, e2m1_of(get_8(p + i) & 15 * EACH));
        put_8(q + i + half, e2m1_of(get_8(p + i) >> 4 & 15 * EACH));
    }
}

/* E8M0: 2^(e - 127), so d = 2^(e - 128). */
static void decode_mxfp4(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = one_scale(out, row, k, QTYPE_MXFP4);
    put_e2m1(out->q, p + 1, 16);
    /* 2^-128 and 2^-127 are denormals: made by bits, not by a product that could be flushed. */
    out->d = base_float_of(p[0] >= 2 ? (uint32_t)(p[0] - 1) << 23 : 0x00200000u << p[0]);
}

/* UE4M3 per 16: exponent bias 7, 0 and 0x7f are zero. */
static void decode_nvfp4(struct cpu_codes *out, const void *row, size_t k)
{
    const uint8_t *p = (const uint8_t *)row + k / 64 * 36;
    size_t s = k % 64 / 16;
    put_e2m1(out->q, p + 4 + 8 * s, 8);
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
