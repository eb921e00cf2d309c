/* attend - attention on the tensor cores: heads of 64 or 128 columns, K and V f16 in pages.
 *
 * A unit is 32 positions: a warp multiplies 16 rows (query row, head of a K/V head's group) with
 * them and gets maximum, weight and sum. Four units make a block, added in their order; blocks are
 * added in theirs. So a row's bits depend on its own query, K and V alone, and two kernels share
 * the arithmetic:
 *
 *     attend_part   a block of positions, one query row: few rows; attn_merge adds the blocks
 *     attend_rows   128 rows walk over all positions: prompts
 *
 * Queries and weights go in as two parts of f16 each, which keeps 22 bits of them.
 */
#include "cuda/cuda_common.cuh"
#include "cuda/cuda_wgmma.cuh"

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
 * 8n + 2t, 8n + 2t + 1. */
template <int D> struct attend_sum {
    float most[2], weight[2], o[D / 8][4];
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
template <int D>
static __device__ __forceinline__ void attend_join(attend_sum<D> &s, const attend_sum<D> &later)
{
    float a[2], b[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        common_join_factors(s.most[h], later.most[h], &a[h], &b[h]);
        s.most[h] = fmaxf(s.most[h], later.most[h]);
        s.weight[h] = common_join(s.weight[h], later.weight[h], a[h], b[h]);
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

/* Scores of a unit at position `first`, masked, times log2(e). */
static __device__ __forceinline__ void attend_mask(float (&c)[4][4], const attend_view &view,
                                                   uint32_t first)
{
    const uint32_t t = threadIdx.x & 3;
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

/* Scores of the unit at position `first`. */
template <int D>
static __device__ __forceinline__ void attend_scores(float (&c)[4][4], const attend_tiles &tiles,
                                                     const attend_view &view, uint32_t first)
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
    attend_mask(c, view, first);
}

/* Scores to weights, their maximum and sum, of rows g and g + 8. */
static __device__ __forceinline__ void attend_weights(float (&all_most)[2], float (&weight)[2],
                                                      float (&c)[4][4])
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
        weight[h] = __fadd_rn(total, __shfl_xor_sync(~0u, total, 2));
        all_most[h] = most;
    }
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
template <int D>
static __device__ __forceinline__ void attend_values(attend_sum<D> &s, float (&c)[4][4],
                                                     const attend_tiles &tiles)
{
    const uint32_t lane = threadIdx.x & 31;
    attend_clear<D>(s);
    attend_weights(s.most, s.weight, c);
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

/* ---- few rows ---- */

/* K (offset 0) or V of a unit, which is a page, by one warp: all addresses follow from one look-up.
 * One group of asynchronous copies. */
template <int D>
static __device__ __forceinline__ void attend_fetch_unit(const cuda_attn_args &a,
                                                         const attend_source &source,
                                                         uint32_t first, size_t offset,
                                                         uint32_t to)
{
    static_assert(ATTEND_UNIT == 32, "a unit is a page");
    const uint32_t lane = threadIdx.x & 31;
    const uint32_t page = first < source.len ? source.pages[first / 32] : ~0u;
    const uint32_t there = page == ~0u ? 0 : min(source.len - first, 32u);
    const uint8_t *from = common_ptr<const uint8_t>(a.kv.pool);
    if (there)
        from += page * a.kv.page_size + offset + (size_t)source.head * 32 * D * 2;
#pragma unroll
    for (uint32_t i = 0; i < 4 * D; i += 32) {
        const uint32_t line = (i + lane) / (D / 8), piece = (i + lane) % (D / 8);
        const uint8_t *p = line < there ? from + (size_t)(i + lane) * 16 : from;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         to + attend_at<D>(line, piece)),
                     "l"(p), "r"(line < there ? 16 : 0)
                     : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* grid: x = blocks of positions, y = kv heads, z = rows; a warp per unit. Shared: query high, low
 * [16][D], K, V [128][D]; later the units' sums over K and V. */
template <int D> static __device__ __forceinline__ void attend_block(const cuda_attn_args &a)
{
    extern __shared__ __align__(1024) uint8_t attend_memory[];
    uint8_t *q_high = attend_memory, *q_low = q_high + 16 * D * 2, *kv = q_low + 16 * D * 2;
    common_release();
    common_wait();
    const uint32_t head = blockIdx.y, row = blockIdx.z, group = a.heads / a.kv.kv_heads;
    const uint32_t seq = common_ptr<const uint32_t>(a.seq)[row], first = blockIdx.x * a.block;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    uint32_t from, to;
    common_range(a, row, seq, &from, &to);
    if (first >= to || first + a.block <= from)
        return;
    const uint32_t k = attend_shared(kv), v = k + CUDA_ATTEND_BLOCK * D * 2;
    const uint32_t unit = first + warp * ATTEND_UNIT, of_unit = warp * ATTEND_UNIT * D * 2;
    const attend_source source = attend_source_of(a, head, seq);
    attend_fetch_unit<D>(a, source, unit, 0, k + of_unit);
    attend_fetch_unit<D>(a, source, unit, a.kv.v_offset, v + of_unit);
    for (uint32_t i = threadIdx.x; i < 16 * D / 2; i += 128) {
        const uint32_t line = i / (D / 2);
        attend_query<D, false>(a, q_high, q_low,
                        {line, row, head * group + line, i % (D / 2) * 2, line < group});
    }
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    const attend_view view = {{from, from}, {to, to}, a.softcap};
    const attend_tiles tiles = {
        attend_shared(q_high), attend_shared(q_low), 0, k, v, warp * ATTEND_UNIT};
    float c[4][4];
    attend_sum<D> s;
    attend_scores<D>(c, tiles, view, unit);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
    attend_values<D>(s, c, tiles);
    float *room = (float *)(kv + warp * 2 * ATTEND_UNIT * D * 2);
    __syncthreads(); /* K and V are read */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (g + 8 * h >= group)
            continue;
        float *to_row = room + (g + 8 * h) * (D + 2);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            *reinterpret_cast<float2 *>(to_row + 8 * n + 2 * t) = {s.o[n][2 * h],
                                                                   s.o[n][2 * h + 1]};
        if (t == 0)
            *reinterpret_cast<float2 *>(to_row + D) = {s.most[h], s.weight[h]};
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < group * D; i += 128) {
        const uint32_t h = i / D, column = i % D;
        float most = -COMMON_INFINITY, weight = 0, y = 0;
        for (uint32_t w = 0; w < CUDA_ATTEND_BLOCK / ATTEND_UNIT; w++) {
            const float *u = (const float *)(kv + w * 2 * ATTEND_UNIT * D * 2) + h * (D + 2);
            float x, z;
            common_join_factors(most, u[D], &x, &z);
            most = fmaxf(most, u[D]);
            weight = common_join(weight, u[D + 1], x, z);
            y = common_join(y, u[column], x, z);
        }
        const size_t line = (size_t)row * a.heads + head * group + h;
        float *part = common_ptr<float>(a.part) + (line * a.blocks + blockIdx.x) * (D + 2);
        part[column] = y;
        if (column == 0) {
            part[D] = most;
            part[D + 1] = weight;
        }
    }
}

/* ---- many rows ---- */

/* Sums of all blocks so far, in shared memory: a float4 per thread and slice. */
template <int D>
static __device__ __forceinline__ void attend_keep(float4 *total, float *most, float *weight,
                                                   const attend_sum<D> &s)
{
    float a[2], b[2];
    const uint32_t lane = threadIdx.x & 31, row = threadIdx.x / 32 * 16 + (lane >> 2);
#pragma unroll
    for (int h = 0; h < 2; h++)
        common_join_factors(most[row + 8 * h], s.most[h], &a[h], &b[h]);
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        float4 *at = total + n * 256 + threadIdx.x;
        const float4 x = *at;
        *at = {common_join(x.x, s.o[n][0], a[0], b[0]), common_join(x.y, s.o[n][1], a[0], b[0]),
               common_join(x.z, s.o[n][2], a[1], b[1]), common_join(x.w, s.o[n][3], a[1], b[1])};
    }
    __syncwarp();
    if ((lane & 3) == 0)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            weight[row + 8 * h] = common_join(weight[row + 8 * h], s.weight[h], a[h], b[h]);
            most[row + 8 * h] = fmaxf(most[row + 8 * h], s.most[h]);
        }
    __syncwarp();
}

template <int D> struct attend_layout {
    static constexpr uint32_t tile = ATTEND_ROWS * D * 2, stage = 2 * 64 * D * 2;
    static constexpr uint32_t q_high = 0, q_low = tile, ring = 2 * tile, total = ring + 2 * stage;
    static constexpr uint32_t most = total + ATTEND_ROWS * D * 4, weight = most + ATTEND_ROWS * 4;
    static constexpr uint32_t size = weight + ATTEND_ROWS * 4;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ATTEND_IS_WIDE true

/* Pages of 64 positions from `first` on. */
static __device__ __forceinline__ uint2 attend_pages(const attend_source &source, uint32_t first)
{
    return {first < source.len ? source.pages[first / 32] : ~0u,
            first + 32 < source.len ? source.pages[first / 32 + 1] : ~0u};
}

/* 64 positions from `first` on into tiles at k and v, as attend_fetch does. */
template <int D>
static __device__ __forceinline__ void attend_fetch_wide(const cuda_attn_args &a,
                                                         const attend_source &source, uint2 pages,
                                                         uint32_t first, uint32_t k)
{
    const uint32_t v = k + 64 * D * 2;
#pragma unroll
    for (uint32_t i = 0; i < 64 * D / 8; i += 256) {
        const uint32_t line = (i + threadIdx.x) / (D / 8), piece = (i + threadIdx.x) % (D / 8);
        const uint32_t page = line < 32 ? pages.x : pages.y;
        const bool is_there = page != ~0u && first + line < source.len;
        const uint8_t *from = common_ptr<const uint8_t>(a.kv.pool), *from_v = from;
        if (is_there) {
            from += page * a.kv.page_size +
                    (((size_t)source.head * 32 + line % 32) * D + piece * 8) * 2;
            from_v = from + a.kv.v_offset;
        }
        const uint32_t at = attend_wide_at(64, line, piece), size = is_there ? 16 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(k + at), "l"(from),
                     "r"(size)
                     : "memory");
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(v + at), "l"(from_v),
                     "r"(size)
                     : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Scores of two units: query in two parts from q on, the sums of attend_scores in its order. */
template <int D>
static __device__ __forceinline__ void attend_scores_wide(float (&c)[2][4][4], uint32_t q,
                                                          uint32_t k)
{
    const uint64_t high = wgmma_wide(q), low = wgmma_wide(q + ATTEND_ROWS * D * 2);
    const uint64_t keys = wgmma_wide(k);
    float(&all)[32] = *reinterpret_cast<float(*)[32]>(&c);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        const uint64_t of_q = step / 4 * ATTEND_ROWS * 8 + step % 4 * 2;
        const uint64_t of_k = step / 4 * 64 * 8 + step % 4 * 2;
        wgmma_mma_tiles(all, low + of_q, keys + of_k, step > 0);
        wgmma_mma_tiles(all, high + of_q, keys + of_k, 1);
    }
    wgmma_commit();
    wgmma_wait();
}

/* Weights of a unit times its V, under way when this returns. */
template <int D>
static __device__ __forceinline__ void attend_values_wide(attend_sum<D> &s, const float (&c)[4][4],
                                                          uint32_t v)
{
    uint32_t high[2][4], low[2][4];
    const uint64_t values = wgmma_across(v, 64 * 128);
    float(&o)[D / 2] = *reinterpret_cast<float(*)[D / 2]>(&s.o);
    attend_halves(high[0], low[0], c, 0);
    attend_halves(high[1], low[1], c, 1);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 2; step++) {
        wgmma_mma_across(o, low[step], values + step * 128, step > 0);
        wgmma_mma_across(o, high[step], values + step * 128, 1);
    }
    wgmma_commit();
}

/* A stage of 64 positions joins the block's sums. */
template <int D>
static __device__ __forceinline__ void attend_stage_wide(attend_sum<D> &block,
                                                         const attend_view &view, uint32_t first,
                                                         uint32_t q, uint32_t k)
{
    const uint32_t v = k + 64 * D * 2;
    float c[2][4][4], most[2], weight[2];
    attend_sum<D> unit;
    attend_scores_wide<D>(c, q, k);
    attend_mask(c[0], view, first);
    attend_weights(unit.most, unit.weight, c[0]);
    attend_values_wide<D>(unit, c[0], v);
    attend_mask(c[1], view, first + ATTEND_UNIT);
    attend_weights(most, weight, c[1]);
    wgmma_wait();
    attend_join<D>(block, unit);
    attend_values_wide<D>(unit, c[1], v + ATTEND_UNIT * 128);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        unit.most[h] = most[h];
        unit.weight[h] = weight[h];
    }
    wgmma_wait();
    attend_join<D>(block, unit);
}

