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

#define CALL(text) "<tool_call>\n<function=" text "</function>\n</tool_call>"
#define P(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"

static void test_B13_values_are_typed_by_the_schema(void **state)
{
    (void)state;
    const struct output_run r = {.format = "function-xml"};
    static const struct row rows[] = {
        {"Let me see.\n\n" CALL("get_weather>\n" P("city", "Bern") P("days", "3")),
         "T:Let me see.\nC:get_weather:{\"city\": \"Bern\", \"days\": 3}\nE"},
        /* A declared string stays one whatever it looks like; quotes, line feeds, markup in it. */
        {CALL("get_weather>\n" P("city", "5") P("unit", "c")),
         "C:get_weather:{\"city\": \"5\", \"unit\": \"c\"}\nE"},
        {CALL("search>\n" P("q", "a \"b\"\n\n<x> </y> <parameter=z>\n") P("where", "1")),
         "C:search:{\"q\": \"a \\\"b\\\"\\n\\n<x> </y> <parameter=z>\\n\", \"where\": \"1\"}\nE"},
        /* Unions, undeclared ones, words of Python. */
        {CALL("search>\n" P("mix", "1.5") P("opt", "[1, {\"a\": 2}]")),
         "C:search:{\"mix\": 1.5, \"opt\": [1, {\"a\": 2}]}\nE"},
        {CALL("search>\n" P("mix", "1.5 m") P("opt", "None")),
         "C:search:{\"mix\": \"1.5 m\", \"opt\": \"None\"}\nE"},
        {CALL("get_weather>\n" P("note", "None") P("days", "many")),
         "C:get_weather:{\"note\": null, \"days\": \"many\"}\nE"},
        {CALL("search>\n" P("exact", "True") P("filters", "[]")),
         "C:search:{\"exact\": true, \"filters\": []}\nE"},
        {CALL("noargs>\n"), "C:noargs:{}\nE"},
        {CALL("patch>\n" P("input", "*** a\n\"b\"\n")), "C:patch:*** a\n\"b\"\n\nE"},
        /* One newline at each end is the tags', or none; Windows' too. */
        {CALL("search>\n<parameter=q>x</parameter>\n<parameter=opt>y</parameter>\n"),
         "C:search:{\"q\": \"x\", \"opt\": \"y\"}\nE"},
        {CALL("search>\n<parameter=q>\r\nx\r\n</parameter>\n"), "C:search:{\"q\": \"x\"}\nE"},
        {CALL("search>\n" P("q", "\n  x")), "C:search:{\"q\": \"\\n  x\"}\nE"},
        {CALL("get_weather>\n" P("city", "007")), "C:get_weather:{\"city\": \"007\"}\nE"},
        {CALL("search>\n<parameter=q>\n</parameter>\n"), "C:search:{\"q\": \"\"}\nE"},
    };
    check(&r, rows, countof(rows));
}

static void test_an_end_tag_in_a_string_of_a_list_is_text(void **state)
{
    (void)state;
    const struct output_run xml = {.format = "function-xml"};
    static const struct row rows[] = {
        {CALL("search>\n" P("filters", "[\"a</parameter>\", \"\\\"</parameter>\"]") P("q", "x")),
         "C:search:{\"filters\": [\"a</parameter>\", \"\\\"</parameter>\"], \"q\": \"x\"}\nE"},
        /* In a text it is an end: nothing in the format could say otherwise. */
        {CALL("search>\n" P("q", "\"a")), "C:search:{\"q\": \"\\\"a\"}\nE"},
        {CALL("search>\n" P("opt", "\"a")), "C:search:{\"opt\": \"\\\"a\"}\nE"},
    };
    check(&xml, rows, countof(rows));
}

static void test_B16_openers_and_closers_that_models_forget(void **state)
{
    (void)state;
    const struct output_run r = {.format = "function-xml"};
    static const struct row rows[] = {
        {"<function=noargs>\n</function>\n</tool_call>\nok", "C:noargs:{}\nE\nT:ok"},
        {"<tool_call>\n<tool_call>\n<function=noargs>\n</function>\n</tool_call>",
         "C:noargs:{}\nE"},
        {"<tool_call>\n<function=search>\n" P("q", "x") "</tool_call>",
         "C:search:{\"q\": \"x\"}\nE"},
        {"<tool_call>\n<function=search>\n" P("q", "x"), "C:search:{\"q\": \"x\"}\nE"},
        {"<tool_call>\n{\"name\": \"search\", \"arguments\": {\"q\": \"x\"}}\n</tool_call>",
         "C:search:{\"q\": \"x\"}\nE"},
        {CALL("noargs>\n") "\n" CALL("search>\n" P("q", "x")),
         "C:noargs:{}\nE\nC:search:{\"q\": \"x\"}\nE"},
        {"<tool_call>nothing</tool_call>", "T:<tool_call>nothing</tool_call>"},
        {"<tool_call>\n<function=a b<c>", "T:<tool_call>\n<function=a b<c>"},
    };
    check(&r, rows, countof(rows));
}

