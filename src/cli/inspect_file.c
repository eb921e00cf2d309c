#include "arch/arch.h"
#include "base/json.h"
#include "cli/inspect.h"
#include "tensor/weights.h"
#include "text/tok.h"

#define INSPECT_ITEMS 8    /* elements of an array that are shown */
#define INSPECT_TEXT_MAX 72 /* bytes of a text that are shown */

static const char *inspect_file_type(enum model_type t)
{
    static const char *const names[MODEL_TYPE_COUNT] = {"u8",   "i8",  "u16",   "i16", "u32",
                                                        "i32",  "f32", "bool",  "str", "array",
                                                        "u64",  "i64", "f64"};
    return names[t];
}

static void inspect_file_add_text(struct buf *out, str s)
{
    str shown = str_sub(s, 0, INSPECT_TEXT_MAX);
    shown.len = str_utf8_complete(shown);
    buf_add_byte(out, '"');
    buf_add_printable(out, shown);
    buf_add_z(out, shown.len < s.len ? "...\"" : "\"");
    if (shown.len < s.len)
        buf_printf(out, " (%zu bytes)", s.len);
}

static void inspect_file_add_item(struct buf *out, const struct model_array *a, uint64_t i)
{
    char number[JSON_NUMBER_MAX];
    if (a->type == MODEL_TYPE_STRING)
        inspect_file_add_text(out, model_file_str_at(a, i));
    else if (a->type == MODEL_TYPE_BOOL)
        buf_add_z(out, model_file_bool_at(a, i) ? "true" : "false");
    else if (a->type == MODEL_TYPE_F32 || a->type == MODEL_TYPE_F64)
        buf_add(out, str_view(number, json_format_float(number, model_file_f32_at(a, i))));
    else if (a->type == MODEL_TYPE_ARRAY)
        buf_add_z(out, "[...]");
    else
        buf_printf(out, "%lld", (long long)model_file_i64_at(a, i));
}

static void inspect_file_add_array(struct buf *out, const struct model_array *a)
{
    buf_add_byte(out, '[');
    for (uint64_t i = 0; i < a->count && i < INSPECT_ITEMS; i++) {
        buf_add_z(out, i ? ", " : "");
        inspect_file_add_item(out, a, i);
    }
    buf_add_z(out, a->count > INSPECT_ITEMS ? ", ...]" : "]");
}

static void inspect_file_add_value(struct buf *out, const struct model_value *v)
{
    char number[JSON_NUMBER_MAX];
    switch (v->type) {
    case MODEL_TYPE_U8:
    case MODEL_TYPE_U16:
    case MODEL_TYPE_U32:
    case MODEL_TYPE_U64:
        buf_printf(out, "%llu", (unsigned long long)v->u64);
        break;
    case MODEL_TYPE_I8:
    case MODEL_TYPE_I16:
    case MODEL_TYPE_I32:
    case MODEL_TYPE_I64:
        buf_printf(out, "%lld", (long long)v->i64);
        break;
    case MODEL_TYPE_F32:
    case MODEL_TYPE_F64:
        if (v->f64 - v->f64 != 0) /* infinite or no number */
            buf_printf(out, "%f", v->f64);
        else if (v->type == MODEL_TYPE_F32)
            buf_add(out, str_view(number, json_format_float(number, (float)v->f64)));
        else
            buf_add(out, str_view(number, json_format_double(number, v->f64)));
        break;
    case MODEL_TYPE_BOOL:
        buf_add_z(out, v->b ? "true" : "false");
        break;
    case MODEL_TYPE_STRING:
        inspect_file_add_text(out, v->s);
        break;
    case MODEL_TYPE_ARRAY:
        inspect_file_add_array(out, &v->array);
        break;
    }
}

/* 4096 x 1024, in ggml's order; a scalar is 1. */
static void inspect_file_add_shape(struct buf *out, const struct model_tensor *t)
{
    for (uint32_t d = 0; d < t->n_dims; d++)
        buf_printf(out, "%s%llu", d ? " x " : "", (unsigned long long)t->dims[d]);
    if (t->n_dims == 0)
        buf_add_byte(out, '1');
}

/* --- can it be loaded? ---
 *
 * The same steps as a load takes before it reads weights, one line each. */

struct inspect_check {
    const char *what;
    bool ok;
    struct err why;
};
enum { INSPECT_CHECKS = 3 };

static bool inspect_file_check_tensors(const struct model_file *f, struct arena *a, struct err *e)
{
    struct plan plan;
    struct weights weights;
    struct hparams *hp = ARENA_NEW(a, struct hparams);
    if (!hp)
        return err_set(e, ERR_MEMORY, "no memory for the model's numbers");
    if (!arch_read(hp, f, e))
        return false;
    plan_init(&plan, a, PLAN_KIND_MAIN);
    return hp->arch->build(&plan, PLAN_KIND_MAIN, hp, e) && plan_finish(&plan, e) &&
           weights_bind(&weights, &plan, f, hp->arch->ignored, a, e);
}

