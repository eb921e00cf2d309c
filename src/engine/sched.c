#include "engine/sched.h"

#include <string.h>

#include "engine/sched_look.h"

#define SCHED_TOLD_TOKENS 256u /* a prompt of so many is told of: its first token is not near */
#define SCHED_PROGRESS_MS 250
#define SCHED_EVENTS_OWN  (API_NOTES_MAX * 3 + 8) /* of one batch beside what a sequence says */
#define SCHED_EVENTS_MAX  ((size_t)1 << 20)

static int64_t sched_ns(const struct sched *s) { return chrono_ns(&s->o.clock); }

/* --- init ---------------------------------------------------------------------------------- */

static bool sched_init_set(struct sched *s, struct err *e)
{
    struct sched_set *t = &s->set;
    const struct step_limits *m = &s->o.limits;
    const struct { void **p; size_t count, size; } arrays[] = {
        {(void **)&t->ids, m->rows_max, sizeof *t->ids},
        {(void **)&t->pos, m->rows_max, sizeof *t->pos},
        {(void **)&t->seq, m->rows_max, sizeof *t->seq},
        {(void **)&t->out_rows, m->outs_max, sizeof *t->out_rows},
        {(void **)&t->len, m->seqs_max, sizeof *t->len},
        {(void **)&t->sample, m->outs_max, sizeof *t->sample},
        {(void **)&t->adjust, SCHED_ADJUST_MAX, sizeof *t->adjust},
        {(void **)&t->outs, m->outs_max, sizeof *t->outs},
        {(void **)&s->slots, m->seqs_max, sizeof *s->slots},
        {(void **)&s->runners, m->seqs_max, sizeof *s->runners},
        {(void **)&s->victims, m->seqs_max, sizeof *s->victims},
        {(void **)&s->victim_seqs, m->seqs_max, sizeof *s->victim_seqs},
        {(void **)&s->rows, m->seqs_max, sizeof *s->rows},
        {(void **)&s->admitted, m->seqs_max, sizeof *s->admitted},
        {(void **)&s->shares, 1, sizeof *s->shares},
        {(void **)&s->slot_pages, (size_t)m->seqs_max * KV_GROUPS_MAX, sizeof *s->slot_pages},
    };
    for (size_t i = 0; i < countof(arrays); i++) {
        *arrays[i].p = mem_new_array(s->o.mem, "step", arrays[i].count, arrays[i].size, e);
        if (!*arrays[i].p)
            return false;
    }
    return true;
}

static bool sched_init_tier(struct sched *s, struct err *e)
{
    struct sched_tier_options t = {
        .tier = s->o.trie ? s->o.tier : NULL, .trie = s->o.trie, .pool = s->o.pool,
        .layout = s->o.layout, .backend = s->o.backend, .device = s->o.device, .mem = s->o.mem,
        .clock = s->o.clock};
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++)
        t.pages_max = (uint32_t)base_max(t.pages_max, s->o.limits.pages_max[g]);
    return sched_tier_init(&s->tier, &t, e);
}

static void sched_init_pins(struct sched *s)
{
    struct sched_pins_options p = {.trie = s->o.trie, .permille = s->o.pin_permille};
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++)
        p.whole[g] = sched_need(s, g, s->o.limits.pages_max[g] * KV_PAGE_TOKENS);
    sched_pins_init(&s->pins, &p);
}

bool sched_init(struct sched *s, const struct sched_options *o, struct err *e)
{
    *s = (struct sched){.o = *o};
    list_init(&s->waiting);
    list_init(&s->jobs);
    s->pace = (struct sched_pace){.target_ms = o->step_target_ms, .batch = o->limits.rows_max};
    buf_init(&s->events, SCHED_EVENTS_MAX * sizeof(struct api_event));
    if (!buf_reserve(&s->events, SCHED_EVENTS_OWN * sizeof(struct api_event)))
        return err_set(e, ERR_MEMORY, "model: no memory for events");
    if (!sched_init_set(s, e))
        return false;
    for (uint32_t g = 0; g < o->layout->groups_count; g++) {
        size_t count = (size_t)o->limits.seqs_max * o->limits.pages_max[g];
        s->set.pages[g] = mem_new_array(o->mem, "step", count, sizeof(uint32_t), e);
        uint32_t *own = mem_new_array(o->mem, "step", count, sizeof(uint32_t), e);
        if (!s->set.pages[g] || !own)
            return false;
        for (uint32_t i = 0; i < o->limits.seqs_max; i++)
            s->slot_pages[i * KV_GROUPS_MAX + g].pages = own + (size_t)i * o->limits.pages_max[g];
    }
    sched_init_pins(s);
    return sched_init_tier(s, e);
}

