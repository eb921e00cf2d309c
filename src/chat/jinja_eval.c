/* Expressions. */
#include "chat/jinja_eval.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Errors ---- */

bool jinja_eval_fail(struct jinja_state *s, enum err_code code, const char *format, ...)
{
    char text[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return err_set(s->e, code, "template line %u: %s", s->line, text);
}

bool jinja_eval_ok(struct jinja_state *s)
{
    switch (s->h->stop) {
    case JINJA_STOP_NONE:
        return true;
    case JINJA_STOP_MEMORY:
        return jinja_eval_fail(s, ERR_LIMIT, "the template needs more than %zu MiB",
                               s->h->arena->bytes_max >> 20);
    case JINJA_STOP_STEPS:
        return jinja_eval_fail(s, ERR_LIMIT, "the template takes more than %u steps",
                               JINJA_STEPS_MAX);
    case JINJA_STOP_SIZE:
        break;
    }
    return jinja_eval_fail(s, ERR_LIMIT, "a text of the template is longer than %zu MiB",
                           JINJA_TEXT_MAX >> 20);
}

struct jinja_value jinja_eval_hint(const char *text)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .flavour = JINJA_MISSING_HINT,
                                .u.hint = text};
}

bool jinja_eval_undefined(struct jinja_state *s, struct jinja_value v)
{
    struct jinja_value of = {.kind = v.owner};
    switch ((enum jinja_missing)v.flavour) {
    case JINJA_MISSING_HINT:
        return jinja_eval_fail(s, ERR_FORMAT, "%s", v.u.hint);
    case JINJA_MISSING_NAME:
        return jinja_eval_fail(s, ERR_FORMAT, "'%.*s' is undefined",
                               (int)base_min(v.u.missing->len, 80), v.u.missing->p);
    case JINJA_MISSING_MEMBER:
        break;
    }
    if (v.u.missing == NULL)
        return jinja_eval_fail(s, ERR_FORMAT, "%s object has no such element",
                               jinja_value_type(of));
    return jinja_eval_fail(s, ERR_FORMAT, "'%s object' has no attribute '%.*s'",
                           jinja_value_type(of), (int)base_min(v.u.missing->len, 80),
                           v.u.missing->p);
}

/* ---- Names, attributes, items ---- */

static void name(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    for (const struct jinja_scope *scope = s->scope; scope; scope = scope->parent)
        for (uint32_t i = scope->count; i-- > 0;)
            if (scope->vars[i].name == n->name) {
                *out = scope->vars[i].value;
                return;
            }
    *out = s->globals[n->name];
    if (out->kind == JINJA_UNDEFINED)
        *out = (struct jinja_value){.kind = JINJA_UNDEFINED, .flavour = JINJA_MISSING_NAME,
                                    .u.missing = &n->text};
}

static struct jinja_value lacking(struct jinja_value obj, const str *name_of)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .flavour = JINJA_MISSING_MEMBER,
                                .owner = obj.kind, .u.missing = name_of};
}

static bool loop_attr(struct jinja_state *s, struct jinja_loop *loop, str attr,
                      struct jinja_value *out)
{
    static const char *const needs_all[] = {"length", "revindex", "revindex0"};
    static const char *const needs_next[] = {"last", "nextitem"};
    bool more = loop->source != NULL;
    for (size_t i = 0; i < countof(needs_all); i++)
        while (more && str_eq_z(attr, needs_all[i]))
            if (!jinja_exec_pull(s, loop, &more))
                return false;
    uint32_t at = loop->index0, next = at + 1;
    for (size_t i = 0; i < countof(needs_next); i++)
        if (more && next == loop->items->count && str_eq_z(attr, needs_next[i]) &&
            !jinja_exec_pull(s, loop, &more))
            return false;
    int64_t count = loop->items->count;
    const struct {
        const char *name;
        struct jinja_value v;
    } rows[] = {
        {"index", jinja_value_int(next)}, {"index0", jinja_value_int(at)},
        {"first", jinja_value_bool(at == 0)}, {"last", jinja_value_bool(next == count)},
        {"length", jinja_value_int(count)}, {"revindex", jinja_value_int(count - at)},
        {"revindex0", jinja_value_int(count - next)}, {"depth", jinja_value_int(1)},
        {"depth0", jinja_value_int(0)},
        {"previtem", at ? loop->items->items[at - 1]
                        : jinja_eval_hint("there is no previous item")},
        {"nextitem", next < count ? loop->items->items[next]
                                  : jinja_eval_hint("there is no next item")}};
    for (size_t i = 0; i < countof(rows); i++)
        if (str_eq_z(attr, rows[i].name)) {
            *out = rows[i].v;
            return true;
        }
    struct jinja_value self = {.kind = JINJA_LOOP, .u.loop = loop};
    if (!jinja_method_bind(s, self, attr, out))
        *out = lacking(self, NULL);
    return true;
}

