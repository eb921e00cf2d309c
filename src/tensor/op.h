/* op - the words of a plan: what each computes is defined by the scalar code in cpu/ref.
 *
 * Owns:      kinds, operands, parameters, constructors, the table of shape rules and expansions.
 * Not:       the list of ops and lifetimes (plan), kernels (cpu, cuda), model families (arch).
 * Invariant: an op reads views and weights and writes whole new values; nothing changes in place.
 *            N, O and S are rows as in tensor.h; inputs of one op agree in rows. An absent operand
 *            is TENSOR_NONE. Constructors append to the plan; a wrong shape marks the plan as
 *            failed (plan_check), the op that would have come is left out.
 *
 *     a view of one row:   first       stride          count = 3 heads of width 2
 *                            |<-width->|
 *                          . [x x] . . [x x] . . [x x] .
 *
 * Thread:    load only. The table is constant.
 * Limits:    OP_IN_MAX, OP_OUT_MAX, OP_WEIGHT_MAX operands.
 */
#ifndef SHOAL_TENSOR_OP_H
#define SHOAL_TENSOR_OP_H

#include "base/buf.h"
#include "base/err.h"
#include "tensor/tensor.h"

struct plan;

#define OP_IN_MAX 5u
#define OP_OUT_MAX 5u
#define OP_WEIGHT_MAX 6u
#define OP_EXPERTS_MAX 1024u /* logits of one moe_route */

/* Operands in order, `?` = may be absent. Parameters: union op_args. */
enum op_kind {
    OP_EMBED,       /* W[V,d] -> [N,d]: row W[index] times scale */
    OP_ROWS,        /* x[N,d] -> [O,d]: the rows that need an answer */
    OP_RMS_NORM,    /* x[N,g*m], w[m]? -> same: each of g groups by its own mean square */
    OP_LAYER_NORM,  /* x[N,d], w[d], b[d]? -> same */
    OP_MATMUL,      /* x[N,in], W[out,in], b[out]?, s[1]? -> [N,out]: s * (W x) + b */
    OP_MOE_ROUTE,   /* logits[N,E], bias[E]? -> ids[N,k], w[N,k]; bias only chooses */
    OP_MOE_MATMUL,  /* x[N,in] or [N,k*in], ids[N,k], W[E][out,in], b[E,out]?, s[E]? -> [N,k*out] */
    OP_MOE_SUM,     /* y[N,k*d], w[N,k] -> [N,d]: in rank order */
    OP_ACT,         /* x[N,d] -> same */
    OP_GLU,         /* gate[N,f], up[N,f] -> [N,f] */
    OP_ADD,         /* a[N,d], b[N,d] or b[N,1], or weight b[d] or b[1] -> [N,d] */
    OP_MUL,         /* as OP_ADD */
    OP_SCALE,       /* x -> s * x */
    OP_SOFTCAP,     /* x -> c * tanh(x / c) */
    OP_ROPE,        /* x[N,h*hd], f[n_rot/2]? -> same; f divides the frequencies */
    OP_KV_WRITE,    /* k[N,kvh*dk], v[N,kvh*dv] -> nothing; rounds to the type of the pages */
    OP_ATTN,        /* q[N,h*dk], sinks[h]? -> [N,h*dv] */
    OP_POOL,        /* x[N,d] -> [S,d] */
    OP_SAMPLE,      /* logits[O,V] -> step_out.ids, logprob */
    OP_TOP_K,       /* logits[O,V] -> step_out.top_*, raw_*, lse */
    OP_ADD_RMS_NORM, /* a[N,d], b[N,d], w[d] -> a + b, rms_norm(a + b) */
    OP_ROPE_QK,     /* q[N,h*dk], k[N,kvh*dk], v[N,kvh*dv], qn[dk]?, kn[dk]?, f? -> q; stores k v */
    OP_MATMUL_GLU,  /* x[N,in], Wg, Wu, bg?, bu? -> glu(Wg x + bg, Wu x + bu) */
    OP_MOE_GLU,     /* x[N,in], ids[N,k], Wg, Wu, bg?, bu? -> [N,k*f] */
    OP_COUNT
};

/* Columns of a value that an op reads: count groups of width columns, stride apart. */
struct view {
    uint16_t value;
    uint32_t first, width, stride, count;
};

enum op_index { OP_INDEX_TOKENS, OP_INDEX_POSITIONS, OP_INDEX_AUX };

