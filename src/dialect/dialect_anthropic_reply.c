#include "dialect/dialect_anthropic_reply.h"
#include "dialect/dialect_raw.h"

#include <stdio.h>
#include <string.h>

static struct dialect_anthropic_state *own(struct dialect_state *st)
{
    return (struct dialect_anthropic_state *)st;
}

const char *dialect_anthropic_reply_reason(const struct dialect_state *st, enum api_done reason)
{
    if (((const struct dialect_anthropic_state *)st)->kind == API_KIND_PREFILL)
        return "max_tokens";
    switch (reason) {
    case API_DONE_EOS: case API_DONE_SCHEMA_END:
        return "end_turn";
    case API_DONE_STOP_STRING:
        return "stop_sequence";
    case API_DONE_CALLS: case API_DONE_TOOL_LIMIT:
        return "tool_use";
    case API_DONE_REFUSAL:
        return "refusal";
    case API_DONE_MAX_TOKENS: case API_DONE_MAX_GEN: case API_DONE_CONTEXT_FULL:
    case API_DONE_DEADLINE: case API_DONE_LOOP: case API_DONE_CANCELLED: case API_DONE_COUNT_:
        break;
    }
    return "max_tokens";
}

/* ---- Parts of both forms ---- */

static void put_usage(struct json_writer *w, uint32_t prompt, uint32_t cached, uint32_t output)
{
    json_key_z(w, "usage");
    json_open_object(w);
    json_put_key_u64(w, "input_tokens", prompt > cached ? prompt - cached : 0);
    json_put_key_u64(w, "cache_read_input_tokens", cached);
    json_put_key_u64(w, "cache_creation_input_tokens", 0);
    json_put_key_u64(w, "output_tokens", output);
    dialect_write_text_z(w, "service_tier", "standard");
    json_close_object(w);
}

static void put_final_usage(struct json_writer *w, const struct dialect_state *st)
{
    put_usage(w, st->usage.prompt_tokens, st->usage.cached_tokens, st->usage.output_tokens);
}

static void put_message_head(struct json_writer *w, const struct dialect_state *st)
{
    json_key_z(w, "id");
    dialect_write_id(w, st, "msg_");
    dialect_write_text_z(w, "type", "message");
    dialect_write_text_z(w, "role", "assistant");
    dialect_write_text(w, "model", st->model);
}

static void put_stop(struct json_writer *w, const struct dialect_state *st, enum api_done reason)
{
    dialect_write_text_z(w, "stop_reason", dialect_anthropic_reply_reason(st, reason));
    if (reason == API_DONE_STOP_STRING)
        dialect_write_text(w, "stop_sequence", st->choices[0].stop);
    else
        dialect_write_null(w, "stop_sequence");
}

/* ---- Events of a stream ---- */

static void start_stream(struct buf *out, struct dialect_state *st)
{
    if (st->is_begun)
        return;
    struct buf json = dialect_write_piece();
    struct json_writer w = json_writer(&json);
    json_open_object(&w);
    dialect_write_text_z(&w, "type", "message_start");
    json_key_z(&w, "message");
    json_open_object(&w);
    put_message_head(&w, st);
    json_key_z(&w, "content");
    json_open_array(&w);
    json_close_array(&w);
    dialect_write_null(&w, "stop_reason");
    dialect_write_null(&w, "stop_sequence");
    put_usage(&w, own(st)->prompt_tokens, own(st)->cached_tokens, 0);
    json_close_object(&w);
    json_close_object(&w);
    dialect_write_sse_named(out, "message_start", &json);
    buf_deinit(&json);
    st->is_begun = true;
}

/* {"type": NAME, "index": i, ... where the caller goes on. */
static struct json_writer open_event(struct buf *json, const struct dialect_state *st,
                                     const char *name)
{
    const struct dialect_anthropic_state *o = (const struct dialect_anthropic_state *)st;
    struct json_writer w = json_writer(json);
    json_open_object(&w);
    dialect_write_text_z(&w, "type", name);
    json_put_key_u64(&w, "index", o->blocks_count - 1);
    return w;
}

static void close_event(struct buf *out, struct buf *json, struct json_writer *w, const char *name)
{
    json_close_object(w);
    dialect_write_sse_named(out, name, json);
    buf_deinit(json);
}

static void stream_delta(struct buf *out, struct dialect_state *st, const char *type,
                         const char *member, str text)
{
    struct buf json = dialect_write_piece();
    struct json_writer w = open_event(&json, st, "content_block_delta");
    json_key_z(&w, "delta");
    json_open_object(&w);
    dialect_write_text_z(&w, "type", type);
    dialect_write_text(&w, member, text);
    json_close_object(&w);
    close_event(out, &json, &w, "content_block_delta");
}

