#include "dialect/dialect_tool.h"

#include <string.h>

#define NAME_MAX_BYTES 256u

/* ---- Declarations ---- */

bool dialect_tool_room(struct dialect_read *r, struct json list, size_t count)
{
    if (count > r->in->limits->tools_max)
        return dialect_read_fail(r, ERR_REQUEST, list, "at most %u tools expected, got %zu",
                                 r->in->limits->tools_max, count);
    r->rq->tools = r->tools = dialect_read_array(r, count, sizeof *r->tools);
    r->rq->tools_count = 0;
    return r->tools != NULL;
}

bool dialect_tool_add(struct dialect_read *r, struct json v, str name_space,
                      bool (*read)(struct dialect_read *r, struct json v, struct api_tool *out))
{
    struct api_tool *out = &r->tools[r->rq->tools_count];
    *out = (struct api_tool){.name_space = name_space, .allowed = true};
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (!read(r, v, out))
        return false;
    r->rq->tools_count++;
    return true;
}

bool dialect_tool_list(struct dialect_read *r, struct json list,
                       bool (*read)(struct dialect_read *r, struct json v, struct api_tool *out))
{
    if (json_kind(list) <= JSON_KIND_NULL)
        return true;
    if (json_kind(list) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, list, "array");
    if (!dialect_tool_room(r, list, json_count(list)))
        return false;
    for (struct json_walk w = json_walk(list); json_next(&w);)
        if (!dialect_tool_add(r, w.value, (str){NULL, 0}, read))
            return false;
    return true;
}

static bool has_control(str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((uint8_t)s.p[i] < 0x20 || s.p[i] == 0x7f)
            return true;
    return false;
}

static bool read_name(struct dialect_read *r, struct json v, struct api_tool *out)
{
    struct json name = json_member(v, "name");
    if (json_kind(name) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "name", "required");
    if (!dialect_read_text(r, name, &out->name))
        return false;
    if (out->name.len < 1 || out->name.len > NAME_MAX_BYTES)
        return dialect_read_fail(r, ERR_REQUEST, name, "1 to %u bytes expected, got %zu",
                                 NAME_MAX_BYTES, out->name.len);
    if (has_control(out->name))
        return dialect_read_fail(r, ERR_REQUEST, name, "a name without control characters "
                                 "expected");
    for (uint32_t i = 0; i < r->rq->tools_count; i++)
        if (r->tools[i].kind != API_TOOL_HOSTED && str_eq(r->tools[i].name, out->name) &&
            str_eq(r->tools[i].name_space, out->name_space))
            return dialect_read_fail(r, ERR_REQUEST, name, "tool %u has this name already", i);
    return true;
}

bool dialect_tool_read(struct dialect_read *r, struct json v, const char *schema,
                       struct api_tool *out)
{
    struct json about = json_member(v, "description"), strict = json_member(v, "strict");
    struct json parameters = json_member(v, schema);
    if (!read_name(r, v, out))
        return false;
    if (json_kind(about) > JSON_KIND_NULL && !dialect_read_text(r, about, &out->description))
        return false;
    if (json_kind(parameters) > JSON_KIND_NULL && json_kind(parameters) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, parameters, "object");
    if (json_kind(parameters) == JSON_KIND_OBJECT && out->kind == API_TOOL_FUNCTION)
        out->schema = json_raw(parameters), out->path = dialect_read_path(r, parameters);
    return json_kind(strict) <= JSON_KIND_NULL || dialect_read_bool(r, strict, &out->strict);
}

bool dialect_tool_hosted(struct dialect_read *r, struct json v, struct json name,
                         struct api_tool *out)
{
    out->kind = API_TOOL_HOSTED;
    out->schema = json_raw(v);
    dialect_read_note_path(r, "tool_skipped", v);
    return json_kind(name) != JSON_KIND_STRING || dialect_read_text(r, name, &out->name);
}

/* ---- Choosing ---- */

void dialect_tool_forbid_all(struct dialect_read *r)
{
    for (uint32_t i = 0; i < r->rq->tools_count; i++)
        r->tools[i].allowed = false;
}

/* NAMESPACE__name, the name alone, or what an upstream calls it. */
static bool is_called(const struct api_tool *t, str name)
{
    str space = t->name_space, joint = str_ends(space, STR("_")) ? STR("") : STR("__");
    if (t->kind == API_TOOL_HOSTED)
        return false;
    return str_eq(t->name, name) ||
           (space.len && name.len == space.len + joint.len + t->name.len &&
            str_starts(name, space) && str_ends(name, t->name) &&
            str_eq(str_sub(name, space.len, joint.len), joint));
}

