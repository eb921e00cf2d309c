#include "store/library_scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/file.h"
#include "store/pull_state.h"

/* Files of one directory are handed over together: sets and projectors never span directories. */
struct library_scan_file {
    str path, name; /* name: without directory */
    uint64_t size, received;
    int64_t modified_ns;
    bool is_partial; /* path is where it will be; its journal is what there is */
    struct library_scan_model *model; /* it became, or joined */
};

struct library_scan_walk {
    struct library_scan *s;
    const struct library_scan_dir *d;
    struct library_scan_file *files; /* in the order of the walk: a directory's lie together */
    uint32_t count, size;
    bool is_broken; /* memory */
};

/* --- names --- */

static bool library_scan_digits(str s, uint32_t *out)
{
    uint64_t v;
    if (s.len != 5 || !str_to_u64(s, &v))
        return false;
    *out = (uint32_t)v;
    return true;
}

bool library_scan_parse_piece(str name, struct library_scan_piece *out)
{
    static const size_t tail = sizeof "-00001-of-00003.gguf" - 1;
    if (name.len <= tail || !str_ends(name, STR(".gguf")))
        return false;
    str t = str_from(name, name.len - tail);
    out->base = str_sub(name, 0, name.len - tail);
    return t.p[0] == '-' && str_eq_z(str_sub(t, 6, 4), "-of-") &&
           library_scan_digits(str_sub(t, 1, 5), &out->number) &&
           library_scan_digits(str_sub(t, 10, 5), &out->total) && out->number >= 1 &&
           out->number <= out->total;
}

bool library_scan_is_auxiliary(str name)
{
    return str_starts(name, STR("mmproj")) || str_starts(name, STR("mtp-")) ||
           str_find(name, STR("imatrix")) != STR_NONE;
}

static str library_scan_stem(str name)
{
    return str_ends(name, STR(".gguf")) ? str_sub(name, 0, name.len - 5) : name;
}

/* --- the list --- */

struct library_scan_model *library_scan_add(struct library_scan *s, enum library_source source)
{
    if (s->count == LIBRARY_ENTRIES_MAX) {
        err_set(s->e, ERR_LIMIT, "models: more than %u in all stores", LIBRARY_ENTRIES_MAX);
        return NULL;
    }
    must(s->count < s->size); /* library_open makes room for all at once: models never move */
    struct library_scan_model *m = &s->models[s->count++];
    *m = (struct library_scan_model){.entry.source = source};
    return m;
}

void library_scan_add_piece(struct library_scan_model *m, str path, uint64_t size,
                            int64_t modified_ns)
{
    struct digest_128 d = digest_xxh3_128(path, m->digest_low ^ size);
    m->digest_low = d.low;
    m->digest_high = (m->digest_high ^ d.high) * 31 + (uint64_t)modified_ns;
    m->entry.size += size;
    if (modified_ns > m->entry.modified_ns)
        m->entry.modified_ns = modified_ns;
}

void library_scan_note(struct library_scan *s, const struct err *why)
{
    if (s->notes_count < LIBRARY_SCAN_NOTES_MAX)
        s->notes[s->notes_count++] = arena_copy(s->arena, str_of(why->text));
}

/* --- downloads that are not finished --- */

/* The file that a journal speaks of; false: not a journal of ours. */
static bool library_scan_read_state(struct library_scan *s, const struct file_entry *entry,
                                    struct library_scan_file *out)
{
    struct pull_state state;
    struct err why = {0};
    str text, name;
    size_t end;
    if (!entry->info.is_file || !pull_state_name(entry->name, &name) ||
        !file_read(&text, entry->path, PULL_STATE_SIZE_MAX, s->arena, &why) ||
        !pull_state_read(&state, text, &end, s->arena, &why))
        return false;
    str path = arena_printf(s->arena, "%.*s/%.*s", STR_ARG(file_dir_name(str_of(entry->path))),
                            STR_ARG(name));
    *out = (struct library_scan_file){
        .path = path,
        .name = file_base_name(path),
        .size = state.size,
        .received = pull_state_received(&state),
        .modified_ns = entry->info.mtime_ns,
        .is_partial = true,
    };
    return true;
}

/* Which part of the model the file is, or will be. */
static void library_scan_join(struct library_scan_model *m, const struct library_scan_file *f)
{
    library_scan_add_piece(m, f->path, f->size, f->modified_ns);
    m->entry.received += f->is_partial ? f->received : f->size;
    m->entry.is_partial = m->entry.is_partial || f->is_partial;
}

static void library_scan_set_partial(struct library_scan *s, struct library_scan_model *m)
{
    struct buf b;
    if (!m->entry.is_partial)
        return;
    buf_init(&b, 256);
    buf_add_z(&b, "unfinished: ");
    buf_add_size(&b, m->entry.received);
    buf_add_z(&b, " of ");
    buf_add_size(&b, m->entry.size);
    buf_add_z(&b, " are here, `shoal pull` goes on");
    m->entry.broken = arena_copy(s->arena, buf_view(&b));
    buf_deinit(&b);
}

