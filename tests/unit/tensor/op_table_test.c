/* op_table: complete rows; each rule takes the right shape and names the wrong one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/backend.h"
#include "tensor/plan.h"

struct world {
    struct arena arena;
    struct plan p;
    struct view h, out; /* [N,32], [O,32] */
    uint16_t matrix, experts, vector, one, table; /* [32,32] 4x[32,32] [32] [1] [4,32] */
};

static void world_init(struct world *w)
{
    arena_init(&w->arena, 1u << 20);
    plan_init(&w->p, &w->arena, PLAN_KIND_MAIN);
    w->matrix = plan_weight(&w->p, "matrix", plan_matrix(32, 32));
    w->experts = plan_weight(&w->p, "experts", plan_experts(4, 32, 32));
    w->vector = plan_weight(&w->p, "vector", plan_vector(32));
    w->one = plan_weight(&w->p, "one", plan_vector(1));
    w->table = plan_weight(&w->p, "table", (struct weight_want){WEIGHT_KIND_VECTOR, 4, 32, 1});
    w->h = op_embed(&w->p, w->matrix, (struct op_embed){OP_INDEX_TOKENS, 1});
    w->out = op_rows(&w->p, w->h);
    must(!w->p.has_failed);
}

static void test_every_kind_has_a_name_a_rule_and_an_expansion_if_it_is_fused(void **state)
{
    (void)state;
    for (size_t k = 0; k < OP_COUNT; k++) {
        const struct op_info *info = &op_table[k];
        assert_non_null(info->name);
        assert_non_null(info->check);
        assert_int_equal(info->is_fused, info->expand != NULL);
        assert_true(info->in_min <= info->in_max && info->in_max <= OP_IN_MAX);
        assert_true(info->weights_min <= info->weights_max && info->outs <= OP_OUT_MAX &&
                    info->weights_max <= OP_WEIGHT_MAX);
        for (size_t j = 0; j < k; j++)
            assert_string_not_equal(info->name, op_table[j].name);
    }
}

static void test_no_backend_lacks_a_plain_op(void **state)
{
    (void)state;
    assert_non_null(backend_table[0]);
    for (size_t b = 0; backend_table[b]; b++)
        for (size_t k = 0; k < OP_COUNT; k++)
            assert_true(op_table[k].is_fused || op_set_has(backend_table[b]->ops, k));
}

static const struct op_rope rope = {.kind = OP_ROPE_NORM, .heads = 4, .head_dim = 8, .n_rot = 8,
                                    .base = 1e4f, .freq_scale = 1, .mscale = 1};
static const struct op_kv kv = {4, 8, 8, 0};
static const struct op_attn attn = {.heads = 4, .kv_heads = 2, .dk = 8, .dv = 8, .scale = 0.5f};
static const struct op_glu silu = {.kind = OP_ACT_SILU, .alpha = 1};
static const struct op_route top2 = {OP_GATE_SOFTMAX, 2, 1, 1, true, 1};

/* good_all: a right use of every kind. bad_*: one that its rule must refuse. */

