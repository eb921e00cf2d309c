#include "wire/http_out.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>

#define HTTP_OUT_KEPT 4096u /* bytes of memory that stay with a connection between turns */

/* A bufferevent waits for the socket to be writable before each write, which costs three system
 * calls an event of a stream, and a piece of its memory for each; a socket nearly always takes the
 * bytes at once. So all that one turn of the loop has added leaves at its end, by one send, and the
 * bufferevent gets only what did not fit (NUMBERS 2026-11-30). */

/* Most of the time the bufferevent is not touched at all: its memory is cold. */
static size_t http_out_rest(const struct http_out *o)
{
    if (o->is_direct && !o->has_rest)
        return 0;
    return evbuffer_get_length(bufferevent_get_output(o->bev));
}

/* Into the bufferevent, behind what it holds. */
static void http_out_hand(struct http_out *o, str bytes)
{
    must(evbuffer_add(bufferevent_get_output(o->bev), bytes.p, bytes.len) == 0);
    if (!o->is_direct || o->has_rest) /* it writes already; to be asked, TLS's would do so here */
        return;
    o->has_rest = true;
    bufferevent_enable(o->bev, EV_WRITE);
}

static void http_out_send(struct http_out *o)
{
    if (o->bytes.len == 0)
        return;
    ssize_t n = send(o->fd, o->bytes.p, o->bytes.len, MSG_NOSIGNAL);
    bool is_broken = n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    str rest = str_from(buf_view(&o->bytes), n < 0 ? 0 : (size_t)n);
    if (rest.len && !is_broken)
        http_out_hand(o, rest);
    buf_shrink(&o->bytes, HTTP_OUT_KEPT);
    o->on_sent(o->ctx, is_broken);
}

/* What is added while others send goes to the end, and leaves in this turn too. */
static void http_out_on_turn(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    struct http_out_set *s = ctx;
    struct list *first;
    while ((first = list_first(&s->due))) {
        list_remove(first);
        http_out_send(list_item(first, struct http_out, due));
    }
}

bool http_out_set_open(struct http_out_set *s, struct event_base *base, struct err *e)
{
    list_init(&s->due);
    s->turn = event_new(base, -1, 0, http_out_on_turn, s);
    return s->turn || err_set(e, ERR_MEMORY, "http: no memory for an event");
}

void http_out_set_close(struct http_out_set *s)
{
    if (s->turn)
        event_free(s->turn);
    s->turn = NULL;
}

void http_out_init(struct http_out *o)
{
    list_init(&o->due);
    buf_init(&o->bytes, HTTP_OUT_TURN_MAX);
    o->fd = bufferevent_getfd(o->bev);
    o->has_rest = true;
    http_out_idle(o);
}

void http_out_deinit(struct http_out *o)
{
    list_remove(&o->due);
    buf_deinit(&o->bytes);
}

void http_out_add(struct http_out *o, str bytes)
{
    if (bytes.len == 0)
        return;
    if (!o->is_direct || http_out_rest(o) || bytes.len > HTTP_OUT_TURN_MAX - o->bytes.len) {
        if (o->bytes.len)
            http_out_hand(o, buf_view(&o->bytes));
        buf_clear(&o->bytes);
        http_out_hand(o, bytes);
        return;
    }
    must(buf_add(&o->bytes, bytes));
    if (list_is_empty(&o->due)) {
        if (list_is_empty(&o->set->due))
            event_active(o->set->turn, EV_TIMEOUT, 0);
        list_push_last(&o->set->due, &o->due);
    }
}

size_t http_out_pending(const struct http_out *o) { return o->bytes.len + http_out_rest(o); }

void http_out_idle(struct http_out *o)
{
    if (!o->is_direct || !o->has_rest || http_out_rest(o))
        return;
    o->has_rest = false;
    bufferevent_disable(o->bev, EV_WRITE);
}
