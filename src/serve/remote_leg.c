#include "serve/remote_leg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/file.h"
#include "base/list.h"
#include "serve/remote_check.h"
#include "serve/remote_headers.h"
#include "wire/sse.h"

#define REMOTE_LEG_ERROR_MAX ((size_t)64 << 10) /* bytes of an error's body */
#define REMOTE_LEG_TEXTS_MAX ((size_t)32 << 20) /* of an error: an event's size and more */
#define REMOTE_LEG_PIECE_MIN 4u /* bytes of a key that are too many to show */
#define REMOTE_LEG_LINGER_MS 1000 /* behind the terminal marker, for the connection's sake */
#define REMOTE_LEG_COMMENT_MAX ((size_t)64 << 10)
#define REMOTE_LEG_CA_MAX ((size_t)8 << 20)

/* Header fields of an answer that mean something. */
#define REMOTE_LEG_FIELDS(X) \
    X(TYPE, "content-type") X(RETRY, "retry-after") X(RETRY_MS, "retry-after-ms") \
    X(LOCATION, "location")
enum remote_leg_field {
#define X(name, text) REMOTE_LEG_FIELD_##name,
    REMOTE_LEG_FIELDS(X)
#undef X
    REMOTE_LEG_FIELD_COUNT_
};
static const char *const remote_leg_fields[] = {
#define X(name, text) text,
    REMOTE_LEG_FIELDS(X)
#undef X
};

/* One request at the upstream.
 *
 *     WAITS --2xx--> HEARS --terminal marker--> OVER (the caller heard all; the bytes' end is
 *       \--other--> REFUSED (its body is read)         waited for, so that the connection lives on)
 */
enum remote_call_state {
    REMOTE_CALL_WAITS, REMOTE_CALL_HEARS, REMOTE_CALL_REFUSED, REMOTE_CALL_OVER
};
struct remote_call {
    struct list link;
    struct remote_leg *leg;
    struct http_call *http; /* NULL: ended */
    const struct api_request *rq;
    struct api_sink sink;
    struct dialect_client_state *st;
    struct sse sse;
    struct buf body;        /* REFUSED, or a reply that is not streamed */
    struct buf fields;      /* of the answer's header */
    struct { size_t at, len; } field[REMOTE_LEG_FIELD_COUNT_];
    struct loop_timer timer;
    enum remote_call_state state;
    enum http_call_fault fault;
    struct api_error error; /* what the upstream said in its stream */
    int status;
    int64_t begun_ms;
    int64_t since_ms;       /* the wait began, or the last visible token came */
    uint32_t good, bad;     /* events */
    uint64_t prompt_done, place; /* as another shoal's comments told last */
    uint32_t depth;         /* on the stack: it is freed when it has returned */
    bool is_whole, is_visible, is_held, has_error, is_dead;
};

struct remote_leg {
    struct remote_leg_options o;
    struct arena keep; /* what options view */
    struct list calls;
    uint32_t inflight;
    bool is_closed; /* freed with its last call */
    struct remote_check_set checks;
};

/* --- one call's end ------------------------------------------------------------------------- */

static void remote_leg_free(struct remote_leg *l)
{
    arena_deinit(&l->keep);
    free(l);
}

static void remote_call_free(struct remote_call *c)
{
    struct remote_leg *l = c->leg;
    loop_timer_close(&c->timer);
    list_remove(&c->link);
    sse_deinit(&c->sse);
    if (c->st)
        dialect_client_deinit(c->st);
    free(c->st);
    buf_deinit(&c->body);
    buf_deinit(&c->fields);
    free(c);
    if (l->is_closed && list_is_empty(&l->calls))
        remote_leg_free(l);
}

/* Nothing more is heard of it; freed now, or when it is no longer on the stack. */
static void remote_call_drop(struct remote_call *c)
{
    if (c->is_dead)
        return;
    c->is_dead = true;
    if (c->state != REMOTE_CALL_OVER)
        c->leg->inflight--;
    loop_timer_stop(&c->timer);
    if (c->http)
        http_client_cancel(c->http);
    c->http = NULL;
    if (c->depth == 0)
        remote_call_free(c);
}

