/* path_agents - requests under way and agents: list them, end what they asked for.
 *
 * Owns:      the answers of /v1/requests, /v1/requests/{id}, /v1/agents and
 *            /v1/agents/{id}/requests (BEHAVIOUR 5.10).
 * Not:       what is shown of a request (exchange_list), sums (agents), rules (limits, quota).
 * Invariant: a key sees and ends its own alone, admin all.
 * Thread:    the loop's.
 */
#ifndef SHOAL_SERVE_PATH_AGENTS_H
#define SHOAL_SERVE_PATH_AGENTS_H

#include "serve/server.h"

void path_agents_requests(struct server *s, struct http_conn *c);
void path_agents_request(struct server *s, struct http_conn *c);
void path_agents_cancel(struct server *s, struct http_conn *c); /* one request */
void path_agents_list(struct server *s, struct http_conn *c);
void path_agents_cancel_all(struct server *s, struct http_conn *c); /* of an agent */

#endif
