#include "serve/path_pull.h"

#include <stdio.h>

#include "dialect/dialect.h"
#include "route/residency.h"
#include "serve/models_leg.h"
#include "serve/path_body.h"
#include "serve/pulls.h"

#define PATH_PULL_LINE_MAX 4096u

/* One client; in its connection's arena. */
struct path_pull {
    struct pulls_client client;
    struct server *server;
    struct http_conn *conn;
    bool stream;
};

/* --- the request ---------------------------------------------------------------------------- */

struct path_pull_request {
    str model;
    bool stream;
};

static bool path_pull_read_field(struct path_pull_request *r, const struct json_walk *w,
                                 struct arena *a, struct api_error *e)
{
    str key = json_text(w->key, a);
    bool is_null = json_kind(w->value) == JSON_KIND_NULL, insecure = false;
    if (is_null)
        return true;
    if (str_eq_z(key, "model") || (str_eq_z(key, "name") && !r->model.len)) {
        if (!path_body_text(w->value, "model", &r->model, a, e))
            return false;
        r->model = str_trim(r->model);
    } else if (str_eq_z(key, "stream")) {
        return json_bool(w->value, &r->stream) || path_body_wrong(e, "stream", "a boolean");
    } else if (str_eq_z(key, "insecure")) {
        if (!json_bool(w->value, &insecure))
            return path_body_wrong(e, "insecure", "a boolean");
        if (insecure)
            return api_error_set(e, ERR_REQUEST, "", key,
                                 "insecure: true is not supported; hub.ca_file trusts a hub's own "
                                 "certificate");
    }
    return true;
}

static bool path_pull_read(struct path_pull_request *r, struct http_conn *c, struct api_error *e)
{
    struct json body;
    *r = (struct path_pull_request){.model = STR(""), .stream = true};
    if (!path_body_open(c, &body, e))
        return false;
    struct json_walk w = json_walk(body);
    while (json_next(&w))
        if (!path_pull_read_field(r, &w, http_conn_arena(c), e))
            return false;
    return r->model.len || api_error_set(e, ERR_REQUEST, "", STR("model"), "model: required");
}

/* --- the reply ------------------------------------------------------------------------------ */

static void path_pull_begin(struct path_pull *x)
{
    if (http_conn_has_begun(x->conn))
        return;
    http_conn_add_header(x->conn, "Cache-Control", STR("no-store"));
    http_conn_add_header(x->conn, "X-Accel-Buffering", STR("no"));
    http_conn_begin(x->conn, 200, "application/x-ndjson");
    http_conn_write(x->conn, STR("{\"status\":\"pulling manifest\"}\n"));
}

static void path_pull_add_text(struct json_writer *w, const char *key, str text)
{
    json_key_z(w, key);
    json_put_text(w, text);
}

static void path_pull_put_progress(struct json_writer *w, const struct pulls_news *n)
{
    char status[ERR_TEXT_MAX + 32];
    str name = n->digest[0] ? str_sub(str_of(n->digest), 0, 12) : str_of(n->text);
    switch (n->phase) {
    case PULL_LIST:
        return;
    case PULL_CHECK:
        snprintf(status, sizeof status, "comparing %s", n->text);
        break;
    case PULL_WAIT: case PULL_FETCH:
        snprintf(status, sizeof status, "pulling %.*s", STR_ARG(name));
        break;
    case PULL_VERIFY:
        snprintf(status, sizeof status, "verifying sha256 digest");
        break;
    }
    path_pull_add_text(w, "status", str_of(status));
    if (n->phase != PULL_WAIT && n->phase != PULL_FETCH)
        return;
    if (n->digest[0]) {
        snprintf(status, sizeof status, "sha256:%s", n->digest);
        path_pull_add_text(w, "digest", str_of(status));
    }
    json_key_z(w, "total");
    json_put_i64(w, (int64_t)n->size);
    json_key_z(w, "completed");
    json_put_i64(w, (int64_t)n->done);
}

static void path_pull_put(struct buf *out, const struct pulls_news *n)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    switch (n->kind) {
    case PULLS_PROGRESS:
        path_pull_put_progress(&w, n);
        break;
    case PULLS_NOTE:
        path_pull_add_text(&w, "status", str_of(n->text));
        break;
    case PULLS_DONE:
        path_pull_add_text(&w, "status", STR("success"));
        break;
    case PULLS_FAILED:
        path_pull_add_text(&w, "error", str_of(n->error->err.text));
        path_pull_add_text(&w, "code", str_of(dialect_error(n->error).code));
        break;
    }
    json_close_object(&w);
}

