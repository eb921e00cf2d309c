/* IQ types: groups of 4 or 8 values come from a lattice by index, signs from bits beside it. */
#include "quant/quant.h"
#include "quant/quant_bytes.h"

/* y[width] = d * grid value, negated where the bit of signs is set. */
static void quant_iq_group(float *y, float d, const uint8_t *grid, unsigned signs, unsigned width)
{
    for (unsigned j = 0; j < width; j++) {
        float v = d * (float)grid[j];
        y[j] = signs >> j & 1u ? -v : v;
    }
}

/* f16 d | 8 x { u8 index[4], u32: four 7-bit sign indices, scale in the top 4 bits }. */
void quant_iq2_xxs_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 66) {
        float d = quant_bytes_f16(p);
        for (size_t b = 0; b < 8; b++) {
            const uint8_t *q = p + 2 + 8 * b;
            uint32_t w = quant_bytes_u32(q + 4);
            float db = d * (0.5f + (float)(w >> 28)) * 0.25f;
            for (size_t g = 0; g < 4; g++)
                quant_iq_group(dst + i + 32 * b + 8 * g, db, quant_iq2xxs_grid[q[g]],
                               quant_iq_signs[w >> (7 * g) & 127], 8);
        }
    }
}

/* The scale of 16 values in IQ2_XS and IQ2_S: a nibble. */
static float quant_iq2_scale(float d, const uint8_t *scales, size_t group)
{
    unsigned nibble = scales[group / 4] >> (group % 4 / 2 * 4) & 15u;
    return d * (0.5f + (float)nibble) * 0.25f;
}

/* f16 d | u16 qs[32]: 9 bits index, 7 bits sign index | scales[8]. */
void quant_iq2_xs_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 74) {
        float d = quant_bytes_f16(p);
        for (size_t g = 0; g < 32; g++) {
            unsigned v = quant_bytes_u16(p + 2 + 2 * g);
            quant_iq_group(dst + i + 8 * g, quant_iq2_scale(d, p + 66, g),
                           quant_iq2xs_grid[v & 511], quant_iq_signs[v >> 9], 8);
        }
    }
}

/* f16 d | qs[32] | signs[32] | qh[8]: bits 8, 9 of four indices | scales[8]. */
void quant_iq2_s_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 82) {
        float d = quant_bytes_f16(p);
        for (size_t g = 0; g < 32; g++) {
            unsigned high = p[66 + g / 4] >> (g % 4 * 2) & 3u;
            quant_iq_group(dst + i + 8 * g, quant_iq2_scale(d, p + 74, g),
                           quant_iq2s_grid[p[2 + g] | high << 8], p[34 + g], 8);
        }
    }
}

/* f16 d | qs[64] | 8 x u32: four 7-bit sign indices, scale in the top 4 bits. */
void quant_iq3_xxs_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 98) {
        float d = quant_bytes_f16(p);
        for (size_t g = 0; g < 32; g++) {
            uint32_t w = quant_bytes_u32(p + 66 + g / 4 * 4);
            float db = d * (0.5f + (float)(w >> 28)) * 0.5f;
            unsigned signs = quant_iq_signs[w >> (g % 4 * 7) & 127];
            float *y = dst + i + 8 * g;
            quant_iq_group(y, db, quant_iq3xxs_grid[p[2 + 2 * g]], signs, 4);
            quant_iq_group(y + 4, db, quant_iq3xxs_grid[p[3 + 2 * g]], signs >> 4, 4);
        }
    }
}

/* f16 d | qs[64] | qh[8]: bit 8 of eight indices | signs[32] | scales[4]. */
void quant_iq3_s_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 110) {
        float d = quant_bytes_f16(p);
        for (size_t g = 0; g < 32; g++) {
            unsigned nibble = p[106 + g / 8] >> (g % 8 / 4 * 4) & 15u;
            float db = d * (float)(1 + 2 * nibble);
            unsigned qh = p[66 + g / 4], bit = (unsigned)(g % 4 * 2), signs = p[74 + g];
            unsigned first = p[2 + 2 * g] | (qh >> bit & 1u) << 8;
            unsigned second = p[3 + 2 * g] | (qh >> (bit + 1) & 1u) << 8;
            float *y = dst + i + 8 * g;
            quant_iq_group(y, db, quant_iq3s_grid[first], signs, 4);
            quant_iq_group(y + 4, db, quant_iq3s_grid[second], signs >> 4, 4);
        }
    }
}

/* y[8] = dl * (lattice value in {-1, 0, 1} + delta); both products are exact. */
static void quant_iq1_group(float *y, float dl, unsigned index, float delta)
{
    for (unsigned j = 0; j < 8; j++)
        y[j] = dl * ((float)quant_iq1s_grid[index][j] + delta);
}

/* f16 d | qs[32] | u16 qh[8]: 3 high bits of four indices, 3 bits scale, sign of delta. */
void quant_iq1_s_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 50) {
        float d = quant_bytes_f16(p);
        for (size_t g = 0; g < 32; g++) {
            unsigned qh = quant_bytes_u16(p + 34 + g / 4 * 2);
            unsigned index = p[2 + g] | (qh >> (g % 4 * 3) & 7u) << 8;
            float dl = d * (float)(2 * (qh >> 12 & 7u) + 1);
            quant_iq1_group(dst + i + 8 * g, dl, index, qh & 0x8000u ? -0.125f : 0.125f);
        }
    }
}

/* qs[32] | qh[16]: per nibble 3 high bits of an index and the sign of delta | 4 x u16: four 3-bit
 * scales each, and in the top nibbles the f16 d. */
void quant_iq1_m_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 56) {
        unsigned s[4], bits = 0;
        for (unsigned k = 0; k < 4; k++) {
            s[k] = quant_bytes_u16(p + 48 + 2 * k);
            bits |= (s[k] >> 12) << (4 * k);
        }
        float d = base_f16_to_f32((uint16_t)bits);
        for (size_t g = 0; g < 32; g++) {
            unsigned high = p[32 + g / 2] >> (g % 2 * 4) & 15u;
            unsigned scale = s[g / 8] >> (g % 8 / 2 * 3) & 7u;
            quant_iq1_group(dst + i + 8 * g, d * (float)(2 * scale + 1),
                            p[g] | (high & 7u) << 8, high & 8u ? -0.125f : 0.125f);
        }
    }
}

static void quant_iq4_group(float *y, float d, const uint8_t *qs)
{
    for (size_t j = 0; j < 16; j++) {
        y[j] = d * (float)quant_iq4nl_values[qs[j] & 15];
        y[j + 16] = d * (float)quant_iq4nl_values[qs[j] >> 4];
    }
}

/* f16 d | qs[16]. */
void quant_iq4_nl_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 32, p += 18)
        quant_iq4_group(dst + i, quant_bytes_f16(p), p + 2);
}

/* f16 d | u16 scales_h: 2 high bits of eight scales | scales_l[4]: their nibbles | qs[128]. */
void quant_iq4_xs_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 136) {
        float d = quant_bytes_f16(p);
        unsigned high = quant_bytes_u16(p + 2);
        for (size_t b = 0; b < 8; b++) {
            unsigned scale = (p[4 + b / 2] >> (b % 2 * 4) & 15u) | (high >> (2 * b) & 3u) << 4;
            quant_iq4_group(dst + i + 32 * b, d * (float)((int)scale - 32), p + 8 + 16 * b);
        }
    }
}
