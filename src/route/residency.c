#include "route/residency.h"

/* In order: who goes by himself (asked for, expired, drained), then for each model that waits, by
 * the age of its oldest request, a place: a free one, one that comes free anyway, or one that
 * another model must give up. Whoever drains for nobody stays. */

struct residency_plan {
    const struct residency_view *v;
    struct residency_action *out;
    size_t count, max;
    bool acted[RESIDENCY_MODELS_MAX];  /* has an action of this call */
    bool leaves[RESIDENCY_MODELS_MAX]; /* its place and bytes come free */
    bool needs_coming; /* a waiting model needs room that is not free yet */
    uint32_t places_used, places_coming; /* coming: of the used ones */
    uint64_t bytes_used, bytes_coming;   /* claims of waiting models count as used */
};

static void residency_act(struct residency_plan *p, enum residency_what what, uint32_t i,
                          uint64_t bytes)
{
    if (p->count < p->max)
        p->out[p->count] = (struct residency_action){what, i, bytes};
    p->count++;
    p->acted[i] = true;
}

static void residency_leave(struct residency_plan *p, uint32_t i)
{
    if (p->leaves[i])
        return;
    p->leaves[i] = true;
    p->places_coming++;
    p->bytes_coming += p->v->models[i].bytes;
}

static bool residency_is_idle(const struct residency_model *m)
{
    return m->state == RESIDENCY_READY && !m->running && !m->waiting;
}

static bool residency_has_expired(const struct residency_model *m, int64_t now_ms)
{
    return residency_is_idle(m) && m->keep_ms >= 0 && now_ms - m->idle_ms >= m->keep_ms;
}

static bool residency_wants(const struct residency_model *m, int64_t now_ms)
{
    return m->state == RESIDENCY_OUT && m->waiting && m->retry_ms <= now_ms;
}

static int64_t residency_waits_since(const struct residency_model *m)
{
    return m->oldest_ms > m->left_ms ? m->oldest_ms : m->left_ms;
}

/* The one that waits longest among those without an action; -1: none. */
static int residency_first_waiting(const struct residency_plan *p)
{
    int best = -1;
    for (uint32_t i = 0; i < p->v->models_count; i++) {
        const struct residency_model *m = &p->v->models[i];
        if (!residency_wants(m, p->v->now_ms) || p->acted[i])
            continue;
        if (best < 0 ||
            residency_waits_since(m) < residency_waits_since(&p->v->models[best]))
            best = (int)i;
    }
    return best;
}

/* Leaving without regard to others. */
static void residency_plan_ends(struct residency_plan *p)
{
    for (uint32_t i = 0; i < p->v->models_count; i++) {
        const struct residency_model *m = &p->v->models[i];
        if (m->state == RESIDENCY_OUT)
            continue;
        p->places_used++;
        p->bytes_used += m->bytes;
        bool is_serving = m->state == RESIDENCY_READY || m->state == RESIDENCY_DRAINING;
        bool goes = m->must_leave || residency_has_expired(m, p->v->now_ms);
        if (m->state == RESIDENCY_LEAVING || m->state == RESIDENCY_DRAINING || (goes && is_serving))
            residency_leave(p, i);
        if (!goes || !is_serving)
            continue;
        if (!m->running)
            residency_act(p, RESIDENCY_UNLOAD, i, 0);
        else if (m->state == RESIDENCY_READY)
            residency_act(p, RESIDENCY_DRAIN, i, 0);
    }
}

/* May model i be asked to make room for one that waits since then? */
static bool residency_may_go(const struct residency_view *v, uint32_t i, int64_t since_ms)
{
    const struct residency_model *m = &v->models[i];
    if (m->state != RESIDENCY_READY || m->is_pinned)
        return false;
    if (v->now_ms - m->ready_ms < v->min_residency_ms || (m->waiting && !m->has_served))
        return false;
    return !m->waiting || v->now_ms - since_ms >= v->swap_wait_ms;
}

/* Idle ones first, the longest idle; then the one that is resident longest. -1: none may. */
static int residency_victim(const struct residency_plan *p, int64_t since_ms)
{
    int best = -1;
    for (uint32_t i = 0; i < p->v->models_count; i++) {
        const struct residency_model *m = &p->v->models[i];
        if (p->leaves[i] || p->acted[i] || !residency_may_go(p->v, i, since_ms))
            continue;
        if (best < 0) {
            best = (int)i;
            continue;
        }
        const struct residency_model *b = &p->v->models[best];
        bool is_idle = residency_is_idle(m), best_idle = residency_is_idle(b);
        int64_t since = is_idle ? m->idle_ms : m->ready_ms;
        int64_t best_since = best_idle ? b->idle_ms : b->ready_ms;
        if (is_idle != best_idle ? is_idle : since < best_since)
            best = (int)i;
    }
    return best;
}

static uint64_t residency_free(const struct residency_plan *p, bool with_coming)
{
    uint64_t most = p->v->bytes_max + (with_coming ? p->bytes_coming : 0);
    return most > p->bytes_used ? most - p->bytes_used : 0;
}

