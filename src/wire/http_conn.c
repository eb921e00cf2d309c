#include "wire/http_conn.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <http_parser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "wire/http_out.h"
#include "wire/http_server.h"
#include "wire/tls.h"

#define HTTP_CONN_HEADERS_MAX 256
#define HTTP_CONN_ARENA_MAX ((size_t)1 << 20) /* header views and what the handlers keep beside */
#define HTTP_CONN_LINGER_MS 2000              /* a refused client may finish reading our reply */
#define HTTP_CONN_LINGER_SIZE_MAX ((uint64_t)64 << 20)

enum http_conn_phase {
    HTTP_CONN_PHASE_IDLE,   /* keep-alive, no byte of the next request */
    HTTP_CONN_PHASE_HEADER,
    HTTP_CONN_PHASE_BODY,
    HTTP_CONN_PHASE_REPLY,  /* complete request; the handlers own the turn */
    HTTP_CONN_PHASE_LINGER, /* reply done, waiting until the client has it */
};

enum http_conn_reply { HTTP_CONN_REPLY_NONE, HTTP_CONN_REPLY_BEGUN, HTTP_CONN_REPLY_DONE };

/* Header text arrives in pieces into `text`; positions become views when it is complete. */
struct http_conn_span {
    uint32_t name, name_len, value, value_len;
};

struct http_conn {
    struct list link; /* first: http_server casts */
    struct http_server *server;
    struct bufferevent *bev;
    struct event *timer, *kick, *closed;
    struct http_out out;
    http_parser parser;
    enum http_conn_phase phase;
    enum http_conn_reply reply;
    struct http_request request;
    struct arena arena;
    struct buf text, body, extra; /* header text; body; headers of the coming reply */
    struct http_conn_span spans[HTTP_CONN_HEADERS_MAX];
    uint32_t span_count, url_len;
    bool in_value;         /* the parser is inside a header value */
    uint64_t body_max, lingered;
    uint32_t busy;         /* inside our own callbacks: closing waits */
    bool is_asked;         /* on_header was called and on_gone is owed until the reply ends */
    bool keep_alive, is_chunked, is_head, is_closing, was_slow, continue_wanted, is_flushed;
    int refusal;           /* status decided inside the parser */
    const char *refusal_text;
    void *user;
    bool is_loopback;
    char peer[64];
};

