/* BEHAVIOUR 5.10, contexts. */
#include "dialect/dialect_contexts.h"

#include <string.h>

#include "dialect/dialect_openai_reply.h"
#include "dialect/dialect_read.h"

#define CONTENT_MORE 1024u /* names of members, the model */

extern const struct dialect dialect_openai_chat, dialect_openai_complete;

static struct dialect_contexts_state *own(struct dialect_state *st)
{
    return (struct dialect_contexts_state *)st;
}

/* ---- Reading ---- */

bool dialect_contexts_is_id(str id)
{
    bool ok = id.len >= 1 && id.len <= DIALECT_CONTEXTS_ID_MAX;
    for (size_t i = 0; ok && i < id.len; i++)
        ok = (id.p[i] >= 'a' && id.p[i] <= 'z') || (id.p[i] >= 'A' && id.p[i] <= 'Z') ||
             (id.p[i] >= '0' && id.p[i] <= '9') || (id.p[i] && strchr("._-", id.p[i]));
    return ok;
}

/* "24h", or seconds. False: ERR_REQUEST. */
static bool read_ttl_of(struct json v, int64_t *ms, struct arena *a, struct api_error *e)
{
    double seconds = 0;
    bool ok = false;
    if (json_kind(v) == JSON_KIND_STRING) {
        ok = str_to_duration_ms(json_text(v, a), ms);
    } else if (json_double(v, &seconds) && seconds > 0 && seconds <= 1e9) {
        *ms = (int64_t)(seconds * 1000);
        ok = true;
    }
    return (ok && *ms >= 1000 && *ms <= DIALECT_CONTEXTS_TTL_MAX_MS) ||
           api_error_set(e, ERR_REQUEST, "", STR("ttl"),
                         "ttl: a duration like 24h or seconds expected, from 1s to 365 days");
}

static bool read_id(struct dialect_read *r, struct json v)
{
    str *id = &own(r->st)->id;
    if (!dialect_read_text(r, v, id))
        return false;
    return dialect_contexts_is_id(*id) ||
           dialect_read_fail(r, ERR_REQUEST, v, "1 to %u of A-Z a-z 0-9 . _ - expected",
                             DIALECT_CONTEXTS_ID_MAX);
}

static bool read_ttl(struct dialect_read *r, struct json v)
{
    return read_ttl_of(v, &own(r->st)->ttl_ms, r->a, r->e);
}

static bool read_pin(struct dialect_read *r, struct json v)
{
    own(r->st)->has_pin = true;
    return dialect_read_bool(r, v, &own(r->st)->pin);
}

static bool read_warm(struct dialect_read *r, struct json v)
{
    return dialect_read_bool(r, v, &own(r->st)->warm);
}

/* model, messages, prompt, tools, cache_salt and shoal are read as a chat's. */
static const struct dialect_field fields[] = {
    {"model", DIALECT_KIND_SKIPPED, 0, NULL},
    {"messages", DIALECT_KIND_SKIPPED, 0, NULL},
    {"system", DIALECT_KIND_SKIPPED, 0, NULL},
    {"tools", DIALECT_KIND_SKIPPED, 0, NULL},
    {"cache_salt", DIALECT_KIND_SKIPPED, 0, NULL},
    {"shoal", DIALECT_KIND_SKIPPED, 0, NULL},
    {"prompt", DIALECT_KIND_SKIPPED, 0, NULL},
    {"id", READ(read_id)},
    {"ttl", READ(read_ttl)},
    {"pin", READ(read_pin)},
};

static const struct dialect_field changes[] = {
    {"ttl", READ(read_ttl)},
    {"pin", READ(read_pin)},
    {"warm", READ(read_warm)},
};

static void put_member(struct json_writer *w, struct json body, const char *name)
{
    struct json v = json_member(body, name);
    if (json_kind(v) <= JSON_KIND_NULL)
        return;
    json_key_z(w, name);
    json_put_raw(w, json_raw(v));
}

static void put_messages(struct json_writer *w, struct json body)
{
    struct json system = json_member(body, "system");
    put_member(w, body, "messages");
    if (json_kind(system) <= JSON_KIND_NULL)
        return;
    json_key_z(w, "messages");
    json_open_array(w);
    json_open_object(w);
    dialect_write_text(w, "role", STR("system"));
    json_key_z(w, "content");
    json_put_raw(w, json_raw(system));
    json_close_object(w);
    json_close_array(w);
}

/* As a body of chat completions, or of completions; with_extras: also what says who asks. */
static str chat_body(struct dialect_read *r, struct json body, bool with_extras)
{
    struct buf out;
    buf_init(&out, r->in->body.len + CONTENT_MORE);
    struct json_writer w = json_writer(&out);
    json_open_object(&w);
    put_member(&w, body, "model");
    put_messages(&w, body);
    put_member(&w, body, "prompt");
    put_member(&w, body, "tools");
    if (with_extras) {
        put_member(&w, body, "cache_salt");
        put_member(&w, body, "shoal");
    }
    json_close_object(&w);
    str text = out.full ? (str){NULL, 0} : arena_copy(r->a, buf_view(&out));
    buf_deinit(&out);
    return text;
}

/* A prompt is one text, and alone. */
static bool check_prompt(struct dialect_read *r, struct json body)
{
    static const char *const others[] = {"messages", "system", "tools"};
    struct json prompt = json_member(body, "prompt");
    if (json_kind(prompt) <= JSON_KIND_NULL)
        return true;
    if (json_kind(prompt) != JSON_KIND_STRING)
        return dialect_read_wrong(r, prompt, "string");
    for (size_t i = 0; i < countof(others); i++)
        if (json_kind(json_member(body, others[i])) > JSON_KIND_NULL)
            return dialect_read_fail(r, ERR_REQUEST, prompt, "not beside %s", others[i]);
    return true;
}

