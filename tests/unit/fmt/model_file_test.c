/* The view of a whole model: sets of pieces, typed look-ups, files that change under us. */
#include "fmt/model_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "unit/fmt/image.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/model_file_test_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static const char *in_folder(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *p = paths[next++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

static void expect_path(const char *path, enum err_code code, const char *part)
{
    struct err e = {0};
    struct model_file *f = NULL;
    bool ok = model_file_open(&f, path, &e);
    if (ok || e.code != code || !strstr(e.text, part))
        fail_msg("%s: wanted %s with \"%s\", got %s: %s", path, err_name(code), part,
                 ok ? "success" : err_name(e.code), ok ? "" : e.text);
}

static struct model_file *open_image(const struct image *m, int *fd)
{
    struct err e = {0};
    struct model_file *f = NULL;
    if (!model_file_open(&f, image_path(m, fd), &e))
        fail_msg("%s", e.text);
    return f;
}

/* ---- sets of pieces ---- */

struct piece {
    uint16_t no, count;
    int32_t tensors; /* split.tensors.count, -1: absent */
    const char *tensor;
    bool has_arch;
};

static void save_piece(const char *name, const struct piece *p)
{
    struct image m;
    image_init(&m);
    image_head(&m, 3, p->tensor ? 1 : 0, 2u + (p->tensors >= 0) + p->has_arch);
    if (p->has_arch)
        image_key_str(&m, "general.architecture", "tiny");
    image_key(&m, "split.no", MODEL_TYPE_U16), image_u16(&m, p->no);
    image_key(&m, "split.count", MODEL_TYPE_U16), image_u16(&m, p->count);
    if (p->tensors >= 0)
        image_key(&m, "split.tensors.count", MODEL_TYPE_I32), image_u32(&m, (uint32_t)p->tensors);
    if (p->tensor)
        image_tensor(&m, p->tensor, 8, 0, 0, 0);
    image_pad(&m, 32);
    for (unsigned i = 0; i < 32; i++)
        image_u8(&m, (uint8_t)(p->no * 32 + i));
    image_save(&m, in_folder(name));
    image_deinit(&m);
}

static void save_set(void)
{
    save_piece("m-00001-of-00003.gguf", &(struct piece){0, 3, 2, NULL, true});
    save_piece("m-00002-of-00003.gguf", &(struct piece){1, 3, 2, "x", false});
    save_piece("m-00003-of-00003.gguf", &(struct piece){2, 3, 2, "y", false});
}

static void test_any_piece_opens_the_whole_set(void **state)
{
    (void)state;
    save_set();
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                        "m-00003-of-00003.gguf"};
    for (size_t i = 0; i < countof(names); i++) {
        struct err e = {0};
        struct model_file *f;
        if (!model_file_open(&f, in_folder(names[i]), &e))
            fail_msg("%s", e.text);
        assert_int_equal(model_file_shard_count(f), 3);
        assert_int_equal(model_file_tensor_count(f), 2);
        assert_true(str_eq_z(model_file_arch(f), "tiny"));
        assert_true(str_eq_z(model_file_name(f), names[i]));
        const struct model_tensor *y = model_file_tensor(f, STR("y"));
        assert_true(y && y->shard == 2 && y == model_file_tensor_at(f, 1));
        uint8_t bytes[32];
        assert_true(model_file_read(f, y, 0, bytes, 32, &e));
        assert_true(bytes[0] == 64 && bytes[31] == 95);
        assert_null(model_file_tensor(f, STR("z")));
        for (uint32_t s = 0; s < 3; s++)
            assert_true(model_file_shard_fd(f, s) >= 0 && model_file_shard_size(f, s) > 100);
        model_file_close(f);
    }
}

static void test_a_missing_piece_is_named(void **state)
{
    (void)state;
    save_set();
    assert_int_equal(unlink(in_folder("m-00002-of-00003.gguf")), 0);
    expect_path(in_folder("m-00001-of-00003.gguf"), ERR_NOT_FOUND, "piece 2 of 3 is missing: ");
    expect_path(in_folder("m-00003-of-00003.gguf"), ERR_NOT_FOUND, "m-00002-of-00003.gguf");
}

