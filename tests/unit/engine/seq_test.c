#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "engine/seq.h"
#include "engine_vocab.h"

/* Tokens of a reply with reasoning, prose and calls; "Ġ" is a blank and "Ċ" a line feed. */
static const char *const texts[] = {
    "<think>", "\u010a", "why", "\u0120not", "</think>", "Let", "\u0120me", "<tool_call>",
    "{\"name\":\u0120\"f\",\u0120\"arg", "uments\":\u0120{\"a\":", "\u0120\"x", "\u0120y\"}", "}",
    "</tool_call>", "p", "p\u00c3", "\u00c3", "\u00a9", "<end>"};
enum { THINK, LINE, WHY, NOT, CLOSE, LET, ME, OPEN, NAME, ARGS, X, Y, BRACE, SHUT, P, P_HALF, HALF,
       REST, END };
static const int32_t reply[] = {THINK, LINE, WHY, NOT, LINE, CLOSE, LINE, LINE, LET, ME, LINE,
                                OPEN, LINE, NAME, ARGS, X, Y, BRACE, LINE, SHUT, LINE,
                                OPEN, NAME, ARGS, X, Y, BRACE, SHUT, END};
static const int32_t close_ids[] = {LINE, CLOSE, LINE};

static struct vocab *vocab;

struct run {
    struct job *job;
    struct seq seq;
    struct buf said; /* printed events */
    struct output_tools tools;
    struct api_tool tool;
    struct prompt prompt;
    struct prompt_begun begun;
    int32_t prompt_ids[3];
};

static void start(struct run *r, const struct api_request *rq, uint32_t begun, const int32_t *ids)
{
    struct arena a;
    struct err e;
    const struct seq_options o = {.vocab = vocab};
    memset(r, 0, sizeof *r);
    arena_init(&a, 1 << 20);
    r->job = prompt_job(&a, rq);
    r->tool = (struct api_tool){.name = STR("f"), .allowed = true};
    r->job->rq.tools = &r->tool;
    r->job->rq.tools_count = 1;
    assert_true(output_tools_make(&r->tools, &r->job->rq, &r->job->arena, &e));
    r->job->reply = (struct reply){
        .format = {output_table_find(STR("hermes")), &output_table_thinks[3]}, .tools = &r->tools,
        .one_call = !rq->parallel_tool_calls, .think_tokens_max = rq->think_tokens_max,
        .close_ids = close_ids, .close_count = countof(close_ids)};
    memcpy(r->prompt_ids, (int32_t[]){P, P, LET}, sizeof r->prompt_ids);
    r->prompt = (struct prompt){r->prompt_ids, countof(r->prompt_ids)};
    r->job->prompts = &r->prompt;
    r->job->prompts_count = 1;
    r->job->context_max = 100;
    r->begun = (struct prompt_begun){.ids = ids, .count = begun, .is_there = true,
                                     .is_silent = true};
    r->job->begun = begun ? &r->begun : NULL;
    buf_init(&r->said, 1 << 16);
    if (!seq_init(&r->seq, r->job, 0, &o, &e))
        fail_msg("%s", e.text);
    r->seq.state = r->seq.state == SEQ_STATE_DONE ? SEQ_STATE_DONE : SEQ_STATE_DECODE;
}

static void finish(struct run *r);

/* Its tokens lie in the prompt, and the next one is drawn as the next of the whole reply. */
static void test_an_unfinished_turn_counts_as_reply_where_tokens_are_drawn(void **state)
{
    (void)state;
    for (uint32_t from = 0; from <= 3; from++) {
        struct run r;
        struct api_request rq;
        struct err e;
        const struct seq_options o = {.vocab = vocab};
        api_request_init(&rq);
        rq.presence_penalty = 1;
        start(&r, &rq, 0, reply);
        seq_deinit(&r.seq);
        r.job->open_from = from;
        assert_true(seq_init(&r.seq, r.job, 0, &o, &e));
        uint32_t said = from ? 3 - from : 0;
        assert_int_equal(sampler_row(&r.seq.sampler).position, said);
        assert_int_equal(seq_reply_count(&r.seq), 0);
        assert_true((map_find_number(&r.seq.sampler.reply, LET) != NULL) == (said > 0));
        assert_true((map_find_number(&r.seq.sampler.reply, P) != NULL) == (said > 1));
        finish(&r);
    }
}

static void finish(struct run *r)
{
    seq_deinit(&r->seq);
    prompt_job_free(r->job);
    buf_deinit(&r->said);
}

static void print(struct buf *out, const struct api_event *ev)
{
    str text = ev->kind == API_EVENT_CALL_ARGS ? ev->call.args
               : ev->kind == API_EVENT_CALL_BEGIN ? ev->call.name
               : ev->kind == API_EVENT_CALL_END ? STR("") : ev->text.text;
    buf_printf(out, "%s '%.*s'\n", api_event_name(ev->kind), STR_ARG(text));
    for (uint32_t i = 0; ev->kind == API_EVENT_CONTENT && i < ev->text.logprobs_count; i++)
        buf_printf(out, "  logprob %d\n", (int)ev->text.logprobs[i].token.id);
    if (ev->kind == API_EVENT_CALL_BEGIN)
        buf_printf(out, "  %.*s\n", STR_ARG(ev->call.id));
}

