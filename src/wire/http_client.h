/* http_client - outbound HTTP calls on the loop, their bodies as they arrive.
 *
 * Owns:      libcurl, opened when the first client is; calls, their deadlines, kept connections.
 * Not:       what a body means (sse, dialect), whether to try again (route), keys (callers).
 * Invariant: a call ends once: on_end, or http_client_cancel and then silence. A handler may
 *            cancel and start calls. No redirects, no proxy but the caller's, HTTP/1.1, no
 *            answer decompressed: what arrives is what was sent.
 *
 *     start -- connect_ms --> connected ------> on_head -- idle_ms between bytes --> on_end
 *       |------------- first_ms -------------------'                                  |
 *       `------------------------------- total_ms ------------------------------------'
 *
 * Thread:    the loop thread; open the first client before other threads are busy with theirs.
 * Limits:    calls_max at once; HTTP_CLIENT_HEADERS_MAX headers of a request; bodies are not kept.
 */
#ifndef SHOAL_WIRE_HTTP_CLIENT_H
#define SHOAL_WIRE_HTTP_CLIENT_H

#include "base/err.h"
#include "base/str.h"

#define HTTP_CLIENT_HEADERS_MAX 16
#define HTTP_CLIENT_HEADER_SIZE_MAX ((size_t)64 << 10) /* bytes of an answer's whole header */

struct loop;
struct http_client;
struct http_call;

/* ERR_UNSUPPORTED: libcurl is not installed or older than 7.87 (the sentence names the package). */
BASE_USE_RESULT bool http_client_open(struct http_client **out, struct loop *l, uint32_t calls_max,
                                      struct err *e);
void http_client_close(struct http_client *c); /* cancels what runs; NULL is allowed */
uint32_t http_client_calls(const struct http_client *c);

/* What a failed call failed at. */
enum http_call_fault {
    HTTP_CALL_FAULT_CONNECT,      /* no such host, refused, unreachable */
    HTTP_CALL_FAULT_TLS,          /* handshake, certificate */
    HTTP_CALL_FAULT_LATE_CONNECT, /* name, connection and handshake took connect_ms */
    HTTP_CALL_FAULT_LATE_FIRST, HTTP_CALL_FAULT_LATE_IDLE, HTTP_CALL_FAULT_LATE_TOTAL,
    HTTP_CALL_FAULT_BROKEN,       /* closed before its end, or not HTTP */
    HTTP_CALL_FAULT_HEADER        /* its header is above HTTP_CLIENT_HEADER_SIZE_MAX */
};

struct http_call_handlers {
    void *ctx;
    void (*on_head)(void *ctx, int status); /* once, before the first byte of the body */
    void (*on_bytes)(void *ctx, str bytes);
    /* why NULL: the answer is complete. ERR_CONNECT (refused, no such host, TLS), ERR_DEADLINE
     * (names the wait), ERR_UPSTREAM (broken off, not HTTP). The call is gone when this returns. */
    void (*on_end)(void *ctx, const struct err *why);
};

/* All views are copied. A deadline of 0 does not exist. */
struct http_call_options {
    const char *method;             /* NULL: POST with a body, else GET */
    str url;                        /* http or https */
    const char *const *headers;     /* "name: value", ends with NULL; may be NULL */
    str body;
    int64_t connect_ms, first_ms, idle_ms, total_ms;
    bool has_own_connection; /* neither a kept one nor kept afterwards */
    uint32_t receive_size;   /* bytes taken from the socket at once; 0: libcurl's own */
    str ca_file;             /* PEM roots trusted besides the system's; empty: none */
    str proxy, no_proxy;     /* as in HTTPS_PROXY and NO_PROXY; empty: none */
    struct http_call_handlers handlers;
    /* May be NULL: each header of the answer, before on_head; a proxy's are left out. Those of a
     * 100 come too: what counts is what came last. */
    void (*on_header)(void *handlers_ctx, str name, str value);
    /* May be NULL: right before on_end with a `why`, its kind. */
    void (*on_fault)(void *handlers_ctx, enum http_call_fault fault);
};
/* ERR_LIMIT: calls_max run; ERR_USAGE: no URL that can be called, too many headers. No handler runs
 * before this returns. */
BASE_USE_RESULT bool http_client_start(struct http_client *c, struct http_call **out,
                                       const struct http_call_options *o, struct err *e);
/* No handler runs any more; the connection is closed unless the answer was complete. */
void http_client_cancel(struct http_call *call);
/* A paused call takes no bytes from its socket and its idle_ms stands still: a slow reader. */
void http_client_pause(struct http_call *call, bool on);

#endif
