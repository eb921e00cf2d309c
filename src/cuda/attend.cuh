/* attend - the arithmetic of attention on the tensor cores: heads of 64 or 128 columns.
 *
 * Owns:      a unit's scores, weights and sums, how sums join; K and V of f16 or int8 pages on
 *            their way to shared memory; queries there.
 * Not:       kernels and which rows they take (attend.cu), other head sizes (attn.cu).
 * Invariant: a unit is 32 positions, a page: a warp multiplies 16 rows (query row, head of a K/V
 *            head's group) with them and gets maximum, weight and sum. A row's bits depend on its
 *            own query, K and V alone. Queries and weights go in as two parts of f16 each, which
 *            keeps 22 bits of them. Codes of int8 become f16 exactly; scales of K meet the scores,
 *            those of V the weights. A row's weights then go in over the power of two below the
 *            largest of them (attend_sum: up), so that a small scale does not leave f16 with the
 *            tail of its range.
 * Thread:    device threads; whole warps, or the block where it says so.
 */
#ifndef SHOAL_CUDA_ATTEND_CUH
#define SHOAL_CUDA_ATTEND_CUH

#include "cuda/cuda_common.cuh"

#define ATTEND_UNIT 32
#define ATTEND_ROWS CUDA_ATTEND_ROWS /* 8 warps of 16 */

static __device__ __forceinline__ uint32_t attend_shared(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Line `row` of a tile of D columns, piece of 16 bytes, swizzled so that eight lines at one piece
 * meet all banks. */
template <int D> static __device__ __forceinline__ uint32_t attend_at(uint32_t row, uint32_t piece)
{
    return row * (D * 2) + (piece ^ (row & 7)) * 16;
}

/* The same of a tile of `lines` lines as Hopper's tensor cores read it: 64 columns, then more. */
static __device__ __forceinline__ uint32_t attend_wide_at(uint32_t lines, uint32_t row,
                                                          uint32_t piece)
{
    return (piece / 8 * lines + row) * 128 + ((piece ^ row) & 7) * 16;
}

static __device__ __forceinline__ void attend_load(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ void attend_load_turned(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ void attend_mma(float *c, const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* x as f16 and what is left of it. */
static __device__ __forceinline__ void attend_split(float x, float y, uint32_t *high, uint32_t *low)
{
    const __half2 h = __floats2half2_rn(x, y);
    const float2 back = __half22float2(h);
    const __half2 l = __floats2half2_rn(__fsub_rn(x, back.x), __fsub_rn(y, back.y));
    *high = *reinterpret_cast<const uint32_t *>(&h);
    *low = *reinterpret_cast<const uint32_t *>(&l);
}

/* Sums of positions for rows g and g + 8 of a warp: maximum (in powers of two), weight, columns
 * 8n + 2t, 8n + 2t + 1; with int8 these are still to be multiplied by up, a power of two. */
template <int D> struct attend_sum {
    float most[2], weight[2], up[2], o[D / 8][4];
};

/* Of the position of a unit that is the lane's: scales of K and V of int8. */
struct attend_scales {
    float k, v;
};

template <int D> static __device__ __forceinline__ void attend_clear(attend_sum<D> &s)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        s.most[h] = -COMMON_INFINITY;
        s.weight[h] = 0;
    }
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        s.o[n][0] = s.o[n][1] = s.o[n][2] = s.o[n][3] = 0;
}

/* Adds later positions to a row's sum: the one place that says how (common_join). */
template <int D, bool IS_INT8>
static __device__ __forceinline__ void attend_join(attend_sum<D> &s, const attend_sum<D> &later)
{
    float a[2], b[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        common_join_factors(s.most[h], later.most[h], &a[h], &b[h]);
        s.most[h] = fmaxf(s.most[h], later.most[h]);
        s.weight[h] = common_join(s.weight[h], later.weight[h], a[h], b[h]);
        if constexpr (IS_INT8)
            b[h] = __fmul_rn(b[h], later.up[h]);
    }
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s.o[n][i] = common_join(s.o[n][i], later.o[n][i], a[i >> 1], b[i >> 1]);
}

/* What a warp's rows see, and how scores are made. */
struct attend_view {
    uint32_t from[2], to[2]; /* of rows g, g + 8 */
    float softcap;
};

/* Shared memory addresses of the tiles: a warp's query lines from q_row, a unit's from row. */
struct attend_tiles {
    uint32_t q_high, q_low, q_row, k, v, row;
};

/* Products of a unit at position `first` to scores: scaled, masked, times log2(e). */
template <bool IS_INT8>
static __device__ __forceinline__ void attend_mask(float (&c)[4][4], const attend_view &view,
                                                   uint32_t first, const attend_scales &scales)
{
    const uint32_t t = threadIdx.x & 3;
    if constexpr (IS_INT8)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float scale = __shfl_sync(~0u, scales.k, 8 * n + 2 * t + i);
                c[n][i] = __fmul_rn(c[n][i], scale);
                c[n][2 + i] = __fmul_rn(c[n][2 + i], scale);
            }
    const bool is_open = first >= max(view.from[0], view.from[1]) &&
                         first + ATTEND_UNIT <= min(view.to[0], view.to[1]);
    if (view.softcap != 0)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[n][i] = __fmul_rn(view.softcap, tanhf(__fdiv_rn(c[n][i], view.softcap)));
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[n][i] = __fmul_rn(c[n][i], COMMON_LOG2_E);
    if (is_open) /* most units: nothing is masked */
        return;
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t pos = first + 8 * n + 2 * t + (i & 1);
            if (pos < view.from[i >> 1] || pos >= view.to[i >> 1])
                c[n][i] = -COMMON_INFINITY;
        }
}

