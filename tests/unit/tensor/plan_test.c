/* plan: what fits is taken, what does not is named; lifetimes, slots, page layout, expansion. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/plan.h"

struct fixture {
    struct arena arena;
    struct plan plan;
    struct err err;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena, 4u << 20);
    plan_init(&f->plan, &f->arena, PLAN_KIND_MAIN);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    arena_deinit(&f->arena);
    free(f);
    return 0;
}

static const struct op_rope rope = {.kind = OP_ROPE_NEOX, .heads = 4, .head_dim = 8, .n_rot = 8,
                                    .base = 1e4f, .freq_scale = 1, .mscale = 1};
static const struct op_kv kv = {2, 8, 8, 0};
static const struct op_attn attn = {.heads = 4, .kv_heads = 2, .dk = 8, .dv = 8, .scale = 0.5f};
static const struct op_glu silu = {.kind = OP_ACT_SILU, .alpha = 1};

/* One layer of 4 heads of 8, fused ops; window 0 or not. Returns the residual stream. */
static struct view add_layer(struct plan *p, uint16_t layer, struct view h, uint32_t window)
{
    uint16_t norm = plan_layer_weight(p, layer, "norm", plan_vector(32));
    struct view x = op_rms_norm(p, h, norm, 1e-5f, 1);
    uint16_t wq = plan_layer_weight(p, layer, "q", plan_matrix(32, 32));
    uint16_t wk = plan_layer_weight(p, layer, "k", plan_matrix(16, 32));
    uint16_t head_norm = plan_layer_weight(p, layer, "head_norm", plan_vector(8));
    struct op_qkv qkv = {op_matmul(p, x, wq, TENSOR_NONE, TENSOR_NONE),
                         op_matmul(p, x, wk, TENSOR_NONE, TENSOR_NONE),
                         op_matmul(p, x, wk, TENSOR_NONE, TENSOR_NONE), head_norm, head_norm,
                         TENSOR_NONE};
    struct op_rope_qk a = {.rope = rope, .kv = kv, .eps = 1e-5f};
    a.kv.window = window;
    struct op_attn at = attn;
    at.window = window;
    struct view o = op_attn(p, layer, op_rope_qk(p, layer, qkv, a), TENSOR_NONE, at);
    struct op_sum_norm s = op_add_rms_norm(p, h, o, norm, 1e-5f);
    uint16_t up = plan_layer_weight(p, layer, "up", plan_matrix(48, 32));
    uint16_t down = plan_layer_weight(p, layer, "down", plan_matrix(32, 48));
    struct op_gate_up gate_up = {up, up, TENSOR_NONE, TENSOR_NONE};
    struct view y = op_matmul_glu(p, s.norm, gate_up, silu);
    return op_add(p, s.sum, op_matmul(p, y, down, TENSOR_NONE, TENSOR_NONE));
}

static struct view add_embed(struct plan *p)
{
    uint16_t w = plan_weight(p, "embed", plan_matrix(100, 32));
    return op_embed(p, w, (struct op_embed){OP_INDEX_TOKENS, 1});
}

static void add_model(struct plan *p, uint32_t layers)
{
    struct view h = add_embed(p);
    for (uint32_t i = 0; i < layers; i++)
        h = add_layer(p, (uint16_t)i, h, i % 3 == 1 ? 64 : 0);
    uint16_t w = plan_weight(p, "embed", plan_matrix(100, 32));
    struct view logits = op_matmul(p, op_rows(p, h), w, TENSOR_NONE, TENSOR_NONE);
    op_sample(p, logits);
    op_top_k(p, logits);
}

static void must_be_good(struct fixture *f, bool is_good)
{
    if (!is_good)
        fail_msg("%s", f->err.text);
}

static void test_values_that_live_at_the_same_time_have_different_slots(void **state)
{
    struct fixture *f = *state;
    add_model(&f->plan, 5);
    must_be_good(f, plan_finish(&f->plan, &f->err));
    const struct plan *p = &f->plan;
    for (uint32_t a = 0; a < p->values_count; a++)
        for (uint32_t b = 0; b < a; b++) {
            const struct plan_value *x = &p->values[a], *y = &p->values[b];
            bool is_apart = x->op_first > y->op_last || y->op_first > x->op_last;
            assert_true(x->slot != y->slot || is_apart);
        }
    for (uint32_t a = 0; a < p->values_count; a++) {
        const struct plan_slot *s = &p->slots[p->values[a].slot];
        assert_true(s->rows == p->values[a].rows && s->width >= p->values[a].width);
    }
    assert_true(p->slots_count <= 10); /* does not grow with the layers */
    assert_int_equal(p->values[p->logits].op_last, p->ops_count);
    struct step_limits m = {.rows_max = 7, .outs_max = 3, .seqs_max = 2};
    size_t size = 0;
    for (uint32_t s = 0; s < p->slots_count; s++)
        size += base_align((size_t)p->slots[s].width * plan_rows_max(p->slots[s].rows, &m) * 4, 64);
    assert_int_equal(plan_scratch_size(p, &m), size);
}

