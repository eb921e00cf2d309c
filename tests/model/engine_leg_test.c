/* A real engine child under a real supervisor: this program is its own child ("engine"). What a
 * client reads is the same whether the child lives, dies, hangs or is killed again and again. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/proc.h"
#include "engine/engine_host.h"
#include "serve/engine_leg.h"

#define MODEL "build/tiny/llama-mixed.gguf"
#define BUILD_ID "test build"
#define CREDIT 2000
#define REPLY 60u
#define CLIENTS 3u

struct client {
    struct api_request rq;
    struct api_input input;
    int32_t prompt[80];
    int32_t ids[REPLY];
    uint32_t ids_count, batches;
    struct buf text;
    bool is_done, takes_nothing, started;
    enum api_done reason;
    struct err why;
    enum api_fault fault;
    size_t owed;
};

static struct loop *loop;
static struct engine_leg *leg;
static struct api_provider provider;
static struct client clients[CLIENTS];
static const char *const child_argv[] = {"shoal", "engine", NULL};

static void on_batch(void *ctx, const struct api_batch *b)
{
    struct client *c = ctx;
    c->batches++;
    for (uint32_t i = 0; i < b->ids_count; i++) {
        assert_true(c->ids_count < REPLY);
        c->ids[c->ids_count++] = b->ids[i];
    }
    for (uint32_t i = 0; i < b->events_count; i++) {
        const struct api_event *ev = &b->events[i];
        if (ev->kind == API_EVENT_CONTENT)
            buf_add(&c->text, ev->text.text);
        if (ev->kind == API_EVENT_STARTED) {
            assert_false(c->started);
            c->started = true;
        }
        if (ev->kind == API_EVENT_DONE || ev->kind == API_EVENT_ERROR)
            c->is_done = true;
        if (ev->kind == API_EVENT_DONE)
            c->reason = ev->done.reason;
        if (ev->kind == API_EVENT_ERROR) {
            c->why = ev->error.err;
            c->fault = ev->error.fault;
        }
    }
    c->owed += api_batch_weight(b);
    if (!c->takes_nothing && c->owed > CREDIT / 3) {
        provider.credit(provider.self, b->request_id, (uint32_t)c->owed);
        c->owed = 0;
    }
}

static void make_client(struct client *c, uint32_t id)
{
    buf_deinit(&c->text);
    memset(c, 0, sizeof *c);
    buf_init(&c->text, 1u << 20);
    for (uint32_t i = 0; i < countof(c->prompt); i++)
        c->prompt[i] = (int32_t)((i * 37 + id * 11) % 250);
    c->input = (struct api_input){.ids = c->prompt, .ids_count = 40 + 7 * id};
    api_request_init(&c->rq);
    c->rq.id = id;
    c->rq.kind = API_KIND_COMPLETE;
    c->rq.inputs = &c->input;
    c->rq.inputs_count = 1;
    c->rq.tokens_max = REPLY;
    c->rq.ignore_eos = true;
    c->rq.seed = id * 77;
    c->rq.temperature = id == 1 ? 0 : 0.9f;
    c->rq.repeat_penalty = id == 2 ? 1.3f : 1;
    c->rq.frequency_penalty = id == 3 ? 0.5f : 0;
}

static int64_t stall_ms = 20000; /* far above what a busy machine costs */

static void (*on_change)(void *ctx); /* of the leg; NULL: nobody looks */

static void tell_change(void *ctx)
{
    if (on_change)
        on_change(ctx);
}

static void open_leg(const char *path, const char *build_id)
{
    struct err e;
    struct api_load load = {.path = str_of(path), .name = STR("tiny"), .slots = 4, .threads = 1};
    struct engine_leg_options o = {.load = &load, .build_id = str_of(build_id), .argv = child_argv,
                                   .engine_stall_ms = stall_ms, .load_stall_ms = 20000,
                                   .requests_max = 8, .credit_step = CREDIT / 4,
                                   .on_change = tell_change};
    if (!loop_open(&loop, &e))
        fail_msg("%s", e.text);
    o.loop = loop;
    if (!engine_leg_open(&leg, &o, &e))
        fail_msg("%s", e.text);
    provider = engine_leg_provider(leg);
}

