/* Gemma 3 (docs/models/gemma.md). The embedding is scaled by sqrt(d); there are norms before and
 * behind each part; five layers with a window and a small rope base, then one that sees all:
 *
 *     h += norm(o(attention(rope(norm(q x)), rope(norm(k x)), v x)))      x = norm(h)
 *     h += norm(down(gelu(gate x) * up x))                                x = norm(h)
 *
 * Files hold the norm weights as 1 + w already. */
#include <math.h>

#include "arch/block.h"

#define LAYERS_27B 62u /* the one size whose attention is scaled by d / heads, not by the head */

static bool read_hparams(struct hparams *hp, const struct model_file *f, struct err *e)
{
    uint32_t window;
    if (!block_read(hp, f, OP_ROPE_NEOX, e) ||
        !block_read_u32(f, ".attention.sliding_window", 1, 1u << 30, &window, e) ||
        !block_read_window(hp, f, window, 6, e) ||
        !block_read_f32_or(f, ".rope.freq_base_swa", 10000.0f, &hp->rope_window.base, e))
        return false;
    if (hp->n_layer == LAYERS_27B && !model_file_has(f, ".attention.scale"))
        hp->attn_scale = 1.0f / sqrtf((float)hp->n_embd / (float)hp->layers[0].n_head);
    hp->embed_scale = sqrtf((float)hp->n_embd);
    hp->glu.kind = OP_ACT_GELU_TANH;
    hp->has |= ARCH_HAS_QK_NORM;
    return true;
}

static bool build(struct plan *p, enum plan_kind kind, const struct hparams *hp, struct err *e)
{
    must(kind == PLAN_KIND_MAIN);
    struct view h = block_embed(p, hp);
    struct view x = block_norm(p, hp, 0, "attn_norm.weight", h);
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        struct view a = block_attention(p, hp, i, x);
        block_keep_answers(p, hp, i, &h, &a);
        a = block_norm(p, hp, i, "post_attention_norm.weight", a);
        struct op_sum_norm s = block_add(p, hp, h, a, i, "ffn_norm.weight");
        struct view y = block_ffn(p, hp, i, s.norm);
        y = block_norm(p, hp, i, "post_ffw_norm.weight", y);
        s = block_add(p, hp, s.sum, y, i + 1, "attn_norm.weight");
        h = s.sum;
        x = s.norm;
    }
    block_answer(p, hp, x);
    return plan_check(p, e);
}

static const char *const file_names[] = {"gemma3", NULL};
static const char *const ignored[] = {NULL};

const struct arch arch_gemma = {.name = "gemma",
                                .file_names = file_names,
                                .ignored = ignored,
                                .read_hparams = read_hparams,
                                .build = build};
