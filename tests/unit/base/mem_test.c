#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"

#define MIB ((size_t)1 << 20)

static bool is_zero(const char *p, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (p[i])
            return false;
    return true;
}

static void test_blocks_are_zero_aligned_and_counted(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 4097, MIB, 2 * MIB, 2 * MIB + 1, 5 * MIB - 7};
    struct err e = {0};
    struct mem m;
    mem_init(&m, 64 * MIB);
    char *p[countof(sizes)];
    for (size_t i = 0; i < countof(sizes); i++) {
        p[i] = mem_new(&m, "scratch", sizes[i], &e);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % (sizes[i] >= 2 * MIB ? 2 * MIB : MEM_ALIGN), 0);
        assert_true(is_zero(p[i], sizes[i]));
        memset(p[i], 0xff, sizes[i]);
    }
    assert_int_equal(m.count, countof(sizes));
    size_t peak = m.bytes_used;
    for (size_t i = 0; i < countof(sizes); i++)
        mem_free(&m, p[i]);
    assert_int_equal(m.bytes_used, 0);
    assert_int_equal(m.count, 0);
    assert_int_equal(m.bytes_peak, peak);
    mem_free(&m, NULL);
    mem_deinit(&m);
}

static void test_a_refusal_holds_the_arithmetic(void **state)
{
    (void)state;
    struct err e = {0};
    struct mem m;
    mem_init(&m, 10 * MIB);
    assert_non_null(mem_new(&m, "weights", 3 * MIB, &e));
    assert_non_null(mem_new(&m, "weights", 2 * MIB, &e));
    assert_non_null(mem_new(&m, "tables", MIB, &e));
    assert_null(mem_new(&m, "kv", 4 * MIB + 1, &e));
    assert_int_equal(e.code, ERR_MEMORY);
    assert_string_equal(e.text, "memory: kv needs 4.0 MB, but 6.0 MB of 10.0 MB are taken "
                                "(weights 5.0 MB, tables 1.0 MB)");
    assert_non_null(mem_new(&m, "kv", 4 * MIB, &e));
    assert_int_equal(m.bytes_used, m.bytes_max);
    assert_null(mem_new(&m, "one more", 1, &e));
    mem_deinit(&m);
}

static void test_absurd_sizes_are_refused_not_wrapped(void **state)
{
    (void)state;
    struct err e = {0};
    struct mem m;
    mem_init(&m, SIZE_MAX);
    assert_null(mem_new_array(&m, "kv", SIZE_MAX / 2, 4, &e));
    assert_null(mem_new(&m, "kv", SIZE_MAX, &e));
    assert_null(mem_new(&m, "kv", SIZE_MAX / 4, &e)); /* the system's refusal */
    assert_int_equal(e.code, ERR_MEMORY);
    assert_int_equal(m.bytes_used, 0);
    mem_deinit(&m);
}

/* Four terabytes are no memory of this machine. */
static void test_a_counting_mem_sums_what_no_machine_has(void **state)
{
    (void)state;
    struct err e = {0};
    struct mem m, real;
    mem_init_counting(&m, (size_t)5 << 40);
    mem_init(&real, SIZE_MAX);
    const size_t sizes[] = {1, 100, 2 * MIB - 1, 2 * MIB, 3 * MIB + 1};
    for (size_t i = 0; i < countof(sizes); i++) {
        assert_non_null(mem_new(&m, "plan", sizes[i], &e));
        assert_non_null(mem_new(&real, "plan", sizes[i], &e));
        assert_int_equal(m.bytes_used, real.bytes_used);
    }
    const char *large = mem_new(&m, "weights", (size_t)4 << 40, &e);
    assert_non_null(large);
    assert_int_equal(large[((size_t)4 << 40) - 1], 0);
    assert_null(mem_new(&m, "kv", (size_t)2 << 40, &e));
    assert_int_equal(e.code, ERR_MEMORY);
    mem_free(&m, (void *)(uintptr_t)large);
    assert_int_equal(m.bytes_used, real.bytes_used);
    mem_deinit(&m);
    mem_deinit(&real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_zero_aligned_and_counted),
        cmocka_unit_test(test_a_refusal_holds_the_arithmetic),
        cmocka_unit_test(test_absurd_sizes_are_refused_not_wrapped),
        cmocka_unit_test(test_a_counting_mem_sums_what_no_machine_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