/* Stages first .. last of a sequence, for the rows that `view` shows. */
template <int D>
static __device__ __forceinline__ void attend_walk(const cuda_attn_args &a, uint8_t *shared,
                                                   const attend_source &source,
                                                   const attend_view &view, uint32_t first,
                                                   uint32_t last)
{
    using layout = attend_layout<D>;
    const uint32_t ring = attend_shared(shared + layout::ring);
    const uint32_t q = attend_shared(shared + layout::q_high) + threadIdx.x / 128 * 64 * 128;
    attend_fetch_wide<D>(a, source, attend_pages(source, first * 64), first * 64,
                         ring + (first & 1) * layout::stage);
    uint2 pages = attend_pages(source, (first + 1) * 64);
    attend_sum<D> block;
    for (uint32_t s = first; s < last; s++) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        wgmma_fence_shared();
        __syncthreads();
        if (s + 1 < last) {
            attend_fetch_wide<D>(a, source, pages, (s + 1) * 64, ring + (~s & 1) * layout::stage);
            pages = attend_pages(source, (s + 2) * 64);
        }
        if ((s & 1) == 0)
            attend_clear<D>(block);
        attend_stage_wide<D>(block, view, s * 64, q, ring + (s & 1) * layout::stage);
        if (s & 1)
            attend_keep<D>((float4 *)(shared + layout::total), (float *)(shared + layout::most),
                           (float *)(shared + layout::weight), block);
    }
    __syncthreads();
}

