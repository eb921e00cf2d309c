/* Methods of strings, lists, dicts and loops: value.NAME(arguments). */
#include <string.h>

#include "chat/jinja_case.h"
#include "chat/jinja_eval.h"

static bool wants_text(struct jinja_call *c, uint32_t i, str *out)
{
    if (c->arg[i].kind != JINJA_STRING)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'%s': a string expected, not '%s'", c->name,
                               jinja_value_type(c->arg[i]));
    *out = jinja_text_bytes(c->arg[i].u.s);
    return true;
}

static bool wants_int(struct jinja_call *c, uint32_t i, int64_t *out)
{
    return !jinja_call_has(c, i) || jinja_op_int(c->arg[i], out) ||
           jinja_eval_fail(c->s, ERR_FORMAT, "'%s': an integer expected, not '%s'", c->name,
                           jinja_value_type(c->arg[i]));
}

static bool is_given(const struct jinja_call *c, uint32_t i)
{
    return jinja_call_has(c, i) && c->arg[i].kind != JINJA_NONE;
}

/* ---- Strings ---- */

static bool str_change(struct jinja_call *c, struct jinja_value *out)
{
    *out = jinja_value_str(
        jinja_text_change(c->s->h, c->self.u.s, (enum jinja_change)c->which));
    return true;
}

static bool str_strip(struct jinja_call *c, struct jinja_value *out)
{
    str chars = {NULL, 0};
    if (is_given(c, 0) && !wants_text(c, 0, &chars))
        return false;
    *out = jinja_value_str(
        jinja_text_strip(c->s->h, c->self.u.s, chars, (enum jinja_side)c->which));
    return true;
}

static bool str_replace(struct jinja_call *c, struct jinja_value *out)
{
    str old, with;
    int64_t count = -1;
    if (!wants_text(c, 0, &old) || !wants_text(c, 1, &with) || !wants_int(c, 2, &count))
        return false;
    *out = jinja_value_str(
        jinja_text_replace(c->s->h, c->self.u.s, old, c->arg[1].u.s, count));
    return true;
}

static bool ends_as(struct jinja_call *c, str s, struct jinja_value what, bool *out)
{
    if (what.kind != JINJA_STRING)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'%s': a string or a tuple of strings expected, "
                               "not '%s'", c->name, jinja_value_type(what));
    str part = jinja_text_bytes(what.u.s);
    *out = c->which ? str_ends(s, part) : str_starts(s, part);
    return true;
}

static bool str_starts_or_ends(struct jinja_call *c, struct jinja_value *out)
{
    bool holds = false;
    str s = jinja_text_bytes(c->self.u.s);
    struct jinja_value what = c->arg[0];
    bool is_tuple = what.kind == JINJA_LIST && what.flavour == JINJA_LIST_TUPLE;
    if (!is_tuple && !ends_as(c, s, what, &holds))
        return false;
    for (uint32_t i = 0; is_tuple && i < what.u.list->count && !holds; i++)
        if (!ends_as(c, s, what.u.list->items[i], &holds))
            return false;
    *out = jinja_value_bool(holds);
    return true;
}

/* which: 0 removeprefix, 1 removesuffix. */
static bool str_remove(struct jinja_call *c, struct jinja_value *out)
{
    str part;
    struct jinja_str s = c->self.u.s;
    if (!wants_text(c, 0, &part))
        return false;
    if (c->which == 0 && str_starts(jinja_text_bytes(s), part))
        s = jinja_text_cut(s, part.len, s.len);
    else if (c->which == 1 && str_ends(jinja_text_bytes(s), part))
        s = jinja_text_cut(s, 0, s.len - part.len);
    *out = jinja_value_str(s);
    return true;
}

/* Last what that ends at or before end. */
static size_t find_last(struct jinja_heap *h, str s, str what, size_t end)
{
    for (size_t at = end; at >= what.len; at--) {
        if ((at & 31) == 0)
            jinja_text_charge(h, 1);
        if (memcmp(s.p + at - what.len, what.p, what.len) == 0)
            return at - what.len;
        if (at == 0)
            break;
    }
    return STR_NONE;
}

/* which: bit 0 from the right, bit 1 an error when there is none. In code points. */
static bool str_find_method(struct jinja_call *c, struct jinja_value *out)
{
    str what, s = jinja_text_bytes(c->self.u.s);
    if (!wants_text(c, 0, &what))
        return false;
    size_t at = c->which & 1 ? find_last(c->s->h, s, what, s.len)
                             : jinja_text_find(c->s->h, c->self.u.s, what, 0);
    if (at == STR_NONE && c->which & 2)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'%s': substring not found", c->name);
    *out = jinja_value_int(-1);
    if (at != STR_NONE)
        *out = jinja_value_int(
            (int64_t)jinja_text_length(c->s->h, jinja_text_cut(c->self.u.s, 0, at)));
    return true;
}

