/* K types: super-blocks of 256 whose sub-blocks of 16 or 32 have small integer scales. */
#include <math.h>

#include "quant/quant.h"
#include "quant/quant_bytes.h"
#include "quant/quant_fit.h"

/* Two-bit codes of Q2_K and Q3_K: value i of the block lies in byte 32 * (i / 128) + i % 32, at bit
 * 2 * (i % 128 / 32). */
static int quant_k_two_bits(const uint8_t *qs, size_t i)
{
    return qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

/* scales[16]: scale in the low, minimum in the high nibble | qs[64] | f16 d, dmin */
void quant_q2_k_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 84) {
        float d = quant_bytes_f16(p + 80), dmin = quant_bytes_f16(p + 82);
        for (size_t j = 0; j < 256; j++) {
            uint8_t s = p[j / 16];
            float scale = d * (float)(s & 15), minimum = dmin * (float)(s >> 4);
            dst[i + j] = scale * (float)quant_k_two_bits(p + 16, j) - minimum;
        }
    }
}

/* hmask[32]: a clear bit subtracts 4 | qs[64] | scales[12]: sixteen 6-bit scales | f16 d */
void quant_q3_k_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 110) {
        const uint8_t *s = p + 96;
        float d = quant_bytes_f16(p + 108);
        for (size_t j = 0; j < 256; j++) {
            size_t k = j / 16;
            int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4;
            int scale = (low | (s[8 + k % 4] >> (k / 4 * 2) & 3) << 4) - 32;
            int code = quant_k_two_bits(p + 32, j) - (p[j % 32] >> (j / 32) & 1 ? 0 : 4);
            dst[i + j] = d * (float)scale * (float)code;
        }
    }
}

/* Scale and minimum, 6 bits each, of sub-block k of Q4_K and Q5_K. The first four lie in bytes 0..3
 * and 4..7; of the others the low nibbles are in bytes 8..11, the top bits above the first four. */
static void quant_k_scale_min(const uint8_t s[12], size_t k, int *scale, int *minimum)
{
    if (k < 4) {
        *scale = s[k] & 63;
        *minimum = s[k + 4] & 63;
    } else {
        *scale = (s[k + 4] & 15) | s[k - 4] >> 6 << 4;
        *minimum = s[k + 4] >> 4 | s[k] >> 6 << 4;
    }
}

/* f16 d, dmin | scales[12] | qs[128]: 32 bytes hold two sub-blocks, low nibbles first */
void quant_q4_k_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 144) {
        float d = quant_bytes_f16(p), dmin = quant_bytes_f16(p + 2);
        for (size_t k = 0; k < 8; k++) {
            const uint8_t *qs = p + 16 + k / 2 * 32;
            int sc, mn;
            quant_k_scale_min(p + 4, k, &sc, &mn);
            float scale = d * (float)sc, minimum = dmin * (float)mn;
            for (size_t j = 0; j < 32; j++)
                dst[i + 32 * k + j] = scale * (float)(qs[j] >> (k % 2 * 4) & 15) - minimum;
        }
    }
}

/* f16 d, dmin | scales[12] | qh[32]: bit k of byte j is the fifth bit of value j of sub-block k |
 * qs[128] as in Q4_K */
void quant_q5_k_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 176) {
        float d = quant_bytes_f16(p), dmin = quant_bytes_f16(p + 2);
        for (size_t k = 0; k < 8; k++) {
            const uint8_t *qs = p + 48 + k / 2 * 32, *qh = p + 16;
            int sc, mn;
            quant_k_scale_min(p + 4, k, &sc, &mn);
            float scale = d * (float)sc, minimum = dmin * (float)mn;
            for (size_t j = 0; j < 32; j++) {
                int code = (qs[j] >> (k % 2 * 4) & 15) | (qh[j] >> k & 1) << 4;
                dst[i + 32 * k + j] = scale * (float)code - minimum;
            }
        }
    }
}

/* Where the code of value j of a Q6_K block lies: a half has 64 bytes ql and 32 bytes qh. */
struct quant_k_place {
    uint8_t low, low_shift, high, high_shift;
};

static struct quant_k_place quant_k_q6_place(size_t j)
{
    size_t half = j / 128, quarter = j % 128 / 32, l = j % 32;
    return (struct quant_k_place){
        .low = (uint8_t)(64 * half + l + quarter % 2 * 32),
        .low_shift = (uint8_t)(quarter / 2 * 4),
        .high = (uint8_t)(32 * half + l),
        .high_shift = (uint8_t)(quarter * 2),
    };
}

/* ql[128] | qh[64] | i8 scales[16], one per 16 values | f16 d */
void quant_q6_k_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 210) {
        float d = quant_bytes_f16(p + 208);
        for (size_t j = 0; j < 256; j++) {
            struct quant_k_place at = quant_k_q6_place(j);
            int low = p[at.low] >> at.low_shift & 15;
            int code = (low | (p[128 + at.high] >> at.high_shift & 3) << 4) - 32;
            dst[i + j] = d * (float)(int8_t)p[192 + j / 16] * (float)code;
        }
    }
}

