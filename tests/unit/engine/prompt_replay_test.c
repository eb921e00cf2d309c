/* Where a rendered prompt has room for a reply's own tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "engine/prompt_replay.h"
#include "unit/engine/engine_vocab.h"

#define HASH UINT64_C(0x77)
#define END 3 /* the vocabulary's last token */

/* ChatML that shows reasoning only behind the last question, as Qwen3's does. */
static const char chat_template[] =
    "{%- set ns = namespace(last=0) %}"
    "{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
    "{%- endfor %}"
    "{%- for m in messages %}"
    "{{- '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.reasoning_content and loop.index0 > ns.last %}"
    "{{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{%- endif %}"
    "{{- m.content }}"
    "{%- for c in m.tool_calls %}"
    "{{- '<tool_call>\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' }}"
    "{{- c.function.arguments | tojson }}{{- '}\n</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";

struct bench {
    struct vocab *vocab;
    struct arena a;
    struct prompt_model m;
    struct render *render;
};

static void bench_open(struct bench *b)
{
    static const char *const texts[] = {"a", "b", "c", "<|im_end|>"};
    const struct render_source src = {.chat_template = str_of(chat_template)};
    struct err e;
    arena_init(&b->a, (size_t)1 << 24);
    b->vocab = engine_vocab_new(texts, countof(texts));
    if (!render_new(&b->render, &src, &b->a, &e))
        fail_msg("%s", e.text);
    b->m = (struct prompt_model){.vocab = b->vocab, .render = b->render, .model_hash = HASH};
}

static void bench_close(struct bench *b)
{
    vocab_free(b->vocab);
    arena_deinit(&b->a);
}

#define TEXT(s) {.kind = API_PART_TEXT, .text = STR_INIT(s)}
static const struct api_part asks[] = {TEXT("Read <|im_end|> a.txt")};
static const struct api_part says[] = {TEXT("Reading.")};
static const struct api_part thinks[] = {{.kind = API_PART_REASONING, .text = STR_INIT("Hm.")},
                                         TEXT("Reading.")};
static const struct api_part calls[] = {
    {.kind = API_PART_REASONING, .text = STR_INIT("Hm.")},
    {.kind = API_PART_CALL, .id = STR_INIT("call_1"), .name = STR_INIT("read"),
     .text = STR_INIT("{\"path\":   \"a.txt\"}")}};
static const struct api_part returns[] = {
    {.kind = API_PART_RESULT, .id = STR_INIT("call_1"), .text = STR_INIT("<|im_end|>")}};
static const int32_t ids[] = {0, 1, END};
static const int32_t cut[] = {0, 1};

#define MESSAGE(role_, parts_) {.role = API_ROLE_##role_, .parts = parts_, \
                                .parts_count = countof(parts_)}
#define REPLY(parts_, ids_) {.role = API_ROLE_ASSISTANT, .parts = parts_, \
                             .parts_count = countof(parts_), .ids = ids_, \
                             .ids_count = countof(ids_)}

/* The text of each region and how many ids it has, or that there is none. */
struct row {
    struct api_message messages[4];
    uint32_t count;
    const char *region;
    uint32_t ids_count;
};
static const struct row rows[] = {
    {{MESSAGE(USER, asks), REPLY(says, ids), MESSAGE(USER, asks)}, 3, "Reading.<|im_end|>", 3},
    {{MESSAGE(USER, asks), REPLY(says, cut), MESSAGE(USER, asks)}, 3, "Reading.", 2},
    /* The template leaves the reasoning of an older turn out: its ids would bring it back. */
    {{MESSAGE(USER, asks), REPLY(thinks, ids), MESSAGE(USER, asks)}, 3, NULL, 0},
    {{MESSAGE(USER, asks), REPLY(calls, ids), MESSAGE(TOOL, returns)}, 3,
     "<think>\nHm.\n</think>\n\n<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": "
     "\"a.txt\"}}\n</tool_call><|im_end|>", 3},
    {{MESSAGE(USER, asks), MESSAGE(ASSISTANT, says), MESSAGE(USER, asks)}, 3, NULL, 0},
};

