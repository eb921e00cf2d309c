#include "dialect/dialect_responses_reply.h"

#include <stdio.h>
#include <string.h>

#include "dialect/dialect_openai_write.h"

static struct dialect_responses_state *own(struct dialect_state *st)
{
    return (struct dialect_responses_state *)st;
}

/* ---- Small parts ---- */

static void put_raw(struct json_writer *w, const char *key, str json, const char *otherwise)
{
    json_key_z(w, key);
    json_put_raw(w, json.len ? json : str_of(otherwise));
}

/* "msg_" + the letters of the request's id + "_" + the item's index. */
static void put_item_id(struct json_writer *w, const char *key, struct dialect_state *st)
{
    static const char *const prefixes[] = {"", "rs_", "msg_", "fc_"};
    const struct dialect_call *call = &st->choices[0].call;
    bool is_custom = own(st)->open == RESPONSES_CALL && call->kind == API_TOOL_CUSTOM;
    str letters = str_starts(st->request_id, STR("req_")) ? str_from(st->request_id, 4)
                                                          : st->request_id;
    char id[96];
    snprintf(id, sizeof id, "%s%.*s_%u", is_custom ? "ctc_" : prefixes[own(st)->open],
             (int)base_min(letters.len, 40), letters.len ? letters.p : "",
             own(st)->items_count - 1);
    dialect_write_text_z(w, key, id);
}

static void put_logprobs(struct json_writer *w, str elements)
{
    json_key_z(w, "logprobs");
    json_open_array(w);
    if (elements.len)
        json_put_raw(w, elements);
    json_close_array(w);
}

/* {"type": "output_text", ...} or {"type": "summary_text", ...} */
static void put_part(struct json_writer *w, struct dialect_state *st, str text, str logprobs)
{
    bool is_message = own(st)->open == RESPONSES_MESSAGE;
    json_open_object(w);
    dialect_write_text_z(w, "type", is_message ? "output_text" : "summary_text");
    dialect_write_text(w, "text", text);
    if (is_message) {
        put_raw(w, "annotations", (str){"", 0}, "[]");
        put_logprobs(w, logprobs);
    }
    json_close_object(w);
}

static const struct buf *text_of(struct dialect_state *st)
{
    return own(st)->open == RESPONSES_REASONING ? &st->choices[0].reasoning
                                                : &st->choices[0].content;
}

/* The open item. status "in_progress": as it begins, without its text. */
static void put_item(struct json_writer *w, struct dialect_state *st, const char *status)
{
    const struct dialect_choice *c = &st->choices[0];
    enum dialect_responses_item open = own(st)->open;
    bool is_begin = strcmp(status, "in_progress") == 0;
    bool is_custom = open == RESPONSES_CALL && c->call.kind == API_TOOL_CUSTOM;
    json_open_object(w);
    put_item_id(w, "id", st);
    dialect_write_text_z(w, "type", open == RESPONSES_REASONING ? "reasoning"
                                    : open == RESPONSES_MESSAGE ? "message"
                                    : is_custom ? "custom_tool_call" : "function_call");
    if (open != RESPONSES_REASONING)
        dialect_write_text_z(w, "status", status);
    if (open == RESPONSES_MESSAGE)
        dialect_write_text_z(w, "role", "assistant");
    if (open == RESPONSES_CALL) {
        dialect_write_text(w, "call_id", c->call.id);
        dialect_write_text(w, "name", c->call.name);
        if (c->call.name_space.len)
            dialect_write_text(w, "namespace", c->call.name_space);
        dialect_write_text(w, is_custom ? "input" : "arguments",
                           is_begin ? (str){"", 0} : buf_view(&c->call.args));
    } else {
        json_key_z(w, open == RESPONSES_MESSAGE ? "content" : "summary");
        json_open_array(w);
        if (!is_begin)
            put_part(w, st, buf_view(text_of(st)), buf_view(&c->logprobs));
        json_close_array(w);
    }
    if (open == RESPONSES_REASONING && !is_begin && own(st)->with_encrypted) {
        struct buf copy = dialect_write_piece();
        buf_add_z(&copy, "shoal1.");
        buf_add(&copy, buf_view(&c->reasoning));
        dialect_write_text(w, "encrypted_content", buf_view(&copy));
        buf_deinit(&copy);
    }
    json_close_object(w);
}

