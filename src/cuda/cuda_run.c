#include "cuda/cuda_device.h"

#include <string.h>

/* One op of a plan becomes one or a few launches. Inputs of the step lie in p->in at p->at. */

/* ---- values ---- */

static uint32_t cuda_run_rows(const struct prepared *p, uint16_t value)
{
    switch (p->plan->values[value].rows) {
    case PLAN_ROWS_N:
        return p->shape.rows;
    case PLAN_ROWS_O:
        return p->shape.outs;
    case PLAN_ROWS_S:
        return p->shape.seqs;
    case PLAN_ROWS_COUNT:
        break;
    }
    must(false);
    return 0;
}

static cuda_ptr cuda_run_value(const struct prepared *p, uint16_t value)
{
    return value == TENSOR_NONE ? 0 : p->slots[p->plan->values[value].slot];
}

static struct cuda_view cuda_run_view(const struct prepared *p, struct view v)
{
    if (v.value == TENSOR_NONE)
        return (struct cuda_view){0};
    return (struct cuda_view){
        .p = cuda_run_value(p, v.value),
        .stride = p->plan->values[v.value].width,
        .first = v.first,
        .width = op_width(v),
        .group_width = op_has_gaps(v) ? v.width : 1,
        .group_stride = op_has_gaps(v) ? v.stride : 1,
    };
}

static const struct cuda_weight *cuda_run_weight(const struct prepared *p, uint16_t w)
{
    return w == TENSOR_NONE ? NULL : p->weights[w].device;
}

static cuda_ptr cuda_run_vector(const struct prepared *p, uint16_t w)
{
    const struct cuda_weight *c = cuda_run_weight(p, w);
    return c ? c->p : 0;
}

static bool cuda_run_launch(struct prepared *p, cuda_function f, struct cuda_grid g,
                            const void *args, struct err *e)
{
    if (g.x == 0 || g.y == 0 || g.z == 0)
        return true;
    return cuda_kernels_launch(&p->d->k, f, g, args, p->d->stream, e);
}

static struct cuda_grid cuda_run_grid(uint32_t x, uint32_t y, uint32_t threads)
{
    return (struct cuda_grid){.x = x, .y = y, .z = 1, .threads = threads};
}

/* ---- matmul ---- */

/* Form of the input when so many columns meet a weight of this format. is_stream: not gemm.cu in
 * any case: experts' columns are too few each, and it knows two kinds of glu only. */
static uint32_t cuda_run_form(const struct prepared *p, uint32_t format, uint32_t columns,
                              bool is_stream)
{
    if (format <= CUDA_FORMAT_BF16)
        return CUDA_FORM_F32;
    uint32_t form = format >= CUDA_FORMAT_Q4_K ? CUDA_FORM_INT8_256 : CUDA_FORM_INT8_32;
    bool is_image = p->act_image && !is_stream && columns >= CUDA_GEMM_COLUMNS_MIN;
    return is_image ? form | CUDA_FORM_IMAGE : form;
}

/* What a kernel that makes the form gets; rows and x are the caller's. */
static struct cuda_act_args cuda_run_act(const struct prepared *p, uint32_t form, uint32_t k,
                                         uint32_t kp)
{
    bool is_image = (form & CUDA_FORM_IMAGE) != 0;
    return (struct cuda_act_args){.q = p->act_q,
                                  .d = p->act_d,
                                  .s = p->act_s,
                                  .image = is_image ? p->act_image : 0,
                                  .k = k,
                                  .kp = kp,
                                  .form = form & ~CUDA_FORM_IMAGE};
}

/* Rows without gaps at multiples of four: a thread can take four columns. */
static bool cuda_run_is_wide(struct cuda_view v)
{
    return v.group_width == v.group_stride && v.first % 4 == 0 && v.stride % 4 == 0 &&
           v.width % 4 == 0;
}

static bool cuda_run_same_view(struct view a, struct view b)
{
    return a.value == b.value && a.first == b.first && a.width == b.width && a.stride == b.stride &&
           a.count == b.count;
}

