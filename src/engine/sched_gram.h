/* sched_gram - masks of a step, and the draw again when a token does not fit.
 *
 * Owns:      the cache of masks, the rows of step.mask, room for one row of logits.
 * Not:       grammars (constrain), a sequence's place in its own (seq), the chain up to the draw
 *            (sampler).
 * Invariant: the mask may allow too much; a token that does not fit is drawn again from exactly
 *            what does. What a sequence says stays a function of its request and its tokens.
 * Thread:    engine thread.
 * Limits:    made with the first request that has a grammar; SCHED_GRAM_MASKS bytes of masks, one
 *            row of each kind per output row.
 */
#ifndef SHOAL_ENGINE_SCHED_GRAM_H
#define SHOAL_ENGINE_SCHED_GRAM_H

#include "engine/constrain.h"
#include "engine/sampler.h"
#include "tensor/backend.h"

#define SCHED_GRAM_MASKS ((size_t)32 << 20)

struct seq;
struct sched_gram {
    struct arena arena;
    struct gram_mask *masks; /* NULL: no request had a grammar yet */
    uint32_t *rows;          /* [outs_max][words] */
    uint32_t words, logits_count;
    float *logits;           /* [logits_count] */
    struct sampler_item *items;
};

/* Before the first sequence of a job with a constraint. False: ERR_MEMORY. */
BASE_USE_RESULT bool sched_gram_open(struct sched_gram *g, const struct constraint *k,
                                     const struct step_limits *m, uint32_t logits_count,
                                     struct err *e);
void sched_gram_deinit(struct sched_gram *g); /* also after a zeroed struct */

/* step.mask of the sequences that get an answer; NULL: none of them has a grammar. */
const uint32_t *sched_gram_rows(struct sched_gram *g, struct seq *const *outs, uint32_t count);

/* What a draw again needs. */
struct sched_gram_draw {
    const struct backend *backend;
    struct device *device;
    struct prepared *prepared;
    const struct logit_adjust *adjust; /* of all rows */
    uint32_t adjust_count, row;
    struct sample_row sample;
};
/* *id, *logprob: what op sample drew, replaced if it does not fit; q knows then where it leads.
 * False: ERR_REQUEST, nothing that fits may be drawn; ERR_DEVICE. */
BASE_USE_RESULT bool sched_gram_pick(struct sched_gram *g, struct seq *q,
                                     const struct sched_gram_draw *d, int32_t *id, float *logprob,
                                     struct err *e);

#endif