static bool str_count(struct jinja_call *c, struct jinja_value *out)
{
    str what;
    int64_t n = 0;
    if (!wants_text(c, 0, &what))
        return false;
    if (what.len == 0)
        n = (int64_t)jinja_text_length(c->s->h, c->self.u.s) + 1;
    for (size_t at = 0; what.len; at += what.len, n++) {
        at = jinja_text_find(c->s->h, c->self.u.s, what, at);
        if (at == STR_NONE)
            break;
    }
    *out = jinja_value_int(n);
    return true;
}

static bool str_join(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *items;
    if (!jinja_eval_items(c->s, c->arg[0], &items))
        return false;
    struct jinja_build b = jinja_text_begin(c->s->h);
    for (uint32_t i = 0; i < items->count && c->s->h->stop == JINJA_STOP_NONE; i++) {
        if (items->items[i].kind != JINJA_STRING)
            return jinja_eval_fail(c->s, ERR_FORMAT, "'join': item %u is no string but '%s'", i,
                                   jinja_value_type(items->items[i]));
        jinja_text_charge(c->s->h, 1);
        if (i)
            jinja_text_add_str(&b, c->self.u.s);
        jinja_text_add_str(&b, items->items[i].u.s);
    }
    *out = jinja_value_str(jinja_text_end(&b));
    return true;
}

static void push_cut(struct jinja_call *c, struct jinja_value list, size_t from, size_t to)
{
    jinja_text_charge(c->s->h, 1);
    jinja_value_push(c->s->h, list, jinja_value_str(jinja_text_cut(c->self.u.s, from, to)));
}

static void split_at(struct jinja_call *c, str by, int64_t max, struct jinja_value list)
{
    size_t from = 0;
    for (; max != 0 && c->s->h->stop == JINJA_STOP_NONE; max--) {
        size_t at = jinja_text_find(c->s->h, c->self.u.s, by, from);
        if (at == STR_NONE)
            break;
        push_cut(c, list, from, at);
        from = at + by.len;
    }
    push_cut(c, list, from, c->self.u.s.len);
}

/* Runs of blanks separate; the rest after max words keeps its blanks. */
static void split_blanks(struct jinja_call *c, int64_t max, struct jinja_value list)
{
    str s = jinja_text_bytes(c->self.u.s);
    size_t from = STR_NONE, at = 0, len;
    uint32_t code;
    for (; at < s.len && c->s->h->stop == JINJA_STOP_NONE; at += len) {
        len = str_utf8_decode(str_from(s, at), &code);
        if ((at & 31) == 0)
            jinja_text_charge(c->s->h, 1);
        bool is_blank = jinja_case_is_blank(code);
        if (is_blank && from != STR_NONE) {
            push_cut(c, list, from, at);
            from = STR_NONE;
            max--;
        } else if (!is_blank && from == STR_NONE) {
            if (max == 0) {
                push_cut(c, list, at, s.len);
                return;
            }
            from = at;
        }
    }
    if (from != STR_NONE)
        push_cut(c, list, from, s.len);
}

/* From the right: the pieces come last first and are turned round at the end. */
static void split_last(struct jinja_call *c, str by, int64_t max, struct jinja_value list)
{
    size_t end = c->self.u.s.len;
    for (; max > 0 && c->s->h->stop == JINJA_STOP_NONE; max--) {
        size_t at = find_last(c->s->h, jinja_text_bytes(c->self.u.s), by, end);
        if (at == STR_NONE)
            break;
        push_cut(c, list, at + by.len, end);
        end = at;
    }
    push_cut(c, list, 0, end);
    if (list.kind != JINJA_LIST)
        return;
    for (uint32_t i = 0, k = list.u.list->count; i + 1 < k; i++) {
        struct jinja_value v = list.u.list->items[i];
        list.u.list->items[i] = list.u.list->items[--k];
        list.u.list->items[k] = v;
    }
}

