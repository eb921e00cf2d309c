#include "serve/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/digest.h"
#include "base/list.h"
#include "serve/limits.h"
#include "serve/metrics.h"
#include "serve/quota.h"
#include "serve/workers.h"
#include "serve/replay.h"

#define EXCHANGE_MEMORY_MIN ((size_t)1 << 20) /* beside 4 times the body */
#define EXCHANGE_OUT_MAX (DIALECT_REPLY_MAX * 3) /* escaped, twice for reasoning */
#define EXCHANGE_MODELS_MAX 64
#define EXCHANGE_LARGE ((size_t)128 << 10) /* a body that takes longer than 2 ms to read */
#define EXCHANGE_WORKERS 2u
#define EXCHANGE_JOBS_MAX 1024u
#define EXCHANGE_SEED_BITS 53 /* a drawn seed survives a client that reads it as a double */

struct exchange_set {
    struct exchange_options o;
    struct list all, waiting; /* waiting: for their key or agent, by arrival */
    struct quota *quota;
    struct loop_later retry; /* somebody has left: who waits may go on */
    struct workers *workers;
    uint32_t count;
    uint64_t last_id;
};

/* How far a request has come, as its pings tell it. */
enum exchange_phase {
    EXCHANGE_PHASE_QUEUED,
    EXCHANGE_PHASE_PREFILL,
    EXCHANGE_PHASE_DECODE,
};

struct exchange {
    struct list link, waits;
    struct quota_ticket ticket;
    struct exchange_set *set;
    struct http_conn *conn;
    struct exchange_call *call; /* dies with the connection's request */
    const struct dialect *dialect;
    char id[EXCHANGE_ID_LEN + 1];
    struct arena arena;
    struct dialect_state *st;
    struct api_request rq;
    struct buf out;
    struct loop_timer timer;
    struct metrics_request m; /* what its end is counted by */
    struct api_error why;     /* code NONE: no error so far */
    enum exchange_phase phase;
    uint32_t place, tokens_done, tokens_total;
    str substituted;  /* Shoal-Substituted, or "" */
    struct api_secret client_key;
    int64_t wrote_ms; /* when the client got something last */
    /* A large body is read elsewhere: until then rq, st and arena are the worker's. */
    struct exchange_reading *reading; /* in arena; NULL: not, or not any more */
    struct buf body;
    int64_t wait_ms;  /* deadlines.max_wait as it was at the start */
    str model;        /* its own name, however it was spelt */
    bool is_submitted, is_held;
    struct arena lent;       /* what replay put into rq */
    struct transcript said;  /* the reply, for replay; nothing if it is not kept */
};

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

static void exchange_on_retry(void *ctx);

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
        loop_later_open(&s->retry, o->loop, exchange_on_retry, s, e))
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

static void exchange_free(struct exchange *x)
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
    if (x->why.err.code != ERR_NONE)
        status = dialect_status(x->st, &x->why);
    x->m.status = (uint16_t)status;
    exchange_add_headers(x);
    exchange_detach(x);
    http_conn_reply(x->conn, status, "application/json", buf_view(&x->out));
}

static void exchange_arm(struct exchange *x);

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
static void exchange_fail(struct exchange *x, const struct api_error *why)
{
    x->why = *why;
    exchange_count_error(x);
    exchange_cancel(x);
    x->dialect->write_error(&x->out, x->st, why);
    x->st->is_over = true;
    exchange_flush(x);
}

/* --- what the provider says ---------------------------------------------------------------- */

