#include "cli/stub_upstream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/json.h"
#include "base/list.h"
#include "dialect/dialect.h"
#include "wire/http_server.h"

#define STUB_BIG ((size_t)10 << 20)
#define STUB_PING_MS 50
#define STUB_CUT_MS 5
#define STUB_HEADER_BYTES ((size_t)200 << 10)
#define STUB_THOUGHTS 3u
#define STUB_LAST_MAX ((size_t)8 << 20)

#define STUB_FAULTS(X)                                                                          \
    X(OK, "ok") X(HANG_HEADER, "hang_header") X(HANG_BODY, "hang_body") X(PINGS, "pings")       \
    X(PREFILL, "prefill") X(ROLES, "roles") X(STALL, "stall") X(END, "end") X(CUT, "cut")       \
    X(CUT_BYTE, "cut_byte") X(ABORT, "abort") X(GARBAGE, "garbage")                             \
    X(WRONG_FINISH, "wrong_finish") X(STATUS, "status") X(RETRY, "retry") X(FLAP, "flap")       \
    X(ECHO, "echo") X(FAIL_LATE, "fail_late") X(SLOW, "slow") X(BIG, "big")                    \
    X(HEADERS, "headers") X(HTML, "html") X(OTHER, "other") X(THINK, "think") X(CALL, "call")
enum stub_fault {
#define X(name, text) STUB_FAULT_##name,
    STUB_FAULTS(X)
#undef X
    STUB_FAULT_COUNT_
};
static const char *const stub_faults[] = {
#define X(name, text) text,
    STUB_FAULTS(X)
#undef X
};

struct stub_script {
    enum stub_fault fault;
    uint64_t n; /* what stands behind '=', or 0 */
};

/* One chat under way. */
struct stub_call {
    struct list link;
    struct stub_upstream *stub;
    struct http_conn *conn;
    const struct dialect *dialect;
    struct dialect_state *st;
    struct api_request rq;
    struct arena a;
    struct buf out;
    struct loop_timer timer;
    struct stub_script script;
    uint32_t at, garbage, pings; /* words, bad events, signs of life said */
    uint32_t first;       /* word that this call began with: an unfinished turn has the others */
    size_t begun;         /* bytes of the word at hand that an unfinished turn holds */
    size_t bytes;         /* written */
    bool is_cut;          /* breaks off when what was written had time to leave */
    char id[32];
};

struct stub_upstream {
    struct stub_upstream_options o;
    struct http_server *http;
    struct list calls;
    struct stub_upstream_counts counts;
    struct stub_script all;
    bool has_all;
    uint64_t flaps;
    struct buf last;
};

/* --- the text ------------------------------------------------------------------------------- */

/* Takes the next word of a given text, with the blanks before it: a cut behind a word is one
 * between tokens of most models. */
static str stub_text_word(str *rest)
{
    size_t n = 0;
    while (n < rest->len && (rest->p[n] == ' ' || rest->p[n] == '\n'))
        n++;
    while (n < rest->len && rest->p[n] != ' ' && rest->p[n] != '\n')
        n++;
    str word = str_sub(*rest, 0, n);
    *rest = str_from(*rest, n);
    return word;
}

static uint32_t stub_text_words(str text)
{
    uint32_t n = 0;
    for (; text.len; n++)
        stub_text_word(&text);
    return n;
}

/* "k0007 ", with letters of two and four bytes among them; no two are equal. */
static str stub_word(const struct stub_upstream *s, uint32_t i, char out[32])
{
    if (s->o.text.len) {
        str rest = s->o.text, word = STR("");
        for (uint32_t k = 0; k <= i; k++)
            word = stub_text_word(&rest);
        return word;
    }
    static const char *const marks[] = {"", "", "", "\xc3\xa4", "", "\xf0\x9f\x90\x9f", "", "\n"};
    int n = snprintf(out, 32, "%c%04u%s ", (char)('a' + s->o.seed % 26), i,
                     marks[(s->o.seed + i) % countof(marks)]);
    return str_view(out, (size_t)n);
}

