#include "cuda/cuda_run.h"

#include <string.h>

/* Products of weights: which kernel, in which form its input lies; experts by their pairs. */

/* Form of the input when so many columns meet a weight of this format. is_stream: not gemm.cu in
 * any case: experts' columns are too few each, and it knows two kinds of glu only. */
static uint32_t cuda_mul_form(const struct prepared *p, uint32_t format, uint32_t columns,
                              bool is_stream)
{
    if (format < CUDA_FORMAT_BF16)
        return CUDA_FORM_F32;
    uint32_t form = format == CUDA_FORMAT_BF16  ? CUDA_FORM_BF16
                    : format < CUDA_FORMAT_Q4_K ? CUDA_FORM_INT8_32
                                                : CUDA_FORM_INT8_256;
    uint32_t least =
        format == CUDA_FORMAT_BF16 ? CUDA_GEMM_BF16_COLUMNS_MIN : CUDA_GEMM_COLUMNS_MIN;
    bool is_image = p->act_image[0] && !is_stream && columns >= least;
    return is_image ? form | CUDA_FORM_IMAGE : form;
}

/* What a kernel that makes the form gets; rows and x are the caller's. */
static struct cuda_act_args cuda_mul_act(const struct prepared *p, uint32_t form, uint32_t k,
                                         uint32_t kp)
{
    bool is_image = (form & CUDA_FORM_IMAGE) != 0;
    return (struct cuda_act_args){.q = p->act_q[p->packed_in],
                                  .d = p->act_d,
                                  .s = p->act_s,
                                  .image = is_image ? p->act_image[p->packed_in] : 0,
                                  .k = k,
                                  .kp = kp,
                                  .form = form & ~CUDA_FORM_IMAGE};
}

/* Rows without gaps at multiples of four: a thread can take four columns. */
bool cuda_mul_is_wide(struct cuda_view v)
{
    return v.group_width == v.group_stride && v.first % 4 == 0 && v.stride % 4 == 0 &&
           v.width % 4 == 0;
}

static bool cuda_mul_same_view(struct view a, struct view b)
{
    return a.value == b.value && a.first == b.first && a.width == b.width && a.stride == b.stride &&
           a.count == b.count;
}

static void cuda_mul_set_packed(struct prepared *p, struct view x, uint32_t form, uint32_t in)
{
    p->has_packed = true;
    p->packed = x;
    p->packed_form = form;
    p->packed_in = in;
}

/* Brings the view into the form, unless the last matmul already did. rows_each: input rows. */
static bool cuda_mul_pack(struct prepared *p, struct view x, uint32_t rows, uint32_t k, uint32_t kp,
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
    if (p->has_packed && p->packed_form == form && cuda_mul_same_view(p->packed, x))
        return true;
    cuda_mul_set_packed(p, x, form, 0);
    struct cuda_view v = cuda_run_view(p, x);
    uint32_t ranks = op_width(x) / k; /* experts' inputs: a row for each (row, rank) */
    if (ranks > 1) {
        must(!op_has_gaps(x) && v.first == 0 && v.stride == op_width(x));
        v.stride = k;
    }
    struct cuda_act_args a = cuda_mul_act(p, form, k, kp);
    a.x = v;
    a.rows = rows * ranks;
    if (cuda_mul_is_wide(v))
        return cuda_run_launch(p, p->d->k.ops_act4,
                               cuda_run_grid((kp + 1023) / 1024, rows * ranks, 256), &a, e);
    return cuda_run_launch(p, p->d->k.pack_act, cuda_run_grid(kp / 256, rows * ranks, 256), &a, e);
}

/* If a matmul close behind op `index` reads all of `value` in another form than f32, the op that
 * makes the value writes that form too: a launch and a pass less. */
struct cuda_act_args cuda_mul_fuse_act(struct prepared *p, uint32_t index, uint16_t value)
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
        uint32_t form = cuda_mul_form(p, c->format, rows, is_stream);
        if (form == CUDA_FORM_F32)
            continue;
        if (o->in[0].value != value || op_width(o->in[0]) != width || op_has_gaps(o->in[0]) ||
            p->weights[o->weight[0]].cols != width)
            return none;
        cuda_mul_set_packed(p, o->in[0], form, 0);
        return cuda_mul_act(p, form, width, c->kp);
    }
    return none;
}