/* which: 0 split, 1 rsplit. */
static bool str_split_method(struct jinja_call *c, struct jinja_value *out)
{
    str by = {NULL, 0};
    int64_t max = -1;
    if ((is_given(c, 0) && !wants_text(c, 0, &by)) || !wants_int(c, 1, &max))
        return false;
    if (is_given(c, 0) && by.len == 0)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'%s': empty separator", c->name);
    *out = jinja_value_list(c->s->h, JINJA_LIST_LIST, jinja_text_taint(c->self.u.s));
    if (by.p == NULL && c->which == 1 && max >= 0)
        return jinja_eval_fail(c->s, ERR_UNSUPPORTED, "'rsplit' at blanks with a maximum is not "
                               "supported");
    if (by.p == NULL)
        split_blanks(c, max, *out);
    else if (c->which == 1 && max >= 0)
        split_last(c, by, max, *out);
    else
        split_at(c, by, max, *out);
    return true;
}

/* which: 0 partition, 1 rpartition. */
static bool str_partition(struct jinja_call *c, struct jinja_value *out)
{
    str by, s = jinja_text_bytes(c->self.u.s);
    if (!wants_text(c, 0, &by))
        return false;
    if (by.len == 0)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'%s': empty separator", c->name);
    size_t at = c->which ? find_last(c->s->h, s, by, s.len)
                         : jinja_text_find(c->s->h, c->self.u.s, by, 0);
    *out = jinja_value_list(c->s->h, JINJA_LIST_TUPLE, jinja_text_taint(c->self.u.s));
    bool found = at != STR_NONE;
    size_t first = found ? at : c->which ? 0 : s.len, second = found ? at + by.len : first;
    push_cut(c, *out, 0, first);
    push_cut(c, *out, first, second);
    push_cut(c, *out, second, s.len);
    return true;
}

static bool str_lines(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_str line;
    bool keep = jinja_call_has(c, 0) && jinja_value_truth(c->arg[0]);
    *out = jinja_value_list(c->s->h, JINJA_LIST_LIST, jinja_text_taint(c->self.u.s));
    for (uint32_t at = 0; c->s->h->stop == JINJA_STOP_NONE &&
                          jinja_text_line(c->self.u.s, &at, keep, &line);) {
        jinja_text_charge(c->s->h, 1 + line.len / 32);
        jinja_value_push(c->s->h, *out, jinja_value_str(line));
    }
    return true;
}

static bool str_isspace(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_str s = c->self.u.s;
    struct jinja_str rest = jinja_text_strip(c->s->h, s, (str){NULL, 0}, JINJA_SIDE_LEFT);
    *out = jinja_value_bool(s.len && rest.len == 0);
    return true;
}

static bool str_case(struct jinja_call *c, struct jinja_value *out)
{
    bool holds;
    struct jinja_args none = {0};
    int32_t row = jinja_check_row(c->which ? STR("upper") : STR("lower"));
    bool ok = jinja_check_run(c->s, row, c->self, &none, &holds);
    *out = jinja_value_bool(ok && holds);
    return ok;
}

/* ---- Lists ---- */

static bool list_append(struct jinja_call *c, struct jinja_value *out)
{
    jinja_value_push(c->s->h, c->self, c->arg[0]);
    *out = jinja_value_none();
    return true;
}

static bool list_pop(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *l = c->self.u.list;
    int64_t i = -1;
    if (!wants_int(c, 0, &i))
        return false;
    i += i < 0 ? l->count : 0;
    if (i < 0 || i >= l->count)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'pop': no such element in a list of %u",
                               l->count);
    *out = l->items[i];
    l->count--;
    memmove(l->items + i, l->items + i + 1, (l->count - (uint32_t)i) * sizeof *l->items);
    jinja_text_charge(c->s->h, (l->count - (uint32_t)i) / 32);
    return true;
}

static bool list_copy(struct jinja_call *c, struct jinja_value *out)
{
    *out = jinja_value_copy(c->s->h, c->self, JINJA_LIST_LIST);
    return true;
}

/* which: 0 index, 1 count. */
static bool list_search(struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_list *l = c->self.u.list;
    int64_t n = 0;
    jinja_text_charge(c->s->h, l->count);
    for (uint32_t i = 0; i < l->count; i++) {
        if (!jinja_value_eq(l->items[i], c->arg[0]))
            continue;
        n++;
        *out = jinja_value_int(i);
        if (c->which == 0)
            return true;
    }
    *out = jinja_value_int(n);
    return c->which == 1 || jinja_eval_fail(c->s, ERR_FORMAT, "'index': not in the list");
}

/* ---- Dicts ---- */

static bool wants_key(struct jinja_call *c)
{
    return jinja_value_is_hashable(c->arg[0]) ||
           jinja_eval_fail(c->s, ERR_FORMAT, "unhashable type: '%s'",
                           jinja_value_type(c->arg[0]));
}

