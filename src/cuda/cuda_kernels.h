/* cuda_kernels - the kernels of the fatbin by name, and how one is launched.
 *
 * Owns:      the list of kernels, the loaded modules.
 * Not:       what they compute (.cu files), arguments (cuda_args.h), when they run (cuda_step).
 * Invariant: each kernel takes one struct of cuda_args.h. Launches are programmatic dependent
 *            launches: a kernel may be placed early and waits itself (cuda_common.cuh).
 * Thread:    engine thread.
 */
#ifndef SHOAL_CUDA_CUDA_KERNELS_H
#define SHOAL_CUDA_CUDA_KERNELS_H

#include "cuda/cuda_args.h"
#include "cuda/cuda_driver.h"

#define CUDA_COLUMN_STEPS 4 /* matmul kernels per format, by columns at once: */
extern const uint32_t cuda_kernels_columns[CUDA_COLUMN_STEPS]; /* 1, 8, 16, 32 */

#define CUDA_MATMULS(X)                                                                            \
    X(F32, stream_float, matmul_f32)                                                               \
    X(F16, stream_float, matmul_f16) X(BF16, chain, chain)                                         \
        X(Q4_0, stream_block, matmul_q4_0) X(Q4_1, stream_block, matmul_q4_1)                      \
            X(Q5_0, stream_block, matmul_q5_0) X(Q5_1, stream_block, matmul_q5_1)                  \
                X(Q8_0, stream_block, matmul_q8_0) X(MXFP4, stream_block, matmul_mxfp4)            \
                    X(Q4_K, stream_k, matmul_q4_k) X(Q5_K, stream_k, matmul_q5_k)                  \
                        X(Q6_K, stream_k, matmul_q6_k)
#define CUDA_WIDES(X)                                                                              \
    X(wide, wide_256) X(wide, wide_256_glu) X(wide, wide_128) X(wide, wide_128_glu)                \
    X(wide, wide_64) X(wide, wide_64_glu) X(wide, wide_32) X(wide, wide_32_glu) X(wide, wide_8)    \
    X(wide, wide_8_glu)
#define CUDA_KERNELS(X)                                                                            \
    X(pack, pack_weight)                                                                           \
    X(pack, pack_act) X(pack, pack_embed) X(ops, ops_norm) X(ops, ops_norm4)                       \
        X(ops, ops_act4) X(ops, ops_map)                                                           \
        X(ops, ops_rope) X(ops, ops_kv_write) X(ops, ops_rope_qk) X(ops, ops_pool)                 \
            X(attn, attn_part_1) X(attn, attn_part_2) X(attn, attn_part_4) X(attn, attn_part_8)    \
                X(attn, attn_part_16) X(attn, attn_part_int8_1) X(attn, attn_part_int8_2)          \
                X(attn, attn_part_int8_4) X(attn, attn_part_int8_8) X(attn, attn_part_int8_16)     \
                X(ops, ops_kv_write_int8) X(ops, ops_rope_qk_int8) X(ops, ops_turn)                \
                X(attn, attn_merge) X(moe, moe_route) X(moe, moe_sort)       \
                    X(attend, attend_part_64) X(attend, attend_part_128)                           \
                    X(attend, attend_rows_64) X(attend, attend_rows_128)                           \
                    X(attend, attend_part_int8_64) X(attend, attend_part_int8_128)                 \
                    X(attend, attend_rows_int8_64) X(attend, attend_rows_int8_128)                 \
                    X(moe, moe_sum) X(sampling, sample_row)                                        \
                    X(sampling, sample_best_part) X(sampling, sample_sums_part)                    \
                    X(gemm, gemm_join)                                                             \
                        CUDA_WIDES(X)
/* One .cu file each. */
#define CUDA_UNITS(X)                                                                              \
    X(stream_float) X(stream_block) X(stream_k) X(one) X(gemm) X(chain) X(wide) X(pack) X(ops)     \
    X(attn) X(attend) X(moe) X(sampling)
enum cuda_unit {
#define X(unit) CUDA_UNIT_##unit,
    CUDA_UNITS(X)
#undef X
        CUDA_UNIT_COUNT
};

struct cuda_kernels {
    const struct cuda_driver *driver;
    bool has_gemm;
    cuda_module modules[CUDA_UNIT_COUNT];
    cuda_function matmul[CUDA_FORMAT_COUNT][CUDA_COLUMN_STEPS];
    cuda_function gemm[CUDA_FORMAT_COUNT][2]; /* NULL: floats; [1]: narrow tiles */
#define X(unit, name) cuda_function name;
    CUDA_KERNELS(X)
#undef X
};

/* Bytes of a packed record: dequant_layout_of in cuda_dequant.cuh. */
uint32_t cuda_kernels_record_size(uint32_t format);

/* Columns of a tile of gemm.cu when so many meet a weight of the format, and the shared memory of
 * its kernel. */
uint32_t cuda_kernels_gemm_columns(uint32_t columns);
uint32_t cuda_kernels_gemm_size(uint32_t format, uint32_t columns);
/* Shared memory of attend.cu's kernels for heads of d columns. */
uint32_t cuda_kernels_attend_part_size(uint32_t d, bool is_int8);
uint32_t cuda_kernels_attend_rows_size(uint32_t d);

/* Loads the embedded fatbins into the current context. ERR_DEVICE: built without nvcc, or no code
 * for this device. has_gemm: it is a Hopper, whose instructions gemm.cu, wide.cu use. */
bool cuda_kernels_open(struct cuda_kernels *k, const struct cuda_driver *d, bool has_gemm,
                       struct err *e) BASE_USE_RESULT;
void cuda_kernels_close(struct cuda_kernels *k);

struct cuda_grid {
    uint32_t x, y, z, threads, shared;
};
/* args: the kernel's struct, copied at once. */
bool cuda_kernels_launch(const struct cuda_kernels *k, cuda_function f, struct cuda_grid g,
                         const void *args, cuda_stream stream, struct err *e) BASE_USE_RESULT;

/* In cuda_fatbin.c: the code of all architectures, a fatbin per unit in the order of CUDA_UNITS,
 * then a row of NULL; only that when built without nvcc. */
struct cuda_fatbin {
    const char *unit;
    const void *image;
};
extern const struct cuda_fatbin cuda_fatbin_units[];
extern const char cuda_fatbin_archs[]; /* "sm_80 sm_90a compute_90", or "" */

#endif
