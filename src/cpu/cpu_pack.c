#include "cpu/cpu_pack.h"

#include <string.h>

#include "cpu/cpu_codes.h"

#define VECTOR 64u

const struct cpu_pack_type cpu_pack_table[QTYPE_WEIGHT_COUNT] = {
    [QTYPE_F32] = {CPU_PACK_FLOAT, 1, 0, 64, 32, 0},
    [QTYPE_F16] = {CPU_PACK_FLOAT, 1, 0, 32, 16, 0},
    [QTYPE_BF16] = {CPU_PACK_FLOAT, 1, 0, 32, 16, 0},
    [QTYPE_Q4_0] = {CPU_PACK_GROUP, 32, 32, 256, 4, 3},
    [QTYPE_Q4_1] = {CPU_PACK_GROUP, 32, 64, 256, 4, 0},
    [QTYPE_Q5_0] = {CPU_PACK_GROUP, 32, 32, 320, 5, 4},
    [QTYPE_Q5_1] = {CPU_PACK_GROUP, 32, 64, 320, 5, 0},
    [QTYPE_Q8_0] = {CPU_PACK_GROUP, 32, 32, 512, 8, 7},
    [QTYPE_Q4_K] = {CPU_PACK_GROUP, 256, 64 + 256, 8 * 256, 4, 0},
    [QTYPE_Q5_K] = {CPU_PACK_GROUP, 256, 64 + 256, 8 * 320, 5, 0},
    [QTYPE_Q6_K] = {CPU_PACK_GROUP, 256, 32 + 256, 8 * 384, 6, 5},
};

static size_t file_row(enum qtype t, size_t in)
{
    return in / quant_table[t].block_elems * quant_table[t].block_bytes;
}

static size_t float_group(enum qtype t, size_t in)
{
    return base_align(base_align(in, 2) * cpu_pack_table[t].code_size, VECTOR);
}

size_t cpu_pack_size(enum qtype t, size_t rows, size_t in)
{
    const struct cpu_pack_type *p = &cpu_pack_table[t];
    size_t groups = (rows + CPU_ROWS - 1) / CPU_ROWS;
    switch (p->kind) {
    case CPU_PACK_FILE:
        return rows * file_row(t, in);
    case CPU_PACK_FLOAT:
        return groups * float_group(t, in);
    case CPU_PACK_GROUP:
        break;
    }
    return groups * cpu_pack_group(p, in);
}

/* ---- floats ---- */

/* Where input k of row r of a group lies, in numbers of the type's size. */
static size_t float_at(enum qtype t, size_t r, size_t k)
{
    return t == QTYPE_BF16 ? k / 2 * 2 * CPU_ROWS + r * 2 + k % 2 : k * CPU_ROWS + r;
}

static void pack_floats(uint8_t *group, const uint8_t *row, enum qtype t, size_t r, size_t in)
{
    size_t size = quant_table[t].block_bytes;
    for (size_t k = 0; k < in; k++)
        memcpy(group + float_at(t, r, k) * size, row + k * size, size);
}

static void unpack_floats(float *dst, const uint8_t *group, enum qtype t, size_t r, size_t in)
{
    size_t size = quant_table[t].block_bytes;
    for (size_t k = 0; k < in; k++)
        quant_table[t].dequant(dst + k, group + float_at(t, r, k) * size, 1);
}

/* ---- groups ---- */

