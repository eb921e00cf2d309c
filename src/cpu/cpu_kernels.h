/* cpu_kernels - the table of every function that computes something on a CPU.
 *
 * Owns:      the table, its staircase (each level overwrites what it improves), the argument
 *            structs of kernels, which activation form a weight type gets, the layout of KV pages.
 * Not:       which op runs when and on which rows (cpu_backend), what an op means (ref/), the file
 *            layouts of weights (quant), the 16-row groups that levels pack them into (cpu_pack).
 * Invariant: no entry stays NULL after init. Kernels are pure: they read and write only what their
 *            arguments name, and a row's result does not depend on the other rows of the call, so
 *            any split of rows over threads gives the same bits. All levels give the bits of ref
 *            in row ops and attention; matmuls as ARCHITECTURE 5 says.
 *
 *     ref --> avx2 --> avx512 --> vnni --> amx      cpu_kernels_init runs the _add functions up to
 *      scalar: the definition                       the level asked for
 *
 * Thread:    the table is constant after init; kernels run on pool threads.
 * Limits:    sizes come from a checked plan; kernels trust them.
 */
#ifndef SHOAL_CPU_CPU_KERNELS_H
#define SHOAL_CPU_CPU_KERNELS_H

#include "base/machine.h"
#include "quant/quant.h"
#include "tensor/backend.h"

struct cpu_kernels;

/* ---- activations ----
 *
 * A matmul's input is packed once per value and form, then shared by all weights that read it.
 * First each row by itself (the row form, equal at every level), then `columns` rows joined into a
 * panel in which the columns of one k lie side by side. Sections of a row form, each 64-byte
 * aligned, for `in` inputs:
 *
 *     F32       f32 x[in]
 *     INT8_32   i8 q[in] | f32 d[in/32] | i32 neg[in/32] = -sum q | f32 dsum[in/32] = d * sum q
 *     INT8_256  i8 q[in] | f32 d[in/256] | i32 neg[in/16] = -sum q of 16 |
 *               i16 sum[in/32] = factor * sum q | i32 spread[in/256], i32 factor[in/32]
 *     INT16     [in/4] { i8 hi[4], i8 lo[4] } | f32 d[in/32] | i32 neg[in/16] = -sum q of 16 |
 *               f32 dsum[in/32] = d * sum q
 *
 * q = round to even(x * (127 / amax)), d = amax / 127 per block, amax taken on the bits so that a
 * NaN stays one in d; a block with amax below 2^-100 is zero. A block of 256 that is spread
 * (cpu_kernels_factors) has outliers that would make the others coarse: d is amax / 1016 there,
 * each 32 inputs have a factor of 1 to 8, x is about d * factor * q, q = round to even(x * ((1016 /
 * amax) / factor)). Sums stay integer, factor * sum q fits 16 bits; elsewhere factor is 1. In a
 * panel each section is `columns` times as long and holds, for x, d, neg, dsum, spread, factor
 * [index][column]; for q, hi, lo and sum [4-byte word][column]. A panel of one column is the row
 * form.
 *
 * INT16: q = 256 * hi + lo, round to even(x * (32512 / amax)), d = amax / 32512 per 32 inputs for
 * all types. Two planes of bytes, so products are those of int8, twice as many. A lo of -128 is
 * made -127 (q one more): levels without VNNI move signs from weights to activations.
 */
enum cpu_form { CPU_FORM_F32, CPU_FORM_INT8_32, CPU_FORM_INT8_256, CPU_FORM_INT16, CPU_FORM_COUNT };
#define CPU_INT16_STEPS 32512.0f /* 127 * 256 */

struct cpu_form_ops {
    uint16_t block;  /* inputs per scale; `in` is a multiple of it. F32: 1 */
    uint16_t whole;  /* up to so many columns make one panel; */
    uint16_t panel;  /* more: panels of this many, the last one narrower */
    size_t (*row_size)(size_t in); /* bytes per column, a multiple of 64 */
    void (*pack_row)(void *dst, const float *src, size_t in);
    void (*join)(void *dst, const void *const *rows, size_t columns, size_t in);
};

/* Byte offsets of the sections of a row form; those a form lacks are 0. */
struct cpu_form_layout {
    size_t d, neg, sum, factor, size; /* sum: dsum or sum; factor: spread, then factor */
};
struct cpu_form_layout cpu_kernels_form_layout(enum cpu_form f, size_t in);

/* A row of INT8_256: factor[in/32] brings the bits of the largest magnitude of each 32 inputs and
 * gets their factors, ceil(8 amax_32 / amax); amax[in/256] is written. Rounding errors go with the
 * square of a scale: a block in which factors take away more than twice the mean error of the row's
 * blocks is spread. Else factors are 1: a spread block costs a product more per 32 inputs, and
 * ordinary ones would gain little by it (docs/NUMBERS.md, 2026-11-29). */
