#include "serve/path_table.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "serve/metrics.h"

#define PATH_REPLY_MAX ((size_t)4 << 20)
#define PATH_MODELS_MAX 256

/* --- what handlers share ------------------------------------------------------------------- */

static void path_send(struct http_conn *c, int status, struct buf *out)
{
    http_conn_add_header(c, "Cache-Control", STR("no-store"));
    server_reply(c, status, buf_view(out));
    buf_deinit(out);
}

static struct json_writer path_open(struct buf *out)
{
    buf_init(out, PATH_REPLY_MAX);
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    return w;
}

static void path_text(struct json_writer *w, const char *key, str text)
{
    json_key_z(w, key);
    json_put_text(w, text.p ? text : STR(""));
}

static void path_number(struct json_writer *w, const char *key, int64_t number)
{
    json_key_z(w, key);
    json_put_i64(w, number);
}

static size_t path_models(const struct server *s, struct api_model rows[PATH_MODELS_MAX])
{
    const struct api_provider *p = &server_options_of(s)->provider;
    size_t count = p->models(p->self, rows, PATH_MODELS_MAX);
    return base_min(count, (size_t)PATH_MODELS_MAX);
}

static struct api_health path_health_of(const struct server *s)
{
    const struct api_provider *p = &server_options_of(s)->provider;
    struct api_health h;
    p->health(p->self, &h);
    return h;
}

/* --- health: BEHAVIOUR 5.11 ---------------------------------------------------------------- */

enum path_health { PATH_HEALTH_OK, PATH_HEALTH_DEGRADED, PATH_HEALTH_FAILING };

/* The state, and why if it is not OK. Loading and unloaded are healthy. A preload that failed
 * leaves the rest of the server of use; a model that was loaded and is lost does not. */
static enum path_health path_judge(const struct server *s, struct buf *why)
{
    struct api_model rows[PATH_MODELS_MAX];
    struct api_health h = path_health_of(s);
    int64_t stall = server_options_of(s)->engine_stall_ms;
    if (h.state == API_HEALTH_FAILED) {
        buf_printf(why, "engine: %.*s", STR_ARG(h.reason));
        return path_models(s, rows) ? PATH_HEALTH_FAILING : PATH_HEALTH_DEGRADED;
    }
    if (h.state == API_HEALTH_RESTARTING) {
        buf_printf(why, "engine restarting: %.*s", STR_ARG(h.reason));
        return PATH_HEALTH_DEGRADED;
    }
    if (h.state == API_HEALTH_READY && h.progress_age_ms > stall / 2) {
        buf_printf(why, "engine: no progress for %lld ms", (long long)h.progress_age_ms);
        return PATH_HEALTH_DEGRADED;
    }
    return PATH_HEALTH_OK;
}

static void path_put_health(struct json_writer *w, const struct server *s, enum path_health *out)
{
    static const char *const names[] = {"ok", "degraded", "failing"};
    struct buf why;
    buf_init(&why, 512);
    *out = path_judge(s, &why);
    path_text(w, "status", str_of(names[*out]));
    json_key_z(w, "reasons");
    json_open_array(w);
    if (why.len)
        json_put_text(w, buf_view(&why));
    json_close_array(w);
    buf_deinit(&why);
}

static void path_health(struct server *s, struct http_conn *c)
{
    struct buf out;
    enum path_health health;
    struct json_writer w = path_open(&out);
    path_put_health(&w, s, &health);
    json_close_object(&w);
    path_send(c, health == PATH_HEALTH_FAILING ? 503 : 200, &out);
}

static const char *path_state(enum api_health_state state)
{
    switch (state) {
    case API_HEALTH_STARTING:
        return "loading";
    case API_HEALTH_READY:
        return "loaded";
    case API_HEALTH_RESTARTING:
        return "restarting";
    case API_HEALTH_FAILED:
        return "failed";
    case API_HEALTH_STOPPED:
        return "idle";
    case API_HEALTH_COUNT_:
        break;
    }
    return "none";
}

/* 200: a reply would start now. A loaded child has run its self-test; one that stands still while
 * it has work is not ready. */
