#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "output_run.h"

struct row {
    const char *text, *lines;
};

static void check(const struct output_run *r, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        output_run_check(r, rows[i].text, rows[i].lines);
}

static void test_hermes_calls_and_the_prose_around_them(void **state)
{
    (void)state;
    const struct output_run r = {.format = "hermes"};
    static const struct row rows[] = {
        {"Hello <b>, a < b", "T:Hello <b>, a < b"},
        {"Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
         "\"Bern\"}}\n</tool_call>", "T:Let me see.\nC:get_weather:{\"city\": \"Bern\"}\nE"},
        {"<tool_call>\n{\"name\": \"noargs\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
         "{\"name\": \"search\", \"arguments\": {\"q\": \"</tool_call>\\n{}\"}}\n</tool_call>\n",
         "C:noargs:{}\nE\nC:search:{\"q\": \"</tool_call>\\n{}\"}\nE"},
        /* Text behind a call; a name that nobody declared is the client's to refuse. */
        {"<tool_call>{\"name\":\"f.x\",\"arguments\":{\"a\":[1,{}]}}</tool_call>\n\nDone.\n",
         "C:f.x:{\"a\":[1,{}]}\nE\nT:Done.\n"},
        {"<tool_call>\n{\"name\": \"noargs\"}\n</tool_call>", "C:noargs:{}\nE"},
        {"<tool_call>\n{\"name\": \"noargs\", \"arguments\": null}\n</tool_call>",
         "C:noargs:{}\nE"},
        /* Keys in any order; arguments as JSON in JSON; a wrapper. */
        {"<tool_call>{\"arguments\": {\"city\": \"B\"}, \"name\": \"get_weather\"}</tool_call>",
         "C:get_weather:{\"city\": \"B\"}\nE"},
        {"<tool_call>{\"id\": \"x\", \"name\": \"search\", \"arguments\": \"{\\\"q\\\": 1}\"}"
         "</tool_call>", "C:search:{\"q\": 1}\nE"},
        {"<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"search\", \"parameters\":"
         " {\"q\": \"a\"}}}</tool_call>", "C:search:{\"q\": \"a\"}\nE"},
        {"<tool_call>{\"name\": \"search\", \"arguments\": {\"q\": \"a\"}, \"id\": [1]}"
         "</tool_call>ok", "C:search:{\"q\": \"a\"}\nE\nT:ok"},
        /* Doubled opener, missing and doubled closers, a brace too many, one too few. */
        {"<tool_call>\n<tool_call>\n{\"name\": \"noargs\", \"arguments\": {}}\n</tool_call>\n"
         "</tool_call>", "C:noargs:{}\nE"},
        {"<tool_call>\n{\"name\": \"noargs\", \"arguments\": {}}", "C:noargs:{}\nE"},
        {"<tool_call>\n{\"name\": \"noargs\", \"arguments\": {}}}\n</tool_call>x",
         "C:noargs:{}\nE\nT:x"},
        {"<tool_call>\n{\"name\": \"noargs\", \"arguments\": {}\n</tool_call>", "C:noargs:{}\nE"},
        /* B14: any key. */
        {"<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": {\"bool\": {\"must\": [{"
         "\"range\": {\"@timestamp\": {\"gte\": \"now-1h\"}}}]}}, \"a.b\": {\"\": 0}}}</tool_call>",
         "C:search:{\"query\": {\"bool\": {\"must\": [{\"range\": {\"@timestamp\": {\"gte\": "
         "\"now-1h\"}}}]}}, \"a.b\": {\"\": 0}}\nE"},
        /* What can only be meant one way is repaired: line feeds in strings, "\d". */
        {"<tool_call>{\"name\": \"search\", \"arguments\": {\"q\": \"a\nb\\d\\u00e9\"}}"
         "</tool_call>", "C:search:{\"q\": \"a\\nb\\\\d\\u00e9\"}\nE"},
        {"<tool_call>{\"name\": \"patch\", \"arguments\": {\"input\": \"*** Begin\\n+\\u00e9\"}}"
         "</tool_call>", "C:patch:*** Begin\n+\xc3\xa9\nE"},
    };
    check(&r, rows, countof(rows));
}

static void test_B10_B14_a_malformed_call_is_shown_once_as_text(void **state)
{
    (void)state;
    const struct output_run r = {.format = "hermes"};
    static const struct row rows[] = {
        {"a <tool_call>no</tool_call> b", "T:a <tool_call>no</tool_call> b"},
        {"<tool_call>{\"name\": 5}</tool_call>", "T:<tool_call>{\"name\": 5}</tool_call>"},
        {"<tool_call>{\"arguments\": {}}</tool_call>",
         "T:<tool_call>{\"arguments\": {}}</tool_call>"},
        {"<tool_call>{'name': 'x'}</tool_call>", "T:<tool_call>{'name': 'x'}</tool_call>"},
        {"<tool_call>\n{\"name\": \"noargs\", ", "T:<tool_call>\n{\"name\": \"noargs\", "},
        {"<tool_call", "T:<tool_call"},
        /* A good one inside the remains of a bad one. */
        {"<tool_call>bad <tool_call>{\"name\": \"noargs\", \"arguments\": {}}</tool_call>",
         "T:<tool_call>bad\nC:noargs:{}\nE"},
    };
    check(&r, rows, countof(rows));
}

static void test_what_was_streamed_of_a_call_that_breaks_stands_and_has_no_end(void **state)
{
    (void)state;
    const struct output_run r = {.format = "hermes"}, cut = {.format = "hermes", .is_cut = true};
    static const struct row rows[] = {
        {"<tool_call>{\"name\": \"search\", \"arguments\": {\"q\": oops}}</tool_call>",
         "C:search:{\"q\": \nT:oops}}"},
        {"<tool_call>{\"name\": \"search\", \"arguments\": {\"q\": \"ab",
         "C:search:{\"q\": \"ab"},
    };
    static const struct row cuts[] = {
        {"<tool_call>{\"name\": \"search\", \"arguments\": {\"q\": \"ab", "C:search:{\"q\": \"ab"},
        {"ok\n<tool_call>{\"name\": \"sea", "T:ok"},
        {"ok <tool_", "T:ok "},
        {"ok <", "T:ok "}, /* it was going to be a marker */
        {"<", ""},
        {"<tool_call>{\"name\": \"noargs\", \"arguments\": {}}", "C:noargs:{}\nE"},
        {"<tool_call>{\"name\": \"noargs\", \"arguments\": {}}\n</tool_call>\n<tool",
         "C:noargs:{}\nE"},
    };
    check(&r, rows, countof(rows));
    check(&cut, cuts, countof(cuts));
}

static void test_a_reply_whose_calls_are_whole_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_cut, has_calls;
    } cases[] = {
        {"<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>", false, true},
        {"<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call> x", true, true},
        {"<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call><tool_call>{\"na", true,
         false},
        {"<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"b\", "
         "\"arguments\": {\"x", false, false},
        {"<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": nope}}</tool_call>", false, false},
        {"text", false, false},
    };
    struct output_said said = {.has_calls = false};
    buf_init(&said.lines, 1 << 20);
    for (size_t i = 0; i < countof(cases); i++) {
        const struct output_run r = {.format = "hermes", .is_cut = cases[i].is_cut};
        output_run(&r, str_of(cases[i].text), 1, 1, &said);
        if (said.has_calls != cases[i].has_calls)
            fail_msg("%s", cases[i].text);
    }
    buf_deinit(&said.lines);
}

