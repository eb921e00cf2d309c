/* halves - one model on two devices: the first layers on one, the rest and the answer on the other.
 *
 * Owns:      halves_backend, whose device is two devices; the halves of the plan, their weights and
 *            pages' layouts; what is handed from one to the other within a step.
 * Not:       which layers go where (the engine says how many), ops, pages' owners.
 * Invariant: each half runs as a plan of its own on its backend; values that live across the border
 *            are copied once a step, unchanged. A page has the same number on both devices and
 *            holds there what its layers need. So bits are those of the two backends, and with
 *            the same backend twice those of the whole plan.
 *
 *     plan   | embed, layers 0 .. k-1 |  sum, delta  | layers k .. n-1, head, sample |
 *              lower: RAM, the CPU     -- copied -->   upper: a GPU
 *     page   | lower's layers                        | upper's layers                |
 *
 * Thread:    as struct backend; progress any.
 * Limits:    PLAN_BORDER_MAX values across; HALVES_ARENA_MAX for plans and tables.
 */
#ifndef SHOAL_TENSOR_HALVES_H
#define SHOAL_TENSOR_HALVES_H

#include "tensor/backend.h"

#define HALVES_ARENA_MAX ((size_t)64 << 20)

extern const struct backend halves_backend;

struct halves_parts {
    const struct backend *lower, *upper;
    struct device *lower_device, *upper_device;
    uint32_t layers;  /* the last so many are the upper's */
    bool is_counting; /* both only count */
};

/* A device of halves_backend out of two open ones; takes both, also when it fails. Calls go on with
 * halves_backend; its open is never used. */
BASE_USE_RESULT bool halves_join(struct device **out, const struct halves_parts *p, struct err *e);

/* First layer of the upper half, once it has a plan. */
uint32_t halves_first(const struct device *d);

#endif
