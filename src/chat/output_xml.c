#include "base/json.h"
#include "chat/output_shape.h"

#include <string.h>

/* TAGS: the name, then a pair of tags per argument. The arguments become one JSON object on the
 * way: a declared string flows as it comes, any other value waits for its end tag and is then JSON
 * if it can be. A value ends at the format's own end tag and nowhere else; in a JSON string of a
 * declared array or object one is text. */

enum { STAGE_NAME_OPEN = 1, STAGE_NAME, STAGE_PAIRS, STAGE_KEY, STAGE_TEXT, STAGE_JSON };

/* ---- The name ---- */

static bool name_open_step(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    str text = str_from(output_shape_rest(o), c->look);
    str open = str_trim(o->o.format.calls->name_open);
    size_t blanks = output_shape_blanks(text), len = 0;
    text = str_from(text, blanks);
    if (text.len == 0)
        return output_call_wait(o, end);
    if (text.p[0] == '{' || (text.p[0] == '[' && open.len)) { /* the other habit of such models */
        c->shape = OUTPUT_SHAPE_OBJECT;
        return true;
    }
    enum output_shape_match m = output_shape_is(text, open, &len);
    if (m == OUTPUT_SHAPE_PARTLY)
        return output_call_wait(o, end);
    if (m == OUTPUT_SHAPE_NO)
        return output_call_fail(o, end);
    c->look += blanks + len;
    c->stage = STAGE_NAME;
    return true;
}

static str unquoted(str name)
{
    name = str_trim(name);
    if (name.len > 1 && name.p[0] == '"' && name.p[name.len - 1] == '"')
        name = str_sub(name, 1, name.len - 2);
    return name;
}

/* Where the name ends: at its closing text, without one at a blank or tag. STR_NONE: not yet. */
static size_t name_end(str text, str close, enum output_shape_end end, size_t *len)
{
    size_t at = 0;
    *len = 0;
    if (close.len) {
        enum output_shape_match m = output_shape_find(text, &close, 1, &at, len);
        return m == OUTPUT_SHAPE_YES ? at : STR_NONE;
    }
    while (at < text.len && !strchr(" \t\r\n<", text.p[at]))
        at++;
    return at < text.len || end == OUTPUT_SHAPE_ENDS ? at : STR_NONE;
}

static bool name_step(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    str text = str_from(output_shape_rest(o), c->look);
    str close = str_trim(o->o.format.calls->name_close);
    size_t len, at = name_end(text, close, end, &len);
    size_t seen = base_min(at == STR_NONE ? text.len : at, text.len);
    for (size_t i = 0; i < seen; i++)
        if (text.p[i] == '<' || text.p[i] == '\n' || text.p[i] == '{' || i > OUTPUT_SHAPE_HEAD_MAX)
            return output_call_fail(o, end);
    if (at == STR_NONE)
        return output_call_wait(o, end);
    str name = unquoted(str_sub(text, 0, at));
    if (name.len == 0 || !output_call_begin(o, name, c->look + at + len))
        return output_call_fail(o, end);
    c->stage = STAGE_PAIRS;
    return true;
}

/* ---- Between the pairs ---- */

static bool finish(struct output *o, size_t used)
{
    output_shape_drop(o, used);
    buf_add_z(&o->args, o->call.pairs ? "}" : "{}");
    output_call_done(o);
    return true;
}

