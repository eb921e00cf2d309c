/* pull_disk - the thread behind a download: sync, journal, hashes, so that the network never waits.
 *
 * Owns:      a thread, two queues, the running sha256; appending to the journal.
 * Not:       writing the bytes themselves and choosing pieces (pull_file), the journal's text
 *            (pull_state).
 * Invariant: a piece is noted as MARKED only after its bytes and then its journal line were synced.
 *            The sha256 runs in the file's order over pieces as soon as all before them are there;
 *            a piece that was marked in an earlier run is compared with its journal hash on the
 *            way.
 *
 *     pull_file --- PIECE, PARTS, REREAD, REHASH ---> thread
 *               <-- MARKED, BAD, HASHED, REREAD, FAILED ---
 *
 * Thread:    open, push, pop, close: one; the work is its own thread's.
 * Limits:    PULL_DISK_QUEUE jobs; a full queue refuses and the caller asks again.
 */
#ifndef SHOAL_STORE_PULL_DISK_H
#define SHOAL_STORE_PULL_DISK_H

#include "store/pull_state.h"

#define PULL_DISK_QUEUE 256u
#define PULL_DISK_PARTS 32u

enum pull_disk_job_kind {
    PULL_DISK_PIECE,  /* all bytes of a piece are written */
    PULL_DISK_PARTS_NOW, /* write down what there is of these pieces */
    PULL_DISK_REREAD, /* compare every piece with its journal hash */
    PULL_DISK_REHASH, /* sha256 once more from the start */
    PULL_DISK_END,
};
struct pull_disk_job {
    enum pull_disk_job_kind kind;
    uint32_t piece;
    uint32_t parts_count;
    struct {
        uint32_t piece;
        uint64_t bytes;
    } parts[PULL_DISK_PARTS];
};

enum pull_disk_note_kind {
    PULL_DISK_MARKED,
    PULL_DISK_BAD,       /* what is on disk is not what the journal says: fetch it again */
    PULL_DISK_HASHED,    /* all of it: is_good tells whether the sha256 is the expected one */
    PULL_DISK_REREAD_END, /* count of BAD pieces in piece */
    PULL_DISK_SAVED,     /* PARTS_NOW is done */
    PULL_DISK_FAILED,    /* the disk: err says what; nothing else follows */
};
struct pull_disk_note {
    enum pull_disk_note_kind kind;
    uint32_t piece;
    bool is_good;
    struct err err;
};

struct pull_disk;
/* The descriptors stay the caller's and open until close; the state's marks are copied. */
bool pull_disk_open(struct pull_disk **out, const struct pull_state *s, int part_fd, int state_fd,
                    struct err *e) BASE_USE_RESULT;
/* Ends after the jobs that were pushed. */
void pull_disk_close(struct pull_disk *d); /* NULL is allowed */
bool pull_disk_push(struct pull_disk *d, const struct pull_disk_job *j) BASE_USE_RESULT;
bool pull_disk_pop(struct pull_disk *d, struct pull_disk_note *out) BASE_USE_RESULT;
int pull_disk_fd(const struct pull_disk *d); /* readable while notes wait */
/* Bytes that the sha256 has seen; any thread. */
uint64_t pull_disk_hashed(const struct pull_disk *d);

#endif
