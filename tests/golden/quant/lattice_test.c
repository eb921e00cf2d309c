/* The committed lattices (quant_iq_data.c) element by element against iq-grids.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "quant/quant.h"

static struct arena arena;
static struct json doc;

static int read_json(void **state)
{
    (void)state;
    str body;
    struct err e;
    struct json_options options = {.depth_max = 8, .refuse_duplicates = true};
    arena_init(&arena, (size_t)4 << 20);
    return file_read(&body, "tests/golden/quant/iq-grids.json", 1 << 20, &arena, &e) &&
           json_parse(&doc, body, &options, &arena, &e) ? 0 : -1;
}

static int drop_json(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

static int64_t number(struct json v)
{
    int64_t n = 0;
    assert_true(json_i64(v, &n));
    return n;
}

struct lattice {
    const char *name;
    const void *values;
    size_t n, width;
    bool is_signed;
};

static void test_each_lattice_equals_its_source(void **state)
{
    (void)state;
    static const struct lattice lattices[] = {
        {"iq2xxs_grid", quant_iq2xxs_grid, 256, 8, false},
        {"iq2xs_grid", quant_iq2xs_grid, 512, 8, false},
        {"iq2s_grid", quant_iq2s_grid, 1024, 8, false},
        {"iq3xxs_grid", quant_iq3xxs_grid, 256, 4, false},
        {"iq3s_grid", quant_iq3s_grid, 512, 4, false},
        {"iq1s_grid", quant_iq1s_grid, 2048, 8, true},
    };
    for (size_t k = 0; k < countof(lattices); k++) {
        const struct lattice *l = &lattices[k];
        struct json table = json_member(doc, l->name), alphabet = json_member(table, "alphabet");
        str codes = json_text(json_member(table, "codes"), &arena);
        assert_int_equal(number(json_member(table, "n")), l->n);
        assert_int_equal(number(json_member(table, "width")), l->width);
        assert_int_equal(codes.len, l->n * l->width);
        int64_t letters[8];
        assert_true(json_count(alphabet) <= countof(letters));
        for (uint32_t i = 0; i < json_count(alphabet); i++)
            letters[i] = number(json_at(alphabet, i));
        for (size_t i = 0; i < codes.len; i++) {
            size_t digit = (size_t)(codes.p[i] - '0');
            assert_true(digit < json_count(alphabet));
            int64_t have = l->is_signed ? ((const int8_t *)l->values)[i]
                                        : ((const uint8_t *)l->values)[i];
            if (have != letters[digit])
                fail_msg("%s value %zu: %d, source %d", l->name, i, (int)have,
                         (int)letters[digit]);
        }
    }
}

static void test_code_book_and_sign_rule(void **state)
{
    (void)state;
    struct json values = json_member(doc, "kvalues_iq4nl");
    assert_int_equal(json_count(values), 16);
    for (uint32_t i = 0; i < 16; i++)
        assert_int_equal(quant_iq4nl_values[i], number(json_at(values, i)));
    for (unsigned i = 0; i < 128; i++)
        assert_int_equal(quant_iq_signs[i], i | (unsigned)__builtin_parity(i) << 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_lattice_equals_its_source),
        cmocka_unit_test(test_code_book_and_sign_rule),
    };
    return cmocka_run_group_tests(tests, read_json, drop_json);
}
