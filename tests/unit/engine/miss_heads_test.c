/* What an agent read last, and the note about a prompt that was not read from there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "engine/miss_heads.h"
#include "unit/engine/engine_vocab.h"

#define WORDS 1000

struct bench {
    struct vocab *vocab;
    struct mem mem;
    struct miss_heads heads;
    struct job *job;
    char note[4096]; /* "": none */
    uint64_t id;
};

static void bench_open(struct bench *b, size_t bytes_max)
{
    struct err e;
    memset(b, 0, sizeof *b);
    mem_init(&b->mem, (size_t)1 << 24);
    b->vocab = engine_vocab_numbered(WORDS);
    const struct miss_heads_options o = {.vocab = b->vocab, .bytes_max = bytes_max, .excerpt = 48};
    assert_true(miss_heads_init(&b->heads, &o, &b->mem, &e));
}

static void bench_close(struct bench *b)
{
    miss_heads_deinit(&b->heads);
    mem_deinit(&b->mem);
    vocab_free(b->vocab);
}

struct ask {
    const char *scope, *session, *agent; /* NULL: "one", "s", "anon" */
    uint32_t from, count; /* tokens from, from + 1, ... */
    uint32_t other_at;    /* this one is another one; 0: none */
    uint32_t cached;
    bool is_off;
};

/* Judges and remembers. Returns the note. */
static const char *ask(struct bench *b, const struct ask *q)
{
    struct api_request rq;
    struct arena a;
    struct api_note note;
    api_request_init(&rq);
    rq.kind = API_KIND_COMPLETE;
    rq.id = ++b->id;
    rq.scope = str_of(q->scope ? q->scope : "one");
    rq.session = str_of(q->session ? q->session : "s");
    rq.agent = q->agent ? str_of(q->agent) : STR("anon");
    rq.cache = q->is_off ? API_CACHE_OFF : API_CACHE_KEEP;
    struct api_input input = {.text = STR("x")};
    rq.inputs = &input;
    rq.inputs_count = 1;
    arena_init(&a, (size_t)1 << 22);
    struct job *j = prompt_job(&a, &rq);
    int32_t *ids = ARENA_ARRAY(&j->arena, int32_t, q->count);
    for (uint32_t i = 0; i < q->count; i++)
        ids[i] = (int32_t)((q->from + i) % (WORDS - 1));
    if (q->other_at)
        ids[q->other_at] = WORDS - 2;
    struct prompt p = {ids, q->count};
    j->prompts = &p;
    j->prompts_count = 1;
    b->note[0] = 0;
    if (miss_heads_judge(&b->heads, j, q->cached, false, &note))
        snprintf(b->note, sizeof b->note, "%.*s", STR_ARG(note.text));
    miss_heads_put(&b->heads, j);
    prompt_job_free(j);
    return b->note;
}

#define ASK(...) ask(&b, &(struct ask){__VA_ARGS__})

static void test_the_first_prompt_and_one_that_was_found_are_no_miss(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, 1 << 20);
    assert_string_equal(ASK(.count = 100), "");
    assert_string_equal(ASK(.count = 200, .cached = 100), "");
    assert_string_equal(ASK(.count = 300, .cached = 180), "");
    assert_string_equal(ASK(.session = "t", .count = 300), "");
    bench_close(&b);
}

static void test_an_equal_prompt_that_was_not_found_was_evicted(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, 1 << 20);
    ASK(.count = 100);
    assert_string_equal(ASK(.count = 120, .cached = 32),
                        "evicted 1 {\"expected_tokens\":100,\"reason\":\"evicted\","
                        "\"first_diff\":null,\"hint\":null}");
    bench_close(&b);
}

static void test_the_first_other_token_and_both_texts_are_told(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, 1 << 20);
    ASK(.count = 100);
    const char *note = ASK(.count = 100, .other_at = 50, .cached = 50);
    assert_non_null(strstr(note, "content_changed 1 {\"expected_tokens\":99,"));
    assert_non_null(strstr(note, "\"first_diff\":{\"token\":50,\"message\":null,"));
    assert_non_null(strstr(note, "w50 w51"));
    assert_non_null(strstr(note, "w998 w51"));
    bench_close(&b);
}