/* 32 codes of row r into the vectors of one sub-block. */
static void put_codes(uint8_t *dst, const uint8_t *c, uint8_t bits, size_t r)
{
    uint8_t *lane = dst + 4 * r;
    if (bits == 8) {
        for (size_t g = 0; g < 8; g++)
            memcpy(lane + g * VECTOR, c + 4 * g, 4);
        return;
    }
    uint8_t nibbles[16], high[8] = {0};
    for (size_t i = 0; i < 16; i++)
        nibbles[i] = (uint8_t)((c[i] & 15) | (c[i + 16] & 15) << 4);
    for (size_t g = 0; g < 4; g++)
        memcpy(lane + g * VECTOR, nibbles + 4 * g, 4);
    if (bits == 5) {
        for (size_t i = 0; i < 32; i++)
            high[i % 4] = (uint8_t)(high[i % 4] | c[i] >> 4 << i / 4);
        memcpy(lane + 4 * VECTOR, high, 4);
    } else if (bits == 6) {
        for (size_t i = 0; i < 32; i++)
            high[i / 16 * 4 + i % 4] =
                (uint8_t)(high[i / 16 * 4 + i % 4] | c[i] >> 4 << i % 16 / 4 * 2);
        memcpy(lane + 4 * VECTOR, high, 4);
        memcpy(lane + 5 * VECTOR, high + 4, 4);
    }
}

static void get_codes(uint8_t *c, const uint8_t *src, uint8_t bits, size_t r)
{
    const uint8_t *lane = src + 4 * r;
    for (size_t i = 0; i < 32; i++) {
        size_t g = i / 4, j = i % 4;
        if (bits == 8) {
            c[i] = lane[g * VECTOR + j];
            continue;
        }
        c[i] = lane[g % 4 * VECTOR + j] >> g / 4 * 4 & 15;
        if (bits == 5)
            c[i] = (uint8_t)(c[i] | (lane[4 * VECTOR + j] >> g & 1) << 4);
        else if (bits == 6)
            c[i] = (uint8_t)(c[i] | (lane[(4 + g / 4) * VECTOR + j] >> g % 4 * 2 & 3) << 4);
    }
}

/* The scale bytes of row r of one block: halves at h, then bytes. A half is taken from the file,
 * not through a float, so that a NaN's payload or a denormal stays what it is. */
static void put_scales(uint8_t *dst, enum qtype t, const uint8_t *block,
                       const struct cpu_codes *c, size_t r)
{
    const struct cpu_pack_type *p = &cpu_pack_table[t];
    uint16_t *h = (uint16_t *)(void *)dst;
    memcpy(h + r, block + (t == QTYPE_Q6_K ? 208 : 0), 2);
    if (p->block == 32) {
        if (p->scale_size == 64)
            memcpy(h + CPU_ROWS + r, block + 2, 2);
        return;
    }
    if (t == QTYPE_Q6_K) {
        for (size_t j = 0; j < 16; j++)
            dst[32 + j * CPU_ROWS + r] = (uint8_t)c->sc[j];
        return;
    }
    memcpy(h + CPU_ROWS + r, block + 2, 2);
    for (size_t j = 0; j < 8; j++) {
        dst[64 + j * CPU_ROWS + r] = (uint8_t)c->sc[j];
        dst[192 + j * CPU_ROWS + r] = c->mn[j];
    }
}

static void get_scales(struct cpu_codes *c, const uint8_t *src, enum qtype t, size_t r)
{
    const struct cpu_pack_type *p = &cpu_pack_table[t];
    const uint16_t *h = (const uint16_t *)(const void *)src;
    memset(c->mn, 0, sizeof(c->mn));
    c->d = base_f16_to_f32(h[r]);
    c->dm = 0;
    c->sc[0] = 1;
    if (p->block == 32) {
        if (p->scale_size == 64) {
            c->dm = -base_f16_to_f32(h[CPU_ROWS + r]);
            c->mn[0] = 1;
        }
        return;
    }
    if (t == QTYPE_Q6_K) {
        for (size_t j = 0; j < 16; j++)
            c->sc[j] = (int8_t)src[32 + j * CPU_ROWS + r];
        return;
    }
    c->dm = base_f16_to_f32(h[CPU_ROWS + r]);
    for (size_t j = 0; j < 8; j++) {
        c->sc[j] = src[64 + j * CPU_ROWS + r];
        c->mn[j] = src[192 + j * CPU_ROWS + r];
    }
}

