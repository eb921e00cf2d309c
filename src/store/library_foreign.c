#include "store/library_foreign.h"

#include <string.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"

#define LIBRARY_MANIFEST_MAX ((size_t)1 << 20)
#define LIBRARY_BLOB_LARGE ((uint64_t)1 << 20) /* a store with one holds real weights */

static bool library_foreign_is_dir(str path)
{
    struct file_info info;
    struct err why;
    return path.p && file_stat(&info, path.p, &why) && info.is_dir;
}

/* The setting's directory, or the first of the usual places that is there. Empty: none. */
static str library_foreign_place(struct library_scan *s, str setting, const str *usual,
                                 size_t count)
{
    if (str_eq_z(setting, "off"))
        return (str){NULL, 0};
    if (!str_eq_z(setting, "auto"))
        return setting;
    for (size_t i = 0; i < count; i++) {
        str path = usual[i].len ? arena_copy(s->arena, usual[i]) : (str){NULL, 0};
        if (library_foreign_is_dir(path))
            return path;
    }
    return (str){NULL, 0};
}

static str library_foreign_in_home(struct library_scan *s, const struct library_options *o,
                                   const char *below)
{
    return o->home.len ? file_join(s->arena, o->home, str_of(below)) : (str){NULL, 0};
}

/* --- Ollama ---
 *
 *     manifests/REGISTRY/NS/NAME/TAG   JSON: layers[] {mediaType, digest, size}
 *     blobs/sha256-HEX                 the layers
 */

struct library_ollama {
    struct library_scan *s;
    str root;
    bool is_broken;
};

static bool library_foreign_on_blob(void *ctx, const struct file_entry *entry)
{
    bool *has_large = ctx;
    *has_large = *has_large || (entry->info.is_file && entry->info.size > LIBRARY_BLOB_LARGE);
    return false;
}

static bool library_foreign_has_weights(struct library_scan *s, str root)
{
    bool has_large = false;
    struct err why;
    struct file_walk w = {0, LIBRARY_FILES_MAX, library_foreign_on_blob, &has_large};
    str blobs = file_join(s->arena, root, STR("blobs"));
    return blobs.p && file_walk(blobs.p, &w, &why) && has_large;
}

/* Of the places with manifests the first with real weights, else the first. */
static str library_foreign_ollama_root(struct library_scan *s, const struct library_options *o)
{
    const str usual[] = {
        o->ollama_models,
        library_foreign_in_home(s, o, ".ollama/models"),
        STR("/usr/share/ollama/.ollama/models"),
        STR("/var/lib/ollama/models"),
    };
    str first = {NULL, 0};
    if (!str_eq_z(o->ollama, "auto"))
        return library_foreign_place(s, o->ollama, NULL, 0);
    for (size_t i = 0; i < countof(usual); i++) {
        if (!usual[i].len ||
            !library_foreign_is_dir(file_join(s->arena, usual[i], STR("manifests"))))
            continue;
        if (library_foreign_has_weights(s, usual[i]))
            return usual[i];
        if (!first.len)
            first = usual[i];
    }
    return first;
}

/* Path of a layer's blob if it is there with its whole size. */
static str library_foreign_blob(struct library_ollama *k, struct json layer, struct file_info *info)
{
    struct err why;
    uint64_t size;
    uint8_t bytes[32];
    str digest = json_text(json_member(layer, "digest"), k->s->arena);
    if (!str_starts(digest, STR("sha256:")) || !digest_unhex(bytes, 32, str_from(digest, 7)) ||
        !json_u64(json_member(layer, "size"), &size) || size == 0)
        return (str){NULL, 0};
    str path = arena_printf(k->s->arena, "%.*s/blobs/sha256-%.*s", STR_ARG(k->root),
                            STR_ARG(str_from(digest, 7)));
    bool is_whole = path.p && file_stat(info, path.p, &why) && info->is_file && info->size == size;
    return is_whole ? path : (str){NULL, 0};
}

/* "NAME:TAG", with "NS/" before it unless that is Ollama's own library. relative is
 * REGISTRY/NS/NAME/TAG. */
static str library_foreign_ollama_name(struct library_scan *s, str relative)
{
    str registry, ns, name, rest = relative;
    if (!str_split(&rest, '/', &registry) || !str_split(&rest, '/', &ns) ||
        !str_split(&rest, '/', &name) || !rest.len || str_find_byte(rest, '/') != STR_NONE)
        return (str){NULL, 0};
    if (str_eq_z(ns, "library"))
        return arena_printf(s->arena, "%.*s:%.*s", STR_ARG(name), STR_ARG(rest));
    return arena_printf(s->arena, "%.*s/%.*s:%.*s", STR_ARG(ns), STR_ARG(name), STR_ARG(rest));
}

static bool library_foreign_add_ollama(struct library_ollama *k, str name, struct json layers,
                                       int64_t modified_ns)
{
    struct library_entry found = {.name = name};
    struct file_info info;
    uint64_t size = 0;
    for (struct json_walk w = json_walk(layers); json_next(&w);) {
        str type = json_text(json_member(w.value, "mediaType"), k->s->arena);
        str path = library_foreign_blob(k, w.value, &info);
        if (!path.p)
            continue;
        if (str_ends(type, STR(".image.model")) && !found.path.p) {
            found.path = path;
            size = info.size;
        } else if (str_ends(type, STR(".image.projector"))) {
            found.projector = path;
        } else if (str_ends(type, STR(".image.params"))) {
            found.params = path;
        } else if (str_ends(type, STR(".image.system"))) {
            found.system = path;
        }
    }
    if (!found.path.p)
        return true; /* a cloud entry, or weights that are not here */
    struct library_scan_model *m = library_scan_add(k->s, LIBRARY_SOURCE_OLLAMA);
    if (!m)
        return false;
    found.source = LIBRARY_SOURCE_OLLAMA;
    found.file_name = name;
    m->entry = found;
    library_scan_add_piece(m, found.path, size, modified_ns);
    return true;
}

