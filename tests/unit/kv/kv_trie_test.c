#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "kv/kv_trie.h"

#define PAGES 64u
static struct mem mem;
static struct kv_layout layout;
static struct kv_pool pool;
static struct kv_trie trie;

static int setup_with(uint32_t nodes, uint32_t window)
{
    static const uint32_t pages[] = {PAGES, PAGES};
    struct err e;
    mem_init(&mem, 8u << 20);
    layout = (struct kv_layout){.groups_count = window ? 2 : 1, .window = {0, window}};
    return kv_pool_init(&pool, pages, layout.groups_count, 32, &mem, &e) &&
                   kv_trie_init(&trie, &pool, &layout, nodes, &mem, &e)
               ? 0 : -1;
}
static int setup(void **state) { (void)state; return setup_with(PAGES, 0); }
static int setup_few(void **state) { (void)state; return setup_with(6, 0); }
static int setup_window(void **state) { (void)state; return setup_with(PAGES, 48); }
static int teardown(void **state)
{
    (void)state;
    kv_trie_deinit(&trie);
    for (uint32_t g = 0; g < layout.groups_count; g++)
        assert_int_equal(kv_pool_used(&pool, g), 0);
    mem_deinit(&mem);
    return 0;
}

/* A conversation: its tokens, and pages as a sequence would hold them. */
struct talk {
    int32_t tokens[512];
    uint32_t count;
    uint32_t arrays[KV_GROUPS_MAX][16];
    struct kv_pages pages;
    uint32_t held; /* pages of each group */
};

static void talk_init(struct talk *k)
{
    memset(k, 0, sizeof *k);
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        k->pages.pages[g] = k->arrays[g];
}
static void talk_say(struct talk *k, int32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        k->tokens[k->count++] = first + (int32_t)i;
}
static void talk_compute(struct talk *k) /* pages for all its tokens */
{
    for (; k->held * KV_PAGE_TOKENS < k->count; k->held++)
        for (uint32_t g = 0; g < layout.groups_count; g++) {
            k->arrays[g][k->held] = kv_pool_alloc(&pool, g);
            assert_int_not_equal(k->arrays[g][k->held], KV_PAGE_NONE);
        }
}
static void talk_free(struct talk *k)
{
    for (uint32_t g = 0; g < layout.groups_count; g++)
        for (uint32_t i = k->pages.first[g]; i < k->held; i++)
            kv_pool_unref(&pool, g, k->arrays[g][i]);
    talk_init(k);
}
/* Computes, stores, lets go. */
static uint32_t talk_store(struct talk *k, str scope)
{
    talk_compute(k);
    uint32_t node = kv_trie_insert(&trie, scope, k->tokens, k->count, &k->pages, true);
    struct talk copy = *k;
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        copy.pages.pages[g] = copy.arrays[g];
    talk_free(&copy);
    k->held = 0;
    return node;
}
static uint32_t length(const struct talk *k, str scope)
{
    return kv_trie_length(&trie, scope, k->tokens, k->count, NULL);
}

static void test_what_was_stored_is_found_to_its_last_token(void **state)
{
    (void)state;
    struct talk a;
    talk_init(&a);
    talk_say(&a, 100, 70);
    assert_int_equal(length(&a, STR("")), 0);
    talk_store(&a, STR(""));
    assert_int_equal(length(&a, STR("")), 70);
    assert_int_equal(kv_pool_used(&pool, 0), 3);
    assert_int_equal(kv_pool_spare(&pool, 0), PAGES);
    talk_say(&a, 900, 10);
    assert_int_equal(length(&a, STR("")), 70);
    a.count = 40;
    assert_int_equal(length(&a, STR("")), 40);
}

static void test_a_match_takes_the_pages_and_may_end_inside_one(void **state)
{
    (void)state;
    struct talk a, b;
    talk_init(&a);
    talk_init(&b);
    talk_say(&a, 100, 96);
    talk_store(&a, STR(""));
    talk_say(&b, 100, 50);
    talk_say(&b, 500, 30);
    b.held = 2;
    assert_int_equal(kv_trie_match(&trie, STR(""), b.tokens, b.count, &b.pages), 50);
    assert_int_equal(kv_pool_refs(&pool, 0, b.arrays[0][0]), 2);
    assert_int_equal(kv_pool_refs(&pool, 0, b.arrays[0][1]), 2);
    uint32_t own = kv_pool_own(&pool, 0, b.arrays[0][1]); /* 18 equal tokens, then its own */
    assert_int_not_equal(own, b.arrays[0][1]);
    b.arrays[0][1] = own;
    kv_pool_copied(&pool);
    talk_free(&b);
    assert_int_equal(length(&a, STR("")), 96);
}

