#include "store/pull.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "store/hub_pick.h"
#include "store/hub_ref.h"
#include "store/pull_file.h"
#include "store/pull_record.h"

#define PULL_CONFIG_MAX ((size_t)1 << 20)
#define PULL_BLOCK ((size_t)1 << 20)

struct pull_part { /* one file on its way */
    const struct hub_file *file;
    str dir, name, relative; /* relative to the store */
    struct pull_item item;
};

struct pull {
    const struct pull_options *o;
    struct arena *a;
    struct err *e;
    struct hub_net *net;
    struct hub_ref ref;
    str key; /* the reference as the record knows it */
    struct hub_repo repo;
    struct pull_record record;
    struct pull_part *parts;
    uint32_t parts_count;
    struct pull_progress progress;
    uint64_t before; /* bytes of the files before this one */
};

static bool pull_no_memory(struct pull *p)
{
    return err_set(p->e, ERR_MEMORY, "pull: no memory");
}

static void pull_tell(struct pull *p, enum pull_phase phase)
{
    p->progress.phase = phase;
    if (p->o->on_progress)
        p->o->on_progress(p->o->ctx, &p->progress);
}

/* --- the reference and what the hub says to it --- */

static bool pull_read_reference(struct pull *p)
{
    if (!hub_ref_parse(&p->ref, p->o->reference, p->e))
        return false;
    if (p->o->revision.len) {
        if (!hub_ref_is_revision(p->o->revision))
            return err_set(p->e, ERR_USAGE, "revision \"%.*s\": a branch, tag or commit expected",
                           STR_ARG(str_sub(p->o->revision, 0, 60)));
        p->ref.revision = p->o->revision;
    }
    if (p->o->file.len)
        p->ref.file = p->o->file;
    if (p->o->is_allowed && !p->o->is_allowed(p->o->ctx, p->ref.repo))
        return err_set(p->e, ERR_AUTH, "%.*s is not among the repositories of hub.allow",
                       STR_ARG(p->ref.repo));
    str sum = p->ref.file.len ? p->ref.file : p->ref.quant;
    p->key = arena_printf(p->a, "%.*s%s%.*s@%.*s:%.*s%s", STR_ARG(p->ref.origin),
                          p->ref.origin.len ? "/" : "", STR_ARG(p->ref.repo),
                          STR_ARG(p->ref.revision), STR_ARG(sum),
                          p->o->wants_projector ? "+mmproj" : "");
    for (size_t i = 0; i < p->key.len; i++)
        if ((unsigned char)p->key.p[i] < 0x20)
            return err_set(p->e, ERR_USAGE, "the reference holds a control character");
    return p->key.p || pull_no_memory(p);
}

static struct hub_net_query pull_query(const struct pull *p, enum hub_net_kind kind, str path)
{
    return (struct hub_net_query){
        .kind = kind,
        .origin = p->ref.origin,
        .repo = p->ref.repo,
        .revision = kind == HUB_NET_FILE && p->repo.commit.len ? p->repo.commit
                                                              : p->ref.revision,
        .path = path,
        .size_max = kind == HUB_NET_LIST ? HUB_ANSWER_MAX : PULL_CONFIG_MAX,
    };
}

static bool pull_ask_list(struct pull *p)
{
    struct buf body;
    struct hub_net_query q = pull_query(p, HUB_NET_LIST, (str){NULL, 0});
    buf_init(&body, HUB_ANSWER_MAX);
    bool ok = hub_net_ask(p->net, &q, &body, p->e);
    str text = ok ? arena_copy(p->a, buf_view(&body)) : (str){NULL, 0};
    buf_deinit(&body);
    if (!ok)
        return false;
    if (!text.p)
        return pull_no_memory(p);
    if (!hub_table[0]->read_list(&p->repo, text, p->a, p->e))
        return false;
    /* Shards of different commits do not fit together: from here on the commit is asked for. */
    if (p->repo.commit.len && !hub_ref_is_revision(p->repo.commit))
        return err_set(p->e, ERR_FORMAT, "hub: a commit of strange form");
    return true;
}

