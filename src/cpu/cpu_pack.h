/* cpu_pack - the 16-row groups that all SIMD levels read weights from.
 *
 * Owns:      the layout of a group per type, packing file rows into it, reading them back.
 * Not:       products (x86/), what the codes mean (cpu_codes), types kept in file layout (below).
 * Invariant: 16 rows lie in the 16 lanes of 4 bytes of a 64-byte vector, so a vector times four
 *            activations sums into 16 rows at once, on VNNI and as B operand of an AMX tile alike.
 *            A group is its blocks one after the other, the next group follows: one stream (two
 *            sections per group cost a third of the bandwidth on short rows, NUMBERS 2026-11-29).
 *            Rows past the matrix are zero.
 *
 *     group   | scales, codes of block 0 | scales, codes of block 1 | ...
 *
 *     codes of 32 inputs, vector g, lane r, byte j: inputs k = 4g + j of row r, unsigned (+ offset)
 *       2 bits   bits 2 (g % 4) of a byte: k-group g % 4 + 4 * vector      2 vectors
 *       4 bits   low nibble k-group g, high nibble k-group g + 4           4 vectors
 *                types with values: a nibble is an index into them
 *       5 bits   that, then a vector whose bit g is the fifth bit of k-group g   + 1 vector
 *       6 bits   that, then two vectors with bits 2 (g % 4) of k-groups 0-3, 4-7 + 2 vectors
 *       8 bits   k-group g                                                  8 vectors
 *     scales, each [16 rows]:
 *       Q4_0 Q5_0 Q8_0   f16 d                Q4_1 Q5_1   f16 d, f16 m
 *       Q4_K Q5_K        f16 d, f16 dmin, u8 sc[8], u8 mn[8]
 *       Q3_K Q6_K        f16 d, i8 sc[16]     Q2_K        f16 d, f16 dmin, i8 sc[16], u8 mn[16]
 *       IQ4_NL           f16 d                MXFP4       f32 d
 *       IQ3_XXS IQ3_S IQ4_XS   f32 d, i8 sc[16]: a scale per 32 inputs stands there twice
 *
 *     F32 F16          [in][16], one section          BF16   [in/2][16][2], an odd last one zero
 *     all others       rows in file layout, packed = file; decoded tile by tile (cpu_codes)
 *
 * Thread:    any; pure.
 * Limits:    blocks of 32 or 256 inputs; 16 values.
 */
#ifndef SHOAL_CPU_CPU_PACK_H
#define SHOAL_CPU_CPU_PACK_H

#include "cpu/cpu_kernels.h"

enum cpu_pack_kind { CPU_PACK_FILE, CPU_PACK_FLOAT, CPU_PACK_GROUP };

struct cpu_pack_type {
    enum cpu_pack_kind kind;
    uint16_t block;                  /* inputs: 32, 256; FLOAT: 1, FILE: 0 */
    uint16_t scale_size, code_size;  /* bytes per block of a group */
    uint8_t bits;                    /* of a code */
    uint8_t offset_log2;             /* codes are stored as q + 2^this; 0: as they are */
    bool has_float_d;                /* d is f32, not f16 */
    const uint8_t *values;           /* [16] q + 128 of each index, offset_log2 is 7; or NULL */
};
extern const struct cpu_pack_type cpu_pack_table[QTYPE_WEIGHT_COUNT];

/* Bytes of a block of 16 rows; of a whole group. */
static inline size_t cpu_pack_block(const struct cpu_pack_type *p)
{
    return (size_t)p->scale_size + p->code_size;
}
static inline size_t cpu_pack_group(const struct cpu_pack_type *p, size_t in)
{
    return in / p->block * cpu_pack_block(p);
}

/* The three functions of struct cpu_matmul, for every weight type. */
size_t cpu_pack_size(enum qtype t, size_t rows, size_t in);
void cpu_pack_weight(void *dst, const void *src, const struct pack_args *a);
void cpu_pack_unpack_row(enum qtype t, float *dst, const void *packed, size_t row, size_t rows,
                         size_t in);

#endif
