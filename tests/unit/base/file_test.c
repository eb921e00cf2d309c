#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static char dir[] = "/tmp/shoal_file_test_XXXXXX";
static char path_text[256];

static const char *path(const char *name)
{
    snprintf(path_text, sizeof path_text, "%s/%s", dir, name);
    return path_text;
}

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/shoal_file_test_XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static bool add_to_list(void *ctx, const struct file_entry *entry)
{
    buf_printf(ctx, "%s%s ", entry->path + strlen(dir) + 1, entry->info.is_dir ? "/" : "");
    return true;
}

static bool remove_entry(void *ctx, const struct file_entry *entry)
{
    (void)ctx;
    unlink(entry->path);
    return !entry->info.is_link;
}

static int remove_dir(void **state)
{
    (void)state;
    struct err e = {0};
    struct file_walk w = {.depth_max = 8, .entries_max = 1000, .on_entry = remove_entry};
    (void)!file_walk(dir, &w, &e);
    static const char *const left[] = {"a/b/c", "a/b", "a", "loop", "closed", "x/y/z", "x/y", "x"};
    for (size_t i = 0; i < countof(left); i++) {
        unlink(path(left[i]));
        rmdir(path(left[i]));
    }
    return rmdir(dir);
}

static void write_file(const char *name, str bytes)
{
    struct err e = {0};
    if (!file_write(path(name), bytes, 0600, &e))
        fail_msg("%s", e.text);
}

