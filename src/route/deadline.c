#include "route/deadline.h"

/* BEHAVIOUR 9.4. */
#define DEADLINE_SAMPLES_MIN 20u
#define DEADLINE_FIRST_MIN_MS 15000
#define DEADLINE_FIRST_MAX_MS 120000
#define DEADLINE_SILENT_MAX_MS 600000
#define DEADLINE_START_MS 30000
#define DEADLINE_PREFILL_PER_S 500.0 /* of an upstream nothing is known about */
#define DEADLINE_THINK_PER_S 50.0
/* BEHAVIOUR 8.5. */
#define DEADLINE_LOCAL_FACTOR 3.0
#define DEADLINE_LOCAL_MS 5000

/* Tokens of silent thinking that an effort may take: BEHAVIOUR 6.3. */
static uint32_t deadline_think_tokens(enum api_effort effort)
{
    if (effort == API_EFFORT_DEFAULT)
        effort = API_EFFORT_MEDIUM;
    return (uint32_t)base_min(api_request_effort_tokens(effort),
                              api_request_effort_tokens(API_EFFORT_HIGH));
}

static int64_t deadline_auto(const struct deadline_input *in)
{
    int64_t cap = in->is_silent_thinker ? DEADLINE_SILENT_MAX_MS : DEADLINE_FIRST_MAX_MS;
    if (in->samples && in->samples->count >= DEADLINE_SAMPLES_MIN) {
        int64_t ms = 4 * health_quantile(in->samples, 95);
        ms = ms > DEADLINE_FIRST_MIN_MS ? ms : DEADLINE_FIRST_MIN_MS;
        return ms < cap ? ms : cap;
    }
    uint32_t think = in->think_tokens_max == API_THINK_ENDLESS ? deadline_think_tokens(in->effort)
                                                               : in->think_tokens_max;
    double s = (double)in->prompt_tokens / DEADLINE_PREFILL_PER_S +
               (in->is_silent_thinker ? (double)think / DEADLINE_THINK_PER_S : 0);
    double ms = DEADLINE_START_MS + s * 1000;
    return ms < (double)cap ? (int64_t)ms : cap;
}

static int64_t deadline_local(const struct deadline_input *in)
{
    double rate = (double)in->prefill_tokens_per_s;
    if (rate <= 0)
        return 0; /* not measured: only standing still is a fault */
    double tokens = (double)in->tokens_ahead + (double)in->prompt_tokens;
    return in->load_ms + (int64_t)(DEADLINE_LOCAL_FACTOR * tokens / rate * 1000) +
           DEADLINE_LOCAL_MS;
}

struct api_deadlines deadline_make(const struct deadline_input *in)
{
    struct api_deadlines d = in->asked;
    if (in->is_local) {
        d.connect_ms = d.gap_ms = 0;
        d.first_ms = in->asked.first_ms == DEADLINE_AUTO ? deadline_local(in) : in->asked.first_ms;
        return d;
    }
    if (d.first_ms == DEADLINE_AUTO)
        d.first_ms = deadline_auto(in);
    if (in->is_trial && d.first_ms > 1)
        d.first_ms /= 2;
    return d;
}

static int64_t deadline_later(int64_t a, int64_t b) { return a > b ? a : b; }

/* The one wait that runs at this point of an attempt. */
static enum deadline_kind deadline_running(const struct api_deadlines *d,
                                           const struct deadline_clock *c, int64_t *due)
{
    *due = INT64_MAX;
    if (c->token_ms) {
        if (d->gap_ms && !c->held_ms)
            *due = c->token_ms + d->gap_ms;
        return DEADLINE_GAP;
    }
    if (d->first_ms)
        *due = deadline_later(c->begun_ms, c->progress_ms) + d->first_ms;
    if (c->header_ms)
        return DEADLINE_FIRST;
    if (c->connected_ms || !d->connect_ms || c->begun_ms + d->connect_ms >= *due)
        return DEADLINE_HEADER;
    *due = c->begun_ms + d->connect_ms;
    return DEADLINE_CONNECT;
}

enum deadline_kind deadline_late(const struct api_deadlines *d, const struct deadline_clock *c,
                                 int64_t now_ms)
{
    int64_t due;
    if (d->total_ms && now_ms >= c->arrived_ms + d->total_ms)
        return DEADLINE_TOTAL;
    enum deadline_kind k = deadline_running(d, c, &due);
    return now_ms >= due ? k : DEADLINE_NONE;
}

int64_t deadline_next_ms(const struct api_deadlines *d, const struct deadline_clock *c)
{
    int64_t due;
    deadline_running(d, c, &due);
    int64_t total = d->total_ms ? c->arrived_ms + d->total_ms : INT64_MAX;
    return total < due ? total : due;
}

enum health_class deadline_class(enum deadline_kind k)
{
    switch (k) {
    case DEADLINE_CONNECT:
        return HEALTH_CLASS_CONNECT;
    case DEADLINE_HEADER:
        return HEALTH_CLASS_HANG_HEADER;
    case DEADLINE_FIRST:
        return HEALTH_CLASS_HANG_FIRST;
    case DEADLINE_GAP:
        return HEALTH_CLASS_STALL;
    case DEADLINE_TOTAL:
        return HEALTH_CLASS_DEADLINE;
    case DEADLINE_NONE:
        break;
    }
    must(k != DEADLINE_NONE);
    return HEALTH_CLASS_DEADLINE;
}
