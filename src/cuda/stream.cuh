/* stream - products with packed weights on the tensor cores, a few columns at a time.
 *
 * Owns:      the streaming kernel: tiles, the ring of records, sums, the last step of an output.
 * Not:       unpacking (cuda_dequant.cuh), how inputs get their form (pack.cu), wide prefill tiles.
 * Invariant: warp w of 8 takes records w, w+8, ... of a tile of 16 rows and keeps f32 sums; the
 *            eight sums of an output are then added in the order of the warps. Neither the order
 *            nor the shapes depend on how many columns there are, so a column's bits do not
 *            either. Per record and output: types with a scale per 32 add one fma per block of 32
 *            (with a minimum: one more), K types one fma per unit (dequant_unit: integers sum
 *            exactly before) and one for the minimums.
 *
 *     tile   | rec 0 | rec 1 | ... | rec 7 | rec 8 | ...      warp 0: 0, 8, ..   warp 1: 1, 9, ..
 *
 * Weights are streamed: each warp has a ring of records in shared memory, filled ahead by
 * asynchronous copies that run on into the next tile, so the memory never waits for a tile's last
 * sum. The first copies start before the wait for the kernel in front, since weights never change.
 *
 * Thread:    blocks of 8 warps.
 * Limits:    CUDA_RING_SIZE bytes of shared memory, CUDA_SEGMENTS_MAX weights of one format.
 */
#ifndef SHOAL_CUDA_STREAM_CUH
#define SHOAL_CUDA_STREAM_CUH

#include "cuda/cuda_dequant.cuh"