static bool pairs_step(struct output *o, enum output_shape_end end)
{
    const struct output_row *r = o->o.format.calls;
    const str closes[] = {str_trim(r->args_close), str_trim(r->call_close),
                          output_call_closer(r->section_close), r->also_close};
    output_shape_drop(o, output_shape_blanks(output_shape_rest(o)));
    o->call.look = 0;
    str text = output_shape_rest(o);
    size_t len = 0;
    enum output_shape_match m = output_shape_is(text, str_trim(r->key_open), &len);
    if (m == OUTPUT_SHAPE_YES) {
        output_shape_drop(o, len);
        o->call.stage = STAGE_KEY;
        return true;
    }
    bool partly = m == OUTPUT_SHAPE_PARTLY;
    for (size_t i = 0; i < countof(closes); i++) {
        m = closes[i].len ? output_shape_is(text, closes[i], &len) : OUTPUT_SHAPE_NO;
        if (m == OUTPUT_SHAPE_YES)
            return finish(o, 0); /* AFTER reads the closers */
        partly = partly || m == OUTPUT_SHAPE_PARTLY;
    }
    if (partly && end == OUTPUT_SHAPE_GOES_ON)
        return output_call_wait(o, end);
    if (text.len == 0 && end == OUTPUT_SHAPE_ENDS)
        return finish(o, 0); /* only the closer is missing */
    return output_call_fail(o, end);
}

static bool says_type(const struct output_row *r) { return !str_eq(r->key_text, r->key_json); }

static bool key_step(struct output *o, enum output_shape_end end)
{
    const struct output_row *r = o->o.format.calls;
    struct output_call *c = &o->call;
    const str ends[] = {str_trim(r->key_text), str_trim(r->key_json)};
    str text = output_shape_rest(o);
    size_t at = 0, len = 0, ignored;
    enum output_shape_match m = output_shape_find(text, ends, countof(ends), &at, &len);
    if (at > OUTPUT_SHAPE_HEAD_MAX)
        return output_call_fail(o, end);
    if (m != OUTPUT_SHAPE_YES)
        return output_call_wait(o, end);
    str key = unquoted(str_sub(text, 0, at));
    c->types = output_tools_types(c->tool, key);
    if (says_type(r))
        c->types = output_shape_is(str_from(text, at), ends[0], &ignored) == OUTPUT_SHAPE_YES
                       ? OUTPUT_TYPE_STRING : UINT32_MAX & ~(uint32_t)OUTPUT_TYPE_STRING;
    buf_add_z(&o->args, c->pairs++ ? ", \"" : "{\"");
    json_add_escaped(&o->args, key);
    buf_add_z(&o->args, "\": ");
    c->stage = STAGE_JSON;
    if (c->types == OUTPUT_TYPE_STRING) {
        buf_add_byte(&o->args, '"');
        c->stage = STAGE_TEXT;
    }
    output_shape_drop(o, at + len);
    c->key_from = 0; /* TEXT: nothing of the value was read */
    c->args_len = 0; /* JSON: nothing of it was scanned */
    output_scan_init(&c->scan);
    return true;
}

/* ---- Values ---- */

/* One newline. */
static size_t newline_first(str text)
{
    return str_starts(text, STR("\r\n")) ? 2 : str_starts(text, STR("\n")) ? 1 : 0;
}

static size_t newline_last(str text)
{
    return str_ends(text, STR("\r\n")) ? 2 : str_ends(text, STR("\n")) ? 1 : 0;
}

/* One newline at each end belongs to the tags, not in a format that gives strings raw. */
static bool text_step(struct output *o, enum output_shape_end end)
{
    const struct output_row *r = o->o.format.calls;
    struct output_call *c = &o->call;
    const str close = str_trim(r->value_close);
    str text = output_shape_rest(o);
    size_t at = 0, len = 0, first = 0;
    bool trims = !says_type(r);
    if (trims && c->key_from == 0) {
        if (text.len == 0 || (text.len == 1 && text.p[0] == '\r'))
            return output_call_wait(o, end);
        first = newline_first(text);
        c->key_from = 1;
    }
    output_shape_drop(o, first);
    text = str_from(text, first);
    enum output_shape_match m = output_shape_find(text, &close, 1, &at, &len);
    if (m == OUTPUT_SHAPE_NO)
        at = text.len;
    size_t keep = trims ? newline_last(str_sub(text, 0, at)) : 0;
    if (m == OUTPUT_SHAPE_NO && trims && !keep && str_ends(text, STR("\r")))
        keep = 1;
    json_add_escaped(&o->args, str_sub(text, 0, at - keep));
    output_shape_drop(o, at - keep);
    if (m != OUTPUT_SHAPE_YES)
        return output_call_wait(o, end);
    output_shape_drop(o, keep + len);
    buf_add_byte(&o->args, '"');
    output_call_say_args(o);
    c->stage = STAGE_PAIRS;
    return true;
}

