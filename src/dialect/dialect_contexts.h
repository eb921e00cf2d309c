/* dialect_contexts - a prefix of a conversation, given once, named afterwards: POST /v1/contexts,
 * PATCH /v1/contexts/ID.
 *
 * Owns:      the fields of the body, the object `context`, reading a ttl.
 * Not:       what is kept and for whom (serve/contexts), messages, tools and prompts themselves
 *            (dialect_openai_chat and dialect_openai_complete read them).
 * Invariant: content is what tells two contexts apart: model, messages, prompt and tools as they
 *            were sent, nothing else. A PATCH reads no messages, its request is a LIST until the
 *            caller, who has them, makes it the PREFILL that it stands for.
 * Thread:    as dialect.
 * Limits:    those of chat; an id of DIALECT_CONTEXTS_ID_MAX letters, DIALECT_CONTEXTS_TTL_MAX_MS.
 */
#ifndef SHOAL_DIALECT_DIALECT_CONTEXTS_H
#define SHOAL_DIALECT_DIALECT_CONTEXTS_H

#include "base/json.h"
#include "dialect/dialect.h"

#define DIALECT_CONTEXTS_ID_MAX 64u
#define DIALECT_CONTEXTS_TTL_MAX_MS (INT64_C(365) * 86400 * 1000)

struct dialect_contexts_row {
    str id, model;
    uint32_t tokens, cached_tokens, readers;
    int64_t created_s, used_s, expires_s; /* Unix */
    uint64_t bytes;       /* of its pages; 0: not told yet */
    enum api_place place; /* NOWHERE: not told, or some of it would be computed again */
    bool is_pinned;
};

struct dialect_contexts_state {
    struct dialect_state s;
    str id, content;
    int64_t ttl_ms; /* 0: not said */
    bool is_change; /* PATCH */
    bool has_pin, pin, warm; /* has_pin: it was said */
    bool is_known; /* the caller: it was there already, the status is 200 */
    struct dialect_contexts_row row; /* the caller's, before the last DONE */
};

extern const struct dialect dialect_contexts;

/* 1 to DIALECT_CONTEXTS_ID_MAX of A-Z a-z 0-9 . _ - */
bool dialect_contexts_is_id(str id);
/* Whether a model has to compute something for it. */
bool dialect_contexts_computes(const struct dialect_contexts_state *st);
void dialect_contexts_put(struct json_writer *w, const struct dialect_contexts_row *row);

#endif
