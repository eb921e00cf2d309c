/* chain - products of BF16 weights with few columns: decoding.
 *
 * An output is one chain of sums over its inputs, sixteen at a time in their order, as in wide.cu:
 * both give the same bits. So a tile of 16 rows belongs to one warp, and no warp waits for another.
 * A tile's weights are one run in memory; its warp takes them in pieces of 64 inputs through a ring
 * of its own, which bulk copies fill ahead, over the end of a tile into the warp's next one. The
 * first copies start before the wait for the kernel in front: weights never change. Few tiles mean
 * few warps in a block, and each has the more of the ring.
 *
 *     warp 0 | piece | piece | ... |     warp 1 | piece | ... |     barriers, one per piece
 */
#include "cuda/cuda_bulk.cuh"
#include "cuda/stream.cuh"

#define CHAIN_PIECE CUDA_CHAIN_PIECE

/* ---- a ring of pieces ---- */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CHAIN_ARRIVALS 1

static __device__ __forceinline__ void chain_fetch(uint32_t to, const uint8_t *from,
                                                   uint32_t barrier, uint32_t lane)
{
    if (lane)
        return;
    bulk_expect(barrier, CHAIN_PIECE);
    bulk_copy(to, from, CHAIN_PIECE, barrier);
}

static __device__ __forceinline__ void chain_wait(uint32_t barrier, uint32_t phase)
{
    bulk_wait(barrier, phase);
}

#else /* every lane copies its share */
#define CHAIN_ARRIVALS 32

static __device__ __forceinline__ void chain_fetch(uint32_t to, const uint8_t *from,
                                                   uint32_t barrier, uint32_t lane)
{
#pragma unroll
    for (uint32_t i = 0; i < CHAIN_PIECE; i += 512)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i + lane * 16),
                     "l"(from + i + lane * 16)
                     : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

static __device__ __forceinline__ void chain_wait(uint32_t barrier, uint32_t phase)
{
    uint32_t is_there = 0;
    while (!is_there)
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(is_there)
                     : "r"(barrier), "r"(phase)
                     : "memory");
}
#endif

/* The pieces that a warp is still to fetch: `left` of weight `weight` of job `job`, from p. */
struct chain_cursor {
    const uint8_t *p;
    uint32_t job, weight, left;
};

/* What does not change while a warp works. */
struct chain_extent {
    uint32_t jobs, step, tiles, pieces, weights, wide; /* pieces: of a tile */
};

struct chain_ring {
    uint32_t data, barriers, depth, stage, phase;

    __device__ __forceinline__ void next()
    {
        if (++stage == depth) {
            stage = 0;
            phase ^= 1;
        }
    }
};

static __device__ __forceinline__ void chain_aim(const cuda_matmul_args &a, chain_cursor &c,
                                                 const chain_extent &x)
{
    c.left = x.pieces;
    if (c.job < x.jobs)
        c.p = matmul_tile_of<CUDA_FORMAT_BF16>(a, matmul_job_of(a, c.job, x.tiles, x.wide),
                                               c.weight);
}

/* The next piece into a place of the ring, if there is one. */
static __device__ __forceinline__ void chain_ahead(const cuda_matmul_args &a, chain_cursor &c,
                                                   const chain_extent &x, const chain_ring &ring,
                                                   uint32_t stage)
{
    if (c.job >= x.jobs)
        return;
    chain_fetch(ring.data + stage * CHAIN_PIECE, c.p, ring.barriers + 8 * stage, threadIdx.x & 31);
    c.p += CHAIN_PIECE;
    if (--c.left)
        return;
    if (++c.weight == x.weights) {
        c.weight = 0;
        c.job += x.step;
    }
    chain_aim(a, c, x);
}

/* ---- products ---- */