/* --- emitting ------------------------------------------------------------------------------ */

static struct api_event *sched_event(struct sched *s, enum api_event_kind kind)
{
    struct api_event e;
    memset(&e, 0, sizeof e);
    e.kind = kind;
    must(buf_add_bytes(&s->events, &e, sizeof e)); /* reserved */
    return (struct api_event *)(void *)(s->events.p + s->events.len - sizeof e);
}

/* What was gathered in s->events, and begins anew. q: its ids that the endpoint does not know yet
 * go along; NULL: the batch is about the whole request. */
static void sched_emit(struct sched *s, struct job *j, struct seq *q)
{
    struct api_batch b = {.request_id = j->rq.id, .choice = q ? q->choice : 0,
                          .events = (const struct api_event *)(void *)s->events.p,
                          .events_count = (uint32_t)(s->events.len / sizeof(struct api_event))};
    if (q && j->rq.kind != API_KIND_PREFILL) {
        b.ids_count = seq_unsent_count(q);
        b.ids = b.ids_count ? seq_ids(q) + q->prompt_count + q->sent_count : NULL;
        q->sent_count += b.ids_count;
    }
    if (b.events_count == 0)
        b.events = NULL;
    j->credit -= (int64_t)api_batch_weight(&b);
    s->o.sink.on_batch(s->o.sink.ctx, &b);
    buf_clear(&s->events);
}

static void sched_notes(struct sched *s, const struct api_note *notes, uint32_t count)
{
    for (uint32_t i = 0; i < count && i < API_NOTES_MAX; i++)
        sched_event(s, API_EVENT_NOTE)->note = notes[i];
}

static uint32_t sched_prompt_tokens(const struct job *j)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < j->prompts_count; i++)
        sum += j->prompts[i].count;
    return (uint32_t)base_min(sum, UINT32_MAX);
}

/* Why its prompt was not read from the cache, if it could have been. */
static void sched_tell_miss(struct sched *s, struct job *j)
{
    struct api_note note;
    if (!s->o.misses)
        return;
    if (miss_heads_judge(s->o.misses, j, j->cached_tokens, !s->o.trie, &note))
        sched_notes(s, &note, 1);
    miss_heads_put(s->o.misses, j);
}

static void sched_start(struct sched *s, struct job *j)
{
    if (j->is_started)
        return;
    j->is_started = true;
    j->first_ns = sched_ns(s);
    sched_notes(s, j->rq.notes, j->rq.notes_count);
    sched_notes(s, j->notes, j->notes_count);
    sched_notes(s, j->constraint.notes, j->constraint.notes_count);
    if (j->rq.kind == API_KIND_PREFILL)
        return;
    sched_tell_miss(s, j);
    sched_event(s, API_EVENT_STARTED)->started = (struct api_started){
        .model = s->o.model, .model_hash = s->o.model_hash,
        .prompt_tokens = sched_prompt_tokens(j), .cached_tokens = j->cached_tokens};
}

void sched_park(struct sched *s, struct seq *q, bool on)
{
    struct job *j = q->job;
    if (q->is_parked == on)
        return;
    q->is_parked = on;
    j->parked_count = on ? j->parked_count + 1 : j->parked_count - 1;
    if (j->parked_count != on)
        return;
    sched_event(s, API_EVENT_PARKED)->parked = (struct api_parked){on};
    sched_emit(s, j, NULL);
}

/* The prompt in front of each choice's first token, if asked for. */
static void sched_echo(struct sched *s, const struct seq *q)
{
    const struct api_request *rq = &q->job->rq;
    if (rq->echo && rq->inputs_count && seq_reply_count(q) == 1 && !q->fed_count)
        sched_event(s, API_EVENT_CONTENT)->text.text = rq->inputs[q->choice / rq->n].text;
}

