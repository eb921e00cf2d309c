#include "engine/seq.h"

#include <string.h>

/* A sampled token until the text of its last byte is shown. */
struct seq_logprob {
    uint64_t bytes_end; /* in output.bytes_in */
    int32_t id, top_ids[API_TOP_LOGPROBS_MAX];
    float logprob, top[API_TOP_LOGPROBS_MAX];
    uint32_t top_count;
};

#define SEQ_HELD_MAX ((size_t)1 << 16) /* tokens whose text may be held back at once */

static str seq_bytes(const struct seq *s, int32_t id)
{
    const struct vocab *v = s->sampler.vocab;
    return vocab_is_control(v, id) ? (str){NULL, 0} : vocab_bytes(v, id);
}

static bool seq_is_blank(str bytes)
{
    for (size_t i = 0; i < bytes.len; i++)
        if (!strchr(" \t\r\n", bytes.p[i]) || bytes.p[i] == 0)
            return false;
    return true;
}

/* --- the end ------------------------------------------------------------------------------- */

static void seq_end(struct seq *s, enum api_done why)
{
    if (s->state == SEQ_STATE_DONE)
        return;
    s->state = SEQ_STATE_DONE;
    s->done = why;
}

/* The same period of up to SEQ_PERIOD_MAX tokens for loop_tokens, or half as many blank ones. A run
 * of period p grows while each token equals the one p before it. */
static bool seq_is_looping(struct seq *s, int32_t id)
{
    const int32_t *reply = seq_ids(s) + s->prompt_count;
    uint32_t n = seq_reply_count(s);
    uint32_t limit = (uint32_t)base_min(s->loop_tokens, UINT16_MAX - 1);
    s->blanks = seq_is_blank(vocab_bytes(s->sampler.vocab, id)) && s->blanks < UINT16_MAX
                    ? (uint16_t)(s->blanks + 1) : 0;
    bool loops = s->blanks >= (limit + 1) / 2;
    for (uint32_t p = 1; p <= SEQ_PERIOD_MAX && p < n; p++) {
        bool same = reply[n - 1] == reply[n - 1 - p];
        s->runs[p] = same && s->runs[p] < UINT16_MAX ? (uint16_t)(s->runs[p] + 1) : 0;
        loops = loops || s->runs[p] >= limit;
    }
    return limit > 0 && loops;
}

static bool seq_is_stop_id(const struct seq *s, int32_t id)
{
    const struct api_request *rq = &s->job->rq;
    for (uint32_t i = 0; i < rq->stop_ids_count; i++)
        if (rq->stop_ids[i] == id)
            return true;
    return vocab_is_eog(s->sampler.vocab, id);
}

/* --- one token ----------------------------------------------------------------------------- */

/* Appends the token, moves every state along, adds what may be shown to s->shown. */
static bool seq_feed(struct seq *s, int32_t id)
{
    if (!buf_add_bytes(&s->ids, &id, sizeof id) ||
        !sampler_add(&s->sampler, seq_ids(s), seq_count(s), true))
        return false;
    s->used_count++;
    if (seq_is_stop_id(s, id)) {
        seq_end(s, API_DONE_EOS);
    } else {
        output_add(&s->output, seq_bytes(s, id), &s->shown);
        if (s->output.is_stopped) {
            s->stop = s->output.stops[s->output.stop].text;
            seq_end(s, API_DONE_STOP_STRING);
        }
    }
    uint32_t tokens_max = s->job->rq.tokens_max;
    if (tokens_max && s->used_count >= tokens_max)
        seq_end(s, API_DONE_MAX_TOKENS);
    if (seq_count(s) >= s->context_max)
        seq_end(s, API_DONE_CONTEXT_FULL);
    if (seq_is_looping(s, id))
        seq_end(s, API_DONE_LOOP);
    if (s->state == SEQ_STATE_DONE)
        output_end(&s->output, &s->shown);
    return !s->shown.full;
}

static bool seq_feed_begun(struct seq *s, const struct prompt_begun *b)
{
    for (uint32_t i = 0; i < b->count && s->state != SEQ_STATE_DONE; i++) {
        buf_clear(&s->shown);
        if (!seq_feed(s, b->ids[i]))
            return false;
    }
    s->fed_count = seq_reply_count(s);
    if (b->tokens_used > s->used_count)
        s->used_count = b->tokens_used;
    return true;
}

