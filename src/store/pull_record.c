#include "store/pull_record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"

#define PULL_RECORD_FORMAT "shoal pulled 1"
#define PULL_RECORD_ARENA_MAX ((size_t)64 << 20)
#define PULL_RECORD_LINES_MAX 65536u

static bool pull_record_parse_line(struct pull_record_line *out, str line)
{
    str size, mtime, rest = line;
    struct pull_record_line l = {0};
    if (!str_split(&rest, '\t', &l.reference) || !str_split(&rest, '\t', &l.name) ||
        !str_split(&rest, '\t', &size) || !str_split(&rest, '\t', &mtime) || !l.name.len ||
        !str_to_u64(size, &l.size) || !str_to_i64(mtime, &l.mtime_ns))
        return false;
    l.has_sha256 = digest_unhex(l.sha256, 32, rest);
    if (!l.has_sha256 && !str_eq_z(rest, "-"))
        return false;
    *out = l;
    return true;
}

void pull_record_parse(struct pull_record *out, str text, struct arena *a)
{
    str line, rest = text;
    uint32_t room = 0;
    *out = (struct pull_record){0};
    if (!str_split(&rest, '\n', &line) || !str_eq_z(line, PULL_RECORD_FORMAT))
        return;
    for (size_t i = 0; i < rest.len && room < PULL_RECORD_LINES_MAX; i++)
        room += rest.p[i] == '\n';
    struct pull_record_line *lines = ARENA_ARRAY(a, struct pull_record_line, (size_t)room + 1);
    while (lines && out->count < room && str_split(&rest, '\n', &line))
        if (pull_record_parse_line(&lines[out->count], line))
            out->count++;
    out->lines = lines;
}

void pull_record_read(struct pull_record *out, str store, struct arena *a)
{
    struct err e;
    str text, path = arena_printf(a, "%.*s/.pulled", STR_ARG(store));
    *out = (struct pull_record){0};
    if (path.p && file_read(&text, path.p, PULL_RECORD_SIZE_MAX, a, &e))
        pull_record_parse(out, text, a);
}

const struct pull_record_line *pull_record_find(const struct pull_record *r, str name,
                                                uint64_t size, int64_t mtime_ns)
{
    for (uint32_t i = r->count; i-- > 0;)
        if (str_eq(r->lines[i].name, name))
            return r->lines[i].size == size && r->lines[i].mtime_ns == mtime_ns ? &r->lines[i]
                                                                              : NULL;
    return NULL;
}

static void pull_record_add(struct buf *out, const struct pull_record_line *l)
{
    char hex[65] = "-";
    if (l->has_sha256)
        digest_hex(hex, l->sha256, 32);
    buf_add(out, l->reference);
    buf_add_byte(out, '\t');
    buf_add(out, l->name);
    buf_printf(out, "\t%llu\t%lld\t%s\n", (unsigned long long)l->size, (long long)l->mtime_ns,
               hex);
}

static bool pull_record_is_replaced(const struct pull_record_line *old,
                                    const struct pull_record_line *lines, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (str_eq(old->reference, lines[i].reference) && str_eq(old->name, lines[i].name))
            return true;
    return false;
}

/* Under the lock, so that one name is enough for what a kill may leave behind. */
static bool pull_record_write(str path, str bytes, struct arena *a, struct err *e)
{
    str fresh = arena_printf(a, "%.*s.new", STR_ARG(path));
    if (!path.p || !fresh.p)
        return err_set(e, ERR_MEMORY, "pull: no memory");
    int fd = open(fresh.p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool ok = fd >= 0 && file_write_all(fd, bytes, e) && fdatasync(fd) == 0;
    if (fd >= 0 && close(fd) != 0)
        ok = false;
    ok = ok && rename(fresh.p, path.p) == 0;
    return ok || err_set_errno(e, errno, "%.*s", STR_ARG(fresh));
}

bool pull_record_put(str store, const struct pull_record_line *lines, uint32_t count,
                     struct err *e)
{
    struct arena a;
    struct buf out;
    struct pull_record old;
    arena_init(&a, PULL_RECORD_ARENA_MAX);
    buf_init(&out, PULL_RECORD_SIZE_MAX / 2); /* half: so that the next one has room */
    str dir = arena_copy(&a, store), path = arena_printf(&a, "%.*s/.pulled", STR_ARG(store));
    int lock = dir.p ? open(dir.p, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool ok = lock >= 0 && flock(lock, LOCK_EX) == 0;
    if (!ok)
        err_set_errno(e, errno, "%.*s", STR_ARG(store));
    if (ok) {
        pull_record_read(&old, store, &a);
        buf_add_z(&out, PULL_RECORD_FORMAT "\n");
        /* The newest half of a very long record. */
        for (uint32_t i = old.count > 4096 ? old.count - 4096 : 0; i < old.count; i++)
            if (!pull_record_is_replaced(&old.lines[i], lines, count))
                pull_record_add(&out, &old.lines[i]);
        for (uint32_t i = 0; i < count; i++)
            pull_record_add(&out, &lines[i]);
        ok = out.full ? err_set(e, ERR_LIMIT, "%.*s: too long", STR_ARG(path))
                      : pull_record_write(path, buf_view(&out), &a, e);
    }
    if (lock >= 0)
        close(lock);
    buf_deinit(&out);
    arena_deinit(&a);
    return ok;
}
