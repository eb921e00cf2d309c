/* wide - products of BF16 weights, on Hopper's warpgroup tensor cores.
 *
 * An output is one chain of sums over its inputs, sixteen at a time in their order, so tiles of any
 * shape give the same bits, those of chain.cu too; the host takes the shape that is done first.
 * The large one: two warpgroups, 128 rows by 256 columns; two blocks side by side work on the same
 * columns, and each fetches half of them for both. The small ones: a warpgroup (of 32
 * rows the tensor cores still multiply 64: what the others read is another's, and dropped), or for
 * 8 columns a warp per 16 rows and mma.sync, which is 4 % faster; as many blocks on a
 * multiprocessor as there are tiles for. Two more warps copy: one the weights, 64 inputs of a tile
 * after the other and before the kernel in front is done, one the inputs.
 *
 * For a glu slabs of gate and up alternate. Of the large shape a warpgroup takes every first, the
 * other every second eight rows of all slabs, so that both answers of an output are in one thread;
 * of the others the warps of up hand theirs over.
 *
 *     ring of 64 (or 128) inputs:  weights, slabs of 16 rows by 128 bytes | inputs, 128 bytes each
 */
#include "cuda/cuda_bulk.cuh"
#include "cuda/cuda_dequant.cuh"
#include "cuda/cuda_wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* GROUPS: warpgroups that multiply; two of them: blocks stand in pairs. N: columns. SLABS: of 16
 * rows. STEPS: of 64 inputs, that a place of the ring holds. */
template <int GROUPS, int N, int SLABS, int STEPS, bool GLU> struct wide_traits {
    static constexpr uint32_t groups = GROUPS, columns = N, slabs = SLABS, steps = STEPS;
    static constexpr uint32_t pair = GROUPS, sums = N / 2, threads = 128 * GROUPS;
    static constexpr uint32_t weights = SLABS * 2048, inputs = N * 128;
    static constexpr uint32_t place = STEPS * (weights + inputs);
    static constexpr bool is_glu = GLU, is_few = N == 8;
    static constexpr uint32_t readers = is_few ? SLABS : 4 * GROUPS; /* warps that read a place */
};

/* Of `depth` places; what stands behind them is between the warps of a glu. */
struct wide_ring {
    uint32_t data, full, empty, depth, stage, phase;

    __device__ __forceinline__ void next()
    {
        if (++stage == depth) {
            stage = 0;
            phase ^= 1;
        }
    }
};

/* Slabs from group * slabs on (glu: half as many tiles of each weight), a tile of columns. */
struct wide_job {
    const cuda_segment *s; /* glu: of the gate; the next is up */
    uint32_t group, column;
};

template <typename T>
static __device__ __forceinline__ wide_job wide_job_of(const cuda_matmul_args &a, uint32_t n)
{
    const uint32_t columns = (a.columns + T::columns - 1) / T::columns;
    wide_job j = {&a.seg[0], n / columns, n % columns};
    if (T::pair > 1)
        j.group = j.group * T::pair + bulk_rank();
    if (!T::is_glu)
        for (uint32_t i = 0; i + 1 < a.segments; i++) {
            const uint32_t groups = (j.s->tiles + T::slabs - 1) / T::slabs;
            if (j.group < groups)
                break;
            j.group -= groups;
            j.s++;
        }
    return j;
}

template <typename T>
static __device__ __forceinline__ uint32_t wide_jobs_of(const cuda_matmul_args &a)
{
    uint32_t groups = 0;
    for (uint32_t i = 0; i < (T::is_glu ? 1 : a.segments); i++)
        groups += ((T::is_glu ? 2 : 1) * a.seg[i].tiles + T::slabs - 1) / T::slabs;
    return (groups + T::pair - 1) / T::pair * ((a.columns + T::columns - 1) / T::columns);
}

/* ---- copies, one thread each ---- */

