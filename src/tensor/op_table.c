/* One row per op: how many operands, which shapes fit together, what a fused op stands for.
 *
 * check() runs after plan_append has seen that every operand exists, lies inside its value and is
 * written before; so it only compares widths, rows and parameters. A model file decides widths and
 * parameters: what does not fit is ERR_FORMAT and names the op and both numbers.
 */
#include "tensor/plan.h"

static uint32_t in_width(const struct op *o, uint32_t i) { return op_width(o->in[i]); }

static const struct weight_want *want(const struct plan *p, const struct op *o, uint32_t i)
{
    return o->weight[i] == TENSOR_NONE ? NULL : &p->weights[o->weight[i]].want;
}

static const struct plan_value *out_value(const struct plan *p, const struct op *o, uint32_t i)
{
    return &p->values[o->out[i]];
}

static bool same(const struct op *o, const char *what, uint32_t have, uint32_t need, struct err *e)
{
    if (have == need)
        return true;
    return err_set(e, ERR_FORMAT, "plan: %s of %s is %u, needed is %u (layer %u)", what,
                   op_table[o->kind].name, have, need, o->layer);
}

static bool fail(const struct op *o, const char *what, uint32_t number, struct err *e)
{
    return err_set(e, ERR_FORMAT, "plan: %s: %s %u (layer %u)", op_table[o->kind].name, what,
                   number, o->layer);
}

/* Weight i, if there is one, is a vector of n. */
static bool is_vector(const struct plan *p, const struct op *o, uint32_t i, uint32_t n,
                      struct err *e)
{
    const struct weight_want *w = want(p, o, i);
    if (!w)
        return true;
    if (w->kind != WEIGHT_KIND_VECTOR || w->rows != 1 || w->mats != 1)
        return fail(o, "no vector is weight", i, e);
    return same(o, "length of a vector", w->cols, n, e);
}

/* Weight i is a stack of mats matrices that take `in` columns. */
static bool is_matrix(const struct plan *p, const struct op *o, uint32_t i, uint32_t in,
                      struct err *e)
{
    const struct weight_want *w = want(p, o, i);
    if (w->kind != WEIGHT_KIND_MATRIX)
        return fail(o, "no matrix is weight", i, e);
    return same(o, "input width", in, w->cols, e);
}

static bool is_dense(const struct op *o, uint32_t i, struct err *e)
{
    return !op_has_gaps(o->in[i]) || fail(o, "gaps in input", i, e);
}

static bool is_out(const struct plan *p, const struct op *o, uint32_t i, uint32_t width,
                   struct err *e)
{
    const struct plan_value *v = out_value(p, o, i);
    if (!op_is_none(o->in[0]) && v->rows != p->values[o->in[0].value].rows)
        return fail(o, "other rows in output", i, e);
    if (v->type != VTYPE_F32)
        return fail(o, "no floats in output", i, e);
    return same(o, "output width", v->width, width, e);
}

static bool is_f32(const struct plan *p, const struct op *o, uint32_t i, struct err *e)
{
    return p->values[o->in[i].value].type == VTYPE_F32 || fail(o, "no floats in input", i, e);
}

static bool is_ids(const struct plan *p, const struct op *o, uint32_t i, uint32_t k,
                   struct err *e)
{
    if (p->values[o->in[i].value].type != VTYPE_I32)
        return fail(o, "no ids in input", i, e);
    return same(o, "ranks per row", in_width(o, i), k, e) && is_dense(o, i, e);
}

/* ---- rules ---- */

static bool check_embed(const struct plan *p, const struct op *o, struct err *e)
{
    const struct weight_want *w = want(p, o, 0);
    if (w->kind != WEIGHT_KIND_MATRIX || w->mats != 1)
        return fail(o, "no matrix is weight", 0, e);
    if (out_value(p, o, 0)->rows != PLAN_ROWS_N)
        return fail(o, "other rows in output", 0, e);
    return is_out(p, o, 0, w->cols, e);
}

static bool check_rows(const struct plan *p, const struct op *o, struct err *e)
{
    if (p->values[o->in[0].value].rows != PLAN_ROWS_N ||
        out_value(p, o, 0)->rows != PLAN_ROWS_O)
        return fail(o, "rows of input and output are not N and O, kind", o->in[0].value, e);
    return is_f32(p, o, 0, e) && is_dense(o, 0, e) &&
           same(o, "output width", out_value(p, o, 0)->width, in_width(o, 0), e);
}

