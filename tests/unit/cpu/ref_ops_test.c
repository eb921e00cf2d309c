/* ref_ops: each row op against its formula in double, on dense views and on views with gaps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/cpu_kernels.h"
#include "cpu/vmath.h"
#include "tensor/sample.h"

#define ROWS 3u
#define STRIDE 200u /* floats from row to row */

static struct cpu_kernels kernels;
static float data_a[ROWS * STRIDE], data_b[ROWS * STRIDE], out[ROWS * STRIDE];

static int set_up(void **state)
{
    (void)state;
    cpu_kernels_init(&kernels, CPU_LEVEL_REF, false);
    for (uint32_t i = 0; i < ROWS * STRIDE; i++) {
        data_a[i] = 6.0f * sample_uniform(1, i, 0) - 3.0f;
        data_b[i] = 6.0f * sample_uniform(2, i, 0) - 3.0f;
    }
    return 0;
}

/* 48 columns: dense, or in 4 groups of 12, 40 apart. */
static struct cpu_view view_of(const float *p, bool has_gaps)
{
    return has_gaps ? (struct cpu_view){p, STRIDE, 40, 12, 4}
                    : (struct cpu_view){p, STRIDE, 48, 48, 1};
}

static double at(const struct cpu_view *v, uint32_t r, uint32_t c)
{
    return (double)v->p[r * v->row + c / v->width * v->group + c % v->width];
}

static void is_near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
        fail_msg("%s: %.9g, not %.9g", what, got, want);
}

static void test_rms_norm_divides_by_the_root_of_the_mean_square_of_each_group(void **state)
{
    (void)state;
    float w[48];
    for (int i = 0; i < 48; i++)
        w[i] = 0.5f + (float)i / 48;
    for (int gaps = 0; gaps < 2; gaps++)
        for (uint32_t groups = 1; groups <= 8; groups *= 2) {
            if (gaps && groups < 4)
                continue;
            struct cpu_view x = view_of(data_a, gaps);
            struct norm_args a = {x, out, groups == 8 ? NULL : w, NULL, ROWS, groups, 1e-3f};
            kernels.rms_norm(&a);
            uint32_t m = 48 / groups;
            for (uint32_t r = 0; r < ROWS; r++)
                for (uint32_t c = 0; c < 48; c++) {
                    double sum = 0;
                    for (uint32_t i = 0; i < m; i++)
                        sum += at(&x, r, c / m * m + i) * at(&x, r, c / m * m + i);
                    double want = at(&x, r, c) / sqrt(sum / m + 1e-3);
                    want *= groups == 8 ? 1.0 : (double)w[c % m];
                    is_near((double)out[r * 48 + c], want, 1e-6, "rms_norm");
                }
        }
}

static void test_layer_norm_takes_away_the_mean(void **state)
{
    (void)state;
    for (int gaps = 0; gaps < 2; gaps++) {
        struct cpu_view x = view_of(data_a, gaps);
        struct norm_args a = {x, out, data_b, data_b + 48, ROWS, 1, 1e-5f};
        kernels.layer_norm(&a);
        for (uint32_t r = 0; r < ROWS; r++) {
            double mean = 0, var = 0;
            for (uint32_t c = 0; c < 48; c++)
                mean += at(&x, r, c) / 48;
            for (uint32_t c = 0; c < 48; c++)
                var += (at(&x, r, c) - mean) * (at(&x, r, c) - mean) / 48;
            for (uint32_t c = 0; c < 48; c++) {
                double want = (at(&x, r, c) - mean) / sqrt(var + 1e-5) * (double)data_b[c] +
                              (double)data_b[48 + c];
                is_near((double)out[r * 48 + c], want, 2e-6, "layer_norm");
            }
        }
    }
}