static void close_leg(void)
{
    engine_leg_close(leg, 2000);
    loop_close(loop);
}

static void submit(uint32_t i)
{
    struct api_error e;
    make_client(&clients[i], i + 1);
    struct api_sink sink = {on_batch, &clients[i]};
    if (!provider.submit(provider.self, &clients[i].rq, sink, &e))
        fail_msg("%s", e.err.text);
}

static bool all_done(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (!clients[i].is_done)
            return false;
    return true;
}

/* The replies of a child that nobody disturbs. */
static int32_t quiet_ids[CLIENTS][REPLY];
static char *quiet_text[CLIENTS];

static int setup_quiet(void **state)
{
    (void)state;
    open_leg(MODEL, BUILD_ID);
    for (uint32_t i = 0; i < CLIENTS; i++)
        submit(i);
    while (!all_done())
        loop_step(loop, 100);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        if (clients[i].ids_count != REPLY)
            return -1;
        memcpy(quiet_ids[i], clients[i].ids, sizeof quiet_ids[i]);
        quiet_text[i] = strdup(clients[i].text.p);
    }
    close_leg();
    return 0;
}

static int teardown_quiet(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        free(quiet_text[i]);
        buf_deinit(&clients[i].text);
    }
    return 0;
}

static void expect_quiet_replies(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        if (clients[i].why.code != ERR_NONE)
            fail_msg("client %u: %s", i, clients[i].why.text);
        assert_int_equal(clients[i].ids_count, REPLY);
        assert_memory_equal(clients[i].ids, quiet_ids[i], sizeof quiet_ids[i]);
        assert_string_equal(clients[i].text.p, quiet_text[i]);
        assert_int_equal(clients[i].reason, API_DONE_MAX_TOKENS);
    }
}

static uint32_t tokens(void)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < CLIENTS; i++)
        sum += clients[i].ids_count;
    return sum;
}

/* Turns the loop until so many tokens came, then sends the signal to the child; returns its pid. */
static int disturb_after(uint32_t count, int signal_number)
{
    while (tokens() < count || !engine_leg_pid(leg)) {
        if (all_done())
            fail_msg("over before token %u: %s", count, clients[0].why.text);
        loop_step(loop, 20);
    }
    int pid = engine_leg_pid(leg);
    assert_int_equal(kill(pid, signal_number), 0);
    return pid;
}

static void finish(void)
{
    while (!all_done())
        loop_step(loop, 100);
    close_leg();
}

static void test_a_killed_child_is_followed_by_one_that_goes_on_bit_by_bit(void **state)
{
    (void)state;
    static const uint32_t after[] = {1, 40, 150};
    for (size_t k = 0; k < countof(after); k++) {
        open_leg(MODEL, BUILD_ID);
        for (uint32_t i = 0; i < CLIENTS; i++)
            submit(i);
        disturb_after(after[k], SIGKILL);
        finish();
        expect_quiet_replies();
    }
}

static void test_a_child_killed_while_loading_costs_nothing(void **state)
{
    (void)state;
    open_leg(MODEL, BUILD_ID);
    for (uint32_t i = 0; i < CLIENTS; i++)
        submit(i);
    assert_int_equal(kill(engine_leg_pid(leg), SIGKILL), 0);
    finish();
    expect_quiet_replies();
}

static void test_a_child_that_hangs_is_killed_and_followed(void **state)
{
    (void)state;
    stall_ms = 8000;
    open_leg(MODEL, BUILD_ID);
    stall_ms = 20000;
    for (uint32_t i = 0; i < CLIENTS; i++)
        submit(i);
    disturb_after(30, SIGSTOP);
    finish();
    expect_quiet_replies();
}

