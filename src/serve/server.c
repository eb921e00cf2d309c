#include "serve/server.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "serve/agents.h"
#include "serve/contexts.h"
#include "serve/legs.h"
#include "serve/metrics.h"
#include "serve/misses.h"
#include "serve/models_leg.h"
#include "serve/path_table.h"
#include "serve/proofs.h"
#include "serve/replay.h"
#include "serve/sessions.h"

#define SERVER_STOP_TICK_MS 20
#define SERVER_FLUSH_MS 300 /* for the last bytes, after the last request has ended */

struct server {
    struct server_options o;
    struct http_server *http;
    struct exchange_set *exchanges;
    struct metrics *metrics;
    struct replay *replay;
    struct misses *misses;
    struct agents *agents;
    struct contexts *contexts;
    struct sessions *sessions;
    struct limits *limits;
    struct pulls *pulls;
    struct proofs proofs;
    str listen[SERVER_ADDRESSES_MAX]; /* what limits knows as our names */
    uint32_t listen_count;
    struct loop_timer stop;
    int64_t opened_ms, stop_ms, idle_ms;
    bool is_stopping, is_stopped, was_told;
    struct server_config config;
    uint64_t ingress; /* bytes of bodies announced or held */
};

/* What is known of a request since its header; lives in the connection's arena. */
struct server_call {
    struct exchange_call x;
    const struct path_row *row; /* NULL: a dialect's */
    bool is_options;
    struct api_error *refusal; /* waits for the end of a request without a body */
    char id[EXCHANGE_ID_LEN + 1];
    uint64_t ingress;
    struct limits *limits; /* those that let it in: x.key is theirs */
    struct server_asker asker;
    void (*on_leave)(void *ctx); /* of a row that answers later; or NULL */
    void *on_leave_ctx;
};

/* --- replies ------------------------------------------------------------------------------- */

void server_reply(struct http_conn *c, int status, str json)
{
    http_conn_reply(c, status, "application/json", json);
}

/* In the form of the asked path's dialect, OpenAI's where there is none. The status. */
static int server_write_error(const struct server *s, const struct server_call *call,
                              const struct api_error *e, struct buf *out)
{
    const struct dialect *d = call && call->x.dialect ? call->x.dialect
                                                      : dialect_of(STR("openai_chat"));
    struct dialect_state *st = calloc(1, d->state_size);
    if (!st)
        return 500;
    st->dialect = d;
    st->request_id = call ? call->x.request_id : (str){NULL, 0};
    st->overlong_status = s->o.overlong_status;
    d->write_error(out, st, e);
    int status = dialect_status(st, e);
    dialect_state_deinit(st);
    free(st);
    metrics_refused(s->metrics, call && call->x.dialect ? d->name : "other", status);
    return status;
}

void server_refuse(struct server *s, struct http_conn *c, const struct api_error *e)
{
    struct buf out;
    buf_init(&out, 65536);
    int status = server_write_error(s, http_conn_user(c), e, &out);
    http_conn_reply(c, status, "application/json", buf_view(&out));
    buf_deinit(&out);
}

void server_reply_fresh(struct server *s, struct http_conn *c, struct buf *out)
{
    struct api_error e = {0};
    http_conn_add_header(c, "Cache-Control", STR("no-store"));
    if (out->full) {
        api_error_set(&e, ERR_LIMIT, "", STR(""), "the answer is longer than %zu bytes",
                      out->size_max);
        server_refuse(s, c, &e);
    } else {
        server_reply(c, 200, buf_view(out));
    }
    buf_deinit(out);
}

static void server_add_ids(struct http_conn *c, str id)
{
    http_conn_add_header(c, "Shoal-Request-Id", id);
    http_conn_add_header(c, "x-request-id", id);
    http_conn_add_header(c, "request-id", id);
}

/* A refusal without a connection. */
static void server_write_ids(void *ctx, struct buf *out)
{
    char id[EXCHANGE_ID_LEN + 1];
    (void)ctx;
    exchange_make_id(id);
    buf_printf(out, "Shoal-Request-Id: %s\r\nx-request-id: %s\r\nrequest-id: %s\r\n", id, id, id);
}

