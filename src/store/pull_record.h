/* pull_record - what was pulled: `.pulled` in the own store (docs/formats/pulled.md).
 *
 * Owns:      that file: which reference gave which files, with size, time and sha256.
 * Not:       the models themselves: a line whose file has another size or time says nothing.
 * Invariant: replaced whole, under a lock on the store's directory.
 *
 *     shoal pulled 1
 *     REFERENCE <tab> NAME <tab> SIZE <tab> MTIME_NS <tab> SHA256 or -
 *
 * Thread:    any; a record belongs to its reader.
 * Limits:    PULL_RECORD_SIZE_MAX; the oldest lines go.
 */
#ifndef SHOAL_STORE_PULL_RECORD_H
#define SHOAL_STORE_PULL_RECORD_H

#include "base/arena.h"
#include "base/err.h"

#define PULL_RECORD_SIZE_MAX ((size_t)4 << 20)

struct pull_record_line {
    str reference, name; /* name: relative to the store */
    uint64_t size;
    int64_t mtime_ns;
    bool has_sha256;
    uint8_t sha256[32];
};
struct pull_record {
    const struct pull_record_line *lines;
    uint32_t count;
};

/* No file is an empty record, and so is one that is not ours. */
void pull_record_read(struct pull_record *out, str store, struct arena *a);
/* For tests: lines that do not parse are left out. */
void pull_record_parse(struct pull_record *out, str text, struct arena *a);
/* The line of a file that is still as it was recorded, or NULL. */
const struct pull_record_line *pull_record_find(const struct pull_record *r, str name,
                                                uint64_t size, int64_t mtime_ns);
/* Adds lines; earlier ones of the same reference and name go. */
bool pull_record_put(str store, const struct pull_record_line *lines, uint32_t count,
                     struct err *e) BASE_USE_RESULT;

#endif
