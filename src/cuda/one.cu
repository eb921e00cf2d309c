/* one - products of packed weights with a single column: decoding one sequence.
 *
 * The sums of stream.cuh in its order: class by class of records w, w + 8, ..., then the classes'
 * sums. Here a warp has a tile of 16 rows and one, two, four or all eight of its classes, so that
 * each warp streams a long run; with one column all eight columns of the tensor cores' tile are the
 * same, and a lane follows row g + 8 * (t & 1) only.
 */
#include "cuda/stream.cuh"

static __device__ __forceinline__ void one_mma_u8(int c[4], const uint32_t a[4], uint32_t b0,
                                                  uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Scales of this lane's row. */
struct one_scales {
    uint4 scale, mins;
    uint32_t super;
};

template <int FORMAT>
static __device__ __forceinline__ void one_load(matmul_record<FORMAT> &r, one_scales &s,
                                                const uint8_t *rec, uint32_t lane)
{
    constexpr dequant_layout l = dequant_layout_of(FORMAT);
    const uint4 *q = reinterpret_cast<const uint4 *>(rec) + lane;
    const uint32_t row = (lane >> 2) + 8 * (lane & 1);
#pragma unroll
    for (int i = 0; i < (FORMAT == CUDA_FORMAT_Q8_0 ? 8 : 4); i++)
        r.quants[i] = q[32 * i];
    if constexpr (FORMAT == CUDA_FORMAT_Q6_K) {
        const uint4 *h = reinterpret_cast<const uint4 *>(rec + l.high) + 2 * lane;
        r.high[0] = h[0];
        r.high[1] = h[1];
        s.scale = *reinterpret_cast<const uint4 *>(rec + l.scale + row * 16);
        s.super = dequant_u16(rec + l.super + row * 2);
        return;
    } else if constexpr (l.high != 0) {
        r.high[0] = reinterpret_cast<const uint4 *>(rec + l.high)[lane];
    }
    if constexpr (dequant_is_k(FORMAT)) {
        uint2 v = *reinterpret_cast<const uint2 *>(rec + l.scale + row * 8);
        uint2 m = *reinterpret_cast<const uint2 *>(rec + l.mins + row * 8);
        s.scale = {v.x, v.y, 0, 0};
        s.mins = {m.x, m.y, 0, 0};
        s.super = *reinterpret_cast<const uint32_t *>(rec + l.super + row * 4);
    } else {
        s.scale = *reinterpret_cast<const uint4 *>(rec + l.scale + row * 16);
        if constexpr (dequant_has_min(FORMAT))
            s.mins = *reinterpret_cast<const uint4 *>(rec + l.mins + row * 16);
    }
}

/* The column's inputs for one record. */
template <int FORMAT> struct one_column {
    uint4 b[4]; /* blocks 2i, 2i + 1: two words each */
    float d[dequant_is_k(FORMAT) ? 1 : 8];
    uint4 s;
};

template <int FORMAT>
static __device__ __forceinline__ void one_load_column(one_column<FORMAT> &c, const int8_t *q,
                                                       const float *d, const int16_t *s,
                                                       uint32_t record, uint32_t lane)
{
    const uint4 *b = reinterpret_cast<const uint4 *>(q + record * CUDA_RECORD_K) + 4 * (lane & 3);
#pragma unroll
    for (int i = 0; i < 4; i++)
        c.b[i] = b[i];
    if constexpr (dequant_is_k(FORMAT)) {
        c.d[0] = d[record];
    } else {
        const float4 *p = reinterpret_cast<const float4 *>(d + record * 8);
        const float4 x = p[0], y = p[1];
        c.d[0] = x.x, c.d[1] = x.y, c.d[2] = x.z, c.d[3] = x.w;
        c.d[4] = y.x, c.d[5] = y.y, c.d[6] = y.z, c.d[7] = y.w;
    }
    if constexpr (dequant_has_min(FORMAT))
        c.s = *reinterpret_cast<const uint4 *>(s + record * 8);
}

/* Integer sum of block `sub` for this lane's row; Q4_K's odd blocks come times 16. */
template <int FORMAT>
static __device__ __forceinline__ int one_block(const matmul_record<FORMAT> &r,
                                                const one_column<FORMAT> &col, int sub, bool is_low)
{
    int c[4] = {0, 0, 0, 0};
    uint32_t a[4];
    const uint32_t b0 = sub & 1 ? col.b[sub >> 1].z : col.b[sub >> 1].x;
    const uint32_t b1 = sub & 1 ? col.b[sub >> 1].w : col.b[sub >> 1].y;
    if constexpr (FORMAT == CUDA_FORMAT_Q4_K) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            a[j] = matmul_word(r.quants[sub >> 1], j) & (sub & 1 ? 0xf0f0f0f0u : 0x0f0f0f0fu);
        one_mma_u8(c, a, b0, b1);
    } else {
        matmul_unpack<FORMAT>(a, r, sub);
        matmul_mma_s8(c, a, b0, b1);
    }
    return is_low ? c[2] : c[0];
}