/* A refusal of the connection itself: the request may have no call yet; its path may be known. */
static void server_on_error(void *ctx, struct http_conn *c, int status, const char *text,
                            struct buf *out)
{
    static const struct {
        int status;
        enum err_code code;
        const char *detail;
    } rows[] = {
        {400, ERR_REQUEST, ""}, {408, ERR_REQUEST, "request_timeout"}, {413, ERR_LIMIT, ""},
        {417, ERR_REQUEST, ""}, {431, ERR_REQUEST, ""},
        {501, ERR_UNSUPPORTED, ""}, {505, ERR_REQUEST, ""}, {503, ERR_OVERLOADED, ""},
    };
    struct api_error e = {0};
    size_t i = 0;
    while (i + 1 < countof(rows) && rows[i].status != status)
        i++;
    api_error_set(&e, rows[i].code, rows[i].detail, STR(""), "%s", text);
    const struct server_call *call = c ? http_conn_user(c) : NULL;
    struct server_call none = {0};
    if (c && !call) {
        exchange_make_id(none.id);
        none.x.request_id = str_of(none.id);
        const struct http_request *r = http_conn_request(c);
        if (r->path.p && !dialect_match(r->method, r->path, &none.x.dialect, &none.x.path,
                                        &none.x.segment))
            none.x.dialect = NULL;
        call = &none;
    }
    if (c)
        server_add_ids(c, call->x.request_id);
    server_write_error(ctx, call, &e, out);
}

/* --- from a header to a handler ------------------------------------------------------------ */

static void server_release(struct server *s, struct server_call *call)
{
    s->ingress -= call->ingress;
    call->ingress = 0;
    limits_close(call->limits);
    call->limits = NULL;
    call->x.key = NULL;
}

static bool server_take(struct server *s, struct server_call *call, uint64_t bytes)
{
    if (bytes > s->o.ingress_max || s->ingress > s->o.ingress_max - bytes)
        return false;
    s->ingress += bytes;
    call->ingress += bytes;
    return true;
}

static bool server_no_path(const struct http_request *r, struct api_error *e)
{
    struct buf methods, near;
    buf_init(&methods, 256);
    buf_init(&near, 512);
    str path = str_sub(r->path, 0, 80);
    path.len = str_utf8_valid(path);
    if (path_table_methods(r->path, &methods))
        api_error_set(e, ERR_REQUEST, "bad_method", STR(""), "%.*s takes %s, not %.*s",
                      STR_ARG(path), methods.p, STR_ARG(r->method));
    else if (path_table_near(r->path, &near))
        api_error_set(e, ERR_NOT_FOUND, "not_found", STR(""),
                      "no path %.*s here; there is %s", STR_ARG(path), near.p);
    else
        api_error_set(e, ERR_NOT_FOUND, "not_found", STR(""),
                      "no path %.*s here; /openapi.json lists what there is", STR_ARG(path));
    buf_deinit(&methods);
    buf_deinit(&near);
    return false;
}

/* The dialect is known before the method is right, so that its form is used for the refusal. */
static bool server_find(const struct http_request *r, struct server_call *call,
                        struct api_error *e)
{
    str method = str_eq_z(r->method, "HEAD") ? STR("GET") : r->method;
    if (dialect_match(method, r->path, &call->x.dialect, &call->x.path, &call->x.segment))
        return true;
    call->row = path_table_find(method, r->path);
    if (str_starts(r->path, STR("/api/"))) /* Ollama's, also where a row of ours answers */
        call->x.dialect = dialect_of(STR("ollama"));
    if (call->row)
        return true;
    static const char *const methods[] = {"POST", "GET", "DELETE"};
    for (size_t i = 0; i < countof(methods) && !call->x.dialect; i++)
        if (!dialect_match(str_of(methods[i]), r->path, &call->x.dialect, &call->x.path,
                           &call->x.segment))
            call->x.dialect = NULL;
    return server_no_path(r, e);
}

static uint32_t server_scope(const struct server_call *call)
{
    enum path_scope scope = call->row ? call->row->scope : PATH_SCOPE_INFER;
    switch (scope) {
    case PATH_SCOPE_OPEN:
        return 0;
    case PATH_SCOPE_INFER:
        return LIMITS_SCOPE_INFER;
    case PATH_SCOPE_READ:
        return LIMITS_SCOPE_READ;
    case PATH_SCOPE_ADMIN:
        break;
    }
    return LIMITS_SCOPE_ADMIN;
}