static void test_a_piece_with_another_name_cannot_find_the_others(void **state)
{
    (void)state;
    static const char *const names[] = {"renamed.gguf", "m-0001-of-0003.gguf",
                                        "m-00001-of-00003.GGUF", "-00001-of-00003.gguf"};
    save_set();
    for (size_t i = 0; i < countof(names); i++) {
        assert_int_equal(rename(in_folder("m-00001-of-00003.gguf"), in_folder(names[i])), 0);
        bool is_bare = names[i][0] == '-'; /* an empty BASE is a name like any other */
        expect_path(in_folder(names[i]), is_bare ? ERR_NOT_FOUND : ERR_FORMAT,
                    is_bare ? "piece 2 of 3 is missing" : "its name must end in -00001-of-00003");
        assert_int_equal(rename(in_folder(names[i]), in_folder("m-00001-of-00003.gguf")), 0);
    }
}

static void test_pieces_that_contradict_their_names_are_refused(void **state)
{
    (void)state;
    static const struct { struct piece second; const char *part; } cases[] = {
        {{2, 3, 2, "x", false}, "should be piece 2 of 3, but split.no is 2 and split.count 3"},
        {{0, 3, 2, "x", false}, "should be piece 2 of 3, but split.no is 0 and split.count 3"},
        {{1, 4, 2, "x", false}, "should be piece 2 of 3, but split.no is 1 and split.count 4"},
        {{1, 3, 2, "y", false}, "tensor 'y' occurs twice"},
        {{1, 3, 2, NULL, false}, "split.tensors.count is 2, but the pieces hold 1 tensors"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        save_set();
        save_piece("m-00002-of-00003.gguf", &cases[i].second);
        expect_path(in_folder("m-00001-of-00003.gguf"), ERR_FORMAT, cases[i].part);
    }
    save_set();
    save_piece("m-00002-of-00003.gguf", &(struct piece){0, 3, 2, "x", true});
    expect_path(in_folder("m-00002-of-00003.gguf"), ERR_FORMAT,
                "by its name piece 2 of 3, by its metadata piece 1 of 3");
    save_piece("m-00002-of-00003.gguf", &(struct piece){7, 3, 2, "x", true});
    expect_path(in_folder("m-00002-of-00003.gguf"), ERR_FORMAT, "split.no is 7");
    save_piece("m-00002-of-00003.gguf", &(struct piece){0, 0, 2, "x", true});
    expect_path(in_folder("m-00002-of-00003.gguf"), ERR_FORMAT, "'split.count' is 0");
    save_piece("m-00002-of-00003.gguf", &(struct piece){0, 60000, 2, "x", true});
    expect_path(in_folder("m-00002-of-00003.gguf"), ERR_LIMIT,
                "key 'split.count' is 60000, the limit is 512");
}

static void test_a_link_back_to_another_piece_is_refused(void **state)
{
    (void)state;
    save_set();
    assert_int_equal(unlink(in_folder("m-00003-of-00003.gguf")), 0);
    assert_int_equal(symlink("m-00001-of-00003.gguf", in_folder("m-00003-of-00003.gguf")), 0);
    expect_path(in_folder("m-00001-of-00003.gguf"), ERR_FORMAT,
                "m-00003-of-00003.gguf: should be piece 3 of 3");
    expect_path(in_folder("m-00003-of-00003.gguf"), ERR_FORMAT,
                "by its name piece 3 of 3, by its metadata piece 1 of 3");
    assert_int_equal(unlink(in_folder("m-00003-of-00003.gguf")), 0);
}

static void test_a_damaged_piece_is_named(void **state)
{
    (void)state;
    save_set();
    assert_int_equal(truncate(in_folder("m-00003-of-00003.gguf"), 90), 0);
    expect_path(in_folder("m-00001-of-00003.gguf"), ERR_FORMAT, "m-00003-of-00003.gguf: ");
}

/* ---- things that are no files ---- */

static void test_paths_that_are_no_model_get_one_sentence(void **state)
{
    (void)state;
    expect_path(folder, ERR_FORMAT, "is a directory");
    expect_path("/dev/null", ERR_FORMAT, "is a device");
    expect_path(in_folder("nothing.gguf"), ERR_NOT_FOUND, "No such file");
    assert_int_equal(mkfifo(in_folder("fifo.gguf"), 0600), 0);
    expect_path(in_folder("fifo.gguf"), ERR_FORMAT, "is a FIFO"); /* and does not wait */
    char path[5000];
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    expect_path(path, ERR_NOT_FOUND, "the path of the model has 4999 bytes");
}

static void test_a_file_without_permission_is_a_sentence(void **state)
{
    (void)state;
    struct image m;
    image_init(&m);
    image_good(&m);
    image_save(&m, in_folder("secret.gguf"));
    image_deinit(&m);
    assert_int_equal(chmod(in_folder("secret.gguf"), 0), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    pid_t child = fork(); /* root may read everything, so another user tries */
    if (child == 0) {
        struct err e = {0};
        struct model_file *f;
        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(2);
        _exit(!model_file_open(&f, in_folder("secret.gguf"), &e) && e.code == ERR_IO &&
              strstr(e.text, "Permission denied") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- metadata ---- */

static void typed_image(struct image *m)
{
    image_init(m);
    image_head(m, 3, 0, 17);
    image_key_str(m, "general.architecture", "tiny");
    image_key(m, "tiny.u8", MODEL_TYPE_U8), image_u8(m, 200);
    image_key(m, "tiny.i32", MODEL_TYPE_I32), image_u32(m, 7);
    image_key(m, "tiny.minus", MODEL_TYPE_I64), image_u64(m, (uint64_t)-5);
    image_key(m, "tiny.big", MODEL_TYPE_U64), image_u64(m, 1ull << 32);
    image_key(m, "tiny.huge", MODEL_TYPE_U64), image_u64(m, UINT64_MAX);
    image_key(m, "tiny.f32", MODEL_TYPE_F32), image_f32(m, 1e-5f);
    image_key(m, "tiny.f64", MODEL_TYPE_F64), image_u64(m, 0x7fefffffffffffffu);
    image_key(m, "tiny.nan", MODEL_TYPE_F32), image_u32(m, 0x7fc00000u);
    image_key(m, "tiny.yes", MODEL_TYPE_BOOL), image_u8(m, 1);
    image_key_str(m, "tiny.text", "words");
    image_array(m, "tiny.heads", MODEL_TYPE_I32, 3), image_u32(m, 4), image_u32(m, 0),
        image_u32(m, 2);
    image_array(m, "tiny.below", MODEL_TYPE_I8, 1), image_u8(m, 0xff);
    image_array(m, "tiny.sliding", MODEL_TYPE_BOOL, 3), image_u8(m, 1), image_u8(m, 0),
        image_u8(m, 1);
    image_array(m, "tiny.words", MODEL_TYPE_STRING, 1), image_str(m, "w");
    image_array(m, "tiny.f64s", MODEL_TYPE_F64, 1), image_u64(m, 0x3ff8000000000000u);
    image_array(m, "tiny.u64s", MODEL_TYPE_U64, 1), image_u64(m, UINT64_MAX);
}

static void test_numbers_of_any_integer_type_are_taken_and_defaults_apply(void **state)
{
    (void)state;
    struct image m;
    struct err e = {0};
    int fd;
    typed_image(&m);
    struct model_file *f = open_image(&m, &fd);
    uint32_t u;
    uint64_t big;
    int64_t i;
    float x;
    bool b;
    str s;
    assert_true(model_file_u32(f, ".u8", &u, &e) && u == 200);
    assert_true(model_file_u32(f, "tiny.i32", &u, &e) && u == 7);
    assert_true(model_file_u32_or(f, ".absent", 9, &u, &e) && u == 9);
    assert_true(model_file_u32_or(f, ".i32", 9, &u, &e) && u == 7);
    assert_true(model_file_u64(f, ".big", &big, &e) && big == 1ull << 32);
    assert_true(model_file_i64_or(f, ".minus", 1, &i, &e) && i == -5);
    assert_true(model_file_i64_or(f, ".absent", -1, &i, &e) && i == -1);
    assert_true(model_file_f32(f, ".f32", &x, &e) && x == 1e-5f);
    assert_true(model_file_f32_or(f, ".absent", 2.5f, &x, &e) && x == 2.5f);
    assert_true(model_file_bool_or(f, ".yes", false, &b, &e) && b);
    assert_true(model_file_bool_or(f, ".absent", true, &b, &e) && b);
    assert_true(model_file_str(f, ".text", &s, &e) && str_eq_z(s, "words"));
    assert_true(model_file_str_or(f, ".absent", STR("none"), &s, &e) && str_eq_z(s, "none"));
    assert_true(model_file_has(f, ".nan") && !model_file_has(f, ".absent"));
    assert_int_equal(model_file_key_count(f), 17);
    struct model_value v;
    model_file_key_at(f, 10, &s, &v);
    assert_true(str_eq_z(s, "tiny.text") && v.type == MODEL_TYPE_STRING);
    model_file_close(f);
    image_drop(fd);
    image_deinit(&m);
}

static void test_wrong_types_and_ranges_name_the_key(void **state)
{
    (void)state;
    struct image m;
    struct err e = {0};
    int fd;
    typed_image(&m);
    struct model_file *f = open_image(&m, &fd);
    uint32_t u = 77, layers[4];
    int64_t i;
    float x;
    bool b, flags[4];
    str s;
    struct model_array a;
#define EXPECT(call, part)                                                                        \
    do {                                                                                          \
        assert_false(call);                                                                       \
        assert_int_equal(e.code, ERR_FORMAT);                                                     \
        if (!strstr(e.text, part))                                                                \
            fail_msg("wanted \"%s\", got: %s", part, e.text);                                     \
    } while (0)
    EXPECT(model_file_u32(f, ".absent", &u, &e), "key 'tiny.absent' is missing");
    EXPECT(model_file_u32(f, ".big", &u, &e), "key 'tiny.big' is too large, wanted: at most");
    EXPECT(model_file_u32(f, ".minus", &u, &e), "key 'tiny.minus' is negative");
    EXPECT(model_file_u32_or(f, ".text", 1, &u, &e), "'tiny.text' is a string, wanted: an integer");
    EXPECT(model_file_u32(f, ".f32", &u, &e), "key 'tiny.f32' is f32, wanted: an integer");
    EXPECT(model_file_i64_or(f, ".huge", 0, &i, &e), "key 'tiny.huge' is too large");
    EXPECT(model_file_f32(f, ".i32", &x, &e), "key 'tiny.i32' is i32, wanted: a float");
    EXPECT(model_file_f32(f, ".nan", &x, &e), "key 'tiny.nan' is infinite or NaN");
    EXPECT(model_file_f32_or(f, ".f64", 0, &x, &e), "key 'tiny.f64' is infinite or NaN");
    EXPECT(model_file_bool_or(f, ".u8", true, &b, &e), "key 'tiny.u8' is u8, wanted: a bool");
    EXPECT(model_file_str(f, ".heads", &s, &e), "key 'tiny.heads' is an array, wanted: a string");
    EXPECT(model_file_str(f, ".none", &s, &e), "key 'tiny.none' is missing");
    EXPECT(model_file_array(f, ".text", MODEL_KIND_STRING, &a, &e), "wanted: an array of strings");
    EXPECT(model_file_array(f, ".heads", MODEL_KIND_FLOAT, &a, &e),
           "key 'tiny.heads' is an array of i32, wanted: an array of floats");
    EXPECT(model_file_array(f, ".words", MODEL_KIND_INT, &a, &e), "is an array of a string");
    EXPECT(model_file_u32_layers(f, ".heads", layers, 4, &e),
           "has 3 elements, wanted: one for each of 4 layers");
    EXPECT(model_file_u32_layers(f, ".below", layers, 1, &e), "out of range in a layer");
    EXPECT(model_file_u32_layers(f, ".absent", layers, 3, &e), "is missing");
    EXPECT(model_file_bool_layers(f, ".heads", flags, 3, &e), "wanted: an array of bools");
    EXPECT(model_file_bool_layers(f, ".sliding", flags, 2, &e), "has 3 elements");
    assert_int_equal(u, 77); /* a refused look-up leaves the result alone */
    model_file_close(f);
    image_drop(fd);
    image_deinit(&m);
}

static void test_per_layer_values_come_from_a_scalar_or_an_array(void **state)
{
    (void)state;
    struct image m;
    struct err e = {0};
    int fd;
    typed_image(&m);
    struct model_file *f = open_image(&m, &fd);
    uint32_t n[3];
    bool b[3];
    struct model_array a;
    assert_true(model_file_u32_layers(f, ".heads", n, 3, &e) && n[0] == 4 && !n[1] && n[2] == 2);
    assert_true(model_file_u32_layers(f, ".u8", n, 3, &e) && n[0] == 200 && n[2] == 200);
    assert_true(model_file_bool_layers(f, ".sliding", b, 3, &e) && b[0] && !b[1] && b[2]);
    assert_true(model_file_bool_layers(f, ".yes", b, 3, &e) && b[0] && b[1] && b[2]);
    assert_true(model_file_array(f, ".f64s", MODEL_KIND_FLOAT, &a, &e));
    assert_true(model_file_f32_at(&a, 0) == 1.5f);
    assert_true(model_file_array(f, ".u64s", MODEL_KIND_INT, &a, &e));
    assert_true(model_file_i64_at(&a, 0) == INT64_MAX);
    assert_true(model_file_array(f, ".below", MODEL_KIND_INT, &a, &e));
    assert_true(model_file_i64_at(&a, 0) == -1);
    model_file_close(f);
    image_drop(fd);
    image_deinit(&m);
}

/* ---- bytes ---- */

static void test_a_file_that_shrinks_or_is_overwritten_is_a_sentence(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct image m;
        struct err e = {0};
        uint8_t bytes[136];
        image_init(&m);
        image_good(&m);
        image_save(&m, in_folder("changing.gguf"));
        struct model_file *f;
        assert_true(model_file_open(&f, in_folder("changing.gguf"), &e));
        const struct model_tensor *t = model_file_tensor(f, STR("b"));
        assert_true(model_file_read(f, t, 2, bytes, 134, &e) && bytes[0] == 34);
        assert_true(model_file_check_unchanged(f, &e));
        if (how == 0) {
            assert_int_equal(truncate(in_folder("changing.gguf"), (off_t)m.b.len - 40), 0);
        } else {
            struct timespec pause = {.tv_nsec = 20 * 1000 * 1000}; /* past the clock of mtime */
            nanosleep(&pause, NULL);
            image_save(&m, in_folder("changing.gguf"));
        }
        assert_false(model_file_read(f, t, 0, bytes, 136, &e));
        assert_int_equal(e.code, ERR_IO);
        assert_non_null(strstr(e.text, "changing.gguf: file changed while loaded"));
        assert_non_null(strstr(e.text, how == 0 ? " bytes and has " : "it was written to"));
        assert_false(model_file_check_unchanged(f, &e));
        model_file_close(f);
        image_deinit(&m);
    }
}

/* Most of a header is the vocabulary: 300,000 tokens, scores, types and as many merges. */
static void test_a_vocabulary_of_300000_tokens_opens_within_a_second(void **state)
{
    (void)state;
    struct image m;
    const uint64_t count = 300000;
    char text[32];
    image_init(&m);
    image_head(&m, 3, 0, 5);
    image_key_str(&m, "general.architecture", "tiny");
    image_array(&m, "tokenizer.ggml.tokens", MODEL_TYPE_STRING, count);
    for (uint64_t i = 0; i < count; i++) {
        snprintf(text, sizeof text, "token%u", (unsigned)i);
        image_str(&m, text);
    }
    image_array(&m, "tokenizer.ggml.merges", MODEL_TYPE_STRING, count);
    for (uint64_t i = 0; i < count; i++)
        image_str(&m, text);
    image_array(&m, "tokenizer.ggml.scores", MODEL_TYPE_F32, count);
    for (uint64_t i = 0; i < count; i++)
        image_f32(&m, (float)i);
    image_array(&m, "tokenizer.ggml.token_type", MODEL_TYPE_I32, count);
    for (uint64_t i = 0; i < count; i++)
        image_u32(&m, 1);
    int fd;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    struct model_file *f = open_image(&m, &fd);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ms = (double)(end.tv_sec - begin.tv_sec) * 1e3 +
                (double)(end.tv_nsec - begin.tv_nsec) / 1e6;
    struct model_array a;
    struct err e;
    assert_true(model_file_array(f, "tokenizer.ggml.tokens", MODEL_KIND_STRING, &a, &e));
    assert_true(str_eq_z(model_file_str_at(&a, 299999), "token299999"));
    assert_true(model_file_array(f, "tokenizer.ggml.scores", MODEL_KIND_FLOAT, &a, &e));
    assert_true(model_file_f32_at(&a, 299999) == 299999.0f);
    if (ms > 1000)
        fail_msg("opening took %.1f ms", ms);
    model_file_close(f);
    image_drop(fd);
    image_deinit(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_piece_opens_the_whole_set),
        cmocka_unit_test(test_a_missing_piece_is_named),
        cmocka_unit_test(test_a_piece_with_another_name_cannot_find_the_others),
        cmocka_unit_test(test_pieces_that_contradict_their_names_are_refused),
        cmocka_unit_test(test_a_link_back_to_another_piece_is_refused),
        cmocka_unit_test(test_a_damaged_piece_is_named),
        cmocka_unit_test(test_paths_that_are_no_model_get_one_sentence),
        cmocka_unit_test(test_a_file_without_permission_is_a_sentence),
        cmocka_unit_test(test_numbers_of_any_integer_type_are_taken_and_defaults_apply),
        cmocka_unit_test(test_wrong_types_and_ranges_name_the_key),
        cmocka_unit_test(test_per_layer_values_come_from_a_scalar_or_an_array),
        cmocka_unit_test(test_a_file_that_shrinks_or_is_overwritten_is_a_sentence),
        cmocka_unit_test(test_a_vocabulary_of_300000_tokens_opens_within_a_second),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
