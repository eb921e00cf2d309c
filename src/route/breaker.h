/* breaker - may this leg be asked now? closed, open, half-open; cooling; forced.
 *
 * Owns:      the state machine of BEHAVIOUR 9.5 and its arithmetic.
 * Not:       what an outcome is (health), who is asked instead (router), writing it down
 *            (serve/run_state).
 * Invariant: pure: same state, event, time, same answer. Open and cooling mean zero requests. A
 *            running cooldown is never shortened by a later event, except by the free endpoint
 *            and by an administrator. At most one trial at a time.
 *
 *     CLOSED --points, ratio--> OPEN --until, free endpoint--> HALF_OPEN --successes--> CLOSED
 *                                ^                                 |
 *                                +-------- a trial fails ----------+   openings + 1
 *     any --admin--> FORCED_OPEN, FORCED_CLOSED --admin--> CLOSED
 *     cooling_ms (429, Retry-After) stands beside the state and ends by itself.
 *
 * Thread:    any; plain data. Lives as long as its leg.
 */
#ifndef SHOAL_ROUTE_BREAKER_H
#define SHOAL_ROUTE_BREAKER_H

#include "route/health.h"

struct breaker_options {
    uint32_t failures;    /* consecutive points that open it */
    int64_t window_ms;    /* of the ratio */
    uint32_t min_requests;
    double ratio;
    int64_t cooldown_ms, cooldown_max_ms;
    uint32_t successes;   /* trials that close it */
};
extern const struct breaker_options breaker_options_default; /* BEHAVIOUR 3.3 */

#define BREAKER_STATES(X)                                                                  \
    X(CLOSED, "closed") X(OPEN, "open") X(HALF_OPEN, "half_open")                          \
    X(FORCED_OPEN, "forced_open") X(FORCED_CLOSED, "forced_closed")
enum breaker_state {
#define X(name, text) BREAKER_STATE_##name,
    BREAKER_STATES(X)
#undef X
    BREAKER_STATE_COUNT_
};
const char *breaker_state_name(enum breaker_state s);
bool breaker_state_parse(str name, enum breaker_state *out);

struct breaker {
    enum breaker_state state;
    enum health_class why;  /* what opened it, or makes it cool; OK: nothing */
    int64_t since_ms;       /* in this state */
    int64_t until_ms;       /* OPEN: when it becomes half-open */
    int64_t cooling_ms;     /* no request before */
    int64_t failed_ms;      /* the last failure with points; 0: none */
    uint32_t points;        /* consecutive */
    uint32_t openings;      /* since it was last healthy for a minute */
    uint32_t successes;     /* trials, HALF_OPEN */
    bool has_trial;         /* one is under way */
};

enum breaker_event_kind {
    BREAKER_EVENT_TIME,       /* nothing but the clock moved */
    BREAKER_EVENT_BEGIN,      /* an attempt begins; it was allowed */
    BREAKER_EVENT_END,        /* an attempt ended: class_, retry_after_ms, window, is_trial */
    BREAKER_EVENT_FREE_OK,    /* the free endpoint answered */
    BREAKER_EVENT_FORCE_OPEN, BREAKER_EVENT_FORCE_CLOSED, BREAKER_EVENT_AUTO, /* an administrator */
};
struct breaker_event {
    enum breaker_event_kind kind;
    enum health_class class_;
    bool is_trial;             /* END: what breaker_next made of its BEGIN */
    int64_t retry_after_ms;    /* END: as the upstream said; 0: nothing */
    struct health_window window; /* END: with this outcome in it */
    double jitter;             /* [0, 1): spreads the cooldown over +- 20 % */
    bool is_network;           /* END: every leg fails to connect: the shortest cooldown */
};

struct breaker breaker_next(struct breaker b, const struct breaker_options *o,
                            const struct breaker_event *ev, int64_t now_ms);
/* May an attempt begin now? HALF_OPEN: as the one trial. b was brought to now by EVENT_TIME, or
 * its clock is taken into account here all the same. */
bool breaker_allows(const struct breaker *b, int64_t now_ms);
/* Would an attempt that begins now be a trial? */
bool breaker_is_trial(const struct breaker *b, int64_t now_ms);
/* When it may allow one again without any other event; now_ms when it does; INT64_MAX: only an
 * administrator or the end of a trial changes it. */
int64_t breaker_free_ms(const struct breaker *b, int64_t now_ms);
bool breaker_is_cooling(const struct breaker *b, int64_t now_ms);

#endif