static __device__ __forceinline__ void matmul_mma_s8(int c[4], const uint32_t a[4], uint32_t b0,
                                                     uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void matmul_mma_s8_16(int c[4], uint32_t a0, uint32_t a1,
                                                        uint32_t b0)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
        "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

static __device__ __forceinline__ void matmul_mma_tf32(float c[4], const uint32_t a[4], uint32_t b0,
                                                       uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The input of a block's columns: rows of it, by lane. */
struct matmul_input {
    const int8_t *q;
    const float *d;
    const int16_t *s;
    const float *x;
    uint32_t kp, per, k; /* per: floats from row to row of x */
};

/* ---- int8 forms ---- */

/* What a lane holds of one record: its quants, and the scales of rows g and g + 8. */
template <int FORMAT> struct matmul_record {
    uint4 quants[FORMAT == CUDA_FORMAT_Q8_0 ? 8 : 4];
    uint4 high[FORMAT == CUDA_FORMAT_Q6_K ? 2 : 1];
    uint4 scale[2], mins[2]; /* f16[8], i8[16] (Q6_K) or u8[8] */
    uint32_t super[2];       /* d, dmin as f16 pairs */
};

template <int FORMAT>
static __device__ __forceinline__ void matmul_load(matmul_record<FORMAT> &r, const uint8_t *rec,
                                                   uint32_t lane)
{
    constexpr dequant_layout l = dequant_layout_of(FORMAT);
    const uint4 *q = reinterpret_cast<const uint4 *>(rec) + lane;
#pragma unroll
    for (int i = 0; i < (FORMAT == CUDA_FORMAT_Q8_0 ? 8 : 4); i++)
        r.quants[i] = q[32 * i];
    if constexpr (FORMAT == CUDA_FORMAT_Q6_K) {
        const uint4 *h = reinterpret_cast<const uint4 *>(rec + l.high) + 2 * lane;
        r.high[0] = h[0];
        r.high[1] = h[1];
    } else if constexpr (l.high != 0) {
        r.high[0] = reinterpret_cast<const uint4 *>(rec + l.high)[lane];
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t row = (lane >> 2) + 8 * h;
        if constexpr (FORMAT == CUDA_FORMAT_Q6_K) {
            r.scale[h] = *reinterpret_cast<const uint4 *>(rec + l.scale + row * 16);
            r.super[h] = dequant_u16(rec + l.super + row * 2);
        } else if constexpr (dequant_is_k(FORMAT)) {
            /* nvcc 12 counts them unused where another FORMAT discards the branch. */
            [[maybe_unused]] uint2 s =
                *reinterpret_cast<const uint2 *>(rec + l.scale + row * 8);
            [[maybe_unused]] uint2 m =
                *reinterpret_cast<const uint2 *>(rec + l.mins + row * 8);
            r.scale[h] = {s.x, s.y, m.x, m.y};
            r.super[h] = *reinterpret_cast<const uint32_t *>(rec + l.super + row * 4);
        } else {
            r.scale[h] = *reinterpret_cast<const uint4 *>(rec + l.scale + row * 16);
            if constexpr (dequant_has_min(FORMAT))
                r.mins[h] = *reinterpret_cast<const uint4 *>(rec + l.mins + row * 16);
        }
    }
}

/* What a lane holds of the input for one record: fragments of its column, scales of its two. */
template <int FORMAT> struct matmul_column {
    uint2 b[8];
    float d[dequant_is_k(FORMAT) ? 1 : 8][2];
    uint4 s[2];
};

template <int FORMAT>
static __device__ __forceinline__ void matmul_load_column(matmul_column<FORMAT> &c,
                                                          const matmul_input &in, uint32_t record,
                                                          int b_row, const int *c_row,
                                                          uint32_t lane)
{
    const size_t k0 = (size_t)record * CUDA_RECORD_K;
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        uint4 b = {0, 0, 0, 0};
        if (b_row >= 0)
            b = reinterpret_cast<const uint4 *>(in.q + (size_t)b_row * in.kp + k0)[4 * (lane & 3) +
                                                                                   pair];
        c.b[2 * pair] = {b.x, b.y};
        c.b[2 * pair + 1] = {b.z, b.w};
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        c.s[i] = {0, 0, 0, 0};
        if (c_row[i] < 0) {
#pragma unroll
            for (int j = 0; j < (dequant_is_k(FORMAT) ? 1 : 8); j++)
                c.d[j][i] = 0;
            continue;
        }
        size_t at = (size_t)c_row[i] * in.kp + k0;
        if constexpr (dequant_is_k(FORMAT)) {
            c.d[0][i] = in.d[at / 256];
        } else {
            const float4 *d = reinterpret_cast<const float4 *>(in.d + at / 32);
            float4 x = d[0], y = d[1];
            c.d[0][i] = x.x, c.d[1][i] = x.y, c.d[2][i] = x.z, c.d[3][i] = x.w;
            c.d[4][i] = y.x, c.d[5][i] = y.y, c.d[6][i] = y.z, c.d[7][i] = y.w;
        }
        if constexpr (dequant_has_min(FORMAT))
            c.s[i] = *reinterpret_cast<const uint4 *>(in.s + at / 32);
    }
}

static __device__ __forceinline__ uint32_t matmul_word(const uint4 &v, int j)
{
    return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w;
}

/* Registers a[0..3] of block `sub` (a compile-time number after unrolling). */
template <int FORMAT>
static __device__ __forceinline__ void matmul_unpack(uint32_t a[4], const matmul_record<FORMAT> &r,
                                                     int sub)
{
    const int pair = sub >> 1, nib = sub & 1;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if constexpr (FORMAT == CUDA_FORMAT_Q8_0) {
            a[j] = matmul_word(r.quants[sub], j);
            continue;
        }
        uint32_t v = matmul_word(r.quants[FORMAT == CUDA_FORMAT_Q8_0 ? 0 : pair], j);
        if constexpr (FORMAT == CUDA_FORMAT_MXFP4)
            v = dequant_e2m1(nib ? v >> 16 : v);
        else
            v = (nib ? v >> 4 : v) & 0x0f0f0f0fu;
        if constexpr (FORMAT == CUDA_FORMAT_Q6_K) {
            uint32_t h = matmul_word(r.high[pair >> 1], (pair & 1) * 2 + nib);
            v |= (h >> (2 * j) & 0x03030303u) << 4;
        } else if constexpr (dequant_layout_of(FORMAT).high != 0) {
            uint32_t h = matmul_word(r.high[0], pair);
            v |= (h >> (4 * nib + j) & 0x01010101u) << 4;
        }
        if constexpr (dequant_offset(FORMAT) != 0)
            v = dequant_signed<dequant_offset(FORMAT)>(v);
        a[j] = v;
    }
}

