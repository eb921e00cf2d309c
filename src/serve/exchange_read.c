#include "serve/exchange_state.h"

#include <string.h>

#include "base/chrono.h"
#include "base/digest.h"
#include "serve/agents.h"
#include "serve/limits.h"
#include "serve/normalise.h"

#define EXCHANGE_READ_LARGE ((size_t)128 << 10) /* a body that takes longer than 2 ms to read */
#define EXCHANGE_READ_WORKERS 2u
#define EXCHANGE_READ_JOBS_MAX 1024u
#define EXCHANGE_READ_SEED_BITS 53 /* a drawn seed survives a client that reads it as a double */

/* What the key says goes before what the request says: who it is counted for, whose cached prefixes
 * it sees. cache_salt narrows the scope further; no scope of a key holds a blank. */
static void exchange_read_owner(struct exchange *x, const struct limits_key *key)
{
    struct api_request *rq = &x->rq;
    struct arena *a = &x->arena; /* a reload may free the key before the request's last words */
    str scope = exchange_scope(key), salt = rq->scope;
    rq->scope = salt.len ? arena_printf(a, "%.*s %.*s", STR_ARG(scope), STR_ARG(salt))
                         : arena_copy(a, scope);
    rq->session = arena_copy(a, rq->session); /* it is listed when the body is gone */
    if (key) {
        rq->owner = arena_copy(a, key->name);
        if (key->agent.len)
            rq->agent = key->agent;
    }
    if (rq->agent.len == 0)
        rq->agent = key ? rq->owner : STR("anon");
    rq->agent = arena_copy(a, rq->agent); /* it is counted when the body is gone */
}

/* Credentials that are not ours: none are configured, or ours came in Shoal-Key. */
static void exchange_read_key(struct exchange *x)
{
    str bearer = http_conn_header(x->conn, "authorization");
    str key = http_conn_header(x->conn, "x-api-key");
    if (x->call->key && !http_conn_header(x->conn, "shoal-key").p)
        return;
    if (str_starts(bearer, STR("Bearer ")))
        key = str_from(bearer, strlen("Bearer "));
    if (limits_knows(x->call->limits, key)) /* ours goes to nobody */
        return;
    x->client_key.text = key;
    if (key.len)
        x->rq.client_key = &x->client_key;
}

/* BEHAVIOUR 8.11: opt-in, and told. */
static void exchange_read_normalise(struct exchange *x)
{
    struct dialect_state *st = x->st;
    uint32_t count = x->set->o.rounds_clock ? normalise_clock(&x->rq, &x->arena) : 0;
    if (count && st->notes_count < API_NOTES_MAX)
        st->notes[st->notes_count++] = (struct api_note){
            STR("normalised"), arena_printf(&x->arena, "system: %u times of day rounded to the day",
                                            count)};
}

/* A change of a context is asked of its own model, with its own messages. */
static void exchange_read_recall_context(struct exchange *x)
{
    struct dialect_contexts_state *st = (struct dialect_contexts_state *)x->st;
    const struct contexts_asker who = {x->rq.scope, limits_is_admin(x->call->key)};
    if (x->dialect != &dialect_contexts || !st->is_change)
        return;
    if (contexts_recall(x->set->o.contexts, &who, st->id, loop_ms(), &x->rq, &x->saves))
        st->is_known = true;
}

static void exchange_read_fill(struct exchange *x)
{
    const struct exchange_options *o = &x->set->o;
    struct api_request *rq = &x->rq;
    rq->id = ++x->set->last_id;
    exchange_read_owner(x, x->call->key);
    exchange_read_recall_context(x);
    const struct quota_rules *agent = limits_rules_of(x->call->limits, rq->agent);
    quota_fill(rq, agent);
    quota_fill(rq, x->call->key ? &x->call->key->rules : NULL);
    rq->weight = agent ? agent->weight : 0; /* two levels: neither stands in for the other */
    rq->key_weight = x->call->key ? x->call->key->rules.weight : 0;
    x->wait_ms = o->wait_ms;
    x->model = o->on_read ? o->on_read(o->ctx, rq, &x->arena) : rq->model;
    exchange_read_key(x);
    if (!api_request_is_given(rq, API_FIELD_SEED)) {
        digest_random(&rq->seed, sizeof rq->seed);
        rq->seed >>= 64 - EXCHANGE_READ_SEED_BITS;
    }
    x->st->seed = rq->seed;
    if (o->total_ms && (rq->deadline.total_ms == 0 || o->total_ms < rq->deadline.total_ms))
        rq->deadline.total_ms = o->total_ms;
    rq->deadline.generation_ms = o->gen_ms;
}

static bool exchange_read_in(struct exchange *x, struct dialect_in *in)
{
    const struct http_request *r = http_conn_request(x->conn);
    struct api_header *headers = ARENA_ARRAY(&x->arena, struct api_header, r->header_count);
    for (size_t i = 0; headers && i < r->header_count; i++)
        headers[i] = (struct api_header){r->headers[i].name, r->headers[i].value};
    *in = (struct dialect_in){.path = x->call->path, .segment = x->call->segment, .body = r->body,
                              .headers = headers, .headers_count = (uint32_t)r->header_count,
                              .request_id = str_of(x->id),
                              .time_s = chrono_unix_ms(&chrono_real) / 1000,
                              .limits = x->set->o.limits};
    return headers != NULL;
}

