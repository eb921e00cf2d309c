/* path_cache - what is kept of prompts and why some were read again: /v1/cache and below it.
 *
 * Owns:      the forms of these answers (BEHAVIOUR 5.10), the arguments of their queries.
 * Not:       the figures (models_leg, replay), the records (misses), who may ask (path_table).
 * Invariant: a key without admin sees records of its own cache scope. Figures are those that
 *            the children told last, at most half a second ago; only the answer about what was
 *            dropped waits for them, and ends with a child that ends.
 * Thread:    the loop's.
 * Limits:    PATH_CACHE_LIMIT_MAX records of an answer.
 */
#ifndef SHOAL_SERVE_PATH_CACHE_H
#define SHOAL_SERVE_PATH_CACHE_H

#include "serve/server.h"

#define PATH_CACHE_LIMIT 100u
#define PATH_CACHE_LIMIT_MAX 10000u

void path_cache_show(struct server *s, struct http_conn *c);
void path_cache_drop(struct server *s, struct http_conn *c);
void path_cache_misses(struct server *s, struct http_conn *c);

#endif
