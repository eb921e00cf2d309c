#include "fmt/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The reader walks the file once. What it has passed lies in g->header, a block as long as the file
 * (at most GGUF_HEADER_MAX) whose pages become real only as they are filled, so views into it stay
 * valid while it fills. gguf_need is the one place that compares a wish with what is left. */
#define GGUF_WINDOW_FIRST ((size_t)64 << 10)
#define GGUF_WINDOW_LAST ((size_t)1 << 20) /* at most this much is read in vain */

struct gguf_reader {
    struct gguf *g;
    const struct file *f;
    size_t pos, filled, window; /* bytes passed, bytes in header, size of the next pread */
    size_t size_max;            /* of header */
    size_t entries_size, tensors_size;
    const char *part; /* "metadata", "tensor list": where an early end falls */
    struct err *e;
};

#define U64 "%" PRIu64

/* ---- bytes ---- */

static bool gguf_need(struct gguf_reader *r, uint64_t size)
{
    if (size > r->f->size - r->pos)
        return err_set(r->e, ERR_FORMAT,
                       "ends inside the %s: byte %zu wants " U64 " more, the file has " U64,
                       r->part, r->pos, size, r->f->size);
    if (size > r->size_max - r->pos)
        return err_set(r->e, ERR_LIMIT, "the %s goes past " U64 " MiB, the most shoal reads",
                       r->part, GGUF_HEADER_MAX >> 20);
    size_t end = r->pos + (size_t)size;
    while (r->filled < end) {
        size_t part = base_min(base_max(r->window, end - r->filled), r->size_max - r->filled);
        struct err why;
        if (!file_pread(r->f, r->g->header + r->filled, part, r->filled, &why))
            return err_set(r->e, why.code, "cannot be read: %s", why.text);
        r->filled += part;
        r->window = base_min(2 * r->window, GGUF_WINDOW_LAST);
    }
    return true;
}

static bool gguf_take(struct gguf_reader *r, void *out, size_t size)
{
    if (!gguf_need(r, size))
        return false;
    memcpy(out, r->g->header + r->pos, size);
    r->pos += size;
    return true;
}

static bool gguf_take_u32(struct gguf_reader *r, uint32_t *v) { return gguf_take(r, v, 4); }
static bool gguf_take_u64(struct gguf_reader *r, uint64_t *v) { return gguf_take(r, v, 8); }

/* A length that is too big for the file is named as such: it is the most common kind of damage. */
static bool gguf_take_bytes(struct gguf_reader *r, str *out)
{
    uint64_t len;
    if (!gguf_take_u64(r, &len))
        return false;
    if (len > r->f->size - r->pos)
        return err_set(r->e, ERR_FORMAT,
                       "a string in the %s at byte %zu claims " U64 " bytes, " U64 " are left",
                       r->part, r->pos - 8, len, r->f->size - r->pos);
    if (!gguf_need(r, len))
        return false;
    *out = str_view(r->g->header + r->pos, (size_t)len);
    r->pos += (size_t)len;
    return true;
}

/* Keys and names are printed: they must be text without control characters. */
static bool gguf_is_printable(str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
            return false;
    return str_utf8_valid(s) == s.len;
}

/* Doubles an array up to count_max; reached only for elements that were really in the file. */
static bool gguf_grow(struct gguf_reader *r, void **items, size_t *size, size_t used, size_t each)
{
    if (used < *size)
        return true;
    size_t wanted = base_max(64, 2 * *size);
    void *grown = realloc(*items, wanted * each);
    if (!grown)
        return err_set(r->e, ERR_MEMORY, "no memory for the %s", r->part);
    *items = grown;
    *size = wanted;
    return true;
}

/* ---- values ---- */

static const uint8_t gguf_type_size[MODEL_TYPE_COUNT] = {
    [MODEL_TYPE_U8] = 1,  [MODEL_TYPE_I8] = 1,  [MODEL_TYPE_U16] = 2, [MODEL_TYPE_I16] = 2,
    [MODEL_TYPE_U32] = 4, [MODEL_TYPE_I32] = 4, [MODEL_TYPE_F32] = 4, [MODEL_TYPE_BOOL] = 1,
    [MODEL_TYPE_U64] = 8, [MODEL_TYPE_I64] = 8, [MODEL_TYPE_F64] = 8,
};

