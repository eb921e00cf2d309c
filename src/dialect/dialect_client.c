#include "dialect/dialect_client.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dialect/dialect_hear.h"

#define CLIENT_KEEP_MIN ((size_t)4 << 20) /* beside 8 times the request's body */
#define CLIENT_TEXT_MAX 200u /* bytes of an upstream's words in our sentence */
#define CLIENT_RETRY_MAX_MS (INT64_C(600) * 1000) /* BEHAVIOUR 9.4: cooling <= 10 min */

/* ---- A call ---- */

void dialect_client_init(struct dialect_client_state *st, const struct dialect *d,
                         const struct dialect_upstream *leg, const struct api_request *rq,
                         struct api_sink sink)
{
    st->dialect = d;
    st->leg = leg;
    st->rq = rq;
    st->sink = sink;
    st->choices_count = api_request_choices(rq);
    st->is_same = str_eq_z(rq->dialect, d->name) && rq->kind == API_KIND_CHAT;
    st->keeps_raw = st->is_same && d->client->shows_raw && rq->stream && rq->resume == NULL &&
                    st->choices_count == 1; /* the end of several is told by several events */
    arena_init(&st->keep, 8 * rq->body.len + CLIENT_KEEP_MIN);
    arena_init(&st->scratch, 8 * DIALECT_CLIENT_EVENT_MAX + 8 * rq->body.len);
    buf_init(&st->held, DIALECT_CLIENT_EVENT_MAX);
    buf_init(&st->raw, DIALECT_CLIENT_EVENT_MAX);
    dialect_mould_init(&st->mould);
    st->choices = ARENA_ARRAY(&st->keep, struct dialect_client_choice, st->choices_count);
    must(st->choices); /* API_CHOICES_MAX of them are far below CLIENT_KEEP_MIN */
    dialect_hear_resume(st);
}

void dialect_client_deinit(struct dialect_client_state *st)
{
    for (uint32_t i = 0; st->choices && i < st->choices_count; i++)
        buf_deinit(&st->choices[i].args);
    st->choices = NULL;
    buf_deinit(&st->held);
    buf_deinit(&st->raw);
    dialect_mould_deinit(&st->mould);
    arena_deinit(&st->scratch);
    arena_deinit(&st->keep);
}

/* On one line each; line feeds stand between JSON's values only. What does not fit any more is not
 * shown as it came, but in our form. */
static void keep_raw(struct dialect_client_state *st, str data)
{
    if (!st->keeps_raw)
        return;
    bool ok = buf_add(&st->raw, data) && buf_add_byte(&st->raw, '\n');
    for (size_t i = st->raw.len - data.len - 1; ok && i + 1 < st->raw.len; i++)
        if (st->raw.p[i] == '\n' || st->raw.p[i] == '\r')
            st->raw.p[i] = ' ';
    if (!ok) {
        buf_clear(&st->raw);
        st->keeps_raw = false;
    }
}

/* Most events of a stream are the last one's with another text: parsing them is a third of what
 * passing them on costs (NUMBERS 2026-11-30). */
static bool read_known(struct dialect_client_state *st, str data)
{
    struct api_text t = {.logprobs_count = 0};
    if (!dialect_mould_fits(&st->mould, data, &t.text))
        return false;
    st->reading = data;
    if (st->raw.len)
        keep_raw(st, data);
    else
        st->is_raw = st->keeps_raw; /* shown from where it lies */
    dialect_hear_text(st, st->last.choice, st->last.kind, &t);
    st->is_raw = false;
    return true;
}

/* A mould is of the event right before: what an event says beside its text counts once. */
static bool read_new(struct dialect_client_state *st, str name, str data, struct api_error *e)
{
    st->told = (struct dialect_client_told){.choice = 0};
    st->reading = data;
    keep_raw(st, data);
    bool ok = st->dialect->client->read_event(st, name, data, e);
    bool is_line = str_find_byte(data, '\n') == STR_NONE && str_find_byte(data, '\r') == STR_NONE;
    st->last = st->told;
    if (ok && is_line && st->told.texts == 1 && !st->told.is_more)
        dialect_mould_set(&st->mould, data, st->told.text);
    else
        dialect_mould_clear(&st->mould);
    return ok;
}

