/* render_tools - tools in the prompt of a model whose template has no place for them.
 *
 * Owns:      declarations as text of the system turn, calls of the history as the format's row has
 *            them, results as user turns.
 * Not:       templates that do it themselves (render), rows (output_table).
 * Invariant: what it says of calls is what chat/output reads as calls. Markup is the template's own
 *            text, names and values are the request's.
 * Thread:    one call of render_request.
 * Limits:    the heap's; OUTPUT_TEXT_MAX bytes a turn.
 */
#ifndef SHOAL_CHAT_RENDER_TOOLS_H
#define SHOAL_CHAT_RENDER_TOOLS_H

#include "chat/output_table.h"
#include "chat/render_turn.h"

/* Whether declarations can be said in this format at all. */
bool render_tools_can(const struct output_format *f);
/* Rewrites the turns that were read. has_calls: the template shows calls and results itself. False:
 * ERR_LIMIT, ERR_UNSUPPORTED (a call of the history that the format cannot say). */
BASE_USE_RESULT bool render_tools_write(struct render_turns *r, const struct output_format *f,
                                        bool has_calls, struct err *e);

#endif