/* Python's own attributes come first, so a method hides a key of the same name; names with two
 * underscores around them are what the sandbox hides. */
static bool attr(struct jinja_state *s, struct jinja_value obj, const str *attr_name, str key,
                 struct jinja_value *out)
{
    *out = lacking(obj, attr_name);
    if (obj.kind == JINJA_UNDEFINED)
        return jinja_eval_undefined(s, obj);
    if (obj.kind == JINJA_LOOP)
        return loop_attr(s, obj.u.loop, key, out);
    if ((str_starts(key, STR("__")) && str_ends(key, STR("__"))) ||
        jinja_method_bind(s, obj, key, out) ||
        (obj.kind != JINJA_DICT && obj.kind != JINJA_NAMESPACE))
        return true;
    const struct jinja_value *v = jinja_value_find_name(obj.u.dict, key);
    if (v)
        *out = *v;
    return true;
}

bool jinja_eval_attr(struct jinja_state *s, struct jinja_value obj, str key,
                     struct jinja_value *out)
{
    return attr(s, obj, NULL, key, out);
}

/* A list's or string's element, if the index is an integer inside. */
static bool element(struct jinja_state *s, struct jinja_value obj, struct jinja_value index,
                    struct jinja_value *out)
{
    int64_t i;
    if (!jinja_op_int(index, &i))
        return false;
    if (obj.kind == JINJA_STRING) {
        int64_t len = (int64_t)jinja_text_length(s->h, obj.u.s);
        i += i < 0 ? len : 0;
        if (i < 0 || i >= len)
            return false;
        *out = jinja_value_str(jinja_text_slice(s->h, obj.u.s, i, i + 1, 1));
        return true;
    }
    if (obj.kind != JINJA_LIST || obj.flavour > JINJA_LIST_RANGE)
        return false;
    i += i < 0 ? obj.u.list->count : 0;
    if (i < 0 || i >= obj.u.list->count)
        return false;
    *out = obj.u.list->items[i];
    return true;
}

bool jinja_eval_item(struct jinja_state *s, struct jinja_value obj, struct jinja_value index,
                     struct jinja_value *out)
{
    *out = lacking(obj, NULL);
    if (obj.kind == JINJA_UNDEFINED)
        return jinja_eval_undefined(s, obj);
    if (obj.kind == JINJA_DICT && jinja_value_is_hashable(index)) {
        const struct jinja_value *v = jinja_value_find(obj.u.dict, index);
        if (v) {
            *out = *v;
            return true;
        }
    }
    if (element(s, obj, index, out) || index.kind != JINJA_STRING)
        return jinja_eval_ok(s);
    str key = jinja_text_bytes(index.u.s);
    str *copy = jinja_text_alloc(s->h, 1, sizeof *copy);
    if (copy)
        *copy = key;
    return jinja_eval_ok(s) && attr(s, obj, copy, key, out);
}

static bool item(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value obj, index, part[3];
    if (!jinja_eval(s, n->a, &obj))
        return false;
    if (n->b->kind != JINJA_NODE_SLICE)
        return jinja_eval(s, n->b, &index) && jinja_eval_item(s, obj, index, out);
    const struct jinja_node *nodes[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++) {
        part[i] = jinja_value_none();
        if (nodes[i] && !jinja_eval(s, nodes[i], &part[i]))
            return false;
    }
    s->line = n->line;
    return obj.kind == JINJA_UNDEFINED ? jinja_eval_undefined(s, obj)
                                       : jinja_op_slice(s, obj, part, out);
}