static void test_a_reply_is_found_between_its_opening_and_the_end_of_its_turn(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b);
    assert_true(str_eq_z(render_opening(b.render), "<|im_start|>assistant\n"));
    for (size_t i = 0; i < countof(rows); i++) {
        struct prompt_region out[4];
        struct render_result r;
        struct api_request rq;
        struct api_error e;
        api_request_init(&rq);
        rq.messages = rows[i].messages;
        rq.messages_count = rows[i].count;
        rq.ids_hash = HASH;
        if (!render_request(b.render, &rq, &b.a, &r, &e))
            fail_msg("%s", e.err.text);
        struct prompt_regions found = {.rows = out};
        prompt_replay_find(&b.m, &rq, &r, &found);
        assert_int_equal(found.count, rows[i].region != NULL);
        if (found.count) {
            str got = str_sub(r.text, out[0].from, out[0].to - out[0].from);
            if (!str_eq_z(got, rows[i].region))
                fail_msg("row %zu: %.*s", i, STR_ARG(got));
            assert_int_equal(out[0].ids_count, rows[i].ids_count);
        }
        rq.ids_hash = HASH + 1; /* another model's */
        prompt_replay_find(&b.m, &rq, &r, &found);
        assert_int_equal(found.count, 0);
    }
    bench_close(&b);
}

/* What an unfinished turn had said; NULL: there is none. */
static void test_an_unfinished_turn_begins_where_its_model_had_begun_to_speak(void **state)
{
    static const struct {
        struct api_message messages[2];
        bool goes_on;
        const char *said;
    } open[] = {
        {{MESSAGE(USER, asks), MESSAGE(ASSISTANT, says)}, true, "Reading."},
        {{MESSAGE(USER, asks), MESSAGE(ASSISTANT, thinks)}, true,
         "<think>\nHm.\n</think>\n\nReading."},
        {{MESSAGE(USER, asks), MESSAGE(USER, asks)}, false, NULL},
    };
    struct bench b;
    (void)state;
    bench_open(&b);
    for (size_t i = 0; i < countof(open); i++) {
        struct render_result r;
        struct api_request rq;
        struct api_error e;
        api_request_init(&rq);
        rq.messages = open[i].messages;
        rq.messages_count = countof(open[i].messages);
        rq.continue_last = open[i].goes_on;
        if (!render_request(b.render, &rq, &b.a, &r, &e))
            fail_msg("%s", e.err.text);
        size_t at = prompt_replay_open_at(&b.m, &rq, &r);
        assert_true((at == STR_NONE) == (open[i].said == NULL));
        if (at != STR_NONE)
            assert_true(str_eq_z(str_sub(r.text, at, r.text.len - at), open[i].said));
    }
    bench_close(&b);
}

static void test_ids_that_the_vocabulary_lacks_are_not_used(void **state)
{
    static const int32_t wrong[] = {0, END + 1};
    static const struct api_message messages[] = {MESSAGE(USER, asks), REPLY(says, wrong),
                                                  MESSAGE(USER, asks)};
    struct prompt_region out[3];
    struct render_result r;
    struct api_request rq;
    struct api_error e;
    struct bench b;
    (void)state;
    bench_open(&b);
    api_request_init(&rq);
    rq.messages = messages;
    rq.messages_count = countof(messages);
    rq.ids_hash = HASH;
    assert_true(render_request(b.render, &rq, &b.a, &r, &e));
    struct prompt_regions found = {.rows = out, .count = 1};
    prompt_replay_find(&b.m, &rq, &r, &found);
    assert_int_equal(found.count, 0);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reply_is_found_between_its_opening_and_the_end_of_its_turn),
        cmocka_unit_test(test_an_unfinished_turn_begins_where_its_model_had_begun_to_speak),
        cmocka_unit_test(test_ids_that_the_vocabulary_lacks_are_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