static bool gguf_check_bools(struct gguf_reader *r, str key, const uint8_t *p, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (p[i] > 1)
            return err_set(r->e, ERR_FORMAT, "key '%.*s' holds a bool of value %u, not 0 or 1",
                           STR_ARG(key), p[i]);
    return true;
}

static bool gguf_take_type(struct gguf_reader *r, str key, uint32_t *type)
{
    if (!gguf_take_u32(r, type))
        return false;
    if (*type >= MODEL_TYPE_COUNT)
        return err_set(r->e, ERR_FORMAT, "key '%.*s' has type %" PRIu32 ", there are 0 to 12",
                       STR_ARG(key), *type);
    return true;
}

static bool gguf_take_array(struct gguf_reader *r, str key, unsigned depth,
                            struct model_array *out);

/* Passes over count strings; starts, if given, keeps where each begins. */
static bool gguf_take_strings(struct gguf_reader *r, uint64_t count, uint32_t *starts)
{
    for (uint64_t i = 0; i < count; i++) {
        str s;
        if (starts)
            starts[i] = (uint32_t)r->pos;
        if (!gguf_take_bytes(r, &s))
            return false;
    }
    return true;
}

/* Elements of fixed size stay where they are. Arrays of arrays are checked and passed over: nothing
 * that shoal reads has them, so they are reported by type and count only (data NULL). */
static bool gguf_take_elements(struct gguf_reader *r, str key, unsigned depth,
                               struct model_array *a)
{
    if (a->type == MODEL_TYPE_ARRAY) {
        for (uint64_t i = 0; i < a->count; i++) {
            struct model_array inner;
            if (!gguf_take_array(r, key, depth + 1, &inner))
                return false;
        }
        return true;
    }
    if (a->type == MODEL_TYPE_STRING) {
        uint32_t *starts = NULL;
        if (depth == 0) { /* kept by the entry, freed in gguf_deinit */
            starts = malloc(base_max(1, (size_t)a->count) * sizeof *starts);
            if (!starts)
                return err_set(r->e, ERR_MEMORY, "no memory for key '%.*s'", STR_ARG(key));
            a->starts = starts;
            a->data = r->g->header;
        }
        return gguf_take_strings(r, a->count, starts);
    }
    uint64_t size = a->count * gguf_type_size[a->type]; /* no overflow: count was compared */
    if (!gguf_need(r, size))
        return false;
    a->data = r->g->header + r->pos;
    r->pos += (size_t)size;
    return a->type != MODEL_TYPE_BOOL || gguf_check_bools(r, key, a->data, (size_t)a->count);
}

static bool gguf_take_array(struct gguf_reader *r, str key, unsigned depth,
                            struct model_array *out)
{
    uint32_t type;
    *out = (struct model_array){0};
    if (depth >= GGUF_DEPTH_MAX)
        return err_set(r->e, ERR_LIMIT, "key '%.*s' nests arrays more than %u deep", STR_ARG(key),
                       GGUF_DEPTH_MAX);
    if (!gguf_take_type(r, key, &type) || !gguf_take_u64(r, &out->count))
        return false;
    out->type = (enum model_type)type;
    uint64_t left = r->f->size - r->pos;
    uint64_t each = type == MODEL_TYPE_STRING ? 8 : type == MODEL_TYPE_ARRAY ? 12
                                                                             : gguf_type_size[type];
    if (out->count > left / each)
        return err_set(r->e, ERR_FORMAT,
                       "key '%.*s' claims an array of " U64 " elements, " U64 " bytes are left",
                       STR_ARG(key), out->count, left);
    if (out->count > GGUF_HEADER_MAX / each)
        return err_set(r->e, ERR_LIMIT, "key '%.*s' has an array of " U64 " elements, past %" PRIu64
                       " MiB", STR_ARG(key), out->count, GGUF_HEADER_MAX >> 20);
    return gguf_take_elements(r, key, depth, out);
}

