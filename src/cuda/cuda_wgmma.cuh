/* cuda_wgmma - Hopper's warpgroup tensor cores: ordering, and how they find tiles in shared memory.
 *
 * Owns:      the calls around wgmma.mma_async that all its users share.
 * Not:       the products themselves: gemm.cu, attend.cu have those of their shapes.
 * Invariant: a warpgroup's registers in flight are not touched between commit and wait. What
 *            ordinary stores or cp.async wrote is fenced (wgmma_fence_shared) before a barrier.
 * Thread:    all 128 threads of a warpgroup.
 */
#ifndef SHOAL_CUDA_CUDA_WGMMA_CUH
#define SHOAL_CUDA_CUDA_WGMMA_CUH

#include <stdint.h>

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

static __device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int LEFT = 0> static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

static __device__ __forceinline__ void wgmma_fence_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Lines of 64 two-byte inputs, 128 bytes each, 16-byte pieces swizzled by the line's number. */
static __device__ __forceinline__ uint64_t wgmma_wide(uint32_t address)
{
    return (uint64_t)(address >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

/* The same tile read across: its lines are the inputs, `apart` bytes on the next 64 columns. */
static __device__ __forceinline__ uint64_t wgmma_across(uint32_t address, uint32_t apart)
{
    return (uint64_t)(address >> 4) | (uint64_t)(apart >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

/* Lines of 16 inputs, 32 bytes each. */
static __device__ __forceinline__ uint64_t wgmma_narrow(uint32_t address)
{
    return (uint64_t)(address >> 4) | 1ull << 16 | 16ull << 32 | 3ull << 62;
}

#endif
#endif