static bool inspect_file_check_all(const struct model_file *f, struct arena *a,
                                   struct inspect_check checks[INSPECT_CHECKS])
{
    struct tok *tok = NULL;
    checks[0] = (struct inspect_check){.what = "header", .ok = true};
    checks[1] = (struct inspect_check){.what = "tensors"};
    checks[1].ok = inspect_file_check_tensors(f, a, &checks[1].why);
    checks[2] = (struct inspect_check){.what = "vocabulary"};
    checks[2].ok = tok_open(&tok, f, &checks[2].why);
    tok_close(tok);
    return checks[1].ok && checks[2].ok;
}

static uint64_t inspect_file_size(const struct model_file *f)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < model_file_shard_count(f); i++)
        size += model_file_shard_size(f, i);
    return size;
}

/* --- text --- */

static void inspect_file_add_head(struct buf *out, const struct inspect *in,
                                  const struct model_file *f)
{
    const struct arch *arch = arch_find(model_file_arch(f));
    buf_add_z(out, "file          ");
    buf_add_printable(out, in->model.path);
    if (model_file_shard_count(f) > 1)
        buf_printf(out, " and %u more", model_file_shard_count(f) - 1);
    buf_add_z(out, "\nsize          ");
    buf_add_size(out, inspect_file_size(f));
    buf_add_z(out, "\narchitecture  ");
    buf_add_printable(out, model_file_arch(f));
    buf_printf(out, " (%s%s)\n", arch ? "family " : "not supported", arch ? arch->name : "");
}

static void inspect_file_add_keys(struct buf *out, const struct model_file *f)
{
    size_t count = model_file_key_count(f);
    buf_printf(out, "\nmetadata (%zu keys)\n", count);
    for (size_t i = 0; i < count; i++) {
        struct model_value v;
        str key;
        model_file_key_at(f, i, &key, &v);
        size_t from = out->len;
        buf_add_z(out, "  ");
        buf_add_printable(out, key);
        int pad = out->len - from < 44 ? (int)(44 - (out->len - from)) : 1;
        buf_printf(out, "%*s", pad, "");
        if (v.type == MODEL_TYPE_ARRAY)
            buf_printf(out, "%s[%llu] ", inspect_file_type(v.array.type),
                       (unsigned long long)v.array.count);
        else
            buf_printf(out, "%-5s", inspect_file_type(v.type));
        inspect_file_add_value(out, &v);
        buf_add_byte(out, '\n');
    }
}

static void inspect_file_add_tensors(struct buf *out, const struct model_file *f)
{
    size_t count = model_file_tensor_count(f);
    struct buf shape;
    buf_init(&shape, 256);
    buf_printf(out, "\ntensors (%zu)\n  %-36s %-8s %-20s %10s %14s\n", count, "NAME", "TYPE",
               "SHAPE", "SIZE", "OFFSET");
    for (size_t i = 0; i < count; i++) {
        const struct model_tensor *t = model_file_tensor_at(f, i);
        buf_clear(&shape);
        inspect_file_add_shape(&shape, t);
        size_t from = out->len;
        buf_add_z(out, "  ");
        buf_add_printable(out, t->name);
        int pad = out->len - from < 39 ? (int)(39 - (out->len - from)) : 1;
        buf_printf(out, "%*s%-8s %-20s ", pad, "", quant_table[t->type].name, shape.p);
        buf_clear(&shape);
        buf_add_size(&shape, t->size);
        buf_printf(out, "%10s %14llu", shape.p, (unsigned long long)t->offset);
        if (model_file_shard_count(f) > 1)
            buf_printf(out, " in %u", t->shard + 1);
        buf_add_byte(out, '\n');
    }
    buf_deinit(&shape);
}

static void inspect_file_add_checks(struct buf *out, const struct inspect_check *checks)
{
    buf_add_z(out, "\nvalidation\n");
    for (int i = 0; i < INSPECT_CHECKS; i++) {
        buf_printf(out, "  %-12s", checks[i].what);
        buf_add_printable(out, checks[i].ok ? STR("ok") : str_of(checks[i].why.text));
        buf_add_byte(out, '\n');
    }
}

/* --- JSON --- */

