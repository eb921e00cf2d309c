/* The numerics contract on real weights (company.h): SmolLM2, float and int8 activations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/company.h"

static void check(enum act act)
{
    struct company c = {.path = "build/models/SmolLM2-135M-Instruct.Q4_1.gguf", .act = act,
                        .count = COMPANY_SEQS, .is_long = company_is_long()};
    company_check(&c);
}

static void test_float_activations_of_smollm2_give_the_same_bits_in_any_company(void **state)
{
    (void)state;
    check(ACT_F32);
}

static void test_int8_activations_of_smollm2_give_the_same_bits_in_any_company(void **state)
{
    (void)state;
    check(ACT_INT8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float_activations_of_smollm2_give_the_same_bits_in_any_company),
        cmocka_unit_test(test_int8_activations_of_smollm2_give_the_same_bits_in_any_company),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
