#include "serve/legs_state.h"

#include <stdlib.h>

#define LEGS_ARENA_MAX ((size_t)16 << 20)
#define LEGS_CHECK_MS 5000     /* free checks of one leg are never closer than this */

static str legs_copy(struct arena *a, str s) { return s.len ? arena_copy(a, s) : STR(""); }

static bool legs_open_remote(struct legs *l, struct legs_generation *g, uint32_t i, struct err *e)
{
    const struct legs_row *r = &g->rows[i];
    if (!l->client && !http_client_open(&l->client, l->o.loop, LEGS_CALLS_MAX, e))
        return err_wrap(e, "leg %.*s", STR_ARG(r->name));
    struct remote_leg_options o = {
        .loop = l->o.loop, .client = l->client, .name = r->name, .dialect = r->dialect,
        .url = r->url, .ca_file = r->ca_file, .auth = r->auth, .key = r->key,
        .upstream = {.model = STR(""), .caps = r->caps, .tokens_max = r->output_max},
        .context_max = r->context_max, .requests_max = r->inflight_max,
        .health_path = r->health_path, .check_ms = LEGS_CHECK_MS, .via = str_of(l->via)};
    static const enum dialect_continue hows[LEG_CONTINUE_COUNT_] = {
        [LEG_CONTINUE_NONE] = DIALECT_CONTINUE_NONE,
        [LEG_CONTINUE_PREFILL] = DIALECT_CONTINUE_PREFILL,
        [LEG_CONTINUE_FINAL_MESSAGE] = DIALECT_CONTINUE_FINAL_MESSAGE,
        [LEG_CONTINUE_SHOAL] = DIALECT_CONTINUE_SHOAL};
    o.upstream.how = hows[r->goes_on];
    return remote_leg_open(&g->remotes[i], &o, e);
}

static void legs_copy_row(struct arena *a, struct legs_row *to, const struct legs_row *from)
{
    *to = *from;
    to->name = legs_copy(a, from->name);
    to->model = legs_copy(a, from->model);
    to->url = legs_copy(a, from->url);
    to->ca_file = legs_copy(a, from->ca_file);
    to->key = legs_copy(a, from->key);
    to->health_path = legs_copy(a, from->health_path);
    to->vectors = legs_copy(a, from->vectors);
}

static void legs_copy_route(struct arena *a, struct router_route *to,
                            const struct router_route *from)
{
    *to = *from;
    to->match = (struct router_match){legs_copy(a, from->match.model),
                                      legs_copy(a, from->match.agent),
                                      legs_copy(a, from->match.dialect),
                                      legs_copy(a, from->match.key)};
    for (uint32_t i = 0; i < to->entries_count; i++)
        to->entries[i].model = legs_copy(a, from->entries[i].model);
}

static bool legs_fill(struct legs *l, struct legs_generation *g, const struct legs_config *c,
                      struct err *e)
{
    if (c->rows_count > LEGS_MAX || c->routes_count > LEGS_ROUTES_MAX)
        return err_set(e, ERR_CONFIG, "%u legs and %u routes, at most %u and %u", c->rows_count,
                       c->routes_count, LEGS_MAX, LEGS_ROUTES_MAX);
    g->rows = ARENA_ARRAY(&g->arena, struct legs_row, (size_t)c->rows_count + 1);
    g->remotes = ARENA_ARRAY(&g->arena, struct remote_leg *, (size_t)c->rows_count + 1);
    g->routes = ARENA_ARRAY(&g->arena, struct router_route, (size_t)c->routes_count + 1);
    if (!g->rows || !g->remotes || !g->routes)
        return err_set(e, ERR_MEMORY, "no memory for the legs");
    for (uint32_t i = 0; i < c->routes_count; i++)
        legs_copy_route(&g->arena, &g->routes[i], &c->routes[i]);
    g->rules = (struct router_rules){g->routes, c->routes_count};
    for (uint32_t i = 0; i < c->rows_count; i++) {
        legs_copy_row(&g->arena, &g->rows[i], &c->rows[i]);
        g->rows_count++;
        if (g->rows[i].kind == LEG_KIND_UPSTREAM && !legs_open_remote(l, g, i, e))
            return false;
    }
    return !g->arena.is_full || err_set(e, ERR_MEMORY, "no memory for the legs");
}

static void legs_free(struct legs_generation *g)
{
    list_each (link, &g->legs)
        free(list_item(link, struct legs_leg, link));
    for (uint32_t i = 0; i < g->rows_count; i++)
        remote_leg_close(g->remotes[i]);
    arena_deinit(&g->arena);
    free(g);
}

bool legs_prepare(struct legs *l, const struct legs_config *c, struct legs_generation **out,
                  struct err *e)
{
    struct legs_generation *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, ERR_MEMORY, "no memory for the legs");
    g->set = l;
    g->refs = 1;
    g->all_open_wait_ms = c->all_open_wait_ms;
    g->probes_free = c->probes_free;
    g->probes_paid = c->probes_paid;
    g->probes_per_hour = c->probes_per_hour;
    g->shadow_min_tokens = c->shadow_min_tokens;
    list_init(&g->legs);
    arena_init(&g->arena, LEGS_ARENA_MAX);
    if (!legs_fill(l, g, c, e)) {
        legs_free(g);
        return false;
    }
    *out = g;
    return true;
}

struct legs_generation *legs_ref(struct legs *l)
{
    l->now->refs++;
    return l->now;
}

void legs_unref(struct legs_generation *g)
{
    if (g && --g->refs == 0)
        legs_free(g);
}

void legs_drop(struct legs_generation *g) { legs_unref(g); }