static void remote_call_enter(struct remote_call *c) { c->depth++; }
/* c may be gone afterwards. */
static void remote_call_leave(struct remote_call *c)
{
    if (--c->depth == 0 && c->is_dead)
        remote_call_free(c);
}

static void remote_call_give(struct remote_call *c, const struct api_event *events, uint32_t count)
{
    const struct api_batch b = {.request_id = c->rq->id, .events = events, .events_count = count};
    c->sink.on_batch(c->sink.ctx, &b);
}

/* In place: the secret becomes "***", and so does the piece of it that a cut left at the end. */
static size_t remote_leg_mask(char *p, size_t len, str secret)
{
    size_t to = 0, stars = base_min(secret.len, strlen("***"));
    for (size_t at = 0; at < len;) {
        size_t same = 0;
        while (same < secret.len && at + same < len && p[at + same] == secret.p[same])
            same++;
        bool is_cut = at + same == len && same >= REMOTE_LEG_PIECE_MIN;
        if (secret.len && (same == secret.len || is_cut)) {
            memset(p + to, '*', stars);
            to += stars;
            at += same;
        } else {
            p[to++] = p[at++];
        }
    }
    return to;
}

/* Whatever an upstream says may repeat what it was sent: the key that it got stands in no text that
 * goes on; code and param are our own words. upstream_text moves to a. */
static void remote_call_hide_key(const struct remote_call *c, struct api_error *e, struct arena *a)
{
    const struct remote_leg *l = c->leg;
    bool is_passed = l->o.auth == REMOTE_LEG_AUTH_PASSTHROUGH;
    str key = !is_passed ? l->o.key : c->rq->client_key ? c->rq->client_key->text : STR("");
    if (key.len == 0)
        return;
    /* An overlong sentence ends in "...": what it cut may be the key. */
    size_t len = strlen(e->err.text), tail = len;
    if (len == ERR_TEXT_MAX - 1 && str_ends(str_of(e->err.text), STR("...")))
        tail -= strlen("...");
    size_t to = remote_leg_mask(e->err.text, tail, key);
    memmove(e->err.text + to, e->err.text + tail, len - tail + 1);
    char *copy = arena_alloc_text(a, e->upstream_text.len + 1);
    if (copy && e->upstream_text.len)
        memcpy(copy, e->upstream_text.p, e->upstream_text.len);
    e->upstream_text.len = copy ? remote_leg_mask(copy, e->upstream_text.len, key) : 0;
    e->upstream_text.p = copy ? copy : "";
}

/* A key that is refused is the operator's to mend. */
static void remote_call_hide_refusal(const struct remote_call *c, struct api_error *e)
{
    if (e->fault != API_FAULT_AUTH)
        return;
    if (c->leg->o.auth == REMOTE_LEG_AUTH_PASSTHROUGH) {
        e->code = e->upstream_status == 403 ? STR("forbidden") : STR("");
        return;
    }
    e->code = STR("upstream_auth");
    e->upstream_text = STR("");
    err_set(&e->err, ERR_UPSTREAM, "upstream refuses the key of this leg (%u)",
            e->upstream_status);
}

/* Ends the request with an error; its class is set. */
static void remote_call_fail(struct remote_call *c, struct api_error *e)
{
    struct api_event ev = {.kind = API_EVENT_ERROR};
    if (c->is_dead || c->state == REMOTE_CALL_OVER) {
        remote_call_drop(c);
        return;
    }
    struct arena a;
    arena_init(&a, REMOTE_LEG_TEXTS_MAX);
    remote_call_hide_key(c, e, &a);
    remote_call_hide_refusal(c, e);
    err_wrap(&e->err, "leg %.*s", STR_ARG(c->leg->o.name));
    ev.error = *e;
    remote_call_enter(c);
    c->state = REMOTE_CALL_OVER;
    c->leg->inflight--;
    remote_call_give(c, &ev, 1);
    remote_call_drop(c);
    remote_call_leave(c);
    arena_deinit(&a);
}

static void remote_call_fail_as(struct remote_call *c, enum api_fault fault, enum err_code code,
                                const char *text)
{
    struct api_error e;
    api_error_set(&e, code, "", STR(""), "%s", text);
    e.fault = fault;
    remote_call_fail(c, &e);
}

