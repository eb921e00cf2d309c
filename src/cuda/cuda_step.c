#include "cuda/cuda_run.h"

#include <stdlib.h>
#include <string.h>

#define CUDA_SUMS_SIZE ((size_t)64 << 20) /* 8 classes of 256 columns by 8192 rows */
#define CUDA_PART_SIZE ((size_t)256 << 20) /* parts of attention: rows go in slices that fit */

/* ---- buffers ---- */

static size_t cuda_step_take(size_t *at, size_t size)
{
    size_t here = *at;
    *at += base_align(size, 16);
    return here;
}

struct cuda_answers cuda_step_answers(const struct prepared *p)
{
    const struct step_limits *m = &p->limits;
    struct cuda_answers a;
    size_t at = 0, lists = (size_t)m->outs_max * m->top_max * 4;
    a.ids = cuda_step_take(&at, m->outs_max * 4ul);
    a.logprob = cuda_step_take(&at, m->outs_max * 4ul);
    a.lse = cuda_step_take(&at, m->outs_max * 8ul);
    a.top_ids = cuda_step_take(&at, lists);
    a.top_val = cuda_step_take(&at, lists);
    a.raw_ids = cuda_step_take(&at, lists);
    a.raw_val = cuda_step_take(&at, lists);
    a.pooled = at;
    if (p->plan->pooled != TENSOR_NONE)
        cuda_step_take(&at, (size_t)m->seqs_max * p->plan->values[p->plan->pooled].width * 4);
    a.size = at;
    return a;
}

/* Where inputs lie for a shape. The adjustments come last, since their number is no part of it. */
static struct cuda_inputs cuda_step_inputs(const struct prepared *p, struct cuda_shape s)
{
    struct cuda_inputs in = {0};
    size_t at = 0;
    in.ids = cuda_step_take(&at, s.rows * 4ul);
    in.pos = cuda_step_take(&at, s.rows * 4ul);
    in.aux = cuda_step_take(&at, s.rows * 4ul);
    in.seq = cuda_step_take(&at, s.rows * 4ul);
    in.out_rows = cuda_step_take(&at, s.outs * 4ul);
    in.len = cuda_step_take(&at, s.seqs * 4ul);
    in.sample = cuda_step_take(&at, s.outs * sizeof(struct cuda_sample_row));
    for (uint32_t g = 0; g < p->d->layout.groups_count; g++)
        in.pages[g] = cuda_step_take(&at, (size_t)s.seqs * s.page_stride * 4);
    if (s.flags & 1)
        in.mask = cuda_step_take(&at, (size_t)s.outs * ((p->plan->vocab + 31) / 32) * 4);
    in.adjust = at; /* count, then the rows of 16 bytes: see sample_row */
    in.size = at;
    return in;
}

static uint32_t cuda_step_pages_max(const struct prepared *p)
{
    uint32_t most = 8;
    for (uint32_t g = 0; g < p->d->layout.groups_count; g++)
        while (most < p->limits.pages_max[g])
            most *= 2;
    return most;
}

#define CUDA_ADJUST_MAX 65536 /* per step; a penalty window of 64 over 256 rows needs 16384 */

static size_t cuda_step_inputs_size(const struct prepared *p)
{
    const struct step_limits *m = &p->limits;
    struct cuda_shape s = {m->rows_max, m->outs_max, m->seqs_max, cuda_step_pages_max(p), 1, 0};
    return cuda_step_inputs(p, s).size + 16 + CUDA_ADJUST_MAX * sizeof(struct cuda_adjust);
}

/* ---- prepare ---- */