/* ---- Blocks: steps of both forms. Not streamed, calls holds the JSON of the blocks, whose last
 * text is open until the block closes. False: it did not fit. ---- */

static bool add(struct dialect_state *st, const char *text)
{
    return dialect_write_append(st, &st->choices[0].calls, str_of(text));
}

static bool add_escaped(struct dialect_state *st, str text)
{
    return json_add_escaped(&st->choices[0].calls, text);
}

static void put_signature(char out[32], const struct dialect_state *st)
{
    const struct dialect_anthropic_state *o = (const struct dialect_anthropic_state *)st;
    snprintf(out, 32, "shoal1.%016llx", (unsigned long long)o->hash);
}

static bool close_block(struct buf *out, struct dialect_state *st)
{
    enum dialect_anthropic_block open = own(st)->open;
    struct dialect_choice *c = &st->choices[0];
    char signature[32];
    own(st)->open = ANTHROPIC_NONE;
    put_signature(signature, st);
    if (open == ANTHROPIC_NONE)
        return true;
    if (open == ANTHROPIC_CALL && c->in_call && !st->stream) { /* cut: shoal.partial_call has it */
        c->calls.len = own(st)->open_from;
        own(st)->blocks_count--;
        return true;
    }
    if (st->stream) {
        struct buf json = dialect_write_piece();
        if (open == ANTHROPIC_THINKING)
            stream_delta(out, st, "signature_delta", "signature", str_of(signature));
        struct json_writer w = open_event(&json, st, "content_block_stop");
        close_event(out, &json, &w, "content_block_stop");
        return true;
    }
    if (open == ANTHROPIC_THINKING)
        return add(st, "\",\"signature\":\"") && add(st, signature) && add(st, "\"}");
    if (open == ANTHROPIC_TEXT)
        return add(st, "\"}");
    struct buf json = dialect_write_piece();
    struct json_writer w = json_writer(&json);
    dialect_write_call_object(&w, st, &c->call);
    bool ok = dialect_write_append(st, &c->calls, buf_view(&json)) && add(st, "}");
    buf_deinit(&json);
    return ok;
}

static void stream_open(struct buf *out, struct dialect_state *st,
                        enum dialect_anthropic_block kind)
{
    const struct dialect_call *call = &st->choices[0].call;
    struct buf json = dialect_write_piece();
    struct json_writer w = open_event(&json, st, "content_block_start");
    json_key_z(&w, "content_block");
    json_open_object(&w);
    dialect_write_text_z(&w, "type", kind == ANTHROPIC_THINKING ? "thinking"
                                     : kind == ANTHROPIC_TEXT ? "text" : "tool_use");
    if (kind == ANTHROPIC_CALL) {
        dialect_write_text(&w, "id", call->id);
        dialect_write_text(&w, "name", call->name);
        json_key_z(&w, "input");
        json_open_object(&w);
        json_close_object(&w);
    } else {
        dialect_write_text_z(&w, kind == ANTHROPIC_THINKING ? "thinking" : "text", "");
    }
    if (kind == ANTHROPIC_THINKING)
        dialect_write_text_z(&w, "signature", "");
    json_close_object(&w);
    close_event(out, &json, &w, "content_block_start");
}

static bool open_block(struct buf *out, struct dialect_state *st, enum dialect_anthropic_block kind)
{
    const struct dialect_call *call = &st->choices[0].call;
    if (!close_block(out, st))
        return false;
    if (kind != ANTHROPIC_CALL)
        dialect_write_drop_call(st, 0);
    own(st)->open = kind;
    own(st)->open_from = st->choices[0].calls.len;
    own(st)->hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a: pieces do not show in it */
    if (own(st)->blocks_count++ && !st->stream && !add(st, ","))
        return false;
    if (st->stream) {
        stream_open(out, st, kind);
        return true;
    }
    if (kind == ANTHROPIC_THINKING)
        return add(st, "{\"type\":\"thinking\",\"thinking\":\"");
    if (kind == ANTHROPIC_TEXT)
        return add(st, "{\"type\":\"text\",\"text\":\"");
    return add(st, "{\"type\":\"tool_use\",\"id\":\"") && add_escaped(st, call->id) &&
           add(st, "\",\"name\":\"") && add_escaped(st, call->name) && add(st, "\",\"input\":");
}

static bool add_text(struct buf *out, struct dialect_state *st, str text)
{
    if (text.len == 0)
        return true;
    if (!st->stream)
        return add_escaped(st, text);
    stream_delta(out, st, "text_delta", "text", text);
    return true;
}

