#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/pulls.h"

/* Nobody listens there, so a download fails as soon as it has tried. */
static const str endpoint = STR_INIT("http://127.0.0.1:9");
static const str allow[] = {STR_INIT("o/*"), STR_INIT("https://other.test/p/*")};

struct listener {
    struct pulls_client client;
    int ends, others;
    struct api_error error;
};

static struct loop *loop;
static struct pulls *pulls;
static struct limits *limits;
static struct pulls_options options;
static int changes;
static char dir[64];

static void on_change(void *ctx)
{
    (void)ctx;
    changes++;
}

static void on_news(void *ctx, const struct pulls_news *n)
{
    struct listener *l = ctx;
    bool is_end = n->kind == PULLS_DONE || n->kind == PULLS_FAILED;
    assert_int_equal(l->ends, 0); /* the end is the last news */
    l->ends += is_end;
    l->others += !is_end;
    if (n->kind == PULLS_FAILED)
        l->error = *n->error;
}

static struct listener listener(void)
{
    return (struct listener){.client = {.on_news = on_news}};
}

static bool start(struct listener *l, const char *reference, struct api_error *e)
{
    l->client.ctx = l;
    list_init(&l->client.link);
    return pulls_start(pulls, &options, limits, str_of(reference), &l->client, e);
}

static void wait_for(const struct listener *l)
{
    for (int i = 0; i < 1000 && !l->ends; i++)
        loop_step(loop, 10);
    assert_int_equal(l->ends, 1);
}

static int begin(void **state)
{
    struct err e;
    const struct limits_options access = {0};
    (void)state;
    changes = 0;
    snprintf(dir, sizeof dir, "/tmp/pulls_test.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    options = (struct pulls_options){
        .is_on = true, .allow = allow, .allow_count = countof(allow),
        .library = {.own = str_of(dir), .own_only = true, .home = str_of(dir),
                    .ollama = STR("off"), .hf = STR("off"), .lmstudio = STR("off"), .tag = "t"},
        .pull = {.store = str_of(dir), .connections = 2, .piece_size = 65536,
                 .net = {.endpoints = &endpoint, .endpoints_count = 1, .retry_ms = 20,
                         .idle_ms = 1000}}};
    return loop_open(&loop, &e) && limits_open(&limits, &access, &e) &&
                   pulls_open(&pulls, loop, on_change, NULL, &e) ? 0 : -1;
}

static int end(void **state)
{
    char command[128];
    (void)state;
    pulls_close(pulls);
    limits_close(limits);
    loop_close(loop);
    snprintf(command, sizeof command, "%s/.checked", dir);
    unlink(command);
    return rmdir(dir);
}

static void test_what_may_not_be_pulled_is_refused_at_once(void **state)
{
    static const struct {
        const char *reference;
        enum err_code code;
        const char *detail;
    } rows[] = {
        {"x/r", ERR_AUTH, "forbidden"}, {"o", ERR_REQUEST, ""}, {"o/../r", ERR_REQUEST, ""},
        {"https://evil.test/o/r/resolve/main/m.gguf", ERR_AUTH, "forbidden"},
        {"https://other.test/o/r/resolve/main/m.gguf", ERR_AUTH, "forbidden"},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct listener l = listener();
        struct api_error e = {0};
        print_message("%s\n", rows[i].reference);
        assert_false(start(&l, rows[i].reference, &e));
        assert_int_equal(e.err.code, rows[i].code);
        assert_true(str_eq_z(e.code, rows[i].detail));
        loop_step(loop, 0);
        assert_int_equal(l.ends + l.others, 0);
    }
}

static void test_off_refuses_both_by_the_name_of_the_key(void **state)
{
    struct listener l = listener();
    struct api_error e = {0};
    const struct pulls_deletion_query q = {.name = STR("m")};
    (void)state;
    options.is_on = false;
    assert_false(start(&l, "o/r", &e));
    assert_int_equal(e.err.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.err.text, "hub.http_pull"));
    e = (struct api_error){0};
    assert_false(pulls_delete(pulls, &options, limits, &q, &l.client, &e));
    assert_int_equal(e.err.code, ERR_UNSUPPORTED);
}