/* What another leg may take over is given back at once, and says how its child was lost. */
static void test_a_request_is_handed_back_with_how_its_child_was_lost(void **state)
{
    static const struct {
        int signal;
        enum api_fault fault;
    } rows[] = {{SIGKILL, API_FAULT_ENGINE_CRASH}, {SIGSTOP, API_FAULT_ENGINE_WEDGED}};
    (void)state;
    for (size_t k = 0; k < countof(rows); k++) {
        stall_ms = 8000;
        open_leg(MODEL, BUILD_ID);
        stall_ms = 20000;
        for (uint32_t i = 0; i < CLIENTS; i++) {
            submit(i);
            clients[i].rq.hands_back = true;
        }
        disturb_after(30, rows[k].signal);
        for (uint32_t i = 0; i < CLIENTS; i++) {
            while (!clients[i].is_done)
                loop_step(loop, 20);
            assert_int_equal(clients[i].why.code, ERR_ENGINE);
            assert_int_equal(clients[i].fault, rows[k].fault);
        }
        close_leg();
    }
}

static void test_a_request_survives_two_children_not_three(void **state)
{
    (void)state;
    struct api_health h;
    open_leg(MODEL, BUILD_ID);
    for (uint32_t i = 0; i < CLIENTS; i++)
        submit(i);
    for (uint32_t k = 0; k < 3; k++) {
        int killed = disturb_after(20 * (k + 1), SIGKILL);
        while (engine_leg_pid(leg) == killed)
            loop_step(loop, 20);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        assert_true(clients[i].is_done);
        assert_int_equal(clients[i].why.code, ERR_ENGINE);
        assert_memory_equal(clients[i].ids, quiet_ids[i], clients[i].ids_count * sizeof(int32_t));
    }
    provider.health(provider.self, &h);
    assert_int_equal(h.restarts, 3);
    close_leg();
}

static void test_a_file_that_is_no_model_fails_the_leg_with_its_sentence(void **state)
{
    (void)state;
    struct api_health h;
    struct api_error refused;
    struct api_sink sink = {on_batch, &clients[1]};
    open_leg("build/tiny/none.gguf", BUILD_ID);
    submit(0);
    while (!clients[0].is_done)
        loop_step(loop, 20);
    assert_int_equal(clients[0].why.code, ERR_NOT_FOUND);
    assert_non_null(strstr(clients[0].why.text, "none.gguf"));
    provider.health(provider.self, &h);
    assert_int_equal(h.state, API_HEALTH_FAILED);
    make_client(&clients[1], 2);
    assert_false(provider.submit(provider.self, &clients[1].rq, sink, &refused));
    assert_int_equal(refused.err.code, ERR_NOT_FOUND);
    close_leg();
}

static void test_nothing_follows_a_cancel(void **state)
{
    (void)state;
    open_leg(MODEL, BUILD_ID);
    for (uint32_t i = 0; i < CLIENTS; i++)
        submit(i);
    while (tokens() < 30)
        loop_step(loop, 20);
    uint32_t batches = clients[1].batches;
    provider.cancel(provider.self, 2);
    provider.cancel(provider.self, 2);
    while (!clients[0].is_done || !clients[2].is_done)
        loop_step(loop, 20);
    assert_int_equal(clients[1].batches, batches);
    assert_memory_equal(clients[0].ids, quiet_ids[0], sizeof quiet_ids[0]);
    assert_memory_equal(clients[2].ids, quiet_ids[2], sizeof quiet_ids[2]);
    close_leg();
}

static struct loop_later leave;

static void leave_now(void *ctx)
{
    (void)ctx;
    provider.cancel(provider.self, 2);
}

/* In the turn of the loop in which the second child is given what the first one left. */
static void on_ready_again(void *ctx)
{
    struct api_health h;
    (void)ctx;
    provider.health(provider.self, &h);
    if (h.restarts && h.state == API_HEALTH_READY)
        loop_later_set(&leave);
}

static void test_a_reply_that_is_left_while_its_next_child_hears_of_it_is_not_computed(void **state)
{
    (void)state;
    struct err e;
    open_leg(MODEL, BUILD_ID);
    assert_true(loop_later_open(&leave, loop, leave_now, NULL, &e));
    on_change = on_ready_again;
    submit(1);
    clients[1].takes_nothing = true;
    while (!clients[1].started)
        loop_step(loop, 20);
    assert_int_equal(kill(engine_leg_pid(leg), SIGKILL), 0);
    submit(0);
    while (!clients[0].is_done)
        loop_step(loop, 20);
    on_change = NULL;
    assert_false(clients[1].is_done);
    while (!engine_leg_beat(leg)->progress) /* its first word of how it fares */
        loop_step(loop, 20);
    for (int64_t end = loop_ms() + 10000; engine_leg_beat(leg)->running && loop_ms() < end;)
        loop_step(loop, 20);
    assert_int_equal(engine_leg_beat(leg)->running, 0);
    assert_memory_equal(clients[0].ids, quiet_ids[0], sizeof quiet_ids[0]);
    loop_later_close(&leave);
    close_leg();
}

