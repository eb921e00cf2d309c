/* remote_headers - the header lines of one request to an upstream.
 *
 * Owns:      which lines go: the key in its protocol's form, the client's kept fields where the
 *            protocols are equal, how many shoals the request passed, whose it is.
 * Not:       the body (dialect_NAME_client), sending (remote_leg, remote_check).
 * Invariant: a key stands in one line only, and only in lines for the leg that it belongs to.
 *
 *     remote_headers_init, _fill or _add..., rows --> http_call, _deinit
 *
 * Thread:    the loop's; plain data. Lives as long as the start of its call.
 * Limits:    REMOTE_HEADERS_MAX lines; more, and lines that do not fit, are left out.
 */
#ifndef SHOAL_SERVE_REMOTE_HEADERS_H
#define SHOAL_SERVE_REMOTE_HEADERS_H

#include "serve/remote_leg.h"

#define REMOTE_HEADERS_MAX 14u /* ours and the client's kept ones */

/* Lines "name: value" for one call. */
struct remote_headers {
    struct arena a;
    const char *rows[REMOTE_HEADERS_MAX + 1]; /* ends with NULL */
    uint32_t count;
};
void remote_headers_init(struct remote_headers *h);
void remote_headers_deinit(struct remote_headers *h);
void remote_headers_add(struct remote_headers *h, const char *name, str value); /* "name: " */
/* The leg's own key, or the client's; rq NULL: a check, which has no client. */
void remote_headers_add_key(struct remote_headers *h, const struct remote_leg_options *o,
                            const struct api_request *rq);
/* All lines of a request. */
void remote_headers_fill(struct remote_headers *h, const struct remote_leg_options *o,
                         const struct api_request *rq);
/* Has the request passed the server of that name? By its Shoal-Via. */
bool remote_headers_is_back(str via, const struct api_request *rq);
/* How many shoals a request has passed before this one: its Shoal-Hop. */
uint64_t remote_headers_hops(const struct api_request *rq);

#endif
