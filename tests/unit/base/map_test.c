#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/chrono.h"
#include "base/list.h"
#include "base/map.h"
#include "base/ring.h"

#define KEYS 500

/* Against a plain array: the same puts, deletes and look-ups, checked after each step. */
static void test_a_map_answers_as_an_array_of_all_keys_would(void **state)
{
    (void)state;
    static char names[KEYS][8];
    uint64_t value[KEYS] = {0};
    bool is_there[KEYS] = {false};
    struct map m;
    struct chrono_rng r;
    chrono_rng_init(&r, 1);
    map_init(&m, KEYS);
    for (uint32_t i = 0; i < KEYS; i++)
        snprintf(names[i], sizeof names[i], "k%u", i);
    uint32_t count = 0;
    for (uint32_t step = 0; step < 50000; step++) {
        uint32_t k = (uint32_t)chrono_rng_below(&r, KEYS);
        bool as_number = k % 2;
        str key = str_of(names[k]);
        if (chrono_rng_below(&r, 100) < 55) {
            count += !is_there[k];
            is_there[k] = true;
            value[k] = step;
            assert_true(as_number ? map_put_number(&m, k, step) : map_put(&m, key, step));
        } else {
            bool was = as_number ? map_delete_number(&m, k) : map_delete(&m, key);
            assert_int_equal(was, is_there[k]);
            count -= is_there[k];
            is_there[k] = false;
        }
        assert_int_equal(m.count, count);
        uint32_t look = (uint32_t)chrono_rng_below(&r, KEYS);
        uint64_t v = look % 2 ? map_value_number(&m, look, 77)
                              : map_value(&m, str_of(names[look]), 77);
        assert_int_equal(v, is_there[look] ? value[look] : 77);
    }
    for (uint32_t k = 0; k < KEYS; k++) {
        const uint64_t *v = k % 2 ? map_find_number(&m, k) : map_find(&m, str_of(names[k]));
        assert_true(is_there[k] ? v && *v == value[k] : !v);
    }
    map_deinit(&m);
}

static void test_a_number_and_its_bytes_are_different_keys(void **state)
{
    (void)state;
    struct map m;
    uint64_t n = 42;
    map_init(&m, 10);
    assert_true(map_put_number(&m, n, 1) && map_put(&m, str_view(&n, sizeof n), 2));
    assert_true(map_put(&m, (str){NULL, 0}, 3));
    assert_int_equal(m.count, 3);
    assert_int_equal(map_value_number(&m, n, 0), 1);
    assert_int_equal(map_value(&m, str_view(&n, sizeof n), 0), 2);
    assert_int_equal(map_value(&m, STR(""), 0), 3);
    map_deinit(&m);
}

static void test_a_full_map_refuses_new_keys_only(void **state)
{
    (void)state;
    struct map m;
    map_init(&m, 100);
    for (uint32_t i = 0; i < 100; i++)
        assert_true(map_put_number(&m, i, i));
    assert_false(map_put_number(&m, 100, 0));
    assert_true(map_put_number(&m, 7, 8));
    assert_false(map_reserve(&m, 101));
    assert_int_equal(m.count, 100);
    map_deinit(&m);
}

static void test_walking_a_map_follows_insertion(void **state)
{
    (void)state;
    struct map m;
    map_init(&m, 10);
    assert_true(map_put(&m, STR("c"), 0) && map_put(&m, STR("a"), 1) && map_put(&m, STR("b"), 2));
    assert_true(map_delete(&m, STR("c")));
    char order[3] = {0};
    for (uint32_t i = 0; i < m.count; i++)
        order[i] = map_key(&m.entries[i]).p[0];
    assert_string_equal(order, "ba"); /* the last fills the hole */
    map_deinit(&m);
}

static void test_a_ring_refuses_or_drops_the_oldest_when_full(void **state)
{
    (void)state;
    int items[3], v = 0;
    struct ring r;
    ring_init(&r, items, sizeof items[0], 3);
    for (int i = 0; i < 3; i++)
        *(int *)ring_push(&r) = i;
    assert_null(ring_push(&r));
    *(int *)ring_push_over(&r) = 3;
    assert_int_equal(*(int *)ring_at(&r, 0), 1);
    for (int i = 1; i <= 3; i++)
        assert_true(ring_pop(&r, &v) && v == i);
    assert_false(ring_pop(&r, &v));
}

struct item {
    int n;
    struct list link;
};

static void test_items_leave_a_list_while_it_is_walked(void **state)
{
    (void)state;
    struct list head;
    struct item items[6];
    int left = 0;
    list_init(&head);
    assert_null(list_first(&head));
    for (int i = 0; i < 6; i++) {
        items[i].n = i;
        if (i % 2)
            list_push_last(&head, &items[i].link);
        else
            list_push_first(&head, &items[i].link);
    }
    assert_int_equal(list_item(list_first(&head), struct item, link)->n, 4);
    assert_int_equal(list_item(list_last(&head), struct item, link)->n, 5);
    list_each(l, &head) {
        if (list_item(l, struct item, link)->n % 2)
            list_remove(l);
    }
    list_each(l, &head)
        left = left * 10 + list_item(l, struct item, link)->n;
    assert_int_equal(left, 420);
    list_remove(&items[1].link); /* again: harmless */
    assert_false(list_is_empty(&head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_map_answers_as_an_array_of_all_keys_would),
        cmocka_unit_test(test_a_number_and_its_bytes_are_different_keys),
        cmocka_unit_test(test_a_full_map_refuses_new_keys_only),
        cmocka_unit_test(test_walking_a_map_follows_insertion),
        cmocka_unit_test(test_a_ring_refuses_or_drops_the_oldest_when_full),
        cmocka_unit_test(test_items_leave_a_list_while_it_is_walked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
