/* engine_out - what a child has yet to say, in order, and the heartbeat before it.
 *
 * Owns:      the queue of buffers, the one that is being written, the BEAT frames that wait, spare
 *            buffers for whoever makes the next one.
 * Not:       the socket and when it is writable (engine_host), what is said.
 * Invariant: a buffer holds whole frames; buffers leave in the order they were pushed. BEAT goes
 *            between any two frames, never inside one. Behind a last buffer nothing is written.
 *
 *     buffer: [frame][frame|......]   control: [BEAT]
 *                          ^ next cut: BEAT goes first, if one waits
 *
 * Thread:    engine_out_push: any; engine_out_spare, _is_full: engine; the rest: frame thread.
 * Limits:    ENGINE_OUT_QUEUE buffers; ENGINE_OUT_CONTROL_MAX bytes of BEAT.
 */
#ifndef SHOAL_ENGINE_ENGINE_OUT_H
#define SHOAL_ENGINE_ENGINE_OUT_H

#include "api/api_frame.h"
#include "base/buf.h"
#include "base/err.h"

#define ENGINE_OUT_QUEUE 65536u
#define ENGINE_OUT_CONTROL_MAX 65536u
#define ENGINE_OUT_BUFS 64u /* under way; past it a step appends to the buffer it has */

struct engine_out_item {
    struct buf bytes; /* whole frames; taken */
    bool is_last;     /* the process ends once it is written, with this code */
    int code;
};

struct engine_out {
    struct thread_queue *items, *spare;
    struct buf control; /* BEAT frames not written yet */
    struct engine_out_item now;
    size_t control_at, now_at, frame_left; /* frame_left: of the frame that is begun */
    bool is_control;                       /* ... and which of both it belongs to */
    bool is_writing, is_over;              /* is_over: the last buffer has left */
    int code;                              /* of the buffer that left last */
};

/* All zero before. After a failure engine_out_close frees what is there. */
bool engine_out_open(struct engine_out *o, struct err *e) BASE_USE_RESULT;
void engine_out_close(struct engine_out *o);

/* Takes the bytes. False: the queue is full, nothing was taken. */
bool engine_out_push(struct engine_out *o, struct engine_out_item *item) BASE_USE_RESULT;
/* So many are under way that the next frames had better wait in their buffer. */
bool engine_out_is_full(const struct engine_out *o);
/* An empty buffer of at most size_max bytes, with the memory of one that has left if there is. */
void engine_out_spare(struct engine_out *o, struct buf *out, size_t size_max);

/* Readable while something was pushed and not begun. */
int engine_out_fd(const struct engine_out *o);
/* A BEAT. It is left out while the socket takes none: the next one says the same and more. */
void engine_out_beat(struct engine_out *o, const struct api_beat *beat);
/* Writes what fd takes. *wants: it took less than there is. ERR_IO: the socket is broken. */
bool engine_out_write(struct engine_out *o, int fd, bool *wants, struct err *e) BASE_USE_RESULT;

#endif
