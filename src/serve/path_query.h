/* path_query - arguments of a query: the part of a path behind "?".
 *
 * Owns:      finding one argument and decoding its percent signs.
 * Not:       what an argument means (the handlers of path_table).
 * Invariant: the first one of a name counts; a broken percent sign stands for itself.
 * Thread:    any.
 */
#ifndef SHOAL_SERVE_PATH_QUERY_H
#define SHOAL_SERVE_PATH_QUERY_H

#include "wire/http_conn.h"

/* The value of "name=" in c's query, decoded in c's arena; p NULL: not there. */
str path_query(const struct http_conn *c, str name, struct arena *a);

#endif