static void sched_usage(const struct sched *s, const struct job *j, struct api_usage *u)
{
    int64_t now = sched_ns(s), first = j->first_ns ? j->first_ns : now;
    *u = (struct api_usage){
        .prompt_tokens = sched_prompt_tokens(j), .cached_tokens = j->cached_tokens,
        .output_tokens = j->output_tokens, .reasoning_tokens = j->reasoning_tokens,
        .preemptions = j->preemptions,
        .queue_ns = (uint64_t)(j->admitted_ns - j->arrived_ns),
        .prefill_ns = (uint64_t)(first - j->admitted_ns),
        .decode_ns = (uint64_t)(now - first)};
}

/* --- ends ---------------------------------------------------------------------------------- */

static void sched_free(struct sched *s, struct job *j)
{
    sched_share_leave(s->shares, j->share);
    sched_pins_leave(&s->pins, j);
    for (uint32_t c = 0; c < j->choices; c++) {
        if (s->blocked == &j->seqs[c])
            s->blocked = NULL;
        if (!list_is_empty(&j->seqs[c].link))
            s->stats.waiting--;
        sched_tier_forget(&s->tier, &j->seqs[c]);
        sched_release(s, &j->seqs[c]);
        seq_deinit(&j->seqs[c]);
    }
    for (uint32_t i = 0; i < s->set.outs_count; i++)
        if (s->set.outs[i] && s->set.outs[i]->job == j)
            s->set.outs[i] = NULL;
    prompt_job_free(j);
}

static void sched_refuse(struct sched *s, struct job *j, const struct api_error *why)
{
    buf_clear(&s->events);
    sched_event(s, API_EVENT_ERROR)->error = *why;
    sched_emit(s, j, NULL);
    sched_free(s, j);
}

static void sched_fail(struct sched *s, struct job *j, const struct err *why)
{
    sched_refuse(s, j, &(struct api_error){.err = *why});
}

static uint32_t sched_keep_last(struct sched *s, struct seq *q)
{
    uint32_t node = sched_keep(s, q, true);
    if (node != KV_NODE_NONE)
        kv_trie_weigh(s->o.trie, node,
                      sched_policy_weight(q->done, q->job->rq.session.len > 0));
    return node;
}

/* Adds USAGE and DONE behind what the last step said; frees the job with its last choice. */
static void sched_done(struct sched *s, struct seq *q)
{
    struct job *j = q->job;
    struct api_usage *usage;
    uint32_t node = q->slot == SEQ_SLOT_NONE ? KV_NODE_NONE : sched_keep_last(s, q);
    j->choices_left--;
    j->output_tokens += q->used_count;
    j->reasoning_tokens += q->think_count;
    j->preemptions += q->preempted_count;
    if (j->choices_left == 0) {
        usage = &sched_event(s, API_EVENT_USAGE)->usage;
        sched_usage(s, j, usage);
        if (j->rq.kind == API_KIND_PREFILL)
            sched_look_name(s, node, &usage->prefix);
    }
    sched_event(s, API_EVENT_DONE)->done = (struct api_finish){q->done, q->stop};
    sched_emit(s, j, q);
    if (j->choices_left == 0)
        sched_free(s, j);
    else
        sched_release(s, q);
}

/* --- class idle ---------------------------------------------------------------------------- */

static bool sched_is_idle(const struct job *j) { return j->rq.priority == API_PRIORITY_IDLE; }

/* Jobs are all of class idle, or none is. */
static bool sched_has_idle(const struct sched *s)
{
    return !list_is_empty(&s->jobs) && sched_is_idle(list_item(s->jobs.next, struct job, link));
}

static void sched_give_way(struct sched *s, struct job *j)
{
    struct err why;
    if (j->choices && j->seqs[0].slot != SEQ_SLOT_NONE)
        sched_event(s, API_EVENT_PROGRESS)->progress = (struct api_progress){
            j->seqs[0].kv_count, j->seqs[0].prompt_count, (float)s->stats.prefill_tokens_per_s};
    if (s->events.len)
        sched_emit(s, j, NULL);
    err_set(&why, ERR_CANCELLED, "request: of class idle, gives way to others");
    sched_fail(s, j, &why);
}

/* Before j joins the others. False: it may not. */
static bool sched_make_way(struct sched *s, const struct job *j)
{
    if (sched_is_idle(j))
        return s->o.idle_permille && (list_is_empty(&s->jobs) || sched_has_idle(s));
    if (sched_has_idle(s)) {
        list_each (link, &s->jobs)
            sched_give_way(s, list_item(link, struct job, link));
        s->idle_ns = 0;
    }
    return true;
}

