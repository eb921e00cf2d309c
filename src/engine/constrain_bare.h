/* constrain_bare - the grammar of a reply that may begin with a call that nothing marks.
 *
 * Owns:      where such a call may stand, and that it is whole and valid once it names a tool.
 * Not:       marked calls (constrain_tools), arguments (constrain_value), reading (chat/output).
 * Invariant: every text that chat/output takes for a call without opener, in the usual order of its
 *            members, follows the tool's schema; every other text stays free. What the grammar does
 *            not know, output takes for no call of a strict tool (output_call.is_odd).
 *
 *     blanks [```json] { ["type": "..",] "name": " --tool--> ", "arguments": {...}} [```]  again
 *                      |                           `--other text--> free
 *                      `--other member--> free
 *
 * Thread:    prep thread.
 * Limits:    those of the gram.
 */
#ifndef SHOAL_ENGINE_CONSTRAIN_BARE_H
#define SHOAL_ENGINE_CONSTRAIN_BARE_H

#include "engine/constrain_value.h"

/* *root begins such a reply; where it is no call it goes on at `free`, which has taken nothing yet.
 * Several calls, or text behind one, unless is_last. False: as constrain_value_args. */
BASE_USE_RESULT bool constrain_bare(struct constrain_write *w, uint32_t free, bool is_last,
                                    uint32_t *root);

#endif