bool dialect_client_read(struct dialect_client_state *st, str name, str data, struct api_error *e)
{
    size_t before = st->raw.len;
    if (st->is_over)
        return true;
    st->is_shown = false;
    bool ok = read_known(st, data) || read_new(st, name, data, e);
    if (!ok && st->raw.len > before) /* nothing was told of it */
        st->raw.len = before;
    st->reading = (str){"", 0};
    dialect_hear_flush(st);
    arena_rewind(&st->scratch);
    return ok;
}

/* Text or a call behind the reason: the upstream's word that this is the end counts for less than a
 * marker, so that a stream which breaks off there is cut. */
static bool is_doubted(const struct dialect_client_state *st)
{
    bool doubted = false;
    for (uint32_t i = 0; i < st->choices_count; i++)
        doubted = doubted || st->choices[i].is_doubted;
    return doubted && !st->is_over;
}

bool dialect_client_end(struct dialect_client_state *st, struct api_error *e)
{
    bool is_short = (st->dialect->client->needs_marker && !st->is_over) || is_doubted(st);
    bool ok = is_short ? dialect_hear_cut(e) : st->is_over || dialect_hear_end(st, e);
    dialect_hear_flush(st);
    arena_rewind(&st->scratch);
    return ok;
}

bool dialect_client_settle(struct dialect_client_state *st)
{
    struct api_error ignored;
    bool ok = st->is_over || (!is_doubted(st) && dialect_hear_end(st, &ignored));
    dialect_hear_flush(st);
    arena_rewind(&st->scratch);
    return ok;
}

/* ---- What an upstream's failure means ---- */

/* The client's own faults: another upstream would say the same of the request. */
static bool is_of_the_request(int status)
{
    return status == 400 || status == 404 || status == 405 || status == 413 || status == 422;
}

/* By status alone: BEHAVIOUR 9.4. Total: what stands in no row is the upstream's trouble, and
 * another leg may help. 402 is an account without money: as a limit of it, it costs no points. */
static void classify(struct api_error *out, int status)
{
    out->upstream_status = (uint16_t)status;
    if (status == 401 || status == 403) {
        out->fault = API_FAULT_AUTH;
        out->err.code = ERR_AUTH;
    } else if (status == 429 || status == 402) {
        out->fault = API_FAULT_RATE_LIMIT;
        out->err.code = ERR_OVERLOADED;
        out->code = STR("rate_limited");
    } else if (is_of_the_request(status)) {
        out->fault = API_FAULT_REQUEST;
        out->err.code = status == 404 ? ERR_NOT_FOUND : ERR_REQUEST;
    } else if (status >= 400) {
        out->fault = API_FAULT_HTTP_5XX;
        out->err.code = status == 503 || status == 529 ? ERR_OVERLOADED : ERR_UPSTREAM;
    } else {
        out->fault = API_FAULT_GARBAGE;
        out->err.code = ERR_UPSTREAM;
    }
}

void dialect_client_classify(struct api_error *out, int status, str text)
{
    classify(out, status);
    enum err_code code = out->err.code;
    out->upstream_text = text;
    out->upstream_text.len = str_utf8_valid(text);
    text = str_sub(out->upstream_text, 0, CLIENT_TEXT_MAX);
    text.len = str_utf8_valid(text);
    if (text.len)
        err_set(&out->err, code, "upstream answered %u: %.*s", out->upstream_status, STR_ARG(text));
    else
        err_set(&out->err, code, "upstream answered %u", out->upstream_status);
}

static str text_of(struct json v, struct arena *a)
{
    str text = json_text(v, a);
    return text.p ? text : (str){"", 0};
}