static bool gguf_take_number(struct gguf_reader *r, struct model_value *v)
{
    union { uint8_t u8; int8_t i8; uint16_t u16; int16_t i16; uint32_t u32; int32_t i32;
            uint64_t u64; int64_t i64; float f32; double f64; } x = {.u64 = 0};
    if (!gguf_take(r, &x, gguf_type_size[v->type]))
        return false;
    switch (v->type) {
    case MODEL_TYPE_U8: v->u64 = x.u8; break;
    case MODEL_TYPE_I8: v->i64 = x.i8; break;
    case MODEL_TYPE_U16: v->u64 = x.u16; break;
    case MODEL_TYPE_I16: v->i64 = x.i16; break;
    case MODEL_TYPE_U32: v->u64 = x.u32; break;
    case MODEL_TYPE_I32: v->i64 = x.i32; break;
    case MODEL_TYPE_F32: v->f64 = (double)x.f32; break;
    case MODEL_TYPE_U64: v->u64 = x.u64; break;
    case MODEL_TYPE_I64: v->i64 = x.i64; break;
    case MODEL_TYPE_F64: v->f64 = x.f64; break;
    case MODEL_TYPE_BOOL: v->b = x.u8 != 0; break;
    case MODEL_TYPE_STRING:
    case MODEL_TYPE_ARRAY: must(false);
    }
    return true;
}

static bool gguf_take_value(struct gguf_reader *r, str key, struct model_value *v)
{
    uint32_t type;
    *v = (struct model_value){0};
    if (!gguf_take_type(r, key, &type))
        return false;
    v->type = (enum model_type)type;
    if (v->type == MODEL_TYPE_STRING)
        return gguf_take_bytes(r, &v->s);
    if (v->type == MODEL_TYPE_ARRAY)
        return gguf_take_array(r, key, 0, &v->array);
    if (!gguf_take_number(r, v))
        return false;
    return v->type != MODEL_TYPE_BOOL ||
           gguf_check_bools(r, key, r->g->header + r->pos - 1, 1);
}

static bool gguf_read_entries(struct gguf_reader *r, uint64_t count)
{
    struct gguf *g = r->g;
    r->part = "metadata";
    for (uint64_t i = 0; i < count; i++) {
        void *entries = g->entries;
        if (!gguf_grow(r, &entries, &r->entries_size, g->entry_count, sizeof *g->entries))
            return false;
        g->entries = entries;
        struct gguf_entry *entry = &g->entries[g->entry_count];
        if (!gguf_take_bytes(r, &entry->key))
            return false;
        if (entry->key.len == 0 || entry->key.len > GGUF_KEY_LEN_MAX ||
            !gguf_is_printable(entry->key))
            return err_set(r->e, ERR_FORMAT, "key " U64 " of the metadata is %s", i,
                           entry->key.len == 0 ? "empty"
                           : entry->key.len > GGUF_KEY_LEN_MAX ? "longer than 65535 bytes"
                                                               : "not printable text");
        g->entry_count++; /* now: a failed array must be freed too */
        if (!gguf_take_value(r, entry->key, &entry->value))
            return false;
        if (map_find(&g->by_key, entry->key))
            return err_set(r->e, ERR_FORMAT, "key '%.*s' occurs twice", STR_ARG(entry->key));
        if (!map_put(&g->by_key, entry->key, i))
            return err_set(r->e, ERR_MEMORY, "no memory for the metadata");
    }
    return true;
}

/* ---- tensors ---- */

static bool gguf_check_type(struct gguf_reader *r, struct model_tensor *t, uint32_t id)
{
    enum qtype type = QTYPE_F32;
    bool is_known = quant_by_gguf_id(id, &type);
    if (is_known && type != QTYPE_Q8_1 && type != QTYPE_Q8_K) {
        t->type = type;
        return true;
    }
    const char *what = is_known ? quant_name(type) : quant_foreign_name(id);
    return err_set(r->e, ERR_UNSUPPORTED, "tensor '%.*s' has type id %" PRIu32 "%s%s%s%s",
                   STR_ARG(t->name), id, what ? " (" : ", which shoal does not know",
                   what ? what : "", is_known ? ", for activations only" : "", what ? ")" : "");
}