/* Samples ids[from ..) until the end; returns how many were taken. */
static uint32_t play(struct run *r, const int32_t *ids, uint32_t count, uint32_t from)
{
    uint32_t i = from;
    for (; i < count && r->seq.state != SEQ_STATE_DONE; i++) {
        const struct seq_sampled s = {.id = ids[i], .logprob = -1};
        struct seq_said said;
        assert_true(seq_take(&r->seq, &s, &said));
        for (uint32_t k = 0; k < said.events_count; k++)
            print(&r->said, &said.events[k]);
    }
    return i;
}

static void test_a_reply_is_told_as_reasoning_text_and_calls(void **state)
{
    (void)state;
    struct api_request rq;
    struct run r;
    api_request_init(&rq);
    start(&r, &rq, 0, reply);
    assert_int_equal(play(&r, reply, countof(reply), 0), countof(reply));
    assert_int_equal(r.seq.done, API_DONE_CALLS);
    assert_int_equal(r.seq.think_count, 6); /* up to the closer, markers included */
    assert_int_equal(r.seq.used_count, countof(reply));
    str said = buf_view(&r.said);
    assert_true(str_starts(said, STR("reasoning 'why'\nreasoning ' not'\ncontent 'Let'\n"
                                     "content ' me'\ncall_begin 'f'\n  call_")));
    str args = STR("call_args ' \"x'\ncall_args ' y\"}'\ncall_end ''\n");
    assert_true(str_find(said, args) != STR_NONE);
    assert_true(str_ends(said, STR("call_end ''\n")));
    finish(&r);
}

/* What a new child says behind the ids it was given is what the first would have said: in the
 * middle of reasoning, of an opener, of a call; ids of calls too. */
static void test_a_reply_resumed_at_any_token_says_the_rest_and_nothing_twice(void **state)
{
    (void)state;
    struct api_request rq;
    struct run whole, rest;
    size_t ends[countof(reply) + 1];
    api_request_init(&rq);
    rq.seed = 7;
    start(&whole, &rq, 0, reply);
    for (uint32_t i = 0; i < countof(reply); i++) {
        ends[i] = whole.said.len;
        play(&whole, reply, i + 1, i);
    }
    for (uint32_t cut = 1; cut < countof(reply); cut++) {
        start(&rest, &rq, cut, reply);
        assert_int_equal(seq_reply_count(&rest.seq), cut);
        assert_int_equal(rest.seq.sent_count, cut);
        play(&rest, reply, countof(reply), cut);
        str want = str_from(buf_view(&whole.said), ends[cut]);
        if (!str_eq(buf_view(&rest.said), want))
            fail_msg("cut at %u: '%.*s', not '%.*s'", cut, STR_ARG(buf_view(&rest.said)),
                     STR_ARG(want));
        assert_int_equal(rest.seq.done, whole.seq.done);
        assert_int_equal(rest.seq.think_count, whole.seq.think_count);
        finish(&rest);
    }
    finish(&whole);
}

/* The logprobs of a token whose text was held back when the first child died come with its text:
 * halves of letters, alone and behind a whole one, what may begin a stop string, reasoning. */
static void test_a_resumed_reply_has_the_logprobs_of_tokens_whose_text_was_held_back(void **state)
{
    (void)state;
    static const int32_t ids[] = {THINK, WHY, NOT, CLOSE, LET, P_HALF, REST, ME, HALF, REST, ME,
                                  LET, OPEN, NAME, ARGS, X, Y, BRACE, SHUT, OPEN, NAME, ARGS, X, Y,
                                  BRACE, SHUT, END};
    static const str stops[] = {STR_INIT(" meLet!")};
    struct api_request rq;
    struct run whole, rest;
    size_t ends[countof(ids) + 1];
    uint32_t again = 0;
    api_request_init(&rq);
    rq.logprobs = 1;
    rq.seed = 7;
    rq.stop = stops;
    rq.stop_count = countof(stops);
    start(&whole, &rq, 0, ids);
    for (uint32_t i = 0; i < countof(ids); i++) {
        ends[i] = whole.said.len;
        play(&whole, ids, i + 1, i);
    }
    assert_true(str_find(buf_view(&whole.said), STR("  logprob 17\n")) != STR_NONE);
    for (uint32_t cut = 1; cut < countof(ids); cut++) {
        start(&rest, &rq, cut, ids);
        uint32_t fed = seq_reply_count(&rest.seq);
        assert_true(fed <= cut);
        again += cut - fed;
        assert_int_equal(rest.seq.sent_count, cut);
        play(&rest, ids, cut, fed);
        assert_int_equal(rest.said.len, 0);
        assert_int_equal(seq_unsent_count(&rest.seq), 0);
        play(&rest, ids, countof(ids), cut);
        str want = str_from(buf_view(&whole.said), ends[cut]);
        if (!str_eq(buf_view(&rest.said), want))
            fail_msg("cut at %u: '%.*s', not '%.*s'", cut, STR_ARG(buf_view(&rest.said)),
                     STR_ARG(want));
        assert_int_equal(rest.seq.done, whole.seq.done);
        assert_int_equal(rest.seq.used_count, whole.seq.used_count);
        assert_int_equal(rest.seq.think_count, whole.seq.think_count);
        finish(&rest);
    }
    assert_true(again > 0 && again < 2 * countof(ids)); /* a few tokens, not the whole reply */
    finish(&whole);
}

