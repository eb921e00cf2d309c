/* attn - attention over paged K and V for any head size, split by fixed blocks of 256 positions.
 *
 * attn_part: a block takes one row, one K/V head and one block of positions for all the query heads
 * of the group, so K and V are read once per group. It leaves sum, maximum and weight per head.
 * attn_merge: adds the parts in the order of their positions (attend.cu's too). Neither depends on
 * the batch. Heads of 64 and 128 columns take attend.cu, at any number of rows.
 */
#include "cuda/cuda_common.cuh"

#define ATTN_THREADS 256  /* a thread per position, a warp per page */
#define ATTN_GROUP_MAX 16 /* query heads per K/V head */

static __device__ __forceinline__ float attn_dot8(const float f[8], const float *q, float s)
{
    const float4 a = *reinterpret_cast<const float4 *>(q);
    const float4 b = *reinterpret_cast<const float4 *>(q + 4);
    s = fmaf(a.w, f[3], fmaf(a.z, f[2], fmaf(a.y, f[1], fmaf(a.x, f[0], s))));
    return fmaf(b.w, f[7], fmaf(b.z, f[6], fmaf(b.y, f[5], fmaf(b.x, f[4], s))));
}

/* Eight columns as floats: f16, or int8 without their scale. */
template <bool IS_INT8>
static __device__ __forceinline__ void attn_take8(float (&f)[8], const uint8_t *from)
{
    if constexpr (IS_INT8) {
        const uint2 v = *reinterpret_cast<const uint2 *>(from);
        const int8_t *code = reinterpret_cast<const int8_t *>(&v);
#pragma unroll
        for (int i = 0; i < 8; i++)
            f[i] = (float)code[i];
    } else {
        const uint4 v = *reinterpret_cast<const uint4 *>(from);
        const __half2 *half = reinterpret_cast<const __half2 *>(&v);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 x = __half22float2(half[i]);
            f[2 * i] = x.x;
            f[2 * i + 1] = x.y;
        }
    }
}

/* Four columns. */
template <bool IS_INT8>
static __device__ __forceinline__ float4 attn_take4(const uint8_t *from)
{
    if constexpr (IS_INT8) {
        const char4 v = *reinterpret_cast<const char4 *>(from);
        return {(float)v.x, (float)v.y, (float)v.z, (float)v.w};
    } else {
        const uint2 raw = *reinterpret_cast<const uint2 *>(from);
        const float2 x = __half22float2(*reinterpret_cast<const __half2 *>(&raw.x));
        const float2 y = __half22float2(*reinterpret_cast<const __half2 *>(&raw.y));
        return {x.x, x.y, y.x, y.y};
    }
}

/* Scale of a token of int8, behind all codes of its head. */
static __device__ __forceinline__ float attn_scale(const uint8_t *head, uint32_t columns,
                                                   uint32_t token)
{
    return __half2float(((const __half *)(head + 32 * columns))[token]);
}

/* Scores of this thread's position for all heads of the group. */
template <int G, bool IS_INT8>
static __device__ __forceinline__ void attn_scores(const cuda_attn_args &a, const uint8_t *page,
                                                   const float *q, float *p, uint32_t head)
{
    constexpr uint32_t size = IS_INT8 ? 1 : 2;
    const uint8_t *of_head = page + (size_t)head * a.kv.k_size;
    const uint8_t *k = of_head + (threadIdx.x & 31) * a.kv.dk * size;
    float s[G], scale = 1.0f;
    if constexpr (IS_INT8)
        scale = attn_scale(of_head, a.kv.dk, threadIdx.x & 31);
#pragma unroll
    for (int h = 0; h < G; h++)
        s[h] = 0;
#pragma unroll 8
    for (uint32_t c = 0; c < a.kv.dk / 8; c++) {
        float f[8];
        attn_take8<IS_INT8>(f, k + c * 8 * size);
#pragma unroll
        for (int h = 0; h < G; h++)
            s[h] = attn_dot8(f, q + h * a.kv.dk + c * 8, s[h]);
    }
#pragma unroll
    for (int h = 0; h < G; h++) {
        float x = __fmul_rn(IS_INT8 ? __fmul_rn(s[h], scale) : s[h], a.scale);
        if (a.softcap != 0)
            x = __fmul_rn(a.softcap, tanhf(__fdiv_rn(x, a.softcap)));
        x = __fmul_rn(x, COMMON_LOG2_E);
        p[h * CUDA_ATTN_BLOCK + threadIdx.x] = x;
    }
}

