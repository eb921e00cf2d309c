/* dialect_tool - declared tools, calls of a history and the choice among tools, for every protocol.
 *
 * Owns:      one declaration's members, names that are unique, choosing tools by name, OpenAI's
 *            tool_choice, the argument that stands for a custom tool's free text.
 * Not:       where a protocol keeps these members (dialect_NAME.c), what a model makes of them.
 * Invariant: a callable tool has a name of 1 to 256 bytes without control characters that no other
 *            callable one has (a namespace is part of the name). A chosen name is a declared one.
 * Thread:    its caller's.
 * Limits:    dialect_limits.tools_max, children of namespaces included.
 */
#ifndef SHOAL_DIALECT_DIALECT_TOOL_H
#define SHOAL_DIALECT_DIALECT_TOOL_H

#include "dialect/dialect_read.h"

/* Room for count tools in rq->tools, which grows by dialect_tool_add. */
BASE_USE_RESULT bool dialect_tool_room(struct dialect_read *r, struct json list, size_t count);
/* One more tool by read, which gets *out zeroed but for name_space and allowed; a callable one is
 * refused where tools are not built. */
BASE_USE_RESULT bool dialect_tool_add(struct dialect_read *r, struct json v, str name_space,
                                      bool (*read)(struct dialect_read *r, struct json v,
                                                   struct api_tool *out));
/* Both for an array; null and [] are no tools. */
BASE_USE_RESULT bool dialect_tool_list(struct dialect_read *r, struct json list,
                                       bool (*read)(struct dialect_read *r, struct json v,
                                                    struct api_tool *out));

/* name, description, strict and the member called schema of v into a callable tool; out->kind and
 * name_space are set. */
BASE_USE_RESULT bool dialect_tool_read(struct dialect_read *r, struct json v, const char *schema,
                                       struct api_tool *out);
/* A tool that runs elsewhere, kept for an upstream under the text of name: warning tool_skipped. */
BASE_USE_RESULT bool dialect_tool_hosted(struct dialect_read *r, struct json v, struct json name,
                                         struct api_tool *out);

/* Nothing is allowed any more; then by name, each. An unknown name is an error at it that says
 * which declared name is near. */
void dialect_tool_forbid_all(struct dialect_read *r);
BASE_USE_RESULT bool dialect_tool_allow(struct dialect_read *r, struct json v, struct json name);
/* OpenAI's tool_choice: "auto", "none", "required", one tool, or allowed_tools. wraps: a name
 * stands in an object called as the tool's type, as in chat completions. After the tools. */
BASE_USE_RESULT bool dialect_tool_choice(struct dialect_read *r, struct json v, bool wraps);

/* *text becomes {"input": text}: a custom tool's free text as the arguments a template sees. */
BASE_USE_RESULT bool dialect_tool_input(struct dialect_read *r, str *text);

#endif
