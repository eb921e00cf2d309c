/* engine_host - the engine child: frames in and out, a heartbeat, three threads.
 *
 * Owns:      the child's end of the socketpair, the threads, the queues between them.
 * Not:       the model (engine), requests (sched), what the endpoint does (serve/engine_leg).
 * Invariant: BEAT leaves every ENGINE_HOST_BEAT_MS whatever the other threads do, before data and
 *            between frames. CANCEL reaches the engine thread at once; it also follows its request
 *            through the prep thread, so it cannot come too early. End of file on the socket ends
 *            the process.
 *
 *                    +-- frame --- poll: socket, out queue, clock
 *      SUBMIT        |  (owns the descriptor; decodes nothing)
 *        v           v CANCEL CREDIT HOLD LOAD ...
 *      prep -------> engine ------> out queue: buffers of whole frames
 *      decode, render, encode       one buffer per step
 *
 * Thread:    engine_host_run is the frame thread; it starts and joins the others.
 * Limits:    ENGINE_HOST_QUEUE items per queue, message size, ENGINE_HOST_OUT_MAX bytes not yet
 *            written (credits keep it far below).
 */
#ifndef SHOAL_ENGINE_ENGINE_HOST_H
#define SHOAL_ENGINE_ENGINE_HOST_H

#include "base/err.h"
#include "base/str.h"

#define ENGINE_HOST_BEAT_MS 500
#define ENGINE_HOST_QUEUE 65536u
#define ENGINE_HOST_MESSAGE_MAX ((size_t)1 << 30)
#define ENGINE_HOST_OUT_MAX ((size_t)512 << 20)

struct engine_host_options {
    int fd;                /* our end of the socketpair, non-blocking */
    str build_id, version; /* said in HELLO */
    int64_t credit;        /* bytes a request may be ahead of its reader */
    bool traces;           /* a line a second of what the scheduler did (sched_trace) */
};

/* Serves one endpoint until EXIT, DRAIN, end of file or a fault. 0: asked to end; 1: e says why (a
 * FAULT was sent if the socket took it). */
int engine_host_run(const struct engine_host_options *o, struct err *e);

#endif