static __device__ __forceinline__ void chain_mma(float *c, const uint32_t a[4], uint32_t b0,
                                                 uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Weights of a piece: fragments of four times 16 inputs. */
struct chain_weights {
    uint32_t a[4][4];
};

static __device__ __forceinline__ void chain_load(chain_weights &w, const chain_ring &ring)
{
    const uint32_t lane = threadIdx.x & 31, line = lane & 7, half = lane >> 4;
    const uint32_t at = ring.data + ring.stage * CHAIN_PIECE + (lane >> 3 & 1) * 1024 + line * 128;
    chain_wait(ring.barriers + 8 * ring.stage, ring.phase);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.a[i][0]), "=r"(w.a[i][1]), "=r"(w.a[i][2]), "=r"(w.a[i][3])
                     : "r"(at + ((2 * i + half) ^ line) * 16)
                     : "memory");
}

/* Inputs of a piece: this lane's column of each eight. */
template <int NT> struct chain_inputs {
    uint4 b[NT][2];
};

template <int NT>
static __device__ __forceinline__ void chain_read(chain_inputs<NT> &in, const uint4 *const *from,
                                                  uint32_t piece, uint32_t pieces)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        in.b[n][0] = in.b[n][1] = {0, 0, 0, 0};
        if (!from[n] || piece >= pieces)
            continue;
        in.b[n][0] = from[n][8 * piece];
        in.b[n][1] = from[n][8 * piece + 1];
    }
}

template <int NT>
static __device__ __forceinline__ void chain_add(float (&acc)[4 * NT], const chain_weights &w,
                                                 const chain_inputs<NT> &in)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint4 &v = in.b[n][i >> 1];
            chain_mma(acc + 4 * n, w.a[i], i & 1 ? v.z : v.x, i & 1 ? v.w : v.y);
        }
}

/* Inputs of a piece are on their way so many pieces before: as many as registers allow. */
static __host__ __device__ constexpr int chain_early(int nt)
{
    return nt > 2 ? 1 : nt > 1 ? 2 : 4;
}

/* One tile of a weight: acc[4n + i] of row g + 8 * (i >> 1), column 8n + 2t + (i & 1). */
template <int NT>
static __device__ __forceinline__ void chain_tile(const cuda_matmul_args &a, float (&acc)[4 * NT],
                                                  chain_ring &ring, chain_cursor &c,
                                                  const chain_extent &x, const uint4 *const *from)
{
    constexpr int ahead = chain_early(NT);
    chain_inputs<NT> in[ahead + 1];
    chain_weights w, next;
#pragma unroll
    for (int i = 0; i < 4 * NT; i++)
        acc[i] = 0;
#pragma unroll
    for (int i = 0; i < ahead; i++)
        chain_read(in[i], from, i, x.pieces);
    chain_load(w, ring);
    for (uint32_t i = 0; i < x.pieces; i++) {
        const uint32_t stage = ring.stage;
        chain_read(in[ahead], from, i + ahead, x.pieces);
        ring.next();
        if (i + 1 < x.pieces)
            chain_load(next, ring);
        chain_add(acc, w, in[0]);
        __syncwarp(); /* all lanes have what stood there */
        chain_ahead(a, c, x, ring, stage);
        w = next;
#pragma unroll
        for (int k = 0; k < ahead; k++)
            in[k] = in[k + 1];
    }
}

/* ---- answers ---- */

/* Scaled, with its bias. */
template <int NT>
static __device__ __forceinline__ void chain_finish(const cuda_segment &s, const matmul_job &j,
                                                    float (&acc)[4 * NT])
{
    const float scale = s.scales ? common_ptr<const float>(s.scales)[j.expert] : s.scale;
#pragma unroll
    for (int i = 0; i < 4 * NT; i++) {
        const uint32_t row =
            j.tile * CUDA_TILE_ROWS + ((threadIdx.x & 31) >> 2) + 8 * (i >> 1 & 1);
        acc[i] = __fmul_rn(acc[i], scale);
        if (s.bias && row < s.rows)
            acc[i] = __fadd_rn(acc[i],
                               common_ptr<const float>(s.bias)[j.expert * s.bias_stride + row]);
    }
}