static void test_layers_share_a_page_group_by_window_and_group_0_has_none(void **state)
{
    struct fixture *f = *state;
    struct kv_layout *l = malloc(sizeof *l);
    struct view h = add_embed(&f->plan);
    static const uint32_t windows[] = {64, 0, 64, 128, 0};
    for (uint16_t i = 0; i < countof(windows); i++)
        h = add_layer(&f->plan, i, h, windows[i]);
    must_be_good(f, plan_kv_layout(&f->plan, KV_TYPE_F16, l, &f->err));
    assert_int_equal(l->groups_count, 3);
    assert_int_equal(l->layers_count, 5);
    static const uint16_t group[] = {1, 0, 1, 2, 0}, index[] = {0, 0, 1, 0, 1};
    size_t size = 2 * (8 + 8) * KV_PAGE_TOKENS * 2; /* heads, K and V, tokens, f16 */
    for (uint16_t i = 0; i < countof(windows); i++) {
        assert_int_equal(l->window[group[i]], windows[i]);
        assert_int_equal(l->layers[i].group, group[i]);
        assert_int_equal(l->layers[i].index, index[i]);
        assert_int_equal(l->layers[i].offset, size * index[i]);
    }
    assert_int_equal(l->page_size[0], 2 * size);
    assert_int_equal(l->page_size[2], size);
    free(l);
}

static void test_a_layer_that_attends_otherwise_than_it_writes_is_refused(void **state)
{
    struct fixture *f = *state;
    struct kv_layout *l = malloc(sizeof *l);
    struct view h = add_embed(&f->plan);
    struct view k = op_slice(h, 0, 16);
    op_kv_write(&f->plan, 0, k, k, kv);
    struct op_attn other = attn;
    other.window = 9;
    op_attn(&f->plan, 0, h, TENSOR_NONE, other);
    must_be_good(f, plan_check(&f->plan, &f->err));
    assert_false(plan_kv_layout(&f->plan, KV_TYPE_F16, l, &f->err));
    assert_string_equal(f->err.text, "plan: layer 0 attends in another shape than it writes");
    op_kv_write(&f->plan, 0, k, k, kv);
    assert_false(plan_kv_layout(&f->plan, KV_TYPE_F16, l, &f->err));
    free(l);
}

static void test_an_expanded_plan_has_only_ops_of_the_set_and_the_same_answers(void **state)
{
    struct fixture *f = *state;
    add_model(&f->plan, 2);
    uint16_t logits = f->plan.logits;
    uint64_t fused = 0;
    for (size_t k = 0; k < OP_COUNT; k++)
        fused |= op_table[k].is_fused ? OP_BIT(k) : 0;
    struct op_set plain = {OP_SET_ALL & ~fused};
    uint32_t before = f->plan.ops_count;
    must_be_good(f, plan_expand(&f->plan, &plain, &f->err));
    assert_true(f->plan.ops_count > before && f->plan.logits == logits);
    for (uint32_t i = 0; i < f->plan.ops_count; i++)
        assert_false(op_table[f->plan.ops[i].kind].is_fused);
    must_be_good(f, plan_finish(&f->plan, &f->err));
}

static void test_a_plain_op_that_a_backend_lacks_is_named(void **state)
{
    struct fixture *f = *state;
    add_model(&f->plan, 1);
    struct op_set have = {OP_SET_ALL & ~OP_BIT(OP_ATTN)};
    assert_false(plan_expand(&f->plan, &have, &f->err));
    assert_int_equal(f->err.code, ERR_UNSUPPORTED);
    assert_string_equal(f->err.text, "plan: the backend has no 'attn'");
}

static void test_one_name_is_one_weight_of_one_shape(void **state)
{
    struct fixture *f = *state;
    struct plan *p = &f->plan;
    uint16_t a = plan_weight(p, "w", plan_matrix(4, 8));
    assert_int_equal(plan_weight(p, "w", plan_matrix(4, 8)), a);
    assert_int_equal(plan_weight(p, "w", plan_vector(8)), TENSOR_NONE);
    assert_false(plan_check(p, &f->err));
    assert_string_equal(f->err.text, "plan: weight 'w' is wanted in two shapes");
}

static void test_the_first_error_stays_and_later_calls_do_nothing(void **state)
{
    struct fixture *f = *state;
    struct plan *p = &f->plan;
    struct view h = add_embed(p);
    uint16_t w = plan_weight(p, "w", plan_matrix(4, 33));
    struct view y = op_matmul(p, h, w, TENSOR_NONE, TENSOR_NONE);
    op_sample(p, op_rows(p, op_add(p, y, h)));
    assert_int_equal(p->ops_count, 1);
    assert_false(plan_finish(p, &f->err));
    assert_string_equal(f->err.text,
                        "plan: input width of matmul is 32, needed is 33 (layer 0)");
}