static __device__ __forceinline__ float matmul_f16_at(const uint4 &v, int i)
{
    return common_half((uint16_t)(matmul_word(v, i >> 1) >> (16 * (i & 1))));
}

/* Scale of block i of types with one per 32. */
template <int FORMAT>
static __device__ __forceinline__ float matmul_scale_at(const uint4 &v, int i)
{
    return dequant_scale(FORMAT, (uint16_t)(matmul_word(v, i >> 1) >> (16 * (i & 1))));
}

static __device__ __forceinline__ int matmul_i16_at(const uint4 &v, int i)
{
    return (int16_t)(matmul_word(v, i >> 1) >> (16 * (i & 1)));
}

static __device__ __forceinline__ int matmul_u8_at(const uint4 &v, int i)
{
    return (int)(matmul_word(v, i >> 2) >> (8 * (i & 3)) & 255);
}

static __device__ __forceinline__ int matmul_i8_at(const uint4 &v, int i)
{
    return (int8_t)(matmul_word(v, i >> 2) >> (8 * (i & 3)));
}

/* Integer sums of block `sub` into K sums, or by one fma (with a minimum: two) into acc.
 * c, sum, acc[i]: row g + 8 * (i >> 1), column 2t + (i & 1). */
template <int FORMAT>
static __device__ __forceinline__ void matmul_block(float acc[4], int sum[4], const uint32_t a[4],
                                                    const matmul_record<FORMAT> &r,
                                                    const matmul_column<FORMAT> &col, int sub)
{
    int c[4] = {0, 0, 0, 0};
    if constexpr (FORMAT == CUDA_FORMAT_Q6_K) {
        int e[4] = {0, 0, 0, 0};
        matmul_mma_s8_16(c, a[0], a[1], col.b[sub].x);
        matmul_mma_s8_16(e, a[2], a[3], col.b[sub].y);
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[i] += c[i] * matmul_i8_at(r.scale[i >> 1], 2 * sub) +
                      e[i] * matmul_i8_at(r.scale[i >> 1], 2 * sub + 1);
        return;
    }
    matmul_mma_s8(c, a, col.b[sub].x, col.b[sub].y);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (dequant_is_k(FORMAT)) {
            sum[i] += c[i] * matmul_u8_at(r.scale[i >> 1], sub);
            continue;
        }
        float d = col.d[dequant_is_k(FORMAT) ? 0 : sub][i & 1];
        acc[i] = fmaf(__fmul_rn(matmul_scale_at<FORMAT>(r.scale[i >> 1], sub), d), (float)c[i],
                      acc[i]);
        if constexpr (dequant_has_min(FORMAT))
            acc[i] = fmaf(matmul_f16_at(r.mins[i >> 1], sub),
                          __fmul_rn(d, (float)matmul_i16_at(col.s[i & 1], sub)), acc[i]);
    }
}

/* A unit of a K record is complete as integers: one fma for it. */
template <int FORMAT>
static __device__ __forceinline__ void matmul_add_unit(float acc[4], int sum[4],
                                                       const matmul_record<FORMAT> &r,
                                                       const matmul_column<FORMAT> &col)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float d = common_half((uint16_t)r.super[i >> 1]);
        acc[i] = fmaf(__fmul_rn(d, col.d[0][i & 1]), (float)sum[i], acc[i]);
        sum[i] = 0;
    }
}

/* The minimums of a K record: one fma. */
template <int FORMAT>
static __device__ __forceinline__ void matmul_add_mins(float acc[4],
                                                       const matmul_record<FORMAT> &r,
                                                       const matmul_column<FORMAT> &col)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int h = i >> 1, c = i & 1;
        if constexpr (dequant_has_min(FORMAT)) {
            float m = common_half((uint16_t)(r.super[h] >> 16));
            int low = __dp2a_lo((int)col.s[c].x, (int)r.scale[h].z, 0);
            low = __dp2a_hi((int)col.s[c].y, (int)r.scale[h].z, low);
            low = __dp2a_lo((int)col.s[c].z, (int)r.scale[h].w, low);
            low = __dp2a_hi((int)col.s[c].w, (int)r.scale[h].w, low);
            acc[i] = fmaf(__fmul_rn(-m, col.d[0][c]), (float)low, acc[i]);
        }
    }
}

