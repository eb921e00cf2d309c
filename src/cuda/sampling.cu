/* sampling - op sample and op top_k for one output row per block (BEHAVIOUR 7.2).
 *
 *   work = logits, adjusted and masked; what a limit drops becomes -inf
 *   top_k, top_p, min_p keep a head of the order "value falls, then id rises"; typical_p one of the
 *   order "distance from the entropy rises, then id rises"
 *
 * A head is found without sorting: three passes build histograms of the values' bits, of counts
 * (top_k) or of probability in fixed point (top_p, typical_p), so the order in which threads add
 * does not matter. Equal values at the border are kept by id.
 */
#include "cuda/cuda_common.cuh"
#include "tensor/sample.h"

#define SAMPLE_THREADS 1024
#define SAMPLE_BINS 2048
#define SAMPLE_BLOCK 256        /* ids per sum of the draw */
#define SAMPLE_ONE (1ull << 40) /* fixed point of a probability's numerator */
#define SAMPLE_SUMS_MAX 4096    /* vocabularies up to 1M */

struct sample_shared {
    unsigned long long bins[SAMPLE_BINS];
    float sums[SAMPLE_SUMS_MAX];
    float room[32];
    int ids[32];
    unsigned long long found; /* what lies above the chosen bin */
    uint32_t bin, count;
    int chosen;
};

/* Larger floats have larger keys. */
static __device__ __forceinline__ uint32_t sample_key(float x)
{
    uint32_t u = __float_as_uint(x);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* What is no number cannot be chosen. */
static __device__ __forceinline__ float sample_number(float x)
{
    return x == x ? x : -COMMON_INFINITY;
}

static __device__ float sample_sum(const float *x, uint32_t n, float max, float scale,
                                   sample_shared &s)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const uint32_t blocks = (n + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    for (uint32_t b = warp; b < blocks; b += SAMPLE_THREADS / 32) {
        float sum = 0, v[SAMPLE_BLOCK / 32];
#pragma unroll
        for (uint32_t i = 0; i < SAMPLE_BLOCK / 32; i++) {
            uint32_t at = b * SAMPLE_BLOCK + i * 32 + lane;
            v[i] = at < n ? x[at] : -COMMON_INFINITY;
        }
#pragma unroll
        for (uint32_t i = 0; i < SAMPLE_BLOCK / 32; i++)
            sum = __fadd_rn(sum, expf(__fmul_rn(__fsub_rn(v[i], max), scale)));
        for (int d = 16; d; d >>= 1)
            sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, d));
        if (lane == 0)
            s.sums[b] = sum;
    }
    __syncthreads();
    float total = 0;
    for (uint32_t b = threadIdx.x & 31; b < blocks; b += 32)
        total = __fadd_rn(total, s.sums[b]);
    for (int d = 16; d; d >>= 1)
        total = __fadd_rn(total, __shfl_xor_sync(~0u, total, d));
    return total;
}

/* Largest value and its lowest id. */
static __device__ float sample_best(const float *x, uint32_t n, int *id, sample_shared &s)
{
    float best = -COMMON_INFINITY;
    int at = INT32_MAX;
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < n; i += SAMPLE_THREADS) {
        float v = sample_number(x[i]);
        if (v > best || at == INT32_MAX) {
            best = v;
            at = (int)i;
        }
    }
    for (int d = 16; d; d >>= 1) {
        float other = __shfl_xor_sync(~0u, best, d);
        int oat = __shfl_xor_sync(~0u, at, d);
        if (other > best || (other == best && oat < at)) {
            best = other;
            at = oat;
        }
    }
    __syncthreads();
    if ((threadIdx.x & 31) == 0) {
        s.room[threadIdx.x / 32] = best;
        s.ids[threadIdx.x / 32] = at;
    }
    __syncthreads();
    best = s.room[0];
    at = s.ids[0];
    for (int w = 1; w < SAMPLE_THREADS / 32; w++)
        if (s.room[w] > best || (s.room[w] == best && s.ids[w] < at)) {
            best = s.room[w];
            at = s.ids[w];
        }
    *id = at;
    return best;
}

static __device__ __forceinline__ unsigned long long sample_mass(float x, float best)
{
    return (unsigned long long)__double2ll_rn((double)expf(__fsub_rn(x, best)) * SAMPLE_ONE);
}

