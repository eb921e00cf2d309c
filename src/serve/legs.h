/* legs - every leg of the configuration behind one provider, beside the local models.
 *
 * Owns:      the legs in use with their breakers and health, routes, the sessions' pins, free
 *            checks, forced states, counters of failover; swapping all of it for a new
 *            configuration. Billed probes by `probes`, warming by `shadow`.
 * Not:       one request's way over the legs (attempt), the choice itself (route), an upstream's
 *            protocol (remote_leg), keeping states over a restart (run_state).
 * Invariant: a request that no route matches goes to the local models as if there were no legs. A
 *            generation of the configuration lives until its last request is over. What is known
 *            of a leg is known once: name, url and model tell that it is the same in the next
 *            generation, and what a request of an old one brings counts in the one in use.
 *
 *     submit --route?-- no --> models_leg
 *                |yes
 *            attempt --pick--> leg --> engine child, upstream
 *               ^  |outcome
 *               |  v
 *            breaker, health, sticky --on_change--> run_state
 *
 * Thread:    the loop's.
 * Limits:    LEGS_MAX legs, LEGS_ROUTES_MAX routes; LEGS_MODELS_MAX (leg, model) pairs with a state
 *            of their own, the one that is unused longest gives way.
 */
#ifndef SHOAL_SERVE_LEGS_H
#define SHOAL_SERVE_LEGS_H

#include "base/chrono.h"
#include "base/digest.h"
#include "base/list.h"
#include "base/map.h"
#include "route/residency.h"
#include "route/router.h"
#include "route/sticky.h"
#include "serve/models_leg.h"
#include "serve/probes.h"
#include "serve/rehearsal.h"
#include "serve/remote_leg.h"
#include "serve/shadow.h"

#define LEGS_MAX 64u
#define LEGS_ROUTES_MAX 256u
#define LEGS_MODELS_MAX 512u
#define LEGS_FAILOVERS_MAX 256u /* series of failover_total; then "other" */
#define LEGS_CALLS_MAX 4096u    /* outbound at once, of all legs */

/* One leg as configured. */
struct legs_row {
    str name;
    enum leg_kind kind;
    str model;                 /* asked of it; "" = the name asked for */
    const struct dialect *dialect; /* UPSTREAM: these six */
    str url, ca_file, key, health_path;
    enum remote_leg_auth auth;
    enum leg_continue goes_on;
    uint32_t context_max, output_max, caps, inflight_max;
    str vectors;
    struct api_deadlines deadline; /* connect, first (DEADLINE_AUTO), gap, total */
    struct breaker_options breaking;
};
/* Everything is copied. */
struct legs_config {
    const struct legs_row *rows;
    uint32_t rows_count;
    const struct router_route *routes;
    uint32_t routes_count;
    int64_t all_open_wait_ms;
    bool probes_free, probes_paid;
    uint32_t probes_per_hour; /* at most PAID_PER_HOUR_MAX */
    uint32_t shadow_min_tokens;
};

struct legs;
struct legs_generation;
struct legs_options {
    struct loop *loop;
    struct models_leg *models; /* outlives it */
    /* A breaker's state or a pin has changed; may be NULL. */
    void (*on_change)(void *ctx);
    void *ctx;
};
/* Without legs: everything goes to the local models. */
BASE_USE_RESULT bool legs_open(struct legs **out, const struct legs_options *o, struct err *e);
void legs_close(struct legs *l); /* no request is under way; NULL is allowed */
struct api_provider legs_provider(struct legs *l);

/* Makes legs of a configuration without using them yet. ERR_CONFIG naming the leg; ERR_UNSUPPORTED:
 * no libcurl for an upstream. */
BASE_USE_RESULT bool legs_prepare(struct legs *l, const struct legs_config *c,
                                  struct legs_generation **out, struct err *e);
/* From now on these; takes the generation. New requests only. */
void legs_apply(struct legs *l, struct legs_generation *g);
void legs_drop(struct legs_generation *g); /* a prepared one that is not applied; NULL is allowed */

/* An administrator's word on a leg, all its models: FORCE_OPEN, FORCE_CLOSED, AUTO. False: no such
 * leg. */
bool legs_force(struct legs *l, str name, enum breaker_event_kind how);

/* A drill on an upstream leg, for whom the plan names. ERR_NOT_FOUND: no such leg; ERR_REQUEST. */
BASE_USE_RESULT bool legs_rehearse(struct legs *l, const struct rehearsal_plan *p, struct err *e);

/* --- one (leg, model) --- */

