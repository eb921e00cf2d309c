#include "base/json.h"
#include "chat/output_shape.h"

#include <string.h>

/* Two shapes whose arguments are JSON. OBJECT: {"name": NAME, "arguments": {...}} in any order of
 * keys, other keys skipped, perhaps inside {"type": "function", "function": {...}} or in a list.
 * NAMED: a head with the name, then the arguments. */

enum { STAGE_FIRST = 1, STAGE_OBJECT, STAGE_HEAD, STAGE_ARGS = OUTPUT_JSON_ARGS,
       STAGE_TAIL };
enum { KEY_OTHER, KEY_NAME, KEY_ARGS, KEY_WRAP };

static char byte_at(const struct output *o, size_t i) { return o->text.p[o->at + i]; }

static size_t rest_len(const struct output *o) { return o->text.len - o->at; }

/* The rest of an object whose call was said is not shown. */
static void read_tail(struct output *o)
{
    o->phase = OUTPUT_PHASE_CALL;
    o->call.stage = STAGE_TAIL;
}

/* ---- Arguments as they come ---- */

/* From call.look on; the call is begun, the scan is inside the value or before it, which ends at
 * the depth of call.level. */
static bool args_step(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    const uint32_t base = c->level;
    size_t n = rest_len(o);
    bool is_done = false;
    while (c->look < n && !is_done) {
        if (!output_scan_byte(&c->scan, byte_at(o, c->look), &o->args))
            break;
        c->look++;
        is_done = c->scan.depth == base &&
                  (c->scan.at == OUTPUT_SCAN_NEXT || c->scan.at == OUTPUT_SCAN_DONE);
    }
    bool is_bad = c->scan.at == OUTPUT_SCAN_BAD;
    output_shape_drop(o, c->look);
    c->look = 0;
    if (is_done) {
        output_call_done(o);
        if (base > 0)
            read_tail(o);
        return true;
    }
    output_call_say_args(o);
    if (is_bad || end != OUTPUT_SHAPE_GOES_ON)
        return output_call_fail(o, end);
    return false;
}

/* ---- Objects ---- */

/* Arguments that came before the name, or none at all. A string may hold them, as JSON in JSON. */
static void put_held_args(struct output *o, str raw)
{
    const struct json_options opt = {.depth_max = OUTPUT_SCAN_DEPTH_MAX};
    struct output_scan scan;
    struct arena a;
    struct json v, inner;
    struct err ignored;
    if (raw.len == 0 || str_eq_z(raw, "null"))
        raw = STR("{}");
    arena_init(&a, 8 * raw.len + ((size_t)1 << 21));
    if (raw.p[0] == '"' && json_parse(&v, raw, &opt, &a, &ignored)) {
        str text = json_text(v, &a);
        if (text.p && json_parse(&inner, text, &opt, &a, &ignored))
            raw = text;
    }
    output_scan_init(&scan);
    for (size_t i = 0; i < raw.len; i++)
        if (!output_scan_byte(&scan, raw.p[i], &o->args))
            break;
    arena_deinit(&a);
}

/* The value that counts is an object, or JSON in JSON that is one. */
static bool is_object(str raw)
{
    const struct json_options opt = {.depth_max = OUTPUT_SCAN_DEPTH_MAX};
    struct json v, inner;
    struct arena a;
    struct err ignored;
    if (raw.p[0] != '"')
        return raw.p[0] == '{';
    arena_init(&a, 8 * raw.len + ((size_t)1 << 21));
    bool ok = json_parse(&v, raw, &opt, &a, &ignored);
    str text = ok ? json_text(v, &a) : (str){NULL, 0};
    ok = text.p && json_parse(&inner, text, &opt, &a, &ignored) &&
         json_kind(inner) == JSON_KIND_OBJECT;
    arena_deinit(&a);
    return ok;
}