/* ---- Values of other kinds ---- */

bool jinja_eval_str(struct jinja_state *s, struct jinja_value v, struct jinja_str *out)
{
    if (v.kind == JINJA_STRING) {
        *out = v.u.s;
        return true;
    }
    struct jinja_build b = jinja_text_begin(s->h);
    if (!jinja_print_str(&b, v))
        return jinja_eval_fail(s, ERR_LIMIT, "a value nests deeper than %d to be printed",
                               JINJA_VALUE_DEPTH_MAX);
    *out = jinja_text_end(&b);
    return jinja_eval_ok(s);
}

bool jinja_eval_force(struct jinja_state *s, struct jinja_list *l)
{
    struct jinja_call *call = l->later;
    struct jinja_value made;
    l->later = NULL;
    if (call == NULL)
        return true;
    if (!call->later(call, &made) || !jinja_eval_ok(s))
        return false;
    l->items = made.u.list->items;
    l->count = made.u.list->count;
    l->cap = made.u.list->cap;
    return true;
}

bool jinja_eval_defer(struct jinja_call *c, uint32_t origin,
                      bool (*later)(struct jinja_call *c, struct jinja_value *out),
                      struct jinja_value *out)
{
    struct jinja_call *copy = jinja_text_alloc(c->s->h, 1, sizeof *copy);
    *out = jinja_value_list(c->s->h, JINJA_LIST_ITERATOR, origin);
    if (!jinja_eval_ok(c->s))
        return false;
    *copy = *c;
    copy->later = later;
    out->u.list->later = copy;
    return true;
}

static bool characters(struct jinja_state *s, struct jinja_str text, struct jinja_value list)
{
    str bytes = jinja_text_bytes(text);
    uint32_t c;
    for (size_t at = 0, len; at < bytes.len && s->h->stop == JINJA_STOP_NONE; at += len) {
        len = str_utf8_decode(str_from(bytes, at), &c);
        jinja_text_charge(s->h, 1);
        jinja_value_push(s->h, list, jinja_value_str(jinja_text_cut(text, at, at + len)));
    }
    return jinja_eval_ok(s);
}

bool jinja_eval_items(struct jinja_state *s, struct jinja_value v, struct jinja_list **out)
{
    struct jinja_value list;
    if (v.kind == JINJA_LIST && v.flavour != JINJA_LIST_ITERATOR) {
        *out = v.u.list;
        return true;
    }
    if (v.kind == JINJA_LIST) {
        if (!jinja_eval_force(s, v.u.list))
            return false;
        list = jinja_value_copy(s->h, v, JINJA_LIST_LIST);
    } else if (v.kind == JINJA_STRING || v.kind == JINJA_UNDEFINED || v.kind == JINJA_DICT) {
        list = jinja_value_list(s->h, JINJA_LIST_LIST,
                                v.kind == JINJA_STRING ? jinja_text_taint(v.u.s)
                                : v.kind == JINJA_DICT ? v.u.dict->origin : 0);
        if (!jinja_eval_ok(s) || (v.kind == JINJA_STRING && !characters(s, v.u.s, list)))
            return false;
        for (uint32_t i = 0; v.kind == JINJA_DICT && i < v.u.dict->count; i++)
            jinja_value_push(s->h, list, v.u.dict->entries[i].key);
    } else {
        return jinja_eval_fail(s, ERR_FORMAT, "'%s' object is not iterable", jinja_value_type(v));
    }
    *out = list.u.list;
    return jinja_eval_ok(s);
}

bool jinja_eval_len(struct jinja_state *s, struct jinja_value v, size_t *out)
{
    *out = 0;
    if (v.kind == JINJA_STRING)
        *out = jinja_text_length(s->h, v.u.s);
    else if (v.kind == JINJA_LIST && v.flavour != JINJA_LIST_ITERATOR)
        *out = v.u.list->count;
    else if (v.kind == JINJA_DICT)
        *out = v.u.dict->count;
    else if (v.kind != JINJA_UNDEFINED)
        return jinja_eval_fail(s, ERR_FORMAT, "object of type '%s' has no len()",
                               jinja_value_type(v));
    return jinja_eval_ok(s);
}