template <int NT>
static __device__ __forceinline__ void chain_write(const cuda_matmul_args &a, const matmul_job &j,
                                                   const float (&acc)[4 * NT])
{
    const uint32_t lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 4 * NT; i++) {
        const uint32_t row = j.tile * CUDA_TILE_ROWS + (lane >> 2) + 8 * (i >> 1 & 1);
        const int out_row = matmul_out_row(a, j, 8 * (i >> 2) + 2 * (lane & 3) + (i & 1));
        if (row >= j.s->rows || out_row < 0)
            continue;
        if (a.act.q)
            common_bf16_put(a.act, (uint32_t)out_row, row, acc[i]);
        else
            common_ptr<float>(j.s->out)[(size_t)out_row * j.s->out_stride + row] = acc[i];
    }
}

/* ---- a warp ---- */

static __device__ __forceinline__ chain_extent chain_extent_of(const cuda_matmul_args &a,
                                                               uint32_t wide)
{
    chain_extent x = {0, gridDim.x * (blockDim.x / 32), 0, a.kp / 64, a.is_glu ? 2u : 1u, wide};
    for (uint32_t i = 0; i < (a.is_glu ? 1 : a.segments); i++)
        x.tiles += a.seg[i].tiles;
    x.jobs = x.tiles * (a.work ? (uint32_t)*common_ptr<const int32_t>(a.work)
                               : (a.columns + wide - 1) / wide);
    return x;
}

template <int NT, int WIDE> static __device__ __forceinline__ void chain_run(
    const cuda_matmul_args &a)
{
    extern __shared__ __align__(1024) uint8_t chain_memory[];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31, warps = blockDim.x / 32;
    const uint32_t shared = (uint32_t)__cvta_generic_to_shared(chain_memory);
    chain_ring ring = {shared + warp * a.ring * CHAIN_PIECE,
                       shared + warps * a.ring * CHAIN_PIECE + warp * a.ring * 8, a.ring, 0, 0};
    common_release();
    for (uint32_t i = lane; i < a.ring; i += 32)
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(ring.barriers + 8 * i),
                     "n"(CHAIN_ARRIVALS)
                     : "memory");
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    __syncwarp();
    if (a.work)
        common_wait(); /* which experts: the kernel in front says */
    const chain_extent x = chain_extent_of(a, WIDE);
    const uint32_t first = warp * gridDim.x + blockIdx.x;
    chain_cursor c = {nullptr, first, 0, 0};
    chain_aim(a, c, x);
    for (uint32_t i = 0; i < a.ring; i++)
        chain_ahead(a, c, x, ring, i);
    if (!a.work)
        common_wait();
    const common_glu glu = {a.glu_kind, a.alpha, a.up_add, a.clamp_gate, a.clamp_up};
    for (uint32_t n = first; n < x.jobs; n += x.step) {
        const matmul_job j = matmul_job_of(a, n, x.tiles, WIDE);
        const uint4 *from[NT];
#pragma unroll
        for (int i = 0; i < NT; i++) {
            const int row = matmul_in_row(a, j, i * 8 + (lane >> 2));
            from[i] = row < 0 ? nullptr
                              : (const uint4 *)(common_ptr<const uint8_t>(a.q) +
                                                (size_t)row * a.kp * 2) +
                                    2 * (lane & 3);
        }
        float acc[4 * NT];
        chain_tile<NT>(a, acc, ring, c, x, from);
        chain_finish<NT>(j.s[0], j, acc);
        if (a.is_glu) {
            float gate[4 * NT];
#pragma unroll
            for (int i = 0; i < 4 * NT; i++)
                gate[i] = acc[i];
            chain_tile<NT>(a, acc, ring, c, x, from);
            chain_finish<NT>(j.s[1], j, acc);
#pragma unroll
            for (int i = 0; i < 4 * NT; i++)
                acc[i] = common_glu_of(glu, gate[i], acc[i]);
        }
        chain_write<NT>(a, j, acc);
    }
}

/* Blocks of the next kernel find room beside those of few columns. */
#define CHAIN(COLUMNS, NT)                                                                         \
    KERNEL __launch_bounds__(CUDA_WARPS * 32, NT > 2 ? 1 : 2)                                      \
        chain_##COLUMNS(const __grid_constant__ cuda_matmul_args a)                                \
    {                                                                                              \
        chain_run<NT, COLUMNS>(a);                                                                 \
    }
CHAIN(1, 1) CHAIN(8, 1) CHAIN(16, 2) CHAIN(32, 4)