static bool library_foreign_on_manifest(void *ctx, const struct file_entry *entry)
{
    struct library_ollama *k = ctx;
    struct library_scan *s = k->s;
    struct json_options options = {.depth_max = 32};
    struct json manifest;
    struct err why = {0};
    str text, path = str_of(entry->path);
    if (entry->info.is_dir)
        return true;
    if (entry->depth != 3 || k->is_broken || !entry->info.is_file)
        return false;
    str relative = str_from(path, k->root.len + sizeof "/manifests/" - 1);
    str name = library_foreign_ollama_name(s, relative);
    if (!name.p)
        return false;
    if (!file_read(&text, entry->path, LIBRARY_MANIFEST_MAX, s->arena, &why) ||
        !json_parse(&manifest, text, &options, s->arena, &why)) {
        struct library_scan_model *m = library_scan_add(s, LIBRARY_SOURCE_OLLAMA);
        k->is_broken = !m;
        if (m) {
            m->entry.name = m->entry.file_name = name;
            m->entry.path = arena_copy(s->arena, path);
            m->entry.broken = arena_printf(s->arena, "manifest: %s", why.text);
            m->entry.modified_ns = entry->info.mtime_ns;
        }
        return false;
    }
    struct json layers = json_member(manifest, "layers");
    k->is_broken = !library_foreign_add_ollama(k, name, layers, entry->info.mtime_ns);
    return false;
}

bool library_foreign_ollama(struct library_scan *s, const struct library_options *o)
{
    struct err why = {0};
    struct library_ollama k = {.s = s, .root = library_foreign_ollama_root(s, o)};
    struct file_walk w = {3, LIBRARY_FILES_MAX, library_foreign_on_manifest, &k};
    if (!k.root.len)
        return true;
    str manifests = file_join(s->arena, k.root, STR("manifests"));
    if (manifests.p && !file_walk(manifests.p, &w, &why) && why.code != ERR_NOT_FOUND)
        library_scan_note(s, &why);
    return !k.is_broken;
}

/* --- Hugging Face hub cache ---
 *
 *     models--OWNER--NAME/refs/main               REV
 *     models--OWNER--NAME/snapshots/REV/FILES     links into ../../blobs
 */

struct library_hf {
    struct library_scan *s;
    bool is_broken;
};

/* "models--owner--name" to "owner/name"; names without owner stay as they are. */
static str library_foreign_repo(struct library_scan *s, str folder)
{
    str rest = str_from(folder, sizeof "models--" - 1);
    size_t at = str_find(rest, STR("--"));
    if (at == STR_NONE)
        return arena_copy(s->arena, rest);
    return arena_printf(s->arena, "%.*s/%.*s", STR_ARG(str_sub(rest, 0, at)),
                        STR_ARG(str_from(rest, at + 2)));
}

static bool library_foreign_on_repo(void *ctx, const struct file_entry *entry)
{
    struct library_hf *k = ctx;
    struct library_scan *s = k->s;
    struct err why = {0};
    str revision;
    if (!entry->info.is_dir || !str_starts(entry->name, STR("models--")) || k->is_broken)
        return false;
    str ref = arena_printf(s->arena, "%s/refs/main", entry->path);
    if (!ref.p || !file_read(&revision, ref.p, 256, s->arena, &why)) {
        if (why.code != ERR_NOT_FOUND) /* only other revisions were fetched */
            library_scan_note(s, &why);
        return false;
    }
    revision = str_trim(revision);
    if (!revision.len || str_find_byte(revision, '/') != STR_NONE || revision.p[0] == '.')
        return false;
    str path = arena_printf(s->arena, "%s/snapshots/%.*s", entry->path, STR_ARG(revision));
    struct library_scan_dir d = {path, LIBRARY_SOURCE_HF, 2, library_foreign_repo(s, entry->name)};
    k->is_broken = !library_scan_dir(s, &d);
    return false;
}

bool library_foreign_hf(struct library_scan *s, const struct library_options *o)
{
    struct err why = {0};
    struct library_hf k = {.s = s};
    const str usual[] = {
        o->hf_hub_cache,
        o->hf_home.len ? file_join(s->arena, o->hf_home, STR("hub")) : (str){NULL, 0},
        library_foreign_in_home(s, o, ".cache/huggingface/hub"),
    };
    str root = library_foreign_place(s, o->hf, usual, countof(usual));
    struct file_walk w = {0, LIBRARY_FILES_MAX, library_foreign_on_repo, &k};
    if (root.len && !file_walk(root.p, &w, &why) && why.code != ERR_NOT_FOUND)
        library_scan_note(s, &why);
    return !k.is_broken;
}

/* --- LM Studio: OWNER/REPO/FILES --- */

bool library_foreign_lmstudio(struct library_scan *s, const struct library_options *o)
{
    const str usual[] = {
        library_foreign_in_home(s, o, ".lmstudio/models"),
        library_foreign_in_home(s, o, ".cache/lm-studio/models"),
    };
    str root = library_foreign_place(s, o->lmstudio, usual, countof(usual));
    struct library_scan_dir d = {root, LIBRARY_SOURCE_LMSTUDIO, 2, {NULL, 0}};
    return !root.len || library_scan_dir(s, &d);
}
