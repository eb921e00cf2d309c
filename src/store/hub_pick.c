#include "store/hub_pick.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "store/library_scan.h"

#define HUB_PICK_STANDARD "Q4_K_M"
#define HUB_PICK_LISTED 12u /* names in a sentence; the rest is counted */

static bool hub_pick_ends_nocase(str s, str suffix)
{
    return s.len >= suffix.len && str_eq_nocase(str_from(s, s.len - suffix.len), suffix);
}

static bool hub_pick_contains(str s, str what)
{
    for (size_t i = 0; i + what.len <= s.len; i++)
        if (str_eq_nocase(str_sub(s, i, what.len), what))
            return true;
    return false;
}

static bool hub_pick_is_gguf(str path) { return hub_pick_ends_nocase(path, STR(".gguf")); }
/* mmproj..., mtp-..., ...imatrix... */
static bool hub_pick_is_auxiliary(str path)
{
    return library_scan_is_auxiliary(file_base_name(path));
}

/* --- models of a repository --- */

struct hub_sorted {
    str path;
    uint32_t index;
};

static int hub_pick_compare(const void *a, const void *b)
{
    return str_cmp(((const struct hub_sorted *)a)->path, ((const struct hub_sorted *)b)->path);
}

static str hub_pick_stem(str path, struct library_scan_piece *piece)
{
    if (library_scan_parse_piece(path, piece))
        return piece->base;
    *piece = (struct library_scan_piece){.number = 1, .total = 1};
    return str_sub(path, 0, path.len - (sizeof ".gguf" - 1));
}

/* Sorted by path, the shards of a set lie together: grouping is by split name alone, because
 * repositories keep whole models in directories of their own, or not, as they like. */
static void hub_pick_group(struct hub_models *out, const struct hub_repo *repo,
                           const struct hub_sorted *sorted, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct library_scan_piece piece;
        str name = hub_pick_stem(sorted[i].path, &piece);
        uint64_t size = repo->files[sorted[i].index].size;
        struct hub_model *last = out->count ? &out->models[out->count - 1] : NULL;
        out->order[i] = sorted[i].index;
        if (last && last->shards_total == piece.total && piece.total > 1 &&
            str_eq(last->name, name)) {
            last->shards++;
            last->size = last->size == HUB_SIZE_UNKNOWN || size == HUB_SIZE_UNKNOWN ||
                                 size > HUB_SIZE_UNKNOWN - 1 - last->size
                             ? HUB_SIZE_UNKNOWN
                             : last->size + size;
        } else {
            out->models[out->count++] = (struct hub_model){name, i, 1, piece.total, size};
        }
    }
}

bool hub_pick_models(struct hub_models *out, const struct hub_repo *repo, struct arena *a,
                     struct err *e)
{
    size_t room = (size_t)repo->files_count + 1;
    struct hub_sorted *sorted = ARENA_ARRAY(a, struct hub_sorted, room);
    *out = (struct hub_models){
        .models = ARENA_ARRAY(a, struct hub_model, room),
        .order = ARENA_ARRAY(a, uint32_t, room),
    };
    if (!sorted || !out->models || !out->order)
        return err_set(e, ERR_MEMORY, "hub: no memory for %u files", repo->files_count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < repo->files_count; i++)
        if (hub_pick_is_gguf(repo->files[i].path) && !hub_pick_is_auxiliary(repo->files[i].path))
            sorted[count++] = (struct hub_sorted){repo->files[i].path, i};
    if (count)
        qsort(sorted, count, sizeof *sorted, hub_pick_compare);
    hub_pick_group(out, repo, sorted, count);
    return true;
}

/* --- choosing --- */

struct hub_choice {
    const struct hub_repo *repo;
    const struct hub_query *q;
    struct hub_models models;
    struct arena *a;
    struct err *e;
};

