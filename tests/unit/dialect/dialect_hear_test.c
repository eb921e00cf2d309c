/* What the server's writer of a protocol says, its client's reader hears: the same events, streamed
 * and not, however the bytes are cut. And what upstreams of other makers say. */
#include "dialect_play.h"

#include "base/chrono.h"
#include "dialect/dialect_hear.h"
#include "wire/sse.h"

static const struct {
    const char *target, *name, *head; /* head: the request's body up to where members are added */
} protocols[] = {
    {"POST /v1/chat/completions", "openai_chat",
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
     "\"stream_options\":{\"include_usage\":true},\"logprobs\":true,\"top_logprobs\":2"},
    {"POST /v1/messages", "anthropic",
     "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"},
    {"POST /v1/responses", "openai_responses",
     "{\"model\":\"m\",\"input\":\"x\",\"include\":[\"message.output_text.logprobs\"],"
     "\"top_logprobs\":2"},
    {"POST /api/chat", "ollama",
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":true,"
     "\"top_logprobs\":2"},
};

/* ---- What was heard ---- */

/* All of a reply: joined texts, calls, end; and the order of kinds. */
struct heard {
    struct buf reasoning, content, calls, kinds, raw;
    struct api_usage usage;
    struct api_finish done[4];
    char stop[64];
    uint32_t dones, logprobs, notes;
    char last;
    struct api_order order;
    bool is_bad;
};

static void heard_kind(struct heard *h, char kind)
{
    if (h->last != kind)
        buf_add_byte(&h->kinds, kind);
    h->last = kind;
}

static void heard_event(struct heard *h, const struct api_event *ev)
{
    buf_add(&h->raw, ev->raw);
    if (ev->kind == API_EVENT_REASONING && ev->text.text.len) {
        heard_kind(h, 'r');
        buf_add(&h->reasoning, ev->text.text);
    } else if (ev->kind == API_EVENT_CONTENT) {
        if (ev->text.text.len)
            heard_kind(h, 'c');
        buf_add(&h->content, ev->text.text);
        for (uint32_t i = 0; i < ev->text.logprobs_count; i++)
            h->logprobs += 1 + 100 * ev->text.logprobs[i].top_count;
    } else if (ev->kind == API_EVENT_CALL_BEGIN) {
        heard_kind(h, 'b');
        buf_printf(&h->calls, "[%u %d %.*s %.*s/%.*s ", ev->call.index, (int)ev->call.tool_kind,
                   STR_ARG(ev->call.id), STR_ARG(ev->call.name_space), STR_ARG(ev->call.name));
    } else if (ev->kind == API_EVENT_CALL_ARGS) {
        buf_add(&h->calls, ev->call.args);
    } else if (ev->kind == API_EVENT_CALL_END) {
        heard_kind(h, 'e');
        buf_add_byte(&h->calls, ']');
    } else if (ev->kind == API_EVENT_USAGE) {
        h->usage = ev->usage;
    } else if (ev->kind == API_EVENT_DONE) {
        snprintf(h->stop, sizeof h->stop, "%.*s", STR_ARG(ev->done.stop));
        h->done[h->dones++ & 3] = ev->done;
    }
    h->notes += ev->kind == API_EVENT_NOTE;
}

static void heard_batch(void *ctx, const struct api_batch *b)
{
    struct heard *h = ctx;
    struct err e;
    if (!api_order_add(&h->order, b, &e))
        fail_msg("%s", e.text);
    for (uint32_t i = 0; i < b->events_count; i++)
        heard_event(h, &b->events[i]);
}

static void heard_init(struct heard *h, const struct api_request *rq)
{
    *h = (struct heard){.last = 0};
    struct buf *all[] = {&h->reasoning, &h->content, &h->calls, &h->kinds, &h->raw};
    for (size_t i = 0; i < countof(all); i++)
        buf_init(all[i], (size_t)1 << 24);
    api_order_init(&h->order, rq);
}

static void heard_deinit(struct heard *h)
{
    struct buf *all[] = {&h->reasoning, &h->content, &h->calls, &h->kinds, &h->raw};
    for (size_t i = 0; i < countof(all); i++)
        buf_deinit(all[i]);
}

/* ---- Reading a stream ---- */

struct reader {
    struct dialect_client_state *st;
    struct dialect_upstream leg;
    struct sse sse;
    struct api_error e;
    uint32_t bad;
    bool has_failed;
};

static void reader_event(void *ctx, str name, str data)
{
    struct reader *r = ctx;
    struct api_error e = {0};
    if (r->has_failed || dialect_client_read(r->st, name, data, &e))
        return;
    r->e = e;
    if (e.fault == API_FAULT_GARBAGE)
        r->bad++;
    else
        r->has_failed = true;
}

