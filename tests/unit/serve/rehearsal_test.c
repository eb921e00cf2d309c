#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "serve/rehearsal.h"

/* A leg that says one word a batch when it is asked to, and notes what else it hears. */
struct leg {
    struct api_sink sink;
    uint32_t submits, cancels;
};

static struct loop *loop;
static struct rehearsal *r;
static struct leg leg;
static struct {
    uint32_t batches, errors;
    struct api_error e;
} heard;
static const struct rehearsal_plan plan = {STR_INIT("a"), STR_INIT("cut"), STR_INIT("batch-*"), 60,
                                           1};

static bool leg_submit(void *self, const struct api_request *rq, struct api_sink sink,
                       struct api_error *e)
{
    struct leg *l = self;
    (void)rq, (void)e;
    l->submits++;
    l->sink = sink;
    return true;
}
static void leg_cancel(void *self, uint64_t id)
{
    (void)id;
    ((struct leg *)self)->cancels++;
}
static const struct api_provider provider = {.self = &leg, .submit = leg_submit,
                                             .cancel = leg_cancel};

static void leg_say(enum api_event_kind kind)
{
    struct api_event ev = {.kind = kind, .text = {.text = STR("w")}};
    struct api_batch b = {.request_id = 7, .events = &ev, .events_count = 1};
    leg.sink.on_batch(leg.sink.ctx, &b);
}

static void on_batch(void *ctx, const struct api_batch *b)
{
    (void)ctx;
    heard.batches++;
    if (b->events[0].kind != API_EVENT_ERROR)
        return;
    heard.errors++;
    heard.e = b->events[0].error;
}

static int begin(void **state)
{
    struct err e;
    (void)state;
    memset(&heard, 0, sizeof heard);
    leg = (struct leg){.submits = 0};
    return loop_open(&loop, &e) && rehearsal_open(&r, loop, &e) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    rehearsal_close(r);
    loop_close(loop);
    return 0;
}

static void start(const char *fault)
{
    struct rehearsal_plan p = plan;
    struct err e;
    p.fault = str_of(fault);
    assert_true(rehearsal_start(r, &p, 1, &e));
}

static struct api_provider submit(void)
{
    struct api_request rq = {.id = 7, .deadline = {.first_ms = 30, .gap_ms = 30}};
    struct api_provider p = rehearsal_provider(r, &provider);
    struct api_error e;
    assert_true(p.submit(p.self, &rq, (struct api_sink){on_batch, NULL}, &e));
    return p;
}

static int64_t wait_for_error(void)
{
    int64_t begun = loop_ms();
    while (!heard.errors && loop_ms() < begun + 2000)
        loop_step(loop, 10);
    assert_int_equal(heard.errors, 1);
    assert_true(heard.e.is_rehearsed);
    return loop_ms() - begun;
}

static void test_a_short_reply_of_two_choices_passes_whole(void **state)
{
    struct api_request rq = {.id = 7, .n = 2, .deadline = {.first_ms = 30, .gap_ms = 30}};
    struct api_error e;
    struct api_event done = {.kind = API_EVENT_DONE};
    (void)state;
    start("stall");
    struct api_provider p = rehearsal_provider(r, &provider);
    assert_true(p.submit(p.self, &rq, (struct api_sink){on_batch, NULL}, &e));
    for (uint32_t i = 0; i < 2; i++) {
        struct api_batch b = {.request_id = 7, .choice = i, .events = &done, .events_count = 1};
        leg_say(API_EVENT_CONTENT);
        leg.sink.on_batch(leg.sink.ctx, &b);
    }
    assert_int_equal(heard.batches, 4);
    assert_int_equal(heard.errors, 0);
    p.cancel(p.self, 7);
    assert_int_equal(leg.cancels, 0); /* it had ended */
}

/* A client that leaves between the ends of two choices: the leg hears of it. */
static void test_a_call_lasts_until_its_last_choice_ends(void **state)
{
    struct api_request rq = {.id = 7, .n = 2, .deadline = {.first_ms = 30, .gap_ms = 30}};
    struct api_error e;
    (void)state;
    start("stall");
    struct api_provider p = rehearsal_provider(r, &provider);
    assert_true(p.submit(p.self, &rq, (struct api_sink){on_batch, NULL}, &e));
    leg_say(API_EVENT_DONE);
    p.cancel(p.self, 7);
    assert_int_equal(leg.cancels, 1);
}

static void test_only_the_leg_and_the_agents_of_the_plan_are_struck(void **state)
{
    struct rehearsal_plan stop = {.seconds = 0};
    struct err e;
    (void)state;
    assert_false(rehearsal_strikes(r, STR("a"), STR("batch-1")));
    start("cut");
    assert_true(rehearsal_strikes(r, STR("a"), STR("batch-1")));
    assert_false(rehearsal_strikes(r, STR("b"), STR("batch-1")));
    assert_false(rehearsal_strikes(r, STR("a"), STR("desk")));
    assert_true(rehearsal_start(r, &stop, 1, &e));
    assert_false(rehearsal_strikes(r, STR("a"), STR("batch-1")));
}