static bool hub_pick_refuse(const struct hub_choice *c, enum err_code code, const char *what,
                            str word, bool only_matches)
{
    struct buf names;
    uint32_t told = 0, left = 0;
    buf_init(&names, 4096);
    for (uint32_t i = 0; i < c->models.count; i++) {
        str name = c->models.models[i].name;
        if (only_matches && !hub_pick_contains(name, word))
            continue;
        if (told < HUB_PICK_LISTED && names.len < ERR_TEXT_MAX / 2)
            buf_printf(&names, "%s%.*s", told++ ? ", " : "", STR_ARG(file_base_name(name)));
        else
            left++;
    }
    if (left)
        buf_printf(&names, " and %u more", left);
    err_set(c->e, code, "%.*s: %s \"%.*s\"%s%s", STR_ARG(str_sub(c->q->repo, 0, 80)), what,
            STR_ARG(str_sub(word, 0, 60)), names.len ? "; there are: " : "",
            names.len ? names.p : "");
    buf_deinit(&names);
    return false;
}

/* The one model that is meant, or NULL (c->e). */
static const struct hub_model *hub_pick_quant(const struct hub_choice *c, str quant)
{
    const struct hub_model *found = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->models.count; i++) {
        const struct hub_model *m = &c->models.models[i];
        str base = file_base_name(m->name);
        str path = c->repo->files[c->models.order[m->first]].path;
        if (str_eq_nocase(base, quant) || str_eq_nocase(path, quant) ||
            str_eq_nocase(file_base_name(path), quant))
            return m;
        if (hub_pick_contains(m->name, quant)) {
            found = m;
            count++;
        }
    }
    if (count == 1)
        return found;
    if (count)
        hub_pick_refuse(c, ERR_REQUEST, "several files match", quant, true);
    else
        hub_pick_refuse(c, ERR_NOT_FOUND, "no GGUF file matches", quant, false);
    return NULL;
}

static const struct hub_model *hub_pick_standard(const struct hub_choice *c)
{
    for (uint32_t i = 0; i < c->models.count; i++)
        if (hub_pick_contains(c->models.models[i].name, STR(HUB_PICK_STANDARD)))
            return &c->models.models[i];
    return c->models.models;
}

static bool hub_pick_shards(struct hub_pick *out, const struct hub_choice *c,
                            const struct hub_model *m)
{
    if (m->shards != m->shards_total)
        return err_set(c->e, ERR_NOT_FOUND, "%.*s: %.*s has %u of %u pieces on the hub",
                       STR_ARG(c->q->repo), STR_ARG(str_sub(m->name, 0, 80)), m->shards,
                       m->shards_total);
    for (uint32_t i = 0; i < m->shards; i++)
        out->files[out->count++] = &c->repo->files[c->models.order[m->first + i]];
    return true;
}

static const struct hub_model *hub_pick_model_of(const struct hub_choice *c, uint32_t file)
{
    for (uint32_t i = 0; i < c->models.count; i++) {
        const struct hub_model *m = &c->models.models[i];
        for (uint32_t k = 0; k < m->shards; k++)
            if (c->models.order[m->first + k] == file)
                return m;
    }
    return NULL;
}

/* A file by name; one shard stands for its set. */
static bool hub_pick_file(struct hub_pick *out, const struct hub_choice *c)
{
    for (uint32_t i = 0; i < c->repo->files_count; i++) {
        str path = c->repo->files[i].path;
        if (!str_eq(path, c->q->file) && !str_eq(file_base_name(path), c->q->file))
            continue;
        if (!hub_pick_is_gguf(path))
            return err_set(c->e, ERR_UNSUPPORTED, "%.*s: %.*s is no GGUF file",
                           STR_ARG(c->q->repo), STR_ARG(str_sub(path, 0, 80)));
        const struct hub_model *m = hub_pick_model_of(c, i);
        if (m)
            return hub_pick_shards(out, c, m);
        out->files[out->count++] = &c->repo->files[i]; /* a projector, asked for by name */
        return true;
    }
    return hub_pick_refuse(c, ERR_NOT_FOUND, "no file", c->q->file, false);
}