static bool check_norm_groups(const struct op *o, uint32_t groups, struct err *e)
{
    uint32_t width = in_width(o, 0);
    if (groups == 0 || width % groups)
        return fail(o, "columns cannot be divided into groups, of which there are", groups, e);
    if (op_has_gaps(o->in[0]) && o->in[0].width % (width / groups))
        return fail(o, "a group lies across a gap, its columns are", width / groups, e);
    return true;
}

static bool check_rms_norm(const struct plan *p, const struct op *o, struct err *e)
{
    uint32_t groups = o->a.norm.groups;
    return is_f32(p, o, 0, e) && check_norm_groups(o, groups, e) &&
           is_vector(p, o, 0, in_width(o, 0) / groups, e) && is_out(p, o, 0, in_width(o, 0), e);
}

static bool check_layer_norm(const struct plan *p, const struct op *o, struct err *e)
{
    if (o->a.norm.groups != 1)
        return fail(o, "groups", o->a.norm.groups, e);
    return is_f32(p, o, 0, e) && is_vector(p, o, 0, in_width(o, 0), e) &&
           is_vector(p, o, 1, in_width(o, 0), e) && is_out(p, o, 0, in_width(o, 0), e);
}

static bool check_matmul(const struct plan *p, const struct op *o, struct err *e)
{
    const struct weight_want *w = want(p, o, 0);
    if (w->mats != 1)
        return fail(o, "more than one matrix:", w->mats, e);
    return is_f32(p, o, 0, e) && is_dense(o, 0, e) && is_matrix(p, o, 0, in_width(o, 0), e) &&
           is_vector(p, o, 1, w->rows, e) && is_vector(p, o, 2, 1, e) &&
           is_out(p, o, 0, w->rows, e);
}

static bool check_moe_route(const struct plan *p, const struct op *o, struct err *e)
{
    const struct op_route *a = &o->a.route;
    uint32_t experts = in_width(o, 0);
    if (experts > OP_EXPERTS_MAX)
        return fail(o, "more experts than 1024:", experts, e);
    if (a->k == 0 || a->k > experts)
        return fail(o, "experts per token", a->k, e);
    if (a->groups == 0 || experts % a->groups)
        return fail(o, "groups of experts", a->groups, e);
    if (a->groups_used == 0 || a->groups_used > a->groups ||
        a->k > experts / a->groups * a->groups_used)
        return fail(o, "groups used", a->groups_used, e);
    const struct plan_value *ids = out_value(p, o, 0);
    if (ids->type != VTYPE_I32 || ids->rows != p->values[o->in[0].value].rows)
        return fail(o, "no ids in output", 0, e);
    return is_f32(p, o, 0, e) && is_vector(p, o, 0, experts, e) &&
           same(o, "ranks per row", ids->width, a->k, e) && is_out(p, o, 1, a->k, e);
}

/* Experts' bias, where there is one: a row per matrix. */
static bool is_expert_bias(const struct plan *p, const struct op *o, uint32_t i,
                           const struct weight_want *w, struct err *e)
{
    const struct weight_want *b = want(p, o, i);
    if (!b)
        return true;
    if (b->kind != WEIGHT_KIND_VECTOR || b->mats != 1)
        return fail(o, "no table of vectors is weight", i, e);
    return same(o, "rows of the experts' bias", b->rows, w->mats, e) &&
           same(o, "columns of the experts' bias", b->cols, w->rows, e);
}

static bool check_moe_matmul(const struct plan *p, const struct op *o, struct err *e)
{
    const struct weight_want *w = want(p, o, 0);
    uint32_t k = o->a.experts.k;
    uint32_t in = in_width(o, 0) == w->cols ? w->cols : in_width(o, 0) / (k ? k : 1);
    if (in_width(o, 0) != w->cols && in_width(o, 0) != (uint64_t)w->cols * k)
        return fail(o, "input is neither one row nor one per rank, its width is", in_width(o, 0),
                    e);
    return is_f32(p, o, 0, e) && is_dense(o, 0, e) && is_ids(p, o, 1, k, e) &&
           is_matrix(p, o, 0, in, e) && is_expert_bias(p, o, 1, w, e) &&
           is_vector(p, o, 2, w->mats, e) && is_out(p, o, 0, k * w->rows, e);
}