static bool gguf_check_dims(struct gguf_reader *r, struct model_tensor *t)
{
    size_t size, ignored;
    const char *name = quant_name(t->type);
    for (uint32_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] == 0)
            return err_set(r->e, ERR_FORMAT, "tensor '%.*s' has dimension %" PRIu32 " of 0",
                           STR_ARG(t->name), i);
    if (t->dims[0] % quant_table[t->type].block_elems != 0)
        return err_set(r->e, ERR_FORMAT,
                       "tensor '%.*s' has rows of " U64 " values, no multiple of %u as %s needs",
                       STR_ARG(t->name), t->dims[0], quant_table[t->type].block_elems, name);
    /* The count of values is kept below 2^63 as well, whatever the type. */
    if (!quant_tensor_size(t->type, t->dims, t->n_dims, &size) ||
        !quant_tensor_size(QTYPE_I16, t->dims, t->n_dims, &ignored))
        return err_set(r->e, ERR_FORMAT,
                       "tensor '%.*s' of " U64 " x " U64 " x " U64 " x " U64 " %s overflows",
                       STR_ARG(t->name), t->dims[0], t->dims[1], t->dims[2], t->dims[3], name);
    t->size = size;
    return true;
}

/* Offsets are relative to the data section until gguf_place_tensors. */
static bool gguf_take_tensor(struct gguf_reader *r, uint64_t index, struct model_tensor *t)
{
    uint32_t id;
    *t = (struct model_tensor){.dims = {1, 1, 1, 1}};
    if (!gguf_take_bytes(r, &t->name))
        return false;
    if (t->name.len == 0 || t->name.len > GGUF_NAME_LEN_MAX || !gguf_is_printable(t->name))
        return err_set(r->e, ERR_FORMAT, "the name of tensor " U64 " is %s", index,
                       t->name.len == 0 ? "empty"
                       : t->name.len > GGUF_NAME_LEN_MAX ? "longer than 255 bytes"
                                                         : "not printable text");
    if (!gguf_take_u32(r, &t->n_dims))
        return false;
    if (t->n_dims > MODEL_DIMS_MAX)
        return err_set(r->e, ERR_FORMAT, "tensor '%.*s' has %" PRIu32 " dimensions, at most %d",
                       STR_ARG(t->name), t->n_dims, MODEL_DIMS_MAX);
    for (uint32_t i = 0; i < t->n_dims; i++)
        if (!gguf_take_u64(r, &t->dims[i]))
            return false;
    return gguf_take_u32(r, &id) && gguf_take_u64(r, &t->offset) && gguf_check_type(r, t, id) &&
           gguf_check_dims(r, t);
}

static bool gguf_read_tensors(struct gguf_reader *r, uint64_t count)
{
    struct gguf *g = r->g;
    r->part = "tensor list";
    for (uint64_t i = 0; i < count; i++) {
        void *tensors = g->tensors;
        if (!gguf_grow(r, &tensors, &r->tensors_size, g->tensor_count, sizeof *g->tensors))
            return false;
        g->tensors = tensors;
        if (!gguf_take_tensor(r, i, &g->tensors[g->tensor_count++]))
            return false;
    }
    return true;
}

static bool gguf_read_alignment(struct gguf_reader *r)
{
    struct gguf *g = r->g;
    const struct model_value *v = gguf_find(g, STR("general.alignment"));
    g->alignment = GGUF_ALIGNMENT;
    if (!v)
        return true;
    if (v->type != MODEL_TYPE_U32)
        return err_set(r->e, ERR_FORMAT, "general.alignment has type %d, must be u32 (4)", v->type);
    if (v->u64 == 0 || v->u64 > GGUF_ALIGNMENT_MAX || (v->u64 & (v->u64 - 1)) != 0)
        return err_set(r->e, ERR_FORMAT,
                       "general.alignment is " U64 ", must be a power of two up to 65536", v->u64);
    g->alignment = (uint32_t)v->u64;
    return true;
}

