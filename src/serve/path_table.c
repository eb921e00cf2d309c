#include "serve/path_table.h"

#include <string.h>

#include "base/json.h"
#include "serve/path_agents.h"
#include "serve/path_cache.h"
#include "serve/path_contexts.h"
#include "serve/path_legs.h"
#include "serve/path_pull.h"
#include "serve/path_ready.h"
#include "serve/path_sessions.h"
#include "serve/path_state.h"

#define PATH_REPORT_MAX 65536 /* bytes of what a reload says */

/* --- handlers ------------------------------------------------------------------------------ */

static void path_version(struct server *s, struct http_conn *c)
{
    server_reply(c, 200, server_options_of(s)->version);
}

static void path_root(struct server *s, struct http_conn *c)
{
    (void)s;
    http_conn_reply(c, 200, "text/plain; charset=utf-8", STR("shoal is running\n"));
}

static void path_openapi(struct server *s, struct http_conn *c)
{
    (void)s;
    server_reply(c, 200, str_of(openapi_data));
}

/* Ollama's clients gate features on its number, so the first one is Ollama's. */
static void path_ollama_version(struct server *s, struct http_conn *c)
{
    const struct server_options *o = server_options_of(s);
    struct buf out;
    buf_init(&out, 1024);
    buf_printf(&out, "{\"version\":\"%.*s\",\"shoal\":\"%.*s\"}", STR_ARG(o->ollama_version),
               STR_ARG(o->version_text));
    server_reply(c, 200, buf_view(&out));
    buf_deinit(&out);
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

/* In OpenAI's form, and all of them beside it: a sentence has no room for twenty. */
static void path_put_problems(struct buf *out, str problems, const struct err *first)
{
    struct json_writer w = json_writer(out);
    str line;
    json_open_object(&w);
    json_key_z(&w, "error");
    json_open_object(&w);
    json_key_z(&w, "message");
    json_put_text_z(&w, first->text);
    json_key_z(&w, "type");
    json_put_text_z(&w, "invalid_request_error");
    json_key_z(&w, "param");
    json_put_null(&w);
    json_key_z(&w, "code");
    json_put_text_z(&w, "bad_request");
    json_key_z(&w, "problems");
    json_open_array(&w);
    while (str_split(&problems, '\n', &line))
        if (line.len)
            json_put_text(&w, line);
    json_close_array(&w);
    json_close_object(&w);
    json_close_object(&w);
}

/* 400 with the whole list of what is wrong; then nothing has changed. */
static void path_reload(struct server *s, struct http_conn *c)
{
    const struct server_options *o = server_options_of(s);
    struct buf report, problems;
    struct err why = {0};
    buf_init(&report, PATH_REPORT_MAX);
    buf_init(&problems, PATH_REPORT_MAX);
    if (!o->reload) {
        path_not_built(s, c);
    } else if (o->reload(o->ctx, &report, &problems, &why)) {
        server_reply(c, 200, buf_view(&report));
    } else {
        buf_clear(&report);
        path_put_problems(&report, problems.len ? buf_view(&problems) : str_of(why.text), &why);
        server_reply(c, 400, buf_view(&report));
    }
    buf_deinit(&report);
    buf_deinit(&problems);
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
    {"GET", "/health", OPEN, path_state_health},
    {"GET", "/ready", OPEN, path_ready},
    {"GET", "/openapi.json", OPEN, path_openapi},
    {"GET", "/api/version", INFER, path_ollama_version},
    {"GET", "/version", READ, path_version},
    {"GET", "/metrics", READ, path_state_metrics},
    {"GET", "/v1/status", READ, path_state_status},
    {"POST", "/v1/admin/stop", ADMIN, path_stop},
    {"POST", "/v1/admin/reload", ADMIN, path_reload},
    {"POST", "/v1/admin/drill", ADMIN, path_legs_drill},
    {"GET", "/v1/admin/drill", ADMIN, path_legs_drilled},
    {"GET", "/v1/routes", READ, path_legs_routes},
    {"GET", "/v1/cache", READ, path_cache_show},
    {"GET", "/v1/cache/misses", INFER, path_cache_misses},
    {"POST", "/v1/cache/drop", ADMIN, path_cache_drop},
    {"POST", "/v1/legs/*", ADMIN, path_legs_force},
    {"GET", "/v1/contexts", INFER, path_contexts_list},
    {"GET", "/v1/contexts/*", INFER, path_contexts_show},
    {"DELETE", "/v1/contexts/*", INFER, path_contexts_delete},
    {"GET", "/v1/sessions", INFER, path_sessions_list},
    {"GET", "/v1/sessions/*", INFER, path_sessions_show},
    {"DELETE", "/v1/sessions/*", INFER, path_sessions_delete},
    {"GET", "/v1/requests", INFER, path_agents_requests},
    {"GET", "/v1/requests/*", INFER, path_agents_request},
    {"DELETE", "/v1/requests/*", INFER, path_agents_cancel},
    {"GET", "/v1/agents", INFER, path_agents_list},
    {"DELETE", "/v1/agents/*", INFER, path_agents_cancel_all},
    {"POST", "/tokenize", INFER, path_not_built},
    {"POST", "/detokenize", INFER, path_not_built},
    {"POST", "/api/pull", ADMIN, path_pull_fetch},
    {"DELETE", "/api/delete", ADMIN, path_pull_delete},
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
