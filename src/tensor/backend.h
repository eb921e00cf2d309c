/* backend - a machine that can run plans: the lower narrow waist.
 *
 * Owns:      struct backend and the plain structs its functions take; the list of backends.
 * Not:       kernels, pages' owners (kv/kv_pool), which rows are in a step (engine/sched).
 * Invariant: calls come from one thread, in this order. A device error is sticky: after ERR_DEVICE
 *            only close may follow. No call reads a model file or keeps a pointer to the caller's
 *            memory but plan and step, which outlive prepared and wait.
 *
 *     open -> expect -> weight_load ... -> kv_init -> prepare
 *          -> { submit -> wait -> logits_row }* -> close
 *
 * Thread:    engine thread; loading may run on the thread that opened it.
 * Limits:    struct step_limits at prepare, pages and states at kv_init, memory_max at open.
 */
#ifndef SHOAL_TENSOR_BACKEND_H
#define SHOAL_TENSOR_BACKEND_H

#include "tensor/kv_view.h"
#include "tensor/op.h"
#include "tensor/step.h"

struct device;   /* of the backend */
struct prepared; /* a plan made ready by a backend */
struct plan;
struct weight; /* weights.h */

/* Form of a matmul's input. INT8: blocks of 32 or 256, a property of the weight type. INT16: two
 * int8 planes. AUTO: the backend's constant table by level and weight type. */
enum act { ACT_F32, ACT_INT8, ACT_INT16, ACT_COUNT, ACT_AUTO = ACT_COUNT };

/* The pages that go with it: f16 alone moves first ids of Qwen2.5 (docs/NUMBERS.md, 2026-11-29). */
static inline enum kv_type backend_kv_type(enum act a)
{
    return a == ACT_F32 ? KV_TYPE_F32 : KV_TYPE_F16;
}

struct device_options {
    const char *level;    /* at most this step of the staircase ("avx2"); NULL: the best there is */
    enum act act;
    uint32_t threads;     /* 0: measured */
    uint32_t ordinal;     /* which GPU */
    uint64_t memory_max;  /* bytes for weights, pages, scratch; 0: no limit of ours */
    bool is_counting;     /* takes nothing: weight_load with no rows, prepare and kv_init only count
                             in memory_used what they would take; nothing can be submitted */
};

struct device_info {
    char name[64];
    char level[16];
    char numerics[160]; /* numerics id: all that decides bits, ARCHITECTURE 5 */
    uint32_t threads;
    uint64_t memory_total, memory_used;
    uint64_t memory_free; /* of the device's own memory; 0: it has none, RAM counts */
    uint64_t memory_host; /* of memory_used: in RAM although the device has memory of its own */
};

struct backend {
    const char *name;
    const struct op_set *ops; /* ops it lacks are expanded */

    /* Whether this build and machine can run it; false: why not. NULL: they always can. */
    bool (*probe)(struct err *e);
    bool (*open)(struct device **d, const struct device_options *o, struct err *e);
    void (*close)(struct device *d); /* frees all that the device holds, prepared plans too */
    void (*info)(struct device *d, struct device_info *out);

    /* The plan whose weights come next; it must outlive the device. NULL: it need not be known. */
    bool (*expect)(struct device *d, const struct plan *p, struct err *e);

    /* rows [row_first, row_first + rows) of w, counted through all its matrices; src in the file's
     * type, dense. A piece ends its matrix or is a multiple of TENSOR_PIECE_ROWS, and is at most
     * TENSOR_PIECE_MAX bytes unless 16 rows are more. Pieces of a weight come once, in order; a
     * vector comes in one. rows 0: takes the weight's memory, src is NULL. */
    bool (*weight_load)(struct device *d, struct weight *w, size_t row_first, size_t rows,
                        const void *src, struct err *e);
    void (*weight_free)(struct device *d, struct weight *w);

    /* pages[group] pages of each group, `states` slots; contents zeroed. */
    bool (*kv_init)(struct device *d, const struct kv_layout *l, const uint32_t *pages,
                    uint32_t states, struct err *e);
    bool (*kv_get)(struct device *d, struct kv_ref r, void *dst, struct err *e);
    bool (*kv_set)(struct device *d, struct kv_ref r, const void *src, struct err *e);

    /* weights[i] is plan weight i, loaded. Both must outlive out. */
    bool (*prepare)(struct device *d, const struct plan *p, struct weight *weights,
                    const struct step_limits *m, struct prepared **out, struct err *e);
    bool (*submit)(struct device *d, struct prepared *p, const struct step *s, struct err *e);
    bool (*wait)(struct device *d, struct prepared *p, struct step_out *out, struct err *e);
    /* Counts while anything is computed; any thread may ask while d is open. For the heartbeat. */
    uint64_t (*progress)(const struct device *d);
    /* Raw logits of an output row, until the next submit: dst[vocab]. */
    bool (*logits_row)(struct device *d, struct prepared *p, uint32_t out_row, float *dst,
                       struct err *e);
};

/* In backend_table.c; best first. Ends with NULL. */
extern const struct backend *const backend_table[];
const struct backend *backend_table_find(str name); /* or NULL */
/* "auto" or "": the first that can run here; a name: that one, ERR_CONFIG when no backend has it,
 * else its own reason when it cannot run. NULL on error. */
const struct backend *backend_table_pick(str name, struct err *e);

#endif
