#include "serve/contexts_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "serve/workers.h"

#define LOCK_NAME "lock"
#define NEW_END ".new"
#define FILE_AROUND 256u /* about what stands around a content */
#define PARSE_MAX (5 * CONTEXT_FILE_SIZE_MAX + ((size_t)1 << 20))

struct contexts_disk {
    char path[4096];
    int dir, lock;
    struct workers *workers;
    size_t waiting; /* bytes of the orders that were taken */
};

/* One order; its own memory. */
struct contexts_disk_job {
    struct contexts_disk *d;
    char name[CONTEXT_FILE_NAME_SIZE];
    bool is_remove;
    struct context_file file; /* texts are the caller's, until on_done */
    void (*on_done)(void *ctx);
    void *ctx;
    size_t size; /* counted as waiting */
};

/* --- the directory ------------------------------------------------------------------------- */

static bool contexts_disk_take(struct contexts_disk *d, struct err *e)
{
    if (!file_make_dirs(d->path, 0700, e))
        return false;
    d->dir = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (d->dir < 0)
        return err_set_errno(e, errno, "%s", d->path);
    d->lock = openat(d->dir, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                     0600);
    if (d->lock < 0)
        return err_set_errno(e, errno, "%s/" LOCK_NAME, d->path);
    if (flock(d->lock, LOCK_EX | LOCK_NB) == 0)
        return true;
    return errno == EWOULDBLOCK
               ? err_set(e, ERR_LIMIT, "%s: a server is using it; stop it first", d->path)
               : err_set_errno(e, errno, "%s/" LOCK_NAME, d->path);
}

static bool contexts_disk_init(struct contexts_disk *d, const char *dir, struct err *e)
{
    *d = (struct contexts_disk){.dir = -1, .lock = -1};
    int n = snprintf(d->path, sizeof d->path, "%s/contexts", dir);
    if (n < 0 || (size_t)n >= sizeof d->path)
        return err_set(e, ERR_CONFIG, "cache.spill: a path of %d bytes is too long", n);
    return contexts_disk_take(d, e);
}

static void contexts_disk_deinit(struct contexts_disk *d)
{
    if (d->lock >= 0)
        close(d->lock);
    if (d->dir >= 0)
        close(d->dir);
}

bool contexts_disk_open(struct contexts_disk **out, struct loop *l, const char *dir,
                        struct err *e)
{
    struct contexts_disk *d = malloc(sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "contexts: no memory");
    if (!contexts_disk_init(d, dir, e) ||
        !workers_open(&d->workers, l, 1, CONTEXTS_DISK_JOBS, e)) {
        contexts_disk_deinit(d);
        free(d);
        return false;
    }
    *out = d;
    return true;
}

void contexts_disk_close(struct contexts_disk *d)
{
    if (!d)
        return;
    workers_close(d->workers); /* what was ordered is done */
    contexts_disk_deinit(d);
    free(d);
}

/* --- reading ------------------------------------------------------------------------------- */

