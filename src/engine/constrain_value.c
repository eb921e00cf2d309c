#include "engine/constrain_value.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "grammar/gram_dfa.h"
#include "grammar/gram_schema.h"

uint32_t constrain_value_text(struct gram *g, str text, uint32_t next)
{
    return text.len ? gram_marker(g, text, next) : next;
}

uint32_t constrain_value_blanks(struct gram *g, uint32_t next)
{
    const uint32_t to[] = {gram_bytes(g, STR("\n\n"), next), gram_bytes(g, STR("\n"), next), next};
    return gram_fork(g, to, 3);
}

uint32_t constrain_value_pattern(struct constrain_write *w, const char *pattern, uint32_t next)
{
    const struct gram_dfa_span any = {0, GRAM_DFA_FAR};
    struct gram_dfa *d = gram_dfa_new();
    struct err e;
    if (d && !(gram_dfa_add(d, str_of(pattern), false, &e) && gram_dfa_finish(d, any, &e))) {
        gram_dfa_free(d); /* no memory: the gram is then full */
        d = NULL;
    }
    return gram_pattern(w->g, gram_add_dfa(w->g, d), next);
}

/* --- JSON ---------------------------------------------------------------------------------- */

static str value_schema(const struct output_tool *t)
{
    if (t->tool->kind == API_TOOL_CUSTOM)
        return STR(OUTPUT_TOOLS_CUSTOM_SCHEMA);
    return t->tool->schema.len ? t->tool->schema : STR("{\"type\":\"object\"}");
}

static void value_note(struct constrain_write *w, str name, str lines)
{
    str line;
    while (str_split(&lines, '\n', &line))
        if (!buf_printf(w->ask->dropped, "%.*s%.*s\n", STR_ARG(name), STR_ARG(line)))
            return;
}

