/* One file at a time: what is read from a good one, and the sentence for each way to be bad. */
#include "fmt/gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "unit/fmt/image.h"

/* Opens the image, extended with zeros to size_min bytes without storing them. */
static bool open_sparse(const struct image *m, off_t size_min, struct err *e)
{
    int fd;
    struct model_file *f;
    const char *path = image_path(m, &fd);
    if (size_min > 0)
        assert_int_equal(ftruncate(fd, size_min), 0);
    bool ok = model_file_open(&f, path, e);
    if (ok)
        model_file_close(f);
    image_drop(fd);
    return ok;
}

static void expect(const struct image *m, enum err_code code, const char *part)
{
    struct err e = {0};
    bool ok = open_sparse(m, 0, &e);
    if (ok || e.code != code || !strstr(e.text, part) || strchr(e.text, '\n'))
        fail_msg("wanted %s with \"%s\", got %s: %s", err_name(code), part,
                 ok ? "success" : err_name(e.code), ok ? "" : e.text);
}

static void test_a_good_file_is_read_whole(void **state)
{
    (void)state;
    struct image m;
    int fd;
    struct err e = {0};
    image_init(&m);
    image_good(&m);
    struct file file;
    struct gguf g;
    assert_true(file_open(&file, image_path(&m, &fd), &e));
    if (!gguf_read(&g, &file, &e))
        fail_msg("%s", e.text);
    assert_int_equal(g.version, 3);
    assert_int_equal(g.entry_count, 4);
    assert_int_equal(g.tensor_count, 2);
    assert_int_equal(g.alignment, 32);
    assert_int_equal(g.data_offset, m.b.len - 32 - 4 * 34);
    const struct model_value *v = gguf_find(&g, STR("tokenizer.ggml.tokens"));
    assert_true(v && v->type == MODEL_TYPE_ARRAY && v->array.type == MODEL_TYPE_STRING);
    assert_true(str_eq_z(model_file_str_at(&v->array, 0), "<s>"));
    assert_true(str_eq_z(model_file_str_at(&v->array, 1), ""));
    assert_true(str_eq_z(model_file_str_at(&v->array, 2), "hello"));
    assert_null(gguf_find(&g, STR("tokenizer.ggml")));
    const struct model_tensor *b = &g.tensors[1];
    assert_true(str_eq_z(b->name, "b"));
    assert_int_equal(b->type, QTYPE_Q8_0);
    assert_int_equal(b->n_dims, 2);
    assert_true(b->dims[0] == 64 && b->dims[1] == 2 && b->dims[2] == 1 && b->dims[3] == 1);
    assert_int_equal(b->size, 4 * 34);
    assert_int_equal(b->offset, g.data_offset + 32);
    gguf_deinit(&g);
    file_close(&file);
    image_drop(fd);
    image_deinit(&m);
}

