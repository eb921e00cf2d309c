/* attempt_state - struct attempt, and what the two files of it say to each other.
 *
 * Owns:      the struct.
 * Not:       anything that others may see (attempt.h).
 * Invariant: attempt.c asks legs and ends; attempt_hear.c passes on what the leg at hand says.
 * Thread:    the loop's.
 */
#ifndef SHOAL_SERVE_ATTEMPT_STATE_H
#define SHOAL_SERVE_ATTEMPT_STATE_H

#include "route/transcript.h"
#include "serve/attempt.h"

#define ATTEMPT_SHARES_MAX 8u

/* One leg's share of the reply. */
struct attempt_share {
    const struct legs_leg *leg;
    char reason[48]; /* why it ended, "" for the last one */
    uint32_t tokens;
};

struct attempt {
    struct legs *legs;
    struct legs_generation *g;
    const struct api_request *rq;
    struct api_sink sink;
    const struct router_route *route;
    struct leg_needs needs;
    struct legs_leg *at[ROUTER_LEGS_MAX]; /* in the order of asking */
    str models[ROUTER_LEGS_MAX];
    bool tried[ROUTER_LEGS_MAX];
    uint32_t count;
    uint64_t key;
    struct transcript script;
    bool has_script, is_back; /* is_back: it came through this server already */
    struct arena keep, arena, scratch; /* request's; attempt's; batch's */
    struct loop_timer timer;
    int64_t wait_ms;  /* when it began to wait for a leg, 0: it did not */

    int now;          /* index in at; -1: none */
    uint32_t number;  /* attempts so far */
    struct api_request sub;
    struct api_resume resume;
    struct api_provider provider; /* of the leg at hand, a drill's fault over it */
    bool is_trial, is_retried, is_heard, is_resumed;
    int64_t begun_ms, token_ms;
    bool is_struck, had_other, is_delay_told; /* by a drill */
    int64_t said_ms; /* when a leg that may be struck gave something last */
    uint32_t tokens_before;

    struct api_error why; /* what a client is told when nobody is left */
    enum health_class why_class, class_; /* class_: of the last end */
    char first_reason[48]; /* why the route's first leg does not answer */
    struct attempt_share shares[ATTEMPT_SHARES_MAX];
    uint32_t shares_count, choices_done, prompt_tokens;
    bool is_started, is_held, is_dead;
    bool has_told; /* an answer that cannot be gone on with: an embedding, tokens */
    uint32_t depth;
};

/* --- attempt.c --- */

struct legs_leg *attempt_leg(const struct attempt *a); /* at hand; NULL: none */
/* Nobody hears of it any more. */
void attempt_end(struct attempt *a);
void attempt_free(struct attempt *a);
/* False: the reader cancelled from inside; a is gone or about to go. */
BASE_USE_RESULT bool attempt_tell(struct attempt *a, struct api_batch *b);
/* The leg at hand has ended so; e: what it said, or NULL. */
void attempt_leave(struct attempt *a, enum health_class c, const struct api_error *e);
/* The end of a request that a drill had struck. */
void attempt_count_struck(struct attempt *a, enum rehearsal_end end);
/* The leg at hand failed: another one, a retry, or the client's error. a may be gone afterwards. */
void attempt_on_error(struct attempt *a, const struct api_error *error);
/* The route's shadow reads along: the prompt (reply NULL), then the reply that the client has. */
void attempt_warm(const struct attempt *a, const struct transcript *reply);

/* --- attempt_hear.c --- */

/* A leg's batch: an api_sink's on_batch. */
void attempt_hear_batch(void *ctx, const struct api_batch *b);
/* The leg at hand has said its part of the reply; why it ended, "" for the last one. */
void attempt_hear_share_end(struct attempt *a, const char *reason);

#endif
