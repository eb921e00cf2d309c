/* Typed look-ups of metadata: one place that says how a number of one type is taken for another. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "fmt/model_file.h"

static const char *const model_file_type_names[MODEL_TYPE_COUNT] = {
    [MODEL_TYPE_U8] = "u8",     [MODEL_TYPE_I8] = "i8",         [MODEL_TYPE_U16] = "u16",
    [MODEL_TYPE_I16] = "i16",   [MODEL_TYPE_U32] = "u32",       [MODEL_TYPE_I32] = "i32",
    [MODEL_TYPE_F32] = "f32",   [MODEL_TYPE_BOOL] = "a bool",   [MODEL_TYPE_STRING] = "a string",
    [MODEL_TYPE_ARRAY] = "an array", [MODEL_TYPE_U64] = "u64",  [MODEL_TYPE_I64] = "i64",
    [MODEL_TYPE_F64] = "f64",
};

/* What INT means: sign and magnitude, so that every integer type compares alike. */
struct model_file_int {
    bool is_int, is_negative;
    uint64_t u64;
    int64_t i64;
};

static struct model_file_int model_file_int_of(const struct model_value *v)
{
    switch (v->type) {
    case MODEL_TYPE_U8:
    case MODEL_TYPE_U16:
    case MODEL_TYPE_U32:
    case MODEL_TYPE_U64:
        return (struct model_file_int){.is_int = true, .u64 = v->u64, .i64 = (int64_t)v->u64};
    case MODEL_TYPE_I8:
    case MODEL_TYPE_I16:
    case MODEL_TYPE_I32:
    case MODEL_TYPE_I64:
        return (struct model_file_int){
            .is_int = true, .is_negative = v->i64 < 0, .u64 = (uint64_t)v->i64, .i64 = v->i64};
    case MODEL_TYPE_F32:
    case MODEL_TYPE_F64:
    case MODEL_TYPE_BOOL:
    case MODEL_TYPE_STRING:
    case MODEL_TYPE_ARRAY:
        break;
    }
    return (struct model_file_int){.is_int = false};
}

/* A key that begins with '.' is shown in full. */
static bool model_file_refuse(const struct model_file *f, const char *key, struct err *e,
                              const char *what, const char *wanted)
{
    str name = model_file_name(f), arch = model_file_arch(f);
    bool is_short = key[0] == '.';
    return err_set(e, ERR_FORMAT, "%.*s: key '%.*s%s' is %s%s%s", STR_ARG(name),
                   is_short ? (int)base_min(arch.len, 64) : 0, arch.p, key, what,
                   wanted ? ", wanted: " : "", wanted ? wanted : "");
}

static bool model_file_missing(const struct model_file *f, const char *key, struct err *e)
{
    return model_file_refuse(f, key, e, "missing", NULL);
}

static bool model_file_wrong_type(const struct model_file *f, const char *key,
                                  const struct model_value *v, const char *wanted, struct err *e)
{
    return model_file_refuse(f, key, e, model_file_type_names[v->type], wanted);
}

/* ---- scalars ---- */

bool model_file_u64(const struct model_file *f, const char *key, uint64_t *out, struct err *e)
{
    struct model_value v;
    if (!model_file_find(f, key, &v))
        return model_file_missing(f, key, e);
    struct model_file_int n = model_file_int_of(&v);
    if (!n.is_int)
        return model_file_wrong_type(f, key, &v, "an integer", e);
    if (n.is_negative)
        return model_file_refuse(f, key, e, "negative", "0 or more");
    *out = n.u64;
    return true;
}

bool model_file_u32(const struct model_file *f, const char *key, uint32_t *out, struct err *e)
{
    uint64_t v;
    if (!model_file_u64(f, key, &v, e))
        return false;
    if (v > UINT32_MAX)
        return model_file_refuse(f, key, e, "too large", "at most 4294967295");
    *out = (uint32_t)v;
    return true;
}

bool model_file_u32_or(const struct model_file *f, const char *key, uint32_t absent, uint32_t *out,
                       struct err *e)
{
    if (model_file_has(f, key))
        return model_file_u32(f, key, out, e);
    *out = absent;
    return true;
}

