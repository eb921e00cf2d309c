#include "wire/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/chrono.h"

struct loop {
    struct event_base *base;
    bool is_stopping;
};

bool loop_open(struct loop **out, struct err *e)
{
    struct loop *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ERR_MEMORY, "loop: no memory");
    l->base = event_base_new();
    if (!l->base) {
        free(l);
        return err_set(e, ERR_IO, "loop: the system offers no way to wait for descriptors");
    }
    *out = l;
    return true;
}

void loop_close(struct loop *l)
{
    if (!l)
        return;
    event_base_free(l->base);
    free(l);
}

struct event_base *loop_base(struct loop *l) { return l->base; }
int64_t loop_ms(void) { return chrono_ms(&chrono_real); }

bool loop_run(struct loop *l, struct err *e)
{
    while (!l->is_stopping)
        if (event_base_loop(l->base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY) < 0)
            return err_set_errno(e, errno, "loop: waiting for events");
    return true;
}

bool loop_step(struct loop *l, int64_t timeout_ms)
{
    if (l->is_stopping)
        return false;
    struct timeval tv = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    event_base_loopexit(l->base, &tv);
    event_base_loop(l->base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
    return !l->is_stopping;
}

void loop_stop(struct loop *l)
{
    l->is_stopping = true;
    event_base_loopbreak(l->base);
}

static struct timeval loop_time(int64_t ms)
{
    ms = ms < 0 ? 0 : ms;
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

static void loop_event_close(struct event **ev)
{
    if (*ev)
        event_free(*ev);
    *ev = NULL;
}

/* --- timers -------------------------------------------------------------------------------- */

static void loop_on_time(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    struct loop_timer *t = ctx;
    t->on_time(t->ctx);
}

bool loop_timer_open(struct loop_timer *t, struct loop *l, void (*on_time)(void *ctx), void *ctx,
                     struct err *e)
{
    *t = (struct loop_timer){.on_time = on_time, .ctx = ctx};
    t->event = evtimer_new(l->base, loop_on_time, t);
    return t->event || err_set(e, ERR_MEMORY, "loop: no memory for a timer");
}

void loop_timer_set(struct loop_timer *t, int64_t in_ms)
{
    struct timeval tv = loop_time(in_ms);
    must(t->event && event_add(t->event, &tv) == 0);
}

void loop_timer_stop(struct loop_timer *t)
{
    if (t->event)
        event_del(t->event);
}

void loop_timer_close(struct loop_timer *t) { loop_event_close(&t->event); }

/* --- later --------------------------------------------------------------------------------- */

static void loop_on_later(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    struct loop_later *t = ctx;
    t->on_later(t->ctx);
}

bool loop_later_open(struct loop_later *t, struct loop *l, void (*on_later)(void *ctx), void *ctx,
                     struct err *e)
{
    *t = (struct loop_later){.on_later = on_later, .ctx = ctx};
    t->event = event_new(l->base, -1, 0, loop_on_later, t);
    return t->event || err_set(e, ERR_MEMORY, "loop: no memory for a callback");
}

/* Goes to the end of the queue being worked off: libevent looks for more before it polls. */
void loop_later_set(struct loop_later *t) { event_active(t->event, EV_TIMEOUT, 0); }

void loop_later_close(struct loop_later *t) { loop_event_close(&t->event); }

/* --- descriptors --------------------------------------------------------------------------- */

static void loop_on_ready(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    struct loop_watch *w = ctx;
    w->on_ready(w->ctx, what & EV_READ ? LOOP_READY_READ : LOOP_READY_WRITE);
}

bool loop_watch_open(struct loop_watch *w, struct loop *l, int fd,
                     void (*on_ready)(void *ctx, enum loop_ready ready), void *ctx, struct err *e)
{
    *w = (struct loop_watch){.on_ready = on_ready, .ctx = ctx};
    w->events[0] = event_new(l->base, fd, EV_READ | EV_PERSIST, loop_on_ready, w);
    w->events[1] = event_new(l->base, fd, EV_WRITE | EV_PERSIST, loop_on_ready, w);
    if (w->events[0] && w->events[1])
        return true;
    loop_watch_close(w);
    return err_set(e, ERR_MEMORY, "loop: no memory to watch a descriptor");
}

void loop_watch_set(struct loop_watch *w, enum loop_ready ready, bool on)
{
    for (int i = 0; i < 2; i++)
        if ((int)ready >> i & 1) {
            if (on)
                must(event_add(w->events[i], NULL) == 0);
            else
                event_del(w->events[i]);
        }
}

void loop_watch_close(struct loop_watch *w)
{
    loop_event_close(&w->events[0]);
    loop_event_close(&w->events[1]);
}

/* --- signals, wake-ups --------------------------------------------------------------------- */

static void loop_on_signal(evutil_socket_t number, short what, void *ctx)
{
    (void)number, (void)what;
    struct loop_signal *s = ctx;
    s->on_signal(s->ctx);
}

bool loop_signal_open(struct loop_signal *s, struct loop *l, int number,
                      void (*on_signal)(void *ctx), void *ctx, struct err *e)
{
    *s = (struct loop_signal){.on_signal = on_signal, .ctx = ctx};
    s->event = evsignal_new(l->base, number, loop_on_signal, s);
    if (s->event && event_add(s->event, NULL) == 0)
        return true;
    loop_event_close(&s->event);
    return err_set(e, ERR_IO, "loop: cannot watch signal %d", number);
}

void loop_signal_close(struct loop_signal *s) { loop_event_close(&s->event); }

static void loop_on_wake(evutil_socket_t fd, short what, void *ctx)
{
    (void)what;
    struct loop_wake *w = ctx;
    uint64_t count;
    if (read(fd, &count, sizeof count) == (ssize_t)sizeof count)
        w->on_wake(w->ctx);
}

bool loop_wake_open(struct loop_wake *w, struct loop *l, void (*on_wake)(void *ctx), void *ctx,
                    struct err *e)
{
    *w = (struct loop_wake){.on_wake = on_wake, .ctx = ctx, .is_open = true};
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->fd < 0) {
        w->is_open = false;
        return err_set_errno(e, errno, "loop: a wake-up");
    }
    w->event = event_new(l->base, w->fd, EV_READ | EV_PERSIST, loop_on_wake, w);
    if (w->event && event_add(w->event, NULL) == 0)
        return true;
    loop_wake_close(w);
    return err_set(e, ERR_MEMORY, "loop: no memory for a wake-up");
}

void loop_wake_send(struct loop_wake *w)
{
    uint64_t one = 1;
    ssize_t n = write(w->fd, &one, sizeof one);
    must(n == (ssize_t)sizeof one || errno == EAGAIN); /* EAGAIN: 2^64 - 2 wakes are waiting */
}

void loop_wake_close(struct loop_wake *w)
{
    loop_event_close(&w->event);
    if (w->is_open)
        close(w->fd);
    w->is_open = false;
}
