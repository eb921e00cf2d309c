/* ops - row ops: norms, element-wise maps, RoPE, page writes, pooling. */
#include "cuda/cuda_common.cuh"

/* ---- norms ---- */

/* Four neighbours of a row at column i; rows of at most 4 * 1024 columns go through registers. */
static __device__ __forceinline__ float4 ops_load4(const cuda_view &v, uint32_t row, uint32_t i)
{
    return *reinterpret_cast<const float4 *>(common_ptr<const float>(v.p) + (size_t)row * v.stride +
                                             v.first + i);
}

static __device__ __forceinline__ float4 ops_add4(float4 a, float4 b)
{
    return {__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w)};
}

/* Four columns k .. k + 3 of one thread into a form that is not f32: 8 threads hold 32 columns, 64
 * hold 256. */
static __device__ __forceinline__ void ops_quantise4(const cuda_act_args &a, uint32_t row,
                                                     uint32_t k, float4 x, uint32_t *most)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    if (a.form == CUDA_FORM_BF16) {
        if (k < a.kp) {
            *common_bf16_at(a, row, k) = __floats2bfloat162_rn(x.x, x.y);
            *common_bf16_at(a, row, k + 2) = __floats2bfloat162_rn(x.z, x.w);
        }
        return;
    }
    uint32_t bits =
        max(max(__float_as_uint(x.x) & 0x7fffffffu, __float_as_uint(x.y) & 0x7fffffffu),
            max(__float_as_uint(x.z) & 0x7fffffffu, __float_as_uint(x.w) & 0x7fffffffu));
    for (int d = 4; d; d >>= 1)
        bits = max(bits, __shfl_xor_sync(~0u, bits, d));
    if (a.form == CUDA_FORM_INT8_256) {
        bits = max(bits, __shfl_xor_sync(~0u, bits, 8));
        bits = max(bits, __shfl_xor_sync(~0u, bits, 16));
        if (lane == 0)
            most[warp] = bits;
        __syncthreads();
        bits = max(most[warp & ~1u], most[warp | 1u]);
    }
    const float amax = __uint_as_float(bits);
    const bool is_zero = bits < 0x0d800000u; /* 2^-100 */
    const float inverse = is_zero ? 0.0f : __fdiv_rn(127.0f, amax);
    int c[4] = {__float2int_rn(__fmul_rn(x.x, inverse)), __float2int_rn(__fmul_rn(x.y, inverse)),
                __float2int_rn(__fmul_rn(x.z, inverse)), __float2int_rn(__fmul_rn(x.w, inverse))};
    for (int j = 0; j < 4; j++)
        c[j] = max(-127, min(127, c[j]));
    int sum = c[0] + c[1] + c[2] + c[3];
    for (int d = 4; d; d >>= 1)
        sum += __shfl_xor_sync(~0u, sum, d);
    if (k >= a.kp)
        return;
    const float d = is_zero ? 0.0f : __fdiv_rn(amax, 127.0f);
    if (a.image) {
        row += a.row_first;
        uint8_t *image = common_image(a, row, k);
        *common_image_codes(image, row, k) = __halves2half2(__int2half_rn(c[0]),
                                                            __int2half_rn(c[1]));
        *common_image_codes(image, row, k + 2) = __halves2half2(__int2half_rn(c[2]),
                                                                __int2half_rn(c[3]));
        if (k % 32 == 0)
            common_image_scale(a, image, row, k, d, sum);
        return;
    }
    const size_t at = (size_t)row * a.kp + k;
    *(uint32_t *)(common_ptr<int8_t>(a.q) + (size_t)row * a.kp + common_place(k)) =
        (c[0] & 255) | (c[1] & 255) << 8 | (c[2] & 255) << 16 | (uint32_t)c[3] << 24;
    if (k % 32 == 0)
        common_ptr<int16_t>(a.s)[at / 32] = (int16_t)sum;
    if (k % 32 == 0 && a.form == CUDA_FORM_INT8_32)
        common_ptr<float>(a.d)[at / 32] = d;
    if (k % 256 == 0 && a.form == CUDA_FORM_INT8_256)
        common_ptr<float>(a.d)[at / 256] = d;
}

/* Inputs without gaps into a form that is not f32: four columns a thread. grid: x = kp / 1024,
 * y = rows. */
