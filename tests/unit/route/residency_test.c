#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/chrono.h"
#include "route/residency.h"

#define MINUTE 60000

static struct residency_model out_waiting(int64_t oldest_ms)
{
    return (struct residency_model){.waiting = 1, .oldest_ms = oldest_ms, .keep_ms = 5 * MINUTE,
                                    .bytes = 10};
}

static struct residency_model ready(int64_t ready_ms, int64_t idle_ms)
{
    return (struct residency_model){.state = RESIDENCY_READY, .ready_ms = ready_ms,
                                    .idle_ms = idle_ms, .keep_ms = 5 * MINUTE, .bytes = 10};
}

static struct residency_model serving(int64_t ready_ms, uint32_t running)
{
    struct residency_model m = ready(ready_ms, 0);
    m.running = running;
    return m;
}

static struct residency_view view(const struct residency_model *m, uint32_t count, int64_t now_ms)
{
    return (struct residency_view){.models = m, .models_count = count, .places = 1,
                                   .min_residency_ms = 20000, .swap_wait_ms = 60000,
                                   .now_ms = now_ms};
}

static void expect(const struct residency_view *v, size_t count,
                   const struct residency_action *want)
{
    struct residency_action got[RESIDENCY_MODELS_MAX];
    size_t n = residency_next(v, got, RESIDENCY_MODELS_MAX);
    assert_int_equal(n, count);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(got[i].what, want[i].what);
        assert_int_equal(got[i].model, want[i].model);
        if (want[i].bytes)
            assert_int_equal(got[i].bytes, want[i].bytes);
    }
}

static void expect_one(const struct residency_view *v, enum residency_what what, uint32_t model)
{
    expect(v, 1, &(struct residency_action){what, model, 0});
}

static void expect_none(const struct residency_view *v) { expect(v, 0, NULL); }

static void test_a_model_that_is_wanted_is_loaded_into_a_free_place(void **state)
{
    (void)state;
    struct residency_model m[] = {out_waiting(0)};
    struct residency_view v = view(m, 1, 0);
    expect_one(&v, RESIDENCY_LOAD, 0);
    m[0].waiting = 0;
    expect_none(&v);
}

static void test_the_model_whose_request_is_oldest_loads_first(void **state)
{
    (void)state;
    struct residency_model m[] = {out_waiting(7), out_waiting(3), out_waiting(5)};
    struct residency_view v = view(m, 3, 10);
    expect_one(&v, RESIDENCY_LOAD, 1);
    v.places = 2;
    expect(&v, 2, (struct residency_action[]){{RESIDENCY_LOAD, 1, 0}, {RESIDENCY_LOAD, 2, 0}});
}

static void test_a_model_that_had_to_leave_waits_behind_those_it_left_for(void **state)
{
    (void)state;
    struct residency_model m[] = {out_waiting(3), out_waiting(5)};
    struct residency_view v = view(m, 2, 10);
    m[0].left_ms = 9; /* its own requests are older */
    expect_one(&v, RESIDENCY_LOAD, 1);
}

static void test_nobody_is_sent_away_before_its_minimum_residency(void **state)
{
    (void)state;
    struct residency_model m[] = {ready(1000, 2000), out_waiting(3000)};
    struct residency_view v = view(m, 2, 20999);
    expect_none(&v);
    assert_int_equal(residency_wake_ms(&v), 21000);
    v.now_ms = 21000;
    expect_one(&v, RESIDENCY_UNLOAD, 0);
}

static void test_a_busy_model_drains_when_its_queue_is_empty(void **state)
{
    (void)state;
    struct residency_model m[] = {serving(0, 2), out_waiting(25000)};
    struct residency_view v = view(m, 2, 30000);
    expect_one(&v, RESIDENCY_DRAIN, 0);
    m[0].state = RESIDENCY_DRAINING;
    expect_none(&v);
    m[0].running = 0;
    expect_one(&v, RESIDENCY_UNLOAD, 0);
    m[0].state = RESIDENCY_LEAVING;
    expect_none(&v);
    m[0] = (struct residency_model){.state = RESIDENCY_OUT};
    expect_one(&v, RESIDENCY_LOAD, 1);
}

