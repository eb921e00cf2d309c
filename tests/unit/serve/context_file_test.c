/* The bytes of a saved context: what is read is what was written, or nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/arena.h"
#include "base/digest.h"
#include "serve/context_file.h"

static struct context_file sample(void)
{
    return (struct context_file){
        .scope = STR("fleet s\"1"), .id = STR("rules"), .model = STR("llama"),
        .content = STR("{\"model\":\"llama\", \"messages\":[{\"role\":\"user\","
                       "\"content\":\"a\\n\"}]}"),
        .tokens = 7, .cached_tokens = 3, .created_s = 1700000000, .used_s = 1700000001,
        .expires_s = 1700000002, .is_pinned = true};
}

static struct buf out; /* the sample as it was written */
static struct arena arena;

static int begin(void **state)
{
    (void)state;
    struct context_file a = sample();
    arena_init(&arena, 64 << 20);
    buf_init(&out, 1 << 16);
    return context_file_write(&out, &a) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    buf_deinit(&out);
    arena_deinit(&arena);
    return 0;
}

static bool reads(str bytes, struct context_file *f, struct err *e)
{
    *e = (struct err){0};
    return context_file_read(f, bytes, &arena, e);
}

static void test_what_is_read_is_what_was_written(void **state)
{
    (void)state;
    struct context_file a = sample(), b;
    struct err e;
    assert_true(reads(buf_view(&out), &b, &e));
    assert_true(str_eq(a.scope, b.scope) && str_eq(a.id, b.id) && str_eq(a.model, b.model));
    assert_true(str_eq(a.content, b.content)); /* each byte: it tells contexts apart */
    assert_int_equal(b.tokens, 7);
    assert_int_equal(b.cached_tokens, 3);
    assert_int_equal(b.created_s, a.created_s);
    assert_int_equal(b.used_s, a.used_s);
    assert_int_equal(b.expires_s, a.expires_s);
    assert_true(b.is_pinned);
    buf_deinit(&out);
    buf_init(&out, 100);
    assert_false(context_file_write(&out, &a));
}

static void test_a_file_that_lacks_or_changes_any_byte_is_refused(void **state)
{
    (void)state;
    struct context_file b;
    struct err e;
    for (size_t i = 0; i < out.len; i++) {
        assert_false(reads(str_sub(buf_view(&out), 0, i), &b, &e));
        assert_int_equal(e.code, ERR_FORMAT);
        out.p[i] ^= 0x20;
        assert_false(reads(buf_view(&out), &b, &e));
        assert_true(e.code == ERR_FORMAT || (e.code == ERR_UNSUPPORTED && i >= 8 && i < 12));
        out.p[i] ^= 0x20;
    }
    buf_add_byte(&out, ' ');
    assert_false(reads(buf_view(&out), &b, &e));
}

static void test_another_version_is_told_apart_from_damage(void **state)
{
    (void)state;
    struct context_file b;
    struct err e;
    out.p[8] = 2;
    assert_false(reads(buf_view(&out), &b, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "version 2, known is 1"));
}

/* Right sums over JSON that is not what a context says. */
static void test_a_whole_file_that_says_nonsense_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *json, *sentence;
    } rows[] = {
        {"[]", "scope: no text"},
        {"{\"scope\":\"a\",\"id\":1}", "id: no text"},
        {"{\"scope\":\"a\",\"id\":\"b\",\"model\":\"m\",\"tokens\":-1}", "tokens: no number"},
        {"{\"scope\":\"a\",\"id\":\"b\",\"model\":\"m\",\"tokens\":1,\"cached_tokens\":1,"
         "\"created_at\":1,\"last_used_at\":1,\"expires_at\":99999999999999}", "expires_at"},
        {"{\"scope\":\"a\",\"id\":\"b\",\"model\":\"m\",\"tokens\":1,\"cached_tokens\":1,"
         "\"created_at\":1,\"last_used_at\":1,\"expires_at\":1,\"pinned\":false,\"content\":[]}",
         "pinned or content"},
        {"{\"scope\":", "json"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct context_file b;
        struct err e;
        char bytes[512] = "shoalctx\1";
        str json = str_of(rows[i].json);
        bytes[16] = (char)json.len;
        memcpy(bytes + 40, json.p, json.len);
        uint64_t sum = digest_xxh3(json, 1);
        memcpy(bytes + 24, &sum, 8); /* little endian, as the machines we run on */
        sum = digest_xxh3(str_view(bytes, 32), 1);
        memcpy(bytes + 32, &sum, 8);
        assert_true(json.len < 256);
        assert_false(reads(str_view(bytes, 40 + json.len), &b, &e));
        print_message("%s\n", e.text);
        assert_non_null(strstr(e.text, rows[i].sentence));
    }
}

static void test_a_name_depends_on_scope_and_id_and_is_recognised(void **state)
{
    (void)state;
    char a[CONTEXT_FILE_NAME_SIZE], b[CONTEXT_FILE_NAME_SIZE];
    struct err e;
    assert_true(context_file_name(a, STR("k"), STR("id"), &e));
    assert_true(context_file_is_name(a));
    assert_true(context_file_name(b, STR("ki"), STR("d"), &e));
    assert_string_not_equal(a, b);
    assert_true(context_file_name(b, STR("k"), STR("id"), &e));
    assert_string_equal(a, b);
    static const char *const others[] = {"", "lock", "x", "../../../../../../../etc/pass.context",
                                         "0123456789abcdef0123456789abcdeg.context",
                                         "0123456789abcdef0123456789abcdef.contexT"};
    for (size_t i = 0; i < countof(others); i++)
        assert_false(context_file_is_name(others[i]));
}

#define WRITTEN(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WRITTEN(test_what_is_read_is_what_was_written),
        WRITTEN(test_a_file_that_lacks_or_changes_any_byte_is_refused),
        WRITTEN(test_another_version_is_told_apart_from_damage),
        WRITTEN(test_a_whole_file_that_says_nonsense_is_refused_by_name),
        cmocka_unit_test(test_a_name_depends_on_scope_and_id_and_is_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
