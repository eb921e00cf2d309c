/* Global functions: range, dict, namespace, raise_exception, strftime_now. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "chat/jinja_eval.h"

static bool function_range(struct jinja_call *c, struct jinja_value *out)
{
    int64_t n[3] = {0, 0, 1}, count;
    for (uint32_t i = 0; i < 3; i++)
        if (jinja_call_has(c, i) && !jinja_op_int(c->arg[i], &n[i]))
            return jinja_eval_fail(c->s, ERR_FORMAT, "'range': an integer expected, not '%s'",
                                   jinja_value_type(c->arg[i]));
    int64_t from = jinja_call_has(c, 1) ? n[0] : 0, to = jinja_call_has(c, 1) ? n[1] : n[0];
    int64_t step = n[2];
    if (step == 0)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'range': the step cannot be zero");
    /* In 128 bits nothing overflows. */
    __int128 span = step > 0 ? (__int128)to - from : (__int128)from - to;
    __int128 size = step > 0 ? step : -(__int128)step;
    __int128 wide = span > 0 ? (span + size - 1) / size : 0;
    if (wide > JINJA_RANGE_MAX)
        return jinja_eval_fail(c->s, ERR_LIMIT, "'range' gives more than %u items",
                               JINJA_RANGE_MAX);
    count = (int64_t)wide;
    *out = jinja_value_list(c->s->h, JINJA_LIST_RANGE, 0);
    jinja_text_charge(c->s->h, (size_t)count / 8);
    for (int64_t i = 0; i < count && c->s->h->stop == JINJA_STOP_NONE; i++)
        jinja_value_push(c->s->h, *out, jinja_value_int(from + i * step));
    if (out->kind == JINJA_LIST) {
        out->u.list->start = from;
        out->u.list->stop = to;
        out->u.list->step = step;
    }
    return true;
}

static bool put_pair(struct jinja_call *c, struct jinja_value dict, struct jinja_value pair)
{
    struct jinja_list *items;
    if (!jinja_eval_items(c->s, pair, &items))
        return false;
    if (items->count != 2 || !jinja_value_is_hashable(items->items[0]))
        return jinja_eval_fail(c->s, ERR_FORMAT, "'%s': pairs of key and value expected", c->name);
    jinja_value_put(c->s->h, dict, items->items[0], items->items[1]);
    return jinja_eval_ok(c->s);
}

/* dict(mapping or pairs, name=value, ...); which: 1 = a namespace. */
static bool function_dict(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *pairs;
    struct jinja_heap *h = c->s->h;
    struct jinja_value dict = jinja_value_dict(h, 0);
    if (c->args->plain_count > 1)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'%s' takes one plain argument at most", c->name);
    if (c->args->plain_count && c->args->plain[0].kind == JINJA_DICT) {
        const struct jinja_dict *d = c->args->plain[0].u.dict;
        for (uint32_t i = 0; i < d->count && jinja_eval_ok(c->s); i++)
            jinja_value_put(h, dict, d->entries[i].key, d->entries[i].value);
        jinja_text_charge(h, d->count);
    } else if (c->args->plain_count) {
        if (!jinja_eval_items(c->s, c->args->plain[0], &pairs))
            return false;
        for (uint32_t i = 0; i < pairs->count; i++)
            if (!put_pair(c, dict, pairs->items[i]))
                return false;
    }
    for (uint32_t i = 0; i < c->args->named_count; i++) {
        if (c->which && str_starts(c->args->named[i].name, STR("_")))
            return jinja_eval_fail(c->s, ERR_FORMAT,
                                   "a namespace's attribute cannot begin with '_'");
        jinja_value_put(h, dict, jinja_value_text(h, c->args->named[i].name, 0),
                        c->args->named[i].value);
    }
    if (c->which && dict.kind == JINJA_DICT)
        dict.kind = JINJA_NAMESPACE;
    *out = dict;
    return true;
}

/* The template's own words; in place of what came with the request stands "...": messages hold no
 * prompt text. */