static void test_one_call_ends_the_reply_where_the_request_says_so(void **state)
{
    (void)state;
    const struct output_run r = {.format = "hermes", .one_call = true};
    output_run_check(&r, "a\n<tool_call>{\"name\": \"noargs\", \"arguments\": {}}</tool_call>"
                     "<tool_call>{\"name\": \"search\", \"arguments\": {}}</tool_call>",
                     "T:a\nC:noargs:{}\nE");
}

static void test_without_tools_markers_are_text(void **state)
{
    (void)state;
    const struct output_run r = {.format = "hermes", .no_tools = true};
    output_run_check(&r, "<tool_call>\n{\"name\": \"noargs\"}\n</tool_call>\n",
                     "T:<tool_call>\n{\"name\": \"noargs\"}\n</tool_call>\n");
}

static void test_stop_strings_apply_to_content_alone(void **state)
{
    (void)state;
    const struct output_run r = {.format = "hermes", .think = "think", .stops = {"Bern", "\n\n"}};
    static const struct row rows[] = {
        {"<think>\nBern?\n\n</think>\n\nIn <tool_call>{\"name\": \"search\", \"arguments\": {\"q\":"
         " \"Bern\\n\\n\"}}</tool_call>\n\nin Bern.",
         "R:Bern?\nT:In\nC:search:{\"q\": \"Bern\\n\\n\"}\nE\nT:in "},
        /* A beginning of a stop string in front of a call is shown; it does not go on behind. */
        {"Be<tool_call>{\"name\": \"noargs\", \"arguments\": {}}</tool_call>rn",
         "T:Be\nC:noargs:{}\nE\nT:rn"},
    };
    check(&r, rows, countof(rows));
}