static void test_forks_share_what_is_common(void **state)
{
    (void)state;
    struct talk a, b;
    talk_init(&a);
    talk_init(&b);
    talk_say(&a, 100, 64);
    talk_say(&b, 100, 64);
    talk_say(&a, 1000, 32);
    talk_say(&b, 2000, 32);
    talk_store(&a, STR(""));
    talk_store(&b, STR(""));
    assert_int_equal(length(&a, STR("")), 96);
    assert_int_equal(length(&b, STR("")), 96);
    assert_int_equal(kv_pool_used(&pool, 0), 4); /* two common pages, one each */
}

static void test_a_longer_end_replaces_the_one_it_begins_with(void **state)
{
    (void)state;
    struct talk a;
    talk_init(&a);
    talk_say(&a, 100, 40);
    talk_store(&a, STR(""));
    talk_say(&a, 140, 15);
    talk_store(&a, STR(""));
    assert_int_equal(length(&a, STR("")), 55);
    assert_int_equal(kv_pool_used(&pool, 0), 2);
    a.count = 45; /* a shorter one adds nothing */
    talk_store(&a, STR(""));
    assert_int_equal(kv_pool_used(&pool, 0), 2);
    a.count = 55;
    talk_say(&a, 155, 20);
    talk_store(&a, STR(""));
    assert_int_equal(length(&a, STR("")), 75);
    assert_int_equal(kv_pool_used(&pool, 0), 3);
}

static void test_an_unfinished_page_is_left_out_while_it_is_written(void **state)
{
    (void)state;
    struct talk a;
    talk_init(&a);
    talk_say(&a, 100, 50);
    talk_compute(&a);
    kv_trie_insert(&trie, STR(""), a.tokens, a.count, &a.pages, false);
    assert_int_equal(length(&a, STR("")), 32);
    talk_free(&a);
    assert_int_equal(kv_pool_used(&pool, 0), 1);
}

static void test_scopes_do_not_see_each_other_but_all_see_the_public(void **state)
{
    (void)state;
    struct talk system, a, b;
    talk_init(&system);
    talk_say(&system, 100, 64);
    talk_store(&system, STR(""));
    a = b = system;
    talk_say(&a, 700, 32);
    talk_say(&b, 700, 32);
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) {
        a.pages.pages[g] = a.arrays[g];
        b.pages.pages[g] = b.arrays[g];
    }
    talk_store(&a, STR("alice"));
    assert_int_equal(length(&a, STR("alice")), 96);
    assert_int_equal(length(&b, STR("bob")), 64);
    assert_int_equal(length(&b, STR("")), 64);
    talk_store(&b, STR("bob"));
    assert_int_equal(length(&b, STR("bob")), 96);
    assert_int_equal(kv_pool_used(&pool, 0), 4);
}

static void test_a_key_names_scope_and_all_tokens_whichever_node_is_asked_first(void **state)
{
    (void)state;
    struct talk k;
    struct kv_key want[12];
    uint32_t nodes[12];
    talk_init(&k);
    talk_say(&k, 100, 5 * KV_PAGE_TOKENS);
    talk_store(&k, STR(""));
    talk_say(&k, 700, 7 * KV_PAGE_TOKENS);
    talk_store(&k, STR("alice"));
    assert_int_equal(kv_trie_path(&trie, STR("alice"), k.tokens, k.count, nodes), 12);
    for (uint32_t i = 0; i < 12; i++) /* what all see is of no scope */
        kv_tier_key(&want[i], i ? &want[i - 1] : NULL, i < 5 ? STR("") : STR("alice"),
                    k.tokens + i * KV_PAGE_TOKENS);
    static const uint32_t order[] = {7, 11, 3, 0, 8, 12};
    for (uint32_t i = 0; order[i] < 12; i++)
        assert_memory_equal(kv_trie_key(&trie, nodes[order[i]]), &want[order[i]], sizeof *want);
    talk_free(&k);
}

