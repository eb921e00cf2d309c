/* Saved contexts: who sees one, how long it lives, what stands before whose messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "serve/pins.h"

static int offs; /* how often a child would have been told */
#define pins_off(pin) (offs++, (pins_off)(pin))
#include "serve/contexts.c"

static struct contexts *open_set(void)
{
    struct contexts *s;
    struct err e;
    assert_true(contexts_open(&s, &(struct contexts_options){.loop = NULL}, &e));
    return s;
}

static struct contexts_new spec(const char *scope, const char *id, const char *content)
{
    return (struct contexts_new){.scope = str_of(scope), .id = str_of(id), .model = STR("m"),
                                 .content = str_of(content), .ttl_ms = 1000, .tokens = 40,
                                 .unix_ms = chrono_unix_ms(&chrono_real)};
}

/* Saved at now_ms with messages of one text. */
static void save(struct contexts *s, const struct contexts_new *n, int64_t now_ms)
{
    struct context *c;
    struct arena a;
    struct api_error e = {0};
    bool is_known;
    arena_init(&a, 1 << 20);
    struct api_message *m = ARENA_ARRAY(&a, struct api_message, 2);
    assert_non_null(m);
    m[0].role = API_ROLE_SYSTEM;
    m[1].role = API_ROLE_USER;
    const struct api_request rq = {.messages = m, .messages_count = 2};
    assert_true(contexts_begin(s, n, now_ms, &c, &is_known, &e));
    contexts_end(s, c, n, &rq, &a, now_ms);
    arena_deinit(&a);
}

struct forked {
    struct api_request rq;
    struct api_error e;
    struct context *context;
};

static bool fork_it(struct contexts *s, const struct contexts_new *of, int64_t now_ms,
                    struct arena *a, struct forked *out)
{
    static const struct api_message own = {.role = API_ROLE_ASSISTANT};
    *out = (struct forked){0};
    api_request_init(&out->rq);
    out->rq.scope = of->scope;
    out->rq.context = of->id;
    out->rq.body = STR("{}");
    out->rq.messages = &own;
    out->rq.messages_count = 1;
    const struct contexts_fork f = {&out->rq, of->model, a, now_ms};
    return contexts_fork(s, &f, &out->context, &out->e);
}

static void test_its_messages_come_before_the_request_s_own(void **state)
{
    (void)state;
    struct contexts *s = open_set();
    struct contexts_new n = spec("k", "a", "x");
    struct forked got;
    struct arena a;
    arena_init(&a, 1 << 16);
    save(s, &n, 0);
    n.model = STR("M");
    assert_true(fork_it(s, &n, 10, &a, &got));
    assert_int_equal(got.rq.messages_count, 3);
    assert_int_equal(got.rq.messages[0].role, API_ROLE_SYSTEM);
    assert_int_equal(got.rq.messages[1].role, API_ROLE_USER);
    assert_int_equal(got.rq.messages[2].role, API_ROLE_ASSISTANT);
    assert_int_equal(got.rq.body.len, 0);
    assert_int_equal(got.rq.context.len, 0);
    contexts_leave(s, got.context);
    arena_deinit(&a);
    contexts_close(s);
}

static void test_who_may_not_or_cannot_read_it_is_told_why(void **state)
{
    (void)state;
    static const struct {
        const char *scope, *id, *model, *code;
        int64_t now_ms;
    } rows[] = {
        {"other", "a", "m", "not_found", 10}, {"", "a", "m", "not_found", 10},
        {"k", "b", "m", "not_found", 10},     {"k", "a", "n", "conflict", 10},
        {"k", "a", "m", "not_found", 1000},
    };
    struct contexts *s = open_set();
    struct contexts_new n = spec("k", "a", "x");
    struct arena a;
    arena_init(&a, 1 << 16);
    save(s, &n, 0);
    for (size_t i = 0; i < countof(rows); i++) {
        struct forked got;
        struct contexts_new of = spec(rows[i].scope, rows[i].id, "");
        of.model = str_of(rows[i].model);
        assert_false(fork_it(s, &of, rows[i].now_ms, &a, &got));
        assert_string_equal(dialect_error(&got.e).code, rows[i].code);
    }
    arena_deinit(&a);
    contexts_close(s);
}

static void test_a_full_arena_is_an_error_and_no_reader(void **state)
{
    (void)state;
    struct contexts *s = open_set();
    struct contexts_new n = spec("k", "a", "x");
    struct forked got;
    struct arena a;
    arena_init(&a, 0);
    save(s, &n, 0);
    assert_false(fork_it(s, &n, 0, &a, &got));
    assert_int_equal(got.e.err.code, ERR_LIMIT);
    arena_deinit(&a);
    contexts_close(s); /* must: nobody reads it */
}

