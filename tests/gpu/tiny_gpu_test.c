/* The tiny models on the GPU: floats as near to the CPU as the order of sums allows, quantised ones
 * within what int8 activations leave, the first layers on the CPU and the last on the GPU too; and
 * a token's bits whatever is computed beside it (model/company.h). `make gpu`. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/company.h"
#include "model/model_run.h"

#define COUNT 200u
#define KL_FLOAT 1e-5 /* mean over positions */

struct truth {
    uint32_t vocab, layers;
    float *logits; /* [COUNT][vocab] */
};

static float *run(const char *path, const struct model_run_options *o, struct truth *t)
{
    struct model_run m;
    int32_t ids[COUNT];
    model_run_open(&m, path, o);
    for (uint32_t i = 0; i < COUNT; i++)
        ids[i] = (int32_t)((i * 2654435761u >> 8) % m.plan.vocab);
    float *logits = malloc((size_t)COUNT * m.plan.vocab * sizeof *logits);
    assert_non_null(logits);
    struct model_run_piece piece = {.count = COUNT, .outs = COUNT, .ids = ids, .logits = logits};
    model_run_step(&m, &piece, 1);
    t->vocab = m.plan.vocab;
    t->layers = m.hp->n_layer;
    model_run_close(&m);
    return logits;
}

static double log_sum(const float *x, uint32_t count)
{
    double sum = 0, most = -INFINITY;
    for (uint32_t i = 0; i < count; i++)
        most = fmax(most, (double)x[i]);
    for (uint32_t i = 0; i < count; i++)
        sum += exp((double)x[i] - most);
    return most + log(sum);
}

static double kl_of(const float *want, const float *got, uint32_t vocab)
{
    double kl = 0, a = log_sum(want, vocab), b = log_sum(got, vocab);
    for (uint32_t i = 0; i < vocab; i++)
        kl += exp((double)want[i] - a) * (((double)want[i] - a) - ((double)got[i] - b));
    return kl;
}

struct distance {
    double kl;     /* mean over positions */
    uint32_t same; /* positions with the same first id */
};

static struct distance distance_of(const struct truth *t, const float *got)
{
    struct distance d = {0};
    for (uint32_t i = 0; i < COUNT; i++) {
        const float *a = t->logits + (size_t)i * t->vocab, *b = got + (size_t)i * t->vocab;
        d.kl += kl_of(a, b, t->vocab) / COUNT;
        d.same += model_run_argmax(a, t->vocab) == model_run_argmax(b, t->vocab);
    }
    return d;
}

/* At most kl_max from the truth; same_min: positions with its first id. */
static void compare(const char *name, const struct truth *t, const struct model_run_options *o,
                    double kl_max, uint32_t same_min)
{
    struct truth ignored;
    char path[128];
    snprintf(path, sizeof path, "build/tiny/%s.gguf", name);
    float *got = run(path, o, &ignored);
    struct distance d = distance_of(t, got);
    free(got);
    char what[256];
    snprintf(what, sizeof what, "%s, pages of %s, %u of %u layers on the GPU", name,
             o->is_kv_int8 ? "int8" : "f16", o->upper ? o->upper : t->layers, t->layers);
    printf("# %s: mean KL %.2e, at most %.2e; first id the same at %u of %u\n", what, d.kl, kl_max,
           d.same, COUNT);
    if (!(d.kl <= kl_max && d.same >= same_min))
        fail_msg("%s: mean KL %g, at most %g; first id the same at %u of %u, at least %u", what,
                 d.kl, kl_max, d.same, COUNT, same_min);
}

/* The truth: of floats the CPU's answer with the same pages; else the CPU with float activations,
 * from which the GPU may be twice as far as the CPU with int8: outliers of K types coarsen 256
 * inputs there, 32 on the CPU. All layers on the GPU, then the upper half. */
static void check_near(bool is_float, bool is_kv_int8)
{
    const char *const *names;
    size_t count = model_run_tiny(&names);
    for (size_t i = 0; i < count; i++) {
        char path[128];
        struct truth t, near;
        double most = KL_FLOAT;
        if (is_float == (strstr(names[i], "-mixed") != NULL))
            continue;
        snprintf(path, sizeof path, "build/tiny/%s.gguf", names[i]);
        struct model_run_options o = {.backend = "cpu", .threads = 4,
                                      .act = is_float ? ACT_INT8 : ACT_F32};
        t.logits = run(path, &o, &t);
        o.act = ACT_INT8;
        o.is_kv_int8 = is_kv_int8;
        if (!is_float) {
            near.logits = run(path, &o, &near);
            most = 2 * distance_of(&t, near.logits).kl;
            free(near.logits);
        }
        o.backend = "cuda";
        for (o.upper = 0; o.upper < t.layers; o.upper += (t.layers + 1) / 2)
            compare(names[i], &t, &o, most, is_float ? COUNT : 0);
        free(t.logits);
    }
}

static void test_models_of_floats_say_what_they_say_on_the_cpu(void **state)
{
    (void)state;
    check_near(true, false);
}

static void test_quantised_models_are_near_the_cpu(void **state)
{
    (void)state;
    check_near(false, false);
}

static void test_quantised_models_with_pages_of_int8_are_near_the_cpu(void **state)
{
    (void)state;
    check_near(false, true);
}

static void check_company(bool is_kv_int8)
{
    const char *const *names;
    size_t count = model_run_tiny(&names);
    for (size_t i = 0; i < count; i++) {
        char path[128];
        snprintf(path, sizeof path, "build/tiny/%s.gguf", names[i]);
        struct company c = {.path = path, .backend = "cuda", .act = ACT_INT8,
                            .is_kv_int8 = is_kv_int8, .is_one_thread = true,
                            .count = COMPANY_SEQS};
        company_check(&c);
    }
}

static void test_a_token_has_the_same_bits_in_any_company_on_the_gpu(void **state)
{
    (void)state;
    check_company(false);
}

static void test_a_token_has_the_same_bits_over_pages_of_int8_on_the_gpu(void **state)
{
    (void)state;
    check_company(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_of_floats_say_what_they_say_on_the_cpu),
        cmocka_unit_test(test_quantised_models_are_near_the_cpu),
        cmocka_unit_test(test_quantised_models_with_pages_of_int8_are_near_the_cpu),
        cmocka_unit_test(test_a_token_has_the_same_bits_in_any_company_on_the_gpu),
        cmocka_unit_test(test_a_token_has_the_same_bits_over_pages_of_int8_on_the_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
