/* loop - the endpoint's event loop: timers, descriptors, signals, wake-ups from other threads.
 *
 * Owns:      the event base and what libevent allocates for it.
 * Not:       sockets and protocols (pipe, http_server, http_client), work (the callers).
 * Invariant: a callback runs on the loop's thread, never from inside a function of this file. After
 *            close of a timer, watch or wake-up its callback does not run any more.
 * Thread:    the loop's, except loop_wake_send: any thread.
 * Limits:    none of its own; descriptors are counted where they are made.
 */
#ifndef SHOAL_WIRE_LOOP_H
#define SHOAL_WIRE_LOOP_H

#include "base/err.h"

struct event;
struct event_base;
struct loop;

BASE_USE_RESULT bool loop_open(struct loop **out, struct err *e);
void loop_close(struct loop *l); /* everything on it is closed before; NULL is allowed */
struct event_base *loop_base(struct loop *l); /* for the other files of this folder */

/* Runs callbacks until loop_stop. False: the system's poll failed. */
BASE_USE_RESULT bool loop_run(struct loop *l, struct err *e);
/* Runs what is ready now, waiting at most timeout_ms for something; false when loop_stop was
 * called. For tests and for commands that have a loop of their own. */
bool loop_step(struct loop *l, int64_t timeout_ms);
void loop_stop(struct loop *l);
int64_t loop_ms(void); /* monotonic, as timers count */

/* Each lives in its user's memory, zeroed before open and after close; close is idempotent. */
struct loop_timer {
    struct event *event;
    void (*on_time)(void *ctx);
    void *ctx;
};
BASE_USE_RESULT bool loop_timer_open(struct loop_timer *t, struct loop *l,
                                     void (*on_time)(void *ctx), void *ctx, struct err *e);
/* Fires once, in_ms from now (at once: 0, still from the loop); a running timer is moved. */
void loop_timer_set(struct loop_timer *t, int64_t in_ms);
void loop_timer_stop(struct loop_timer *t);
void loop_timer_close(struct loop_timer *t);

/* Fires once, after the callbacks of this turn and before the loop waits again: what several
 * of them have queued goes out in one piece, and without a turn of its own. */
struct loop_later {
    struct event *event;
    void (*on_later)(void *ctx);
    void *ctx;
};
BASE_USE_RESULT bool loop_later_open(struct loop_later *t, struct loop *l,
                                     void (*on_later)(void *ctx), void *ctx, struct err *e);
void loop_later_set(struct loop_later *t); /* a second time before it fires: nothing */
void loop_later_close(struct loop_later *t);

enum loop_ready { LOOP_READY_READ = 1, LOOP_READY_WRITE = 2 };
struct loop_watch {
    struct event *events[2];
    void (*on_ready)(void *ctx, enum loop_ready ready);
    void *ctx;
};
/* Watches a descriptor for what `ready` says (bits) until close; each has its own callback call.
 * The descriptor stays the caller's and must stay open until loop_watch_close. */
BASE_USE_RESULT bool loop_watch_open(struct loop_watch *w, struct loop *l, int fd,
                                     void (*on_ready)(void *ctx, enum loop_ready ready), void *ctx,
                                     struct err *e);
void loop_watch_set(struct loop_watch *w, enum loop_ready ready, bool on); /* off at open */
void loop_watch_close(struct loop_watch *w);

/* A signal as a callback of the loop. */
struct loop_signal {
    struct event *event;
    void (*on_signal)(void *ctx);
    void *ctx;
};
BASE_USE_RESULT bool loop_signal_open(struct loop_signal *s, struct loop *l, int number,
                                      void (*on_signal)(void *ctx), void *ctx, struct err *e);
void loop_signal_close(struct loop_signal *s);

/* Another thread has something for the loop: several sends before the callback are one. */
struct loop_wake {
    int fd;
    bool is_open;
    struct event *event;
    void (*on_wake)(void *ctx);
    void *ctx;
};
BASE_USE_RESULT bool loop_wake_open(struct loop_wake *w, struct loop *l,
                                    void (*on_wake)(void *ctx), void *ctx, struct err *e);
void loop_wake_send(struct loop_wake *w); /* any thread, while open */
void loop_wake_close(struct loop_wake *w);

#endif
