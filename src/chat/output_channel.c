#include "chat/output_shape.h"

#include <string.h>

/* Harmony: a reply is messages, each with a header that says where it goes.
 *
 *     <|channel|>analysis<|message|>...<|end|>                                     reasoning
 *     <|start|>assistant<|channel|>final<|message|>...<|return|>                   content
 *     <|start|>assistant<|channel|>commentary to=functions.NAME json<|message|>{}<|call|>      call
 *
 * The prompt ends behind "<|start|>assistant". Headers that are a little wrong are read as far as
 * they go; text without any header is content. */

static const str channel_marks[] = {
    STR_INIT("<|start|>"), STR_INIT("<|channel|>"), STR_INIT("<|message|>"),
    STR_INIT("<|constrain|>"), STR_INIT("<|end|>"), STR_INIT("<|call|>"), STR_INIT("<|return|>")};
enum { MARK_START, MARK_CHANNEL, MARK_MESSAGE, MARK_CONSTRAIN };

#define HEADER_MAX 512

static str word_behind(str header, const char *what)
{
    static const char ends[] = " \t\r\n<";
    size_t at = str_find(header, str_of(what)), len = 0;
    if (at == STR_NONE)
        return (str){NULL, 0};
    str rest = str_from(header, at + strlen(what));
    rest = str_from(rest, output_shape_blanks(rest));
    while (len < rest.len && !strchr(ends, rest.p[len]))
        len++;
    return str_sub(rest, 0, len);
}

static str without(str s, const char *prefix)
{
    return str_starts(s, str_of(prefix)) ? str_from(s, strlen(prefix)) : s;
}

/* What the message behind this header is; used: bytes of header and its end. */
static void enter(struct output *o, str header, size_t used)
{
    str to = word_behind(header, "to="), channel = word_behind(header, "<|channel|>");
    bool is_function = str_starts(to, STR("functions."));
    str name = without(to, "functions.");
    bool is_call = name.len && o->o.tools &&
                   (is_function || output_tools_find(o->o.tools, name));
    o->phase = OUTPUT_PHASE_MESSAGE;
    o->message = str_starts(channel, STR("analysis")) ? API_EVENT_REASONING : API_EVENT_CONTENT;
    o->drops_blanks = o->message == API_EVENT_REASONING;
    if (!is_call) {
        output_shape_drop(o, used);
        return;
    }
    output_call_start(o, false);
    (void)output_call_begin(o, name, used);
    o->call.look = 0;
    o->call.shape = OUTPUT_SHAPE_CHANNEL;
    o->call.stage = OUTPUT_JSON_ARGS;
    o->message = API_EVENT_CONTENT;
}

/* Whether the text may still be a header: it begins with a marker or a recipient. */
static enum output_shape_match looks_like_header(str text)
{
    static const str begins[] = {STR_INIT("<|start|>"), STR_INIT("<|channel|>"),
                                 STR_INIT("<|message|>"), STR_INIT("<|constrain|>"),
                                 STR_INIT("to=")};
    enum output_shape_match best = OUTPUT_SHAPE_NO;
    size_t len = 0;
    text = str_from(text, output_shape_blanks(text));
    for (size_t i = 0; i < countof(begins); i++) {
        enum output_shape_match m = output_shape_is(text, begins[i], &len);
        best = m > best ? m : best;
    }
    return best;
}

/* No header after all: a marker alone is not shown, words are content. False: more is needed. */
static bool no_header(struct output *o, enum output_shape_end end)
{
    str text = output_shape_rest(o);
    size_t at = 0, len = 0;
    enum output_shape_match m = output_shape_find(text, channel_marks, countof(channel_marks), &at,
                                                  &len);
    bool at_mark = m != OUTPUT_SHAPE_NO && at == 0;
    if (at_mark && m == OUTPUT_SHAPE_PARTLY && end == OUTPUT_SHAPE_GOES_ON)
        return false;
    if (at_mark && m == OUTPUT_SHAPE_YES) {
        o->has_header = str_eq(str_sub(text, 0, len), channel_marks[MARK_START]);
        output_shape_drop(o, len);
        return true;
    }
    o->phase = OUTPUT_PHASE_MESSAGE;
    o->message = API_EVENT_CONTENT;
    o->drops_blanks = false;
    if (at_mark)
        output_shape_drop(o, text.len); /* it was going to be a marker */
    return true;
}

