#include "chat/output_table.h"

#include <string.h>


/* Sources: the templates in tests/golden/templates, what they print for calls (tool_parallel), and
 * the model pages. The order is that of detection: a format whose markers hold another one's comes
 * first. */
/* Letters of DeepSeek's markers: U+FF5C, U+2581. */
#define BAR  "\xef\xbd\x9c"
#define LOW  "\xe2\x96\x81"
#define DSML BAR "DSML" BAR
#define DEEPSEEK_CALLS "<" BAR "tool" LOW "calls" LOW "begin" BAR ">"

const struct output_row output_table_rows[] = {
    {.name = STR_INIT("harmony"), .detect = {STR_INIT("<|channel|>"), STR_INIT("<|message|>")},
     .arch = STR_INIT("gpt-oss"), .shape = OUTPUT_SHAPE_CHANNEL,
     .between = STR_INIT("<|start|>assistant"),
     .call_open = STR_INIT("<|channel|>commentary to="), .call_close = STR_INIT("<|call|>"),
     .name_open = STR_INIT("functions."),
     .name_close = STR_INIT(" <|constrain|>json<|message|>"), .is_call_last = true},
    {.name = STR_INIT("dsml-functions"),
     .detect = {STR_INIT(DSML), STR_INIT("function_calls")},
     .shape = OUTPUT_SHAPE_TAGS, .before = STR_INIT("\n\n"),
     .section_open = STR_INIT("<" DSML "function_calls>\n"),
     .section_close = STR_INIT("</" DSML "function_calls>"),
     .also = {STR_INIT("<" DSML "tool_calls>")}, .also_close = STR_INIT("</" DSML "tool_calls>"),
     .call_open = STR_INIT("<" DSML "invoke name=\""),
     .call_close = STR_INIT("</" DSML "invoke>\n"), .name_close = STR_INIT("\">\n"),
     .key_open = STR_INIT("<" DSML "parameter name=\""),
     .key_text = STR_INIT("\" string=\"true\">"), .key_json = STR_INIT("\" string=\"false\">"),
     .value_close = STR_INIT("</" DSML "parameter>\n")},
    {.name = STR_INIT("dsml"), .detect = {STR_INIT(DSML)},
     .shape = OUTPUT_SHAPE_TAGS, .before = STR_INIT("\n\n"),
     .section_open = STR_INIT("<" DSML "tool_calls>\n"),
     .section_close = STR_INIT("</" DSML "tool_calls>"),
     .also = {STR_INIT("<" DSML "function_calls>")},
     .also_close = STR_INIT("</" DSML "function_calls>"),
     .call_open = STR_INIT("<" DSML "invoke name=\""),
     .call_close = STR_INIT("</" DSML "invoke>\n"), .name_close = STR_INIT("\">\n"),
     .key_open = STR_INIT("<" DSML "parameter name=\""),
     .key_text = STR_INIT("\" string=\"true\">"), .key_json = STR_INIT("\" string=\"false\">"),
     .value_close = STR_INIT("</" DSML "parameter>\n")},
    {.name = STR_INIT("deepseek-r1"), .detect = {STR_INIT(DEEPSEEK_CALLS), STR_INIT("```json")},
     .shape = OUTPUT_SHAPE_NAMED, .between = STR_INIT("\n"),
     .section_open = STR_INIT(DEEPSEEK_CALLS),
     .section_close = STR_INIT("<" BAR "tool" LOW "calls" LOW "end" BAR ">"),
     .call_open = STR_INIT("<" BAR "tool" LOW "call" LOW "begin" BAR ">"),
     .call_close = STR_INIT("<" BAR "tool" LOW "call" LOW "end" BAR ">"),
     .name_open = STR_INIT("function<" BAR "tool" LOW "sep" BAR ">"),
     .name_close = STR_INIT("\n```json\n"), .args_close = STR_INIT("\n```")},
    {.name = STR_INIT("deepseek"), .detect = {STR_INIT(DEEPSEEK_CALLS)},
     .shape = OUTPUT_SHAPE_NAMED,
     .section_open = STR_INIT(DEEPSEEK_CALLS),
     .section_close = STR_INIT("<" BAR "tool" LOW "calls" LOW "end" BAR ">"),
     .call_open = STR_INIT("<" BAR "tool" LOW "call" LOW "begin" BAR ">"),
     .call_close = STR_INIT("<" BAR "tool" LOW "call" LOW "end" BAR ">"),
     .name_close = STR_INIT("<" BAR "tool" LOW "sep" BAR ">")},
    {.name = STR_INIT("gemma4"), .detect = {STR_INIT("<|tool_call>"), STR_INIT("<|\"|>")},
     .arch = STR_INIT("gemma4"), .shape = OUTPUT_SHAPE_LITERAL,
     .call_open = STR_INIT("<|tool_call>"), .call_close = STR_INIT("<tool_call|>"),
     .name_open = STR_INIT("call:"),
     .key_open = STR_INIT("<|\"|>"), .value_close = STR_INIT("<|\"|>")},
    {.name = STR_INIT("glm-compact"),
     .detect = {STR_INIT("<tool_call>"), STR_INIT("</arg_key><arg_value>")},
     .shape = OUTPUT_SHAPE_TAGS,
     .call_open = STR_INIT("<tool_call>"), .call_close = STR_INIT("</tool_call>"),
     .key_open = STR_INIT("<arg_key>"), .key_text = STR_INIT("</arg_key><arg_value>"),
     .key_json = STR_INIT("</arg_key><arg_value>"), .value_close = STR_INIT("</arg_value>")},
    {.name = STR_INIT("glm"), .detect = {STR_INIT("<tool_call>"), STR_INIT("<arg_key>")},
     .shape = OUTPUT_SHAPE_TAGS, .before = STR_INIT("\n"), .between = STR_INIT("\n"),
     .call_open = STR_INIT("<tool_call>"), .call_close = STR_INIT("</tool_call>"),
     .name_close = STR_INIT("\n"),
     .key_open = STR_INIT("<arg_key>"), .key_text = STR_INIT("</arg_key>\n<arg_value>"),
     .key_json = STR_INIT("</arg_key>\n<arg_value>"),
     .value_close = STR_INIT("</arg_value>\n")},
    {.name = STR_INIT("seed"), .detect = {STR_INIT("<seed:tool_call>"), STR_INIT("<function=")},
     .shape = OUTPUT_SHAPE_TAGS, .before = STR_INIT("\n\n"), .between = STR_INIT("\n"),
     .call_open = STR_INIT("<seed:tool_call>"), .call_close = STR_INIT("</seed:tool_call>"),
     .name_open = STR_INIT("\n<function="), .name_close = STR_INIT(">\n"),
     .args_close = STR_INIT("</function>\n"),
     .key_open = STR_INIT("<parameter="), .key_text = STR_INIT(">"), .key_json = STR_INIT(">"),
     .value_close = STR_INIT("</parameter>\n"), .also = {STR_INIT("<function=")}},
    {.name = STR_INIT("function-xml"), .detect = {STR_INIT("<tool_call>"), STR_INIT("<function=")},
     .shape = OUTPUT_SHAPE_TAGS, .before = STR_INIT("\n\n"), .between = STR_INIT("\n"),
     .call_open = STR_INIT("<tool_call>"), .call_close = STR_INIT("</tool_call>"),
     .name_open = STR_INIT("\n<function="), .name_close = STR_INIT(">\n"),
     .args_close = STR_INIT("</function>\n"),
     .key_open = STR_INIT("<parameter="), .key_text = STR_INIT(">\n"), .key_json = STR_INIT(">\n"),
     .value_close = STR_INIT("\n</parameter>\n"), .also = {STR_INIT("<function=")}},
    {.name = STR_INIT("hermes"), .detect = {STR_INIT("<tool_call>")},
     .shape = OUTPUT_SHAPE_OBJECT, .before = STR_INIT("\n"), .between = STR_INIT("\n"),
     .call_open = STR_INIT("<tool_call>"), .call_close = STR_INIT("</tool_call>"),
     .name_open = STR_INIT("\n{\"name\": \""), .name_close = STR_INIT("\", \"arguments\": "),
     .args_close = STR_INIT("}\n"), .reads_bare = true},
    {.name = STR_INIT("tool-calls"), .detect = {STR_INIT("<tool_calls>")},
     .shape = OUTPUT_SHAPE_OBJECT, .before = STR_INIT("\n"),
     .section_open = STR_INIT("<tool_calls>["), .section_close = STR_INIT("]</tool_calls>"),
     .between = STR_INIT(", "),
     .name_open = STR_INIT("{\"name\": \""), .name_close = STR_INIT("\", \"arguments\": "),
     .args_close = STR_INIT("}")},
    {.name = STR_INIT("granite"), .detect = {STR_INIT("<|tool_call|>")},
     .shape = OUTPUT_SHAPE_OBJECT,
     .section_open = STR_INIT("<|tool_call|>["), .section_close = STR_INIT("]"),
     .between = STR_INIT(", "),
     .name_open = STR_INIT("{\"name\": \""), .name_close = STR_INIT("\", \"arguments\": "),
     .args_close = STR_INIT("}")},
    {.name = STR_INIT("mistral"), .detect = {STR_INIT("[TOOL_CALLS]"), STR_INIT("[ARGS]")},
     .shape = OUTPUT_SHAPE_NAMED, .call_open = STR_INIT("[TOOL_CALLS]"),
     .name_close = STR_INIT("[ARGS]")},
    {.name = STR_INIT("mistral-list"), .detect = {STR_INIT("[TOOL_CALLS]")},
     .shape = OUTPUT_SHAPE_OBJECT,
     .section_open = STR_INIT("[TOOL_CALLS]["), .section_close = STR_INIT("]"),
     .between = STR_INIT(", "),
     .name_open = STR_INIT("{\"name\": \""), .name_close = STR_INIT("\", \"arguments\": "),
     .args_close = STR_INIT("}")},
    {.name = STR_INIT("llama3"),
     .detect = {STR_INIT("<|start_header_id|>"), STR_INIT("\"parameters\"")},
     .shape = OUTPUT_SHAPE_OBJECT, .between = STR_INIT("; "),
     .name_open = STR_INIT("{\"name\": \""), .name_close = STR_INIT("\", \"parameters\": "),
     .args_close = STR_INIT("}"),
     .also = {STR_INIT("<|python_tag|>")}, .is_bare = true, .is_call_last = true},
};
const uint32_t output_table_count = countof(output_table_rows);

