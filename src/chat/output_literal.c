#include "base/json.h"
#include "chat/output_shape.h"

#include <string.h>

/* LITERAL: call:NAME{key:value,...}. Keys are bare, strings stand between the format's own quotes,
 * numbers and words are those of JSON, {} and [] nest. It becomes JSON as it comes. */

enum { STAGE_NAME = 1, STAGE_KEY, STAGE_VALUE, STAGE_TEXT, STAGE_NEXT };

#define NEST_MAX 64

static bool in_object(const struct output_call *c)
{
    return c->nest_is_object >> (c->nest - 1) & 1u;
}

/* In front of a value that is not the first of its array. */
static void separate(struct output *o)
{
    struct output_call *c = &o->call;
    if (c->nest && !in_object(c) && c->pairs++)
        buf_add_z(&o->args, ", ");
}

/* False: nested too deeply. */
static bool open(struct output *o, bool is_object)
{
    struct output_call *c = &o->call;
    if (c->nest == NEST_MAX)
        return false;
    uint64_t bit = UINT64_C(1) << c->nest++;
    c->nest_is_object = is_object ? c->nest_is_object | bit : c->nest_is_object & ~bit;
    buf_add_byte(&o->args, is_object ? '{' : '[');
    c->stage = is_object ? STAGE_KEY : STAGE_VALUE;
    c->pairs = 0;
    return true;
}

static bool close(struct output *o)
{
    struct output_call *c = &o->call;
    buf_add_byte(&o->args, in_object(c) ? '}' : ']');
    output_shape_drop(o, 1);
    c->nest--;
    c->pairs = 1;
    c->stage = STAGE_NEXT;
    if (c->nest == 0)
        output_call_done(o);
    return true;
}

static bool name_step(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    str text = str_from(output_shape_rest(o), c->look);
    str open_z = str_trim(o->o.format.calls->name_open);
    size_t brace = str_find_byte(text, '{'), len = 0;
    enum output_shape_match m = output_shape_is(text, open_z, &len);
    if (m == OUTPUT_SHAPE_PARTLY)
        return output_call_wait(o, end);
    if (m == OUTPUT_SHAPE_NO)
        len = 0;
    if (brace == STR_NONE)
        return text.len > OUTPUT_SHAPE_HEAD_MAX ? output_call_fail(o, end)
                                                : output_call_wait(o, end);
    if (brace < len || brace > OUTPUT_SHAPE_HEAD_MAX)
        return output_call_fail(o, end);
    str name = str_trim(str_sub(text, len, brace - len));
    for (size_t i = 0; i < name.len; i++)
        if (strchr(" \t\r\n<>\"", name.p[i]))
            return output_call_fail(o, end);
    if (name.len == 0 || !output_call_begin(o, name, c->look + brace + 1))
        return output_call_fail(o, end);
    return open(o, true);
}

/* The quotes, or plain ones, around a key are accepted too. */
static bool key_step(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    str quote = o->o.format.calls->key_open;
    output_shape_drop(o, output_shape_blanks(output_shape_rest(o)));
    str text = output_shape_rest(o);
    if (text.len == 0)
        return output_call_wait(o, end);
    if (text.p[0] == '}')
        return close(o);
    size_t colon = str_find_byte(text, ':');
    if (colon == STR_NONE)
        return text.len > OUTPUT_SHAPE_HEAD_MAX ? output_call_fail(o, end)
                                                : output_call_wait(o, end);
    str key = str_trim(str_sub(text, 0, colon));
    if (str_starts(key, quote) && str_ends(key, quote) && key.len >= 2 * quote.len)
        key = str_sub(key, quote.len, key.len - 2 * quote.len);
    else if (key.len > 1 && key.p[0] == '"' && key.p[key.len - 1] == '"')
        key = str_sub(key, 1, key.len - 2);
    if (key.len == 0 || key.len > OUTPUT_SHAPE_HEAD_MAX)
        return output_call_fail(o, end);
    buf_add_z(&o->args, c->pairs++ ? ", \"" : "\"");
    json_add_escaped(&o->args, key);
    buf_add_z(&o->args, "\": ");
    output_shape_drop(o, colon + 1);
    c->stage = STAGE_VALUE;
    return true;
}

