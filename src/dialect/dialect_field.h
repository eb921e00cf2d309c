/* dialect_field - readers of fields that several protocols have under the same name.
 *
 * Owns:      sampling fields, priorities and limits whose values mean the same everywhere.
 * Not:       the machinery of reading (dialect_read); fields of one protocol (dialect_NAME.c).
 * Invariant: each is a `read` of a struct dialect_field: it sets the request, or fails with a path.
 * Thread:    its caller's.
 * Limits:    dialect_limits.
 */
#ifndef SHOAL_DIALECT_DIALECT_FIELD_H
#define SHOAL_DIALECT_DIALECT_FIELD_H

#include "dialect/dialect_read.h"

bool dialect_field_seed(struct dialect_read *r, struct json v);
bool dialect_field_n(struct dialect_read *r, struct json v);
bool dialect_field_top_k(struct dialect_read *r, struct json v); /* -1 = off */
bool dialect_field_bias(struct dialect_read *r, struct json v);
bool dialect_field_stop_ids(struct dialect_read *r, struct json v);
bool dialect_field_service_tier(struct dialect_read *r, struct json v); /* flex, priority */
bool dialect_field_priority(struct dialect_read *r, struct json v);     /* negative = high */
bool dialect_field_context_max(struct dialect_read *r, struct json v);
bool dialect_field_skip_special(struct dialect_read *r, struct json v); /* only true */
bool dialect_field_stream_options(struct dialect_read *r, struct json v); /* include_usage */
/* The reply's format, strict until the client says else: one a request. */
bool dialect_field_set_format(struct dialect_read *r, struct json v, enum api_format_kind kind,
                              str text);
/* OpenAI's {"type", "schema", "strict", "name"}, the last three in member wrap; NULL: beside it. */
bool dialect_field_format(struct dialect_read *r, struct json v, const char *wrap);
/* vLLM's structured output: one of them sets the format. */
bool dialect_field_guided_json(struct dialect_read *r, struct json v);
bool dialect_field_guided_regex(struct dialect_read *r, struct json v);
bool dialect_field_guided_choice(struct dialect_read *r, struct json v);
bool dialect_field_structured(struct dialect_read *r, struct json v);
/* An array of at most max token ids into the arena. */
bool dialect_field_ids(struct dialect_read *r, struct json v, uint32_t max, const int32_t **ids,
                       uint32_t *count);

#endif
