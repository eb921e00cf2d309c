/* sample - random numbers that have no state: one number per (seed, position, draw).
 *
 * Owns:      Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
 *            1, 2, 3", SC 2011) and how a token's number is read off it.
 * Not:       the chain (op sample: cpu/ref/ref_ops.c), seeds drawn by the endpoint (base/digest).
 * Invariant: the same three numbers give the same float on every machine, CPU and CUDA.
 *
 *     key = {seed low, seed high}   counter = {position, draw, 0, 0}   u = word 0 >> 8, times 2^-24
 *
 * Thread:    any; pure. Also compiled by nvcc, hence static inline and no library call.
 */
#ifndef SHOAL_TENSOR_SAMPLE_H
#define SHOAL_TENSOR_SAMPLE_H

#include <stdint.h>

#ifdef __CUDACC__
#define SAMPLE_INLINE static __host__ __device__ inline
#else
#define SAMPLE_INLINE static inline
#endif

struct sample_words {
    uint32_t w[4];
};

/* Ten rounds; checked against the vectors that the authors publish with Random123. */
SAMPLE_INLINE struct sample_words sample_philox(struct sample_words counter, uint32_t key0,
                                                uint32_t key1)
{
    struct sample_words c = counter;
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c.w[0], b = (uint64_t)0xCD9E8D57u * c.w[2];
        struct sample_words n = {{(uint32_t)(b >> 32) ^ c.w[1] ^ key0, (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ c.w[3] ^ key1, (uint32_t)a}};
        c = n;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}

/* In [0, 1), a multiple of 2^-24, so exact in a float. */
SAMPLE_INLINE float sample_uniform(uint64_t seed, uint32_t position, uint32_t draw)
{
    struct sample_words c = {{position, draw, 0, 0}};
    c = sample_philox(c, (uint32_t)seed, (uint32_t)(seed >> 32));
    return (float)(c.w[0] >> 8) * 5.9604644775390625e-8f; /* 2^-24 */
}

#endif