static void test_a_call_that_is_cut_has_no_end_and_shows_no_markup(void **state)
{
    (void)state;
    const struct output_run cut = {.format = "function-xml", .is_cut = true};
    static const struct row rows[] = {
        {"<tool_call>\n<function=search>\n<parameter=q>\nab", "C:search:{\"q\": \"ab"},
        {"<tool_call>\n<function=search>\n<parameter=q>\nab\n</para", "C:search:{\"q\": \"ab"},
        {"<tool_call>\n<function=search>\n<parameter=filters>\n[1, 2", "C:search:{\"filters\": "},
        {"<tool_call>\n<function=search>\n<param", "C:search:"},
        {"<tool_call>\n<function=sea", ""},
    };
    check(&cut, rows, countof(rows));
}

static void test_glm_in_both_layouts(void **state)
{
    (void)state;
    const struct output_run glm = {.format = "glm"}, compact = {.format = "glm-compact"};
    static const struct row rows[] = {
        {"Let me see.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>"
         "\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
         "T:Let me see.\nC:get_weather:{\"city\": \"Bern\", \"days\": 3}\nE"},
        {"<tool_call>search<arg_key>q</arg_key><arg_value>a<b</arg_value></tool_call><tool_call>"
         "noargs</tool_call>", "C:search:{\"q\": \"a<b\"}\nE\nC:noargs:{}\nE"},
        {"<tool_call>noargs", "C:noargs:{}\nE"},
    };
    check(&glm, rows, countof(rows));
    check(&compact, rows, countof(rows));
}

#define D(text) "<\xef\xbd\x9c" "DSML\xef\xbd\x9c" text
#define C(text) "</\xef\xbd\x9c" "DSML\xef\xbd\x9c" text

static void test_B07_B08_dsml_says_itself_what_is_a_string(void **state)
{
    (void)state;
    const struct output_run v4 = {.format = "dsml"}, v3 = {.format = "dsml-functions"};
    static const struct row rows[] = {
        {"Hm.\n\n" D("tool_calls>\n") D("invoke name=\"get_weather\">\n")
         D("parameter name=\"city\" string=\"true\">\nBern\n") C("parameter>\n")
         D("parameter name=\"days\" string=\"false\">3") C("parameter>\n") C("invoke>\n")
         D("invoke name=\"noargs\">\n") C("invoke>\n") C("tool_calls>"),
         "T:Hm.\nC:get_weather:{\"city\": \"\\nBern\\n\", \"days\": 3}\nE\nC:noargs:{}\nE"},
    };
    static const struct row old[] = {
        {D("function_calls>\n") D("invoke name=\"search\">\n")
         D("parameter name=\"filters\" string=\"false\">[{\"k\": 1}]") C("parameter>\n")
         C("invoke>\n") C("function_calls>"), "C:search:{\"filters\": [{\"k\": 1}]}\nE"},
    };
    check(&v4, rows, countof(rows));
    check(&v3, old, countof(old));
    check(&v3, rows, countof(rows)); /* the other section's markers mean the same */
    check(&v4, old, countof(old));
}

static void test_seed_has_markers_of_its_own(void **state)
{
    (void)state;
    const struct output_run r = {.format = "seed", .think = "seed"};
    output_run_check(&r, "<seed:think>why</seed:think>\nHm.\n\n<seed:tool_call>\n"
                     "<function=get_weather>\n<parameter=city>Bern</parameter>\n</function>\n"
                     "</seed:tool_call>", "R:why\nT:Hm.\nC:get_weather:{\"city\": \"Bern\"}\nE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B13_values_are_typed_by_the_schema),
        cmocka_unit_test(test_an_end_tag_in_a_string_of_a_list_is_text),
        cmocka_unit_test(test_B16_openers_and_closers_that_models_forget),
        cmocka_unit_test(test_a_call_that_is_cut_has_no_end_and_shows_no_markup),
        cmocka_unit_test(test_glm_in_both_layouts),
        cmocka_unit_test(test_B07_B08_dsml_says_itself_what_is_a_string),
        cmocka_unit_test(test_seed_has_markers_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
