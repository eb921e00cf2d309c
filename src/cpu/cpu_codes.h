/* cpu_codes - a quantised weight as integers and scales: what integer matmuls multiply.
 *
 * Owns:      splitting a block of each type into exact integer codes, integer sub-scales and one
 *            or two floats; the definition of an integer matmul's float steps.
 * Not:       values as floats (quant), packed layouts (cpu_pack), SIMD.
 * Invariant: value of element i of a step = d * sc[i / sub] * q[i] - dm * mn[i / sub], the same
 *            number that quant's dequant gives up to its rounding. Integer sums stay below 2^31.
 *
 *     one step of `step` inputs (16, 32 or 256), sub-blocks of `sub` (16 or 32):
 *     q  |q q q ... |q q q ... | ...        acc = fma(d * ad, (float)sum_j sc[j] * sum q * a, acc)
 *     sc |   sc[0]  |  sc[1]   | ...   then, with minimums,
 *     mn |   mn[0]  |  mn[1]   | ...        step 256: acc = fma(-(dm * ad), (float)sum_j mn[j] *
 *                                           sum a, acc); step 32: acc = fma(-dm, ad * sum a, acc)
 *
 *     16-bit activations have a scale ad per 32 inputs, and a float step per sub-block, so that the
 *     sums stay below 2^31: for each j ascending acc = fma((d * sc[j]) * ad, (float)sum q * a, acc)
 *     and, with minimums, acc = fma(-(dm * mn[j]), ad * (float)sum a, acc).
 *
 * Thread:    any; pure.
 * Limits:    step <= 256. k and the row are whole steps.
 * Source:    docs/formats/gguf.md, "Tensor types".
 */
#ifndef SHOAL_CPU_CPU_CODES_H
#define SHOAL_CPU_CPU_CODES_H

#include "quant/quant.h"

struct cpu_codes {
    int8_t q[256];
    int16_t sc[16];
    uint8_t mn[16];
    float d, dm;
};

struct cpu_codes_type {
    uint16_t step; /* inputs per float step; divides or equals the type's act_block */
    uint16_t sub;  /* inputs per integer scale */
    bool has_min;
    /* The step that starts at input k of a row in file layout. */
    void (*decode)(struct cpu_codes *out, const void *row, size_t k);
};

/* Types with an act_block have a row; decode is NULL for the others (float types). Steps of 16 or
 * 32 read the activation scale of block k / act_block. */
extern const struct cpu_codes_type cpu_codes_table[QTYPE_WEIGHT_COUNT];

#endif
