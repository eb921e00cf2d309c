/* kv_tier - pages that have no place in the pool: in RAM buffers, then in files that survive.
 *
 * Owns:      the buffers, the slots of files, orders and what comes back from them.
 * Not:       which page lies where and who has to go (tier_index), pages of the pool (kv_pool), the
 *            tree of prefixes (kv_trie), what is worth keeping (engine/sched_tier), file I/O
 *            (tier_disk), bytes of a file (tier_format).
 * Invariant: a page comes back exactly as it was put or not at all: one that fails its checksum is
 *            forgotten and counted. Nothing here waits: a put that finds no buffer is refused, a
 *            get answers later through kv_tier_next. A buffer that is lent to the disk or to a
 *            reader is not used for anything else. An entry whose parent is gone is no use; leaves
 *            go first. Errors of the disk switch it off, never a request.
 *
 *     put:  buffer (filled by the caller) --> RAM --write--> slot of a file
 *     get:  RAM --> at once; file --read, checked--> buffer --> kv_tier_next
 *
 *     With a pool in RAM (CPU) buffers are only the way to the disk; with a pool on a device they
 *     are the host tier: pages stay in them after they are written, until others need the room.
 *
 * Thread:    engine thread; init and flush belong to a load and an end and may block.
 * Limits:    ram_bytes of buffers, disk_bytes of files, KV_TIER_ENTRIES_MAX entries: fixed at init.
 */
#ifndef SHOAL_KV_KV_TIER_H
#define SHOAL_KV_KV_TIER_H

#include "base/chrono.h"
#include "base/mem.h"
#include "kv/tier_disk.h"
#include "tensor/kv_view.h"

#define KV_TIER_NONE UINT32_MAX
#define KV_TIER_ENTRIES_MAX (1u << 20)

struct kv_tier;

/* The key of 32 tokens behind parent (NULL: at the root). scope "": the public one. Keys of equal
 * prefixes in different scopes differ from their fork on. */
void kv_tier_key(struct kv_key *out, const struct kv_key *parent, str scope,
                 const int32_t tokens[KV_PAGE_TOKENS]);

struct kv_tier_options {
    const struct kv_layout *layout; /* outlives the tier */
    uint64_t ram_bytes;      /* of buffers; at least a few pages of each group are made */
    bool keeps_ram;          /* the buffers are a tier of their own */
    struct tier_disk *disk;  /* outlives the tier; NULL: no files */
    uint64_t disk_bytes, floor_bytes; /* most that our files take; least that stays free */
    struct tier_owner owner;
    const char *build, *model; /* into the headers, for people */
    struct mem *mem;         /* buffers come from here */
    struct chrono clock;
};

/* Reads the index of the files that are there. ERR_MEMORY. A file that cannot be read is not used
 * and counted. */
BASE_USE_RESULT bool kv_tier_init(struct kv_tier **out, const struct kv_tier_options *o,
                                  struct err *e);
/* Every order must have come back (kv_tier_flush, or the disk closed). NULL is allowed. */
void kv_tier_free(struct kv_tier *t);

struct kv_tier_page {
    struct kv_key key, parent; /* parent all zero at depth 1 */
    uint32_t group, depth;     /* depth: pages from the root, with this one */
};

/* Whether the page is, or is being, kept. Counts as no use. */
bool kv_tier_has(const struct kv_tier *t, const struct kv_key *key, uint32_t group);

/* Where it would be read from; a page on its way to a file is on the disk already. */
enum kv_tier_where { KV_TIER_NOWHERE, KV_TIER_IN_RAM, KV_TIER_ON_DISK };
enum kv_tier_where kv_tier_where(const struct kv_tier *t, const struct kv_key *key,
                                 uint32_t group);
/* The key of the page before it. False: this one is not there. */
bool kv_tier_above(const struct kv_tier *t, const struct kv_key *key, uint32_t group,
                   struct kv_key *parent);

/* A buffer of page_size[group] bytes for a page that is not there: the caller fills it and calls
 * kv_tier_put_end before anything else of the tier. NULL: it is there already, no buffer is free
 * (the disk is slower than we are), or the tier is off. */
void *kv_tier_put(struct kv_tier *t, const struct kv_tier_page *p);
void kv_tier_put_end(struct kv_tier *t, bool is_filled);

/* Orders the page; the answer comes through kv_tier_next with this number, also when it is in RAM.
 * KV_TIER_NONE: not there, or no buffer is free now. */
uint32_t kv_tier_get(struct kv_tier *t, const struct kv_key *key, uint32_t group);
struct kv_tier_got {
    uint32_t number;   /* of kv_tier_get */
    const void *bytes; /* until kv_tier_got_end; NULL: lost */
};
/* Takes what the disk has done since, starts what waits. False: nothing has come back. */
bool kv_tier_next(struct kv_tier *t, struct kv_tier_got *out);
/* Gives the buffer of an answer back. */
void kv_tier_got_end(struct kv_tier *t, uint32_t number);

/* The page is given up: in RAM, in its file, or both, whose record is voided soon. One that is on
 * its way is found no more, and goes when it has come. Bytes given up. */
uint64_t kv_tier_forget(struct kv_tier *t, const struct kv_key *key, uint32_t group,
                        bool from_ram, bool from_disk);
/* The next kv_tier_forget_all leaves it. */
void kv_tier_spare(struct kv_tier *t, const struct kv_key *key, uint32_t group);
/* All but those that are spared; adds how many to *pages. */
uint64_t kv_tier_forget_all(struct kv_tier *t, bool from_ram, bool from_disk, uint64_t *pages);

/* The path was used: deepest first, so that a child goes before its parent. */
void kv_tier_touch(struct kv_tier *t, const struct kv_key *key, uint32_t group);

/* Waits until what was put is written, at most so long, and stores when pages were used. */
void kv_tier_flush(struct kv_tier *t, int64_t timeout_ms);

struct kv_tier_stats {
    uint64_t ram_bytes, ram_limit;       /* pages held in buffers */
    uint64_t disk_bytes, disk_limit;     /* in slots that are taken */
    uint32_t files, entries;
    uint64_t refused;                    /* no buffer was free */
    uint64_t reads, writes, bytes_read, bytes_written;
    uint64_t bad_sums, bad_files, errors, evictions;
    double read_bytes_per_s;             /* recent, 0: not measured */
    bool is_off;                         /* the disk, by errors */
    char why[ERR_TEXT_MAX];              /* it is off */
};
void kv_tier_stats(const struct kv_tier *t, struct kv_tier_stats *out);
/* Buffers that a put or a get could take now. */
uint32_t kv_tier_room(const struct kv_tier *t, uint32_t group);

#endif
