#include "engine/prompt.h"

#include <string.h>

#include "chat/output_partial.h"
#include "engine/prompt_replay.h"

#define PROMPT_TEXT_MAX ((size_t)16 << 20) /* bytes of a DECODE answer: half of a frame's limit */

struct job *prompt_job(struct arena *a, const struct api_request *rq)
{
    struct job *j = ARENA_NEW(a, struct job);
    if (!j)
        return NULL;
    list_init(&j->link);
    j->rq = *rq;
    j->choices = j->choices_left = api_request_choices(rq);
    j->arena = *a; /* from here on the blocks are the job's */
    return j;
}

void prompt_job_free(struct job *j)
{
    struct arena a = j->arena;
    list_remove(&j->link);
    constrain_drop(&j->constraint);
    arena_deinit(&a);
}

/* --- what is not built --------------------------------------------------------------------- */

static bool prompt_refuse(struct api_error *e, const char *param, const char *what)
{
    return api_error_set(e, ERR_UNSUPPORTED, NULL, str_of(param), "%s: %s not built yet", param,
                         what);
}

static bool prompt_check_built(const struct api_request *rq, struct api_error *e)
{
    if (rq->kind == API_KIND_EMBED)
        return prompt_refuse(e, "input", "embeddings are");
    if (rq->truncate != API_TRUNCATE_NONE)
        return prompt_refuse(e, "truncate", "dropping old rounds is");
    if (rq->echo && rq->logprobs)
        return prompt_refuse(e, "logprobs", "logprobs of an echoed prompt are");
    for (uint32_t i = 0; rq->echo && i < rq->inputs_count; i++)
        if (rq->inputs[i].ids_count)
            return prompt_refuse(e, "echo", "the text of a prompt given as ids is");
    if (rq->context.len && (rq->kind != API_KIND_PREFILL || rq->cache != API_CACHE_PIN))
        return api_error_set(e, ERR_INTERNAL, NULL, STR("context"),
                             "context: the endpoint puts it before the messages");
    return true;
}

static void prompt_defaults(const struct prompt_model *m, struct api_request *rq)
{
    uint64_t take = m->defaults.given & ~rq->given;
#define X(name, field, type, low, high)          \
    if (take & API_GIVEN(name))                  \
        rq->field = m->defaults.field;
    API_NUMBERS(X)
#undef X
}

/* --- encoding ------------------------------------------------------------------------------ */

static bool prompt_from(struct err *from, const char *param, struct api_error *e)
{
    return api_error_set(e, from->code, NULL, str_of(param), "%s", from->text);
}

/* Ids grow outside the arena, then move into it: the arena cannot grow a block in place. */
static bool prompt_take(struct job *j, struct tok_ids *ids, struct prompt *out, struct api_error *e)
{
    size_t count = tok_ids_count(ids);
    int32_t *p = ARENA_ARRAY(&j->arena, int32_t, count);
    if (!p)
        return api_error_set(e, ERR_LIMIT, NULL, STR(""), "request: %zu tokens need more than its"
                             " %zu bytes of memory", count, j->arena.bytes_max);
    if (count)
        memcpy(p, tok_ids_data(ids), count * sizeof *p);
    *out = (struct prompt){p, (uint32_t)count};
    return true;
}

/* add_special knows only both ends; a prompt that is to be continued must not end in EOS. */
static void prompt_drop_eos(const struct prompt_model *m, struct tok_ids *ids)
{
    size_t count = tok_ids_count(ids);
    if (vocab_add_eos(m->vocab) && count &&
        tok_ids_data(ids)[count - 1] == vocab_role(m->vocab, VOCAB_ROLE_EOS))
        ids->bytes.len -= sizeof(int32_t);
}

/* Template spans may hold control tokens, the others never. Neighbours of one kind are joined. */
static struct tok_span *prompt_trusted(const struct render_result *r, struct arena *a,
                                       size_t *count)
{
    struct tok_span *spans = ARENA_ARRAY(a, struct tok_span, r->spans_count);
    size_t n = 0, from = 0;
    for (uint32_t i = 0; spans && i < r->spans_count; i++) {
        size_t to = r->spans[i].end;
        if (r->spans[i].origin == RENDER_TEMPLATE && to > from) {
            if (n && spans[n - 1].to == from)
                spans[n - 1].to = to;
            else
                spans[n++] = (struct tok_span){from, to};
        }
        from = to;
    }
    *count = n;
    return spans;
}