static void inspect_file_put_value(struct json_writer *w, const struct model_value *v)
{
    struct buf text;
    buf_init(&text, (size_t)1 << 20);
    bool is_float = v->type == MODEL_TYPE_F32 || v->type == MODEL_TYPE_F64;
    if (v->type == MODEL_TYPE_STRING) {
        json_put_text(w, v->s);
    } else if (v->type == MODEL_TYPE_ARRAY) {
        json_open_array(w);
        for (uint64_t i = 0; i < v->array.count && i < INSPECT_ITEMS; i++) {
            buf_clear(&text);
            inspect_file_add_item(&text, &v->array, i);
            if (v->array.type == MODEL_TYPE_STRING)
                json_put_text(w, model_file_str_at(&v->array, i));
            else if (v->array.type == MODEL_TYPE_ARRAY)
                json_put_null(w);
            else
                json_put_raw(w, buf_view(&text));
        }
        json_close_array(w);
    } else if (is_float) {
        json_put_double(w, v->f64);
    } else {
        inspect_file_add_value(&text, v);
        json_put_raw(w, buf_view(&text));
    }
    buf_deinit(&text);
}

static void inspect_file_put_keys(struct json_writer *w, const struct model_file *f)
{
    json_key_z(w, "metadata");
    json_open_array(w);
    for (size_t i = 0; i < model_file_key_count(f); i++) {
        struct model_value v;
        str key;
        model_file_key_at(f, i, &key, &v);
        json_open_object(w);
        json_key_z(w, "key");
        json_put_text(w, key);
        json_key_z(w, "type");
        json_put_text_z(w, inspect_file_type(v.type));
        if (v.type == MODEL_TYPE_ARRAY) {
            json_key_z(w, "of");
            json_put_text_z(w, inspect_file_type(v.array.type));
            json_key_z(w, "count");
            json_put_u64(w, v.array.count);
        }
        json_key_z(w, v.type == MODEL_TYPE_ARRAY ? "first" : "value");
        inspect_file_put_value(w, &v);
        json_close_object(w);
    }
    json_close_array(w);
}

static void inspect_file_put_tensors(struct json_writer *w, const struct model_file *f)
{
    json_key_z(w, "tensors");
    json_open_array(w);
    for (size_t i = 0; i < model_file_tensor_count(f); i++) {
        const struct model_tensor *t = model_file_tensor_at(f, i);
        json_open_object(w);
        json_key_z(w, "name");
        json_put_text(w, t->name);
        json_key_z(w, "type");
        json_put_text_z(w, quant_table[t->type].name);
        json_key_z(w, "shape");
        json_open_array(w);
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_put_u64(w, t->dims[d]);
        json_close_array(w);
        json_key_z(w, "size");
        json_put_u64(w, t->size);
        json_key_z(w, "offset");
        json_put_u64(w, t->offset);
        json_key_z(w, "shard");
        json_put_u64(w, t->shard);
        json_close_object(w);
    }
    json_close_array(w);
}

static void inspect_file_put(struct buf *out, const struct inspect *in, const struct model_file *f,
                             const struct inspect_check *checks)
{
    struct json_writer w = json_writer(out);
    const struct arch *arch = arch_find(model_file_arch(f));
    json_open_object(&w);
    json_key_z(&w, "path");
    json_put_text(&w, in->model.path);
    json_key_z(&w, "shards");
    json_put_u64(&w, model_file_shard_count(f));
    json_key_z(&w, "size");
    json_put_u64(&w, inspect_file_size(f));
    json_key_z(&w, "architecture");
    json_put_text(&w, model_file_arch(f));
    json_key_z(&w, "family");
    if (arch)
        json_put_text_z(&w, arch->name);
    else
        json_put_null(&w);
    inspect_file_put_keys(&w, f);
    inspect_file_put_tensors(&w, f);
    json_key_z(&w, "validation");
    json_open_object(&w);
    for (int i = 0; i < INSPECT_CHECKS; i++) {
        json_key_z(&w, checks[i].what);
        json_put_text_z(&w, checks[i].ok ? "ok" : checks[i].why.text);
    }
    json_close_object(&w);
    json_close_object(&w);
    buf_add_byte(out, '\n');
}

bool inspect_file(struct inspect *in, struct err *e)
{
    struct model_file *f;
    struct inspect_check checks[INSPECT_CHECKS];
    if (!model_file_open(&f, in->model.path.p, e))
        return false;
    if (!inspect_file_check_all(f, in->c->arena, checks))
        in->c->exit_code = CMD_EXIT_ERROR;
    if (in->as_json) {
        inspect_file_put(&in->out, in, f, checks);
    } else {
        inspect_file_add_head(&in->out, in, f);
        inspect_file_add_keys(&in->out, f);
        inspect_file_add_tensors(&in->out, f);
        inspect_file_add_checks(&in->out, checks);
    }
    model_file_close(f);
    return true;
}
