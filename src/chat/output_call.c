#include "base/json.h"
#include "chat/output_shape.h"

#include <string.h>

/* ---- Saying a call ---- */

static void write_id(char out[OUTPUT_ID_LEN + 1], struct digest_128 seed, uint32_t index)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t words[3] = {seed.low, seed.high, index};
    struct digest_128 hash = digest_xxh3_128(str_view(words, sizeof words), 0);
    memcpy(out, "call_", 5);
    for (size_t i = 5; i < OUTPUT_ID_LEN; i++) {
        uint64_t *half = i < 16 ? &hash.low : &hash.high; /* 62^11 < 2^66: eleven digits a half */
        out[i] = digits[*half % 62];
        *half /= 62;
    }
    out[OUTPUT_ID_LEN] = 0;
}

bool output_call_begin(struct output *o, str name, size_t used)
{
    struct output_call *c = &o->call;
    c->tool = output_tools_find(o->o.tools, name);
    if (c->is_bare && c->tool == NULL)
        return false;
    output_shape_border(o);
    struct output_event *ev = output_shape_event(o, API_EVENT_CALL_BEGIN, name);
    if (ev) {
        ev->index = o->calls_begun;
        ev->tool = c->tool;
        write_id(ev->id, o->o.id_seed, o->calls_begun);
    }
    o->calls_begun++;
    o->has_shown = true;
    c->is_begun = true;
    output_shape_drop(o, used);
    c->look = c->look > used ? c->look - used : 0;
    buf_clear(&o->args);
    return true;
}

static void say_args(struct output *o, str text)
{
    struct output_event *ev = text.len ? output_shape_event(o, API_EVENT_CALL_ARGS, text) : NULL;
    if (ev)
        ev->index = o->calls_begun - 1;
}

static bool is_custom(const struct output *o)
{
    return o->call.tool && o->call.tool->tool->kind == API_TOOL_CUSTOM;
}

void output_call_say_args(struct output *o)
{
    if (is_custom(o))
        return; /* its one text is taken out of the whole */
    say_args(o, buf_view(&o->args));
    buf_clear(&o->args);
}

/* What a custom tool gets: the text of "input", or of the only string; else all as it stands. */
static void say_custom(struct output *o)
{
    const struct json_options opt = {.depth_max = OUTPUT_SCAN_DEPTH_MAX};
    str args = buf_view(&o->args), text = args;
    struct json v;
    struct arena a;
    struct err ignored;
    arena_init(&a, 4 * args.len + ((size_t)1 << 20));
    if (json_parse(&v, args, &opt, &a, &ignored)) {
        struct json input = json_kind(v) == JSON_KIND_OBJECT ? json_member(v, "input") : v;
        if (json_kind(v) == JSON_KIND_OBJECT && json_count(v) == 1)
            input = json_at(v, 0);
        if (json_kind(input) == JSON_KIND_STRING)
            text = json_text(input, &a);
    }
    say_args(o, text.p ? text : args);
    arena_deinit(&a);
    buf_clear(&o->args);
}

static enum output_phase body_phase(const struct output *o)
{
    return o->o.format.calls->shape == OUTPUT_SHAPE_CHANNEL ? OUTPUT_PHASE_MESSAGE
                                                            : OUTPUT_PHASE_BODY;
}

static void after_call(struct output *o)
{
    o->phase = OUTPUT_PHASE_AFTER;
    o->drops_blanks = true;
}

void output_call_done(struct output *o)
{
    if (is_custom(o))
        say_custom(o);
    else
        output_call_say_args(o);
    struct output_event *ev = output_shape_event(o, API_EVENT_CALL_END, STR(""));
    if (ev)
        ev->index = o->calls_begun - 1;
    o->calls_done++;
    if (o->o.one_call)
        o->is_stopped = true;
    after_call(o);
}

bool output_call_fail(struct output *o, enum output_shape_end end)
{
    struct output_call *c = &o->call;
    if (c->is_begun) { /* what was said stands; the rest is text */
        output_call_say_args(o);
        buf_clear(&o->args);
        o->has_broken_call = true;
        size_t rest = output_shape_rest(o).len;
        output_shape_drop(o, end == OUTPUT_SHAPE_GOES_ON ? base_min(c->look, rest) : rest);
        o->phase = body_phase(o);
        return true;
    }
    o->phase = body_phase(o);
    if (end == OUTPUT_SHAPE_IS_CUT && (!c->is_bare || o->o.is_forced)) { /* it was to be a call */
        o->has_broken_call = true;
        output_shape_drop(o, output_shape_rest(o).len);
        return true;
    }
    /* The opener's first letter is text now, so what follows is looked at anew, as what it is. */
    size_t blanks = output_shape_blanks(output_shape_rest(o));
    if (o->drops_blanks)
        output_shape_drop(o, blanks);
    else
        output_shape_show(o, blanks);
    o->drops_blanks = false;
    o->has_shown = true;
    output_shape_show(o, base_min(1, output_shape_rest(o).len));
    return true;
}

bool output_call_wait(struct output *o, enum output_shape_end end)
{
    if (o->call.is_begun)
        output_call_say_args(o);
    return end == OUTPUT_SHAPE_GOES_ON ? false : output_call_fail(o, end);
}

/* ---- Openers ---- */

str output_call_closer(str close)
{
    str s = str_trim(close);
    return s.len > 1 && s.p[0] == ']' ? str_from(s, 1) : s;
}

enum { STAGE_OPEN, STAGE_SHAPE };

void output_call_start(struct output *o, bool is_bare)
{
    o->phase = OUTPUT_PHASE_CALL;
    o->call = (struct output_call){.shape = o->o.format.calls->shape, .is_bare = is_bare,
                                   .stage = is_bare ? STAGE_SHAPE : STAGE_OPEN};
    output_scan_init(&o->call.scan);
}