static void test_the_oldest_conversation_goes_first_and_from_its_end(void **state)
{
    (void)state;
    struct talk a, b;
    talk_init(&a);
    talk_init(&b);
    talk_say(&a, 100, 96);
    talk_say(&b, 500, 96);
    talk_store(&a, STR(""));
    talk_store(&b, STR(""));
    assert_int_equal(kv_trie_evict(&trie, 0, 2), 2);
    assert_int_equal(length(&a, STR("")), 32);
    assert_int_equal(length(&b, STR("")), 96);
    kv_trie_match(&trie, STR(""), a.tokens, 40, &a.pages); /* a use makes it young again */
    a.held = 1;
    talk_free(&a);
    assert_int_equal(kv_trie_evict(&trie, 0, 3), 3);
    assert_int_equal(length(&b, STR("")), 0);
    assert_int_equal(trie.stats.nodes, 1);
}

static void test_pages_in_use_and_pinned_ones_are_never_evicted(void **state)
{
    (void)state;
    struct talk a, b;
    talk_init(&a);
    talk_init(&b);
    talk_say(&a, 100, 64);
    talk_say(&b, 500, 64);
    uint32_t node = talk_store(&a, STR(""));
    talk_store(&b, STR(""));
    kv_trie_pin(&trie, node);
    b.held = 2;
    uint32_t spare[KV_GROUPS_MAX];
    assert_int_equal(kv_trie_length(&trie, STR(""), b.tokens, 64, spare), 64);
    assert_int_equal(spare[0], 2);
    assert_int_equal(kv_trie_match(&trie, STR(""), b.tokens, 64, &b.pages), 64);
    kv_trie_length(&trie, STR(""), b.tokens, 64, spare);
    assert_int_equal(spare[0], 0);
    assert_int_equal(kv_trie_evict(&trie, 0, 100), 0);
    talk_free(&b);
    assert_int_equal(kv_trie_evict(&trie, 0, 100), 2);
    kv_trie_clear(&trie);
    assert_int_equal(length(&a, STR("")), 64);
    kv_trie_unpin(&trie, node);
    assert_int_equal(kv_trie_evict(&trie, 0, 100), 2);
}

/* A conversation that grows replaces the partly filled end of its path: that is no fork. */
static void test_where_conversations_part_the_way_to_there_weighs_more(void **state)
{
    (void)state;
    struct talk a, b;
    uint32_t path[4];
    talk_init(&a);
    talk_init(&b);
    talk_say(&a, 100, 40);
    talk_store(&a, STR(""));
    talk_init(&a);
    talk_say(&a, 100, 80);
    talk_store(&a, STR(""));
    talk_init(&a);
    talk_say(&a, 100, 100);
    talk_store(&a, STR(""));
    assert_int_equal(kv_trie_path(&trie, STR(""), a.tokens, 96, path), 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(trie.nodes[path[i]].weight, 1);
    talk_say(&b, 100, 40);
    talk_say(&b, 700, 60);
    talk_store(&b, STR("k"));
    assert_int_equal(trie.nodes[path[0]].weight, KV_TRIE_WEIGHT_FORK);
    assert_int_equal(trie.nodes[path[1]].weight, 1);
}

static void test_a_heavy_prefix_outlives_a_light_one_of_the_same_age(void **state)
{
    (void)state;
    struct talk a, b;
    talk_init(&a);
    talk_init(&b);
    talk_say(&a, 100, 32);
    talk_say(&b, 500, 32);
    kv_trie_weigh(&trie, talk_store(&a, STR("")), 4);
    talk_store(&b, STR(""));
    assert_int_equal(kv_trie_evict(&trie, 0, 1), 1);
    assert_int_equal(length(&a, STR("")), 32);
    assert_int_equal(length(&b, STR("")), 0);
}

/* Used in turn, so that each weight stands once at each age. */
static void test_who_waits_for_a_tool_outlives_a_session_and_that_one_who_named_none(void **state)
{
    (void)state;
    static const uint32_t weights[] = {KV_TRIE_WEIGHT_FORK, KV_TRIE_WEIGHT_TOOL,
                                       KV_TRIE_WEIGHT_SESSION, 1};
    for (uint32_t turn = 0; turn < 4; turn++) {
        struct talk talks[4];
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t who = (i + turn) % 4;
            talk_init(&talks[who]);
            talk_say(&talks[who], 100 + 1000 * (int32_t)who, 32);
            kv_trie_weigh(&trie, talk_store(&talks[who], STR("")), weights[who]);
        }
        for (uint32_t who = 4; who-- > 1;) { /* ages differ by a few uses, weights by more */
            for (int i = 0; i < 64; i++)
                trie.clock++;
            assert_int_equal(kv_trie_evict(&trie, 0, 1), 1);
            for (uint32_t i = 0; i < 4; i++)
                assert_int_equal(length(&talks[i], STR("")), i < who ? 32 : 0);
        }
        assert_int_equal(kv_trie_evict(&trie, 0, 1), 1);
    }
}

