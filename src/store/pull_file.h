/* pull_file - one file of a hub into a directory: lock, resume, fetch, final name.
 *
 * Owns:      `.NAME.part` and `.NAME.state`, the lock on the latter, the rename to NAME.
 * Not:       which files and where (pull), the bytes (pull_fetch).
 * Invariant: NAME appears, by one rename, only when its bytes are synced and have the published
 *            sha256. What came before a failure stays and is used by the next call; when nothing
 *            came, no room is held either. One transfer a file: a second caller watches the first
 *            and takes over when that one dies.
 * Thread:    hub_net's.
 * Limits:    names of HUB_REF_NAME_MAX bytes.
 */
#ifndef SHOAL_STORE_PULL_FILE_H
#define SHOAL_STORE_PULL_FILE_H

#include "store/hub_net.h"

enum pull_file_phase { PULL_FILE_WAIT, PULL_FILE_FETCH, PULL_FILE_VERIFY };

struct pull_file_options {
    struct hub_net *net;
    const struct hub_net_query *query; /* of FILE */
    const struct hub_file *file;
    str dir, name; /* dir exists */
    uint32_t connections;
    uint64_t piece_size;
    int64_t retry_ms, idle_ms;
    bool is_gguf;
    /* received: bytes of this file that are there; verified: that its sha256 has seen. */
    void (*on_progress)(void *ctx, enum pull_file_phase phase, uint64_t received,
                        uint64_t verified);
    void *ctx;
};

/* Writes the journal's head if there is none, so that listings show what is to come. */
bool pull_file_announce(const struct pull_file_options *o, struct err *e) BASE_USE_RESULT;
enum pull_file_end {
    PULL_FILE_DONE,
    PULL_FILE_OTHER,  /* another pull put a file of that name there: which one is not known */
    PULL_FILE_FAILED, /* ERR_CANCELLED: stopped; ERR_IO: the disk; others as pull_fetch */
};
enum pull_file_end pull_file_run(const struct pull_file_options *o, struct err *e);

/* "DIR/.NAME.part" and the like; NULL past the arena. */
str pull_file_part_path(struct arena *a, str dir, str name);
str pull_file_state_path(struct arena *a, str dir, str name);

#endif