/* --- waits ---------------------------------------------------------------------------------- */

static int64_t remote_call_wait_ms(const struct remote_call *c)
{
    if (c->state == REMOTE_CALL_OVER)
        return REMOTE_LEG_LINGER_MS;
    return c->is_visible ? c->rq->deadline.gap_ms : c->rq->deadline.first_ms;
}

static bool remote_call_is_long(const struct remote_call *c)
{
    int64_t total = c->rq->deadline.total_ms;
    return total > 0 && loop_ms() >= c->begun_ms + total;
}

/* INT64_MAX: it may take what it takes. */
static int64_t remote_call_due_ms(const struct remote_call *c)
{
    int64_t wait = remote_call_wait_ms(c), due = INT64_MAX;
    if (wait > 0 && !c->is_held)
        due = c->since_ms + wait;
    if (c->state != REMOTE_CALL_OVER && c->rq->deadline.total_ms > 0) {
        int64_t end = c->begun_ms + c->rq->deadline.total_ms;
        due = end < due ? end : due;
    }
    return due;
}

static void remote_call_arm(struct remote_call *c)
{
    int64_t due = remote_call_due_ms(c), left = due - loop_ms();
    if (due == INT64_MAX)
        loop_timer_stop(&c->timer);
    else
        loop_timer_set(&c->timer, left > 0 ? left : 0);
}

/* --- what the upstream says ----------------------------------------------------------------- */

static bool remote_leg_is_visible(enum api_event_kind kind)
{
    return kind == API_EVENT_REASONING || kind == API_EVENT_CONTENT ||
           kind == API_EVENT_CALL_BEGIN || kind == API_EVENT_CALL_ARGS ||
           kind == API_EVENT_CALL_END;
}

static void remote_call_on_batch(void *ctx, const struct api_batch *b)
{
    struct remote_call *c = ctx;
    bool was_visible = c->is_visible;
    if (c->is_dead)
        return;
    for (uint32_t i = 0; i < b->events_count; i++)
        if (remote_leg_is_visible(b->events[i].kind)) {
            c->is_visible = true;
            c->since_ms = loop_ms();
        }
    if (c->is_visible && !was_visible)
        remote_call_arm(c);
    c->sink.on_batch(c->sink.ctx, b);
}

/* The terminal marker came: the request is over for its caller. */
static void remote_call_finish(struct remote_call *c)
{
    if (c->is_dead || c->state == REMOTE_CALL_OVER || !c->st->is_over)
        return;
    c->state = REMOTE_CALL_OVER;
    c->leg->inflight--;
    c->is_held = false;
    c->since_ms = loop_ms();
    if (c->st->finds_stop || c->http == NULL) /* it may go on talking */
        remote_call_drop(c);
    else
        remote_call_arm(c);
}

/* Silence behind the reasons of all choices is no failure: another leg would go on in an answer
 * that is complete. c may be gone afterwards. */
static bool remote_call_settle(struct remote_call *c)
{
    remote_call_enter(c);
    bool ok = dialect_client_settle(c->st);
    if (ok)
        remote_call_finish(c);
    remote_call_leave(c);
    return ok;
}

/* Tokens move since_ms, not the timer: it looks again when it fires. */
static void remote_call_on_time(void *ctx)
{
    struct remote_call *c = ctx;
    char text[96];
    int64_t wait = remote_call_wait_ms(c);
    if (loop_ms() < remote_call_due_ms(c)) {
        remote_call_arm(c);
        return;
    }
    if (c->state == REMOTE_CALL_OVER) {
        remote_call_drop(c);
        return;
    }
    bool has_head = c->state != REMOTE_CALL_WAITS;
    if (c->state == REMOTE_CALL_HEARS && remote_call_settle(c))
        return;
    if (remote_call_is_long(c))
        snprintf(text, sizeof text, "no end within its total of %lld ms",
                 (long long)c->rq->deadline.total_ms);
    else
        snprintf(text, sizeof text, "no %s for %lld ms",
                 c->is_visible ? "token" : has_head ? "first token" : "answer", (long long)wait);
    remote_call_fail_as(c, c->is_visible ? API_FAULT_STALL
                           : has_head ? API_FAULT_HANG_FIRST : API_FAULT_HANG_HEADER,
                        ERR_DEADLINE, text);
}

