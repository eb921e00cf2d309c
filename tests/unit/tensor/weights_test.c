/* weights: each byte of a file reaches the device once, in pieces of whole rows; vectors as f32. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "tensor/weights.h"

/* ---- a file: docs/formats/gguf.md ---- */

enum { TYPE_STRING = 8, ALIGNMENT = 32 };

/* A sentence begins with the file's name, whatever descriptor that is. */
static void expect_sentence(const struct err *e, const struct model_file *f, const char *sentence)
{
    char want[ERR_TEXT_MAX];
    snprintf(want, sizeof want, "%.*s: %s", STR_ARG(model_file_name(f)), sentence);
    assert_string_equal(e->text, want);
}

/* What lies at byte i of a tensor if nothing else is said: finite in all types. */
static uint8_t byte_at(size_t i) { return (uint8_t)((i * 7 + i / 64) % 64); }

struct tensor {
    const char *name;
    enum qtype type;
    uint32_t cols, rows, mats;
    const void *bytes; /* NULL: byte_at */
};

static void put_u32(struct buf *b, uint32_t v) { buf_add_bytes(b, &v, 4); }
static void put_u64(struct buf *b, uint64_t v) { buf_add_bytes(b, &v, 8); }
static void put_text(struct buf *b, const char *z)
{
    put_u64(b, strlen(z));
    buf_add_z(b, z);
}

static size_t tensor_size(const struct tensor *t)
{
    size_t row = 0;
    assert_true(quant_row_size(t->type, t->cols, &row));
    return row * t->rows * t->mats;
}

static void add_data(struct buf *b, const struct tensor *t)
{
    while (b->len % ALIGNMENT)
        buf_add_byte(b, 0);
    size_t size = tensor_size(t);
    assert_true(buf_reserve(b, size));
    for (size_t i = 0; i < size; i++)
        b->p[b->len + i] = t->bytes ? ((const char *)t->bytes)[i] : (char)byte_at(i);
    b->len += size;
}

static struct model_file *make_file(const struct tensor *tensors, uint32_t count)
{
    struct buf b;
    buf_init(&b, (size_t)64 << 20);
    buf_add_z(&b, "GGUF");
    put_u32(&b, 3);
    put_u64(&b, count);
    put_u64(&b, 1);
    put_text(&b, "general.architecture");
    put_u32(&b, TYPE_STRING);
    put_text(&b, "tiny");
    uint64_t offset = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct tensor *t = &tensors[i];
        uint32_t n_dims = t->mats > 1 ? 3 : t->rows > 1 ? 2 : 1;
        const uint64_t dims[] = {t->cols, t->rows, t->mats};
        put_text(&b, t->name);
        put_u32(&b, n_dims);
        for (uint32_t d = 0; d < n_dims; d++)
            put_u64(&b, dims[d]);
        put_u32(&b, quant_table[t->type].gguf_id);
        put_u64(&b, offset);
        offset += base_align(tensor_size(t), ALIGNMENT);
    }
    for (uint32_t i = 0; i < count; i++)
        add_data(&b, &tensors[i]);
    char path[64];
    int fd = memfd_create("weights", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_false(b.full);
    assert_int_equal(write(fd, b.p, b.len), b.len);
    struct model_file *f = NULL;
    struct err e;
    if (!model_file_open(&f, path, &e))
        fail_msg("%s", e.text);
    close(fd);
    buf_deinit(&b);
    return f;
}

/* ---- a device that keeps what it is given ---- */

struct device {
    uint32_t calls, loaded, calls_max;
};

struct kept {
    uint8_t *bytes;
    size_t rows, row_size;
};

static bool keep_load(struct device *d, struct weight *w, size_t row_first, size_t rows,
                      const void *src, struct err *e)
{
    if (d->calls++ == d->calls_max)
        return err_set(e, ERR_MEMORY, "full");
    struct kept *k = w->device;
    if (!k) {
        k = w->device = calloc(1, sizeof *k);
        assert_true(quant_row_size(w->type, w->cols, &k->row_size));
        k->bytes = malloc(k->row_size * w->rows * w->mats);
        d->loaded++;
    }
    assert_int_equal(row_first, k->rows); /* in order */
    size_t in_matrix = row_first % w->rows;
    assert_true(in_matrix + rows <= w->rows);
    assert_true(rows % TENSOR_PIECE_ROWS == 0 || in_matrix + rows == w->rows);
    assert_true(rows * k->row_size <= TENSOR_PIECE_MAX);
    memcpy(k->bytes + row_first * k->row_size, src, rows * k->row_size);
    k->rows += rows;
    return true;
}

