#include "dialect/dialect_write.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define KEEP_MAX ((size_t)256 << 10)

/* ---- Remembering ---- */

str dialect_write_keep(struct dialect_state *st, str s)
{
    if (st->keep.bytes_max == 0)
        arena_init(&st->keep, KEEP_MAX);
    str copy = arena_copy(&st->keep, s);
    return copy.p ? copy : (str){"", 0};
}

bool dialect_write_append(struct dialect_state *st, struct buf *to, str text)
{
    if (to->size_max == 0)
        buf_init(to, st->reply_max ? st->reply_max : DIALECT_REPLY_MAX);
    return buf_add(to, text);
}

bool dialect_write_append_json(struct dialect_state *st, struct buf *to, const struct buf *json)
{
    return json->len == 0 || ((to->len == 0 || dialect_write_append(st, to, STR(","))) &&
                              dialect_write_append(st, to, buf_view(json)) && !json->full);
}

void dialect_write_too_long(const struct dialect_state *st, struct api_error *e)
{
    api_error_set(e, ERR_INTERNAL, "", STR(""), "the reply is longer than %zu bytes; a stream has "
                  "no such limit", st->reply_max ? st->reply_max : DIALECT_REPLY_MAX);
}

static bool remember_text(struct dialect_state *st, struct dialect_choice *c,
                          const struct api_event *ev)
{
    struct buf json;
    struct buf *to = ev->kind == API_EVENT_REASONING ? &c->reasoning : &c->content;
    bool ok = dialect_write_append(st, to, ev->text.text);
    if (ev->kind == API_EVENT_REASONING || ev->text.logprobs_count == 0)
        return ok;
    buf_init(&json, DIALECT_REPLY_MAX);
    struct json_writer w = json_writer(&json);
    dialect_write_logprobs(&w, &ev->text);
    ok = ok && dialect_write_append_json(st, &c->logprobs, &json);
    buf_deinit(&json);
    return ok;
}

/* What reading the request noted comes back from the child, which was told of it. */
static bool has_note(const struct dialect_state *st, const struct api_note *note)
{
    for (uint32_t i = 0; i < st->notes_count; i++)
        if (str_eq(st->notes[i].code, note->code) && str_eq(st->notes[i].text, note->text))
            return true;
    return false;
}

static bool remember_event(struct dialect_state *st, struct dialect_choice *c,
                           const struct api_event *ev)
{
    switch (ev->kind) {
    case API_EVENT_QUEUED:
        st->queued = ev->queued;
        break;
    case API_EVENT_STARTED:
        st->leg = dialect_write_keep(st, ev->started.leg);
        st->leg_model = dialect_write_keep(st, ev->started.model);
        st->model_hash = ev->started.model_hash;
        break;
    case API_EVENT_NOTE:
        if (st->notes_count < API_NOTES_MAX && !has_note(st, &ev->note))
            st->notes[st->notes_count++] = (struct api_note){
                dialect_write_keep(st, ev->note.code), dialect_write_keep(st, ev->note.text)};
        break;
    case API_EVENT_USAGE:
        st->usage = ev->usage;
        break;
    case API_EVENT_DONE:
        c->reason = dialect_write_reason(c, ev->done.reason);
        if (ev->done.reason == API_DONE_STOP_STRING)
            c->stop = dialect_write_keep(st, ev->done.stop);
        st->choices_done += !c->is_done;
        c->is_done = true;
        break;
    case API_EVENT_REASONING: case API_EVENT_CONTENT:
        return st->stream || remember_text(st, c, ev);
    case API_EVENT_PROGRESS: case API_EVENT_CALL_BEGIN: case API_EVENT_CALL_ARGS:
    case API_EVENT_CALL_END: case API_EVENT_EMBEDDING: case API_EVENT_TOKENS:
    case API_EVENT_MODELS: case API_EVENT_ERROR: case API_EVENT_PARKED: case API_EVENT_COUNT_:
        break;
    }
    return true;
}

bool dialect_write_remember(struct dialect_state *st, uint32_t choice, const struct api_event *ev)
{
    must(choice < st->choices_count);
    return remember_event(st, &st->choices[choice], ev);
}

bool dialect_write_take(struct buf *out, struct dialect_state *st, uint32_t choice,
                        const struct api_event *ev,
                        void (*write_error)(struct buf *out, struct dialect_state *st,
                                            const struct api_error *e))
{
    struct api_error e;
    if (ev->kind == API_EVENT_ERROR) {
        write_error(out, st, &ev->error);
        return false;
    }
    if (dialect_write_remember(st, choice, ev))
        return true;
    dialect_write_too_long(st, &e);
    write_error(out, st, &e);
    return false;
}