static void test_every_value_type_is_read(void **state)
{
    (void)state;
    struct image m;
    struct err e = {0};
    image_init(&m);
    image_head(&m, 2, 0, 14);
    image_key_str(&m, "general.architecture", "x");
    image_key(&m, "u8", MODEL_TYPE_U8), image_u8(&m, 255);
    image_key(&m, "i8", MODEL_TYPE_I8), image_u8(&m, 0x80);
    image_key(&m, "u16", MODEL_TYPE_U16), image_u16(&m, 65535);
    image_key(&m, "i16", MODEL_TYPE_I16), image_u16(&m, 0x8000);
    image_key(&m, "u32", MODEL_TYPE_U32), image_u32(&m, UINT32_MAX);
    image_key(&m, "i32", MODEL_TYPE_I32), image_u32(&m, 0x80000000u);
    image_key(&m, "f32", MODEL_TYPE_F32), image_f32(&m, 0.5f);
    image_key(&m, "bool", MODEL_TYPE_BOOL), image_u8(&m, 1);
    image_key(&m, "u64", MODEL_TYPE_U64), image_u64(&m, UINT64_MAX);
    image_key(&m, "i64", MODEL_TYPE_I64), image_u64(&m, 1ull << 63);
    image_key(&m, "f64", MODEL_TYPE_F64), image_u64(&m, 0x3fe0000000000000u);
    image_array(&m, "nested", MODEL_TYPE_ARRAY, 2);
    image_u32(&m, MODEL_TYPE_U16), image_u64(&m, 1), image_u16(&m, 9);
    image_u32(&m, MODEL_TYPE_STRING), image_u64(&m, 2), image_str(&m, "p"), image_str(&m, "");
    image_array(&m, "none", MODEL_TYPE_F64, 0);
    int fd;
    struct model_file *f;
    if (!model_file_open(&f, image_path(&m, &fd), &e))
        fail_msg("%s", e.text);
    struct model_value v;
    assert_true(model_file_find(f, "u8", &v) && v.u64 == 255);
    assert_true(model_file_find(f, "i8", &v) && v.i64 == -128);
    assert_true(model_file_find(f, "u16", &v) && v.u64 == 65535);
    assert_true(model_file_find(f, "i16", &v) && v.i64 == -32768);
    assert_true(model_file_find(f, "u32", &v) && v.u64 == UINT32_MAX);
    assert_true(model_file_find(f, "i32", &v) && v.i64 == INT32_MIN);
    assert_true(model_file_find(f, "f32", &v) && v.f64 == 0.5);
    assert_true(model_file_find(f, "bool", &v) && v.b);
    assert_true(model_file_find(f, "u64", &v) && v.u64 == UINT64_MAX);
    assert_true(model_file_find(f, "i64", &v) && v.i64 == INT64_MIN);
    assert_true(model_file_find(f, "f64", &v) && v.f64 == 0.5);
    assert_true(model_file_find(f, "nested", &v) && v.array.type == MODEL_TYPE_ARRAY);
    assert_int_equal(v.array.count, 2);
    assert_true(model_file_find(f, "none", &v) && v.array.count == 0);
    assert_int_equal(model_file_tensor_count(f), 0);
    model_file_close(f);
    image_drop(fd);
    image_deinit(&m);
}

static void test_every_cut_of_a_good_file_is_a_sentence(void **state)
{
    (void)state;
    struct image m;
    image_init(&m);
    image_good(&m);
    for (size_t size = m.b.len; size-- > 0;) {
        struct err e = {0};
        m.b.len = size;
        if (open_sparse(&m, 0, &e))
            fail_msg("a file cut to %zu bytes was opened", size);
        assert_true(e.code == ERR_FORMAT && e.text[0] != '\0');
    }
    image_deinit(&m);
}

