/* constrain_value - the arguments of a call as rules: JSON, tags or literals, as the format has it.
 *
 * Owns:      what may stand between a tool's name and the end of its arguments; which keywords a
 *            format cannot keep to.
 * Not:       JSON itself (gram_schema), openers, names, closers (constrain_tools, constrain_bare).
 * Invariant: a text that is accepted is read by chat/output as arguments that fit the schema. What
 *            a form cannot express is an error for a strict tool, naming pointer and keyword; of
 *            others it is left out and noted.
 *
 *     OBJECT, NAMED, CHANNEL   {"city":"Oslo","days":3}                gram_schema
 *     TAGS                     <parameter=city>\nOslo\n</parameter>    text free, other values JSON
 *     LITERAL                  {city:<|"|>Oslo<|"|>,days:3}
 *
 * Thread:    prep thread.
 * Limits:    CONSTRAIN_VALUE_ORDERED parameters keep their order in TAGS and LITERAL; a strict tool
 *            has no more there. CONSTRAIN_VALUE_DEPTH_MAX levels of LITERAL.
 */
#ifndef SHOAL_ENGINE_CONSTRAIN_VALUE_H
#define SHOAL_ENGINE_CONSTRAIN_VALUE_H

#include "engine/constrain_tools.h"

#define CONSTRAIN_VALUE_ORDERED 32u
#define CONSTRAIN_VALUE_DEPTH_MAX 16u

/* What the writers of one grammar share. */
struct constrain_write {
    struct gram *g;
    const struct constrain_ask *ask;
    const struct output_row *row;
    uint32_t *rules;  /* per row of ask->tools: GRAM_NONE, or the rule of its JSON arguments */
    uint32_t literal; /* LITERAL: the rule of any value, or GRAM_NONE while nobody asked */
    struct arena arena;
    struct err *e;
};

/* The arguments of tool i of ask->tools, then next. LITERAL: behind its "{". False: *w->e says
 * which tool, pointer and keyword. */
BASE_USE_RESULT bool constrain_value_args(struct constrain_write *w, uint32_t i, uint32_t next,
                                          uint32_t *out);
/* A text of a format, then next; nothing where it is empty. */
uint32_t constrain_value_text(struct gram *g, str text, uint32_t next);
/* Blanks that a model may write there or not, then next. */
uint32_t constrain_value_blanks(struct gram *g, uint32_t next);
/* Blanks as JSON has them, any number; a pattern of ours, which always compiles. */
uint32_t constrain_value_pattern(struct constrain_write *w, const char *pattern, uint32_t next);

#endif
