/* run_repl - the terminal side of a conversation: line editing, history, slash commands.
 *
 * Owns:      libedit, the history file, reading several lines between triple quotes.
 * Not:       asking and printing (run_local).
 * Invariant: while the user types, the loop turns: the child's heartbeat is read. Ctrl-C drops the
 *            line at hand or cancels the reply, never the session; Ctrl-D at an empty line ends it.
 * Thread:    main.
 * Limits:    RUN_REPL_INPUT_MAX bytes of input, RUN_REPL_HISTORY_MAX lines of history.
 */
#ifndef SHOAL_CLI_RUN_REPL_H
#define SHOAL_CLI_RUN_REPL_H

#include "cli/run_local.h"

#define RUN_REPL_INPUT_MAX ((size_t)4 << 20)
#define RUN_REPL_HISTORY_MAX 2000

/* Until /bye or the end of input. history: path of the file, "" = none. False: the child is lost,
 * or the terminal cannot be used. */
BASE_USE_RESULT bool run_repl(struct run_local *r, const char *history, struct err *e);

#endif