/* BEHAVIOUR 8.4: refused at once when as many wait as may, beside what the model runs at once. */
static bool exchange_read_room(const struct exchange *x, struct api_error *e)
{
    const struct metrics *m = x->set->o.metrics;
    uint32_t slots = exchange_slots(x), open = metrics_open_of(m, x->model);
    if (x->rq.kind >= API_KIND_LIST || open < (uint64_t)slots + x->set->o.queue_max)
        return true;
    api_error_set(e, ERR_OVERLOADED, "", STR(""), "%u requests run or wait for %.*s, no more may",
                  open, STR_ARG(str_sub(x->rq.model, 0, 80)));
    e->retry_after_ms = exchange_retry_ms(x);
    return false;
}

static bool exchange_read_allowed(const struct exchange *x, struct api_error *e)
{
    if (x->arena.is_full)
        return api_error_set(e, ERR_MEMORY, "", STR(""), "no memory for a request");
    bool has_own_name = x->call->key && str_eq(x->rq.agent, x->call->key->name);
    if (x->rq.kind < API_KIND_LIST && !has_own_name &&
        !limits_allows_agent(x->call->key, x->rq.agent))
        return api_error_set(e, ERR_AUTH, "forbidden", STR("agent"),
                             "this key may not speak for %.*s",
                             STR_ARG(str_sub(x->rq.agent, 0, 80)));
    bool names_a_model = x->rq.kind != API_KIND_LIST && x->rq.kind != API_KIND_PS;
    return !names_a_model || limits_allows_model(x->call->key, x->rq.model) ||
           limits_allows_model(x->call->key, x->model) ||
           api_error_set(e, ERR_AUTH, "forbidden", STR("model"), "this key may not ask for %.*s",
                         STR_ARG(str_sub(x->rq.model, 0, 80)));
}

/* Turns of the history that are our own replies, as they were sampled; and this one is kept. */
static void exchange_read_recall(struct exchange *x)
{
    struct api_error ignored;
    if (!x->set->o.replay || !x->rq.replay || x->rq.messages_count == 0)
        return;
    replay_match(x->set->o.replay, &x->rq, &x->lent, loop_ms());
    if (x->rq.kind == API_KIND_CHAT &&
        !transcript_init(&x->said, x->st->choices_count, REPLAY_TURN_MAX, &ignored))
        transcript_deinit(&x->said);
}

static bool exchange_read_enter(struct exchange *x, struct api_error *e)
{
    const struct limits_key *key = x->call->key;
    const struct api_request *rq = &x->rq;
    if (rq->kind >= API_KIND_LIST)
        return true;
    const struct quota_who who = {.key = key ? key->name : STR(""), .agent = rq->agent,
                                  .key_rules = key ? &key->rules : NULL,
                                  .agent_rules = limits_rules_of(x->call->limits, rq->agent)};
    return quota_enter(x->set->quota, &x->ticket, &who, loop_ms(), e);
}

/* To whoever answers. */
static void exchange_read_give(struct exchange *x)
{
    struct api_provider *p = &x->set->o.provider;
    struct api_error e = {0};
    quota_start(&x->ticket);
    x->is_submitted = true;
    if (p->submit(p->self, &x->rq, (struct api_sink){exchange_on_batch, x}, &e)) {
        exchange_arm(x);
        return;
    }
    x->is_submitted = false;
    exchange_fail(x, &e);
}

/* By arrival; one that may not start holds up nobody else's. A failure takes others along only by
 * coming back here. */
void exchange_read_retry(void *ctx)
{
    struct exchange_set *s = ctx;
    list_each (link, &s->waiting) {
        struct exchange *x = list_item(link, struct exchange, waits);
        if (!quota_may_start(&x->ticket))
            continue;
        list_remove(&x->waits);
        loop_later_set(&s->retry); /* the list is read anew */
        exchange_read_give(x);
        return;
    }
}

/* BEHAVIOUR 5.10: one that is to be saved, or one that stands before the messages. */
static bool exchange_read_context(struct exchange *x, struct api_error *e)
{
    struct contexts *s = x->set->o.contexts;
    struct api_request *rq = &x->rq;
    const struct contexts_fork fork = {rq, x->model, &x->lent, loop_ms()};
    if (rq->context.len)
        return contexts_fork(s, &fork, &x->forks, e);
    if (x->dialect != &dialect_contexts)
        return true;
    struct dialect_contexts_state *st = (struct dialect_contexts_state *)x->st;
    if (!st->is_change && contexts_is_public(s, st->id)) {
        if (!limits_is_admin(x->call->key))
            return api_error_set(e, ERR_AUTH, "forbidden", STR("id"),
                                 "id: %.*s is shared by all keys (cache.public), only an admin key "
                                 "saves it", STR_ARG(st->id));
        rq->scope = STR("");
    }
    const struct contexts_new n = {.scope = rq->scope, .id = st->id, .model = x->model,
                                   .content = st->content};
    x->kept = *rq;
    if (st->is_change && !x->saves)
        return contexts_none(st->id, e);
    if (!st->is_change) {
        st->ttl_ms = st->ttl_ms ? st->ttl_ms : x->set->o.context_ttl_ms;
        if (!contexts_begin(s, &n, loop_ms(), &x->saves, &st->is_known, e))
            return false;
    }
    if (st->pin) {
        rq->cache = API_CACHE_PIN;
        rq->context = contexts_pin_name(x->saves);
    }
    return true;
}

