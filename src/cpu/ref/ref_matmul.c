/* The definition of a matmul.
 *
 * Float activations: the weight's row as floats, products in 16 lanes (k mod 16), multiplied and
 * added as two roundings, then the tree of vmath.h; each level has one order of its own here, kept
 * from one column to many.
 * Integer activations: per step of the type (cpu_codes.h) an exact integer sum, then one fma, k
 * ascending; a second fma for minimums; of 16 bits per sub-block. Every level gives these bits. */
#include "cpu/cpu_codes.h"
#include "cpu/cpu_kernels.h"
#include "cpu/vmath.h"

#include <string.h>

/* ---- forms of activations ---- */

static size_t f32_row_size(size_t in)
{
    return cpu_kernels_form_layout(CPU_FORM_F32, in).size;
}
static size_t int8_32_row_size(size_t in)
{
    return cpu_kernels_form_layout(CPU_FORM_INT8_32, in).size;
}
static size_t int8_256_row_size(size_t in)
{
    return cpu_kernels_form_layout(CPU_FORM_INT8_256, in).size;
}

static size_t int16_row_size(size_t in)
{
    return cpu_kernels_form_layout(CPU_FORM_INT16, in).size;
}

static void f32_pack_row(void *dst, const float *src, size_t in)
{
    memset(dst, 0, f32_row_size(in));
    memcpy(dst, src, in * sizeof(float));
}

#define TINY 0x0d800000u /* 2^-100: a smaller block is zero */

/* Bits of the largest magnitude: a NaN or infinity is the largest. */
static uint32_t largest(const float *x, size_t n)
{
    uint32_t amax = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = base_bits_of(x[i]) & 0x7fffffffu;
        amax = u > amax ? u : amax;
    }
    return amax;
}

/* Codes of one block; returns the scale. */
static float quantise(int8_t *q, const float *x, size_t n)
{
    uint32_t amax = largest(x, n);
    bool is_number = amax < 0x7f800000u;
    float inv = 127.0f / base_float_of(amax);
    for (size_t i = 0; i < n; i++)
        q[i] = 0;
    if (amax < TINY)
        return 0.0f;
    for (size_t i = 0; i < n && is_number; i++)
        q[i] = (int8_t)(x[i] * inv + VMATH_ROUND - VMATH_ROUND);
    return base_float_of(amax) / 127.0f;
}

static int32_t sum_of(const int8_t *q, size_t n)
{
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += q[i];
    return sum;
}

static void int8_32_pack_row(void *dst, const float *src, size_t in)
{
    struct cpu_form_layout l = cpu_kernels_form_layout(CPU_FORM_INT8_32, in);
    uint8_t *p = dst;
    int8_t *q = dst;
    float *d = (float *)(void *)(p + l.d), *dsum = (float *)(void *)(p + l.sum);
    int32_t *neg = (int32_t *)(void *)(p + l.neg);
    memset(dst, 0, l.size);
    for (size_t b = 0; b < in / 32; b++) {
        d[b] = quantise(q + b * 32, src + b * 32, 32);
        neg[b] = -sum_of(q + b * 32, 32);
        dsum[b] = d[b] * (float)-neg[b];
    }
}

static void int8_256_pack_row(void *dst, const float *src, size_t in)
{
    struct cpu_form_layout l = cpu_kernels_form_layout(CPU_FORM_INT8_256, in);
    uint8_t *p = dst;
    int8_t *q = dst;
    float *d = (float *)(void *)(p + l.d);
    int32_t *neg = (int32_t *)(void *)(p + l.neg);
    int16_t *sum = (int16_t *)(void *)(p + l.sum);
    int32_t *spread = (int32_t *)(void *)(p + l.factor), *factor = spread + in / 256;
    memset(dst, 0, l.size);
    for (size_t g = 0; g < in / 32; g++)
        factor[g] = (int32_t)largest(src + g * 32, 32);
    cpu_kernels_factors(spread, factor, d, in);
    for (size_t b = 0; b < in / 256; b++) {
        struct cpu_block block = cpu_kernels_block(d[b], spread[b] != 0);
        d[b] = block.d;
        for (size_t i = b * 256; i < b * 256 + 256 && block.inv > 0.0f; i++)
            q[i] = (int8_t)(src[i] * (block.inv / (float)factor[i / 32]) + VMATH_ROUND -
                            VMATH_ROUND);
    }
    for (size_t g = 0; g < in / 16; g++)
        neg[g] = -sum_of(q + g * 16, 16);
    for (size_t g = 0; g < in / 32; g++)
        sum[g] = (int16_t)(factor[g] * sum_of(q + g * 32, 32));
}

