#include "arch/block.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- numbers ---- */

bool block_read_u32(const struct model_file *f, const char *key, uint32_t low, uint32_t high,
                    uint32_t *out, struct err *e)
{
    uint32_t x;
    if (!model_file_u32(f, key, &x, e))
        return false;
    if (x < low || x > high)
        return err_set(e, ERR_FORMAT, "%.*s: key '%s' is %u, allowed are %u to %u",
                       STR_ARG(model_file_name(f)), key, x, low, high);
    *out = x;
    return true;
}

bool block_read_u32_or(const struct model_file *f, const char *key, uint32_t high,
                       uint32_t absent, uint32_t *out, struct err *e)
{
    if (model_file_has(f, key))
        return block_read_u32(f, key, 0, high, out, e);
    *out = absent;
    return true;
}

bool block_read_f32_or(const struct model_file *f, const char *key, float absent, float *out,
                       struct err *e)
{
    float x;
    if (!model_file_f32_or(f, key, absent, &x, e))
        return false;
    if (!(x > 0.0f) || isinf(x))
        return err_set(e, ERR_FORMAT, "%.*s: key '%s' is %g, needed is a number above 0",
                       STR_ARG(model_file_name(f)), key, (double)x);
    *out = x;
    return true;
}

/* 0 means what absence means. */
static bool read_off_or_positive(const struct model_file *f, const char *key, float absent,
                                 float *out, struct err *e)
{
    float x;
    if (!model_file_f32_or(f, key, absent, &x, e))
        return false;
    if (x == 0.0f) {
        *out = absent;
        return true;
    }
    return block_read_f32_or(f, key, absent, out, e);
}

static bool has_tensor(const struct model_file *f, const char *name)
{
    return model_file_tensor(f, str_of(name)) != NULL;
}

/* Rows of the embedding; vocab_size is often absent and sometimes without the padding. */
static bool read_vocab(struct hparams *hp, const struct model_file *f, struct err *e)
{
    const struct model_tensor *t = model_file_tensor(f, STR("token_embd.weight"));
    if (!t)
        return err_set(e, ERR_FORMAT, "%.*s: tensor 'token_embd.weight' is missing",
                       STR_ARG(model_file_name(f)));
    if (t->dims[1] == 0 || t->dims[1] > TENSOR_WIDTH_MAX)
        return err_set(e, ERR_LIMIT, "%.*s: tensor 'token_embd.weight' has %llu rows, at most %u",
                       STR_ARG(model_file_name(f)), (unsigned long long)t->dims[1],
                       TENSOR_WIDTH_MAX);
    hp->n_vocab = (uint32_t)t->dims[1];
    return true;
}

static bool read_layers(struct hparams *hp, const struct model_file *f, struct err *e)
{
    static const char *const keys[] = {".attention.head_count", ".attention.head_count_kv",
                                       ".feed_forward_length"};
    uint32_t rows[3][ARCH_LAYERS_MAX];
    for (size_t k = 0; k < countof(keys); k++) {
        if (k == 1 && !model_file_has(f, keys[k])) {
            memcpy(rows[1], rows[0], sizeof rows[0]);
            continue;
        }
        if (!model_file_u32_layers(f, keys[k], rows[k], hp->n_layer, e))
            return false;
        for (uint32_t i = 0; i < hp->n_layer; i++)
            if (rows[k][i] == 0 || rows[k][i] > TENSOR_WIDTH_MAX)
                return err_set(e, ERR_FORMAT, "%.*s: key '%s' is %u in layer %u",
                               STR_ARG(model_file_name(f)), keys[k], rows[k][i], i);
    }
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        if (rows[0][i] > UINT16_MAX || rows[0][i] % rows[1][i])
            return err_set(e, ERR_FORMAT,
                           "%.*s: %u query heads cannot share %u key heads in layer %u",
                           STR_ARG(model_file_name(f)), rows[0][i], rows[1][i], i);
        hp->layers[i] =
            (struct arch_layer){.n_head = rows[0][i], .n_head_kv = rows[1][i], .n_ff = rows[2][i]};
    }
    return true;
}

