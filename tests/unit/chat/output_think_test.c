#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "output_run.h"

static void test_the_first_block_is_reasoning_and_a_later_marker_text(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum output_begin begin;
        bool is_cut;
        const char *lines;
    } rows[] = {
        {"<think>\nwhy\n\nso\n</think>\n\nYes <think>no</think>.\n", OUTPUT_BEGIN_FRESH, false,
         "R:why\n\nso\nT:Yes <think>no</think>.\n"},
        {"\n <think>a</think>b", OUTPUT_BEGIN_FRESH, false, "R:a\nT:b"},
        {"<think>\n\n</think>\n\nYes", OUTPUT_BEGIN_FRESH, false, "T:Yes"},
        {"Yes <think>a</think>", OUTPUT_BEGIN_FRESH, false, "T:Yes <think>a</think>"},
        {"<thinker>", OUTPUT_BEGIN_FRESH, false, "T:<thinker>"},
        {"\n\nYes", OUTPUT_BEGIN_FRESH, false, "T:\n\nYes"},
        /* The template opened it, or closed it. */
        {"\nwhy <think> not\n</think>\n\nYes", OUTPUT_BEGIN_THINKING, false,
         "R:why <think> not\nT:Yes"},
        {"<think>a</think>b", OUTPUT_BEGIN_ANSWER, false, "T:<think>a</think>b"},
        /* Not closed: all is reasoning. */
        {"why </thin", OUTPUT_BEGIN_THINKING, false, "R:why </thin"},
        {"why </thin", OUTPUT_BEGIN_THINKING, true, "R:why"},
        {"why <", OUTPUT_BEGIN_THINKING, true, "R:why"},
        {"<thi", OUTPUT_BEGIN_FRESH, false, "T:<thi"},
        {"<thi", OUTPUT_BEGIN_FRESH, true, ""},
        {"", OUTPUT_BEGIN_THINKING, false, ""},
        {"a</think>", OUTPUT_BEGIN_THINKING, false, "R:a"},
        /* A call inside the reasoning is reasoning. */
        {"<think><tool_call>{}</tool_call></think><tool_call>{\"name\": \"noargs\"}</tool_call>",
         OUTPUT_BEGIN_FRESH, false, "R:<tool_call>{}</tool_call>\nC:noargs:{}\nE"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        const struct output_run r = {.format = "hermes", .think = "think", .begin = rows[i].begin,
                                     .is_cut = rows[i].is_cut};
        output_run_check(&r, rows[i].text, rows[i].lines);
    }
}

static void test_other_markers_of_reasoning(void **state)
{
    (void)state;
    const struct output_run brackets = {.format = "mistral", .think = "brackets"};
    const struct output_run channel = {.format = "gemma4", .think = "channel"};
    output_run_check(&brackets, "[THINK]a[b][/THINK]c[TOOL_CALLS]noargs[ARGS]{}",
                     "R:a[b]\nT:c\nC:noargs:{}\nE");
    output_run_check(&channel, "<|channel>thought\nhm\n<channel|>Yes", "R:hm\nT:Yes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_block_is_reasoning_and_a_later_marker_text),
        cmocka_unit_test(test_other_markers_of_reasoning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