static void test_add_rms_norm_is_add_then_rms_norm_bit_by_bit(void **state)
{
    (void)state;
    float sum[ROWS * 48], norm[ROWS * 48], sum2[ROWS * 48], norm2[ROWS * 48];
    struct cpu_view x = view_of(data_a, true), y = view_of(data_b, false);
    struct add_norm_args f = {x, y, sum, norm, data_b, ROWS, 1e-6f};
    kernels.add_rms_norm(&f);
    struct binary_args a = {.a = x, .b = y, .out = sum2, .rows = ROWS};
    kernels.add(&a);
    struct norm_args n = {{sum2, 48, 48, 48, 1}, norm2, data_b, NULL, ROWS, 1, 1e-6f};
    kernels.rms_norm(&n);
    assert_memory_equal(sum, sum2, sizeof sum);
    assert_memory_equal(norm, norm2, sizeof norm);
}

static double act_truth(enum op_act kind, double x)
{
    switch (kind) {
    case OP_ACT_SILU:
        return x / (1 + exp(-x));
    case OP_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x)));
    case OP_ACT_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    case OP_ACT_RELU:
        return x > 0 ? x : 0;
    case OP_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case OP_ACT_TANH:
        return tanh(x);
    case OP_ACT_SOFTPLUS:
        return log1p(exp(x));
    case OP_ACT_EXP:
        return exp(x);
    case OP_ACT_COUNT:
        break;
    }
    fail_msg("no kind %d", (int)kind);
    return 0;
}

static void test_elementwise_ops_follow_their_formulas(void **state)
{
    (void)state;
    for (int gaps = 0; gaps < 2; gaps++) {
        struct cpu_view x = view_of(data_a, gaps);
        for (int kind = 0; kind < OP_ACT_COUNT; kind++) {
            struct act_args a = {.x = x, .out = out, .rows = ROWS, .kind = (enum op_act)kind};
            kernels.act(&a);
            for (uint32_t i = 0; i < ROWS * 48; i++)
                is_near((double)out[i], act_truth((enum op_act)kind, at(&x, i / 48, i % 48)),
                        2e-6, "act");
        }
        struct act_args a = {.x = x, .out = out, .rows = ROWS, .number = 2.5f};
        kernels.scale(&a);
        for (uint32_t i = 0; i < ROWS * 48; i++)
            is_near((double)out[i], 2.5 * at(&x, i / 48, i % 48), 1e-6, "scale");
        kernels.softcap(&a);
        for (uint32_t i = 0; i < ROWS * 48; i++)
            is_near((double)out[i], 2.5 * tanh(at(&x, i / 48, i % 48) / 2.5), 1e-6, "softcap");
        kernels.copy(&a);
        for (uint32_t i = 0; i < ROWS * 48; i++)
            assert_true((double)out[i] == at(&x, i / 48, i % 48));
    }
}

static void test_add_and_mul_take_rows_weights_and_single_numbers(void **state)
{
    (void)state;
    for (int gaps = 0; gaps < 2; gaps++)
        for (int how = 0; how < 4; how++) {
            struct cpu_view x = view_of(data_a, gaps), y = view_of(data_b, !gaps);
            struct binary_args a = {.a = x, .out = out, .rows = ROWS};
            if (how == 0)
                a.b = y;
            if (how == 1)
                a.b = (struct cpu_view){data_b, STRIDE, 1, 1, 1};
            if (how >= 2) {
                a.weight = data_b;
                a.weight_count = how == 2 ? 48 : 1;
            }
            for (int op = 0; op < 2; op++) {
                (op ? kernels.mul : kernels.add)(&a);
                for (uint32_t i = 0; i < ROWS * 48; i++) {
                    double second = how == 0   ? at(&y, i / 48, i % 48)
                                    : how == 1 ? (double)data_b[i / 48 * STRIDE]
                                    : how == 2 ? (double)data_b[i % 48]
                                               : (double)data_b[0];
                    double first = at(&x, i / 48, i % 48);
                    is_near((double)out[i], op ? first * second : first + second, 1e-6, "binary");
                }
            }
        }
}