template <typename T>
static __device__ __forceinline__ void wide_bring_weights(const cuda_matmul_args &a, wide_ring ring)
{
    const uint32_t jobs = wide_jobs_of<T>(a), steps = a.kp / 64;
    for (uint32_t n = blockIdx.x / T::pair; n < jobs; n += gridDim.x / T::pair) {
        const wide_job j = wide_job_of<T>(a, n);
        const uint8_t *from[T::slabs];
#pragma unroll
        for (uint32_t i = 0; i < T::slabs; i++) {
            const uint32_t slab = j.group * T::slabs + i;
            const cuda_segment &s = j.s[T::is_glu ? i & 1 : 0];
            from[i] = common_ptr<const uint8_t>(s.w) +
                      (size_t)min(T::is_glu ? slab / 2 : slab, s.tiles - 1) * steps * 2048;
        }
        for (uint32_t step = 0; step < steps; step += T::steps, ring.next()) {
            const uint32_t full = ring.full + 8 * ring.stage;
            const uint32_t to = ring.data + ring.stage * T::place;
            bulk_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
            bulk_expect(full, T::steps * T::weights);
#pragma unroll
            for (uint32_t i = 0; i < T::slabs; i++) {
                if (T::slabs == 1)
                    bulk_copy(to, from[i], T::steps * 2048, full);
                else
#pragma unroll
                    for (uint32_t k = 0; k < T::steps; k++)
                        bulk_copy(to + k * T::weights + i * 2048, from[i] + k * 2048, 2048, full);
                from[i] += T::steps * 2048;
            }
        }
    }
}

/* Of a pair each block brings half of the inputs to both. */
template <typename T>
static __device__ __forceinline__ void wide_bring_inputs(const cuda_matmul_args &a, wide_ring ring)
{
    const uint32_t jobs = wide_jobs_of<T>(a), steps = a.kp / 64;
    const uint32_t rank = T::pair > 1 ? bulk_rank() : 0;
    const uint32_t last = (a.columns - 1) / CUDA_GEMM_COLUMNS; /* of the image's tiles */
    for (uint32_t n = blockIdx.x / T::pair; n < jobs; n += gridDim.x / T::pair) {
        const wide_job j = wide_job_of<T>(a, n);
        const uint32_t line = j.column * T::columns + rank * CUDA_GEMM_COLUMNS;
        const uint8_t *from =
            common_ptr<const uint8_t>(a.image) +
            (size_t)min(line / CUDA_GEMM_COLUMNS, last) * (steps / 4) * CUDA_IMAGE_SIZE +
            CUDA_IMAGE_HEAD + line % CUDA_GEMM_COLUMNS * 128;
        for (uint32_t step = 0; step < steps; step += T::steps, ring.next()) {
            const uint32_t full = ring.full + 8 * ring.stage;
            const uint32_t to = ring.data + ring.stage * T::place + T::steps * T::weights;
            bulk_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
            bulk_expect(full, T::steps * T::inputs);
#pragma unroll
            for (uint32_t k = 0; k < T::steps; k++) {
                if constexpr (T::pair > 1)
                    bulk_copy_both(to + rank * CUDA_IMAGE_STEP, from, CUDA_IMAGE_STEP, full);
                else
                    bulk_copy(to + k * T::inputs, from, T::inputs, full);
                from += CUDA_IMAGE_STEP;
            }
            if ((step + T::steps) % 4 == 0)
                from += CUDA_IMAGE_HEAD;
        }
    }
}

/* ---- products ---- */

/* Where this warpgroup's rows begin in a place, and how far apart its eights of rows are. */
template <typename T>
static __device__ __forceinline__ uint64_t wide_rows(uint32_t at)
{
    const uint32_t group = threadIdx.x / 128;
    if (T::is_glu && T::groups == 2)
        return wgmma_apart(at + group * 1024, 2048);
    return wgmma_wide(at + group * 8192);
}

/* All steps of a tile, one place under way while the next is awaited. */
template <typename T>
static __device__ __forceinline__ void wide_tile(float (&acc)[T::sums], wide_ring &ring,
                                                 uint32_t places)
{
    const bool is_lane = (threadIdx.x & 31) == 0;
    uint32_t before = 0;
    for (uint32_t i = 0; i < places; i++) {
        const uint32_t at = ring.data + ring.stage * T::place;
        const uint64_t a = wide_rows<T>(at), b = wgmma_wide(at + T::steps * T::weights);
        bulk_wait(ring.full + 8 * ring.stage, ring.phase);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4 * (int)T::steps; k++)
            wgmma_mma_bf16(acc, a + k / 4 * (T::weights / 16) + k % 4 * 2,
                           b + k / 4 * (T::inputs / 16) + k % 4 * 2, k > 0 || i > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (i && is_lane)
            bulk_arrive<T::pair>(ring.empty + 8 * before);
        before = ring.stage;
        ring.next();
    }
    wgmma_wait();
    if (is_lane)
        bulk_arrive<T::pair>(ring.empty + 8 * before);
}

