#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "store/hub_ref.h"

static void test_every_form_of_a_reference_is_understood(void **state)
{
    static const struct { const char *text, *origin, *repo, *revision, *quant, *file; } rows[] = {
        {"o/r", "", "o/r", "main", "", ""},
        {"o/r:Q4_K_M", "", "o/r", "main", "Q4_K_M", ""},
        {"o/r@v1.0", "", "o/r", "v1.0", "", ""},
        {"o/r@refs/pr/3:q8", "", "o/r", "refs/pr/3", "q8", ""},
        {"hf.co/o/r:Q8_0", "", "o/r", "main", "Q8_0", ""},
        {"huggingface.co/o/r", "", "o/r", "main", "", ""},
        {"hf.co/o/r/blob/main/a.gguf", "", "o/r", "main", "", "a.gguf"},
        {"https://huggingface.co/o/r", "", "o/r", "main", "", ""},
        {"https://huggingface.co/o/r/tree/dev", "", "o/r", "dev", "", ""},
        {"https://huggingface.co/o/r/blob/main/Q4/a b.gguf", "", "o/r", "main", "",
         "Q4/a b.gguf"},
        {"https://hf.co/o/r/resolve/abc/a.gguf?download=true", "", "o/r", "abc", "", "a.gguf"},
        {"https://mirror.example:8443/o/r/resolve/main/a.gguf", "https://mirror.example:8443",
         "o/r", "main", "", "a.gguf"},
        {"http://127.0.0.1:80/o/r", "http://127.0.0.1:80", "o/r", "main", "", ""},
        {"o/r:file.Q4-00001-of-00002.gguf", "", "o/r", "main", "file.Q4-00001-of-00002.gguf", ""},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct hub_ref r;
        struct err e = {0};
        if (!hub_ref_parse(&r, str_of(rows[i].text), &e))
            fail_msg("%s: %s", rows[i].text, e.text);
        const char *wanted[] = {rows[i].origin, rows[i].repo, rows[i].revision, rows[i].quant,
                                rows[i].file};
        str got[] = {r.origin, r.repo, r.revision, r.quant, r.file};
        for (size_t k = 0; k < countof(got); k++)
            if (!str_eq_z(got[k], wanted[k]))
                fail_msg("%s: part %zu is \"%.*s\"", rows[i].text, k, STR_ARG(got[k]));
    }
}

static void test_what_is_no_reference_is_refused_with_the_forms(void **state)
{
    static const char *const rows[] = {
        "", "model", "o/", "/r", "o/r/x", "o/..", "../r", "o/.r", "o/r:", "o/r@", "o/r@:q",
        "o/r@../x", "o/r@a//b", "o/r@-x", "o/r:a b", "o/r:a\nb", "o r/x", "-o/r", "o/r?x",
        "https://", "https:///o/r", "https://user@host/o/r/blob/main/a.gguf",
        "https://h/o/r/blob/main", "https://h/o/r/blob/main/", "https://h/o/r/what/main/a.gguf",
        "https://h/o/r/blob/../a.gguf", "https://h/o/r/blob/main/a%2e.gguf", "http://h/o/r",
        "ftp://h/o/r", "file:///etc/passwd",
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct hub_ref r;
        struct err e = {0};
        if (hub_ref_parse(&r, str_of(rows[i]), &e))
            fail_msg("\"%s\" was taken", rows[i]);
        assert_int_equal(e.code, ERR_USAGE);
        assert_non_null(strstr(e.text, "expected"));
    }
    struct hub_ref r;
    struct err e = {0};
    assert_false(hub_ref_parse(&r, str_view("o/r\0x", 5), &e));
    assert_false(hub_ref_parse(&r, STR("http://h/o/r"), &e)); /* said whole, not up to the colon */
    assert_non_null(strstr(e.text, "\"http://h/o/r\""));
}

static void test_a_name_of_a_hub_never_leaves_the_store(void **state)
{
    static char longest[HUB_REF_NAME_MAX + 2];
    static const struct { str path; const char *base; } rows[] = {
        {STR_INIT("a.gguf"), "a.gguf"},
        {STR_INIT("Q4_K_M/a-00001-of-00002.gguf"), "a-00001-of-00002.gguf"},
        {STR_INIT("/etc/passwd"), NULL},
        {STR_INIT("../../a.gguf"), NULL}, {STR_INIT("a//b.gguf"), NULL},
        {STR_INIT(".."), NULL}, {STR_INIT("x/.."), NULL}, {STR_INIT("."), NULL},
        {STR_INIT(""), NULL}, {STR_INIT("x/"), NULL}, {STR_INIT(".checked"), NULL},
        {STR_INIT("x/.a.gguf.part"), NULL}, {STR_INIT("a\0b.gguf"), NULL},
        {STR_INIT("a\nb.gguf"), NULL}, {STR_INIT("a\x7f.gguf"), NULL},
        {STR_INIT("a\xc2\x9b" "31m.gguf"), NULL}, {STR_INIT("\xc2\xa0.gguf"), "\xc2\xa0.gguf"},
        {STR_INIT("..\\a.gguf"), NULL}, {STR_INIT("\xff.gguf"), NULL},
        {{longest, sizeof longest - 1}, NULL},
    };
    (void)state;
    memset(longest, 'x', sizeof longest - 1);
    for (size_t i = 0; i < countof(rows); i++) {
        str base;
        struct err e = {0};
        bool ok = hub_ref_base(&base, rows[i].path, &e);
        assert_int_equal(ok, rows[i].base != NULL);
        if (ok)
            assert_true(str_eq_z(base, rows[i].base));
        else
            assert_int_equal(e.code, ERR_FORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form_of_a_reference_is_understood),
        cmocka_unit_test(test_what_is_no_reference_is_refused_with_the_forms),
        cmocka_unit_test(test_a_name_of_a_hub_never_leaves_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
