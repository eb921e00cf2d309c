#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/chrono.h"
#include "kv/kv_pool.h"

static struct mem mem;
static struct kv_pool pool;

static int setup(void **state)
{
    static const uint32_t pages[] = {6, 3};
    struct err e;
    (void)state;
    mem_init(&mem, 1u << 20);
    return kv_pool_init(&pool, pages, 2, 4, &mem, &e) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    mem_deinit(&mem);
    return 0;
}

static void test_groups_count_their_pages_apart(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(kv_pool_alloc(&pool, 1), i);
    assert_int_equal(kv_pool_alloc(&pool, 1), KV_PAGE_NONE);
    assert_int_equal(kv_pool_alloc(&pool, 0), 0);
    assert_int_equal(kv_pool_used(&pool, 0), 1);
    assert_int_equal(kv_pool_free(&pool, 1), 0);
}

static void test_a_page_is_free_when_the_last_holder_lets_go(void **state)
{
    (void)state;
    uint32_t a = kv_pool_alloc(&pool, 0);
    kv_pool_ref(&pool, 0, a);
    kv_pool_unref(&pool, 0, a);
    assert_int_equal(kv_pool_used(&pool, 0), 1);
    kv_pool_unref(&pool, 0, a);
    assert_int_equal(kv_pool_used(&pool, 0), 0);
}

static void test_used_pages_go_first_again(void **state)
{
    (void)state;
    uint32_t a = kv_pool_alloc(&pool, 0), b = kv_pool_alloc(&pool, 0);
    kv_pool_unref(&pool, 0, a);
    assert_int_equal(kv_pool_alloc(&pool, 0), a);
    assert_int_equal(kv_pool_alloc(&pool, 0), b + 1);
}

static void test_the_only_holder_owns_without_a_copy(void **state)
{
    (void)state;
    uint32_t a = kv_pool_alloc(&pool, 0);
    assert_int_equal(kv_pool_own(&pool, 0, a), a);
    assert_int_equal(pool.copies_count, 0);
}

static void test_owning_a_shared_page_copies_it_and_moves_the_reference(void **state)
{
    (void)state;
    uint32_t a = kv_pool_alloc(&pool, 0);
    kv_pool_ref(&pool, 0, a);
    uint32_t b = kv_pool_own(&pool, 0, a);
    assert_int_not_equal(a, b);
    assert_int_equal(pool.copies_count, 1);
    assert_int_equal(pool.copies[0].from, a);
    assert_int_equal(pool.copies[0].to, b);
    kv_pool_unref(&pool, 0, a); /* the other holder: the copy still needs the source */
    assert_int_equal(kv_pool_refs(&pool, 0, a), 1);
    kv_pool_copied(&pool);
    assert_int_equal(kv_pool_refs(&pool, 0, a), 0);
    assert_int_equal(kv_pool_refs(&pool, 0, b), 1);
}

static void test_a_copy_goes_away_with_its_target(void **state)
{
    (void)state;
    uint32_t a = kv_pool_alloc(&pool, 0), b = kv_pool_copy(&pool, 0, a);
    uint32_t c = kv_pool_copy(&pool, 0, b);
    kv_pool_unref(&pool, 0, a);
    kv_pool_unref(&pool, 0, b);
    assert_int_equal(pool.copies_count, 2); /* a chain: c still needs b, which needs a */
    kv_pool_unref(&pool, 0, c);
    assert_int_equal(pool.copies_count, 0);
    assert_int_equal(kv_pool_used(&pool, 0), 0);
}

static void test_without_room_nothing_changes(void **state)
{
    (void)state;
    uint32_t a = kv_pool_alloc(&pool, 1);
    kv_pool_ref(&pool, 1, a);
    kv_pool_alloc(&pool, 1);
    kv_pool_alloc(&pool, 1);
    assert_int_equal(kv_pool_own(&pool, 1, a), KV_PAGE_NONE);
    assert_int_equal(kv_pool_refs(&pool, 1, a), 2);
    assert_int_equal(pool.copies_count, 0);
}

/* Random holders against a plain count per page. */
static void test_references_stay_exact_over_random_lives(void **state)
{
    (void)state;
    struct chrono_rng rng;
    uint32_t held[64], count = 0, expected[6] = {0};
    chrono_rng_init(&rng, 7);
    for (int i = 0; i < 20000; i++) {
        uint32_t what = (uint32_t)chrono_rng_below(&rng, 5), k = 0;
        if (count)
            k = (uint32_t)chrono_rng_below(&rng, count);
        if (what == 0 && count < 64) {
            uint32_t page = kv_pool_alloc(&pool, 0);
            if (page != KV_PAGE_NONE)
                held[count++] = page;
        } else if (what == 1 && count && count < 64) {
            kv_pool_ref(&pool, 0, held[k]);
            held[count++] = held[k];
        } else if (what == 2 && count) {
            uint32_t page = kv_pool_own(&pool, 0, held[k]);
            if (page != KV_PAGE_NONE)
                held[k] = page;
        } else if (what == 3 && count) {
            kv_pool_unref(&pool, 0, held[k]);
            held[k] = held[--count];
        } else if (what == 4) {
            kv_pool_copied(&pool);
        }
        memset(expected, 0, sizeof expected);
        for (uint32_t n = 0; n < count; n++)
            expected[held[n]]++;
        for (uint32_t n = 0; n < pool.copies_count; n++)
            expected[pool.copies[n].from]++;
        uint32_t used = 0;
        for (uint32_t page = 0; page < 6; page++) {
            assert_int_equal(kv_pool_refs(&pool, 0, page), expected[page]);
            used += expected[page] > 0;
        }
        assert_int_equal(kv_pool_used(&pool, 0), used);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_groups_count_their_pages_apart),
        TEST(test_a_page_is_free_when_the_last_holder_lets_go),
        TEST(test_used_pages_go_first_again),
        TEST(test_the_only_holder_owns_without_a_copy),
        TEST(test_owning_a_shared_page_copies_it_and_moves_the_reference),
        TEST(test_a_copy_goes_away_with_its_target),
        TEST(test_without_room_nothing_changes),
        TEST(test_references_stay_exact_over_random_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
