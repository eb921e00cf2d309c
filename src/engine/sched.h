/* sched - the engine thread's work: admit sequences, pack a step, run it, emit what it said.
 *
 * Owns:      the waiting line, the slots, the arrays of struct step, jobs from submit to their end.
 * Not:       decisions (sched_policy), tokens to text (seq), bytes of frames (engine_host), pages'
 *            counts (kv_pool), what is kept of them (kv_trie), the device (whoever opened it).
 * Invariant: a running sequence has a slot and holds exactly the pages of its kv_count tokens and
 *            of the rows of the step at hand. Each choice ends once; a job is freed with its last
 *            choice, its error or its cancel, and nothing is emitted for it afterwards.
 *            A full pool costs time, never a request: the victim waits and is computed again. Pages
 *            go to the trie after a complete step and are never written again. Who shares a long
 *            prefix with a prompt under way waits for it.
 *
 *     submit -> waiting line -> slot: PREFILL -> DECODE -> DONE -> free
 *                    ^------------- preempted ---/
 *     step: admit | rows per runner | pages | submit | wait | take tokens | emit
 *
 * Thread:    engine thread. Batches go to the sink from inside sched_step and sched_submit.
 * Limits:    step_limits at init: slots, rows of a step; SCHED_ADJUST_MAX logit adjustments a step.
 */
#ifndef SHOAL_ENGINE_SCHED_H
#define SHOAL_ENGINE_SCHED_H

#include "base/chrono.h"
#include "base/mem.h"
#include "engine/miss_heads.h"
#include "engine/sched_gram.h"
#include "engine/sched_pins.h"
#include "engine/sched_policy.h"
#include "engine/sched_share.h"
#include "engine/sched_tier.h"
#include "engine/seq.h"
#include "kv/kv_trie.h"
#include "tensor/backend.h"

#define SCHED_ADJUST_MAX (1u << 20)
#define SCHED_RESERVE_TOKENS 256u /* BEHAVIOUR 8.1: room for so much of a reply at admission */

struct sched_options {
    const struct backend *backend;
    struct device *device;
    struct prepared *prepared;
    struct step_limits limits;
    const struct kv_layout *layout;
    struct kv_pool *pool;
    struct kv_trie *trie;       /* NULL: no prefix reuse */
    struct miss_heads *misses;  /* what agents read last; NULL: misses are not told */
    struct kv_tier *tier;       /* NULL: pages live as long as the pool has room */
    const struct vocab *vocab;
    uint32_t logits_count;      /* ids of a row of logits; 0: no grammars */
    struct mem *mem;            /* arrays come from here */
    struct chrono clock;
    struct api_sink sink;
    str model;                  /* for STARTED */
    uint64_t model_hash;
    int64_t load_ns;            /* how long the load took, for the first requests' usage */
    uint32_t loop_tokens;
    double step_target_ms;      /* 0: auto */
    uint32_t pin_permille;      /* cache.pin_quota */
    uint32_t reserve_tokens;    /* SCHED_RESERVE_TOKENS; less overcommits the pool */
    int64_t credit;             /* bytes a request may be ahead of its reader; 0: endless */
    uint32_t idle_permille;     /* of the time for requests of class idle; 0: they are refused */
};

struct sched_stats {
    uint64_t steps, tokens_done; /* rows computed */
    uint32_t running, waiting;
    uint64_t tokens_waiting;     /* prompt tokens not computed, of both */
    uint64_t preemptions, recomputed_tokens;
    uint64_t admitted, prompt_tokens, reused_tokens; /* prompt_tokens: of those admitted */
    uint64_t plan_ns, compute_ns, take_ns; /* of all steps: before, on and behind the device */
    double prefill_tokens_per_s, decode_tokens_per_s; /* recent */
    bool is_prefilling;
};

