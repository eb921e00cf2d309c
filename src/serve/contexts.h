/* contexts - named prefixes of conversations: given once, put before many requests.
 *
 * Owns:      the entries with their messages and tools, who may see them, their ttl, their number
 *            and size; putting one before a request that names it.
 * Not:       the body of POST /v1/contexts (dialect_contexts), its prefill (exchange), pages (kv):
 *            what an entry keeps is text, the prefix cache keeps the pages as it keeps any others.
 * Invariant: an entry is seen in its cache scope alone, and by admin; what is sent upstream or to a
 *            child is always the whole prompt. An entry that is deleted or expired lives until its
 *            last reader leaves.
 *
 *     begin --prefill failed--> gone
 *       \--prefilled: end--> saved --fork, leave--> saved --DELETE, ttl--> gone, after a leave
 *
 * Thread:    the loop's.
 * Limits:    CONTEXTS_MAX entries of CONTEXTS_SIZE_MAX bytes as they were sent; of one scope
 *            CONTEXTS_SCOPE_MAX and CONTEXTS_SCOPE_SIZE_MAX. Past them nothing is evicted: 507.
 */
#ifndef SHOAL_SERVE_CONTEXTS_H
#define SHOAL_SERVE_CONTEXTS_H

#include "dialect/dialect_contexts.h"

#define CONTEXTS_MAX 4096u
#define CONTEXTS_SIZE_MAX ((size_t)256 << 20)
#define CONTEXTS_SCOPE_MAX 1024u
#define CONTEXTS_SCOPE_SIZE_MAX ((size_t)64 << 20)

struct context;
struct contexts;
BASE_USE_RESULT bool contexts_open(struct contexts **out, struct err *e);
void contexts_close(struct contexts *s); /* nobody holds or reads one; NULL is allowed */

/* --- one is saved --- */

struct contexts_new {
    str scope, id, model, content; /* copied; model: its own name */
    int64_t ttl_ms;
    uint32_t tokens, cached_tokens; /* by the prefill; not used by begin */
};
/* A prefill for it begins: *out is held until contexts_end. *is_known: it was saved before, with
 * the same content. False: "conflict", other content has that id; "insufficient_storage". */
BASE_USE_RESULT bool contexts_begin(struct contexts *s, const struct contexts_new *n,
                                    int64_t now_ms, struct context **out, bool *is_known,
                                    struct api_error *e);
/* What GET will say once it is saved. */
void contexts_row(const struct context *c, const struct contexts_new *n, int64_t now_ms,
                  struct dialect_contexts_row *out);
struct contexts_text {
    const struct api_message *messages;
    const struct api_tool *tools;
    uint32_t messages_count, tools_count;
};
/* It is prefilled: saved, and its ttl begins. text lies in a, whose memory is taken over unless an
 * equal text is there already. */
void contexts_end(struct contexts *s, struct context *c, const struct contexts_new *n,
                  const struct contexts_text *text, struct arena *a, int64_t now_ms);
/* It is not: held no more. */
void contexts_drop(struct contexts *s, struct context *c);

/* --- one is read --- */

struct contexts_fork {
    struct api_request *rq; /* names the context */
    str model;              /* as the store calls rq's */
    struct arena *arena;    /* of rq; holds the longer list of messages */
    int64_t now_ms;
};
/* Puts the context before the messages of rq and takes its name off. *out is read until
 * contexts_leave. False: "not_found", "conflict" (another model), ERR_REQUEST (rq has no messages),
 * ERR_LIMIT (the arena is full). */
BASE_USE_RESULT bool contexts_fork(struct contexts *s, const struct contexts_fork *f,
                                   struct context **out, struct api_error *e);
void contexts_leave(struct contexts *s, struct context *c);

/* --- for paths --- */

struct contexts_asker {
    str scope;
    bool is_admin; /* sees all; of one name in several scopes its own first */
};
/* Appends the list. */
void contexts_write(struct contexts *s, const struct contexts_asker *who, int64_t now_ms,
                    struct buf *out);
/* False: there is none. */
bool contexts_write_one(struct contexts *s, const struct contexts_asker *who, str id,
                        int64_t now_ms, struct buf *out);
bool contexts_set_ttl(struct contexts *s, const struct contexts_asker *who, str id, int64_t ttl_ms,
                      int64_t now_ms);
bool contexts_delete(struct contexts *s, const struct contexts_asker *who, str id, int64_t now_ms);

#endif