void cpu_kernels_factors(int32_t *spread, int32_t *factor, float *amax, size_t in);
/* inv: inputs are multiplied by inv / factor; 0: all codes are 0. */
struct cpu_block {
    float d, inv;
};
struct cpu_block cpu_kernels_block(float amax, bool is_spread);

/* Width of full panels for that many columns. Panel i starts at i * width * row_size. */
static inline size_t cpu_kernels_panel(const struct cpu_form_ops *f, size_t columns)
{
    return columns <= f->whole ? columns : f->panel;
}

/* ---- matmul ---- */

#define CPU_ROWS 16u /* rows of a packed group; row splits between threads are multiples of it */
#define CPU_MATMUL_SCRATCH (256u << 10) /* bytes per worker that gemv and gemm may use */

/* out[column][row] = scale * sum over k of weight[row][k] * x[column][k], + bias[row], for rows
 * [row_first, row_last); row_first is a multiple of CPU_ROWS, row_last too or is rows. The scale
 * multiplies, then the bias is added: two roundings. scale 1 and bias NULL do nothing. */
struct matmul_args {
    enum qtype type;    /* of the weight: one function may serve several rows of the table */
    const void *weight; /* of the whole matrix, packed by pack_weight or in file layout */
    const void *act;    /* panels in the row's form */
    float *const *out;  /* [columns]: where row 0 of that column goes */
    const float *bias;  /* [rows] or NULL */
    void *scratch;      /* CPU_MATMUL_SCRATCH bytes, 64-byte aligned */
    size_t rows, in, columns, row_first, row_last;
    float scale;
};

struct pack_args {
    enum qtype type;
    size_t rows, in;     /* of the matrix */
    size_t first, count; /* rows that src brings */
};

/* One row per activation mode and weight type; a level replaces whole rows. Float weight types
 * (F32, F16, BF16) keep form F32 in every mode. */
struct cpu_matmul {
    enum cpu_form form;
    size_t (*packed_size)(enum qtype t, size_t rows, size_t in);
    /* Rows [first, first + count) of a matrix of `rows` from the file's dense layout; first is a
     * multiple of CPU_ROWS. src is the first of them. Missing rows of a last group are zeroed. */
    void (*pack_weight)(void *dst, const void *src, const struct pack_args *a);
    /* One row as floats, exactly as quant's dequant gives them. */
    void (*unpack_row)(enum qtype t, float *dst, const void *packed, size_t row, size_t rows,
                       size_t in);
    void (*gemv)(const struct matmul_args *a); /* one column */
    void (*gemm)(const struct matmul_args *a); /* any number; same bits as gemv, column by column */
};

/* ---- row ops: what each computes is said in tensor/op.h and defined by ref/ref_ops.c ---- */

/* Rows of a view: column c of row r is p[r * row + c / width * group + c % width]. */
struct cpu_view {
    const float *p;
    size_t row, group;     /* floats from row to row, from group to group */
    uint32_t width, count; /* columns of a group, groups */
};

/* rms_norm, layer_norm: x.width is a multiple of the columns of a norm group, or x has no gaps. */
struct norm_args {
    struct cpu_view x;
    float *out; /* dense [rows][groups * m] */
    const float *weight, *bias; /* [m], may be NULL */
    uint32_t rows, groups;
    float eps;
};
/* sum[rows][width] = a + b; out = rms_norm(sum) * weight. */
struct add_norm_args {
    struct cpu_view a, b;
    float *sum, *out;
    const float *weight;
    uint32_t rows;
    float eps;
};
struct act_args { /* act, scale, softcap, copy; out dense [rows][x.width * x.count] */
    struct cpu_view x;
    float *out;
    uint32_t rows;
    enum op_act kind; /* act */
    float number;     /* scale: factor; softcap: cap */
};
struct glu_args {
    struct cpu_view gate, up;
    float *out;
    uint32_t rows;
    const struct op_glu *op;
};
/* add, mul: b is a view of as many columns or of one (a number per row), or b.p is NULL and
 * weight[weight_count] with weight_count 1 or the columns of a. */
struct binary_args {
    struct cpu_view a, b;
    const float *weight;
    uint32_t weight_count;
    float *out;
    uint32_t rows;
};

/* table[rows][n_rot/2] of {cos, sin} * mscale at pos * freqs[i] (op_rope_freqs): made once per step
 * and set of frequencies, read by the ropes of all layers. */