static void test_glu_clamps_and_shifts_as_gpt_oss_wants_it(void **state)
{
    (void)state;
    static const struct op_glu kinds[] = {
        {.kind = OP_ACT_SILU, .alpha = 1},
        {.kind = OP_ACT_GELU_TANH, .alpha = 1},
        {.kind = OP_ACT_SILU, .alpha = 1.702f, .up_add = 1, .clamp_gate = 1.5f, .clamp_up = 1},
    };
    struct cpu_view gate = view_of(data_a, true), up = view_of(data_b, false);
    for (size_t k = 0; k < countof(kinds); k++) {
        struct glu_args a = {gate, up, out, ROWS, &kinds[k]};
        kernels.glu(&a);
        for (uint32_t i = 0; i < ROWS * 48; i++) {
            double g = at(&gate, i / 48, i % 48), u = at(&up, i / 48, i % 48);
            if (k == 2) {
                g = fmin(g, 1.5);
                u = fmax(-1, fmin(1, u));
            }
            double want = k == 1 ? act_truth(OP_ACT_GELU_TANH, g)
                                 : g / (1 + exp(-(double)kinds[k].alpha * g));
            is_near((double)out[i], want * (u + (double)kinds[k].up_add), 3e-6, "glu");
        }
    }
}

/* Turning keeps the length of a pair, and the product of two turned vectors depends on the distance
 * of their positions alone. */
static void test_rope_turns_the_right_pairs_by_position(void **state)
{
    (void)state;
    const float freqs[] = {1.0f, 0.3f, 0.01f};
    const int32_t pos[ROWS] = {0, 5, 100000};
    float table[ROWS * 3][2];
    struct rope_table_args t = {table, freqs, pos, ROWS, 3, 1.25f};
    kernels.rope_table(&t);
    for (int kind = 0; kind < 2; kind++)
        for (int gaps = 0; gaps < 2; gaps++) {
            struct op_rope op = {.kind = kind ? OP_ROPE_NEOX : OP_ROPE_NORM, .heads = 4,
                                 .head_dim = 12, .n_rot = 6, .first = 2};
            struct cpu_view x = view_of(data_a, gaps);
            struct rope_args a = {x, out, (const float(*)[2])table, &op, ROWS};
            kernels.rope(&a);
            for (uint32_t r = 0; r < ROWS; r++)
                for (uint32_t c = 0; c < 48; c++) {
                    uint32_t j = c % 12, head = c - j;
                    double want = at(&x, r, c);
                    if (j >= 2 && j < 8) {
                        uint32_t pair = kind ? (j - 2) % 3 : (j - 2) / 2;
                        bool is_second = kind ? j - 2 >= 3 : (j - 2) % 2;
                        uint32_t other = kind ? (is_second ? j - 3 : j + 3)
                                              : (is_second ? j - 1 : j + 1);
                        double angle = (double)((float)pos[r] * freqs[pair]);
                        double s = (is_second ? 1 : -1) * sin(angle);
                        want = 1.25 * (want * cos(angle) + at(&x, r, head + other) * s);
                    }
                    is_near((double)out[r * 48 + c], want, 1e-6, "rope");
                }
        }
}

struct routed {
    int32_t ids[8];
    float w[8];
};

static struct routed route(const float *logits, uint32_t experts, const float *bias,
                           struct op_route op)
{
    struct routed r;
    struct route_args a = {{logits, experts, experts, experts, 1}, bias, r.ids, r.w, &op, 1};
    kernels.moe_route(&a);
    return r;
}

