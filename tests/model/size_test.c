/* What engine_size counts beside what a load really takes: the same bytes, for every tiny model. */
#include <setjmp.h>
#include <stdarg.h>
#include <glob.h>
#include <stdio.h>

#include <cmocka.h>

#include "engine/engine.h"

#define ROOM ((uint64_t)64 << 30)

static const struct api_load loads[] = {
    {.memory_bytes = 96 << 20, .threads = 2},
    {.memory_bytes = 96 << 20, .threads = 1, .context = 700, .slots = 5, .batch = 64},
    {.memory_bytes = 48 << 20, .threads = 2, .slots = 3, .kv = API_KV_INT8},
    {.memory_bytes = 96 << 20, .threads = 2, .activations = API_ACTIVATIONS_FLOAT},
};

static void compare(const char *path, struct api_load load)
{
    struct engine *real = NULL, *counted = NULL;
    struct err e = {0}, why;
    load.path = str_of(path);
    load.backend = STR("cpu");
    if (!engine_open(&real, &load, NULL, &e) ||
        !engine_size(&counted, &load, ROOM, &why, &e) || why.code)
        fail_msg("%s: %s%s", path, e.text, why.text);
    if (real->info.memory_used != counted->info.memory_used)
        fail_msg("%s: %llu bytes counted, %llu taken", path,
                 (unsigned long long)counted->info.memory_used,
                 (unsigned long long)real->info.memory_used);
    const struct engine_sizes *a = &real->sizes, *b = &counted->sizes;
    assert_int_equal(a->weights, b->weights);
    assert_int_equal(a->scratch, b->scratch);
    assert_int_equal(a->pool, b->pool);
    assert_int_equal(a->weights + a->scratch + a->pool, real->info.memory_used);
    assert_memory_equal(&real->budget, &counted->budget, sizeof real->budget);
    engine_close(real);
    engine_close(counted);
}

static void test_a_count_is_what_the_load_takes(void **state)
{
    glob_t g;
    (void)state;
    assert_int_equal(glob("build/tiny/*.gguf", 0, NULL, &g), 0);
    assert_true(g.gl_pathc >= 14);
    for (size_t i = 0; i < g.gl_pathc; i++)
        for (size_t k = 0; k < countof(loads); k++)
            compare(g.gl_pathv[i], loads[k]);
    globfree(&g);
}

static void test_what_does_not_fit_is_an_answer_with_sizes(void **state)
{
    (void)state;
    struct api_load load = {.path = STR("build/tiny/llama.gguf"), .backend = STR("cpu"),
                            .threads = 1};
    struct engine *en = NULL;
    struct err e = {0}, why;
    assert_true(engine_size(&en, &load, 1 << 20, &why, &e));
    assert_int_equal(why.code, ERR_MEMORY);
    assert_true(str_starts(str_of(why.text), STR("the weights need ")));
    assert_true(en->sizes.weights > 1 << 20 && en->sizes.scratch > 0 && en->sizes.pool == 0);
    uint64_t taken = en->sizes.weights + en->sizes.scratch;
    engine_close(en);
    assert_true(engine_size(&en, &load, taken + 4096, &why, &e));
    assert_int_equal(why.code, ERR_MEMORY);
    assert_true(str_starts(str_of(why.text), STR("a context of ")));
    engine_close(en);
    load.context = 1 << 20;
    assert_false(engine_size(&en, &load, ROOM, &why, &e));
    assert_int_equal(e.code, ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_count_is_what_the_load_takes),
        cmocka_unit_test(test_what_does_not_fit_is_an_answer_with_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
