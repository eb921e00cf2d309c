#include "engine/constrain_tools.h"

#include <string.h>

#include "base/json.h"
#include "grammar/gram_schema.h"

#define TOOLS_NAME_MAX   2048
#define TOOLS_OPENER_MAX 256
#define TOOLS_FREE_TEXT \
    "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}}," \
    "\"required\":[\"input\"],\"additionalProperties\":false}"

struct tools_write {
    struct gram *g;
    const struct constrain_ask *ask;
    const struct output_row *row;
    struct arena arena;
    struct err *e;
};

static uint32_t tools_text(struct gram *g, str text, uint32_t next)
{
    return text.len ? gram_marker(g, text, next) : next;
}

/* Blanks that a model may write there or not. */
static uint32_t tools_blanks(struct gram *g, uint32_t next)
{
    const uint32_t to[] = {gram_bytes(g, STR("\n\n"), next), gram_bytes(g, STR("\n"), next), next};
    return gram_fork(g, to, 3);
}

static uint32_t tools_dead(struct gram *g) { return gram_fork(g, NULL, 0); }

/* --- arguments ----------------------------------------------------------------------------- */

static str tools_schema(const struct output_tool *t)
{
    if (t->tool->kind == API_TOOL_CUSTOM)
        return STR(TOOLS_FREE_TEXT);
    return t->tool->schema.len ? t->tool->schema : STR("{\"type\":\"object\"}");
}

static void tools_note(struct tools_write *w, str name, str lines)
{
    str line;
    while (str_split(&lines, '\n', &line))
        if (!buf_printf(w->ask->dropped, "%.*s%.*s\n", STR_ARG(name), STR_ARG(line)))
            return;
}

/* The rule of one schema of a tool; not strict: what cannot be read at all is any value. */
static bool tools_rule(struct tools_write *w, const struct output_tool *t, str schema,
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
    tools_note(w, t->name, buf_view(&lines));
    buf_deinit(&lines);
    return ok || err_set(w->e, why.code, "tool %.*s: %s", STR_ARG(t->name), why.text);
}

/* A parameter's value between its tags, then next: text as it is, else JSON. */
static bool tools_value(struct tools_write *w, const struct output_tool *t, str name,
                        struct json schema, uint32_t next, uint32_t *out)
{
    uint32_t types = output_tools_types(t, name), rule;
    str close = str_trim(w->row->value_close);
    uint32_t after = tools_blanks(w->g, next);
    if (types == 0 || types & OUTPUT_TYPE_STRING) {
        const struct gram_free f = {.markers = &close, .to = &after, .count = 1};
        *out = gram_open(w->g, &f);
        return true;
    }
    if (!tools_rule(w, t, json_raw(schema), false, &rule))
        return false;
    *out = gram_call(w->g, rule, tools_blanks(w->g, tools_text(w->g, close, after)));
    return true;
}

struct tools_parameter {
    str name;
    struct json schema;
    bool is_required;
};

static bool tools_is_required(struct json schema, str name)
{
    struct json_walk w = json_walk(json_member(schema, "required"));
    while (json_next(&w))
        if (json_text_eq(w.value, name))
            return true;
    return false;
}

static bool tools_parameter(struct tools_write *w, const struct output_tool *t,
                            const struct tools_parameter *p, uint32_t next, uint32_t *out)
{
    uint32_t types = output_tools_types(t, p->name), value;
    bool is_text = types == 0 || types & OUTPUT_TYPE_STRING;
    if (!tools_value(w, t, p->name, p->schema, next, &value))
        return false;
    uint32_t name = tools_text(w->g, p->name, tools_text(w->g, is_text ? w->row->key_text
                                                                      : w->row->key_json, value));
    *out = tools_text(w->g, w->row->key_open, name);
    return true;
}