static bool cuda_step_new_slots(struct prepared *p, struct err *e)
{
    const struct plan *plan = p->plan;
    p->slots = calloc(plan->slots_count, sizeof *p->slots);
    p->freqs = calloc(plan->ops_count, sizeof *p->freqs);
    if (!p->slots || !p->freqs)
        return err_set(e, ERR_MEMORY, "cuda: no memory for a plan");
    for (uint32_t i = 0; i < plan->slots_count; i++) {
        size_t rows = plan_rows_max(plan->slots[i].rows, &p->limits);
        if (!cuda_backend_alloc(p->d, "scratch", rows * plan->slots[i].width * 4, &p->slots[i], e))
            return false;
    }
    return true;
}

static const struct op_rope *cuda_step_rope(const struct op *o)
{
    if (o->kind == OP_ROPE)
        return &o->a.rope;
    return o->kind == OP_ROPE_QK ? &o->a.rope_qk.rope : NULL;
}

/* Frequencies of each rope: a table in device memory, divisors brought back from the weight. */
static bool cuda_step_new_freqs(struct prepared *p, struct err *e)
{
    for (uint32_t i = 0; i < p->plan->ops_count; i++) {
        const struct op *o = &p->plan->ops[i];
        const struct op_rope *r = cuda_step_rope(o);
        if (!r)
            continue;
        uint16_t from = o->weight[o->kind == OP_ROPE ? 0 : 2];
        size_t size = r->n_rot / 2 * sizeof(float);
        float *table = calloc(2, size), *divisors = NULL;
        if (!table)
            return err_set(e, ERR_MEMORY, "cuda: no memory for a plan");
        bool ok = true;
        if (from != TENSOR_NONE) {
            const struct cuda_weight *w = p->weights[from].device;
            divisors = table + size / sizeof(float);
            ok =
                cuda_backend_check(p->d, p->d->driver->copy_out(divisors, w->p, size, p->d->stream),
                                   "frequencies", e) &&
                cuda_backend_check(p->d, p->d->driver->stream_wait(p->d->stream), "frequencies", e);
        }
        if (ok) {
            op_rope_freqs(r, divisors, table);
            ok =
                cuda_backend_alloc(p->d, "scratch", size, &p->freqs[i], e) &&
                cuda_backend_check(p->d,
                                   p->d->driver->copy_in(p->freqs[i], table, size, p->d->stream),
                                   "frequencies", e) &&
                cuda_backend_check(p->d, p->d->driver->stream_wait(p->d->stream), "frequencies", e);
        }
        free(table);
        if (!ok)
            return false;
    }
    return true;
}

/* Of an input of so many rows that meets the weight; 0: no kernel reads one. */
static size_t cuda_step_image_size(const struct prepared *p, const struct cuda_weight *c,
                                   size_t rows)
{
    size_t least = c->format == CUDA_FORMAT_BF16 ? CUDA_GEMM_BF16_COLUMNS_MIN
                                                 : CUDA_GEMM_COLUMNS_MIN;
    if (!p->d->k.has_gemm || rows < least || c->format < CUDA_FORMAT_BF16)
        return 0;
    return base_align(rows, CUDA_GEMM_COLUMNS) / CUDA_GEMM_COLUMNS * (c->kp / CUDA_RECORD_K) *
           CUDA_IMAGE_SIZE;
}

/* Room for the input of one weight of a product in its forms. */
static void cuda_step_measure_weight(const struct prepared *p, const struct op *o, uint16_t w,
                                     struct cuda_sizes *s)
{
    const struct cuda_weight *c = p->weights[w].device;
    bool is_moe = o->kind == OP_MOE_MATMUL || o->kind == OP_MOE_GLU;
    size_t rows = plan_rows_max(p->plan->values[o->in[0].value].rows, &p->limits);
    size_t ranks = op_width(o->in[0]) / p->weights[w].cols;
    s->elements = base_max(s->elements, rows * ranks * c->kp *
                                            (c->format == CUDA_FORMAT_BF16 ? 2 : 1));
    size_t image = is_moe ? 0 : cuda_step_image_size(p, c, rows);
    s->image = base_max(s->image, image);
    if (c->format == CUDA_FORMAT_BF16 &&
        cuda_mul_is_glu_input(p->plan, (uint32_t)(o - p->plan->ops))) {
        s->glu_elements = base_max(s->glu_elements, rows * c->kp * 2);
        s->glu_image = base_max(s->glu_image, image);
    }
    if (is_moe) {
        s->pairs = base_max(s->pairs, rows * op_width(o->in[1]));
        s->experts = base_max(s->experts, p->weights[w].mats);
    }
}

