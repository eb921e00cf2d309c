/* path_state - how the server is: /health, /v1/status, /metrics.
 *
 * Owns:      the judgement of BEHAVIOUR 5.11 over the resident models, the forms of these answers.
 * Not:       numbers (metrics, models_leg), who may read them (path_table, limits), /ready
 *            (path_ready).
 * Invariant: health follows progress, not processes: a child that stands still with work to do is
 *            told after half of engine_stall. No answer waits for a child.
 * Thread:    the loop's.
 */
#ifndef SHOAL_SERVE_PATH_STATE_H
#define SHOAL_SERVE_PATH_STATE_H

#include "api/api_provider.h"
#include "serve/server.h"

struct models_leg_resident;

void path_state_health(struct server *s, struct http_conn *c);
void path_state_status(struct server *s, struct http_conn *c);
void path_state_metrics(struct server *s, struct http_conn *c);

/* --- for path_ready --- */

/* As BEHAVIOUR 5.11 names it: loaded, loading, restarting, failed, idle. */
const char *path_state_name(enum api_health_state state);
/* No progress for half of engine_stall, with work to do. */
bool path_state_stands(const struct server *s, const struct models_leg_resident *r);

#endif
