#include "serve/legs_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "serve/attempt.h"
#include "serve/remote_headers.h"

#define LEGS_TICK_MS 1000
#define LEGS_NETWORK_MS 2000   /* BEHAVIOUR 9.3 */
#define LEGS_REQUESTS_MAX (1u << 20)

/* --- one (leg, model) ---------------------------------------------------------------------- */

static struct legs_leg *legs_look_up(struct legs_generation *g, uint32_t row, str model)
{
    struct legs_leg *first = NULL;
    list_each (link, &g->legs) {
        struct legs_leg *at = list_item(link, struct legs_leg, link);
        if (at->row != row)
            continue;
        if (str_eq_z(str_sub(model, 0, sizeof at->model - 1), at->model))
            return at;
        first = first ? first : at;
    }
    return g->legs_count >= LEGS_MODELS_MAX ? first : NULL; /* the rest shares one state */
}

/* A shoal is spoken to in any protocol, and goes on only in one that has an unfinished turn. */
static enum leg_continue legs_goes_on(const struct legs_row *r, const struct dialect_upstream *up)
{
    const struct api_resume resume = {.partials_count = 0};
    const struct api_request rq = {.resume = &resume};
    bool can = r->goes_on != LEG_CONTINUE_NONE && r->dialect->client->can_continue(up, &rq);
    return can ? r->goes_on : LEG_CONTINUE_NONE;
}

static void legs_make_leg(struct legs *l, struct legs_generation *g, struct legs_leg *at)
{
    const struct legs_row *r = &g->rows[at->row];
    at->leg = (struct leg){
        .name = str_of(at->name), .kind = r->kind, .goes_on = r->goes_on,
        .dialect = r->dialect ? str_of(r->dialect->name) : STR(""),
        .model = {.name = str_of(at->model), .context_max = r->context_max, .caps = r->caps},
        .is_passthrough = r->auth == REMOTE_LEG_AUTH_PASSTHROUGH && r->kind == LEG_KIND_UPSTREAM,
        .output_max = r->output_max, .inflight_max = r->inflight_max, .vectors = r->vectors,
        .deadline = r->deadline, .breaking = r->breaking};
    at->leg.breaker.since_ms = loop_ms();
    if (r->kind == LEG_KIND_UPSTREAM) {
        at->remote = g->remotes[at->row];
        at->leg.provider = remote_leg_provider(at->remote);
        at->upstream = *remote_leg_upstream(at->remote);
        at->leg.goes_on = legs_goes_on(r, &at->upstream);
        at->leg.has_wide_pieces = r->dialect->client->has_wide_pieces;
    } else {
        at->leg.goes_on = LEG_CONTINUE_ENGINE;
        at->leg.provider = l->local;
    }
}

static struct legs_leg *legs_add(struct legs *l, struct legs_generation *g, uint32_t row, str model)
{
    struct legs_leg *at = legs_look_up(g, row, model);
    if (at)
        return at;
    at = calloc(1, sizeof *at);
    if (!at)
        return NULL;
    at->row = row;
    at->g = g;
    snprintf(at->name, sizeof at->name, "%.*s", STR_ARG(g->rows[row].name));
    snprintf(at->model, sizeof at->model, "%.*s", STR_ARG(model));
    legs_make_leg(l, g, at);
    list_push_last(&g->legs, &at->link);
    g->legs_count++;
    return at;
}

str legs_model_of(const struct legs_generation *g, const struct router_entry *entry, str asked)
{
    str own = g->rows[entry->leg].model;
    return entry->model.len ? entry->model : own.len ? own : asked;
}

const struct dialect *legs_dialect(const struct legs_leg *at)
{
    return at->g->rows[at->row].dialect;
}

str legs_url(const struct legs_leg *at) { return at->g->rows[at->row].url; }

