#include "chat/output_partial.h"

#include "base/json.h"
#include "chat/output_shape.h"
#include "chat/render_turn.h"

#include <string.h>

#define JSON_OPTIONS {.depth_max = OUTPUT_SCAN_DEPTH_MAX}

struct writer {
    const struct output_options *o;
    struct buf *text, *marks;
    struct arena a;      /* of one call's arguments */
    const struct output_tool *tool; /* of the call at hand, if it was declared */
    uint32_t calls;
    bool is_cut;         /* nothing may follow: the last part is unfinished */
};

static void put_markup(struct writer *w, str s)
{
    struct output_partial_mark m = {w->text->len, w->text->len + s.len};
    if (s.len && buf_add(w->text, s))
        buf_add_bytes(w->marks, &m, sizeof m);
}

static bool refuse(struct err *e, const char *what)
{
    return err_set(e, ERR_UNSUPPORTED, "resume: going on %s is not possible in this model's format",
                   what);
}

/* ---- Members of arguments that are not whole ---- */

struct member {
    size_t key_from, key_to, value_from, value_to; /* quotes included */
    bool has_value, is_whole;
};

/* Byte i moved the scan from `was`, at depth 1 of the object that m is of. */
static void member_moved(struct member *m, const struct output_scan *was,
                         const struct output_scan *s, size_t i)
{
    bool number_ends = was->at == OUTPUT_SCAN_IN_NUMBER && s->at != OUTPUT_SCAN_IN_NUMBER;
    bool ends = s->at == OUTPUT_SCAN_NEXT && s->depth == 1 &&
                (was->at != OUTPUT_SCAN_NEXT || was->depth > 1);
    if (was->depth == 1 && was->at == OUTPUT_SCAN_IN_KEY && s->at == OUTPUT_SCAN_COLON)
        m->key_to = i + 1;
    if (was->depth == 1 && was->at == OUTPUT_SCAN_VALUE && s->at != OUTPUT_SCAN_VALUE) {
        m->value_from = i;
        m->has_value = true;
    }
    if (m->has_value && !m->is_whole && (ends || (number_ends && was->depth == 1))) {
        m->value_to = number_ends ? i : i + 1;
        m->is_whole = true;
    }
}

/* Whether an object that ends here can go on in another notation. */
static bool can_go_on(const struct output_scan *s)
{
    bool in_string = s->at == OUTPUT_SCAN_IN_STRING && s->escape == 0;
    bool between = s->at == OUTPUT_SCAN_VALUE || s->at == OUTPUT_SCAN_NEXT;
    return s->at == OUTPUT_SCAN_DONE || (s->depth == 1 && (in_string || between));
}

/* Members at depth 1 of an object that may end anywhere; false: it ends where nothing can go on. */
static bool read_members(str args, struct member *out, uint32_t *count, uint32_t max,
                         bool *is_whole)
{
    struct output_scan s;
    struct member *m = NULL;
    output_scan_init(&s);
    *count = 0;
    for (size_t i = 0; i < args.len; i++) {
        struct output_scan was = s;
        if (!output_scan_byte(&s, args.p[i], NULL))
            return false;
        if (was.depth == 1 && s.at == OUTPUT_SCAN_IN_KEY && was.at != OUTPUT_SCAN_IN_KEY) {
            if (*count == max)
                return false;
            m = &out[(*count)++];
            *m = (struct member){.key_from = i};
        }
        if (m)
            member_moved(m, &was, &s, i);
    }
    *is_whole = s.at == OUTPUT_SCAN_DONE;
    if (m && !m->is_whole)
        m->value_to = args.len;
    return args.len == 0 || can_go_on(&s);
}

/* The text of a string literal, or of its beginning. */
static str string_of(struct writer *w, str raw, bool is_whole)
{
    const struct json_options opt = JSON_OPTIONS;
    struct json v;
    struct err ignored;
    if (!is_whole)
        raw = arena_printf(&w->a, "%.*s\"", STR_ARG(raw));
    if (!raw.p || !json_parse(&v, raw, &opt, &w->a, &ignored))
        return (str){NULL, 0};
    return json_text(v, &w->a);
}

/* ---- TAGS ---- */

/* False: the format must say whether a string follows, and that is not known yet; or the reader
 * says the value only as a whole, as the parameter need not be a string. */