static bool read_prefix(struct dialect_read *r, struct json body)
{
    struct dialect_in in = *r->in;
    bool is_prompt = json_kind(json_member(body, "prompt")) > JSON_KIND_NULL;
    const struct dialect *d = is_prompt ? &dialect_openai_complete : &dialect_openai_chat;
    if (!check_prompt(r, body))
        return false;
    if (json_kind(json_member(body, "system")) > JSON_KIND_NULL &&
        json_kind(json_member(body, "messages")) > JSON_KIND_NULL)
        return dialect_read_fail(r, ERR_REQUEST, json_member(body, "system"),
                                 "not beside messages, its first one may be the system's");
    own(r->st)->content = chat_body(r, body, false);
    in.body = chat_body(r, body, true);
    if (!own(r->st)->content.p || !in.body.p)
        return dialect_read_array(r, SIZE_MAX, 1) != NULL; /* says so */
    if (!d->read_request(r->rq, r->st, &in, r->a, r->e))
        return false;
    return r->rq->context.len == 0 ||
           api_error_set(r->e, ERR_REQUEST, "", STR("shoal.context"),
                         "shoal.context: a context does not build on another");
}

bool dialect_contexts_computes(const struct dialect_contexts_state *st)
{
    return !st->is_change || st->warm || st->pin;
}

static bool read_change(struct dialect_read *r, struct json body)
{
    struct dialect_contexts_state *st = own(r->st);
    api_request_init(r->rq);
    if (!dialect_read_object(r, body, changes, countof(changes)))
        return false;
    st->is_change = true;
    st->id = r->in->segment;
    st->s.request_id = r->in->request_id;
    st->s.choices_count = 1;
    st->s.choices = dialect_read_array(r, 1, sizeof *st->s.choices);
    r->rq->kind = API_KIND_LIST; /* of no model yet */
    r->rq->time_s = r->in->time_s;
    r->rq->dialect = str_of(dialect_contexts.name);
    if (!st->s.choices)
        return false;
    return st->ttl_ms || st->has_pin || st->warm ||
           api_error_set(r->e, ERR_REQUEST, "", STR("ttl"),
                         "ttl, pin or warm: required, nothing else changes");
}

static bool read_request(struct api_request *out, struct dialect_state *st,
                         const struct dialect_in *in, struct arena *a, struct api_error *e)
{
    struct dialect_read r = {out, st, in, a, e, NULL, NULL};
    struct json body;
    if (!dialect_read_body(&r, &body))
        return false;
    if (str_eq_z(str_of(in->path->method), "PATCH"))
        return read_change(&r, body);
    if (!dialect_read_object(&r, body, fields, countof(fields)) || !read_prefix(&r, body))
        return false;
    if (own(st)->id.len == 0)
        own(st)->id = arena_printf(a, "ctx_%.*s", STR_ARG(str_from(in->request_id, 4)));
    out->kind = API_KIND_PREFILL;
    out->body = STR("");
    return own(st)->id.p != NULL || dialect_read_array(&r, SIZE_MAX, 1) != NULL;
}

/* ---- Writing ---- */

static const char *place_name(enum api_place place)
{
    switch (place) {
    case API_PLACE_DEVICE:
        return "device";
    case API_PLACE_RAM:
        return "ram";
    case API_PLACE_SSD:
        return "ssd";
    case API_PLACE_NOWHERE: case API_PLACE_COUNT_:
        break;
    }
    return "";
}

void dialect_contexts_put(struct json_writer *w, const struct dialect_contexts_row *row)
{
    json_open_object(w);
    dialect_write_text(w, "object", STR("context"));
    dialect_write_text(w, "id", row->id);
    dialect_write_text(w, "model", row->model);
    json_put_key_i64(w, "tokens", row->tokens);
    json_put_key_i64(w, "cached_tokens", row->cached_tokens);
    json_put_key_i64(w, "pages", (row->tokens + API_PAGE_TOKENS - 1) / API_PAGE_TOKENS);
    json_put_key_i64(w, "snapshots", 0); /* no family of this build has recurrent state */
    json_put_key_u64(w, "bytes", row->bytes);
    json_put_key_text(w, "location", str_of(place_name(row->place)));
    json_put_key_bool(w, "pinned", row->is_pinned);
    json_put_key_i64(w, "readers", row->readers);
    json_put_key_i64(w, "created_at", row->created_s);
    json_put_key_i64(w, "last_used_at", row->used_s);
    json_put_key_i64(w, "expires_at", row->expires_s);
    json_close_object(w);
}

static void write_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                        const struct api_event *ev)
{
    if (st->is_over || !dialect_write_take(out, st, choice, ev, dialect_openai_reply_error))
        return;
    if (ev->kind == API_EVENT_DONE) {
        struct json_writer w = json_writer(out);
        dialect_contexts_put(&w, &own(st)->row);
        st->is_begun = st->is_over = true;
    }
}

static const struct dialect_path paths[] = {
    {"POST", "/v1/contexts", API_KIND_PREFILL, false},
    {"PATCH", "/v1/contexts/{}", API_KIND_PREFILL, false},
};

const struct dialect dialect_contexts = {
    .name = "contexts",
    .family = DIALECT_OPENAI,
    .paths = paths,
    .paths_count = countof(paths),
    .state_size = sizeof(struct dialect_contexts_state),
    .read_request = read_request,
    .write_event = write_event,
    .write_error = dialect_openai_reply_error,
};