/* Is op `index` a product of what the glu before it makes, and nobody else reads that? */
bool cuda_mul_is_glu_input(const struct plan *plan, uint32_t index)
{
    if (index == 0 || index >= plan->ops_count || plan->ops[index].kind != OP_MATMUL ||
        plan->ops[index - 1].kind != OP_MATMUL_GLU)
        return false;
    const uint16_t value = plan->ops[index - 1].out[0];
    const struct view x = plan->ops[index].in[0];
    return x.value == value && !op_has_gaps(x) && op_width(x) == plan->values[value].width &&
           plan->values[value].op_last == index;
}

/* A glu that only the product behind it reads, of BF16 weights: it leaves bf16 and no f32. Its own
 * input is read meanwhile, so the result lies beside that. */
static struct cuda_act_args cuda_mul_glu_act(struct prepared *p, const struct op *o)
{
    struct cuda_act_args none = {0};
    const struct plan *plan = p->plan;
    const uint32_t index = (uint32_t)(o - plan->ops);
    const uint16_t value = o->out[0];
    const struct op *next = o + 1;
    if (!cuda_mul_is_glu_input(plan, index + 1) || p->packed_in != 0 ||
        cuda_run_weight(p, o->weight[0])->format != CUDA_FORMAT_BF16)
        return none;
    const struct cuda_weight *c = cuda_run_weight(p, next->weight[0]);
    uint32_t width = plan->values[value].width;
    if (c->format != CUDA_FORMAT_BF16 || c->kp != width)
        return none;
    uint32_t form = cuda_mul_form(p, c->format, cuda_run_rows(p, value), false);
    cuda_mul_set_packed(p, next->in[0], form, 1);
    return cuda_mul_act(p, form, width, c->kp);
}