static bool pull_has_gguf(const struct pull *p)
{
    for (uint32_t i = 0; i < p->repo.files_count; i++)
        if (str_ends(p->repo.files[i].path, STR(".gguf")))
            return true;
    return false;
}

/* A safetensors repository says in its config.json what it is, if the hub's answer does not. */
static bool pull_ask_type(struct pull *p)
{
    struct buf body;
    struct json v;
    struct json_options options = {.depth_max = 64};
    struct hub_net_query q = pull_query(p, HUB_NET_FILE, STR("config.json"));
    if (p->repo.model_type.len || pull_has_gguf(p))
        return true;
    buf_init(&body, PULL_CONFIG_MAX);
    struct err why = {0};
    if (hub_net_ask(p->net, &q, &body, &why)) {
        str text = arena_copy(p->a, buf_view(&body));
        if (text.p && json_parse(&v, text, &options, p->a, &why))
            p->repo.model_type = json_text(json_member(v, "model_type"), p->a);
    }
    buf_deinit(&body);
    *p->e = why;
    return why.code != ERR_CANCELLED;
}

/* --- names here --- */

/* A projector finds its model by the beginning of its name (library_scan): most are called
 * mmproj-F16.gguf by their repository, which would fit every model and none. */
static str pull_projector_name(struct pull *p, str base, const struct pull_part *model)
{
    str stem = model->name, rest = str_from(base, sizeof "mmproj" - 1);
    if (str_ends(stem, STR(".gguf")))
        stem = str_sub(stem, 0, stem.len - 5);
    while (rest.len && (rest.p[0] == '-' || rest.p[0] == '_' || rest.p[0] == '.'))
        rest = str_from(rest, 1);
    if (rest.len >= 3 && str_eq_nocase(str_sub(rest, 0, 3), str_sub(stem, 0, 3)))
        return base;
    return arena_printf(p->a, "mmproj-%.*s-%.*s", STR_ARG(stem), STR_ARG(rest));
}

static bool pull_add_part(struct pull *p, const struct hub_pick *pick, uint32_t i, str dir)
{
    struct pull_part *part = &p->parts[p->parts_count];
    const struct hub_file *file = pick->files[i];
    str base;
    for (size_t k = 0; k < file->path.len; k++)
        if ((unsigned char)file->path.p[k] < 0x20)
            return err_set(p->e, ERR_FORMAT, "hub: a path with a control character");
    if (!hub_ref_base(&base, file->path, p->e))
        return false;
    if (pick->has_projector && i + 1 == pick->count && i > 0 && !pick->is_directory)
        base = pull_projector_name(p, base, &p->parts[0]);
    for (uint32_t k = 0; k < p->parts_count; k++)
        if (str_eq(p->parts[k].name, base))
            return err_set(p->e, ERR_FORMAT, "hub: two files are called \"%.*s\"", STR_ARG(base));
    *part = (struct pull_part){.file = file, .dir = dir, .name = base};
    part->relative = pick->is_directory
                         ? arena_printf(p->a, "%.*s/%.*s", STR_ARG(file_base_name(dir)),
                                        STR_ARG(base))
                         : base;
    part->item = (struct pull_item){
        .path = arena_printf(p->a, "%.*s/%.*s", STR_ARG(dir), STR_ARG(base)),
        .size = file->size,
        .has_sha256 = file->has_sha256,
    };
    memcpy(part->item.sha256, file->sha256, 32);
    p->parts_count++;
    return (part->relative.p && part->item.path.p && base.p) || pull_no_memory(p);
}

static bool pull_choose(struct pull *p)
{
    struct hub_pick pick;
    struct hub_query q = {
        .repo = p->ref.repo, .quant = p->ref.quant, .file = p->ref.file,
        .wants_projector = p->o->wants_projector, .supports = p->o->supports, .ctx = p->o->ctx};
    if (!pull_ask_type(p) || !hub_pick(&pick, &p->repo, &q, p->a, p->e))
        return false;
    p->parts = ARENA_ARRAY(p->a, struct pull_part, (size_t)pick.count + 1);
    str dir = p->o->store;
    if (pick.is_directory)
        dir = arena_printf(p->a, "%.*s/%.*s", STR_ARG(dir), STR_ARG(file_base_name(p->ref.repo)));
    if (!p->parts || !dir.p)
        return pull_no_memory(p);
    for (uint32_t i = 0; i < pick.count; i++)
        if (!pull_add_part(p, &pick, i, dir))
            return false;
    return true;
}

