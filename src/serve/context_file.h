/* context_file - the bytes of one saved context on a disk (docs/formats/context.md).
 *
 * Owns:      the header with version and sums, the JSON behind it, the name that a context's file
 *            has.
 * Not:       directories and locks (contexts_disk), what a context is (contexts), its messages
 *            (dialect_contexts reads content as a body that was just sent).
 * Invariant: what is read is whole, or refused: each byte counts in a sum. A name tells nothing
 *            and cannot be chosen: a SHA-256 of scope and id.
 *
 *     "shoalctx" version size sum sum | {"id", ..., "content": {"model", "messages", ...}}
 *
 * Thread:    any.
 * Limits:    CONTEXT_FILE_SIZE_MAX bytes.
 */
#ifndef SHOAL_SERVE_CONTEXT_FILE_H
#define SHOAL_SERVE_CONTEXT_FILE_H

#include "api/api_event.h"
#include "base/buf.h"

#define CONTEXT_FILE_VERSION 1u
#define CONTEXT_FILE_HEADER 40u
#define CONTEXT_FILE_MORE ((size_t)128 << 10) /* beside the content */
#define CONTEXT_FILE_SIZE_MAX (((size_t)64 << 20) + CONTEXT_FILE_MORE)
#define CONTEXT_FILE_NAME_SIZE 41u /* 32 digits, ".context", NUL */

struct context_file {
    str scope, id, model, content; /* content: a JSON object */
    uint32_t tokens, cached_tokens;
    int64_t created_s, used_s, expires_s; /* Unix */
    bool is_pinned;
    struct api_prefix prefix; /* pages 0: not known */
};

/* False: out has no room. */
BASE_USE_RESULT bool context_file_write(struct buf *out, const struct context_file *f);
/* Views into bytes and a. ERR_FORMAT: damaged; ERR_UNSUPPORTED: another version; ERR_MEMORY. */
BASE_USE_RESULT bool context_file_read(struct context_file *out, str bytes, struct arena *a,
                                       struct err *e);
/* False: the library has no SHA-256. */
BASE_USE_RESULT bool context_file_name(char out[CONTEXT_FILE_NAME_SIZE], str scope, str id,
                                       struct err *e);
/* Whether a file's name is one of these. */
bool context_file_is_name(const char *name);

#endif
