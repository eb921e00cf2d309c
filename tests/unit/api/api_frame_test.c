#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_frame.h"

/* A tiny generator of its own, so that this test needs nothing but api. */
static uint64_t rng_state;
static uint32_t rng(uint32_t below)
{
    rng_state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = rng_state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) % below);
}

static str rng_text(struct arena *a, uint32_t len_max)
{
    static const char *const words[] = {"", "a", "é", "漢字", "\n", "<|im_end|>", "\"x\":", "😀"};
    uint32_t count = rng(len_max + 1);
    str s = {NULL, 0};
    for (uint32_t i = 0; i < count; i++)
        s = arena_printf(a, "%.*s%s", STR_ARG(s), words[rng(countof(words))]);
    return s;
}

static str rng_name(struct arena *a) { return arena_printf(a, "name-%u", rng(1000)); }

static const int32_t *rng_ids(struct arena *a, uint32_t *count)
{
    *count = rng(4) ? 0 : rng(40);
    int32_t *ids = *count ? ARENA_ARRAY(a, int32_t, *count) : NULL;
    for (uint32_t i = 0; i < *count; i++)
        ids[i] = (int32_t)rng(150000);
    return ids;
}

static void rng_message(struct arena *a, struct api_message *m)
{
    m->role = rng(API_ROLE_COUNT_);
    m->name = rng(3) ? STR("") : rng_name(a);
    m->parts_count = rng(4);
    struct api_part *p = m->parts_count ? ARENA_ARRAY(a, struct api_part, m->parts_count) : NULL;
    m->parts = p;
    for (uint32_t i = 0; i < m->parts_count; i++)
        p[i] = (struct api_part){.kind = rng(API_PART_COUNT_), .text = rng_text(a, 6),
                                 .id = rng_text(a, 1), .name = rng_name(a),
                                 .name_space = rng_text(a, 1), .media_type = STR("image/png"),
                                 .is_error = rng(2)};
    m->ids = rng_ids(a, &m->ids_count);
}

static void rng_request_lists(struct arena *a, struct api_request *rq)
{
    rq->messages_count = 1 + rng(5);
    struct api_message *m = ARENA_ARRAY(a, struct api_message, rq->messages_count);
    rq->messages = m;
    for (uint32_t i = 0; i < rq->messages_count; i++)
        rng_message(a, &m[i]);
    rq->inputs_count = 1 + rng(3);
    struct api_input *in = ARENA_ARRAY(a, struct api_input, rq->inputs_count);
    rq->inputs = in;
    for (uint32_t i = 0; i < rq->inputs_count; i++) {
        in[i].text = rng_text(a, 10);
        in[i].ids = rng_ids(a, &in[i].ids_count);
    }
    rq->tools_count = rng(4);
    struct api_tool *t = rq->tools_count ? ARENA_ARRAY(a, struct api_tool, rq->tools_count) : NULL;
    rq->tools = t;
    for (uint32_t i = 0; i < rq->tools_count; i++)
        t[i] = (struct api_tool){.kind = rng(API_TOOL_COUNT_), .name = rng_name(a),
                                 .name_space = rng_text(a, 1), .description = rng_text(a, 9),
                                 .schema = STR("{}"), .strict = rng(2), .allowed = true,
                                 .path = rng_text(a, 1)};
    rq->stop_count = rng(3);
    str *stop = rq->stop_count ? ARENA_ARRAY(a, str, rq->stop_count) : NULL;
    rq->stop = stop;
    for (uint32_t i = 0; i < rq->stop_count; i++)
        stop[i] = rng_name(a);
    rq->bias_count = rng(3);
    struct api_bias *bias = rq->bias_count ? ARENA_ARRAY(a, struct api_bias, rq->bias_count) : NULL;
    rq->bias = bias;
    for (uint32_t i = 0; i < rq->bias_count; i++)
        bias[i] = (struct api_bias){(int32_t)rng(1000), (float)rng(200) - 100};
    rq->stop_ids = rng_ids(a, &rq->stop_ids_count);
    rq->notes_count = rng(3);
    struct api_note *n = rq->notes_count ? ARENA_ARRAY(a, struct api_note, rq->notes_count) : NULL;
    rq->notes = n;
    for (uint32_t i = 0; i < rq->notes_count; i++)
        n[i] = (struct api_note){rng_name(a), rng_text(a, 4)};
}