static struct limits_asked server_asked(const struct http_conn *c)
{
    return (struct limits_asked){
        .host = http_conn_header(c, "host"), .origin = http_conn_header(c, "origin"),
        .authorization = http_conn_header(c, "authorization"),
        .x_api_key = http_conn_header(c, "x-api-key"),
        .shoal_key = http_conn_header(c, "shoal-key"), .peer = http_conn_request(c)->peer,
        .now_ms = loop_ms()};
}

/* The origin was found in allowed_origins: the browser may show the page what we answer. */
static void server_add_cors(struct http_conn *c, str origin)
{
    http_conn_add_header(c, "Access-Control-Allow-Origin", origin);
    http_conn_add_header(c, "Vary", STR("Origin"));
    http_conn_add_header(c, "Access-Control-Expose-Headers",
                         STR("Shoal-Request-Id, Shoal-Leg, Shoal-Model, Shoal-Substituted, "
                             "Shoal-Cache, Shoal-Warning, Shoal-Truncated, Retry-After"));
}

/* Who may ask, before what is asked for: a wrong Host learns no paths. The path is looked up first
 * only for the form of the refusal. */
static bool server_may_ask(struct server *s, struct http_conn *c, struct server_call *call,
                           struct api_error *e)
{
    struct limits_asked asked = server_asked(c);
    struct api_error no_path = {0};
    bool is_found = server_find(http_conn_request(c), call, &no_path);
    if (!limits_check_origin(s->limits, &asked, e))
        return false;
    if (asked.origin.p)
        server_add_cors(c, asked.origin);
    asked.scope = server_scope(call);
    call->is_options = str_eq_z(http_conn_request(c)->method, "OPTIONS");
    if (call->is_options) /* a browser asks first, and without the key */
        return true;
    if (!limits_check_key(s->limits, &asked, &call->x.key, e))
        return false;
    if (!is_found)
        *e = no_path;
    return is_found;
}

static bool server_check(struct server *s, struct http_conn *c, struct server_call *call,
                         struct api_error *e)
{
    const struct http_request *r = http_conn_request(c);
    str encoding = http_conn_header(c, "content-encoding");
    if (!server_may_ask(s, c, call, e))
        return false;
    if (s->is_stopping)
        return api_error_set(e, ERR_OVERLOADED, "", STR(""), "the server is stopping");
    if (encoding.len && !str_eq_nocase(encoding, STR("identity")))
        return api_error_set(e, ERR_REQUEST, "bad_encoding", STR(""),
                             "Content-Encoding %.*s is not understood; send the body as it is",
                             STR_ARG(str_sub(encoding, 0, 40)));
    if (r->body_size > s->o.body_max)
        return api_error_set(e, ERR_LIMIT, "", STR(""),
                             "the body has %llu bytes, limits.body is %llu",
                             (unsigned long long)r->body_size, (unsigned long long)s->o.body_max);
    if (!server_take(s, call, r->body_size))
        return api_error_set(e, ERR_OVERLOADED, "", STR(""),
                             "bodies of other requests fill the memory for them (%llu bytes)",
                             (unsigned long long)s->o.ingress_max);
    return true;
}

static uint64_t server_on_header(void *ctx, struct http_conn *c)
{
    struct server *s = ctx;
    struct server_call *call = ARENA_NEW(http_conn_arena(c), struct server_call);
    struct api_error e = {0};
    if (!call) {
        http_conn_abort(c);
        return 0;
    }
    exchange_make_id(call->id);
    call->x.request_id = str_of(call->id);
    call->limits = limits_ref(s->limits);
    call->x.limits = call->limits;
    http_conn_set_user(c, call);
    server_add_ids(c, call->x.request_id);
    if (server_check(s, c, call, &e))
        return s->o.body_max;
    if (http_conn_request(c)->has_body) { /* which nobody will read: the connection ends */
        server_release(s, call);
        server_refuse(s, c, &e);
        return 0;
    }
    call->refusal = ARENA_NEW(http_conn_arena(c), struct api_error);
    if (call->refusal)
        *call->refusal = e;
    return 0;
}

