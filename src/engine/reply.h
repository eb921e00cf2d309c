/* reply - how the reply to one request is to be read: format, tools, where the prompt leaves it.
 *
 * Owns:      struct reply, the part of a job that its choices share; the thinking budget and the
 *            tokens that close a block by force; the text of a partial reply as this model would
 *            have written it.
 * Not:       reading it (chat/output), the grammar of it (constrain), the prompt's tokens (prompt).
 * Invariant: a pure function of request, model and rendered prompt.
 * Thread:    prep thread; immutable then.
 * Limits:    those of the request's arena.
 */
#ifndef SHOAL_ENGINE_REPLY_H
#define SHOAL_ENGINE_REPLY_H

#include "chat/output.h"
#include "chat/render.h"
#include "text/tok.h"

struct prompt_model;

struct reply {
    struct output_format format;      /* zero: a completion, all is content */
    const struct output_tools *tools; /* NULL: none, or tool_choice none */
    enum output_begin begin;
    bool one_call;
    bool goes_on_call; /* the prompt ends in a call */
    uint32_t think_tokens_max; /* API_THINK_ENDLESS */
    const int32_t *close_ids;  /* what ends a block of reasoning by force */
    uint32_t close_count;
};

/* For a rendered prompt, whose text says whether a block of reasoning is open. Tables lie in a, the
 * request's. False: ERR_LIMIT, ERR_REQUEST (tools_unsupported). */
BASE_USE_RESULT bool reply_make(struct reply *out, const struct prompt_model *m,
                                const struct api_request *rq, const struct render_result *prompt,
                                struct arena *a, struct api_error *e);

/* How the text of one choice is read; ids[count]: its prompt. */
struct output_options reply_output(const struct reply *r, const struct api_request *rq,
                                   uint32_t choice, const int32_t *ids, uint32_t count);

#endif
