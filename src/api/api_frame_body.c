/* The fields of every message. */
#include <string.h>

#include "api/api_frame.h"

_Static_assert(sizeof(enum api_kind) == 4, "enums are framed as u32");

/* --- fields -------------------------------------------------------------------------------- */

/* One list of fields serves both directions: each io function either appends the value or replaces
 * it by what was read. So writer and reader cannot disagree. The first thing that does not fit
 * clears `ok`; after that reads give zeros and empty lists. */
struct api_codec {
    struct buf *out;  /* NULL: reading */
    struct buf *lent; /* of long texts; NULL: they are copied too */
    const char *p, *end;
    struct arena *arena;
    bool ok;
};

static void io_raw(struct api_codec *c, void *value, size_t size)
{
    if (c->out) {
        buf_add_bytes(c->out, value, size);
    } else if (c->ok && (size_t)(c->end - c->p) >= size) {
        memcpy(value, c->p, size);
        c->p += size;
    } else {
        c->ok = false;
        memset(value, 0, size);
    }
}

static void io_u32(struct api_codec *c, uint32_t *v) { io_raw(c, v, sizeof *v); }
static void io_u64(struct api_codec *c, uint64_t *v) { io_raw(c, v, sizeof *v); }
static void io_i32(struct api_codec *c, int32_t *v) { io_raw(c, v, sizeof *v); }
static void io_i64(struct api_codec *c, int64_t *v) { io_raw(c, v, sizeof *v); }
static void io_f32(struct api_codec *c, float *v) { io_raw(c, v, sizeof *v); }

static void io_bool(struct api_codec *c, bool *v)
{
    uint8_t byte = c->out ? *v : 0;
    io_raw(c, &byte, 1);
    c->ok = c->ok && byte <= 1;
    *v = byte == 1;
}

/* v points to an enum; values 0 .. count - 1. */
static void io_enum(struct api_codec *c, void *v, uint32_t count)
{
    uint32_t u = 0;
    if (c->out)
        memcpy(&u, v, sizeof u);
    io_u32(c, &u);
    if (u >= count) {
        c->ok = false;
        u = 0;
    }
    memcpy(v, &u, sizeof u);
}

static void io_str(struct api_codec *c, str *s)
{
    uint32_t len = (uint32_t)s->len;
    must(!c->out || s->len <= UINT32_MAX);
    io_u32(c, &len);
    if (c->out && c->lent && len >= API_FRAME_LENT_MIN) {
        struct api_frame_lent row = {c->out->len, *s};
        buf_add_bytes(c->lent, &row, sizeof row);
    } else if (c->out) {
        buf_add(c->out, *s);
    } else if (c->ok && (size_t)(c->end - c->p) >= len) {
        *s = str_view(len ? c->p : NULL, len);
        c->p += len;
    } else {
        c->ok = false;
        *s = (str){NULL, 0};
    }
}

static void io_utf8(struct api_codec *c, str *s)
{
    io_str(c, s);
    if (!c->out && str_utf8_valid(*s) != s->len)
        c->ok = false;
}

/* The count, and room for so many items; bytes_min: what the smallest item takes on the wire, so
 * that a count is believed only as far as bytes remain. */
static void *io_list(struct api_codec *c, const void *items, uint32_t *count, size_t item_size,
                     size_t bytes_min)
{
    io_u32(c, count);
    if (c->out)
        return (void *)items;
    void *made = NULL;
    if (*count && c->ok && *count <= (size_t)(c->end - c->p) / bytes_min)
        made = arena_alloc_array(c->arena, *count, item_size);
    if (*count && !made) {
        c->ok = false;
        *count = 0;
    }
    return made;
}

static void io_ids(struct api_codec *c, const int32_t **ids, uint32_t *count)
{
    int32_t *p = io_list(c, *ids, count, sizeof **ids, sizeof **ids);
    *ids = p;
    if (*count)
        io_raw(c, p, *count * sizeof *p);
}

static void io_strs(struct api_codec *c, const str **items, uint32_t *count)
{
    str *p = io_list(c, *items, count, sizeof **items, 4);
    *items = p;
    for (uint32_t i = 0; i < *count && (c->out || c->ok); i++)
        io_str(c, &p[i]);
}

