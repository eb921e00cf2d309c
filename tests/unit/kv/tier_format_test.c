/* The file that Python wrote (tests/fuzz/make_tier_corpus.py) is read as it was meant; what is cut,
 * flipped or moved is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "kv/tier_format.h"

#define CORPUS "tests/fuzz/corpus/tier_format/"

static struct arena arena;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, 1u << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

static str corpus(const char *name)
{
    char path[128];
    str s;
    struct err e;
    snprintf(path, sizeof path, CORPUS "%s", name);
    if (!file_read(&s, path, 1u << 20, &arena, &e))
        fail_msg("%s", e.text);
    return s;
}

static str head_of(str file) { return str_sub(file, 0, base_min(file.len, TIER_FORMAT_BLOCK)); }
static str table_of(str file) { return str_from(file, base_min(file.len, TIER_FORMAT_BLOCK)); }

static void test_a_file_that_another_program_wrote_is_read_as_it_was_meant(void **state)
{
    (void)state;
    struct tier_header h;
    struct tier_record r;
    struct err e;
    str file = corpus("whole");
    assert_true(tier_format_read_header(&h, head_of(file), &e));
    assert_int_equal(h.owner.id.low, 1);
    assert_int_equal(h.owner.id.high, 2);
    assert_int_equal(h.slots, 3);
    assert_int_equal(h.page_size, 5000);
    assert_string_equal(h.model, "tiny");
    assert_int_equal(tier_format_data_offset(&h), 8192);
    assert_int_equal(tier_format_slot_offset(&h, 2), 8192 + 2 * 8192);
    for (uint32_t slot = 0; slot < 3; slot++) {
        assert_true(tier_format_read_record(&r, &h, slot, table_of(file)));
        assert_int_equal(r.depth, slot + 1);
        assert_int_equal(r.key.bytes[31], slot + 1);
        assert_int_equal(r.sum, 77);
        assert_int_equal(r.used_s, 1764460800);
    }
    assert_false(tier_format_read_record(&r, &h, 3, table_of(file)));
}

static void test_what_is_damaged_is_refused_by_name(void **state)
{
    (void)state;
    static const struct { const char *name, *says; enum err_code code; } rows[] = {
        {"cut_header", "4000", ERR_FORMAT}, {"future", "version 2", ERR_UNSUPPORTED},
        {"no_slots", "0 slots", ERR_FORMAT}, {"many_slots", "2147483648", ERR_FORMAT},
        {"huge_page", "18446744073709551615", ERR_FORMAT}, {"other_records", "64", ERR_FORMAT},
        {"bad_sum", "checksum", ERR_FORMAT}, {"empty", "the file has 0", ERR_FORMAT},
        {"foreign", "not a tier file", ERR_FORMAT},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct tier_header h;
        struct err e;
        assert_false(tier_format_read_header(&h, head_of(corpus(rows[i].name)), &e));
        assert_int_equal(e.code, rows[i].code);
        if (!strstr(e.text, rows[i].says))
            fail_msg("%s: %s", rows[i].name, e.text);
    }
}

static void test_a_record_counts_only_whole_and_in_its_own_slot(void **state)
{
    (void)state;
    static const struct { const char *name; bool slots[3]; } rows[] = {
        {"moved_record", {false, true, false}}, {"torn_record", {false, false, false}},
        {"cut_record", {true, true, false}}, {"depth_zero", {false, false, false}},
    };
    for (size_t i = 0; i < countof(rows); i++)
        for (uint32_t slot = 0; slot < 3; slot++) {
            struct tier_header h;
            struct tier_record r;
            struct err e;
            str file = corpus(rows[i].name);
            assert_true(tier_format_read_header(&h, head_of(file), &e));
            if (tier_format_read_record(&r, &h, slot, table_of(file)) != rows[i].slots[slot])
                fail_msg("%s: slot %u", rows[i].name, slot);
        }
}

static void test_any_flipped_bit_of_header_or_record_is_seen(void **state)
{
    (void)state;
    str file = corpus("whole");
    char *copy = arena_alloc(&arena, file.len);
    struct tier_header h, flipped;
    struct tier_record r;
    struct err e;
    assert_true(tier_format_read_header(&h, head_of(file), &e));
    for (size_t at = 0; at < TIER_FORMAT_BLOCK + TIER_FORMAT_RECORD_SIZE; at++) {
        memcpy(copy, file.p, file.len);
        copy[at] = (char)(copy[at] ^ 1 << at % 8);
        str other = str_view(copy, file.len);
        bool is_header = at < TIER_FORMAT_BLOCK;
        bool ok = is_header ? tier_format_read_header(&flipped, head_of(other), &e)
                            : tier_format_read_record(&r, &h, 0, table_of(other));
        if (ok)
            fail_msg("byte %zu: a flipped bit was not seen", at);
    }
}

static void test_a_record_of_another_owner_is_none(void **state)
{
    (void)state;
    struct tier_header h = {.owner = {{5, 6}}, .slots = 4, .page_size = 100}, other = h;
    struct tier_record r = {.depth = 3, .sum = 9}, back;
    uint8_t table[4 * TIER_FORMAT_RECORD_SIZE] = {0};
    other.owner.id.low = 7;
    tier_format_write_record(table + TIER_FORMAT_RECORD_SIZE, &h, 1, &r);
    assert_true(tier_format_read_record(&back, &h, 1, str_view(table, sizeof table)));
    assert_memory_equal(&r, &back, sizeof r);
    assert_false(tier_format_read_record(&back, &other, 1, str_view(table, sizeof table)));
    other = h;
    other.group = 1;
    assert_false(tier_format_read_record(&back, &other, 1, str_view(table, sizeof table)));
}

static void test_a_file_has_as_many_slots_as_fit_its_size(void **state)
{
    (void)state;
    assert_int_equal(tier_format_slots(4096, 1 << 20), 256);
    assert_int_equal(tier_format_slots(4097, 1 << 20), 128);
    assert_int_equal(tier_format_slots(1 << 21, 1 << 20), 1);
    assert_int_equal(tier_format_slots(1, UINT64_C(1) << 40), TIER_FORMAT_SLOTS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_that_another_program_wrote_is_read_as_it_was_meant),
        cmocka_unit_test(test_what_is_damaged_is_refused_by_name),
        cmocka_unit_test(test_a_record_counts_only_whole_and_in_its_own_slot),
        cmocka_unit_test(test_any_flipped_bit_of_header_or_record_is_seen),
        cmocka_unit_test(test_a_record_of_another_owner_is_none),
        cmocka_unit_test(test_a_file_has_as_many_slots_as_fit_its_size),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