static void test_a_model_with_a_queue_drains_only_when_another_has_waited_long_enough(void **state)
{
    (void)state;
    struct residency_model m[] = {serving(0, 2), out_waiting(40000)};
    struct residency_view v = view(m, 2, 99999);
    m[0].waiting = 5;
    m[0].oldest_ms = 90000;
    m[0].has_served = true;
    expect_none(&v);
    assert_int_equal(residency_wake_ms(&v), 100000);
    v.now_ms = 100000;
    expect_one(&v, RESIDENCY_DRAIN, 0);
    m[0].has_served = false; /* loaded for a request that has not begun yet */
    expect_none(&v);
}

static void test_a_drained_model_serves_on_when_the_others_went_away(void **state)
{
    (void)state;
    struct residency_model m[] = {serving(0, 1), out_waiting(0)};
    struct residency_view v = view(m, 2, 90000);
    m[0].state = RESIDENCY_DRAINING;
    expect_none(&v);
    m[1].waiting = 0;
    expect_one(&v, RESIDENCY_KEEP, 0);
}

static void test_a_pinned_model_keeps_its_place_and_the_others_are_told(void **state)
{
    (void)state;
    struct residency_model m[] = {ready(0, 0), out_waiting(0)};
    struct residency_view v = view(m, 2, 10 * MINUTE);
    m[0].is_pinned = true;
    m[0].keep_ms = -1;
    expect_one(&v, RESIDENCY_REFUSE, 1);
    v.places = 2;
    expect_one(&v, RESIDENCY_LOAD, 1);
}

static void test_an_idle_model_leaves_when_its_keep_alive_is_over(void **state)
{
    (void)state;
    static const struct { int64_t keep_ms, idle_ms, now_ms; bool leaves; } rows[] = {
        {5 * MINUTE, 1000, 5 * MINUTE + 999, false}, {5 * MINUTE, 1000, 5 * MINUTE + 1000, true},
        {0, 1000, 1000, true}, {-1, 0, INT64_C(1) << 50, false},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct residency_model m[] = {ready(0, rows[i].idle_ms)};
        m[0].keep_ms = rows[i].keep_ms;
        struct residency_view v = view(m, 1, rows[i].now_ms);
        if (rows[i].leaves)
            expect_one(&v, RESIDENCY_UNLOAD, 0);
        else
            expect_none(&v);
        m[0].waiting = 1; /* a request at the very moment keeps it */
        expect_none(&v);
    }
}

static void test_an_unload_that_was_asked_for_waits_for_running_replies(void **state)
{
    (void)state;
    struct residency_model m[] = {serving(0, 1)};
    struct residency_view v = view(m, 1, 10);
    m[0].must_leave = true;
    m[0].is_pinned = true;
    expect_one(&v, RESIDENCY_DRAIN, 0);
    m[0].state = RESIDENCY_DRAINING;
    expect_none(&v);
    m[0].running = 0;
    expect_one(&v, RESIDENCY_UNLOAD, 0);
}

static void test_G21_a_failed_load_is_not_tried_again_at_once(void **state)
{
    (void)state;
    struct residency_model m[] = {out_waiting(0)};
    struct residency_view v = view(m, 1, 4999);
    m[0].retry_ms = 5000;
    expect_none(&v);
    assert_int_equal(residency_wake_ms(&v), 5000);
    v.now_ms = 5000;
    expect_one(&v, RESIDENCY_LOAD, 0);
}

static void test_free_bytes_are_shared_between_the_free_places(void **state)
{
    (void)state;
    struct residency_model m[] = {ready(0, 0), out_waiting(0), out_waiting(1)};
    struct residency_view v = view(m, 3, 10);
    v.places = 3;
    v.bytes_max = 110;
    expect(&v, 2, (struct residency_action[]){{RESIDENCY_LOAD, 1, 50}, {RESIDENCY_LOAD, 2, 50}});
    m[1].bytes = 95; /* more than its share, because it needs it */
    expect_one(&v, RESIDENCY_LOAD, 1); /* nothing is left for the other */
}

