#include "serve/path_ready.h"

#include "base/json.h"
#include "serve/legs.h"
#include "serve/path_legs.h"
#include "serve/path_query.h"
#include "serve/path_state.h"
#include "serve/proofs.h"

#define PATH_READY_MAX 65536     /* bytes of an answer */
#define PATH_READY_PROVED_MS 1000 /* a token so young is proof enough */

/* One who asks; in its connection's arena. */
struct path_ready {
    struct server *server;
    struct http_conn *conn;
    struct proof proof;
    str name;  /* the model's own, else the name asked for; p NULL: neither */
    struct models_leg_resident resident;
    bool is_resident, is_ready;
    const char *state; /* of the model */
};

static void path_ready_tell(struct path_ready *x)
{
    const struct models_leg_resident *r = x->is_resident ? &x->resident : NULL;
    bool is_loading = r && r->health.state == API_HEALTH_STARTING;
    struct buf out;
    buf_init(&out, PATH_READY_MAX);
    struct json_writer w = json_writer(&out);
    json_open_object(&w);
    json_key_z(&w, "ready");
    json_put_bool(&w, x->is_ready);
    json_put_key_text(&w, "model", x->name);
    json_put_key_text(&w, "state", str_of(x->state));
    json_key_z(&w, "progress");
    json_put_float(&w, is_loading ? r->health.progress : 1);
    json_key_z(&w, "last_token_ms");
    if (r && r->token_age_ms >= 0)
        json_put_i64(&w, r->token_age_ms);
    else
        json_put_null(&w);
    json_put_key_i64(&w, "queue", r ? r->waiting : 0);
    json_close_object(&w);
    http_conn_add_header(x->conn, "Cache-Control", STR("no-store"));
    server_reply(x->conn, x->is_ready ? 200 : 503, buf_view(&out));
    buf_deinit(&out);
}

/* --- judging ------------------------------------------------------------------------------- */

/* The one of that name; without a name the one that spoke last, else any. False: none. */
static bool path_ready_find(struct path_ready *x, str name)
{
    struct models_leg_resident rows[RESIDENCY_MODELS_MAX];
    struct models_leg *models = server_options_of(x->server)->models;
    size_t count = base_min(models_leg_residents(models, rows, countof(rows)), countof(rows));
    const struct models_leg_resident *best = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct models_leg_resident *r = &rows[i];
        bool spoke = r->token_age_ms >= 0;
        if (name.p && !str_eq_nocase(r->name, name))
            continue;
        if (!best || (spoke && (best->token_age_ms < 0 || r->token_age_ms < best->token_age_ms)))
            best = r;
    }
    if (best)
        x->resident = *best;
    return best != NULL;
}

/* A model that is in memory: it moves, and its queue has room. One that has run its self-test is
 * ready before its first token. */
static bool path_ready_is(const struct server *s, const struct models_leg_resident *r)
{
    uint64_t room = (uint64_t)base_max(r->model.slots, 1u) + server_options_of(s)->queue_max;
    return r->health.state == API_HEALTH_READY && !r->is_draining && !path_state_stands(s, r) &&
           (uint64_t)r->running + r->waiting < room;
}

/* A local model by a name that clients use; p NULL: whichever. One that is not in memory can be
 * loaded: idle. */
static void path_ready_judge_local(struct path_ready *x, str name)
{
    struct models_leg *models = server_options_of(x->server)->models;
    struct arena *a = http_conn_arena(x->conn);
    struct api_error e = {0};
    str own = name;
    x->name = name;
    x->is_ready = x->is_resident = false;
    x->state = "none";
    if (name.p && !models_leg_resolve(models, name, a, &own, &e)) {
        x->state = e.err.code == ERR_NOT_FOUND    ? "none"
                   : e.err.code == ERR_OVERLOADED ? "loading" : "failed";
        return;
    }
    x->is_resident = path_ready_find(x, own);
    if (x->is_resident) {
        x->name = arena_copy(a, x->resident.name);
        x->state = path_state_name(x->resident.health.state);
        x->is_ready = path_ready_is(x->server, &x->resident);
    } else if (name.p || models_leg_has_any(models)) {
        x->name = own;
        x->state = "idle";
        x->is_ready = true;
    }
}

