#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/config_models.h"
#include "unit/cli/given.h"

static bool load(struct config_models *out, const char *yaml, struct err *e)
{
    struct config *c = given_config(yaml);
    return config_models_load(out, c, &given.arena, e);
}

static void test_a_model_has_every_setting_that_is_built(void **state)
{
    (void)state;
    struct config_models m;
    struct err e = {0};
    assert_true(load(&m,
                     "aliases: {g: A}\n"
                     "models:\n"
                     "  A: {aliases: [a*, b], defaults: {temperature: 0.5, top_k: 7, max_tokens: 9,"
                     " stop: [x]}, effort: low, max_context: 256, keep_alive: -1, pin: true,"
                     " template: chatml, tool_format: hermes,"
                     " tool_grammar: strict,"
                     " ngl: 0, ctx: 512, slots: 3, kv: int8}\n"
                     "  B: {ngl: 4}\n",
                     &e));
    const struct models_leg_setting *a = &m.settings[0], *b = &m.settings[1];
    assert_int_equal(m.count, 2);
    assert_true(str_eq_z(a->name, "A") && a->is_pinned && a->has_keep_alive &&
                a->keep_alive_ms < 0 && a->max_context == 256 && a->context == 512 &&
                a->slots == 3 && a->has_kv && a->kv == API_KV_INT8 &&
                str_eq_z(a->chat_template, "chatml") &&
                str_eq_z(a->tool_format, "hermes") && a->has_place && str_eq_z(a->backend, "cpu"));
    assert_int_equal(a->tool_grammar, API_TOOL_GRAMMAR_STRICT);
    assert_int_equal(b->tool_grammar, API_TOOL_GRAMMAR_LAZY);
    assert_true(b->has_place && str_eq_z(b->backend, "cuda") && b->layers == 4 && !b->is_pinned);
    const struct api_request *d = a->defaults;
    assert_true(d->given == (API_GIVEN(TEMPERATURE) | API_GIVEN(TOP_K) | API_GIVEN(TOKENS_MAX) |
                             API_GIVEN(STOP) | API_GIVEN(EFFORT)));
    assert_true(d->temperature == 0.5f && d->top_k == 7 && d->tokens_max == 9 &&
                d->stop_count == 1 && d->effort == API_EFFORT_LOW);
    static const char *const aliases[] = {"g", "A", "a*", "A", "b", "A"};
    assert_int_equal(m.aliases_count, countof(aliases));
    for (size_t i = 0; i < countof(aliases); i++)
        assert_true(str_eq_z(m.aliases[i], aliases[i]));
}

static void test_what_is_wrong_with_a_model_is_told_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *text;
    } rows[] = {
        {"models: [A]", "config.yaml:1:1: models: a map of models expected"},
        {"models: {A: 1}", "config.yaml:1:10: models.A: a map such as {keep_alive: 30m} expected"},
        {"models: {A: {noise: 1}}", "config.yaml:1:14: models.A.noise: unknown field"},
        {"models: {A: {template: chatm}}", "config.yaml:1:14: models.A.template: 'chatm' is no "
         "built-in template: chatml, llama3 or mistral"},
        {"models: {A: {tool_format: json}}", "config.yaml:1:14: models.A.tool_format: one of "
         "harmony dsml-functions dsml deepseek-r1 deepseek gemma4 glm-compact glm seed function-xml"
         " hermes tool-calls granite mistral mistral-list llama3 expected"},
        {"models: {A: {tool_grammar: on}}",
         "config.yaml:1:14: models.A.tool_grammar: lazy, strict or off expected"},
        {"models: {A: {draft: x}}", "config.yaml:1:14: models.A.draft: not built yet"},
        {"models: {A: {ctx: x}}",
         "config.yaml:1:14: models.A.ctx: integer 0..16777216 expected, got \"x\""},
        {"models: {A: {pin: [1]}}", "config.yaml:1:14: models.A.pin: one value expected"},
        {"models: {A: {aliases: {a: b}}}",
         "config.yaml:1:14: models.A.aliases: a list of texts expected"},
        {"models: {A: {defaults: {top_p: 2}}}",
         "config.yaml:1:25: models.A.defaults.top_p: top_p: number from 0 to 1 expected, got 2"},
        {"models: {A: {defaults: {noise: 2}}}",
         "config.yaml:1:25: models.A.defaults.noise: no such default"},
        {"models: {A: {template: llama3, template_file: README.md}}",
         "config.yaml:1:32: models.A.template_file: one of template and template_file expected, "
         "got both"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct config_models m;
        struct err e = {0};
        assert_false(load(&m, rows[i].yaml, &e));
        assert_string_equal(e.text, rows[i].text);
    }
}

static void test_everything_that_is_wrong_is_told_at_once(void **state)
{
    (void)state;
    struct config_models m;
    struct err e = {0};
    assert_false(load(&m,
                      "models:\n"
                      "  A: {ctx: x, noise: 1}\n"
                      "  B: 5\n"
                      "  C: {defaults: {top_p: 2, temperature: -1}, slots: 2}\n",
                      &e));
    assert_string_equal(
        given.problems.p,
        "config.yaml:2:7: models.A.ctx: integer 0..16777216 expected, got \"x\"\n"
        "config.yaml:2:15: models.A.noise: unknown field\n"
        "config.yaml:3:3: models.B: a map such as {keep_alive: 30m} expected\n"
        "config.yaml:4:18: models.C.defaults.top_p: top_p: number from 0 to 1 expected, got 2\n"
        "config.yaml:4:28: models.C.defaults.temperature: temperature: number from 0 to 5 "
        "expected, got -1\n");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, given_begin, given_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_a_model_has_every_setting_that_is_built),
        CASE(test_what_is_wrong_with_a_model_is_told_with_its_place),
        CASE(test_everything_that_is_wrong_is_told_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
