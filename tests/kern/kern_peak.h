/* kern_peak - the most that one thread can compute, one text for every x86 level.
 *
 * Owns:      loops of products in registers, as the level's kernels multiply: u8 times i8 into
 *            int32, and float32 fused multiply-adds.
 * Not:       memory, threads (kern_bench).
 * Invariant: the products depend on nothing but their own sum; enough sums to hide the latency.
 * Thread:    any.
 * Limits:    included by kern_peak_LEVEL.c, whose suffix gives the compiler flags.
 */
#ifndef SHOAL_TESTS_KERN_KERN_PEAK_H
#define SHOAL_TESTS_KERN_KERN_PEAK_H

#include "cpu/x86/vec_math.h"

#if defined(__AVX2__)

#if defined(__AVX512F__)
#define PEAK_SUMS 12
#else
#define PEAK_SUMS 5 /* of two registers each: sixteen registers are all there are */
#endif

/* Operations done; a product and its addition are two. */
VEC_INLINE uint64_t peak_int8(uint32_t turns)
{
    vi sum[PEAK_SUMS], w = vi_set1_8(3), x = vi_set1_8(1);
    volatile int32_t kept;
    VEC_UNROLL for (int i = 0; i < PEAK_SUMS; i++)
        sum[i] = vi_set1(i);
    for (uint32_t t = 0; t < turns; t++) {
        __asm__ volatile("" : : : "memory");
        VEC_UNROLL for (int i = 0; i < PEAK_SUMS; i++)
            sum[i] = vi_dot(sum[i], w, x);
    }
    VEC_UNROLL for (int i = 1; i < PEAK_SUMS; i++)
        sum[0] = vi_add(sum[0], sum[i]);
    kept = vi_sum(sum[0]);
    (void)kept;
    return (uint64_t)turns * PEAK_SUMS * 128;
}

VEC_INLINE uint64_t peak_float(uint32_t turns)
{
    vf sum[PEAK_SUMS], w = vf_set1(0.5f), x = vf_set1(0.25f);
    volatile float kept;
    VEC_UNROLL for (int i = 0; i < PEAK_SUMS; i++)
        sum[i] = vf_set1((float)i);
    for (uint32_t t = 0; t < turns; t++) {
        __asm__ volatile("" : : : "memory");
        VEC_UNROLL for (int i = 0; i < PEAK_SUMS; i++)
            sum[i] = vf_fma(w, sum[i], x);
    }
    VEC_UNROLL for (int i = 1; i < PEAK_SUMS; i++)
        sum[0] = vf_add(sum[0], sum[i]);
    kept = vf_tree(sum[0]);
    (void)kept;
    return (uint64_t)turns * PEAK_SUMS * 32;
}

#endif
#endif