/* Adds one record for a column tile. */
template <int FORMAT>
static __device__ __forceinline__ void matmul_add(float acc[4], const matmul_record<FORMAT> &r,
                                                  const matmul_column<FORMAT> &col)
{
    int sum[4] = {0, 0, 0, 0};
#pragma unroll
    for (int sub = 0; sub < 8; sub++) {
        uint32_t a[4];
        matmul_unpack<FORMAT>(a, r, sub);
        matmul_block<FORMAT>(acc, sum, a, r, col, sub);
        if constexpr (dequant_is_k(FORMAT))
            if (sub % (dequant_unit(FORMAT) / 32) == dequant_unit(FORMAT) / 32 - 1)
                matmul_add_unit<FORMAT>(acc, sum, r, col);
    }
    if constexpr (dequant_is_k(FORMAT))
        matmul_add_mins<FORMAT>(acc, r, col);
}

/* ---- the ring ---- */

/* What one step of a warp streams: a record, or a quarter of one for float types; and how deep the
 * ring is: two blocks share a multiprocessor. */
template <int FORMAT> struct matmul_item {
    static constexpr uint32_t per_record = dequant_is_float(FORMAT) ? 4 : 1;
    static constexpr uint32_t size = dequant_layout_of(FORMAT).size / per_record;
    static constexpr uint32_t stages = CUDA_RING_SIZE / CUDA_WARPS / size; /* 2 to 5 */
};

static __device__ __forceinline__ void matmul_fetch(uint8_t *to, const uint8_t *from, uint32_t size,
                                                    uint32_t lane)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    for (uint32_t i = lane * 16; i < size; i += 512)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at + i), "l"(from + i));
}

/* ---- F32 and F16: weights are exact in tf32 (F32: as two parts), inputs as two parts ---- */

static __device__ __forceinline__ uint32_t matmul_high(float x)
{
    return __float_as_uint(x) & 0xffffe000u; /* the 10 bits of mantissa that tf32 keeps */
}

/* Eight weights of a lane: two tiles of (row g, k), (row g + 8, k), (g, k + 1), (g + 8, k + 1). */
template <int FORMAT>
static __device__ __forceinline__ void matmul_floats(float w[8], const uint8_t *piece, int block,
                                                     uint32_t lane)
{
    if constexpr (FORMAT == CUDA_FORMAT_F32) {
        const float4 *p = reinterpret_cast<const float4 *>(piece + block * 1024) + lane * 2;
        float4 a = p[0], b = p[1];
        w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w;
        w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
    } else {
        const uint32_t g = lane >> 2, t = lane & 3;
        piece += g * 128 + ((2 * block + (t >> 1)) ^ g) * 16 + (t & 1) * 8;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint2 v = *reinterpret_cast<const uint2 *>(piece + 1024 * h);
#pragma unroll
            for (int j = 0; j < 4; j++)
                w[(j >> 1) * 4 + h + 2 * (j & 1)] =
                    common_half((uint16_t)((j >> 1 ? v.y : v.x) >> (16 * (j & 1))));
        }
    }
}

template <int FORMAT>
static __device__ __forceinline__ void matmul_add_floats(float acc[4], const float w[8],
                                                         const float x[4])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t hi[4], lo[4], xh[2], xl[2];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            hi[j] = matmul_high(w[half * 4 + j]);
            lo[j] = __float_as_uint(w[half * 4 + j] - __uint_as_float(hi[j]));
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            xh[j] = matmul_high(x[half * 2 + j]);
            xl[j] = __float_as_uint(x[half * 2 + j] - __uint_as_float(xh[j]));
        }
        if constexpr (FORMAT == CUDA_FORMAT_F32)
            matmul_mma_tf32(acc, lo, xh[0], xh[1]);
        matmul_mma_tf32(acc, hi, xl[0], xl[1]);
        matmul_mma_tf32(acc, hi, xh[0], xh[1]);
    }
}