static bool check_moe_sum(const struct plan *p, const struct op *o, struct err *e)
{
    uint32_t k = o->a.experts.k;
    if (k == 0 || in_width(o, 0) % k)
        return fail(o, "ranks per row", k, e);
    return is_f32(p, o, 0, e) && is_f32(p, o, 1, e) &&
           same(o, "ranks per row", in_width(o, 1), k, e) &&
           is_out(p, o, 0, in_width(o, 0) / k, e);
}

/* act, scale, softcap: a number in, a number out. */
static bool check_unary(const struct plan *p, const struct op *o, struct err *e)
{
    if (o->kind == OP_ACT && (unsigned)o->a.act >= OP_ACT_COUNT)
        return fail(o, "kind", (uint32_t)o->a.act, e);
    if (o->kind == OP_SOFTCAP && !(o->a.number.x > 0.0f))
        return fail(o, "the cap is not above", 0, e);
    return is_f32(p, o, 0, e) && is_out(p, o, 0, in_width(o, 0), e);
}

static bool check_glu_args(const struct op *o, const struct op_glu *a, struct err *e)
{
    if ((unsigned)a->kind >= OP_ACT_COUNT)
        return fail(o, "kind", (uint32_t)a->kind, e);
    if (a->kind == OP_ACT_SILU ? !(a->alpha > 0.0f) : a->alpha != 1.0f)
        return fail(o, "alpha does not fit kind", (uint32_t)a->kind, e);
    return (a->clamp_gate >= 0.0f && a->clamp_up >= 0.0f) || fail(o, "a clamp is below", 0, e);
}

static bool check_glu(const struct plan *p, const struct op *o, struct err *e)
{
    return check_glu_args(o, &o->a.glu, e) && is_f32(p, o, 0, e) && is_f32(p, o, 1, e) &&
           same(o, "width of up", in_width(o, 1), in_width(o, 0), e) &&
           is_out(p, o, 0, in_width(o, 0), e);
}

static bool check_binary(const struct plan *p, const struct op *o, struct err *e)
{
    uint32_t width = in_width(o, 0);
    bool has_value = !op_is_none(o->in[1]), has_weight = o->weight[0] != TENSOR_NONE;
    if (has_value == has_weight)
        return fail(o, "one second operand is needed, there are", has_value ? 2 : 0, e);
    if (!is_f32(p, o, 0, e) || !is_out(p, o, 0, width, e))
        return false;
    if (has_weight)
        return is_vector(p, o, 0, want(p, o, 0)->cols == 1 ? 1 : width, e);
    return is_f32(p, o, 1, e) &&
           (in_width(o, 1) == 1 || same(o, "second width", in_width(o, 1), width, e));
}

static bool check_rope_args(const struct op *o, const struct op_rope *a, uint32_t width,
                            struct err *e)
{
    if (a->n_rot == 0 || a->n_rot % 2 || (uint64_t)a->first + a->n_rot > a->head_dim)
        return fail(o, "cannot rotate so many columns of a head:", a->n_rot, e);
    if (!(a->base > 1.0f) || !(a->freq_scale > 0.0f) || !(a->mscale > 0.0f))
        return fail(o, "base, scale or magnitude are no positive numbers, columns", a->n_rot, e);
    if ((uint64_t)a->heads * a->head_dim != width)
        return fail(o, "heads do not fill the row, its width is", width, e);
    return true;
}

static bool check_rope(const struct plan *p, const struct op *o, struct err *e)
{
    return is_f32(p, o, 0, e) && check_rope_args(o, &o->a.rope, in_width(o, 0), e) &&
           is_vector(p, o, 0, o->a.rope.n_rot / 2, e) && is_out(p, o, 0, in_width(o, 0), e);
}