static bool dict_get(struct jinja_call *c, struct jinja_value *out)
{
    if (!wants_key(c))
        return false;
    const struct jinja_value *v = jinja_value_find(c->self.u.dict, c->arg[0]);
    *out = v ? *v : jinja_call_has(c, 1) ? c->arg[1] : jinja_value_none();
    return true;
}

static bool dict_pop(struct jinja_call *c, struct jinja_value *out)
{
    if (!wants_key(c))
        return false;
    jinja_text_charge(c->s->h, c->self.u.dict->count / 8);
    if (jinja_value_remove(c->self.u.dict, c->arg[0], out))
        return true;
    *out = c->arg[1];
    return jinja_call_has(c, 1) || jinja_eval_fail(c->s, ERR_FORMAT, "'pop': no such key");
}

static bool dict_copy(struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_dict *d = c->self.u.dict;
    *out = jinja_value_dict(c->s->h, d->origin);
    for (uint32_t i = 0; i < d->count && c->s->h->stop == JINJA_STOP_NONE; i++) {
        jinja_text_charge(c->s->h, 1);
        jinja_value_put(c->s->h, *out, d->entries[i].key, d->entries[i].value);
    }
    return true;
}

/* which: the type of the list. */
static bool dict_view(struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_dict *d = c->self.u.dict;
    if (c->which == JINJA_LIST_ITEMS) {
        jinja_seq_pairs(c->s->h, d, JINJA_LIST_ITEMS, out);
        return true;
    }
    *out = jinja_value_list(c->s->h, (enum jinja_list_type)c->which, d->origin);
    for (uint32_t i = 0; i < d->count && c->s->h->stop == JINJA_STOP_NONE; i++) {
        jinja_text_charge(c->s->h, 1);
        jinja_value_push(c->s->h, *out, c->which == JINJA_LIST_KEYS ? d->entries[i].key
                                                                    : d->entries[i].value);
    }
    return true;
}

/* ---- Loops ---- */

static bool loop_cycle(struct jinja_call *c, struct jinja_value *out)
{
    if (c->args->plain_count == 0)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'cycle': no items given");
    *out = c->args->plain[c->self.u.loop->index0 % c->args->plain_count];
    return true;
}

static bool loop_changed(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_loop *l = c->self.u.loop;
    struct jinja_value now = jinja_value_list(c->s->h, JINJA_LIST_TUPLE, 0);
    for (uint32_t i = 0; i < c->args->plain_count; i++)
        jinja_value_push(c->s->h, now, c->args->plain[i]);
    *out = jinja_value_bool(!l->has_changed || !jinja_value_eq(l->changed, now));
    l->changed = now;
    l->has_changed = true;
    return true;
}

/* ---- Tables ---- */

/* Python's names all stand here: one without a function is refused by name when it is called, and
 * one that the sandbox hides (which = HIDDEN) is undefined. */