static void cuda_step_measure_product(const struct prepared *p, const struct op *o,
                                      struct cuda_sizes *s)
{
    bool is_glu = o->kind == OP_MATMUL_GLU || o->kind == OP_MOE_GLU;
    if (o->kind != OP_MATMUL && o->kind != OP_MOE_MATMUL && !is_glu)
        return;
    size_t rows = plan_rows_max(p->plan->values[o->in[0].value].rows, &p->limits);
    cuda_step_measure_weight(p, o, o->weight[0], s);
    if (op_has_gaps(o->in[0]))
        s->floats = base_max(s->floats, rows * op_width(o->in[0]));
    if (!is_glu)
        return;
    cuda_step_measure_weight(p, o, o->weight[1], s);
    if (cuda_mul_is_apart(p, o))
        s->beside = base_max(s->beside, rows * p->plan->values[o->out[0]].width * 4);
}

static struct cuda_sizes cuda_step_measure(const struct prepared *p)
{
    struct cuda_sizes s = {0};
    const struct plan *plan = p->plan;
    for (uint32_t i = 0; i < plan->ops_count; i++) {
        const struct op *o = &plan->ops[i];
        cuda_step_measure_product(p, o, &s);
        if (o->kind == OP_ATTN) {
            size_t tokens = (size_t)cuda_step_pages_max(p) * KV_PAGE_TOKENS;
            size_t blocks = tokens / CUDA_ATTEND_BLOCK + 1; /* the smaller of the two blocks */
            size_t row = (size_t)o->a.attn.heads * blocks * (o->a.attn.dv + 2) * 4;
            s.part =
                base_max(s.part, base_max(row, base_min(row * p->limits.rows_max, CUDA_PART_SIZE)));
            if (p->d->layout.type == KV_TYPE_INT8)
                s.turned = base_max(s.turned, (size_t)p->limits.rows_max * o->a.attn.heads *
                                                  o->a.attn.dk * 4);
        }
    }
    if (s.image) /* gemm.cu's sums of classes lie there too */
        s.part = base_max(s.part, CUDA_SUMS_SIZE);
    return s;
}

/* Chunks of experts' columns: each expert may have one that is not full. */
static size_t cuda_step_work_size(struct cuda_sizes s)
{
    return (1 + 3 * (s.experts + s.pairs + 1)) * 4;
}

/* A value and an id per chunk of a row; a sum per 256 ids. */
static size_t cuda_step_best_size(const struct prepared *p)
{
    return (size_t)p->limits.outs_max * (p->plan->vocab / CUDA_SAMPLE_CHUNK + 1) * 8;
}

static size_t cuda_step_sums_size(const struct prepared *p)
{
    return (size_t)p->limits.outs_max * (p->plan->vocab / 256 + 1) * 4;
}