static void test_one_that_was_never_prefilled_is_not_there(void **state)
{
    (void)state;
    struct contexts *s = open_set();
    struct contexts_new n = spec("k", "a", "x"), other = spec("k", "a", "y");
    const struct contexts_asker who = {STR("k"), true};
    struct context *c, *again;
    struct api_error e = {0};
    bool is_known;
    struct buf out;
    buf_init(&out, 65536);
    assert_true(contexts_begin(s, &n, 0, &c, &is_known, &e));
    assert_false(contexts_write_one(s, &who, STR("a"), 0, &out));
    assert_true(contexts_begin(s, &n, 0, &again, &is_known, &e)); /* two at once */
    assert_ptr_equal(c, again);
    assert_false(is_known);
    assert_false(contexts_begin(s, &other, 0, &again, &is_known, &e));
    assert_string_equal(dialect_error(&e).code, "conflict");
    contexts_drop(s, c);
    contexts_drop(s, c);
    assert_true(contexts_begin(s, &other, 0, &c, &is_known, &e)); /* the name is free again */
    contexts_drop(s, c);
    buf_deinit(&out);
    contexts_close(s);
}

static void test_a_deleted_one_lives_until_its_last_reader_leaves(void **state)
{
    (void)state;
    struct contexts *s = open_set();
    struct contexts_new n = spec("k", "a", "x");
    const struct contexts_asker stranger = {STR("o"), false}, owner = {STR("k"), false};
    struct forked got;
    struct arena a;
    arena_init(&a, 1 << 16);
    save(s, &n, 0);
    assert_true(fork_it(s, &n, 0, &a, &got));
    assert_false(contexts_delete(s, &stranger, STR("a"), 0));
    assert_true(contexts_delete(s, &owner, STR("a"), 0));
    assert_false(contexts_delete(s, &owner, STR("a"), 0));
    assert_int_equal(got.rq.messages[1].role, API_ROLE_USER); /* still there, says the sanitizer */
    save(s, &n, 0); /* the name is free */
    contexts_leave(s, got.context);
    assert_true(contexts_delete(s, &owner, STR("a"), 0));
    arena_deinit(&a);
    contexts_close(s);
}

static void test_one_deleted_while_it_is_saved_again_is_there_afterwards(void **state)
{
    (void)state;
    struct contexts *s = open_set();
    struct contexts_new n = spec("k", "a", "x");
    const struct contexts_asker owner = {STR("k"), false};
    struct api_error e = {0};
    struct api_request rq = {.id = 7};
    struct context *c;
    struct arena a;
    bool is_known;
    arena_init(&a, 1 << 16);
    save(s, &n, 0);
    assert_true(contexts_begin(s, &n, 0, &c, &is_known, &e));
    assert_true(is_known);
    assert_true(contexts_delete(s, &owner, STR("a"), 0));
    contexts_end(s, c, &n, &(struct api_request){.messages = NULL}, &a, 0);
    assert_true(contexts_recall(s, &owner, STR("a"), 0, &rq, &c));
    n.ttl_ms = 5000;
    contexts_end(s, c, &n, &rq, &a, 0);
    assert_true(contexts_delete(s, &owner, STR("a"), 4999));
    arena_deinit(&a);
    contexts_close(s);
}

/* As many as one key may have, the i-th with i in its scope or its id; one more is refused. */
static void fill(struct contexts *s, const char *scopes, const char *ids,
                 const struct contexts_new *more)
{
    struct context *c;
    struct api_error e = {0};
    bool is_known;
    for (uint32_t i = 0; i < CONTEXTS_SCOPE_MAX; i++) {
        char scope[16], id[16];
        snprintf(scope, sizeof scope, scopes, i);
        snprintf(id, sizeof id, ids, i);
        struct contexts_new n = spec(scope, id, "x");
        save(s, &n, 0);
    }
    assert_false(contexts_begin(s, more, 0, &c, &is_known, &e));
    assert_int_equal(dialect_error(&e).status, 507);
}

static void test_a_scope_that_is_full_leaves_room_for_others(void **state)
{
    (void)state;
    struct contexts *s = open_set();
    struct context *c;
    struct api_error e = {0};
    bool is_known;
    struct contexts_new more = spec("k", "more", "x"), other = spec("o", "more", "x");
    fill(s, "k", "c%u", &more);
    assert_true(contexts_begin(s, &other, 0, &c, &is_known, &e));
    contexts_drop(s, c);
    assert_true(contexts_begin(s, &more, 1000, &c, &is_known, &e)); /* the others expired */
    contexts_drop(s, c);
    contexts_close(s);
}

/* The answer of GET /v1/contexts to a key. */
static const char *listed(struct contexts *s, const char *scope)
{
    static struct buf out;
    const struct contexts_asker who = {str_of(scope), false};
    buf_deinit(&out);
    buf_init(&out, 1 << 20);
    contexts_write(s, &who, 0, &out);
    return buf_add(&out, str_view("", 1)) ? out.p : "";
}

