/* Statements, scopes and macros. */
#include <string.h>

#include "chat/jinja_eval.h"

/* ---- Scopes ---- */

static bool bind(struct jinja_state *s, struct jinja_scope *scope, uint32_t name,
                     struct jinja_value v)
{
    for (uint32_t i = 0; i < scope->count; i++)
        if (scope->vars[i].name == name) {
            scope->vars[i].value = v;
            return true;
        }
    if (scope->count == scope->cap) {
        uint32_t cap = scope->cap * 2 + 4;
        struct jinja_binding *vars = jinja_text_alloc(s->h, cap, sizeof *vars);
        if (vars == NULL)
            return jinja_eval_ok(s);
        if (scope->count)
            memcpy(vars, scope->vars, scope->count * sizeof *vars);
        scope->vars = vars;
        scope->cap = cap;
    }
    scope->vars[scope->count++] = (struct jinja_binding){name, v};
    return true;
}

/* An empty scope inside parent: the one given if nobody kept it. */
static struct jinja_scope *inner(struct jinja_state *s, struct jinja_scope *again,
                                 struct jinja_scope *parent)
{
    struct jinja_scope *scope = again && !again->is_kept
                                    ? again : jinja_text_alloc(s->h, 1, sizeof *scope);
    if (scope) {
        scope->count = 0;
        scope->parent = parent;
    }
    return scope;
}

static bool in_scope(struct jinja_state *s, const struct jinja_node *body)
{
    struct jinja_scope *outer = s->scope, *scope = inner(s, NULL, outer);
    if (scope == NULL)
        return jinja_eval_ok(s);
    s->scope = scope;
    bool ok = jinja_exec(s, body);
    s->scope = outer;
    return ok;
}

/* What body prints, as a string, in a scope of its own. */
static bool captured(struct jinja_state *s, const struct jinja_node *body, struct jinja_str *out)
{
    struct jinja_build *outer = s->out, b = jinja_text_begin(s->h);
    s->out = &b;
    bool ok = in_scope(s, body);
    s->out = outer;
    *out = jinja_text_end(&b);
    return ok && jinja_eval_ok(s);
}

/* ---- Assignments ---- */

static bool set_attr(struct jinja_state *s, const struct jinja_node *target, struct jinja_value v)
{
    struct jinja_value ns;
    struct jinja_node name = {.kind = JINJA_NODE_NAME, .line = target->line, .name = target->name,
                              .text = STR("namespace")};
    if (!jinja_eval(s, &name, &ns))
        return false;
    if (ns.kind != JINJA_NAMESPACE)
        return jinja_eval_fail(s, ERR_FORMAT, "cannot assign an attribute of something that is no "
                               "namespace");
    if (str_starts(target->text, STR("_")))
        return jinja_eval_fail(s, ERR_FORMAT, "a namespace's attribute cannot begin with '_'");
    jinja_value_put(s->h, ns, jinja_value_text(s->h, target->text, 0), v);
    return jinja_eval_ok(s);
}

static bool assign(struct jinja_state *s, const struct jinja_node *target, struct jinja_value v)
{
    struct jinja_list *items;
    uint32_t count = 0, i = 0;
    if (target->kind == JINJA_NODE_NAME)
        return bind(s, s->scope, target->name, v);
    if (target->kind == JINJA_NODE_NS_TARGET)
        return set_attr(s, target, v);
    if (!jinja_eval_items(s, v, &items))
        return false;
    for (const struct jinja_node *t = target->first; t; t = t->next)
        count++;
    if (items->count != count)
        return jinja_eval_fail(s, ERR_FORMAT, "%u values cannot be unpacked into %u variables",
                               items->count, count);
    for (const struct jinja_node *t = target->first; t; t = t->next)
        if (!assign(s, t, items->items[i++]))
            return false;
    return true;
}

static bool set(struct jinja_state *s, const struct jinja_node *n)
{
    struct jinja_value v;
    return jinja_eval(s, n->b, &v) && assign(s, n->a, v);
}

/* The chain of filters n over text. */
static bool filtered(struct jinja_state *s, const struct jinja_node *n, struct jinja_str text,
                     struct jinja_value *out)
{
    struct jinja_value outer = s->input;
    s->input = *out = jinja_value_str(text);
    bool ok = n == NULL || jinja_eval(s, n, out);
    s->input = outer;
    return ok;
}

static bool set_block(struct jinja_state *s, const struct jinja_node *n)
{
    struct jinja_str text;
    struct jinja_value v;
    return captured(s, n->body, &text) && filtered(s, n->b, text, &v) && assign(s, n->a, v);
}