/* ---- The response object ---- */

static void put_usage(struct json_writer *w, const struct api_usage *u)
{
    json_key_z(w, "usage");
    json_open_object(w);
    json_put_key_u64(w, "input_tokens", u->prompt_tokens);
    json_key_z(w, "input_tokens_details");
    json_open_object(w);
    json_put_key_u64(w, "cached_tokens", u->cached_tokens);
    json_put_key_u64(w, "cache_write_tokens", u->cache_write_tokens);
    json_close_object(w);
    json_put_key_u64(w, "output_tokens", u->output_tokens);
    json_key_z(w, "output_tokens_details");
    json_open_object(w);
    json_put_key_u64(w, "reasoning_tokens", u->reasoning_tokens);
    json_close_object(w);
    json_put_key_u64(w, "total_tokens", (uint64_t)u->prompt_tokens + u->output_tokens);
    json_close_object(w);
}

/* What the request said. */
static void put_echo(struct json_writer *w, const struct dialect_responses_state *o)
{
    put_raw(w, "instructions", o->instructions, "null");
    put_raw(w, "max_output_tokens", o->max_output_tokens, "null");
    dialect_write_text(w, "model", o->s.model);
    json_key_z(w, "parallel_tool_calls");
    json_put_bool(w, o->parallel_tool_calls);
    put_raw(w, "previous_response_id", (str){"", 0}, "null");
    json_key_z(w, "reasoning");
    json_open_object(w);
    put_raw(w, "effort", o->reasoning_effort, "null");
    put_raw(w, "summary", o->reasoning_summary, "null");
    json_close_object(w);
    put_raw(w, "store", (str){"", 0}, "false");
    json_key_z(w, "temperature");
    json_put_float(w, o->temperature);
    put_raw(w, "text", o->text, "{\"format\":{\"type\":\"text\"}}");
    put_raw(w, "tool_choice", o->tool_choice, "\"auto\"");
    put_raw(w, "tools", o->tools, "[]");
    json_key_z(w, "top_p");
    json_put_float(w, o->top_p);
    put_raw(w, "truncation", o->truncation, "\"disabled\"");
    put_raw(w, "user", o->user, "null");
    put_raw(w, "metadata", o->metadata, "{}");
}

static const char *incomplete_reason(enum api_done reason)
{
    switch (reason) {
    case API_DONE_EOS: case API_DONE_STOP_STRING: case API_DONE_SCHEMA_END: case API_DONE_CALLS:
    case API_DONE_TOOL_LIMIT: case API_DONE_CANCELLED:
        return NULL;
    case API_DONE_REFUSAL:
        return "content_filter";
    case API_DONE_MAX_TOKENS: case API_DONE_MAX_GEN: case API_DONE_CONTEXT_FULL:
    case API_DONE_DEADLINE: case API_DONE_LOOP: case API_DONE_COUNT_:
        break;
    }
    return "max_output_tokens";
}

static void put_incomplete(struct json_writer *w, const char *reason)
{
    json_key_z(w, "incomplete_details");
    if (reason == NULL) {
        json_put_null(w);
        return;
    }
    json_open_object(w);
    dialect_write_text_z(w, "reason", reason);
    json_close_object(w);
}

static void put_failure(struct json_writer *w, const struct api_error *e)
{
    json_key_z(w, "error");
    if (e == NULL) {
        json_put_null(w);
        return;
    }
    json_open_object(w);
    dialect_write_text_z(w, "code", "server_error");
    json_key_z(w, "message");
    dialect_write_message(w, e);
    json_close_object(w);
}

/* The end as the object tells it; status "in_progress" before. */
struct outcome {
    const char *status;
    enum api_done reason;
    const struct api_error *error;
};