static bool put_tag(struct writer *w, const struct output_row *r, str args, const struct member *m)
{
    str raw = str_sub(args, m->value_from, m->value_to - m->value_from);
    str key = string_of(w, str_sub(args, m->key_from, m->key_to - m->key_from), true);
    bool is_string = m->has_value && raw.len && raw.p[0] == '"';
    put_markup(w, r->key_open);
    buf_add(w->text, key);
    bool says_type = !str_eq(r->key_text, r->key_json);
    bool waits = !says_type && output_tools_types(w->tool, key) != OUTPUT_TYPE_STRING;
    if (m->has_value ? !m->is_whole && waits : says_type)
        return false;
    put_markup(w, is_string ? r->key_text : r->key_json);
    if (m->has_value)
        buf_add(w->text, is_string ? string_of(w, raw, m->is_whole) : raw);
    if (m->is_whole)
        put_markup(w, r->value_close);
    return true;
}

/* ---- LITERAL ---- */

static void put_literal(struct writer *w, const struct output_row *r, struct json v, int depth)
{
    struct json_walk walk = json_walk(v);
    enum json_kind kind = json_kind(v);
    bool is_first = true;
    if (kind == JSON_KIND_STRING) {
        put_markup(w, r->key_open);
        buf_add(w->text, json_text(v, &w->a));
        put_markup(w, r->value_close);
        return;
    }
    if ((kind != JSON_KIND_OBJECT && kind != JSON_KIND_ARRAY) || depth == 0) {
        buf_add(w->text, json_raw(v));
        return;
    }
    buf_add_byte(w->text, kind == JSON_KIND_OBJECT ? '{' : '[');
    for (; json_next(&walk); is_first = false) {
        if (!is_first)
            buf_add_byte(w->text, ',');
        if (walk.is_object) {
            buf_add(w->text, json_text(walk.key, &w->a));
            buf_add_byte(w->text, ':');
        }
        put_literal(w, r, walk.value, depth - 1);
    }
    buf_add_byte(w->text, kind == JSON_KIND_OBJECT ? '}' : ']');
}

static void put_pair(struct writer *w, const struct output_row *r, str args,
                     const struct member *m)
{
    const struct json_options opt = JSON_OPTIONS;
    struct json v;
    struct err ignored;
    str raw = str_sub(args, m->value_from, m->value_to - m->value_from);
    buf_add(w->text, string_of(w, str_sub(args, m->key_from, m->key_to - m->key_from), true));
    buf_add_byte(w->text, ':');
    if (m->is_whole && json_parse(&v, raw, &opt, &w->a, &ignored)) {
        put_literal(w, r, v, OUTPUT_SCAN_DEPTH_MAX / 4);
    } else if (m->has_value) {
        put_markup(w, r->key_open);
        buf_add(w->text, string_of(w, raw, false));
    }
}

/* ---- Calls ---- */

#define MEMBERS_MAX 256

static bool put_members(struct writer *w, const struct output_row *r, str args, struct err *e)
{
    struct member *m = ARENA_ARRAY(&w->a, struct member, MEMBERS_MAX);
    uint32_t count = 0;
    bool is_whole = false, is_literal = r->shape == OUTPUT_SHAPE_LITERAL;
    if (!m || !read_members(args, m, &count, MEMBERS_MAX, &is_whole))
        return refuse(e, "inside such a value of a call");
    if (is_literal)
        buf_add_byte(w->text, '{');
    for (uint32_t i = 0; i < count; i++) {
        if (is_literal && i)
            buf_add_byte(w->text, ',');
        if (is_literal)
            put_pair(w, r, args, &m[i]);
        else if (!put_tag(w, r, args, &m[i]))
            return refuse(e, "in front of a value of a call");
    }
    if (is_literal && is_whole)
        buf_add_byte(w->text, '}');
    w->is_cut = !is_whole;
    return true;
}

static bool put_json(struct writer *w, str args, struct err *e)
{
    struct output_scan s;
    output_scan_init(&s);
    for (size_t i = 0; i < args.len; i++)
        if (!output_scan_byte(&s, args.p[i], NULL))
            return refuse(e, "with arguments that are no JSON");
    if (s.escape)
        return refuse(e, "inside an escape of a call");
    buf_add(w->text, args);
    w->is_cut = s.at != OUTPUT_SCAN_DONE;
    return true;
}

/* What the model sees of a custom tool's text is a JSON object with one string. */
static str custom_args(struct writer *w, str text)
{
    struct buf b;
    buf_init(&b, 8 * text.len + 64);
    buf_add_z(&b, "{\"input\": \"");
    json_add_escaped(&b, text);
    str args = arena_copy(&w->a, buf_view(&b));
    buf_deinit(&b);
    return args;
}