static void reader_init(struct reader *r, const char *dialect, const struct api_request *rq,
                        struct heard *h)
{
    const struct dialect *d = dialect_of(str_of(dialect));
    *r = (struct reader){.leg = {.name = STR("leg"), .caps = API_CAP_ALL_}};
    r->st = calloc(1, d->client->state_size);
    dialect_client_init(r->st, d, &r->leg, rq, (struct api_sink){heard_batch, h});
    sse_init(&r->sse, d->client->is_lines ? SSE_FORM_LINES : SSE_FORM_EVENTS,
             DIALECT_CLIENT_EVENT_MAX);
    r->sse.on_event = reader_event;
    r->sse.ctx = r;
}

/* Of a request that was begun elsewhere. */
static void reader_resume(struct reader *r, const char *dialect, const struct api_request *rq,
                          enum dialect_continue how, struct heard *h)
{
    const struct dialect *d = dialect_of(str_of(dialect));
    reader_init(r, dialect, rq, h);
    dialect_client_deinit(r->st);
    memset(r->st, 0, d->client->state_size);
    r->leg.how = how;
    dialect_client_init(r->st, d, &r->leg, rq, (struct api_sink){heard_batch, h});
}

static void reader_deinit(struct reader *r)
{
    sse_deinit(&r->sse);
    dialect_client_deinit(r->st);
    free(r->st);
}

static void reader_feed(struct reader *r, str bytes)
{
    struct err e;
    assert_true(sse_feed(&r->sse, bytes, &e));
}

/* ---- A reply of random pieces ---- */

static const char *const words[] = {"a", "Bär", " und ", "\n\n", "data: x", "\"", "\\", "😀", ""
     "{", "[DONE]",
                                    "event: y", "<b>", "1.5", "\t", "日本", ": "};

static void say_pieces(struct play *p, struct chrono_rng *rng, enum api_event_kind kind)
{
    static const char *const edges[] = {"x", "ü", "7"};
    size_t count = chrono_rng_below(rng, 5);
    play_text(p, 0, kind, str_of(edges[chrono_rng_below(rng, countof(edges))]));
    for (size_t i = 0; i < count; i++)
        play_text(p, 0, kind, str_of(words[chrono_rng_below(rng, countof(words))]));
    play_text(p, 0, kind, str_of(edges[chrono_rng_below(rng, countof(edges))]));
}

static void say_call(struct play *p, struct chrono_rng *rng, uint32_t index)
{
    static const char *const args[] = {"{}", "{\"a\":1}", "{\"q\":\"u \\\"x\\\"\",\"n\":[1,2]}"};
    char id[16];
    snprintf(id, sizeof id, "c_%u", index);
    play_call(p, index, id, args[chrono_rng_below(rng, countof(args))]);
}


/* Events in the order that all protocols keep: reasoning, then texts and calls. */
static void say_reply(struct play *p, uint64_t seed, enum api_done reason)
{
    struct chrono_rng rng;
    uint32_t calls = 0;
    chrono_rng_init(&rng, seed);
    play_started(p);
    if (chrono_rng_below(&rng, 2))
        say_pieces(p, &rng, API_EVENT_REASONING);
    for (size_t n = chrono_rng_below(&rng, 4); n > 0; n--) {
        if (chrono_rng_below(&rng, 2))
            say_call(p, &rng, calls++);
        else
            say_pieces(p, &rng, API_EVENT_CONTENT);
    }
    play_usage(p);
    play_event(p, 0, (struct api_event){
        .kind = API_EVENT_DONE,
        .done = {.reason = reason == API_DONE_EOS && calls ? API_DONE_CALLS : reason,
                 .stop = reason == API_DONE_STOP_STRING ? STR("END") : STR("")}});
}

/* What was played, as it should be heard: a second play whose writer is a recorder. */
static struct heard *recorder;
static void record(struct buf *out, struct dialect_state *st, uint32_t choice,
                   const struct api_event *ev)
{
    (void)out, (void)st, (void)choice;
    heard_event(recorder, ev);
}

static void expect_same(const struct heard *want, const struct heard *got, const char *what)
{
    if (!str_eq(buf_view(&want->content), buf_view(&got->content)) ||
        !str_eq(buf_view(&want->reasoning), buf_view(&got->reasoning)) ||
        !str_eq(buf_view(&want->calls), buf_view(&got->calls)))
        fail_msg("%s\n want '%.*s' '%.*s' %.*s\n got  '%.*s' '%.*s' %.*s", what,
                 STR_ARG(buf_view(&want->reasoning)), STR_ARG(buf_view(&want->content)),
                 STR_ARG(buf_view(&want->calls)), STR_ARG(buf_view(&got->reasoning)),
                 STR_ARG(buf_view(&got->content)), STR_ARG(buf_view(&got->calls)));
    if (want->dones != got->dones || want->done[0].reason != got->done[0].reason)
        fail_msg("%s: %u ends, %s; want %s", what, got->dones,
                 api_event_done_name(got->done[0].reason),
                 api_event_done_name(want->done[0].reason));
    assert_int_equal(want->usage.prompt_tokens, got->usage.prompt_tokens);
    assert_int_equal(want->usage.cached_tokens, got->usage.cached_tokens);
    assert_int_equal(want->usage.output_tokens, got->usage.output_tokens);
    assert_int_equal(want->logprobs, got->logprobs);
}

