/* gemm - products of packed weights with many columns, on Hopper's warpgroup tensor cores.
 *
 * A block of two warpgroups, and a third of which one warp copies, makes 128 weight rows by 128
 * columns, or 32 where few meet a weight (for a glu: 64 rows of gate and the same of up). Two
 * blocks side by side work on the same columns: each fetches half of the inputs for both, since the
 * L2 cache is what limits. Weights come as packed records, and their codes become f16 in registers,
 * exactly. Inputs are int8 codes stored as f16 in the tiles that the tensor cores read
 * (common_image). Sums of a unit are integers below 2^24, so exact, and the floats that follow are
 * those of stream.cuh in the same order: class by class of records w, w + 8, ..., then the classes'
 * sums. A column's bits are the same in both.
 *
 *     ring of K = 64 steps:  inputs 16 KiB | with every fourth: 8 tiles' records, scales of inputs
 */
#include "cuda/cuda_bulk.cuh"
#include "cuda/cuda_dequant.cuh"
#include "cuda/cuda_wgmma.cuh"

#define GEMM_CONSUMERS 256
#define GEMM_THREADS CUDA_GEMM_THREADS

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- weights: bytes to f16 ---- */

/* N: columns of a tile, 128 or CUDA_GEMM_FEW. */
template <int FORMAT, int N> struct gemm_traits {
    static constexpr uint32_t record = dequant_layout_of(FORMAT).size;
    static constexpr bool is_k = dequant_is_k(FORMAT), has_min = dequant_has_min(FORMAT);
    static constexpr int unit = dequant_unit(FORMAT);
    static constexpr int planes = FORMAT == CUDA_FORMAT_Q6_K ? 2 : 1;
    static constexpr bool is_few = N == CUDA_GEMM_FEW;
    static constexpr int stages = is_few ? CUDA_GEMM_FEW_STAGES : CUDA_GEMM_STAGES(record);
    static_assert(stages <= 4 * CUDA_GEMM_SLOTS - 3, "a slot is free when its last step is");
    static constexpr uint32_t ring = 0, step = N * 128;
    static constexpr uint32_t heads = ring + stages * step;
    static constexpr uint32_t exchange = heads + CUDA_GEMM_SLOTS * CUDA_IMAGE_HEAD;
    static constexpr uint32_t weights = exchange + CUDA_GEMM_EXCHANGE;
    static constexpr uint32_t barriers = weights + CUDA_GEMM_SLOTS * CUDA_GEMM_TILES * record;
    static_assert(barriers + 256 == (is_few ? CUDA_GEMM_FEW_SIZE(record) : CUDA_GEMM_SIZE(record)),
                  "what the host reserves");
};

/* Where a lane reads its part of a record. */
struct gemm_lane {
    const uint8_t *rec;
    uint32_t lane, row; /* row g; the other is row + 8 */
};

static __device__ __forceinline__ uint32_t gemm_word(const uint4 &v, int j)
{
    return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w;
}

/* Codes of block `sub` (2 * step + nib): bytes of register j. */
template <int FORMAT> struct gemm_codes {
    uint4 low[FORMAT == CUDA_FORMAT_Q8_0 ? 2 : 1];
    uint32_t high[2];
    uint32_t scale[2], mins[2]; /* of rows g, g + 8: of both blocks */
};

template <int FORMAT>
static __device__ __forceinline__ void gemm_load(gemm_codes<FORMAT> &c, const gemm_lane &at,
                                                 uint32_t step)
{
    constexpr dequant_layout l = dequant_layout_of(FORMAT);
    const uint4 *q = reinterpret_cast<const uint4 *>(at.rec) + at.lane;
    if constexpr (FORMAT == CUDA_FORMAT_Q8_0) {
        c.low[0] = q[64 * step];
        c.low[1] = q[64 * step + 32];
    } else {
        c.low[0] = q[32 * step];
    }
    if constexpr (FORMAT == CUDA_FORMAT_Q6_K) {
        uint2 h = *reinterpret_cast<const uint2 *>(at.rec + l.high + at.lane * 32 + step * 8);
        c.high[0] = h.x;
        c.high[1] = h.y;
    } else if constexpr (l.high != 0) {
        c.high[0] = *reinterpret_cast<const uint32_t *>(at.rec + l.high + at.lane * 16 + step * 4);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t row = at.row + 8 * h;
        if constexpr (FORMAT == CUDA_FORMAT_Q6_K)
            c.scale[h] =
                *reinterpret_cast<const uint32_t *>(at.rec + l.scale + row * 16 + step * 4);
        else if constexpr (dequant_is_k(FORMAT))
            c.scale[h] = dequant_u16(at.rec + l.scale + row * 8 + step * 2);
        else
            c.scale[h] =
                *reinterpret_cast<const uint32_t *>(at.rec + l.scale + row * 16 + step * 4);
        if constexpr (!dequant_is_k(FORMAT) && dequant_has_min(FORMAT))
            c.mins[h] = *reinterpret_cast<const uint32_t *>(at.rec + l.mins + row * 16 + step * 4);
    }
}

