/* The encoders on input that a model rarely has: zeros, constants, one outlier, extremes. */
#include "quant/quant_fit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "quant/quant.h"

enum fill {
    FILL_ZERO,
    FILL_ONE,
    FILL_MINUS,
    FILL_OUTLIER,
    FILL_DENORMAL,
    FILL_HUGE,
    FILL_ALTERNATE,
    FILL_RAMP,
    FILL_TINY_SPREAD,
    FILL_COUNT
};

static void fill_block(float x[256], int kind)
{
    for (int i = 0; i < 256; i++) {
        static const float fixed[FILL_COUNT] = {
            [FILL_ONE] = 1.0f, [FILL_MINUS] = -0.7f, [FILL_DENORMAL] = 0x1p-140f,
            [FILL_HUGE] = 0x1p55f,
        };
        x[i] = fixed[kind];
        if (kind == FILL_OUTLIER)
            x[i] = i == 77 ? -900.0f : 0.01f * (float)(i % 7);
        if (kind == FILL_ALTERNATE)
            x[i] = i % 2 ? 3.0f : -3.0f;
        if (kind == FILL_RAMP)
            x[i] = (float)(i - 128) / 64.0f;
        if (kind == FILL_TINY_SPREAD)
            x[i] = 1.0f + 0x1p-20f * (float)i;
    }
}

static void test_hostile_blocks_give_finite_values_near_the_input(void **state)
{
    (void)state;
    for (unsigned t = 0; t < QTYPE_COUNT; t++) {
        const struct quant_type *row = &quant_table[t];
        if (!row->quantise || t == QTYPE_F16)
            continue;
        for (int kind = 0; kind < FILL_COUNT; kind++) {
            float x[256], y[256];
            uint8_t packed[1024 + 8];
            size_t size;
            assert_true(quant_row_size((enum qtype)t, 256, &size));
            fill_block(x, kind);
            memset(packed, 0xa5, sizeof packed);
            row->quantise(packed + 1, x, 256);
            row->dequant(y, packed + 1, 256);
            float extreme = 0.0f;
            for (int i = 0; i < 256; i++)
                extreme = fmaxf(extreme, fabsf(x[i]));
            for (int i = 0; i < 256; i++) {
                /* A coarse bound: half the widest step of a block, or all of it where the scale
                 * leaves the range of f16. */
                float bound = kind == FILL_DENORMAL || kind == FILL_HUGE ? extreme : extreme / 14;
                if (!(fabsf(y[i] - x[i]) <= bound))
                    fail_msg("%s, filling %d, value %d: %g became %g", row->name, kind, i,
                             (double)x[i], (double)y[i]);
            }
            assert_true(packed[0] == 0xa5 && packed[size + 1] == 0xa5);
        }
    }
}

static void test_encoding_what_was_decoded_loses_nothing_more(void **state)
{
    (void)state;
    for (unsigned t = 0; t < QTYPE_WEIGHT_COUNT; t++) {
        const struct quant_type *row = &quant_table[t];
        if (!row->quantise)
            continue;
        float x[256], once[256], twice[256];
        uint8_t packed[1024];
        for (int i = 0; i < 256; i++)
            x[i] = sinf((float)i * 0.7f) + 0.3f * sinf((float)i * 2.9f);
        row->quantise(packed, x, 256);
        row->dequant(once, packed, 256);
        row->quantise(packed, once, 256);
        row->dequant(twice, packed, 256);
        for (int i = 0; i < 256; i++)
            if (fabsf(twice[i] - once[i]) > 0.02f)
                fail_msg("%s value %d: %g, then %g", row->name, i, (double)once[i],
                         (double)twice[i]);
    }
}

static void test_activation_sums_are_those_of_the_codes(void **state)
{
    (void)state;
    float x[256];
    uint8_t q81[8 * 36], q8k[292];
    for (int i = 0; i < 256; i++)
        x[i] = cosf((float)i) * 5.0f;
    quant_q8_1_quantise(q81, x, 256);
    for (int b = 0; b < 8; b++) {
        uint16_t d, s;
        int sum = 0;
        memcpy(&d, q81 + 36 * b, 2);
        memcpy(&s, q81 + 36 * b + 2, 2);
        for (int j = 0; j < 32; j++)
            sum += (int8_t)q81[36 * b + 4 + j];
        assert_true(fabsf(base_f16_to_f32(s) - base_f16_to_f32(d) * (float)sum) < 0.01f);
    }
    quant_q8_k_quantise(q8k, x, 256);
    for (int k = 0; k < 16; k++) {
        int16_t stored;
        int sum = 0;
        memcpy(&stored, q8k + 260 + 2 * k, 2);
        for (int j = 0; j < 16; j++)
            sum += (int8_t)q8k[4 + 16 * k + j];
        assert_int_equal(stored, sum);
    }
}

static void test_codes_stay_in_range_and_halves_round_to_even(void **state)
{
    (void)state;
    assert_int_equal(quant_fit_round(2.5f, -8, 7), 2);
    assert_int_equal(quant_fit_round(-3.5f, -8, 7), -4);
    assert_int_equal(quant_fit_round(1e30f, -8, 7), 7);
    assert_int_equal(quant_fit_round(-INFINITY, -8, 7), -8);
    assert_int_equal(quant_fit_round(INFINITY, 0, 15), 15);
    assert_int_equal(quant_fit_round(NAN, 0, 15), 0);
    assert_true(quant_fit_inverse(0.0f) == 0.0f && quant_fit_inverse(0x1p-130f) == 0.0f);
    assert_true(quant_fit_inverse(-4.0f) == -0.25f);
}

static void test_a_scale_that_fits_exactly_is_found(void **state)
{
    (void)state;
    float x[32];
    for (int i = 0; i < 32; i++)
        x[i] = 0.25f * (float)(i % 16 - 8);
    float d = quant_fit_scale(x, 32, -8, 7);
    assert_true(fabsf(d - 0.25f) < 1e-6f);
    for (int i = 0; i < 32; i++)
        x[i] = 0.5f * (float)(i % 16) - 2.0f;
    struct quant_fit_line line = quant_fit_line(x, 32, 15, true);
    assert_true(fabsf(line.d - 0.5f) < 1e-6f && fabsf(line.m + 2.0f) < 1e-5f);
    for (int i = 0; i < 32; i++)
        x[i] += 5.0f;
    line = quant_fit_line(x, 32, 15, true); /* an offset above 0 cannot be stored */
    assert_true(line.m == 0.0f && line.d > 0.5f);
    line = quant_fit_line(x, 32, 15, false);
    assert_true(fabsf(line.d - 0.5f) < 1e-5f && fabsf(line.m - 3.0f) < 1e-4f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_blocks_give_finite_values_near_the_input),
        cmocka_unit_test(test_encoding_what_was_decoded_loses_nothing_more),
        cmocka_unit_test(test_activation_sums_are_those_of_the_codes),
        cmocka_unit_test(test_codes_stay_in_range_and_halves_round_to_even),
        cmocka_unit_test(test_a_scale_that_fits_exactly_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
