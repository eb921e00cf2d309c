/* prompt_replay - replies of the history as the very tokens that were sampled.
 *
 * Owns:      finding where a rendered prompt holds a reply whose ids are known, or one to be gone
 *            on with, and encoding the text around it.
 * Not:       knowing the ids (serve/replay), templates (chat/render), one text's tokens (text/tok).
 * Invariant: a reply goes in by its ids only where the template shows all of it, its reasoning too,
 *            between its own opening and a control token that ends replies. Everywhere else the
 *            text counts. So the prompt says the same, and its tokens are those in the cache.
 *
 *     <|im_start|>assistant\n <tool_call>\n{"name": ...}\n</tool_call> <|im_end|> \n<|im_start|>...
 *         text                |              ids                               |   text
 *
 * Thread:    prep thread.
 * Limits:    one region per message.
 */
#ifndef SHOAL_ENGINE_PROMPT_REPLAY_H
#define SHOAL_ENGINE_PROMPT_REPLAY_H

#include "engine/prompt.h"

struct prompt_region {
    size_t from, to; /* bytes of the text that the ids stand for */
    const int32_t *ids;
    uint32_t ids_count;
};

struct prompt_regions {
    struct prompt_region *rows; /* ascending, not overlapping */
    uint32_t count;
};

/* The regions of r's text that rq's messages have ids for; out->rows[rq->messages_count] is the
 * caller's. None if the ids are another model's. */
void prompt_replay_find(const struct prompt_model *m, const struct api_request *rq,
                        const struct render_result *r, struct prompt_regions *out);

/* Where in r's text the last message, an unfinished turn, begins to say what its model had said:
 * its own first byte, with reasoning in it the end of the reply's opening. STR_NONE: there is no
 * such turn, or it cannot be told. */
size_t prompt_replay_open_at(const struct prompt_model *m, const struct api_request *rq,
                             const struct render_result *r);

/* text, with the regions by their ids. False: what tok_encode says, or ERR_LIMIT when a is full. */
BASE_USE_RESULT bool prompt_replay_encode(const struct prompt_model *m, const struct tok_text *text,
                                          const struct prompt_regions *regions, struct arena *a,
                                          struct tok_ids *ids, struct err *e);

#endif
