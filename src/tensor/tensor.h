/* tensor - the words that plans, ops, weights and backends share.
 *
 * Owns:      limits, value types, what the rows of a value stand for, how a weight is shaped.
 * Not:       ops (op.h), the list of them (plan.h), bytes of weights (weights.h, backends).
 * Invariant: a value is a dense array [rows][width]; a weight is mats x rows x cols, cols being
 *            the contiguous (input) dimension, so that out = weight * in for each of mats.
 *
 *     value  [N][width]            weight  [mats][rows = out][cols = in]
 *
 * Thread:    any; plain data.
 * Limits:    below. A model that passes one is refused by name.
 */
#ifndef SHOAL_TENSOR_TENSOR_H
#define SHOAL_TENSOR_TENSOR_H

#include "base/base.h"

#define TENSOR_NONE 0xffffu       /* no value, no weight */
#define TENSOR_VALUES_MAX 0xfff0u /* values of one plan; the same for weights */
#define TENSOR_OPS_MAX 0xfff0u
#define TENSOR_NAME_MAX 96u     /* bytes of a weight's name, with the NUL */
#define TENSOR_LAYERS_MAX 1024u /* layers with attention */
#define TENSOR_WIDTH_MAX (1u << 24) /* columns of a value, a side of a weight */
#define TENSOR_PIECE_MAX (16u << 20) /* bytes that one weight_load call brings at most */
#define TENSOR_PIECE_ROWS 16u   /* a piece is a multiple of so many rows, or ends its matrix */

enum vtype { VTYPE_F32, VTYPE_I32 };

/* N: rows of the step. O: rows that need an answer (step.out_rows). S: sequences. */
enum plan_rows { PLAN_ROWS_N, PLAN_ROWS_O, PLAN_ROWS_S, PLAN_ROWS_COUNT };

/* MATRIX: stays in the file's type (quant/quant.h). VECTOR: becomes f32 at load; norm weights,
 * biases, scales, sinks, frequency divisors. */
enum weight_kind { WEIGHT_KIND_MATRIX, WEIGHT_KIND_VECTOR };

/* What a plan asks of one weight: all it knows before a file's bytes are looked at. */
struct weight_want {
    enum weight_kind kind;
    uint32_t rows, cols; /* out, in; a vector of n: rows 1, cols n */
    uint32_t mats;       /* matrices of that shape: experts; else 1 */
};

#endif