/* Python's words for what the schema declares. */
static const char *python_word(str value, uint32_t types)
{
    if (types & OUTPUT_TYPE_BOOL && str_eq_nocase(value, STR("true")))
        return "true";
    if (types & OUTPUT_TYPE_BOOL && str_eq_nocase(value, STR("false")))
        return "false";
    if (types & OUTPUT_TYPE_NULL && (str_eq_z(value, "None") || str_eq_z(value, "null")))
        return "null";
    return NULL;
}

/* JSON of a type that may be: as it stands. Else a string, if only because nothing else is left. */
static void put_value(struct output *o, str raw, uint32_t types)
{
    const struct json_options opt = {.depth_max = OUTPUT_SCAN_DEPTH_MAX / 2};
    str value = str_trim(raw);
    const char *word = types ? python_word(value, types) : NULL;
    struct arena a;
    struct json v;
    struct err ignored;
    arena_init(&a, 4 * value.len + ((size_t)1 << 20));
    bool is_json = value.len && json_parse(&v, value, &opt, &a, &ignored) &&
                   (types == 0 || !(types & OUTPUT_TYPE_STRING) ||
                    (types & output_tools_type(json_kind(v)) & ~(uint32_t)OUTPUT_TYPE_STRING));
    if (word) {
        buf_add_z(&o->args, word);
    } else if (is_json) {
        buf_add(&o->args, value);
    } else {
        buf_add_byte(&o->args, '"');
        json_add_escaped(&o->args, raw);
        buf_add_byte(&o->args, '"');
    }
    arena_deinit(&a);
}

/* Inside a string of a value that cannot be text itself an end tag is quoted, not meant. */
static bool is_quoted(struct output_call *c, str value)
{
    if (c->types == 0 || c->types & OUTPUT_TYPE_STRING)
        return false;
    while (c->args_len < value.len && output_scan_byte(&c->scan, value.p[c->args_len], NULL))
        c->args_len++;
    return c->args_len == value.len &&
           (c->scan.at == OUTPUT_SCAN_IN_STRING || c->scan.at == OUTPUT_SCAN_IN_KEY);
}

static bool json_step(struct output *o, enum output_shape_end end)
{
    const struct output_row *r = o->o.format.calls;
    struct output_call *c = &o->call;
    const str close = str_trim(r->value_close);
    str text = output_shape_rest(o);
    size_t at = 0, len = 0;
    /* What was looked at before is not looked at again, but for a begun end tag. */
    size_t from = c->look > close.len ? c->look - close.len : 0;
    enum output_shape_match m = output_shape_find(str_from(text, from), &close, 1, &at, &len);
    while (m == OUTPUT_SHAPE_YES && is_quoted(c, str_sub(text, 0, from + at))) {
        from += at + len;
        m = output_shape_find(str_from(text, from), &close, 1, &at, &len);
    }
    c->look = text.len;
    if (m != OUTPUT_SHAPE_YES)
        return output_call_wait(o, end);
    str raw = str_sub(text, 0, from + at);
    if (!says_type(r)) {
        raw = str_from(raw, newline_first(raw));
        raw.len -= newline_last(raw);
    }
    put_value(o, raw, c->types);
    output_shape_drop(o, from + at + len);
    c->look = 0;
    output_call_say_args(o);
    c->stage = STAGE_PAIRS;
    return true;
}

bool output_xml_step(struct output *o, enum output_shape_end end)
{
    static bool (*const stages[])(struct output *o, enum output_shape_end end) = {
        [STAGE_NAME_OPEN] = name_open_step, [STAGE_NAME] = name_step, [STAGE_PAIRS] = pairs_step,
        [STAGE_KEY] = key_step, [STAGE_TEXT] = text_step, [STAGE_JSON] = json_step};
    return stages[o->call.stage](o, end);
}