static void store_as(struct talk *k, int32_t first, uint32_t count, str scope, const char *agent,
                     const char *session)
{
    struct kv_tags tags = {kv_trie_tag_of(str_of(agent)), kv_trie_tag_of(str_of(session))};
    talk_init(k);
    talk_say(k, 100, 32);
    talk_say(k, first, count);
    kv_trie_tag(&trie, talk_store(k, scope), &tags);
}

static uint32_t drop_of(const char *agent, const char *session, const char *scope)
{
    struct kv_trie_which which = {.tags = {agent ? kv_trie_tag_of(str_of(agent)) : 0,
                                           session ? kv_trie_tag_of(str_of(session)) : 0},
                                  .scope = str_of(scope ? scope : ""), .any_scope = !scope};
    return kv_trie_drop(&trie, &which);
}

static void test_what_one_agent_used_alone_goes_and_what_others_used_too_stays(void **state)
{
    (void)state;
    struct talk a, b, other;
    store_as(&a, 1000, 64, STR("k"), "a", "s1");
    store_as(&b, 2000, 64, STR("k"), "b", "s1");
    store_as(&other, 3000, 32, STR("o"), "a", "s2");
    assert_int_equal(drop_of("nobody", NULL, NULL), 0);
    assert_int_equal(drop_of("a", NULL, "k"), 2); /* not the page that b began with, too */
    assert_int_equal(length(&a, STR("k")), 32);
    assert_int_equal(length(&b, STR("k")), 96);
    assert_int_equal(length(&other, STR("o")), 64);
    assert_int_equal(drop_of(NULL, "s1", NULL), 3); /* of the session all: both are its own */
    assert_int_equal(length(&b, STR("k")), 0);
    assert_int_equal(drop_of("a", "s1", NULL), 0);
    assert_int_equal(drop_of(NULL, NULL, NULL), 2);
    assert_int_equal(trie.stats.nodes, 0);
    assert_int_equal(kv_pool_used(&pool, 0), 0);
}

static void test_a_drop_leaves_pins_and_what_a_sequence_holds(void **state)
{
    (void)state;
    struct talk a, b;
    store_as(&a, 1000, 32, STR(""), "a", "");
    store_as(&b, 2000, 32, STR(""), "a", "");
    uint32_t path[2];
    assert_int_equal(kv_trie_path(&trie, STR(""), a.tokens, 64, path), 2);
    kv_trie_pin(&trie, path[1]);
    b.held = 2;
    assert_int_equal(kv_trie_match(&trie, STR(""), b.tokens, 64, &b.pages), 64);
    assert_int_equal(drop_of("a", NULL, NULL), 1);
    assert_int_equal(length(&a, STR("")), 64);
    assert_int_equal(length(&b, STR("")), 32);
    assert_int_equal(kv_pool_used(&pool, 0), 3); /* b's second page is its own still */
    talk_free(&b);
    assert_int_equal(kv_pool_used(&pool, 0), 2);
    kv_trie_unpin(&trie, path[1]);
}

/* A long unused pin is the oldest of all nodes: each search would begin behind it. */
static void test_a_pin_that_nobody_asks_for_does_not_lengthen_each_search(void **state)
{
    (void)state;
    struct talk a, b;
    talk_init(&a);
    talk_say(&a, 100, 96);
    uint32_t pinned = talk_store(&a, STR(""));
    kv_trie_pin(&trie, pinned);
    talk_init(&b);
    talk_say(&b, 500, 32);
    uint32_t node = talk_store(&b, STR(""));
    assert_int_equal(trie.oldest, pinned);
    assert_int_equal(kv_trie_evict(&trie, 0, 0), 0);
    assert_int_equal(trie.oldest, node);
    assert_int_equal(kv_trie_evict(&trie, 0, 9), 1);
    assert_int_equal(kv_trie_evict(&trie, 0, 9), 0); /* pins alone: it ends */
    assert_int_equal(length(&a, STR("")), 96);
    kv_trie_unpin(&trie, pinned);
}

