/* frontier - tokens per second of a model's true shape with random weights, any backend.
 *
 *     frontier -backend cuda -shape 8b -type Q4_K_M -batch 1,8,32 -context 512 -prefill 2048
 *
 * Decode: every sequence stands at `context` tokens and gets one more per step; the median of the
 * steps counts; -kv int8: its pages. Prefill: one prompt of that many tokens in steps of 2048 rows.
 * Weights are one random piece over and over: speed does not depend on their values, answers mean
 * nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/str.h"
#include "quant/quant.h"
#include "tensor/plan.h"
#include "tensor/weights.h"

extern const struct backend cpu_backend, cuda_backend;

struct shape {
    const char *name;
    uint32_t layers, d, heads, kv_heads, head_dim, ff, vocab, experts, used;
};
static const struct shape shapes[] = {
    {"8b", 32, 4096, 32, 8, 128, 14336, 128256, 0, 0},
    {"2b", 8, 4096, 32, 8, 128, 14336, 32000, 0, 0},
    {"30b-a3b", 48, 2048, 32, 4, 128, 768, 151936, 128, 8},
    {"20b-oss", 24, 2880, 64, 8, 64, 2880, 201088, 32, 4},
};

struct options {
    const struct backend *backend;
    const struct shape *shape;
    const char *type;
    uint32_t batches[16], batch_count, context, prefill, steps, threads, rows_max;
    enum kv_type kv;
};

static struct view layer(struct plan *p, const struct shape *s, uint32_t il, struct view h,
                         struct view *normed)
{
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    struct view x = *normed;
    struct view vq =
        op_matmul(p, x, plan_layer_weight(p, il, "attn_q.weight", plan_matrix(q, s->d)),
                  TENSOR_NONE, TENSOR_NONE);
    struct view vk =
        op_matmul(p, x, plan_layer_weight(p, il, "attn_k.weight", plan_matrix(kv, s->d)),
                  TENSOR_NONE, TENSOR_NONE);
    struct view vv =
        op_matmul(p, x, plan_layer_weight(p, il, "attn_v.weight", plan_matrix(kv, s->d)),
                  TENSOR_NONE, TENSOR_NONE);
    struct op_rope rope = {
        OP_ROPE_NEOX, s->heads, s->head_dim, s->head_dim, 0, 500000.0f, 1, 0, 0, 0, 1};
    struct op_qkv qkv = {vq, vk, vv, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE};
    struct op_rope_qk a = {rope, {s->kv_heads, s->head_dim, s->head_dim, 0}, 1e-6f};
    vq = op_rope_qk(p, (uint16_t)il, qkv, a);
    struct op_attn at = {s->heads,
                         s->kv_heads,
                         s->head_dim,
                         s->head_dim,
                         0,
                         OP_MASK_CAUSAL,
                         1.0f / sqrtf((float)s->head_dim),
                         0};
    x = op_attn(p, (uint16_t)il, vq, TENSOR_NONE, at);
    x = op_matmul(p, x, plan_layer_weight(p, il, "attn_output.weight", plan_matrix(s->d, q)),
                  TENSOR_NONE, TENSOR_NONE);
    struct op_sum_norm sn = op_add_rms_norm(
        p, h, x, plan_layer_weight(p, il, "ffn_norm.weight", plan_vector(s->d)), 1e-5f);
    struct op_glu silu = {.kind = OP_ACT_SILU, .alpha = 1};
    if (s->experts) {
        struct view logits = op_matmul(
            p, sn.norm,
            plan_layer_weight(p, il, "ffn_gate_inp.weight", plan_matrix(s->experts, s->d)),
            TENSOR_NONE, TENSOR_NONE);
        struct op_routed r = op_moe_route(
            p, logits, TENSOR_NONE, (struct op_route){OP_GATE_SOFTMAX, s->used, 1, 1, true, 1});
        struct op_gate_up w = {
            plan_layer_weight(p, il, "ffn_gate_exps.weight", plan_experts(s->experts, s->ff, s->d)),
            plan_layer_weight(p, il, "ffn_up_exps.weight", plan_experts(s->experts, s->ff, s->d)),
            TENSOR_NONE, TENSOR_NONE};
        x = op_moe_glu(p, sn.norm, r.ids, w, silu);
        struct op_expert_weights down = {
            plan_layer_weight(p, il, "ffn_down_exps.weight", plan_experts(s->experts, s->d, s->ff)),
            TENSOR_NONE, TENSOR_NONE};
        x = op_moe_sum(p, op_moe_matmul(p, x, r.ids, down), r.w);
    } else {
        struct op_gate_up w = {
            plan_layer_weight(p, il, "ffn_gate.weight", plan_matrix(s->ff, s->d)),
            plan_layer_weight(p, il, "ffn_up.weight", plan_matrix(s->ff, s->d)), TENSOR_NONE,
            TENSOR_NONE};
        x = op_matmul_glu(p, sn.norm, w, silu);
        x = op_matmul(p, x, plan_layer_weight(p, il, "ffn_down.weight", plan_matrix(s->d, s->ff)),
                      TENSOR_NONE, TENSOR_NONE);
    }
    const char *next = il + 1 == s->layers ? "output_norm.weight" : "next_norm.weight";
    struct op_sum_norm out =
        op_add_rms_norm(p, sn.sum, x, plan_layer_weight(p, il, next, plan_vector(s->d)), 1e-5f);
    *normed = out.norm;
    return out.sum;
}

static void build(struct plan *p, const struct shape *s)
{
    uint16_t table = plan_weight(p, "token_embd.weight", plan_matrix(s->vocab, s->d));
    struct view h = op_embed(p, table, (struct op_embed){OP_INDEX_TOKENS, 1.0f});
    struct view x =
        op_rms_norm(p, h, plan_weight(p, "attn_norm.weight", plan_vector(s->d)), 1e-5f, 1);
    for (uint32_t il = 0; il < s->layers; il++)
        h = layer(p, s, il, h, &x);
    x = op_matmul(p, op_rows(p, x), plan_weight(p, "output.weight", plan_matrix(s->vocab, s->d)),
                  TENSOR_NONE, TENSOR_NONE);
    op_sample(p, x);
    op_top_k(p, x);
}

/* The Q4_K_M mix: Q6_K for the head, half of the V and down matrices; else one type for all. */
static enum qtype type_of(const struct options *o, str name, uint32_t layers)
{
    enum qtype t = QTYPE_F32;
    if (strcmp(o->type, "Q4_K_M") != 0) {
        must(quant_by_name(str_of(o->type), &t));
        return t;
    }
    if (str_eq(name, STR("output.weight")))
        return QTYPE_Q6_K;
    bool is_more =
        str_find(name, STR("attn_v")) != STR_NONE || str_find(name, STR("ffn_down")) != STR_NONE;
    unsigned il = 0;
    if (is_more && sscanf(name.p, "blk.%u.", &il) == 1)
        if (il < layers / 8 || il >= 7 * layers / 8 || (il - layers / 8) % 3 == 2)
            return QTYPE_Q6_K;
    return QTYPE_Q4_K;
}

