#include "serve/rehearsal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/json.h"
#include "base/list.h"

#define REHEARSAL_LEGS_MAX 16u /* names in the report; the rest is "other" */

enum rehearsal_wait { REHEARSAL_WAIT_NONE, REHEARSAL_WAIT_FIRST, REHEARSAL_WAIT_GAP };

/* The faults of an upstream in BEHAVIOUR 9.9, as remote_leg would have told them. */
static const struct rehearsal_fault {
    const char *name;
    enum api_fault fault;
    enum err_code code;
    enum rehearsal_wait wait;
    uint16_t status;
    bool is_late, is_flap, stays;
} rehearsal_faults[] = {
    {"refuse", API_FAULT_CONNECT, ERR_CONNECT, REHEARSAL_WAIT_NONE, 0, false, false, false},
    {"hang_header", API_FAULT_HANG_HEADER, ERR_DEADLINE, REHEARSAL_WAIT_FIRST, 0, false, false,
     false},
    {"hang_body", API_FAULT_HANG_FIRST, ERR_DEADLINE, REHEARSAL_WAIT_FIRST, 0, false, false, false},
    {"stall", API_FAULT_STALL, ERR_DEADLINE, REHEARSAL_WAIT_GAP, 0, true, false, false},
    {"cut", API_FAULT_CUT, ERR_UPSTREAM, REHEARSAL_WAIT_NONE, 0, false, false, false},
    {"cut_late", API_FAULT_CUT, ERR_UPSTREAM, REHEARSAL_WAIT_NONE, 0, true, false, false},
    {"garbage", API_FAULT_GARBAGE, ERR_UPSTREAM, REHEARSAL_WAIT_NONE, 0, false, false, false},
    {"rate_limit", API_FAULT_RATE_LIMIT, ERR_OVERLOADED, REHEARSAL_WAIT_NONE, 429, false, false,
     false},
    {"flap", API_FAULT_HTTP_5XX, ERR_UPSTREAM, REHEARSAL_WAIT_NONE, 500, false, true, false},
    {"auth", API_FAULT_AUTH, ERR_UPSTREAM, REHEARSAL_WAIT_NONE, 401, false, false, true},
};

/* One request that is struck, or about to be. */
struct rehearsal_call {
    struct list link;
    struct rehearsal *r;
    const struct rehearsal_fault *fault;
    struct api_provider inner;
    struct api_sink sink;
    struct loop_timer timer;
    uint64_t id;
    int64_t gap_ms;
    uint32_t pieces, dones_left; /* one DONE for each choice */
    bool is_inner; /* the leg itself was asked and still speaks */
};

struct rehearsal {
    struct loop *loop;
    struct api_provider inner; /* of the next submit */
    struct list calls;
    struct chrono_rng rng;
    const struct rehearsal_fault *fault; /* NULL: no plan yet */
    char leg[64], agents[128];
    double share;
    int64_t seconds, until_ms;
    uint64_t flaps, hit, ends[REHEARSAL_END_COUNT_];
    float samples[REHEARSAL_SAMPLES_MAX];
    uint32_t samples_count, legs_count;
    struct {
        char name[64];
        uint64_t count;
    } legs[REHEARSAL_LEGS_MAX];
};

/* --- the plan ------------------------------------------------------------------------------ */

bool rehearsal_open(struct rehearsal **out, struct loop *l, struct err *e)
{
    struct rehearsal *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_MEMORY, "serve: no memory for rehearsals");
    r->loop = l;
    list_init(&r->calls);
    *out = r;
    return true;
}

void rehearsal_close(struct rehearsal *r)
{
    must(!r || list_is_empty(&r->calls));
    free(r);
}

static bool rehearsal_runs(const struct rehearsal *r)
{
    return r->fault && loop_ms() < r->until_ms;
}

static const struct rehearsal_fault *rehearsal_find(str name)
{
    for (size_t i = 0; i < countof(rehearsal_faults); i++)
        if (str_eq_z(name, rehearsal_faults[i].name))
            return &rehearsal_faults[i];
    return NULL;
}

/* Struck and not over, or still to be struck. */
static uint64_t rehearsal_running(const struct rehearsal *r)
{
    uint64_t over = 0, running = 0;
    for (int i = 0; i < REHEARSAL_END_COUNT_; i++)
        over += r->ends[i];
    if (r->hit > over)
        running = r->hit - over;
    list_each (link, &r->calls)
        running++;
    return running;
}

