/* Every row of quant_table against sizes, ids and the golden blocks of tests/golden/quant. */
#include "quant/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"

static void test_every_row_is_complete(void **state)
{
    (void)state;
    for (unsigned t = 0; t < QTYPE_COUNT; t++) {
        const struct quant_type *row = &quant_table[t];
        assert_non_null(row->name);
        assert_non_null(row->dequant);
        assert_true(row->block_elems > 0 && row->block_bytes > 0);
        assert_true(row->act_block == 0 || row->act_block == 32 || row->act_block == 256);
        if (row->act_block > 0)
            assert_int_equal(row->block_elems % 32, 0);
        if (row->act_block == 256)
            assert_int_equal(row->block_elems, 256);
        bool is_quantised = quant_is_weight((enum qtype)t) && row->block_elems > 1;
        assert_int_equal(row->act_block > 0, is_quantised);
    }
}

static void test_ids_and_names_are_unique_and_found(void **state)
{
    (void)state;
    for (unsigned t = 0; t < QTYPE_COUNT; t++) {
        enum qtype found = QTYPE_F32;
        assert_true(quant_by_gguf_id(quant_table[t].gguf_id, &found));
        assert_int_equal(found, t);
        assert_true(quant_by_name(str_of(quant_table[t].name), &found));
        assert_int_equal(found, t);
        assert_null(quant_foreign_name(quant_table[t].gguf_id));
    }
    enum qtype t = QTYPE_F16;
    assert_true(quant_by_name(STR("q4_k"), &t) && t == QTYPE_Q4_K);
    assert_false(quant_by_name(STR("Q4_"), &t) || quant_by_name(STR("Q4_K_M"), &t));
    assert_false(quant_by_name(STR(""), &t));
    assert_int_equal(t, QTYPE_Q4_K);
}

static void test_removed_and_foreign_ids_have_no_row_but_a_name(void **state)
{
    (void)state;
    static const uint32_t ids[] = {4, 5, 31, 32, 33, 36, 37, 38, 97, 133, 139, 158, 202, 399};
    for (size_t i = 0; i < countof(ids); i++) {
        enum qtype t;
        assert_false(quant_by_gguf_id(ids[i], &t));
        assert_non_null(quant_foreign_name(ids[i]));
    }
    assert_string_equal(quant_foreign_name(139), "IQ4_K of ik_llama.cpp");
    assert_null(quant_foreign_name(43));
    assert_null(quant_foreign_name(400));
    assert_null(quant_foreign_name(UINT32_MAX));
}

static void test_sizes_refuse_part_blocks_and_overflow(void **state)
{
    (void)state;
    size_t bytes = 7;
    assert_true(quant_row_size(QTYPE_Q4_K, 512, &bytes));
    assert_int_equal(bytes, 288);
    assert_false(quant_row_size(QTYPE_Q4_K, 384, &bytes));
    assert_true(quant_row_size(QTYPE_F32, UINT64_MAX / 4, &bytes));
    bytes = 7;
    assert_false(quant_row_size(QTYPE_F32, UINT64_MAX / 4 + 1, &bytes));
    assert_false(quant_tensor_size(QTYPE_F32, (uint64_t[]){1u << 31, 1u << 31, 4}, 3, &bytes));
    assert_int_equal(bytes, 7);
    assert_true(quant_tensor_size(QTYPE_Q5_0, (uint64_t[]){64, 3, 2}, 3, &bytes));
    assert_int_equal(bytes, 2 * 22 * 6);
    assert_true(quant_tensor_size(QTYPE_F16, NULL, 0, &bytes));
    assert_int_equal(bytes, 2);
    assert_true(quant_tensor_size(QTYPE_F16, (uint64_t[]){0}, 1, &bytes));
    assert_int_equal(bytes, 0);
}

/* ---- golden vectors ---- */

static void from_hex(uint8_t *out, size_t size, struct json hex, struct arena *a)
{
    str digits = json_text(hex, a);
    if (!digits.p || !digest_unhex(out, size, digits))
        fail_msg("quant-vectors.json: wanted %zu bytes in hex", size);
}