/* Formulas: cpu/ref; exp, tanh as in cpu/vmath.h. */
enum op_act {
    OP_ACT_SILU,
    OP_ACT_GELU_TANH,
    OP_ACT_GELU_ERF,
    OP_ACT_RELU,
    OP_ACT_SIGMOID,
    OP_ACT_TANH,
    OP_ACT_SOFTPLUS,
    OP_ACT_EXP,
    OP_ACT_COUNT
};

/* How routing turns logits into probabilities. CHOSEN: softmax over the k chosen logits only. */
enum op_gate { OP_GATE_SOFTMAX, OP_GATE_SIGMOID, OP_GATE_CHOSEN, OP_GATE_SQRT_SOFTPLUS };

enum op_rope_kind {
    OP_ROPE_NORM, /* pairs (2i, 2i+1) */
    OP_ROPE_NEOX, /* pairs (i, i + n_rot/2) */
};

enum op_mask { OP_MASK_CAUSAL, OP_MASK_FULL }; /* FULL: the whole sequence is in one step */
enum op_pool { OP_POOL_MEAN, OP_POOL_FIRST, OP_POOL_LAST };

struct op_embed {
    enum op_index index;
    float scale;
};

struct op_norm {
    float eps;
    uint32_t groups; /* layer_norm: 1 */
};

/* Order of the steps: cpu/ref/ref_ops.c. Ties go to the lower index. */
struct op_route {
    enum op_gate gate;
    uint32_t k;                   /* experts per row */
    uint32_t groups, groups_used; /* 1, 1: no grouping */
    bool norm;                    /* weights sum to 1 */
    float scale;                  /* of the weights, 1 by default */
};

struct op_experts {
    uint32_t k; /* ranks per row */
};

/* silu: g * sigmoid(alpha * g), with g = min(gate, clamp_gate); other kinds: act(g).
 * Times (clamp(up, -clamp_up, clamp_up) + up_add). A clamp of 0 is none. */
struct op_glu {
    enum op_act kind;
    float alpha, up_add, clamp_gate, clamp_up;
};

struct op_number {
    float x; /* scale: factor; softcap: cap */
};

/* Angle of pair i at position t: t * f[i], f = op_rope_freqs. cos and sin times mscale. Columns
 * [first, first + n_rot) of a head rotate, the others pass. YaRN where ext is not 0:
 * docs/models/gptoss.md. */
struct op_rope {
    enum op_rope_kind kind;
    uint32_t heads, head_dim, n_rot, first;
    float base;
    float freq_scale; /* 1 / factor of linear or YaRN scaling; 1: none */
    float ext;        /* share of YaRN's ramp, 0 or 1 */
    float low, high;  /* bounds of the ramp, in pairs */
    float mscale;
};

struct op_kv {
    uint32_t kv_heads, dk, dv;
    uint32_t window; /* of the layer's attention, so that both ops name one group */
};

struct op_attn {
    uint32_t heads, kv_heads, dk, dv;
    uint32_t window; /* row at position t sees p with t - window < p <= t; 0: all p <= t */
    enum op_mask mask;
    float scale, softcap; /* softcap 0: none */
};

struct op_rope_qk {
    struct op_rope rope; /* rope.heads: of q */
    struct op_kv kv;
    float eps; /* of the norms, where there are any */
};

struct op_pooling {
    enum op_pool kind;
    bool l2;
};

struct op_moe_glu {
    struct op_experts experts;
    struct op_glu glu;
};

union op_args {
    struct op_embed embed;
    struct op_norm norm;       /* RMS_NORM LAYER_NORM ADD_RMS_NORM */
    struct op_route route;
    struct op_experts experts; /* MOE_MATMUL MOE_SUM */
    enum op_act act;
    struct op_glu glu;         /* GLU MATMUL_GLU */
    struct op_number number;   /* SCALE SOFTCAP */
    struct op_rope rope;
    struct op_kv kv;
    struct op_attn attn;
    struct op_rope_qk rope_qk;
    struct op_pooling pool;
    struct op_moe_glu moe_glu;
};

struct op {
    enum op_kind kind;
    uint16_t layer;
    struct view in[OP_IN_MAX];
    uint16_t out[OP_OUT_MAX], weight[OP_WEIGHT_MAX];
    union op_args a;
};

struct op_set {
    uint64_t bits;
};
static inline bool op_set_has(const struct op_set *s, enum op_kind k) { return s->bits >> k & 1; }
#define OP_BIT(kind) ((uint64_t)1 << (kind))
#define OP_SET_ALL (OP_BIT(OP_COUNT) - 1)

