/* The tiny models' logits against transformers (tests/golden/tiny), float activations, at the
 * lowest and the highest level of the machine: within 1e-5 of the range, the most likely token
 * always the same, and nearer than transformers with K and V rounded to f16 would be: float mode
 * keeps them as f32. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/digest.h"
#include "model/model_run.h"

#define BOUND 1e-5f

struct golden {
    uint8_t sha256[32];
    uint32_t count, vocab;
    int32_t *ids;
    float *logits;  /* [count][vocab] */
    float *rounded; /* the same with K and V as f16 */
};

static void read_golden(struct golden *g, const char *name)
{
    char path[128], magic[8];
    snprintf(path, sizeof path, "tests/golden/tiny/%s.bin", name);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("cannot open %s", path);
    assert_int_equal(fread(magic, 1, 8, f), 8);
    assert_memory_equal(magic, "SHTINYL1", 8);
    assert_int_equal(fread(g->sha256, 1, 32, f), 32);
    assert_int_equal(fread(&g->count, 4, 1, f) + fread(&g->vocab, 4, 1, f), 2);
    assert_true(g->count > 0 && g->count <= MODEL_RUN_ROWS && g->vocab > 0 && g->vocab <= 4096);
    size_t values = (size_t)g->count * g->vocab;
    g->ids = malloc(g->count * sizeof *g->ids);
    g->logits = malloc(values * sizeof *g->logits);
    assert_int_equal(fread(g->ids, 4, g->count, f), g->count);
    g->rounded = malloc(values * sizeof *g->rounded);
    assert_int_equal(fread(g->logits, 4, values, f), values);
    assert_int_equal(fread(g->rounded, 4, values, f), values);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
}

/* The weights are those of the golden: generator, encoders and writer gave the same bytes. */
static void check_file(const struct golden *g, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("cannot open %s: run `make tiny`", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(size), sha256[32];
    assert_int_equal(fread(bytes, 1, size, f), size);
    fclose(f);
    struct digest_sha256 digest;
    struct err e;
    digest_sha256_init(&digest);
    digest_sha256_add(&digest, str_view(bytes, size));
    assert_true(digest_sha256_end(&digest, sha256, &e));
    free(bytes);
    if (memcmp(sha256, g->sha256, 32) != 0)
        fail_msg("%s is not the file that tests/golden/tiny was made from", path);
}

/* The largest difference, as a part of the range of want. */
static float distance(const float *want, const float *got, size_t count)
{
    float low = INFINITY, high = -INFINITY, worst = 0;
    for (size_t i = 0; i < count; i++) {
        float d = fabsf(got[i] - want[i]);
        low = fminf(low, want[i]);
        high = fmaxf(high, want[i]);
        if (!(d <= worst))
            worst = d;
    }
    return worst / (high - low);
}

static void compare(const struct golden *g, const float *got, const char *name, const char *level)
{
    size_t values = (size_t)g->count * g->vocab;
    float ours = distance(g->logits, got, values);
    float rounded = distance(g->logits, g->rounded, values);
    if (!(ours <= BOUND && ours < rounded))
        fail_msg("%s at level %s: off by %g of the range (at most %g, f16 pages %g)", name, level,
                 (double)ours, (double)BOUND, (double)rounded);
    for (uint32_t i = 0; i < g->count; i++) {
        uint32_t want = model_run_argmax(g->logits + (size_t)i * g->vocab, g->vocab);
        uint32_t have = model_run_argmax(got + (size_t)i * g->vocab, g->vocab);
        if (want != have)
            fail_msg("%s at level %s: position %u: token %u, wanted %u", name, level, i, have,
                     want);
    }
}

static void check_model(const char *name)
{
    char path[128];
    struct golden g;
    read_golden(&g, name);
    snprintf(path, sizeof path, "build/tiny/%s.gguf", name);
    check_file(&g, path);
    float *got = malloc((size_t)g.count * g.vocab * sizeof *got);
    static const char *const levels[] = {"ref", NULL};
    for (size_t i = 0; i < countof(levels); i++) {
        struct model_run m;
        struct model_run_options o = {.level = levels[i], .act = ACT_F32, .threads = 1};
        model_run_open(&m, path, &o);
        assert_int_equal(m.plan.vocab, g.vocab);
        struct model_run_piece piece = {
            .count = g.count, .outs = g.count, .ids = g.ids, .logits = got};
        model_run_step(&m, &piece, 1);
        compare(&g, got, name, m.info.level);
        model_run_close(&m);
    }
    free(got);
    free(g.ids);
    free(g.logits);
    free(g.rounded);
}

static void test_logits_equal_those_of_transformers(void **state)
{
    check_model(*state);
}

/* One case per model, named after it. */
int main(void)
{
    static struct CMUnitTest tests[64];
    static char text[64][96];
    const char *const *names;
    size_t count = model_run_tiny(&names);
    must(count <= countof(tests));
    for (size_t i = 0; i < count; i++) {
        snprintf(text[i], sizeof text[i], "test_logits_of_%s_equal_those_of_transformers",
                 names[i]);
        tests[i] = (struct CMUnitTest){.name = text[i],
                                       .test_func = test_logits_equal_those_of_transformers,
                                       .initial_state = (void *)(uintptr_t)names[i]};
    }
    return _cmocka_run_group_tests("tests", tests, count, NULL, NULL);
}
