#include "serve/attempt_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dialect/dialect.h"
#include "route/deadline.h"

#define ATTEMPT_ID_BIT ((uint64_t)1 << 63) /* ids of ours beside those of the exchange */
#define ATTEMPT_ID_SHIFT 4
#define ATTEMPT_NUMBER_MAX 15u
#define ATTEMPT_RETRY_MS 250 /* BEHAVIOUR 9.2, +- 20 % */
#define ATTEMPT_RETRY_AFTER_MS 2000
#define ATTEMPT_LOOK_MS 50  /* a trial or a full leg frees itself without telling */
#define ATTEMPT_MEMORY_MAX ((size_t)8 << 20)

static void attempt_on_time(void *ctx);

/* --- life ---------------------------------------------------------------------------------- */

void attempt_free(struct attempt *a)
{
    loop_timer_close(&a->timer);
    if (a->has_script)
        transcript_deinit(&a->script);
    arena_deinit(&a->keep);
    arena_deinit(&a->arena);
    arena_deinit(&a->scratch);
    legs_unref(a->g);
    free(a);
}

void attempt_end(struct attempt *a)
{
    if (!a->is_dead)
        legs_forget(a->legs, a->rq->id);
    a->is_dead = true;
    if (a->depth == 0)
        attempt_free(a);
}

bool attempt_tell(struct attempt *a, struct api_batch *b)
{
    b->request_id = a->rq->id;
    a->depth++;
    a->sink.on_batch(a->sink.ctx, b);
    a->depth--;
    if (!a->is_dead)
        return true;
    if (a->depth == 0)
        attempt_free(a);
    return false;
}

struct legs_leg *attempt_leg(const struct attempt *a)
{
    return a->now < 0 ? NULL : a->at[a->now];
}

void attempt_leave(struct attempt *a, enum health_class c, const struct api_error *e)
{
    struct legs_leg *at = attempt_leg(a);
    struct legs_outcome o = {.class_ = c, .is_trial = a->is_trial, .text = STR("")};
    if (e) {
        o.retry_after_ms = e->retry_after_ms;
        o.text = str_of(e->err.text);
    }
    if (e && e->is_rehearsed) /* the leg has done nothing */
        o = (struct legs_outcome){.class_ = HEALTH_CLASS_CLIENT_GONE, .is_trial = a->is_trial,
                                  .text = STR("")};
    a->is_trial = false;
    a->now = -1;
    legs_end(a->legs, at, &o);
}

void attempt_count_struck(struct attempt *a, enum rehearsal_end end)
{
    struct legs_leg *at = attempt_leg(a);
    if (a->is_struck)
        rehearsal_over(legs_rehearsal(a->legs), end, at ? str_of(at->name) : STR(""));
    a->is_struck = false;
}

void attempt_cancel(struct attempt *a)
{
    attempt_count_struck(a, REHEARSAL_END_CANCELLED);
    if (attempt_leg(a)) {
        a->provider.cancel(a->provider.self, a->sub.id);
        attempt_leave(a, HEALTH_CLASS_CLIENT_GONE, NULL);
    }
    attempt_end(a);
}

void attempt_hold(struct attempt *a, bool on)
{
    a->is_held = on;
    if (attempt_leg(a))
        a->provider.hold(a->provider.self, a->sub.id, on);
}