static __device__ __forceinline__ __half2 gemm_half2(uint32_t x)
{
    return *reinterpret_cast<__half2 *>(&x);
}

static __device__ __forceinline__ uint32_t gemm_bits(__half2 x)
{
    return *reinterpret_cast<uint32_t *>(&x);
}

/* Two bytes as 1024 + byte in f16: 0x6400 is 1024, and its last bit counts 1. */
static __device__ __forceinline__ __half2 gemm_bytes(uint32_t v, uint32_t select)
{
    return gemm_half2(__byte_perm(v, 0x64646464u, select));
}

/* A byte of a scale word, twice, as f16. */
template <bool SIGNED>
static __device__ __forceinline__ __half2 gemm_scale(uint32_t word, int byte)
{
    const uint32_t select = 0x4040u + 0x0101u * (uint32_t)byte;
    if (SIGNED)
        return __hsub2(gemm_bytes(word ^ 0x80808080u, select), gemm_half2(0x64806480u));
    return __hsub2(gemm_bytes(word, select), gemm_half2(0x64006400u));
}

/* Fragments of the two halves of block nib of a step: a[half][4]; lo: what f16 cannot hold of
 * scale * code (Q6_K). */
template <int FORMAT>
static __device__ __forceinline__ void gemm_unpack(uint32_t (&a)[2][4], uint32_t (&lo)[2][4],
                                                   const gemm_codes<FORMAT> &c, int nib)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int half = j >> 1, h = j & 1;
        uint32_t v;
        if constexpr (FORMAT == CUDA_FORMAT_Q8_0) {
            v = gemm_word(c.low[nib], j) ^ 0x80808080u;
        } else {
            v = gemm_word(c.low[0], j);
            if constexpr (FORMAT == CUDA_FORMAT_MXFP4)
                v = dequant_e2m1(nib ? v >> 16 : v);
            else
                v = (nib ? v >> 4 : v) & 0x0f0f0f0fu;
            if constexpr (FORMAT == CUDA_FORMAT_Q6_K)
                v |= (c.high[nib] >> (2 * j) & 0x03030303u) << 4;
            else if constexpr (dequant_layout_of(FORMAT).high != 0)
                v |= (c.high[0] >> (4 * nib + j) & 0x01010101u) << 4;
        }
        constexpr int offset = FORMAT == CUDA_FORMAT_Q8_0 ? 128 : dequant_offset(FORMAT);
        const __half2 base = gemm_half2((0x6400u + offset) * 0x10001u);
#pragma unroll
        for (int w = 0; w < 2; w++) {
            const __half2 x = gemm_bytes(v, w ? 0x4342u : 0x4140u);
            if constexpr (FORMAT == CUDA_FORMAT_Q6_K) {
                const __half2 s = gemm_scale<true>(c.scale[h], 2 * nib + half);
                const __half2 code = __hsub2(x, base), y = __hmul2_rn(code, s);
                a[half][2 * w + h] = gemm_bits(y);
                lo[half][2 * w + h] = gemm_bits(__hfma2(code, s, __hneg2(y)));
            } else if constexpr (dequant_is_k(FORMAT)) {
                const __half2 s = gemm_scale<false>(c.scale[h], nib);
                a[half][2 * w + h] = gemm_bits(__hmul2_rn(__hsub2(x, base), s));
            } else {
                a[half][2 * w + h] = gemm_bits(__hsub2(x, base));
            }
        }
    }
}