/* Calls on_name for each of our names; leftovers of a write that was cut off are deleted. */
static bool contexts_disk_list(struct contexts_disk *d,
                               void (*on_name)(void *ctx, struct contexts_disk *d,
                                               const char *name), void *ctx, struct err *e)
{
    int fd = openat(d->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *at;
    if (!list) {
        err_set_errno(e, errno, "%s", d->path);
        if (fd >= 0)
            close(fd);
        return false;
    }
    while ((at = readdir(list))) {
        char name[CONTEXT_FILE_NAME_SIZE + sizeof NEW_END];
        size_t len = strlen(at->d_name), whole = CONTEXT_FILE_NAME_SIZE - 1;
        if (len >= sizeof name)
            continue;
        memcpy(name, at->d_name, len + 1);
        bool is_new = len == whole + strlen(NEW_END) && !strcmp(name + whole, NEW_END);
        if (is_new)
            name[whole] = 0;
        if (!context_file_is_name(name))
            continue;
        if (is_new)
            unlinkat(d->dir, at->d_name, 0);
        else
            on_name(ctx, d, name);
    }
    closedir(list);
    return true;
}

static bool contexts_disk_read(struct contexts_disk *d, const char *name, struct buf *out,
                               struct err *e)
{
    char piece[65536];
    struct stat st;
    ssize_t n = 0;
    int fd = openat(d->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return err_set_errno(e, errno, "%s/%s", d->path, name);
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    while (ok && (n = read(fd, piece, sizeof piece)) > 0)
        buf_add(out, str_view(piece, (size_t)n));
    if (!ok || n < 0)
        ok = err_set(e, ERR_IO, "%s/%s: cannot be read", d->path, name);
    else if (out->full)
        ok = err_set(e, ERR_FORMAT, "%s/%s: more than %zu bytes", d->path, name,
                     CONTEXT_FILE_SIZE_MAX);
    close(fd);
    return ok;
}

struct contexts_disk_loading {
    bool (*on_file)(void *ctx, const struct context_file *f);
    void *ctx;
    uint32_t left;
};

/* One that is not under the name of what it says was not written by us. */
static bool contexts_disk_parse(struct context_file *f, const struct buf *bytes, const char *name,
                                struct arena *a, struct err *e)
{
    char same[CONTEXT_FILE_NAME_SIZE];
    if (!context_file_read(f, buf_view(bytes), a, e) ||
        !context_file_name(same, f->scope, f->id, e))
        return false;
    return !strcmp(same, name) || err_set(e, ERR_FORMAT, "context: its name is another's");
}

static void contexts_disk_on_name(void *ctx, struct contexts_disk *d, const char *name)
{
    struct contexts_disk_loading *l = ctx;
    struct context_file f;
    struct arena a;
    struct buf bytes;
    struct err e;
    if (l->left == 0) /* more than a server holds: not ours to choose from */
        return;
    l->left--;
    arena_init(&a, PARSE_MAX);
    buf_init(&bytes, CONTEXT_FILE_SIZE_MAX);
    bool is_read = contexts_disk_read(d, name, &bytes, &e);
    bool ok = is_read && contexts_disk_parse(&f, &bytes, name, &a, &e);
    if (!ok)
        log_warn("contexts: %s: %s", name, e.text);
    bool is_bad = !ok && e.code == ERR_FORMAT;
    if (is_bad || (ok && !l->on_file(l->ctx, &f)))
        unlinkat(d->dir, name, 0);
    buf_deinit(&bytes);
    arena_deinit(&a);
}

void contexts_disk_load(struct contexts_disk *d, uint32_t files_max,
                        bool (*on_file)(void *ctx, const struct context_file *f), void *ctx)
{
    struct contexts_disk_loading l = {on_file, ctx, files_max};
    struct err e;
    if (!contexts_disk_list(d, contexts_disk_on_name, &l, &e))
        log_warn("contexts: %s", e.text);
}

/* --- writing: the thread ------------------------------------------------------------------- */

static bool contexts_disk_replace(const struct contexts_disk_job *j, const struct buf *bytes,
                                  struct err *e)
{
    const struct contexts_disk *d = j->d;
    char fresh[CONTEXT_FILE_NAME_SIZE + sizeof NEW_END];
    snprintf(fresh, sizeof fresh, "%s" NEW_END, j->name);
    int fd = openat(d->dir, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set_errno(e, errno, "%s/%s", d->path, fresh);
    bool ok = file_write_all(fd, buf_view(bytes), e);
    if (ok && fdatasync(fd) != 0)
        ok = err_set_errno(e, errno, "%s/%s", d->path, fresh);
    close(fd);
    if (ok && renameat(d->dir, fresh, d->dir, j->name) != 0)
        ok = err_set_errno(e, errno, "%s/%s", d->path, j->name);
    if (!ok)
        unlinkat(d->dir, fresh, 0);
    return ok;
}

/* Bytes and sum of a large one take their time, too. */
static bool contexts_disk_write(const struct contexts_disk_job *j, struct err *e)
{
    struct buf bytes;
    buf_init(&bytes, j->file.content.len + CONTEXT_FILE_MORE);
    bool ok = context_file_write(&bytes, &j->file) ||
              err_set(e, ERR_MEMORY, "no memory for %zu bytes", j->file.content.len);
    ok = ok && contexts_disk_replace(j, &bytes, e);
    buf_deinit(&bytes);
    return ok;
}

static void contexts_disk_run(void *ctx)
{
    const struct contexts_disk_job *j = ctx;
    struct err e;
    if (!j->is_remove) {
        if (!contexts_disk_write(j, &e))
            log_warn("contexts: one will not be there after a restart: %s", e.text);
    } else if (unlinkat(j->d->dir, j->name, 0) != 0 && errno != ENOENT) {
        log_warn("contexts: %s/%s stays: error %d", j->d->path, j->name, errno);
    }
}

static void contexts_disk_done(void *ctx)
{
    struct contexts_disk_job *j = ctx;
    j->d->waiting -= j->size;
    if (j->on_done)
        j->on_done(j->ctx);
    free(j);
}

/* --- writing: the loop --------------------------------------------------------------------- */

/* *made: as it was ordered; its memory is taken in any case. */
static bool contexts_disk_order(struct contexts_disk *d, const struct contexts_disk_job *made,
                                str scope, str id, struct err *e)
{
    struct contexts_disk_job *j = malloc(sizeof *j);
    if (!j)
        return err_set(e, ERR_MEMORY, "no memory");
    *j = *made;
    j->d = d;
    bool ok = context_file_name(j->name, scope, id, e);
    if (ok && j->size > CONTEXTS_DISK_WAITING_MAX - d->waiting)
        ok = err_set(e, ERR_LIMIT, "%zu bytes wait to be written", d->waiting);
    if (ok && !workers_run(d->workers, &(struct workers_job){contexts_disk_run,
                                                             contexts_disk_done, j}))
        ok = err_set(e, ERR_LIMIT, "%u are under way", CONTEXTS_DISK_JOBS);
    if (ok)
        d->waiting += j->size;
    else
        free(j);
    return ok;
}

static void contexts_disk_failed(const struct err *why)
{
    log_warn("contexts: the file of one is not brought up to date: %s", why->text);
}

void contexts_disk_put(struct contexts_disk *d, const struct context_file *f,
                       void (*on_done)(void *ctx), void *ctx)
{
    struct err e;
    const struct contexts_disk_job made = {.file = *f, .on_done = on_done, .ctx = ctx,
                                           .size = f->content.len + FILE_AROUND};
    if (contexts_disk_order(d, &made, f->scope, f->id, &e))
        return;
    contexts_disk_failed(&e);
    if (on_done)
        on_done(ctx);
}

void contexts_disk_remove(struct contexts_disk *d, str scope, str id)
{
    struct err e;
    if (!contexts_disk_order(d, &(struct contexts_disk_job){.is_remove = true}, scope, id, &e))
        contexts_disk_failed(&e);
}

/* --- cleaning ------------------------------------------------------------------------------ */

static void contexts_disk_on_clean(void *ctx, struct contexts_disk *d, const char *name)
{
    uint64_t *bytes = ctx;
    struct stat st;
    if (fstatat(d->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && unlinkat(d->dir, name, 0) == 0)
        *bytes += (uint64_t)st.st_size;
}

bool contexts_disk_clean(const char *dir, uint64_t *bytes, struct err *e)
{
    struct contexts_disk d;
    struct file_info info;
    struct err ignored;
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/contexts", dir);
    if (n < 0 || (size_t)n >= sizeof path || !file_stat(&info, path, &ignored))
        return true; /* there are none */
    bool ok = contexts_disk_init(&d, dir, e) &&
              contexts_disk_list(&d, contexts_disk_on_clean, bytes, e);
    contexts_disk_deinit(&d);
    return ok;
}