bool model_file_i64_or(const struct model_file *f, const char *key, int64_t absent, int64_t *out,
                       struct err *e)
{
    struct model_value v;
    if (!model_file_find(f, key, &v)) {
        *out = absent;
        return true;
    }
    struct model_file_int n = model_file_int_of(&v);
    if (!n.is_int)
        return model_file_wrong_type(f, key, &v, "an integer", e);
    if (!n.is_negative && n.u64 > INT64_MAX)
        return model_file_refuse(f, key, e, "too large", "at most 2^63 - 1");
    *out = n.i64;
    return true;
}

bool model_file_f32(const struct model_file *f, const char *key, float *out, struct err *e)
{
    struct model_value v;
    if (!model_file_find(f, key, &v))
        return model_file_missing(f, key, e);
    if (v.type != MODEL_TYPE_F32 && v.type != MODEL_TYPE_F64)
        return model_file_wrong_type(f, key, &v, "a float", e);
    if (!isfinite((float)v.f64))
        return model_file_refuse(f, key, e, "infinite or NaN", "a finite float");
    *out = (float)v.f64;
    return true;
}

bool model_file_f32_or(const struct model_file *f, const char *key, float absent, float *out,
                       struct err *e)
{
    if (model_file_has(f, key))
        return model_file_f32(f, key, out, e);
    *out = absent;
    return true;
}

bool model_file_bool_or(const struct model_file *f, const char *key, bool absent, bool *out,
                        struct err *e)
{
    struct model_value v;
    *out = absent;
    if (!model_file_find(f, key, &v))
        return true;
    if (v.type != MODEL_TYPE_BOOL)
        return model_file_wrong_type(f, key, &v, "a bool", e);
    *out = v.b;
    return true;
}

bool model_file_str(const struct model_file *f, const char *key, str *out, struct err *e)
{
    struct model_value v;
    if (!model_file_find(f, key, &v))
        return model_file_missing(f, key, e);
    if (v.type != MODEL_TYPE_STRING)
        return model_file_wrong_type(f, key, &v, "a string", e);
    *out = v.s;
    return true;
}

bool model_file_str_or(const struct model_file *f, const char *key, str absent, str *out,
                       struct err *e)
{
    if (model_file_has(f, key))
        return model_file_str(f, key, out, e);
    *out = absent;
    return true;
}

/* ---- arrays ---- */

/* The kind that an element type belongs to, -1 for arrays of arrays. */
static int model_file_kind_of(enum model_type type)
{
    switch (type) {
    case MODEL_TYPE_U8:
    case MODEL_TYPE_I8:
    case MODEL_TYPE_U16:
    case MODEL_TYPE_I16:
    case MODEL_TYPE_U32:
    case MODEL_TYPE_I32:
    case MODEL_TYPE_U64:
    case MODEL_TYPE_I64:
        return MODEL_KIND_INT;
    case MODEL_TYPE_F32:
    case MODEL_TYPE_F64:
        return MODEL_KIND_FLOAT;
    case MODEL_TYPE_BOOL:
        return MODEL_KIND_BOOL;
    case MODEL_TYPE_STRING:
        return MODEL_KIND_STRING;
    case MODEL_TYPE_ARRAY:
        break;
    }
    return -1;
}

bool model_file_array(const struct model_file *f, const char *key, enum model_kind kind,
                      struct model_array *out, struct err *e)
{
    static const char *const wanted[] = {"an array of integers", "an array of floats",
                                         "an array of bools", "an array of strings"};
    struct model_value v;
    if (!model_file_find(f, key, &v))
        return model_file_missing(f, key, e);
    if (v.type != MODEL_TYPE_ARRAY)
        return model_file_wrong_type(f, key, &v, wanted[kind], e);
    if (model_file_kind_of(v.array.type) != (int)kind) {
        char what[64] = "an array of ";
        strncat(what, model_file_type_names[v.array.type], sizeof what - strlen(what) - 1);
        return model_file_refuse(f, key, e, what, wanted[kind]);
    }
    *out = v.array;
    return true;
}

static bool model_file_layer_count(const struct model_file *f, const char *key, uint64_t count,
                                   uint32_t n_layer, struct err *e)
{
    str name = model_file_name(f);
    if (count == n_layer)
        return true;
    return err_set(e, ERR_FORMAT, "%.*s: key '%s' has %" PRIu64 " elements, wanted: one for each "
                   "of %" PRIu32 " layers", STR_ARG(name), key, count, n_layer);
}