int64_t sched_rest_ms(const struct sched *s)
{
    int64_t left = s->idle_ns - sched_ns(s);
    return sched_has_idle(s) && left > 0 ? (left + 999999) / 1000000 : -1;
}

/* --- the waiting line ---------------------------------------------------------------------- */

/* A resumed reply may already be at its end; choices without a partial ended before. */
static void sched_enter(struct sched *s, struct job *j)
{
    uint32_t choices = j->choices;
    for (uint32_t c = 0; c < choices; c++)
        if (j->begun && !j->begun[c].is_there)
            j->choices_left--;
    uint32_t open = j->choices_left;
    for (uint32_t c = 0; c < choices && open; c++) {
        struct seq *q = &j->seqs[c];
        if (j->begun && !j->begun[c].is_there)
            continue;
        open--;
        if (q->state != SEQ_STATE_DONE) {
            sched_wait(s, q);
            continue;
        }
        j->admitted_ns = j->arrived_ns;
        sched_start(s, j);
        sched_done(s, q);
    }
}

/* What the cache holds of a lone prompt at this moment. */
static uint32_t sched_known_tokens(const struct sched *s, struct job *j)
{
    uint32_t spare[KV_GROUPS_MAX] = {0};
    struct seq *q = &j->seqs[0];
    if (!s->o.trie || j->rq.cache == API_CACHE_OFF || j->prompts_count != 1 || seq_count(q) == 0)
        return 0;
    return kv_trie_length(s->o.trie, j->rq.scope, seq_ids(q), seq_count(q) - 1, spare);
}

/* Rows of prompts under way that go before q, whatever else comes: not those that it may pass (by
 * its class, or as a short one), nor what they have in common with it. Who
 * waits is not counted: it may share its prefix, be passed, or leave. */
static uint64_t sched_rows_ahead(const struct sched *s, const struct seq *q, uint32_t cached)
{
    uint64_t sum = 0;
    uint32_t count = seq_count(q), own = cached < count ? count - cached : 0;
    for (uint32_t i = 0; i < s->o.limits.seqs_max; i++) {
        const struct seq *r = s->slots[i];
        if (!r || r == q || r->state != SEQ_STATE_PREFILL || r->job->is_held ||
            r->job->rq.priority < q->job->rq.priority)
            continue;
        uint32_t left = seq_rows_left(r), there = seq_count(r), same = 0;
        if (sched_policy_is_short(own, left))
            continue;
        while (same < count && same < there && seq_ids(r)[same] == seq_ids(q)[same])
            same++;
        uint32_t shared = same > cached ? same - cached : 0;
        sum += left < shared ? 0 : left - shared;
    }
    return sum;
}

static void sched_queued_event(struct sched *s, struct job *j)
{
    struct api_queued *q = &sched_event(s, API_EVENT_QUEUED)->queued;
    q->prompt_tokens = sched_prompt_tokens(j);
    q->cached_tokens = sched_known_tokens(s, j);
    list_each (link, &s->waiting) {
        const struct seq *w = list_item(link, struct seq, link);
        if (w->job == j)
            break;
        q->place++;
    }
    q->tokens_ahead = sched_rows_ahead(s, &j->seqs[0], q->cached_tokens);
    sched_emit(s, j, NULL);
}