/* BEHAVIOUR 9.9: what a client gets when nobody else can help. */
static void attempt_error(const struct attempt *a, struct api_error *e)
{
    switch (a->why_class) {
    case HEALTH_CLASS_CONNECT: case HEALTH_CLASS_TLS: case HEALTH_CLASS_CUT:
    case HEALTH_CLASS_GARBAGE:
        e->err.code = ERR_UPSTREAM;
        break;
    case HEALTH_CLASS_HTTP_5XX:
        e->err.code = e->upstream_status == 503 || e->upstream_status == 529 ? ERR_OVERLOADED
                                                                             : ERR_UPSTREAM;
        break;
    case HEALTH_CLASS_HANG_HEADER: case HEALTH_CLASS_HANG_FIRST: case HEALTH_CLASS_STALL:
        e->err.code = ERR_DEADLINE;
        break;
    case HEALTH_CLASS_RATE_LIMIT:
        e->err.code = ERR_OVERLOADED;
        e->code = STR("rate_limited");
        break;
    case HEALTH_CLASS_OK: case HEALTH_CLASS_AUTH: case HEALTH_CLASS_REQUEST:
    case HEALTH_CLASS_ENGINE_CRASH: case HEALTH_CLASS_ENGINE_WEDGED:
    case HEALTH_CLASS_LOAD_FAILED: case HEALTH_CLASS_BUSY: case HEALTH_CLASS_CONTEXT:
    case HEALTH_CLASS_CAPABILITY: case HEALTH_CLASS_CONTINUE: case HEALTH_CLASS_CLIENT_GONE:
    case HEALTH_CLASS_DEADLINE: case HEALTH_CLASS_COUNT_:
        break;
    }
}

/* a is gone afterwards. */
static void attempt_give_up(struct attempt *a, const struct api_error *why)
{
    struct api_event ev = {.kind = API_EVENT_ERROR, .error = *why};
    struct api_batch b = {.request_id = a->rq->id, .events = &ev, .events_count = 1};
    attempt_count_struck(a, a->had_other ? REHEARSAL_END_LOST : REHEARSAL_END_FAILED);
    a->depth++;
    attempt_end(a);
    a->sink.on_batch(a->sink.ctx, &b);
    a->depth--;
    attempt_free(a);
}

/* --- the next leg -------------------------------------------------------------------------- */

static int attempt_pick(struct attempt *a, struct router_reason *why)
{
    struct router_candidate c[ROUTER_LEGS_MAX];
    for (uint32_t i = 0; i < a->count; i++) {
        legs_sync(a->legs, a->at[i]);
        c[i] = (struct router_candidate){.leg = &a->at[i]->leg, .is_tried = a->tried[i]};
        if (a->at[i]->remote && a->is_back)
            c[i].lacks = "an end of the loop";
        else if (a->at[i]->remote)
            c[i].lacks = dialect_client_lacks(legs_dialect(a->at[i]), &a->at[i]->upstream, a->rq);
    }
    return router_pick(c, a->count, &a->needs, loop_ms(), why);
}

/* Somebody else could take over from this one, as things stand. */
static bool attempt_has_other(struct attempt *a, uint32_t but)
{
    struct router_reason why;
    bool was = a->tried[but];
    a->tried[but] = true;
    int other = attempt_pick(a, &why);
    a->tried[but] = was;
    return other >= 0 && a->number < ATTEMPT_LEGS_MAX;
}

static void attempt_deadlines(struct attempt *a, struct legs_leg *at)
{
    struct leg *l = &at->leg;
    uint32_t bucket = health_bucket(a->needs.prompt_tokens, a->rq->effort);
    struct deadline_input in = {
        .asked = l->deadline, .is_local = l->kind == LEG_KIND_ENGINE, .is_trial = a->is_trial,
        .is_silent_thinker = l->model.caps & API_CAP_THINK && !l->health.shows_thinking &&
                             a->rq->think != API_THINK_OFF,
        .prompt_tokens = a->needs.prompt_tokens, .effort = a->rq->effort,
        .think_tokens_max = a->rq->think_tokens_max, .samples = &l->health.first[bucket]};
    struct api_deadlines asked = a->rq->deadline;
    a->sub.deadline = asked;
    if (in.is_local)
        return; /* its supervisor watches progress */
    a->sub.deadline = deadline_make(&in);
    if (asked.total_ms && asked.total_ms <= a->sub.deadline.total_ms)
        a->sub.deadline.total_ms = 0; /* the request's own ends all of it, not this leg */
    a->sub.deadline.generation_ms = asked.generation_ms;
}

const struct legs_leg *attempt_leg_now(const struct attempt *a)
{
    return a->now >= 0 ? a->at[a->now] : NULL;
}