static bool on_reasoning(struct buf *out, struct dialect_state *st, str text)
{
    if (text.len == 0)
        return true;
    if (own(st)->open != ANTHROPIC_THINKING && !open_block(out, st, ANTHROPIC_THINKING))
        return false;
    st->choices[0].content.len = 0; /* blanks before it */
    for (size_t i = 0; i < text.len; i++)
        own(st)->hash = (own(st)->hash ^ (uint8_t)text.p[i]) * UINT64_C(0x100000001b3);
    if (own(st)->omits_thinking)
        return true;
    if (!st->stream)
        return add_escaped(st, text);
    stream_delta(out, st, "thinking_delta", "thinking", text);
    return true;
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* Blanks wait in content until it is known whether text follows them in this block: between two
 * blocks they are dropped, at the start and the end of the reply they count. */
static bool on_text(struct buf *out, struct dialect_state *st, str text)
{
    struct buf *held = &st->choices[0].content;
    size_t first = 0, last = text.len;
    while (first < text.len && is_blank(text.p[first]))
        first++;
    if (first == text.len)
        return dialect_write_append(st, held, text);
    while (is_blank(text.p[last - 1]))
        last--;
    if (own(st)->open != ANTHROPIC_TEXT) {
        bool drops = own(st)->blocks_count > 0;
        if (!open_block(out, st, ANTHROPIC_TEXT))
            return false;
        if (drops) {
            held->len = 0;
            text = str_from(text, first);
            last -= first;
        }
    }
    if (!add_text(out, st, buf_view(held)) || !add_text(out, st, str_sub(text, 0, last)))
        return false;
    held->len = 0;
    return last == text.len || dialect_write_append(st, held, str_from(text, last));
}

/* "call_..." of the engine is "toolu_..." here. */
static bool name_call(struct dialect_state *st)
{
    struct dialect_call *call = &st->choices[0].call;
    char id[128];
    if (!str_starts(call->id, STR("call_")))
        return true;
    str rest = str_sub(call->id, strlen("call_"), sizeof id - 16);
    snprintf(id, sizeof id, "toolu_%.*s", STR_ARG(rest));
    call->id = dialect_write_keep(st, str_of(id));
    return call->id.len > 0;
}

static bool on_call(struct buf *out, struct dialect_state *st, const struct api_event *ev)
{
    if (ev->kind == API_EVENT_CALL_BEGIN && !close_block(out, st))
        return false;
    if (!dialect_write_keep_call(st, 0, ev))
        return false;
    st->choices[0].content.len = 0;
    if (ev->kind == API_EVENT_CALL_END)
        return close_block(out, st);
    if (ev->kind == API_EVENT_CALL_BEGIN)
        return name_call(st) && open_block(out, st, ANTHROPIC_CALL);
    if (st->stream && ev->call.args.len)
        stream_delta(out, st, "input_json_delta", "partial_json", ev->call.args);
    return true;
}

/* ---- The end ---- */

static bool end_blocks(struct buf *out, struct dialect_state *st)
{
    struct buf *held = &st->choices[0].content;
    if (own(st)->open == ANTHROPIC_TEXT && !add_text(out, st, buf_view(held)))
        return false;
    held->len = 0;
    return close_block(out, st);
}

static void stream_end(struct buf *out, struct dialect_state *st, enum api_done reason)
{
    struct buf json = dialect_write_piece();
    struct json_writer w = json_writer(&json);
    json_open_object(&w);
    dialect_write_text_z(&w, "type", "message_delta");
    json_key_z(&w, "delta");
    json_open_object(&w);
    put_stop(&w, st, reason);
    json_close_object(&w);
    put_final_usage(&w, st);
    json_key_z(&w, "shoal");
    dialect_write_shoal(&w, st, reason);
    close_event(out, &json, &w, "message_delta");
    buf_add_z(out, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void whole(struct buf *out, struct dialect_state *st, enum api_done reason)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    put_message_head(&w, st);
    json_key_z(&w, "content");
    json_open_array(&w);
    if (st->choices[0].calls.len)
        json_put_raw(&w, buf_view(&st->choices[0].calls));
    json_close_array(&w);
    put_stop(&w, st, reason);
    put_final_usage(&w, st);
    json_key_z(&w, "shoal");
    dialect_write_shoal(&w, st, reason);
    json_close_object(&w);
}

static void count_end(struct buf *out, struct dialect_state *st)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    json_put_key_u64(&w, "input_tokens", own(st)->tokens_count);
    json_close_object(&w);
}

static bool on_done(struct buf *out, struct dialect_state *st, enum api_done reason)
{
    if (own(st)->kind == API_KIND_COUNT) {
        count_end(out, st);
    } else if (!end_blocks(out, st)) {
        return false;
    } else if (st->stream) {
        start_stream(out, st);
        stream_end(out, st, reason);
    } else {
        whole(out, st, reason);
    }
    st->is_begun = st->is_over = true;
    return true;
}

/* ---- Entry points ---- */

void dialect_anthropic_reply_shut(struct buf *out, struct dialect_state *st)
{
    if (own(st)->shown == 0)
        return;
    struct buf json = dialect_write_piece();
    struct json_writer w = json_writer(&json);
    json_open_object(&w);
    dialect_write_text_z(&w, "type", "content_block_stop");
    json_put_key_u64(&w, "index", own(st)->shown - 1);
    own(st)->shown = 0;
    close_event(out, &json, &w, "content_block_stop");
}

static bool on_event(struct buf *out, struct dialect_state *st, const struct api_event *ev)
{
    bool is_text = ev->kind == API_EVENT_CONTENT || ev->kind == API_EVENT_REASONING;
    bool is_call = dialect_write_is_call(ev);
    if (st->stream && (is_call || (is_text && ev->text.text.len)))
        start_stream(out, st);
    if (ev->kind == API_EVENT_CONTENT)
        return on_text(out, st, ev->text.text);
    if (ev->kind == API_EVENT_REASONING)
        return on_reasoning(out, st, ev->text.text);
    if (is_call)
        return on_call(out, st, ev);
    if (!dialect_write_remember(st, 0, ev))
        return false;
    if (ev->kind == API_EVENT_QUEUED) {
        own(st)->prompt_tokens = ev->queued.prompt_tokens;
        own(st)->cached_tokens = ev->queued.cached_tokens;
    } else if (ev->kind == API_EVENT_STARTED) {
        own(st)->prompt_tokens = ev->started.prompt_tokens;
        own(st)->cached_tokens = ev->started.cached_tokens;
    } else if (ev->kind == API_EVENT_TOKENS) {
        own(st)->tokens_count += ev->tokens.tokens_count;
    }
    return ev->kind != API_EVENT_DONE || on_done(out, st, st->choices[0].reason);
}

void dialect_anthropic_reply_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                                   const struct api_event *ev)
{
    struct api_error e;
    must(choice == 0);
    if (st->is_over || (st->hides_reasoning && ev->kind == API_EVENT_REASONING))
        return;
    if (ev->kind == API_EVENT_ERROR) {
        dialect_anthropic_reply_error(out, st, &ev->error);
    } else if (dialect_raw_takes(st, ev)) {
        dialect_raw_anthropic(out, st, ev);
    } else if (ev->kind == API_EVENT_DONE && ev->done.reason == API_DONE_CANCELLED) {
        api_error_set(&e, ERR_CANCELLED, "", STR(""), "the request was cancelled");
        dialect_anthropic_reply_error(out, st, &e);
    } else {
        if (own(st)->open == ANTHROPIC_NONE) /* an upstream's, which it did not end */
            dialect_anthropic_reply_shut(out, st);
        if (!on_event(out, st, ev)) {
            dialect_write_too_long(st, &e);
            dialect_anthropic_reply_error(out, st, &e);
        }
        bool is_open = st->stream && own(st)->open != ANTHROPIC_NONE;
        own(st)->shown = is_open ? own(st)->blocks_count : 0;
    }
}