static bool read_heads(struct hparams *hp, const struct model_file *f, struct err *e)
{
    uint32_t n_head = hp->layers[0].n_head;
    if (!model_file_has(f, ".attention.key_length") && hp->n_embd % n_head)
        return err_set(e, ERR_FORMAT, "%.*s: embedding_length %u is no multiple of %u heads",
                       STR_ARG(model_file_name(f)), hp->n_embd, n_head);
    if (!block_read_u32_or(f, ".attention.key_length", 1024, hp->n_embd / n_head, &hp->dk, e) ||
        !block_read_u32_or(f, ".attention.value_length", 1024, hp->dk, &hp->dv, e))
        return false;
    if (hp->dk == 0 || hp->dk > 1024 || hp->dv == 0)
        return err_set(e, ERR_FORMAT, "%.*s: heads of %u and %u columns, allowed are 1 to 1024",
                       STR_ARG(model_file_name(f)), hp->dk, hp->dv);
    return read_off_or_positive(f, ".attention.scale", 1.0f / sqrtf((float)hp->dk),
                                &hp->attn_scale, e) &&
           read_off_or_positive(f, ".attn_logit_softcapping", 0.0f, &hp->attn_softcap, e) &&
           read_off_or_positive(f, ".final_logit_softcapping", 0.0f, &hp->final_softcap, e);
}

static bool read_scaling(struct arch_rope *r, const struct model_file *f, struct err *e)
{
    str type;
    float factor;
    if (!model_file_str_or(f, ".rope.scaling.type", STR("linear"), &type, e) ||
        !block_read_f32_or(f, ".rope.scale_linear", 1.0f, &factor, e) ||
        !block_read_f32_or(f, ".rope.scaling.factor", factor, &factor, e) ||
        !block_read_f32_or(f, ".rope.scaling.attn_factor", 1.0f, &r->attn_factor, e))
        return false;
    if (str_eq_z(type, "none") || (str_eq_z(type, "linear") && factor == 1.0f))
        return true;
    r->factor = factor;
    if (str_eq_z(type, "linear")) {
        r->scaling = ARCH_SCALING_LINEAR;
        return true;
    }
    if (!str_eq_z(type, "yarn"))
        return err_set(e, ERR_UNSUPPORTED, "%.*s: rope scaling '%.*s' is not supported",
                       STR_ARG(model_file_name(f)), STR_ARG(type));
    r->scaling = ARCH_SCALING_YARN;
    r->is_truncated = true;
    return block_read_u32(f, ".rope.scaling.original_context_length", 1, 1u << 30, &r->n_ctx_orig,
                          e) &&
           block_read_f32_or(f, ".rope.scaling.yarn_attn_factor", r->attn_factor, &r->attn_factor,
                             e) &&
           block_read_f32_or(f, ".rope.scaling.yarn_beta_fast", 32.0f, &r->beta_fast, e) &&
           block_read_f32_or(f, ".rope.scaling.yarn_beta_slow", 1.0f, &r->beta_slow, e);
}

static bool read_rope(struct hparams *hp, const struct model_file *f, enum op_rope_kind kind,
                      struct err *e)
{
    struct arch_rope *r = &hp->rope;
    *r = (struct arch_rope){.kind = kind, .factor = 1.0f, .attn_factor = 1.0f};
    if (!block_read_u32_or(f, ".rope.dimension_count", hp->dk, hp->dk, &r->n_rot, e) ||
        !block_read_f32_or(f, ".rope.freq_base", 10000.0f, &r->base, e))
        return false;
    if (r->n_rot == 0 || r->n_rot % 2 || !(r->base > 1.0f))
        return err_set(e, ERR_FORMAT, "%.*s: rope over %u columns with base %g cannot be",
                       STR_ARG(model_file_name(f)), r->n_rot, (double)r->base);
    if (has_tensor(f, "rope_factors_long.weight") || has_tensor(f, "rope_factors_short.weight"))
        return err_set(e, ERR_UNSUPPORTED, "%.*s: rope scaling 'longrope' is not supported",
                       STR_ARG(model_file_name(f)));
    hp->rope_window = *r;
    return read_scaling(r, f, e);
}

