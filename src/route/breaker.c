#include "route/breaker.h"

#define BREAKER_HEALTHY_MS 60000 /* BEHAVIOUR 9.5: closed so long without failure: openings = 0 */
#define BREAKER_LIMIT_MS 30000   /* 9.4: cooling after a 429 that names no time */
#define BREAKER_COOLING_MAX_MS 600000
#define BREAKER_SPREAD 0.2

const struct breaker_options breaker_options_default = {
    .failures = 5, .window_ms = 30000, .min_requests = 10, .ratio = 0.5,
    .cooldown_ms = 5000, .cooldown_max_ms = 300000, .successes = 2};

static const char *const breaker_names[] = {
#define X(name, text) text,
    BREAKER_STATES(X)
#undef X
};

const char *breaker_state_name(enum breaker_state s)
{
    must((unsigned)s < BREAKER_STATE_COUNT_);
    return breaker_names[s];
}

bool breaker_state_parse(str name, enum breaker_state *out)
{
    for (unsigned i = 0; i < BREAKER_STATE_COUNT_; i++)
        if (str_eq_z(name, breaker_names[i])) {
            *out = (enum breaker_state)i;
            return true;
        }
    return false;
}

static void breaker_enter(struct breaker *b, enum breaker_state state, int64_t now_ms)
{
    b->state = state;
    b->since_ms = now_ms;
    b->until_ms = 0;
    b->points = b->successes = 0;
    b->has_trial = false;
}

/* cooldown x 2^(openings - 1), at most the longest, +- 20 %. */
static int64_t breaker_cooldown(const struct breaker *b, const struct breaker_options *o,
                                const struct breaker_event *ev)
{
    int64_t ms = o->cooldown_ms;
    for (uint32_t i = 1; !ev->is_network && i < b->openings && ms < o->cooldown_max_ms; i++)
        ms *= 2;
    ms = ms < o->cooldown_max_ms ? ms : o->cooldown_max_ms;
    return (int64_t)((double)ms * (1 - BREAKER_SPREAD + 2 * BREAKER_SPREAD * ev->jitter));
}

static void breaker_open(struct breaker *b, const struct breaker_options *o,
                         const struct breaker_event *ev, int64_t now_ms)
{
    breaker_enter(b, BREAKER_STATE_OPEN, now_ms);
    b->openings++;
    b->why = ev->class_;
    b->until_ms = now_ms + breaker_cooldown(b, o, ev);
}

/* The clock alone. */
static void breaker_pass(struct breaker *b, int64_t now_ms)
{
    if (b->state == BREAKER_STATE_OPEN && now_ms >= b->until_ms)
        breaker_enter(b, BREAKER_STATE_HALF_OPEN, b->until_ms);
    if (b->state != BREAKER_STATE_CLOSED || !b->openings)
        return;
    int64_t quiet = b->failed_ms > b->since_ms ? b->failed_ms : b->since_ms;
    if (now_ms - quiet >= BREAKER_HEALTHY_MS)
        b->openings = 0;
}

/* Retry-After of a 429, or of a 5xx that names one. A running one is only ever made longer. */
static void breaker_cool(struct breaker *b, const struct breaker_event *ev, int64_t now_ms)
{
    int64_t ms = ev->retry_after_ms;
    if (ev->class_ == HEALTH_CLASS_RATE_LIMIT && ms <= 0)
        ms = BREAKER_LIMIT_MS;
    ms = ms < BREAKER_COOLING_MAX_MS ? ms : BREAKER_COOLING_MAX_MS;
    bool cools = ev->class_ == HEALTH_CLASS_RATE_LIMIT || ev->class_ == HEALTH_CLASS_HTTP_5XX;
    if (!cools || ms <= 0 || now_ms + ms <= b->cooling_ms)
        return;
    b->cooling_ms = now_ms + ms;
    b->why = ev->class_;
}

static void breaker_succeed(struct breaker *b, const struct breaker_options *o,
                            const struct breaker_event *ev, int64_t now_ms)
{
    if (b->state == BREAKER_STATE_CLOSED || b->state == BREAKER_STATE_FORCED_CLOSED)
        b->points = 0;
    /* An attempt from before the opening says nothing about now. */
    if (b->state != BREAKER_STATE_HALF_OPEN || !ev->is_trial)
        return;
    b->has_trial = false;
    if (++b->successes < o->successes)
        return;
    breaker_enter(b, BREAKER_STATE_CLOSED, now_ms);
    b->why = HEALTH_CLASS_OK;
}

