/* ref_matmul: the definition agrees with plain arithmetic in double on decoded numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/cpu_kernels.h"
#include "cpu/vmath.h"
#include "tensor/sample.h"

#define ROWS 5u
#define IN 512u
#define COLUMNS_MAX 33u

static struct cpu_kernels kernels;

static float noise(uint32_t i) { return sample_uniform(7, i, 0) * 2.0f - 1.0f; }

/* Blocks of random bytes whose scales are small finite numbers: decode until all are. */
static void fill_weight(uint8_t *dst, enum qtype t)
{
    const struct quant_type *q = &quant_table[t];
    float values[256];
    uint32_t seed = 1000u * (uint32_t)t;
    for (size_t b = 0; b < ROWS * IN / q->block_elems; b++) {
        uint8_t *block = dst + b * q->block_bytes;
        bool is_good = false;
        while (!is_good) {
            for (size_t i = 0; i < q->block_bytes; i++)
                block[i] = (uint8_t)(sample_uniform(3, seed++, 0) * 256.0f);
            q->dequant(values, block, q->block_elems);
            is_good = true;
            for (size_t i = 0; i < q->block_elems; i++)
                is_good = is_good && fabsf(values[i]) < 1e4f;
        }
    }
}

/* The activations as the form keeps them, decoded back. */
static void decode_form(double *x, const uint8_t *row, enum cpu_form form)
{
    struct cpu_form_layout l = cpu_kernels_form_layout(form, IN);
    for (size_t i = 0; i < IN; i++) {
        float f;
        if (form == CPU_FORM_F32) {
            memcpy(&f, row + i * 4, 4);
            x[i] = (double)f;
            continue;
        }
        memcpy(&f, row + l.d + i / kernels.form[form].block * 4, 4);
        const int8_t *word = (const int8_t *)row + i / 4 * 8 + i % 4;
        x[i] = (double)f * (form == CPU_FORM_INT16 ? word[0] * 256 + word[4] : (int8_t)row[i]);
    }
}

struct work {
    uint8_t weight[ROWS * IN * 4];
    float x[COLUMNS_MAX][IN], out[COLUMNS_MAX][ROWS], again[COLUMNS_MAX][ROWS], bias[ROWS];
    float *out_of[COLUMNS_MAX];
    uint8_t *row_of[COLUMNS_MAX];
    uint8_t *act, *scratch;
};

static void pack(struct work *w, enum cpu_form form, size_t columns)
{
    const struct cpu_form_ops *f = &kernels.form[form];
    size_t width = cpu_kernels_panel(f, columns), row = f->row_size(IN);
    for (size_t c = 0; c < columns; c++)
        f->pack_row(w->row_of[c], w->x[c], IN);
    for (size_t c = 0; c < columns; c += width)
        f->join(w->act + c * row, (const void *const *)(w->row_of + c),
                base_min(width, columns - c), IN);
}

static struct matmul_args args_of(struct work *w, enum qtype t, size_t columns)
{
    return (struct matmul_args){.type = t, .weight = w->weight, .act = w->act, .out = w->out_of,
                                .bias = w->bias, .scratch = w->scratch, .rows = ROWS, .in = IN,
                                .columns = columns, .row_last = ROWS, .scale = 0.5f};
}

static void check_type(struct work *w, enum act act, enum qtype t, size_t columns)
{
    const struct cpu_matmul *mm = &kernels.mm[act][t];
    fill_weight(w->weight, t);
    for (size_t c = 0; c < columns; c++)
        w->out_of[c] = w->out[c];
    pack(w, mm->form, columns);
    struct matmul_args a = args_of(w, t, columns);
    mm->gemm(&a);
    for (size_t r = 0; r < ROWS; r++) {
        float weight[IN];
        mm->unpack_row(t, weight, w->weight, r, ROWS, IN);
        for (size_t c = 0; c < columns; c++) {
            double x[IN], sum = 0, size = 0;
            decode_form(x, w->row_of[c], mm->form);
            for (size_t i = 0; i < IN; i++) {
                sum += (double)weight[i] * x[i];
                size += fabs((double)weight[i] * x[i]);
            }
            double want = 0.5 * sum + (double)w->bias[r], got = (double)w->out[c][r];
            if (fabs(want - got) > 4e-6 * (size + 1))
                fail_msg("%s act %d row %zu column %zu: %g, not %g", quant_name(t), act, r, c,
                         got, want);
        }
    }
    /* One column at a time: the same bits. */
    for (size_t c = 0; c < columns; c++) {
        kernels.form[mm->form].join(w->act, (const void *const *)(w->row_of + c), 1, IN);
        float *one[1] = {w->again[c]};
        struct matmul_args b = args_of(w, t, 1);
        b.out = one;
        mm->gemv(&b);
        assert_memory_equal(w->again[c], w->out[c], sizeof w->out[c]);
    }
}