/* Fragments of 64 inputs: of a slab and of 8 columns. */
struct wide_few {
    uint32_t a[4][4], b[2][4];
};

static __device__ __forceinline__ void wide_load(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ void wide_load_few(wide_few &f, uint32_t weights,
                                                     uint32_t inputs)
{
    const uint32_t lane = threadIdx.x & 31, line = lane & 7, eight = lane >> 3;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        wide_load(f.a[i], weights + (eight & 1) * 1024 + line * 128 +
                              ((2 * i + (eight >> 1)) ^ line) * 16);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        wide_load(f.b[i], inputs + line * 128 + ((4 * i + eight) ^ line) * 16);
}

static __device__ __forceinline__ void wide_add_few(float (&c)[4], const wide_few &f)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(f.a[i][0]), "r"(f.a[i][1]), "r"(f.a[i][2]), "r"(f.a[i][3]),
              "r"(f.b[i >> 1][2 * (i & 1)]), "r"(f.b[i >> 1][2 * (i & 1) + 1]));
}

/* The same of a warp's slab, two steps a place: one's fragments come while the other is added. */
template <typename T>
static __device__ __forceinline__ void wide_tile_few(float (&acc)[4], wide_ring &ring,
                                                     uint32_t places)
{
    static_assert(T::steps == 2, "a step in front, one behind");
    const uint32_t mine = threadIdx.x / 32 * 2048;
    wide_few even, odd;
#pragma unroll
    for (int i = 0; i < 4; i++)
        acc[i] = 0;
    if (threadIdx.x / 32 >= T::slabs)
        return;
    bulk_wait(ring.full + 8 * ring.stage, ring.phase);
    uint32_t at = ring.data + ring.stage * T::place;
    wide_load_few(even, at + mine, at + 2 * T::weights);
    for (uint32_t i = 0; i < places; i++) {
        const uint32_t empty = ring.empty + 8 * ring.stage;
        wide_load_few(odd, at + T::weights + mine, at + 2 * T::weights + T::inputs);
        wide_add_few(acc, even);
        ring.next();
        if (i + 1 < places) {
            bulk_wait(ring.full + 8 * ring.stage, ring.phase);
            at = ring.data + ring.stage * T::place;
            wide_load_few(even, at + mine, at + 2 * T::weights);
        }
        wide_add_few(acc, odd);
        __syncwarp();
        if ((threadIdx.x & 31) == 0)
            bulk_arrive<1>(empty);
    }
}

/* ---- answers ---- */

static __device__ __forceinline__ float wide_bias(const cuda_segment &s, uint32_t row)
{
    return s.bias && row < s.rows ? common_ptr<const float>(s.bias)[row] : 0.0f;
}

static __device__ __forceinline__ float wide_scale(const cuda_segment &s)
{
    return s.scales ? common_ptr<const float>(s.scales)[0] : s.scale;
}

static __device__ __forceinline__ float wide_value(const cuda_segment &s, float x, float scale,
                                                   float bias)
{
    x = __fmul_rn(x, scale);
    return s.bias ? __fadd_rn(x, bias) : x;
}

/* acc[4n + i]: line g + 8 * (i >> 1) of this warp's slab, column 8n + 2t + (i & 1). */
template <typename T>
static __device__ __forceinline__ void wide_finish(const cuda_matmul_args &a, const wide_job &j,
                                                   const float (&acc)[T::sums])
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const cuda_segment &s = j.s[0];
    const uint32_t row = (j.group * T::slabs + warp) * CUDA_TILE_ROWS + (lane >> 2);
    if (warp >= T::slabs || row >= s.rows)
        return;
    const bool is_there[2] = {true, row + 8 < s.rows};
    const float scale = wide_scale(s), bias[2] = {wide_bias(s, row), wide_bias(s, row + 8)};
    const uint32_t column = j.column * T::columns + 2 * (lane & 3);
    float *out = common_ptr<float>(s.out) + (size_t)column * s.out_stride + row;
#pragma unroll
    for (uint32_t i = 0; i < T::sums; i++) {
        const uint32_t c = 8 * (i >> 2) + (i & 1), h = i >> 1 & 1;
        if (column + c < a.columns && is_there[h])
            out[(size_t)c * s.out_stride + 8 * h] = wide_value(s, acc[i], scale, bias[h]);
    }
}

/* ---- answers of a glu: its kind is known to the compiler, which repeats it for each ---- */