static void path_ready(struct server *s, struct http_conn *c)
{
    const struct server_options *o = server_options_of(s);
    struct api_model rows[PATH_MODELS_MAX];
    struct api_health h = path_health_of(s);
    size_t count = path_models(s, rows);
    int64_t last = metrics_last_token_ms(server_metrics(s));
    uint32_t slots = count ? rows[0].slots : 1, open = server_requests(s);
    bool has_room = open < (uint64_t)slots + o->queue_max;
    bool moves = h.progress_age_ms <= o->engine_stall_ms / 2;
    bool is_ready = (h.state == API_HEALTH_READY && moves && has_room) ||
                    h.state == API_HEALTH_STOPPED;
    struct buf out;
    struct json_writer w = path_open(&out);
    json_key_z(&w, "ready");
    json_put_bool(&w, is_ready);
    json_key_z(&w, "model");
    if (count)
        json_put_text(&w, rows[0].name);
    else
        json_put_null(&w);
    path_text(&w, "state", str_of(path_state(h.state)));
    json_key_z(&w, "progress");
    json_put_float(&w, h.state == API_HEALTH_STARTING ? h.progress : 1);
    json_key_z(&w, "last_token_ms");
    if (last)
        json_put_i64(&w, loop_ms() - last);
    else
        json_put_null(&w);
    path_number(&w, "queue", open > slots ? open - slots : 0);
    json_close_object(&w);
    path_send(c, is_ready ? 200 : 503, &out);
}

/* --- numbers ------------------------------------------------------------------------------- */

static void path_version(struct server *s, struct http_conn *c)
{
    server_reply(c, 200, server_options_of(s)->version);
}

/* Ollama's form; its clients ask for it first to see whether somebody is there. */
static void path_ollama_version(struct server *s, struct http_conn *c)
{
    struct buf out;
    struct json_writer w = path_open(&out);
    path_text(&w, "version", server_options_of(s)->version_text);
    path_text(&w, "shoal", server_options_of(s)->version_text);
    json_close_object(&w);
    path_send(c, 200, &out);
}

static void path_put_model(struct json_writer *w, const struct server *s,
                           const struct api_model *m, const struct api_health *h)
{
    uint32_t open = metrics_open_of(server_metrics(s), m->name);
    uint32_t running = metrics_running(server_metrics(s), m->name);
    json_open_object(w);
    path_text(w, "name", m->name);
    path_text(w, "kind", m->type);
    path_text(w, "state", str_of(path_state(h->state)));
    path_number(w, "size", (int64_t)m->bytes);
    path_number(w, "size_vram", (int64_t)m->device_bytes);
    path_number(w, "context", m->context_max);
    path_number(w, "slots", m->slots);
    path_number(w, "running", running);
    path_number(w, "queued", open > running ? open - running : 0);
    path_number(w, "pages", m->kv_tokens / 32);
    json_key_z(w, "prefill_tps");
    json_put_float(w, h->prefill_tokens_per_s);
    json_key_z(w, "decode_tps");
    json_put_float(w, h->decode_tokens_per_s);
    path_number(w, "last_progress_ms", h->progress_age_ms);
    path_number(w, "restarts", h->restarts);
    path_number(w, "expires_at", m->expires_s);
    json_close_object(w);
}

static void path_status(struct server *s, struct http_conn *c)
{
    struct api_model rows[PATH_MODELS_MAX];
    struct api_health h = path_health_of(s);
    size_t count = path_models(s, rows);
    enum path_health health;
    struct buf out;
    struct json_writer w = path_open(&out);
    path_text(&w, "version", server_options_of(s)->version_text);
    json_key_z(&w, "health");
    json_open_object(&w);
    path_put_health(&w, s, &health);
    json_close_object(&w);
    path_number(&w, "uptime_s", server_uptime_ms(s) / 1000);
    path_text(&w, "state", str_of(path_state(h.state)));
    json_key_z(&w, "progress");
    json_put_float(&w, h.progress);
    json_key_z(&w, "models");
    json_open_array(&w);
    for (size_t i = 0; i < count; i++)
        path_put_model(&w, s, &rows[i], &h);
    json_close_array(&w);
    path_number(&w, "queue", server_options_of(s)->queue_max);
    path_number(&w, "requests", server_requests(s));
    path_number(&w, "connections", server_connections(s));
    path_number(&w, "ingress_bytes", (int64_t)server_ingress(s));
    json_close_object(&w);
    path_send(c, 200, &out);
}