bool dialect_write_keep_call(struct dialect_state *st, uint32_t choice, const struct api_event *ev)
{
    struct dialect_choice *c = &st->choices[choice];
    struct dialect_call *call = &c->call;
    if (ev->kind == API_EVENT_CALL_ARGS)
        return dialect_write_append(st, &call->args, ev->call.args);
    if (ev->kind == API_EVENT_CALL_END) {
        c->calls_count += c->in_call;
        c->in_call = false;
        return true;
    }
    c->in_call = true;
    call->index = ev->call.index;
    call->kind = ev->call.tool_kind;
    call->id = dialect_write_keep(st, ev->call.id);
    call->name = dialect_write_keep(st, ev->call.name);
    call->name_space = dialect_write_keep(st, ev->call.name_space);
    call->args.len = 0;
    return call->id.len == ev->call.id.len && call->name.len == ev->call.name.len &&
           call->name_space.len == ev->call.name_space.len;
}

void dialect_write_drop_call(struct dialect_state *st, uint32_t choice)
{
    struct dialect_choice *c = &st->choices[choice];
    if (c->in_call)
        c->call.args.len = 0;
    c->in_call = false;
}

enum api_done dialect_write_reason(const struct dialect_choice *c, enum api_done reason)
{
    bool promises = reason == API_DONE_CALLS || reason == API_DONE_TOOL_LIMIT;
    if (!promises || c->calls_count)
        return reason;
    return c->in_call ? API_DONE_MAX_TOKENS : API_DONE_EOS;
}

bool dialect_write_compact(struct buf *out, str json)
{
    bool in_text = false;
    for (size_t i = 0; i < json.len; i++) {
        bool is_blank = json.p[i] == ' ' || json.p[i] == '\n' || json.p[i] == '\r' ||
                        json.p[i] == '\t';
        if (json.p[i] == '"')
            in_text = !in_text;
        if ((in_text || !is_blank) && !buf_add_byte(out, json.p[i]))
            return false;
        if (in_text && json.p[i] == '\\' && !buf_add_byte(out, json.p[++i]))
            return false; /* valid JSON: a byte follows */
    }
    return true;
}

/* ---- Writing ---- */

static void add_note(struct dialect_state *st, const char *code, str text)
{
    if (st->notes_count < API_NOTES_MAX)
        st->notes[st->notes_count++] = (struct api_note){str_of(code), text};
}

void dialect_write_call_object(struct json_writer *w, struct dialect_state *st,
                               const struct dialect_call *call)
{
    const struct json_options options = {.depth_max = DIALECT_DEPTH_MAX};
    struct arena a;
    struct err ignored;
    struct json v;
    arena_init(&a, 4 * call->args.len + ((size_t)1 << 20));
    if (json_parse(&v, buf_view(&call->args), &options, &a, &ignored) &&
        json_kind(v) == JSON_KIND_OBJECT) {
        struct buf line = dialect_write_piece();
        dialect_write_compact(&line, json_raw(v));
        json_put_raw(w, buf_view(&line));
        buf_deinit(&line);
    } else {
        add_note(st, "arguments_not_object", call->name);
        json_put_raw(w, STR("{}"));
    }
    arena_deinit(&a);
}

void dialect_write_text(struct json_writer *w, const char *key, str text)
{
    json_key_z(w, key);
    json_put_text(w, text);
}

void dialect_write_text_z(struct json_writer *w, const char *key, const char *text)
{
    dialect_write_text(w, key, str_of(text));
}

void dialect_write_raw(struct json_writer *w, const char *key, str json)
{
    json_key_z(w, key);
    json_put_raw(w, json);
}

void dialect_write_float(struct json_writer *w, const char *key, float v)
{
    json_key_z(w, key);
    json_put_float(w, v);
}

void dialect_write_null(struct json_writer *w, const char *key)
{
    json_key_z(w, key);
    json_put_null(w);
}

struct buf dialect_write_piece(void)
{
    struct buf b;
    buf_init(&b, DIALECT_REPLY_MAX);
    return b;
}

