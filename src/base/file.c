#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_PATH_MAX 4096
#define FILE_READ_MAX ((size_t)1 << 30) /* one pread; the kernel itself stops at 2 GiB - 4 KiB */
#define FILE_WALK_DEPTH_MAX 32u

/* --- reading --- */

static int64_t file_mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static void file_set_name(struct file *f, const char *path)
{
    size_t len = strlen(path), keep = sizeof f->name - 1;
    const char *from = path;
    if (len > keep) {
        from = path + len - keep;
        while (((unsigned char)*from & 0xc0u) == 0x80u) /* not inside a character */
            from++;
    }
    memcpy(f->name, from, strlen(from) + 1);
}

static const char *file_kind(mode_t mode)
{
    return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a FIFO"
         : S_ISSOCK(mode) ? "a socket" : "a device";
}

bool file_open(struct file *f, const char *path, struct err *e)
{
    struct stat st;
    *f = (struct file){.fd = -1};
    /* O_NONBLOCK: opening a FIFO must not wait for a writer; regular files ignore it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return err_set_errno(e, errno, "%s", path);
    if (fstat(fd, &st) != 0) {
        err_set_errno(e, errno, "%s", path);
        close(fd);
        return false;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(e, ERR_FORMAT, "%s: is %s, not a file", path, file_kind(st.st_mode));
    }
    f->fd = fd;
    f->size = (uint64_t)st.st_size;
    f->mtime_ns = file_mtime_ns(&st);
    f->device = st.st_dev;
    f->inode = st.st_ino;
    file_set_name(f, path);
    return true;
}

void file_close(struct file *f)
{
    if (f->fd > 0)
        close(f->fd);
    f->fd = -1;
}

bool file_pread(const struct file *f, void *dst, size_t size, uint64_t offset, struct err *e)
{
    uint64_t end;
    bool fits = !__builtin_add_overflow(offset, size, &end) && end <= INT64_MAX;
    for (size_t done = 0; fits && done < size;) {
        size_t part = base_min(size - done, FILE_READ_MAX);
        ssize_t n = pread(f->fd, (char *)dst + done, part, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set_errno(e, errno, "%s: reading at byte %zu", f->name,
                                 (size_t)offset + done);
        if (n == 0)
            fits = false;
        done += (size_t)n;
    }
    if (fits)
        return true;
    struct stat st;
    uint64_t has = fstat(f->fd, &st) == 0 ? (uint64_t)st.st_size : f->size;
    return err_set(e, ERR_FORMAT, "%s: %zu bytes wanted at byte %zu, the file has %zu", f->name,
                   size, (size_t)offset, (size_t)has);
}

bool file_read(str *out, const char *path, size_t size_max, struct arena *a, struct err *e)
{
    struct file f;
    if (!file_open(&f, path, e))
        return false;
    bool ok = false;
    char *p = NULL;
    if (f.size > size_max)
        err_set(e, ERR_LIMIT, "%s: has %zu bytes, at most %zu are read", path, (size_t)f.size,
                size_max);
    else if (!(p = arena_alloc(a, (size_t)f.size + 1)))
        err_set(e, ERR_MEMORY, "%s: no room for %zu bytes", path, (size_t)f.size);
    else
        ok = file_pread(&f, p, (size_t)f.size, 0, e);
    if (ok)
        *out = str_view(p, (size_t)f.size);
    file_close(&f);
    return ok;
}

bool file_stat(struct file_info *out, const char *path, struct err *e)
{
    struct stat st, self;
    if (stat(path, &st) != 0 || lstat(path, &self) != 0)
        return err_set_errno(e, errno, "%s", path);
    *out = (struct file_info){
        .size = (uint64_t)st.st_size,
        .mtime_ns = file_mtime_ns(&st),
        .device = st.st_dev,
        .inode = st.st_ino,
        .mode = st.st_mode & 07777u,
        .is_file = S_ISREG(st.st_mode),
        .is_dir = S_ISDIR(st.st_mode),
        .is_link = S_ISLNK(self.st_mode),
    };
    return true;
}

/* --- writing --- */

bool file_write_all(int fd, str bytes, struct err *e)
{
    while (bytes.len) {
        ssize_t n = write(fd, bytes.p, bytes.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set_errno(e, errno, "writing %zu bytes", bytes.len);
        bytes = str_from(bytes, (size_t)n);
    }
    return true;
}

static bool file_sync_dir(const char *path, struct err *e)
{
    char dir[FILE_PATH_MAX];
    str name = file_dir_name(str_of(path));
    snprintf(dir, sizeof dir, "%.*s", STR_ARG(name));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(e, errno, "%s", dir);
    /* EINVAL: a file system that has nothing to sync here */
    bool ok = fsync(fd) == 0 || errno == EINVAL || err_set_errno(e, errno, "%s: fsync", dir);
    close(fd);
    return ok;
}

bool file_write(const char *path, str bytes, uint32_t mode, struct err *e)
{
    char temp[FILE_PATH_MAX];
    int len = snprintf(temp, sizeof temp, "%s.XXXXXX", path);
    if (len < 0 || (size_t)len >= sizeof temp)
        return err_set(e, ERR_LIMIT, "path of %zu bytes is too long", strlen(path));
    int fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(e, errno, "%s", path);
    bool ok = file_write_all(fd, bytes, e);
    if (!ok)
        err_wrap(e, "%s", path);
    else if (fchmod(fd, (mode_t)mode) != 0 || fsync(fd) != 0)
        ok = err_set_errno(e, errno, "%s", path);
    if (close(fd) != 0 && ok)
        ok = err_set_errno(e, errno, "%s", path);
    if (ok && rename(temp, path) != 0)
        ok = err_set_errno(e, errno, "%s", path);
    if (!ok) {
        unlink(temp);
        return false;
    }
    return file_sync_dir(path, e);
}

bool file_make_dirs(const char *path, uint32_t mode, struct err *e)
{
    char part[FILE_PATH_MAX];
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof part)
        return err_set(e, ERR_LIMIT, "path of %zu bytes cannot be created", len);
    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (part[i] != '/' && part[i] != 0)
            continue;
        part[i] = 0;
        struct stat st;
        if (mkdir(part, (mode_t)mode) != 0 && errno != EEXIST)
            return err_set_errno(e, errno, "%s", part);
        if (stat(part, &st) != 0)
            return err_set_errno(e, errno, "%s", part);
        if (!S_ISDIR(st.st_mode))
            return err_set(e, ERR_IO, "%s: is not a directory", part);
        part[i] = path[i];
    }
    return true;
}