/* Equal bits; +0 and -0 are the one allowance. The block is also decoded as the second of three, at
 * an odd address, between guards. */
static void check_vector(enum qtype t, struct json vector, struct arena *a)
{
    const struct quant_type *row = &quant_table[t];
    size_t elems = row->block_elems, bytes = row->block_bytes;
    uint8_t packed[3 * 300 + 1], want_bytes[4 * 256];
    float want[256], got[3 * 256 + 1];
    from_hex(packed + 1 + bytes, bytes, json_member(vector, "block"), a);
    memcpy(packed + 1, packed + 1 + bytes, bytes);
    memcpy(packed + 1 + 2 * bytes, packed + 1 + bytes, bytes);
    from_hex(want_bytes, 4 * elems, json_member(vector, "f32"), a);
    memcpy(want, want_bytes, 4 * elems);
    got[3 * elems] = 12345.0f;
    row->dequant(got, packed + 1, 3 * elems);
    for (size_t i = 0; i < 3 * elems; i++) {
        float w = want[i % elems];
        bool both_zero = w == 0.0f && got[i] == 0.0f;
        if (!both_zero && memcmp(&w, &got[i], sizeof w) != 0)
            fail_msg("%s value %zu: want %a, got %a", row->name, i, (double)w, (double)got[i]);
    }
    assert_true(got[3 * elems] == 12345.0f);
}

static void check_type(enum qtype t, struct json of_type, struct arena *a)
{
    uint64_t elems, bytes;
    assert_int_equal(json_count(of_type), 3); /* a key that is not known is not tested either */
    assert_true(json_u64(json_member(of_type, "elements"), &elems));
    assert_true(json_u64(json_member(of_type, "bytes"), &bytes));
    assert_int_equal(elems, quant_table[t].block_elems);
    assert_int_equal(bytes, quant_table[t].block_bytes);
    struct json vectors = json_member(of_type, "vectors");
    assert_true(json_count(vectors) >= 2);
    struct json_walk w = json_walk(vectors);
    while (json_next(&w)) {
        assert_int_equal(json_count(w.value), 2);
        check_vector(t, w.value, a);
    }
}

static void test_every_block_type_decodes_the_golden_blocks_bit_for_bit(void **state)
{
    (void)state;
    struct arena a;
    struct err e;
    str body;
    struct json doc;
    bool seen[QTYPE_COUNT] = {false};
    arena_init(&a, (size_t)4 << 20);
    struct json_options options = {.depth_max = 8, .refuse_duplicates = true};
    if (!file_read(&body, "tests/golden/quant/quant-vectors.json", 1 << 20, &a, &e) ||
        !json_parse(&doc, body, &options, &a, &e))
        fail_msg("%s", e.text);
    struct json_walk w = json_walk(doc);
    while (json_next(&w)) {
        str key = json_text(w.key, &a);
        enum qtype t;
        if (str_eq_z(key, "note"))
            continue;
        if (!quant_by_name(key, &t))
            fail_msg("quant-vectors.json: unknown type '%.*s'", STR_ARG(key));
        seen[t] = true;
        check_type(t, w.value, &a);
    }
    for (unsigned t = 0; t < QTYPE_WEIGHT_COUNT; t++)
        if (!seen[t] && quant_table[t].block_elems > 1)
            fail_msg("quant-vectors.json has no vectors of %s", quant_table[t].name);
    arena_deinit(&a);
}

