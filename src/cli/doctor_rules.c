#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/doctor.h"
#include "wire/sse.h"

/* Each protocol's stream is a small state machine over its events: what must come first, what
 * belongs together, what ends it and that nothing follows. Sources: the reference pages of the four
 * protocols as docs/dialects/ quotes them. */

#define RULES_EVENT_MAX ((size_t)16 << 20)
#define RULES_ARENA_MAX ((size_t)256 << 20)

struct rules {
    const struct doctor_wish *wish;
    struct arena a;
    struct buf text;
    struct err *e;
    char id[100];
    int64_t open_block, blocks, sequence, items_open;
    bool is_bad, is_begun, has_end, is_over, has_call, has_usage;
};

static void rules_break(struct rules *r, const char *rule)
{
    if (!r->is_bad)
        err_set(r->e, ERR_FORMAT, "%s", rule);
    r->is_bad = true;
}

static void rules_want(struct rules *r, bool holds, const char *rule)
{
    if (!holds)
        rules_break(r, rule);
}

static bool rules_is(struct json v, const char *text) { return json_text_eq(v, str_of(text)); }

static bool rules_is_text(struct json v) { return json_kind(v) == JSON_KIND_STRING; }

static int64_t rules_number(struct json v)
{
    int64_t n = -1;
    return json_i64(v, &n) ? n : -1;
}

static void rules_add(struct rules *r, struct json v)
{
    if (rules_is_text(v))
        buf_add(&r->text, json_text(v, &r->a));
}

static bool rules_has_one(struct json array)
{
    struct json_walk w = json_walk(array);
    return json_kind(array) == JSON_KIND_ARRAY && json_next(&w);
}

/* --- chat completions ---------------------------------------------------------------------- */

static void rules_chat_choice(struct rules *r, struct json c, const char *key)
{
    struct json m = json_member(c, key), end = json_member(c, "finish_reason");
    rules_want(r, rules_number(json_member(c, "index")) >= 0, "a choice without index");
    rules_want(r, json_kind(m) == JSON_KIND_OBJECT, "a choice without delta or message");
    rules_want(r, !r->has_end, "something follows the finish_reason");
    rules_add(r, json_member(m, "content"));
    r->has_call = r->has_call || rules_has_one(json_member(m, "tool_calls"));
    if (!rules_is_text(end))
        return;
    r->has_end = true;
    if (r->wish->has_call)
        rules_want(r, rules_is(end, "tool_calls"), "a call, and finish_reason is not tool_calls");
}

static void rules_chat(struct rules *r, struct json ev, const char *object, const char *key)
{
    struct json id = json_member(ev, "id");
    rules_want(r, rules_is(json_member(ev, "object"), object), "object has another value");
    rules_want(r, rules_is_text(json_member(ev, "model")), "an event without model");
    rules_want(r, rules_is_text(id), "an event without id");
    rules_want(r, rules_number(json_member(ev, "created")) > 0, "an event without created");
    if (rules_is_text(id) && !r->id[0])
        snprintf(r->id, sizeof r->id, "%.*s", STR_ARG(json_text(id, &r->a)));
    rules_want(r, json_text_eq(id, str_of(r->id)), "the id changes in a stream");
    struct json_walk w = json_walk(json_member(ev, "choices"));
    while (json_next(&w))
        rules_chat_choice(r, w.value, key);
}

/* --- Anthropic ----------------------------------------------------------------------------- */

static void rules_anthropic_delta(struct rules *r, struct json ev)
{
    struct json d = json_member(ev, "delta");
    rules_want(r, rules_number(json_member(ev, "index")) == r->open_block,
               "a delta of a block that is not open");
    rules_want(r, rules_is_text(json_member(d, "type")), "a delta without type");
    rules_add(r, json_member(d, "text"));
}

static void rules_anthropic_block(struct rules *r, struct json b)
{
    rules_want(r, rules_is_text(json_member(b, "type")), "a block without type");
    if (!rules_is(json_member(b, "type"), "tool_use"))
        return;
    r->has_call = true;
    rules_want(r, rules_is_text(json_member(b, "id")) && rules_is_text(json_member(b, "name")),
               "a tool_use block without id and name");
}