static int gguf_by_offset(const void *a, const void *b)
{
    const struct model_tensor *const *x = a, *const *y = b;
    if ((*x)->offset != (*y)->offset)
        return (*x)->offset < (*y)->offset ? -1 : 1;
    return *x < *y ? -1 : *x > *y;
}

/* Two tensors on the same bytes: nobody writes that on purpose, a damaged offset looks like it. */
static bool gguf_check_overlap(struct gguf_reader *r)
{
    struct gguf *g = r->g;
    const struct model_tensor **sorted = calloc(base_max(1, g->tensor_count), sizeof *sorted);
    if (!sorted)
        return err_set(r->e, ERR_MEMORY, "no memory for the tensor list");
    bool ok = true;
    for (uint32_t i = 0; i < g->tensor_count; i++)
        sorted[i] = &g->tensors[i];
    qsort(sorted, g->tensor_count, sizeof *sorted, gguf_by_offset);
    for (uint32_t i = 1; ok && i < g->tensor_count; i++) {
        const struct model_tensor *a = sorted[i - 1], *b = sorted[i];
        if (b->offset - a->offset < a->size)
            ok = err_set(r->e, ERR_FORMAT, "tensors '%.*s' and '%.*s' overlap at byte " U64,
                         STR_ARG(a->name), STR_ARG(b->name), b->offset);
    }
    free(sorted);
    return ok;
}

/* Turns offsets into the data section into offsets into the file, all of it inside the file. */
static bool gguf_place_tensors(struct gguf_reader *r)
{
    struct gguf *g = r->g;
    g->data_offset = base_align(r->pos, g->alignment);
    uint64_t data_size = g->data_offset < r->f->size ? r->f->size - g->data_offset : 0;
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        struct model_tensor *t = &g->tensors[i];
        if (t->offset % g->alignment != 0)
            return err_set(r->e, ERR_FORMAT,
                           "tensor '%.*s' has offset " U64 ", no multiple of alignment %" PRIu32,
                           STR_ARG(t->name), t->offset, g->alignment);
        if (t->offset > data_size || t->size > data_size - t->offset)
            return err_set(r->e, ERR_FORMAT, "tensor '%.*s' (" U64 " bytes at " U64
                           " of the data) lies past the end: the file has " U64 " bytes of data",
                           STR_ARG(t->name), t->size, t->offset, data_size);
        t->offset += g->data_offset;
    }
    return gguf_check_overlap(r);
}

/* ---- the whole file ---- */

/* What people have instead of a model, by its first bytes. */
static bool gguf_refuse_other(struct gguf_reader *r, const uint8_t *p, size_t size)
{
    static const struct { const char *bytes, *what; } known[] = {
        {"version https://git-lfs", "is a Git LFS pointer: the model itself was not downloaded"},
        {"<", "is a web page or XML, not a model"},
        {"{", "is JSON, not a model"},
        {"PK\003\004", "is a zip archive (or a PyTorch checkpoint), not a GGUF file"},
        {"\037\213", "is a gzip archive: unpack it first"},
        {"lmgg", "is a GGML file of 2023, older than GGUF: convert it"},
        {"fmgg", "is a GGMF file of 2023, older than GGUF: convert it"},
        {"tjgg", "is a GGJT file of 2023, older than GGUF: convert it"},
        {"algg", "is a GGLA file of 2023, older than GGUF: convert it"},
        {"FUGG", "is a GGUF file in big-endian byte order, which shoal does not read"},
    };
    for (size_t i = 0; i < countof(known); i++) {
        size_t len = strlen(known[i].bytes);
        if (size >= len && memcmp(p, known[i].bytes, len) == 0)
            return err_set(r->e, ERR_UNSUPPORTED, "%s", known[i].what);
    }
    if (size >= 10 && p[8] == '{' && p[7] == 0 && p[6] == 0 && p[5] == 0)
        return err_set(r->e, ERR_UNSUPPORTED,
                       "looks like a safetensors file, which shoal does not read yet");
    if (size < 4)
        return err_set(r->e, ERR_FORMAT, "has only %zu bytes, a GGUF header has 24", size);
    return err_set(r->e, ERR_FORMAT, "is not a GGUF file: it begins with %02x %02x %02x %02x",
                   p[0], p[1], p[2], p[3]);
}

