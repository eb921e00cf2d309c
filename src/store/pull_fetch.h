/* pull_fetch - the bytes of one file: pieces over several connections, until its sha256 is right.
 *
 * Owns:      which piece is fetched when and from where, retries, what an answer must look like.
 * Not:       the files and their lock (pull_file), syncing and hashing (pull_disk), redirects and
 *            tokens (hub_net).
 * Invariant: only bytes of an answer that is exactly what was asked for are written, at their own
 *            place. It ends with DONE only after the whole file has the expected sha256, or, where
 *            the hub publishes none, the expected size from answers with one validator, or, where
 *            the answers have none, from the answers of one run.
 * Thread:    hub_net's.
 * Limits:    PULL_FETCH_SLOTS connections; PULL_FETCH_ROUNDS rounds of retries a piece.
 */
#ifndef SHOAL_STORE_PULL_FETCH_H
#define SHOAL_STORE_PULL_FETCH_H

#include "store/hub_net.h"
#include "store/pull_state.h"

#define PULL_FETCH_SLOTS 32u
#define PULL_FETCH_ROUNDS 10

enum pull_fetch_end {
    PULL_FETCH_DONE,
    PULL_FETCH_RESTART, /* what is there belongs to another version: begin with nothing */
    PULL_FETCH_FAILED,  /* e says why; what came is kept and written down */
};
struct pull_fetch_options {
    struct hub_net *net;
    const struct hub_net_query *query; /* of FILE, whole */
    struct pull_state *state;          /* marks: what is there already; etag may be filled in */
    struct arena *arena;
    int part_fd, state_fd;
    uint32_t connections;
    int64_t retry_ms, idle_ms;
    bool is_gguf; /* its first bytes must say so */
    void (*on_progress)(void *ctx, uint64_t received, uint64_t verified);
    void *ctx;
};
enum pull_fetch_end pull_fetch(const struct pull_fetch_options *o, struct err *e);

#endif