static void rules_anthropic_end(struct rules *r, struct json reason)
{
    rules_want(r, rules_is_text(reason), "no stop_reason");
    r->has_end = true;
    if (r->wish->has_call)
        rules_want(r, rules_is(reason, "tool_use"), "a call, and stop_reason is not tool_use");
    else
        rules_want(r, !rules_is(reason, "tool_use") || r->has_call, "tool_use without a block");
}

static void rules_anthropic(struct rules *r, str name, struct json ev)
{
    struct json type = json_member(ev, "type");
    rules_want(r, json_text_eq(type, name), "the event's name is not its type");
    rules_want(r, !r->is_over, "something follows message_stop");
    if (rules_is(type, "message_start")) {
        rules_want(r, !r->is_begun, "a second message_start");
        r->is_begun = true;
        r->open_block = -1;
    } else if (rules_is(type, "content_block_start")) {
        rules_want(r, r->open_block < 0, "a block begins in another");
        r->open_block = rules_number(json_member(ev, "index"));
        rules_want(r, r->open_block == r->blocks++, "the blocks are not numbered in order");
        rules_anthropic_block(r, json_member(ev, "content_block"));
    } else if (rules_is(type, "content_block_delta")) {
        rules_anthropic_delta(r, ev);
    } else if (rules_is(type, "content_block_stop")) {
        rules_want(r, rules_number(json_member(ev, "index")) == r->open_block,
                   "a block ends that is not open");
        r->open_block = -1;
    } else if (rules_is(type, "message_delta")) {
        rules_want(r, r->open_block < 0, "message_delta in an open block");
        rules_anthropic_end(r, json_member(json_member(ev, "delta"), "stop_reason"));
    } else if (rules_is(type, "message_stop")) {
        rules_want(r, r->has_end, "message_stop without a stop_reason before");
        r->is_over = true;
    } else if (!rules_is(type, "ping")) {
        rules_break(r, "an event of an unknown type");
    }
    rules_want(r, r->is_begun || rules_is(type, "ping"), "an event before message_start");
}

static void rules_anthropic_whole(struct rules *r, struct json v)
{
    struct json_walk w = json_walk(json_member(v, "content"));
    rules_want(r, rules_is(json_member(v, "type"), "message"), "type is not message");
    rules_want(r, rules_is(json_member(v, "role"), "assistant"), "role is not assistant");
    rules_want(r, json_kind(json_member(v, "usage")) == JSON_KIND_OBJECT, "no usage");
    while (json_next(&w)) {
        rules_anthropic_block(r, w.value);
        rules_add(r, json_member(w.value, "text"));
    }
    rules_anthropic_end(r, json_member(v, "stop_reason"));
    r->is_over = true;
}

/* --- Responses ----------------------------------------------------------------------------- */

static void rules_responses_final(struct rules *r, struct json v)
{
    struct json_walk w = json_walk(json_member(v, "output"));
    rules_want(r, rules_is(json_member(v, "object"), "response"), "object is not response");
    rules_want(r, rules_is(json_member(v, "status"), "completed"), "the status is not completed");
    rules_want(r, json_kind(json_member(v, "usage")) == JSON_KIND_OBJECT, "no usage");
    while (json_next(&w)) {
        struct json_walk parts = json_walk(json_member(w.value, "content"));
        rules_want(r, rules_is_text(json_member(w.value, "type")), "an item without type");
        r->has_call = r->has_call || rules_is(json_member(w.value, "type"), "function_call");
        while (!r->wish->stream && json_next(&parts))
            if (rules_is(json_member(parts.value, "type"), "output_text"))
                rules_add(r, json_member(parts.value, "text"));
    }
    r->has_end = r->is_over = true;
}

static void rules_responses(struct rules *r, str name, struct json ev)
{
    struct json type = json_member(ev, "type");
    rules_want(r, json_text_eq(type, name), "the event's name is not its type");
    rules_want(r, !r->is_over, "something follows response.completed");
    rules_want(r, rules_number(json_member(ev, "sequence_number")) == r->sequence++,
               "sequence_number has a gap");
    rules_want(r, r->is_begun || rules_is(type, "response.created"),
               "an event before response.created");
    r->is_begun = true;
    if (rules_is(type, "response.output_item.added"))
        r->items_open++;
    else if (rules_is(type, "response.output_item.done"))
        r->items_open--;
    else if (rules_is(type, "response.output_text.delta"))
        rules_add(r, json_member(ev, "delta"));
    else if (rules_is(type, "response.completed"))
        rules_responses_final(r, json_member(ev, "response"));
    rules_want(r, r->items_open == 0 || r->items_open == 1, "an item is not ended before the next");
}

