/* path_sessions - the sessions that somebody may see: list, show, forget.
 *
 * Owns:      the answers of /v1/sessions and /v1/sessions/{id}.
 * Not:       what is remembered (sessions), stickiness itself (legs, route/sticky).
 * Thread:    the loop's.
 */
#ifndef SHOAL_SERVE_PATH_SESSIONS_H
#define SHOAL_SERVE_PATH_SESSIONS_H

#include "serve/server.h"

void path_sessions_list(struct server *s, struct http_conn *c);
void path_sessions_show(struct server *s, struct http_conn *c);
void path_sessions_delete(struct server *s, struct http_conn *c);

#endif
