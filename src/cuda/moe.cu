/* moe - routing, sorting (row, rank) pairs by expert, adding the experts' results.
 *
 * Order of the routing steps: op_route in tensor/op.h (softmax or sigmoid, bias chooses only,
 * groups, top k with ties to the lower index, normalisation, scale).
 */
#include "cuda/cuda_common.cuh"

#define MOE_EXPERTS_MAX 1024
#define MOE_GROUPS_MAX 64

enum { MOE_SOFTMAX, MOE_SIGMOID, MOE_CHOSEN, MOE_SQRT_SOFTPLUS }; /* enum op_gate */

static __device__ int moe_best(const float *score, uint32_t n)
{
    int best = -1;
    for (uint32_t i = 0; i < n; i++)
        if (score[i] > -COMMON_INFINITY && (best < 0 || score[i] > score[best]))
            best = (int)i;
    return best < 0 ? 0 : best;
}

/* The largest score, the lowest index of equals, by a warp. */
static __device__ __forceinline__ int moe_best_of_warp(const float *score, uint32_t n,
                                                       uint32_t lane)
{
    float best = -COMMON_INFINITY;
    int at = INT32_MAX;
    for (uint32_t i = lane; i < n; i += 32)
        if (score[i] > best) {
            best = score[i];
            at = (int)i;
        }
    for (int d = 16; d; d >>= 1) {
        float other = __shfl_xor_sync(~0u, best, d);
        int oat = __shfl_xor_sync(~0u, at, d);
        if (other > best || (other == best && oat < at)) {
            best = other;
            at = oat;
        }
    }
    return at == INT32_MAX ? 0 : at;
}

/* Sum of the two best scores of a group: DeepSeek-V3's group score. */
static __device__ float moe_group_score(const float *score, uint32_t n)
{
    float one = -COMMON_INFINITY, two = -COMMON_INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        float x = score[i];
        if (x > one) {
            two = one;
            one = x;
        } else if (x > two) {
            two = x;
        }
    }
    return n > 1 ? __fadd_rn(one, two) : one;
}

/* Experts outside the groups_used best groups lose their scores. */
static __device__ void moe_mask_groups(const cuda_route_args &a, float *score, float *group)
{
    uint32_t n = a.experts / a.groups;
    for (uint32_t g = 0; g < a.groups; g++)
        group[g] = moe_group_score(score + g * n, n);
    for (uint32_t used = 0; used < a.groups_used; used++)
        group[moe_best(group, a.groups)] = -COMMON_INFINITY;
    for (uint32_t i = 0; i < a.experts; i++)
        if (group[i / n] > -COMMON_INFINITY)
            score[i] = -COMMON_INFINITY;
}

/* grid: x = rows; one warp, the choice by its first lane (k is small). */
KERNEL __launch_bounds__(32) moe_route(const __grid_constant__ cuda_route_args a)
{
    __shared__ float prob[MOE_EXPERTS_MAX], score[MOE_EXPERTS_MAX], group[MOE_GROUPS_MAX];
    __shared__ int32_t chosen[MOE_EXPERTS_MAX]; /* weight: their gates */
    __shared__ float weight[MOE_EXPERTS_MAX];
    common_release();
    common_wait();
    const uint32_t row = blockIdx.x, lane = threadIdx.x;
    const float *bias = common_ptr<const float>(a.bias);
    float most = -COMMON_INFINITY, total = 0, sum = 0, top = 0;
    for (uint32_t i = lane; i < a.experts; i += 32)
        most = fmaxf(most, prob[i] = common_view(a.logits, row, i));
    for (int d = 16; d; d >>= 1)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    for (uint32_t i = lane; i < a.experts; i += 32) {
        float x = prob[i];
        if (a.gate == MOE_SOFTMAX)
            total = __fadd_rn(total, x = expf(__fsub_rn(x, most)));
        else if (a.gate == MOE_SIGMOID)
            x = 1.0f / (1.0f + expf(-x));
        else if (a.gate == MOE_SQRT_SOFTPLUS)
            x = __fsqrt_rn(common_act(6, x));
        prob[i] = x;
    }
    for (int d = 16; d; d >>= 1)
        total = __fadd_rn(total, __shfl_xor_sync(~0u, total, d));
    for (uint32_t i = lane; i < a.experts; i += 32) {
        if (a.gate == MOE_SOFTMAX)
            prob[i] = __fdiv_rn(prob[i], total);
        score[i] = bias ? __fadd_rn(prob[i], bias[i]) : prob[i];
    }
    __syncwarp();
    if (a.groups > 1 && lane == 0)
        moe_mask_groups(a, score, group);
    __syncwarp();
    for (uint32_t r = 0; r < a.k; r++) {
        const int best = moe_best_of_warp(score, a.experts, lane);
        __syncwarp();
        if (lane == 0)
            score[best] = -COMMON_INFINITY;
        __syncwarp();
        const float p = prob[best];
        if (r == 0)
            top = p;
        const float x = a.gate == MOE_CHOSEN ? expf(__fsub_rn(p, top)) : p;
        sum = __fadd_rn(sum, x);
        if (lane == 0) {
            chosen[r] = best;
            weight[r] = x;
        }
    }
    __syncwarp();
    int32_t *work = common_ptr<int32_t>(a.work), *pair = common_ptr<int32_t>(a.pair);
    if (work && lane == 0)
        work[0] = (int32_t)a.k;
    for (uint32_t r = lane; r < a.k; r += 32) {
        float x = weight[r];
        if (a.gate == MOE_CHOSEN)
            x = __fdiv_rn(x, sum);
        else if (a.norm)
            x = __fdiv_rn(x, fmaxf(sum, 6.103515625e-5f));
        common_ptr<int32_t>(a.ids)[row * a.k + r] = chosen[r];
        common_ptr<float>(a.w)[row * a.k + r] = __fmul_rn(x, a.scale);
        if (work) { /* a chunk of one pair for each rank */
            work[1 + 3 * r] = chosen[r];
            work[2 + 3 * r] = pair[r] = (int32_t)r;
            work[3 + 3 * r] = 1;
        }
    }
}