static void server_options_reply(struct http_conn *c)
{
    struct buf methods;
    buf_init(&methods, 256);
    path_table_methods(http_conn_request(c)->path, &methods);
    buf_add_z(&methods, methods.len ? ", OPTIONS" : "OPTIONS");
    http_conn_add_header(c, "Allow", buf_view(&methods));
    if (http_conn_header(c, "origin").p) {
        http_conn_add_header(c, "Access-Control-Allow-Methods", buf_view(&methods));
        http_conn_add_header(c, "Access-Control-Allow-Headers",
                             STR("authorization, content-type, x-api-key, shoal-key, "
                                 "anthropic-version, anthropic-beta, shoal-agent, shoal-session, "
                                 "shoal-priority, shoal-deadline-ms"));
        http_conn_add_header(c, "Access-Control-Max-Age", STR("600"));
    }
    http_conn_reply(c, 204, NULL, (str){NULL, 0});
    buf_deinit(&methods);
}

/* Before the release: a reload may free the key while the handler's reply is under way. */
static void server_note_asker(struct server_call *call, struct http_conn *c)
{
    const struct limits_key *key = call->x.key;
    call->asker.is_admin = limits_is_admin(key);
    call->asker.key = arena_copy(http_conn_arena(c), key ? key->name : STR(""));
    call->asker.scope = arena_copy(http_conn_arena(c), exchange_scope(key));
}

static void server_on_request(void *ctx, struct http_conn *c)
{
    struct server *s = ctx;
    struct server_call *call = http_conn_user(c);
    uint64_t size = http_conn_request(c)->body.len;
    struct api_error e = {0};
    if (call->refusal) {
        server_release(s, call);
        server_refuse(s, c, call->refusal);
    } else if (size > call->ingress && !server_take(s, call, size - call->ingress)) {
        api_error_set(&e, ERR_OVERLOADED, "", STR(""),
                      "bodies of other requests fill the memory for them (%llu bytes)",
                      (unsigned long long)s->o.ingress_max);
        server_release(s, call);
        server_refuse(s, c, &e);
    } else if (call->is_options) {
        server_release(s, call);
        server_options_reply(c);
    } else if (call->row) {
        server_note_asker(call, c);
        server_release(s, call);
        call->row->serve(s, c);
    } else {
        exchange_start(s->exchanges, c, &call->x);
    }
}

/* What the configuration says for that model and the request does not; the model's own name. */
static str server_on_read(void *ctx, struct api_request *rq, struct arena *a)
{
    struct server *s = ctx;
    return models_leg_fill(s->o.models, rq, a);
}

/* A reply is about to end: its body is no longer held. */
static void server_on_end(void *ctx, struct exchange_call *x)
{
    server_release(ctx, (struct server_call *)(void *)x);
}

static void server_on_gone(void *ctx, struct http_conn *c)
{
    struct server_call *call = http_conn_user(c);
    if (!call)
        return;
    if (call->x.exchange)
        exchange_gone(call->x.exchange);
    else
        server_release(ctx, call);
    if (call->on_leave)
        call->on_leave(call->on_leave_ctx);
}

static void server_on_drain(void *ctx, struct http_conn *c)
{
    (void)ctx;
    const struct server_call *call = http_conn_user(c);
    if (call && call->x.exchange)
        exchange_drain(call->x.exchange);
}

/* --- start and stop ------------------------------------------------------------------------ */

/* Anew with each address, at start. */
static bool server_limit(struct server *s, struct err *e)
{
    limits_close(s->limits);
    s->limits = NULL;
    s->o.access.listen_count = s->listen_count;
    return limits_open(&s->limits, &s->o.access, e);
}

static struct exchange_options server_exchange_options(struct server *s)
{
    const struct server_options *o = &s->o;
    return (struct exchange_options){
        .loop = o->loop, .provider = legs_provider(o->legs), .limits = &o->dialect,
        .metrics = s->metrics, .replay = s->replay, .misses = s->misses, .queue_max = o->queue_max,
        .agents = s->agents, .contexts = s->contexts, .sessions = s->sessions,
        .context_ttl_ms = o->context_ttl_ms,
        .ping_ms = o->ping_ms, .defer_ms = o->defer_ms, .total_ms = o->total_ms,
        .rounds_clock = o->rounds_clock,
        .wait_ms = o->wait_ms, .gen_ms = o->gen_ms, .overlong_status = o->overlong_status,
        .on_read = server_on_read, .on_end = server_on_end, .ctx = s};
}

static void server_on_stores(void *ctx)
{
    struct server *s = ctx;
    models_leg_expire(s->o.models);
}

