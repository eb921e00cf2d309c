/* Filters over sequences. */
#include <string.h>

#include "chat/jinja_eval.h"

static bool self_items(struct jinja_call *c, struct jinja_list **out)
{
    return jinja_eval_items(c->s, c->self, out);
}

static struct jinja_value list_like(struct jinja_call *c, const struct jinja_list *like)
{
    return jinja_value_list(c->s->h, JINJA_LIST_LIST, like->origin);
}

static uint32_t origin_of(struct jinja_value v)
{
    return v.kind == JINJA_LIST ? v.u.list->origin : v.kind == JINJA_DICT ? v.u.dict->origin
           : v.kind == JINJA_STRING ? jinja_text_taint(v.u.s) : 0;
}

/* item.a.b.0 for the attribute "a.b.0" or the integer 0; otherwise: what stands in for undefined
 * parts, or NULL. */
static bool lookup(struct jinja_call *c, struct jinja_value item, struct jinja_value path,
                   const struct jinja_value *otherwise, struct jinja_value *out)
{
    *out = item;
    if (path.kind == JINJA_NONE)
        return true;
    if (path.kind != JINJA_STRING)
        return jinja_eval_item(c->s, item, path, out);
    size_t at = 0, end;
    for (bool more = true; more; at = end + 1) {
        end = jinja_text_find(c->s->h, path.u.s, STR("."), at);
        more = end != STR_NONE;
        end = more ? end : path.u.s.len;
        struct jinja_value part = jinja_value_str(jinja_text_cut(path.u.s, at, end));
        int64_t number;
        if (str_to_i64(jinja_text_bytes(part.u.s), &number) && number >= 0)
            part = jinja_value_int(number);
        if (!jinja_eval_item(c->s, *out, part, out))
            return false;
        if (otherwise && otherwise->kind != JINJA_NONE && out->kind == JINJA_UNDEFINED)
            *out = *otherwise;
    }
    return true;
}

static struct jinja_value arg_or_none(const struct jinja_call *c, uint32_t i)
{
    return jinja_call_has(c, i) ? c->arg[i] : jinja_value_none();
}

static struct jinja_value folded(struct jinja_call *c, struct jinja_value v, bool case_sensitive)
{
    if (v.kind == JINJA_STRING && !case_sensitive)
        v.u.s = jinja_text_change(c->s->h, v.u.s, JINJA_CHANGE_LOWER);
    return v;
}

static bool truth_of(const struct jinja_call *c, uint32_t i)
{
    return jinja_call_has(c, i) && jinja_value_truth(c->arg[i]);
}

/* ---- Ends, copies ---- */

bool jinja_seq_first(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *items;
    *out = jinja_eval_hint("no first item, the sequence was empty");
    if (c->self.kind == JINJA_LIST && c->self.flavour == JINJA_LIST_ITERATOR) {
        struct jinja_list *l = c->self.u.list;
        if (!jinja_eval_force(c->s, l))
            return false;
        if (l->next < l->count)
            *out = l->items[l->next++];
        return true;
    }
    if (c->self.kind == JINJA_STRING && c->self.u.s.len) {
        *out = jinja_value_str(jinja_text_slice(c->s->h, c->self.u.s, 0, 1, 1));
        return true;
    }
    if (!self_items(c, &items))
        return false;
    if (items->count)
        *out = items->items[0];
    return true;
}

static bool not_reversible(struct jinja_call *c)
{
    return jinja_eval_fail(c->s, ERR_FORMAT, "'%s' object is not reversible",
                           jinja_value_type(c->self));
}

bool jinja_seq_last(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *items;
    if (c->self.kind == JINJA_LIST && c->self.flavour == JINJA_LIST_ITERATOR)
        return not_reversible(c);
    if (!self_items(c, &items))
        return false;
    *out = items->count ? items->items[items->count - 1]
                        : jinja_eval_hint("no last item, the sequence was empty");
    return true;
}

bool jinja_seq_list(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *items;
    if (!self_items(c, &items))
        return false;
    struct jinja_value all = {.kind = JINJA_LIST, .u.list = items};
    *out = jinja_value_copy(c->s->h, all, JINJA_LIST_LIST);
    return true;
}

void jinja_seq_pairs(struct jinja_heap *h, const struct jinja_dict *d, enum jinja_list_type type,
                     struct jinja_value *out)
{
    *out = jinja_value_list(h, type, d->origin);
    for (uint32_t i = 0; i < d->count && h->stop == JINJA_STOP_NONE; i++) {
        struct jinja_value pair = jinja_value_list(h, JINJA_LIST_TUPLE, d->origin);
        jinja_value_push(h, pair, d->entries[i].key);
        jinja_value_push(h, pair, d->entries[i].value);
        jinja_value_push(h, *out, pair);
        jinja_text_charge(h, 1);
    }
}