/* ---- experts ---- */

static bool read_gate(struct hparams *hp, const struct model_file *f, struct err *e)
{
    static const enum op_gate gates[] = {OP_GATE_SOFTMAX, OP_GATE_SIGMOID, OP_GATE_CHOSEN,
                                         OP_GATE_SQRT_SOFTPLUS};
    uint32_t gate;
    if (!model_file_has(f, ".expert_gating_func"))
        return true;
    if (!block_read_u32(f, ".expert_gating_func", 1, countof(gates), &gate, e))
        return false;
    hp->gate = gates[gate - 1];
    return true;
}

static bool read_experts(struct hparams *hp, const struct model_file *f, struct err *e)
{
    if (!block_read_u32_or(f, ".expert_count", OP_EXPERTS_MAX, 0, &hp->n_expert, e))
        return false;
    hp->expert_groups = hp->expert_groups_used = 1;
    if (hp->n_expert == 0)
        return true;
    return block_read_u32(f, ".expert_used_count", 1, hp->n_expert, &hp->n_expert_used, e) &&
           block_read_u32_or(f, ".expert_feed_forward_length", TENSOR_WIDTH_MAX,
                             hp->layers[0].n_ff, &hp->n_ff_expert, e) &&
           block_read_u32_or(f, ".expert_group_count", OP_EXPERTS_MAX, 1, &hp->expert_groups,
                             e) &&
           block_read_u32_or(f, ".expert_group_used_count", OP_EXPERTS_MAX, 1,
                             &hp->expert_groups_used, e) &&
           read_off_or_positive(f, ".expert_weights_scale", 1.0f, &hp->expert_scale, e) &&
           model_file_bool_or(f, ".expert_weights_norm", true, &hp->expert_norm, e) &&
           read_gate(hp, f, e);
}

static bool is_honoured(const struct arch *a, const char *key)
{
    for (size_t i = 0; a->honoured && a->honoured[i]; i++)
        if (strcmp(a->honoured[i], key) == 0)
            return true;
    return false;
}

/* Keys that change what a model computes: other than off they make it another model, unless its
 * family says that it honours them. */
static bool check_unknown(const struct arch *a, const struct model_file *f, struct err *e)
{
    static const struct {
        const char *key;
        float off; /* besides 0 */
    } keys[] = {
        {".logit_scale", 1},
        {".residual_scale", 1},
        {".embedding_scale", 1},
        {".use_parallel_residual", 0},
        {".attention.clamp_kqv", 0},
        {".attention.max_alibi_bias", 0},
        {".attention.temperature_scale", 0},
        {".attention.output_scale", 1},
        {".attention.value_scale", 1},
        {".attention.shared_kv_layers", 0},
        {".router_logit_softcapping", 0},
        {".rope.scaling.yarn_log_multiplier", 0},
        {".expert_shared_count", 0},
        {".leading_dense_block_count", 0},
        {".interleave_moe_layer_step", 1},
    };
    for (size_t i = 0; i < countof(keys); i++) {
        struct model_value v;
        if (is_honoured(a, keys[i].key) || !model_file_find(f, keys[i].key, &v))
            continue;
        double x = v.type == MODEL_TYPE_BOOL                               ? v.b
                   : v.type == MODEL_TYPE_F32 || v.type == MODEL_TYPE_F64 ? v.f64
                   : v.type == MODEL_TYPE_STRING || v.type == MODEL_TYPE_ARRAY
                       ? NAN
                       : (double)v.u64; /* a negative number is not off either */
        if (x != 0.0 && x != (double)keys[i].off)
            return err_set(e, ERR_UNSUPPORTED,
                           "%.*s: key '%s' (%g) is not supported for architecture '%.*s'",
                           STR_ARG(model_file_name(f)), keys[i].key, x,
                           STR_ARG(model_file_arch(f)));
    }
    return true;
}

