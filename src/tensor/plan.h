/* plan - a model as one flat, printable list of ops.
 *
 * Owns:      ops, values, wanted weights; which values may share scratch; the KV layout; the dump.
 * Not:       what an op computes (cpu/ref), a file's tensors (weights), which model it is (arch).
 * Invariant: built from hparams alone, so a model is sized from its header. After plan_finish the
 *            list never changes, each value is written once before it is read, and two values that
 *            live at the same time have different slots.
 *
 *     arch.build: plan_weight, op_*  ->  plan_expand (ops a backend lacks)  ->  plan_finish (slots)
 *
 *     slot 0   | h0     | h1          |        scratch of a step: for each slot
 *     slot 1   | x | q  | attn | x    |        width * the most rows of its kind * 4 bytes
 *
 * Thread:    one builds it at load; read by all afterwards.
 * Limits:    TENSOR_OPS_MAX, TENSOR_VALUES_MAX, the arena. Errors stick: the first one is kept,
 *            later calls do nothing, plan_expand and plan_finish report it.
 */
#ifndef SHOAL_TENSOR_PLAN_H
#define SHOAL_TENSOR_PLAN_H

#include "base/arena.h"
#include "tensor/kv_view.h"
#include "tensor/op.h"
#include "tensor/step.h"

enum plan_kind { PLAN_KIND_MAIN };

#define PLAN_SLOT_ALIGN 64u /* bytes; where each slot of the scratch begins */

struct plan_value {
    enum plan_rows rows;
    uint32_t width; /* columns; all values have 4 bytes per column */
    enum vtype type;
    uint32_t op_first, op_last; /* written by, last read by */
    uint16_t slot;
};

struct plan_weight {
    str name; /* as in GGUF: "blk.0.attn_q.weight"; NUL-terminated */
    struct weight_want want;
    uint16_t layer; /* or TENSOR_NONE: of none */
};

struct plan_slot {
    enum plan_rows rows;
    uint32_t width; /* the widest value that lies in it */
};

struct plan {
    enum plan_kind kind;
    struct op *ops;
    struct plan_value *values;
    struct plan_weight *weights;
    struct plan_slot *slots;
    uint32_t ops_count, values_count, weights_count, slots_count;
    uint32_t ops_size, values_size, weights_size, slots_size; /* room in the arrays */
    uint16_t logits, pooled; /* values that answer, or TENSOR_NONE */
    uint32_t vocab;          /* columns of logits, 0 without */
    /* Of a half (plan_split): values that are there before the first op, or read after the last. */
    uint16_t enter[PLAN_BORDER_MAX], leave[PLAN_BORDER_MAX];
    uint32_t enter_count, leave_count;
    bool is_finished, has_failed;
    struct err err; /* set if has_failed */
    struct arena *arena;
};

/* The arena holds everything and must live as long as the plan. */
void plan_init(struct plan *p, struct arena *a, enum plan_kind kind);

/* A new value of [rows][width]. Constructors call it; TENSOR_NONE once the plan has failed. */
uint16_t plan_value(struct plan *p, enum plan_rows rows, uint32_t width, enum vtype t);

/* A weight the file must have, by its canonical (GGUF) name. The same name twice is the same weight
 * (tied output); asking then for another shape is an error. */
uint16_t plan_weight(struct plan *p, const char *name, struct weight_want w);
/* "blk.LAYER.name" */
uint16_t plan_layer_weight(struct plan *p, uint32_t layer, const char *name,
                           struct weight_want w);
static inline struct weight_want plan_matrix(uint32_t rows, uint32_t cols)
{
    return (struct weight_want){WEIGHT_KIND_MATRIX, rows, cols, 1};
}
static inline struct weight_want plan_experts(uint32_t mats, uint32_t rows, uint32_t cols)
{
    return (struct weight_want){WEIGHT_KIND_MATRIX, rows, cols, mats};
}
static inline struct weight_want plan_vector(uint32_t n)
{
    return (struct weight_want){WEIGHT_KIND_VECTOR, 1, n, 1};
}

/* Checks the op by its row of op_table and appends it. */
void plan_append(struct plan *p, const struct op *o);
/* False with the plan's error if it has failed. */
bool plan_check(const struct plan *p, struct err *e) BASE_USE_RESULT;

/* Replaces fused ops that `have` lacks by their expansions. ERR_UNSUPPORTED if a plain one is
 * missing: no backend lacks one of those (a test walks op_table). */
bool plan_expand(struct plan *p, const struct op_set *have, struct err *e) BASE_USE_RESULT;

/* Removes nothing and reorders nothing: finds lifetimes, gives each value a slot. */
bool plan_finish(struct plan *p, struct err *e) BASE_USE_RESULT;

/* Halves of a finished plan: the ops before the first that reads a weight of `layer`, and the rest,
 * which has the answers. Both are initialised by the caller, share p's ops and weights, and are
 * finished. ERR_UNSUPPORTED: the plan's layers are not in order, or more than PLAN_BORDER_MAX
 * values live across. */
bool plan_split(const struct plan *p, uint32_t layer, struct plan *lower, struct plan *upper,
                struct err *e) BASE_USE_RESULT;

/* Rows that a value of this kind has at most, and the bytes of all slots under the limits. */
uint32_t plan_rows_max(enum plan_rows rows, const struct step_limits *m);
size_t plan_scratch_size(const struct plan *p, const struct step_limits *m);

/* Read off the kv_write and attn ops: one entry per layer, groups by window. False if a layer's
 * write and attention disagree or there are more windows than groups. */
bool plan_kv_layout(const struct plan *p, enum kv_type type, struct kv_layout *out,
                    struct err *e) BASE_USE_RESULT;

/* One line per op: number, layer, name, operands with their shapes, parameters, slots. */
void plan_dump(const struct plan *p, struct buf *out);

#endif
