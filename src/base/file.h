/* file - files and directories: read exactly, replace whole, walk with limits.
 *
 * Owns:      descriptors it opened.
 * Not:       what the bytes mean (fmt, store); uploads to a device (tensor/weights).
 * Invariant: only regular files are opened: a directory, FIFO, socket or device is refused before
 *            any read could block. A written file is seen either as before or complete.
 * Thread:    any; one object has one user at a time (file_pread alone may run in several).
 * Limits:    file_read: the caller's size_max. file_walk: depth and entries, given by the caller.
 */
#ifndef SHOAL_BASE_FILE_H
#define SHOAL_BASE_FILE_H

#include <sys/types.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

struct file {
    int fd;          /* -1: not open */
    uint64_t size;   /* bytes when it was opened */
    int64_t mtime_ns;
    uint64_t device, inode;
    char name[128];  /* end of the path, for sentences */
};

struct file_info {
    uint64_t size;
    int64_t mtime_ns;
    uint64_t device, inode;
    uint32_t mode; /* permission bits */
    bool is_file, is_dir, is_link; /* is_link: the path itself; the rest describes its target */
};

/* Read only. ERR_NOT_FOUND, ERR_IO (no permission ...), ERR_FORMAT (not a regular file). */
bool file_open(struct file *f, const char *path, struct err *e) BASE_USE_RESULT;
void file_close(struct file *f); /* also after a zeroed struct or a failed open */

/* All size bytes at offset, or false: ERR_FORMAT "NAME: wants bytes 100..200, has 150". */
bool file_pread(const struct file *f, void *dst, size_t size, uint64_t offset,
                struct err *e) BASE_USE_RESULT;

/* A whole small file, with a NUL after it; ERR_LIMIT past size_max, ERR_MEMORY if a is full. */
bool file_read(str *out, const char *path, size_t size_max, struct arena *a,
               struct err *e) BASE_USE_RESULT;
/* Replaces or creates path: temporary file beside it, fsync, rename, fsync of the directory. */
bool file_write(const char *path, str bytes, uint32_t mode, struct err *e) BASE_USE_RESULT;
/* All bytes to a descriptor that may write short. */
bool file_write_all(int fd, str bytes, struct err *e) BASE_USE_RESULT;

bool file_stat(struct file_info *out, const char *path, struct err *e) BASE_USE_RESULT;
/* Creates path and its missing parents with mode; fine when it is there already. */
bool file_make_dirs(const char *path, uint32_t mode, struct err *e) BASE_USE_RESULT;

struct file_entry {
    const char *path; /* joined with the root as given */
    str name;         /* last component */
    uint32_t depth;   /* 0: directly in the root */
    struct file_info info;
};
struct file_walk {
    uint32_t depth_max;   /* directories below the root that are entered; 0: the root alone */
    uint32_t entries_max; /* ERR_LIMIT past it */
    bool (*on_entry)(void *ctx, const struct file_entry *entry); /* a directory: enter it? */
    void *ctx;
};
/* Calls on_entry for each entry, by name in byte order, a directory before its content. Links are
 * followed, a directory is not entered twice on one path; dangling links and entries that vanish
 * are skipped; directories without permission too. False: the root cannot be read, or a limit. */
bool file_walk(const char *root, const struct file_walk *w, struct err *e) BASE_USE_RESULT;

/* "a/b" from parts, in the arena; an absolute name wins. "~/x" becomes home + "/x", and
 * empty if home is: never a directory called "~". */
str file_join(struct arena *a, str dir, str name);
str file_expand_home(struct arena *a, str path, str home);
str file_base_name(str path); /* after the last '/' */
str file_dir_name(str path);  /* before it; "." without one, "/" for the root */

#endif