/* Ordering value of an id for a limit: the logit, or for typical_p minus the distance. */
struct sample_order {
    const float *x;
    float best, log_total, entropy;
    bool is_typical;

    __device__ float at(uint32_t i) const
    {
        if (!is_typical || x[i] == -COMMON_INFINITY)
            return x[i];
        return -fabsf(__fsub_rn(__fsub_rn(log_total, __fsub_rn(x[i], best)), entropy));
    }
};

/* Thread 0 finds in which bin, from the top, the sum passes `need`; found = sum above that bin. */
static __device__ void sample_pick_bin(uint32_t bins, unsigned long long need, sample_shared &s)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned long long sum = s.found;
        uint32_t b = bins;
        while (b-- > 1 && sum + s.bins[b] < need)
            sum += s.bins[b];
        s.found = sum;
        s.bin = b;
    }
    __syncthreads();
}

/* Drops all but the head whose sum of weights reaches need (weights: 1, or the mass). */
static __device__ void sample_keep(float *x, uint32_t n, const sample_order &o, bool by_count,
                                   unsigned long long need, sample_shared &s)
{
    const int shifts[3] = {21, 10, 0};
    const uint32_t bins[3] = {2048, 2048, 1024};
    uint32_t prefix = 0;
    if (threadIdx.x == 0)
        s.found = 0;
    for (int pass = 0; pass < 3; pass++) {
        for (uint32_t b = threadIdx.x; b < SAMPLE_BINS; b += SAMPLE_THREADS)
            s.bins[b] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < n; i += SAMPLE_THREADS) {
            if (x[i] == -COMMON_INFINITY)
                continue;
            uint32_t key = sample_key(o.at(i));
            if (pass && key >> shifts[pass - 1] != prefix)
                continue;
            atomicAdd(&s.bins[key >> shifts[pass] & (bins[pass] - 1)],
                      by_count ? 1ull : sample_mass(x[i], o.best));
        }
        sample_pick_bin(bins[pass], need, s);
        prefix = pass ? prefix << (pass == 1 ? 11 : 10) | s.bin : s.bin;
    }
    /* `prefix` is the border's key; equals are kept by id until the sum reaches need. */
    const uint32_t chunk = (n + SAMPLE_THREADS - 1) / SAMPLE_THREADS;
    const uint32_t begin = min(n, threadIdx.x * chunk), end = min(n, begin + chunk);
    unsigned long long mine = 0, *sums = s.bins;
    for (uint32_t i = begin; i < end; i++)
        if (x[i] != -COMMON_INFINITY && sample_key(o.at(i)) == prefix)
            mine += by_count ? 1ull : sample_mass(x[i], o.best);
    __syncthreads();
    sums[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned long long sum = s.found;
        for (int t = 0; t < SAMPLE_THREADS; t++) {
            unsigned long long v = sums[t];
            sums[t] = sum;
            sum += v;
        }
    }
    __syncthreads();
    unsigned long long sum = sums[threadIdx.x];
    for (uint32_t i = begin; i < end; i++) {
        if (x[i] == -COMMON_INFINITY)
            continue;
        uint32_t key = sample_key(o.at(i));
        if (key > prefix)
            continue;
        if (key == prefix && sum < need)
            sum += by_count ? 1ull : sample_mass(x[i], o.best);
        else
            x[i] = -COMMON_INFINITY;
    }
    __syncthreads();
}

static __device__ void sample_limits(float *x, uint32_t n, float best, const cuda_sample_row &r,
                                     sample_shared &s)
{
    sample_order o = {x, best, 0, 0, false};
    if (r.top_k && r.top_k < n)
        sample_keep(x, n, o, true, r.top_k, s);
    if (r.typical_p < 1.0f) {
        float total = sample_sum(x, n, best, 1.0f, s), part = 0;
        o.log_total = logf(total);
        for (uint32_t i = threadIdx.x; i < n; i += SAMPLE_THREADS)
            if (x[i] > -COMMON_INFINITY) {
                float surprise = __fsub_rn(o.log_total, __fsub_rn(x[i], best));
                part = fmaf(expf(-surprise), surprise, part);
            }
        o.entropy = common_sum(part, s.room);
        o.is_typical = true;
        sample_keep(x, n, o, false,
                    (unsigned long long)((double)r.typical_p * total * SAMPLE_ONE) + 1, s);
        o.is_typical = false;
        int id;
        o.best = best = sample_best(x, n, &id, s);
    }
    if (r.top_p < 1.0f) {
        float total = sample_sum(x, n, best, 1.0f, s);
        unsigned long long need = (unsigned long long)((double)r.top_p * total * SAMPLE_ONE);
        sample_keep(x, n, o, false, max(need, 1ull), s);
    }
    if (r.min_p > 0.0f) {
        float low = __fadd_rn(best, logf(r.min_p));
        for (uint32_t i = threadIdx.x; i < n; i += SAMPLE_THREADS)
            if (x[i] < low)
                x[i] = -COMMON_INFINITY;
    }
    __syncthreads();
}