static void test_logprobs_belong_to_content_alone(void **state)
{
    (void)state;
    struct api_request rq;
    struct run r;
    api_request_init(&rq);
    rq.logprobs = 1;
    start(&r, &rq, 0, reply);
    play(&r, reply, countof(reply), 0);
    str said = buf_view(&r.said), line;
    uint32_t count = 0;
    while (str_split(&said, '\n', &line))
        count += str_starts(line, STR("  logprob"));
    assert_int_equal(count, 2); /* "Let", " me" */
    assert_true(str_find(buf_view(&r.said), STR("content 'Let'\n  logprob 5\n")) != STR_NONE);
    finish(&r);
}

static void test_a_spent_budget_closes_the_reasoning_by_force(void **state)
{
    (void)state;
    static const int32_t endless[] = {THINK, WHY, NOT, NOT, NOT, NOT, NOT, NOT, LET, ME, END};
    struct api_request rq;
    struct run r;
    api_request_init(&rq);
    rq.think_tokens_max = 3;
    start(&r, &rq, 0, reply);
    play(&r, endless, countof(endless), 0);
    assert_int_equal(r.seq.done, API_DONE_EOS);
    const int32_t *ids = seq_ids(&r.seq) + r.seq.prompt_count;
    assert_memory_equal(ids + 3, close_ids, sizeof close_ids);
    assert_int_equal(ids[6], NOT);
    assert_true(str_eq_z(buf_view(&r.said),
                         "reasoning 'why'\nreasoning ' not'\ncontent 'not'\ncontent ' not'\n"
                         "content 'Let'\ncontent ' me'\n"));
    finish(&r);
}

static void test_A15_without_parallel_calls_the_first_one_ends_the_reply(void **state)
{
    (void)state;
    struct api_request rq;
    struct run r;
    api_request_init(&rq);
    rq.parallel_tool_calls = false;
    start(&r, &rq, 0, reply);
    play(&r, reply, countof(reply), 0);
    assert_int_equal(r.seq.done, API_DONE_TOOL_LIMIT);
    assert_true(str_ends(buf_view(&r.said), STR("call_end ''\n")));
    assert_int_equal(r.seq.output.calls_begun, 1);
    finish(&r);
}

static void test_G24_a_cut_call_never_ends_with_a_finish_that_promises_one(void **state)
{
    (void)state;
    for (uint32_t max = 1; max < countof(reply); max++) {
        struct api_request rq;
        struct run r;
        api_request_init(&rq);
        rq.tokens_max = max;
        start(&r, &rq, 0, reply);
        play(&r, reply, countof(reply), 0);
        assert_int_equal(r.seq.done, API_DONE_MAX_TOKENS);
        assert_true(str_find(buf_view(&r.said), STR("<")) == STR_NONE);
        finish(&r);
    }
    /* The model itself ends inside its second call. */
    static const int32_t ends[] = {OPEN, NAME, ARGS, X, Y, BRACE, SHUT, OPEN, NAME, ARGS, X, END};
    struct api_request rq;
    struct run r;
    api_request_init(&rq);
    start(&r, &rq, 0, reply);
    play(&r, ends, countof(ends), 0);
    assert_int_equal(r.seq.done, API_DONE_EOS);
    finish(&r);
}

static int setup(void **state)
{
    (void)state;
    vocab = engine_vocab_new(texts, countof(texts));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    vocab_free(vocab);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reply_is_told_as_reasoning_text_and_calls),
        cmocka_unit_test(test_a_reply_resumed_at_any_token_says_the_rest_and_nothing_twice),
        cmocka_unit_test(test_an_unfinished_turn_counts_as_reply_where_tokens_are_drawn),
        cmocka_unit_test(
            test_a_resumed_reply_has_the_logprobs_of_tokens_whose_text_was_held_back),
        cmocka_unit_test(test_logprobs_belong_to_content_alone),
        cmocka_unit_test(test_a_spent_budget_closes_the_reasoning_by_force),
        cmocka_unit_test(test_A15_without_parallel_calls_the_first_one_ends_the_reply),
        cmocka_unit_test(test_G24_a_cut_call_never_ends_with_a_finish_that_promises_one),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
