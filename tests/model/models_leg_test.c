/* Several models behind one provider, with real engine children: this program is its own child
 * ("engine"). Who gets which model, when children come and go, that their memory is back. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/proc.h"
#include "engine/engine_host.h"
#include "serve/models_leg.h"

#define BUILD_ID "test build"
#define REPLY 24u
#define CLIENTS 12u
#define LIMIT_MS 30000 /* far above what a busy machine needs; a test that hangs ends here */

struct client {
    struct api_request rq;
    struct api_input input;
    struct api_model row; /* of a MODELS event: name only valid in names */
    char names[512], text[4096];
    int32_t ids[REPLY];
    uint32_t ids_count, rows, place; /* place: how many had ended before */
    bool is_done, has_started;
    struct api_error why;
    char code[32];
};

static char store[] = "/tmp/shoal-models-leg-XXXXXX";
static struct loop *loop;
static struct models_leg *leg;
static struct api_provider provider;
static struct client clients[CLIENTS];
static uint32_t ended;
static uint64_t next_id = 1;
static struct library_options library;
static struct api_load load = {.threads = 1, .slots = 2, .context = 256};
static const char *const child_argv[] = {"shoal", "engine", NULL};

/* --- clients ------------------------------------------------------------------------------- */

static void on_models(struct client *c, const struct api_models *m)
{
    c->rows = m->rows_count;
    for (uint32_t i = 0; i < m->rows_count; i++) {
        size_t len = strlen(c->names);
        snprintf(c->names + len, sizeof c->names - len, "%.*s:%.*s:%u ", STR_ARG(m->rows[i].name),
                 STR_ARG(m->rows[i].family), (unsigned)m->rows[i].state);
        c->row = m->rows[i];
    }
}

static void on_batch(void *ctx, const struct api_batch *b)
{
    struct client *c = ctx;
    assert_false(c->is_done);
    for (uint32_t i = 0; i < b->ids_count && c->ids_count < REPLY; i++)
        c->ids[c->ids_count++] = b->ids[i];
    for (uint32_t i = 0; i < b->events_count; i++) {
        const struct api_event *ev = &b->events[i];
        c->has_started = c->has_started || ev->kind == API_EVENT_STARTED;
        if (ev->kind == API_EVENT_MODELS)
            on_models(c, &ev->models);
        if (ev->kind == API_EVENT_ERROR) {
            c->why = ev->error;
            snprintf(c->code, sizeof c->code, "%.*s", STR_ARG(ev->error.code));
        }
        if (ev->kind == API_EVENT_DONE || ev->kind == API_EVENT_ERROR) {
            c->is_done = true;
            c->place = ended++;
        }
    }
    provider.credit(provider.self, b->request_id, (uint32_t)api_batch_weight(b));
}

static struct client *make(uint32_t i, enum api_kind kind, const char *model)
{
    static const int32_t prompt[] = {5, 9, 2, 7, 7, 1, 40, 33, 21, 60, 4, 8};
    struct client *c = &clients[i];
    memset(c, 0, sizeof *c);
    c->input = (struct api_input){.ids = prompt, .ids_count = countof(prompt)};
    api_request_init(&c->rq);
    c->rq.id = next_id++;
    c->rq.kind = kind;
    c->rq.model = str_of(model);
    c->rq.inputs = &c->input;
    c->rq.inputs_count = kind == API_KIND_COMPLETE ? 1 : 0;
    c->rq.tokens_max = REPLY;
    c->rq.ignore_eos = true;
    c->rq.temperature = 0;
    return c;
}

static void submit(struct client *c)
{
    struct api_error e = {0};
    if (!provider.submit(provider.self, &c->rq, (struct api_sink){on_batch, c}, &e))
        fail_msg("%s", e.err.text);
}

static struct client *ask(uint32_t i, enum api_kind kind, const char *model)
{
    struct client *c = make(i, kind, model);
    submit(c);
    return c;
}

static void turn_until(const bool *flag)
{
    int64_t end_ms = loop_ms() + LIMIT_MS;
    while (!*flag) {
        if (loop_ms() > end_ms)
            fail_msg("nothing ended this wait");
        loop_step(loop, 50);
    }
}

static void finish(struct client *c)
{
    turn_until(&c->is_done);
    if (c->why.err.code != ERR_NONE)
        fail_msg("%s", c->why.err.text);
}

static void turn_for(int64_t ms)
{
    for (int64_t end_ms = loop_ms() + ms; loop_ms() < end_ms;)
        loop_step(loop, 10);
}

/* --- the leg ------------------------------------------------------------------------------- */

