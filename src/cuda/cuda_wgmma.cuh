/* cuda_wgmma - Hopper's warpgroup tensor cores: products, ordering, where tiles lie.
 *
 * Owns:      wgmma.mma_async in the shapes that gemm.cu, wide.cu and attend.cu use, the calls
 *            around it, the descriptors of tiles in shared memory.
 * Not:       which tiles meet (those files), how they come to shared memory (cuda_bulk).
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

/* Eights of lines that are `apart` bytes apart. */
static __device__ __forceinline__ uint64_t wgmma_apart(uint32_t address, uint32_t apart)
{
    return (uint64_t)(address >> 4) | 1ull << 16 | (uint64_t)(apart >> 4) << 32 | 1ull << 62;
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

/* ---- products ---- */

/* The first 16, 32, 64, 128 operands of a product: its sums. */
#define WGMMA_LIST_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_LIST_32                                                                              \
    WGMMA_LIST_16                                                                                  \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_LIST_64                                                                              \
    WGMMA_LIST_32                                                                                  \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"             \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_LIST_128                                                                             \
    WGMMA_LIST_64                                                                                  \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"             \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"             \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109"             \
    ", %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123"         \
    ", %124, %125, %126, %127"
#define WGMMA_SUMS_4(c, i)                                                                         \
    "+f"((c)[i]), "+f"((c)[i + 1]), "+f"((c)[i + 2]), "+f"((c)[i + 3])
#define WGMMA_SUMS_16(c, i)                                                                        \
    WGMMA_SUMS_4(c, i), WGMMA_SUMS_4(c, i + 4), WGMMA_SUMS_4(c, i + 8), WGMMA_SUMS_4(c, i + 12)
#define WGMMA_SUMS_32(c) WGMMA_SUMS_16(c, 0), WGMMA_SUMS_16(c, 16)
#define WGMMA_SUMS_64(c) WGMMA_SUMS_32(c), WGMMA_SUMS_16(c, 32), WGMMA_SUMS_16(c, 48)
#define WGMMA_SUMS_128(c)                                                                          \
    WGMMA_SUMS_64(c), WGMMA_SUMS_16(c, 64), WGMMA_SUMS_16(c, 80), WGMMA_SUMS_16(c, 96),            \
        WGMMA_SUMS_16(c, 112)

/* c = (keep ? c : 0) + a * b: 64 rows by twice as many columns as c is long, over 16 inputs.
 * a: a fragment, or a tile of lines (wgmma_wide). b: a tile of lines; of _across one read
 * across. */
template <bool KEEP>
static __device__ __forceinline__ void wgmma_mma(float (&c)[16], const uint32_t *a, uint64_t b)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                 "{" WGMMA_LIST_16 "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;}"
                 : WGMMA_SUMS_16(c, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(KEEP));
}

template <bool KEEP>
static __device__ __forceinline__ void wgmma_mma(float (&c)[64], const uint32_t *a, uint64_t b)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{" WGMMA_LIST_64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;}"
                 : WGMMA_SUMS_64(c)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(KEEP));
}

static __device__ __forceinline__ void wgmma_mma_tiles(float (&c)[32], uint64_t a, uint64_t b,
                                                       uint32_t keep)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{" WGMMA_LIST_32 "}, %32, %33, p, 1, 1, 0, 0;}"
                 : WGMMA_SUMS_32(c)
                 : "l"(a), "l"(b), "r"(keep));
}

static __device__ __forceinline__ void wgmma_mma_bf16(float (&c)[16], uint64_t a, uint64_t b,
                                                      uint32_t keep)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                 "{" WGMMA_LIST_16 "}, %16, %17, p, 1, 1, 0, 0;}"
                 : WGMMA_SUMS_16(c, 0)
                 : "l"(a), "l"(b), "r"(keep));
}

static __device__ __forceinline__ void wgmma_mma_bf16(float (&c)[32], uint64_t a, uint64_t b,
                                                      uint32_t keep)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{" WGMMA_LIST_32 "}, %32, %33, p, 1, 1, 0, 0;}"
                 : WGMMA_SUMS_32(c)
                 : "l"(a), "l"(b), "r"(keep));
}

static __device__ __forceinline__ void wgmma_mma_bf16(float (&c)[128], uint64_t a, uint64_t b,
                                                      uint32_t keep)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
                 "{" WGMMA_LIST_128 "}, %128, %129, p, 1, 1, 0, 0;}"
                 : WGMMA_SUMS_128(c)
                 : "l"(a), "l"(b), "r"(keep));
}

static __device__ __forceinline__ void wgmma_mma_bf16(float (&c)[64], uint64_t a, uint64_t b,
                                                      uint32_t keep)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{" WGMMA_LIST_64 "}, %64, %65, p, 1, 1, 0, 0;}"
                 : WGMMA_SUMS_64(c)
                 : "l"(a), "l"(b), "r"(keep));
}

static __device__ __forceinline__ void wgmma_mma_across(float (&c)[32], const uint32_t (&a)[4],
                                                        uint64_t b, uint32_t keep)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{" WGMMA_LIST_32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;}"
                 : WGMMA_SUMS_32(c)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

static __device__ __forceinline__ void wgmma_mma_across(float (&c)[64], const uint32_t (&a)[4],
                                                        uint64_t b, uint32_t keep)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{" WGMMA_LIST_64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;}"
                 : WGMMA_SUMS_64(c)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

#endif
#endif