void dialect_write_id(struct json_writer *w, const struct dialect_state *st, const char *prefix)
{
    char id[64];
    str letters = str_starts(st->request_id, STR("req_")) ? str_from(st->request_id, 4)
                                                          : st->request_id;
    size_t at = strlen(prefix), len = base_min(letters.len, sizeof id - at);
    memcpy(id, prefix, at);
    if (len)
        memcpy(id + at, letters.p, len);
    json_put_text(w, str_view(id, at + len));
}

static double ms_of(uint64_t ns) { return (double)(ns / 1000) / 1000; }

static double per_second(uint32_t tokens, uint64_t ns)
{
    double rate = ns ? (double)tokens * 1e9 / (double)ns : 0;
    return (double)(int64_t)(rate * 100 + 0.5) / 100;
}

static void put_timings(struct json_writer *w, const struct api_usage *u)
{
    uint32_t computed = u->prompt_tokens > u->cached_tokens ? u->prompt_tokens - u->cached_tokens
                                                            : 0;
    const struct {
        const char *name;
        double value;
    } rows[] = {{"queue_ms", ms_of(u->queue_ns)}, {"load_ms", ms_of(u->load_ns)},
                {"prefill_ms", ms_of(u->prefill_ns)}, {"decode_ms", ms_of(u->decode_ns)},
                {"prefill_tps", per_second(computed, u->prefill_ns)},
                {"decode_tps", per_second(u->output_tokens, u->decode_ns)}};
    json_key_z(w, "timings");
    json_open_object(w);
    for (size_t i = 0; i < countof(rows); i++) {
        json_key_z(w, rows[i].name);
        json_put_double(w, rows[i].value);
    }
    json_close_object(w);
}

static void put_truncated(struct json_writer *w, const struct api_queued *q)
{
    const struct {
        const char *name;
        uint32_t value;
    } rows[] = {{"messages", q->cut_messages}, {"tokens", q->cut_tokens},
                {"kept_tokens", q->kept_tokens}, {"first_kept", q->first_kept}};
    json_key_z(w, "truncated");
    json_open_object(w);
    for (size_t i = 0; i < countof(rows); i++) {
        json_key_z(w, rows[i].name);
        json_put_u64(w, rows[i].value);
    }
    json_close_object(w);
}

/* What there is of a call when the reply was cut inside it; of several choices the first one's. */
static void put_partial_call(struct json_writer *w, const struct dialect_choice *c)
{
    json_key_z(w, "partial_call");
    json_open_object(w);
    dialect_write_text(w, "id", c->call.id);
    dialect_write_text(w, "name", c->call.name);
    dialect_write_text(w, "arguments", buf_view(&c->call.args));
    json_close_object(w);
}

void dialect_write_shoal(struct json_writer *w, const struct dialect_state *st,
                         enum api_done reason)
{
    json_open_object(w);
    dialect_write_text(w, "request_id", st->request_id);
    dialect_write_text(w, "leg", st->leg);
    dialect_write_text(w, "model", st->leg_model);
    json_put_key_u64(w, "seed", st->seed);
    dialect_write_text_z(w, "finish", api_event_done_name(dialect_write_reason(
                                          &st->choices[0], reason)));
    put_timings(w, &st->usage);
    json_key_z(w, "cache");
    json_open_object(w);
    json_put_key_u64(w, "prompt", st->usage.prompt_tokens);
    json_put_key_u64(w, "cached", st->usage.cached_tokens);
    json_key_z(w, "reason");
    json_put_null(w);
    json_close_object(w);
    if (st->legs_json.len) {
        json_key_z(w, "legs");
        json_put_raw(w, st->legs_json);
    }
    if (st->queued.cut_messages)
        put_truncated(w, &st->queued);
    for (uint32_t i = 0; i < st->choices_count; i++)
        if (st->choices[i].in_call) {
            put_partial_call(w, &st->choices[i]);
            break;
        }
    json_key_z(w, "warnings");
    json_open_array(w);
    for (uint32_t i = 0; i < st->notes_count; i++) {
        char text[400];
        snprintf(text, sizeof text, "%.*s; %.*s", STR_ARG(st->notes[i].code),
                 (int)base_min(st->notes[i].text.len, 300),
                 st->notes[i].text.len ? st->notes[i].text.p : "");
        json_put_text_z(w, text);
    }
    json_close_array(w);
    json_close_object(w);
}

static void put_top(struct json_writer *w, const struct api_top *t)
{
    dialect_write_text(w, "token", t->bytes);
    json_key_z(w, "logprob");
    json_put_float(w, t->logprob);
    json_key_z(w, "bytes");
    json_open_array(w);
    for (size_t i = 0; i < t->bytes.len; i++)
        json_put_u64(w, (uint8_t)t->bytes.p[i]);
    json_close_array(w);
}