static void rng_request(struct arena *a, struct api_request *rq)
{
    api_request_init(rq);
    rq->kind = rng(API_KIND_COUNT_);
    rq->id = 1 + rng(1000000);
    rq->given = rng(1u << 20);
    rq->model = rng_name(a);
    rq->leg = rng_text(a, 1);
    rq->format = (struct api_format){rng(API_FORMAT_COUNT_), rng_text(a, 3), rng_text(a, 1), 1,
                                     rng_text(a, 1)};
    rq->stream = rng(2);
    rq->echo = rng(2);
    rq->ignore_eos = rng(2);
    rq->temperature = (float)rng(50) / 10;
    rq->top_k = rng(100);
    rq->repeat_last = rng(2) ? API_REPEAT_ALL : rng(100);
    rq->n = 1 + rng(4);
    rq->logprobs = rng(21);
    rq->seed = (uint64_t)rng(UINT32_MAX) << 32 | rng(UINT32_MAX);
    rq->think = rng(API_THINK_COUNT_);
    rq->effort = rng(API_EFFORT_COUNT_);
    rq->cache = rng(API_CACHE_COUNT_);
    rq->scope = rng_text(a, 1);
    rq->time_s = (int64_t)rng(2000000000) - 5;
    rq->keep_alive_ms = (int64_t)rng(1000) - 500;
    rng_request_lists(a, rq);
    if (rng(3) == 0) {
        struct api_resume *r = ARENA_NEW(a, struct api_resume);
        struct api_partial *p = ARENA_NEW(a, struct api_partial);
        *p = (struct api_partial){.choice = 0, .tokens_used = rng(50)};
        rng_message(a, &p->message);
        *r = (struct api_resume){.model_hash = rng(UINT32_MAX), .partials = p, .partials_count = 1};
        rq->resume = r;
    }
}

static void rng_event(struct arena *a, struct api_event *ev)
{
    *ev = (struct api_event){.kind = rng(API_EVENT_COUNT_)};
    switch (ev->kind) {
    case API_EVENT_QUEUED:
        ev->queued = (struct api_queued){rng(9), rng(9999), rng(9), rng(9), rng(9), 1, 2, 3};
        break;
    case API_EVENT_PROGRESS:
        ev->progress = (struct api_progress){rng(9), rng(99), 1.5f};
        break;
    case API_EVENT_STARTED:
        ev->started = (struct api_started){rng_name(a), rng_name(a), rng(99), rng(9), rng(9),
                                           0};
        break;
    case API_EVENT_NOTE:
        ev->note = (struct api_note){rng_name(a), rng_text(a, 3)};
        break;
    case API_EVENT_REASONING: case API_EVENT_CONTENT: {
        ev->text.text = rng_text(a, 5);
        ev->text.logprobs_count = rng(3);
        struct api_logprob *l = ARENA_ARRAY(a, struct api_logprob, 1 + ev->text.logprobs_count);
        ev->text.logprobs = ev->text.logprobs_count ? l : NULL;
        for (uint32_t i = 0; i < ev->text.logprobs_count; i++) {
            struct api_top *top = ARENA_NEW(a, struct api_top);
            *top = (struct api_top){(int32_t)rng(9), -1, STR("\xff")};
            l[i] = (struct api_logprob){{5, -0.5f, STR("x")}, top, 1};
        }
        break;
    }
    case API_EVENT_CALL_BEGIN: case API_EVENT_CALL_ARGS: case API_EVENT_CALL_END:
        ev->call = (struct api_call){rng(4), rng(API_TOOL_COUNT_), rng_name(a), rng_name(a),
                                     rng_text(a, 1), rng_text(a, 4)};
        break;
    case API_EVENT_EMBEDDING: {
        float *f = ARENA_ARRAY(a, float, 8);
        f[3] = 1.25f;
        ev->embedding = (struct api_embedding){rng(3), f, 8, rng(2)};
        break;
    }
    case API_EVENT_TOKENS: {
        uint32_t count;
        const int32_t *ids = rng_ids(a, &count);
        ev->tokens = (struct api_tokens){rng(3), count, ids, rng_text(a, 2), NULL};
        break;
    }
    case API_EVENT_MODELS: {
        struct api_model *m = ARENA_NEW(a, struct api_model);
        *m = (struct api_model){.name = rng_name(a), .caps = API_CAP_TOOLS, .info = STR("{}"),
                                .state = rng(API_MODEL_STATE_COUNT_), .expires_s = -1};
        ev->models = (struct api_models){m, 1};
        break;
    }
    case API_EVENT_USAGE:
        ev->usage = (struct api_usage){1, 2, 3, rng(9), 5, 6, 7, 12, 8, rng(9), 10, 11,
                                       {{7, (uint8_t)rng(256)}, rng(9), rng(999)}};
        break;
    case API_EVENT_PARKED:
        ev->parked.on = rng(2);
        break;
    case API_EVENT_DONE:
        ev->done = (struct api_finish){rng(API_DONE_COUNT_), rng_text(a, 1)};
        break;
    case API_EVENT_ERROR:
        api_error_set(&ev->error, ERR_CONTEXT, "x", STR("messages"), "%u tokens", rng(9));
        ev->error.prompt_tokens = rng(9);
        break;
    case API_EVENT_COUNT_:
        break;
    }
}