/* ---- floats of a unit ---- */

/* Row factors of a record: d and -dmin of rows g and g + 8. */
struct gemm_super {
    float d[2], m[2];
};

template <int FORMAT>
static __device__ __forceinline__ gemm_super gemm_super_of(const gemm_lane &at)
{
    constexpr dequant_layout l = dequant_layout_of(FORMAT);
    gemm_super s = {};
    if constexpr (dequant_is_k(FORMAT))
        for (int h = 0; h < 2; h++) {
            const uint32_t row = at.row + 8 * h, each = FORMAT == CUDA_FORMAT_Q6_K ? 2 : 4;
            s.d[h] = common_half(dequant_u16(at.rec + l.super + row * each));
            if constexpr (dequant_has_min(FORMAT))
                s.m[h] = -common_half(dequant_u16(at.rec + l.super + row * each + 2));
        }
    return s;
}

/* acc += f[row] * factor[column] * c, one product and one fma as in stream.cuh. factors: those of
 * the tile's 128 columns. */
template <int R>
static __device__ __forceinline__ void gemm_add(float (&acc)[R], const float (&c)[R],
                                                const float f[2], const float *factors, uint32_t t)
{
#pragma unroll
    for (int n = 0; n < R / 4; n++) {
        const float2 d = *reinterpret_cast<const float2 *>(factors + 8 * n + 2 * t);
        acc[4 * n] = fmaf(__fmul_rn(f[0], d.x), c[4 * n], acc[4 * n]);
        acc[4 * n + 1] = fmaf(__fmul_rn(f[0], d.y), c[4 * n + 1], acc[4 * n + 1]);
        acc[4 * n + 2] = fmaf(__fmul_rn(f[1], d.x), c[4 * n + 2], acc[4 * n + 2]);
        acc[4 * n + 3] = fmaf(__fmul_rn(f[1], d.y), c[4 * n + 3], acc[4 * n + 3]);
    }
}

/* Minimums of types with a scale per 32: acc += m[row] * sum[column]. */
template <int R>
static __device__ __forceinline__ void gemm_add_mins(float (&acc)[R], const float m[2],
                                                     const float *sums, uint32_t t)
{
#pragma unroll
    for (int n = 0; n < R / 4; n++) {
        const float2 s = *reinterpret_cast<const float2 *>(sums + 8 * n + 2 * t);
        acc[4 * n] = fmaf(m[0], s.x, acc[4 * n]);
        acc[4 * n + 1] = fmaf(m[0], s.y, acc[4 * n + 1]);
        acc[4 * n + 2] = fmaf(m[1], s.x, acc[4 * n + 2]);
        acc[4 * n + 3] = fmaf(m[1], s.y, acc[4 * n + 3]);
    }
}

/* Fragments of the minimums of a K record: eight numbers, met by even part and last bit of sums. */
template <int FORMAT>
static __device__ __forceinline__ void gemm_mins(uint32_t (&a)[4], const gemm_lane &at)
{
    constexpr dequant_layout l = dequant_layout_of(FORMAT);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t v = dequant_u16(at.rec + l.mins + (at.row + 8 * h) * 8 + 2 * (at.lane & 3));
        a[h] = gemm_bits(__hsub2(gemm_bytes(v, 0x4140u), gemm_half2(0x64006400u)));
        a[2 + h] = a[h];
    }
}

/* ---- who does what ---- */

struct gemm_job {
    const cuda_segment *s;  /* glu: of the gate; the next is up */
    uint32_t group, column; /* tiles from group * 8 (glu: 4); tile of columns */
    uint32_t before;        /* tiles of the segments in front */
    uint32_t begin, end;    /* classes */
};

static __device__ __forceinline__ gemm_job gemm_job_of(const cuda_matmul_args &a, uint32_t n,
                                                       uint32_t columns)
{
    const uint32_t part = n / columns % a.parts, each = CUDA_WARPS / a.parts;
    gemm_job j = {&a.seg[0], n / columns / a.parts * CUDA_GEMM_PAIR + bulk_rank(), n % columns, 0,
                  part * each, part * each + each};
    if (!a.is_glu)
        for (uint32_t i = 0; i + 1 < a.segments; i++) {
            const uint32_t groups = (j.s->tiles + CUDA_GEMM_TILES - 1) / CUDA_GEMM_TILES;
            if (j.group < groups)
                break;
            j.group -= groups;
            j.before += j.s->tiles;
            j.s++;
        }
    return j;
}

