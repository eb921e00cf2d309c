/* dialect_ollama_reply - replies of Ollama's /api paths, streamed and not.
 *
 * Owns:      objects of a stream, the one object of a reply that is not streamed, rows about
 *            models, in-band errors.
 * Not:       reading requests (dialect_ollama).
 * Invariant: the last object has done: true, a reason, an empty text and the times; joined texts of
 *            a stream equal the text of the reply that is not streamed. A call is shown whole.
 * Thread:    the loop.
 */
#ifndef SHOAL_DIALECT_DIALECT_OLLAMA_REPLY_H
#define SHOAL_DIALECT_DIALECT_OLLAMA_REPLY_H

#include "dialect/dialect_write.h"

struct dialect_ollama_state {
    struct dialect_state s;
    enum api_kind kind;
    bool is_chat; /* message, not response */
};

void dialect_ollama_reply_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                                const struct api_event *ev);
void dialect_ollama_reply_error(struct buf *out, struct dialect_state *st,
                                const struct api_error *e);
void dialect_ollama_reply_ping(struct buf *out, struct dialect_state *st,
                               const struct dialect_ping *p);

#endif
