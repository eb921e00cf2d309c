/* attend - attention on the tensor cores: heads of 64 or 128 columns, K and V f16 or int8 in pages.
 *
 * Four units of 32 positions (attend.cuh) make a block, added in their order; blocks are added in
 * theirs. So a row's bits depend on its own query, K and V alone, and two kernels share the
 * arithmetic:
 *
 *     attend_part   a block of positions, one query row: few rows; attn_merge adds the blocks
 *     attend_rows   128 rows walk over all positions: prompts
 */
#include "cuda/attend.cuh"
#include "cuda/cuda_wgmma.cuh"

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

/* Of a row in a unit's room: sums, maximum, weight, with int8 up too; an even number of floats. */
template <int D, bool IS_INT8> struct attend_room {
    static constexpr uint32_t width = IS_INT8 ? D + 4 : D + 2;
};

/* A unit's sums into its room. */
template <int D, bool IS_INT8>
static __device__ __forceinline__ void attend_store_unit(const attend_sum<D> &s, float *room,
                                                         uint32_t group)
{
    const uint32_t g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (g + 8 * h >= group)
            continue;
        float *to_row = room + (g + 8 * h) * attend_room<D, IS_INT8>::width;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            *reinterpret_cast<float2 *>(to_row + 8 * n + 2 * t) = {s.o[n][2 * h],
                                                                   s.o[n][2 * h + 1]};
        if (t == 0)
            *reinterpret_cast<float2 *>(to_row + D) = {s.most[h], s.weight[h]};
        if constexpr (IS_INT8)
            if (t == 0)
                to_row[D + 2] = s.up[h];
    }
}

