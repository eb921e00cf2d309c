/* cuda_args - the arguments of kernels, shared by the host (C) and the device (CUDA C++).
 *
 * Owns:      argument structs, packed weight layout, limits of launches.
 * Not:       what kernels compute (.cu files), when they run (cuda_run).
 * Invariant: plain data with the same layout on both sides; device addresses are 64-bit numbers.
 *            A launch gets exactly one of these structs by value.
 * Thread:    any; plain data.
 * Limits:    a struct is at most 4 KiB, the limit of kernel parameters.
 *
 * Packed weights: tiles of 16 rows, each a run of records of 256 inputs (the last ones padded with
 * zero scales). A record's quants lie in the order in which the lanes of a warp feed them to
 * mma.m16n8k32 (quantised types) or m16n8k8 (F32); its scales follow. F16 and BF16 lie in lines of
 * 64 inputs (dequant_float_index).
 *
 *     [tile 0: record 0 | record 1 | ...][tile 1: ...]     record: quants | high bits | scales
 *
 * Many columns are read from an image: tiles of 128 columns by 256 inputs, laid out as the tensor
 * cores read them from shared memory (common_image writes it).
 *
 *     head: f32 scale per column; types with a scale per 32: [8][128], at 4096 scale * sum of codes
 *           K types: at 4096 f16 [128][16], sums per 32 without their last bit, then that bit
 *     4 steps: f16 [128][64] codes; of form bf16 the inputs, no head
 */
#ifndef SHOAL_CUDA_CUDA_ARGS_H
#define SHOAL_CUDA_CUDA_ARGS_H

#include <stdint.h>

#define CUDA_TILE_ROWS 16
#define CUDA_RECORD_K 256
#define CUDA_WARPS 8 /* warps of a matmul block: each takes every 8th record of a tile */
#define CUDA_RING_SIZE (CUDA_WARPS * 10240) /* shared memory of a matmul block */
#define CUDA_ONE_RING_SIZE (CUDA_WARPS * 13312) /* of one.cu */
#define CUDA_SEGMENTS_MAX 4 /* weights that one launch multiplies with the same input */
#define CUDA_GEMM_COLUMNS 128 /* of a tile of gemm.cu, which also has 8 tiles of rows */
#define CUDA_GEMM_TILES 8
#define CUDA_GEMM_THREADS 384
#define CUDA_GEMM_PAIR 2 /* blocks side by side that share their inputs */
#define CUDA_GEMM_SLOTS 3       /* records of a tile, and heads, in shared memory */
#define CUDA_GEMM_EXCHANGE 8192 /* between the halves of a block: glu */
/* Steps of an image in shared memory beside that, and all of it: a block can have 227 KiB. */
#define CUDA_GEMM_REST(record)                                                                     \
    (CUDA_GEMM_EXCHANGE + 256 + CUDA_GEMM_SLOTS * (CUDA_IMAGE_HEAD + CUDA_GEMM_TILES * (record)))
#define CUDA_GEMM_STAGES(record) ((232448 - CUDA_GEMM_REST(record)) / CUDA_IMAGE_STEP)
#define CUDA_GEMM_SIZE(record)                                                                     \
    (CUDA_GEMM_STAGES(record) * CUDA_IMAGE_STEP + CUDA_GEMM_REST(record))
#define CUDA_GEMM_FEW 32 /* columns of a narrow tile: half a multiprocessor a block */
#define CUDA_GEMM_FEW_MAX 64 /* columns for which such tiles are faster than wide ones */
#define CUDA_GEMM_FEW_STAGES 6
#define CUDA_GEMM_FEW_SIZE(record)                                                                 \
    (CUDA_GEMM_FEW_STAGES * CUDA_GEMM_FEW * 128 + CUDA_GEMM_REST(record))
/* wide.cu: places of a ring, then room between the warps of a glu. */
#define CUDA_WIDE_SPARE(columns) ((columns) * 128)
#define CUDA_WIDE_SIZE 232448 /* of a block that has a multiprocessor for itself */
#define CUDA_WIDE_DEPTH_MAX 16
#define CUDA_WIDE_THREADS 384
#define CUDA_WIDE_SMALL_THREADS 192
#define CUDA_CHAIN_PIECE 2048 /* chain.cu: 64 inputs of a tile */
#define CUDA_CHAIN_PIECES 46  /* of a block's warps together; two blocks leave 60 KiB of L1 */
#define CUDA_CHAIN_DEPTH_MAX 32
#define CUDA_CHAIN_SIZE (CUDA_CHAIN_PIECES * (CUDA_CHAIN_PIECE + 8))
#define CUDA_IMAGE_HEAD 8192  /* of a record of 128 columns: scales, sums; then 4 steps */
#define CUDA_IMAGE_STEP 16384 /* 64 inputs of 128 columns as f16 */
#define CUDA_IMAGE_SIZE (CUDA_IMAGE_HEAD + 4 * CUDA_IMAGE_STEP)
#define CUDA_ATTN_BLOCK 256 /* positions that attn.cu reduces together, whatever the batch */
#define CUDA_ATTEND_BLOCK 128 /* attend.cu */
#define CUDA_KV_COLUMNS_MAX 512 /* of a head, int8 */
#define CUDA_ATTEND_ROWS 128  /* (row, head of a group) of a block of many rows */

