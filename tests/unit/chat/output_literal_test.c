#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "output_run.h"

#define Q(text) "<|\"|>" text "<|\"|>"

static void test_B11_own_literals_become_json(void **state)
{
    (void)state;
    static const struct {
        const char *text, *lines;
    } rows[] = {
        {"Hm. <|tool_call>call:get_weather{city:" Q("Bern \"x\"\n{,}") ",days:3}<tool_call|>",
         "T:Hm.\nC:get_weather:{\"city\": \"Bern \\\"x\\\"\\n{,}\", \"days\": 3}\nE"},
        {"<|tool_call>call:search{filters:[{k:" Q("a") ",v:1.0},[],{}],opt:null,exact:true}"
         "<tool_call|><|tool_call>call:noargs{}<tool_call|>",
         "C:search:{\"filters\": [{\"k\": \"a\", \"v\": 1.0}, [], {}], \"opt\": null, \"exact\": "
         "true}\nE\nC:noargs:{}\nE"},
        {"<|tool_call>call:search{q:bare words,mix:-1e5,filters:[" Q("a") "," Q("b") ",1]}"
         "<tool_call|>", "C:search:{\"q\": \"bare words\", \"mix\": -1e5, \"filters\": [\"a\", "
         "\"b\", 1]}\nE"},
        {"<|tool_call>call:search{q:" Q("it's \"q\" \\ \n{\"a\":1} <b> <| \"|>") "}<tool_call|>",
         "C:search:{\"q\": \"it's \\\"q\\\" \\\\ \\n{\\\"a\\\":1} <b> <| \\\"|>\"}\nE"},
        {"<|tool_call>nothing<tool_call|>", "T:<|tool_call>nothing<tool_call|>"},
        {"<|tool_call>call:search{q:" Q("a") "]}<tool_call|>", "C:search:{\"q\": \"a\"\nT:]}"},
        {"<|tool_call>call:search{q:<|\"|>ab", "C:search:{\"q\": \"ab"},
    };
    const struct output_run r = {.format = "gemma4"};
    for (size_t i = 0; i < countof(rows); i++)
        output_run_check(&r, rows[i].text, rows[i].lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B11_own_literals_become_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