/* Adds one record: the same floats as matmul_add. */
template <int FORMAT>
static __device__ __forceinline__ float one_add(float acc, const matmul_record<FORMAT> &r,
                                                const one_scales &s, const one_column<FORMAT> &col,
                                                bool is_low)
{
    constexpr int blocks = dequant_unit(FORMAT) / 32;
    const float d = common_half((uint16_t)s.super);
    int sum = 0, sum16 = 0;
#pragma unroll
    for (int sub = 0; sub < 8; sub++) {
        if constexpr (FORMAT == CUDA_FORMAT_Q6_K) {
            uint32_t a[4];
            int c[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0};
            matmul_unpack<FORMAT>(a, r, sub);
            matmul_mma_s8_16(c, a[0], a[1], sub & 1 ? col.b[sub >> 1].z : col.b[sub >> 1].x);
            matmul_mma_s8_16(e, a[2], a[3], sub & 1 ? col.b[sub >> 1].w : col.b[sub >> 1].y);
            sum = (is_low ? c[2] : c[0]) * matmul_i8_at(s.scale, 2 * sub) +
                  (is_low ? e[2] : e[0]) * matmul_i8_at(s.scale, 2 * sub + 1);
        } else {
            const int c = one_block<FORMAT>(r, col, sub, is_low);
            if constexpr (!dequant_is_k(FORMAT)) {
                acc = fmaf(__fmul_rn(matmul_scale_at<FORMAT>(s.scale, sub), col.d[sub]), (float)c,
                           acc);
                if constexpr (dequant_has_min(FORMAT))
                    acc = fmaf(matmul_f16_at(s.mins, sub),
                               __fmul_rn(col.d[sub], (float)matmul_i16_at(col.s, sub)), acc);
                continue;
            }
            if (FORMAT == CUDA_FORMAT_Q4_K && sub & 1)
                sum16 += c * matmul_u8_at(s.scale, sub);
            else
                sum += c * matmul_u8_at(s.scale, sub);
        }
        if (sub % blocks == blocks - 1) {
            acc = fmaf(__fmul_rn(d, col.d[0]), (float)(sum + (sum16 >> 4)), acc);
            sum = sum16 = 0;
        }
    }
    if constexpr (dequant_is_k(FORMAT) && dequant_has_min(FORMAT)) {
        const float m = common_half((uint16_t)(s.super >> 16));
        int low = __dp2a_lo((int)col.s.x, (int)s.mins.x, 0);
        low = __dp2a_hi((int)col.s.y, (int)s.mins.x, low);
        low = __dp2a_lo((int)col.s.z, (int)s.mins.y, low);
        low = __dp2a_hi((int)col.s.w, (int)s.mins.y, low);
        acc = fmaf(__fmul_rn(-m, col.d[0]), (float)low, acc);
    }
    return acc;
}

/* A record into a stage, by a warp. */
template <int FORMAT>
static __device__ __forceinline__ void one_fetch(uint32_t to, const uint8_t *from, uint32_t lane)
{
    constexpr uint32_t size = dequant_layout_of(FORMAT).size;
    to += lane * 16;
    from += lane * 16;
#pragma unroll
    for (uint32_t i = 0; i < size; i += 512)
        if (i + 512 <= size || i + lane * 16 < size)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(from + i)
                         : "memory");
}

/* What this warp works on: a tile's classes from `begin` on. */
struct one_unit {
    const cuda_segment *s;
    const uint8_t *w;
    uint32_t tile, expert;
    int out_row, in_row;
};

