#include "serve/exchange_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/digest.h"
#include "serve/agents.h"
#include "serve/limits.h"
#include "serve/misses.h"
#include "serve/sessions.h"

#define EXCHANGE_MEMORY_MIN ((size_t)1 << 20) /* beside 4 times the body */
#define EXCHANGE_OUT_MAX (DIALECT_REPLY_MAX * 3) /* escaped, twice for reasoning */
#define EXCHANGE_MODELS_MAX 64

void exchange_make_id(char out[EXCHANGE_ID_LEN + 1])
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint8_t bytes[EXCHANGE_ID_LEN - 4];
    digest_random(bytes, sizeof bytes);
    memcpy(out, "req_", 4);
    for (size_t i = 0; i < sizeof bytes; i++) /* a little uneven: an id, not a key */
        out[4 + i] = letters[bytes[i] % (sizeof letters - 1)];
    out[EXCHANGE_ID_LEN] = 0;
}

/* --- the set ------------------------------------------------------------------------------- */

bool exchange_set_open(struct exchange_set **out, const struct exchange_options *o, struct err *e)
{
    struct exchange_set *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "serve: no memory");
    s->o = *o;
    list_init(&s->all);
    list_init(&s->waiting);
    *out = s;
    if (quota_open(&s->quota, e) &&
        loop_later_open(&s->retry, o->loop, exchange_read_retry, s, e))
        return true;
    exchange_set_close(s);
    return false;
}

void exchange_set_close(struct exchange_set *s)
{
    if (!s)
        return;
    workers_close(s->workers); /* frees those whose client is gone */
    must(list_is_empty(&s->all));
    loop_later_close(&s->retry);
    quota_close(s->quota);
    free(s);
}

void exchange_set_change(struct exchange_set *s, const struct exchange_options *o) { s->o = *o; }

uint32_t exchange_set_count(const struct exchange_set *s) { return s->count; }

/* --- the end of one ------------------------------------------------------------------------ */

static struct contexts_new exchange_context(const struct exchange *x)
{
    const struct dialect_contexts_state *st = (const struct dialect_contexts_state *)x->st;
    return (struct contexts_new){.content = st->content, .ttl_ms = st->ttl_ms,
                                 .unix_ms = x->saved_unix_ms, .prefix = st->s.usage.prefix,
                                 .tokens = st->s.usage.prompt_tokens,
                                 .cached_tokens = st->s.usage.cached_tokens,
                                 .has_pin = st->has_pin, .is_pinned = st->pin};
}

/* A context that was prefilled is saved, with the memory that its messages lie in. */
static void exchange_leave_contexts(struct exchange *x)
{
    struct contexts *s = x->set->o.contexts;
    if (x->forks)
        contexts_leave(s, x->forks);
    if (x->saves && x->is_saved) {
        struct contexts_new n = exchange_context(x);
        contexts_end(s, x->saves, &n, &x->kept, &x->arena, loop_ms());
    } else if (x->saves) {
        contexts_drop(s, x->saves);
    }
}

static void exchange_leave_session(struct exchange *x)
{
    const struct sessions_turn t = {
        .scope = x->rq.scope, .id = x->rq.session, .agent = x->rq.agent, .leg = x->m.leg,
        .model = x->st->leg_model.len ? x->st->leg_model : x->model,
        .tokens = x->m.prompt_tokens + x->m.output_tokens};
    if (t.id.len && x->m.is_started && x->m.outcome == METRICS_OUTCOME_OK)
        sessions_add(x->set->o.sessions, &t, loop_ms());
}

/* A request that was refused before anybody was asked came to nothing, and counts as that. */
static void exchange_leave_agent(struct exchange *x)
{
    const struct agents_end end = {
        .who = {x->rq.owner, x->rq.agent}, .prompt_tokens = x->m.prompt_tokens,
        .cached_tokens = x->m.cached_tokens, .output_tokens = x->m.output_tokens,
        .preemptions = x->m.usage.preemptions, .legs = x->m.leg,
        .said = x->st->legs_json};
    if (x->is_counted)
        agents_end(x->set->o.agents, &end, loop_ms());
}