void sched_submit(struct sched *s, struct job *j)
{
    struct seq_options o = {.vocab = s->o.vocab, .loop_tokens = s->o.loop_tokens};
    struct err why;
    struct api_error refused = {0};
    bool may_stay = sched_make_way(s, j);
    j->order = s->arrivals++;
    j->share = sched_share_enter(
        s->shares, &(struct sched_share_who){.key = j->rq.owner, .agent = j->rq.agent,
                                             .key_weight = j->rq.key_weight,
                                             .agent_weight = j->rq.weight});
    j->credit = s->o.credit ? s->o.credit : INT64_MAX / 2;
    j->arrived_ns = j->arrived_ns ? j->arrived_ns : sched_ns(s);
    list_push_last(&s->jobs, &j->link);
    if (!may_stay) {
        j->choices = 0;
        sched_give_way(s, j);
        return;
    }
    if (sched_pins_wants(j) && !sched_pins_enter(&s->pins, j, &refused)) {
        j->choices = 0;
        sched_refuse(s, j, &refused);
        return;
    }
    j->seqs = ARENA_ARRAY(&j->arena, struct seq, j->choices);
    if (!j->seqs) {
        j->choices = 0;
        err_set(&why, ERR_LIMIT, "request: no memory for %u choices", j->choices_left);
        sched_fail(s, j, &why);
        return;
    }
    bool is_bound = j->constraint.gram != NULL;
    if (is_bound && !sched_gram_open(&s->gram, &j->constraint, &s->o.limits, s->o.logits_count,
                                     &why)) {
        j->choices = 0;
        sched_fail(s, j, &why);
        return;
    }
    o.masks = s->gram.masks;
    for (uint32_t c = 0; c < j->choices; c++)
        if (!seq_init(&j->seqs[c], j, c, &o, &why)) {
            j->choices = c + 1;
            sched_fail(s, j, &why);
            return;
        }
    bool is_resumed = j->begun != NULL;
    sched_enter(s, j);
    if (!is_resumed && (s->stats.waiting > 1 || s->stats.is_prefilling ||
                        sched_prompt_tokens(j) >= SCHED_TOLD_TOKENS))
        sched_queued_event(s, j);
}

static struct job *sched_find(const struct sched *s, uint64_t id)
{
    list_each (link, &s->jobs) {
        struct job *j = list_item(link, struct job, link);
        if (j->rq.id == id)
            return j;
    }
    return NULL;
}

void sched_cancel(struct sched *s, uint64_t id)
{
    struct job *j = sched_find(s, id);
    if (j)
        sched_free(s, j);
}

void sched_hold(struct sched *s, uint64_t id, bool on)
{
    struct job *j = sched_find(s, id);
    if (j)
        j->is_held = on;
}

void sched_credit(struct sched *s, uint64_t id, uint32_t bytes)
{
    struct job *j = sched_find(s, id);
    if (j && s->o.credit)
        j->credit += bytes;
}

void sched_unpin(struct sched *s, str context) { sched_pins_drop(&s->pins, context); }

/* --- building the step --------------------------------------------------------------------- */

static void sched_plan_rows(struct sched *s)
{
    uint32_t decoders = 0;
    for (uint32_t i = 0; i < s->o.limits.seqs_max; i++) {
        const struct seq *q = s->slots[i];
        s->runners[i] = (struct sched_runner){0};
        if (!q)
            continue;
        s->runners[i] = (struct sched_runner){
            .rows_left = seq_rows_left(q), .is_decoder = q->state == SEQ_STATE_DECODE,
            .is_held = q->job->is_held || q->job->credit <= 0, .admitted = s->admitted[i]};
        decoders += s->runners[i].is_decoder && !s->runners[i].is_held;
    }
    uint32_t chunk = sched_has_idle(s) ? sched_policy_idle_rows(&s->pace)
                                       : sched_policy_chunk(&s->pace, decoders);
    sched_policy_rows(s->runners, s->o.limits.seqs_max, chunk, s->o.limits.rows_max, s->rows);
}

static bool sched_wants_answer(const struct seq *q, uint32_t rows)
{
    return rows == seq_rows_left(q) && q->job->rq.kind != API_KIND_PREFILL;
}

static void sched_add_out(struct sched *s, struct seq *q, uint32_t row)
{
    struct sched_set *t = &s->set;
    uint32_t out = t->outs_count++;
    t->out_rows[out] = row;
    t->outs[out] = q;
    t->sample[out] = sampler_row(&q->sampler);
    t->adjust_count += sampler_adjust(&q->sampler, out, t->adjust + t->adjust_count,
                                      SCHED_ADJUST_MAX - t->adjust_count);
}

static void sched_add_seq(struct sched *s, struct seq *q, uint32_t rows)
{
    struct sched_set *t = &s->set;
    uint32_t n = t->seqs_count++;
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t row = t->rows_count++;
        t->ids[row] = seq_ids(q)[q->kv_count + i];
        t->pos[row] = (int32_t)(q->kv_count + i);
        t->seq[row] = (uint16_t)n;
    }
    t->len[n] = q->kv_count + rows;
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++) {
        uint32_t *to = t->pages[g] + (size_t)n * s->o.limits.pages_max[g];
        memcpy(to, q->pages[g].pages, q->pages[g].count * sizeof *to);
    }
    if (sched_wants_answer(q, rows))
        sched_add_out(s, q, t->rows_count - 1);
}

