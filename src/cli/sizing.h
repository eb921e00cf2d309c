/* sizing - does a model fit this machine, without loading it?
 *
 * Owns:      the budgets, the three verdicts (BEHAVIOUR 4.7), the machine as `fit` shows it.
 * Not:       what a model needs: plan, weights and cache are counted by the engine's own code
 *            (model_plan, engine/budget); what a hub has (store).
 * Invariant: memory that cannot be found out is 0 and said to be unknown, never guessed.
 * Thread:    main.
 * Limits:    none of its own.
 */
#ifndef SHOAL_CLI_SIZING_H
#define SHOAL_CLI_SIZING_H

#include "base/json.h"
#include "base/machine.h"
#include "tensor/backend.h"

#define SIZING_RAM_KEEP ((uint64_t)1 << 30)
#define SIZING_GPU_KEEP ((uint64_t)512 << 20)
#define SIZING_TOKENS 8192u /* of context that a comfortable model has */

enum sizing_verdict {
    SIZING_UNKNOWN,
    SIZING_COMFORTABLE, /* at most 70 % of the budget */
    SIZING_TIGHT,
    SIZING_TOO_LARGE,
    SIZING_NONE, /* there is no such memory */
};

struct sizing {
    struct machine machine;
    bool has_gpu;
    struct device_info gpu;
    struct err no_gpu; /* why there is none */
    uint64_t ram, vram; /* budgets, bytes */
};

void sizing_read(struct sizing *s);
enum sizing_verdict sizing_judge(uint64_t budget, uint64_t need);
const char *sizing_verdict_name(enum sizing_verdict v); /* "comfortable" "tight" ... */

/* cache(sequences * context, sequences): bytes of the pages that so many conversations hold. */
uint64_t sizing_cache(const struct kv_layout *l, uint32_t sequences, uint32_t context);
/* The same for a model known by its shape alone: layers that all look at the whole past, f16. */
uint64_t sizing_cache_of(uint32_t layers, uint32_t kv_heads, uint32_t head_dim,
                         uint32_t context);

/* Cells of a table, padded by columns of a terminal. */
void sizing_add_cell(struct buf *out, str text, uint32_t width);
void sizing_add_size_cell(struct buf *out, uint64_t bytes, uint32_t width);

#endif