/* An engine's state and what it can, where its model is in memory. */
static void legs_look(struct legs *l, struct legs_leg *at)
{
    struct models_leg_resident rows[RESIDENCY_MODELS_MAX];
    if (at->leg.kind != LEG_KIND_ENGINE)
        return;
    size_t count = base_min(models_leg_residents(l->o.models, rows, countof(rows)), countof(rows));
    at->leg.state = API_HEALTH_STOPPED;
    for (size_t i = 0; i < count; i++) {
        if (!str_eq_nocase(rows[i].name, str_of(at->model)))
            continue;
        at->leg.state = rows[i].health.state;
        if (!rows[i].model.context_max)
            return;
        at->leg.model.caps = rows[i].model.caps;
        at->leg.model.model_hash = rows[i].model.model_hash;
        at->leg.model.context_max = rows[i].model.context_max;
    }
}

static void legs_pass(struct legs *l, struct legs_leg *at)
{
    struct breaker_event ev = {.kind = BREAKER_EVENT_TIME};
    enum breaker_state was = at->leg.breaker.state;
    at->leg.breaker = breaker_next(at->leg.breaker, &at->leg.breaking, &ev, loop_ms());
    if (at->leg.breaker.state != was)
        legs_changed(l);
}

struct legs_leg *legs_find(struct legs *l, struct legs_generation *g,
                           const struct router_entry *entry, str asked)
{
    struct legs_leg *at = legs_add(l, g, entry->leg, legs_model_of(g, entry, asked));
    if (!at)
        return NULL;
    legs_look(l, at);
    legs_pass(l, at);
    return at;
}

/* --- outcomes ------------------------------------------------------------------------------ */

/* Every upstream failed to connect a moment ago: it is not them. */
static bool legs_is_network(const struct legs_generation *g, int64_t now_ms)
{
    uint32_t rows = 0;
    list_each (link, &g->legs) {
        const struct legs_leg *at = list_item(link, struct legs_leg, link);
        const struct health *h = &at->leg.health;
        if (at->leg.kind != LEG_KIND_UPSTREAM)
            continue;
        rows++;
        if (h->error != HEALTH_CLASS_CONNECT || now_ms - h->error_ms > LEGS_NETWORK_MS)
            return false;
    }
    return rows > 1;
}

static void legs_tell(struct legs *l, struct legs_leg *at, const struct breaker *was)
{
    const struct breaker *b = &at->leg.breaker;
    if (b->cooling_ms != was->cooling_ms)
        legs_changed(l);
    if (b->state == was->state)
        return;
    at->transitions[b->state]++;
    log_warn("leg %s, model %s: %s after %s%s%s", at->name, at->model, breaker_state_name(b->state),
             breaker_state_name(was->state), b->why != HEALTH_CLASS_OK ? ": " : "",
             b->why != HEALTH_CLASS_OK ? health_class_name(b->why) : "");
    legs_changed(l);
}

static void legs_event(struct legs *l, struct legs_leg *at, struct breaker_event *ev)
{
    struct breaker was = at->leg.breaker;
    ev->jitter = chrono_rng_double(&l->rng);
    at->leg.breaker = breaker_next(was, &at->leg.breaking, ev, loop_ms());
    legs_tell(l, at, &was);
}

/* The same leg in another generation: its row, or -1. */
static int64_t legs_row_like(const struct legs_generation *g, str name, enum leg_kind kind, str url)
{
    for (uint32_t i = 0; i < g->rows_count; i++)
        if (str_eq(g->rows[i].name, name) && g->rows[i].kind == kind && str_eq(g->rows[i].url, url))
            return i;
    return -1;
}

/* Where a leg's outcomes count: the record of the generation in use, if it is still configured. */
static struct legs_leg *legs_live(struct legs *l, struct legs_leg *at)
{
    if (at->g == l->now)
        return at;
    int64_t row = legs_row_like(l->now, str_of(at->name), at->leg.kind, legs_url(at));
    struct legs_leg *live = row < 0 ? NULL : legs_add(l, l->now, (uint32_t)row, str_of(at->model));
    return live ? live : at;
}

void legs_sync(struct legs *l, struct legs_leg *at)
{
    const struct legs_leg *live = legs_live(l, at);
    if (live == at)
        return;
    at->leg.breaker = live->leg.breaker;
    at->leg.health = live->leg.health;
    at->leg.inflight = live->leg.inflight;
    at->leg.cannot_continue = live->leg.cannot_continue;
}

