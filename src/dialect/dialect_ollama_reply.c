#include "dialect/dialect_ollama_reply.h"

#include <stdio.h>
#include <string.h>

static const struct dialect_ollama_state *own(const struct dialect_state *st)
{
    return (const struct dialect_ollama_state *)st;
}

/* A prompt that is only read ends because nothing was to be said. */
static const char *done_reason(const struct dialect_state *st, enum api_done reason)
{
    if (own(st)->kind == API_KIND_LOAD)
        return "load";
    if (own(st)->kind == API_KIND_UNLOAD)
        return "unload";
    if (own(st)->kind == API_KIND_PREFILL)
        return "length";
    switch (reason) {
    case API_DONE_EOS: case API_DONE_STOP_STRING: case API_DONE_SCHEMA_END: case API_DONE_REFUSAL:
        return "stop";
    case API_DONE_CALLS: case API_DONE_TOOL_LIMIT:
        return "tool_calls";
    case API_DONE_MAX_GEN: case API_DONE_DEADLINE:
        return "timeout";
    case API_DONE_CANCELLED:
        return "error";
    case API_DONE_MAX_TOKENS: case API_DONE_CONTEXT_FULL: case API_DONE_LOOP:
    case API_DONE_COUNT_:
        break;
    }
    return "length";
}

/* ---- Parts of both forms ---- */

static void put_head(struct json_writer *w, const struct dialect_state *st)
{
    dialect_write_text(w, "model", st->model);
    json_key_z(w, "created_at");
    dialect_write_time(w, st->time_s);
}

/* The answer's place: a message, or the members response and thinking. calls: elements, or "". */
static void put_answer(struct json_writer *w, const struct dialect_state *st, str content,
                       str reasoning, str calls)
{
    if (own(st)->is_chat) {
        json_key_z(w, "message");
        json_open_object(w);
        dialect_write_text_z(w, "role", "assistant");
    }
    dialect_write_text(w, own(st)->is_chat ? "content" : "response", content);
    if (reasoning.len)
        dialect_write_text(w, "thinking", reasoning);
    if (calls.len) {
        json_key_z(w, "tool_calls");
        json_open_array(w);
        json_put_raw(w, calls);
        json_close_array(w);
    }
    if (own(st)->is_chat)
        json_close_object(w);
}

static void put_logprobs(struct json_writer *w, str elements)
{
    if (elements.len == 0)
        return;
    json_key_z(w, "logprobs");
    json_open_array(w);
    json_put_raw(w, elements);
    json_close_array(w);
}

static void put_times(struct json_writer *w, const struct dialect_state *st)
{
    const struct api_usage *u = &st->usage;
    uint64_t sum = u->queue_ns + u->load_ns + u->prefill_ns + u->decode_ns;
    json_put_key_u64(w, "total_duration", st->total_ns ? st->total_ns : sum);
    json_put_key_u64(w, "load_duration", u->load_ns);
    json_put_key_u64(w, "prompt_eval_count", u->prompt_tokens);
    json_put_key_u64(w, "prompt_eval_duration", u->prefill_ns);
    json_put_key_u64(w, "eval_count", u->output_tokens);
    json_put_key_u64(w, "eval_duration", u->decode_ns);
}

static void put_end(struct json_writer *w, struct dialect_state *st, enum api_done reason)
{
    bool is_load = own(st)->kind == API_KIND_LOAD || own(st)->kind == API_KIND_UNLOAD;
    json_key_z(w, "done");
    json_put_bool(w, true);
    dialect_write_text_z(w, "done_reason",
                         done_reason(st, dialect_write_reason(&st->choices[0], reason)));
    if (!is_load)
        put_times(w, st);
    json_key_z(w, "shoal");
    dialect_write_shoal(w, st, reason);
}

static void put_error(struct json_writer *w, const struct api_error *e)
{
    json_key_z(w, "error");
    dialect_write_message(w, e);
    dialect_write_text_z(w, "code", dialect_error(e).code);
    if (e->err.code == ERR_CONTEXT) {
        json_put_key_u64(w, "prompt_tokens", e->prompt_tokens);
        json_put_key_u64(w, "limit", e->limit);
    }
}

/* ---- Models ---- */

static void put_size(struct json_writer *w, uint64_t parameters)
{
    char text[32];
    double n = (double)parameters;
    if (parameters >= 1000000000)
        snprintf(text, sizeof text, "%.1fB", n / 1e9);
    else if (parameters >= 1000000)
        snprintf(text, sizeof text, "%.2fM", n / 1e6);
    else
        snprintf(text, sizeof text, "%.2fK", n / 1e3);
    json_put_text_z(w, parameters ? text : "");
}

static void put_details(struct json_writer *w, const struct api_model *m)
{
    json_key_z(w, "details");
    json_open_object(w);
    dialect_write_text(w, "parent_model", (str){"", 0});
    dialect_write_text(w, "format", STR("gguf"));
    dialect_write_text(w, "family", m->family);
    json_key_z(w, "families");
    json_open_array(w);
    if (m->family.len)
        json_put_text(w, m->family);
    json_close_array(w);
    json_key_z(w, "parameter_size");
    put_size(w, m->parameters);
    dialect_write_text(w, "quantization_level", m->quant);
    json_close_object(w);
}

