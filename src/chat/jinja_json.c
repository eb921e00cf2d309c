#include "chat/jinja_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "chat/jinja_eval.h"

/* ---- Reading ---- */

static struct jinja_value number(struct jinja_heap *h, struct json v, uint32_t origin)
{
    str raw = json_raw(v);
    struct jinja_value out = jinja_value_float(0);
    bool is_float = false;
    for (size_t i = 0; i < raw.len; i++)
        is_float = is_float || raw.p[i] == '.' || raw.p[i] == 'e' || raw.p[i] == 'E';
    if (is_float && !json_double(v, &out.u.f))
        out.u.f = raw.p[0] == '-' ? -INFINITY : INFINITY;
    if (!is_float) {
        out.kind = json_i64(v, &out.u.i) ? JINJA_INT : JINJA_BIG;
        if (out.kind == JINJA_BIG)
            out.u.s = jinja_text_of(h, raw, origin);
    }
    out.origin = origin;
    return out;
}

static struct jinja_value read(struct jinja_heap *h, struct json v, uint32_t origin)
{
    struct jinja_value out = jinja_value_none();
    bool b = false;
    switch (json_kind(v)) {
    case JSON_KIND_ABSENT: case JSON_KIND_NULL:
        break;
    case JSON_KIND_BOOL:
        out = jinja_value_bool(json_bool(v, &b) && b);
        break;
    case JSON_KIND_NUMBER:
        return number(h, v, origin);
    case JSON_KIND_STRING:
        return jinja_value_text(h, json_text(v, h->arena), origin);
    case JSON_KIND_ARRAY:
        out = jinja_value_list(h, JINJA_LIST_LIST, origin);
        for (struct json_walk w = json_walk(v); h->stop == JINJA_STOP_NONE && json_next(&w);)
            jinja_value_push(h, out, read(h, w.value, origin));
        return out;
    case JSON_KIND_OBJECT:
        out = jinja_value_dict(h, origin);
        for (struct json_walk w = json_walk(v); h->stop == JINJA_STOP_NONE && json_next(&w);)
            jinja_value_put(h, out, read(h, w.key, origin), read(h, w.value, origin));
        return out;
    }
    out.origin = origin;
    return out;
}

/* json_parse bounds the depth, so the recursion is bounded too. */
bool jinja_json_value(struct jinja_heap *h, str text, uint32_t origin, struct jinja_value *out,
                      struct err *e)
{
    const struct json_options options = {.depth_max = JINJA_VALUE_DEPTH_MAX};
    struct json v;
    if (!json_parse(&v, text, &options, h->arena, e))
        return false;
    *out = read(h, v, origin);
    if (h->arena->is_full && h->stop == JINJA_STOP_NONE)
        h->stop = JINJA_STOP_MEMORY;
    return h->stop == JINJA_STOP_NONE ||
           err_set(e, ERR_LIMIT, "json: the values need more than %zu MiB",
                   h->arena->bytes_max >> 20);
}

bool jinja_json_load(struct jinja_call *c, struct jinja_value *out)
{
    struct err e;
    if (c->self.kind != JINJA_STRING)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'from_json': a string expected, not '%s'",
                               jinja_value_type(c->self));
    jinja_text_charge(c->s->h, c->self.u.s.len / 8);
    return jinja_json_value(c->s->h, jinja_text_bytes(c->self.u.s),
                            jinja_text_taint(c->self.u.s), out, &e) ||
           jinja_eval_fail(c->s, e.code, "'from_json': %s", e.text);
}

/* ---- Writing ---- */

struct dump {
    struct jinja_call *c;
    struct jinja_build b;
    bool ascii, sort;
    bool has_indent;
    str indent, between, behind_key; /* of one level; "," and ":" with their blanks */
};

static bool dump(struct dump *d, struct jinja_value v, unsigned depth);