static bool cuda_step_new_buffers(struct prepared *p, struct err *e)
{
    struct device *d = p->d;
    struct cuda_sizes s = p->sizes = cuda_step_measure(p);
    p->part_size = s.part;
    p->in_size = cuda_step_inputs_size(p);
    p->out_size = cuda_step_answers(p).size;
    size_t logits = (size_t)p->limits.outs_max * p->plan->vocab * 4;
    return cuda_backend_alloc(d, "scratch", s.elements, &p->act_q[0], e) &&
           (s.glu_elements == 0 ||
            cuda_backend_alloc(d, "scratch", s.glu_elements, &p->act_q[1], e)) &&
           cuda_backend_alloc(d, "scratch", s.elements / 32 * 4, &p->act_d, e) &&
           cuda_backend_alloc(d, "scratch", s.elements / 32 * 2, &p->act_s, e) &&
           cuda_backend_alloc(d, "scratch", s.floats * 4, &p->act_f, e) &&
           (s.image == 0 || cuda_backend_alloc(d, "scratch", s.image, &p->act_image[0], e)) &&
           (s.glu_image == 0 ||
            cuda_backend_alloc(d, "scratch", s.glu_image, &p->act_image[1], e)) &&
           (s.beside == 0 || cuda_backend_alloc(d, "scratch", s.beside, &p->beside, e)) &&
           (s.turned == 0 || cuda_backend_alloc(d, "scratch", s.turned, &p->turned, e)) &&
           cuda_backend_alloc(d, "scratch", s.part, &p->part, e) &&
           cuda_backend_alloc(d, "scratch", cuda_step_work_size(s), &p->work, e) &&
           cuda_backend_alloc(d, "scratch", s.pairs * 4, &p->pair, e) &&
           cuda_backend_alloc(d, "scratch", logits, &p->adjusted, e) &&
           cuda_backend_alloc(d, "scratch", cuda_step_best_size(p), &p->best, e) &&
           cuda_backend_alloc(d, "scratch", cuda_step_sums_size(p), &p->sums, e) &&
           cuda_backend_alloc(d, "scratch", p->in_size, &p->in, e) &&
           cuda_backend_alloc(d, "scratch", p->out_size, &p->out, e) &&
           cuda_backend_check(d, d->driver->host_alloc((void **)&p->in_host, p->in_size, 0),
                              "pinned memory", e) &&
           cuda_backend_check(d, d->driver->host_alloc((void **)&p->out_host, p->out_size, 0),
                              "pinned memory", e);
}

bool cuda_step_prepare(struct device *d, const struct plan *plan, struct weight *weights,
                       const struct step_limits *m, struct prepared **out, struct err *e)
{
    if (plan->leave_count)
        return err_set(e, ERR_UNSUPPORTED, "cuda: the first layers of a split model are not built, "
                       "only the last");
    if (!cuda_backend_check(d, d->driver->ctx_set(d->context), "context", e))
        return false;
    struct prepared *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ERR_MEMORY, "cuda: no memory for a plan");
    *p = (struct prepared){
        .d = d, .plan = plan, .weights = weights, .limits = *m, .next = d->prepared};
    if (!d->has_kv && m->layout)
        d->layout = *m->layout;
    d->prepared = p;
    if (!d->has_kv && m->layout)
        d->layout = *m->layout;
    if (!cuda_step_new_slots(p, e) || !cuda_step_new_freqs(p, e) || !cuda_step_new_buffers(p, e)) {
        cuda_step_free(d, p);
        return false;
    }
    *out = p;
    return true;
}