static bool print(struct jinja_state *s, struct jinja_value v)
{
    if (!jinja_print_str(s->out, v))
        return jinja_eval_fail(s, ERR_LIMIT, "a value nests deeper than %d to be printed",
                               JINJA_VALUE_DEPTH_MAX);
    return jinja_eval_ok(s);
}

static bool filter_block(struct jinja_state *s, const struct jinja_node *n)
{
    struct jinja_str text;
    struct jinja_value v;
    return captured(s, n->body, &text) && filtered(s, n->b, text, &v) && print(s, v);
}

/* ---- Loops ---- */

bool jinja_exec_pull(struct jinja_state *s, struct jinja_loop *loop, bool *more)
{
    struct jinja_scope *outer = s->scope;
    struct jinja_value holds = jinja_value_bool(false), list = {.kind = JINJA_LIST,
                                                                .u.list = loop->items};
    *more = false;
    if (loop->source == NULL)
        return true;
    s->scope = inner(s, NULL, loop->scope);
    bool ok = s->scope != NULL;
    while (ok && !jinja_value_truth(holds) && loop->source_next < loop->source->count) {
        struct jinja_value item = loop->source->items[loop->source_next++];
        ok = assign(s, loop->node->a, item) && jinja_eval(s, loop->node->c, &holds);
        if (ok && jinja_value_truth(holds))
            jinja_value_push(s->h, list, item);
    }
    s->scope = outer;
    *more = jinja_value_truth(holds);
    return ok && jinja_eval_ok(s);
}

static bool loop_round(struct jinja_state *s, const struct jinja_node *n, struct jinja_loop *loop)
{
    struct jinja_value self = {.kind = JINJA_LOOP, .u.loop = loop};
    jinja_text_charge(s->h, 1); /* a body without nodes costs a step too */
    bool ok = jinja_eval_ok(s) && assign(s, n->a, loop->items->items[loop->index0]) &&
              bind(s, s->scope, n->name, self) && jinja_exec(s, n->body);
    return ok;
}

static bool loop_start(struct jinja_state *s, const struct jinja_node *n, struct jinja_loop **out)
{
    struct jinja_value v;
    struct jinja_list *items;
    struct jinja_loop *loop = *out = jinja_text_alloc(s->h, 1, sizeof *loop);
    if (!jinja_eval(s, n->b, &v) || !jinja_eval_items(s, v, &items) || !jinja_eval_ok(s))
        return false;
    *loop = (struct jinja_loop){.items = items, .node = n, .scope = s->scope};
    if (n->c) {
        loop->source = items;
        loop->items = jinja_value_list(s->h, JINJA_LIST_LIST, items->origin).u.list;
    }
    return jinja_eval_ok(s);
}

static bool loop(struct jinja_state *s, const struct jinja_node *n)
{
    struct jinja_loop *l;
    struct jinja_scope *outer = s->scope, *scope = NULL;
    bool ok = loop_start(s, n, &l), more = true;
    while (ok) {
        if (l->index0 == l->items->count && !(ok = jinja_exec_pull(s, l, &more)))
            break;
        if (l->index0 == l->items->count)
            break;
        scope = inner(s, scope, outer);
        if (scope == NULL)
            return jinja_eval_ok(s);
        s->scope = scope;
        ok = loop_round(s, n, l);
        s->scope = outer;
        bool is_left = s->flow == JINJA_FLOW_BREAK;
        s->flow = JINJA_FLOW_ON;
        if (is_left)
            return ok;
        l->index0++;
    }
    return ok && (l->index0 > 0 || n->c2 == NULL || in_scope(s, n->c2));
}

static bool branch(struct jinja_state *s, const struct jinja_node *n)
{
    struct jinja_value v = jinja_value_bool(true);
    for (const struct jinja_node *b = n->first; b; b = b->next) {
        if (b->a && !jinja_eval(s, b->a, &v))
            return false;
        if (b->a == NULL || jinja_value_truth(v))
            return jinja_exec(s, b->body);
    }
    return true;
}

/* ---- Macros ---- */

static bool define(struct jinja_state *s, const struct jinja_node *n)
{
    struct jinja_macro *m = jinja_text_alloc(s->h, 1, sizeof *m);
    if (m == NULL)
        return jinja_eval_ok(s);
    *m = (struct jinja_macro){n, s->scope};
    for (struct jinja_scope *scope = s->scope; scope; scope = scope->parent)
        scope->is_kept = true;
    return bind(s, s->scope, n->name,
                           (struct jinja_value){.kind = JINJA_MACRO, .u.macro = m});
}

static const struct jinja_value *named(const struct jinja_args *args, str name)
{
    for (uint32_t i = 0; i < args->named_count; i++)
        if (str_eq(args->named[i].name, name))
            return &args->named[i].value;
    return NULL;
}