/* A bare value: up to a comma or the end of its container. */
static bool bare_step(struct output *o, str text, enum output_shape_end end)
{
    size_t len = 0;
    struct output_scan scan;
    while (len < text.len && !strchr(",}]\n", text.p[len]))
        len++;
    if (len == text.len)
        return len > OUTPUT_SHAPE_HEAD_MAX ? output_call_fail(o, end) : output_call_wait(o, end);
    str word = str_trim(str_sub(text, 0, len));
    separate(o);
    output_scan_init(&scan);
    bool ok = word.len > 0 && word.p[0] != '"';
    for (size_t i = 0; i < word.len && ok; i++)
        ok = output_scan_byte(&scan, word.p[i], NULL);
    if (ok && output_scan_end(&scan)) {
        buf_add(&o->args, word);
    } else {
        if (word.len > 1 && word.p[0] == '"' && word.p[word.len - 1] == '"')
            word = str_sub(word, 1, word.len - 2);
        buf_add_byte(&o->args, '"');
        json_add_escaped(&o->args, word);
        buf_add_byte(&o->args, '"');
    }
    output_shape_drop(o, len);
    o->call.stage = STAGE_NEXT;
    return true;
}

static bool value_step(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    output_shape_drop(o, output_shape_blanks(output_shape_rest(o)));
    str text = output_shape_rest(o);
    size_t len = 0;
    if (text.len == 0)
        return output_call_wait(o, end);
    if (text.p[0] == ']' && !in_object(c) && c->pairs == 0)
        return close(o);
    if (text.p[0] == '{' || text.p[0] == '[') {
        separate(o);
        if (!open(o, text.p[0] == '{'))
            return output_call_fail(o, end);
        output_shape_drop(o, 1);
        return true;
    }
    enum output_shape_match m = output_shape_is(text, o->o.format.calls->key_open, &len);
    if (m == OUTPUT_SHAPE_NO)
        return bare_step(o, text, end);
    if (m == OUTPUT_SHAPE_PARTLY)
        return output_call_wait(o, end);
    separate(o);
    buf_add_byte(&o->args, '"');
    output_shape_drop(o, len);
    c->stage = STAGE_TEXT;
    return true;
}

static bool text_step(struct output *o, enum output_shape_end end)
{
    str text = output_shape_rest(o), close_z = o->o.format.calls->value_close;
    size_t at = 0, len = 0;
    enum output_shape_match m = output_shape_find(text, &close_z, 1, &at, &len);
    if (m == OUTPUT_SHAPE_NO)
        at = text.len;
    json_add_escaped(&o->args, str_sub(text, 0, at));
    output_shape_drop(o, at);
    if (m != OUTPUT_SHAPE_YES)
        return output_call_wait(o, end);
    output_shape_drop(o, len);
    buf_add_byte(&o->args, '"');
    o->call.stage = STAGE_NEXT;
    return true;
}

static bool next_step(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    output_shape_drop(o, output_shape_blanks(output_shape_rest(o)));
    str text = output_shape_rest(o);
    if (text.len == 0)
        return output_call_wait(o, end);
    if (text.p[0] == (in_object(c) ? '}' : ']'))
        return close(o);
    if (text.p[0] != ',')
        return output_call_fail(o, end);
    output_shape_drop(o, 1);
    c->pairs = 1;
    c->stage = in_object(c) ? STAGE_KEY : STAGE_VALUE;
    return true;
}

bool output_literal_step(struct output *o, enum output_shape_end end)
{
    static bool (*const stages[])(struct output *o, enum output_shape_end end) = {
        [STAGE_NAME] = name_step, [STAGE_KEY] = key_step, [STAGE_VALUE] = value_step,
        [STAGE_TEXT] = text_step, [STAGE_NEXT] = next_step};
    return stages[o->call.stage](o, end);
}
