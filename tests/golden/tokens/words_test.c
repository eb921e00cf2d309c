/* Words of every row of split_table.c against those of Hugging Face's pre_tokenizers, on the
 * strings of fixtures/strings.bin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/file.h"
#include "text/split.h"
#include "text/unicode.h"

enum { BLOCK = 100 };

static struct arena arena;
static str strings, golden;

static str read_file(const char *path)
{
    struct err e = {0};
    str s;
    if (!file_read(&s, path, (size_t)8 << 20, &arena, &e))
        fail_msg("%s", e.text);
    return s;
}

static int open_files(void **state)
{
    (void)state;
    arena_init(&arena, (size_t)16 << 20);
    strings = read_file("tests/golden/tokens/fixtures/strings.bin");
    golden = read_file("tests/golden/tokens/words.bin");
    return 0;
}

static int close_files(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

static uint32_t u32_at(str s, size_t at)
{
    uint32_t v;
    assert_true(at + sizeof v <= s.len);
    memcpy(&v, s.p + at, sizeof v);
    return v;
}

/* Adds the ends of the words of one string to the hash. */
static uint32_t hash_words(struct split *s, str text, uint32_t h)
{
    struct buf repaired, ends;
    struct err e = {0};
    buf_init(&repaired, 3 * text.len);
    buf_init(&ends, 16 * text.len);
    assert_true(unicode_repair(text, &repaired));
    if (!split_words(s, buf_view(&repaired), &ends, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < ends.len; i++)
        h = (h ^ (uint8_t)ends.p[i]) * 0x01000193u;
    buf_deinit(&repaired);
    buf_deinit(&ends);
    return h;
}

/* golden[*at..] is one row: compares it and moves on. */
static const struct split_row *check_row(size_t *at, bool use_patterns)
{
    struct err e = {0};
    size_t len = (uint8_t)golden.p[*at];
    str name = str_sub(golden, *at + 1, len);
    *at += 1 + len;
    const struct split_row *row = split_row_find(name);
    if (!row)
        fail_msg("no row '%.*s'", STR_ARG(name));
    struct split *s = NULL;
    if (!split_new(&s, row, use_patterns, &e))
        fail_msg("%s", e.text);
    uint32_t count = u32_at(strings, 0), h = 0;
    for (size_t i = 0, from = 4; i < count; i++) {
        uint16_t size;
        memcpy(&size, strings.p + from, sizeof size);
        h = hash_words(s, str_sub(strings, from + 2, size), i % BLOCK ? h : 0x811c9dc5);
        from += 2u + size;
        if (i % BLOCK != BLOCK - 1 && i + 1 != count)
            continue;
        if (h != u32_at(golden, *at))
            fail_msg("%.*s: other words in strings %zu to %zu", STR_ARG(name), i / BLOCK * BLOCK,
                     i);
        *at += sizeof h;
    }
    split_free(s);
    return row;
}

static void test_every_row_cuts_ten_thousand_strings_as_its_model_does(void **state)
{
    (void)state;
    bool seen[64] = {false};
    assert_true(split_table_count <= countof(seen));
    for (size_t at = 0; at < golden.len;)
        seen[check_row(&at, false) - split_table] = true;
    for (size_t i = 0; i < split_table_count; i++) {
        bool elsewhere = !strcmp(split_table[i].names, "deepseek-llm"); /* tests/real */
        if (!seen[i] && !elsewhere)
            fail_msg("row '%s' has no golden words", split_table[i].names);
    }
}

static void test_patterns_of_rows_with_a_scan_do_too(void **state)
{
    (void)state;
    for (size_t at = 0; at < golden.len;)
        check_row(&at, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_cuts_ten_thousand_strings_as_its_model_does),
        cmocka_unit_test(test_patterns_of_rows_with_a_scan_do_too),
    };
    return cmocka_run_group_tests(tests, open_files, close_files);
}
