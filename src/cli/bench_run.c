#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/chrono.h"
#include "base/machine.h"
#include "cli/bench.h"

#define BENCH_SEED 1
#define BENCH_ARENA_MAX ((size_t)256 << 20)
#define BENCH_PROBE_MIN ((uint64_t)64 << 20)
#define BENCH_PROBE_MAX ((uint64_t)1536 << 20)
#define BENCH_BAR 24
#define BENCH_NEWS_MS 10000 /* between lines of progress where there is no terminal */

/* What a step reads, sized once for the largest one. */
struct bench_steps {
    struct bench *b;
    struct chrono_rng rng;
    int32_t *ids, *pos;
    uint16_t *seq;
    uint32_t *out_rows, *len;
    struct sample_row *sample;
    uint32_t *pages[KV_GROUPS_MAX]; /* [slots][pages_max] */
};

/* --- arithmetic --- */

/* Different experts that so many tokens need, if the router chose evenly. */
static double bench_run_experts(const struct hparams *hp, double tokens)
{
    double all = hp->n_expert, share = hp->n_expert_used / all;
    return all * (1 - pow(1 - share, tokens));
}

static bool bench_run_is_routed(enum op_kind kind)
{
    return kind == OP_MOE_MATMUL || kind == OP_MOE_GLU;
}

static double bench_run_weight_bytes(const struct model_plan *m, double rows)
{
    double bytes = 0;
    for (uint32_t i = 0; i < m->plan.ops_count; i++) {
        const struct op *o = &m->plan.ops[i];
        for (uint32_t k = 0; k < OP_WEIGHT_MAX; k++) {
            if (o->weight[k] == TENSOR_NONE)
                continue;
            const struct weight *w = &m->weights.items[o->weight[k]];
            double size = (double)w->tensor->size;
            if (o->kind == OP_EMBED)
                size = size / w->rows * rows;
            else if (bench_run_is_routed(o->kind) && w->mats > 1)
                size = size / w->mats * bench_run_experts(&m->hp, rows);
            bytes += size;
        }
    }
    return bytes;
}

/* K and V of one sequence of that length, f16. */
static double bench_run_kv_bytes(const struct model_plan *m, double tokens)
{
    double bytes = 0;
    for (uint32_t i = 0; i < m->layout.layers_count; i++) {
        const struct kv_layer *l = &m->layout.layers[i];
        uint32_t window = m->layout.window[l->group];
        double seen = window && tokens > window ? window : tokens;
        bytes += seen * l->heads * (l->dk + l->dv) * 2;
    }
    return bytes;
}

/* Of a token that needs an answer, or (prompt) of one that does not. */
static double bench_run_token_ops(const struct model_plan *m, bool is_prompt)
{
    double ops = 0;
    for (uint32_t i = 0; i < m->plan.ops_count; i++) {
        const struct op *o = &m->plan.ops[i];
        bool is_routed = bench_run_is_routed(o->kind);
        bool is_answer = m->plan.values[o->out[0]].rows == PLAN_ROWS_O;
        if (!is_routed && o->kind != OP_MATMUL && o->kind != OP_MATMUL_GLU)
            continue;
        for (uint32_t k = 0; k < OP_WEIGHT_MAX && !(is_prompt && is_answer); k++) {
            if (o->weight[k] == TENSOR_NONE)
                continue;
            const struct weight *w = &m->weights.items[o->weight[k]];
            double times = is_routed ? m->hp.n_expert_used : 1;
            if (w->kind == WEIGHT_KIND_MATRIX)
                ops += 2.0 * w->rows * w->cols * times;
        }
    }
    return ops;
}

/* Scores and values of every query head, over so many tokens. */
static double bench_run_attend_ops(const struct model_plan *m, double tokens)
{
    double ops = 0;
    for (uint32_t i = 0; i < m->plan.ops_count; i++) {
        const struct op_attn *a = &m->plan.ops[i].a.attn;
        if (m->plan.ops[i].kind == OP_ATTN)
            ops += 2.0 * a->heads * (a->dk + a->dv) *
                   (a->window && tokens > a->window ? a->window : tokens);
    }
    return ops;
}

double bench_run_prompt_ops(const struct model_plan *m) { return bench_run_token_ops(m, true); }

/* --- steps --- */