void dialect_write_logprobs(struct json_writer *w, const struct api_text *t)
{
    for (uint32_t i = 0; i < t->logprobs_count; i++) {
        json_open_object(w);
        put_top(w, &t->logprobs[i].token);
        json_key_z(w, "top_logprobs");
        json_open_array(w);
        for (uint32_t k = 0; k < t->logprobs[i].top_count; k++) {
            json_open_object(w);
            put_top(w, &t->logprobs[i].top[k]);
            json_close_object(w);
        }
        json_close_array(w);
        json_close_object(w);
    }
}

struct api_error dialect_write_named(const struct dialect_state *st, const struct api_error *e)
{
    static const char *const ours[] = {"messages", "inputs"};
    struct api_error out = *e;
    for (size_t i = 0; st->prompt_name && i < countof(ours); i++) {
        if (!str_eq_z(e->param, ours[i]))
            continue;
        size_t len = strlen(ours[i]);
        out.param = str_of(st->prompt_name);
        if (strncmp(e->err.text, ours[i], len) == 0 && e->err.text[len] == ':')
            snprintf(out.err.text, sizeof out.err.text, "%s%s", st->prompt_name,
                     e->err.text + len);
    }
    return out;
}

void dialect_write_message(struct json_writer *w, const struct api_error *e)
{
    char text[80];
    if (e->fault == API_FAULT_REQUEST && e->upstream_text.len) { /* clients know these words */
        json_put_text(w, e->upstream_text);
        return;
    }
    snprintf(text, sizeof text, "prompt has %u tokens, limit is %u", e->prompt_tokens, e->limit);
    json_put_text_z(w, e->err.code == ERR_CONTEXT && e->limit ? text : e->err.text);
}

void dialect_write_sse(struct buf *out, const struct buf *json)
{
    buf_add_z(out, "data: ");
    buf_add(out, buf_view(json));
    buf_add_z(out, "\n\n");
}

void dialect_write_sse_named(struct buf *out, const char *name, const struct buf *json)
{
    buf_add_z(out, "event: ");
    buf_add_z(out, name);
    buf_add_byte(out, '\n');
    dialect_write_sse(out, json);
}

void dialect_write_failover(struct json_writer *w, const struct dialect_ping *p)
{
    dialect_write_text_z(w, "phase", p->phase);
    if (!p->from.len)
        return;
    dialect_write_text(w, "from", p->from);
    dialect_write_text(w, "to", p->to);
    dialect_write_text(w, "reason", p->reason);
    json_put_key_u64(w, "sent", p->sent);
}

void dialect_write_ping(struct buf *out, struct dialect_state *st, const struct dialect_ping *p)
{
    struct json_writer w = json_writer(out);
    if (st->is_over)
        return;
    st->is_begun = true;
    buf_add_z(out, ": shoal ");
    json_open_object(&w);
    dialect_write_failover(&w, p);
    json_put_key_u64(&w, "position", p->position);
    json_put_key_u64(&w, "done", p->done);
    json_put_key_u64(&w, "total", p->total);
    json_key_z(&w, "eta_ms");
    if (p->eta_ms >= 0)
        json_put_i64(&w, p->eta_ms);
    else
        json_put_null(&w);
    json_close_object(&w);
    buf_add_z(out, "\n\n");
}

void dialect_write_time(struct json_writer *w, int64_t time_s)
{
    char text[40];
    time_t seconds = (time_t)time_s;
    struct tm t;
    if (gmtime_r(&seconds, &t) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &t))
        json_put_text_z(w, text);
    else
        json_put_null(w);
}

void dialect_write_capabilities(struct json_writer *w, uint32_t caps)
{
    static const struct {
        uint32_t cap;
        const char *name;
    } rows[] = {{API_CAP_TOOLS, "tools"}, {API_CAP_THINK, "thinking"}, {API_CAP_VISION, "vision"},
                {API_CAP_INSERT, "insert"}, {API_CAP_EMBED, "embedding"}};
    json_open_array(w);
    if (!(caps & API_CAP_EMBED))
        json_put_text_z(w, "completion");
    for (size_t i = 0; i < countof(rows); i++)
        if (caps & rows[i].cap)
            json_put_text_z(w, rows[i].name);
    json_close_array(w);
}