static void put_row(struct json_writer *w, const struct api_model *m, bool is_ps)
{
    json_open_object(w);
    dialect_write_text(w, "name", m->name);
    dialect_write_text(w, "model", m->name);
    json_key_z(w, "modified_at");
    dialect_write_time(w, m->modified_s);
    json_put_key_u64(w, "size", m->bytes);
    dialect_write_text(w, "digest", m->digest);
    put_details(w, m);
    if (is_ps) {
        if (m->expires_s > 0) {
            json_key_z(w, "expires_at");
            dialect_write_time(w, m->expires_s);
        }
        json_put_key_u64(w, "size_vram", m->gpu_bytes);
        json_put_key_u64(w, "context_length", m->context_max);
    }
    json_close_object(w);
}

/* The file's own metadata, or what is known of it by other ways, under the same keys: clients look
 * for the architecture and its context length. */
static void put_info(struct json_writer *w, const struct api_model *m)
{
    char key[96];
    json_key_z(w, "model_info");
    if (m->info.len) {
        json_put_raw(w, m->info);
        return;
    }
    json_open_object(w);
    if (m->family.len) {
        dialect_write_text(w, "general.architecture", m->family);
        json_put_key_u64(w, "general.parameter_count", m->parameters);
        snprintf(key, sizeof key, "%.*s.context_length", (int)base_min(m->family.len, 64),
                 m->family.p);
        json_put_key_u64(w, key, m->context_max);
    }
    json_close_object(w);
}

static void put_show(struct json_writer *w, const struct api_model *m)
{
    json_open_object(w);
    dialect_write_text(w, "license", m->license);
    dialect_write_text(w, "parameters", (str){"", 0});
    dialect_write_text(w, "template", m->chat_template);
    put_details(w, m);
    put_info(w, m);
    json_key_z(w, "capabilities");
    dialect_write_capabilities(w, m->caps);
    json_key_z(w, "modified_at");
    dialect_write_time(w, m->modified_s);
    json_close_object(w);
}

/* Rows live no longer than their event: they are kept as JSON. */
static bool remember_models(struct dialect_state *st, const struct api_models *m)
{
    struct buf json = dialect_write_piece();
    bool ok = true;
    for (uint32_t i = 0; ok && i < m->rows_count; i++) {
        struct json_writer w = json_writer(&json);
        buf_clear(&json);
        if (own(st)->kind == API_KIND_SHOW)
            put_show(&w, &m->rows[i]);
        else
            put_row(&w, &m->rows[i], own(st)->kind == API_KIND_PS);
        ok = dialect_write_append_json(st, &st->choices[0].content, &json);
    }
    buf_deinit(&json);
    return ok;
}

static void models_end(struct buf *out, struct dialect_state *st)
{
    struct json_writer w = json_writer(out);
    str rows = buf_view(&st->choices[0].content);
    if (own(st)->kind == API_KIND_SHOW) {
        json_put_raw(&w, rows.len ? rows : STR("{}"));
    } else {
        json_open_object(&w);
        json_key_z(&w, "models");
        json_open_array(&w);
        if (rows.len)
            json_put_raw(&w, rows);
        json_close_array(&w);
        json_close_object(&w);
    }
}

/* ---- Texts ---- */

static bool keep_calls(struct dialect_state *st, uint32_t choice, const struct api_event *ev)
{
    struct dialect_choice *c = &st->choices[choice];
    struct dialect_call *call = &c->call;
    if (!dialect_write_keep_call(st, choice, ev))
        return false;
    if (ev->kind != API_EVENT_CALL_END)
        return true;
    struct buf json = dialect_write_piece();
    struct json_writer w = json_writer(&json);
    json_open_object(&w);
    dialect_write_text(&w, "id", call->id);
    json_key_z(&w, "function");
    json_open_object(&w);
    json_put_key_u64(&w, "index", call->index);
    dialect_write_text(&w, "name", call->name);
    json_key_z(&w, "arguments");
    dialect_write_call_object(&w, st, call);
    json_close_object(&w);
    json_close_object(&w);
    bool ok = dialect_write_append_json(st, &c->calls, &json);
    buf_deinit(&json);
    return ok;
}