static void test_a_key_lists_and_deletes_what_a_salt_narrowed_and_reads_it_with_it(void **state)
{
    (void)state;
    struct contexts *s = open_set();
    const struct contexts_asker key = {STR("k"), false}, near = {STR("kk"), false};
    struct contexts_new plain = spec("k", "a", "x"), salted = spec("k s", "b", "x");
    struct contexts_new keyless = spec(" keyless s", "c", "x"), same = spec("k s", "a", "x");
    struct arena a;
    struct forked f;
    struct buf out;
    arena_init(&a, 1 << 20);
    save(s, &plain, 0);
    save(s, &salted, 0);
    save(s, &keyless, 0);
    const char *all = listed(s, "k");
    assert_non_null(strstr(all, "\"id\":\"a\""));
    assert_non_null(strstr(all, "\"id\":\"b\""));
    assert_null(strstr(all, "\"id\":\"c\""));
    assert_non_null(strstr(listed(s, " keyless"), "\"id\":\"c\""));
    assert_null(strstr(listed(s, "kk"), "\"id\""));
    buf_init(&out, 1 << 16);
    assert_true(contexts_write_one(s, &key, STR("b"), 0, &out));
    assert_false(contexts_write_one(s, &near, STR("b"), 0, &out));
    buf_deinit(&out);
    struct contexts_new without = salted;
    without.scope = STR("k");
    assert_false(fork_it(s, &without, 0, &a, &f));
    assert_true(fork_it(s, &salted, 0, &a, &f));
    contexts_leave(s, f.context);
    assert_false(contexts_delete(s, &near, STR("b"), 0));
    assert_true(contexts_delete(s, &key, STR("b"), 0));
    save(s, &same, 0);
    assert_true(contexts_delete(s, &key, STR("a"), 0)); /* the one without a salt first */
    assert_true(fork_it(s, &same, 0, &a, &f));
    contexts_leave(s, f.context);
    arena_deinit(&a);
    contexts_close(s);
}

static void test_a_child_is_told_once_that_a_pin_is_off(void **state)
{
    (void)state;
    struct contexts *s = open_set();
    const struct contexts_asker key = {STR("k"), false};
    struct contexts_new pinned = spec("k", "a", "x"), other = spec("k", "b", "x");
    struct context *c;
    struct api_error e = {0};
    bool is_known;
    pinned.has_pin = pinned.is_pinned = true;
    offs = 0;
    save(s, &pinned, 0);
    assert_int_equal(offs, 0);
    assert_true(contexts_delete(s, &key, STR("a"), 0));
    assert_int_equal(offs, 1);
    save(s, &pinned, 0);
    pinned.is_pinned = false;
    save(s, &pinned, 0); /* PATCH {"pin": false} */
    assert_int_equal(offs, 2);
    assert_true(contexts_delete(s, &key, STR("a"), 0));
    assert_int_equal(offs, 2);
    assert_true(contexts_begin(s, &other, 0, &c, &is_known, &e));
    contexts_pin_name(c); /* its prefill begins, and is given up */
    contexts_drop(s, c);
    assert_int_equal(offs, 3);
    pinned.is_pinned = true;
    save(s, &pinned, 0);
    assert_true(contexts_begin(s, &pinned, 0, &c, &is_known, &e));
    contexts_pin_name(c);
    assert_true(contexts_delete(s, &key, STR("a"), 0));
    assert_int_equal(offs, 4);
    contexts_drop(s, c); /* what the prefill may have pinned after that */
    assert_int_equal(offs, 5);
    contexts_close(s);
    assert_int_equal(offs, 5);
}

static void test_salts_make_no_room(void **state)
{
    (void)state;
    struct contexts *s = open_set();
    struct context *c;
    struct api_error e = {0};
    bool is_known;
    struct contexts_new more = spec("k other", "a", "x"), near = spec("kk s1", "a", "x");
    fill(s, "k s%u", "a", &more);
    assert_true(contexts_begin(s, &near, 0, &c, &is_known, &e));
    contexts_drop(s, c);
    contexts_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_its_messages_come_before_the_request_s_own),
        cmocka_unit_test(test_who_may_not_or_cannot_read_it_is_told_why),
        cmocka_unit_test(test_a_full_arena_is_an_error_and_no_reader),
        cmocka_unit_test(test_one_that_was_never_prefilled_is_not_there),
        cmocka_unit_test(test_a_deleted_one_lives_until_its_last_reader_leaves),
        cmocka_unit_test(test_one_deleted_while_it_is_saved_again_is_there_afterwards),
        cmocka_unit_test(test_a_scope_that_is_full_leaves_room_for_others),
        cmocka_unit_test(test_a_key_lists_and_deletes_what_a_salt_narrowed_and_reads_it_with_it),
        cmocka_unit_test(test_a_child_is_told_once_that_a_pin_is_off),
        cmocka_unit_test(test_salts_make_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
