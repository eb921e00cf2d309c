#include "fmt/model_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "fmt/gguf.h"

#define MODEL_PATH_MAX 4096

struct model_file_shard {
    struct file file;
    struct gguf gguf;
    bool is_open;
};

struct model_file {
    struct model_file_shard *shards; /* in order of split.no; metadata is that of the first */
    const struct model_tensor **tensors; /* all, shard after shard */
    struct map by_name;                  /* name to index of tensors */
    size_t tensor_count;
    uint32_t shard_count;
    str arch;
    char path[MODEL_PATH_MAX]; /* of the shard that was asked for */
};

/* ---- split sets: BASE-00002-of-00005.gguf holds split.no 1 of split.count 5 ---- */

#define MODEL_SPLIT_DIGITS 5
#define MODEL_SPLIT_TAIL "-00001-of-00005.gguf"

static bool model_file_digits(str s, size_t at, uint64_t *out)
{
    return str_to_u64(str_sub(s, at, MODEL_SPLIT_DIGITS), out);
}

/* False if the name has no such tail; *base_len is the length without it. */
static bool model_file_split_name(str path, size_t *base_len, uint64_t *number, uint64_t *count)
{
    size_t tail = sizeof MODEL_SPLIT_TAIL - 1;
    if (path.len <= tail)
        return false;
    str t = str_from(path, path.len - tail);
    *base_len = path.len - tail;
    return t.p[0] == '-' && str_eq(str_sub(t, 6, 4), STR("-of-")) &&
           str_eq(str_from(t, 15), STR(".gguf")) && model_file_digits(t, 1, number) &&
           model_file_digits(t, 10, count);
}

/* split.no, split.count, split.tensors.count have had several integer types in the wild. */
static bool model_file_split_key(const struct gguf *g, const char *key, uint64_t max,
                                 uint64_t absent, uint64_t *out, struct err *e)
{
    const struct model_value *v = gguf_find(g, str_of(key));
    *out = absent;
    if (!v)
        return true;
    bool is_unsigned = v->type == MODEL_TYPE_U8 || v->type == MODEL_TYPE_U16 ||
                       v->type == MODEL_TYPE_U32 || v->type == MODEL_TYPE_U64;
    bool is_signed = v->type == MODEL_TYPE_I8 || v->type == MODEL_TYPE_I16 ||
                     v->type == MODEL_TYPE_I32 || v->type == MODEL_TYPE_I64;
    if (!is_unsigned && !is_signed)
        return err_set(e, ERR_FORMAT, "key '%s' is no integer", key);
    if (is_signed && v->i64 < 0)
        return err_set(e, ERR_FORMAT, "key '%s' is %" PRId64, key, v->i64);
    *out = v->u64;
    if (*out > max)
        return err_set(e, ERR_LIMIT, "key '%s' is %" PRIu64 ", the limit is %" PRIu64, key, *out,
                       max);
    return true;
}

static bool model_file_read_shard(struct model_file_shard *s, const char *path, struct err *e)
{
    if (!file_open(&s->file, path, e))
        return false;
    s->is_open = true;
    if (gguf_read(&s->gguf, &s->file, e))
        return true;
    str name = file_base_name(str_of(path));
    return err_wrap(e, "%.*s", STR_ARG(name));
}

static void model_file_close_shard(struct model_file_shard *s)
{
    if (s->is_open) {
        gguf_deinit(&s->gguf);
        file_close(&s->file);
    }
    s->is_open = false;
}

/* The sibling must say that it is that piece; so a link to another piece is refused too. */
static bool model_file_check_piece(const struct model_file *f, uint32_t number, const char *name,
                                   struct err *e)
{
    const struct model_file_shard *s = &f->shards[number];
    uint64_t no, count;
    if (!model_file_split_key(&s->gguf, "split.no", UINT16_MAX, UINT64_MAX, &no, e) ||
        !model_file_split_key(&s->gguf, "split.count", UINT16_MAX, UINT64_MAX, &count, e))
        return err_wrap(e, "%s", name);
    if (no != number || count != f->shard_count)
        return err_set(e, ERR_FORMAT,
                       "%s: should be piece %" PRIu32 " of %" PRIu32
                       ", but split.no is %" PRId64 " and split.count %" PRId64 " (-1: absent)",
                       name, number + 1, f->shard_count, (int64_t)no, (int64_t)count);
    return true;
}

static bool model_file_open_sibling(struct model_file *f, uint32_t number, size_t base_len,
                                    struct err *e)
{
    char path[MODEL_PATH_MAX];
    int len = snprintf(path, sizeof path, "%.*s-%05" PRIu32 "-of-%05" PRIu32 ".gguf",
                       (int)base_len, f->path, number + 1, f->shard_count);
    must(len > 0 && (size_t)len < sizeof path); /* as long as f->path */
    str name = file_base_name(str_of(path));
    if (!model_file_read_shard(&f->shards[number], path, e)) {
        if (e->code != ERR_NOT_FOUND)
            return false;
        return err_set(e, ERR_NOT_FOUND, "piece %" PRIu32 " of %" PRIu32 " is missing: %s",
                       number + 1, f->shard_count, path);
    }
    return model_file_check_piece(f, number, name.p, e);
}

