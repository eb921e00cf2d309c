/* tier_disk - the thread that moves pages between buffers and the files of one owner.
 *
 * Owns:      file descriptors, one thread and its two queues.
 * Not:       which page lies where (kv_tier), what the bytes of a file mean (tier_format), the
 *            directories and their locks (tier_parts).
 * Invariant: orders are carried out in the order given; their bytes stay lent until they come back.
 *            A page is written before its record, so a record without its page can only be a torn
 *            one, and the page's sum tells. A page that is read is checked before it comes back.
 *
 *     engine thread                       tier thread
 *     disk->start(order)     --queue-->   tier_disk_carry_out: pread, pwrite, xxh3
 *     disk->next(order)      <--queue--   + wake(ctx)
 *
 * Thread:    start and next: engine thread. tier_disk_carry_out: tier thread. Open, scan
 *            and close block; they belong to a load and an end.
 * Limits:    TIER_DISK_ORDERS_MAX orders under way, TIER_DISK_FILES_MAX files.
 */
#ifndef SHOAL_KV_TIER_DISK_H
#define SHOAL_KV_TIER_DISK_H

#include "base/str.h"
#include "kv/tier_format.h"

#define TIER_DISK_ORDERS_MAX 1024u
#define TIER_DISK_FILES_MAX 8192u

/* File operations, which a test may own. Files are numbers. 0 or an errno. */
struct tier_io {
    void *self;
    int (*make)(void *self, uint32_t file);   /* new and empty; EEXIST when it is there */
    int (*remove)(void *self, uint32_t file);
    int (*read)(void *self, uint32_t file, void *to, size_t size, uint64_t offset);
        /* all of it; ENODATA past the file's end */
    int (*write)(void *self, uint32_t file, const void *from, size_t size, uint64_t offset);
    int (*size)(void *self, uint32_t file, uint64_t *size);
    uint64_t (*free_bytes)(void *self);       /* of the disk */
};

enum tier_order_kind {
    TIER_ORDER_MAKE,  /* the file, with its header alone; ENOSPC: floor_bytes would not stay free */
    TIER_ORDER_WRITE, /* page, then record */
    TIER_ORDER_READ,  /* page, checked against record.sum */
    TIER_ORDER_TOUCH, /* the record alone: it was used */
    TIER_ORDER_VOID,  /* the record alone: there is no page any more */
};

struct tier_order {
    enum tier_order_kind kind;
    uint32_t file, slot, tag; /* tag: the caller's */
    struct tier_header header; /* of the file */
    struct tier_record record; /* WRITE: sum is filled in */
    void *bytes;               /* header.page_size, lent until the order comes back */
    uint64_t floor_bytes;
    int error;                 /* 0; an errno; EBADMSG: the checksum does not match */
    uint64_t ns;               /* how long it took */
};

/* Does it now. Pure but for io: the simulator calls it too. */
void tier_disk_carry_out(const struct tier_io *io, struct tier_order *o);

/* Where orders go and come back; the real one has a thread, the simulator delays them. */
struct tier_disk {
    void *self;
    bool (*start)(void *self, const struct tier_order *o); /* false: too many under way */
    bool (*next)(void *self, struct tier_order *out);      /* false: none has come back */
    void (*wait)(void *self, int64_t timeout_ms);          /* until one may have come back */
    struct tier_io io; /* for a load: before the first order */
    uint32_t files_count; /* found at open */
    uint32_t *files;      /* [files_count] */
};

struct tier_disk_options {
    const char *dir;          /* of the tier; made when missing, mode 0700 */
    struct tier_owner owner;
    void (*wake)(void *ctx);  /* from the tier thread: an order came back; NULL: none */
    void *ctx;
};

/* A directory of pages on this machine, and its thread. ERR_IO: it cannot be made, read or locked;
 * ERR_LIMIT: another process has this owner's part of it, or it holds too many files. */
BASE_USE_RESULT bool tier_disk_open(struct tier_disk *d, const struct tier_disk_options *o,
                                    struct err *e);
/* Waits for the orders under way. NULL self is allowed. */
void tier_disk_close(struct tier_disk *d);

#endif
