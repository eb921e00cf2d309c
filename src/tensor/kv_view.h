/* kv_view - attention's memory as ops see it: pages, state slots, and how they are laid out.
 *
 * Owns:      the names of pages and slots within one step, and the layout read off a plan.
 * Not:       who holds a page, when it is freed (kv/kv_pool), its bytes (backends).
 * Invariant: token p of a sequence lies in page p / 32 of its row, slot p % 32. Layers whose
 *            attention has the same window share a group; group 0 is the one without a window, if
 *            there is one. A page of a group holds K and V of all its layers for 32 tokens.
 *
 *     pages[g][s * pages_max[g] + i]:  row of sequence s   | 7 | 3 | 12 | NONE | ...
 *                                      positions            0-31 32-63 ...
 *
 * Thread:    engine thread builds it; valid for one step.
 * Limits:    KV_GROUPS_MAX groups, TENSOR_LAYERS_MAX layers.
 */
#ifndef SHOAL_TENSOR_KV_VIEW_H
#define SHOAL_TENSOR_KV_VIEW_H

#include "tensor/tensor.h"

#define KV_GROUPS_MAX 4u
#define KV_PAGE_TOKENS 32u
#define KV_PAGE_NONE 0xffffffffu /* not there: behind a window, or not yet needed */
#define KV_STATE_NONE 0xffffu

/* F32 goes with float activations, the reference mode. INT8: half the bytes of f16; x = scale *
 * code, one f16 scale per token and head for K, one for V. */
enum kv_type { KV_TYPE_F16, KV_TYPE_F32, KV_TYPE_INT8, KV_TYPE_COUNT };

static inline const char *kv_type_name(enum kv_type t)
{
    return t == KV_TYPE_F16 ? "f16" : t == KV_TYPE_F32 ? "f32" : "int8";
}
/* Bytes of one number. */
static inline size_t kv_type_size(enum kv_type t)
{
    return t == KV_TYPE_F16 ? 2 : t == KV_TYPE_F32 ? 4 : 1;
}
/* Bytes of one head's K, or V, in a page: its numbers, with INT8 also 32 scales. */
static inline size_t kv_head_size(enum kv_type t, uint32_t columns)
{
    return KV_PAGE_TOKENS * (columns * kv_type_size(t) + (t == KV_TYPE_INT8 ? 2 : 0));
}

struct kv_layer {
    uint16_t layer;       /* op.layer */
    uint16_t group;       /* of pages */
    uint16_t index;       /* among the layers of its group */
    uint16_t heads;       /* of K and V */
    uint32_t dk, dv;      /* columns per head */
    size_t offset;        /* bytes from the page's start: K of the layer, then its V */
};

struct kv_layout {
    enum kv_type type;
    uint32_t layers_count, groups_count;
    struct kv_layer layers[TENSOR_LAYERS_MAX]; /* in plan order */
    uint32_t window[KV_GROUPS_MAX];            /* tokens; 0: all */
    size_t page_size[KV_GROUPS_MAX];           /* bytes of a page, all layers of the group */
};

struct kv_view {
    const uint32_t *pages[KV_GROUPS_MAX]; /* [S][pages_max] in position order */
    uint32_t pages_max[KV_GROUPS_MAX];    /* row length of pages */
    const uint32_t *len;       /* [S] tokens stored once this step's rows are in */
    const uint16_t *state_in;  /* [S] slot read; NULL without recurrent layers */
    const uint16_t *state_out; /* [N] slot that gets the state after this row, or KV_STATE_NONE */
};

/* Copies page `from` to `to` before the first op of a step. */
struct kv_copy {
    uint32_t group, from, to;
};

/* A page of a group, or a state slot (is_state): what kv_get and kv_set move. */
struct kv_ref {
    bool is_state;
    uint32_t group, index;
};

#endif
