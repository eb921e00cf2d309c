#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "store/library.h"

#define HEX_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HEX_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define HEX_C "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

static char home[64];
static struct arena arena;
static struct library_options options;
static uint32_t checks; /* how often a file was really looked at */

static const char *at(const char *path)
{
    static char text[4][512];
    static int next;
    char *out = text[next++ % 4];
    snprintf(out, sizeof text[0], "%s/%s", home, path);
    return out;
}

static void put(const char *path, const char *content)
{
    struct err e = {0};
    char dir[512];
    snprintf(dir, sizeof dir, "%s", at(path));
    *strrchr(dir, '/') = 0;
    if (!file_make_dirs(dir, 0700, &e) || !file_write(at(path), str_of(content), 0600, &e))
        fail_msg("%s", e.text);
}

static bool check(void *ctx, const struct library_entry *entry, struct err *e)
{
    (void)ctx;
    checks++;
    return !strstr(entry->path.p, "damaged") ||
           err_set(e, ERR_FORMAT, "%.*s: is damaged", STR_ARG(entry->file_name));
}

static int begin(void **state)
{
    (void)state;
    strcpy(home, "/tmp/shoal_library_XXXXXX");
    if (!mkdtemp(home))
        return -1;
    arena_init(&arena, 16u << 20);
    checks = 0;
    options = (struct library_options){
        .own = arena_copy(&arena, str_of(at("own"))),
        .home = str_of(home),
        .ollama = STR("auto"),
        .hf = STR("auto"),
        .lmstudio = STR("auto"),
        .check = check,
        .tag = "test 1",
    };
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at_level)
{
    (void)st, (void)kind, (void)at_level;
    return remove(path);
}

static int end(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct library *open_library(void)
{
    struct library *l = NULL;
    struct err e = {0};
    if (!library_open(&l, &options, &e))
        fail_msg("%s", e.text);
    return l;
}

static const struct library_entry *find(const struct library *l, const char *name)
{
    for (uint32_t i = 0; i < library_count(l); i++)
        if (str_eq_z(library_at(l, i)->name, name))
            return library_at(l, i);
    return NULL;
}

/* "name source size|broken" of all entries, sorted by name */
static void check_list(const struct library *l, const char *const *wanted, size_t count)
{
    assert_int_equal(library_count(l), count);
    for (size_t i = 0; i < count; i++) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(wanted[i], " "), wanted[i]);
        const struct library_entry *e = find(l, name);
        if (!e)
            fail_msg("%s is not listed", name);
        struct buf got;
        buf_init(&got, 1000);
        buf_printf(&got, "%s %s ", name, library_source_name(e->source));
        if (e->broken.len)
            buf_add(&got, e->broken);
        else
            buf_printf(&got, "%u%s", (unsigned)e->size, e->is_safetensors ? " st" : "");
        assert_string_equal(got.p, wanted[i]);
        buf_deinit(&got);
    }
}

static void test_our_store_lists_files_sets_and_directories(void **state)
{
    (void)state;
    put("own/plain-Q4.gguf", "1234");
    put("own/set-00001-of-00002.gguf", "12");
    put("own/set-00002-of-00002.gguf", "123");
    put("own/gap-00001-of-00003.gguf", "1");
    put("own/gap-00003-of-00003.gguf", "1");
    put("own/headless-00002-of-00002.gguf", "1");
    put("own/damaged.gguf", "x");
    put("own/Dir-7B/config.json", "{}");
    put("own/Dir-7B/model-00001-of-00001.safetensors", "1234567");
    put("own/no-weights/config.json", "{}");
    put("own/sub/not-looked-at.gguf", "1");
    put("own/notes.txt", "x");
    put("own/.hidden.gguf", "x");
    put("own/some-imatrix.gguf", "x");
    assert_int_equal(symlink("nowhere", at("own/dangling.gguf")), 0);
    static const char *const wanted[] = {
        "plain-Q4 shoal 4",
        "set shoal 5",
        "gap shoal piece 2 of 3 is missing (gap-00002-of-00003.gguf)",
        "headless shoal piece 1 of 2 is missing (headless-00001-of-00002.gguf)",
        "damaged shoal damaged.gguf: is damaged",
        "Dir-7B shoal 9 st",
    };
    struct library *l = open_library();
    check_list(l, wanted, countof(wanted));
    assert_true(str_ends(find(l, "set")->path, STR("/own/set-00001-of-00002.gguf")));
    library_close(l);
}