static __device__ int sample_draw(const float *x, uint32_t n, float best, int best_id,
                                  const cuda_sample_row &r, sample_shared &s)
{
    float scale = __fdiv_rn(1.0f, r.temperature);
    float total = sample_sum(x, n, best, scale, s);
    if (threadIdx.x == 0) {
        float u = __fmul_rn(sample_uniform(r.seed, r.position, r.draw), total), sum = 0;
        const uint32_t blocks = (n + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
        uint32_t b = 0;
        while (b + 1 < blocks && __fadd_rn(sum, s.sums[b]) <= u)
            sum = __fadd_rn(sum, s.sums[b++]);
        int chosen = -1;
        for (uint32_t i = b * SAMPLE_BLOCK; i < min(n, (b + 1) * SAMPLE_BLOCK); i++) {
            float w = expf(__fmul_rn(__fsub_rn(x[i], best), scale));
            if (w <= 0)
                continue;
            sum = __fadd_rn(sum, w);
            chosen = (int)i;
            if (sum > u)
                break;
        }
        s.chosen = chosen < 0 ? best_id : chosen; /* rounding left u just past the last block */
    }
    __syncthreads();
    return s.chosen;
}

/* The k best of x as a list; spoils a copy, so it takes turns with -inf instead. */
static __device__ void sample_list(const float *x, uint32_t n, uint32_t k, uint32_t top_max,
                                   int32_t *ids, float *val, sample_shared &s)
{
    float last = COMMON_INFINITY;
    int last_id = -1;
    for (uint32_t rank = 0; rank < top_max; rank++) {
        float best = -COMMON_INFINITY;
        int at = INT32_MAX;
        if (rank < k)
            for (uint32_t i = threadIdx.x; i < n; i += SAMPLE_THREADS) {
                bool is_left = x[i] < last || (x[i] == last && (int)i > last_id);
                if (is_left && (x[i] > best || (x[i] == best && (int)i < at)) &&
                    x[i] > -COMMON_INFINITY) {
                    best = x[i];
                    at = (int)i;
                }
            }
        for (int d = 16; d; d >>= 1) {
            float other = __shfl_xor_sync(~0u, best, d);
            int oat = __shfl_xor_sync(~0u, at, d);
            if (other > best || (other == best && oat < at)) {
                best = other;
                at = oat;
            }
        }
        __syncthreads();
        if ((threadIdx.x & 31) == 0) {
            s.room[threadIdx.x / 32] = best;
            s.ids[threadIdx.x / 32] = at;
        }
        __syncthreads();
        for (int w = 0; w < SAMPLE_THREADS / 32; w++)
            if (s.room[w] > best || (s.room[w] == best && s.ids[w] < at)) {
                best = s.room[w];
                at = s.ids[w];
            }
        if (threadIdx.x == 0) {
            ids[rank] = at == INT32_MAX ? -1 : at;
            val[rank] = best;
        }
        last = best;
        last_id = at;
    }
}

static __device__ bool sample_has_limits(const cuda_sample_row &r)
{
    return r.top_k || r.typical_p < 1.0f || r.top_p < 1.0f || r.min_p > 0.0f;
}

static __device__ void sample_adjust(float *x, const float *raw, uint32_t n, uint32_t row,
                                     const cuda_adjust *adjust, uint32_t count,
                                     const uint32_t *mask)
{
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < n; i += SAMPLE_THREADS)
        x[i] = raw[i];
    __syncthreads();
    if (threadIdx.x == 0) /* in order: one id may come more than once */
        for (uint32_t i = 0; i < count; i++)
            if (adjust[i].row == row) {
                float v = x[adjust[i].id];
                v = v > 0 ? __fdiv_rn(v, adjust[i].factor) : __fmul_rn(v, adjust[i].factor);
                x[adjust[i].id] = __fadd_rn(v, adjust[i].add);
            }
    __syncthreads();
    if (mask)
        for (uint32_t i = threadIdx.x; i < n; i += SAMPLE_THREADS)
            if (!(mask[(size_t)row * ((n + 31) / 32) + i / 32] >> (i & 31) & 1))
                x[i] = -COMMON_INFINITY;
    __syncthreads();
}