static void test_routing_chooses_weighs_and_breaks_ties_by_the_lower_id(void **state)
{
    (void)state;
    const float x[8] = {1, 3, -2, 3, 0.5f, 2, -1, 0};
    double sum = 0;
    for (int i = 0; i < 8; i++)
        sum += exp((double)x[i]);
    struct routed r = route(x, 8, NULL, (struct op_route){OP_GATE_SOFTMAX, 3, 1, 1, false, 1});
    assert_true(r.ids[0] == 1 && r.ids[1] == 3 && r.ids[2] == 5);
    is_near((double)r.w[0], exp(3) / sum, 1e-6, "softmax");
    r = route(x, 8, NULL, (struct op_route){OP_GATE_SOFTMAX, 3, 1, 1, true, 2});
    is_near((double)r.w[2], 2 * exp(2) / (2 * exp(3) + exp(2)), 1e-6, "normed, scaled");
    r = route(x, 8, NULL, (struct op_route){OP_GATE_CHOSEN, 2, 1, 1, false, 1});
    is_near((double)r.w[0], 0.5, 1e-6, "softmax of the chosen");
    const float bias[8] = {0, 0, 10, 0, 0, 0, 0, 0};
    r = route(x, 8, bias, (struct op_route){OP_GATE_SIGMOID, 2, 1, 1, false, 1});
    assert_true(r.ids[0] == 2 && r.ids[1] == 1);
    is_near((double)r.w[0], 1 / (1 + exp(2)), 1e-6, "bias only chooses");
    r = route(x, 8, NULL, (struct op_route){OP_GATE_SQRT_SOFTPLUS, 1, 1, 1, false, 1});
    is_near((double)r.w[0], sqrt(log1p(exp(3))), 1e-6, "sqrt softplus");
    /* Groups {1,3} {-2,3} {0.5,2} {-1,0}: sums of two 4, 1, 2.5, -1. */
    r = route(x, 8, NULL, (struct op_route){OP_GATE_CHOSEN, 3, 4, 2, false, 1});
    assert_true(r.ids[0] == 1 && r.ids[1] == 5 && r.ids[2] == 0);
    const float broken[4] = {NAN, NAN, NAN, 1};
    r = route(broken, 4, NULL, (struct op_route){OP_GATE_CHOSEN, 4, 1, 1, false, 1});
    assert_true(r.ids[0] == 3 && r.ids[1] == 0 && r.ids[2] == 1 && r.ids[3] == 2);
}

static void test_expert_results_add_in_rank_order(void **state)
{
    (void)state;
    struct cpu_view y = view_of(data_a, false), w = {data_b, STRIDE, 4, 4, 1};
    struct moe_sum_args a = {y, w, out, ROWS, 4};
    kernels.moe_sum(&a);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t c = 0; c < 12; c++) {
            float sum = data_b[r * STRIDE] * data_a[r * STRIDE + c];
            for (uint32_t k = 1; k < 4; k++)
                sum = fmaf(data_b[r * STRIDE + k], data_a[r * STRIDE + k * 12 + c], sum);
            assert_memory_equal(&out[r * 12 + c], &sum, sizeof sum);
        }
}

static void test_pooling_takes_mean_first_or_last_and_unit_length(void **state)
{
    (void)state;
    struct cpu_view x = view_of(data_a, true);
    for (int kind = 0; kind < 3; kind++)
        for (int l2 = 0; l2 < 2; l2++) {
            struct op_pooling op = {(enum op_pool)kind, l2};
            struct pool_args a = {x, out, &op, ROWS};
            kernels.pool(&a);
            double want[48], length = 0;
            for (uint32_t c = 0; c < 48; c++) {
                want[c] = kind == OP_POOL_MEAN ? (at(&x, 0, c) + at(&x, 1, c) + at(&x, 2, c)) / 3
                                               : at(&x, kind == OP_POOL_LAST ? 2 : 0, c);
                length += want[c] * want[c];
            }
            for (uint32_t c = 0; c < 48; c++)
                is_near((double)out[c], want[c] / (l2 ? sqrt(length) : 1), 1e-6, "pool");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rms_norm_divides_by_the_root_of_the_mean_square_of_each_group),
        cmocka_unit_test(test_layer_norm_takes_away_the_mean),
        cmocka_unit_test(test_add_rms_norm_is_add_then_rms_norm_bit_by_bit),
        cmocka_unit_test(test_elementwise_ops_follow_their_formulas),
        cmocka_unit_test(test_add_and_mul_take_rows_weights_and_single_numbers),
        cmocka_unit_test(test_glu_clamps_and_shifts_as_gpt_oss_wants_it),
        cmocka_unit_test(test_rope_turns_the_right_pairs_by_position),
        cmocka_unit_test(test_routing_chooses_weighs_and_breaks_ties_by_the_lower_id),
        cmocka_unit_test(test_expert_results_add_in_rank_order),
        cmocka_unit_test(test_pooling_takes_mean_first_or_last_and_unit_length),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