static bool header_step(struct output *o, enum output_shape_end end)
{
    str text = output_shape_rest(o);
    size_t at = 0, len = 0;
    if (text.len == 0)
        return false;
    enum output_shape_match like = looks_like_header(text);
    if (like == OUTPUT_SHAPE_PARTLY && end == OUTPUT_SHAPE_GOES_ON)
        return false;
    if (like != OUTPUT_SHAPE_YES && !o->has_header)
        return no_header(o, end);
    /* A header ends at <|message|>, or where a body's end shows that it never had one. */
    const str ends[] = {channel_marks[MARK_MESSAGE], channel_marks[4], channel_marks[5],
                        channel_marks[6]};
    enum output_shape_match m = output_shape_find(text, ends, countof(ends), &at, &len);
    if (at > HEADER_MAX)
        return no_header(o, end);
    if (m == OUTPUT_SHAPE_YES) {
        bool is_message = str_eq(str_sub(text, at, len), channel_marks[MARK_MESSAGE]);
        if (is_message)
            enter(o, str_sub(text, 0, at), at + len);
        else
            output_shape_drop(o, at + len);
        return true;
    }
    if (end == OUTPUT_SHAPE_GOES_ON)
        return false;
    output_shape_drop(o, text.len);
    return true;
}

static void show(struct output *o, size_t count)
{
    if (o->message == API_EVENT_REASONING) {
        if (o->drops_blanks) {
            size_t blanks = output_shape_blanks(str_sub(output_shape_rest(o), 0, count));
            output_shape_drop(o, blanks);
            count -= blanks;
            o->drops_blanks = count == 0;
        }
        output_shape_think(o, count);
    } else {
        output_shape_show(o, count);
    }
}

/* Up to any marker: they all end a message or begin the next one. An answer in a format is the last
 * message and may quote them. */
static bool message_step(struct output *o, enum output_shape_end end)
{
    str text = output_shape_rest(o);
    size_t at = 0, len = 0;
    if (text.len == 0)
        return false;
    bool is_answer = o->o.has_format && o->message == API_EVENT_CONTENT && !o->calls_begun;
    enum output_shape_match m = OUTPUT_SHAPE_NO;
    if (!is_answer)
        m = output_shape_find(text, channel_marks, countof(channel_marks), &at, &len);
    if (m == OUTPUT_SHAPE_NO) {
        show(o, text.len);
        return false;
    }
    if (m == OUTPUT_SHAPE_PARTLY && end != OUTPUT_SHAPE_GOES_ON) {
        show(o, end == OUTPUT_SHAPE_IS_CUT ? at : text.len);
        output_shape_drop(o, output_shape_rest(o).len);
        return false;
    }
    show(o, at);
    if (m == OUTPUT_SHAPE_PARTLY || o->is_stopped)
        return false;
    str mark = str_sub(output_shape_rest(o), 0, len);
    o->phase = OUTPUT_PHASE_HEADER;
    o->has_header = str_eq(mark, channel_marks[MARK_START]);
    bool opens = str_eq(mark, channel_marks[MARK_CHANNEL]) ||
                 str_eq(mark, channel_marks[MARK_CONSTRAIN]);
    if (!opens) /* <|message|> in a message is a doubled one: the body goes on */
        output_shape_drop(o, len);
    if (str_eq(mark, channel_marks[MARK_MESSAGE]))
        o->phase = OUTPUT_PHASE_MESSAGE;
    return true;
}

bool output_channel_step(struct output *o, enum output_shape_end end)
{
    return o->phase == OUTPUT_PHASE_HEADER ? header_step(o, end) : message_step(o, end);
}
