/* Every op and weight format of the CUDA backend against the CPU's scalar reference, and against
 * itself: a row's bits must not depend on the rows beside it. Needs a device; `make gpu`.
 * `conform_test moe` runs the cases of that name alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/conform.h"
#include "quant/quant.h"

extern const struct backend cpu_backend, cuda_backend;

static const enum kv_type F16 = KV_TYPE_F16, INT8 = KV_TYPE_INT8; /* of pages */

/* ---- what is built ---- */

static uint16_t vector(struct plan *p, const char *name, uint32_t n)
{
    return plan_weight(p, name, plan_vector(n));
}

static struct view build_matmul(struct plan *p, struct view x, const void *arg)
{
    uint32_t out = *(const uint32_t *)arg;
    uint16_t b = vector(p, "bias", out);
    return op_matmul(p, x, plan_weight(p, "w", plan_matrix(out, op_width(x))), b, TENSOR_NONE);
}

static struct view build_qkv(struct plan *p, struct view x, const void *arg)
{
    (void)arg;
    struct view a = op_matmul(p, x, plan_weight(p, "w1", plan_matrix(48, op_width(x))), TENSOR_NONE,
                              TENSOR_NONE);
    struct view b = op_matmul(p, x, plan_weight(p, "w2", plan_matrix(96, op_width(x))),
                              vector(p, "b2", 96), TENSOR_NONE);
    return op_add(p, op_slice(b, 16, 48), a);
}

static struct view build_glu(struct plan *p, struct view x, const void *arg)
{
    struct op_gate_up w = {plan_weight(p, "w1", plan_matrix(80, op_width(x))),
                           plan_weight(p, "w2", plan_matrix(80, op_width(x))), TENSOR_NONE,
                           TENSOR_NONE};
    return op_matmul_glu(p, x, w, *(const struct op_glu *)arg);
}

/* Gate and up of different types, unless the case's is Q8_0. */
static struct view build_glu_mixed(struct plan *p, struct view x, const void *arg)
{
    struct op_gate_up w = {plan_weight(p, "w1", plan_matrix(80, op_width(x))),
                           plan_weight(p, "wq", plan_matrix(80, op_width(x))), TENSOR_NONE,
                           vector(p, "b", 80)};
    return op_matmul_glu(p, x, w, *(const struct op_glu *)arg);
}

/* A glu that only a product reads. */
static struct view build_ffn(struct plan *p, struct view x, const void *arg)
{
    const uint32_t hidden = *(const uint32_t *)arg;
    struct op_gate_up w = {plan_weight(p, "w1", plan_matrix(hidden, op_width(x))),
                           plan_weight(p, "w2", plan_matrix(hidden, op_width(x))), TENSOR_NONE,
                           TENSOR_NONE};
    struct view y = op_matmul_glu(p, x, w, (struct op_glu){.kind = OP_ACT_SILU, .alpha = 1});
    return op_matmul(p, y, plan_weight(p, "w3", plan_matrix(200, hidden)), TENSOR_NONE,
                     TENSOR_NONE);
}

static struct view build_norm(struct plan *p, struct view x, const void *arg)
{
    uint32_t groups = *(const uint32_t *)arg;
    return op_rms_norm(p, x, vector(p, "norm", op_width(x) / groups), 1e-5f, groups);
}

static struct view build_layer_norm(struct plan *p, struct view x, const void *arg)
{
    (void)arg;
    return op_layer_norm(p, x, vector(p, "norm", op_width(x)), vector(p, "b", op_width(x)), 1e-5f);
}

static struct view build_add_norm(struct plan *p, struct view x, const void *arg)
{
    (void)arg;
    struct op_sum_norm r =
        op_add_rms_norm(p, x, op_scale(p, x, -0.25f), vector(p, "norm", op_width(x)), 1e-6f);
    return op_add(p, r.sum, r.norm);
}

static struct view build_act(struct plan *p, struct view x, const void *arg)
{
    return op_act(p, x, *(const enum op_act *)arg);
}

