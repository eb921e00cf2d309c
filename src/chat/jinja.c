#include "chat/jinja.h"

#include <stdlib.h>
#include <string.h>

#include "chat/jinja_eval.h"

struct jinja_heap jinja_heap(struct arena *a)
{
    return (struct jinja_heap){.arena = a, .steps_left = JINJA_STEPS_MAX};
}

bool jinja_compile(struct jinja_template **out, str source, struct arena *a, struct err *e)
{
    struct jinja_parser p = {.arena = a, .heap = jinja_heap(a), .e = e};
    struct jinja_node *root;
    struct jinja_template *t = ARENA_NEW(a, struct jinja_template);
    p.heap.steps_left = UINT64_MAX; /* compiling is bounded by source and nodes */
    if (!jinja_lex_init(&p.lexer, source, a, e) || !jinja_parse_all(&p, &root))
        return false;
    if (t == NULL || a->is_full)
        return err_set(e, ERR_LIMIT, "template: out of memory");
    *t = (struct jinja_template){root, p.names, p.names_count, p.mentions, p.mentions_count};
    *out = t;
    return true;
}

bool jinja_reads(const struct jinja_template *t, str variable)
{
    for (uint32_t i = 0; i < t->names_count; i++)
        if (str_eq(t->names[i].text, variable))
            return t->names[i].is_read;
    return false;
}

bool jinja_mentions(const struct jinja_template *t, str name)
{
    for (uint32_t i = 0; i < t->mentions_count; i++)
        if (str_eq(t->mentions[i], name))
            return true;
    return false;
}

/* What the names of t stand for where the template sets none of them. */
static struct jinja_value *globals_of(const struct jinja_template *t, struct jinja_heap *h,
                                      const struct jinja_input *in)
{
    struct jinja_value *globals = jinja_text_alloc(h, t->names_count + (size_t)1, sizeof *globals);
    for (uint32_t i = 0; globals && i < t->names_count; i++) {
        if (!jinja_function_of(t->names[i].text, &globals[i]))
            globals[i].kind = JINJA_UNDEFINED;
        for (size_t k = 0; k < in->vars_count; k++)
            if (str_eq(in->vars[k].name, t->names[i].text))
                globals[i] = in->vars[k].value;
    }
    return globals;
}

bool jinja_run(const struct jinja_template *t, struct jinja_heap *h, const struct jinja_input *in,
               struct jinja_result *out, struct err *e)
{
    struct jinja_scope scope = {0};
    struct jinja_build b = jinja_text_begin(h);
    struct jinja_state s = {.t = t, .h = h, .scope = &scope, .out = &b, .time_s = in->time_s,
                            .input = jinja_value_none(), .e = e};
    s.globals = globals_of(t, h, in);
    *out = (struct jinja_result){0};
    if (!jinja_eval_ok(&s))
        return false;
    bool ok = jinja_exec(&s, t->root->body);
    out->text = jinja_text_end(&b);
    out->is_raised = s.is_raised;
    return ok;
}