struct rope_table_args {
    float (*table)[2];
    const float *freqs;
    const int32_t *pos;
    uint32_t rows, pairs;
    float mscale;
};
struct rope_args {
    struct cpu_view x; /* columns heads * head_dim */
    float *out;        /* dense */
    const float (*table)[2]; /* of the first row */
    const struct op_rope *op;
    uint32_t rows;
};

/* ---- attention ----
 *
 * A page holds 32 tokens. For each layer: K of every head, then V of every head, all of one type;
 * a head takes kv_head_size bytes:
 *
 *     K [kv_heads] { [dk][32], int8: scale [32] }   tokens fastest: 32 scores at once, no sum
 *     V [kv_heads] { [32][dv], int8: scale [32] }   across lanes
 *
 * int8: scale = f16(max |x| / 127), code = x / scale to the nearest, within 127. A NaN among them
 * makes the scale one. K and q are first multiplied by the Hadamard matrix of the largest power of
 * two n that divides dk, piece by piece: a few large columns, which many models have, are spread
 * over all and no longer set the scale (QuaRot, arXiv 2404.00456). q' . k' = n (q . k), so q' is
 * divided by n, which is exact. Butterflies (a + b, a - b) of distance 1, 2, 4 ... n / 2.
 */
#define CPU_KV_ROTATE_MAX 1024u /* columns of a head with int8 */
static inline size_t cpu_kernels_kv_piece(size_t dk) { return dk & (~dk + 1); }
#define CPU_KV_INT8_MOST (127.0f * 65504.0f) /* larger values are cut: the scale stays finite */
static inline const uint16_t *cpu_kernels_kv_scales(const void *head, uint32_t columns)
{
    const uint8_t *codes = head;
    return (const uint16_t *)(const void *)(codes + (size_t)KV_PAGE_TOKENS * columns);
}

struct kv_write_args {
    struct cpu_view k, v;     /* columns kv_heads * dk, kv_heads * dv */
    uint8_t *const *page;     /* [rows] the layer's part of the row's page */
    const int32_t *pos;       /* [rows]; slot pos % 32 */
    const struct op_kv *op;
    uint32_t rows;
    enum kv_type type;        /* F16, INT8: values are cut to a finite range */
};

/* Reduction over blocks of 256 absolute positions, each from zero, merged in order of position.
 * A state is {m, l, o[dv]}: the largest score, the sum of exp(score - m), the sum of
 * exp(score - m) * V; l = 0: nothing seen, m is -INFINITY then. */
#define CPU_ATTN_BLOCK 256u
#define CPU_ATTN_PAGES (CPU_ATTN_BLOCK / KV_PAGE_TOKENS)
#define CPU_ATTN_ROWS 16u /* query rows of a call at most */
#define CPU_ATTN_SCRATCH (1u << 20) /* bytes per worker, with heads <= 64 and dv <= 1024 */
static inline size_t cpu_kernels_state_width(uint32_t dv) { return 2 + (size_t)dv; }

/* One block for `rows` query rows of one sequence and the `heads` query heads of one K/V head:
 * score = op->scale * (q . K, one fma per column, ascending); softcap; exp; l in 16 lanes (position
 * mod 16) and the fixed tree; o one fma per token, ascending. int8: q . codes is multiplied by K's
 * scale, exp by V's before its fma. A token that a row may not see (op->window, op->mask) counts
 * as exp = 0. */
struct attn_args {
    const float *q;        /* row r, head h, column i: q[r * q_row + h * q_head + i] */
    size_t q_row, q_head;
    uint32_t rows, heads;
    const int32_t *pos;    /* [rows] */
    const void *k[CPU_ATTN_PAGES], *v[CPU_ATTN_PAGES]; /* of this K/V head; NULL: not there */
    enum kv_type type;     /* of k and v */
    uint32_t first;        /* position of the block's first token, a multiple of the block */
    uint32_t tokens;       /* stored in the block, 1 .. 256 */
    const struct op_attn *op;
    float *state;          /* [rows][heads][2 + dv], written */
    void *scratch;
};
/* into = merge(into, from), `count` states each: with m = max(both), a = exp(m_into - m),
 * b = exp(m_from - m): l = l_into * a + l_from * b (one fma), o = fma(o_from, b, o_into * a).
 * A state that saw nothing changes nothing. */
struct attn_merge_args {
    float *into;
    const float *from;
    uint32_t count, dv;
};
/* out[count][dv] = o * (1 / l); out_row floats apart. Zero where nothing was seen. */
struct attn_finish_args {
    const float *state;
    float *out;
    size_t out_row;
    uint32_t count, dv;
};

/* ---- experts, pooling, sampling ---- */