#else
#define ATTEND_IS_WIDE false

/* The same on the tensor cores of a warp. */
template <int D>
static __device__ __forceinline__ void attend_walk(const cuda_attn_args &a, uint8_t *shared,
                                                   const attend_source &source,
                                                   const attend_view &view, uint32_t first,
                                                   uint32_t last)
{
    using layout = attend_layout<D>;
    const uint32_t ring = attend_shared(shared + layout::ring);
    attend_fetch<D>(a, source,
                    {first * 64, 64, ring, ring + layout::stage / 2, threadIdx.x, 256});
    attend_tiles tiles = {attend_shared(shared + layout::q_high),
                          attend_shared(shared + layout::q_low), threadIdx.x / 32 * 16, 0, 0, 0};
    attend_sum<D> block;
    for (uint32_t s = first; s < last; s++) {
        const uint32_t here = ring + (s & 1) * layout::stage;
        const uint32_t next = ring + (~s & 1) * layout::stage;
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
        if (s + 1 < last)
            attend_fetch<D>(
                a, source,
                {(s + 1) * 64, 64, next, next + layout::stage / 2, threadIdx.x, 256});
        if ((s & 1) == 0)
            attend_clear<D>(block);
#pragma unroll 1
        for (uint32_t u = 0; u < 2; u++) {
            float c[4][4];
            attend_sum<D> unit;
            tiles.k = here;
            tiles.v = here + layout::stage / 2;
            tiles.row = u * ATTEND_UNIT;
            attend_scores<D>(c, tiles, view, s * 64 + u * ATTEND_UNIT);
            attend_values<D>(unit, c, tiles);
            attend_join<D>(block, unit);
        }
        if (s & 1)
            attend_keep<D>((float4 *)(shared + layout::total), (float *)(shared + layout::most),
                           (float *)(shared + layout::weight), block);
    }
    __syncthreads();
}
#endif

