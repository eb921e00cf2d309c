#define PCRE2_CODE_UNIT_WIDTH 8

#include "text/regex.h"

#include <pcre2.h>
#include <stdlib.h>

struct regex {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
    bool has_jit;
};

void regex_free(struct regex *r)
{
    if (!r)
        return;
    pcre2_jit_stack_free(r->stack);
    pcre2_match_context_free(r->limits);
    pcre2_match_data_free(r->match);
    pcre2_code_free(r->code);
    free(r);
}

bool regex_new(struct regex **out, str pattern, struct err *e)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    struct regex *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_MEMORY, "regex: out of memory");
    r->code = pcre2_compile((PCRE2_SPTR)pattern.p, pattern.len,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C,
                            &code, &at, NULL);
    if (!r->code) {
        char text[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
        err_set(e, ERR_FORMAT, "regex: at byte %zu of %zu: %s", (size_t)at, pattern.len, text);
        goto failed;
    }
    r->match = pcre2_match_data_create(1, NULL);
    r->limits = pcre2_match_context_create(NULL);
    r->has_jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0;
    if (r->has_jit)
        r->stack = pcre2_jit_stack_create((size_t)32 << 10, REGEX_STACK_MAX, NULL);
    if (!r->match || !r->limits || (r->has_jit && !r->stack)) {
        err_set(e, ERR_MEMORY, "regex: out of memory");
        goto failed;
    }
    pcre2_set_match_limit(r->limits, REGEX_STEPS_MAX);
    if (r->has_jit)
        pcre2_jit_stack_assign(r->limits, NULL, r->stack);
    *out = r;
    return true;
failed:
    regex_free(r);
    return false;
}

enum regex_result regex_find(struct regex *r, str subject, size_t from, size_t *start, size_t *end,
                             struct err *e)
{
    PCRE2_SPTR p = (PCRE2_SPTR)(subject.len ? subject.p : "");
    int n = r->has_jit ? pcre2_jit_match(r->code, p, subject.len, from, PCRE2_NO_UTF_CHECK,
                                         r->match, r->limits)
                       : pcre2_match(r->code, p, subject.len, from, PCRE2_NO_UTF_CHECK, r->match,
                                     r->limits);
    if (n == PCRE2_ERROR_NOMATCH)
        return REGEX_NONE;
    if (n < 0) {
        char text[128];
        pcre2_get_error_message(n, (PCRE2_UCHAR *)text, sizeof text);
        err_set(e, ERR_LIMIT, "regex: search in %zu bytes stopped: %s", subject.len, text);
        return REGEX_FAILED;
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(r->match);
    *start = at[0];
    *end = at[1];
    return REGEX_FOUND;
}
