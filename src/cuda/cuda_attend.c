#include "cuda/cuda_run.h"

/* Rotation, pages of keys and values, attention over them. */

static struct cuda_kv_args cuda_attend_kv(const struct prepared *p, uint16_t layer)
{
    const struct kv_layout *l = &p->d->layout;
    const struct kv_layer *found = NULL;
    for (uint32_t i = 0; i < l->layers_count && !found; i++)
        if (l->layers[i].layer == layer)
            found = &l->layers[i];
    must(found);
    return (struct cuda_kv_args){
        .pool = cuda_backend_layer_page(p->d, found, 0),
        .pages = p->in + p->at.pages[found->group],
        .page_size = cuda_backend_layer_size(p->d, found),
        .v_offset = found->heads * kv_head_size(l->type, found->dk),
        .pages_max = p->shape.page_stride,
        .kv_heads = found->heads,
        .dk = found->dk,
        .dv = found->dv,
        .k_size = (uint32_t)kv_head_size(l->type, found->dk),
        .v_size = (uint32_t)kv_head_size(l->type, found->dv),
        .is_int8 = l->type == KV_TYPE_INT8,
    };
}

bool cuda_attend_kv_write(struct prepared *p, const struct op *o, struct err *e)
{
    struct cuda_kv_write_args a = {
        .kv = cuda_attend_kv(p, o->layer),
        .k = cuda_run_view(p, o->in[0]),
        .v = cuda_run_view(p, o->in[1]),
        .pos = p->in + p->at.pos,
        .seq = p->in + p->at.seq,
        .rows = p->shape.rows,
    };
    const struct cuda_kernels *k = &p->d->k;
    return cuda_run_launch(p, a.kv.is_int8 ? k->ops_kv_write_int8 : k->ops_kv_write,
                           cuda_run_grid(a.kv.kv_heads, a.rows, 32), &a, e);
}

/* Whether the attention at `index` finds its queries turned: the op before it made them, for it
 * alone. */
static bool cuda_attend_is_turned(const struct prepared *p, uint32_t index)
{
    const struct plan *plan = p->plan;
    if (p->d->layout.type != KV_TYPE_INT8 || index == 0 || index >= plan->ops_count)
        return false;
    const struct op *before = &plan->ops[index - 1], *o = &plan->ops[index];
    return before->kind == OP_ROPE_QK && o->kind == OP_ATTN &&
           o->in[0].value == before->out[0] && o->layer == before->layer &&
           plan->values[before->out[0]].op_last == index &&
           op_width(o->in[0]) == plan->values[before->out[0]].width;
}

/* q[N,h*dk], k, v; weights: norms of q and k, frequency divisors (cuda_step reads them). */
bool cuda_attend_rope_qk(struct prepared *p, const struct op *o, uint32_t index, struct err *e)
{
    const struct op_rope_qk *q = &o->a.rope_qk;
    struct cuda_rope_qk_args a = {
        .q = cuda_run_rope_args(p, q->rope, o->in[0], index),
        .k = cuda_run_rope_args(p, q->rope, o->in[1], index),
        .write = {.kv = cuda_attend_kv(p, o->layer),
                  .k = cuda_run_view(p, o->in[1]),
                  .v = cuda_run_view(p, o->in[2]),
                  .pos = p->in + p->at.pos,
                  .seq = p->in + p->at.seq,
                  .rows = p->shape.rows},
    };
    a.q.out = cuda_run_value(p, o->out[0]);
    a.q.norm = cuda_run_vector(p, o->weight[0]);
    a.k.norm = cuda_run_vector(p, o->weight[1]);
    a.q.eps = a.k.eps = q->eps;
    a.k.heads = q->kv.kv_heads;
    a.turns_q = cuda_attend_is_turned(p, index + 1);
    const struct cuda_kernels *k = &p->d->k;
    return cuda_run_launch(p, a.write.kv.is_int8 ? k->ops_rope_qk_int8 : k->ops_rope_qk,
                           cuda_run_grid((a.q.heads + 2 * a.k.heads + 3) / 4, p->shape.rows, 128),
                           &a, e);
}

