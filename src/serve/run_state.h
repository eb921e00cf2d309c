/* run_state - what was learned of legs, kept over a restart.
 *
 * Owns:      the file PORT.state (BEHAVIOUR 9.5): its form, when it is written, what is believed of
 *            it at start.
 * Not:       breakers and sessions themselves (legs, route).
 * Invariant: a hint, never needed: a file that is missing, old, of another version or not JSON is
 *            ignored. It is replaced whole. No key, no prompt text, no session's name is in it.
 *
 *     change --1 s--> write PORT.state.new, rename          start: read, older than 1 h: ignored
 *
 * Thread:    the loop's; no fsync, so nothing waits for a disk.
 * Limits:    RUN_STATE_SIZE_MAX bytes; one write a second.
 */
#ifndef SHOAL_SERVE_RUN_STATE_H
#define SHOAL_SERVE_RUN_STATE_H

#include "serve/legs.h"

#define RUN_STATE_SIZE_MAX ((size_t)8 << 20)
#define RUN_STATE_VERSION 1

struct run_state;
/* Reads the file, if it is good, into legs. ERR_MEMORY only: a bad file is logged. */
BASE_USE_RESULT bool run_state_open(struct run_state **out, struct loop *l, struct legs *legs,
                                    const char *path, struct err *e);
void run_state_mark(struct run_state *s); /* something has changed; NULL is allowed */
void run_state_close(struct run_state *s); /* writes what is not written; NULL is allowed */

#endif
