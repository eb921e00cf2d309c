/* budget - how many pages, sequences and tokens of context a load gets from the bytes there are.
 *
 * Owns:      the arithmetic of BEHAVIOUR 8.10 and the sentence when something does not fit.
 * Not:       reading the machine (base/machine), taking memory (mem, backends).
 * Invariant: pure. One sequence of context_max tokens always fits the pool alone, so the only
 *            runner never waits for a page. Explicit values are taken as given or refused.
 *
 *     available  |  keep  |       spendable = min(half, all - 2 GiB), at least a quarter       |
 *                         |       of a GPU: 90 % of all - 512 MiB                              |
 *                         | window groups: per sequence | without a window: the rest in pages |
 *
 * Thread:    any.
 * Limits:    BUDGET_SLOTS_MAX sequences, BUDGET_ROWS_MAX rows of a step.
 */
#ifndef SHOAL_ENGINE_BUDGET_H
#define SHOAL_ENGINE_BUDGET_H

#include "base/err.h"
#include "tensor/kv_view.h"

#define BUDGET_SLOTS_AUTO 64u
#define BUDGET_SLOTS_MAX 1024u
#define BUDGET_BATCH_AUTO 512u
#define BUDGET_BATCH_GPU 2048u /* auto on a GPU */
#define BUDGET_BATCH_MIN 32u
#define BUDGET_BATCH_MAX 8192u

struct budget_in {
    uint64_t available;     /* bytes that the machine has free beside weights and scratch */
    uint64_t memory_max;    /* limit for the pool from above (the ledger's), 0: none */
    uint32_t n_ctx;         /* as trained */
    uint32_t context, slots, batch; /* explicit, 0: auto */
    const struct kv_layout *layout;
    bool is_gpu;            /* available is a GPU's own memory */
};

struct budget {
    uint32_t context_max; /* tokens of one conversation */
    uint32_t slots, batch;
    uint32_t rows_max;    /* of a step: batch beside a row per slot */
    uint32_t pages[KV_GROUPS_MAX];
    uint32_t pages_max[KV_GROUPS_MAX]; /* of one sequence, by position */
    uint64_t pool_bytes;
};

/* ERR_MEMORY with the arithmetic, ERR_CONFIG for explicit values out of range. */
BASE_USE_RESULT bool budget_make(const struct budget_in *in, struct budget *out, struct err *e);

/* Bytes that all pages together may take of what is available. */
uint64_t budget_spendable(const struct budget_in *in);

/* Pages of group that a sequence of so many tokens holds at once, with steps of rows_max rows. */
uint32_t budget_pages(const struct kv_layout *l, uint32_t group, uint64_t tokens,
                      uint32_t rows_max);
/* Bytes of the pool that one more token of a long conversation takes: groups without a window. */
uint64_t budget_token_size(const struct kv_layout *l);

#endif