/* Weight and tile that consumer warp 0..7 works on. */
static __device__ __forceinline__ const cuda_segment &gemm_tile_of(const cuda_matmul_args &a,
                                                                   const gemm_job &j, uint32_t warp,
                                                                   uint32_t *tile)
{
    *tile = a.is_glu ? j.group * 4 + warp % 4 : j.group * CUDA_GEMM_TILES + warp;
    return j.s[a.is_glu ? warp / 4 : 0];
}

struct gemm_ring {
    uint32_t full, empty, stage, phase;
};

static __device__ __forceinline__ void gemm_next_slot(uint32_t &slot)
{
    slot = slot + 1 == CUDA_GEMM_SLOTS ? 0 : slot + 1;
}

template <int FORMAT, int N>
static __device__ __forceinline__ void gemm_next(gemm_ring &r)
{
    if (++r.stage == gemm_traits<FORMAT, N>::stages) {
        r.stage = 0;
        r.phase ^= 1;
    }
}

/* A warp fills the ring in the order in which it is used: lanes 0 to 7 fetch a tile's records each,
 * 8 the block's share of a step, 9 and 10 the head (one block of the pair for both). */
template <int FORMAT, int N>
static __device__ __forceinline__ void gemm_produce(const cuda_matmul_args &a, uint32_t shared,
                                                    gemm_ring ring, uint32_t jobs, uint32_t columns)
{
    using traits = gemm_traits<FORMAT, N>;
    constexpr uint32_t share = N * 128 / CUDA_GEMM_PAIR;
    constexpr uint32_t head = traits::is_k ? 4 * N : 4096;
    constexpr uint32_t more = !traits::has_min ? 0 : traits::is_k ? 32 * N : 4096;
    constexpr uint32_t at_first = head + more + CUDA_GEMM_TILES * traits::record;
    constexpr uint32_t at_each = traits::step;
    const uint32_t records = a.kp / CUDA_RECORD_K, rank = bulk_rank(), lane = threadIdx.x & 31;
    const bool is_head = lane == 9 && rank == 0;
    const bool is_more = lane == 10 && rank == CUDA_GEMM_PAIR - 1 && more;
    uint32_t slot = 0;
    for (uint32_t n = blockIdx.x / CUDA_GEMM_PAIR; n < jobs; n += gridDim.x / CUDA_GEMM_PAIR) {
        const gemm_job j = gemm_job_of(a, n, columns);
        const uint32_t line = j.column * N % CUDA_GEMM_COLUMNS; /* of the image */
        const uint8_t *from = common_ptr<const uint8_t>(a.image) +
                              (size_t)(j.column * N / CUDA_GEMM_COLUMNS) * records *
                                  CUDA_IMAGE_SIZE;
        if (lane < CUDA_GEMM_TILES) {
            uint32_t tile;
            const cuda_segment &s = gemm_tile_of(a, j, lane, &tile);
            from = common_ptr<const uint8_t>(s.w) +
                   (size_t)min(tile, s.tiles - 1) * records * traits::record;
        }
        for (uint32_t w = j.begin; w < j.end; w++)
            for (uint32_t r = w; r < records; r += CUDA_WARPS, gemm_next_slot(slot))
                for (uint32_t step = 0; step < 4; step++, gemm_next<FORMAT, N>(ring)) {
                    const uint32_t full = ring.full + 8 * ring.stage;
                    bulk_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
                    if (lane == 0)
                        bulk_expect(full, at_each + (step ? 0 : at_first));
                    __syncwarp();
                    const uint8_t *p = from + r * CUDA_IMAGE_SIZE;
                    const uint32_t here = shared + traits::ring + ring.stage * traits::step;
                    if (lane == 8)
                        bulk_copy_both(here + rank * share,
                                       p + CUDA_IMAGE_HEAD + step * CUDA_IMAGE_STEP + line * 128 +
                                           rank * share,
                                       share, full);
                    if (step)
                        continue;
                    const uint32_t at = shared + traits::heads + slot * CUDA_IMAGE_HEAD;
                    if (lane < CUDA_GEMM_TILES)
                        bulk_copy(shared + traits::weights +
                                      (slot * CUDA_GEMM_TILES + lane) * traits::record,
                                  from + r * traits::record, traits::record, full);
                    else if (is_head)
                        bulk_copy_both(at, p + (traits::is_k ? 4 * line : 0), head, full);
                    else if (is_more)
                        bulk_copy_both(at + 4096, p + 4096 + (traits::is_k ? 32 * line : 0),
                                       more, full);
                }
    }
}

