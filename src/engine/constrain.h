/* constrain - from a request to the one grammar that its reply follows.
 *
 * Owns:      which grammar a format needs, the compiled ones by hash, the vocabulary's index.
 * Not:       grammars (grammar), what a sequence does with one (seq, sched_gram), markers' texts
 *            (chat/output_table).
 * Invariant: fails closed: what cannot be compiled is the client's error, with pointer and keyword;
 *            never a reply without constraint. Compiling is over before the request queues.
 *
 *     request -> key -> compiled before? -> gram (shared, counted) -> job -> sequences
 *                          no: schema, pattern, choice -> gram
 *
 * Thread:    prep thread; what it makes is immutable and goes along with the job.
 * Limits:    CONSTRAIN_KEPT_MAX compiled grammars, CONSTRAIN_BYTES_MAX and CONSTRAIN_MS_MAX for
 *            each; gram_schema.h, gram_dfa.h.
 */
#ifndef SHOAL_ENGINE_CONSTRAIN_H
#define SHOAL_ENGINE_CONSTRAIN_H

#include "engine/constrain_tools.h"
#include "grammar/gram_mask.h"

#define CONSTRAIN_KEPT_MAX 64u
#define CONSTRAIN_BYTES_MAX ((size_t)64 << 20)
#define CONSTRAIN_MS_MAX 1000

struct constrain;

/* What a job carries. Zeroed: none. */
struct constraint {
    struct gram *gram;              /* a reference of its own; NULL: the reply is free */
    const struct gram_index *index;
    const struct api_note *notes;   /* keywords left out */
    uint32_t notes_count;
};

/* v must outlive it. NULL: no memory. */
struct constrain *constrain_new(const struct vocab *v);
void constrain_free(struct constrain *c); /* NULL is fine */

/* Fills out; texts of notes lie in a; ask->dropped is ours. ERR_REQUEST with code bad_schema: what
 * cannot be compiled. */
BASE_USE_RESULT bool constrain_make(struct constrain *c, const struct constrain_ask *ask,
                                    struct arena *a, struct constraint *out, struct api_error *e);
void constrain_drop(struct constraint *k); /* also after a zeroed struct */

#endif
