#include "sim_backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sim_slot { int32_t id, pos; };

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

uint64_t sim_adjust_hash(int32_t id, float factor, float add)
{
    return mix(mix(mix(7, (uint64_t)id), base_bits_of(factor)), base_bits_of(add));
}

static int32_t draw(const struct device *d, uint64_t h, const struct sim_question *q)
{
    h = mix(mix(mix(h, q->adjust), q->seed), q->position);
    for (uint64_t n = 0;; n++) {
        uint64_t r = mix(h, n);
        if (r % d->eos_rate != 0)
            return (int32_t)((r >> 8) % (d->vocab - 1)); /* eos is the last id */
        if (!q->eos_banned)
            return d->eos;
    }
}

static uint32_t first_seen(const struct device *d, uint32_t g, uint32_t pos)
{
    uint32_t window = d->layout.window[g];
    return window && pos + 1 > window ? pos + 1 - window : 0;
}

int32_t sim_answer(const struct device *d, const struct sim_question *q)
{
    uint64_t h = 1;
    for (uint32_t g = 0; g < d->layout.groups_count; g++)
        for (uint32_t p = first_seen(d, g, q->count - 1); p < q->count; p++)
            h = mix(h, (uint64_t)q->tokens[p]);
    return draw(d, h, q);
}

/* --- the device ---------------------------------------------------------------------------- */

void sim_device_init(struct device *d)
{
    for (uint32_t g = 0; g < d->layout.groups_count; g++) {
        d->slots[g] = malloc((size_t)d->pages[g] * KV_PAGE_TOKENS * sizeof *d->slots[g]);
        memset(d->slots[g], 0xff, (size_t)d->pages[g] * KV_PAGE_TOKENS * sizeof *d->slots[g]);
    }
    size_t outs = d->limits.outs_max, top = d->limits.top_max;
    d->out.ids = calloc(outs, sizeof(int32_t));
    d->out.logprob = calloc(outs, sizeof(float));
    d->out.raw_ids = calloc(outs * top, sizeof(int32_t));
    d->out.raw_val = calloc(outs * top, sizeof(float));
    d->out.lse = calloc(outs * 2, sizeof(float));
}

void sim_device_deinit(struct device *d)
{
    for (uint32_t g = 0; g < d->layout.groups_count; g++)
        free(d->slots[g]);
    free((void *)d->out.ids);
    free((void *)d->out.logprob);
    free((void *)d->out.raw_ids);
    free((void *)d->out.raw_val);
    free((void *)d->out.lse);
}

static void check(struct device *d, bool ok, const char *what, int64_t a, int64_t b)
{
    if (!ok)
        d->on_broken(what, a, b);
}

static struct sim_slot *slot_of(struct device *d, const struct step *s, uint32_t g, uint32_t seq,
                                uint32_t pos)
{
    uint32_t index = pos / KV_PAGE_TOKENS;
    check(d, index < s->kv.pages_max[g], "page index past the table", index, s->kv.pages_max[g]);
    uint32_t page = s->kv.pages[g][(size_t)seq * s->kv.pages_max[g] + index];
    check(d, page < d->pages[g], "no page for position", pos, page);
    return &d->slots[g][(size_t)page * KV_PAGE_TOKENS + pos % KV_PAGE_TOKENS];
}

static void run_copies(struct device *d, const struct step *s)
{
    for (uint32_t i = 0; i < s->copies_count; i++) {
        const struct kv_copy *c = &s->copies[i];
        check(d, c->from < d->pages[c->group] && c->to < d->pages[c->group] && c->from != c->to,
              "copy of pages that are none", c->from, c->to);
        memcpy(&d->slots[c->group][(size_t)c->to * KV_PAGE_TOKENS],
               &d->slots[c->group][(size_t)c->from * KV_PAGE_TOKENS],
               KV_PAGE_TOKENS * sizeof(struct sim_slot));
    }
}

/* As step.h promises: adjacent rows, rising positions, len behind the last row. */
static void check_rows(struct device *d, const struct step *s)
{
    check(d, s->rows > 0 && s->rows <= d->limits.rows_max, "rows of a step", s->rows,
          d->limits.rows_max);
    check(d, s->seqs > 0 && s->seqs <= d->limits.seqs_max, "sequences of a step", s->seqs,
          d->limits.seqs_max);
    check(d, s->outs <= d->limits.outs_max, "outputs of a step", s->outs, d->limits.outs_max);
    for (uint32_t i = 0; i < s->rows; i++) {
        bool is_first = i == 0 || s->seq[i] != s->seq[i - 1];
        check(d, s->ids[i] >= 0 && (uint32_t)s->ids[i] < d->vocab, "token of a row", s->ids[i], i);
        check(d, is_first ? s->seq[i] == (i ? s->seq[i - 1] + 1 : 0)
                          : s->pos[i] == s->pos[i - 1] + 1,
              "row order", i, s->pos[i]);
        bool is_last = i + 1 == s->rows || s->seq[i + 1] != s->seq[i];
        uint32_t len = s->kv.len[s->seq[i]];
        check(d, !is_last || len == (uint32_t)s->pos[i] + 1, "length behind row", i, len);
    }
    check(d, s->seq[s->rows - 1] + 1u == s->seqs, "last sequence", s->seq[s->rows - 1], s->seqs);
}

