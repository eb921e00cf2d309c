/* dialect_anthropic_reply - replies of Anthropic's /v1/messages paths, streamed and not.
 *
 * Owns:      the events of a stream, the message of a reply that is not streamed, blocks and their
 *            order, usage, in-band errors.
 * Not:       reading requests (dialect_anthropic).
 * Invariant: blocks have the indices 0 .. n-1, one is open at a time, none is empty text. Both
 *            forms come from the same steps, so a joined stream is the message.
 *
 *     message_start (block_start block_delta* block_stop)* message_delta message_stop
 *
 * Thread:    the loop.
 */
#ifndef SHOAL_DIALECT_DIALECT_ANTHROPIC_REPLY_H
#define SHOAL_DIALECT_DIALECT_ANTHROPIC_REPLY_H

#include "dialect/dialect_write.h"

/* OTHER: an upstream's, that only its raw form shows. */
enum dialect_anthropic_block {
    ANTHROPIC_NONE, ANTHROPIC_THINKING, ANTHROPIC_TEXT, ANTHROPIC_CALL, ANTHROPIC_OTHER
};

struct dialect_anthropic_state {
    struct dialect_state s;
    enum api_kind kind;
    bool omits_thinking; /* display: omitted */
    uint32_t blocks_count; /* opened so far */
    enum dialect_anthropic_block open;
    uint32_t shown;        /* streamed: index + 1 of the block that is open at the client */
    size_t open_from;      /* not streamed: where the open block begins */
    uint64_t hash;         /* of the open block's reasoning */
    uint64_t tokens_count; /* COUNT */
    uint32_t prompt_tokens, cached_tokens; /* as known at the start */
};

/* Ends the block that is open at the client, if one is: an upstream may leave it open. */
void dialect_anthropic_reply_shut(struct buf *out, struct dialect_state *st);
/* The word of a `stop_reason`. */
const char *dialect_anthropic_reply_reason(const struct dialect_state *st, enum api_done reason);
void dialect_anthropic_reply_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                                   const struct api_event *ev);
void dialect_anthropic_reply_error(struct buf *out, struct dialect_state *st,
                                   const struct api_error *e);
void dialect_anthropic_reply_ping(struct buf *out, struct dialect_state *st,
                                  const struct dialect_ping *p);

#endif