void stub_upstream_text(const struct stub_upstream *s, struct buf *out)
{
    char word[32];
    for (uint32_t i = 0; i < s->o.words; i++)
        buf_add(out, stub_word(s, i, word));
}

/* Words that an unfinished turn already holds whole, and bytes of the next one: a model goes on
 * with the very next character, a blank too. */
static uint32_t stub_said_before(const struct stub_upstream *s, const struct api_request *rq,
                                 size_t *begun)
{
    struct buf all;
    char word[32];
    uint32_t n = 0;
    const struct api_message *last = rq->messages_count ? &rq->messages[rq->messages_count - 1]
                                                        : NULL;
    if (!last || !rq->continue_last)
        return 0;
    buf_init(&all, STUB_UPSTREAM_BODY_MAX);
    for (uint32_t i = 0; i < last->parts_count; i++)
        if (last->parts[i].kind == API_PART_TEXT)
            buf_add(&all, last->parts[i].text);
    for (str rest = buf_view(&all); n < s->o.words; n++) {
        str w = stub_word(s, n, word);
        if (!str_starts(rest, w)) {
            *begun = str_starts(w, rest) ? rest.len : 0;
            break;
        }
        rest = str_from(rest, w.len);
    }
    buf_deinit(&all);
    return n;
}

/* --- faults by name ------------------------------------------------------------------------- */

static bool stub_script_parse(str text, struct stub_script *out)
{
    str name, rest = text;
    *out = (struct stub_script){.fault = STUB_FAULT_OK};
    if (!str_split(&rest, '=', &name))
        return true;
    for (int i = 0; i < STUB_FAULT_COUNT_; i++)
        if (str_eq_z(name, stub_faults[i])) {
            out->fault = (enum stub_fault)i;
            return rest.len == 0 || str_to_u64(rest, &out->n);
        }
    return false;
}

static struct stub_script stub_script_of(const struct stub_upstream *s, str model)
{
    struct stub_script out;
    size_t slash = STR_NONE;
    if (s->has_all)
        return s->all;
    for (size_t i = 0; i < model.len; i++)
        if (model.p[i] == '/')
            slash = i;
    if (slash == STR_NONE || !stub_script_parse(str_from(model, slash + 1), &out))
        return (struct stub_script){.fault = STUB_FAULT_OK};
    return out;
}

bool stub_upstream_set(struct stub_upstream *s, str fault, struct err *e)
{
    s->has_all = fault.len > 0;
    return stub_script_parse(fault, &s->all) ||
           err_set(e, ERR_USAGE, "no fault is called '%.*s'", STR_ARG(str_sub(fault, 0, 60)));
}

/* --- one reply ------------------------------------------------------------------------------ */

static void stub_call_free(struct stub_call *c)
{
    c->stub->counts.running--;
    if (c->conn)
        http_conn_set_user(c->conn, NULL);
    loop_timer_close(&c->timer);
    list_remove(&c->link);
    dialect_state_deinit(c->st);
    free(c->st);
    buf_deinit(&c->out);
    arena_deinit(&c->a);
    free(c);
}

static void stub_call_cut(struct stub_call *c)
{
    c->is_cut = true;
    loop_timer_set(&c->timer, STUB_CUT_MS);
}

static void stub_call_begin(struct stub_call *c)
{
    if (!http_conn_has_begun(c->conn))
        http_conn_begin(c->conn, 200, c->st->stream ? c->dialect->stream_type : "application/json");
}

/* The reply ends here, with its terminal chunk, even if nothing was said. */
static void stub_call_end(struct stub_call *c)
{
    struct http_conn *conn = c->conn;
    stub_call_begin(c);
    stub_call_free(c);
    http_conn_end(conn);
}

