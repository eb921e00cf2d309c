/* pull - a model from a hub into our store, whatever happens on the way.
 *
 * Owns:      from a reference to finished files: listing, choice, room, order, the record of it.
 * Not:       one file's transfer (pull_file), a hub's answers (hub), printing (cli, serve).
 * Invariant: nothing outside the store is written; a name that a hub tells is one plain name there.
 *            A file of ours that is another one is never replaced. What is there already, and is
 *            what the hub publishes, is not fetched again.
 * Thread:    blocks its caller until the end; one at a time per options.
 * Limits:    HUB_FILES_MAX files; 1 GiB of free space is left over.
 */
#ifndef SHOAL_STORE_PULL_H
#define SHOAL_STORE_PULL_H

#include "store/hub_net.h"

#define PULL_CONNECTIONS_MAX 32
#define PULL_RESERVE ((uint64_t)1 << 30)

enum pull_phase { PULL_LIST, PULL_CHECK, PULL_WAIT, PULL_FETCH, PULL_VERIFY };

struct pull_progress {
    enum pull_phase phase;
    str file; /* its name here */
    const uint8_t *sha256; /* of that file, as published; NULL: not told */
    uint32_t file_number, files_count;
    uint64_t file_done, file_size;
    uint64_t done, size; /* of all files */
};

struct pull_options {
    str reference;
    str revision, file; /* of flags; empty: as the reference says */
    str store;
    bool wants_projector, is_dry;
    uint32_t connections;
    uint64_t piece_size;
    struct hub_net_options net; /* calls_max is set here */
    bool (*supports)(void *ctx, str model_type); /* safetensors; NULL: none */
    bool (*is_allowed)(void *ctx, str repo);     /* NULL: every repository */
    void (*on_progress)(void *ctx, const struct pull_progress *p);
    void *ctx;
};

struct pull_item {
    str path; /* in the store */
    uint64_t size;
    bool is_there; /* before we began */
    bool has_sha256;
    uint8_t sha256[32];
};
struct pull_result {
    const struct pull_item *items;
    uint32_t count;
    uint64_t size, missing; /* bytes: of all, still to be fetched when it began */
    bool is_offline;        /* the hub could not be asked, but all is here */
};

/* Texts of the result lie in a. ERR_USAGE (the reference), ERR_NOT_FOUND, ERR_AUTH, ERR_REQUEST
 * (ambiguous), ERR_LIMIT (no room), ERR_CANCELLED; what came is kept in each case. */
bool pull_run(struct pull_result *out, const struct pull_options *o, struct arena *a,
              struct err *e) BASE_USE_RESULT;

#endif