void exchange_free(struct exchange *x)
{
    struct exchange_set *s = x->set;
    must(!x->call);
    loop_timer_close(&x->timer);
    list_remove(&x->link);
    list_remove(&x->waits);
    uint64_t prompt = x->m.prompt_tokens, cached = base_min(x->m.cached_tokens, prompt);
    quota_leave(s->quota, &x->ticket, prompt - cached + x->m.output_tokens, loop_ms());
    if (!list_is_empty(&s->waiting))
        loop_later_set(&s->retry);
    s->count--;
    metrics_end(s->o.metrics, &x->m, loop_ms());
    for (uint32_t i = 0; i < x->st->notes_count; i++)
        metrics_warning(s->o.metrics, x->st->notes[i].code);
    if (x->st->queued.cut_messages)
        metrics_truncated(s->o.metrics);
    exchange_leave_contexts(x);
    exchange_leave_session(x);
    exchange_leave_agent(x);
    dialect_state_deinit(x->st);
    free(x->st);
    transcript_deinit(&x->said);
    arena_deinit(&x->lent);
    buf_deinit(&x->out);
    buf_deinit(&x->body);
    arena_deinit(&x->arena);
    free(x);
}

/* Before the last byte is handed over: what the connection lent is gone with it. */
static void exchange_detach(struct exchange *x)
{
    x->call->exchange = NULL;
    if (x->set->o.on_end)
        x->set->o.on_end(x->set->o.ctx, x->call);
    x->call = NULL;
}

static void exchange_cancel(struct exchange *x)
{
    if (x->is_submitted)
        x->set->o.provider.cancel(x->set->o.provider.self, x->rq.id);
    x->is_submitted = false;
}

/* --- the reply's head ---------------------------------------------------------------------- */

static void exchange_add_warnings(struct exchange *x)
{
    for (uint32_t i = 0; i < x->st->notes_count; i++) {
        char text[256];
        int n = snprintf(text, sizeof text, "%.*s; %.*s", STR_ARG(x->st->notes[i].code),
                         STR_ARG(x->st->notes[i].text));
        if (n > 0)
            http_conn_add_header(x->conn, "Shoal-Warning", str_of(text));
    }
}

static void exchange_add_headers(struct exchange *x)
{
    char text[80];
    if (x->st->leg.len) {
        http_conn_add_header(x->conn, "Shoal-Leg", x->st->leg);
        http_conn_add_header(x->conn, "Shoal-Model", x->st->leg_model);
    }
    if (x->substituted.len)
        http_conn_add_header(x->conn, "Shoal-Substituted", x->substituted);
    if (x->m.is_started) {
        snprintf(text, sizeof text, "cached=%u; prompt=%u", x->m.cached_tokens,
                 x->m.prompt_tokens);
        http_conn_add_header(x->conn, "Shoal-Cache", str_of(text));
    }
    if (x->st->queued.cut_messages) {
        snprintf(text, sizeof text, "messages=%u; tokens=%u", x->st->queued.cut_messages,
                 x->st->queued.cut_tokens);
        http_conn_add_header(x->conn, "Shoal-Truncated", str_of(text));
    }
    exchange_add_warnings(x);
    if (x->why.err.code != ERR_NONE && x->why.retry_after_ms > 0) {
        snprintf(text, sizeof text, "%lld", (long long)((x->why.retry_after_ms + 999) / 1000));
        http_conn_add_header(x->conn, "Retry-After", str_of(text));
    }
}

static void exchange_begin(struct exchange *x)
{
    exchange_add_headers(x);
    http_conn_add_header(x->conn, "Cache-Control", STR("no-store"));
    http_conn_add_header(x->conn, "X-Accel-Buffering", STR("no"));
    x->m.status = 200;
    http_conn_begin(x->conn, 200, x->dialect->stream_type);
}

