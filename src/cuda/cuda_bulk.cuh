/* cuda_bulk - Hopper's bulk copies into shared memory, and the barriers that they complete.
 *
 * Owns:      mbarriers, cp.async.bulk to one block or a pair of blocks of a cluster.
 * Not:       who waits for what, how deep a ring is (gemm.cu, wide.cu, chain.cu).
 * Invariant: a barrier's phase ends when its arrivals and the bytes it expects are there; the one
 *            that waits for a slot's release waits for the arrivals of both blocks of the pair.
 * Thread:    any thread of a block; bulk_meet: all of the cluster.
 * Limits:    addresses and sizes are multiples of 16 bytes.
 */
#ifndef SHOAL_CUDA_CUDA_BULK_CUH
#define SHOAL_CUDA_CUDA_BULK_CUH

#include "cuda/cuda_args.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

static __device__ __forceinline__ uint32_t bulk_shared(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void bulk_init(uint32_t barrier, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

static __device__ __forceinline__ void bulk_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
}

/* In both blocks of the pair, or in a block that is alone. What was read is in registers: no fence
 * between blocks is needed. */
template <uint32_t BLOCKS = CUDA_GEMM_PAIR>
static __device__ __forceinline__ void bulk_arrive(uint32_t barrier)
{
    if constexpr (BLOCKS == 1) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
    } else {
#pragma unroll
        for (uint32_t rank = 0; rank < BLOCKS; rank++)
            asm volatile("{\n.reg .b32 there;\n"
                         "mapa.shared::cluster.u32 there, %0, %1;\n"
                         "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
                         "r"(rank)
                         : "memory");
    }
}

static __device__ __forceinline__ uint32_t bulk_rank()
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

static __device__ __forceinline__ void bulk_meet()
{
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

static __device__ __forceinline__ void bulk_wait(uint32_t barrier, uint32_t phase)
{
    asm volatile("{\n.reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra done;\nbra again;\ndone:\n}" ::"r"(barrier),
                 "r"(phase)
                 : "memory");
}

static __device__ __forceinline__ void bulk_copy(uint32_t to, const void *from, uint32_t bytes,
                                                 uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Into both blocks of the pair, at the same places. */
static __device__ __forceinline__ void bulk_copy_both(uint32_t to, const void *from, uint32_t bytes,
                                                      uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "h"((uint16_t)((1 << CUDA_GEMM_PAIR) - 1))
                 : "memory");
}

#endif
#endif