/* --- request ------------------------------------------------------------------------------- */

static void io_part(struct api_codec *c, struct api_part *p)
{
    io_enum(c, &p->kind, API_PART_COUNT_);
    io_str(c, &p->text);
    io_str(c, &p->id);
    io_str(c, &p->name);
    io_str(c, &p->name_space);
    io_str(c, &p->media_type);
    io_bool(c, &p->is_error);
}

static void io_message(struct api_codec *c, struct api_message *m)
{
    io_enum(c, &m->role, API_ROLE_COUNT_);
    io_str(c, &m->name);
    struct api_part *parts = io_list(c, m->parts, &m->parts_count, sizeof *parts, 25);
    m->parts = parts;
    for (uint32_t i = 0; i < m->parts_count && (c->out || c->ok); i++)
        io_part(c, &parts[i]);
    io_ids(c, &m->ids, &m->ids_count);
}

static void io_input(struct api_codec *c, struct api_input *in)
{
    io_str(c, &in->text);
    io_ids(c, &in->ids, &in->ids_count);
}

static void io_tool(struct api_codec *c, struct api_tool *t)
{
    io_enum(c, &t->kind, API_TOOL_COUNT_);
    io_str(c, &t->name_space);
    io_str(c, &t->name);
    io_str(c, &t->description);
    io_str(c, &t->schema);
    io_bool(c, &t->strict);
    io_bool(c, &t->allowed);
    io_str(c, &t->path);
}

static void io_format(struct api_codec *c, struct api_format *f)
{
    io_enum(c, &f->kind, API_FORMAT_COUNT_);
    io_str(c, &f->text);
    io_str(c, &f->name);
    io_bool(c, &f->strict);
    io_str(c, &f->path);
}

static void io_resume(struct api_codec *c, const struct api_resume **resume)
{
    bool is_there = *resume != NULL;
    io_bool(c, &is_there);
    struct api_resume *r = (struct api_resume *)*resume;
    if (!c->out) {
        r = is_there && c->ok ? ARENA_NEW(c->arena, struct api_resume) : NULL;
        *resume = r;
        c->ok = c->ok && (r || !is_there);
    }
    if (!r)
        return;
    io_u64(c, &r->model_hash);
    struct api_partial *p = io_list(c, r->partials, &r->partials_count, sizeof *p, 24);
    r->partials = p;
    for (uint32_t i = 0; i < r->partials_count && (c->out || c->ok); i++) {
        io_u32(c, &p[i].choice);
        io_u32(c, &p[i].tokens_used);
        io_message(c, &p[i].message);
    }
}

static void io_request_lists(struct api_codec *c, struct api_request *rq)
{
    struct api_message *m = io_list(c, rq->messages, &rq->messages_count, sizeof *m, 16);
    rq->messages = m;
    for (uint32_t i = 0; i < rq->messages_count && (c->out || c->ok); i++)
        io_message(c, &m[i]);
    struct api_input *in = io_list(c, rq->inputs, &rq->inputs_count, sizeof *in, 8);
    rq->inputs = in;
    for (uint32_t i = 0; i < rq->inputs_count && (c->out || c->ok); i++)
        io_input(c, &in[i]);
    struct api_tool *t = io_list(c, rq->tools, &rq->tools_count, sizeof *t, 22);
    rq->tools = t;
    for (uint32_t i = 0; i < rq->tools_count && (c->out || c->ok); i++)
        io_tool(c, &t[i]);
    struct api_bias *bias = io_list(c, rq->bias, &rq->bias_count, sizeof *bias, 8);
    rq->bias = bias;
    for (uint32_t i = 0; i < rq->bias_count && (c->out || c->ok); i++) {
        io_i32(c, &bias[i].id);
        io_f32(c, &bias[i].bias);
    }
    io_strs(c, &rq->stop, &rq->stop_count);
    io_ids(c, &rq->stop_ids, &rq->stop_ids_count);
    struct api_note *n = io_list(c, rq->notes, &rq->notes_count, sizeof *n, 8);
    rq->notes = n;
    for (uint32_t i = 0; i < rq->notes_count && (c->out || c->ok); i++) {
        io_str(c, &n[i].code);
        io_str(c, &n[i].text);
    }
}