static void test_other_files_are_named_for_what_they_are(void **state)
{
    (void)state;
    static const struct { const char *bytes; size_t size; enum err_code code; const char *part; }
    cases[] = {
        {"", 0, ERR_FORMAT, "is empty (0 bytes)"},
        {"GG", 2, ERR_FORMAT, "has only 2 bytes"},
        {"GGUF", 4, ERR_FORMAT, "ends inside the header"},
        {"<!DOCTYPE html><html>", 21, ERR_UNSUPPORTED, "web page"},
        {"version https://git-lfs.github.com/spec/v1\noid", 46, ERR_UNSUPPORTED, "Git LFS pointer"},
        {"{\"error\":\"not found\"}", 21, ERR_UNSUPPORTED, "JSON"},
        {"PK\003\004abcdefgh", 12, ERR_UNSUPPORTED, "zip"},
        {"\037\213\010\000abc", 7, ERR_UNSUPPORTED, "gzip"},
        {"tjgg\003\000\000\000", 8, ERR_UNSUPPORTED, "GGJT"},
        {"lmgg\003\000\000\000", 8, ERR_UNSUPPORTED, "GGML"},
        {"\100\000\000\000\000\000\000\000{\"a\":{", 14, ERR_UNSUPPORTED, "safetensors"},
        {"hello world", 11, ERR_FORMAT, "it begins with 68 65 6c 6c"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct image m;
        image_init(&m);
        assert_true(buf_add_bytes(&m.b, cases[i].bytes, cases[i].size));
        expect(&m, cases[i].code, cases[i].part);
        image_deinit(&m);
    }
}

static void test_other_versions_and_byte_orders_are_refused_by_name(void **state)
{
    (void)state;
    static const struct { uint32_t version; const char *part; } cases[] = {
        {0, "version 0"}, {1, "version 1"}, {4, "version 4"}, {0x03000000u, "big-endian"},
        {0x02000000u, "big-endian"}, {UINT32_MAX, "version 4294967295"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct image m;
        image_init(&m);
        image_head(&m, cases[i].version, 0, 0);
        expect(&m, ERR_UNSUPPORTED, cases[i].part);
        image_deinit(&m);
    }
}

static const uint64_t absurd[] = {1ull << 63, UINT64_MAX, (1ull << 63) - 1, 1ull << 31, 1ull << 32,
                                  1ull << 61, 1000};

static void test_absurd_counts_are_refused_before_anything_is_allocated(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(absurd); i++) {
        struct image m;
        image_init(&m);
        image_head(&m, 3, 0, absurd[i]);
        expect(&m, ERR_FORMAT, "keys and 0 tensors, but has only 0 bytes");
        m.b.len = 0;
        image_head(&m, 3, absurd[i], 0);
        expect(&m, ERR_FORMAT, "claims 0 keys and");
        image_deinit(&m);
    }
}

static void test_absurd_string_lengths_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(absurd); i++) {
        struct image m;
        image_init(&m);
        image_head(&m, 3, 0, 1); /* the key itself */
        image_u64(&m, absurd[i]);
        image_fill(&m, 20);
        expect(&m, ERR_FORMAT, "a string in the metadata at byte 24 claims");
        m.b.len = 0;
        image_head(&m, 3, 0, 1); /* a value */
        image_key(&m, "general.architecture", MODEL_TYPE_STRING);
        image_u64(&m, absurd[i]);
        image_fill(&m, 20);
        expect(&m, ERR_FORMAT, "claims");
        m.b.len = 0;
        image_head(&m, 3, 0, 1); /* inside an array */
        image_array(&m, "k", MODEL_TYPE_STRING, 2);
        image_str(&m, "fine");
        image_u64(&m, absurd[i]);
        expect(&m, ERR_FORMAT, "claims");
        m.b.len = 0;
        image_head(&m, 3, 1, 0); /* a tensor's name */
        image_u64(&m, absurd[i]);
        image_fill(&m, 40);
        expect(&m, ERR_FORMAT, "a string in the tensor list");
        image_deinit(&m);
    }
}

static void test_absurd_array_counts_are_refused_for_every_element_type(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < MODEL_TYPE_COUNT; type++) {
        for (size_t i = 0; i < countof(absurd); i++) {
            struct image m;
            image_init(&m);
            image_head(&m, 3, 0, 1);
            image_array(&m, "k", type, absurd[i]);
            image_fill(&m, 6);
            expect(&m, ERR_FORMAT, "key 'k' claims an array of");
            image_deinit(&m);
        }
    }
}

static void test_unknown_value_and_element_types_are_refused(void **state)
{
    (void)state;
    static const uint32_t types[] = {13, 14, 255, UINT32_MAX};
    for (size_t i = 0; i < countof(types); i++) {
        struct image m;
        image_init(&m);
        image_head(&m, 3, 0, 1);
        image_key(&m, "some.key", types[i]);
        image_fill(&m, 8);
        expect(&m, ERR_FORMAT, "key 'some.key' has type");
        m.b.len = 0;
        image_head(&m, 3, 0, 1);
        image_array(&m, "some.key", types[i], 1);
        image_fill(&m, 8);
        expect(&m, ERR_FORMAT, "key 'some.key' has type");
        image_deinit(&m);
    }
}

static void test_arrays_nest_only_so_deep(void **state)
{
    (void)state;
    for (unsigned depth = 1; depth <= 200; depth += 199) {
        struct image m;
        image_init(&m);
        image_head(&m, 3, 0, 1);
        image_array(&m, "k", MODEL_TYPE_ARRAY, 1);
        for (unsigned i = 0; i < depth; i++)
            image_u32(&m, MODEL_TYPE_ARRAY), image_u64(&m, 1);
        image_u32(&m, MODEL_TYPE_U8), image_u64(&m, 0);
        if (depth > 1)
            expect(&m, ERR_LIMIT, "key 'k' nests arrays more than 4 deep");
        else
            expect(&m, ERR_FORMAT, "key 'general.architecture' is missing");
        image_deinit(&m);
    }
}