static void pack_group_row(uint8_t *group, const uint8_t *row, enum qtype t, size_t r, size_t in)
{
    const struct cpu_pack_type *p = &cpu_pack_table[t];
    size_t sub_size = p->block == 32 ? p->code_size : p->code_size / 8u;
    uint8_t offset = (uint8_t)(p->offset_log2 ? 1 << p->offset_log2 : 0);
    for (size_t k = 0; k < in; k += p->block) {
        struct cpu_codes c;
        cpu_codes_table[t].decode(&c, row, k);
        const uint8_t *block = row + k / p->block * quant_table[t].block_bytes;
        uint8_t *to = group + k / p->block * cpu_pack_block(p);
        put_scales(to, t, block, &c, r);
        for (size_t s = 0; s < p->block; s += 32) {
            uint8_t u[32];
            for (size_t i = 0; i < 32; i++)
                u[i] = (uint8_t)(c.q[s + i] + offset);
            put_codes(to + p->scale_size + s / 32 * sub_size, u, p->bits, r);
        }
    }
}

static void unpack_group_row(float *dst, const uint8_t *group, enum qtype t, size_t r, size_t in)
{
    const struct cpu_pack_type *p = &cpu_pack_table[t];
    size_t sub_size = p->block == 32 ? p->code_size : p->code_size / 8u;
    size_t sub = cpu_codes_table[t].sub;
    int offset = p->offset_log2 ? 1 << p->offset_log2 : 0;
    for (size_t k = 0; k < in; k += 32) {
        struct cpu_codes c;
        uint8_t u[32];
        const uint8_t *from = group + k / p->block * cpu_pack_block(p);
        get_scales(&c, from, t, r);
        get_codes(u, from + p->scale_size + k % p->block / 32 * sub_size, p->bits, r);
        for (size_t i = 0; i < 32; i++) {
            size_t j = (k + i) % p->block / sub;
            float x = c.d * (float)c.sc[j] * (float)(u[i] - offset);
            dst[k + i] = cpu_codes_table[t].has_min ? x - c.dm * (float)c.mn[j] : x;
        }
    }
}

/* ---- all types ---- */

static size_t group_size(enum qtype t, size_t in)
{
    const struct cpu_pack_type *p = &cpu_pack_table[t];
    return p->kind == CPU_PACK_FLOAT ? float_group(t, in) : cpu_pack_group(p, in);
}

void cpu_pack_weight(void *dst, const void *src, const struct pack_args *a)
{
    const struct cpu_pack_type *p = &cpu_pack_table[a->type];
    size_t row_size = file_row(a->type, a->in);
    if (p->kind == CPU_PACK_FILE) {
        memcpy((uint8_t *)dst + a->first * row_size, src, a->count * row_size);
        return;
    }
    size_t size = group_size(a->type, a->in);
    for (size_t i = 0; i < a->count; i++) {
        size_t row = a->first + i, r = row % CPU_ROWS;
        uint8_t *group = (uint8_t *)dst + row / CPU_ROWS * size;
        if (r == 0 && (a->rows - row < CPU_ROWS || p->kind == CPU_PACK_FLOAT))
            memset(group, 0, size); /* lanes of rows that are not there, an odd last input */
        if (p->kind == CPU_PACK_FLOAT)
            pack_floats(group, (const uint8_t *)src + i * row_size, a->type, r, a->in);
        else
            pack_group_row(group, (const uint8_t *)src + i * row_size, a->type, r, a->in);
    }
}

void cpu_pack_unpack_row(enum qtype t, float *dst, const void *packed, size_t row, size_t rows,
                         size_t in)
{
    const uint8_t *p = packed;
    dmust(row < rows);
    (void)rows;
    switch (cpu_pack_table[t].kind) {
    case CPU_PACK_FILE:
        quant_table[t].dequant(dst, p + row * file_row(t, in), in);
        return;
    case CPU_PACK_FLOAT:
        unpack_floats(dst, p + row / CPU_ROWS * group_size(t, in), t, row % CPU_ROWS, in);
        return;
    case CPU_PACK_GROUP:
        break;
    }
    unpack_group_row(dst, p + row / CPU_ROWS * group_size(t, in), t, row % CPU_ROWS, in);
}
