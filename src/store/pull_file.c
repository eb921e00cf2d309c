#include "store/pull_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "store/pull_fetch.h"

#define PULL_FILE_POLL_MS 200
#define PULL_FILE_ARENA_MAX ((size_t)128 << 20)

struct pull_file {
    const struct pull_file_options *o;
    struct arena arena;
    str final_path, part_path, state_path;
    int state_fd, part_fd, dir_fd;
    bool has_waited;
    bool is_same; /* whom we waited for fetched what we want, said the journal */
    struct pull_state state;
};

str pull_file_part_path(struct arena *a, str dir, str name)
{
    return arena_printf(a, "%.*s/.%.*s.part", STR_ARG(dir), STR_ARG(name));
}

str pull_file_state_path(struct arena *a, str dir, str name)
{
    return arena_printf(a, "%.*s/.%.*s.state", STR_ARG(dir), STR_ARG(name));
}

static bool pull_file_init(struct pull_file *p, const struct pull_file_options *o, struct err *e)
{
    *p = (struct pull_file){.o = o, .state_fd = -1, .part_fd = -1, .dir_fd = -1};
    arena_init(&p->arena, PULL_FILE_ARENA_MAX);
    p->final_path = arena_printf(&p->arena, "%.*s/%.*s", STR_ARG(o->dir), STR_ARG(o->name));
    p->part_path = pull_file_part_path(&p->arena, o->dir, o->name);
    p->state_path = pull_file_state_path(&p->arena, o->dir, o->name);
    return (p->final_path.p && p->part_path.p && p->state_path.p) ||
           err_set(e, ERR_MEMORY, "pull: no memory");
}

static void pull_file_deinit(struct pull_file *p)
{
    if (p->part_fd >= 0)
        close(p->part_fd);
    if (p->state_fd >= 0)
        close(p->state_fd); /* and with it the lock */
    if (p->dir_fd >= 0)
        close(p->dir_fd);
    arena_deinit(&p->arena);
}