static void test_hermes_models_that_forget_the_opener_are_understood(void **state)
{
    (void)state;
    const struct output_run r = {.format = "hermes"}, cut = {.format = "hermes", .is_cut = true};
    static const struct row rows[] = {
        {"```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"city\": \"Bern\"\n"
         "  }\n}\n```", "C:get_weather:{\n    \"city\": \"Bern\"\n  }\nE"},
        {"\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}",
         "C:get_weather:{\"city\": \"Bern\"}\nE"},
        {"```\n{\"name\": \"noargs\", \"arguments\": {}}\n```\nDone.", "C:noargs:{}\nE\nT:Done."},
        {"{\"name\": \"noargs\", \"arguments\": {}}\n{\"name\": \"search\", \"arguments\": {}}",
         "C:noargs:{}\nE\nC:search:{}\nE"},
        /* An answer that is JSON or code: another name, no arguments, not at the beginning. */
        {"{\"name\": \"banned\", \"arguments\": {}}", /* declared, not among the allowed */
         "T:{\"name\": \"banned\", \"arguments\": {}}"},
        /* What a model repeats of the prompt's own scaffold marks no call. */
        {"<tools>\n{\"name\": \"noargs\", \"arguments\": {}}\n</tools>",
         "T:<tools>\n{\"name\": \"noargs\", \"arguments\": {}}\n</tools>"},
        {"```json\n{\"name\": \"Anna\", \"arguments\": {}}\n```",
         "T:```json\n{\"name\": \"Anna\", \"arguments\": {}}\n```"},
        {"{\"name\": \"noargs\"}", "T:{\"name\": \"noargs\"}"},
        {"{\"a\": 1}", "T:{\"a\": 1}"},
        {"```python\nx = {}\n```", "T:```python\nx = {}\n```"},
        {"So: {\"name\": \"noargs\", \"arguments\": {}}",
         "T:So: {\"name\": \"noargs\", \"arguments\": {}}"},
        {"{}", "T:{}"},
        {"``", "T:``"},
    };
    static const struct row cuts[] = {
        {"```json\n{\"name\": \"get_weather\", \"argu",
         "T:```json\n{\"name\": \"get_weather\", \"argu"},
        {"```json\n{\"na", "T:```json\n{\"na"},
        {"{\"name\": \"search\", \"arguments\": {\"q\": \"ab",
         "T:{\"name\": \"search\", \"arguments\": {\"q\": \"ab"},
    };
    check(&r, rows, countof(rows));
    check(&cut, cuts, countof(cuts));
}