static BASE_PRINTF(4, 5) bool value_fail(struct constrain_write *w, const struct output_tool *t,
                                         enum err_code code, const char *format, ...)
{
    char text[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (w->ask->refused)
        *w->ask->refused = t->tool;
    return err_set(w->e, code, "tool %.*s: %s", STR_ARG(t->name), text);
}

/* The rule of one schema of a tool; not strict: what cannot be read at all is any value. */
static bool value_rule(struct constrain_write *w, const struct output_tool *t, str schema,
                       bool is_object, uint32_t *rule)
{
    struct buf lines;
    struct err why;
    buf_init(&lines, 16384);
    const struct gram_schema_options o = {.is_strict = t->tool->strict, .is_object = is_object,
                                          .dropped = &lines};
    bool ok = gram_schema(w->g, schema, &o, rule, &why);
    if (!ok && !t->tool->strict && gram_is_fine(w->g)) {
        *rule = gram_schema_any(w->g, is_object);
        buf_clear(&lines);
        buf_add_z(&lines, "#: schema\n");
        ok = true;
    }
    value_note(w, t->name, buf_view(&lines));
    buf_deinit(&lines);
    return ok || value_fail(w, t, why.code, "%s", why.text);
}

/* --- what a form cannot express ------------------------------------------------------------ */

/* Where in a tool's schema we are: "#/a/items" of tool t. */
struct value_place {
    struct constrain_write *w;
    const struct output_tool *t;
    str path;
    uint32_t depth;
};

/* Strict: false, an error. Else the keyword is noted. */
static bool value_leave_out(const struct value_place *p, const char *keyword)
{
    struct buf line;
    if (p->t->tool->strict)
        return value_fail(p->w, p->t, ERR_REQUEST, "schema: %.*s: '%s' is not supported for a "
                          "strict tool in this model's form of calls (%.*s)", STR_ARG(p->path),
                          keyword, STR_ARG(p->w->row->name));
    buf_init(&line, 4096);
    if (buf_printf(&line, "%.*s: %s\n", STR_ARG(p->path), keyword))
        value_note(p->w, p->t->name, buf_view(&line));
    buf_deinit(&line);
    return true;
}

/* Every keyword of the schema but those that mean nothing or are listed. */
static bool value_leave_others(const struct value_place *p, struct json schema,
                               const char *const *known)
{
    static const char *const silent[] = {"type", "title", "description", "default", "examples",
                                         "deprecated", "$comment", "$schema", "$id", "$defs",
                                         "definitions", "nullable", NULL};
    const char *const *lists[] = {silent, known};
    struct json_walk walk = json_walk(schema);
    while (json_next(&walk)) {
        bool is_known = false;
        for (size_t l = 0; l < countof(lists); l++)
            for (size_t i = 0; lists[l][i] && !is_known; i++)
                is_known = json_text_eq(walk.key, str_of(lists[l][i]));
        str key = is_known ? STR("") : arena_printf(&p->w->arena, "%.*s",
                                                    STR_ARG(json_text(walk.key, &p->w->arena)));
        if (key.len && !value_leave_out(p, key.p))
            return false;
    }
    return true;
}

static struct value_place value_below(const struct value_place *p, str name)
{
    struct value_place out = *p;
    str path = arena_printf(&p->w->arena, "%.*s/%.*s", STR_ARG(p->path), STR_ARG(name));
    out.path = path.p ? path : p->path;
    out.depth++;
    return out;
}

/* --- text between marks -------------------------------------------------------------------- */

/* The format's own end of a value, as chat/output looks for it. */
static str value_close_of(const struct output_row *row)
{
    return row->shape == OUTPUT_SHAPE_TAGS ? str_trim(row->value_close) : row->value_close;
}

static bool value_says_type(const struct output_row *row)
{
    return !str_eq(row->key_text, row->key_json);
}

/* Whether chat/output reads the text back: up to the first end of a value, in TAGS without a line
 * feed at either end, and a word of another type that may be there as that. */
static bool value_reads_back(const struct output_row *row, uint32_t types, str text)
{
    static const struct { const char *text; uint32_t type; } words[] = {
        {"true", OUTPUT_TYPE_BOOL}, {"false", OUTPUT_TYPE_BOOL}, {"none", OUTPUT_TYPE_NULL},
        {"null", OUTPUT_TYPE_NULL}};
    bool is_read = text.len > 0 && str_find(text, value_close_of(row)) == STR_NONE;
    if (!is_read || row->shape != OUTPUT_SHAPE_TAGS || value_says_type(row))
        return is_read;
    for (size_t i = 0; i < countof(words); i++)
        if (types & words[i].type && str_eq_nocase(str_trim(text), str_of(words[i].text)))
            return false;
    bool has_first = str_ends(row->key_text, STR("\n"));
    return text.p[text.len - 1] != '\n' && text.p[text.len - 1] != '\r' &&
           (has_first || (text.p[0] != '\n' && text.p[0] != '\r'));
}

/* The listed texts of an enum or const; false: there are none, or not only texts that a form can
 * say. */
static bool value_choices(const struct value_place *p, struct json schema, uint32_t trie)
{
    struct constrain_write *w = p->w;
    struct json list = json_member(schema, "enum"), one = json_member(schema, "const");
    struct json_walk walk = json_walk(list);
    uint32_t types = output_tools_schema_types(p->t, schema);
    if (json_kind(one) == JSON_KIND_STRING) {
        str text = json_text(one, &w->arena);
        return value_reads_back(w->row, types, text) && gram_trie_add(w->g, trie, text, 0);
    }
    if (json_kind(list) != JSON_KIND_ARRAY || json_count(list) == 0)
        return false;
    while (json_next(&walk)) {
        str text = json_text(walk.value, &w->arena);
        if (json_kind(walk.value) != JSON_KIND_STRING || !value_reads_back(w->row, types, text))
            return false;
        (void)gram_trie_add(w->g, trie, text, 0);
    }
    return true;
}

/* Behind a listed text: of the line feeds that a model may write there the reader takes one. */
static uint32_t value_listed_end(const struct constrain_write *w, str close, uint32_t next)
{
    uint32_t end = constrain_value_text(w->g, close, next);
    if (w->row->shape != OUTPUT_SHAPE_TAGS || value_says_type(w->row))
        return end;
    const uint32_t to[] = {gram_bytes(w->g, STR("\n"), end), end};
    return gram_fork(w->g, to, 2);
}

/* A string's text up to and with close, then next. */
static bool value_string(const struct value_place *p, struct json schema, str close,
                         uint32_t next, uint32_t *out)
{
    static const char *const lists[] = {"enum", "const", NULL}, *const none[] = {NULL};
    struct gram *g = p->w->g;
    uint32_t trie = gram_trie_new(g);
    if (value_choices(p, schema, trie)) {
        *out = gram_choice(g, trie, value_listed_end(p->w, close, next));
        return value_leave_others(p, schema, lists);
    }
    const struct gram_free f = {.markers = &close, .to = &next, .count = 1};
    *out = gram_open(g, &f);
    return value_leave_others(p, schema, none);
}

/* --- parameters ---------------------------------------------------------------------------- */

struct value_parameter {
    str name;
    struct json schema;
    bool is_required;
};

static bool value_is_required(struct json schema, str name)
{
    struct json_walk w = json_walk(json_member(schema, "required"));
    while (json_next(&w))
        if (json_text_eq(w.value, name))
            return true;
    return false;
}

/* The declared parameters in their order; NULL: no memory. */
static struct value_parameter *value_parameters(struct constrain_write *w, struct json schema,
                                                uint32_t *count)
{
    struct json properties = json_member(schema, "properties");
    struct json_walk walk = json_walk(properties);
    struct value_parameter *p = ARENA_ARRAY(&w->arena, struct value_parameter,
                                            (size_t)json_count(properties) + 1);
    *count = 0;
    while (p && json_kind(properties) == JSON_KIND_OBJECT && json_next(&walk)) {
        str name = json_text(walk.key, &w->arena);
        if (name.len)
            p[(*count)++] = (struct value_parameter){name, walk.value,
                                                     value_is_required(schema, name)};
    }
    return p;
}

/* A required one that is not declared could never be there. */
static bool value_all_declared(const struct value_place *place, struct json schema,
                               const struct value_parameter *p, uint32_t count)
{
    uint32_t required = json_kind(json_member(schema, "required")) == JSON_KIND_ARRAY
                            ? json_count(json_member(schema, "required")) : 0;
    for (uint32_t i = 0; i < count; i++)
        required -= required && p[i].is_required;
    return required == 0 || value_leave_out(place, "required");
}

/* One of ways[0 .. count) from i on: the next required one ends the choice; all optional: next. */
static uint32_t value_from(struct gram *g, const struct value_parameter *p, uint32_t count,
                           const uint32_t *to, uint32_t i, uint32_t next)
{
    uint32_t ways[CONSTRAIN_VALUE_ORDERED + 1], n = 0, k = i;
    for (; k < count; k++) {
        ways[n++] = to[k];
        if (p[k].is_required)
            break;
    }
    if (k == count)
        ways[n++] = next;
    return gram_fork(g, ways, n);
}

static const char *const value_object_keywords[] = {"properties", "required",
                                                    "additionalProperties", NULL};

#define VALUE_NAME_MAX 256

/* --- TAGS ---------------------------------------------------------------------------------- */

/* Whether chat/output reads the name of a parameter back: up to what ends it, without quotes. */
static bool value_can_key(const struct output_row *row, str name)
{
    bool is_quoted = name.len > 1 && name.p[0] == '"' && name.p[name.len - 1] == '"';
    return name.len < VALUE_NAME_MAX && !is_quoted && str_trim(name).len == name.len &&
           str_find(name, str_trim(row->key_text)) == STR_NONE &&
           str_find(name, str_trim(row->key_json)) == STR_NONE;
}

/* A parameter's value between its tags, then next: text as it is, else JSON. */
static bool value_tag(const struct value_place *p, const struct value_parameter *parameter,
                      uint32_t next, uint32_t *out)
{
    struct constrain_write *w = p->w;
    const struct value_place inner = value_below(p, parameter->name);
    uint32_t types = output_tools_types(p->t, parameter->name), value, rule;
    str close = value_close_of(w->row);
    uint32_t after = constrain_value_blanks(w->g, next);
    bool is_text = types == 0 || types & OUTPUT_TYPE_STRING;
    if (!value_can_key(w->row, parameter->name) && !value_leave_out(&inner, "properties"))
        return false;
    if (is_text) {
        if (types & (OUTPUT_TYPE_NUMBER | OUTPUT_TYPE_ARRAY | OUTPUT_TYPE_OBJECT) &&
            !value_leave_out(&inner, "type")) /* text that is read as what else it may be */
            return false;
        if (!value_string(&inner, parameter->schema, close, after, &value))
            return false;
    } else {
        if (!value_rule(w, p->t, json_raw(parameter->schema), false, &rule))
            return false;
        value = gram_call(w->g, rule,
                          constrain_value_blanks(w->g, constrain_value_text(w->g, close, after)));
    }
    str key_close = is_text ? w->row->key_text : w->row->key_json;
    uint32_t name =
        constrain_value_text(w->g, parameter->name, constrain_value_text(w->g, key_close, value));
    *out = constrain_value_text(w->g, w->row->key_open, name);
    return true;
}

#define VALUE_KEY "[A-Za-z_][A-Za-z0-9_.@-]{0,63}"

/* A tool that declares nothing takes any parameters. */
static uint32_t value_any_tags(struct constrain_write *w, uint32_t next)
{
    struct gram *g = w->g;
    str close = value_close_of(w->row);
    uint32_t loop = gram_hole(g), after = constrain_value_blanks(g, loop);
    const struct gram_free f = {.markers = &close, .to = &after, .count = 1};
    uint32_t value = gram_open(g, &f);
    uint32_t key =
        constrain_value_pattern(w, VALUE_KEY, constrain_value_text(g, w->row->key_text, value));
    const uint32_t to[] = {constrain_value_text(g, w->row->key_open, key), next};
    gram_fill(g, loop, gram_fork(g, to, 2));
    return loop;
}

/* Tags in declared order, optional ones left out or not; with many, in any order. */
static bool value_tags(const struct value_place *place, uint32_t next, uint32_t *out)
{
    struct constrain_write *w = place->w;
    const struct output_tool *t = place->t;
    uint32_t count = 0;
    if (json_kind(json_member(t->schema, "properties")) != JSON_KIND_OBJECT) {
        *out = value_any_tags(w, next);
        return value_leave_others(place, t->schema, value_object_keywords);
    }
    struct value_parameter *p = value_parameters(w, t->schema, &count);
    uint32_t *to = ARENA_ARRAY(&w->arena, uint32_t, (size_t)count + 1);
    if (!p || !to)
        return err_set(w->e, ERR_LIMIT, "tool %.*s: too many parameters", STR_ARG(t->name));
    bool is_ordered = count <= CONSTRAIN_VALUE_ORDERED;
    if ((!is_ordered && !value_leave_out(place, "properties")) ||
        !value_all_declared(place, t->schema, p, count) ||
        !value_leave_others(place, t->schema, value_object_keywords))
        return false;
    uint32_t at = is_ordered ? next : gram_hole(w->g);
    for (uint32_t i = count; i-- > 0;) {
        if (!value_tag(place, &p[i], at, &to[i]))
            return false;
        if (is_ordered)
            at = value_from(w->g, p, count, to, i, next);
    }
    if (!is_ordered) {
        to[count] = next;
        gram_fill(w->g, at, gram_fork(w->g, to, count + 1));
    }
    *out = at;
    return true;
}

/* --- LITERAL ------------------------------------------------------------------------------- */

#define VALUE_SCALAR "-?(0|[1-9][0-9]{0,16})(\\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?|true|false|null"

/* The rule of any literal: text, number, word, list, map. */
static uint32_t value_any(struct constrain_write *w)
{
    struct gram *g = w->g;
    str quote = w->row->value_close;
    if (w->literal != GRAM_NONE)
        return w->literal;
    uint32_t ret = gram_return(g), any = gram_hole(g);
    const struct gram_free f = {.markers = &quote, .to = &ret, .count = 1};
    uint32_t item = gram_hole(g), key = gram_hole(g);
    const uint32_t items[] = {gram_bytes(g, STR("]"), ret), gram_bytes(g, STR(","), item)};
    const uint32_t keys[] = {gram_bytes(g, STR("}"), ret), gram_bytes(g, STR(","), key)};
    gram_fill(g, item, gram_call(g, any, gram_fork(g, items, 2)));
    gram_fill(g, key, constrain_value_pattern(
                          w, VALUE_KEY,
                          gram_bytes(g, STR(":"), gram_call(g, any, gram_fork(g, keys, 2)))));
    const uint32_t list[] = {items[0], item}, map[] = {keys[0], key};
    const uint32_t ways[] = {constrain_value_text(g, w->row->key_open, gram_open(g, &f)),
                             constrain_value_pattern(w, VALUE_SCALAR, ret),
                             gram_bytes(g, STR("["), gram_fork(g, list, 2)),
                             gram_bytes(g, STR("{"), gram_fork(g, map, 2))};
    gram_fill(g, any, gram_fork(g, ways, countof(ways)));
    return w->literal = any;
}

static bool value_literal(const struct value_place *p, struct json schema, uint32_t next,
                          uint32_t *out);

/* Behind "{": any members. */
static uint32_t value_any_members(struct constrain_write *w, uint32_t next)
{
    struct gram *g = w->g;
    uint32_t key = gram_hole(g), end = gram_bytes(g, STR("}"), next);
    const uint32_t behind[] = {end, gram_bytes(g, STR(","), key)}, first[] = {end, key};
    uint32_t value = gram_call(g, value_any(w), gram_fork(g, behind, 2));
    gram_fill(g, key, constrain_value_pattern(w, VALUE_KEY, gram_bytes(g, STR(":"), value)));
    return gram_fork(g, first, 2);
}

/* Whether the form has all these names, and room for their order. */
static bool value_can_list(const struct value_parameter *p, uint32_t count)
{
    bool ok = count <= CONSTRAIN_VALUE_ORDERED;
    for (uint32_t i = 0; ok && i < count; i++)
        for (size_t k = 0; k < p[i].name.len && ok; k++)
            ok = p[i].name.p[k] != 0 && !strchr(" \t\r\n:,<>{}[]\"", p[i].name.p[k]);
    return ok;
}

/* Behind "{": members in declared order, commas between those that are there. */
static bool value_members(const struct value_place *place, struct json schema, uint32_t next,
                          uint32_t *out)
{
    struct constrain_write *w = place->w;
    uint32_t count = 0;
    struct value_parameter *p = value_parameters(w, schema, &count);
    uint32_t *to = ARENA_ARRAY(&w->arena, uint32_t, (size_t)count + 1);
    uint32_t *behind = ARENA_ARRAY(&w->arena, uint32_t, (size_t)count + 1);
    if (!p || !to || !behind)
        return err_set(w->e, ERR_LIMIT, "tool %.*s: too many parameters", STR_ARG(place->t->name));
    if (!value_can_list(p, count)) {
        *out = value_any_members(w, next);
        return value_leave_out(place, "properties");
    }
    if (!value_all_declared(place, schema, p, count) ||
        !value_leave_others(place, schema, value_object_keywords))
        return false;
    uint32_t end = gram_bytes(w->g, STR("}"), next), later = end;
    for (uint32_t i = count; i-- > 0;) {
        const struct value_place inner = value_below(place, p[i].name);
        uint32_t value;
        if (!value_literal(&inner, p[i].schema, later, &value))
            return false;
        to[i] = gram_bytes(w->g, p[i].name, gram_bytes(w->g, STR(":"), value));
        behind[i] = gram_bytes(w->g, STR(","), to[i]);
        later = value_from(w->g, p, count, behind, i, end);
    }
    *out = value_from(w->g, p, count, to, 0, end);
    return true;
}

static bool value_list(const struct value_place *p, struct json schema, uint32_t next,
                       uint32_t *out)
{
    static const char *const known[] = {"items", NULL};
    struct gram *g = p->w->g;
    const struct value_place inner = value_below(p, STR("items"));
    uint32_t more = gram_hole(g), item, end = gram_bytes(g, STR("]"), next);
    if (!value_leave_others(p, schema, known) ||
        !value_literal(&inner, json_member(schema, "items"), more, &item))
        return false;
    const uint32_t behind[] = {end, gram_bytes(g, STR(","), item)}, first[] = {end, item};
    gram_fill(g, more, gram_fork(g, behind, 2));
    *out = gram_bytes(g, STR("["), gram_fork(g, first, 2));
    return true;
}

static bool value_literal(const struct value_place *p, struct json schema, uint32_t next,
                          uint32_t *out)
{
    const uint32_t plain = OUTPUT_TYPE_NUMBER | OUTPUT_TYPE_BOOL | OUTPUT_TYPE_NULL;
    static const char *const none[] = {NULL};
    struct constrain_write *w = p->w;
    uint32_t types = output_tools_schema_types(p->t, schema), rule;
    bool has_items = json_kind(json_member(schema, "items")) == JSON_KIND_OBJECT;
    bool has_ref = json_kind(json_member(schema, "$ref")) != JSON_KIND_ABSENT;
    bool is_deep = p->depth >= CONSTRAIN_VALUE_DEPTH_MAX;
    if (types == OUTPUT_TYPE_STRING && !has_ref) {
        uint32_t text;
        if (!value_string(p, schema, w->row->value_close, next, &text))
            return false;
        *out = constrain_value_text(w->g, w->row->key_open, text);
        return true;
    }
    if (types && !(types & ~plain)) {
        if (has_ref && !value_leave_out(p, "$ref"))
            return false;
        str raw = has_ref ? STR("{\"type\":[\"number\",\"boolean\",\"null\"]}") : json_raw(schema);
        if (!value_rule(w, p->t, raw, false, &rule))
            return false;
        *out = gram_call(w->g, rule, next);
        return true;
    }
    if (types == OUTPUT_TYPE_ARRAY && has_items && !has_ref && !is_deep)
        return value_list(p, schema, next, out);
    if (types == OUTPUT_TYPE_OBJECT && json_count(json_member(schema, "properties")) && !has_ref &&
        !is_deep) {
        uint32_t members;
        if (!value_members(p, schema, next, &members))
            return false;
        *out = gram_bytes(w->g, STR("{"), members);
        return true;
    }
    *out = gram_call(w->g, value_any(w), next);
    return types == 0 && json_kind(schema) != JSON_KIND_OBJECT
               ? true
               : (types == 0 || value_leave_out(p, "type")) && value_leave_others(p, schema, none);
}

/* --- all of it ----------------------------------------------------------------------------- */

/* A tool that declares nothing takes any map. */
static bool value_map(const struct value_place *p, uint32_t next, uint32_t *out)
{
    static const char *const none[] = {NULL};
    struct json schema = p->t->schema;
    if (json_kind(json_member(schema, "properties")) == JSON_KIND_OBJECT)
        return value_members(p, schema, next, out);
    *out = value_any_members(p->w, next);
    return value_leave_others(p, schema, none);
}

/* The tool with a schema that can be walked: what it says, or a custom tool's one text. */
static bool value_readable(struct constrain_write *w, const struct output_tool *t,
                           struct output_tool *out)
{
    const struct json_options o = {.depth_max = OUTPUT_TOOLS_DEPTH_MAX};
    struct err why;
    *out = *t;
    if (out->has_schema)
        return true;
    out->has_schema = json_parse(&out->schema, value_schema(t), &o, &w->arena, &why);
    return out->has_schema || err_set(w->e, ERR_REQUEST, "tool %.*s: schema: %s", STR_ARG(t->name),
                                      why.text);
}

bool constrain_value_args(struct constrain_write *w, uint32_t i, uint32_t next, uint32_t *out)
{
    const struct output_tool *t = &w->ask->tools->rows[i];
    struct output_tool readable;
    const struct value_place place = {.w = w, .t = &readable, .path = STR("#")};
    switch (w->row->shape) {
    case OUTPUT_SHAPE_TAGS:
        return value_readable(w, t, &readable) && value_tags(&place, next, out);
    case OUTPUT_SHAPE_LITERAL:
        return value_readable(w, t, &readable) && value_map(&place, next, out);
    case OUTPUT_SHAPE_OBJECT: case OUTPUT_SHAPE_NAMED: case OUTPUT_SHAPE_CHANNEL:
    case OUTPUT_SHAPE_COUNT_:
        break;
    }
    if (w->rules[i] == GRAM_NONE && !value_rule(w, t, value_schema(t), true, &w->rules[i]))
        return false;
    *out = gram_call(w->g, w->rules[i], next);
    return true;
}
