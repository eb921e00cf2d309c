/* base - the few words that every file uses.
 *
 * Owns:      must(), countof(), compiler attributes, checked size arithmetic, f16/bf16 by bits.
 * Not:       errors that come from outside (err), memory (arena, buf, mem).
 * Invariant: must() is for our own mistakes only and stays on in release. Input never reaches it.
 * Thread:    any.
 */
#ifndef SHOAL_BASE_BASE_H
#define SHOAL_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define countof(array) (sizeof(array) / sizeof((array)[0]))

#define BASE_USE_RESULT __attribute__((warn_unused_result))
#define BASE_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#define BASE_NORETURN __attribute__((noreturn))

/* Aborts with file, line and condition; prints the log ring first if one is set. */
BASE_NORETURN void base_must_failed(const char *file, int line, const char *what);
#define must(cond) ((cond) ? (void)0 : base_must_failed(__FILE__, __LINE__, #cond))

#ifdef NDEBUG
#define dmust(cond) ((void)0)
#else
#define dmust(cond) must(cond)
#endif

/* Called by must() before it aborts; the log registers its ring here. Set once at start. */
void base_set_crash_hook(void (*hook)(void));

static inline size_t base_min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t base_max(size_t a, size_t b) { return a > b ? a : b; }

/* Sums and products of sizes from outside: false on overflow, *out untouched then. */
static inline bool base_add(size_t *out, size_t a, size_t b)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool base_mul(size_t *out, size_t a, size_t b)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* Rounds up to a multiple of align, a power of two. */
static inline size_t base_align(size_t n, size_t align) { return (n + align - 1) & ~(align - 1); }

static inline uint32_t base_bits_of(float f)
{
    union { float f; uint32_t u; } x = {.f = f};
    return x.u;
}

static inline float base_float_of(uint32_t bits)
{
    union { uint32_t u; float f; } x = {.u = bits};
    return x.f;
}

/* IEEE binary16 to binary32, exact, without hardware conversion (subnormals, inf and NaN too). */
static inline float base_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, mag = h & 0x7fffu;
    if (mag >= 0x7c00u)
        return base_float_of(sign | 0x7f800000u | (mag & 0x3ffu) << 13);
    if (mag >= 0x0400u)
        return base_float_of(sign | ((mag << 13) + 0x38000000u));
    float f = (float)mag * 5.9604644775390625e-8f; /* 2^-24: the unit of a subnormal */
    return base_float_of(base_bits_of(f) | sign);
}

/* Round to nearest even, as the vcvtps2ph instruction does; overflow gives infinity. */
static inline uint16_t base_f32_to_f16(float f)
{
    uint32_t u = base_bits_of(f), sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (mag >> 13 & 0x3ffu));
    if (mag >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (mag < 0x38800000u) { /* subnormal: the float adder rounds for us */
        float r = base_float_of(mag) + 0.5f;
        return (uint16_t)(sign | (base_bits_of(r) - 0x3f000000u));
    }
    uint32_t odd = mag >> 13 & 1u;
    return (uint16_t)(sign | (mag - 0x38000000u + 0xfffu + odd) >> 13);
}

static inline float base_bf16_to_f32(uint16_t h) { return base_float_of((uint32_t)h << 16); }

/* Round to nearest even; NaN stays a (quiet) NaN. */
static inline uint16_t base_f32_to_bf16(float f)
{
    uint32_t u = base_bits_of(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

#endif
