/* Pins by name: within a quota, beside which a whole conversation fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sched_pins.h"

#define PAGES 40u
static struct mem mem;
static const struct kv_layout layout = {.groups_count = 1};
static struct kv_pool pool;
static struct kv_trie trie;
static struct sched_pins pins;
static int32_t ids[1024];

static int setup(void **state)
{
    (void)state;
    static const uint32_t pages[] = {PAGES};
    struct err e;
    mem_init(&mem, 8u << 20);
    for (uint32_t i = 0; i < 1024; i++)
        ids[i] = (int32_t)i;
    return kv_pool_init(&pool, pages, 1, 32, &mem, &e) &&
                   kv_trie_init(&trie, &pool, &layout, PAGES, &mem, &e)
               ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    sched_pins_deinit(&pins);
    kv_trie_deinit(&trie);
    assert_int_equal(kv_pool_used(&pool, 0), 0);
    mem_deinit(&mem);
    return 0;
}

static void open_pins(uint32_t permille, uint32_t whole)
{
    const struct sched_pins_options o = {.trie = &trie, .permille = permille, .whole = {whole}};
    sched_pins_init(&pins, &o);
}

/* A prompt of its own: `first` is its first token. */
struct ask {
    struct job job;
    struct prompt prompt;
};

static void ask_init(struct ask *a, const char *name, uint32_t first, uint32_t count)
{
    *a = (struct ask){.prompt = {ids + first, count}};
    arena_init(&a->job.arena, 4096);
    api_request_init(&a->job.rq);
    a->job.rq.kind = API_KIND_PREFILL;
    a->job.rq.cache = API_CACHE_PIN;
    a->job.rq.context = str_of(name);
    a->job.prompts = &a->prompt;
    a->job.prompts_count = 1;
}