static void good_all(struct world *w)
{
    struct plan *p = &w->p;
    struct view h = w->h, half = op_slice(h, 0, 16);
    op_rms_norm(p, h, w->vector, 1e-5f, 1);
    op_rms_norm(p, op_groups(h, 0, 8, 16, 2), TENSOR_NONE, 1e-5f, 2);
    op_layer_norm(p, h, w->vector, w->vector, 1e-5f);
    op_matmul(p, h, w->matrix, w->vector, w->one);
    struct op_routed r = op_moe_route(p, op_slice(h, 0, 4), TENSOR_NONE, top2);
    struct op_expert_weights e = {w->experts, w->table, TENSOR_NONE};
    struct view y = op_moe_matmul(p, h, r.ids, e);
    y = op_moe_matmul(p, y, r.ids, e);
    op_moe_sum(p, y, r.w);
    op_act(p, h, OP_ACT_EXP);
    op_glu(p, half, op_slice(h, 16, 16), silu);
    op_add(p, h, h);
    op_mul(p, h, op_slice(h, 0, 1));
    op_add_weight(p, h, w->vector);
    op_mul_weight(p, h, w->one);
    op_scale(p, h, -1);
    op_softcap(p, h, 30);
    op_rope(p, h, TENSOR_NONE, rope);
    op_kv_write(p, 0, h, h, kv);
    op_attn(p, 0, h, TENSOR_NONE, attn);
    op_pool(p, h, (struct op_pooling){OP_POOL_MEAN, true});
    op_sample(p, w->out);
    op_top_k(p, w->out);
    op_add_rms_norm(p, h, h, w->vector, 1e-5f);
    struct op_qkv qkv = {h, h, h, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE};
    op_rope_qk(p, 1, qkv, (struct op_rope_qk){rope, kv, 1e-5f});
    op_matmul_glu(p, h, (struct op_gate_up){w->matrix, w->matrix, w->vector, w->vector}, silu);
    op_moe_glu(p, h, r.ids, (struct op_gate_up){w->experts, w->experts, w->table, w->table}, silu);
}

static void bad_norm_groups(struct world *w) { op_rms_norm(&w->p, w->h, TENSOR_NONE, 1, 5); }
static void bad_norm_zero(struct world *w) { op_rms_norm(&w->p, w->h, TENSOR_NONE, 1, 0); }
static void bad_norm_gap(struct world *w)
{
    op_rms_norm(&w->p, op_groups(w->h, 0, 6, 16, 2), TENSOR_NONE, 1, 3);
}
static void bad_norm_weight(struct world *w) { op_rms_norm(&w->p, w->h, w->vector, 1, 2); }
static void bad_view(struct world *w) { op_act(&w->p, op_slice(w->h, 20, 16), OP_ACT_SILU); }
static void bad_matmul_gap(struct world *w)
{
    op_matmul(&w->p, op_groups(w->h, 0, 8, 16, 2), w->matrix, TENSOR_NONE, TENSOR_NONE);
}
static void bad_matmul_width(struct world *w)
{
    op_matmul(&w->p, op_slice(w->h, 0, 16), w->matrix, TENSOR_NONE, TENSOR_NONE);
}
static void bad_matmul_stack(struct world *w)
{
    op_matmul(&w->p, w->h, w->experts, TENSOR_NONE, TENSOR_NONE);
}
static void bad_matmul_vector(struct world *w)
{
    op_matmul(&w->p, w->h, w->vector, TENSOR_NONE, TENSOR_NONE);
}
static void bad_route_k(struct world *w)
{
    struct op_route a = top2;
    a.k = 33;
    op_moe_route(&w->p, w->h, TENSOR_NONE, a);
}
static void bad_route_groups(struct world *w)
{
    struct op_route a = top2;
    a.groups = 3;
    op_moe_route(&w->p, w->h, TENSOR_NONE, a);
}
static void bad_route_used(struct world *w)
{
    struct op_route a = {OP_GATE_SOFTMAX, 9, 8, 2, true, 1}; /* 2 groups of 4 hold no 9 */
    op_moe_route(&w->p, w->h, TENSOR_NONE, a);
}
static void bad_moe_ids(struct world *w)
{
    struct op_expert_weights e = {w->experts, TENSOR_NONE, TENSOR_NONE};
    op_moe_matmul(&w->p, w->h, op_slice(w->h, 0, 2), e);
}
static void bad_moe_width(struct world *w)
{
    struct op_routed r = op_moe_route(&w->p, op_slice(w->h, 0, 4), TENSOR_NONE, top2);
    struct op_expert_weights e = {w->experts, TENSOR_NONE, TENSOR_NONE};
    op_moe_matmul(&w->p, op_slice(w->h, 0, 16), r.ids, e);
}
static void bad_glu_width(struct world *w)
{
    op_glu(&w->p, w->h, op_slice(w->h, 0, 16), silu);
}
static void bad_glu_alpha(struct world *w)
{
    struct op_glu a = {.kind = OP_ACT_RELU, .alpha = 2};
    op_glu(&w->p, w->h, w->h, a);
}
static void bad_add_width(struct world *w) { op_add(&w->p, w->h, op_slice(w->h, 0, 2)); }
static void bad_add_rows(struct world *w) { op_add(&w->p, w->h, w->out); }
static void bad_add_none(struct world *w) { op_add_weight(&w->p, w->h, TENSOR_NONE); }
static void bad_softcap(struct world *w) { op_softcap(&w->p, w->h, 0); }
static void bad_rope_odd(struct world *w)
{
    struct op_rope a = rope;
    a.n_rot = 7;
    op_rope(&w->p, w->h, TENSOR_NONE, a);
}
static void bad_rope_wide(struct world *w)
{
    struct op_rope a = rope;
    a.first = 2;
    op_rope(&w->p, w->h, TENSOR_NONE, a);
}
static void bad_rope_base(struct world *w)
{
    struct op_rope a = rope;
    a.base = NAN;
    op_rope(&w->p, w->h, TENSOR_NONE, a);
}
static void bad_kv_width(struct world *w)
{
    op_kv_write(&w->p, 0, w->h, op_slice(w->h, 0, 16), kv);
}
static void bad_kv_rows(struct world *w) { op_kv_write(&w->p, 0, w->out, w->out, kv); }
static void bad_attn_heads(struct world *w)
{
    struct op_attn a = attn;
    a.kv_heads = 3;
    op_attn(&w->p, 0, w->h, TENSOR_NONE, a);
}
static void bad_attn_full(struct world *w)
{
    struct op_attn a = attn;
    a.mask = OP_MASK_FULL;
    a.window = 8;
    op_attn(&w->p, 0, w->h, TENSOR_NONE, a);
}
static void bad_attn_sinks(struct world *w) { op_attn(&w->p, 0, w->h, w->vector, attn); }
static void bad_sample_rows(struct world *w) { op_sample(&w->p, w->h); }
static void bad_sample_part(struct world *w) { op_sample(&w->p, op_slice(w->out, 0, 16)); }
static void bad_pool_rows(struct world *w)
{
    op_pool(&w->p, w->out, (struct op_pooling){OP_POOL_LAST, false});
}
static void bad_rows_twice(struct world *w) { op_rows(&w->p, w->out); }