/* --- walking --- */

struct file_walker {
    const struct file_walk *w;
    uint32_t entries;
    char path[FILE_PATH_MAX];
    struct { uint64_t device, inode; } above[FILE_WALK_DEPTH_MAX + 1]; /* directories we are in */
    struct err *e;
};

struct file_names {
    char **p;
    size_t count, size;
};

static void file_names_free(struct file_names *n)
{
    for (size_t i = 0; i < n->count; i++)
        free(n->p[i]);
    free(n->p);
}

static int file_names_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool file_names_add(struct file_names *n, const char *name)
{
    if (n->count == n->size) {
        size_t size = n->size ? n->size * 2 : 32;
        char **p = realloc(n->p, size * sizeof *p);
        if (!p)
            return false;
        n->p = p;
        n->size = size;
    }
    n->p[n->count] = strdup(name);
    return n->p[n->count] && ++n->count;
}

/* All names are read before the first is reported: sorted, and no descriptor stays open. */
static bool file_names_read(struct file_walker *k, struct file_names *n)
{
    DIR *dir = opendir(k->path);
    if (!dir)
        return err_set_errno(k->e, errno, "%s", k->path);
    bool ok = true;
    const struct dirent *d;
    while (ok && (d = readdir(dir))) {
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
            continue;
        if (++k->entries > k->w->entries_max)
            ok = err_set(k->e, ERR_LIMIT, "%s: more than %u entries", k->path, k->w->entries_max);
        else if (!file_names_add(n, d->d_name))
            ok = err_set(k->e, ERR_MEMORY, "%s: no memory for its names", k->path);
    }
    closedir(dir);
    if (ok && n->count)
        qsort(n->p, n->count, sizeof *n->p, file_names_compare);
    return ok;
}