/* --- what is here already --- */

static bool pull_hash_file(struct pull *p, const struct pull_part *part, uint8_t sum[32])
{
    struct digest_sha256 d;
    struct file f = {.fd = -1};
    char *block = malloc(PULL_BLOCK);
    if (!block)
        return pull_no_memory(p);
    bool ok = file_open(&f, part->item.path.p, p->e);
    digest_sha256_init(&d);
    for (uint64_t at = 0; ok && at < f.size;) {
        size_t n = base_min(PULL_BLOCK, (size_t)(f.size - at));
        ok = file_pread(&f, block, n, at, p->e) && hub_net_turn(p->net, 0, p->e);
        if (ok)
            digest_sha256_add(&d, str_view(block, n));
        at += n;
        p->progress.file_done = at;
        pull_tell(p, PULL_CHECK);
    }
    if (ok)
        ok = digest_sha256_end(&d, sum, p->e);
    else
        digest_sha256_drop(&d);
    file_close(&f);
    free(block);
    return ok;
}

/* Did a pull from this repository put it there? */
static bool pull_is_known(const struct pull *p, const struct pull_part *part)
{
    for (uint32_t i = 0; i < p->record.count; i++) {
        const struct pull_record_line *l = &p->record.lines[i];
        str repo = str_sub(p->key, 0, str_find_byte(p->key, '@'));
        if (str_eq(l->name, part->relative) && str_starts(l->reference, repo) &&
            l->reference.len > repo.len && l->reference.p[repo.len] == '@')
            return true;
    }
    return false;
}

static bool pull_look(struct pull *p, struct pull_part *part)
{
    struct file_info info;
    struct err why = {0};
    uint8_t sum[32];
    const struct hub_file *f = part->file;
    if (!file_stat(&info, part->item.path.p, &why)) {
        if (why.code == ERR_NOT_FOUND)
            return true;
        *p->e = why;
        return false;
    }
    const struct pull_record_line *l =
        pull_record_find(&p->record, part->relative, info.size, info.mtime_ns);
    bool is_same = info.is_file && info.size == f->size;
    if (is_same && f->has_sha256) {
        if (l && l->has_sha256) {
            is_same = !memcmp(l->sha256, f->sha256, 32);
        } else {
            p->progress.file = part->name;
            p->progress.sha256 = f->sha256;
            p->progress.file_size = info.size;
            if (!pull_hash_file(p, part, sum))
                return false;
            is_same = !memcmp(sum, f->sha256, 32);
        }
    }
    part->item.is_there = is_same;
    if (!is_same && !pull_is_known(p, part))
        return err_set(p->e, ERR_REQUEST, "%.*s is there already and is another file (%llu bytes, "
                       "the hub lists %llu): move it away first", STR_ARG(part->item.path),
                       (unsigned long long)info.size, (unsigned long long)f->size);
    return true;
}

/* The hub is away: is all that this reference gave before still here? */
static bool pull_offline(struct pull *p, struct pull_result *out)
{
    struct pull_item *items = ARENA_ARRAY(p->a, struct pull_item, (size_t)p->record.count + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; items && i < p->record.count; i++) {
        const struct pull_record_line *l = &p->record.lines[i];
        struct file_info info;
        struct err why;
        if (!str_eq(l->reference, p->key))
            continue;
        str path = arena_printf(p->a, "%.*s/%.*s", STR_ARG(p->o->store), STR_ARG(l->name));
        if (!path.p || !file_stat(&info, path.p, &why) || info.size != l->size)
            return false;
        items[n] = (struct pull_item){.path = path, .size = l->size, .is_there = true,
                                      .has_sha256 = l->has_sha256};
        memcpy(items[n++].sha256, l->sha256, 32);
        out->size += l->size;
    }
    out->items = items;
    out->count = n;
    out->is_offline = n > 0;
    return n > 0;
}