static void test_right_shapes_of_every_kind_are_taken(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    good_all(&w);
    if (w.p.has_failed)
        fail_msg("%s", w.p.err.text);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < w.p.ops_count; i++)
        seen |= OP_BIT(w.p.ops[i].kind);
    assert_int_equal(seen, OP_SET_ALL);
    arena_deinit(&w.arena);
}

static void test_wrong_shapes_are_refused_by_the_name_of_the_op(void **state)
{
    (void)state;
    static const struct {
        void (*add)(struct world *w);
        const char *want;
    } cases[] = {
        {bad_norm_groups, "rms_norm: columns cannot be divided into groups"},
        {bad_norm_zero, "rms_norm: columns cannot be divided into groups"},
        {bad_norm_gap, "rms_norm: a group lies across a gap"},
        {bad_norm_weight, "length of a vector of rms_norm is 32, needed is 16"},
        {bad_view, "input 0 of act reads to column 36, the value has 32"},
        {bad_matmul_gap, "matmul: gaps in input 0"},
        {bad_matmul_width, "input width of matmul is 16, needed is 32"},
        {bad_matmul_stack, "matmul: more than one matrix: 4"},
        {bad_matmul_vector, "matmul: no matrix is weight 0"},
        {bad_route_k, "moe_route: experts per token 33"},
        {bad_route_groups, "moe_route: groups of experts 3"},
        {bad_route_used, "moe_route: groups used 2"},
        {bad_moe_ids, "moe_matmul: no ids in input 1"},
        {bad_moe_width, "moe_matmul: input is neither one row nor one per rank"},
        {bad_glu_width, "width of up of glu is 16, needed is 32"},
        {bad_glu_alpha, "glu: alpha does not fit kind"},
        {bad_add_width, "second width of add is 2, needed is 32"},
        {bad_add_rows, "inputs of add stand for different rows"},
        {bad_add_none, "add: one second operand is needed"},
        {bad_softcap, "softcap: the cap is not above 0"},
        {bad_rope_odd, "rope: cannot rotate so many columns of a head: 7"},
        {bad_rope_wide, "rope: cannot rotate so many columns of a head: 8"},
        {bad_rope_base, "rope: base, scale or magnitude"},
        {bad_kv_width, "kv_write: heads do not fill the values"},
        {bad_kv_rows, "kv_write: other rows in input 0"},
        {bad_attn_heads, "attn: query heads cannot be shared out"},
        {bad_attn_full, "attn: a full mask takes no window, it is 8"},
        {bad_attn_sinks, "length of a vector of attn is 32, needed is 4"},
        {bad_sample_rows, "sample: other rows in input 0"},
        {bad_sample_part, "width of sample is 16, needed is 32"},
        {bad_pool_rows, "pool: rows of input and output are not N and S"},
        {bad_rows_twice, "rows: rows of input and output are not N and O"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct world w;
        world_init(&w);
        uint32_t before = w.p.ops_count;
        cases[i].add(&w);
        if (!w.p.has_failed)
            fail_msg("case %zu was taken: %s", i, cases[i].want);
        if (!strstr(w.p.err.text, cases[i].want))
            fail_msg("case %zu: \"%s\", needed is \"%s\"", i, w.p.err.text, cases[i].want);
        assert_true(w.p.ops_count <= before + 1);
        arena_deinit(&w.arena);
    }
}

/* The truth: the formulas of docs/models/gptoss.md in double, worked out once by hand. */
static void test_rope_frequencies_follow_base_factor_and_yarn(void **state)
{
    (void)state;
    float f[32], divided[32];
    struct op_rope r = {.n_rot = 64, .base = 150000, .freq_scale = 1, .mscale = 1};
    op_rope_freqs(&r, NULL, f);
    assert_true(f[0] == 1.0f && fabs((double)f[1] - pow(150000, -2.0 / 64)) < 1e-7);
    r.freq_scale = 0.125f;
    op_rope_freqs(&r, NULL, f);
    assert_true(f[0] == 0.125f);
    float divisors[32];
    for (int i = 0; i < 32; i++)
        divisors[i] = (float)(i + 1);
    op_rope_freqs(&r, divisors, divided);
    for (int i = 0; i < 32; i++)
        assert_true(fabs((double)(divided[i] * divisors[i] / f[i]) - 1) < 1e-6);
    r = (struct op_rope){.n_rot = 64, .base = 150000, .freq_scale = 1 / 32.0f, .ext = 1,
                         .low = 8.0f, .high = 18.0f, .mscale = 1};
    op_rope_freqs(&r, NULL, f);
    for (int i = 0; i < 32; i++) {
        double plain = pow(150000, -i / 32.0);
        double ramp = i <= 8 ? 0 : i >= 18 ? 1 : (i - 8) / 10.0;
        double want = plain * (1 - ramp) + plain / 32 * ramp;
        assert_true(fabs((double)f[i] / want - 1) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_has_a_name_a_rule_and_an_expansion_if_it_is_fused),
        cmocka_unit_test(test_no_backend_lacks_a_plain_op),
        cmocka_unit_test(test_right_shapes_of_every_kind_are_taken),
        cmocka_unit_test(test_wrong_shapes_are_refused_by_the_name_of_the_op),
        cmocka_unit_test(test_rope_frequencies_follow_base_factor_and_yarn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
