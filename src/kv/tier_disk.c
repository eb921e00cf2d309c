#include "kv/tier_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/chrono.h"
#include "base/thread.h"
#include "kv/tier_parts.h"

/* --- one order ----------------------------------------------------------------------------- */

static int tier_disk_make_file(const struct tier_io *io, struct tier_order *o)
{
    uint8_t head[TIER_FORMAT_BLOCK];
    uint64_t need = tier_format_slot_offset(&o->header, o->header.slots);
    uint64_t free_bytes = io->free_bytes(io->self);
    if (free_bytes < need || free_bytes - need < o->floor_bytes)
        return ENOSPC;
    int error = io->make(io->self, o->file);
    if (error)
        return error;
    tier_format_write_header(head, &o->header);
    error = io->write(io->self, o->file, head, sizeof head, 0);
    if (error)
        io->remove(io->self, o->file);
    return error;
}

static int tier_disk_write_record(const struct tier_io *io, struct tier_order *o)
{
    uint8_t record[TIER_FORMAT_RECORD_SIZE];
    tier_format_write_record(record, &o->header, o->slot, &o->record);
    return io->write(io->self, o->file, record, sizeof record, tier_format_record_offset(o->slot));
}

static int tier_disk_void_record(const struct tier_io *io, struct tier_order *o)
{
    static const uint8_t nothing[TIER_FORMAT_RECORD_SIZE];
    return io->write(io->self, o->file, nothing, sizeof nothing,
                     tier_format_record_offset(o->slot));
}

/* The old record goes first: one that stands beside another page's bytes would only cost a read,
 * but it would be found again at every start. */
static int tier_disk_write_page(const struct tier_io *io, struct tier_order *o)
{
    uint64_t size = o->header.page_size;
    o->record.sum = tier_format_sum(&o->record.key, str_view(o->bytes, size));
    int error = tier_disk_void_record(io, o);
    if (!error)
        error = io->write(io->self, o->file, o->bytes, size,
                          tier_format_slot_offset(&o->header, o->slot));
    return error ? error : tier_disk_write_record(io, o);
}

static int tier_disk_read_page(const struct tier_io *io, struct tier_order *o)
{
    uint64_t size = o->header.page_size;
    int error = io->read(io->self, o->file, o->bytes, size,
                         tier_format_slot_offset(&o->header, o->slot));
    if (error)
        return error;
    return tier_format_sum(&o->record.key, str_view(o->bytes, size)) == o->record.sum ? 0
                                                                                      : EBADMSG;
}

void tier_disk_carry_out(const struct tier_io *io, struct tier_order *o)
{
    switch (o->kind) {
    case TIER_ORDER_MAKE:
        o->error = tier_disk_make_file(io, o);
        return;
    case TIER_ORDER_WRITE:
        o->error = tier_disk_write_page(io, o);
        return;
    case TIER_ORDER_READ:
        o->error = tier_disk_read_page(io, o);
        return;
    case TIER_ORDER_TOUCH:
        o->error = tier_disk_write_record(io, o);
        return;
    case TIER_ORDER_VOID:
        o->error = tier_disk_void_record(io, o);
        return;
    }
}

/* --- files of this machine ----------------------------------------------------------------- */

enum { QUIT = UINT32_MAX }; /* order.file that ends the thread */

struct tier_disk_real {
    struct tier_parts_lock lock;
    struct thread_queue *orders, *done;
    uint32_t under_way; /* the engine thread counts */
    pthread_t thread;
    bool has_thread;
    void (*wake)(void *ctx);
    void *ctx;
    struct tier_io io;
    int fds[TIER_DISK_FILES_MAX]; /* 0: not open; tier thread, and whoever opens before it */
};