/* Products of a unit's K with the queries. */
template <int D>
static __device__ __forceinline__ void attend_scores(float (&c)[4][4], const attend_tiles &tiles)
{
    const uint32_t lane = threadIdx.x & 31;
    const uint32_t row = tiles.q_row + (lane & 7) + (lane >> 3 & 1) * 8;
    const uint32_t line = tiles.row + (lane & 7) + (lane >> 4) * 8;
#pragma unroll
    for (int n = 0; n < 4; n++)
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t high[4], low[4], b[2][4];
        attend_load(high, tiles.q_high + attend_at<D>(row, 2 * step + (lane >> 4)));
        attend_load(low, tiles.q_low + attend_at<D>(row, 2 * step + (lane >> 4)));
#pragma unroll
        for (int n = 0; n < 2; n++)
            attend_load(b[n], tiles.k + attend_at<D>(line + 16 * n, 2 * step + (lane >> 3 & 1)));
#pragma unroll
        for (int n = 0; n < 4; n++)
            attend_mma(c[n], low, b[n >> 1][2 * (n & 1)], b[n >> 1][2 * (n & 1) + 1]);
#pragma unroll
        for (int n = 0; n < 4; n++)
            attend_mma(c[n], high, b[n >> 1][2 * (n & 1)], b[n >> 1][2 * (n & 1) + 1]);
    }
}

/* Weights times the scales of V, over the power of two below the row's largest, which up gets. */
static __device__ __forceinline__ void attend_weigh_scales(float (&up)[2], float (&c)[4][4],
                                                           float scale_v)
{
    const uint32_t t = threadIdx.x & 3;
    float peak[2] = {0, 0}, down[2];
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float scale = __shfl_sync(~0u, scale_v, 8 * n + 2 * t + i);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                c[n][2 * h + i] = __fmul_rn(c[n][2 * h + i], scale);
                peak[h] = fmaxf(peak[h], c[n][2 * h + i]);
            }
        }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        peak[h] = fmaxf(peak[h], __shfl_xor_sync(~0u, peak[h], 1));
        peak[h] = fmaxf(peak[h], __shfl_xor_sync(~0u, peak[h], 2));
        const uint32_t bits = max(__float_as_uint(peak[h]) & 0x7f800000u, 0x00800000u);
        up[h] = __uint_as_float(bits);
        down[h] = __uint_as_float(0x7f000000u - bits);
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[n][i] = __fmul_rn(c[n][i], down[i >> 1]);
}

