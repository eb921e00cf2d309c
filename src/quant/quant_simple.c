/* Blocks of 32 with one scale, or a scale and an offset: Q4_0 to Q8_1. */
#include <math.h>

#include "quant/quant.h"
#include "quant/quant_bytes.h"
#include "quant/quant_fit.h"

/* In all 4- and 5-bit types byte j holds value j in its low and value j + 16 in its high nibble;
 * the fifth bit of value j is bit j of a u32. */

/* f16 d | qs[16] */
void quant_q4_0_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 32, p += 18) {
        float d = quant_bytes_f16(p);
        for (size_t j = 0; j < 16; j++) {
            dst[i + j] = d * (float)((p[2 + j] & 15) - 8);
            dst[i + j + 16] = d * (float)((p[2 + j] >> 4) - 8);
        }
    }
}

/* f16 d, m | qs[16] */
void quant_q4_1_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 32, p += 20) {
        float d = quant_bytes_f16(p), m = quant_bytes_f16(p + 2);
        for (size_t j = 0; j < 16; j++) {
            dst[i + j] = d * (float)(p[4 + j] & 15) + m;
            dst[i + j + 16] = d * (float)(p[4 + j] >> 4) + m;
        }
    }
}

static int quant_q5_code(const uint8_t *qs, uint32_t high, unsigned j)
{
    unsigned low = j < 16 ? qs[j] & 15u : (unsigned)qs[j - 16] >> 4;
    return (int)(low | (high >> j & 1u) << 4);
}

/* f16 d | u32 high bits | qs[16] */
void quant_q5_0_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 32, p += 22) {
        float d = quant_bytes_f16(p);
        uint32_t high = quant_bytes_u32(p + 2);
        for (unsigned j = 0; j < 32; j++)
            dst[i + j] = d * (float)(quant_q5_code(p + 6, high, j) - 16);
    }
}

/* f16 d, m | u32 high bits | qs[16] */
void quant_q5_1_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 32, p += 24) {
        float d = quant_bytes_f16(p), m = quant_bytes_f16(p + 2);
        uint32_t high = quant_bytes_u32(p + 4);
        for (unsigned j = 0; j < 32; j++)
            dst[i + j] = d * (float)quant_q5_code(p + 8, high, j) + m;
    }
}

/* f16 d | i8 q[32] */
void quant_q8_0_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 32, p += 34) {
        float d = quant_bytes_f16(p);
        for (size_t j = 0; j < 32; j++)
            dst[i + j] = d * (float)(int8_t)p[2 + j];
    }
}

/* f16 d, f16 d * sum of q | i8 q[32] */
void quant_q8_1_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 32, p += 36) {
        float d = quant_bytes_f16(p);
        for (size_t j = 0; j < 32; j++)
            dst[i + j] = d * (float)(int8_t)p[4 + j];
    }
}

/* ---- encoders ---- */

static void quant_simple_put_nibbles(uint8_t *qs, const uint8_t code[32])
{
    for (size_t j = 0; j < 16; j++)
        qs[j] = (uint8_t)((code[j] & 15) | (code[j + 16] & 15) << 4);
}

void quant_q4_0_quantise(void *dst, const float *src, size_t count)
{
    uint8_t *p = dst, code[32];
    for (size_t i = 0; i < count; i += 32, p += 18) {
        float d = quant_bytes_put_scale(p, quant_fit_scale(src + i, 32, -8, 7));
        float inverse = quant_fit_inverse(d);
        for (size_t j = 0; j < 32; j++)
            code[j] = (uint8_t)(quant_fit_round(src[i + j] * inverse, -8, 7) + 8);
        quant_simple_put_nibbles(p + 2, code);
    }
}

void quant_q4_1_quantise(void *dst, const float *src, size_t count)
{
    uint8_t *p = dst, code[32];
    for (size_t i = 0; i < count; i += 32, p += 20) {
        struct quant_fit_line line = quant_fit_line(src + i, 32, 15, false);
        float d = quant_bytes_put_scale(p, line.d), m = quant_bytes_put_scale(p + 2, line.m);
        float inverse = quant_fit_inverse(d);
        for (size_t j = 0; j < 32; j++)
            code[j] = (uint8_t)quant_fit_round((src[i + j] - m) * inverse, 0, 15);
        quant_simple_put_nibbles(p + 4, code);
    }
}

void quant_q5_0_quantise(void *dst, const float *src, size_t count)
{
    uint8_t *p = dst, code[32];
    for (size_t i = 0; i < count; i += 32, p += 22) {
        float d = quant_bytes_put_scale(p, quant_fit_scale(src + i, 32, -16, 15));
        float inverse = quant_fit_inverse(d);
        uint32_t high = 0;
        for (size_t j = 0; j < 32; j++) {
            code[j] = (uint8_t)(quant_fit_round(src[i + j] * inverse, -16, 15) + 16);
            high |= (uint32_t)(code[j] >> 4) << j;
        }
        memcpy(p + 2, &high, sizeof high);
        quant_simple_put_nibbles(p + 6, code);
    }
}

/* q[32] and the scale of 8-bit codes: the largest magnitude becomes 127. Halves round away from
 * zero, as in the files that others write. */
static float quant_simple_q8(uint8_t *q, const float *x, int *sum)
{
    float amax = 0.0f;
    for (size_t j = 0; j < 32; j++)
        amax = fmaxf(amax, fabsf(x[j]));
    float d = amax / 127.0f, inverse = quant_fit_inverse(d);
    *sum = 0;
    for (size_t j = 0; j < 32; j++) {
        int code = (int)roundf(x[j] * inverse);
        *sum += code;
        q[j] = (uint8_t)(int8_t)code;
    }
    return d;
}

void quant_q8_0_quantise(void *dst, const float *src, size_t count)
{
    uint8_t *p = dst;
    int sum;
    for (size_t i = 0; i < count; i += 32, p += 34)
        quant_bytes_put_scale(p, quant_simple_q8(p + 2, src + i, &sum));
}

void quant_q8_1_quantise(void *dst, const float *src, size_t count)
{
    uint8_t *p = dst;
    int sum;
    for (size_t i = 0; i < count; i += 32, p += 36) {
        float d = quant_simple_q8(p + 4, src + i, &sum);
        quant_bytes_put_scale(p, d);
        quant_bytes_put_scale(p + 2, d * (float)sum);
    }
}