static bool sequence(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value v;
    *out = jinja_value_list(s->h, n->kind == JINJA_NODE_LIST ? JINJA_LIST_LIST : JINJA_LIST_TUPLE,
                            0);
    for (const struct jinja_node *i = n->first; i; i = i->next) {
        if (!jinja_eval(s, i, &v))
            return false;
        jinja_value_push(s->h, *out, v);
    }
    return true;
}

static bool dict(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value key, v;
    *out = jinja_value_dict(s->h, 0);
    for (const struct jinja_node *i = n->first; i; i = i->next->next) {
        if (!jinja_eval(s, i, &key) || !jinja_eval(s, i->next, &v))
            return false;
        if (!jinja_value_is_hashable(key))
            return jinja_eval_fail(s, ERR_FORMAT, "unhashable type: '%s'", jinja_value_type(key));
        jinja_value_put(s->h, *out, key, v);
    }
    return true;
}

/* ---- Calls ---- */

static bool arguments(struct jinja_state *s, const struct jinja_node *first,
                      struct jinja_args *out)
{
    uint32_t count = 0;
    *out = (struct jinja_args){0};
    for (const struct jinja_node *i = first; i; i = i->next)
        count++;
    if (count == 0)
        return true;
    out->plain = jinja_text_alloc(s->h, count, sizeof *out->plain);
    out->named = jinja_text_alloc(s->h, count, sizeof *out->named);
    if (!jinja_eval_ok(s))
        return false;
    for (const struct jinja_node *i = first; i; i = i->next) {
        bool is_named = i->kind == JINJA_NODE_KEYWORD;
        struct jinja_value v;
        if (!jinja_eval(s, is_named ? i->a : i, &v))
            return false;
        if (is_named)
            out->named[out->named_count++] = (struct jinja_named){i->text, v};
        else
            out->plain[out->plain_count++] = v;
    }
    return true;
}

static bool too_many(struct jinja_state *s, const struct jinja_callee *callee, uint32_t count)
{
    return jinja_eval_fail(s, ERR_FORMAT, "'%s' does not take %u arguments", callee->name, count);
}

/* Puts named arguments into their places; the words of params are the names. */
static bool place(struct jinja_call *c, const struct jinja_callee *callee,
                  const struct jinja_args *args)
{
    str rest = str_of(callee->params), word;
    uint32_t count = 0;
    for (; str_split(&rest, ' ', &word); count++) {
        must(count < JINJA_PARAMS_MAX);
        if (count < args->plain_count) {
            c->arg[count] = args->plain[count];
            c->given |= 1u << count;
        }
        for (uint32_t i = 0; i < args->named_count; i++) {
            if (!str_eq(args->named[i].name, word))
                continue;
            if (jinja_call_has(c, count))
                return jinja_eval_fail(c->s, ERR_FORMAT, "'%s' gets '%.*s' twice", callee->name,
                                       STR_ARG(word));
            c->arg[count] = args->named[i].value;
            c->given |= 1u << count;
        }
    }
    if (args->plain_count > count)
        return too_many(c->s, callee, args->plain_count);
    for (uint32_t i = 0; i < args->named_count; i++) {
        bool is_known = false;
        rest = str_of(callee->params);
        while (str_split(&rest, ' ', &word))
            is_known = is_known || str_eq(args->named[i].name, word);
        if (!is_known)
            return jinja_eval_fail(c->s, ERR_FORMAT, "'%s' has no parameter '%.*s'", callee->name,
                                   (int)base_min(args->named[i].name.len, 60),
                                   args->named[i].name.p);
    }
    for (uint32_t i = 0; i < callee->required; i++)
        if (!jinja_call_has(c, i))
            return jinja_eval_fail(c->s, ERR_FORMAT, "'%s' needs at least %u arguments",
                                   callee->name, callee->required);
    return true;
}