static void ask_of(struct play *p, size_t protocol, bool stream)
{
    char body[512];
    snprintf(body, sizeof body, "%s,\"stream\":%s}", protocols[protocol].head,
             stream ? "true" : "false");
    play_ok(p, protocols[protocol].target, body);
}

/* One reply through writer and reader; step: bytes that come at once. */
static void round_trip(size_t protocol, bool stream, uint64_t seed, enum api_done reason,
                       size_t step)
{
    struct play p = {.ok = false}, q = {.ok = false};
    struct heard want, got;
    struct reader r;
    struct dialect recording;
    char what[160];
    snprintf(what, sizeof what, "%s, %s, seed %llu, %zu bytes at once", protocols[protocol].name,
             stream ? "streamed" : "whole", (unsigned long long)seed, step);
    ask_of(&p, protocol, stream);
    ask_of(&q, protocol, stream);
    heard_init(&want, &q.rq);
    recording = *q.d;
    recording.write_event = record;
    recorder = &want;
    q.d = &recording;
    say_reply(&q, seed, reason);
    say_reply(&p, seed, reason);
    p.rq.dialect = STR("another");
    heard_init(&got, &p.rq);
    reader_init(&r, protocols[protocol].name, &p.rq, &got);
    if (stream) {
        for (size_t at = 0; at < p.out.len; at += step)
            reader_feed(&r, str_sub(buf_view(&p.out), at, step));
    } else {
        reader_event(&r, STR(""), buf_view(&p.out));
    }
    struct api_error e = {0};
    if (r.bad || r.has_failed || !dialect_client_end(r.st, &e))
        fail_msg("%s: %s%s\n%.*s", what, r.e.err.text, e.err.text, STR_ARG(buf_view(&p.out)));
    expect_same(&want, &got, what);
    if (stream && !str_eq(buf_view(&want.kinds), buf_view(&got.kinds)))
        fail_msg("%s: order %s, want %s", what, got.kinds.p, want.kinds.p);
    reader_deinit(&r);
    heard_deinit(&want);
    heard_deinit(&got);
    play_end(&p);
    q.d = p.d;
    play_end(&q);
}

static void test_a_reader_hears_what_its_protocols_writer_says(void **state)
{
    static const enum api_done reasons[] = {API_DONE_EOS, API_DONE_MAX_TOKENS,
                                            API_DONE_STOP_STRING, API_DONE_REFUSAL};
    (void)state;
    for (size_t k = 0; k < countof(protocols); k++)
        for (uint64_t seed = 0; seed < 64; seed++) {
            enum api_done reason = reasons[seed % countof(reasons)];
            round_trip(k, true, seed, reason, 1 + seed * 7);
            round_trip(k, false, seed, reason, 0);
        }
}

static void test_a_reader_hears_the_same_for_every_cut(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(protocols); k++)
        for (size_t step = 1; step < 400; step += 1 + step / 8)
            round_trip(k, true, 5, API_DONE_EOS, step);
}

/* ---- Another shoal goes on inside a call ---- */

/* The request of protocol k as its client writes it to a shoal, whose reply had come to `parts`. */
static void write_resumed(size_t k, const struct api_request *rq, struct buf *out)
{
    const struct dialect *d = dialect_of(str_of(protocols[k].name));
    const struct dialect_upstream leg = {.name = STR("leg"), .model = STR("m"),
                                         .caps = API_CAP_ALL_, .how = DIALECT_CONTINUE_SHOAL};
    struct dialect_client_state *st = calloc(1, d->client->state_size);
    struct api_error e;
    dialect_client_init(st, d, &leg, rq, (struct api_sink){NULL, NULL});
    if (!d->client->write_request(out, st, &e))
        fail_msg("%s: %s", d->name, e.err.text);
    dialect_client_deinit(st);
    free(st);
}

