/* arch_table: each family builds a plan from its keys, and says by name what is wrong in a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/block.h"
#include "tensor/weights.h"
#include "unit/arch/family.h"

struct model {
    struct arena arena;
    struct plan plan;
    struct hparams hp;
    struct err err;
};

static struct model *model_new(void)
{
    struct model *m = calloc(1, sizeof *m);
    arena_init(&m->arena, 16u << 20);
    plan_init(&m->plan, &m->arena, PLAN_KIND_MAIN);
    return m;
}

static void model_free(struct model *m)
{
    arena_deinit(&m->arena);
    free(m);
}

static bool read_family(struct model *m, const struct family *f,
                        const struct family_change *change)
{
    int fd;
    struct model_file *file = NULL;
    bool is_good = model_file_open(&file, family_file(f, NULL, change, &fd), &m->err) &&
                   arch_read(&m->hp, file, &m->err) &&
                   m->hp.arch->build(&m->plan, PLAN_KIND_MAIN, &m->hp, &m->err);
    model_file_close(file);
    family_drop(fd);
    return is_good;
}

static bool bind_family(struct model *m, const struct family *f,
                        const struct family_change *change)
{
    int fd;
    struct model_file *file = NULL;
    struct weights w;
    bool is_good = model_file_open(&file, family_file(f, &m->plan, change, &fd), &m->err) &&
                   weights_bind(&w, &m->plan, file, m->hp.arch->ignored, &m->arena, &m->err);
    model_file_close(file);
    family_drop(fd);
    return is_good;
}

static void must_be_good(struct model *m, const struct family *f, bool is_good)
{
    if (!is_good)
        fail_msg("%s: %s", f->name, m->err.text);
}

static const struct family *family_of(const char *name)
{
    size_t i = 0;
    while (strcmp(families[i].name, name) != 0)
        i++;
    return &families[i];
}

static void test_every_file_name_of_every_row_has_a_family_here_and_a_tiny_model(void **state)
{
    (void)state;
    char golden[128];
    for (size_t a = 0; arch_table[a]; a++)
        for (size_t k = 0; arch_table[a]->file_names[k]; k++) {
            const char *name = arch_table[a]->file_names[k];
            assert_ptr_equal(arch_find(str_of(name)), arch_table[a]);
            size_t i = 0;
            while (i < families_count && strcmp(families[i].file_name, name) != 0)
                i++;
            if (i == families_count)
                fail_msg("no family for '%s'", name);
            assert_string_equal(families[i].arch_name, arch_table[a]->name);
            snprintf(golden, sizeof golden, "tests/golden/tiny/%s.bin", name);
            if (access(golden, R_OK) != 0)
                fail_msg("no %s: make_tiny_golden.py beside it makes it", golden);
        }
}

static void test_every_family_builds_expands_and_binds(void **state)
{
    (void)state;
    uint64_t fused = 0;
    for (size_t k = 0; k < OP_COUNT; k++)
        fused |= op_table[k].is_fused ? OP_BIT(k) : 0;
    const struct op_set all = {OP_SET_ALL}, plain = {OP_SET_ALL & ~fused};
    for (size_t i = 0; i < families_count; i++) {
        struct model *m = model_new();
        struct kv_layout *layout = malloc(sizeof *layout);
        const struct family *f = &families[i];
        must_be_good(m, f, read_family(m, f, NULL));
        must_be_good(m, f, bind_family(m, f, NULL));
        must_be_good(m, f, plan_expand(&m->plan, i % 2 ? &all : &plain, &m->err));
        must_be_good(m, f, plan_finish(&m->plan, &m->err));
        must_be_good(m, f, plan_kv_layout(&m->plan, KV_TYPE_F16, layout, &m->err));
        assert_int_equal(layout->layers_count, m->hp.n_layer);
        assert_int_equal(m->plan.vocab > 0, !m->hp.has_pooling);
        free(layout);
        model_free(m);
    }
}

static void test_a_missing_tensor_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < families_count; i++) {
        struct model *m = model_new();
        must_be_good(m, &families[i], read_family(m, &families[i], NULL));
        for (uint32_t w = 0; w < m->plan.weights_count; w++) {
            const char *name = m->plan.weights[w].name.p;
            struct family_change change = {.without = name};
            char want[160];
            snprintf(want, sizeof want, ": tensor '%s' is missing", name);
            assert_false(bind_family(m, &families[i], &change));
            assert_true(str_ends(str_of(m->err.text), str_of(want)));
            assert_int_equal(m->err.code, ERR_FORMAT);
        }
        model_free(m);
    }
}

static void test_a_wrong_shape_is_named_with_both_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < families_count; i++) {
        struct model *m = model_new();
        must_be_good(m, &families[i], read_family(m, &families[i], NULL));
        for (uint32_t w = 0; w < m->plan.weights_count; w++) {
            const struct plan_weight *k = &m->plan.weights[w];
            struct family_change change = {.wider = k->name.p};
            char want[160];
            snprintf(want, sizeof want, ": tensor '%s' has shape %u", k->name.p,
                     k->want.cols + 1);
            assert_false(bind_family(m, &families[i], &change));
            if (!strstr(m->err.text, want))
                fail_msg("%s", m->err.text);
        }
        model_free(m);
    }
}

static void test_a_tensor_nobody_asks_for_is_named(void **state)
{
    (void)state;
    struct model *m = model_new();
    struct family_change change = {.extra = "blk.0.attn_k.bias"};
    must_be_good(m, &families[0], read_family(m, &families[0], NULL));
    assert_false(bind_family(m, &families[0], &change));
    assert_true(str_ends(str_of(m->err.text),
                         STR(": tensor 'blk.0.attn_k.bias' has no place in architecture "
                             "'llama'")));
    assert_int_equal(m->err.code, ERR_UNSUPPORTED);
    change.extra = "blk.0.attn_rot_embd";
    must_be_good(m, &families[0], bind_family(m, &families[0], &change));
    model_free(m);
}

static void test_an_unknown_architecture_is_named(void **state)
{
    (void)state;
    struct model *m = model_new();
    struct family_change change = {.file_name = "frobnicate"};
    assert_false(read_family(m, &families[0], &change));
    assert_int_equal(m->err.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(m->err.text, "architecture 'frobnicate' is not supported"));
    model_free(m);
}

static void test_a_number_that_cannot_be_is_refused_by_its_key(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        struct family_key key;
        const char *want; /* part of the sentence */
    } cases[] = {
        {"llama", {".block_count", 0, 0, NULL}, "llama.block_count"},
        {"llama", {".block_count", 'u', 0, NULL}, "'.block_count' is 0"},
        {"llama", {".block_count", 'u', 4000000000.0, NULL}, "'.block_count' is 4000000000"},
        {"llama", {".embedding_length", 'u', 0, NULL}, "'.embedding_length' is 0"},
        {"llama", {".embedding_length", 'u', 66, NULL}, "66 is no multiple of 4 heads"},
        {"llama", {".embedding_length", 'u', 4000000000.0, NULL}, "'.embedding_length'"},
        {"llama", {".attention.head_count", 'u', 0, NULL}, "'.attention.head_count' is 0"},
        {"llama", {".attention.head_count", 'u', 70000, NULL}, "70000 query heads"},
        {"llama", {".attention.head_count_kv", 'u', 3, NULL}, "4 query heads cannot share 3"},
        {"llama", {".feed_forward_length", 'u', 0, NULL}, "'.feed_forward_length' is 0"},
        {"llama", {".attention.layer_norm_rms_epsilon", 'f', -1, NULL}, "needed is a number"},
        {"llama", {".attention.layer_norm_rms_epsilon", 's', 0, "x"}, "layer_norm_rms_epsilon"},
        {"llama3", {".rope.freq_base", 'f', 0, NULL}, "'.rope.freq_base' is 0"},
        {"llama3", {".rope.freq_base", 'f', 0.5, NULL}, "base 0.5"},
        {"qwen3", {".attention.key_length", 'u', 0, NULL}, "heads of 0"},
        {"qwen3", {".attention.key_length", 'u', 5000, NULL}, "'.attention.key_length' is 5000"},
        {"qwen3", {".attention.key_length", 'u', 31, NULL}, "rope over 31 columns"},
        {"qwen3moe", {".expert_used_count", 'u', 9, NULL}, "'.expert_used_count' is 9"},
        {"qwen3moe", {".expert_count", 'u', 100000, NULL}, "'.expert_count' is 100000"},
        {"qwen3moe", {".expert_count", 0, 0, NULL}, "'.expert_count' is 0"},
        {"qwen3-embedding", {".pooling_type", 'u', 4, NULL}, "pooling by rank"},
        {"qwen3-embedding", {".pooling_type", 'u', 9, NULL}, "'.pooling_type' is 9"},
        {"gemma3", {".attention.sliding_window", 'u', 0, NULL}, "sliding_window' is 0"},
        {"gemma3", {".rope.scaling.type", 's', 0, "longrope"}, "'longrope' is not supported"},
        {"gemma3", {".rope.scaling.factor", 'f', -8, NULL}, "'.rope.scaling.factor' is -8"},
        {"llama", {".logit_scale", 'f', 0.5, NULL}, "'.logit_scale' (0.5) is not supported"},
        {"llama", {".use_parallel_residual", 'u', 1, NULL}, "'.use_parallel_residual' (1)"},
        {"llama", {".attention.clamp_kqv", 's', 0, "x"}, "'.attention.clamp_kqv' (nan)"},
        {"llama", {".attn_logit_softcapping", 'f', -1, NULL}, "softcapping' is -1"},
        {"qwen3moe", {".expert_shared_count", 'u', 1, NULL}, "'.expert_shared_count' (1)"},
        {"qwen3moe", {".expert_gating_func", 'u', 5, NULL}, "'.expert_gating_func' is 5"},
        {"qwen3moe", {".expert_group_count", 'u', 3, NULL}, "groups of experts 3"},
        {"gpt-oss",
         {".rope.scaling.original_context_length", 0, 0, NULL},
         "original_context_length"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct model *m = model_new();
        struct family_change change = {.key = &cases[i].key};
        if (read_family(m, family_of(cases[i].family), &change))
            fail_msg("case %zu was taken: %s", i, cases[i].want);
        if (!strstr(m->err.text, cases[i].want))
            fail_msg("case %zu: \"%s\", needed is \"%s\"", i, m->err.text, cases[i].want);
        model_free(m);
    }
}

