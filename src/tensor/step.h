/* step - everything that one run of a plan reads, and what it answers.
 *
 * Owns:      nothing; it views arrays of the scheduler (two sets, used in turn).
 * Not:       who is in the step (engine/sched), what is done with the answer (engine/sampler).
 * Invariant: a sequence's rows are adjacent and in order of position; seq[] counts from 0 and does
 *            not fall; kv.len[s] = position of the last row of s, plus 1. Ids lie in [0, vocab).
 *            out_rows rises. What is in here never changes what another row gets (ARCHITECTURE 5).
 *
 *     row      0    1 2 3 4      5          out_rows  0 4 5
 *     seq      0    1 1 1 1      2          decode, the end of a prompt, decode
 *
 * Thread:    engine thread; stays as it is from submit to wait.
 * Limits:    struct step_limits, given to backend.prepare.
 */
#ifndef SHOAL_TENSOR_STEP_H
#define SHOAL_TENSOR_STEP_H

#include "tensor/kv_view.h"

/* logit of `id` in output row `row`: x > 0 ? x / factor : x * factor; then + add. Applied in array
 * order; rows ascend. factor 1 and add 0 change nothing; add may be -INFINITY (a ban). */
struct logit_adjust {
    uint32_t row; /* 0 .. outs-1 */
    int32_t id;
    float factor, add;
};

/* How one output row is sampled, and which lists it wants back. */
struct sample_row {
    uint64_t seed;
    uint32_t position;  /* of the token within the reply */
    uint32_t draw;      /* 0; +1 each time the draw before was refused */
    float temperature;  /* 0: the largest logit, lowest id of equals */
    float typical_p, top_p, min_p; /* 1, 1, 0: off */
    uint32_t top_k;                /* 0: off */
    uint32_t k, raw_k;  /* entries wanted of the adjusted and the raw list, <= top_max */
};

/* Values of a row per token that a half of a plan hands to the other (plan_split). */
#define PLAN_BORDER_MAX 4u

struct step {
    uint32_t rows, seqs, outs;
    const int32_t *ids;      /* [rows] */
    const int32_t *pos;      /* [rows] position in the sequence */
    const int32_t *aux;      /* [rows] second index, or NULL */
    const uint16_t *seq;     /* [rows] */
    const uint32_t *out_rows; /* [outs] rows that need an answer */
    const uint32_t *mask;    /* [outs][(vocab + 31) / 32], bit 1 = allowed; or NULL */
    struct kv_view kv;
    const struct kv_copy *copies;
    uint32_t copies_count;
    const struct logit_adjust *adjust;
    uint32_t adjust_count;
    const struct sample_row *sample; /* [outs] */
    const float *const *enter;       /* [plan.enter_count] of [rows][width]: a half's; else NULL */
};

/* The most a step may hold; sizes scratch and answers once, at load. */
struct step_limits {
    uint32_t rows_max, seqs_max, outs_max;
    uint32_t top_max;                   /* entries of a row of the lists */
    uint32_t pages_max[KV_GROUPS_MAX];  /* row length of kv.pages */
    const struct kv_layout *layout;     /* where prepare comes before kv_init; else NULL */
};

/* Views into the backend's memory, valid until the next submit; NULL where the plan has no such
 * op. */
struct step_out {
    const int32_t *ids;     /* [outs] sampled; -1: no logit of the row is a number above -inf */
    const float *logprob;   /* [outs] of ids, raw distribution */
    const int32_t *top_ids; /* [outs][top_max] after adjust and mask: value falls, then id rises */
    const float *top_val;   /*   their logits; behind the row's k: id -1 */
    const int32_t *raw_ids; /* [outs][top_max] before adjust and mask */
    const float *raw_val;
    const float *lse;       /* [outs][2] log of the sum of exp: raw, adjusted; where a list is */
    const float *pooled;    /* [seqs][pooled_width] */
    const float *leave[PLAN_BORDER_MAX]; /* [plan.leave_count] of [rows][width] */
};

#endif
