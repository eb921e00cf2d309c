/* GET /v1/models and /v1/models/{id}, in OpenAI's form or, for a client with the header
 * anthropic-version, in Anthropic's; POST /v1/embeddings, which is not built. BEHAVIOUR 5.7. */
#include <string.h>

#include "dialect/dialect_anthropic_reply.h"
#include "dialect/dialect_openai_reply.h"
#include "dialect/dialect_read.h"

struct models_state {
    struct dialect_state s;
    enum api_kind kind;
    bool is_anthropic;
    str first, last; /* LIST: ids */
};

static struct models_state *own(struct dialect_state *st) { return (struct models_state *)st; }

/* ---- Reading ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Names of models hold slashes and colons; in a path they may be escaped. */
static bool read_name(struct dialect_read *r, str segment)
{
    struct buf name;
    bool ok = segment.len <= API_NAME_LEN_MAX;
    buf_init(&name, API_NAME_LEN_MAX);
    for (size_t i = 0; ok && i < segment.len; i++) {
        bool is_escape = segment.p[i] == '%' && segment.len - i > 2;
        int high = is_escape ? hex(segment.p[i + 1]) : 0;
        int low = is_escape ? hex(segment.p[i + 2]) : 0;
        ok = high >= 0 && low >= 0 && (is_escape || segment.p[i] != '%') &&
             buf_add_byte(&name, is_escape ? (char)(high * 16 + low) : segment.p[i]);
        i += is_escape ? 2 : 0;
    }
    ok = ok && str_utf8_valid(buf_view(&name)) == name.len;
    r->rq->model = ok ? arena_copy(r->a, buf_view(&name)) : (str){NULL, 0};
    buf_deinit(&name);
    return ok ? r->rq->model.p != NULL || dialect_read_array(r, SIZE_MAX, 1) != NULL
              : api_error_set(r->e, ERR_REQUEST, "", STR("id"), "id: a name of at most %u bytes "
                              "with escapes like %%2F expected", API_NAME_LEN_MAX);
}

static bool read_request(struct api_request *out, struct dialect_state *st,
                         const struct dialect_in *in, struct arena *a, struct api_error *e)
{
    struct dialect_read r = {out, st, in, a, e, NULL, NULL};
    api_request_init(out);
    out->kind = own(st)->kind = in->path->kind;
    if (in->path->kind == API_KIND_EMBED)
        return api_error_set(e, ERR_UNSUPPORTED, "", str_of(in->path->path),
                             "%s %s is not built yet", in->path->method, in->path->path);
    for (uint32_t i = 0; i < in->headers_count; i++)
        own(st)->is_anthropic |= str_eq_z(in->headers[i].name, "anthropic-version");
    if (in->path->kind == API_KIND_SHOW && !read_name(&r, in->segment))
        return false;
    return dialect_read_finish(&r);
}

/* ---- Writing ---- */

static void put_row(struct json_writer *w, const struct api_model *m)
{
    json_open_object(w);
    dialect_write_text(w, "id", m->name);
    dialect_write_text(w, "object", STR("model"));
    json_key_z(w, "created");
    json_put_i64(w, m->modified_s);
    dialect_write_text(w, "owned_by", STR("shoal"));
    json_put_key_u64(w, "max_model_len", m->context_max);
    json_put_key_u64(w, "context_length", m->context_max);
    json_key_z(w, "capabilities");
    dialect_write_capabilities(w, m->caps);
    json_key_z(w, "loaded");
    json_put_bool(w, m->state == API_MODEL_LOADED);
    json_close_object(w);
}

static void put_anthropic_row(struct json_writer *w, const struct api_model *m)
{
    json_open_object(w);
    dialect_write_text(w, "type", STR("model"));
    dialect_write_text(w, "id", m->name);
    dialect_write_text(w, "display_name", m->name);
    json_key_z(w, "created_at");
    dialect_write_time(w, m->modified_s);
    json_close_object(w);
}

/* Rows live no longer than their event: they are kept as JSON. */
static bool remember(struct dialect_state *st, const struct api_models *m)
{
    struct buf json = dialect_write_piece();
    bool ok = true;
    for (uint32_t i = 0; ok && i < m->rows_count; i++) {
        struct json_writer w = json_writer(&json);
        buf_clear(&json);
        if (own(st)->is_anthropic)
            put_anthropic_row(&w, &m->rows[i]);
        else
            put_row(&w, &m->rows[i]);
        if (st->choices[0].content.len == 0)
            own(st)->first = dialect_write_keep(st, m->rows[i].name);
        ok = dialect_write_append_json(st, &st->choices[0].content, &json);
    }
    if (m->rows_count)
        own(st)->last = dialect_write_keep(st, m->rows[m->rows_count - 1].name);
    buf_deinit(&json);
    return ok;
}

static void put_name(struct json_writer *w, const char *key, str name)
{
    json_key_z(w, key);
    if (name.p)
        json_put_text(w, name);
    else
        json_put_null(w);
}

static void whole(struct buf *out, struct dialect_state *st)
{
    struct json_writer w = json_writer(out);
    str rows = buf_view(&st->choices[0].content);
    st->is_begun = st->is_over = true;
    if (own(st)->kind == API_KIND_SHOW) {
        json_put_raw(&w, rows.len ? rows : STR("{}"));
        return;
    }
    json_open_object(&w);
    if (!own(st)->is_anthropic)
        dialect_write_text(&w, "object", STR("list"));
    json_key_z(&w, "data");
    json_open_array(&w);
    if (rows.len)
        json_put_raw(&w, rows);
    json_close_array(&w);
    if (own(st)->is_anthropic) {
        json_key_z(&w, "has_more");
        json_put_bool(&w, false);
        put_name(&w, "first_id", own(st)->first);
        put_name(&w, "last_id", own(st)->last);
    }
    json_close_object(&w);
}

static void write_error(struct buf *out, struct dialect_state *st, const struct api_error *e)
{
    if (own(st)->is_anthropic)
        dialect_anthropic_reply_error(out, st, e);
    else
        dialect_openai_reply_error(out, st, e);
}

static void write_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                        const struct api_event *ev)
{
    struct api_error e;
    if (st->is_over)
        return;
    if (ev->kind == API_EVENT_ERROR) {
        write_error(out, st, &ev->error);
    } else if (!dialect_write_remember(st, choice, ev) ||
               (ev->kind == API_EVENT_MODELS && !remember(st, &ev->models))) {
        dialect_write_too_long(st, &e);
        write_error(out, st, &e);
    } else if (ev->kind == API_EVENT_DONE) {
        whole(out, st);
    }
}

static const struct dialect_path paths[] = {
    {"GET", "/v1/models", API_KIND_LIST, false},
    {"GET", "/v1/models/{}", API_KIND_SHOW, false},
    {"POST", "/v1/embeddings", API_KIND_EMBED, false},
};

const struct dialect dialect_openai_models = {
    .name = "openai_models",
    .family = DIALECT_OPENAI,
    .paths = paths,
    .paths_count = countof(paths),
    .state_size = sizeof(struct models_state),
    .read_request = read_request,
    .write_event = write_event,
    .write_error = write_error,
};