static void put_response(struct json_writer *w, struct dialect_state *st, const struct outcome *o)
{
    bool is_end = strcmp(o->status, "in_progress") != 0;
    str items = buf_view(&st->choices[0].calls);
    json_open_object(w);
    json_key_z(w, "id");
    dialect_write_id(w, st, "resp_");
    dialect_write_text_z(w, "object", "response");
    json_key_z(w, "created_at");
    json_put_i64(w, st->time_s);
    json_key_z(w, "completed_at");
    if (strcmp(o->status, "completed") == 0)
        json_put_i64(w, st->time_s + (int64_t)(st->total_ns / 1000000000));
    else
        json_put_null(w);
    dialect_write_text_z(w, "status", o->status);
    put_raw(w, "background", (str){"", 0}, "false");
    put_failure(w, o->error);
    put_incomplete(w, is_end && o->error == NULL ? incomplete_reason(o->reason) : NULL);
    json_key_z(w, "output");
    json_open_array(w);
    if (items.len)
        json_put_raw(w, items);
    json_close_array(w);
    put_echo(w, own(st));
    if (is_end)
        put_usage(w, &st->usage);
    else
        put_raw(w, "usage", (str){"", 0}, "null");
    if (is_end && o->error == NULL) {
        json_key_z(w, "shoal");
        dialect_write_shoal(w, st, o->reason);
    }
    json_close_object(w);
}

/* ---- Events ---- */

static struct json_writer open_event(struct buf *json, struct dialect_state *st, const char *name)
{
    struct json_writer w = json_writer(json);
    json_open_object(&w);
    dialect_write_text_z(&w, "type", name);
    json_put_key_u64(&w, "sequence_number", own(st)->sequence++);
    return w;
}

static void close_event(struct buf *out, struct buf *json, struct json_writer *w, const char *name)
{
    json_close_object(w);
    dialect_write_sse_named(out, name, json);
    buf_deinit(json);
}

static void response_event(struct buf *out, struct dialect_state *st, const char *name,
                           const struct outcome *o)
{
    struct buf json = dialect_write_piece();
    struct json_writer w = open_event(&json, st, name);
    json_key_z(&w, "response");
    put_response(&w, st, o);
    close_event(out, &json, &w, name);
}

static void item_event(struct buf *out, struct dialect_state *st, const char *name,
                       const char *status)
{
    struct buf json = dialect_write_piece();
    struct json_writer w = open_event(&json, st, name);
    json_put_key_u64(&w, "output_index", own(st)->items_count - 1);
    json_key_z(&w, "item");
    put_item(&w, st, status);
    close_event(out, &json, &w, name);
}

/* An event of the open item's inside, up to where its own members begin. */
static struct json_writer open_inside(struct buf *json, struct dialect_state *st, const char *name)
{
    struct json_writer w = open_event(json, st, name);
    put_item_id(&w, "item_id", st);
    json_put_key_u64(&w, "output_index", own(st)->items_count - 1);
    if (own(st)->open == RESPONSES_MESSAGE)
        json_put_key_u64(&w, "content_index", 0);
    if (own(st)->open == RESPONSES_REASONING)
        json_put_key_u64(&w, "summary_index", 0);
    return w;
}

static void part_event(struct buf *out, struct dialect_state *st, bool is_done)
{
    static const char *const names[2][2] = {
        {"response.reasoning_summary_part.added", "response.reasoning_summary_part.done"},
        {"response.content_part.added", "response.content_part.done"}};
    const char *name = names[own(st)->open == RESPONSES_MESSAGE][is_done];
    struct buf json = dialect_write_piece();
    struct json_writer w = open_inside(&json, st, name);
    str none = {"", 0};
    json_key_z(&w, "part");
    put_part(&w, st, is_done ? buf_view(text_of(st)) : none,
             is_done ? buf_view(&st->choices[0].logprobs) : none);
    close_event(out, &json, &w, name);
}

