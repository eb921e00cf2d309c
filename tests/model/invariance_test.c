/* The numerics contract, 1 (company.h): every tiny model, every level of this machine, float, int8
 * and int16 activations; pages of int8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/machine.h"
#include "model/company.h"
#include "model/model_run.h"

/* All sequences and two threads at the best level; below it the first two on one, in the long tier
 * everything. Models of floats are the same in every mode. */
static void check_act(enum act act, bool is_kv_int8)
{
    bool has_bf16;
    int best = (int)machine_level(&has_bf16);
    const char *const *names;
    size_t names_count = model_run_tiny(&names);
    for (size_t i = 0; i < names_count; i++) {
        if (act != ACT_F32 && !strstr(names[i], "-mixed"))
            continue;
        for (int level = 0; level <= best; level++) {
            char path[128];
            bool is_long = company_is_long();
            struct company c = {.path = path, .level = machine_level_name((enum cpu_level)level),
                                .act = act, .is_long = is_long,
                                .is_kv_int8 = is_kv_int8,
                                .is_one_thread = !is_long && level != best,
                                .count = is_long || level == best ? COMPANY_SEQS : 2};
            snprintf(path, sizeof path, "build/tiny/%s.gguf", names[i]);
            company_check(&c);
        }
    }
}

static void test_float_activations_give_the_same_bits_in_any_company(void **state)
{
    (void)state;
    check_act(ACT_F32, false);
}

static void test_int8_activations_give_the_same_bits_in_any_company(void **state)
{
    (void)state;
    check_act(ACT_INT8, false);
}

static void test_int16_activations_give_the_same_bits_in_any_company(void **state)
{
    (void)state;
    check_act(ACT_INT16, false);
}

static void test_pages_of_int8_give_the_same_bits_in_any_company(void **state)
{
    (void)state;
    check_act(ACT_INT8, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float_activations_give_the_same_bits_in_any_company),
        cmocka_unit_test(test_int8_activations_give_the_same_bits_in_any_company),
        cmocka_unit_test(test_int16_activations_give_the_same_bits_in_any_company),
        cmocka_unit_test(test_pages_of_int8_give_the_same_bits_in_any_company),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