/* --- files to models --- */

static struct library_scan_model *library_scan_new(struct library_scan_walk *w,
                                                   struct library_scan_file *f, str name)
{
    struct library_scan_model *m = library_scan_add(w->s, w->d->source);
    if (!m)
        return NULL;
    m->entry.name = arena_copy(w->s->arena, name);
    m->entry.path = f->path;
    m->entry.file_name = f->name;
    return m;
}

/* All pieces of one set in files[first .. end): sorted by name, so they lie together. */
static bool library_scan_add_set(struct library_scan_walk *w, uint32_t first, uint32_t end,
                                 const struct library_scan_piece *p)
{
    struct library_scan_file *files = w->files + first;
    struct library_scan_model *m = library_scan_new(w, files, p->base);
    if (!m)
        return false;
    uint32_t expected = 1;
    for (uint32_t i = 0; i < end - first; i++) {
        struct library_scan_piece piece;
        must(library_scan_parse_piece(files[i].name, &piece));
        library_scan_join(m, &files[i]);
        files[i].model = m;
        expected += piece.number == expected;
    }
    if (expected <= p->total)
        m->entry.broken = arena_printf(w->s->arena, "piece %u of %u is missing (%.*s-%05u-of-%05u"
                                       ".gguf)", expected, p->total, STR_ARG(p->base), expected,
                                       p->total);
    library_scan_set_partial(w->s, m);
    return true;
}

static bool library_scan_same_set(const struct library_scan_piece *a, str name)
{
    struct library_scan_piece b;
    return library_scan_parse_piece(name, &b) && str_eq(a->base, b.base) && a->total == b.total;
}

static bool library_scan_add_files(struct library_scan_walk *w, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end;) {
        struct library_scan_file *f = &w->files[i];
        struct library_scan_piece piece;
        uint32_t next = i + 1;
        if (library_scan_is_auxiliary(f->name)) {
            i = next;
            continue;
        }
        if (library_scan_parse_piece(f->name, &piece)) {
            while (next < end && library_scan_same_set(&piece, w->files[next].name))
                next++;
            if (!library_scan_add_set(w, i, next, &piece))
                return false;
        } else {
            f->model = library_scan_new(w, f, library_scan_stem(f->name));
            if (!f->model)
                return false;
            library_scan_join(f->model, f);
            library_scan_set_partial(w->s, f->model);
        }
        i = next;
    }
    return true;
}

static size_t library_scan_common(str a, str b)
{
    size_t n = 0;
    while (n < a.len && n < b.len && (a.p[n] | 0x20) == (b.p[n] | 0x20))
        n++;
    return n;
}

/* The auxiliary file goes to the model of its directory that shares the longest beginning with
 * what follows "mmproj-" or "mtp-"; several quantisations of one model share it equally. */
static void library_scan_assign(struct library_scan_walk *w, uint32_t first, uint32_t end,
                                const struct library_scan_file *aux)
{
    bool is_draft = str_starts(aux->name, STR("mtp-"));
    str rest = str_from(aux->name, is_draft ? 4 : sizeof "mmproj" - 1);
    size_t best = 1, n;
    while (rest.len && (rest.p[0] == '-' || rest.p[0] == '_'))
        rest = str_from(rest, 1);
    for (uint32_t i = first; i < end; i++)
        if (w->files[i].model && (n = library_scan_common(w->files[i].name, rest)) > best)
            best = n;
    for (uint32_t i = first; i < end; i++) {
        struct library_scan_model *m = w->files[i].model;
        if (!m || library_scan_common(w->files[i].name, rest) != best)
            continue;
        if (is_draft)
            m->entry.draft = aux->path;
        else
            m->entry.projector = aux->path;
    }
}

static bool library_scan_close_dir(struct library_scan_walk *w, uint32_t first, uint32_t end)
{
    if (!library_scan_add_files(w, first, end))
        return false;
    for (uint32_t i = first; i < end; i++) {
        const struct library_scan_file *f = &w->files[i];
        if (str_starts(f->name, STR("mmproj")) || str_starts(f->name, STR("mtp-")))
            library_scan_assign(w, first, end, f);
    }
    return true;
}

/* --- directories of safetensors --- */

struct library_scan_parts {
    struct library_scan_model *model;
    struct library_scan *s;
    bool has_config, has_weights;
};

static bool library_scan_on_part(void *ctx, const struct file_entry *entry)
{
    struct library_scan_parts *p = ctx;
    struct library_scan_file f = {.path = str_of(entry->path), .name = entry->name,
                                  .size = entry->info.size, .modified_ns = entry->info.mtime_ns};
    if (!entry->info.is_file ||
        (str_ends(f.name, STR(".state")) && !library_scan_read_state(p->s, entry, &f)))
        return false;
    bool is_weights = str_ends(f.name, STR(".safetensors"));
    p->has_config = p->has_config || str_eq_z(f.name, "config.json");
    p->has_weights = p->has_weights || is_weights;
    if (is_weights || str_ends(f.name, STR(".json")))
        library_scan_join(p->model, &f);
    return false;
}