static bool hub_pick_is_part(str path)
{
    static const char *const names[] = {
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer.model",
        "tokenizer_config.json", "chat_template.jinja", "model.safetensors.index.json",
    };
    if (str_find_byte(path, '/') != STR_NONE)
        return false; /* e.g. the same weights in another form */
    for (size_t i = 0; i < countof(names); i++)
        if (str_eq_z(path, names[i]))
            return true;
    return str_ends(path, STR(".safetensors"));
}

static bool hub_pick_directory(struct hub_pick *out, const struct hub_choice *c)
{
    bool has_config = false, has_weights = false;
    str type = c->repo->model_type;
    for (uint32_t i = 0; i < c->repo->files_count; i++) {
        const struct hub_file *f = &c->repo->files[i];
        if (!hub_pick_is_part(f->path))
            continue;
        has_config = has_config || str_eq_z(f->path, "config.json");
        has_weights = has_weights || str_ends(f->path, STR(".safetensors"));
        out->files[out->count++] = f;
    }
    if (!has_weights)
        return err_set(c->e, ERR_NOT_FOUND, "%.*s: no GGUF and no safetensors files",
                       STR_ARG(c->q->repo));
    if (!has_config || !type.len || !c->q->supports || !c->q->supports(c->q->ctx, type))
        return err_set(c->e, ERR_UNSUPPORTED, "%.*s: no GGUF files, and safetensors of model type "
                       "\"%.*s\" are not supported; `shoal can-run` looks for conversions",
                       STR_ARG(c->q->repo), STR_ARG(str_sub(type, 0, 40)));
    out->is_directory = true;
    return true;
}

/* F16 by preference: a projector is small, and its quantised forms cost quality. */
static bool hub_pick_projector(struct hub_pick *out, const struct hub_choice *c)
{
    const struct hub_file *first = NULL, *f16 = NULL;
    for (uint32_t i = 0; i < c->repo->files_count; i++) {
        const struct hub_file *f = &c->repo->files[i];
        str base = file_base_name(f->path);
        if (!hub_pick_is_gguf(base) || !str_starts(base, STR("mmproj")))
            continue;
        size_t at = str_find(base, STR("F16")) != STR_NONE ? str_find(base, STR("F16"))
                                                            : str_find(base, STR("f16"));
        bool is_f16 = at != STR_NONE && (at == 0 || (base.p[at - 1] | 0x20) != 'b'); /* no BF16 */
        first = first ? first : f;
        f16 = f16 ? f16 : is_f16 ? f : NULL;
    }
    if (!first)
        return err_set(c->e, ERR_NOT_FOUND, "%.*s: no projector (mmproj) in this repository",
                       STR_ARG(c->q->repo));
    out->files[out->count++] = f16 ? f16 : first;
    out->has_projector = true;
    return true;
}

bool hub_pick(struct hub_pick *out, const struct hub_repo *repo, const struct hub_query *q,
              struct arena *a, struct err *e)
{
    struct hub_choice c = {.repo = repo, .q = q, .a = a, .e = e};
    if (!hub_pick_models(&c.models, repo, a, e))
        return false;
    *out = (struct hub_pick){
        .files = ARENA_ARRAY(a, const struct hub_file *, (size_t)repo->files_count + 2)};
    if (!out->files)
        return err_set(e, ERR_MEMORY, "hub: no memory for %u files", repo->files_count);
    bool ok;
    if (q->file.len) {
        ok = hub_pick_file(out, &c);
    } else if (q->quant.len) {
        const struct hub_model *m = hub_pick_quant(&c, q->quant);
        ok = m && hub_pick_shards(out, &c, m);
    } else if (c.models.count) {
        ok = hub_pick_shards(out, &c, hub_pick_standard(&c));
    } else {
        ok = hub_pick_directory(out, &c);
    }
    return ok && (!q->wants_projector || hub_pick_projector(out, &c));
}