bool jinja_eval_call(struct jinja_state *s, const struct jinja_callee *callee,
                    struct jinja_value self, const struct jinja_args *args,
                    struct jinja_value *out)
{
    struct jinja_args *kept = NULL;
    struct jinja_call c = {.s = s, .name = callee->name, .self = self, .args = args,
                           .which = callee->which};
    if (callee->function == NULL)
        return jinja_eval_fail(s, ERR_UNSUPPORTED, "'%s' is not supported", callee->name);
    if (strcmp(callee->params, "...") != 0) {
        if (!place(&c, callee, args))
            return false;
    } else { /* the call may be put off: its arguments have to stay */
        kept = jinja_text_alloc(s->h, 1, sizeof *kept);
        if (kept == NULL)
            return jinja_eval_ok(s);
        *kept = *args;
        c.args = kept;
    }
    return callee->function(&c, out) && jinja_eval_ok(s);
}

static bool call(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value callee;
    struct jinja_args args;
    if (!jinja_eval(s, n->a, &callee) || !arguments(s, n->first, &args))
        return false;
    s->line = n->line;
    switch ((enum jinja_kind)callee.kind) {
    case JINJA_MACRO:
        return jinja_exec_macro(s, callee.u.macro, &args, out);
    case JINJA_FUNCTION:
        return jinja_function_run(s, (enum jinja_function)callee.flavour, &args, out);
    case JINJA_METHOD:
        return jinja_method_run(s, callee.u.method, &args, out);
    case JINJA_UNDEFINED:
        return jinja_eval_undefined(s, callee);
    case JINJA_NONE: case JINJA_BOOL: case JINJA_INT: case JINJA_BIG: case JINJA_FLOAT:
    case JINJA_STRING: case JINJA_LIST: case JINJA_DICT: case JINJA_NAMESPACE: case JINJA_LOOP:
        break;
    }
    return jinja_eval_fail(s, ERR_FORMAT, "'%s' object is not callable",
                           jinja_value_type(callee));
}

static bool filter(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value self = s->input;
    struct jinja_args args;
    if ((n->a && !jinja_eval(s, n->a, &self)) || !arguments(s, n->first, &args))
        return false;
    s->line = n->line;
    if (n->row < 0)
        return jinja_eval_fail(s, ERR_UNSUPPORTED, "filter '%.*s' is not supported",
                               (int)base_min(n->text.len, 60), n->text.p);
    return jinja_filter_run(s, n->row, self, &args, out);
}

static bool test(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value self;
    struct jinja_args args;
    bool holds;
    if (!jinja_eval(s, n->a, &self) || !arguments(s, n->first, &args))
        return false;
    s->line = n->line;
    if (n->row < 0)
        return jinja_eval_fail(s, ERR_UNSUPPORTED, "test '%.*s' is not supported",
                               (int)base_min(n->text.len, 60), n->text.p);
    if (!jinja_check_run(s, n->row, self, &args, &holds))
        return false;
    *out = jinja_value_bool(holds);
    return true;
}

/* ---- Operators ---- */

static bool logic(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    for (const struct jinja_node *i = n->first; i; i = i->next) {
        if (!jinja_eval(s, i, out))
            return false;
        if (jinja_value_truth(*out) == (n->kind == JINJA_NODE_OR))
            break;
    }
    return true;
}

static bool compare(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value left, right;
    bool holds = true;
    if (!jinja_eval(s, n->first, &left))
        return false;
    for (const struct jinja_node *i = n->first->next; i && holds; i = i->next) {
        if (!jinja_eval(s, i, &right))
            return false;
        s->line = n->line;
        if (!jinja_op_compare(s, (enum jinja_op)i->op, left, right, &holds))
            return false;
        left = right;
    }
    *out = jinja_value_bool(holds);
    return true;
}

static bool math(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value right;
    if (!jinja_eval(s, n->first, out))
        return false;
    for (const struct jinja_node *i = n->first->next; i; i = i->next) {
        if (!jinja_eval(s, i, &right))
            return false;
        s->line = n->line;
        if (!jinja_op_math(s, (enum jinja_op)i->op, *out, right, out))
            return false;
    }
    return true;
}