static bool exchange_read_is_done(const struct exchange *x)
{
    return x->dialect == &dialect_contexts &&
           !dialect_contexts_computes((const struct dialect_contexts_state *)x->st);
}

/* It was read: ask for its answer. */
static void exchange_read_submit(struct exchange *x)
{
    struct api_error e = {0};
    exchange_read_fill(x);
    bool has_room = exchange_read_allowed(x, &e) && exchange_read_context(x, &e);
    exchange_read_normalise(x);
    exchange_read_recall(x);
    has_room = has_room && exchange_read_room(x, &e) && exchange_read_enter(x, &e);
    metrics_begin(x->set->o.metrics, &x->m, &x->rq, x->model);
    if (x->rq.kind < API_KIND_LIST) {
        const struct agents_who who = {x->rq.owner, x->rq.agent};
        agents_begin(x->set->o.agents, &who, loop_ms());
        x->is_counted = true;
    }
    if (!has_room) {
        exchange_fail(x, &e);
    } else if (exchange_read_is_done(x)) {
        exchange_done(x);
    } else if (quota_may_start(&x->ticket)) {
        exchange_read_give(x);
    } else { /* BEHAVIOUR 8.4: over max_running a request waits */
        list_push_last(&x->set->waiting, &x->waits);
        exchange_arm(x);
    }
}

static void exchange_read_now(struct exchange *x)
{
    struct dialect_in in;
    struct api_error e = {0};
    if (!exchange_read_in(x, &in))
        api_error_set(&e, ERR_MEMORY, "", STR(""), "no memory for a request");
    else if (x->dialect->read_request(&x->rq, x->st, &in, &x->arena, &e)) {
        exchange_read_submit(x);
        return;
    }
    exchange_fail(x, &e);
}

/* --- a large body -------------------------------------------------------------------------- */

/* On a worker: the exchange is this thread's but for its place in lists and its connection. */
static void exchange_read_run(void *ctx)
{
    struct exchange_reading *r = ctx;
    struct exchange *x = r->x;
    r->ok = x->dialect->read_request(&x->rq, x->st, &r->in, &x->arena, &r->e);
}

static void exchange_read_end(void *ctx)
{
    struct exchange_reading *r = ctx;
    struct exchange *x = r->x;
    x->reading = NULL;
    if (r->is_gone)
        exchange_free(x);
    else if (r->must_end)
        exchange_fail(x, &r->why);
    else if (r->ok)
        exchange_read_submit(x);
    else
        exchange_fail(x, &r->e);
}

/* The connection may end before the worker does: what is read is ours. */
static bool exchange_read_own(struct exchange *x, struct dialect_in *in)
{
    struct api_header *headers = ARENA_ARRAY(&x->arena, struct api_header, in->headers_count);
    for (uint32_t i = 0; headers && i < in->headers_count; i++) {
        headers[i].name = arena_copy(&x->arena, in->headers[i].name);
        headers[i].value = arena_copy(&x->arena, in->headers[i].value);
    }
    in->headers = headers;
    in->segment = arena_copy(&x->arena, in->segment);
    http_conn_take_body(x->conn, &x->body);
    return headers && !x->arena.is_full;
}

static bool exchange_read_elsewhere(struct exchange *x)
{
    struct exchange_set *s = x->set;
    struct err ignored;
    struct exchange_reading *r = ARENA_NEW(&x->arena, struct exchange_reading);
    if (!r || !exchange_read_in(x, &r->in) || !exchange_read_own(x, &r->in))
        return false;
    if (!s->workers && !workers_open(&s->workers, s->o.loop, EXCHANGE_READ_WORKERS,
                                     EXCHANGE_READ_JOBS_MAX, &ignored))
        return false;
    r->x = x;
    r->limits = *s->o.limits;
    r->in.limits = &r->limits;
    x->reading = r;
    if (workers_run(s->workers, &(struct workers_job){exchange_read_run, exchange_read_end, r}))
        return true;
    x->reading = NULL;
    return false;
}

static void exchange_read_large(struct exchange *x)
{
    struct api_error e = {0};
    if (exchange_read_elsewhere(x))
        return;
    api_error_set(&e, ERR_OVERLOADED, "", STR(""), "%u large bodies are being read, no more may",
                  EXCHANGE_READ_JOBS_MAX);
    exchange_fail(x, &e);
}

void exchange_read_body(struct exchange *x, size_t size)
{
    if (size >= EXCHANGE_READ_LARGE)
        exchange_read_large(x);
    else
        exchange_read_now(x);
}
