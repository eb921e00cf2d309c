#include "tensor/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/digest.h"

/* ---- bind ---- */

/* "576 x 1536": dims as in the file, contiguous first, without the ones behind. */
static void print_dims(char *out, size_t size, const uint64_t *dims, uint32_t n)
{
    while (n > 1 && dims[n - 1] == 1)
        n--;
    struct buf b;
    buf_init(&b, size - 1);
    for (uint32_t i = 0; i < n; i++)
        buf_printf(&b, "%s%" PRIu64, i ? " x " : "", dims[i]);
    snprintf(out, size, "%s", b.len ? b.p : "");
    buf_deinit(&b);
}

static bool check_tensor(const struct plan_weight *w, const struct model_tensor *t, struct err *e)
{
    const uint64_t need[MODEL_DIMS_MAX] = {w->want.cols, w->want.rows, w->want.mats, 1};
    for (uint32_t i = 0; i < MODEL_DIMS_MAX; i++) {
        if (t->dims[i] == need[i])
            continue;
        char have_text[64], need_text[64];
        print_dims(have_text, sizeof have_text, t->dims, MODEL_DIMS_MAX);
        print_dims(need_text, sizeof need_text, need, MODEL_DIMS_MAX);
        return err_set(e, ERR_FORMAT, "tensor '%s' has shape %s, the model needs %s", w->name.p,
                       have_text, need_text);
    }
    if (w->want.kind == WEIGHT_KIND_MATRIX && !quant_is_weight(t->type))
        return err_set(e, ERR_FORMAT, "tensor '%s' has type %s, which is no weight type",
                       w->name.p, quant_name(t->type));
    bool is_float = t->type == QTYPE_F32 || t->type == QTYPE_F16 || t->type == QTYPE_BF16;
    if (w->want.kind == WEIGHT_KIND_VECTOR && !is_float)
        return err_set(e, ERR_FORMAT, "tensor '%s' has type %s, needed is F32, F16 or BF16",
                       w->name.p, quant_name(t->type));
    return true;
}

static bool is_wanted(const struct plan *p, str name)
{
    for (uint32_t i = 0; i < p->weights_count; i++)
        if (str_eq(p->weights[i].name, name))
            return true;
    return false;
}

static bool is_ignored(const char *const *ignored, str name)
{
    for (; *ignored; ignored++)
        if (str_glob(str_of(*ignored), name))
            return true;
    return false;
}

/* A tensor that nobody asks for means another model than the plan's: a bias left out would give
 * wrong answers in silence. */
static bool check_unwanted(const struct plan *p, const struct model_file *f,
                           const char *const *ignored, struct err *e)
{
    size_t count = model_file_tensor_count(f);
    if (count == p->weights_count) /* each wanted one was found, names are unique */
        return true;
    for (size_t i = 0; i < count; i++) {
        str name = model_file_tensor_at(f, i)->name;
        if (!is_ignored(ignored, name) && !is_wanted(p, name))
            return err_set(e, ERR_UNSUPPORTED,
                           "tensor '%.*s' has no place in architecture '%.*s'", STR_ARG(name),
                           STR_ARG(model_file_arch(f)));
    }
    return true;
}

static bool bind_items(struct weights *w, const struct plan *p, const struct model_file *f,
                       struct err *e)
{
    for (uint32_t i = 0; i < w->count; i++) {
        const struct plan_weight *want = &p->weights[i];
        const struct model_tensor *t = model_file_tensor(f, want->name);
        if (!t)
            return err_set(e, ERR_FORMAT, "tensor '%s' is missing", want->name.p);
        if (!check_tensor(want, t, e))
            return false;
        bool is_vector = want->want.kind == WEIGHT_KIND_VECTOR;
        w->items[i] = (struct weight){
            .name = want->name, .kind = want->want.kind, .type = is_vector ? QTYPE_F32 : t->type,
            .rows = want->want.rows, .cols = want->want.cols, .mats = want->want.mats,
            .tensor = t};
        w->bytes += is_vector ? (uint64_t)want->want.rows * want->want.cols * 4 : t->size;
    }
    return true;
}

bool weights_bind(struct weights *w, const struct plan *p, const struct model_file *f,
                  const char *const *ignored, struct arena *a, struct err *e)
{
    *w = (struct weights){.file = f, .count = p->weights_count};
    w->items = ARENA_ARRAY(a, struct weight, w->count);
    if (!w->items)
        return err_set(e, ERR_LIMIT, "weights: more than %zu bytes of memory", a->bytes_max);
    bool ok = bind_items(w, p, f, e) && check_unwanted(p, f, ignored, e);
    return ok || model_file_blame(f, e);
}

/* ---- load ---- */

static size_t row_size(const struct weight *w)
{
    size_t size = 0;
    must(quant_row_size(w->type, w->cols, &size)); /* the file was checked at open */
    return size;
}

uint32_t weights_piece_rows(const struct weight *w)
{
    size_t rows = TENSOR_PIECE_MAX / row_size(w);
    if (rows >= w->rows)
        return w->rows;
    rows -= rows % TENSOR_PIECE_ROWS;
    return (uint32_t)base_min(base_max(rows, TENSOR_PIECE_ROWS), w->rows);
}