/* ---- raw logits: maximum and sums, by many blocks ---- */

static __device__ __forceinline__ uint32_t sample_chunks(uint32_t vocab)
{
    return (vocab + CUDA_SAMPLE_CHUNK - 1) / CUDA_SAMPLE_CHUNK;
}

/* Largest of a row's chunks and its lowest id; the same in every thread. */
static __device__ float sample_raw_best(const cuda_sample_args &a, uint32_t row, int *id)
{
    const uint32_t chunks = sample_chunks(a.vocab);
    const float *best = common_ptr<const float>(a.best) + (size_t)row * chunks * 2;
    float most = best[0];
    *id = ((const int *)best)[1];
    for (uint32_t i = 1; i < chunks; i++)
        if (best[2 * i] > most) {
            most = best[2 * i];
            *id = ((const int *)best)[2 * i + 1];
        }
    return most;
}

/* Their sum of exp(x - best), from the sums of 256 as sample_sum adds them. */
static __device__ float sample_raw_sum(const cuda_sample_args &a, uint32_t row)
{
    const uint32_t blocks = (a.vocab + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    const float *sums = common_ptr<const float>(a.sums) + (size_t)row * blocks;
    float total = 0;
    for (uint32_t b = threadIdx.x & 31; b < blocks; b += 32)
        total = __fadd_rn(total, sums[b]);
    for (int d = 16; d; d >>= 1)
        total = __fadd_rn(total, __shfl_xor_sync(~0u, total, d));
    return total;
}

/* grid: x = chunks, y = output rows. */
KERNEL __launch_bounds__(512) sample_best_part(const __grid_constant__ cuda_sample_args a)
{
    __shared__ float room[16];
    __shared__ int ids[16];
    common_release();
    common_wait();
    const uint32_t first = blockIdx.x * CUDA_SAMPLE_CHUNK, row = blockIdx.y;
    const float *x = common_ptr<const float>(a.logits) + (size_t)row * a.vocab;
    float best = -COMMON_INFINITY;
    int at = INT32_MAX;
#pragma unroll
    for (uint32_t i = threadIdx.x; i < CUDA_SAMPLE_CHUNK; i += 512) {
        const float v = first + i < a.vocab ? sample_number(x[first + i]) : -COMMON_INFINITY;
        if (first + i < a.vocab && (v > best || at == INT32_MAX)) {
            best = v;
            at = (int)(first + i);
        }
    }
    for (int d = 16; d; d >>= 1) {
        const float other = __shfl_xor_sync(~0u, best, d);
        const int oat = __shfl_xor_sync(~0u, at, d);
        if (other > best || (other == best && oat < at)) {
            best = other;
            at = oat;
        }
    }
    if ((threadIdx.x & 31) == 0) {
        room[threadIdx.x / 32] = best;
        ids[threadIdx.x / 32] = at;
    }
    __syncthreads();
    if (threadIdx.x)
        return;
    for (int w = 1; w < 16; w++)
        if (room[w] > best || (room[w] == best && ids[w] < at)) {
            best = room[w];
            at = ids[w];
        }
    float *out =
        common_ptr<float>(a.best) + ((size_t)row * sample_chunks(a.vocab) + blockIdx.x) * 2;
    out[0] = best;
    ((int *)out)[1] = at;
}

/* grid: x = chunks, y = output rows; a warp per 256 ids, as in sample_sum. */
KERNEL __launch_bounds__(512) sample_sums_part(const __grid_constant__ cuda_sample_args a)
{
    common_release();
    common_wait();
    const uint32_t lane = threadIdx.x & 31, row = blockIdx.y;
    const uint32_t b = blockIdx.x * (CUDA_SAMPLE_CHUNK / SAMPLE_BLOCK) + threadIdx.x / 32;
    const uint32_t blocks = (a.vocab + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    const float *x = common_ptr<const float>(a.logits) + (size_t)row * a.vocab;
    if (b >= blocks)
        return;
    int unused;
    const float best = sample_raw_best(a, row, &unused);
    float sum = 0, v[SAMPLE_BLOCK / 32];
#pragma unroll
    for (uint32_t i = 0; i < SAMPLE_BLOCK / 32; i++) {
        const uint32_t at = b * SAMPLE_BLOCK + i * 32 + lane;
        v[i] = at < a.vocab ? x[at] : -COMMON_INFINITY;
    }
#pragma unroll
    for (uint32_t i = 0; i < SAMPLE_BLOCK / 32; i++)
        sum = __fadd_rn(sum, expf(__fmul_rn(__fsub_rn(v[i], best), 1.0f)));
    for (int d = 16; d; d >>= 1)
        sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, d));
    if (lane == 0)
        common_ptr<float>(a.sums)[(size_t)row * blocks + b] = sum;
}