void cuda_step_free(struct device *d, struct prepared *p)
{
    struct prepared **at = &d->prepared;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
    for (size_t i = 0; i < CUDA_GRAPHS_MAX; i++)
        if (p->graphs[i].exec)
            d->driver->graph_exec_free(p->graphs[i].exec);
    struct cuda_sizes s = p->sizes; /* weights may be gone */
    for (uint32_t i = 0; p->slots && i < p->plan->slots_count; i++)
        cuda_backend_free(d, p->slots[i],
                          (size_t)plan_rows_max(p->plan->slots[i].rows, &p->limits) *
                              p->plan->slots[i].width * 4);
    for (uint32_t i = 0; p->freqs && i < p->plan->ops_count; i++)
        if (p->freqs[i])
            cuda_backend_free(d, p->freqs[i],
                              cuda_step_rope(&p->plan->ops[i])->n_rot / 2 * sizeof(float));
    cuda_backend_free(d, p->act_q[0], s.elements);
    cuda_backend_free(d, p->act_q[1], s.glu_elements);
    cuda_backend_free(d, p->act_d, s.elements / 32 * 4);
    cuda_backend_free(d, p->act_s, s.elements / 32 * 2);
    cuda_backend_free(d, p->act_f, s.floats * 4);
    cuda_backend_free(d, p->act_image[0], s.image);
    cuda_backend_free(d, p->act_image[1], s.glu_image);
    cuda_backend_free(d, p->beside, s.beside);
    cuda_backend_free(d, p->turned, s.turned);
    cuda_backend_free(d, p->part, s.part);
    cuda_backend_free(d, p->work, cuda_step_work_size(s));
    cuda_backend_free(d, p->pair, s.pairs * 4);
    cuda_backend_free(d, p->adjusted, (size_t)p->limits.outs_max * p->plan->vocab * 4);
    cuda_backend_free(d, p->best, cuda_step_best_size(p));
    cuda_backend_free(d, p->sums, cuda_step_sums_size(p));
    cuda_backend_free(d, p->in, p->in_size);
    cuda_backend_free(d, p->out, p->out_size);
    if (p->in_host)
        d->driver->host_free(p->in_host);
    if (p->out_host)
        d->driver->host_free(p->out_host);
    free(p->slots);
    free(p->freqs);
    free(p);
}

/* ---- a step's inputs ---- */

static uint32_t cuda_step_page_stride(const struct step *s)
{
    uint32_t most = 8, len = 0;
    for (uint32_t i = 0; i < s->seqs; i++)
        len = s->kv.len[i] > len ? s->kv.len[i] : len;
    while (most * KV_PAGE_TOKENS < len)
        most *= 2;
    return most;
}

/* Rows of a sequence stand side by side. */
static uint32_t cuda_step_singles(const struct step *s)
{
    uint32_t n = 0;
    while (n < s->rows && (n + 1 == s->rows || s->seq[n + 1] != s->seq[n]))
        n++;
    return n;
}

static void cuda_step_fill_pages(struct prepared *p, const struct step *s)
{
    for (uint32_t g = 0; g < p->d->layout.groups_count; g++) {
        uint32_t *to = (uint32_t *)(p->in_host + p->at.pages[g]);
        uint32_t stride = p->shape.page_stride, have = s->kv.pages_max[g];
        for (uint32_t q = 0; q < s->seqs; q++)
            for (uint32_t i = 0; i < stride; i++)
                to[q * stride + i] = i < have ? s->kv.pages[g][(size_t)q * have + i] : KV_PAGE_NONE;
    }
}

static void cuda_step_fill(struct prepared *p, const struct step *s)
{
    uint8_t *in = p->in_host;
    memcpy(in + p->at.ids, s->ids, s->rows * 4ul);
    memcpy(in + p->at.pos, s->pos, s->rows * 4ul);
    if (s->aux)
        memcpy(in + p->at.aux, s->aux, s->rows * 4ul);
    for (uint32_t i = 0; i < s->rows; i++)
        ((uint32_t *)(in + p->at.seq))[i] = s->seq[i];
    memcpy(in + p->at.out_rows, s->out_rows, s->outs * 4ul);
    memcpy(in + p->at.len, s->kv.len, s->seqs * 4ul);
    for (uint32_t i = 0; i < s->outs; i++) {
        const struct sample_row *r = &s->sample[i];
        ((struct cuda_sample_row *)(in + p->at.sample))[i] = (struct cuda_sample_row){
            .seed = r->seed,
            .position = r->position,
            .draw = r->draw,
            .temperature = r->temperature,
            .typical_p = r->typical_p,
            .top_p = r->top_p,
            .min_p = r->min_p,
            .top_k = r->top_k,
            .k = r->k,
            .raw_k = r->raw_k,
        };
    }
    cuda_step_fill_pages(p, s);
    if (s->mask)
        memcpy(in + p->at.mask, s->mask, (size_t)s->outs * ((p->plan->vocab + 31) / 32) * 4);
    memcpy(in + p->at.adjust, &s->adjust_count, 4);
    if (s->adjust_count)
        memcpy(in + p->at.adjust + 16, s->adjust, s->adjust_count * sizeof(struct cuda_adjust));
}