static struct view build_maps(struct plan *p, struct view x, const void *arg)
{
    (void)arg;
    uint32_t half = op_width(x) / 2;
    struct view a = op_slice(x, 0, half), b = op_slice(x, half, half);
    struct view y = op_glu(p, a, b, (struct op_glu){OP_ACT_SILU, 1.702f, 1.0f, 1.5f, 2.0f});
    y = op_add_weight(p, op_mul(p, y, b), vector(p, "b", half));
    y = op_mul_weight(p, y, vector(p, "one", 1));
    return op_softcap(p, op_scale(p, y, 3.0f), 30.0f);
}

static struct view build_rope(struct plan *p, struct view x, const void *arg)
{
    struct op_rope r = *(const struct op_rope *)arg;
    return op_rope(p, x, TENSOR_NONE, r);
}

static struct view build_rope_qk(struct plan *p, struct view x, const void *arg)
{
    const struct op_rope *r = arg;
    struct op_qkv v = {op_slice(x, 0, 256),   op_slice(x, 256, 128),
                       op_slice(x, 384, 128), vector(p, "qn", 64),
                       vector(p, "kn", 64),   vector(p, "freqs", r->n_rot / 2)};
    struct view q = op_rope_qk(p, 0, v, (struct op_rope_qk){*r, {2, 64, 64, 0}, 1e-6f});
    return op_attn(p, 0, q, TENSOR_NONE,
                   (struct op_attn){4, 2, 64, 64, 0, OP_MASK_CAUSAL, 0.125f, 0});
}

struct attn_arg {
    struct op_attn a;
    bool has_sinks;
};

static struct view build_attn(struct plan *p, struct view x, const void *arg)
{
    const struct attn_arg *t = arg;
    uint32_t q = t->a.heads * t->a.dk, k = t->a.kv_heads * t->a.dk, v = t->a.kv_heads * t->a.dv;
    op_kv_write(p, 0, op_slice(x, q, k), op_slice(x, q + k, v),
                (struct op_kv){t->a.kv_heads, t->a.dk, t->a.dv, t->a.window});
    return op_attn(p, 0, op_slice(x, 0, q),
                   t->has_sinks ? vector(p, "sinks", t->a.heads) : TENSOR_NONE, t->a);
}

/* Three of 16 experts, gate and up of different types. */
static struct view build_moe_mixed(struct plan *p, struct view x, const void *arg)
{
    const uint32_t experts = 16, width = op_width(x), f = 96;
    struct view logits = op_matmul(p, x, plan_weight(p, "router", plan_matrix(experts, width)),
                                   TENSOR_NONE, TENSOR_NONE);
    struct op_routed t = op_moe_route(p, op_scale(p, logits, 20.0f), TENSOR_NONE,
                                      (struct op_route){OP_GATE_SOFTMAX, 3, 1, 1, true, 1});
    struct op_gate_up w = {plan_weight(p, "w1", plan_experts(experts, f, width)),
                           plan_weight(p, "wq", plan_experts(experts, f, width)), TENSOR_NONE,
                           TENSOR_NONE};
    struct view y = op_moe_glu(p, x, t.ids, w, *(const struct op_glu *)arg);
    struct op_expert_weights down = {plan_weight(p, "down", plan_experts(experts, 64, f)),
                                     TENSOR_NONE, TENSOR_NONE};
    return op_moe_sum(p, op_moe_matmul(p, y, t.ids, down), t.w);
}

static struct view build_moe(struct plan *p, struct view x, const void *arg)
{
    struct op_route r = *(const struct op_route *)arg;
    const uint32_t experts = 16, width = op_width(x), f = 96;
    struct view logits = op_matmul(p, x, plan_weight(p, "router", plan_matrix(experts, width)),
                                   TENSOR_NONE, TENSOR_NONE);
    struct op_routed t = op_moe_route(p, op_scale(p, logits, 20.0f), vector(p, "bias", experts), r);
    struct op_gate_up w = {plan_weight(p, "w1", plan_experts(experts, f, width)),
                           plan_weight(p, "w2", plan_experts(experts, f, width)), TENSOR_NONE,
                           TENSOR_NONE};
    struct view y = op_moe_glu(p, x, t.ids, w, (struct op_glu){.kind = OP_ACT_SILU, .alpha = 1});
    struct op_expert_weights down = {plan_weight(p, "down", plan_experts(experts, 64, f)),
                                     TENSOR_NONE, TENSOR_NONE};
    return op_moe_sum(p, op_moe_matmul(p, y, t.ids, down), t.w);
}

