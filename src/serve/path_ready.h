/* path_ready - would a reply start now? GET /ready.
 *
 * Owns:      the judgement of BEHAVIOUR 5.11 for one name (of a route, a model, an alias) or for
 *            the model that spoke last, and the form of its answer.
 * Not:       health (path_state), the token of a proof (proofs), the legs' states (legs).
 * Invariant: without prove=1 no answer waits for anybody. Nothing is loaded: a model that is not in
 *            memory is idle, and unproved.
 * Thread:    the loop's.
 */
#ifndef SHOAL_SERVE_PATH_READY_H
#define SHOAL_SERVE_PATH_READY_H

#include "serve/server.h"

void path_ready(struct server *s, struct http_conn *c);

#endif