template <bool GELU>
static __device__ __forceinline__ float wide_glu(const cuda_matmul_args &a, float gate, float up)
{
    return common_glu_of({GELU ? 1u : 0u, a.alpha, a.up_add, a.clamp_gate, a.clamp_up}, gate, up);
}

/* Of the large shape: rows g of gate and of up in one thread. Answers of columns 8 apart lie at the
 * same place of lines 8 apart. */
template <typename T, bool GELU>
static __device__ __forceinline__ void wide_finish_both(const cuda_matmul_args &a,
                                                        const wide_job &j,
                                                        const float (&acc)[T::sums])
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const uint32_t row = (j.group * T::slabs / 2 + warp % 4) * CUDA_TILE_ROWS + warp / 4 * 8 +
                         (lane >> 2);
    if (row >= j.s->rows)
        return;
    const float scale[2] = {wide_scale(j.s[0]), wide_scale(j.s[1])};
    const float bias[2] = {wide_bias(j.s[0], row), wide_bias(j.s[1], row)};
    const uint32_t column = j.column * T::columns + 2 * (lane & 3);
    const size_t stride = j.s->out_stride;
    float *out = common_ptr<float>(j.s->out) + column * stride + row;
    __nv_bfloat16 *line[2];
#pragma unroll
    for (uint32_t c = 0; c < 2; c++)
        line[c] = (__nv_bfloat16 *)common_bf16_at(a.act, column + c, row & ~1u) + (row & 1);
#pragma unroll
    for (uint32_t i = 0; i < T::sums / 2; i++) {
        const uint32_t n = i >> 1, c = i & 1, at = 4 * n + c; /* column 8n + 2t + c */
        if (column + 8 * n + c >= a.columns)
            continue;
        const float y = wide_glu<GELU>(a, wide_value(j.s[0], acc[at], scale[0], bias[0]),
                                       wide_value(j.s[1], acc[at + 2], scale[1], bias[1]));
        if (a.act.q)
            line[c][n / 16 * (size_t)(a.act.kp / CUDA_RECORD_K) * (CUDA_IMAGE_SIZE / 2) +
                    n % 16 * 512] = __float2bfloat16_rn(y);
        else
            out[(8 * n + c) * stride] = y;
    }
}

static __device__ __forceinline__ void wide_sync()
{
    asm volatile("bar.sync 1, 128;" ::: "memory");
}

/* Of the others: warps 1 and 3 have up. */
template <typename T, bool GELU>
static __device__ __forceinline__ void wide_finish_warps(const cuda_matmul_args &a,
                                                         const wide_job &j,
                                                         float (&acc)[T::sums], float *exchange)
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const cuda_segment &s = j.s[warp & 1];
    const uint32_t first = (j.group * T::slabs + warp) / 2 * CUDA_TILE_ROWS + (lane >> 2);
    const float scale = wide_scale(s), bias[2] = {wide_bias(s, first), wide_bias(s, first + 8)};
    float *mine = exchange + warp / 2 * T::sums * 32 + lane;
#pragma unroll
    for (uint32_t i = 0; i < T::sums; i++) {
        acc[i] = wide_value(s, acc[i], scale, bias[i >> 1 & 1]);
        if (warp < T::slabs && warp & 1)
            mine[32 * i] = acc[i];
    }
    wide_sync();
    if (warp < T::slabs && !(warp & 1))
#pragma unroll
        for (uint32_t i = 0; i < T::sums; i++) {
            const uint32_t row = first + 8 * (i >> 1 & 1);
            const uint32_t column =
                j.column * T::columns + 8 * (i >> 2) + 2 * (lane & 3) + (i & 1);
            if (row >= s.rows || column >= a.columns)
                continue;
            const float y = wide_glu<GELU>(a, acc[i], mine[32 * i]);
            if (a.act.q)
                common_bf16_put(a.act, column, row, y);
            else
                common_ptr<float>(s.out)[(size_t)column * s.out_stride + row] = y;
        }
    wide_sync();
}

template <typename T, bool GELU>
static __device__ __forceinline__ void wide_finish_glu(const cuda_matmul_args &a,
                                                       const wide_job &j, float (&acc)[T::sums],
                                                       float *exchange)
{
    if constexpr (T::groups == 2)
        wide_finish_both<T, GELU>(a, j, acc);
    else
        wide_finish_warps<T, GELU>(a, j, acc, exchange);
}