static void breaker_fail(struct breaker *b, const struct breaker_options *o,
                         const struct breaker_event *ev, int64_t now_ms)
{
    b->failed_ms = now_ms;
    if (b->state == BREAKER_STATE_HALF_OPEN && ev->is_trial) {
        breaker_open(b, o, ev, now_ms);
        return;
    }
    /* Open already: what began before the opening does not lengthen or shorten it. */
    if (b->state != BREAKER_STATE_CLOSED)
        return;
    b->points += health_class_points(ev->class_);
    double failed = (double)ev->window.failures, all = (double)ev->window.requests;
    if (b->points >= o->failures ||
        (ev->window.requests >= o->min_requests && failed >= o->ratio * all))
        breaker_open(b, o, ev, now_ms);
}

static void breaker_end(struct breaker *b, const struct breaker_options *o,
                        const struct breaker_event *ev, int64_t now_ms)
{
    breaker_cool(b, ev, now_ms);
    if (ev->class_ == HEALTH_CLASS_OK)
        breaker_succeed(b, o, ev, now_ms);
    else if (health_class_points(ev->class_))
        breaker_fail(b, o, ev, now_ms);
    else if (ev->is_trial && b->state == BREAKER_STATE_HALF_OPEN)
        b->has_trial = false; /* neutral: the place is free for another trial */
}

struct breaker breaker_next(struct breaker b, const struct breaker_options *o,
                            const struct breaker_event *ev, int64_t now_ms)
{
    breaker_pass(&b, now_ms);
    switch (ev->kind) {
    case BREAKER_EVENT_TIME:
        break;
    case BREAKER_EVENT_BEGIN:
        b.has_trial = b.has_trial || b.state == BREAKER_STATE_HALF_OPEN;
        break;
    case BREAKER_EVENT_END:
        breaker_end(&b, o, ev, now_ms);
        break;
    case BREAKER_EVENT_FREE_OK: /* what it answers says nothing about hanging or breaking off */
        if (b.state == BREAKER_STATE_OPEN &&
            (b.why == HEALTH_CLASS_CONNECT || b.why == HEALTH_CLASS_TLS ||
             b.why == HEALTH_CLASS_HTTP_5XX))
            breaker_enter(&b, BREAKER_STATE_HALF_OPEN, now_ms);
        break;
    case BREAKER_EVENT_FORCE_OPEN:
        breaker_enter(&b, BREAKER_STATE_FORCED_OPEN, now_ms);
        break;
    case BREAKER_EVENT_FORCE_CLOSED:
        breaker_enter(&b, BREAKER_STATE_FORCED_CLOSED, now_ms);
        b.cooling_ms = 0;
        break;
    case BREAKER_EVENT_AUTO:
        breaker_enter(&b, BREAKER_STATE_CLOSED, now_ms);
        b.openings = 0;
        b.cooling_ms = 0;
        b.why = HEALTH_CLASS_OK;
        break;
    }
    return b;
}

static enum breaker_state breaker_state_at(const struct breaker *b, int64_t now_ms)
{
    bool is_half = b->state == BREAKER_STATE_OPEN && now_ms >= b->until_ms;
    return is_half ? BREAKER_STATE_HALF_OPEN : b->state;
}

bool breaker_is_cooling(const struct breaker *b, int64_t now_ms) { return now_ms < b->cooling_ms; }

bool breaker_allows(const struct breaker *b, int64_t now_ms)
{
    if (breaker_state_at(b, now_ms) == BREAKER_STATE_FORCED_CLOSED)
        return true;
    if (breaker_is_cooling(b, now_ms))
        return false;
    switch (breaker_state_at(b, now_ms)) {
    case BREAKER_STATE_CLOSED: case BREAKER_STATE_FORCED_CLOSED:
        return true;
    case BREAKER_STATE_HALF_OPEN:
        return b->state == BREAKER_STATE_OPEN || !b->has_trial;
    case BREAKER_STATE_OPEN: case BREAKER_STATE_FORCED_OPEN: case BREAKER_STATE_COUNT_:
        break;
    }
    return false;
}

bool breaker_is_trial(const struct breaker *b, int64_t now_ms)
{
    return breaker_state_at(b, now_ms) == BREAKER_STATE_HALF_OPEN;
}

int64_t breaker_free_ms(const struct breaker *b, int64_t now_ms)
{
    if (breaker_allows(b, now_ms))
        return now_ms;
    if (b->state == BREAKER_STATE_FORCED_OPEN)
        return INT64_MAX;
    int64_t at = b->state == BREAKER_STATE_OPEN ? b->until_ms : now_ms;
    if (b->cooling_ms > at)
        at = b->cooling_ms;
    bool waits_for_trial = breaker_state_at(b, at) == BREAKER_STATE_HALF_OPEN && b->has_trial &&
                           b->state == BREAKER_STATE_HALF_OPEN;
    return waits_for_trial ? INT64_MAX : at;
}