static bool bench_run_alloc(struct bench_steps *s, struct bench *b, struct err *e)
{
    struct arena *a = &b->arena;
    size_t rows = b->limits.rows_max, seqs = b->limits.seqs_max;
    *s = (struct bench_steps){.b = b};
    chrono_rng_init(&s->rng, BENCH_SEED);
    s->ids = ARENA_ARRAY(a, int32_t, rows);
    s->pos = ARENA_ARRAY(a, int32_t, rows);
    s->seq = ARENA_ARRAY(a, uint16_t, rows);
    s->out_rows = ARENA_ARRAY(a, uint32_t, rows);
    s->len = ARENA_ARRAY(a, uint32_t, seqs);
    s->sample = ARENA_ARRAY(a, struct sample_row, rows);
    for (uint32_t g = 0; g < b->plan->layout.groups_count; g++)
        s->pages[g] = ARENA_ARRAY(a, uint32_t, seqs * b->limits.pages_max[g]);
    return !a->is_full || err_set(e, ERR_MEMORY, "bench: no memory for the steps");
}

/* Every sequence has its own pages; in a group with a window they are used in turn, those behind
 * the window of the step's first row are not there. */
static void bench_run_put_pages(struct bench_steps *s, uint32_t seq, uint32_t first, uint32_t len)
{
    const struct bench *b = s->b;
    for (uint32_t g = 0; g < b->plan->layout.groups_count; g++) {
        uint32_t room = b->limits.pages_max[g], window = b->plan->layout.window[g];
        uint32_t own = b->budget.pages[g] / b->limits.seqs_max;
        uint32_t behind = window && first >= window ? (first - window + 1) / KV_PAGE_TOKENS : 0;
        uint32_t end = (len + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
        must(end <= room && end - behind <= own);
        for (uint32_t i = 0; i < room; i++)
            s->pages[g][(size_t)seq * room + i] =
                i < behind || i >= end ? KV_PAGE_NONE : seq * own + i % own;
    }
}

/* `rows` new tokens at depth for each of seqs sequences; one answer each. */
static bool bench_run_step(struct bench_steps *s, uint32_t seqs, uint32_t depth, uint32_t rows,
                           struct err *e)
{
    struct bench *b = s->b;
    struct step step = {.rows = seqs * rows, .seqs = seqs, .outs = seqs, .ids = s->ids,
                        .pos = s->pos, .seq = s->seq, .out_rows = s->out_rows,
                        .sample = s->sample, .kv = {.len = s->len}};
    struct step_out out;
    must(step.rows <= b->limits.rows_max && seqs <= b->limits.seqs_max);
    for (uint32_t q = 0; q < seqs; q++) {
        for (uint32_t i = 0; i < rows; i++) {
            uint32_t row = q * rows + i;
            s->ids[row] = (int32_t)chrono_rng_below(&s->rng, b->plan->hp.n_vocab);
            s->pos[row] = (int32_t)(depth + i);
            s->seq[row] = (uint16_t)q;
        }
        s->len[q] = depth + rows;
        s->out_rows[q] = (q + 1) * rows - 1;
        s->sample[q] = (struct sample_row){.typical_p = 1, .top_p = 1};
        bench_run_put_pages(s, q, depth, depth + rows);
    }
    for (uint32_t g = 0; g < b->plan->layout.groups_count; g++) {
        step.kv.pages[g] = s->pages[g];
        step.kv.pages_max[g] = b->limits.pages_max[g];
    }
    return b->plan->backend->submit(b->device, b->prepared, &step, e) &&
           b->plan->backend->wait(b->device, b->prepared, &out, e);
}

/* All pages get numbers between -1 and 1: reading pages that were never written would be faster
 * than memory, and computing a deep prompt takes minutes. */
static bool bench_run_fill_pages(struct bench_steps *s, uint32_t depth, uint32_t seqs,
                                 struct err *e)
{
    struct bench *b = s->b;
    uint16_t *page = NULL;
    bool ok = true;
    for (uint32_t g = 0; ok && depth && g < b->plan->layout.groups_count; g++) {
        size_t count = b->plan->layout.page_size[g] / sizeof *page;
        uint32_t own = b->budget.pages[g] / b->limits.seqs_max;
        uint32_t used = (depth + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
        page = mem_new_array(&b->mem, "bench", count, sizeof *page, e);
        if (!page)
            return false;
        for (size_t i = 0; i < count; i++)
            page[i] = base_f32_to_f16((float)(2 * chrono_rng_double(&s->rng) - 1));
        for (uint32_t q = 0; q < seqs; q++)
            for (uint32_t i = 0; ok && i < used && i < own; i++)
                ok = b->plan->backend->kv_set(b->device,
                                              (struct kv_ref){false, g, q * own + i}, page, e);
        mem_free(&b->mem, page);
    }
    return ok;
}

/* --- tests --- */

static bool bench_run_prompt(struct bench_steps *s, const struct bench_test *t, struct err *e)
{
    for (uint32_t done = 0, rows; done < t->tokens; done += rows) {
        rows = (uint32_t)base_min(t->tokens - done, s->b->budget.batch);
        if (!bench_run_step(s, 1, t->depth + done, rows, e))
            return false;
    }
    return true;
}

static bool bench_run_generate(struct bench_steps *s, const struct bench_test *t, struct err *e)
{
    for (uint32_t i = 0; i < t->tokens; i++)
        if (!bench_run_step(s, t->batch, t->depth + i, 1, e))
            return false;
    return true;
}

static void bench_run_statistics(struct bench_test *t)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < t->reps; i++)
        sum += t->rates[i];
    t->mean = sum / t->reps;
    for (uint32_t i = 0; i < t->reps; i++)
        squares += (t->rates[i] - t->mean) * (t->rates[i] - t->mean);
    t->sd = t->reps > 1 ? sqrt(squares / (t->reps - 1)) : 0;
}

