/* Our encoders lose at most 5% more than llama.cpp's (encoders.txt, made by make_encoders.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/quant.h"

#define COUNT 65536
#define ALLOWED 1.05

/* The generator of make_encoders.py: the sum of twelve 16-bit numbers, centred. */
static void fill_random(float *out, size_t count, uint64_t x)
{
    for (size_t i = 0; i < count; i++) {
        int64_t total = 0;
        for (int k = 0; k < 12; k++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            total += (int64_t)(x >> 48);
        }
        out[i] = (float)(total - 393216) / 65536.0f;
    }
}

/* Returns the number of values. */
static size_t fill(const char *kind, float *out)
{
    if (strcmp(kind, "real") == 0) {
        FILE *f = fopen("tests/golden/quant/real-rows.f32", "rb");
        assert_non_null(f);
        size_t count = fread(out, sizeof *out, COUNT, f);
        fclose(f);
        assert_int_equal(count, COUNT / 2);
        return count;
    }
    if (strcmp(kind, "random") == 0) {
        fill_random(out, COUNT, 3);
        return COUNT;
    }
    assert_string_equal(kind, "outliers");
    fill_random(out, COUNT, 7);
    for (size_t i = 0; i < COUNT; i += 50)
        out[i] *= 10.0f;
    return COUNT;
}

static double mean_error(enum qtype t, const float *values, size_t count)
{
    size_t size;
    const struct quant_type *row = &quant_table[t];
    assert_true(quant_row_size(t, count, &size));
    uint8_t *packed = malloc(size);
    float *back = malloc(count * sizeof *back);
    assert_true(packed && back);
    row->quantise(packed, values, count);
    row->dequant(back, packed, count);
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += ((double)back[i] - values[i]) * ((double)back[i] - values[i]);
    free(back);
    free(packed);
    return sum / (double)count;
}

static void test_encoders_lose_at_most_5_percent_more_than_llama_cpp(void **state)
{
    (void)state;
    static float values[COUNT];
    char kind[32], name[32];
    double theirs;
    bool seen[QTYPE_COUNT] = {false};
    FILE *f = fopen("tests/golden/quant/encoders.txt", "r");
    assert_non_null(f);
    size_t cases = 0;
    while (fscanf(f, "%31s %31s %lf", kind, name, &theirs) == 3) {
        enum qtype t;
        assert_true(quant_by_name(str_of(name), &t));
        double ours = mean_error(t, values, fill(kind, values));
        if (!(ours <= ALLOWED * theirs))
            fail_msg("%s on %s rows: mean squared error %g, llama.cpp has %g", name, kind, ours,
                     theirs);
        seen[t] = true;
        cases++;
    }
    assert_true(feof(f));
    fclose(f);
    assert_int_equal(cases, 18);
    for (unsigned t = 0; t < QTYPE_WEIGHT_COUNT; t++)
        if (quant_table[t].quantise && quant_table[t].block_elems > 1 && !seen[t])
            fail_msg("encoders.txt has no row for %s", quant_table[t].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encoders_lose_at_most_5_percent_more_than_llama_cpp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