/* Scores to weights, their maximum and sum, of rows g and g + 8. */
template <int D, bool IS_INT8>
static __device__ __forceinline__ void attend_weights(attend_sum<D> &s, float (&c)[4][4],
                                                      const attend_scales &scales)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = -COMMON_INFINITY, total = 0;
#pragma unroll
        for (int n = 0; n < 4; n++)
            most = fmaxf(most, fmaxf(c[n][2 * h], c[n][2 * h + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        const float base = most == -COMMON_INFINITY ? 0.0f : most;
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float x = common_exp2(__fsub_rn(c[n][2 * h + i], base));
                c[n][2 * h + i] = x;
                total = __fadd_rn(total, x);
            }
        total = __fadd_rn(total, __shfl_xor_sync(~0u, total, 1));
        s.weight[h] = __fadd_rn(total, __shfl_xor_sync(~0u, total, 2));
        s.most[h] = most;
    }
    if constexpr (IS_INT8)
        attend_weigh_scales(s.up, c, scales.v);
}

/* Weights of 16 positions in two parts, as a fragment. */
static __device__ __forceinline__ void attend_halves(uint32_t (&high)[4], uint32_t (&low)[4],
                                                     const float (&c)[4][4], int step)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float *x = c[2 * step + (i >> 1)] + 2 * (i & 1);
        attend_split(x[0], x[1], &high[i], &low[i]);
    }
}

/* Scores to weights, weights times V. */
template <int D, bool IS_INT8>
static __device__ __forceinline__ void attend_values(attend_sum<D> &s, float (&c)[4][4],
                                                     const attend_tiles &tiles,
                                                     const attend_scales &scales)
{
    const uint32_t lane = threadIdx.x & 31;
    attend_clear<D>(s);
    attend_weights<D, IS_INT8>(s, c, scales);
#pragma unroll
    for (int step = 0; step < 2; step++) { /* 16 positions */
        uint32_t high[4], low[4];
        attend_halves(high, low, c, step);
        const uint32_t line = tiles.row + 16 * step + (lane & 7) + (lane >> 3 & 1) * 8;
#pragma unroll
        for (int n = 0; n < D / 32; n++) {
            uint32_t b[2][4];
#pragma unroll
            for (int m = 0; m < 2; m++)
                attend_load_turned(b[m],
                                   tiles.v + attend_at<D>(line, 4 * n + 2 * m + (lane >> 4)));
#pragma unroll
            for (int m = 0; m < 4; m++)
                attend_mma(s.o[4 * n + m], low, b[m >> 1][2 * (m & 1)], b[m >> 1][2 * (m & 1) + 1]);
#pragma unroll
            for (int m = 0; m < 4; m++)
                attend_mma(s.o[4 * n + m], high, b[m >> 1][2 * (m & 1)],
                           b[m >> 1][2 * (m & 1) + 1]);
        }
    }
}

/* K and V of a sequence's K/V head. */
struct attend_source {
    const uint32_t *pages;
    uint32_t head, len;
};

static __device__ __forceinline__ attend_source attend_source_of(const cuda_attn_args &a,
                                                                 uint32_t head, uint32_t seq)
{
    return {common_ptr<const uint32_t>(a.kv.pages) + (size_t)seq * a.kv.pages_max, head,
            common_ptr<const uint32_t>(a.len)[seq]};
}

/* `lines` positions from `first` on into tiles at k and v, one of `threads` threads; what no page
 * or no token holds becomes zero. One group of asynchronous copies. */