static bool server_init(struct server *s, const struct server_options *o, struct err *e)
{
    s->o = *o;
    s->opened_ms = loop_ms();
    struct http_server_options http = {
        .base = loop_base(o->loop), .limits = o->http, .connections_max = o->connections_max,
        .tls = o->tls,
        .handlers = {s, server_on_header, server_on_request, server_on_gone, server_on_drain,
                     server_on_error, server_write_ids}};
    s->o.access.listen = s->listen;
    s->o.access.checks_host = true;
    const struct contexts_options co = {.loop = o->loop, .models = o->models,
                                        .public_ids = o->public_ids,
                                        .public_ids_count = o->public_ids_count,
                                        .dir = o->spill_dir, .limits = &s->o.dialect};
    const struct replay_options re = {.bytes_max = o->replay_size, .ttl_ms = o->replay_ttl_ms};
    if (!metrics_open(&s->metrics, o->agents_max, e) || !server_limit(s, e) ||
        !misses_open(&s->misses, o->misses_max, e) || !agents_open(&s->agents, e) ||
        !contexts_open(&s->contexts, &co, e) ||
        !sessions_open(&s->sessions, o->session_ttl_ms, e) ||
        !pulls_open(&s->pulls, o->loop, server_on_stores, s, e) ||
        (o->replay_size && !replay_open(&s->replay, &re, e)))
        return false;
    struct exchange_options ex = server_exchange_options(s);
    return exchange_set_open(&s->exchanges, &ex, e) && http_server_open(&s->http, &http, e);
}

static void server_on_stop_time(void *ctx);

bool server_open(struct server **out, const struct server_options *o, struct err *e)
{
    struct server *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "serve: no memory");
    proofs_init(&s->proofs, o->loop, o->models);
    if (!loop_timer_open(&s->stop, o->loop, server_on_stop_time, s, e) || !server_init(s, o, e)) {
        server_close(s);
        return false;
    }
    *out = s;
    return true;
}

bool server_listen(struct server *s, str address, struct err *e)
{
    if (s->listen_count == SERVER_ADDRESSES_MAX)
        return err_set(e, ERR_CONFIG, "listen: more than %d addresses", SERVER_ADDRESSES_MAX);
    bool is_loopback = http_server_is_loopback(address);
    if (!is_loopback && s->o.access.keys_count == 0)
        return err_set(e, ERR_CONFIG,
                       "listen %.*s: reachable from other machines, which needs keys",
                       STR_ARG(address));
    if (!http_server_listen(s->http, address, e))
        return false;
    s->o.access.checks_host = s->o.access.checks_host && is_loopback;
    s->listen[s->listen_count++] = address;
    return server_limit(s, e);
}

/* --- reload -------------------------------------------------------------------------------- */

struct server_next {
    struct server_options o;
    struct limits *limits;
};

bool server_prepare(const struct server *s, const struct server_options *o,
                    struct server_next **next, struct err *e)
{
    struct limits_options access = o->access;
    for (uint32_t i = 0; i < s->listen_count && access.keys_count == 0; i++)
        if (!http_server_is_loopback(s->listen[i]))
            return err_set(e, ERR_CONFIG,
                           "keys: listen %.*s is reachable from other machines, which needs some",
                           STR_ARG(s->listen[i]));
    access.listen = s->listen;
    access.listen_count = s->listen_count;
    access.checks_host = s->o.access.checks_host;
    *next = calloc(1, sizeof **next);
    if (!*next)
        return err_set(e, ERR_MEMORY, "serve: no memory");
    (*next)->o = *o;
    (*next)->o.access = access;
    if (limits_open(&(*next)->limits, &access, e))
        return true;
    server_forget(*next);
    return false;
}

void server_forget(struct server_next *next)
{
    if (next)
        limits_close(next->limits);
    free(next);
}

void server_change(struct server *s, struct server_next *next, void (*on_free)(void *ctx),
                   void *ctx)
{
    const struct server_options *old = &s->o;
    struct server_options *o = &next->o;
    o->loop = old->loop;
    o->models = old->models;
    o->version = old->version;
    o->version_text = old->version_text;
    o->isa = old->isa;
    o->tls = old->tls;
    o->replay_size = old->replay_size;
    o->replay_ttl_ms = old->replay_ttl_ms;
    o->public_ids = old->public_ids;
    o->public_ids_count = old->public_ids_count;
    o->spill_dir = old->spill_dir;
    o->reload = old->reload;
    o->on_stopped = old->on_stopped;
    o->ctx = old->ctx;
    limits_follow(next->limits, s->limits);
    limits_set_on_free(next->limits, on_free, ctx);
    limits_close(s->limits);
    s->limits = next->limits;
    s->o = *o;
    metrics_set_agents(s->metrics, s->o.agents_max);
    sessions_set_ttl(s->sessions, s->o.session_ttl_ms);
    struct exchange_options ex = server_exchange_options(s);
    exchange_set_change(s->exchanges, &ex);
    http_server_change(s->http, &s->o.http, s->o.connections_max);
    free(next);
}