/* A piece of the open item's text, or all of it at its end. */
static void text_event(struct buf *out, struct dialect_state *st, bool is_done, str text,
                       str logprobs)
{
    static const char *const names[][2] = {
        {"response.reasoning_summary_text.delta", "response.reasoning_summary_text.done"},
        {"response.output_text.delta", "response.output_text.done"},
        {"response.function_call_arguments.delta", "response.function_call_arguments.done"},
        {"response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"}};
    static const char *const whole[] = {"text", "text", "arguments", "input"};
    bool is_custom = own(st)->open == RESPONSES_CALL &&
                     st->choices[0].call.kind == API_TOOL_CUSTOM;
    size_t row = is_custom ? 3 : (size_t)own(st)->open - RESPONSES_REASONING;
    struct buf json = dialect_write_piece();
    struct json_writer w = open_inside(&json, st, names[row][is_done]);
    dialect_write_text(&w, is_done ? whole[row] : "delta", text);
    if (own(st)->open == RESPONSES_MESSAGE)
        put_logprobs(&w, logprobs);
    close_event(out, &json, &w, names[row][is_done]);
}

static void start_stream(struct buf *out, struct dialect_state *st)
{
    const struct outcome begun = {.status = "in_progress"};
    if (st->is_begun || !st->stream)
        return;
    response_event(out, st, "response.created", &begun);
    response_event(out, st, "response.in_progress", &begun);
    st->is_begun = true;
}

/* ---- Items: steps of both forms. False: it did not fit. ---- */

static bool close_item(struct buf *out, struct dialect_state *st, const char *status)
{
    struct dialect_choice *c = &st->choices[0];
    bool is_call = own(st)->open == RESPONSES_CALL;
    if (own(st)->open == RESPONSES_NONE)
        return true;
    struct buf json = dialect_write_piece();
    struct json_writer w = json_writer(&json);
    put_item(&w, st, status);
    bool ok = dialect_write_append_json(st, &c->calls, &json);
    buf_deinit(&json);
    if (st->stream) {
        text_event(out, st, true, buf_view(is_call ? &c->call.args : text_of(st)),
                   buf_view(&c->logprobs));
        if (!is_call)
            part_event(out, st, true);
        item_event(out, st, "response.output_item.done", status);
    }
    c->content.len = c->reasoning.len = c->logprobs.len = 0;
    if (!c->in_call)
        c->call.args.len = 0; /* else shoal.partial_call has them still */
    own(st)->open = RESPONSES_NONE;
    return ok;
}

/* Of a reply that is not streamed: a leg that goes on makes the call again. */
static void drop_open_call(struct dialect_state *st)
{
    if (own(st)->open != RESPONSES_CALL || !st->choices[0].in_call || st->stream)
        return;
    dialect_write_drop_call(st, 0);
    own(st)->open = RESPONSES_NONE;
    own(st)->items_count--;
}

static bool open_item(struct buf *out, struct dialect_state *st, enum dialect_responses_item kind)
{
    if (kind != RESPONSES_CALL)
        drop_open_call(st);
    if (own(st)->open == kind && kind != RESPONSES_CALL)
        return true;
    if (!close_item(out, st, "completed"))
        return false;
    own(st)->open = kind;
    own(st)->items_count++;
    if (st->stream) {
        item_event(out, st, "response.output_item.added", "in_progress");
        if (kind != RESPONSES_CALL)
            part_event(out, st, false);
    }
    return true;
}

static bool on_text(struct buf *out, struct dialect_state *st, const struct api_event *ev)
{
    struct dialect_choice *c = &st->choices[0];
    bool is_reasoning = ev->kind == API_EVENT_REASONING;
    if (ev->text.text.len == 0 && (is_reasoning || ev->text.logprobs_count == 0))
        return true;
    if (!open_item(out, st, is_reasoning ? RESPONSES_REASONING : RESPONSES_MESSAGE))
        return false;
    struct buf logprobs = dialect_write_piece();
    struct json_writer w = json_writer(&logprobs);
    if (!is_reasoning && own(st)->with_logprobs)
        dialect_write_logprobs(&w, &ev->text);
    bool ok = dialect_write_append(st, is_reasoning ? &c->reasoning : &c->content, ev->text.text) &&
              dialect_write_append_json(st, &c->logprobs, &logprobs);
    if (ok && st->stream)
        text_event(out, st, false, ev->text.text, buf_view(&logprobs));
    buf_deinit(&logprobs);
    return ok;
}

