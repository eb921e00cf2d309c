/* pipe - our end of a socketpair to a child: whole frames out, bytes in.
 *
 * Owns:      the two queues of outgoing frames. The descriptor stays the caller's (base/proc), and
 *            so do long messages: a source makes their frames one at a time.
 * Not:       what a frame holds (api_frame), starting and judging the child (serve/engine_leg).
 * Invariant: a frame is written whole before the next one begins, and control frames go before data
 *            frames. Reading never stops, whatever waits to be written: a child's BEAT always
 *            arrives. on_end comes once, from the loop, after the last bytes.
 *
 *     control: [CANCEL][CREDIT]            --first-->   | begun frame | CANCEL | CREDIT | MORE | ..
 *     data:    [SUBMIT][source ...][SUBMIT] --then-->
 *
 * Thread:    the loop's. Callbacks may call pipe_send and pipe_close, those of a source nothing.
 * Limits:    queue_max bytes per queue; pipe_send refuses past it. PIPE_TURN_MAX bytes a turn of
 *            the loop: a child that reads fast does not hold up everybody else.
 */
#ifndef SHOAL_WIRE_PIPE_H
#define SHOAL_WIRE_PIPE_H

#include "base/str.h"
#include "wire/loop.h"

struct pipe;
enum pipe_class { PIPE_CONTROL, PIPE_DATA };

struct pipe_handlers {
    void *ctx;
    void (*on_bytes)(void *ctx, str bytes);
    /* The other side is gone: end of file (why NULL) or an error. */
    void (*on_end)(void *ctx, const struct err *why);
    void (*on_drain)(void *ctx); /* a queue that was not empty became empty; may be NULL */
};

/* fd: non-blocking, open until pipe_close. */
BASE_USE_RESULT bool pipe_open(struct pipe **out, struct loop *l, int fd,
                               const struct pipe_handlers *h, size_t queue_max, struct err *e);
void pipe_close(struct pipe *p); /* NULL is allowed; what waits is dropped */

/* Queues one whole frame (copied). False: no room, or the other side is gone. */
bool pipe_send(struct pipe *p, enum pipe_class class, str frame);

struct pipe_source {
    void *ctx;
    /* The next whole frame, good until the next call or done; empty: there is none. */
    str (*next)(void *ctx);
    /* Once: all of it is written, or nothing will be any more. */
    void (*done)(void *ctx);
};
/* Queues a message among the data frames. False: as pipe_send, and done is not called. */
bool pipe_send_from(struct pipe *p, const struct pipe_source *source);
/* Writes what waits without the loop, at most timeout_ms; bytes that arrive meanwhile stay unread.
 * False: not all of it. For the last words to a child. */
bool pipe_flush(struct pipe *p, int64_t timeout_ms);
/* Bytes in both queues, those of a source not counted; 0: all is written. */
size_t pipe_waiting(const struct pipe *p);

#endif