static void exchange_reply(struct exchange *x)
{
    int status = 200;
    if (x->saves)
        status = ((const struct dialect_contexts_state *)x->st)->is_known ? 200 : 201;
    if (x->why.err.code != ERR_NONE)
        status = dialect_status(x->st, &x->why);
    x->m.status = (uint16_t)status;
    exchange_add_headers(x);
    exchange_detach(x);
    http_conn_reply(x->conn, status, "application/json", buf_view(&x->out));
}

void exchange_arm(struct exchange *x);

/* --- writing ------------------------------------------------------------------------------- */

/* Sends what was written and ends what is over; x may be gone afterwards. */
static void exchange_flush(struct exchange *x)
{
    bool is_over = x->st->is_over;
    if (x->out.full) { /* the form cannot be told any more: a broken connection says it */
        exchange_cancel(x);
        exchange_detach(x);
        x->m.outcome = METRICS_OUTCOME_FAILED;
        http_conn_abort(x->conn);
        exchange_free(x);
        return;
    }
    bool has_begun = http_conn_has_begun(x->conn);
    bool is_refused = !has_begun && x->why.err.code != ERR_NONE;
    if (!has_begun && is_over && (is_refused || !x->st->stream)) {
        exchange_cancel(x);
        exchange_reply(x);
        exchange_free(x);
        return;
    }
    if (!x->st->stream || x->out.len == 0)
        return;
    if (!has_begun)
        exchange_begin(x);
    http_conn_write(x->conn, buf_view(&x->out));
    buf_clear(&x->out);
    x->wrote_ms = loop_ms();
    if (!has_begun)
        exchange_arm(x);
    if (is_over) {
        exchange_cancel(x);
        exchange_detach(x);
        http_conn_end(x->conn);
        exchange_free(x);
        return;
    }
    if (!x->is_held && http_conn_is_slow(x->conn)) {
        x->is_held = true;
        x->set->o.provider.hold(x->set->o.provider.self, x->rq.id, true);
    }
}

static void exchange_count_error(struct exchange *x)
{
    int status = dialect_status(x->st, &x->why);
    x->m.error = x->why.err.code;
    x->m.outcome = http_conn_has_begun(x->conn) ? METRICS_OUTCOME_FAILED
                                                : metrics_outcome_of_status(status);
}

/* In the dialect's form: the whole reply, or in-band. x is gone afterwards. */
void exchange_fail(struct exchange *x, const struct api_error *why)
{
    x->why = *why;
    exchange_count_error(x);
    exchange_cancel(x);
    x->dialect->write_error(&x->out, x->st, why);
    x->st->is_over = true;
    exchange_flush(x);
}

/* --- what the provider says ---------------------------------------------------------------- */

/* USAGE came before: the object can be written. */
static void exchange_save(struct exchange *x)
{
    struct dialect_contexts_state *st = (struct dialect_contexts_state *)x->st;
    if (!x->saves)
        return;
    x->saved_unix_ms = chrono_unix_ms(&chrono_real); /* one moment for the reply and what is kept */
    struct contexts_new n = exchange_context(x);
    contexts_row(x->saves, &n, &st->row);
    x->is_saved = true;
}

