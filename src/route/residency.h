/* residency - which models load, drain and unload now; and who may take how much memory.
 *
 * Owns:      the rules of BEHAVIOUR 8.8 and 8.9, and the ledger over all children.
 * Not:       doing it (serve/models_leg), how one child divides its bytes (engine/budget).
 * Invariant: pure: the same view gives the same answer. A running reply is never cut off. A place
 *            is never promised twice, nor the bytes of the ledger: what is not OUT counts until it
 *            is OUT. A model that waits gets its turn: no other keeps its place for longer than
 *            min_residency after swap_wait, beyond the replies that already run. Who was loaded
 *            for a request begins at least one: swaps make progress at any setting.
 *
 *     OUT --LOAD--> LOADING --> READY --DRAIN--> DRAINING --UNLOAD--> LEAVING --> OUT
 *                                 |                 |
 *                                 +--UNLOAD (idle)  +--KEEP (nobody needs its place any more)
 *
 * Thread:    any; the caller's memory.
 * Limits:    RESIDENCY_MODELS_MAX models in a view; each call looks at every pair once.
 */
#ifndef SHOAL_ROUTE_RESIDENCY_H
#define SHOAL_ROUTE_RESIDENCY_H

#include "base/base.h"

#define RESIDENCY_MODELS_MAX 64u

enum residency_state {
    RESIDENCY_OUT,
    RESIDENCY_LOADING,
    RESIDENCY_READY,
    RESIDENCY_DRAINING, /* running replies finish, nothing starts */
    RESIDENCY_LEAVING,  /* its child is told to end */
};

struct residency_model {
    enum residency_state state;
    bool is_pinned;  /* never swapped out */
    bool must_leave; /* somebody asked for its unload */
    bool has_served; /* began or answered a request since it is ready */
    uint32_t waiting; /* requests that have not begun; only those may move to another child */
    uint32_t running; /* replies that have begun */
    int64_t oldest_ms; /* when the oldest waiting one came; waiting > 0 */
    int64_t left_ms;   /* OUT: when it last left; its turn comes behind those who waited then */
    int64_t ready_ms;  /* since when it can answer; READY, DRAINING */
    int64_t idle_ms;   /* since when it has no request; READY without any */
    int64_t keep_ms;   /* keep-alive: unloaded after so much idleness; negative: never */
    int64_t retry_ms;  /* OUT: not loaded before (a failed load) */
    uint64_t bytes;    /* OUT: what it needs at least; else what the ledger gave it */
};

struct residency_view {
    const struct residency_model *models;
    uint32_t models_count;
    uint32_t places; /* models beside each other, >= 1 */
    uint64_t bytes_max; /* of all children together; 0: not known, no ledger is kept */
    int64_t min_residency_ms, swap_wait_ms, now_ms;
};

enum residency_what {
    RESIDENCY_LOAD,   /* bytes: its budget, 0 = none */
    RESIDENCY_DRAIN,  /* READY: no new request starts */
    RESIDENCY_KEEP,   /* DRAINING: serve on */
    RESIDENCY_UNLOAD, /* READY or DRAINING without a running reply */
    RESIDENCY_REFUSE, /* OUT: every place is pinned, its waiting requests wait in vain */
};
struct residency_action {
    enum residency_what what;
    uint32_t model; /* index in the view */
    uint64_t bytes;
};

/* What to do now, at most one action a model; call again when a state or a count has changed.
 * Models that wait are served in the order in which they began to: with their oldest request, or
 * when they had to leave. */
size_t residency_next(const struct residency_view *v, struct residency_action *out,
                      size_t out_max);
/* When time alone may change the answer; INT64_MAX: never. */
int64_t residency_wake_ms(const struct residency_view *v);

#endif