static void keep_free(struct device *d, struct weight *w)
{
    struct kept *k = w->device;
    free(k->bytes);
    free(k);
    w->device = NULL;
    d->loaded--;
}

static const struct backend keeper = {
    .name = "keep", .weight_load = keep_load, .weight_free = keep_free};
static const char *const nothing[] = {NULL};

struct world {
    struct arena arena;
    struct plan plan;
    struct weights w;
    struct err err;
};

static void world_init(struct world *x)
{
    memset(x, 0, sizeof *x);
    arena_init(&x->arena, 1u << 20);
    plan_init(&x->plan, &x->arena, PLAN_KIND_MAIN);
}

static const uint16_t bf16[] = {0x3f80, 0xc000, 0x4049, 0}; /* 1 -2 3.140625 0 */

static const struct tensor good[] = {
    {"matrix", QTYPE_Q8_0, 64, 37, 1, NULL},
    {"experts", QTYPE_F16, 32, 20, 3, NULL},
    {"large", QTYPE_F32, 2048, 3001, 1, NULL}, /* 24.6 MB: two pieces */
    {"vector", QTYPE_BF16, 4, 1, 1, bf16},
};

static void want_good(struct plan *p)
{
    plan_weight(p, "vector", plan_vector(4));
    plan_weight(p, "large", plan_matrix(3001, 2048));
    plan_weight(p, "experts", plan_experts(3, 20, 32));
    plan_weight(p, "matrix", plan_matrix(37, 64));
}

static bool count_bytes(void *ctx, uint64_t done, uint64_t total)
{
    uint64_t *last = ctx;
    assert_true(done > *last && done <= total);
    *last = done;
    return true;
}

static void test_every_byte_arrives_once_in_pieces_of_whole_rows(void **state)
{
    (void)state;
    struct world x;
    world_init(&x);
    want_good(&x.plan);
    struct model_file *f = make_file(good, countof(good));
    struct device d = {.calls_max = 100};
    uint64_t last = 0;
    struct weights_progress progress = {count_bytes, &last};
    assert_true(weights_bind(&x.w, &x.plan, f, nothing, &x.arena, &x.err));
    if (!weights_load(&x.w, &keeper, &d, &progress, &x.err))
        fail_msg("%s", x.err.text);
    assert_int_equal(last, x.w.bytes);
    assert_int_equal(d.calls, 1 + 3 + 2 + 1);
    for (uint32_t i = 1; i < x.w.count; i++) {
        const struct weight *w = &x.w.items[i];
        const struct kept *k = w->device;
        assert_int_equal(k->rows, (size_t)w->rows * w->mats);
        for (size_t b = 0; b < k->rows * k->row_size; b++)
            if (k->bytes[b] != byte_at(b))
                fail_msg("%s: byte %zu", w->name.p, b);
    }
    const struct kept *v = x.w.items[0].device;
    const float want[] = {1.0f, -2.0f, 3.140625f, 0.0f};
    assert_int_equal(x.w.items[0].type, QTYPE_F32);
    assert_memory_equal(v->bytes, want, sizeof want);
    weights_free(&x.w, &keeper, &d);
    assert_int_equal(d.loaded, 0);
    model_file_close(f);
    arena_deinit(&x.arena);
}

static bool stop_at_once(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    (void)done;
    (void)total;
    return false;
}

static void test_a_load_that_ends_early_frees_what_it_loaded(void **state)
{
    (void)state;
    struct model_file *f = make_file(good, countof(good));
    for (uint32_t calls = 0; calls <= 7; calls++) {
        struct world x;
        world_init(&x);
        want_good(&x.plan);
        struct device d = {.calls_max = calls};
        struct weights_progress stop = {stop_at_once, NULL};
        assert_true(weights_bind(&x.w, &x.plan, f, nothing, &x.arena, &x.err));
        bool is_stopped = calls == 7;
        assert_false(weights_load(&x.w, &keeper, &d, is_stopped ? &stop : NULL, &x.err));
        assert_int_equal(x.err.code, is_stopped ? ERR_CANCELLED : ERR_MEMORY);
        assert_int_equal(d.loaded, 0);
        arena_deinit(&x.arena);
    }
    model_file_close(f);
}