static bool refuse_name(struct dialect_read *r, struct json v, str name)
{
    enum { FAR = 4 };
    const struct api_tool *near = NULL;
    uint32_t best = FAR;
    for (uint32_t i = 0; i < r->rq->tools_count; i++) {
        const struct api_tool *t = &r->rq->tools[i];
        uint32_t d = t->kind == API_TOOL_HOSTED ? FAR : str_distance(name, t->name, FAR - 1);
        if (d < best) {
            best = d;
            near = t;
        }
    }
    if (near)
        return dialect_read_fail(r, ERR_REQUEST, v, "no tool %.*s is declared; there is %.*s",
                                 STR_ARG(str_sub(name, 0, 64)), STR_ARG(near->name));
    return dialect_read_fail(r, ERR_REQUEST, v, "no tool %.*s is among the %u declared",
                             STR_ARG(str_sub(name, 0, 64)), r->rq->tools_count);
}

bool dialect_tool_allow(struct dialect_read *r, struct json v, struct json name)
{
    str text;
    if (json_kind(name) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "name", "required");
    if (!dialect_read_text(r, name, &text))
        return false;
    for (uint32_t i = 0; i < r->rq->tools_count; i++)
        if (is_called(&r->rq->tools[i], text)) {
            r->tools[i].allowed = true;
            return true;
        }
    return refuse_name(r, name, text);
}

/* {"type": "function", "name"} or {"type": "function", "function": {"name"}}. */
static bool allow_object(struct dialect_read *r, struct json v, bool wraps)
{
    static const char *const types[] = {"function", "custom"};
    struct json inner = v;
    size_t type;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_kind(json_member(v, "type")) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "type", "required");
    if (!dialect_read_choice(r, json_member(v, "type"), types, countof(types), &type))
        return false;
    if (wraps)
        inner = json_member(v, types[type]);
    if (json_kind(inner) != JSON_KIND_OBJECT)
        return dialect_read_member(r, v, types[type], "object with a name expected");
    return dialect_tool_allow(r, inner, json_member(inner, "name"));
}

/* A hosted tool in the list cannot be called here: it is passed over. */
static bool allow_list(struct dialect_read *r, struct json v, bool wraps)
{
    static const char *const modes[] = {"auto", "required"};
    struct json list = json_member(v, "tools"), mode = json_member(v, "mode");
    size_t i;
    if (json_kind(list) != JSON_KIND_ARRAY)
        return dialect_read_member(r, v, "tools", "array expected");
    if (json_kind(mode) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "mode", "required");
    if (!dialect_read_choice(r, mode, modes, countof(modes), &i))
        return false;
    dialect_tool_forbid_all(r);
    for (struct json_walk w = json_walk(list); json_next(&w);) {
        struct json type = json_member(w.value, "type");
        bool is_hosted = json_kind(type) == JSON_KIND_STRING &&
                         !json_text_eq(type, STR("function")) && !json_text_eq(type, STR("custom"));
        if (is_hosted)
            dialect_read_note_path(r, "tool_skipped", w.value);
        else if (!allow_object(r, w.value, wraps))
            return false;
    }
    r->rq->tool_choice = i ? API_TOOL_CHOICE_REQUIRED : API_TOOL_CHOICE_AUTO;
    return true;
}

bool dialect_tool_choice(struct dialect_read *r, struct json v, bool wraps)
{
    static const char *const names[] = {"auto", "none", "required"};
    struct json type = json_member(v, "type");
    size_t i;
    if (json_kind(v) <= JSON_KIND_NULL)
        return true;
    if (json_kind(v) != JSON_KIND_STRING && json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "auto, none, required or an object");
    bool is_text = json_kind(v) == JSON_KIND_STRING;
    if (is_text && !dialect_read_choice(r, v, names, countof(names), &i))
        return false;
    if (is_text) {
        r->rq->tool_choice = (enum api_tool_choice)i;
        return true;
    }
    if (json_text_eq(type, STR("allowed_tools")) && wraps)
        return json_kind(json_member(v, "allowed_tools")) == JSON_KIND_OBJECT
                   ? allow_list(r, json_member(v, "allowed_tools"), wraps)
                   : dialect_read_member(r, v, "allowed_tools", "object expected");
    if (json_text_eq(type, STR("allowed_tools")))
        return allow_list(r, v, wraps);
    dialect_tool_forbid_all(r);
    r->rq->tool_choice = API_TOOL_CHOICE_NAMED;
    return allow_object(r, v, wraps);
}

/* ---- Calls ---- */

bool dialect_tool_input(struct dialect_read *r, str *text)
{
    struct buf object;
    buf_init(&object, text->len * 6 + 64);
    struct json_writer w = json_writer(&object);
    json_open_object(&w);
    json_key_z(&w, "input");
    json_put_text(&w, *text);
    json_close_object(&w);
    *text = arena_copy(r->a, buf_view(&object));
    buf_deinit(&object);
    return text->p != NULL || dialect_read_array(r, SIZE_MAX, 1) != NULL;
}