bool seq_init(struct seq *s, struct job *j, uint32_t choice, const struct seq_options *o,
              struct err *e)
{
    const struct prompt *p = &j->prompts[choice / j->rq.n];
    *s = (struct seq){.job = j, .choice = choice, .slot = SEQ_SLOT_NONE};
    list_init(&s->link);
    s->context_max = j->context_max;
    s->loop_tokens = o->loop_tokens;
    s->prompt_count = p->count;
    s->adjust_max = sampler_adjust_max(&j->rq, o->vocab, s->context_max);
    buf_init(&s->ids, (size_t)s->context_max * sizeof(int32_t));
    buf_init(&s->shown, (size_t)1 << 24);
    buf_init(&s->logprobs, SEQ_HELD_MAX * sizeof(struct seq_logprob));
    buf_init(&s->events, SEQ_HELD_MAX * sizeof(struct seq_logprob));
    sampler_init(&s->sampler, &j->rq, o->vocab, choice);
    if (!output_init(&s->output, j->rq.stop, j->rq.stop_count, j->rq.keep_stop, &j->arena, e))
        return false;
    size_t at_once = base_min((size_t)p->count + 64, s->context_max);
    bool ok = p->count <= s->context_max && buf_reserve(&s->ids, at_once * sizeof(int32_t));
    for (uint32_t i = 0; ok && i < p->count; i++)
        ok = buf_add_bytes(&s->ids, &p->ids[i], sizeof p->ids[i]) &&
             sampler_add(&s->sampler, seq_ids(s), i + 1, false);
    if (ok && j->begun)
        ok = seq_feed_begun(s, &j->begun[choice]);
    buf_clear(&s->shown);
    return ok || err_set(e, ERR_MEMORY, "request: no memory for %u tokens", p->count);
}

void seq_deinit(struct seq *s)
{
    list_remove(&s->link);
    sampler_deinit(&s->sampler);
    buf_deinit(&s->ids);
    buf_deinit(&s->shown);
    buf_deinit(&s->logprobs);
    buf_deinit(&s->events);
}

/* --- logprobs ------------------------------------------------------------------------------ */

static bool seq_hold_logprob(struct seq *s, const struct seq_sampled *r)
{
    struct seq_logprob l = {.bytes_end = s->output.bytes_in, .id = r->id, .logprob = r->logprob};
    uint32_t k = s->job->rq.logprobs - 1;
    for (uint32_t i = 0; i < k && r->top_ids[i] >= 0; i++) {
        l.top_ids[i] = r->top_ids[i];
        l.top[i] = r->top_logits[i] - r->lse;
        l.top_count++;
    }
    return buf_add_bytes(&s->logprobs, &l, sizeof l);
}

static struct api_top seq_top(const struct seq *s, int32_t id, float logprob)
{
    return (struct api_top){id, logprob, vocab_bytes(s->sampler.vocab, id)};
}

/* Entries of tokens that are shown to their last byte. At the end of a reply the rest of a token
 * that a stop string cut is not shown, and neither is its entry. */
static bool seq_show_logprobs(struct seq *s, struct api_text *text)
{
    const struct seq_logprob *held = (const struct seq_logprob *)(void *)s->logprobs.p;
    uint32_t count = 0, tops = 0;
    size_t held_count = s->logprobs.len / sizeof *held;
    while (count < held_count && held[count].bytes_end <= s->output.bytes_shown)
        tops += held[count++].top_count;
    size_t size = count * sizeof(struct api_logprob) + tops * sizeof(struct api_top);
    buf_clear(&s->events);
    if (count == 0)
        return true;
    if (!buf_reserve(&s->events, size))
        return false;
    struct api_logprob *out = (struct api_logprob *)(void *)s->events.p;
    struct api_top *top = (struct api_top *)(void *)(out + count);
    for (uint32_t i = 0; i < count; i++) {
        out[i] = (struct api_logprob){seq_top(s, held[i].id, held[i].logprob), top,
                                      held[i].top_count};
        for (uint32_t k = 0; k < held[i].top_count; k++)
            *top++ = seq_top(s, held[i].top_ids[k], held[i].top[k]);
    }
    text->logprobs = out;
    text->logprobs_count = count;
    buf_drop(&s->logprobs, count * sizeof *held);
    return true;
}

bool seq_take(struct seq *s, const struct seq_sampled *r, struct api_text *text)
{
    uint64_t bytes_before = s->output.bytes_in;
    must(s->state == SEQ_STATE_DECODE || s->state == SEQ_STATE_PREFILL);
    *text = (struct api_text){0};
    buf_clear(&s->shown);
    s->state = SEQ_STATE_DECODE;
    if (!seq_feed(s, r->id))
        return false;
    text->text = buf_view(&s->shown);
    bool has_bytes = s->output.bytes_in > bytes_before;
    if (s->job->rq.logprobs && ((has_bytes && !seq_hold_logprob(s, r)) ||
                                !seq_show_logprobs(s, text)))
        return false;
    return true;
}