static void remote_call_on_event(void *ctx, str name, str data)
{
    struct remote_call *c = ctx;
    struct api_error e;
    if (c->is_dead || c->has_error || c->state == REMOTE_CALL_OVER)
        return;
    size_t repeated = c->st->echo.at;
    bool ok = dialect_client_read(c->st, name, data, &e);
    if (c->st->echo.at > repeated) /* what is not told for this is progress all the same */
        c->since_ms = loop_ms();
    if (ok) {
        c->good++;
        remote_call_finish(c);
        return;
    }
    c->bad += e.fault == API_FAULT_GARBAGE;
    if (e.fault == API_FAULT_GARBAGE && c->bad < DIALECT_CLIENT_BAD_MAX)
        return; /* one event that cannot be read is no reason to lose the rest */
    c->has_error = true;
    c->error = e;
}

/* Another shoal tells in comments how far it is with a prompt: what moves there is progress. */
static void remote_call_on_comment(void *ctx, str text)
{
    struct remote_call *c = ctx;
    const str mark = STR(" shoal ");
    const struct json_options o = {.depth_max = 4};
    uint64_t done = 0, place = UINT64_MAX;
    struct err ignored;
    struct arena a;
    struct json v;
    if (c->is_visible || !str_starts(text, mark) ||
        c->leg->o.upstream.how != DIALECT_CONTINUE_SHOAL)
        return;
    arena_init(&a, REMOTE_LEG_COMMENT_MAX);
    if (text.len < REMOTE_LEG_COMMENT_MAX / 8 &&
        json_parse(&v, str_from(text, mark.len), &o, &a, &ignored)) {
        json_u64(json_member(v, "done"), &done);
        json_u64(json_member(v, "position"), &place);
        if (done > c->prompt_done || place < c->place)
            c->since_ms = loop_ms();
        c->prompt_done = done > c->prompt_done ? done : c->prompt_done;
        c->place = place < c->place ? place : c->place;
    }
    arena_deinit(&a);
}

static void remote_call_take(struct remote_call *c, str bytes)
{
    struct api_error e = {0};
    if (c->is_whole) {
        if (!buf_add(&c->body, bytes))
            remote_call_fail_as(c, API_FAULT_GARBAGE, ERR_UPSTREAM,
                                "upstream: a reply above 64 MiB");
    } else if (!sse_feed(&c->sse, bytes, &e.err) && !c->is_dead) {
        remote_call_fail_as(c, API_FAULT_GARBAGE, ERR_UPSTREAM, e.err.text);
    }
    if (c->has_error && !c->is_dead)
        remote_call_fail(c, &c->error);
}

static str remote_call_field(const struct remote_call *c, enum remote_leg_field f)
{
    return str_sub(buf_view(&c->fields), c->field[f].at, c->field[f].len);
}

static void remote_call_refused(struct remote_call *c)
{
    struct api_header rows[REMOTE_LEG_FIELD_COUNT_];
    struct dialect_client_headers h = {rows, REMOTE_LEG_FIELD_COUNT_, chrono_unix_ms(&chrono_real)};
    struct api_error e;
    struct arena a;
    arena_init(&a, 16 * REMOTE_LEG_ERROR_MAX);
    for (int i = 0; i < REMOTE_LEG_FIELD_COUNT_; i++)
        rows[i] = (struct api_header){str_of(remote_leg_fields[i]),
                                      remote_call_field(c, (enum remote_leg_field)i)};
    dialect_client_read_error(&e, c->status, h, buf_view(&c->body), &a);
    remote_call_fail(c, &e);
    arena_deinit(&a);
}

/* --- the call's handlers -------------------------------------------------------------------- */

static void remote_call_on_header(void *ctx, str name, str value)
{
    struct remote_call *c = ctx;
    for (int i = 0; i < REMOTE_LEG_FIELD_COUNT_; i++)
        if (str_eq_nocase(name, str_of(remote_leg_fields[i]))) {
            c->field[i].at = c->fields.len;
            c->field[i].len = buf_add(&c->fields, value) ? value.len : 0;
        }
}