static void test_a_model_that_does_not_fit_beside_another_takes_its_place(void **state)
{
    (void)state;
    struct residency_model m[] = {ready(0, 5), ready(0, 3), out_waiting(0)};
    struct residency_view v = view(m, 3, 30000);
    v.places = 4;
    v.bytes_max = 25;
    expect_one(&v, RESIDENCY_UNLOAD, 1); /* the longest idle */
    m[2].bytes = 25;
    expect(&v, 2, (struct residency_action[]){{RESIDENCY_UNLOAD, 1, 0}, {RESIDENCY_UNLOAD, 0, 0}});
}

static void test_a_model_larger_than_everything_is_left_to_its_child_to_refuse(void **state)
{
    (void)state;
    struct residency_model m[] = {ready(0, 5), out_waiting(0)};
    struct residency_view v = view(m, 2, 30000);
    v.places = 2;
    v.bytes_max = 25;
    m[1].bytes = 1000;
    expect(&v, 1, (struct residency_action[]){{RESIDENCY_LOAD, 1, 15}}); /* and nobody had to go */
}

static void test_bytes_of_a_child_that_has_not_ended_are_not_given_away(void **state)
{
    (void)state;
    struct residency_model m[] = {ready(0, 5), out_waiting(0)};
    struct residency_view v = view(m, 2, 30000);
    v.places = 2;
    v.bytes_max = 15;
    m[0].state = RESIDENCY_LEAVING;
    expect_none(&v);
    m[0] = (struct residency_model){.state = RESIDENCY_OUT};
    expect(&v, 1, (struct residency_action[]){{RESIDENCY_LOAD, 1, 10}});
}

/* --- seeded histories ---------------------------------------------------------------------- */

enum { SIM_MODELS = 5, SIM_STEPS = 4000, SIM_TICK_MS = 250 };

struct sim {
    struct residency_model m[SIM_MODELS];
    struct residency_view v;
    struct chrono_rng rng;
    int64_t busy_until_ms[SIM_MODELS];
    uint64_t served;
};

static bool chance(struct sim *s, uint64_t one_in) { return !chrono_rng_below(&s->rng, one_in); }

static void sim_do(struct sim *s, const struct residency_action *a)
{
    struct residency_model *m = &s->m[a->model];
    switch (a->what) {
    case RESIDENCY_LOAD:
        assert_int_equal(m->state, RESIDENCY_OUT);
        assert_true(m->waiting);
        m->state = RESIDENCY_LOADING;
        m->bytes = a->bytes;
        return;
    case RESIDENCY_DRAIN:
        assert_int_equal(m->state, RESIDENCY_READY);
        m->state = RESIDENCY_DRAINING;
        return;
    case RESIDENCY_KEEP:
        assert_int_equal(m->state, RESIDENCY_DRAINING);
        m->state = RESIDENCY_READY;
        m->idle_ms = s->v.now_ms;
        return;
    case RESIDENCY_UNLOAD:
        assert_true(m->state == RESIDENCY_READY || m->state == RESIDENCY_DRAINING);
        assert_int_equal(m->running, 0);
        m->state = RESIDENCY_LEAVING;
        m->left_ms = s->v.now_ms;
        return;
    case RESIDENCY_REFUSE:
        m->waiting = 0;
        return;
    }
}

static void sim_world(struct sim *s, struct residency_model *m)
{
    uint32_t i = (uint32_t)(m - s->m);
    if (m->state == RESIDENCY_LOADING && chance(s, 8)) {
        bool fails = chance(s, 10);
        m->state = fails ? RESIDENCY_OUT : RESIDENCY_READY;
        m->has_served = false;
        m->ready_ms = m->idle_ms = s->v.now_ms;
        m->retry_ms = fails ? s->v.now_ms + 5000 : 0;
        m->waiting = fails ? 0 : m->waiting;
        m->bytes = fails ? 10 : m->bytes;
    } else if (m->state == RESIDENCY_LEAVING && chance(s, 3)) {
        m->state = RESIDENCY_OUT;
        m->must_leave = false;
        m->bytes = 5 + 5 * i;
    }
    if (m->state == RESIDENCY_READY && m->waiting && m->running < 4) {
        m->waiting--;
        m->running++;
        m->has_served = true;
        s->served++;
    }
    bool serves = m->state == RESIDENCY_READY || m->state == RESIDENCY_DRAINING;
    if (serves && m->running && chance(s, 6) && --m->running == 0)
        m->idle_ms = s->v.now_ms;
    if (s->v.now_ms < SIM_STEPS / 2 * SIM_TICK_MS && chance(s, 60) && m->waiting < 3) {
        m->oldest_ms = m->waiting ? m->oldest_ms : s->v.now_ms;
        m->waiting++;
    }
    if (chance(s, 2000) && m->state == RESIDENCY_READY)
        m->must_leave = true;
}

