#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tensor/backend.h"

static void test_auto_takes_the_first_backend_that_can_run_here(void **state)
{
    (void)state;
    const struct backend *first = NULL;
    struct err e = {0};
    for (size_t i = 0; backend_table[i] && !first; i++)
        if (!backend_table[i]->probe || backend_table[i]->probe(&e))
            first = backend_table[i];
    assert_non_null(first);
    e = (struct err){0};
    assert_ptr_equal(backend_table_pick(STR("auto"), &e), first);
    assert_ptr_equal(backend_table_pick(STR(""), &e), first);
    assert_int_equal(e.code, ERR_NONE);
}

static void test_a_name_takes_that_backend_or_gives_its_own_reason(void **state)
{
    (void)state;
    for (size_t i = 0; backend_table[i]; i++) {
        const struct backend *b = backend_table[i];
        struct err e = {0}, why = {0};
        const struct backend *got = backend_table_pick(str_of(b->name), &e);
        if (!b->probe || b->probe(&why)) {
            assert_ptr_equal(got, b);
            continue;
        }
        assert_null(got);
        assert_int_equal(e.code, ERR_DEVICE);
        assert_string_equal(e.text, why.text);
        assert_int_equal(strncmp(e.text, "cuda: ", 6), 0);
    }
}

static void test_the_cpu_is_always_there_and_last(void **state)
{
    (void)state;
    struct err e = {0};
    const struct backend *cpu = backend_table_pick(STR("cpu"), &e);
    assert_non_null(cpu);
    size_t count = 0;
    while (backend_table[count])
        count++;
    assert_ptr_equal(backend_table[count - 1], cpu);
}

static void test_an_unknown_name_is_refused(void **state)
{
    (void)state;
    struct err e = {0};
    assert_null(backend_table_pick(STR("tpu"), &e));
    assert_int_equal(e.code, ERR_CONFIG);
    assert_string_equal(e.text, "backend: auto, cpu or cuda expected, got \"tpu\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_takes_the_first_backend_that_can_run_here),
        cmocka_unit_test(test_a_name_takes_that_backend_or_gives_its_own_reason),
        cmocka_unit_test(test_the_cpu_is_always_there_and_last),
        cmocka_unit_test(test_an_unknown_name_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