/* Brings the view into the form, unless the last matmul already did. rows_each: input rows. */
static bool cuda_run_pack(struct prepared *p, struct view x, uint32_t rows, uint32_t k, uint32_t kp,
                          uint32_t form, struct err *e)
{
    if (form == CUDA_FORM_F32) {
        if (!op_has_gaps(x))
            return true;
        struct cuda_map_args m = {.a = cuda_run_view(p, x),
                                  .out = p->act_f,
                                  .rows = rows,
                                  .width = op_width(x),
                                  .kind = CUDA_MAP_COPY};
        return cuda_run_launch(p, p->d->k.ops_map, cuda_run_grid((m.width + 255) / 256, rows, 256),
                               &m, e);
    }
    if (p->has_packed && p->packed_form == form && cuda_run_same_view(p->packed, x))
        return true;
    p->has_packed = true;
    p->packed = x;
    p->packed_form = form;
    struct cuda_view v = cuda_run_view(p, x);
    uint32_t ranks = op_width(x) / k; /* experts' inputs: a row for each (row, rank) */
    if (ranks > 1) {
        must(!op_has_gaps(x) && v.first == 0 && v.stride == op_width(x));
        v.stride = k;
    }
    struct cuda_act_args a = cuda_run_act(p, form, k, kp);
    a.x = v;
    a.rows = rows * ranks;
    if (cuda_run_is_wide(v))
        return cuda_run_launch(p, p->d->k.ops_act4,
                               cuda_run_grid((kp + 1023) / 1024, rows * ranks, 256), &a, e);
    return cuda_run_launch(p, p->d->k.pack_act, cuda_run_grid(kp / 256, rows * ranks, 256), &a, e);
}

/* If a matmul close behind op `index` reads all of `value` in an int8 form, the op that makes the
 * value writes that form too: a launch and a pass less. */
static struct cuda_act_args cuda_run_fuse_act(struct prepared *p, uint32_t index, uint16_t value)
{
    struct cuda_act_args none = {0};
    const struct plan *plan = p->plan;
    for (uint32_t i = index + 1; i < plan->ops_count && i < index + 6; i++) {
        const struct op *o = &plan->ops[i];
        bool is_moe = o->kind == OP_MOE_GLU || o->kind == OP_MOE_MATMUL;
        if (o->kind != OP_MATMUL && o->kind != OP_MATMUL_GLU && !is_moe)
            continue;
        const struct cuda_weight *c = cuda_run_weight(p, o->weight[0]);
        uint32_t rows = cuda_run_rows(p, o->in[0].value), width = plan->values[value].width;
        bool is_stream = is_moe || (o->kind == OP_MATMUL_GLU && o->a.glu.kind > OP_ACT_GELU_TANH);
        uint32_t form = cuda_run_form(p, c->format, rows, is_stream);
        if (form == CUDA_FORM_F32)
            continue;
        if (o->in[0].value != value || op_width(o->in[0]) != width || op_has_gaps(o->in[0]) ||
            p->weights[o->weight[0]].cols != width)
            return none;
        p->has_packed = true;
        p->packed = o->in[0];
        p->packed_form = form;
        return cuda_run_act(p, form, width, c->kp);
    }
    return none;
}