/* ---- the comparison ---- */

static uint32_t failed, passed;

static void report(const struct conform_case *k, const char *what, double value, double bound)
{
    bool ok = value <= bound;
    ok ? passed++ : failed++;
    if (!ok)
        printf("FAILED %s (%s, pages of %s): %s %.3g, at most %.3g\n", k->name,
               quant_name(k->type), kv_type_name(k->kv), what, value, bound);
}

/* Turned keys whose last bits differ may get the next code of int8; what comes between two products
 * of BF16 weights is rounded to bf16 on the GPU alone; elsewhere codes are equal. */
static double nmse_most(const struct conform_case *k)
{
    if (k->type == QTYPE_BF16 && (k->build == build_ffn || k->build == build_moe))
        return 1e-5;
    return k->kv == KV_TYPE_INT8 && str_eq_z(str_of(k->name), "rope_qk") ? 1e-6 : 1e-10;
}

/* Square error over square of the reference: rounding leaves about 1e-13, a wrong code far more. */
static double nmse(const float *a, const float *b, size_t n)
{
    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(a[i]))
            return INFINITY;
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        power += (double)b[i] * b[i];
    }
    return power > 0 ? error / power : error;
}

/* Types without kernels of their own are expanded to f32 and take float inputs. */
static bool is_native(enum qtype t)
{
    return t <= QTYPE_Q8_0 || t == QTYPE_Q4_K || t == QTYPE_Q5_K || t == QTYPE_Q6_K ||
           t == QTYPE_MXFP4;
}

/* c: the plan as the GPU runs it; base: as the CPU does, which lacks some ops. Equal weights. */
static bool compare(const struct conform_case *k, struct conform *c, struct conform *base,
                    struct err *e)
{
    struct conform_run cpu = {0}, gpu = {0};
    struct device_options o = {
        .act = is_native(k->type) ? ACT_INT8 : ACT_F32, .level = "ref", .threads = 1};
    struct device_options g = {.act = ACT_AUTO};
    size_t row = c->plan.vocab, size = CONFORM_ROWS * row;
    float *want = calloc(size, 4), *all = calloc(size, 4), *part = calloc(size, 4);
    must(want && all && part);
    bool ok = conform_open(&cpu, base, &cpu_backend, &o, e) &&
              conform_open(&gpu, c, &cuda_backend, &g, e) &&
              conform_step(&cpu, base, 0, CONFORM_ROWS, 0, want, e) &&
              conform_step(&gpu, c, 0, CONFORM_ROWS, 0, all, e);
    if (ok)
        report(k, "NMSE against the CPU", nmse(all, want, size), nmse_most(k));
    /* the same rows in other company, another sequence's pages */
    static const uint32_t chunks[] = {1, 7, 1, 8, 9, 16, 17, 33, 38};
    uint32_t at = 0;
    for (size_t i = 0; ok && i < countof(chunks); at += chunks[i++])
        ok = conform_step(&gpu, c, at, chunks[i], 1, part + at * row, e);
    if (ok)
        report(k, "bits that differ in other company",
               memcmp(part, all, at * row * sizeof(float)) != 0, 0);
    ok = ok && conform_beside(&gpu, c, at - 1, CONFORM_ROWS - 1, part, e);
    if (ok)
        report(k, "bits that differ beside a decoder",
               memcmp(part, all + (at - 1) * row, row * sizeof *part) != 0 ||
                   memcmp(part + row, all, (CONFORM_ROWS - 1) * row * sizeof *part) != 0,
               0);
    conform_close(&cpu);
    conform_close(&gpu);
    free(want);
    free(all);
    free(part);
    return ok;
}