struct attend_piece {
    uint32_t first, lines, k, v, thread, threads;
};

template <int D>
static __device__ __forceinline__ void attend_fetch(const cuda_attn_args &a,
                                                    const attend_source &source,
                                                    const attend_piece &p)
{
    for (uint32_t i = p.thread; i < p.lines * (D / 8); i += p.threads) {
        const uint32_t line = i / (D / 8), piece = i % (D / 8), pos = p.first + line;
        const uint32_t page = pos < source.len ? source.pages[pos / 32] : ~0u;
        const uint8_t *from = common_ptr<const uint8_t>(a.kv.pool), *from_v = from;
        uint32_t size = 0;
        if (page != ~0u) {
            from += page * a.kv.page_size +
                    (((size_t)source.head * 32 + pos % 32) * D + piece * 8) * 2;
            from_v = from + a.kv.v_offset;
            size = 16;
        }
        const uint32_t at = attend_at<D>(line, piece);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(p.k + at), "l"(from),
                     "r"(size)
                     : "memory");
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(p.v + at), "l"(from_v),
                     "r"(size)
                     : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* ---- pages of int8 ---- */

/* Sixteen codes to pieces `piece`, `piece` + 1 of f16 at `line`: 1024 + 128 + code has its bits in
 * the last eight of an f16 of 1024 and more. */
template <int D, bool IS_WIDE>
static __device__ __forceinline__ void attend_put(uint32_t to, uint32_t line, uint32_t piece,
                                                  const uint4 &codes)
{
    const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
    const __half2 bias = __float2half2_rn(1152.0f);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t r[4];
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const uint32_t bits = __byte_perm(word[2 * i + n / 2] ^ 0x80808080u, 0x64646464u,
                                              n & 1 ? 0x4342 : 0x4140);
            const __half2 x = __hsub2(*reinterpret_cast<const __half2 *>(&bits), bias);
            r[n] = *reinterpret_cast<const uint32_t *>(&x);
        }
        const uint32_t at =
            IS_WIDE ? attend_wide_at(64, line, piece + i) : attend_at<D>(line, piece + i);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + at), "r"(r[0]),
                     "r"(r[1]), "r"(r[2]), "r"(r[3])
                     : "memory");
    }
}

/* Where a head's codes of a page lie; scales are behind them. NULL: no page, no token. */
static __device__ __forceinline__ const uint8_t *
attend_codes_of(const cuda_attn_args &a, const attend_source &source, uint32_t page, bool is_v)
{
    if (page == ~0u)
        return nullptr;
    return common_ptr<const uint8_t>(a.kv.pool) + page * a.kv.page_size +
           (is_v ? a.kv.v_offset + (size_t)source.head * a.kv.v_size
                 : (size_t)source.head * a.kv.k_size);
}

static __device__ __forceinline__ float attend_scale_of(const uint8_t *codes, uint32_t columns,
                                                        uint32_t token, bool is_there)
{
    return is_there ? __half2float(((const __half *)(codes + 32 * columns))[token]) : 0.0f;
}

/* 64 positions on their way to shared memory: a thread's pieces, a lane's scales. */
template <int D> struct attend_raw {
    uint4 k[D / 64], v[D / 64];
    attend_scales scales[2];
};