/* The first leg that would take it; else as the first engine of the route is. */
static void path_ready_judge_route(struct path_ready *x, const struct router_route *r, str asked)
{
    struct legs *l = server_options_of(x->server)->legs;
    struct legs_generation *g = legs_ref(l);
    struct path_ready first = *x;
    bool has_first = false;
    for (uint32_t i = 0; i < r->entries_count && !x->is_ready; i++) {
        const struct router_entry *entry = &r->entries[i];
        x->is_resident = false;
        x->state = "none"; /* of an upstream's model */
        x->name = asked;
        if (legs_row_of(l, entry->leg)->kind == LEG_KIND_UPSTREAM) {
            x->is_ready = path_legs_is_open(x->server, entry);
            continue;
        }
        path_ready_judge_local(x, legs_model_of(g, entry, asked));
        first = has_first ? first : *x;
        has_first = true;
    }
    if (!x->is_ready && has_first)
        *x = first;
    legs_unref(g);
}

/* Nobody is named and no local model is there: any route that leads to an open upstream. */
static void path_ready_judge_any(struct path_ready *x)
{
    const struct router_route *routes;
    uint32_t count = legs_routes(server_options_of(x->server)->legs, &routes);
    for (uint32_t i = 0; i < count && !x->is_ready; i++)
        for (uint32_t k = 0; k < routes[i].entries_count && !x->is_ready; k++)
            x->is_ready = path_legs_is_open(x->server, &routes[i].entries[k]);
}

static void path_ready_judge(struct path_ready *x, str asked)
{
    const struct router_route *routes;
    struct router_rules rules = {
        .routes_count = legs_routes(server_options_of(x->server)->legs, &routes)};
    const struct router_asked who = {.model = asked};
    rules.routes = routes;
    int route = asked.p ? router_find(&rules, &who) : -1;
    if (route >= 0) {
        path_ready_judge_route(x, &routes[route], asked);
        return;
    }
    path_ready_judge_local(x, asked);
    if (!asked.p && !x->is_ready && !x->is_resident)
        path_ready_judge_any(x);
}

/* --- proving ------------------------------------------------------------------------------- */

static void path_ready_on_proof(void *ctx, bool is_proved)
{
    struct path_ready *x = ctx;
    server_on_leave(x->conn, NULL, NULL);
    x->is_resident = path_ready_find(x, x->name); /* as it is now */
    x->is_ready = is_proved;
    if (x->is_resident)
        x->state = path_state_name(x->resident.health.state);
    path_ready_tell(x);
}

static void path_ready_on_leave(void *ctx)
{
    struct path_ready *x = ctx;
    proofs_leave(&x->proof);
}

/* True: somebody is asked, and will tell. */
static bool path_ready_prove(struct path_ready *x)
{
    if (!x->is_ready)
        return false;
    x->is_ready = false;
    if (!x->is_resident)
        return false;
    x->is_ready = x->resident.token_age_ms >= 0 && x->resident.token_age_ms < PATH_READY_PROVED_MS;
    if (x->is_ready)
        return false;
    x->proof = (struct proof){.on_end = path_ready_on_proof, .ctx = x};
    list_init(&x->proof.link);
    if (!proofs_ask(server_proofs(x->server), x->name, &x->proof))
        return false;
    server_on_leave(x->conn, path_ready_on_leave, x);
    return true;
}

void path_ready(struct server *s, struct http_conn *c)
{
    struct arena *a = http_conn_arena(c);
    struct api_error e = {0};
    struct path_ready *x = ARENA_NEW(a, struct path_ready);
    str asked = path_query(c, STR("model"), a), prove = path_query(c, STR("prove"), a);
    if (!x) {
        err_set(&e.err, ERR_MEMORY, "serve: no memory for the request");
        server_refuse(s, c, &e);
        return;
    }
    if (prove.p && !str_eq_z(prove, "0") && !str_eq_z(prove, "1")) {
        api_error_set(&e, ERR_REQUEST, "", STR("prove"), "prove: 0 or 1 expected, got %.*s",
                      STR_ARG(str_sub(prove, 0, str_utf8_valid(str_sub(prove, 0, 40)))));
        server_refuse(s, c, &e);
        return;
    }
    *x = (struct path_ready){.server = s, .conn = c};
    path_ready_judge(x, asked.len ? asked : (str){NULL, 0});
    if (!str_eq_z(prove, "1") || !path_ready_prove(x))
        path_ready_tell(x);
}