static void rng_look(struct arena *a, struct api_look *l)
{
    struct api_prefix *p = ARENA_ARRAY(a, struct api_prefix, 3);
    for (uint32_t i = 0; i < 3; i++)
        p[i] = (struct api_prefix){{(uint8_t)rng(256), (uint8_t)rng(256)}, rng(99), rng(9999)};
    l->prefixes_count = rng(4);
    l->prefixes = l->prefixes_count ? p : NULL;
}

static void rng_beat(struct api_beat *b)
{
    *b = (struct api_beat){.step = rng(99), .preemptions = rng(9), .recomputed_tokens = rng(99),
                           .pages = {rng(9), rng(9)}, .phase = rng(API_PHASE_COUNT_),
                           .tier = {rng(99), rng(99), rng(99), rng(99), rng(99), rng(2)},
                           .running = rng(9), .prefill_tokens_per_s = 12.5f};
    b->steps[rng(API_STEP_COUNT_)].counts[rng(API_STEP_BUCKETS + 1)] = rng(99);
    b->steps[API_STEP_PREFILL].ns = rng(99);
}

static void rng_frame(struct arena *a, enum api_frame_kind kind, struct api_frame *f)
{
    *f = (struct api_frame){.kind = kind, .id = 1 + rng(99)};
    switch (kind) {
    case API_FRAME_SUBMIT:
        rng_request(a, &f->submit);
        f->id = f->submit.id;
        break;
    case API_FRAME_BATCH: {
        f->batch.choice = rng(4);
        f->batch.ids = rng_ids(a, &f->batch.ids_count);
        f->batch.events_count = rng(5);
        struct api_event *ev = ARENA_ARRAY(a, struct api_event, 1 + f->batch.events_count);
        f->batch.events = f->batch.events_count ? ev : NULL;
        for (uint32_t i = 0; i < f->batch.events_count; i++)
            rng_event(a, &ev[i]);
        break;
    }
    case API_FRAME_LOAD:
        f->load = (struct api_load){.path = rng_name(a), .slots = rng(9), .no_prefix = rng(2),
                                    .backend = rng_text(a, 5), .layers = rng(99),
                                    .activations = rng(API_ACTIVATIONS_COUNT_),
                                    .tool_grammar = rng(API_TOOL_GRAMMAR_COUNT_)};
        break;
    case API_FRAME_DESCRIBED: case API_FRAME_LOADED:
        f->model = (struct api_model){.name = rng_name(a), .context_max = rng(9999)};
        break;
    case API_FRAME_DESCRIBE: case API_FRAME_UNPIN: case API_FRAME_STATS:
        f->path = rng_text(a, 9);
        break;
    case API_FRAME_DROP:
        f->drop = (struct api_drop){rng_text(a, 5), rng_text(a, 5), rng_text(a, 5), rng(2),
                                    rng(8)};
        break;
    case API_FRAME_DROPPED:
        f->dropped = (struct api_dropped){rng(99), rng(9999)};
        break;
    case API_FRAME_LOOK:
        rng_look(a, &f->look);
        break;
    case API_FRAME_LOOKED:
        f->places = str_view("\2\0\3", rng(4));
        break;
    case API_FRAME_CREDIT:
        f->credit.bytes = rng(99999);
        break;
    case API_FRAME_HOLD:
        f->hold.on = rng(2);
        break;
    case API_FRAME_HELLO:
        f->hello = (struct api_hello){STR("0123456789abcdef"), STR("0.1.0"), rng(99999)};
        break;
    case API_FRAME_LOADING:
        f->loading = (struct api_loading){rng(99), rng(999)};
        break;
    case API_FRAME_BEAT:
        rng_beat(&f->beat);
        break;
    case API_FRAME_FAULT:
        err_set(&f->fault, ERR_DEVICE, "device lost at step %u", rng(99));
        break;
    case API_FRAME_DRAIN: case API_FRAME_EXIT: case API_FRAME_CANCEL: case API_FRAME_MORE:
    case API_FRAME_NONE_: case API_FRAME_COUNT_:
        break;
    }
}