/* Steps of all rows until the sequence has CONFORM_LONG positions; out: of the last step. */
static bool fill(struct conform_run *r, struct conform *c, uint32_t seq, uint32_t end, float *out,
                 struct err *e)
{
    for (uint32_t at = 0; at < end; at += CONFORM_ROWS)
        if (!conform_step(r, c, at, CONFORM_ROWS, seq, out, e))
            return false;
    return true;
}

/* So many positions that adding up their blocks takes more than one round: a wide step against the
 * CPU, then the same rows one at a time. */
static bool compare_long(const struct conform_case *k, struct conform *c, struct conform *base,
                         struct err *e)
{
    struct conform_run cpu = {0}, gpu = {0};
    struct device_options o = {.act = ACT_INT8, .threads = 1};
    struct device_options g = {.act = ACT_AUTO};
    size_t row = c->plan.vocab, size = CONFORM_ROWS * row;
    float *want = calloc(size, 4), *wide = calloc(size, 4), *one = calloc(size, 4);
    must(want && wide && one);
    const uint32_t last = CONFORM_LONG - CONFORM_ROWS;
    bool ok = conform_open(&cpu, base, &cpu_backend, &o, e) &&
              conform_open(&gpu, c, &cuda_backend, &g, e) &&
              fill(&cpu, base, 0, CONFORM_LONG, want, e) &&
              fill(&gpu, c, 0, CONFORM_LONG, wide, e) && fill(&gpu, c, 1, last, one, e);
    for (uint32_t i = 0; ok && i < CONFORM_ROWS; i++)
        ok = conform_step(&gpu, c, last + i, 1, 1, one + i * row, e);
    if (ok) {
        report(k, "NMSE against the CPU", nmse(wide, want, size), 1e-10);
        report(k, "bits that differ one at a time", memcmp(one, wide, size * sizeof *one) != 0, 0);
    }
    conform_close(&cpu);
    conform_close(&gpu);
    free(want);
    free(wide);
    free(one);
    return ok;
}

/* Draws with every limit, alone and together: the same ids as the CPU's, but where a border falls
 * between values that differ in their last bit. */
static bool compare_draws(const struct conform_case *k, struct conform *c, struct conform *base,
                          struct err *e)
{
    static const struct sample_row kinds[] = {
        {.temperature = 0.8f, .typical_p = 1, .top_p = 1},
        {.temperature = 0.8f, .typical_p = 1, .top_p = 1, .top_k = 40},
        {.temperature = 1.0f, .typical_p = 1, .top_p = 0.9f},
        {.temperature = 0.8f, .typical_p = 1, .top_p = 0.9f, .top_k = 40},
        {.temperature = 1.2f, .typical_p = 1, .top_p = 1, .min_p = 0.05f},
        {.temperature = 0.7f, .typical_p = 0.8f, .top_p = 0.95f, .top_k = 100, .min_p = 0.01f},
    };
    struct conform_run cpu = {0}, gpu = {0};
    struct device_options o = {.act = ACT_INT8, .level = "ref", .threads = 1};
    struct device_options g = {.act = ACT_AUTO};
    struct logit_adjust adjust[3 * CONFORM_ROWS];
    struct conform_pick pick = {.adjust = adjust, .adjust_count = 3 * CONFORM_ROWS};
    int32_t want[CONFORM_ROWS], got[CONFORM_ROWS];
    for (uint32_t i = 0; i < CONFORM_ROWS; i++) {
        pick.rows[i] = kinds[i % countof(kinds)];
        pick.rows[i].seed = 11 + i;
        pick.rows[i].position = i;
        for (uint32_t n = 0; n < 3; n++)
            adjust[3 * i + n] = (struct logit_adjust){
                .row = i, .id = (int32_t)(i + 7 * n), .factor = 1.1f, .add = n == 2 ? 1.5f : 0};
    }
    bool ok = conform_open(&cpu, base, &cpu_backend, &o, e) &&
              conform_open(&gpu, c, &cuda_backend, &g, e) &&
              conform_sample(&cpu, &pick, want, e) && conform_sample(&gpu, &pick, got, e);
    uint32_t differ = 0;
    for (uint32_t i = 0; ok && i < CONFORM_ROWS; i++)
        differ += want[i] != got[i];
    if (ok)
        report(k, "draws that differ", differ, 2);
    conform_close(&cpu);
    conform_close(&gpu);
    return ok;
}

