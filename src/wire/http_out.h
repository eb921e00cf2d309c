/* http_out - what a connection has to say, until its socket takes it.
 *
 * Owns:      the bytes that one turn of the loop has added, the turn's end at which they leave.
 * Not:       the bufferevent, which is the connection's and gets what the socket did not take; what
 *            the bytes mean (http_conn).
 * Invariant: the order of bytes. While the bufferevent holds some, new ones go behind those.
 *
 *     add, add, add ... end of the turn: one send each --+--> socket
 *                                                        +--> bufferevent, when the socket is full
 *
 * Thread:    the loop thread.
 * Limits:    HTTP_OUT_TURN_MAX bytes here; more than that waits in the bufferevent, whose owner
 *            looks at http_out_pending and stops in time.
 */
#ifndef SHOAL_WIRE_HTTP_OUT_H
#define SHOAL_WIRE_HTTP_OUT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"

#define HTTP_OUT_TURN_MAX ((size_t)64 << 10)

struct bufferevent;
struct event;
struct event_base;

/* All connections that added something in this turn; one event ends the turn for them all. */
struct http_out_set {
    struct list due;
    struct event *turn;
};

struct http_out {
    struct list due; /* http_out_set */
    struct http_out_set *set;
    struct bufferevent *bev;
    struct buf bytes;
    bool is_direct; /* false: TLS, whose bufferevent takes everything */
    bool has_rest;  /* direct: the bufferevent holds bytes, or was not looked at since */
    int fd;
    /* After a send: is_broken when the socket takes nothing any more. May deinit. */
    void (*on_sent)(void *ctx, bool is_broken);
    void *ctx;
};

BASE_USE_RESULT bool http_out_set_open(struct http_out_set *s, struct event_base *base,
                                       struct err *e);
void http_out_set_close(struct http_out_set *s); /* also after a zeroed struct */

/* o's set, bev, is_direct, on_sent and ctx are given. A direct one's bufferevent writes only while
 * it holds bytes. */
void http_out_init(struct http_out *o);
void http_out_deinit(struct http_out *o);
void http_out_add(struct http_out *o, str bytes);
size_t http_out_pending(const struct http_out *o); /* bytes that the socket does not have yet */
/* The bufferevent has written: when it is empty, it rests until it is needed again. */
void http_out_idle(struct http_out *o);

#endif
