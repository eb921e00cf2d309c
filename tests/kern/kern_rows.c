#include "kern/kern.h"

#include <string.h>

/* Row ops of a level against ref: the same bits, over widths around the lanes, views with gaps,
 * unaligned memory and hostile numbers. */

struct shape {
    uint32_t rows, width, count, gap; /* groups of width columns, gap floats apart */
};

static const struct shape shapes[] = {
    {1, 1, 1, 0},  {2, 3, 1, 0},   {3, 16, 1, 0},  {1, 17, 1, 5},  {2, 31, 3, 0},  {3, 64, 2, 7},
    {1, 100, 1, 0}, {2, 256, 1, 0}, {1, 257, 2, 1}, {5, 48, 4, 16}, {1, 1000, 1, 0},
};

struct input {
    struct cpu_view view;
    size_t columns;
};

static struct input make_input(struct shape s, enum kern_fill f)
{
    size_t row = (size_t)(s.width + s.gap) * s.count + 3;
    float *p = kern_new(row * s.rows * 4, 4);
    kern_fill(p, row * s.rows, f);
    return (struct input){{p, row, s.width + s.gap, s.width, s.count},
                          (size_t)s.width * s.count};
}

/* Two outputs, compared and described. */
struct outputs {
    float *got, *want;
    size_t n;
};

static struct outputs make_outputs(size_t n)
{
    struct outputs o = {kern_new(n * 4, 8), kern_new(n * 4, 8), n};
    memset(o.got, 0x77, n * 4);
    memset(o.want, 0x77, n * 4);
    return o;
}

static void compare(struct kern *t, const char *name, struct shape s, enum kern_fill f,
                    struct outputs o)
{
    size_t bad = kern_differs(o.got, o.want, o.n);
    kern_case(t, bad == o.n, "%s %u rows of %u x %u, gap %u, %s: %zu is %.9g, ref %.9g", name,
              s.rows, s.count, s.width, s.gap, kern_fill_name(f), bad,
              (double)o.got[bad < o.n ? bad : 0], (double)o.want[bad < o.n ? bad : 0]);
}

static void check_maps(struct kern *t, struct shape s, enum kern_fill f)
{
    static const char *const names[OP_ACT_COUNT] = {"silu", "gelu_tanh", "gelu_erf", "relu",
                                                    "sigmoid", "tanh", "softplus", "exp"};
    struct input x = make_input(s, f);
    struct act_args a = {.x = x.view, .rows = s.rows, .number = 0.731f};
    struct act_args b = a;
    for (unsigned kind = 0; kind < OP_ACT_COUNT; kind++) {
        struct outputs o = make_outputs(x.columns * s.rows);
        a.kind = b.kind = (enum op_act)kind;
        a.out = o.got;
        b.out = o.want;
        t->k->act(&a);
        t->ref->act(&b);
        compare(t, names[kind], s, f, o);
    }
    void (*const got[])(const struct act_args *) = {t->k->scale, t->k->softcap, t->k->copy};
    void (*const want[])(const struct act_args *) = {t->ref->scale, t->ref->softcap,
                                                     t->ref->copy};
    static const char *const others[] = {"scale", "softcap", "copy"};
    for (size_t i = 0; i < 3; i++) {
        struct outputs o = make_outputs(x.columns * s.rows);
        a.out = o.got;
        b.out = o.want;
        got[i](&a);
        want[i](&b);
        compare(t, others[i], s, f, o);
    }
}

