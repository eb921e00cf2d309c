/* contexts_disk - saved contexts in a directory, so that they are there after a restart.
 *
 * Owns:      DIR/contexts with its lock, one file a context, the thread that writes and deletes
 *            them.
 * Not:       bytes of a file (context_file), which context lives how long (contexts), their pages
 *            (kv, in DIR beside it).
 * Invariant: a file is replaced whole; what is damaged is deleted and told, what a newer program
 *            wrote is left alone. What was asked for last is what lies there in the end: orders are
 *            carried out one after another. A second server that shares DIR keeps its own
 *            contexts in memory alone, and says so.
 *
 *     put, remove --> thread: bytes and their sum, NAME.new, fdatasync, rename | unlink
 *
 * Thread:    the loop's; opening reads the files and blocks, closing waits for the thread.
 * Limits:    CONTEXTS_DISK_JOBS orders and CONTEXTS_DISK_WAITING_MAX bytes at once: a disk that is
 *            slower than what is saved costs files, not memory. Files as context_file.
 */
#ifndef SHOAL_SERVE_CONTEXTS_DISK_H
#define SHOAL_SERVE_CONTEXTS_DISK_H

#include "serve/context_file.h"
#include "wire/loop.h"

#define CONTEXTS_DISK_JOBS 16384u
#ifndef CONTEXTS_DISK_WAITING_MAX /* a test has less */
#define CONTEXTS_DISK_WAITING_MAX ((size_t)256 << 20)
#endif

struct contexts_disk;
/* dir: of the tier; DIR/contexts is made (0700). ERR_LIMIT: another server has it; ERR_IO. */
BASE_USE_RESULT bool contexts_disk_open(struct contexts_disk **out, struct loop *l,
                                        const char *dir, struct err *e);
void contexts_disk_close(struct contexts_disk *d); /* NULL is allowed */

/* At start: each file in turn, by name. on_file: false, it is not wanted, and deleted. */
void contexts_disk_load(struct contexts_disk *d, uint32_t files_max,
                        bool (*on_file)(void *ctx, const struct context_file *f), void *ctx);

/* f's texts are lent until on_done, from the loop: perhaps before this returns. What cannot be kept
 * is logged: the context lives until the server stops. */
void contexts_disk_put(struct contexts_disk *d, const struct context_file *f,
                       void (*on_done)(void *ctx), void *ctx);
void contexts_disk_remove(struct contexts_disk *d, str scope, str id);

/* Deletes all, and adds up their bytes. ERR_LIMIT: a server uses them. */
BASE_USE_RESULT bool contexts_disk_clean(const char *dir, uint64_t *bytes, struct err *e);

#endif