/* One step's arrays. */
struct sched_set {
    int32_t *ids, *pos;
    uint16_t *seq;
    uint32_t *out_rows, *len;
    uint32_t *pages[KV_GROUPS_MAX];
    struct sample_row *sample;
    struct logit_adjust *adjust;
    struct seq **outs;   /* [outs] who waits for the answer */
    uint32_t rows_count, seqs_count, outs_count, adjust_count, decoders_count;
};

struct sched {
    struct sched_options o;
    struct list waiting; /* seq.link, by arrival */
    struct list jobs;    /* job.link */
    struct seq **slots;  /* [seqs_max] or NULL */
    struct sched_runner *runners;
    struct sched_victim *victims;
    struct seq **victim_seqs;
    uint32_t *rows;      /* [seqs_max] of the step at hand */
    struct seq_pages *slot_pages; /* [seqs_max][groups] */
    struct sched_set set;
    struct sched_gram gram;
    struct sched_tier tier;
    struct sched_pins pins;
    struct buf events;   /* struct api_event of the batch at hand */
    struct sched_pace pace;
    struct sched_stats stats;
    struct sched_share *shares;
    uint64_t arrivals, admissions, rounds;
    uint64_t *admitted;  /* [seqs_max] order of admission */
    uint64_t adjust_reserved;
    const struct seq *blocked; /* head that does not fit, since when, passed how often */
    int64_t blocked_ms;
    uint32_t bypassed;
    int64_t idle_ns; /* no step of class idle before */
};

BASE_USE_RESULT bool sched_init(struct sched *s, const struct sched_options *o, struct err *e);
void sched_deinit(struct sched *s); /* frees every job without a word */

/* Takes the job over: prompt_make has succeeded. Jobs of class idle are here only while there are
 * no others: one that comes later, and all when somebody comes, end with ERR_CANCELLED. What they
 * had computed stays in the trie. */
void sched_submit(struct sched *s, struct job *j);
/* Unknown ids are ignored: the request has just ended. */
void sched_cancel(struct sched *s, uint64_t id);
void sched_hold(struct sched *s, uint64_t id, bool on);
void sched_credit(struct sched *s, uint64_t id, uint32_t bytes);
void sched_unpin(struct sched *s, str context);

enum sched_result { SCHED_RESULT_IDLE, SCHED_RESULT_WORKED, SCHED_RESULT_LOST };
/* One step. IDLE: nothing can run until something is submitted, released or cancelled, or until
 * sched_rest_ms has passed. LOST: the device failed for good; e says why. */
BASE_USE_RESULT enum sched_result sched_step(struct sched *s, struct err *e);
/* Until class idle may run again; negative: it is not what is waited for. */
int64_t sched_rest_ms(const struct sched *s);

/* ---- sched_room.c, for sched.c: slots and pages ---- */

/* Fills free slots in the order of the policy, with what the trie has of each prompt. */
void sched_admit(struct sched *s);
/* Back to the waiting line. */
void sched_wait(struct sched *s, struct seq *q);
/* q was preempted, or is admitted again: told when it is the first, or the last, of its job. */
void sched_park(struct sched *s, struct seq *q, bool on);
/* Lets the tier do its share of a step. */
void sched_turn_tier(struct sched *s);
/* Gives back slot and pages. */
void sched_release(struct sched *s, struct seq *q);
/* Hands what is computed to the trie; is_whole: nothing is written behind it any more. Returns the
 * node of the last token, or KV_NODE_NONE. */
uint32_t sched_keep(struct sched *s, struct seq *q, bool is_whole);
/* Most pages of a group that a sequence of so many tokens holds at once. */
uint32_t sched_need(const struct sched *s, uint32_t group, uint32_t tokens);
/* Cuts s->rows to what there are pages for; somebody may have to give way. Returns their sum; 0:
 * all are held, or nobody is there. */
uint32_t sched_give_pages(struct sched *s);
/* Gives back pages behind the windows. */
void sched_drop_behind(struct sched *s, struct seq *q);

#endif
