#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/load.h"

/* What a server may send for one reply, and what must be seen in it. */
static const struct {
    const char *dialect, *events[4][2]; /* name, data */
    const char *text, *kind;
    uint64_t prompt, cached, output;
    bool is_done, has_usage, has_cached;
} replies[] = {
    {"chat",
     {{"", "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}"},
      {"", "{\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}"},
      {"", "{\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"length\"}]}"},
      {"", "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,"
           "\"prompt_tokens_details\":{\"cached_tokens\":4}}}"}},
     "ab", "", 9, 4, 2, true, true, true},
    {"chat",
     {{"", "{\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}],"
           "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1},\"timings\":{\"cache_n\":3}}"}},
     "a", "", 9, 3, 1, true, true, true},
    {"chat", {{"", "{\"error\":{\"message\":\"full\"}}"}}, "", "error event", 0, 0, 0, 0, 0, 0},
    {"completions",
     {{"", "{\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}"},
      {"", "{\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}],"
           "\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}"}},
     "ab", "", 7, 0, 2, true, true, false},
    {"anthropic",
     {{"message_start", "{\"message\":{\"usage\":{\"input_tokens\":5,"
                        "\"cache_read_input_tokens\":20,\"output_tokens\":1}}}"},
      {"content_block_delta", "{\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}"},
      {"message_delta", "{\"delta\":{\"stop_reason\":\"x\"},\"usage\":{\"output_tokens\":3}}"},
      {"message_stop", "{}"}},
     "a", "", 25, 20, 3, true, true, true},
    {"responses",
     {{"response.reasoning_summary_text.delta",
       "{\"type\":\"response.reasoning_summary_text.delta\",\"delta\":\"a\"}"},
      {"response.output_text.delta", "{\"type\":\"response.output_text.delta\",\"delta\":\"b\"}"},
      {"response.incomplete",
       "{\"type\":\"response.incomplete\",\"response\":{\"usage\":{\"input_tokens\":9,"
       "\"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":2}}}"}},
     "ab", "", 9, 4, 2, true, true, true},
    {"responses",
     {{"response.failed", "{\"type\":\"response.failed\",\"response\":{\"error\":"
                          "{\"code\":\"server_error\",\"message\":\"full\"}}}"}},
     "", "error event", 0, 0, 0, 0, 0, 0},
    {"ollama",
     {{"", "{\"message\":{\"thinking\":\"a\",\"content\":\"\"},\"done\":false}"},
      {"", "{\"message\":{\"content\":\"b\"},\"done\":false}"},
      {"", "{\"message\":{\"content\":\"\"},\"done\":true,\"prompt_eval_count\":8,"
           "\"eval_count\":2}"}},
     "ab", "", 8, 0, 2, true, true, false},
    {"ollama", {{"", "{\"error\":\"model not found\"}"}}, "", "error event", 0, 0, 0, 0, 0, 0},
};

static void read_event(struct load_call *call, const char *name, const char *data)
{
    static const struct json_options options = {.depth_max = 16};
    struct json event;
    struct err e;
    assert_true(json_parse(&event, str_of(data), &options, &call->arena, &e));
    call->dialect->read(call, str_of(name), event);
}

static void test_each_dialect_tells_text_counts_end_and_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(replies); i++) {
        struct load_call call = {.dialect = load_dialect_find(str_of(replies[i].dialect))};
        arena_init(&call.arena, 4u << 20);
        buf_init(&call.text, 1000);
        buf_add_z(&call.text, "");
        for (size_t k = 0; k < 4 && replies[i].events[k][0]; k++)
            read_event(&call, replies[i].events[k][0], replies[i].events[k][1]);
        if (!str_eq_z(buf_view(&call.text), replies[i].text) ||
            strcmp(call.kind, replies[i].kind) != 0 || call.is_done != replies[i].is_done ||
            call.has_usage != replies[i].has_usage || call.has_cached != replies[i].has_cached ||
            call.prompt_tokens != replies[i].prompt ||
            call.cached_tokens != replies[i].cached || call.output_tokens != replies[i].output)
            fail_msg("reply %zu (%s): text %.*s, kind \"%s\"", i, replies[i].dialect,
                     STR_ARG(buf_view(&call.text)), call.kind);
        assert_int_equal(call.events, strlen(replies[i].text));
        buf_deinit(&call.text);
        arena_deinit(&call.arena);
    }
}

static const struct {
    const char *dialect, *body;
} bodies[] = {
    {"chat",
     "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\","
     "\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"r\"},{\"role\":\"user\",\"content\":"
     "\"p\"}],\"max_tokens\":5,\"temperature\":0,\"stream\":true,\"stream_options\":"
     "{\"include_usage\":true},\"ignore_eos\":true}"},
    {"completions",
     "{\"model\":\"m\",\"prompt\":\"s\\n\\nqr\\n\\np\",\"max_tokens\":5,\"temperature\":0,"
     "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"ignore_eos\":true}"},
    {"anthropic",
     "{\"model\":\"m\",\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
     "{\"role\":\"assistant\",\"content\":\"r\"},{\"role\":\"user\",\"content\":\"p\"}],"
     "\"max_tokens\":5,\"temperature\":0,\"stream\":true}"},
    {"responses",
     "{\"model\":\"m\",\"instructions\":\"s\",\"input\":[{\"role\":\"user\",\"content\":\"q\"},"
     "{\"role\":\"assistant\",\"content\":\"r\"},{\"role\":\"user\",\"content\":\"p\"}],"
     "\"max_output_tokens\":5,\"temperature\":0,\"store\":false,\"stream\":true}"},
    {"ollama",
     "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\","
     "\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"r\"},{\"role\":\"user\",\"content\":"
     "\"p\"}],\"stream\":true,\"options\":{\"num_predict\":5,\"num_ctx\":64,\"temperature\":0}}"},
};

static void test_each_dialect_asks_the_whole_conversation(void **state)
{
    const struct load_turn turns[] = {{STR_INIT("q"), STR_INIT("r")}, {STR_INIT("p"), {0}}};
    (void)state;
    for (size_t i = 0; i < countof(bodies); i++) {
        struct buf out;
        buf_init(&out, 4000);
        struct load_body b = {.model = STR("m"), .system = STR("s"), .turns = turns,
                              .turns_count = 2, .out = 5, .context = 64};
        load_dialect_find(str_of(bodies[i].dialect))->put(&out, &b);
        assert_string_equal(out.p, bodies[i].body);
        buf_deinit(&out);
    }
    assert_null(load_dialect_find(STR("smtp")));
}

static void test_quantiles_and_medians_are_those_of_the_sorted_values(void **state)
{
    float items[] = {5, 1, 4, 2, 3};
    struct load_samples s = {items, 5, 5}, none = {0};
    (void)state;
    assert_float_equal(load_run_quantile(&s, 0.5), 3, 0);
    assert_float_equal(load_run_quantile(&s, 0.95), 5, 0);
    assert_float_equal(load_run_quantile(&s, 0), 1, 0);
    assert_true(isnan(load_run_quantile(&none, 0.5)));
    assert_float_equal(load_run_median((const double[]){3, 1, 2}, 3), 2, 0);
    assert_float_equal(load_run_median((const double[]){4, 1, 3, 2}, 4), 2.5, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_dialect_tells_text_counts_end_and_errors),
        cmocka_unit_test(test_each_dialect_asks_the_whole_conversation),
        cmocka_unit_test(test_quantiles_and_medians_are_those_of_the_sorted_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