static bool read_pooling(struct hparams *hp, const struct model_file *f, struct err *e)
{
    uint32_t type;
    if (!model_file_bool_or(f, ".attention.causal", true, &hp->is_causal, e) ||
        !block_read_u32_or(f, ".pooling_type", 4, 0, &type, e))
        return false;
    hp->has_pooling = type != 0;
    if (type == 4)
        return err_set(e, ERR_UNSUPPORTED, "%.*s: pooling by rank is not supported",
                       STR_ARG(model_file_name(f)));
    hp->pooling = type == 1 ? OP_POOL_MEAN : type == 2 ? OP_POOL_FIRST : OP_POOL_LAST;
    return true;
}

static void note_tensors(struct hparams *hp, const struct model_file *f)
{
    static const struct {
        const char *name;
        enum arch_has has;
    } tensors[] = {
        {"output.weight", ARCH_HAS_OUTPUT},
        {"rope_freqs.weight", ARCH_HAS_ROPE_FREQS},
        {"blk.0.attn_qkv.weight", ARCH_HAS_FUSED_QKV},
        {"blk.0.attn_qkv.bias", ARCH_HAS_QKV_BIAS},
        {"blk.0.attn_q.bias", ARCH_HAS_QKV_BIAS},
        {"blk.0.attn_output.bias", ARCH_HAS_O_BIAS},
        {"blk.0.ffn_up.bias", ARCH_HAS_MLP_BIAS},
        {"blk.0.attn_q_norm.weight", ARCH_HAS_QK_NORM},
        {"blk.0.attn_sinks.weight", ARCH_HAS_SINKS},
        {"blk.0.ffn_gate_inp.bias", ARCH_HAS_ROUTER_BIAS},
        {"blk.0.ffn_gate_exps.bias", ARCH_HAS_EXPERT_BIAS},
    };
    for (size_t i = 0; i < countof(tensors); i++)
        if (has_tensor(f, tensors[i].name))
            hp->has |= (uint32_t)tensors[i].has;
}

bool block_read(struct hparams *hp, const struct model_file *f, enum op_rope_kind kind,
                struct err *e)
{
    hp->embed_scale = 1.0f;
    hp->glu = (struct op_glu){.kind = OP_ACT_SILU, .alpha = 1.0f};
    hp->gate = OP_GATE_SOFTMAX;
    hp->expert_norm = true;
    note_tensors(hp, f);
    return block_read_u32(f, ".block_count", 1, ARCH_LAYERS_MAX, &hp->n_layer, e) &&
           block_read_u32(f, ".embedding_length", 1, TENSOR_WIDTH_MAX, &hp->n_embd, e) &&
           block_read_u32(f, ".context_length", 1, 1u << 30, &hp->n_ctx, e) &&
           model_file_f32(f, ".attention.layer_norm_rms_epsilon", &hp->eps, e) &&
           block_read_f32_or(f, ".attention.layer_norm_rms_epsilon", hp->eps, &hp->eps, e) &&
           read_vocab(hp, f, e) && read_layers(hp, f, e) && read_heads(hp, f, e) &&
           read_rope(hp, f, kind, e) && read_experts(hp, f, e) && read_pooling(hp, f, e) &&
           check_unknown(hp->arch, f, e);
}

