#include "serve/path_cache.h"

#include "base/json.h"
#include "route/residency.h"
#include "serve/misses.h"
#include "serve/models_leg.h"
#include "serve/path_body.h"
#include "serve/path_query.h"
#include "serve/replay.h"

#define PATH_CACHE_MAX ((size_t)64 << 20) /* bytes of an answer */

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
    server_reply_fresh(s, c, &out);
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
    server_reply_fresh(s, c, &out);
}

/* --- POST /v1/cache/drop ------------------------------------------------------------------- */

/* One client that waits for children; in its connection's arena. */
struct path_cache_drop {
    struct server *server;
    struct http_conn *conn;
    struct engine_leg_drop asked[RESIDENCY_MODELS_MAX];
    uint32_t asked_count, left;
    struct api_dropped sum;
};

static bool path_cache_read_tiers(struct json v, uint32_t *from, struct arena *a,
                                  struct api_error *e)
{
    static const struct {
        const char *name;
        enum api_drop_from from;
    } rows[] = {{"device", API_DROP_DEVICE}, {"ram", API_DROP_RAM}, {"ssd", API_DROP_SSD}};
    const char *what = "a list of device, ram, ssd";
    struct json_walk w = json_walk(v);
    *from = 0;
    if (json_kind(v) != JSON_KIND_ARRAY)
        return path_body_wrong(e, "tiers", what);
    while (json_next(&w)) {
        size_t i = 0;
        str name = json_kind(w.value) == JSON_KIND_STRING ? json_text(w.value, a) : STR("");
        while (i < countof(rows) && !str_eq_z(name, rows[i].name))
            i++;
        if (i == countof(rows))
            return path_body_wrong(e, "tiers", what);
        *from |= rows[i].from;
    }
    return *from || path_body_wrong(e, "tiers", what);
}

static bool path_cache_read_drop(struct http_conn *c, struct api_drop *d, str *model,
                                 struct api_error *e)
{
    struct arena *a = http_conn_arena(c);
    const struct {
        const char *name;
        str *text;
    } texts[] = {{"model", model}, {"agent", &d->agent}, {"session", &d->session}};
    struct json body;
    if (!path_body_open(c, &body, e))
        return false;
    struct json_walk w = json_walk(body);
    while (json_next(&w)) {
        str key = json_text(w.key, a);
        size_t i = 0;
        if (json_kind(w.value) == JSON_KIND_NULL)
            continue;
        while (i < countof(texts) && !str_eq_z(key, texts[i].name))
            i++;
        bool is_tiers = str_eq_z(key, "tiers");
        if (i == countof(texts) && !is_tiers) /* a misspelt one would drop everything */
            return api_error_set(e, ERR_REQUEST, "", STR(""), "%.*s: unknown; there are model, "
                                 "agent, session, tiers", STR_ARG(str_sub(key, 0, 80)));
        if (is_tiers && !path_cache_read_tiers(w.value, &d->from, a, e))
            return false;
        if (is_tiers)
            continue;
        if (!path_body_text(w.value, texts[i].name, texts[i].text, a, e))
            return false;
        if (texts[i].text->len == 0)
            return path_body_wrong(e, texts[i].name, "a name");
    }
    return true;
}

static void path_cache_told(struct path_cache_drop *x)
{
    struct buf out;
    server_on_leave(x->conn, NULL, NULL);
    buf_init(&out, 128);
    buf_printf(&out, "{\"pages\":%llu,\"bytes\":%llu}", (unsigned long long)x->sum.pages,
               (unsigned long long)x->sum.bytes);
    server_reply_fresh(x->server, x->conn, &out);
}

/* A child that has died meanwhile gave up its pages, but nobody counted them. */
static void path_cache_on_dropped(void *ctx, const struct api_dropped *dropped)
{
    struct path_cache_drop *x = ctx;
    if (dropped) {
        x->sum.pages += dropped->pages;
        x->sum.bytes += dropped->bytes;
    }
    if (--x->left == 0)
        path_cache_told(x);
}

static void path_cache_on_leave(void *ctx)
{
    struct path_cache_drop *x = ctx;
    for (uint32_t i = 0; i < x->asked_count; i++)
        list_remove(&x->asked[i].link);
}

void path_cache_drop(struct server *s, struct http_conn *c)
{
    struct api_drop what = {.from = API_DROP_ALL};
    struct api_error e = {0};
    str model = STR("");
    struct path_cache_drop *x = ARENA_NEW(http_conn_arena(c), struct path_cache_drop);
    if (!x)
        err_set(&e.err, ERR_MEMORY, "serve: no memory for the request");
    if (!x || !path_cache_read_drop(c, &what, &model, &e)) {
        server_refuse(s, c, &e);
        return;
    }
    *x = (struct path_cache_drop){.server = s, .conn = c};
    for (size_t i = 0; i < countof(x->asked); i++) {
        x->asked[i] = (struct engine_leg_drop){.on_done = path_cache_on_dropped, .ctx = x};
        list_init(&x->asked[i].link);
    }
    x->asked_count = x->left = models_leg_drop(server_options_of(s)->models, model, &what,
                                               x->asked, (uint32_t)countof(x->asked));
    if (x->left) {
        server_on_leave(c, path_cache_on_leave, x);
    } else if (model.len) {
        api_error_set(&e, ERR_NOT_FOUND, "", STR("model"), "model: %.*s is not loaded",
                      STR_ARG(str_sub(model, 0, 80)));
        server_refuse(s, c, &e);
    } else {
        path_cache_told(x);
    }
}