static void add_escape(struct jinja_build *b, uint32_t c, uint32_t origin)
{
    char text[16];
    int len;
    if (c < 0x10000)
        len = snprintf(text, sizeof text, "\\u%04x", c);
    else
        len = snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                       0xdc00 + ((c - 0x10000) & 0x3ff));
    jinja_text_add(b, (str){text, (size_t)len}, origin);
}

/* Quotes and escapes belong to the piece that they stand in. */
static void dump_text(struct dump *d, struct jinja_str s)
{
    static const char special[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
    str bytes = jinja_text_bytes(s);
    uint32_t origin = 0, end;
    if (s.len == 0)
        jinja_text_add(&d->b, STR("\""), 0);
    for (uint32_t at = 0; at < s.len && d->b.h->stop == JINJA_STOP_NONE;) {
        origin = jinja_text_origin(s, at, &end);
        if (at == 0)
            jinja_text_add(&d->b, STR("\""), origin);
        uint32_t plain = at, code;
        while (plain < end && (uint8_t)bytes.p[plain] >= 0x20 && bytes.p[plain] != '"' &&
               bytes.p[plain] != '\\' && ((uint8_t)bytes.p[plain] < 0x80 || !d->ascii))
            plain++;
        jinja_text_add(&d->b, str_sub(bytes, at, plain - at), origin);
        at = plain;
        if (at == end)
            continue;
        const char *p = bytes.p[at] ? strchr(special, bytes.p[at]) : NULL;
        size_t len = str_utf8_decode(str_from(bytes, at), &code);
        jinja_text_charge(d->b.h, 1);
        if (p)
            jinja_text_add(&d->b, (str){(char[]){'\\', letter[p - special]}, 2}, origin);
        else
            add_escape(&d->b, code, origin);
        at += (uint32_t)len;
    }
    jinja_text_add(&d->b, STR("\""), origin);
}

static void new_line(struct dump *d, unsigned depth, uint32_t origin)
{
    if (!d->has_indent)
        return;
    jinja_text_add(&d->b, STR("\n"), origin);
    for (unsigned i = 0; i < depth; i++)
        jinja_text_add(&d->b, d->indent, origin);
}

static bool dump_list(struct dump *d, const struct jinja_list *l, unsigned depth)
{
    jinja_text_add(&d->b, STR("["), l->origin);
    for (uint32_t i = 0; i < l->count && d->b.h->stop == JINJA_STOP_NONE; i++) {
        if (i)
            jinja_text_add(&d->b, d->between, l->origin);
        new_line(d, depth + 1, l->origin);
        if (!dump(d, l->items[i], depth + 1))
            return false;
    }
    if (l->count)
        new_line(d, depth, l->origin);
    jinja_text_add(&d->b, STR("]"), l->origin);
    return true;
}

/* A key that is no string is written as its JSON form in quotes. */
static bool dump_key(struct dump *d, struct jinja_value key, unsigned depth)
{
    if (key.kind == JINJA_STRING) {
        dump_text(d, key.u.s);
        return true;
    }
    jinja_text_add(&d->b, STR("\""), key.origin);
    bool ok = dump(d, key, depth);
    jinja_text_add(&d->b, STR("\""), key.origin);
    return ok;
}

static bool dump_dict(struct dump *d, struct jinja_value v, unsigned depth)
{
    struct jinja_call sort = {.s = d->c->s, .name = "tojson", .self = v,
                              .arg = {jinja_value_bool(true)}, .given = 1};
    struct jinja_value sorted;
    uint32_t origin = v.u.dict->origin;
    const struct jinja_dict *dict = v.u.dict;
    if (d->sort && !jinja_seq_dictsort(&sort, &sorted))
        return false;
    jinja_text_add(&d->b, STR("{"), origin);
    for (uint32_t i = 0; i < dict->count && d->b.h->stop == JINJA_STOP_NONE; i++) {
        const struct jinja_value *pair = d->sort ? sorted.u.list->items[i].u.list->items : NULL;
        if (i)
            jinja_text_add(&d->b, d->between, origin);
        new_line(d, depth + 1, origin);
        if (!dump_key(d, pair ? pair[0] : dict->entries[i].key, depth))
            return false;
        jinja_text_add(&d->b, d->behind_key, origin);
        if (!dump(d, pair ? pair[1] : dict->entries[i].value, depth + 1))
            return false;
    }
    if (dict->count)
        new_line(d, depth, origin);
    jinja_text_add(&d->b, STR("}"), origin);
    return true;
}

static bool dump(struct dump *d, struct jinja_value v, unsigned depth)
{
    const char *word = v.kind == JINJA_NONE ? "null"
                       : v.kind == JINJA_BOOL ? (v.u.b ? "true" : "false")
                       : v.kind == JINJA_FLOAT && isnan(v.u.f) ? "NaN"
                       : v.kind == JINJA_FLOAT && isinf(v.u.f) ? (v.u.f > 0 ? "Infinity"
                                                                            : "-Infinity") : NULL;
    if (depth > JINJA_VALUE_DEPTH_MAX)
        return jinja_eval_fail(d->c->s, ERR_LIMIT, "'tojson': the value nests deeper than %d",
                               JINJA_VALUE_DEPTH_MAX);
    jinja_text_charge(d->b.h, 1);
    if (word)
        jinja_text_add(&d->b, str_of(word), v.origin);
    else if (v.kind == JINJA_STRING)
        dump_text(d, v.u.s);
    else if (v.kind == JINJA_LIST && v.flavour <= JINJA_LIST_TUPLE)
        return dump_list(d, v.u.list, depth);
    else if (v.kind == JINJA_DICT)
        return dump_dict(d, v, depth);
    else if (v.kind == JINJA_INT || v.kind == JINJA_FLOAT || v.kind == JINJA_BIG)
        return jinja_print_str(&d->b, v);
    else
        return jinja_eval_fail(d->c->s, ERR_FORMAT, "'tojson': a value of type '%s' is not JSON",
                               jinja_value_type(v));
    return true;
}

static bool read_indent(struct dump *d, struct jinja_value v)
{
    int64_t width;
    d->has_indent = v.kind != JINJA_NONE;
    if (!d->has_indent)
        return true;
    d->between = STR(",");
    if (v.kind == JINJA_STRING) {
        d->indent = jinja_text_bytes(v.u.s);
        return true;
    }
    if (!jinja_op_int(v, &width) || width > 64)
        return jinja_eval_fail(d->c->s, ERR_UNSUPPORTED, "'tojson': indent up to 64 expected");
    static const char blanks[] = "                                                                ";
    d->indent = (str){blanks, width > 0 ? (size_t)width : 0};
    return true;
}

static bool read_separators(struct dump *d, struct jinja_value v)
{
    struct jinja_list *l = v.u.list;
    if (v.kind == JINJA_NONE)
        return true;
    if (v.kind != JINJA_LIST || v.flavour > JINJA_LIST_TUPLE || l->count != 2 ||
        l->items[0].kind != JINJA_STRING || l->items[1].kind != JINJA_STRING)
        return jinja_eval_fail(d->c->s, ERR_FORMAT, "'tojson': two strings expected as separators");
    d->between = jinja_text_bytes(l->items[0].u.s);
    d->behind_key = jinja_text_bytes(l->items[1].u.s);
    return true;
}

bool jinja_json_dump(struct jinja_call *c, struct jinja_value *out)
{
    struct dump d = {.c = c, .b = jinja_text_begin(c->s->h), .between = STR(", "),
                     .behind_key = STR(": ")};
    d.ascii = jinja_call_has(c, 0) && jinja_value_truth(c->arg[0]);
    d.sort = jinja_call_has(c, 3) && jinja_value_truth(c->arg[3]);
    if ((jinja_call_has(c, 1) && !read_indent(&d, c->arg[1])) ||
        (jinja_call_has(c, 2) && !read_separators(&d, c->arg[2])) || !dump(&d, c->self, 0))
        return false;
    *out = jinja_value_str(jinja_text_end(&d.b));
    return true;
}
