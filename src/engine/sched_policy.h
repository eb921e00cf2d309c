/* sched_policy - who runs, with how many rows, who waits, who gives way: decisions without state.
 *
 * Owns:      the order of the waiting line, the share of a step, the victim of a full pool.
 * Not:       pages and steps (sched), clocks: times are arguments.
 * Invariant: pure functions of their views. What they decide changes when a reply comes, never what
 *            it says.
 *
 *     step:  | d d d d | p p p p p p p p p p |      d: one row per decoding sequence, first
 *                        the first prompt's rows; a short one may go ahead with at most half
 *
 * Thread:    any.
 * Limits:    none of its own.
 */
#ifndef SHOAL_ENGINE_SCHED_POLICY_H
#define SHOAL_ENGINE_SCHED_POLICY_H

#include "api/api_event.h"

/* BEHAVIOUR 8.1, 8.2 */
#define SCHED_POLICY_LIFT_MS 30000     /* so much waiting lifts a request one class */
#define SCHED_POLICY_LOOKAHEAD 64u     /* tried behind a head that does not fit */
#define SCHED_POLICY_BYPASS_MAX 32u    /* then nothing passes the head any more */
#define SCHED_POLICY_BYPASS_MS 10000
#define SCHED_POLICY_SHORT_ROWS 2048u  /* a prompt that may go ahead of a longer one */
#define SCHED_POLICY_SHORT_SHARE 8u    /* ... of which it is at most 1/8 */
#define SCHED_POLICY_ROWS_MIN 32u      /* prompt rows beside decoders, at least */
#define SCHED_POLICY_PREEMPT_MAX 3u    /* times that one sequence gives way */
#define SCHED_POLICY_IDLE_MS 20        /* of a step of class idle */
#define SCHED_POLICY_IDLE_ROWS 16u     /* ... which has at least so many rows */

/* ---- the waiting line ---- */
struct sched_waiting {
    enum api_priority priority;
    int64_t waited_ms;
    double key_service, service; /* weighted tokens: its key has had, its agent */
    uint64_t order; /* of arrival */
    bool was_preempted; /* head of its class */
};
/* Whether a goes before b. */
bool sched_policy_before(const struct sched_waiting *a, const struct sched_waiting *b);
/* Whether requests may still pass a head that does not fit. */
bool sched_policy_may_pass(uint32_t bypassed, int64_t blocked_ms);

/* ---- a step ---- */
struct sched_runner {
    uint32_t rows_left; /* rows not computed yet; a decoder has 1 */
    bool is_decoder;
    bool is_held;       /* its reader stalls */
    uint64_t admitted;  /* order of admission */
};
struct sched_pace {
    double decode_ms;    /* of a step with decoders alone; 0: not measured */
    double row_ms;       /* of one prompt row beside them; 0: not measured */
    double target_ms;    /* 0: auto = 2.5 x decode_ms */
    uint32_t batch;      /* rows of a step when nobody decodes */
};
/* Prompt rows that a step may hold beside `decoders` decoding sequences. */
uint32_t sched_policy_chunk(const struct sched_pace *p, uint32_t decoders);
/* Fills rows[count]: how many rows each runner gets; returns their sum, at most rows_max. */
uint32_t sched_policy_rows(const struct sched_runner *r, uint32_t count, uint32_t chunk,
                           uint32_t rows_max, uint32_t *rows);

/* ---- work that nobody waits for ---- */
/* Prompt rows of a step of class idle: whoever comes meanwhile waits for its end. */
uint32_t sched_policy_idle_rows(const struct sched_pace *p);
/* How long to rest after a step of so many ns, so that such steps take `permille` of the time. */
int64_t sched_policy_idle_rest(int64_t step_ns, uint32_t permille);

/* ---- a full pool ---- */
struct sched_victim {
    enum api_priority priority;
    uint32_t recompute; /* tokens to compute again */
    uint64_t admitted;
    uint32_t preempted_count;
};
/* The sequence that gives way, or count: none may. needs: whose growth finds no page; it goes
 * itself when everyone else is of a higher class. */
uint32_t sched_policy_victim(const struct sched_victim *v, uint32_t count, uint32_t needs);

/* ---- what is kept ---- */
/* What a conversation weighs when its turn has ended: KV_TRIE_WEIGHT (kv/kv_trie.h). */
uint32_t sched_policy_weight(enum api_done done, bool has_session);

/* ---- a prefix in the tier ---- */
struct sched_restore {
    double bytes, bytes_per_s;   /* to be read; as measured, 0: not yet */
    double tokens, tokens_per_s; /* that need not be computed then */
};
/* Whether reading them is faster than computing them. Unmeasured rates are worth a try. */
bool sched_policy_restores(const struct sched_restore *r);

/* Whether a prompt of so many rows may go ahead of one that has so many left. */
static inline bool sched_policy_is_short(uint32_t rows, uint32_t left)
{
    return rows <= SCHED_POLICY_SHORT_ROWS && rows <= left / SCHED_POLICY_SHORT_SHARE;
}

#endif