bool rehearsal_start(struct rehearsal *r, const struct rehearsal_plan *p, uint64_t seed,
                     struct err *e)
{
    const struct rehearsal_fault *f = rehearsal_find(p->fault);
    if (p->seconds == 0) {
        r->until_ms = 0;
        return true;
    }
    if (rehearsal_runs(r) || rehearsal_running(r))
        return err_set(e, ERR_REQUEST, "a drill of leg %s still runs or has requests under way",
                       r->leg);
    if (!f && (str_eq_z(p->fault, "crash") || str_eq_z(p->fault, "wedge")))
        return err_set(e, ERR_REQUEST, "fault: %.*s strikes every agent of a model: signal the "
                       "child's pid (/v1/status) instead", STR_ARG(p->fault));
    if (!f)
        return err_set(e, ERR_REQUEST, "fault: no fault is called \"%.*s\"",
                       STR_ARG(str_sub(p->fault, 0, str_utf8_valid(str_sub(p->fault, 0, 40)))));
    if (p->seconds < 0 || p->seconds > REHEARSAL_SECONDS_MAX)
        return err_set(e, ERR_REQUEST, "seconds: 0 to %d expected", REHEARSAL_SECONDS_MAX);
    if (!(p->share > 0 && p->share <= 1))
        return err_set(e, ERR_REQUEST, "share: a number above 0, at most 1 expected");
    if (p->agents.len >= sizeof r->agents || p->agents.len == 0)
        return err_set(e, ERR_REQUEST, "agents: a glob of 1 to %zu bytes expected",
                       sizeof r->agents - 1);
    struct loop *loop = r->loop;
    *r = (struct rehearsal){.loop = loop, .fault = f, .share = p->share, .seconds = p->seconds,
                            .until_ms = loop_ms() + p->seconds * 1000};
    list_init(&r->calls);
    chrono_rng_init(&r->rng, seed);
    snprintf(r->leg, sizeof r->leg, "%.*s", STR_ARG(p->leg));
    snprintf(r->agents, sizeof r->agents, "%.*s", STR_ARG(p->agents));
    return true;
}

bool rehearsal_strikes(struct rehearsal *r, str leg, str agent)
{
    if (!rehearsal_runs(r) || !str_eq_z(leg, r->leg) || !str_glob(str_of(r->agents), agent))
        return false;
    if (r->share < 1 && chrono_rng_double(&r->rng) >= r->share)
        return false;
    return !r->fault->is_flap || r->flaps++ % 2 == 0;
}

bool rehearsal_has_plan(const struct rehearsal *r) { return r->fault != NULL; }
bool rehearsal_fails_over(const struct rehearsal *r) { return r->fault && !r->fault->stays; }

/* --- one call ------------------------------------------------------------------------------ */

static struct rehearsal_call *rehearsal_call_of(struct rehearsal *r, uint64_t id)
{
    list_each (link, &r->calls) {
        struct rehearsal_call *c = list_item(link, struct rehearsal_call, link);
        if (c->id == id)
            return c;
    }
    return NULL;
}

static void rehearsal_call_free(struct rehearsal_call *c)
{
    loop_timer_close(&c->timer);
    list_remove(&c->link);
    free(c);
}

/* The fault is due: the attempt hears of it as of the leg's own. */
static void rehearsal_call_on_time(void *ctx)
{
    struct rehearsal_call *c = ctx;
    const struct rehearsal_fault *f = c->fault;
    struct api_sink sink = c->sink;
    struct api_event ev = {.kind = API_EVENT_ERROR};
    struct api_batch b = {.request_id = c->id, .events = &ev, .events_count = 1};
    api_error_set(&ev.error, f->code, "", STR(""), "drill: %s", f->name);
    ev.error.fault = f->fault;
    ev.error.upstream_status = f->status;
    ev.error.is_rehearsed = true;
    rehearsal_call_free(c);
    sink.on_batch(sink.ctx, &b);
}

static bool rehearsal_is_text(const struct api_event *ev)
{
    return ev->kind == API_EVENT_CONTENT || ev->kind == API_EVENT_REASONING ||
           ev->kind == API_EVENT_CALL_ARGS;
}

/* The leg's own words, until there are enough of them. */
static void rehearsal_on_batch(void *ctx, const struct api_batch *b)
{
    struct rehearsal_call *c = ctx;
    struct api_sink sink = c->sink;
    for (uint32_t i = 0; i < b->events_count; i++) {
        enum api_event_kind kind = b->events[i].kind;
        c->pieces += rehearsal_is_text(&b->events[i]);
        if (kind != API_EVENT_ERROR && (kind != API_EVENT_DONE || c->dones_left-- > 1))
            continue;
        rehearsal_call_free(c); /* it ended before it could be struck */
        sink.on_batch(sink.ctx, b);
        return;
    }
    if (c->pieces >= REHEARSAL_PIECES) { /* nothing follows this batch but the fault */
        c->is_inner = false;
        c->inner.cancel(c->inner.self, c->id);
        loop_timer_set(&c->timer, c->fault->wait == REHEARSAL_WAIT_GAP ? c->gap_ms : 0);
    }
    sink.on_batch(sink.ctx, b);
}

static bool rehearsal_submit(void *self, const struct api_request *rq, struct api_sink sink,
                             struct api_error *e)
{
    struct rehearsal *r = self;
    struct rehearsal_call *c = calloc(1, sizeof *c);
    if (!c)
        return api_error_set(e, ERR_MEMORY, "", STR(""), "no memory for a request");
    *c = (struct rehearsal_call){.r = r, .fault = r->fault, .inner = r->inner, .sink = sink,
                                 .id = rq->id, .gap_ms = rq->deadline.gap_ms,
                                 .dones_left = api_request_choices(rq)};
    list_push_last(&r->calls, &c->link);
    if (!loop_timer_open(&c->timer, r->loop, rehearsal_call_on_time, c, &e->err)) {
        rehearsal_call_free(c);
        return false;
    }
    if (!c->fault->is_late) {
        loop_timer_set(&c->timer,
                       c->fault->wait == REHEARSAL_WAIT_FIRST ? rq->deadline.first_ms : 0);
        return true;
    }
    c->is_inner = true;
    if (c->inner.submit(c->inner.self, rq, (struct api_sink){rehearsal_on_batch, c}, e))
        return true;
    rehearsal_call_free(c);
    return false;
}