/* --- room --- */

/* Bytes that the filesystem has given to it already. */
static uint64_t pull_allocated(struct pull *p, const struct pull_part *part)
{
    struct stat st;
    str path = pull_file_part_path(p->a, part->dir, part->name);
    if (!path.p || stat(path.p, &st) != 0)
        return 0;
    uint64_t bytes = (uint64_t)st.st_blocks * 512;
    return bytes < part->file->size ? bytes : part->file->size;
}

static bool pull_check_room(struct pull *p, uint64_t missing)
{
    struct statvfs fs;
    struct buf text;
    str dir = arena_copy(p->a, p->o->store);
    if (!missing)
        return true;
    if (!dir.p || statvfs(dir.p, &fs) != 0)
        return err_set_errno(p->e, errno, "%.*s", STR_ARG(p->o->store));
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize, need = missing + PULL_RESERVE;
    if (free_bytes >= need)
        return true;
    buf_init(&text, 1024);
    buf_add_size(&text, need - free_bytes);
    buf_add_z(&text, " more are needed: ");
    buf_add_size(&text, missing);
    buf_add_z(&text, " to fetch and 1.0 GB to leave over, free are ");
    buf_add_size(&text, free_bytes);
    err_set(p->e, ERR_LIMIT, "%.*s: %s", STR_ARG(p->o->store), text.p ? text.p : "no room");
    buf_deinit(&text);
    return false;
}

/* --- fetching --- */

static void pull_on_file(void *ctx, enum pull_file_phase phase, uint64_t received,
                         uint64_t verified)
{
    struct pull *p = ctx;
    p->progress.file_done = phase == PULL_FILE_VERIFY ? verified : received;
    p->progress.done = p->before + received;
    pull_tell(p, phase == PULL_FILE_WAIT     ? PULL_WAIT
                 : phase == PULL_FILE_VERIFY ? PULL_VERIFY
                                             : PULL_FETCH);
}

static struct pull_file_options pull_part_options(struct pull *p, const struct pull_part *part,
                                                  const struct hub_net_query *q)
{
    return (struct pull_file_options){
        .net = p->net,
        .query = q,
        .file = part->file,
        .dir = part->dir,
        .name = part->name,
        .connections = p->o->connections,
        .piece_size = p->o->piece_size,
        .retry_ms = p->o->net.retry_ms,
        .idle_ms = p->o->net.idle_ms,
        .is_gguf = str_ends(part->file->path, STR(".gguf")),
        .on_progress = pull_on_file,
        .ctx = p,
    };
}

static bool pull_announce_part(struct pull *p, const struct pull_part *part)
{
    struct hub_net_query q = pull_query(p, HUB_NET_FILE, part->file->path);
    struct pull_file_options o = pull_part_options(p, part, &q);
    return pull_file_announce(&o, p->e);
}

/* What another pull put there meanwhile is looked at like what was there before. */
static bool pull_fetch_part(struct pull *p, struct pull_part *part)
{
    struct hub_net_query q = pull_query(p, HUB_NET_FILE, part->file->path);
    struct pull_file_options o = pull_part_options(p, part, &q);
    for (int i = 0; i < 3 && !part->item.is_there; i++) {
        enum pull_file_end end = pull_file_run(&o, p->e);
        if (end != PULL_FILE_OTHER)
            return end == PULL_FILE_DONE;
        pull_record_read(&p->record, p->o->store, p->a);
        if (!pull_look(p, part))
            return false;
    }
    return part->item.is_there || err_set(p->e, ERR_REQUEST, "%.*s: other pulls replace it all the "
                                          "time", STR_ARG(part->name));
}