static void test_E29_without_a_free_node_the_oldest_leaf_makes_room(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 20; i++) {
        struct talk a;
        talk_init(&a);
        talk_say(&a, i * 1000, 96);
        talk_store(&a, STR(""));
        a.count = 96;
        talk_say(&a, 0, 0);
        assert_int_equal(kv_trie_length(&trie, STR(""), a.tokens, 96, NULL), 96);
        assert_int_equal(kv_trie_length(&trie, STR(""), a.tokens, 40, NULL), 40); /* shorter */
        assert_true(trie.stats.nodes <= 6);
    }
}

/* Window 48: a token sees the 47 before it. */
static void test_a_match_needs_the_window_before_its_end(void **state)
{
    (void)state;
    struct talk a;
    talk_init(&a);
    talk_say(&a, 100, 160);
    talk_compute(&a);
    for (uint32_t i = 0; i < 3; i++) /* what the sequence itself has dropped behind the window */
        kv_pool_unref(&pool, 1, a.arrays[1][i]);
    a.pages.first[1] = 3;
    kv_trie_insert(&trie, STR(""), a.tokens, 160, &a.pages, true);
    talk_free(&a);
    talk_say(&a, 100, 160);
    assert_int_equal(length(&a, STR("")), 160);
    a.count = 150; /* still sees from 103 on: page 3 */
    assert_int_equal(length(&a, STR("")), 150);
    a.count = 140; /* needs page 2, which is gone; so does every shorter one down to none */
    assert_int_equal(length(&a, STR("")), 0);
}

static void test_window_pages_are_given_up_before_nodes_are(void **state)
{
    (void)state;
    struct talk a;
    talk_init(&a);
    talk_say(&a, 100, 192);
    talk_store(&a, STR(""));
    assert_int_equal(kv_trie_evict(&trie, 1, 3), 3);
    assert_int_equal(trie.stats.nodes, 6);
    assert_int_equal(kv_pool_used(&pool, 1), 3);
    assert_int_equal(length(&a, STR("")), 192); /* the last window is still there */
    talk_store(&a, STR("")); /* a new computation fills the gaps */
    assert_int_equal(kv_pool_used(&pool, 1), 6);
}

static void test_a_pin_holds_of_a_window_what_its_next_token_sees_and_no_more(void **state)
{
    (void)state;
    struct kv_trie_pins cost;
    struct talk a;
    talk_init(&a);
    talk_say(&a, 100, 192);
    kv_trie_pin_cost(&trie, STR(""), a.tokens, 192, &cost);
    assert_int_equal(cost.nodes, 6);
    assert_int_equal(cost.pages[0], 6);
    assert_int_equal(cost.pages[1], 2);
    uint32_t node = talk_store(&a, STR(""));
    kv_trie_pin(&trie, node);
    assert_memory_equal(&trie.stats.pinned, &cost, sizeof cost);
    assert_int_equal(kv_trie_evict(&trie, 1, 100), 4);
    assert_int_equal(kv_trie_evict(&trie, 0, 100), 0);
    assert_int_equal(length(&a, STR("")), 192);
    assert_int_equal(kv_pool_spare(&pool, 0), PAGES - 6); /* nobody counts on what is pinned */
    kv_trie_pin_cost(&trie, STR("k"), a.tokens, 192, &cost); /* seen by every scope */
    assert_int_equal(cost.nodes + cost.pages[0] + cost.pages[1], 0);
    talk_say(&a, 400, 1);
    kv_trie_pin_cost(&trie, STR(""), a.tokens, 193, &cost);
    assert_int_equal(cost.nodes, 1);
    kv_trie_unpin(&trie, node);
    assert_int_equal(trie.stats.pinned.nodes, 0);
    assert_int_equal(kv_trie_evict(&trie, 1, 100), 2);
    assert_int_equal(kv_trie_evict(&trie, 0, 100), 6);
}