struct route_args {
    struct cpu_view x;  /* columns: experts */
    const float *bias;  /* [experts] or NULL */
    int32_t *ids;       /* [rows][k] in falling order of what chooses; ties: lower id first */
    float *weights;     /* [rows][k] */
    const struct op_route *op;
    uint32_t rows;
};
struct moe_sum_args {
    struct cpu_view y; /* columns k * d */
    struct cpu_view w; /* columns k */
    float *out;        /* [rows][d]: w[0] * y[0], then one fma per rank, ascending */
    uint32_t rows, k;
};
struct pool_args { /* one sequence: its rows are adjacent */
    struct cpu_view x;
    float *out; /* [columns] */
    const struct op_pooling *op;
    uint32_t rows;
};

/* exp_sums: for each block b of 256 of x[count], sums[b] = sum of e[i] in 16 lanes and the fixed
 * tree, e[i] = exp((x[i] - max) * scale); e is written where it is not NULL. */
struct exp_sums_args {
    const float *x;
    float *sums, *e;
    size_t count;
    float max, scale;
};
/* One output row. work holds the logits after adjust and mask; sample and top_k read both. */
struct sample_args {
    const struct cpu_kernels *k; /* for row_max, exp_sums */
    const float *logits;         /* [vocab], raw */
    float *work;                 /* [vocab], written by logits_adjust */
    const uint32_t *mask;        /* [(vocab + 31) / 32] or NULL */
    const struct logit_adjust *adjust; /* those of this row, in order */
    const struct sample_row *row;
    void *scratch; /* cpu_kernels_sample_scratch(vocab) bytes */
    uint32_t vocab, adjust_count;
    int32_t *id;    /* sample */
    float *logprob; /* sample */
    int32_t *top_ids, *raw_ids; /* top_k: [row->k], [row->raw_k] */
    float *top_val, *raw_val;
    float *lse; /* top_k: [2] */
};
static inline size_t cpu_kernels_sample_scratch(uint32_t vocab)
{
    return (size_t)vocab * 16 + 65536;
}

struct cpu_kernels {
    enum cpu_level level;
    bool has_bf16;
    struct cpu_form_ops form[CPU_FORM_COUNT];
    struct cpu_matmul mm[ACT_COUNT][QTYPE_WEIGHT_COUNT];
    void (*rms_norm)(const struct norm_args *a);
    void (*layer_norm)(const struct norm_args *a);
    void (*add_rms_norm)(const struct add_norm_args *a);
    void (*act)(const struct act_args *a);
    void (*scale)(const struct act_args *a);
    void (*softcap)(const struct act_args *a);
    void (*copy)(const struct act_args *a);
    void (*glu)(const struct glu_args *a);
    void (*add)(const struct binary_args *a);
    void (*mul)(const struct binary_args *a);
    void (*rope_table)(const struct rope_table_args *a);
    void (*rope)(const struct rope_args *a);
    void (*kv_write)(const struct kv_write_args *a);
    void (*attn_block)(const struct attn_args *a);
    void (*attn_merge)(const struct attn_merge_args *a);
    void (*attn_finish)(const struct attn_finish_args *a);
    void (*moe_route)(const struct route_args *a);
    void (*moe_sum)(const struct moe_sum_args *a);
    void (*pool)(const struct pool_args *a);
    float (*row_max)(const float *x, size_t count); /* of finite or infinite numbers */
    void (*exp_sums)(const struct exp_sums_args *a);
    void (*logits_adjust)(const struct sample_args *a);
    void (*sample)(const struct sample_args *a);
    void (*top_k)(const struct sample_args *a);
};

/* Fills the whole table with the best there is up to `max`; has_bf16 lets BF16 dots in from VNNI
 * on. The caller has checked that the machine has the level (base/machine). */
void cpu_kernels_init(struct cpu_kernels *k, enum cpu_level max, bool has_bf16);

/* The mode that ACT_AUTO means: a constant table by level and weight type, from docs/NUMBERS.md.
 * Float weight types give ACT_F32. */
enum act cpu_kernels_act(enum cpu_level level, enum qtype t);

/* The steps of the staircase: each overwrites what it improves. ref fills everything. */
void ref_ops_add(struct cpu_kernels *k);
void ref_matmul_add(struct cpu_kernels *k);
void ref_attn_add(struct cpu_kernels *k);
void ref_sample_add(struct cpu_kernels *k);
void ops_avx2_add(struct cpu_kernels *k);
void attn_avx2_add(struct cpu_kernels *k);
void matmul_avx2_add(struct cpu_kernels *k);
void ops_avx512_add(struct cpu_kernels *k);
void attn_avx512_add(struct cpu_kernels *k);
void matmul_avx512_add(struct cpu_kernels *k);
void matmul_vnni_add(struct cpu_kernels *k);

#endif
