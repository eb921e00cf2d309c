#include "cpu/cpu_device.h"

#include <string.h>

/* A matmul is two regions: the input is packed panel by panel (once for all weights that read it),
 * then the rows of all those weights are cut into chunks. Adjacent matmuls of one input (q, k, v;
 * gate, up) share both regions. Experts: rows are packed once each, pairs (row, rank) are sorted by
 * expert, an expert's rows are joined into panels, and all experts' rows are one region again. */

#define ITEMS_MAX 8u /* matmuls of one region */
#define CHUNKS_PER_WORKER 4u
#define CHUNK_ROWS 32u /* rows of the widest register tile */
#define CHUNK_BYTES 32768u /* of weights: less costs more in claims than it gains in balance */

static const struct cpu_form_ops *form_of(const struct prepared *p, enum cpu_form f)
{
    return &p->d->k.form[f];
}

/* ---- packing ---- */

static bool same_view(struct view a, struct view b)
{
    return a.value == b.value && a.first == b.first && a.width == b.width &&
           a.stride == b.stride && a.count == b.count;
}

struct pack_job {
    struct prepared *p;
    const struct cpu_form_ops *f;
    struct cpu_view x; /* row i of it is column i */
    uint8_t *dst;
    size_t in, columns, panel, row_size;
};

/* The columns of a row without gaps: in place, or gathered at `to`. */
static const float *dense_row(const struct cpu_view *x, size_t row, float *to)
{
    const float *p = x->p + row * x->row;
    if (x->count == 1)
        return p;
    for (uint32_t g = 0; g < x->count; g++)
        memcpy(to + (size_t)g * x->width, p + g * x->group, x->width * sizeof(float));
    return to;
}

static void pack_panel(void *ctx, uint32_t chunk, uint32_t worker)
{
    const struct pack_job *j = ctx;
    uint8_t *rows = cpu_run_scratch(j->p, worker);
    float *dense = (float *)(void *)(rows + j->panel * j->row_size);
    size_t first = chunk * j->panel, count = base_min(j->panel, j->columns - first);
    uint8_t *dst = j->dst + first * j->row_size;
    if (count == 1) {
        j->f->pack_row(dst, dense_row(&j->x, first, dense), j->in);
        return;
    }
    const void *row[256];
    for (size_t c = 0; c < count; c++) {
        j->f->pack_row(rows + c * j->row_size, dense_row(&j->x, first + c, dense), j->in);
        row[c] = rows + c * j->row_size;
    }
    j->f->join(dst, row, count, j->in);
}

/* The packed form of a view; is_rows: row forms, one after the other. */
static const uint8_t *pack_input(struct prepared *p, struct view v, enum cpu_form form,
                                 struct pack_job *j)
{
    struct cpu_packed *packed = &p->packed[form];
    if (packed->is_valid && !packed->is_rows && same_view(packed->view, v))
        return packed->data;
    struct thread_job job = {pack_panel, j,
                             (uint32_t)((j->columns + j->panel - 1) / j->panel)};
    cpu_run_region(p, &job);
    packed->view = v;
    packed->is_valid = true;
    packed->is_rows = false;
    return packed->data;
}

static const uint8_t *pack_columns(struct prepared *p, struct view v, enum cpu_form form)
{
    const struct cpu_form_ops *f = form_of(p, form);
    size_t in = op_width(v), columns = cpu_run_rows(p, v.value);
    struct pack_job j = {.p = p,
                         .f = f,
                         .x = cpu_run_view(p, v),
                         .dst = p->packed[form].data,
                         .in = in,
                         .columns = columns,
                         .panel = cpu_kernels_panel(f, columns),
                         .row_size = f->row_size(in)};
    return pack_input(p, v, form, &j);
}

/* Row forms of [N,in], or of [N,k*in] taken as N * k rows. */
static const uint8_t *pack_rows(struct prepared *p, struct view v, enum cpu_form form, size_t in)
{
    struct cpu_packed *packed = &p->packed[form];
    const struct cpu_form_ops *f = form_of(p, form);
    if (packed->is_valid && packed->is_rows && same_view(packed->view, v))
        return packed->data;
    struct cpu_view x = cpu_run_view(p, v);
    size_t width = op_width(v);
    must(x.count == 1 && (x.row == width || width == in));
    struct cpu_view rows = {.p = x.p, .row = width == in ? x.row : in, .width = (uint32_t)in,
                            .group = in, .count = 1};
    struct pack_job j = {.p = p,
                         .f = f,
                         .x = rows,
                         .dst = packed->data,
                         .in = in,
                         .columns = cpu_run_rows(p, v.value) * (width / in),
                         .panel = 1,
                         .row_size = f->row_size(in)};
    struct thread_job job = {pack_panel, &j, (uint32_t)j.columns};
    cpu_run_region(p, &job);
    packed->view = v;
    packed->is_valid = true;
    packed->is_rows = true;
    return packed->data;
}

