/* pack - weights from file layout to packed records, activations to their forms, rows of a
 * table.
 *
 * pack_weight: a warp per record; each lane fills what it will read back in matmul.
 */
#include "cuda/cuda_dequant.cuh"

/* Block sizes in the file (docs/formats/gguf.md). */
static __device__ __forceinline__ uint32_t pack_block_size(uint32_t format)
{
    const uint32_t sizes[] = {4, 2, 2, 18, 20, 22, 24, 34, 17, 144, 176, 210};
    return sizes[format];
}

static __device__ __forceinline__ uint32_t pack_u32(const uint8_t *p)
{
    return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
}

static __device__ __forceinline__ uint16_t pack_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* Unsigned code of input k of a record in a file row (Q8_0: signed). */
static __device__ int pack_code(uint32_t format, const uint8_t *row, uint32_t k0, uint32_t k)
{
    uint32_t i = k & 31;
    const uint8_t *b = row + (size_t)(k0 + k) / 32 * pack_block_size(format);
    switch (format) {
    case CUDA_FORMAT_Q4_0:
        return i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4;
    case CUDA_FORMAT_Q4_1:
        return i < 16 ? b[4 + i] & 15 : b[4 + i - 16] >> 4;
    case CUDA_FORMAT_Q5_0:
    case CUDA_FORMAT_Q5_1: {
        b += format == CUDA_FORMAT_Q5_0 ? 2 : 4;
        int low = i < 16 ? b[4 + i] & 15 : b[4 + i - 16] >> 4;
        return low | (pack_u32(b) >> i & 1) << 4;
    }
    case CUDA_FORMAT_Q8_0:
        return (int8_t)b[2 + i];
    case CUDA_FORMAT_MXFP4:
        return i < 16 ? b[1 + i] & 15 : b[1 + i - 16] >> 4;
    case CUDA_FORMAT_Q4_K:
    case CUDA_FORMAT_Q5_K:
    case CUDA_FORMAT_Q6_K:
        break;
    }
    b = row + (size_t)k0 / 256 * pack_block_size(format);
    uint32_t sub = k >> 5;
    if (format == CUDA_FORMAT_Q4_K)
        return b[16 + (sub >> 1) * 32 + i] >> (4 * (sub & 1)) & 15;
    if (format == CUDA_FORMAT_Q5_K)
        return (b[48 + (sub >> 1) * 32 + i] >> (4 * (sub & 1)) & 15) | (b[16 + i] >> sub & 1) << 4;
    uint32_t half = k >> 7, quarter = k >> 5 & 3; /* Q6_K */
    int low = b[64 * half + 32 * (quarter & 1) + i] >> (4 * (quarter >> 1)) & 15;
    return low | (b[128 + 32 * half + i] >> (2 * quarter) & 3) << 4;
}

/* 6-bit scale and minimum of block `sub` of Q4_K and Q5_K. */
static __device__ void pack_scales(const uint8_t *s, uint32_t sub, uint8_t *scale, uint8_t *low)
{
    if (sub < 4) {
        *scale = s[sub] & 63;
        *low = s[sub + 4] & 63;
        return;
    }
    *scale = (uint8_t)((s[sub + 4] & 15) | (s[sub - 4] >> 6) << 4);
    *low = (uint8_t)((s[sub + 4] >> 4) | (s[sub] >> 6) << 4);
}

/* Scales of one row of a record; the lane has `part` 0 or 1: half of the blocks each. */
static __device__ void pack_row_scales(uint32_t format, uint8_t *rec, const uint8_t *row,
                                       uint32_t r, uint32_t k0, uint32_t cols, uint32_t part)
{
    dequant_layout l = dequant_layout_of(format);
    const uint32_t block = pack_block_size(format);
    for (uint32_t sub = part * 4; sub < part * 4 + 4; sub++) {
        bool is_there = row && k0 + sub * 32 < cols;
        if (!dequant_is_k(format)) {
            const uint8_t *b = row + (size_t)(k0 / 32 + sub) * block;
            uint16_t scale = is_there ? pack_u16(b) : 0;
            if (format == CUDA_FORMAT_MXFP4) /* 2^(e - 128), as bf16 */
                scale = !is_there ? 0 : b[0] < 2 ? 0x20 << b[0] : (uint16_t)((b[0] - 1) << 7);
            *(uint16_t *)(rec + l.scale + (r * 8 + sub) * 2) = scale;
            if (dequant_has_min(format))
                *(uint16_t *)(rec + l.mins + (r * 8 + sub) * 2) = is_there ? pack_u16(b + 2) : 0;
            continue;
        }
        const uint8_t *b = row + (size_t)k0 / 256 * block;
        if (format == CUDA_FORMAT_Q6_K) {
            rec[l.scale + r * 16 + sub * 2] = is_there ? b[192 + sub * 2] : 0;
            rec[l.scale + r * 16 + sub * 2 + 1] = is_there ? b[193 + sub * 2] : 0;
            *(uint16_t *)(rec + l.super + 2 * r) = is_there ? pack_u16(b + 208) : 0;
            continue;
        }
        uint8_t scale = 0, low = 0;
        if (is_there)
            pack_scales(b + 4, sub, &scale, &low);
        rec[l.scale + r * 8 + sub] = scale;
        rec[l.mins + r * 8 + sub] = low;
        *(uint16_t *)(rec + l.super + 4 * r) = is_there ? pack_u16(b) : 0;
        *(uint16_t *)(rec + l.super + 4 * r + 2) = is_there ? pack_u16(b + 2) : 0;
    }
}

