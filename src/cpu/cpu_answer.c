#include "cpu/cpu_device.h"

/* Output rows are independent. A lane is the memory for one row at a time; lane i answers rows i,
 * i + lanes, ... sample and top_k of one row run together, since both read the adjusted logits. */

#define LANES_MAX 8u

struct answer_job {
    struct prepared *p;
    struct cpu_view logits;
    bool has_sample, has_top_k;
    uint32_t lanes;
};

/* The row's part of step.adjust: rows ascend there. */
static void find_adjust(const struct step *s, uint32_t row, struct sample_args *a)
{
    uint32_t low = 0, high = s->adjust_count;
    if (high == 0)
        return;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (s->adjust[mid].row < row)
            low = mid + 1;
        else
            high = mid;
    }
    a->adjust = s->adjust + low;
    while (low + a->adjust_count < s->adjust_count && s->adjust[low + a->adjust_count].row == row)
        a->adjust_count++;
}

static void clear_list(int32_t *ids, float *val, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++) {
        ids[i] = -1;
        val[i] = 0.0f;
    }
}

static void answer_row(const struct answer_job *j, uint32_t row, uint8_t *scratch)
{
    struct prepared *p = j->p;
    const struct step *s = p->step;
    uint32_t vocab = p->plan->vocab, top = p->limits.top_max;
    struct cpu_answer *out = &p->answer;
    struct sample_args a = {.k = &p->d->k,
                            .logits = j->logits.p + row * j->logits.row,
                            .work = (float *)(void *)scratch,
                            .row = &s->sample[row],
                            .scratch = scratch + base_align((size_t)vocab * 4, 64),
                            .vocab = vocab,
                            .id = out->ids + row,
                            .logprob = out->logprob + row,
                            .top_ids = out->top_ids + (size_t)row * top,
                            .top_val = out->top_val + (size_t)row * top,
                            .raw_ids = out->raw_ids + (size_t)row * top,
                            .raw_val = out->raw_val + (size_t)row * top,
                            .lse = out->lse + (size_t)row * 2};
    must(a.row->k <= top && a.row->raw_k <= top);
    if (s->mask)
        a.mask = s->mask + (size_t)row * ((vocab + 31) / 32);
    find_adjust(s, row, &a);
    p->d->k.logits_adjust(&a);
    if (j->has_sample)
        p->d->k.sample(&a);
    if (!j->has_top_k)
        return;
    p->d->k.top_k(&a);
    clear_list(a.top_ids, a.top_val, a.row->k, top);
    clear_list(a.raw_ids, a.raw_val, a.row->raw_k, top);
}

static void answer_lane(void *ctx, uint32_t chunk, uint32_t worker)
{
    const struct answer_job *j = ctx;
    (void)worker;
    uint8_t *scratch = j->p->answer.scratch + chunk * j->p->answer.scratch_size;
    for (uint32_t row = chunk; row < j->p->step->outs; row += j->lanes)
        answer_row(j, row, scratch);
}

uint32_t cpu_answer_run(struct prepared *p, uint32_t op_index)
{
    const struct op *o = &p->plan->ops[op_index];
    struct answer_job j = {.p = p, .logits = cpu_run_view(p, o->in[0])};
    uint32_t count = 0;
    while (op_index + count < p->plan->ops_count && o[count].in[0].value == o->in[0].value &&
           (o[count].kind == OP_SAMPLE || o[count].kind == OP_TOP_K)) {
        j.has_sample |= o[count].kind == OP_SAMPLE;
        j.has_top_k |= o[count].kind == OP_TOP_K;
        count++;
    }
    j.lanes = (uint32_t)base_min(p->answer.lanes, p->step->outs);
    if (j.lanes == 0)
        return count;
    struct thread_job job = {answer_lane, &j, j.lanes};
    cpu_run_region(p, &job);
    return count;
}

void cpu_answer_out(const struct prepared *p, struct step_out *out)
{
    const struct cpu_answer *a = &p->answer;
    *out = (struct step_out){.ids = a->ids,
                             .logprob = a->logprob,
                             .top_ids = a->top_ids,
                             .top_val = a->top_val,
                             .raw_ids = a->raw_ids,
                             .raw_val = a->raw_val,
                             .lse = a->lse};
    if (p->plan->pooled != TENSOR_NONE)
        out->pooled = cpu_run_out(p, p->plan->pooled);
    for (uint32_t i = 0; i < p->plan->leave_count; i++)
        out->leave[i] = cpu_run_out(p, p->plan->leave[i]);
}

static bool has_kind(const struct plan *plan, enum op_kind kind)
{
    for (uint32_t i = 0; i < plan->ops_count; i++)
        if (plan->ops[i].kind == kind)
            return true;
    return false;
}

bool cpu_answer_prepare(struct prepared *p, struct err *e)
{
    struct cpu_answer *a = &p->answer;
    struct mem *m = &p->d->mem;
    size_t outs = p->limits.outs_max, list = outs * p->limits.top_max, vocab = p->plan->vocab;
    bool has_sample = has_kind(p->plan, OP_SAMPLE), has_top_k = has_kind(p->plan, OP_TOP_K);
    if (!has_sample && !has_top_k)
        return true;
    a->lanes = (uint32_t)base_min(LANES_MAX, base_min(p->d->workers, outs));
    a->scratch_size = base_align(base_align(vocab * 4, 64) +
                                     cpu_kernels_sample_scratch((uint32_t)vocab), 64);
    a->scratch = mem_new_array(m, "scratch", a->lanes, a->scratch_size, e);
    if (!a->scratch)
        return false;
    if (has_sample) {
        a->ids = mem_new_array(m, "scratch", outs, 4, e);
        a->logprob = mem_new_array(m, "scratch", outs, 4, e);
        if (!a->ids || !a->logprob)
            return false;
    }
    if (!has_top_k)
        return true;
    a->top_ids = mem_new_array(m, "scratch", list, 4, e);
    a->raw_ids = mem_new_array(m, "scratch", list, 4, e);
    a->top_val = mem_new_array(m, "scratch", list, 4, e);
    a->raw_val = mem_new_array(m, "scratch", list, 4, e);
    a->lse = mem_new_array(m, "scratch", outs * 2, 4, e);
    return a->top_ids && a->raw_ids && a->top_val && a->raw_val && a->lse;
}