static bool later_items(struct jinja_call *c, struct jinja_value *out)
{
    if (c->self.kind == JINJA_UNDEFINED) {
        *out = jinja_value_list(c->s->h, JINJA_LIST_LIST, 0);
        return true;
    }
    if (c->self.kind != JINJA_DICT)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'items': a mapping expected, not '%s'",
                               jinja_value_type(c->self));
    jinja_seq_pairs(c->s->h, c->self.u.dict, JINJA_LIST_LIST, out);
    return true;
}

bool jinja_seq_items(struct jinja_call *c, struct jinja_value *out)
{
    return jinja_eval_defer(c, c->self.kind == JINJA_DICT ? c->self.u.dict->origin : 0,
                            later_items, out);
}

bool jinja_seq_reverse(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *items;
    struct jinja_heap *h = c->s->h;
    if (c->self.kind == JINJA_STRING) {
        int64_t len = (int64_t)jinja_text_length(h, c->self.u.s);
        *out = jinja_value_str(jinja_text_slice(h, c->self.u.s, len - 1, -1, -1));
        return true;
    }
    if (!self_items(c, &items))
        return false;
    /* What Python cannot reverse in place becomes a list first. */
    bool is_list = c->self.kind == JINJA_LIST && c->self.flavour == JINJA_LIST_ITERATOR;
    *out = jinja_value_list(h, is_list ? JINJA_LIST_LIST : JINJA_LIST_ITERATOR, items->origin);
    for (uint32_t i = items->count; i-- > 0 && h->stop == JINJA_STOP_NONE;) {
        jinja_text_charge(h, 1);
        jinja_value_push(h, *out, items->items[i]);
    }
    return true;
}

bool jinja_seq_join(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *items;
    struct jinja_str between = {0}, text;
    struct jinja_value v, path = arg_or_none(c, 1);
    if (!self_items(c, &items) || (jinja_call_has(c, 0) &&
                                   !jinja_eval_str(c->s, c->arg[0], &between)))
        return false;
    struct jinja_build b = jinja_text_begin(c->s->h);
    for (uint32_t i = 0; i < items->count; i++) {
        jinja_text_charge(c->s->h, 1);
        if (!lookup(c, items->items[i], path, NULL, &v) || !jinja_eval_str(c->s, v, &text))
            return false;
        if (i)
            jinja_text_add_str(&b, between);
        jinja_text_add_str(&b, text);
    }
    *out = jinja_value_str(jinja_text_end(&b));
    return true;
}

static bool later_unique(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *items;
    struct jinja_value key, path = arg_or_none(c, 1);
    if (!self_items(c, &items))
        return false;
    struct jinja_value seen = jinja_value_dict(c->s->h, 0);
    *out = list_like(c, items);
    for (uint32_t i = 0; i < items->count && jinja_eval_ok(c->s); i++) {
        if (!lookup(c, items->items[i], path, NULL, &key))
            return false;
        key = folded(c, key, truth_of(c, 0));
        if (!jinja_value_is_hashable(key))
            return jinja_eval_fail(c->s, ERR_FORMAT, "unhashable type: '%s'",
                                   jinja_value_type(key));
        jinja_text_charge(c->s->h, 1);
        if (jinja_value_find(seen.u.dict, key))
            continue;
        jinja_value_put(c->s->h, seen, key, jinja_value_none());
        jinja_value_push(c->s->h, *out, items->items[i]);
    }
    return true;
}

bool jinja_seq_unique(struct jinja_call *c, struct jinja_value *out)
{
    return jinja_eval_defer(c, origin_of(c->self), later_unique, out);
}

/* ---- map, select ---- */

static const struct jinja_value *named(const struct jinja_args *args, const char *name)
{
    for (uint32_t i = 0; i < args->named_count; i++)
        if (str_eq_z(args->named[i].name, name))
            return &args->named[i].value;
    return NULL;
}

/* Row of a filter or test whose name is an argument. */
static bool row_of(struct jinja_call *c, struct jinja_value name, int32_t (*find)(str),
                   int32_t *row)
{
    *row = name.kind == JINJA_STRING ? find(jinja_text_bytes(name.u.s)) : -1;
    if (*row >= 0)
        return true;
    str text = name.kind == JINJA_STRING ? jinja_text_bytes(name.u.s) : STR("(no string)");
    return jinja_eval_fail(c->s, ERR_UNSUPPORTED, "'%s' with '%.*s' is not supported", c->name,
                           (int)base_min(text.len, 60), text.p);
}