static void goes_on_inside(size_t k, const char *begun, const char *rest)
{
    struct api_part parts[] = {
        {.kind = API_PART_TEXT, .text = STR("I look.")},
        {.kind = API_PART_CALL, .id = STR("c_0"), .name = STR("f"), .text = STR("{\"a\":1}")},
        {.kind = API_PART_CALL, .id = STR("c_1"), .name = STR("f"), .text = str_of(begun),
         .is_open = true}};
    const struct api_partial partial = {.message = {.role = API_ROLE_ASSISTANT, .parts = parts,
                                                    .parts_count = countof(parts)}};
    const struct api_resume resume = {.partials = &partial, .partials_count = 1};
    struct play asked = {0}, p = {0};
    struct reader r;
    struct heard got;
    struct buf body;
    char want[128];
    play_ok(&asked, protocols[k].target, k == 0
            ? "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{"
              "\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}"
            : "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\""
              "}],\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}]}");
    asked.rq.resume = &resume;
    asked.rq.dialect = STR("another");
    buf_init(&body, 1 << 20);
    write_resumed(k, &asked.rq, &body);
    buf_add_byte(&body, 0);
    play_ok(&p, protocols[k].target, body.p); /* the other shoal */
    const struct api_message *m = &p.rq.messages[p.rq.messages_count - 1];
    assert_true(p.rq.continue_last && m->parts_count == 3 && m->parts[2].is_open);
    assert_true(str_eq_z(m->parts[2].text, begun) && str_eq_z(m->parts[1].text, "{\"a\":1}"));
    play_started(&p);
    play_event(&p, 0, (struct api_event){.kind = API_EVENT_CALL_BEGIN, .call = {
        .index = 1, .id = m->parts[2].id, .name = m->parts[2].name}});
    play_event(&p, 0, (struct api_event){.kind = API_EVENT_CALL_ARGS,
                                         .call = {.index = 1, .args = str_of(rest)}});
    play_event(&p, 0, (struct api_event){.kind = API_EVENT_CALL_END, .call = {.index = 1}});
    play_call(&p, 2, "c_2", "{}");
    play_usage(&p);
    play_done(&p, 0, API_DONE_CALLS);
    heard_init(&got, &asked.rq);
    reader_resume(&r, protocols[k].name, &asked.rq, DIALECT_CONTINUE_SHOAL, &got);
    reader_feed(&r, buf_view(&p.out));
    if (r.bad || r.has_failed)
        fail_msg("%s: %s", protocols[k].name, r.e.err.text);
    snprintf(want, sizeof want, "%s][2 0 c_2 /f {}]", rest);
    assert_true(str_eq_z(buf_view(&got.calls), want));
    assert_int_equal(got.done[0].reason, API_DONE_CALLS);
    reader_deinit(&r);
    heard_deinit(&got);
    buf_deinit(&body);
    play_end(&p);
    play_end(&asked);
}

static void test_another_shoal_says_only_the_rest_of_an_open_call(void **state)
{
    static const char args[] = "{\"city\":\"B\\\"ern {\",\"n\":[1,2]}";
    char begun[sizeof args];
    (void)state;
    for (size_t cut = 0; cut + 1 < sizeof args; cut++) {
        snprintf(begun, sizeof begun, "%.*s", (int)cut, args);
        for (size_t k = 0; k < countof(protocols); k++)
            if (k == 0 || strcmp(protocols[k].name, "anthropic") == 0)
                goes_on_inside(k, begun, args + cut);
    }
}

static void test_calls_that_are_told_whole_only_are_not_gone_on_in(void **state)
{
    const struct dialect_upstream leg = {.how = DIALECT_CONTINUE_SHOAL};
    struct api_part part = {.kind = API_PART_CALL, .name = STR("f"), .is_open = true};
    const struct api_partial partial = {.message = {.parts = &part, .parts_count = 1}};
    const struct api_resume resume = {.partials = &partial, .partials_count = 1};
    struct api_tool tool = {.kind = API_TOOL_FUNCTION, .name = STR("f")};
    const struct api_request rq = {.resume = &resume, .tools = &tool, .tools_count = 1, .n = 1};
    (void)state;
    for (int is_custom = 0; is_custom < 2; is_custom++) {
        tool.kind = is_custom ? API_TOOL_CUSTOM : API_TOOL_FUNCTION;
        for (size_t k = 0; k < countof(protocols); k++) {
            bool can = k < 2 && !is_custom; /* chat, anthropic */
            const struct dialect *d = dialect_of(str_of(protocols[k].name));
            assert_int_equal(d->client->can_continue(&leg, &rq), can);
        }
    }
}

/* They go on in text alone: a part of arguments is a word between shoals. */
static void test_another_maker_s_upstream_is_not_asked_to_go_on_inside_a_call(void **state)
{
    static const struct {
        const char *dialect;
        struct dialect_upstream leg;
    } rows[] = {{"openai_chat", {.how = DIALECT_CONTINUE_FINAL_MESSAGE}},
                {"anthropic", {.how = DIALECT_CONTINUE_PREFILL}}};
    struct api_part part = {.kind = API_PART_CALL, .name = STR("f"), .text = STR("{\"a\":")};
    const struct api_message turn = {.role = API_ROLE_ASSISTANT, .parts = &part, .parts_count = 1};
    const struct api_request rq = {.messages = &turn, .messages_count = 1, .continue_last = true,
                                   .n = 1};
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        const struct dialect *d = dialect_of(str_of(rows[i].dialect));
        part.is_open = false;
        assert_true(d->client->can_continue(&rows[i].leg, &rq));
        part.is_open = true;
        assert_false(d->client->can_continue(&rows[i].leg, &rq));
    }
}

/* ---- Another maker's upstream begins anew ---- */

