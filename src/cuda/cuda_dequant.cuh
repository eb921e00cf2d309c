/* cuda_dequant - packed records: how they are laid out, and how lanes unpack them for the tensor
 * cores.
 *
 * Owns:      sizes and offsets of a record per format (cuda_args.h draws it), the reading of one
 *            value (embed, tests) and of one fragment (matmul).
 * Not:       the bytes of files (pack.cu), products (stream.cuh).
 * Invariant: integer codes are exact; a value is computed from code and scales as quant's scalar
 *            decoder does.
 * Thread:    device threads; pure functions.
 *
 * Lane l = 4g + t of a warp holds rows g and g + 8 of the tile. Of a block of 32 inputs it feeds
 * inputs 4t .. 4t+3 of each half: register j has row g + 8 * (j & 1) and half j >> 1.
 */
#ifndef SHOAL_CUDA_CUDA_DEQUANT_CUH
#define SHOAL_CUDA_CUDA_DEQUANT_CUH

#include "cuda/cuda_common.cuh"

struct dequant_layout {
    uint32_t high, scale, mins, super, size; /* byte offsets in a record, and its size */
};

/* quants at 0; high: bit 5 or bits 5-6; scale: [row][8] f16 per 32 (MXFP4: bf16), or integers;
 * mins: the same; super: d, dmin. */
static __host__ __device__ constexpr dequant_layout dequant_layout_of(uint32_t format)
{
    return format == CUDA_FORMAT_F32    ? dequant_layout{0, 0, 0, 0, 16384}
           : format == CUDA_FORMAT_F16  ? dequant_layout{0, 0, 0, 0, 8192}
           : format == CUDA_FORMAT_BF16 ? dequant_layout{0, 0, 0, 0, 8192}
           : format == CUDA_FORMAT_Q4_0 ? dequant_layout{0, 2048, 0, 0, 2304}
           : format == CUDA_FORMAT_Q4_1 ? dequant_layout{0, 2048, 2304, 0, 2560}
           : format == CUDA_FORMAT_Q5_0 ? dequant_layout{2048, 2560, 0, 0, 2816}
           : format == CUDA_FORMAT_Q5_1 ? dequant_layout{2048, 2560, 2816, 0, 3072}
           : format == CUDA_FORMAT_Q8_0 ? dequant_layout{0, 4096, 0, 0, 4352}
           : format == CUDA_FORMAT_MXFP4 ? dequant_layout{0, 2048, 0, 0, 2304}
           : format == CUDA_FORMAT_Q4_K ? dequant_layout{0, 2048, 2176, 2304, 2368}
           : format == CUDA_FORMAT_Q5_K ? dequant_layout{2048, 2560, 2688, 2816, 2880}
                                        : dequant_layout{2048, 3072, 0, 3328, 3360};
}

static __host__ __device__ constexpr bool dequant_is_float(uint32_t format)
{
    return format <= CUDA_FORMAT_BF16;
}

static __host__ __device__ constexpr bool dequant_has_min(uint32_t format)
{
    return format == CUDA_FORMAT_Q4_1 || format == CUDA_FORMAT_Q5_1 || format == CUDA_FORMAT_Q4_K ||
           format == CUDA_FORMAT_Q5_K;
}

static __host__ __device__ constexpr bool dequant_is_k(uint32_t format)
{
    return format >= CUDA_FORMAT_Q4_K;
}

/* Inputs whose products are summed as integers before a float sees them: as many as keep the sum
 * of scale * code * input below 2^24 for any weights, where f32 is exact too. */
static __host__ __device__ constexpr int dequant_unit(uint32_t format)
{
    return format == CUDA_FORMAT_Q4_K   ? 128 /* 63 * 15 * 127 * 128 */
           : format == CUDA_FORMAT_Q5_K ? 64  /* 63 * 31 * 127 * 64 */
                                        : 32; /* Q6_K: 128 * 32 * 127 * 32 */
}

/* What is subtracted from the unsigned code of types without a minimum. */
static __host__ __device__ constexpr int dequant_offset(uint32_t format)
{
    return format == CUDA_FORMAT_Q4_0   ? 8
           : format == CUDA_FORMAT_Q5_0 ? 16
           : format == CUDA_FORMAT_MXFP4 ? 12
           : format == CUDA_FORMAT_Q6_K ? 32
                                        : 0;
}

/* Where input k (0..255) of row r (0..15) sits: lane, register, byte. */
struct dequant_place {
    uint32_t lane, reg, byte;
};
static __device__ __forceinline__ dequant_place dequant_place_of(uint32_t r, uint32_t k)
{
    const uint32_t half = k >> 4 & 1, t = k >> 2 & 3;
    return {(r & 7) * 4 + t, (r >> 3) + 2 * half, k & 3};
}

/* Four E2M1 codes of 4 bits to bytes, 2 * value + 12: by their lower three bits from a table of
 * positive and one of negative values, then by their sign. */
