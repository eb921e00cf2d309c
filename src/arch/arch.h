/* arch - model families: from a file's metadata to a plan.
 *
 * Owns:      struct arch, struct hparams, the list of families (arch_table.c).
 * Not:       machines (a family never knows which), tokens, templates, the cache.
 * Invariant: build reads hparams only, so a model is sized without its weights. A file whose keys
 *            or tensors do not fit gets one sentence naming the key or tensor.
 *
 *     model_file --arch_find--> row --read_hparams--> hparams --build--> plan
 *
 * Thread:    load only; the table is constant.
 * Limits:    ARCH_LAYERS_MAX layers; each number is checked where it is read.
 * Source:    docs/models/, a page per family.
 */
#ifndef SHOAL_ARCH_ARCH_H
#define SHOAL_ARCH_ARCH_H

#include "fmt/model_file.h"
#include "tensor/plan.h"

#define ARCH_LAYERS_MAX 512u

enum arch_scaling { ARCH_SCALING_NONE, ARCH_SCALING_LINEAR, ARCH_SCALING_YARN };

/* Optional tensors, one bit each: set if layer 0 has it (then every layer must). */
enum arch_has {
    ARCH_HAS_OUTPUT = 1 << 0,      /* output.weight; else tied to token_embd */
    ARCH_HAS_ROPE_FREQS = 1 << 1,  /* rope_freqs.weight */
    ARCH_HAS_QKV_BIAS = 1 << 2,    /* attn_q.bias and the like */
    ARCH_HAS_O_BIAS = 1 << 3,
    ARCH_HAS_MLP_BIAS = 1 << 4,
    ARCH_HAS_QK_NORM = 1 << 5,
    ARCH_HAS_SINKS = 1 << 6,
    ARCH_HAS_FUSED_QKV = 1 << 7,   /* attn_qkv.weight, rows q, k, v */
    ARCH_HAS_ROUTER_BIAS = 1 << 8, /* ffn_gate_inp.bias */
    ARCH_HAS_EXPERT_BIAS = 1 << 9, /* ffn_gate_exps.bias and the like */
};

struct arch_rope {
    enum op_rope_kind kind;
    uint32_t n_rot;
    float base;
    enum arch_scaling scaling;
    float factor;      /* of the scaling */
    float attn_factor; /* 1 by default */
    float beta_fast, beta_slow, ext;
    uint32_t n_ctx_orig;
    bool is_truncated; /* YaRN bounds are whole numbers */
};

struct arch_layer {
    uint32_t n_head, n_head_kv, n_ff;
    uint32_t window; /* 0: all of the past */
};

struct hparams {
    const struct arch *arch;
    uint32_t n_layer, n_embd, n_vocab;
    uint32_t n_ctx;  /* as trained */
    uint32_t dk, dv; /* columns per head */
    float eps;
    uint32_t has;    /* enum arch_has */
    struct arch_rope rope, rope_window; /* rope_window: of layers with a window */
    float attn_scale, attn_softcap, final_softcap, embed_scale; /* a softcap of 0: none */
    struct op_glu glu;
    uint32_t n_expert, n_expert_used, n_ff_expert; /* n_expert 0: no experts */
    uint32_t expert_groups, expert_groups_used;    /* 1, 1: no grouping */
    enum op_gate gate;
    bool expert_norm; /* the weights of the chosen sum to 1 */
    float expert_scale;
    bool is_causal, has_pooling; /* pooling: the answer is a vector, there are no logits */
    enum op_pool pooling;
    struct arch_layer layers[ARCH_LAYERS_MAX];
};

struct arch {
    const char *name; /* "llama": docs/models/llama.md, tests/golden/llama/ */
    const char *const *file_names; /* GGUF architectures, NULL-terminated */
    const char *const *ignored;    /* globs of tensors that may lie unused in a file, NULL-term. */
    /* Keys that read_hparams takes though block_read refuses them from all others (check_unknown in
     * block.c has the list): ".logit_scale"; NULL-terminated, or NULL: none. */
    const char *const *honoured;
    /* Fills hp (zeroed by arch_read). ERR_FORMAT, ERR_UNSUPPORTED name the key. */
    bool (*read_hparams)(struct hparams *hp, const struct model_file *f, struct err *e);
    /* Appends the whole model to an empty plan; the caller expands and finishes it. */
    bool (*build)(struct plan *p, enum plan_kind kind, const struct hparams *hp, struct err *e);
};

extern const struct arch *const arch_table[]; /* ends with NULL */

/* The family of an architecture as files spell it, or NULL. */
const struct arch *arch_find(str file_name);
/* Finds the family and reads its numbers. ERR_UNSUPPORTED: "architecture 'x' is not supported". */
bool arch_read(struct hparams *hp, const struct model_file *f, struct err *e) BASE_USE_RESULT;

#endif