static bool function_raise(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_str s;
    char text[ERR_TEXT_MAX];
    size_t n = 0;
    (void)out;
    if (!jinja_eval_str(c->s, c->arg[0], &s))
        return false;
    for (uint32_t at = 0, end; at < s.len; at = end) {
        bool is_own = jinja_text_origin(s, at, &end) == 0;
        str part = is_own ? jinja_text_bytes(jinja_text_cut(s, at, end)) : STR("...");
        size_t len = base_min(part.len, sizeof text - 1 - n);
        memcpy(text + n, part.p, len);
        n += len;
    }
    text[n] = 0;
    c->s->is_raised = true;
    return jinja_eval_fail(c->s, ERR_FORMAT, "%s", text);
}

#define FORMAT_MAX 256
static bool check_format(struct jinja_call *c, str format)
{
    if (format.len >= FORMAT_MAX)
        return jinja_eval_fail(c->s, ERR_LIMIT, "'strftime_now': a format of %zu bytes, at most %d",
                               format.len, FORMAT_MAX - 1);
    for (size_t i = 0; i < format.len; i++) {
        if (format.p[i] != '%')
            continue;
        size_t flag = i + 1 < format.len && strchr("-_0^#", format.p[i + 1]) && format.p[i + 1];
        i += 1 + flag;
        if (i >= format.len || format.p[i] == 0 ||
            !strchr("aAbBcCdDeFgGhHIjklmMnprRStTuUVwWxXyY%", format.p[i]))
            return jinja_eval_fail(c->s, ERR_UNSUPPORTED, "'strftime_now': a format code that is "
                                   "not supported");
    }
    return true;
}

/* In UTC: the answer depends on the request alone. The program never leaves the "C" locale. */
static bool function_strftime(struct jinja_call *c, struct jinja_value *out)
{
    char format[FORMAT_MAX], text[FORMAT_MAX * 16];
    struct tm tm;
    time_t t = (time_t)c->s->time_s;
    if (c->arg[0].kind != JINJA_STRING)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'strftime_now': a string expected, not '%s'",
                               jinja_value_type(c->arg[0]));
    str wanted = jinja_text_bytes(c->arg[0].u.s);
    if (!check_format(c, wanted))
        return false;
    if (gmtime_r(&t, &tm) == NULL || tm.tm_year < 1 - 1900 || tm.tm_year > 9999 - 1900)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'strftime_now': the clock is out of range");
    memcpy(format, wanted.p ? wanted.p : "", wanted.len);
    format[wanted.len] = 0;
    size_t len = strftime(text, sizeof text, format, &tm);
    str copy = arena_copy(c->s->h->arena, (str){text, len});
    if (copy.p == NULL) {
        c->s->h->stop = JINJA_STOP_MEMORY;
        return jinja_eval_ok(c->s);
    }
    *out = jinja_value_text(c->s->h, copy, jinja_text_taint(c->arg[0].u.s));
    return true;
}

static const struct jinja_callee rows[JINJA_FUNCTION_COUNT_] = {
    [JINJA_FUNCTION_RANGE] = {"range", "start stop step", 1, function_range, 0},
    [JINJA_FUNCTION_DICT] = {"dict", "...", 0, function_dict, 0},
    [JINJA_FUNCTION_NAMESPACE] = {"namespace", "...", 0, function_dict, 1},
    [JINJA_FUNCTION_RAISE] = {"raise_exception", "message", 1, function_raise, 0},
    [JINJA_FUNCTION_STRFTIME] = {"strftime_now", "format", 1, function_strftime, 0},
};

bool jinja_function_of(str name, struct jinja_value *out)
{
    for (size_t i = 0; i < countof(rows); i++)
        if (str_eq_z(name, rows[i].name)) {
            *out = (struct jinja_value){.kind = JINJA_FUNCTION, .flavour = (uint8_t)i};
            return true;
        }
    return false;
}

bool jinja_function_run(struct jinja_state *s, enum jinja_function f,
                        const struct jinja_args *args, struct jinja_value *out)
{
    return jinja_eval_call(s, &rows[f], jinja_value_none(), args, out);
}
