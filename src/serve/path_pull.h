/* path_pull - POST /api/pull and DELETE /api/delete, in Ollama's form.
 *
 * Owns:      the fields of these requests, the lines of a pull's stream, how an error is told.
 * Not:       downloads and deletions (pulls), who may ask (path_table, limits).
 * Invariant: nothing is sent before the first news of a download, so that what is refused at once
 *            keeps its status; after that an error is a line, and the last one. A slow reader
 *            misses progress, nothing else.
 * Thread:    the loop's.
 * Limits:    those of pulls; a body as path_body reads it.
 */
#ifndef SHOAL_SERVE_PATH_PULL_H
#define SHOAL_SERVE_PATH_PULL_H

#include "serve/server.h"

void path_pull_fetch(struct server *s, struct http_conn *c);
void path_pull_delete(struct server *s, struct http_conn *c);

#endif