/* Products of block `nib` of a step: they join c, or begin it anew. */
template <int FORMAT, bool IS_FIRST, int R>
static __device__ __forceinline__ void gemm_block(float (&c)[R], const gemm_codes<FORMAT> &codes,
                                                  uint64_t b, int nib)
{
    uint32_t x[2][4], lo[2][4];
    gemm_unpack<FORMAT>(x, lo, codes, nib);
    wgmma_fence();
    wgmma_mma<!IS_FIRST>(c, x[0], b + 4 * nib);
    if constexpr (gemm_traits<FORMAT, 2 * R>::planes == 2)
        wgmma_mma<true>(c, lo[0], b + 4 * nib);
    wgmma_mma<true>(c, x[1], b + 4 * nib + 2);
    if constexpr (gemm_traits<FORMAT, 2 * R>::planes == 2)
        wgmma_mma<true>(c, lo[1], b + 4 * nib + 2);
    wgmma_commit();
}

/* A unit's sums join acc: scales of the record (K types), or of block `sub`, 2 * step + nib. */
template <int FORMAT, int R>
static __device__ __forceinline__ void gemm_add_unit(float (&acc)[R], const float (&c)[R],
                                                     const gemm_codes<FORMAT> &codes,
                                                     const gemm_super &super, const float *head,
                                                     int sub)
{
    const uint32_t t = threadIdx.x & 3;
    if constexpr (gemm_traits<FORMAT, 2 * R>::is_k) {
        gemm_add(acc, c, super.d, head, t);
    } else {
        float f[2];
        for (int h = 0; h < 2; h++)
            f[h] = dequant_scale(FORMAT, (uint16_t)(codes.scale[h] >> (16 * (sub & 1))));
        gemm_add(acc, c, f, head + 128 * sub, t);
        if constexpr (gemm_traits<FORMAT, 2 * R>::has_min) {
            for (int h = 0; h < 2; h++)
                f[h] = common_half((uint16_t)(codes.mins[h] >> (16 * (sub & 1))));
            gemm_add_mins(acc, f, head + 1024 + 128 * sub, t);
        }
    }
}

/* The minimums of a K record. */
template <int FORMAT, int R>
static __device__ __forceinline__ void gemm_add_record_mins(float (&acc)[R], float (&c)[R],
                                                            const gemm_super &super,
                                                            const gemm_lane &at, const float *head)
{
    uint32_t x[4];
    gemm_mins<FORMAT>(x, at);
    wgmma_fence();
    wgmma_mma<false>(c, x, wgmma_narrow(bulk_shared(head + 1024)));
    wgmma_commit();
    wgmma_wait();
    gemm_add(acc, c, super.m, head, at.lane & 3);
}

