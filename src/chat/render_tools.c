#include "chat/render_tools.h"

#include "base/json.h"
#include "chat/output_partial.h"

/* The words are ours, the form of a call is the row's: small models follow an example better than a
 * description. */
#define TOOLS_HEAD  "# Tools\n\nYou can call tools. Each line declares one of them as JSON:\n"
#define TOOLS_FORM  "\n\nTo call a tool, write exactly this, with its name and its arguments:\n"
#define TOOLS_TAIL  "\nResults come back as <tool_response>...</tool_response>."
#define RESULT_HEAD "<tool_response>\n"
#define RESULT_TAIL "\n</tool_response>"

bool render_tools_can(const struct output_format *f)
{
    return f->calls && f->calls->shape != OUTPUT_SHAPE_CHANNEL;
}

/* ---- Text of two origins ---- */

static void add(struct render_turns *r, struct jinja_str *to, str text, uint32_t origin)
{
    str copy = arena_copy(r->h->arena, text);
    if (copy.p == NULL)
        r->h->stop = JINJA_STOP_MEMORY;
    else if (copy.len)
        *to = jinja_text_concat(r->h, *to, jinja_text_of(r->h, copy, origin));
}

/* Calls as the model would have written them: markup is ours, the rest is of `origin`. */
static bool add_calls(struct render_turns *r, const struct output_format *f,
                      const struct api_message *m, uint32_t origin, struct jinja_str *to,
                      struct err *e)
{
    const struct output_options o = {.format = {.calls = f->calls}};
    const struct output_partial_mark *marks;
    struct buf text, ranges;
    size_t at = 0;
    buf_init(&text, OUTPUT_TEXT_MAX);
    buf_init(&ranges, OUTPUT_TEXT_MAX);
    bool ok = output_partial_write(&o, m, &text, &ranges, e);
    marks = (const struct output_partial_mark *)(void *)ranges.p;
    for (size_t i = 0; ok && i < ranges.len / sizeof *marks; i++) {
        add(r, to, str_sub(buf_view(&text), at, marks[i].from - at), origin);
        add(r, to, str_sub(buf_view(&text), marks[i].from, marks[i].to - marks[i].from), 0);
        at = marks[i].to;
    }
    if (ok) {
        add(r, to, str_from(buf_view(&text), at), origin);
        add(r, to, str_trim(f->calls->section_close), 0);
    }
    buf_deinit(&text);
    buf_deinit(&ranges);
    return ok;
}

/* ---- Declarations ---- */

static bool add_declaration(struct render_turns *r, uint32_t i, struct jinja_str *to,
                            struct err *e)
{
    const struct api_tool *tool = &r->rq->tools[i];
    struct buf b;
    buf_init(&b, OUTPUT_TEXT_MAX);
    struct json_writer w = json_writer(&b);
    json_open_object(&w);
    json_key_z(&w, "name");
    json_put_text(&w, render_turn_tool_name(r->h->arena, tool->name_space, tool->name));
    if (tool->description.len) {
        json_key_z(&w, "description");
        json_put_text(&w, tool->description);
    }
    if (tool->schema.len || tool->kind == API_TOOL_CUSTOM) {
        json_key_z(&w, "parameters");
        json_put_raw(&w, tool->kind == API_TOOL_CUSTOM ? STR(OUTPUT_TOOLS_CUSTOM_SCHEMA)
                                                       : tool->schema);
    }
    json_close_object(&w);
    bool ok = !b.full || err_set(e, ERR_LIMIT, "tools[%u]: its declaration is longer than %zu MiB",
                                 i, OUTPUT_TEXT_MAX >> 20);
    if (ok) {
        add(r, to, STR("\n"), 0);
        add(r, to, buf_view(&b), render_turn_mark(r, RENDER_TOOLS, 0, i));
    }
    buf_deinit(&b);
    return ok;
}

static bool add_declarations(struct render_turns *r, const struct output_format *f, struct err *e)
{
    const struct api_part example = {.kind = API_PART_CALL, .name = STR("NAME"),
                                     .text = STR("{\"ARGUMENT\": \"VALUE\"}")};
    const struct api_message m = {.role = API_ROLE_ASSISTANT, .parts = &example,
                                  .parts_count = 1};
    struct jinja_str text = {0};
    add(r, &text, STR(TOOLS_HEAD), 0);
    for (uint32_t i = 0; i < r->rq->tools_count; i++)
        if (r->rq->tools[i].kind != API_TOOL_HOSTED && !add_declaration(r, i, &text, e))
            return false;
    add(r, &text, STR(TOOLS_FORM), 0);
    if (!add_calls(r, f, &m, 0, &text, e))
        return false;
    add(r, &text, STR(TOOLS_TAIL), 0);
    bool is_led = r->turns_count && r->turns[0].role <= API_ROLE_DEVELOPER;
    if (!is_led && !render_turn_lead(r, API_ROLE_SYSTEM))
        return true; /* no memory: h->stop says it */
    if (is_led)
        render_turn_add(r, &r->turns[0], jinja_text_of(r->h, STR("\n\n"), 0));
    render_turn_add(r, &r->turns[0], text);
    return true;
}