static const char *only; /* cases of this name; NULL: all */

static void run(const struct conform_case *k)
{
    if (only && !str_eq_z(str_of(only), k->name))
        return;
    struct conform c, base;
    struct err e = {0};
    bool ok = conform_init(&c, k, &cuda_backend, 7, &e);
    ok = conform_init(&base, k, &cpu_backend, 7, &e) && ok;
    bool is_draw = str_eq_z(str_of(k->name), "draws");
    bool is_long = str_eq_z(str_of(k->name), "attn_long");
    if (!ok || !(is_draw ? compare_draws : is_long ? compare_long : compare)(k, &c, &base, &e)) {
        printf("FAILED %s (%s): %s\n", k->name, quant_name(k->type), e.text);
        failed++;
    }
    conform_deinit(&c);
    conform_deinit(&base);
}

/* Every shape of a product, its weights of type t. */
static void run_products(enum qtype t)
{
    static const uint32_t outs[] = {16, 100, 257}, many = 17000, whole = 16889;
    static const uint32_t hidden[] = {512, 8448};
    for (size_t i = 0; i < countof(outs); i++) {
        run(&(struct conform_case){"matmul", build_matmul, &outs[i], 512, t, 1, F16});
        if (i == 0 && quant_table[t].block_elems == 32)
            run(&(struct conform_case){"matmul", build_matmul, &outs[1], 2080, t, 1, F16});
    }
    run(&(struct conform_case){"qkv", build_qkv, NULL, 2560, t, 1, F16});
    if (t == QTYPE_BF16 || t == QTYPE_Q4_K) /* more tiles than there are blocks */
        run(&(struct conform_case){"matmul", build_matmul, &many, 768, t, 1, F16});
    if (t == QTYPE_BF16) { /* as many tiles of wide.cu's large shape as there is room for */
        run(&(struct conform_case){"matmul", build_matmul, &whole, 256, t, 1, F16});
        run(&(struct conform_case){"ffn", build_ffn, &hidden[1], 256, t, 1, F16});
    }
    if (t == QTYPE_BF16 || t == QTYPE_F32)
        run(&(struct conform_case){"ffn", build_ffn, &hidden[0], 512, t, 1, F16});
    static const struct op_glu silu = {.kind = OP_ACT_SILU, .alpha = 1};
    static const struct op_glu gelu = {.kind = OP_ACT_GELU_TANH, .alpha = 1};
    const struct op_glu *glu = t % 2 ? &silu : &gelu;
    run(&(struct conform_case){"matmul_glu", build_glu, glu, 768, t, 1, F16});
    if (is_native(t))
        run(&(struct conform_case){"matmul_glu", build_glu_mixed, glu, 768, t, 1, F16});
    if (t == QTYPE_F32 || t == QTYPE_Q4_K || t == QTYPE_MXFP4)
        run(&(struct conform_case){"moe", build_moe_mixed, glu, 512, t, 1, F16});
}