/* Binds the parameters in the macro's scope, which is s->scope; defaults see earlier ones. */
static bool parameters(struct jinja_state *s, const struct jinja_node *n,
                       const struct jinja_args *args)
{
    uint32_t count = 0, used = 0;
    for (const struct jinja_node *p = n->first; p; p = p->next, count++) {
        const struct jinja_value *given = named(args, p->text);
        struct jinja_value v = jinja_eval_hint("a macro's parameter was not provided");
        if (count < args->plain_count)
            v = args->plain[count];
        else if (given)
            v = *given;
        else if (p->a && !jinja_eval(s, p->a, &v))
            return false;
        used += count >= args->plain_count && given;
        if (!bind(s, s->scope, p->name, v))
            return false;
    }
    if (args->plain_count > count)
        return jinja_eval_fail(s, ERR_FORMAT, "macro '%.*s' takes not more than %u arguments",
                               STR_ARG(n->text), count);
    if (used != args->named_count)
        return jinja_eval_fail(s, ERR_FORMAT, "macro '%.*s' got a named argument that it does not "
                               "take or has already", STR_ARG(n->text));
    return true;
}

bool jinja_exec_macro(struct jinja_state *s, const struct jinja_macro *m,
                     const struct jinja_args *args, struct jinja_value *out)
{
    struct jinja_scope *outer = s->scope, *scope = inner(s, NULL, m->scope);
    struct jinja_build *outer_out = s->out, b = jinja_text_begin(s->h);
    if (scope == NULL)
        return jinja_eval_ok(s);
    s->scope = scope;
    s->out = &b;
    bool ok = parameters(s, m->node, args) && jinja_exec(s, m->node->body);
    s->scope = outer;
    s->out = outer_out;
    *out = jinja_value_str(jinja_text_end(&b));
    return ok && jinja_eval_ok(s);
}

/* ---- Statements ---- */

static bool statement(struct jinja_state *s, const struct jinja_node *n)
{
    struct jinja_value v;
    switch ((enum jinja_node_kind)n->kind) {
    case JINJA_NODE_DATA:
        jinja_text_add_str(s->out, n->value.u.s);
        return true;
    case JINJA_NODE_PRINT:
        return jinja_eval(s, n->a, &v) && print(s, v);
    case JINJA_NODE_IF:
        return branch(s, n);
    case JINJA_NODE_FOR:
        return loop(s, n);
    case JINJA_NODE_SET:
        return set(s, n);
    case JINJA_NODE_SET_BLOCK:
        return set_block(s, n);
    case JINJA_NODE_MACRO:
        return define(s, n);
    case JINJA_NODE_FILTER_BLOCK:
        return filter_block(s, n);
    case JINJA_NODE_SCOPE:
        return in_scope(s, n->body);
    case JINJA_NODE_BREAK:
        s->flow = JINJA_FLOW_BREAK;
        return true;
    case JINJA_NODE_CONTINUE:
        s->flow = JINJA_FLOW_CONTINUE;
        return true;
    case JINJA_NODE_CONST: case JINJA_NODE_NAME: case JINJA_NODE_LIST: case JINJA_NODE_TUPLE:
    case JINJA_NODE_DICT: case JINJA_NODE_ATTR: case JINJA_NODE_ITEM: case JINJA_NODE_SLICE:
    case JINJA_NODE_CALL: case JINJA_NODE_KEYWORD: case JINJA_NODE_FILTER: case JINJA_NODE_TEST:
    case JINJA_NODE_NOT: case JINJA_NODE_NEG: case JINJA_NODE_POS: case JINJA_NODE_AND:
    case JINJA_NODE_OR: case JINJA_NODE_CONCAT: case JINJA_NODE_COND: case JINJA_NODE_COMPARE:
    case JINJA_NODE_MATH: case JINJA_NODE_BRANCH: case JINJA_NODE_PARAM: case JINJA_NODE_NS_TARGET:
        break;
    }
    must(n->kind >= JINJA_NODE_DATA); /* nor an expression where a statement stands */
    return false;
}

bool jinja_exec(struct jinja_state *s, const struct jinja_node *first)
{
    if (s->depth == JINJA_CALLS_MAX)
        return jinja_eval_fail(s, ERR_LIMIT, "calls and statements nest deeper than %u",
                               JINJA_CALLS_MAX);
    s->depth++;
    bool ok = true;
    for (const struct jinja_node *n = first; n && ok && s->flow == JINJA_FLOW_ON; n = n->next) {
        s->line = n->line;
        jinja_text_charge(s->h, 1);
        ok = statement(s, n) && jinja_eval_ok(s);
    }
    s->depth--;
    return ok;
}
