/* cuda_common - what every kernel file needs: views, ordering between kernels, sums of a block.
 *
 * Owns:      device helpers, static inline.
 * Not:       packed weights (cuda_dequant.cuh), kernels (.cu files).
 * Invariant: every kernel calls common_wait before it touches memory that an earlier kernel writes,
 *            so that launches may overlap (programmatic dependent launch) and order still holds.
 *            Sums run in one fixed order, whatever the number of rows of the step.
 * Thread:    device threads; what a whole block must call says so.
 */
#ifndef SHOAL_CUDA_CUDA_COMMON_CUH
#define SHOAL_CUDA_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "cuda/cuda_args.h"

#define KERNEL extern "C" __global__ void
#define COMMON_INFINITY __int_as_float(0x7f800000)
#define COMMON_LOG2_E 1.44269504088896340736f

static __device__ __forceinline__ void common_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The next kernel's blocks may be placed as soon as ours leave room. */
static __device__ __forceinline__ void common_release()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <typename T> static __device__ __forceinline__ T *common_ptr(cuda_addr a)
{
    return reinterpret_cast<T *>(a);
}

static __device__ __forceinline__ float common_view(const cuda_view &v, uint32_t row, uint32_t i)
{
    uint32_t column = i;
    if (v.group_width != v.group_stride)
        column = i / v.group_width * v.group_stride + i % v.group_width;
    return common_ptr<const float>(v.p)[(size_t)row * v.stride + v.first + column];
}

static __device__ __forceinline__ float common_half(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}

/* Sum over the block's threads in a fixed tree; every thread gets it. `room`: 32 floats. */
static __device__ __forceinline__ float common_sum(float x, float *room)
{
    for (int d = 16; d; d >>= 1)
        x = __fadd_rn(x, __shfl_xor_sync(~0u, x, d));
    uint32_t warps = (blockDim.x + 31) / 32;
    __syncthreads();
    if ((threadIdx.x & 31) == 0)
        room[threadIdx.x / 32] = x;
    __syncthreads();
    float total = 0;
    for (uint32_t i = 0; i < warps; i++)
        total = __fadd_rn(total, room[i]);
    return total;
}

static __device__ __forceinline__ float common_max(float x, float *room)
{
    for (int d = 16; d; d >>= 1)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
    uint32_t warps = (blockDim.x + 31) / 32;
    __syncthreads();
    if ((threadIdx.x & 31) == 0)
        room[threadIdx.x / 32] = x;
    __syncthreads();
    float most = room[0];
    for (uint32_t i = 1; i < warps; i++)
        most = fmaxf(most, room[i]);
    return most;
}

/* ---- attention: the same in all its kernels ---- */

/* Positions that a row sees: [from, to). */
static __device__ __forceinline__ void common_range(const cuda_attn_args &a, uint32_t row,
                                                    uint32_t seq, uint32_t *from, uint32_t *to)
{
    const uint32_t pos = (uint32_t)common_ptr<const int32_t>(a.pos)[row];
    *to = a.is_full ? common_ptr<const uint32_t>(a.len)[seq] : pos + 1;
    *from = a.window && pos + 1 > a.window ? pos + 1 - a.window : 0;
}

/* 2^x; what is below 2^-126 becomes 0. */
static __device__ __forceinline__ float common_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Sums of earlier and of later positions are joined at their common maximum, a power of two:
 * sum = earlier * a + later * b. A side that sees nothing has the maximum -inf and factor 0. */
static __device__ __forceinline__ void common_join_factors(float earlier, float later, float *a,
                                                           float *b)
{
    const float most = fmaxf(earlier, later);
    *a = earlier == -COMMON_INFINITY ? 0.0f : common_exp2(__fsub_rn(earlier, most));
    *b = later == -COMMON_INFINITY ? 0.0f : common_exp2(__fsub_rn(later, most));
}

static __device__ __forceinline__ float common_join(float earlier, float later, float a, float b)
{
    return fmaf(later, b, __fmul_rn(earlier, a));
}