KERNEL __launch_bounds__(256) ops_act4(const __grid_constant__ cuda_act_args a)
{
    __shared__ uint32_t most[8];
    common_release();
    common_wait();
    const uint32_t k = (blockIdx.x * 256 + threadIdx.x) * 4;
    ops_quantise4(a, blockIdx.y, k,
                  k < a.k ? ops_load4(a.x, blockIdx.y, k) : float4{0, 0, 0, 0}, most);
}

/* The common case: rms_norm of a whole row of up to 4096 columns, a multiple of 4, four a thread.
 * grid: x = rows. Sums as ops_norm's: neither reads the other's bits. */
KERNEL __launch_bounds__(1024) ops_norm4(const __grid_constant__ cuda_norm_args a)
{
    __shared__ float room[32];
    __shared__ uint32_t most[32];
    common_release();
    const uint32_t row = blockIdx.x, i = 4 * threadIdx.x;
    const bool is_in = i < a.width;
    float4 x = {0, 0, 0, 0}, w = x;
    if (is_in)
        w = *reinterpret_cast<const float4 *>(common_ptr<const float>(a.w) + i);
    common_wait();
    if (is_in) {
        x = ops_load4(a.x, row, i);
        if (a.b.p) {
            x = ops_add4(x, ops_load4(a.b, row, i));
            *reinterpret_cast<float4 *>(common_ptr<float>(a.sum) + (size_t)row * a.width + i) = x;
        }
    }
    float total =
        common_sum(fmaf(x.w, x.w, fmaf(x.z, x.z, fmaf(x.y, x.y, __fmul_rn(x.x, x.x)))), room);
    float n = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(total, (float)a.width), a.eps)));
    x = {__fmul_rn(__fmul_rn(x.x, n), w.x), __fmul_rn(__fmul_rn(x.y, n), w.y),
         __fmul_rn(__fmul_rn(x.z, n), w.z), __fmul_rn(__fmul_rn(x.w, n), w.w)};
    if (is_in)
        *reinterpret_cast<float4 *>(common_ptr<float>(a.out) + (size_t)row * a.width + i) = x;
    if (a.act.q)
        ops_quantise4(a.act, row, i, x, most);
}

/* Any norm. grid: x = rows * groups. x + b first where b is given (sum gets it). */
KERNEL __launch_bounds__(256) ops_norm(const __grid_constant__ cuda_norm_args a)
{
    __shared__ float room[32];
    __shared__ uint32_t most[8];
    common_release();
    common_wait();
    const uint32_t row = blockIdx.x / a.groups, group = blockIdx.x % a.groups;
    const uint32_t all = a.groups * a.width, at = group * a.width;
    float *sum = common_ptr<float>(a.sum), *out = common_ptr<float>(a.out) + (size_t)row * all + at;
    const float *w = common_ptr<const float>(a.w), *bias = common_ptr<const float>(a.bias);
    float total = 0, mean = 0;
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        float x = common_view(a.x, row, at + i);
        if (a.b.p) {
            x = __fadd_rn(x, common_view(a.b, row, at + i));
            sum[(size_t)row * all + at + i] = x;
        }
        out[i] = x;
        total = a.is_layer_norm ? __fadd_rn(total, x) : fmaf(x, x, total);
    }
    total = common_sum(total, room);
    if (a.is_layer_norm) {
        mean = __fdiv_rn(total, (float)a.width);
        total = 0;
        for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
            total = fmaf(__fsub_rn(out[i], mean), __fsub_rn(out[i], mean), total);
        total = common_sum(total, room);
    }
    float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(total, (float)a.width), a.eps)));
    const uint32_t end = a.act.q ? a.act.kp : a.width;
    for (uint32_t first = 0; first < end; first += blockDim.x) {
        const uint32_t i = first + threadIdx.x;
        float y = 0;
        if (i < a.width) {
            y = __fmul_rn(__fsub_rn(out[i], mean), inverse);
            if (w)
                y = __fmul_rn(y, w[i]);
            if (bias)
                y = __fadd_rn(y, bias[i]);
            out[i] = y;
        }
        if (a.act.q)
            common_quantise(a.act, row, i, y, most);
    }
}

/* ---- element-wise ---- */