static void test_a_bool_is_0_or_1(void **state)
{
    (void)state;
    struct image m;
    image_init(&m);
    image_head(&m, 3, 0, 1);
    image_key(&m, "flag", MODEL_TYPE_BOOL), image_u8(&m, 2);
    expect(&m, ERR_FORMAT, "key 'flag' holds a bool of value 2");
    m.b.len = 0;
    image_head(&m, 3, 0, 1);
    image_array(&m, "flags", MODEL_TYPE_BOOL, 3), image_u8(&m, 1), image_u8(&m, 0), image_u8(&m, 7);
    expect(&m, ERR_FORMAT, "key 'flags' holds a bool of value 7");
    image_deinit(&m);
}

static void test_keys_are_text_and_unique(void **state)
{
    (void)state;
    static const struct { const char *first, *second, *part; } cases[] = {
        {"a.b", "a.b", "key 'a.b' occurs twice"},
        {"a.b", "", "key 1 of the metadata is empty"},
        {"a.b", "x\ny", "key 1 of the metadata is not printable"},
        {"a.b", "x\x7f", "key 1 of the metadata is not printable"},
        {"a.b", "x\xff\xfe", "key 1 of the metadata is not printable"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct image m;
        image_init(&m);
        image_head(&m, 3, 0, 2);
        image_key_u32(&m, cases[i].first, 1);
        image_key_u32(&m, cases[i].second, 2);
        image_fill(&m, 16);
        expect(&m, ERR_FORMAT, cases[i].part);
        image_deinit(&m);
    }
}

static void test_the_architecture_must_be_there_and_be_text(void **state)
{
    (void)state;
    struct image m;
    image_init(&m);
    image_head(&m, 3, 0, 0);
    expect(&m, ERR_FORMAT, "key 'general.architecture' is missing");
    m.b.len = 0;
    image_head(&m, 3, 0, 1);
    image_key_u32(&m, "general.architecture", 1);
    expect(&m, ERR_FORMAT, "key 'general.architecture' is no text");
    m.b.len = 0;
    image_head(&m, 3, 0, 1);
    image_key_str(&m, "general.architecture", "");
    expect(&m, ERR_FORMAT, "key 'general.architecture' is no text");
    image_deinit(&m);
}

static void test_alignment_is_a_u32_power_of_two_up_to_65536(void **state)
{
    (void)state;
    static const struct { uint32_t type; uint64_t value; const char *part; } cases[] = {
        {MODEL_TYPE_U32, 0, "is 0, must be a power of two"},
        {MODEL_TYPE_U32, 3, "is 3, must be a power of two"},
        {MODEL_TYPE_U32, 131072, "is 131072, must be a power of two up to 65536"},
        {MODEL_TYPE_U32, 1u << 31, "is 2147483648"},
        {MODEL_TYPE_I32, 32, "has type 5, must be u32"},
        {MODEL_TYPE_U64, 32, "has type 10, must be u32"},
        {MODEL_TYPE_F32, 0x42000000u, "has type 6, must be u32"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct image m;
        image_init(&m);
        image_head(&m, 3, 0, 1);
        image_key(&m, "general.alignment", cases[i].type);
        if (cases[i].type == MODEL_TYPE_U64)
            image_u64(&m, cases[i].value);
        else
            image_u32(&m, (uint32_t)cases[i].value);
        expect(&m, ERR_FORMAT, cases[i].part);
        image_deinit(&m);
    }
    struct image m;
    image_init(&m);
    image_head(&m, 3, 0, 1);
    image_key_str(&m, "general.alignment", "32");
    expect(&m, ERR_FORMAT, "has type 8, must be u32");
    image_deinit(&m);
}

static void test_an_alignment_of_the_file_is_used(void **state)
{
    (void)state;
    for (uint32_t alignment = 1; alignment <= 65536; alignment *= 16) {
        struct image m;
        struct err e = {0};
        image_init(&m);
        image_head(&m, 3, 1, 2);
        image_key_str(&m, "general.architecture", "x");
        image_key_u32(&m, "general.alignment", alignment);
        image_tensor(&m, "t", 1, 0, 0, alignment);
        image_pad(&m, alignment);
        image_fill(&m, alignment + 4);
        if (!open_sparse(&m, 0, &e))
            fail_msg("alignment %u: %s", alignment, e.text);
        m.b.len--;
        expect(&m, ERR_FORMAT, "tensor 't'");
        image_deinit(&m);
    }
}

/* One tensor in a file with 64 bytes of data. */
struct tensor_case {
    uint32_t n_dims;
    uint64_t dims[5];
    uint32_t type;
    uint64_t offset;
    enum err_code code;
    const char *part;
};

static void test_bad_tensors_are_refused_by_name(void **state)
{
    (void)state;
    static const struct tensor_case cases[] = {
        {5, {1, 1, 1, 1, 1}, 0, 0, ERR_FORMAT, "tensor 'w' has 5 dimensions, at most 4"},
        {UINT32_MAX, {0}, 0, 0, ERR_FORMAT, "has 4294967295 dimensions"},
        {2, {4, 0}, 0, 0, ERR_FORMAT, "tensor 'w' has dimension 1 of 0"},
        {1, {33}, 8, 0, ERR_FORMAT, "rows of 33 values, no multiple of 32 as Q8_0"},
        {1, {128}, 12, 0, ERR_FORMAT, "rows of 128 values, no multiple of 256 as Q4_K"},
        {2, {1ull << 32, 1ull << 32}, 0, 0, ERR_FORMAT, "overflows"},
        {4, {1u << 16, 1u << 16, 1u << 16, 1u << 16}, 24, 0, ERR_FORMAT, "overflows"},
        {1, {UINT64_MAX}, 24, 0, ERR_FORMAT, "overflows"},
        {2, {1ull << 62, 2}, 24, 0, ERR_FORMAT, "overflows"},
        {1, {(1ull << 63) - 32}, 2, 0, ERR_FORMAT, "lies past the end"},
        {1, {1ull << 40}, 0, 0, ERR_FORMAT, "lies past the end: the file has 64 bytes of data"},
        {1, {17}, 0, 0, ERR_FORMAT, "tensor 'w' (68 bytes at 0 of the data) lies past the end"},
        {1, {16}, 0, 32, ERR_FORMAT, "lies past the end"},
        {1, {1}, 0, 96, ERR_FORMAT, "lies past the end"},
        {1, {1}, 0, UINT64_MAX - 31, ERR_FORMAT, "lies past the end"},
        {1, {1}, 0, 16, ERR_FORMAT, "offset 16, no multiple of alignment 32"},
        {1, {32}, 139, 0, ERR_UNSUPPORTED, "type id 139 (IQ4_K of ik_llama.cpp)"},
        {1, {32}, 36, 0, ERR_UNSUPPORTED, "I2_S of ik_llama.cpp"},
        {1, {32}, 4, 0, ERR_UNSUPPORTED, "type id 4 (Q4_2, removed"},
        {1, {32}, 202, 0, ERR_UNSUPPORTED, "row-interleaved repack of ik_llama.cpp"},
        {1, {32}, 9, 0, ERR_UNSUPPORTED, "type id 9 (Q8_1, for activations only)"},
        {1, {256}, 15, 0, ERR_UNSUPPORTED, "type id 15 (Q8_K, for activations only)"},
        {1, {32}, 43, 0, ERR_UNSUPPORTED, "type id 43, which shoal does not know"},
        {1, {32}, UINT32_MAX, 0, ERR_UNSUPPORTED, "type id 4294967295"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        const struct tensor_case *c = &cases[i];
        struct image m;
        image_init(&m);
        image_head(&m, 3, 1, 1);
        image_key_str(&m, "general.architecture", "x");
        image_str(&m, "w");
        image_u32(&m, c->n_dims);
        for (uint32_t d = 0; d < c->n_dims && d < 5; d++)
            image_u64(&m, c->dims[d]);
        image_u32(&m, c->type);
        image_u64(&m, c->offset);
        image_pad(&m, 32);
        image_fill(&m, 64);
        expect(&m, c->code, c->part);
        image_deinit(&m);
    }
}

static void two_tensors(struct image *m, const char *a, const char *b, uint64_t offset_b)
{
    image_init(m);
    image_head(m, 3, 2, 1);
    image_key_str(m, "general.architecture", "x");
    image_tensor(m, a, 16, 0, 0, 0);
    image_tensor(m, b, 8, 0, 0, offset_b);
    image_pad(m, 32);
    image_fill(m, 128);
}

static void test_tensor_names_are_text_and_unique_and_bytes_are_not_shared(void **state)
{
    (void)state;
    char long_name[300];
    memset(long_name, 'n', sizeof long_name);
    long_name[256] = '\0';
    static const char *const parts[] = {"tensor 'a' occurs twice", "the name of tensor 1 is empty",
                                        "tensor 1 is not printable", "tensor 1 is not printable",
                                        "longer than 255 bytes"};
    const char *names[] = {"a", "", "b\r", "\xc3", long_name};
    struct image m;
    for (size_t i = 0; i < countof(names); i++) {
        two_tensors(&m, "a", names[i], 64);
        expect(&m, ERR_FORMAT, parts[i]);
        image_deinit(&m);
    }
    two_tensors(&m, "a", "b", 32);
    expect(&m, ERR_FORMAT, "tensors 'a' and 'b' overlap");
    image_deinit(&m);
    two_tensors(&m, "a", "b", 0);
    expect(&m, ERR_FORMAT, "overlap");
    image_deinit(&m);
}

static void test_limits_hold_in_files_that_really_are_that_large(void **state)
{
    (void)state;
    struct image m;
    struct err e = {0};
    off_t huge = (off_t)1 << 36; /* sparse: nothing is stored */
    image_init(&m);
    image_head(&m, 3, 0, GGUF_KEYS_MAX + 1);
    assert_false(open_sparse(&m, huge, &e));
    assert_true(e.code == ERR_LIMIT && strstr(e.text, "65537 keys"));
    m.b.len = 0;
    image_head(&m, 3, GGUF_TENSORS_MAX + 1, 0);
    assert_false(open_sparse(&m, huge, &e));
    assert_true(e.code == ERR_LIMIT && strstr(e.text, "1048577 tensors"));
    m.b.len = 0;
    image_head(&m, 3, 0, 1);
    image_key(&m, "big", MODEL_TYPE_STRING);
    image_u64(&m, (uint64_t)1 << 35);
    assert_false(open_sparse(&m, huge, &e));
    assert_true(e.code == ERR_LIMIT && strstr(e.text, "256 MiB"));
    m.b.len = 0;
    image_head(&m, 3, 0, 1);
    image_array(&m, "big", MODEL_TYPE_STRING, (uint64_t)1 << 30);
    assert_false(open_sparse(&m, huge, &e));
    assert_true(e.code == ERR_LIMIT && strstr(e.text, "key 'big' has an array of 1073741824"));
    image_deinit(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_file_is_read_whole),
        cmocka_unit_test(test_every_value_type_is_read),
        cmocka_unit_test(test_every_cut_of_a_good_file_is_a_sentence),
        cmocka_unit_test(test_other_files_are_named_for_what_they_are),
        cmocka_unit_test(test_other_versions_and_byte_orders_are_refused_by_name),
        cmocka_unit_test(test_absurd_counts_are_refused_before_anything_is_allocated),
        cmocka_unit_test(test_absurd_string_lengths_are_refused),
        cmocka_unit_test(test_absurd_array_counts_are_refused_for_every_element_type),
        cmocka_unit_test(test_unknown_value_and_element_types_are_refused),
        cmocka_unit_test(test_arrays_nest_only_so_deep),
        cmocka_unit_test(test_a_bool_is_0_or_1),
        cmocka_unit_test(test_keys_are_text_and_unique),
        cmocka_unit_test(test_the_architecture_must_be_there_and_be_text),
        cmocka_unit_test(test_alignment_is_a_u32_power_of_two_up_to_65536),
        cmocka_unit_test(test_an_alignment_of_the_file_is_used),
        cmocka_unit_test(test_bad_tensors_are_refused_by_name),
        cmocka_unit_test(test_tensor_names_are_text_and_unique_and_bytes_are_not_shared),
        cmocka_unit_test(test_limits_hold_in_files_that_really_are_that_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
