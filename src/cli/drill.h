/* drill - the parts of `shoal drill` beside its own rehearsal.
 *
 * Owns:      a drill on a running server: the order, the wait, the report. For the rehearsal on
 *            loopback: its model, the engines of it, what is done to them.
 * Not:       the fault itself (serve/rehearsal), the rehearsal on loopback (cmd_drill).
 * Invariant: an interrupt ends the drill on the server before it ends the command.
 * Thread:    main.
 * Limits:    DRILL_AFTER_MS for requests that are under way when the time is over.
 */
#ifndef SHOAL_CLI_DRILL_H
#define SHOAL_CLI_DRILL_H

#include "cli/cmd.h"
#include "serve/models_leg.h"

#define DRILL_AFTER_MS 120000

/* -live LEG -fault NAME [-for] [-share] [-agents]. Exit code 1: a request failed though another leg
 * could have taken it. ERR_CONNECT, what the server refuses. */
BASE_USE_RESULT bool drill_live(struct cmd_context *c, struct err *e);

/* --- engines to fail (drill_engine.c) --- */

#define DRILL_ENGINE_STALL_MS 1500 /* three heartbeats: no progress for so long is a wedge */

struct drill_engine {
    struct models_leg *models; /* every name of it is the one model in a folder of its own */
    char dir[40], path[64];
};
/* Writes the model. ERR_IO. */
BASE_USE_RESULT bool drill_engine_open(struct drill_engine *d, struct loop *loop,
                                       const struct cmd_context *c, struct err *e);
void drill_engine_close(struct drill_engine *d); /* also after a zeroed struct */
/* Starts an engine under that name. ERR_LIMIT. */
BASE_USE_RESULT bool drill_engine_start(struct drill_engine *d, str name, struct err *e);
bool drill_engine_is_ready(const struct drill_engine *d, str name);
/* SIGKILL or SIGSTOP to the child of that name; false: there is none now. */
bool drill_engine_strike(const struct drill_engine *d, str name, int signal_number);

#endif