/* By what the answer calls itself; silent ones are taken for what was asked for. */
static bool remote_call_is_whole(const struct remote_call *c)
{
    str type = remote_call_field(c, REMOTE_LEG_FIELD_TYPE);
    return !c->leg->o.dialect->client->is_lines &&
           str_eq_nocase(str_sub(type, 0, strlen("application/json")), STR("application/json"));
}

static void remote_call_on_head(void *ctx, int status)
{
    struct remote_call *c = ctx;
    const struct api_event queued = {.kind = API_EVENT_QUEUED};
    c->status = status;
    if (status < 200 || status >= 300) {
        c->state = REMOTE_CALL_REFUSED;
        return;
    }
    c->state = REMOTE_CALL_HEARS;
    c->is_whole = remote_call_is_whole(c);
    remote_call_enter(c);
    remote_call_give(c, &queued, 1);
    remote_call_leave(c);
}

static void remote_call_on_bytes(void *ctx, str bytes)
{
    struct remote_call *c = ctx;
    remote_call_enter(c);
    if (c->state == REMOTE_CALL_REFUSED) {
        size_t room = REMOTE_LEG_ERROR_MAX - c->body.len;
        buf_add(&c->body, str_sub(bytes, 0, room));
        if (bytes.len >= room) /* enough to say why */
            remote_call_refused(c);
    } else if (c->state == REMOTE_CALL_HEARS) {
        remote_call_take(c, bytes);
    }
    remote_call_leave(c);
}

static void remote_call_on_fault(void *ctx, enum http_call_fault fault)
{
    ((struct remote_call *)ctx)->fault = fault;
}

static void remote_call_broken(struct remote_call *c, const struct err *why)
{
    static const struct {
        enum api_fault fault;
        enum err_code code;
    } rows[] = {
        [HTTP_CALL_FAULT_CONNECT] = {API_FAULT_CONNECT, ERR_CONNECT},
        [HTTP_CALL_FAULT_TLS] = {API_FAULT_TLS, ERR_CONNECT},
        [HTTP_CALL_FAULT_LATE_CONNECT] = {API_FAULT_CONNECT, ERR_CONNECT},
        [HTTP_CALL_FAULT_LATE_FIRST] = {API_FAULT_HANG_HEADER, ERR_DEADLINE},
        [HTTP_CALL_FAULT_LATE_IDLE] = {API_FAULT_STALL, ERR_DEADLINE},
        [HTTP_CALL_FAULT_LATE_TOTAL] = {API_FAULT_STALL, ERR_DEADLINE},
        [HTTP_CALL_FAULT_BROKEN] = {API_FAULT_CUT, ERR_UPSTREAM},
        [HTTP_CALL_FAULT_HEADER] = {API_FAULT_GARBAGE, ERR_UPSTREAM},
    };
    struct api_error ignored;
    if (c->state == REMOTE_CALL_REFUSED) /* its status is known: that counts */
        remote_call_refused(c);
    else if (c->state == REMOTE_CALL_HEARS && dialect_client_end(c->st, &ignored))
        remote_call_finish(c);
    else
        remote_call_fail_as(c, rows[c->fault].fault, rows[c->fault].code, why->text);
}

static void remote_call_complete(struct remote_call *c)
{
    struct api_error e;
    if (c->is_whole)
        remote_call_on_event(c, STR(""), buf_view(&c->body));
    else if (c->leg->o.dialect->client->is_lines) /* the last line may lack its feed */
        remote_call_take(c, STR("\n"));
    if (c->is_dead || c->state == REMOTE_CALL_OVER)
        return;
    if (c->has_error) {
        remote_call_fail(c, &c->error);
    } else if (dialect_client_end(c->st, &e)) {
        remote_call_finish(c);
    } else if (c->good == 0) {
        remote_call_fail_as(c, API_FAULT_GARBAGE, ERR_UPSTREAM,
                            "upstream: an answer that is not of this protocol");
    } else {
        remote_call_fail(c, &e);
    }
}