static void cuda_mul_segment(const struct prepared *p, struct cuda_matmul_args *a, uint16_t w,
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

static void cuda_mul_set_input(const struct prepared *p, struct cuda_matmul_args *a, struct view x,
                               uint32_t k)
{
    a->k = k;
    a->q = p->act_q[p->packed_in];
    a->d = p->act_d;
    a->s = p->act_s;
    a->image = p->act_image[p->packed_in];
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
static uint32_t cuda_mul_column_step(uint32_t columns)
{
    uint32_t step = 0;
    while (step + 1 < CUDA_COLUMN_STEPS && cuda_kernels_columns[step] < columns)
        step++;
    return step;
}

/* One column: a warp takes as many classes of a tile as leave a warp for each of two blocks per
 * multiprocessor; more blocks than that wait for room. */
static bool cuda_mul_one_launch(struct prepared *p, struct cuda_matmul_args *a, uint32_t format,
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

/* ---- BF16 ---- */

/* A warp per tile: where there are few, each has the more of the ring. Room is left for a block of
 * the next kernel, whose copies begin before this one ends. */
static bool cuda_mul_chain_launch(struct prepared *p, struct cuda_matmul_args *a, uint32_t step,
                                  struct err *e)
{
    uint32_t tiles = 0, wide = cuda_kernels_columns[step], blocks = (uint32_t)p->d->sm_count;
    for (uint32_t i = 0; i < (a->is_glu ? 1 : a->segments); i++)
        tiles += a->seg[i].tiles;
    size_t jobs = (size_t)tiles * ((a->columns + wide - 1) / wide);
    uint32_t warps = (uint32_t)base_max(1, base_min((jobs + blocks - 1) / blocks, CUDA_WARPS));
    a->ring = (uint32_t)base_min(CUDA_CHAIN_PIECES / warps, CUDA_CHAIN_DEPTH_MAX);
    struct cuda_grid g =
        cuda_run_grid((uint32_t)base_min((jobs + warps - 1) / warps, blocks), 1, warps * 32);
    g.shared = warps * a->ring * (CUDA_CHAIN_PIECE + 8);
    return cuda_run_launch(p, p->d->k.matmul[CUDA_FORMAT_BF16][step], g, a, e);
}

/* A tile of wide.cu: slabs of 16 weight rows, columns; blocks side by side, blocks that may share a
 * multiprocessor; what a place of the ring holds; about how many cycles of a multiprocessor 64
 * inputs take, when all are busy (then the L2 cache limits), and where it has one such tile. */
struct cuda_mul_shape {
    cuda_function f;
    uint32_t slabs, columns, pair, together, place, cycles, alone;
};

static uint32_t cuda_mul_wide_jobs(const struct cuda_matmul_args *a, const struct cuda_mul_shape *s)
{
    uint32_t groups = 0;
    for (uint32_t i = 0; i < (a->is_glu ? 1 : a->segments); i++)
        groups += ((a->is_glu ? 2 : 1) * a->seg[i].tiles + s->slabs - 1) / s->slabs;
    return (groups + s->pair - 1) / s->pair * ((a->columns + s->columns - 1) / s->columns);
}

/* Few columns: the narrowest tile that takes them all. More: the shape that is done first. All give
 * the same bits. */
static struct cuda_mul_shape cuda_mul_wide_shape(const struct prepared *p,
                                                 const struct cuda_matmul_args *a)
{
    const struct cuda_kernels *k = &p->d->k;
    const bool is_glu = a->is_glu;
    if (a->columns <= 8)
        return is_glu ? (struct cuda_mul_shape){k->wide_8_glu, 2, 8, 1, 2, 10240, 0, 0}
                      : (struct cuda_mul_shape){k->wide_8, 1, 8, 1, 4, 6144, 0, 0};
    if (a->columns <= 32)
        return is_glu ? (struct cuda_mul_shape){k->wide_32_glu, 4, 32, 1, 2, 12288, 0, 0}
                      : (struct cuda_mul_shape){k->wide_32, 2, 32, 1, 2, 8192, 0, 0};
    const struct cuda_mul_shape shapes[] = {
        {is_glu ? k->wide_256_glu : k->wide_256, 8, 256, 2, 1, 49152, 1075, 1075},
        {is_glu ? k->wide_128_glu : k->wide_128, 4, 128, 1, 2, 24576, 790, 548},
        {is_glu ? k->wide_64_glu : k->wide_64, 4, 64, 1, 2, 16384, 530, 389},
    };
    struct cuda_mul_shape best = shapes[0];
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < countof(shapes); i++) {
        const struct cuda_mul_shape *s = &shapes[i];
        uint32_t room = (uint32_t)p->d->sm_count / s->pair, jobs = cuda_mul_wide_jobs(a, s);
        uint32_t cycles = jobs <= room ? s->alone : (jobs + room - 1) / room * s->cycles;
        if (cycles < least) {
            least = cycles;
            best = *s;
        }
    }
    return best;
}

/* Blocks take all the shared memory of a multiprocessor: were there room for more, those that are
 * placed while the kernel in front ends would crowd where it ends first. */
static bool cuda_mul_wide_launch(struct prepared *p, struct cuda_matmul_args *a, struct err *e)
{
    struct cuda_mul_shape s = cuda_mul_wide_shape(p, a);
    uint32_t jobs = cuda_mul_wide_jobs(a, &s), room = (uint32_t)p->d->sm_count / s.pair;
    if (jobs == 0)
        return true;
    uint32_t together = (uint32_t)base_min((jobs + room - 1) / room, s.together);
    uint32_t memory = (CUDA_WIDE_SIZE + 1024) / together - 1024; /* a block costs 1 KiB more */
    uint32_t rest = CUDA_WIDE_SPARE(s.columns) + 256;
    a->ring = (uint32_t)base_min((memory - rest) / s.place, CUDA_WIDE_DEPTH_MAX);
    struct cuda_grid g =
        cuda_run_grid((uint32_t)base_min(jobs, room * together) * s.pair, 1,
                      s.pair == 2 ? CUDA_WIDE_THREADS : CUDA_WIDE_SMALL_THREADS);
    g.shared = memory / 128 * 128;
    return cuda_run_launch(p, s.f, g, a, e);
}

/* ---- all formats ---- */

/* Blocks stay and walk over the tiles: two per multiprocessor. */
static bool cuda_mul_matmul_launch(struct prepared *p, struct cuda_matmul_args *a, uint32_t format,
                                   uint32_t step, struct err *e)
{
    if (format == CUDA_FORMAT_BF16)
        return cuda_mul_chain_launch(p, a, step, e);
    if (step == 0 && format > CUDA_FORMAT_BF16)
        return cuda_mul_one_launch(p, a, format, e);
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
static bool cuda_mul_gemm_launch(struct prepared *p, struct cuda_matmul_args *a, uint32_t format,
                                 struct err *e)
{
    uint32_t groups = 0, tiles = 0, in_group = a->is_glu ? CUDA_GEMM_TILES / 2 : CUDA_GEMM_TILES;
    for (uint32_t i = 0; i < (a->is_glu ? 1 : a->segments); i++) {
        groups += (a->seg[i].tiles + in_group - 1) / in_group;
        tiles += a->seg[i].tiles;
    }
    uint32_t wide = cuda_kernels_gemm_columns(a->columns), few = wide == CUDA_GEMM_FEW;
    size_t columns = (a->columns + wide - 1) / wide;
    size_t pairs = (groups + CUDA_GEMM_PAIR - 1) / CUDA_GEMM_PAIR * columns;
    size_t room = (size_t)p->d->sm_count / CUDA_GEMM_PAIR << few, rows = tiles * CUDA_TILE_ROWS;
    a->parts = 1;
    a->sums = p->part;
    if (!a->is_glu && CUDA_WARPS * a->columns * rows * 4 <= p->part_size)
        while (a->parts < CUDA_WARPS && pairs * a->parts * 2 <= room &&
               a->parts * CUDA_RECORD_K < a->kp)
            a->parts *= 2;
    pairs = base_min(pairs * a->parts, room);
    struct cuda_grid g = cuda_run_grid((uint32_t)pairs * CUDA_GEMM_PAIR, 1, CUDA_GEMM_THREADS);
    g.shared = cuda_kernels_gemm_size(format, a->columns);
    if (!cuda_run_launch(p, p->d->k.gemm[format][few], g, a, e))
        return false;
    return a->parts == 1 ||
           cuda_run_launch(p, p->d->k.gemm_join,
                           cuda_run_grid((uint32_t)(rows + 255) / 256, a->columns, 256), a, e);
}

/* The kernel for an input of this form. */
static bool cuda_mul_product(struct prepared *p, struct cuda_matmul_args *a, uint32_t format,
                             uint32_t form, struct err *e)
{
    if (form & CUDA_FORM_IMAGE)
        return format == CUDA_FORMAT_BF16 ? cuda_mul_wide_launch(p, a, e)
                                          : cuda_mul_gemm_launch(p, a, format, e);
    return cuda_mul_matmul_launch(p, a, format, cuda_mul_column_step(a->columns), e);
}

/* Neighbouring ops with the same input and format share a launch; *count says how many ops. */
bool cuda_mul_matmul(struct prepared *p, const struct op *o, uint32_t left, uint32_t *count,
                     struct err *e)
{
    const struct cuda_weight *c = cuda_run_weight(p, o->weight[0]);
    uint32_t k = p->weights[o->weight[0]].cols, rows = cuda_run_rows(p, o->in[0].value);
    uint32_t form = cuda_mul_form(p, c->format, rows, false);
    if (!cuda_mul_pack(p, o->in[0], rows, k, c->kp, form, e))
        return false;
    struct cuda_matmul_args a = {.columns = rows, .kp = c->kp};
    cuda_mul_set_input(p, &a, o->in[0], k);
    cuda_mul_segment(p, &a, o->weight[0], o->weight[1], o->weight[2], o->out[0]);
    for (*count = 1; *count < left && a.segments < CUDA_SEGMENTS_MAX; ++*count) {
        const struct op *n = o + *count;
        if (n->kind != OP_MATMUL || !cuda_mul_same_view(n->in[0], o->in[0]) ||
            cuda_run_weight(p, n->weight[0])->format != c->format)
            break;
        cuda_mul_segment(p, &a, n->weight[0], n->weight[1], n->weight[2], n->out[0]);
    }
    return cuda_mul_product(p, &a, c->format, form, e);
}

static void cuda_mul_set_glu(struct cuda_matmul_args *a, struct op_glu g)
{
    a->is_glu = 1;
    a->glu_kind = g.kind;
    a->alpha = g.alpha;
    a->up_add = g.up_add;
    a->clamp_gate = g.clamp_gate;
    a->clamp_up = g.clamp_up;
}

/* Gate and up are of different types: a product each, the second in p->beside, then this. */
static bool cuda_mul_join_glu(struct prepared *p, const struct op *o, uint32_t rows,
                              struct op_glu g, struct err *e)
{
    const uint32_t width = p->weights[o->weight[0]].rows;
    const struct cuda_view gate = {.p = cuda_run_value(p, o->out[0]),
                                   .stride = width,
                                   .width = width,
                                   .group_width = 1,
                                   .group_stride = 1};
    struct cuda_map_args a = {.a = gate,
                              .b = gate,
                              .out = gate.p,
                              .rows = rows,
                              .width = width,
                              .b_width = width,
                              .b_per_row = 1,
                              .kind = CUDA_MAP_GLU,
                              .act = g.kind,
                              .alpha = g.alpha,
                              .up_add = g.up_add,
                              .clamp_gate = g.clamp_gate,
                              .clamp_up = g.clamp_up};
    a.b.p = p->beside;
    return cuda_run_launch(p, p->d->k.ops_map, cuda_run_grid((width + 255) / 256, rows, 256), &a,
                           e);
}

static bool cuda_mul_glu_apart(struct prepared *p, const struct op *o, uint32_t k, uint32_t rows,
                               struct err *e)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct cuda_weight *c = cuda_run_weight(p, o->weight[i]);
        uint32_t form = cuda_mul_form(p, c->format, rows, false);
        if (!cuda_mul_pack(p, o->in[0], rows, k, c->kp, form, e))
            return false;
        struct cuda_matmul_args a = {.columns = rows, .kp = c->kp};
        cuda_mul_set_input(p, &a, o->in[0], k);
        cuda_mul_segment(p, &a, o->weight[i], o->weight[2 + i], TENSOR_NONE, o->out[0]);
        if (i)
            a.seg[0].out = p->beside;
        if (!cuda_mul_product(p, &a, c->format, form, e))
            return false;
    }
    return cuda_mul_join_glu(p, o, rows, o->a.glu, e);
}

bool cuda_mul_is_apart(const struct prepared *p, const struct op *o)
{
    return cuda_run_weight(p, o->weight[0])->format != cuda_run_weight(p, o->weight[1])->format;
}

bool cuda_mul_matmul_glu(struct prepared *p, const struct op *o, struct err *e)
{
    const struct cuda_weight *c = cuda_run_weight(p, o->weight[0]);
    uint32_t k = p->weights[o->weight[0]].cols, rows = cuda_run_rows(p, o->in[0].value);
    if (cuda_mul_is_apart(p, o))
        return cuda_mul_glu_apart(p, o, k, rows, e);
    uint32_t form = cuda_mul_form(p, c->format, rows, o->a.glu.kind > OP_ACT_GELU_TANH);
    if (!cuda_mul_pack(p, o->in[0], rows, k, c->kp, form, e))
        return false;
    struct cuda_matmul_args a = {.columns = rows, .kp = c->kp};
    cuda_mul_set_input(p, &a, o->in[0], k);
    cuda_mul_segment(p, &a, o->weight[0], o->weight[2], TENSOR_NONE, o->out[0]);
    cuda_mul_segment(p, &a, o->weight[1], o->weight[3], TENSOR_NONE, o->out[0]);
    cuda_mul_set_glu(&a, o->a.glu);
    a.act = cuda_mul_glu_act(p, o);
    return cuda_mul_product(p, &a, c->format, form, e);
}

/* ---- experts ---- */

/* Pairs by expert, unless the op before sorted the same: gate and up, then down. */
static bool cuda_mul_sort(struct prepared *p, struct view ids, uint32_t experts, uint32_t pairs,
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

/* Weight w of the experts, with bias and scale, into the value of o. */
struct cuda_mul_expert {
    uint16_t w, bias, scale;
    uint32_t ranks;
    bool is_beside; /* into p->beside */
};

static bool cuda_mul_experts_begin(struct prepared *p, const struct op *o, uint16_t w,
                                   uint32_t ranks, struct cuda_matmul_args *a, struct err *e)
{
    const struct cuda_weight *c = cuda_run_weight(p, w);
    uint32_t k = p->weights[w].cols, experts = p->weights[w].mats;
    uint32_t rows = cuda_run_rows(p, o->in[0].value), pairs = rows * ranks;
    uint32_t step = cuda_mul_column_step((pairs + experts - 1) / experts);
    if (!cuda_mul_sort(p, o->in[1], experts, pairs, cuda_kernels_columns[step], e) ||
        !cuda_mul_pack(p, o->in[0], rows, k, c->kp, cuda_mul_form(p, c->format, rows, true), e))
        return false;
    *a = (struct cuda_matmul_args){
        .columns = pairs,
        .kp = c->kp,
        .work = p->work,
        .pair = p->pair,
        .ranks = ranks,
        .x_per_pair = op_width(o->in[0]) > k,
    };
    cuda_mul_set_input(p, a, o->in[0], k);
    return true;
}

static bool cuda_mul_experts_launch(struct prepared *p, struct cuda_matmul_args *a, uint16_t w,
                                    struct err *e)
{
    uint32_t experts = p->weights[w].mats;
    uint32_t step = cuda_mul_column_step((a->columns + experts - 1) / experts);
    return cuda_mul_matmul_launch(p, a, cuda_run_weight(p, w)->format, step, e);
}

static bool cuda_mul_experts_one(struct prepared *p, const struct op *o, struct cuda_mul_expert x,
                                 struct err *e)
{
    struct cuda_matmul_args a;
    if (!cuda_mul_experts_begin(p, o, x.w, x.ranks, &a, e))
        return false;
    cuda_mul_segment(p, &a, x.w, x.bias, x.scale, o->out[0]);
    if (x.is_beside)
        a.seg[0].out = p->beside;
    return cuda_mul_experts_launch(p, &a, x.w, e);
}

bool cuda_mul_experts(struct prepared *p, const struct op *o, uint32_t ranks,
                      const struct op_glu *glu, struct err *e)
{
    const uint16_t *w = o->weight;
    struct cuda_matmul_args a;
    if (!glu)
        return cuda_mul_experts_one(
            p, o, (struct cuda_mul_expert){w[0], w[1], w[2], ranks, false}, e);
    if (cuda_mul_is_apart(p, o))
        return cuda_mul_experts_one(
                   p, o, (struct cuda_mul_expert){w[0], w[2], TENSOR_NONE, ranks, false}, e) &&
               cuda_mul_experts_one(
                   p, o, (struct cuda_mul_expert){w[1], w[3], TENSOR_NONE, ranks, true}, e) &&
               cuda_mul_join_glu(p, o, cuda_run_rows(p, o->in[0].value) * ranks, *glu, e);
    if (!cuda_mul_experts_begin(p, o, w[0], ranks, &a, e))
        return false;
    cuda_mul_segment(p, &a, w[0], w[2], TENSOR_NONE, o->out[0]);
    cuda_mul_segment(p, &a, w[1], w[3], TENSOR_NONE, o->out[0]);
    cuda_mul_set_glu(&a, *glu);
    return cuda_mul_experts_launch(p, &a, w[0], e);
}

bool cuda_mul_route(struct prepared *p, const struct op *o, struct err *e)
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
    if (a.rows == 1 && a.k <= a.experts) { /* then cuda_mul_sort finds its work done */
        a.work = p->work;
        a.pair = p->pair;
        p->sorted = (struct cuda_sort_args){.ids = a.ids,
                                            .work = p->work,
                                            .pair = p->pair,
                                            .pairs = a.k,
                                            .experts = a.experts,
                                            .wide = 1};
        p->sorted_value = o->out[0];
    }
    return cuda_run_launch(p, p->d->k.moe_route, cuda_run_grid(a.rows, 1, 32), &a, e);
}

bool cuda_mul_moe_sum(struct prepared *p, const struct op *o, struct err *e)
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