static void random_bytes(uint8_t *p, size_t size, enum qtype t)
{
    struct chrono_rng rng;
    chrono_rng_init(&rng, 1);
    size_t count = size / quant_table[t].block_bytes * quant_table[t].block_elems;
    float x[256];
    uint8_t block[1024];
    for (size_t i = 0, at = 0; i < count; i += 256) {
        size_t bytes = 256u / quant_table[t].block_elems * quant_table[t].block_bytes;
        if (i < 256 * 64 && !quant_table[t].quantise) { /* MXFP4: 2^-7 and below, any codes */
            for (size_t k = 0; k < bytes && at + k < size; k++)
                p[at + k] = k % quant_table[t].block_bytes ? (uint8_t)chrono_rng_u64(&rng)
                                                           : (uint8_t)(120 - i / 256 % 4);
        } else if (i < 256 * 64) {
            for (int k = 0; k < 256; k++)
                x[k] = 0.02f * chrono_rng_normal(&rng);
            quant_table[t].quantise(block, x, 256);
            memcpy(p + at, block, base_min(bytes, size - at));
        } else {
            memcpy(p + at, p + at - 64 * bytes, base_min(bytes, size - at));
        }
        at += bytes;
        if (at >= size)
            break;
    }
}

static double load(const struct options *o, const struct plan *p, struct weight *weights,
                   struct device *d)
{
    static uint8_t *piece[QTYPE_COUNT];
    struct err e = {0};
    double bytes = 0;
    for (uint32_t i = 0; i < p->weights_count; i++) {
        const struct plan_weight *w = &p->weights[i];
        bool is_matrix = w->want.kind == WEIGHT_KIND_MATRIX;
        bool is_router = str_find(w->name, STR("gate_inp")) != STR_NONE;
        enum qtype t = is_matrix && !is_router ? type_of(o, w->name, o->shape->layers) : QTYPE_F32;
        weights[i] = (struct weight){.name = w->name,
                                     .kind = w->want.kind,
                                     .type = t,
                                     .rows = w->want.rows,
                                     .cols = w->want.cols,
                                     .mats = w->want.mats};
        size_t row;
        must(quant_row_size(t, w->want.cols, &row));
        if (!piece[t]) {
            piece[t] = malloc(TENSOR_PIECE_MAX);
            random_bytes(piece[t], TENSOR_PIECE_MAX, t);
        }
        size_t rows = base_max(16, TENSOR_PIECE_MAX / row / 16 * 16);
        for (uint32_t m = 0; m < w->want.mats; m++)
            for (size_t at = 0; at < w->want.rows; at += rows)
                if (!o->backend->weight_load(d, &weights[i], (size_t)m * w->want.rows + at,
                                             base_min(rows, w->want.rows - at), piece[t], &e)) {
                    fprintf(stderr, "frontier: %s\n", e.text);
                    exit(1);
                }
        double share =
            o->shape->experts && w->want.mats > 1 ? (double)o->shape->used / o->shape->experts : 1;
        if (!str_starts(w->name, STR("token_embd")))
            bytes += share * (double)row * w->want.rows * w->want.mats;
    }
    return bytes;
}