static void io_request(struct api_codec *c, struct api_request *rq)
{
    io_enum(c, &rq->kind, API_KIND_COUNT_);
    io_u64(c, &rq->given);
    io_u64(c, &rq->ids_hash);
    io_str(c, &rq->model);
    io_str(c, &rq->leg);
    io_str(c, &rq->suffix);
    io_str(c, &rq->prediction);
    io_enum(c, &rq->tool_choice, API_TOOL_CHOICE_COUNT_);
    io_format(c, &rq->format);
    bool *const bools[] = {&rq->parallel_tool_calls, &rq->stream, &rq->echo, &rq->replay,
                           &rq->parse_special, &rq->continue_last, &rq->ignore_eos,
                           &rq->keep_stop, &rq->add_special};
    for (size_t i = 0; i < countof(bools); i++)
        io_bool(c, bools[i]);
#define X(name, field, type, low, high) io_raw(c, &rq->field, sizeof rq->field);
    API_NUMBERS(X)
#undef X
    io_u64(c, &rq->seed);
    io_enum(c, &rq->think, API_THINK_COUNT_);
    io_enum(c, &rq->effort, API_EFFORT_COUNT_);
    io_str(c, &rq->template_args);
    io_str(c, &rq->agent);
    io_str(c, &rq->session);
    io_str(c, &rq->context);
    io_str(c, &rq->owner);
    io_str(c, &rq->scope);
    io_enum(c, &rq->cache, API_CACHE_COUNT_);
    io_enum(c, &rq->priority, API_PRIORITY_COUNT_);
    io_u32(c, &rq->weight);
    io_u32(c, &rq->key_weight);
    io_enum(c, &rq->truncate, API_TRUNCATE_COUNT_);
    io_i64(c, &rq->time_s);
    io_i64(c, &rq->keep_alive_ms);
    io_request_lists(c, rq);
    io_resume(c, &rq->resume);
}

/* --- events -------------------------------------------------------------------------------- */

static void io_queued(struct api_codec *c, struct api_queued *q)
{
    io_u32(c, &q->place);
    io_u64(c, &q->tokens_ahead);
    uint32_t *const numbers[] = {&q->prompt_tokens, &q->cached_tokens, &q->cut_messages,
                                 &q->cut_tokens, &q->kept_tokens, &q->first_kept};
    for (size_t i = 0; i < countof(numbers); i++)
        io_u32(c, numbers[i]);
}

static void io_started(struct api_codec *c, struct api_started *s)
{
    io_str(c, &s->leg);
    io_str(c, &s->model);
    io_u64(c, &s->model_hash);
    io_u32(c, &s->prompt_tokens);
    io_u32(c, &s->cached_tokens);
}

static void io_top(struct api_codec *c, struct api_top *t)
{
    io_i32(c, &t->id);
    io_f32(c, &t->logprob);
    io_str(c, &t->bytes);
}

static void io_text(struct api_codec *c, struct api_text *t)
{
    io_utf8(c, &t->text);
    struct api_logprob *l = io_list(c, t->logprobs, &t->logprobs_count, sizeof *l, 16);
    t->logprobs = l;
    for (uint32_t i = 0; i < t->logprobs_count && (c->out || c->ok); i++) {
        io_top(c, &l[i].token);
        struct api_top *top = io_list(c, l[i].top, &l[i].top_count, sizeof *top, 12);
        l[i].top = top;
        for (uint32_t k = 0; k < l[i].top_count && (c->out || c->ok); k++)
            io_top(c, &top[k]);
    }
}

static void io_call(struct api_codec *c, struct api_call *call)
{
    io_u32(c, &call->index);
    io_enum(c, &call->tool_kind, API_TOOL_COUNT_);
    io_utf8(c, &call->id);
    io_utf8(c, &call->name);
    io_utf8(c, &call->name_space);
    io_utf8(c, &call->args);
}

static void io_embedding(struct api_codec *c, struct api_embedding *m)
{
    io_u32(c, &m->index);
    float *p = io_list(c, m->floats, &m->floats_count, sizeof *p, sizeof *p);
    m->floats = p;
    if (m->floats_count)
        io_raw(c, p, m->floats_count * sizeof *p);
    io_bool(c, &m->is_truncated);
}