static int tier_disk_fd(struct tier_disk_real *r, uint32_t file, int *fd)
{
    char name[TIER_PARTS_FILE_SIZE];
    if (file >= TIER_DISK_FILES_MAX)
        return EMFILE;
    if (r->fds[file] == 0) {
        struct stat st;
        tier_parts_file_name(name, file);
        int opened = openat(r->lock.dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (opened < 0)
            return errno;
        if (fstat(opened, &st) != 0 || !S_ISREG(st.st_mode)) {
            close(opened);
            return EINVAL;
        }
        r->fds[file] = opened;
    }
    *fd = r->fds[file];
    return 0;
}

static int tier_disk_real_make(void *self, uint32_t file)
{
    struct tier_disk_real *r = self;
    char name[TIER_PARTS_FILE_SIZE];
    if (file >= TIER_DISK_FILES_MAX)
        return EMFILE;
    tier_parts_file_name(name, file);
    int fd = openat(r->lock.dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    r->fds[file] = fd;
    return 0;
}

static int tier_disk_real_remove(void *self, uint32_t file)
{
    struct tier_disk_real *r = self;
    char name[TIER_PARTS_FILE_SIZE];
    tier_parts_file_name(name, file);
    if (file < TIER_DISK_FILES_MAX && r->fds[file] > 0) {
        close(r->fds[file]);
        r->fds[file] = 0;
    }
    return unlinkat(r->lock.dir, name, 0) == 0 ? 0 : errno;
}

static int tier_disk_real_read(void *self, uint32_t file, void *to, size_t size, uint64_t offset)
{
    int fd = -1, error = tier_disk_fd(self, file, &fd);
    for (size_t done = 0; !error && done < size;) {
        ssize_t n = pread(fd, (char *)to + done, size - done, (off_t)(offset + done));
        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            error = ENODATA;
        else if (errno != EINTR)
            error = errno;
    }
    return error;
}

static int tier_disk_real_write(void *self, uint32_t file, const void *from, size_t size,
                                uint64_t offset)
{
    int fd = -1, error = tier_disk_fd(self, file, &fd);
    for (size_t done = 0; !error && done < size;) {
        ssize_t n = pwrite(fd, (const char *)from + done, size - done, (off_t)(offset + done));
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            error = errno;
    }
    return error;
}

static int tier_disk_real_size(void *self, uint32_t file, uint64_t *size)
{
    struct stat st;
    int fd = -1, error = tier_disk_fd(self, file, &fd);
    if (!error && fstat(fd, &st) != 0)
        error = errno;
    if (!error)
        *size = (uint64_t)st.st_size;
    return error;
}

static uint64_t tier_disk_real_free_bytes(void *self)
{
    const struct tier_disk_real *r = self;
    struct statvfs v;
    return fstatvfs(r->lock.dir, &v) == 0 ? (uint64_t)v.f_bavail * v.f_frsize : 0;
}

/* --- the thread ---------------------------------------------------------------------------- */

static void *tier_disk_run(void *ctx)
{
    struct tier_disk_real *r = ctx;
    struct tier_order o;
    for (;;) {
        thread_queue_wait(r->orders, -1);
        while (thread_queue_pop(r->orders, &o)) {
            if (o.file == QUIT)
                return NULL;
            int64_t begin = chrono_ns(&chrono_real);
            tier_disk_carry_out(&r->io, &o);
            o.ns = (uint64_t)(chrono_ns(&chrono_real) - begin);
            must(thread_queue_push(r->done, &o)); /* as many places as orders under way */
            if (r->wake)
                r->wake(r->ctx);
        }
    }
}

static bool tier_disk_real_start(void *self, const struct tier_order *o)
{
    struct tier_disk_real *r = self;
    if (r->under_way == TIER_DISK_ORDERS_MAX ||
        !thread_queue_push(r->orders, o))
        return false;
    r->under_way++;
    return true;
}

static bool tier_disk_real_next(void *self, struct tier_order *out)
{
    struct tier_disk_real *r = self;
    if (!thread_queue_pop(r->done, out))
        return false;
    r->under_way--;
    return true;
}

static void tier_disk_real_wait(void *self, int64_t timeout_ms)
{
    struct tier_disk_real *r = self;
    thread_queue_wait(r->done, timeout_ms);
}

/* --- open, close --------------------------------------------------------------------------- */

static int tier_disk_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Numbers past the limit are of nobody we know: they stay. */
static bool tier_disk_find_files(struct tier_disk *d, int part, struct err *e)
{
    const struct dirent *entry;
    uint32_t number;
    int again = openat(part, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (!dir)
        return err_set_errno(e, errno, "tier: its directory");
    d->files = calloc(TIER_DISK_FILES_MAX, sizeof *d->files);
    while (d->files && (entry = readdir(dir)))
        if (tier_parts_file_number(entry->d_name, &number) && number < TIER_DISK_FILES_MAX &&
            d->files_count < TIER_DISK_FILES_MAX)
            d->files[d->files_count++] = number;
    closedir(dir);
    if (!d->files)
        return err_set(e, ERR_MEMORY, "tier: no memory");
    qsort(d->files, d->files_count, sizeof *d->files, tier_disk_compare);
    return true;
}

bool tier_disk_open(struct tier_disk *d, const struct tier_disk_options *o, struct err *e)
{
    *d = (struct tier_disk){.self = NULL};
    struct tier_disk_real *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_MEMORY, "tier: no memory");
    *d = (struct tier_disk){.self = r, .start = tier_disk_real_start, .next = tier_disk_real_next,
                            .wait = tier_disk_real_wait,
                            .io = {r, tier_disk_real_make, tier_disk_real_remove,
                                   tier_disk_real_read, tier_disk_real_write,
                                   tier_disk_real_size, tier_disk_real_free_bytes}};
    r->io = d->io;
    r->wake = o->wake;
    r->ctx = o->ctx;
    bool ok = tier_parts_take(&r->lock, o->dir, &o->owner, e) &&
              tier_disk_find_files(d, r->lock.dir, e) &&
              thread_queue_open(&r->orders, sizeof(struct tier_order), TIER_DISK_ORDERS_MAX + 1,
                                e) &&
              thread_queue_open(&r->done, sizeof(struct tier_order), TIER_DISK_ORDERS_MAX, e) &&
              thread_start(&r->thread, "tier", tier_disk_run, r, e);
    r->has_thread = ok;
    if (!ok)
        tier_disk_close(d);
    return ok;
}

void tier_disk_close(struct tier_disk *d)
{
    struct tier_disk_real *r = d->self;
    if (!r)
        return;
    if (r->has_thread) {
        struct tier_order quit = {.file = QUIT};
        must(thread_queue_push(r->orders, &quit));
        thread_join(r->thread);
    }
    for (uint32_t i = 0; i < TIER_DISK_FILES_MAX; i++)
        if (r->fds[i] > 0)
            close(r->fds[i]);
    thread_queue_close(r->orders);
    thread_queue_close(r->done);
    tier_parts_give(&r->lock);
    free(d->files);
    free(r);
    *d = (struct tier_disk){.self = NULL};
}
