#include "chat/output_tools.h"

#include <string.h>

#include "chat/render_turn.h"

#define REFS_MAX 16 /* $ref to $ref to ... */

static bool make(struct output_tools *out, const struct api_request *rq, bool needs_types,
                 struct arena *a, struct err *e)
{
    struct output_tool *rows = ARENA_ARRAY(a, struct output_tool, rq->tools_count);
    const struct json_options o = {.depth_max = OUTPUT_TOOLS_DEPTH_MAX};
    uint32_t n = 0;
    for (uint32_t i = 0; rows && i < rq->tools_count; i++) {
        const struct api_tool *tool = &rq->tools[i];
        struct err ignored;
        if (tool->kind == API_TOOL_HOSTED || !tool->allowed)
            continue;
        struct output_tool *row = &rows[n++];
        *row = (struct output_tool){.tool = tool};
        row->name = render_turn_tool_name(a, tool->name_space, tool->name);
        row->has_schema = needs_types && tool->kind == API_TOOL_FUNCTION && tool->schema.len &&
                          json_parse(&row->schema, tool->schema, &o, a, &ignored);
    }
    *out = (struct output_tools){rows, n};
    return !a->is_full ||
           err_set(e, ERR_LIMIT, "tools: %u of them do not fit the request's memory",
                   rq->tools_count);
}

bool output_tools_make(struct output_tools *out, const struct api_request *rq, struct arena *a,
                       struct err *e)
{
    return make(out, rq, true, a, e);
}

bool output_tools_names(struct output_tools *out, const struct api_request *rq, struct arena *a,
                        struct err *e)
{
    return make(out, rq, false, a, e);
}

const struct output_tool *output_tools_find(const struct output_tools *t, str name)
{
    for (uint32_t i = 0; t && i < t->rows_count; i++)
        if (str_eq(t->rows[i].name, name))
            return &t->rows[i];
    return NULL;
}

/* ---- Types ---- */

static uint32_t type_of_name(struct json name)
{
    static const struct { const char *name; uint32_t type; } names[] = {
        {"string", OUTPUT_TYPE_STRING}, {"number", OUTPUT_TYPE_NUMBER},
        {"integer", OUTPUT_TYPE_NUMBER}, {"boolean", OUTPUT_TYPE_BOOL},
        {"null", OUTPUT_TYPE_NULL}, {"array", OUTPUT_TYPE_ARRAY}, {"object", OUTPUT_TYPE_OBJECT},
    };
    for (size_t i = 0; i < countof(names); i++)
        if (json_text_eq(name, str_of(names[i].name)))
            return names[i].type;
    return 0;
}

uint32_t output_tools_type(enum json_kind kind)
{
    switch (kind) {
    case JSON_KIND_NULL:
        return OUTPUT_TYPE_NULL;
    case JSON_KIND_BOOL:
        return OUTPUT_TYPE_BOOL;
    case JSON_KIND_NUMBER:
        return OUTPUT_TYPE_NUMBER;
    case JSON_KIND_STRING:
        return OUTPUT_TYPE_STRING;
    case JSON_KIND_ARRAY:
        return OUTPUT_TYPE_ARRAY;
    case JSON_KIND_OBJECT:
        return OUTPUT_TYPE_OBJECT;
    case JSON_KIND_ABSENT:
        break;
    }
    return 0;
}

/* "#/$defs/place": names without escapes, which is how generators write them. */
static struct json follow(struct json root, struct json ref)
{
    struct json at = root, none = {0};
    str path = str_trim(json_raw(ref)), word;
    char name[128];
    if (json_kind(ref) != JSON_KIND_STRING || path.len < 4 || !str_starts(path, STR("\"#/")))
        return none;
    path = str_sub(path, 3, path.len - 4);
    while (str_split(&path, '/', &word)) {
        if (word.len >= sizeof name || memchr(word.p, '\\', word.len))
            return none;
        memcpy(name, word.p, word.len);
        name[word.len] = 0;
        at = json_member(at, name);
        if (json_kind(at) == JSON_KIND_ABSENT)
            return none;
    }
    return at;
}

static uint32_t types_of(struct json root, struct json schema, uint32_t depth)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    struct json type = json_member(schema, "type"), list;
    uint32_t types = 0;
    if (depth == REFS_MAX || json_kind(schema) != JSON_KIND_OBJECT)
        return 0;
    if (json_kind(json_member(schema, "$ref")) == JSON_KIND_STRING)
        return types_of(root, follow(root, json_member(schema, "$ref")), depth + 1);
    if (json_kind(type) == JSON_KIND_STRING)
        types = type_of_name(type);
    struct json_walk w = json_walk(type);
    while (json_kind(type) == JSON_KIND_ARRAY && json_next(&w))
        types |= type_of_name(w.value);
    for (size_t i = 0; i < countof(unions) && types == 0; i++) {
        list = json_member(schema, unions[i]);
        bool all_known = json_kind(list) == JSON_KIND_ARRAY;
        w = json_walk(list);
        while (all_known && json_next(&w)) {
            uint32_t more = types_of(root, w.value, depth + 1);
            types |= more;
            all_known = more != 0;
        }
        if (!all_known)
            types = 0;
    }
    if (types == 0) {
        list = json_member(schema, "enum");
        w = json_walk(list);
        while (json_kind(list) == JSON_KIND_ARRAY && json_next(&w))
            types |= output_tools_type(json_kind(w.value));
    }
    if (types == 0)
        types = output_tools_type(json_kind(json_member(schema, "const")));
    bool nullable = false;
    if (types && json_bool(json_member(schema, "nullable"), &nullable) && nullable)
        types |= OUTPUT_TYPE_NULL;
    return types;
}

uint32_t output_tools_types(const struct output_tool *t, str parameter)
{
    if (t && t->tool->kind == API_TOOL_CUSTOM)
        return OUTPUT_TYPE_STRING; /* its one text */
    if (!t || !t->has_schema)
        return 0;
    struct json properties = json_member(t->schema, "properties"), found = {0};
    struct json_walk w = json_walk(properties);
    while (json_kind(properties) == JSON_KIND_OBJECT && json_next(&w))
        if (json_text_eq(w.key, parameter))
            found = w.value;
    return types_of(t->schema, found, 0);
}

uint32_t output_tools_schema_types(const struct output_tool *t, struct json schema)
{
    return types_of(t->schema, schema, 0);
}