static void rehearsal_cancel(void *self, uint64_t id)
{
    struct rehearsal_call *c = rehearsal_call_of(self, id);
    if (!c)
        return;
    if (c->is_inner)
        c->inner.cancel(c->inner.self, id);
    rehearsal_call_free(c);
}

static void rehearsal_hold(void *self, uint64_t id, bool on)
{
    struct rehearsal_call *c = rehearsal_call_of(self, id);
    if (c && c->is_inner)
        c->inner.hold(c->inner.self, id, on);
}

static void rehearsal_credit(void *self, uint64_t id, uint32_t bytes)
{
    struct rehearsal_call *c = rehearsal_call_of(self, id);
    if (c && c->is_inner)
        c->inner.credit(c->inner.self, id, bytes);
}

static size_t rehearsal_models(void *self, struct api_model *out, size_t out_max)
{
    (void)self, (void)out, (void)out_max;
    return 0;
}

static void rehearsal_health(void *self, struct api_health *out)
{
    (void)self;
    *out = (struct api_health){.state = API_HEALTH_READY, .reason = STR("")};
}

struct api_provider rehearsal_provider(struct rehearsal *r, const struct api_provider *inner)
{
    r->inner = *inner;
    return (struct api_provider){r,           rehearsal_submit, rehearsal_cancel, rehearsal_hold,
                                 rehearsal_credit, rehearsal_models, rehearsal_health};
}

/* --- what came of it ----------------------------------------------------------------------- */

void rehearsal_hit(struct rehearsal *r) { r->hit++; }

void rehearsal_delay(struct rehearsal *r, int64_t ms)
{
    if (r->samples_count < REHEARSAL_SAMPLES_MAX)
        r->samples[r->samples_count++] = (float)ms;
}

void rehearsal_over(struct rehearsal *r, enum rehearsal_end end, str leg)
{
    uint32_t i = 0;
    r->ends[end]++;
    if (end != REHEARSAL_END_OVER)
        return;
    while (i < r->legs_count && !str_eq_z(leg, r->legs[i].name))
        i++;
    if (i == r->legs_count && i < REHEARSAL_LEGS_MAX) {
        str name = i + 1 < REHEARSAL_LEGS_MAX ? leg : STR("other");
        snprintf(r->legs[i].name, sizeof r->legs[i].name, "%.*s", STR_ARG(name));
        r->legs_count++;
    }
    r->legs[base_min(i, REHEARSAL_LEGS_MAX - 1)].count++;
}

static int rehearsal_by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void rehearsal_put_delays(struct json_writer *w, struct rehearsal *r)
{
    uint32_t n = r->samples_count;
    qsort(r->samples, n, sizeof *r->samples, rehearsal_by_size);
    json_key_z(w, "added_ms");
    json_open_object(w);
    json_put_key_u64(w, "p50", n ? (uint64_t)r->samples[(n - 1) / 2] : 0);
    json_put_key_u64(w, "p95", n ? (uint64_t)r->samples[(n - 1) * 95 / 100] : 0);
    json_put_key_u64(w, "max", n ? (uint64_t)r->samples[n - 1] : 0);
    json_close_object(w);
}

void rehearsal_report(struct rehearsal *r, struct buf *out)
{
    static const char *const ends[] = {"failed_over", "failed", "failed_with_other", "cancelled"};
    struct json_writer w = json_writer(out);
    int64_t left = r->until_ms - loop_ms();
    json_open_object(&w);
    if (r->fault) {
        json_key_z(&w, "leg");
        json_put_text_z(&w, r->leg);
        json_key_z(&w, "fault");
        json_put_text_z(&w, r->fault->name);
        json_key_z(&w, "agents");
        json_put_text_z(&w, r->agents);
        json_key_z(&w, "share");
        json_put_double(&w, r->share);
        json_put_key_u64(&w, "seconds", (uint64_t)r->seconds);
        json_put_key_u64(&w, "left_ms", left > 0 ? (uint64_t)left : 0);
        json_put_key_u64(&w, "hit", r->hit);
        json_put_key_u64(&w, "running", rehearsal_running(r));
        for (int i = 0; i < REHEARSAL_END_COUNT_; i++)
            json_put_key_u64(&w, ends[i], r->ends[i]);
        rehearsal_put_delays(&w, r);
        json_key_z(&w, "legs");
        json_open_object(&w);
        for (uint32_t i = 0; i < r->legs_count; i++)
            json_put_key_u64(&w, r->legs[i].name, r->legs[i].count);
        json_close_object(&w);
    }
    json_close_object(&w);
}