static void exchange_note(struct exchange *x, const struct api_event *ev)
{
    x->is_parked = false; /* also where another leg goes on */
    switch (ev->kind) {
    case API_EVENT_QUEUED:
        x->place = ev->queued.place;
        break;
    case API_EVENT_PROGRESS:
        x->phase = EXCHANGE_PHASE_PREFILL;
        x->tokens_done = ev->progress.tokens_done;
        x->tokens_total = ev->progress.tokens_total;
        break;
    case API_EVENT_PARKED:
        x->is_parked = ev->parked.on;
        break;
    case API_EVENT_STARTED:
        x->phase = EXCHANGE_PHASE_DECODE;
        metrics_started(x->set->o.metrics, &x->m, &ev->started, loop_ms());
        quota_begin(&x->ticket);
        if (x->rq.deadline.generation_ms)
            exchange_arm(x);
        break;
    case API_EVENT_USAGE:
        metrics_usage(&x->m, &ev->usage, loop_ms());
        break;
    case API_EVENT_DONE:
        x->m.finish = ev->done.reason;
        x->m.outcome = METRICS_OUTCOME_OK;
        x->st->total_ns = (uint64_t)(loop_ms() - x->m.arrived_ms) * 1000000;
        exchange_save(x);
        break;
    case API_EVENT_ERROR:
        x->why = ev->error;
        exchange_count_error(x);
        x->is_submitted = false;
        break;
    case API_EVENT_NOTE: case API_EVENT_REASONING: case API_EVENT_CONTENT:
    case API_EVENT_CALL_BEGIN: case API_EVENT_CALL_ARGS: case API_EVENT_CALL_END:
    case API_EVENT_EMBEDDING: case API_EVENT_TOKENS: case API_EVENT_MODELS: case API_EVENT_COUNT_:
        break;
    }
}

/* A stop string and a deadline cut the text, but not the ids: such a reply is only text. */
static bool exchange_is_whole(enum api_done reason)
{
    return reason != API_DONE_STOP_STRING && reason != API_DONE_CANCELLED &&
           reason != API_DONE_DEADLINE && reason != API_DONE_MAX_GEN;
}

static void exchange_keep(struct exchange *x, const struct api_batch *b)
{
    if (!x->said.choices)
        return;
    for (uint32_t i = 0; i < b->events_count; i++)
        if (b->events[i].kind == API_EVENT_NOTE &&
            str_eq_z(b->events[i].note.code, "failover")) { /* ids of two models are no reply's */
            transcript_deinit(&x->said);
            return;
        }
    transcript_add(&x->said, b);
    for (uint32_t i = 0; i < b->events_count; i++)
        if (b->events[i].kind == API_EVENT_DONE && exchange_is_whole(b->events[i].done.reason))
            replay_keep(x->set->o.replay, &x->rq, &x->said, b->choice, loop_ms());
}

/* "from=claude; to=desk; reason=stall; sent=12": the value of a name. */
static str exchange_value(str note, const char *name)
{
    str field, key;
    while (str_split(&note, ';', &field)) {
        field = str_trim(field);
        if (str_split(&field, '=', &key) && str_eq_z(key, name))
            return field;
    }
    return STR("");
}

/* The reply goes on at another leg: the log names all, in order; a reply whose headers are still to
 * come (it is not streamed) shows it there. */
static void exchange_moves(struct exchange *x, const struct dialect_ping *p)
{
    x->m.leg = arena_printf(&x->arena, "%.*s>%.*s", STR_ARG(x->m.leg), STR_ARG(p->to));
    if (http_conn_has_begun(x->conn))
        return;
    str first = x->substituted.len ? exchange_value(x->substituted, "from") : p->from;
    str why = x->substituted.len ? exchange_value(x->substituted, "reason") : p->reason;
    x->substituted = arena_printf(&x->arena, "from=%.*s; to=%.*s; reason=%.*s", STR_ARG(first),
                                  STR_ARG(p->to), STR_ARG(why));
    x->st->leg = arena_copy(&x->arena, p->to);
}

/* What attempt says about legs: a header, a comment, a member of `shoal`; no warning. */
static bool exchange_takes(struct exchange *x, const struct api_event *ev)
{
    str text = ev->note.text;
    if (ev->kind != API_EVENT_NOTE)
        return false;
    if (str_eq_z(ev->note.code, "substituted")) {
        x->substituted = arena_copy(&x->arena, text);
    } else if (str_eq_z(ev->note.code, "cache_miss")) {
        x->miss = arena_copy(&x->arena, text);
    } else if (str_eq_z(ev->note.code, "legs")) {
        x->st->legs_json = arena_copy(&x->arena, text);
    } else if (str_eq_z(ev->note.code, "failover")) {
        struct dialect_ping p = {.phase = "failover", .eta_ms = -1,
                                 .from = exchange_value(text, "from"),
                                 .to = exchange_value(text, "to"),
                                 .reason = exchange_value(text, "reason")};
        if (!str_to_u64(exchange_value(text, "sent"), &p.sent))
            p.sent = 0;
        exchange_moves(x, &p);
        if (x->st->stream && http_conn_has_begun(x->conn))
            x->dialect->write_ping(&x->out, x->st, &p);
    } else {
        return false;
    }
    return true;
}