static struct models_leg_options options(void)
{
    library = (struct library_options){.own = str_of(store), .own_only = true};
    return (struct models_leg_options){
        .build_id = STR(BUILD_ID), .argv = child_argv, .library = &library, .load = load,
        .resident_max = 1, .waiting_max = 8, .keep_alive_ms = -1, .min_residency_ms = 0,
        .swap_wait_ms = 60000, .engine_stall_ms = 20000, .load_stall_ms = 20000,
        .memory_bytes = (uint64_t)1 << 30};
}

static void open_leg(struct models_leg_options o)
{
    struct err e;
    if (!loop_open(&loop, &e))
        fail_msg("%s", e.text);
    o.loop = loop;
    if (!models_leg_open(&leg, &o, &e))
        fail_msg("%s", e.text);
    provider = models_leg_provider(leg);
    ended = 0;
}

static void close_leg(void)
{
    models_leg_close(leg, 2000);
    loop_close(loop);
}

static struct models_leg_resident resident(const char *name)
{
    struct models_leg_resident rows[8];
    size_t count = models_leg_residents(leg, rows, countof(rows));
    for (size_t i = 0; i < count; i++)
        if (str_eq_z(rows[i].name, name))
            return rows[i];
    return (struct models_leg_resident){0};
}

static int pid_of(const char *name) { return resident(name).pid; }

static size_t residents(void)
{
    struct models_leg_resident rows[8];
    return models_leg_residents(leg, rows, countof(rows));
}

static void expect_gone(int pid)
{
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
}