bool block_read_window(struct hparams *hp, const struct model_file *f, uint32_t window,
                       uint32_t pattern, struct err *e)
{
    const char *key = ".attention.sliding_window_pattern";
    struct model_value v;
    bool flags[ARCH_LAYERS_MAX];
    bool is_list = model_file_find(f, key, &v) && v.type == MODEL_TYPE_ARRAY;
    if (is_list) {
        if (!model_file_bool_layers(f, key, flags, hp->n_layer, e))
            return false;
    } else if (!block_read_u32_or(f, key, ARCH_LAYERS_MAX, pattern, &pattern, e)) {
        return false;
    }
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        bool has_window = is_list ? flags[i] : pattern == 0 || i % pattern < pattern - 1;
        hp->layers[i].window = has_window ? window : 0;
    }
    return true;
}

/* ---- rope ---- */

/* Pair index at which a frequency turns `turns` times over the original context. */
static double yarn_bound(const struct arch_rope *r, float turns)
{
    double ratio = r->n_ctx_orig / ((double)turns * 2.0 * 3.14159265358979323846);
    return r->n_rot * log(ratio) / (2.0 * log((double)r->base));
}

static struct op_rope rope_of(const struct hparams *hp, uint32_t layer)
{
    bool has_window = hp->layers[layer].window != 0;
    const struct arch_rope *r = has_window ? &hp->rope_window : &hp->rope;
    struct op_rope o = {.kind = r->kind, .heads = hp->layers[layer].n_head, .head_dim = hp->dk,
                        .n_rot = r->n_rot, .base = r->base, .freq_scale = 1.0f / r->factor,
                        .mscale = r->attn_factor};
    if (r->scaling != ARCH_SCALING_YARN)
        return o;
    double low = yarn_bound(r, r->beta_fast), high = yarn_bound(r, r->beta_slow);
    if (r->is_truncated) {
        low = floor(low);
        high = ceil(high);
    }
    o.ext = 1.0f;
    o.low = (float)fmax(low, 0.0);
    o.high = (float)fmin(high, r->n_rot - 1.0);
    o.mscale = (float)((double)r->attn_factor * (1.0 + 0.1 * log((double)r->factor)));
    return o;
}

/* ---- layers ---- */

static uint16_t optional_vector(struct plan *p, const struct hparams *hp, uint32_t layer,
                                enum arch_has has, const char *name, uint32_t n)
{
    bool is_there = hp->has & (uint32_t)has;
    return is_there ? plan_layer_weight(p, layer, name, plan_vector(n)) : (uint16_t)TENSOR_NONE;
}

struct view block_embed(struct plan *p, const struct hparams *hp)
{
    uint16_t w = plan_weight(p, "token_embd.weight", plan_matrix(hp->n_vocab, hp->n_embd));
    return op_embed(p, w, (struct op_embed){OP_INDEX_TOKENS, hp->embed_scale});
}

struct view block_norm(struct plan *p, const struct hparams *hp, uint32_t layer, const char *name,
                       struct view x)
{
    uint16_t w = plan_layer_weight(p, layer, name, plan_vector(hp->n_embd));
    return op_rms_norm(p, x, w, hp->eps, 1);
}

static struct view project(struct plan *p, const struct hparams *hp, uint32_t layer,
                           struct view x, const char *name, uint32_t rows)
{
    char weight[32], bias[32];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    uint16_t w = plan_layer_weight(p, layer, weight, plan_matrix(rows, hp->n_embd));
    uint16_t b = optional_vector(p, hp, layer, ARCH_HAS_QKV_BIAS, bias, rows);
    return op_matmul(p, x, w, b, TENSOR_NONE);
}

