#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "chat/output_table.h"

/* What each kept template writes, by its own text. */
static const struct {
    const char *file, *calls, *think;
} rows[] = {
    {"qwen2_5", "hermes", ""},
    {"qwen3", "hermes", "think"},
    {"qwq", "hermes", "think"},
    {"granite4_0", "hermes", ""},
    {"qwen3_coder", "function-xml", ""},
    {"qwen3_6", "function-xml", "think"},
    {"step3_5_flash", "function-xml", "think"},
    {"seed_oss", "seed", "seed"},
    {"glm4_6", "glm", "think"},
    {"glm4moe", "glm", "think"},
    {"ling3_flash", "glm", "think"},
    {"glm4_7_flash", "glm-compact", "think"},
    {"deepseek_r1_distill", "deepseek-r1", "think"},
    {"deepseekv3", "deepseek-r1", "think"},
    {"deepseek_v3_1", "deepseek", "think"},
    {"deepseek_v3_2", "dsml-functions", "think"},
    {"deepseek_v4", "dsml", "think"},
    {"devstral_2507", "mistral", ""},
    {"ministral3_reasoning", "mistral", "brackets"},
    {"mistral_nemo", "mistral-list", ""},
    {"gptoss", "harmony", ""},
    {"apriel1_6", "tool-calls", ""},
    {"smollm2", "", ""},
    {"phi3", "", ""},
};

static void test_a_template_tells_its_format(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct output_format f;
        struct arena a;
        struct err e;
        char path[128];
        str templates[2] = {{NULL, 0}, {NULL, 0}};
        arena_init(&a, 1 << 22);
        snprintf(path, sizeof path, "tests/golden/templates/%s.jinja", rows[i].file);
        assert_true(file_read(&templates[0], path, 1 << 20, &a, &e));
        assert_true(output_table_choose(&f, STR(""), templates, STR(""), &e));
        str calls = f.calls ? f.calls->name : STR("");
        str think = f.think ? f.think->name : STR("");
        if (!str_eq_z(calls, rows[i].calls) || !str_eq_z(think, rows[i].think))
            fail_msg("%s: %.*s, %.*s", rows[i].file, STR_ARG(calls), STR_ARG(think));
        arena_deinit(&a);
    }
}

static void test_a_name_goes_before_the_template_and_the_architecture_last(void **state)
{
    (void)state;
    const str own[2] = {STR("... <tool_call> ..."), {NULL, 0}}, none[2] = {{NULL, 0}, {NULL, 0}};
    struct output_format f;
    struct err e;
    assert_true(output_table_choose(&f, STR("mistral"), own, STR("gpt-oss"), &e));
    assert_true(str_eq_z(f.calls->name, "mistral"));
    assert_true(output_table_choose(&f, STR(""), own, STR("gpt-oss"), &e));
    assert_true(str_eq_z(f.calls->name, "hermes"));
    assert_true(output_table_choose(&f, STR(""), none, STR("gpt-oss"), &e));
    assert_true(str_eq_z(f.calls->name, "harmony"));
    assert_true(output_table_choose(&f, STR(""), none, STR("llama"), &e));
    assert_null(f.calls);
    assert_false(output_table_choose(&f, STR("hermess"), own, STR(""), &e));
    assert_int_equal(e.code, ERR_CONFIG);
    assert_string_equal(e.text, "tool_format: no format 'hermess'");
}

static void test_every_format_has_an_opener_or_begins_bare(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < output_table_count; i++) {
        const struct output_row *row = &output_table_rows[i];
        char text[64];
        str opener = output_table_opener(row, text, sizeof text);
        assert_true(output_table_find(row->name) == row);
        assert_true(row->shape < OUTPUT_SHAPE_COUNT_);
        assert_true(opener.len > 0 || row->is_bare);
        assert_true(opener.len < sizeof text);
        assert_true(row->shape == OUTPUT_SHAPE_TAGS ? row->key_open.len > 0 : true);
        assert_true(row->shape == OUTPUT_SHAPE_OBJECT ? row->name_open.len > 0 : true);
    }
}

static void test_a_name_that_a_format_cannot_say_is_known(void **state)
{
    (void)state;
    static const char *const odd[] = {"a b", "a\"b", "a<b", "f(x)", "a{", "a[0]", "a`b"};
    for (uint32_t i = 0; i < output_table_count; i++) {
        const struct output_row *row = &output_table_rows[i];
        assert_true(output_table_can_name(row, STR("mcp__files.read-v2:x/y\\z")));
        for (size_t k = 0; k < countof(odd); k++)
            assert_int_equal(output_table_can_name(row, str_of(odd[k])),
                             row->shape == OUTPUT_SHAPE_OBJECT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_template_tells_its_format),
        cmocka_unit_test(test_a_name_goes_before_the_template_and_the_architecture_last),
        cmocka_unit_test(test_every_format_has_an_opener_or_begins_bare),
        cmocka_unit_test(test_a_name_that_a_format_cannot_say_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