static void test_another_scope_is_compared_but_never_shown(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, 1 << 20);
    ASK(.count = 100);
    const char *note = ASK(.scope = "two", .count = 100, .other_at = 60);
    assert_string_equal(note, "scope 1 {\"expected_tokens\":60,\"reason\":\"scope\","
                              "\"first_diff\":null,\"hint\":null}");
    assert_string_equal(ASK(.scope = "three", .from = 500, .count = 100), ""); /* nothing equal */
    assert_string_equal(ASK(.scope = "two", .count = 100, .other_at = 60, .cached = 99), "");
    bench_close(&b);
}

static void test_a_request_without_cache_is_told_so_and_is_no_past(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, 1 << 20);
    ASK(.count = 100);
    assert_non_null(strstr(ASK(.count = 120, .is_off = true), "disabled 1 "));
    assert_non_null(strstr(ASK(.count = 120), "evicted 1 ")); /* not 2 */
    bench_close(&b);
}

static void test_an_agents_conversations_are_told_apart_up_to_four(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, 1 << 20);
    for (uint32_t turn = 0; turn < 3; turn++)
        for (uint32_t i = 0; i < MISS_HEADS_OF_AGENT; i++)
            assert_string_equal(ASK(.session = "", .agent = "a", .from = 1 + 200 * i,
                                    .count = 100 + 10 * turn,
                                    .cached = turn ? 90 + 10 * turn : 0), "");
    /* Of the fifth nothing is common with any of them; it takes the oldest one's place. */
    assert_string_equal(ASK(.session = "", .agent = "a", .from = 850, .count = 90), "");
    assert_string_equal(ASK(.session = "", .agent = "a", .from = 1, .count = 130), "");
    assert_non_null(strstr(ASK(.session = "", .agent = "a", .from = 601, .count = 130), "evicted"));
    bench_close(&b);
}

static void test_memory_is_bounded_by_what_was_not_used_for_longest(void **state)
{
    struct bench b;
    char name[16];
    (void)state;
    bench_open(&b, 4096); /* ten prompts of 100 tokens */
    for (uint32_t i = 0; i < 3 * MISS_HEADS_MAX; i++) {
        snprintf(name, sizeof name, "s%u", i);
        ASK(.session = name, .count = 100);
        assert_true(b.heads.bytes <= 4096);
    }
    assert_string_equal(ASK(.session = "s0", .count = 100), "");
    assert_non_null(strstr(ASK(.session = name, .count = 100), "evicted"));
    assert_string_equal(ASK(.session = "large", .count = 5000), ""); /* no room: no past */
    assert_string_equal(ASK(.session = "large", .count = 5000), "");
    bench_close(&b);
}

static void test_as_many_prompts_as_there_are_places_are_remembered(void **state)
{
    struct bench b;
    char name[16];
    (void)state;
    bench_open(&b, 1 << 20);
    for (uint32_t i = 0; i <= MISS_HEADS_MAX; i++) {
        snprintf(name, sizeof name, "s%u", i);
        ASK(.session = name, .count = 64);
    }
    assert_non_null(strstr(ASK(.session = "s1", .count = 64), "evicted 2 "));
    assert_string_equal(ASK(.session = "s0", .count = 64), "");
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_prompt_and_one_that_was_found_are_no_miss),
        cmocka_unit_test(test_an_equal_prompt_that_was_not_found_was_evicted),
        cmocka_unit_test(test_the_first_other_token_and_both_texts_are_told),
        cmocka_unit_test(test_another_scope_is_compared_but_never_shown),
        cmocka_unit_test(test_a_request_without_cache_is_told_so_and_is_no_past),
        cmocka_unit_test(test_an_agents_conversations_are_told_apart_up_to_four),
        cmocka_unit_test(test_memory_is_bounded_by_what_was_not_used_for_longest),
        cmocka_unit_test(test_as_many_prompts_as_there_are_places_are_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
