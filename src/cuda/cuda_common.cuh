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

#include <cuda_fp16.h>
#include <stdint.h>

#include "cuda/cuda_args.h"

#define KERNEL extern "C" __global__ void
#define COMMON_INFINITY __int_as_float(0x7f800000)

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

/* Value x of column k, a thread each in groups of 256 consecutive columns, into the int8 forms:
 * q = rint(x * 127 / amax), d = amax / 127 per block of 32 or 256; amax is taken on the bits, so
 * that a NaN stays one in d. All threads of the block call it. most: a word per warp. */
static __device__ __forceinline__ void common_quantise(const cuda_act_args &a, uint32_t row,
                                                       uint32_t k, float x, uint32_t *most)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31;
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
    const size_t at = (size_t)row * a.kp + k;
    common_ptr<int8_t>(a.q)[at] = (int8_t)code;
    if (lane == 0) {
        float d = is_zero ? 0.0f : __fdiv_rn(amax, 127.0f);
        common_ptr<int16_t>(a.s)[at / 32] = (int16_t)sum;
        if (a.form == CUDA_FORM_INT8_32)
            common_ptr<float>(a.d)[at / 32] = d;
        else if (k % 256 == 0)
            common_ptr<float>(a.d)[at / 256] = d;
    }
}

#endif