/* Inputs k .. k + 3 of a row; zero where there are none. */
static __device__ __forceinline__ void matmul_load_floats(float x[4], const matmul_input &in,
                                                          int row, uint32_t k)
{
    const float *p = in.x + (size_t)max(row, 0) * in.per + k;
    if (row >= 0 && k + 4 <= in.k && ((size_t)p & 15) == 0) {
        const float4 v = *reinterpret_cast<const float4 *>(p);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        x[j] = row >= 0 && k + j < in.k ? p[j] : 0.0f;
}

/* One quarter of a record: four blocks of 16 inputs. */
template <int FORMAT, int NT>
static __device__ __forceinline__ void matmul_item_float(float *acc, const uint8_t *piece,
                                                         const matmul_input &in, uint32_t k0,
                                                         const int *b_row, uint32_t lane)
{
    constexpr int at_once = NT > 2 ? 1 : 4; /* on their way before the first is waited for */
    float x[NT][at_once][4];
    k0 += 4 * (lane & 3);
#pragma unroll
    for (int block = 0; block < 4; block++) {
        float w[8];
        if (block % at_once == 0)
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < at_once; i++)
                    matmul_load_floats(x[n][i], in, b_row[n], k0 + (block + i) * 16);
        matmul_floats<FORMAT>(w, piece, block, lane);
#pragma unroll
        for (int n = 0; n < NT; n++)
            matmul_add_floats<FORMAT>(acc + n * 4, w, x[n][block % at_once]);
    }
}

template <int FORMAT, int NT>
static __device__ __forceinline__ void matmul_item_int8(float *acc, const uint8_t *rec,
                                                        const matmul_input &in, uint32_t record,
                                                        const int *b_row, const int *c_row,
                                                        uint32_t lane)
{
    matmul_record<FORMAT> r;
    matmul_load<FORMAT>(r, rec, lane);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        matmul_column<FORMAT> col;
        matmul_load_column<FORMAT>(col, in, record, b_row[n], c_row + 2 * n, lane);
        matmul_add<FORMAT>(acc + 4 * n, r, col);
    }
}

/* ---- what a block works on ---- */

/* A tile of a weight and the columns it meets: column -> row of the input, row of the output. */
struct matmul_job {
    const cuda_segment *s;
    uint32_t tile, expert, first, count; /* columns first .. first + count of all */
};

static __device__ __forceinline__ int matmul_out_row(const cuda_matmul_args &a, const matmul_job &j,
                                                     uint32_t column)
{
    if (column >= j.count)
        return -1;
    return a.work ? common_ptr<const int32_t>(a.pair)[j.first + column] : (int)(j.first + column);
}

static __device__ __forceinline__ int matmul_in_row(const cuda_matmul_args &a, const matmul_job &j,
                                                    uint32_t column)
{
    int row = matmul_out_row(a, j, column);
    return row < 0 || !a.work || a.x_per_pair ? row : row / (int)a.ranks;
}

/* Job number n of this launch: tiles of all segments for one chunk of columns after the other, or
 * of the experts that have columns (a.work: count, then expert, first and count of each chunk). */
static __device__ __forceinline__ matmul_job matmul_job_of(const cuda_matmul_args &a, uint32_t n,
                                                           uint32_t tiles, uint32_t wide)
{
    matmul_job j = {&a.seg[0], n % tiles, 0, n / tiles * wide, 0};
    if (a.work) {
        const int32_t *w = common_ptr<const int32_t>(a.work) + 1 + 3 * (n / tiles);
        j.expert = (uint32_t)w[0];
        j.first = (uint32_t)w[1];
        j.count = (uint32_t)w[2];
        return j;
    }
    j.count = min(wide, a.columns - j.first);
    if (!a.is_glu)
        for (uint32_t i = 0; i + 1 < a.segments && j.tile >= j.s->tiles; i++)
            j.tile -= (j.s++)->tiles;
    return j;
}

template <int FORMAT>
static __device__ __forceinline__ const uint8_t *matmul_tile_of(const cuda_matmul_args &a,
                                                                const matmul_job &j,
                                                                uint32_t weight)
{
    const cuda_segment &s = j.s[weight];
    return common_ptr<const uint8_t>(s.w) + s.mat_size * j.expert +
           (size_t)j.tile * (a.kp / CUDA_RECORD_K) * dequant_layout_of(FORMAT).size;
}