static bool ask_put(struct ask *a, struct api_error *e)
{
    uint32_t held[32], count = (a->prompt.count + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    const struct kv_pages pages = {.pages = {held}};
    for (uint32_t i = 0; i < count; i++)
        held[i] = kv_pool_alloc(&pool, 0);
    uint32_t node = kv_trie_insert(&trie, STR(""), a->prompt.ids, a->prompt.count, &pages, true);
    bool ok = sched_pins_put(&pins, &a->job, node, e);
    for (uint32_t i = 0; i < count; i++)
        kv_pool_unref(&pool, 0, held[i]);
    return ok;
}

static void ask_end(struct ask *a)
{
    sched_pins_leave(&pins, &a->job);
    arena_deinit(&a->job.arena);
}

static void pin(const char *name, uint32_t first, uint32_t count)
{
    struct ask a;
    struct api_error e = {0};
    ask_init(&a, name, first, count);
    assert_true(sched_pins_enter(&pins, &a.job, &e));
    assert_true(ask_put(&a, &e));
    ask_end(&a);
}

static bool may_pin(const char *name, uint32_t first, uint32_t count, struct api_error *e)
{
    struct ask a;
    *e = (struct api_error){0};
    ask_init(&a, name, first, count);
    bool ok = sched_pins_enter(&pins, &a.job, e);
    ask_end(&a);
    return ok;
}

static void test_more_than_the_quota_is_refused_with_the_numbers(void **state)
{
    (void)state;
    struct api_error e;
    open_pins(500, 10);
    pin("1", 0, 18 * 32);
    assert_true(may_pin("2", 700, 2 * 32, &e));
    assert_false(may_pin("2", 700, 2 * 32 + 1, &e));
    assert_true(str_eq_z(e.code, "insufficient_storage"));
    assert_non_null(strstr(e.err.text, "65 tokens need 3 more pages"));
    assert_non_null(strstr(e.err.text, "18 are pinned, at most 20"));
    assert_int_equal(pins.promised.nodes, 0);
    assert_true(may_pin("2", 0, 20 * 32, &e)); /* most of it is pinned already */
}

static void test_a_whole_conversation_fits_beside_all_pins(void **state)
{
    (void)state;
    struct api_error e;
    open_pins(900, PAGES - 3);
    assert_true(may_pin("1", 0, 3 * 32, &e));
    assert_false(may_pin("1", 0, 3 * 32 + 1, &e));
    sched_pins_deinit(&pins);
    open_pins(900, PAGES);
    assert_false(may_pin("1", 0, 32, &e));
}

static void test_what_is_promised_is_nobody_else_s(void **state)
{
    (void)state;
    struct api_error e = {0};
    struct ask a;
    open_pins(500, 10);
    ask_init(&a, "1", 0, 15 * 32);
    assert_true(sched_pins_enter(&pins, &a.job, &e));
    assert_false(may_pin("2", 500, 6 * 32, &e));
    assert_true(ask_put(&a, &e));
    ask_end(&a);
    assert_false(may_pin("2", 500, 6 * 32, &e));
    sched_pins_drop(&pins, STR("1"));
    sched_pins_drop(&pins, STR("1"));
    sched_pins_drop(&pins, STR("other"));
    assert_true(may_pin("2", 500, 6 * 32, &e));
}

static void test_a_name_pins_what_it_was_given_last(void **state)
{
    (void)state;
    open_pins(500, 10);
    pin("1", 0, 4 * 32);
    pin("1", 0, 4 * 32);
    assert_int_equal(trie.stats.pinned.nodes, 4);
    pin("1", 500, 2 * 32);
    assert_int_equal(trie.stats.pinned.nodes, 2);
    pin("2", 500, 2 * 32);
    sched_pins_drop(&pins, STR("1"));
    assert_int_equal(trie.stats.pinned.nodes, 2);
    sched_pins_drop(&pins, STR("2"));
    assert_int_equal(trie.stats.pinned.nodes, 0);
}

static void test_a_prefix_without_a_name_is_computed_even_if_it_cannot_be_pinned(void **state)
{
    (void)state;
    struct api_error e;
    open_pins(100, 10);
    assert_true(may_pin("", 0, 20 * 32, &e));
    pin("", 0, 20 * 32);
    assert_int_equal(trie.stats.pinned.nodes, 0);
    pin("", 0, 4 * 32);
    assert_int_equal(trie.stats.pinned.nodes, 4);
}

static void test_a_prefix_that_the_tree_cut_is_no_pin(void **state)
{
    (void)state;
    struct api_error e = {0};
    struct ask a;
    open_pins(500, 10);
    ask_init(&a, "1", 0, 2 * 32);
    assert_true(sched_pins_enter(&pins, &a.job, &e));
    assert_false(sched_pins_put(&pins, &a.job, KV_NODE_NONE, &e));
    assert_true(str_eq_z(e.code, "insufficient_storage"));
    ask_end(&a);
    assert_int_equal(pins.by_name.count, 0);
}

static void test_without_a_tree_and_with_a_bad_name_it_says_so(void **state)
{
    (void)state;
    struct api_error e;
    open_pins(500, 10);
    assert_false(may_pin("x", 0, 32, &e));
    assert_int_equal(e.err.code, ERR_REQUEST);
    sched_pins_deinit(&pins);
    sched_pins_init(&pins, &(struct sched_pins_options){.trie = NULL});
    assert_false(may_pin("1", 0, 32, &e));
    assert_int_equal(e.err.code, ERR_UNSUPPORTED);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_more_than_the_quota_is_refused_with_the_numbers),
        TEST(test_a_whole_conversation_fits_beside_all_pins),
        TEST(test_what_is_promised_is_nobody_else_s),
        TEST(test_a_name_pins_what_it_was_given_last),
        TEST(test_a_prefix_without_a_name_is_computed_even_if_it_cannot_be_pinned),
        TEST(test_a_prefix_that_the_tree_cut_is_no_pin),
        TEST(test_without_a_tree_and_with_a_bad_name_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
