/* hub - where models are published: the addresses and answers of one kind of hub.
 *
 * Owns:      struct hub, the list of hubs (hub_table.c), what a repository is as plain data.
 * Not:       how a user writes a reference (hub_ref), which files are taken (hub_pick), calls
 *            (hub_net), downloads (pull).
 * Invariant: rows are pure: text in, text or data out. Names that a hub tells are data, never
 *            paths of ours before hub_ref_base has passed them.
 * Thread:    any.
 * Limits:    HUB_ANSWER_MAX bytes an answer, HUB_FILES_MAX files of a repository.
 */
#ifndef SHOAL_STORE_HUB_H
#define SHOAL_STORE_HUB_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#define HUB_ANSWER_MAX ((size_t)32 << 20)
#define HUB_FILES_MAX 65536u
#define HUB_FOUND_MAX 20u
#define HUB_SIZE_UNKNOWN UINT64_MAX

struct hub_file {
    str path; /* in the repository, as the hub tells it */
    uint64_t size;
    bool has_sha256;
    uint8_t sha256[32];
};

struct hub_repo {
    str commit;     /* what the revision stands for now; empty: not told */
    str model_type; /* of its config.json, if the hub tells it */
    const struct hub_file *files;
    uint32_t files_count;
};

struct hub {
    const char *name;
    /* Addresses; endpoint has no slash at its end. repo and revision are sound (hub_ref). */
    bool (*list_url)(struct buf *out, str endpoint, str repo, str revision);
    bool (*file_url)(struct buf *out, str endpoint, str repo, str revision, str path);
    bool (*search_url)(struct buf *out, str endpoint, str words);
    /* Answers: views into body and a. ERR_FORMAT, ERR_LIMIT, ERR_MEMORY. */
    bool (*read_list)(struct hub_repo *out, str body, struct arena *a, struct err *e);
    /* Names of repositories, best first; at most HUB_FOUND_MAX. */
    bool (*read_search)(const str **out, uint32_t *count, str body, struct arena *a,
                        struct err *e);
};

/* Entries of hub_table.c; ends with NULL. The first speaks for a plain owner/repo. */
extern const struct hub *const hub_table[];

#endif