/* Formats on the device. The order is used by the kernels' switch. */
enum cuda_format {
    CUDA_FORMAT_F32,
    CUDA_FORMAT_F16,
    CUDA_FORMAT_BF16,
    CUDA_FORMAT_Q4_0,
    CUDA_FORMAT_Q4_1,
    CUDA_FORMAT_Q5_0,
    CUDA_FORMAT_Q5_1,
    CUDA_FORMAT_Q8_0,
    CUDA_FORMAT_MXFP4, /* codes as 2 * value + 12 */
    CUDA_FORMAT_Q4_K,
    CUDA_FORMAT_Q5_K,
    CUDA_FORMAT_Q6_K,
    CUDA_FORMAT_COUNT
};

/* Forms of a matmul's input: f32 as it is, int8 with a scale per 32 or 256, or bf16. */
enum cuda_form { CUDA_FORM_F32, CUDA_FORM_INT8_32, CUDA_FORM_INT8_256, CUDA_FORM_BF16 };
#define CUDA_FORM_IMAGE 16u /* added to a form that is not f32: as an image */

typedef uint64_t cuda_addr;

/* Columns that an op reads: element (row, i) lies at p[row * stride + first + i]. */
struct cuda_view {
    cuda_addr p;
    uint32_t stride, first, width, group_width, group_stride; /* i / group_width * group_stride */
};

struct cuda_pack_args { /* file layout -> packed, rows row_first.. of one matrix */
    cuda_addr dst, src;
    uint64_t src_row_size;
    uint32_t format, rows, cols, row_first, row_count;
};

/* Codes of a record lie as lanes feed them: [k / 4 % 4][k / 32][k / 16 % 2][k % 4]; 64 bf16 inputs:
 * [k / 2 % 4][k / 16][k / 8 % 2][k % 2]. */
struct cuda_act_args { /* f32 rows -> the other forms */
    struct cuda_view x;
    cuda_addr q, d, s; /* i8, bf16 [rows][kp]; f32 [rows][kp/32, /256]; i16 [rows][kp/32] sums */
    uint32_t rows, k, kp, form;
    cuda_addr image;    /* this instead of q, d, s; 0: not */
    uint32_t row_first; /* of the image */
};

struct cuda_segment {
    cuda_addr w, out, bias; /* out f32 [rows][out_stride]; bias f32 or 0 */
    uint64_t mat_size;      /* bytes of one packed matrix: experts */
    uint32_t format, rows, tiles, out_stride;
    float scale;                   /* of the product, 1: none */
    cuda_addr scales, bias_stride; /* per expert: f32 [E] or 0; elements between biases */
};

struct cuda_matmul_args {
    struct cuda_segment seg[CUDA_SEGMENTS_MAX];
    cuda_addr x, q, d, s, image; /* the input in its form */
    uint32_t x_stride, x_first;
    uint32_t segments, columns, k, kp;
    /* experts: columns are (row, rank) pairs sorted by expert; 0: columns as they come */
    cuda_addr work; /* i32: count, then for each chunk expert, first column, columns (moe_sort) */
    cuda_addr pair; /* i32 [columns]: which pair stands there */
    uint32_t ranks, x_per_pair;
    /* 1, 2, 4 or 8. one.cu: warps that share a tile's classes; gemm.cu: blocks that do, and then
     * leave f32 [class][column][row of all segments] in sums for gemm_join */
    uint32_t parts;
    uint32_t ring; /* places of a ring: chain.cu's of a warp, wide.cu's of a block */
    cuda_addr sums;
    /* glu: segment 0 is the gate, 1 the up projection; out of segment 0 */
    uint32_t is_glu, glu_kind;
    float alpha, up_add, clamp_gate, clamp_up;
    struct cuda_act_args act; /* of BF16's glu: the result as bf16 instead of out; q 0: not */
};

struct cuda_embed_args {
    cuda_addr w, ids, out;
    uint32_t format, cols, kp, rows, vocab;
    float scale;
};