static void remote_call_on_end(void *ctx, const struct err *why)
{
    struct remote_call *c = ctx;
    c->http = NULL;
    remote_call_enter(c);
    if (c->state == REMOTE_CALL_OVER)
        remote_call_drop(c);
    else if (why)
        remote_call_broken(c, why);
    else if (c->state == REMOTE_CALL_REFUSED)
        remote_call_refused(c);
    else
        remote_call_complete(c);
    remote_call_leave(c);
}

/* --- a request ------------------------------------------------------------------------------ */

static bool remote_leg_may_ask(const struct remote_leg *l, const struct api_request *rq,
                               struct api_error *e)
{
    const char *lacks;
    if (l->inflight >= l->o.requests_max)
        return api_error_set(e, ERR_OVERLOADED, "", STR(""), "leg %.*s: %u requests run, at most "
                             "%u", STR_ARG(l->o.name), l->inflight, l->o.requests_max);
    if (rq->kind != API_KIND_CHAT)
        return api_error_set(e, ERR_UNSUPPORTED, "", STR(""), "leg %.*s: an upstream is only "
                             "asked for chats, not for %s", STR_ARG(l->o.name),
                             api_request_kind_name(rq->kind));
    if (remote_headers_hops(rq) >= REMOTE_LEG_HOPS_MAX)
        return api_error_set(e, ERR_REQUEST, "", STR("Shoal-Hop"), "leg %.*s: the request passed "
                             "%u shoals: a loop", STR_ARG(l->o.name), REMOTE_LEG_HOPS_MAX);
    if (l->o.auth == REMOTE_LEG_AUTH_PASSTHROUGH && !rq->client_key)
        return api_error_set(e, ERR_AUTH, "", STR(""), "leg %.*s: the request carries no key to "
                             "pass on", STR_ARG(l->o.name));
    lacks = dialect_client_lacks(l->o.dialect, &l->o.upstream, rq);
    return !lacks || api_error_set(e, ERR_UNSUPPORTED, "", str_of(lacks), "leg %.*s: its protocol "
                                   "cannot say %s", STR_ARG(l->o.name), lacks);
}

static bool remote_call_start(struct remote_call *c, struct api_error *e)
{
    struct remote_leg *l = c->leg;
    const struct dialect_client *d = l->o.dialect->client;
    struct remote_headers h;
    char url[2200];
    struct buf body;
    buf_init(&body, DIALECT_CLIENT_BODY_MAX);
    remote_headers_init(&h);
    snprintf(url, sizeof url, "%.*s%s", STR_ARG(l->o.url), d->path);
    bool ok = d->write_request(&body, c->st, e);
    if (ok) {
        remote_headers_fill(&h, &l->o, c->rq);
        const struct http_call_options o = {
            .url = str_of(url), .headers = h.rows, .body = buf_view(&body), .ca_file = l->o.ca_file,
            .connect_ms = c->rq->deadline.connect_ms,
            .handlers = {c, remote_call_on_head, remote_call_on_bytes, remote_call_on_end},
            .on_header = remote_call_on_header, .on_fault = remote_call_on_fault};
        ok = http_client_start(l->o.client, &c->http, &o, &e->err);
        if (!ok && e->err.code == ERR_LIMIT)
            e->err.code = ERR_OVERLOADED;
    }
    remote_headers_deinit(&h);
    buf_deinit(&body);
    return ok;
}

static bool remote_leg_submit(void *self, const struct api_request *rq, struct api_sink sink,
                              struct api_error *e)
{
    struct remote_leg *l = self;
    const struct dialect_client *d = l->o.dialect->client;
    *e = (struct api_error){.retry_after_ms = 0};
    if (!remote_leg_may_ask(l, rq, e))
        return false;
    struct remote_call *c = calloc(1, sizeof *c);
    struct dialect_client_state *st = calloc(1, d->state_size);
    if (!c || !st) {
        free(c);
        free(st);
        return api_error_set(e, ERR_MEMORY, "", STR(""), "no memory for a request");
    }
    *c = (struct remote_call){.leg = l, .rq = rq, .sink = sink, .st = st, .place = UINT64_MAX};
    list_push_last(&l->calls, &c->link);
    buf_init(&c->body, REMOTE_LEG_BODY_MAX);
    buf_init(&c->fields, HTTP_CLIENT_HEADER_SIZE_MAX);
    sse_init(&c->sse, d->is_lines ? SSE_FORM_LINES : SSE_FORM_EVENTS, DIALECT_CLIENT_EVENT_MAX);
    c->sse.on_event = remote_call_on_event;
    c->sse.on_comment = remote_call_on_comment;
    c->sse.ctx = c;
    dialect_client_init(st, l->o.dialect, &l->o.upstream, rq,
                        (struct api_sink){remote_call_on_batch, c});
    if (!loop_timer_open(&c->timer, l->o.loop, remote_call_on_time, c, &e->err) ||
        !remote_call_start(c, e)) {
        remote_call_free(c);
        return false;
    }
    l->inflight++;
    c->begun_ms = c->since_ms = loop_ms();
    remote_call_arm(c);
    return true;
}

