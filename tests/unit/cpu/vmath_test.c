/* vmath: its functions stay within the errors their comments state; sums keep their order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/vmath.h"

static double gelu_tanh(double x)
{
    return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double gelu_erf(double x) { return 0.5 * x * erfc(-x / sqrt(2.0)); }
static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
static double silu(double x) { return x * sigmoid(x); }
static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static float sin_of(float x) { return vmath_sincos(x).sin; }
static float cos_of(float x) { return vmath_sincos(x).cos; }

/* Error of f at x in units of the last place of the result, or over `least` where that is more. */
static double error_at(float (*f)(float), double (*truth)(double), float x, double least)
{
    double want = truth((double)x), got = (double)f(x);
    double ulp = exp2(floor(log2(fabs(want))) - 23);
    if (!(ulp > least))
        ulp = least;
    return fabs(got - want) / ulp;
}

static void test_functions_stay_within_their_stated_error(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        float (*f)(float);
        double (*truth)(double);
        float low, high;
        double ulp_max, least; /* least: absolute size that counts as one ulp */
    } cases[] = {
        {"exp", vmath_exp, exp, -87.3f, 88.7f, 1.1, 0},
        {"log", vmath_log, log, 1e-30f, 4.0f, 1.1, 0},
        {"log", vmath_log, log, 0.9f, 1.1f, 1.1, 0},
        {"log", vmath_log, log, 1.0f, 3e38f, 1.1, 0},
        {"log1p", vmath_log1p, log1p, 0.0f, 3.0f, 2, 0},
        {"tanh", vmath_tanh, tanh, -10.0f, 10.0f, 2, 0},
        {"erf", vmath_erf, erf, -6.0f, 6.0f, 1, 1.2e-7},
        {"sigmoid", vmath_sigmoid, sigmoid, -87.0f, 40.0f, 2.5, 0},
        {"silu", vmath_silu, silu, -80.0f, 80.0f, 2.5, 0},
        {"gelu_tanh", vmath_gelu_tanh, gelu_tanh, -10.0f, 10.0f, 3, 2e-7},
        {"gelu_erf", vmath_gelu_erf, gelu_erf, -10.0f, 10.0f, 2, 3e-7},
        {"softplus", vmath_softplus, softplus, -80.0f, 80.0f, 3, 0},
        {"sin", sin_of, sin, -1e6f, 1e6f, 0.51, 1e-7},
        {"cos", cos_of, cos, -1e6f, 1e6f, 0.51, 1e-7},
        {"sin", sin_of, sin, -8.0f, 8.0f, 0.51, 6e-9},
        {"cos", cos_of, cos, -8.0f, 8.0f, 0.51, 6e-9},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        double worst = 0;
        float where = 0;
        for (int k = 0; k <= 200000; k++) {
            double t = k / 200000.0;
            float x = (float)((double)cases[i].low * (1 - t) + (double)cases[i].high * t);
            double err = error_at(cases[i].f, cases[i].truth, x, cases[i].least);
            if (!(err <= worst)) {
                worst = err;
                where = x;
            }
        }
        print_message("%-10s [%g, %g] worst %.3f at %.9g\n", cases[i].name, (double)cases[i].low,
                      (double)cases[i].high, worst, (double)where);
        assert_true(worst <= cases[i].ulp_max);
    }
}

static void test_special_values_give_what_ieee_says(void **state)
{
    (void)state;
    assert_true(vmath_exp(-INFINITY) == 0.0f && vmath_exp(INFINITY) == INFINITY);
    assert_true(vmath_exp(-87.4f) == 0.0f && vmath_exp(88.73f) == INFINITY);
    assert_true(vmath_exp(88.7227f) < INFINITY && vmath_exp(0.0f) == 1.0f);
    assert_true(vmath_log(0.0f) == -INFINITY && vmath_log(INFINITY) == INFINITY);
    assert_true(isnan(vmath_log(-1.0f)) && vmath_log(1.0f) == 0.0f);
    assert_true(vmath_tanh(INFINITY) == 1.0f && vmath_tanh(-INFINITY) == -1.0f);
    assert_true(vmath_erf(-INFINITY) == -1.0f && vmath_sigmoid(-INFINITY) == 0.0f);
    assert_true(vmath_sincos(0.0f).sin == 0.0f && vmath_sincos(0.0f).cos == 1.0f);
    float (*const all[])(float) = {vmath_exp,     vmath_log,       vmath_log1p,    vmath_tanh,
                                   vmath_erf,     vmath_sigmoid,   vmath_silu,     vmath_gelu_tanh,
                                   vmath_gelu_erf, vmath_softplus};
    for (size_t i = 0; i < countof(all); i++)
        assert_true(isnan(all[i](NAN)));
}

static void test_sums_use_16_lanes_and_one_tree(void **state)
{
    (void)state;
    float x[37], lane[16] = {0};
    for (int i = 0; i < 37; i++)
        x[i] = (float)(1 << (i % 23)) * (i % 3 ? 1.0f : -1.37f) + 1e-3f * (float)i;
    for (int i = 0; i < 37; i++)
        lane[i & 15] += x[i];
    for (int step = 8; step; step /= 2)
        for (int i = 0; i < step; i++)
            lane[i] += lane[i + step];
    float sum = vmath_sum(x, 37);
    assert_memory_equal(&sum, lane, sizeof sum);
    float ones[37];
    for (int i = 0; i < 37; i++)
        ones[i] = 1.0f;
    float dot = vmath_dot(x, ones, 37);
    assert_memory_equal(&dot, &sum, sizeof dot);
    assert_true(vmath_sum(x, 0) == 0.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions_stay_within_their_stated_error),
        cmocka_unit_test(test_special_values_give_what_ieee_says),
        cmocka_unit_test(test_sums_use_16_lanes_and_one_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
