/* dialect_responses_reply - replies of /v1/responses, streamed and not.
 *
 * Owns:      typed events with their numbers, output items and their ids, the response object,
 *            in-band errors.
 * Not:       reading requests (dialect_openai_responses).
 * Invariant: one item is open at a time; every added item and part has its done; sequence numbers
 *            grow by one. The items of the last event are the ones that were streamed: both forms
 *            come from the same steps.
 *
 *     created in_progress (item.added (part.added delta* done part.done)? item.done)* completed
 *
 * Thread:    the loop.
 * Limits:    reply_max bytes of items, streamed or not: the last event repeats them.
 */
#ifndef SHOAL_DIALECT_DIALECT_RESPONSES_REPLY_H
#define SHOAL_DIALECT_DIALECT_RESPONSES_REPLY_H

#include "dialect/dialect_write.h"

enum dialect_responses_item {
    RESPONSES_NONE, RESPONSES_REASONING, RESPONSES_MESSAGE, RESPONSES_CALL
};

struct dialect_responses_state {
    struct dialect_state s;
    /* Of the request, repeated in the object: JSON on one line, "" = the default. */
    str instructions, max_output_tokens, metadata, reasoning_effort, reasoning_summary;
    str text, tool_choice, tools, truncation, user;
    float temperature, top_p;
    bool parallel_tool_calls, with_encrypted, with_logprobs;
    uint64_t sequence;     /* number of the next event */
    uint32_t items_count;  /* opened so far; the open one is the last */
    enum dialect_responses_item open;
};

void dialect_responses_reply_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                                   const struct api_event *ev);
void dialect_responses_reply_error(struct buf *out, struct dialect_state *st,
                                   const struct api_error *e);
void dialect_responses_reply_ping(struct buf *out, struct dialect_state *st,
                                  const struct dialect_ping *p);

#endif
