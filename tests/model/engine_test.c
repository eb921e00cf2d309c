/* The numerics contract at the level of requests: what a request answers, ids and raw logprobs bit
 * by bit, is the same alone, among 8 or 13 others, in any chunking, with 1 or 2 threads, on a
 * cached prefix, after giving way, and when another child goes on from its ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/sched.h"
#include "model/model_run.h"

#define ASKS 13u
#define REPLY_MAX 20u
#define TOPS 3u

/* Each kind of page group, experts and mixed weight types; the long tier takes every family. */
static const char *const models[] = {"llama-mixed", "gemma3-mixed", "qwen3moe-mixed",
                                     "gpt-oss-mixed"};

struct ask {
    struct api_request rq;
    struct api_input input;
    int32_t prompt[400];
};

struct answer {
    int32_t ids[REPLY_MAX];
    float logprobs[REPLY_MAX], tops[REPLY_MAX][TOPS];
    int32_t top_ids[REPLY_MAX][TOPS];
    uint32_t count, logprobs_count;
    enum api_done reason;
    bool is_done;
};

struct run_options {
    uint32_t first, count; /* which asks, at once */
    uint32_t chunk, threads, slots, batch;
    bool has_trie, twice;  /* twice: everything again, on cached prefixes */
    uint32_t squeeze;      /* pages left in each group; 0: all */
    uint32_t resume_at;    /* stop after so many tokens and go on in another scheduler */
};

static struct ask asks[ASKS];
static struct answer *answers; /* of the run at hand, by request id - 1 */
static uint32_t stop_at;       /* tokens after which a reply is left, 0: never */
static bool is_left;

static void on_batch(void *ctx, const struct api_batch *b)
{
    struct answer *a = &answers[b->request_id - 1];
    (void)ctx;
    for (uint32_t i = 0; i < b->ids_count; i++)
        a->ids[a->count++] = b->ids[i];
    for (uint32_t i = 0; i < b->events_count; i++) {
        const struct api_event *ev = &b->events[i];
        if (ev->kind == API_EVENT_ERROR)
            fail_msg("request %d: %s", (int)b->request_id, ev->error.err.text);
        if (ev->kind == API_EVENT_DONE) {
            a->is_done = true;
            a->reason = ev->done.reason;
        }
        for (uint32_t k = 0; ev->kind == API_EVENT_CONTENT && k < ev->text.logprobs_count; k++) {
            const struct api_logprob *l = &ev->text.logprobs[k];
            a->logprobs[a->logprobs_count] = l->token.logprob;
            for (uint32_t t = 0; t < l->top_count; t++) {
                a->tops[a->logprobs_count][t] = l->top[t].logprob;
                a->top_ids[a->logprobs_count][t] = l->top[t].id;
            }
            a->logprobs_count++;
        }
    }
    is_left = is_left || (stop_at && a->count >= stop_at);
}

/* Lengths around pages and chunks; greedy, drawn, with penalties. */
static void make_asks(uint32_t vocab)
{
    static const uint32_t lengths[ASKS] = {1, 5, 31, 32, 33, 64, 65, 100, 127, 110, 257, 140, 40};
    struct chrono_rng rng;
    chrono_rng_init(&rng, 42);
    for (uint32_t i = 0; i < ASKS; i++) {
        struct ask *a = &asks[i];
        for (uint32_t k = 0; k < lengths[i]; k++)
            a->prompt[k] = (int32_t)chrono_rng_below(&rng, vocab);
        if (i == 8 || i == 9) /* these begin as another one does */
            memcpy(a->prompt, asks[7].prompt, 90 * sizeof(int32_t));
        a->input = (struct api_input){.ids = a->prompt, .ids_count = lengths[i]};
        api_request_init(&a->rq);
        a->rq.id = i + 1;
        a->rq.kind = API_KIND_COMPLETE;
        a->rq.inputs = &a->input;
        a->rq.inputs_count = 1;
        a->rq.tokens_max = REPLY_MAX;
        a->rq.logprobs = 1 + TOPS;
        a->rq.ignore_eos = true;
        a->rq.seed = i * 1000003;
        a->rq.temperature = i % 3 ? 0.5f + 0.1f * (float)i : 0;
        a->rq.top_k = i % 4 == 1 ? 30 : 0;
        a->rq.top_p = i % 4 == 2 ? 0.8f : 1;
        if (i % 2) {
            a->rq.repeat_penalty = 1.2f;
            a->rq.frequency_penalty = 0.3f;
        }
    }
}

static void submit(struct sched *s, struct engine *en, uint32_t i, bool is_resumed)
{
    struct arena a;
    struct api_error e;
    arena_init(&a, 4u << 20);
    struct job *j = prompt_job(&a, &asks[i].rq);
    if (!prompt_make(&en->prompt, j, &e))
        fail_msg("%s", e.err.text);
    if (is_resumed) {
        j->begun = ARENA_NEW(&j->arena, struct prompt_begun);
        int32_t *ids = ARENA_ARRAY(&j->arena, int32_t, answers[i].count + 1);
        memcpy(ids, answers[i].ids, answers[i].count * sizeof *ids);
        *j->begun = (struct prompt_begun){ids, answers[i].count, answers[i].count, true, true};
    }
    sched_submit(s, j);
}

static void open_sched(struct sched *s, struct engine *en, const struct run_options *o)
{
    struct err e;
    struct sched_options so = {
        .backend = en->backend, .device = en->device, .prepared = en->prepared,
        .limits = en->limits, .layout = &en->layout, .pool = &en->pool,
        .trie = o->has_trie ? &en->trie : NULL, .vocab = en->prompt.vocab, .mem = &en->mem,
        .clock = chrono_real, .sink = {on_batch, NULL}, .model = en->model.name,
        .reserve_tokens = o->squeeze ? 0 : SCHED_RESERVE_TOKENS};
    if (!sched_init(s, &so, &e))
        fail_msg("%s", e.text);
    s->pace.batch = o->chunk;
}