enum legs_probe { LEGS_PROBE_FREE, LEGS_PROBE_PAID, LEGS_PROBE_COUNT_ };

struct legs_leg {
    struct list link;
    struct leg leg;
    uint32_t row;             /* of its generation */
    struct legs_generation *g;
    struct remote_leg *remote; /* UPSTREAM: one per row */
    struct dialect_upstream upstream; /* what its dialect can say */
    char name[64], model[128];
    uint64_t transitions[BREAKER_STATE_COUNT_];
    uint64_t probes[LEGS_PROBE_COUNT_][2]; /* failed, ok */
};
/* Everything known of one, by name and model; for /v1/routes and run_state. NULL ends. */
struct legs_leg *legs_first(struct legs *l);
struct legs_leg *legs_next(struct legs *l, const struct legs_leg *at);
/* As it is shown: closed open half_open cooling misconfigured forced_open forced_closed loading
 * restarting failed. */
const char *legs_state_name(const struct legs_leg *at, int64_t now_ms);
/* Takes over what was known before a restart; a leg that is not configured is left out. */
struct legs_known {
    str name, url, model; /* url "" of an engine */
    const struct breaker *breaker;
    const struct health *health;
};
void legs_restore(struct legs *l, const struct legs_known *k);
struct sticky *legs_sticky(struct legs *l);
struct paid *legs_paid(struct legs *l); /* billed probes of the last hour */
uint32_t legs_routes(const struct legs *l, const struct router_route **out);
const struct legs_row *legs_row_of(const struct legs *l, uint32_t index);
uint32_t legs_rows(const struct legs *l);

/* Prometheus text of what is counted here. */
void legs_write_metrics(struct legs *l, struct buf *out);

/* --- for attempt --- */

struct legs_generation *legs_ref(struct legs *l);
void legs_unref(struct legs_generation *g);
/* The request passed this very server: a leg leads back here, and no upstream gets it again. */
bool legs_is_back(const struct legs *l, const struct api_request *rq);
struct loop *legs_loop(const struct legs *l);
struct rehearsal *legs_rehearsal(struct legs *l);
struct shadow *legs_shadow(struct legs *l);
struct chrono_rng *legs_rng(struct legs *l);
int64_t legs_wait_ms(const struct legs_generation *g); /* all_open_wait */
const struct router_route *legs_route(const struct legs_generation *g, uint32_t index);
str legs_row_name(const struct legs_generation *g, uint32_t row);
/* The name of a model as that entry's leg is asked for it. */
str legs_model_of(const struct legs_generation *g, const struct router_entry *entry, str asked);
const struct dialect *legs_dialect(const struct legs_leg *at); /* UPSTREAM */
str legs_url(const struct legs_leg *at); /* "" of an engine */
/* The record of an entry for this name asked for, brought up to date: an engine's state and model,
 * the breaker's clock. NULL: no memory. */
struct legs_leg *legs_find(struct legs *l, struct legs_generation *g,
                           const struct router_entry *entry, str asked);
/* A record of an old generation gets what is known of its leg now. */
void legs_sync(struct legs *l, struct legs_leg *at);
/* An attempt begins; true: it is the breaker's trial. */
bool legs_begin(struct legs *l, struct legs_leg *at);
struct legs_outcome {
    enum health_class class_;
    bool is_trial;
    int64_t retry_after_ms;
    str text;
};
void legs_end(struct legs *l, struct legs_leg *at, const struct legs_outcome *o);
/* A trial has given tokens for so long that it counts (BEHAVIOUR 9.5), though it goes on. */
void legs_trial_ok(struct legs *l, struct legs_leg *at);
void legs_count_probe(struct legs *l, struct legs_leg *at, enum legs_probe kind, bool is_ok);
/* What an attempt learns of its leg. */
void legs_first_token(struct legs *l, struct legs_leg *at, uint32_t bucket, int64_t ms);
void legs_shows_thinking(struct legs *l, struct legs_leg *at);
void legs_cannot_continue(struct legs *l, struct legs_leg *at); /* it refused to */
void legs_changed(struct legs *l);
struct legs_failover {
    str from, to;
    enum health_class reason;
    bool is_after; /* the first token */
};
void legs_count_failover(struct legs *l, const struct legs_failover *f);
/* By the exchange's id. False: too many. */
BASE_USE_RESULT bool legs_remember(struct legs *l, uint64_t id, void *attempt);
void legs_forget(struct legs *l, uint64_t id);
/* The leg that has the request of this number now; NULL: none, or no route is for it. */
const struct legs_leg *legs_leg_of(const struct legs *l, uint64_t id);

#endif
