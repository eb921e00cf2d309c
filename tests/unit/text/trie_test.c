#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "text/trie.h"

static void test_the_longest_string_wins(void **state)
{
    (void)state;
    static const char *const strings[] = {"<", "<a", "<abc>", "x", "\xff\xff"};
    struct trie t;
    trie_init(&t);
    for (size_t i = 0; i < countof(strings); i++)
        assert_true(trie_add(&t, str_of(strings[i]), (int32_t)i));
    static const struct {
        const char *text;
        size_t len;
        int32_t id;
    } cases[] = {
        {"<abc>d", 5, 2}, {"<abc", 2, 1}, {"<b", 1, 0}, {"<", 1, 0},       {"x", 1, 3},
        {"xx", 1, 3},     {"y", 0, -1},   {"", 0, -1},  {"\xff\xff", 2, 4}, {"\xff", 0, -1},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        int32_t id = TRIE_NONE;
        assert_int_equal(trie_longest(&t, str_of(cases[i].text), &id), cases[i].len);
        assert_int_equal(id, cases[i].id);
    }
    trie_deinit(&t);
}

static void test_of_two_equal_strings_the_first_keeps_its_id(void **state)
{
    (void)state;
    struct trie t;
    int32_t id = TRIE_NONE;
    trie_init(&t);
    assert_true(trie_add(&t, STR("ab"), 7) && trie_add(&t, STR("ab"), 8));
    assert_int_equal(trie_longest(&t, STR("abc"), &id), 2);
    assert_int_equal(id, 7);
    trie_deinit(&t);
}

static void test_an_empty_trie_finds_nothing(void **state)
{
    (void)state;
    struct trie t;
    int32_t id = TRIE_NONE;
    trie_init(&t);
    assert_int_equal(trie_longest(&t, STR("abc"), &id), 0);
    assert_int_equal(trie_step(&t, 0, 'a'), 0);
    trie_deinit(&t);
}

static void test_steps_lead_through_every_child_of_a_node(void **state)
{
    (void)state;
    struct trie t;
    trie_init(&t);
    for (int i = 0; i < 256; i++) { /* in an order that is neither up nor down */
        char s[2] = {'q', (char)(i * 77)};
        assert_true(trie_add(&t, str_view(s, 2), i));
    }
    uint32_t q = trie_step(&t, 0, 'q');
    assert_true(q != 0);
    for (int i = 0; i < 256; i++) {
        uint32_t n = trie_step(&t, q, (uint8_t)(i * 77));
        assert_true(n != 0);
        assert_int_equal(trie_nodes(&t)[n].id, i);
    }
    trie_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_longest_string_wins),
        cmocka_unit_test(test_of_two_equal_strings_the_first_keeps_its_id),
        cmocka_unit_test(test_an_empty_trie_finds_nothing),
        cmocka_unit_test(test_steps_lead_through_every_child_of_a_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