/* grid: x over width, y = rows. b_width 1: one number per row or, a weight, for all rows. */
KERNEL __launch_bounds__(256) ops_map(const __grid_constant__ cuda_map_args a)
{
    common_release();
    common_wait();
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (i >= a.width)
        return;
    uint32_t from = a.rows_of ? common_ptr<const uint32_t>(a.rows_of)[row] : row;
    float x = common_view(a.a, from, i), y = 0;
    if (a.b.p)
        y = common_view(a.b, a.b_per_row ? row : 0, a.b_width == 1 ? 0 : i);
    switch (a.kind) {
    case CUDA_MAP_COPY:
        break;
    case CUDA_MAP_ACT:
        x = common_act(a.act, x);
        break;
    case CUDA_MAP_GLU:
        x = common_glu_of({a.act, a.alpha, a.up_add, a.clamp_gate, a.clamp_up}, x, y);
        break;
    case CUDA_MAP_ADD:
        x = __fadd_rn(x, y);
        break;
    case CUDA_MAP_MUL:
        x = __fmul_rn(x, y);
        break;
    case CUDA_MAP_SCALE:
        x = __fmul_rn(x, a.x);
        break;
    case CUDA_MAP_SOFTCAP:
        x = __fmul_rn(a.x, tanhf(__fdiv_rn(x, a.x)));
        break;
    }
    common_ptr<float>(a.out)[(size_t)row * a.width + i] = x;
}

/* ---- RoPE, with a norm per head before it where there is one ---- */

/* Where a rotated head goes: f32, or f16 in a page. */
struct ops_target {
    float *f;
    __half *h;

    __device__ void put(uint32_t i, float x) const
    {
        if (f)
            f[i] = x;
        else
            h[i] = __float2half_rn(x);
    }
};

/* One head by one warp. pos * freq in f32, as the CPU does. */
static __device__ __forceinline__ void ops_rotate(const cuda_rope_args &a, uint32_t head,
                                                  uint32_t row, const ops_target &out)
{
    const uint32_t lane = threadIdx.x & 31, at = head * a.head_dim;
    const float *w = common_ptr<const float>(a.norm), *freqs = common_ptr<const float>(a.freqs);
    float inverse = 1.0f;
    if (w) {
        float total = 0;
        for (uint32_t i = lane; i < a.head_dim; i += 32) {
            float x = common_view(a.x, row, at + i);
            total = fmaf(x, x, total);
        }
        for (int d = 16; d; d >>= 1)
            total = __fadd_rn(total, __shfl_xor_sync(~0u, total, d));
        inverse =
            __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(total, (float)a.head_dim), a.eps)));
    }
    const float pos = (float)common_ptr<const int32_t>(a.pos)[row];
    for (uint32_t i = lane; i < a.head_dim; i += 32)
        if (i < a.first || i >= a.first + a.n_rot) {
            float x = common_view(a.x, row, at + i);
            out.put(i, w ? __fmul_rn(__fmul_rn(x, inverse), w[i]) : x);
        }
    const uint32_t half = a.n_rot / 2;
    for (uint32_t i = lane; i < half; i += 32) {
        uint32_t p = a.first + (a.kind ? i : 2 * i), q = a.first + (a.kind ? i + half : 2 * i + 1);
        float x = common_view(a.x, row, at + p), y = common_view(a.x, row, at + q);
        if (w) {
            x = __fmul_rn(__fmul_rn(x, inverse), w[p]);
            y = __fmul_rn(__fmul_rn(y, inverse), w[q]);
        }
        float s, c;
        sincosf(__fmul_rn(pos, freqs[i]), &s, &c);
        s = __fmul_rn(s, a.mscale);
        c = __fmul_rn(c, a.mscale);
        out.put(p, fmaf(x, c, -__fmul_rn(y, s)));
        out.put(q, fmaf(x, s, __fmul_rn(y, c)));
    }
}

/* grid: x = heads, y = rows; a warp. */
KERNEL __launch_bounds__(32) ops_rope(const __grid_constant__ cuda_rope_args a)
{
    common_release();
    common_wait();
    ops_target out = {common_ptr<float>(a.out) +
                          ((size_t)blockIdx.y * a.heads + blockIdx.x) * a.head_dim,
                      nullptr};
    ops_rotate(a, blockIdx.x, blockIdx.y, out);
}

/* ---- pages ---- */

/* Where K or V of a row's token go: a head's lie [token][column] in its page. */
struct ops_slot {
    uint8_t *base; /* of the head; NULL: no page */
    uint32_t token, width;

    __device__ __half *halves() const
    {
        return base ? (__half *)base + token * width : nullptr;
    }
};