uint64_t attempt_request(uint64_t id)
{
    return id & ATTEMPT_ID_BIT ? (id & ~ATTEMPT_ID_BIT) >> ATTEMPT_ID_SHIFT : id;
}

/* The client's request as leg i gets it. */
static bool attempt_fill(struct attempt *a, uint32_t i, enum transcript_how *how)
{
    struct legs_leg *at = a->at[i];
    arena_reset(&a->arena);
    a->sub = *a->rq;
    a->sub.id = ATTEMPT_ID_BIT | a->rq->id << ATTEMPT_ID_SHIFT | a->number;
    a->sub.model = a->models[i];
    a->sub.leg = str_of(at->name);
    a->sub.hands_back = at->leg.kind == LEG_KIND_ENGINE && attempt_has_other(a, i);
    *how = TRANSCRIPT_FRESH;
    if (a->has_script)
        *how = transcript_resume(&a->script, &at->leg, &a->arena, &a->resume);
    if (*how == TRANSCRIPT_NO)
        return false;
    if (*how == TRANSCRIPT_FRESH)
        return true;
    a->sub.resume = &a->resume;
    return true;
}

void attempt_warm(const struct attempt *a, const struct transcript *reply)
{
    if (a->route->shadow < 0)
        return;
    const struct router_entry entry = {.leg = (uint32_t)a->route->shadow, .model = STR("")};
    const struct shadow_ask ask = {.rq = a->rq, .leg = legs_row_name(a->g, entry.leg),
                                   .model = legs_model_of(a->g, &entry, a->rq->model),
                                   .key = a->key, .prompt_tokens = a->needs.prompt_tokens,
                                   .reply = reply};
    shadow_follow(legs_shadow(a->legs), &ask);
}

static bool attempt_submit(struct attempt *a, uint32_t i, struct api_error *e)
{
    struct legs_leg *at = a->at[i];
    struct api_provider *p = &a->provider;
    struct rehearsal *r = legs_rehearsal(a->legs);
    enum transcript_how how;
    a->number++;
    a->is_heard = a->is_trial = false;
    a->token_ms = 0;
    a->begun_ms = loop_ms();
    if (!attempt_fill(a, i, &how)) {
        a->tried[i] = true;
        a->class_ = HEALTH_CLASS_CONTINUE;
        return api_error_set(e, ERR_UNSUPPORTED, "", STR(""),
                             "%s cannot go on inside a reply that has begun", at->name);
    }
    a->is_trial = legs_begin(a->legs, at);
    attempt_deadlines(a, at);
    a->now = (int)i;
    a->tried[i] = true;
    a->is_resumed = how != TRANSCRIPT_FRESH;
    a->provider = at->leg.provider;
    a->said_ms = a->is_struck ? a->said_ms : a->begun_ms;
    if (!at->remote)
        shadow_yield(legs_shadow(a->legs));
    if (at->remote && rehearsal_strikes(r, str_of(at->name), a->rq->agent))
        a->provider = rehearsal_provider(r, &at->leg.provider);
    if (!p->submit(p->self, &a->sub, (struct api_sink){attempt_hear_batch, a}, e)) {
        bool cannot = a->is_resumed && e->err.code == ERR_UNSUPPORTED; /* its protocol has no way */
        a->class_ = cannot ? HEALTH_CLASS_CONTINUE : health_class_of(e);
        attempt_leave(a, a->class_, e);
        return false;
    }
    if (a->has_script)
        transcript_begin(&a->script, how, &at->leg);
    if (at->remote && a->number == 1)
        attempt_warm(a, NULL);
    if (a->is_held)
        p->hold(p->self, a->sub.id, true);
    return true;
}

static void attempt_remember_reason(struct attempt *a, const struct router_reason *why, int picked)
{
    struct buf b;
    if (picked == 0 || a->first_reason[0])
        return;
    buf_init(&b, sizeof a->first_reason - 1);
    router_print_skip(&b, why->first, why->lacks);
    snprintf(a->first_reason, sizeof a->first_reason, "%.*s", STR_ARG(buf_view(&b)));
    buf_deinit(&b);
}

