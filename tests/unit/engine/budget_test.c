#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "engine/budget.h"

#define GIB ((uint64_t)1 << 30)
#define MIB ((uint64_t)1 << 20)

/* Like SmolLM2: 30 layers, 3 heads of 64, f16: 22.5 KiB a token. */
static struct kv_layout plain(void)
{
    struct kv_layout l = {.groups_count = 1};
    l.page_size[0] = (size_t)30 * 2 * 3 * 64 * 2 * KV_PAGE_TOKENS;
    return l;
}
/* Like Gemma 3: some layers see everything, most see a window of 512. */
static struct kv_layout windowed(void)
{
    struct kv_layout l = {.groups_count = 2, .window = {0, 512}};
    l.page_size[0] = 3 * 2 * 256 * 2 * KV_PAGE_TOKENS;
    l.page_size[1] = 15 * 2 * 256 * 2 * KV_PAGE_TOKENS;
    return l;
}

static uint64_t pool_bytes(const struct kv_layout *l, const struct budget *b)
{
    uint64_t sum = 0;
    for (uint32_t g = 0; g < l->groups_count; g++)
        sum += (uint64_t)b->pages[g] * l->page_size[g];
    return sum;
}

static void test_auto_takes_half_of_what_is_free_and_the_trained_context(void **state)
{
    (void)state;
    struct kv_layout l = plain();
    struct budget_in in = {.available = 16 * GIB, .n_ctx = 8192, .layout = &l};
    struct budget b;
    struct err e;
    assert_true(budget_make(&in, &b, &e));
    assert_int_equal(b.context_max, 8192);
    assert_int_equal(b.slots, 64);
    assert_int_equal(b.batch, 512);
    assert_int_equal(b.pages_max[0], 256);
    assert_true(b.pool_bytes <= 8 * GIB && b.pool_bytes > 8 * GIB - 2 * l.page_size[0]);
    assert_true(b.pool_bytes == pool_bytes(&l, &b));
}

static void test_two_gigabytes_stay_with_the_machine(void **state)
{
    (void)state;
    struct kv_layout l = plain();
    struct budget_in in = {.available = 3 * GIB, .n_ctx = 8192, .layout = &l};
    struct budget b;
    struct err e;
    assert_true(budget_make(&in, &b, &e));
    assert_true(b.pool_bytes <= GIB);
}

static void test_a_gpu_gives_nine_tenths_of_what_is_left_and_wider_steps(void **state)
{
    (void)state;
    struct kv_layout l = plain();
    struct budget_in in = {.available = 80 * GIB, .n_ctx = 8192, .layout = &l, .is_gpu = true};
    struct budget b;
    struct err e;
    assert_true(budget_spendable(&in) == (80 * GIB - 512 * MIB) / 10 * 9);
    assert_true(budget_make(&in, &b, &e));
    assert_int_equal(b.batch, 2048);
    assert_true(b.pool_bytes > 71 * GIB && b.pool_bytes < 72 * GIB);
    in.available = 512 * MIB;
    assert_true(budget_spendable(&in) == 0);
    assert_false(budget_make(&in, &b, &e));
    assert_int_equal(e.code, ERR_MEMORY);
}

static void test_a_small_machine_gets_a_shorter_context(void **state)
{
    (void)state;
    struct kv_layout l = plain();
    struct budget_in in = {.available = 200 * MIB, .n_ctx = 8192, .layout = &l};
    struct budget b;
    struct err e;
    assert_true(budget_make(&in, &b, &e)); /* 50 MiB: 2275 tokens, in whole pages */
    assert_int_equal(b.context_max, 71 * 32);
    assert_true(b.pool_bytes <= 50 * MIB);
    assert_true(b.slots >= 1 && b.slots < 64);
}

static void test_the_limit_from_above_counts(void **state)
{
    (void)state;
    struct kv_layout l = plain();
    struct budget_in in = {.available = 64 * GIB, .memory_max = 300 * MIB, .n_ctx = 8192,
                           .layout = &l};
    struct budget b;
    struct err e;
    assert_true(budget_make(&in, &b, &e));
    assert_true(b.pool_bytes <= 300 * MIB);
}

static void test_a_context_of_one_token_is_refused_as_such(void **state)
{
    (void)state;
    struct kv_layout l = plain();
    struct budget_in in = {.available = 8 * GIB, .n_ctx = 8192, .context = 1, .layout = &l};
    struct budget b;
    struct err e;
    assert_false(budget_make(&in, &b, &e));
    assert_string_equal(e.text, "context: 2 tokens or more expected, got 1");
}