static void test_projectors_and_drafts_go_to_the_model_they_resemble(void **state)
{
    (void)state;
    put("own/gemma-4b-Q4.gguf", "1");
    put("own/gemma-4b-Q8.gguf", "1");
    put("own/qwen-8b-Q4.gguf", "1");
    put("own/mmproj-gemma-4b-f16.gguf", "1");
    put("own/mtp-qwen-8b.gguf", "1");
    put("own/mmproj.gguf", "1");
    struct library *l = open_library();
    assert_int_equal(library_count(l), 3);
    assert_true(str_ends(find(l, "gemma-4b-Q4")->projector, STR("/mmproj-gemma-4b-f16.gguf")));
    assert_true(str_ends(find(l, "gemma-4b-Q8")->projector, STR("/mmproj-gemma-4b-f16.gguf")));
    assert_int_equal(find(l, "qwen-8b-Q4")->projector.len, 0);
    assert_true(str_ends(find(l, "qwen-8b-Q4")->draft, STR("/mtp-qwen-8b.gguf")));
    library_close(l);
}

static void put_ollama(const char *manifest, const char *digest, int size, const char *type)
{
    char path[256], json[512];
    snprintf(path, sizeof path, ".ollama/models/manifests/%s", manifest);
    snprintf(json, sizeof json, "{\"schemaVersion\":2,\"layers\":[{\"mediaType\":\"application/"
             "vnd.ollama.image.license\",\"digest\":\"sha256:" HEX_C "\",\"size\":3},"
             "{\"mediaType\":\"application/vnd.ollama.image.%s\",\"digest\":\"%s\",\"size\":%d},"
             "{\"mediaType\":\"application/vnd.ollama.image.system\",\"digest\":\"sha256:" HEX_C
             "\",\"size\":3}]}", type, digest, size);
    put(path, json);
}

static void test_ollama_models_are_read_from_their_manifests(void **state)
{
    (void)state;
    put(".ollama/models/blobs/sha256-" HEX_A, "12345");
    put(".ollama/models/blobs/sha256-" HEX_C, "you");
    put("secret", "12345");
    put_ollama("registry.ollama.ai/library/llama3/8b", "sha256:" HEX_A, 5, "model");
    put_ollama("registry.ollama.ai/me/own/latest", "sha256:" HEX_A, 5, "model");
    put_ollama("registry.ollama.ai/library/cloud/latest", "sha256:" HEX_A, 5, "none");
    put_ollama("registry.ollama.ai/library/absent/latest", "sha256:" HEX_B, 5, "model");
    put_ollama("registry.ollama.ai/library/short/latest", "sha256:" HEX_A, 6, "model");
    put_ollama("registry.ollama.ai/library/zero/latest", "sha256:" HEX_A, 0, "model");
    put_ollama("registry.ollama.ai/library/escape/latest", "sha256:../../../secret", 5, "model");
    put(".ollama/models/manifests/registry.ollama.ai/library/cut/latest", "{\"layers\":[");
    put(".ollama/models/manifests/stray", "{}");
    static const char *const wanted[] = {
        "llama3:8b ollama 5",
        "me/own:latest ollama 5",
        "cut:latest ollama manifest: json: layers[0]: line 1, column 12: a value expected, but the "
        "text ends",
    };
    struct library *l = open_library();
    check_list(l, wanted, countof(wanted));
    assert_true(str_ends(find(l, "llama3:8b")->system, STR("/blobs/sha256-" HEX_C)));
    assert_true(str_ends(find(l, "llama3:8b")->path, STR("/blobs/sha256-" HEX_A)));
    library_close(l);
    options.ollama = STR("off");
    l = open_library();
    assert_int_equal(library_count(l), 0);
    library_close(l);
}

static void test_the_ollama_store_with_weights_is_preferred(void **state)
{
    (void)state;
    put("env/manifests/x", "{}");
    put("env/blobs/sha256-" HEX_A, "small");
    put_ollama("registry.ollama.ai/library/real/latest", "sha256:" HEX_B, 2 << 20, "model");
    put(".ollama/models/blobs/sha256-" HEX_B, "");
    assert_int_equal(truncate(at(".ollama/models/blobs/sha256-" HEX_B), 2 << 20), 0);
    options.ollama_models = arena_copy(&arena, str_of(at("env")));
    struct library *l = open_library();
    assert_non_null(find(l, "real:latest"));
    library_close(l);
}

