#include "kv/tier_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define PATH_SIZE 4096
#define FILE_FORM "pages-%08x.kv"
#define LOCK_NAME "lock"

/* --- names --------------------------------------------------------------------------------- */

void tier_parts_name(char out[TIER_PARTS_NAME_SIZE], const struct tier_owner *owner)
{
    snprintf(out, TIER_PARTS_NAME_SIZE, "%016llx%016llx", (unsigned long long)owner->id.high,
             (unsigned long long)owner->id.low);
}

void tier_parts_file_name(char out[TIER_PARTS_FILE_SIZE], uint32_t number)
{
    snprintf(out, TIER_PARTS_FILE_SIZE, FILE_FORM, number);
}

bool tier_parts_file_number(const char *name, uint32_t *number)
{
    char same[TIER_PARTS_FILE_SIZE];
    uint8_t bytes[4];
    if (strlen(name) != 17 || !digest_unhex(bytes, 4, str_view(name + 6, 8)))
        return false;
    uint32_t n = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
                 bytes[3];
    tier_parts_file_name(same, n);
    *number = n;
    return !strcmp(same, name);
}

static bool tier_parts_is_part(const char *name)
{
    uint8_t id[16];
    return strlen(name) + 1 == TIER_PARTS_NAME_SIZE && digest_unhex(id, sizeof id, str_of(name));
}

/* --- locks --------------------------------------------------------------------------------- */