static uint64_t see(struct device *d, const struct step *s, uint32_t row)
{
    uint64_t h = 1;
    uint32_t pos = (uint32_t)s->pos[row];
    for (uint32_t g = 0; g < d->layout.groups_count; g++)
        for (uint32_t p = first_seen(d, g, pos); p <= pos; p++) {
            const struct sim_slot *slot = slot_of(d, s, g, s->seq[row], p);
            check(d, slot->pos == (int32_t)p, "slot holds another position", p, slot->pos);
            h = mix(h, (uint64_t)slot->id);
        }
    return h;
}

static void answer(struct device *d, const struct step *s, uint32_t out)
{
    struct sim_question q = {.seed = s->sample[out].seed, .position = s->sample[out].position};
    uint32_t top = d->limits.top_max;
    for (uint32_t i = 0; i < s->adjust_count; i++) {
        const struct logit_adjust *a = &s->adjust[i];
        if (a->row != out)
            continue;
        q.adjust += sim_adjust_hash(a->id, a->factor, a->add);
        q.eos_banned = q.eos_banned || (a->id == d->eos && isinf(a->add));
    }
    int32_t id = draw(d, see(d, s, s->out_rows[out]), &q);
    ((int32_t *)d->out.ids)[out] = id;
    ((float *)d->out.logprob)[out] = -1;
    ((float *)d->out.lse)[2 * out] = 2;
    for (uint32_t k = 0; k < top; k++) {
        bool is_there = k < s->sample[out].raw_k;
        int32_t other = (int32_t)(((uint32_t)id + k) % d->vocab);
        ((int32_t *)d->out.raw_ids)[out * top + k] = is_there ? other : -1;
        ((float *)d->out.raw_val)[out * top + k] = is_there ? 1 - (float)k : 0;
    }
}

static bool sim_submit(struct device *d, struct prepared *p, const struct step *s, struct err *e)
{
    (void)p;
    if (d->is_lost)
        return err_set(e, ERR_DEVICE, "sim: the device is lost");
    d->steps++;
    d->rows += s->rows;
    if (d->clock)
        d->clock->ns += d->step_ns + s->rows * d->row_ns;
    check_rows(d, s);
    run_copies(d, s);
    for (uint32_t i = 0; i < s->rows; i++)
        for (uint32_t g = 0; g < d->layout.groups_count; g++)
            *slot_of(d, s, g, s->seq[i], (uint32_t)s->pos[i]) =
                (struct sim_slot){s->ids[i], s->pos[i]};
    for (uint32_t i = 0; i < s->outs; i++) {
        check(d, i == 0 || s->out_rows[i] > s->out_rows[i - 1], "output rows rise", i,
              s->out_rows[i]);
        answer(d, s, i);
    }
    return true;
}

static bool sim_wait(struct device *d, struct prepared *p, struct step_out *out, struct err *e)
{
    (void)p, (void)e;
    *out = d->out;
    return true;
}

/* A page as bytes: what it holds, position by position. */
static void copy_time(struct device *d)
{
    if (d->clock)
        d->clock->ns += d->page_ns;
    d->pages_ns += d->page_ns;
}

static bool sim_kv_get(struct device *d, struct kv_ref r, void *dst, struct err *e)
{
    (void)e;
    check(d, r.index < d->pages[r.group], "a page that is not there is copied", r.group, r.index);
    memcpy(dst, d->slots[r.group] + (size_t)r.index * KV_PAGE_TOKENS, SIM_PAGE_SIZE);
    copy_time(d);
    return true;
}

static bool sim_kv_set(struct device *d, struct kv_ref r, const void *src, struct err *e)
{
    (void)e;
    check(d, r.index < d->pages[r.group], "a page that is not there is written", r.group, r.index);
    memcpy(d->slots[r.group] + (size_t)r.index * KV_PAGE_TOKENS, src, SIM_PAGE_SIZE);
    copy_time(d);
    return true;
}

const struct backend sim_backend = {.name = "sim", .kv_get = sim_kv_get, .kv_set = sim_kv_set,
                                    .submit = sim_submit, .wait = sim_wait};