/* Pages are copied before the first op; rare, so outside of graphs. */
static bool cuda_step_copy_pages(struct prepared *p, const struct step *s, struct err *e)
{
    for (uint32_t i = 0; i < s->copies_count; i++)
        if (!cuda_backend_copy_page(p->d, &s->copies[i], e))
            return false;
    return true;
}

/* ---- graphs ---- */

static bool cuda_step_same(struct cuda_shape a, struct cuda_shape b)
{
    return a.rows == b.rows && a.outs == b.outs && a.seqs == b.seqs &&
           a.page_stride == b.page_stride && a.flags == b.flags && a.singles == b.singles;
}

/* Shapes that were only seen make room before graphs do. */
static bool cuda_step_goes_first(const struct cuda_graph_entry *a, const struct cuda_graph_entry *b)
{
    if ((a->exec == NULL) != (b->exec == NULL))
        return a->exec == NULL;
    return a->used < b->used;
}

static struct cuda_graph_entry *cuda_step_find(struct prepared *p)
{
    struct cuda_graph_entry *first = &p->graphs[0];
    for (size_t i = 0; i < CUDA_GRAPHS_MAX; i++) {
        struct cuda_graph_entry *g = &p->graphs[i];
        if (g->used && cuda_step_same(g->shape, p->shape))
            return g;
        if (cuda_step_goes_first(g, first))
            first = g;
    }
    if (first->exec)
        p->d->driver->graph_exec_free(first->exec);
    *first = (struct cuda_graph_entry){.shape = p->shape};
    return first;
}

static bool cuda_step_capture(struct prepared *p, struct cuda_graph_entry *g, struct err *e)
{
    struct device *d = p->d;
    cuda_graph graph = NULL;
    if (!cuda_backend_check(d, d->driver->capture_begin(d->stream, 2), "capture", e))
        return false;
    bool ok = cuda_run_plan(p, e);
    struct err ignored = {0};
    if (!cuda_backend_check(d, d->driver->capture_end(d->stream, &graph), "capture",
                            ok ? e : &ignored))
        return false;
    ok = ok && cuda_backend_check(d, d->driver->graph_make(&g->exec, graph, 0), "graph", e);
    d->driver->graph_free(graph);
    return ok;
}

/* A step that reads a prompt is captured only when its shape comes again: that is rare, and to
 * capture one takes longer than to launch it. */
static bool cuda_step_run(struct prepared *p, struct err *e)
{
    if (p->shape.rows > CUDA_GRAPH_ROWS_MAX)
        return cuda_run_plan(p, e);
    struct cuda_graph_entry *g = cuda_step_find(p);
    bool is_new = g->used == 0;
    g->used = ++p->steps;
    if (is_new && p->shape.singles < p->shape.rows)
        return cuda_run_plan(p, e);
    if (!g->exec && !cuda_step_capture(p, g, e))
        return false;
    return cuda_backend_check(p->d, p->d->driver->graph_launch(g->exec, p->d->stream), "run", e);
}

/* ---- submit, wait ---- */

static bool cuda_step_send_answers(struct prepared *p, const struct step *s, struct err *e)
{
    struct device *d = p->d;
    struct cuda_answers a = cuda_step_answers(p);
    bool has_lists = false;
    for (uint32_t i = 0; i < s->outs; i++)
        has_lists = has_lists || s->sample[i].k || s->sample[i].raw_k;
    size_t size = has_lists ? a.pooled : a.top_ids;
    if (s->outs && !cuda_backend_check(d, d->driver->copy_out(p->out_host, p->out, size, d->stream),
                                       "answer", e))
        return false;
    if (p->plan->pooled == TENSOR_NONE)
        return true;
    const struct plan_value *v = &p->plan->values[p->plan->pooled];
    return cuda_backend_check(d,
                              d->driver->copy_out(p->out_host + a.pooled, p->slots[v->slot],
                                                  (size_t)s->seqs * v->width * 4, d->stream),
                              "answer", e);
}