bool legs_begin(struct legs *l, struct legs_leg *of)
{
    struct breaker_event ev = {.kind = BREAKER_EVENT_BEGIN};
    struct legs_leg *at = legs_live(l, of);
    bool is_trial = breaker_is_trial(&at->leg.breaker, loop_ms());
    at->leg.inflight++;
    at->leg.health.used_ms = loop_ms();
    legs_event(l, at, &ev);
    return is_trial;
}

void legs_end(struct legs *l, struct legs_leg *of, const struct legs_outcome *o)
{
    int64_t now = loop_ms();
    struct legs_leg *at = legs_live(l, of);
    at->leg.inflight -= at->leg.inflight > 0; /* 0: configured again while it ran */
    health_add(&at->leg.health, o->class_, o->text, now);
    struct breaker_event ev = {
        .kind = BREAKER_EVENT_END, .class_ = o->class_, .is_trial = o->is_trial,
        .retry_after_ms = o->retry_after_ms,
        .window = health_window_of(&at->leg.health, at->leg.breaking.window_ms, now),
        .is_network = o->class_ == HEALTH_CLASS_CONNECT && legs_is_network(at->g, now)};
    legs_event(l, at, &ev);
}

void legs_trial_ok(struct legs *l, struct legs_leg *of)
{
    struct breaker_event ev = {.kind = BREAKER_EVENT_END, .class_ = HEALTH_CLASS_OK,
                               .is_trial = true};
    legs_event(l, legs_live(l, of), &ev);
}

void legs_first_token(struct legs *l, struct legs_leg *of, uint32_t bucket, int64_t ms)
{
    health_add_first(&legs_live(l, of)->leg.health, bucket, ms);
}

void legs_shows_thinking(struct legs *l, struct legs_leg *of)
{
    legs_live(l, of)->leg.health.shows_thinking = true;
}

void legs_cannot_continue(struct legs *l, struct legs_leg *of)
{
    of->leg.cannot_continue = true;
    legs_live(l, of)->leg.cannot_continue = true;
}

void legs_count_probe(struct legs *l, struct legs_leg *of, enum legs_probe kind, bool is_ok)
{
    legs_live(l, of)->probes[kind][is_ok]++;
}

void legs_changed(struct legs *l)
{
    if (l->o.on_change)
        l->o.on_change(l->o.ctx);
}

void legs_count_failover(struct legs *l, const struct legs_failover *f)
{
    for (uint32_t i = 0; i < l->failovers_count; i++) {
        struct legs_counted *c = &l->failovers[i];
        if (str_eq_z(f->from, c->from) && str_eq_z(f->to, c->to) && c->reason == f->reason &&
            c->is_after == f->is_after) {
            c->count++;
            return;
        }
    }
    if (l->failovers_count == LEGS_FAILOVERS_MAX) {
        l->failovers_other++;
        return;
    }
    struct legs_counted *c = &l->failovers[l->failovers_count++];
    *c = (struct legs_counted){.reason = f->reason, .is_after = f->is_after, .count = 1};
    snprintf(c->from, sizeof c->from, "%.*s", STR_ARG(f->from));
    snprintf(c->to, sizeof c->to, "%.*s", STR_ARG(f->to));
}

/* --- free checks --------------------------------------------------------------------------- */

static void legs_on_check(void *ctx, const struct remote_leg_check *c)
{
    struct legs_leg *asked = ctx;
    struct legs_generation *g = asked->g;
    bool is_ok = c->fault == API_FAULT_NONE;
    struct breaker_event ev = {.kind = BREAKER_EVENT_FREE_OK};
    legs_count_probe(g->set, asked, LEGS_PROBE_FREE, is_ok);
    list_each (link, &g->legs) {
        struct legs_leg *at = list_item(link, struct legs_leg, link);
        if (at->row != asked->row)
            continue;
        at->leg.health.is_misconfigured = c->fault == API_FAULT_AUTH ||
                                          (at->leg.health.is_misconfigured && !is_ok);
        if (is_ok)
            legs_event(g->set, at, &ev);
    }
}