static void test_a_reader_that_takes_nothing_stops_only_its_own_reply(void **state)
{
    (void)state;
    stall_ms = 8000;
    open_leg(MODEL, BUILD_ID);
    stall_ms = 20000;
    for (uint32_t i = 0; i < CLIENTS; i++)
        submit(i);
    clients[1].takes_nothing = true;
    while (!clients[0].is_done || !clients[2].is_done)
        loop_step(loop, 20);
    for (int i = 0; i < 90; i++) /* longer than a stall: waiting for a reader is none */
        loop_step(loop, 100);
    assert_false(clients[1].is_done);
    assert_true(clients[1].ids_count > 10 && clients[1].ids_count < REPLY);
    clients[1].takes_nothing = false;
    provider.credit(provider.self, 2, (uint32_t)clients[1].owed);
    clients[1].owed = 0;
    finish();
    expect_quiet_replies();
}

static void test_a_held_request_pauses_and_goes_on(void **state)
{
    (void)state;
    open_leg(MODEL, BUILD_ID);
    for (uint32_t i = 0; i < CLIENTS; i++)
        submit(i);
    provider.hold(provider.self, 3, true);
    while (!clients[0].is_done || !clients[1].is_done)
        loop_step(loop, 20);
    assert_true(clients[2].ids_count < REPLY);
    provider.hold(provider.self, 3, false);
    finish();
    expect_quiet_replies();
}

static void test_another_build_is_not_taken_as_a_child(void **state)
{
    (void)state;
    struct api_health h;
    open_leg(MODEL, "another build");
    submit(0);
    provider.health(provider.self, &h);
    while (h.restarts < 1) {
        loop_step(loop, 20);
        provider.health(provider.self, &h);
    }
    assert_non_null(strstr(h.reason.p, "another build"));
    close_leg();
}

static void test_the_child_is_gone_when_the_leg_is_closed(void **state)
{
    (void)state;
    open_leg(MODEL, BUILD_ID);
    int pid = engine_leg_pid(leg);
    submit(0);
    while (clients[0].ids_count < 5)
        loop_step(loop, 20);
    close_leg();
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
}

static int run_child(void)
{
    struct err e;
    struct engine_host_options o = {.fd = PROC_FD, .build_id = STR(BUILD_ID), .version = STR("0"),
                                    .credit = CREDIT};
    return engine_host_run(&o, &e);
}

int main(int argc, char **argv)
{
    log_init(&(struct log_options){.level = LOG_LEVEL_ERROR, .fd = -1, .name = "test"});
    if (argc > 1 && !strcmp(argv[1], "engine"))
        return run_child();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_child_is_followed_by_one_that_goes_on_bit_by_bit),
        cmocka_unit_test(test_a_child_killed_while_loading_costs_nothing),
        cmocka_unit_test(test_a_child_that_hangs_is_killed_and_followed),
        cmocka_unit_test(test_a_request_is_handed_back_with_how_its_child_was_lost),
        cmocka_unit_test(test_a_request_survives_two_children_not_three),
        cmocka_unit_test(test_a_file_that_is_no_model_fails_the_leg_with_its_sentence),
        cmocka_unit_test(test_nothing_follows_a_cancel),
        cmocka_unit_test(
            test_a_reply_that_is_left_while_its_next_child_hears_of_it_is_not_computed),
        cmocka_unit_test(test_a_reader_that_takes_nothing_stops_only_its_own_reply),
        cmocka_unit_test(test_a_held_request_pauses_and_goes_on),
        cmocka_unit_test(test_another_build_is_not_taken_as_a_child),
        cmocka_unit_test(test_the_child_is_gone_when_the_leg_is_closed),
    };
    return cmocka_run_group_tests(tests, setup_quiet, teardown_quiet);
}