static struct remote_call *remote_leg_find(const struct remote_leg *l, uint64_t id)
{
    list_each (link, &l->calls) {
        struct remote_call *c = list_item(link, struct remote_call, link);
        if (!c->is_dead && c->state != REMOTE_CALL_OVER && c->rq->id == id)
            return c;
    }
    return NULL;
}

static void remote_leg_cancel(void *self, uint64_t id)
{
    struct remote_call *c = remote_leg_find(self, id);
    if (c)
        remote_call_drop(c);
}

static void remote_leg_hold(void *self, uint64_t id, bool on)
{
    struct remote_call *c = remote_leg_find(self, id);
    if (!c || c->is_held == on || !c->http)
        return;
    c->is_held = on;
    http_client_pause(c->http, on);
    c->since_ms = loop_ms();
    remote_call_arm(c);
}

static void remote_leg_credit(void *self, uint64_t id, uint32_t bytes)
{
    (void)self, (void)id, (void)bytes;
}

static size_t remote_leg_models(void *self, struct api_model *out, size_t out_max)
{
    const struct remote_leg *l = self;
    if (out_max)
        out[0] = (struct api_model){.name = l->o.upstream.model, .context_max = l->o.context_max,
                                    .caps = l->o.upstream.caps, .type = STR("chat")};
    return 1;
}

static void remote_leg_health(void *self, struct api_health *out)
{
    const struct remote_leg *l = self;
    *out = (struct api_health){.state = API_HEALTH_READY, .reason = STR(""),
                               .running = l->inflight};
}

struct api_provider remote_leg_provider(struct remote_leg *l)
{
    return (struct api_provider){l, remote_leg_submit, remote_leg_cancel, remote_leg_hold,
                                 remote_leg_credit, remote_leg_models, remote_leg_health};
}

/* --- checks and probes ---------------------------------------------------------------------- */

bool remote_leg_ask(struct remote_leg *l,
                    void (*on_check)(void *ctx, const struct remote_leg_check *c), void *ctx)
{
    return remote_check_ask(&l->checks, on_check, ctx);
}

bool remote_leg_probe(struct remote_leg *l, str model, const struct api_deadlines *wait,
                      void (*on_check)(void *ctx, const struct remote_leg_check *c), void *ctx)
{
    return remote_check_probe(&l->checks, model, wait, on_check, ctx);
}

/* --- open and close ------------------------------------------------------------------------- */

static bool remote_leg_check_url(str name, str url, struct err *e)
{
    bool is_https = str_starts(url, STR("https://"));
    str rest = str_from(url, is_https ? strlen("https://") : strlen("http://"));
    bool ok = (is_https || str_starts(url, STR("http://"))) && rest.len && url.len <= 2048;
    for (size_t i = 0; i < rest.len; i++)
        ok = ok && rest.p[i] > ' ' && rest.p[i] < 127 && !strchr("?#@\\\"<>", rest.p[i]);
    if (!ok || rest.p[0] == '/' || rest.p[0] == ':')
        return err_set(e, ERR_CONFIG, "leg %.*s: url: http://HOST[:PORT][/PATH] or https://... "
                       "expected, without user, query and fragment, got \"%.*s\"", STR_ARG(name),
                       STR_ARG(str_sub(url, 0, 80)));
    if (str_ends(url, STR("/")) || str_ends(url, STR("/v1")))
        return err_set(e, ERR_CONFIG, "leg %.*s: url: the base without \"/v1\" and without \"/\" "
                       "at its end expected, got \"%.*s\"", STR_ARG(name),
                       STR_ARG(str_sub(url, 0, 80)));
    return true;
}