/* One line of a stream; ev NULL: a sign of life. */
static void line(struct buf *out, struct dialect_state *st, const struct api_event *ev,
                 const struct dialect_ping *p)
{
    struct dialect_choice *c = &st->choices[0];
    struct buf logprobs = dialect_write_piece();
    struct json_writer w = json_writer(out), l = json_writer(&logprobs);
    bool is_content = ev && ev->kind == API_EVENT_CONTENT;
    bool is_reasoning = ev && ev->kind == API_EVENT_REASONING;
    bool is_call = ev && ev->kind == API_EVENT_CALL_END;
    str none = {"", 0};
    json_open_object(&w);
    put_head(&w, st);
    put_answer(&w, st, is_content ? ev->text.text : none, is_reasoning ? ev->text.text : none,
               is_call ? buf_view(&c->calls) : none);
    if (is_content)
        dialect_write_logprobs(&l, &ev->text);
    put_logprobs(&w, buf_view(&logprobs));
    if (ev && ev->kind == API_EVENT_DONE) {
        put_end(&w, st, ev->done.reason);
    } else {
        json_key_z(&w, "done");
        json_put_bool(&w, false);
    }
    if (p && p->from.len) {
        json_key_z(&w, "shoal");
        json_open_object(&w);
        dialect_write_failover(&w, p);
        json_close_object(&w);
    }
    json_close_object(&w);
    buf_add_byte(out, '\n');
    buf_deinit(&logprobs);
    st->is_begun = true;
}

static void stream_event(struct buf *out, struct dialect_state *st, const struct api_event *ev)
{
    bool is_text = ev->kind == API_EVENT_REASONING || ev->kind == API_EVENT_CONTENT;
    bool is_over = ev->kind == API_EVENT_DONE && dialect_write_is_last(st);
    if (is_over || ev->kind == API_EVENT_CALL_END ||
        (is_text && (ev->text.text.len || ev->text.logprobs_count)))
        line(out, st, ev, NULL);
    if (ev->kind == API_EVENT_CALL_END)
        st->choices[0].calls.len = 0;
    st->is_over = is_over;
}

static void whole(struct buf *out, struct dialect_state *st, enum api_done reason)
{
    const struct dialect_choice *c = &st->choices[0];
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    put_head(&w, st);
    bool is_load = own(st)->kind == API_KIND_LOAD || own(st)->kind == API_KIND_UNLOAD;
    put_answer(&w, st, is_load ? (str){"", 0} : buf_view(&c->content), buf_view(&c->reasoning),
               buf_view(&c->calls));
    put_logprobs(&w, buf_view(&c->logprobs));
    put_end(&w, st, reason);
    json_close_object(&w);
    if (st->stream)
        buf_add_byte(out, '\n');
}

static void end(struct buf *out, struct dialect_state *st, enum api_done reason)
{
    switch (own(st)->kind) {
    case API_KIND_LIST: case API_KIND_PS: case API_KIND_SHOW:
        models_end(out, st);
        break;
    case API_KIND_CHAT: case API_KIND_COMPLETE: case API_KIND_EMBED: case API_KIND_COUNT:
    case API_KIND_ENCODE: case API_KIND_DECODE: case API_KIND_PREFILL: case API_KIND_LOAD:
    case API_KIND_UNLOAD: case API_KIND_COUNT_:
        whole(out, st, reason);
        break;
    }
    st->is_begun = st->is_over = true;
}

/* ---- Entry points ---- */

void dialect_ollama_reply_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                                const struct api_event *ev)
{
    struct api_error e;
    bool is_call = dialect_write_is_call(ev);
    bool is_text = own(st)->kind < API_KIND_LIST;
    if (st->is_over || (st->hides_reasoning && ev->kind == API_EVENT_REASONING))
        return;
    if (ev->kind == API_EVENT_CONTENT || ev->kind == API_EVENT_REASONING)
        dialect_write_drop_call(st, choice);
    if (ev->kind == API_EVENT_ERROR) {
        dialect_ollama_reply_error(out, st, &ev->error);
    } else if (!dialect_write_remember(st, choice, ev) ||
               (is_call && !keep_calls(st, choice, ev)) ||
               (ev->kind == API_EVENT_MODELS && !remember_models(st, &ev->models))) {
        dialect_write_too_long(st, &e);
        dialect_ollama_reply_error(out, st, &e);
    } else if (st->stream && is_text) {
        stream_event(out, st, ev);
    } else if (ev->kind == API_EVENT_DONE && dialect_write_is_last(st)) {
        end(out, st, ev->done.reason);
    }
}

void dialect_ollama_reply_error(struct buf *out, struct dialect_state *st,
                                const struct api_error *e)
{
    struct api_error named = dialect_write_named(st, e);
    struct json_writer w = json_writer(out);
    bool in_band = st->stream && st->is_begun;
    json_open_object(&w);
    if (in_band) {
        put_head(&w, st);
        put_answer(&w, st, (str){"", 0}, (str){"", 0}, (str){"", 0});
        json_key_z(&w, "done");
        json_put_bool(&w, true);
        dialect_write_text_z(&w, "done_reason", "error");
    }
    put_error(&w, &named);
    json_close_object(&w);
    if (in_band)
        buf_add_byte(out, '\n');
    st->is_begun = st->is_over = true;
}

void dialect_ollama_reply_ping(struct buf *out, struct dialect_state *st,
                               const struct dialect_ping *p)
{
    if (!st->is_over)
        line(out, st, NULL, p);
}