static __device__ __forceinline__ uint32_t dequant_e2m1(uint32_t codes)
{
    const uint32_t at = codes & 0x7777u;
    const uint32_t positive = __byte_perm(0x0f0e0d0cu, 0x18141210u, at);
    const uint32_t negative = __byte_perm(0x090a0b0cu, 0x00040608u, at);
    uint32_t sign; /* ff or 80: prmt repeats a byte's sign where __byte_perm would not */
    asm("prmt.b32 %0, %1, %1, %2;" : "=r"(sign) : "r"(0x80808080u), "r"(codes));
    return (negative & sign) | (positive & ~sign);
}

/* Scale of types with one per 32: f16; MXFP4: a power of two as bf16. */
static __device__ __forceinline__ float dequant_scale(uint32_t format, uint16_t x)
{
    return format == CUDA_FORMAT_MXFP4 ? __uint_as_float((uint32_t)x << 16) : common_half(x);
}

/* Unsigned code of a quantised value (Q8_0: the signed one). */
static __device__ __forceinline__ int dequant_code(uint32_t format, const uint8_t *rec, uint32_t r,
                                                   uint32_t k)
{
    dequant_place p = dequant_place_of(r, k);
    uint32_t sub = k >> 5, pair = sub >> 1, nib = sub & 1;
    if (format == CUDA_FORMAT_Q8_0)
        return (int8_t)rec[sub * 512 + p.lane * 16 + p.reg * 4 + p.byte];
    if (format == CUDA_FORMAT_MXFP4) {
        const uint8_t *b = rec + pair * 512 + p.lane * 16 + p.reg * 4 + 2 * nib + p.byte / 2;
        return (int)(dequant_e2m1(*b >> (4 * (p.byte & 1)) & 15) & 255);
    }
    int q = rec[pair * 512 + p.lane * 16 + p.reg * 4 + p.byte] >> (4 * nib) & 15;
    uint32_t high = dequant_layout_of(format).high;
    if (format == CUDA_FORMAT_Q6_K)
        return q | (rec[high + p.lane * 32 + pair * 8 + nib * 4 + p.byte] >> (2 * p.reg) & 3) << 4;
    if (high)
        return q | (rec[high + p.lane * 16 + pair * 4 + p.byte] >> (4 * nib + p.reg) & 1) << 4;
    return q;
}

static __device__ __forceinline__ uint16_t dequant_u16(const uint8_t *p)
{
    return *reinterpret_cast<const uint16_t *>(p);
}

/* Where a float value lies in its record. F32: 16 blocks of 16 inputs, per lane 8 values. F16 and
 * BF16: 4 steps of 64 inputs, a step as wide.cu reads it: lines of 128 bytes, 16-byte pieces
 * swizzled by the line's number. */
static __device__ __forceinline__ uint32_t dequant_float_index(uint32_t format, uint32_t r,
                                                               uint32_t k)
{
    if (format != CUDA_FORMAT_F32)
        return k / 64 * 1024 + r * 64 + ((k / 8 ^ r) & 7) * 8 + k % 8;
    uint32_t block = k >> 4, kk = k & 15, t = kk >> 2, tile = (kk & 3) >> 1, h = kk & 1;
    return block * 256 + ((r & 7) * 4 + t) * 8 + tile * 4 + (r >> 3) + 2 * h;
}

/* One value, as quant's decoder gives it. */
static __device__ float dequant_value(uint32_t format, const uint8_t *rec, uint32_t r, uint32_t k)
{
    dequant_layout l = dequant_layout_of(format);
    if (format == CUDA_FORMAT_F32)
        return reinterpret_cast<const float *>(rec)[dequant_float_index(format, r, k)];
    if (dequant_is_float(format)) {
        uint16_t h = reinterpret_cast<const uint16_t *>(rec)[dequant_float_index(format, r, k)];
        return format == CUDA_FORMAT_F16 ? common_half(h) : __uint_as_float((uint32_t)h << 16);
    }
    int q = dequant_code(format, rec, r, k) - dequant_offset(format);
    uint32_t sub = k >> 5;
    if (format == CUDA_FORMAT_Q6_K) {
        float d = common_half(dequant_u16(rec + l.super + 2 * r));
        int sc = (int8_t)rec[l.scale + r * 16 + (k >> 4)];
        return __fmul_rn(__fmul_rn(d, (float)sc), (float)q);
    }
    if (dequant_is_k(format)) {
        float d = common_half(dequant_u16(rec + l.super + 4 * r));
        float m = common_half(dequant_u16(rec + l.super + 4 * r + 2));
        float scale = __fmul_rn(d, (float)rec[l.scale + r * 8 + sub]);
        float low = __fmul_rn(m, (float)rec[l.mins + r * 8 + sub]);
        return __fsub_rn(__fmul_rn(scale, (float)q), low);
    }
    float y = __fmul_rn(dequant_scale(format, dequant_u16(rec + l.scale + (r * 8 + sub) * 2)),
                        (float)q);
    return dequant_has_min(format)
               ? __fadd_rn(y, common_half(dequant_u16(rec + l.mins + (r * 8 + sub) * 2)))
               : y;
}

/* Four codes in a word made signed: x - offset per byte, no borrow crosses a byte. */
template <int OFFSET> static __device__ __forceinline__ uint32_t dequant_signed(uint32_t x)
{
    constexpr uint32_t offset = OFFSET * 0x01010101u;
    return ((x | 0x80808080u) - offset) ^ 0x80808080u;
}

#endif