/* From the one shard that was named to all of them, in order. */
static bool model_file_gather(struct model_file *f, struct model_file_shard *first, uint64_t no,
                              struct err *e)
{
    str path = str_of(f->path), name = file_base_name(path);
    uint64_t number, count;
    size_t base_len = 0;
    if (no >= f->shard_count)
        return err_set(e, ERR_FORMAT, "%s: split.no is %" PRIu64 ", split.count only %" PRIu32,
                       name.p, no, f->shard_count);
    f->shards[no] = *first;
    first->is_open = false;
    if (f->shard_count == 1)
        return true;
    if (!model_file_split_name(path, &base_len, &number, &count))
        return err_set(e, ERR_FORMAT,
                       "%s: is piece %" PRIu64 " of %" PRIu32 ", so its name must end in "
                       "-%05" PRIu64 "-of-%05" PRIu32 ".gguf, or the others cannot be found",
                       name.p, no + 1, f->shard_count, no + 1, f->shard_count);
    if (number != no + 1 || count != f->shard_count)
        return err_set(e, ERR_FORMAT,
                       "%s: by its name piece %" PRIu64 " of %" PRIu64
                       ", by its metadata piece %" PRIu64 " of %" PRIu32,
                       name.p, number, count, no + 1, f->shard_count);
    for (uint32_t i = 0; i < f->shard_count; i++)
        if (i != no && !model_file_open_sibling(f, i, base_len, e))
            return false;
    return true;
}

static bool model_file_open_shards(struct model_file *f, struct err *e)
{
    struct model_file_shard first = {.is_open = false};
    uint64_t no = 0, count = 1;
    bool ok = model_file_read_shard(&first, f->path, e);
    if (ok) {
        ok = model_file_split_key(&first.gguf, "split.count", MODEL_SHARDS_MAX, 1, &count, e) &&
             model_file_split_key(&first.gguf, "split.no", UINT16_MAX, 0, &no, e);
        if (ok && count == 0)
            ok = err_set(e, ERR_FORMAT, "key 'split.count' is 0");
        if (!ok)
            err_wrap(e, "%s", model_file_name(f).p);
    }
    if (ok) {
        f->shard_count = (uint32_t)count;
        f->shards = calloc(f->shard_count, sizeof *f->shards);
        ok = f->shards ? model_file_gather(f, &first, no, e)
                       : err_set(e, ERR_MEMORY, "no memory for %" PRIu64 " pieces", count);
    }
    model_file_close_shard(&first);
    return ok;
}

/* ---- open and close ---- */

static bool model_file_list_tensors(struct model_file *f, struct err *e)
{
    size_t count = 0;
    for (uint32_t s = 0; s < f->shard_count; s++)
        count += f->shards[s].gguf.tensor_count;
    uint64_t wanted;
    str name = model_file_name(f);
    if (!model_file_split_key(&f->shards[0].gguf, "split.tensors.count", UINT32_MAX, count,
                              &wanted, e))
        return err_wrap(e, "%s", name.p);
    if (wanted != count)
        return err_set(e, ERR_FORMAT, "%s: split.tensors.count is %" PRIu64
                       ", but the pieces hold %zu tensors", name.p, wanted, count);
    map_init(&f->by_name, (uint32_t)base_min(count, UINT32_MAX));
    f->tensors = calloc(base_max(1, count), sizeof *f->tensors);
    if (!f->tensors || !map_reserve(&f->by_name, (uint32_t)count))
        return err_set(e, ERR_MEMORY, "%s: no memory for %zu tensors", name.p, count);
    for (uint32_t s = 0; s < f->shard_count; s++) {
        struct gguf *g = &f->shards[s].gguf;
        for (uint32_t i = 0; i < g->tensor_count; i++) {
            struct model_tensor *t = &g->tensors[i];
            t->shard = s;
            if (map_find(&f->by_name, t->name))
                return err_set(e, ERR_FORMAT, "%s: tensor '%.*s' occurs twice", name.p,
                               STR_ARG(t->name));
            if (!map_put(&f->by_name, t->name, f->tensor_count))
                return err_set(e, ERR_MEMORY, "%s: no memory for %zu tensors", name.p, count);
            f->tensors[f->tensor_count++] = t;
        }
    }
    return true;
}

static bool model_file_find_arch(struct model_file *f, struct err *e)
{
    const struct model_value *v = gguf_find(&f->shards[0].gguf, STR("general.architecture"));
    str name = model_file_name(f);
    if (!v)
        return err_set(e, ERR_FORMAT, "%s: key 'general.architecture' is missing", name.p);
    if (v->type != MODEL_TYPE_STRING || v->s.len == 0)
        return err_set(e, ERR_FORMAT, "%s: key 'general.architecture' is no text", name.p);
    f->arch = v->s;
    return true;
}