static bool check_kv(const struct plan *p, const struct op *o, uint32_t k, const struct op_kv *a,
                     struct err *e)
{
    uint32_t heads = a->kv_heads, v = k + 1;
    if (heads == 0 || heads > UINT16_MAX || a->dk == 0 || a->dv == 0)
        return fail(o, "heads of keys and values", heads, e);
    if (p->values[o->in[k].value].rows != PLAN_ROWS_N)
        return fail(o, "other rows in input", k, e);
    return is_f32(p, o, k, e) && is_f32(p, o, v, e) &&
           ((uint64_t)heads * a->dk == in_width(o, k) ||
            fail(o, "heads do not fill the keys, columns per head", a->dk, e)) &&
           ((uint64_t)heads * a->dv == in_width(o, v) ||
            fail(o, "heads do not fill the values, columns per head", a->dv, e));
}

static bool check_kv_write(const struct plan *p, const struct op *o, struct err *e)
{
    return check_kv(p, o, 0, &o->a.kv, e);
}

static bool check_attn(const struct plan *p, const struct op *o, struct err *e)
{
    const struct op_attn *a = &o->a.attn;
    if (a->kv_heads == 0 || a->heads % a->kv_heads)
        return fail(o, "query heads cannot be shared out to K/V heads, of which there are",
                    a->kv_heads, e);
    if (a->mask == OP_MASK_FULL && a->window)
        return fail(o, "a full mask takes no window, it is", a->window, e);
    if (!(a->scale > 0.0f) || !(a->softcap >= 0.0f))
        return fail(o, "scale or cap are no positive numbers, heads", a->heads, e);
    if (p->values[o->in[0].value].rows != PLAN_ROWS_N)
        return fail(o, "other rows in input", 0, e);
    return is_f32(p, o, 0, e) && is_dense(o, 0, e) &&
           ((uint64_t)a->heads * a->dk == in_width(o, 0) ||
            fail(o, "heads do not fill the queries, columns per head", a->dk, e)) &&
           is_vector(p, o, 0, a->heads, e) && is_out(p, o, 0, a->heads * a->dv, e);
}

static bool check_pool(const struct plan *p, const struct op *o, struct err *e)
{
    if (p->values[o->in[0].value].rows != PLAN_ROWS_N ||
        out_value(p, o, 0)->rows != PLAN_ROWS_S)
        return fail(o, "rows of input and output are not N and S, kind", o->in[0].value, e);
    return is_f32(p, o, 0, e) &&
           same(o, "output width", out_value(p, o, 0)->width, in_width(o, 0), e);
}

static bool check_answer(const struct plan *p, const struct op *o, struct err *e)
{
    if (p->values[o->in[0].value].rows != PLAN_ROWS_O)
        return fail(o, "other rows in input", 0, e);
    if (p->logits != TENSOR_NONE && p->logits != o->in[0].value)
        return fail(o, "another value has the logits:", p->logits, e);
    /* All of a value, so that logits_row and the lists mean the same. */
    return is_f32(p, o, 0, e) && is_dense(o, 0, e) &&
           same(o, "width", in_width(o, 0), p->values[o->in[0].value].width, e);
}

static bool check_add_rms_norm(const struct plan *p, const struct op *o, struct err *e)
{
    uint32_t width = in_width(o, 0);
    if (o->a.norm.groups != 1)
        return fail(o, "groups", o->a.norm.groups, e);
    return is_f32(p, o, 0, e) && is_f32(p, o, 1, e) &&
           same(o, "second width", in_width(o, 1), width, e) && is_vector(p, o, 0, width, e) &&
           is_out(p, o, 0, width, e) && is_out(p, o, 1, width, e);
}

static bool check_rope_qk(const struct plan *p, const struct op *o, struct err *e)
{
    const struct op_rope_qk *a = &o->a.rope_qk;
    if (a->kv.dk != a->rope.head_dim)
        return fail(o, "keys have other heads than queries, columns per head", a->kv.dk, e);
    if (o->weight[0] != TENSOR_NONE && !check_norm_groups(o, a->rope.heads, e))
        return false;
    return is_f32(p, o, 0, e) && check_rope_args(o, &a->rope, in_width(o, 0), e) &&
           check_kv(p, o, 1, &a->kv, e) && is_vector(p, o, 0, a->rope.head_dim, e) &&
           is_vector(p, o, 1, a->rope.head_dim, e) && is_vector(p, o, 2, a->rope.n_rot / 2, e) &&
           is_out(p, o, 0, in_width(o, 0), e);
}