/* Scores become weights; a warp per head. Leaves maximum and sum in the part. */
static __device__ __forceinline__ void attn_weights(float *p, float *part, uint32_t group,
                                                    uint32_t blocks, uint32_t dv)
{
    const uint32_t lane = threadIdx.x & 31;
    for (uint32_t h = threadIdx.x / 32; h < group; h += ATTN_THREADS / 32) {
        float *w = p + h * CUDA_ATTN_BLOCK, most = -COMMON_INFINITY, total = 0, x[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            most = fmaxf(most, x[i] = w[i * 32 + lane]);
        for (int d = 16; d; d >>= 1)
            most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
#pragma unroll
        for (int i = 0; i < 8; i++) {
            w[i * 32 + lane] = x[i] = exp2f(__fsub_rn(x[i], most));
            total = __fadd_rn(total, x[i]);
        }
        for (int d = 16; d; d >>= 1)
            total = __fadd_rn(total, __shfl_xor_sync(~0u, total, d));
        if (lane == 0) {
            part[(size_t)h * blocks * (dv + 2) + dv] = most;
            part[(size_t)h * blocks * (dv + 2) + dv + 1] = total;
        }
    }
}

/* This warp's page times its weights: columns 4 * lane .. of each 128, into room[warp][h][dv]. */
template <int G, bool IS_INT8>
static __device__ __forceinline__ void attn_values(const cuda_attn_args &a, const uint8_t *page,
                                                   const float *p, float *room, uint32_t head,
                                                   uint32_t low, uint32_t high)
{
    constexpr uint32_t size = IS_INT8 ? 1 : 2;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31, dv = a.kv.dv;
    for (uint32_t c = 4 * lane; c < dv; c += 128) {
        float s[G][4];
#pragma unroll
        for (int h = 0; h < G; h++)
            s[h][0] = s[h][1] = s[h][2] = s[h][3] = 0;
        const uint8_t *v = page + a.kv.v_offset + (size_t)head * a.kv.v_size;
#pragma unroll 16
        for (uint32_t t = low; t < high; t++) {
            const float4 x = attn_take4<IS_INT8>(v + (t * dv + c) * size);
            float scale = 1.0f;
            if constexpr (IS_INT8)
                scale = attn_scale(v, dv, t);
#pragma unroll
            for (int h = 0; h < G; h++) {
                float w = p[h * CUDA_ATTN_BLOCK + warp * 32 + t];
                if constexpr (IS_INT8)
                    w = __fmul_rn(w, scale);
                s[h][0] = fmaf(w, x.x, s[h][0]);
                s[h][1] = fmaf(w, x.y, s[h][1]);
                s[h][2] = fmaf(w, x.z, s[h][2]);
                s[h][3] = fmaf(w, x.w, s[h][3]);
            }
        }
#pragma unroll
        for (int h = 0; h < G; h++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                room[((size_t)warp * G + h) * dv + c + j] = s[h][j];
    }
}

/* grid: x = blocks of positions, y = kv heads, z = rows. Shared: q[G][dk], p[G][256],
 * room[8][G][dv]. Blocks that a row does not see are left alone: attn_merge skips them too. */
template <int G, bool IS_INT8>
static __device__ __forceinline__ void attn_run(const cuda_attn_args &a)
{
    extern __shared__ float4 attn_shared[];
    float *shared = (float *)attn_shared;
    common_release();
    common_wait();
    const uint32_t head = blockIdx.y, row = blockIdx.z, group = a.heads / a.kv.kv_heads;
    const uint32_t first = blockIdx.x * CUDA_ATTN_BLOCK, dk = a.kv.dk, dv = a.kv.dv;
    const uint32_t seq = common_ptr<const uint32_t>(a.seq)[row], warp = threadIdx.x / 32;
    uint32_t from, to;
    common_range(a, row, seq, &from, &to);
    if (first >= to || first + CUDA_ATTN_BLOCK <= from)
        return;
    const uint32_t *pages = common_ptr<const uint32_t>(a.kv.pages) + (size_t)seq * a.kv.pages_max;
    float *q = shared, *p = q + G * dk, *room = p + G * CUDA_ATTN_BLOCK;
    const uint32_t low = max(first + warp * 32, from), high = min(first + warp * 32 + 32, to);
    const uint8_t *page = common_ptr<const uint8_t>(a.kv.pool);
    if (low < high)
        page += pages[first / 32 + warp] * a.kv.page_size;
    for (uint32_t i = threadIdx.x; i < G * dk; i += ATTN_THREADS)
        q[i] = i < group * dk ? common_view(a.q, row, head * group * dk + i) : 0;
    __syncthreads();
    const uint32_t pos = first + threadIdx.x;
    if (pos >= from && pos < to)
        attn_scores<G, IS_INT8>(a, page, q, p, head);
    else
        for (int h = 0; h < G; h++)
            p[h * CUDA_ATTN_BLOCK + threadIdx.x] = -COMMON_INFINITY;
    __syncthreads();
    float *part = common_ptr<float>(a.part) +
                  (((size_t)row * a.heads + head * group) * a.blocks + blockIdx.x) * (dv + 2);
    attn_weights(p, part, group, a.blocks, dv);
    __syncthreads();
    attn_values<G, IS_INT8>(a, page, p, room, head, low < high ? low & 31 : 0,
                            low < high ? ((high - 1) & 31) + 1 : 0);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < group * dv; i += ATTN_THREADS) {
        uint32_t h = i / dv, c = i % dv;
        float s = room[(size_t)h * dv + c];
        for (uint32_t w = 1; w < ATTN_THREADS / 32; w++)
            s = __fadd_rn(s, room[((size_t)w * G + h) * dv + c]);
        part[(size_t)h * a.blocks * (dv + 2) + c] = s;
    }
}

#define ATTN(G)                                                                                    \
    KERNEL __launch_bounds__(ATTN_THREADS) attn_part_##G(const __grid_constant__ cuda_attn_args a) \
    {                                                                                              \
        attn_run<G, false>(a);                                                                     \
    }                                                                                              \
    KERNEL __launch_bounds__(ATTN_THREADS)                                                         \
        attn_part_int8_##G(const __grid_constant__ cuda_attn_args a)                               \
    {                                                                                              \
        attn_run<G, true>(a);                                                                      \
    }
ATTN(1)
ATTN(2) ATTN(4) ATTN(8) ATTN(16)

/* Sum over the parts of one head in the order of their positions, the sink first; the lanes have 32
 * columns of it from p on. A lane works out the factors of one part: maxima so far are a scan, and
 * no exponential waits for another. Left in a chain: a product and a sum per part. */
static __device__ __forceinline__ float attn_join(const float *p, const float *parts, uint32_t dv,
                                                  uint32_t count, bool has_sink, float sink)
{
    const uint32_t lane = threadIdx.x & 31;
    float most = has_sink ? sink : -COMMON_INFINITY;
    float total = has_sink ? 1.0f : 0.0f, y = 0;
    for (uint32_t first = 0; first < count; first += 32) {
        const uint32_t n = min(count - first, 32u);
        float x[32], max = -COMMON_INFINITY, weight = 0, f, g;
#pragma unroll
        for (uint32_t i = 0; i < 32; i++) /* all on their way before the first is waited for */
            x[i] = i < n ? p[(size_t)(first + i) * (dv + 2)] : 0.0f;
        if (lane < n) {
            max = parts[(size_t)(first + lane) * (dv + 2) + dv];
            weight = parts[(size_t)(first + lane) * (dv + 2) + dv + 1];
        }
        float here = fmaxf(max, most);
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const float left = __shfl_up_sync(~0u, here, d);
            here = lane >= d ? fmaxf(here, left) : here;
        }
        const float left = __shfl_up_sync(~0u, here, 1);
        common_join_factors(lane ? left : most, max, &f, &g);
        most = __shfl_sync(~0u, here, 31);
#pragma unroll
        for (uint32_t i = 0; i < 32; i++) {
            if (i >= n)
                break;
            const float earlier = __shfl_sync(~0u, f, i), later = __shfl_sync(~0u, g, i);
            total = common_join(total, __shfl_sync(~0u, weight, i), earlier, later);
            y = common_join(y, x[i], earlier, later);
        }
    }
    return __fdiv_rn(y, total);
}

