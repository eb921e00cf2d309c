#include "store/library.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/map.h"
#include "store/library_foreign.h"
#include "store/pull_file.h"

#define LIBRARY_ARENA_MAX ((size_t)256 << 20)
#define LIBRARY_CHECKED_MAX ((size_t)8 << 20)
#define LIBRARY_CHECKED_FORMAT "shoal checked 1 "

struct library {
    struct arena arena;
    struct library_scan scan;
};

uint32_t library_count(const struct library *l) { return l->scan.count; }
uint32_t library_note_count(const struct library *l) { return l->scan.notes_count; }

const struct library_entry *library_at(const struct library *l, uint32_t i)
{
    must(i < l->scan.count);
    return &l->scan.models[i].entry;
}

str library_note(const struct library *l, uint32_t i)
{
    must(i < l->scan.notes_count);
    return l->scan.notes[i];
}

const char *library_source_name(enum library_source s)
{
    static const char *const names[] = {"shoal", "ollama", "hf", "lmstudio", "dir"};
    must((size_t)s < countof(names));
    return names[s];
}

/* --- checking ---
 *
 * A header of a large vocabulary takes milliseconds; `.checked` remembers the answers:
 *
 *     shoal checked 1 TAG
 *     DIGEST ok
 *     DIGEST why it is broken
 */

struct library_checked {
    const struct library_options *o;
    struct library *l;
    struct map known; /* digest in hex to str of the answer in old */
    str path, old;
    struct buf now;
    bool is_changed;
};

static void library_checked_read(struct library_checked *k)
{
    struct err why = {0};
    str line, head;
    if (k->o->own.len)
        k->path = file_join(&k->l->arena, k->o->own, STR(".checked"));
    if (!k->path.p || !file_read(&k->old, k->path.p, LIBRARY_CHECKED_MAX, &k->l->arena, &why))
        return;
    str rest = k->old;
    if (!str_split(&rest, '\n', &head) || !str_starts(head, STR(LIBRARY_CHECKED_FORMAT)) ||
        !str_eq_z(str_from(head, sizeof LIBRARY_CHECKED_FORMAT - 1), k->o->tag))
        return;
    while (str_split(&rest, '\n', &line)) {
        uint8_t bytes[16];
        str digest = str_sub(line, 0, 32);
        if (line.len > 33 && line.p[32] == ' ' && digest_unhex(bytes, 16, digest) &&
            !map_put(&k->known, digest, (uint64_t)(line.p - k->old.p)))
            return;
    }
}

/* The remembered answer, or an empty str. */
static str library_checked_find(const struct library_checked *k, str digest)
{
    const uint64_t *at = map_find(&k->known, digest);
    if (!at)
        return (str){NULL, 0};
    str line, rest = str_from(k->old, (size_t)*at);
    return str_split(&rest, '\n', &line) ? str_from(line, 33) : (str){NULL, 0};
}

static void library_checked_add(struct library_checked *k, str digest, str answer)
{
    buf_printf(&k->now, "%.*s ", STR_ARG(digest));
    buf_add_printable(&k->now, answer);
    buf_add_byte(&k->now, '\n');
    (void)map_delete(&k->known, digest);
}

static void library_check_model(struct library_checked *k, struct library_scan_model *m)
{
    uint8_t bytes[16];
    char digest[33];
    if (m->entry.broken.len)
        return;
    memcpy(bytes, &m->digest_low, 8);
    memcpy(bytes + 8, &m->digest_high, 8);
    digest_hex(digest, bytes, 16);
    str answer = library_checked_find(k, str_of(digest));
    if (!answer.len) {
        struct err why = {0};
        bool ok = k->o->check(k->o->ctx, &m->entry, &why);
        answer = ok ? STR("ok") : arena_copy(&k->l->arena, str_of(why.text));
        k->is_changed = true;
    }
    if (!str_eq_z(answer, "ok"))
        m->entry.broken = answer;
    library_checked_add(k, str_of(digest), answer);
}

static void library_check(struct library *l, const struct library_options *o)
{
    struct library_checked k = {.o = o, .l = l};
    struct err why = {0};
    map_init(&k.known, 1u << 20);
    buf_init(&k.now, LIBRARY_CHECKED_MAX);
    buf_printf(&k.now, "%s%s\n", LIBRARY_CHECKED_FORMAT, o->tag);
    library_checked_read(&k);
    for (uint32_t i = 0; i < l->scan.count; i++)
        library_check_model(&k, &l->scan.models[i]);
    while (o->own_only && k.known.count) { /* of stores that were not looked at */
        str digest = map_key(&k.known.entries[0]);
        library_checked_add(&k, digest, library_checked_find(&k, digest));
    }
    /* Without it the next listing is slower: not worth an error, e.g. on a read-only disk. */
    if (k.is_changed && !k.now.full && k.path.p && file_make_dirs(
        arena_copy(&l->arena, o->own).p, 0700, &why))
        (void)!file_write(k.path.p, buf_view(&k.now), 0600, &why);
    map_deinit(&k.known);
    buf_deinit(&k.now);
}

