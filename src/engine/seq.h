/* seq - one choice of one request, from its prompt to its end.
 *
 * Owns:      its tokens, the sampler's counts, its reader's state, waiting logprobs, why it ended.
 * Not:       when it runs and where its pages are counted (sched), pages themselves (kv_pool).
 * Invariant: kv_count tokens are stored in pages; ids[kv_count ..] are rows still to be computed,
 *            and the last of them is the row that is sampled. What a sequence says depends on its
 *            request and its tokens alone: feeding the same ids again gives the same state.
 *
 *     ids     | prompt ............ | reply ... |
 *     kv      |=========================|           rows of the next step: [kv_count, count)
 *
 *     QUEUED --slot--> PREFILL --last prompt row--> DECODE --end--> DONE
 *        ^________________|__________preempted________|
 *
 * Thread:    engine thread.
 * Limits:    context_max tokens; texts and logprobs held back: as output.h.
 */
#ifndef SHOAL_ENGINE_SEQ_H
#define SHOAL_ENGINE_SEQ_H

#include "chat/output.h"
#include "engine/prompt.h"
#include "engine/sampler.h"
#include "tensor/kv_view.h"

#define SEQ_SLOT_NONE UINT32_MAX
#define SEQ_PERIOD_MAX 128u /* BEHAVIOUR 8.7: the longest repeat that counts as a loop */

enum seq_state { SEQ_STATE_QUEUED, SEQ_STATE_PREFILL, SEQ_STATE_DECODE, SEQ_STATE_DONE };

/* What the tier has of its prompt: nobody looked, it waits for its turn, on its way, done. */
enum seq_tier { SEQ_TIER_NEW, SEQ_TIER_TURN, SEQ_TIER_RESTORING, SEQ_TIER_DONE };

/* The pages of one group, in position order; the arrays belong to the slot. */
struct seq_pages {
    uint32_t *pages;      /* [pages_max] */
    uint32_t first, count; /* pages[first .. count) are held; those before are behind the window */
};

/* What a step answered for the sequence's row. */
struct seq_sampled {
    int32_t id;
    float logprob;         /* raw */
    const int32_t *top_ids; /* raw list, raw_k entries, or NULL */
    const float *top_logits;
    float lse;             /* raw */
};

struct seq {
    struct list link; /* of the waiting line */
    struct job *job;
    uint32_t choice;
    enum seq_state state;
    uint32_t slot;
    struct buf ids; /* int32_t */
    uint32_t prompt_count, kv_count, context_max, loop_tokens;
    struct seq_pages pages[KV_GROUPS_MAX];
    struct sampler sampler;
    struct gram_mask *masks; /* NULL: the reply is free */
    struct gram_state gram;  /* where in its grammar it is */
    struct gram_state gram_next; /* ... behind the token gram_id, which is not fed yet */
    int32_t gram_id;
    struct output output;
    struct buf said;      /* struct api_event of the step at hand */
    struct buf logprobs;  /* struct seq_logprob of tokens whose text is not shown yet */
    struct buf probs;     /* struct api_logprob and struct api_top of the step at hand */
    uint32_t fed_count;   /* reply tokens that were given with the request; those of them that are
                           * not in ids yet are sampled again, silently, for their logprobs */
    uint32_t sent_count;  /* reply tokens that the endpoint knows by id */
    uint32_t used_count;  /* output tokens counted, fed ones included */
    uint32_t think_count; /* of them in reasoning */
    uint32_t forced_left; /* of reply.close_ids: the next tokens, whatever is sampled */
    uint16_t runs[SEQ_PERIOD_MAX + 1]; /* [p]: how long ids repeat with period p */
    uint16_t blanks;      /* blank tokens at the end */
    enum api_done done;
    str stop;             /* STOP_STRING: which */
    uint32_t preempted_count;
    bool is_parked;       /* preempted, and not admitted again */
    uint32_t adjust_max;  /* entries it may need in a step */
    uint32_t kept_count;  /* tokens whose full pages the trie has */
    uint64_t tried;       /* the scheduler's: round in which its admission was tried last */
    enum seq_tier tier;   /* ... of sched_tier */
    uint64_t expects;     /* ... admission whose prefix it waits for, 0: none */
    int64_t progress_ns;  /* when PROGRESS was said last */
};

struct seq_options {
    const struct vocab *vocab;
    uint32_t loop_tokens; /* 0: no guard */
    struct gram_mask *masks; /* where the job has a constraint */
};

/* Fills the prompt, then feeds what the reply already has; it may be DONE after that. s lies in the
 * job's arena. False: ERR_MEMORY, ERR_LIMIT, ERR_REQUEST (a stop string); s needs seq_deinit then,
 * too. */
BASE_USE_RESULT bool seq_init(struct seq *s, struct job *j, uint32_t choice,
                              const struct seq_options *o, struct err *e);
void seq_deinit(struct seq *s); /* holds no pages any more */

static inline const int32_t *seq_ids(const struct seq *s)
{
    return (const int32_t *)(const void *)s->ids.p;
}
static inline uint32_t seq_count(const struct seq *s)
{
    return (uint32_t)(s->ids.len / sizeof(int32_t));
}
static inline uint32_t seq_rows_left(const struct seq *s) { return seq_count(s) - s->kv_count; }
static inline uint32_t seq_reply_count(const struct seq *s)
{
    return seq_count(s) - s->prompt_count;
}

/* Of its reply, what the endpoint does not know by id: they lie at the end of ids. */
static inline uint32_t seq_unsent_count(const struct seq *s)
{
    uint32_t count = seq_reply_count(s);
    return count > s->sent_count ? count - s->sent_count : 0;
}

struct seq_said {
    int32_t id; /* the token taken: the sampled one, but where a budget of thinking is spent */
    const struct api_event *events;
    uint32_t events_count;
};
/* Takes the sampled token and says what may be told now: reasoning, text with the logprobs asked
 * for, calls; views into s until the next call. The state may become DONE. False: no memory; this
 * sequence must end with ERR_MEMORY. */
BASE_USE_RESULT bool seq_take(struct seq *s, const struct seq_sampled *r, struct seq_said *said);

#endif
