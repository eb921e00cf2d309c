#include "store/pull_disk.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/thread.h"

#define PULL_DISK_BLOCK ((size_t)1 << 20) /* read at once; a piece's hash chains over these */

struct pull_disk {
    struct pull_state s; /* marks are our own */
    int part_fd, state_fd;
    struct thread_queue *jobs, *notes;
    pthread_t thread;
    bool is_running;

    /* The thread's. */
    struct digest_sha256 sha;
    uint32_t next; /* piece that the sha256 wants */
    bool has_failed, is_told;
    char *block;
    struct buf lines;
    _Atomic uint64_t hashed;
};

static void pull_disk_tell(struct pull_disk *d, const struct pull_disk_note *n)
{
    /* Notes are at most one a piece and job; the queue holds more than can be under way. */
    must(thread_queue_push(d->notes, n));
}

static bool pull_disk_fail(struct pull_disk *d, int error_number, const char *what)
{
    struct pull_disk_note n = {.kind = PULL_DISK_FAILED};
    if (d->has_failed)
        return false;
    d->has_failed = true;
    err_set_errno(&n.err, error_number, "%s", what);
    pull_disk_tell(d, &n);
    return false;
}

static bool pull_disk_sync_lines(struct pull_disk *d)
{
    str lines = buf_view(&d->lines);
    struct err e;
    bool ok = file_write_all(d->state_fd, lines, &e) && fdatasync(d->state_fd) == 0;
    int number = errno;
    buf_clear(&d->lines);
    return ok || pull_disk_fail(d, number, "writing the journal");
}

/* --- reading back --- */