static bool gguf_read_head(struct gguf_reader *r, uint64_t *tensors, uint64_t *keys)
{
    uint8_t first[24];
    size_t size = r->f->size < sizeof first ? (size_t)r->f->size : sizeof first;
    if (size == 0)
        return err_set(r->e, ERR_FORMAT, "is empty (0 bytes)");
    if (!gguf_need(r, size))
        return false;
    memcpy(first, r->g->header, size);
    if (size < 4 || memcmp(first, "GGUF", 4) != 0)
        return gguf_refuse_other(r, first, size);
    r->pos = 4;
    if (!gguf_take_u32(r, &r->g->version))
        return false;
    uint32_t version = r->g->version;
    if ((version & 0xffffu) == 0 && version != 0)
        return err_set(r->e, ERR_UNSUPPORTED,
                       "is a GGUF file in big-endian byte order, which shoal does not read");
    if (version != 2 && version != 3)
        return err_set(r->e, ERR_UNSUPPORTED, "is GGUF version %" PRIu32 ", shoal reads 2 and 3",
                       version);
    if (!gguf_take_u64(r, tensors) || !gguf_take_u64(r, keys))
        return false;
    /* The shortest key has 8 + 1 + 4 + 1 bytes, the shortest tensor 8 + 1 + 4 + 4 + 8. */
    uint64_t left = r->f->size - r->pos;
    if (*keys > left / 14 || *tensors > left / 25)
        return err_set(r->e, ERR_FORMAT, "claims " U64 " keys and " U64 " tensors, but has only "
                       U64 " bytes after its header", *keys, *tensors, left);
    if (*keys > GGUF_KEYS_MAX || *tensors > GGUF_TENSORS_MAX)
        return err_set(r->e, ERR_LIMIT, "has " U64 " keys and " U64 " tensors, limits %u and %u",
                       *keys, *tensors, GGUF_KEYS_MAX, GGUF_TENSORS_MAX);
    return true;
}

bool gguf_read(struct gguf *g, const struct file *f, struct err *e)
{
    *g = (struct gguf){0};
    struct gguf_reader r = {
        .g = g,
        .f = f,
        .window = GGUF_WINDOW_FIRST,
        .size_max = (size_t)(f->size < GGUF_HEADER_MAX ? f->size : GGUF_HEADER_MAX),
        .part = "header",
        .e = e,
    };
    uint64_t tensors = 0, keys = 0;
    map_init(&g->by_key, GGUF_KEYS_MAX);
    g->header = malloc(base_max(1, r.size_max));
    bool ok = g->header || err_set(e, ERR_MEMORY, "no memory for the header");
    ok = ok && gguf_read_head(&r, &tensors, &keys) && gguf_read_entries(&r, keys) &&
         gguf_read_alignment(&r) && gguf_read_tensors(&r, tensors) && gguf_place_tensors(&r);
    g->header_size = r.pos;
    if (!ok)
        gguf_deinit(g);
    return ok;
}

void gguf_deinit(struct gguf *g)
{
    for (uint32_t i = 0; i < g->entry_count; i++)
        if (g->entries[i].value.type == MODEL_TYPE_ARRAY)
            free((void *)(uintptr_t)g->entries[i].value.array.starts);
    map_deinit(&g->by_key);
    free(g->entries);
    free(g->tensors);
    free(g->header);
    *g = (struct gguf){0};
}

const struct model_value *gguf_find(const struct gguf *g, str key)
{
    const uint64_t *index = map_find(&g->by_key, key);
    return index ? &g->entries[*index].value : NULL;
}