/* One record into acc. */
template <int FORMAT, int R>
static __device__ __forceinline__ void gemm_record(float (&acc)[R], gemm_ring &ring,
                                                   const uint8_t *shared, const gemm_lane &at,
                                                   const float *head)
{
    using traits = gemm_traits<FORMAT, 2 * R>;
    constexpr int blocks = traits::unit / 32; /* of a unit */
    gemm_super super;
    float c[R];
#pragma unroll
    for (int step = 0; step < 4; step++) {
        const uint32_t empty = ring.empty + 8 * ring.stage;
        bulk_wait(ring.full + 8 * ring.stage, ring.phase);
        if (step == 0)
            super = gemm_super_of<FORMAT>(at);
        gemm_codes<FORMAT> codes;
        gemm_load<FORMAT>(codes, at, step);
        const uint64_t b = wgmma_wide(bulk_shared(shared + ring.stage * traits::step));
#pragma unroll
        for (int nib = 0; nib < 2; nib++) {
            const int sub = 2 * step + nib;
            if (sub % blocks == 0)
                gemm_block<FORMAT, true>(c, codes, b, nib);
            else
                gemm_block<FORMAT, false>(c, codes, b, nib);
            if (sub % blocks != blocks - 1)
                continue;
            wgmma_wait();
            gemm_add_unit<FORMAT>(acc, c, codes, super, head, sub);
        }
        if constexpr (traits::is_k && traits::has_min)
            if (step == 3)
                gemm_add_record_mins<FORMAT>(acc, c, super, at, head);
        const uint32_t before = ring.stage ? ring.stage - 1 : traits::stages - 1;
        gemm_next<FORMAT, 2 * R>(ring);
        if (blocks == 4 && step % 2 == 0) /* its products are still under way */
            continue;
        __syncwarp();
        if (at.lane == 0) {
            bulk_arrive(empty);
            if (blocks == 4)
                bulk_arrive(ring.empty + 8 * before);
        }
    }
}

static __device__ __forceinline__ void gemm_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(GEMM_CONSUMERS) : "memory");
}

/* gate = glu(gate, up): the second warpgroup hands over its sums, sixteen at a time. */
template <bool GELU, int R>
static __device__ __forceinline__ void gemm_glu(const cuda_matmul_args &a, float (&acc)[R],
                                                float4 *exchange)
{
    const common_glu glu = {GELU ? 1u : 0u, a.alpha, a.up_add, a.clamp_gate, a.clamp_up};
    const uint32_t half = GEMM_CONSUMERS / 2, thread = threadIdx.x % half;
#pragma unroll
    for (int at = 0; at < R; at += 16) {
        float *x = acc + at;
        if (threadIdx.x >= half)
#pragma unroll
            for (int i = 0; i < 4; i++)
                exchange[i * half + thread] = {x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]};
        gemm_sync();
        if (threadIdx.x < half)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float4 up = exchange[i * half + thread];
                x[4 * i] = common_glu_of(glu, x[4 * i], up.x);
                x[4 * i + 1] = common_glu_of(glu, x[4 * i + 1], up.y);
                x[4 * i + 2] = common_glu_of(glu, x[4 * i + 2], up.z);
                x[4 * i + 3] = common_glu_of(glu, x[4 * i + 3], up.w);
            }
        gemm_sync();
    }
}

/* Scaled, with bias, glu, as in stream.cuh. */
template <int R>
static __device__ __forceinline__ void gemm_finish(const cuda_matmul_args &a, const gemm_job &j,
                                                   float (&acc)[R], float4 *exchange)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31, t = lane & 3;
    uint32_t tile;
    const cuda_segment &s = gemm_tile_of(a, j, warp, &tile);
    const uint32_t row = tile * CUDA_TILE_ROWS + (lane >> 2);
    const float scale = s.scales ? common_ptr<const float>(s.scales)[0] : s.scale;
    float bias[2] = {0, 0};
    for (int h = 0; h < 2; h++)
        if (s.bias && row + 8 * h < s.rows)
            bias[h] = common_ptr<const float>(s.bias)[row + 8 * h];
#pragma unroll
    for (int i = 0; i < R; i++) {
        acc[i] = __fmul_rn(acc[i], scale);
        if (s.bias)
            acc[i] = __fadd_rn(acc[i], bias[i >> 1 & 1]);
    }
    if (a.is_glu) {
        if (a.glu_kind == 1)
            gemm_glu<true>(a, acc, exchange);
        else
            gemm_glu<false>(a, acc, exchange);
        if (warp >= 4)
            return;
    }
    float *out = common_ptr<float>(s.out) + row;
#pragma unroll
    for (int i = 0; i < R; i++) {
        const uint32_t column = j.column * 2 * R + 8 * (i >> 2) + 2 * t + (i & 1);
        const uint32_t more = 8 * (i >> 1 & 1);
        if (column < a.columns && row + more < s.rows)
            out[(size_t)column * s.out_stride + more] = acc[i];
    }
}