static void path_pull_on_news(void *ctx, const struct pulls_news *n)
{
    struct path_pull *x = ctx;
    struct buf line;
    bool is_end = n->kind == PULLS_DONE || n->kind == PULLS_FAILED;
    if (!is_end && (!x->stream || http_conn_is_slow(x->conn)))
        return;
    if (is_end)
        server_on_leave(x->conn, NULL, NULL);
    if (n->kind == PULLS_FAILED && !http_conn_has_begun(x->conn)) {
        server_refuse(x->server, x->conn, n->error);
        return;
    }
    buf_init(&line, PATH_PULL_LINE_MAX);
    if (n->kind != PULLS_PROGRESS || n->phase != PULL_LIST) /* that line begins each stream */
        path_pull_put(&line, n);
    if (!x->stream) {
        server_reply(x->conn, 200, buf_view(&line));
    } else {
        path_pull_begin(x);
        if (line.len) {
            buf_add_byte(&line, '\n');
            http_conn_write(x->conn, buf_view(&line));
        }
        if (is_end)
            http_conn_end(x->conn);
    }
    buf_deinit(&line);
}

static void path_pull_on_deleted(void *ctx, const struct pulls_news *n)
{
    struct path_pull *x = ctx;
    server_on_leave(x->conn, NULL, NULL);
    if (n->kind == PULLS_FAILED)
        server_refuse(x->server, x->conn, n->error);
    else
        http_conn_reply(x->conn, 200, NULL, (str){NULL, 0});
}

static void path_pull_on_leave(void *ctx)
{
    struct path_pull *x = ctx;
    pulls_leave(server_pulls(x->server), &x->client);
}

/* --- handlers ------------------------------------------------------------------------------- */

static struct path_pull *path_pull_open(struct server *s, struct http_conn *c, bool stream,
                                        void (*on_news)(void *ctx, const struct pulls_news *n),
                                        struct api_error *e)
{
    struct path_pull *x = ARENA_NEW(http_conn_arena(c), struct path_pull);
    if (!x) {
        err_set(&e->err, ERR_MEMORY, "serve: no memory for the request");
        return NULL;
    }
    *x = (struct path_pull){.server = s, .conn = c, .stream = stream,
                            .client = {.on_news = on_news, .ctx = x}};
    list_init(&x->client.link);
    return x;
}

void path_pull_fetch(struct server *s, struct http_conn *c)
{
    struct path_pull_request r = {0};
    struct api_error e = {0};
    const struct pulls_options *o = &server_options_of(s)->pulls;
    struct path_pull *x = NULL;
    if (!o->is_on || path_pull_read(&r, c, &e)) /* off is told whatever the body is */
        x = path_pull_open(s, c, r.stream, path_pull_on_news, &e);
    if (x && pulls_start(server_pulls(s), o, server_limits(s), r.model, &x->client, &e))
        server_on_leave(c, path_pull_on_leave, x);
    else
        server_refuse(s, c, &e);
}

void path_pull_delete(struct server *s, struct http_conn *c)
{
    struct models_leg_resident residents[RESIDENCY_MODELS_MAX];
    str loaded[RESIDENCY_MODELS_MAX];
    struct pulls_deletion_query q = {.loaded = loaded};
    struct path_pull_request r = {0};
    struct api_error e = {0};
    const struct server_options *o = server_options_of(s);
    struct path_pull *x = NULL;
    size_t count = models_leg_residents(o->models, residents, countof(residents));
    count = base_min(count, countof(residents));
    for (size_t i = 0; i < count; i++)
        loaded[i] = residents[i].name;
    if (!o->pulls.is_on || path_pull_read(&r, c, &e))
        x = path_pull_open(s, c, false, path_pull_on_deleted, &e);
    q.name = r.model;
    q.loaded_count = count;
    if (x && pulls_delete(server_pulls(s), &o->pulls, server_limits(s), &q, &x->client, &e))
        server_on_leave(c, path_pull_on_leave, x);
    else
        server_refuse(s, c, &e);
}