static uint64_t resident_bytes(int pid)
{
    char path[64];
    unsigned long long size = 0, rss = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    assert_int_equal(fscanf(f, "%llu %llu", &size, &rss), 2);
    fclose(f);
    return rss * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* --- names --------------------------------------------------------------------------------- */

static void test_an_unknown_model_is_named_with_its_neighbours(void **state)
{
    (void)state;
    open_leg(options());
    struct client *c = ask(0, API_KIND_COMPLETE, "lama");
    turn_until(&c->is_done);
    assert_int_equal(c->why.err.code, ERR_NOT_FOUND);
    assert_string_equal(c->code, "model_not_found");
    assert_non_null(strstr(c->why.err.text, "near: llama"));
    assert_int_equal(residents(), 0);
    close_leg();
}

static void test_a_model_that_comes_into_the_store_is_found(void **state)
{
    (void)state;
    char path[128], target[512];
    open_leg(options());
    finish(ask(0, API_KIND_LIST, ""));
    snprintf(path, sizeof path, "%s/newcomer.gguf", store);
    assert_non_null(realpath("build/tiny/qwen2-mixed.gguf", target));
    assert_int_equal(symlink(target, path), 0);
    turn_for(1100); /* a picture is fresh for a second */
    struct client *c = ask(1, API_KIND_COMPLETE, "newcomer");
    finish(c);
    assert_int_equal(c->ids_count, REPLY);
    assert_int_equal(unlink(path), 0);
    close_leg();
}

static void test_the_list_says_what_each_file_is_and_leaves_out_what_cannot_be_used(void **state)
{
    (void)state;
    open_leg(options());
    struct client *c = ask(0, API_KIND_LIST, "");
    finish(c);
    assert_non_null(strstr(c->names, "llama:llama:0 "));
    assert_non_null(strstr(c->names, "qwen2:qwen2:0 "));
    assert_null(strstr(c->names, "garbage"));
    assert_int_equal(c->rows, 3);
    struct client *show = ask(1, API_KIND_SHOW, "QWEN2.gguf");
    finish(show);
    assert_int_equal(show->rows, 1);
    assert_non_null(strstr(show->names, "qwen2:qwen2:0"));
    show = ask(1, API_KIND_SHOW, "garbage");
    turn_until(&show->is_done);
    assert_int_equal(show->why.err.code, ERR_INTERNAL);
    assert_int_equal(residents(), 0);
    close_leg();
}

/* --- loads --------------------------------------------------------------------------------- */

static void test_concurrent_cold_requests_share_one_load(void **state)
{
    (void)state;
    open_leg(options());
    for (uint32_t i = 0; i < 5; i++)
        ask(i, i == 4 ? API_KIND_LOAD : API_KIND_COMPLETE, i % 2 ? "llama" : "LLAMA.gguf");
    while (!pid_of("llama"))
        loop_step(loop, 10);
    int pid = pid_of("llama");
    for (uint32_t i = 0; i < 5; i++)
        finish(&clients[i]);
    assert_int_equal(residents(), 1);
    assert_int_equal(pid_of("llama"), pid);
    for (uint32_t i = 1; i < 4; i++)
        assert_memory_equal(clients[0].ids, clients[i].ids, sizeof clients[0].ids);
    assert_int_equal(clients[4].rows, 1);
    assert_int_equal(clients[4].row.state, API_MODEL_LOADED);
    close_leg();
}

static void test_a_file_that_cannot_be_loaded_fails_all_that_wait_and_fast_then(void **state)
{
    (void)state;
    open_leg(options());
    ask(0, API_KIND_COMPLETE, "garbage");
    ask(1, API_KIND_LOAD, "garbage");
    for (uint32_t i = 0; i < 2; i++) {
        turn_until(&clients[i].is_done);
        assert_int_equal(clients[i].why.err.code, ERR_INTERNAL);
        assert_string_equal(clients[i].code, "load_failed");
        assert_non_null(strstr(clients[i].why.err.text, "garbage"));
    }
    int64_t least_ms = INT64_MAX;
    for (uint32_t i = 0; i < 5; i++) { /* the least of five: other work may delay one of them */
        int64_t begin_ms = loop_ms();
        ask(2, API_KIND_COMPLETE, "garbage");
        turn_until(&clients[2].is_done);
        assert_string_equal(clients[2].code, "load_failed");
        int64_t took_ms = loop_ms() - begin_ms;
        least_ms = took_ms < least_ms ? took_ms : least_ms;
    }
    assert_true(least_ms < 50); /* no child was started */
    finish(ask(3, API_KIND_COMPLETE, "llama"));
    close_leg();
}

static void test_a_full_queue_refuses_at_once(void **state)
{
    (void)state;
    struct models_leg_options o = options();
    struct api_error e = {0};
    o.waiting_max = 2;
    open_leg(o);
    finish(ask(0, API_KIND_LIST, ""));
    ask(0, API_KIND_COMPLETE, "llama");
    ask(1, API_KIND_COMPLETE, "llama");
    struct client *c = make(2, API_KIND_COMPLETE, "llama");
    assert_false(provider.submit(provider.self, &c->rq, (struct api_sink){on_batch, c}, &e));
    assert_int_equal(e.err.code, ERR_OVERLOADED);
    finish(&clients[0]);
    finish(&clients[1]);
    close_leg();
}

static void test_nothing_follows_a_cancel_while_the_model_loads(void **state)
{
    (void)state;
    open_leg(options());
    ask(0, API_KIND_COMPLETE, "llama");
    ask(1, API_KIND_COMPLETE, "llama");
    while (!pid_of("llama"))
        loop_step(loop, 10);
    provider.cancel(provider.self, clients[0].rq.id);
    provider.cancel(provider.self, clients[0].rq.id);
    finish(&clients[1]);
    assert_false(clients[0].is_done);
    assert_int_equal(clients[0].ids_count, 0);
    close_leg();
}

static void test_a_preloaded_model_is_there_without_a_request(void **state)
{
    (void)state;
    open_leg(options());
    models_leg_preload(leg, STR("qwen2"));
    models_leg_preload(leg, STR("no such model"));
    while (resident("qwen2").health.state != API_HEALTH_READY || !pid_of("qwen2"))
        loop_step(loop, 10);
    struct client *c = ask(0, API_KIND_PS, "");
    finish(c);
    assert_non_null(strstr(c->names, "qwen2:qwen2:2 "));
    assert_int_equal(c->row.expires_s, -1);
    close_leg();
}

/* --- memory back --------------------------------------------------------------------------- */

static void test_unload_is_answered_when_the_child_and_its_memory_are_gone(void **state)
{
    (void)state;
    open_leg(options());
    finish(ask(0, API_KIND_LOAD, "llama"));
    int pid = pid_of("llama");
    assert_true(resident_bytes(pid) > clients[0].row.bytes); /* weights are in memory */
    struct client *slow = ask(1, API_KIND_COMPLETE, "llama");
    turn_until(&slow->has_started);
    struct client *c = ask(2, API_KIND_UNLOAD, "llama");
    finish(c);
    assert_true(slow->is_done); /* the reply that ran was finished first */
    assert_int_equal(slow->ids_count, REPLY);
    expect_gone(pid);
    assert_int_equal(resident_bytes(pid), 0);
    assert_int_equal(c->row.state, API_MODEL_IDLE);
    assert_int_equal(residents(), 0);
    finish(ask(3, API_KIND_UNLOAD, "llama")); /* of a model that is not loaded */
    close_leg();
}

static void test_an_idle_model_is_unloaded_after_its_keep_alive(void **state)
{
    (void)state;
    struct models_leg_options o = options();
    o.keep_alive_ms = 400;
    open_leg(o);
    finish(ask(0, API_KIND_COMPLETE, "llama"));
    int pid = pid_of("llama");
    assert_true(resident("llama").idle_left_ms > 0);
    int64_t begin_ms = loop_ms();
    while (residents() && loop_ms() - begin_ms < LIMIT_MS)
        loop_step(loop, 50);
    assert_true(loop_ms() - begin_ms >= 350);
    expect_gone(pid);
    struct client *c = make(1, API_KIND_COMPLETE, "llama");
    c->rq.given |= API_GIVEN(KEEP_ALIVE); /* at once */
    c->rq.keep_alive_ms = 0;
    submit(c);
    finish(c);
    assert_memory_equal(clients[0].ids, c->ids, sizeof c->ids);
    turn_for(100);
    while (residents() && loop_ms() - begin_ms < LIMIT_MS)
        loop_step(loop, 50);
    assert_int_equal(residents(), 0);
    close_leg();
}

static void test_a_request_at_the_moment_of_expiry_is_served(void **state)
{
    (void)state;
    struct models_leg_options o = options();
    o.keep_alive_ms = 0;
    open_leg(o);
    for (uint32_t i = 0; i < 6; i++) { /* each comes while the last one's child is leaving */
        finish(ask(0, API_KIND_COMPLETE, "llama"));
        for (uint32_t k = 0; k < i; k++)
            loop_step(loop, 1);
    }
    close_leg();
}

/* --- swaps --------------------------------------------------------------------------------- */

static void test_arrivals_of_three_models_are_grouped_into_two_swaps(void **state)
{
    (void)state;
    static const char order[] = "ABAACABC";
    static const char *const names[] = {"llama", "qwen2", "qwen3"};
    open_leg(options());
    finish(ask(0, API_KIND_LIST, ""));
    ended = 0;
    for (uint32_t i = 0; i < 8; i++)
        ask(i, API_KIND_COMPLETE, names[order[i] - 'A']);
    for (uint32_t i = 0; i < 8; i++)
        finish(&clients[i]);
    assert_int_equal(models_leg_swaps(leg), 2);
    assert_int_equal(residents(), 1);
    for (uint32_t i = 0; i < 8; i++)
        for (uint32_t k = 0; k < 8; k++)
            if (order[i] < order[k]) /* A, then B, then C */
                assert_true(clients[i].place < clients[k].place);
    close_leg();
}

static void test_a_swap_leaves_the_running_reply_alone_and_takes_the_rest_back(void **state)
{
    (void)state;
    struct models_leg_options o = options();
    o.swap_wait_ms = 0; /* the other model's first request drains at once */
    load.slots = 1;
    open_leg(o);
    finish(ask(0, API_KIND_COMPLETE, "llama"));
    for (uint32_t i = 1; i < 4; i++)
        ask(i, API_KIND_COMPLETE, "llama");
    turn_until(&clients[1].has_started);
    provider.hold(provider.self, clients[1].rq.id, true); /* it runs on while the others queue */
    ask(4, API_KIND_COMPLETE, "qwen2");
    while (!resident("llama").is_draining)
        loop_step(loop, 10);
    turn_for(100);
    provider.hold(provider.self, clients[1].rq.id, false);
    for (uint32_t i = 1; i < 5; i++)
        finish(&clients[i]);
    load.slots = 2;
    assert_true(clients[1].place < clients[4].place);
    assert_true(clients[4].place < clients[3].place);
    for (uint32_t i = 1; i < 4; i++)
        assert_memory_equal(clients[0].ids, clients[i].ids, sizeof clients[0].ids);
    assert_true(models_leg_swaps(leg) >= 2);
    close_leg();
}

static void test_two_residents_serve_beside_each_other_and_one_may_die(void **state)
{
    (void)state;
    struct models_leg_options o = options();
    o.resident_max = 2;
    open_leg(o);
    finish(ask(0, API_KIND_COMPLETE, "llama"));
    finish(ask(1, API_KIND_COMPLETE, "qwen2"));
    struct models_leg_resident a = resident("llama"), b = resident("qwen2");
    assert_true(a.pid && b.pid && a.pid != b.pid);
    assert_true(a.budget_bytes && b.budget_bytes);
    assert_true(a.budget_bytes + b.budget_bytes <= o.memory_bytes);
    ask(2, API_KIND_COMPLETE, "llama");
    ask(3, API_KIND_COMPLETE, "qwen2");
    turn_until(&clients[2].has_started);
    assert_int_equal(kill(a.pid, SIGKILL), 0);
    finish(&clients[2]);
    finish(&clients[3]);
    assert_memory_equal(clients[0].ids, clients[2].ids, sizeof clients[0].ids);
    assert_memory_equal(clients[1].ids, clients[3].ids, sizeof clients[0].ids);
    assert_int_equal(resident("qwen2").pid, b.pid);
    close_leg();
}

static void test_a_pinned_model_is_not_swapped_out(void **state)
{
    (void)state;
    static const struct models_leg_setting pin = {.name = STR_INIT("llama"), .is_pinned = true};
    struct models_leg_options o = options();
    o.settings = &pin;
    o.settings_count = 1;
    open_leg(o);
    finish(ask(0, API_KIND_COMPLETE, "llama"));
    struct client *c = ask(1, API_KIND_COMPLETE, "qwen2");
    turn_until(&c->is_done);
    assert_int_equal(c->why.err.code, ERR_MEMORY);
    assert_non_null(strstr(c->why.err.text, "pinned"));
    assert_true(pid_of("llama"));
    close_leg();
}

static void test_a_model_too_large_for_the_ledger_is_refused_with_numbers(void **state)
{
    (void)state;
    struct models_leg_options o = options();
    o.memory_bytes = (uint64_t)4 << 20;
    open_leg(o);
    struct client *c = ask(0, API_KIND_COMPLETE, "llama");
    turn_until(&c->is_done);
    assert_string_equal(c->code, "load_failed");
    assert_non_null(strstr(c->why.err.text, "7.0 MB"));
    assert_non_null(strstr(c->why.err.text, "4.0 MB"));
    close_leg();
}

/* --- the program --------------------------------------------------------------------------- */

static void link_model(const char *name)
{
    char path[128], from[128], target[512];
    snprintf(from, sizeof from, "build/tiny/%s.gguf", name);
    snprintf(path, sizeof path, "%s/%s.gguf", store, name);
    if (!realpath(from, target) || symlink(target, path))
        fail_msg("%s: %s", from, strerror(errno));
}

static int make_store(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "qwen2", "qwen3"};
    char path[128];
    if (!mkdtemp(store))
        return -1;
    for (size_t i = 0; i < countof(names); i++)
        link_model(names[i]);
    snprintf(path, sizeof path, "%s/garbage.gguf", store);
    FILE *f = fopen(path, "w");
    if (!f || fputs("GGUF but nothing behind it that makes sense", f) < 0)
        return -1;
    return fclose(f);
}

