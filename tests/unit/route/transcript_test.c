#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "route/transcript.h"

static struct transcript t;
static struct arena a;
static struct api_resume resume;
static const struct leg engine_same = {.kind = LEG_KIND_ENGINE, .goes_on = LEG_CONTINUE_ENGINE,
                                       .model = {.model_hash = 7, .caps = API_CAP_CONTINUE_TEXT}};
static const struct leg engine_other = {.kind = LEG_KIND_ENGINE, .goes_on = LEG_CONTINUE_ENGINE,
                                        .model = {.model_hash = 8, .caps = API_CAP_CONTINUE_TEXT}};
static const struct leg prefill = {.kind = LEG_KIND_UPSTREAM, .goes_on = LEG_CONTINUE_PREFILL};
static const struct leg shoal = {.kind = LEG_KIND_UPSTREAM, .goes_on = LEG_CONTINUE_SHOAL};
static const struct leg plain = {.kind = LEG_KIND_UPSTREAM};

static int begin(void **state)
{
    struct api_error e;
    (void)state;
    arena_init(&a, 1 << 20);
    return transcript_init(&t, 2, 4096, &e) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    transcript_deinit(&t);
    arena_deinit(&a);
    return 0;
}

static void add(uint32_t choice, struct api_event ev, int32_t id)
{
    struct api_batch b = {.choice = choice, .events = &ev, .events_count = 1, .ids = &id,
                          .ids_count = id >= 0};
    transcript_add(&t, &b);
}

static void started(uint64_t hash)
{
    add(0, (struct api_event){.kind = API_EVENT_STARTED, .started = {.model_hash = hash}}, -1);
}

static void say(uint32_t choice, enum api_event_kind kind, const char *text, int32_t id)
{
    add(choice, (struct api_event){.kind = kind, .text = {.text = str_of(text)}}, id);
}

static void call(enum api_event_kind kind, const char *args)
{
    add(0, (struct api_event){.kind = kind,
                              .call = {.index = 0, .id = STR("c1"), .name = STR("f"),
                                       .args = str_of(args)}}, -1);
}

static void test_nothing_visible_begins_anew_anywhere(void **state)
{
    (void)state;
    started(7);
    assert_int_equal(transcript_resume(&t, &plain, &a, &resume), TRANSCRIPT_FRESH);
    assert_int_equal(transcript_resume(&t, &engine_same, &a, &resume), TRANSCRIPT_FRESH);
}

static void test_the_same_model_goes_on_from_its_ids_another_from_the_text(void **state)
{
    (void)state;
    started(7);
    say(0, API_EVENT_CONTENT, "Hel", 1);
    say(0, API_EVENT_CONTENT, "lo", 2);
    say(1, API_EVENT_CONTENT, "A", 3);
    assert_int_equal(transcript_resume(&t, &engine_same, &a, &resume), TRANSCRIPT_TOKENS);
    assert_int_equal(resume.partials_count, 2);
    assert_int_equal(resume.model_hash, 7);
    assert_int_equal(resume.partials[0].message.ids_count, 2);
    assert_int_equal(resume.partials[0].message.ids[1], 2);
    assert_int_equal(resume.partials[1].tokens_used, 1);
    assert_int_equal(transcript_resume(&t, &engine_other, &a, &resume), TRANSCRIPT_TEXT);
    assert_int_equal(resume.model_hash, 0);
    assert_int_equal(resume.partials[0].message.ids_count, 0);
    assert_true(str_eq_z(resume.partials[0].message.parts[0].text, "Hello"));
    assert_int_equal(transcript_resume(&t, &shoal, &a, &resume), TRANSCRIPT_NO); /* two choices */
}

static void test_a_choice_that_ended_is_left_out(void **state)
{
    (void)state;
    started(7);
    say(0, API_EVENT_CONTENT, "x", 1);
    add(0, (struct api_event){.kind = API_EVENT_DONE}, -1);
    assert_int_equal(transcript_resume(&t, &engine_same, &a, &resume), TRANSCRIPT_TOKENS);
    assert_int_equal(resume.partials_count, 1);
    assert_int_equal(resume.partials[0].choice, 1);
}

