/* pull_state - the journal of a download that is not finished: `.NAME.state` beside `.NAME.part`.
 *
 * Owns:      its text, written and read (docs/formats/pull_state.md).
 * Not:       when something is written and synced (pull_disk), who holds its lock (pull_file).
 * Invariant: lines are only appended. A piece's line is written after its bytes are on disk, so
 *            what a line says holds after a crash; the first line that does not parse ends the
 *            journal, because only a crash in mid-line makes one.
 *
 *     shoal pull 1                 |
 *     repo, path, revision ...     | the head, written whole before anything is fetched
 *     pieces                       |
 *     done 3 HASH                  piece 3 is on disk
 *     part 4 BYTES                 so many first bytes of piece 4 are
 *     drop 3                       it was found damaged
 *
 * Thread:    any; pure functions.
 * Limits:    PULL_STATE_SIZE_MAX bytes, PULL_STATE_PIECES_MAX pieces.
 */
#ifndef SHOAL_STORE_PULL_STATE_H
#define SHOAL_STORE_PULL_STATE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#define PULL_STATE_SIZE_MAX ((size_t)32 << 20)
#define PULL_STATE_PIECES_MAX 65536u
#define PULL_STATE_LINE_MAX 64u /* of a line after the head */

struct pull_mark {
    bool is_done;
    uint64_t hash; /* of the whole piece: pull_disk */
    uint64_t got;  /* first bytes that are there; not done */
};

struct pull_state {
    str repo, path, revision;
    str etag, modified; /* of the answer that came first; empty: not told */
    uint64_t size;
    bool has_sha256;
    uint8_t sha256[32];
    uint64_t piece_size;
    uint32_t pieces;
    struct pull_mark *marks; /* [pieces] */
};

/* How many pieces; piece_size grows until PULL_STATE_PIECES_MAX hold it all. */
uint32_t pull_state_pieces(uint64_t size, uint64_t *piece_size);
/* Bytes of piece i: the last one may be shorter. */
uint64_t pull_state_piece_bytes(const struct pull_state *s, uint32_t i);
uint64_t pull_state_received(const struct pull_state *s); /* bytes, over all pieces */

/* Everything up to the line `pieces`; marks are not written. */
void pull_state_add_head(struct buf *out, const struct pull_state *s);
void pull_state_add_done(struct buf *out, uint32_t piece, uint64_t hash);
void pull_state_add_part(struct buf *out, uint32_t piece, uint64_t bytes);
void pull_state_add_drop(struct buf *out, uint32_t piece);

/* Texts are views into text; marks lie in a. *end: bytes of text that were good. ERR_FORMAT: the
 * head is no head of ours; ERR_LIMIT, ERR_MEMORY. */
bool pull_state_read(struct pull_state *out, str text, size_t *end, struct arena *a,
                     struct err *e) BASE_USE_RESULT;

/* The name that ".NAME.state" belongs to; false for other names. */
bool pull_state_name(str file_name, str *name);

#endif
