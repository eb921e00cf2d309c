/* dialect_raw - an upstream's own events to a streaming client of the same protocol, as they came.
 *
 * Owns:      what is patched in them (id, model, the object `shoal`, usage that was not asked for,
 *            the reason of the end where the reply does not bear it out),
 *            keeping the state of our own form in step, so that it can go on where they end.
 * Not:       reading them (dialect_NAME_client), forms of our own (dialect_NAME_reply).
 * Invariant: fields and events that we do not know pass: signatures, citations, what a beta header
 *            brings. A reply that another leg goes on with continues the same ids and indices.
 *            Each line of an event's raw form is one event of the upstream; an empty line
 *            alone: an event before it showed all of it. The end is said once, with the DONE.
 *
 *     ev with raw --> our writer, its bytes dropped (state) --> lines of raw, patched --> client
 *
 * Thread:    the loop.
 * Limits:    DIALECT_CLIENT_EVENT_MAX bytes of raw events before one of ours.
 */
#ifndef SHOAL_DIALECT_DIALECT_RAW_H
#define SHOAL_DIALECT_DIALECT_RAW_H

#include "dialect/dialect_write.h"

/* Not for a client that wants no reasoning: ours leaves it out. */
static inline bool dialect_raw_takes(const struct dialect_state *st, const struct api_event *ev)
{
    return ev->raw.len > 0 && st->stream && !st->hides_reasoning;
}
void dialect_raw_anthropic(struct buf *out, struct dialect_state *st, const struct api_event *ev);
void dialect_raw_openai(struct buf *out, struct dialect_state *st, uint32_t choice,
                        const struct api_event *ev);

#endif