static bool file_walk_is_above(const struct file_walker *k, uint32_t depth,
                               const struct file_info *i)
{
    for (uint32_t d = 0; d <= depth; d++)
        if (k->above[d].device == i->device && k->above[d].inode == i->inode)
            return true;
    return false;
}

/* Depth is limited by depth_max, at most FILE_WALK_DEPTH_MAX. */
static bool file_walk_dir(struct file_walker *k, uint32_t depth, const struct file_info *self)
{
    struct file_names names = {0};
    size_t len = strlen(k->path);
    k->above[depth].device = self->device;
    k->above[depth].inode = self->inode;
    bool ok = file_names_read(k, &names);
    if (!ok && depth && k->e->code != ERR_LIMIT && k->e->code != ERR_MEMORY)
        ok = true; /* vanished or forbidden: only the root must be readable */
    for (size_t i = 0; ok && i < names.count; i++) {
        size_t more = strlen(names.p[i]);
        if (len + 1 + more >= sizeof k->path)
            continue; /* the system calls would refuse such a path too */
        k->path[len] = '/';
        memcpy(k->path + len + 1, names.p[i], more + 1);
        struct file_entry entry = {.path = k->path, .depth = depth};
        entry.name = str_view(k->path + len + 1, more);
        struct err skipped = {0};
        if (file_stat(&entry.info, k->path, &skipped)) {
            bool enter = k->w->on_entry(k->w->ctx, &entry);
            if (enter && entry.info.is_dir && depth < k->w->depth_max &&
                !file_walk_is_above(k, depth, &entry.info))
                ok = file_walk_dir(k, depth + 1, &entry.info);
        }
        k->path[len] = 0;
    }
    file_names_free(&names);
    return ok;
}

bool file_walk(const char *root, const struct file_walk *w, struct err *e)
{
    struct file_info self;
    struct err inner = {0};
    must(w->depth_max <= FILE_WALK_DEPTH_MAX);
    if (!file_stat(&self, root, e))
        return false;
    if (!self.is_dir)
        return err_set(e, ERR_IO, "%s: is not a directory", root);
    struct file_walker *k = calloc(1, sizeof *k);
    size_t len = strlen(root);
    while (len > 1 && root[len - 1] == '/')
        len--;
    if (!k || len >= sizeof k->path) {
        free(k);
        return err_set(e, ERR_LIMIT, "path of %zu bytes is too long", len);
    }
    k->w = w;
    k->e = &inner;
    memcpy(k->path, root, len);
    bool ok = file_walk_dir(k, 0, &self);
    free(k);
    if (!ok)
        *e = inner;
    return ok;
}

/* --- paths --- */

str file_join(struct arena *a, str dir, str name)
{
    if (str_starts(name, STR("/")) || dir.len == 0)
        return arena_copy(a, name);
    const char *between = str_ends(dir, STR("/")) ? "" : "/";
    return arena_printf(a, "%.*s%s%.*s", STR_ARG(dir), between, STR_ARG(name));
}

str file_expand_home(struct arena *a, str path, str home)
{
    if (!str_eq_z(path, "~") && !str_starts(path, STR("~/")))
        return arena_copy(a, path);
    if (!home.len)
        return arena_copy(a, STR(""));
    return arena_printf(a, "%.*s%.*s", STR_ARG(home), STR_ARG(str_from(path, 1)));
}

static size_t file_last_slash(str path)
{
    for (size_t i = path.len; i > 0; i--)
        if (path.p[i - 1] == '/')
            return i - 1;
    return STR_NONE;
}

str file_base_name(str path)
{
    size_t at = file_last_slash(path);
    return at == STR_NONE ? path : str_from(path, at + 1);
}

str file_dir_name(str path)
{
    size_t at = file_last_slash(path);
    if (at == STR_NONE)
        return STR(".");
    return at == 0 ? STR("/") : str_sub(path, 0, at);
}
