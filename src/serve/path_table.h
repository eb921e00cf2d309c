/* path_table - the paths that are no dialect's.
 *
 * Owns:      the rows and the small handlers; the hint for a path that does not exist.
 * Not:       the dialects' paths (their own tables), how the server is (path_state), who may ask
 *            (limits).
 * Invariant: no handler waits for anything: it answers from what the endpoint knows.
 * Thread:    the loop's.
 */
#ifndef SHOAL_SERVE_PATH_TABLE_H
#define SHOAL_SERVE_PATH_TABLE_H

#include "serve/server.h"

enum path_scope { PATH_SCOPE_OPEN, PATH_SCOPE_INFER, PATH_SCOPE_READ, PATH_SCOPE_ADMIN };

struct path_row {
    const char *method, *path;
    enum path_scope scope;
    void (*serve)(struct server *s, struct http_conn *c);
};

/* docs/openapi.json; made by tools/make_openapi.py. */
extern const char openapi_data[];

/* The row of that method and path (HEAD as GET), or NULL. */
const struct path_row *path_table_find(str method, str path);
/* Methods that serve the path, dialects' too, as "GET, POST"; false: nobody does. */
bool path_table_methods(str path, struct buf *out);
/* "POST /v1/messages": what somebody who asked for path may have meant, or false. */
bool path_table_near(str path, struct buf *out);

#endif