/* The reply's model is the one asked for, or the one that answers instead (BEHAVIOUR 5.3). */
static void exchange_name_model(struct exchange *x, const struct api_event *ev)
{
    if (ev->kind != API_EVENT_STARTED)
        return;
    x->m.leg = arena_copy(&x->arena, ev->started.leg);
    if (x->substituted.len)
        x->st->model = arena_copy(&x->arena, ev->started.model);
}

str exchange_scope(const struct limits_key *key)
{
    return !key ? STR(EXCHANGE_SCOPE_KEYLESS) : key->cache_scope.len ? key->cache_scope : key->name;
}

str exchange_scope_root(str scope)
{
    str keyless = STR(EXCHANGE_SCOPE_KEYLESS);
    size_t blank = str_find_byte(scope, ' ');
    if (str_starts(scope, keyless))
        return str_sub(scope, 0, keyless.len);
    return blank == STR_NONE ? scope : str_sub(scope, 0, blank);
}

static void exchange_tell_miss(struct exchange *x, const struct api_event *ev)
{
    str reason;
    if (ev->kind != API_EVENT_STARTED || x->had_miss)
        return;
    x->had_miss = true;
    const struct misses_request r = {.id = x->id, .rq = &x->rq, .note = x->miss,
                                     .key = x->call->key ? x->call->key->name : STR(""),
                                     .scope = exchange_scope(x->call->key),
                                     .model = ev->started.model, .started = &ev->started};
    if (misses_add(x->set->o.misses, &r, &reason))
        metrics_miss(x->set->o.metrics, &x->m, reason);
}

/* The call that the request left open begins in this reply too, with its name: what follows are the
 * rest of its arguments, and each protocol tells of calls only behind their begin. */
static void exchange_tell_call(struct exchange *x, const struct api_event *ev)
{
    const struct api_request *rq = &x->rq;
    if (ev->kind != API_EVENT_STARTED || !rq->continue_last || rq->messages_count == 0)
        return;
    const struct api_message *m = &rq->messages[rq->messages_count - 1];
    const struct api_part *last = m->parts_count ? &m->parts[m->parts_count - 1] : NULL;
    if (!last || last->kind != API_PART_CALL || !last->is_open)
        return;
    struct api_event begin = {.kind = API_EVENT_CALL_BEGIN,
                              .call = {.id = last->id, .name = last->name,
                                       .name_space = last->name_space}};
    for (uint32_t i = 0; i + 1 < m->parts_count; i++)
        begin.call.index += m->parts[i].kind == API_PART_CALL;
    x->dialect->write_event(&x->out, x->st, 0, &begin);
}

/* A key sees the models that it may ask for: ev, or out with what is left of it. */
static const struct api_event *exchange_filter(struct exchange *x, const struct api_event *ev,
                                               struct api_event *out)
{
    const struct limits_key *key = x->call->key;
    if (ev->kind != API_EVENT_MODELS || !key || key->models_count == 0)
        return ev;
    struct api_model *rows = ARENA_ARRAY(&x->arena, struct api_model, ev->models.rows_count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; rows && i < ev->models.rows_count; i++)
        if (limits_allows_model(key, ev->models.rows[i].name))
            rows[count++] = ev->models.rows[i];
    *out = *ev;
    out->models.rows = rows;
    out->models.rows_count = count;
    return out;
}