static void test_an_upstream_goes_on_only_where_its_protocol_can(void **state)
{
    (void)state;
    struct transcript one;
    struct api_error e;
    transcript_deinit(&t);
    assert_true(transcript_init(&one, 1, 4096, &e));
    t = one;
    say(0, API_EVENT_REASONING, "hm", -1);
    assert_int_equal(transcript_resume(&t, &prefill, &a, &resume), TRANSCRIPT_NO);
    assert_int_equal(transcript_resume(&t, &shoal, &a, &resume), TRANSCRIPT_TEXT);
    say(0, API_EVENT_CONTENT, "text", -1);
    assert_int_equal(transcript_resume(&t, &prefill, &a, &resume), TRANSCRIPT_TEXT);
    assert_int_equal(resume.partials[0].message.parts_count, 2);
    assert_int_equal(transcript_resume(&t, &plain, &a, &resume), TRANSCRIPT_NO);
    call(API_EVENT_CALL_BEGIN, "");
    call(API_EVENT_CALL_ARGS, "{\"a\":");
    assert_int_equal(transcript_resume(&t, &prefill, &a, &resume), TRANSCRIPT_NO);
    assert_int_equal(transcript_resume(&t, &engine_other, &a, &resume), TRANSCRIPT_TEXT);
    assert_true(str_eq_z(resume.partials[0].message.parts[2].text, "{\"a\":"));
    assert_true(str_eq_z(resume.partials[0].message.parts[2].name, "f"));
    struct leg_needs n = {0};
    transcript_needs(&t, &n);
    assert_true(n.must_continue && n.in_call);
}

static void one_choice(bool hides_calls)
{
    struct api_error e;
    transcript_deinit(&t);
    assert_true(transcript_init(&t, 1, 4096, &e));
    t.hides_calls = hides_calls;
}

static void test_a_call_that_nobody_has_goes_on_by_its_ids_or_is_made_again(void **state)
{
    (void)state;
    struct leg_needs n = {0};
    one_choice(true);
    started(7);
    say(0, API_EVENT_CONTENT, "text", 1);
    call(API_EVENT_CALL_BEGIN, "");
    call(API_EVENT_CALL_ARGS, "{\"a\":");
    transcript_needs(&t, &n);
    assert_true(n.must_continue && !n.in_call);
    const struct leg *legs[] = {&engine_other, &shoal, &prefill};
    for (size_t i = 0; i < sizeof legs / sizeof *legs; i++) {
        assert_int_equal(transcript_resume(&t, legs[i], &a, &resume), TRANSCRIPT_TEXT);
        assert_int_equal(resume.partials[0].message.parts_count, 1);
    }
    assert_int_equal(transcript_resume(&t, &engine_same, &a, &resume), TRANSCRIPT_TOKENS);
    assert_int_equal(resume.partials[0].message.parts_count, 2);
    assert_int_equal(transcript_resume(&t, &plain, &a, &resume), TRANSCRIPT_NO);
    transcript_begin(&t, TRANSCRIPT_TEXT, &prefill);
    assert_int_equal(transcript_bytes(&t), 4);
    call(API_EVENT_CALL_BEGIN, "");
    call(API_EVENT_CALL_ARGS, "{}");
    call(API_EVENT_CALL_END, "");
    transcript_needs(&t, &n); /* and what is whole was delivered */
    assert_true(n.in_call);
    assert_int_equal(transcript_resume(&t, &prefill, &a, &resume), TRANSCRIPT_NO);
}

static void test_where_a_call_is_all_and_nobody_has_it_any_leg_begins_anew(void **state)
{
    (void)state;
    struct leg_needs n = {0};
    for (int hides = 0; hides < 2; hides++) {
        one_choice(hides);
        call(API_EVENT_CALL_BEGIN, "");
        call(API_EVENT_CALL_ARGS, "{\"a\":");
        transcript_needs(&t, &n);
        assert_int_equal(n.must_continue, !hides);
        assert_int_equal(transcript_resume(&t, &plain, &a, &resume),
                         hides ? TRANSCRIPT_FRESH : TRANSCRIPT_NO);
    }
    transcript_begin(&t, TRANSCRIPT_FRESH, &plain);
    assert_int_equal(transcript_bytes(&t), 0);
    assert_int_equal(transcript_tokens(&t), 0);
    assert_int_equal(transcript_resume(&t, &prefill, &a, &resume), TRANSCRIPT_FRESH);
}