static void legs_probe(struct legs *l, struct legs_leg *at, int64_t now)
{
    struct health_probing p = {l->now->probes_free,
                               at->leg.breaker.state == BREAKER_STATE_CLOSED};
    if (!at->remote || now < health_probe_ms(&at->leg.health, &p))
        return;
    list_each (link, &at->g->legs) { /* one URL, one question */
        struct legs_leg *other = list_item(link, struct legs_leg, link);
        if (other->row == at->row)
            other->leg.health.probed_ms = now;
    }
    remote_leg_ask(at->remote, legs_on_check, at);
}

static void legs_on_tick(void *ctx)
{
    struct legs *l = ctx;
    int64_t now = loop_ms();
    list_each (link, &l->now->legs) {
        struct legs_leg *at = list_item(link, struct legs_leg, link);
        legs_pass(l, at);
        legs_probe(l, at, now);
    }
    const struct paid_view v = {.per_hour = l->now->probes_paid ? l->now->probes_per_hour : 0,
                                .asked_ms = l->asked_ms};
    probes_tick(&l->probes, &v, now);
    loop_timer_set(&l->tick, LEGS_TICK_MS);
}

/* --- the set ------------------------------------------------------------------------------- */

bool legs_open(struct legs **out, const struct legs_options *o, struct err *e)
{
    static const struct legs_config none;
    struct legs *l = calloc(1, sizeof *l);
    uint64_t seed;
    if (!l)
        return err_set(e, ERR_MEMORY, "serve: no memory");
    l->o = *o;
    l->local = models_leg_provider(o->models);
    probes_init(&l->probes, l);
    shadow_init(&l->shadow, o->models);
    l->sticky.rows = calloc(STICKY_ROWS, sizeof *l->sticky.rows);
    map_init(&l->attempts, LEGS_REQUESTS_MAX);
    digest_random(&seed, sizeof seed);
    chrono_rng_init(&l->rng, seed);
    snprintf(l->via, sizeof l->via, "%016llx", (unsigned long long)(seed * 0x9e3779b97f4a7c15u));
    bool ok = l->sticky.rows || err_set(e, ERR_MEMORY, "serve: no memory for sessions");
    if (!ok || !legs_prepare(l, &none, &l->now, e) ||
        !rehearsal_open(&l->rehearsal, o->loop, e) ||
        !loop_timer_open(&l->tick, o->loop, legs_on_tick, l, e)) {
        legs_close(l);
        return false;
    }
    loop_timer_set(&l->tick, LEGS_TICK_MS);
    *out = l;
    return true;
}

void legs_close(struct legs *l)
{
    if (!l)
        return;
    must(l->attempts.count == 0);
    loop_timer_close(&l->tick);
    shadow_close(&l->shadow);
    probes_close(&l->probes);
    legs_unref(l->now);
    rehearsal_close(l->rehearsal);
    http_client_close(l->client);
    map_deinit(&l->attempts);
    free(l->sticky.rows);
    free(l);
}

/* What is known of a leg stays known, and its requests under way are still its own. */
void legs_apply(struct legs *l, struct legs_generation *g)
{
    struct legs_generation *old = l->now;
    list_each (link, &old->legs) {
        struct legs_leg *from = list_item(link, struct legs_leg, link);
        int64_t row = legs_row_like(g, str_of(from->name), from->leg.kind, legs_url(from));
        struct legs_leg *to = row < 0 ? NULL
                                      : legs_add(l, g, (uint32_t)row, str_of(from->model));
        if (!to)
            continue;
        to->leg.breaker = from->leg.breaker;
        to->leg.health = from->leg.health;
        to->leg.inflight = from->leg.inflight;
        to->leg.cannot_continue = from->leg.cannot_continue && to->leg.goes_on == from->leg.goes_on;
        memcpy(to->transitions, from->transitions, sizeof to->transitions);
        memcpy(to->probes, from->probes, sizeof to->probes);
    }
    g->is_applied = true;
    l->now = g;
    l->shadow.min_tokens = g->shadow_min_tokens;
    legs_unref(old);
}