/* Every two bytes of a block set to all ones in turn: the decoder has the last word. */
static void test_blocks_that_decode_to_infinity_or_nan_are_found(void **state)
{
    (void)state;
    for (unsigned t = 0; t < QTYPE_COUNT; t++) {
        const struct quant_type *row = &quant_table[t];
        if (t == QTYPE_Q8_1 || t == QTYPE_Q8_K)
            continue; /* never in a file; a finite d may still overflow when multiplied */
        uint8_t blocks[3 * 300];
        float values[3 * 256];
        size_t bytes = row->block_bytes, elems = row->block_elems, at = 77;
        bool is_seen = false;
        memset(blocks, 0x11, sizeof blocks);
        assert_true(quant_is_finite((enum qtype)t, blocks, 3 * elems, &at));
        for (size_t i = 0; i + 1 < bytes; i++) {
            memset(blocks + bytes, 0x11, bytes);
            memset(blocks + bytes + i, 0xff, 2);
            if (t == QTYPE_IQ1_M) /* needs byte 53 and 55 */
                blocks[bytes + 53] = blocks[bytes + i + 1] = 0xff;
            row->dequant(values, blocks, 3 * elems);
            bool is_finite = true;
            for (size_t k = 0; k < elems; k++)
                is_finite = is_finite && isfinite(values[elems + k]);
            if (is_finite != quant_is_finite((enum qtype)t, blocks, 3 * elems, &at))
                fail_msg("%s with bytes %zu, %zu all ones: decoder and check differ", row->name, i,
                         i + 1);
            if (!is_finite)
                assert_int_equal(at, elems);
            is_seen = is_seen || !is_finite;
        }
        bool has_none = t == QTYPE_NVFP4 || (t >= QTYPE_I8 && t <= QTYPE_I64);
        assert_int_equal(is_seen, !has_none);
    }
}

static void test_the_first_value_that_is_no_number_is_found_at_every_place(void **state)
{
    (void)state;
    static const enum qtype types[] = {QTYPE_F32, QTYPE_F16, QTYPE_BF16, QTYPE_F64};
    for (size_t k = 0; k < countof(types); k++) {
        size_t bytes = quant_table[types[k]].block_bytes, at = 99;
        uint8_t x[19 * 8 + 1];
        memset(x, 0x7b, sizeof x); /* large, but finite in every type */
        assert_true(quant_is_finite(types[k], x + 1, 19, &at));
        for (size_t bad = 0; bad < 19; bad++) {
            memset(x, 0xfb, sizeof x);
            memset(x + 1 + bad * bytes, 0xff, bytes);
            assert_false(quant_is_finite(types[k], x + 1, 19, &at));
            assert_int_equal(at, bad);
        }
    }
}

static void test_plain_types_decode_their_special_values(void **state)
{
    (void)state;
    float got[4];
    quant_f16_dequant(got, (uint16_t[]){0x3c00, 0x8000, 0x0001, 0x7bff}, 4);
    assert_true(got[0] == 1.0f && got[1] == 0.0f && got[2] == 0x1p-24f && got[3] == 65504.0f);
    quant_bf16_dequant(got, (uint16_t[]){0x3f80, 0x0001, 0xff80, 0xc2f7}, 4);
    assert_true(got[0] == 1.0f && got[1] == 0x1p-133f && got[2] < -3e38f && got[3] == -123.5f);
    quant_i8_dequant(got, (int8_t[]){-128, 127}, 2);
    assert_true(got[0] == -128.0f && got[1] == 127.0f);
    quant_i16_dequant(got, (int16_t[]){-32768, 32767}, 2);
    assert_true(got[0] == -32768.0f && got[1] == 32767.0f);
    quant_i32_dequant(got, (int32_t[]){INT32_MIN, 16777216}, 2);
    assert_true(got[0] == -2147483648.0f && got[1] == 16777216.0f);
    quant_i64_dequant(got, (int64_t[]){INT64_MIN, 3}, 2);
    assert_true(got[0] == -9223372036854775808.0f && got[1] == 3.0f);
    quant_f64_dequant(got, (double[]){0.1, -2.5}, 2);
    assert_true(got[0] == 0.1f && got[1] == -2.5f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_is_complete),
        cmocka_unit_test(test_ids_and_names_are_unique_and_found),
        cmocka_unit_test(test_removed_and_foreign_ids_have_no_row_but_a_name),
        cmocka_unit_test(test_sizes_refuse_part_blocks_and_overflow),
        cmocka_unit_test(test_every_block_type_decodes_the_golden_blocks_bit_for_bit),
        cmocka_unit_test(test_blocks_that_decode_to_infinity_or_nan_are_found),
        cmocka_unit_test(test_the_first_value_that_is_no_number_is_found_at_every_place),
        cmocka_unit_test(test_plain_types_decode_their_special_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
