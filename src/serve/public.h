/* public - prefixes that keys share with each other (cache.public), computed before anyone asks.
 *
 * Owns:      reading the configured files, each as a request that stores a prefix under the public
 *            scope.
 * Not:       when they are computed (engine_leg: whenever a child has loaded), who sees them
 *            (kv_trie: every scope forks from the public root).
 * Invariant: what is shared is exactly what the files hold; nothing that a client sent is ever
 *            stored publicly while keys are configured.
 * Thread:    any; at start.
 * Limits:    PUBLIC_MAX files of PUBLIC_SIZE_MAX bytes; dialect_limits.
 */
#ifndef SHOAL_SERVE_PUBLIC_H
#define SHOAL_SERVE_PUBLIC_H

#include "dialect/dialect.h"

#define PUBLIC_MAX 64u
#define PUBLIC_SIZE_MAX ((size_t)16 << 20)

struct public_prefixes {
    const struct api_request *rows; /* model "": of every model */
    uint32_t count;
    const str *ids; /* contexts that are public once an administrator has saved them */
    uint32_t ids_count;
};

/* What begins with ctx_ is the id of a context. Any other is a file, a body of
 * POST /v1/chat/completions: messages, tools, and a model if it is for one only. Everything lies in
 * a, which must outlive the children. ERR_CONFIG names the file. */
BASE_USE_RESULT bool public_read(struct public_prefixes *out, const str *files, uint32_t count,
                                 const struct dialect_limits *limits, struct arena *a,
                                 struct err *e);

#endif