static void test_products_equal_decoded_numbers_for_every_type_and_mode(void **state)
{
    (void)state;
    struct work *w = calloc(1, sizeof *w);
    cpu_kernels_init(&kernels, CPU_LEVEL_REF, false);
    w->act = calloc(COLUMNS_MAX, IN * 8);
    w->scratch = calloc(1, CPU_MATMUL_SCRATCH);
    for (size_t c = 0; c < COLUMNS_MAX; c++) {
        w->row_of[c] = calloc(1, IN * 8);
        for (size_t i = 0; i < IN; i++)
            w->x[c][i] = noise((uint32_t)(c * IN + i)) * (i % 97 == 0 ? 30.0f : 1.0f);
    }
    for (size_t r = 0; r < ROWS; r++)
        w->bias[r] = noise(900000 + (uint32_t)r);
    static const size_t columns[] = {1, 2, 7, 8, 9, 33};
    for (unsigned act = ACT_F32; act < ACT_COUNT; act++)
        for (int t = 0; t < QTYPE_WEIGHT_COUNT; t++)
            for (size_t c = 0; c < countof(columns); c++)
                check_type(w, (enum act)act, (enum qtype)t, columns[c]);
    for (size_t c = 0; c < COLUMNS_MAX; c++)
        free(w->row_of[c]);
    free(w->act);
    free(w->scratch);
    free(w);
}

static void test_a_nan_or_infinity_in_a_block_reaches_the_result(void **state)
{
    (void)state;
    cpu_kernels_init(&kernels, CPU_LEVEL_REF, false);
    uint8_t row[IN * 8];
    float x[IN];
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < countof(bad); b++)
        for (unsigned form = CPU_FORM_INT8_32; form < CPU_FORM_COUNT; form++) {
            for (size_t i = 0; i < IN; i++)
                x[i] = noise((uint32_t)i);
            x[40] = bad[b];
            kernels.form[form].pack_row(row, x, IN);
            struct cpu_form_layout l = cpu_kernels_form_layout((enum cpu_form)form, IN);
            float d;
            memcpy(&d, row + l.d + 40u / kernels.form[form].block * 4u, 4);
            bool is_finite = isfinite(d);
            assert_false(is_finite);
        }
}

static void test_codes_are_rounded_to_even_and_tiny_blocks_are_zero(void **state)
{
    (void)state;
    cpu_kernels_init(&kernels, CPU_LEVEL_REF, false);
    uint8_t row[IN * 8];
    float x[IN] = {127.0f, 0.5f, 1.5f, -2.5f, -0.5f, 63.51f};
    for (size_t i = 32; i < 64; i++)
        x[i] = 1e-31f;
    kernels.form[CPU_FORM_INT8_32].pack_row(row, x, IN);
    const int8_t want[6] = {127, 0, 2, -2, 0, 64};
    assert_memory_equal(row, want, sizeof want);
    for (size_t i = 6; i < 64; i++)
        assert_int_equal(row[i], 0);
    struct cpu_form_layout l = cpu_kernels_form_layout(CPU_FORM_INT8_32, IN);
    int32_t neg;
    float dsum;
    memcpy(&neg, row + l.neg, 4);
    memcpy(&dsum, row + l.sum, 4);
    assert_int_equal(neg, -(127 + 0 + 2 - 2 + 64));
    assert_true(dsum == 191.0f);
}

static int plane_of(const uint8_t *row, size_t i, size_t plane)
{
    return (int8_t)row[i / 4 * 8 + plane * 4 + i % 4];
}

static void test_codes_of_16_bits_are_within_a_step_in_two_planes_without_minus_128(void **state)
{
    (void)state;
    cpu_kernels_init(&kernels, CPU_LEVEL_REF, false);
    uint8_t row[IN * 8];
    float x[IN], d;
    struct cpu_form_layout l = cpu_kernels_form_layout(CPU_FORM_INT16, IN);
    for (size_t b = 0; b < IN / 32; b++) /* every low byte comes by */
        for (size_t i = 0; i < 32; i++)
            x[b * 32 + i] = i ? (float)(b * 32 + i) - 256.0f : 32512.0f;
    x[32] = x[33] = -32512.0f;
    kernels.form[CPU_FORM_INT16].pack_row(row, x, IN);
    for (size_t b = 0; b < IN / 32; b++) {
        int32_t sum[2] = {0}, neg;
        memcpy(&d, row + l.d + b * 4, 4);
        assert_true(d == 1.0f);
        for (size_t i = 0; i < 32; i++) {
            int hi = plane_of(row, b * 32 + i, 0), lo = plane_of(row, b * 32 + i, 1);
            int want = (int)x[b * 32 + i];
            assert_true(lo >= -127);
            assert_int_equal(hi * 256 + lo, want + (lo == -127 && (want & 255) == 128));
            sum[i / 16] += hi * 256 + lo;
        }
        for (size_t h = 0; h < 2; h++) {
            memcpy(&neg, row + l.neg + (2 * b + h) * 4, 4);
            assert_int_equal(neg, -sum[h]);
        }
        memcpy(&d, row + l.sum + b * 4, 4);
        assert_true(d == (float)(sum[0] + sum[1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_equal_decoded_numbers_for_every_type_and_mode),
        cmocka_unit_test(test_a_nan_or_infinity_in_a_block_reaches_the_result),
        cmocka_unit_test(test_codes_are_rounded_to_even_and_tiny_blocks_are_zero),
        cmocka_unit_test(
            test_codes_of_16_bits_are_within_a_step_in_two_planes_without_minus_128),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
