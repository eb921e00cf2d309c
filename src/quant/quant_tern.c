/* Types with three, two or four values per weight. */
#include "quant/quant.h"
#include "quant/quant_bytes.h"

/* Five trits lie in a byte as a base-3 fraction: multiplying by 3^n modulo 256 moves trit n to the
 * front, one more multiplication by 3 carries it over the byte's border. */
static float *quant_tern_trits(float *dst, const uint8_t *q, size_t bytes, unsigned trits, float d)
{
    uint8_t power = 1;
    for (unsigned n = 0; n < trits; n++, power = (uint8_t)(power * 3)) {
        for (size_t i = 0; i < bytes; i++) {
            uint8_t fraction = (uint8_t)(q[i] * power);
            *dst++ = d * (float)((fraction * 3 >> 8) - 1);
        }
    }
    return dst;
}

/* qs[48] | qh[4] | f16 d: five trits in each qs, four in each qh. */
void quant_tq1_0_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 54) {
        float d = quant_bytes_f16(p + 52);
        float *y = quant_tern_trits(dst + i, p, 32, 5, d);
        y = quant_tern_trits(y, p + 32, 16, 5, d);
        quant_tern_trits(y, p + 48, 4, 4, d);
    }
}

/* qs[64] | f16 d: two bits each, value minus one; 32 bytes hold 128 values. */
void quant_tq2_0_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 256, p += 66) {
        float d = quant_bytes_f16(p + 64);
        for (size_t j = 0; j < 256; j++) {
            unsigned byte = p[j / 128 * 32 + j % 32], shift = (unsigned)(j % 128 / 32 * 2);
            dst[i + j] = d * (float)((int)(byte >> shift & 3u) - 1);
        }
    }
}

/* f16 d | bits[16]: a set bit is +d, a clear one -d, lowest bit first. */
void quant_q1_0_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 128, p += 18) {
        float d = quant_bytes_f16(p);
        for (size_t j = 0; j < 128; j++)
            dst[i + j] = p[2 + j / 8] >> (j % 8) & 1 ? d : -d;
    }
}

/* f16 d | qs[16]: four values to a byte, lowest bits first, value minus one. */
void quant_q2_0_dequant(float *dst, const void *src, size_t count)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < count; i += 64, p += 18) {
        float d = quant_bytes_f16(p);
        for (size_t j = 0; j < 64; j++)
            dst[i + j] = d * (float)((p[2 + j / 4] >> (j % 4 * 2) & 3) - 1);
    }
}