/* The text before an unfinished turn once more by itself: whoever began that turn saw just this,
 * and numbered the tokens of its reply from here. */
static bool prompt_open(const struct prompt_model *m, struct job *j, const struct tok_text *text,
                        const struct prompt_regions *regions, size_t at, struct err *e)
{
    struct tok_text head = {.text = str_sub(text->text, 0, at), .add_special = text->add_special};
    struct tok_span *spans = ARENA_ARRAY(&j->arena, struct tok_span, text->trusted_count);
    struct tok_ids ids;
    if (!spans)
        return err_set(e, ERR_LIMIT, "request: out of its memory");
    for (size_t i = 0; i < text->trusted_count && text->trusted[i].from < at; i++)
        spans[head.trusted_count++] = (struct tok_span){text->trusted[i].from,
                                                        base_min(text->trusted[i].to, at)};
    head.trusted = spans;
    tok_ids_init(&ids, TOK_TEXT_MAX);
    bool ok = prompt_replay_encode(m, &head, regions, &j->arena, &ids, e);
    if (ok && head.add_special)
        prompt_drop_eos(m, &ids);
    j->open_from = ok ? (uint32_t)tok_ids_count(&ids) : 0;
    tok_ids_deinit(&ids);
    return ok;
}

static bool prompt_add_ids(struct tok_ids *ids, const int32_t *more, uint32_t count,
                           struct api_error *e)
{
    if (!count || buf_add_bytes(&ids->bytes, more, count * sizeof *more))
        return true;
    return api_error_set(e, ERR_LIMIT, NULL, STR("inputs"), "inputs: more than %zu tokens",
                         ids->bytes.size_max / sizeof *more);
}

/* The parts as this model would have written them; markup of its format may be control tokens. */
static bool prompt_partial_text(const struct prompt_model *m, struct job *j,
                                const struct prompt *behind, const struct api_partial *p,
                                struct tok_ids *ids, struct api_error *e)
{
    const struct output_options o = reply_output(&j->reply, &j->rq, p->choice, behind->ids,
                                                 behind->count);
    struct buf text, marks;
    struct err why;
    buf_init(&text, TOK_TEXT_MAX);
    buf_init(&marks, TOK_TEXT_MAX);
    bool ok = output_partial_write(&o, &p->message, &text, &marks, &why);
    size_t count = marks.len / sizeof(struct output_partial_mark);
    struct tok_span *trusted = ok ? ARENA_ARRAY(&j->arena, struct tok_span, count) : NULL;
    const struct output_partial_mark *mark = (const void *)marks.p;
    for (size_t i = 0; trusted && i < count; i++)
        trusted[i] = (struct tok_span){mark[i].from, mark[i].to};
    const struct tok_text t = {.text = buf_view(&text), .trusted = trusted,
                               .trusted_count = count};
    if (ok && !trusted)
        ok = err_set(&why, ERR_LIMIT, "request: out of its memory");
    ok = ok && tok_encode(m->tok, &t, ids, &why);
    buf_deinit(&text);
    buf_deinit(&marks);
    return ok || prompt_from(&why, "resume", e);
}

/* A turn that ends in a call is no text to go on from: templates show whole calls only. It leaves
 * the messages, and prompt_add_open writes it as this model would have. NULL: there is none. */
static const struct api_message *prompt_take_open(struct job *j)
{
    struct api_request *rq = &j->rq;
    if (!rq->continue_last || rq->messages_count < 2)
        return NULL;
    const struct api_message *last = &rq->messages[rq->messages_count - 1];
    if (last->parts_count == 0 || last->parts[last->parts_count - 1].kind != API_PART_CALL)
        return NULL;
    rq->messages_count--;
    rq->continue_last = false;
    return last;
}

static bool prompt_add_open(const struct prompt_model *m, struct job *j,
                            const struct api_message *open, struct tok_ids *ids,
                            struct api_error *e)
{
    struct prompt before = {tok_ids_data(ids), (uint32_t)tok_ids_count(ids)};
    struct tok_ids more;
    j->open_from = before.count;
    j->reads_open = j->reply.goes_on_call = true;
    tok_ids_init(&more, TOK_TEXT_MAX);
    const struct api_partial p = {.message = *open};
    bool ok = prompt_partial_text(m, j, &before, &p, &more, e) &&
              prompt_add_ids(ids, tok_ids_data(&more), (uint32_t)tok_ids_count(&more), e);
    tok_ids_deinit(&more);
    return ok;
}