/* f32 d | i8 q[256] | i16 sums of 16 */
void quant_q8_k_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 292) {
        float d = quant_bytes_f32(p);
        for (size_t j = 0; j < 256; j++)
            dst[i + j] = d * (float)(int8_t)p[4 + j];
    }
}

/* ---- encoders ---- */

static void quant_k_put_scale_min(uint8_t s[12], size_t k, unsigned scale, unsigned minimum)
{
    if (k < 4) {
        s[k] = (uint8_t)(s[k] | scale);
        s[k + 4] = (uint8_t)(s[k + 4] | minimum);
    } else {
        s[k + 4] = (uint8_t)((scale & 15u) | (minimum & 15u) << 4);
        s[k - 4] = (uint8_t)(s[k - 4] | scale >> 4 << 6);
        s[k] = (uint8_t)(s[k] | minimum >> 4 << 6);
    }
}

static void quant_k_q4_block(uint8_t *p, const float *x)
{
    struct quant_fit_line line[8];
    float d_max = 0.0f, m_max = 0.0f;
    for (size_t k = 0; k < 8; k++) {
        line[k] = quant_fit_line(x + 32 * k, 32, 15, true);
        d_max = fmaxf(d_max, line[k].d);
        m_max = fmaxf(m_max, -line[k].m);
    }
    memset(p, 0, 144);
    float d = quant_bytes_put_scale(p, d_max / 63.0f);
    float dmin = quant_bytes_put_scale(p + 2, m_max / 63.0f);
    for (size_t k = 0; k < 8; k++) {
        int sc = quant_fit_round(line[k].d * quant_fit_inverse(d), 0, 63);
        int mn = quant_fit_round(-line[k].m * quant_fit_inverse(dmin), 0, 63);
        quant_k_put_scale_min(p + 4, k, (unsigned)sc, (unsigned)mn);
        float inverse = quant_fit_inverse(d * (float)sc), minimum = dmin * (float)mn;
        uint8_t *qs = p + 16 + k / 2 * 32;
        for (size_t j = 0; j < 32; j++) {
            int code = quant_fit_round((x[32 * k + j] + minimum) * inverse, 0, 15);
            qs[j] = (uint8_t)(qs[j] | code << (k % 2 * 4));
        }
    }
}

void quant_q4_k_quantise(void *dst, const float *src, size_t count)
{
    uint8_t *p = dst;
    for (size_t i = 0; i < count; i += 256, p += 144)
        quant_k_q4_block(p, src + i);
}

static void quant_k_q6_block(uint8_t *p, const float *x)
{
    float scale[16], extreme = 0.0f;
    for (size_t k = 0; k < 16; k++) {
        scale[k] = quant_fit_scale(x + 16 * k, 16, -32, 31);
        if (fabsf(scale[k]) > fabsf(extreme))
            extreme = scale[k];
    }
    memset(p, 0, 208);
    float d = quant_bytes_put_scale(p + 208, extreme / -128.0f);
    for (size_t k = 0; k < 16; k++) {
        int sc = quant_fit_round(scale[k] * quant_fit_inverse(d), -128, 127);
        p[192 + k] = (uint8_t)(int8_t)sc;
        float inverse = quant_fit_inverse(d * (float)sc);
        for (size_t j = 16 * k; j < 16 * k + 16; j++) {
            struct quant_k_place at = quant_k_q6_place(j);
            int code = quant_fit_round(x[j] * inverse, -32, 31) + 32;
            p[at.low] = (uint8_t)(p[at.low] | (code & 15) << at.low_shift);
            p[128 + at.high] = (uint8_t)(p[128 + at.high] | code >> 4 << at.high_shift);
        }
    }
}

void quant_q6_k_quantise(void *dst, const float *src, size_t count)
{
    uint8_t *p = dst;
    for (size_t i = 0; i < count; i += 256, p += 210)
        quant_k_q6_block(p, src + i);
}

/* The extreme value becomes -127, so that its sign never needs the missing +128. */
void quant_q8_k_quantise(void *dst, const float *src, size_t count)
{
    uint8_t *p = dst;
    for (size_t i = 0; i < count; i += 256, p += 292) {
        const float *x = src + i;
        float extreme = 0.0f;
        for (size_t j = 0; j < 256; j++)
            if (fabsf(x[j]) > fabsf(extreme))
                extreme = x[j];
        float inverse = extreme != 0.0f ? -127.0f / extreme : 0.0f;
        float d = quant_fit_inverse(inverse);
        memcpy(p, &d, sizeof d);
        for (size_t k = 0; k < 16; k++) {
            int sum = 0;
            for (size_t j = 16 * k; j < 16 * k + 16; j++) {
                int code = quant_fit_round(x[j] * inverse, -127, 127);
                p[4 + j] = (uint8_t)(int8_t)code;
                sum += code;
            }
            quant_bytes_put_u16(p + 260 + 2 * k, (uint16_t)(int16_t)sum);
        }
    }
}
