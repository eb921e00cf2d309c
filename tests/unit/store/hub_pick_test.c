#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "store/hub_pick.h"

static struct arena arena;

static int begin(void **state)
{
    (void)state;
    arena_init(&arena, 1u << 20);
    return 0;
}

static int end(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

static bool supports(void *ctx, str type)
{
    (void)ctx;
    return str_eq_z(type, "qwen3");
}

/* Files by name, joined with ';'. */
static struct hub_repo repo_of(const char *names, const char *type)
{
    static struct hub_file files[64];
    struct hub_repo r = {.files = files, .model_type = str_of(type)};
    str name, rest = str_of(names);
    while (str_split(&rest, ';', &name))
        files[r.files_count++] = (struct hub_file){.path = name, .size = 10};
    return r;
}

#define MANY "README.md;m-Q8_0.gguf;m-Q4_K_M.gguf;m-IQ2.gguf;mmproj-BF16.gguf;mmproj-F16.gguf;" \
             "imatrix.gguf"
#define SETS "Q4_K_M/b-00002-of-00002.gguf;Q4_K_M/b-00001-of-00002.gguf;Q8/b-00001-of-00003.gguf;" \
             "b-F16.gguf"
#define PARTS "config.json;model-00001-of-00002.safetensors;model-00002-of-00002.safetensors;" \
              "tokenizer.json;original/consolidated.safetensors;README.md;" \
              "model.safetensors.index.json"

static void test_files_are_chosen_as_the_reference_says(void **state)
{
    static const struct { const char *files, *type, *quant, *file; bool mmproj;
                          const char *taken; } rows[] = {
        {MANY, "", "", "", false, "m-Q4_K_M.gguf"},
        {MANY, "", "q8_0", "", false, "m-Q8_0.gguf"},
        {MANY, "", "m-IQ2", "", false, "m-IQ2.gguf"},
        {MANY, "", "m-IQ2.gguf", "", false, "m-IQ2.gguf"},
        {MANY, "", "", "m-IQ2.gguf", false, "m-IQ2.gguf"},
        {MANY, "", "", "mmproj-F16.gguf", false, "mmproj-F16.gguf"},
        {MANY, "", "iq2", "", true, "m-IQ2.gguf;mmproj-F16.gguf"},
        {MANY, "", "Q3", "", false, "!no GGUF file matches \"Q3\"; there are: m-IQ2, m-Q4_K_M, "
                                    "m-Q8_0"},
        {MANY, "", "Q", "", false, "!several files match \"Q\""},
        {MANY, "", "", "x.gguf", false, "!no file \"x.gguf\""},
        {MANY, "", "", "README.md", false, "!README.md is no GGUF file"},
        {SETS, "", "", "", false, "Q4_K_M/b-00001-of-00002.gguf;Q4_K_M/b-00002-of-00002.gguf"},
        {SETS, "", "q4_k", "", false, "Q4_K_M/b-00001-of-00002.gguf;Q4_K_M/b-00002-of-00002.gguf"},
        {SETS, "", "", "b-00002-of-00002.gguf", false,
         "Q4_K_M/b-00001-of-00002.gguf;Q4_K_M/b-00002-of-00002.gguf"},
        {SETS, "", "Q8", "", false, "!Q8/b has 1 of 3 pieces on the hub"},
        {SETS, "", "F16", "", false, "b-F16.gguf"},
        {SETS, "", "F16", "", true, "!no projector"},
        {"b-Q2.gguf;a-Q6.gguf", "", "", "", false, "a-Q6.gguf"},
        {"m-Q4_K_M.gguf;m-UD-Q4_K_M.gguf", "", "Q4_K_M", "", false, "!several files match"},
        {"m-Q4_K_M.gguf;m-UD-Q4_K_M.gguf", "", "m-Q4_K_M", "", false, "m-Q4_K_M.gguf"},
        {PARTS, "qwen3", "", "", false,
         "config.json;model-00001-of-00002.safetensors;model-00002-of-00002.safetensors;"
         "tokenizer.json;model.safetensors.index.json"},
        {PARTS, "mamba9", "", "", false, "!safetensors of model type \"mamba9\" are not supported"},
        {"README.md", "", "", "", false, "!no GGUF and no safetensors files"},
        {"README.md", "", "Q4", "", false, "!no GGUF file matches"},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct hub_repo repo = repo_of(rows[i].files, rows[i].type);
        struct hub_query q = {.repo = STR("o/r"), .quant = str_of(rows[i].quant),
                              .file = str_of(rows[i].file), .wants_projector = rows[i].mmproj,
                              .supports = supports};
        struct hub_pick pick;
        struct err e = {0};
        char got[1024] = "";
        if (hub_pick(&pick, &repo, &q, &arena, &e))
            for (uint32_t k = 0; k < pick.count; k++)
                snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s", k ? ";" : "",
                         STR_ARG(pick.files[k]->path));
        if (rows[i].taken[0] == '!' ? !strstr(e.text, rows[i].taken + 1)
                                    : strcmp(got, rows[i].taken) != 0)
            fail_msg("row %zu: %s%s", i, got, e.text);
    }
}