/* Unit `u` of group n: consecutive tiles, for a glu half of them of each weight. */
template <int FORMAT>
static __device__ __forceinline__ one_unit one_unit_of(const cuda_matmul_args &a, uint32_t n,
                                                       uint32_t groups, uint32_t units, uint32_t u)
{
    one_unit x = {&a.seg[0], nullptr, 0, 0, 0, 0};
    if (a.work) {
        const int32_t *w = common_ptr<const int32_t>(a.work) + 1 + 3 * (n / groups);
        x.expert = (uint32_t)w[0];
        x.out_row = common_ptr<const int32_t>(a.pair)[w[1]];
        x.in_row = a.x_per_pair ? x.out_row : x.out_row / (int)a.ranks;
        n %= groups;
    }
    if (a.is_glu) {
        x.s = &a.seg[u / (units / 2)];
        x.tile = n * (units / 2) + u % (units / 2);
    } else {
        x.tile = n * units + u;
        for (uint32_t i = 0; i + 1 < a.segments && x.tile >= x.s->tiles; i++)
            x.tile -= (x.s++)->tiles;
    }
    x.w = common_ptr<const uint8_t>(x.s->w) + x.s->mat_size * x.expert +
          (size_t)min(x.tile, x.s->tiles - 1) * (a.kp / CUDA_RECORD_K) *
              dequant_layout_of(FORMAT).size;
    return x;
}

/* Sums of row `row` of unit u, class by class, scaled, with its bias. */
static __device__ __forceinline__ float one_total(const one_unit &x, const float (*room)[16],
                                                  uint32_t classes, uint32_t row)
{
    float sum = room[0][row];
    for (uint32_t c = 1; c < classes; c++)
        sum = __fadd_rn(sum, room[c][row]);
    const uint32_t at = x.tile * CUDA_TILE_ROWS + row;
    sum = __fmul_rn(sum, x.s->scales ? common_ptr<const float>(x.s->scales)[x.expert] : x.s->scale);
    if (x.s->bias && at < x.s->rows)
        sum = __fadd_rn(sum, common_ptr<const float>(x.s->bias)[x.expert * x.s->bias_stride + at]);
    return sum;
}

/* The answers of a group, once all warps' sums are in room. */
template <int FORMAT>
static __device__ __forceinline__ void one_answer(const cuda_matmul_args &a, uint32_t n,
                                                  uint32_t groups, uint32_t units,
                                                  const float (*room)[CUDA_WARPS][16],
                                                  uint32_t classes)
{
    const uint32_t outputs = (a.is_glu ? units / 2 : units) * 16;
    if (threadIdx.x >= outputs)
        return;
    const uint32_t u = threadIdx.x / 16, row = threadIdx.x % 16;
    const one_unit x = one_unit_of<FORMAT>(a, n, groups, units, u);
    float y = one_total(x, room[u], classes, row);
    if (a.is_glu) {
        const uint32_t other = u + units / 2;
        const common_glu glu = {a.glu_kind, a.alpha, a.up_add, a.clamp_gate, a.clamp_up};
        y = common_glu_of(glu, y,
                          one_total(one_unit_of<FORMAT>(a, n, groups, units, other), room[other],
                                    classes, row));
    }
    const uint32_t at = x.tile * CUDA_TILE_ROWS + row;
    if (x.tile < x.s->tiles && at < x.s->rows)
        common_ptr<float>(x.s->out)[(size_t)x.out_row * x.s->out_stride + at] = y;
}

/* Where a warp stands in its records: one to be fetched, one to be added. */
struct one_walk {
    uint32_t record, in_class, end, records;
    bool is_there;

    __device__ __forceinline__ void next()
    {
        record += CUDA_WARPS;
        if (record < records)
            return;
        record = ++in_class;
        is_there = in_class < end && record < records;
    }
};