struct cuda_norm_args {
    struct cuda_view x, b; /* b: added first (add_rms_norm), p 0: none */
    cuda_addr w, bias, out, sum;
    uint32_t rows, groups, width; /* width of a group */
    float eps;
    uint32_t is_layer_norm;
    struct cuda_act_args act; /* the result in an int8 form too; q 0: not. groups is 1 then */
};

struct cuda_map_args { /* element-wise: act, glu, add, mul, scale, softcap, rows */
    struct cuda_view a, b;
    cuda_addr out, rows_of; /* rows_of: out row r reads input row rows_of[r] */
    uint32_t rows, width, kind, act, b_width, b_per_row;
    float x, alpha, up_add, clamp_gate, clamp_up;
};
enum cuda_map {
    CUDA_MAP_COPY,
    CUDA_MAP_ACT,
    CUDA_MAP_GLU,
    CUDA_MAP_ADD,
    CUDA_MAP_MUL,
    CUDA_MAP_SCALE,
    CUDA_MAP_SOFTCAP
};

struct cuda_rope_args {
    struct cuda_view x;
    cuda_addr out, freqs, pos, norm; /* norm: w of a norm per head before, or 0 */
    uint32_t rows, heads, head_dim, n_rot, first, kind;
    float mscale, eps;
};

/* Where a layer's pages are: side by side, layer after layer, so that a layer's attention stays
 * within few pages of the GPU's own memory translation. */
struct cuda_kv_args {
    cuda_addr pool;  /* K of page 0, then its V */
    cuda_addr pages; /* u32 [S][pages_max] */
    uint64_t page_size, v_offset;
    uint32_t pages_max, kv_heads, dk, dv;
    uint32_t k_size, v_size; /* bytes of a head: 32 tokens f16, or int8 and then 32 f16 scales */
    uint32_t is_int8;
};

struct cuda_turn_args { /* queries as K of int8 lies in pages: times a Hadamard matrix */
    struct cuda_view x;
    cuda_addr out; /* f32 [rows][heads * dk] */
    uint32_t rows, heads, dk;
};

struct cuda_kv_write_args {
    struct cuda_kv_args kv;
    struct cuda_view k, v;
    cuda_addr pos, seq;
    uint32_t rows;
};

struct cuda_rope_qk_args {      /* norm and RoPE of q and k, k and v into their page */
    struct cuda_rope_args q, k; /* k.out: not used */
    struct cuda_kv_write_args write;
    uint32_t turns_q; /* q as ops_turn would leave it */
};

struct cuda_attn_args {
    struct cuda_kv_args kv;
    struct cuda_view q;
    cuda_addr out, sinks, pos, seq, len;
    cuda_addr part; /* f32 [rows][heads][blocks][dv + 2]: sum, then max and weight */
    uint32_t rows, heads, window, block, blocks, is_full; /* blocks of `block` positions */
    float scale, softcap;
    struct cuda_act_args act; /* attn_merge: the result in an int8 form too; q 0: not */
};

struct cuda_route_args {
    struct cuda_view logits;
    cuda_addr bias, ids, w;
    uint32_t rows, experts, k, gate, groups, groups_used, norm;
    float scale;
    cuda_addr work, pair; /* of one row: what moe_sort would make; 0: not */
};

struct cuda_sort_args { /* (row, rank) pairs by expert */
    cuda_addr ids, work, pair;
    uint32_t pairs, experts, wide; /* wide: columns of a chunk at most */
};

struct cuda_moe_sum_args {
    cuda_addr y, w, out;
    uint32_t rows, k, width, y_stride;
};

struct cuda_pool_args {
    struct cuda_view x;
    cuda_addr seq, out;
    uint32_t rows, seqs, width, kind, l2;
};

#define CUDA_SAMPLE_CHUNK 4096 /* ids that one block of sample_best and sample_sums reads */

struct cuda_sample_row { /* as struct sample_row, device side */
    uint64_t seed;
    uint32_t position, draw;
    float temperature, typical_p, top_p, min_p;
    uint32_t top_k, k, raw_k, pad;
};

struct cuda_adjust {
    uint32_t row;
    int32_t id;
    float factor, add;
};

struct cuda_sample_args {
    cuda_addr logits, adjusted;   /* f32 [outs][vocab]; adjusted: scratch of the same shape */
    cuda_addr rows, adjust, mask; /* adjust: u32 count, at 16 the rows */
    cuda_addr ids, logprob, top_ids, top_val, raw_ids, raw_val, lse;
    cuda_addr best, sums; /* sample_best: f32 and i32 per chunk; sample_sums: f32 per 256 ids */
    uint32_t outs, vocab, top_max;
};

#endif
