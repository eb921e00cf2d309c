#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/path_table.c"

#include "base/file.h"
#include "base/json.h"

static struct arena arena;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, (size_t)16 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

/* Without blanks outside of strings. */
static str packed(str json)
{
    char *out = arena_alloc_text(&arena, json.len + 1);
    size_t len = 0;
    bool in_text = false;
    assert_non_null(out);
    for (size_t i = 0; i < json.len; i++) {
        in_text ^= json.p[i] == '"' && (i == 0 || json.p[i - 1] != '\\');
        if (in_text || !strchr(" \n", json.p[i]))
            out[len++] = json.p[i];
    }
    return str_view(out, len);
}

static struct json document(void)
{
    const struct json_options o = {.depth_max = 32, .refuse_duplicates = true};
    struct json root;
    struct err e;
    assert_true(json_parse(&root, str_of(openapi_data), &o, &arena, &e));
    return root;
}

static void test_the_served_document_is_that_of_docs(void **state)
{
    (void)state;
    str text;
    struct err e;
    assert_true(file_read(&text, "docs/openapi.json", 1 << 20, &arena, &e));
    str a = packed(text), b = packed(str_of(openapi_data));
    assert_true(str_eq(a, b)); /* else: tools/make_openapi.py */
}

/* "{id}" of the document is "{}" of a dialect's row. */
static str as_row(str path)
{
    size_t open = str_find_byte(path, '{');
    if (open == STR_NONE)
        return path;
    return arena_printf(&arena, "%.*s{}", STR_ARG(str_sub(path, 0, open)));
}

static str upper(str method)
{
    str copy = arena_copy(&arena, method);
    char *p = arena_alloc_text(&arena, copy.len);
    for (size_t i = 0; i < copy.len; i++)
        p[i] = (char)(copy.p[i] - 'a' + 'A');
    return str_view(p, copy.len);
}

static void test_every_path_of_the_document_is_served(void **state)
{
    (void)state;
    struct json_walk paths = json_walk(json_member(document(), "paths"));
    uint32_t count = 0;
    while (json_next(&paths)) {
        str path = json_text(paths.key, &arena);
        struct json_walk methods = json_walk(paths.value);
        while (json_next(&methods)) {
            str method = upper(json_text(methods.key, &arena)), segment;
            const struct dialect *d;
            const struct dialect_path *p;
            const struct path_row *row = path_table_find(method, path);
            bool is_dialect = dialect_match(method, as_row(path), &d, &p, &segment);
            print_message("%.*s %.*s\n", STR_ARG(method), STR_ARG(path));
            assert_true(is_dialect || (row && row->serve != path_not_built));
            count++;
        }
    }
    assert_true(count > 20);
}

/* A row for everything below a path stands there with a name in braces: "/v1/legs/{name}". */
static bool is_in(struct json paths, const char *row)
{
    str pattern = str_of(row), head = str_sub(pattern, 0, pattern.len - 1);
    struct json_walk w = json_walk(paths);
    if (!str_ends(pattern, STR("/*")))
        return json_kind(json_member(paths, row)) == JSON_KIND_OBJECT;
    while (json_next(&w)) {
        str key = json_text(w.key, &arena);
        if (str_starts(key, head) && str_starts(str_from(key, head.len), STR("{")))
            return true;
    }
    return false;
}

static void test_every_built_row_is_in_the_document(void **state)
{
    (void)state;
    struct json paths = json_member(document(), "paths");
    for (size_t i = 0; i < countof(rows_of_paths); i++) {
        bool is_built = rows_of_paths[i].serve != path_not_built;
        bool is_there = is_in(paths, rows_of_paths[i].path);
        print_message("%s\n", rows_of_paths[i].path);
        assert_int_equal(is_built, is_there);
    }
}

/* Those that answer 501. */
static bool is_unbuilt(const char *path)
{
    static const char *const paths[] = {"/api/embed", "/api/embeddings", "/v1/embeddings",
                                        "/api/create", "/api/copy", "/api/push", "/api/blobs/{}"};
    for (size_t i = 0; i < countof(paths); i++)
        if (!strcmp(path, paths[i]))
            return true;
    return false;
}

static void test_every_built_path_of_a_dialect_is_in_the_document(void **state)
{
    (void)state;
    struct json paths = json_member(document(), "paths");
    for (uint32_t i = 0; i < dialect_table_count; i++)
        for (uint32_t k = 0; k < dialect_table[i]->paths_count; k++) {
            const struct dialect_path *p = &dialect_table[i]->paths[k];
            struct json_walk w = json_walk(paths);
            str method = str_of(p->method);
            bool is_there = false;
            print_message("%s %s\n", p->method, p->path);
            while (!is_there && json_next(&w)) {
                str key = json_text(w.key, &arena);
                struct json_walk m = json_walk(w.value);
                while (str_eq_z(as_row(key), p->path) && json_next(&m))
                    is_there = is_there || str_eq(upper(json_text(m.key, &arena)), method);
            }
            assert_int_equal(is_there, !is_unbuilt(p->path));
        }
}

static void test_a_wrong_path_gets_the_nearest_one(void **state)
{
    (void)state;
    static const struct {
        const char *asked, *near;
    } rows[] = {
        {"/chat/completions", "POST /v1/chat/completions"},
        {"/messages", "POST /v1/messages"},
        {"/models", "GET /v1/models"},
        {"/v1/chat/completion", "POST /v1/chat/completions"},
        {"/v1/v1/model", "GET /v1/models"},
        {"/helth", "GET /health"},
        {"/api/chats", "POST /api/chat"},
        {"/something/else", NULL},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct buf out;
        buf_init(&out, 512);
        bool found = path_table_near(str_of(rows[i].asked), &out);
        print_message("%s: %s\n", rows[i].asked, found ? out.p : "nothing");
        assert_int_equal(found, rows[i].near != NULL);
        assert_true(!found || !strcmp(out.p, rows[i].near));
        buf_deinit(&out);
    }
}

static void test_methods_of_a_path_are_listed_over_both_tables(void **state)
{
    (void)state;
    static const struct {
        const char *path, *methods;
    } rows[] = {
        {"/health", "GET"},
        {"/v1/chat/completions", "POST"},
        {"/v1/v1/chat/completions", "POST"},
        {"/v1/contexts", "GET, POST"},
        {"/v1/contexts/ctx_1", "GET, PATCH, DELETE"},
        {"/nope", NULL},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct buf out;
        buf_init(&out, 512);
        assert_int_equal(path_table_methods(str_of(rows[i].path), &out), rows[i].methods != NULL);
        assert_true(!rows[i].methods || !strcmp(out.p, rows[i].methods));
        buf_deinit(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_served_document_is_that_of_docs),
        cmocka_unit_test(test_every_path_of_the_document_is_served),
        cmocka_unit_test(test_every_built_row_is_in_the_document),
        cmocka_unit_test(test_every_built_path_of_a_dialect_is_in_the_document),
        cmocka_unit_test(test_a_wrong_path_gets_the_nearest_one),
        cmocka_unit_test(test_methods_of_a_path_are_listed_over_both_tables),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