static bool later_nothing(struct jinja_call *c, struct jinja_value *out)
{
    *out = jinja_value_list(c->s->h, JINJA_LIST_LIST, 0);
    return true;
}

static bool later_map(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *items;
    const struct jinja_value *path = named(c->args, "attribute");
    const struct jinja_value *otherwise = named(c->args, "default");
    struct jinja_args rest = *c->args;
    struct jinja_value v;
    int32_t row = -1;
    bool by_path = c->args->plain_count == 0 && path;
    if (!jinja_value_truth(c->self)) /* nothing to go through, whatever it is */
        return later_nothing(c, out);
    if (by_path && c->args->named_count > 1u + (otherwise != NULL))
        return jinja_eval_fail(c->s, ERR_FORMAT, "'map' takes 'attribute' and 'default' only");
    if (!by_path && c->args->plain_count == 0)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'map' needs a filter or 'attribute'");
    if (!by_path && !row_of(c, c->args->plain[0], jinja_filter_row, &row))
        return false;
    rest.plain += by_path ? 0 : 1;
    rest.plain_count -= by_path ? 0 : 1;
    if (!self_items(c, &items))
        return false;
    *out = list_like(c, items);
    for (uint32_t i = 0; i < items->count; i++) {
        jinja_text_charge(c->s->h, 1);
        if (by_path ? !lookup(c, items->items[i], *path, otherwise, &v)
                    : !jinja_filter_run(c->s, row, items->items[i], &rest, &v))
            return false;
        jinja_value_push(c->s->h, *out, v);
    }
    return true;
}

bool jinja_seq_map(struct jinja_call *c, struct jinja_value *out)
{
    return jinja_eval_defer(c, origin_of(c->self), later_map, out);
}

static bool later_select(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *items;
    struct jinja_args rest = *c->args;
    struct jinja_value path = jinja_value_none(), v;
    bool by_path = c->which & 2, keep = !(c->which & 1), holds;
    int32_t row = -1;
    if (!jinja_value_truth(c->self))
        return later_nothing(c, out);
    if (by_path) {
        if (rest.plain_count == 0)
            return jinja_eval_fail(c->s, ERR_FORMAT, "'%s' needs an attribute", c->name);
        path = *rest.plain++;
        rest.plain_count--;
    }
    if (rest.plain_count) {
        if (!row_of(c, *rest.plain++, jinja_check_row, &row))
            return false;
        rest.plain_count--;
    }
    if (!self_items(c, &items))
        return false;
    *out = list_like(c, items);
    for (uint32_t i = 0; i < items->count; i++) {
        jinja_text_charge(c->s->h, 1);
        if (!lookup(c, items->items[i], path, NULL, &v))
            return false;
        holds = jinja_value_truth(v);
        if (row >= 0 && !jinja_check_run(c->s, row, v, &rest, &holds))
            return false;
        if (holds == keep)
            jinja_value_push(c->s->h, *out, items->items[i]);
    }
    return true;
}

/* which: bit 0 = keep what fails, bit 1 = test an attribute. */
bool jinja_seq_select(struct jinja_call *c, struct jinja_value *out)
{
    return jinja_eval_defer(c, origin_of(c->self), later_select, out);
}

/* ---- Order ---- */

struct keyed {
    struct jinja_value key, item;
};

/* Whether b goes before a. */
static bool is_before(struct jinja_call *c, struct jinja_value b, struct jinja_value a, bool *out)
{
    return jinja_op_compare(c->s, JINJA_OP_LT, b, a, out);
}

/* Stable merge sort; reversed keeps equal ones in order too, as Python's does. */
static bool merge_sort(struct jinja_call *c, struct keyed *v, struct keyed *spare, size_t count,
                       bool reverse)
{
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t from = 0; from < count; from += 2 * width) {
            size_t middle = base_min(from + width, count), end = base_min(from + 2 * width, count);
            for (size_t i = from, k = middle, at = from; at < end; at++) {
                bool second = k < end;
                jinja_text_charge(c->s->h, 1);
                if (second && i < middle &&
                    (reverse ? !is_before(c, v[i].key, v[k].key, &second)
                             : !is_before(c, v[k].key, v[i].key, &second)))
                    return false;
                spare[at] = second ? v[k++] : v[i++];
            }
        }
        memcpy(v, spare, count * sizeof *v);
        if (!jinja_eval_ok(c->s))
            return false;
    }
    return true;
}

/* The key is a list, one element per attribute of "a,b.c": lists may hold equal things that have no
 * order of their own. */