static void test_the_hub_cache_is_read_by_its_main_revision(void **state)
{
    (void)state;
#define REPO "hub/models--Org--Tiny-GGUF"
    put(REPO "/refs/main", "rev1\n");
    put(REPO "/blobs/abc", "123456");
    put(REPO "/snapshots/rev1/readme", "");
    put(REPO "/snapshots/rev0/old.gguf", "1");
    assert_int_equal(symlink("../../blobs/abc", at(REPO "/snapshots/rev1/Tiny-Q4.gguf")), 0);
    put("hub/models--Org--Safe/refs/main", "rev1");
    put("hub/models--Org--Safe/snapshots/rev1/config.json", "{}");
    put("hub/models--Org--Safe/snapshots/rev1/model.safetensors", "1234");
    put("hub/models--Org--Escape/refs/main", "../../..");
    put("hub/models--Org--NoRef/snapshots/rev1/x.gguf", "1");
    put("hub/datasets--Org--Data/refs/main", "rev1");
    static const char *const wanted[] = {"Tiny-Q4 hf 6", "Org/Safe hf 6 st"};
    options.hf_home = str_of(home);
    struct library *l = open_library();
    check_list(l, wanted, countof(wanted));
    library_close(l);
}

static void test_lm_studio_and_further_directories_are_read_two_levels_deep(void **state)
{
    (void)state;
    put(".lmstudio/models/org/repo/lm.gguf", "1");
    put(".lmstudio/models/org/repo/deeper/no.gguf", "1");
    put("more/a/b/two.gguf", "12");
    put("more/one.gguf", "1");
    put("more/a/b/c/three.gguf", "1");
    str dirs[] = {arena_copy(&arena, str_of(at("more"))), arena_copy(&arena, str_of(at("none")))};
    static const char *const wanted[] = {"lm lmstudio 1", "two dir 2", "one dir 1"};
    options.dirs = dirs;
    options.dirs_count = 2;
    struct library *l = open_library();
    check_list(l, wanted, countof(wanted));
    assert_int_equal(library_note_count(l), 0);
    library_close(l);
    put("file", "");
    dirs[1] = arena_copy(&arena, str_of(at("file")));
    l = open_library();
    assert_int_equal(library_note_count(l), 1);
    assert_true(str_ends(library_note(l, 0), STR("file: is not a directory")));
    library_close(l);
    options.own_only = true;
    l = open_library();
    assert_int_equal(library_count(l), 0);
    library_close(l);
}

static void test_own_models_shadow_equal_names(void **state)
{
    (void)state;
    put("own/Same.gguf", "1");
    put(".lmstudio/models/org/repo/same.gguf", "12");
    struct library *l = open_library();
    assert_int_equal(library_count(l), 1);
    assert_int_equal(library_at(l, 0)->source, LIBRARY_SOURCE_SHOAL);
    library_close(l);
}

static void test_answers_of_checks_are_kept_until_a_file_changes(void **state)
{
    (void)state;
    put("own/a.gguf", "1");
    put("own/damaged.gguf", "1");
    put(".lmstudio/models/org/repo/b.gguf", "12");
    static const struct { const char *tag; bool own_only, change; uint32_t checks; } t[] = {
        {"test 1", false, false, 3}, {"test 1", false, false, 0}, {"test 1", true, true, 1},
        {"test 1", false, false, 0}, {"test 2", false, false, 3}, {"test 2", false, false, 0},
    };
    for (size_t i = 0; i < countof(t); i++) {
        if (t[i].change)
            put("own/a.gguf", "changed");
        checks = 0;
        options.tag = t[i].tag;
        options.own_only = t[i].own_only;
        struct library *l = open_library();
        assert_int_equal(checks, t[i].checks);
        assert_true(str_eq_z(find(l, "damaged")->broken, "damaged.gguf: is damaged"));
        assert_int_equal(find(l, "a")->broken.len, 0);
        library_close(l);
    }
    put("own/.checked", "shoal checked 1 test 2\nrubbish\n\xff\xff");
    struct library *l = open_library();
    assert_int_equal(library_count(l), 3);
    library_close(l);
}

static void test_newest_models_come_first(void **state)
{
    (void)state;
    put("own/old.gguf", "1");
    put("own/new.gguf", "1");
    const struct timespec times[2] = {{1000, 0}, {1000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, at("own/old.gguf"), times, 0), 0);
    struct library *l = open_library();
    assert_true(str_eq_z(library_at(l, 0)->name, "new"));
    assert_int_equal(library_at(l, 1)->modified_ns, 1000 * 1000000000LL);
    library_close(l);
}

struct wanted {
    const char *ask, *name; /* name: found, or what the error holds after '!' */
    bool is_cli;
};