static __device__ __forceinline__ ops_slot ops_slot_of(const cuda_kv_write_args &a, uint32_t row,
                                                       uint32_t head, bool is_v)
{
    const uint32_t pos = (uint32_t)common_ptr<const int32_t>(a.pos)[row];
    const uint32_t seq = common_ptr<const uint32_t>(a.seq)[row];
    const uint32_t page = common_ptr<const uint32_t>(a.kv.pages)[seq * a.kv.pages_max + pos / 32];
    uint8_t *base = common_ptr<uint8_t>(a.kv.pool) + page * a.kv.page_size;
    base += is_v ? a.kv.v_offset + (size_t)head * a.kv.v_size : (size_t)head * a.kv.k_size;
    return {page == ~0u ? nullptr : base, pos % 32, is_v ? a.kv.dv : a.kv.dk};
}

/* x[n], of a warp alone in shared memory, times the Hadamard matrix of each piece: the largest
 * power of two that divides n. Sums and their order are those of the CPU. */
static __device__ __forceinline__ void ops_turn_head(float *x, uint32_t n)
{
    const uint32_t piece = n & (~n + 1);
    for (uint32_t h = 1; h < piece; h *= 2) {
        for (uint32_t i = threadIdx.x & 31; i < n / 2; i += 32) {
            const uint32_t at = i / h * 2 * h + i % h;
            const float a = x[at], b = x[at + h];
            x[at] = __fadd_rn(a, b);
            x[at + h] = __fsub_rn(a, b);
        }
        __syncwarp();
    }
}

/* A warp's x[width] as int8 with one f16 scale, as the CPU makes them: a NaN makes the scale one,
 * what is out of range is cut. */
static __device__ __forceinline__ void ops_store_codes(const ops_slot &to, const float *x)
{
    const uint32_t lane = threadIdx.x & 31;
    float most = 0;
    bool has_nan = false;
    for (uint32_t i = lane; i < to.width; i += 32) {
        most = fmaxf(most, fabsf(x[i]));
        has_nan = has_nan || x[i] != x[i];
    }
    for (int d = 16; d; d >>= 1)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    has_nan = __any_sync(~0u, has_nan);
    most = fminf(most, 127.0f * 65504.0f);
    const __half scale =
        has_nan ? __ushort_as_half(0x7e00) : __float2half_rn(__fdiv_rn(most, 127.0f));
    const float d = __half2float(scale);
    const float inverse = has_nan || d == 0.0f ? 0.0f : __fdiv_rn(1.0f, d);
    for (uint32_t i = lane; i < to.width; i += 32) {
        const float y = inverse == 0.0f ? 0.0f : __fmul_rn(x[i], inverse);
        to.base[to.token * to.width + i] =
            (uint8_t)__float2int_rn(fminf(fmaxf(y, -127.0f), 127.0f));
    }
    if (lane == 0)
        ((__half *)(to.base + 32 * to.width))[to.token] = scale;
}

/* K or V of a row's head by a warp. room: the warp's, for int8. */
template <bool IS_INT8>
static __device__ __forceinline__ void ops_store(const cuda_kv_write_args &a, uint32_t row,
                                                 uint32_t head, bool is_v, float *room)
{
    const ops_slot to = ops_slot_of(a, row, head, is_v);
    const cuda_view &from = is_v ? a.v : a.k;
    if (!to.base)
        return;
    if constexpr (!IS_INT8) {
        for (uint32_t i = threadIdx.x & 31; i < to.width; i += 32)
            to.halves()[i] = __float2half_rn(common_view(from, row, head * to.width + i));
    } else {
        for (uint32_t i = threadIdx.x & 31; i < to.width; i += 32)
            room[i] = common_view(from, row, head * to.width + i);
        __syncwarp();
        if (!is_v)
            ops_turn_head(room, to.width);
        ops_store_codes(to, room);
        __syncwarp();
    }
}

/* A query's head by a warp, so that products with turned keys are those of the plain ones. */
static __device__ __forceinline__ void ops_store_turned(float *out, float *room, uint32_t n)
{
    const float factor = __fdiv_rn(1.0f, (float)(n & (~n + 1))); /* a power of two */
    __syncwarp();
    ops_turn_head(room, n);
    for (uint32_t i = threadIdx.x & 31; i < n; i += 32)
        out[i] = __fmul_rn(room[i], factor);
}

/* grid: x = heads by fours, y = rows; a warp per head. */
KERNEL __launch_bounds__(128) ops_turn(const __grid_constant__ cuda_turn_args a)
{
    __shared__ float rooms[4][CUDA_KV_COLUMNS_MAX];
    common_release();
    common_wait();
    const uint32_t row = blockIdx.y, head = blockIdx.x * 4 + threadIdx.x / 32;
    const uint32_t lane = threadIdx.x & 31;
    if (head >= a.heads)
        return;
    float *room = rooms[threadIdx.x / 32];
    for (uint32_t i = lane; i < a.dk; i += 32)
        room[i] = common_view(a.x, row, head * a.dk + i);
    ops_store_turned(common_ptr<float>(a.out) + ((size_t)row * a.heads + head) * a.dk, room, a.dk);
}