static enum api_frame_side side_of(enum api_frame_kind kind)
{
    bool asks = kind == API_FRAME_DROP || kind == API_FRAME_LOOK;
    return kind >= API_FRAME_HELLO && !asks ? API_FRAME_TO_ENDPOINT : API_FRAME_TO_CHILD;
}

/* Feeds bytes in random pieces, decodes the one message, encodes it again. */
static void expect_same_bytes(str bytes, enum api_frame_side side)
{
    struct api_frame_reader r;
    struct api_message_bytes m;
    struct err e;
    enum api_frame_got got = API_FRAME_GOT_NOTHING;
    api_frame_reader_init(&r, side, 64u << 20);
    for (str rest = bytes; rest.len && got == API_FRAME_GOT_NOTHING;) {
        str piece = str_sub(rest, 0, 1 + rng(rng(2) ? 20 : 100000));
        str left = piece;
        got = api_frame_reader_next(&r, &left, &m, &e);
        rest = str_from(rest, piece.len - left.len);
        assert_true(got != API_FRAME_GOT_MESSAGE || rest.len == 0);
    }
    assert_int_equal(got, API_FRAME_GOT_MESSAGE);
    struct api_frame f;
    if (!api_frame_read(&f, &m, &e))
        fail_msg("%s", e.text);
    struct buf again;
    buf_init(&again, 64u << 20);
    assert_true(api_frame_write(&again, &f, &e));
    assert_int_equal(again.len, bytes.len);
    assert_memory_equal(again.p, bytes.p, bytes.len);
    buf_deinit(&again);
    arena_deinit(&m.arena);
    api_frame_reader_deinit(&r);
}

static bool is_valid(const struct api_frame *f)
{
    struct api_error e;
    return f->kind != API_FRAME_SUBMIT || api_request_check(&f->submit, &e);
}

static void test_every_kind_decodes_to_what_was_encoded(void **state)
{
    (void)state;
    uint32_t submits = 0;
    for (uint32_t round = 0; round < 300; round++)
        for (int kind = 1; kind < API_FRAME_COUNT_; kind++) {
            if (kind == API_FRAME_MORE)
                continue;
            struct arena a;
            struct api_frame f;
            struct buf b;
            struct err e;
            arena_init(&a, 1u << 20);
            buf_init(&b, 1u << 20);
            rng_state = round * 100 + (uint32_t)kind;
            rng_frame(&a, (enum api_frame_kind)kind, &f);
            if (is_valid(&f)) {
                submits += kind == API_FRAME_SUBMIT;
                assert_true(api_frame_write(&b, &f, &e));
                expect_same_bytes(buf_view(&b), side_of(f.kind));
            }
            buf_deinit(&b);
            arena_deinit(&a);
        }
    assert_true(submits > 100); /* else the check above refuses what it should not */
}

