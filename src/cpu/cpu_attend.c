#include "cpu/cpu_device.h"

#include <math.h>
#include <string.h>

/* A unit of attention is (sequence, K/V head, up to CPU_ATTN_ROWS query rows): its blocks of 256
 * positions are computed and merged one after the other. Where there are fewer units than workers
 * (one sequence decodes at depth), the blocks of all units run at the same time, each into a state
 * of its own, and a second region merges them in the same order: the same bits. */

static const struct kv_layer *layer_of(const struct device *d, uint16_t layer)
{
    for (uint32_t i = 0; i < d->layout.layers_count; i++)
        if (d->layout.layers[i].layer == layer)
            return &d->layout.layers[i];
    must(false); /* the plan was made with another layout than kv_init */
    return NULL;
}

/* The layer's part of the page that holds a position; NULL: not there. */
static uint8_t *page_of(const struct prepared *p, const struct kv_layer *l, uint32_t seq,
                        uint32_t page_index)
{
    const struct kv_view *kv = &p->step->kv;
    must(page_index < kv->pages_max[l->group]);
    uint32_t page = kv->pages[l->group][(size_t)seq * kv->pages_max[l->group] + page_index];
    if (page == KV_PAGE_NONE)
        return NULL;
    must(page < p->d->pages_count[l->group]);
    return p->d->pages[l->group] + (size_t)page * p->d->layout.page_size[l->group] + l->offset;
}

/* ---- writing ---- */

struct write_job {
    struct prepared *p;
    struct kv_write_args args;
    uint32_t per_chunk;
};

static void write_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    const struct write_job *j = ctx;
    struct kv_write_args a = j->args;
    (void)worker;
    uint32_t first = chunk * j->per_chunk;
    a.rows = (uint32_t)base_min(j->per_chunk, a.rows - first);
    a.k.p += first * a.k.row;
    a.v.p += first * a.v.row;
    a.page += first;
    a.pos += first;
    j->p->d->k.kv_write(&a);
}

void cpu_attend_write(struct prepared *p, const struct op *o)
{
    const struct step *s = p->step;
    const struct kv_layer *l = layer_of(p->d, o->layer);
    for (uint32_t r = 0; r < s->rows; r++) {
        p->row_page[r] = page_of(p, l, s->seq[r], (uint32_t)s->pos[r] / KV_PAGE_TOKENS);
        must(p->row_page[r]);
    }
    struct write_job j = {.p = p,
                          .args = {.k = cpu_run_view(p, o->in[0]),
                                   .v = cpu_run_view(p, o->in[1]),
                                   .page = p->row_page,
                                   .pos = s->pos,
                                   .op = &o->a.kv,
                                   .rows = s->rows,
                                   .type = p->d->layout.type}};
    j.per_chunk = 32;
    struct thread_job job = {write_chunk, &j, (s->rows + 31) / 32};
    cpu_run_region(p, &job);
}

void cpu_attend_begin(struct prepared *p)
{
    for (uint32_t i = 0; i < p->step->copies_count; i++) {
        const struct kv_copy *c = &p->step->copies[i];
        size_t size = p->d->layout.page_size[c->group];
        must(c->from < p->d->pages_count[c->group] && c->to < p->d->pages_count[c->group]);
        memcpy(p->d->pages[c->group] + c->to * size, p->d->pages[c->group] + c->from * size, size);
    }
}

/* ---- units ---- */

struct attend_job {
    struct prepared *p;
    const struct op *o;
    const struct kv_layer *layer;
    const float *sinks;
    struct cpu_view q;
    uint32_t heads;       /* query heads per K/V head */
    size_t state_width;   /* floats of one state */
    size_t unit_state;    /* floats of one unit's states */
    uint32_t blocks_max;  /* of a unit, when blocks run at the same time */
};

struct unit {
    uint32_t seq, kv_head, row, rows;
    uint32_t block_first, block_last; /* inclusive */
    uint32_t end; /* tokens that its last row may see */
};

static uint32_t unit_tiles(uint32_t rows)
{
    return (rows + CPU_ATTN_ROWS - 1) / CPU_ATTN_ROWS;
}

static uint32_t count_units(struct prepared *p, const struct op_attn *a)
{
    p->unit_first[0] = 0;
    for (uint32_t s = 0; s < p->step->seqs; s++)
        p->unit_first[s + 1] = p->unit_first[s] +
                               unit_tiles(p->seq_first[s + 1] - p->seq_first[s]) * a->kv_heads;
    return p->unit_first[p->step->seqs];
}

