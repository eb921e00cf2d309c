/* path_state - how the server is: /health, /ready, /v1/status, /metrics.
 *
 * Owns:      the judgement of BEHAVIOUR 5.11 over the resident models, the forms of these answers.
 * Not:       numbers (metrics, models_leg), who may read them (path_table, limits).
 * Invariant: health follows progress, not processes: a child that stands still with work to do is
 *            told after half of engine_stall. No answer waits for a child.
 * Thread:    the loop's.
 */
#ifndef SHOAL_SERVE_PATH_STATE_H
#define SHOAL_SERVE_PATH_STATE_H

#include "serve/server.h"

void path_state_health(struct server *s, struct http_conn *c);
void path_state_ready(struct server *s, struct http_conn *c);
void path_state_status(struct server *s, struct http_conn *c);
void path_state_metrics(struct server *s, struct http_conn *c);

#endif
