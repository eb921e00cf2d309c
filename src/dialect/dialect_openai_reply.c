#include "dialect/dialect_openai_reply.h"

#include <string.h>

#include "dialect/dialect_openai_write.h"
#include "dialect/dialect_raw.h"

#define CHUNK_MAX ((size_t)16 << 20)

/* ---- Streamed ---- */

/* What one chunk says of one choice. */
struct delta {
    uint32_t choice;
    bool role;
    const struct api_event *ev; /* REASONING, CONTENT, CALL_*, DONE, or NULL */
    const char *finish;
};

/* A call's own members: whole, as it begins (no arguments yet), or a piece of the arguments. The
 * free text of a custom tool is its input. */
static void put_call(struct json_writer *w, const struct dialect_call *c, bool is_named, str args)
{
    bool is_custom = c->kind == API_TOOL_CUSTOM;
    if (is_named) {
        dialect_write_text(w, "id", c->id);
        dialect_write_text_z(w, "type", is_custom ? "custom" : "function");
    }
    json_key_z(w, is_custom ? "custom" : "function");
    json_open_object(w);
    if (is_named)
        dialect_write_text(w, "name", c->name);
    dialect_write_text(w, is_custom ? "input" : "arguments", args);
    json_close_object(w);
}

static void put_call_delta(struct json_writer *w, const struct dialect_call *c,
                           const struct api_event *ev)
{
    bool begins = ev->kind == API_EVENT_CALL_BEGIN;
    json_key_z(w, "tool_calls");
    json_open_array(w);
    json_open_object(w);
    json_put_key_u64(w, "index", ev->call.index);
    put_call(w, c, begins, begins ? (str){"", 0} : ev->call.args);
    json_close_object(w);
    json_close_array(w);
}

static void put_delta(struct json_writer *w, const struct dialect_state *st, const struct delta *d)
{
    json_key_z(w, "delta");
    json_open_object(w);
    if (d->role) {
        dialect_write_text_z(w, "role", "assistant");
        dialect_write_text_z(w, "content", "");
    } else if (d->ev && d->ev->kind == API_EVENT_REASONING) {
        dialect_write_text(w, "reasoning_content", d->ev->text.text);
        dialect_write_text(w, "reasoning", d->ev->text.text);
    } else if (d->ev && d->ev->kind == API_EVENT_CONTENT) {
        dialect_write_text(w, "content", d->ev->text.text);
    } else if (d->ev && d->ev->kind != API_EVENT_DONE) {
        put_call_delta(w, &st->choices[d->choice].call, d->ev);
    }
    json_close_object(w);
}

static void put_delta_logprobs(struct json_writer *w, const struct api_event *ev)
{
    json_key_z(w, "logprobs");
    if (ev == NULL || ev->kind != API_EVENT_CONTENT || ev->text.logprobs_count == 0) {
        json_put_null(w);
        return;
    }
    json_open_object(w);
    json_key_z(w, "content");
    json_open_array(w);
    dialect_write_logprobs(w, &ev->text);
    json_close_array(w);
    dialect_write_null(w, "refusal");
    json_close_object(w);
}

/* d NULL: the chunk of the usage, without choices. */
static void chunk(struct buf *out, struct dialect_state *st, const struct delta *d)
{
    struct json_writer w = json_writer(out);
    buf_add_z(out, "data: ");
    json_open_object(&w);
    dialect_openai_write_head(&w, st, "chatcmpl-", "chat.completion.chunk");
    json_key_z(&w, "choices");
    json_open_array(&w);
    if (d) {
        json_open_object(&w);
        json_put_key_u64(&w, "index", d->choice);
        put_delta(&w, st, d);
        put_delta_logprobs(&w, d->role ? NULL : d->ev);
        json_key_z(&w, "finish_reason");
        if (d->finish)
            json_put_text_z(&w, d->finish);
        else
            json_put_null(&w);
        json_close_object(&w);
    }
    json_close_array(&w);
    json_key_z(&w, "usage");
    if (d)
        json_put_null(&w);
    else
        dialect_openai_write_usage(&w, &st->usage);
    bool is_done = d && d->ev && d->ev->kind == API_EVENT_DONE;
    if (is_done && dialect_write_is_last(st)) {
        json_key_z(&w, "shoal");
        dialect_write_shoal(&w, st, st->choices[d->choice].reason);
    }
    json_close_object(&w);
    buf_add_z(out, "\n\n");
}

static void stream_done(struct buf *out, struct dialect_state *st)
{
    if (!dialect_write_is_last(st))
        return;
    if (st->include_usage)
        chunk(out, st, NULL);
    buf_add_z(out, "data: [DONE]\n\n");
    st->is_over = true;
}

static void stream_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                         const struct api_event *ev)
{
    struct dialect_choice *c = &st->choices[choice];
    bool is_text = ev->kind == API_EVENT_REASONING || ev->kind == API_EVENT_CONTENT;
    bool is_call = ev->kind == API_EVENT_CALL_BEGIN ||
                   (ev->kind == API_EVENT_CALL_ARGS && ev->call.args.len);
    if ((is_text && ev->text.text.len == 0) || !(is_text || is_call || ev->kind == API_EVENT_DONE))
        return;
    if (!c->is_begun) {
        chunk(out, st, &(struct delta){.choice = choice, .role = true});
        c->is_begun = st->is_begun = true;
    }
    bool is_done = ev->kind == API_EVENT_DONE;
    chunk(out, st, &(struct delta){.choice = choice, .ev = ev,
                                   .finish = is_done ? dialect_openai_write_finish(c->reason)
                                                     : NULL});
    if (is_done)
        stream_done(out, st);
}