/* --- opening --- */

static bool library_scan_all(struct library *l, const struct library_options *o)
{
    struct library_scan_dir own = {o->own, LIBRARY_SOURCE_SHOAL, 0, {NULL, 0}};
    if (o->own.len && !library_scan_dir(&l->scan, &own))
        return false;
    if (o->own_only)
        return true;
    if (!library_foreign_ollama(&l->scan, o) || !library_foreign_hf(&l->scan, o) ||
        !library_foreign_lmstudio(&l->scan, o))
        return false;
    for (uint32_t i = 0; i < o->dirs_count; i++) {
        struct library_scan_dir d = {o->dirs[i], LIBRARY_SOURCE_DIR, 2, {NULL, 0}};
        if (!library_scan_dir(&l->scan, &d))
            return false;
    }
    return true;
}

static str library_lower(struct arena *a, str s)
{
    char *p = arena_alloc_text(a, s.len + 1);
    for (size_t i = 0; p && i < s.len; i++)
        p[i] = s.p[i] >= 'A' && s.p[i] <= 'Z' ? (char)(s.p[i] | 0x20) : s.p[i];
    return (str){p, p ? s.len : 0};
}

/* Models of other stores whose name is one of ours are reached by their path alone. */
static void library_shadow(struct library *l)
{
    struct library_scan *s = &l->scan;
    struct map own;
    uint32_t kept = 0;
    map_init(&own, LIBRARY_ENTRIES_MAX);
    for (uint32_t i = 0; i < s->count; i++) {
        str name = library_lower(&l->arena, s->models[i].entry.name);
        bool is_own = s->models[i].entry.source == LIBRARY_SOURCE_SHOAL;
        if (!is_own && map_find(&own, name))
            continue;
        if (is_own && !map_put(&own, name, 1))
            l->arena.is_full = true;
        s->models[kept++] = s->models[i];
    }
    s->count = kept;
    map_deinit(&own);
}

static int library_compare(const void *a, const void *b)
{
    const struct library_entry *x = &((const struct library_scan_model *)a)->entry;
    const struct library_entry *y = &((const struct library_scan_model *)b)->entry;
    if (x->modified_ns != y->modified_ns)
        return x->modified_ns > y->modified_ns ? -1 : 1;
    int order = str_cmp(x->name, y->name);
    return order ? order : str_cmp(x->path, y->path);
}

bool library_open(struct library **out, const struct library_options *o, struct err *e)
{
    struct library *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ERR_MEMORY, "models: no memory for the list");
    arena_init(&l->arena, LIBRARY_ARENA_MAX);
    l->scan.arena = &l->arena;
    l->scan.e = e;
    l->scan.size = LIBRARY_ENTRIES_MAX;
    /* Address space alone: only what is used becomes resident. */
    l->scan.models = calloc(LIBRARY_ENTRIES_MAX, sizeof *l->scan.models);
    bool ok = l->scan.models && library_scan_all(l, o);
    if (!l->scan.models)
        err_set(e, ERR_MEMORY, "models: no memory for the list");
    if (ok) {
        library_shadow(l);
        if (o->check)
            library_check(l, o);
        if (l->scan.count)
            qsort(l->scan.models, l->scan.count, sizeof *l->scan.models, library_compare);
        ok = !l->arena.is_full || err_set(e, ERR_MEMORY, "models: no memory for the list");
    }
    if (!ok) {
        library_close(l);
        return false;
    }
    *out = l;
    return true;
}

void library_close(struct library *l)
{
    if (!l)
        return;
    arena_deinit(&l->arena);
    free(l->scan.models);
    free(l);
}

/* --- the files of a model --- */

struct library_listing {
    struct arena *a;
    str *files;
    uint32_t count, size;
};

static void library_list(struct library_listing *k, str path)
{
    if (k->count == k->size) {
        uint32_t size = k->size ? k->size * 2 : 16;
        str *files = ARENA_ARRAY(k->a, str, size);
        if (!files)
            return; /* the arena says so */
        if (k->count)
            memcpy(files, k->files, k->count * sizeof *files);
        k->files = files;
        k->size = size;
    }
    k->files[k->count++] = path;
}