/* Where this warp's copies have got to: item `item` of weight `weight` of job `job`, from `p`. */
struct matmul_cursor {
    const uint8_t *p;
    uint32_t job, weight, item;
};

template <int FORMAT>
static __device__ __forceinline__ void matmul_aim(const cuda_matmul_args &a, matmul_cursor &c,
                                                  uint32_t jobs, uint32_t tiles, uint32_t wide)
{
    if (c.job < jobs)
        c.p = matmul_tile_of<FORMAT>(a, matmul_job_of(a, c.job, tiles, wide), c.weight) +
              (size_t)(threadIdx.x / 32) * dequant_layout_of(FORMAT).size;
}

/* Copies the next item into the ring, if there is one, and moves on. */
template <int FORMAT>
static __device__ __forceinline__ void matmul_ahead(const cuda_matmul_args &a, matmul_cursor &c,
                                                    uint8_t *to, uint32_t jobs, uint32_t tiles,
                                                    uint32_t wide, uint32_t items)
{
    using item = matmul_item<FORMAT>;
    constexpr uint32_t record = dequant_layout_of(FORMAT).size;
    if (c.job < jobs && items) {
        matmul_fetch(to, c.p, item::size, threadIdx.x & 31);
        c.item++;
        c.p += c.item % item::per_record ? item::size : record * (CUDA_WARPS - 1) + item::size;
        if (c.item == items) {
            c.item = 0;
            if (++c.weight == (a.is_glu ? 2 : 1)) {
                c.weight = 0;
                c.job += gridDim.x;
            }
            matmul_aim<FORMAT>(a, c, jobs, tiles, wide);
        }
    }
    asm volatile("cp.async.commit_group;");
}

/* Sum of the warps for output i of a tile (row i % 16, column i / 16), scaled, with its bias. */
template <int NT>
static __device__ __forceinline__ float matmul_total(const cuda_segment &s, const matmul_job &j,
                                                     const float (*room)[CUDA_TILE_ROWS * 8 * NT],
                                                     uint32_t i)
{
    float sum = room[0][i];
#pragma unroll
    for (uint32_t x = 1; x < CUDA_WARPS; x++)
        sum = __fadd_rn(sum, room[x][i]);
    const uint32_t row = j.tile * CUDA_TILE_ROWS + i % CUDA_TILE_ROWS;
    sum = __fmul_rn(sum, s.scales ? common_ptr<const float>(s.scales)[j.expert] : s.scale);
    if (s.bias && row < s.rows)
        sum = __fadd_rn(sum, common_ptr<const float>(s.bias)[j.expert * s.bias_stride + row]);
    return sum;
}

/* ---- one block ---- */