static bool prompt_messages(const struct prompt_model *m, struct job *j, struct tok_ids *ids,
                            struct api_error *e)
{
    const struct api_message *open = prompt_take_open(j);
    struct render_result r;
    struct tok_text text = {.add_special = true};
    struct err why;
    if (!render_request(m->render, &j->rq, &j->arena, &r, e))
        return false;
    j->notes = r.notes;
    j->notes_count = r.notes_count;
    if (!reply_make(&j->reply, m, &j->rq, &r, &j->arena, e))
        return false;
    text.text = r.text;
    text.add_special = !r.has_bos;
    text.trusted = prompt_trusted(&r, &j->arena, &text.trusted_count);
    if (!text.trusted)
        return api_error_set(e, ERR_LIMIT, NULL, STR("messages"), "request: out of its memory");
    struct prompt_regions regions = {
        .rows = ARENA_ARRAY(&j->arena, struct prompt_region, j->rq.messages_count)};
    if (!regions.rows)
        return api_error_set(e, ERR_LIMIT, NULL, STR("messages"), "request: out of its memory");
    prompt_replay_find(m, &j->rq, &r, &regions);
    j->source = (struct prompt_source){r.text, r.spans, r.spans_count, regions.rows, regions.count};
    size_t at = prompt_replay_open_at(m, &j->rq, &r);
    if (!prompt_replay_encode(m, &text, &regions, &j->arena, ids, &why) ||
        (at != STR_NONE && !prompt_open(m, j, &text, &regions, at, &why)))
        return prompt_from(&why, "messages", e);
    if (text.add_special)
        prompt_drop_eos(m, ids);
    return !open || prompt_add_open(m, j, open, ids, e);
}

static bool prompt_check_ids(const struct prompt_model *m, const int32_t *ids, uint32_t count,
                             struct api_error *e)
{
    for (uint32_t i = 0; i < count; i++)
        if (!vocab_has(m->vocab, ids[i]))
            return api_error_set(e, ERR_REQUEST, NULL, STR("inputs"),
                                 "inputs: token id from 0 to %u expected, got %d",
                                 vocab_count(m->vocab) - 1, ids[i]);
    return true;
}

static bool prompt_encode(const struct prompt_model *m, str text, bool special, bool add_special,
                          struct tok_ids *ids, struct api_error *e)
{
    struct err why;
    return tok_encode_str(m->tok, text, special, add_special, ids, &why) ||
           prompt_from(&why, "inputs", e);
}

/* Prefix, suffix, middle: the order that the models of this kind were trained with. */
static bool prompt_fill_in(const struct prompt_model *m, const struct api_request *rq, str before,
                           struct tok_ids *ids, struct api_error *e)
{
    const int32_t marks[] = {vocab_role(m->vocab, VOCAB_ROLE_FIM_PREFIX),
                             vocab_role(m->vocab, VOCAB_ROLE_FIM_SUFFIX),
                             vocab_role(m->vocab, VOCAB_ROLE_FIM_MIDDLE)};
    for (size_t i = 0; i < countof(marks); i++)
        if (marks[i] == VOCAB_NONE)
            return api_error_set(e, ERR_REQUEST, NULL, STR("suffix"),
                                 "suffix: the model has no tokens to fill in the middle");
    if (vocab_add_bos(m->vocab)) {
        int32_t bos = vocab_role(m->vocab, VOCAB_ROLE_BOS);
        if (!prompt_add_ids(ids, &bos, 1, e))
            return false;
    }
    return prompt_add_ids(ids, &marks[0], 1, e) && prompt_encode(m, before, false, false, ids, e) &&
           prompt_add_ids(ids, &marks[1], 1, e) &&
           prompt_encode(m, rq->suffix, false, false, ids, e) &&
           prompt_add_ids(ids, &marks[2], 1, e);
}

static bool prompt_input(const struct prompt_model *m, const struct api_request *rq,
                         const struct api_input *in, struct tok_ids *ids, struct api_error *e)
{
    if (in->ids_count)
        return prompt_check_ids(m, in->ids, in->ids_count, e) &&
               prompt_add_ids(ids, in->ids, in->ids_count, e);
    if (rq->suffix.len)
        return prompt_fill_in(m, rq, in->text, ids, e);
    if (rq->kind == API_KIND_ENCODE)
        return prompt_encode(m, in->text, rq->parse_special, rq->add_special, ids, e);
    if (!prompt_encode(m, in->text, rq->parse_special, true, ids, e))
        return false;
    prompt_drop_eos(m, ids);
    return true;
}