/* 32 inputs to pairs of words, hi and lo; the sum of each 16 is taken from neg. Returns d. */
static float quantise_16(int8_t *words, int32_t neg[2], const float *x)
{
    uint32_t amax = largest(x, 32);
    bool is_number = amax < 0x7f800000u;
    float inv = CPU_INT16_STEPS / base_float_of(amax);
    neg[0] = neg[1] = 0;
    if (amax < TINY)
        return 0.0f;
    for (size_t i = 0; i < 32 && is_number; i++) {
        int32_t q = (int32_t)(x[i] * inv + VMATH_ROUND - VMATH_ROUND);
        int32_t hi = (q + 128) >> 8, lo = q - hi * 256;
        lo = lo < -127 ? -127 : lo;
        words[i / 4 * 8 + i % 4] = (int8_t)hi;
        words[i / 4 * 8 + i % 4 + 4] = (int8_t)lo;
        neg[i / 16] -= hi * 256 + lo;
    }
    return base_float_of(amax) / CPU_INT16_STEPS;
}

static void int16_pack_row(void *dst, const float *src, size_t in)
{
    struct cpu_form_layout l = cpu_kernels_form_layout(CPU_FORM_INT16, in);
    uint8_t *p = dst;
    float *d = (float *)(void *)(p + l.d), *dsum = (float *)(void *)(p + l.sum);
    int32_t *neg = (int32_t *)(void *)(p + l.neg);
    memset(dst, 0, l.size);
    for (size_t b = 0; b < in / 32; b++) {
        d[b] = quantise_16((int8_t *)dst + b * 64, neg + 2 * b, src + b * 32);
        dsum[b] = d[b] * (float)-(neg[2 * b] + neg[2 * b + 1]);
    }
}

/* One section of a panel: `count` words of `size` bytes of each column, laid [index][column]. */
static void join_section(uint8_t *dst, const void *const *rows, size_t columns, size_t from,
                         size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < columns; c++)
            memcpy(dst + from * columns + (i * columns + c) * size,
                   (const uint8_t *)rows[c] + from + i * size, size);
}

static void f32_join(void *dst, const void *const *rows, size_t columns, size_t in)
{
    join_section(dst, rows, columns, 0, f32_row_size(in) / 4, 4);
}

/* All sections but those of int8_256's sums are of 4-byte words; those join by words too, so a
 * row form is words throughout. */
static void int_join(void *dst, const void *const *rows, size_t columns,
                      struct cpu_form_layout l)
{
    const size_t ends[] = {0, l.d, l.neg, l.sum, l.factor, l.size};
    for (size_t s = 0; s < 5; s++)
        join_section(dst, rows, columns, ends[s], (ends[s + 1] - ends[s]) / 4, 4);
}

static void int8_32_join(void *dst, const void *const *rows, size_t columns, size_t in)
{
    int_join(dst, rows, columns, cpu_kernels_form_layout(CPU_FORM_INT8_32, in));
}

static void int8_256_join(void *dst, const void *const *rows, size_t columns, size_t in)
{
    int_join(dst, rows, columns, cpu_kernels_form_layout(CPU_FORM_INT8_256, in));
}

static void int16_join(void *dst, const void *const *rows, size_t columns, size_t in)
{
    int_join(dst, rows, columns, cpu_kernels_form_layout(CPU_FORM_INT16, in));
}

static const struct cpu_form_ops forms[CPU_FORM_COUNT] = {
    [CPU_FORM_F32] = {1, 8, 8, f32_row_size, f32_pack_row, f32_join},
    [CPU_FORM_INT8_32] = {32, 8, 8, int8_32_row_size, int8_32_pack_row, int8_32_join},
    [CPU_FORM_INT8_256] = {256, 8, 8, int8_256_row_size, int8_256_pack_row, int8_256_join},
    [CPU_FORM_INT16] = {32, 8, 8, int16_row_size, int16_pack_row, int16_join},
};

/* ---- weights stay in the file's layout ---- */

static size_t row_bytes(enum qtype t, size_t in)
{
    return in / quant_table[t].block_elems * quant_table[t].block_bytes;
}

static void finish(const struct matmul_args *a, size_t row, size_t column, float acc)
{
    float y = a->scale * acc;
    a->out[column][row] = a->bias ? y + a->bias[row] : y;
}

/* The panel that holds a column, and the column's place in it. */
struct panel {
    const uint8_t *p;
    size_t columns, first;
};

static struct panel panel_of(const struct matmul_args *a, enum cpu_form form, size_t column)
{
    size_t width = cpu_kernels_panel(&forms[form], a->columns);
    size_t first = column / width * width;
    return (struct panel){(const uint8_t *)a->act + first * forms[form].row_size(a->in),
                          base_min(width, a->columns - first), first};
}

/* ---- float activations ---- */