static bool check_matmul_glu(const struct plan *p, const struct op *o, struct err *e)
{
    const struct weight_want *gate = want(p, o, 0), *up = want(p, o, 1);
    if (gate->mats != 1 || up->mats != 1)
        return fail(o, "more than one matrix:", gate->mats, e);
    return check_glu_args(o, &o->a.glu, e) && is_f32(p, o, 0, e) && is_dense(o, 0, e) &&
           is_matrix(p, o, 0, in_width(o, 0), e) && is_matrix(p, o, 1, in_width(o, 0), e) &&
           same(o, "width of up", up->rows, gate->rows, e) &&
           is_vector(p, o, 2, gate->rows, e) && is_vector(p, o, 3, gate->rows, e) &&
           is_out(p, o, 0, gate->rows, e);
}

static bool check_moe_glu(const struct plan *p, const struct op *o, struct err *e)
{
    const struct weight_want *gate = want(p, o, 0), *up = want(p, o, 1);
    uint32_t k = o->a.moe_glu.experts.k;
    return check_glu_args(o, &o->a.moe_glu.glu, e) && is_f32(p, o, 0, e) && is_dense(o, 0, e) &&
           is_ids(p, o, 1, k, e) && is_matrix(p, o, 0, in_width(o, 0), e) &&
           is_matrix(p, o, 1, in_width(o, 0), e) &&
           same(o, "experts of up", up->mats, gate->mats, e) &&
           same(o, "width of up", up->rows, gate->rows, e) &&
           is_expert_bias(p, o, 2, gate, e) && is_expert_bias(p, o, 3, up, e) &&
           is_out(p, o, 0, k * gate->rows, e);
}

/* ---- expansions: the last plain op writes what the fused op wrote ---- */

static struct op plain(enum op_kind kind, const struct op *o, struct view in)
{
    struct op n = {.kind = kind, .layer = o->layer};
    for (uint32_t i = 0; i < OP_IN_MAX; i++)
        n.in[i] = op_none();
    for (uint32_t i = 0; i < OP_OUT_MAX; i++)
        n.out[i] = TENSOR_NONE;
    for (uint32_t i = 0; i < OP_WEIGHT_MAX; i++)
        n.weight[i] = TENSOR_NONE;
    n.in[0] = in;
    return n;
}

static void expand_add_rms_norm(struct plan *p, const struct op *o)
{
    struct op add = plain(OP_ADD, o, o->in[0]);
    add.in[1] = o->in[1];
    add.out[0] = o->out[0];
    plan_append(p, &add);
    struct op norm = plain(OP_RMS_NORM, o, op_view(p, o->out[0]));
    norm.weight[0] = o->weight[0];
    norm.out[0] = o->out[1];
    norm.a.norm = o->a.norm;
    plan_append(p, &norm);
}

/* The rope and norm constructors make new values; q's rope must write the fused op's output. */
static void expand_rope_qk(struct plan *p, const struct op *o)
{
    const struct op_rope_qk *a = &o->a.rope_qk;
    struct view q = o->in[0], k = o->in[1];
    if (o->weight[0] != TENSOR_NONE)
        q = op_rms_norm(p, q, o->weight[0], a->eps, a->rope.heads);
    struct op rope = plain(OP_ROPE, o, q);
    rope.weight[0] = o->weight[2];
    rope.out[0] = o->out[0];
    rope.a.rope = a->rope;
    plan_append(p, &rope);
    if (o->weight[1] != TENSOR_NONE)
        k = op_rms_norm(p, k, o->weight[1], a->eps, a->kv.kv_heads);
    struct op_rope of_k = a->rope;
    of_k.heads = a->kv.kv_heads;
    k = op_rope(p, k, o->weight[2], of_k);
    op_kv_write(p, o->layer, k, o->in[2], a->kv);
}

static void append_glu(struct plan *p, const struct op *o, struct view gate, struct view up,
                       struct op_glu a)
{
    struct op glu = plain(OP_GLU, o, gate);
    glu.in[1] = up;
    glu.out[0] = o->out[0];
    glu.a.glu = a;
    plan_append(p, &glu);
}

static void expand_matmul_glu(struct plan *p, const struct op *o)
{
    struct view gate = op_matmul(p, o->in[0], o->weight[0], o->weight[2], TENSOR_NONE);
    struct view up = op_matmul(p, o->in[0], o->weight[1], o->weight[3], TENSOR_NONE);
    append_glu(p, o, gate, up, o->a.glu);
}

