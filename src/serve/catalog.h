/* catalog - the picture of the model library that the endpoint answers from, and what each file is.
 *
 * Owns:      the last picture of the stores, the thread that takes a new one, the descriptions of
 *            files and the child that makes them.
 * Not:       names (store/library), loading (models_leg, engine_leg).
 * Invariant: the loop never reads a directory or a model file: stores are read on a thread, files
 *            by a child. A file whose header kills the child or holds it up costs only its own
 *            description. A description belongs to (path, size, time) and is made again when one of
 *            them changes.
 *
 *     refresh --> thread: library_open --> picture       about --> queue --> child: DESCRIBE
 *                                  \____ on_change ____/
 *
 * Thread:    the loop's; on_change comes from the loop.
 * Limits:    LIBRARY_ENTRIES_MAX descriptions, CATALOG_TEXT_MAX bytes of their texts (past it only
 *            short ones are kept), CATALOG_DESCRIBE_MS for one file.
 */
#ifndef SHOAL_SERVE_CATALOG_H
#define SHOAL_SERVE_CATALOG_H

#include "api/api_event.h"
#include "store/library.h"
#include "wire/loop.h"

#define CATALOG_FRESH_MS 1000 /* a younger picture is not taken anew */
#define CATALOG_TEXT_MAX ((size_t)64 << 20)
#define CATALOG_DESCRIBE_MS 10000

struct catalog;
struct catalog_options {
    struct loop *loop;
    const struct library_options *library; /* outlives the catalog; check runs on the thread */
    str build_id;                          /* outlives it, as do argv's */
    const char *const *argv;
    void (*on_change)(void *ctx); /* a picture or a description has come, or failed */
    void *ctx;
};

BASE_USE_RESULT bool catalog_open(struct catalog **out, const struct catalog_options *o,
                                  struct err *e);
void catalog_close(struct catalog *c); /* waits for the thread; NULL is allowed */

/* Takes a new picture unless one is being taken or the last is fresh. */
void catalog_refresh(struct catalog *c);
/* The stores have changed: no picture begun so far counts as fresh; takes a new one. */
void catalog_expire(struct catalog *c);
/* The last picture is younger than CATALOG_FRESH_MS, and no newer one is under way. */
bool catalog_is_fresh(const struct catalog *c);
/* NULL: none yet; *why is set when the last try failed. Valid until on_change. */
const struct library *catalog_picture(const struct catalog *c, struct err *why);

enum catalog_about { CATALOG_ASKED, CATALOG_KNOWN, CATALOG_FAILED };
/* What the entry's file is; name, path, size and time are the entry's own. ASKED: on_change will
 * tell. KNOWN: *out, valid until the next call of on_change; with_texts: also template, license,
 * info. FAILED: why. */
enum catalog_about catalog_about(struct catalog *c, const struct library_entry *entry,
                                 bool with_texts, struct api_model *out, struct err *why);

#endif
