/* quant - how numbers lie in a weight: the tensor types and their scalar code.
 *
 * Owns:      enum qtype, one row per type (quant_table.c), the scalar decoders and encoders, which
 *            define each format for every SIMD and CUDA version.
 * Not:       products with quantised weights (cpu, cuda), files (fmt), packed activations (cpu).
 * Invariant: a row of a tensor is a whole number of blocks; a block is block_elems values in
 *            block_bytes bytes, little endian, without padding:
 *
 *     row:  [block 0][block 1] ... [block n-1]     Q4_K block: f16 d, dmin | scales[12] | qs[128]
 *
 *            Decoding is exact up to one rounding (types with a minimum), so every decoder of a
 *            type gives the same bits whatever its order. Denormals are never flushed.
 * Thread:    any; pure functions and constant tables.
 * Limits:    sizes are checked by quant_row_size, quant_tensor_size; the row functions trust count.
 * Source:    docs/formats/gguf.md, "Tensor types".
 */
#ifndef SHOAL_QUANT_QUANT_H
#define SHOAL_QUANT_QUANT_H

#include "base/base.h"
#include "base/str.h"

/* Weights first (quant_is_weight), then activation forms, then numbers of small side tables. */
enum qtype {
    QTYPE_F32,
    QTYPE_F16,
    QTYPE_BF16,
    QTYPE_Q4_0,
    QTYPE_Q4_1,
    QTYPE_Q5_0,
    QTYPE_Q5_1,
    QTYPE_Q8_0,
    QTYPE_Q2_K,
    QTYPE_Q3_K,
    QTYPE_Q4_K,
    QTYPE_Q5_K,
    QTYPE_Q6_K,
    QTYPE_IQ1_S,
    QTYPE_IQ1_M,
    QTYPE_IQ2_XXS,
    QTYPE_IQ2_XS,
    QTYPE_IQ2_S,
    QTYPE_IQ3_XXS,
    QTYPE_IQ3_S,
    QTYPE_IQ4_NL,
    QTYPE_IQ4_XS,
    QTYPE_TQ1_0,
    QTYPE_TQ2_0,
    QTYPE_Q1_0,
    QTYPE_Q2_0,
    QTYPE_MXFP4,
    QTYPE_NVFP4,
    QTYPE_Q8_1, /* activations: f16 d, f16 d * sum, i8 q[32] */
    QTYPE_Q8_K, /* activations: f32 d, i8 q[256], i16 sums of 16 */
    QTYPE_I8,
    QTYPE_I16,
    QTYPE_I32,
    QTYPE_I64,
    QTYPE_F64,
};
enum { QTYPE_WEIGHT_COUNT = QTYPE_NVFP4 + 1, QTYPE_COUNT = QTYPE_F64 + 1 };

/* dst[count] from count / block_elems blocks at src; any alignment of src. */
typedef void quant_dequant_fn(float *dst, const void *src, size_t count);
/* count / block_elems blocks at dst from src[count], magnitudes below 2^56; deterministic, without
 * importance weights. */
typedef void quant_quantise_fn(void *dst, const float *src, size_t count);

struct quant_type {
    const char *name;      /* "Q4_K", as files and people spell it */
    uint16_t gguf_id;      /* ggml's number of the type */
    uint16_t block_elems;  /* values per block */
    uint16_t block_bytes;  /* bytes per block */
    uint16_t act_block;    /* inputs per scale when multiplied with integer activations: 32 or 256;
                              0: this type only takes float activations, or is no weight */
    /* Where a block has 16 bits that hold the exponent of a scale, and which bits these are: all of
     * them set means infinity, NaN or an absurd scale. 0xff: no such field. */
    uint8_t exponent_at[2];
    uint16_t exponent_mask;
    quant_dequant_fn *dequant;
    quant_quantise_fn *quantise; /* NULL: shoal only reads this type */
};

extern const struct quant_type quant_table[QTYPE_COUNT];

