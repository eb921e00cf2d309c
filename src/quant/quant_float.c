/* Plain numbers, and the two 4-bit float types with a small float as scale. */
#include "quant/quant.h"
#include "quant/quant_bytes.h"

void quant_f32_dequant(float *dst, const void *src, size_t count)
{
    memcpy(dst, src, count * sizeof *dst);
}

void quant_f32_quantise(void *dst, const float *src, size_t count)
{
    memcpy(dst, src, count * sizeof *src);
}

void quant_f16_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i++)
        dst[i] = quant_bytes_f16(p + 2 * i);
}

void quant_f16_quantise(void *dst, const float *src, size_t count)
{
    uint8_t *p = dst;
    for (size_t i = 0; i < count; i++)
        quant_bytes_put_u16(p + 2 * i, base_f32_to_f16(src[i]));
}

void quant_bf16_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i++)
        dst[i] = base_bf16_to_f32(quant_bytes_u16(p + 2 * i));
}

void quant_bf16_quantise(void *dst, const float *src, size_t count)
{
    uint8_t *p = dst;
    for (size_t i = 0; i < count; i++)
        quant_bytes_put_u16(p + 2 * i, base_f32_to_bf16(src[i]));
}

void quant_f64_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i++) {
        double v;
        memcpy(&v, p + 8 * i, sizeof v);
        dst[i] = (float)v;
    }
}

void quant_i8_dequant(float *dst, const void *src, size_t count)
{
    const int8_t *p = src;
    for (size_t i = 0; i < count; i++)
        dst[i] = (float)p[i];
}

void quant_i16_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i++)
        dst[i] = (float)(int16_t)quant_bytes_u16(p + 2 * i);
}

void quant_i32_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i++)
        dst[i] = (float)(int32_t)quant_bytes_u32(p + 4 * i);
}

void quant_i64_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i++) {
        int64_t v;
        memcpy(&v, p + 8 * i, sizeof v);
        dst[i] = (float)v;
    }
}

/* E2M1: a sign, two exponent bits, one mantissa bit. Code 8 is -0 by that rule; the references give
 * +0, and nothing downstream can tell. */
static const float quant_float_e2m1[16] = {
    0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f,
    0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f,
};

/* E8M0: 2^(e - 127). e = 0 lies below the normal range and is built as a denormal. */
static float quant_float_e8m0(uint8_t e)
{
    return base_float_of(e == 0 ? 0x00400000u : (uint32_t)e << 23);
}

/* u8 e | qs[16]: low nibbles are values 0..15, high nibbles 16..31. */
void quant_mxfp4_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 32, p += 17) {
        float d = quant_float_e8m0(p[0]);
        for (size_t j = 0; j < 16; j++) {
            dst[i + j] = d * quant_float_e2m1[p[1 + j] & 15];
            dst[i + j + 16] = d * quant_float_e2m1[p[1 + j] >> 4];
        }
    }
}

/* UE4M3: E4M3 without a sign. 0x7f is NaN in E4M3; the references read it as 0. */
static float quant_float_ue4m3(uint8_t v)
{
    uint32_t exponent = v >> 3 & 15u, mantissa = v & 7u;
    if (v == 0x7f)
        return 0.0f;
    if (exponent == 0)
        return (float)mantissa * 0x1p-9f;
    return base_float_of((exponent + 120u) << 23 | mantissa << 20);
}

/* u8 d[4] | qs[32]: a scale per 16 values; within these, low nibbles first. The tensor-wide factor
 * "<name>.scale" is a tensor of its own and is applied after the product. */
void quant_nvfp4_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 64, p += 36) {
        for (size_t s = 0; s < 4; s++) {
            float d = quant_float_ue4m3(p[s]);
            const uint8_t *qs = p + 4 + 8 * s;
            float *y = dst + i + 16 * s;
            for (size_t j = 0; j < 8; j++) {
                y[j] = d * quant_float_e2m1[qs[j] & 15];
                y[j + 8] = d * quant_float_e2m1[qs[j] >> 4];
            }
        }
    }
}
