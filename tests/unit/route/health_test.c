#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "route/health.h"

static struct health h;

static void test_every_fault_of_a_leg_has_its_class(void **state)
{
    (void)state;
    for (unsigned f = API_FAULT_NONE + 1; f < API_FAULT_COUNT_; f++) {
        struct api_error e = {.fault = (enum api_fault)f};
        enum health_class c = health_class_of(&e), back = HEALTH_CLASS_COUNT_;
        assert_string_equal(health_class_name(c), api_request_fault_name(e.fault));
        assert_true(health_class_parse(str_of(health_class_name(c)), &back));
        assert_int_equal(back, c);
    }
}

static void test_a_local_leg_is_judged_by_its_code(void **state)
{
    (void)state;
    const struct {
        enum err_code code;
        enum health_class want;
    } rows[] = {{ERR_ENGINE, HEALTH_CLASS_ENGINE_CRASH}, {ERR_OVERLOADED, HEALTH_CLASS_BUSY},
                {ERR_CONTEXT, HEALTH_CLASS_CONTEXT}, {ERR_REQUEST, HEALTH_CLASS_REQUEST},
                {ERR_NOT_FOUND, HEALTH_CLASS_LOAD_FAILED}, {ERR_LIMIT, HEALTH_CLASS_REQUEST}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct api_error e = {.err = {.code = rows[i].code}, .code = STR("")};
        assert_int_equal(health_class_of(&e), rows[i].want);
    }
    struct api_error load = {.err = {.code = ERR_INTERNAL}, .code = STR("load_failed")};
    assert_int_equal(health_class_of(&load), HEALTH_CLASS_LOAD_FAILED);
}

static void test_a_wrong_request_never_goes_to_another_leg(void **state)
{
    (void)state;
    assert_false(health_class_fails_over(HEALTH_CLASS_REQUEST));
    assert_false(health_class_fails_over(HEALTH_CLASS_AUTH));
    assert_false(health_class_fails_over(HEALTH_CLASS_CLIENT_GONE));
    assert_true(health_class_fails_over(HEALTH_CLASS_RATE_LIMIT));
}

static void test_the_window_holds_only_what_tells_of_the_leg(void **state)
{
    (void)state;
    memset(&h, 0, sizeof h);
    health_add(&h, HEALTH_CLASS_OK, STR(""), 1000);
    health_add(&h, HEALTH_CLASS_CUT, STR("broken off"), 2000);
    health_add(&h, HEALTH_CLASS_CLIENT_GONE, STR(""), 2500);
    health_add(&h, HEALTH_CLASS_REQUEST, STR("no such field"), 2600);
    health_add(&h, HEALTH_CLASS_RATE_LIMIT, STR("slow down"), 2700);
    struct health_window w = health_window_of(&h, 30000, 3000);
    assert_int_equal(w.requests, 2);
    assert_int_equal(w.failures, 1);
    assert_string_equal(h.error_text, "slow down");
    w = health_window_of(&h, 30000, 31500);
    assert_int_equal(w.requests, 1);
    w = health_window_of(&h, 30000, 99999);
    assert_int_equal(w.requests, 0);
}

static void test_G16_a_refused_key_is_misconfigured_until_an_answer(void **state)
{
    (void)state;
    memset(&h, 0, sizeof h);
    health_add(&h, HEALTH_CLASS_AUTH, STR("401"), 1);
    assert_true(h.is_misconfigured);
    assert_int_equal(health_window_of(&h, 30000, 2).failures, 0);
    health_add(&h, HEALTH_CLASS_OK, STR(""), 3);
    assert_false(h.is_misconfigured);
}

static void test_quantiles_are_those_of_the_last_samples(void **state)
{
    (void)state;
    memset(&h, 0, sizeof h);
    assert_int_equal(health_quantile(&h.recent, 95), 0);
    for (int i = 1; i <= 100; i++)
        health_add_first(&h, 3, i);
    /* 37..100 are kept */
    assert_int_equal(health_quantile(&h.first[3], 50), 68);
    assert_int_equal(health_quantile(&h.first[3], 95), 97);
    assert_int_equal(health_quantile(&h.first[3], 100), 100);
    assert_int_equal(h.recent.count, 100);
}

static void test_buckets_part_prompts_by_size_and_effort(void **state)
{
    (void)state;
    bool seen[HEALTH_SIZES * HEALTH_EFFORTS] = {false};
    const uint32_t sizes[] = {0, 1024, 4096, 16384, 65536};
    const enum api_effort efforts[] = {API_EFFORT_NONE, API_EFFORT_LOW, API_EFFORT_MEDIUM,
                                       API_EFFORT_HIGH};
    for (size_t s = 0; s < countof(sizes); s++)
        for (size_t e = 0; e < countof(efforts); e++) {
            uint32_t b = health_bucket(sizes[s], efforts[e]);
            assert_false(seen[b]);
            seen[b] = true;
        }
    assert_int_equal(health_bucket(10, API_EFFORT_DEFAULT), health_bucket(10, API_EFFORT_MEDIUM));
    assert_int_equal(health_bucket(UINT32_MAX, API_EFFORT_MAX), HEALTH_SIZES * HEALTH_EFFORTS - 1);
}

static void test_G15_the_free_endpoint_is_asked_at_its_own_pace(void **state)
{
    (void)state;
    struct health_probing p = {.is_on = true, .is_closed = true};
    memset(&h, 0, sizeof h);
    h.used_ms = 1000;
    assert_int_equal(health_probe_ms(&h, &p), 61000);
    h.probed_ms = 61000;
    assert_int_equal(health_probe_ms(&h, &p), 121000);
    p.is_closed = false;
    assert_int_equal(health_probe_ms(&h, &p), 91000);
    p.is_on = false;
    assert_int_equal(health_probe_ms(&h, &p), INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_fault_of_a_leg_has_its_class),
        cmocka_unit_test(test_a_local_leg_is_judged_by_its_code),
        cmocka_unit_test(test_a_wrong_request_never_goes_to_another_leg),
        cmocka_unit_test(test_the_window_holds_only_what_tells_of_the_leg),
        cmocka_unit_test(test_G16_a_refused_key_is_misconfigured_until_an_answer),
        cmocka_unit_test(test_quantiles_are_those_of_the_last_samples),
        cmocka_unit_test(test_buckets_part_prompts_by_size_and_effort),
        cmocka_unit_test(test_G15_the_free_endpoint_is_asked_at_its_own_pace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
