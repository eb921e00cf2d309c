/* tls - TLS of the server's side: certificate, key, what a connection speaks.
 *
 * Owns:      the OpenSSL context; the only user of libssl.
 * Not:       listeners (http_server), HTTP (http_conn), outbound TLS (http_client).
 * Invariant: TLS 1.2 at least, the library's own choice of ciphers. A context never changes: other
 *            files are another context, and connections keep the one they began with.
 * Thread:    the loop's.
 * Limits:    none of its own.
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

#endif