static void attempt_why_none(const struct attempt *a, const struct router_reason *why,
                             struct api_error *e)
{
    int64_t now = loop_ms();
    if (a->why.err.code != ERR_NONE) {
        *e = a->why;
        attempt_error(a, e);
        return;
    }
    if (!why->all_incapable) {
        bool is_limited = false;
        for (uint32_t i = 0; i < a->count; i++)
            is_limited = is_limited ||
                         (breaker_is_cooling(&a->at[i]->leg.breaker, now) &&
                          a->at[i]->leg.breaker.why == HEALTH_CLASS_RATE_LIMIT);
        api_error_set(e, ERR_OVERLOADED, is_limited ? "rate_limited" : "", STR(""),
                      "no leg of the route may be asked now");
        if (why->again_ms != INT64_MAX)
            e->retry_after_ms = why->again_ms > now ? why->again_ms - now : 1;
        return;
    }
    if (a->is_back) { /* as an upstream's failure: the leg that led here failed, the next may not */
        api_error_set(e, ERR_UPSTREAM, "", STR("Shoal-Via"), "the request came through this server "
                      "already: leg %s, or one behind it, leads back here", a->at[0]->name);
        return;
    }
    if (strcmp(why->all_lack, "context") != 0) {
        api_error_set(e, ERR_REQUEST, "", STR(""), "no leg of the route for this model has: %s",
                      why->all_lack);
        return;
    }
    uint32_t limit = 0;
    for (uint32_t i = 0; i < a->count; i++)
        limit = (uint32_t)base_max(limit, a->at[i]->leg.model.context_max);
    api_error_set(e, ERR_CONTEXT, "", STR("messages"), "prompt has about %u tokens, limit is %u",
                  a->needs.prompt_tokens, limit);
    e->prompt_tokens = a->needs.prompt_tokens;
    e->limit = limit;
}

/* An engine that restarts queues what comes: better than nothing. -1: there is none. */
static int attempt_down(const struct attempt *a, const struct router_reason *why)
{
    return why->down < a->count && a->number < ATTEMPT_NUMBER_MAX ? (int)why->down : -1;
}

/* Nobody may be asked now: wait for the earliest within all_open_wait. */
static bool attempt_wait(struct attempt *a, const struct router_reason *why)
{
    int64_t now = loop_ms(), at = why->again_ms;
    if (a->number >= ATTEMPT_LEGS_MAX || why->all_incapable)
        return false;
    if (!a->wait_ms)
        a->wait_ms = now;
    int64_t end = a->wait_ms + legs_wait_ms(a->g);
    if (at == INT64_MAX && why->any_busy)
        at = now + ATTEMPT_LOOK_MS;
    else if (why->any_busy && at > now + ATTEMPT_LOOK_MS)
        at = now + ATTEMPT_LOOK_MS;
    if (at > end)
        return false;
    loop_timer_set(&a->timer, at > now ? at - now : 1);
    return true;
}

static bool attempt_may_go_on(const struct attempt *a)
{
    bool is_continue = a->class_ == HEALTH_CLASS_REQUEST && a->is_resumed;
    return !a->has_told && (is_continue || health_class_fails_over(a->class_));
}

static void attempt_keep_error(struct attempt *a, const struct api_error *e)
{
    a->why = *e;
    a->why_class = a->class_;
    a->why.code = arena_copy(&a->keep, e->code);
    a->why.param = arena_copy(&a->keep, e->param);
    a->why.upstream_text = arena_copy(&a->keep, e->upstream_text);
}