static void test_fields_keep_their_values(void **state)
{
    (void)state;
    struct api_part parts[] = {{.kind = API_PART_TEXT, .text = STR("hello")}};
    struct api_message message = {.role = API_ROLE_USER, .parts = parts, .parts_count = 1};
    struct api_frame f = {.kind = API_FRAME_SUBMIT, .id = 77}, g;
    struct api_message_bytes m;
    struct api_frame_reader r;
    struct buf b;
    struct err e;
    api_request_init(&f.submit);
    f.submit.messages = &message;
    f.submit.messages_count = 1;
    f.submit.temperature = 0.25f;
    f.submit.seed = UINT64_MAX;
    f.submit.body = STR("stays here");
    buf_init(&b, 1u << 20);
    assert_true(api_frame_write(&b, &f, &e));
    api_frame_reader_init(&r, API_FRAME_TO_CHILD, 1u << 20);
    str in = buf_view(&b);
    assert_int_equal(api_frame_reader_next(&r, &in, &m, &e), API_FRAME_GOT_MESSAGE);
    assert_true(api_frame_read(&g, &m, &e));
    assert_int_equal(g.submit.id, 77);
    assert_true(g.submit.temperature == 0.25f && g.submit.seed == UINT64_MAX);
    assert_true(str_eq_z(g.submit.messages[0].parts[0].text, "hello"));
    assert_int_equal(g.submit.body.len, 0);
    arena_deinit(&m.arena);
    api_frame_reader_deinit(&r);
    buf_deinit(&b);
}

/* A request of some 200 KB: several MORE frames. */
static void long_request(struct buf *b, uint64_t id)
{
    static char text[200000];
    memset(text, 'x', sizeof text);
    struct api_input input = {.text = str_view(text, sizeof text)};
    struct api_frame f = {.kind = API_FRAME_SUBMIT, .id = id};
    struct err e;
    api_request_init(&f.submit);
    f.submit.kind = API_KIND_COMPLETE;
    f.submit.inputs = &input;
    f.submit.inputs_count = 1;
    assert_true(api_frame_write(b, &f, &e));
}

static void test_long_messages_go_in_pieces_of_at_most_64_KiB(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1u << 20);
    long_request(&b, 5);
    size_t pieces = 0, at = 0;
    for (size_t n; at < b.len; at += n, pieces++) {
        n = api_frame_first(str_from(buf_view(&b), at));
        assert_true(n > 0 && n <= API_FRAME_SIZE_MAX);
        assert_int_equal(b.p[at + 4], pieces ? API_FRAME_MORE : API_FRAME_SUBMIT);
    }
    assert_int_equal(pieces, 4);
    rng_state = 1;
    expect_same_bytes(buf_view(&b), API_FRAME_TO_CHILD);
    buf_deinit(&b);
}

static void test_control_frames_may_stand_between_two_pieces(void **state)
{
    (void)state;
    struct buf data, mixed;
    struct err e;
    struct api_message_bytes m;
    struct api_frame_reader r;
    buf_init(&data, 1u << 20);
    buf_init(&mixed, 1u << 20);
    long_request(&data, 5);
    size_t cancels = 0;
    for (str rest = buf_view(&data); rest.len;) {
        size_t n = api_frame_first(rest);
        buf_add(&mixed, str_sub(rest, 0, n));
        rest = str_from(rest, n);
        struct api_frame cancel = {.kind = API_FRAME_CANCEL, .id = 9};
        assert_true(api_frame_write(&mixed, &cancel, &e));
    }
    api_frame_reader_init(&r, API_FRAME_TO_CHILD, 1u << 20);
    bool has_submit = false;
    for (str in = buf_view(&mixed); in.len;) {
        assert_int_equal(api_frame_reader_next(&r, &in, &m, &e), API_FRAME_GOT_MESSAGE);
        cancels += m.kind == API_FRAME_CANCEL && m.id == 9;
        has_submit = has_submit || (m.kind == API_FRAME_SUBMIT && m.id == 5);
        arena_deinit(&m.arena);
    }
    assert_true(has_submit);
    assert_int_equal(cancels, 4);
    api_frame_reader_deinit(&r);
    buf_deinit(&data);
    buf_deinit(&mixed);
}