bool legs_force(struct legs *l, str name, enum breaker_event_kind how)
{
    bool is_known = false;
    for (uint32_t i = 0; i < l->now->rows_count; i++) {
        if (!str_eq(l->now->rows[i].name, name))
            continue;
        is_known = true; /* a fixed model can be forced before its first request */
        if (l->now->rows[i].model.len)
            (void)legs_add(l, l->now, i, l->now->rows[i].model);
    }
    list_each (link, &l->now->legs) {
        struct legs_leg *at = list_item(link, struct legs_leg, link);
        struct breaker_event ev = {.kind = how};
        if (str_eq_z(name, at->name))
            legs_event(l, at, &ev);
    }
    return is_known;
}

bool legs_rehearse(struct legs *l, const struct rehearsal_plan *p, struct err *e)
{
    const struct legs_row *row = NULL;
    uint64_t seed;
    for (uint32_t i = 0; i < l->now->rows_count; i++)
        if (str_eq(l->now->rows[i].name, p->leg))
            row = &l->now->rows[i];
    if (!row && p->seconds)
        return err_set(e, ERR_NOT_FOUND, "no leg is called \"%.*s\"",
                       STR_ARG(str_sub(p->leg, 0, str_utf8_valid(str_sub(p->leg, 0, 60)))));
    if (row && row->kind != LEG_KIND_UPSTREAM)
        return err_set(e, ERR_REQUEST, "leg %.*s is an engine: a drill lays its faults over "
                       "upstreams", STR_ARG(row->name));
    digest_random(&seed, sizeof seed);
    if (!rehearsal_start(l->rehearsal, p, seed, e))
        return false;
    log_warn("drill: %.*s on leg %.*s for %lld s, agents %.*s", STR_ARG(p->fault), STR_ARG(p->leg),
             (long long)p->seconds, STR_ARG(p->agents));
    return true;
}

struct legs_leg *legs_first(struct legs *l)
{
    struct list *link = list_first(&l->now->legs);
    if (!link)
        return NULL;
    struct legs_leg *at = list_item(link, struct legs_leg, link);
    legs_look(l, at);
    legs_pass(l, at);
    return at;
}

struct legs_leg *legs_next(struct legs *l, const struct legs_leg *at)
{
    if (at->link.next == &l->now->legs)
        return NULL;
    struct legs_leg *next = list_item(at->link.next, struct legs_leg, link);
    legs_look(l, next);
    legs_pass(l, next);
    return next;
}

const char *legs_state_name(const struct legs_leg *at, int64_t now_ms)
{
    const struct leg *l = &at->leg;
    if (l->breaker.state != BREAKER_STATE_CLOSED)
        return breaker_state_name(l->breaker.state);
    if (breaker_is_cooling(&l->breaker, now_ms))
        return "cooling";
    if (l->health.is_misconfigured)
        return "misconfigured";
    if (l->kind == LEG_KIND_UPSTREAM)
        return "closed";
    return l->state == API_HEALTH_STARTING     ? "loading"
           : l->state == API_HEALTH_RESTARTING ? "restarting"
           : l->state == API_HEALTH_FAILED     ? "failed"
                                               : "closed";
}

void legs_restore(struct legs *l, const struct legs_known *k)
{
    for (uint32_t i = 0; i < l->now->rows_count; i++) {
        if (!str_eq(l->now->rows[i].name, k->name) || !str_eq(l->now->rows[i].url, k->url))
            continue;
        struct legs_leg *at = legs_add(l, l->now, i, k->model);
        if (!at)
            return;
        at->leg.breaker = *k->breaker;
        at->leg.health = *k->health;
    }
}

