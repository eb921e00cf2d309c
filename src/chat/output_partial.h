/* output_partial - a reply that another leg began, as this model would have written it.
 *
 * Owns:      writing parts of a message in a format's own text, with what of it is markup.
 * Not:       tokens (engine/prompt), where the parts come from (route/transcript).
 * Invariant: the text read by output says the same parts again; where it would not (a value that
 *            is cut where the format cannot be), nothing is written and the leg is refused.
 *
 *     [REASONING "hm", CALL f {"a": "x]
 *     <think>\nhm\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {"a": "x
 *     |markup |    |  markup     ...                                        |
 *
 * Thread:    prep thread.
 * Limits:    the buffers' of the caller.
 */
#ifndef SHOAL_CHAT_OUTPUT_PARTIAL_H
#define SHOAL_CHAT_OUTPUT_PARTIAL_H

#include "chat/output.h"

struct output_partial_mark {
    size_t from, to; /* bytes of the text that may be control tokens */
};

/* Appends to text; marks gets struct output_partial_mark, ascending. o: as the reply will be read.
 * False: ERR_UNSUPPORTED, the reply ends where this format cannot go on; ERR_LIMIT. */
BASE_USE_RESULT bool output_partial_write(const struct output_options *o,
                                          const struct api_message *m, struct buf *text,
                                          struct buf *marks, struct err *e);

#endif