static void test_a_body_cut_at_any_byte_is_refused(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 40; seed++) {
        struct arena a;
        struct api_frame f, g;
        struct buf b;
        struct err e;
        arena_init(&a, 1u << 20);
        buf_init(&b, 1u << 20);
        rng_state = seed;
        rng_frame(&a, seed % 2 ? API_FRAME_SUBMIT : API_FRAME_BATCH, &f);
        assert_true(api_frame_write(&b, &f, &e));
        str body = str_from(buf_view(&b), API_FRAME_HEADER_SIZE + 4);
        for (size_t len = 0; is_valid(&f) && len < body.len; len++) {
            struct api_message_bytes m = {.kind = f.kind, .id = 1, .body = str_sub(body, 0, len)};
            arena_init(&m.arena, 1u << 20);
            assert_false(api_frame_read(&g, &m, &e));
            assert_int_equal(e.code, ERR_FORMAT);
            arena_deinit(&m.arena);
        }
        buf_deinit(&b);
        arena_deinit(&a);
    }
}

static void test_broken_headers_are_refused_by_name(void **state)
{
    (void)state;
    static const struct { const char *bytes; const char *says; } cases[] = {
        {"\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0", "kind 0"},
        {"\0\0\0\0\x7f\0\0\0\1\0\0\0\0\0\0\0", "kind 127"},
        {"\0\0\0\0\x0c\0\0\0\1\0\0\0\0\0\0\0", "not one of this direction"}, /* HELLO */
        {"\0\0\0\0\x06\1\0\0\1\0\0\0\0\0\0\0", "reserved"},                 /* CANCEL */
        {"\1\2\0\0\x06\0\0\0\1\0\0\0\0\0\0\0", "513 bytes"},
        {"\1\0\1\0\x05\0\0\0\1\0\0\0\0\0\0\0", "65537 bytes"},              /* SUBMIT */
        {"\3\0\0\0\x05\0\0\0\1\0\0\0\0\0\0\0", "shorter"},
        {"\3\0\0\0\x0b\0\0\0\1\0\0\0\0\0\0\0", "do not continue"},          /* MORE */
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct api_frame_reader r;
        struct api_message_bytes m;
        struct err e;
        str in = str_view(cases[i].bytes, API_FRAME_HEADER_SIZE);
        api_frame_reader_init(&r, API_FRAME_TO_CHILD, 1u << 20);
        assert_int_equal(api_frame_reader_next(&r, &in, &m, &e), API_FRAME_GOT_BROKEN);
        if (!strstr(e.text, cases[i].says))
            fail_msg("case %zu: %s", i, e.text);
        in = STR("more");
        assert_int_equal(api_frame_reader_next(&r, &in, &m, &e), API_FRAME_GOT_BROKEN);
        api_frame_reader_deinit(&r);
    }
}

static void test_a_message_over_the_readers_limit_is_refused(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    struct api_message_bytes m;
    struct api_frame_reader r;
    buf_init(&b, 1u << 20);
    long_request(&b, 5);
    api_frame_reader_init(&r, API_FRAME_TO_CHILD, 100000);
    str in = buf_view(&b);
    assert_int_equal(api_frame_reader_next(&r, &in, &m, &e), API_FRAME_GOT_BROKEN);
    assert_non_null(strstr(e.text, "at most 100000"));
    api_frame_reader_deinit(&r);
    buf_deinit(&b);
}

static void test_a_trailing_byte_is_refused(void **state)
{
    (void)state;
    struct api_message_bytes m = {.kind = API_FRAME_CREDIT, .body = STR("\1\0\0\0x")};
    struct api_frame f;
    struct err e;
    arena_init(&m.arena, 1u << 20);
    assert_false(api_frame_read(&f, &m, &e));
    arena_deinit(&m.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_decodes_to_what_was_encoded),
        cmocka_unit_test(test_fields_keep_their_values),
        cmocka_unit_test(test_long_messages_go_in_pieces_of_at_most_64_KiB),
        cmocka_unit_test(test_control_frames_may_stand_between_two_pieces),
        cmocka_unit_test(test_a_body_cut_at_any_byte_is_refused),
        cmocka_unit_test(test_broken_headers_are_refused_by_name),
        cmocka_unit_test(test_a_message_over_the_readers_limit_is_refused),
        cmocka_unit_test(test_a_trailing_byte_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