/* Hands over what was written; false: the call is over, or about to be. */
static bool stub_call_flush(struct stub_call *c)
{
    bool cuts = c->script.fault == STUB_FAULT_CUT_BYTE;
    size_t left = cuts && c->script.n > c->bytes ? c->script.n - c->bytes : 0;
    str bytes = buf_view(&c->out);
    if (cuts)
        bytes = str_sub(bytes, 0, left);
    if (bytes.len) {
        stub_call_begin(c);
        http_conn_write(c->conn, bytes);
    }
    c->bytes += bytes.len;
    buf_clear(&c->out);
    if (!cuts || c->bytes < c->script.n)
        return true;
    stub_call_cut(c);
    return false;
}

static void stub_call_write(struct stub_call *c, const struct api_event *ev)
{
    c->dialect->write_event(&c->out, c->st, 0, ev);
}

static void stub_call_say(struct stub_call *c, enum api_event_kind kind, str text)
{
    const struct api_event ev = {.kind = kind, .text = {.text = text}};
    stub_call_write(c, &ev);
}

static void stub_call_call(struct stub_call *c)
{
    static const str pieces[] = {STR_INIT("{\"n\":"), STR_INIT("[1,2"), STR_INIT("],\"s\":\"x\"}")};
    struct api_call call = {.id = STR("call_stub"),
                            .name = c->rq.tools_count ? c->rq.tools[0].name : STR("stub")};
    struct api_event ev = {.kind = API_EVENT_CALL_BEGIN, .call = call};
    stub_call_write(c, &ev);
    ev.kind = API_EVENT_CALL_ARGS;
    for (size_t i = 0; i < countof(pieces); i++) {
        ev.call.args = pieces[i];
        stub_call_write(c, &ev);
    }
    ev.kind = API_EVENT_CALL_END;
    stub_call_write(c, &ev);
}

/* A word is a token here. */
static bool stub_call_is_cut(const struct stub_call *c)
{
    return c->rq.tokens_max && c->at - c->first >= c->rq.tokens_max;
}

static void stub_call_done(struct stub_call *c)
{
    bool is_call = c->script.fault == STUB_FAULT_CALL || c->script.fault == STUB_FAULT_WRONG_FINISH;
    bool is_cut = stub_call_is_cut(c);
    const struct api_event usage = {
        .kind = API_EVENT_USAGE,
        .usage = {.prompt_tokens = 10, .cached_tokens = 4, .output_tokens = c->at}};
    const struct api_event done = {
        .kind = API_EVENT_DONE,
        .done = {.reason = is_call ? API_DONE_CALLS : is_cut ? API_DONE_MAX_TOKENS : API_DONE_EOS}};
    stub_call_write(c, &usage);
    stub_call_write(c, &done);
    if (c->script.fault == STUB_FAULT_CUT_BYTE && c->script.n > c->bytes + c->out.len)
        c->script.n = c->bytes + c->out.len - 1; /* even the last byte counts */
    if (stub_call_flush(c))
        stub_call_end(c);
}

static void stub_call_error(struct stub_call *c)
{
    struct api_error e;
    api_error_set(&e, ERR_UPSTREAM, "", STR(""), "the stub was told to fail");
    c->dialect->write_error(&c->out, c->st, &e);
    if (stub_call_flush(c))
        stub_call_end(c);
}

static void stub_call_garbage(struct stub_call *c)
{
    if (c->script.fault != STUB_FAULT_GARBAGE || c->garbage >= c->script.n || !c->st->stream)
        return;
    c->garbage++;
    buf_add_z(&c->out, c->dialect->family == DIALECT_OLLAMA ? "{\"mess\n" : "data: {\"cho\n\n");
}

