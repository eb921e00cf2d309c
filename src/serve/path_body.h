/* path_body - a body of the other paths: one small JSON object.
 *
 * Owns:      parsing it with a limit of depth, the sentences when it is none or a field is wrong.
 * Not:       which fields there are (the handlers of path_table), bodies of dialects.
 * Invariant: what is refused is ERR_REQUEST and names the field.
 * Thread:    loop.
 * Limits:    PATH_BODY_DEPTH; the size is http_server's to limit.
 */
#ifndef SHOAL_SERVE_PATH_BODY_H
#define SHOAL_SERVE_PATH_BODY_H

#include "api/api_request.h"
#include "base/json.h"
#include "wire/http_conn.h"

#define PATH_BODY_DEPTH 8u

/* The object that c's body is, in its arena. */
bool path_body_open(struct http_conn *c, struct json *out, struct api_error *e) BASE_USE_RESULT;

/* False with "FIELD: WHAT expected". */
bool path_body_wrong(struct api_error *e, const char *field, const char *what);
/* The same unless v is a string; out lies in a. */
bool path_body_text(struct json v, const char *field, str *out, struct arena *a,
                    struct api_error *e) BASE_USE_RESULT;

#endif
