#include "cpu/cpu_pack.h"

#include <string.h>

#include "cpu/cpu_codes.h"

#define VECTOR 64u
#define EACH 0x01010101u /* times a byte: that byte four times */

/* Codes (cpu_codes) of types that name one of sixteen, plus 128. */
#define VALUES(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)                                    \
    {128 + (a), 128 + (b), 128 + (c), 128 + (d), 128 + (e), 128 + (f), 128 + (g), 128 + (h),      \
     128 + (i), 128 + (j), 128 + (k), 128 + (l), 128 + (m), 128 + (n), 128 + (o), 128 + (p)}
static const uint8_t iq4nl[16] =
    VALUES(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
static const uint8_t e2m1[16] = VALUES(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
static const uint8_t iq3xxs[16] =
    VALUES(4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62);
static const uint8_t iq3s[16] =
    VALUES(1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15);

const struct cpu_pack_type cpu_pack_table[QTYPE_WEIGHT_COUNT] = {
    [QTYPE_F32] = {CPU_PACK_FLOAT, 1, 0, 64, 32, 0, false, NULL},
    [QTYPE_F16] = {CPU_PACK_FLOAT, 1, 0, 32, 16, 0, false, NULL},
    [QTYPE_BF16] = {CPU_PACK_FLOAT, 1, 0, 32, 16, 0, false, NULL},
    [QTYPE_Q4_0] = {CPU_PACK_GROUP, 32, 32, 256, 4, 3, false, NULL},
    [QTYPE_Q4_1] = {CPU_PACK_GROUP, 32, 64, 256, 4, 0, false, NULL},
    [QTYPE_Q5_0] = {CPU_PACK_GROUP, 32, 32, 320, 5, 4, false, NULL},
    [QTYPE_Q5_1] = {CPU_PACK_GROUP, 32, 64, 320, 5, 0, false, NULL},
    [QTYPE_Q8_0] = {CPU_PACK_GROUP, 32, 32, 512, 8, 7, false, NULL},
    [QTYPE_IQ4_NL] = {CPU_PACK_GROUP, 32, 32, 256, 4, 7, false, iq4nl},
    [QTYPE_MXFP4] = {CPU_PACK_GROUP, 32, 64, 256, 4, 7, true, e2m1},
    [QTYPE_Q2_K] = {CPU_PACK_GROUP, 256, 64 + 512, 8 * 128, 2, 0, false, NULL},
    [QTYPE_Q3_K] = {CPU_PACK_GROUP, 256, 32 + 256, 8 * 256, 4, 2, false, NULL},
    [QTYPE_Q4_K] = {CPU_PACK_GROUP, 256, 64 + 256, 8 * 256, 4, 0, false, NULL},
    [QTYPE_Q5_K] = {CPU_PACK_GROUP, 256, 64 + 256, 8 * 320, 5, 0, false, NULL},
    [QTYPE_Q6_K] = {CPU_PACK_GROUP, 256, 32 + 256, 8 * 384, 6, 5, false, NULL},
    [QTYPE_IQ3_XXS] = {CPU_PACK_GROUP, 256, 64 + 256, 8 * 256, 4, 7, true, iq3xxs},
    [QTYPE_IQ3_S] = {CPU_PACK_GROUP, 256, 64 + 256, 8 * 256, 4, 7, true, iq3s},
    [QTYPE_IQ4_XS] = {CPU_PACK_GROUP, 256, 64 + 256, 8 * 256, 4, 7, true, iq4nl},
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
    for (size_t k = 0; k < in; k++) { /* sizes that are no constants would be calls */
        if (t == QTYPE_F32)
            memcpy(group + float_at(t, r, k) * 4, row + k * 4, 4);
        else
            memcpy(group + float_at(t, r, k) * 2, row + k * 2, 2);
    }
}

static void unpack_floats(float *dst, const uint8_t *group, enum qtype t, size_t r, size_t in)
{
    size_t size = quant_table[t].block_bytes;
    for (size_t k = 0; k < in; k++)
        quant_table[t].dequant(dst + k, group + float_at(t, r, k) * size, 1);
}

/* ---- groups ---- */

/* Four codes are the bytes of a word, that of one row in a vector; every mask holds what a shift
 * brought in from the next code. */
static void put_word(uint8_t *lane, size_t vector, uint32_t word)
{
    memcpy(lane + vector * VECTOR, &word, 4);
}

/* Two bits of each code of four words, those of word g at bit 2g. */
static uint32_t pairs_of(const uint32_t w[4], unsigned first_bit)
{
    uint32_t pairs = 0;
    for (size_t g = 0; g < 4; g++)
        pairs |= (w[g] >> first_bit & 3 * EACH) << 2 * g;
    return pairs;
}

/* 32 codes of row r into the vectors of one sub-block. */
static void put_codes(uint8_t *dst, const uint8_t *c, uint8_t bits, size_t r)
{
    uint8_t *lane = dst + 4 * r;
    uint32_t w[8];
    memcpy(w, c, sizeof w);
    if (bits == 8) {
        for (size_t g = 0; g < 8; g++)
            put_word(lane, g, w[g]);
        return;
    }
    if (bits == 2) {
        for (size_t h = 0; h < 2; h++)
            put_word(lane, h, pairs_of(w + 4 * h, 0));
        return;
    }
    for (size_t g = 0; g < 4; g++)
        put_word(lane, g, (w[g] & 15 * EACH) | (w[g + 4] & 15 * EACH) << 4);
    if (bits == 5) {
        uint32_t high = 0;
        for (size_t g = 0; g < 8; g++)
            high |= (w[g] >> 4 & EACH) << g;
        put_word(lane, 4, high);
    } else if (bits == 6) {
        for (size_t h = 0; h < 2; h++)
            put_word(lane, 4 + h, pairs_of(w + 4 * h, 4));
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
        if (bits == 2) {
            c[i] = lane[g / 4 * VECTOR + j] >> g % 4 * 2 & 3;
            continue;
        }
        c[i] = lane[g % 4 * VECTOR + j] >> g / 4 * 4 & 15;
        if (bits == 5)
            c[i] = (uint8_t)(c[i] | (lane[4 * VECTOR + j] >> g & 1) << 4);
        else if (bits == 6)
            c[i] = (uint8_t)(c[i] | (lane[(4 + g / 4) * VECTOR + j] >> g % 4 * 2 & 3) << 4);
    }
}

/* Where d lies in a block of the file, and dmin beside it. */
static size_t file_d(enum qtype t)
{
    return t == QTYPE_Q2_K ? 80 : t == QTYPE_Q3_K ? 108 : t == QTYPE_Q6_K ? 208 : 0;
}

/* Q4_K and Q5_K have a scale and a minimum per 32 inputs, all other blocks of 256 one per 16. */
static bool is_by_32(enum qtype t) { return t == QTYPE_Q4_K || t == QTYPE_Q5_K; }

/* Bytes of the floats before the integer scales. */
static size_t head_size(enum qtype t)
{
    return cpu_pack_table[t].has_float_d || cpu_codes_table[t].has_min ? 64 : 32;
}

/* The scale bytes of row r of one block: floats, then bytes. A half is taken from the file, not
 * through a float, so that a NaN's payload or a denormal stays what it is. */
static void put_scales(uint8_t *dst, enum qtype t, const uint8_t *block,
                       const struct cpu_codes *c, size_t r)
{
    const struct cpu_pack_type *p = &cpu_pack_table[t];
    const struct cpu_codes_type *codes = &cpu_codes_table[t];
    uint16_t *h = (uint16_t *)(void *)dst;
    if (p->has_float_d)
        memcpy(dst + 4 * r, &c->d, 4);
    else
        memcpy(h + r, block + file_d(t), 2);
    if (codes->has_min)
        memcpy(h + CPU_ROWS + r, block + file_d(t) + 2, 2);
    if (p->block == 32)
        return;
    size_t count = is_by_32(t) ? 8 : 16;
    uint8_t *sc = dst + head_size(t), *mn = sc + count * CPU_ROWS;
    for (size_t j = 0; j < count; j++) {
        size_t from = j * (256 / count) / codes->sub;
        sc[j * CPU_ROWS + r] = (uint8_t)c->sc[from];
        if (codes->has_min)
            mn[j * CPU_ROWS + r] = c->mn[from];
    }
}

/* The reverse; sc and mn per 16 or 32 inputs as they lie there. */
static void get_scales(struct cpu_codes *c, const uint8_t *src, enum qtype t, size_t r)
{
    const struct cpu_pack_type *p = &cpu_pack_table[t];
    bool has_min = cpu_codes_table[t].has_min;
    const uint16_t *h = (const uint16_t *)(const void *)src;
    memset(c->mn, 0, sizeof(c->mn));
    c->dm = has_min ? base_f16_to_f32(h[CPU_ROWS + r]) : 0;
    if (p->has_float_d)
        memcpy(&c->d, src + 4 * r, 4);
    else
        c->d = base_f16_to_f32(h[r]);
    if (p->block == 32) {
        c->sc[0] = 1;
        c->mn[0] = has_min;
        c->dm = -c->dm;
        return;
    }
    size_t count = is_by_32(t) ? 8 : 16;
    const uint8_t *sc = src + head_size(t), *mn = sc + count * CPU_ROWS;
    for (size_t j = 0; j < count; j++) {
        c->sc[j] = is_by_32(t) ? (int16_t)sc[j * CPU_ROWS + r] : (int8_t)sc[j * CPU_ROWS + r];
        if (has_min)
            c->mn[j] = mn[j * CPU_ROWS + r];
    }
}

/* What is stored for each code of a type with values, at code + 128. */
static void stored_codes(uint8_t stored[256], const struct cpu_pack_type *p)
{
    memset(stored, 0, 256);
    for (uint8_t i = 16; i-- > 0;) /* of two zeros the first */
        stored[p->values[i]] = i;
}

/* Codes and offset, which makes none negative. A table's store of bytes would stall the words that
 * put_codes reads. */
static void add_offset(uint8_t u[32], const int8_t *q, unsigned offset)
{
    for (size_t i = 0; i < 32; i += 4) {
        uint32_t w;
        memcpy(&w, q + i, 4);
        w = (w ^ 128 * EACH) - (128 - offset) * EACH;
        memcpy(u + i, &w, 4);
    }
}

static void pack_group_row(uint8_t *group, const uint8_t *row, enum qtype t, size_t r, size_t in)
{
    const struct cpu_pack_type *p = &cpu_pack_table[t];
    size_t sub_size = p->block == 32 ? p->code_size : p->code_size / 8u;
    unsigned offset = p->offset_log2 ? 1u << p->offset_log2 : 0;
    uint8_t stored[256];
    if (p->values)
        stored_codes(stored, p);
    for (size_t k = 0; k < in; k += p->block) {
        struct cpu_codes c;
        cpu_codes_table[t].decode(&c, row, k);
        const uint8_t *block = row + k / p->block * quant_table[t].block_bytes;
        uint8_t *to = group + k / p->block * cpu_pack_block(p);
        put_scales(to, t, block, &c, r);
        for (size_t s = 0; s < p->block; s += 32) {
            uint8_t u[32];
            if (!p->values)
                add_offset(u, c.q + s, offset);
            else
                for (size_t i = 0; i < 32; i++)
                    u[i] = stored[c.q[s + i] + 128];
            put_codes(to + p->scale_size + s / 32 * sub_size, u, p->bits, r);
        }
    }
}

static void unpack_group_row(float *dst, const uint8_t *group, enum qtype t, size_t r, size_t in)
{
    const struct cpu_pack_type *p = &cpu_pack_table[t];
    size_t sub_size = p->block == 32 ? p->code_size : p->code_size / 8u;
    size_t sub = p->block == 32 || is_by_32(t) ? 32 : 16;
    int offset = p->offset_log2 ? 1 << p->offset_log2 : 0;
    for (size_t k = 0; k < in; k += 32) {
        struct cpu_codes c;
        uint8_t u[32];
        const uint8_t *from = group + k / p->block * cpu_pack_block(p);
        get_scales(&c, from, t, r);
        get_codes(u, from + p->scale_size + k % p->block / 32 * sub_size, p->bits, r);
        for (size_t i = 0; i < 32; i++) {
            size_t j = (k + i) % p->block / sub;
            int q = (p->values ? p->values[u[i]] : u[i]) - offset;
            float x = c.d * (float)c.sc[j] * (float)q;
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