static void test_memory_ends_in_a_sentence(void **state)
{
    struct fixture *f = *state;
    struct arena small;
    arena_init(&small, 20000);
    plan_init(&f->plan, &small, PLAN_KIND_MAIN);
    add_model(&f->plan, 50);
    assert_false(plan_finish(&f->plan, &f->err));
    assert_int_equal(f->err.code, ERR_LIMIT);
    arena_deinit(&small);
}

static void test_a_dump_has_a_line_per_op_with_shapes_and_parameters(void **state)
{
    struct fixture *f = *state;
    struct buf out;
    buf_init(&out, 1u << 16);
    struct view h = add_embed(&f->plan);
    struct view heads = op_groups(h, 0, 8, 16, 2);
    op_act(&f->plan, heads, OP_ACT_SILU);
    op_scale(&f->plan, op_slice(h, 8, 8), 2);
    plan_dump(&f->plan, &out);
    assert_string_equal(out.p, "   0  embed        embed[100,32] -> v0[N,32]  tokens\n"
                               "   1  act          v0[N,16]@0%16 -> v1[N,16]  silu\n"
                               "   2  scale        v0[N,8]@8 -> v2[N,8]  2\n");
    buf_deinit(&out);
}

static void test_a_plan_is_cut_before_the_first_op_of_a_layer(void **state)
{
    struct fixture *f = *state;
    const struct plan *p = &f->plan;
    struct plan lower, upper;
    add_model(&f->plan, 3);
    must_be_good(f, plan_finish(&f->plan, &f->err));
    for (uint32_t layer = 1; layer < 3; layer++) {
        plan_init(&lower, &f->arena, PLAN_KIND_MAIN);
        plan_init(&upper, &f->arena, PLAN_KIND_MAIN);
        must_be_good(f, plan_split(p, layer, &lower, &upper, &f->err));
        assert_true(lower.is_finished && upper.is_finished);
        assert_int_equal(lower.ops_count + upper.ops_count, p->ops_count);
        assert_int_equal(p->weights[upper.ops[0].weight[0]].layer, layer);
        assert_int_equal(lower.leave_count, 1); /* the residual stream */
        assert_int_equal(upper.enter_count, 1);
        assert_int_equal(lower.leave[0], upper.enter[0]);
        assert_int_equal(lower.values[lower.leave[0]].op_last, lower.ops_count);
        assert_int_equal(lower.logits, TENSOR_NONE);
        assert_int_equal(upper.logits, p->logits);
        assert_int_equal(upper.vocab, p->vocab);
        /* What enters keeps its slot until it is read for the last time. */
        uint16_t in = upper.enter[0], last = (uint16_t)upper.values[in].op_last;
        for (uint32_t i = 0; i < last; i++)
            assert_true(upper.values[upper.ops[i].out[0]].slot != upper.values[in].slot);
    }
}

static void test_a_plan_that_cannot_be_cut_says_where(void **state)
{
    struct fixture *f = *state;
    struct plan lower, upper;
    struct view h = add_layer(&f->plan, 0, add_layer(&f->plan, 1, add_embed(&f->plan), 0), 0);
    op_sample(&f->plan, op_rows(&f->plan, h));
    must_be_good(f, plan_finish(&f->plan, &f->err));
    plan_init(&lower, &f->arena, PLAN_KIND_MAIN);
    plan_init(&upper, &f->arena, PLAN_KIND_MAIN);
    assert_false(plan_split(&f->plan, 0, &lower, &upper, &f->err));
    assert_int_equal(f->err.code, ERR_UNSUPPORTED);
    assert_string_equal(f->err.text, "plan: 'blk.1.norm' is read on the wrong side of layer 0");
    assert_false(plan_split(&f->plan, 2, &lower, &upper, &f->err));
    assert_string_equal(f->err.text, "plan: it cannot be cut before layer 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(test_values_that_live_at_the_same_time_have_different_slots),
        CASE(test_layers_share_a_page_group_by_window_and_group_0_has_none),
        CASE(test_a_layer_that_attends_otherwise_than_it_writes_is_refused),
        CASE(test_an_expanded_plan_has_only_ops_of_the_set_and_the_same_answers),
        CASE(test_a_plain_op_that_a_backend_lacks_is_named),
        CASE(test_one_name_is_one_weight_of_one_shape),
        CASE(test_the_first_error_stays_and_later_calls_do_nothing),
        CASE(test_memory_ends_in_a_sentence),
        CASE(test_a_dump_has_a_line_per_op_with_shapes_and_parameters),
        CASE(test_a_plan_is_cut_before_the_first_op_of_a_layer),
        CASE(test_a_plan_that_cannot_be_cut_says_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