/* --- limits, resumed replies --------------------------------------------------------------- */

static bool prompt_check_length(struct job *j, uint32_t prompt, uint32_t begun, struct api_error *e)
{
    uint64_t tokens = (uint64_t)prompt + begun;
    if (tokens < j->context_max)
        return true;
    api_error_set(e, ERR_CONTEXT, NULL, STR("messages"), "prompt has %llu tokens, limit is %u",
                  (unsigned long long)tokens, j->context_max);
    e->prompt_tokens = tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)tokens;
    e->limit = j->context_max;
    return false;
}

/* By ids where the model is the same (the draws go on bit by bit), else by the text. */
static bool prompt_partial(const struct prompt_model *m, struct job *j, struct tok_ids *scratch,
                           const struct api_partial *p, struct api_error *e)
{
    struct prompt_begun *b = &j->begun[p->choice];
    struct prompt ids = {p->message.ids, p->message.ids_count};
    bool same = j->rq.resume->model_hash == m->model_hash;
    b->is_there = b->is_silent = true;
    b->tokens_used = p->tokens_used;
    if (same) {
        if (!prompt_check_ids(m, ids.ids, ids.count, e))
            return false;
        b->ids = ids.ids;
        b->count = ids.count;
        return true;
    }
    tok_ids_clear(scratch);
    if (!prompt_partial_text(m, j, &j->prompts[p->choice / j->rq.n], p, scratch, e) ||
        !prompt_take(j, scratch, &ids, e))
        return false;
    b->ids = ids.ids;
    b->count = ids.count;
    b->is_silent = false;
    return true;
}

static bool prompt_resume(const struct prompt_model *m, struct job *j, struct tok_ids *scratch,
                          struct api_error *e)
{
    if (!j->rq.resume)
        return true;
    j->begun = ARENA_ARRAY(&j->arena, struct prompt_begun, j->choices);
    if (!j->begun)
        return api_error_set(e, ERR_LIMIT, NULL, STR("resume"), "request: out of its memory");
    for (uint32_t i = 0; i < j->rq.resume->partials_count; i++)
        if (!prompt_partial(m, j, scratch, &j->rq.resume->partials[i], e))
            return false;
    return true;
}

/* --- make ---------------------------------------------------------------------------------- */

static bool prompt_make_all(const struct prompt_model *m, struct job *j, struct tok_ids *ids,
                            struct api_error *e)
{
    const struct api_request *rq = &j->rq;
    bool has_messages = rq->messages_count > 0;
    j->prompts_count = has_messages ? 1 : rq->inputs_count;
    if (!prompt_is_answer(j) && j->prompts_count == 0) /* also the kinds about models */
        return api_error_set(e, ERR_REQUEST, NULL, STR("messages"), "messages: a request of kind %s"
                             " without a prompt", api_request_kind_name(rq->kind));
    j->prompts = ARENA_ARRAY(&j->arena, struct prompt, j->prompts_count);
    if (!j->prompts)
        return api_error_set(e, ERR_LIMIT, NULL, STR(""), "request: out of its memory");
    for (uint32_t i = 0; i < j->prompts_count; i++) {
        tok_ids_clear(ids);
        if (!(has_messages ? prompt_messages(m, j, ids, e)
                           : prompt_input(m, rq, &rq->inputs[i], ids, e)) ||
            !prompt_take(j, ids, &j->prompts[i], e))
            return false;
        if (!prompt_is_answer(j) && j->prompts[i].count == 0)
            return api_error_set(e, ERR_REQUEST, NULL, STR("inputs"), "inputs: prompt %u is empty",
                                 i);
    }
    if (!prompt_resume(m, j, ids, e))
        return false;
    for (uint32_t c = 0; !prompt_is_answer(j) && c < j->choices; c++)
        if (!prompt_check_length(j, j->prompts[c / rq->n].count, j->begun ? j->begun[c].count : 0,
                                 e))
            return false;
    return true;
}

static bool prompt_constrain(const struct prompt_model *m, struct job *j, struct api_error *e)
{
    const struct reply *r = &j->reply;
    const struct constrain_ask ask = {.rq = &j->rq, .format = r->format, .tools = r->tools,
                                      .begin = r->begin, .one_call = r->one_call,
                                      .is_off = m->tool_grammar == API_TOOL_GRAMMAR_OFF};
    return prompt_is_answer(j) || j->rq.kind == API_KIND_PREFILL ||
           constrain_make(m->constrain, &ask, &j->arena, &j->constraint, e);
}

