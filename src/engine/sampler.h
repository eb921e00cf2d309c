/* sampler - what one sequence asks of the op `sample`: its row, and how its logits are adjusted.
 *
 * Owns:      the chain of BEHAVIOUR 7.2 up to the draw: bias, bans, penalties and their counts.
 *            The whole chain once more for a draw again (sched_gram).
 * Not:       filters and the draw (op sample), grammars (constrain), text (output).
 * Invariant: a pure function of the request, the tokens so far and the position in the reply; so a
 *            reply goes on bit-equal wherever it was cut. Adjustments of one id stand in the order
 *            bias or ban, repeat penalty, then frequency and presence.
 *
 *     ids:  prompt ........ | reply ......      window: the last repeat_last of both
 *                     [---- window ------]      reply counts: frequency, presence
 *
 * Thread:    engine thread.
 * Limits:    sampler_adjust_max entries per row, known at init.
 */
#ifndef SHOAL_ENGINE_SAMPLER_H
#define SHOAL_ENGINE_SAMPLER_H

#include "api/api_request.h"
#include "base/map.h"
#include "tensor/step.h"
#include "text/vocab.h"

struct sampler {
    const struct api_request *rq;
    const struct vocab *vocab;
    uint64_t seed;
    uint32_t reply_count; /* tokens of the reply so far: the next one's position */
    uint32_t window_max;  /* 0: no repeat penalty */
    struct map window, reply; /* id -> times; reply only where a penalty needs it */
};

/* For one choice. rq and vocab must outlive s. */
void sampler_init(struct sampler *s, const struct api_request *rq, const struct vocab *v,
                  uint32_t choice);
void sampler_deinit(struct sampler *s);

/* Most entries that sampler_adjust may write for a sequence of at most context_max tokens. */
uint32_t sampler_adjust_max(const struct api_request *rq, const struct vocab *v,
                            uint32_t context_max);

/* Token ids[count - 1] was appended; is_reply: it was sampled, here or
 * in the turn that the request goes on with, else it is prompt. False: no memory
 * (ERR_MEMORY ends this request alone). */
BASE_USE_RESULT bool sampler_add(struct sampler *s, const int32_t *ids, uint32_t count,
                                 bool is_reply);

/* The next token's row: draw 0; lists of raw_k entries where logprobs are asked for. */
struct sample_row sampler_row(const struct sampler *s);
/* Writes entries for output row `row`; returns their number, at most max (ours to keep). */
uint32_t sampler_adjust(const struct sampler *s, uint32_t row, struct logit_adjust *out,
                        uint32_t max);

struct sampler_item {
    double p;
    float logit;
    int32_t id;
};
/* A draw as op sample's, by its definition (cpu/ref/ref_sample.c), from logits[count] that are
 * adjusted already; only ids whose bit in mask is 1. items[count] is scratch. -1: there is none. */
int32_t sampler_redraw(const struct sample_row *row, const float *logits, uint32_t count,
                       const uint32_t *mask, struct sampler_item *items);

#endif