/* {"error": {"message"}}, {"error": "..."}, {"message"}, {"detail"}; else the bytes themselves. */
static str words_of(str body, struct arena *a)
{
    const struct json_options o = {.depth_max = DIALECT_DEPTH_MAX};
    struct err ignored;
    struct json v;
    if (!json_parse(&v, body, &o, a, &ignored))
        return str_trim(body);
    struct json error = json_member(v, "error");
    const struct json places[] = {json_member(error, "message"), error, json_member(v, "message"),
                                  json_member(v, "detail")};
    for (size_t i = 0; i < countof(places); i++)
        if (json_kind(places[i]) == JSON_KIND_STRING)
            return text_of(places[i], a);
    return str_trim(body);
}

static str header(const struct dialect_client_headers *h, const char *name)
{
    for (uint32_t i = 0; i < h->count; i++)
        if (str_eq_z(h->rows[i].name, name))
            return str_trim(h->rows[i].value);
    return (str){"", 0};
}

/* Seconds, or a date (RFC 9110, 10.2.3). */
static int64_t retry_after_ms(const struct dialect_client_headers *h)
{
    char text[64];
    double n = 0;
    struct tm t = {0};
    str ms = header(h, "retry-after-ms"), s = header(h, "retry-after");
    if (ms.len && str_to_double(ms, &n) && n > 0)
        return n < (double)CLIENT_RETRY_MAX_MS ? (int64_t)n : CLIENT_RETRY_MAX_MS;
    if (s.len && str_to_double(s, &n) && n > 0)
        return n * 1000 < (double)CLIENT_RETRY_MAX_MS ? (int64_t)(n * 1000) : CLIENT_RETRY_MAX_MS;
    if (s.len == 0 || s.len >= sizeof text)
        return 0;
    snprintf(text, sizeof text, "%.*s", STR_ARG(s));
    if (!strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &t))
        return 0;
    int64_t out = (int64_t)timegm(&t) * 1000 - h->unix_ms;
    return out < 0 ? 0 : out > CLIENT_RETRY_MAX_MS ? CLIENT_RETRY_MAX_MS : out;
}

void dialect_client_read_error(struct api_error *out, int status, struct dialect_client_headers h,
                               str body, struct arena *a)
{
    *out = (struct api_error){.retry_after_ms = retry_after_ms(&h)};
    dialect_client_classify(out, status, words_of(body, a));
    if (status >= 300 && status < 400) {
        str to = str_sub(header(&h, "location"), 0, 120);
        err_set(&out->err, ERR_UPSTREAM, "upstream answered %d to %.*s; redirects are not followed",
                status, STR_ARG(to));
    }
}

/* ---- What a protocol lacks ---- */

const char *dialect_client_lacks(const struct dialect *d, const struct dialect_upstream *leg,
                                 const struct api_request *rq)
{
    uint32_t lacks = d->client->lacks;
    bool is_pattern = rq->format.kind == API_FORMAT_REGEX || rq->format.kind == API_FORMAT_CHOICE;
    bool is_forced = rq->tool_choice == API_TOOL_CHOICE_REQUIRED ||
                     rq->tool_choice == API_TOOL_CHOICE_NAMED;
    if (rq->tools_count && is_forced && lacks & DIALECT_LACKS_CHOICE)
        return "tools";
    if ((is_pattern && lacks & DIALECT_LACKS_PATTERN) ||
        (rq->format.kind == API_FORMAT_JSON && lacks & DIALECT_LACKS_JSON))
        return "schema";
    if (rq->n > 1 && lacks & DIALECT_LACKS_N)
        return "n";
    if (rq->logprobs && lacks & DIALECT_LACKS_LOGPROBS)
        return "logprobs";
    if (rq->resume && (rq->resume->partials_count != 1 || rq->n > 1))
        return "continue"; /* an upstream goes on in one reply */
    if ((rq->continue_last || rq->resume) && !d->client->can_continue(leg, rq))
        return "continue";
    return NULL;
}