/* A word is due. True: go on. */
static bool stub_call_fails_here(struct stub_call *c)
{
    if (c->at < c->script.n)
        return false;
    switch (c->script.fault) {
    case STUB_FAULT_STALL:
        return stub_call_flush(c); /* and silence */
    case STUB_FAULT_END:
        if (stub_call_flush(c))
            stub_call_end(c);
        return true;
    case STUB_FAULT_CUT:
        if (stub_call_flush(c))
            stub_call_cut(c);
        return true;
    case STUB_FAULT_FAIL_LATE:
        stub_call_error(c);
        return true;
    case STUB_FAULT_OK: case STUB_FAULT_HANG_HEADER: case STUB_FAULT_HANG_BODY:
    case STUB_FAULT_PINGS: case STUB_FAULT_PREFILL: case STUB_FAULT_ROLES: case STUB_FAULT_CUT_BYTE:
    case STUB_FAULT_ABORT: case STUB_FAULT_GARBAGE: case STUB_FAULT_WRONG_FINISH:
    case STUB_FAULT_STATUS: case STUB_FAULT_RETRY: case STUB_FAULT_FLAP: case STUB_FAULT_ECHO:
    case STUB_FAULT_SLOW:
    case STUB_FAULT_BIG: case STUB_FAULT_HEADERS: case STUB_FAULT_HTML: case STUB_FAULT_OTHER:
    case STUB_FAULT_THINK: case STUB_FAULT_CALL: case STUB_FAULT_COUNT_:
        break;
    }
    return false;
}

static bool stub_call_is_at_end(const struct stub_call *c)
{
    return c->at >= c->stub->o.words || stub_call_is_cut(c);
}

static void stub_call_word(struct stub_call *c)
{
    char word[32];
    bool thinks = c->script.fault == STUB_FAULT_THINK && c->at < STUB_THOUGHTS;
    stub_call_say(c, thinks ? API_EVENT_REASONING : API_EVENT_CONTENT,
                  str_from(stub_word(c->stub, c->at, word), c->begun));
    c->begun = 0;
    c->at++;
    c->stub->counts.words++;
    stub_call_garbage(c);
}

static void stub_call_on_time(void *ctx)
{
    struct stub_call *c = ctx;
    int64_t gap = c->script.fault == STUB_FAULT_SLOW ? (int64_t)c->script.n : c->stub->o.gap_ms;
    if (c->is_cut) {
        struct http_conn *conn = c->conn;
        stub_call_free(c);
        http_conn_abort(conn);
        return;
    }
    bool is_prefill = c->script.fault == STUB_FAULT_PREFILL && c->pings < c->script.n;
    if (c->script.fault == STUB_FAULT_PINGS || is_prefill) {
        c->pings++;
        struct dialect_ping p = {.phase = is_prefill ? "prefill" : "queued",
                                 .done = is_prefill ? c->pings : 0,
                                 .total = is_prefill ? (uint32_t)c->script.n : 0, .eta_ms = -1};
        c->dialect->write_ping(&c->out, c->st, &p);
        if (stub_call_flush(c))
            loop_timer_set(&c->timer, STUB_PING_MS);
        return;
    }
    do {
        if (stub_call_fails_here(c))
            return;
        if (stub_call_is_at_end(c)) {
            stub_call_done(c);
            return;
        }
        stub_call_word(c);
    } while (gap == 0);
    if (stub_call_flush(c))
        loop_timer_set(&c->timer, gap);
}

/* --- how it begins -------------------------------------------------------------------------- */

/* What a careless upstream does: the request's key in its words. */
static str stub_key(const struct http_request *r)
{
    for (size_t i = 0; i < r->header_count; i++)
        if (str_eq_nocase(r->headers[i].name, STR("authorization")) ||
            str_eq_nocase(r->headers[i].name, STR("x-api-key")))
            return str_sub(r->headers[i].value, 0, 256);
    return STR("");
}

static void stub_refuse(struct http_conn *conn, const struct dialect *d,
                        const struct stub_script *k, uint64_t status)
{
    bool is_retry = k->fault == STUB_FAULT_RETRY;
    uint64_t retry_s = !is_retry ? 0 : k->n ? k->n : 1;
    char text[400], json[800];
    snprintf(text, sizeof text, "the stub was told to answer %u", (unsigned)status);
    if (k->fault == STUB_FAULT_ECHO) {
        str key = stub_key(http_conn_request(conn));
        snprintf(text, sizeof text, "no such account: %.*s", STR_ARG(key));
    }
    if (d->family == DIALECT_OLLAMA)
        snprintf(json, sizeof json, "{\"error\":\"%s\"}", text);
    else
        snprintf(json, sizeof json, "{\"type\":\"error\",\"error\":{\"type\":\"stub\","
                 "\"message\":\"%s\"}}", text);
    if (retry_s) {
        snprintf(text, sizeof text, "%llu", (unsigned long long)retry_s);
        http_conn_add_header(conn, "Retry-After", str_of(text));
    }
    http_conn_reply(conn, (int)status, "application/json", str_of(json));
}

