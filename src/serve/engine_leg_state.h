/* engine_leg_state - struct engine_leg and its requests, for the two files that act on them.
 *
 * Owns:      the structs.
 * Not:       anything that others may see (engine_leg.h).
 * Invariant: engine_leg.c knows the child: its life, what it is told. engine_leg_requests.c knows
 *            what each request has said, and ends it.
 * Thread:    the loop's.
 */
#ifndef SHOAL_SERVE_ENGINE_LEG_STATE_H
#define SHOAL_SERVE_ENGINE_LEG_STATE_H

#include "base/list.h"
#include "base/map.h"
#include "base/proc.h"
#include "serve/engine_leg.h"
#include "serve/engine_submit.h"
#include "wire/pipe.h"

/* What one choice has given, for a resume. */
struct engine_leg_choice {
    struct buf ids;
    bool is_done;
};

struct engine_leg_request {
    struct list link;
    const struct api_request *rq;
    struct api_sink sink;
    struct api_order order;
    struct engine_leg_choice *choices;
    struct engine_submit *sending; /* what the pipe has not taken of it, or NULL */
    uint32_t choices_count, respawns;
    uint32_t credit;   /* bytes that the child may have again and was not told yet */
    bool is_submitted; /* to the child at hand */
    bool is_started;   /* the client has something of it */
    bool is_resumed;   /* ... which was told the ids it has */
    bool is_held;
};

struct engine_leg {
    struct engine_leg_options o;
    struct arena arena; /* texts of load */
    struct api_load load;
    struct proc proc;
    struct pipe *pipe;
    struct api_frame_reader reader;
    struct loop_timer tick, start;
    struct list requests; /* by arrival */
    struct map by_id;
    struct buf out;
    enum api_health_state state;
    struct err why;       /* of FAILED, RESTARTING; code NONE otherwise */
    enum api_fault fault; /* the class of why; NONE: by its code */
    struct api_loading loading;
    struct arena model_arena;
    struct api_model model; /* context_max 0: never loaded */
    uint64_t model_hash;
    struct api_beat beat;
    struct engine_leg_counts counts;
    struct buf stats;   /* JSON, of the child that there is */
    struct list drops;  /* engine_leg_drop that wait for the child's word */
    struct list looks;  /* engine_leg_look, likewise */
    uint64_t last_ask;  /* id of either */
    int64_t moved_ms;   /* when progress was seen last */
    int64_t heard_ms;   /* when a frame came last */
    int64_t healthy_ms; /* progress since the last start */
    uint32_t crashes, restarts, wedges;
    bool was_faulted, is_stopping;
    int64_t stop_ms; /* is_stopping: when it is killed */
};

/* --- engine_leg_requests.c --- */

/* NULL: none of that id. */
struct engine_leg_request *engine_leg_find(const struct engine_leg *l, uint64_t id);
/* NULL: no memory. */
struct engine_leg_request *engine_leg_remember(struct engine_leg *l, const struct api_request *rq,
                                               struct api_sink sink);
void engine_leg_forget(struct engine_leg *l, struct engine_leg_request *r);
/* The request's ERROR; it is forgotten before the reader hears of it. */
void engine_leg_fail(struct engine_leg *l, struct engine_leg_request *r, const struct err *why,
                     enum api_fault fault);
/* Ends every request that `which` names. A callback may submit or cancel: after each the list is
 * looked at anew. */
void engine_leg_fail_some(struct engine_leg *l, const struct err *why, enum api_fault fault,
                          bool (*which)(const struct engine_leg_request *r));
/* What the child says of a request, to its reader. False: it is not the protocol; ERR_MEMORY. */
BASE_USE_RESULT bool engine_leg_on_batch(struct engine_leg *l, const struct api_batch *from,
                                         struct arena *a, struct err *e);

#endif