/* Pages of f16 and of int8. */
static void run_attention(void)
{
    static const struct attn_arg attns[] = {
        {{4, 4, 64, 64, 0, OP_MASK_CAUSAL, 0.125f, 0}, false},
        {{8, 2, 128, 128, 0, OP_MASK_CAUSAL, 0.0884f, 0}, false},
        {{8, 1, 64, 64, 40, OP_MASK_CAUSAL, 0.125f, 0}, true},
        {{6, 2, 128, 128, 33, OP_MASK_CAUSAL, 0.1f, 20.0f}, true},
        {{8, 1, 64, 32, 40, OP_MASK_CAUSAL, 0.125f, 0}, true},
        {{9, 3, 64, 64, 0, OP_MASK_CAUSAL, 0.125f, 50.0f}, false},
        {{16, 1, 256, 256, 0, OP_MASK_CAUSAL, 0.0625f, 0}, false},
        {{4, 2, 96, 96, 0, OP_MASK_CAUSAL, 0.1f, 0}, false},
    };
    static const struct attn_arg longs[] = {
        {{2, 1, 64, 64, 0, OP_MASK_CAUSAL, 0.125f, 0}, true},
        {{2, 1, 128, 128, 0, OP_MASK_CAUSAL, 0.09f, 0}, false},
        {{2, 1, 32, 48, 0, OP_MASK_CAUSAL, 0.2f, 0}, false},
    };
    for (size_t i = 0; i < 2 * (countof(attns) + countof(longs)); i++) {
        bool is_long = i / 2 >= countof(attns);
        const struct attn_arg *t = is_long ? &longs[i / 2 - countof(attns)] : &attns[i / 2];
        const struct op_attn *a = &t->a;
        uint32_t width = a->heads * a->dk + a->kv_heads * (a->dk + a->dv);
        run(&(struct conform_case){is_long ? "attn_long" : "attn", build_attn, t, width, QTYPE_F32,
                                   1, i % 2 ? INT8 : F16});
    }
}

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : NULL;
    static const uint32_t groups[] = {1, 4};
    for (int t = 0; t < QTYPE_WEIGHT_COUNT; t++)
        run_products((enum qtype)t);
    for (size_t i = 0; i < countof(groups); i++)
        run(&(struct conform_case){"rms_norm", build_norm, &groups[i], 576, QTYPE_F32, 2, F16});
    run(&(struct conform_case){"layer_norm", build_layer_norm, NULL, 384, QTYPE_F32, 2, F16});
    run(&(struct conform_case){"add_rms_norm", build_add_norm, NULL, 4096, QTYPE_F32, 2, F16});
    for (int a = 0; a < OP_ACT_COUNT; a++)
        run(&(struct conform_case){"act", build_act, &(enum op_act){(enum op_act)a}, 300, QTYPE_F32,
                                   3, F16});
    run(&(struct conform_case){"maps", build_maps, NULL, 512, QTYPE_F32, 1, F16});
    static const struct op_rope ropes[] = {
        {OP_ROPE_NORM, 4, 64, 64, 0, 10000.0f, 1, 0, 0, 0, 1},
        {OP_ROPE_NEOX, 4, 64, 32, 16, 1e6f, 0.25f, 1, 3.5f, 12.25f, 1.2f},
    };
    for (size_t i = 0; i < countof(ropes); i++)
        run(&(struct conform_case){"rope", build_rope, &ropes[i], 256, QTYPE_F32, 1, F16});
    for (size_t i = 0; i < 2 * countof(ropes); i++)
        run(&(struct conform_case){"rope_qk", build_rope_qk, &ropes[i / 2], 512, QTYPE_F32, 1,
                                   i % 2 ? INT8 : F16});
    run_attention();
    static const struct op_route routes[] = {
        {OP_GATE_SOFTMAX, 4, 1, 1, true, 1},
        {OP_GATE_SIGMOID, 2, 4, 2, true, 2.5f},
        {OP_GATE_CHOSEN, 4, 1, 1, false, 1},
    };
    static const enum qtype types[] = {QTYPE_F32,  QTYPE_BF16, QTYPE_Q8_0,
                                       QTYPE_Q4_K, QTYPE_Q6_K, QTYPE_MXFP4};
    for (size_t i = 0; i < countof(routes); i++)
        for (size_t t = 0; t < countof(types); t++)
            run(&(struct conform_case){"moe", build_moe, &routes[i], 512, types[t], 1, F16});
    static const uint32_t vocab = 5000;
    run(&(struct conform_case){"draws", build_matmul, &vocab, 512, QTYPE_F32, 3, F16});
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
