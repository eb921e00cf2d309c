/* tls - TLS of the server's side: certificate, key, what a connection speaks; and of a command that
 * asks a server.
 *
 * Owns:      the OpenSSL context; the only user of libssl.
 * Not:       listeners (http_server), HTTP (http_conn), outbound TLS of legs (http_client).
 * Invariant: TLS 1.2 at least, the library's own choice of ciphers. A context never changes: other
 *            files are another context, and connections keep the one they began with.
 * Thread:    the loop's; tls_connect any, and a thread of its own for each connection.
 * Limits:    TLS_RELAY bytes under way in each direction.
 */
#ifndef SHOAL_WIRE_TLS_H
#define SHOAL_WIRE_TLS_H

#include "base/err.h"

struct bufferevent;
struct event_base;
struct tls;

/* PEM files: the certificate with its chain, and its key, which others may not read. ERR_CONFIG
 * names the setting (tls.cert, tls.key) and the file. */
BASE_USE_RESULT bool tls_open(struct tls **out, const char *cert, const char *key, struct err *e);
void tls_close(struct tls *t); /* connections keep what they need; NULL is allowed */

/* The server's side of an accepted socket, which it closes; NULL: no memory. */
struct bufferevent *tls_accept(const struct tls *t, struct event_base *base, int fd);
/* Tells the client that nothing follows: an end of file alone could be somebody else's. */
void tls_finish(struct bufferevent *bev);

#define TLS_RELAY 16384

struct tls_peer {
    const char *host;    /* the name or address that its certificate has to be for */
    const char *trusted; /* PEM: trusted besides the system's roots; NULL: none */
    int64_t timeout_ms;  /* of the handshake */
};
/* The client's side of a connected socket that does not block, which it closes: after the handshake
 * a thread passes bytes between it and *plain, which the caller uses and closes as if it were the
 * socket. ERR_UPSTREAM: it speaks no TLS, or its certificate is not trusted; ERR_DEADLINE. */
BASE_USE_RESULT bool tls_connect(int fd, const struct tls_peer *p, int *plain, struct err *e);

#endif