/* ---- the product's region ---- */

struct mul_item {
    const struct cpu_matmul *mm;
    struct matmul_args args;
    uint32_t chunk_first, chunks; /* of this item in the region */
};

struct mul_job {
    struct prepared *p;
    const struct mul_item *items;
    uint32_t count;
};

/* Chunk `at` of an item: whole tiles of rows, as many as in the others or one more. */
static void run_item(const struct mul_job *j, const struct mul_item *item, uint32_t at,
                     uint32_t worker)
{
    struct matmul_args a = item->args;
    size_t tiles = (a.rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    a.row_first = tiles * at / item->chunks * CHUNK_ROWS;
    a.row_last = base_min(tiles * (at + 1) / item->chunks * CHUNK_ROWS, a.rows);
    a.scratch = cpu_run_scratch(j->p, worker);
    if (a.columns == 1)
        item->mm->gemv(&a);
    else
        item->mm->gemm(&a);
}

static void mul_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    const struct mul_job *j = ctx;
    uint32_t low = 0, high = j->count - 1; /* the last item that starts at or before the chunk */
    while (low < high) {
        uint32_t mid = (low + high + 1) / 2;
        if (j->items[mid].chunk_first <= chunk)
            low = mid;
        else
            high = mid - 1;
    }
    const struct mul_item *item = &j->items[low];
    run_item(j, item, chunk - item->chunk_first, worker);
}

/* Chunks of a matrix where `most` are enough for `all` rows; row_bytes: weights of one row. Workers
 * should end together: 896 rows are 8 chunks of 3 or 4 tiles, of 7 chunks one worker had four. */
static uint32_t chunks_of(size_t rows, size_t all, size_t most, size_t row_bytes)
{
    size_t least = base_max(CHUNK_ROWS, CHUNK_BYTES / base_max(row_bytes, 1));
    size_t share = (rows * most + all - 1) / all;
    return (uint32_t)base_max(base_min(share, rows / least), 1);
}

static void run_items(struct prepared *p, struct mul_item *items, uint32_t count)
{
    size_t rows = 0, bytes = 0, most = (size_t)p->d->workers * CHUNKS_PER_WORKER;
    for (uint32_t i = 0; i < count; i++) {
        rows += items[i].args.rows;
        bytes += items[i].mm->packed_size(items[i].args.type, items[i].args.rows,
                                          items[i].args.in);
    }
    struct mul_job j = {.p = p, .items = items, .count = count};
    uint32_t chunks = 0;
    for (uint32_t i = 0; i < count; i++) {
        items[i].chunk_first = chunks;
        items[i].chunks = p->d->workers == 1
                              ? 1 : chunks_of(items[i].args.rows, rows, most, bytes / rows);
        chunks += items[i].chunks;
    }
    struct thread_job job = {mul_chunk, &j, chunks};
    cpu_run_region(p, &job);
}

void cpu_mul_begin(struct prepared *p)
{
    for (unsigned f = 0; f < CPU_FORM_COUNT; f++)
        p->packed[f].is_valid = false;
    p->group.ids = TENSOR_NONE;
}

/* ---- matmul ---- */

static bool joins(const struct prepared *p, const struct op *a, const struct op *b)
{
    return b->kind == OP_MATMUL && same_view(a->in[0], b->in[0]) &&
           cpu_run_weight(p, a->weight[0])->mm->form == cpu_run_weight(p, b->weight[0])->mm->form;
}

