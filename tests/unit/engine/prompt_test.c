#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/prompt.h"

/* A frame may hold any kind of request; those about models have no prompt to step. */
static void test_a_request_without_a_prompt_is_refused_whatever_its_kind(void **state)
{
    (void)state;
    static const enum api_kind kinds[] = {API_KIND_LIST, API_KIND_SHOW,
                                          API_KIND_PS, API_KIND_LOAD, API_KIND_UNLOAD};
    for (size_t i = 0; i < countof(kinds); i++) {
        const struct prompt_model m = {.context_max = 100};
        struct api_request rq;
        struct api_error e;
        struct arena a;
        arena_init(&a, 1 << 16);
        api_request_init(&rq);
        rq.kind = kinds[i];
        rq.model = STR("m");
        assert_true(api_request_check(&rq, &e));
        struct job *j = prompt_job(&a, &rq);
        assert_non_null(j);
        assert_false(prompt_make(&m, j, &e));
        assert_int_equal(e.err.code, ERR_REQUEST);
        prompt_job_free(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_without_a_prompt_is_refused_whatever_its_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