/* Tags in declared order, optional ones left out or not; with many, in any order. */
static bool tools_tags(struct tools_write *w, const struct output_tool *t, uint32_t next,
                       uint32_t *out)
{
    struct json properties = json_member(t->schema, "properties");
    struct json_walk walk = json_walk(properties);
    uint32_t count = 0, all = json_count(properties);
    struct tools_parameter *p = ARENA_ARRAY(&w->arena, struct tools_parameter, all);
    uint32_t *at = ARENA_ARRAY(&w->arena, uint32_t, (size_t)all + 1);
    uint32_t *to = ARENA_ARRAY(&w->arena, uint32_t, (size_t)all + 1);
    if (!p || !at || !to)
        return err_set(w->e, ERR_LIMIT, "tool %.*s: too many parameters", STR_ARG(t->name));
    while (json_next(&walk)) {
        str name = json_text(walk.key, &w->arena);
        if (name.len)
            p[count++] = (struct tools_parameter){name, walk.value,
                                                  tools_is_required(t->schema, name)};
    }
    bool is_ordered = count <= CONSTRAIN_TOOLS_ORDERED;
    at[count] = next;
    uint32_t loop = is_ordered ? GRAM_NONE : gram_hole(w->g);
    for (uint32_t i = count; i-- > 0;)
        if (!tools_parameter(w, t, &p[i], is_ordered ? at[i + 1] : loop, &to[i]))
            return false;
        else if (is_ordered) { /* this one, or a later one as long as none before it must come */
            uint32_t ways[CONSTRAIN_TOOLS_ORDERED + 1], n = 0, k = i;
            for (; k < count; k++) {
                ways[n++] = to[k];
                if (p[k].is_required)
                    break;
            }
            if (k == count)
                ways[n++] = next;
            at[i] = gram_fork(w->g, ways, n);
        }
    if (!is_ordered) {
        to[count] = next;
        at[0] = gram_fork(w->g, to, count + 1);
        gram_fill(w->g, loop, at[0]);
    }
    *out = at[0];
    return true;
}

/* --- calls --------------------------------------------------------------------------------- */

static bool tools_add_name(struct tools_write *w, uint32_t trie, const struct output_tool *t,
                           uint32_t id)
{
    struct buf text;
    buf_init(&text, TOOLS_NAME_MAX);
    if (w->row->shape == OUTPUT_SHAPE_OBJECT)
        json_add_escaped(&text, t->name);
    else
        buf_add(&text, t->name);
    buf_add(&text, w->row->name_close);
    bool ok = !text.full && text.len && gram_trie_add(w->g, trie, buf_view(&text), id);
    buf_deinit(&text);
    return ok || err_set(w->e, ERR_REQUEST, "tools: the name %.*s is there twice, or too long",
                         STR_ARG(t->name));
}

/* One call behind its opener, then `after`. */
static bool tools_call(struct tools_write *w, uint32_t after, uint32_t *out)
{
    const struct output_tools *tools = w->ask->tools;
    uint32_t *to = ARENA_ARRAY(&w->arena, uint32_t, tools->rows_count), count = 0;
    uint32_t trie = gram_trie_new(w->g);
    uint32_t close = tools_text(w->g, w->row->args_close,
                                tools_text(w->g, w->row->call_close, after));
    if (!to)
        return err_set(w->e, ERR_LIMIT, "tools: too many");
    for (uint32_t i = 0; i < tools->rows_count; i++) {
        const struct output_tool *t = &tools->rows[i];
        uint32_t rule, node = 0;
        if (!t->tool->allowed)
            continue;
        if (w->row->shape == OUTPUT_SHAPE_TAGS) {
            if (!tools_tags(w, t, close, &node))
                return false;
        } else {
            if (!tools_rule(w, t, tools_schema(t), true, &rule))
                return false;
            node = gram_call(w->g, rule, close);
        }
        if (!tools_add_name(w, trie, t, count))
            return false;
        to[count++] = node;
    }
    if (count == 0)
        return err_set(w->e, ERR_REQUEST, "tools: none may be called");
    *out = tools_text(w->g, w->row->name_open, gram_switch(w->g, trie, to, count));
    return true;
}

/* From behind the first opener to `rest`, which is where a reply goes on behind its calls. */
static bool tools_calls(struct tools_write *w, uint32_t rest, uint32_t *out)
{
    const struct output_row *row = w->row;
    bool is_last = w->ask->one_call || row->is_call_last;
    bool may_repeat = !is_last && (row->section_open.len || rest == GRAM_NONE);
    uint32_t behind = is_last || rest == GRAM_NONE ? gram_end(w->g) : rest;
    uint32_t end = tools_text(w->g, str_trim(row->section_close), behind);
    uint32_t hole = gram_hole(w->g), call = 0;
    uint32_t again = tools_text(w->g, row->between, tools_text(w->g, row->call_open, hole));
    const uint32_t to[] = {end, again};
    uint32_t after = may_repeat && again != hole ? gram_fork(w->g, to, 2) : end;
    if (!tools_call(w, after, &call))
        return false;
    gram_fill(w->g, hole, call);
    *out = hole;
    return true;
}