static void expand_moe_glu(struct plan *p, const struct op *o)
{
    struct op_expert_weights gate_w = {o->weight[0], o->weight[2], TENSOR_NONE};
    struct op_expert_weights up_w = {o->weight[1], o->weight[3], TENSOR_NONE};
    struct view gate = op_moe_matmul(p, o->in[0], o->in[1], gate_w);
    struct view up = op_moe_matmul(p, o->in[0], o->in[1], up_w);
    append_glu(p, o, gate, up, o->a.moe_glu.glu);
}

/* ---- parameters as text ---- */

static const char *const act_names[OP_ACT_COUNT] = {"silu", "gelu_tanh", "gelu_erf", "relu",
                                                    "sigmoid", "tanh", "softplus", "exp"};

static void print_embed(struct buf *out, const struct op *o)
{
    static const char *const names[] = {"tokens", "positions", "aux"};
    buf_printf(out, "%s", names[o->a.embed.index]);
    if (o->a.embed.scale != 1.0f)
        buf_printf(out, " scale %g", (double)o->a.embed.scale);
}

static void print_norm(struct buf *out, const struct op *o)
{
    buf_printf(out, "eps %g", (double)o->a.norm.eps);
    if (o->a.norm.groups != 1)
        buf_printf(out, " groups %u", o->a.norm.groups);
}

static void print_route(struct buf *out, const struct op *o)
{
    static const char *const names[] = {"softmax", "sigmoid", "chosen", "sqrt_softplus"};
    const struct op_route *a = &o->a.route;
    buf_printf(out, "%s top %u", names[a->gate], a->k);
    if (a->groups > 1)
        buf_printf(out, " groups %u of %u", a->groups_used, a->groups);
    if (a->norm)
        buf_add_z(out, " norm");
    if (a->scale != 1.0f)
        buf_printf(out, " scale %g", (double)a->scale);
}

static void print_act(struct buf *out, const struct op *o)
{
    buf_add_z(out, act_names[o->a.act]);
}

static void print_glu_args(struct buf *out, const struct op_glu *a)
{
    buf_add_z(out, act_names[a->kind]);
    if (a->alpha != 1.0f)
        buf_printf(out, " alpha %g", (double)a->alpha);
    if (a->up_add != 0.0f)
        buf_printf(out, " up +%g", (double)a->up_add);
    if (a->clamp_gate != 0.0f || a->clamp_up != 0.0f)
        buf_printf(out, " clamp %g %g", (double)a->clamp_gate, (double)a->clamp_up);
}

static void print_glu(struct buf *out, const struct op *o) { print_glu_args(out, &o->a.glu); }

static void print_moe_glu(struct buf *out, const struct op *o)
{
    print_glu_args(out, &o->a.moe_glu.glu);
}

static void print_number(struct buf *out, const struct op *o)
{
    buf_printf(out, "%g", (double)o->a.number.x);
}

static void print_rope_args(struct buf *out, const struct op_rope *a)
{
    buf_printf(out, "%s heads %u x %u", a->kind == OP_ROPE_NORM ? "norm" : "neox", a->heads,
               a->head_dim);
    if (a->n_rot != a->head_dim || a->first)
        buf_printf(out, " rot %u+%u", a->first, a->n_rot);
    buf_printf(out, " base %g", (double)a->base);
    if (a->freq_scale != 1.0f)
        buf_printf(out, " scale %g", (double)a->freq_scale);
    if (a->ext != 0.0f)
        buf_printf(out, " yarn %g %g", (double)a->low, (double)a->high);
    if (a->mscale != 1.0f)
        buf_printf(out, " mscale %g", (double)a->mscale);
}

static void print_rope(struct buf *out, const struct op *o) { print_rope_args(out, &o->a.rope); }

static void print_kv_args(struct buf *out, const struct op *o, const struct op_kv *a)
{
    buf_printf(out, "layer %u heads %u x %u,%u", o->layer, a->kv_heads, a->dk, a->dv);
    if (a->window)
        buf_printf(out, " window %u", a->window);
}

static void print_kv(struct buf *out, const struct op *o) { print_kv_args(out, o, &o->a.kv); }

static void print_rope_qk(struct buf *out, const struct op *o)
{
    print_rope_args(out, &o->a.rope_qk.rope);
    buf_add_z(out, ", ");
    print_kv_args(out, o, &o->a.rope_qk.kv);
}