/* The units of a block, in their order, into its part. */
template <int D, bool IS_INT8>
static __device__ __forceinline__ void attend_join_units(const cuda_attn_args &a,
                                                         const uint8_t *rooms, uint32_t room_size)
{
    const uint32_t head = blockIdx.y, row = blockIdx.z, group = a.heads / a.kv.kv_heads;
    for (uint32_t i = threadIdx.x; i < group * D; i += 128) {
        const uint32_t h = i / D, column = i % D;
        float most = -COMMON_INFINITY, weight = 0, y = 0;
        for (uint32_t w = 0; w < CUDA_ATTEND_BLOCK / ATTEND_UNIT; w++) {
            const float *u =
                (const float *)(rooms + w * room_size) + h * attend_room<D, IS_INT8>::width;
            float x, z;
            common_join_factors(most, u[D], &x, &z);
            most = fmaxf(most, u[D]);
            weight = common_join(weight, u[D + 1], x, z);
            y = common_join(y, u[column], x, IS_INT8 ? __fmul_rn(z, u[D + 2]) : z);
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

/* grid: x = blocks of positions, y = kv heads, z = rows; a warp per unit. Shared: query high, low
 * [16][D], K, V [128][D]; later the units' sums over K and V. Of int8 only K: V waits as codes in
 * registers until K is read, and a unit has 256 bytes more for its sums; so more blocks have room,
 * which is what hides the unpacking. */
template <int D, bool IS_INT8>
static __device__ __forceinline__ void attend_block(const cuda_attn_args &a)
{
    extern __shared__ __align__(1024) uint8_t attend_memory[];
    uint8_t *q_high = attend_memory, *q_low = q_high + 16 * D * 2, *kv = q_low + 16 * D * 2;
    common_release();
    common_wait();
    const uint32_t head = blockIdx.y, row = blockIdx.z, group = a.heads / a.kv.kv_heads;
    const uint32_t seq = common_ptr<const uint32_t>(a.seq)[row], first = blockIdx.x * a.block;
    const uint32_t warp = threadIdx.x / 32;
    uint32_t from, to;
    common_range(a, row, seq, &from, &to);
    if (first >= to || first + a.block <= from)
        return;
    constexpr uint32_t tile = ATTEND_UNIT * D * 2;
    constexpr uint32_t room_size = IS_INT8 ? tile + 256 : 2 * tile; /* of a unit's sums */
    const uint32_t unit = first + warp * ATTEND_UNIT;
    const uint32_t k = attend_shared(kv) + (IS_INT8 ? warp * room_size : 0);
    const uint32_t v = IS_INT8 ? k : k + CUDA_ATTEND_BLOCK * D * 2;
    const uint32_t line = IS_INT8 ? 0 : warp * ATTEND_UNIT; /* of the warp in k and v */
    const attend_source source = attend_source_of(a, head, seq);
    attend_unit<D> raw; /* int8 */
    if constexpr (IS_INT8) {
        attend_take_unit<D>(raw, a, source, unit);
    } else {
        attend_fetch_unit<D>(a, source, unit, 0, k + warp * tile);
        attend_fetch_unit<D>(a, source, unit, a.kv.v_offset, v + warp * tile);
        raw.scales = {1.0f, 1.0f};
    }
    for (uint32_t i = threadIdx.x; i < 16 * D / 2; i += 128) {
        const uint32_t of = i / (D / 2);
        attend_query<D, false>(a, q_high, q_low,
                               {of, row, head * group + of, i % (D / 2) * 2, of < group});
    }
    if constexpr (IS_INT8)
        attend_put_unit<D>(raw.k, k);
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    const attend_view view = {{from, from}, {to, to}, a.softcap};
    const attend_tiles tiles = {attend_shared(q_high), attend_shared(q_low), 0, k, v, line};
    float c[4][4];
    attend_sum<D> s;
    attend_scores<D>(c, tiles);
    if constexpr (IS_INT8) {
        __syncwarp(); /* K is read */
        attend_put_unit<D>(raw.v, v);
    }
    attend_mask<IS_INT8>(c, view, unit, raw.scales);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
    attend_values<D, IS_INT8>(s, c, tiles, raw.scales);
    __syncthreads(); /* K and V are read */
    attend_store_unit<D, IS_INT8>(s, (float *)(kv + warp * room_size), group);
    __syncthreads();
    attend_join_units<D, IS_INT8>(a, kv, room_size);
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
struct attend_stage {
    uint32_t first, q, k; /* position; tiles */
    attend_scales scales[2];
};

template <int D, bool IS_INT8>
static __device__ __forceinline__ void attend_stage_wide(attend_sum<D> &block,
                                                         const attend_view &view,
                                                         const attend_stage &at)
{
    const uint32_t v = at.k + 64 * D * 2;
    float c[2][4][4];
    attend_sum<D> unit, next; /* next: all but o */
    attend_scores_wide<D>(c, at.q, at.k);
    attend_mask<IS_INT8>(c[0], view, at.first, at.scales[0]);
    attend_weights<D, IS_INT8>(unit, c[0], at.scales[0]);
    attend_values_wide<D>(unit, c[0], v);
    attend_mask<IS_INT8>(c[1], view, at.first + ATTEND_UNIT, at.scales[1]);
    attend_weights<D, IS_INT8>(next, c[1], at.scales[1]);
    wgmma_wait();
    attend_join<D, IS_INT8>(block, unit);
    attend_values_wide<D>(unit, c[1], v + ATTEND_UNIT * 128);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        unit.most[h] = next.most[h];
        unit.weight[h] = next.weight[h];
        if constexpr (IS_INT8)
            unit.up[h] = next.up[h];
    }
    wgmma_wait();
    attend_join<D, IS_INT8>(block, unit);
}

/* Stages first .. last of a sequence, for the rows that `view` shows. */
template <int D, bool IS_INT8>
static __device__ __forceinline__ void attend_walk(const cuda_attn_args &a, uint8_t *shared,
                                                   const attend_source &source,
                                                   const attend_view &view, uint32_t first,
                                                   uint32_t last)
{
    using layout = attend_layout<D>;
    const uint32_t ring = attend_shared(shared + layout::ring);
    attend_stage at = {0, attend_shared(shared + layout::q_high) + threadIdx.x / 128 * 64 * 128};
    attend_raw<D> raw;
    uint2 pages = {0, 0};
    if constexpr (IS_INT8) {
        attend_take<D>(raw, a, source, first * 64);
    } else {
        attend_fetch_wide<D>(a, source, attend_pages(source, first * 64), first * 64,
                             ring + (first & 1) * layout::stage);
        pages = attend_pages(source, (first + 1) * 64);
    }
    attend_sum<D> block;
    for (uint32_t s = first; s < last; s++) {
        at.first = s * 64;
        at.k = ring + (s & 1) * layout::stage;
        if constexpr (IS_INT8) {
            attend_put_raw<D, true>(raw, at.k, at.k + layout::stage / 2);
            at.scales[0] = raw.scales[0];
            at.scales[1] = raw.scales[1];
        } else {
            asm volatile("cp.async.wait_all;" ::: "memory");
        }
        wgmma_fence_shared();
        __syncthreads();
        if (s + 1 < last) {
            if constexpr (IS_INT8) {
                attend_take<D>(raw, a, source, (s + 1) * 64);
            } else {
                attend_fetch_wide<D>(a, source, pages, (s + 1) * 64,
                                     ring + (~s & 1) * layout::stage);
                pages = attend_pages(source, (s + 2) * 64);
            }
        }
        if ((s & 1) == 0)
            attend_clear<D>(block);
        attend_stage_wide<D, IS_INT8>(block, view, at);
        if (s & 1)
            attend_keep<D>((float4 *)(shared + layout::total), (float *)(shared + layout::most),
                           (float *)(shared + layout::weight), block);
    }
    __syncthreads();
}

#else
#define ATTEND_IS_WIDE false

/* The same on the tensor cores of a warp. */
template <int D, bool IS_INT8>
static __device__ __forceinline__ void attend_walk(const cuda_attn_args &a, uint8_t *shared,
                                                   const attend_source &source,
                                                   const attend_view &view, uint32_t first,
                                                   uint32_t last)
{
    using layout = attend_layout<D>;
    const uint32_t ring = attend_shared(shared + layout::ring);
    attend_raw<D> raw;
    attend_scales scales[2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};
    if constexpr (IS_INT8)
        attend_take<D>(raw, a, source, first * 64);
    else
        attend_fetch<D>(a, source,
                        {first * 64, 64, ring, ring + layout::stage / 2, threadIdx.x, 256});
    attend_tiles tiles = {attend_shared(shared + layout::q_high),
                          attend_shared(shared + layout::q_low), threadIdx.x / 32 * 16, 0, 0, 0};
    attend_sum<D> block;
    for (uint32_t s = first; s < last; s++) {
        const uint32_t here = ring + (s & 1) * layout::stage;
        const uint32_t next = ring + (~s & 1) * layout::stage;
        if constexpr (IS_INT8) {
            attend_put_raw<D, false>(raw, here, here + layout::stage / 2);
            scales[0] = raw.scales[0];
            scales[1] = raw.scales[1];
        } else {
            asm volatile("cp.async.wait_all;" ::: "memory");
        }
        __syncthreads();
        if (s + 1 < last) {
            if constexpr (IS_INT8)
                attend_take<D>(raw, a, source, (s + 1) * 64);
            else
                attend_fetch<D>(
                    a, source,
                    {(s + 1) * 64, 64, next, next + layout::stage / 2, threadIdx.x, 256});
        }
        if ((s & 1) == 0)
            attend_clear<D>(block);
#pragma unroll 1
        for (uint32_t u = 0; u < 2; u++) {
            float c[4][4];
            attend_sum<D> unit;
            tiles.k = here;
            tiles.v = here + layout::stage / 2;
            tiles.row = u * ATTEND_UNIT;
            attend_scores<D>(c, tiles);
            const attend_scales &scale = u ? scales[1] : scales[0];
            attend_mask<IS_INT8>(c, view, s * 64 + u * ATTEND_UNIT, scale);
            attend_values<D, IS_INT8>(unit, c, tiles, scale);
            attend_join<D, IS_INT8>(block, unit);
        }
        if (s & 1)
            attend_keep<D>((float4 *)(shared + layout::total), (float *)(shared + layout::most),
                           (float *)(shared + layout::weight), block);
    }
    __syncthreads();
}
#endif

/* Rows begin .. end of one sequence in this block's tile: all their positions. */
template <int D, bool IS_INT8>
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
    attend_walk<D, IS_INT8>(a, shared, attend_source_of(a, head, seq), view, first, last);
}

/* grid: x = kv heads, y = tiles of 128 (row, head of the group), of all heads the last first since
 * it sees most: no long one is left at the end. A tile's rows may be of several sequences: one
 * after the other. */
template <int D, bool IS_INT8>
static __device__ __forceinline__ void attend_tile(const cuda_attn_args &a)
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
        attend_sequence<D, IS_INT8>(a, attend_memory, first_row, begin, end);
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

/* bounds: of attend_part: threads, and blocks that a multiprocessor has room for at least. */
#define ATTEND(D, name, is_int8, bounds)                                                           \
    KERNEL __launch_bounds__ bounds attend_part_##name(const __grid_constant__ cuda_attn_args a)   \
    {                                                                                              \
        attend_block<D, is_int8>(a);                                                               \
    }                                                                                              \
    KERNEL __launch_bounds__(256, 1) attend_rows_##name(const __grid_constant__ cuda_attn_args a)  \
    {                                                                                              \
        attend_tile<D, is_int8>(a);                                                                \
    }
ATTEND(64, 64, false, (128))
ATTEND(128, 128, false, (128))
ATTEND(64, int8_64, true, (128, 7))
ATTEND(128, int8_128, true, (128, 5))
