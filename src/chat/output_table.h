/* output_table - how a model family writes reasoning and tool calls: a row of markers per format.
 *
 * Owns:      the rows, and how a model's row is found.
 * Not:       reading a reply (output and its shapes), the grammar behind an opener
 *            (engine/constrain), rendering past calls (the model's own template).
 * Invariant: a call is exactly this text, in this order, and rows hold every byte of it, so that a
 *            parser, a grammar and the writer of a partial reply work from the same data:
 *
 *     before section_open  call_open name_open NAME name_close ARGUMENTS args_close call_close
 *                          between  call_open ...                                section_close
 *
 *            ARGUMENTS by shape:
 *              OBJECT, NAMED, CHANNEL   one JSON value
 *              TAGS      per argument: key_open KEY key_text|key_json VALUE value_close
 *              LITERAL   {KEY:VALUE,...}: bare keys, strings between key_open and value_close,
 *                        numbers, true, false, null, {...} and [...] nested
 *            Blanks at the ends of these strings are what the model usually writes; a parser
 *            accepts any number of blanks there. A text without blanks at its ends is exact.
 *            The opener (output_table_opener) is never the beginning of ordinary text: from it on
 *            a grammar may be strict.
 * Thread:    constants.
 */
#ifndef SHOAL_CHAT_OUTPUT_TABLE_H
#define SHOAL_CHAT_OUTPUT_TABLE_H

#include "base/err.h"
#include "base/str.h"

enum output_shape {
    OUTPUT_SHAPE_OBJECT,  /* {"name": NAME, "arguments": {...}} */
    OUTPUT_SHAPE_NAMED,   /* NAME, a separator, {...} */
    OUTPUT_SHAPE_TAGS,    /* NAME, then tags per argument */
    OUTPUT_SHAPE_LITERAL, /* NAME{key:value}, strings in the format's own quotes */
    OUTPUT_SHAPE_CHANNEL, /* messages with a header: harmony */
    OUTPUT_SHAPE_COUNT_
};

/* An empty str is nothing. */
struct output_row {
    str name;      /* as `tool_format` and -format call it */
    str detect[2]; /* the template holds both (empty = any template) */
    str arch;      /* or the file is of this architecture; empty = never */
    enum output_shape shape;
    str before;                       /* between prose and the first call */
    str section_open, section_close;  /* around all calls of a reply */
    str between;                      /* from one call to the next */
    str call_open, call_close;
    str name_open, name_close;
    str args_close; /* from the arguments to call_close */
    /* TAGS: the key's end before a string and before JSON (one text unless the format says which it
     * is); LITERAL: key_open, value_close are the quotes. */
    str key_open, key_text, key_json, value_close;
    str also[2], also_close; /* other openers that models write too, and the closer of the first */
    bool is_bare;    /* a whole reply that begins with name_open is a call without opener */
    bool reads_bare; /* such a reply is read as a call, in a code fence too, though the format has
                        an opener: its smaller models forget it */
    bool is_call_last;      /* one call a turn: nothing follows it */
};
extern const struct output_row output_table_rows[];
extern const uint32_t output_table_count;

/* The first block of a reply may be reasoning. CHANNEL has its own form of it: no row here. */
struct output_think {
    str name;
    str open, close; /* with the blanks that the model writes around */
    str detect;      /* in the template */
};
extern const struct output_think output_table_thinks[];
extern const uint32_t output_table_thinks_count;

/* How one model writes. Views of constants. */
struct output_format {
    const struct output_row *calls;   /* NULL: no known form of calls; all is text */
    const struct output_think *think; /* NULL: no reasoning block */
};

const struct output_row *output_table_find(str name); /* NULL: no such row */

/* By name (tool_format; "" = find out), else by what the template holds (with tools, and without),
 * else by architecture. Templates and architecture may be "". False: ERR_CONFIG, no format of that
 * name. */
BASE_USE_RESULT bool output_table_choose(struct output_format *out, str name,
                                         const str templates[2], str arch, struct err *e);

/* The first bytes of a call behind prose: section_open and call_open, without the blanks at their
 * ends; into text[size], cut there. "" for is_bare formats without an opener. */
str output_table_opener(const struct output_row *row, char *text, size_t size);

/* What a reader takes for the beginning of a call, "" for none: section_open, call_open and the
 * other ones, without blanks at the ends; a list's bracket is not part of it.
 * i < OUTPUT_TABLE_OPENERS. */
#define OUTPUT_TABLE_OPENERS 4
str output_table_begin(const struct output_row *r, uint32_t i);
/* Whether this format can say a tool of that name: a JSON string holds any, other heads end at
 * blanks, quotes and brackets. */
bool output_table_can_name(const struct output_row *row, str name);

#endif
