/* drill - the parts of `shoal drill` beside its own rehearsal.
 *
 * Owns:      a drill on a running server: the order, the wait, the report.
 * Not:       the fault itself (serve/rehearsal), the rehearsal on loopback (cmd_drill).
 * Invariant: an interrupt ends the drill on the server before it ends the command.
 * Thread:    main.
 * Limits:    DRILL_AFTER_MS for requests that are under way when the time is over.
 */
#ifndef SHOAL_CLI_DRILL_H
#define SHOAL_CLI_DRILL_H

#include "cli/cmd.h"

#define DRILL_AFTER_MS 120000

/* -live LEG -fault NAME [-for] [-share] [-agents]. Exit code 1: a request failed though another leg
 * could have taken it. ERR_CONNECT, what the server refuses. */
BASE_USE_RESULT bool drill_live(struct cmd_context *c, struct err *e);

#endif