/* Inclusive running sum over the block's 1024 threads. */
static __device__ int moe_scan(int x, uint32_t lane, int *part)
{
    for (int d = 1; d < 32; d <<= 1) {
        int y = __shfl_up_sync(~0u, x, d);
        if (lane >= (uint32_t)d)
            x += y;
    }
    __syncthreads();
    if (lane == 31)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    for (uint32_t w = 0; w < threadIdx.x / 32; w++)
        x += part[w];
    return x;
}

/* One block: counts per expert, where each one's pairs begin, the pairs in their order, and the
 * chunks of at most `wide` columns that matmul works on. Integers only: always the same lists. */
KERNEL __launch_bounds__(1024) moe_sort(const __grid_constant__ cuda_sort_args a)
{
    __shared__ int first[MOE_EXPERTS_MAX + 1], chunk[MOE_EXPERTS_MAX + 1], part[32];
    common_release();
    common_wait();
    const int32_t *ids = common_ptr<const int32_t>(a.ids);
    int32_t *work = common_ptr<int32_t>(a.work), *pair = common_ptr<int32_t>(a.pair);
    for (uint32_t i = threadIdx.x; i <= a.experts; i += blockDim.x)
        first[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.pairs; i += blockDim.x)
        atomicAdd(&first[ids[i] + 1], 1);
    __syncthreads();
    { /* running sums of pairs and chunks: a thread per expert */
        const uint32_t e = threadIdx.x, lane = e & 31;
        const int count = e < a.experts ? first[e + 1] : 0;
        const int chunks = (count + (int)a.wide - 1) / (int)a.wide;
        int pairs = moe_scan(count, lane, part), lists = moe_scan(chunks, lane, part);
        __syncthreads();
        if (e == 0)
            chunk[0] = 0;
        if (e < a.experts) {
            first[e + 1] = pairs;
            chunk[e + 1] = lists;
        }
        __syncthreads();
        if (e == 0)
            work[0] = chunk[a.experts];
    }
    for (uint32_t e = threadIdx.x; e < a.experts; e += blockDim.x) {
        for (int at = first[e], n = chunk[e]; at < first[e + 1]; at += (int)a.wide, n++) {
            work[1 + 3 * n] = (int)e;
            work[2 + 3 * n] = at;
            work[3 + 3 * n] = min((int)a.wide, first[e + 1] - at);
        }
        if (first[e + 1] == first[e])
            continue;
        int at = first[e];
        for (uint32_t i = 0; i < a.pairs; i++)
            if (ids[i] == (int)e)
                pair[at++] = (int)i;
    }
}

/* grid: x over width, y = rows: sum of the ranks in order. */
KERNEL __launch_bounds__(256) moe_sum(const __grid_constant__ cuda_moe_sum_args a)
{
    common_release();
    common_wait();
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (i >= a.width)
        return;
    const float *w = common_ptr<const float>(a.w) + (size_t)row * a.k;
    const float *y = common_ptr<const float>(a.y) + (size_t)row * a.k * a.width + i;
    float s = 0;
    for (uint32_t r = 0; r < a.k; r++)
        s = fmaf(w[r], y[(size_t)r * a.width], s);
    common_ptr<float>(a.out)[(size_t)row * a.width + i] = s;
}