/* columns: room for the output pointers of this item. */
static void fill_item(struct prepared *p, const struct op *o, const uint8_t *act, float **columns,
                      struct mul_item *item)
{
    const struct weight *w = &p->weights[o->weight[0]];
    const float *scale = cpu_run_vector(p, o->weight[2]);
    size_t count = cpu_run_rows(p, o->in[0].value);
    float *out = cpu_run_out(p, o->out[0]);
    for (size_t c = 0; c < count; c++)
        columns[c] = out + c * w->rows;
    item->mm = cpu_run_weight(p, o->weight[0])->mm;
    item->args = (struct matmul_args){.type = w->type,
                                      .weight = cpu_run_weight(p, o->weight[0])->data,
                                      .act = act,
                                      .out = columns,
                                      .bias = cpu_run_vector(p, o->weight[1]),
                                      .rows = w->rows,
                                      .in = w->cols,
                                      .columns = count,
                                      .scale = scale ? *scale : 1.0f};
}

uint32_t cpu_mul_run(struct prepared *p, uint32_t op_index)
{
    const struct op *o = &p->plan->ops[op_index];
    uint32_t count = 1, left = p->plan->ops_count - op_index;
    while (count < ITEMS_MAX && count < left && joins(p, o, o + count))
        count++;
    size_t columns = cpu_run_rows(p, o->in[0].value);
    if (columns == 0)
        return count;
    const uint8_t *act = pack_columns(p, o->in[0], cpu_run_weight(p, o->weight[0])->mm->form);
    struct mul_item items[ITEMS_MAX];
    for (uint32_t i = 0; i < count; i++)
        fill_item(p, o + i, act, p->columns + i * columns, &items[i]);
    run_items(p, items, count);
    return count;
}

/* ---- experts ---- */

/* Counting sort of the pairs by expert: stable, so rows ascend inside an expert. */
static void group_pairs(struct prepared *p, const struct op *o, uint32_t experts)
{
    struct cpu_grouping *g = &p->group;
    if (g->ids == o->in[1].value)
        return;
    uint32_t pairs = cpu_run_rows(p, o->in[1].value) * o->a.experts.k;
    const int32_t *ids = (const int32_t *)(const void *)cpu_run_view(p, o->in[1]).p;
    memset(g->first, 0, (experts + 1) * sizeof(*g->first));
    for (uint32_t i = 0; i < pairs; i++) {
        must(ids[i] >= 0 && (uint32_t)ids[i] < experts);
        g->first[ids[i] + 1]++;
    }
    for (uint32_t x = 0; x < experts; x++)
        g->first[x + 1] += g->first[x];
    for (uint32_t i = 0; i < pairs; i++)
        g->pair[g->first[ids[i]]++] = i;
    for (uint32_t x = experts; x > 0; x--)
        g->first[x] = g->first[x - 1];
    g->first[0] = 0;
    g->ids = o->in[1].value;
}

struct join_job {
    struct prepared *p;
    const struct cpu_form_ops *f;
    const uint8_t *rows; /* row forms */
    size_t in, row_size, ranks; /* ranks: pair / ranks is the row to read */
};

/* One expert: its pairs become panels at the place of its first pair. */
static void join_expert(void *ctx, uint32_t chunk, uint32_t worker)
{
    const struct join_job *j = ctx;
    const struct cpu_grouping *g = &j->p->group;
    uint32_t first = g->first[chunk], last = g->first[chunk + 1];
    size_t panel = cpu_kernels_panel(j->f, last - first);
    (void)worker;
    const void *row[256];
    for (size_t at = first; at < last; at += panel) {
        size_t count = base_min(panel, last - at);
        for (size_t c = 0; c < count; c++)
            row[c] = j->rows + g->pair[at + c] / j->ranks * j->row_size;
        j->f->join(j->p->expert_panels + at * j->row_size, row, count, j->in);
    }
}

/* The product of one op: an item per expert that has rows. */
static uint32_t expert_items(struct prepared *p, const struct op *o, const struct join_job *j,
                             struct mul_item *items)
{
    const struct weight *w = &p->weights[o->weight[0]];
    const struct cpu_weight *cw = w->device;
    const struct cpu_grouping *g = &p->group;
    const float *bias = cpu_run_vector(p, o->weight[1]), *scale = cpu_run_vector(p, o->weight[2]);
    float *out = cpu_run_out(p, o->out[0]);
    uint32_t count = 0;
    for (uint32_t x = 0; x < w->mats; x++) {
        uint32_t first = g->first[x], columns = g->first[x + 1] - first;
        if (columns == 0)
            continue;
        for (uint32_t c = 0; c < columns; c++)
            p->columns[first + c] = out + (size_t)g->pair[first + c] * w->rows;
        const uint8_t *act = columns == 1 ? j->rows + g->pair[first] / j->ranks * j->row_size
                                          : p->expert_panels + first * j->row_size;
        items[count].mm = cw->mm;
        items[count++].args = (struct matmul_args){.type = w->type,
                                                   .weight = cw->data + x * cw->mat_size,
                                                   .act = act,
                                                   .out = p->columns + first,
                                                   .bias = bias ? bias + (size_t)x * w->rows : NULL,
                                                   .rows = w->rows,
                                                   .in = w->cols,
                                                   .columns = columns,
                                                   .scale = scale ? scale[x] : 1.0f};
    }
    return count;
}

