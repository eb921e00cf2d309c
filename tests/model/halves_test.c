/* A model cut in two (tensor/halves.h) between two devices of the CPU: the same bits as on one, at
 * every border, with K and V of each half on its own device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/model_run.h"

#define COUNT 70u /* over a page's end, and behind the tiny models' windows */
#define OUTS 8u

static void fill_ids(int32_t *ids, uint32_t vocab)
{
    for (uint32_t i = 0; i < COUNT; i++)
        ids[i] = (int32_t)((i * 2654435761u >> 8) % vocab);
}

/* A prompt in two steps; a fork of it, and a copy through kv_get and kv_set, which both go on
 * beside it. logits[4][OUTS][vocab]. */
static void run(const char *path, const struct model_run_options *o, float *logits)
{
    struct model_run m;
    int32_t ids[COUNT];
    model_run_open(&m, path, o);
    size_t part = (size_t)OUTS * m.plan.vocab;
    fill_ids(ids, m.plan.vocab);
    struct model_run_piece begin = {.count = 45, .outs = OUTS, .ids = ids, .logits = logits};
    model_run_step(&m, &begin, 1);
    model_run_fork(&m, 0, 1, 45);
    model_run_restore(&m, 0, 2, 45);
    struct model_run_piece more[3];
    for (uint32_t i = 0; i < 3; i++)
        more[i] = (struct model_run_piece){.seq = i, .count = COUNT - 45, .outs = OUTS,
                                           .ids = ids + 45, .logits = logits + (i + 1) * part};
    model_run_step(&m, more, 3);
    model_run_close(&m);
}

static uint32_t layers_of(const char *path, uint32_t *vocab)
{
    struct model_run m;
    model_run_open(&m, path, &(struct model_run_options){.act = ACT_F32});
    uint32_t layers = m.hp->n_layer;
    *vocab = m.plan.vocab;
    model_run_close(&m);
    return layers;
}

static void check(const char *name, enum act act, bool is_kv_int8)
{
    char path[128];
    uint32_t vocab;
    snprintf(path, sizeof path, "build/tiny/%s.gguf", name);
    uint32_t layers = layers_of(path, &vocab);
    assert_true(layers >= 2);
    size_t part = (size_t)OUTS * vocab, size = 4 * part * sizeof(float);
    float *want = malloc(size), *got = malloc(size);
    struct model_run_options o = {.act = act, .is_kv_int8 = is_kv_int8};
    run(path, &o, want);
    assert_memory_equal(want + part, want + 2 * part, part * sizeof *want);
    for (o.upper = 1; o.upper < layers; o.upper++) {
        memset(got, 0, size);
        run(path, &o, got);
        if (memcmp(got, want, size) != 0)
            fail_msg("%s, the last %u of %u layers on another device: other bits", name, o.upper,
                     layers);
    }
    free(want);
    free(got);
}

static void test_a_model_on_two_devices_has_the_bits_of_one(void **state)
{
    (void)state;
    const char *const *names;
    size_t count = model_run_tiny(&names);
    for (size_t i = 0; i < count; i++)
        check(names[i], strstr(names[i], "-mixed") ? ACT_INT8 : ACT_F32, false);
}

static void test_pages_of_int8_lie_on_two_devices(void **state)
{
    (void)state;
    const char *const *names;
    size_t count = model_run_tiny(&names);
    for (size_t i = 0; i < count; i++)
        if (strstr(names[i], "-mixed"))
            check(names[i], ACT_INT8, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_on_two_devices_has_the_bits_of_one),
        cmocka_unit_test(test_pages_of_int8_lie_on_two_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
