/* output_tools - the tools of a request as a reply's reader needs them.
 *
 * Owns:      names as the model sees them, which types a parameter may have.
 * Not:       rendering of declarations (render_turn), schemas as grammars (grammar).
 * Invariant: made once per request, shared by its choices, never changed.
 * Thread:    made on the prep thread, then immutable.
 * Limits:    schemas nest at most OUTPUT_TOOLS_DEPTH_MAX; a deeper one counts as undeclared.
 */
#ifndef SHOAL_CHAT_OUTPUT_TOOLS_H
#define SHOAL_CHAT_OUTPUT_TOOLS_H

#include "api/api_request.h"
#include "base/json.h"

#define OUTPUT_TOOLS_DEPTH_MAX 64
/* A custom tool takes one free text: so it is declared, and so its calls are constrained. */
#define OUTPUT_TOOLS_CUSTOM_SCHEMA \
    "{\"type\": \"object\", \"properties\": {\"input\": {\"type\": \"string\"}}, " \
    "\"required\": [\"input\"]}"

enum output_type {
    OUTPUT_TYPE_STRING = 1 << 0, OUTPUT_TYPE_NUMBER = 1 << 1, OUTPUT_TYPE_BOOL = 1 << 2,
    OUTPUT_TYPE_NULL = 1 << 3, OUTPUT_TYPE_ARRAY = 1 << 4, OUTPUT_TYPE_OBJECT = 1 << 5
};

struct output_tool {
    const struct api_tool *tool;
    str name;           /* NAMESPACE__name */
    struct json schema; /* absent: none, or it could not be read */
    bool has_schema;
};
struct output_tools {
    const struct output_tool *rows;
    uint32_t rows_count;
};

/* Tables in a, which rq outlives too; hosted tools and those that are not allowed are left out.
 * False: ERR_LIMIT, a is full. */
BASE_USE_RESULT bool output_tools_make(struct output_tools *out, const struct api_request *rq,
                                       struct arena *a, struct err *e);
/* Names alone: schemas are not read, as for a format whose values show their types. */
BASE_USE_RESULT bool output_tools_names(struct output_tools *out, const struct api_request *rq,
                                        struct arena *a, struct err *e);
/* The OUTPUT_TYPE bit of a value; 0: absent. */
uint32_t output_tools_type(enum json_kind kind);
/* NULL: no tool of that name. */
const struct output_tool *output_tools_find(const struct output_tools *t, str name);
/* Which types the schema allows the parameter to have, as OUTPUT_TYPE bits; 0: it does not say.
 * t may be NULL. */
uint32_t output_tools_types(const struct output_tool *t, str parameter);
/* The same for a schema inside that of t, whose schema was read. */
uint32_t output_tools_schema_types(const struct output_tool *t, struct json schema);

#endif