/* --- progress --- */

struct bench_news {
    bool on_terminal;
    int64_t last_ms;
    uint32_t done, total; /* runs, the unmeasured ones included */
};

static void bench_run_tell(struct bench_news *n, const struct bench_test *t)
{
    int64_t now = chrono_ms(&chrono_real);
    n->done++;
    if (n->on_terminal) {
        int filled = (int)((uint64_t)n->done * BENCH_BAR / n->total);
        fprintf(stderr, "\r[%-*.*s] %s%u x %u @ %u   ", BENCH_BAR, filled,
                "########################", t->is_prompt ? "pp" : "tg", t->tokens, t->batch,
                t->depth);
    } else if (now - n->last_ms >= BENCH_NEWS_MS) {
        fprintf(stderr, "bench: %u of %u runs\n", n->done, n->total);
        n->last_ms = now;
    }
}

static bool bench_run_test(struct bench *b, struct bench_steps *s, struct bench_test *t,
                           struct bench_news *news, struct err *e)
{
    uint32_t rows = t->is_prompt ? t->tokens : t->batch * t->tokens;
    double middle = t->depth + (t->tokens + 1) / 2.0;
    if (!bench_run_fill_pages(s, t->depth, t->batch, e))
        return false;
    for (uint32_t rep = 0; rep <= b->reps; rep++) {
        int64_t begin = chrono_ns(&chrono_real);
        bench_run_tell(news, t);
        if (!(t->is_prompt ? bench_run_prompt(s, t, e) : bench_run_generate(s, t, e)))
            return false;
        double seconds = (double)(chrono_ns(&chrono_real) - begin) * 1e-9;
        if (rep) /* the first one warms up */
            t->rates[t->reps++] = rows / seconds;
    }
    bench_run_statistics(t);
    t->token_ops = bench_run_token_ops(b->plan, t->is_prompt);
    t->attend_ops = bench_run_attend_ops(b->plan, middle);
    if (!t->is_prompt)
        t->step_bytes = bench_run_weight_bytes(b->plan, t->batch) +
                        t->batch * bench_run_kv_bytes(b->plan, middle);
    return true;
}

bool bench_run_all(struct bench *b, struct err *e)
{
    struct bench_steps s;
    struct bench_news news = {.on_terminal = cmd_is_terminal(STDERR_FILENO),
                              .last_ms = chrono_ms(&chrono_real),
                              .total = b->tests_count * (b->reps + 1)};
    uint64_t size = b->plan->weights.bytes;
    size = size < BENCH_PROBE_MIN ? BENCH_PROBE_MIN : size;
    size = size > BENCH_PROBE_MAX ? BENCH_PROBE_MAX : size;
    bool has_probe = b->info.memory_free == 0; /* it reads RAM, not a GPU's memory */
    bool ok = bench_run_alloc(&s, b, e) &&
              (!has_probe || bench_probe_read(&b->before, size, b->info.threads, e));
    for (uint32_t i = 0; ok && i < b->tests_count; i++)
        ok = bench_run_test(b, &s, &b->tests[i], &news, e);
    ok = ok && (!has_probe || bench_probe_read(&b->after, size, b->info.threads, e));
    if (news.on_terminal)
        fprintf(stderr, "\r%*s\r", BENCH_BAR + 40, "");
    return ok;
}

/* --- opening --- */

static void bench_run_add_test(struct bench *b, bool is_prompt, uint32_t tokens, uint32_t depth,
                               uint32_t batch)
{
    if (tokens == 0)
        return;
    must(b->tests_count < BENCH_TESTS_MAX);
    b->tests[b->tests_count++] = (struct bench_test){
        .is_prompt = is_prompt, .tokens = tokens, .depth = depth, .batch = batch};
}

static uint32_t bench_run_max(const uint32_t *list, uint32_t count)
{
    uint32_t max = 0;
    for (uint32_t i = 0; i < count; i++)
        max = list[i] > max ? list[i] : max;
    return max;
}