/* Claude Code looks for this sentence and makes room by itself. */
static void put_message(struct json_writer *w, const struct api_error *e)
{
    char text[96];
    json_key_z(w, "message");
    if (e->err.code != ERR_CONTEXT || e->limit == 0) {
        dialect_write_message(w, e);
        return;
    }
    snprintf(text, sizeof text, "prompt is too long: %u tokens > %u maximum", e->prompt_tokens,
             e->limit);
    json_put_text_z(w, text);
}

void dialect_anthropic_reply_error(struct buf *out, struct dialect_state *st,
                                   const struct api_error *e)
{
    struct dialect_error_row row = dialect_error(e);
    bool is_413 = e->err.code == ERR_CONTEXT && st->overlong_status == 413;
    struct buf json = dialect_write_piece();
    struct json_writer w = json_writer(&json);
    json_open_object(&w);
    dialect_write_text_z(&w, "type", "error");
    json_key_z(&w, "error");
    json_open_object(&w);
    dialect_write_text_z(&w, "type", is_413 ? "request_too_large" : row.anthropic_type);
    put_message(&w, e);
    dialect_write_text_z(&w, "code", row.code);
    if (e->err.code == ERR_CONTEXT) {
        json_put_key_u64(&w, "prompt_tokens", e->prompt_tokens);
        json_put_key_u64(&w, "limit", e->limit);
    }
    json_close_object(&w);
    dialect_write_text(&w, "request_id", st->request_id);
    json_close_object(&w);
    if (st->stream && st->is_begun)
        dialect_write_sse_named(out, "error", &json);
    else
        buf_add(out, buf_view(&json));
    buf_deinit(&json);
    st->is_begun = st->is_over = true;
}

void dialect_anthropic_reply_ping(struct buf *out, struct dialect_state *st,
                                  const struct dialect_ping *p)
{
    if (st->is_over)
        return;
    start_stream(out, st);
    dialect_write_ping(out, st, p);
    buf_add_z(out, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}