static bool remote_leg_check_ca(str name, str path, struct err *e)
{
    struct arena a;
    struct err why = {0};
    char z[4096];
    str pem;
    if (path.len == 0)
        return true;
    snprintf(z, sizeof z, "%.*s", STR_ARG(path));
    arena_init(&a, REMOTE_LEG_CA_MAX + 4096);
    bool ok = file_read(&pem, z, REMOTE_LEG_CA_MAX, &a, &why);
    if (ok && str_find(pem, STR("-----BEGIN CERTIFICATE-----")) == STR_NONE)
        ok = err_set(&why, ERR_CONFIG, "%s holds no certificate in PEM form", z);
    arena_deinit(&a);
    return ok || err_set(e, ERR_CONFIG, "leg %.*s: ca_file: %s", STR_ARG(name), why.text);
}

static bool remote_leg_check_options(const struct remote_leg_options *o, struct err *e)
{
    static const char *const how[] = {"none", "prefill", "final_message", "shoal"};
    const struct api_resume resume = {.partials_count = 0};
    const struct api_request rq = {.resume = &resume};
    if (!o->dialect || !o->dialect->client)
        return err_set(e, ERR_CONFIG, "leg %.*s: dialect: no upstream speaks %s", STR_ARG(o->name),
                       o->dialect ? o->dialect->name : "it");
    if (o->upstream.how == DIALECT_CONTINUE_PREFILL || /* shoals speak all of them */
        o->upstream.how == DIALECT_CONTINUE_FINAL_MESSAGE)
        if (!o->dialect->client->can_continue(&o->upstream, &rq))
            return err_set(e, ERR_CONFIG, "leg %.*s: continue: %s is not a thing of %s",
                           STR_ARG(o->name), how[o->upstream.how], o->dialect->name);
    if (o->auth == REMOTE_LEG_AUTH_KEY && o->key.len == 0)
        return err_set(e, ERR_CONFIG, "leg %.*s: its key is empty", STR_ARG(o->name));
    for (size_t i = 0; i < o->key.len; i++)
        if ((uint8_t)o->key.p[i] <= ' ' || (uint8_t)o->key.p[i] > 126)
            return err_set(e, ERR_CONFIG, "leg %.*s: byte %zu of its key is no visible ASCII",
                           STR_ARG(o->name), i);
    return remote_leg_check_url(o->name, o->url, e) &&
           remote_leg_check_ca(o->name, o->ca_file, e);
}

bool remote_leg_open(struct remote_leg **out, const struct remote_leg_options *o, struct err *e)
{
    if (!remote_leg_check_options(o, e))
        return false;
    struct remote_leg *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ERR_MEMORY, "leg %.*s: no memory", STR_ARG(o->name));
    l->o = *o;
    list_init(&l->calls);
    arena_init(&l->keep, (size_t)1 << 20);
    str *const views[] = {&l->o.name, &l->o.url, &l->o.ca_file, &l->o.key, &l->o.health_path,
                          &l->o.upstream.model, &l->o.via};
    for (size_t i = 0; i < countof(views); i++)
        *views[i] = arena_copy(&l->keep, *views[i]);
    l->o.upstream.name = l->o.name;
    remote_check_init(&l->checks, &l->o, remote_leg_provider(l));
    if (l->keep.is_full) {
        remote_leg_close(l);
        return err_set(e, ERR_MEMORY, "leg %.*s: no memory", STR_ARG(o->name));
    }
    *out = l;
    return true;
}

void remote_leg_close(struct remote_leg *l)
{
    if (!l)
        return;
    list_each (link, &l->calls)
        remote_call_drop(list_item(link, struct remote_call, link));
    remote_check_close(&l->checks);
    l->is_closed = true;
    if (list_is_empty(&l->calls)) /* else one of them is what closes it */
        remote_leg_free(l);
}

uint32_t remote_leg_inflight(const struct remote_leg *l) { return l->inflight; }
const struct dialect_upstream *remote_leg_upstream(const struct remote_leg *l)
{
    return &l->o.upstream;
}