static void path_put_gauge(struct buf *out, const char *name, const char *help)
{
    buf_printf(out, "# HELP shoal_%s %s\n# TYPE shoal_%s gauge\n", name, help, name);
}

static void path_metrics(struct server *s, struct http_conn *c)
{
    struct api_model rows[PATH_MODELS_MAX];
    struct api_health h = path_health_of(s);
    size_t count = path_models(s, rows);
    struct buf out;
    buf_init(&out, PATH_REPLY_MAX);
    metrics_write(server_metrics(s), &out);
    path_put_gauge(&out, "build_info", "This build.");
    buf_printf(&out, "shoal_build_info{version=\"%.*s\",isa=\"%.*s\"} 1\n",
               STR_ARG(server_options_of(s)->version_text), STR_ARG(server_options_of(s)->isa));
    path_put_gauge(&out, "model_loaded", "Models in memory.");
    if (count == 0)
        buf_add_z(&out, "shoal_model_loaded{model=\"\",kind=\"\"} 0\n");
    for (size_t i = 0; i < count; i++)
        buf_printf(&out, "shoal_model_loaded{model=\"%.*s\",kind=\"%.*s\"} 1\n",
                   STR_ARG(rows[i].name), STR_ARG(rows[i].type));
    path_put_gauge(&out, "slots_total", "Sequences at once.");
    for (size_t i = 0; i < count; i++)
        buf_printf(&out, "shoal_slots_total{model=\"%.*s\"} %u\n", STR_ARG(rows[i].name),
                   rows[i].slots);
    path_put_gauge(&out, "engine_progress_age_seconds", "Since an engine with work moved.");
    for (size_t i = 0; i < count; i++)
        buf_printf(&out, "shoal_engine_progress_age_seconds{model=\"%.*s\"} %.3f\n",
                   STR_ARG(rows[i].name), (double)h.progress_age_ms / 1000);
    path_put_gauge(&out, "connections", "Open connections.");
    buf_printf(&out, "shoal_connections %u\n", server_connections(s));
    path_put_gauge(&out, "ingress_bytes", "Bodies in memory.");
    buf_printf(&out, "shoal_ingress_bytes %llu\n", (unsigned long long)server_ingress(s));
    http_conn_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", buf_view(&out));
    buf_deinit(&out);
}

/* --- small ones ---------------------------------------------------------------------------- */

static void path_root(struct server *s, struct http_conn *c)
{
    (void)s;
    http_conn_reply(c, 200, "text/plain; charset=utf-8", STR("shoal is running\n"));
}

static void path_stop(struct server *s, struct http_conn *c)
{
    server_stop(s); /* first, so that the reply closes the connection */
    server_reply(c, 202, STR("{\"stopping\":true}"));
}

static void path_not_built(struct server *s, struct http_conn *c)
{
    struct api_error e = {0};
    const struct http_request *r = http_conn_request(c);
    str path = str_sub(r->path, 0, 100);
    path.len = str_utf8_valid(path);
    api_error_set(&e, ERR_UNSUPPORTED, "", STR(""), "%.*s %.*s is not built yet",
                  STR_ARG(r->method), STR_ARG(path));
    server_refuse(s, c, &e);
}

/* --- the table ----------------------------------------------------------------------------- */

#define OPEN PATH_SCOPE_OPEN
#define READ PATH_SCOPE_READ
#define INFER PATH_SCOPE_INFER
#define ADMIN PATH_SCOPE_ADMIN

/* A path that ends in a slash and a star serves everything below it; a star as the method: all.
 * Dialects are asked first: a row here for one of their paths counts only until it is built. */
