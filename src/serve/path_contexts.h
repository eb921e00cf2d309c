/* path_contexts - the saved contexts that somebody may see: list, show, change, delete.
 *
 * Owns:      the answers of GET /v1/contexts and of /v1/contexts/{id}.
 * Not:       saving one (dialect_contexts, exchange), what is kept (contexts).
 * Thread:    the loop's.
 */
#ifndef SHOAL_SERVE_PATH_CONTEXTS_H
#define SHOAL_SERVE_PATH_CONTEXTS_H

#include "serve/server.h"

void path_contexts_list(struct server *s, struct http_conn *c);
void path_contexts_show(struct server *s, struct http_conn *c);
void path_contexts_delete(struct server *s, struct http_conn *c);

#endif