#define CHUNK 4096u   /* inputs decoded at once: whole blocks, whole turns of the lanes */
#define COLUMNS 2048u /* columns whose lanes fit beside them in the scratch */

/* lane[k mod 16][column] += w[k] * x[k][column] */
static void add_products(float *lane, const float *w, const float *x, size_t count,
                         size_t columns)
{
    for (size_t k = 0; k < count; k++)
        for (size_t c = 0; c < columns; c++)
            lane[k % VMATH_LANES * columns + c] += w[k] * x[k * columns + c];
}

/* The same for widths the compiler can unroll. */
static void add_products_1(float *lane, const float *w, const float *x, size_t count)
{
    for (; count >= VMATH_LANES; count -= VMATH_LANES, w += VMATH_LANES, x += VMATH_LANES)
        for (size_t j = 0; j < VMATH_LANES; j++)
            lane[j] += w[j] * x[j];
    for (size_t j = 0; j < count; j++)
        lane[j] += w[j] * x[j];
}

static void add_products_8(float *lane, const float *w, const float *x, size_t count)
{
    for (size_t k = 0; k < count; k++)
        for (size_t c = 0; c < 8; c++)
            lane[k % VMATH_LANES * 8 + c] += w[k] * x[k * 8 + c];
}

static void f32_row(const struct matmul_args *a, size_t row, size_t first, size_t last)
{
    float *w = a->scratch, *lane = w + CHUNK;
    enum qtype t = a->type;
    const uint8_t *src = (const uint8_t *)a->weight + row * row_bytes(t, a->in);
    memset(lane, 0, (last - first) * VMATH_LANES * sizeof *lane);
    for (size_t k = 0; k < a->in; k += CHUNK) {
        size_t count = base_min(CHUNK, a->in - k);
        quant_table[t].dequant(w, src + row_bytes(t, k), count);
        for (size_t c = first; c < last;) {
            struct panel p = panel_of(a, CPU_FORM_F32, c);
            const float *x = (const float *)(const void *)p.p + k * p.columns;
            float *l = lane + (c - first) * VMATH_LANES;
            if (p.columns == 1)
                add_products_1(l, w, x, count);
            else if (p.columns == 8)
                add_products_8(l, w, x, count);
            else
                add_products(l, w, x, count, p.columns);
            c += p.columns;
        }
    }
    for (size_t c = first; c < last; c++) {
        struct panel p = panel_of(a, CPU_FORM_F32, c);
        const float *l = lane + (p.first - first) * VMATH_LANES;
        float turn[VMATH_LANES];
        for (size_t j = 0; j < VMATH_LANES; j++)
            turn[j] = l[j * p.columns + (c - p.first)];
        finish(a, row, c, vmath_tree(turn));
    }
}

static void f32_product(const struct matmul_args *a)
{
    for (size_t row = a->row_first; row < a->row_last; row++)
        for (size_t c = 0; c < a->columns; c += COLUMNS)
            f32_row(a, row, c, base_min(c + COLUMNS, a->columns));
}

/* ---- integer activations ---- */

/* dst[count] = codes k .. k + count of one column. */
static void codes_of(int8_t *dst, const struct panel *p, size_t column, size_t k, size_t count)
{
    for (size_t i = 0; i < count; i += 4)
        memcpy(dst + i, p->p + ((k + i) / 4 * p->columns + column - p->first) * 4, 4);
}

/* Word `index` of a section. */
static const void *word_at(const struct panel *p, size_t section, size_t column, size_t index)
{
    return p->p + section * p->columns + (index * p->columns + column - p->first) * 4;
}

struct int_product {
    const struct matmul_args *a;
    enum cpu_form form;
    const struct cpu_codes_type *type;
    struct cpu_form_layout l;
};

/* One step of one column: acc so far in, acc out. */
static float step_of(const struct int_product *j, const struct cpu_codes *w, size_t column,
                     size_t k, float acc)
{
    struct panel p = panel_of(j->a, j->form, column);
    size_t step = j->type->step, sub = j->type->sub;
    int32_t dot = 0, min = 0;
    int8_t x[256];
    float ad;
    int32_t factor = 1;
    size_t factors = j->a->in / 256; /* behind the words that say spread */
    codes_of(x, &p, column, k, step);
    memcpy(&ad, word_at(&p, j->l.d, column, k / forms[j->form].block), 4);
    for (size_t s = 0; s < step / sub; s++) {
        int32_t products = 0, sum = 0;
        for (size_t i = s * sub; i < (s + 1) * sub; i++) {
            products += w->q[i] * x[i];
            sum += x[i];
        }
        if (step == 256)
            memcpy(&factor, word_at(&p, j->l.factor, column, factors + (k + s * sub) / 32), 4);
        dot += w->sc[s] * factor * products;
        min += w->mn[s] * factor * sum;
    }
    acc = fmaf(w->d * ad, (float)dot, acc);
    if (!j->type->has_min)
        return acc;
    if (step == 256)
        return fmaf(-(w->dm * ad), (float)min, acc);
    float dsum;
    memcpy(&dsum, word_at(&p, j->l.sum, column, k / 32), 4);
    return fmaf(-w->dm, dsum, acc);
}

