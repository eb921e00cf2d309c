#include "engine/constrain_tools.h"

#include <string.h>

#include "base/json.h"
#include "engine/constrain_bare.h"

#define TOOLS_NAME_MAX   2048
#define TOOLS_OPENER_MAX 256
#define TOOLS_ARENA_MAX  ((size_t)16 << 20)

static uint32_t tools_dead(struct gram *g) { return gram_fork(g, NULL, 0); }

/* --- calls --------------------------------------------------------------------------------- */

static bool tools_add_name(struct constrain_write *w, uint32_t trie, const struct output_tool *t,
                           str close, uint32_t id)
{
    struct buf text;
    buf_init(&text, TOOLS_NAME_MAX);
    if (w->row->shape == OUTPUT_SHAPE_OBJECT)
        json_add_escaped(&text, t->name);
    else
        buf_add(&text, t->name);
    buf_add(&text, close);
    bool ok = !text.full && text.len && gram_trie_add(w->g, trie, buf_view(&text), id);
    buf_deinit(&text);
    return ok || err_set(w->e, ERR_REQUEST, "tools: the name %.*s is there twice, or too long",
                         STR_ARG(t->name));
}

/* A name up to `close`, its arguments and what ends them, then `after`. */
static bool tools_named(struct constrain_write *w, str close, uint32_t after, uint32_t *out)
{
    const struct output_tools *tools = w->ask->tools;
    uint32_t *to = ARENA_ARRAY(&w->arena, uint32_t, tools->rows_count);
    uint32_t trie = gram_trie_new(w->g);
    if (!to)
        return err_set(w->e, ERR_LIMIT, "tools: too many");
    if (tools->rows_count == 0)
        return err_set(w->e, ERR_REQUEST, "tools: none may be called");
    for (uint32_t i = 0; i < tools->rows_count; i++)
        if (!constrain_value_args(w, i, after, &to[i]) ||
            !tools_add_name(w, trie, &tools->rows[i], close, i))
            return false;
    /* In JSON a name is a value; elsewhere markers may end it. */
    *out = w->row->shape == OUTPUT_SHAPE_OBJECT
               ? gram_switch(w->g, trie, to, tools->rows_count)
               : gram_switch_marker(w->g, trie, to, tools->rows_count);
    return true;
}

/* One call behind its opener, then `after`. */
static bool tools_call(struct constrain_write *w, uint32_t after, uint32_t *out)
{
    const struct output_row *row = w->row;
    uint32_t close = constrain_value_text(w->g, row->args_close,
                                          constrain_value_text(w->g, row->call_close, after));
    if (!tools_named(w, row->shape == OUTPUT_SHAPE_LITERAL ? STR("{") : row->name_close, close,
                     out))
        return false;
    *out = constrain_value_text(w->g, row->name_open, *out);
    return true;
}

/* From behind the first opener to `rest`, which is where a reply goes on behind its calls. */
static bool tools_calls(struct constrain_write *w, uint32_t rest, uint32_t *out)
{
    const struct output_row *row = w->row;
    bool is_last = w->ask->one_call || row->is_call_last;
    bool may_repeat = !is_last && (row->section_open.len || rest == GRAM_NONE);
    uint32_t behind = is_last || rest == GRAM_NONE ? gram_end(w->g) : rest;
    uint32_t end = constrain_value_text(w->g, str_trim(row->section_close), behind);
    uint32_t hole = gram_hole(w->g), call = 0;
    uint32_t again =
        constrain_value_text(w->g, row->between, constrain_value_text(w->g, row->call_open, hole));
    const uint32_t to[] = {end, again};
    uint32_t after = may_repeat && again != hole ? gram_fork(w->g, to, 2) : end;
    if (!tools_call(w, after, &call))
        return false;
    gram_fill(w->g, hole, call);
    *out = hole;
    return true;
}

/* --- channels ------------------------------------------------------------------------------ */

#define TOOLS_START "<|start|>assistant"

/* Openers of a call in harmony, where the recipient stands behind the channel or the role. The last
 * token of a call ends the reply: it may be one of the model's ends of reply. */
static bool tools_channels(struct constrain_write *w, uint32_t to[2])
{
    const struct output_row *row = w->row;
    uint32_t end = gram_end(w->g), named;
    const uint32_t ways[] = {gram_marker(w->g, row->call_close, end), end};
    uint32_t after = gram_fork(w->g, ways, 2);
    if (!tools_named(w, row->name_close, after, &named))
        return false;
    to[0] = constrain_value_text(w->g, row->name_open, named);
    if (!tools_named(w, STR("<|channel|>commentary json<|message|>"), after, &named))
        return false;
    to[1] = constrain_value_text(w->g, row->name_open, named);
    return true;
}

/* `next`, which begins with a header, at once or behind one message of reasoning, in which no other
 * message may begin. */