static bool pull_file_open_dir(struct pull_file *p, struct err *e)
{
    str dir = arena_copy(&p->arena, p->o->dir);
    p->dir_fd = dir.p ? open(dir.p, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    return p->dir_fd >= 0 || err_set_errno(e, errno, "%.*s", STR_ARG(p->o->dir));
}

/* --- the journal as it lies there --- */

static void pull_file_expect(struct pull_state *s, const struct pull_file_options *o)
{
    *s = (struct pull_state){
        .repo = o->query->repo,
        .path = o->file->path,
        .revision = o->query->revision,
        .size = o->file->size,
        .has_sha256 = o->file->has_sha256,
        .piece_size = o->piece_size,
    };
    memcpy(s->sha256, o->file->sha256, sizeof s->sha256);
    s->pieces = pull_state_pieces(s->size, &s->piece_size);
}

/* Why what is there cannot be gone on with; NULL: it can. The hub's sha256 decides, where there is
 * one: an ETag may change, or be missing, without any change of the bytes. */
static const char *pull_file_differs(const struct pull_state *there, const struct pull_state *want)
{
    if (there->size != want->size)
        return "the hub lists another size now";
    if (there->has_sha256 != want->has_sha256)
        return "the hub publishes another kind of checksum now";
    if (want->has_sha256 && memcmp(there->sha256, want->sha256, sizeof want->sha256) != 0)
        return "the hub has another version of it now";
    if (!want->has_sha256 && (!str_eq(there->repo, want->repo) || !str_eq(there->path, want->path)))
        return "it is a file of another repository";
    return NULL;
}

/* *end 0: there is no journal. */
static bool pull_file_read_state(struct pull_file *p, struct pull_state *out, size_t *end,
                                 struct err *e)
{
    str text;
    *end = 0;
    if (!file_read(&text, p->state_path.p, PULL_STATE_SIZE_MAX, &p->arena, e))
        return false;
    return text.len == 0 || pull_state_read(out, text, end, &p->arena, e);
}

/* --- the lock --- */

static bool pull_file_open_state(struct pull_file *p, struct err *e)
{
    if (p->state_fd >= 0)
        close(p->state_fd);
    p->state_fd = open(p->state_path.p, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                       0600);
    return p->state_fd >= 0 || err_set_errno(e, errno, "%.*s", STR_ARG(p->state_path));
}

/* Locked, and still the file of that name: the one before us may have removed it. */
static bool pull_file_is_ours(const struct pull_file *p)
{
    struct stat held, named;
    return flock(p->state_fd, LOCK_EX | LOCK_NB) == 0 && fstat(p->state_fd, &held) == 0 &&
           stat(p->state_path.p, &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

static void pull_file_watch_other(struct pull_file *p)
{
    struct pull_state s = {0}, want;
    struct err e;
    size_t end = 0, used = p->arena.bytes_used;
    if (!p->has_waited)
        hub_net_note(p->o->net, "%.*s: another pull fetches it; showing its progress",
                     STR_ARG(p->o->name));
    p->has_waited = true;
    if (used >= PULL_FILE_ARENA_MAX / 2 || !pull_file_read_state(p, &s, &end, &e) || !end)
        return;
    pull_file_expect(&want, p->o);
    p->is_same = !pull_file_differs(&s, &want);
    p->o->on_progress(p->o->ctx, PULL_FILE_WAIT, pull_state_received(&s), 0);
}

static bool pull_file_lock(struct pull_file *p, struct err *e)
{
    for (;;) {
        if (!pull_file_open_state(p, e))
            return false;
        if (pull_file_is_ours(p))
            return true;
        struct stat held;
        if (fstat(p->state_fd, &held) == 0 && held.st_nlink == 0)
            continue; /* finished in between: the next open makes a new one */
        struct pull_file look;
        if (!pull_file_init(&look, p->o, e))
            return false;
        look.has_waited = p->has_waited;
        look.is_same = p->is_same;
        pull_file_watch_other(&look);
        p->has_waited = look.has_waited;
        p->is_same = look.is_same;
        pull_file_deinit(&look);
        for (int ms = 0; ms < PULL_FILE_POLL_MS; ms += 100)
            if (!hub_net_turn(p->o->net, 100, e))
                return false;
    }
}

/* --- resume or begin --- */

static bool pull_file_write_head(struct pull_file *p, struct err *e)
{
    struct buf head;
    buf_init(&head, 1u << 16);
    pull_state_add_head(&head, &p->state);
    bool ok = !head.full || err_set(e, ERR_LIMIT, "%.*s: names too long", STR_ARG(p->o->name));
    if (ok && ftruncate(p->state_fd, 0) != 0)
        ok = err_set_errno(e, errno, "%.*s", STR_ARG(p->state_path));
    ok = ok && file_write_all(p->state_fd, buf_view(&head), e);
    if (ok && (fdatasync(p->state_fd) != 0 || fsync(p->dir_fd) != 0))
        ok = err_set_errno(e, errno, "%.*s", STR_ARG(p->state_path));
    buf_deinit(&head);
    return ok;
}

/* Room for all of it at once, where the filesystem can: a disk that is full later hurts others. */
static bool pull_file_allocate(struct pull_file *p, struct err *e)
{
    struct stat st;
    off_t size = (off_t)p->state.size;
    if (fstat(p->part_fd, &st) != 0)
        return err_set_errno(e, errno, "%.*s", STR_ARG(p->part_path));
    if (size == 0 || fallocate(p->part_fd, 0, 0, size) == 0)
        return ftruncate(p->part_fd, size) == 0 ||
               err_set_errno(e, errno, "%.*s", STR_ARG(p->part_path));
    if ((errno == EOPNOTSUPP || errno == ENOSYS) && ftruncate(p->part_fd, size) == 0)
        return true;
    return err_set_errno(e, errno, "%.*s: room for %llu bytes", STR_ARG(p->o->name),
                         (unsigned long long)p->state.size);
}

static bool pull_file_begin(struct pull_file *p, struct err *e)
{
    pull_file_expect(&p->state, p->o);
    p->state.marks = ARENA_ARRAY(&p->arena, struct pull_mark, (size_t)p->state.pieces + 1);
    if (!p->state.marks)
        return err_set(e, ERR_MEMORY, "pull: no memory for %u pieces", p->state.pieces);
    if (ftruncate(p->part_fd, 0) != 0)
        return err_set_errno(e, errno, "%.*s", STR_ARG(p->part_path));
    return pull_file_write_head(p, e) && pull_file_allocate(p, e);
}

/* False in *resumes: nothing usable is there; a note has said why if something was. */
static bool pull_file_look(struct pull_file *p, bool *resumes, struct err *e)
{
    struct pull_state there = {0}, want;
    struct stat part;
    size_t end = 0;
    struct err why = {0};
    const char *reason = NULL;
    *resumes = false;
    pull_file_expect(&want, p->o);
    if (!pull_file_read_state(p, &there, &end, &why))
        reason = why.text;
    else if (end == 0)
        return true; /* a new one */
    else
        reason = pull_file_differs(&there, &want);
    if (!reason && pull_state_received(&there) &&
        (fstat(p->part_fd, &part) != 0 || (uint64_t)part.st_size != there.size))
        reason = "its bytes are gone";
    if (reason) {
        hub_net_note(p->o->net, "%.*s: starting over: %s", STR_ARG(p->o->name), reason);
        return true;
    }
    if (ftruncate(p->state_fd, (off_t)end) != 0) /* a line that a crash cut */
        return err_set_errno(e, errno, "%.*s", STR_ARG(p->state_path));
    p->state = there;
    *resumes = true;
    return true;
}

static bool pull_file_prepare(struct pull_file *p, bool from_nothing, struct err *e)
{
    bool resumes = false;
    if (p->part_fd < 0)
        p->part_fd = open(p->part_path.p, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (p->part_fd < 0)
        return err_set_errno(e, errno, "%.*s", STR_ARG(p->part_path));
    if (!from_nothing && !pull_file_look(p, &resumes, e))
        return false;
    return resumes ? pull_file_allocate(p, e) : pull_file_begin(p, e);
}

/* --- the end --- */

static bool pull_file_finish(struct pull_file *p, struct err *e)
{
    if (fsync(p->part_fd) != 0 || rename(p->part_path.p, p->final_path.p) != 0 ||
        fsync(p->dir_fd) != 0)
        return err_set_errno(e, errno, "%.*s", STR_ARG(p->final_path));
    unlink(p->state_path.p); /* one that stays is found to be done by the next pull */
    fsync(p->dir_fd);
    return true;
}

/* Whoever we waited for has finished a file of this name: two repositories may have one each. */
static bool pull_file_is_finished(const struct pull_file *p, enum pull_file_end *end)
{
    struct stat st, part;
    if (!p->has_waited || stat(p->final_path.p, &st) != 0 || !S_ISREG(st.st_mode) ||
        stat(p->part_path.p, &part) == 0)
        return false;
    bool is_ours = p->is_same && (uint64_t)st.st_size == p->o->file->size;
    *end = is_ours ? PULL_FILE_DONE : PULL_FILE_OTHER;
    return true;
}

/* Room for a file of which nothing came would be held for nobody. */
static void pull_file_release(struct pull_file *p)
{
    struct pull_state s = {0};
    struct err e;
    size_t end = 0;
    if (p->part_fd >= 0 && pull_file_read_state(p, &s, &end, &e) && end &&
        !pull_state_received(&s))
        unlink(p->part_path.p);
}

static void pull_file_on_fetch(void *ctx, uint64_t received, uint64_t verified)
{
    const struct pull_file *p = ctx;
    bool is_whole = received >= p->state.size && verified < p->state.size;
    p->o->on_progress(p->o->ctx, is_whole && p->state.has_sha256 ? PULL_FILE_VERIFY
                                                                 : PULL_FILE_FETCH,
                      received, verified);
}

static bool pull_file_fetch(struct pull_file *p, struct err *e)
{
    struct pull_fetch_options o = {
        .net = p->o->net,
        .query = p->o->query,
        .state = &p->state,
        .arena = &p->arena,
        .state_fd = p->state_fd,
        .connections = p->o->connections,
        .retry_ms = p->o->retry_ms,
        .idle_ms = p->o->idle_ms,
        .is_gguf = p->o->is_gguf,
        .on_progress = pull_file_on_fetch,
        .ctx = p,
    };
    enum pull_fetch_end end = PULL_FETCH_RESTART;
    for (int i = 0; i < 3 && end == PULL_FETCH_RESTART; i++) {
        if (!pull_file_prepare(p, i > 0, e))
            return false;
        o.part_fd = p->part_fd;
        end = pull_fetch(&o, e);
    }
    if (end == PULL_FETCH_RESTART)
        return err_set(e, ERR_UPSTREAM, "%.*s: the hub's file changes while it is fetched",
                       STR_ARG(p->o->name));
    return end == PULL_FETCH_DONE;
}

static bool pull_file_check(const struct pull_file_options *o, struct err *e)
{
    if (o->file->size == HUB_SIZE_UNKNOWN)
        return err_set(e, ERR_FORMAT, "hub: no size is listed for %.*s", STR_ARG(o->name));
    if (o->file->size > INT64_MAX / 2)
        return err_set(e, ERR_LIMIT, "hub: %.*s is listed with %llu bytes", STR_ARG(o->name),
                       (unsigned long long)o->file->size);
    return !o->is_gguf || o->file->size >= 4 ||
           err_set(e, ERR_FORMAT, "hub: %.*s is listed with %llu bytes: no GGUF file",
                   STR_ARG(o->name), (unsigned long long)o->file->size);
}

bool pull_file_announce(const struct pull_file_options *o, struct err *e)
{
    struct pull_file p;
    struct stat st;
    if (!pull_file_check(o, e))
        return false;
    bool ok = pull_file_init(&p, o, e) && pull_file_open_dir(&p, e) && pull_file_open_state(&p, e);
    /* Somebody else's, or begun before: it says what it is already. */
    if (ok && pull_file_is_ours(&p) && fstat(p.state_fd, &st) == 0 && st.st_size == 0) {
        pull_file_expect(&p.state, o);
        ok = pull_file_write_head(&p, e);
    }
    pull_file_deinit(&p);
    return ok;
}

enum pull_file_end pull_file_run(const struct pull_file_options *o, struct err *e)
{
    struct pull_file p;
    enum pull_file_end end = PULL_FILE_FAILED;
    if (!pull_file_check(o, e))
        return end;
    bool ok = pull_file_init(&p, o, e) && pull_file_open_dir(&p, e) && pull_file_lock(&p, e);
    if (ok && pull_file_is_finished(&p, &end)) {
        unlink(p.state_path.p); /* ours, and empty */
    } else if (ok) {
        if (pull_file_fetch(&p, e) && pull_file_finish(&p, e))
            end = PULL_FILE_DONE;
        else
            pull_file_release(&p);
    }
    pull_file_deinit(&p);
    return end;
}