/* Rows begin .. end of one sequence in this block's tile: all their positions. */
template <int D>
static __device__ __forceinline__ void attend_sequence(const cuda_attn_args &a, uint8_t *shared,
                                                       uint32_t first_row, uint32_t begin,
                                                       uint32_t end)
{
    using layout = attend_layout<D>;
    const uint32_t head = blockIdx.x, group = a.heads / a.kv.kv_heads;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const uint32_t seq = common_ptr<const uint32_t>(a.seq)[begin];
    attend_view view = {{0, 0}, {0, 0}, a.softcap};
    uint32_t low = ~0u, high = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t row = first_row + (warp * 16 + (lane >> 2) + 8 * h) / group;
        if (row >= begin && row < end)
            common_range(a, row, seq, &view.from[h], &view.to[h]);
    }
    uint32_t first, last, unused;
    common_range(a, begin, seq, &low, &unused);
    common_range(a, end - 1, seq, &unused, &high);
    first = low / CUDA_ATTEND_BLOCK * 2; /* stages of 64 positions, whole blocks */
    last = (high + CUDA_ATTEND_BLOCK - 1) / CUDA_ATTEND_BLOCK * 2;
    attend_walk<D>(a, shared, attend_source_of(a, head, seq), view, first, last);
}

/* grid: x = kv heads, y = tiles of 128 (row, head of the group), of all heads the last first since
 * it sees most: no long one is left at the end. A tile's rows may be of several sequences: one
 * after the other. */