/* Nothing marks it, so nothing of it may be said before it is whole. */
static void test_a_call_without_opener_is_whole_or_text(void **state)
{
    (void)state;
    const struct output_run hermes = {.format = "hermes"}, llama3 = {.format = "llama3"};
    const struct output_run thinks = {.format = "hermes", .think = "think"};
    static const struct row rows[] = {
        /* The object does not end, breaks off, or has arguments that are none. */
        {"{\"name\": \"search\", \"arguments\": {\"q\": \"ab",
         "T:{\"name\": \"search\", \"arguments\": {\"q\": \"ab"},
        {"{\"name\": \"noargs\", \"arguments\": {}",
         "T:{\"name\": \"noargs\", \"arguments\": {}"},
        {"```json\n{\"name\": \"search\", \"arguments\": {\"q\": oops}}\n```\n",
         "T:```json\n{\"name\": \"search\", \"arguments\": {\"q\": oops}}\n```\n"},
        {"{\"name\": \"noargs\", \"arguments\": {}, and so on",
         "T:{\"name\": \"noargs\", \"arguments\": {}, and so on"},
        {"{\"name\": \"noargs\", \"arguments\": [1]}",
         "T:{\"name\": \"noargs\", \"arguments\": [1]}"},
        {"{\"name\": \"noargs\", \"arguments\": true}",
         "T:{\"name\": \"noargs\", \"arguments\": true}"},
        {"{\"name\": \"noargs\", \"arguments\": null}",
         "T:{\"name\": \"noargs\", \"arguments\": null}"},
        {"{\"name\": \"noargs\", \"arguments\": \"x\"}",
         "T:{\"name\": \"noargs\", \"arguments\": \"x\"}"},
        {"{\"name\": \"noargs\", \"arguments\": \"[]\"}",
         "T:{\"name\": \"noargs\", \"arguments\": \"[]\"}"},
        {"{\"name\": \"search\", \"arguments\": \"{\\\"q\\\": 1}\"}",
         "C:search:{\"q\": 1}\nE"},
        {"{\"arguments\": {\"q\": 1}, \"name\": \"search\", \"id\": 7}\nOk",
         "C:search:{\"q\": 1}\nE\nT:Ok"},
        /* What follows a call: another one, or text that keeps its fence and its separator. */
        {"```json\n{\"name\": \"noargs\", \"arguments\": {}}\n```\n```json\n{\"name\": "
         "\"search\", "
         "\"arguments\": {\"q\": \"a\"}}\n```",
         "C:noargs:{}\nE\nC:search:{\"q\": \"a\"}\nE"},
        {"```json\n{\"name\": \"noargs\", \"arguments\": {}}\n```\n\n```json\n{\"a\": 1}\n```",
         "C:noargs:{}\nE\nT:```json\n{\"a\": 1}\n```"},
        {"```json\n{\"name\": \"noargs\", \"arguments\": {}}\n{\"name\": \"noargs\", "
         "\"arguments\": {}}\n```\n```python\nx\n```",
         "C:noargs:{}\nE\nC:noargs:{}\nE\nT:```python\nx\n```"},
        {"{\"name\": \"noargs\", \"arguments\": {}}\n```python\nx = {}\n```",
         "C:noargs:{}\nE\nT:```python\nx = {}\n```"},
        {"{\"name\": \"noargs\", \"arguments\": {}}; {\"b\": 1}",
         "C:noargs:{}\nE\nT:; {\"b\": 1}"},
        {"{\"name\": \"noargs\", \"arguments\": {}}, then", "C:noargs:{}\nE\nT:, then"},
    };
    static const struct row parameters[] = {
        {"{\"name\": \"search\", \"parameters\": {\"q\": \"ab", "T:{\"name\": \"search\", "
         "\"parameters\": {\"q\": \"ab"},
        {"{\"name\": \"search\", \"parameters\": [1]}",
         "T:{\"name\": \"search\", \"parameters\": [1]}"},
        {"<|python_tag|>{\"name\": \"search\", \"parameters\": {\"q\": \"ab",
         "C:search:{\"q\": \"ab"},
    };
    static const struct row behind[] = {
        {"<think>\nhm\n</think>\n\n{\"a\": 1}", "R:hm\nT:{\"a\": 1}"},
        {"<think>hm</think>\n\n{\"name\": \"noargs\", \"arguments\": {}}",
         "R:hm\nC:noargs:{}\nE"},
    };
    check(&hermes, rows, countof(rows));
    check(&llama3, parameters, countof(parameters));
    check(&thinks, behind, countof(behind));
}

