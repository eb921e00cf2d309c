/* Llama 2 and 3, Mistral, Mixtral, SmolLM2 and what else files call "llama"; Qwen2
 * (docs/models/llama.md). One layer, h the residual stream:
 *
 *     x = norm(h)   h += o(attention(rope(q x), rope(k x), v x))
 *     x = norm(h)   h += down(silu(gate x) * up x), or the experts chosen for x
 *
 * Biases, stacked experts and divisors of rope frequencies are taken as the file has them. Qwen2
 * turns other pairs than Llama and has biases on q, k, v. */
#include "arch/block.h"

static bool read_hparams(struct hparams *hp, const struct model_file *f, struct err *e)
{
    bool is_qwen2 = str_eq_z(model_file_arch(f), "qwen2");
    uint32_t window;
    if (!block_read(hp, f, is_qwen2 ? OP_ROPE_NEOX : OP_ROPE_NORM, e) ||
        !block_read_u32_or(f, ".attention.sliding_window", 1u << 30, 0, &window, e))
        return false;
    for (uint32_t i = 0; i < hp->n_layer; i++) /* Mistral 7B v0.1: in every layer */
        hp->layers[i].window = window;
    hp->rope_window = hp->rope;
    return true;
}

static bool build(struct plan *p, enum plan_kind kind, const struct hparams *hp, struct err *e)
{
    must(kind == PLAN_KIND_MAIN);
    block_decoder(p, hp, "ffn_norm.weight");
    return plan_check(p, e);
}

static const char *const file_names[] = {"llama", "qwen2", NULL};
/* Frequencies that old converters wrote although they follow from the keys. */
static const char *const ignored[] = {"blk.*.attn_rot_embd", "blk.*.attn_rot_embd.weight", NULL};

const struct arch arch_llama = {.name = "llama",
                                .file_names = file_names,
                                .ignored = ignored,
                                .read_hparams = read_hparams,
                                .build = build};
