/* contexts - named prefixes of conversations: given once, put before many requests.
 *
 * Owns:      the entries with their messages and tools, who may see them, their ttl, their number
 *            and size; putting one before a request that names it.
 * Not:       the body of POST /v1/contexts (dialect_contexts), its prefill (exchange), pages (kv):
 *            what an entry keeps is text, the prefix cache keeps the pages as it keeps any others,
 *            or pinned (pins).
 * Invariant: an entry is read in its cache scope alone; its key lists and changes it, also one
 *            that was narrowed by a salt, and so does admin; a public one, in scope "", is read by
 *            all, and only admin changes it. What is sent upstream or to a child is always the
 *            whole prompt. An entry that is deleted or expired lives until its last reader leaves.
 *
 *            What is saved, changed or deleted is so on the disk, too, a moment later.
 *
 *     begin --prefill failed--> gone
 *       \--prefilled: end--> saved --fork, leave--> saved --DELETE, ttl--> gone, after a leave
 *
 * Thread:    the loop's.
 * Limits:    CONTEXTS_MAX entries of CONTEXTS_SIZE_MAX bytes as they were sent; of one key
 *            CONTEXTS_SCOPE_MAX and CONTEXTS_SCOPE_SIZE_MAX. Past them nothing is evicted: 507.
 */
#ifndef SHOAL_SERVE_CONTEXTS_H
#define SHOAL_SERVE_CONTEXTS_H

#include "dialect/dialect_contexts.h"
#include "wire/loop.h"

#define CONTEXTS_MAX 4096u
#define CONTEXTS_SIZE_MAX ((size_t)256 << 20)
#define CONTEXTS_SCOPE_MAX 1024u
#define CONTEXTS_SCOPE_SIZE_MAX ((size_t)64 << 20)

struct context;
struct contexts;
struct models_leg;
struct contexts_options { /* loop, models NULL: nothing is pinned, only calls look at a ttl */
    struct loop *loop;
    struct models_leg *models; /* outlives it */
    const str *public_ids;     /* outlive it: in scope "", read by all, changed by admin */
    uint32_t public_ids_count;
    const char *dir;           /* of the tier, where they survive a restart; NULL: they do not */
    const struct dialect_limits *limits; /* dir: of what was saved */
};
BASE_USE_RESULT bool contexts_open(struct contexts **out, const struct contexts_options *o,
                                   struct err *e);
void contexts_close(struct contexts *s); /* nobody holds or reads one; NULL is allowed */

bool contexts_is_public(const struct contexts *s, str id);

/* --- one is saved --- */

struct contexts_new {
    str scope, id, model;           /* copied; model: its own name */
    str content;                    /* its end: in the memory that is taken over */
    int64_t ttl_ms;                 /* 0: as it was */
    int64_t unix_ms;                /* when its prefill was done; not used by begin, as all below */
    uint32_t tokens, cached_tokens; /* by the prefill */
    struct api_prefix prefix;       /* ... what its pages are called */
    bool has_pin, is_pinned;        /* has_pin: the prefill was, or was not, one of its pin */
};
/* A prefill for it begins: *out is held until contexts_end. *is_known: it was saved before, with
 * the same content. False: "conflict", other content has that id; "insufficient_storage". */
BASE_USE_RESULT bool contexts_begin(struct contexts *s, const struct contexts_new *n,
                                    int64_t now_ms, struct context **out, bool *is_known,
                                    struct api_error *e);
/* The same for one that is saved: *out is held, and rq becomes the request that prefilled it, but
 * for who asks now. False: there is none. */
struct contexts_asker {
    str scope;
    bool is_admin; /* sees all; of one name in several scopes its own without a salt first */
};
BASE_USE_RESULT bool contexts_recall(struct contexts *s, const struct contexts_asker *who, str id,
                                     int64_t now_ms, struct api_request *rq, struct context **out);
/* What a prefill of its pin is called: one begins now. */
str contexts_pin_name(struct context *c);
/* What GET will say once it is saved. */
void contexts_row(const struct context *c, const struct contexts_new *n,
                  struct dialect_contexts_row *out);
/* It is prefilled, or need not be: saved, and its ttl begins. rq, as it was read, lies in a, whose
 * memory is taken over unless an equal one is there already. */
void contexts_end(struct contexts *s, struct context *c, const struct contexts_new *n,
                  const struct api_request *rq, struct arena *a, int64_t now_ms);
/* It is not: held no more. */
void contexts_drop(struct contexts *s, struct context *c);

/* --- one is read --- */

struct contexts_fork {
    struct api_request *rq; /* names the context */
    str model;              /* as the store calls rq's */
    struct arena *arena;    /* of rq; holds the longer list of messages */
    int64_t now_ms;
};
/* Puts the context before the messages or the raw prompt of rq and takes its name off. *out is read
 * until contexts_leave. False: "not_found", "conflict" (another model), ERR_REQUEST (rq is of the
 * other kind), ERR_LIMIT (the arena is full). */
BASE_USE_RESULT bool contexts_fork(struct contexts *s, const struct contexts_fork *f,
                                   struct context **out, struct api_error *e);
void contexts_leave(struct contexts *s, struct context *c);

/* --- for paths --- */

/* Appends the list. */
void contexts_write(struct contexts *s, const struct contexts_asker *who, int64_t now_ms,
                    struct buf *out);
/* False: there is none. */
bool contexts_write_one(struct contexts *s, const struct contexts_asker *who, str id,
                        int64_t now_ms, struct buf *out);
bool contexts_delete(struct contexts *s, const struct contexts_asker *who, str id, int64_t now_ms);

/* False: the sentence for an id that nobody knows, or not this asker. */
bool contexts_none(str id, struct api_error *e);

#endif