static struct op_qkv project_qkv(struct plan *p, const struct hparams *hp, uint32_t layer,
                                 struct view x)
{
    const struct arch_layer *l = &hp->layers[layer];
    uint32_t q = l->n_head * hp->dk, k = l->n_head_kv * hp->dk, v = l->n_head_kv * hp->dv;
    struct op_qkv out = {
        .q_norm = optional_vector(p, hp, layer, ARCH_HAS_QK_NORM, "attn_q_norm.weight", hp->dk),
        .k_norm = optional_vector(p, hp, layer, ARCH_HAS_QK_NORM, "attn_k_norm.weight", hp->dk),
        .freqs = TENSOR_NONE};
    if (hp->has & ARCH_HAS_ROPE_FREQS && !l->window)
        out.freqs = plan_weight(p, "rope_freqs.weight", plan_vector(hp->rope.n_rot / 2));
    if (hp->has & ARCH_HAS_FUSED_QKV) {
        struct view qkv = project(p, hp, layer, x, "attn_qkv", q + k + v);
        out.q = op_slice(qkv, 0, q);
        out.k = op_slice(qkv, q, k);
        out.v = op_slice(qkv, q + k, v);
        return out;
    }
    out.q = project(p, hp, layer, x, "attn_q", q);
    out.k = project(p, hp, layer, x, "attn_k", k);
    out.v = project(p, hp, layer, x, "attn_v", v);
    return out;
}

struct view block_attention(struct plan *p, const struct hparams *hp, uint32_t layer,
                            struct view x)
{
    const struct arch_layer *l = &hp->layers[layer];
    struct op_qkv qkv = project_qkv(p, hp, layer, x);
    struct op_rope_qk rope = {.rope = rope_of(hp, layer),
                              .kv = {l->n_head_kv, hp->dk, hp->dv, l->window},
                              .eps = hp->eps};
    struct view q = op_rope_qk(p, (uint16_t)layer, qkv, rope);
    uint16_t sinks = optional_vector(p, hp, layer, ARCH_HAS_SINKS, "attn_sinks.weight", l->n_head);
    struct op_attn attn = {.heads = l->n_head, .kv_heads = l->n_head_kv, .dk = hp->dk,
                           .dv = hp->dv, .window = l->window,
                           .mask = hp->is_causal ? OP_MASK_CAUSAL : OP_MASK_FULL,
                           .scale = hp->attn_scale, .softcap = hp->attn_softcap};
    struct view a = op_attn(p, (uint16_t)layer, q, sinks, attn);
    uint16_t w = plan_layer_weight(p, layer, "attn_output.weight",
                                   plan_matrix(hp->n_embd, l->n_head * hp->dv));
    uint16_t b = optional_vector(p, hp, layer, ARCH_HAS_O_BIAS, "attn_output.bias", hp->n_embd);
    return op_matmul(p, a, w, b, TENSOR_NONE);
}

static struct view dense(struct plan *p, const struct hparams *hp, uint32_t layer, struct view x)
{
    uint32_t ff = hp->layers[layer].n_ff;
    struct op_gate_up w = {
        plan_layer_weight(p, layer, "ffn_gate.weight", plan_matrix(ff, hp->n_embd)),
        plan_layer_weight(p, layer, "ffn_up.weight", plan_matrix(ff, hp->n_embd)),
        optional_vector(p, hp, layer, ARCH_HAS_MLP_BIAS, "ffn_gate.bias", ff),
        optional_vector(p, hp, layer, ARCH_HAS_MLP_BIAS, "ffn_up.bias", ff)};
    struct view y = op_matmul_glu(p, x, w, hp->glu);
    uint16_t down = plan_layer_weight(p, layer, "ffn_down.weight", plan_matrix(hp->n_embd, ff));
    uint16_t b = optional_vector(p, hp, layer, ARCH_HAS_MLP_BIAS, "ffn_down.bias", hp->n_embd);
    return op_matmul(p, y, down, b, TENSOR_NONE);
}

static uint16_t expert_bias(struct plan *p, const struct hparams *hp, uint32_t layer,
                            const char *name, uint32_t n)
{
    if (!(hp->has & ARCH_HAS_EXPERT_BIAS))
        return TENSOR_NONE;
    struct weight_want table = {WEIGHT_KIND_VECTOR, hp->n_expert, n, 1};
    return plan_layer_weight(p, layer, name, table);
}