static const struct path_row rows_of_paths[] = {
    {"GET", "/", OPEN, path_root},
    {"GET", "/health", OPEN, path_health},
    {"GET", "/ready", OPEN, path_ready},
    {"GET", "/version", READ, path_version},
    {"GET", "/api/version", INFER, path_ollama_version},
    {"GET", "/metrics", READ, path_metrics},
    {"GET", "/v1/status", READ, path_status},
    {"POST", "/v1/admin/stop", ADMIN, path_stop},
    {"POST", "/v1/admin/reload", ADMIN, path_not_built},
    {"POST", "/v1/admin/drill", ADMIN, path_not_built},
    {"GET", "/v1/routes", READ, path_not_built},
    {"GET", "/v1/cache", READ, path_not_built},
    {"GET", "/v1/cache/misses", INFER, path_not_built},
    {"POST", "/v1/cache/drop", ADMIN, path_not_built},
    {"POST", "/v1/legs/*", ADMIN, path_not_built},
    {"*", "/v1/contexts", INFER, path_not_built},
    {"*", "/v1/contexts/*", INFER, path_not_built},
    {"*", "/v1/sessions", INFER, path_not_built},
    {"*", "/v1/sessions/*", INFER, path_not_built},
    {"*", "/v1/requests", INFER, path_not_built},
    {"*", "/v1/requests/*", INFER, path_not_built},
    {"*", "/v1/agents", INFER, path_not_built},
    {"*", "/v1/agents/*", INFER, path_not_built},
    {"POST", "/v1/embeddings", INFER, path_not_built},
    {"POST", "/api/embed", INFER, path_not_built},
    {"POST", "/api/embeddings", INFER, path_not_built},
    {"POST", "/tokenize", INFER, path_not_built},
    {"POST", "/detokenize", INFER, path_not_built},
    {"POST", "/api/pull", ADMIN, path_not_built},
    {"DELETE", "/api/delete", ADMIN, path_not_built},
    {"POST", "/api/create", INFER, path_not_built},
    {"POST", "/api/copy", INFER, path_not_built},
    {"POST", "/api/push", INFER, path_not_built},
    {"*", "/api/blobs/*", INFER, path_not_built},
};

static bool path_fits(const struct path_row *row, str path)
{
    str pattern = str_of(row->path);
    if (!str_ends(pattern, STR("/*")))
        return str_eq(pattern, path);
    str head = str_sub(pattern, 0, pattern.len - 1);
    return path.len > head.len && str_starts(path, head);
}

static str path_plain(str path)
{
    return str_starts(path, STR("/v1/v1/")) ? str_from(path, strlen("/v1")) : path;
}

const struct path_row *path_table_find(str method, str path)
{
    path = path_plain(path);
    for (size_t i = 0; i < countof(rows_of_paths); i++) {
        const struct path_row *row = &rows_of_paths[i];
        bool takes = str_eq_z(method, row->method) || !strcmp(row->method, "*");
        if (takes && path_fits(row, path))
            return row;
    }
    return NULL;
}

static void path_add_method(struct buf *out, const char *method)
{
    buf_printf(out, "%s%s", out->len ? ", " : "", method);
}

bool path_table_methods(str path, struct buf *out)
{
    static const char *const methods[] = {"GET", "POST", "PATCH", "DELETE"};
    const struct dialect *d;
    const struct dialect_path *p;
    str segment;
    for (size_t i = 0; i < countof(methods); i++) {
        str method = str_of(methods[i]);
        if (dialect_match(method, path, &d, &p, &segment) || path_table_find(method, path))
            path_add_method(out, methods[i]);
    }
    return out->len > 0;
}

/* With /v1 before it, or with a few letters changed. */
static uint32_t path_distance(str asked, str known)
{
    bool lacks_v1 = str_starts(known, STR("/v1/")) && str_eq(asked, str_from(known, 3));
    return lacks_v1 ? 0 : str_distance(asked, known, 4);
}

bool path_table_near(str path, struct buf *out)
{
    const char *method = NULL, *near = NULL;
    uint32_t best = 4;
    path = path_plain(path);
    for (uint32_t i = 0; i < dialect_table_count; i++)
        for (uint32_t k = 0; k < dialect_table[i]->paths_count; k++) {
            const struct dialect_path *p = &dialect_table[i]->paths[k];
            uint32_t d = path_distance(path, str_of(p->path));
            if (d < best) {
                best = d;
                method = p->method;
                near = p->path;
            }
        }
    for (size_t i = 0; i < countof(rows_of_paths); i++) {
        const struct path_row *row = &rows_of_paths[i];
        uint32_t d = path_distance(path, str_of(row->path));
        if (d < best && row->serve != path_not_built) {
            best = d;
            method = row->method;
            near = row->path;
        }
    }
    if (near)
        buf_printf(out, "%s %s", method, near);
    return near != NULL;
}