/* grid: x = kv heads, y = rows; a warp. */
KERNEL __launch_bounds__(32) ops_kv_write(const __grid_constant__ cuda_kv_write_args a)
{
    common_release();
    common_wait();
    ops_store<false>(a, blockIdx.y, blockIdx.x, false, nullptr);
    ops_store<false>(a, blockIdx.y, blockIdx.x, true, nullptr);
}

KERNEL __launch_bounds__(32) ops_kv_write_int8(const __grid_constant__ cuda_kv_write_args a)
{
    __shared__ float room[CUDA_KV_COLUMNS_MAX];
    common_release();
    common_wait();
    ops_store<true>(a, blockIdx.y, blockIdx.x, false, room);
    ops_store<true>(a, blockIdx.y, blockIdx.x, true, room);
}

/* Heads of q, then of k, then of v; a warp per head. */
template <bool IS_INT8>
static __device__ __forceinline__ void ops_rope_head(const cuda_rope_qk_args &a, float *room)
{
    const uint32_t row = blockIdx.y, kv_heads = a.write.kv.kv_heads;
    uint32_t head = blockIdx.x * 4 + threadIdx.x / 32;
    if (head >= a.q.heads + 2 * kv_heads)
        return;
    if (head < a.q.heads) {
        float *out =
            common_ptr<float>(a.q.out) + ((size_t)row * a.q.heads + head) * a.q.head_dim;
        const bool turns = IS_INT8 && a.turns_q;
        ops_rotate(a.q, head, row, {turns ? room : out, nullptr});
        if (turns)
            ops_store_turned(out, room, a.q.head_dim);
        return;
    }
    head -= a.q.heads;
    if (head >= kv_heads) {
        ops_store<IS_INT8>(a.write, row, head - kv_heads, true, room);
        return;
    }
    const ops_slot to = ops_slot_of(a.write, row, head, false);
    if (!to.base)
        return;
    ops_rotate(a.k, head, row, {room, IS_INT8 ? nullptr : to.halves()});
    if constexpr (IS_INT8) {
        __syncwarp();
        ops_turn_head(room, to.width);
        ops_store_codes(to, room);
    }
}

/* grid: x = heads by fours, y = rows. */
KERNEL __launch_bounds__(128) ops_rope_qk(const __grid_constant__ cuda_rope_qk_args a)
{
    common_release();
    common_wait();
    ops_rope_head<false>(a, nullptr);
}

KERNEL __launch_bounds__(128) ops_rope_qk_int8(const __grid_constant__ cuda_rope_qk_args a)
{
    __shared__ float rooms[4][CUDA_KV_COLUMNS_MAX];
    common_release();
    common_wait();
    ops_rope_head<true>(a, rooms[threadIdx.x / 32]);
}

/* grid: x = sequences. kind: 0 mean, 1 first row, 2 last row of the sequence. */
KERNEL __launch_bounds__(256) ops_pool(const __grid_constant__ cuda_pool_args a)
{
    __shared__ float room[32];
    common_release();
    common_wait();
    const uint32_t *seq = common_ptr<const uint32_t>(a.seq);
    float *out = common_ptr<float>(a.out) + (size_t)blockIdx.x * a.width;
    uint32_t first = 0, end = a.rows;
    while (first < a.rows && seq[first] != blockIdx.x)
        first++;
    for (end = first; end < a.rows && seq[end] == blockIdx.x;)
        end++;
    float total = 0;
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        float x = 0;
        if (a.kind == 1 && first < end)
            x = common_view(a.x, first, i);
        else if (a.kind == 2 && first < end)
            x = common_view(a.x, end - 1, i);
        else if (a.kind == 0) {
            for (uint32_t r = first; r < end; r++)
                x = __fadd_rn(x, common_view(a.x, r, i));
            x = first < end ? __fdiv_rn(x, (float)(end - first)) : 0;
        }
        out[i] = x;
        total = fmaf(x, x, total);
    }
    if (!a.l2)
        return;
    float norm = __fsqrt_rn(common_sum(total, room));
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
        out[i] = norm > 0 ? __fdiv_rn(out[i], norm) : 0;
}