/* ---- a block ---- */

template <typename T>
static __device__ __forceinline__ void wide_consume(const cuda_matmul_args &a, wide_ring ring,
                                                    float *exchange)
{
    const uint32_t jobs = wide_jobs_of<T>(a);
    common_wait();
    for (uint32_t n = blockIdx.x / T::pair; n < jobs; n += gridDim.x / T::pair) {
        const wide_job j = wide_job_of<T>(a, n);
        float acc[T::sums];
        if constexpr (T::is_few)
            wide_tile_few<T>(acc, ring, a.kp / 64 / T::steps);
        else
            wide_tile<T>(acc, ring, a.kp / 64 / T::steps);
        if constexpr (!T::is_glu)
            wide_finish<T>(a, j, acc);
        else if (a.glu_kind == 1)
            wide_finish_glu<T, true>(a, j, acc, exchange);
        else
            wide_finish_glu<T, false>(a, j, acc, exchange);
    }
}

template <typename T> static __device__ __forceinline__ void wide_run(const cuda_matmul_args &a)
{
    extern __shared__ __align__(1024) uint8_t wide_memory[];
    const uint32_t shared = bulk_shared(wide_memory), warp = threadIdx.x / 32;
    const uint32_t end = a.ring * T::place, barriers = end + CUDA_WIDE_SPARE(T::columns);
    const wide_ring ring = {shared, shared + barriers, shared + barriers + 128, a.ring, 0, 0};
    common_release();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < a.ring; i++) {
            bulk_init(ring.full + 8 * i, 2);
            bulk_init(ring.empty + 8 * i, T::pair * T::readers);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (T::pair > 1)
        bulk_meet();
    else
        __syncthreads();
    if (threadIdx.x < T::threads) {
        if constexpr (T::groups == 2)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        wide_consume<T>(a, ring, (float *)(wide_memory + end));
    } else {
        if constexpr (T::groups == 2)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if ((threadIdx.x & 31) == 0 && warp == T::threads / 32) {
            wide_bring_weights<T>(a, ring);
        } else if ((threadIdx.x & 31) == 0 && warp == T::threads / 32 + 1) {
            common_wait();
            wide_bring_inputs<T>(a, ring);
        }
        __syncwarp();
    }
    if (T::pair > 1)
        bulk_meet(); /* the other block may still write here */
}

#define WIDE_RUN(...) wide_run<wide_traits<__VA_ARGS__>>(a)

#else /* other architectures take chain.cu for any number of columns */

#define WIDE_RUN(...) __trap()

#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define WIDE_PAIRS
#else
#define WIDE_PAIRS __cluster_dims__(CUDA_GEMM_PAIR, 1, 1)
#endif
#define WIDE(name, THREADS, BLOCKS, ...)                                                           \
    __launch_bounds__(THREADS, BLOCKS) name(const __grid_constant__ cuda_matmul_args a)            \
    {                                                                                              \
        WIDE_RUN(__VA_ARGS__);                                                                     \
    }

/* cuda_mul_wide_launch knows their shapes. */
KERNEL WIDE_PAIRS WIDE(wide_256, CUDA_WIDE_THREADS, 1, 2, 256, 8, 1, false)
KERNEL WIDE_PAIRS WIDE(wide_256_glu, CUDA_WIDE_THREADS, 1, 2, 256, 8, 1, true)
KERNEL WIDE(wide_128, CUDA_WIDE_SMALL_THREADS, 2, 1, 128, 4, 1, false)
KERNEL WIDE(wide_128_glu, CUDA_WIDE_SMALL_THREADS, 2, 1, 128, 4, 1, true)
KERNEL WIDE(wide_64, CUDA_WIDE_SMALL_THREADS, 2, 1, 64, 4, 1, false)
KERNEL WIDE(wide_64_glu, CUDA_WIDE_SMALL_THREADS, 2, 1, 64, 4, 1, true)
KERNEL WIDE(wide_32, CUDA_WIDE_SMALL_THREADS, 4, 1, 32, 2, 1, false)
KERNEL WIDE(wide_32_glu, CUDA_WIDE_SMALL_THREADS, 4, 1, 32, 4, 1, true)
KERNEL WIDE(wide_8, CUDA_WIDE_SMALL_THREADS, 4, 1, 8, 1, 2, false)
KERNEL WIDE(wide_8_glu, CUDA_WIDE_SMALL_THREADS, 4, 1, 8, 2, 2, true)