struct steps {
    int32_t *ids, *pos;
    uint16_t *seq;
    uint32_t *out_rows, *pages, *len;
    struct sample_row *sample;
};

static double run(const struct options *o, struct device *d, struct prepared *p, struct step *s)
{
    struct err e = {0};
    struct step_out out;
    int64_t before = chrono_ns(&chrono_real);
    if (!o->backend->submit(d, p, s, &e) || !o->backend->wait(d, p, &out, &e)) {
        fprintf(stderr, "frontier: %s\n", e.text);
        exit(1);
    }
    return (double)(chrono_ns(&chrono_real) - before) * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fill(struct steps *t, struct step *s, uint32_t rows, uint32_t seqs, uint32_t pages_max)
{
    for (uint32_t i = 0; i < rows; i++)
        t->ids[i] = (int32_t)(i * 7919 % 30000);
    for (uint32_t i = 0; i < seqs * pages_max; i++)
        t->pages[i] = i;
    *s = (struct step){.rows = rows,
                       .seqs = seqs,
                       .ids = t->ids,
                       .pos = t->pos,
                       .seq = t->seq,
                       .out_rows = t->out_rows,
                       .sample = t->sample};
    s->kv.len = t->len;
    s->kv.pages[0] = t->pages;
    s->kv.pages_max[0] = pages_max;
}

static void decode(const struct options *o, struct device *d, struct prepared *p, struct steps *t,
                   uint32_t batch, double bytes)
{
    struct step s;
    uint32_t pages_max = (o->context + o->steps + 64) / KV_PAGE_TOKENS;
    double times[1024];
    fill(t, &s, batch, batch, pages_max);
    s.outs = batch;
    for (uint32_t n = 0; n < o->steps + 3; n++) {
        for (uint32_t i = 0; i < batch; i++) {
            t->pos[i] = (int32_t)(o->context + n);
            t->seq[i] = (uint16_t)i;
            t->out_rows[i] = i;
            t->len[i] = o->context + n + 1;
            t->sample[i] = (struct sample_row){.typical_p = 1, .top_p = 1};
        }
        double seconds = run(o, d, p, &s);
        if (n >= 3)
            times[n - 3] = seconds;
    }
    qsort(times, o->steps, sizeof *times, by_value);
    double kv = 2.0 * o->shape->layers * o->shape->kv_heads * o->context / KV_PAGE_TOKENS *
                (double)kv_head_size(o->kv, o->shape->head_dim);
    double median = times[o->steps / 2];
    printf("decode %-8s %-7s kv %-4s batch %3u context %5u: %9.1f tokens/s  %7.3f ms/step  "
           "%7.1f GB/s weights, %7.1f with KV\n",
           o->shape->name, o->type, kv_type_name(o->kv), batch, o->context, batch / median,
           median * 1e3,
           bytes / median * 1e-9, (bytes + kv * batch) / median * 1e-9);
    fflush(stdout);
}

static void prefill(const struct options *o, struct device *d, struct prepared *p, struct steps *t)
{
    uint32_t pages_max = (o->prefill + 31) / KV_PAGE_TOKENS;
    double best = 1e9;
    for (int repeat = 0; repeat < 3; repeat++) {
        double total = 0;
        for (uint32_t at = 0; at < o->prefill; at += o->rows_max) {
            struct step s;
            uint32_t rows = (uint32_t)base_min(o->rows_max, o->prefill - at);
            fill(t, &s, rows, 1, pages_max);
            for (uint32_t i = 0; i < rows; i++) {
                t->pos[i] = (int32_t)(at + i);
                t->seq[i] = 0;
            }
            t->len[0] = at + rows;
            t->out_rows[0] = rows - 1;
            s.outs = at + rows == o->prefill;
            t->sample[0] = (struct sample_row){.typical_p = 1, .top_p = 1};
            total += run(o, d, p, &s);
        }
        best = total < best ? total : best;
    }
    printf("prefill %-8s %-7s kv %-4s %5u tokens: %9.1f tokens/s\n", o->shape->name, o->type,
           kv_type_name(o->kv), o->prefill, o->prefill / best);
    fflush(stdout);
}

static bool parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){.backend = &cpu_backend,
                          .shape = &shapes[1],
                          .type = "Q4_K_M",
                          .batches = {1},
                          .batch_count = 1,
                          .context = 512,
                          .steps = 20,
                          .rows_max = 2048};
    for (int i = 1; i + 1 < argc; i += 2) {
        str key = str_of(argv[i]), value = str_of(argv[i + 1]);
        uint64_t n = 0;
        bool is_number = str_to_u64(value, &n);
        if (str_eq(key, STR("-backend")))
            o->backend = str_eq(value, STR("cuda")) ? &cuda_backend : &cpu_backend;
        else if (str_eq(key, STR("-kv")))
            o->kv = str_eq(value, STR("int8")) ? KV_TYPE_INT8 : KV_TYPE_F16;
        else if (str_eq(key, STR("-type")))
            o->type = argv[i + 1];
        else if (str_eq(key, STR("-context")) && is_number)
            o->context = (uint32_t)n;
        else if (str_eq(key, STR("-prefill")) && is_number)
            o->prefill = (uint32_t)n;
        else if (str_eq(key, STR("-steps")) && is_number && n <= 1000)
            o->steps = (uint32_t)n;
        else if (str_eq(key, STR("-threads")) && is_number)
            o->threads = (uint32_t)n;
        else if (str_eq(key, STR("-shape"))) {
            o->shape = NULL;
            for (size_t k = 0; k < countof(shapes); k++)
                if (str_eq_z(value, shapes[k].name))
                    o->shape = &shapes[k];
        } else if (str_eq(key, STR("-batch"))) {
            str rest = value, one;
            for (o->batch_count = 0; o->batch_count < 16 && str_split(&rest, ',', &one);)
                if (str_to_u64(one, &n))
                    o->batches[o->batch_count++] = (uint32_t)n;
        } else
            return false;
    }
    return o->shape != NULL && argc % 2 == 1;
}