static bool sort_key(struct jinja_call *c, struct jinja_value item, struct jinja_value path,
                     struct jinja_value *out)
{
    bool case_sensitive = truth_of(c, 1), more = true;
    *out = jinja_value_list(c->s->h, JINJA_LIST_LIST, 0);
    for (size_t at = 0, end = 0; more && jinja_eval_ok(c->s); at = end + 1) {
        struct jinja_value v, part = path;
        more = false;
        if (path.kind == JINJA_STRING) {
            end = jinja_text_find(c->s->h, path.u.s, STR(","), at);
            more = end != STR_NONE;
            end = more ? end : path.u.s.len;
            part = jinja_value_str(jinja_text_cut(path.u.s, at, end));
        }
        if (!lookup(c, item, part, NULL, &v))
            return false;
        jinja_value_push(c->s->h, *out, folded(c, v, case_sensitive));
    }
    return jinja_eval_ok(c->s);
}

static bool sorted(struct jinja_call *c, struct keyed *v, size_t count, bool reverse,
                   struct jinja_value *out)
{
    struct keyed *spare = jinja_text_alloc(c->s->h, count + 1, sizeof *spare);
    if (!jinja_eval_ok(c->s) || !merge_sort(c, v, spare, count, reverse))
        return false;
    for (size_t i = 0; i < count; i++)
        jinja_value_push(c->s->h, *out, v[i].item);
    return true;
}

bool jinja_seq_sort(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *items;
    if (!self_items(c, &items))
        return false;
    struct keyed *v = jinja_text_alloc(c->s->h, items->count + (size_t)1, sizeof *v);
    *out = jinja_value_list(c->s->h, JINJA_LIST_LIST, items->origin);
    if (!jinja_eval_ok(c->s))
        return false;
    for (uint32_t i = 0; i < items->count; i++) {
        v[i].item = items->items[i];
        if (!sort_key(c, v[i].item, arg_or_none(c, 2), &v[i].key))
            return false;
    }
    return sorted(c, v, items->count, truth_of(c, 0), out);
}

bool jinja_seq_dictsort(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_value pairs;
    bool by_value = jinja_call_has(c, 1) && c->arg[1].kind == JINJA_STRING &&
                    str_eq_z(jinja_text_bytes(c->arg[1].u.s), "value");
    if (jinja_call_has(c, 1) && !by_value &&
        (c->arg[1].kind != JINJA_STRING || !str_eq_z(jinja_text_bytes(c->arg[1].u.s), "key")))
        return jinja_eval_fail(c->s, ERR_FORMAT, "'dictsort': by must be 'key' or 'value'");
    if (c->self.kind == JINJA_UNDEFINED)
        return jinja_eval_undefined(c->s, c->self);
    if (!later_items(c, &pairs) || !jinja_eval_ok(c->s))
        return false;
    struct jinja_list *l = pairs.u.list;
    struct keyed *v = jinja_text_alloc(c->s->h, l->count + (size_t)1, sizeof *v);
    *out = jinja_value_list(c->s->h, JINJA_LIST_LIST, l->origin);
    for (uint32_t i = 0; v && i < l->count; i++) {
        struct jinja_value key = l->items[i].u.list->items[by_value];
        v[i] = (struct keyed){folded(c, key, truth_of(c, 0)), l->items[i]};
    }
    return jinja_eval_ok(c->s) && sorted(c, v, l->count, truth_of(c, 2), out);
}

/* which: 0 = min, 1 = max; the first of equals. */
bool jinja_seq_extreme(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *items;
    struct jinja_value best = jinja_value_none(), key;
    if (!self_items(c, &items))
        return false;
    *out = jinja_eval_hint("no aggregated item, the sequence was empty");
    for (uint32_t i = 0; i < items->count; i++) {
        bool is_better = true;
        if (!lookup(c, items->items[i], arg_or_none(c, 1), NULL, &key))
            return false;
        key = folded(c, key, truth_of(c, 0));
        jinja_text_charge(c->s->h, 1);
        if (i && (c->which ? !is_before(c, best, key, &is_better)
                           : !is_before(c, key, best, &is_better)))
            return false;
        if (is_better) {
            best = key;
            *out = items->items[i];
        }
    }
    return true;
}

bool jinja_seq_sum(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *items;
    struct jinja_value v;
    if (!self_items(c, &items))
        return false;
    *out = jinja_call_has(c, 1) ? c->arg[1] : jinja_value_int(0);
    for (uint32_t i = 0; i < items->count; i++) {
        jinja_text_charge(c->s->h, 1);
        if (!lookup(c, items->items[i], arg_or_none(c, 0), NULL, &v) ||
            !jinja_op_math(c->s, JINJA_OP_ADD, *out, v, out))
            return false;
    }
    return true;
}
