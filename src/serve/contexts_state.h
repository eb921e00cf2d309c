/* contexts_state - a saved context and the set of them, shared by the files of contexts.
 *
 * Owns:      the structs, what contexts and contexts_look call of each other.
 * Not:       behaviour: contexts has the entries' lives, contexts_look asks where their pages lie.
 * Thread:    the loop's; while `writes` counts, scope, id, model and content are read by the thread
 *            of contexts_disk, too.
 * Limits:    those of contexts.h.
 */
#ifndef SHOAL_SERVE_CONTEXTS_STATE_H
#define SHOAL_SERVE_CONTEXTS_STATE_H

#include "base/digest.h"
#include "base/list.h"
#include "serve/contexts.h"
#include "serve/pins.h"

struct context {
    struct list link;   /* not linked: deleted */
    struct arena names; /* scope, id, model */
    struct arena arena; /* rq's and content's, once saved */
    struct api_request rq; /* that prefills it */
    struct pin pin;
    str scope, id, model, content;
    size_t size;            /* of content, also before it is saved */
    struct digest_128 sum;  /* likewise */
    uint64_t number;        /* rises in the list */
    struct api_prefix prefix;
    enum api_place place;   /* of its pages, when it was asked for last */
    uint32_t holds, readers; /* prefills for it; requests that it stands before */
    uint32_t writes;         /* of its file, under way */
    uint32_t tokens, cached_tokens;
    int64_t created_s, used_s, expires_s; /* Unix, as they are told */
    int64_t expires_ms;
    bool is_saved, was_pinned; /* was_pinned: a child may have a pin of it */
};

struct contexts {
    struct contexts_options o;
    struct list all; /* by age */
    uint32_t count;
    size_t size;
    uint64_t last; /* number of the youngest */
    struct pins pins;
    struct loop_timer tick; /* runs while anything is pinned */
    bool has_tick;
    struct contexts_disk *disk; /* NULL: nothing survives a restart */
};

/* The one of that id that this asker may change, or only read. NULL: none that is saved. */
struct context *contexts_seen(struct contexts *s, const struct contexts_asker *who, str id,
                              bool is_change, int64_t now_ms);
/* It is saved, and this asker sees it in the list. */
bool contexts_is_listed(const struct context *c, const struct contexts_asker *who);

#endif