void output_call_start_bare(struct output *o, size_t look)
{
    str head = str_sub(output_shape_rest(o), 0, look);
    output_call_start(o, true);
    o->call.look = look;
    o->call.has_fence = str_find_byte(head, '`') != STR_NONE;
}

/* Any number of openers: that of the section, of the call, doubled ones. One that is the shape's
 * own beginning ("<function=") stays for it. */
static bool open_step(struct output *o, enum output_shape_end end)
{
    const struct output_row *r = o->o.format.calls;
    struct output_call *c = &o->call;
    str text = str_from(output_shape_rest(o), c->look), head = str_trim(r->name_open);
    size_t blanks = output_shape_blanks(text), len = 0;
    bool partly = false;
    text = str_from(text, blanks);
    for (uint32_t i = 0; i < OUTPUT_TABLE_OPENERS; i++) {
        str s = output_table_begin(r, i);
        if (s.len == 0)
            continue;
        enum output_shape_match m = output_shape_is(text, s, &len);
        partly = partly || m == OUTPUT_SHAPE_PARTLY;
        if (m == OUTPUT_SHAPE_YES && !str_starts(head, s)) {
            c->look += blanks + len;
            return true;
        }
    }
    if (partly && end == OUTPUT_SHAPE_GOES_ON)
        return false;
    c->look += blanks;
    c->stage = STAGE_SHAPE;
    return true;
}

bool output_call_step(struct output *o, enum output_shape_end end)
{
    if (o->call.stage == STAGE_OPEN)
        return open_step(o, end);
    switch (o->call.shape) {
    case OUTPUT_SHAPE_OBJECT: case OUTPUT_SHAPE_NAMED: case OUTPUT_SHAPE_CHANNEL:
        return output_json_step(o, end);
    case OUTPUT_SHAPE_TAGS:
        return output_xml_step(o, end);
    case OUTPUT_SHAPE_LITERAL:
        return output_literal_step(o, end);
    case OUTPUT_SHAPE_COUNT_:
        break;
    }
    return false;
}

/* ---- Behind a call ---- */

/* What ends the call or its list; its fence counts once. */
static enum output_shape_match closer(struct output *o, str text, size_t *len)
{
    const struct output_row *r = o->o.format.calls;
    const str fence = STR("```");
    const str closes[] = {str_trim(r->args_close), str_trim(r->call_close),
                          output_call_closer(r->section_close), r->also_close, fence};
    enum output_shape_match best = OUTPUT_SHAPE_NO;
    for (size_t i = 0; i < countof(closes); i++) {
        bool is_fence = str_eq(closes[i], fence);
        if (closes[i].len == 0 || (is_fence && !o->call.has_fence))
            continue;
        enum output_shape_match m = output_shape_is(text, closes[i], len);
        if (m == OUTPUT_SHAPE_YES) {
            o->call.has_fence = o->call.has_fence && !is_fence;
            o->call.is_odd = o->call.is_odd || !is_fence;
            o->call.is_list = o->call.is_list && text.p[0] != ']';
            return m;
        }
        best = m > best ? m : best;
    }
    return best;
}

/* The next of a list, or of calls without an opener: *len bytes in front of its object. Until that
 * is known to be a call, what separates them may be text. */
static enum output_shape_match next_object(const struct output *o, str text, size_t *len)
{
    size_t n = text.p[0] == ',' || text.p[0] == ';', more = 0;
    if (!o->call.is_list && !o->call.is_bare)
        return OUTPUT_SHAPE_NO;
    n += output_shape_blanks(str_from(text, n));
    *len = n;
    if (n == text.len)
        return OUTPUT_SHAPE_PARTLY;
    if (!o->call.is_bare)
        return text.p[n] == '{' ? OUTPUT_SHAPE_YES : OUTPUT_SHAPE_NO;
    enum output_shape_match m = output_shape_bare(o->o.format.calls, str_from(text, n), &more);
    *len += more;
    return m;
}

static void start_next(struct output *o, size_t look)
{
    bool is_list = o->call.is_list, has_fence = o->call.has_fence, is_odd = o->call.is_odd;
    if (o->call.is_bare) {
        output_call_start_bare(o, look);
    } else {
        output_call_start(o, false);
        o->call.look = look;
    }
    o->call.stage = STAGE_SHAPE;
    o->call.is_list = is_list;
    o->call.is_odd = is_odd;
    o->call.has_fence = o->call.has_fence || has_fence;
}

bool output_call_after(struct output *o, enum output_shape_end end)
{
    size_t len = 0, look = 0;
    output_shape_drop(o, output_shape_blanks(output_shape_rest(o)));
    str text = output_shape_rest(o);
    if (text.len == 0)
        return false;
    enum output_shape_match close = closer(o, text, &len);
    if (close == OUTPUT_SHAPE_YES) {
        output_shape_drop(o, len);
        return true;
    }
    enum output_shape_match next = next_object(o, text, &look);
    bool partly = close == OUTPUT_SHAPE_PARTLY || next == OUTPUT_SHAPE_PARTLY;
    if (partly && end == OUTPUT_SHAPE_GOES_ON)
        return false;
    if (next == OUTPUT_SHAPE_YES) {
        start_next(o, look);
        return true;
    }
    if (text.p[0] == '}' || text.p[0] == ']') { /* one too many, or the end of a list */
        o->call.is_list = o->call.is_list && text.p[0] != ']';
        output_shape_drop(o, 1);
        o->call.is_odd = true;
        return true;
    }
    if (close == OUTPUT_SHAPE_PARTLY && end == OUTPUT_SHAPE_IS_CUT)
        output_shape_drop(o, text.len);
    o->phase = body_phase(o);
    return true;
}