int main(int argc, char **argv)
{
    struct options o;
    if (!parse(&o, argc, argv)) {
        fprintf(stderr,
                "usage: frontier [-backend cpu|cuda] [-shape 8b|2b|30b-a3b|20b-oss] [-type T] "
                "[-batch 1,8] [-context N] [-prefill N] [-steps N] [-threads N]\n");
        return 2;
    }
    struct err e = {0};
    struct arena arena;
    struct plan plan;
    arena_init(&arena, 64u << 20);
    plan_init(&plan, &arena, PLAN_KIND_MAIN);
    build(&plan, o.shape);
    struct device *d;
    struct device_options dev = {.act = ACT_AUTO, .threads = o.threads};
    struct kv_layout layout;
    if (!plan_expand(&plan, o.backend->ops, &e) || !plan_finish(&plan, &e) ||
        !plan_kv_layout(&plan, o.kv, &layout, &e) || !o.backend->open(&d, &dev, &e)) {
        fprintf(stderr, "frontier: %s\n", e.text);
        return 1;
    }
    uint32_t most = 1;
    for (uint32_t i = 0; i < o.batch_count; i++)
        most = o.batches[i] > most ? o.batches[i] : most;
    uint32_t pages = most * ((o.context + o.steps + 64) / KV_PAGE_TOKENS);
    pages = (uint32_t)base_max(pages, (o.prefill + 31) / KV_PAGE_TOKENS);
    uint32_t rows = o.prefill ? o.rows_max : most;
    struct step_limits m = {.rows_max = (uint32_t)base_max(rows, most),
                            .seqs_max = most,
                            .outs_max = most,
                            .top_max = 8};
    m.pages_max[0] = (uint32_t)base_max(o.context + o.steps + 64, o.prefill + 31) / KV_PAGE_TOKENS;
    struct weight *weights = calloc(plan.weights_count, sizeof *weights);
    struct prepared *p;
    int64_t before = chrono_ns(&chrono_real);
    double bytes = load(&o, &plan, weights, d);
    uint32_t kv_pages[KV_GROUPS_MAX] = {pages};
    if (!o.backend->kv_init(d, &layout, kv_pages, 0, &e) ||
        !o.backend->prepare(d, &plan, weights, &m, &p, &e)) {
        fprintf(stderr, "frontier: %s\n", e.text);
        return 1;
    }
    printf("%s: %u ops, %.2f GB of weights read per token, loaded in %.1f s\n", o.shape->name,
           plan.ops_count, bytes * 1e-9, (double)(chrono_ns(&chrono_real) - before) * 1e-9);
    struct steps t = {
        .ids = calloc(m.rows_max, 4),
        .pos = calloc(m.rows_max, 4),
        .seq = calloc(m.rows_max, 2),
        .out_rows = calloc(most, 4),
        .pages = calloc((size_t)pages + 64, 4),
        .len = calloc(most, 4),
        .sample = calloc(most, sizeof(struct sample_row)),
    };
    for (uint32_t i = 0; i < o.batch_count; i++)
        decode(&o, d, p, &t, o.batches[i], bytes);
    if (o.prefill)
        prefill(&o, d, p, &t);
    o.backend->close(d);
    return 0;
}