/* Activations by enum op_act (tensor/op.h): silu gelu_tanh gelu_erf relu sigmoid tanh softplus
 * exp. */
static __device__ __forceinline__ float common_act(uint32_t kind, float x)
{
    switch (kind) {
    case 0:
        return x / (1.0f + expf(-x));
    case 1: {
        float inner = 0.79788456080286535588f * x * fmaf(0.044715f * x, x, 1.0f);
        return 0.5f * x * (1.0f + tanhf(inner));
    }
    case 2:
        return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
    case 3:
        return fmaxf(x, 0.0f);
    case 4:
        return 1.0f / (1.0f + expf(-x));
    case 5:
        return tanhf(x);
    case 6:
        return x > 20.0f ? x : log1pf(expf(x));
    default:
        return expf(x);
    }
}

struct common_glu { /* parameters of struct op_glu */
    uint32_t kind;
    float alpha, up_add, clamp_gate, clamp_up;
};

static __device__ __forceinline__ float common_glu_of(const common_glu &a, float g, float u)
{
    if (a.clamp_gate != 0)
        g = fminf(g, a.clamp_gate);
    if (a.clamp_up != 0)
        u = fminf(fmaxf(u, -a.clamp_up), a.clamp_up);
    float y = a.kind == 0 ? g / (1.0f + expf(-a.alpha * g)) : common_act(a.kind, g);
    return y * (u + a.up_add);
}

/* ---- images (cuda_args.h) ---- */

static __device__ __forceinline__ uint8_t *common_image(const cuda_act_args &a, uint32_t row,
                                                        uint32_t k)
{
    return common_ptr<uint8_t>(a.image) +
           ((size_t)(row / CUDA_GEMM_COLUMNS) * (a.kp / CUDA_RECORD_K) + k / CUDA_RECORD_K) *
               CUDA_IMAGE_SIZE;
}

/* Where codes k, k + 1 (k even) stand. The tensor cores swizzle: 16-byte pieces of a line of 128
 * are exchanged by its number. A lane of gemm.cu holds inputs 4t .. 4t+3 of sixteen where the
 * instruction wants 2t, 2t+1, 2t+8, 2t+9, so inputs are stored in that order. */
static __device__ __forceinline__ __half2 *common_image_codes(uint8_t *image, uint32_t row,
                                                              uint32_t k)
{
    const uint32_t line = row % CUDA_GEMM_COLUMNS, pair = k / 2 % 8;
    const uint32_t piece = k / 16 % 4 * 2 + (pair & 1);
    return (__half2 *)(image + CUDA_IMAGE_HEAD + k / 64 % 4 * CUDA_IMAGE_STEP + line * 128 +
                       (piece ^ (line & 7)) * 16 + (pair >> 1) * 4);
}

/* Scale of a block of 32 or 256 at k, and the sum of 32 codes. */
static __device__ __forceinline__ void common_image_scale(const cuda_act_args &a, uint8_t *image,
                                                          uint32_t row, uint32_t k, float d,
                                                          int sum)
{
    const uint32_t line = row % CUDA_GEMM_COLUMNS, sub = k / 32 % 8;
    float *head = (float *)image;
    if (a.form == CUDA_FORM_INT8_32) {
        head[sub * CUDA_GEMM_COLUMNS + line] = d;
        head[1024 + sub * CUDA_GEMM_COLUMNS + line] = __fmul_rn(d, (float)sum);
        return;
    }
    if (sub == 0)
        head[line] = d;
    __half *sums = (__half *)(image + 4096 + line * 32);
    const uint32_t piece = line >> 2 & 1;
    sums[piece * 8 + sub] = __int2half_rn(sum & ~1);
    sums[(piece ^ 1) * 8 + sub] = __int2half_rn(sum & 1);
}