static enum act bench_run_act(const struct config *c)
{
    if (config_is(c, "engine.activations", "float"))
        return ACT_F32;
    if (config_is(c, "engine.activations", "int16"))
        return ACT_INT16;
    return config_is(c, "engine.activations", "int8") ? ACT_INT8 : ACT_AUTO;
}

/* The pool is shared in serving; here every sequence is as long as the test. */
static bool bench_run_check_pool(const struct bench *b, uint32_t context, struct err *e)
{
    const struct kv_layout *l = &b->plan->layout;
    for (uint32_t g = 0; g < l->groups_count; g++) {
        uint32_t own = b->budget.pages[g] / b->budget.slots;
        uint32_t need = budget_pages(l, g, context, b->budget.rows_max);
        if (own < need)
            return err_set(e, ERR_MEMORY, "bench: %u sequences of %u tokens need %u pages each, "
                           "there is memory for %u", b->budget.slots, context, need, own);
    }
    return true;
}

static bool bench_run_budget(struct bench *b, struct err *e)
{
    struct machine m;
    uint32_t tokens = b->prompt > b->generated ? b->prompt : b->generated;
    uint32_t context = bench_run_max(b->depths, b->depths_count) + (uint32_t)base_max(tokens, 2);
    machine_read(&m);
    memcpy(b->machine, m.model, sizeof b->machine);
    if (context > b->plan->hp.n_ctx)
        return err_set(e, ERR_CONFIG, "bench: depth and test need %u tokens of context, the model "
                       "was trained with %u", context, b->plan->hp.n_ctx);
    b->plan->backend->info(b->device, &b->info);
    uint64_t own = b->info.memory_free;
    if (own)
        snprintf(b->machine, sizeof b->machine, "%s", b->info.name);
    struct budget_in in = {.available = own ? own : machine_ram_free(&m), .is_gpu = own != 0,
                           .n_ctx = b->plan->hp.n_ctx,
                           .context = context, .layout = &b->plan->layout,
                           .slots = bench_run_max(b->batches, b->batches_count)};
    if (!budget_make(&in, &b->budget, e))
        return false;
    b->limits = (struct step_limits){.rows_max = b->budget.rows_max, .seqs_max = b->budget.slots,
                                     .outs_max = b->budget.slots};
    memcpy(b->limits.pages_max, b->budget.pages_max, sizeof b->limits.pages_max);
    return bench_run_check_pool(b, context, e);
}

static bool bench_run_weights(struct bench *b, struct err *e)
{
    int64_t begin = chrono_ns(&chrono_real);
    bool ok = weights_load(&b->plan->weights, b->plan->backend, b->device, NULL, e);
    b->weights_ns = chrono_ns(&chrono_real) - begin;
    return ok;
}

static bool bench_run_load(struct bench *b, struct err *e)
{
    const struct config *c = b->c->config;
    struct device_options o = {.act = bench_run_act(c), .level = b->level[0] ? b->level : NULL};
    int64_t begin = chrono_ns(&chrono_real);
    if (!config_is(c, "engine.threads", "auto"))
        o.threads = (uint32_t)config_number(c, "engine.threads");
    if (!model_plan_open(&b->plan, b->model.path.p, c, &b->arena, e))
        return false;
    const struct backend *k = b->plan->backend;
    if (o.level && !str_eq_z(str_of(k->name), "cpu"))
        return err_set(e, ERR_USAGE, "bench: -isa: only with -backend cpu, this is %s", k->name);
    bool ok = k->open(&b->device, &o, e) && bench_run_weights(b, e) && bench_run_budget(b, e) &&
              k->kv_init(b->device, &b->plan->layout, b->budget.pages, 0, e) &&
              k->prepare(b->device, &b->plan->plan, b->plan->weights.items, &b->limits,
                         &b->prepared, e);
    if (ok)
        k->info(b->device, &b->info);
    b->load_ns = chrono_ns(&chrono_real) - begin;
    return ok;
}

bool bench_run_open(struct bench *b, struct err *e)
{
    arena_init(&b->arena, BENCH_ARENA_MAX);
    mem_init(&b->mem, SIZE_MAX);
    if (b->prompt == 0 && b->generated == 0)
        return err_set(e, ERR_USAGE, "bench: nothing to do: -p and -n are both 0");
    if (!bench_run_load(b, e))
        return false;
    for (uint32_t d = 0; d < b->depths_count; d++) {
        bench_run_add_test(b, true, b->prompt, b->depths[d], 1);
        for (uint32_t i = 0; i < b->batches_count; i++)
            bench_run_add_test(b, false, b->generated, b->depths[d], b->batches[i]);
    }
    return true;
}

void bench_run_close(struct bench *b)
{
    if (b->device)
        b->plan->backend->close(b->device);
    model_plan_close(b->plan);
    mem_deinit(&b->mem);
    arena_deinit(&b->arena);
}