/* -1 with errno: EWOULDBLOCK when somebody else holds it. A link in its place is not followed. */
static int tier_parts_lock_at(int dir, const char *name, int how)
{
    int fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        return -1;
    if (flock(fd, how | LOCK_NB) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int tier_parts_open_dir(int at, const char *path)
{
    return openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

bool tier_parts_take(struct tier_parts_lock *l, const char *dir, const struct tier_owner *owner,
                     struct err *e)
{
    char name[TIER_PARTS_NAME_SIZE];
    *l = (struct tier_parts_lock){-1, -1, -1};
    tier_parts_name(name, owner);
    if (!file_make_dirs(dir, 0700, e))
        return false;
    int top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return err_set_errno(e, errno, "%s", dir);
    l->all = tier_parts_lock_at(top, LOCK_NAME, LOCK_SH);
    if (l->all < 0) {
        err_set_errno(e, errno, "%s/" LOCK_NAME, dir);
        if (errno == EWOULDBLOCK)
            err_set(e, ERR_LIMIT, "%s: `shoal cache clean` is at work there", dir);
        goto done;
    }
    if (mkdirat(top, name, 0700) != 0 && errno != EEXIST) {
        err_set_errno(e, errno, "%s/%s", dir, name);
        goto done;
    }
    l->dir = tier_parts_open_dir(top, name);
    if (l->dir < 0) {
        err_set_errno(e, errno, "%s/%s", dir, name);
        goto done;
    }
    l->part = tier_parts_lock_at(l->dir, LOCK_NAME, LOCK_EX);
    if (l->part < 0) {
        err_set_errno(e, errno, "%s/%s/" LOCK_NAME, dir, name);
        if (errno == EWOULDBLOCK)
            err_set(e, ERR_LIMIT, "%s: another server keeps this model's cache there", dir);
    } else if (futimens(l->part, NULL) != 0) { /* the time of its last use */
        err_set_errno(e, errno, "%s/%s/" LOCK_NAME, dir, name);
        close(l->part);
        l->part = -1;
    }
done:
    close(top);
    if (l->part >= 0)
        return true;
    tier_parts_give(l);
    return false;
}

void tier_parts_give(struct tier_parts_lock *l)
{
    int *const fds[] = {&l->dir, &l->part, &l->all};
    for (size_t i = 0; i < countof(fds); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

/* --- looking ------------------------------------------------------------------------------- */

/* dir is used up. */
static void tier_parts_each(int dir, bool (*on_name)(void *ctx, int dir, const char *name),
                            void *ctx)
{
    DIR *d = fdopendir(dir);
    const struct dirent *entry;
    if (!d) {
        close(dir);
        return;
    }
    while ((entry = readdir(d)))
        if (!on_name(ctx, dirfd(d), entry->d_name))
            break;
    closedir(d);
}

static bool tier_parts_look_file(void *ctx, int dir, const char *name)
{
    struct tier_part *p = ctx;
    struct stat st;
    uint32_t number;
    if (!tier_parts_file_number(name, &number) || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) ||
        !S_ISREG(st.st_mode))
        return true;
    p->files++;
    p->bytes += (uint64_t)st.st_blocks * 512;
    if (p->has_header)
        return true;
    char head[TIER_FORMAT_BLOCK];
    struct err ignored;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : pread(fd, head, sizeof head, 0);
    p->has_header = n > 0 && tier_format_read_header(&p->header, str_view(head, (size_t)n),
                                                     &ignored);
    if (fd >= 0)
        close(fd);
    return true;
}

static bool tier_parts_look(int top, const char *name, struct tier_part *p)
{
    struct stat st;
    *p = (struct tier_part){.files = 0};
    int dir = tier_parts_is_part(name) ? tier_parts_open_dir(top, name) : -1;
    if (dir < 0)
        return false;
    memcpy(p->name, name, TIER_PARTS_NAME_SIZE);
    if (fstatat(dir, LOCK_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0)
        p->used_s = st.st_mtim.tv_sec;
    int lock = openat(dir, LOCK_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (lock >= 0) {
        p->is_locked = flock(lock, LOCK_SH | LOCK_NB) != 0;
        close(lock);
    }
    tier_parts_each(dir, tier_parts_look_file, p);
    return true;
}

struct tier_parts_walk {
    void (*on_part)(void *ctx, const struct tier_part *p);
    void *ctx;
    uint32_t count;
    bool is_cut;
};

static bool tier_parts_walk_one(void *ctx, int top, const char *name)
{
    struct tier_parts_walk *w = ctx;
    struct tier_part p;
    if (!tier_parts_look(top, name, &p))
        return true;
    w->is_cut = w->count == TIER_PARTS_MAX;
    if (w->is_cut)
        return false;
    w->on_part(w->ctx, &p);
    w->count++;
    return true;
}

bool tier_parts_list(const char *dir, void (*on_part)(void *ctx, const struct tier_part *p),
                     void *ctx, struct err *e)
{
    struct tier_parts_walk w = {.on_part = on_part, .ctx = ctx};
    int top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return errno == ENOENT || err_set_errno(e, errno, "%s", dir);
    tier_parts_each(top, tier_parts_walk_one, &w);
    if (w.is_cut)
        return err_set(e, ERR_LIMIT, "%s: more than %u models were used with it; `shoal cache "
                       "clean` deletes so many at once", dir, TIER_PARTS_MAX);
    return true;
}

/* --- deleting ------------------------------------------------------------------------------ */

static bool tier_parts_unlink(void *ctx, int dir, const char *name)
{
    uint32_t number;
    (void)ctx;
    if (tier_parts_file_number(name, &number))
        unlinkat(dir, name, 0);
    return true;
}

/* Under its lock. What is not ours stays, and the directory with it. is_alone: nobody else may be
 * about to take the part (we hold DIR/lock alone); only then may its lock go, too. */
static bool tier_parts_delete(const char *dir, const char *name, bool is_alone)
{
    char path[PATH_SIZE];
    int len = snprintf(path, sizeof path, "%s/%s", dir, name);
    int part = len > 0 && (size_t)len < sizeof path ? tier_parts_open_dir(AT_FDCWD, path) : -1;
    int lock = part < 0 ? -1 : tier_parts_lock_at(part, LOCK_NAME, LOCK_EX);
    if (lock < 0) {
        if (part >= 0)
            close(part);
        return false;
    }
    int again = dup(part);
    if (again >= 0)
        tier_parts_each(again, tier_parts_unlink, NULL);
    if (is_alone) {
        unlinkat(part, LOCK_NAME, 0);
        rmdir(path);
    }
    close(lock);
    close(part);
    return true;
}

struct tier_parts_oldest {
    const char *keep;
    struct tier_part part;
    uint64_t bytes; /* of all but keep */
    bool is_found;
};

static void tier_parts_on_old(void *ctx, const struct tier_part *p)
{
    struct tier_parts_oldest *o = ctx;
    if (!strcmp(p->name, o->keep))
        return;
    o->bytes += p->bytes;
    if (!p->is_locked && p->files && (!o->is_found || p->used_s < o->part.used_s)) {
        o->part = *p;
        o->is_found = true;
    }
}

uint64_t tier_parts_trim(const char *dir, const struct tier_owner *keep, uint64_t bytes_max)
{
    char name[TIER_PARTS_NAME_SIZE];
    struct err ignored;
    uint64_t bytes = 0;
    tier_parts_name(name, keep);
    for (uint32_t i = 0; i < TIER_PARTS_MAX; i++) {
        struct tier_parts_oldest o = {.keep = name};
        if (!tier_parts_list(dir, tier_parts_on_old, &o, &ignored) && ignored.code != ERR_LIMIT)
            return 0;
        bytes = o.bytes;
        if (bytes <= bytes_max || !o.is_found || !tier_parts_delete(dir, o.part.name, false))
            break;
    }
    return bytes;
}

struct tier_parts_names {
    const char *only;
    char (*names)[TIER_PARTS_NAME_SIZE];
    uint32_t count;
    uint64_t bytes;
};

static void tier_parts_on_name(void *ctx, const struct tier_part *p)
{
    struct tier_parts_names *n = ctx;
    if (strcmp(n->only, "*") != 0 && strcmp(n->only, p->name) != 0)
        return;
    memcpy(n->names[n->count++], p->name, TIER_PARTS_NAME_SIZE);
    n->bytes += p->bytes;
}

bool tier_parts_clean(const char *dir, const char *name, uint64_t *bytes, struct err *e)
{
    struct tier_parts_names n = {.only = name};
    *bytes = 0;
    int top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return errno == ENOENT || err_set_errno(e, errno, "%s", dir);
    int lock = tier_parts_lock_at(top, LOCK_NAME, LOCK_EX);
    int error = errno;
    close(top);
    if (lock < 0 && error == EWOULDBLOCK)
        return err_set(e, ERR_LIMIT, "%s: a server is using it; stop it first", dir);
    if (lock < 0)
        return err_set_errno(e, error, "%s/" LOCK_NAME, dir);
    n.names = calloc(TIER_PARTS_MAX, sizeof *n.names);
    bool ok = n.names ? tier_parts_list(dir, tier_parts_on_name, &n, e)
                      : err_set(e, ERR_MEMORY, "cache: no memory");
    for (uint32_t i = 0; i < n.count; i++) /* of too many those that were listed */
        if (!tier_parts_delete(dir, n.names[i], true))
            ok = err_set(e, ERR_IO, "%s/%s: cannot be deleted", dir, n.names[i]);
    if (ok)
        *bytes = n.bytes;
    free(n.names);
    close(lock);
    return ok;
}