template <int FORMAT, int NT, bool ONE>
static __device__ __forceinline__ void matmul_run(const cuda_matmul_args &a)
{
    extern __shared__ uint4 matmul_shared[];
    __shared__ float room[2][CUDA_WARPS][CUDA_TILE_ROWS * 8 * NT];
    using item = matmul_item<FORMAT>;
    constexpr uint32_t outputs = CUDA_TILE_ROWS * (ONE ? 1 : 8 * NT), wide = ONE ? 1 : 8 * NT;
    constexpr int mine = (outputs + CUDA_WARPS * 32 - 1) / (CUDA_WARPS * 32);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const uint32_t records = a.kp / CUDA_RECORD_K, weights = a.is_glu ? 2 : 1;
    const uint32_t items =
        warp < records ? (records - warp + CUDA_WARPS - 1) / CUDA_WARPS * item::per_record : 0;
    uint8_t *ring = (uint8_t *)matmul_shared + warp * item::stages * item::size;
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < (a.is_glu ? 1 : a.segments); i++)
        tiles += a.seg[i].tiles;
    common_release();
    if (a.work)
        common_wait(); /* which experts: the kernel in front says */
    const uint32_t chunks =
        a.work ? (uint32_t)*common_ptr<const int32_t>(a.work) : (a.columns + wide - 1) / wide;
    const uint32_t jobs = tiles * chunks;
    matmul_cursor c = {nullptr, blockIdx.x, 0, 0};
    matmul_aim<FORMAT>(a, c, jobs, tiles, wide);
    for (uint32_t s = 0; s < item::stages - 1; s++)
        matmul_ahead<FORMAT>(a, c, ring + s * item::size, jobs, tiles, wide, items);
    if (!a.work)
        common_wait();
    const matmul_input in = {common_ptr<const int8_t>(a.q),
                             common_ptr<const float>(a.d),
                             common_ptr<const int16_t>(a.s),
                             common_ptr<const float>(a.x) + a.x_first,
                             a.kp,
                             a.x_stride,
                             a.k};
    const common_glu glu = {a.glu_kind, a.alpha, a.up_add, a.clamp_gate, a.clamp_up};
    uint32_t stage = 0, phase = 0;
    for (uint32_t n = blockIdx.x; n < jobs; n += gridDim.x) {
        const matmul_job j = matmul_job_of(a, n, tiles, wide);
        int b_row[NT], c_row[NT * 2];
#pragma unroll
        for (int i = 0; i < NT; i++) {
            b_row[i] = matmul_in_row(a, j, i * 8 + g);
            c_row[i * 2] = matmul_in_row(a, j, i * 8 + 2 * t);
            c_row[i * 2 + 1] = matmul_in_row(a, j, i * 8 + 2 * t + 1);
        }
        float gate[mine];
        for (uint32_t w = 0; w < weights; w++, phase ^= 1) {
            float acc[NT * 4];
#pragma unroll
            for (int i = 0; i < NT * 4; i++)
                acc[i] = 0;
            for (uint32_t i = 0; i < items; i++) {
                const uint32_t ahead = stage == 0 ? item::stages - 1 : stage - 1;
                matmul_ahead<FORMAT>(a, c, ring + ahead * item::size, jobs, tiles, wide, items);
                asm volatile("cp.async.wait_group %0;" ::"n"(item::stages - 1));
                __syncwarp();
                const uint8_t *piece = ring + stage * item::size;
                const uint32_t record = warp + i / item::per_record * CUDA_WARPS;
                if constexpr (dequant_is_float(FORMAT))
                    matmul_item_float<FORMAT, NT>(
                        acc, piece, in, record * CUDA_RECORD_K + i % item::per_record * 64, b_row,
                        lane);
                else
                    matmul_item_int8<FORMAT, NT>(acc, piece, in, record, b_row, c_row, lane);
                stage = stage + 1 == item::stages ? 0 : stage + 1;
                __syncwarp();
            }
#pragma unroll
            for (int i = 0; i < NT * 4; i++)
                if (!ONE || (i % 2 == 0 && t == 0))
                    room[phase][warp][((i >> 2) * 8 + 2 * t + (i & 1)) * CUDA_TILE_ROWS + g +
                                      8 * ((i >> 1) & 1)] = acc[i];
            __syncthreads(); /* the other half of room is free: its readers are past the last one */
#pragma unroll
            for (int m = 0; m < mine; m++) {
                const uint32_t i = threadIdx.x + m * CUDA_WARPS * 32;
                if (i >= outputs)
                    break;
                float y = matmul_total<NT>(j.s[w], j, room[phase], i);
                if (w + 1 < weights) {
                    gate[m] = y;
                    continue;
                }
                if (a.is_glu)
                    y = common_glu_of(glu, gate[m], y);
                const uint32_t row = j.tile * CUDA_TILE_ROWS + i % CUDA_TILE_ROWS;
                const int out_row = matmul_out_row(a, j, i / CUDA_TILE_ROWS);
                if (row < j.s->rows && out_row >= 0)
                    common_ptr<float>(j.s->out)[(size_t)out_row * j.s->out_stride + row] = y;
            }
        }
    }
}

#define MATMUL(name, FORMAT, COLUMNS, NT)                                                          \
    KERNEL __launch_bounds__(CUDA_WARPS * 32, 2)                                                   \
        name##_##COLUMNS(const __grid_constant__ cuda_matmul_args a)                               \
    {                                                                                              \
        matmul_run<FORMAT, NT, COLUMNS == 1>(a);                                                   \
    }
/* Columns at once: quantised types have one.cu for a single one. */
#define MATMULS(name, FORMAT)                                                                      \
    MATMUL(name, FORMAT, 8, 1) MATMUL(name, FORMAT, 16, 2) MATMUL(name, FORMAT, 32, 4)

#endif