template <int D> static __device__ __forceinline__ void attend_tile(const cuda_attn_args &a)
{
    extern __shared__ __align__(1024) uint8_t attend_memory[];
    using layout = attend_layout<D>;
    common_release();
    common_wait();
    const uint32_t head = blockIdx.x, group = a.heads / a.kv.kv_heads;
    const uint32_t each = ATTEND_ROWS / group, first_row = (gridDim.y - 1 - blockIdx.y) * each;
    const uint32_t rows = min(each, a.rows - first_row), lane = threadIdx.x & 31;
    float *most = (float *)(attend_memory + layout::most);
    float *weight = (float *)(attend_memory + layout::weight);
    float4 *total = (float4 *)(attend_memory + layout::total);
    for (uint32_t i = threadIdx.x; i < ATTEND_ROWS * D / 2; i += 256) {
        const uint32_t line = i / (D / 2);
        attend_query<D, ATTEND_IS_WIDE>(a, attend_memory + layout::q_high,
                                        attend_memory + layout::q_low,
                                        {line, first_row + line / group,
                                         head * group + line % group, i % (D / 2) * 2,
                                         line < rows * group});
    }
    for (uint32_t n = 0; n < D / 8; n++)
        total[n * 256 + threadIdx.x] = {0, 0, 0, 0};
    if (threadIdx.x < ATTEND_ROWS) {
        const bool has_sink = a.sinks && threadIdx.x < rows * group;
        const float *sinks = common_ptr<const float>(a.sinks);
        most[threadIdx.x] = has_sink ? __fmul_rn(sinks[head * group + threadIdx.x % group],
                                                 COMMON_LOG2_E)
                                     : -COMMON_INFINITY;
        weight[threadIdx.x] = has_sink ? 1.0f : 0.0f;
    }
    __syncthreads();
    const uint32_t *seq = common_ptr<const uint32_t>(a.seq);
    for (uint32_t begin = first_row, end; begin < first_row + rows; begin = end) {
        for (end = begin + 1; end < first_row + rows && seq[end] == seq[begin];)
            end++;
        attend_sequence<D>(a, attend_memory, first_row, begin, end);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t line = threadIdx.x / 32 * 16 + (lane >> 2) + 8 * h;
        if (line >= rows * group)
            continue;
        float *out = common_ptr<float>(a.out) +
                     ((size_t)(first_row + line / group) * a.heads + head * group + line % group) *
                         D +
                     2 * (lane & 3);
        const float w = weight[line];
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            const float4 x = total[n * 256 + threadIdx.x];
            *reinterpret_cast<float2 *>(out + 8 * n) = {__fdiv_rn(h ? x.z : x.x, w),
                                                        __fdiv_rn(h ? x.w : x.y, w)};
        }
    }
}

#define ATTEND(D)                                                                                  \
    KERNEL __launch_bounds__(128) attend_part_##D(const __grid_constant__ cuda_attn_args a)        \
    {                                                                                              \
        attend_block<D>(a);                                                                        \
    }                                                                                              \
    KERNEL __launch_bounds__(256, 1) attend_rows_##D(const __grid_constant__ cuda_attn_args a)     \
    {                                                                                              \
        attend_tile<D>(a);                                                                         \
    }
ATTEND(64)
ATTEND(128)