struct load {
    struct weights *w;
    const struct backend *b;
    struct device *d;
    const struct weights_progress *progress;
    uint8_t *piece;  /* TENSOR_PIECE_MAX bytes or more */
    size_t piece_size;
    uint64_t done;
};

static bool load_progress(struct load *l, uint64_t bytes, struct err *e)
{
    l->w->hash = digest_xxh3(str_view(l->piece, bytes), l->w->hash);
    l->done += bytes;
    if (!l->progress || l->progress->on_bytes(l->progress->ctx, l->done, l->w->bytes))
        return true;
    return err_set(e, ERR_CANCELLED, "the load was cancelled");
}

static bool piece_reserve(struct load *l, size_t size, struct err *e)
{
    if (size <= l->piece_size)
        return true;
    uint8_t *wider = realloc(l->piece, size);
    if (!wider)
        return err_set(e, ERR_MEMORY, "weights: no memory for a piece of %zu bytes", size);
    l->piece = wider;
    l->piece_size = size;
    return true;
}

/* One bad scale would make every answer NaN, long after the load. */
static bool check_finite(const struct weight *w, size_t first, size_t rows, const void *piece,
                         struct err *e)
{
    size_t at;
    if (quant_is_finite(w->type, piece, rows * w->cols, &at))
        return true;
    return err_set(e, ERR_FORMAT, "tensor '%s' holds a NaN or an infinite scale in row %zu",
                   w->name.p, first + at / w->cols);
}

static bool load_matrix(struct load *l, struct weight *w, struct err *e)
{
    size_t row = row_size(w), step = weights_piece_rows(w);
    if (!piece_reserve(l, step * row, e))
        return false;
    for (size_t m = 0; m < w->mats; m++) {
        for (size_t r = 0; r < w->rows; r += step) {
            size_t rows = base_min(step, w->rows - r), first = m * w->rows + r;
            if (!model_file_read(l->w->file, w->tensor, first * row, l->piece, rows * row, e) ||
                !check_finite(w, first, rows, l->piece, e) ||
                !l->b->weight_load(l->d, w, first, rows, l->piece, e) ||
                !load_progress(l, rows * row, e))
                return false;
        }
    }
    return true;
}

static bool load_vector(struct load *l, struct weight *w, struct err *e)
{
    size_t count = (size_t)w->rows * w->cols, size = count * sizeof(float);
    if (!piece_reserve(l, size + w->tensor->size, e))
        return false;
    float *values = (float *)(void *)l->piece;
    if (!model_file_read(l->w->file, w->tensor, 0, l->piece + size, w->tensor->size, e))
        return false;
    quant_table[w->tensor->type].dequant(values, l->piece + size, count);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return err_set(e, ERR_FORMAT, "tensor '%s' holds %s at %zu", w->name.p,
                           isnan(values[i]) ? "a NaN" : "an infinity", i);
    return l->b->weight_load(l->d, w, 0, w->rows, values, e) && load_progress(l, size, e);
}

static int by_place(const void *a, const void *b)
{
    const struct model_tensor *x = (*(struct weight *const *)a)->tensor;
    const struct model_tensor *y = (*(struct weight *const *)b)->tensor;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* In file order; the caller frees it. */
static struct weight **order_new(const struct weights *w, struct err *e)
{
    struct weight **order = calloc(w->count + 1, sizeof *order);
    if (!order) {
        err_set(e, ERR_MEMORY, "weights: no memory for a list of %u", w->count);
        return NULL;
    }
    for (uint32_t i = 0; i < w->count; i++)
        order[i] = &w->items[i];
    qsort(order, w->count, sizeof *order, by_place);
    return order;
}

bool weights_reserve(struct weights *w, const struct backend *b, struct device *d, struct err *e)
{
    struct weight **order = order_new(w, e);
    bool is_good = order != NULL;
    for (uint32_t i = 0; is_good && i < w->count; i++)
        is_good = b->weight_load(d, order[i], 0, 0, NULL, e);
    if (!is_good)
        weights_free(w, b, d);
    free(order);
    return is_good;
}

bool weights_load(struct weights *w, const struct backend *b, struct device *d,
                  const struct weights_progress *progress, struct err *e)
{
    struct load l = {.w = w, .b = b, .d = d, .progress = progress};
    bool is_good = false;
    struct weight **order = order_new(w, e);
    if (!order)
        goto done;
    for (uint32_t i = 0; i < w->count; i++)
        if (!(order[i]->kind == WEIGHT_KIND_VECTOR ? load_vector(&l, order[i], e)
                                                   : load_matrix(&l, order[i], e)))
            goto done;
    is_good = model_file_check_unchanged(w->file, e);
done:
    if (!is_good) {
        model_file_blame(w->file, e);
        weights_free(w, b, d);
    }
    free(order);
    free(l.piece);
    return is_good;
}

void weights_free(struct weights *w, const struct backend *b, struct device *d)
{
    for (uint32_t i = 0; i < w->count; i++)
        if (w->items[i].device)
            b->weight_free(d, &w->items[i]);
}