static void test_clients_of_one_reference_share_its_end(void **state)
{
    struct listener ls[PULLS_MAX + 2];
    struct api_error e = {0};
    (void)state;
    for (size_t i = 0; i < countof(ls); i++) { /* more than downloads may be: it is one */
        ls[i] = listener();
        assert_true(start(&ls[i], "o/r", &e));
    }
    for (size_t i = 0; i < countof(ls); i++) {
        wait_for(&ls[i]);
        assert_int_equal(ls[i].error.err.code, ERR_CONNECT);
    }
    assert_int_equal(changes, 0);
}

static void test_more_downloads_than_may_run_are_refused(void **state)
{
    struct listener ls[PULLS_MAX + 1];
    struct api_error e = {0};
    char reference[16];
    (void)state;
    for (size_t i = 0; i < countof(ls); i++) {
        snprintf(reference, sizeof reference, "o/r%zu", i);
        ls[i] = listener();
        assert_int_equal(start(&ls[i], reference, &e), i < PULLS_MAX);
    }
    assert_int_equal(e.err.code, ERR_OVERLOADED);
    for (size_t i = 0; i < PULLS_MAX; i++)
        wait_for(&ls[i]);
    ls[0] = listener(); /* those that are over take no place */
    assert_true(start(&ls[0], "o/r", &e));
    pulls_leave(pulls, &ls[0].client);
}

static void test_who_has_left_hears_nothing_and_the_others_do(void **state)
{
    struct listener first = listener(), second = listener();
    struct api_error e = {0};
    (void)state;
    assert_true(start(&first, "o/r", &e) && start(&second, "o/r", &e));
    pulls_leave(pulls, &first.client);
    wait_for(&second);
    assert_int_equal(second.error.err.code, ERR_CONNECT); /* not stopped */
    assert_int_equal(first.ends + first.others, 0);
}

static void test_stopping_ends_downloads_by_name_and_takes_none(void **state)
{
    struct listener l = listener(), late = listener();
    struct api_error e = {0};
    (void)state;
    options.pull.net.retry_ms = 5000;
    assert_true(start(&l, "o/r", &e));
    pulls_stop(pulls);
    wait_for(&l);
    assert_int_equal(l.error.err.code, ERR_OVERLOADED);
    assert_non_null(strstr(l.error.err.text, "stopping"));
    assert_false(start(&late, "o/r", &e));
    assert_int_equal(e.err.code, ERR_OVERLOADED);
}

static void put(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs("GGUF", f);
    fclose(f);
}

static bool is_there(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static struct listener delete(const char *name, const char *loaded)
{
    struct listener l = listener();
    struct api_error e = {0};
    const str in_memory = str_of(loaded);
    const struct pulls_deletion_query q = {str_of(name), &in_memory, 1};
    l.client.ctx = &l;
    list_init(&l.client.link);
    assert_true(pulls_delete(pulls, &options, limits, &q, &l.client, &e));
    wait_for(&l);
    return l;
}

static void test_a_model_is_deleted_by_its_whole_name_unless_it_is_loaded(void **state)
{
    (void)state;
    put("small.gguf");
    put("smaller.gguf");
    assert_int_equal(delete("smal", "").error.err.code, ERR_NOT_FOUND);
    assert_true(str_eq_z(delete("small", "SMALL").error.code, "conflict"));
    assert_true(is_there("small.gguf") && changes == 0);
    assert_int_equal(delete("small", "smaller").error.err.code, ERR_NONE);
    assert_true(!is_there("small.gguf") && is_there("smaller.gguf") && changes == 1);
    assert_int_equal(delete("smaller.gguf", "").error.err.code, ERR_NONE);
    assert_int_equal(delete("smaller", "").error.err.code, ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST(test_what_may_not_be_pulled_is_refused_at_once),
        TEST(test_off_refuses_both_by_the_name_of_the_key),
        TEST(test_clients_of_one_reference_share_its_end),
        TEST(test_more_downloads_than_may_run_are_refused),
        TEST(test_who_has_left_hears_nothing_and_the_others_do),
        TEST(test_stopping_ends_downloads_by_name_and_takes_none),
        TEST(test_a_model_is_deleted_by_its_whole_name_unless_it_is_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
