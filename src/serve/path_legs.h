/* path_legs - legs and routes as clients see them: GET /v1/routes, POST /v1/legs/{name},
 *             /v1/admin/drill.
 *
 * Owns:      the JSON of legs and routes (BEHAVIOUR 5.11), an administrator's word on a leg,
 *            the orders and the report of a drill.
 * Not:       what is known of a leg (legs), who may ask (path_table, limits).
 * Invariant: no key and no prompt text is told. Local models in memory are shown as legs of their
 *            own, "local:NAME", where no configured leg has them.
 * Thread:    the loop's.
 */
#ifndef SHOAL_SERVE_PATH_LEGS_H
#define SHOAL_SERVE_PATH_LEGS_H

#include "base/json.h"
#include "route/router.h"
#include "serve/server.h"

void path_legs_routes(struct server *s, struct http_conn *c);
void path_legs_force(struct server *s, struct http_conn *c);
void path_legs_drill(struct server *s, struct http_conn *c);   /* begins one, or ends it */
void path_legs_drilled(struct server *s, struct http_conn *c); /* what came of it so far */
/* The members "legs" and "routes" of an object that is open. */
void path_legs_put(struct json_writer *w, struct server *s);
/* An upstream leg that a request would be sent to now. */
bool path_legs_is_open(const struct server *s, const struct router_entry *e);
/* Adds a reason for each leg that is not as it should be; true: some route has nobody left. */
bool path_legs_judge(const struct server *s, struct json_writer *reasons, bool *is_degraded);

#endif