void server_set_tls(struct server *s, struct tls *tls)
{
    s->o.tls = tls;
    http_server_set_tls(s->http, tls);
}

struct server_config *server_config_of(struct server *s) { return &s->config; }

uint16_t server_port(const struct server *s, size_t listener)
{
    return http_server_port(s->http, listener);
}

/* Looks every few ms, so that nothing is done inside somebody's callback. */
static void server_on_stop_time(void *ctx)
{
    struct server *s = ctx;
    int64_t now = loop_ms();
    if (exchange_set_count(s->exchanges) && now - s->stop_ms >= s->o.grace_ms && !s->was_told) {
        struct api_error e = {0};
        api_error_set(&e, ERR_OVERLOADED, "", STR(""), "the server is stopping");
        s->was_told = true;
        exchange_set_end(s->exchanges, &e);
    }
    if (exchange_set_count(s->exchanges)) {
        s->idle_ms = now;
    } else if (!http_server_connections(s->http) || now - s->idle_ms >= SERVER_FLUSH_MS) {
        s->is_stopped = true;
        s->o.on_stopped(s->o.ctx);
        return;
    }
    loop_timer_set(&s->stop, SERVER_STOP_TICK_MS);
}

void server_stop(struct server *s)
{
    if (s->is_stopping)
        return;
    log_info("stopping: %u requests under way, %lld ms for them", exchange_set_count(s->exchanges),
             (long long)s->o.grace_ms);
    s->is_stopping = true;
    s->stop_ms = s->idle_ms = loop_ms();
    pulls_stop(s->pulls);
    http_server_drain(s->http);
    loop_timer_set(&s->stop, 0);
}

void server_close(struct server *s)
{
    if (!s)
        return;
    loop_timer_close(&s->stop);
    http_server_close(s->http); /* each open request gets its on_gone */
    exchange_set_close(s->exchanges);
    pulls_close(s->pulls);
    proofs_close(&s->proofs);
    replay_close(s->replay);
    misses_close(s->misses);
    agents_close(s->agents);
    contexts_close(s->contexts);
    sessions_close(s->sessions);
    metrics_close(s->metrics);
    limits_close(s->limits);
    free(s);
}

/* --- for path_table ------------------------------------------------------------------------ */

const struct server_options *server_options_of(const struct server *s) { return &s->o; }
const struct metrics *server_metrics(const struct server *s) { return s->metrics; }
const struct misses *server_misses(const struct server *s) { return s->misses; }
struct agents *server_agents(const struct server *s) { return s->agents; }
struct exchange_set *server_exchanges(const struct server *s) { return s->exchanges; }
struct contexts *server_contexts(const struct server *s) { return s->contexts; }
struct sessions *server_sessions(const struct server *s) { return s->sessions; }
const struct replay *server_replay(const struct server *s) { return s->replay; }

struct pulls *server_pulls(const struct server *s) { return s->pulls; }
struct proofs *server_proofs(struct server *s) { return &s->proofs; }
struct limits *server_limits(const struct server *s) { return s->limits; }

void server_on_leave(struct http_conn *c, void (*on_leave)(void *ctx), void *ctx)
{
    struct server_call *call = http_conn_user(c);
    call->on_leave = on_leave;
    call->on_leave_ctx = ctx;
}

struct server_asker server_asker(const struct http_conn *c)
{
    const struct server_call *call = http_conn_user(c);
    return call ? call->asker : (struct server_asker){.is_admin = false};
}

uint32_t server_connections(const struct server *s) { return http_server_connections(s->http); }
uint64_t server_ingress(const struct server *s) { return s->ingress; }
uint32_t server_requests(const struct server *s) { return exchange_set_count(s->exchanges); }
int64_t server_uptime_ms(const struct server *s) { return loop_ms() - s->opened_ms; }