static void test_a_vector_that_is_no_number_is_named_with_its_place(void **state)
{
    (void)state;
    static const uint16_t broken[] = {0x3c00, 0x7e00, 0x3c00, 0x3c00}; /* f16: 1 NaN 1 1 */
    static const uint16_t endless[] = {0x3c00, 0x3c00, 0x3c00, 0xfc00};
    for (int i = 0; i < 2; i++) {
        struct world x;
        world_init(&x);
        plan_weight(&x.plan, "vector", plan_vector(4));
        struct tensor t = {"vector", QTYPE_F16, 4, 1, 1, i ? endless : broken};
        struct model_file *f = make_file(&t, 1);
        struct device d = {.calls_max = 100};
        assert_true(weights_bind(&x.w, &x.plan, f, nothing, &x.arena, &x.err));
        assert_false(weights_load(&x.w, &keeper, &d, NULL, &x.err));
        expect_sentence(&x.err, f, i ? "tensor 'vector' holds an infinity at 3"
                                     : "tensor 'vector' holds a NaN at 1");
        model_file_close(f);
        arena_deinit(&x.arena);
    }
}

static void test_a_matrix_with_a_scale_that_is_no_number_is_named_with_its_row(void **state)
{
    (void)state;
    struct world x;
    uint8_t blocks[3 * 2 * 34] = {0};
    world_init(&x);
    plan_weight(&x.plan, "matrix", plan_matrix(3, 64));
    blocks[5 * 34 + 1] = 0x7e; /* the second block of the last row: d is NaN */
    struct tensor t = {"matrix", QTYPE_Q8_0, 64, 3, 1, blocks};
    struct model_file *f = make_file(&t, 1);
    struct device d = {.calls_max = 100};
    assert_true(weights_bind(&x.w, &x.plan, f, nothing, &x.arena, &x.err));
    assert_false(weights_load(&x.w, &keeper, &d, NULL, &x.err));
    expect_sentence(&x.err, f, "tensor 'matrix' holds a NaN or an infinite scale in row 2");
    assert_int_equal(x.err.code, ERR_FORMAT);
    model_file_close(f);
    arena_deinit(&x.arena);
}

static void test_types_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct tensor tensor;
        struct weight_want want;
        const char *sentence;
    } cases[] = {
        {{"w", QTYPE_I32, 4, 4, 1, NULL},
         {WEIGHT_KIND_MATRIX, 4, 4, 1},
         "tensor 'w' has type I32, which is no weight type"},
        {{"w", QTYPE_Q8_0, 32, 1, 1, NULL},
         {WEIGHT_KIND_VECTOR, 1, 32, 1},
         "tensor 'w' has type Q8_0, needed is F32, F16 or BF16"},
        {{"w", QTYPE_F32, 4, 3, 2, NULL},
         {WEIGHT_KIND_MATRIX, 3, 4, 1},
         "tensor 'w' has shape 4 x 3 x 2, the model needs 4 x 3"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct world x;
        world_init(&x);
        plan_weight(&x.plan, "w", cases[i].want);
        struct model_file *f = make_file(&cases[i].tensor, 1);
        assert_false(weights_bind(&x.w, &x.plan, f, nothing, &x.arena, &x.err));
        expect_sentence(&x.err, f, cases[i].sentence);
        model_file_close(f);
        arena_deinit(&x.arena);
    }
}

static void test_pieces_hold_sixteen_rows_even_if_these_are_more_than_a_piece(void **state)
{
    (void)state;
    struct weight w = {.type = QTYPE_F32, .rows = 1000, .cols = 1u << 20, .mats = 1};
    assert_int_equal(weights_piece_rows(&w), 16);
    w.rows = 5;
    assert_int_equal(weights_piece_rows(&w), 5);
    w.cols = 1024;
    w.rows = 100000;
    assert_int_equal(weights_piece_rows(&w), 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte_arrives_once_in_pieces_of_whole_rows),
        cmocka_unit_test(test_a_load_that_ends_early_frees_what_it_loaded),
        cmocka_unit_test(test_a_vector_that_is_no_number_is_named_with_its_place),
        cmocka_unit_test(test_a_matrix_with_a_scale_that_is_no_number_is_named_with_its_row),
        cmocka_unit_test(test_types_that_do_not_fit_are_refused),
        cmocka_unit_test(test_pieces_hold_sixteen_rows_even_if_these_are_more_than_a_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