/* The same form from row `first` on. */
static struct cuda_act_args cuda_attend_act_rows(struct cuda_act_args a, uint32_t first)
{
    size_t at = (size_t)first * a.kp;
    a.row_first = a.image ? first : 0;
    if (a.image)
        return a;
    a.q += a.form == CUDA_FORM_BF16 ? 2 * at : at;
    a.s += at / 32 * 2;
    a.d += at / (a.form == CUDA_FORM_INT8_32 ? 32 : 256) * 4;
    return a;
}

/* Kernel for so many query heads per K/V head. */
static cuda_function cuda_attend_kernel(const struct cuda_kernels *k, bool is_int8, uint32_t group,
                                        uint32_t *padded)
{
    cuda_function functions[2][5] = {
        {k->attn_part_1, k->attn_part_2, k->attn_part_4, k->attn_part_8, k->attn_part_16},
        {k->attn_part_int8_1, k->attn_part_int8_2, k->attn_part_int8_4, k->attn_part_int8_8,
         k->attn_part_int8_16}};
    uint32_t step = 0;
    while (step + 1 < countof(functions[0]) && (1u << step) < group)
        step++;
    *padded = 1u << step;
    return functions[is_int8][step];
}

/* Those of attend.cu. */
struct cuda_attend_pair {
    cuda_function part, rows;
};
static struct cuda_attend_pair cuda_attend_tiles(const struct cuda_kernels *k, bool is_int8,
                                                 uint32_t d)
{
    if (is_int8)
        return d == 64 ? (struct cuda_attend_pair){k->attend_part_int8_64, k->attend_rows_int8_64}
                       : (struct cuda_attend_pair){k->attend_part_int8_128,
                                                   k->attend_rows_int8_128};
    return d == 64 ? (struct cuda_attend_pair){k->attend_part_64, k->attend_rows_64}
                   : (struct cuda_attend_pair){k->attend_part_128, k->attend_rows_128};
}

/* Pages of int8 hold K turned: the queries of a step are turned once too. */
static bool cuda_attend_turn(struct prepared *p, uint32_t index, struct cuda_attn_args *a,
                             struct err *e)
{
    const struct op_attn n = p->plan->ops[index].a.attn;
    if (!a->kv.is_int8 || cuda_attend_is_turned(p, index))
        return true;
    struct cuda_turn_args t = {
        .x = a->q, .out = p->turned, .rows = a->rows, .heads = n.heads, .dk = n.dk};
    a->q = (struct cuda_view){.p = p->turned,
                              .stride = n.heads * n.dk,
                              .width = n.heads * n.dk,
                              .group_width = 1,
                              .group_stride = 1};
    return cuda_run_launch(p, p->d->k.ops_turn, cuda_run_grid((n.heads + 3) / 4, t.rows, 128), &t,
                           e);
}

static struct cuda_attn_args cuda_attend_args(const struct prepared *p, const struct op *o,
                                              uint32_t block)
{
    struct op_attn n = o->a.attn;
    return (struct cuda_attn_args){
        .kv = cuda_attend_kv(p, o->layer),
        .q = cuda_run_view(p, o->in[0]),
        .out = cuda_run_value(p, o->out[0]),
        .sinks = cuda_run_vector(p, o->weight[0]),
        .pos = p->in + p->at.pos,
        .seq = p->in + p->at.seq,
        .len = p->in + p->at.len,
        .part = p->part,
        .rows = p->shape.rows,
        .heads = n.heads,
        .window = n.window,
        .block = block,
        .blocks = (p->shape.page_stride * KV_PAGE_TOKENS + block - 1) / block,
        .is_full = n.mask == OP_MASK_FULL,
        .scale = n.scale,
        .softcap = n.softcap,
    };
}

/* The same from row `first` on. */
static struct cuda_attn_args cuda_attend_from(const struct cuda_attn_args *all, struct op_attn n,
                                              uint32_t first)
{
    struct cuda_attn_args a = *all;
    a.rows -= first;
    a.out += (size_t)first * n.heads * n.dv * 4;
    a.pos += first * 4ul;
    a.seq += first * 4ul;
    a.q.p += (size_t)first * a.q.stride * 4;
    return a;
}