uint32_t exchange_slots(const struct exchange *x)
{
    struct api_model rows[EXCHANGE_MODELS_MAX];
    const struct api_provider *p = &x->set->o.provider;
    size_t count = base_min(p->models(p->self, rows, countof(rows)), countof(rows));
    for (size_t i = 0; i < count; i++)
        if (rows[i].slots && str_eq_nocase(rows[i].name, x->model))
            return rows[i].slots;
    return 1;
}

int64_t exchange_retry_ms(const struct exchange *x)
{
    const struct metrics *m = x->set->o.metrics;
    uint32_t slots = exchange_slots(x), open = metrics_open_of(m, x->model);
    return metrics_retry_ms(m, x->model, open > slots ? open - slots : 0);
}

/* BEHAVIOUR 8.4: a first token beyond the request's own deadline is refused at once. Counted are
 * its own tokens without the cached ones and those that go before it for sure, at a rate that was
 * measured, so that nobody is refused who could be served. True: x is gone. */
static bool exchange_refuse_late(struct exchange *x)
{
    const struct api_queued *q = &x->st->queued;
    int64_t left_ms = x->m.arrived_ms + x->rq.deadline.total_ms - loop_ms();
    uint64_t tokens = q->prompt_tokens - base_min(q->cached_tokens, q->prompt_tokens) +
                      q->tokens_ahead;
    struct api_error e = {0};
    struct api_health h;
    if (!x->rq.deadline.total_ms || x->m.is_started || http_conn_has_begun(x->conn))
        return false;
    x->set->o.provider.health(x->set->o.provider.self, &h);
    if (h.prefill_tokens_per_s <= 0)
        return false;
    double first_ms = (double)tokens * 1000 / (double)h.prefill_tokens_per_s;
    if (first_ms <= (double)left_ms)
        return false;
    api_error_set(&e, ERR_OVERLOADED, "", STR(""),
                  "the first token is %.0f ms away (%llu tokens), the deadline of %lld ms is not",
                  first_ms, (unsigned long long)tokens, (long long)x->rq.deadline.total_ms);
    e.retry_after_ms = exchange_retry_ms(x);
    exchange_fail(x, &e);
    return true;
}

void exchange_on_batch(void *ctx, const struct api_batch *b)
{
    struct exchange *x = ctx;
    struct api_provider *p = &x->set->o.provider;
    p->credit(p->self, b->request_id, (uint32_t)api_batch_weight(b));
    exchange_keep(x, b);
    bool was_queued = false;
    uint32_t ids_count = b->ids_count;
    for (uint32_t i = 0; i < b->events_count && !x->st->is_over; i++) {
        struct api_event models;
        const struct api_event *ev = exchange_filter(x, &b->events[i], &models);
        was_queued = was_queued || ev->kind == API_EVENT_QUEUED;
        if (ev->kind == API_EVENT_USAGE) { /* what an engine sampled is part of its usage */
            metrics_tokens(&x->m, ids_count, loop_ms());
            ids_count = 0;
        }
        exchange_note(x, ev);
        exchange_name_model(x, ev);
        exchange_tell_miss(x, ev);
        if (!exchange_takes(x, ev))
            x->dialect->write_event(&x->out, x->st, b->choice, ev);
        exchange_tell_call(x, ev);
    }
    if (ids_count)
        metrics_tokens(&x->m, ids_count, loop_ms());
    if (!was_queued || !exchange_refuse_late(x))
        exchange_flush(x);
}

void exchange_done(struct exchange *x)
{
    struct api_event ev = {.kind = API_EVENT_DONE, .done = {.reason = API_DONE_EOS}};
    exchange_note(x, &ev);
    x->dialect->write_event(&x->out, x->st, 0, &ev);
    exchange_flush(x);
}

/* --- waits --------------------------------------------------------------------------------- */

static int64_t exchange_least(int64_t due, int64_t from_ms, int64_t wait_ms)
{
    int64_t at = from_ms + wait_ms;
    return wait_ms > 0 && (due < 0 || at < due) ? at : due;
}

/* A wait of 0 means none elsewhere; here it means at once. */
static int64_t exchange_defer_ms(const struct exchange_options *o)
{
    return o->defer_ms > 0 ? o->defer_ms : 1;
}

