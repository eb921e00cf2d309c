/* Qwen3, dense and mixture of experts, and Qwen3-Embedding (docs/models/qwen3.md). As Llama, but
 * each head of q and k gets an RMS norm of its own before rope, heads have a size of their own
 * (128), and there are no biases. The mixture has experts in every layer: softmax over all, the
 * best k, their weights made to sum to 1. */
#include "arch/block.h"

static bool read_hparams(struct hparams *hp, const struct model_file *f, struct err *e)
{
    bool is_moe = str_eq_z(model_file_arch(f), "qwen3moe");
    if (!block_read(hp, f, OP_ROPE_NEOX, e))
        return false;
    if (is_moe != (hp->n_expert > 0))
        return err_set(e, ERR_FORMAT, "%.*s: key '.expert_count' is %u for architecture '%.*s'",
                       STR_ARG(model_file_name(f)), hp->n_expert, STR_ARG(model_file_arch(f)));
    hp->has |= ARCH_HAS_QK_NORM;
    return true;
}

static bool build(struct plan *p, enum plan_kind kind, const struct hparams *hp, struct err *e)
{
    must(kind == PLAN_KIND_MAIN);
    block_decoder(p, hp, "ffn_norm.weight");
    return plan_check(p, e);
}

static const char *const file_names[] = {"qwen3", "qwen3moe", NULL};
static const char *const ignored[] = {NULL};

const struct arch arch_qwen3 = {.name = "qwen3",
                                .file_names = file_names,
                                .ignored = ignored,
                                .read_hparams = read_hparams,
                                .build = build};