struct sticky *legs_sticky(struct legs *l) { return &l->sticky; }
struct paid *legs_paid(struct legs *l) { return &l->probes.paid; }
bool legs_is_back(const struct legs *l, const struct api_request *rq)
{
    return remote_headers_is_back(str_of(l->via), rq);
}
struct loop *legs_loop(const struct legs *l) { return l->o.loop; }
struct rehearsal *legs_rehearsal(struct legs *l) { return l->rehearsal; }
struct shadow *legs_shadow(struct legs *l) { return &l->shadow; }
struct chrono_rng *legs_rng(struct legs *l) { return &l->rng; }
int64_t legs_wait_ms(const struct legs_generation *g) { return g->all_open_wait_ms; }
uint32_t legs_rows(const struct legs *l) { return l->now->rows_count; }

const struct router_route *legs_route(const struct legs_generation *g, uint32_t index)
{
    return &g->routes[index];
}

str legs_row_name(const struct legs_generation *g, uint32_t row) { return g->rows[row].name; }

const struct legs_row *legs_row_of(const struct legs *l, uint32_t index)
{
    return &l->now->rows[index];
}

uint32_t legs_routes(const struct legs *l, const struct router_route **out)
{
    *out = l->now->routes;
    return l->now->rules.routes_count;
}

bool legs_remember(struct legs *l, uint64_t id, void *attempt)
{
    return map_put_number(&l->attempts, id, map_of_pointer(attempt));
}

void legs_forget(struct legs *l, uint64_t id) { map_delete_number(&l->attempts, id); }

/* --- the provider -------------------------------------------------------------------------- */

static struct attempt *legs_attempt(const struct legs *l, uint64_t id)
{
    return map_to_pointer(map_value_number(&l->attempts, id, 0));
}

const struct legs_leg *legs_leg_of(const struct legs *l, uint64_t id)
{
    const struct attempt *a = legs_attempt(l, id);
    return a ? attempt_leg_now(a) : NULL;
}

static bool legs_submit(void *self, const struct api_request *rq, struct api_sink sink,
                        struct api_error *e)
{
    struct legs *l = self;
    struct router_asked asked = {rq->model, rq->agent, rq->dialect, rq->owner};
    int route = rq->kind < API_KIND_LIST ? router_find(&l->now->rules, &asked) : -1;
    if (route >= 0) {
        l->asked_ms = loop_ms();
        return attempt_start(l, legs_ref(l), (uint32_t)route, rq, sink, e);
    }
    if (rq->leg.len && rq->kind < API_KIND_LIST && !str_starts(rq->leg, STR("local:")))
        return api_error_set(e, ERR_REQUEST, "", STR("shoal.leg"),
                             "no route for this request, so %.*s is no leg of it",
                             STR_ARG(str_sub(rq->leg, 0, 80)));
    if (rq->kind < API_KIND_LIST || rq->kind > API_KIND_PS)
        shadow_yield(&l->shadow);
    return l->local.submit(l->local.self, rq, sink, e);
}

static void legs_cancel(void *self, uint64_t id)
{
    struct legs *l = self;
    struct attempt *a = legs_attempt(l, id);
    if (a)
        attempt_cancel(a);
    else
        l->local.cancel(l->local.self, id);
}

static void legs_hold(void *self, uint64_t id, bool on)
{
    struct legs *l = self;
    struct attempt *a = legs_attempt(l, id);
    if (a)
        attempt_hold(a, on);
    else
        l->local.hold(l->local.self, id, on);
}

/* An attempt gives its leg credit by itself: by what the leg sent, not by what the client got. */
static void legs_credit(void *self, uint64_t id, uint32_t bytes)
{
    struct legs *l = self;
    if (!legs_attempt(l, id))
        l->local.credit(l->local.self, id, bytes);
}

static size_t legs_models(void *self, struct api_model *out, size_t out_max)
{
    struct legs *l = self;
    return l->local.models(l->local.self, out, out_max);
}

static void legs_health(void *self, struct api_health *out)
{
    struct legs *l = self;
    l->local.health(l->local.self, out);
}

struct api_provider legs_provider(struct legs *l)
{
    return (struct api_provider){l,           legs_submit, legs_cancel, legs_hold,
                                 legs_credit, legs_models, legs_health};
}