bool model_file_open(struct model_file **out, const char *path, struct err *e)
{
    size_t len = strlen(path);
    if (len >= MODEL_PATH_MAX)
        return err_set(e, ERR_NOT_FOUND, "the path of the model has %zu bytes, limit %d", len,
                       MODEL_PATH_MAX - 1);
    struct model_file *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, ERR_MEMORY, "no memory to open '%s'", path);
    memcpy(f->path, path, len + 1);
    if (model_file_open_shards(f, e) && model_file_find_arch(f, e) &&
        model_file_list_tensors(f, e)) {
        *out = f;
        return true;
    }
    model_file_close(f);
    return false;
}

void model_file_close(struct model_file *f)
{
    if (!f)
        return;
    for (uint32_t i = 0; f->shards && i < f->shard_count; i++)
        model_file_close_shard(&f->shards[i]);
    map_deinit(&f->by_name);
    free(f->tensors);
    free(f->shards);
    free(f);
}

str model_file_arch(const struct model_file *f) { return f->arch; }
str model_file_name(const struct model_file *f) { return file_base_name(str_of(f->path)); }

bool model_file_blame(const struct model_file *f, struct err *e)
{
    str name = model_file_name(f), text = str_of(e->text);
    return str_starts(text, str_of(f->path)) || str_starts(text, name)
               ? false : err_wrap(e, "%.*s", STR_ARG(name));
}

/* ---- shards and bytes ---- */

uint32_t model_file_shard_count(const struct model_file *f) { return f->shard_count; }

uint64_t model_file_shard_size(const struct model_file *f, uint32_t shard)
{
    must(shard < f->shard_count);
    return f->shards[shard].file.size;
}

int model_file_shard_fd(const struct model_file *f, uint32_t shard)
{
    must(shard < f->shard_count);
    return f->shards[shard].file.fd;
}

static bool model_file_check_shard(const struct file *file, struct err *e)
{
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        return err_set(e, ERR_IO, "%s: file changed while loaded: it cannot be looked at any more",
                       file->name);
    if ((uint64_t)st.st_size != file->size)
        return err_set(e, ERR_IO, "%s: file changed while loaded: it had %" PRIu64
                       " bytes and has %" PRIu64, file->name, file->size, (uint64_t)st.st_size);
    if ((int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec != file->mtime_ns)
        return err_set(e, ERR_IO, "%s: file changed while loaded: it was written to", file->name);
    return true;
}

bool model_file_check_unchanged(const struct model_file *f, struct err *e)
{
    for (uint32_t i = 0; i < f->shard_count; i++)
        if (!model_file_check_shard(&f->shards[i].file, e))
            return false;
    return true;
}

bool model_file_read(const struct model_file *f, const struct model_tensor *t, uint64_t offset,
                     void *dst, size_t size, struct err *e)
{
    must(t->shard < f->shard_count && offset <= t->size && size <= t->size - offset);
    const struct file *file = &f->shards[t->shard].file;
    struct err why;
    bool ok = file_pread(file, dst, size, t->offset + offset, &why);
    /* After the read, so that what was read is what the header at open described. */
    if (!model_file_check_shard(file, e))
        return false;
    return ok || err_set(e, why.code, "%s", why.text);
}

/* ---- tables ---- */

size_t model_file_tensor_count(const struct model_file *f) { return f->tensor_count; }

const struct model_tensor *model_file_tensor_at(const struct model_file *f, size_t index)
{
    must(index < f->tensor_count);
    return f->tensors[index];
}

const struct model_tensor *model_file_tensor(const struct model_file *f, str name)
{
    const uint64_t *index = map_find(&f->by_name, name);
    return index ? f->tensors[*index] : NULL;
}

uint64_t model_file_header_hash(const struct model_file *f)
{
    uint64_t h = 0;
    for (uint32_t s = 0; s < f->shard_count; s++) {
        const struct gguf *g = &f->shards[s].gguf;
        h = digest_xxh3(str_view(g->header, g->header_size), h);
    }
    return h;
}

size_t model_file_key_count(const struct model_file *f) { return f->shards[0].gguf.entry_count; }

void model_file_key_at(const struct model_file *f, size_t index, str *key, struct model_value *v)
{
    const struct gguf *g = &f->shards[0].gguf;
    must(index < g->entry_count);
    *key = g->entries[index].key;
    *v = g->entries[index].value;
}

bool model_file_find(const struct model_file *f, const char *key, struct model_value *v)
{
    char full[512];
    str k = str_of(key);
    if (k.len > 0 && k.p[0] == '.') {
        if (f->arch.len > sizeof full || k.len > sizeof full - f->arch.len)
            return false;
        memcpy(full, f->arch.p, f->arch.len);
        memcpy(full + f->arch.len, k.p, k.len);
        k = str_view(full, f->arch.len + k.len);
    }
    const struct model_value *found = gguf_find(&f->shards[0].gguf, k);
    if (found)
        *v = *found;
    return found != NULL;
}