static void print_attn(struct buf *out, const struct op *o)
{
    const struct op_attn *a = &o->a.attn;
    buf_printf(out, "layer %u heads %u/%u x %u,%u scale %g", o->layer, a->heads, a->kv_heads,
               a->dk, a->dv, (double)a->scale);
    if (a->mask == OP_MASK_FULL)
        buf_add_z(out, " full");
    if (a->window)
        buf_printf(out, " window %u", a->window);
    if (a->softcap != 0.0f)
        buf_printf(out, " softcap %g", (double)a->softcap);
}

static void print_pool(struct buf *out, const struct op *o)
{
    static const char *const names[] = {"mean", "first", "last"};
    buf_printf(out, "%s%s", names[o->a.pool.kind], o->a.pool.l2 ? " l2" : "");
}


const struct op_info op_table[OP_COUNT] = {
    /*                  name            in    out weights fused  check */
    [OP_EMBED]        = {"embed",        0, 0, 1, 1, 1, false, check_embed, NULL, print_embed},
    [OP_ROWS]         = {"rows",         1, 1, 1, 0, 0, false, check_rows, NULL, NULL},
    [OP_RMS_NORM]     = {"rms_norm",     1, 1, 1, 0, 1, false, check_rms_norm, NULL, print_norm},
    [OP_LAYER_NORM]   = {"layer_norm",   1, 1, 1, 1, 2, false, check_layer_norm, NULL, print_norm},
    [OP_MATMUL]       = {"matmul",       1, 1, 1, 1, 3, false, check_matmul, NULL, NULL},
    [OP_MOE_ROUTE]    = {"moe_route",    1, 1, 2, 0, 1, false, check_moe_route, NULL, print_route},
    [OP_MOE_MATMUL]   = {"moe_matmul",   2, 2, 1, 1, 3, false, check_moe_matmul, NULL, NULL},
    [OP_MOE_SUM]      = {"moe_sum",      2, 2, 1, 0, 0, false, check_moe_sum, NULL, NULL},
    [OP_ACT]          = {"act",          1, 1, 1, 0, 0, false, check_unary, NULL, print_act},
    [OP_GLU]          = {"glu",          2, 2, 1, 0, 0, false, check_glu, NULL, print_glu},
    [OP_ADD]          = {"add",          1, 2, 1, 0, 1, false, check_binary, NULL, NULL},
    [OP_MUL]          = {"mul",          1, 2, 1, 0, 1, false, check_binary, NULL, NULL},
    [OP_SCALE]        = {"scale",        1, 1, 1, 0, 0, false, check_unary, NULL, print_number},
    [OP_SOFTCAP]      = {"softcap",      1, 1, 1, 0, 0, false, check_unary, NULL, print_number},
    [OP_ROPE]         = {"rope",         1, 1, 1, 0, 1, false, check_rope, NULL, print_rope},
    [OP_KV_WRITE]     = {"kv_write",     2, 2, 0, 0, 0, false, check_kv_write, NULL, print_kv},
    [OP_ATTN]         = {"attn",         1, 1, 1, 0, 1, false, check_attn, NULL, print_attn},
    [OP_POOL]         = {"pool",         1, 1, 1, 0, 0, false, check_pool, NULL, print_pool},
    [OP_SAMPLE]       = {"sample",       1, 1, 0, 0, 0, false, check_answer, NULL, NULL},
    [OP_TOP_K]        = {"top_k",        1, 1, 0, 0, 0, false, check_answer, NULL, NULL},
    [OP_ADD_RMS_NORM] = {"add_rms_norm", 2, 2, 2, 1, 1, true, check_add_rms_norm,
                         expand_add_rms_norm, print_norm},
    [OP_ROPE_QK]      = {"rope_qk",      3, 3, 1, 0, 3, true, check_rope_qk, expand_rope_qk,
                         print_rope_qk},
    [OP_MATMUL_GLU]   = {"matmul_glu",   1, 1, 1, 2, 4, true, check_matmul_glu, expand_matmul_glu,
                         print_glu},
    [OP_MOE_GLU]      = {"moe_glu",      2, 2, 1, 2, 4, true, check_moe_glu, expand_moe_glu,
                         print_moe_glu},
};