/* Sums of a class, when several blocks share a tile's classes. */
template <int R>
static __device__ __forceinline__ void gemm_leave(const cuda_matmul_args &a, const gemm_job &j,
                                                  const float (&acc)[R], uint32_t in_class)
{
    const uint32_t lane = threadIdx.x & 31;
    uint32_t tile, tiles = 0;
    for (uint32_t i = 0; i < a.segments; i++)
        tiles += a.seg[i].tiles;
    const cuda_segment &s = gemm_tile_of(a, j, threadIdx.x / 32, &tile);
    if (tile >= s.tiles)
        return;
    const size_t rows = (size_t)tiles * CUDA_TILE_ROWS;
    float *sums = common_ptr<float>(a.sums) + (size_t)in_class * a.columns * rows +
                  (j.before + tile) * CUDA_TILE_ROWS + (lane >> 2);
#pragma unroll
    for (int i = 0; i < R; i++) {
        const uint32_t column =
            j.column * 2 * R + 8 * (i >> 2) + 2 * (lane & 3) + (i & 1);
        if (column < a.columns)
            sums[column * rows + 8 * (i >> 1 & 1)] = acc[i];
    }
}

struct gemm_extent {
    uint32_t records, line; /* of a tile; of the image at which its columns begin */
};

/* A class of records, from zero. */
template <int FORMAT, int R>
static __device__ __forceinline__ void gemm_class(float (&acc)[R], gemm_ring &ring, uint32_t &slot,
                                                  const uint8_t *shared, uint32_t w,
                                                  const gemm_extent &of)
{
    using traits = gemm_traits<FORMAT, 2 * R>;
    const uint32_t lane = threadIdx.x & 31, records = of.records, line = of.line;
#pragma unroll
    for (int i = 0; i < R; i++)
        acc[i] = 0;
    for (uint32_t r = w; r < records; r += CUDA_WARPS, gemm_next_slot(slot)) {
        const gemm_lane at = {shared + traits::weights +
                                  (slot * CUDA_GEMM_TILES + threadIdx.x / 32) * traits::record,
                              lane, lane >> 2};
        const float *head = (const float *)(shared + traits::heads + slot * CUDA_IMAGE_HEAD);
        gemm_record<FORMAT>(acc, ring, shared + traits::ring, at,
                            traits::is_k ? head : head + line);
    }
}

template <int FORMAT, int N>
static __device__ __forceinline__ void gemm_consume(const cuda_matmul_args &a, uint8_t *shared,
                                                    gemm_ring ring, uint32_t jobs, uint32_t columns)
{
    using traits = gemm_traits<FORMAT, N>;
    const uint32_t records = a.kp / CUDA_RECORD_K;
    uint32_t slot = 0;
    for (uint32_t n = blockIdx.x / CUDA_GEMM_PAIR; n < jobs; n += gridDim.x / CUDA_GEMM_PAIR) {
        const gemm_job j = gemm_job_of(a, n, columns);
        float acc[N / 2], total[N / 2]; /* of a class, of those before */
        for (uint32_t w = j.begin; w < min(j.end, records); w++) {
            gemm_class<FORMAT>(acc, ring, slot, shared, w,
                               {records, j.column * N % CUDA_GEMM_COLUMNS});
            if (a.parts > 1) {
                gemm_leave(a, j, acc, w);
                continue;
            }
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                total[i] = w ? __fadd_rn(total[i], acc[i]) : acc[i];
        }
        if (a.parts == 1)
            gemm_finish(a, j, total, (float4 *)(shared + traits::exchange));
    }
}