static bool library_on_listed(void *ctx, const struct file_entry *entry)
{
    struct library_listing *k = ctx;
    if (!entry->info.is_dir)
        library_list(k, arena_copy(k->a, str_of(entry->path)));
    return false;
}

/* A file of ours and what a pull keeps beside it. */
static void library_list_file(struct library_listing *k, str dir, str name)
{
    str paths[] = {
        arena_printf(k->a, "%.*s/%.*s", STR_ARG(dir), STR_ARG(name)),
        pull_file_part_path(k->a, dir, name),
        pull_file_state_path(k->a, dir, name),
    };
    for (size_t i = 0; i < countof(paths); i++)
        if (paths[i].p && access(paths[i].p, F_OK) == 0)
            library_list(k, paths[i]);
}

bool library_files(const struct library_entry *entry, struct arena *a, const str **out,
                   uint32_t *count, struct err *e)
{
    struct library_listing k = {.a = a};
    struct library_scan_piece piece;
    if (entry->is_safetensors) {
        struct file_walk w = {0, LIBRARY_FILES_MAX, library_on_listed, &k};
        if (!file_walk(entry->path.p, &w, e))
            return false;
    } else {
        str dir = file_dir_name(entry->path), name = file_base_name(entry->path);
        bool is_set = library_scan_parse_piece(name, &piece);
        for (uint32_t i = 1; is_set && i <= piece.total; i++)
            library_list_file(&k, dir, arena_printf(a, "%.*s-%05u-of-%05u.gguf",
                                                    STR_ARG(piece.base), i, piece.total));
        if (!is_set)
            library_list_file(&k, dir, name);
    }
    *out = k.files;
    *count = k.count;
    return !a->is_full || err_set(e, ERR_MEMORY, "models: no memory for a list of files");
}

/* --- finding --- */

struct library_match {
    const struct library_entry *first;
    uint32_t count;
    struct buf names; /* of the candidates */
};

static void library_match_add(struct library_match *m, const struct library_entry *e)
{
    if (m->count++ == 0)
        m->first = e;
    if (m->count <= LIBRARY_NEAR_MAX)
        buf_printf(&m->names, "%s%.*s", m->count > 1 ? ", " : "", STR_ARG(e->name));
}

static void library_match_clear(struct library_match *m)
{
    m->count = 0;
    buf_clear(&m->names);
}

static bool library_is_prefix(str prefix, str name)
{
    return prefix.len && str_eq_nocase(prefix, str_sub(name, 0, prefix.len));
}

/* Exact name or file name first: two files of one name are ambiguous, a name that begins with
 * another's is not. */
static bool library_match_name(const struct library *l, str name, bool by_prefix,
                               struct library_match *m)
{
    library_match_clear(m);
    for (uint32_t i = 0; i < l->scan.count; i++) {
        const struct library_entry *e = &l->scan.models[i].entry;
        if (by_prefix ? library_is_prefix(name, e->name)
                      : str_eq_nocase(name, e->name) || str_eq_nocase(name, e->file_name))
            library_match_add(m, e);
    }
    return m->count > 0;
}

static bool library_match_latest(const struct library *l, str name, struct arena *a,
                                 struct library_match *m)
{
    if (str_ends(name, STR(":latest")))
        return library_match_name(l, str_sub(name, 0, name.len - 7), false, m);
    str longer = arena_printf(a, "%.*s:latest", STR_ARG(name));
    return longer.p && library_match_name(l, longer, false, m);
}

/* Follows aliases; config has checked that they do not lead back, the count bounds them anyway. */
static bool library_match_alias(const struct library *l, const struct library_query *q,
                                struct arena *a, struct library_match *m)
{
    str name = q->name;
    for (uint32_t step = 0; step < q->aliases_count; step++) {
        bool found = false;
        for (uint32_t i = 0; i + 1 < q->aliases_count && !found; i += 2)
            if (str_glob(q->aliases[i], name)) {
                name = q->aliases[i + 1];
                found = true;
            }
        if (!found)
            return false;
        if (library_match_name(l, name, false, m) || library_match_latest(l, name, a, m))
            return true;
    }
    return false;
}

static bool library_is_path(str name)
{
    return str_find_byte(name, '/') != STR_NONE || str_ends(name, STR(".gguf"));
}

/* A directory is a model if it says what it is: config.json. */
static bool library_is_safetensors(str path, const struct file_info *info, struct arena *a)
{
    struct file_info config;
    struct err why;
    str name = info->is_dir ? arena_printf(a, "%.*s/config.json", STR_ARG(path)) : (str){NULL, 0};
    return name.p && file_stat(&config, name.p, &why);
}