static struct unit unit_at(const struct attend_job *j, uint32_t index)
{
    const struct prepared *p = j->p;
    const struct op_attn *a = &j->o->a.attn;
    uint32_t low = 0, high = p->step->seqs - 1;
    while (low < high) {
        uint32_t mid = (low + high + 1) / 2;
        if (p->unit_first[mid] <= index)
            low = mid;
        else
            high = mid - 1;
    }
    uint32_t within = index - p->unit_first[low], tile = within / a->kv_heads;
    struct unit u = {.seq = low, .kv_head = within % a->kv_heads};
    u.row = p->seq_first[low] + tile * CPU_ATTN_ROWS;
    u.rows = (uint32_t)base_min(CPU_ATTN_ROWS, p->seq_first[low + 1] - u.row);
    uint32_t first = (uint32_t)p->step->pos[u.row], start = 0;
    u.end = (uint32_t)p->step->pos[u.row + u.rows - 1] + 1;
    if (a->mask == OP_MASK_FULL)
        u.end = p->step->kv.len[low];
    if (a->window && first + 1 > a->window)
        start = first + 1 - a->window;
    u.block_first = start / CPU_ATTN_BLOCK;
    u.block_last = (u.end - 1) / CPU_ATTN_BLOCK;
    return u;
}

static void run_block(const struct attend_job *j, const struct unit *u, uint32_t block,
                      float *state, void *scratch)
{
    const struct prepared *p = j->p;
    const struct op_attn *op = &j->o->a.attn;
    struct attn_args a = {.q_row = j->q.row,
                          .q_head = op_has_gaps(j->o->in[0]) ? j->o->in[0].stride : op->dk,
                          .rows = u->rows,
                          .heads = j->heads,
                          .pos = p->step->pos + u->row,
                          .type = p->d->layout.type,
                          .first = block * CPU_ATTN_BLOCK,
                          .op = op,
                          .state = state,
                          .scratch = scratch};
    a.q = j->q.p + u->row * j->q.row + (size_t)u->kv_head * j->heads * a.q_head;
    a.tokens = (uint32_t)base_min(CPU_ATTN_BLOCK, u->end - a.first);
    size_t k_size = kv_head_size(a.type, op->dk);
    size_t v_size = kv_head_size(a.type, op->dv);
    for (uint32_t i = 0; i < (a.tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS; i++) {
        const uint8_t *page = page_of(p, j->layer, u->seq, block * CPU_ATTN_PAGES + i);
        if (!page)
            continue;
        a.k[i] = page + u->kv_head * k_size;
        a.v[i] = page + op->kv_heads * k_size + u->kv_head * v_size;
    }
    p->d->k.attn_block(&a);
}

/* Nothing seen yet, or the sink: a score without a value. */
static void start_states(const struct attend_job *j, const struct unit *u, float *state)
{
    memset(state, 0, j->unit_state * sizeof(float));
    for (uint32_t i = 0; i < u->rows * j->heads; i++) {
        float *s = state + i * j->state_width;
        s[0] = j->sinks ? j->sinks[u->kv_head * j->heads + i % j->heads] : -INFINITY;
        s[1] = j->sinks ? 1.0f : 0.0f;
    }
}

static void merge_states(const struct attend_job *j, const struct unit *u, float *into,
                         const float *from)
{
    struct attn_merge_args a = {into, from, u->rows * j->heads, j->o->a.attn.dv};
    j->p->d->k.attn_merge(&a);
}

static void finish_unit(const struct attend_job *j, const struct unit *u, const float *state)
{
    const struct op_attn *op = &j->o->a.attn;
    for (uint32_t r = 0; r < u->rows; r++) {
        size_t at = (size_t)(u->row + r) * op->heads + u->kv_head * j->heads;
        struct attn_finish_args a = {.state = state + r * j->heads * j->state_width,
                                     .out = cpu_run_out(j->p, j->o->out[0]) + at * op->dv,
                                     .out_row = op->dv,
                                     .count = j->heads,
                                     .dv = op->dv};
        j->p->d->k.attn_finish(&a);
    }
}

/* Worker scratch: the kernel's, then the running states, then those of a block. */
static void unit_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    const struct attend_job *j = ctx;
    struct unit u = unit_at(j, chunk);
    uint8_t *scratch = cpu_run_scratch(j->p, worker);
    float *state = (float *)(void *)(scratch + CPU_ATTN_SCRATCH), *part = state + j->unit_state;
    start_states(j, &u, state);
    for (uint32_t b = u.block_first; b <= u.block_last; b++) {
        run_block(j, &u, b, part, scratch);
        merge_states(j, &u, state, part);
    }
    finish_unit(j, &u, state);
}

