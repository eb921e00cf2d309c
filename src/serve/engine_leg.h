/* engine_leg - one model in one engine child, as a provider; and the child's supervisor.
 *
 * Owns:      the child process, its pipe, the requests it was given and what they have said, the
 *            decision when a child is dead, wedged or not worth another try.
 * Not:       which leg a request goes to (route), how a reply is written (dialect), when a model is
 *            loaded or unloaded (residency).
 * Invariant: a request that was taken gets its whole reply or one ERROR, whatever happens to the
 *            child: not started, it is submitted again; started, it goes on from the exact ids that
 *            the client has, so that the rest is bit-equal. Batches come only from the loop.
 *            One that others may take over (hands_back) gets its ERROR with the first child that is
 *            lost: ENGINE_CRASH, or ENGINE_WEDGED when that was killed for standing still.
 *
 *     STARTING --LOADED--> READY --crash, stall--> RESTARTING --0 1 2 4 8 s--> STARTING
 *        |                                             | five crashes in a row
 *        +--FAULT before the first LOADED--> FAILED <--+   (a crash loop is tried again after 60 s)
 *     any --stop--> (the child ends) --> STOPPED
 *
 * Thread:    the endpoint's loop.
 * Limits:    requests_max; a request survives ENGINE_LEG_RESPAWNS_MAX children.
 */
#ifndef SHOAL_SERVE_ENGINE_LEG_H
#define SHOAL_SERVE_ENGINE_LEG_H

#include "api/api_frame.h"
#include "api/api_provider.h"
#include "base/list.h"
#include "wire/loop.h"

#define ENGINE_LEG_RESPAWNS_MAX 2u
#define ENGINE_LEG_CRASHES_MAX 5u

struct engine_leg;
struct engine_leg_options {
    struct loop *loop;
    const struct api_load *load; /* copied */
    str build_id;                /* the child must be the same build; must outlive the leg */
    const char *const *argv;     /* of the child: "shoal", "engine", NULL */
    int64_t engine_stall_ms, load_stall_ms; /* no progress for so long: killed */
    uint32_t requests_max;
    uint32_t credit_step; /* bytes in one CREDIT, well below the child's own credit; 0: 64 KiB */
    /* Prefixes that each child computes first (serve/public), whose model is "" or this one's name;
     * they outlive the leg. */
    const struct api_request *prefixes;
    uint32_t prefixes_count;
    /* Something that health or models tell has changed; may be NULL. From the loop. */
    void (*on_change)(void *ctx);
    void *ctx;
};

/* Starts the child and its load. */
BASE_USE_RESULT bool engine_leg_open(struct engine_leg **out, const struct engine_leg_options *o,
                                     struct err *e);
/* Asks the child to end and kills it after grace_ms; does not wait. on_change tells when it is gone
 * and its memory is back: health says STOPPED then. Requests it still has end with ERR_ENGINE, new
 * ones are refused. */
void engine_leg_stop(struct engine_leg *l, int64_t grace_ms);
/* Asks the child to end, waits at most grace_ms, then kills it: its memory is back when this
 * returns. Requests it still has get nothing any more. Not from a callback. NULL is allowed. */
void engine_leg_close(struct engine_leg *l, int64_t grace_ms);

struct api_provider engine_leg_provider(struct engine_leg *l);
/* The pin of that name is off, behind whatever was submitted before. */
void engine_leg_unpin(struct engine_leg *l, str name);

/* Cached pages that the child is asked to give up, and who waits to hear how many; the caller's
 * memory, linked (list_init before) until on_done or a list_remove. */
struct engine_leg_drop {
    struct list link;
    uint64_t id;
    void (*on_done)(void *ctx, const struct api_dropped *dropped); /* NULL: the child is gone */
    void *ctx;
};
/* False: there is no child that serves. d NULL: nobody waits. */
BASE_USE_RESULT bool engine_leg_drop(struct engine_leg *l, const struct api_drop *what,
                                     struct engine_leg_drop *d);

/* Where the pages of prefixes lie, as the child is asked; the caller's memory, as above. places: a
 * byte of enum api_place for each, in order; "": nobody can tell. */
struct engine_leg_look {
    struct list link;
    uint64_t id;
    void (*on_done)(void *ctx, str places);
    void *ctx;
};
/* False: there is no child that serves. */
BASE_USE_RESULT bool engine_leg_look(struct engine_leg *l, const struct api_look *what,
                                     struct engine_leg_look *k);

/* Other limits of standing still, from now on. */
void engine_leg_set_stalls(struct engine_leg *l, int64_t engine_ms, int64_t load_ms);
/* Bytes of the load so far; total 0: not known yet. */
struct api_loading engine_leg_loading(const struct engine_leg *l);
/* Over all children since open. */
struct engine_leg_counts {
    uint64_t preemptions, recomputed_tokens;
    uint64_t spill_read_bytes, spill_written_bytes, spill_bad_sums;
};
void engine_leg_counts_add(struct engine_leg_counts *to, const struct engine_leg_counts *more);
struct engine_leg_counts engine_leg_counts(const struct engine_leg *l);
/* The last heartbeat. */
const struct api_beat *engine_leg_beat(const struct engine_leg *l);
str engine_leg_stats(const struct engine_leg *l); /* the last STATS, or "": valid until the next */
int engine_leg_pid(const struct engine_leg *l); /* 0: no child at this moment */

#endif
