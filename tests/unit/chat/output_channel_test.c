#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "output_run.h"

struct row {
    const char *text, *lines;
};

static void check(const struct output_run *r, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        output_run_check(r, rows[i].text, rows[i].lines);
}

static void test_channels_become_reasoning_content_and_calls(void **state)
{
    (void)state;
    const struct output_run r = {.format = "harmony"};
    static const struct row rows[] = {
        {"<|channel|>analysis<|message|>Hm <b>.<|end|><|start|>assistant<|channel|>final<|message|>"
         "Yes.<|return|>", "R:Hm <b>.\nT:Yes."},
        {"<|channel|>final<|message|>Yes <| no |>.", "T:Yes <| no |>."},
        {"<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to="
         "functions.get_weather <|constrain|>json<|message|>{\"city\": \"Bern\"}<|call|>",
         "R:Hm\nC:get_weather:{\"city\": \"Bern\"}\nE"},
        /* The recipient in front of the channel, no <|constrain|>, a preamble. */
        {"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.search"
         "<|channel|>commentary json<|message|>{\"q\": \"<|x\"}",
         "T:I look.\nC:search:{\"q\": \"<|x\"}\nE"},
        {" to=functions.noargs<|channel|>commentary<|message|>{}<|call|>", "C:noargs:{}\nE"},
        {"<|channel|>analysis to=functions.noargs code<|message|>{}", "C:noargs:{}\nE"},
    };
    check(&r, rows, countof(rows));
}

static void test_B06_headers_that_are_a_little_wrong_lose_no_text(void **state)
{
    (void)state;
    const struct output_run r = {.format = "harmony"};
    static const struct row rows[] = {
        {"Just text.", "T:Just text."},
        {"t", "T:t"},
        {"<|message|>Yes", "T:Yes"},
        {"<|channel|>finale<|message|>Yes", "T:Yes"},
        {"<|start|>assistant<|channel|>final<|message|>Yes", "T:Yes"},
        {"<|channel|>final <|constrain|>x<|message|>Yes", "T:Yes"},
        {"<|channel|>analysis<|message|>Hm<|channel|>final<|message|>Yes", "R:Hm\nT:Yes"},
        {"<|channel|>analysis<|message|>Hm<|end|>Yes", "R:Hm\nT:Yes"},
        {"<|channel|>analysis<|message|>a<|message|>b<|end|>", "R:ab"},
        {"<|channel|>final<|message|><|channel|>final<|message|>Yes", "T:Yes"},
        {"<|channel|>commentary to=python<|message|>print(1)<|call|>", "T:print(1)"},
        {"<|channel|>final", ""},
        {"<|chan", ""},
        {"<|channel|>commentary to=functions.noargs<|message|>oops<|call|>", "C:noargs:\nT:oops"},
    };
    check(&r, rows, countof(rows));
}

static void test_B06_mutated_streams_never_leak_a_marker(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "<|start|>", "assistant", "<|channel|>", "analysis", "final", "commentary", "<|message|>",
        "Hm.", "<|end|>", "<|constrain|>", "json", " to=functions.noargs ", "{}", "<|call|>",
        "<|return|>", "\n"};
    const struct output_run r = {.format = "harmony"};
    struct output_said said = {.has_calls = false};
    struct buf text, whole;
    uint32_t random = 1;
    buf_init(&said.lines, 1 << 20);
    buf_init(&whole, 1 << 20);
    buf_init(&text, 1 << 16);
    for (int round = 0; round < 2000; round++) {
        buf_clear(&text);
        for (int n = 0; n < 12; n++) {
            random = random * 1664525u + 1013904223u;
            buf_add_z(&text, parts[(random >> 16) % countof(parts)]);
        }
        output_run(&r, buf_view(&text), text.len, 1, &said);
        buf_clear(&whole);
        buf_add(&whole, buf_view(&said.lines));
        output_run(&r, buf_view(&text), 1, 1, &said);
        if (!str_eq(buf_view(&whole), buf_view(&said.lines)))
            fail_msg("'%.*s': '%.*s', by bytes '%.*s'", STR_ARG(buf_view(&text)),
                     STR_ARG(buf_view(&whole)), STR_ARG(buf_view(&said.lines)));
        for (size_t i = 0; i < countof(parts); i++)
            if (parts[i][0] == '<' && str_find(buf_view(&whole), str_of(parts[i])) != STR_NONE)
                fail_msg("'%.*s': %s in '%.*s'", STR_ARG(buf_view(&text)), parts[i],
                         STR_ARG(buf_view(&whole)));
    }
    buf_deinit(&text);
    buf_deinit(&whole);
    buf_deinit(&said.lines);
}

static void test_without_tools_channels_are_still_split(void **state)
{
    (void)state;
    const struct output_run r = {.format = "harmony", .no_tools = true};
    output_run_check(&r, "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final"
                     "<|message|>Yes.<|return|>", "R:Hm\nT:Yes.");
}

static void test_a_prompt_that_opened_a_message_goes_on_in_it(void **state)
{
    (void)state;
    const struct output_run thinks = {.format = "harmony", .begin = OUTPUT_BEGIN_THINKING};
    const struct output_run answers = {.format = "harmony", .begin = OUTPUT_BEGIN_ANSWER};
    output_run_check(&thinks, "Hm<|end|><|start|>assistant<|channel|>final<|message|>Yes",
                     "R:Hm\nT:Yes");
    output_run_check(&answers, "Yes<|return|>", "T:Yes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channels_become_reasoning_content_and_calls),
        cmocka_unit_test(test_B06_headers_that_are_a_little_wrong_lose_no_text),
        cmocka_unit_test(test_B06_mutated_streams_never_leak_a_marker),
        cmocka_unit_test(test_without_tools_channels_are_still_split),
        cmocka_unit_test(test_a_prompt_that_opened_a_message_goes_on_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