#define HIDDEN 1
static const struct jinja_callee str_rows[] = {
    {"capitalize", "", 0, str_change, JINJA_CHANGE_CAPITALIZE},
    {"casefold", "", 0, NULL, 0},
    {"center", "", 0, NULL, 0},
    {"count", "sub", 1, str_count, 0},
    {"encode", "", 0, NULL, 0},
    {"endswith", "suffix", 1, str_starts_or_ends, 1},
    {"expandtabs", "", 0, NULL, 0},
    {"find", "sub", 1, str_find_method, 0},
    {"format", "...", 0, jinja_format_method, 0},
    {"format_map", "", 0, NULL, 0},
    {"index", "sub", 1, str_find_method, 2},
    {"isalnum", "", 0, NULL, 0},
    {"isalpha", "", 0, NULL, 0},
    {"isascii", "", 0, NULL, 0},
    {"isdecimal", "", 0, NULL, 0},
    {"isdigit", "", 0, NULL, 0},
    {"isidentifier", "", 0, NULL, 0},
    {"islower", "", 0, str_case, 0},
    {"isnumeric", "", 0, NULL, 0},
    {"isprintable", "", 0, NULL, 0},
    {"isspace", "", 0, str_isspace, 0},
    {"istitle", "", 0, NULL, 0},
    {"isupper", "", 0, str_case, 1},
    {"join", "iterable", 1, str_join, 0},
    {"ljust", "", 0, NULL, 0},
    {"lower", "", 0, str_change, JINJA_CHANGE_LOWER},
    {"lstrip", "chars", 0, str_strip, JINJA_SIDE_LEFT},
    {"maketrans", "", 0, NULL, 0},
    {"partition", "sep", 1, str_partition, 0},
    {"removeprefix", "prefix", 1, str_remove, 0},
    {"removesuffix", "suffix", 1, str_remove, 1},
    {"replace", "old new count", 2, str_replace, 0},
    {"rfind", "sub", 1, str_find_method, 1},
    {"rindex", "sub", 1, str_find_method, 3},
    {"rjust", "", 0, NULL, 0},
    {"rpartition", "sep", 1, str_partition, 1},
    {"rsplit", "sep maxsplit", 0, str_split_method, 1},
    {"rstrip", "chars", 0, str_strip, JINJA_SIDE_RIGHT},
    {"split", "sep maxsplit", 0, str_split_method, 0},
    {"splitlines", "keepends", 0, str_lines, 0},
    {"startswith", "prefix", 1, str_starts_or_ends, 0},
    {"strip", "chars", 0, str_strip, JINJA_SIDE_BOTH},
    {"swapcase", "", 0, NULL, 0},
    {"title", "", 0, str_change, JINJA_CHANGE_TITLE},
    {"translate", "", 0, NULL, 0},
    {"upper", "", 0, str_change, JINJA_CHANGE_UPPER},
    {"zfill", "", 0, NULL, 0},
};
static const struct jinja_callee list_rows[] = {
    {"index", "value", 1, list_search, 0}, /* these two also of tuples */
    {"count", "value", 1, list_search, 1},
    {"append", "object", 1, list_append, 0},
    {"pop", "index", 0, list_pop, 0},
    {"copy", "", 0, list_copy, 0},
    {"clear", "", 0, NULL, HIDDEN},
    {"extend", "", 0, NULL, HIDDEN},
    {"insert", "", 0, NULL, HIDDEN},
    {"remove", "", 0, NULL, HIDDEN},
    {"reverse", "", 0, NULL, HIDDEN},
    {"sort", "", 0, NULL, HIDDEN},
};
#define TUPLE_ROWS 2
static const struct jinja_callee dict_rows[] = {
    {"get", "key default", 1, dict_get, 0},
    {"items", "", 0, dict_view, JINJA_LIST_ITEMS},
    {"keys", "", 0, dict_view, JINJA_LIST_KEYS},
    {"values", "", 0, dict_view, JINJA_LIST_VALUES},
    {"pop", "key default", 1, dict_pop, 0},
    {"copy", "", 0, dict_copy, 0},
    {"fromkeys", "", 0, NULL, 0},
    {"clear", "", 0, NULL, HIDDEN},
    {"popitem", "", 0, NULL, HIDDEN},
    {"setdefault", "", 0, NULL, HIDDEN},
    {"update", "", 0, NULL, HIDDEN},
};
static const struct jinja_callee loop_rows[] = {
    {"cycle", "...", 0, loop_cycle, 0},
    {"changed", "...", 0, loop_changed, 0},
};

static const struct jinja_callee *rows_of(struct jinja_value v, size_t *count)
{
    *count = 0;
    if (v.kind == JINJA_STRING)
        return *count = countof(str_rows), str_rows;
    if (v.kind == JINJA_DICT)
        return *count = countof(dict_rows), dict_rows;
    if (v.kind == JINJA_LOOP)
        return *count = countof(loop_rows), loop_rows;
    if (v.kind == JINJA_LIST && v.flavour <= JINJA_LIST_RANGE)
        return *count = v.flavour == JINJA_LIST_LIST ? countof(list_rows) : TUPLE_ROWS, list_rows;
    return NULL;
}

bool jinja_method_bind(struct jinja_state *s, struct jinja_value v, str name,
                       struct jinja_value *out)
{
    size_t count;
    const struct jinja_callee *rows = rows_of(v, &count);
    for (size_t i = 0; i < count; i++) {
        if (!str_eq_z(name, rows[i].name))
            continue;
        struct jinja_method *m = jinja_text_alloc(s->h, 1, sizeof *m);
        if (rows[i].function == NULL && rows[i].which == HIDDEN) {
            *out = jinja_eval_hint("changing a list or dict by this method is not supported");
        } else if (m) {
            *m = (struct jinja_method){v, &rows[i]};
            *out = (struct jinja_value){.kind = JINJA_METHOD, .u.method = m};
        }
        return true;
    }
    return false;
}

bool jinja_method_run(struct jinja_state *s, const struct jinja_method *m,
                      const struct jinja_args *args, struct jinja_value *out)
{
    return jinja_eval_call(s, m->callee, m->self, args, out);
}
