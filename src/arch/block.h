/* block - what model families share: reading their numbers, attention, feed-forward, the answer.
 *
 * Owns:      the common keys of GGUF metadata with their defaults, builders of the usual parts of a
 *            decoder layer.
 * Not:       which parts a family has and in what order (arch_NAME.c), ops (tensor).
 * Invariant: a number that cannot be is refused where it is read, with its key. Builders use fused
 *            ops; plan_expand takes them apart for backends without them.
 * Thread:    load only.
 * Limits:    those of arch.h and tensor.h.
 * Source:    docs/models/.
 */
#ifndef SHOAL_ARCH_BLOCK_H
#define SHOAL_ARCH_BLOCK_H

#include "arch/arch.h"

/* ---- numbers ---- */

/* The keys nearly all decoders have: sizes, heads, eps, rope (kind given), experts, pooling, and
 * which optional tensors there are. Sets attn_scale 1/sqrt(dk), embed_scale 1, plain silu glu. */
bool block_read(struct hparams *hp, const struct model_file *f, enum op_rope_kind kind,
                struct err *e) BASE_USE_RESULT;
/* An integer key in [low, high]; absent: ERR_FORMAT, in the _or form `absent`. */
bool block_read_u32(const struct model_file *f, const char *key, uint32_t low, uint32_t high,
                    uint32_t *out, struct err *e) BASE_USE_RESULT;
bool block_read_u32_or(const struct model_file *f, const char *key, uint32_t high,
                       uint32_t absent, uint32_t *out, struct err *e) BASE_USE_RESULT;
/* A finite number above 0. */
bool block_read_f32_or(const struct model_file *f, const char *key, float absent, float *out,
                       struct err *e) BASE_USE_RESULT;
/* Layers with a window of `window` tokens, by attention.sliding_window_pattern: a number n (all but
 * each n-th) or a flag per layer; absent: `pattern`. */
bool block_read_window(struct hparams *hp, const struct model_file *f, uint32_t window,
                       uint32_t pattern, struct err *e) BASE_USE_RESULT;

/* ---- layers ---- */

/* token_embd.weight, times embed_scale. */
struct view block_embed(struct plan *p, const struct hparams *hp);
/* rms_norm by "blk.LAYER.name". */
struct view block_norm(struct plan *p, const struct hparams *hp, uint32_t layer, const char *name,
                       struct view x);
/* Projections, norm of heads, rope, cache, attention, output projection of the normed x. */
struct view block_attention(struct plan *p, const struct hparams *hp, uint32_t layer,
                            struct view x);
/* Feed-forward or experts of the normed x. */
struct view block_ffn(struct plan *p, const struct hparams *hp, uint32_t layer, struct view x);
/* In the last layer of a model with logits only rows that need an answer go on: both views then
 * have O rows. */
void block_keep_answers(struct plan *p, const struct hparams *hp, uint32_t layer, struct view *h,
                        struct view *a);
/* h + x and its norm by the weight that comes next: "blk.LAYER.name", behind the last layer
 * output_norm.weight. */
struct op_sum_norm block_add(struct plan *p, const struct hparams *hp, struct view h,
                             struct view x, uint32_t layer, const char *name);
/* From the last norm to the answer: logits, softcap, sample and lists; or pooling. */
void block_answer(struct plan *p, const struct hparams *hp, struct view x);
/* A whole decoder of layers with a norm before each part and none behind:
 *     h += attention(norm(h));  h += ffn(norm(h));     ffn_norm: the second norm's name */
void block_decoder(struct plan *p, const struct hparams *hp, const char *ffn_norm);

#endif