static void sched_build(struct sched *s, struct step *step)
{
    struct sched_set *t = &s->set;
    t->rows_count = t->seqs_count = t->outs_count = t->adjust_count = t->decoders_count = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < s->o.limits.seqs_max; i++)
            if (s->slots[i] && s->rows[i] && s->runners[i].is_decoder == (pass == 0)) {
                t->decoders_count += pass == 0;
                sched_add_seq(s, s->slots[i], s->rows[i]);
            }
    *step = (struct step){
        .rows = t->rows_count, .seqs = t->seqs_count, .outs = t->outs_count,
        .ids = t->ids, .pos = t->pos, .seq = t->seq, .out_rows = t->out_rows,
        .kv = {.len = t->len}, .copies = s->o.pool->copies,
        .copies_count = s->o.pool->copies_count,
        .adjust = t->adjust, .adjust_count = t->adjust_count, .sample = t->sample,
        .mask = sched_gram_rows(&s->gram, t->outs, t->outs_count)};
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++) {
        step->kv.pages[g] = t->pages[g];
        step->kv.pages_max[g] = s->o.limits.pages_max[g];
    }
}

/* --- after the step ------------------------------------------------------------------------ */

static void sched_progress_event(struct sched *s, struct seq *q)
{
    int64_t now = sched_ns(s);
    if (q->job->is_started || q->choice != 0 ||
        now - q->progress_ns < SCHED_PROGRESS_MS * INT64_C(1000000))
        return;
    q->progress_ns = now;
    sched_event(s, API_EVENT_PROGRESS)->progress = (struct api_progress){
        q->kv_count, q->prompt_count, (float)s->stats.prefill_tokens_per_s};
    sched_emit(s, q->job, NULL);
}

static bool sched_pick(struct sched *s, struct seq *q, uint32_t row, struct seq_sampled *r,
                       struct err *e)
{
    const struct sched_gram_draw d = {
        .backend = s->o.backend, .device = s->o.device, .prepared = s->o.prepared,
        .adjust = s->set.adjust, .adjust_count = s->set.adjust_count, .row = row,
        .sample = s->set.sample[row]};
    return sched_gram_pick(&s->gram, q, &d, &r->id, &r->logprob, e);
}

static void sched_take(struct sched *s, struct seq *q, const struct step_out *out, uint32_t i)
{
    struct seq_sampled r = {.id = out->ids[i], .logprob = out->logprob[i]};
    struct seq_said said = {.events = NULL};
    struct err why;
    if (out->raw_ids) {
        r.top_ids = out->raw_ids + (size_t)i * s->o.limits.top_max;
        r.top_logits = out->raw_val + (size_t)i * s->o.limits.top_max;
        r.lse = out->lse[2 * i];
    }
    if (gram_is_on(&q->gram) && !q->forced_left && !sched_pick(s, q, i, &r, &why)) {
        sched_fail(s, q->job, &why);
        return;
    }
    if (!vocab_has(s->o.vocab, r.id) || !seq_take(q, &r, &said) ||
        !buf_reserve(&s->events, (said.events_count + SCHED_EVENTS_OWN) * sizeof *said.events)) {
        err_set(&why, ERR_MEMORY, "request: no memory for its reply");
        sched_fail(s, q->job, &why);
        return;
    }
    sched_share_charge(s->shares, q->job->share, 1);
    sched_start(s, q->job);
    sched_echo(s, q);
    for (uint32_t k = 0; k < said.events_count; k++)
        *sched_event(s, said.events[k].kind) = said.events[k];
    if (q->state == SEQ_STATE_DONE)
        sched_done(s, q);
    else if (s->events.len || seq_unsent_count(q))
        sched_emit(s, q->job, q);
}

/* A prompt that is only to be stored is done with its last row. */
static void sched_prefilled(struct sched *s, struct seq *q)
{
    struct api_error why = {0};
    if (q->job->rq.kind != API_KIND_PREFILL || seq_rows_left(q))
        return;
    if (sched_pins_wants(q->job) &&
        !sched_pins_put(&s->pins, q->job, sched_keep(s, q, true), &why)) {
        sched_refuse(s, q->job, &why);
        return;
    }
    q->state = SEQ_STATE_DONE;
    q->done = API_DONE_EOS;
    sched_start(s, q->job);
    sched_done(s, q);
}