template <int FORMAT> struct one_ring {
    static constexpr uint32_t size = dequant_layout_of(FORMAT).size;
    static constexpr uint32_t stages = CUDA_ONE_RING_SIZE / CUDA_WARPS / size; /* 3 to 5 */
    const uint8_t *p;
    one_walk ahead;

    /* Fetches the next record, if there is one, into a stage. */
    __device__ __forceinline__ void fetch(const uint8_t *w, uint32_t stage, uint32_t lane)
    {
        if (ahead.is_there) {
            one_fetch<FORMAT>((uint32_t)__cvta_generic_to_shared(p) + stage * size,
                              w + (size_t)ahead.record * size, lane);
            ahead.next();
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
};

/* Sums of a unit's classes, from `walk` on, into room[class][row]. */
template <int FORMAT>
static __device__ __forceinline__ void one_stream(const cuda_matmul_args &a, const one_unit &x,
                                                  one_ring<FORMAT> &ring, one_walk walk,
                                                  float (*room)[16])
{
    const uint32_t lane = threadIdx.x & 31;
    const int8_t *q = common_ptr<const int8_t>(a.q) + (size_t)x.in_row * a.kp;
    const float *d = common_ptr<const float>(a.d) +
                     (size_t)x.in_row * (a.kp / (dequant_is_k(FORMAT) ? 256 : 32));
    const int16_t *s = common_ptr<const int16_t>(a.s) + (size_t)x.in_row * (a.kp / 32);
    uint32_t stage = 0;
    float acc = 0;
    while (walk.is_there) {
        one_column<FORMAT> col;
        one_load_column<FORMAT>(col, q, d, s, walk.record, lane);
        ring.fetch(x.w, stage == 0 ? ring.stages - 1 : stage - 1, lane);
        asm volatile("cp.async.wait_group %0;" ::"n"(one_ring<FORMAT>::stages - 1) : "memory");
        __syncwarp();
        matmul_record<FORMAT> r;
        one_scales scales;
        one_load<FORMAT>(r, scales, ring.p + stage * ring.size, lane);
        acc = one_add<FORMAT>(acc, r, scales, col, lane & 1);
        const uint32_t was = walk.in_class;
        walk.next();
        if (was != walk.in_class) {
            if ((lane & 2) == 0)
                room[was][(lane >> 2) + 8 * (lane & 1)] = acc;
            acc = 0;
        }
        stage = stage + 1 == ring.stages ? 0 : stage + 1;
        __syncwarp();
    }
}

template <int FORMAT> static __device__ __forceinline__ void one_run(const cuda_matmul_args &a)
{
    extern __shared__ uint4 one_shared[];
    __shared__ float room[CUDA_WARPS][CUDA_WARPS][16]; /* unit, class, row */
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const uint32_t records = a.kp / CUDA_RECORD_K, units = CUDA_WARPS / a.parts;
    const uint32_t u = warp / a.parts, each = CUDA_WARPS / a.parts;
    const uint32_t begin = warp % a.parts * each;
    uint32_t tiles = a.seg[0].tiles, in_group = a.is_glu ? units / 2 : units;
    if (!a.is_glu)
        for (uint32_t i = 1; i < a.segments; i++)
            tiles += a.seg[i].tiles;
    const uint32_t groups = (tiles + in_group - 1) / in_group;
    one_ring<FORMAT> ring;
    ring.p = (const uint8_t *)one_shared + warp * ring.stages * ring.size;
    bool has_waited = a.work != 0;
    common_release();
    if (a.work)
        common_wait(); /* which experts: the kernel in front says */
    const uint32_t jobs = groups * (a.work ? (uint32_t)*common_ptr<const int32_t>(a.work) : 1);
    for (uint32_t n = blockIdx.x; n < jobs; n += gridDim.x) {
        const one_unit x = one_unit_of<FORMAT>(a, n, groups, units, u);
        const one_walk walk = {begin, begin, begin + each, records, begin < records};
        ring.ahead = walk;
        for (uint32_t i = 0; i + 1 < ring.stages; i++)
            ring.fetch(x.w, i, lane);
        if (!has_waited)
            common_wait();
        has_waited = true;
        one_stream<FORMAT>(a, x, ring, walk, room[u]);
        __syncthreads();
        one_answer<FORMAT>(a, n, groups, units, room, min(records, (uint32_t)CUDA_WARPS));
        __syncthreads();
    }
    if (!has_waited)
        common_wait();
}

#define ONE(name, FORMAT)                                                                          \
    KERNEL __launch_bounds__(CUDA_WARPS * 32, 2) name(const __grid_constant__ cuda_matmul_args a)  \
    {                                                                                              \
        one_run<FORMAT>(a);                                                                        \
    }
ONE(one_q4_0, CUDA_FORMAT_Q4_0)
ONE(one_q4_1, CUDA_FORMAT_Q4_1)
ONE(one_q5_0, CUDA_FORMAT_Q5_0)
ONE(one_q5_1, CUDA_FORMAT_Q5_1)
ONE(one_q8_0, CUDA_FORMAT_Q8_0)
ONE(one_mxfp4, CUDA_FORMAT_MXFP4)
ONE(one_q4_k, CUDA_FORMAT_Q4_K)
ONE(one_q5_k, CUDA_FORMAT_Q5_K)
ONE(one_q6_k, CUDA_FORMAT_Q6_K)