template <int FORMAT, int N>
static __device__ __forceinline__ void gemm_run(const cuda_matmul_args &a)
{
    using traits = gemm_traits<FORMAT, N>;
    extern __shared__ __align__(1024) uint8_t gemm_memory[];
    const uint32_t shared = bulk_shared(gemm_memory);
    gemm_ring ring = {shared + traits::barriers, shared + traits::barriers + 128, 0, 0};
    common_release();
    if (threadIdx.x == 0) {
        for (int i = 0; i < traits::stages; i++) {
            bulk_init(ring.full + 8 * i, 1);
            bulk_init(ring.empty + 8 * i, CUDA_GEMM_PAIR * GEMM_CONSUMERS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    bulk_meet();
    common_wait();
    const uint32_t columns = (a.columns + N - 1) / N;
    uint32_t groups = 0;
    if (a.is_glu)
        groups = (a.seg[0].tiles + 3) / 4;
    else
        for (uint32_t i = 0; i < a.segments; i++)
            groups += (a.seg[i].tiles + CUDA_GEMM_TILES - 1) / CUDA_GEMM_TILES;
    const uint32_t jobs = (groups + CUDA_GEMM_PAIR - 1) / CUDA_GEMM_PAIR * columns * a.parts;
    if (threadIdx.x < GEMM_CONSUMERS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N == CUDA_GEMM_FEW ? 104 : 240));
        gemm_consume<FORMAT, N>(a, gemm_memory, ring, jobs, columns);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N == CUDA_GEMM_FEW ? 32 : 24));
        if (threadIdx.x < GEMM_CONSUMERS + 32)
            gemm_produce<FORMAT, N>(a, shared, ring, jobs, columns);
    }
    bulk_meet(); /* the other block may still write here */
}

#else /* other architectures take stream.cuh for any number of columns */

template <int FORMAT, int N> static __device__ void gemm_run(const cuda_matmul_args &)
{
    __trap();
}

#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define GEMM_PAIRS
#else
#define GEMM_PAIRS __cluster_dims__(CUDA_GEMM_PAIR, 1, 1)
#endif
#define GEMM(name, FORMAT, N, BLOCKS)                                                              \
    KERNEL GEMM_PAIRS __launch_bounds__(GEMM_THREADS, BLOCKS)                                      \
        name(const __grid_constant__ cuda_matmul_args a)                                           \
    {                                                                                              \
        gemm_run<FORMAT, N>(a);                                                                    \
    }
/* Wide tiles; narrow ones, of which two blocks fit a multiprocessor. */
#define GEMMS(name, FORMAT)                                                                        \
    GEMM(name, FORMAT, CUDA_GEMM_COLUMNS, 1) GEMM(name##_few, FORMAT, CUDA_GEMM_FEW, 2)

/* Sums of the classes in their order, scaled, with bias. grid: x = rows / 256, y = columns. */
KERNEL __launch_bounds__(256) gemm_join(const __grid_constant__ cuda_matmul_args a)
{
    common_release();
    common_wait();
    const uint32_t at = blockIdx.x * 256 + threadIdx.x, column = blockIdx.y;
    const cuda_segment *s = &a.seg[0];
    uint32_t tiles = 0, row = at;
    for (uint32_t i = 0; i < a.segments; i++)
        tiles += a.seg[i].tiles;
    const size_t rows = (size_t)tiles * CUDA_TILE_ROWS;
    if (at >= rows)
        return;
    for (uint32_t i = 0; i + 1 < a.segments && row >= s->tiles * CUDA_TILE_ROWS; i++)
        row -= (s++)->tiles * CUDA_TILE_ROWS;
    if (row >= s->rows)
        return;
    const float *sums = common_ptr<const float>(a.sums) + column * rows + at;
    float y = sums[0];
    for (uint32_t c = 1; c < min(a.kp / CUDA_RECORD_K, CUDA_WARPS); c++)
        y = __fadd_rn(y, sums[c * a.columns * rows]);
    y = __fmul_rn(y, s->scales ? common_ptr<const float>(s->scales)[0] : s->scale);
    if (s->bias)
        y = __fadd_rn(y, common_ptr<const float>(s->bias)[row]);
    common_ptr<float>(s->out)[(size_t)column * s->out_stride + row] = y;
}

GEMMS(gemm_q4_0, CUDA_FORMAT_Q4_0)
GEMMS(gemm_q4_1, CUDA_FORMAT_Q4_1)
GEMMS(gemm_q5_0, CUDA_FORMAT_Q5_0)
GEMMS(gemm_q5_1, CUDA_FORMAT_Q5_1)
GEMMS(gemm_q8_0, CUDA_FORMAT_Q8_0)
GEMMS(gemm_mxfp4, CUDA_FORMAT_MXFP4)
GEMMS(gemm_q4_k, CUDA_FORMAT_Q4_K)
GEMMS(gemm_q5_k, CUDA_FORMAT_Q5_K)
GEMMS(gemm_q6_k, CUDA_FORMAT_Q6_K)
