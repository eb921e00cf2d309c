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

/* A control token is nothing to see, unless the format is read by it. */
static str seq_bytes(const struct seq *s, int32_t id)
{
    const struct vocab *v = s->sampler.vocab;
    str bytes = vocab_bytes(v, id);
    bool hides = vocab_is_control(v, id) && !output_is_marker(&s->job->reply.format, bytes);
    return hides ? (str){NULL, 0} : bytes;
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

/* A spent budget of thinking: the tokens that close the block come next. */
static void seq_check_budget(struct seq *s)
{
    const struct reply *r = &s->job->reply;
    if (output_is_thinking(&s->output) && s->forced_left == 0 &&
        s->think_count >= r->think_tokens_max)
        s->forced_left = r->close_count;
}

static void seq_read(struct seq *s, int32_t id, bool *ok)
{
    bool was_thinking = output_is_thinking(&s->output);
    *ok = output_add(&s->output, seq_bytes(s, id));
    s->think_count += was_thinking || output_is_thinking(&s->output);
    if (s->output.has_stop) {
        s->stop = s->output.stops[s->output.stop].text;
        seq_end(s, API_DONE_STOP_STRING);
    } else if (s->output.is_stopped) {
        seq_end(s, API_DONE_TOOL_LIMIT);
    }
    if (s->forced_left)
        s->forced_left--;
    else
        seq_check_budget(s);
}

/* Moves along the grammar. False: the token does not fit, as only one from outside can. */
static bool seq_follow(struct seq *s, int32_t id)
{
    if (!gram_is_on(&s->gram))
        return true;
    if (id != s->gram_id && !gram_mask_try(s->masks, &s->gram, id, &s->gram_next))
        return false;
    s->gram = s->gram_next;
    s->gram_id = VOCAB_NONE;
    return true;
}

/* Appends the token, moves every state along, adds what may be said to the output's events. */
static bool seq_feed(struct seq *s, int32_t id)
{
    bool ok = true;
    if (!buf_add_bytes(&s->ids, &id, sizeof id) ||
        !sampler_add(&s->sampler, seq_ids(s), seq_count(s), true))
        return false;
    s->used_count++;
    if (seq_is_stop_id(s, id))
        seq_end(s, API_DONE_EOS);
    else
        seq_read(s, id, &ok);
    if (gram_is_on(&s->gram) && s->state != SEQ_STATE_DONE &&
        gram_mask_is_done(s->masks, &s->gram))
        seq_end(s, API_DONE_SCHEMA_END);
    uint32_t tokens_max = s->job->rq.tokens_max;
    if (tokens_max && s->used_count >= tokens_max)
        seq_end(s, API_DONE_MAX_TOKENS);
    if (seq_count(s) >= s->context_max)
        seq_end(s, API_DONE_CONTEXT_FULL);
    if (seq_is_looping(s, id))
        seq_end(s, API_DONE_LOOP);
    if (s->state == SEQ_STATE_DONE) {
        /* A token that the client stops at may stand inside a call, which is then cut. */
        bool is_inside = gram_is_on(&s->gram) && !gram_mask_can_end(s->masks, &s->gram);
        bool is_whole = s->done == API_DONE_SCHEMA_END || (s->done == API_DONE_EOS && !is_inside);
        ok = ok && output_end(&s->output, !is_whole);
        if ((s->done == API_DONE_EOS || s->done == API_DONE_SCHEMA_END) &&
            output_has_calls(&s->output))
            s->done = API_DONE_CALLS;
    }
    return ok;
}

/* The logprobs of a token travel with the text of its last byte. *out: how many of the ids come
 * before the first one whose last byte was not shown; what follows has to be sampled again. The
 * bytes of calls have no place in the text, but what came before a call's event is settled. */
static bool seq_count_settled(const struct seq *s, const struct prompt_begun *b, uint32_t *out,
                              struct err *e)
{
    const struct job *j = s->job;
    const struct prompt *p = &j->prompts[s->choice / j->rq.n];
    const struct output_options read = reply_output(&j->reply, &j->rq, s->choice, p->ids, p->count);
    struct output o;
    uint64_t *ends = ARENA_ARRAY(&s->job->arena, uint64_t, b->count), shown = 0;
    *out = 0;
    if (!ends)
        return err_set(e, ERR_LIMIT, "request: out of its memory");
    bool ok = output_init(&o, &read, &s->job->arena, e);
    for (uint32_t i = j->open_from; ok && j->reads_open && i < p->count; i++)
        ok = output_add(&o, seq_bytes(s, p->ids[i]));
    for (uint32_t i = 0; ok && i < b->count; i++) {
        uint64_t before = o.bytes_in;
        uint32_t count = 0;
        output_clear(&o);
        if (!seq_is_stop_id(s, b->ids[i]) && !output_add(&o, seq_bytes(s, b->ids[i])))
            ok = err_set(e, ERR_MEMORY, "request: no memory for %u tokens", b->count);
        ends[i] = o.bytes_in;
        const struct output_event *ev = output_events(&o, &count);
        for (uint32_t k = 0; k < count; k++)
            shown = base_max(shown, ev[k].bytes_end ? ev[k].bytes_end : before);
        while (*out <= i && ends[*out] <= shown)
            ++*out;
    }
    output_deinit(&o);
    return ok;
}

static bool seq_feed_begun(struct seq *s, const struct prompt_begun *b, struct err *e)
{
    uint32_t fed = b->count;
    if (b->is_silent && s->job->rq.logprobs && b->count && !seq_count_settled(s, b, &fed, e))
        return false;
    for (uint32_t i = 0; i < fed && s->state != SEQ_STATE_DONE; i++) {
        output_clear(&s->output);
        if (!seq_follow(s, b->ids[i]))
            return err_set(e, ERR_REQUEST, "resume: token %u does not fit the reply's format", i);
        if (!seq_feed(s, b->ids[i]))
            return err_set(e, ERR_MEMORY, "request: no memory for %u tokens", b->count);
    }
    uint32_t again = s->state == SEQ_STATE_DONE ? 0 : b->count - fed;
    s->fed_count = seq_reply_count(s) + again;
    s->sent_count = b->is_silent ? s->fed_count : 0;
    if (b->tokens_used > s->used_count + again)
        s->used_count = b->tokens_used - again;
    return true;
}

/* The call that the request began: part of the prompt, and of what the reader has read. */
static bool seq_read_open(struct seq *s, const struct prompt *p, struct err *e)
{
    bool ok = true;
    for (uint32_t i = s->job->open_from; i < p->count && s->state != SEQ_STATE_DONE; i++) {
        output_clear(&s->output);
        if (!seq_follow(s, p->ids[i]))
            return err_set(e, ERR_REQUEST, "messages: the unfinished call does not fit the tools "
                           "of this request");
        seq_read(s, p->ids[i], &ok);
        if (!ok)
            return err_set(e, ERR_MEMORY, "request: no memory for %u tokens", p->count);
    }
    return true;
}

/* One byte of a turn that the request began. Blanks that only our own JSON would not have are
 * passed over. */
static bool seq_follow_byte(struct seq *s, char byte, bool is_json)
{
    bool ok = gram_mask_try_bytes(s->masks, &s->gram, str_view(&byte, 1), &s->gram_next);
    if (ok)
        s->gram = s->gram_next;
    return ok || (is_json && (byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n'));
}

/* An unfinished turn of the request that begins an answer in the format is part of the answer; any
 * other text stands in front of it. */
static bool seq_follow_open(struct seq *s, struct err *e)
{
    const struct api_request *rq = &s->job->rq;
    enum api_format_kind kind = rq->format.kind;
    bool is_json = kind == API_FORMAT_JSON || kind == API_FORMAT_SCHEMA, fits = true;
    if (!gram_is_on(&s->gram) || kind == API_FORMAT_TEXT || !rq->continue_last ||
        rq->messages_count == 0 || s->job->reply.tools)
        return true;
    const struct api_message *m = &rq->messages[rq->messages_count - 1];
    for (uint32_t i = 0; i < m->parts_count && fits; i++)
        for (size_t k = 0; k < m->parts[i].text.len && fits; k++)
            fits = m->parts[i].kind != API_PART_TEXT ||
                   seq_follow_byte(s, m->parts[i].text.p[k], is_json);
    if (fits)
        return true;
    gram_mask_close(s->masks, &s->gram);
    s->gram.gram = NULL;
    return gram_mask_open(s->masks, s->job->constraint.gram, &s->gram, e);
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
    buf_init(&s->said, SEQ_HELD_MAX * sizeof(struct api_event));
    buf_init(&s->logprobs, SEQ_HELD_MAX * sizeof(struct seq_logprob));
    buf_init(&s->probs, SEQ_HELD_MAX * sizeof(struct seq_logprob));
    sampler_init(&s->sampler, &j->rq, o->vocab, choice);
    const struct output_options read = reply_output(&j->reply, &j->rq, choice, p->ids, p->count);
    if (!output_init(&s->output, &read, &j->arena, e))
        return false;
    seq_check_budget(s);
    size_t at_once = base_min((size_t)p->count + 64, s->context_max);
    bool ok = p->count <= s->context_max && buf_reserve(&s->ids, at_once * sizeof(int32_t));
    uint32_t open_from = j->open_from ? j->open_from : p->count;
    for (uint32_t i = 0; ok && i < p->count; i++)
        ok = buf_add_bytes(&s->ids, &p->ids[i], sizeof p->ids[i]) &&
             sampler_add(&s->sampler, seq_ids(s), i + 1, i >= open_from);
    if (!ok)
        return err_set(e, ERR_MEMORY, "request: no memory for %u tokens", p->count);
    s->gram_id = VOCAB_NONE;
    s->masks = o->masks;
    if (j->constraint.gram && !gram_mask_open(s->masks, j->constraint.gram, &s->gram, e))
        return false;
    ok = seq_follow_open(s, e) && (!j->reads_open || seq_read_open(s, p, e)) &&
         (!j->begun || seq_feed_begun(s, &j->begun[choice], e));
    output_clear(&s->output);
    return ok;
}

void seq_deinit(struct seq *s)
{
    list_remove(&s->link);
    if (gram_is_on(&s->gram))
        gram_mask_close(s->masks, &s->gram);
    sampler_deinit(&s->sampler);
    buf_deinit(&s->ids);
    output_deinit(&s->output);
    buf_deinit(&s->said);
    buf_deinit(&s->logprobs);
    buf_deinit(&s->probs);
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

/* Entries of the tokens whose last byte this piece shows. Those of tokens that nobody sees
 * (markers, calls, reasoning, what a stop string cut) are dropped. out has room for all. */
static void seq_show_logprobs(struct seq *s, const struct output_event *from, struct api_text *text,
                              struct api_logprob **out, struct api_top **top)
{
    const struct seq_logprob *held = (const struct seq_logprob *)(void *)s->logprobs.p;
    size_t held_count = s->logprobs.len / sizeof *held, i = 0;
    text->logprobs = *out;
    for (; i < held_count && held[i].bytes_end <= from->bytes_end; i++) {
        if (held[i].bytes_end <= from->bytes_begin)
            continue;
        struct api_logprob *l = (*out)++;
        *l = (struct api_logprob){seq_top(s, held[i].id, held[i].logprob), *top,
                                  held[i].top_count};
        for (uint32_t k = 0; k < held[i].top_count; k++)
            *(*top)++ = seq_top(s, held[i].top_ids[k], held[i].top[k]);
        text->logprobs_count++;
    }
    if (text->logprobs_count == 0)
        text->logprobs = NULL;
    buf_drop(&s->logprobs, i * sizeof *held);
}

/* --- events --------------------------------------------------------------------------------- */

static struct api_call seq_call(const struct output_event *from)
{
    struct api_call call = {.index = from->index};
    if (from->kind == API_EVENT_CALL_ARGS)
        call.args = from->text;
    if (from->kind != API_EVENT_CALL_BEGIN)
        return call;
    call.id = str_view(from->id, OUTPUT_ID_LEN);
    call.name = from->text;
    if (from->tool) {
        call.tool_kind = from->tool->tool->kind;
        call.name = from->tool->tool->name;
        call.name_space = from->tool->tool->name_space;
    }
    return call;
}

static bool seq_say(struct seq *s, struct seq_said *said)
{
    uint32_t count;
    const struct output_event *from = output_events(&s->output, &count);
    size_t held = s->logprobs.len / sizeof(struct seq_logprob);
    size_t room = held * (sizeof(struct api_logprob) +
                          API_TOP_LOGPROBS_MAX * sizeof(struct api_top));
    buf_clear(&s->said);
    buf_clear(&s->probs);
    if (!buf_reserve(&s->said, count * sizeof(struct api_event)) || !buf_reserve(&s->probs, room))
        return false;
    struct api_logprob *probs = (struct api_logprob *)(void *)s->probs.p;
    struct api_top *tops = (struct api_top *)(void *)(probs ? probs + held : NULL);
    for (uint32_t i = 0; i < count; i++) {
        struct api_event ev;
        memset(&ev, 0, sizeof ev);
        ev.kind = from[i].kind;
        if (ev.kind == API_EVENT_CONTENT || ev.kind == API_EVENT_REASONING)
            ev.text.text = from[i].text;
        else
            ev.call = seq_call(&from[i]);
        if (ev.kind == API_EVENT_CONTENT && held)
            seq_show_logprobs(s, &from[i], &ev.text, &probs, &tops);
        if (!buf_add_bytes(&s->said, &ev, sizeof ev))
            return false;
    }
    said->events = (const struct api_event *)(void *)s->said.p;
    said->events_count = count;
    return true;
}

bool seq_take(struct seq *s, const struct seq_sampled *r, struct seq_said *said)
{
    const struct reply *reply = &s->job->reply;
    uint64_t bytes_before = s->output.bytes_in;
    uint32_t at = seq_reply_count(s);
    bool is_again = at < s->fed_count;
    must(s->state == SEQ_STATE_DECODE || s->state == SEQ_STATE_PREFILL);
    *said = (struct seq_said){.id = r->id};
    if (s->forced_left)
        said->id = reply->close_ids[reply->close_count - s->forced_left];
    if (is_again)
        said->id = s->job->begun[s->choice].ids[at];
    output_clear(&s->output);
    s->state = SEQ_STATE_DECODE;
    if (!seq_follow(s, said->id) || !seq_feed(s, said->id))
        return false;
    bool has_bytes = s->output.bytes_in > bytes_before;
    if (s->job->rq.logprobs && has_bytes && !seq_hold_logprob(s, r))
        return false;
    if (is_again) /* the client has what it says */
        output_clear(&s->output);
    return seq_say(s, said);
}