static void check_find(const struct library *l, const struct wanted *w, const str *aliases,
                       uint32_t count)
{
    struct library_query q = {str_of(w->ask), aliases, count, w->is_cli};
    struct library_entry found;
    struct err e = {0};
    bool ok = library_find(l, &q, &arena, &found, &e);
    if (w->name[0] == '!') {
        if (ok || !strstr(e.text, w->name + 1))
            fail_msg("%s: wanted an error with %s, got %.*s %s", w->ask, w->name + 1,
                     STR_ARG(ok ? found.name : STR("")), e.text);
    } else if (!ok || !str_eq_z(found.name, w->name)) {
        fail_msg("%s: wanted %s, got %.*s %s", w->ask, w->name,
                 STR_ARG(ok ? found.name : STR("")), e.text);
    }
}

static void test_a_path_that_cannot_be_looked_at_says_why(void **state)
{
    (void)state;
    put("own/a.gguf", "1");
    struct library *l = open_library();
    struct wanted w = {at("own/a.gguf/b.gguf"), "!b.gguf: Not a directory", true};
    check_find(l, &w, NULL, 0);
    library_close(l);
}

static void test_names_are_found_by_the_rules_in_their_order(void **state)
{
    (void)state;
    put("own/Qwen3-8B-Q4.gguf", "1");
    put("own/Qwen3-8B-Q8.gguf", "1");
    put("own/Qwen3-32B.gguf", "1");
    put("own/small.gguf", "1");
    put("elsewhere/free.gguf", "1");
    put(".ollama/models/blobs/sha256-" HEX_A, "12345");
    put_ollama("registry.ollama.ai/library/llama3/latest", "sha256:" HEX_A, 5, "model");
    put(".lmstudio/models/org/repo/twice.gguf", "1");
    put("more/twice.gguf", "1");
    str dirs[] = {arena_copy(&arena, str_of(at("more")))};
    options.dirs = dirs;
    options.dirs_count = 1;
    str aliases[] = {STR("gpt-*"), STR("Qwen3-32B"), STR("fast"), STR("gpt-4"), STR("small"),
                     STR("Qwen3-8B-Q4"), STR("lost"), STR("nobody")};
    const char *free_path = at("elsewhere/free.gguf"), *own_path = at("own/small.gguf");
    const char *link_path = at("elsewhere/other.gguf");
    assert_int_equal(symlink(own_path, link_path), 0);
    const struct wanted t[] = {
        {"qwen3-8b-q4", "Qwen3-8B-Q4", false},
        {"QWEN3-8B-Q4.GGUF", "Qwen3-8B-Q4", false},
        {"llama3", "llama3:latest", false},
        {"Qwen3-32B:latest", "Qwen3-32B", false},
        {"gpt-4o", "Qwen3-32B", false},
        {"fast", "Qwen3-32B", false},   /* an alias of an alias */
        {"small", "small", false},      /* a model before an alias */
        {"lost", "!no model \"lost\"", false},
        {"qwen3-3", "Qwen3-32B", true}, /* a unique beginning */
        {"qwen3-3", "!no model \"qwen3-3\"; near: Qwen3-32B", false},
        {"qwen3-8b", "!ambiguous: Qwen3-8B-Q", true},
        {"twice", "!ambiguous: twice, twice", false},
        {"smal", "!near: small", false},
        {"QWEN3-8C-Q4", "!near: Qwen3-8B-Q4", false}, /* case is no distance */
        {"8b-q", "!near: Qwen3-8B-Q", false},
        {"zzzz", "!`shoal list` shows", true},
        {free_path, "free", true},
        {free_path, "!no model", false},
        {own_path, "small", true},
        {link_path, "small", true}, /* the same file */
        {"", "!no model", true},
    };
    struct library *l = open_library();
    for (size_t i = 0; i < countof(t); i++)
        check_find(l, &t[i], aliases, countof(aliases));
    library_close(l);
    options.own = STR("/nowhere");
    options.own_only = true;
    l = open_library();
    check_find(l, &(const struct wanted){"x", "!there are no models yet", true}, NULL, 0);
    library_close(l);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(test_our_store_lists_files_sets_and_directories),
        CASE(test_projectors_and_drafts_go_to_the_model_they_resemble),
        CASE(test_ollama_models_are_read_from_their_manifests),
        CASE(test_the_ollama_store_with_weights_is_preferred),
        CASE(test_the_hub_cache_is_read_by_its_main_revision),
        CASE(test_lm_studio_and_further_directories_are_read_two_levels_deep),
        CASE(test_own_models_shadow_equal_names),
        CASE(test_answers_of_checks_are_kept_until_a_file_changes),
        CASE(test_newest_models_come_first),
        CASE(test_a_path_that_cannot_be_looked_at_says_why),
        CASE(test_names_are_found_by_the_rules_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