/* The object ended or its name came after the arguments: all that is known is said at once. */
static bool say_whole(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    struct arena a;
    arena_init(&a, c->args_len + 64);
    str args = arena_copy(&a, str_sub(output_shape_rest(o), c->args_from, c->args_len));
    bool ok = args.p && output_call_begin(o, buf_view(&o->name), c->look);
    if (ok) {
        put_held_args(o, args);
        output_call_done(o);
        if (c->scan.at != OUTPUT_SCAN_DONE)
            read_tail(o);
    }
    arena_deinit(&a);
    return ok ? true : output_call_fail(o, end);
}

static uint32_t key_of(str key)
{
    if (str_eq_z(key, "name"))
        return KEY_NAME;
    if (str_eq_z(key, "arguments") || str_eq_z(key, "parameters"))
        return KEY_ARGS;
    return str_eq_z(key, "function") ? KEY_WRAP : KEY_OTHER;
}

/* The name without its escapes. False: none that a tool can have. */
static bool put_name(struct buf *out, str raw)
{
    const struct json_options opt = {.depth_max = 1};
    struct json v;
    struct arena a;
    struct err ignored;
    buf_clear(out);
    if (raw.len <= 2 || raw.len > 6 * OUTPUT_SHAPE_HEAD_MAX)
        return false;
    arena_init(&a, (size_t)1 << 20);
    str name = json_parse(&v, raw, &opt, &a, &ignored) ? json_text(v, &a) : (str){NULL, 0};
    bool ok = name.len > 0 && name.len <= OUTPUT_SHAPE_HEAD_MAX;
    for (size_t i = 0; i < name.len && ok; i++)
        ok = (uint8_t)name.p[i] >= 0x20;
    ok = ok && buf_add(out, name);
    arena_deinit(&a);
    return ok;
}

/* A name that needs no escapes has none, others have the usual ones. */
static bool is_usual(str name, str raw)
{
    struct buf b;
    buf_init(&b, 8 * OUTPUT_SHAPE_HEAD_MAX);
    bool ok = buf_add_byte(&b, '"') && json_add_escaped(&b, name) && buf_add_byte(&b, '"') &&
              str_eq(buf_view(&b), raw);
    buf_deinit(&b);
    return ok;
}

/* A call without an opener must name a declared tool. */
static bool take_name(struct output *o)
{
    struct output_call *c = &o->call;
    str raw = str_sub(output_shape_rest(o), c->key_from - 1, c->look + 1 - c->key_from);
    c->has_name = put_name(&o->name, raw);
    c->is_odd = c->is_odd || !is_usual(buf_view(&o->name), raw);
    return c->has_name && (!c->is_bare || output_tools_find(o->o.tools, buf_view(&o->name)));
}

/* A key of the object that counts was read to its end. */
static bool key_ended(struct output *o)
{
    struct output_call *c = &o->call;
    str key = str_sub(output_shape_rest(o), c->key_from, c->look - 1 - c->key_from);
    c->key = key_of(key);
    bool is_type = str_eq_z(key, "type"), is_first = c->pairs++ == 0;
    if (c->key == KEY_NAME)
        c->is_odd = c->is_odd || c->has_name || !(is_first || (c->pairs == 2 && c->is_function));
    else if (!c->has_args)
        c->is_odd = c->is_odd || !(c->key == KEY_ARGS ? c->has_name : is_type && is_first);
    return !c->is_bare || !is_first || c->key != KEY_OTHER || is_type;
}

/* A value that is no string began: arguments may be null, but no number; a name may be neither. */
static bool value_began(struct output_call *c)
{
    if (c->key == KEY_ARGS)
        c->args_from = c->look - 1;
    return c->key == KEY_ARGS ? c->scan.at == OUTPUT_SCAN_IN_WORD : c->key != KEY_NAME;
}