/* A quarter of the newest. */
static void sched_smooth(double *old, double now)
{
    *old = *old > 0 ? *old * 0.75 + now * 0.25 : now;
}

static void sched_measure(struct sched *s, double ms)
{
    const struct sched_set *t = &s->set;
    uint32_t prompt_rows = t->rows_count - t->decoders_count;
    s->stats.steps++;
    s->stats.tokens_done += t->rows_count;
    s->stats.is_prefilling = prompt_rows > 0;
    if (prompt_rows == 0) {
        sched_smooth(&s->pace.decode_ms, ms);
        sched_smooth(&s->stats.decode_tokens_per_s, t->decoders_count * 1000.0 / ms);
    } else {
        double rest = t->decoders_count && ms > s->pace.decode_ms ? ms - s->pace.decode_ms : ms;
        sched_smooth(&s->pace.row_ms, rest / prompt_rows);
        if (!sched_has_idle(s)) /* small steps say nothing about the prompt of a request */
            sched_smooth(&s->stats.prefill_tokens_per_s, prompt_rows * 1000.0 / rest);
    }
}

static void sched_after(struct sched *s, const struct step_out *out)
{
    for (uint32_t i = 0; i < s->o.limits.seqs_max; i++)
        if (s->slots[i] && s->rows[i]) {
            s->slots[i]->kv_count += s->rows[i];
            sched_drop_behind(s, s->slots[i]);
        }
    for (uint32_t i = 0; i < s->set.outs_count; i++)
        if (s->set.outs[i])
            sched_take(s, s->set.outs[i], out, i);
    s->set.outs_count = 0;
    for (uint32_t i = 0; i < s->o.limits.seqs_max; i++) {
        struct seq *q = s->slots[i];
        if (!q || !s->rows[i] || q->state == SEQ_STATE_DONE)
            continue;
        sched_keep(s, q, false);
        if (q->state != SEQ_STATE_PREFILL)
            continue;
        if (seq_rows_left(q))
            sched_progress_event(s, q);
        else
            sched_prefilled(s, q);
    }
}

static void sched_count_waiting(struct sched *s)
{
    s->stats.tokens_waiting = 0;
    list_each (link, &s->waiting)
        s->stats.tokens_waiting += seq_rows_left(list_item(link, struct seq, link));
    for (uint32_t i = 0; i < s->o.limits.seqs_max; i++)
        if (s->slots[i] && s->slots[i]->state == SEQ_STATE_PREFILL)
            s->stats.tokens_waiting += seq_rows_left(s->slots[i]);
}

enum sched_result sched_step(struct sched *s, struct err *e)
{
    struct step step;
    struct step_out out;
    int64_t start = sched_ns(s);
    sched_turn_tier(s);
    if (sched_rest_ms(s) >= 0)
        return SCHED_RESULT_IDLE;
    sched_admit(s);
    sched_plan_rows(s);
    if (sched_give_pages(s) == 0)
        return SCHED_RESULT_IDLE;
    sched_build(s, &step);
    int64_t begin = sched_ns(s);
    if (!s->o.backend->submit(s->o.device, s->o.prepared, &step, e))
        return SCHED_RESULT_LOST;
    kv_pool_copied(s->o.pool);
    if (!s->o.backend->wait(s->o.device, s->o.prepared, &out, e))
        return SCHED_RESULT_LOST;
    int64_t took = sched_ns(s) - begin + 1;
    s->stats.plan_ns += (uint64_t)(begin - start);
    s->stats.compute_ns += (uint64_t)took;
    sched_measure(s, (double)took / 1e6);
    if (sched_has_idle(s))
        s->idle_ns = begin + took + sched_policy_idle_rest(took, s->o.idle_permille);
    sched_after(s, &out);
    sched_count_waiting(s);
    s->stats.take_ns += (uint64_t)(sched_ns(s) - begin - took + 1);
    return SCHED_RESULT_WORKED;
}

void sched_deinit(struct sched *s)
{
    list_each (link, &s->jobs)
        sched_free(s, list_item(link, struct job, link));
    sched_tier_deinit(&s->tier);
    sched_pins_deinit(&s->pins);
    sched_gram_deinit(&s->gram);
    buf_deinit(&s->events);
}