/* Asks the next leg, or waits for one. False: there is none, e says why. */
static bool attempt_next(struct attempt *a, struct api_error *e)
{
    for (uint32_t i = 0; i <= a->count + 1; i++) { /* each leg once, an engine that comes back */
        struct router_reason why;
        int picked = attempt_pick(a, &why);
        if (a->number >= ATTEMPT_LEGS_MAX) /* then only an engine that gave its request back */
            picked = -1;
        if (picked < 0)
            picked = attempt_down(a, &why);
        if (picked < 0) {
            if (attempt_wait(a, &why))
                return true;
            attempt_why_none(a, &why, e);
            return false;
        }
        attempt_remember_reason(a, &why, picked);
        if (attempt_submit(a, (uint32_t)picked, e))
            return true;
        if (a->class_ != HEALTH_CLASS_CONTINUE || a->why.err.code == ERR_NONE)
            attempt_keep_error(a, e);
        if (!attempt_may_go_on(a))
            return false;
    }
    return false;
}

/* --- a drill ------------------------------------------------------------------------------- */

static void attempt_on_struck(struct attempt *a, uint32_t i)
{
    struct rehearsal *r = legs_rehearsal(a->legs);
    if (!a->is_struck)
        rehearsal_hit(r);
    a->is_struck = true;
    a->had_other = a->had_other || (rehearsal_fails_over(r) && attempt_has_other(a, i));
}

/* --- a leg fails --------------------------------------------------------------------------- */

/* BEHAVIOUR 9.2: nobody else there, nothing sent, and it may have been a moment's trouble. */
static bool attempt_retries(struct attempt *a, uint32_t i, int64_t retry_after_ms)
{
    bool is_moment = a->class_ == HEALTH_CLASS_CONNECT || a->class_ == HEALTH_CLASS_HTTP_5XX ||
                     a->class_ == HEALTH_CLASS_CUT ||
                     (a->class_ == HEALTH_CLASS_RATE_LIMIT && retry_after_ms > 0 &&
                      retry_after_ms <= ATTEMPT_RETRY_AFTER_MS);
    if (a->is_retried || a->is_started || !is_moment || a->count > 1)
        return false;
    a->is_retried = true;
    a->tried[i] = false;
    double spread = 0.8 + 0.4 * chrono_rng_double(legs_rng(a->legs));
    int64_t ms = (int64_t)(ATTEMPT_RETRY_MS * spread);
    loop_timer_set(&a->timer, retry_after_ms > ms ? retry_after_ms : ms);
    return true;
}

/* An engine that died or was killed gave the request back for others; if none can, it is asked
 * again and resumes from the ids. */
static void attempt_takes_back(struct attempt *a, uint32_t i)
{
    bool is_engine = a->at[i]->leg.kind == LEG_KIND_ENGINE && a->sub.hands_back;
    bool is_lost = a->class_ == HEALTH_CLASS_ENGINE_CRASH ||
                   a->class_ == HEALTH_CLASS_ENGINE_WEDGED;
    if (is_engine && is_lost && !attempt_has_other(a, i))
        a->tried[i] = false;
}

void attempt_on_error(struct attempt *a, const struct api_error *error)
{
    struct legs_leg *at = attempt_leg(a);
    uint32_t i = (uint32_t)a->now;
    struct api_error e = {0};
    a->class_ = health_class_of(error);
    bool refuses_to_continue = a->class_ == HEALTH_CLASS_REQUEST && a->is_resumed;
    if (refuses_to_continue && !a->needs.in_call) /* a call may be refused where text goes on */
        legs_cannot_continue(a->legs, at);
    if (!refuses_to_continue || a->why.err.code == ERR_NONE)
        attempt_keep_error(a, error); /* else the client would hear that its request is wrong */
    if (i == 0)
        snprintf(a->first_reason, sizeof a->first_reason, "%s", health_class_name(a->class_));
    attempt_hear_share_end(a, health_class_name(a->class_));
    attempt_leave(a, a->class_, error);
    if (a->has_script)
        transcript_needs(&a->script, &a->needs);
    if (error->is_rehearsed)
        attempt_on_struck(a, i);
    if (!attempt_may_go_on(a)) {
        e = a->why;
        attempt_error(a, &e);
        attempt_give_up(a, &e);
        return;
    }
    attempt_takes_back(a, i);
    log_info("request %llu: leg %s failed: %s; %zu bytes sent", (unsigned long long)a->rq->id,
             at->name, health_class_name(a->class_),
             a->has_script ? transcript_bytes(&a->script) : (size_t)0);
    if (attempt_retries(a, i, error->retry_after_ms) || attempt_next(a, &e))
        return;
    attempt_give_up(a, &e);
}

