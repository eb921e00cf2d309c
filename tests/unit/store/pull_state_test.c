#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "store/pull_record.h"
#include "store/pull_state.h"

#define HEX "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define HEAD "shoal pull 1\nrepo o/r\npath Q4/a.gguf\nrevision main\nsize 250\nsha256 " HEX \
             "\npieces 100\n"

static struct arena arena;

static int begin(void **state)
{
    (void)state;
    arena_init(&arena, 1u << 20);
    return 0;
}

static int end(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

static struct pull_state state_of(const char *text, size_t *good)
{
    struct pull_state s;
    struct err e = {0};
    if (!pull_state_read(&s, str_of(text), good, &arena, &e))
        fail_msg("%s", e.text);
    return s;
}

static void test_what_was_written_is_read_again(void **state)
{
    size_t good;
    struct buf b;
    (void)state;
    struct pull_state s = state_of(HEAD, &good);
    assert_int_equal(s.pieces, 3);
    assert_int_equal(pull_state_piece_bytes(&s, 2), 50);
    buf_init(&b, 4096);
    s.etag = STR("\"x y\"");
    pull_state_add_head(&b, &s);
    pull_state_add_done(&b, 2, 0xfedcba9876543210);
    pull_state_add_part(&b, 0, 99);
    pull_state_add_done(&b, 1, 7);
    pull_state_add_drop(&b, 1);
    s = state_of(b.p, &good);
    assert_int_equal(good, b.len);
    assert_true(str_eq_z(s.etag, "\"x y\"") && s.has_sha256 && s.sha256[31] == 31);
    assert_true(s.marks[2].is_done && s.marks[2].hash == 0xfedcba9876543210);
    assert_true(s.marks[0].got == 99 && !s.marks[1].is_done);
    assert_int_equal(pull_state_received(&s), 149);
    buf_deinit(&b);
}

/* A crash cuts the last line, or leaves zeros behind it. */
static void test_a_journal_cut_anywhere_says_only_what_its_whole_lines_say(void **state)
{
    static const char text[] = HEAD "done 0 0000000000000001\npart 1 40\ndone 2 0000000000000003\n";
    (void)state;
    for (size_t n = sizeof HEAD - 1; n < sizeof text; n++) {
        struct pull_state s;
        struct err e = {0};
        size_t good;
        char cut[sizeof text + 8] = {0}; /* zeros behind */
        memcpy(cut, text, n);
        assert_true(pull_state_read(&s, str_view(cut, n + 8), &good, &arena, &e));
        assert_true(good <= n && cut[good - 1] == '\n');
        assert_int_equal(s.marks[0].is_done, good >= sizeof HEAD - 1 + 24);
        assert_int_equal(s.marks[2].is_done, good == sizeof text - 1);
    }
    for (size_t n = 0; n < sizeof HEAD - 1; n++) {
        struct pull_state s;
        struct err e = {0};
        size_t good;
        assert_false(pull_state_read(&s, str_view(text, n), &good, &arena, &e));
        assert_int_equal(e.code, ERR_FORMAT);
    }
}

static void test_lines_that_cannot_be_end_the_journal(void **state)
{
    static const char *const rows[] = {
        "done 3 0000000000000001\n", "done 0 1\n", "done 0\n", "part 0 101\n", "part 2 51\n",
        "part -1 3\n", "drop 0 1\n", "what 0\n", "\n", "done 99999999999999999999 0\n",
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        char text[1024];
        size_t good;
        snprintf(text, sizeof text, HEAD "%sdone 1 0000000000000001\n", rows[i]);
        struct pull_state s = state_of(text, &good);
        assert_int_equal(good, sizeof HEAD - 1);
        assert_int_equal(pull_state_received(&s), 0);
    }
}

static void test_huge_files_have_larger_pieces(void **state)
{
    uint64_t piece = 1u << 25;
    (void)state;
    assert_int_equal(pull_state_pieces(0, &piece), 0);
    assert_int_equal(pull_state_pieces(1, &piece), 1);
    assert_true(pull_state_pieces((uint64_t)1 << 50, &piece) <= PULL_STATE_PIECES_MAX);
    assert_true(piece > 1u << 25);
}

static void test_only_our_hidden_names_are_journals(void **state)
{
    str name;
    (void)state;
    assert_true(pull_state_name(STR(".a.gguf.state"), &name) && str_eq_z(name, "a.gguf"));
    assert_false(pull_state_name(STR(".state"), &name));
    assert_false(pull_state_name(STR("a.gguf.state"), &name));
    assert_false(pull_state_name(STR(".a.gguf.part"), &name));
}

static void test_a_record_counts_only_while_its_file_is_the_same(void **state)
{
    struct pull_record r;
    (void)state;
    pull_record_parse(&r, STR("shoal pulled 1\no/r@main:\ta.gguf\t10\t5\t" HEX "\nbad line\n"
                              "o/r@main:\td/b\t3\t-1\t-\no/x@main:\ta.gguf\t11\t6\t-\n"), &arena);
    assert_int_equal(r.count, 3);
    assert_null(pull_record_find(&r, STR("a.gguf"), 10, 5)); /* the last line counts */
    assert_ptr_equal(pull_record_find(&r, STR("a.gguf"), 11, 6), &r.lines[2]);
    assert_ptr_equal(pull_record_find(&r, STR("d/b"), 3, -1), &r.lines[1]);
    pull_record_parse(&r, STR("shoal pulled 2\no/r@main:\ta.gguf\t10\t5\t-\n"), &arena);
    assert_int_equal(r.count, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_what_was_written_is_read_again),
        TEST(test_a_journal_cut_anywhere_says_only_what_its_whole_lines_say),
        TEST(test_lines_that_cannot_be_end_the_journal),
        TEST(test_huge_files_have_larger_pieces),
        TEST(test_only_our_hidden_names_are_journals),
        TEST(test_a_record_counts_only_while_its_file_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