static uint32_t tools_channel_reason(struct gram *g, enum output_begin begin, uint32_t next)
{
    const str marks[] = {STR("<|end|>"), STR("<|start|>"), STR("<|channel|>"), STR("<|message|>"),
                         STR("<|constrain|>"), STR("<|call|>"), STR("<|return|>")};
    uint32_t to[countof(marks)];
    to[0] = gram_marker(g, STR(TOOLS_START), next);
    for (size_t i = 1; i < countof(marks); i++)
        to[i] = tools_dead(g);
    const struct gram_free f = {.markers = marks, .to = to, .count = countof(marks)};
    uint32_t inside = gram_open(g, &f);
    if (begin != OUTPUT_BEGIN_FRESH)
        return inside; /* the prompt opened a message */
    const uint32_t ways[] = {next, gram_marker(g, STR("<|channel|>analysis<|message|>"), inside)};
    return gram_fork(g, ways, 2);
}

/* The one message that an answer in a format is: a preamble in front of it would be part of it. */
static uint32_t tools_channel_final(struct gram *g, uint32_t answer)
{
    return gram_marker(g, STR("<|channel|>final<|message|>"), answer);
}

static bool tools_channel_root(struct constrain_write *w, uint32_t answer, uint32_t *root)
{
    enum api_tool_choice choice = w->ask->rq->tool_choice;
    enum output_begin begin = w->ask->begin;
    str call_open = str_trim(w->row->call_open);
    const str markers[] = {call_open, STR(TOOLS_START " to=")};
    uint32_t to[] = {tools_dead(w->g), tools_dead(w->g)};
    if (choice != API_TOOL_CHOICE_NONE && !tools_channels(w, to))
        return false;
    if (choice >= API_TOOL_CHOICE_REQUIRED) {
        *root = tools_channel_reason(w->g, begin, gram_marker(w->g, call_open, to[0]));
        return true;
    }
    if (answer != GRAM_NONE) {
        const uint32_t ways[] = {tools_channel_final(w->g, answer),
                                 gram_marker(w->g, call_open, to[0])};
        uint32_t next = gram_fork(w->g, ways, choice == API_TOOL_CHOICE_NONE ? 1 : 2);
        *root = begin == OUTPUT_BEGIN_ANSWER ? answer : tools_channel_reason(w->g, begin, next);
        return true;
    }
    const struct gram_free f = {.markers = markers, .to = to, .can_end = true,
                                .count = countof(markers)};
    *root = gram_open(w->g, &f);
    return true;
}

/* --- the reply ----------------------------------------------------------------------------- */

static bool tools_reads_bare(const struct output_row *row)
{
    return row->is_bare || row->reads_bare;
}

/* A format binds the reply from its first byte: then only its grammar lets calls stand beside. */
static bool tools_are_free(const struct constrain_ask *ask)
{
    bool has_strict = false;
    for (uint32_t i = 0; i < ask->tools->rows_count; i++)
        has_strict |= ask->tools->rows[i].tool->strict;
    return ask->is_off && !has_strict && ask->rq->format.kind == API_FORMAT_TEXT;
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
    if (choice == API_TOOL_CHOICE_NONE)
        return output_table_opener(row, opener, sizeof opener).len > 0;
    return ask->tools != NULL && ask->tools->rows_count > 0 && !tools_are_free(ask);
}

/* What chat/output takes for the beginning of a call, each with where it leads; those of a row are
 * not prefixes of each other. */
struct tools_openers {
    str marks[OUTPUT_TABLE_OPENERS];
    uint32_t to[OUTPUT_TABLE_OPENERS], count;
};

static void tools_opener(struct tools_openers *o, str mark, uint32_t to)
{
    for (uint32_t i = 0; i < o->count; i++)
        if (str_starts(mark, o->marks[i]) || str_starts(o->marks[i], mark))
            return;
    if (mark.len == 0)
        return;
    o->marks[o->count] = mark;
    o->to[o->count++] = to;
}

/* What of a row's text follows its opener. */
static str tools_behind(str text, str opener)
{
    return str_from(text, str_find(text, opener) + opener.len);
}

/* Every opener, though the usual one is section and call together: a model may leave out the
 * section, take the name of another, or begin with the name. first: behind section and call. */
static bool tools_every_opener(struct constrain_write *w, uint32_t first, uint32_t rest,
                               struct tools_openers *o)
{
    const struct output_row *r = w->row;
    struct gram *g = w->g;
    bool may_call = w->ask->rq->tool_choice != API_TOOL_CHOICE_NONE, is_tags = false;
    bool is_last = w->ask->one_call || r->is_call_last;
    uint32_t alone = first, after = is_last ? gram_end(g) : rest;
    str open[OUTPUT_TABLE_OPENERS];
    for (uint32_t i = 0; i < countof(open); i++)
        open[i] = output_table_begin(r, i);
    is_tags = r->shape == OUTPUT_SHAPE_TAGS && open[2].len;
    if (may_call && r->section_open.len && open[1].len && !tools_call(w, after, &alone))
        return false;
    uint32_t call = constrain_value_text(g, r->call_open, first), named = first;
    if (open[0].len)
        tools_opener(o, open[0],
                     may_call
                         ? constrain_value_text(g, tools_behind(r->section_open, open[0]), call)
                         : first);
    tools_opener(o, open[1], alone);
    for (uint32_t i = 2; i < countof(open); i++) {
        bool is_name = is_tags && str_eq(open[i], str_trim(r->name_open));
        uint32_t close = may_call && is_name
                             ? constrain_value_text(g, r->args_close,
                                                    constrain_value_text(g, r->call_close, after))
                             : first;
        if (may_call && is_name && !tools_named(w, r->name_close, close, &named))
            return false;
        bool is_section = is_tags && !is_name && may_call;
        tools_opener(o, open[i], is_name ? named : is_section ? gram_bytes(g, STR("\n"), call)
                                                              : first);
    }
    return true;
}