/* --- Ollama -------------------------------------------------------------------------------- */

static void rules_ollama(struct rules *r, struct json ev)
{
    struct json m = json_member(ev, "message");
    bool is_done = false;
    rules_want(r, !r->is_over, "something follows done");
    rules_want(r, rules_is_text(json_member(ev, "model")), "an object without model");
    rules_want(r, rules_is_text(json_member(ev, "created_at")), "an object without created_at");
    rules_want(r, rules_is(json_member(m, "role"), "assistant"), "an object without message");
    rules_want(r, json_bool(json_member(ev, "done"), &is_done), "an object without done");
    rules_add(r, json_member(m, "content"));
    r->has_call = r->has_call || rules_has_one(json_member(m, "tool_calls"));
    if (!is_done)
        return;
    rules_want(r, rules_is_text(json_member(ev, "done_reason")), "no done_reason");
    rules_want(r, !rules_is(json_member(ev, "done_reason"), "error"), "done_reason is error");
    r->has_end = r->is_over = true;
}

/* --- all ----------------------------------------------------------------------------------- */

static void rules_event(struct rules *r, str name, str data)
{
    const struct json_options o = {.depth_max = 64};
    struct json ev;
    struct err why;
    str dialect = r->wish->dialect;
    bool is_chat = str_eq(dialect, STR("openai_chat"));
    arena_reset(&r->a);
    if (is_chat && str_eq(data, STR("[DONE]"))) {
        rules_want(r, r->has_end, "[DONE] without a finish_reason before");
        r->is_over = true;
        return;
    }
    if (!json_parse(&ev, data, &o, &r->a, &why)) {
        rules_break(r, "an event that is no JSON");
        return;
    }
    bool is_error = json_kind(json_member(ev, "error")) == JSON_KIND_OBJECT ||
                    rules_is_text(json_member(ev, "error"));
    rules_want(r, !is_error, "the reply is an error");
    if (is_chat && r->wish->stream)
        rules_chat(r, ev, "chat.completion.chunk", "delta");
    else if (is_chat)
        rules_chat(r, ev, "chat.completion", "message");
    else if (str_eq(dialect, STR("anthropic")) && r->wish->stream)
        rules_anthropic(r, name, ev);
    else if (str_eq(dialect, STR("anthropic")))
        rules_anthropic_whole(r, ev);
    else if (str_eq(dialect, STR("openai_responses")) && r->wish->stream)
        rules_responses(r, name, ev);
    else if (str_eq(dialect, STR("openai_responses")))
        rules_responses_final(r, ev);
    else
        rules_ollama(r, ev);
    r->is_over = r->is_over || (is_chat && !r->wish->stream);
}

static void rules_on_event(void *ctx, str name, str data) { rules_event(ctx, name, data); }

bool doctor_rules_check(const struct doctor_wish *w, str body, struct err *e)
{
    struct rules r = {.wish = w, .e = e, .open_block = -1};
    struct sse s;
    struct err why;
    bool is_lines = str_eq(w->dialect, STR("ollama"));
    arena_init(&r.a, RULES_ARENA_MAX);
    buf_init(&r.text, RULES_EVENT_MAX);
    sse_init(&s, is_lines ? SSE_FORM_LINES : SSE_FORM_EVENTS, RULES_EVENT_MAX);
    s.on_event = rules_on_event;
    s.ctx = &r;
    if (!w->stream)
        rules_event(&r, STR(""), body);
    else if (!sse_feed(&s, body, &why))
        rules_break(&r, "the stream cannot be cut into events");
    rules_want(&r, r.has_end, "the reply does not end");
    rules_want(&r, r.is_over, "the stream's last event is missing");
    rules_want(&r, !w->has_call || r.has_call, "the call is missing");
    if (w->text.len)
        rules_want(&r, str_eq(buf_view(&r.text), w->text), "the text is not what the leg said");
    sse_deinit(&s);
    buf_deinit(&r.text);
    arena_deinit(&r.a);
    return !r.is_bad;
}