/* One row per kind, in op_table.c. */
struct op_info {
    const char *name; /* "rms_norm" */
    uint8_t in_min, in_max, outs, weights_min, weights_max;
    bool is_fused;
    /* Widths, rows and parameters fit together; a sentence naming the op and both numbers. */
    bool (*check)(const struct plan *p, const struct op *o, struct err *e);
    /* Appends the plain ops that mean the same, writing o's outputs; only fused kinds have it. */
    void (*expand)(struct plan *p, const struct op *o);
    void (*print)(struct buf *out, const struct op *o); /* parameters, for plan_dump; may be NULL */
};
extern const struct op_info op_table[OP_COUNT];

/* All columns of a value; a part of a view's columns (the view must have no gaps); count groups. */
struct view op_view(const struct plan *p, uint16_t value);
struct view op_slice(struct view v, uint32_t first, uint32_t width);
struct view op_groups(struct view v, uint32_t first, uint32_t width, uint32_t stride,
                      uint32_t count);
static inline struct view op_none(void) { return (struct view){.value = TENSOR_NONE}; }
static inline bool op_is_none(struct view v) { return v.value == TENSOR_NONE; }
/* Columns that the view has, gaps left out. */
static inline uint32_t op_width(struct view v) { return v.width * v.count; }
static inline bool op_has_gaps(struct view v) { return v.count > 1 && v.stride != v.width; }

/* Constructors: the ops of enum op_kind by name. The result is a view of all of the new value.
 * w, b, s are plan_weight ids or TENSOR_NONE. */
struct view op_embed(struct plan *p, uint16_t w, struct op_embed a);
struct view op_rows(struct plan *p, struct view x);
struct view op_rms_norm(struct plan *p, struct view x, uint16_t w, float eps, uint32_t groups);
struct view op_layer_norm(struct plan *p, struct view x, uint16_t w, uint16_t b, float eps);
struct view op_matmul(struct plan *p, struct view x, uint16_t w, uint16_t b, uint16_t s);
struct view op_act(struct plan *p, struct view x, enum op_act kind);
struct view op_glu(struct plan *p, struct view gate, struct view up, struct op_glu a);
struct view op_add(struct plan *p, struct view a, struct view b);
struct view op_add_weight(struct plan *p, struct view a, uint16_t w);
struct view op_mul(struct plan *p, struct view a, struct view b);
struct view op_mul_weight(struct plan *p, struct view a, uint16_t w);
struct view op_scale(struct plan *p, struct view x, float factor);
struct view op_softcap(struct plan *p, struct view x, float cap);
struct view op_rope(struct plan *p, struct view x, uint16_t freqs, struct op_rope a);
void op_kv_write(struct plan *p, uint16_t layer, struct view k, struct view v, struct op_kv a);
struct view op_attn(struct plan *p, uint16_t layer, struct view q, uint16_t sinks,
                    struct op_attn a);
struct view op_pool(struct plan *p, struct view x, struct op_pooling a);
void op_sample(struct plan *p, struct view logits);
void op_top_k(struct plan *p, struct view logits);

struct op_routed {
    struct view ids, w;
};
struct op_routed op_moe_route(struct plan *p, struct view logits, uint16_t bias,
                              struct op_route a);
/* Weights of an expert product, beside W[E][out,in]. */
struct op_expert_weights {
    uint16_t w, b, s;
};
struct view op_moe_matmul(struct plan *p, struct view x, struct view ids,
                          struct op_expert_weights w);
struct view op_moe_sum(struct plan *p, struct view y, struct view w);

struct op_sum_norm {
    struct view sum, norm;
};
struct op_sum_norm op_add_rms_norm(struct plan *p, struct view a, struct view b, uint16_t w,
                                   float eps);
struct op_qkv {
    struct view q, k, v;
    uint16_t q_norm, k_norm, freqs;
};
struct view op_rope_qk(struct plan *p, uint16_t layer, struct op_qkv x, struct op_rope_qk a);
struct op_gate_up {
    uint16_t gate, up, gate_b, up_b;
};
struct view op_matmul_glu(struct plan *p, struct view x, struct op_gate_up w, struct op_glu a);
struct view op_moe_glu(struct plan *p, struct view x, struct view ids, struct op_gate_up w,
                       struct op_glu a);

/* Frequencies f[n_rot/2] of a rope, computed in double and rounded once: base^(-2i/n_rot), linear
 * or YaRN scaling, divided by divisors[i] where given. CPU and CUDA both call this at prepare. */
void op_rope_freqs(const struct op_rope *r, const float *divisors, float *out);

#endif