/* The plan of a family as text; the caller ends it with buf_deinit. */
static struct buf plan_text(const struct family *f, const struct family_change *change)
{
    struct model *m = model_new();
    struct buf dump;
    buf_init(&dump, 1u << 20);
    must_be_good(m, f, read_family(m, f, change));
    must_be_good(m, f, plan_finish(&m->plan, &m->err));
    plan_dump(&m->plan, &dump);
    assert_false(dump.full);
    model_free(m);
    return dump;
}

static void test_keys_reach_the_plan_and_those_that_are_off_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        struct family_key key;
        const char *want; /* in the plan's text; NULL: the plan is as without the key */
    } cases[] = {
        {"llama", {".logit_scale", 'f', 1, NULL}, NULL},
        {"llama", {".residual_scale", 'f', 0, NULL}, NULL},
        {"llama", {".use_parallel_residual", 'b', 0, NULL}, NULL},
        {"llama", {".final_logit_softcapping", 'f', 0, NULL}, NULL},
        {"llama", {".final_logit_softcapping", 'f', 30, NULL}, "softcap      v28[O,48] -> v29"},
        {"llama", {".attn_logit_softcapping", 'f', 50, NULL}, "softcap 50"},
        {"llama", {".attention.scale", 'f', 0.125, NULL}, "scale 0.125"},
        {"llama", {".attention.causal", 'b', 0, NULL}, " full"},
        {"llama", {".rope.scaling.factor", 'f', 4, NULL}, "base 10000 scale 0.25"},
        {"llama", {".rope.scaling.type", 's', 0, "none"}, NULL},
        {"llama", {".rope.dimension_count", 'u', 8, NULL}, "rot 0+8"},
        {"llama", {".attention.sliding_window", 'u', 40, NULL}, "16,16 window 40"},
        {"llama", {".pooling_type", 'u', 1, NULL}, "mean l2"},
        {"qwen3moe", {".expert_weights_scale", 'f', 0, NULL}, NULL},
        {"qwen3moe", {".expert_weights_scale", 'f', 2.5, NULL}, "softmax top 3 norm scale 2.5"},
        {"qwen3moe", {".expert_weights_norm", 'b', 0, NULL}, "softmax top 3\n"},
        {"qwen3moe", {".expert_gating_func", 'u', 2, NULL}, "sigmoid top 3 norm"},
        {"gemma3", {".attention.sliding_window_pattern", 'u', 6, NULL}, NULL},
        {"gemma3", {".rope.freq_base_swa", 'f', 20000, NULL}, "base 20000, layer 0"},
        {"gpt-oss", {".rope.scaling.attn_factor", 'f', 2, NULL}, "mscale 2.69315"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        const struct family *f = family_of(cases[i].family);
        struct family_change change = {.key = &cases[i].key};
        struct buf before = plan_text(f, NULL), after = plan_text(f, &change);
        bool is_same = strcmp(before.p, after.p) == 0;
        if (cases[i].want ? !strstr(after.p, cases[i].want) || is_same : !is_same)
            fail_msg("case %zu, %s: wanted %s in\n%s", i, cases[i].key.key,
                     cases[i].want ? cases[i].want : "no change", after.p);
        buf_deinit(&before);
        buf_deinit(&after);
    }
}