static void io_tokens(struct api_codec *c, struct api_tokens *t)
{
    io_u32(c, &t->index);
    io_u32(c, &t->tokens_count);
    uint32_t ids_count = t->ids ? t->tokens_count : 0;
    io_ids(c, &t->ids, &ids_count);
    io_utf8(c, &t->text);
    uint32_t pieces_count = t->pieces ? t->tokens_count : 0;
    io_strs(c, &t->pieces, &pieces_count);
    if ((ids_count && ids_count != t->tokens_count) ||
        (pieces_count && pieces_count != t->tokens_count))
        c->ok = false;
}

static void io_model(struct api_codec *c, struct api_model *m)
{
    io_utf8(c, &m->name);
    io_u32(c, &m->context_max);
    io_u32(c, &m->caps);
    c->ok = c->ok && m->caps <= API_CAP_ALL_;
    io_u64(c, &m->model_hash);
    io_utf8(c, &m->digest);
    io_u64(c, &m->bytes);
    io_utf8(c, &m->type);
    io_utf8(c, &m->chat_template);
    io_enum(c, &m->state, API_MODEL_STATE_COUNT_);
    io_i64(c, &m->expires_s);
    io_utf8(c, &m->family);
    io_u64(c, &m->parameters);
    io_utf8(c, &m->quant);
    io_i64(c, &m->modified_s);
    io_utf8(c, &m->license);
    io_utf8(c, &m->info);
    io_u64(c, &m->device_bytes);
    io_u64(c, &m->gpu_bytes);
    io_u32(c, &m->slots);
    io_u32(c, &m->kv_tokens);
}

static void io_prefix(struct api_codec *c, struct api_prefix *p)
{
    io_raw(c, p->key, sizeof p->key);
    io_u32(c, &p->pages);
    io_u64(c, &p->bytes);
}

static void io_usage(struct api_codec *c, struct api_usage *u)
{
    uint32_t *const tokens[] = {&u->prompt_tokens, &u->cached_tokens, &u->cache_write_tokens,
                                &u->output_tokens, &u->reasoning_tokens,
                                &u->draft_accepted_tokens, &u->draft_rejected_tokens,
                                &u->preemptions};
    uint64_t *const times[] = {&u->load_ns, &u->queue_ns, &u->prefill_ns, &u->decode_ns};
    for (size_t i = 0; i < countof(tokens); i++)
        io_u32(c, tokens[i]);
    for (size_t i = 0; i < countof(times); i++)
        io_u64(c, times[i]);
    io_prefix(c, &u->prefix);
}

static void io_err(struct api_codec *c, struct err *e)
{
    io_enum(c, &e->code, ERR_INTERNAL + 1);
    str text = str_of(e->text);
    io_utf8(c, &text);
    if (c->out)
        return;
    if (text.len >= sizeof e->text || str_find_byte(text, 0) != STR_NONE) {
        c->ok = false;
        return;
    }
    if (text.len)
        memcpy(e->text, text.p, text.len);
    e->text[text.len] = 0;
}

static void io_error(struct api_codec *c, struct api_error *e)
{
    io_err(c, &e->err);
    io_utf8(c, &e->code);
    io_utf8(c, &e->param);
    io_i64(c, &e->retry_after_ms);
    io_u32(c, &e->prompt_tokens);
    io_u32(c, &e->limit);
}

static void io_models(struct api_codec *c, struct api_models *m)
{
    struct api_model *rows = io_list(c, m->rows, &m->rows_count, sizeof *rows, 100);
    m->rows = rows;
    for (uint32_t i = 0; i < m->rows_count && (c->out || c->ok); i++)
        io_model(c, &rows[i]);
}