/* The grammar knows the usual order of members: what it does not know, it cannot hold to. */
static void test_a_strict_tool_is_called_only_as_a_grammar_binds_it(void **state)
{
    (void)state;
    const struct output_run r = {
        .format = "hermes", .tools = "[{\"name\": \"f\", \"strict\": true}, {\"name\": \"g\"}]"};
    static const char *const odd[] = {
        "{\"arguments\": {}, \"name\": \"f\"}",
        "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {}}}",
        "{\"type\": \"tool\", \"name\": \"f\", \"arguments\": {}}",
        "{\"name\": \"f\", \"id\": 1, \"arguments\": {}}",
        "{\"name\": \"g\", \"name\": \"f\", \"arguments\": {}}",
        "{\"name\": \"\\u0066\", \"arguments\": {}}",
        "{\"name\": \"f\", \"arguments\": \"{}\"}",
    };
    static const struct row rows[] = {
        {"{\"name\": \"f\", \"arguments\": {}}", "C:f:{}\nE"},
        {"{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "C:f:{}\nE"},
        {"<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call>", "C:f:{}\nE"},
        {"{\"arguments\": {}, \"name\": \"g\"}", "C:g:{}\nE"},
        {"{\"name\": \"g\", \"arguments\": {}}} {\"name\": \"f\", \"arguments\": {}}",
         "C:g:{}\nE\nT:{\"name\": \"f\", \"arguments\": {}}"},
    };
    char text[256];
    check(&r, rows, countof(rows));
    for (size_t i = 0; i < countof(odd); i++) {
        snprintf(text, sizeof text, "T:%s", odd[i]);
        output_run_check(&r, odd[i], text);
    }
}

static void test_a_forced_call_flows_and_shows_nothing_of_its_markup(void **state)
{
    (void)state;
    const struct output_run cut = {.format = "hermes", .is_cut = true, .is_forced = true};
    const struct output_run bare = {.format = "llama3", .is_cut = true, .is_forced = true};
    output_run_check(&cut, "<", "");
    output_run_check(&cut, "<tool_call>\n{\"na", "");
    const struct output_run deepseek = {.format = "deepseek", .is_cut = true, .is_forced = true};
    output_run_check(&deepseek, "<\xef", ""); /* a limit inside the marker's second letter */
    output_run_check(&deepseek, "<\xef\xbd", "");
    output_run_check(&deepseek, "x\xef\xbd", "T:x\xef\xbf\xbd");
    output_run_check(&bare, "{", "");
    output_run_check(&bare, "{\"name\": \"sear", "");
    output_run_check(&bare, "{\"name\": \"search\", \"parameters\": {\"q\": \"a",
                     "C:search:{\"q\": \"a");
}

static void test_names_may_need_escapes(void **state)
{
    (void)state;
    const struct output_run hermes = {
        .format = "hermes",
        .tools = "[{\"name\": \"say \\\"hi\\\"\"}, {\"name\": \"C:\\\\dir\"}]"};
    static const struct row rows[] = {
        {"<tool_call>\n{\"name\": \"say \\\"hi\\\"\", \"arguments\": {}}\n</tool_call>",
         "C:say \"hi\":{}\nE"},
        {"{\"name\": \"C:\\\\dir\", \"arguments\": {\"a\": 1}}", "C:C:\\dir:{\"a\": 1}\nE"},
        {"<tool_call>{\"name\": \"a\\nb\", \"arguments\": {}}</tool_call>",
         "T:<tool_call>{\"name\": \"a\\nb\", \"arguments\": {}}</tool_call>"},
        {"<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
         "T:<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>"},
    };
    check(&hermes, rows, countof(rows));
}

static void test_mistral_in_both_forms(void **state)
{
    (void)state;
    const struct output_run new = {.format = "mistral"}, old = {.format = "mistral-list"};
    static const struct row rows[] = {
        {"Let me see.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Bern\"}[TOOL_CALLS]search[ARGS]"
         "{\"q\": \"{\"}", "T:Let me see.\nC:get_weather:{\"city\": \"Bern\"}\nE\n"
                           "C:search:{\"q\": \"{\"}\nE"},
        {"[TOOL_CALLS]noargs[CALL_ID]abcdefgh1[ARGS]{}", "C:noargs:{}\nE"},
        {"[TOOL_CALLS] [{\"name\": \"noargs\", \"arguments\": {}}, {\"name\": \"search\", "
         "\"arguments\": {\"q\": \"]\"}, \"id\": \"abcdefgh1\"}]",
         "C:noargs:{}\nE\nC:search:{\"q\": \"]\"}\nE"},
        {"[TOOL_CALLS]noargs[ARGS]{}\n```python\nx\n```", "C:noargs:{}\nE\nT:```python\nx\n```"},
        {"[TOOL_CALLS]noargs\n```json\n{}\n```\nOk", "C:noargs:{}\nE\nT:Ok"},
        {"[TOOL_CALLS][ARGS]{}", "T:[TOOL_CALLS][ARGS]{}"},
        {"a [TOOL", "T:a [TOOL"},
    };
    check(&new, rows, countof(rows));
    check(&old, rows + 2, 1);
}

static void test_deepseek_in_both_forms(void **state)
{
    (void)state;
#define D(word) "<\xef\xbd\x9ctool" word "\xef\xbd\x9c>"
#define CALLS   D("\xe2\x96\x81" "calls\xe2\x96\x81" "begin")
#define CALL    D("\xe2\x96\x81" "call\xe2\x96\x81" "begin")
#define SEP     D("\xe2\x96\x81" "sep")
#define END     D("\xe2\x96\x81" "call\xe2\x96\x81" "end")
#define ENDS    D("\xe2\x96\x81" "calls\xe2\x96\x81" "end")
    static const struct row rows[] = {
        {"Hm." CALLS CALL "get_weather" SEP "{\"city\": \"Bern\"}" END CALL "noargs" SEP "{}" END
         ENDS, "T:Hm.\nC:get_weather:{\"city\": \"Bern\"}\nE\nC:noargs:{}\nE"},
        {CALLS CALL "function" SEP "get_weather\n```json\n{\"city\": \"Bern\"}\n```" END "\n" CALL
         "function" SEP "noargs\n```json\n{}\n```" END ENDS,
         "C:get_weather:{\"city\": \"Bern\"}\nE\nC:noargs:{}\nE"},
        {CALL "noargs" SEP "{}" END, "C:noargs:{}\nE"},
    };
    const struct output_run r1 = {.format = "deepseek-r1"}, v3 = {.format = "deepseek"};
    check(&r1, rows, countof(rows));
    check(&v3, rows, countof(rows));
}

static void test_llama3_bare_or_behind_the_python_tag(void **state)
{
    (void)state;
    const struct output_run r = {.format = "llama3"};
    static const struct row rows[] = {
        {"{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}",
         "C:get_weather:{\"city\": \"Bern\"}\nE"},
        {"\n{\"type\": \"function\", \"name\": \"noargs\", \"parameters\": {}}", "C:noargs:{}\nE"},
        {"<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {}}", "C:get_weather:{}\nE"},
        {"{\"name\": \"noargs\", \"parameters\": {}}; {\"name\": \"search\", \"parameters\": {}}",
         "C:noargs:{}\nE\nC:search:{}\nE"},
        /* JSON that is an answer: another first key, a name that is no tool. */
        {"{\"title\": \"x\"}", "T:{\"title\": \"x\"}"},
        {"{\"name\": \"Anna\", \"age\": 3}", "T:{\"name\": \"Anna\", \"age\": 3}"},
        {"Look: {\"name\": \"noargs\", \"parameters\": {}}",
         "T:Look: {\"name\": \"noargs\", \"parameters\": {}}"},
    };
    check(&r, rows, countof(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes_calls_and_the_prose_around_them),
        cmocka_unit_test(test_B10_B14_a_malformed_call_is_shown_once_as_text),
        cmocka_unit_test(test_what_was_streamed_of_a_call_that_breaks_stands_and_has_no_end),
        cmocka_unit_test(test_a_reply_whose_calls_are_whole_says_so),
        cmocka_unit_test(test_one_call_ends_the_reply_where_the_request_says_so),
        cmocka_unit_test(test_without_tools_markers_are_text),
        cmocka_unit_test(test_stop_strings_apply_to_content_alone),
        cmocka_unit_test(test_hermes_models_that_forget_the_opener_are_understood),
        cmocka_unit_test(test_a_call_without_opener_is_whole_or_text),
        cmocka_unit_test(test_a_strict_tool_is_called_only_as_a_grammar_binds_it),
        cmocka_unit_test(test_a_forced_call_flows_and_shows_nothing_of_its_markup),
        cmocka_unit_test(test_names_may_need_escapes),
        cmocka_unit_test(test_mistral_in_both_forms),
        cmocka_unit_test(test_deepseek_in_both_forms),
        cmocka_unit_test(test_llama3_bare_or_behind_the_python_tag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