/* What the other half of the plan hands over. */
static bool cuda_step_enter(struct prepared *p, const struct step *s, struct err *e)
{
    for (uint32_t i = 0; i < p->plan->enter_count; i++) {
        const struct plan_value *v = &p->plan->values[p->plan->enter[i]];
        if (!cuda_backend_check(p->d,
                                p->d->driver->copy_in(p->slots[v->slot], s->enter[i],
                                                      (size_t)s->rows * v->width * 4,
                                                      p->d->stream),
                                "values", e))
            return false;
    }
    return true;
}

bool cuda_step_submit(struct device *d, struct prepared *p, const struct step *s, struct err *e)
{
    if (d->is_lost)
        return err_set(e, ERR_DEVICE, "cuda: the device is lost");
    must(d->driver != &d->counting);
    if (s->adjust_count > CUDA_ADJUST_MAX)
        return err_set(e, ERR_LIMIT, "cuda: %u logit adjustments in a step, at most %u",
                       s->adjust_count, CUDA_ADJUST_MAX);
    p->shape = (struct cuda_shape){
        .rows = s->rows,
        .outs = s->outs,
        .seqs = s->seqs,
        .page_stride = cuda_step_page_stride(s),
        .flags = s->mask ? 1 : 0,
        .singles = cuda_step_singles(s),
    };
    p->at = cuda_step_inputs(p, p->shape);
    cuda_step_fill(p, s);
    size_t size = p->at.size + 16 + s->adjust_count * sizeof(struct cuda_adjust);
    return cuda_backend_check(d, d->driver->ctx_set(d->context), "context", e) &&
           cuda_backend_check(d, d->driver->copy_in(p->in, p->in_host, size, d->stream), "step",
                              e) &&
           cuda_step_copy_pages(p, s, e) && cuda_step_enter(p, s, e) &&
           cuda_step_run(p, e) && cuda_step_send_answers(p, s, e);
}

bool cuda_step_wait(struct device *d, struct prepared *p, struct step_out *out, struct err *e)
{
    if (!cuda_backend_check(d, d->driver->stream_wait(d->stream), "step", e))
        return false;
    struct cuda_answers a = cuda_step_answers(p);
    const uint8_t *h = p->out_host;
    *out = (struct step_out){0};
    if (p->plan->logits != TENSOR_NONE)
        *out = (struct step_out){
            .ids = (const int32_t *)(h + a.ids),
            .logprob = (const float *)(h + a.logprob),
            .top_ids = (const int32_t *)(h + a.top_ids),
            .top_val = (const float *)(h + a.top_val),
            .raw_ids = (const int32_t *)(h + a.raw_ids),
            .raw_val = (const float *)(h + a.raw_val),
            .lse = (const float *)(h + a.lse),
        };
    if (p->plan->pooled != TENSOR_NONE)
        out->pooled = (const float *)(h + a.pooled);
    return true;
}

bool cuda_step_logits(struct device *d, struct prepared *p, uint32_t out_row, float *dst,
                      struct err *e)
{
    must(p->plan->logits != TENSOR_NONE && out_row < p->shape.outs);
    size_t row = (size_t)p->plan->vocab * 4;
    cuda_ptr from = p->slots[p->plan->values[p->plan->logits].slot] + row * out_row;
    return cuda_backend_check(d, d->driver->copy_out(dst, from, row, d->stream), "logits", e) &&
           cuda_backend_check(d, d->driver->stream_wait(d->stream), "logits", e);
}