static void check_glu(struct kern *t, struct shape s, enum kern_fill f)
{
    struct input gate = make_input(s, f), up = make_input(s, KERN_FILL_GAUSS);
    /* The other view without gaps: the two walk in different runs. */
    struct shape dense = {s.rows, (uint32_t)gate.columns, 1, 0};
    struct input flat = make_input(dense, f);
    for (unsigned kind = 0; kind < OP_ACT_COUNT; kind++)
        for (int clamp = 0; clamp < 2; clamp++) {
            struct op_glu op = {(enum op_act)kind, 1.702f, clamp ? 1.0f : 0.0f,
                                clamp ? 0.9f : 0.0f, clamp ? 1.1f : 0.0f};
            struct outputs o = make_outputs(gate.columns * s.rows);
            struct glu_args a = {gate.view, clamp ? flat.view : up.view, o.got, s.rows, &op};
            t->k->glu(&a);
            a.out = o.want;
            t->ref->glu(&a);
            compare(t, clamp ? "glu with clamps" : "glu", s, f, o);
        }
}

static void check_binary(struct kern *t, struct shape s, enum kern_fill f)
{
    struct input x = make_input(s, f), same = make_input(s, KERN_FILL_GAUSS);
    struct shape dense = {s.rows, (uint32_t)x.columns, 1, 0}, number = {s.rows, 1, 1, 0};
    struct input flat = make_input(dense, KERN_FILL_GAUSS), one = make_input(number, f);
    float *weight = kern_new(x.columns * 4, 4);
    kern_fill(weight, x.columns, KERN_FILL_GAUSS);
    struct binary_args args[] = {{.b = same.view},
                                 {.b = flat.view},
                                 {.b = one.view},
                                 {.weight = weight, .weight_count = (uint32_t)x.columns},
                                 {.weight = weight, .weight_count = 1}};
    for (size_t i = 0; i < countof(args); i++)
        for (int is_mul = 0; is_mul < 2; is_mul++) {
            struct outputs o = make_outputs(x.columns * s.rows);
            args[i].a = x.view;
            args[i].rows = s.rows;
            args[i].out = o.got;
            (is_mul ? t->k->mul : t->k->add)(&args[i]);
            args[i].out = o.want;
            (is_mul ? t->ref->mul : t->ref->add)(&args[i]);
            compare(t, is_mul ? "mul" : "add", s, f, o);
        }
}

static void check_norms(struct kern *t, struct shape s, enum kern_fill f)
{
    struct input x = make_input(s, f), y = make_input(s, KERN_FILL_GAUSS);
    float *weight = kern_new(x.columns * 4, 4), *bias = kern_new(x.columns * 4, 12);
    kern_fill(weight, x.columns, KERN_FILL_GAUSS);
    kern_fill(bias, x.columns, KERN_FILL_GAUSS);
    for (int with = 0; with < 2; with++) {
        struct outputs o = make_outputs(x.columns * s.rows);
        struct norm_args a = {.x = x.view, .out = o.got, .weight = with ? weight : NULL,
                              .rows = s.rows, .groups = s.count, .eps = 1e-6f};
        t->k->rms_norm(&a);
        a.out = o.want;
        t->ref->rms_norm(&a);
        compare(t, "rms_norm", s, f, o);
        o = make_outputs(x.columns * s.rows);
        a.groups = 1;
        a.bias = with ? bias : NULL;
        a.out = o.got;
        t->k->layer_norm(&a);
        a.out = o.want;
        t->ref->layer_norm(&a);
        compare(t, "layer_norm", s, f, o);
    }
    struct outputs o = make_outputs(x.columns * s.rows), sum = make_outputs(x.columns * s.rows);
    struct add_norm_args a = {x.view, y.view, sum.got, o.got, weight, s.rows, 1e-6f};
    t->k->add_rms_norm(&a);
    a.sum = sum.want;
    a.out = o.want;
    t->ref->add_rms_norm(&a);
    compare(t, "add_rms_norm", s, f, o);
    compare(t, "add_rms_norm's sum", s, f, sum);
}