/* A call that begins closes what is open before its name is kept: prose ends with its own item. */
static bool on_call(struct buf *out, struct dialect_state *st, const struct api_event *ev)
{
    if (ev->kind == API_EVENT_CALL_END)
        return dialect_write_keep_call(st, 0, ev) && close_item(out, st, "completed");
    if (ev->kind == API_EVENT_CALL_BEGIN) {
        drop_open_call(st);
        return close_item(out, st, "completed") && dialect_write_keep_call(st, 0, ev) &&
               open_item(out, st, RESPONSES_CALL);
    }
    if (!dialect_write_keep_call(st, 0, ev))
        return false;
    if (st->stream && ev->call.args.len)
        text_event(out, st, false, ev->call.args, (str){"", 0});
    return true;
}

static bool on_done(struct buf *out, struct dialect_state *st, enum api_done reason)
{
    bool is_cut = incomplete_reason(reason) != NULL;
    const struct outcome end = {.status = is_cut ? "incomplete" : "completed", .reason = reason};
    start_stream(out, st);
    if (!close_item(out, st, end.status))
        return false;
    if (st->stream) {
        response_event(out, st, is_cut ? "response.incomplete" : "response.completed", &end);
    } else {
        struct json_writer w = json_writer(out);
        put_response(&w, st, &end);
    }
    st->is_begun = st->is_over = true;
    return true;
}

/* ---- Entry points ---- */

static bool on_event(struct buf *out, struct dialect_state *st, const struct api_event *ev)
{
    bool is_text = ev->kind == API_EVENT_CONTENT || ev->kind == API_EVENT_REASONING;
    bool is_call = dialect_write_is_call(ev);
    if (is_call || (is_text && ev->text.text.len))
        start_stream(out, st);
    if (is_text)
        return on_text(out, st, ev);
    if (is_call)
        return on_call(out, st, ev);
    return dialect_write_remember(st, 0, ev) &&
           (ev->kind != API_EVENT_DONE || on_done(out, st, st->choices[0].reason));
}

void dialect_responses_reply_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                                   const struct api_event *ev)
{
    struct api_error e;
    must(choice == 0);
    if (st->is_over || (st->hides_reasoning && ev->kind == API_EVENT_REASONING))
        return;
    if (ev->kind == API_EVENT_ERROR) {
        dialect_responses_reply_error(out, st, &ev->error);
    } else if (ev->kind == API_EVENT_DONE && ev->done.reason == API_DONE_CANCELLED) {
        api_error_set(&e, ERR_CANCELLED, "", STR(""), "the request was cancelled");
        dialect_responses_reply_error(out, st, &e);
    } else if (!on_event(out, st, ev)) {
        dialect_write_too_long(st, &e);
        dialect_responses_reply_error(out, st, &e);
    }
}

void dialect_responses_reply_error(struct buf *out, struct dialect_state *st,
                                   const struct api_error *e)
{
    struct api_error named = dialect_write_named(st, e);
    const struct outcome failed = {.status = "failed", .error = &named};
    if (st->stream && st->is_begun) {
        if (!close_item(out, st, "incomplete"))
            own(st)->open = RESPONSES_NONE; /* too long to be repeated */
        response_event(out, st, "response.failed", &failed);
    } else {
        struct json_writer w = json_writer(out);
        json_open_object(&w);
        dialect_openai_write_error(&w, &named);
        json_close_object(&w);
    }
    st->is_begun = st->is_over = true;
}

void dialect_responses_reply_ping(struct buf *out, struct dialect_state *st,
                                  const struct dialect_ping *p)
{
    if (st->is_over)
        return;
    start_stream(out, st);
    dialect_write_ping(out, st, p);
}