static bool pull_record_all(struct pull *p)
{
    struct pull_record_line *lines =
        ARENA_ARRAY(p->a, struct pull_record_line, (size_t)p->parts_count + 1);
    if (!lines)
        return pull_no_memory(p);
    for (uint32_t i = 0; i < p->parts_count; i++) {
        const struct pull_part *part = &p->parts[i];
        struct file_info info;
        if (!file_stat(&info, part->item.path.p, p->e))
            return false;
        lines[i] = (struct pull_record_line){
            .reference = p->key, .name = part->relative, .size = info.size,
            .mtime_ns = info.mtime_ns, .has_sha256 = part->file->has_sha256};
        memcpy(lines[i].sha256, part->file->sha256, 32);
    }
    return pull_record_put(p->o->store, lines, p->parts_count, p->e);
}

static bool pull_fetch_all(struct pull *p)
{
    for (uint32_t i = 0; i < p->parts_count; i++)
        if (!p->parts[i].item.is_there && !pull_announce_part(p, &p->parts[i]))
            return false;
    for (uint32_t i = 0; i < p->parts_count; i++) {
        struct pull_part *part = &p->parts[i];
        p->progress.file = part->name;
        p->progress.sha256 = part->file->has_sha256 ? part->file->sha256 : NULL;
        p->progress.file_number = i + 1;
        p->progress.file_size = part->file->size;
        p->progress.file_done = 0;
        if (!part->item.is_there && !pull_fetch_part(p, part))
            return false;
        p->before += part->file->size;
        p->progress.done = p->before;
    }
    return true;
}

static bool pull_make_dirs(struct pull *p)
{
    for (uint32_t i = 0; i < p->parts_count; i++) {
        str dir = arena_copy(p->a, p->parts[i].dir);
        if (!dir.p)
            return pull_no_memory(p);
        if (!file_make_dirs(dir.p, 0700, p->e))
            return false;
    }
    return true;
}

static bool pull_do(struct pull *p, struct pull_result *out)
{
    uint64_t to_allocate = 0;
    if (!pull_choose(p))
        return false;
    p->progress.files_count = p->parts_count;
    for (uint32_t i = 0; i < p->parts_count; i++) {
        struct pull_part *part = &p->parts[i];
        if (part->file->size == HUB_SIZE_UNKNOWN || part->file->size > INT64_MAX / 1024)
            return err_set(p->e, ERR_FORMAT, "hub: no size that can be is listed for %.*s",
                           STR_ARG(part->name));
        if (!pull_look(p, part))
            return false;
        out->size += part->file->size;
        if (part->item.is_there)
            continue;
        out->missing += part->file->size;
        to_allocate += part->file->size - pull_allocated(p, part);
    }
    p->progress.size = out->size;
    if (!p->o->is_dry && (!pull_make_dirs(p) || !pull_check_room(p, to_allocate) ||
                          !pull_fetch_all(p) || !pull_record_all(p)))
        return false;
    struct pull_item *items = ARENA_ARRAY(p->a, struct pull_item, (size_t)p->parts_count + 1);
    if (!items)
        return pull_no_memory(p);
    for (uint32_t i = 0; i < p->parts_count; i++)
        items[i] = p->parts[i].item;
    out->items = items;
    out->count = p->parts_count;
    return true;
}

bool pull_run(struct pull_result *out, const struct pull_options *o, struct arena *a,
              struct err *e)
{
    struct pull p = {.o = o, .a = a, .e = e};
    struct hub_net_options net = o->net;
    must(o->connections >= 1 && o->connections <= PULL_CONNECTIONS_MAX);
    net.calls_max = o->connections + 4;
    *out = (struct pull_result){0};
    pull_record_read(&p.record, o->store, a);
    if (!pull_read_reference(&p) || !hub_net_open(&p.net, &net, e))
        return false;
    pull_tell(&p, PULL_LIST);
    bool ok = pull_ask_list(&p);
    if (ok) {
        ok = pull_do(&p, out);
    } else if (e->code != ERR_CANCELLED && pull_offline(&p, out)) {
        hub_net_note(p.net, "%s; all files of %.*s are here", e->text, STR_ARG(p.key));
        ok = true;
    }
    hub_net_close(p.net);
    return ok;
}