/* Where a row keeps inputs k, k + 1 (k even) of form bf16. */
static __device__ __forceinline__ __nv_bfloat162 *common_bf16_at(const cuda_act_args &a,
                                                                 uint32_t row, uint32_t k)
{
    if (a.image) {
        const uint32_t line = (row + a.row_first) % CUDA_GEMM_COLUMNS;
        return (__nv_bfloat162 *)(common_image(a, row + a.row_first, k) + CUDA_IMAGE_HEAD +
                                  k / 64 % 4 * CUDA_IMAGE_STEP + line * 128 +
                                  ((k / 8 ^ line) & 7) * 16 + k % 8 * 2);
    }
    const uint32_t at = k / 2 % 4 * 16 + k / 16 % 4 * 4 + k / 8 % 2 * 2;
    return (__nv_bfloat162 *)(common_ptr<__nv_bfloat16>(a.q) + (size_t)row * a.kp + (k & ~63u) +
                              at);
}

static __device__ __forceinline__ void common_bf16_put(const cuda_act_args &a, uint32_t row,
                                                       uint32_t k, float x)
{
    ((__nv_bfloat16 *)common_bf16_at(a, row, k & ~1u))[k & 1] = __float2bfloat16_rn(x);
}

/* Where code k of a row lies (cuda_args.h). */
static __device__ __forceinline__ uint32_t common_place(uint32_t k)
{
    return (k & ~255u) | (k >> 2 & 3) << 6 | (k >> 5 & 7) << 3 | (k >> 4 & 1) << 2 | (k & 3);
}

/* Value x of column k, a thread each in groups of 256 consecutive columns, into a form that is not
 * f32. bf16: rounded to even. int8: q = rint(x * 127 / amax), d = amax / 127 per block of 32 or
 * 256; amax is taken on the bits, so that a NaN stays one in d. All threads of the block call it.
 * most: a word per warp. */
static __device__ __forceinline__ void common_quantise(const cuda_act_args &a, uint32_t row,
                                                       uint32_t k, float x, uint32_t *most)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    if (a.form == CUDA_FORM_BF16) {
        const float next = __shfl_down_sync(~0u, x, 1);
        if (k < a.kp && k % 2 == 0)
            *common_bf16_at(a, row, k) = __floats2bfloat162_rn(x, next);
        return;
    }
    uint32_t bits = __reduce_max_sync(~0u, __float_as_uint(x) & 0x7fffffffu);
    if (a.form == CUDA_FORM_INT8_256) {
        __syncthreads();
        if (lane == 0)
            most[warp] = bits;
        __syncthreads();
        for (uint32_t w = warp / 8 * 8; w < warp / 8 * 8 + 8; w++)
            bits = max(bits, most[w]);
    }
    float amax = __uint_as_float(bits);
    bool is_zero = bits < 0x0d800000u; /* 2^-100 */
    float inverse = is_zero ? 0.0f : __fdiv_rn(127.0f, amax);
    int code = max(-127, min(127, __float2int_rn(__fmul_rn(x, inverse))));
    int sum = __reduce_add_sync(~0u, code);
    if (k >= a.kp)
        return;
    const float d = is_zero ? 0.0f : __fdiv_rn(amax, 127.0f);
    if (a.image) {
        row += a.row_first;
        uint8_t *image = common_image(a, row, k);
        ((__half *)common_image_codes(image, row, k & ~1u))[k & 1] = __int2half_rn(code);
        if (lane == 0)
            common_image_scale(a, image, row, k, d, sum);
        return;
    }
    const size_t at = (size_t)row * a.kp + k;
    common_ptr<int8_t>(a.q)[(size_t)row * a.kp + common_place(k)] = (int8_t)code;
    if (lane == 0) {
        common_ptr<int16_t>(a.s)[at / 32] = (int16_t)sum;
        if (a.form == CUDA_FORM_INT8_32)
            common_ptr<float>(a.d)[at / 32] = d;
        else if (k % 256 == 0)
            common_ptr<float>(a.d)[at / 256] = d;
    }
}

#endif
