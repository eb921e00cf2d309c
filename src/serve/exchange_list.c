#include "serve/exchange_list.h"

#include "serve/exchange_state.h"
#include "serve/limits.h"

static const char *exchange_list_state(const struct exchange *x)
{
    struct api_health h;
    if (x->is_parked)
        return "parked";
    switch (x->phase) {
    case EXCHANGE_PHASE_PREFILL:
        return "prefill";
    case EXCHANGE_PHASE_DECODE:
        return x->is_held ? "paused" : "decode";
    case EXCHANGE_PHASE_QUEUED:
        break;
    }
    if (!x->is_submitted)
        return "queued";
    x->set->o.provider.health(x->set->o.provider.self, &h);
    return h.state == API_HEALTH_STARTING || h.state == API_HEALTH_RESTARTING ? "loading"
                                                                              : "queued";
}

/* One whose last bytes are being handed over is over, though it is not freed yet. */
static bool exchange_list_is_over(const struct exchange *x) { return !x->call; }

static str exchange_list_owner(const struct exchange *x)
{
    return x->call->key ? x->call->key->name : STR("");
}

static struct exchange_row exchange_list_row(const struct exchange *x)
{
    const struct metrics_request *m = &x->m;
    const struct api_queued *q = &x->st->queued;
    struct exchange_row r = {.id = str_of(x->id), .owner = exchange_list_owner(x),
                             .dialect = x->dialect->name, .state = "queued",
                             .age_ms = loop_ms() - m->arrived_ms,
                             .priority = API_PRIORITY_NORMAL, .is_queued = true};
    if (x->reading) /* all else is the worker's */
        return r;
    r.number = x->rq.id;
    r.agent = x->rq.agent;
    r.session = x->rq.session;
    r.model = x->model;
    r.leg = m->leg;
    r.state = exchange_list_state(x);
    r.place = x->place;
    r.prompt_tokens = m->is_started ? m->prompt_tokens : q->prompt_tokens;
    r.cached_tokens = m->is_started ? m->cached_tokens : q->cached_tokens;
    r.output_tokens = m->output_tokens;
    r.priority = x->rq.priority;
    r.is_queued = x->phase == EXCHANGE_PHASE_QUEUED;
    return r;
}

static bool exchange_list_is(const struct exchange_row *r, const struct exchange_which *w)
{
    return (!w->id.p || str_eq(w->id, r->id)) && (!w->owner.p || str_eq(w->owner, r->owner)) &&
           (!w->agent.p || (r->agent.p && str_eq(w->agent, r->agent)));
}

void exchange_list_each(const struct exchange_set *s, const struct exchange_which *which,
                        void (*on_row)(void *ctx, const struct exchange_row *row), void *ctx)
{
    list_each (at, &s->all) {
        const struct exchange *x = list_item(at, struct exchange, link);
        if (exchange_list_is_over(x))
            continue;
        struct exchange_row r = exchange_list_row(x);
        if (exchange_list_is(&r, which))
            on_row(ctx, &r);
    }
}

/* Those that were found before the first one ended: what a reply's end brings on is another. */
uint32_t exchange_list_cancel(struct exchange_set *s, const struct exchange_which *which)
{
    struct list now;
    uint32_t count = 0;
    struct api_error e = {0};
    list_init(&now);
    list_each (at, &s->all) {
        const struct exchange *x = list_item(at, struct exchange, link);
        if (exchange_list_is_over(x))
            continue;
        struct exchange_row r = exchange_list_row(x);
        if (!exchange_list_is(&r, which))
            continue;
        list_remove(at);
        list_push_last(&now, at);
        count++;
    }
    api_error_set(&e, ERR_CANCELLED, "", STR(""), "the request was cancelled by an operator");
    exchange_end_all(s, &now, &e);
    return count;
}

struct quota_used exchange_list_used(const struct exchange_set *s, str agent)
{
    return quota_used_of(s->quota, agent, loop_ms());
}