static void test_an_explicit_context_that_does_not_fit_is_refused_with_the_numbers(void **state)
{
    (void)state;
    struct kv_layout l = plain();
    struct budget_in in = {.available = 200 * MIB, .n_ctx = 8192, .context = 8192, .layout = &l};
    struct budget b;
    struct err e;
    assert_false(budget_make(&in, &b, &e));
    assert_int_equal(e.code, ERR_MEMORY);
    assert_string_equal(e.text, "a context of 8192 tokens needs 180.0 MB of attention memory, but "
                                "50.0 MB can be spent (200.0 MB are free)");
}

static void test_without_room_for_a_page_the_load_is_refused(void **state)
{
    (void)state;
    struct kv_layout l = plain();
    struct budget_in in = {.available = 100000, .n_ctx = 8192, .layout = &l};
    struct budget b;
    struct err e;
    assert_false(budget_make(&in, &b, &e));
    assert_int_equal(e.code, ERR_MEMORY);
}

static void test_options_out_of_range_are_refused_by_name(void **state)
{
    (void)state;
    struct kv_layout l = plain();
    struct budget_in slots = {.available = GIB, .n_ctx = 64, .slots = 1025, .layout = &l};
    struct budget_in batch = {.available = GIB, .n_ctx = 64, .batch = 31, .layout = &l};
    struct budget b;
    struct err e;
    assert_false(budget_make(&slots, &b, &e));
    assert_non_null(strstr(e.text, "slots: 1 to 1024"));
    assert_false(budget_make(&batch, &b, &e));
    assert_non_null(strstr(e.text, "batch: 32 to 8192"));
}

static void test_windows_are_counted_per_sequence(void **state)
{
    (void)state;
    struct kv_layout l = windowed();
    struct budget_in in = {.available = 16 * GIB, .n_ctx = 32768, .slots = 4, .layout = &l};
    struct budget b;
    struct err e;
    assert_true(budget_make(&in, &b, &e));
    uint32_t each = (512 + 512) / 32 + 2; /* window, the rows of a step, two cut pages */
    assert_int_equal(budget_pages(&l, 1, 32768, b.rows_max), each);
    assert_int_equal(b.pages[1], 4 * each);
    assert_true(b.pages[0] >= 32768 / 32);
    assert_int_equal(budget_pages(&l, 1, 100, b.rows_max), 4);
}

static void test_one_whole_conversation_always_fits(void **state)
{
    (void)state;
    static const uint64_t available[] = {30 * MIB, 100 * MIB, 700 * MIB, 5 * GIB, 100 * GIB};
    for (size_t i = 0; i < countof(available); i++)
        for (uint32_t slots = 0; slots < 10; slots += 3) {
            struct kv_layout layouts[] = {plain(), windowed()};
            for (size_t k = 0; k < countof(layouts); k++) {
                const struct kv_layout *l = &layouts[k];
                struct budget_in in = {.available = available[i], .n_ctx = 131072,
                                       .slots = slots, .layout = l};
                struct budget b;
                struct err e;
                if (!budget_make(&in, &b, &e))
                    continue;
                for (uint32_t g = 0; g < l->groups_count; g++)
                    assert_true(b.pages[g] >= budget_pages(l, g, b.context_max, b.rows_max));
                assert_true(b.rows_max >= b.slots && b.slots >= 1);
                assert_true(pool_bytes(l, &b) <= available[i]);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_takes_half_of_what_is_free_and_the_trained_context),
        cmocka_unit_test(test_two_gigabytes_stay_with_the_machine),
        cmocka_unit_test(test_a_gpu_gives_nine_tenths_of_what_is_left_and_wider_steps),
        cmocka_unit_test(test_a_small_machine_gets_a_shorter_context),
        cmocka_unit_test(test_the_limit_from_above_counts),
        cmocka_unit_test(test_a_context_of_one_token_is_refused_as_such),
        cmocka_unit_test(test_an_explicit_context_that_does_not_fit_is_refused_with_the_numbers),
        cmocka_unit_test(test_without_room_for_a_page_the_load_is_refused),
        cmocka_unit_test(test_options_out_of_range_are_refused_by_name),
        cmocka_unit_test(test_windows_are_counted_per_sequence),
        cmocka_unit_test(test_one_whole_conversation_always_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