static void attempt_on_time(void *ctx)
{
    struct attempt *a = ctx;
    struct api_error e = {0};
    if (!attempt_next(a, &e))
        attempt_give_up(a, &e);
}

/* --- start --------------------------------------------------------------------------------- */

/* The route's legs in their order, or the one that is asked for. */
static bool attempt_gather(struct attempt *a, struct api_error *e)
{
    const struct router_route *r = a->route;
    uint32_t order[ROUTER_LEGS_MAX];
    str names[ROUTER_LEGS_MAX], pin = sticky_find(legs_sticky(a->legs), a->key, loop_ms());
    int pinned = -1;
    for (uint32_t i = 0; i < r->entries_count; i++) {
        names[i] = legs_row_name(a->g, r->entries[i].leg);
        if (pin.len && str_eq(pin, names[i]))
            pinned = (int)i;
    }
    router_order(r, names, a->key, pinned, order);
    for (uint32_t i = 0; i < r->entries_count; i++) {
        const struct router_entry *entry = &r->entries[order[i]];
        if (a->rq->leg.len && !str_eq(a->rq->leg, names[order[i]]))
            continue;
        struct legs_leg *at = legs_find(a->legs, a->g, entry, a->rq->model);
        if (!at)
            return api_error_set(e, ERR_MEMORY, "", STR(""), "no memory for a leg");
        a->models[a->count] = legs_model_of(a->g, entry, a->rq->model);
        a->at[a->count++] = at;
    }
    return a->count ||
           api_error_set(e, ERR_REQUEST, "", STR("shoal.leg"), "%.*s is no leg of this route",
                         STR_ARG(str_sub(a->rq->leg, 0, 80)));
}

static bool attempt_init(struct attempt *a, struct api_error *e)
{
    const struct api_request *rq = a->rq;
    bool has_text = rq->kind == API_KIND_CHAT || rq->kind == API_KIND_COMPLETE;
    arena_init(&a->keep, ATTEMPT_MEMORY_MAX);
    arena_init(&a->arena, ATTEMPT_MEMORY_MAX);
    arena_init(&a->scratch, ATTEMPT_MEMORY_MAX);
    if (!loop_timer_open(&a->timer, legs_loop(a->legs), attempt_on_time, a, &e->err))
        return false;
    if (has_text && !transcript_init(&a->script, api_request_choices(rq), ATTEMPT_BYTES_MAX, e))
        return false;
    a->has_script = has_text;
    const struct dialect *d = dialect_of(rq->dialect);
    a->script.hides_calls = !rq->stream || (d && d->family == DIALECT_OLLAMA);
    a->key = router_key(rq->session, rq);
    a->needs = leg_needs_of(rq, leg_estimate_tokens(rq));
    a->is_back = legs_is_back(a->legs, rq);
    return attempt_gather(a, e);
}

bool attempt_start(struct legs *l, struct legs_generation *g, uint32_t route,
                   const struct api_request *rq, struct api_sink sink, struct api_error *e)
{
    struct attempt *a = calloc(1, sizeof *a);
    if (!a) {
        legs_unref(g);
        return api_error_set(e, ERR_MEMORY, "", STR(""), "no memory for a request");
    }
    a->legs = l;
    a->g = g;
    a->rq = rq;
    a->sink = sink;
    a->now = -1;
    a->route = legs_route(g, route);
    if (!attempt_init(a, e)) {
        attempt_free(a);
        return false;
    }
    if (!legs_remember(l, rq->id, a)) {
        attempt_free(a);
        return api_error_set(e, ERR_OVERLOADED, "", STR(""), "too many requests under way");
    }
    if (attempt_next(a, e))
        return true;
    legs_forget(l, rq->id);
    attempt_free(a);
    return false;
}
