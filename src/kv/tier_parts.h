/* tier_parts - the directory of the SSD tier: a part per owner, and who may use or delete it.
 *
 * Owns:      names and locks: DIR/lock, DIR/ID/lock, DIR/ID/pages-NUMBER.kv; deleting parts.
 * Not:       what the files hold (tier_format), moving pages (tier_disk).
 * Invariant: a process that uses a part holds DIR/lock shared and the part's lock alone, both by
 *            flock, so they end with it, however it ends. Files are deleted only by the part's
 *            holder, or by who holds DIR/lock alone, or, when nobody holds the part, under its
 *            lock. Names that are not ours are left alone.
 *
 * Thread:    any; calls block. One object has one user.
 * Limits:    TIER_PARTS_MAX parts; files of a part: TIER_DISK_FILES_MAX.
 */
#ifndef SHOAL_KV_TIER_PARTS_H
#define SHOAL_KV_TIER_PARTS_H

#include "base/str.h"
#include "kv/tier_format.h"

#define TIER_PARTS_MAX 4096u
#define TIER_PARTS_NAME_SIZE 33u /* 32 digits of the owner's id */
#define TIER_PARTS_FILE_SIZE 24u

struct tier_part {
    char name[TIER_PARTS_NAME_SIZE];
    uint64_t bytes;  /* that its files take on the disk */
    uint32_t files;
    int64_t used_s;  /* unix time when it was used last */
    bool is_locked;  /* a process uses it */
    bool has_header; /* header: of one of its files */
    struct tier_header header;
};

void tier_parts_name(char out[TIER_PARTS_NAME_SIZE], const struct tier_owner *owner);
void tier_parts_file_name(char out[TIER_PARTS_FILE_SIZE], uint32_t number);
/* The number in a file's name, or false. */
bool tier_parts_file_number(const char *name, uint32_t *number);

struct tier_parts_lock {
    int all, part, dir; /* descriptors; dir: of the part */
};
/* Makes the part (mode 0700) and takes both locks. ERR_LIMIT: another process has one of them. */
BASE_USE_RESULT bool tier_parts_take(struct tier_parts_lock *l, const char *dir,
                                     const struct tier_owner *owner, struct err *e);
void tier_parts_give(struct tier_parts_lock *l); /* also after a failed take */

/* Calls on_part for each part; a directory that is not there holds none. ERR_LIMIT: there are more
 * than TIER_PARTS_MAX, and on_part was called for so many. */
BASE_USE_RESULT bool tier_parts_list(const char *dir,
                                     void (*on_part)(void *ctx, const struct tier_part *p),
                                     void *ctx, struct err *e);
/* Deletes parts that nobody uses, the one used longest ago first, never `keep`, until all others
 * together take at most bytes_max. Returns what the others take then. */
uint64_t tier_parts_trim(const char *dir, const struct tier_owner *keep, uint64_t bytes_max);
/* Deletes the part of this name, or all of them ("*"), and says how many bytes they had. ERR_LIMIT:
 * a process uses the directory, or there are more than a list tells: those were deleted. */
BASE_USE_RESULT bool tier_parts_clean(const char *dir, const char *name, uint64_t *bytes,
                                      struct err *e);

#endif
