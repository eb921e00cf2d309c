/* cuda_run - what the files that turn ops into launches share.
 *
 * Owns:      where a value, a weight and a view of the plan at hand lie on the device; how a kernel
 *            is launched.
 * Not:       which kernel serves an op (its users), what kernels compute (.cu).
 * Invariant: a launch says nothing about when: the step's stream orders all of them.
 * Thread:    the engine's.
 */
#ifndef SHOAL_CUDA_CUDA_RUN_H
#define SHOAL_CUDA_CUDA_RUN_H

#include "cuda/cuda_device.h"

/* ---- cuda_run.c ---- */
/* Rows of a value in the step at hand; where it lies, 0 for TENSOR_NONE. */
uint32_t cuda_run_rows(const struct prepared *p, uint16_t value);
cuda_ptr cuda_run_value(const struct prepared *p, uint16_t value);
struct cuda_view cuda_run_view(const struct prepared *p, struct view v);
const struct cuda_weight *cuda_run_weight(const struct prepared *p, uint16_t w);
cuda_ptr cuda_run_vector(const struct prepared *p, uint16_t w); /* f32; 0 for TENSOR_NONE */
struct cuda_grid cuda_run_grid(uint32_t x, uint32_t y, uint32_t threads);
bool cuda_run_launch(struct prepared *p, cuda_function f, struct cuda_grid g, const void *args,
                     struct err *e);
struct cuda_rope_args cuda_run_rope_args(const struct prepared *p, struct op_rope r, struct view x,
                                         uint32_t index);

/* ---- cuda_mul.c ---- */
/* The form that the products behind op `index` want of its output `value`: its kernel makes that
 * too. All zero: nobody wants one. */
struct cuda_act_args cuda_mul_fuse_act(struct prepared *p, uint32_t index, uint16_t value);
/* Is op `index` a product of what the glu before it makes, and nobody else reads that? */
bool cuda_mul_is_glu_input(const struct plan *plan, uint32_t index);
/* Can be read and written in fours. */
bool cuda_mul_is_wide(struct cuda_view v);
/* left: ops from o on; count: how many of them this launch served. */
bool cuda_mul_matmul(struct prepared *p, const struct op *o, uint32_t left, uint32_t *count,
                     struct err *e);
/* Gate and up of a glu have different types: a product each. */
bool cuda_mul_is_apart(const struct prepared *p, const struct op *o);
bool cuda_mul_matmul_glu(struct prepared *p, const struct op *o, struct err *e);
bool cuda_mul_route(struct prepared *p, const struct op *o, struct err *e);
bool cuda_mul_experts(struct prepared *p, const struct op *o, uint32_t ranks,
                      const struct op_glu *glu, struct err *e);
bool cuda_mul_moe_sum(struct prepared *p, const struct op *o, struct err *e);

/* ---- cuda_attend.c ---- */
bool cuda_attend_kv_write(struct prepared *p, const struct op *o, struct err *e);
bool cuda_attend_rope_qk(struct prepared *p, const struct op *o, uint32_t index, struct err *e);
bool cuda_attend_op(struct prepared *p, const struct op *o, uint32_t index, struct err *e);

#endif