static int remove_store(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "qwen2", "qwen3", "garbage"};
    char path[128];
    for (size_t i = 0; i < countof(names); i++) {
        snprintf(path, sizeof path, "%s/%s.gguf", store, names[i]);
        unlink(path);
    }
    return rmdir(store);
}

static int run_child(void)
{
    struct err e;
    struct engine_host_options o = {.fd = PROC_FD, .build_id = STR(BUILD_ID), .version = STR("0"),
                                    .credit = 1 << 20};
    return engine_host_run(&o, &e);
}

int main(int argc, char **argv)
{
    log_init(&(struct log_options){.level = LOG_LEVEL_ERROR, .fd = -1, .name = "test"});
    if (argc > 1 && !strcmp(argv[1], "engine"))
        return run_child();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_unknown_model_is_named_with_its_neighbours),
        cmocka_unit_test(test_a_model_that_comes_into_the_store_is_found),
        cmocka_unit_test(test_the_list_says_what_each_file_is_and_leaves_out_what_cannot_be_used),
        cmocka_unit_test(test_concurrent_cold_requests_share_one_load),
        cmocka_unit_test(test_a_file_that_cannot_be_loaded_fails_all_that_wait_and_fast_then),
        cmocka_unit_test(test_a_full_queue_refuses_at_once),
        cmocka_unit_test(test_nothing_follows_a_cancel_while_the_model_loads),
        cmocka_unit_test(test_a_preloaded_model_is_there_without_a_request),
        cmocka_unit_test(test_unload_is_answered_when_the_child_and_its_memory_are_gone),
        cmocka_unit_test(test_an_idle_model_is_unloaded_after_its_keep_alive),
        cmocka_unit_test(test_a_request_at_the_moment_of_expiry_is_served),
        cmocka_unit_test(test_arrivals_of_three_models_are_grouped_into_two_swaps),
        cmocka_unit_test(test_a_swap_leaves_the_running_reply_alone_and_takes_the_rest_back),
        cmocka_unit_test(test_two_residents_serve_beside_each_other_and_one_may_die),
        cmocka_unit_test(test_a_pinned_model_is_not_swapped_out),
        cmocka_unit_test(test_a_model_too_large_for_the_ledger_is_refused_with_numbers),
    };
    return cmocka_run_group_tests(tests, make_store, remove_store);
}