static bool residency_fits(const struct residency_plan *p, const struct residency_model *m,
                           bool with_coming)
{
    uint32_t used = p->places_used - (with_coming ? p->places_coming : 0);
    bool has_bytes = !p->v->bytes_max || m->bytes <= residency_free(p, with_coming);
    return used < p->v->places && has_bytes;
}

/* Could it ever fit, with all gone that may be sent away some time? */
static bool residency_could_fit(const struct residency_plan *p, const struct residency_model *m,
                                bool *has_place)
{
    uint32_t pinned = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->v->models_count; i++) {
        const struct residency_model *o = &p->v->models[i];
        if (o->state == RESIDENCY_OUT || !o->is_pinned || p->leaves[i])
            continue;
        pinned++;
        bytes += o->bytes;
    }
    *has_place = pinned < p->v->places;
    return !p->v->bytes_max || (bytes <= p->v->bytes_max && m->bytes <= p->v->bytes_max - bytes);
}

/* An equal share of what is free for each place that is, but what it needs at least. */
static void residency_load(struct residency_plan *p, uint32_t i)
{
    const struct residency_model *m = &p->v->models[i];
    uint64_t rest = residency_free(p, false), bytes = rest / (p->v->places - p->places_used);
    bytes = base_max(bytes, base_min(m->bytes, rest));
    if (p->v->bytes_max && !bytes)
        bytes = 1; /* 0 would mean no limit */
    residency_act(p, RESIDENCY_LOAD, i, p->v->bytes_max ? bytes : 0);
    p->places_used++;
    p->bytes_used += p->v->bytes_max ? bytes : 0;
}

/* Room for the waiting model i: what comes free anyway, else others are asked to go. It claims what
 * comes free, so that those behind it find their own. */
static void residency_make_room(struct residency_plan *p, uint32_t i)
{
    const struct residency_model *m = &p->v->models[i];
    p->needs_coming = true;
    while (!residency_fits(p, m, true)) {
        int victim = residency_victim(p, residency_waits_since(m));
        if (victim < 0)
            return;
        residency_leave(p, (uint32_t)victim);
        const struct residency_model *o = &p->v->models[victim];
        bool at_once = !o->running && !o->waiting;
        residency_act(p, at_once ? RESIDENCY_UNLOAD : RESIDENCY_DRAIN, (uint32_t)victim, 0);
    }
    p->places_used++;
    p->bytes_used += m->bytes;
}

static void residency_plan_waiting(struct residency_plan *p)
{
    for (int next; (next = residency_first_waiting(p)) >= 0;) {
        uint32_t i = (uint32_t)next;
        const struct residency_model *m = &p->v->models[i];
        bool has_place;
        bool could = residency_could_fit(p, m, &has_place);
        if (!has_place)
            residency_act(p, RESIDENCY_REFUSE, i, 0);
        else if (residency_fits(p, m, false) || (!could && p->places_used < p->v->places))
            residency_load(p, i); /* too large for all there is: its child says so with numbers */
        else {
            p->acted[i] = true;
            residency_make_room(p, i);
        }
    }
}

/* A drained model goes when somebody needs its room, else it serves on. */
static void residency_plan_drained(struct residency_plan *p)
{
    for (uint32_t i = 0; i < p->v->models_count; i++) {
        const struct residency_model *m = &p->v->models[i];
        if (m->state != RESIDENCY_DRAINING || m->must_leave || p->acted[i])
            continue;
        if (!p->needs_coming)
            residency_act(p, RESIDENCY_KEEP, i, 0);
        else if (!m->running)
            residency_act(p, RESIDENCY_UNLOAD, i, 0);
    }
}

size_t residency_next(const struct residency_view *v, struct residency_action *out,
                      size_t out_max)
{
    struct residency_plan p = {.v = v, .out = out, .max = out_max};
    must(v->models_count <= RESIDENCY_MODELS_MAX && v->places);
    residency_plan_ends(&p);
    residency_plan_waiting(&p);
    residency_plan_drained(&p);
    return base_min(p.count, p.max);
}

static void residency_sooner(int64_t *at_ms, int64_t ms, int64_t now_ms)
{
    if (ms > now_ms && ms < *at_ms)
        *at_ms = ms;
}

int64_t residency_wake_ms(const struct residency_view *v)
{
    int64_t at_ms = INT64_MAX;
    for (uint32_t i = 0; i < v->models_count; i++) {
        const struct residency_model *m = &v->models[i];
        if (residency_is_idle(m) && m->keep_ms >= 0)
            residency_sooner(&at_ms, m->idle_ms + m->keep_ms, v->now_ms);
        if (m->state == RESIDENCY_READY)
            residency_sooner(&at_ms, m->ready_ms + v->min_residency_ms, v->now_ms);
        if (m->state == RESIDENCY_OUT && m->waiting) {
            residency_sooner(&at_ms, m->retry_ms, v->now_ms);
            residency_sooner(&at_ms, residency_waits_since(m) + v->swap_wait_ms, v->now_ms);
        }
    }
    return at_ms;
}