/* The hash of a piece; its bytes also go into the sha256 if with_sha. */
static bool pull_disk_read(struct pull_disk *d, uint32_t piece, bool with_sha, uint64_t *hash)
{
    uint64_t at = (uint64_t)piece * d->s.piece_size;
    uint64_t left = pull_state_piece_bytes(&d->s, piece);
    *hash = 0;
    while (left) {
        size_t want = left < PULL_DISK_BLOCK ? (size_t)left : PULL_DISK_BLOCK;
        ssize_t n = pread(d->part_fd, d->block, want, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return pull_disk_fail(d, n < 0 ? errno : EIO, "reading the unfinished file");
        /* Short reads would chain differently. */
        if ((size_t)n < want) {
            size_t have = (size_t)n;
            while (have < want && (n = pread(d->part_fd, d->block + have, want - have,
                                             (off_t)(at + have))) > 0)
                have += (size_t)n;
            if (have < want)
                return pull_disk_fail(d, EIO, "reading the unfinished file");
        }
        *hash = digest_xxh3(str_view(d->block, want), *hash);
        if (with_sha) {
            digest_sha256_add(&d->sha, str_view(d->block, want));
            atomic_fetch_add_explicit(&d->hashed, want, memory_order_relaxed);
        }
        at += want;
        left -= want;
    }
    return true;
}

static void pull_disk_restart_sha(struct pull_disk *d)
{
    digest_sha256_drop(&d->sha);
    digest_sha256_init(&d->sha);
    d->next = 0;
    d->is_told = false;
    atomic_store_explicit(&d->hashed, 0, memory_order_relaxed);
}

static bool pull_disk_drop(struct pull_disk *d, uint32_t piece)
{
    struct pull_disk_note n = {.kind = PULL_DISK_BAD, .piece = piece};
    d->s.marks[piece] = (struct pull_mark){0};
    pull_state_add_drop(&d->lines, piece);
    if (!pull_disk_sync_lines(d))
        return false;
    pull_disk_tell(d, &n);
    return true;
}

/* --- jobs --- */

static void pull_disk_do_piece(struct pull_disk *d, uint32_t piece)
{
    struct pull_disk_note n = {.kind = PULL_DISK_MARKED, .piece = piece};
    uint64_t hash;
    bool in_order = d->s.has_sha256 && piece == d->next;
    if (!pull_disk_read(d, piece, in_order, &hash))
        return;
    if (fdatasync(d->part_fd) != 0) {
        pull_disk_fail(d, errno, "syncing the unfinished file");
        return;
    }
    d->next += in_order;
    d->s.marks[piece] = (struct pull_mark){.is_done = true, .hash = hash};
    pull_state_add_done(&d->lines, piece, hash);
    if (pull_disk_sync_lines(d))
        pull_disk_tell(d, &n);
}

static void pull_disk_do_parts(struct pull_disk *d, const struct pull_disk_job *j)
{
    struct pull_disk_note n = {.kind = PULL_DISK_SAVED};
    if (j->parts_count && fdatasync(d->part_fd) != 0) {
        pull_disk_fail(d, errno, "syncing the unfinished file");
        return;
    }
    for (uint32_t i = 0; i < j->parts_count; i++)
        if (!d->s.marks[j->parts[i].piece].is_done)
            pull_state_add_part(&d->lines, j->parts[i].piece, j->parts[i].bytes);
    if (pull_disk_sync_lines(d))
        pull_disk_tell(d, &n);
}

static void pull_disk_do_reread(struct pull_disk *d)
{
    struct pull_disk_note n = {.kind = PULL_DISK_REREAD_END};
    uint64_t hash;
    for (uint32_t i = 0; i < d->s.pieces; i++) {
        if (!d->s.marks[i].is_done)
            continue;
        if (!pull_disk_read(d, i, false, &hash))
            return;
        if (hash != d->s.marks[i].hash) {
            n.piece++;
            if (!pull_disk_drop(d, i))
                return;
        }
    }
    if (n.piece)
        pull_disk_restart_sha(d);
    pull_disk_tell(d, &n);
}

static void pull_disk_do(struct pull_disk *d, const struct pull_disk_job *j)
{
    switch (j->kind) {
    case PULL_DISK_PIECE:
        pull_disk_do_piece(d, j->piece);
        break;
    case PULL_DISK_PARTS_NOW:
        pull_disk_do_parts(d, j);
        break;
    case PULL_DISK_REREAD:
        pull_disk_do_reread(d);
        break;
    case PULL_DISK_REHASH:
        pull_disk_restart_sha(d);
        break;
    case PULL_DISK_END:
        break;
    }
}

/* Between jobs: one piece further, if all before it is there. False: nothing to do. */
static bool pull_disk_hash_next(struct pull_disk *d)
{
    uint64_t hash;
    if (d->has_failed || d->is_told)
        return false;
    if (d->s.has_sha256 && d->next < d->s.pieces) {
        uint32_t i = d->next;
        if (!d->s.marks[i].is_done || !pull_disk_read(d, i, true, &hash))
            return false;
        d->next++;
        if (hash != d->s.marks[i].hash) {
            pull_disk_restart_sha(d); /* wrong bytes went into it */
            return pull_disk_drop(d, i);
        }
        return true;
    }
    for (uint32_t i = 0; i < d->s.pieces; i++)
        if (!d->s.marks[i].is_done)
            return false;
    struct pull_disk_note n = {.kind = PULL_DISK_HASHED, .is_good = true};
    uint8_t sum[32];
    if (d->s.has_sha256 && !digest_sha256_end(&d->sha, sum, &n.err))
        return pull_disk_fail(d, EIO, "computing the sha256");
    n.is_good = !d->s.has_sha256 || !memcmp(sum, d->s.sha256, 32);
    d->is_told = true;
    pull_disk_tell(d, &n);
    return false;
}

static void *pull_disk_run(void *ctx)
{
    struct pull_disk *d = ctx;
    struct pull_disk_job j = {0};
    while (j.kind != PULL_DISK_END) {
        if (thread_queue_pop(d->jobs, &j)) {
            if (!d->has_failed)
                pull_disk_do(d, &j);
        } else if (!pull_disk_hash_next(d)) {
            thread_queue_wait(d->jobs, -1);
        }
    }
    return NULL;
}

/* --- the caller's side --- */

bool pull_disk_open(struct pull_disk **out, const struct pull_state *s, int part_fd, int state_fd,
                    struct err *e)
{
    struct pull_disk *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "pull: no memory");
    d->s = *s;
    d->part_fd = part_fd;
    d->state_fd = state_fd;
    d->s.marks = calloc((size_t)s->pieces + 1, sizeof *d->s.marks);
    d->block = malloc(PULL_DISK_BLOCK);
    buf_init(&d->lines, 1u << 20);
    digest_sha256_init(&d->sha);
    /* Room for a BAD and a MARKED of every piece beside the rest: telling never waits. */
    uint32_t notes = 2 * s->pieces + PULL_DISK_QUEUE;
    bool ok = d->s.marks && d->block;
    if (!ok)
        err_set(e, ERR_MEMORY, "pull: no memory");
    ok = ok && thread_queue_open(&d->jobs, sizeof(struct pull_disk_job), PULL_DISK_QUEUE, e) &&
         thread_queue_open(&d->notes, sizeof(struct pull_disk_note), notes, e);
    if (ok)
        memcpy(d->s.marks, s->marks, s->pieces * sizeof *s->marks);
    d->is_running = ok && thread_start(&d->thread, "pull", pull_disk_run, d, e);
    if (!d->is_running) {
        pull_disk_close(d);
        return false;
    }
    *out = d;
    return true;
}

void pull_disk_close(struct pull_disk *d)
{
    struct pull_disk_job end = {.kind = PULL_DISK_END};
    struct pull_disk_note note;
    if (!d)
        return;
    if (d->is_running) {
        while (!thread_queue_push(d->jobs, &end)) /* the thread is emptying it */
            if (pull_disk_pop(d, &note))
                continue;
        thread_join(d->thread);
    }
    thread_queue_close(d->jobs);
    thread_queue_close(d->notes);
    digest_sha256_drop(&d->sha);
    buf_deinit(&d->lines);
    free(d->block);
    free(d->s.marks);
    free(d);
}

bool pull_disk_push(struct pull_disk *d, const struct pull_disk_job *j)
{
    return thread_queue_push(d->jobs, j);
}

bool pull_disk_pop(struct pull_disk *d, struct pull_disk_note *out)
{
    return thread_queue_pop(d->notes, out);
}

int pull_disk_fd(const struct pull_disk *d) { return thread_queue_fd(d->notes); }

uint64_t pull_disk_hashed(const struct pull_disk *d)
{
    return atomic_load_explicit(&((struct pull_disk *)(uintptr_t)d)->hashed,
                                memory_order_relaxed);
}
