/* sample: the published generator, and numbers that look uniform however they are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "tensor/sample.h"

/* kat_vectors of Random123 (Salmon et al.), philox4x32 10. */
static void test_philox_gives_the_published_words(void **state)
{
    (void)state;
    static const struct {
        struct sample_words counter;
        uint32_t key[2];
        struct sample_words want;
    } cases[] = {
        {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{~0u, ~0u, ~0u, ~0u}},
         {~0u, ~0u},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {0xa4093822, 0x299f31d0},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct sample_words w = sample_philox(cases[i].counter, cases[i].key[0], cases[i].key[1]);
        assert_memory_equal(&w, &cases[i].want, sizeof w);
    }
}

static double chi_square(const uint32_t *counts, size_t bins, double expected)
{
    double sum = 0;
    for (size_t i = 0; i < bins; i++)
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    return sum;
}

static void test_numbers_are_uniform_over_seeds_positions_and_draws(void **state)
{
    (void)state;
    enum { BINS = 256, COUNT = 256 * 400 };
    for (int axis = 0; axis < 3; axis++) {
        uint32_t counts[BINS] = {0}, pairs[BINS] = {0};
        float last = 0;
        for (uint32_t i = 0; i < COUNT; i++) {
            float u = axis == 0   ? sample_uniform(i, 5, 0)
                      : axis == 1 ? sample_uniform(99, i, 0)
                                  : sample_uniform(99, 5, i);
            assert_true(u >= 0.0f && u < 1.0f);
            counts[(uint32_t)(u * BINS)]++;
            pairs[(uint32_t)(u * 16) * 16 + (uint32_t)(last * 16)]++;
            last = u;
        }
        /* 255 degrees of freedom: above 340 once in some 4000 tries; these are fixed numbers. */
        assert_true(chi_square(counts, BINS, 400) < 340);
        assert_true(chi_square(pairs, BINS, 400) < 340);
    }
}

static void test_each_of_seed_position_and_draw_changes_the_number(void **state)
{
    (void)state;
    float u = sample_uniform(1, 2, 3);
    assert_true(u == sample_uniform(1, 2, 3));
    assert_true(u != sample_uniform(2, 2, 3) && u != sample_uniform(1, 3, 3) &&
                u != sample_uniform(1, 2, 4) && u != sample_uniform(1ull << 40 | 1, 2, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_gives_the_published_words),
        cmocka_unit_test(test_numbers_are_uniform_over_seeds_positions_and_draws),
        cmocka_unit_test(test_each_of_seed_position_and_draw_changes_the_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
