/* dialect_openai_write - parts of replies that OpenAI's protocols share.
 *
 * Owns:      finish reasons, the members that open an object and those that close it, the member
 *            `error`.
 * Not:       the objects themselves (dialect_openai_*).
 * Thread:    the loop.
 */
#ifndef SHOAL_DIALECT_DIALECT_OPENAI_WRITE_H
#define SHOAL_DIALECT_DIALECT_OPENAI_WRITE_H

#include "dialect/dialect_write.h"

/* "stop", "length", "tool_calls", "content_filter", "error" */
const char *dialect_openai_write_finish(enum api_done reason);
/* "id", "object", "created", "model", "system_fingerprint"; id: the prefix of the id. */
void dialect_openai_write_head(struct json_writer *w, const struct dialect_state *st,
                               const char *id, const char *object);
/* The object of chat and completions. */
void dialect_openai_write_usage(struct json_writer *w, const struct api_usage *u);
/* "usage", "seed", "shoal", and the object is closed. */
void dialect_openai_write_end(struct json_writer *w, const struct dialect_state *st,
                              enum api_done reason);
/* "error": {...} */
void dialect_openai_write_error(struct json_writer *w, const struct api_error *e);

#endif