static void test_every_fault_is_told_in_its_class_and_time(void **state)
{
    static const struct {
        const char *name;
        enum api_fault fault;
        bool is_late;
        int64_t wait_ms;
    } rows[] = {
        {"refuse", API_FAULT_CONNECT, false, 0},
        {"hang_header", API_FAULT_HANG_HEADER, false, 30},
        {"hang_body", API_FAULT_HANG_FIRST, false, 30},
        {"stall", API_FAULT_STALL, true, 30},
        {"cut", API_FAULT_CUT, false, 0},
        {"cut_late", API_FAULT_CUT, true, 0},
        {"garbage", API_FAULT_GARBAGE, false, 0},
        {"rate_limit", API_FAULT_RATE_LIMIT, false, 0},
        {"flap", API_FAULT_HTTP_5XX, false, 0},
        {"auth", API_FAULT_AUTH, false, 0},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct rehearsal_plan stop = {.seconds = 0};
        struct err e;
        memset(&heard, 0, sizeof heard);
        leg = (struct leg){.submits = 0};
        start(rows[i].name);
        submit();
        for (uint32_t k = 0; rows[i].is_late && k < REHEARSAL_PIECES; k++)
            leg_say(API_EVENT_CONTENT);
        int64_t ms = wait_for_error();
        assert_int_equal(heard.e.fault, rows[i].fault);
        assert_int_equal(leg.submits, rows[i].is_late);
        assert_int_equal(leg.cancels, rows[i].is_late);
        assert_int_equal(heard.batches, rows[i].is_late ? REHEARSAL_PIECES + 1 : 1);
        assert_true(ms + 2 >= rows[i].wait_ms);
        assert_int_equal(rehearsal_fails_over(r), strcmp(rows[i].name, "auth") != 0);
        assert_true(rehearsal_start(r, &stop, 1, &e));
    }
}

static void test_a_reply_shorter_than_the_fault_ends_as_it_is(void **state)
{
    (void)state;
    start("stall");
    submit();
    leg_say(API_EVENT_CONTENT);
    leg_say(API_EVENT_DONE);
    for (int i = 0; i < 10; i++)
        loop_step(loop, 10);
    assert_int_equal(heard.batches, 2);
    assert_int_equal(heard.errors + leg.cancels, 0);
}

static void test_after_cancel_nothing_follows(void **state)
{
    (void)state;
    start("stall");
    struct api_provider p = submit();
    leg_say(API_EVENT_CONTENT);
    p.cancel(p.self, 7);
    p.cancel(p.self, 7);
    assert_int_equal(leg.cancels, 1);
    p = submit();
    for (uint32_t k = 0; k < REHEARSAL_PIECES; k++)
        leg_say(API_EVENT_CONTENT);
    p.cancel(p.self, 7);
    for (int i = 0; i < 10; i++)
        loop_step(loop, 10);
    assert_int_equal(heard.errors, 0);
    assert_int_equal(leg.cancels, 2);
}

static void test_a_second_plan_waits_for_the_requests_of_the_first(void **state)
{
    struct rehearsal_plan stop = {.seconds = 0};
    struct err e;
    (void)state;
    start("cut");
    rehearsal_hit(r);
    assert_true(rehearsal_start(r, &stop, 1, &e));
    assert_false(rehearsal_start(r, &plan, 1, &e));
    assert_int_equal(e.code, ERR_REQUEST);
    rehearsal_over(r, REHEARSAL_END_OVER, STR("b"));
    assert_true(rehearsal_start(r, &plan, 1, &e));
}

static void test_the_report_counts_ends_legs_and_delays(void **state)
{
    struct buf out;
    (void)state;
    start("cut");
    buf_init(&out, 4096);
    for (int i = 1; i <= 100; i++) {
        rehearsal_hit(r);
        rehearsal_delay(r, 101 - i);
        rehearsal_over(r, i <= 98 ? REHEARSAL_END_OVER : REHEARSAL_END_LOST, STR("b"));
    }
    rehearsal_report(r, &out);
    static const char *const wants[] = {
        "\"hit\":100,\"running\":0,\"failed_over\":98,\"failed\":0,\"failed_with_other\":2",
        "\"added_ms\":{\"p50\":50,\"p95\":95,\"max\":100},\"legs\":{\"b\":98}"};
    for (size_t i = 0; i < countof(wants); i++)
        assert_non_null(strstr(out.p, wants[i]));
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_only_the_leg_and_the_agents_of_the_plan_are_struck, begin, end),
        cmocka_unit_test_setup_teardown(test_every_fault_is_told_in_its_class_and_time, begin, end),
        cmocka_unit_test_setup_teardown(test_a_short_reply_of_two_choices_passes_whole, begin, end),
        cmocka_unit_test_setup_teardown(test_a_call_lasts_until_its_last_choice_ends, begin, end),
        cmocka_unit_test_setup_teardown(test_a_reply_shorter_than_the_fault_ends_as_it_is, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_after_cancel_nothing_follows, begin, end),
        cmocka_unit_test_setup_teardown(
            test_a_second_plan_waits_for_the_requests_of_the_first, begin, end),
        cmocka_unit_test_setup_teardown(test_the_report_counts_ends_legs_and_delays, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
