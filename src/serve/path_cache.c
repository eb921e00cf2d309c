#include "serve/path_cache.h"

#include "base/json.h"
#include "route/residency.h"
#include "serve/misses.h"
#include "serve/models_leg.h"
#include "serve/path_query.h"
#include "serve/replay.h"

#define PATH_CACHE_MAX ((size_t)64 << 20) /* bytes of an answer */

static void path_cache_send(struct server *s, struct http_conn *c, struct buf *out)
{
    struct api_error e = {0};
    http_conn_add_header(c, "Cache-Control", STR("no-store"));
    if (out->full) {
        api_error_set(&e, ERR_LIMIT, "", STR("limit"), "limit: more than %zu bytes of records",
                      PATH_CACHE_MAX);
        server_refuse(s, c, &e);
    } else {
        server_reply(c, 200, buf_view(out));
    }
    buf_deinit(out);
}

/* ?agent=&limit= */
void path_cache_misses(struct server *s, struct http_conn *c)
{
    struct server_asker asker = server_asker(c);
    struct arena *a = http_conn_arena(c);
    str limit = path_query(c, STR("limit"), a);
    uint64_t count = PATH_CACHE_LIMIT;
    struct api_error e = {0};
    struct buf out;
    bool is_number = !limit.p || str_to_u64(limit, &count);
    if (!is_number || count == 0 || count > PATH_CACHE_LIMIT_MAX) {
        api_error_set(&e, ERR_REQUEST, "", STR("limit"),
                      "limit: a number from 1 to %u expected, got '%.*s'",
                      PATH_CACHE_LIMIT_MAX, STR_ARG(str_sub(limit, 0, 40)));
        server_refuse(s, c, &e);
        return;
    }
    const struct misses_query q = {.is_admin = asker.is_admin, .key = asker.key,
                                   .scope = asker.scope, .limit = (uint32_t)count,
                                   .agent = path_query(c, STR("agent"), a)};
    buf_init(&out, PATH_CACHE_MAX);
    misses_write(server_misses(s), &q, &out);
    path_cache_send(s, c, &out);
}

/* What a child says of itself, with its name before it. */
static void path_cache_put_model(struct json_writer *w, str name, str stats, struct buf *text)
{
    buf_clear(text);
    struct json_writer one = json_writer(text);
    json_open_object(&one);
    json_key_z(&one, "model");
    json_put_text(&one, name);
    if (stats.len > 2) /* {} has no members */
        buf_printf(text, ",%.*s", STR_ARG(str_from(stats, 1)));
    else
        json_close_object(&one);
    json_put_raw(w, buf_view(text));
}

static void path_cache_put_replay(struct json_writer *w, const struct replay *r)
{
    json_key_z(w, "replay");
    if (!r) {
        json_put_null(w);
        return;
    }
    struct replay_stats stats = replay_stats(r);
    const struct {
        const char *key;
        uint64_t number;
    } rows[] = {{"entries", stats.entries}, {"bytes", stats.bytes}, {"hits", stats.hits}};
    json_open_object(w);
    for (size_t i = 0; i < countof(rows); i++) {
        json_key_z(w, rows[i].key);
        json_put_u64(w, rows[i].number);
    }
    json_close_object(w);
}

void path_cache_show(struct server *s, struct http_conn *c)
{
    struct models_leg_resident rows[RESIDENCY_MODELS_MAX];
    size_t count = models_leg_residents(server_options_of(s)->models, rows, countof(rows));
    struct buf out, text;
    buf_init(&out, PATH_CACHE_MAX);
    buf_init(&text, PATH_CACHE_MAX);
    struct json_writer w = json_writer(&out);
    json_open_object(&w);
    json_key_z(&w, "models");
    json_open_array(&w);
    for (size_t i = 0; i < base_min(count, countof(rows)); i++)
        path_cache_put_model(&w, rows[i].name, rows[i].stats, &text);
    json_close_array(&w);
    path_cache_put_replay(&w, server_replay(s));
    json_close_object(&w);
    buf_deinit(&text);
    path_cache_send(s, c, &out);
}