static const struct http_server_options *http_conn_options(const struct http_conn *c)
{
    return http_server_options(c->server);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void http_conn_free(struct http_conn *c)
{
    http_server_remove(c->server, &c->link);
    event_free(c->timer);
    event_free(c->kick);
    event_free(c->closed);
    http_out_deinit(&c->out);
    bufferevent_free(c->bev);
    arena_deinit(&c->arena);
    buf_deinit(&c->text);
    buf_deinit(&c->body);
    buf_deinit(&c->extra);
    free(c);
}

/* Whoever leaves our code last frees; nobody above on the stack sees a dead connection. */
static void http_conn_leave(struct http_conn *c)
{
    must(c->busy > 0);
    if (--c->busy == 0 && c->is_closing)
        http_conn_free(c);
}

static void http_conn_gone(struct http_conn *c)
{
    if (c->is_closing)
        return;
    c->is_closing = true;
    if (c->is_asked) {
        c->is_asked = false;
        http_conn_options(c)->handlers.on_gone(http_conn_options(c)->handlers.ctx, c);
    }
}

void http_conn_close(struct http_conn *c)
{
    c->busy++;
    http_conn_gone(c);
    http_conn_leave(c);
}

static void http_conn_set_timer(struct http_conn *c, uint32_t ms)
{
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
    if (ms)
        event_add(c->timer, &tv);
    else
        event_del(c->timer);
}

static void http_conn_set_phase(struct http_conn *c, enum http_conn_phase phase)
{
    const struct http_limits *l = &http_conn_options(c)->limits;
    c->phase = phase;
    event_del(c->closed);
    switch (phase) {
    case HTTP_CONN_PHASE_IDLE:
        http_conn_set_timer(c, l->idle_time_ms);
        break;
    case HTTP_CONN_PHASE_HEADER:
        http_conn_set_timer(c, l->header_time_ms);
        break;
    case HTTP_CONN_PHASE_BODY:
        http_conn_set_timer(c, l->upload_idle_ms);
        break;
    case HTTP_CONN_PHASE_REPLY:
        http_conn_set_timer(c, 0);
        event_add(c->closed, NULL); /* tells a hang-up even while reading is paused */
        break;
    case HTTP_CONN_PHASE_LINGER:
        http_conn_set_timer(c, l->reader_idle_ms);
        break;
    }
}

void http_conn_drain(struct http_conn *c)
{
    if (c->phase != HTTP_CONN_PHASE_IDLE && c->phase != HTTP_CONN_PHASE_HEADER)
        return;
    if (http_conn_pending(c)) /* the end of the last reply is still on its way */
        http_conn_set_phase(c, HTTP_CONN_PHASE_LINGER);
    else
        http_conn_close(c);
}

/* Back to a state in which the next request can begin. */
static void http_conn_reset(struct http_conn *c)
{
    arena_reset(&c->arena);
    buf_clear(&c->text);
    buf_clear(&c->extra);
    buf_deinit(&c->body);
    c->request = (struct http_request){0};
    c->span_count = c->url_len = 0;
    c->in_value = c->is_chunked = c->is_head = c->was_slow = c->continue_wanted = false;
    c->reply = HTTP_CONN_REPLY_NONE;
    c->body_max = 0;
    c->refusal = 0;
    c->user = NULL;
    http_parser_init(&c->parser, HTTP_REQUEST);
    c->parser.data = c;
}

/* ---- replies -------------------------------------------------------------------------------- */

static const char *http_conn_reason(int status)
{
    static const struct { int status; const char *reason; } rows[] = {
        {200, "OK"}, {201, "Created"}, {202, "Accepted"}, {204, "No Content"},
        {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"}, {404, "Not Found"},
        {405, "Method Not Allowed"}, {408, "Request Timeout"}, {409, "Conflict"},
        {413, "Content Too Large"}, {415, "Unsupported Media Type"}, {417, "Expectation Failed"},
        {422, "Unprocessable Content"}, {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"}, {500, "Internal Server Error"},
        {501, "Not Implemented"}, {502, "Bad Gateway"}, {503, "Service Unavailable"},
        {504, "Gateway Timeout"}, {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"}, {529, "Overloaded"},
    };
    for (size_t i = 0; i < countof(rows); i++)
        if (rows[i].status == status)
            return rows[i].reason;
    return "Status";
}

void http_conn_add_header(struct http_conn *c, const char *name, str value)
{
    must(c->reply == HTTP_CONN_REPLY_NONE);
    buf_printf(&c->extra, "%s: ", name);
    for (size_t i = 0; i < value.len; i++) {
        char b = value.p[i];
        buf_add_byte(&c->extra, b == '\r' || b == '\n' || b == 0 ? '?' : b);
    }
    buf_add_z(&c->extra, "\r\n");
}

static bool http_conn_body_is_read(const struct http_conn *c)
{
    return c->phase == HTTP_CONN_PHASE_REPLY;
}

static void http_conn_put_z(struct http_conn *c, const char *z)
{
    http_out_add(&c->out, str_of(z));
}

static void http_conn_head(struct http_conn *c, int status, const char *type, const char *framing)
{
    must(c->reply == HTTP_CONN_REPLY_NONE && !c->is_closing);
    c->keep_alive = c->keep_alive && http_conn_body_is_read(c) &&
                    !http_server_is_draining(c->server);
    char line[64];
    snprintf(line, sizeof line, "HTTP/1.1 %d %s\r\n", status, http_conn_reason(status));
    http_conn_put_z(c, line);
    if (type) {
        http_conn_put_z(c, "Content-Type: ");
        http_conn_put_z(c, type);
        http_conn_put_z(c, "\r\n");
    }
    if (!c->extra.full)
        http_out_add(&c->out, buf_view(&c->extra));
    http_conn_put_z(c, framing);
    http_conn_put_z(c, c->keep_alive ? "\r\n" : "Connection: close\r\n\r\n");
    c->reply = HTTP_CONN_REPLY_BEGUN;
}

void http_conn_begin(struct http_conn *c, int status, const char *content_type)
{
    /* HTTP/1.0 knows no chunks: the end of the connection is the end of the reply. */
    c->is_chunked = c->parser.http_major == 1 && c->parser.http_minor >= 1;
    if (!c->is_chunked)
        c->keep_alive = false;
    http_conn_head(c, status, content_type,
                   c->is_chunked ? "Transfer-Encoding: chunked\r\n" : "");
}

static void http_conn_put_size(struct http_conn *c, size_t size)
{
    char line[sizeof size * 2 + 2], *p = line + sizeof line;
    *--p = '\n';
    *--p = '\r';
    do
        *--p = "0123456789abcdef"[size % 16];
    while (size /= 16);
    http_out_add(&c->out, str_view(p, (size_t)(line + sizeof line - p)));
}

void http_conn_write(struct http_conn *c, str bytes)
{
    must(c->reply == HTTP_CONN_REPLY_BEGUN);
    if (bytes.len == 0 || c->is_head || c->is_closing)
        return;
    if (c->is_chunked)
        http_conn_put_size(c, bytes.len);
    http_out_add(&c->out, bytes);
    if (c->is_chunked)
        http_conn_put_z(c, "\r\n");
    if (http_conn_is_slow(c))
        c->was_slow = true;
}

/* The reply is complete: either the next request may come, or the connection ends. */
static void http_conn_finish(struct http_conn *c)
{
    c->reply = HTTP_CONN_REPLY_DONE;
    c->is_asked = false;
    if (c->keep_alive) {
        http_conn_reset(c);
        http_conn_set_phase(c, HTTP_CONN_PHASE_IDLE);
        event_active(c->kick, EV_TIMEOUT, 0); /* pipelined bytes: not on the caller's stack */
        return;
    }
    http_conn_set_phase(c, HTTP_CONN_PHASE_LINGER);
    bufferevent_setwatermark(c->bev, EV_WRITE, 0, 0);
    bufferevent_enable(c->bev, EV_READ);
    event_active(c->kick, EV_TIMEOUT, 0);
}

void http_conn_end(struct http_conn *c)
{
    must(c->reply == HTTP_CONN_REPLY_BEGUN);
    if (c->is_closing)
        return;
    if (c->is_chunked && !c->is_head)
        http_conn_put_z(c, "0\r\n\r\n");
    http_conn_finish(c);
}

void http_conn_reply(struct http_conn *c, int status, const char *content_type, str body)
{
    if (c->is_closing)
        return;
    char framing[48] = "";
    if (status != 204 && status >= 200)
        snprintf(framing, sizeof framing, "Content-Length: %zu\r\n", body.len);
    http_conn_head(c, status, content_type, framing);
    if (body.len && !c->is_head)
        http_out_add(&c->out, body);
    http_conn_finish(c);
}

void http_conn_abort(struct http_conn *c)
{
    c->busy++;
    c->is_asked = false;
    c->is_closing = true;
    http_conn_leave(c);
}

/* An answer of the connection itself: no handler knows of the request, or it was told on_gone. */
static void http_conn_refuse(struct http_conn *c, int status, const char *text)
{
    const struct http_handlers *h = &http_conn_options(c)->handlers;
    if (c->is_asked) {
        c->is_asked = false;
        h->on_gone(h->ctx, c);
    }
    if (c->reply != HTTP_CONN_REPLY_NONE) {
        c->is_closing = true; /* in the middle of a reply nothing sensible can be said */
        return;
    }
    struct buf body;
    buf_init(&body, 4096);
    c->keep_alive = false;
    buf_clear(&c->extra); /* of the reply that will not be */
    h->write_error(h->ctx, c, status, text, &body);
    http_conn_reply(c, status, "application/json", buf_view(&body));
    buf_deinit(&body);
}

/* ---- parsing -------------------------------------------------------------------------------- */

/* Inside the parser nothing may be freed or replied: note it, stop, act in http_conn_feed. */
static int http_conn_stop(struct http_conn *c, int status, const char *text)
{
    c->refusal = status;
    c->refusal_text = text;
    http_parser_pause(&c->parser, 1);
    return 0;
}

static int http_conn_add_text(struct http_conn *c, const char *p, size_t len)
{
    if (!buf_add_bytes(&c->text, p, len))
        return http_conn_stop(c, 431, "request header too large");
    return 0;
}

static int http_conn_on_begin(http_parser *parser)
{
    struct http_conn *c = parser->data;
    http_conn_set_phase(c, HTTP_CONN_PHASE_HEADER);
    return 0;
}

static int http_conn_on_url(http_parser *parser, const char *p, size_t len)
{
    struct http_conn *c = parser->data;
    c->url_len += (uint32_t)len;
    return http_conn_add_text(c, p, len);
}

static int http_conn_on_name(http_parser *parser, const char *p, size_t len)
{
    struct http_conn *c = parser->data;
    if (c->span_count == 0 || c->in_value) {
        if (c->span_count == HTTP_CONN_HEADERS_MAX)
            return http_conn_stop(c, 431, "too many request headers");
        c->spans[c->span_count++] = (struct http_conn_span){.name = (uint32_t)c->text.len};
        c->in_value = false;
    }
    c->spans[c->span_count - 1].name_len += (uint32_t)len;
    return http_conn_add_text(c, p, len);
}

static int http_conn_on_value(http_parser *parser, const char *p, size_t len)
{
    struct http_conn *c = parser->data;
    must(c->span_count > 0);
    struct http_conn_span *s = &c->spans[c->span_count - 1];
    if (!c->in_value)
        s->value = (uint32_t)c->text.len;
    c->in_value = true;
    s->value_len += (uint32_t)len;
    return http_conn_add_text(c, p, len);
}

/* A target in absolute form is served too, and its authority counts instead of Host (RFC 9112,
 * 3.2.2). The rest: what stands behind it. */
static str http_conn_take_authority(str url, struct http_header *headers, uint32_t count)
{
    size_t scheme = str_eq_nocase(str_sub(url, 0, 7), STR("http://"))    ? 7
                    : str_eq_nocase(str_sub(url, 0, 8), STR("https://")) ? 8
                                                                         : 0;
    if (!scheme)
        return url;
    str rest = str_from(url, scheme);
    size_t end = 0;
    while (end < rest.len && rest.p[end] != '/' && rest.p[end] != '?')
        end++;
    for (uint32_t i = 0; i < count; i++)
        if (str_eq_z(headers[i].name, "host"))
            headers[i].value = str_sub(rest, 0, end);
    rest = str_from(rest, end);
    return rest.len ? rest : STR("/");
}

static bool http_conn_fill_request(struct http_conn *c)
{
    struct http_request *r = &c->request;
    str text = buf_view(&c->text), url = str_sub(text, 0, c->url_len);
    struct http_header *headers = ARENA_ARRAY(&c->arena, struct http_header, c->span_count);
    if (!headers)
        return false;
    for (uint32_t i = 0; i < c->span_count; i++) {
        const struct http_conn_span *s = &c->spans[i];
        for (uint32_t k = 0; k < s->name_len; k++) {
            char *b = c->text.p + s->name + k;
            *b = (char)(*b >= 'A' && *b <= 'Z' ? *b | 0x20 : *b);
        }
        headers[i] = (struct http_header){str_sub(text, s->name, s->name_len),
                                          str_trim(str_sub(text, s->value, s->value_len))};
    }
    url = http_conn_take_authority(url, headers, c->span_count);
    size_t at = str_find_byte(url, '?');
    r->method = str_of(http_method_str((enum http_method)c->parser.method));
    r->path = str_sub(url, 0, at);
    r->query = at == STR_NONE ? (str){NULL, 0} : str_from(url, at + 1);
    r->headers = headers;
    r->header_count = c->span_count;
    r->peer = str_of(c->peer);
    r->is_loopback = c->is_loopback;
    r->is_tls = http_conn_options(c)->tls != NULL && !str_eq_z(r->peer, "unix");
    r->body_size = c->parser.content_length == UINT64_MAX ? 0 : c->parser.content_length;
    r->has_body = (c->parser.flags & F_CHUNKED) || r->body_size > 0;
    return true;
}

static uint32_t http_conn_count(const struct http_conn *c, const char *name)
{
    uint32_t count = 0;
    for (size_t i = 0; i < c->request.header_count; i++)
        count += str_eq_z(c->request.headers[i].name, name);
    return count;
}

/* What another reader of the same bytes might take for something else is refused (RFC 9112, 2.3,
 * 3.2, 6.1). False: it was. */
static bool http_conn_is_clear(struct http_conn *c)
{
    const http_parser *parser = &c->parser;
    str coding = http_conn_header(c, "transfer-encoding");
    if (parser->http_major != 1 || parser->http_minor > 1)
        http_conn_stop(c, 505, "only HTTP/1.0 and HTTP/1.1 are known");
    else if (http_conn_count(c, "host") > 1)
        http_conn_stop(c, 400, "Host: stands twice");
    else if (http_conn_count(c, "host") == 0 && parser->http_minor == 1)
        http_conn_stop(c, 400, "Host: is missing, which HTTP/1.1 needs");
    else if (coding.p && (http_conn_count(c, "transfer-encoding") > 1 ||
                          !str_eq_nocase(coding, STR("chunked"))))
        http_conn_stop(c, 501, "Transfer-Encoding: only chunked is known");
    return c->refusal == 0;
}

static int http_conn_on_headers(http_parser *parser)
{
    struct http_conn *c = parser->data;
    const struct http_handlers *h = &http_conn_options(c)->handlers;
    parser->upgrade = 0; /* no protocol to upgrade to: the header is ignored, CONNECT is a 405 */
    c->keep_alive = http_should_keep_alive(parser) != 0;
    c->is_head = parser->method == HTTP_HEAD;
    if (!http_conn_fill_request(c))
        return http_conn_stop(c, 431, "request header too large");
    if (!http_conn_is_clear(c))
        return 0;
    str expect = http_conn_header(c, "expect");
    if (expect.p && strncasecmp(expect.p, "100-continue", expect.len) != 0)
        return http_conn_stop(c, 417, "only Expect: 100-continue is known");
    c->is_asked = true;
    c->body_max = h->on_header(h->ctx, c);
    if (c->is_closing || c->reply != HTTP_CONN_REPLY_NONE) {
        http_parser_pause(parser, 1);
        return 0;
    }
    if (c->request.body_size > c->body_max)
        return http_conn_stop(c, 413, "request body too large");
    http_conn_set_phase(c, HTTP_CONN_PHASE_BODY);
    buf_init(&c->body, c->body_max);
    if (c->request.body_size && !buf_reserve(&c->body, c->request.body_size))
        return http_conn_stop(c, 413, "request body too large");
    if (expect.p && c->request.has_body && parser->http_minor >= 1)
        http_conn_put_z(c, "HTTP/1.1 100 Continue\r\n\r\n");
    return 0;
}

static int http_conn_on_body(http_parser *parser, const char *p, size_t len)
{
    struct http_conn *c = parser->data;
    if (!buf_add_bytes(&c->body, p, len))
        return http_conn_stop(c, 413, "request body too large");
    http_conn_set_timer(c, http_conn_options(c)->limits.upload_idle_ms);
    return 0;
}

static int http_conn_on_complete(http_parser *parser)
{
    struct http_conn *c = parser->data;
    if (c->reply != HTTP_CONN_REPLY_NONE || c->is_closing)
        return 0;
    c->request.body = buf_view(&c->body);
    http_conn_set_phase(c, HTTP_CONN_PHASE_REPLY);
    http_parser_pause(parser, 1); /* the next request waits in the input buffer */
    return 0;
}

static const http_parser_settings http_conn_settings = {
    .on_message_begin = http_conn_on_begin,
    .on_url = http_conn_on_url,
    .on_header_field = http_conn_on_name,
    .on_header_value = http_conn_on_value,
    .on_headers_complete = http_conn_on_headers,
    .on_body = http_conn_on_body,
    .on_message_complete = http_conn_on_complete,
};

/* One contiguous piece of input through the parser; false when parsing has to stop. */
static bool http_conn_feed_piece(struct http_conn *c, const char *p, size_t len, size_t *used)
{
    const struct http_handlers *h = &http_conn_options(c)->handlers;
    bool was_reading = c->phase != HTTP_CONN_PHASE_REPLY;
    *used = http_parser_execute(&c->parser, &http_conn_settings, p, len);
    enum http_errno error = HTTP_PARSER_ERRNO(&c->parser);
    if (error == HPE_PAUSED)
        http_parser_pause(&c->parser, 0);
    if (c->is_closing)
        return false;
    if (c->refusal) {
        http_conn_refuse(c, c->refusal, c->refusal_text);
        return false;
    }
    if (was_reading && c->phase == HTTP_CONN_PHASE_REPLY) {
        h->on_request(h->ctx, c);
        return false; /* a reply given at once goes on by the kick */
    }
    if (error == HPE_HEADER_OVERFLOW)
        http_conn_refuse(c, 431, "request header too large");
    else if (error != HPE_OK && error != HPE_PAUSED)
        http_conn_refuse(c, 400, http_errno_description(error));
    return error == HPE_OK;
}

static bool http_conn_is_parsing(const struct http_conn *c)
{
    return !c->is_closing && c->reply == HTTP_CONN_REPLY_NONE &&
           (c->phase == HTTP_CONN_PHASE_IDLE || c->phase == HTTP_CONN_PHASE_HEADER ||
            c->phase == HTTP_CONN_PHASE_BODY);
}

static void http_conn_feed(struct http_conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    while (http_conn_is_parsing(c)) {
        struct evbuffer_iovec piece;
        if (evbuffer_peek(in, -1, NULL, &piece, 1) < 1 || piece.iov_len == 0)
            break;
        size_t used;
        bool goes_on = http_conn_feed_piece(c, piece.iov_base, piece.iov_len, &used);
        evbuffer_drain(in, used);
        if (!goes_on)
            break;
    }
}

/* After the last byte of the reply: half-close, swallow what the client still sends, then close.
 * A plain close with unread input would reset the connection and could destroy the reply. */
static void http_conn_linger(struct http_conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    c->lingered += evbuffer_get_length(in);
    evbuffer_drain(in, evbuffer_get_length(in));
    if (c->lingered > HTTP_CONN_LINGER_SIZE_MAX) {
        c->is_closing = true;
        return;
    }
    if (c->is_flushed || http_conn_pending(c))
        return;
    c->is_flushed = true;
    if (!c->out.is_direct)
        tls_finish(c->bev);
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    http_conn_set_timer(c, HTTP_CONN_LINGER_MS);
}

/* ---- events --------------------------------------------------------------------------------- */

static void http_conn_on_read(struct bufferevent *bev, void *ctx)
{
    (void)bev;
    struct http_conn *c = ctx;
    c->busy++;
    if (c->phase == HTTP_CONN_PHASE_LINGER)
        http_conn_linger(c);
    else
        http_conn_feed(c);
    http_conn_leave(c);
}

static void http_conn_on_write(struct bufferevent *bev, void *ctx)
{
    (void)bev;
    struct http_conn *c = ctx;
    const struct http_handlers *h = &http_conn_options(c)->handlers;
    c->busy++;
    http_out_idle(&c->out);
    if (c->phase == HTTP_CONN_PHASE_LINGER) {
        http_conn_linger(c);
    } else if (c->was_slow && c->is_asked) {
        c->was_slow = false;
        h->on_drain(h->ctx, c);
    }
    http_conn_leave(c);
}

static void http_conn_on_sent(void *ctx, bool is_broken)
{
    struct http_conn *c = ctx;
    if (is_broken)
        http_conn_close(c);
    else if (http_conn_pending(c) <= http_conn_options(c)->limits.output_low)
        http_conn_on_write(c->bev, c);
}

static void http_conn_on_kick(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    http_conn_on_read(NULL, ctx);
}

static void http_conn_on_event(struct bufferevent *bev, short what, void *ctx)
{
    (void)bev;
    if (!(what & BEV_EVENT_CONNECTED)) /* else: the handshake is done */
        http_conn_close(ctx); /* end of file, reset, or the reader took nothing for too long */
}

static void http_conn_on_closed(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    http_conn_close(ctx);
}

static void http_conn_on_timer(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    struct http_conn *c = ctx;
    c->busy++;
    switch (c->phase) {
    case HTTP_CONN_PHASE_HEADER:
        http_conn_refuse(c, 408, "request header took too long");
        break;
    case HTTP_CONN_PHASE_BODY:
        http_conn_refuse(c, 408, "request body stood still");
        break;
    case HTTP_CONN_PHASE_IDLE:
    case HTTP_CONN_PHASE_REPLY:
    case HTTP_CONN_PHASE_LINGER:
        c->is_closing = true;
        break;
    }
    http_conn_leave(c);
}

struct http_conn *http_conn_open(struct http_server *s, struct bufferevent *bev, str peer,
                                 bool is_loopback)
{
    const struct http_server_options *o = http_server_options(s);
    struct http_conn *c = calloc(1, sizeof *c);
    struct event_base *base = o->base;
    if (!c)
        return NULL;
    c->server = s;
    c->bev = bev;
    c->is_loopback = is_loopback;
    snprintf(c->peer, sizeof c->peer, "%.*s", STR_ARG(peer));
    c->timer = evtimer_new(base, http_conn_on_timer, c);
    c->kick = event_new(base, -1, 0, http_conn_on_kick, c);
    c->closed = event_new(base, bufferevent_getfd(bev), EV_CLOSED, http_conn_on_closed, c);
    must(c->timer && c->kick && c->closed);
    c->out = (struct http_out){.set = http_server_outs(s), .bev = bev,
                               .is_direct = o->tls == NULL || str_eq_z(peer, "unix"),
                               .on_sent = http_conn_on_sent, .ctx = c};
    http_out_init(&c->out);
    arena_init(&c->arena, HTTP_CONN_ARENA_MAX);
    buf_init(&c->text, o->limits.header_size_max);
    buf_init(&c->extra, 16384);
    http_conn_reset(c);
    bufferevent_setcb(bev, http_conn_on_read, http_conn_on_write, http_conn_on_event, c);
    bufferevent_setwatermark(bev, EV_READ, 0, o->limits.pipeline_size_max);
    bufferevent_setwatermark(bev, EV_WRITE, o->limits.output_low, 0);
    uint32_t ms = o->limits.reader_idle_ms;
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
    bufferevent_set_timeouts(bev, NULL, ms ? &tv : NULL);
    http_server_add(s, &c->link);
    http_conn_set_phase(c, HTTP_CONN_PHASE_IDLE);
    http_conn_set_timer(c, o->limits.header_time_ms); /* a new connection has to speak */
    bufferevent_enable(bev, EV_READ);
    return c;
}

/* ---- small views ---------------------------------------------------------------------------- */

const struct http_request *http_conn_request(const struct http_conn *c) { return &c->request; }
void http_conn_set_user(struct http_conn *c, void *user) { c->user = user; }

void http_conn_take_body(struct http_conn *c, struct buf *to)
{
    *to = c->body;
    buf_init(&c->body, 0);
}

void *http_conn_user(const struct http_conn *c) { return c->user; }
struct arena *http_conn_arena(struct http_conn *c) { return &c->arena; }
bool http_conn_has_begun(const struct http_conn *c) { return c->reply != HTTP_CONN_REPLY_NONE; }

str http_conn_header(const struct http_conn *c, const char *name)
{
    for (size_t i = 0; i < c->request.header_count; i++)
        if (str_eq_z(c->request.headers[i].name, name))
            return c->request.headers[i].value;
    return (str){NULL, 0};
}

size_t http_conn_pending(const struct http_conn *c)
{
    return http_out_pending(&c->out);
}

bool http_conn_is_slow(const struct http_conn *c)
{
    return http_conn_pending(c) >= http_conn_options(c)->limits.output_high;
}