static void io_event(struct api_codec *c, struct api_event *ev)
{
    io_enum(c, &ev->kind, API_EVENT_COUNT_);
    switch (ev->kind) {
    case API_EVENT_QUEUED:
        io_queued(c, &ev->queued);
        break;
    case API_EVENT_PROGRESS:
        io_u32(c, &ev->progress.tokens_done);
        io_u32(c, &ev->progress.tokens_total);
        io_f32(c, &ev->progress.tokens_per_s);
        break;
    case API_EVENT_STARTED:
        io_started(c, &ev->started);
        break;
    case API_EVENT_PARKED:
        io_bool(c, &ev->parked.on);
        break;
    case API_EVENT_NOTE:
        io_utf8(c, &ev->note.code);
        io_utf8(c, &ev->note.text);
        break;
    case API_EVENT_REASONING: case API_EVENT_CONTENT:
        io_text(c, &ev->text);
        break;
    case API_EVENT_CALL_BEGIN: case API_EVENT_CALL_ARGS: case API_EVENT_CALL_END:
        io_call(c, &ev->call);
        break;
    case API_EVENT_EMBEDDING:
        io_embedding(c, &ev->embedding);
        break;
    case API_EVENT_TOKENS:
        io_tokens(c, &ev->tokens);
        break;
    case API_EVENT_MODELS:
        io_models(c, &ev->models);
        break;
    case API_EVENT_USAGE:
        io_usage(c, &ev->usage);
        break;
    case API_EVENT_DONE:
        io_enum(c, &ev->done.reason, API_DONE_COUNT_);
        io_utf8(c, &ev->done.stop);
        break;
    case API_EVENT_ERROR:
        io_error(c, &ev->error);
        break;
    case API_EVENT_COUNT_:
        break;
    }
}

static void io_batch(struct api_codec *c, struct api_batch *b)
{
    io_u32(c, &b->choice);
    io_ids(c, &b->ids, &b->ids_count);
    struct api_event *events = io_list(c, b->events, &b->events_count, sizeof *events, 5);
    b->events = events;
    for (uint32_t i = 0; i < b->events_count && (c->out || c->ok); i++)
        io_event(c, &events[i]);
}

/* --- messages ------------------------------------------------------------------------------ */

static void io_load(struct api_codec *c, struct api_load *l)
{
    io_str(c, &l->path);
    io_str(c, &l->name);
    io_u64(c, &l->memory_bytes);
    uint32_t *const numbers[] = {&l->context, &l->slots, &l->batch, &l->threads,
                                 &l->step_target_ms, &l->loop_tokens, &l->miss_excerpt,
                                 &l->layers, &l->pin_permille, &l->idle_permille};
    for (size_t i = 0; i < countof(numbers); i++)
        io_u32(c, numbers[i]);
    io_enum(c, &l->kv, API_KV_COUNT_);
    io_enum(c, &l->activations, API_ACTIVATIONS_COUNT_);
    io_str(c, &l->backend);
    io_str(c, &l->level);
    io_str(c, &l->chat_template);
    io_str(c, &l->tool_format);
    io_enum(c, &l->tool_grammar, API_TOOL_GRAMMAR_COUNT_);
    io_bool(c, &l->no_prefix);
    io_str(c, &l->spill);
    io_u64(c, &l->spill_bytes);
    io_u64(c, &l->spill_floor);
    io_u64(c, &l->ram_bytes);
}

static void io_beat(struct api_codec *c, struct api_beat *b)
{
    io_u64(c, &b->step);
    io_enum(c, &b->phase, API_PHASE_COUNT_);
    io_u64(c, &b->progress);
    io_u64(c, &b->op_ns_max);
    io_u32(c, &b->running);
    io_u32(c, &b->queued);
    io_u64(c, &b->tokens_done);
    io_u64(c, &b->tokens_queued);
    io_u64(c, &b->preemptions);
    io_u64(c, &b->recomputed_tokens);
    for (int i = 0; i < API_PAGES_COUNT_; i++)
        io_u64(c, &b->pages[i]);
    io_u64(c, &b->tier.ram_bytes);
    io_u64(c, &b->tier.ssd_bytes);
    io_u64(c, &b->tier.read_bytes);
    io_u64(c, &b->tier.written_bytes);
    io_u64(c, &b->tier.bad_sums);
    io_bool(c, &b->tier.is_broken);
    io_f32(c, &b->prefill_tokens_per_s);
    io_f32(c, &b->decode_tokens_per_s);
    for (int k = 0; k < API_STEP_COUNT_; k++) {
        for (uint32_t i = 0; i <= API_STEP_BUCKETS; i++)
            io_u64(c, &b->steps[k].counts[i]);
        io_u64(c, &b->steps[k].ns);
    }
}