/* However it is spelt, and through links: two names of one file are one model. */
static bool library_is_file(const struct library_entry *entry, const struct file_info *info)
{
    struct file_info other;
    struct err why;
    return entry->size == info->size && file_stat(&other, entry->path.p, &why) &&
           other.device == info->device && other.inode == info->inode;
}

static bool library_find_path(const struct library *l, str name, struct arena *a,
                              struct library_entry *out)
{
    struct file_info info;
    struct err why;
    str path = library_is_path(name) ? arena_copy(a, name) : (str){NULL, 0};
    if (!path.p || !file_stat(&info, path.p, &why))
        return false;
    for (uint32_t i = 0; i < l->scan.count; i++)
        if (str_eq(l->scan.models[i].entry.path, path) ||
            library_is_file(&l->scan.models[i].entry, &info)) {
            *out = l->scan.models[i].entry;
            return true;
        }
    str base = file_base_name(path);
    *out = (struct library_entry){
        .name = str_ends(base, STR(".gguf")) ? str_sub(base, 0, base.len - 5) : base,
        .path = path,
        .file_name = base,
        .source = LIBRARY_SOURCE_DIR,
        .is_safetensors = library_is_safetensors(path, &info, a),
        .is_directory = info.is_dir && !library_is_safetensors(path, &info, a),
        .size = info.size,
        .modified_ns = info.mtime_ns,
    };
    return true;
}

/* Names within a third of their length, the nearest first; or that contain what was asked for. As
 * an exact name they are compared without case. */
static bool library_not_found(const struct library *l, const struct library_query *q,
                              struct arena *a, struct err *e)
{
    str name = q->name;
    struct buf near;
    const char *what = q->is_cli && library_is_path(name) ? "no model or file" : "no model";
    uint32_t told = 0, limit = (uint32_t)base_min(name.len / 3 + 1, 8);
    struct file_info info;
    str path = q->is_cli && library_is_path(name) ? arena_copy(a, name) : (str){NULL, 0};
    if (path.p && !file_stat(&info, path.p, e) && e->code != ERR_NOT_FOUND)
        return false; /* it may well be there: a directory above it is closed to us */
    if (l->scan.count == 0)
        return err_set(e, ERR_NOT_FOUND, "%s \"%.*s\": there are no models yet", what,
                       STR_ARG(name));
    str asked = library_lower(a, name), *lower = ARENA_ARRAY(a, str, l->scan.count);
    if (!asked.p || !lower)
        return err_set(e, ERR_MEMORY, "no memory to look for a model");
    for (uint32_t i = 0; i < l->scan.count; i++)
        lower[i] = library_lower(a, l->scan.models[i].entry.name);
    buf_init(&near, 64 * 1024);
    for (uint32_t d = 0; d <= limit + 1 && told < LIBRARY_NEAR_MAX; d++)
        for (uint32_t i = 0; i < l->scan.count && told < LIBRARY_NEAR_MAX; i++) {
            str other = l->scan.models[i].entry.name;
            uint32_t distance = str_distance(asked, lower[i], limit);
            bool contains = distance > limit && str_find(lower[i], asked) != STR_NONE;
            if (distance == d && (d <= limit || contains))
                buf_printf(&near, "%s%.*s", told++ ? ", " : "", STR_ARG(other));
        }
    if (told)
        err_set(e, ERR_NOT_FOUND, "%s \"%.*s\"; near: %s", what, STR_ARG(name), near.p);
    else
        err_set(e, ERR_NOT_FOUND, "%s \"%.*s\"; `shoal list` shows what is there", what,
                STR_ARG(name));
    buf_deinit(&near);
    return false;
}

bool library_find(const struct library *l, const struct library_query *q, struct arena *a,
                  struct library_entry *out, struct err *e)
{
    struct library_match m = {0};
    buf_init(&m.names, 64 * 1024);
    bool ok = q->is_cli && library_find_path(l, q->name, a, out);
    if (!ok) {
        bool any = library_match_name(l, q->name, false, &m) ||
                   library_match_latest(l, q->name, a, &m) || library_match_alias(l, q, a, &m) ||
                   (q->is_cli && library_match_name(l, q->name, true, &m));
        ok = any && m.count == 1;
        if (ok)
            *out = *m.first;
        else if (any)
            err_set(e, ERR_REQUEST, "model \"%.*s\" is ambiguous: %s", STR_ARG(q->name), m.names.p);
        else
            library_not_found(l, q, a, e);
    }
    buf_deinit(&m.names);
    return ok;
}