/* grid: x = columns / 256, y = rows; a thread per column, a warp per head and again where its
 * columns reach into the next. */
KERNEL __launch_bounds__(256) attn_merge(const __grid_constant__ cuda_attn_args a)
{
    __shared__ uint32_t room[8];
    common_release();
    common_wait();
    const uint32_t row = blockIdx.y, dv = a.kv.dv, at = blockIdx.x * 256 + threadIdx.x;
    const uint32_t end = a.heads * dv, first = at & ~31u;
    const uint32_t seq = common_ptr<const uint32_t>(a.seq)[row];
    const float *sinks = common_ptr<const float>(a.sinks);
    uint32_t from, to;
    common_range(a, row, seq, &from, &to);
    const uint32_t begin = from / a.block, count = (to - 1) / a.block - begin + 1;
    float y = 0;
    for (uint32_t head = first / dv; head * dv < min(first + 32, end); head++) {
        const float *parts = common_ptr<const float>(a.part) +
                             (((size_t)row * a.heads + head) * a.blocks + begin) * (dv + 2);
        const bool is_mine = at / dv == head;
        const float x = attn_join(parts + (is_mine ? at - head * dv : 0), parts, dv, count, sinks,
                                  sinks ? __fmul_rn(sinks[head], COMMON_LOG2_E) : 0.0f);
        y = is_mine ? x : y;
    }
    if (at < end)
        common_ptr<float>(a.out)[(size_t)row * end + at] = y;
    if (a.act.q)
        common_quantise(a.act, row, at, y, room);
}