/* The next moment at which something has to be done, or -1. Pings are looked at lazily: a batch
 * moves wrote_ms, not the timer. */
static int64_t exchange_due(const struct exchange *x)
{
    const struct exchange_options *o = &x->set->o;
    bool has_begun = http_conn_has_begun(x->conn);
    int64_t due = exchange_least(-1, x->m.arrived_ms, x->rq.deadline.total_ms);
    if (x->phase == EXCHANGE_PHASE_QUEUED)
        due = exchange_least(due, x->m.arrived_ms, x->wait_ms);
    if (x->m.is_started)
        due = exchange_least(due, x->m.started_ms, x->rq.deadline.generation_ms);
    if (x->st->stream && has_begun)
        due = exchange_least(due, x->wrote_ms, o->ping_ms);
    if (x->st->stream && !has_begun)
        due = exchange_least(due, x->m.arrived_ms, exchange_defer_ms(o));
    return due;
}

void exchange_arm(struct exchange *x)
{
    int64_t due = exchange_due(x), now = loop_ms();
    if (due >= 0)
        loop_timer_set(&x->timer, due > now ? due - now : 0);
}

static void exchange_ping(struct exchange *x)
{
    static const char *const names[] = {
        [EXCHANGE_PHASE_QUEUED] = "queued", [EXCHANGE_PHASE_PREFILL] = "prefill",
        [EXCHANGE_PHASE_DECODE] = "decode",
    };
    struct api_health h;
    x->set->o.provider.health(x->set->o.provider.self, &h);
    bool is_loading = x->phase == EXCHANGE_PHASE_QUEUED && (h.state == API_HEALTH_STARTING ||
                                                            h.state == API_HEALTH_RESTARTING);
    struct dialect_ping p = {.phase = x->is_held   ? "held"
                                      : is_loading ? "loading"
                                                   : names[x->phase],
                             .position = x->place, .done = x->tokens_done, .total = x->tokens_total,
                             .eta_ms = -1};
    if (p.total > p.done && h.prefill_tokens_per_s > 0)
        p.eta_ms = (int64_t)((double)(p.total - p.done) * 1000 / (double)h.prefill_tokens_per_s);
    x->dialect->write_ping(&x->out, x->st, &p);
    exchange_flush(x);
}

/* The time of a started reply is over: what is there is the reply. */
static void exchange_cut(struct exchange *x, enum api_done reason)
{
    uint32_t prompt = x->m.prompt_tokens, cached = x->m.cached_tokens;
    uint32_t choices = x->st->choices_count;
    exchange_cancel(x);
    struct api_event usage = {.kind = API_EVENT_USAGE,
                              .usage = {.prompt_tokens = prompt, .cached_tokens = cached,
                                        .output_tokens = x->m.output_tokens}};
    struct api_event done = {.kind = API_EVENT_DONE, .done = {.reason = reason}};
    x->m.usage = usage.usage;
    x->m.finish = reason;
    x->m.outcome = METRICS_OUTCOME_OK;
    x->dialect->write_event(&x->out, x->st, 0, &usage);
    for (uint32_t i = 0; i < choices && !x->st->is_over; i++)
        if (!x->st->choices[i].is_done)
            x->dialect->write_event(&x->out, x->st, i, &done);
    exchange_flush(x);
}

static void exchange_late(struct exchange *x, enum err_code code, const char *what, int64_t ms)
{
    struct api_error e = {0};
    api_error_set(&e, code, "", STR(""), "%s of %lld ms passed before the first token", what,
                  (long long)ms);
    if (code == ERR_OVERLOADED)
        e.retry_after_ms = exchange_retry_ms(x);
    exchange_fail(x, &e);
}

static bool exchange_is_past(int64_t now, int64_t from_ms, int64_t wait_ms)
{
    return wait_ms > 0 && now - from_ms >= wait_ms;
}