template <int D>
static __device__ __forceinline__ void attend_take(attend_raw<D> &raw, const cuda_attn_args &a,
                                                   const attend_source &source, uint32_t first)
{
    const uint32_t lane = threadIdx.x & 31;
    const uint8_t *k[2], *v[2];
#pragma unroll
    for (int u = 0; u < 2; u++) {
        const uint32_t at = first + u * 32;
        const uint32_t page = at < source.len ? source.pages[at / 32] : ~0u;
        const bool is_there = page != ~0u && at + lane < source.len;
        k[u] = attend_codes_of(a, source, page, false);
        v[u] = attend_codes_of(a, source, page, true);
        raw.scales[u] = {attend_scale_of(k[u], D, lane, is_there),
                         attend_scale_of(v[u], D, lane, is_there)};
    }
#pragma unroll
    for (int i = 0; i < D / 64; i++) {
        const uint32_t at = i * 256 + threadIdx.x, line = at / (D / 16), token = line % 32;
        const uint8_t *from = line < 32 ? k[0] : k[1], *from_v = line < 32 ? v[0] : v[1];
        const size_t offset = token * D + at % (D / 16) * 16;
        const bool is_there = from && first + line < source.len;
        raw.k[i] = raw.v[i] = {0, 0, 0, 0};
        if (is_there) {
            raw.k[i] = *(const uint4 *)(from + offset);
            raw.v[i] = *(const uint4 *)(from_v + offset);
        }
    }
}

template <int D, bool IS_WIDE>
static __device__ __forceinline__ void attend_put_raw(const attend_raw<D> &raw, uint32_t k,
                                                      uint32_t v)
{
#pragma unroll
    for (int i = 0; i < D / 64; i++) {
        const uint32_t at = i * 256 + threadIdx.x, line = at / (D / 16), piece = at % (D / 16) * 2;
        attend_put<D, IS_WIDE>(k, line, piece, raw.k[i]);
        attend_put<D, IS_WIDE>(v, line, piece, raw.v[i]);
    }
}

/* A unit's K and V in a warp's registers. */
template <int D> struct attend_unit {
    uint4 k[D / 16], v[D / 16];
    attend_scales scales;
};

template <int D>
static __device__ __forceinline__ void attend_take_unit(attend_unit<D> &raw,
                                                        const cuda_attn_args &a,
                                                        const attend_source &source,
                                                        uint32_t first)
{
    const uint32_t lane = threadIdx.x & 31;
    const uint32_t page = first < source.len ? source.pages[first / 32] : ~0u;
    const uint32_t there = page == ~0u ? 0 : min(source.len - first, 32u);
    const uint8_t *of_k = attend_codes_of(a, source, page, false);
    const uint8_t *of_v = attend_codes_of(a, source, page, true);
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        const uint32_t at = i * 32 + lane;
        raw.k[i] = at / (D / 16) < there ? ((const uint4 *)of_k)[at] : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        const uint32_t at = i * 32 + lane;
        raw.v[i] = at / (D / 16) < there ? ((const uint4 *)of_v)[at] : uint4{0, 0, 0, 0};
    }
    raw.scales = {attend_scale_of(of_k, D, lane, lane < there),
                  attend_scale_of(of_v, D, lane, lane < there)};
}

template <int D>
static __device__ __forceinline__ void attend_put_unit(const uint4 (&codes)[D / 16], uint32_t to)
{
    const uint32_t lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        attend_put<D, false>(to, (i * 32 + lane) / (D / 16), (i * 32 + lane) % (D / 16) * 2,
                             codes[i]);
}

/* ---- queries ---- */

/* Two columns of the query of (row, head of all) into line `line` of the tiles; zero where there is
 * none. */
struct attend_place {
    uint32_t line, row, head, column;
    bool is_there;
};

template <int D, bool IS_WIDE>
static __device__ __forceinline__ void attend_query(const cuda_attn_args &a, uint8_t *high,
                                                    uint8_t *low, const attend_place &p)
{
    float x = 0, y = 0;
    if (p.is_there) {
        x = __fmul_rn(common_view(a.q, p.row, p.head * D + p.column), a.scale);
        y = __fmul_rn(common_view(a.q, p.row, p.head * D + p.column + 1), a.scale);
    }
    const uint32_t piece = p.column / 8;
    const uint32_t at = (IS_WIDE ? attend_wide_at(ATTEND_ROWS, p.line, piece)
                                 : attend_at<D>(p.line, piece)) +
                        p.column % 8 * 2;
    attend_split(x, y, (uint32_t *)(high + at), (uint32_t *)(low + at));
}

#endif
