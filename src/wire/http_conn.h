/* http_conn - one HTTP/1.1 connection: parse, hand over one request at a time, write its reply.
 *
 * Owns:      the socket, its buffers and timers, the parser, the bytes of the current request.
 * Not:       listeners and limits over all connections (http_server), what a request means (serve).
 * Invariant: requests of a connection are answered in order, one at a time; pipelined bytes wait.
 *            After on_gone or the end of a reply the request's views are dead. Every reply that
 *            ends on a connection whose body was not read to its end closes, after a linger.
 *
 *     HEADER --header complete--> BODY --complete--> REPLY --end--> HEADER ... or LINGER --> closed
 *       408/431/400                 408/413            client gone, reader idle
 *
 * A second Content-Length, or one beside Transfer-Encoding, is refused (RFC 9112, 6.3). While a
 * reply runs an end of file means that the client is gone, half-closed sockets too.
 *
 * Thread:    the loop thread.
 * Limits:    header bytes, body bytes, pipelined bytes, output high-water mark; a timer per phase.
 */
#ifndef SHOAL_WIRE_HTTP_CONN_H
#define SHOAL_WIRE_HTTP_CONN_H

#include "base/arena.h"
#include "base/buf.h"

struct http_conn;

struct http_header {
    str name, value; /* name in lower case */
};

/* Views into the connection; valid from on_header until the reply ends or on_gone returns. */
struct http_request {
    str method, path, query; /* path as sent, without the query and its '?' */
    const struct http_header *headers;
    size_t header_count;
    str body;        /* empty until on_request */
    str peer;        /* "127.0.0.1", "unix" */
    bool is_loopback; /* unix sockets too */
    bool is_tls;
    bool has_body;   /* announced by the header */
    uint64_t body_size; /* Content-Length, 0 if chunked or none */
};

/* What the connection tells; each may call the http_conn functions below. */
struct http_handlers {
    void *ctx;
    /* The header is complete, no byte of the body was read. Answer the largest body in bytes that
     * is welcome, or reply at once (http_conn_reply) and answer 0: the body is then discarded. */
    uint64_t (*on_header)(void *ctx, struct http_conn *c);
    /* The request is complete; reply now or later. */
    void (*on_request)(void *ctx, struct http_conn *c);
    /* The client went away before its reply ended; no call on c is allowed after this returns. */
    void (*on_gone)(void *ctx, struct http_conn *c);
    /* Output fell below the low-water mark after http_conn_is_slow was true. */
    void (*on_drain)(void *ctx, struct http_conn *c);
    /* Body of a refusal of the connection itself, which may add headers to c. c: NULL where there
     * is none; its user may be NULL. */
    void (*write_error)(void *ctx, struct http_conn *c, int status, const char *text,
                        struct buf *out);
    /* Whole header lines of a refusal without a connection; may be NULL. */
    void (*write_headers)(void *ctx, struct buf *out);
};

struct http_limits {
    size_t header_size_max;          /* all of a request's header */
    size_t pipeline_size_max;        /* bytes kept while a reply runs */
    size_t output_high, output_low;  /* marks of http_conn_is_slow and on_drain */
    uint32_t header_time_ms;         /* from the first byte of a request to its header's end */
    uint32_t idle_time_ms;           /* keep-alive without a request */
    uint32_t upload_idle_ms;         /* body: no byte for so long */
    uint32_t reader_idle_ms;         /* reply: client takes no byte for so long */
};

const struct http_request *http_conn_request(const struct http_conn *c);
/* Value of the first header of that (lower case) name; p == NULL if absent. */
str http_conn_header(const struct http_conn *c, const char *name);
/* The body's memory, for who needs it longer than the connection lives; *to is freed by the caller.
 * The request's view stays good as long as *to. */
void http_conn_take_body(struct http_conn *c, struct buf *to);
/* The user's word on this request, NULL when a request begins; never freed here. */
void http_conn_set_user(struct http_conn *c, void *user);
void *http_conn_user(const struct http_conn *c);
/* Memory that lives until the reply's end. */
struct arena *http_conn_arena(struct http_conn *c);

/* A header for the coming reply; before begin or reply. CR, LF and NUL in a value become '?'. */
void http_conn_add_header(struct http_conn *c, const char *name, str value);
/* A whole reply with Content-Length. content_type may be NULL for an empty body. */
void http_conn_reply(struct http_conn *c, int status, const char *content_type, str body);
/* A streamed reply: begin once, write any number of times, end once. */
void http_conn_begin(struct http_conn *c, int status, const char *content_type);
void http_conn_write(struct http_conn *c, str bytes);
void http_conn_end(struct http_conn *c);
/* Ends the connection without finishing the reply: the client sees a broken stream. */
void http_conn_abort(struct http_conn *c);

bool http_conn_has_begun(const struct http_conn *c);   /* status line left */
size_t http_conn_pending(const struct http_conn *c);   /* bytes not yet taken by the kernel */
bool http_conn_is_slow(const struct http_conn *c);     /* pending >= output_high */

/* For http_server only. */
struct http_server;
struct bufferevent;
struct http_conn *http_conn_open(struct http_server *s, struct bufferevent *bev, str peer,
                                 bool is_loopback);
void http_conn_close(struct http_conn *c);
/* Closes a connection that holds no request; another one ends after its reply. */
void http_conn_drain(struct http_conn *c);

#endif