/* The setting makes every tool a strict one, for the template too. */
static bool prompt_strict_tools(const struct prompt_model *m, struct job *j, struct api_error *e)
{
    if (m->tool_grammar != API_TOOL_GRAMMAR_STRICT || j->rq.tools_count == 0)
        return true;
    struct api_tool *tools = ARENA_ARRAY(&j->arena, struct api_tool, j->rq.tools_count);
    if (!tools)
        return api_error_set(e, ERR_LIMIT, NULL, STR("tools"), "request: out of its memory");
    memcpy(tools, j->rq.tools, j->rq.tools_count * sizeof *tools);
    for (uint32_t i = 0; i < j->rq.tools_count; i++)
        tools[i].strict = true;
    j->rq.tools = tools;
    return true;
}

bool prompt_make(const struct prompt_model *m, struct job *j, struct api_error *e)
{
    struct tok_ids ids;
    if (!prompt_check_built(&j->rq, e) || !prompt_strict_tools(m, j, e))
        return false;
    prompt_defaults(m, &j->rq);
    j->context_max = m->context_max;
    if (j->rq.context_max && j->rq.context_max < j->context_max)
        j->context_max = j->rq.context_max;
    /* More than a text at tok's limit makes: what is too long is counted, then refused. */
    tok_ids_init(&ids, TOK_TEXT_MAX);
    bool ok = prompt_make_all(m, j, &ids, e);
    tok_ids_deinit(&ids);
    return ok && prompt_constrain(m, j, e);
}

/* --- answers without a model --------------------------------------------------------------- */

bool prompt_is_answer(const struct job *j)
{
    return j->rq.kind == API_KIND_COUNT || j->rq.kind == API_KIND_ENCODE ||
           j->rq.kind == API_KIND_DECODE;
}

static bool prompt_answer_one(const struct prompt_model *m, struct job *j, uint32_t i,
                              struct api_tokens *out, struct api_error *e)
{
    const struct prompt *p = &j->prompts[i];
    *out = (struct api_tokens){.index = i, .tokens_count = p->count};
    if (j->rq.kind == API_KIND_ENCODE) {
        str *pieces = ARENA_ARRAY(&j->arena, str, p->count);
        if (!pieces)
            return api_error_set(e, ERR_LIMIT, NULL, STR(""), "request: out of its memory");
        for (uint32_t k = 0; k < p->count; k++)
            pieces[k] = vocab_bytes(m->vocab, p->ids[k]);
        out->ids = p->count ? p->ids : NULL;
        out->pieces = p->count ? pieces : NULL;
    }
    if (j->rq.kind == API_KIND_DECODE) {
        struct buf text;
        struct err why;
        buf_init(&text, PROMPT_TEXT_MAX);
        bool ok = tok_decode(m->vocab, p->ids, p->count, TOK_DECODE_CONTROL, &text, &why);
        if (ok)
            out->text = arena_copy(&j->arena, buf_view(&text));
        else
            api_error_set(e, why.code, NULL, STR("inputs"), "%s", why.text);
        buf_deinit(&text);
        return ok && (out->text.p || api_error_set(e, ERR_LIMIT, NULL, STR(""),
                                                   "request: out of its memory"));
    }
    return true;
}

bool prompt_answer(const struct prompt_model *m, struct job *j, struct api_sink sink,
                   struct api_error *e)
{
    uint32_t events_count = j->prompts_count + 2;
    struct api_event *events = ARENA_ARRAY(&j->arena, struct api_event, events_count);
    if (!events)
        return api_error_set(e, ERR_LIMIT, NULL, STR(""), "request: out of its memory");
    uint64_t total = 0;
    for (uint32_t i = 0; i < j->prompts_count; i++) {
        events[i].kind = API_EVENT_TOKENS;
        if (!prompt_answer_one(m, j, i, &events[i].tokens, e))
            return false;
        total += j->prompts[i].count;
    }
    events[j->prompts_count].kind = API_EVENT_USAGE;
    events[j->prompts_count].usage.prompt_tokens = (uint32_t)base_min(total, UINT32_MAX);
    events[j->prompts_count + 1].kind = API_EVENT_DONE;
    events[j->prompts_count + 1].done.reason = API_DONE_EOS;
    struct api_batch b = {.request_id = j->rq.id, .events = events, .events_count = events_count};
    sink.on_batch(sink.ctx, &b);
    return true;
}