static float *block_state(const struct attend_job *j, uint32_t unit, uint32_t block)
{
    return j->p->states + ((size_t)unit * j->blocks_max + block) * j->unit_state;
}

static void block_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    const struct attend_job *j = ctx;
    uint32_t unit = chunk / j->blocks_max, block = chunk % j->blocks_max;
    struct unit u = unit_at(j, unit);
    if (u.block_first + block <= u.block_last)
        run_block(j, &u, u.block_first + block, block_state(j, unit, block),
                  cpu_run_scratch(j->p, worker));
}

static void merge_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    const struct attend_job *j = ctx;
    struct unit u = unit_at(j, chunk);
    float *state = (float *)(void *)(cpu_run_scratch(j->p, worker) + CPU_ATTN_SCRATCH);
    start_states(j, &u, state);
    for (uint32_t b = u.block_first; b <= u.block_last; b++)
        merge_states(j, &u, state, block_state(j, chunk, b - u.block_first));
    finish_unit(j, &u, state);
}

/* Blocks at the same time when units alone leave workers idle and the states fit. */
static bool splits_blocks(struct attend_job *j, uint32_t units)
{
    if (units >= 2 * j->p->d->workers || j->p->d->workers == 1)
        return false;
    j->blocks_max = 0;
    for (uint32_t i = 0; i < units; i++) {
        struct unit u = unit_at(j, i);
        uint32_t blocks = u.block_last - u.block_first + 1;
        j->blocks_max = blocks > j->blocks_max ? blocks : j->blocks_max;
    }
    return j->blocks_max > 1 && units * j->blocks_max * j->unit_state <= j->p->states_size;
}

void cpu_attend_run(struct prepared *p, const struct op *o)
{
    const struct op_attn *a = &o->a.attn;
    struct attend_job j = {.p = p,
                           .o = o,
                           .layer = layer_of(p->d, o->layer),
                           .sinks = cpu_run_vector(p, o->weight[0]),
                           .q = cpu_run_view(p, o->in[0]),
                           .heads = a->heads / a->kv_heads,
                           .state_width = cpu_kernels_state_width(a->dv)};
    uint32_t rows_most = 1;
    for (uint32_t s = 0; s < p->step->seqs; s++)
        rows_most = (uint32_t)base_max(rows_most, p->seq_first[s + 1] - p->seq_first[s]);
    j.unit_state = base_min(CPU_ATTN_ROWS, rows_most) * j.heads * j.state_width;
    uint32_t units = count_units(p, a);
    if (!splits_blocks(&j, units)) {
        struct thread_job job = {unit_chunk, &j, units};
        cpu_run_region(p, &job);
        return;
    }
    struct thread_job blocks = {block_chunk, &j, units * j.blocks_max};
    cpu_run_region(p, &blocks);
    struct thread_job merge = {merge_chunk, &j, units};
    cpu_run_region(p, &merge);
}

bool cpu_attend_prepare(struct prepared *p, struct err *e)
{
    struct mem *m = &p->d->mem;
    p->row_page = mem_new_array(m, "scratch", p->limits.rows_max, sizeof(*p->row_page), e);
    p->unit_first = mem_new_array(m, "plan", (size_t)p->limits.seqs_max + 1, sizeof(uint32_t), e);
    if (!p->row_page || !p->unit_first)
        return false;
    for (uint32_t i = 0; i < p->plan->ops_count; i++) {
        const struct op *o = &p->plan->ops[i];
        if (o->kind != OP_ATTN)
            continue;
        const struct op_attn *a = &o->a.attn;
        size_t width = cpu_kernels_state_width(a->dv), heads = a->heads / a->kv_heads;
        size_t pages = p->limits.pages_max[layer_of(p->d, o->layer)->group];
        size_t blocks = pages / CPU_ATTN_PAGES + 1;
        p->states_size = base_max(p->states_size, blocks * a->heads * width);
        p->scratch_size = base_max(p->scratch_size, CPU_ATTN_SCRATCH +
                                                        2 * CPU_ATTN_ROWS * heads * width * 4);
    }
    p->states = mem_new_array(m, "scratch", p->states_size, sizeof(float), e);
    return p->states != NULL;
}