static void begins_anew(const char *target, const char *dialect, enum dialect_continue how,
                        bool thinks, size_t step)
{
    static const char said[] =
        "One day the fox went out, and saw a hen that sat on a wall by the road.";
    static const char rest[] = " It spoke.";
    struct api_part part = {.kind = API_PART_TEXT, .text = str_of(said)};
    const struct api_partial partial = {
        .message = {.role = API_ROLE_ASSISTANT, .parts = &part, .parts_count = 1}};
    const struct api_resume resume = {.partials = &partial, .partials_count = 1};
    struct play asked = {0}, p = {0};
    struct reader r;
    struct heard got;
    char all[sizeof said + sizeof rest];
    snprintf(all, sizeof all, "%s%s", said, rest);
    play_ok(&asked, target, "{\"model\":\"m\",\"max_tokens\":9,\"stream\":true,\"messages\":[{"
                            "\"role\":\"user\",\"content\":\"x\"}]}");
    play_ok(&p, target, "{\"model\":\"m\",\"max_tokens\":9,\"stream\":true,\"messages\":[{"
                        "\"role\":\"user\",\"content\":\"x\"}]}");
    asked.rq.resume = &resume;
    play_started(&p);
    if (thinks)
        play_think(&p, "hm");
    for (size_t at = 0; at < strlen(all); at += step)
        play_text(&p, 0, API_EVENT_CONTENT, str_sub(str_of(all), at, step));
    play_usage(&p);
    play_done(&p, 0, API_DONE_EOS);
    heard_init(&got, &asked.rq);
    reader_resume(&r, dialect, &asked.rq, how, &got);
    reader_feed(&r, buf_view(&p.out));
    if (r.bad || r.has_failed)
        fail_msg("%s: %s", dialect, r.e.err.text);
    if (!str_eq_z(buf_view(&got.content), thinks ? all : rest))
        fail_msg("%s, %zu bytes at once: %.*s", dialect, step, STR_ARG(buf_view(&got.content)));
    assert_true(got.dones == 1 && got.done[0].reason == API_DONE_EOS);
    reader_deinit(&r);
    heard_deinit(&got);
    play_end(&p);
    play_end(&asked);
}

/* Each event of theirs has fields beside the text that are empty: they are no other text. */
static void test_what_an_upstream_repeats_from_the_start_is_not_told_again(void **state)
{
    (void)state;
    for (int thinks = 0; thinks < 2; thinks++)
        for (size_t step = 1; step < 90; step++) {
            begins_anew("POST /v1/chat/completions", "openai_chat",
                        DIALECT_CONTINUE_FINAL_MESSAGE, thinks, step);
            begins_anew("POST /v1/messages", "anthropic", DIALECT_CONTINUE_PREFILL, thinks, step);
        }
}

/* ---- Words of other makers ---- */

struct said {
    const char *dialect, *stream, *want; /* want: reasoning | content | calls | end */
};