static void run_steps(struct sched *s)
{
    struct err e;
    while (!list_is_empty(&s->jobs) && !is_left)
        if (sched_step(s, &e) != SCHED_RESULT_WORKED)
            fail_msg("the scheduler stands still");
}

static void run_once(struct engine *en, const struct run_options *o)
{
    struct sched s;
    memset(answers, 0, ASKS * sizeof *answers);
    stop_at = o->resume_at;
    is_left = false;
    open_sched(&s, en, o);
    for (uint32_t i = o->first; i < o->first + o->count; i++)
        submit(&s, en, i, false);
    run_steps(&s);
    if (o->squeeze)
        assert_true(s.stats.preemptions > 0);
    sched_deinit(&s);
    if (!is_left)
        return;
    stop_at = 0;
    is_left = false;
    open_sched(&s, en, o);
    for (uint32_t i = o->first; i < o->first + o->count; i++)
        if (!answers[i].is_done)
            submit(&s, en, i, true);
    run_steps(&s);
    sched_deinit(&s);
}

static void run(const char *model, const struct run_options *o, struct answer *out)
{
    char path[128];
    struct engine *en;
    struct err e;
    snprintf(path, sizeof path, "build/tiny/%s.gguf", model);
    struct api_load load = {.path = str_of(path), .threads = o->threads, .slots = o->slots,
                            .batch = o->batch, .no_prefix = !o->has_trie};
    if (!engine_open(&en, &load, NULL, &e))
        fail_msg("%s: %s", path, e.text);
    make_asks(vocab_count(en->prompt.vocab));
    for (uint32_t g = 0; o->squeeze && g < en->layout.groups_count; g++)
        while (kv_pool_free(&en->pool, g) > o->squeeze)
            kv_pool_alloc(&en->pool, g);
    answers = out;
    run_once(en, o);
    if (o->twice)
        run_once(en, o);
    engine_close(en);
}

static void expect_same(const char *model, const char *what, const struct answer *a,
                        const struct answer *b, const struct run_options *o, bool has_logprobs)
{
    for (uint32_t i = o->first; i < o->first + o->count; i++) {
        const struct answer *x = &a[i], *y = &b[i];
        for (uint32_t k = 0; k < x->count; k++)
            if (x->ids[k] != y->ids[k])
                fail_msg("%s, %s: request %u, token %u: %d, not %d", model, what, i, k, y->ids[k],
                         x->ids[k]);
        assert_int_equal(x->count, y->count);
        assert_int_equal(x->reason, y->reason);
        if (has_logprobs && memcmp(x, y, sizeof *x))
            fail_msg("%s, %s: request %u: a logprob differs", model, what, i);
    }
}

/* The first are for sanitizers: threads, prefixes, pages taken away. */
static const struct { const char *what; struct run_options o; } ways[] = {
    {"cached prefixes", {0, 13, .chunk = 64, .threads = 2, .slots = 6, .has_trie = true,
                         .twice = true}},
    {"giving way, cached", {1, 5, .chunk = 64, .threads = 2, .slots = 5, .squeeze = 7,
                            .has_trie = true}},
    {"13 at once", {0, 13, .chunk = 512, .threads = 1, .slots = 13}},
    {"8 at once, 2 threads", {5, 8, .chunk = 512, .threads = 2, .slots = 8}},
    {"chunks of 1", {2, 4, .chunk = 1, .threads = 1, .slots = 4}},
    {"chunks of 7", {0, 13, .chunk = 7, .threads = 2, .slots = 13}},
    {"chunks of 32", {0, 13, .chunk = 32, .threads = 1, .slots = 5}},
    {"giving way", {1, 5, .chunk = 64, .threads = 1, .slots = 5, .squeeze = 7}},
    {"resumed", {0, 13, .chunk = 100, .threads = 2, .slots = 9, .resume_at = 11}},
};

static void expect_independence(const char *model, size_t ways_count)
{
    static struct answer alone[ASKS], all[ASKS];
    for (uint32_t i = 0; i < ASKS; i++) {
        struct run_options o = {i, 1, .chunk = 512, .threads = 1, .slots = 1};
        run(model, &o, all);
        assert_true(all[i].is_done && all[i].count == REPLY_MAX);
        alone[i] = all[i];
    }
    for (size_t k = 0; k < ways_count; k++) {
        run(model, &ways[k].o, all);
        /* A resumed reply does not tell again what was told. */
        expect_same(model, ways[k].what, alone, all, &ways[k].o, !ways[k].o.resume_at);
    }
}

static bool is_among_models(const char *name)
{
    size_t m = 0;
    while (m < countof(models) && strcmp(models[m], name) != 0)
        m++;
    return m < countof(models);
}

static void test_a_reply_never_depends_on_who_else_is_served(void **state)
{
    (void)state;
    const char *tier = getenv("TEST_TIER");
    bool is_sanitized = tier && !strcmp(tier, "sanitized");
    for (size_t m = 0; m < (is_sanitized ? 1 : countof(models)); m++)
        expect_independence(models[m], is_sanitized ? 2 : countof(ways));
    const char *const *names;
    size_t names_count = model_run_tiny(&names);
    for (size_t m = 0; tier && !strcmp(tier, "long") && m < names_count; m++)
        if (!is_among_models(names[m]))
            expect_independence(names[m], countof(ways));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reply_never_depends_on_who_else_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