static void cuda_run_segment(const struct prepared *p, struct cuda_matmul_args *a, uint16_t w,
                             uint16_t b, uint16_t scale, uint16_t out)
{
    const struct cuda_weight *c = cuda_run_weight(p, w);
    const struct weight *info = &p->weights[w];
    bool is_experts = a->work != 0;
    a->seg[a->segments++] = (struct cuda_segment){
        .w = c->p,
        .out = cuda_run_value(p, out),
        .bias = cuda_run_vector(p, b),
        .mat_size = c->mat_size,
        .format = c->format,
        .rows = info->rows,
        .tiles = (info->rows + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS,
        .out_stride = info->rows,
        .scale = 1.0f,
        .scales = cuda_run_vector(p, scale),
        .bias_stride = is_experts ? info->rows : 0,
    };
}

static void cuda_run_set_input(const struct prepared *p, struct cuda_matmul_args *a, struct view x,
                               uint32_t k)
{
    a->k = k;
    a->q = p->act_q;
    a->d = p->act_d;
    a->s = p->act_s;
    a->image = p->act_image;
    if (op_has_gaps(x)) {
        a->x = p->act_f;
        a->x_stride = op_width(x);
        return;
    }
    a->x = cuda_run_value(p, x.value);
    a->x_first = x.first;
    a->x_stride = p->plan->values[x.value].width;
    if (op_width(x) > k) /* a row for each (row, rank) */
        a->x_stride = k;
}

/* Kernel for so many columns that meet a weight. */
static uint32_t cuda_run_column_step(uint32_t columns)
{
    uint32_t step = 0;
    while (step + 1 < CUDA_COLUMN_STEPS && cuda_kernels_columns[step] < columns)
        step++;
    return step;
}

/* One column: a warp takes as many classes of a tile as leave a warp for each of two blocks per
 * multiprocessor; more blocks than that wait for room. */
static bool cuda_run_one_launch(struct prepared *p, struct cuda_matmul_args *a, uint32_t format,
                                struct err *e)
{
    uint32_t tiles = 0, wanted = (uint32_t)p->d->sm_count * 3 / 2, chunks = a->work ? a->ranks : 1;
    for (uint32_t i = 0; i < a->segments; i++)
        tiles += a->seg[i].tiles;
    a->parts = 1;
    while (a->parts < (a->is_glu ? CUDA_WARPS / 2 : CUDA_WARPS) &&
           (size_t)tiles * chunks * a->parts / CUDA_WARPS < wanted)
        a->parts *= 2;
    uint32_t units = CUDA_WARPS / a->parts, blocks = (tiles + units - 1) / units * chunks;
    struct cuda_grid g = cuda_run_grid(blocks, 1, CUDA_WARPS * 32);
    g.shared = CUDA_ONE_RING_SIZE;
    return cuda_run_launch(p, p->d->k.matmul[format][0], g, a, e);
}

/* Blocks stay and walk over the tiles: two per multiprocessor. */
static bool cuda_run_matmul_launch(struct prepared *p, struct cuda_matmul_args *a, uint32_t format,
                                   uint32_t step, struct err *e)
{
    if (step == 0 && format > CUDA_FORMAT_BF16)
        return cuda_run_one_launch(p, a, format, e);
    uint32_t tiles = 0, wide = cuda_kernels_columns[step], blocks = 2 * (uint32_t)p->d->sm_count;
    for (uint32_t i = 0; i < (a->is_glu ? 1 : a->segments); i++)
        tiles += a->seg[i].tiles;
    size_t jobs = (size_t)tiles * ((a->columns + wide - 1) / wide);
    if (!a->work && jobs < blocks)
        blocks = (uint32_t)jobs;
    struct cuda_grid g = cuda_run_grid(blocks, 1, CUDA_WARPS * 32);
    g.shared = CUDA_RING_SIZE;
    return cuda_run_launch(p, p->d->k.matmul[format][step], g, a, e);
}

/* Pairs of gemm.cu's blocks fill the multiprocessors and walk over the tiles; where the tiles are
 * too few, several share a tile's classes. */
static bool cuda_run_gemm_launch(struct prepared *p, struct cuda_matmul_args *a, uint32_t format,
                                 struct err *e)
{
    uint32_t groups = 0, tiles = 0, in_group = a->is_glu ? CUDA_GEMM_TILES / 2 : CUDA_GEMM_TILES;
    for (uint32_t i = 0; i < (a->is_glu ? 1 : a->segments); i++) {
        groups += (a->seg[i].tiles + in_group - 1) / in_group;
        tiles += a->seg[i].tiles;
    }
    size_t columns = (a->columns + CUDA_GEMM_COLUMNS - 1) / CUDA_GEMM_COLUMNS;
    size_t pairs = (groups + CUDA_GEMM_PAIR - 1) / CUDA_GEMM_PAIR * columns;
    size_t room = (size_t)p->d->sm_count / CUDA_GEMM_PAIR, rows = tiles * CUDA_TILE_ROWS;
    a->parts = 1;
    a->sums = p->part;
    if (!a->is_glu && CUDA_WARPS * a->columns * rows * 4 <= p->part_size)
        while (a->parts < CUDA_WARPS && pairs * a->parts * 2 <= room &&
               a->parts * CUDA_RECORD_K < a->kp)
            a->parts *= 2;
    pairs = base_min(pairs * a->parts, room);
    struct cuda_grid g = cuda_run_grid((uint32_t)pairs * CUDA_GEMM_PAIR, 1, CUDA_GEMM_THREADS);
    g.shared = cuda_kernels_gemm_size(format);
    if (!cuda_run_launch(p, cuda_kernels_gemm(&p->d->k, format), g, a, e))
        return false;
    return a->parts == 1 ||
           cuda_run_launch(p, p->d->k.gemm_join,
                           cuda_run_grid((uint32_t)(rows + 255) / 256, a->columns, 256), a, e);
}

/* The kernel for an input of this form. */
static bool cuda_run_product(struct prepared *p, struct cuda_matmul_args *a, uint32_t format,
                             uint32_t form, struct err *e)
{
    if (form & CUDA_FORM_IMAGE)
        return cuda_run_gemm_launch(p, a, format, e);
    return cuda_run_matmul_launch(p, a, format, cuda_run_column_step(a->columns), e);
}

/* Neighbouring ops with the same input and format share a launch; *count says how many ops. */
static bool cuda_run_matmul(struct prepared *p, const struct op *o, uint32_t left, uint32_t *count,
                            struct err *e)
{
    const struct cuda_weight *c = cuda_run_weight(p, o->weight[0]);
    uint32_t k = p->weights[o->weight[0]].cols, rows = cuda_run_rows(p, o->in[0].value);
    uint32_t form = cuda_run_form(p, c->format, rows, false);
    if (!cuda_run_pack(p, o->in[0], rows, k, c->kp, form, e))
        return false;
    struct cuda_matmul_args a = {.columns = rows, .kp = c->kp};
    cuda_run_set_input(p, &a, o->in[0], k);
    cuda_run_segment(p, &a, o->weight[0], o->weight[1], o->weight[2], o->out[0]);
    for (*count = 1; *count < left && a.segments < CUDA_SEGMENTS_MAX; ++*count) {
        const struct op *n = o + *count;
        if (n->kind != OP_MATMUL || !cuda_run_same_view(n->in[0], o->in[0]) ||
            cuda_run_weight(p, n->weight[0])->format != c->format)
            break;
        cuda_run_segment(p, &a, n->weight[0], n->weight[1], n->weight[2], n->out[0]);
    }
    return cuda_run_product(p, &a, c->format, form, e);
}

static void cuda_run_set_glu(struct cuda_matmul_args *a, struct op_glu g)
{
    a->is_glu = 1;
    a->glu_kind = g.kind;
    a->alpha = g.alpha;
    a->up_add = g.up_add;
    a->clamp_gate = g.clamp_gate;
    a->clamp_up = g.clamp_up;
}

static bool cuda_run_matmul_glu(struct prepared *p, const struct op *o, struct err *e)
{
    const struct cuda_weight *c = cuda_run_weight(p, o->weight[0]);
    uint32_t k = p->weights[o->weight[0]].cols, rows = cuda_run_rows(p, o->in[0].value);
    if (cuda_run_weight(p, o->weight[1])->format != c->format)
        return err_set(e, ERR_UNSUPPORTED, "cuda: gate and up of '%.*s' have different types",
                       STR_ARG(p->weights[o->weight[0]].name));
    uint32_t form = cuda_run_form(p, c->format, rows, o->a.glu.kind > OP_ACT_GELU_TANH);
    if (!cuda_run_pack(p, o->in[0], rows, k, c->kp, form, e))
        return false;
    struct cuda_matmul_args a = {.columns = rows, .kp = c->kp};
    cuda_run_set_input(p, &a, o->in[0], k);
    cuda_run_segment(p, &a, o->weight[0], o->weight[2], TENSOR_NONE, o->out[0]);
    cuda_run_segment(p, &a, o->weight[1], o->weight[3], TENSOR_NONE, o->out[0]);
    cuda_run_set_glu(&a, o->a.glu);
    return cuda_run_product(p, &a, c->format, form, e);
}

/* ---- experts ---- */

/* Pairs by expert, unless the op before sorted the same: gate and up, then down. */
static bool cuda_run_sort(struct prepared *p, struct view ids, uint32_t experts, uint32_t pairs,
                          uint32_t wide, struct err *e)
{
    struct cuda_sort_args a = {.ids = cuda_run_value(p, ids.value),
                               .work = p->work,
                               .pair = p->pair,
                               .pairs = pairs,
                               .experts = experts,
                               .wide = wide};
    if (p->sorted.ids == a.ids && p->sorted_value == ids.value && p->sorted.pairs == pairs &&
        p->sorted.experts == experts && p->sorted.wide == wide)
        return true;
    p->sorted = a;
    p->sorted_value = ids.value;
    return cuda_run_launch(p, p->d->k.moe_sort, cuda_run_grid(1, 1, 1024), &a, e);
}

static bool cuda_run_experts(struct prepared *p, const struct op *o, uint32_t ranks,
                             const struct op_glu *glu, struct err *e)
{
    uint16_t w = o->weight[0];
    const struct cuda_weight *c = cuda_run_weight(p, w);
    uint32_t k = p->weights[w].cols, experts = p->weights[w].mats;
    uint32_t rows = cuda_run_rows(p, o->in[0].value), pairs = rows * ranks;
    uint32_t step = cuda_run_column_step((pairs + experts - 1) / experts);
    if (!cuda_run_sort(p, o->in[1], experts, pairs, cuda_kernels_columns[step], e) ||
        !cuda_run_pack(p, o->in[0], rows, k, c->kp, cuda_run_form(p, c->format, rows, true), e))
        return false;
    struct cuda_matmul_args a = {
        .columns = pairs,
        .kp = c->kp,
        .work = p->work,
        .pair = p->pair,
        .ranks = ranks,
        .x_per_pair = op_width(o->in[0]) > k,
    };
    cuda_run_set_input(p, &a, o->in[0], k);
    if (glu) {
        if (cuda_run_weight(p, o->weight[1])->format != c->format)
            return err_set(e, ERR_UNSUPPORTED, "cuda: gate and up of '%.*s' have different types",
                           STR_ARG(p->weights[w].name));
        cuda_run_segment(p, &a, w, o->weight[2], TENSOR_NONE, o->out[0]);
        cuda_run_segment(p, &a, o->weight[1], o->weight[3], TENSOR_NONE, o->out[0]);
        cuda_run_set_glu(&a, *glu);
    } else {
        cuda_run_segment(p, &a, w, o->weight[1], o->weight[2], o->out[0]);
    }
    return cuda_run_matmul_launch(p, &a, c->format, step, e);
}

static bool cuda_run_route(struct prepared *p, const struct op *o, struct err *e)
{
    struct op_route r = o->a.route;
    struct cuda_route_args a = {
        .logits = cuda_run_view(p, o->in[0]),
        .bias = cuda_run_vector(p, o->weight[0]),
        .ids = cuda_run_value(p, o->out[0]),
        .w = cuda_run_value(p, o->out[1]),
        .rows = cuda_run_rows(p, o->in[0].value),
        .experts = op_width(o->in[0]),
        .k = r.k,
        .gate = r.gate,
        .groups = r.groups,
        .groups_used = r.groups_used,
        .norm = r.norm,
        .scale = r.scale,
    };
    return cuda_run_launch(p, p->d->k.moe_route, cuda_run_grid(a.rows, 1, 32), &a, e);
}

static bool cuda_run_moe_sum(struct prepared *p, const struct op *o, struct err *e)
{
    uint32_t rows = cuda_run_rows(p, o->in[0].value), width = p->plan->values[o->out[0]].width;
    struct cuda_moe_sum_args a = {
        .y = cuda_run_value(p, o->in[0].value),
        .w = cuda_run_value(p, o->in[1].value),
        .out = cuda_run_value(p, o->out[0]),
        .rows = rows,
        .k = op_width(o->in[1]),
        .width = width,
    };
    return cuda_run_launch(p, p->d->k.moe_sum, cuda_run_grid((width + 255) / 256, rows, 256), &a,
                           e);
}

/* ---- row ops ---- */

static bool cuda_run_embed(struct prepared *p, const struct op *o, struct err *e)
{
    const struct cuda_weight *c = cuda_run_weight(p, o->weight[0]);
    const size_t from[] = {[OP_INDEX_TOKENS] = p->at.ids,
                           [OP_INDEX_POSITIONS] = p->at.pos,
                           [OP_INDEX_AUX] = p->at.aux};
    struct cuda_embed_args a = {
        .w = c->p,
        .ids = p->in + from[o->a.embed.index],
        .out = cuda_run_value(p, o->out[0]),
        .format = c->format,
        .cols = p->weights[o->weight[0]].cols,
        .kp = c->kp,
        .rows = p->shape.rows,
        .vocab = p->weights[o->weight[0]].rows,
        .scale = o->a.embed.scale,
    };
    return cuda_run_launch(p, p->d->k.pack_embed, cuda_run_grid((a.cols + 255) / 256, a.rows, 256),
                           &a, e);
}

static bool cuda_run_norm(struct prepared *p, const struct op *o, uint32_t index, struct err *e)
{
    bool has_add = o->kind == OP_ADD_RMS_NORM;
    uint32_t width = op_width(o->in[0]);
    struct cuda_norm_args a = {
        .x = cuda_run_view(p, o->in[0]),
        .w = cuda_run_vector(p, o->weight[0]),
        .out = cuda_run_value(p, o->out[has_add ? 1 : 0]),
        .rows = cuda_run_rows(p, o->in[0].value),
        .groups = o->a.norm.groups,
        .width = width / o->a.norm.groups,
        .eps = o->a.norm.eps,
        .is_layer_norm = o->kind == OP_LAYER_NORM,
    };
    if (has_add) {
        a.b = cuda_run_view(p, o->in[1]);
        a.sum = cuda_run_value(p, o->out[0]);
    }
    if (o->kind == OP_LAYER_NORM)
        a.bias = cuda_run_vector(p, o->weight[1]);
    if (a.groups == 1)
        a.act = cuda_run_fuse_act(p, index, o->out[has_add ? 1 : 0]);
    if (o->kind == OP_LAYER_NORM || a.groups > 1 || !a.w || !cuda_run_is_wide(a.x) ||
        (has_add && !cuda_run_is_wide(a.b)) || a.width > 4096)
        return cuda_run_launch(p, p->d->k.ops_norm, cuda_run_grid(a.rows * a.groups, 1, 256), &a,
                               e);
    uint32_t threads = (uint32_t)base_align((a.act.q ? a.act.kp : a.width) / 4, 64);
    return cuda_run_launch(p, p->d->k.ops_norm4, cuda_run_grid(a.rows, 1, threads), &a, e);
}

/* act glu add mul scale softcap rows */
static bool cuda_run_map(struct prepared *p, const struct op *o, struct err *e)
{
    struct cuda_map_args a = {
        .a = cuda_run_view(p, o->in[0]),
        .out = cuda_run_value(p, o->out[0]),
        .rows = cuda_run_rows(p, o->out[0]),
        .width = op_width(o->in[0]),
    };
    if (o->kind == OP_ROWS) {
        a.rows_of = p->in + p->at.out_rows;
    } else if (o->kind == OP_ACT) {
        a.kind = CUDA_MAP_ACT;
        a.act = o->a.act;
    } else if (o->kind == OP_GLU) {
        a.kind = CUDA_MAP_GLU;
        a.act = o->a.glu.kind;
        a.alpha = o->a.glu.alpha;
        a.up_add = o->a.glu.up_add;
        a.clamp_gate = o->a.glu.clamp_gate;
        a.clamp_up = o->a.glu.clamp_up;
    } else if (o->kind == OP_SCALE || o->kind == OP_SOFTCAP) {
        a.kind = o->kind == OP_SCALE ? CUDA_MAP_SCALE : CUDA_MAP_SOFTCAP;
        a.x = o->a.number.x;
    } else {
        a.kind = o->kind == OP_ADD ? CUDA_MAP_ADD : CUDA_MAP_MUL;
    }
    if (!op_is_none(o->in[1])) {
        a.b = cuda_run_view(p, o->in[1]);
        a.b_width = op_width(o->in[1]);
        a.b_per_row = 1;
    } else if (o->weight[0] != TENSOR_NONE) {
        a.b_width = p->weights[o->weight[0]].cols;
        a.b = (struct cuda_view){.p = cuda_run_vector(p, o->weight[0]),
                                 .stride = a.b_width,
                                 .width = a.b_width,
                                 .group_width = 1,
                                 .group_stride = 1};
    }
    struct cuda_grid g = cuda_run_grid((a.width + 255) / 256, a.rows, 256);
    return cuda_run_launch(p, p->d->k.ops_map, g, &a, e);
}

static struct cuda_rope_args cuda_run_rope_args(const struct prepared *p, struct op_rope r,
                                                struct view x, uint32_t index)
{
    return (struct cuda_rope_args){
        .x = cuda_run_view(p, x),
        .freqs = p->freqs[index],
        .pos = p->in + p->at.pos,
        .rows = p->shape.rows,
        .heads = r.heads,
        .head_dim = r.head_dim,
        .n_rot = r.n_rot,
        .first = r.first,
        .kind = r.kind == OP_ROPE_NEOX,
        .mscale = r.mscale,
    };
}

static bool cuda_run_rope(struct prepared *p, const struct op *o, uint32_t index, struct err *e)
{
    struct cuda_rope_args a = cuda_run_rope_args(p, o->a.rope, o->in[0], index);
    a.out = cuda_run_value(p, o->out[0]);
    return cuda_run_launch(p, p->d->k.ops_rope, cuda_run_grid(a.heads, a.rows, 32), &a, e);
}

/* ---- pages and attention ---- */

static struct cuda_kv_args cuda_run_kv(const struct prepared *p, uint16_t layer)
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
        .page_size = cuda_backend_layer_size(found),
        .v_offset = (size_t)found->heads * found->dk * KV_PAGE_TOKENS * 2,
        .pages_max = p->shape.page_stride,
        .kv_heads = found->heads,
        .dk = found->dk,
        .dv = found->dv,
    };
}