static __device__ void pack_floats(const cuda_pack_args &a, uint8_t *rec, const uint8_t *src,
                                   uint32_t tile, uint32_t k0, uint32_t lane)
{
    const uint32_t size = a.format == CUDA_FORMAT_F32 ? 4 : 2;
    for (uint32_t i = lane; i < CUDA_TILE_ROWS * CUDA_RECORD_K; i += 32) {
        uint32_t r = i / CUDA_RECORD_K, k = i % CUDA_RECORD_K, row = tile * CUDA_TILE_ROWS + r;
        bool is_there = row < a.rows && k0 + k < a.cols;
        const uint8_t *p =
            src + (size_t)(row - a.row_first) * a.src_row_size + (size_t)(k0 + k) * size;
        uint32_t at = dequant_float_index(a.format, r, k);
        if (size == 4)
            ((uint32_t *)rec)[at] = is_there ? pack_u32(p) : 0;
        else
            ((uint16_t *)rec)[at] = is_there ? pack_u16(p) : 0;
    }
}

/* grid: x = records of a tile, y = tiles of the piece; one warp. */
KERNEL __launch_bounds__(32) pack_weight(const __grid_constant__ cuda_pack_args a)
{
    const uint32_t lane = threadIdx.x, records = gridDim.x;
    const uint32_t tile = a.row_first / CUDA_TILE_ROWS + blockIdx.y;
    const uint32_t k0 = blockIdx.x * CUDA_RECORD_K;
    const uint8_t *src = common_ptr<const uint8_t>(a.src);
    dequant_layout l = dequant_layout_of(a.format);
    uint8_t *rec = common_ptr<uint8_t>(a.dst) + ((size_t)tile * records + blockIdx.x) * l.size;
    common_wait();
    if (dequant_is_float(a.format)) {
        pack_floats(a, rec, src, tile, k0, lane);
        return;
    }
    const uint8_t *rows[2];
    for (int h = 0; h < 2; h++) {
        uint32_t row = tile * CUDA_TILE_ROWS + (lane >> 2) + 8 * h;
        rows[h] = row < a.rows ? src + (size_t)(row - a.row_first) * a.src_row_size : nullptr;
    }
    for (uint32_t sub = 0; sub < 8; sub++)
        for (uint32_t j = 0; j < 4; j++)
            for (uint32_t b = 0; b < 4; b++) {
                uint32_t t = lane & 3, h = j >> 1;
                uint32_t k = sub * 32 + 16 * h + 4 * t + b;
                const uint8_t *row = rows[j & 1];
                int q = row && k0 + k < a.cols ? pack_code(a.format, row, k0, k) : 0;
                if (a.format == CUDA_FORMAT_Q8_0) {
                    rec[sub * 512 + lane * 16 + j * 4 + b] = (uint8_t)q;
                    continue;
                }
                uint32_t pair = sub >> 1, nib = sub & 1;
                if (a.format == CUDA_FORMAT_MXFP4) { /* a block's four codes side by side */
                    uint8_t *two = rec + pair * 512 + lane * 16 + j * 4 + 2 * nib + b / 2;
                    *two = (uint8_t)((b & 1 ? *two : 0) | q << (4 * (b & 1)));
                    continue;
                }
                uint8_t *low = rec + pair * 512 + lane * 16 + j * 4 + b;
                *low = (uint8_t)((nib ? *low : 0) | (q & 15) << (4 * nib));
                if (a.format == CUDA_FORMAT_Q6_K) {
                    uint8_t *high = rec + l.high + lane * 32 + pair * 8 + nib * 4 + b;
                    *high = (uint8_t)((j ? *high : 0) | (q >> 4) << (2 * j));
                } else if (l.high) {
                    uint8_t *high = rec + l.high + lane * 16 + pair * 4 + b;
                    *high = (uint8_t)((j || nib ? *high : 0) | (q >> 4) << (4 * nib + j));
                }
            }
    uint32_t r = lane >> 1, row = tile * CUDA_TILE_ROWS + r;
    pack_row_scales(a.format, rec,
                    row < a.rows ? src + (size_t)(row - a.row_first) * a.src_row_size : nullptr, r,
                    k0, a.cols, lane & 1);
}

/* ---- activations ---- */

/* grid: x = kp / 256, y = rows. Padding up to kp becomes zero. */
KERNEL __launch_bounds__(256) pack_act(const __grid_constant__ cuda_act_args a)
{
    __shared__ uint32_t most[8];
    common_release();
    common_wait();
    const uint32_t k = blockIdx.x * 256 + threadIdx.x;
    common_quantise(a, blockIdx.y, k, k < a.k ? common_view(a.x, blockIdx.y, k) : 0.0f, most);
}

/* grid: x = columns / 256, y = rows; out[row] = scale * W[ids[row]]; id -1 gives zeros. */
KERNEL __launch_bounds__(256) pack_embed(const __grid_constant__ cuda_embed_args a)
{
    common_release();
    common_wait();
    const int id = common_ptr<const int32_t>(a.ids)[blockIdx.y];
    const uint32_t k = blockIdx.x * 256 + threadIdx.x, records = a.kp / CUDA_RECORD_K;
    if (k >= a.cols)
        return;
    float x = 0;
    if (id >= 0 && (uint32_t)id < a.vocab) {
        const uint8_t *rec = common_ptr<const uint8_t>(a.w) +
                             ((size_t)(id / CUDA_TILE_ROWS) * records + k / CUDA_RECORD_K) *
                                 dequant_layout_of(a.format).size;
        x = __fmul_rn(a.scale,
                      dequant_value(a.format, rec, id % CUDA_TILE_ROWS, k % CUDA_RECORD_K));
    }
    common_ptr<float>(a.out)[(size_t)blockIdx.y * a.cols + k] = x;
}
