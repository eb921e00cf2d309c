/* constrain_tools - the grammar of a reply that may hold calls, in the model's own format.
 *
 * Owns:      what may stand behind an opener, which calls a tool_choice allows, where reasoning
 *            ends and the answer begins.
 * Not:       formats (chat/output_table), reading a reply (chat/output), arguments
 *            (constrain_value), schemas (gram_schema).
 * Invariant: from the opener on the text is a call to a declared tool with arguments that fit its
 *            schema, byte by byte as the row says; before it text is free. A keyword that is not
 *            supported is an error for a strict tool; of others it is left out and noted.
 *
 *     AUTO      free text --opener--> call --> free text ...        or ends
 *               (a call that nothing marks, at the beginning: constrain_bare)
 *     REQUIRED  [reasoning] opener --> call [--> another]           then ends
 *     NONE      free text, the opener leads nowhere
 *     off       AUTO of free text without a strict tool: no grammar
 *
 * Thread:    prep thread.
 * Limits:    those of the gram.
 */
#ifndef SHOAL_ENGINE_CONSTRAIN_TOOLS_H
#define SHOAL_ENGINE_CONSTRAIN_TOOLS_H

#include "chat/output.h"
#include "grammar/gram.h"

struct constrain_ask {
    const struct api_request *rq;
    struct output_format format;
    const struct output_tools *tools; /* NULL: none, or none may be called */
    enum output_begin begin;
    bool one_call;
    bool is_off; /* calls that nothing asks for are free, unless one of the tools is strict */
    struct buf *dropped; /* "NAME#/a: not\n" for each keyword left out */
    const struct api_tool **refused; /* gets the tool that an error speaks of; may be NULL */
};

/* Whether calls or their ban need a grammar for this request. */
bool constrain_tools_bind(const struct constrain_ask *ask);
/* *root begins a reply behind reasoning: calls as asked for, beside them `answer` (GRAM_NONE: free
 * text). False: ERR_REQUEST names tool, pointer and keyword. */
BASE_USE_RESULT bool constrain_tools_root(struct gram *g, const struct constrain_ask *ask,
                                          uint32_t answer, uint32_t *root, struct err *e);
/* Reasoning, if the model may write it, in front of next. */
uint32_t constrain_tools_think(struct gram *g, const struct constrain_ask *ask, uint32_t next);

#endif
