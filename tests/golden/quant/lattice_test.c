/* The committed lattices (quant_iq_data.c) element by element against iq-grids.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/quant.h"

static char text[65536];

static int read_json(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/quant/iq-grids.json", "rb");
    if (!f)
        return -1;
    size_t size = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    return size > 0 && size < sizeof text - 1 ? 0 : -1;
}

/* What follows "name": behind from. */
static const char *member(const char *from, const char *name)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    const char *p = strstr(from, quoted);
    if (!p)
        fail_msg("iq-grids.json has no %s", name);
    p += strlen(quoted);
    return p + strspn(p, ": \n");
}

static size_t numbers(const char *p, long *out, size_t out_max)
{
    size_t count = 0;
    assert_int_equal(*p, '[');
    do {
        char *end;
        assert_true(count < out_max);
        out[count++] = strtol(p + 1, &end, 10);
        p = end + strspn(end, " \n");
    } while (*p == ',');
    assert_int_equal(*p, ']');
    return count;
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
        const char *table = member(text, l->name);
        long alphabet[36];
        size_t letters = numbers(member(table, "alphabet"), alphabet, countof(alphabet));
        assert_int_equal(strtoul(member(table, "n"), NULL, 10), l->n);
        assert_int_equal(strtoul(member(table, "width"), NULL, 10), l->width);
        const char *codes = member(table, "codes") + 1;
        assert_int_equal(strcspn(codes, "\""), l->n * l->width);
        for (size_t i = 0; i < l->n * l->width; i++) {
            size_t digit = (size_t)(codes[i] - '0');
            assert_true(digit < letters);
            long have = l->is_signed ? ((const int8_t *)l->values)[i]
                                     : ((const uint8_t *)l->values)[i];
            if (have != alphabet[digit])
                fail_msg("%s value %zu: %ld, source %ld", l->name, i, have, alphabet[digit]);
        }
    }
}

static void test_code_book_and_sign_rule(void **state)
{
    (void)state;
    long values[16];
    assert_int_equal(numbers(member(text, "kvalues_iq4nl"), values, 16), 16);
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(quant_iq4nl_values[i], values[i]);
    for (unsigned i = 0; i < 128; i++)
        assert_int_equal(quant_iq_signs[i], i | (unsigned)__builtin_parity(i) << 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_lattice_equals_its_source),
        cmocka_unit_test(test_code_book_and_sign_rule),
    };
    return cmocka_run_group_tests(tests, read_json, NULL);
}