static bool cuda_run_kv_write(struct prepared *p, const struct op *o, struct err *e)
{
    struct cuda_kv_write_args a = {
        .kv = cuda_run_kv(p, o->layer),
        .k = cuda_run_view(p, o->in[0]),
        .v = cuda_run_view(p, o->in[1]),
        .pos = p->in + p->at.pos,
        .seq = p->in + p->at.seq,
        .rows = p->shape.rows,
    };
    return cuda_run_launch(p, p->d->k.ops_kv_write, cuda_run_grid(a.kv.kv_heads, a.rows, 32), &a,
                           e);
}

/* q[N,h*dk], k, v; weights: norms of q and k, frequency divisors (cuda_step reads them). */
static bool cuda_run_rope_qk(struct prepared *p, const struct op *o, uint32_t index, struct err *e)
{
    const struct op_rope_qk *q = &o->a.rope_qk;
    struct cuda_rope_qk_args a = {
        .q = cuda_run_rope_args(p, q->rope, o->in[0], index),
        .k = cuda_run_rope_args(p, q->rope, o->in[1], index),
        .write = {.kv = cuda_run_kv(p, o->layer),
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
    return cuda_run_launch(p, p->d->k.ops_rope_qk,
                           cuda_run_grid((a.q.heads + 2 * a.k.heads + 3) / 4, p->shape.rows, 128),
                           &a, e);
}

/* The same form from row `first` on. */
static struct cuda_act_args cuda_run_act_rows(struct cuda_act_args a, uint32_t first)
{
    size_t at = (size_t)first * a.kp;
    a.row_first = a.image ? first : 0;
    if (a.image)
        return a;
    a.q += at;
    a.s += at / 32 * 2;
    a.d += at / (a.form == CUDA_FORM_INT8_32 ? 32 : 256) * 4;
    return a;
}

/* Kernel for so many query heads per K/V head. */
static cuda_function cuda_run_attn_kernel(const struct cuda_kernels *k, uint32_t group,
                                          uint32_t *padded)
{
    cuda_function functions[] = {k->attn_part_1, k->attn_part_2, k->attn_part_4, k->attn_part_8,
                                 k->attn_part_16};
    uint32_t step = 0;
    while (step + 1 < countof(functions) && (1u << step) < group)
        step++;
    *padded = 1u << step;
    return functions[step];
}

static struct cuda_attn_args cuda_run_attn_args(const struct prepared *p, const struct op *o,
                                                uint32_t block)
{
    struct op_attn n = o->a.attn;
    return (struct cuda_attn_args){
        .kv = cuda_run_kv(p, o->layer),
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

/* A kernel for parts of rows, then attn_merge. Rows go in slices whose parts fit the part buffer;
 * slices change no bit. g: all but its z, the rows. */
static bool cuda_run_attn_parts(struct prepared *p, uint32_t index, cuda_function part,
                                struct cuda_grid g, const struct cuda_attn_args *all,
                                struct err *e)
{
    const struct op *o = &p->plan->ops[index];
    struct op_attn n = o->a.attn;
    size_t row_size = (size_t)n.heads * all->blocks * (n.dv + 2) * 4;
    uint32_t slice = (uint32_t)base_max(1, p->part_size / row_size);
    struct cuda_act_args act = {0};
    if (n.heads * n.dv % 256 == 0)
        act = cuda_run_fuse_act(p, index, o->out[0]);
    for (uint32_t first = 0; first < p->shape.rows; first += slice) {
        struct cuda_attn_args a = *all;
        a.rows = g.z = (uint32_t)base_min(slice, p->shape.rows - first);
        a.out += (size_t)first * n.heads * n.dv * 4;
        a.pos += first * 4ul;
        a.seq += first * 4ul;
        a.q.p += (size_t)first * a.q.stride * 4;
        if (act.q)
            a.act = cuda_run_act_rows(act, first);
        if (!cuda_run_launch(p, part, g, &a, e) ||
            !cuda_run_launch(p, p->d->k.attn_merge,
                             cuda_run_grid((n.heads * n.dv + 255) / 256, a.rows, 256), &a, e))
            return false;
    }
    return true;
}

/* Heads of 64 and 128 columns: several rows of a sequence share its K and V, else a block a row. */
static bool cuda_run_attend(struct prepared *p, const struct op *o, uint32_t index, struct err *e)
{
    struct op_attn n = o->a.attn;
    const struct cuda_kernels *k = &p->d->k;
    struct cuda_attn_args a = cuda_run_attn_args(p, o, CUDA_ATTEND_BLOCK);
    if (p->shape.rows > 2 * p->shape.seqs) {
        uint32_t each = CUDA_ATTEND_ROWS / (n.heads / n.kv_heads);
        struct cuda_grid g = cuda_run_grid((a.rows + each - 1) / each, n.kv_heads, 256);
        g.shared = cuda_kernels_attend_rows_size(n.dk);
        return cuda_run_launch(p, n.dk == 64 ? k->attend_rows_64 : k->attend_rows_128, g, &a, e);
    }
    struct cuda_grid g = cuda_run_grid(a.blocks, n.kv_heads, 128);
    g.shared = cuda_kernels_attend_part_size(n.dk);
    return cuda_run_attn_parts(p, index, n.dk == 64 ? k->attend_part_64 : k->attend_part_128, g,
                               &a, e);
}

static bool cuda_run_attn(struct prepared *p, const struct op *o, uint32_t index, struct err *e)
{
    struct op_attn n = o->a.attn;
    uint32_t group, each = n.heads / n.kv_heads;
    cuda_function part = cuda_run_attn_kernel(&p->d->k, each, &group);
    if (each > group)
        return err_set(e, ERR_UNSUPPORTED, "cuda: %u query heads per K/V head, at most %u", each,
                       group);
    if (n.dk == n.dv && (n.dk == 64 || n.dk == 128))
        return cuda_run_attend(p, o, index, e);
    struct cuda_attn_args a = cuda_run_attn_args(p, o, CUDA_ATTN_BLOCK);
    struct cuda_grid g = cuda_run_grid(a.blocks, n.kv_heads, 256);
    g.shared = group * (n.dk + CUDA_ATTN_BLOCK + 8 * n.dv) * 4;
    return cuda_run_attn_parts(p, index, part, g, &a, e);
}

/* ---- answers ---- */

static bool cuda_run_pool(struct prepared *p, const struct op *o, struct err *e)
{
    struct cuda_pool_args a = {
        .x = cuda_run_view(p, o->in[0]),
        .seq = p->in + p->at.seq,
        .out = cuda_run_value(p, o->out[0]),
        .rows = p->shape.rows,
        .seqs = p->shape.seqs,
        .width = op_width(o->in[0]),
        .kind = o->a.pool.kind,
        .l2 = o->a.pool.l2,
    };
    return cuda_run_launch(p, p->d->k.ops_pool, cuda_run_grid(a.seqs, 1, 256), &a, e);
}

/* op sample answers for op top_k too where a plan has both. */
static bool cuda_run_sample(struct prepared *p, const struct op *o, bool has_sample, bool has_top_k,
                            struct err *e)
{
    struct cuda_answers out = cuda_step_answers(p);
    struct cuda_sample_args a = {
        .logits = cuda_run_value(p, o->in[0].value),
        .adjusted = p->adjusted,
        .rows = p->in + p->at.sample,
        .adjust = p->in + p->at.adjust,
        .mask = p->shape.flags & 1 ? p->in + p->at.mask : 0,
        .outs = p->shape.outs,
        .vocab = p->plan->vocab,
        .top_max = p->limits.top_max,
    };
    if (has_sample) {
        a.ids = p->out + out.ids;
        a.logprob = p->out + out.logprob;
    }
    if (has_top_k) {
        a.lse = p->out + out.lse;
        a.top_ids = p->out + out.top_ids;
        a.top_val = p->out + out.top_val;
        a.raw_ids = p->out + out.raw_ids;
        a.raw_val = p->out + out.raw_val;
    }
    a.best = p->best;
    a.sums = p->sums;
    uint32_t chunks = (a.vocab + CUDA_SAMPLE_CHUNK - 1) / CUDA_SAMPLE_CHUNK;
    struct cuda_grid parts = cuda_run_grid(chunks, a.outs, 512);
    return cuda_run_launch(p, p->d->k.sample_best_part, parts, &a, e) &&
           cuda_run_launch(p, p->d->k.sample_sums_part, parts, &a, e) &&
           cuda_run_launch(p, p->d->k.sample_row, cuda_run_grid(a.outs, 1, 1024), &a, e);
}

static bool cuda_run_answer(struct prepared *p, const struct op *o, struct err *e)
{
    const struct plan *plan = p->plan;
    bool has_sample = false, has_top_k = false;
    for (uint32_t i = 0; i < plan->ops_count; i++) {
        has_sample = has_sample || plan->ops[i].kind == OP_SAMPLE;
        has_top_k = has_top_k || plan->ops[i].kind == OP_TOP_K;
    }
    if (o->kind == OP_TOP_K && has_sample)
        return true;
    return cuda_run_sample(p, o, has_sample, has_top_k, e);
}

static bool cuda_run_op(struct prepared *p, uint32_t index, uint32_t *count, struct err *e)
{
    const struct op *o = &p->plan->ops[index];
    switch (o->kind) {
    case OP_EMBED:
        return cuda_run_embed(p, o, e);
    case OP_RMS_NORM:
    case OP_LAYER_NORM:
    case OP_ADD_RMS_NORM:
        return cuda_run_norm(p, o, index, e);
    case OP_MATMUL:
        return cuda_run_matmul(p, o, p->plan->ops_count - index, count, e);
    case OP_MATMUL_GLU:
        return cuda_run_matmul_glu(p, o, e);
    case OP_MOE_ROUTE:
        return cuda_run_route(p, o, e);
    case OP_MOE_MATMUL:
        return cuda_run_experts(p, o, op_width(o->in[1]), NULL, e);
    case OP_MOE_GLU:
        return cuda_run_experts(p, o, op_width(o->in[1]), &o->a.moe_glu.glu, e);
    case OP_MOE_SUM:
        return cuda_run_moe_sum(p, o, e);
    case OP_ROWS:
    case OP_ACT:
    case OP_GLU:
    case OP_ADD:
    case OP_MUL:
    case OP_SCALE:
    case OP_SOFTCAP:
        return cuda_run_map(p, o, e);
    case OP_ROPE:
        return cuda_run_rope(p, o, index, e);
    case OP_ROPE_QK:
        return cuda_run_rope_qk(p, o, index, e);
    case OP_KV_WRITE:
        return cuda_run_kv_write(p, o, e);
    case OP_ATTN:
        return cuda_run_attn(p, o, index, e);
    case OP_POOL:
        return cuda_run_pool(p, o, e);
    case OP_SAMPLE:
    case OP_TOP_K:
        return cuda_run_answer(p, o, e);
    case OP_COUNT:
        break;
    }
    return err_set(e, ERR_INTERNAL, "cuda: op %u has no kernel", (unsigned)o->kind);
}

bool cuda_run_plan(struct prepared *p, struct err *e)
{
    p->has_packed = false;
    p->sorted.ids = 0;
    for (uint32_t i = 0, count; i < p->plan->ops_count; i += count) {
        count = 1;
        if (!cuda_run_op(p, i, &count, e))
            return false;
    }
    return true;
}