uint32_t cpu_mul_run_experts(struct prepared *p, uint32_t op_index)
{
    const struct op *o = &p->plan->ops[op_index];
    const struct weight *w = &p->weights[o->weight[0]];
    const struct cpu_weight *cw = w->device;
    size_t rows = cpu_run_rows(p, o->in[0].value), in = w->cols;
    if (rows == 0)
        return 1;
    group_pairs(p, o, w->mats);
    struct join_job j = {.p = p,
                         .f = form_of(p, cw->mm->form),
                         .in = in,
                         .ranks = op_width(o->in[0]) == in ? o->a.experts.k : 1};
    j.row_size = j.f->row_size(in);
    j.rows = pack_rows(p, o->in[0], cw->mm->form, in);
    if (rows > 1) {
        struct thread_job job = {join_expert, &j, w->mats};
        cpu_run_region(p, &job);
    }
    run_items(p, p->expert_items, expert_items(p, o, &j, p->expert_items));
    return 1;
}

/* ---- prepare ---- */

struct mul_sizes {
    size_t packed[CPU_FORM_COUNT], panels, scratch, columns;
    uint32_t experts, pairs;
};

static void add_sizes(const struct prepared *p, const struct op *o, struct mul_sizes *s)
{
    const struct weight *w = &p->weights[o->weight[0]];
    enum cpu_form form = ((const struct cpu_weight *)w->device)->mm->form;
    const struct cpu_form_ops *f = form_of(p, form);
    size_t row_size = f->row_size(w->cols);
    size_t rows = plan_rows_max(p->plan->values[o->in[0].value].rows, &p->limits);
    s->scratch = base_max(s->scratch, base_max(f->whole, f->panel) * row_size + w->cols * 4u);
    if (o->kind == OP_MATMUL) {
        s->packed[form] = base_max(s->packed[form], rows * row_size);
        s->columns = base_max(s->columns, rows * ITEMS_MAX);
        return;
    }
    size_t pairs = rows * o->a.experts.k;
    size_t inputs = op_width(o->in[0]) == w->cols ? rows : pairs;
    s->packed[form] = base_max(s->packed[form], inputs * row_size);
    s->panels = base_max(s->panels, pairs * row_size);
    s->columns = base_max(s->columns, pairs);
    s->experts = (uint32_t)base_max(s->experts, w->mats);
    s->pairs = (uint32_t)base_max(s->pairs, pairs);
}

bool cpu_mul_prepare(struct prepared *p, struct err *e)
{
    struct mem *m = &p->d->mem;
    struct mul_sizes s;
    memset(&s, 0, sizeof(s));
    for (uint32_t i = 0; i < p->plan->ops_count; i++) {
        const struct op *o = &p->plan->ops[i];
        if (o->kind == OP_MATMUL || o->kind == OP_MOE_MATMUL)
            add_sizes(p, o, &s);
    }
    p->scratch_size = base_max(p->scratch_size, s.scratch);
    for (unsigned f = 0; f < CPU_FORM_COUNT; f++) {
        p->packed[f].data = mem_new(m, "scratch", s.packed[f], e);
        if (!p->packed[f].data)
            return false;
    }
    p->columns = mem_new_array(m, "scratch", s.columns, sizeof(*p->columns), e);
    p->expert_panels = mem_new(m, "scratch", s.panels, e);
    p->group.first = mem_new_array(m, "scratch", (size_t)s.experts + 1, sizeof(uint32_t), e);
    p->group.pair = mem_new_array(m, "scratch", s.pairs, sizeof(uint32_t), e);
    p->expert_items = mem_new_array(m, "scratch", s.experts, sizeof(struct mul_item), e);
    return p->columns && p->expert_panels && p->group.first && p->group.pair && p->expert_items;
}
