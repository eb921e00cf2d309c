/* dialect_openai_reply - replies of /v1/chat/completions, streamed and not.
 *
 * Owns:      chunks, the completion object, usage, in-band errors of OpenAI's chat form.
 * Not:       reading requests (dialect_openai_chat).
 * Invariant: one id a reply; the first delta of a choice has its role; finish_reason stands once;
 *            with include_usage one last chunk without choices. Joined deltas equal the message of
 *            the reply that is not streamed.
 * Thread:    the loop.
 */
#ifndef SHOAL_DIALECT_DIALECT_OPENAI_REPLY_H
#define SHOAL_DIALECT_DIALECT_OPENAI_REPLY_H

#include "dialect/dialect_write.h"

void dialect_openai_reply_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                                const struct api_event *ev);
void dialect_openai_reply_error(struct buf *out, struct dialect_state *st,
                                const struct api_error *e);

#endif