const struct output_think output_table_thinks[] = {
    {STR_INIT("channel"), STR_INIT("<|channel>thought\n"), STR_INIT("<channel|>"),
     STR_INIT("<channel|>")},
    {STR_INIT("brackets"), STR_INIT("[THINK]"), STR_INIT("[/THINK]"), STR_INIT("[THINK]")},
    {STR_INIT("seed"), STR_INIT("<seed:think>"), STR_INIT("</seed:think>\n"),
     STR_INIT("<seed:think>")},
    {STR_INIT("think"), STR_INIT("<think>\n"), STR_INIT("\n</think>\n\n"),
     STR_INIT("</think>")},
};
const uint32_t output_table_thinks_count = countof(output_table_thinks);

const struct output_row *output_table_find(str name)
{
    for (uint32_t i = 0; i < output_table_count; i++)
        if (str_eq(name, output_table_rows[i].name))
            return &output_table_rows[i];
    return NULL;
}

static bool holds(const str templates[2], str text)
{
    return str_find(templates[0], text) != STR_NONE || str_find(templates[1], text) != STR_NONE;
}

static const struct output_row *detect(const str templates[2])
{
    for (uint32_t i = 0; i < output_table_count; i++) {
        const struct output_row *row = &output_table_rows[i];
        if (holds(templates, row->detect[0]) && holds(templates, row->detect[1]))
            return row;
    }
    return NULL;
}