static void test_a_file_is_read_exactly_or_the_numbers_are_told(void **state)
{
    (void)state;
    struct err e = {0};
    struct file f;
    char got[8] = {0};
    write_file("data", STR("0123456789"));
    assert_true(file_open(&f, path("data"), &e));
    assert_int_equal(f.size, 10);
    assert_true(file_pread(&f, got, 4, 6, &e) && !memcmp(got, "6789", 4));
    assert_true(file_pread(&f, got, 0, 10, &e));
    assert_false(file_pread(&f, got, 5, 6, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_non_null(strstr(e.text, "data: 5 bytes wanted at byte 6, the file has 10"));
    assert_false(file_pread(&f, got, 1, UINT64_MAX, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    file_close(&f);
    file_close(&f);
}

static void test_only_regular_files_are_opened(void **state)
{
    (void)state;
    struct err e = {0};
    struct file f;
    assert_false(file_open(&f, dir, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_non_null(strstr(e.text, "is a directory, not a file"));
    assert_int_equal(mkfifo(path("fifo"), 0600), 0);
    assert_false(file_open(&f, path("fifo"), &e)); /* and does not wait for a writer */
    assert_non_null(strstr(e.text, "is a FIFO, not a file"));
    assert_false(file_open(&f, "/dev/null", &e));
    assert_non_null(strstr(e.text, "is a device, not a file"));
    assert_false(file_open(&f, path("absent"), &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    file_close(&f);
}

static void test_a_small_file_is_read_whole_within_its_limit(void **state)
{
    (void)state;
    struct err e = {0};
    struct arena a;
    str got;
    arena_init(&a, 100);
    write_file("small", STR("hello"));
    assert_true(file_read(&got, path("small"), 5, &a, &e));
    assert_true(str_eq_z(got, "hello") && got.p[5] == 0);
    assert_false(file_read(&got, path("small"), 4, &a, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    arena_deinit(&a);
    arena_init(&a, 1);
    assert_false(file_read(&got, path("small"), 5, &a, &e));
    assert_int_equal(e.code, ERR_MEMORY);
    arena_deinit(&a);
}

static void test_writing_replaces_whole_files_and_leaves_no_trace_on_failure(void **state)
{
    (void)state;
    struct err e = {0};
    struct file_info info;
    struct buf list;
    struct file_walk w = {.entries_max = 10, .on_entry = add_to_list, .ctx = &list};
    buf_init(&list, 1000);
    write_file("w", STR("first"));
    assert_true(file_write(path("w"), STR("second"), 0640, &e));
    assert_true(file_stat(&info, path("w"), &e));
    assert_int_equal(info.mode, 0640);
    assert_int_equal(info.size, 6);
    assert_int_equal(mkdir(path("a"), 0700), 0);
    assert_false(file_write(path("a"), STR("a directory cannot be replaced"), 0600, &e));
    assert_false(file_write(path("none/w"), STR("x"), 0600, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_true(file_walk(dir, &w, &e));
    assert_string_equal(list.p, "a/ w ");
    buf_deinit(&list);
}

static void test_directories_are_made_with_their_parents(void **state)
{
    (void)state;
    struct err e = {0};
    struct file_info info;
    assert_true(file_make_dirs(path("x/y/z"), 0700, &e));
    assert_true(file_make_dirs(path("x/y/z"), 0700, &e));
    assert_true(file_stat(&info, path("x/y"), &e) && info.is_dir && info.mode == 0700);
    write_file("plain", STR(""));
    assert_false(file_make_dirs(path("plain/sub"), 0700, &e));
}

static void test_a_walk_is_sorted_and_survives_links_and_closed_doors(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf list;
    buf_init(&list, 1000);
    struct file_walk w = {8, 100, add_to_list, &list};
    assert_true(file_make_dirs(path("a/b/c"), 0700, &e));
    assert_int_equal(mkdir(path("closed"), 0), 0);
    write_file("a/b/file", STR(""));
    write_file("z", STR(""));
    assert_int_equal(symlink("..", path("a/loop")), 0);
    assert_int_equal(symlink("nowhere", path("a/dangling")), 0);
    assert_int_equal(symlink("b", path("a/again")), 0);
    assert_true(file_walk(dir, &w, &e));
    assert_string_equal(list.p, "a/ a/again/ a/again/c/ a/again/file a/b/ a/b/c/ a/b/file a/loop/ "
                                "closed/ z ");
    buf_clear(&list);
    w.depth_max = 0;
    assert_true(file_walk(dir, &w, &e));
    assert_string_equal(list.p, "a/ closed/ z ");
    w.entries_max = 2;
    assert_false(file_walk(dir, &w, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_false(file_walk(path("absent"), &w, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    unlink(path("a/loop"));
    unlink(path("a/dangling"));
    buf_deinit(&list);
}

static void test_paths_are_joined_and_taken_apart(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1000);
    assert_true(str_eq_z(file_join(&a, STR("/a"), STR("b")), "/a/b"));
    assert_true(str_eq_z(file_join(&a, STR("/a/"), STR("b")), "/a/b"));
    assert_true(str_eq_z(file_join(&a, STR("/a"), STR("/b")), "/b"));
    assert_true(str_eq_z(file_expand_home(&a, STR("~/x"), STR("/h")), "/h/x"));
    assert_true(str_eq_z(file_expand_home(&a, STR("~"), STR("/h")), "/h"));
    assert_true(str_eq_z(file_expand_home(&a, STR("~user/x"), STR("/h")), "~user/x"));
    assert_true(str_eq_z(file_expand_home(&a, STR("~/x"), STR("")), ""));
    assert_true(str_eq_z(file_expand_home(&a, STR("/x"), STR("")), "/x"));
    static const struct { const char *path, *dir, *base; } t[] = {
        {"/a/b", "/a", "b"}, {"b", ".", "b"}, {"/b", "/", "b"}, {"a/", "a", ""},
    };
    for (size_t i = 0; i < countof(t); i++) {
        assert_true(str_eq_z(file_dir_name(str_of(t[i].path)), t[i].dir));
        assert_true(str_eq_z(file_base_name(str_of(t[i].path)), t[i].base));
    }
    arena_deinit(&a);
}

int main(void)
{
#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        IN_DIR(test_a_file_is_read_exactly_or_the_numbers_are_told),
        IN_DIR(test_only_regular_files_are_opened),
        IN_DIR(test_a_small_file_is_read_whole_within_its_limit),
        IN_DIR(test_writing_replaces_whole_files_and_leaves_no_trace_on_failure),
        IN_DIR(test_directories_are_made_with_their_parents),
        IN_DIR(test_a_walk_is_sorted_and_survives_links_and_closed_doors),
        cmocka_unit_test(test_paths_are_joined_and_taken_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