bool constrain_tools_bind(const struct constrain_ask *ask)
{
    const struct output_row *row = ask->format.calls;
    char opener[TOOLS_OPENER_MAX];
    enum api_tool_choice choice = ask->rq->tool_choice;
    if (!api_request_has_tools(ask->rq) || !row)
        return false;
    if (choice >= API_TOOL_CHOICE_REQUIRED)
        return true;
    bool is_known = row->shape != OUTPUT_SHAPE_CHANNEL && row->shape != OUTPUT_SHAPE_LITERAL;
    return is_known && output_table_opener(row, opener, sizeof opener).len &&
           (choice == API_TOOL_CHOICE_NONE || ask->tools);
}

bool constrain_tools_root(struct gram *g, const struct constrain_ask *ask, uint32_t answer,
                          uint32_t *root, struct err *e)
{
    struct tools_write w = {.g = g, .ask = ask, .row = ask->format.calls, .e = e};
    char text[TOOLS_OPENER_MAX];
    str markers[3] = {output_table_opener(w.row, text, sizeof text)};
    enum api_tool_choice choice = ask->rq->tool_choice;
    bool is_free = answer == GRAM_NONE && choice <= API_TOOL_CHOICE_NONE;
    uint32_t first = GRAM_NONE, count = 1;
    if (w.row->shape == OUTPUT_SHAPE_CHANNEL || w.row->shape == OUTPUT_SHAPE_LITERAL)
        return err_set(e, ERR_UNSUPPORTED, "tool_choice: required and named calls are not built yet"
                       " for the format %.*s", STR_ARG(w.row->name));
    if (choice == API_TOOL_CHOICE_NONE) {
        first = tools_dead(g);
    } else {
        arena_init(&w.arena, (size_t)8 << 20);
        uint32_t hole = is_free ? gram_hole(g) : GRAM_NONE;
        bool ok = tools_calls(&w, hole, &first);
        arena_deinit(&w.arena);
        if (!ok)
            return false;
        answer = is_free ? hole : answer;
    }
    if (is_free) {
        uint32_t to[3] = {first, first, first};
        for (size_t i = 0; i < countof(w.row->also) && w.row->shape == OUTPUT_SHAPE_OBJECT; i++)
            if (w.row->also[i].len)
                markers[count++] = w.row->also[i];
        const struct gram_free f = {.markers = markers, .to = to, .count = count, .can_end = true};
        *root = gram_open(g, &f);
        if (answer != GRAM_NONE)
            gram_fill(g, answer, *root);
        return true;
    }
    uint32_t opened = tools_text(g, markers[0], first);
    const uint32_t ways[] = {opened, answer};
    *root = choice == API_TOOL_CHOICE_NONE ? answer
            : choice == API_TOOL_CHOICE_AUTO ? gram_fork(g, ways, 2) : opened;
    return true;
}

uint32_t constrain_tools_think(struct gram *g, const struct constrain_ask *ask, uint32_t next)
{
    const struct output_think *think = ask->format.think;
    const struct output_row *row = ask->format.calls;
    bool is_channel = row && row->shape == OUTPUT_SHAPE_CHANNEL;
    if (ask->begin == OUTPUT_BEGIN_ANSWER || (!think && !is_channel))
        return next;
    str close = is_channel ? STR("<|channel|>final<|message|>") : str_trim(think->close);
    uint32_t after = is_channel ? next : tools_blanks(g, next);
    const struct gram_free f = {.markers = &close, .to = &after, .count = 1};
    uint32_t inside = gram_open(g, &f);
    if (ask->begin == OUTPUT_BEGIN_THINKING || is_channel)
        return inside;
    const uint32_t to[] = {gram_marker(g, str_trim(think->open), inside), next};
    return gram_fork(g, to, 2);
}