static void io_hello(struct api_codec *c, struct api_hello *h)
{
    io_utf8(c, &h->build_id);
    io_utf8(c, &h->version);
    io_u32(c, &h->pid);
}

static void io_drop(struct api_codec *c, struct api_drop *d)
{
    io_utf8(c, &d->agent);
    io_utf8(c, &d->session);
    io_utf8(c, &d->scope);
    io_bool(c, &d->has_scope);
    io_u32(c, &d->from);
}

static void io_look(struct api_codec *c, struct api_look *l)
{
    struct api_prefix *rows = io_list(c, l->prefixes, &l->prefixes_count, sizeof *rows,
                                      API_PREFIX_KEY_SIZE + 12);
    l->prefixes = rows;
    for (uint32_t i = 0; i < l->prefixes_count && (c->out || c->ok); i++)
        io_prefix(c, &rows[i]);
}

static void io_places(struct api_codec *c, str *places)
{
    io_str(c, places);
    for (size_t i = 0; !c->out && i < places->len; i++)
        c->ok = c->ok && (uint8_t)places->p[i] < API_PLACE_COUNT_;
}

static void io_body(struct api_codec *c, struct api_frame *f)
{
    switch (f->kind) {
    case API_FRAME_DESCRIBE:
        io_str(c, &f->path);
        break;
    case API_FRAME_LOAD:
        io_load(c, &f->load);
        break;
    case API_FRAME_SUBMIT:
        io_request(c, &f->submit);
        break;
    case API_FRAME_CREDIT:
        io_u32(c, &f->credit.bytes);
        break;
    case API_FRAME_HOLD:
        io_bool(c, &f->hold.on);
        break;
    case API_FRAME_UNPIN:
        io_utf8(c, &f->context);
        break;
    case API_FRAME_DROP:
        io_drop(c, &f->drop);
        break;
    case API_FRAME_DROPPED:
        io_u64(c, &f->dropped.pages);
        io_u64(c, &f->dropped.bytes);
        break;
    case API_FRAME_LOOK:
        io_look(c, &f->look);
        break;
    case API_FRAME_LOOKED:
        io_places(c, &f->places);
        break;
    case API_FRAME_STATS:
        io_utf8(c, &f->stats);
        break;
    case API_FRAME_HELLO:
        io_hello(c, &f->hello);
        break;
    case API_FRAME_DESCRIBED: case API_FRAME_LOADED:
        io_model(c, &f->model);
        break;
    case API_FRAME_LOADING:
        io_u64(c, &f->loading.bytes_done);
        io_u64(c, &f->loading.bytes_total);
        break;
    case API_FRAME_BATCH:
        io_batch(c, &f->batch);
        break;
    case API_FRAME_BEAT:
        io_beat(c, &f->beat);
        break;
    case API_FRAME_FAULT:
        io_err(c, &f->fault);
        break;
    case API_FRAME_DRAIN: case API_FRAME_EXIT: case API_FRAME_CANCEL: case API_FRAME_MORE:
    case API_FRAME_NONE_: case API_FRAME_COUNT_:
        break;
    }
}

void api_frame_put_body(struct buf *out, const struct api_frame *f)
{
    struct api_codec c = {.out = out, .ok = true};
    struct api_frame copy = *f; /* the io functions take what they might fill */
    io_body(&c, &copy);
}

void api_frame_lend_body(struct buf *out, struct buf *lent, const struct api_frame *f)
{
    struct api_codec c = {.out = out, .lent = lent, .ok = true};
    struct api_frame copy = *f;
    io_body(&c, &copy);
}

bool api_frame_take_body(struct api_frame *out, str body, struct arena *a, struct err *e)
{
    struct api_codec c = {.p = body.p, .end = body.p + body.len, .arena = a, .ok = true};
    io_body(&c, out);
    if (c.ok && c.p == c.end)
        return true;
    return err_set(e, ERR_FORMAT, "frame %s: broken at byte %zu of %zu", api_frame_name(out->kind),
                   (size_t)(c.p - body.p), body.len);
}