static void stub_call_big(struct stub_call *c)
{
    struct buf text;
    buf_init(&text, STUB_BIG);
    while (text.len < STUB_BIG && buf_add_z(&text, "0123456789abcdef"))
        ;
    stub_call_say(c, API_EVENT_CONTENT, buf_view(&text));
    buf_deinit(&text);
}

/* The connection bounds its own fields: the rest stands behind the type. */
static void stub_call_headers(struct stub_call *c)
{
    struct buf type;
    buf_init(&type, STUB_HEADER_BYTES * 2);
    buf_add_z(&type, c->dialect->stream_type);
    while (type.len < STUB_HEADER_BYTES)
        buf_add_z(&type, "\r\nX-Stub: an endless header");
    http_conn_begin(c->conn, 200, type.p);
    buf_deinit(&type);
}

/* An empty first piece, as chat completions have it: whoever counts it as a token is fooled. */
static void stub_call_roles(struct stub_call *c)
{
    if (strcmp(c->dialect->name, "openai_chat") == 0)
        buf_add_z(&c->out, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":"
                  "[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n");
    else
        c->dialect->write_ping(&c->out, c->st, &(struct dialect_ping){.phase = "queued",
                                                                      .eta_ms = -1});
}

/* Another protocol's stream under the type that was asked for. */
static void stub_call_other(struct stub_call *c)
{
    struct http_conn *conn = c->conn;
    const char *type = c->dialect->stream_type;
    str text = STR("{\"message\":{\"role\":\"assistant\",\"content\":\"hi\"},\"done\":false}\n"
                   "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n");
    if (c->dialect->family == DIALECT_OLLAMA)
        text = STR("event: message_start\ndata: {\"type\":\"message_start\"}\n\n"
                   "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    stub_call_free(c);
    http_conn_reply(conn, 200, type, text);
}

/* True: the reply is told word by word from now on. */
static bool stub_call_opens(struct stub_call *c)
{
    struct http_conn *conn = c->conn;
    switch (c->script.fault) {
    case STUB_FAULT_HANG_HEADER:
        return false;
    case STUB_FAULT_HANG_BODY:
        stub_call_begin(c);
        return false;
    case STUB_FAULT_ROLES:
        stub_call_begin(c);
        stub_call_roles(c);
        stub_call_flush(c);
        return false;
    case STUB_FAULT_ABORT:
        stub_call_free(c);
        http_conn_abort(conn);
        return false;
    case STUB_FAULT_HEADERS:
        stub_call_headers(c);
        return true;
    case STUB_FAULT_HTML:
        stub_call_free(c);
        http_conn_reply(conn, 200, "text/html", STR("<html><body>hello</body></html>\n"));
        return false;
    case STUB_FAULT_OTHER:
        stub_call_other(c);
        return false;
    case STUB_FAULT_BIG:
        stub_call_big(c);
        return true;
    case STUB_FAULT_CALL:
        stub_call_call(c);
        return true;
    case STUB_FAULT_OK: case STUB_FAULT_PINGS: case STUB_FAULT_PREFILL: case STUB_FAULT_STALL:
    case STUB_FAULT_END:
    case STUB_FAULT_CUT: case STUB_FAULT_CUT_BYTE: case STUB_FAULT_GARBAGE:
    case STUB_FAULT_WRONG_FINISH: case STUB_FAULT_STATUS: case STUB_FAULT_RETRY:
    case STUB_FAULT_FLAP: case STUB_FAULT_ECHO: case STUB_FAULT_FAIL_LATE: case STUB_FAULT_SLOW:
    case STUB_FAULT_THINK: case STUB_FAULT_COUNT_:
        break;
    }
    return true;
}

/* Statuses need no reply: true when one was given. */
static bool stub_refused(struct stub_upstream *s, struct http_conn *conn, const struct dialect *d,
                         const struct stub_script *k)
{
    bool is_status = k->fault == STUB_FAULT_STATUS ||
                     k->fault == STUB_FAULT_ECHO ||
                     (k->fault == STUB_FAULT_FLAP && s->flaps++ % 2 == 0);
    uint64_t status = k->n >= 400 && k->n < 600 ? k->n : 503;
    if (!is_status && k->fault != STUB_FAULT_RETRY)
        return false;
    stub_refuse(conn, d, k, is_status ? status : 429);
    return true;
}

static void stub_chat(struct stub_upstream *s, struct http_conn *conn, const struct dialect *d,
                      const struct dialect_path *path)
{
    const struct http_request *r = http_conn_request(conn);
    struct stub_call *c = calloc(1, sizeof *c);
    struct dialect_state *st = calloc(1, d->state_size);
    struct api_error e;
    if (!c || !st) {
        free(c);
        free(st);
        http_conn_abort(conn);
        return;
    }
    *c = (struct stub_call){.stub = s, .conn = conn, .dialect = d, .st = st};
    snprintf(c->id, sizeof c->id, "req_stub%018u", s->counts.chats);
    st->dialect = d;
    s->counts.running++;
    list_push_last(&s->calls, &c->link);
    arena_init(&c->a, 8 * r->body.len + ((size_t)1 << 20));
    buf_init(&c->out, 3 * STUB_BIG);
    struct dialect_in in = {.path = path, .body = r->body, .request_id = str_of(c->id),
                            .time_s = chrono_unix_ms(&chrono_real) / 1000,
                           .limits = &dialect_limits_default};
    if (!loop_timer_open(&c->timer, s->o.loop, stub_call_on_time, c, &e.err) ||
        !d->read_request(&c->rq, st, &in, &c->a, &e)) {
        d->write_error(&c->out, st, &e);
        http_conn_reply(conn, dialect_status(st, &e), "application/json", buf_view(&c->out));
        stub_call_free(c);
        return;
    }
    s->counts.chats++;
    c->script = stub_script_of(s, c->rq.model);
    c->at = c->first = stub_said_before(s, &c->rq, &c->begun);
    if (stub_refused(s, conn, d, &c->script)) {
        stub_call_free(c);
        return;
    }
    http_conn_set_user(conn, c);
    if (stub_call_opens(c))
        loop_timer_set(&c->timer, 0);
}

/* --- requests ------------------------------------------------------------------------------- */

static void stub_keep_last(struct stub_upstream *s, const struct http_request *r)
{
    buf_clear(&s->last);
    for (size_t i = 0; i < r->header_count; i++)
        buf_printf(&s->last, "%.*s: %.*s\n", STR_ARG(r->headers[i].name),
                   STR_ARG(r->headers[i].value));
    buf_add_byte(&s->last, '\n');
    buf_add(&s->last, r->body);
}

static void stub_counts_reply(const struct stub_upstream *s, struct http_conn *conn)
{
    char json[200];
    snprintf(json, sizeof json, "{\"requests\":%u,\"chats\":%u,\"words\":%u,\"gone\":%u,"
             "\"running\":%u}", s->counts.requests, s->counts.chats, s->counts.words,
             s->counts.gone, s->counts.running);
    http_conn_reply(conn, 200, "application/json", str_of(json));
}

/* POST /stub/fault: its body is the fault for all. */
static void stub_control(struct stub_upstream *s, struct http_conn *conn)
{
    const struct http_request *r = http_conn_request(conn);
    struct buf text;
    struct err e;
    buf_init(&text, STUB_UPSTREAM_BODY_MAX);
    if (str_eq(r->path, STR("/stub/fault"))) {
        bool ok = stub_upstream_set(s, str_trim(r->body), &e);
        http_conn_reply(conn, ok ? 200 : 400, "text/plain", ok ? STR("ok\n") : str_of(e.text));
    } else if (str_eq(r->path, STR("/stub/text"))) {
        stub_upstream_text(s, &text);
        http_conn_reply(conn, 200, "text/plain; charset=utf-8", buf_view(&text));
    } else if (str_eq(r->path, STR("/stub/last"))) {
        http_conn_reply(conn, 200, "text/plain; charset=utf-8", buf_view(&s->last));
    } else {
        stub_counts_reply(s, conn);
    }
    buf_deinit(&text);
}

static uint64_t stub_on_header(void *ctx, struct http_conn *c)
{
    (void)ctx, (void)c;
    return STUB_UPSTREAM_BODY_MAX;
}

static void stub_on_request(void *ctx, struct http_conn *conn)
{
    struct stub_upstream *s = ctx;
    const struct http_request *r = http_conn_request(conn);
    const struct dialect *d = NULL;
    const struct dialect_path *path = NULL;
    str segment;
    if (str_starts(r->path, STR("/stub/"))) {
        stub_control(s, conn);
        return;
    }
    s->counts.requests++;
    if (dialect_match(r->method, r->path, &d, &path, &segment) && path->kind == API_KIND_CHAT) {
        stub_keep_last(s, r);
        stub_chat(s, conn, d, path);
    } else if (s->has_all && s->all.fault == STUB_FAULT_STATUS) {
        http_conn_reply(conn, (int)s->all.n, "application/json", STR("{\"error\":\"stub\"}"));
    } else {
        http_conn_reply(conn, 200, "application/json",
                        STR("{\"object\":\"list\",\"data\":[],\"version\":\"0\"}"));
    }
}

static void stub_on_gone(void *ctx, struct http_conn *conn)
{
    struct stub_upstream *s = ctx;
    struct stub_call *c = http_conn_user(conn);
    s->counts.gone++;
    if (!c)
        return;
    c->conn = NULL;
    stub_call_free(c);
}

static void stub_on_drain(void *ctx, struct http_conn *c) { (void)ctx, (void)c; }

static void stub_write_error(void *ctx, struct http_conn *c, int status, const char *text,
                             struct buf *out)
{
    (void)ctx, (void)c, (void)status;
    buf_printf(out, "{\"error\":{\"message\":\"%s\"}}", text);
}

/* --- open and close ------------------------------------------------------------------------- */

bool stub_upstream_open(struct stub_upstream **out, const struct stub_upstream_options *o,
                        struct err *e)
{
    struct stub_upstream *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "stub: no memory");
    s->o = *o;
    if (o->text.len)
        s->o.words = stub_text_words(o->text);
    list_init(&s->calls);
    buf_init(&s->last, STUB_LAST_MAX);
    struct http_server_options http = {
        .base = loop_base(o->loop), .connections_max = 4096,
        .handlers = {s, stub_on_header, stub_on_request, stub_on_gone, stub_on_drain,
                     stub_write_error, NULL},
        .limits = {.header_size_max = 65536, .pipeline_size_max = 65536,
                   .output_high = 64u << 20, .output_low = 1u << 20, .header_time_ms = 60000,
                   .idle_time_ms = 60000, .upload_idle_ms = 60000, .reader_idle_ms = 600000}};
    if (!http_server_open(&s->http, &http, e) || !http_server_listen(s->http, o->listen, e)) {
        stub_upstream_close(s);
        return false;
    }
    *out = s;
    return true;
}

void stub_upstream_close(struct stub_upstream *s)
{
    if (!s)
        return;
    if (s->http)
        http_server_close(s->http); /* each open request gets its on_gone */
    list_each (link, &s->calls)
        stub_call_free(list_item(link, struct stub_call, link));
    buf_deinit(&s->last);
    free(s);
}

uint16_t stub_upstream_port(const struct stub_upstream *s) { return http_server_port(s->http, 0); }
struct stub_upstream_counts stub_upstream_counts(const struct stub_upstream *s)
{
    return s->counts;
}
str stub_upstream_last(const struct stub_upstream *s) { return buf_view(&s->last); }