/* tests/golden/ARCH/plan-FAMILY.txt is our own regression golden: TEST_WRITE=1 writes it anew. */
static void test_plans_are_as_written_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < families_count; i++) {
        char path[128], folder[128], *text = malloc(1u << 20);
        struct buf dump = plan_text(&families[i], NULL);
        snprintf(path, sizeof path, "tests/golden/%s/plan-%s.txt", families[i].arch_name,
                 families[i].name);
        if (getenv("TEST_WRITE")) { /* a new family has no folder yet */
            snprintf(folder, sizeof folder, "tests/golden/%s", families[i].arch_name);
            mkdir(folder, 0755);
        }
        FILE *f = fopen(path, getenv("TEST_WRITE") ? "w+" : "r");
        if (!f)
            fail_msg("cannot open %s: TEST_WRITE=1 writes it", path);
        if (getenv("TEST_WRITE"))
            fwrite(dump.p, 1, dump.len, f);
        rewind(f);
        size_t len = fread(text, 1, 1u << 20, f);
        fclose(f);
        if (len != dump.len || memcmp(text, dump.p, len) != 0)
            fail_msg("%s differs; the plan is now:\n%s", path, dump.p);
        buf_deinit(&dump);
        free(text);
    }
}

static void test_a_scale_that_a_family_honours_is_taken_and_its_others_are_not(void **state)
{
    (void)state;
    static const char *const honoured[] = {".logit_scale", NULL};
    const struct arch family = {.name = "made-up", .honoured = honoured};
    static const char *const keys[] = {".logit_scale", ".residual_scale"};
    for (size_t i = 0; i < countof(keys); i++) {
        int fd;
        struct err e = {0};
        struct model_file *file = NULL;
        struct hparams *hp = calloc(1, sizeof *hp);
        hp->arch = &family;
        struct family_key key = {keys[i], 'f', 0.5, NULL};
        struct family_change change = {.key = &key};
        const char *path = family_file(family_of("llama"), NULL, &change, &fd);
        assert_true(model_file_open(&file, path, &e));
        bool is_read = block_read(hp, file, OP_ROPE_NEOX, &e);
        if (is_read != (i == 0) || (!is_read && !strstr(e.text, keys[i])))
            fail_msg("%s: %s: \"%s\"", keys[i], is_read ? "taken" : "refused", e.text);
        model_file_close(file);
        family_drop(fd);
        free(hp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_file_name_of_every_row_has_a_family_here_and_a_tiny_model),
        cmocka_unit_test(test_every_family_builds_expands_and_binds),
        cmocka_unit_test(test_a_missing_tensor_is_named),
        cmocka_unit_test(test_a_wrong_shape_is_named_with_both_shapes),
        cmocka_unit_test(test_a_tensor_nobody_asks_for_is_named),
        cmocka_unit_test(test_an_unknown_architecture_is_named),
        cmocka_unit_test(test_a_number_that_cannot_be_is_refused_by_its_key),
        cmocka_unit_test(test_keys_reach_the_plan_and_those_that_are_off_change_nothing),
        cmocka_unit_test(test_a_scale_that_a_family_honours_is_taken_and_its_others_are_not),
        cmocka_unit_test(test_plans_are_as_written_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