/* --- metrics ------------------------------------------------------------------------------- */

static void legs_put_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP shoal_%s %s\n# TYPE shoal_%s %s\n", name, help, name, type);
}

/* By leg: its models are asked at one address. */
static void legs_write_probes(struct legs *l, struct buf *out)
{
    static const char *const kinds[LEGS_PROBE_COUNT_] = {"free", "paid"};
    static const char *const results[] = {"failed", "ok"};
    legs_put_head(out, "probes_total", "counter", "Checks of upstreams, free and billed.");
    for (uint32_t i = 0; i < l->now->rows_count * LEGS_PROBE_COUNT_ * 2; i++) {
        uint32_t row = i / (LEGS_PROBE_COUNT_ * 2), kind = i / 2 % LEGS_PROBE_COUNT_;
        uint64_t sum = 0;
        list_each (link, &l->now->legs) {
            const struct legs_leg *at = list_item(link, struct legs_leg, link);
            sum += at->row == row ? at->probes[kind][i % 2] : 0;
        }
        if (l->now->rows[row].kind == LEG_KIND_UPSTREAM)
            buf_printf(out, "shoal_probes_total{leg=\"%.*s\",kind=\"%s\",result=\"%s\"} %llu\n",
                       STR_ARG(l->now->rows[row].name), kinds[kind], results[i % 2],
                       (unsigned long long)sum);
    }
    legs_put_head(out, "probe_tokens_total", "counter", "Tokens that billed probes took.");
    buf_printf(out, "shoal_probe_tokens_total %llu\n", (unsigned long long)l->probes.tokens);
    legs_put_head(out, "shadow_tokens_total", "counter", "Tokens that warming has computed.");
    buf_printf(out, "shoal_shadow_tokens_total %llu\n", (unsigned long long)l->shadow.tokens);
}

void legs_write_metrics(struct legs *l, struct buf *out)
{
    int64_t now = loop_ms();
    legs_put_head(out, "leg_state", "gauge", "1 for the state a leg is in.");
    for (struct legs_leg *at = legs_first(l); at; at = legs_next(l, at))
        buf_printf(out, "shoal_leg_state{leg=\"%s\",model=\"%s\",state=\"%s\"} 1\n", at->name,
                   at->model, legs_state_name(at, now));
    legs_put_head(out, "leg_requests_total", "counter", "Attempts by how they ended.");
    for (struct legs_leg *at = legs_first(l); at; at = legs_next(l, at))
        for (unsigned c = 0; c < HEALTH_CLASS_COUNT_; c++)
            if (at->leg.health.counts[c])
                buf_printf(out,
                           "shoal_leg_requests_total{leg=\"%s\",model=\"%s\",class=\"%s\"} %llu\n",
                           at->name, at->model, health_class_name((enum health_class)c),
                           (unsigned long long)at->leg.health.counts[c]);
    legs_put_head(out, "breaker_transitions_total", "counter", "Changes of a breaker's state.");
    for (struct legs_leg *at = legs_first(l); at; at = legs_next(l, at))
        for (unsigned s = 0; s < BREAKER_STATE_COUNT_; s++)
            if (at->transitions[s])
                buf_printf(out,
                           "shoal_breaker_transitions_total{leg=\"%s\",model=\"%s\",to=\"%s\"} "
                           "%llu\n", at->name, at->model,
                           breaker_state_name((enum breaker_state)s),
                           (unsigned long long)at->transitions[s]);
    legs_put_head(out, "failover_total", "counter", "Requests that went on at another leg.");
    for (uint32_t i = 0; i < l->failovers_count; i++)
        buf_printf(out, "shoal_failover_total{from=\"%s\",to=\"%s\",reason=\"%s\",phase=\"%s\"} "
                   "%llu\n", l->failovers[i].from, l->failovers[i].to,
                   health_class_name(l->failovers[i].reason),
                   l->failovers[i].is_after ? "after" : "before",
                   (unsigned long long)l->failovers[i].count);
    legs_write_probes(l, out);
}