static inline bool quant_is_weight(enum qtype t) { return (unsigned)t < QTYPE_WEIGHT_COUNT; }
static inline const char *quant_name(enum qtype t) { return quant_table[t].name; }

/* Bytes of one row of count values. False: count is no multiple of the block, or the product
 * overflows; *bytes is untouched then. */
BASE_USE_RESULT bool quant_row_size(enum qtype t, uint64_t count, size_t *bytes);
/* Bytes of dims[n_dims] with dims[0] contiguous; n_dims 0 is one value. Fails as quant_row_size. */
BASE_USE_RESULT bool quant_tensor_size(enum qtype t, const uint64_t *dims, uint32_t n_dims,
                                       size_t *bytes);

/* Whether count values at src are finite, by their own exponents or those of their scales (MXFP4:
 * scales below 2^125). If not, *at is the index of the first value of the first bad block. */
BASE_USE_RESULT bool quant_is_finite(enum qtype t, const void *src, size_t count, size_t *at);

/* False when no row has that id; *t is untouched then. */
BASE_USE_RESULT bool quant_by_gguf_id(uint32_t gguf_id, enum qtype *t);
/* ASCII case does not count: "q4_k" = "Q4_K". */
BASE_USE_RESULT bool quant_by_name(str name, enum qtype *t);

/* What is known about an id without a row, for messages: "IQ4_K of ik_llama.cpp", "Q4_2, removed
 * from the format in 2023"; NULL if nothing is. */
const char *quant_foreign_name(uint32_t gguf_id);

/* Lattices of the IQ types (quant_iq_data.c): an entry is the group of values that an index names,
 * element 0 first, without scale; iq_signs: bit j of entry i is set when value j is negative. */
extern const uint8_t quant_iq2xxs_grid[256][8], quant_iq2xs_grid[512][8], quant_iq2s_grid[1024][8];
extern const uint8_t quant_iq3xxs_grid[256][4], quant_iq3s_grid[512][4];
extern const int8_t quant_iq1s_grid[2048][8];
extern const uint8_t quant_iq_signs[128];
extern const int8_t quant_iq4nl_values[16];

/* The entries of quant_table, one pair per type; contracts as the two function types above. */
quant_dequant_fn quant_f32_dequant, quant_f16_dequant, quant_bf16_dequant, quant_f64_dequant;
quant_dequant_fn quant_i8_dequant, quant_i16_dequant, quant_i32_dequant, quant_i64_dequant;
quant_dequant_fn quant_mxfp4_dequant, quant_nvfp4_dequant;
quant_dequant_fn quant_q4_0_dequant, quant_q4_1_dequant, quant_q5_0_dequant, quant_q5_1_dequant;
quant_dequant_fn quant_q8_0_dequant, quant_q8_1_dequant;
quant_dequant_fn quant_q2_k_dequant, quant_q3_k_dequant, quant_q4_k_dequant, quant_q5_k_dequant;
quant_dequant_fn quant_q6_k_dequant, quant_q8_k_dequant;
quant_dequant_fn quant_iq1_s_dequant, quant_iq1_m_dequant, quant_iq2_xxs_dequant;
quant_dequant_fn quant_iq2_xs_dequant, quant_iq2_s_dequant, quant_iq3_xxs_dequant;
quant_dequant_fn quant_iq3_s_dequant, quant_iq4_nl_dequant, quant_iq4_xs_dequant;
quant_dequant_fn quant_tq1_0_dequant, quant_tq2_0_dequant, quant_q1_0_dequant, quant_q2_0_dequant;

quant_quantise_fn quant_f32_quantise, quant_f16_quantise, quant_bf16_quantise;
quant_quantise_fn quant_q4_0_quantise, quant_q4_1_quantise, quant_q5_0_quantise;
quant_quantise_fn quant_q8_0_quantise, quant_q8_1_quantise;
quant_quantise_fn quant_q4_k_quantise, quant_q6_k_quantise, quant_q8_k_quantise;

#endif