static void test_the_rest_of_a_call_that_the_request_began_is_gone_on_from_by_nobody(void **state)
{
    (void)state;
    one_choice(false);
    started(7);
    call(API_EVENT_CALL_ARGS, "1}");
    assert_int_equal(transcript_resume(&t, &engine_other, &a, &resume), TRANSCRIPT_NO);
    assert_int_equal(transcript_resume(&t, &shoal, &a, &resume), TRANSCRIPT_NO);
}

static void test_past_its_limit_nothing_is_resumed_and_nothing_is_wrong(void **state)
{
    (void)state;
    char big[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    say(0, API_EVENT_CONTENT, big, -1);
    assert_true(t.is_full);
    assert_int_equal(transcript_resume(&t, &engine_same, &a, &resume), TRANSCRIPT_NO);
}

static void test_ids_of_another_model_replace_the_old_ones(void **state)
{
    (void)state;
    started(7);
    say(0, API_EVENT_CONTENT, "a", 1);
    transcript_begin(&t, TRANSCRIPT_TEXT, &engine_other);
    started(8);
    int32_t ids[] = {40, 41};
    struct api_event ev = {.kind = API_EVENT_CONTENT, .text = {.text = STR("b")}};
    struct api_batch b = {.events = &ev, .events_count = 1, .ids = ids, .ids_count = 2};
    transcript_add(&t, &b);
    assert_int_equal(t.model_hash, 8);
    assert_int_equal(t.choices[0].ids.len, 2 * sizeof(int32_t));
    assert_int_equal(transcript_tokens(&t), 2);
    assert_int_equal(transcript_bytes(&t), 2);
}

/* A limit of tokens must not be reached by a guess: letters one by one are few tokens. */
static void test_pieces_that_are_no_tokens_never_use_up_a_limit(void **state)
{
    static const struct leg wide = {.kind = LEG_KIND_UPSTREAM, .has_wide_pieces = true,
                                    .goes_on = LEG_CONTINUE_PREFILL};
    struct transcript one;
    struct api_error e;
    (void)state;
    transcript_deinit(&t);
    assert_true(transcript_init(&one, 1, 4096, &e));
    t = one;
    for (int i = 0; i < 2; i++) {
        const struct leg *leg = i ? &prefill : &wide;
        transcript_begin(&t, i ? TRANSCRIPT_TEXT : TRANSCRIPT_FRESH, leg);
        for (int k = 0; k < 80; k++)
            say(0, API_EVENT_CONTENT, "x", -1);
        assert_int_equal(transcript_resume(&t, leg, &a, &resume), TRANSCRIPT_TEXT);
        /* 80 bytes are ten tokens at least, and about twenty; the other leg's pieces are tokens. */
        assert_int_equal(resume.partials[0].tokens_used, i ? 90 : 10);
        assert_int_equal(transcript_tokens(&t), i ? 100 : 20);
    }
}

#define FRESH(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH(test_nothing_visible_begins_anew_anywhere),
        FRESH(test_the_same_model_goes_on_from_its_ids_another_from_the_text),
        FRESH(test_a_choice_that_ended_is_left_out),
        FRESH(test_an_upstream_goes_on_only_where_its_protocol_can),
        FRESH(test_a_call_that_nobody_has_goes_on_by_its_ids_or_is_made_again),
        FRESH(test_where_a_call_is_all_and_nobody_has_it_any_leg_begins_anew),
        FRESH(test_the_rest_of_a_call_that_the_request_began_is_gone_on_from_by_nobody),
        FRESH(test_past_its_limit_nothing_is_resumed_and_nothing_is_wrong),
        FRESH(test_ids_of_another_model_replace_the_old_ones),
        FRESH(test_pieces_that_are_no_tokens_never_use_up_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
