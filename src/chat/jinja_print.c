/* str() and repr() of values. */
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "chat/jinja_eval.h"

size_t jinja_print_float(char out[JSON_NUMBER_MAX], double f)
{
    if (isfinite(f))
        return json_format_double(out, f);
    return (size_t)snprintf(out, JSON_NUMBER_MAX, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
}

static bool repr(struct jinja_build *b, struct jinja_value v, unsigned depth);

static bool repr_items(struct jinja_build *b, const struct jinja_list *l, unsigned depth)
{
    for (uint32_t i = 0; i < l->count && b->h->stop == JINJA_STOP_NONE; i++) {
        if (i)
            jinja_text_add(b, STR(", "), l->origin);
        if (!repr(b, l->items[i], depth + 1))
            return false;
    }
    return true;
}

static bool repr_list(struct jinja_build *b, struct jinja_value v, unsigned depth)
{
    static const char *const open[] = {"[", "(", "", "dict_keys([", "dict_values([",
                                       "dict_items(["};
    static const char *const close[] = {"]", ")", "", "])", "])", "])"};
    const struct jinja_list *l = v.u.list;
    char text[96];
    if (v.flavour == JINJA_LIST_RANGE) {
        int len = snprintf(text, sizeof text, "range(%lld, %lld", (long long)l->start,
                           (long long)l->stop);
        if (l->step != 1)
            len += snprintf(text + len, sizeof text - (size_t)len, ", %lld", (long long)l->step);
        jinja_text_add(b, (str){text, (size_t)len}, l->origin);
        jinja_text_add(b, STR(")"), l->origin);
        return true;
    }
    if (v.flavour == JINJA_LIST_ITERATOR) {
        jinja_text_add(b, STR("<generator object>"), l->origin);
        return true;
    }
    jinja_text_add(b, str_of(open[v.flavour]), l->origin);
    if (!repr_items(b, l, depth))
        return false;
    if (v.flavour == JINJA_LIST_TUPLE && l->count == 1)
        jinja_text_add(b, STR(","), l->origin);
    jinja_text_add(b, str_of(close[v.flavour]), l->origin);
    return true;
}

static bool repr_dict(struct jinja_build *b, const struct jinja_dict *d, unsigned depth)
{
    jinja_text_add(b, STR("{"), d->origin);
    for (uint32_t i = 0; i < d->count && b->h->stop == JINJA_STOP_NONE; i++) {
        if (i)
            jinja_text_add(b, STR(", "), d->origin);
        if (!repr(b, d->entries[i].key, depth + 1))
            return false;
        jinja_text_add(b, STR(": "), d->origin);
        if (!repr(b, d->entries[i].value, depth + 1))
            return false;
    }
    jinja_text_add(b, STR("}"), d->origin);
    return true;
}

static void repr_scalar(struct jinja_build *b, struct jinja_value v)
{
    char text[48];
    size_t len = 0;
    switch ((enum jinja_kind)v.kind) {
    case JINJA_NONE:
        len = (size_t)snprintf(text, sizeof text, "None");
        break;
    case JINJA_BOOL:
        len = (size_t)snprintf(text, sizeof text, v.u.b ? "True" : "False");
        break;
    case JINJA_INT:
        len = (size_t)snprintf(text, sizeof text, "%lld", (long long)v.u.i);
        break;
    case JINJA_FLOAT:
        len = jinja_print_float(text, v.u.f);
        break;
    case JINJA_LOOP:
        len = (size_t)snprintf(text, sizeof text, "<LoopContext %u/%u>", v.u.loop->index0 + 1,
                               v.u.loop->items->count);
        break;
    case JINJA_UNDEFINED: case JINJA_FUNCTION: case JINJA_METHOD:
        len = (size_t)snprintf(text, sizeof text, v.kind == JINJA_UNDEFINED ? "%s" : "<%s>",
                               jinja_value_type(v));
        break;
    case JINJA_STRING: case JINJA_BIG: case JINJA_LIST: case JINJA_DICT: case JINJA_NAMESPACE:
    case JINJA_MACRO:
        break;
    }
    jinja_text_add(b, (str){text, len}, v.origin);
}

static bool repr(struct jinja_build *b, struct jinja_value v, unsigned depth)
{
    bool ok = true;
    if (depth > JINJA_VALUE_DEPTH_MAX)
        return false;
    jinja_text_charge(b->h, 1);
    switch ((enum jinja_kind)v.kind) {
    case JINJA_STRING:
        jinja_text_add_repr(b, v.u.s);
        break;
    case JINJA_BIG:
        jinja_text_add_str(b, v.u.s);
        break;
    case JINJA_LIST:
        return repr_list(b, v, depth);
    case JINJA_DICT:
        return repr_dict(b, v.u.dict, depth);
    case JINJA_NAMESPACE:
        jinja_text_add(b, STR("<Namespace "), 0);
        ok = repr_dict(b, v.u.dict, depth);
        jinja_text_add(b, STR(">"), 0);
        break;
    case JINJA_MACRO:
        jinja_text_add(b, STR("<Macro '"), 0);
        jinja_text_add(b, v.u.macro->node->text, 0);
        jinja_text_add(b, STR("'>"), 0);
        break;
    case JINJA_UNDEFINED: case JINJA_NONE: case JINJA_BOOL: case JINJA_INT: case JINJA_FLOAT:
    case JINJA_LOOP: case JINJA_FUNCTION: case JINJA_METHOD:
        repr_scalar(b, v);
        break;
    }
    return ok;
}

bool jinja_print_repr(struct jinja_build *b, struct jinja_value v) { return repr(b, v, 0); }

bool jinja_print_str(struct jinja_build *b, struct jinja_value v)
{
    if (v.kind == JINJA_UNDEFINED)
        return true;
    if (v.kind == JINJA_STRING)
        jinja_text_add_str(b, v.u.s);
    else
        return repr(b, v, 0);
    return true;
}