/* grid: x = output rows. */
KERNEL __launch_bounds__(SAMPLE_THREADS) sample_row(const __grid_constant__ cuda_sample_args a)
{
    __shared__ sample_shared s;
    common_release();
    common_wait();
    const uint32_t row = blockIdx.x, n = a.vocab;
    const cuda_sample_row r = common_ptr<const cuda_sample_row>(a.rows)[row];
    const float *raw = common_ptr<const float>(a.logits) + (size_t)row * n;
    float *x = common_ptr<float>(a.adjusted) + (size_t)row * n;
    const uint32_t *mask = common_ptr<const uint32_t>(a.mask);
    const uint32_t adjust_count = *common_ptr<const uint32_t>(a.adjust); /* then the rows, at 16 */
    const cuda_adjust *adjust = common_ptr<const cuda_adjust>(a.adjust + 16);
    __shared__ int changes;
    if (threadIdx.x == 0) {
        changes = mask != nullptr || (r.temperature > 0 && sample_has_limits(r));
        for (uint32_t i = 0; i < adjust_count && !changes; i++)
            changes = adjust[i].row == row;
    }
    __syncthreads();
    if (!changes)
        x = (float *)raw; /* nothing below writes it then */
    else
        sample_adjust(x, raw, n, row, adjust, adjust_count, mask);
    int raw_id, best_id;
    const float raw_best = sample_raw_best(a, row, &raw_id);
    const float raw_lse = __fadd_rn(raw_best, logf(sample_raw_sum(a, row)));
    best_id = raw_id;
    float best = changes ? sample_best(x, n, &best_id, s) : raw_best;
    __syncthreads();
    if (a.lse) {
        float lse = raw_lse;
        if (changes)
            lse = __fadd_rn(best, logf(sample_sum(x, n, best, 1.0f, s)));
        if (threadIdx.x == 0) {
            common_ptr<float>(a.lse)[row * 2] = raw_lse;
            common_ptr<float>(a.lse)[row * 2 + 1] = lse;
        }
        __syncthreads();
        if (r.k)
            sample_list(x, n, r.k, a.top_max, common_ptr<int32_t>(a.top_ids) + row * a.top_max,
                        common_ptr<float>(a.top_val) + row * a.top_max, s);
        if (r.raw_k)
            sample_list(raw, n, r.raw_k, a.top_max,
                        common_ptr<int32_t>(a.raw_ids) + row * a.top_max,
                        common_ptr<float>(a.raw_val) + row * a.top_max, s);
    }
    if (!a.ids)
        return;
    int id = best_id;
    if (r.temperature > 0) {
        sample_limits(x, n, best, r, s);
        best = sample_best(x, n, &best_id, s);
        id = sample_draw(x, n, best, best_id, r, s);
    }
    if (threadIdx.x == 0) {
        if (!(best > -COMMON_INFINITY)) /* none to choose */
            id = -1;
        common_ptr<int32_t>(a.ids)[row] = id;
        common_ptr<float>(a.logprob)[row] = id < 0 ? -COMMON_INFINITY : __fsub_rn(raw[id], raw_lse);
    }
}