/* Adds dir as a model if it holds config.json and weights. */
static bool library_scan_add_safetensors(struct library_scan_walk *w, const char *dir, str name)
{
    struct library_scan_model m = {.entry.source = w->d->source};
    struct library_scan_parts parts = {.model = &m, .s = w->s};
    struct file_walk walk = {0, LIBRARY_FILES_MAX, library_scan_on_part, &parts};
    struct err why = {0};
    if (!file_walk(dir, &walk, &why) || !parts.has_config || !parts.has_weights)
        return true;
    struct library_scan_model *added = library_scan_add(w->s, w->d->source);
    if (!added)
        return false;
    *added = m;
    added->entry.path = arena_copy(w->s->arena, str_of(dir));
    added->entry.name = arena_copy(w->s->arena, name);
    added->entry.file_name = added->entry.name;
    added->entry.is_safetensors = true;
    library_scan_set_partial(w->s, added);
    return true;
}

/* --- walking --- */

static bool library_scan_grow(struct library_scan_walk *w)
{
    if (w->count < w->size)
        return true;
    uint32_t size = w->size ? w->size * 2 : 64;
    struct library_scan_file *files = realloc(w->files, size * sizeof *files);
    if (!files)
        return false;
    w->files = files;
    w->size = size;
    return true;
}

static bool library_scan_on_entry(void *ctx, const struct file_entry *entry)
{
    struct library_scan_walk *w = ctx;
    bool is_hidden = entry->name.len && entry->name.p[0] == '.';
    struct library_scan_file f;
    if (entry->info.is_dir)
        return !is_hidden;
    if (!entry->info.is_file || w->is_broken)
        return false;
    if (is_hidden) {
        if (!library_scan_read_state(w->s, entry, &f) || !str_ends(f.name, STR(".gguf")))
            return false;
    } else {
        if (!str_ends(entry->name, STR(".gguf")))
            return false;
        str path = arena_copy(w->s->arena, str_of(entry->path));
        f = (struct library_scan_file){
            .path = path,
            .name = file_base_name(path),
            .size = entry->info.size,
            .modified_ns = entry->info.mtime_ns,
        };
    }
    if (library_scan_grow(w))
        w->files[w->count++] = f;
    else
        w->is_broken = true;
    return false;
}

static bool library_scan_on_dir(void *ctx, const struct file_entry *entry)
{
    struct library_scan_walk *w = ctx;
    bool is_hidden = entry->name.len && entry->name.p[0] == '.';
    if (!entry->info.is_dir || is_hidden)
        return false;
    if (!w->is_broken && !library_scan_add_safetensors(w, entry->path, entry->name))
        w->is_broken = true;
    return true;
}

static int library_scan_by_dir(const void *a, const void *b)
{
    const struct library_scan_file *x = a, *y = b;
    int order = str_cmp(file_dir_name(x->path), file_dir_name(y->path));
    order = order ? order : str_cmp(x->name, y->name);
    return order ? order : (int)x->is_partial - (int)y->is_partial;
}

/* A model that is whole stays what it is while a newer version of it comes. */
static void library_scan_drop_updates(struct library_scan_walk *w)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->count; i++)
        if (!w->files[i].is_partial || !kept ||
            !str_eq(w->files[kept - 1].path, w->files[i].path))
            w->files[kept++] = w->files[i];
    w->count = kept;
}

static bool library_scan_group(struct library_scan_walk *w)
{
    if (w->count)
        qsort(w->files, w->count, sizeof *w->files, library_scan_by_dir);
    library_scan_drop_updates(w);
    for (uint32_t first = 0, end; first < w->count; first = end) {
        str dir = file_dir_name(w->files[first].path);
        for (end = first + 1; end < w->count; end++)
            if (!str_eq(dir, file_dir_name(w->files[end].path)))
                break;
        if (!library_scan_close_dir(w, first, end))
            return false;
    }
    return true;
}

bool library_scan_dir(struct library_scan *s, const struct library_scan_dir *d)
{
    struct library_scan_walk w = {.s = s, .d = d};
    struct file_walk files = {d->depth, LIBRARY_FILES_MAX, library_scan_on_entry, &w};
    struct file_walk dirs = {d->depth, LIBRARY_FILES_MAX, library_scan_on_dir, &w};
    struct err why = {0};
    bool ok = true;
    str path = arena_copy(s->arena, d->path);
    if (!path.p)
        return err_set(s->e, ERR_MEMORY, "models: no memory for the list");
    if (!file_walk(path.p, &files, &why) || !file_walk(path.p, &dirs, &why)) {
        if (why.code != ERR_NOT_FOUND)
            library_scan_note(s, &why);
    }
    ok = !w.is_broken && library_scan_group(&w);
    if (ok && d->dir_name.len)
        ok = library_scan_add_safetensors(&w, path.p, d->dir_name);
    if (w.is_broken || s->arena->is_full)
        ok = err_set(s->e, ERR_MEMORY, "models: no memory for the list");
    free(w.files);
    return ok;
}