static void sim_check(const struct sim *s)
{
    uint32_t places = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < SIM_MODELS; i++) {
        places += s->m[i].state != RESIDENCY_OUT;
        bytes += s->m[i].state != RESIDENCY_OUT ? s->m[i].bytes : 0;
        /* Bounded wait: every other model once (its residency, swap_wait, replies), and loads. */
        bool waits = s->m[i].state == RESIDENCY_OUT && s->m[i].waiting;
        if (waits && s->v.now_ms - s->m[i].oldest_ms > SIM_MODELS * 100000)
            fail_msg("model %u waits %lld ms", i, (long long)(s->v.now_ms - s->m[i].oldest_ms));
    }
    assert_true(places <= s->v.places);
    assert_true(bytes <= s->v.bytes_max);
}

static void sim_run(uint64_t seed)
{
    struct sim s = {.v = {.models_count = SIM_MODELS, .min_residency_ms = 20000,
                          .swap_wait_ms = 60000}};
    chrono_rng_init(&s.rng, seed);
    if (seed % 5 == 0) /* at any setting */
        s.v.min_residency_ms = s.v.swap_wait_ms = 0;
    s.v.models = s.m;
    s.v.places = 1 + (uint32_t)chrono_rng_below(&s.rng, 3);
    s.v.bytes_max = 40 + chrono_rng_below(&s.rng, 60);
    for (uint32_t i = 0; i < SIM_MODELS; i++)
        s.m[i] = (struct residency_model){.bytes = 5 + 5 * i, .keep_ms = (int64_t)i * 10000 - 1};
    for (uint32_t step = 0; step < SIM_STEPS; step++) {
        struct residency_action a[SIM_MODELS];
        s.v.now_ms += SIM_TICK_MS;
        for (uint32_t i = 0; i < SIM_MODELS; i++)
            sim_world(&s, &s.m[i]);
        size_t n = residency_next(&s.v, a, SIM_MODELS);
        for (size_t i = 0; i < n; i++)
            sim_do(&s, &a[i]);
        sim_check(&s);
    }
    for (uint32_t i = 0; i < SIM_MODELS; i++) /* half of the time nothing came: all is served */
        assert_int_equal(s.m[i].waiting, 0);
    assert_true(s.served > 20);
}

static void test_seeded_histories_keep_places_bytes_and_turns(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++)
        sim_run(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_that_is_wanted_is_loaded_into_a_free_place),
        cmocka_unit_test(test_the_model_whose_request_is_oldest_loads_first),
        cmocka_unit_test(test_a_model_that_had_to_leave_waits_behind_those_it_left_for),
        cmocka_unit_test(test_nobody_is_sent_away_before_its_minimum_residency),
        cmocka_unit_test(test_a_busy_model_drains_when_its_queue_is_empty),
        cmocka_unit_test(test_a_model_with_a_queue_drains_only_when_another_has_waited_long_enough),
        cmocka_unit_test(test_a_drained_model_serves_on_when_the_others_went_away),
        cmocka_unit_test(test_a_pinned_model_keeps_its_place_and_the_others_are_told),
        cmocka_unit_test(test_an_idle_model_leaves_when_its_keep_alive_is_over),
        cmocka_unit_test(test_an_unload_that_was_asked_for_waits_for_running_replies),
        cmocka_unit_test(test_G21_a_failed_load_is_not_tried_again_at_once),
        cmocka_unit_test(test_free_bytes_are_shared_between_the_free_places),
        cmocka_unit_test(test_a_model_that_does_not_fit_beside_another_takes_its_place),
        cmocka_unit_test(test_a_model_larger_than_everything_is_left_to_its_child_to_refuse),
        cmocka_unit_test(test_bytes_of_a_child_that_has_not_ended_are_not_given_away),
        cmocka_unit_test(test_seeded_histories_keep_places_bytes_and_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