static void exchange_on_time(void *ctx)
{
    struct exchange *x = ctx;
    const struct exchange_options *o = &x->set->o;
    const struct api_deadlines *d = &x->rq.deadline;
    int64_t now = loop_ms();
    bool is_silent = x->st->stream && exchange_is_past(now, x->wrote_ms, o->ping_ms);
    if (!http_conn_has_begun(x->conn))
        is_silent = x->st->stream &&
                    exchange_is_past(now, x->m.arrived_ms, exchange_defer_ms(o));
    if (exchange_is_past(now, x->m.arrived_ms, d->total_ms)) {
        if (x->m.is_started)
            exchange_cut(x, API_DONE_DEADLINE);
        else
            exchange_late(x, ERR_DEADLINE, "the deadline", d->total_ms);
        return;
    }
    if (x->phase == EXCHANGE_PHASE_QUEUED &&
        exchange_is_past(now, x->m.arrived_ms, x->wait_ms)) {
        exchange_late(x, ERR_OVERLOADED, "the longest wait", x->wait_ms);
        return;
    }
    if (x->m.is_started && exchange_is_past(now, x->m.started_ms, d->generation_ms)) {
        exchange_cut(x, API_DONE_MAX_GEN);
        return;
    }
    if (is_silent)
        exchange_ping(x);
    exchange_arm(x);
}

/* --- from outside -------------------------------------------------------------------------- */

void exchange_start(struct exchange_set *s, struct http_conn *c, struct exchange_call *call)
{
    struct exchange *x = calloc(1, sizeof *x);
    struct err ignored;
    size_t body = http_conn_request(c)->body.len;
    if (x)
        x->st = calloc(1, call->dialect->state_size);
    if (!x || !x->st || !loop_timer_open(&x->timer, s->o.loop, exchange_on_time, x, &ignored)) {
        if (x)
            free(x->st);
        free(x);
        http_conn_abort(c);
        return;
    }
    x->set = s;
    x->conn = c;
    x->call = call;
    call->exchange = x;
    x->dialect = call->dialect;
    snprintf(x->id, sizeof x->id, "%.*s", STR_ARG(call->request_id));
    x->st->dialect = call->dialect;
    x->st->request_id = str_of(x->id);
    x->st->overlong_status = s->o.overlong_status;
    arena_init(&x->arena, 4 * body + EXCHANGE_MEMORY_MIN);
    list_init(&x->waits);
    arena_init(&x->lent, REPLAY_LENT_MAX);
    buf_init(&x->out, EXCHANGE_OUT_MAX);
    x->m = (struct metrics_request){.id = str_of(x->id), .dialect = call->dialect->name,
                                    .arrived_ms = loop_ms()};
    x->wrote_ms = x->m.arrived_ms;
    list_push_last(&s->all, &x->link);
    s->count++;
    exchange_read_body(x, body);
}

void exchange_gone(struct exchange *x)
{
    exchange_cancel(x);
    exchange_detach(x);
    x->m.outcome = METRICS_OUTCOME_CANCELLED;
    if (x->reading)
        x->reading->is_gone = true; /* freed when the worker has let go */
    else
        exchange_free(x);
}

void exchange_drain(struct exchange *x)
{
    if (!x->is_held)
        return;
    x->is_held = false;
    x->set->o.provider.hold(x->set->o.provider.self, x->rq.id, false);
}

void exchange_end_all(struct exchange_set *s, struct list *now, const struct api_error *why)
{
    struct list *first;
    while ((first = list_first(now))) {
        struct exchange *x = list_item(first, struct exchange, link);
        if (!x->reading) {
            exchange_fail(x, why);
            continue;
        }
        list_remove(first);
        list_push_last(&s->all, first);
        x->reading->must_end = true;
        x->reading->why = *why;
    }
}

void exchange_set_end(struct exchange_set *s, const struct api_error *why)
{
    struct list now, *first;
    list_init(&now);
    while ((first = list_first(&s->all))) {
        list_remove(first);
        list_push_last(&now, first);
    }
    exchange_end_all(s, &now, why);
}