/* ---- History ---- */

/* Arguments that a client sends back need not be an object, or JSON at all: then they are text. */
static bool make_object(struct render_turns *r, uint32_t message, struct api_part *call,
                        struct err *e)
{
    const struct json_options o = {.depth_max = OUTPUT_SCAN_DEPTH_MAX / 2};
    struct json v;
    struct buf b;
    struct err ignored;
    if (call->text.len == 0)
        call->text = STR("{}");
    if (json_parse(&v, call->text, &o, r->h->arena, &ignored) && json_kind(v) == JSON_KIND_OBJECT)
        return true;
    buf_init(&b, OUTPUT_TEXT_MAX);
    buf_add_z(&b, "{\"input\": \"");
    json_add_escaped(&b, call->text);
    buf_add_z(&b, "\"}");
    bool ok = !b.full || err_set(e, ERR_LIMIT, "messages[%u]: the arguments of its call are longer "
                                 "than %zu MiB", message, OUTPUT_TEXT_MAX >> 20);
    call->text = arena_copy(r->h->arena, buf_view(&b));
    buf_deinit(&b);
    return ok;
}

static bool rewrite_calls(struct render_turns *r, struct render_turn *t,
                          const struct output_format *f, struct err *e)
{
    const struct api_message *m = &r->rq->messages[t->message];
    struct api_part *parts = ARENA_ARRAY(r->h->arena, struct api_part, m->parts_count);
    struct api_message calls = {.role = API_ROLE_ASSISTANT, .parts = parts};
    struct jinja_str text = {0};
    uint32_t first = m->parts_count;
    for (uint32_t i = 0; parts && i < m->parts_count; i++)
        if (m->parts[i].kind == API_PART_CALL) {
            first = first < i ? first : i;
            parts[calls.parts_count++] = m->parts[i];
        }
    if (calls.parts_count == 0)
        return true;
    for (uint32_t i = 0; i < calls.parts_count; i++)
        if (!make_object(r, t->message, &parts[i], e))
            return false;
    if (t->parts.kind == JINJA_LIST && t->parts.u.list->count)
        add(r, &text, f->calls->before, 0);
    uint32_t origin = render_turn_mark(r, RENDER_CONTENT, t->message, first);
    if (!add_calls(r, f, &calls, origin, &text, e))
        return false;
    t->calls = jinja_value_list(r->h, JINJA_LIST_LIST, 0);
    render_turn_add(r, t, text);
    return true;
}

static void rewrite_result(struct render_turns *r, struct render_turn *t)
{
    struct jinja_value inner = t->parts;
    t->role = API_ROLE_USER;
    t->id = t->name = (struct jinja_value){.kind = JINJA_UNDEFINED};
    t->parts = jinja_value_list(r->h, JINJA_LIST_LIST, 0);
    render_turn_add(r, t, jinja_text_of(r->h, STR(RESULT_HEAD), 0));
    for (uint32_t i = 0; inner.kind == JINJA_LIST && i < inner.u.list->count; i++)
        render_turn_add(r, t, jinja_value_find_name(inner.u.list->items[i].u.dict,
                                                    STR("text"))->u.s);
    render_turn_add(r, t, jinja_text_of(r->h, STR(RESULT_TAIL), 0));
}

bool render_tools_write(struct render_turns *r, const struct output_format *f, bool has_calls,
                        struct err *e)
{
    for (uint32_t i = 0; !has_calls && i < r->turns_count; i++) {
        struct render_turn *t = &r->turns[i];
        if (t->role == API_ROLE_TOOL)
            rewrite_result(r, t);
        else if (t->role == API_ROLE_ASSISTANT && !rewrite_calls(r, t, f, e))
            return false;
    }
    return add_declarations(r, f, e) &&
           (r->h->stop == JINJA_STOP_NONE ||
            err_set(e, ERR_LIMIT, "tools: declaring them needs more than %zu MiB",
                    r->h->arena->bytes_max >> 20));
}