/* The same with activations of 16 bits: a float step per sub-block. */
static float step_of_16(const struct int_product *j, const struct cpu_codes *w, size_t column,
                        size_t k, float acc)
{
    struct panel p = panel_of(j->a, CPU_FORM_INT16, column);
    size_t sub = j->type->sub;
    for (size_t s = 0; s < j->type->step / sub; s++) {
        int32_t products = 0, sum = 0;
        float ad;
        memcpy(&ad, word_at(&p, j->l.d, column, (k + s * sub) / 32), 4);
        for (size_t i = s * sub; i < (s + 1) * sub; i += 4) {
            int8_t hi[4], lo[4];
            memcpy(hi, word_at(&p, 0, column, (k + i) / 4 * 2), 4);
            memcpy(lo, word_at(&p, 0, column, (k + i) / 4 * 2 + 1), 4);
            for (size_t b = 0; b < 4; b++) {
                products += w->q[i + b] * (hi[b] * 256 + lo[b]);
                sum += hi[b] * 256 + lo[b];
            }
        }
        acc = fmaf(w->d * (float)w->sc[s] * ad, (float)products, acc);
        if (j->type->has_min)
            acc = fmaf(-(w->dm * (float)w->mn[s]), ad * (float)sum, acc);
    }
    return acc;
}

static void int_row(const struct int_product *j, size_t row)
{
    const struct matmul_args *a = j->a;
    const uint8_t *src = (const uint8_t *)a->weight + row * row_bytes(a->type, a->in);
    for (size_t c = 0; c < a->columns; c++)
        a->out[c][row] = 0.0f;
    for (size_t k = 0; k < a->in; k += j->type->step) {
        struct cpu_codes w;
        j->type->decode(&w, src, k);
        for (size_t c = 0; c < a->columns; c++)
            a->out[c][row] = j->form == CPU_FORM_INT16 ? step_of_16(j, &w, c, k, a->out[c][row])
                                                       : step_of(j, &w, c, k, a->out[c][row]);
    }
    for (size_t c = 0; c < a->columns; c++)
        finish(a, row, c, a->out[c][row]);
}

static void int_product(const struct matmul_args *a, enum cpu_form form)
{
    struct int_product j = {a, form, &cpu_codes_table[a->type],
                            cpu_kernels_form_layout(form, a->in)};
    for (size_t row = a->row_first; row < a->row_last; row++)
        int_row(&j, row);
}

static enum cpu_form int8_form(enum qtype t)
{
    return quant_table[t].act_block == 32 ? CPU_FORM_INT8_32 : CPU_FORM_INT8_256;
}

static void int8_product(const struct matmul_args *a) { int_product(a, int8_form(a->type)); }
static void int16_product(const struct matmul_args *a) { int_product(a, CPU_FORM_INT16); }

/* ---- table ---- */

static size_t packed_size(enum qtype t, size_t rows, size_t in)
{
    return rows * row_bytes(t, in);
}

static void pack_weight(void *dst, const void *src, const struct pack_args *a)
{
    size_t row = row_bytes(a->type, a->in);
    memcpy((uint8_t *)dst + a->first * row, src, a->count * row);
}

static void unpack_row(enum qtype t, float *dst, const void *packed, size_t row, size_t rows,
                       size_t in)
{
    dmust(row < rows);
    (void)rows;
    quant_table[t].dequant(dst, (const uint8_t *)packed + row * row_bytes(t, in), in);
}

void ref_matmul_add(struct cpu_kernels *k)
{
    memcpy(k->form, forms, sizeof forms);
    for (int t = 0; t < QTYPE_WEIGHT_COUNT; t++) {
        struct cpu_matmul m = {CPU_FORM_F32, packed_size, pack_weight, unpack_row,
                               f32_product, f32_product};
        k->mm[ACT_F32][t] = k->mm[ACT_INT8][t] = k->mm[ACT_INT16][t] = m;
        if (quant_table[t].act_block == 0)
            continue;
        m.form = int8_form((enum qtype)t);
        m.gemv = m.gemm = int8_product;
        k->mm[ACT_INT8][t] = m;
        m.form = CPU_FORM_INT16;
        m.gemv = m.gemm = int16_product;
        k->mm[ACT_INT16][t] = m;
    }
}