/* A kernel for parts of the first rows, then attn_merge. Rows go in slices whose parts fit the part
 * buffer; slices change no bit. g: all but its z, the rows. */
static bool cuda_attend_parts(struct prepared *p, uint32_t index, cuda_function part,
                              struct cuda_grid g, const struct cuda_attn_args *all,
                              struct err *e)
{
    const struct op *o = &p->plan->ops[index];
    struct op_attn n = o->a.attn;
    size_t row_size = (size_t)n.heads * all->blocks * (n.dv + 2) * 4;
    uint32_t slice = (uint32_t)base_max(1, p->part_size / row_size);
    struct cuda_act_args act = {0};
    if (n.heads * n.dv % 256 == 0 && all->rows == p->shape.rows)
        act = cuda_mul_fuse_act(p, index, o->out[0]);
    for (uint32_t first = 0; first < all->rows; first += slice) {
        struct cuda_attn_args a = cuda_attend_from(all, n, first);
        a.rows = g.z = (uint32_t)base_min(slice, all->rows - first);
        if (act.q)
            a.act = cuda_attend_act_rows(act, first);
        if (!cuda_run_launch(p, part, g, &a, e) ||
            !cuda_run_launch(p, p->d->k.attn_merge,
                             cuda_run_grid((n.heads * n.dv + 255) / 256, a.rows, 256), &a, e))
            return false;
    }
    return true;
}

/* Heads of 64 and 128 columns: rows that are alone in their sequence, and all where there are few
 * for each, have a block per row; those of a prompt share its K and V, and would wait for sequence
 * after sequence in a tile of rows that have nothing in common. */
static bool cuda_attend_rows(struct prepared *p, const struct op *o, uint32_t index, struct err *e)
{
    struct op_attn n = o->a.attn;
    struct cuda_attn_args a = cuda_attend_args(p, o, CUDA_ATTEND_BLOCK);
    const struct cuda_attend_pair k = cuda_attend_tiles(&p->d->k, a.kv.is_int8, n.dk);
    if (!cuda_attend_turn(p, index, &a, e))
        return false;
    const uint32_t alone = a.rows > 2 * p->shape.seqs ? p->shape.singles : a.rows;
    if (alone < a.rows) {
        uint32_t each = CUDA_ATTEND_ROWS / (n.heads / n.kv_heads);
        struct cuda_attn_args rest = cuda_attend_from(&a, n, alone);
        struct cuda_grid g = cuda_run_grid(n.kv_heads, (rest.rows + each - 1) / each, 256);
        g.shared = cuda_kernels_attend_rows_size(n.dk);
        if (!cuda_run_launch(p, k.rows, g, &rest, e))
            return false;
    }
    if (alone == 0)
        return true;
    a.rows = alone;
    struct cuda_grid g = cuda_run_grid(a.blocks, n.kv_heads, 128);
    g.shared = cuda_kernels_attend_part_size(n.dk, a.kv.is_int8);
    return cuda_attend_parts(p, index, k.part, g, &a, e);
}

bool cuda_attend_op(struct prepared *p, const struct op *o, uint32_t index, struct err *e)
{
    struct op_attn n = o->a.attn;
    uint32_t group, each = n.heads / n.kv_heads;
    bool is_int8 = p->d->layout.type == KV_TYPE_INT8;
    cuda_function part = cuda_attend_kernel(&p->d->k, is_int8, each, &group);
    if (each > group)
        return err_set(e, ERR_UNSUPPORTED, "cuda: %u query heads per K/V head, at most %u", each,
                       group);
    if (n.dk == n.dv && (n.dk == 64 || n.dk == 128))
        return cuda_attend_rows(p, o, index, e);
    struct cuda_attn_args a = cuda_attend_args(p, o, CUDA_ATTN_BLOCK);
    if (!cuda_attend_turn(p, index, &a, e))
        return false;
    struct cuda_grid g = cuda_run_grid(a.blocks, n.kv_heads, 256);
    g.shared = group * (n.dk + CUDA_ATTN_BLOCK + 8 * n.dv) * 4;
    return cuda_attend_parts(p, index, part, g, &a, e);
}
