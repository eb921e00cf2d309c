/* sched_trace - a line a second of what the scheduler did (SHOAL_DEBUG_SCHED=1).
 *
 * Owns:      the figures of the last line, the sentence.
 * Not:       counting (sched), where the line goes (engine_host).
 * Invariant: a second without a step has no line.
 *
 * Thread:    engine thread.
 */
#ifndef SHOAL_ENGINE_SCHED_TRACE_H
#define SHOAL_ENGINE_SCHED_TRACE_H

#include "base/buf.h"
#include "engine/sched.h"

/* All zero before the first call. */
struct sched_trace {
    int64_t since_ns;
    struct sched_stats was;
};

/* After a step: appends the line if a second has passed. Milliseconds are of one step: choosing and
 * packing its rows, the device, drawing tokens and making text of them. */
bool sched_trace_add(struct sched_trace *t, const struct sched_stats *now, int64_t now_ns,
                     struct buf *out);

#endif