/* Openers, the name, and what stands in front of the arguments. */
static void put_call_head(struct writer *w, const struct output_row *r, str name,
                          bool is_behind_text)
{
    if (w->calls++) {
        put_markup(w, r->between);
    } else {
        if (is_behind_text)
            put_markup(w, r->before);
        put_markup(w, r->section_open);
    }
    put_markup(w, r->call_open);
    put_markup(w, r->name_open);
    if (r->shape == OUTPUT_SHAPE_OBJECT)
        json_add_escaped(w->text, name);
    else
        buf_add(w->text, name);
    put_markup(w, r->name_close);
}

/* Whether a reader says that a call began before its arguments do. */
static bool begins_early(const struct output_row *r)
{
    return r->shape == OUTPUT_SHAPE_TAGS || r->shape == OUTPUT_SHAPE_CHANNEL;
}

static bool put_call(struct writer *w, const struct api_part *p, bool is_behind_text,
                     struct err *e)
{
    const struct output_row *r = w->o->format.calls;
    if (!r || (p->text.len == 0 && !begins_early(r)))
        return refuse(e, "with a call that has no arguments yet");
    arena_init(&w->a, 64 * p->text.len + ((size_t)1 << 21));
    str name = render_turn_tool_name(&w->a, p->name_space, p->name);
    w->tool = output_tools_find(w->o->tools, name);
    bool is_custom = w->tool && w->tool->tool->kind == API_TOOL_CUSTOM;
    str args = is_custom ? custom_args(w, p->text) : p->text;
    put_call_head(w, r, name, is_behind_text);
    bool ok = r->shape == OUTPUT_SHAPE_TAGS || r->shape == OUTPUT_SHAPE_LITERAL
                  ? put_members(w, r, args, e) : put_json(w, args, e);
    if (ok && !w->is_cut) {
        put_markup(w, r->args_close);
        put_markup(w, r->call_close);
    }
    arena_deinit(&w->a);
    return ok;
}

/* ---- Parts ---- */

static void put_channel(struct writer *w, const struct api_part *p, bool is_first, bool calls_next)
{
    bool is_open = is_first && w->o->begin != OUTPUT_BEGIN_FRESH;
    if (!is_first)
        put_markup(w, STR("<|end|><|start|>assistant"));
    if (p->kind == API_PART_CALL || is_open)
        return;
    put_markup(w, p->kind == API_PART_REASONING ? STR("<|channel|>analysis<|message|>")
                  : calls_next ? STR("<|channel|>commentary<|message|>")
                               : STR("<|channel|>final<|message|>"));
}

/* The reasoning comes first or not at all; what the prompt opened must be closed. */
static bool put_thinking(struct writer *w, const struct api_message *m, uint32_t i, struct err *e)
{
    const struct output_think *think = w->o->format.think;
    bool is_reasoning = m->parts[i].kind == API_PART_REASONING;
    if (is_reasoning) {
        if (!think || i > 0 || w->o->begin == OUTPUT_BEGIN_ANSWER)
            return refuse(e, "behind reasoning");
        if (w->o->begin == OUTPUT_BEGIN_FRESH)
            put_markup(w, think->open);
        return true;
    }
    bool was_reasoning = i > 0 && m->parts[i - 1].kind == API_PART_REASONING;
    if (think && (was_reasoning || (i == 0 && w->o->begin == OUTPUT_BEGIN_THINKING)))
        put_markup(w, think->close);
    return true;
}

bool output_partial_write(const struct output_options *o, const struct api_message *m,
                          struct buf *text, struct buf *marks, struct err *e)
{
    struct writer w = {.o = o, .text = text, .marks = marks};
    bool is_channel = o->format.calls && o->format.calls->shape == OUTPUT_SHAPE_CHANNEL;
    for (uint32_t i = 0; i < m->parts_count; i++) {
        const struct api_part *p = &m->parts[i];
        bool calls_next = i + 1 < m->parts_count && m->parts[i + 1].kind == API_PART_CALL;
        bool behind_text = i > 0 && m->parts[i - 1].kind == API_PART_TEXT;
        if (w.is_cut)
            return refuse(e, "behind a call that is not whole");
        if (is_channel)
            put_channel(&w, p, i == 0, calls_next);
        else if (!put_thinking(&w, m, i, e))
            return false;
        if (p->kind == API_PART_CALL && !put_call(&w, p, behind_text, e))
            return false;
        if (p->kind != API_PART_CALL)
            buf_add(text, p->text);
    }
    return (!text->full && !marks->full) ||
           err_set(e, ERR_LIMIT, "resume: the reply is longer than %zu bytes", text->size_max);
}