static void exchange_note(struct exchange *x, struct api_event *ev)
{
    switch (ev->kind) {
    case API_EVENT_QUEUED:
        x->place = ev->queued.place;
        break;
    case API_EVENT_PROGRESS:
        x->phase = EXCHANGE_PHASE_PREFILL;
        x->tokens_done = ev->progress.tokens_done;
        x->tokens_total = ev->progress.tokens_total;
        break;
    case API_EVENT_STARTED:
        x->phase = EXCHANGE_PHASE_DECODE;
        metrics_started(x->set->o.metrics, &x->m, &ev->started, loop_ms());
        quota_begin(&x->ticket);
        if (x->rq.deadline.generation_ms)
            exchange_arm(x);
        break;
    case API_EVENT_USAGE:
        metrics_usage(x->set->o.metrics, &x->m, &ev->usage, loop_ms());
        break;
    case API_EVENT_DONE:
        x->m.finish = ev->done.reason;
        x->m.outcome = METRICS_OUTCOME_OK;
        x->st->total_ns = (uint64_t)(loop_ms() - x->m.arrived_ms) * 1000000;
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

/* What attempt says about legs: a header, a comment, a member of `shoal`; no warning. */
static bool exchange_takes(struct exchange *x, const struct api_event *ev)
{
    str text = ev->note.text;
    if (ev->kind != API_EVENT_NOTE)
        return false;
    if (str_eq_z(ev->note.code, "substituted")) {
        x->substituted = arena_copy(&x->arena, text);
    } else if (str_eq_z(ev->note.code, "legs")) {
        x->st->legs_json = arena_copy(&x->arena, text);
    } else if (str_eq_z(ev->note.code, "failover")) {
        struct dialect_ping p = {.phase = "failover", .eta_ms = -1,
                                 .from = exchange_value(text, "from"),
                                 .to = exchange_value(text, "to"),
                                 .reason = exchange_value(text, "reason")};
        if (!str_to_u64(exchange_value(text, "sent"), &p.sent))
            p.sent = 0;
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

/* A key sees the models that it may ask for. */
static void exchange_filter(struct exchange *x, struct api_event *ev)
{
    const struct limits_key *key = x->call->key;
    if (ev->kind != API_EVENT_MODELS || !key || key->models_count == 0)
        return;
    struct api_model *rows = ARENA_ARRAY(&x->arena, struct api_model, ev->models.rows_count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; rows && i < ev->models.rows_count; i++)
        if (limits_allows_model(key, ev->models.rows[i].name))
            rows[count++] = ev->models.rows[i];
    ev->models.rows = rows;
    ev->models.rows_count = count;
}

/* Sequences that the model runs at once; 1 while nobody knows. */
static uint32_t exchange_slots(const struct exchange *x)
{
    struct api_model rows[EXCHANGE_MODELS_MAX];
    const struct api_provider *p = &x->set->o.provider;
    size_t count = base_min(p->models(p->self, rows, countof(rows)), countof(rows));
    for (size_t i = 0; i < count; i++)
        if (rows[i].slots && str_eq_nocase(rows[i].name, x->model))
            return rows[i].slots;
    return 1;
}

/* By the completions of its model, for whoever is told 503; 0: not measured. */
static int64_t exchange_retry_ms(const struct exchange *x)
{
    const struct metrics *m = x->set->o.metrics;
    uint32_t slots = exchange_slots(x), open = metrics_open_of(m, x->model);
    return metrics_retry_ms(m, x->model, open > slots ? open - slots : 0);
}

/* BEHAVIOUR 8.4: a first token beyond the request's own deadline is refused at once. Counted are
 * its own tokens without the cached ones, at a rate that was measured: what it would take alone,
 * so that nobody is refused who could be served. True: x is gone. */
static bool exchange_refuse_late(struct exchange *x)
{
    const struct api_queued *q = &x->st->queued;
    int64_t left_ms = x->m.arrived_ms + x->rq.deadline.total_ms - loop_ms();
    uint64_t tokens = q->prompt_tokens - base_min(q->cached_tokens, q->prompt_tokens);
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

static void exchange_on_batch(void *ctx, const struct api_batch *b)
{
    struct exchange *x = ctx;
    struct api_provider *p = &x->set->o.provider;
    p->credit(p->self, b->request_id, (uint32_t)api_batch_weight(b));
    exchange_keep(x, b);
    bool was_queued = false;
    for (uint32_t i = 0; i < b->events_count && !x->st->is_over; i++) {
        struct api_event ev = b->events[i];
        was_queued = was_queued || ev.kind == API_EVENT_QUEUED;
        exchange_filter(x, &ev);
        exchange_note(x, &ev);
        exchange_name_model(x, &ev);
        if (!exchange_takes(x, &ev))
            x->dialect->write_event(&x->out, x->st, b->choice, &ev);
    }
    metrics_tokens(x->set->o.metrics, &x->m, b->ids_count, loop_ms());
    if (!was_queued || !exchange_refuse_late(x))
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

static void exchange_arm(struct exchange *x)
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

/* --- the beginning ------------------------------------------------------------------------- */

/* What the key says goes before what the request says: who it is counted for, whose cached prefixes
 * it sees. cache_salt narrows the scope further; no scope of a key holds a blank. */
static void exchange_fill_owner(struct exchange *x, const struct limits_key *key)
{
    struct api_request *rq = &x->rq;
    struct arena *a = &x->arena; /* a reload may free the key before the request's last words */
    if (key) {
        str scope = key->cache_scope.len ? key->cache_scope : key->name, salt = rq->scope;
        rq->owner = arena_copy(a, key->name);
        rq->scope = salt.len ? arena_printf(a, "%.*s %.*s", STR_ARG(scope), STR_ARG(salt))
                             : arena_copy(a, scope);
        if (key->agent.len)
            rq->agent = arena_copy(a, key->agent);
    }
    if (rq->agent.len == 0)
        rq->agent = key ? rq->owner : STR("anon");
}

/* Credentials that are not ours: none are configured, or ours came in Shoal-Key. */
static void exchange_fill_key(struct exchange *x)
{
    str bearer = http_conn_header(x->conn, "authorization");
    str key = http_conn_header(x->conn, "x-api-key");
    if (x->call->key && !http_conn_header(x->conn, "shoal-key").p)
        return;
    if (str_starts(bearer, STR("Bearer ")))
        key = str_from(bearer, strlen("Bearer "));
    x->client_key.text = key;
    if (key.len)
        x->rq.client_key = &x->client_key;
}

static void exchange_fill(struct exchange *x)
{
    const struct exchange_options *o = &x->set->o;
    struct api_request *rq = &x->rq;
    rq->id = ++x->set->last_id;
    exchange_fill_owner(x, x->call->key);
    quota_fill(rq, limits_rules_of(x->call->limits, rq->agent));
    quota_fill(rq, x->call->key ? &x->call->key->rules : NULL);
    x->wait_ms = o->wait_ms;
    x->model = o->on_read ? o->on_read(o->ctx, rq, &x->arena) : rq->model;
    exchange_fill_key(x);
    if (!api_request_is_given(rq, API_FIELD_SEED)) {
        digest_random(&rq->seed, sizeof rq->seed);
        rq->seed >>= 64 - EXCHANGE_SEED_BITS;
    }
    x->st->seed = rq->seed;
    if (o->total_ms && (rq->deadline.total_ms == 0 || o->total_ms < rq->deadline.total_ms))
        rq->deadline.total_ms = o->total_ms;
    rq->deadline.generation_ms = o->gen_ms;
}

static bool exchange_fill_in(struct exchange *x, struct dialect_in *in)
{
    const struct http_request *r = http_conn_request(x->conn);
    struct api_header *headers = ARENA_ARRAY(&x->arena, struct api_header, r->header_count);
    for (size_t i = 0; headers && i < r->header_count; i++)
        headers[i] = (struct api_header){r->headers[i].name, r->headers[i].value};
    *in = (struct dialect_in){.path = x->call->path, .segment = x->call->segment, .body = r->body,
                              .headers = headers, .headers_count = (uint32_t)r->header_count,
                              .request_id = str_of(x->id),
                              .time_s = chrono_unix_ms(&chrono_real) / 1000,
                              .limits = x->set->o.limits};
    return headers != NULL;
}

/* BEHAVIOUR 8.4: refused at once when as many wait as may, beside what the model runs at once. */
static bool exchange_has_room(const struct exchange *x, struct api_error *e)
{
    const struct metrics *m = x->set->o.metrics;
    uint32_t slots = exchange_slots(x), open = metrics_open_of(m, x->model);
    if (x->rq.kind >= API_KIND_LIST || open < (uint64_t)slots + x->set->o.queue_max)
        return true;
    api_error_set(e, ERR_OVERLOADED, "", STR(""), "%u requests run or wait for %.*s, no more may",
                  open, STR_ARG(str_sub(x->rq.model, 0, 80)));
    e->retry_after_ms = exchange_retry_ms(x);
    return false;
}

static bool exchange_is_allowed(const struct exchange *x, struct api_error *e)
{
    if (x->arena.is_full)
        return api_error_set(e, ERR_MEMORY, "", STR(""), "no memory for a request");
    bool has_own_name = x->call->key && str_eq(x->rq.agent, x->call->key->name);
    if (x->rq.kind < API_KIND_LIST && !has_own_name &&
        !limits_allows_agent(x->call->key, x->rq.agent))
        return api_error_set(e, ERR_AUTH, "forbidden", STR("agent"),
                             "this key may not speak for %.*s",
                             STR_ARG(str_sub(x->rq.agent, 0, 80)));
    bool names_a_model = x->rq.kind != API_KIND_LIST && x->rq.kind != API_KIND_PS;
    return !names_a_model || limits_allows_model(x->call->key, x->rq.model) ||
           limits_allows_model(x->call->key, x->model) ||
           api_error_set(e, ERR_AUTH, "forbidden", STR("model"), "this key may not ask for %.*s",
                         STR_ARG(str_sub(x->rq.model, 0, 80)));
}

/* Turns of the history that are our own replies, as they were sampled; and this one is kept. */
static void exchange_recall(struct exchange *x)
{
    struct api_error ignored;
    if (!x->set->o.replay || !x->rq.replay || x->rq.messages_count == 0)
        return;
    replay_match(x->set->o.replay, &x->rq, &x->lent, loop_ms());
    if (x->rq.kind == API_KIND_CHAT &&
        !transcript_init(&x->said, x->st->choices_count, REPLAY_TURN_MAX, &ignored))
        transcript_deinit(&x->said);
}

static bool exchange_enter(struct exchange *x, struct api_error *e)
{
    const struct limits_key *key = x->call->key;
    const struct api_request *rq = &x->rq;
    if (rq->kind >= API_KIND_LIST)
        return true;
    const struct quota_who who = {.key = key ? key->name : STR(""), .agent = rq->agent,
                                  .key_rules = key ? &key->rules : NULL,
                                  .agent_rules = limits_rules_of(x->call->limits, rq->agent)};
    return quota_enter(x->set->quota, &x->ticket, &who, loop_ms(), e);
}

/* To whoever answers. */
static void exchange_give(struct exchange *x)
{
    struct api_provider *p = &x->set->o.provider;
    struct api_error e = {0};
    quota_start(&x->ticket);
    x->is_submitted = true;
    if (p->submit(p->self, &x->rq, (struct api_sink){exchange_on_batch, x}, &e)) {
        exchange_arm(x);
        return;
    }
    x->is_submitted = false;
    exchange_fail(x, &e);
}

/* By arrival; one that may not start holds up nobody else's. A failure takes others along only by
 * coming back here. */
static void exchange_on_retry(void *ctx)
{
    struct exchange_set *s = ctx;
    list_each (link, &s->waiting) {
        struct exchange *x = list_item(link, struct exchange, waits);
        if (!quota_may_start(&x->ticket))
            continue;
        list_remove(&x->waits);
        loop_later_set(&s->retry); /* the list is read anew */
        exchange_give(x);
        return;
    }
}

/* It was read: ask for its answer. */
static void exchange_submit(struct exchange *x)
{
    struct api_error e = {0};
    exchange_fill(x);
    exchange_recall(x);
    bool has_room = exchange_is_allowed(x, &e) && exchange_has_room(x, &e) &&
                    exchange_enter(x, &e);
    metrics_begin(x->set->o.metrics, &x->m, &x->rq, x->model);
    if (!has_room) {
        exchange_fail(x, &e);
    } else if (quota_may_start(&x->ticket)) {
        exchange_give(x);
    } else { /* BEHAVIOUR 8.4: over max_running a request waits */
        list_push_last(&x->set->waiting, &x->waits);
        exchange_arm(x);
    }
}

static void exchange_read(struct exchange *x)
{
    struct dialect_in in;
    struct api_error e = {0};
    if (!exchange_fill_in(x, &in))
        api_error_set(&e, ERR_MEMORY, "", STR(""), "no memory for a request");
    else if (x->dialect->read_request(&x->rq, x->st, &in, &x->arena, &e)) {
        exchange_submit(x);
        return;
    }
    exchange_fail(x, &e);
}

/* --- a large body -------------------------------------------------------------------------- */

struct exchange_reading {
    struct exchange *x;
    struct dialect_in in;
    struct dialect_limits limits; /* a reload may change the set's meanwhile */
    bool ok;
    struct api_error e;
    bool is_gone, must_end; /* what happened meanwhile; why it must end */
    struct api_error why;
};

/* On a worker: the exchange is this thread's but for its place in lists and its connection. */
static void exchange_run_reading(void *ctx)
{
    struct exchange_reading *r = ctx;
    struct exchange *x = r->x;
    r->ok = x->dialect->read_request(&x->rq, x->st, &r->in, &x->arena, &r->e);
}

static void exchange_end_reading(void *ctx)
{
    struct exchange_reading *r = ctx;
    struct exchange *x = r->x;
    x->reading = NULL;
    if (r->is_gone)
        exchange_free(x);
    else if (r->must_end)
        exchange_fail(x, &r->why);
    else if (r->ok)
        exchange_submit(x);
    else
        exchange_fail(x, &r->e);
}

/* The connection may end before the worker does: what is read is ours. */
static bool exchange_own(struct exchange *x, struct dialect_in *in)
{
    struct api_header *headers = ARENA_ARRAY(&x->arena, struct api_header, in->headers_count);
    for (uint32_t i = 0; headers && i < in->headers_count; i++) {
        headers[i].name = arena_copy(&x->arena, in->headers[i].name);
        headers[i].value = arena_copy(&x->arena, in->headers[i].value);
    }
    in->headers = headers;
    in->segment = arena_copy(&x->arena, in->segment);
    http_conn_take_body(x->conn, &x->body);
    return headers && !x->arena.is_full;
}

static bool exchange_read_elsewhere(struct exchange *x)
{
    struct exchange_set *s = x->set;
    struct err ignored;
    struct exchange_reading *r = ARENA_NEW(&x->arena, struct exchange_reading);
    if (!r || !exchange_fill_in(x, &r->in) || !exchange_own(x, &r->in))
        return false;
    if (!s->workers && !workers_open(&s->workers, s->o.loop, EXCHANGE_WORKERS, EXCHANGE_JOBS_MAX,
                                     &ignored))
        return false;
    r->x = x;
    r->limits = *s->o.limits;
    r->in.limits = &r->limits;
    x->reading = r;
    if (workers_run(s->workers, &(struct workers_job){exchange_run_reading, exchange_end_reading,
                                                      r}))
        return true;
    x->reading = NULL;
    return false;
}

static void exchange_read_large(struct exchange *x)
{
    struct api_error e = {0};
    if (exchange_read_elsewhere(x))
        return;
    api_error_set(&e, ERR_OVERLOADED, "", STR(""), "%u large bodies are being read, no more may",
                  EXCHANGE_JOBS_MAX);
    exchange_fail(x, &e);
}

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
    if (body >= EXCHANGE_LARGE)
        exchange_read_large(x);
    else
        exchange_read(x);
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

void exchange_set_end(struct exchange_set *s, const struct api_error *why)
{
    struct list now, *first;
    list_init(&now);
    while ((first = list_first(&s->all))) {
        list_remove(first);
        list_push_last(&now, first);
    }
    while ((first = list_first(&now))) {
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