/* Free text with calls in it; for a ban of calls `first` leads nowhere. */
static bool tools_free_root(struct constrain_write *w, uint32_t first, uint32_t text,
                            uint32_t *root)
{
    const struct output_row *row = w->row;
    struct tools_openers o = {.count = 0};
    if (!tools_every_opener(w, first, text, &o))
        return false;
    const struct gram_free f = {.markers = o.marks, .to = o.to, .count = o.count, .can_end = true};
    uint32_t open = gram_open(w->g, &f);
    if (text != GRAM_NONE)
        gram_fill(w->g, text, open);
    *root = open;
    bool may_call = w->ask->rq->tool_choice != API_TOOL_CHOICE_NONE;
    return !may_call || !tools_reads_bare(row) ||
           constrain_bare(w, open, w->ask->one_call || row->is_call_last, root);
}

static bool tools_root(struct constrain_write *w, uint32_t answer, uint32_t *root)
{
    char text[TOOLS_OPENER_MAX];
    str opener = output_table_opener(w->row, text, sizeof text);
    enum api_tool_choice choice = w->ask->rq->tool_choice;
    bool is_free = answer == GRAM_NONE && choice <= API_TOOL_CHOICE_NONE;
    if (w->row->shape == OUTPUT_SHAPE_CHANNEL)
        return tools_channel_root(w, answer, root);
    uint32_t rest = is_free && choice != API_TOOL_CHOICE_NONE ? gram_hole(w->g) : GRAM_NONE;
    uint32_t first = tools_dead(w->g);
    if (choice != API_TOOL_CHOICE_NONE && !tools_calls(w, rest, &first))
        return false;
    if (is_free)
        return tools_free_root(w, first, rest, root);
    uint32_t opened = constrain_value_text(w->g, opener, first);
    const uint32_t ways[] = {opened, answer};
    *root = choice == API_TOOL_CHOICE_NONE ? answer
            : choice == API_TOOL_CHOICE_AUTO ? gram_fork(w->g, ways, 2) : opened;
    return true;
}

bool constrain_tools_root(struct gram *g, const struct constrain_ask *ask, uint32_t answer,
                          uint32_t *root, struct err *e)
{
    struct constrain_write w = {.g = g, .ask = ask, .row = ask->format.calls, .e = e,
                                .literal = GRAM_NONE};
    uint32_t count = ask->tools ? ask->tools->rows_count : 0;
    arena_init(&w.arena, TOOLS_ARENA_MAX);
    w.rules = ARENA_ARRAY(&w.arena, uint32_t, (size_t)count + 1);
    for (uint32_t i = 0; w.rules && i < count; i++)
        w.rules[i] = GRAM_NONE;
    bool ok = w.rules ? tools_root(&w, answer, root) : err_set(e, ERR_LIMIT, "tools: too many");
    arena_deinit(&w.arena);
    return ok;
}

/* Whether calls were bound, which in harmony says all of the reply. */
static bool tools_is_whole(const struct constrain_ask *ask)
{
    const struct output_row *row = ask->format.calls;
    return row && row->shape == OUTPUT_SHAPE_CHANNEL && constrain_tools_bind(ask);
}

uint32_t constrain_tools_think(struct gram *g, const struct constrain_ask *ask, uint32_t next)
{
    const struct output_think *think = ask->format.think;
    const struct output_row *row = ask->format.calls;
    bool is_channel = row && row->shape == OUTPUT_SHAPE_CHANNEL;
    if (ask->begin == OUTPUT_BEGIN_ANSWER || (!think && !is_channel) || tools_is_whole(ask))
        return next;
    if (is_channel)
        return tools_channel_reason(g, ask->begin, tools_channel_final(g, next));
    str close = str_trim(think->close);
    uint32_t after = constrain_value_blanks(g, next);
    const struct gram_free f = {.markers = &close, .to = &after, .count = 1};
    uint32_t inside = gram_open(g, &f);
    if (ask->begin == OUTPUT_BEGIN_THINKING)
        return inside;
    const uint32_t to[] = {gram_marker(g, str_trim(think->open), inside), next};
    return gram_fork(g, to, 2);
}
