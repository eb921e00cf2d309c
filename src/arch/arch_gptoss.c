/* gpt-oss (docs/models/gptoss.md). As Llama with experts, but: even layers have a window; a learnt
 * sink per head takes its share of each softmax; biases everywhere; the best k experts are chosen
 * by their logits, and the softmax runs over these k; the activation is clamped:
 *
 *     g = min(gate x, 7)   u = clamp(up x, -7, 7)   down(g * sigmoid(1.702 g) * (u + 1))
 *
 * The norm before the experts is called post_attention_norm. */
#include "arch/block.h"

static bool read_hparams(struct hparams *hp, const struct model_file *f, struct err *e)
{
    uint32_t window;
    if (!block_read(hp, f, OP_ROPE_NEOX, e) ||
        !block_read_u32(f, ".attention.sliding_window", 1, 1u << 30, &window, e) ||
        !block_read_window(hp, f, window, 2, e) ||
        !block_read_u32(f, ".expert_count", 1, OP_EXPERTS_MAX, &hp->n_expert, e))
        return false;
    hp->rope.is_truncated = false; /* YaRN with the exact bounds, from GGUF too */
    hp->rope_window = hp->rope;
    hp->gate = OP_GATE_CHOSEN;
    hp->expert_norm = false;
    hp->glu = (struct op_glu){
        .kind = OP_ACT_SILU, .alpha = 1.702f, .up_add = 1.0f, .clamp_gate = 7.0f, .clamp_up = 7.0f};
    hp->has |= ARCH_HAS_QKV_BIAS | ARCH_HAS_O_BIAS | ARCH_HAS_SINKS | ARCH_HAS_ROUTER_BIAS |
               ARCH_HAS_EXPERT_BIAS;
    return true;
}

static bool build(struct plan *p, enum plan_kind kind, const struct hparams *hp, struct err *e)
{
    must(kind == PLAN_KIND_MAIN);
    block_decoder(p, hp, "post_attention_norm.weight");
    return plan_check(p, e);
}

static const char *const file_names[] = {"gpt-oss", NULL};
static const char *const ignored[] = {NULL};

const struct arch arch_gptoss = {.name = "gptoss",
                                 .file_names = file_names,
                                 .ignored = ignored,
                                 .read_hparams = read_hparams,
                                 .build = build};