static bool value_ended(struct output *o, bool is_string)
{
    struct output_call *c = &o->call;
    if (is_string && (c->key == KEY_NAME || c->key == KEY_WRAP))
        return take_name(o);
    if (c->key == KEY_OTHER && is_string && !c->has_name)
        c->is_function = str_eq_z(str_sub(output_shape_rest(o), c->key_from,
                                          c->look - 1 - c->key_from), "function");
    if (c->key == KEY_ARGS) {
        c->is_odd = c->is_odd || is_string;
        c->args_from = is_string ? c->key_from - 1 : c->args_from;
        c->args_len = c->look - c->args_from;
        c->has_args = true;
    }
    return true;
}

/* The byte in front of call.look moved the scan from `was`, inside the object that counts. */
static bool moved_along(struct output *o, const struct output_scan *was)
{
    struct output_call *c = &o->call;
    enum output_scan_at at = c->scan.at;
    if (at == was->at)
        return true;
    if (at == OUTPUT_SCAN_IN_KEY || (at == OUTPUT_SCAN_IN_STRING && was->at == OUTPUT_SCAN_VALUE))
        c->key_from = c->look;
    else if (at == OUTPUT_SCAN_COLON)
        return key_ended(o);
    else if (was->at == OUTPUT_SCAN_VALUE)
        return value_began(c);
    else if (at == OUTPUT_SCAN_NEXT &&
             (was->at == OUTPUT_SCAN_IN_STRING || was->at == OUTPUT_SCAN_IN_WORD))
        return value_ended(o, was->at == OUTPUT_SCAN_IN_STRING);
    return true;
}

/* ... or into or out of what it holds. False: no call after all. */
static bool moved(struct output *o, const struct output_scan *was)
{
    struct output_call *c = &o->call;
    uint32_t from = was->depth, to = c->scan.depth;
    if (from == to)
        return to == c->level ? moved_along(o, was) : true;
    if (from == c->level && to == from + 1 && was->at == OUTPUT_SCAN_VALUE) {
        if (c->key == KEY_WRAP && c->scan.at == OUTPUT_SCAN_FIRST_KEY)
            c->level++;
        else if (c->key == KEY_ARGS)
            c->args_from = c->look - 1;
        return c->key != KEY_NAME;
    }
    if (to == c->level && from == to + 1 && c->key == KEY_ARGS)
        return value_ended(o, false);
    if (to + 1 == c->level && c->level > 1) {
        c->level--;
        c->key = KEY_OTHER;
    }
    return true;
}

/* Whether what is read may still become text as a whole. */
static bool is_held(const struct output *o) { return o->call.is_bare && !o->o.is_forced; }

/* Arguments begin and the name is known: from here on they flow. */
static bool starts_to_flow(const struct output *o, const struct output_scan *was)
{
    const struct output_call *c = &o->call;
    return !is_held(o) && c->has_name && c->key == KEY_ARGS && c->scan.depth == was->depth + 1 &&
           was->depth == c->level && was->at == OUTPUT_SCAN_VALUE;
}

/* Of an object that is whole, or said as if it were. */
static bool is_call(const struct output *o)
{
    const struct output_call *c = &o->call;
    str args = str_sub(output_shape_rest(o), c->args_from, c->args_len);
    if (!c->is_bare || !c->has_name)
        return c->has_name;
    const struct output_tool *tool = output_tools_find(o->o.tools, buf_view(&o->name));
    bool is_bound = !c->is_odd || !tool || !tool->tool->strict;
    return is_bound && c->has_args && is_object(args);
}

static bool object_step(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    for (size_t n = rest_len(o); c->look < n;) {
        struct output_scan was = c->scan;
        char byte = byte_at(o, c->look);
        if (!output_scan_byte(&c->scan, byte, NULL))
            return output_call_fail(o, end);
        c->look++;
        if (!moved(o, &was))
            return output_call_fail(o, end);
        if (starts_to_flow(o, &was)) {
            if (!output_call_begin(o, buf_view(&o->name), c->look))
                return output_call_fail(o, end);
            buf_add_byte(&o->args, byte);
            c->stage = STAGE_ARGS;
            return true;
        }
        bool is_done = c->scan.at == OUTPUT_SCAN_DONE;
        bool is_whole = c->has_name && c->has_args;
        if (is_done || (is_whole && !is_held(o)))
            return is_call(o) ? say_whole(o, end) : output_call_fail(o, end);
    }
    return end == OUTPUT_SHAPE_GOES_ON ? false : output_call_fail(o, end);
}