static void check_rope(struct kern *t, uint32_t head_dim, uint32_t n_rot, uint32_t first,
                       enum kern_fill f)
{
    struct shape s = {3, head_dim, 2, 9};
    struct input x = make_input(s, f);
    struct op_rope op = {.heads = 2, .head_dim = head_dim, .n_rot = n_rot, .first = first,
                         .base = 1e4f, .freq_scale = 1.0f, .mscale = 1.1f};
    uint32_t pairs = n_rot / 2;
    float *freqs = kern_new(pairs * 4, 4);
    int32_t pos[3] = {0, 17, 1000000};
    struct outputs table = make_outputs(3u * pairs * 2);
    op_rope_freqs(&op, NULL, freqs);
    struct rope_table_args ta = {(float(*)[2])table.got, freqs, pos, 3, pairs, op.mscale};
    t->k->rope_table(&ta);
    ta.table = (float(*)[2])table.want;
    t->ref->rope_table(&ta);
    compare(t, "rope_table", s, f, table);
    for (int kind = OP_ROPE_NORM; kind <= OP_ROPE_NEOX; kind++) {
        struct outputs o = make_outputs(x.columns * s.rows);
        op.kind = (enum op_rope_kind)kind;
        struct rope_args a = {x.view, o.got, (const float(*)[2])table.want, &op, 3};
        t->k->rope(&a);
        a.out = o.want;
        t->ref->rope(&a);
        compare(t, kind == OP_ROPE_NORM ? "rope norm" : "rope neox", s, f, o);
    }
}

static void check_experts(struct kern *t, uint32_t d, uint32_t k, enum kern_fill f)
{
    struct shape y = {3, d * k, 1, 0}, w = {3, k, 1, 0};
    struct input in = make_input(y, f), weights = make_input(w, KERN_FILL_GAUSS);
    struct outputs o = make_outputs((size_t)d * 3);
    struct moe_sum_args a = {in.view, weights.view, o.got, 3, k};
    t->k->moe_sum(&a);
    a.out = o.want;
    t->ref->moe_sum(&a);
    compare(t, "moe_sum", y, f, o);
}

static void check_sums(struct kern *t, size_t n, enum kern_fill f)
{
    float *x = kern_new(n * 4, 4);
    struct shape s = {1, (uint32_t)n, 1, 0};
    size_t blocks = (n + 255) / 256;
    kern_fill(x, n, f);
    float max = t->ref->row_max(x, n);
    kern_case(t, t->k->row_max(x, n) == max, "row_max of %zu, %s", n, kern_fill_name(f));
    for (int keeps = 0; keeps < 2; keeps++) {
        struct outputs sums = make_outputs(blocks), e = make_outputs(n);
        struct exp_sums_args a = {x, sums.got, keeps ? e.got : NULL, n, max, 0.7f};
        t->k->exp_sums(&a);
        a.sums = sums.want;
        a.e = keeps ? e.want : NULL;
        t->ref->exp_sums(&a);
        compare(t, "exp_sums", s, f, sums);
        compare(t, "exp_sums' e", s, f, e);
    }
}

void kern_rows(struct kern *t)
{
    for (unsigned fill = 0; fill < KERN_FILL_COUNT; fill++) {
        enum kern_fill f = (enum kern_fill)fill;
        for (size_t i = 0; i < countof(shapes); i++) {
            check_maps(t, shapes[i], f);
            check_glu(t, shapes[i], f);
            check_binary(t, shapes[i], f);
            check_norms(t, shapes[i], f);
            kern_case(t, kern_free_all(), "row ops, shape %zu: wrote outside", i);
        }
        check_rope(t, 64, 64, 0, f);
        check_rope(t, 80, 32, 8, f);
        check_rope(t, 128, 100, 0, f);
        check_rope(t, 10, 6, 2, f);
        check_experts(t, 100, 4, f);
        check_experts(t, 16, 1, f);
        check_sums(t, 1, f);
        check_sums(t, 100, f);
        check_sums(t, 256, f);
        check_sums(t, 5000, f);
        kern_case(t, kern_free_all(), "rope, experts, sums: wrote outside");
    }
}