static struct view experts(struct plan *p, const struct hparams *hp, uint32_t layer, struct view x)
{
    uint32_t n = hp->n_expert, d = hp->n_embd, ff = hp->n_ff_expert;
    uint16_t router = plan_layer_weight(p, layer, "ffn_gate_inp.weight", plan_matrix(n, d));
    uint16_t router_b = optional_vector(p, hp, layer, ARCH_HAS_ROUTER_BIAS, "ffn_gate_inp.bias", n);
    struct view logits = op_matmul(p, x, router, router_b, TENSOR_NONE);
    struct op_route a = {.gate = hp->gate, .k = hp->n_expert_used, .groups = hp->expert_groups,
                         .groups_used = hp->expert_groups_used, .norm = hp->expert_norm,
                         .scale = hp->expert_scale};
    struct op_routed r = op_moe_route(p, logits, TENSOR_NONE, a);
    struct op_gate_up w = {
        plan_layer_weight(p, layer, "ffn_gate_exps.weight", plan_experts(n, ff, d)),
        plan_layer_weight(p, layer, "ffn_up_exps.weight", plan_experts(n, ff, d)),
        expert_bias(p, hp, layer, "ffn_gate_exps.bias", ff),
        expert_bias(p, hp, layer, "ffn_up_exps.bias", ff)};
    struct view y = op_moe_glu(p, x, r.ids, w, hp->glu);
    struct op_expert_weights down = {
        plan_layer_weight(p, layer, "ffn_down_exps.weight", plan_experts(n, d, ff)),
        expert_bias(p, hp, layer, "ffn_down_exps.bias", d), TENSOR_NONE};
    return op_moe_sum(p, op_moe_matmul(p, y, r.ids, down), r.w);
}

struct view block_ffn(struct plan *p, const struct hparams *hp, uint32_t layer, struct view x)
{
    return hp->n_expert ? experts(p, hp, layer, x) : dense(p, hp, layer, x);
}

void block_keep_answers(struct plan *p, const struct hparams *hp, uint32_t layer, struct view *h,
                        struct view *a)
{
    if (hp->has_pooling || layer + 1 < hp->n_layer)
        return;
    *h = op_rows(p, *h);
    *a = op_rows(p, *a);
}

struct op_sum_norm block_add(struct plan *p, const struct hparams *hp, struct view h,
                             struct view x, uint32_t layer, const char *name)
{
    struct weight_want want = plan_vector(hp->n_embd);
    uint16_t w = layer < hp->n_layer ? plan_layer_weight(p, layer, name, want)
                                     : plan_weight(p, "output_norm.weight", want);
    return op_add_rms_norm(p, h, x, w, hp->eps);
}

void block_answer(struct plan *p, const struct hparams *hp, struct view x)
{
    if (hp->has_pooling) {
        op_pool(p, x, (struct op_pooling){hp->pooling, true});
        return;
    }
    const char *name = hp->has & ARCH_HAS_OUTPUT ? "output.weight" : "token_embd.weight";
    uint16_t w = plan_weight(p, name, plan_matrix(hp->n_vocab, hp->n_embd));
    struct view logits = op_matmul(p, x, w, TENSOR_NONE, TENSOR_NONE);
    if (hp->final_softcap > 0.0f)
        logits = op_softcap(p, logits, hp->final_softcap);
    op_sample(p, logits);
    op_top_k(p, logits);
}

void block_decoder(struct plan *p, const struct hparams *hp, const char *ffn_norm)
{
    struct view h = block_embed(p, hp);
    struct view x = block_norm(p, hp, 0, "attn_norm.weight", h);
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        struct view a = block_attention(p, hp, i, x);
        block_keep_answers(p, hp, i, &h, &a);
        struct op_sum_norm s = block_add(p, hp, h, a, i, ffn_norm);
        struct view y = block_ffn(p, hp, i, s.norm);
        s = block_add(p, hp, s.sum, y, i + 1, "attn_norm.weight");
        h = s.sum;
        x = s.norm;
    }
    block_answer(p, hp, x);
}