bool model_file_u32_layers(const struct model_file *f, const char *key, uint32_t *out,
                           uint32_t n_layer, struct err *e)
{
    struct model_value v;
    struct model_array a;
    if (model_file_find(f, key, &v) && v.type != MODEL_TYPE_ARRAY) {
        uint32_t one = 0;
        if (!model_file_u32(f, key, &one, e))
            return false;
        for (uint32_t i = 0; i < n_layer; i++)
            out[i] = one;
        return true;
    }
    if (!model_file_array(f, key, MODEL_KIND_INT, &a, e) ||
        !model_file_layer_count(f, key, a.count, n_layer, e))
        return false;
    for (uint32_t i = 0; i < n_layer; i++) {
        int64_t n = model_file_i64_at(&a, i);
        if (n < 0 || n > UINT32_MAX)
            return model_file_refuse(f, key, e, "out of range in a layer", "0 to 4294967295");
        out[i] = (uint32_t)n;
    }
    return true;
}

bool model_file_bool_layers(const struct model_file *f, const char *key, bool *out,
                            uint32_t n_layer, struct err *e)
{
    struct model_value v;
    struct model_array a;
    if (model_file_find(f, key, &v) && v.type == MODEL_TYPE_BOOL) {
        for (uint32_t i = 0; i < n_layer; i++)
            out[i] = v.b;
        return true;
    }
    if (!model_file_array(f, key, MODEL_KIND_BOOL, &a, e) ||
        !model_file_layer_count(f, key, a.count, n_layer, e))
        return false;
    for (uint32_t i = 0; i < n_layer; i++)
        out[i] = model_file_bool_at(&a, i);
    return true;
}

str model_file_str_at(const struct model_array *a, uint64_t index)
{
    uint64_t len;
    must(a->type == MODEL_TYPE_STRING && index < a->count);
    const uint8_t *p = a->data + a->starts[index];
    memcpy(&len, p, sizeof len);
    return str_view(p + sizeof len, (size_t)len);
}

int64_t model_file_i64_at(const struct model_array *a, uint64_t index)
{
    must(index < a->count && model_file_kind_of(a->type) == MODEL_KIND_INT);
    const uint8_t *p = a->data;
    union { uint8_t u8; int8_t i8; uint16_t u16; int16_t i16; uint32_t u32; int32_t i32;
            uint64_t u64; int64_t i64; } x;
    size_t size = a->type == MODEL_TYPE_U8 || a->type == MODEL_TYPE_I8 ? 1
                : a->type == MODEL_TYPE_U16 || a->type == MODEL_TYPE_I16 ? 2
                : a->type == MODEL_TYPE_U32 || a->type == MODEL_TYPE_I32 ? 4 : 8;
    memcpy(&x, p + index * size, size);
    switch (a->type) {
    case MODEL_TYPE_U8: return x.u8;
    case MODEL_TYPE_I8: return x.i8;
    case MODEL_TYPE_U16: return x.u16;
    case MODEL_TYPE_I16: return x.i16;
    case MODEL_TYPE_U32: return x.u32;
    case MODEL_TYPE_I32: return x.i32;
    case MODEL_TYPE_U64: return x.u64 > INT64_MAX ? INT64_MAX : (int64_t)x.u64;
    case MODEL_TYPE_I64: return x.i64;
    case MODEL_TYPE_F32:
    case MODEL_TYPE_F64:
    case MODEL_TYPE_BOOL:
    case MODEL_TYPE_STRING:
    case MODEL_TYPE_ARRAY: break;
    }
    must(false);
    return 0;
}

float model_file_f32_at(const struct model_array *a, uint64_t index)
{
    must(index < a->count && model_file_kind_of(a->type) == MODEL_KIND_FLOAT);
    double d;
    float s;
    if (a->type == MODEL_TYPE_F32) {
        memcpy(&s, a->data + 4 * index, sizeof s);
        return s;
    }
    memcpy(&d, a->data + 8 * index, sizeof d);
    return (float)d;
}

bool model_file_bool_at(const struct model_array *a, uint64_t index)
{
    must(index < a->count && a->type == MODEL_TYPE_BOOL);
    return a->data[index] != 0;
}