static void hear_all(const struct said *s)
{
    struct play p = {.ok = false};
    struct heard h;
    struct reader r;
    struct buf got;
    struct api_error e = {0};
    play_ok(&p, "POST /v1/chat/completions",
            "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":["
            "{\"type\":\"custom\",\"custom\":{\"name\":\"patch\"}}]}");
    p.rq.dialect = STR("another");
    heard_init(&h, &p.rq);
    reader_init(&r, s->dialect, &p.rq, &h);
    reader_feed(&r, str_of(s->stream));
    bool ok = !r.has_failed && dialect_client_end(r.st, &e);
    buf_init(&got, 1 << 16);
    buf_printf(&got, "%.*s|%.*s|%.*s|%s", STR_ARG(buf_view(&h.reasoning)),
               STR_ARG(buf_view(&h.content)), STR_ARG(buf_view(&h.calls)),
               ok ? api_event_done_name(h.done[0].reason)
                  : api_request_fault_name(r.has_failed ? r.e.fault : e.fault));
    if (r.bad)
        buf_printf(&got, " bad=%u", r.bad);
    if (!str_eq_z(buf_view(&got), s->want))
        fail_msg("%s\n%s\n want %s\n got  %.*s", s->dialect, s->stream, s->want,
                 STR_ARG(buf_view(&got)));
    buf_deinit(&got);
    reader_deinit(&r);
    heard_deinit(&h);
    play_end(&p);
}

#define CHAT "data: {\"choices\":[{\"index\":0,\"delta\":"
#define CUT_CALL CHAT "{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":" \
                      "{\"name\":\"f\"," \
                      "\"arguments\":\"{\\\"a\\\":\"}}]}}]}\n\n"
#define CUT_USE "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":" \
                "\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n\ndata: {\"type\":" \
                "\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\"," \
                "\"partial_json\":\"{\\\"a\\\":\\\"}\"}}\n\ndata: {\"type\"" \
                ":\"content_block_stop\"}\n\n"
static const struct said makers[] = {
    /* Chat completions. */
    {"openai_chat", CHAT "{\"role\":\"assistant\"}}]}\n\n" CHAT "{\"content\":\"hi\"}}]}\n\n" CHAT
     "{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", "|hi||eos"},
    {"openai_chat", CHAT "{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n", "|hi||eos"},
    {"openai_chat", CHAT "{\"content\":\"hi\"}}]}\n\n", "|hi||cut"},
    {"openai_chat", CHAT "{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n", "|hi||cut"},
    {"openai_chat", ": ping\n\n" CHAT "{\"content\":\"hi\"}}]}\n\ndata: {\"x\n\n" CHAT
     "{\"content\":\"!\"},\"finish_reason\":\"length\"}]}\n\n", "|hi!||max_tokens bad=1"},
    {"openai_chat", "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n" CHAT
     "{\"content\":\"a\"},\"finish_reason\":\"content_filter\"}]}\n\n", "|a||refusal"},
    {"openai_chat", CHAT "{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"type\":\"function\","
     "\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}}]}\n\n" CHAT "{\"tool_calls\":[{\"in"
     "dex\":0,"
     "\"function\":{\"arguments\":\"{\\\"a\\\"\"}}]}}]}\n\n" CHAT "{\"tool_calls\":[{\"index\":0,"
     "\"function\":{\"arguments\":\":1}\"}}]}}]}\n\n" CHAT "{\"tool_calls\":[{\"index\":1,\"i"
     "d\":\"c2\","
     "\"function\":{\"name\":\"g\"}}]}}]}\n\n" CHAT "{},\"finish_reason\":\"tool_calls\"}]}\n\n",
     "||[0 0 c1 /f {\"a\":1}][1 0 c2 /g {}]|tool_calls"},
    {"openai_chat", CHAT "{\"content\":\"x\"},\"finish_reason\":\"tool_calls\"}]}\n\n", "|x||e"
     "os"},
    {"openai_chat", CHAT "{\"reasoning\":\"t\"}}]}\n\n" CHAT "{\"reasoning_content\":\"u\",\"r"
     "easoning\":"
     "\"u\"}}]}\n\n" CHAT "{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n", "tu|a||eos"},
    {"openai_chat", CHAT "{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"custom\":{\"name\":\"pa"
     "tch\","
     "\"input\":\"*** x\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n", "||[0 1 c /patch *** x"
     "]|tool_calls"},
    {"openai_chat", CHAT "{\"content\":\"x\"}}]}\n\ndata: {\"error\":{\"message\":\"slow dow"
     "n\",\"type\":"
     "\"rate_limit_error\"}}\n\n", "|x||rate_limit"},
    {"openai_chat", "data: {\"error\":\"bad\"}\n\n", "|||http_5xx"},
    {"openai_chat", "data: {\"choices\":[{\"index\":3,\"delta\":{\"content\":\"x\"}}]}\n\n",
     "|||cut bad=1"},
    /* Anthropic. */
    {"anthropic", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usag"
     "e\":"
     "{\"input_tokens\":5}}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n"
     "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\""
     ",\"text\":\"\"}}\n\n"
     "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\""
     ",\"text\":\"hi\"}}\n\n"
     "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
     "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\""
     "output_tokens\":2}}\n\n"
     "data: {\"type\":\"message_stop\"}\n\n", "|hi||eos"},
    {"anthropic", "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tex"
     "t\"}}\n\n"
     "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"h"
     "i\"}}\n\n",
     "|hi||cut"},
    {"anthropic", "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_"
     "use\",\"id\":\"t\","
     "\"name\":\"patch\",\"input\":{}}}\n\ndata: {\"type\":\"content_block_delta\",\"delta\":"
     "{\"type\":"
     "\"input_json_delta\",\"partial_json\":\"{\\\"input\\\":\\\"a\\\\nb\\\"}\"}}\n\n"
     "data: {\"type\":\"content_block_stop\"}\n\ndata: {\"type\":\"message_delta\",\"delta\":"
     "{\"stop_reason\":"
     "\"tool_use\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n", "||[0 1 t /patch a\nb]|tool_ca"
     "lls"},
    {"anthropic", "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_"
     "use\",\"id\":\"t\","
     "\"name\":\"f\",\"input\":{\"a\":2}}}\n\ndata: {\"type\":\"content_block_stop\"}\n\n"
     "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"server_tool_use\""
     ",\"id\":\"s\"}}\n\n"
     "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\",\"parti"
     "al_json\":\"{}\"}}\n\n"
     "data: {\"type\":\"content_block_stop\"}\n\ndata: {\"type\":\"message_delta\",\"delta\":"
     "{\"stop_reason\":"
     "\"tool_use\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n", "||[0 0 t /f {\"a\":2}]|tool_c"
     "alls"},
    {"anthropic", "data: {\"type\":\"content_block_start\""
     ",\"content_block\":{\"type\":\"text\"}}\n\n"
     "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}"
     "\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
     "|hi||cut"},
    {"anthropic", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_er"
     "ror\","
     "\"message\":\"Overloaded\"}}\n\n", "|||http_5xx"},
    {"anthropic", "data: {\"type\":\"message_stop\"}\n\n", "|||cut"},
    /* Arguments that are cut: no call, and no whole reply unless a limit cut them. */
    {"openai_chat", CUT_CALL CHAT "{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n",
     "||[0 0 c /f {\"a\":|cut"},
    {"openai_chat", CUT_CALL CHAT "{}"
     ",\"finish_reason\":\"stop\"}]}\n\n", "||[0 0 c /f {\"a\":|cut"},
    {"openai_chat", CUT_CALL CHAT "{},\"finish_reason\":\"length\"}]}\n\n",
     "||[0 0 c /f {\"a\":|max_tokens"},
    {"openai_chat", CUT_CALL CHAT "{\"content\":\"more\"},\"finish_reason\":\"length\"}]}\n\n",
     "||[0 0 c /f {\"a\":|cut"},
    {"anthropic", CUT_USE "data: {\"type\":\"message_delta\""
     ",\"delta\":{\"stop_reason\":\"tool_use\"}}"
     "\n\ndata: {\"type\":\"message_stop\"}\n\n", "||[0 0 t /f {\"a\":\"}|cut"},
    {"anthropic", CUT_USE "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":"
     "\"max_tokens\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n", "||[0 0 t /f {\"a\""
     ":\"}|max_tokens"},
    /* Responses. */
    {"openai_responses", "data: {\"type\":\"response.created\",\"response\":{}}\n\n"
     "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n"
     "data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\",\"ca"
     "ll_id\":\"c\","
     "\"name\":\"f\"}}\n\ndata: {\"type\":\"response.output_item.done\",\"item\":{\"type\":\"f"
     "unction_call\","
     "\"arguments\":\"{\\\"z\\\":1}\"}}\n\n"
     "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"usage\":"
     "{\"input_tokens\":1,"
     "\"output_tokens\":1}}}\n\n", "|hi|[0 0 c /f {\"z\":1}]|tool_calls"},
    {"openai_responses", "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n"
     "data: {\"type\":\"response.incomplete\",\"response\":{\"incomplete_details\":{\"reason\":"
     "\"max_output_tokens\"}}}\n\n", "|hi||max_tokens"},
    {"openai_responses", "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"faile"
     "d\",\"error\":"
     "{\"code\":\"rate_limit_exceeded\",\"message\":\"x\"}}}\n\n", "|||rate_limit"},
    {"openai_responses", "data: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\""
     "x\"}\n\n",
     "|||http_5xx"},
    {"openai_responses", "data: {\"type\":\"response.reasoning_summary_part.added\"}\n\n"
     "data: {\"type\":\"response.reasoning_summary_text.delta\",\"delta\":\"a\"}\n\n"
     "data: {\"type\":\"response.reasoning_summary_part.added\"}\n\n"
     "data: {\"type\":\"response.reasoning_summary_text.delta\",\"delta\":\"b\"}\n\n"
     "data: {\"type\":\"response.completed\",\"response\":{}}\n\n", "a\n\nb|||eos"},
    /* Ollama. */
    {"ollama", "{\"message\":{\"role\":\"assistant\",\"content\":\"hi\"},\"done\":false}\n"
     "{\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"n"
     "ame\":\"f\","
     "\"arguments\":{\"a\":1}}},{\"function\":{\"name\":\"patch\",\"arguments\":{\"input\":\""
     "q\"}}}]},"
     "\"done\":false}\n{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\","
     "\"prompt_eval_count\":1,\"eval_count\":2}\n",
     "|hi|[0 0 call_743df94ee4c78a2a /f {\"a\":1}][1 1 call_076e92c0d7820b16 /patch q]|tool_ca"
     "lls"},
    {"ollama", "{\"message\":{\"content\":\"hi\"},\"done\":false}\n", "|hi||cut"},
    {"ollama", "{\"message\":{\"content\":\"hi\"},\"done\":false}\n{\"error\":\"model crashe"
     "d\"}\n",
     "|hi||http_5xx"},
    {"ollama", "<html>\n{\"message\":{\"content\":\"hi\"},\"done\":true}\n", "|hi||eos bad=1"},
    /* A reason that is none, and what comes behind one. */
    {"openai_chat", CHAT "{\"content\":\"hi\"},\"finish_reason\":\"\"}]}\n\n" CHAT
     "{\"content\":\"!\"},\"finish_reason\":\"\"}]}\n\n", "|hi!||cut"},
    {"openai_chat", CHAT "{\"content\":\"hi\"},\"finish_reason\":\"\"}]}\n\n" CHAT
     "{},\"finish_reason\":\"stop\"}]}\n\n", "|hi||eos"},
    {"openai_chat", CHAT "{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n" CHAT
     "{\"content\":\"!\"}}]}\n\n", "|hi!||cut"},
    {"openai_chat", CHAT "{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n" CHAT
     "{\"content\":\"!\"}}]}\n\n" "data: [DONE]\n\n", "|hi!||eos"},
    {"openai_chat", CHAT "{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n" CHAT
     "{\"content\":\"!\"},\"finish_reason\":\"length\"}]}\n\n", "|hi!||max_tokens"},
    {"openai_chat", CHAT "{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n" CHAT
     "{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"a"
     "rguments\":\"{\\\"a\\\":\"}}]}}]}\n\n" "data: [DONE]\n\n", "|hi|[0 0 c /f {\"a\":|cut"},
    {"openai_chat", CHAT "{},\"finish_reason\":\"stop\"}]}\n\n" CHAT
     "{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"a"
     "rguments\":\"{\\\"a\\\":1}\"}}]}}]}\n\n" "data: [DONE]\n\n",
     "||[0 0 c /f {\"a\":1}]|tool_calls"},
    {"openai_chat", CHAT "{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n"
     "data: [DONE]\n\n" CHAT "{\"content\":\"!\"},\"finish_reason\":\"length\"}]}\n\n"
     "data: [DONE]\n\n", "|hi||eos"},
    /* Calls beside each other under one index. */
    {"openai_chat", CHAT
     "{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"a"
     "rguments\":\"{\\\"a\\\":1}\"}}]}}]}\n\n" CHAT
     "{\"tool_calls\":[{\"index\":0,\"id\":\"d\",\"function\":{\"name\":\"f\",\"a"
     "rguments\":\"{\\\"a\\\"\"}}]}}]}\n\n" CHAT
     "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":2}\"}}]}}" "]}\n\n" CHAT
     "{\"tool_calls\":[{\"index\":1,\"id\":\"e\",\"function\":{\"name\":\"g\",\"a"
     "rguments\":\"\"}}]}}]}\n\n" CHAT "{},\"finish_reason\":\"tool_calls\"}]}\n\n",
     "||[0 0 c /f {\"a\":1}][1 0 d /f {\"a\":2}][2 0 e /g {}]|tool_calls"},
    /* Content as a list of parts. */
    {"openai_chat", CHAT
     "{\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"t"
     "ext\":\"t\"}]}]}}]}\n\n" CHAT
     "{\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]},\"finish_reason\":\"s" "top\"}]}\n\n",
     "t|hi||eos"},
    /* Texts and calls without deltas, ends that are none. */
    {"openai_responses", "data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"m"
     "essage\",\"content\":[]}}\n\n"
     "data: {\"type\":\"response.output_item.done\",\"item\":{\"type\":\"me"
     "ssage\",\"content\":[{\"type\":\"output_text\",\"text\":\"hi\"}]}}\n\n"
     "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"com"
     "pleted\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"outp"
     "ut_text\",\"text\":\"hi\"}]}]}}\n\n", "|hi||eos"},
    {"openai_responses", "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n"
     "data: {\"type\":\"response.output_item.done\",\"item\":{\"type\":\"me"
     "ssage\",\"content\":[{\"type\":\"output_text\",\"text\":\"hi\"}]}}\n\n"
     "data: {\"type\":\"response.output_item.done\",\"item\":{\"type\":\"me"
     "ssage\",\"content\":[{\"type\":\"output_text\",\"text\":\"!\"}]}}\n\n"
     "data: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"t"
     "ype\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"hi\"}" "]}]}}\n\n",
     "|hi!||eos"},
    {"openai_responses", "data: {\"type\":\"response.created\",\"response\":{}}\n\n"
     "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"com"
     "pleted\",\"output\":[{\"type\":\"reasoning\",\"summary\":[{\"text\":\"t\""
     "}]},{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text"
     "\":\"hi\"}]},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\""
     "arguments\":\"{\\\"z\\\":1}\"}]}}\n\n", "t|hi|[0 0 c /f {\"z\":1}]|tool_calls"},
    {"openai_responses", "data: {\"type\":\"response.output_item.done\",\"item\":{\"type\":\"fu"
     "nction_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{\\\"z\\\":1}" "\"}}\n\n"
     "data: {\"type\":\"response.output_item.done\",\"item\":{\"type\":\"fu"
     "nction_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{\\\"z\\\":1}" "\"}}\n\n"
     "data: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"t"
     "ype\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{"
     "\\\"z\\\":1}\"}]}}\n\n", "||[0 0 c /f {\"z\":1}]|tool_calls"},
    {"openai_responses", "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n"
     "data: {\"type\":\"response.incomplete\",\"response\":{}}\n\n", "|hi||max_tokens"},
    {"openai_responses", "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n"
     "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"in_" "progress\"}}\n\n",
     "|hi||cut"},
};

static void test_what_upstreams_of_other_makers_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(makers); i++)
        hear_all(&makers[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reader_hears_what_its_protocols_writer_says),
        cmocka_unit_test(test_a_reader_hears_the_same_for_every_cut),
        cmocka_unit_test(test_another_shoal_says_only_the_rest_of_an_open_call),
        cmocka_unit_test(test_calls_that_are_told_whole_only_are_not_gone_on_in),
        cmocka_unit_test(test_another_maker_s_upstream_is_not_asked_to_go_on_inside_a_call),
        cmocka_unit_test(test_what_an_upstream_repeats_from_the_start_is_not_told_again),
        cmocka_unit_test(test_what_upstreams_of_other_makers_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
