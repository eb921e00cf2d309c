/* http_server - listeners, the set of connections, limits over all of them.
 *
 * Owns:      listening sockets, accepted connections, the spare descriptor for refusals.
 * Not:       one connection's protocol (http_conn), keys and quotas (serve/limits).
 * Invariant: connections <= connections_max. A connection over the limit, or one for which no
 *            descriptor is left, gets a 503 in JSON and is closed; it is never left hanging.
 * Thread:    the loop thread.
 * Limits:    connections_max, struct http_limits per connection, 16 listeners.
 */
#ifndef SHOAL_WIRE_HTTP_SERVER_H
#define SHOAL_WIRE_HTTP_SERVER_H

#include "base/err.h"
#include "base/list.h"
#include "wire/http_conn.h"

struct event_base;
struct http_out_set;
struct tls;

struct http_server_options {
    struct event_base *base;
    struct http_handlers handlers;
    struct http_limits limits;
    uint32_t connections_max;
    struct tls *tls; /* taken; NULL: plain HTTP. Unix sockets stay plain */
};

BASE_USE_RESULT bool http_server_open(struct http_server **out,
                                      const struct http_server_options *o, struct err *e);
/* address: "127.0.0.1:11500", "[::1]:11500", ":11500" or "unix:/path" (created 0600, a dead socket
 * file is replaced). ERR_CONFIG for a bad address, ERR_IO with the system's reason. */
BASE_USE_RESULT bool http_server_listen(struct http_server *s, str address, struct err *e);
/* Port of the n-th listener as bound (for port 0); 0 for unix sockets. */
uint16_t http_server_port(const struct http_server *s, size_t listener);
/* True if the address can only be reached from this machine. */
bool http_server_is_loopback(str address);
/* Stops accepting; connections without a request are closed, others after their reply. */
void http_server_drain(struct http_server *s);
/* Other limits: a connection's timers take them when they are set again, its buffers when it is
 * new. */
void http_server_change(struct http_server *s, const struct http_limits *l,
                        uint32_t connections_max);
/* For connections from now on; taken. */
void http_server_set_tls(struct http_server *s, struct tls *tls);
uint32_t http_server_connections(const struct http_server *s);
/* Closes everything; each open request gets its on_gone first. */
void http_server_close(struct http_server *s);

/* For http_conn only; a connection's link is its first member. */
const struct http_server_options *http_server_options(const struct http_server *s);
bool http_server_is_draining(const struct http_server *s);
struct http_out_set *http_server_outs(struct http_server *s);
void http_server_add(struct http_server *s, struct list *conn);
void http_server_remove(struct http_server *s, struct list *conn);

#endif