/* What follows the arguments inside the object is read and not shown. */
static bool tail_step(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    size_t n = rest_len(o), i = 0;
    while (i < n && output_scan_byte(&c->scan, byte_at(o, i), NULL))
        i++;
    output_shape_drop(o, i);
    if (c->scan.at != OUTPUT_SCAN_DONE && c->scan.at != OUTPUT_SCAN_BAD &&
        end == OUTPUT_SHAPE_GOES_ON)
        return false;
    o->phase = OUTPUT_PHASE_AFTER;
    return true;
}

/* ---- Names ---- */

/* "function<sep>NAME", "NAME<sep>", "NAME[CALL_ID]x[ARGS]": the name is the first word, or the one
 * behind the separator where the first is only a kind. */
static str head_name(const struct output_row *r, str head)
{
    str open = str_trim(r->name_open);
    static const char ends[] = "[<`( \t\r\n";
    head = str_trim(head);
    if (open.len && str_starts(head, open))
        head = str_from(head, open.len);
    for (int i = 0; i < 2; i++) {
        size_t len = 0;
        while (len < head.len && !strchr(ends, head.p[len]))
            len++;
        str word = str_sub(head, 0, len);
        size_t behind = str_find_byte(head, '>');
        if (i == 1 || !str_eq_z(word, "function") || behind == STR_NONE)
            return word;
        head = str_trim(str_from(head, behind + 1));
    }
    return head;
}

static bool head_step(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    const struct output_row *r = o->o.format.calls;
    str text = str_from(output_shape_rest(o), c->look);
    size_t brace = str_find_byte(text, '{');
    if (brace == STR_NONE) {
        bool is_long = text.len > OUTPUT_SHAPE_HEAD_MAX;
        return is_long || end != OUTPUT_SHAPE_GOES_ON ? output_call_fail(o, end) : false;
    }
    str name = head_name(r, str_sub(text, 0, brace));
    if (brace > OUTPUT_SHAPE_HEAD_MAX || name.len == 0)
        return output_call_fail(o, end);
    c->has_fence = str_find(str_sub(text, 0, brace), STR("```")) != STR_NONE;
    if (!output_call_begin(o, name, c->look + brace))
        return output_call_fail(o, end);
    output_scan_init(&c->scan);
    c->level = 0;
    c->stage = STAGE_ARGS;
    return true;
}

/* ---- The first byte behind the openers ---- */

static bool first_step(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    c->look += output_shape_blanks(str_from(output_shape_rest(o), c->look));
    if (c->look == rest_len(o))
        return end == OUTPUT_SHAPE_GOES_ON ? false : output_call_fail(o, end);
    char byte = byte_at(o, c->look);
    if (byte == '[' && !c->is_list) {
        size_t next = c->look + 1;
        next += output_shape_blanks(str_from(output_shape_rest(o), next));
        if (next == rest_len(o) && end == OUTPUT_SHAPE_GOES_ON)
            return false;
        if (next < rest_len(o) && byte_at(o, next) == '{') {
            c->is_list = true;
            c->look = next;
            return true;
        }
    }
    if (byte == '{') {
        c->stage = STAGE_OBJECT;
        c->level = 1;
        return true;
    }
    if (c->shape == OUTPUT_SHAPE_OBJECT)
        return output_call_fail(o, end);
    c->stage = STAGE_HEAD;
    return true;
}

bool output_json_step(struct output *o, enum output_shape_end end)
{
    static bool (*const stages[])(struct output *o, enum output_shape_end end) = {
        [STAGE_FIRST] = first_step, [STAGE_OBJECT] = object_step, [STAGE_HEAD] = head_step,
        [STAGE_ARGS] = args_step, [STAGE_TAIL] = tail_step};
    return stages[o->call.stage](o, end);
}