static void test_models_are_grouped_by_split_name_and_summed(void **state)
{
    struct hub_models m;
    struct err e = {0};
    struct hub_repo repo = repo_of(SETS, "");
    (void)state;
    assert_true(hub_pick_models(&m, &repo, &arena, &e));
    assert_int_equal(m.count, 3);
    assert_true(str_eq_z(m.models[0].name, "Q4_K_M/b"));
    assert_int_equal(m.models[0].size, 20);
    assert_int_equal(m.models[1].shards, 1);
    assert_int_equal(m.models[1].shards_total, 3);
}

static void test_the_hub_s_answer_is_read_with_sizes_and_sums(void **state)
{
    static const char body[] =
        "{\"sha\":\"abc\",\"config\":{\"model_type\":\"qwen3\"},\"siblings\":["
        "{\"rfilename\":\"a.gguf\",\"size\":135,\"lfs\":{\"size\":9,\"sha256\":"
        "\"00000000000000000000000000000000000000000000000000000000000000ff\"}},"
        "{\"rfilename\":\"b\",\"size\":7,\"lfs\":null},{\"rfilename\":\"c\"}]}";
    struct hub_repo r;
    struct err e = {0};
    (void)state;
    if (!hub_table[0]->read_list(&r, str_of(body), &arena, &e))
        fail_msg("%s", e.text);
    assert_true(str_eq_z(r.commit, "abc") && str_eq_z(r.model_type, "qwen3"));
    assert_int_equal(r.files_count, 3);
    assert_true(r.files[0].size == 9 && r.files[0].has_sha256 && r.files[0].sha256[31] == 255);
    assert_true(r.files[1].size == 7 && !r.files[1].has_sha256);
    assert_true(r.files[2].size == HUB_SIZE_UNKNOWN);
}

static void test_an_answer_of_another_form_is_refused(void **state)
{
    static const struct { const char *body, *text; } rows[] = {
        {"", "hub: json"}, {"<html>", "hub: json"}, {"[]", "no list of files"},
        {"{\"siblings\":{}}", "no list of files"}, {"{\"siblings\":[3]}", "without rfilename"},
        {"{\"siblings\":[{\"rfilename\":\"a\",\"lfs\":{\"sha256\":\"12\"}}]}", "64 hex digits"},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct hub_repo r;
        struct err e = {0};
        assert_false(hub_table[0]->read_list(&r, str_of(rows[i].body), &arena, &e));
        if (!strstr(e.text, rows[i].text))
            fail_msg("row %zu: %s", i, e.text);
    }
    const str *names;
    uint32_t count;
    struct err e = {0};
    assert_true(hub_table[0]->read_search(&names, &count, STR("[{\"id\":\"a/b\"},{},{\"id\":3}]"),
                                          &arena, &e));
    assert_int_equal(count, 1);
    assert_false(hub_table[0]->read_search(&names, &count, STR("{}"), &arena, &e));
}

static void test_addresses_escape_what_is_no_plain_character(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b, 4096);
    assert_true(hub_table[0]->file_url(&b, STR("https://h"), STR("o/r"), STR("refs/pr/1"),
                                       STR("Q 4/a#?%\xc3\xa9.gguf")));
    assert_string_equal(b.p, "https://h/o/r/resolve/refs%2Fpr%2F1/Q%204/a%23%3F%25%C3%A9.gguf");
    buf_deinit(&b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_files_are_chosen_as_the_reference_says),
        TEST(test_models_are_grouped_by_split_name_and_summed),
        TEST(test_the_hub_s_answer_is_read_with_sizes_and_sums),
        TEST(test_an_answer_of_another_form_is_refused),
        TEST(test_addresses_escape_what_is_no_plain_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