static const struct output_row *by_arch(str arch)
{
    for (uint32_t i = 0; i < output_table_count && arch.len; i++)
        if (str_eq(arch, output_table_rows[i].arch))
            return &output_table_rows[i];
    return NULL;
}

bool output_table_choose(struct output_format *out, str name, const str templates[2], str arch,
                         struct err *e)
{
    *out = (struct output_format){0};
    out->calls = name.len ? output_table_find(name) : detect(templates);
    if (name.len && out->calls == NULL)
        return err_set(e, ERR_CONFIG, "tool_format: no format '%.*s'",
                       (int)base_min(name.len, 60), name.p);
    if (out->calls == NULL)
        out->calls = by_arch(arch);
    if (out->calls && out->calls->shape == OUTPUT_SHAPE_CHANNEL)
        return true;
    for (uint32_t i = 0; i < output_table_thinks_count && out->think == NULL; i++)
        if (holds(templates, output_table_thinks[i].detect))
            out->think = &output_table_thinks[i];
    return true;
}

str output_table_opener(const struct output_row *row, char *text, size_t size)
{
    size_t len = 0;
    for (int i = 0; i < 2; i++) {
        str part = i == 0 ? row->section_open : row->call_open;
        for (size_t k = 0; k < part.len && len < size; k++)
            text[len++] = part.p[k];
    }
    return str_trim(str_view(text, len));
}

bool output_table_can_name(const struct output_row *row, str name)
{
    bool ok = true;
    for (size_t i = 0; i < name.len && ok && row->shape != OUTPUT_SHAPE_OBJECT; i++)
        ok = name.p[i] == 0 || !strchr(" \t\r\n<>{}[]()\"`", name.p[i]);
    return ok;
}

str output_table_begin(const struct output_row *r, uint32_t i)
{
    const str all[OUTPUT_TABLE_OPENERS] = {r->section_open, r->call_open, r->also[0], r->also[1]};
    str s = str_trim(all[i]);
    if (s.len > 1 && str_ends(s, STR("[")))
        s.len--;
    return s;
}