static bool concat(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_str all = {0}, text;
    struct jinja_value v;
    for (const struct jinja_node *i = n->first; i; i = i->next) {
        if (!jinja_eval(s, i, &v) || !jinja_eval_str(s, v, &text))
            return false;
        all = jinja_text_concat(s->h, all, text);
    }
    *out = jinja_value_str(all);
    return true;
}

static bool condition(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value v;
    if (!jinja_eval(s, n->a, &v))
        return false;
    if (jinja_value_truth(v))
        return jinja_eval(s, n->b, out);
    if (n->c)
        return jinja_eval(s, n->c, out);
    *out = jinja_eval_hint("an inline if was false and has no else");
    return true;
}

static bool sign(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value v;
    if (!jinja_eval(s, n->a, &v))
        return false;
    if (n->kind == JINJA_NODE_NEG)
        return jinja_op_negate(s, v, out);
    /* +x of a number is the number; True becomes 1. */
    return jinja_op_math(s, JINJA_OP_ADD, jinja_value_int(0), v, out);
}

static bool negation(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value v;
    if (!jinja_eval(s, n->a, &v))
        return false;
    *out = jinja_value_bool(!jinja_value_truth(v));
    return true;
}

static bool member(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value obj;
    if (!jinja_eval(s, n->a, &obj))
        return false;
    s->line = n->line;
    return attr(s, obj, &n->text, n->text, out);
}

static bool evaluate(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    switch ((enum jinja_node_kind)n->kind) {
    case JINJA_NODE_CONST:
        *out = n->value;
        return true;
    case JINJA_NODE_NAME:
        name(s, n, out);
        return true;
    case JINJA_NODE_LIST: case JINJA_NODE_TUPLE:
        return sequence(s, n, out);
    case JINJA_NODE_DICT:
        return dict(s, n, out);
    case JINJA_NODE_ATTR:
        return member(s, n, out);
    case JINJA_NODE_ITEM:
        return item(s, n, out);
    case JINJA_NODE_CALL:
        return call(s, n, out);
    case JINJA_NODE_FILTER:
        return filter(s, n, out);
    case JINJA_NODE_TEST:
        return test(s, n, out);
    case JINJA_NODE_NOT:
        return negation(s, n, out);
    case JINJA_NODE_NEG: case JINJA_NODE_POS:
        return sign(s, n, out);
    case JINJA_NODE_AND: case JINJA_NODE_OR:
        return logic(s, n, out);
    case JINJA_NODE_CONCAT:
        return concat(s, n, out);
    case JINJA_NODE_COND:
        return condition(s, n, out);
    case JINJA_NODE_COMPARE:
        return compare(s, n, out);
    case JINJA_NODE_MATH:
        return math(s, n, out);
    case JINJA_NODE_SLICE: case JINJA_NODE_KEYWORD: case JINJA_NODE_DATA: case JINJA_NODE_PRINT:
    case JINJA_NODE_IF: case JINJA_NODE_BRANCH: case JINJA_NODE_FOR: case JINJA_NODE_SET:
    case JINJA_NODE_SET_BLOCK: case JINJA_NODE_MACRO: case JINJA_NODE_PARAM:
    case JINJA_NODE_FILTER_BLOCK: case JINJA_NODE_SCOPE: case JINJA_NODE_BREAK:
    case JINJA_NODE_CONTINUE: case JINJA_NODE_NS_TARGET:
        break;
    }
    must(n->kind < JINJA_NODE_DATA); /* the parser puts no statement into an expression */
    return false;
}

bool jinja_eval(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out)
{
    s->line = n->line;
    if (s->depth == JINJA_CALLS_MAX)
        return jinja_eval_fail(s, ERR_LIMIT, "calls and expressions nest deeper than %u",
                               JINJA_CALLS_MAX);
    s->depth++;
    jinja_text_charge(s->h, 1);
    bool ok = evaluate(s, n, out);
    s->depth--;
    return ok && jinja_eval_ok(s);
}