/* ---- Not streamed ---- */

/* A whole call as the next element; one that is cut does not get here. */
static bool remember_call(struct dialect_state *st, struct dialect_choice *c)
{
    struct buf json = dialect_write_piece();
    struct json_writer w = json_writer(&json);
    json_open_object(&w);
    put_call(&w, &c->call, true, buf_view(&c->call.args));
    json_close_object(&w);
    bool ok = dialect_write_append_json(st, &c->calls, &json);
    buf_deinit(&json);
    return ok;
}

static void put_message(struct json_writer *w, const struct dialect_choice *c)
{
    json_key_z(w, "message");
    json_open_object(w);
    dialect_write_text_z(w, "role", "assistant");
    json_key_z(w, "content");
    if (c->content.len || c->calls_count == 0)
        json_put_text(w, buf_view(&c->content));
    else
        json_put_null(w);
    dialect_write_null(w, "refusal");
    if (c->reasoning.len) {
        dialect_write_text(w, "reasoning_content", buf_view(&c->reasoning));
        dialect_write_text(w, "reasoning", buf_view(&c->reasoning));
    }
    if (c->calls_count) {
        json_key_z(w, "tool_calls");
        json_open_array(w);
        json_put_raw(w, buf_view(&c->calls));
        json_close_array(w);
    }
    json_close_object(w);
}

static void put_choice(struct json_writer *w, const struct dialect_state *st, uint32_t index)
{
    const struct dialect_choice *c = &st->choices[index];
    json_open_object(w);
    json_put_key_u64(w, "index", index);
    put_message(w, c);
    json_key_z(w, "logprobs");
    if (c->logprobs.len) {
        json_open_object(w);
        json_key_z(w, "content");
        json_open_array(w);
        json_put_raw(w, buf_view(&c->logprobs));
        json_close_array(w);
        dialect_write_null(w, "refusal");
        json_close_object(w);
    } else {
        json_put_null(w);
    }
    dialect_write_text_z(w, "finish_reason", dialect_openai_write_finish(c->reason));
    json_close_object(w);
}

static void whole(struct buf *out, struct dialect_state *st, enum api_done reason)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    dialect_openai_write_head(&w, st, "chatcmpl-", "chat.completion");
    json_key_z(&w, "choices");
    json_open_array(&w);
    for (uint32_t i = 0; i < st->choices_count; i++)
        put_choice(&w, st, i);
    json_close_array(&w);
    dialect_openai_write_end(&w, st, reason);
    st->is_begun = st->is_over = true;
}

static void too_long(struct buf *out, struct dialect_state *st)
{
    struct api_error e;
    dialect_write_too_long(st, &e);
    dialect_openai_reply_error(out, st, &e);
}

static void whole_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                        const struct api_event *ev)
{
    if (ev->kind == API_EVENT_CALL_END && !remember_call(st, &st->choices[choice])) {
        too_long(out, st);
    } else if (ev->kind == API_EVENT_DONE && dialect_write_is_last(st)) {
        whole(out, st, ev->done.reason);
    }
}

/* ---- Entry points ---- */

void dialect_openai_reply_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                                const struct api_event *ev)
{
    if (st->is_over || (st->hides_reasoning && ev->kind == API_EVENT_REASONING))
        return;
    if (ev->kind == API_EVENT_CONTENT || ev->kind == API_EVENT_REASONING)
        dialect_write_drop_call(st, choice);
    if (ev->kind == API_EVENT_ERROR) {
        dialect_openai_reply_error(out, st, &ev->error);
    } else if (dialect_raw_takes(st, ev)) {
        dialect_raw_openai(out, st, choice, ev);
    } else if (!dialect_write_remember(st, choice, ev) ||
               (dialect_write_is_call(ev) && !dialect_write_keep_call(st, choice, ev))) {
        too_long(out, st);
    } else if (st->stream) {
        stream_event(out, st, choice, ev);
    } else {
        whole_event(out, st, choice, ev);
    }
}

void dialect_openai_reply_error(struct buf *out, struct dialect_state *st,
                                const struct api_error *e)
{
    struct buf json;
    buf_init(&json, CHUNK_MAX);
    struct json_writer w = json_writer(&json);
    json_open_object(&w);
    dialect_openai_write_error(&w, e);
    json_close_object(&w);
    if (st->stream && st->is_begun) {
        dialect_write_sse(out, &json);
        /* An error may come before a choice began: its last chunk is that of choice 0 then. */
        chunk(out, st, &(struct delta){.choice = 0, .finish = "error"});
        buf_add_z(out, "data: [DONE]\n\n");
    } else {
        buf_add(out, buf_view(&json));
    }
    buf_deinit(&json);
    st->is_begun = st->is_over = true;
}