static void test_what_is_pinned_costs_nothing_again_its_partly_filled_end_too(void **state)
{
    (void)state;
    struct kv_trie_pins cost;
    struct talk a;
    talk_init(&a);
    talk_say(&a, 100, 193);
    kv_trie_pin_cost(&trie, STR(""), a.tokens, 193, &cost);
    assert_int_equal(cost.nodes, 7);
    uint32_t node = talk_store(&a, STR(""));
    kv_trie_pin(&trie, node);
    assert_memory_equal(&trie.stats.pinned, &cost, sizeof cost);
    kv_trie_pin_cost(&trie, STR(""), a.tokens, 193, &cost);
    assert_int_equal(cost.nodes + cost.pages[0] + cost.pages[1], 0);
    a.tokens[192]++; /* another end: one page more of each group */
    kv_trie_pin_cost(&trie, STR(""), a.tokens, 193, &cost);
    assert_int_equal(cost.nodes, 1);
    kv_trie_unpin(&trie, node);
    assert_int_equal(trie.stats.pinned.nodes, 0);
}

/* Random conversations over few tokens, against a list of everything that was stored and never
 * evicted (the pool is large enough): the longest common prefix must be found exactly. */
static void test_random_conversations_match_their_longest_common_prefix(void **state)
{
    (void)state;
    struct chrono_rng rng;
    static int32_t stored[12][300];
    uint32_t counts[12] = {0}, stored_count = 0;
    chrono_rng_init(&rng, 11);
    for (int round = 0; round < 400; round++) {
        struct talk a;
        talk_init(&a);
        if (stored_count) { /* mostly a common beginning */
            uint32_t k = (uint32_t)chrono_rng_below(&rng, stored_count);
            a.count = (uint32_t)chrono_rng_below(&rng, counts[k] + 1);
            memcpy(a.tokens, stored[k], a.count * sizeof *a.tokens);
        }
        while (a.count < 10 || chrono_rng_below(&rng, 40))
            if (a.count < 150)
                a.tokens[a.count++] = (int32_t)chrono_rng_below(&rng, 3);
            else
                break;
        uint32_t expected = 0;
        for (uint32_t k = 0; k < stored_count; k++) {
            uint32_t same = 0;
            while (same < a.count && same < counts[k] && stored[k][same] == a.tokens[same])
                same++;
            expected = same > expected ? same : expected;
        }
        uint32_t found = length(&a, STR(""));
        if (found != expected)
            fail_msg("seed 11, round %d: found %u of %u", round, found, expected);
        if (round % 40 == 0 && stored_count < 12) {
            memcpy(stored[stored_count], a.tokens, a.count * sizeof *a.tokens);
            counts[stored_count++] = a.count;
            talk_store(&a, STR(""));
        }
    }
}

#define TEST(f, s) cmocka_unit_test_setup_teardown(f, s, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_was_stored_is_found_to_its_last_token, setup),
        TEST(test_a_match_takes_the_pages_and_may_end_inside_one, setup),
        TEST(test_forks_share_what_is_common, setup),
        TEST(test_a_longer_end_replaces_the_one_it_begins_with, setup),
        TEST(test_an_unfinished_page_is_left_out_while_it_is_written, setup),
        TEST(test_scopes_do_not_see_each_other_but_all_see_the_public, setup),
        TEST(test_a_key_names_scope_and_all_tokens_whichever_node_is_asked_first, setup),
        TEST(test_the_oldest_conversation_goes_first_and_from_its_end, setup),
        TEST(test_pages_in_use_and_pinned_ones_are_never_evicted, setup),
        TEST(test_a_pin_holds_of_a_window_what_its_next_token_sees_and_no_more, setup_window),
        TEST(test_what_is_pinned_costs_nothing_again_its_partly_filled_end_too, setup_window),
        TEST(test_where_conversations_part_the_way_to_there_weighs_more, setup),
        TEST(test_a_heavy_prefix_outlives_a_light_one_of_the_same_age, setup),
        TEST(test_who_waits_for_a_tool_outlives_a_session_and_that_one_who_named_none, setup),
        TEST(test_what_one_agent_used_alone_goes_and_what_others_used_too_stays, setup),
        TEST(test_a_drop_leaves_pins_and_what_a_sequence_holds, setup),
        TEST(test_a_pin_that_nobody_asks_for_does_not_lengthen_each_search, setup),
        TEST(test_E29_without_a_free_node_the_oldest_leaf_makes_room, setup_few),
        TEST(test_a_match_needs_the_window_before_its_end, setup_window),
        TEST(test_window_pages_are_given_up_before_nodes_are, setup_window),
        TEST(test_random_conversations_match_their_longest_common_prefix, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
